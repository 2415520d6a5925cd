//! An independent checker of schedules and disruption plans. It shares the algebra with the code it checks and nothing
//! else: it looks at the answer alone and asks whether the world could live with it. Debug builds run it on every
//! answer; tests feed it answers that were broken on purpose.

mod affinity;
mod left_out;
mod storage;

use crate::disruption::DisruptionPlan;
use crate::host_ports;
use crate::quantity::Quantity;
use crate::requirement::Requirement;
use crate::requirements::{AllowUndefined, Requirements};
use crate::resources::{NODES, Resources};
use crate::scheduling::{PlannedNode, Schedule, Unschedulable};
use crate::selector;
use crate::settings::{MinValuesPolicy, Settings};
use crate::snapshot::{Pod, PodName, Snapshot, SpreadConstraint, StateNode};
use crate::taints;
use controller_api::labels;
use k8s_openapi::api::core::v1::{Node, Taint};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A rule that an answer breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// On what.
    pub on: String,
}

/// What must hold of every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A pod has one place, or a reason for having none.
    OnePlacePerPod,
    /// Only pods that exist and need a place get one.
    PodNeedsPlace,
    /// A place is a node that stays, or a pool that is ready.
    PlaceIsUsable,
    /// Pods tolerate the taints.
    Taints,
    /// Labels are as the pod requires.
    Labels,
    /// Everything fits, on every instance type named.
    Capacity,
    /// No port is taken twice.
    HostPorts,
    /// Pods are spread as they require.
    Spread,
    /// Pods are where those are that they require.
    Affinity,
    /// Pods are not where those are that they, or that require them to be elsewhere.
    AntiAffinity,
    /// A pod's volumes can be reached from where it is.
    Volumes,
    /// No more volumes are attached than the node takes.
    AttachLimit,
    /// No reservation is drawn on by more nodes than it has room for.
    Reservations,
    /// No pod is left out that a fresh node of some pool could hold.
    NothingLeftOut,
    /// Every instance type named fits the node's labels and can be bought.
    InstanceTypes,
    /// At most 600 types, cheapest first.
    LaunchList,
    /// As many different values as asked for.
    MinValues,
    /// The pool's limits hold even if the largest types are launched.
    Limits,
    /// Only nodes that disturb nobody are deleted.
    Emptiness,
    /// Disruption stays within the pool's budget.
    Budget,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} broken by {}", self.rule, self.on)
    }
}

/// Every rule that `schedule` breaks.
pub fn schedule(snapshot: &Snapshot, settings: &Settings, schedule: &Schedule) -> Vec<Violation> {
    let snapshot = snapshot.for_sale(settings);
    let snapshot = snapshot.as_ref();
    let mut found = Violations::default();
    check_places(snapshot, schedule, &mut found);
    for (name, pods) in &schedule.existing {
        match snapshot.nodes.get(name) {
            Some(node) if !node.is_marked_for_deletion() => check_existing(snapshot, node, pods, &mut found),
            _ => found.add(Rule::PlaceIsUsable, name),
        }
    }
    let pods = || snapshot.pods.values().map(Arc::as_ref);
    let daemons: Vec<Pod> = snapshot.daemon_sets.iter().map(|set| set.representative(pods())).collect();
    for (index, planned) in schedule.new_nodes.iter().enumerate() {
        check_planned(
            snapshot,
            &daemons,
            settings,
            planned,
            &format!("planned node {index} of {}", planned.pool),
            &mut found,
        );
    }
    check_limits(snapshot, schedule, &mut found);
    check_spread(snapshot, schedule, &mut found);
    check_reservations(snapshot, schedule, &mut found);
    affinity::check(snapshot, schedule, &mut found);
    left_out::check(snapshot, &daemons, schedule, &mut found);
    found.0.into_iter().collect()
}

