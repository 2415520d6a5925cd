//! The four patch types. JSON, merge and strategic patches compute a new object from the shown one; server-side apply
//! also decides who owns what and stands in [`managed_fields`](crate::managed_fields).

mod json;
pub(crate) mod merge;
mod strategic;

use serde_json::Value;

use crate::{kinds::Kind, status::Status};

/// A patch by type.
#[derive(Clone, Debug)]
pub(crate) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

/// The media types of patches, as the server lists them when it gets another one.
pub(crate) const MEDIA_TYPES: [&str; 5] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
];

/// The object after a patch that is not server-side apply.
pub(crate) fn changed(kind: &Kind, mut object: Value, patch: Patch) -> Result<Value, Status> {
    match patch {
        Patch::Json(operations) if !operations.is_array() => {
            let found = require_object(&operations).map_or_else(|why| why, |()| String::new());
            let found = if found.is_empty() { "object" } else { found.split(' ').nth(3).unwrap_or_default() };
            return Err(Status::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
            )));
        }
        Patch::Json(operations) => json::apply(&mut object, operations)?,
        Patch::Merge(patch) => {
            require_object(&patch).map_err(|why| Status::bad_request(format!("error decoding patch: {why}")))?;
            merge::apply(&mut object, patch);
        }
        Patch::Strategic(patch) => {
            require_object(&patch).map_err(Status::bad_request)?;
            if kind.custom() {
                return Err(Status::unsupported_media_type(&[MEDIA_TYPES[0], MEDIA_TYPES[1], MEDIA_TYPES[3]]));
            }
            strategic::apply(&kind.schema, &mut object, patch)?;
        }
        // The caller takes applies elsewhere.
        Patch::Apply(_) => return Err(Status::internal("apply is no plain patch")),
    }
    Ok(object)
}

/// Why a patch that is no object cannot be read.
fn require_object(patch: &Value) -> Result<(), String> {
    let found = match patch {
        Value::Object(_) => return Ok(()),
        // Null is an empty map to the server's library.
        Value::Null => return Ok(()),
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::Array(_) => "array",
    };
    Err(format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"))
}
