//! Receipt handles: made on each receive, and what can be done with them.

use super::message::{Message, Phase};
use super::{MAX_VISIBILITY_S, Queue, later};
use crate::error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

/// Whose receipt a handle is: the number of a message, and how often it had been received.
struct Receipt {
    number: u64,
    count: u32,
    id: String,
}

pub(super) fn handle(number: u64, message: &Message) -> String {
    // Its own prefix keeps a handle from looking like anything else that is base64.
    format!("AQEB{}", STANDARD.encode(format!("{number}:{}:{}", message.receive_count, message.id)))
}

// fidelity: documented(SQS API Reference, DeleteMessage: ReceiptHandleIsInvalid); assumed: wording
fn parse(handle: &str) -> Result<Receipt, ApiError> {
    let read = || {
        let bytes = STANDARD.decode(handle.strip_prefix("AQEB")?).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (number, rest) = text.split_once(':')?;
        let (count, id) = rest.split_once(':')?;
        Some(Receipt { number: number.parse().ok()?, count: count.parse().ok()?, id: id.to_owned() })
    };
    read().ok_or_else(|| {
        let message = format!("The input receipt handle \"{handle}\" is not a valid receipt handle.");
        ApiError::client("ReceiptHandleIsInvalid", message)
    })
}

impl Queue {
    /// Deletes by receipt handle.
    // fidelity: documented(SQS API Reference, DeleteMessage: an outdated handle succeeds and may not delete; SQS Developer
    // Guide, Exactly-once processing: in a FIFO queue a handle is only good within the visibility timeout); assumed: an
    // outdated handle never deletes; assumed: wording
    pub(crate) fn delete(&mut self, now: Timestamp, handle: &str) -> Result<(), ApiError> {
        let receipt = parse(handle)?;
        self.settle(now);
        let Some(message) = self.own(&receipt) else { return Ok(()) };
        let present = message.receive_count == receipt.count;
        if self.fifo.is_some() && !(present && message.is_in_flight()) {
            return Err(ApiError::invalid_value(format!(
                "Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
            )));
        }
        if present {
            self.remove(receipt.number);
        }
        Ok(())
    }

    /// Hides a received message until `timeout_s` from now.
    // fidelity: documented(SQS API Reference, ChangeMessageVisibility: MessageNotInflight, and at most 12 hours after the
    // receive); assumed: wording; assumed: a handle of an earlier receive is refused
    pub(crate) fn change_visibility(&mut self, now: Timestamp, handle: &str, timeout_s: i64) -> Result<(), ApiError> {
        let receipt = parse(handle)?;
        self.settle(now);
        let Some(message) = self.own(&receipt).filter(|message| message.receive_count == receipt.count) else {
            return Err(ApiError::invalid_value(format!(
                "Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change."
            )));
        };
        if !message.is_in_flight() {
            return Err(ApiError::client("MessageNotInflight", "The specified message isn't in flight."));
        }
        let hidden_until = later(now, timeout_s);
        if message.received_at.is_some_and(|received_at| hidden_until > later(received_at, MAX_VISIBILITY_S)) {
            return Err(ApiError::invalid_value(format!(
                "Value {timeout_s} for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [{MAX_VISIBILITY_S} seconds]."
            )));
        }
        self.place(receipt.number, Phase::InFlight, hidden_until);
        self.revision += 1;
        Ok(())
    }

    /// The message of a receipt, while it is there.
    fn own(&self, receipt: &Receipt) -> Option<&Message> {
        self.messages.get(&receipt.number).filter(|message| *message.id == *receipt.id)
    }
}