/// Every rule that `plan` breaks.
pub fn disruption(snapshot: &Snapshot, plan: &DisruptionPlan) -> Vec<Violation> {
    let mut found = Violations::default();
    let mut going: BTreeMap<&str, u32> = BTreeMap::new();
    for command in &plan.commands {
        for name in &command.candidates {
            let Some(node) = snapshot.nodes.get(name).filter(|node| !node.is_marked_for_deletion()) else {
                found.add(Rule::PlaceIsUsable, name);
                continue;
            };
            *going.entry(node.pool().unwrap_or_default()).or_default() += 1;
            let pods = snapshot.pods_on(node.node_name().unwrap_or_default());
            if command.replacements.is_empty()
                && pods.filter(|pod| pod.is_reschedulable()).any(|pod| pod.eviction_cost() > 0.0)
            {
                found.add(Rule::Emptiness, name);
            }
        }
    }
    for command in &plan.commands {
        for (pool, count) in &going {
            let budget = plan.budgets.get(*pool);
            if budget.is_none_or(|budget| budget.remaining(command.reason) < *count) {
                found.add(Rule::Budget, pool);
            }
        }
    }
    found.0.into_iter().collect()
}

#[derive(Default)]
struct Violations(BTreeSet<Violation>);

impl Violations {
    fn add(&mut self, rule: Rule, on: impl fmt::Display) {
        self.0.insert(Violation { rule, on: on.to_string() });
    }

    fn unless(&mut self, holds: bool, rule: Rule, on: impl fmt::Display) {
        if !holds {
            self.add(rule, on);
        }
    }
}

fn check_places(snapshot: &Snapshot, schedule: &Schedule, found: &mut Violations) {
    let mut seen = BTreeSet::new();
    let placed = schedule.existing.values().chain(schedule.new_nodes.iter().map(|node| &node.pods)).flatten();
    for name in placed.chain(schedule.unschedulable.keys()) {
        found.unless(seen.insert(name), Rule::OnePlacePerPod, name);
        let leaves = |pod: &Pod| {
            snapshot.nodes.values().any(|n| n.is_marked_for_deletion() && n.node_name() == pod.node_name.as_deref())
        };
        let needs_place = snapshot.pods.get(name).is_some_and(|pod| match pod.node_name {
            None => pod.is_provisionable(),
            Some(_) => pod.is_reschedulable() && leaves(pod),
        });
        found.unless(needs_place, Rule::PodNeedsPlace, name);
    }
    for pod in snapshot.pods.values().filter(|pod| pod.is_provisionable()) {
        found.unless(seen.contains(&pod.name), Rule::OnePlacePerPod, &pod.name);
    }
}

fn check_existing(snapshot: &Snapshot, node: &StateNode, placed: &[PodName], found: &mut Violations) {
    let hostname = Requirement::equals(labels::HOSTNAME_LABEL, node.hostname());
    let labels = Requirements::from_labels(node.labels()).with(hostname);
    let bound: Vec<&Arc<Pod>> = node.node_name().map(|name| snapshot.pods_on(name).collect()).unwrap_or_default();
    let placed: Vec<&Arc<Pod>> = placed.iter().filter_map(|name| snapshot.pods.get(name)).collect();
    let mut used = Resources::new();
    bound.iter().chain(&placed).for_each(|pod| used.add(&pod.requests));
    let wanted: Resources = used
        .iter()
        .filter(|(name, _)| placed.iter().any(|pod| !pod.requests.get(name).is_zero()))
        .map(|(name, quantity)| (name.to_owned(), quantity))
        .collect();
    found.unless(wanted.shortages(node.allocatable()).is_empty(), Rule::Capacity, node.name());
    storage::check_existing(snapshot, node, &bound, &placed, found);
    let mut ports: Vec<_> = bound.iter().flat_map(|pod| pod.host_ports.clone()).collect();
    for pod in placed {
        found.unless(tolerates(pod, node.taints()), Rule::Taints, &pod.name);
        found.unless(some_term_holds(pod, &labels), Rule::Labels, &pod.name);
        found.unless(!host_ports::conflict(&ports, &pod.host_ports), Rule::HostPorts, &pod.name);
        ports.extend(pod.host_ports.iter().cloned());
    }
}

