//! Filling in what a custom resource leaves out.
//!
//! A default may itself contain objects whose fields have defaults: the walk goes on into what it has just put there,
//! as the genuine server's does.

use serde_json::Value;

use super::{Schema, Shape};

/// Applies every default of the schema, in place.
pub(crate) fn apply(schema: &Schema, value: &mut Value) {
    if !schema.has_defaults {
        return;
    }
    match (&schema.shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(object)) => {
            for (name, field) in fields.iter().filter(|(_, field)| field.has_defaults) {
                if let Some(default) = &field.default {
                    let missing = object.get(name).is_none_or(|present| present.is_null() && !field.nullable);
                    if missing {
                        object.insert(name.clone(), default.clone());
                    }
                }
                if let Some(child) = object.get_mut(name) {
                    apply(field, child);
                }
            }
        }
        (Shape::Map { values, .. }, Value::Object(object)) => {
            for child in object.values_mut() {
                fill_null(values, child);
                apply(values, child);
            }
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            for child in list {
                fill_null(items, child);
                apply(items, child);
            }
        }
        _ => {}
    }
}

/// Puts the default in the place of a null that is not allowed.
fn fill_null(schema: &Schema, value: &mut Value) {
    if let Some(default) = schema.default.as_ref().filter(|_| value.is_null() && !schema.nullable) {
        *value = default.clone();
    }
}

/// Drops nulls where the schema allows none and has no default to put there: for the server such a field is absent. A
/// null among the items of a list stays, and is refused.
pub(crate) fn drop_nulls(schema: &Schema, value: &mut Value) {
    let dropped = |schema: &Schema, value: &Value| value.is_null() && !schema.nullable && schema.default.is_none();
    match (&schema.shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(object)) => {
            object.retain(|name, child| fields.get(name).is_none_or(|field| !dropped(field, child)));
            for (name, child) in object.iter_mut() {
                if let Some(field) = fields.get(name) {
                    drop_nulls(field, child);
                }
            }
        }
        (Shape::Map { values, .. }, Value::Object(object)) => {
            object.retain(|_, child| !dropped(values, child));
            for child in object.values_mut() {
                drop_nulls(values, child);
            }
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            for child in list {
                drop_nulls(items, child);
            }
        }
        _ => {}
    }
}
