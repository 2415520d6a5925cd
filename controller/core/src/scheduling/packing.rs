//! A node being packed: with every pod its requirements narrow and instance types fall away (core spec §3.8, §3.12,
//! §3.13).

use super::amounts::{self, Axes, Row};
use super::ask::{Ask, PodClass};
use super::bits::Bits;
use super::left_out;
use super::planned_node::PlannedNode;
use super::reason::{MinValuesUnmet, NodesPassedOver, PoolRefusal, Refusal};
use super::reservations::Reservations;
use super::sets::{SetId, Sets};
use super::template::{Options, SIMULATION_ONLY, Template};
use super::topology::{Closed, HostId, Openings, Reach, Topology, placeholder};
use super::truncate::{self, MinValuesOutcome};
use crate::host_ports::{self, HostPort};
use crate::requirement::{Operator, Requirement};
use crate::requirements::Requirements;
use crate::resources::Resources;
use crate::settings::MinValuesPolicy;
use crate::snapshot::PodName;
use controller_api::labels;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A node while pods are still being added.
pub(super) struct Packing {
    /// Its place among the templates.
    pub(super) template: usize,
    pub(super) host: HostId,
    pub(super) pods: Vec<PodName>,
    /// What its labels may be, the host name apart.
    pub(super) set: SetId,
    requests: Resources,
    amounts: Row,
    host_ports: Vec<HostPort>,
    /// Places in [`Template::types`] of the types that would still do.
    pub(super) types: Bits,
    /// On each axis, the most that one of those types has for pods. What exceeds it needs no closer look.
    largest: Row,
    min_values_relaxed: bool,
    /// Reservations that it could draw on, and that are kept for it.
    held: BTreeSet<String>,
    pub(super) passed_over: Vec<PoolRefusal>,
    pub(super) nodes_passed_over: NodesPassedOver,
}

/// What a pod would change about a node.
pub(super) struct Addition {
    pub(super) set: SetId,
    types: Bits,
    largest: Row,
    min_values_relaxed: bool,
    held: BTreeSet<String>,
}

/// What keeps a pod off a node.
pub(super) enum Misfit {
    /// A rule of the template.
    Template,
    /// A port is taken.
    HostPort,
    /// There is not enough room on any type, at a glance.
    NoRoom,
    /// The pod is for a host of another name.
    HostName,
    /// Labels clash.
    Labels,
    /// No place of the pod's volumes goes with the labels.
    Volumes,
    /// A constraint about other pods.
    Topology(Closed),
    /// No instance type is left, or too few different ones.
    Types { set: SetId, min_values: Option<MinValuesUnmet> },
    /// There is reserved capacity, and all of it is taken.
    Reserved(ReservedMisfit),
}

/// Why a reservation keeps a pod waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedMisfit {
    /// Other nodes of the pass hold all of it.
    Taken,
    /// The node holds one that it could no longer use.
    WouldBeLost,
}

/// What is shared by all nodes being packed, and changes as they are.
pub(super) struct Workbench<'b, 'a> {
    pub(super) sets: &'b mut Sets,
    pub(super) topology: &'b mut Topology<'a>,
    pub(super) template: &'b mut Template<'a>,
    pub(super) reservations: &'b Reservations,
}

/// A pod with what it asks for in this attempt, and what is open to it.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'b, 'a> {
    pub(super) class: &'b PodClass<'a>,
    pub(super) ask: &'b Ask,
    pub(super) openings: &'b Openings,
    pub(super) reach: Reach,
}

impl Packing {
    /// A new node of that template, with the instance types that the pool's limits leave.
    pub(super) fn open(index: usize, template: &Template<'_>, types: Bits, host: HostId, axes: &Axes) -> Self {
        let none = axes.row(&Resources::new());
        Self {
            template: index,
            host,
            pods: Vec::new(),
            set: template.set,
            requests: Resources::new(),
            largest: largest(template, &types, none.len()),
            amounts: none,
            host_ports: Vec::new(),
            types,
            min_values_relaxed: false,
            held: BTreeSet::new(),
            passed_over: Vec::new(),
            nodes_passed_over: NodesPassedOver::new(),
        }
    }

