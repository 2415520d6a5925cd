//! Where pods go: onto nodes that exist, onto nodes already planned, or onto new ones (core spec §3.4–3.8).
//!
//! [`schedule`] is the whole of it. Pods are taken in order of size; each goes to the first place that takes it. When none
//! does, the pod gives up one of its wishes and is tried again, until only what it must have is left; what then stays is a
//! typed reason per pool.
//!
//! What is not here yet: affinity between pods (a pod that requires it is refused with
//! [`Unschedulable::NotSupportedYet`], one that only prefers it is placed without), the required anti-affinity of pods
//! already running against those being placed, volumes (attach limits and zones of volumes do not constrain), capacity
//! reservations, and dynamic resource allocation.

mod amounts;
mod existing;
mod planned_node;
mod preferences;
mod queue;
mod reason;
mod template;
mod topology;
mod truncate;

pub use planned_node::PlannedNode;
pub use reason::{
    Failures, InvalidPod, Met, MinValuesUnmet, NoInstanceType, PoolLeftOut, PoolRefusal, Refusal, Unschedulable,
};
pub use topology::SpreadUnsatisfiable;

use crate::quantity::Quantity;
use crate::resources::{NODES, Resources};
use crate::settings::{MinValuesPolicy, Settings};
use crate::snapshot::{Pod, PodName, Pool, Snapshot};
use amounts::Axes;
use controller_api::labels;
use existing::ExistingNode;
use planned_node::{Addition, Packing};
use preferences::Wishes;
use queue::Queue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use template::Template;
use topology::Topology;

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
}

/// Plans places for the pods that wait for a node and for those whose node is going away.
pub fn schedule(snapshot: &Snapshot, settings: &Settings) -> Schedule {
    let mut schedule = Schedule::default();
    let mut pods = Vec::new();
    let all = pods_to_place(snapshot);
    for pod in &all {
        match validate(pod) {
            Ok(()) => pods.push(Arc::clone(pod)),
            Err(reason) => {
                schedule.unschedulable.insert(pod.name.clone(), reason);
            }
        }
    }
    if pods.is_empty() {
        return schedule;
    }
    let moving = all.iter().map(|pod| &pod.name).collect();
    Pass::new(snapshot, settings, &pods, &moving, &mut schedule).run(pods, &mut schedule);
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
    let bound = snapshot.pods_by_node();
    for node in snapshot.nodes.values().filter(|node| node.is_marked_for_deletion()) {
        let on_node = node.node_name().and_then(|name| bound.get(name)).into_iter().flatten();
        pods.extend(on_node.filter(|pod| snapshot.is_currently_reschedulable(pod)).map(|pod| (&pod.name, *pod)));
    }
    pods.into_values().cloned().collect()
}

/// What speaks against planning for a pod at all (core spec §3.4). PersistentVolumeClaims are not looked at yet.
fn validate(pod: &Pod) -> Result<(), Unschedulable> {
    let mut problems = Vec::new();
    let first_preferred = pod.preferred_terms.first().map(|preferred| &preferred.term);
    if pod.requirements(pod.required_terms.first(), first_preferred).forbids(labels::NODE_POOL_LABEL) {
        problems.push(InvalidPod::RefusesManagedNodes);
    }
    if pod.required_terms.iter().any(|term| term.has_match_fields) {
        problems.push(InvalidPod::MatchFields);
    }
    problems.extend(pod.problems.iter().cloned().map(InvalidPod::Field));
    if !problems.is_empty() {
        return Err(Unschedulable::Ignored(problems));
    }
    if pod.claims_devices {
        return Err(Unschedulable::DynamicResources);
    }
    Ok(())
}

/// One run over all pods.
struct Pass<'a> {
    settings: &'a Settings,
    axes: Axes,
    existing: Vec<ExistingNode<'a>>,
    packings: Vec<Packing>,
    templates: Vec<Template<'a>>,
    topology: Topology,
    has_pools: bool,
    /// What each limited pool may still add.
    remaining: BTreeMap<&'a str, Resources>,
    some_pool_has_preferred_taints: bool,
    /// The last pod that failed and why, until another is placed: pods often come in hundreds that are all alike.
    last_failure: Option<(Arc<Pod>, Unschedulable)>,
}

