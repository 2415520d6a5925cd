//! Message attributes and system attributes: what senders may write, and what receivers ask for.

use super::attributes::unknown_attribute;
use crate::actions::text;
use crate::cloud::queue::{Attribute, AttributeValue, Extras, Message, digest};
use crate::error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// System attributes that can be asked for.
// fidelity: documented(SQS API Reference, ReceiveMessage: MessageSystemAttributeNames); assumed: `SqsManagedSseEnabled`, which
// the page lists too, is accepted and no attribute of a message
const SYSTEM_NAMES: [&str; 11] = [
    "AWSTraceHeader",
    "All",
    "ApproximateFirstReceiveTimestamp",
    "ApproximateReceiveCount",
    "DeadLetterQueueSourceArn",
    "MessageDeduplicationId",
    "MessageGroupId",
    "SenderId",
    "SentTimestamp",
    "SequenceNumber",
    "SqsManagedSseEnabled",
];

/// The attributes of a message to send.
// fidelity: documented(SQS Developer Guide, Message metadata: names, types, at most ten attributes); assumed: wording
pub(super) fn read(entry: &Value) -> Result<BTreeMap<String, Attribute>, ApiError> {
    let given = entry.get("MessageAttributes").and_then(Value::as_object);
    let count = given.map_or(0, Map::len);
    if count > 10 {
        return Err(ApiError::invalid_value(format!(
            "Number of message attributes [{count}] exceeds the allowed maximum [10]."
        )));
    }
    let attribute = |(name, given): (&String, &Value)| {
        check_name(name)?;
        Ok((name.clone(), read_one(name, given)?))
    };
    given.into_iter().flatten().map(attribute).collect()
}

/// The one system attribute that a sender may set.
// fidelity: documented(SQS API Reference, SendMessage: MessageSystemAttributes, a correctly formatted X-Ray trace header);
// assumed: a header is correct if it has a root; wording
pub(super) fn read_trace_header(entry: &Value) -> Result<Option<Attribute>, ApiError> {
    let mut header = None;
    for (name, given) in entry.get("MessageSystemAttributes").and_then(Value::as_object).into_iter().flatten() {
        if name != "AWSTraceHeader" {
            return Err(ApiError::invalid_value(format!("The message system attribute '{name}' is not supported.")));
        }
        let attribute = read_one(name, given)?;
        let correct = match &attribute.value {
            AttributeValue::Text(text) => text.split(';').any(|part| part.trim().starts_with("Root=")),
            AttributeValue::Bytes(_) => false,
        };
        if !correct || attribute.data_type != "String" {
            return Err(ApiError::invalid_value(
                "The message system attribute 'AWSTraceHeader' must be a String with a correctly formatted X-Ray trace header.",
            ));
        }
        header = Some(attribute);
    }
    Ok(header)
}

fn check_name(name: &str) -> Result<(), ApiError> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
    let lower = name.to_ascii_lowercase();
    let reason = if name.is_empty() || name.len() > 256 {
        "Message attribute name must be between 1 and 256 characters long."
    } else if !name.chars().all(allowed) {
        "Message attribute name can contain the characters A-Z, a-z, 0-9, underscore (_), hyphen (-), and period (.)."
    } else if lower.starts_with("aws.") || lower.starts_with("amazon.") {
        "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for internal use."
    } else if name.starts_with('.') || name.ends_with('.') || name.contains("..") {
        "Message attribute name can not start or end with a period, or have periods in succession."
    } else {
        return Ok(());
    };
    Err(ApiError::invalid_value(format!("The message attribute name '{name}' is invalid. Reason: {reason}")))
}

fn read_one(name: &str, given: &Value) -> Result<Attribute, ApiError> {
    let refuse = |reason: &str| ApiError::invalid_value(format!("The message attribute '{name}' {reason}"));
    let data_type = text(given, "DataType").filter(|data_type| !data_type.is_empty());
    let data_type = data_type.ok_or_else(|| refuse("must contain a non-empty message attribute type."))?;
    let kind = data_type.split('.').next().unwrap_or_default();
    if data_type.len() > 256 || !["Binary", "Number", "String"].contains(&kind) {
        return Err(refuse(
            "has an invalid message attribute type, the set of supported type prefixes is Binary, Number, and String.",
        ));
    }
    let (string, binary) = (text(given, "StringValue"), text(given, "BinaryValue"));
    let empty =
        || refuse(&format!("must contain a non-empty message attribute value for message attribute type '{kind}'."));
    let value = match (kind, string, binary) {
        (_, Some(_), Some(_)) => return Err(refuse("can only have one value.")),
        ("Binary", None, Some(encoded)) => {
            let bytes = STANDARD.decode(encoded).map_err(|_| refuse("has a binary value that is not base64."))?;
            AttributeValue::Bytes(if bytes.is_empty() { return Err(empty()) } else { bytes })
        }
        ("String" | "Number", Some(text), None) if !text.is_empty() => {
            if kind == "Number" && !is_number(text) {
                return Err(ApiError::invalid_value(format!(
                    "Can't cast the value of message (user) attribute '{name}' to a number."
                )));
            }
            check_characters(text)?;
            AttributeValue::Text(text.into())
        }
        _ => return Err(empty()),
    };
    Ok(Attribute { data_type: data_type.into(), value })
}

