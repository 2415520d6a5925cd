//! A work queue over names: at most one reconcile per name at a time, a bounded number together, retries with back-off.
//!
//! Order is fixed by the order of the changes alone, so that a simulation repeats itself. Names wait in a queue that holds
//! each at most once, hence never more of them than the mirror has objects.

use super::Context;
use crate::error::{ReconcileError, chain};
use crate::mirror::{Change, Mirror};
use futures::stream::{FuturesUnordered, StreamExt as _};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;
use tracing::Instrument as _;

/// When a name wants to be looked at again. A change seen by the mirror always comes first; the latest answer replaces
/// every earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// Only when something changes.
    OnChange,
    /// After this long, unless something changes before.
    After(Duration),
}

/// How a keyed loop behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loop {
    /// The controller's name in logs and metrics, as upstream names it.
    pub(crate) name: &'static str,
    /// How many names are reconciled at the same time.
    pub(crate) concurrency: usize,
    /// The wait after a first failure; it doubles with each further one.
    pub(crate) backoff_base: Duration,
    /// The longest wait between two failures.
    pub(crate) backoff_max: Duration,
}

impl Loop {
    /// A loop with the back-off controllers have by default: 5 ms, doubling, up to 1,000 s (core spec §9.4).
    pub(crate) const fn new(name: &'static str, concurrency: usize) -> Self {
        Self { name, concurrency, backoff_base: Duration::from_millis(5), backoff_max: Duration::from_secs(1000) }
    }

    /// The same loop with another back-off.
    pub(crate) const fn backoff(self, base: Duration, max: Duration) -> Self {
        Self { backoff_base: base, backoff_max: max, ..self }
    }
}

/// Runs `reconcile` for every name that `keys` derives from a change, starting with all objects present. Never returns;
/// dropping it drops the reconciles in flight.
pub(crate) async fn keyed<K, R, F>(context: Context, options: Loop, keys: K, reconcile: R)
where
    K: Fn(&Mirror, &Change) -> Vec<String> + Send + Sync,
    R: Fn(Context, String) -> F + Send + Sync,
    F: Future<Output = Result<Requeue, ReconcileError>> + Send,
{
    let mut changes = context.mirror.subscribe();
    let mut queue = Queue::default();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < options.concurrency.max(1)
            && let Some(name) = queue.pop()
        {
            let span = tracing::info_span!("reconcile", controller = options.name, name = %name);
            let started = Instant::now();
            let work = reconcile(context.clone(), name.clone()).instrument(span.clone());
            running.push(async move { (name, work.await, span, started) });
        }
        let due = queue.next_due();
        tokio::select! {
            biased;
            Some((name, outcome, span, started)) = running.next(), if !running.is_empty() => {
                context.metrics.reconciled(options.name, outcome.is_ok(), started.elapsed());
                queue.finished(&name, outcome, &options, &span);
            }
            batch = changes.next() => {
                for change in &batch {
                    for name in keys(&context.mirror, change) {
                        queue.push(name);
                    }
                }
            }
            () = sleep_until(due) => queue.release_due(Instant::now()),
        }
    }
}

/// Waits for an instant, or for ever when there is none.
pub(crate) async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<String>,
    /// What is in `ready`.
    waiting: BTreeSet<String>,
    /// Names being reconciled; true if they changed meanwhile.
    running: BTreeMap<String, bool>,
    due_at: BTreeMap<String, Instant>,
    by_due: BTreeSet<(Instant, String)>,
    failures: BTreeMap<String, u32>,
}

impl Queue {
    fn push(&mut self, name: String) {
        if let Some(changed) = self.running.get_mut(&name) {
            *changed = true;
            return;
        }
        self.forget_due(&name);
        if self.waiting.insert(name.clone()) {
            self.ready.push_back(name);
        }
    }

    fn pop(&mut self) -> Option<String> {
        let name = self.ready.pop_front()?;
        self.waiting.remove(&name);
        self.running.insert(name.clone(), false);
        Some(name)
    }

    fn finished(&mut self, name: &str, outcome: Result<Requeue, ReconcileError>, options: &Loop, span: &tracing::Span) {
        let changed = self.running.remove(name).unwrap_or(false);
        let wait = match outcome {
            Ok(requeue) => {
                self.failures.remove(name);
                match requeue {
                    Requeue::OnChange => None,
                    Requeue::After(wait) => Some(wait),
                }
            }
            Err(error) => {
                let failures = self.failures.entry(name.to_owned()).or_default();
                // 2^30 times the smallest base exceeds every maximum; the bound only keeps the shift defined.
                let wait = options.backoff_base.saturating_mul(1 << (*failures).min(30)).min(options.backoff_max);
                *failures += 1;
                if !error.is_conflict() {
                    span.in_scope(|| tracing::error!(error = %chain(&error), "Reconciler error"));
                }
                Some(wait)
            }
        };
        if changed {
            self.push(name.to_owned());
        } else if let Some(wait) = wait {
            if wait.is_zero() {
                self.push(name.to_owned());
            } else {
                let due = Instant::now() + wait;
                self.due_at.insert(name.to_owned(), due);
                self.by_due.insert((due, name.to_owned()));
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.by_due.first().map(|(due, _)| *due)
    }

    fn release_due(&mut self, now: Instant) {
        while let Some((due, name)) = self.by_due.first().cloned()
            && due <= now
        {
            self.push(name);
        }
    }

    fn forget_due(&mut self, name: &str) {
        if let Some(due) = self.due_at.remove(name) {
            self.by_due.remove(&(due, name.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Loop {
        Loop::new("test", 1)
    }

    fn failure() -> Result<Requeue, ReconcileError> {
        Err(ReconcileError::Other("refused".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_waits_once_and_runs_again_when_it_changed_meanwhile() {
        let mut queue = Queue::default();
        queue.push("a".into());
        queue.push("b".into());
        queue.push("a".into());
        assert_eq!(queue.pop().as_deref(), Some("a"));
        queue.push("a".into());
        assert_eq!(queue.pop().as_deref(), Some("b"));
        assert_eq!(queue.pop(), None);
        queue.finished("a", Ok(Requeue::After(Duration::from_secs(60))), &options(), &tracing::Span::none());
        assert_eq!(queue.pop().as_deref(), Some("a"), "the change comes before the wait");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_doubling_and_success_forgets_them() {
        let mut queue = Queue::default();
        let mut waits = Vec::new();
        for _ in 0..3 {
            queue.push("a".into());
            queue.pop();
            queue.finished("a", failure(), &options(), &tracing::Span::none());
            waits.push(queue.next_due().unwrap() - Instant::now());
        }
        assert_eq!(waits, [5, 10, 20].map(Duration::from_millis));
        queue.push("a".into());
        queue.pop();
        queue.finished("a", Ok(Requeue::OnChange), &options(), &tracing::Span::none());
        assert_eq!(queue.next_due(), None);
        queue.push("a".into());
        queue.pop();
        queue.finished("a", failure(), &options(), &tracing::Span::none());
        assert_eq!(queue.next_due().unwrap() - Instant::now(), Duration::from_millis(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_cancels_the_wait() {
        let mut queue = Queue::default();
        queue.push("a".into());
        queue.pop();
        queue.finished("a", Ok(Requeue::After(Duration::from_secs(60))), &options(), &tracing::Span::none());
        queue.push("a".into());
        assert_eq!(queue.next_due(), None);
        assert_eq!(queue.pop().as_deref(), Some("a"));
    }
}