fn check_planned(
    snapshot: &Snapshot,
    daemons: &[Pod],
    settings: &Settings,
    planned: &PlannedNode,
    name: &str,
    found: &mut Violations,
) {
    let Some(pool) = snapshot.pools.get(&planned.pool).filter(|p| p.is_ready() && !p.is_deleting() && !p.is_static())
    else {
        return found.add(Rule::PlaceIsUsable, name);
    };
    let pods: Vec<&Arc<Pod>> = planned.pods.iter().filter_map(|name| snapshot.pods.get(name)).collect();
    let mut ports = Vec::new();
    let mut used = Resources::new();
    for pod in &pods {
        found.unless(tolerates(pod, pool.taints()), Rule::Taints, &pod.name);
        let within = |wanted: &Requirements| wanted.iter().all(|r| is_narrowed_to(&planned.requirements, r));
        found.unless(alternatives(pod).any(|wanted| within(&wanted)), Rule::Labels, &pod.name);
        found.unless(!host_ports::conflict(&ports, &pod.host_ports), Rule::HostPorts, &pod.name);
        storage::check_planned(snapshot, planned, pod, found);
        ports.extend(pod.host_ports.iter().cloned());
        used.add(&pod.requests);
    }
    found.unless(pool.requirements().iter().all(|r| is_narrowed_to(&planned.requirements, r)), Rule::Labels, name);
    found.unless(!pods.is_empty() && !planned.instance_types.is_empty(), Rule::InstanceTypes, name);
    found.unless(planned.instance_types.len() <= 600, Rule::LaunchList, name);
    for instance_type in &planned.instance_types {
        let on = format!("{} of {name}", instance_type.name);
        let buyable = instance_type.cheapest_price(&planned.requirements).is_some();
        found.unless(buyable && instance_type.requirements.intersects(&planned.requirements), Rule::InstanceTypes, &on);
        let mut total = used.clone();
        for daemon in daemons {
            let labels_fit = alternatives(daemon).any(|wanted| {
                let wanted = without_simulated(wanted);
                planned.requirements.is_compatible(&wanted, AllowUndefined::WellKnown)
                    && instance_type.requirements.intersects(&wanted)
            });
            if labels_fit && tolerates(daemon, pool.taints()) {
                total.add(&daemon.requests);
            }
        }
        found.unless(total.fits(&instance_type.allocatable()), Rule::Capacity, &on);
    }
    let prices: Vec<f64> =
        planned.instance_types.iter().filter_map(|t| t.cheapest_price(&planned.requirements)).collect();
    found.unless(prices.is_sorted(), Rule::LaunchList, name);
    if settings.min_values_policy == MinValuesPolicy::Strict {
        for requirement in planned.requirements.iter().filter(|r| r.min_values.is_some()) {
            let values: BTreeSet<&String> = planned
                .instance_types
                .iter()
                .filter_map(|t| t.requirements.get(requirement.key()))
                .flat_map(|r| r.values())
                .collect();
            found.unless(values.len() >= requirement.min_values.unwrap_or(0) as usize, Rule::MinValues, requirement);
        }
    }
}

/// Whether each expression of the node selector and of one required term holds by itself of the node's labels.
fn some_term_holds(pod: &Pod, labels: &Requirements) -> bool {
    let holds = |expression: &Requirement| {
        let single = Requirements::new().with(expression.clone());
        labels.is_compatible(&single, AllowUndefined::None)
    };
    let selector = Requirements::from_labels(&pod.node_selector);
    selector.iter().all(holds)
        && (pod.required_terms.is_empty() || pod.required_terms.iter().any(|t| t.requirements.iter().all(holds)))
}

