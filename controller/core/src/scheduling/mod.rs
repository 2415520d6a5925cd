//! Where pods go: onto nodes that exist, onto nodes already planned, or onto new ones (core spec §3.4–3.12).
//!
//! [`schedule`] is the whole of it. Pods are taken in order of size; each goes to the first place that takes it. When none
//! does, the pod gives up one of its wishes and is tried again, until only what it must have is left; what then stays is a
//! typed reason per pool.
//!
//! To follow one pod: [`Pass::run`], [`Pass::place_relaxing`] for its wishes, [`Pass::try_place`] for the three kinds of places,
//! [`packing::Packing::consider`] for what it would make of a node.
//!
//! Little is worked out twice: pods that ask for the same are a class ([`ask`]), sets of requirements go by number
//! ([`sets`]), what is open to a pod because of others is worked out for all nodes at once ([`topology`]), and instance
//! types are bits of a set ([`template`]).
//!
//! Dynamic resource allocation, node overlays, capacity buffers and static pools are not here.

mod amounts;
mod ask;
mod bits;
mod existing;
mod left_out;
mod order;
mod packing;
mod planned_node;
mod queue;
mod reason;
mod reservations;
mod sets;
mod template;
mod topology;
mod truncate;
mod volumes;

pub use packing::ReservedMisfit;
pub use planned_node::PlannedNode;
pub use reason::{
    Failures, InvalidPod, Met, MinValuesUnmet, NoInstanceType, NodeRule, NodesPassedOver, PoolLeftOut, PoolRefusal,
    Refusal, TypeRule, TypesLeftOut, Unschedulable,
};
pub use topology::{TopologyKind, TopologyUnsatisfiable};

use crate::quantity::Quantity;
use crate::resources::{NODES, Resources};
use crate::settings::{MinValuesPolicy, Settings};
use crate::snapshot::{Pod, PodName, Pool, Snapshot, StateNode, Storage};
use amounts::{Axes, Row};
use ask::{Ask, PodClass, Surroundings};
use bits::Bits;
use controller_api::labels;
use existing::ExistingNode;
use order::Order;
use packing::{Attempt, Misfit, Packing, Workbench};
use queue::Queue;
use reservations::Reservations;
use sets::Sets;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use template::Template;
use topology::{Closed, HostId, Openings, Reach, Topology};

/// Where every pod that needs a place goes.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// Nodes to launch.
    pub new_nodes: Vec<PlannedNode>,
    /// Pods planned for nodes that exist or are coming, by [`StateNode::name`](crate::snapshot::StateNode::name).
    pub existing: BTreeMap<String, Vec<PodName>>,
    /// Pods that found no place, and why.
    pub unschedulable: Failures,
    /// Pools that were not considered, and why.
    pub pools_left_out: Vec<(String, PoolLeftOut)>,
    /// For pods without a place, why nodes that exist are none; told only by [`schedule_explained`], and of pods that ask
    /// for the same by one.
    pub nodes_passed_over: BTreeMap<PodName, NodesPassedOver>,
}

/// Plans places for the pods that wait for a node and for those whose node is going away.
pub fn schedule(snapshot: &Snapshot, settings: &Settings) -> Schedule {
    plan(snapshot, settings, false)
}

/// The same schedule, in which new nodes also tell which pools were [passed over](PlannedNode::passed_over): for people, as
/// it takes longer.
pub fn schedule_explained(snapshot: &Snapshot, settings: &Settings) -> Schedule {
    plan(snapshot, settings, true)
}

