//! SQS queues: messages and when each can be received, receipt handles, retention.
//!
//! Every message stands in one of three lines, ordered by when it gets to its end: delayed, ready, in flight. Whatever asks
//! moves what is due first, so that no cost grows with the number of messages and nothing has to run by itself.

mod dead_letter;
mod fifo;
mod message;
mod receipt;
mod settings;

pub(crate) use dead_letter::{MoveState, MoveTask, no_queue};
pub(crate) use message::{Attribute, AttributeValue, Draft, Extras, Message, Received, Sent, digest};
pub(crate) use settings::{FifoSettings, MAX_MESSAGE_BYTES, RedriveAllowPolicy, RedrivePolicy, Settings};

use super::ids::Ids;
use super::tags::Tags;
use crate::error::ApiError;
use fifo::Fifo;
use jiff::{SignedDuration, Timestamp};
use md5::{Digest, Md5};
use message::Phase;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The most messages that may be in flight.
// fidelity: documented(SQS Developer Guide, Quotas: 120,000 in-flight messages of a standard queue, and of a FIFO queue)
const MAX_IN_FLIGHT: usize = 120_000;
/// How long a message may stay in flight after one receive.
// fidelity: documented(SQS Developer Guide, Visibility timeout: 12 hours from the receive)
const MAX_VISIBILITY_S: i64 = 43_200;
/// Between two purges of a queue, and between deleting a queue and making one of the same name.
// fidelity: documented(SQS API Reference, PurgeQueue and DeleteQueue: 60 seconds)
pub(crate) const SETTLING_S: i64 = 60;

/// A queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Queue {
    pub(crate) created_at: Timestamp,
    pub(crate) modified_at: Timestamp,
    pub(crate) settings: Settings,
    pub(crate) tags: Tags,
    /// Counts the changes that a receiver may wait for: whatever could let it find a message where it found none, but for the
    /// passing of time. [`Cloud::revision`](super::Cloud) counts them too.
    pub(crate) revision: u64,
    purged_at: Option<Timestamp>,
    messages: BTreeMap<u64, Message>,
    /// By phase: when each message leaves it (delayed, in flight) or entered it (ready).
    lines: [BTreeSet<(Timestamp, u64)>; 3],
    /// By when each message counts as sent, which decides when it expires.
    by_age: BTreeSet<(Timestamp, u64)>,
    /// The number of the newest message.
    newest: u64,
    fifo: Option<Fifo>,
}

/// What a receive takes out of a queue.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) received: Vec<Received>,
    /// Messages that were received too often and belong into the dead-letter queue.
    pub(crate) dead: Vec<Message>,
}

/// What a receive asks for.
#[derive(Debug, Default)]
pub(crate) struct Request<'a> {
    pub(crate) max: usize,
    pub(crate) visibility_s: Option<i64>,
    pub(crate) attempt_id: Option<&'a str>,
    /// After how many receives a message belongs into the dead-letter queue, if there is one.
    pub(crate) max_receive_count: Option<u32>,
}

impl Queue {
    pub(crate) fn new(created_at: Timestamp) -> Self {
        Self::with(created_at, Settings::default(), Tags::new())
    }

    pub(crate) fn with(created_at: Timestamp, settings: Settings, tags: Tags) -> Self {
        let fifo = settings.fifo.is_some().then(Fifo::default);
        Self {
            created_at,
            modified_at: created_at,
            settings,
            tags,
            revision: 0,
            purged_at: None,
            messages: BTreeMap::new(),
            lines: Default::default(),
            by_age: BTreeSet::new(),
            newest: 0,
            fifo,
        }
    }

    /// Takes new settings.
    // fidelity: documented(SQS API Reference, SetQueueAttributes; SQS Developer Guide, Delay queues: a changed delay also
    // concerns the messages that are already in a FIFO queue, and not those in a standard queue); assumed: changes are
    // effective at once.
    pub(crate) fn configure(&mut self, now: Timestamp, settings: Settings) {
        let delay_changed = settings.delay_s != self.settings.delay_s;
        self.settings = settings;
        self.modified_at = now;
        self.revision += 1;
        if self.fifo.is_some() && delay_changed {
            let delayed: Vec<u64> = self.line(Phase::Delayed).iter().map(|(_, number)| *number).collect();
            for number in delayed {
                let due =
                    self.messages.get(&number).map_or(now, |message| later(message.sent_at, self.settings.delay_s));
                self.place(number, Phase::Delayed, due);
            }
        }
    }

