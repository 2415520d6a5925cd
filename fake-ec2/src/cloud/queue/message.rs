//! Messages: what a sender gives, what a queue keeps, and the digests that both sides compare.

use super::{hex, md5_hex};
use crate::error::ApiError;
use jiff::Timestamp;
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A message as sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) body: String,
    /// In the place of the queue's own delay.
    pub(crate) delay_s: Option<i64>,
    pub(crate) attributes: BTreeMap<String, Attribute>,
    /// `AWSTraceHeader`, the one system attribute that a sender may set.
    pub(crate) trace_header: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) deduplication_id: Option<String>,
    /// The sender's unique id.
    pub(crate) sender: String,
}

/// What a sender is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) sequence: Option<String>,
}

/// A message attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attribute {
    /// `String`, `Number` or `Binary`, with a label of the sender's own after a dot.
    pub(crate) data_type: String,
    pub(crate) value: AttributeValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AttributeValue {
    Text(String),
    Bytes(Vec<u8>),
}

/// Which of a queue's lines a message stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    Delayed,
    Ready,
    InFlight,
}

/// A message in a queue. Most are a body and nothing else, so whatever is rare stands apart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) id: Box<str>,
    pub(crate) body: Box<str>,
    pub(crate) sent_at: Timestamp,
    pub(crate) first_received_at: Option<Timestamp>,
    /// The last time.
    pub(super) received_at: Option<Timestamp>,
    pub(crate) receive_count: u32,
    pub(crate) sender: Box<str>,
    pub(super) phase: Phase,
    pub(super) due: Timestamp,
    extras: Option<Box<Extras>>,
}

/// What few messages have.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Extras {
    pub(crate) attributes: BTreeMap<String, Attribute>,
    pub(crate) trace_header: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) deduplication_id: Option<String>,
    pub(crate) sequence: Option<String>,
    /// The ARN of the queue that this message was too much for.
    pub(crate) dead_letter_source: Option<String>,
}

/// A message as received: its handle is good for this receipt alone.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(super) number: u64,
    pub(crate) handle: String,
    pub(crate) message: Message,
}

impl Draft {
    /// What counts against the limits: the body, and each attribute's name, type and value.
    // fidelity: documented(SQS Developer Guide, Message metadata: attributes are part of the size, system attributes not)
    pub(crate) fn bytes(&self) -> usize {
        let attributes = self.attributes.iter().map(|(name, attribute)| {
            let value = match &attribute.value {
                AttributeValue::Text(text) => text.len(),
                AttributeValue::Bytes(bytes) => bytes.len(),
            };
            name.len() + attribute.data_type.len() + value
        });
        self.body.len() + attributes.sum::<usize>()
    }

    pub(super) fn check_size(&self, maximum_bytes: usize) -> Result<(), ApiError> {
        if self.body.is_empty() {
            return Err(ApiError::client("MissingParameter", "The request must contain the parameter MessageBody."));
        }
        if self.bytes() > maximum_bytes {
            let message = format!(
                "One or more parameters are invalid. Reason: Message must be shorter than {maximum_bytes} bytes."
            );
            return Err(ApiError::invalid_value(message));
        }
        Ok(())
    }
}

impl Message {
    pub(super) fn new(now: Timestamp, id: String, draft: Draft) -> Self {
        let Draft { body, delay_s: _, attributes, trace_header, group, deduplication_id, sender } = draft;
        let extras =
            Extras { attributes, trace_header, group, deduplication_id, sequence: None, dead_letter_source: None };
        Self {
            id: id.into(),
            body: body.into(),
            sent_at: now,
            first_received_at: None,
            received_at: None,
            receive_count: 0,
            sender: sender.into(),
            phase: Phase::Delayed,
            due: now,
            extras: (!extras.is_empty()).then(|| Box::new(extras)),
        }
    }

    /// The same content as a message that was never received.
    pub(super) fn renew(&mut self, now: Timestamp, id: String) {
        (self.id, self.sent_at, self.receive_count) = (id.into(), now, 0);
        (self.first_received_at, self.received_at) = (None, None);
        if let Some(extras) = &mut self.extras {
            extras.dead_letter_source = None;
        }
    }

    // fidelity: documented(SQS API Reference, SendMessage: MessageDeduplicationId is for FIFO queues); assumed: wording
    pub(super) fn refuse_deduplication(&self) -> Result<(), ApiError> {
        match self.extras().and_then(|extras| extras.deduplication_id.as_ref()) {
            None => Ok(()),
            Some(id) => Err(ApiError::invalid_value(format!(
                "Value {id} for parameter MessageDeduplicationId is invalid. Reason: The request includes a parameter that is not valid for this queue type."
            ))),
        }
    }

    pub(crate) fn extras(&self) -> Option<&Extras> {
        self.extras.as_deref()
    }

    pub(super) fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    pub(super) fn group(&self) -> Option<&str> {
        self.extras()?.group.as_deref()
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.phase == Phase::InFlight
    }

    pub(super) fn sent(&self) -> Sent {
        Sent { id: self.id.to_string(), sequence: self.extras().and_then(|extras| extras.sequence.clone()) }
    }

    pub(crate) fn md5_of_body(&self) -> String {
        md5_hex(self.body.as_bytes())
    }
}

impl Extras {
    fn is_empty(&self) -> bool {
        let Self { attributes, trace_header, group, deduplication_id, sequence, dead_letter_source } = self;
        let texts = [trace_header, group, deduplication_id, sequence, dead_letter_source];
        attributes.is_empty() && texts.into_iter().all(Option::is_none)
    }
}

/// The digest of attributes, in the order of their names: name, data type, kind of value, value.
// fidelity: documented(SQS Developer Guide, Calculating the MD5 message digest for message attributes)
pub(crate) fn digest<'a>(attributes: impl IntoIterator<Item = (&'a String, &'a Attribute)>) -> String {
    fn part(md5: &mut Md5, bytes: &[u8]) {
        md5.update((bytes.len() as u32).to_be_bytes());
        md5.update(bytes);
    }
    let mut md5 = Md5::new();
    for (name, Attribute { data_type, value }) in attributes {
        part(&mut md5, name.as_bytes());
        part(&mut md5, data_type.as_bytes());
        let (kind, bytes) = match value {
            AttributeValue::Text(text) => (1_u8, text.as_bytes()),
            AttributeValue::Bytes(bytes) => (2_u8, bytes.as_slice()),
        };
        md5.update([kind]);
        part(&mut md5, bytes);
    }
    hex(&md5.finalize())
}
