//! SQS over JSON 1.0, and over the older query protocol for the actions old clients use.
//!
//! // fidelity: documented(SQS API Reference: each action, its limits and errors)

use super::{Context, Step, integer, string_map, text, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::queue::{Queue, Received};
use crate::error::ApiError;
use crate::iam::policy::{Kind, Policy};
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use crate::wire::{Reply, Service};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

pub(super) fn perform(cloud: &mut Cloud, context: &Context, action: &str, input: &Value) -> Step {
    if action == "ReceiveMessage" {
        return receive_message(cloud, context, input).unwrap_or_else(|error| Step::Done(Err(error.into())));
    }
    let now = context.now;
    let result = match action {
        "CreateQueue" => create_queue(cloud, now, input),
        "DeleteQueue" => queue_name(cloud, input).map(|name| {
            cloud.queues.remove(&name);
            Value::Null
        }),
        "GetQueueUrl" => get_queue_url(cloud, input),
        "ListQueues" => list_queues(cloud, input),
        "GetQueueAttributes" => get_queue_attributes(cloud, now, input),
        "SetQueueAttributes" => {
            queue(cloud, input).and_then(|queue| set_attributes(queue, input)).map(|()| Value::Null)
        }
        "PurgeQueue" => queue(cloud, input).map(|queue| {
            queue.purge();
            Value::Null
        }),
        "SendMessage" => send_message(cloud, now, input, input),
        "SendMessageBatch" => batch(cloud, input, |cloud, entry| send_message(cloud, now, input, entry)),
        "DeleteMessage" => delete_message(cloud, input, input),
        "DeleteMessageBatch" => batch(cloud, input, |cloud, entry| delete_message(cloud, input, entry)),
        "ChangeMessageVisibility" => change_visibility(cloud, now, input),
        _ => Err(unknown_action(Service::Sqs, action)),
    };
    // An action without output answers an empty object.
    result.map(|value| Reply::Json(if value.is_null() { json!({}) } else { value })).into()
}

fn queue_name(cloud: &Cloud, input: &Value) -> Result<String, ApiError> {
    let url = text(input, "QueueUrl").ok_or_else(|| ApiError::missing("QueueUrl"))?;
    let name = url.rsplit('/').next().unwrap_or(url);
    match cloud.queues.contains_key(name) {
        true => Ok(name.to_owned()),
        false => Err(no_queue()),
    }
}

fn queue<'a>(cloud: &'a mut Cloud, input: &Value) -> Result<&'a mut Queue, ApiError> {
    let name = queue_name(cloud, input)?;
    cloud.queues.get_mut(&name).ok_or_else(no_queue)
}

fn no_queue() -> ApiError {
    ApiError::client("QueueDoesNotExist", "The specified queue does not exist.")
}

fn range(input: &Value, name: &str, minimum: i64, maximum: i64) -> Result<Option<i64>, ApiError> {
    match integer(input, name) {
        Some(value) if !(minimum..=maximum).contains(&value) => {
            let message = format!(
                "Value {value} for parameter {name} is invalid. Reason: Must be between {minimum} and {maximum}, if provided."
            );
            Err(ApiError::invalid_value(message))
        }
        value => Ok(value),
    }
}

fn receive_message(cloud: &mut Cloud, context: &Context, input: &Value) -> Result<Step, ApiError> {
    let max = range(input, "MaxNumberOfMessages", 1, 10)?.unwrap_or(1) as usize;
    let visibility_s = range(input, "VisibilityTimeout", 0, 43_200)?;
    let wait_s = range(input, "WaitTimeSeconds", 0, 20)?;
    // `AttributeNames` is the older name of `MessageSystemAttributeNames`.
    let names = ["MessageSystemAttributeNames", "AttributeNames"].iter().filter_map(|name| input.get(name)?.as_array());
    let names: Vec<&str> = names.flatten().filter_map(Value::as_str).collect();
    let queue = queue(cloud, input)?;
    let received = queue.receive(context.now, max, visibility_s)?;
    let deadline =
        context.started.checked_add(SignedDuration::from_secs(wait_s.unwrap_or(queue.wait_s))).unwrap_or(context.now);
    if received.is_empty() && context.now < deadline {
        // A hidden message may become visible while we wait.
        return Ok(Step::WaitUntil(queue.next_visible().map_or(deadline, |visible| visible.min(deadline))));
    }
    if received.is_empty() {
        return Ok(Step::Done(Ok(Reply::Json(json!({})))));
    }
    let messages: Vec<Value> = received.iter().map(|received| message(received, &names)).collect();
    Ok(Step::Done(Ok(Reply::Json(json!({ "Messages": messages })))))
}