fn plan(snapshot: &Snapshot, settings: &Settings, is_explained: bool) -> Schedule {
    let snapshot = &*snapshot.for_sale(settings);
    let mut schedule = Schedule::default();
    let mut pods = Vec::new();
    let all = pods_to_place(snapshot);
    for pod in &all {
        match validate(pod, snapshot.storage.as_deref()) {
            Ok(()) => pods.push(Arc::clone(pod)),
            Err(reason) => {
                schedule.unschedulable.insert(pod.name.clone(), reason);
            }
        }
    }
    if pods.is_empty() {
        return schedule;
    }
    let moving = all.iter().filter(|pod| pod.node_name.is_some()).map(|pod| &pod.name).collect();
    let mut pass = Pass::new(snapshot, settings, &pods, &moving, &mut schedule);
    pass.is_explained = is_explained;
    pass.run(&mut schedule);
    debug_assert!(
        crate::check::schedule(snapshot, settings, &schedule).is_empty(),
        "a schedule breaks its own rules: {:?}",
        crate::check::schedule(snapshot, settings, &schedule)
    );
    schedule
}

/// Pods waiting for a node, and those on nodes that are going away and may be moved. In order of name.
fn pods_to_place(snapshot: &Snapshot) -> Vec<Arc<Pod>> {
    let mut pods: BTreeMap<&PodName, &Arc<Pod>> =
        snapshot.pods.iter().filter(|(_, pod)| pod.is_provisionable()).collect();
    let going: Vec<&StateNode> = snapshot.nodes.values().filter(|node| node.is_marked_for_deletion()).collect();
    let bound = if going.is_empty() { BTreeMap::new() } else { snapshot.pods_by_node() };
    for node in going {
        let on_node = node.node_name().and_then(|name| bound.get(name)).into_iter().flatten();
        pods.extend(on_node.filter(|pod| snapshot.is_currently_reschedulable(pod)).map(|pod| (&pod.name, *pod)));
    }
    pods.into_values().cloned().collect()
}

/// What speaks against planning for a pod at all (core spec §3.4).
fn validate(pod: &Pod, storage: Option<&Storage>) -> Result<(), Unschedulable> {
    let mut problems = Vec::new();
    let first_preferred = pod.preferred_terms.first().map(|preferred| &preferred.term);
    if pod.requirements(pod.required_terms.first(), first_preferred).forbids(labels::NODE_POOL_LABEL) {
        problems.push(InvalidPod::RefusesManagedNodes);
    }
    if pod.required_terms.iter().any(|term| term.has_match_fields) {
        problems.push(InvalidPod::MatchFields);
    }
    problems.extend(pod.problems.iter().cloned().map(InvalidPod::Field));
    problems.extend(storage.into_iter().flat_map(|storage| volumes::problems(pod, storage)));
    if !problems.is_empty() {
        return Err(Unschedulable::Ignored(problems));
    }
    if pod.claims_devices {
        return Err(Unschedulable::DynamicResources);
    }
    Ok(())
}

/// Pods that run or are about to, by the name of their node.
type Bound<'a> = BTreeMap<&'a str, Vec<&'a Arc<Pod>>>;

/// One run over all pods.
struct Pass<'a> {
    settings: &'a Settings,
    /// Pods to be placed; elsewhere a pod is its place in here.
    pods: &'a [Arc<Pod>],
    /// The resources that some pod asks for: amounts are rows of numbers along these.
    axes: Axes,
    /// Requirements by number.
    sets: Sets,
    /// Which pods are where, those placed in this pass included. Its hosts are `existing`, then `packings`, in order.
    topology: Topology<'a>,
    /// Pods that ask for the same are one class.
    classes: Vec<PodClass<'a>>,
    /// The class of each pod.
    class_of: Vec<usize>,
    /// Nodes that are up or coming, and stay.
    existing: Vec<ExistingNode<'a>>,
    /// Nodes planned in this pass.
    packings: Vec<Packing>,
    /// In which order those are offered a pod.
    order: Order,
    /// Pools that nodes can be planned from, in the order in which they are tried.
    templates: Vec<Template<'a>>,
    /// What each template's pool may still add.
    remaining: Vec<Remaining>,
    reservations: Reservations,
    has_pools: bool,
    some_pool_has_preferred_taints: bool,
    /// How many pods have found a place.
    placed: usize,
    /// Whether new nodes are to tell which pools were passed over.
    is_explained: bool,
    nodes_passed_over: BTreeMap<PodName, NodesPassedOver>,
}

