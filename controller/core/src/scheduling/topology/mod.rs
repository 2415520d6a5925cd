//! Where pods of one kind are, by domain, and what that leaves open for the next pod (core spec §3.9).
//!
//! A domain is a value of a label: a zone, a host. A [`Count`] counts the pods of one namespace and selector in every
//! domain of one label: first those that run, then those that the pass places. Pods that want the same counted share one.
//! The loop asks [`Topology::choices`] before it places a pod and tells [`Topology::record`] after.
//!
//! Only spread constraints are known so far. Affinity between pods will count in the same way and have its own answer to
//! which domains are open.

mod spread;

pub(super) use spread::Spread;
pub use spread::SpreadUnsatisfiable;

use super::preferences::Wishes;
use crate::catalog::CapacityType;
use crate::requirement::{Operator, Requirement};
use crate::requirements::{AllowUndefined, Incompatible, Requirements};
use crate::selector;
use crate::snapshot::{MatchExpressions, Pod, PodName, Pool, Snapshot, SpreadConstraint, StateNode, node_class_label};
use crate::taints;
use controller_api::labels;
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// At most this many combinations of domains are tried on one node. Six zones in three markets are 18; a label with
/// hundreds of values would make every pod that fits nowhere cost hundreds of looks at every instance type.
const MAX_CHOICES: usize = 100;

/// All counts of one pass.
pub(super) struct Topology {
    counts: Vec<Count>,
    /// For each pod with constraints, one entry per constraint: the count, and the count once the pod tolerates taints
    /// that are only preferences.
    counted_by: BTreeMap<PodName, Vec<[usize; 2]>>,
}

/// A node, existing or planned, as a place in the topology.
pub(super) struct Place<'a> {
    /// What its labels may be.
    pub(super) requirements: &'a Requirements,
    /// Whether it can still get a label that it does not name.
    pub(super) allow: AllowUndefined,
}

/// Why a place has no domain open for a pod.
pub(super) enum Closed {
    /// This one of the pod's spread constraints.
    Spread(usize),
    /// The place will not have the label that is spread over.
    NoLabel(Incompatible),
}

/// What a count counts.
#[derive(PartialEq)]
struct Counted {
    topology_key: String,
    namespace: String,
    selector: Option<LabelSelector>,
    nodes: CountedNodes,
}

/// The nodes that take part in a count.
#[derive(PartialEq)]
struct CountedNodes {
    /// Node selector and alternatives of required node affinity, unless the constraint ignores them.
    affinity: Option<(BTreeMap<String, String>, Vec<MatchExpressions>)>,
    /// Tolerations, if the constraint honours taints.
    tolerations: Option<Vec<Toleration>>,
}

/// How many of some pods are in each domain of one label. A domain that is not listed is not known.
struct Count {
    counted: Counted,
    /// What the nodes that take part must have: one of these. Empty: no such condition.
    alternatives: Vec<Requirements>,
    domains: BTreeMap<String, u32>,
}

