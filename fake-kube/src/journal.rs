//! What was asked of the server, in order.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use crate::store::{Stored, to_bytes};

/// Bodies of the kept entries together: lists of a large cluster weigh megabytes each, and a thousand of them would not
/// fit. Enough for the writes of a scenario, whose bodies weigh some kilobytes.
const MAX_KEPT_BYTES: usize = 128 * 1024 * 1024;

/// A body that is serialised only when somebody looks at it.
#[derive(Clone, Debug)]
pub enum Payload {
    /// No body, or one that streams.
    Empty,
    /// The bytes of the wire.
    Bytes(Bytes),
    /// A value of an in-process call.
    Json(Arc<Value>),
    /// A stored object.
    #[doc(hidden)]
    Object(#[allow(private_interfaces)] Arc<Stored>),
}

impl Payload {
    /// The body as bytes.
    pub fn bytes(&self) -> Bytes {
        match self {
            Self::Empty => Bytes::new(),
            Self::Bytes(bytes) => bytes.clone(),
            Self::Json(value) => to_bytes(value),
            Self::Object(stored) => stored.bytes(),
        }
    }
}

impl Payload {
    /// What keeping this costs beyond what the server keeps anyway.
    fn weight(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Empty | Self::Json(_) | Self::Object(_) => 0,
        }
    }
}

impl From<&Value> for Payload {
    fn from(value: &Value) -> Self {
        Self::Json(Arc::new(value.clone()))
    }
}

/// One request and its answer. A watch is recorded when it begins, without a response body.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    /// Position in the journal, from 0.
    pub sequence: u64,
    /// When it was answered.
    pub at: Timestamp,
    /// Who asked: the `User-Agent`, or the name of the in-process client.
    pub user_agent: Arc<str>,
    /// Who it was by its token, where [`Options::users`](crate::Options::users) names it.
    pub user: Option<Arc<str>>,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// Path and query.
    pub path: String,
    /// What was sent.
    pub request: Payload,
    /// HTTP status code.
    pub status: u16,
    /// What was answered.
    pub response: Payload,
}

impl JournalEntry {
    fn weight(&self) -> usize {
        self.request.weight() + self.response.weight()
    }
}

/// Called with every entry as it is written. Must not call the server.
pub type Observer = Box<dyn Fn(&JournalEntry) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Journal {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    limit: usize,
    kept_bytes: usize,
    entries: VecDeque<Arc<JournalEntry>>,
    observers: Vec<Observer>,
}

impl Journal {
    pub(crate) fn new(limit: usize) -> Self {
        Self { inner: Mutex::new(Inner { limit, ..Inner::default() }) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn observe(&self, observer: Observer) {
        self.lock().observers.push(observer);
    }

    /// Whether an entry would reach anybody.
    pub(crate) fn wanted(&self) -> bool {
        let inner = self.lock();
        inner.limit > 0 || !inner.observers.is_empty()
    }

    pub(crate) fn record(&self, mut entry: JournalEntry) {
        let mut inner = self.lock();
        entry.sequence = inner.next;
        inner.next += 1;
        for observer in &inner.observers {
            observer(&entry);
        }
        if inner.limit > 0 {
            inner.kept_bytes += entry.weight();
            inner.entries.push_back(Arc::new(entry));
            while inner.entries.len() > inner.limit || (inner.kept_bytes > MAX_KEPT_BYTES && inner.entries.len() > 1) {
                let gone = inner.entries.pop_front().map_or(0, |gone| gone.weight());
                inner.kept_bytes -= gone;
            }
        }
    }

    pub(crate) fn entries(&self) -> Vec<Arc<JournalEntry>> {
        self.lock().entries.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_by_number_and_by_weight() {
        let large = Bytes::from(vec![0; 1024 * 1024]);
        let journal = Journal::new(1_000);
        for _ in 0..400 {
            journal.record(JournalEntry {
                sequence: 0,
                at: Timestamp::UNIX_EPOCH,
                user_agent: "tester".into(),
                user: None,
                verb: "list",
                path: "/api/v1/pods".into(),
                request: Payload::Empty,
                status: 200,
                response: Payload::Bytes(large.clone()),
            });
        }
        let entries = journal.entries();
        assert_eq!(entries.len() * large.len(), MAX_KEPT_BYTES);
        assert_eq!(entries.last().map(|entry| entry.sequence), Some(399), "the newest are kept");
    }
}