/// A pod was refused everywhere; [`Pass::explain`] knows why.
struct Refused {
    /// Whether it had better wait for reserved capacity.
    is_deferred: bool,
}

/// What a pool's limits leave.
struct Remaining {
    resources: Resources,
    /// The same along [`Template::limited`].
    row: Row,
}

impl<'a> Pass<'a> {
    fn new(
        snapshot: &'a Snapshot,
        settings: &'a Settings,
        pods: &'a [Arc<Pod>],
        moving: &BTreeSet<&PodName>,
        schedule: &mut Schedule,
    ) -> Self {
        let daemons: Vec<Pod> = daemons(snapshot);
        let axes = Axes::of(pods.iter().map(|pod| &pod.requests).chain(daemons.iter().map(|daemon| &daemon.requests)));
        let pools = usable_pools(snapshot, schedule);
        let mut sets = Sets::default();
        let mut templates = Vec::new();
        for pool in &pools {
            match Template::new(pool, &daemons, &axes, settings, &mut sets) {
                Ok(template) => templates.push(template),
                Err(reason) => schedule.pools_left_out.push((pool.name().to_owned(), reason)),
            }
        }
        let preferred = |pool: &&Pool| pool.taints().iter().any(|taint| taint.effect == "PreferNoSchedule");
        let bound = snapshot.pods_by_node();
        let mut topology = Topology::new(snapshot, &bound, &pools, moving);
        let mut existing = existing(snapshot, &bound, &daemons, &axes);
        existing.iter_mut().for_each(|node| node.join(&mut topology));
        topology.add_running_anti_affinity();
        let (classes, class_of) = classes(pods, snapshot, &axes, settings, &mut sets, &mut topology);
        let reservations = Reservations::of(pools.iter().flat_map(|pool| &pool.instance_types));
        Self {
            settings,
            pods,
            remaining: remaining_limits(snapshot, &templates),
            axes,
            sets,
            topology,
            classes,
            class_of,
            existing,
            packings: Vec::new(),
            order: Order::default(),
            templates,
            reservations,
            has_pools: !pools.is_empty(),
            some_pool_has_preferred_taints: pools.iter().any(preferred),
            placed: 0,
            is_explained: false,
            nodes_passed_over: BTreeMap::new(),
        }
    }

    /// Places all pods; those left are tried once more with what the skew of spread constraints allows besides the emptiest
    /// domains. (Upstream leaves them waiting: it takes the emptiest domain or none.)
    fn run(mut self, schedule: &mut Schedule) {
        let (classes, mut around) = self.surroundings();
        classes.iter().for_each(|class| class.found_groups(&mut around));
        let left = self.place_all((0..self.pods.len()).collect(), Reach::Emptiest, schedule);
        let is_spread = |pod: &usize| self.pods[*pod].topology_spread.iter().any(|spread| spread.is_required);
        if left.iter().any(is_spread) {
            self.classes.iter_mut().for_each(|class| class.failure = None);
            self.place_all(left, Reach::Allowed, schedule);
        }
        self.finish(schedule);
    }

    /// Places pods until a whole round has placed none; answers those left.
    fn place_all(&mut self, pods: Vec<usize>, reach: Reach, schedule: &mut Schedule) -> Vec<usize> {
        let mut queue = Queue::new(self.pods, pods);
        while let Some(pod) = queue.pop() {
            let name = &self.pods[pod].name;
            match self.place(pod, reach) {
                Ok(()) => drop(schedule.unschedulable.remove(name)),
                // What was in the way of the emptiest domain says more than what was in the way of the last resort.
                Err(reason) if reach == Reach::Emptiest => {
                    schedule.unschedulable.insert(name.clone(), reason);
                    queue.put_back(pod);
                }
                Err(_) => queue.put_back(pod),
            }
        }
        queue.left()
    }