impl<'a> Pass<'a> {
    fn new(
        snapshot: &'a Snapshot,
        settings: &'a Settings,
        pods: &[Arc<Pod>],
        moving: &BTreeSet<&PodName>,
        schedule: &mut Schedule,
    ) -> Self {
        let daemons: Vec<Pod> = daemons(snapshot);
        let axes = Axes::of(pods.iter().map(|pod| &pod.requests).chain(daemons.iter().map(|daemon| &daemon.requests)));
        let pools = usable_pools(snapshot, schedule);
        let mut templates = Vec::new();
        for pool in &pools {
            match Template::new(pool, &daemons, &axes, settings) {
                Ok(template) => templates.push(template),
                Err(reason) => schedule.pools_left_out.push((pool.name().to_owned(), reason)),
            }
        }
        let preferred = |pool: &&Pool| pool.taints().iter().any(|taint| taint.effect == "PreferNoSchedule");
        let some_pool_has_preferred_taints = pools.iter().any(preferred);
        Self {
            settings,
            topology: Topology::new(snapshot, &pools, pods, moving, some_pool_has_preferred_taints),
            existing: existing(snapshot, &daemons, &axes),
            axes,
            packings: Vec::new(),
            templates,
            has_pools: !pools.is_empty(),
            remaining: remaining_limits(snapshot, &pools),
            some_pool_has_preferred_taints,
            last_failure: None,
        }
    }

    fn run(mut self, pods: Vec<Arc<Pod>>, schedule: &mut Schedule) {
        let mut queue = Queue::new(pods);
        while let Some(pod) = queue.pop() {
            match self.place(&pod) {
                Ok(()) => {
                    schedule.unschedulable.remove(&pod.name);
                }
                Err(reason) => {
                    schedule.unschedulable.insert(pod.name.clone(), reason);
                    queue.put_back(pod);
                }
            }
        }
        self.finish(schedule);
    }

    /// Places one pod, unless one like it has just failed.
    fn place(&mut self, pod: &Arc<Pod>) -> Result<(), Unschedulable> {
        if let Some((failed, reason)) = &self.last_failure
            && failed.is_scheduled_like(pod)
        {
            return Err(reason.clone());
        }
        let placed = self.place_relaxing(pod);
        self.last_failure = placed.as_ref().err().map(|reason| (Arc::clone(pod), reason.clone()));
        placed
    }

    /// Places one pod, giving up its wishes one by one as far as need be.
    fn place_relaxing(&mut self, pod: &Pod) -> Result<(), Unschedulable> {
        if !self.has_pools {
            return Err(Unschedulable::NoNodePools);
        }
        let mut wishes = Wishes::new(pod, &self.topology, &self.axes, self.settings);
        loop {
            let reason = match self.try_place(&wishes) {
                Ok(()) => return Ok(()),
                Err(reason) => reason,
            };
            if !wishes.relax(self.some_pool_has_preferred_taints) {
                return Err(reason);
            }
        }
    }

    fn try_place(&mut self, wishes: &Wishes<'_>) -> Result<(), Unschedulable> {
        if let Some(node) = self.existing.iter_mut().find(|node| node.takes(wishes, &self.topology)) {
            node.place(wishes, &mut self.topology);
            return Ok(());
        }
        if self.place_in_planned(wishes) {
            return Ok(());
        }
        self.place_in_new(wishes)
    }

    /// Tries nodes already planned, those with the fewest pods first.
    fn place_in_planned(&mut self, wishes: &Wishes<'_>) -> bool {
        let mut order: Vec<usize> = (0..self.packings.len()).filter(|i| self.packings[*i].may_take(wishes)).collect();
        order.sort_by_key(|index| (self.packings[*index].pods.len(), *index));
        for index in order {
            let packing = &mut self.packings[index];
            let template = &self.templates[packing.template];
            if let Ok(addition) = packing.consider(template, wishes, &self.topology, MinValuesPolicy::Strict) {
                packing.place(template, wishes, addition, &mut self.topology, &self.axes);
                return true;
            }
        }
        false
    }

    /// Opens a node from the first pool that can give one.
    fn place_in_new(&mut self, wishes: &Wishes<'_>) -> Result<(), Unschedulable> {
        if self.templates.is_empty() {
            return Err(Unschedulable::NoTemplates);
        }
        let mut refusals = Vec::new();
        for (index, template) in self.templates.iter().enumerate() {
            let pool = template.pool.name();
            match self.open(index, template, wishes) {
                Ok((mut packing, addition)) => {
                    packing.place(template, wishes, addition, &mut self.topology, &self.axes);
                    if let Some(remaining) = self.remaining.get_mut(pool) {
                        charge(remaining, &packing.largest_capacity(template));
                    }
                    self.packings.push(packing);
                    return Ok(());
                }
                Err(refusal) => refusals.push(PoolRefusal { pool: pool.to_owned(), refusal }),
            }
        }
        Err(Unschedulable::NoPoolFits(refusals))
    }