fn message(received: &Received, names: &[&str]) -> Value {
    let Received { handle, message } = received;
    let mut value = json!({
        "MessageId": message.id,
        "ReceiptHandle": handle,
        "MD5OfBody": message.md5,
        "Body": message.body,
    });
    let wanted = |name: &str| names.iter().any(|asked| *asked == "All" || *asked == name);
    let all = [
        ("SentTimestamp", message.sent_at.as_millisecond().to_string()),
        ("ApproximateReceiveCount", message.receive_count.to_string()),
        (
            "ApproximateFirstReceiveTimestamp",
            message.first_received_at.map_or(0, Timestamp::as_millisecond).to_string(),
        ),
        ("SenderId", "AIDAIENQZJOLO23YVJ4VO".to_owned()),
    ];
    let attributes: Map<String, Value> = all
        .into_iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, text)| (name.to_owned(), Value::String(text)))
        .collect();
    if !attributes.is_empty() {
        value["Attributes"] = Value::Object(attributes);
    }
    if message.attributes.as_object().is_some_and(|attributes| !attributes.is_empty()) {
        value["MessageAttributes"] = message.attributes.clone();
    }
    value
}

fn create_queue(cloud: &mut Cloud, now: Timestamp, input: &Value) -> Result<Value, ApiError> {
    let name = text(input, "QueueName").ok_or_else(|| ApiError::missing("QueueName"))?;
    let allowed = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    if name.is_empty() || name.len() > 80 || !name.chars().all(allowed) {
        let message = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";
        return Err(ApiError::invalid_value(message));
    }
    let mut queue = Queue::new(now);
    queue.tags = string_map(input, "tags");
    set_attributes(&mut queue, input)?;
    let same = |known: &Queue| {
        known.visibility_timeout_s == queue.visibility_timeout_s
            && known.attributes == queue.attributes
            && known.retention_s == queue.retention_s
    };
    match cloud.queues.get(name) {
        Some(known) if !same(known) => {
            let message = "A queue already exists with the same name and a different value for an attribute";
            return Err(ApiError::client("QueueNameExists", message));
        }
        Some(_) => {}
        None => drop(cloud.queues.insert(name.to_owned(), queue)),
    }
    Ok(json!({"QueueUrl": cloud.queue_url(name)}))
}

fn set_attributes(queue: &mut Queue, input: &Value) -> Result<(), ApiError> {
    let attributes = string_map(input, "Attributes");
    if let Some(policy) = attributes.get("Policy").filter(|policy| !policy.is_empty()) {
        // fidelity: documented(SQS API Reference, SetQueueAttributes: InvalidAttributeValue)
        Policy::parse(policy, Kind::Resource)
            .map_err(|_| ApiError::client("InvalidAttributeValue", "Invalid value for the parameter Policy."))?;
    }
    for (name, value) in attributes {
        let number = |minimum: i64, maximum: i64| {
            let refuse =
                || ApiError::client("InvalidAttributeValue", format!("Invalid value for the parameter {name}."));
            value.parse::<i64>().ok().filter(|number| (minimum..=maximum).contains(number)).ok_or_else(refuse)
        };
        match name.as_str() {
            "VisibilityTimeout" => queue.visibility_timeout_s = number(0, 43_200)?,
            "DelaySeconds" => queue.delay_s = number(0, 900)?,
            "MessageRetentionPeriod" => queue.retention_s = number(60, 1_209_600)?,
            "ReceiveMessageWaitTimeSeconds" => queue.wait_s = number(0, 20)?,
            // An empty one takes the policy away.
            "Policy" if value.is_empty() => drop(queue.attributes.remove(&name)),
            "Policy"
            | "MaximumMessageSize"
            | "SqsManagedSseEnabled"
            | "KmsMasterKeyId"
            | "KmsDataKeyReusePeriodSeconds" => {
                queue.attributes.insert(name, value);
            }
            _ => return Err(ApiError::client("InvalidAttributeName", format!("Unknown Attribute {name}."))),
        }
    }
    Ok(())
}

