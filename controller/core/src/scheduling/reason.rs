//! Every way a pod fails to find a place, per pool, with the facts. `Display` gives upstream's words, which users search
//! for; [`Unschedulable::explain`] adds ours where the facts say more.

use super::packing::ReservedMisfit;
use super::topology::TopologyUnsatisfiable;
use crate::catalog::InstanceType;
use crate::quantity::Quantity;
use crate::requirements::{Incompatible, Requirements};
use crate::resources::Resources;
use crate::snapshot::PodName;
use crate::taints;
use k8s_openapi::api::core::v1::Taint;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Why a pod was planned nowhere.
#[derive(Clone, Debug, PartialEq)]
pub enum Unschedulable {
    /// It is left out, for its own sake.
    Ignored(Vec<InvalidPod>),
    /// It claims devices through dynamic resource allocation.
    DynamicResources,
    /// No NodePool is ready to launch from.
    NoNodePools,
    /// Every NodePool's requirements leave no instance type.
    NoTemplates,
    /// Each NodePool refused.
    NoPoolFits(Vec<PoolRefusal>),
    /// It had a place, but the node's instance types turned out too few.
    MinValues {
        /// The pool.
        pool: String,
        /// What is missing.
        unmet: MinValuesUnmet,
    },
}

/// What is wrong with a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum InvalidPod {
    /// It refuses every node of this controller. The only one that is not told in an event: the pod wants it so.
    RefusesManagedNodes,
    /// A node affinity term selects by field.
    MatchFields,
    /// A quantity cannot be read, or a node selector or affinity term asks for what cannot be asked.
    Field(String),
    /// A claim behind one of its volumes is not as it must be.
    Volume(String),
}

/// Why one pool could not give a node.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolRefusal {
    /// The pool.
    pub pool: String,
    /// Why.
    pub refusal: Refusal,
}

/// Why a node, existing or planned, does not take a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The pod does not tolerate a taint.
    Taint(Taint),
    /// A port on the node is taken.
    HostPort,
    /// Labels clash.
    Requirements(Incompatible),
    /// A constraint about other pods leaves no domain.
    Topology(Arc<TopologyUnsatisfiable>),
    /// No place that its volumes can be reached from goes with the node's labels.
    Volumes,
    /// No place is one that all of its volumes can be reached from.
    VolumesApart,
    /// Capacity is reserved for it, and is all taken: it waits for that instead of buying more.
    Reserved(ReservedMisfit),
    /// The pool has as many nodes as it may.
    NodeLimit,
    /// Every instance type would exceed the pool's limits.
    Limits {
        /// What the pool may still add.
        remaining: Resources,
    },
    /// No instance type is left.
    InstanceTypes(Arc<NoInstanceType>),
}

/// Why no instance type is left for a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct NoInstanceType {
    /// Set when types were left but too few different ones.
    pub min_values: Option<MinValuesUnmet>,
    /// What single types and combinations met.
    pub met: Met,
    /// What the pods ask for with the smallest and the largest DaemonSet overhead.
    pub resources: (Resources, Resources),
    /// What the pod itself asks of CPU.
    pub pod_cpu: Quantity,
    /// The types.
    pub types: TypesLeftOut,
}

/// Instance types that are no place for what a node is to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct TypesLeftOut {
    /// What the node has to satisfy.
    pub requirements: Requirements,
    /// What it has to hold.
    wanted: Resources,
    /// The most that one of the types has for it.
    most: Resources,
    by_rule: BTreeMap<TypeRule, BTreeSet<String>>,
}

/// Why an instance type is no place for a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TypeRule {
    /// A label does not fit.
    Labels {
        /// The first of those that do not.
        key: String,
    },
    /// A DaemonSet's pod takes the port.
    DaemonSetPort,
    /// There is not enough of some resources.
    Resources {
        /// Their names.
        names: Vec<String>,
    },
    /// It cannot be had now in the zones and markets allowed.
    Offering,
    /// It would do, but there are too few different ones like it.
    MinValues,
    /// It would do, but as many as a NodeClaim names are cheaper.
    Dearer,
    /// It would do by itself: the pool's limits or its DaemonSets leave no room for it.
    Beyond,
}

/// Why a node that exists is no place for a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeRule {
    /// The pod does not tolerate a taint.
    Taint {
        /// The taint, as in `key=value:NoSchedule`.
        taint: String,
    },
    /// A label is not as the pod requires.
    Labels {
        /// The requirement.
        wanted: String,
    },
    /// The pod's volumes cannot be reached from there.
    Volumes,
    /// Too little of some resources is left.
    Resources {
        /// Their names.
        names: Vec<String>,
    },
    /// A port is taken.
    HostPort,
    /// A driver can attach no more volumes.
    AttachLimit,
    /// A constraint about other pods rules it out.
    OtherPods,
}

