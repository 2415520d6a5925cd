//! A node being packed: with every pod its requirements narrow and instance types fall away (core spec §3.8, §3.12,
//! §3.13).

use super::amounts::{self, Axes, Row};
use super::preferences::Wishes;
use super::reason::{Met, MinValuesUnmet, NoInstanceType, Refusal};
use super::template::{SIMULATION_ONLY, Template, TemplateType};
use super::topology::{Closed, Place, Topology};
use super::truncate::{self, MinValuesOutcome};
use crate::catalog::{self, InstanceType};
use crate::drift_hash;
use crate::host_ports::{self, HostPort};
use crate::quantity::Quantity;
use crate::requirement::{Operator, Requirement};
use crate::requirements::{AllowUndefined, Requirements};
use crate::resources::Resources;
use crate::settings::MinValuesPolicy;
use crate::snapshot::PodName;
use crate::taints;
use controller_api::{NodeClaim, NodeClaimSpec, NodePool, ResourceRequirements, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node that should be launched.
#[derive(Clone, Debug)]
pub struct PlannedNode {
    /// The NodePool it comes from.
    pub pool: String,
    /// Pods planned for it.
    pub pods: Vec<PodName>,
    /// Types that would do, cheapest first, at most 600.
    pub instance_types: Vec<Arc<InstanceType>>,
    /// Labels it may carry.
    pub requirements: Requirements,
    /// What its pods ask for, DaemonSets included.
    pub requests: Resources,
    /// Whether `minValues` was lowered to what can be had.
    pub min_values_relaxed: bool,
    /// The pool as it was when the node was planned.
    pub node_pool: Arc<NodePool>,
}

impl PlannedNode {
    /// The NodeClaim that asks for this node, ready to be created.
    pub fn to_node_claim(&self) -> NodeClaim {
        let template = &self.node_pool.spec.template;
        let spec = NodeClaimSpec {
            taints: template.spec.taints().to_vec(),
            startup_taints: template.spec.startup_taints().to_vec(),
            requirements: self.launch_requirements().to_api(),
            resources: ResourceRequirements { requests: self.requests.to_api() },
            node_class_ref: template.spec.node_class_ref.clone(),
            // Written as Go writes it, unlike the times that keep their text.
            termination_grace_period: (template.spec.termination_grace_period.as_ref())
                .map(|grace| grace.as_duration().into()),
            expire_after: template.spec.expire_after.clone(),
        };
        let metadata = ObjectMeta {
            generate_name: Some(format!("{}-", self.pool)),
            labels: Some(self.labels()),
            annotations: Some(self.annotations()),
            owner_references: Some(vec![OwnerReference {
                api_version: "karpenter.sh/v1".to_owned(),
                kind: "NodePool".to_owned(),
                name: self.pool.clone(),
                uid: self.node_pool.metadata.uid.clone().unwrap_or_default(),
                block_owner_deletion: Some(true),
                controller: None,
            }]),
            ..ObjectMeta::default()
        };
        NodeClaim { metadata, spec, status: None }
    }

    /// The requirements with the types and markets that would do spelled out.
    fn launch_requirements(&self) -> Requirements {
        let mut requirements = self.requirements.clone();
        let names = self.instance_types.iter().map(|instance_type| instance_type.name.as_str());
        requirements.add(Requirement::new(labels::INSTANCE_TYPE_LABEL, Operator::In, names));
        let markets = catalog::capacity_types(&self.instance_types, &self.requirements);
        if !markets.is_empty() {
            let names = markets.into_iter().map(|market| market.as_str());
            requirements.add(Requirement::new(labels::CAPACITY_TYPE_LABEL, Operator::In, names));
        }
        requirements
    }

    /// The template's labels, pool and class, and one value for each custom label that is required.
    fn labels(&self) -> BTreeMap<String, String> {
        let template = &self.node_pool.spec.template;
        let class = &template.spec.node_class_ref;
        let mut result: BTreeMap<String, String> =
            template.labels().map(|(key, value)| (key.clone(), value.clone())).collect();
        result.insert(labels::NODE_POOL_LABEL.to_owned(), self.pool.clone());
        result.insert(crate::snapshot::node_class_label(&class.group, &class.kind), class.name.clone());
        for requirement in self.requirements.iter() {
            let key = requirement.key();
            let is_custom = !labels::is_well_known(key) && !labels::is_restricted(key);
            if let Some(value) = requirement.any().filter(|_| is_custom) {
                result.insert(key.to_owned(), value);
            }
        }
        result
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let template = self.node_pool.spec.template.annotations();
        let mut annotations: BTreeMap<String, String> =
            template.map(|(key, value)| (key.clone(), value.clone())).collect();
        let ours = [
            (labels::NODE_POOL_HASH_ANNOTATION, drift_hash::node_pool_hash(&self.node_pool)),
            (labels::NODE_POOL_HASH_VERSION_ANNOTATION, drift_hash::NODE_POOL_HASH_VERSION.to_owned()),
            (labels::MIN_VALUES_RELAXED_ANNOTATION, self.min_values_relaxed.to_string()),
        ];
        annotations.extend(ours.map(|(key, value)| (key.to_owned(), value)));
        annotations
    }
}

/// A node while pods are still being added.
pub(super) struct Packing {
    /// Its place among the templates.
    pub(super) template: usize,
    pub(super) pods: Vec<PodName>,
    requirements: Requirements,
    requests: Resources,
    amounts: Row,
    host_ports: Vec<HostPort>,
    /// Places in [`Template::types`] of the types that would still do.
    pub(super) types: Vec<usize>,
    /// On each axis, the most that one of those types has for pods. What exceeds it needs no closer look.
    largest: Row,
    min_values_relaxed: bool,
}

/// What a pod would change about a node.
pub(super) struct Addition {
    requirements: Requirements,
    types: Vec<usize>,
    min_values_relaxed: bool,
}

/// What keeps a pod off a node.
pub(super) enum Misfit {
    /// This.
    Refusal(Refusal),
    /// One of the pod's spread constraints.
    Spread(usize),
    /// No instance type is left, or too few different ones.
    Types { requirements: Requirements, min_values: Option<MinValuesUnmet> },
}

impl Addition {
    /// Settles for the different values that can be had.
    fn lower_min_values(&mut self, unmet: &MinValuesUnmet) {
        for (key, count) in &unmet.found {
            let lowered = self.requirements.get_or_any(key).with_min_values(u32::try_from(*count).ok());
            self.requirements.replace(lowered);
        }
        self.min_values_relaxed = true;
    }
}

impl Packing {
    /// A new node of that template, with the instance types that the pool's limits leave. It is the `number`th of the pass,
    /// which gives it a host name to be told from others by.
    pub(super) fn open(index: usize, template: &Template<'_>, types: Vec<usize>, number: usize, axes: &Axes) -> Self {
        let hostname = Requirement::equals(labels::HOSTNAME_LABEL, format!("hostname-placeholder-{number:04}"));
        Self {
            template: index,
            pods: Vec::new(),
            requirements: template.requirements.clone().with(hostname),
            requests: Resources::new(),
            amounts: axes.row(&Resources::new()),
            host_ports: Vec::new(),
            largest: largest(template, &types, axes),
            types,
            min_values_relaxed: false,
        }
    }

    /// A quick look: false only if [`consider`](Self::consider) would refuse.
    pub(super) fn may_take(&self, wishes: &Wishes<'_>) -> bool {
        amounts::fits(&self.amounts, &wishes.amounts, &self.largest)
    }

    /// What placing the pod here would change, or what is in the way. A new node may lower `minValues` if the policy is
    /// best effort; one that is being packed would lose what was promised.
    pub(super) fn consider(
        &self,
        template: &Template<'_>,
        wishes: &Wishes<'_>,
        topology: &Topology,
        policy: MinValuesPolicy,
    ) -> Result<Addition, Misfit> {
        let refuse = |refusal| Err(Misfit::Refusal(refusal));
        if let Err(untolerated) = taints::tolerates(template.pool.taints(), &wishes.tolerations) {
            return refuse(Refusal::Taint(untolerated.0));
        }
        if host_ports::conflict(&self.host_ports, &wishes.pod.host_ports) {
            return refuse(Refusal::HostPort);
        }
        if let Err(clash) = self.requirements.compatible(&wishes.requirements, AllowUndefined::WellKnown) {
            return refuse(Refusal::Requirements(clash));
        }
        if wishes.spread.is_empty() {
            return self.narrow_to(template, wishes, &wishes.requirements, policy);
        }
        let choices = match topology.choices(wishes, &self.as_place()) {
            Ok(choices) => choices,
            Err(Closed::Spread(index)) => return Err(Misfit::Spread(index)),
            Err(Closed::NoLabel(clash)) => return refuse(Refusal::Requirements(clash)),
        };
        // Upstream takes the emptiest domain or none. Where nothing can be had there, the next one that is allowed will do.
        let mut misfit = None;
        for choice in choices {
            let mut wanted = wishes.requirements.clone();
            wanted.add_all(&choice);
            match self.narrow_to(template, wishes, &wanted, policy) {
                Ok(addition) => return Ok(addition),
                Err(reason) => drop(misfit.get_or_insert(reason)),
            }
        }
        Err(misfit.expect("there is at least one choice, or an error"))
    }

    fn as_place(&self) -> Place<'_> {
        Place { requirements: &self.requirements, allow: AllowUndefined::WellKnown }
    }

    /// What is left of the node with the pod on it and its labels narrowed to what is `wanted`.
    fn narrow_to(
        &self,
        template: &Template<'_>,
        wishes: &Wishes<'_>,
        wanted: &Requirements,
        policy: MinValuesPolicy,
    ) -> Result<Addition, Misfit> {
        let narrowed = narrow(&self.requirements, wanted);
        let types: Vec<usize> =
            self.types.iter().copied().filter(|i| self.keeps(template, *i, wishes, narrowed.as_ref())).collect();
        let requirements = narrowed.map_or_else(|| self.requirements.clone(), |(requirements, _)| requirements);
        if types.is_empty() {
            return Err(Misfit::Types { requirements, min_values: None });
        }
        let mut addition = Addition { requirements, types, min_values_relaxed: self.min_values_relaxed };
        let offered = addition.types.iter().map(|i| &template.types[*i].instance_type);
        if let MinValuesOutcome::Unmet(unmet) = truncate::min_values(&addition.requirements, offered) {
            if policy == MinValuesPolicy::Strict || !self.pods.is_empty() {
                return Err(Misfit::Types { requirements: addition.requirements, min_values: Some(unmet) });
            }
            addition.lower_min_values(&unmet);
        }
        Ok(addition)
    }

    /// Whether one type still does with the pod added. Labels and offerings are looked at only where the pod narrowed
    /// something: the rest held before.
    fn keeps(&self, template: &Template<'_>, index: usize, wishes: &Wishes<'_>, narrowed: Option<&Narrowed>) -> bool {
        let candidate = &template.types[index];
        self.has_room(template, candidate, wishes)
            && narrowed.is_none_or(|(requirements, changed)| {
                candidate.instance_type.requirements.intersects(changed)
                    && candidate.instance_type.offerings_for(requirements).next().is_some()
            })
    }

    fn has_room(&self, template: &Template<'_>, candidate: &TemplateType, wishes: &Wishes<'_>) -> bool {
        let group = &template.groups[candidate.group];
        let wanted = self.amounts.iter().zip(&wishes.amounts).zip(&group.amounts);
        wanted
            .zip(&candidate.room)
            .all(|(((taken, pod), daemons), room)| taken.saturating_add(*pod).saturating_add(*daemons) <= *room)
            && !host_ports::conflict(&group.host_ports, &wishes.pod.host_ports)
    }

    /// The misfit with all its facts. Costs a look at every type, so it is asked for only where the answer is told.
    pub(super) fn explain(
        &self,
        template: &Template<'_>,
        wishes: &Wishes<'_>,
        topology: &Topology,
        misfit: Misfit,
    ) -> Refusal {
        let (requirements, min_values) = match misfit {
            Misfit::Refusal(refusal) => return refusal,
            Misfit::Spread(index) => {
                return Refusal::Spread(Box::new(topology.explain(wishes, index, &self.as_place())));
            }
            Misfit::Types { requirements, min_values } => (requirements, min_values),
        };
        let mut met = Met::default();
        let mut most = Resources::new();
        for index in &self.types {
            let candidate = &template.types[*index];
            most.raise_to(&candidate.instance_type.allocatable().minus(&template.groups[candidate.group].overhead));
            let labels = candidate.instance_type.requirements.intersects(&requirements);
            let fits = self.has_room(template, candidate, wishes);
            let offering = candidate.instance_type.offerings_for(&requirements).next().is_some();
            met.requirements |= labels;
            met.fits |= fits;
            met.offering |= offering;
            met.requirements_and_fits |= labels && fits;
            met.requirements_and_offering |= labels && offering;
            met.fits_and_offering |= fits && offering;
        }
        let wanted = self.requests.plus(&wishes.pod.requests);
        let (least, largest) = template.overheads();
        Refusal::InstanceTypes(Box::new(NoInstanceType {
            min_values,
            met,
            requirements: without_simulation(requirements),
            resources: (wishes.pod.requests.plus(&least), wishes.pod.requests.plus(&largest)),
            pod_cpu: wishes.pod.requests.get(crate::resources::CPU),
            largest: wanted
                .shortages(&most)
                .into_iter()
                .map(|shortage| (shortage.resource, shortage.available.max(Quantity::ZERO)))
                .collect(),
        }))
    }

    /// Places the pod as considered.
    pub(super) fn place(
        &mut self,
        template: &Template<'_>,
        wishes: &Wishes<'_>,
        addition: Addition,
        topology: &mut Topology,
        axes: &Axes,
    ) {
        let Addition { requirements, types, min_values_relaxed } = addition;
        topology.record(wishes.pod, template.pool.taints(), &requirements);
        if types.len() < self.types.len() {
            self.largest = largest(template, &types, axes);
        }
        self.types = types;
        self.requirements = requirements;
        self.min_values_relaxed = min_values_relaxed;
        self.requests.add(&wishes.pod.requests);
        amounts::add(&mut self.amounts, &wishes.amounts);
        self.host_ports.extend(wishes.pod.host_ports.iter().cloned());
        self.pods.push(wishes.pod.name.clone());
    }

    /// On each resource, the most that one of its types has: what the node may count against its pool's limits.
    pub(super) fn largest_capacity(&self, template: &Template<'_>) -> Resources {
        let mut capacity = Resources::new();
        for index in &self.types {
            capacity.raise_to(&template.types[*index].instance_type.capacity);
        }
        capacity
    }

    /// The finished plan: labels of the simulation gone, the least DaemonSet overhead added, types in order of price.
    pub(super) fn finish(self, template: &Template<'_>, policy: MinValuesPolicy) -> Result<PlannedNode, Box<Dropped>> {
        let overheads = self.types.iter().map(|i| template.types[*i].group).collect::<std::collections::BTreeSet<_>>();
        let overheads = overheads.into_iter().map(|group| &template.groups[group].overhead);
        let mut requests = self.requests;
        if let Some(least) = overheads.cloned().reduce(|a, b| least_of_both(&a, &b)) {
            requests.add(&least);
        }
        let requirements = without_simulation(self.requirements);
        let types = self.types.iter().map(|i| Arc::clone(&template.types[*i].instance_type)).collect();
        let optional = policy == MinValuesPolicy::BestEffort;
        let instance_types = match truncate::truncate(types, &requirements, optional) {
            Ok(types) => types,
            Err(unmet) => return Err(Box::new(Dropped { pods: self.pods, unmet })),
        };
        Ok(PlannedNode {
            pool: template.pool.name().to_owned(),
            pods: self.pods,
            instance_types,
            requirements,
            requests,
            min_values_relaxed: self.min_values_relaxed,
            node_pool: Arc::clone(&template.pool.object),
        })
    }
}

