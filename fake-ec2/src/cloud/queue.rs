//! SQS standard queues: visibility, receipt handles, retention.

use super::ids::Ids;
use crate::error::ApiError;
use jiff::{SignedDuration, Timestamp};
use md5::{Digest, Md5};
use std::collections::{BTreeMap, BTreeSet};

/// A queue.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) created_at: Timestamp,
    pub(crate) visibility_timeout_s: i64,
    pub(crate) delay_s: i64,
    pub(crate) retention_s: i64,
    pub(crate) wait_s: i64,
    /// Attributes that are kept and answered but change nothing here, such as `Policy`.
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) tags: BTreeMap<String, String>,
    messages: BTreeMap<u64, Message>,
    /// Messages in the order in which they become visible.
    order: BTreeSet<(Timestamp, u64)>,
    next: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) body: String,
    pub(crate) md5: String,
    pub(crate) sent_at: Timestamp,
    pub(crate) attributes: serde_json::Value,
    pub(crate) first_received_at: Option<Timestamp>,
    pub(crate) receive_count: u64,
    visible_at: Timestamp,
}

/// A message as received: its handle is good for this receipt alone.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) handle: String,
    pub(crate) message: Message,
}

/// The most messages that may be in flight in a standard queue.
// fidelity: documented(SQS Developer Guide, Quotas: 120,000 in-flight messages)
const MAX_IN_FLIGHT: usize = 120_000;
/// The largest message.
// fidelity: documented(SQS Developer Guide, Quotas: 1 MiB since August 2025)
const MAX_MESSAGE_BYTES: usize = 1 << 20;

impl Queue {
    pub(crate) fn new(created_at: Timestamp) -> Self {
        Self {
            created_at,
            // fidelity: documented(SQS API Reference, CreateQueue: attribute defaults)
            visibility_timeout_s: 30,
            delay_s: 0,
            retention_s: 345_600,
            wait_s: 0,
            attributes: BTreeMap::new(),
            tags: BTreeMap::new(),
            messages: BTreeMap::new(),
            order: BTreeSet::new(),
            next: 0,
        }
    }

    pub(crate) fn send(
        &mut self,
        now: Timestamp,
        ids: &mut Ids,
        body: String,
        delay_s: Option<i64>,
        attributes: serde_json::Value,
    ) -> Result<(String, String), ApiError> {
        if body.is_empty() {
            return Err(ApiError::client("MissingParameter", "The request must contain the parameter MessageBody."));
        }
        if body.len() > MAX_MESSAGE_BYTES {
            let message = "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.";
            return Err(ApiError::client("InvalidParameterValue", message));
        }
        let visible_at = later(now, delay_s.unwrap_or(self.delay_s));
        let md5 = md5_hex(body.as_bytes());
        let (id, first_received_at, receive_count) = (ids.uuid(), None, 0);
        let message = Message {
            id: id.clone(),
            body,
            md5: md5.clone(),
            sent_at: now,
            attributes,
            first_received_at,
            receive_count,
            visible_at,
        };
        self.next += 1;
        self.messages.insert(self.next, message);
        self.order.insert((visible_at, self.next));
        Ok((id, md5))
    }

    /// Takes up to `max` visible messages and hides them for `visibility_s`.
    // fidelity: assumed: a standard queue may repeat and reorder; this one delivers in order of visibility unless a test
    // sends a message twice itself.
    pub(crate) fn receive(
        &mut self,
        now: Timestamp,
        max: usize,
        visibility_s: Option<i64>,
    ) -> Result<Vec<Received>, ApiError> {
        self.expire(now);
        let due: Vec<(Timestamp, u64)> =
            self.order.iter().take_while(|(visible_at, _)| *visible_at <= now).take(max).copied().collect();
        // Counting takes a walk; it is spared as long as even all messages would be few enough.
        if self.messages.len() >= MAX_IN_FLIGHT && !due.is_empty() && self.in_flight(now) >= MAX_IN_FLIGHT {
            return Err(ApiError::new(403, "OverLimit", "The maximum number of in flight messages is reached."));
        }
        let hidden_until = later(now, visibility_s.unwrap_or(self.visibility_timeout_s));
        let mut received = Vec::with_capacity(due.len());
        for (visible_at, number) in due {
            let Some(message) = self.messages.get_mut(&number) else { continue };
            message.receive_count += 1;
            message.first_received_at.get_or_insert(now);
            message.visible_at = hidden_until;
            self.order.remove(&(visible_at, number));
            self.order.insert((hidden_until, number));
            received.push(Received { handle: handle(number, message), message: message.clone() });
        }
        Ok(received)
    }

    /// Deletes by receipt handle. An outdated handle is accepted and does nothing.
    // fidelity: documented(SQS API Reference, DeleteMessage: the most recent receipt handle must be used)
    pub(crate) fn delete(&mut self, receipt: &str) -> Result<(), ApiError> {
        let number = parse_handle(receipt)?;
        if self.messages.get(&number).is_some_and(|message| handle(number, message) == receipt) {
            self.remove(number);
        }
        Ok(())
    }

    pub(crate) fn change_visibility(&mut self, now: Timestamp, receipt: &str, timeout_s: i64) -> Result<(), ApiError> {
        let number = parse_handle(receipt)?;
        match self.messages.get_mut(&number).filter(|message| message.visible_at > now) {
            None => Err(ApiError::client("MessageNotInflight", "The specified message isn't in flight.")),
            Some(message) => {
                self.order.remove(&(message.visible_at, number));
                message.visible_at = later(now, timeout_s);
                self.order.insert((message.visible_at, number));
                Ok(())
            }
        }
    }

    pub(crate) fn purge(&mut self) {
        self.messages.clear();
        self.order.clear();
    }

    /// When the next message becomes visible, at `now` or later.
    pub(crate) fn next_visible(&self) -> Option<Timestamp> {
        self.order.first().map(|(visible_at, _)| *visible_at)
    }

    /// Visible, in flight and delayed messages.
    pub(crate) fn counts(&mut self, now: Timestamp) -> (usize, usize, usize) {
        self.expire(now);
        let visible = self.order.iter().take_while(|(visible_at, _)| *visible_at <= now).count();
        let in_flight = self.in_flight(now);
        (visible, in_flight, self.messages.len() - visible - in_flight)
    }

    fn in_flight(&self, now: Timestamp) -> usize {
        let hidden = self.order.iter().rev().take_while(|(visible_at, _)| *visible_at > now);
        hidden.filter(|(_, number)| self.messages.get(number).is_some_and(|message| message.receive_count > 0)).count()
    }

    fn expire(&mut self, now: Timestamp) {
        let limit = later(now, -self.retention_s);
        while let Some((&number, _)) = self.messages.first_key_value().filter(|(_, message)| message.sent_at < limit) {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(message) = self.messages.remove(&number) {
            self.order.remove(&(message.visible_at, number));
        }
    }
}

pub(crate) fn md5_hex(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn later(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now)
}

fn handle(number: u64, message: &Message) -> String {
    format!("AQEB{number:016x}.{}.{}", message.receive_count, message.id)
}

fn parse_handle(handle: &str) -> Result<u64, ApiError> {
    let number = handle.strip_prefix("AQEB").and_then(|rest| rest.split_once('.')).map(|(number, _)| number);
    number
        .and_then(|number| u64::from_str_radix(number, 16).ok())
        .ok_or_else(|| ApiError::client("ReceiptHandleIsInvalid", "The input receipt handle is invalid."))
}