    /// What placing the pod here would change, or what is in the way. A new node may lower `minValues` if the policy is
    /// best effort; one that is being packed would lose what was promised.
    pub(super) fn consider(
        &self,
        attempt: Attempt<'_, '_>,
        bench: &mut Workbench<'_, '_>,
        policy: MinValuesPolicy,
    ) -> Result<Addition, Misfit> {
        let Attempt { class, ask, openings, reach } = attempt;
        if ask.refused_by[self.template].is_some() {
            return Err(Misfit::Template);
        }
        if !amounts::fits(&self.amounts, &class.amounts, &self.largest) {
            return Err(Misfit::NoRoom);
        }
        bench.topology.check_host(openings, self.host).map_err(Misfit::Topology)?;
        if !class.pod.host_ports.is_empty() && host_ports::conflict(&self.host_ports, &class.pod.host_ports) {
            return Err(Misfit::HostPort);
        }
        if !self.is_called(ask.split.hostname.as_ref()) {
            return Err(Misfit::HostName);
        }
        let labelled = bench.sets.together(self.set, ask.split.set).ok_or(Misfit::Labels)?;
        let mut misfit = None;
        let (anywhere, reachable);
        let places: &[SetId] = if class.volumes.is_empty() {
            anywhere = [labelled];
            &anywhere
        } else {
            let named = class.volumes.iter().filter(|place| self.is_called(place.hostname.as_ref()));
            reachable = named.filter_map(|place| bench.sets.together(labelled, place.set)).collect::<Vec<_>>();
            &reachable
        };
        for place in places {
            let choices = match bench.topology.choices(bench.sets, openings, *place, reach) {
                Ok(choices) => choices,
                Err(closed) => {
                    misfit.get_or_insert(Misfit::Topology(closed));
                    continue;
                }
            };
            for choice in choices.iter() {
                let domains = choice.iter().try_fold(*place, |set, domains| bench.sets.together(set, *domains));
                let considered = domains.ok_or(Misfit::Labels).and_then(|set| self.narrow(set, class, bench, policy));
                match considered {
                    Ok(addition) => return Ok(addition),
                    Err(reason) => drop(misfit.get_or_insert(reason)),
                }
            }
        }
        Err(misfit.unwrap_or(Misfit::Volumes))
    }

    /// Whether the node, whose name is not known yet, may be called so.
    fn is_called(&self, hostname: Option<&Requirement>) -> bool {
        hostname.is_none_or(|wanted| wanted.has(&placeholder(self.host)))
    }

    /// What is left of the node with the pod on it and its labels narrowed to the set.
    fn narrow(
        &self,
        set: SetId,
        class: &PodClass<'_>,
        bench: &mut Workbench<'_, '_>,
        policy: MinValuesPolicy,
    ) -> Result<Addition, Misfit> {
        let template = &mut *bench.template;
        let options = template.options(bench.sets, set);
        let mut total = self.amounts.clone();
        amounts::add(&mut total, &class.amounts);
        let mut types = self.types.clone();
        types.keep(&options.types);
        let mut largest: Row = vec![i128::MIN; total.len()];
        let ports = &class.pod.host_ports;
        for index in types.clone().iter() {
            let candidate = &template.types[index];
            let fits = total.iter().zip(&candidate.room).all(|(total, room)| total <= room)
                && (ports.is_empty() || !host_ports::conflict(&template.groups[candidate.group].host_ports, ports));
            if fits {
                largest.iter_mut().zip(&candidate.room).for_each(|(most, room)| *most = (*most).max(*room));
            } else {
                types.remove(index);
            }
        }
        if types.is_empty() {
            return Err(Misfit::Types { set, min_values: None });
        }
        let held = self.reserve(&options.reserved, &types, bench.reservations);
        if let Some(unmet) = self.too_few_reserved(set, &options, &types, held.as_ref().ok(), bench) {
            let bought = not_reserved(bench.sets, set);
            let bought = bought.ok_or(Misfit::Types { set, min_values: Some(unmet) })?;
            return self.narrow(bought, class, bench, policy);
        }
        let template = &mut *bench.template;
        let mut addition =
            Addition { set, types, largest, min_values_relaxed: self.min_values_relaxed, held: BTreeSet::new() };
        if options.has_min_values {
            self.check_min_values(&mut addition, template, bench.sets, policy)?;
        }
        addition.held = held.map_err(Misfit::Reserved)?;
        Ok(addition)
    }

    fn check_min_values(
        &self,
        addition: &mut Addition,
        template: &Template<'_>,
        sets: &mut Sets,
        policy: MinValuesPolicy,
    ) -> Result<(), Misfit> {
        let offered = addition.types.iter().map(|i| &template.types[i].instance_type);
        let MinValuesOutcome::Unmet(unmet) = truncate::min_values(sets.get(addition.set), offered) else {
            return Ok(());
        };
        if policy == MinValuesPolicy::Strict || !self.pods.is_empty() {
            return Err(Misfit::Types { set: addition.set, min_values: Some(unmet) });
        }
        let mut lowered = Requirements::clone(sets.get(addition.set));
        for (key, count) in &unmet.found {
            lowered.replace(lowered.get_or_any(key).with_min_values(u32::try_from(*count).ok()));
        }
        addition.set = sets.number(lowered);
        addition.min_values_relaxed = true;
        Ok(())
    }

