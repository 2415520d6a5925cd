//! Everything a custom resource is checked for, in the server's order: schema, replicas, lists of distinct items, rules.

use serde_json::Value;

use super::{cel::Evaluator, validate};
use crate::{
    kinds::Kind,
    status::{FieldError, printed_in_go},
    write::Part,
};

/// Every way in which `new` breaks its definition.
pub(crate) fn check(rules: &Evaluator, kind: &Kind, new: &Value, old: Option<&Value>, part: Part) -> Vec<FieldError> {
    let schema = &kind.schema;
    let mut errors = match (part, schema.field("status"), new.get("status")) {
        (Part::Status, Some(of_status), Some(status)) => {
            validate::check(of_status, status, old.and_then(|old| old.get("status")), "status")
        }
        (Part::Status, ..) => Vec::new(),
        _ => validate::check(schema, new, old, ""),
    };
    if let Some(scale) = &kind.scale {
        if part != Part::Status {
            errors.extend(replicas(new, &scale.spec_replicas));
        }
        errors.extend(replicas(new, &scale.status_replicas));
    }
    errors.extend(validate::duplicates(schema, new, old));
    if !schema.has_rules {
        return errors;
    }
    if validate::blocks_rules(&errors) {
        errors.push(FieldError::invalid(
            "<nil>",
            &Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to \
             complete validation",
        ));
    } else {
        errors.extend(rules.check(schema, new, old));
    }
    errors
}

/// A number of replicas must be one that a `Scale` can hold. The server writes its path with a dot before it.
fn replicas(object: &Value, path: &[String]) -> Option<FieldError> {
    let shown = |steps: usize| format!(".{}", path[..steps].join("."));
    let refused = |number: i64, detail: String| Some(FieldError::invalid(shown(path.len()), &number.into(), detail));
    let mismatch = |steps: usize, value: &Value, wanted: &str| {
        let (text, found) = (printed_in_go(value), go_type(value));
        refused(0, format!("{} accessor error: {text} is of the type {found}, expected {wanted}", shown(steps)))
    };
    let mut value = object;
    for (index, step) in path.iter().enumerate() {
        match value {
            Value::Null => return None,
            Value::Object(fields) => value = fields.get(step)?,
            other => return mismatch(index + 1, other, "map[string]interface{}"),
        }
    }
    match value.as_i64() {
        None => mismatch(path.len(), value, "int64"),
        Some(number) if number < 0 => refused(number, "should be a non-negative integer".into()),
        Some(number) if number > i64::from(i32::MAX) => {
            refused(number, format!("should be less than or equal to {}", i32::MAX))
        }
        Some(_) => None,
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
