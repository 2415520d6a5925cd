//! The attributes of queues: names, ranges, and what they say of other queues.

use crate::cloud::Cloud;
use crate::cloud::queue::{FifoSettings, MAX_MESSAGE_BYTES, RedriveAllowPolicy, RedrivePolicy, Settings};
use crate::error::ApiError;
use crate::iam::policy::{Kind, Policy};
use serde_json::Value;
use std::collections::BTreeMap;

type Attributes = BTreeMap<String, String>;

/// Every attribute that can be asked for.
// fidelity: documented(SQS API Reference, GetQueueAttributes)
const NAMES: [&str; 22] = [
    "All",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "ContentBasedDeduplication",
    "CreatedTimestamp",
    "DeduplicationScope",
    "DelaySeconds",
    "FifoQueue",
    "FifoThroughputLimit",
    "KmsDataKeyReusePeriodSeconds",
    "KmsMasterKeyId",
    "LastModifiedTimestamp",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "Policy",
    "QueueArn",
    "ReceiveMessageWaitTimeSeconds",
    "RedriveAllowPolicy",
    "RedrivePolicy",
    "SqsManagedSseEnabled",
    "VisibilityTimeout",
];

pub(super) fn check_names(asked: &[&str]) -> Result<(), ApiError> {
    match asked.iter().find(|name| !NAMES.contains(name)) {
        Some(unknown) => Err(unknown_attribute(unknown)),
        None => Ok(()),
    }
}

