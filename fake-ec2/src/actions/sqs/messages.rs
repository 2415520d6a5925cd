//! Messages: send, receive, hide, delete.

use super::{batch, invalid, message_attributes, queue, queue_name, range, required, texts};
use crate::actions::{Context, Step, text};
use crate::cloud::Cloud;
use crate::cloud::queue::{
    Attribute, AttributeValue, Draft, MAX_MESSAGE_BYTES, Received, Request, digest, later, md5_hex, no_queue,
};
use crate::error::ApiError;
use crate::wire::Reply;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) fn send(cloud: &mut Cloud, context: &Context, target: &Value, entry: &Value) -> Result<Value, ApiError> {
    let name = queue_name(cloud, target)?;
    let draft = draft(cloud, context, &name, entry)?;
    send_draft(cloud, context.now, &name, draft)
}

// fidelity: documented(SQS API Reference, SendMessageBatch: BatchRequestTooLong above 1 MiB); assumed: wording
pub(super) fn send_batch(cloud: &mut Cloud, context: &Context, input: &Value) -> Result<Value, ApiError> {
    let name = queue_name(cloud, input)?;
    let drafts: Vec<(&Value, Result<Draft, ApiError>)> =
        batch::entries(input)?.iter().map(|entry| (entry, draft(cloud, context, &name, entry))).collect();
    let bytes: usize = drafts.iter().filter_map(|(_, draft)| Some(draft.as_ref().ok()?.bytes())).sum();
    if bytes > MAX_MESSAGE_BYTES {
        let message =
            format!("Batch requests cannot be longer than {MAX_MESSAGE_BYTES} bytes. You have sent {bytes} bytes.");
        return Err(ApiError::client("BatchRequestTooLong", message));
    }
    let mut outcomes = Vec::new();
    for (entry, draft) in drafts {
        outcomes.push((entry, draft.and_then(|draft| send_draft(cloud, context.now, &name, draft))));
    }
    Ok(batch::answer(outcomes))
}

/// A message as the request says it.
fn draft(cloud: &Cloud, context: &Context, queue: &str, entry: &Value) -> Result<Draft, ApiError> {
    let body = text(entry, "MessageBody").ok_or_else(|| ApiError::missing("MessageBody"))?;
    message_attributes::check_characters(body)?;
    let trace_header = message_attributes::read_trace_header(entry)?;
    let token = |name: &str| text(entry, name).map(|value| check_token(name, value)).transpose();
    Ok(Draft {
        body: body.to_owned(),
        delay_s: delay(cloud, queue, entry)?,
        attributes: message_attributes::read(entry)?,
        trace_header: trace_header.and_then(|attribute| match attribute.value {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::Bytes(_) => None,
        }),
        group: token("MessageGroupId")?,
        deduplication_id: token("MessageDeduplicationId")?,
        sender: context.asking.caller.user_id(),
    })
}

// fidelity: documented(SQS API Reference, SendMessage: a FIFO queue has a delay, its messages have none of their own)
fn delay(cloud: &Cloud, queue: &str, entry: &Value) -> Result<Option<i64>, ApiError> {
    let delay_s = range(entry, "DelaySeconds", 0, 900)?;
    let fifo = cloud.queues.get(queue).is_some_and(|queue| queue.settings.fifo.is_some());
    match delay_s {
        // SDKs of some languages always send the zero.
        Some(0) if fifo => Ok(None),
        Some(seconds) if fifo => Err(invalid(
            "DelaySeconds",
            &seconds.to_string(),
            "The request include parameter that is not valid for this queue type.",
        )),
        other => Ok(other),
    }
}

// fidelity: documented(SQS API Reference, SendMessage and ReceiveMessage: 1 to 128 alphanumeric and punctuation characters)
fn check_token(name: &str, value: &str) -> Result<String, ApiError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte.is_ascii_punctuation();
    match (1..=128).contains(&value.len()) && value.bytes().all(allowed) {
        true => Ok(value.to_owned()),
        false => {
            let reason =
                format!("{name} can only include alphanumeric and punctuation characters. 1 to 128 in length.");
            Err(invalid(name, value, &reason))
        }
    }
}

