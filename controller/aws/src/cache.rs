//! A cache whose entries expire by a [`Clock`]. Bounded: when full, the entry that expires first makes room, so a flood of
//! keys costs repeated look-ups and never memory.

use controller_clock::Clock;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks even after a panic elsewhere: every critical section of this crate leaves its map whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keys to values that are believed for a while.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    clock: Clock,
    lifetime: Duration,
    capacity: usize,
    entries: Mutex<BTreeMap<K, (V, Timestamp)>>,
}

impl<K: Ord + Clone, V: Clone> Cache<K, V> {
    pub(crate) fn new(clock: Clock, lifetime: Duration, capacity: usize) -> Self {
        Self { clock, lifetime, capacity, entries: Mutex::default() }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let now = self.clock.now();
        lock(&self.entries).get(key).filter(|(_, expiry)| *expiry > now).map(|(value, _)| value.clone())
    }

    /// Reads an entry and gives it a new lease of life.
    pub(crate) fn get_and_extend(&self, key: &K) -> Option<V> {
        let (now, expiry) = (self.clock.now(), self.expiry());
        let mut entries = lock(&self.entries);
        let entry = entries.get_mut(key).filter(|(_, expiry)| *expiry > now)?;
        entry.1 = expiry;
        Some(entry.0.clone())
    }

    pub(crate) fn insert(&self, key: K, value: V) {
        self.insert_until(key, value, self.expiry());
    }

    /// Inserts with a lifetime of its own.
    pub(crate) fn insert_for(&self, key: K, value: V, lifetime: Duration) {
        self.insert_until(key, value, after(self.clock.now(), lifetime));
    }

    fn insert_until(&self, key: K, value: V, expiry: Timestamp) {
        let mut entries = lock(&self.entries);
        entries.insert(key, (value, expiry));
        if entries.len() > self.capacity {
            let first = entries.iter().min_by_key(|(_, (_, expiry))| *expiry).map(|(key, _)| key.clone());
            first.map(|key| entries.remove(&key));
        }
    }

    pub(crate) fn remove(&self, key: &K) -> Option<V> {
        lock(&self.entries).remove(key).map(|(value, _)| value)
    }

    /// Drops the entries for which `keep` says no.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        lock(&self.entries).retain(|key, (value, _)| keep(key, value));
    }

    /// Takes out one entry that has expired, the first by key.
    pub(crate) fn take_expired(&self) -> Option<(K, V)> {
        let now = self.clock.now();
        let mut entries = lock(&self.entries);
        let key = entries.iter().find(|(_, (_, expiry))| *expiry <= now).map(|(key, _)| key.clone())?;
        entries.remove(&key).map(|(value, _)| (key, value))
    }

    fn expiry(&self) -> Timestamp {
        after(self.clock.now(), self.lifetime)
    }
}

/// `now` plus `wait`, held at the end of time.
pub(crate) fn after(now: Timestamp, wait: Duration) -> Timestamp {
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(capacity: usize) -> Cache<&'static str, u8> {
        let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
        Cache::new(Clock::virtual_from(epoch), Duration::from_secs(60), capacity)
    }

    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn entries_expire_unless_used_in_the_extending_way() {
        let cache = cache(10);
        cache.insert("read", 1);
        cache.insert("used", 2);
        pass(40).await;
        assert_eq!((cache.get(&"read"), cache.get_and_extend(&"used")), (Some(1), Some(2)));
        pass(40).await;
        assert_eq!((cache.get(&"read"), cache.get(&"used")), (None, Some(2)));
        assert_eq!(cache.take_expired(), Some(("read", 1)));
        assert_eq!(cache.take_expired(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_cache_gives_up_what_expires_first() {
        let cache = cache(2);
        cache.insert("a", 1);
        pass(1).await;
        cache.insert("b", 2);
        pass(1).await;
        cache.insert("c", 3);
        assert_eq!((cache.get(&"a"), cache.get(&"b"), cache.get(&"c")), (None, Some(2), Some(3)));
    }
}