fn check_reservations(snapshot: &Snapshot, schedule: &Schedule, found: &mut Violations) {
    let mut used: BTreeMap<&str, u32> = BTreeMap::new();
    for planned in &schedule.new_nodes {
        let ids = planned.requirements.get(labels::CAPACITY_RESERVATION_ID_LABEL).filter(|r| !r.is_complement());
        for id in ids.into_iter().flat_map(Requirement::values) {
            *used.entry(id).or_default() += 1;
        }
    }
    let offerings = snapshot.pools.values().flat_map(|pool| &pool.instance_types).flat_map(|t| &t.offerings);
    for reservation in offerings.filter(|_| !used.is_empty()).filter_map(|offering| offering.reservation.as_ref()) {
        let used = used.get(reservation.id.as_str()).copied().unwrap_or(0);
        found.unless(used <= reservation.capacity, Rule::Reservations, &reservation.id);
    }
}

fn check_limits(snapshot: &Snapshot, schedule: &Schedule, found: &mut Violations) {
    let mut used: BTreeMap<&str, Resources> = BTreeMap::new();
    for planned in &schedule.new_nodes {
        let mut largest = Resources::new().with(NODES, Quantity::units(1));
        planned.instance_types.iter().for_each(|t| largest.raise_to(&t.capacity));
        used.entry(&planned.pool).or_default().add(&largest);
    }
    for node in snapshot.nodes.values().filter(|node| !node.is_marked_for_deletion()) {
        if let Some(used) = node.pool().and_then(|pool| used.get_mut(pool)) {
            used.add(node.capacity());
        }
    }
    for (pool, used) in used {
        let limits = snapshot.pools.get(pool).map(|pool| pool.limits().clone()).unwrap_or_default();
        found.unless(limits.iter().all(|(name, limit)| used.get(name) <= limit), Rule::Limits, pool);
    }
}

/// A domain that took a pod may not be fuller than the emptiest that the pod could use, by more than the skew. Only pods of
/// the same constraint are counted on top of those that run: others that match its selector may have come later, and
/// are free to.
fn check_spread(snapshot: &Snapshot, schedule: &Schedule, found: &mut Violations) {
    // Nodes given up at the very end took their pods out of the counts by which others were placed.
    if schedule.unschedulable.values().any(|reason| matches!(reason, Unschedulable::MinValues { .. })) {
        return;
    }
    let places = places(snapshot, schedule);
    let bound = snapshot.pods_by_node();
    let preferred_taints = has_preferred_taints(snapshot);
    for (pod, constraint) in spread_kinds(snapshot, &places) {
        // Whether nodes with such taints take part depends on what each pod had to give up, which the answer does not tell.
        if constraint.honors_taints && preferred_taints {
            continue;
        }
        let key = constraint.topology_key.as_str();
        let counts = |other: &Pod| {
            other.name.namespace == pod.name.namespace
                && constraint.selector.as_ref().is_some_and(|s| selector::matches(s, &other.labels))
        };
        let running = running_by_domain(snapshot, &places, &bound, pod, constraint);
        let is_alike = |other: &&&PodName| is_spread_alike(&snapshot.pods[**other], pod, constraint);
        let mut planned: BTreeMap<&str, usize> = BTreeMap::new();
        for place in &places {
            for name in place.pods.iter().filter(is_alike) {
                match place.domain(key) {
                    Some(domain) => {
                        *planned.entry(domain).or_default() += usize::from(counts(&snapshot.pods[*name]));
                    }
                    None => found.add(Rule::Spread, format!("{name} over {key}")),
                }
            }
        }
        for (domain, planned) in planned {
            let here = running.get(domain).copied().unwrap_or(0) + planned;
            let fits = alternatives(pod).any(|wanted| {
                let usable = |value: &str| wanted.allows(key, value);
                here <= constraint.max_skew as usize + least(snapshot, &places, pod, constraint, &running, &usable)
            });
            found.unless(fits, Rule::Spread, format!("{domain} with {} over {key}", pod.name));
        }
    }
}

fn has_preferred_taints(snapshot: &Snapshot) -> bool {
    let of_nodes =
        snapshot.nodes.values().filter_map(|node| node.node.as_ref()?.spec.as_ref()?.taints.as_ref()).flatten();
    let of_pools = snapshot.pools.values().flat_map(|pool| pool.taints());
    of_nodes.chain(of_pools).any(|taint| taint.effect == "PreferNoSchedule")
}