    fn open(&self, index: usize, template: &Template<'_>, wishes: &Wishes<'_>) -> Result<(Packing, Addition), Refusal> {
        let types = types_within_limits(template, self.remaining.get(template.pool.name()))?;
        let packing = Packing::open(index, template, types, self.packings.len() + 1, &self.axes);
        let addition = packing
            .consider(template, wishes, &self.topology, self.settings.min_values_policy)
            .map_err(|misfit| packing.explain(template, wishes, &self.topology, misfit))?;
        Ok((packing, addition))
    }

    fn finish(self, schedule: &mut Schedule) {
        let policy = self.settings.min_values_policy;
        for packing in self.packings {
            let template = &self.templates[packing.template];
            match packing.finish(template, policy) {
                Ok(node) => schedule.new_nodes.push(node),
                Err(dropped) => {
                    let pool = template.pool.name();
                    let reason = |unmet| Unschedulable::MinValues { pool: pool.to_owned(), unmet };
                    let failed = dropped.pods.into_iter().map(|pod| (pod, reason(dropped.unmet.clone())));
                    schedule.unschedulable.extend(failed);
                }
            }
        }
        let used = self.existing.into_iter().filter(|node| !node.pods.is_empty());
        schedule.existing = used.map(|node| (node.name.to_owned(), node.pods)).collect();
    }
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
fn existing<'a>(snapshot: &'a Snapshot, daemons: &[Pod], axes: &Axes) -> Vec<ExistingNode<'a>> {
    let bound = snapshot.pods_by_node();
    let staying = snapshot.nodes.values().filter(|node| !node.is_marked_for_deletion());
    let mut nodes: Vec<ExistingNode<'a>> = staying
        .map(|node| {
            let pods = node.node_name().and_then(|name| bound.get(name)).map_or(&[][..], Vec::as_slice);
            ExistingNode::new(node, pods, daemons, axes)
        })
        .collect();
    nodes.sort_by_key(|node| (!node.initialized, node.name));
    nodes
}

/// What the pools' limits leave beside the nodes that stay.
fn remaining_limits<'a>(snapshot: &Snapshot, pools: &[&'a Pool]) -> BTreeMap<&'a str, Resources> {
    let limited = pools.iter().filter(|pool| !pool.limits().is_empty());
    let mut remaining: BTreeMap<&str, Resources> = limited.map(|pool| (pool.name(), pool.limits().clone())).collect();
    for node in snapshot.nodes.values().filter(|node| !node.is_marked_for_deletion()) {
        if let Some(remaining) = node.pool().and_then(|pool| remaining.get_mut(pool)) {
            subtract_limited(remaining, node.capacity());
        }
    }
    remaining
}

/// Counts a planned node against what is left. Upstream forgets to count the node itself against a limit on `nodes`, so
/// that one pass can overshoot it; we count it.
fn charge(remaining: &mut Resources, capacity: &Resources) {
    let node = capacity.clone().with(NODES, Quantity::units(1));
    subtract_limited(remaining, &node);
}

fn subtract_limited(remaining: &mut Resources, used: &Resources) {
    let limited: Vec<String> = remaining.iter().map(|(name, _)| name.to_owned()).collect();
    for name in limited {
        remaining.set(&name, remaining.get(&name) - used.get(&name));
    }
}

/// Instance types that one more node may have under the pool's limits.
fn types_within_limits(template: &Template<'_>, remaining: Option<&Resources>) -> Result<Vec<usize>, Refusal> {
    let Some(remaining) = remaining else { return Ok((0..template.types.len()).collect()) };
    if remaining.contains(NODES) && remaining.get(NODES) < Quantity::units(1) {
        return Err(Refusal::NodeLimit);
    }
    let within = |index: &usize| {
        let capacity = &template.types[*index].instance_type.capacity;
        remaining.iter().all(|(name, left)| name == NODES || capacity.get(name) <= left)
    };
    let types: Vec<usize> = (0..template.types.len()).filter(within).collect();
    if types.is_empty() { Err(Refusal::Limits { remaining: remaining.clone() }) } else { Ok(types) }
}
