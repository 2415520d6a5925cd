//! Dead-letter queues: whose they are, and the tasks that move messages back.

use super::queues::page_of_urls;
use super::{queue_name, range, required};
use crate::actions::text;
use crate::cloud::Cloud;
use crate::cloud::queue::{MoveState, MoveTask};
use crate::error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) fn list_sources(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = queue_name(cloud, input)?;
    let (urls, next) = page_of_urls(cloud, input, cloud.dead_letter_sources(&name))?;
    let mut answer = json!({"queueUrls": urls});
    if let Some(next) = next {
        answer["NextToken"] = json!(next);
    }
    Ok(answer)
}

// fidelity: documented(SQS API Reference, StartMessageMoveTask: sources are dead-letter queues of other queues, one task for
// each, at most 500 messages per second); assumed: wording
pub(super) fn start(cloud: &mut Cloud, now: Timestamp, input: &Value) -> Result<Value, ApiError> {
    let source = named(cloud, "SourceArn", required(input, "SourceArn")?)?;
    let destination = text(input, "DestinationArn").map(|arn| named(cloud, "DestinationArn", arn)).transpose()?;
    let per_second = range(input, "MaxNumberOfMessagesPerSecond", 1, 500)?.map(|count| count as usize);
    if cloud.dead_letter_sources(&source).next().is_none() {
        return Err(ApiError::invalid_value("Source queue must be configured as a Dead Letter Queue."));
    }
    if destination.as_ref() == Some(&source) {
        return Err(ApiError::invalid_value("Source queue arn and destination queue arn cannot be the same."));
    }
    if cloud.move_tasks.iter().any(|task| task.source == source && task.state == MoveState::Running) {
        let message =
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time.";
        return Err(ApiError::client("UnsupportedOperation", message));
    }
    let id = cloud.start_move(now, &source, destination, per_second);
    Ok(json!({"TaskHandle": handle(cloud, &source, &id)}))
}

// fidelity: documented(SQS API Reference, CancelMessageMoveTask: only a running task can be cancelled)
pub(super) fn cancel(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let (id, source) = read_handle(required(input, "TaskHandle")?)?;
    let missing = || not_found("The resource that you specified for the TaskHandle parameter doesn't exist.");
    let source = cloud.queue_of(&source).ok_or_else(missing)?;
    let task = cloud.move_tasks.iter_mut().find(|task| task.id == id && task.source == source).ok_or_else(missing)?;
    if task.state != MoveState::Running {
        let message = format!("Only a task that is RUNNING can be cancelled; this one is {}.", task.state.name());
        return Err(ApiError::client("UnsupportedOperation", message));
    }
    task.state = MoveState::Cancelled;
    Ok(json!({"ApproximateNumberOfMessagesMoved": task.moved}))
}

/// The newest first.
pub(super) fn list(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let source = named(cloud, "SourceArn", required(input, "SourceArn")?)?;
    let count = range(input, "MaxResults", 1, 10)?.unwrap_or(1) as usize;
    let tasks = cloud.move_tasks.iter().rev().filter(|task| task.source == source).take(count);
    Ok(json!({"Results": tasks.map(|task| describe(cloud, task)).collect::<Vec<_>>()}))
}

// fidelity: documented(SQS API Reference, ListMessageMoveTasksResultEntry: the handle only while the task runs, a reason only
// where it failed)
fn describe(cloud: &Cloud, task: &MoveTask) -> Value {
    let MoveTask { id, source, destination, per_second, moved, to_move, started_at, state } = task;
    let mut value = json!({
        "Status": state.name(),
        "SourceArn": cloud.arn("sqs", source),
        "ApproximateNumberOfMessagesMoved": moved,
        "ApproximateNumberOfMessagesToMove": to_move,
        "StartedTimestamp": started_at.as_millisecond(),
    });
    if let Some(destination) = destination {
        value["DestinationArn"] = json!(cloud.arn("sqs", destination));
    }
    if let Some(per_second) = per_second {
        value["MaxNumberOfMessagesPerSecond"] = json!(per_second);
    }
    match state {
        MoveState::Running => value["TaskHandle"] = json!(handle(cloud, source, id)),
        MoveState::Failed(reason) => value["FailureReason"] = json!(reason),
        MoveState::Completed | MoveState::Cancelled => {}
    }
    value
}

fn named(cloud: &Cloud, parameter: &str, arn: &str) -> Result<String, ApiError> {
    let missing =
        || not_found(&format!("The resource that you specified for the {parameter} parameter doesn't exist."));
    cloud.queue_of(arn).ok_or_else(missing)
}

fn not_found(message: &str) -> ApiError {
    ApiError::new(404, "ResourceNotFoundException", message)
}

fn handle(cloud: &Cloud, source: &str, id: &str) -> String {
    STANDARD.encode(json!({"taskId": id, "sourceArn": cloud.arn("sqs", source)}).to_string())
}

/// A task's id and the ARN of its source.
fn read_handle(handle: &str) -> Result<(String, String), ApiError> {
    let read = || {
        let value: Value = serde_json::from_slice(&STANDARD.decode(handle).ok()?).ok()?;
        Some((value["taskId"].as_str()?.to_owned(), value["sourceArn"].as_str()?.to_owned()))
    };
    read().ok_or_else(|| super::invalid("TaskHandle", handle, "It is not the handle of a task."))
}

/// The ARN of the queue that a task empties, told by its handle.
pub(in crate::actions) fn source_of(handle: &str) -> Option<String> {
    read_handle(handle).ok().map(|(_, source)| source)
}
