//! A controller's work queue: keys wait at most once, may be put off until an instant, and come back later and later
//! while their work fails. Order is by key, so that the same events give the same run.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::objects::Key;

/// The first wait after a failure, doubled for each further one (as client-go's default limiter does).
const FIRST_RETRY: SignedDuration = SignedDuration::from_millis(5);
/// client-go waits up to 1,000 s; a fake cluster is more useful when it recovers within half a minute.
const LAST_RETRY: SignedDuration = SignedDuration::from_secs(30);

/// A work queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ready: BTreeSet<Key>,
    due_at: BTreeMap<Key, Timestamp>,
    due: BTreeSet<(Timestamp, Key)>,
    failures: BTreeMap<Key, u32>,
}

impl Queue {
    pub(crate) fn add(&mut self, key: Key) {
        self.ready.insert(key);
    }

    /// Adds the key at an instant; an earlier one already set stays.
    pub(crate) fn add_at(&mut self, key: Key, at: Timestamp) {
        match self.due_at.get(&key) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => drop(self.due.remove(&(*later, key.clone()))),
            None => {}
        }
        self.due_at.insert(key.clone(), at);
        self.due.insert((at, key));
    }

    /// Adds the key after the wait its row of failures calls for.
    pub(crate) fn retry(&mut self, key: Key, now: Timestamp) {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let wait = FIRST_RETRY.saturating_mul(1 << (*failures).min(16)).min(LAST_RETRY);
        *failures += 1;
        self.add_at(key, now.saturating_add(wait).unwrap_or(Timestamp::MAX));
    }

    /// The work succeeded: the next failure counts as the first.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.failures.remove(key);
    }

    /// All keys whose time has come, in order.
    pub(crate) fn take(&mut self, now: Timestamp) -> BTreeSet<Key> {
        while let Some((at, key)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            self.due.remove(&(at, key.clone()));
            self.due_at.remove(&key);
            self.ready.insert(key);
        }
        std::mem::take(&mut self.ready)
    }

    /// When the next key is due: now, later, or never.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        if self.ready.is_empty() { self.due.first().map(|(at, _)| *at) } else { Some(Timestamp::MIN) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: String::new(), name: name.into() }
    }

    #[test]
    fn keys_wait_once_and_come_in_order() {
        let mut queue = Queue::default();
        for name in ["b", "a", "b"] {
            queue.add(key(name));
        }
        assert_eq!(queue.take(Timestamp::UNIX_EPOCH).into_iter().collect::<Vec<_>>(), [key("a"), key("b")]);
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn failures_double_the_wait_and_success_resets_it() {
        let (mut queue, start) = (Queue::default(), Timestamp::UNIX_EPOCH);
        let after = |milliseconds| start + SignedDuration::from_millis(milliseconds);
        for wait in [5, 10, 20] {
            queue.retry(key("a"), start);
            assert_eq!(queue.next_due(), Some(after(wait)));
            assert_eq!(queue.take(after(wait)).len(), 1);
        }
        queue.forget(&key("a"));
        queue.retry(key("a"), start);
        assert_eq!(queue.next_due(), Some(after(5)));
    }

    #[test]
    fn the_earlier_of_two_instants_counts() {
        let (mut queue, start) = (Queue::default(), Timestamp::UNIX_EPOCH);
        let after = |seconds| start + SignedDuration::from_secs(seconds);
        queue.add_at(key("a"), after(5));
        queue.add_at(key("a"), after(9));
        assert_eq!(queue.next_due(), Some(after(5)));
        queue.add_at(key("a"), after(2));
        assert_eq!(queue.next_due(), Some(after(2)));
        assert_eq!(queue.take(after(2)).len(), 1);
        assert_eq!(queue.next_due(), None);
    }
}