impl Topology {
    /// Counts for the constraints of `pods`. Pods in `moving` are on their way to another place and not counted where
    /// they are.
    pub(super) fn new(
        snapshot: &Snapshot,
        pools: &[&Pool],
        pods: &[Arc<Pod>],
        moving: &BTreeSet<&PodName>,
        some_pool_has_preferred_taints: bool,
    ) -> Self {
        let mut topology = Self { counts: Vec::new(), counted_by: BTreeMap::new() };
        if pods.iter().all(|pod| pod.topology_spread.is_empty()) {
            return topology;
        }
        let survey = Survey::new(snapshot, moving);
        let mut universe: BTreeMap<&str, Domains<'_>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !pod.topology_spread.is_empty()) {
            let mut tolerant = pod.tolerations.clone();
            if some_pool_has_preferred_taints {
                tolerant.push(super::preferences::tolerate_preferred_taints());
            }
            let entry = pod.topology_spread.iter().map(|constraint| {
                let key = constraint.topology_key.as_str();
                let known = universe.entry(key).or_insert_with(|| Domains::of_pools(key, pools));
                [&pod.tolerations, &tolerant]
                    .map(|tolerations| topology.count(Counted::by(pod, constraint, tolerations), known, &survey))
            });
            let entry = entry.collect();
            topology.counted_by.insert(pod.name.clone(), entry);
        }
        topology
    }

    /// The count of that kind, counted now if it is the first.
    fn count(&mut self, counted: Counted, known: &Domains<'_>, survey: &Survey<'_>) -> usize {
        if let Some(index) = self.counts.iter().position(|count| count.counted == counted) {
            return index;
        }
        let mut count = Count::new(counted, known);
        survey.add_to(&mut count);
        self.counts.push(count);
        self.counts.len() - 1
    }

    /// The pod's spread constraints with the counts they go by.
    pub(super) fn spread_of<'p>(&self, pod: &'p Pod) -> Vec<Spread<'p>> {
        let counted_by = self.counted_by.get(&pod.name).into_iter().flatten();
        let spread = pod.topology_spread.iter().zip(counted_by);
        spread
            .map(|(constraint, [count, tolerant])| Spread { constraint, count: *count, tolerant_count: *tolerant })
            .collect()
    }

    /// What a place would have to be for the pod to be spread as it wants: each answer names one domain per label, those
    /// with the fewest pods first, equals by name (markets in the order in which launches prefer them). At least one
    /// answer; for a pod without constraints one that asks for nothing.
    pub(super) fn choices(&self, wishes: &Wishes<'_>, place: &Place<'_>) -> Result<Vec<Requirements>, Closed> {
        let mut open: BTreeMap<&str, BTreeMap<&str, Vec<u32>>> = BTreeMap::new();
        for (index, spread) in wishes.spread.iter().enumerate() {
            let domains = self.counts[spread.count].open(spread, wishes, place);
            let key = spread.constraint.topology_key.as_str();
            let both = match open.remove(key) {
                None => domains.into_iter().map(|(domain, count)| (domain, vec![count])).collect(),
                Some(mut others) => {
                    others.retain(|domain, _| domains.contains_key(domain));
                    others.iter_mut().for_each(|(domain, counts)| counts.extend(domains.get(domain)));
                    others
                }
            };
            if both.is_empty() {
                return Err(Closed::Spread(index));
            }
            open.insert(key, both);
        }
        let mut choices = vec![Requirements::new()];
        for (key, domains) in open {
            let mut domains: Vec<(Vec<u32>, Option<CapacityType>, &str)> =
                domains.into_iter().map(|(domain, counts)| (counts, market(key, domain), domain)).collect();
            domains.sort();
            let with = |choice: &Requirements, domain: &str| choice.clone().with(Requirement::equals(key, domain));
            choices = choices
                .iter()
                .flat_map(|choice| domains.iter().map(move |(_, _, domain)| with(choice, domain)))
                .take(MAX_CHOICES)
                .collect();
        }
        // All choices name the same labels.
        choices.first().map_or(Ok(()), |choice| labelled(wishes, place, choice)).map_err(Closed::NoLabel)?;
        Ok(choices)
    }

    /// The facts behind [`Closed::Spread`].
    pub(super) fn explain(&self, wishes: &Wishes<'_>, index: usize, place: &Place<'_>) -> SpreadUnsatisfiable {
        let spread = &wishes.spread[index];
        self.counts[spread.count].explain(spread, wishes, place)
    }

    /// Takes note that the pod was placed there.
    pub(super) fn record(&mut self, pod: &Pod, taints: &[Taint], requirements: &Requirements) {
        for count in &mut self.counts {
            // As long as a node may still come up in several domains the pod is counted in none.
            let domain = requirements.get(&count.counted.topology_key).and_then(Requirement::single_value);
            if let Some(domain) = domain.filter(|_| count.counts(pod) && count.includes(taints, requirements)) {
                count.add(domain, 1);
            }
        }
    }
}

