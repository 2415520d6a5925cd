//! JSON patch (RFC 6902), with the tolerance of the server's library.

use json_patch::{PatchOperation, patch};
use serde_json::Value;

use crate::status::Status;

/// More operations in one patch are refused, as the server does.
const MAX_OPERATIONS: usize = 10_000;

pub(crate) fn apply(object: &mut Value, operations: Value) -> Result<(), Status> {
    let operations: Vec<PatchOperation> = serde_json::from_value(operations)
        .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
    if operations.len() > MAX_OPERATIONS {
        return Err(Status::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    for operation in operations {
        // The server's library takes an absent path for null in a test; clients rely on it to add a first finalizer.
        if let PatchOperation::Test(test) = &operation
            && test.value.is_null()
            && object.pointer(test.path.as_str()).is_none_or(Value::is_null)
        {
            continue;
        }
        // The genuine server keeps the reason to itself, too.
        patch(object, std::slice::from_ref(&operation)).map_err(|_| {
            let mut status =
                Status::new(422, "Invalid", "the server rejected our request due to an error in our request");
            status.details = Some(Box::default());
            status
        })?;
    }
    Ok(())
}
