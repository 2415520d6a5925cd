//! What is remembered of NodeClaims between two looks. All of it can be lost without harm: a restart launches nothing
//! twice that was written, and counts its pods' arrival once more.

use crate::mirror::Mirror;
use controller_api::NodeClaim;
use controller_core::lifecycle::pod_events::{self, SeenPods};
use controller_core::lifecycle::registration_health::RegistrationHealth;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long the result of a launch is kept for writing it again (core spec §5.2). A claim that could not be written for
/// an hour has been given up by then.
const LAUNCHES_KEPT: SignedDuration = SignedDuration::from_hours(1);

/// Bounded by the claims and pools there are: what is gone is forgotten.
#[derive(Default)]
pub(super) struct Memory {
    /// Results of launches that may not have been written yet, by the claim's UID.
    launches: Mutex<BTreeMap<String, (NodeClaim, Timestamp)>>,
    /// Claims whose last launch failed: how often, and when it may be tried again; by the claim's UID.
    failed_launches: Mutex<BTreeMap<String, (u32, Timestamp)>>,
    /// Pods of each claim's node as seen last, by the claim's name.
    pods: Mutex<BTreeMap<String, SeenPods>>,
    /// Generations of the pools as seen last, by name.
    generations: Mutex<BTreeMap<String, Option<i64>>>,
    /// How the latest launches of each pool ended, by the pool's UID.
    health: Mutex<BTreeMap<String, RegistrationHealth>>,
}

impl Memory {
    /// The instance that was launched for this claim, if its status may not say so yet.
    pub(super) fn launched(&self, uid: &str, now: Timestamp) -> Option<NodeClaim> {
        let mut launches = lock(&self.launches);
        launches.retain(|_, (_, at)| now.duration_since(*at) < LAUNCHES_KEPT);
        launches.get(uid).map(|(created, _)| created.clone())
    }

    /// Keeps the result of a launch until it is seen in the claim's status.
    pub(super) fn remember_launch(&self, uid: &str, created: NodeClaim, now: Timestamp) {
        lock(&self.launches).insert(uid.to_owned(), (created, now));
    }

    /// When a launch may be tried again after it failed; the claim may change meanwhile, our own status included, and
    /// that is no reason to try.
    pub(super) fn launch_waits_until(&self, uid: &str, now: Timestamp) -> Option<Timestamp> {
        lock(&self.failed_launches).get(uid).map(|(_, until)| *until).filter(|until| *until > now)
    }

    /// A launch failed: the wait doubles from a second to a minute.
    pub(super) fn launch_failed(&self, uid: &str, now: Timestamp) {
        let mut failed = lock(&self.failed_launches);
        // Claims time out after five minutes without an instance; what is older is left over.
        failed.retain(|_, (_, until)| now.duration_since(*until) < LAUNCHES_KEPT);
        let (failures, until) = failed.entry(uid.to_owned()).or_insert((0, now));
        let wait = SignedDuration::from_secs((1 << (*failures).min(6)).min(60));
        *failures += 1;
        *until = now.checked_add(wait).unwrap_or(now);
    }

    /// The claim's status says that it was launched, or the claim is gone.
    pub(super) fn launch_is_stored(&self, uid: &str) {
        lock(&self.launches).remove(uid);
        lock(&self.failed_launches).remove(uid);
    }

    /// Remembers the pods of a claim's node; tells whether one came, finished or was told to go since the last time.
    pub(super) fn pods_changed(&self, claim: &str, pods: SeenPods) -> bool {
        let mut seen = lock(&self.pods);
        let before = seen.entry(claim.to_owned()).or_default();
        let happened = pod_events::happened(before, &pods);
        *before = pods;
        happened
    }

    /// Whether the pool's spec is not the one seen last; a pool that is gone is forgotten.
    pub(super) fn is_new_generation(&self, mirror: &Mirror, pool: &str) -> bool {
        let mut generations = lock(&self.generations);
        match mirror.node_pool(pool) {
            Some(object) => {
                let generation = object.metadata.generation;
                generations.insert(pool.to_owned(), generation) != Some(generation)
            }
            None => {
                generations.remove(pool);
                false
            }
        }
    }

    /// Changes what is remembered of a pool's launches.
    pub(super) fn with_health<T>(&self, pool_uid: &str, change: impl FnOnce(&mut RegistrationHealth) -> T) -> T {
        change(lock(&self.health).entry(pool_uid.to_owned()).or_default())
    }

    /// Forgets the launches of pools that are gone.
    pub(super) fn retain_health(&self, is_present: impl Fn(&str) -> bool) {
        lock(&self.health).retain(|uid, _| is_present(uid));
    }

    /// The claim is gone.
    pub(super) fn forget(&self, claim: &str) {
        lock(&self.pods).remove(claim);
    }
}

/// A panic while the lock was held cannot leave these collections half-written, so poisoning carries no news.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