    pub(crate) fn send(&mut self, now: Timestamp, ids: &mut Ids, draft: Draft) -> Result<Sent, ApiError> {
        draft.check_size(self.settings.maximum_bytes)?;
        let delay_s = draft.delay_s.unwrap_or(self.settings.delay_s);
        let mut message = Message::new(now, String::new(), draft);
        if let (Some(fifo), Some(settings)) = (&mut self.fifo, &self.settings.fifo) {
            let key = fifo::deduplication_key(settings, &mut message)?;
            if let Some(sent) = fifo.duplicate(now, &key) {
                return Ok(sent);
            }
            message.id = ids.uuid().into();
            message.extras_mut().sequence = Some(fifo.next_sequence());
            fifo.remember(now, key, message.sent());
        } else {
            message.refuse_deduplication()?;
            message.id = ids.uuid().into();
        }
        let sent = message.sent();
        self.add(message, later(now, delay_s));
        Ok(sent)
    }

    /// Takes a message that another queue could not get rid of.
    // fidelity: documented(SQS Developer Guide, Dead-letter queues: in a standard queue a message keeps its age, in a FIFO
    // queue it starts anew; SQS API Reference, ReceiveMessage: receives are counted across all queues)
    pub(crate) fn bury(&mut self, now: Timestamp, mut message: Message, source_arn: &str) {
        message.extras_mut().dead_letter_source = Some(source_arn.into());
        if let Some(fifo) = &mut self.fifo {
            message.sent_at = now;
            message.extras_mut().sequence = Some(fifo.next_sequence());
        }
        self.add(message, now);
    }

    /// Takes a message back from a dead-letter queue, as a new one.
    // fidelity: documented(SQS Developer Guide, Dead-letter queue redrive: redriven messages are new ones with a new id and
    // a new time)
    pub(crate) fn take_back(&mut self, now: Timestamp, ids: &mut Ids, mut message: Message) {
        message.renew(now, ids.uuid());
        if let Some(fifo) = &mut self.fifo {
            message.extras_mut().sequence = Some(fifo.next_sequence());
        }
        self.add(message, later(now, self.settings.delay_s));
    }

    /// The message that would be received next.
    pub(crate) fn peek(&mut self, now: Timestamp) -> Option<&Message> {
        self.settle(now);
        let number = self.due(1).into_iter().next()?;
        self.messages.get(&number)
    }

    /// Takes the message that would be received next, for good.
    pub(crate) fn take_out(&mut self, now: Timestamp) -> Option<Message> {
        self.settle(now);
        let number = self.due(1).into_iter().next()?;
        self.remove(number)
    }

    /// Takes up to `max` messages that can be received and hides them.
    // fidelity: documented(SQS API Reference, ReceiveMessage: OverLimit; of a FIFO queue, no error but no messages);
    // assumed: a standard queue may repeat and reorder; this one delivers in the order in which messages became visible, and
    // a short poll asks all servers. Groups of a standard queue are kept and change no order.
    pub(crate) fn receive(&mut self, now: Timestamp, request: &Request<'_>) -> Result<Taken, ApiError> {
        self.settle(now);
        let hidden_until = later(now, request.visibility_s.unwrap_or(self.settings.visibility_timeout_s));
        if let Some(received) = self.repeat(now, request.attempt_id, hidden_until) {
            return Ok(Taken { received, ..Taken::default() });
        }
        if self.is_full() && self.fifo.is_none() {
            let message = "The maximum number of in flight messages is reached; at most 120,000 may be in flight.";
            return Err(ApiError::new(403, "OverLimit", message));
        }
        let mut taken = Taken::default();
        while taken.received.len() < request.max {
            let room = MAX_IN_FLIGHT.saturating_sub(self.line(Phase::InFlight).len());
            let due = self.due(room.min(request.max - taken.received.len()));
            if due.is_empty() {
                break;
            }
            for number in due {
                if self.is_spent(number, request.max_receive_count) {
                    taken.dead.extend(self.remove(number));
                } else {
                    taken.received.extend(self.hand_out(now, number, hidden_until));
                }
            }
        }
        if let (Some(fifo), Some(id)) = (&mut self.fifo, request.attempt_id) {
            fifo.remember_attempt(now, id, hidden_until, &taken.received);
        }
        Ok(taken)
    }

