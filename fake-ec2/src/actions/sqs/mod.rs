//! SQS: every action, over JSON 1.0 and over the older query protocol.
//!
//! // fidelity: documented(SQS API Reference: each action, its limits and errors)

mod attributes;
mod batch;
mod message_attributes;
mod messages;
mod query;
mod queues;
mod redrive;
mod sharing;

pub(super) use query::perform as perform_query;
pub(super) use redrive::source_of as source_of_move_task;

use super::{Context, Step, integer, text, texts, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::queue::{Queue, no_queue};
use crate::error::ApiError;
use crate::wire::{Reply, Service};
use serde_json::{Value, json};

pub(super) fn perform(cloud: &mut Cloud, context: &Context, action: &str, input: &Value) -> Step {
    if action == "ReceiveMessage" {
        return messages::receive(cloud, context, input).unwrap_or_else(|error| Step::Done(Err(error.into())));
    }
    let now = context.now;
    let result = match action {
        "AddPermission" => sharing::add(cloud, now, input),
        "CancelMessageMoveTask" => redrive::cancel(cloud, input),
        "ChangeMessageVisibility" => messages::change_visibility(cloud, now, input, input),
        "ChangeMessageVisibilityBatch" => {
            batch::each(cloud, input, |cloud, entry| messages::change_visibility(cloud, now, input, entry))
        }
        "CreateQueue" => queues::create(cloud, now, input),
        "DeleteMessage" => messages::delete(cloud, now, input, input),
        "DeleteMessageBatch" => batch::each(cloud, input, |cloud, entry| messages::delete(cloud, now, input, entry)),
        "DeleteQueue" => queues::delete(cloud, now, input),
        "GetQueueAttributes" => queues::get_attributes(cloud, now, input),
        "GetQueueUrl" => queues::get_url(cloud, input),
        "ListDeadLetterSourceQueues" => redrive::list_sources(cloud, input),
        "ListMessageMoveTasks" => redrive::list(cloud, input),
        "ListQueues" => queues::list(cloud, input),
        "ListQueueTags" => queues::list_tags(cloud, input),
        "PurgeQueue" => queue(cloud, input).and_then(|queue| queue.purge(now)).map(|()| Value::Null),
        "RemovePermission" => sharing::remove(cloud, now, input),
        "SendMessage" => messages::send(cloud, context, input, input),
        "SendMessageBatch" => messages::send_batch(cloud, context, input),
        "SetQueueAttributes" => queues::set_attributes(cloud, now, input),
        "StartMessageMoveTask" => redrive::start(cloud, now, input),
        "TagQueue" => queues::tag(cloud, input),
        "UntagQueue" => queues::untag(cloud, input),
        _ => Err(unknown_action(Service::Sqs, action)),
    };
    // An action without output answers an empty object.
    result.map(|value| Reply::Json(if value.is_null() { json!({}) } else { value })).into()
}

/// The name at the end of a queue's URL.
// fidelity: documented(SQS API Reference, Common errors: InvalidAddress); assumed: the host of the URL is not looked at
fn queue_name(cloud: &Cloud, input: &Value) -> Result<String, ApiError> {
    let url = required(input, "QueueUrl")?;
    let mut parts = url.rsplit('/');
    let (name, account) = (parts.next().unwrap_or_default(), parts.next());
    let Some(account) = account else {
        return Err(ApiError::client("InvalidAddress", format!("The address {url} is not valid for this endpoint.")));
    };
    let elsewhere = is_account(account) && account != cloud.config.account;
    match cloud.queues.contains_key(name) && !elsewhere {
        true => Ok(name.to_owned()),
        false => Err(no_queue()),
    }
}

fn queue<'a>(cloud: &'a mut Cloud, input: &Value) -> Result<&'a mut Queue, ApiError> {
    let name = queue_name(cloud, input)?;
    cloud.queues.get_mut(&name).ok_or_else(no_queue)
}

fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A text that has to be there.
fn required<'a>(input: &'a Value, name: &str) -> Result<&'a str, ApiError> {
    text(input, name).filter(|text| !text.is_empty()).ok_or_else(|| ApiError::missing(name))
}

/// A whole number within its bounds, if it is given.
fn range(input: &Value, name: &str, minimum: i64, maximum: i64) -> Result<Option<i64>, ApiError> {
    let Some(given) = input.get(name).filter(|given| !given.is_null()) else { return Ok(None) };
    match integer(input, name) {
        Some(value) if (minimum..=maximum).contains(&value) => Ok(Some(value)),
        _ => {
            let given = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
            Err(invalid(name, &given, &format!("Must be between {minimum} and {maximum}, if provided.")))
        }
    }
}

// fidelity: assumed: wording
fn invalid(name: &str, value: &str, reason: &str) -> ApiError {
    ApiError::invalid_value(format!("Value {value} for parameter {name} is invalid. Reason: {reason}"))
}