    /// Places one pod, unless one like it has failed since something was placed.
    fn place(&mut self, pod: usize, reach: Reach) -> Result<(), Unschedulable> {
        let class = self.class_of[pod];
        if let Some((placed, reason)) = &self.classes[class].failure
            && *placed == self.placed
        {
            return Err(reason.clone());
        }
        let outcome = self.place_relaxing(pod, class, reach);
        match &outcome {
            Ok(()) => self.placed += 1,
            Err(reason) => self.classes[class].failure = Some((self.placed, reason.clone())),
        }
        outcome
    }

    /// Places one pod, giving up its wishes one by one as far as need be.
    fn place_relaxing(&mut self, pod: usize, class: usize, reach: Reach) -> Result<(), Unschedulable> {
        if !self.has_pools {
            return Err(Unschedulable::NoNodePools);
        }
        for stage in 0.. {
            let ask = self.stage(class, stage).expect("the first stage is always there, and others are asked for");
            let is_deferred = match self.try_place(pod, class, &ask, reach) {
                Ok(()) => return Ok(()),
                Err(Refused { is_deferred }) => is_deferred,
            };
            if is_deferred || self.stage(class, stage + 1).is_none() {
                if self.is_explained {
                    let passed_over = self.nodes_passed_over(class, &ask);
                    self.nodes_passed_over.insert(self.pods[pod].name.clone(), passed_over);
                }
                return Err(self.explain(class, &ask, reach));
            }
        }
        unreachable!("wishes are finite")
    }

    fn stage(&mut self, class: usize, stage: usize) -> Option<Rc<Ask>> {
        let (classes, mut around) = self.surroundings();
        classes[class].stage(stage, &mut around)
    }