/// A plan that came to nothing because its cheapest types are too few.
pub(super) struct Dropped {
    pub(super) pods: Vec<PodName>,
    pub(super) unmet: MinValuesUnmet,
}

/// The narrowed requirements, and those of them that changed.
type Narrowed = (Requirements, Requirements);

/// What is left when `wanted` is added; `None` if it adds nothing.
fn narrow(present: &Requirements, wanted: &Requirements) -> Option<Narrowed> {
    let mut changed = Requirements::new();
    for requirement in wanted.iter() {
        match present.get(requirement.key()) {
            Some(known) => {
                let both = requirement.intersection(known);
                if both != *known {
                    changed.replace(both);
                }
            }
            None => changed.replace(requirement.clone()),
        }
    }
    if changed.is_empty() {
        return None;
    }
    let mut requirements = present.clone();
    changed.iter().for_each(|requirement| requirements.replace(requirement.clone()));
    Some((requirements, changed))
}

fn without_simulation(mut requirements: Requirements) -> Requirements {
    for key in SIMULATION_ONLY.into_iter().chain([labels::HOSTNAME_LABEL]) {
        requirements.remove(key);
    }
    requirements
}

fn largest(template: &Template<'_>, types: &[usize], axes: &Axes) -> Row {
    let mut largest: Row = axes.names().map(|_| i128::MIN).collect();
    for index in types {
        let candidate = &template.types[*index];
        let daemons = &template.groups[candidate.group].amounts;
        for ((most, room), daemons) in largest.iter_mut().zip(&candidate.room).zip(daemons) {
            *most = (*most).max(room.saturating_sub(*daemons));
        }
    }
    largest
}

/// The smaller of both, for the resources that both name.
fn least_of_both(a: &Resources, b: &Resources) -> Resources {
    a.iter()
        .filter(|(name, _)| b.contains(name))
        .map(|(name, quantity)| (name.to_owned(), quantity.min(b.get(name))))
        .collect()
}
