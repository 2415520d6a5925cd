//! Coalescing calls: requests that arrive within a short window become one call (spec §2.3).
//!
//! No task runs in the background. The first request of a window leads it: it waits until the window closes, makes the
//! call and hands every follower its share. If the leader is dropped, its followers get `None`.

use crate::cache::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// Calls of one batcher at the same time; more would only meet EC2's request limits.
const CONCURRENT_CALLS: usize = 100;

/// When a window closes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Time without a new request.
    pub(crate) idle: Duration,
    /// Time since the first request.
    pub(crate) longest: Duration,
    /// Requests in one call. EC2 takes this many ids, and answers for them, in one call without paging trouble.
    pub(crate) most: usize,
}

/// Collects requests per `Key`. A call takes the requests in order and answers one output for each, in the same order.
#[derive(Debug)]
pub(crate) struct Batcher<Key, Request, Output> {
    window: Window,
    open: Mutex<BTreeMap<Key, Arc<Bucket<Request, Output>>>>,
    permits: Semaphore,
}

#[derive(Debug)]
struct Bucket<Request, Output> {
    waiting: Mutex<Waiting<Request, Output>>,
    changed: Notify,
}

#[derive(Debug)]
struct Waiting<Request, Output> {
    requests: Vec<Request>,
    /// One per follower; the leader, whose request comes first, has none.
    followers: Vec<oneshot::Sender<Output>>,
    last: Instant,
}

impl<Key: Ord + Clone, Request, Output> Batcher<Key, Request, Output> {
    pub(crate) fn new(window: Window) -> Self {
        Self { window, open: Mutex::default(), permits: Semaphore::new(CONCURRENT_CALLS) }
    }

    /// Adds `request` to the window of `key` and waits for its output. `None` when the window's leader went away, or when
    /// `call` gave too few outputs.
    pub(crate) async fn submit<Call, Answer>(&self, key: Key, request: Request, call: Call) -> Option<Output>
    where
        Call: FnOnce(Vec<Request>) -> Answer,
        Answer: Future<Output = Vec<Output>>,
    {
        match self.join(&key, request) {
            Role::Follower(output) => output.await.ok(),
            Role::Leader(bucket) => self.lead(key, &bucket, call).await,
        }
    }

    fn join(&self, key: &Key, request: Request) -> Role<Request, Output> {
        let mut open = lock(&self.open);
        let Some(bucket) = open.get(key).cloned() else {
            let waiting = Waiting { requests: vec![request], followers: Vec::new(), last: Instant::now() };
            let bucket = Arc::new(Bucket { waiting: Mutex::new(waiting), changed: Notify::new() });
            open.insert(key.clone(), bucket.clone());
            return Role::Leader(bucket);
        };
        let (sender, receiver) = oneshot::channel();
        let mut waiting = lock(&bucket.waiting);
        waiting.requests.push(request);
        waiting.followers.push(sender);
        waiting.last = Instant::now();
        if waiting.requests.len() >= self.window.most {
            open.remove(key);
        }
        bucket.changed.notify_one();
        Role::Follower(receiver)
    }

    async fn lead<Call, Answer>(&self, key: Key, bucket: &Arc<Bucket<Request, Output>>, call: Call) -> Option<Output>
    where
        Call: FnOnce(Vec<Request>) -> Answer,
        Answer: Future<Output = Vec<Output>>,
    {
        // Closes the window also when this future is dropped, so that nobody joins a window without a leader.
        let closing = Closing { open: &self.open, key, bucket };
        let latest = Instant::now() + self.window.longest;
        loop {
            let (count, last) = {
                let waiting = lock(&bucket.waiting);
                (waiting.requests.len(), waiting.last)
            };
            let close_at = latest.min(last + self.window.idle);
            if count >= self.window.most || Instant::now() >= close_at {
                break;
            }
            // Either outcome is looked at afresh at the top of the loop.
            let _ = timeout_at(close_at, bucket.changed.notified()).await;
        }
        drop(closing);
        let (requests, followers) = {
            let mut waiting = lock(&bucket.waiting);
            (std::mem::take(&mut waiting.requests), std::mem::take(&mut waiting.followers))
        };
        let _permit = self.permits.acquire().await.ok()?;
        let mut outputs = call(requests).await.into_iter();
        let own = outputs.next();
        for (follower, output) in followers.into_iter().zip(outputs) {
            // A follower that stopped waiting loses its output; what it asked for has happened all the same.
            let _ = follower.send(output);
        }
        own
    }
}

enum Role<Request, Output> {
    Leader(Arc<Bucket<Request, Output>>),
    Follower(oneshot::Receiver<Output>),
}

struct Closing<'a, Key: Ord, Request, Output> {
    open: &'a Mutex<BTreeMap<Key, Arc<Bucket<Request, Output>>>>,
    key: Key,
    bucket: &'a Arc<Bucket<Request, Output>>,
}

impl<Key: Ord, Request, Output> Drop for Closing<'_, Key, Request, Output> {
    fn drop(&mut self) {
        let mut open = lock(self.open);
        if open.get(&self.key).is_some_and(|current| Arc::ptr_eq(current, self.bucket)) {
            open.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;

    fn batcher(most: usize) -> Batcher<&'static str, u32, (u32, usize)> {
        let window = Window { idle: Duration::from_millis(35), longest: Duration::from_secs(1), most };
        Batcher::new(window)
    }

    /// Doubles each request and tells the size of the call.
    async fn submit(batcher: &Batcher<&'static str, u32, (u32, usize)>, key: &'static str, n: u32) -> (u32, usize) {
        let call = |requests: Vec<u32>| {
            let size = requests.len();
            std::future::ready(requests.into_iter().map(|n| (2 * n, size)).collect())
        };
        batcher.submit(key, n, call).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn equal_keys_share_one_call_and_each_gets_its_own_output() {
        let batcher = batcher(1000);
        let results = join_all((0..5).map(|n| submit(&batcher, if n == 4 { "b" } else { "a" }, n))).await;
        assert_eq!(results, [(0, 4), (2, 4), (4, 4), (6, 4), (8, 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_closes_when_idle_and_a_steady_stream_at_the_longest_time() {
        let batcher = batcher(1000);
        let started = Instant::now();
        let stream = (0..100).map(|n| {
            let batcher = &batcher;
            async move {
                tokio::time::sleep(Duration::from_millis(20 * u64::from(n))).await;
                (submit(batcher, "a", n).await.1, started.elapsed())
            }
        });
        let results = join_all(stream).await;
        assert!((49..=52).contains(&results[0].0), "{:?}", results[0]);
        assert_eq!(results[0].1, Duration::from_secs(1));
        let started = Instant::now();
        submit(&batcher, "a", 1).await;
        assert_eq!(started.elapsed(), Duration::from_millis(35));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_window_closes_at_once() {
        let batcher = batcher(3);
        let started = Instant::now();
        let results = join_all((0..3).map(|n| submit(&batcher, "a", n))).await;
        assert_eq!(results, [(0, 3), (2, 3), (4, 3)]);
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn followers_of_a_dropped_leader_learn_of_it_and_the_key_is_free_again() {
        let batcher = batcher(1000);
        let mut leader = Box::pin(submit(&batcher, "a", 1));
        assert!(futures::poll!(&mut leader).is_pending());
        let mut follower = Box::pin(batcher.submit("a", 2, |_| std::future::ready(Vec::new())));
        assert!(futures::poll!(&mut follower).is_pending());
        drop(leader);
        assert_eq!(follower.await, None);
        assert_eq!(submit(&batcher, "a", 3).await, (6, 1));
    }
}