// fidelity: documented(SQS Developer Guide, Message metadata: numbers have up to 38 digits of precision, between 10^-128 and
// 10^126 in magnitude)
fn is_number(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let well_formed = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    let magnitude = text.parse::<f64>().map(f64::abs);
    well_formed
        && digits.trim_matches('0').len() <= 38
        && magnitude.is_ok_and(|value| value == 0.0 || (1e-128..=1e126).contains(&value))
}

/// Refuses characters that XML 1.0 has no way to write.
// fidelity: documented(SQS API Reference, SendMessage: the set of allowed characters, InvalidMessageContents)
pub(super) fn check_characters(text: &str) -> Result<(), ApiError> {
    let allowed = |character: char| match character {
        '\t' | '\n' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        other => other >= ' ',
    };
    match text.chars().find(|character| !allowed(*character)) {
        None => Ok(()),
        Some(character) => Err(ApiError::client(
            "InvalidMessageContents",
            format!("Invalid characters found: '{}' (#x{:x})", character.escape_unicode(), u32::from(character)),
        )),
    }
}

/// Which system attributes a receiver asks for.
pub(super) fn check_system_names(asked: &[&str]) -> Result<(), ApiError> {
    match asked.iter().find(|name| !SYSTEM_NAMES.contains(name)) {
        Some(unknown) => Err(unknown_attribute(unknown)),
        None => Ok(()),
    }
}

/// The system attributes of a message that are asked for.
pub(super) fn system(message: &Message, asked: &[&str]) -> Map<String, Value> {
    let time = |at: Timestamp| at.as_millisecond().to_string();
    let extras = message.extras();
    let extra = |read: fn(&Extras) -> &Option<String>| extras.and_then(|extras| read(extras).clone());
    let all = [
        ("SenderId", Some(message.sender.to_string())),
        ("SentTimestamp", Some(time(message.sent_at))),
        ("ApproximateReceiveCount", Some(message.receive_count.to_string())),
        ("ApproximateFirstReceiveTimestamp", message.first_received_at.map(time)),
        ("AWSTraceHeader", extra(|extras| &extras.trace_header)),
        ("MessageGroupId", extra(|extras| &extras.group)),
        ("MessageDeduplicationId", extra(|extras| &extras.deduplication_id)),
        ("SequenceNumber", extra(|extras| &extras.sequence)),
        ("DeadLetterQueueSourceArn", extra(|extras| &extras.dead_letter_source)),
    ];
    let wanted = |name: &str| asked.iter().any(|asked| *asked == "All" || *asked == name);
    let chosen = all.into_iter().filter(|(name, _)| wanted(name));
    chosen.filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?)))).collect()
}

/// The attributes of a message that are asked for, and their digest.
// fidelity: documented(SQS API Reference, ReceiveMessage: MessageAttributeNames, `All`, `.*` and prefixes); assumed: the digest is
// of the attributes that are answered
pub(super) fn chosen(message: &Message, asked: &[&str]) -> Option<(Value, String)> {
    let wanted = |name: &str| {
        asked.iter().any(|asked| match asked.strip_suffix(".*") {
            Some(prefix) => name.starts_with(prefix),
            None => *asked == "All" || *asked == name,
        })
    };
    let attributes: BTreeMap<&String, &Attribute> =
        message.extras()?.attributes.iter().filter(|(name, _)| wanted(name)).collect();
    if attributes.is_empty() {
        return None;
    }
    let digest = digest(attributes.iter().map(|(name, attribute)| (*name, *attribute)));
    let members = attributes.into_iter().map(|(name, Attribute { data_type, value })| {
        let value = match value {
            AttributeValue::Text(text) => json!({"DataType": data_type, "StringValue": text}),
            AttributeValue::Bytes(bytes) => json!({"DataType": data_type, "BinaryValue": STANDARD.encode(bytes)}),
        };
        (name.clone(), value)
    });
    Some((Value::Object(members.collect()), digest))
}
