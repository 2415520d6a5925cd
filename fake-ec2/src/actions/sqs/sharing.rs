//! Permissions by label: statements of the queue's policy.

use super::{invalid, is_account, queue, queue_name, required, texts};
use crate::cloud::Cloud;
use crate::error::ApiError;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What may be shared; the rest is the owner's.
// fidelity: documented(SQS Developer Guide, Limitations of custom policies: cross-account permissions do not apply to the
// actions that are left out here)
const SHAREABLE: [&str; 9] = [
    "*",
    "ChangeMessageVisibility",
    "DeleteMessage",
    "GetQueueAttributes",
    "GetQueueUrl",
    "ListDeadLetterSourceQueues",
    "PurgeQueue",
    "ReceiveMessage",
    "SendMessage",
];
// fidelity: documented(SQS API Reference, AddPermission: at most seven actions per statement)
const MAX_ACTIONS: usize = 7;
// fidelity: documented(SQS Developer Guide, Quotas related to policies: 20 statements)
const MAX_STATEMENTS: usize = 20;

// fidelity: documented(SQS API Reference, AddPermission); assumed: the form of the statement, wording
pub(super) fn add(cloud: &mut Cloud, now: Timestamp, input: &Value) -> Result<Value, ApiError> {
    let arn = cloud.arn("sqs", &queue_name(cloud, input)?);
    let label = required(input, "Label")?;
    let allowed = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    if label.len() > 80 || !label.chars().all(allowed) {
        let reason = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";
        return Err(invalid("Label", label, reason));
    }
    let accounts: Vec<&str> = texts(input, "AWSAccountIds").collect();
    let actions: Vec<&str> = texts(input, "Actions").collect();
    check(&accounts, &actions)?;
    let queue = queue(cloud, input)?;
    let mut policy = present(queue.settings.texts.get("Policy"))
        .unwrap_or_else(|| json!({"Version": "2012-10-17", "Id": format!("{arn}/SQSDefaultPolicy"), "Statement": []}));
    let statements = statements(&mut policy);
    if statements.iter().any(|statement| statement["Sid"] == label) {
        return Err(invalid("Label", label, "Already exists."));
    }
    if statements.len() >= MAX_STATEMENTS {
        return Err(over_limit(&format!("A policy can have at most {MAX_STATEMENTS} statements.")));
    }
    let principals: Vec<String> = accounts.iter().map(|account| format!("arn:aws:iam::{account}:root")).collect();
    let actions: Vec<String> = actions.iter().map(|action| format!("SQS:{action}")).collect();
    statements.push(json!({"Sid": label, "Effect": "Allow", "Principal": {"AWS": principals}, "Action": actions,
        "Resource": arn}));
    let mut settings = queue.settings.clone();
    settings.texts.insert("Policy".into(), policy.to_string());
    queue.configure(now, settings);
    Ok(Value::Null)
}

// fidelity: documented(SQS API Reference, RemovePermission); assumed: wording
pub(super) fn remove(cloud: &mut Cloud, now: Timestamp, input: &Value) -> Result<Value, ApiError> {
    queue_name(cloud, input)?;
    let label = required(input, "Label")?;
    let queue = queue(cloud, input)?;
    let mut policy = present(queue.settings.texts.get("Policy")).unwrap_or_default();
    let statements = statements(&mut policy);
    let Some(index) = statements.iter().position(|statement| statement["Sid"] == label) else {
        return Err(invalid("Label", label, "can't find label on existing policy."));
    };
    statements.remove(index);
    let is_empty = statements.is_empty();
    let mut settings = queue.settings.clone();
    match is_empty {
        true => settings.texts.remove("Policy"),
        false => settings.texts.insert("Policy".into(), policy.to_string()),
    };
    queue.configure(now, settings);
    Ok(Value::Null)
}

fn check(accounts: &[&str], actions: &[&str]) -> Result<(), ApiError> {
    if accounts.is_empty() {
        return Err(ApiError::missing("AWSAccountIds"));
    }
    if actions.is_empty() {
        return Err(ApiError::missing("Actions"));
    }
    if let Some(account) = accounts.iter().find(|account| !is_account(account)) {
        return Err(invalid("PrincipalId", account, "Unable to verify."));
    }
    if let Some(action) = actions.iter().find(|action| !SHAREABLE.contains(action)) {
        let reason = "Only the queue owner is allowed to invoke this action.";
        return Err(invalid("ActionName", &format!("SQS:{action}"), reason));
    }
    match actions.len() > MAX_ACTIONS {
        true => Err(over_limit(&format!("{} Actions were found, maximum allowed is {MAX_ACTIONS}.", actions.len()))),
        false => Ok(()),
    }
}

fn over_limit(message: &str) -> ApiError {
    ApiError::new(403, "OverLimit", message)
}

fn present(text: Option<&String>) -> Option<Value> {
    serde_json::from_str(text?).ok()
}

/// The statements of a policy; a single one becomes a list.
fn statements(policy: &mut Value) -> &mut Vec<Value> {
    if !policy.is_object() {
        *policy = json!({});
    }
    let statement = &mut policy["Statement"];
    if !statement.is_array() {
        let single = statement.take();
        *statement = if single.is_null() { json!([]) } else { json!([single]) };
    }
    statement.as_array_mut().expect("made a list above")
}