    fn surroundings(&mut self) -> (&mut [PodClass<'a>], Surroundings<'_, 'a>) {
        let Self { sets, topology, templates, existing, classes, .. } = self;
        let some_pool_has_preferred_taints = self.some_pool_has_preferred_taints;
        (classes, Surroundings { sets, topology, templates, existing, some_pool_has_preferred_taints })
    }

    fn try_place(&mut self, pod: usize, class: usize, ask: &Ask, reach: Reach) -> Result<(), Refused> {
        let openings = self.topology.openings(&self.sets, &ask.constraints, ask.bounds());
        let openings = openings.map_err(|_| Refused { is_deferred: false })?;
        if self.place_in_existing(pod, class, ask, &openings)
            || self.place_in_planned(pod, class, ask, &openings, reach)
        {
            return Ok(());
        }
        self.place_in_new(pod, class, ask, &openings, reach)
    }

    fn place_in_existing(&mut self, pod: usize, class: usize, ask: &Ask, openings: &Openings) -> bool {
        let class = &self.classes[class];
        for index in &ask.nodes {
            let node = &mut self.existing[*index as usize];
            if node.has_room(class) && self.topology.admits(openings, node.host) {
                node.place(class, &self.pods[pod].name);
                self.topology.record(&self.sets, node.host, None, class.labels, &class.forbids);
                return true;
            }
        }
        false
    }

    fn place_in_planned(&mut self, pod: usize, class: usize, ask: &Ask, openings: &Openings, reach: Reach) -> bool {
        let Self { sets, topology, templates, reservations, packings, classes, order, .. } = self;
        let class = &classes[class];
        let attempt = Attempt { class, ask, openings, reach };
        let first_host = self.existing.len();
        let mut found = None;
        for (place, index) in order.iter() {
            // Asked first, as it costs least: with thousands of pods that avoid each other it is nearly always the answer.
            if topology.check_host(openings, HostId(first_host + index)).is_err() {
                continue;
            }
            let packing = &packings[index];
            let template = &mut templates[packing.template];
            let mut bench = Workbench { sets, topology, template, reservations };
            if let Ok(addition) = packing.consider(attempt, &mut bench, MinValuesPolicy::Strict) {
                found = Some((place, index, addition));
                break;
            }
        }
        let Some((place, index, addition)) = found else { return false };
        let packing = &mut packings[index];
        topology.record(sets, packing.host, Some(addition.set), class.labels, &class.forbids);
        packing.place(class, &self.pods[pod].name, addition, reservations);
        order.grow(place);
        true
    }

    /// Opens a node from the first pool that can give one. Where a pool has reserved capacity that is taken, the pod waits
    /// for it rather than going to a pool that comes later.
    fn place_in_new(
        &mut self,
        pod: usize,
        class: usize,
        ask: &Ask,
        openings: &Openings,
        reach: Reach,
    ) -> Result<(), Refused> {
        for index in 0..self.templates.len() {
            match self.open(index, class, ask, openings, reach) {
                Ok((mut packing, Ok(addition))) => {
                    if self.is_explained {
                        packing.passed_over = self.refusals(index, class, ask, Ok(openings), reach);
                        packing.nodes_passed_over = self.nodes_passed_over(class, ask);
                    }
                    self.add(packing, addition, pod, class);
                    return Ok(());
                }
                Ok((_, Err(Misfit::Reserved(_)))) => return Err(Refused { is_deferred: true }),
                Ok((_, Err(_))) | Err(_) => {}
            }
        }
        Err(Refused { is_deferred: false })
    }

    /// A new node of the template, and what the pod would make of it.
    fn open(
        &mut self,
        index: usize,
        class: usize,
        ask: &Ask,
        openings: &Openings,
        reach: Reach,
    ) -> Result<(Packing, Result<packing::Addition, Misfit>), Refusal> {
        let Self { sets, topology, templates, reservations, classes, .. } = self;
        let template = &mut templates[index];
        let types = types_within_limits(template, &self.remaining[index])?;
        let packing = Packing::open(index, template, types, topology.next_host(), &self.axes);
        let attempt = Attempt { class: &classes[class], ask, openings, reach };
        let mut bench = Workbench { sets, topology, template, reservations };
        let considered = packing.consider(attempt, &mut bench, self.settings.min_values_policy);
        Ok((packing, considered))
    }

    fn add(&mut self, mut packing: Packing, addition: packing::Addition, pod: usize, class: usize) {
        let template = &self.templates[packing.template];
        let class = &self.classes[class];
        packing.host = self.topology.add_planned(template.pool.taints(), addition.set);
        self.topology.record(&self.sets, packing.host, Some(addition.set), class.labels, &class.forbids);
        packing.place(class, &self.pods[pod].name, addition, &mut self.reservations);
        self.remaining[packing.template].charge(&packing.largest_capacity(template), template);
        self.order.add(self.packings.len());
        self.packings.push(packing);
    }

    /// Why no pool could give a node for what was just refused, with all facts.
    fn explain(&mut self, class: usize, ask: &Ask, reach: Reach) -> Unschedulable {
        if self.templates.is_empty() {
            return Unschedulable::NoTemplates;
        }
        let openings = self.topology.openings(&self.sets, &ask.constraints, ask.bounds());
        let openings = openings.as_ref().map_err(|closed| *closed);
        Unschedulable::NoPoolFits(self.refusals(self.templates.len(), class, ask, openings, reach))
    }

    /// Why each of the first `count` pools refused, up to the one whose reserved capacity the pod waits for.
    fn refusals(
        &mut self,
        count: usize,
        class: usize,
        ask: &Ask,
        openings: Result<&Openings, Closed>,
        reach: Reach,
    ) -> Vec<PoolRefusal> {
        let mut refusals = Vec::new();
        for index in 0..count {
            let refusal = self.refusal(index, class, ask, openings, reach);
            let is_deferred = matches!(refusal, Refusal::Reserved(_));
            refusals.push(PoolRefusal { pool: self.templates[index].pool.name().to_owned(), refusal });
            if is_deferred {
                break;
            }
        }
        refusals
    }

    /// Why each node that exists had no place just now.
    fn nodes_passed_over(&self, class: usize, ask: &Ask) -> NodesPassedOver {
        let mut by_rule = NodesPassedOver::new();
        let mut suited = ask.nodes.iter().peekable();
        for (index, node) in (0..).zip(&self.existing) {
            let rule = match suited.next_if_eq(&&index) {
                Some(_) => node.lacks(&self.classes[class], &self.axes).unwrap_or(NodeRule::OtherPods),
                None => ask.unsuited(node),
            };
            by_rule.entry(rule).or_default().push(node.name.to_owned());
        }
        by_rule
    }

    fn refusal(
        &mut self,
        index: usize,
        class: usize,
        ask: &Ask,
        openings: Result<&Openings, Closed>,
        reach: Reach,
    ) -> Refusal {
        let nothing = Openings::default();
        let (packing, misfit) = match openings {
            Ok(openings) => match self.open(index, class, ask, openings, reach) {
                Ok((packing, considered)) => (packing, considered.err().expect("the same was refused just now")),
                Err(refusal) => return refusal,
            },
            Err(closed) => {
                let none = Bits::default();
                let host = self.topology.next_host();
                let packing = Packing::open(index, &self.templates[index], none, host, &self.axes);
                (packing, if ask.refused_by[index].is_some() { Misfit::Template } else { Misfit::Topology(closed) })
            }
        };
        let Self { sets, topology, templates, reservations, classes, .. } = self;
        let attempt = Attempt { class: &classes[class], ask, openings: openings.unwrap_or(&nothing), reach };
        let mut bench = Workbench { sets, topology, template: &mut templates[index], reservations };
        packing.explain(attempt, &mut bench, misfit)
    }

    fn finish(mut self, schedule: &mut Schedule) {
        let policy = self.settings.min_values_policy;
        for packing in self.packings {
            let template = &mut self.templates[packing.template];
            match packing.finish(&mut self.sets, template, policy) {
                Ok(node) => schedule.new_nodes.push(node),
                Err(dropped) => {
                    let pool = template.pool.name();
                    let reason = |unmet| Unschedulable::MinValues { pool: pool.to_owned(), unmet };
                    let failed = dropped.pods.into_iter().map(|pod| (pod, reason(dropped.unmet.clone())));
                    schedule.unschedulable.extend(failed);
                }
            }
        }
        schedule.nodes_passed_over = self.nodes_passed_over;
        schedule.nodes_passed_over.retain(|pod, _| schedule.unschedulable.contains_key(pod));
        let used = self.existing.into_iter().filter(|node| !node.pods.is_empty());
        schedule.existing = used.map(|node| (node.name.to_owned(), node.pods)).collect();
    }
}

/// Groups the pods by what they ask for: the classes, and the class of each pod.
fn classes<'a>(
    pods: &'a [Arc<Pod>],
    snapshot: &'a Snapshot,
    axes: &Axes,
    settings: &Settings,
    sets: &mut Sets,
    topology: &mut Topology<'a>,
) -> (Vec<PodClass<'a>>, Vec<usize>) {
    let mut classes: Vec<PodClass<'a>> = Vec::new();
    let mut alike: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let mut class_of = Vec::with_capacity(pods.len());
    for pod in pods {
        // Not all that makes a class, but enough to have few candidates to compare with.
        let amounts = axes.row(&pod.requests);
        let candidates = alike.entry((amounts, &pod.labels, &pod.node_selector, &pod.required_terms)).or_default();
        let known = candidates.iter().copied().find(|class| classes[*class].pod.is_scheduled_like(pod));
        class_of.push(known.unwrap_or_else(|| {
            classes.push(PodClass::new(pod, snapshot.storage.as_deref(), axes, settings, sets, topology));
            candidates.push(classes.len() - 1);
            classes.len() - 1
        }));
    }
    classes.iter_mut().for_each(|class| class.meet_inverse(topology));
    (classes, class_of)
}