/// One pod of each kind that was given a place and must be spread, with the constraint.
fn spread_kinds<'a>(snapshot: &'a Snapshot, places: &[Place<'a>]) -> Vec<(&'a Pod, &'a SpreadConstraint)> {
    let mut kinds: Vec<(&Pod, &SpreadConstraint)> = Vec::new();
    for name in places.iter().flat_map(|place| &place.pods) {
        let pod = &snapshot.pods[*name];
        for constraint in pod.topology_spread.iter().filter(|constraint| constraint.is_required) {
            if !kinds.iter().any(|(kind, of_kind)| *of_kind == constraint && is_spread_alike(pod, kind, of_kind)) {
                kinds.push((pod, constraint));
            }
        }
    }
    kinds
}

/// Whether the constraint is `other`'s too and counts the same pods on the same nodes.
fn is_spread_alike(other: &Pod, pod: &Pod, constraint: &SpreadConstraint) -> bool {
    other.name.namespace == pod.name.namespace
        && other.topology_spread.contains(constraint)
        && other.node_selector == pod.node_selector
        && other.required_terms == pod.required_terms
        && other.tolerations == pod.tolerations
}

/// A node that was given pods, by what is known of its labels.
struct Place<'a> {
    pods: Vec<&'a PodName>,
    labels: BTreeMap<&'a str, &'a str>,
    hostname: String,
}

impl Place<'_> {
    fn domain(&self, key: &str) -> Option<&str> {
        if key == labels::HOSTNAME_LABEL { Some(&self.hostname) } else { self.labels.get(key).copied() }
    }
}

fn places<'a>(snapshot: &'a Snapshot, schedule: &'a Schedule) -> Vec<Place<'a>> {
    let existing = schedule.existing.iter().filter_map(|(name, pods)| {
        let node = snapshot.nodes.get(name)?;
        let labels = node.labels().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let hostname = node.hostname().to_owned();
        Some(Place { pods: pods.iter().filter(|pod| snapshot.pods.contains_key(*pod)).collect(), labels, hostname })
    });
    let planned = schedule.new_nodes.iter().enumerate().map(|(index, planned)| {
        let single = planned.requirements.iter().filter_map(|r| Some((r.key(), r.single_value()?)));
        Place {
            pods: planned.pods.iter().filter(|pod| snapshot.pods.contains_key(*pod)).collect(),
            labels: single.collect(),
            hostname: format!("planned node {index}"),
        }
    });
    existing.chain(planned).collect()
}

/// Pods that run and stay, by domain, on nodes that take part for the pod.
fn running_by_domain<'a>(
    snapshot: &'a Snapshot,
    places: &[Place<'_>],
    bound: &BTreeMap<&str, Vec<&Arc<Pod>>>,
    pod: &Pod,
    constraint: &SpreadConstraint,
) -> BTreeMap<&'a str, usize> {
    let moved: BTreeSet<&PodName> = places.iter().flat_map(|place| &place.pods).copied().collect();
    let mut counts = BTreeMap::new();
    // Nodes that go give up their pods, but for those that may not move; without those the count is only lower.
    for node in snapshot.nodes.values().filter(|node| !node.is_marked_for_deletion()) {
        let Some(object) = node.node.as_deref().filter(|object| takes_part(object, pod, constraint)) else { continue };
        let label = object.metadata.labels.as_ref().and_then(|labels| labels.get(&constraint.topology_key));
        let own_name = node.node_name().filter(|_| constraint.topology_key == labels::HOSTNAME_LABEL);
        let Some(domain) = label.map(String::as_str).or(own_name) else { continue };
        let pods = node.node_name().and_then(|name| bound.get(name)).into_iter().flatten();
        let counted = pods.filter(|other| {
            let selected = constraint.selector.as_ref().is_none_or(|s| selector::matches(s, &other.labels));
            let stays = other.is_active() && !moved.contains(&other.name);
            selected && other.name.namespace == pod.name.namespace && stays
        });
        *counts.entry(domain).or_default() += counted.count();
    }
    counts
}