    /// The reservations that some type left could draw on. Where there are such and none is to be had, the pod waits rather
    /// than getting a node at full price.
    fn reserve(
        &self,
        reserved: &[(String, Bits)],
        types: &Bits,
        reservations: &Reservations,
    ) -> Result<BTreeSet<String>, ReservedMisfit> {
        let usable = reserved.iter().filter(|(_, drawing)| drawing.iter().any(|index| types.contains(index)));
        let usable: BTreeSet<&String> = usable.map(|(id, _)| id).collect();
        let held: BTreeSet<String> =
            usable.iter().filter(|id| reservations.can_reserve(id, &self.held)).map(|id| (*id).clone()).collect();
        match held.is_empty() {
            true if !usable.is_empty() => Err(ReservedMisfit::Taken),
            true if !self.held.is_empty() => Err(ReservedMisfit::WouldBeLost),
            _ => Ok(held),
        }
    }

    /// What `minValues` would lack if the node drew on its reservations, and so had no types but those they are for. Such a node
    /// could never be launched: it has to be bought. (Upstream plans it, its launch fails, and the pods wait for ever.)
    fn too_few_reserved(
        &self,
        set: SetId,
        options: &Options,
        types: &Bits,
        held: Option<&BTreeSet<String>>,
        bench: &Workbench<'_, '_>,
    ) -> Option<MinValuesUnmet> {
        if !options.has_min_values || !bench.template.keeps_min_values {
            return None;
        }
        let mut drawing = Bits::default();
        let drawn_on = options.reserved.iter().filter(|(id, _)| held.is_none_or(|held| held.contains(id)));
        drawn_on.for_each(|(_, types)| drawing.join(types));
        drawing.keep(types);
        let offered = drawing.iter().map(|index| &bench.template.types[index].instance_type);
        match truncate::min_values(bench.sets.get(set), offered) {
            MinValuesOutcome::Unmet(unmet) if !drawing.is_empty() => Some(unmet),
            _ => None,
        }
    }

    /// The misfit with all its facts. Costs a look at every type, so it is asked for only where the answer is told.
    pub(super) fn explain(&self, attempt: Attempt<'_, '_>, bench: &mut Workbench<'_, '_>, misfit: Misfit) -> Refusal {
        let Attempt { class, ask, .. } = attempt;
        let clash = |bench: &Workbench<'_, '_>, wanted: &Requirements| {
            let allow = crate::requirements::AllowUndefined::WellKnown;
            let mut present = Requirements::clone(bench.sets.get(self.set));
            present.add(Requirement::equals(labels::HOSTNAME_LABEL, placeholder(self.host)));
            present.compatible(wanted, allow).err().map(Refusal::Requirements)
        };
        match misfit {
            Misfit::Template => ask.refused_by[self.template].clone().expect("it is refused by the template"),
            Misfit::HostPort => Refusal::HostPort,
            Misfit::Labels => {
                let wanted = Requirements::clone(bench.sets.get(ask.split.set));
                clash(bench, &wanted).unwrap_or(Refusal::Volumes)
            }
            Misfit::HostName => {
                let wanted = ask.split.hostname.clone().into_iter().collect();
                clash(bench, &wanted).unwrap_or(Refusal::Volumes)
            }
            Misfit::Volumes => Refusal::Volumes,
            Misfit::Topology(closed) => {
                let set = bench.sets.together(self.set, ask.split.set).unwrap_or(self.set);
                let node = Arc::new(Requirements::clone(bench.sets.get(set)));
                let constraint = &ask.constraints[closed.0];
                let facts = bench.topology.explain(bench.sets, constraint, ask.bounds(), &node, self.host);
                Refusal::Topology(Arc::new(facts))
            }
            Misfit::Reserved(misfit) => Refusal::Reserved(misfit),
            Misfit::NoRoom => {
                let set = bench.sets.together(self.set, ask.split.set).unwrap_or(self.set);
                left_out::explain(self, class, bench, set, None)
            }
            Misfit::Types { set, min_values } => left_out::explain(self, class, bench, set, min_values),
        }
    }

