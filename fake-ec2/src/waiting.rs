//! Who waits for a queue, so that a change wakes those it concerns and nobody else.
//!
//! All of it happens under the lock of the model: a call enters while it looks at the queue, and a change rings before the
//! lock is given back. So no ring is missed. Those that wait for the same queue are woken in the order in which they came,
//! which keeps runs repeatable.

use crate::cloud::Cloud;
use crate::server::lock;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// The bells of the queues that somebody waits for, by queue name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bells(Arc<Mutex<BTreeMap<String, Bell>>>);

#[derive(Debug, Default)]
struct Bell {
    /// The queue's revision at the last look; `None` if there is no such queue.
    seen: Option<u64>,
    waiters: usize,
    notify: Arc<Notify>,
}

/// A call that waits; it leaves when dropped.
pub(crate) struct Waiter {
    bells: Bells,
    queue: String,
    pub(crate) rung: Pin<Box<OwnedNotified>>,
}

impl Bells {
    /// Waits for the next change of a queue.
    pub(crate) fn enter(&self, cloud: &Cloud, queue: &str) -> Waiter {
        let mut bells = lock(&self.0);
        let bell = bells.entry(queue.to_owned()).or_default();
        bell.seen = revision(cloud, queue);
        bell.waiters += 1;
        let mut rung = Box::pin(bell.notify.clone().notified_owned());
        rung.as_mut().enable();
        Waiter { bells: self.clone(), queue: queue.to_owned(), rung }
    }

    /// Wakes those whose queue has changed.
    pub(crate) fn ring(&self, cloud: &Cloud) {
        for (queue, bell) in lock(&self.0).iter_mut() {
            let now = revision(cloud, queue);
            // A call that does not say which queue it is about looks after every change.
            if bell.seen != now || queue.is_empty() {
                bell.seen = now;
                bell.notify.notify_waiters();
            }
        }
    }

    pub(crate) fn ring_all(&self) {
        lock(&self.0).values().for_each(|bell| bell.notify.notify_waiters());
    }

    /// How many calls wait.
    pub(crate) fn waiters(&self) -> usize {
        lock(&self.0).values().map(|bell| bell.waiters).sum()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut bells = lock(&self.bells.0);
        if let Some(bell) = bells.get_mut(&self.queue) {
            bell.waiters -= 1;
            if bell.waiters == 0 {
                bells.remove(&self.queue);
            }
        }
    }
}

fn revision(cloud: &Cloud, queue: &str) -> Option<u64> {
    cloud.queues.get(queue).map(|queue| queue.revision)
}
