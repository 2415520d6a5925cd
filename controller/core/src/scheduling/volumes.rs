//! What a pod's volumes mean for where it can run (core spec §3.10).

use super::reason::InvalidPod;
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use crate::snapshot::{Pod, PodName, Storage, VolumeClaim};

/// At most this many combinations of places are looked at for one pod. A volume can be in some ten places, a pod has some ten
/// volumes, and the API puts no bound on either.
const MAX_ALTERNATIVES: usize = 1000;

/// Where a pod's volumes let it run.
pub(super) enum Alternatives {
    /// Anywhere.
    Any,
    /// On nodes of one of these.
    OneOf(Vec<Requirements>),
    /// Nowhere: two of them are never in the same place.
    Nowhere,
}

/// What is wrong with the claims behind the pod's volumes.
pub(super) fn problems(pod: &Pod, storage: &Storage) -> Vec<InvalidPod> {
    pod.volumes.iter().filter_map(|volume| problem(&volume.claim(&pod.name), storage)).map(InvalidPod::Volume).collect()
}

fn problem(name: &PodName, storage: &Storage) -> Option<String> {
    let Some(claim) = storage.claims.get(name) else {
        return Some(format!("persistentvolumeclaims {:?} not found", name.name));
    };
    if claim.is_deleting {
        return Some("persistentvolumeclaim is being deleted".to_owned());
    }
    if claim.is_lost {
        return Some("persistentvolumeclaim bound to non-existent persistentvolume".to_owned());
    }
    match &claim.volume {
        Some(volume) => problem_of_bound(claim, volume, storage),
        None => problem_of_unbound(claim, storage),
    }
}

fn problem_of_bound(claim: &VolumeClaim, volume: &str, storage: &Storage) -> Option<String> {
    match storage.volumes.get(volume) {
        None => Some(format!("failed to validate pvc, persistentvolumes {volume:?} not found")),
        Some(volume) if volume.is_deleting => {
            Some("failed to validate pvc, persistentvolume is being deleted".to_owned())
        }
        Some(_) if !claim.is_bind_completed => {
            Some("pvc is considered unbound because it does not contain annotation".to_owned())
        }
        Some(_) => None,
    }
}

fn problem_of_unbound(claim: &VolumeClaim, storage: &Storage) -> Option<String> {
    let Some(class) = &claim.class else { return Some("unbound pvc must define a storage class".to_owned()) };
    match storage.classes.get(class) {
        None => Some(format!(
            "failed to validate pvc, failed to get storage class, storageclasses.storage.k8s.io {class:?} not found"
        )),
        Some(class) if class.is_immediate => {
            Some("failed to validate pvc, pvc with immediate volume binding mode must be bound".to_owned())
        }
        Some(_) => None,
    }
}

/// Where the pod's volumes let it run: one alternative of each, for every combination that can hold together.
pub(super) fn alternatives(pod: &Pod, storage: &Storage) -> Alternatives {
    let mut combined: Vec<Requirements> = Vec::new();
    for volume in &pod.volumes {
        let places = places(&volume.claim(&pod.name), storage);
        if places.is_empty() {
            continue;
        }
        if combined.is_empty() {
            combined = places.to_vec();
            continue;
        }
        let pairs = combined.iter().flat_map(|a| places.iter().filter_map(move |b| both(a, b)));
        combined = pairs.take(MAX_ALTERNATIVES).collect();
        if combined.is_empty() {
            return Alternatives::Nowhere;
        }
    }
    if combined.is_empty() { Alternatives::Any } else { Alternatives::OneOf(combined) }
}

fn places<'s>(claim: &PodName, storage: &'s Storage) -> &'s [Requirements] {
    let Some(claim) = storage.claims.get(claim) else { return &[] };
    let of_volume = claim.volume.as_ref().map(|volume| storage.volumes.get(volume).map(|v| v.alternatives.as_slice()));
    let of_class =
        || claim.class.as_ref().and_then(|class| storage.classes.get(class)).map(|c| c.alternatives.as_slice());
    of_volume.unwrap_or_else(of_class).unwrap_or_default()
}

fn both(a: &Requirements, b: &Requirements) -> Option<Requirements> {
    let mut both = a.clone();
    for requirement in b.iter() {
        if clash(a.get(requirement.key()), requirement) {
            return None;
        }
        both.add(requirement.clone());
    }
    Some(both)
}

/// Whether no label, nor its absence, satisfies both.
pub(super) fn clash(present: Option<&Requirement>, wanted: &Requirement) -> bool {
    let both = |present: &Requirement| present.intersects(wanted) || (present.is_negative() && wanted.is_negative());
    present.is_some_and(|present| !both(present))
}

/// The claims that count towards a node's limits, with the driver that attaches each.
pub(super) fn attached(pod: &Pod, storage: &Storage) -> Vec<(String, PodName)> {
    let of = |claim: &VolumeClaim| match &claim.volume {
        Some(volume) => storage.volumes.get(volume)?.driver.clone(),
        None => Some(storage.classes.get(claim.class.as_ref()?)?.driver.clone()),
    };
    let claims = pod.volumes.iter().map(|volume| volume.claim(&pod.name));
    claims.filter_map(|claim| Some((of(storage.claims.get(&claim)?)?, claim))).collect()
}