/// What a new queue starts from: of which kind it is, which its name has to tell.
// fidelity: documented(SQS API Reference, CreateQueue: QueueName, FifoQueue); assumed: wording
pub(super) fn initial(name: &str, given: &Attributes) -> Result<Settings, ApiError> {
    let fifo = match given.get("FifoQueue") {
        Some(value) => boolean("FifoQueue", value)?,
        None => false,
    };
    let stem = if fifo { name.strip_suffix(".fifo").unwrap_or_default() } else { name };
    let allowed = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    if stem.is_empty() || name.len() > 80 || !stem.chars().all(allowed) {
        return Err(ApiError::invalid_value(match fifo {
            true => {
                "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length."
            }
            false => "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        }));
    }
    Ok(Settings { fifo: fifo.then(FifoSettings::default), ..Settings::default() })
}

/// The settings of queue `name` with these attributes changed.
// fidelity: documented(SQS API Reference, SetQueueAttributes: names, ranges, InvalidAttributeName, InvalidAttributeValue)
pub(super) fn change(
    cloud: &Cloud,
    name: &str,
    mut settings: Settings,
    given: &Attributes,
) -> Result<Settings, ApiError> {
    for (attribute, value) in given {
        let number = |minimum: i64, maximum: i64| {
            let number = value.parse::<i64>().ok().filter(|number| (minimum..=maximum).contains(number));
            number.ok_or_else(|| invalid_attribute(attribute))
        };
        match attribute.as_str() {
            "VisibilityTimeout" => settings.visibility_timeout_s = number(0, 43_200)?,
            "DelaySeconds" => settings.delay_s = number(0, 900)?,
            "MessageRetentionPeriod" => settings.retention_s = number(60, 1_209_600)?,
            "ReceiveMessageWaitTimeSeconds" => settings.wait_s = number(0, 20)?,
            "MaximumMessageSize" => settings.maximum_bytes = number(1024, MAX_MESSAGE_BYTES as i64)? as usize,
            "Policy" => set_policy(&mut settings, value)?,
            "RedrivePolicy" => {
                settings.redrive =
                    if value.is_empty() { None } else { Some(redrive_policy(cloud, name, &settings, value)?) };
            }
            "RedriveAllowPolicy" => {
                settings.redrive_allow = if value.is_empty() { None } else { Some(redrive_allow_policy(value)?) };
            }
            "SqsManagedSseEnabled" | "KmsMasterKeyId" | "KmsDataKeyReusePeriodSeconds" => {
                set_encryption(&mut settings, attribute, value, given)?;
            }
            "FifoQueue" => {
                if boolean(attribute, value)? != settings.fifo.is_some() {
                    let message =
                        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.";
                    return Err(ApiError::client("InvalidAttributeValue", message));
                }
            }
            "ContentBasedDeduplication" | "DeduplicationScope" | "FifoThroughputLimit" => {
                let fifo = settings.fifo.as_mut().ok_or_else(|| unknown_attribute(attribute))?;
                set_fifo(fifo, attribute, value)?;
            }
            _ => return Err(unknown_attribute(attribute)),
        }
    }
    // fidelity: documented(SQS API Reference, CreateQueue: perMessageGroupId only where the scope is messageGroup)
    match settings.fifo.as_ref().is_some_and(|fifo| fifo.limit_by_group && !fifo.by_group) {
        true => Err(invalid_attribute("FifoThroughputLimit")),
        false => Ok(settings),
    }
}

/// An empty one takes the policy away.
fn set_policy(settings: &mut Settings, value: &str) -> Result<(), ApiError> {
    if value.is_empty() {
        settings.texts.remove("Policy");
        return Ok(());
    }
    Policy::parse(value, Kind::Resource).map_err(|_| invalid_attribute("Policy"))?;
    settings.texts.insert("Policy".into(), value.into());
    Ok(())
}

// fidelity: documented(SQS API Reference, SetQueueAttributes: one kind of encryption at a time; a data key is reused between
// one minute and one day)
fn set_encryption(settings: &mut Settings, attribute: &str, value: &str, given: &Attributes) -> Result<(), ApiError> {
    match attribute {
        "SqsManagedSseEnabled" => {
            let managed = boolean(attribute, value)?;
            if managed && given.get("KmsMasterKeyId").is_some_and(|key| !key.is_empty()) {
                return Err(invalid_attribute(attribute));
            }
            if managed {
                settings.texts.remove("KmsMasterKeyId");
            }
        }
        "KmsMasterKeyId" if value.is_empty() => {
            settings.texts.remove(attribute);
            return Ok(());
        }
        "KmsMasterKeyId" => drop(settings.texts.insert("SqsManagedSseEnabled".into(), "false".into())),
        _ => {
            let seconds = value.parse::<u32>().ok().filter(|seconds| (60..=86_400).contains(seconds));
            seconds.ok_or_else(|| invalid_attribute(attribute))?;
        }
    }
    settings.texts.insert(attribute.into(), value.into());
    Ok(())
}

fn set_fifo(fifo: &mut FifoSettings, attribute: &str, value: &str) -> Result<(), ApiError> {
    match (attribute, value) {
        ("ContentBasedDeduplication", _) => fifo.content_based_deduplication = boolean(attribute, value)?,
        ("DeduplicationScope", "queue" | "messageGroup") => fifo.by_group = value == "messageGroup",
        ("FifoThroughputLimit", "perQueue" | "perMessageGroupId") => fifo.limit_by_group = value == "perMessageGroupId",
        _ => return Err(invalid_attribute(attribute)),
    }
    Ok(())
}

// fidelity: documented(SQS API Reference, CreateQueue: RedrivePolicy, maxReceiveCount of 10 by default; both queues are of
// the same type; SQS Developer Guide, Dead-letter queues: 1 to 1,000 receives); assumed: wording
fn redrive_policy(cloud: &Cloud, name: &str, settings: &Settings, value: &str) -> Result<RedrivePolicy, ApiError> {
    let refuse = |reason: &str| super::invalid("RedrivePolicy", value, reason);
    let policy: Value = serde_json::from_str(value).map_err(|_| refuse("Redrive policy is not a valid JSON map."))?;
    let policy = policy.as_object().ok_or_else(|| refuse("Redrive policy is not a valid JSON map."))?;
    if let Some(key) = policy.keys().find(|key| !["deadLetterTargetArn", "maxReceiveCount"].contains(&key.as_str())) {
        return Err(refuse(&format!("Redrive policy contains an unknown attribute: {key}.")));
    }
    let arn = policy.get("deadLetterTargetArn").and_then(Value::as_str);
    let arn = arn.ok_or_else(|| refuse("Redrive policy does not contain mandatory attribute: deadLetterTargetArn."))?;
    let given = policy.get("maxReceiveCount").unwrap_or(&Value::Null);
    let count = match given {
        Value::Null => Some(10),
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    };
    let max_receive_count = count.filter(|count| (1..=1000).contains(count)).ok_or_else(|| {
        refuse(&format!(
            "Invalid value for maxReceiveCount: {}, valid values are from 1 to 1000 both inclusive.",
            given.to_string().trim_matches('"')
        ))
    })? as u32;
    let target = cloud.queue_of(arn).and_then(|target| cloud.queues.get(&target));
    let target = target.ok_or_else(|| refuse("Dead letter target does not exist."))?;
    if target.settings.fifo.is_some() != settings.fifo.is_some() {
        return Err(refuse("Dead-letter queue must be same type of queue as the source."));
    }
    let source = cloud.arn("sqs", name);
    if target.settings.redrive_allow.as_ref().is_some_and(|policy| !policy.allows(&source)) {
        return Err(refuse("The dead-letter queue does not allow this queue as its source."));
    }
    Ok(RedrivePolicy { dead_letter_target_arn: arn.into(), max_receive_count })
}

// fidelity: documented(SQS API Reference, CreateQueue: RedriveAllowPolicy, sourceQueueArns with byQueue alone, at most ten);
// assumed: wording
fn redrive_allow_policy(value: &str) -> Result<RedriveAllowPolicy, ApiError> {
    let refuse = |reason: &str| super::invalid("RedriveAllowPolicy", value, reason);
    let policy: Value = serde_json::from_str(value).map_err(|_| refuse("Not a valid JSON map."))?;
    let sources = policy.get("sourceQueueArns").and_then(Value::as_array);
    let arns: Vec<String> = sources.into_iter().flatten().filter_map(|arn| arn.as_str().map(str::to_owned)).collect();
    match (policy.get("redrivePermission").and_then(Value::as_str), sources) {
        (Some("allowAll"), None) => Ok(RedriveAllowPolicy::Everybody),
        (Some("denyAll"), None) => Ok(RedriveAllowPolicy::Nobody),
        (Some("byQueue"), Some(_)) if (1..=10).contains(&arns.len()) => Ok(RedriveAllowPolicy::ByQueue(arns)),
        (Some("byQueue"), _) => Err(refuse("byQueue needs one to ten sourceQueueArns.")),
        (Some("allowAll" | "denyAll"), Some(_)) => Err(refuse("sourceQueueArns can only be given with byQueue.")),
        _ => Err(refuse("redrivePermission must be allowAll, denyAll or byQueue.")),
    }
}

fn boolean(attribute: &str, value: &str) -> Result<bool, ApiError> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(invalid_attribute(attribute)),
    }
}

fn invalid_attribute(attribute: &str) -> ApiError {
    ApiError::client("InvalidAttributeValue", format!("Invalid value for the parameter {attribute}."))
}

pub(super) fn unknown_attribute(attribute: &str) -> ApiError {
    ApiError::client("InvalidAttributeName", format!("Unknown Attribute {attribute}."))
}