fn takes_part(node: &Node, pod: &Pod, constraint: &SpreadConstraint) -> bool {
    let labels = Requirements::from_labels(node.metadata.labels.iter().flatten());
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    (!constraint.honors_affinity || alternatives(pod).any(|wanted| labels.is_compatible(&wanted, AllowUndefined::None)))
        && (!constraint.honors_taints || tolerates(pod, taints))
}

/// The count of the emptiest domain that the pod can use, everything that matches counted. Zero for hosts, which can be
/// added, and where there are fewer domains than wanted. Only domains that nodes or planned nodes are in, or that a pool
/// whose nodes the pod tolerates names, are known to this check; more would only lower the count.
fn least(
    snapshot: &Snapshot,
    places: &[Place<'_>],
    pod: &Pod,
    constraint: &SpreadConstraint,
    running: &BTreeMap<&str, usize>,
    usable: &dyn Fn(&str) -> bool,
) -> usize {
    let key = constraint.topology_key.as_str();
    if key == labels::HOSTNAME_LABEL {
        return 0;
    }
    let mut totals: BTreeMap<&str, usize> = running.clone();
    for pool in snapshot.pools.values().filter(|p| p.is_ready() && !p.is_deleting() && !p.is_static()) {
        let reachable = !constraint.honors_taints || tolerates(pod, pool.taints());
        let named = pool.instance_types.iter().filter_map(|t| t.requirements.get(key)).flat_map(|r| r.values());
        for value in named.filter(|value| reachable && pool.requirements().allows(key, value)) {
            totals.entry(value).or_default();
        }
    }
    let is_counted = |name: &&PodName| {
        let other = &snapshot.pods[*name];
        let selected = constraint.selector.as_ref().is_some_and(|s| selector::matches(s, &other.labels));
        selected && other.name.namespace == pod.name.namespace
    };
    for place in places {
        if let Some(domain) = place.domain(key) {
            let counted = place.pods.iter().copied().filter(is_counted).count();
            *totals.entry(domain).or_default() += counted;
        }
    }
    let counts: Vec<usize> = totals.into_iter().filter(|(domain, _)| usable(domain)).map(|(_, count)| count).collect();
    let enough = counts.len() >= constraint.min_domains.unwrap_or(0) as usize;
    if enough { counts.into_iter().min().unwrap_or(0) } else { 0 }
}

/// Whether what `planned` allows is within what is `wanted`.
fn is_narrowed_to(planned: &Requirements, wanted: &Requirement) -> bool {
    if is_simulated(wanted.key()) {
        return true;
    }
    planned.get(wanted.key()).is_some_and(|actual| {
        let both = actual.intersection(wanted);
        both.with_min_values(None) == actual.clone().with_min_values(None)
    })
}

fn is_simulated(key: &str) -> bool {
    [labels::REGISTERED_LABEL, labels::INITIALIZED_LABEL, labels::HOSTNAME_LABEL].contains(&key)
}

fn without_simulated(mut wanted: Requirements) -> Requirements {
    let simulated: Vec<String> = wanted.keys().filter(|key| is_simulated(key)).map(str::to_owned).collect();
    simulated.iter().for_each(|key| drop(wanted.remove(key)));
    wanted
}

/// What the pod must have: its node selector with one of its required terms.
fn alternatives(pod: &Pod) -> impl Iterator<Item = Requirements> {
    let terms = pod.required_terms.iter().map(Some).chain(pod.required_terms.is_empty().then_some(None));
    terms.map(|term| pod.requirements(term, None))
}

fn tolerates(pod: &Pod, taints: &[Taint]) -> bool {
    let hard: Vec<Taint> = taints.iter().filter(|taint| taint.effect != "PreferNoSchedule").cloned().collect();
    taints::tolerates(&hard, &pod.tolerations).is_ok()
}