/// Nodes that exist by the rule that keeps a pod off each.
pub type NodesPassedOver = BTreeMap<NodeRule, Vec<String>>;

/// Which of the three criteria some instance type met, and which pairs one type met together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Labels fit.
    pub requirements: bool,
    /// Resources are enough.
    pub fits: bool,
    /// It can be bought as required.
    pub offering: bool,
    /// Labels and resources.
    pub requirements_and_fits: bool,
    /// Labels and offering.
    pub requirements_and_offering: bool,
    /// Resources and offering.
    pub fits_and_offering: bool,
}

/// A `minValues` that the instance types do not reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinValuesUnmet {
    /// For each label, how many different values there are.
    pub found: BTreeMap<String, usize>,
}

/// Why a pool was not considered at all.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolLeftOut {
    /// It is not ready; its conditions say why.
    NotReady,
    /// It is being deleted.
    Deleting,
    /// It keeps a fixed number of nodes.
    Static,
    /// Its class resolves to no instance type.
    NoInstanceTypes,
    /// Its own requirements leave no instance type.
    NoCompatibleInstanceTypes {
        /// Set when that is for want of different values.
        min_values: Option<MinValuesUnmet>,
        /// Whether types meet the requirements, of which none can be had now.
        unavailable: bool,
    },
}

impl PoolLeftOut {
    /// A sentence of our own where the facts say more than upstream's words.
    pub fn explain(&self) -> Option<&'static str> {
        match self {
            Self::NoCompatibleInstanceTypes { unavailable: true, .. } => Some(UNAVAILABLE),
            _ => None,
        }
    }
}

/// Of types that would do.
const UNAVAILABLE: &str = "types would do, but none of them can be had now in the zones and markets allowed.";

impl Unschedulable {
    /// Whether the pod should get an event about it.
    pub fn is_told(&self) -> bool {
        !matches!(self, Self::NoNodePools)
            && !self.is_deferred()
            && !matches!(self, Self::Ignored(errors) if *errors == [InvalidPod::RefusesManagedNodes])
    }

    /// Whether it waits for reserved capacity, which a later pass may find.
    pub fn is_deferred(&self) -> bool {
        self.refusals().iter().any(|refusal| matches!(refusal.refusal, Refusal::Reserved(_)))
    }

    /// Why each pool refused, where that is the reason.
    pub fn refusals(&self) -> &[PoolRefusal] {
        match self {
            Self::NoPoolFits(refusals) => refusals,
            _ => &[],
        }
    }

    /// Whether it never took part in a pass.
    pub fn is_ignored(&self) -> bool {
        matches!(self, Self::Ignored(_))
    }

    /// A sentence of our own where the facts say more than upstream's words.
    pub fn explain(&self) -> Option<String> {
        let sentences: Vec<String> = self
            .refusals()
            .iter()
            .filter_map(|refusal| Some(format!("NodePool {}: {}", refusal.pool, refusal.refusal.explain()?)))
            .collect();
        if sentences.is_empty() { None } else { Some(sentences.join(" ")) }
    }
}

impl Refusal {
    /// The kind of reason in one word, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Taint(_) => "Taint",
            Self::HostPort => "HostPort",
            Self::Requirements(_) => "Requirements",
            Self::Topology(_) => "Topology",
            Self::Volumes | Self::VolumesApart => "Volumes",
            Self::Reserved(_) => "ReservedCapacity",
            Self::NodeLimit | Self::Limits { .. } => "Limits",
            Self::InstanceTypes(none) => none.kind(),
        }
    }

    /// A sentence of our own where the facts say more than upstream's words.
    pub fn explain(&self) -> Option<String> {
        match self {
            Self::Limits { remaining } => {
                Some(format!("its limits leave {remaining}, and every instance type has more than that."))
            }
            Self::NodeLimit => Some("its limit on nodes is reached.".to_owned()),
            Self::Taint(taint) => Some(format!("its nodes carry the taint {}.", taints::text(taint))),
            Self::InstanceTypes(none) if !none.types.lacking().is_empty() => {
                let lacking = none.types.lacking();
                let lacking = lacking.iter().map(|(name, most)| {
                    format!(
                        "{} of {name} are needed and the largest type has room for {most}",
                        none.types.wanted.get(name)
                    )
                });
                Some(format!("{}.", lacking.collect::<Vec<_>>().join(", ")))
            }
            Self::InstanceTypes(none) if none.min_values.is_none() && none.met.requirements_and_fits => {
                Some(UNAVAILABLE.to_owned())
            }
            Self::Topology(unsatisfiable) => Some(unsatisfiable.explain()),
            Self::Volumes => Some("its volumes cannot be reached from where its nodes can be.".to_owned()),
            Self::VolumesApart => Some("its volumes are never in the same place.".to_owned()),
            Self::Reserved(_) | Self::HostPort | Self::Requirements(_) | Self::InstanceTypes(_) => None,
        }
    }
}

