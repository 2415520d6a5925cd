//! Batches: one to ten entries, each with its own outcome.

use super::{queue_name, required};
use crate::actions::text;
use crate::cloud::Cloud;
use crate::error::ApiError;
use crate::wire::error::query_code;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Performs an action on each entry.
pub(super) fn each(
    cloud: &mut Cloud,
    input: &Value,
    mut perform: impl FnMut(&mut Cloud, &Value) -> Result<Value, ApiError>,
) -> Result<Value, ApiError> {
    queue_name(cloud, input)?;
    let outcomes: Vec<_> = entries(input)?.iter().map(|entry| (entry, perform(cloud, entry))).collect();
    Ok(answer(outcomes))
}

/// The entries, if the batch as a whole is well-formed.
// fidelity: documented(SQS API Reference, SendMessageBatch: errors; the form of ids); assumed: wording
pub(super) fn entries(input: &Value) -> Result<&Vec<Value>, ApiError> {
    let entries = input.get("Entries").and_then(Value::as_array).filter(|entries| !entries.is_empty());
    let entries = entries
        .ok_or_else(|| ApiError::client("EmptyBatchRequest", "There should be at least one entry in the request."))?;
    if entries.len() > 10 {
        let message = format!("Maximum number of entries per request are 10. You have sent {}.", entries.len());
        return Err(ApiError::client("TooManyEntriesInBatchRequest", message));
    }
    let mut seen = BTreeSet::new();
    for entry in entries {
        let id = required(entry, "Id")?;
        if id.len() > 80 || !id.chars().all(|character| character.is_ascii_alphanumeric() || "-_".contains(character)) {
            let message = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.";
            return Err(ApiError::client("InvalidBatchEntryId", message));
        }
        if !seen.insert(id) {
            return Err(ApiError::client("BatchEntryIdsNotDistinct", format!("Id {id} repeated.")));
        }
    }
    Ok(entries)
}

/// What came of the entries.
// fidelity: documented(SQS API Reference, BatchResultErrorEntry); assumed: codes are those of the query protocol in both
pub(super) fn answer(outcomes: Vec<(&Value, Result<Value, ApiError>)>) -> Value {
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for (entry, outcome) in outcomes {
        let id = text(entry, "Id").unwrap_or_default();
        match outcome {
            Ok(mut value) => {
                if value.is_null() {
                    value = json!({});
                }
                value["Id"] = json!(id);
                successful.push(value);
            }
            Err(error) => failed.push(json!({"Id": id, "SenderFault": error.status < 500,
                "Code": query_code(&error.code), "Message": error.message})),
        }
    }
    json!({"Successful": successful, "Failed": failed})
}
