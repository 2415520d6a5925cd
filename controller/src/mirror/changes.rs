//! Who is told when a watched object changes. A subscriber's pending changes are a set, so that however slow it is, it
//! never holds more than one per object; it hears that something changed, never what it was before.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;

/// The kinds the mirror watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `v1` Pod.
    Pod,
    /// `v1` Node.
    Node,
    /// NodeClaim.
    NodeClaim,
    /// NodePool.
    NodePool,
    /// EC2NodeClass.
    NodeClass,
    /// `apps/v1` DaemonSet.
    DaemonSet,
    /// `policy/v1` PodDisruptionBudget.
    PodDisruptionBudget,
    /// `v1` Namespace.
    Namespace,
    /// `v1` PersistentVolume.
    PersistentVolume,
    /// `v1` PersistentVolumeClaim.
    PersistentVolumeClaim,
    /// `storage.k8s.io/v1` StorageClass.
    StorageClass,
    /// `storage.k8s.io/v1` CSINode.
    CsiNode,
}

impl Kind {
    /// Every one of them.
    pub(super) const ALL: [Self; 12] = [
        Self::Pod,
        Self::Node,
        Self::NodeClaim,
        Self::NodePool,
        Self::NodeClass,
        Self::DaemonSet,
        Self::PodDisruptionBudget,
        Self::Namespace,
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::StorageClass,
        Self::CsiNode,
    ];
}

/// An object appeared, changed or went. The names beside its own are those known at that moment, from the object itself or,
/// when it went, from its last state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change {
    /// The object's kind.
    pub(crate) kind: Kind,
    /// Its namespace; empty for kinds without one.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// The node concerned: the Node itself, the one a pod is bound to, or the one of a NodeClaim.
    pub(crate) node: Option<String>,
    /// The NodeClaim concerned: itself, the one of the Node, or the one of the pod's node.
    pub(crate) claim: Option<String>,
    /// The NodePool concerned: itself, or the value of the label on a Node or NodeClaim.
    pub(crate) pool: Option<String>,
    /// Whether the object is gone.
    pub(crate) gone: bool,
}

/// A subscription to the mirror's changes. It ends when dropped.
pub(crate) struct Changes(Arc<Inbox>);

#[derive(Default)]
struct Inbox {
    pending: Mutex<BTreeSet<Arc<Change>>>,
    arrived: Notify,
}

impl Changes {
    /// Waits until something has changed and hands out everything pending, in order of kind and name.
    pub(crate) async fn next(&mut self) -> BTreeSet<Arc<Change>> {
        loop {
            let arrived = self.0.arrived.notified();
            let pending = std::mem::take(&mut *lock(&self.0.pending));
            if !pending.is_empty() {
                return pending;
            }
            arrived.await;
        }
    }
}

/// The subscribers, owned by the mirror.
#[derive(Default)]
pub(super) struct Subscribers(Mutex<Vec<Weak<Inbox>>>);

impl Subscribers {
    /// A subscription that begins with `present`.
    pub(super) fn subscribe(&self, present: BTreeSet<Arc<Change>>) -> Changes {
        let inbox = Arc::new(Inbox { pending: Mutex::new(present), arrived: Notify::new() });
        let mut subscribers = lock(&self.0);
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        subscribers.push(Arc::downgrade(&inbox));
        Changes(inbox)
    }

    pub(super) fn tell(&self, change: Change) {
        let change = Arc::new(change);
        for inbox in lock(&self.0).iter().filter_map(Weak::upgrade) {
            lock(&inbox.pending).insert(change.clone());
            inbox.arrived.notify_one();
        }
    }
}

/// A panic while the lock was held cannot leave these collections half-written, so poisoning carries no news.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