fn get_queue_url(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = text(input, "QueueName").ok_or_else(|| ApiError::missing("QueueName"))?;
    match cloud.queues.contains_key(name) {
        true => Ok(json!({"QueueUrl": cloud.queue_url(name)})),
        false => Err(no_queue()),
    }
}

fn list_queues(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let prefix = text(input, "QueueNamePrefix").unwrap_or_default();
    let names = cloud.queues.keys().filter(|name| name.starts_with(prefix));
    Ok(json!({"QueueUrls": names.map(|name| cloud.queue_url(name)).collect::<Vec<_>>()}))
}

fn get_queue_attributes(cloud: &mut Cloud, now: Timestamp, input: &Value) -> Result<Value, ApiError> {
    let name = queue_name(cloud, input)?;
    let arn = cloud.arn("sqs", &name);
    let queue = queue(cloud, input)?;
    let (visible, in_flight, delayed) = queue.counts(now);
    let mut all = queue.attributes.clone();
    for (name, value) in [
        ("QueueArn", arn),
        ("ApproximateNumberOfMessages", visible.to_string()),
        ("ApproximateNumberOfMessagesNotVisible", in_flight.to_string()),
        ("ApproximateNumberOfMessagesDelayed", delayed.to_string()),
        ("CreatedTimestamp", queue.created_at.as_second().to_string()),
        ("LastModifiedTimestamp", queue.created_at.as_second().to_string()),
        ("VisibilityTimeout", queue.visibility_timeout_s.to_string()),
        ("DelaySeconds", queue.delay_s.to_string()),
        ("MessageRetentionPeriod", queue.retention_s.to_string()),
        ("ReceiveMessageWaitTimeSeconds", queue.wait_s.to_string()),
    ] {
        all.insert(name.to_owned(), value);
    }
    let asked: Vec<&str> =
        input.get("AttributeNames").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    all.retain(|name, _| asked.iter().any(|asked| *asked == "All" || asked == name));
    Ok(json!({ "Attributes": all }))
}

fn send_message(cloud: &mut Cloud, now: Timestamp, target: &Value, input: &Value) -> Result<Value, ApiError> {
    let name = queue_name(cloud, target)?;
    let body = text(input, "MessageBody").ok_or_else(|| ApiError::missing("MessageBody"))?.to_owned();
    let delay_s = range(input, "DelaySeconds", 0, 900)?;
    let attributes = input.get("MessageAttributes").cloned().unwrap_or_default();
    let Cloud { queues, ids, revision, .. } = cloud;
    let queue = queues.get_mut(&name).ok_or_else(no_queue)?;
    let (id, md5) = queue.send(now, ids, body, delay_s, attributes)?;
    *revision += 1;
    Ok(json!({"MessageId": id, "MD5OfMessageBody": md5}))
}

fn delete_message(cloud: &mut Cloud, target: &Value, input: &Value) -> Result<Value, ApiError> {
    let handle = text(input, "ReceiptHandle").ok_or_else(|| ApiError::missing("ReceiptHandle"))?;
    queue(cloud, target)?.delete(handle)?;
    Ok(Value::Null)
}

fn change_visibility(cloud: &mut Cloud, now: Timestamp, input: &Value) -> Result<Value, ApiError> {
    let handle = text(input, "ReceiptHandle").ok_or_else(|| ApiError::missing("ReceiptHandle"))?;
    let timeout =
        range(input, "VisibilityTimeout", 0, 43_200)?.ok_or_else(|| ApiError::missing("VisibilityTimeout"))?;
    queue(cloud, input)?.change_visibility(now, handle, timeout)?;
    cloud.revision += 1;
    Ok(Value::Null)
}