/// One pod for each DaemonSet.
fn daemons(snapshot: &Snapshot) -> Vec<Pod> {
    let mut sets: Vec<_> = snapshot.daemon_sets.iter().collect();
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    let pods = || snapshot.pods.values().map(Arc::as_ref);
    sets.into_iter().map(|set| set.representative(pods())).collect()
}

/// Pools to launch from: the heaviest first, among equals by name from the end, as upstream has it.
fn usable_pools<'a>(snapshot: &'a Snapshot, schedule: &mut Schedule) -> Vec<&'a Pool> {
    let mut usable = Vec::new();
    for pool in snapshot.pools.values() {
        let left_out = match pool {
            pool if pool.is_static() => PoolLeftOut::Static,
            pool if pool.is_deleting() => PoolLeftOut::Deleting,
            pool if !pool.is_ready() => PoolLeftOut::NotReady,
            pool => {
                usable.push(pool);
                continue;
            }
        };
        schedule.pools_left_out.push((pool.name().to_owned(), left_out));
    }
    usable.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| b.name().cmp(a.name())));
    usable
}

/// Nodes that stay, those that are up before those that are coming, then by name.
fn existing<'a>(snapshot: &'a Snapshot, bound: &Bound<'a>, daemons: &[Pod], axes: &Axes) -> Vec<ExistingNode<'a>> {
    let staying = snapshot.nodes.values().filter(|node| !node.is_marked_for_deletion());
    let mut nodes: Vec<ExistingNode<'a>> = staying
        .map(|node| {
            let pods = node.node_name().and_then(|name| bound.get(name)).map_or(&[][..], Vec::as_slice);
            ExistingNode::new(node, pods, daemons, axes, snapshot.storage.as_deref())
        })
        .collect();
    nodes.sort_by_key(|node| (!node.initialized, node.name));
    nodes
}

