//! The older query protocol: the form becomes the JSON input, the JSON answer becomes flat XML.

use crate::actions::{Context, Step};
use crate::cloud::Cloud;
use crate::wire::Reply;
use crate::wire::error::query_code;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use serde_json::{Map, Value, json};

/// Parameters with one value.
const SINGLE: [&str; 21] = [
    "DelaySeconds",
    "DestinationArn",
    "Id",
    "Label",
    "MaxNumberOfMessages",
    "MaxNumberOfMessagesPerSecond",
    "MaxResults",
    "MessageBody",
    "MessageDeduplicationId",
    "MessageGroupId",
    "NextToken",
    "QueueName",
    "QueueNamePrefix",
    "QueueOwnerAWSAccountId",
    "QueueUrl",
    "ReceiptHandle",
    "ReceiveRequestAttemptId",
    "SourceArn",
    "TaskHandle",
    "VisibilityTimeout",
    "WaitTimeSeconds",
];
/// Lists of texts: their names here and in JSON.
const LISTS: [(&str, &str); 6] = [
    ("AWSAccountId", "AWSAccountIds"),
    ("ActionName", "Actions"),
    ("AttributeName", "AttributeNames"),
    ("MessageAttributeName", "MessageAttributeNames"),
    ("MessageSystemAttributeName", "MessageSystemAttributeNames"),
    ("TagKey", "TagKeys"),
];

pub(in crate::actions) fn perform(cloud: &mut Cloud, context: &Context, action: &str, query: &Query<'_>) -> Step {
    let input = input(action, query);
    let answered = match super::perform(cloud, context, action, &input) {
        Step::Done(Ok(Reply::Json(value))) => Ok(Reply::Xml(flat_xml(action, &value))),
        Step::Done(result) => result,
        Step::WaitUntil(deadline) => return Step::WaitUntil(deadline),
    };
    Step::Done(answered.map_err(|mut refused| {
        refused.error.code = query_code(&refused.error.code).to_owned().into();
        refused
    }))
}

fn input(action: &str, query: &Query<'_>) -> Value {
    let mut input = members(query);
    for (name, json_name) in LISTS {
        let values = query.list(name);
        if !values.is_empty() {
            input.insert(json_name.to_owned(), json!(values));
        }
    }
    let attributes = map(query, &["Attribute", "Attributes.entry", "Attributes"]);
    if !attributes.is_empty() {
        input.insert("Attributes".to_owned(), Value::Object(attributes));
    }
    let tags = map(query, &["Tag", "Tags", "Tags.entry", "tags.entry"]);
    if !tags.is_empty() {
        input.insert(if action == "CreateQueue" { "tags" } else { "Tags" }.to_owned(), Value::Object(tags));
    }
    let entries = query.structures(&format!("{action}RequestEntry"));
    if !entries.is_empty() {
        input.insert("Entries".to_owned(), entries.iter().map(|entry| Value::Object(members(entry))).collect());
    }
    Value::Object(input)
}

/// What a request and the entry of a batch have alike.
fn members(query: &Query<'_>) -> Map<String, Value> {
    let single = SINGLE.iter().filter_map(|name| Some(((*name).to_owned(), json!(query.text(name)?))));
    let mut members: Map<String, Value> = single.collect();
    for (name, json_name) in
        [("MessageAttribute", "MessageAttributes"), ("MessageSystemAttribute", "MessageSystemAttributes")]
    {
        let attributes = message_attributes(query, name);
        if !attributes.is_empty() {
            members.insert(json_name.to_owned(), Value::Object(attributes));
        }
    }
    members
}

/// A map, in whichever of these forms it came: `Attribute.1.Name` and `.Value`, or `Attributes.entry.1.key` and `.value`.
fn map(query: &Query<'_>, names: &[&str]) -> Map<String, Value> {
    let parts = names.iter().flat_map(|name| query.structures(name));
    let pair = |part: Query<'_>| {
        let key = ["Name", "Key", "key"].iter().find_map(|name| part.owned(name))?;
        let value = ["Value", "value"].iter().find_map(|name| part.text(name)).unwrap_or_default();
        Some((key, json!(value)))
    };
    parts.filter_map(pair).collect()
}

fn message_attributes(query: &Query<'_>, name: &str) -> Map<String, Value> {
    let parts = [name.to_owned(), format!("{name}s.entry")];
    let attribute = |part: Query<'_>| {
        let key = ["Name", "key"].iter().find_map(|name| part.owned(name))?;
        let value = part.structure("Value").or_else(|| part.structure("value"));
        let members = ["DataType", "StringValue", "BinaryValue"]
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), json!(value.as_ref()?.text(name)?))));
        Some((key, Value::Object(members.collect())))
    };
    parts.iter().flat_map(|name| query.structures(name)).filter_map(attribute).collect()
}

fn flat_xml(action: &str, value: &Value) -> String {
    let mut xml = Xml::new();
    write_members(&mut xml, action, value);
    xml.into_string()
}

/// The member of a list, told by the list's name.
fn element(action: &str, list: &str) -> Option<String> {
    Some(match list {
        "Messages" => "Message".into(),
        // Of the batches, each kind after its action.
        "Successful" => format!("{action}ResultEntry"),
        "Failed" => "BatchResultErrorEntry".into(),
        "QueueUrls" | "queueUrls" => "QueueUrl".into(),
        "Results" => "ListMessageMoveTasksResultEntry".into(),
        _ => return None,
    })
}

fn write_members(xml: &mut Xml, action: &str, value: &Value) {
    for (name, member) in value.as_object().into_iter().flatten() {
        match (name.as_str(), member) {
            ("Attributes", Value::Object(map)) => write_map(xml, "Attribute", "Name", map),
            ("Tags", Value::Object(map)) => write_map(xml, "Tag", "Key", map),
            ("MessageAttributes", Value::Object(map)) => {
                for (name, value) in map {
                    xml.element("MessageAttribute", |xml| {
                        xml.text("Name", name);
                        xml.element("Value", |xml| write_members(xml, action, value));
                    });
                }
            }
            (list, Value::Array(values)) => {
                let Some(name) = element(action, list) else { continue };
                for value in values {
                    match value {
                        Value::String(text) => xml.text(&name, text),
                        structure => xml.element(&name, |xml| write_members(xml, action, structure)),
                    }
                }
            }
            (name, Value::String(text)) => xml.text(name, text),
            (name, value @ (Value::Bool(_) | Value::Number(_))) => xml.value(name, value),
            _ => {}
        }
    }
}

fn write_map(xml: &mut Xml, element: &str, key: &str, map: &Map<String, Value>) {
    for (name, value) in map {
        xml.element(element, |xml| {
            xml.text(key, name);
            xml.text("Value", value.as_str().unwrap_or_default());
        });
    }
}