/// One to ten entries, each with its own outcome.
fn batch(
    cloud: &mut Cloud,
    input: &Value,
    mut each: impl FnMut(&mut Cloud, &Value) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    queue_name(cloud, input)?;
    let entries = input.get("Entries").and_then(Value::as_array).filter(|entries| !entries.is_empty());
    let entries = entries
        .ok_or_else(|| ApiError::client("EmptyBatchRequest", "There should be at least one entry in the request."))?;
    if entries.len() > 10 {
        return Err(ApiError::client("TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10."));
    }
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for entry in entries {
        let id = text(entry, "Id").unwrap_or_default();
        match each(cloud, entry) {
            Ok(mut value) => {
                if value.is_null() {
                    value = json!({});
                }
                value["Id"] = json!(id);
                successful.push(value);
            }
            Err(error) => {
                failed.push(json!({"Id": id, "SenderFault": true, "Code": error.code, "Message": error.message}))
            }
        }
    }
    Ok(json!({"Successful": successful, "Failed": failed}))
}

/// The query protocol: the form becomes the JSON input, the JSON answer becomes flat XML.
pub(super) fn perform_query(cloud: &mut Cloud, context: &Context, action: &str, query: &Query<'_>) -> Step {
    let mut input = Map::new();
    for name in [
        "QueueUrl",
        "QueueName",
        "QueueNamePrefix",
        "MessageBody",
        "ReceiptHandle",
        "MaxNumberOfMessages",
        "WaitTimeSeconds",
        "VisibilityTimeout",
        "DelaySeconds",
    ] {
        if let Some(value) = query.text(name) {
            input.insert(name.to_owned(), json!(value));
        }
    }
    let names = query.list("AttributeName");
    if !names.is_empty() {
        input.insert("AttributeNames".to_owned(), json!(names));
    }
    let attributes: Map<String, Value> = query
        .structures("Attribute")
        .iter()
        .filter_map(|part| Some((part.owned("Name")?, json!(part.text("Value")?))))
        .collect();
    if !attributes.is_empty() {
        input.insert("Attributes".to_owned(), Value::Object(attributes));
    }
    let entries: Vec<Value> = query
        .structures(&format!("{action}RequestEntry"))
        .iter()
        .map(|entry| {
            let members = ["Id", "MessageBody", "DelaySeconds", "ReceiptHandle"];
            members.iter().filter_map(|name| Some(((*name).to_owned(), json!(entry.text(name)?)))).collect()
        })
        .collect();
    if !entries.is_empty() {
        input.insert("Entries".to_owned(), Value::Array(entries));
    }
    let answered = match perform(cloud, context, action, &Value::Object(input)) {
        Step::Done(Ok(Reply::Json(value))) => Ok(Reply::Xml(flat_xml(action, &value))),
        Step::Done(result) => result,
        Step::WaitUntil(deadline) => return Step::WaitUntil(deadline),
    };
    let older = |code: &str| match code {
        "QueueDoesNotExist" => Some("AWS.SimpleQueueService.NonExistentQueue"),
        "QueueNameExists" => Some("QueueAlreadyExists"),
        _ => None,
    };
    Step::Done(answered.map_err(|mut refused| {
        if let Some(code) = older(&refused.error.code) {
            refused.error.code = code.into();
        }
        refused
    }))
}

fn flat_xml(action: &str, value: &Value) -> String {
    let mut xml = Xml::new();
    write_members(&mut xml, action, value);
    xml.into_string()
}

fn write_members(xml: &mut Xml, action: &str, value: &Value) {
    for (name, member) in value.as_object().into_iter().flatten() {
        match (name.as_str(), member) {
            ("Attributes", Value::Object(map)) => {
                for (name, value) in map {
                    xml.element("Attribute", |xml| {
                        xml.text("Name", name);
                        xml.text("Value", value.as_str().unwrap_or_default());
                    });
                }
            }
            ("Messages", Value::Array(messages)) => {
                messages.iter().for_each(|message| xml.element("Message", |xml| write_members(xml, action, message)));
            }
            // Of the batches, each kind after its action.
            ("Successful", Value::Array(entries)) => {
                let name = format!("{action}ResultEntry");
                entries.iter().for_each(|entry| xml.element(&name, |xml| write_members(xml, action, entry)));
            }
            ("Failed", Value::Array(entries)) => entries
                .iter()
                .for_each(|entry| xml.element("BatchResultErrorEntry", |xml| write_members(xml, action, entry))),
            ("QueueUrls", Value::Array(urls)) => {
                urls.iter().for_each(|url| xml.text("QueueUrl", url.as_str().unwrap_or_default()))
            }
            (name, Value::String(text)) => xml.text(name, text),
            (name, Value::Bool(value)) => xml.value(name, value),
            _ => {}
        }
    }
}
