//! Objects as a `Table`, which is what `kubectl get` asks for.
//!
//! Built-in kinds have the columns and cells of the genuine server's printers (`builtin`, `pod`); custom resources those
//! of their definition; kinds without either a name and when they were created. Ages are text, told by the server's
//! clock, which is why a cluster in virtual time shows sensible ones.

mod age;
mod builtin;
mod path;
mod pod;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    conversion,
    kinds::Kind,
    state::format_time,
    store::{Stored, to_bytes},
};
use age::human_duration;

/// What of an object comes along with its row: the `includeObject` of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// One column: heading, type, format, priority. Columns of a priority above 0 are shown by `-o wide` alone.
struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
}

impl Column {
    fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": self.description,
            "priority": self.priority,
        })
    }
}

/// An object as a printer looks at it.
#[derive(Clone, Copy)]
struct Seen<'a> {
    object: &'a Value,
    now: Timestamp,
}

impl<'a> Seen<'a> {
    /// The value at a path of plain fields; null where there is none.
    fn at(self, path: &str) -> &'a Value {
        path.split('.').fold(self.object, |value, field| &value[field])
    }

    fn text(self, path: &str) -> &'a str {
        self.at(path).as_str().unwrap_or_default()
    }

    fn number(self, path: &str) -> i64 {
        self.at(path).as_i64().unwrap_or_default()
    }

    fn list(self, path: &str) -> &'a [Value] {
        self.at(path).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn name(self) -> &'a str {
        self.text("metadata.name")
    }

    fn age(self) -> String {
        self.since(self.at("metadata.creationTimestamp"))
    }

    /// How long ago an instant was.
    fn since(self, instant: &Value) -> String {
        match instant.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
            Some(instant) => human_duration(self.now.duration_since(instant)),
            None => "<unknown>".into(),
        }
    }
}

/// The table of some objects.
pub(crate) fn of<'a>(
    kind: &Kind,
    objects: impl Iterator<Item = &'a Value>,
    metadata: Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let definitions: Vec<Value> = columns(kind).iter().map(Column::definition).collect();
    let rows: Vec<Value> = objects.map(|object| row(kind, Seen { object, now }, include)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows,
    })
}

/// A table whose columns the client knows already.
pub(crate) fn without_columns(table: &Bytes) -> Bytes {
    let Ok(mut table) = serde_json::from_slice::<Value>(table) else { return table.clone() };
    table["columnDefinitions"] = Value::Null;
    to_bytes(&table)
}

/// A `Scale` as a table.
pub(crate) fn of_scale(scale: Value, include: IncludeObject, now: Timestamp) -> Value {
    let seen = Seen { object: &scale, now };
    let desired = seen.number("spec.replicas");
    let cells = json!([seen.name(), desired, seen.number("status.replicas"), seen.age()]);
    let mut row = json!({ "cells": cells });
    match include {
        IncludeObject::None => {}
        IncludeObject::Metadata => row["object"] = partial(&scale),
        IncludeObject::Object => row["object"] = scale.clone(),
    }
    let columns = [
        column("Name", "string", 0),
        column("Desired", "integer", 0),
        column("Available", "integer", 0),
        column("Age", "string", 0),
    ];
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "resourceVersion": scale["metadata"]["resourceVersion"] },
        "columnDefinitions": columns.iter().map(Column::definition).collect::<Vec<_>>(), "rows": [row],
    })
}

fn partial(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

/// A bookmark of a watch that is shown as tables.
pub(crate) fn bookmark(kind: &Kind, metadata: Value, now: Timestamp) -> Value {
    of(kind, std::iter::empty(), metadata, IncludeObject::None, now)
}

/// One stored object as a table.
pub(crate) fn single(kind: &Kind, stored: &Stored, include: IncludeObject, now: Timestamp) -> bytes::Bytes {
    let metadata = json!({ "resourceVersion": stored.value["metadata"]["resourceVersion"] });
    to_bytes(&of(kind, std::iter::once(&*stored.value), metadata, include, now))
}

fn row(kind: &Kind, seen: Seen, include: IncludeObject) -> Value {
    let mut row = json!({ "cells": cells(kind, seen) });
    match include {
        IncludeObject::None => row["object"] = Value::Null,
        IncludeObject::Metadata => row["object"] = partial(seen.object),
        IncludeObject::Object => {
            let mut object = seen.object.clone();
            conversion::from_storage(kind, &mut object);
            row["object"] = object;
        }
    }
    if let Some(conditions) = pod::row_conditions(kind.builtin, seen) {
        row["conditions"] = conditions;
    }
    row
}

fn column(name: &str, kind: &str, priority: i64) -> Column {
    let format = if name == "Name" { "name".into() } else { String::new() };
    Column { name: name.into(), kind: kind.into(), format, description: String::new(), priority }
}

fn columns(kind: &Kind) -> Vec<Column> {
    if let Some(printer) = builtin::printer(kind) {
        return printer.columns.iter().map(|(name, kind, priority)| column(name, kind, *priority)).collect();
    }
    let mut columns = vec![column("Name", "string", 0)];
    if !kind.custom() {
        columns.push(column("Created At", "date", 0));
        return columns;
    }
    for given in &kind.printer_columns {
        let text = |key: &str| given[key].as_str().unwrap_or_default().to_owned();
        let description = match text("description") {
            // The genuine server says where the value comes from when the definition says nothing.
            empty if empty.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {}", text("jsonPath"))
            }
            given => given,
        };
        columns.push(Column {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description,
            priority: given["priority"].as_i64().unwrap_or(0),
        });
    }
    if kind.printer_columns.is_empty() {
        columns.push(column("Age", "date", 0));
    }
    columns
}

fn cells(kind: &Kind, seen: Seen) -> Vec<Value> {
    if let Some(printer) = builtin::printer(kind) {
        return (printer.cells)(seen);
    }
    let mut cells = vec![json!(seen.name())];
    if !kind.custom() {
        let created = seen.text("metadata.creationTimestamp").parse().map(format_time).unwrap_or_default();
        cells.push(json!(created));
        return cells;
    }
    for given in &kind.printer_columns {
        let path = given["jsonPath"].as_str().unwrap_or_default();
        let found = path::find(seen.object, path);
        cells.push(
            found.map_or(Value::Null, |value| custom_cell(given["type"].as_str().unwrap_or_default(), value, seen)),
        );
    }
    if kind.printer_columns.is_empty() {
        cells.push(json!(seen.age()));
    }
    cells
}

/// A value as a column of a type shows it; null where it does not fit.
fn custom_cell(kind: &str, value: &Value, seen: Seen) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) | ("number", Value::Number(_)) => value.clone(),
        ("string", other) => json!(other.to_string()),
        ("integer", Value::Number(number)) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|number| number as i64))
            .map_or(Value::Null, |whole| json!(whole)),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(_) => json!(seen.since(value)),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}
