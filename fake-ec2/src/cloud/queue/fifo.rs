//! What FIFO queues have: message groups, deduplication, repeated receives.

use super::message::{Message, Phase, Received, Sent};
use super::{FifoSettings, hex, later};
use crate::error::ApiError;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long a deduplication id and an attempt id are remembered.
// fidelity: documented(SQS API Reference, SendMessage: five-minute deduplication interval; ReceiveMessage: attempt ids are
// good for five minutes)
const REMEMBERED_S: i64 = 300;
/// Where sequence numbers start: twenty digits, as AWS's have.
const FIRST_SEQUENCE: u128 = 18_800_000_000_000_000_000;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Fifo {
    groups: BTreeMap<String, Group>,
    /// The groups that can be received from, by their oldest message.
    open: BTreeMap<u64, String>,
    sent: Remembered<Sent>,
    attempts: Remembered<Attempt>,
    sequence: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Group {
    /// In the order in which they were sent.
    numbers: BTreeSet<u64>,
    delayed: usize,
    in_flight: usize,
    /// Under which number it stands among the open ones.
    open_at: Option<u64>,
}

/// A receive that named an attempt id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub(super) hidden_until: Timestamp,
    /// Numbers of messages and their receive counts.
    pub(super) receipts: Vec<(u64, u32)>,
}

/// Things that are forgotten after five minutes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Remembered<T> {
    /// Each with when it was remembered last.
    known: BTreeMap<String, (Timestamp, T)>,
    order: VecDeque<(Timestamp, String)>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<T> Remembered<T> {
    fn get(&mut self, now: Timestamp, key: &str) -> Option<&T> {
        self.forget(now);
        self.known.get(key).map(|(_, value)| value)
    }

    fn insert(&mut self, now: Timestamp, key: String, value: T) {
        self.forget(now);
        self.order.push_back((now, key.clone()));
        self.known.insert(key, (now, value));
    }

    fn forget(&mut self, now: Timestamp) {
        while self.order.front().is_some_and(|(at, _)| later(*at, REMEMBERED_S) <= now) {
            let Some((at, key)) = self.order.pop_front() else { return };
            if self.known.get(&key).is_some_and(|(remembered, _)| *remembered == at) {
                self.known.remove(&key);
            }
        }
    }
}

impl Fifo {
    /// What was sent under this key within the last five minutes.
    // fidelity: documented(SQS API Reference, SendMessage: a duplicate is accepted and not delivered); assumed: its sender is
    // told id and sequence number of the first
    pub(super) fn duplicate(&mut self, now: Timestamp, key: &str) -> Option<Sent> {
        self.sent.get(now, key).cloned()
    }

    pub(super) fn remember(&mut self, now: Timestamp, key: String, sent: Sent) {
        self.sent.insert(now, key, sent);
    }

    pub(super) fn attempt(&mut self, now: Timestamp, id: &str) -> Option<Attempt> {
        self.attempts.get(now, id).cloned()
    }

    pub(super) fn remember_attempt(
        &mut self,
        now: Timestamp,
        id: &str,
        hidden_until: Timestamp,
        received: &[Received],
    ) {
        if !received.is_empty() {
            let receipts = received.iter().map(|one| (one.number, one.message.receive_count)).collect();
            self.attempts.insert(now, id.into(), Attempt { hidden_until, receipts });
        }
    }

    // fidelity: documented(SQS API Reference, SendMessage: SequenceNumber is large and not consecutive)
    pub(super) fn next_sequence(&mut self) -> String {
        self.sequence += 1;
        (FIRST_SEQUENCE + u128::from(self.sequence) * 256).to_string()
    }

    /// A message comes into a group, delayed as all are at first.
    pub(super) fn join(&mut self, group: &str, number: u64) {
        self.change(group, |group| {
            group.numbers.insert(number);
            group.delayed += 1;
        });
    }

    pub(super) fn leave(&mut self, group: &str, number: u64, phase: Phase) {
        self.change(group, |group| {
            group.numbers.remove(&number);
            group.count(phase, usize::wrapping_sub);
        });
    }

    pub(super) fn moved(&mut self, group: &str, from: Phase, to: Phase) {
        if from != to {
            self.change(group, |group| {
                group.count(from, usize::wrapping_sub);
                group.count(to, usize::wrapping_add);
            });
        }
    }

    pub(super) fn clear_groups(&mut self) {
        self.groups.clear();
        self.open.clear();
    }

    /// The numbers of up to `max` messages that can be received: as many as possible of one group, then of the next.
    // fidelity: documented(SQS Developer Guide, FIFO delivery logic: a group is locked while a message of it is in flight, and
    // as many messages of one group as possible are received together)
    pub(super) fn due(&self, max: usize, is_ready: impl Fn(u64) -> bool) -> Vec<u64> {
        let groups = self.open.values().filter_map(|name| self.groups.get(name));
        let ready = groups.flat_map(|group| group.numbers.iter().copied().take_while(|number| is_ready(*number)));
        ready.take(max).collect()
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Group)) {
        let group = match self.groups.get_mut(name) {
            Some(group) => group,
            None => self.groups.entry(name.to_owned()).or_default(),
        };
        change(group);
        let open_at = group.numbers.first().copied().filter(|_| group.is_open());
        let before = std::mem::replace(&mut group.open_at, open_at);
        if group.numbers.is_empty() {
            self.groups.remove(name);
        }
        if before != open_at {
            before.map(|number| self.open.remove(&number));
            open_at.map(|number| self.open.insert(number, name.to_owned()));
        }
    }
}

impl Group {
    fn count(&mut self, phase: Phase, change: fn(usize, usize) -> usize) {
        match phase {
            Phase::Delayed => self.delayed = change(self.delayed, 1),
            Phase::InFlight => self.in_flight = change(self.in_flight, 1),
            Phase::Ready => {}
        }
    }

    fn is_open(&self) -> bool {
        self.in_flight == 0 && self.delayed < self.numbers.len()
    }
}

/// Under what a message is known to have been sent; a queue that makes the ids from the content gives the message its own.
// fidelity: documented(SQS API Reference, SendMessage: MessageGroupId and MessageDeduplicationId; CreateQueue:
// DeduplicationScope); assumed: wording
pub(super) fn deduplication_key(settings: &FifoSettings, message: &mut Message) -> Result<String, ApiError> {
    let Some(group) = message.group().map(str::to_owned) else {
        return Err(ApiError::client("MissingParameter", "The request must contain the parameter MessageGroupId."));
    };
    let given = message.extras().and_then(|extras| extras.deduplication_id.clone());
    let id = match given {
        Some(id) => id,
        None if settings.content_based_deduplication => hex(digest(&SHA256, message.body.as_bytes()).as_ref()),
        None => {
            return Err(ApiError::invalid_value(
                "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly",
            ));
        }
    };
    message.extras_mut().deduplication_id = Some(id.clone());
    // A line feed is in neither.
    Ok(if settings.by_group { format!("{group}\n{id}") } else { id })
}
