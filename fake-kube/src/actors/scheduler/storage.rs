//! What a pod's claims mean for its node: the plugins VolumeBinding and VolumeZone, worked out once for a group of equal pods
//! and then asked per node.
//!
//! Left out: limits of attached volumes, access by one pod alone (`ReadWriteOncePod`), and the capacity that drivers report.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::super::needs::{ClaimUse, Needs};
use super::super::objects::{Key, Node};
use super::super::view::Kind;
use super::super::volumes::{self, Choice, Claim, Class, Volume};
use super::filters::Reason;

/// Claims, volumes and classes, as the watches and the scheduler's own writes tell of them.
#[derive(Debug, Default)]
pub(super) struct Storage {
    claims: BTreeMap<Key, Arc<Claim>>,
    volumes: BTreeMap<String, Arc<Volume>>,
    classes: BTreeMap<String, Arc<Class>>,
}

impl Storage {
    /// Follows an object of storage; `None` when it is gone.
    pub(super) fn follow(&mut self, kind: Kind, key: &Key, object: Option<&Value>) {
        match kind {
            Kind::Claim => put(&mut self.claims, key.clone(), object.map(Claim::parse)),
            Kind::Volume => put(&mut self.volumes, key.name.clone(), object.map(Volume::parse)),
            Kind::StorageClass => put(&mut self.classes, key.name.clone(), object.map(Class::parse)),
            _ => {}
        }
    }

    pub(super) fn claim(&self, key: &Key) -> Option<&Arc<Claim>> {
        self.claims.get(key)
    }

    /// Whether this volume is there and the claim's, or kept for it.
    pub(super) fn is_kept(&self, volume: &str, claim: &Claim) -> bool {
        self.volumes.get(volume).is_some_and(|volume| volume.is_for(claim))
    }

    /// Whose pods may find a place, or have to be told something else, now that this object is as it is.
    pub(super) fn concern(&self, kind: Kind, key: &Key) -> Concern {
        match kind {
            Kind::Claim => Concern::Claim(key.clone()),
            Kind::StorageClass => Concern::Class(key.name.clone()),
            // A volume that somebody else has is no help; that it was taken shows with the pod for which it was.
            _ => match self.volumes.get(&key.name) {
                Some(volume) if volume.is_free() => Concern::Class(volume.class.clone()),
                Some(volume) => {
                    volume.claim.as_ref().map_or(Concern::Nobody, |claim| Concern::Claim(claim.key.clone()))
                }
                None => Concern::Nobody,
            },
        }
    }

    /// Whether the claim waits for a volume of this class.
    pub(super) fn waits(&self, claim: &Key, class: &str) -> bool {
        self.claims.get(claim).is_some_and(|claim| claim.volume.is_empty() && claim.class_name() == class)
    }

    fn class_of(&self, claim: &Claim) -> Option<&Arc<Class>> {
        self.classes.get(claim.class_name())
    }
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, Arc<V>>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, Arc::new(value))),
        None => drop(map.remove(&key)),
    }
}

/// Whose pods an object of storage concerns.
pub(super) enum Concern {
    Nobody,
    Claim(Key),
    /// Claims of this class that have no volume.
    Class(String),
}

/// The volumes that a pod's claims are bound to, or could be.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    bound: Vec<Arc<Volume>>,
    /// Those that wait for the pod's node, the smallest request first.
    unbound: Vec<Unbound>,
}

/// A claim that gets its volume where its pod goes.
#[derive(Debug)]
struct Unbound {
    claim: Arc<Claim>,
    /// The best first.
    volumes: Vec<Arc<Volume>>,
    class: Option<Arc<Class>>,
}

/// What a claim gets with its pod's node.
#[derive(Debug)]
pub(super) enum Step {
    /// This volume.
    Take(Arc<Claim>, Arc<Volume>),
    /// One that a provisioner makes for the node.
    Provision(Arc<Claim>),
}

impl Step {
    pub(super) fn claim(&self) -> &Key {
        match self {
            Self::Take(claim, _) | Self::Provision(claim) => &claim.key,
        }
    }

    pub(super) fn volume(&self) -> Option<&str> {
        match self {
            Self::Take(_, volume) => Some(&volume.name),
            Self::Provision(_) => None,
        }
    }
}

impl Mounts {
    /// Looks the pod's claims up.
    ///
    /// # Errors
    /// The sentence of a claim with which the pod can go nowhere.
    pub(super) fn survey(needs: &Needs, storage: &Storage) -> Result<Self, String> {
        let mut claims = vec![];
        for ClaimUse { name, ephemeral } in &needs.claims {
            let key = Key { namespace: needs.namespace.clone(), name: name.clone() };
            let claim = storage.claims.get(&key).ok_or_else(|| match ephemeral {
                true => {
                    format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
                }
                false => format!("persistentvolumeclaim {name:?} not found"),
            })?;
            if claim.phase == "Lost" {
                let volume = &claim.volume;
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            }
            if claim.deleting {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            claims.push(claim);
        }
        let mut mounts = Self::default();
        for claim in claims {
            let class = storage.class_of(claim);
            if claim.is_bound() {
                let volume = storage.volumes.get(&claim.volume);
                mounts
                    .bound
                    .push(volume.ok_or_else(|| format!("persistentvolume {:?} not found", claim.volume))?.clone());
            } else if claim.volume.is_empty() && class.is_some_and(|class| class.waits) {
                let volumes = match volumes::choice(claim, storage.volumes.values()) {
                    Choice::Kept(volume) => vec![volume.clone()],
                    Choice::Free(free) => free.into_iter().cloned().collect(),
                };
                mounts.unbound.push(Unbound { claim: claim.clone(), volumes, class: class.cloned() });
            } else {
                return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
            }
        }
        mounts.unbound.sort_by_key(|unbound| unbound.claim.request);
        Ok(mounts)
    }

    /// Why the node will not do: every reason of the first plugin that refuses.
    pub(super) fn refuse(&self, node: &Node) -> Vec<Reason> {
        let mut reasons = vec![];
        if !self.bound.iter().all(|volume| volume.is_reached_from(node)) {
            reasons.push(Reason::VolumeNodeAffinity);
        }
        if self.steps(node).is_none() {
            reasons.push(Reason::NoVolume);
        }
        if reasons.is_empty() && !self.bound.iter().all(|volume| volume.is_in_zone_of(node)) {
            reasons.push(Reason::VolumeZone);
        }
        reasons
    }

    /// What each unbound claim would get on this node; `None` if one would get nothing.
    pub(super) fn steps(&self, node: &Node) -> Option<Vec<Step>> {
        let mut taken: Vec<&str> = vec![];
        let steps = self.unbound.iter().map(|Unbound { claim, volumes, class }| {
            if let Some(selected) = &claim.selected_node {
                return (*selected == node.name).then(|| Step::Provision(claim.clone()));
            }
            let here = |volume: &&Arc<Volume>| !taken.contains(&volume.name.as_str()) && volume.is_reached_from(node);
            if let Some(volume) = volumes.iter().find(here) {
                taken.push(&volume.name);
                return Some(Step::Take(claim.clone(), volume.clone()));
            }
            let provisions = class.as_ref().is_some_and(|class| class.provisions_for(node));
            provisions.then(|| Step::Provision(claim.clone()))
        });
        steps.collect()
    }
}