fn send_draft(cloud: &mut Cloud, now: Timestamp, name: &str, draft: Draft) -> Result<Value, ApiError> {
    let mut answer = json!({"MD5OfMessageBody": md5_hex(draft.body.as_bytes())});
    if !draft.attributes.is_empty() {
        answer["MD5OfMessageAttributes"] = json!(digest(&draft.attributes));
    }
    if let Some(header) = &draft.trace_header {
        let attribute = Attribute { data_type: "String".into(), value: AttributeValue::Text(header.clone()) };
        answer["MD5OfMessageSystemAttributes"] = json!(digest([(&"AWSTraceHeader".to_owned(), &attribute)]));
    }
    let Cloud { queues, ids, revision, .. } = cloud;
    let sent = queues.get_mut(name).ok_or_else(no_queue)?.send(now, ids, draft)?;
    *revision += 1;
    answer["MessageId"] = json!(sent.id);
    if let Some(sequence) = sent.sequence {
        answer["SequenceNumber"] = json!(sequence);
    }
    Ok(answer)
}

pub(super) fn receive(cloud: &mut Cloud, context: &Context, input: &Value) -> Result<Step, ApiError> {
    let name = queue_name(cloud, input)?;
    let wanted = Wanted::read(input)?;
    let wait_s = range(input, "WaitTimeSeconds", 0, 20)?;
    let attempt_id = text(input, "ReceiveRequestAttemptId");
    attempt_id.map(|id| check_token("ReceiveRequestAttemptId", id)).transpose()?;
    let request = Request {
        max: range(input, "MaxNumberOfMessages", 1, 10)?.unwrap_or(1) as usize,
        visibility_s: range(input, "VisibilityTimeout", 0, 43_200)?,
        attempt_id,
        max_receive_count: None,
    };
    let received = cloud.receive(context.now, &name, request)?.received;
    if !received.is_empty() {
        let messages: Vec<Value> = received.iter().map(|received| wanted.message(received)).collect();
        return Ok(Step::Done(Ok(Reply::Json(json!({"Messages": messages})))));
    }
    let queue = cloud.queues.get(&name).ok_or_else(no_queue)?;
    let deadline = later(context.started, wait_s.unwrap_or(queue.settings.wait_s));
    if context.now < deadline {
        // A hidden message may become visible while we wait.
        return Ok(Step::WaitUntil(queue.next_visible().map_or(deadline, |visible| visible.min(deadline))));
    }
    Ok(Step::Done(Ok(Reply::Json(json!({})))))
}

/// What a receiver wants to know of messages.
struct Wanted<'a> {
    system: Vec<&'a str>,
    attributes: Vec<&'a str>,
}

impl<'a> Wanted<'a> {
    fn read(input: &'a Value) -> Result<Self, ApiError> {
        // `AttributeNames` is the older name of `MessageSystemAttributeNames`.
        let system: Vec<&str> =
            texts(input, "MessageSystemAttributeNames").chain(texts(input, "AttributeNames")).collect();
        message_attributes::check_system_names(&system)?;
        Ok(Self { system, attributes: texts(input, "MessageAttributeNames").collect() })
    }

    fn message(&self, Received { handle, message, .. }: &Received) -> Value {
        let mut value = json!({
            "MessageId": message.id,
            "ReceiptHandle": handle,
            "MD5OfBody": message.md5_of_body(),
            "Body": message.body,
        });
        let system = message_attributes::system(message, &self.system);
        if !system.is_empty() {
            value["Attributes"] = Value::Object(system);
        }
        if let Some((attributes, digest)) = message_attributes::chosen(message, &self.attributes) {
            value["MessageAttributes"] = attributes;
            value["MD5OfMessageAttributes"] = json!(digest);
        }
        value
    }
}

pub(super) fn delete(cloud: &mut Cloud, now: Timestamp, target: &Value, entry: &Value) -> Result<Value, ApiError> {
    let handle = required(entry, "ReceiptHandle")?;
    let queue = queue(cloud, target)?;
    queue.delete(now, handle)?;
    // The next message of its group can be received.
    if queue.settings.fifo.is_some() {
        cloud.revision += 1;
    }
    Ok(Value::Null)
}

pub(super) fn change_visibility(
    cloud: &mut Cloud,
    now: Timestamp,
    target: &Value,
    entry: &Value,
) -> Result<Value, ApiError> {
    let handle = required(entry, "ReceiptHandle")?;
    let timeout_s =
        range(entry, "VisibilityTimeout", 0, 43_200)?.ok_or_else(|| ApiError::missing("VisibilityTimeout"))?;
    queue(cloud, target)?.change_visibility(now, handle, timeout_s)?;
    cloud.revision += 1;
    Ok(Value::Null)
}