    /// What its pods ask for.
    pub(super) fn requests(&self) -> &Resources {
        &self.requests
    }

    /// Places the pod as considered.
    pub(super) fn place(
        &mut self,
        class: &PodClass<'_>,
        pod: &PodName,
        addition: Addition,
        reservations: &mut Reservations,
    ) {
        let Addition { set, types, largest, min_values_relaxed, held } = addition;
        reservations.exchange(&self.held, &held);
        self.held = held;
        self.types = types;
        self.largest = largest;
        self.set = set;
        self.min_values_relaxed = min_values_relaxed;
        self.requests.add(&class.pod.requests);
        amounts::add(&mut self.amounts, &class.amounts);
        self.host_ports.extend(class.pod.host_ports.iter().cloned());
        self.pods.push(pod.clone());
    }

    /// On each limited resource, the most that one of its types has: what the node may count against its pool's limits.
    pub(super) fn largest_capacity(&self, template: &Template<'_>) -> Row {
        let mut capacity = template.limited.row(&Resources::new());
        for index in self.types.iter() {
            let row = &template.types[index].capacity;
            capacity.iter_mut().zip(row).for_each(|(most, here)| *most = (*most).max(*here));
        }
        capacity
    }

    /// The finished plan: labels of the simulation gone, the least DaemonSet overhead added, types in order of price.
    pub(super) fn finish(
        mut self,
        sets: &mut Sets,
        template: &mut Template<'_>,
        policy: MinValuesPolicy,
    ) -> Result<PlannedNode, Box<Dropped>> {
        if !self.held.is_empty() {
            self.settle_on_reserved(sets, template);
        }
        let overheads: BTreeSet<usize> = self.types.iter().map(|index| template.types[index].group).collect();
        let overheads = overheads.into_iter().map(|group| &template.groups[group].overhead);
        let mut requests = self.requests;
        if let Some(least) = overheads.cloned().reduce(|a, b| least_of_both(&a, &b)) {
            requests.add(&least);
        }
        let order = template.by_price(sets, self.set);
        let requirements = without_simulation(Requirements::clone(sets.get(self.set)));
        let types = order.iter().filter(|index| self.types.contains(**index));
        let types = types.map(|index| Arc::clone(&template.types[*index].instance_type));
        let optional = policy == MinValuesPolicy::BestEffort;
        let instance_types = match truncate::truncate(types.collect(), &requirements, optional) {
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
            passed_over: self.passed_over,
            nodes_passed_over: self.nodes_passed_over,
        })
    }

    /// A node that holds reservations is launched from them, and so only as a type that they are for. (Upstream keeps the
    /// other types among its options, which nobody sells so.)
    fn settle_on_reserved(&mut self, sets: &mut Sets, template: &mut Template<'_>) {
        let mut requirements = Requirements::clone(sets.get(self.set));
        let reserved = Requirement::equals(labels::CAPACITY_TYPE_LABEL, labels::CAPACITY_TYPE_RESERVED);
        let min_values = requirements.get(labels::CAPACITY_TYPE_LABEL).and_then(|present| present.min_values);
        requirements.replace(reserved.with_min_values(min_values));
        let ids = self.held.iter().cloned();
        requirements.add(Requirement::new(labels::CAPACITY_RESERVATION_ID_LABEL, Operator::In, ids));
        self.set = sets.number(requirements);
        self.types.keep(&template.options(sets, self.set).types);
    }
}

/// A plan that came to nothing because its cheapest types are too few.
pub(super) struct Dropped {
    pub(super) pods: Vec<PodName>,
    pub(super) unmet: MinValuesUnmet,
}

/// The set without capacity that is paid for already; `None` where it allows nothing else.
fn not_reserved(sets: &mut Sets, set: SetId) -> Option<SetId> {
    let reserved = [labels::CAPACITY_TYPE_RESERVED];
    let bought = Requirement::new(labels::CAPACITY_TYPE_LABEL, Operator::NotIn, reserved);
    let bought = sets.number(Requirements::new().with(bought));
    sets.together(set, bought)
}

pub(super) fn without_simulation(mut requirements: Requirements) -> Requirements {
    for key in SIMULATION_ONLY {
        requirements.remove(key);
    }
    requirements
}

fn largest(template: &Template<'_>, types: &Bits, axes: usize) -> Row {
    let mut largest: Row = vec![i128::MIN; axes];
    for index in types.iter() {
        largest.iter_mut().zip(&template.types[index].room).for_each(|(most, room)| *most = (*most).max(*room));
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
