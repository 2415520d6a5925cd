//! Queues themselves: create, find, describe, tag, delete.

use super::{attributes, invalid, is_account, queue, queue_name, range, required, texts};
use crate::actions::{string_map, text};
use crate::cloud::Cloud;
use crate::cloud::queue::{Queue, SETTLING_S, Settings, later, no_queue};
use crate::cloud::tags::{self, Tags};
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

// fidelity: documented(SQS API Reference, CreateQueue: an existing queue is answered if all attributes are the same, else
// QueueNameExists; QueueDeletedRecently within 60 seconds); assumed: wording
pub(super) fn create(cloud: &mut Cloud, now: Timestamp, input: &Value) -> Result<Value, ApiError> {
    let name = required(input, "QueueName")?;
    let given = string_map(input, "Attributes");
    let initial = attributes::initial(name, &given)?;
    let settings = attributes::change(cloud, name, initial, &given)?;
    let url = json!({"QueueUrl": cloud.queue_url(name)});
    if let Some(known) = cloud.queues.get(name) {
        return match difference(&known.settings, &settings) {
            None => Ok(url),
            Some(attribute) => {
                let message = format!(
                    "A queue already exists with the same name and a different value for attribute {attribute}"
                );
                Err(ApiError::client("QueueNameExists", message))
            }
        };
    }
    if cloud.deleted_queues.get(name).is_some_and(|deleted_at| now < later(*deleted_at, SETTLING_S)) {
        let message =
            "You must wait 60 seconds after deleting a queue before you can create another with the same name.";
        return Err(ApiError::client("QueueDeletedRecently", message));
    }
    let tags = string_map(input, "tags");
    check_tags(&Tags::new(), &tags)?;
    cloud.queues.insert(name.to_owned(), Queue::with(now, settings, tags));
    Ok(url)
}

/// The first attribute in which two queues differ.
fn difference(known: &Settings, wanted: &Settings) -> Option<String> {
    let (known, wanted) = (known.attributes(), wanted.attributes());
    let names: BTreeSet<&String> = known.keys().chain(wanted.keys()).collect();
    names.into_iter().find(|name| known.get(*name) != wanted.get(*name)).cloned()
}

// fidelity: documented(SQS API Reference, DeleteQueue); assumed: the queue is gone at once, and a long poll on it is refused
pub(super) fn delete(cloud: &mut Cloud, now: Timestamp, input: &Value) -> Result<Value, ApiError> {
    let name = queue_name(cloud, input)?;
    cloud.queues.remove(&name);
    cloud.move_tasks.retain(|task| task.source != name);
    cloud.deleted_queues.retain(|_, deleted_at| now < later(*deleted_at, SETTLING_S));
    cloud.deleted_queues.insert(name, now);
    // Whoever polls it is told.
    cloud.revision += 1;
    Ok(Value::Null)
}

pub(super) fn get_url(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = required(input, "QueueName")?;
    let owner = text(input, "QueueOwnerAWSAccountId").unwrap_or(&cloud.config.account);
    if !is_account(owner) {
        return Err(invalid("QueueOwnerAWSAccountId", owner, "Must be an account id of 12 digits."));
    }
    match cloud.queues.contains_key(name) && owner == cloud.config.account {
        true => Ok(json!({"QueueUrl": cloud.queue_url(name)})),
        false => Err(no_queue()),
    }
}

pub(super) fn list(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let prefix = text(input, "QueueNamePrefix").unwrap_or_default();
    let names = cloud.queues.keys().filter(|name| name.starts_with(prefix));
    let (urls, next) = page_of_urls(cloud, input, names)?;
    let mut answer = json!({});
    if !urls.is_empty() {
        answer["QueueUrls"] = json!(urls);
    }
    if let Some(next) = next {
        answer["NextToken"] = json!(next);
    }
    Ok(answer)
}

