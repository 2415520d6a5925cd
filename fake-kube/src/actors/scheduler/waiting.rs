//! Pods that have a node and wait for their volumes before they are bound to it: what the plugin VolumeBinding does before the
//! binding. Their place is held meanwhile.

use jiff::{SignedDuration, Timestamp};

use super::super::objects::Key;
use super::storage::Storage;

/// How long kube-scheduler waits for volumes (`bindTimeoutSeconds` of VolumeBindingArgs).
pub(super) const LIMIT: SignedDuration = SignedDuration::from_secs(600);

/// A pod whose volumes are on their way.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) uid: String,
    pub(super) node: String,
    /// The claims, each with the volume that it was given unless one is made for it.
    pub(super) claims: Vec<(Key, Option<String>)>,
    pub(super) until: Timestamp,
}

/// How far the volumes of a pod are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    OnTheirWay,
    /// All claims are bound.
    There,
    /// A claim is gone, or its provisioner gave the node up: another place must be found.
    GivenUp,
    TimedOut,
}

impl Waiting {
    pub(super) fn has(&self, claim: &Key) -> bool {
        self.claims.iter().any(|(key, _)| key == claim)
    }

    pub(super) fn progress(&self, storage: &Storage, now: Timestamp) -> Progress {
        let mut there = true;
        for (key, volume) in &self.claims {
            let Some(claim) = storage.claim(key).filter(|claim| !claim.deleting) else { return Progress::GivenUp };
            if claim.is_bound() {
                continue;
            }
            there = false;
            let on_its_way = match volume {
                Some(volume) => storage.is_kept(volume, claim),
                None => claim.selected_node.as_ref() == Some(&self.node),
            };
            if !on_its_way {
                return Progress::GivenUp;
            }
        }
        match there {
            true => Progress::There,
            false if now >= self.until => Progress::TimedOut,
            false => Progress::OnTheirWay,
        }
    }
}
