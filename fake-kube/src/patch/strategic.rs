//! Strategic merge patch: lists merge by the keys of their kind.
//!
//! Done: merge keys, `$patch: delete` and `replace`, `$deleteFromPrimitiveList`, `$retainKeys`, `$setElementOrder`.

use serde_json::{Map, Value};

use crate::{
    schema::{ListKind, Schema, Shape},
    status::Status,
};

/// Applies a strategic merge patch in place.
pub(crate) fn apply(schema: &Schema, target: &mut Value, patch: Value) -> Result<(), Status> {
    let Value::Object(mut changes) = patch else {
        *target = patch;
        return Ok(());
    };
    match changes.remove("$patch").as_ref().map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            *target = Value::Object(changes);
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some(other) => return Err(Status::bad_request(format!("invalid patch format: unknown patch type: {other}"))),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return Ok(()) };
    if let Some(Value::Array(keys)) = changes.remove("$retainKeys") {
        fields.retain(|key, _| keys.iter().any(|kept| kept == key));
    }
    let mut orders: Vec<(String, Vec<Value>)> = Vec::new();
    for (key, change) in changes {
        if let Some(list) = key.strip_prefix("$setElementOrder/") {
            if let Value::Array(order) = change {
                orders.push((list.to_owned(), order));
            }
            continue;
        }
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(present)), Value::Array(gone)) = (fields.get_mut(list), &change) {
                present.retain(|value| !gone.contains(value));
            }
            continue;
        }
        if change.is_null() {
            fields.remove(&key);
            continue;
        }
        let any = Schema::of(Shape::Any);
        let child = schema.field(&key).map_or(&any, |child| child.as_ref());
        match (&child.shape, change) {
            (Shape::List { items, strategic: ListKind::Map(keys), .. }, Value::Array(changes)) => {
                // The patch key of strategic merge is a single one.
                let Some(merge_key) = keys.first() else { continue };
                let present = fields.entry(key).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(items, merge_key, present, changes)?;
            }
            (Shape::List { strategic: ListKind::Set, .. }, Value::Array(changes)) => {
                let present = fields.entry(key).or_insert_with(|| Value::Array(Vec::new()));
                if let Some(present) = present.as_array_mut() {
                    // What is new stands before what was there.
                    let new: Vec<Value> = changes.into_iter().filter(|change| !present.contains(change)).collect();
                    present.splice(0..0, new);
                }
            }
            (_, change @ Value::Object(_)) => apply(child, fields.entry(key).or_insert(Value::Null), change)?,
            (_, change) => {
                fields.insert(key, change);
            }
        }
    }
    for (list, order) in orders {
        let merge_key = schema.field(&list).and_then(|child| match &child.shape {
            Shape::List { strategic: ListKind::Map(keys), .. } => keys.first(),
            _ => None,
        });
        if let Some(Value::Array(present)) = fields.get_mut(&list) {
            reorder(present, &order, merge_key);
        }
    }
    Ok(())
}

fn merge_list(items: &Schema, merge_key: &str, present: &mut Value, changes: Vec<Value>) -> Result<(), Status> {
    let Some(present) = present.as_array_mut() else { return Ok(()) };
    if changes.iter().any(|change| change["$patch"] == "replace") {
        *present = changes.into_iter().filter(|change| change.get("$patch").is_none()).collect();
        return Ok(());
    }
    // What is new stands before what was there.
    let mut new = Vec::new();
    for mut change in changes {
        let Some(identity) = change.get(merge_key).cloned() else {
            return Err(Status::bad_request(format!("map: {change} does not contain declared merge key: {merge_key}")));
        };
        let place = present.iter().position(|item| item.get(merge_key) == Some(&identity));
        if change["$patch"] == "delete" {
            present.retain(|item| item.get(merge_key) != Some(&identity));
            continue;
        }
        match place {
            Some(place) => apply(items, &mut present[place], change)?,
            None => {
                if let Some(fields) = change.as_object_mut() {
                    fields.remove("$patch");
                }
                new.push(change);
            }
        }
    }
    present.splice(0..0, new);
    Ok(())
}

/// Brings the named elements into the given order; others keep their place behind those before them.
fn reorder(present: &mut [Value], order: &[Value], merge_key: Option<&String>) {
    let rank = |item: &Value| {
        order.iter().position(|wanted| match merge_key {
            Some(key) => wanted.get(key) == item.get(key),
            None => wanted == item,
        })
    };
    let places: Vec<usize> =
        present.iter().enumerate().filter(|(_, item)| rank(item).is_some()).map(|(place, _)| place).collect();
    let mut ranked: Vec<Value> = places.iter().map(|place| present[*place].clone()).collect();
    ranked.sort_by_key(rank);
    for (place, item) in places.into_iter().zip(ranked) {
        present[place] = item;
    }
}
