//! Whether pods can reach their volumes, and nodes attach them.

use super::{Rule, Violations, is_narrowed_to};
use crate::requirements::{AllowUndefined, Requirements};
use crate::scheduling::PlannedNode;
use crate::snapshot::{Pod, PodName, Snapshot, StateNode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// For each volume, one of its places is where the node is.
pub(super) fn check_existing(
    snapshot: &Snapshot,
    node: &StateNode,
    bound: &[&Arc<Pod>],
    placed: &[&Arc<Pod>],
    found: &mut Violations,
) {
    for pod in placed {
        let reachable = |place: &Requirements| node.requirements().is_compatible(place, AllowUndefined::None);
        found.unless(reaches(snapshot, pod, &reachable), Rule::Volumes, &pod.name);
    }
    let limits = node.node_name().and_then(|name| snapshot.storage.as_ref()?.attach_limits.get(name));
    let attached = |pods: &[&Arc<Pod>]| {
        let mut claims: BTreeMap<String, BTreeSet<PodName>> = BTreeMap::new();
        for (driver, claim) in pods.iter().flat_map(|pod| drivers(snapshot, pod)) {
            claims.entry(driver).or_default().insert(claim);
        }
        claims
    };
    let before = attached(bound);
    let all: Vec<&Arc<Pod>> = bound.iter().chain(placed).copied().collect();
    for (driver, claims) in attached(&all) {
        let limit = limits.and_then(|limits| limits.get(&driver));
        let grew = before.get(&driver).is_none_or(|before| before.len() < claims.len());
        found.unless(!grew || limit.is_none_or(|limit| claims.len() <= *limit), Rule::AttachLimit, node.name());
    }
}

pub(super) fn check_planned(snapshot: &Snapshot, planned: &PlannedNode, pod: &Pod, found: &mut Violations) {
    let within = |place: &Requirements| place.iter().all(|r| is_narrowed_to(&planned.requirements, r));
    found.unless(reaches(snapshot, pod, &within), Rule::Volumes, &pod.name);
}

fn reaches(snapshot: &Snapshot, pod: &Pod, reachable: &dyn Fn(&Requirements) -> bool) -> bool {
    let Some(storage) = &snapshot.storage else { return true };
    pod.volumes.iter().all(|volume| {
        let Some(claim) = storage.claims.get(&volume.claim(&pod.name)) else { return false };
        let places = match (&claim.volume, &claim.class) {
            (Some(volume), _) => storage.volumes.get(volume).map(|volume| &volume.alternatives),
            (None, Some(class)) => storage.classes.get(class).map(|class| &class.alternatives),
            (None, None) => None,
        };
        places.is_some_and(|places| places.is_empty() || places.iter().any(reachable))
    })
}

fn drivers(snapshot: &Snapshot, pod: &Pod) -> Vec<(String, PodName)> {
    let Some(storage) = &snapshot.storage else { return vec![] };
    let claims = pod.volumes.iter().map(|volume| volume.claim(&pod.name));
    claims
        .filter_map(|name| {
            let claim = storage.claims.get(&name)?;
            let driver = match &claim.volume {
                Some(volume) => storage.volumes.get(volume)?.driver.clone()?,
                None => storage.classes.get(claim.class.as_ref()?)?.driver.clone(),
            };
            Some((driver, name))
        })
        .collect()
}
