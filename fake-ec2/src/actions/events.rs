//! EventBridge: rules on the default bus, their targets, and events of one's own.

use super::{Context, text, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::bus::{Rule, check_pattern};
use crate::error::ApiError;
use crate::wire::{Reply, Service};
use serde_json::{Value, json};

// fidelity: documented(EventBridge API Reference: each action); assumed: a queue's policy is not consulted.
pub(super) fn perform(cloud: &mut Cloud, context: &Context, action: &str, input: &Value) -> Result<Reply, ApiError> {
    let value = match action {
        "PutRule" => put_rule(cloud, input)?,
        "PutTargets" => put_targets(cloud, input)?,
        "RemoveTargets" => remove_targets(cloud, input)?,
        "DeleteRule" => delete_rule(cloud, input)?,
        "DescribeRule" => {
            let name = rule_name(cloud, input)?;
            describe(&name, &cloud.bus.rules[&name])
        }
        "ListRules" => {
            let prefix = text(input, "NamePrefix").unwrap_or_default();
            let rules = cloud.bus.rules.iter().filter(|(name, _)| name.starts_with(prefix));
            json!({"Rules": rules.map(|(name, rule)| describe(name, rule)).collect::<Vec<_>>()})
        }
        "ListTargetsByRule" => {
            let name = text(input, "Rule").unwrap_or_default();
            let rule = cloud.bus.rules.get(name).ok_or_else(|| not_found(name))?;
            json!({"Targets": rule.targets.iter().map(|(id, arn)| json!({"Id": id, "Arn": arn})).collect::<Vec<_>>()})
        }
        "PutEvents" => put_events(cloud, context, input)?,
        _ => return Err(unknown_action(Service::EventBridge, action)),
    };
    Ok(Reply::Json(value))
}

fn put_rule(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = text(input, "Name").ok_or_else(|| validation("Name"))?.to_owned();
    let Some(pattern) = text(input, "EventPattern") else {
        return Err(ApiError::client(
            "ValidationException",
            "Rules on a schedule are not played here; give an EventPattern.",
        ));
    };
    let pattern = check_pattern(pattern)?;
    let enabled = text(input, "State") != Some("DISABLED");
    let description = text(input, "Description").unwrap_or_default().to_owned();
    let arn = cloud.arn("events", &format!("rule/{name}"));
    let targets = cloud.bus.rules.remove(&name).map(|rule| rule.targets).unwrap_or_default();
    cloud.bus.rules.insert(name, Rule { arn: arn.clone(), pattern, enabled, description, targets });
    Ok(json!({"RuleArn": arn}))
}

fn put_targets(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = text(input, "Rule").ok_or_else(|| validation("Rule"))?;
    let rule = cloud.bus.rules.get_mut(name).ok_or_else(|| not_found(name))?;
    let mut failed = Vec::new();
    for target in input.get("Targets").and_then(Value::as_array).into_iter().flatten() {
        match (text(target, "Id"), text(target, "Arn")) {
            (Some(id), Some(arn)) if arn.starts_with("arn:aws:sqs:") => {
                drop(rule.targets.insert(id.into(), arn.into()))
            }
            (id, _) => {
                tracing::warn!(rule = name, target = id, "only SQS queues can be targets here");
                failed.push(json!({"TargetId": id, "ErrorCode": "ValidationException", "ErrorMessage": "Only SQS queues can be targets here."}));
            }
        }
    }
    Ok(json!({"FailedEntryCount": failed.len(), "FailedEntries": failed}))
}

fn remove_targets(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = text(input, "Rule").ok_or_else(|| validation("Rule"))?;
    let rule = cloud.bus.rules.get_mut(name).ok_or_else(|| not_found(name))?;
    for id in input.get("Ids").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        rule.targets.remove(id);
    }
    Ok(json!({"FailedEntryCount": 0, "FailedEntries": []}))
}

fn delete_rule(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = text(input, "Name").ok_or_else(|| validation("Name"))?;
    if cloud.bus.rules.get(name).is_some_and(|rule| !rule.targets.is_empty()) {
        return Err(ApiError::client("ValidationException", "Rule can't be deleted since it has targets."));
    }
    // Deleting what does not exist succeeds.
    cloud.bus.rules.remove(name);
    Ok(json!({}))
}

fn put_events(cloud: &mut Cloud, context: &Context, input: &Value) -> Result<Value, ApiError> {
    let entries = input.get("Entries").and_then(Value::as_array).filter(|entries| (1..=10).contains(&entries.len()));
    let entries = entries.ok_or_else(|| validation("Entries"))?;
    let (mut answers, mut failures) = (Vec::new(), 0);
    for entry in entries {
        let detail = text(entry, "Detail")
            .and_then(|detail| serde_json::from_str::<Value>(detail).ok())
            .filter(Value::is_object);
        let (Some(source), Some(kind), Some(detail)) = (text(entry, "Source"), text(entry, "DetailType"), detail)
        else {
            failures += 1;
            answers.push(json!({"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}));
            continue;
        };
        let resources = entry.get("Resources").and_then(Value::as_array).into_iter().flatten();
        let resources: Vec<String> = resources.filter_map(|resource| resource.as_str().map(str::to_owned)).collect();
        let id = cloud.emit(context.now, source, kind, &resources, detail);
        answers.push(json!({"EventId": id}));
    }
    Ok(json!({"FailedEntryCount": failures, "Entries": answers}))
}

fn rule_name(cloud: &Cloud, input: &Value) -> Result<String, ApiError> {
    let name = text(input, "Name").unwrap_or_default();
    cloud.bus.rules.contains_key(name).then(|| name.to_owned()).ok_or_else(|| not_found(name))
}

fn describe(name: &str, rule: &Rule) -> Value {
    json!({
        "Name": name,
        "Arn": rule.arn,
        "EventPattern": rule.pattern.to_string(),
        "State": if rule.enabled { "ENABLED" } else { "DISABLED" },
        "Description": rule.description,
        "EventBusName": "default",
    })
}

fn not_found(name: &str) -> ApiError {
    ApiError::client("ResourceNotFoundException", format!("Rule {name} does not exist on EventBus default."))
}

fn validation(member: &str) -> ApiError {
    let message = format!("1 validation error detected: Value at '{member}' failed to satisfy constraint");
    ApiError::client("ValidationException", message)
}