    fn is_full(&self) -> bool {
        self.line(Phase::InFlight).len() >= MAX_IN_FLIGHT
    }

    /// The numbers of up to `max` messages that can be received, the first to be received first.
    fn due(&self, max: usize) -> Vec<u64> {
        match &self.fifo {
            Some(fifo) => fifo.due(max, |number| self.phase(number) == Some(Phase::Ready)),
            None => self.line(Phase::Ready).iter().take(max).map(|(_, number)| *number).collect(),
        }
    }

    fn is_spent(&self, number: u64, max_receive_count: Option<u32>) -> bool {
        let count = self.messages.get(&number).map_or(0, |message| message.receive_count);
        max_receive_count.is_some_and(|max| count >= max)
    }

    fn hand_out(&mut self, now: Timestamp, number: u64, hidden_until: Timestamp) -> Option<Received> {
        let message = self.messages.get_mut(&number)?;
        message.receive_count += 1;
        message.received_at = Some(now);
        message.first_received_at.get_or_insert(now);
        let received = Received { number, handle: receipt::handle(number, message), message: message.clone() };
        self.place(number, Phase::InFlight, hidden_until);
        Some(received)
    }

    /// The messages of an earlier attempt under the same id, hidden anew, if all are as they were received.
    fn repeat(&mut self, now: Timestamp, id: Option<&str>, hidden_until: Timestamp) -> Option<Vec<Received>> {
        let attempt = self.fifo.as_mut()?.attempt(now, id?)?;
        let untouched = attempt.receipts.iter().all(|(number, count)| {
            self.messages.get(number).is_some_and(|message| {
                message.receive_count == *count && message.is_in_flight() && message.due == attempt.hidden_until
            })
        });
        if !untouched {
            return None;
        }
        let mut received = Vec::new();
        for (number, _) in &attempt.receipts {
            self.place(*number, Phase::InFlight, hidden_until);
            let message = self.messages.get(number)?;
            let handle = receipt::handle(*number, message);
            received.push(Received { number: *number, handle, message: message.clone() });
        }
        self.fifo.as_mut()?.remember_attempt(now, id?, hidden_until, &received);
        Some(received)
    }

    pub(crate) fn purge(&mut self, now: Timestamp) -> Result<(), ApiError> {
        if self.purged_at.is_some_and(|last| now < later(last, SETTLING_S)) {
            let message = "Only one PurgeQueue operation on this queue is allowed every 60 seconds.";
            return Err(ApiError::new(403, "PurgeQueueInProgress", message));
        }
        self.purged_at = Some(now);
        self.messages.clear();
        self.lines = Default::default();
        self.by_age.clear();
        if let Some(fifo) = &mut self.fifo {
            fifo.clear_groups();
        }
        Ok(())
    }

    /// When a message becomes visible by itself next.
    pub(crate) fn next_visible(&self) -> Option<Timestamp> {
        let hidden = [Phase::Delayed, Phase::InFlight].map(|phase| self.line(phase).first().map(|(due, _)| *due));
        hidden.into_iter().flatten().min()
    }

    /// Visible, in flight and delayed messages.
    pub(crate) fn counts(&mut self, now: Timestamp) -> (usize, usize, usize) {
        self.settle(now);
        let count = |phase| self.line(phase).len();
        (count(Phase::Ready), count(Phase::InFlight), count(Phase::Delayed))
    }

    /// Does what time has done: delays and visibility timeouts end, old messages are gone.
    fn settle(&mut self, now: Timestamp) {
        let limit = later(now, -self.settings.retention_s);
        while let Some((_, number)) = self.by_age.first().copied().filter(|(sent_at, _)| *sent_at < limit) {
            self.remove(number);
        }
        for phase in [Phase::Delayed, Phase::InFlight] {
            while let Some((due, number)) = self.line(phase).first().copied().filter(|(due, _)| *due <= now) {
                self.place(number, Phase::Ready, due);
            }
        }
    }

    fn add(&mut self, mut message: Message, visible_at: Timestamp) {
        self.newest += 1;
        self.revision += 1;
        message.phase = Phase::Delayed;
        let (number, group) = (self.newest, message.group().map(str::to_owned));
        self.by_age.insert((message.sent_at, number));
        self.messages.insert(number, message);
        if let (Some(fifo), Some(group)) = (&mut self.fifo, group) {
            fifo.join(&group, number);
        }
        // It becomes ready when somebody looks, in the order of these instants.
        self.place(number, Phase::Delayed, visible_at);
    }

