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
    pub(super) claims: Vec<Key>,
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
    pub(super) fn progress(&self, storage: &Storage, now: Timestamp) -> Progress {
        let mut there = true;
        for key in &self.claims {
            let Some(claim) = storage.claim(key).filter(|claim| !claim.deleting) else { return Progress::GivenUp };
            if claim.is_bound() {
                continue;
            }
            there = false;
            let elsewhere = claim.selected_node.as_ref().is_none_or(|node| *node != self.node);
            if elsewhere && !storage.is_kept_for(claim) {
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
