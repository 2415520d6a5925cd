//! The interruption queue: receive, parse, delete. What to do about a message is the shell's business.

mod message;

pub use message::{Interruption, InterruptionKind, parse};

use crate::error::AwsError;
use aws_sdk_sqs::types::MessageSystemAttributeName;
use jiff::Timestamp;
use std::sync::OnceLock;

/// One message taken from the queue. It comes again after 20 seconds unless it is deleted.
#[derive(Clone, Debug)]
pub struct QueueMessage {
    /// What the body says.
    pub interruption: Interruption,
    /// The ids of the instances concerned; empty when the message concerns none.
    pub instance_ids: Vec<String>,
    /// When the queue took the message in, as far as it says so.
    pub sent_at: Option<Timestamp>,
    /// When the event happened, as far as the body says so; the latency of a message counts from here.
    pub event_time: Option<Timestamp>,
    /// The queue's name for this delivery.
    pub receipt: String,
}

/// The queue, whose URL is looked up once.
#[derive(Debug)]
pub(crate) struct Queue {
    client: aws_sdk_sqs::Client,
    name: String,
    url: OnceLock<String>,
}

/// How long a received message stays hidden, and how long an empty receive waits (spec §2.5).
const VISIBILITY_S: i32 = 20;
const WAIT_S: i32 = 20;
/// SQS's own limit of one receive.
const MESSAGES_PER_RECEIVE: i32 = 10;

impl Queue {
    pub(crate) fn new(client: aws_sdk_sqs::Client, name: String) -> Self {
        Self { client, name, url: OnceLock::new() }
    }

    /// The queue's URL. A failure is not remembered: the queue may be made later.
    pub(crate) async fn url(&self) -> Result<&str, AwsError> {
        if let Some(url) = self.url.get() {
            return Ok(url);
        }
        let answer = self.client.get_queue_url().queue_name(&self.name).send().await;
        let answer = answer.map_err(|error| AwsError::new("SQS", "GetQueueUrl", error))?;
        let url = answer.queue_url().unwrap_or_default().to_owned();
        tracing::debug!(queue = self.name, "watching interruption queue");
        Ok(self.url.get_or_init(|| url))
    }

    /// Waits up to 20 s for messages and takes at most ten.
    pub(crate) async fn receive(&self) -> Result<Vec<QueueMessage>, AwsError> {
        let answer = self
            .client
            .receive_message()
            .queue_url(self.url().await?)
            .max_number_of_messages(MESSAGES_PER_RECEIVE)
            .visibility_timeout(VISIBILITY_S)
            .wait_time_seconds(WAIT_S)
            .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
            .message_attribute_names("All")
            .send()
            .await
            .map_err(|error| AwsError::new("SQS", "ReceiveMessage", error))?;
        Ok(answer.messages().iter().map(read).collect())
    }

    pub(crate) async fn delete(&self, receipt: &str) -> Result<(), AwsError> {
        let request = self.client.delete_message().queue_url(self.url().await?).receipt_handle(receipt);
        request.send().await.map_err(|error| AwsError::new("SQS", "DeleteMessage", error))?;
        Ok(())
    }
}

fn read(message: &aws_sdk_sqs::types::Message) -> QueueMessage {
    let sent_at = message
        .attributes()
        .and_then(|attributes| attributes.get(&MessageSystemAttributeName::SentTimestamp))
        .and_then(|text| text.parse::<i64>().ok())
        .and_then(|millisecond| Timestamp::from_millisecond(millisecond).ok());
    let parsed = parse(message.body());
    QueueMessage {
        interruption: parsed.interruption,
        instance_ids: parsed.instance_ids,
        event_time: parsed.time,
        sent_at,
        receipt: message.receipt_handle().unwrap_or_default().to_owned(),
    }
}