/// Whether the place has, or will have, the labels that the choice names. A pod's own requirement gives one to a planned
/// node.
fn labelled(wishes: &Wishes<'_>, place: &Place<'_>, choice: &Requirements) -> Result<(), Incompatible> {
    let is_planned = place.allow == AllowUndefined::WellKnown;
    let is_known = |key: &str| place.requirements.contains(key) || (is_planned && wishes.requirements.contains(key));
    let missing: Requirements = choice.iter().filter(|domain| !is_known(domain.key())).cloned().collect();
    place.requirements.compatible(&missing, place.allow)
}

fn market(key: &str, domain: &str) -> Option<CapacityType> {
    if key == labels::CAPACITY_TYPE_LABEL { CapacityType::from_label(domain) } else { None }
}

impl Counted {
    fn by(pod: &Pod, constraint: &SpreadConstraint, tolerations: &[Toleration]) -> Self {
        Self {
            topology_key: constraint.topology_key.clone(),
            namespace: pod.name.namespace.clone(),
            selector: constraint.selector.clone(),
            nodes: CountedNodes {
                affinity: constraint.honors_affinity.then(|| (pod.node_selector.clone(), pod.required_terms.clone())),
                tolerations: constraint.honors_taints.then(|| tolerations.to_vec()),
            },
        }
    }
}

impl Count {
    /// With the domains that pools can build, all of them empty.
    fn new(counted: Counted, known: &Domains<'_>) -> Self {
        let alternatives = match &counted.nodes.affinity {
            None => vec![],
            Some((selector, terms)) => {
                let selector = Requirements::from_labels(selector);
                let with_term = |term: &MatchExpressions| {
                    term.requirements.iter().fold(selector.clone(), |all, requirement| all.with(requirement.clone()))
                };
                if terms.is_empty() { vec![selector.clone()] } else { terms.iter().map(with_term).collect() }
            }
        };
        let domains = known.open_to(counted.nodes.tolerations.as_deref());
        let domains = domains.map(|domain| (domain.to_owned(), 0)).collect();
        Self { counted, alternatives, domains }
    }

    /// Whether a pod that is placed is one of those counted.
    fn counts(&self, pod: &Pod) -> bool {
        self.counted.namespace == pod.name.namespace
            && self.counted.selector.as_ref().is_some_and(|selector| selector::matches(selector, &pod.labels))
    }

    /// Whether a pod that runs is one of those counted. Without a selector every pod of the namespace is, as upstream has
    /// it.
    fn counts_running(&self, pod: &Pod) -> bool {
        self.counted.namespace == pod.name.namespace
            && self.counted.selector.as_ref().is_none_or(|selector| selector::matches(selector, &pod.labels))
    }

    /// Whether a node of these taints and labels takes part.
    fn includes(&self, taints: &[Taint], requirements: &Requirements) -> bool {
        let meets = |wanted: &Requirements| requirements.is_compatible(wanted, AllowUndefined::None);
        (self.alternatives.is_empty() || self.alternatives.iter().any(meets))
            && self.counted.nodes.tolerations.as_ref().is_none_or(|t| taints::tolerates(taints, t).is_ok())
    }

    fn add(&mut self, domain: &str, pods: u32) {
        match self.domains.get_mut(domain) {
            Some(count) => *count += pods,
            None => drop(self.domains.insert(domain.to_owned(), pods)),
        }
    }
}

/// The domains of one label that nodes of the pools can come up in, each with the taints it has to be tolerated with.
struct Domains<'a>(BTreeMap<String, Vec<&'a [Taint]>>);