/// One page of these queues' URLs, and the token of the next if the caller set the size of pages.
// fidelity: documented(SQS API Reference, ListQueues: 1,000 results, and no token without MaxResults)
pub(super) fn page_of_urls<'a>(
    cloud: &Cloud,
    input: &Value,
    names: impl Iterator<Item = &'a String>,
) -> Result<(Vec<String>, Option<String>), ApiError> {
    let size = range(input, "MaxResults", 1, 1000)?;
    let bounds = Bounds { minimum: 1, maximum: 1000, default: 1000 };
    let page = Page::new(size, text(input, "NextToken"), bounds)
        .map_err(|_| ApiError::invalid_value("Invalid or expired next token."))?;
    let paged = page.cut(names, |name| (*name).clone());
    let urls = paged.items.into_iter().map(|name| cloud.queue_url(name)).collect();
    Ok((urls, paged.next.filter(|_| size.is_some())))
}

// fidelity: documented(SQS API Reference, GetQueueAttributes: without names there is nothing)
pub(super) fn get_attributes(cloud: &mut Cloud, now: Timestamp, input: &Value) -> Result<Value, ApiError> {
    let name = queue_name(cloud, input)?;
    let asked: Vec<&str> = texts(input, "AttributeNames").collect();
    attributes::check_names(&asked)?;
    let arn = cloud.arn("sqs", &name);
    let queue = cloud.queues.get_mut(&name).ok_or_else(no_queue)?;
    let (visible, in_flight, delayed) = queue.counts(now);
    let mut all = queue.settings.attributes();
    for (name, value) in [
        ("QueueArn", arn),
        ("ApproximateNumberOfMessages", visible.to_string()),
        ("ApproximateNumberOfMessagesNotVisible", in_flight.to_string()),
        ("ApproximateNumberOfMessagesDelayed", delayed.to_string()),
        ("CreatedTimestamp", queue.created_at.as_second().to_string()),
        ("LastModifiedTimestamp", queue.modified_at.as_second().to_string()),
    ] {
        all.insert(name.to_owned(), value);
    }
    all.retain(|name, _| asked.iter().any(|asked| *asked == "All" || asked == name));
    Ok(if all.is_empty() { json!({}) } else { json!({"Attributes": all}) })
}

pub(super) fn set_attributes(cloud: &mut Cloud, now: Timestamp, input: &Value) -> Result<Value, ApiError> {
    let name = queue_name(cloud, input)?;
    let given = string_map(input, "Attributes");
    if given.is_empty() {
        return Err(ApiError::missing("Attributes"));
    }
    let present = queue(cloud, input)?.settings.clone();
    let settings = attributes::change(cloud, &name, present, &given)?;
    queue(cloud, input)?.configure(now, settings);
    // A changed delay may make messages visible for which somebody waits.
    cloud.revision += 1;
    Ok(Value::Null)
}

pub(super) fn list_tags(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let tags = &queue(cloud, input)?.tags;
    Ok(if tags.is_empty() { json!({}) } else { json!({"Tags": tags}) })
}

pub(super) fn tag(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let queue = queue(cloud, input)?;
    let added = string_map(input, "Tags");
    if added.is_empty() {
        return Err(ApiError::missing("Tags"));
    }
    check_tags(&queue.tags, &added)?;
    queue.tags.extend(added);
    Ok(Value::Null)
}

pub(super) fn untag(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let queue = queue(cloud, input)?;
    let keys: BTreeSet<&str> = texts(input, "TagKeys").collect();
    if keys.is_empty() {
        return Err(ApiError::missing("TagKeys"));
    }
    queue.tags.retain(|key, _| !keys.contains(key.as_str()));
    Ok(Value::Null)
}

// fidelity: documented(SQS Developer Guide, Tagging queues: the restrictions are those of AWS); assumed: SQS has one code for
// all of them
fn check_tags(present: &Tags, added: &Tags) -> Result<(), ApiError> {
    tags::check(present, added).map_err(|error| ApiError::invalid_value(error.message))
}
