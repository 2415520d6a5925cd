//! Objects as a `Table`, which is what `kubectl get` asks for.
//!
//! Columns: the name, those of a custom resource's definition, the age. Built-in kinds have a few of their own where
//! people look for them.

use serde_json::{Value, json};

use crate::kinds::{Builtin, Kind};

/// A column: its heading, type, and the path of its value.
struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    path: String,
}

/// The table of some objects.
pub(crate) fn of<'a>(kind: &Kind, objects: impl Iterator<Item = &'a Value>, version: &Value) -> Value {
    let columns = columns(kind);
    let definitions: Vec<Value> = columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        })
        .collect();
    let rows: Vec<Value> = objects
        .map(|object| {
            let cells: Vec<Value> = columns.iter().map(|column| cell(object, &column.path)).collect();
            let partial = json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
            });
            json!({ "cells": cells, "object": partial })
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": { "resourceVersion": version },
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn columns(kind: &Kind) -> Vec<Column> {
    let column = |name: &str, kind: &str, path: &str| Column {
        name: name.into(),
        kind: kind.into(),
        format: if path == "metadata.name" { "name".into() } else { String::new() },
        description: String::new(),
        priority: 0,
        path: path.into(),
    };
    let mut columns = vec![column("Name", "string", "metadata.name")];
    let own: &[(&str, &str, &str)] = match kind.builtin {
        Builtin::Pod => &[("Status", "string", "status.phase"), ("Node", "string", "spec.nodeName")],
        Builtin::Node => &[("Version", "string", "status.nodeInfo.kubeletVersion")],
        Builtin::Namespace => &[("Status", "string", "status.phase")],
        Builtin::Deployment | Builtin::ReplicaSet | Builtin::StatefulSet => {
            &[("Desired", "integer", "spec.replicas"), ("Ready", "integer", "status.readyReplicas")]
        }
        Builtin::PodDisruptionBudget => &[
            ("Min Available", "string", "spec.minAvailable"),
            ("Max Unavailable", "string", "spec.maxUnavailable"),
            ("Allowed Disruptions", "integer", "status.disruptionsAllowed"),
        ],
        Builtin::Event => &[
            ("Type", "string", "type"),
            ("Reason", "string", "reason"),
            ("Object", "string", "involvedObject.name"),
            ("Message", "string", "message"),
        ],
        _ => &[],
    };
    columns.extend(own.iter().map(|(name, kind, path)| column(name, kind, path)));
    for given in &kind.printer_columns {
        let text = |key: &str| given[key].as_str().unwrap_or_default().to_owned();
        columns.push(Column {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description: text("description"),
            priority: given["priority"].as_i64().unwrap_or(0),
            path: text("jsonPath").trim_start_matches('.').to_owned(),
        });
    }
    if kind.printer_columns.is_empty() {
        columns.push(column("Age", "date", "metadata.creationTimestamp"));
    }
    columns
}

/// The value at a JSONPath of the simple kind that printer columns use: fields, `[n]`, `[?(@.key=="value")]`, and
/// escaped dots.
fn cell(object: &Value, path: &str) -> Value {
    let mut found = object;
    let mut rest = path.replace("\\.", "\u{0}");
    if rest.is_empty() {
        return Value::Null;
    }
    rest = rest.replace("[?(@.", ".\u{1}").replace(['[', ']'], ".");
    let mut steps = Vec::new();
    for step in rest.split('.').filter(|step| !step.is_empty()) {
        steps.push(step.replace('\u{0}', "."));
    }
    for step in steps {
        let next = if let Some(filter) = step.strip_prefix('\u{1}') {
            let (key, wanted) = filter.trim_end_matches(')').split_once("==").unwrap_or((filter, ""));
            let wanted = wanted.trim().trim_matches(['"', '\'']);
            found.as_array().and_then(|list| list.iter().find(|item| item[key.trim()] == wanted))
        } else if let Ok(index) = step.parse::<usize>() {
            found.get(index)
        } else {
            found.get(step.trim_matches(['"', '\'']))
        };
        let Some(next) = next else { return Value::Null };
        found = next;
    }
    found.clone()
}