impl NoInstanceType {
    /// Which of the criteria no type meets by itself, or that none meets them together.
    fn kind(&self) -> &'static str {
        let Met { requirements, fits, offering, .. } = self.met;
        match (&self.min_values, requirements, fits, offering) {
            (Some(_), ..) => "MinValues",
            (None, false, ..) => "InstanceTypeRequirements",
            (None, _, false, _) => "InstanceTypeResources",
            (None, _, _, false) => "InstanceTypeOfferings",
            (None, true, true, true) => "InstanceTypes",
        }
    }

    /// Upstream's words, without what the pods asked for.
    pub fn short(&self) -> String {
        self.min_values.as_ref().map_or_else(|| self.prefix(), ToString::to_string)
    }

    /// Upstream's words for the combination of criteria (core spec §3.12.2).
    fn prefix(&self) -> String {
        let Met { requirements, fits, offering, .. } = self.met;
        match (requirements, fits, offering) {
            (false, false, false) => {
                "no instance type met the scheduling requirements or had enough resources or had a required offering"
            }
            (false, false, true) => "no instance type met the scheduling requirements or had enough resources",
            (false, true, false) => "no instance type met the scheduling requirements or had a required offering",
            (true, false, false) => "no instance type had enough resources or had a required offering",
            (false, true, true) => "no instance type met all requirements",
            (true, false, true) if self.pod_cpu >= Quantity::units(1_000_000) => {
                "no instance type has enough resources (CPU request >= 1 Million, m vs M typo?)"
            }
            (true, false, true) => "no instance type has enough resources",
            (true, true, false) => "no instance type has the required offering",
            (true, true, true) if self.met.requirements_and_fits => {
                "no instance type which met the scheduling requirements and had enough resources, had a required offering"
            }
            (true, true, true) if self.met.fits_and_offering => {
                "no instance type which had enough resources and the required offering met the scheduling requirements"
            }
            (true, true, true) if self.met.requirements_and_offering => {
                "no instance type which met the scheduling requirements and the required offering had the required resources"
            }
            (true, true, true) => "no instance type met the requirements/resources/offering tuple",
        }
        .to_owned()
    }
}

impl TypesLeftOut {
    /// None yet, of the types for a node that has to satisfy and hold so much.
    pub(crate) fn new(requirements: Requirements, wanted: Resources) -> Self {
        Self { requirements, wanted, most: Resources::new(), by_rule: BTreeMap::new() }
    }

    /// The first rule by which the type, with `room` for pods, is no place; none if it would do.
    pub(crate) fn rule(&self, instance_type: &InstanceType, room: &Resources) -> Option<TypeRule> {
        if !instance_type.requirements.intersects(&self.requirements) {
            return Some(TypeRule::Labels { key: self.first_clash(instance_type) });
        }
        let short = self.wanted.shortages(room);
        if !short.is_empty() {
            return Some(TypeRule::Resources { names: short.into_iter().map(|shortage| shortage.resource).collect() });
        }
        instance_type.offerings_for(&self.requirements).next().is_none().then_some(TypeRule::Offering)
    }

    /// Notes a type that is left out by the rule.
    pub(crate) fn add(&mut self, rule: TypeRule, instance_type: &InstanceType, room: &Resources) {
        self.most.raise_to(room);
        self.by_rule.entry(rule).or_default().insert(instance_type.name.clone());
    }

    /// The names of the types by the first rule that each fails.
    pub fn by_rule(&self) -> &BTreeMap<TypeRule, BTreeSet<String>> {
        &self.by_rule
    }

    /// For each resource that none of the types has enough of: the most that one has.
    pub fn lacking(&self) -> Resources {
        let shortages = self.wanted.shortages(&self.most).into_iter();
        shortages.map(|shortage| (shortage.resource, shortage.available.max(Quantity::ZERO))).collect()
    }

    /// What was asked and what there is, of types that fail by the rule.
    pub fn facts(&self, rule: &TypeRule) -> Option<String> {
        match rule {
            TypeRule::Labels { key } => self.requirements.get(key).map(|wanted| format!("wanted: {wanted}")),
            TypeRule::Resources { names } => {
                let lacking = self.lacking();
                let wanted = names.iter().map(|name| {
                    let most = match lacking.contains(name) {
                        true => format!(", the largest has room for {}", lacking.get(name)),
                        false => String::new(),
                    };
                    format!("{} of {name}{most}", self.wanted.get(name))
                });
                Some(wanted.collect::<Vec<_>>().join("; "))
            }
            _ => None,
        }
    }

