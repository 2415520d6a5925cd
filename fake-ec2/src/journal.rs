//! Every API call in the order of its answer, for tests to read and for observers to follow.
//!
//! The journal is bounded: at 50,000 entries a day of a busy controller still fits, and 64 MiB is where a test process starts to
//! feel it. Counted is what entries hold of the heap: taken apart, a small call of some hundred bytes takes 2 KiB. The oldest go first; an observer sees every entry.

use crate::wire::Service;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;

const MAX_ENTRIES: usize = 50_000;
const MAX_BYTES: usize = 64 << 20;

/// One API call and its answer.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    /// Counts from 1 in the order of answers.
    pub sequence: u64,
    /// When the request came.
    pub at: Timestamp,
    /// When the answer left; later than `at` for long polls and injected delays.
    pub answered_at: Timestamp,
    /// The service that was asked.
    pub service: Service,
    /// The AWS action, such as `CreateFleet`.
    pub action: String,
    /// The access key the request was signed with; empty if it was not signed.
    pub caller: String,
    /// Whose key that is: the ARN of an assumed role or a user; empty if the request was not signed.
    pub principal: String,
    /// The permission that policies refused, if they did.
    pub denied: Option<Denial>,
    /// The caller's user agent.
    pub user_agent: String,
    /// The request's parameters: form fields as strings, or the JSON document.
    pub params: Value,
    /// How many bytes the request's body had.
    pub request_bytes: usize,
    /// The HTTP status of the answer; 0 if an injected fault swallowed it.
    pub status: u16,
    /// AWS's error code, if it was refused.
    pub error_code: Option<String>,
    /// The body of the answer.
    pub response: Bytes,
}

/// A permission that policies refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Such as `ec2:RunInstances`; not always the action that was called.
    pub action: String,
    /// An ARN, or `*`.
    pub resource: String,
}

impl JournalEntry {
    /// The body of the answer as text.
    pub fn response_text(&self) -> String {
        String::from_utf8_lossy(&self.response).into_owned()
    }

    /// What it holds of the heap, itself and its place in the journal included.
    fn bytes(&self) -> usize {
        let Self { action, caller, principal, denied, user_agent, params, error_code, response, .. } = self;
        let texts = [action, caller, principal, user_agent].into_iter().chain(error_code);
        let denied = denied.iter().flat_map(|Denial { action, resource }| [action, resource]);
        let texts: usize = texts.chain(denied).map(|text| allocated(text.capacity())).sum();
        // Behind the count of an Arc, and behind that of a response's bytes.
        let own = allocated(size_of::<Self>() + 2 * size_of::<usize>()) + size_of::<Arc<Self>>();
        own + texts + heap(params) + allocated(response.len()) + allocated(4 * size_of::<usize>())
    }

    /// A form field of the request, or a top-level string of its JSON document.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).and_then(Value::as_str)
    }
}

/// What an allocation of this size takes: a head of eight bytes, in steps of sixteen.
fn allocated(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

/// What a document holds beside the place it stands in.
fn heap(value: &Value) -> usize {
    // A node of the standard library's tree has room for eleven members; filled one by one in order, half of them are in use.
    const NODE: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 2 * size_of::<usize>();
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => allocated(text.capacity()),
        Value::Array(items) => allocated(items.capacity() * size_of::<Value>()) + items.iter().map(heap).sum::<usize>(),
        Value::Object(members) => {
            let nodes = if members.len() <= 11 { members.len().min(1) } else { members.len().div_ceil(6) };
            let within = members.iter().map(|(name, value)| allocated(name.capacity()) + heap(value));
            nodes * allocated(NODE) + within.sum::<usize>()
        }
    }
}

#[derive(Default)]
pub(crate) struct Journal {
    entries: VecDeque<Arc<JournalEntry>>,
    bytes: usize,
    count: u64,
    grew: Arc<Notify>,
}

impl Journal {
    pub(crate) fn push(&mut self, mut entry: JournalEntry) -> Arc<JournalEntry> {
        self.count += 1;
        entry.sequence = self.count;
        self.bytes += entry.bytes();
        let entry = Arc::new(entry);
        self.entries.push_back(entry.clone());
        while self.entries.len() > MAX_ENTRIES || (self.bytes > MAX_BYTES && self.entries.len() > 1) {
            self.bytes -= self.entries.pop_front().map_or(0, |oldest| oldest.bytes());
        }
        self.grew.notify_waiters();
        entry
    }

    /// The sequence number of the last entry there was.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The entries after a sequence number, oldest first.
    pub(crate) fn after(&self, sequence: u64) -> impl DoubleEndedIterator<Item = &Arc<JournalEntry>> {
        self.entries.range(self.entries.partition_point(|entry| entry.sequence <= sequence)..)
    }

    /// How many entries after a sequence number are gone.
    pub(crate) fn missing_after(&self, sequence: u64) -> u64 {
        let oldest = self.entries.front().map_or(self.count + 1, |oldest| oldest.sequence);
        oldest.saturating_sub(sequence + 1)
    }

    /// Rings with every new entry.
    pub(crate) fn grew(&self) -> Arc<Notify> {
        self.grew.clone()
    }

    /// Forgets the entries; the numbers go on, so that whoever reads on from an old one is told what is missing.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    pub(crate) fn entries(&self) -> Vec<Arc<JournalEntry>> {
        self.entries.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(params: Value) -> JournalEntry {
        JournalEntry {
            sequence: 0,
            at: Timestamp::UNIX_EPOCH,
            answered_at: Timestamp::UNIX_EPOCH,
            service: Service::Sqs,
            action: "SendMessage".into(),
            caller: String::new(),
            principal: String::new(),
            denied: None,
            user_agent: String::new(),
            request_bytes: params.to_string().len(),
            params,
            status: 200,
            error_code: None,
            response: Bytes::new(),
        }
    }

    #[test]
    fn small_documents_with_many_parts_do_not_outgrow_the_bound() {
        let parts: Vec<Value> = (0..20).map(|number| json!({"a": number})).collect();
        let mut journal = Journal::default();
        for _ in 0..MAX_ENTRIES {
            journal.push(entry(json!({"parts": parts})));
        }
        // Each object is a node with room for eleven members, whatever is in it.
        let least = 21 * 11 * (size_of::<String>() + size_of::<Value>());
        let kept = journal.entries().len();
        assert!(kept * least <= MAX_BYTES, "{kept} entries of at least {least} bytes");
        assert!(kept * 2 * least > MAX_BYTES, "{kept} entries of at least {least} bytes are too few");
        assert_eq!(journal.bytes, journal.entries().iter().map(|entry| entry.bytes()).sum::<usize>());
    }
}