impl<'a> Domains<'a> {
    /// Every value that a pool's requirements and one of its instance types list together. Values that a pool excludes
    /// count too where its types say nothing, as upstream has it.
    fn of_pools(key: &str, pools: &[&'a Pool]) -> Self {
        let mut domains: BTreeMap<String, Vec<&'a [Taint]>> = BTreeMap::new();
        // Under an alias no node carries the label.
        let is_alias = labels::normalize(key) != key;
        for pool in pools.iter().filter(|pool| !is_alias && !pool.instance_types.is_empty() && !is_own_label(key, pool))
        {
            let declared = pool.requirements().get_or_any(key);
            let mut values = BTreeSet::new();
            for instance_type in &pool.instance_types {
                match instance_type.requirements.get(key) {
                    Some(requirement) => values.extend(requirement.intersection(&declared).values().iter().cloned()),
                    None => values.extend(declared.values().iter().cloned()),
                }
            }
            if declared.operator() == Operator::In {
                values.extend(declared.values().iter().cloned());
            }
            for value in values {
                domains.entry(value).or_default().push(pool.taints());
            }
        }
        Self(domains)
    }

    /// Those that someone with these tolerations can reach; all if taints do not matter.
    fn open_to<'d>(&'d self, tolerations: Option<&'d [Toleration]>) -> impl Iterator<Item = &'d str> {
        let is_open = move |taints: &[&[Taint]]| {
            tolerations.is_none_or(|tolerations| taints.iter().any(|t| taints::tolerates(t, tolerations).is_ok()))
        };
        self.0.iter().filter(move |(_, taints)| is_open(taints)).map(|(domain, _)| domain.as_str())
    }
}

/// Labels that the controller itself gives to a pool's nodes. Upstream does not see domains in them, and pods spread over
/// pools would otherwise wait for nodes of pools they cannot use.
fn is_own_label(key: &str, pool: &Pool) -> bool {
    let class = &pool.object.spec.template.spec.node_class_ref;
    key == labels::NODE_POOL_LABEL || key == node_class_label(&class.group, &class.kind)
}

/// Nodes that exist, with the pods on them that stay.
struct Survey<'a>(Vec<Surveyed<'a>>);

struct Surveyed<'a> {
    state: &'a StateNode,
    node: &'a Node,
    requirements: Requirements,
    pods: Vec<&'a Arc<Pod>>,
}

impl<'a> Survey<'a> {
    fn new(snapshot: &'a Snapshot, moving: &BTreeSet<&PodName>) -> Self {
        let bound = snapshot.pods_by_node();
        let nodes = snapshot.nodes.values().filter_map(|state| Some((state, state.node.as_deref()?)));
        let surveyed = nodes.map(|(state, node)| {
            let pods = state.node_name().and_then(|name| bound.get(name)).into_iter().flatten().copied();
            Surveyed {
                state,
                node,
                requirements: Requirements::from_labels(node.metadata.labels.iter().flatten()),
                pods: pods.filter(|pod| pod.is_active() && !moving.contains(&pod.name)).collect(),
            }
        });
        Self(surveyed.collect())
    }

    /// Adds the domains of nodes that stay, and counts the pods of all. A node counts by its own taints and labels, those
    /// that pass while it starts included.
    fn add_to(&self, count: &mut Count) {
        let key = count.counted.topology_key.clone();
        for Surveyed { state, node, requirements, pods } in &self.0 {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
            if !count.includes(taints, requirements) {
                continue;
            }
            if let Some(domain) = state.labels().get(&key).filter(|_| !state.is_marked_for_deletion()) {
                count.add(domain, 0);
            }
            // A node is its own host even before its kubelet has said so.
            let own_name = state.node_name().filter(|_| key == labels::HOSTNAME_LABEL);
            let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(&key)).map(String::as_str);
            let counted = pods.iter().filter(|pod| count.counts_running(pod)).count();
            if let Some(domain) = label.or(own_name).filter(|_| counted > 0) {
                count.add(domain, u32::try_from(counted).unwrap_or(u32::MAX));
            }
        }
    }
}