    fn remove(&mut self, number: u64) -> Option<Message> {
        let message = self.messages.remove(&number)?;
        self.lines[message.phase as usize].remove(&(message.due, number));
        self.by_age.remove(&(message.sent_at, number));
        if let (Some(fifo), Some(group)) = (&mut self.fifo, message.group()) {
            fifo.leave(group, number, message.phase);
            // The next of its group can be received.
            self.revision += 1;
        }
        Some(message)
    }

    /// Puts a message into a line.
    fn place(&mut self, number: u64, phase: Phase, due: Timestamp) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        let before = message.phase;
        self.lines[before as usize].remove(&(message.due, number));
        (message.phase, message.due) = (phase, due);
        self.lines[phase as usize].insert((due, number));
        if let (Some(fifo), Some(group)) = (&mut self.fifo, message.group()) {
            fifo.moved(group, before, phase);
        }
    }

    fn phase(&self, number: u64) -> Option<Phase> {
        self.messages.get(&number).map(|message| message.phase)
    }

    fn line(&self, phase: Phase) -> &BTreeSet<(Timestamp, u64)> {
        &self.lines[phase as usize]
    }
}

pub(crate) fn md5_hex(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn later(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(fifo: bool) -> Queue {
        let settings = Settings {
            fifo: fifo.then(FifoSettings::default),
            visibility_timeout_s: MAX_VISIBILITY_S,
            ..Settings::default()
        };
        Queue::with(Timestamp::UNIX_EPOCH, settings, Tags::new())
    }

    /// A queue with so many messages, each in a group of its own.
    fn filled(fifo: bool, count: usize) -> Queue {
        let (mut queue, mut ids) = (queue(fifo), Ids::new(1));
        for number in 0..count {
            let id = fifo.then(|| number.to_string());
            let draft = Draft { body: "x".into(), group: id.clone(), deduplication_id: id, ..Draft::default() };
            queue.send(Timestamp::UNIX_EPOCH, &mut ids, draft).unwrap();
        }
        queue
    }

    fn receive(queue: &mut Queue, max: usize) -> Result<Vec<Received>, ApiError> {
        let request = Request { max, ..Request::default() };
        queue.receive(Timestamp::UNIX_EPOCH, &request).map(|taken| taken.received)
    }

    #[test]
    fn at_most_120_000_messages_are_in_flight() {
        for fifo in [false, true] {
            let mut queue = filled(fifo, 120_001);
            for _ in 0..12_000 {
                assert_eq!(receive(&mut queue, 10).unwrap().len(), 10);
            }
            match (fifo, receive(&mut queue, 10)) {
                (false, Err(error)) => assert_eq!((error.status, error.code.as_ref()), (403, "OverLimit")),
                (true, Ok(received)) => assert_eq!(received.len(), 0, "a FIFO queue tells no error"),
                (_, other) => panic!("{other:?}"),
            }
            assert_eq!(queue.counts(Timestamp::UNIX_EPOCH), (1, 120_000, 0));
        }
    }

    #[test]
    fn near_the_limit_a_receive_gets_what_is_left() {
        let mut queue = filled(false, 120_005);
        (0..11_999).for_each(|_| drop(receive(&mut queue, 10).unwrap()));
        assert_eq!(receive(&mut queue, 7).unwrap().len(), 7);
        assert_eq!(receive(&mut queue, 10).unwrap().len(), 3);
        assert!(receive(&mut queue, 1).is_err());
    }

    #[test]
    fn a_queue_goes_through_json_unchanged() {
        for fifo in [false, true] {
            let mut queue = filled(fifo, 5);
            let received = receive(&mut queue, 2).unwrap();
            queue.delete(Timestamp::UNIX_EPOCH, &received[0].handle).unwrap();
            let text = serde_json::to_string(&queue).unwrap();
            let mut read: Queue = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
            read.delete(Timestamp::UNIX_EPOCH, &received[1].handle).unwrap();
            assert_eq!(read.counts(Timestamp::UNIX_EPOCH), (3, 0, 0));
        }
    }

    #[test]
    fn a_plain_message_is_small() {
        assert!(size_of::<Message>() <= 200, "{} bytes", size_of::<Message>());
    }
}
