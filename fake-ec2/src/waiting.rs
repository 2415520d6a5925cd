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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::queue::Queue;
    use crate::config::Config;
    use jiff::Timestamp;
    use std::task::{Context, Waker};

    fn rung(waiter: &mut Waiter) -> bool {
        waiter.rung.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_change_wakes_those_of_its_queue_alone() {
        let now = Timestamp::UNIX_EPOCH;
        let mut cloud = Cloud::new(Config { families: vec!["m5".into()], ..Config::default() }, now);
        for name in ["one", "other"] {
            cloud.queues.insert(name.into(), Queue::new(now));
        }
        let bells = Bells::default();
        let (mut first, mut second) = (bells.enter(&cloud, "one"), bells.enter(&cloud, "one"));
        let (mut other, mut unknown) = (bells.enter(&cloud, "other"), bells.enter(&cloud, ""));
        let mut missing = bells.enter(&cloud, "missing");
        assert_eq!(bells.waiters(), 5);
        cloud.queues.get_mut("one").unwrap().revision += 1;
        bells.ring(&cloud);
        assert!(rung(&mut first) && rung(&mut second) && rung(&mut unknown));
        assert!(!rung(&mut other) && !rung(&mut missing));
        // Making and deleting a queue are changes of it.
        cloud.queues.insert("missing".into(), Queue::new(now));
        cloud.queues.remove("other");
        bells.ring(&cloud);
        assert!(rung(&mut other) && rung(&mut missing));
        drop((first, second, other, unknown, missing));
        assert_eq!(bells.waiters(), 0);
    }
}