    /// The label that keeps the type out.
    fn first_clash(&self, instance_type: &InstanceType) -> String {
        let clashes = |key: &&str| {
            let single: Requirements = self.requirements.get(key).cloned().into_iter().collect();
            !instance_type.requirements.intersects(&single)
        };
        self.requirements.keys().find(clashes).unwrap_or_default().to_owned()
    }
}

impl fmt::Display for Unschedulable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ignored(errors) => write!(f, "ignoring pod, {}", joined(errors)),
            Self::DynamicResources => {
                f.write_str("pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter")
            }
            Self::NoNodePools => f.write_str("no dynamic nodepools found"),
            Self::NoTemplates => f.write_str("nodepool requirements filtered out all available instance types"),
            Self::NoPoolFits(refusals) => f.write_str(&joined(refusals)),
            Self::MinValues { pool, unmet } => write!(
                f,
                "pod didn\u{2019}t schedule because NodePool couldn\u{2019}t meet minValues requirements, {unmet} (NodePool={pool})"
            ),
        }
    }
}

impl fmt::Display for InvalidPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RefusesManagedNodes => f.write_str(
                "configured to not run on a Karpenter provisioned node (requirement=karpenter.sh/nodepool DoesNotExist)",
            ),
            Self::MatchFields => f.write_str("node selector term with matchFields is not supported"),
            Self::Field(problem) | Self::Volume(problem) => f.write_str(problem),
        }
    }
}

impl fmt::Display for PoolRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "incompatible with nodepool {:?}, {}", self.pool, self.refusal)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taint(taint) => taints::Untolerated(taint.clone()).fmt(f),
            Self::HostPort => {
                f.write_str("checking host port usage, pod hostport conflicts with existing hostport configuration")
            }
            Self::Requirements(clashes) => write!(f, "incompatible requirements, {clashes}"),
            Self::Topology(unsatisfiable) => unsatisfiable.fmt(f),
            Self::Volumes | Self::VolumesApart => f.write_str("incompatible volume requirements"),
            Self::Reserved(ReservedMisfit::Taken) => f.write_str(
                "one or more instance types with compatible reserved offerings are available, but could not be reserved",
            ),
            Self::Reserved(ReservedMisfit::WouldBeLost) => f.write_str(
                "satisfying updated nodeclaim constraints would remove all compatible reserved offering options",
            ),
            Self::NodeLimit => f.write_str("node limits have been exhausted for nodepool"),
            Self::Limits { .. } => f.write_str("all available instance types exceed limits for nodepool"),
            Self::InstanceTypes(none) => none.fmt(f),
        }
    }
}

impl fmt::Display for NoInstanceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.min_values {
            Some(unmet) => unmet.fmt(f)?,
            None => f.write_str(&self.prefix())?,
        }
        write!(f, ", requirements={}, resources=", self.types.requirements)?;
        let (least, most) = &self.resources;
        if least == most { write!(f, "{least}") } else { write!(f, "min={least}, max={most}") }
    }
}

impl fmt::Display for TypeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Labels { key } => write!(f, "{key} does not fit"),
            Self::DaemonSetPort => f.write_str("a DaemonSet's pod takes the port"),
            Self::Resources { names } => write!(f, "not enough {}", names.join(", ")),
            Self::Offering => f.write_str("not to be had now in the zones and markets allowed"),
            Self::MinValues => f.write_str("would do, but there are too few different ones"),
            Self::Dearer => f.write_str("would do, but as many as a NodeClaim names are cheaper"),
            Self::Beyond => f.write_str("would do, but for the NodePool's limits or its DaemonSets"),
        }
    }
}

impl fmt::Display for NodeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taint { taint } => write!(f, "tainted {taint}"),
            Self::Labels { wanted } => write!(f, "without {wanted}"),
            Self::Volumes => f.write_str("out of reach of its volumes"),
            Self::Resources { names } => write!(f, "with too little {} left", names.join(", ")),
            Self::HostPort => f.write_str("where a port is taken"),
            Self::AttachLimit => f.write_str("that can attach no more volumes"),
            Self::OtherPods => f.write_str("ruled out by spread or affinity to other pods"),
        }
    }
}

impl fmt::Display for MinValuesUnmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<&str> = self.found.keys().map(String::as_str).collect();
        write!(f, "minValues requirement is not met for label(s) (label(s)={})", labels.join(","))
    }
}

impl fmt::Display for PoolLeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "ignoring nodepool, not ready",
            Self::Deleting => "ignoring nodepool, deleting",
            Self::Static => "ignoring nodepool, static",
            Self::NoInstanceTypes => "skipping, no resolved instance types found",
            Self::NoCompatibleInstanceTypes { .. } => "skipping, nodepool requirements filtered out all instance types",
        })
    }
}

impl std::error::Error for Unschedulable {}

/// A pod and why it was planned nowhere, for lists of such.
pub type Failures = BTreeMap<PodName, Unschedulable>;

fn joined<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
