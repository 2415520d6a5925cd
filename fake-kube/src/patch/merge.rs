//! JSON merge patch (RFC 7396).

use serde_json::{Map, Value};

/// Applies a merge patch in place: null removes, objects merge, everything else replaces.
pub(crate) fn apply(target: &mut Value, patch: Value) {
    let Value::Object(changes) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (key, change) in changes {
        match change {
            Value::Null => {
                fields.remove(&key);
            }
            change => apply(fields.entry(key).or_insert(Value::Null), change),
        }
    }
}
