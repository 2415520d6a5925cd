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
                apply(values, child);
            }
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            for child in list {
                apply(items, child);
            }
        }
        _ => {}
    }
}

/// Drops nulls where the schema does not allow one and has no default: the server prunes them before validation.
pub(crate) fn drop_nulls(schema: &Schema, value: &mut Value) {
    match (&schema.shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(object)) => {
            object.retain(|name, child| match fields.get(name) {
                Some(field) => !child.is_null() || field.nullable || field.default.is_none(),
                None => true,
            });
            for (name, child) in object.iter_mut() {
                if let Some(field) = fields.get(name) {
                    drop_nulls(field, child);
                }
            }
        }
        (Shape::Map { values, .. }, Value::Object(object)) => {
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