/// What the pools' limits leave beside the nodes that stay.
fn remaining_limits(snapshot: &Snapshot, templates: &[Template<'_>]) -> Vec<Remaining> {
    let mut limits: Vec<Resources> = templates.iter().map(|template| template.pool.limits().clone()).collect();
    for node in snapshot.nodes.values().filter(|node| !node.is_marked_for_deletion()) {
        let is_of = |template: &Template<'_>| node.pool() == Some(template.pool.name());
        if let Some(index) = templates.iter().position(is_of) {
            limits[index].subtract(node.capacity());
        }
    }
    let limits = limits.into_iter().zip(templates);
    limits.map(|(resources, template)| Remaining { row: template.limited.row(&resources), resources }).collect()
}

impl Remaining {
    /// Counts a planned node. Upstream forgets to count the node itself against a limit on `nodes`, so that one pass can
    /// overshoot it; we count it.
    fn charge(&mut self, capacity: &Row, template: &Template<'_>) {
        if self.resources.is_empty() {
            return;
        }
        let used = template.limited.resources(capacity).with(NODES, Quantity::units(1));
        self.resources.subtract(&used);
        self.row = template.limited.row(&self.resources);
    }
}

/// Instance types that one more node may have under the pool's limits.
fn types_within_limits(template: &Template<'_>, remaining: &Remaining) -> Result<Bits, Refusal> {
    let Remaining { resources, row } = remaining;
    if resources.contains(NODES) && resources.get(NODES) < Quantity::units(1) {
        return Err(Refusal::NodeLimit);
    }
    let within = |index: usize| template.types[index].capacity.iter().zip(row).all(|(capacity, left)| capacity <= left);
    let types = Bits::of(template.types.len(), within);
    if types.is_empty() { Err(Refusal::Limits { remaining: resources.clone() }) } else { Ok(types) }
}
