//! Whether a pod was left out that a fresh node of some pool could hold.
//!
//! Pods that have to do with other pods beyond their own host are not judged: whether a zone was open to them depends on
//! who came first.

use super::{Rule, Violations, alternatives, tolerates, without_simulated};
use crate::host_ports;
use crate::quantity::Quantity;
use crate::requirement::Requirement;
use crate::requirements::{AllowUndefined, Requirements};
use crate::resources::{NODES, Resources};
use crate::scheduling::{Schedule, Unschedulable};
use crate::snapshot::{Pod, Pool, Snapshot};
use controller_api::labels;
use std::collections::BTreeMap;

pub(super) fn check(snapshot: &Snapshot, daemons: &[Pod], schedule: &Schedule, found: &mut Violations) {
    let remaining = remaining(snapshot);
    // Pods refused alike are many; one of each kind is looked at.
    let mut seen: Vec<&Pod> = Vec::new();
    for (name, reason) in &schedule.unschedulable {
        let is_judged = matches!(reason, Unschedulable::NoPoolFits(_) | Unschedulable::NoTemplates);
        let Some(pod) = snapshot.pods.get(name).filter(|_| is_judged && !reason.is_deferred()) else { continue };
        if !stands_alone(pod, snapshot) || seen.iter().any(|other| other.is_scheduled_like(pod)) {
            continue;
        }
        seen.push(pod);
        let holds = |pool: &&Pool| {
            let remaining = &remaining[pool.name()];
            pool.is_ready() && !pool.is_deleting() && !pool.is_static() && could_hold(pod, pool, remaining, daemons)
        };
        // Whether a pool with minValues opens a node depends on all of its types together. And while nodes of a limited pool
        // are packed, each counts with the largest of the types that it had at first.
        let has_new = |pool: &Pool| schedule.new_nodes.iter().any(|planned| planned.pool == pool.name());
        let is_judged =
            |pool: &&Pool| !pool.requirements().has_min_values() && (pool.limits().is_empty() || !has_new(pool));
        let pools = snapshot.pools.values().filter(is_judged);
        if let Some(pool) = pools.filter(|pool| !draws_on_reservations(pool)).find(holds) {
            found.add(Rule::NothingLeftOut, format!("{name}, which a node of {} could hold", pool.name()));
        }
    }
}

fn draws_on_reservations(pool: &Pool) -> bool {
    pool.instance_types.iter().flat_map(|t| &t.offerings).any(|offering| offering.reservation.is_some())
}

/// Whether a new host of its own would be all right as far as other pods go.
fn stands_alone(pod: &Pod, snapshot: &Snapshot) -> bool {
    let on_host = |key: &String| key == labels::HOSTNAME_LABEL;
    let own = pod
        .topology_spread
        .iter()
        .filter(|spread| spread.is_required)
        .all(|s| on_host(&s.topology_key) && s.max_skew > 0)
        && pod.affinity.required.is_empty()
        && pod.affinity.required_anti.iter().all(|term| on_host(&term.topology_key))
        && pod.volumes.is_empty();
    own && snapshot.pods.values().flat_map(|p| &p.affinity.required_anti).all(|term| on_host(&term.topology_key))
}

/// What the pools' limits leave beside the nodes that stay.
fn remaining(snapshot: &Snapshot) -> BTreeMap<&str, Resources> {
    let pools = snapshot.pools.values();
    let mut remaining: BTreeMap<&str, Resources> = pools.map(|pool| (pool.name(), pool.limits().clone())).collect();
    for node in snapshot.nodes.values().filter(|node| !node.is_marked_for_deletion()) {
        if let Some(left) = node.pool().and_then(|pool| remaining.get_mut(pool)) {
            left.subtract(node.capacity());
        }
    }
    remaining
}

fn could_hold(pod: &Pod, pool: &Pool, remaining: &Resources, daemons: &[Pod]) -> bool {
    if !tolerates(pod, pool.taints()) || (remaining.contains(NODES) && remaining.get(NODES) < Quantity::units(1)) {
        return false;
    }
    alternatives(pod).any(|wanted| {
        let expressions = |r: &Requirement| {
            pool.requirements().is_compatible(&Requirements::new().with(r.clone()), AllowUndefined::WellKnown)
        };
        // One term can contradict itself, and a host that is to be made has no name to ask for.
        if wanted.contains(labels::HOSTNAME_LABEL) || contradicts_itself(pod) || !wanted.iter().all(expressions) {
            return false;
        }
        let mut node = pool.requirements().clone();
        node.add_all(&without_simulated(wanted));
        pool.instance_types.iter().any(|instance_type| {
            let mut total = pod.requests.clone();
            let mut ports = Vec::new();
            for daemon in daemons.iter().filter(|daemon| tolerates(daemon, pool.taints())) {
                let runs = alternatives(daemon).map(without_simulated).any(|wanted| {
                    node.is_compatible(&wanted, AllowUndefined::WellKnown)
                        && instance_type.requirements.intersects(&wanted)
                });
                if runs {
                    total.add(&daemon.requests);
                    ports.extend(daemon.host_ports.iter().cloned());
                }
            }
            let within = |(name, left): (&str, Quantity)| name == NODES || instance_type.capacity.get(name) <= left;
            instance_type.requirements.intersects(&node)
                && instance_type.offerings_for(&node).next().is_some()
                && total.fits(&instance_type.allocatable())
                && !host_ports::conflict(&ports, &pod.host_ports)
                && remaining.iter().all(within)
        })
    })
}

fn contradicts_itself(pod: &Pod) -> bool {
    pod.required_terms.iter().any(|term| {
        let mut keys: Vec<&str> = term.requirements.iter().map(Requirement::key).collect();
        keys.extend(pod.node_selector.keys().map(|key| labels::normalize(key)));
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair[0] == pair[1])
    })
}
