//! Collects what asks for a scheduling pass, so that pods created together are placed together (core spec §3.2).
//!
//! The first trigger opens a window. It closes when nothing new has come for the idle duration, or when it has been open
//! for the maximum. A trigger counts once per window: a pod reported again and again does not hold it open.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// One batch window after the other.
pub(super) struct Batcher {
    idle: Duration,
    max: Duration,
    /// What has triggered since the last window closed; as many as there are pods and nodes.
    seen: Mutex<BTreeSet<String>>,
    signal: Notify,
}

impl Batcher {
    /// Windows that close after `idle` without news, and after `max` in any case.
    pub(super) fn new(idle: Duration, max: Duration) -> Self {
        Self { idle, max, seen: Mutex::default(), signal: Notify::new() }
    }

    /// Asks for a pass on behalf of `id`.
    pub(super) fn trigger(&self, id: &str) {
        if self.seen().insert(id.to_owned()) {
            self.signal.notify_one();
        }
    }

    /// Waits for a first trigger and then until its window has closed.
    pub(super) async fn wait(&self) {
        self.signal.notified().await;
        let closes = Instant::now() + self.max;
        loop {
            let idle_ends = Instant::now() + self.idle;
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(closes.min(idle_ends)) => break,
                () = self.signal.notified() => {}
            }
        }
        self.seen().clear();
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Triggers at these milliseconds; answers when the window closes.
    async fn closes_at(triggers: &[(u64, &str)]) -> u64 {
        let batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        let start = Instant::now();
        let feed = async {
            for (at, id) in triggers {
                tokio::time::sleep_until(start + Duration::from_millis(*at)).await;
                batcher.trigger(id);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = feed => unreachable!("it never ends"),
            () = batcher.wait() => u64::try_from(start.elapsed().as_millis()).unwrap(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_trigger_closes_after_the_idle_duration() {
        assert_eq!(closes_at(&[(5000, "a")]).await, 6000);
    }

    #[tokio::test(start_paused = true)]
    async fn each_new_trigger_extends_the_window() {
        assert_eq!(closes_at(&[(0, "a"), (900, "b"), (1800, "c")]).await, 2800);
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_trigger_does_not() {
        assert_eq!(closes_at(&[(0, "a"), (900, "a")]).await, 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn the_maximum_closes_it_in_any_case() {
        let ids: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        let triggers: Vec<(u64, &str)> = ids.iter().enumerate().map(|(n, id)| (n as u64 * 500, id.as_str())).collect();
        assert_eq!(closes_at(&triggers).await, 10_000);
    }

    #[tokio::test(start_paused = true)]
    async fn what_triggers_between_two_windows_opens_the_next_at_once() {
        let batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        batcher.trigger("a");
        batcher.wait().await;
        batcher.trigger("a");
        let start = Instant::now();
        batcher.wait().await;
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }
}
