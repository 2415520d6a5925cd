//! Paths of a kind: which verbs it has, and the parameters whose support clients look up before they use them.

use serde_json::{Map, Value, json};

use super::{COMPONENTS, builtin, custom, group_version_kind};
use crate::kinds::{Builtin, Kind};

/// The paths of a kind, with what is done there.
pub(super) fn of(kind: &Kind) -> Vec<(String, Value)> {
    let place = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
    let collection = format!("/{}/{place}{}", super::path_of(&kind.group, &kind.version), kind.plural);
    if kind.builtin == Builtin::Review {
        return vec![(collection, json!({ "post": operation(kind, "post", true) }))];
    }
    let object = format!("{collection}/{{name}}");
    let mut paths = vec![
        (collection, operations(kind, &[("get", "list"), ("post", "post"), ("delete", "deletecollection")])),
        (object.clone(), operations(kind, &[("get", "get"), ("put", "put"), ("patch", "patch"), ("delete", "delete")])),
    ];
    if kind.namespaced {
        let everywhere = format!("/{}/{}", super::path_of(&kind.group, &kind.version), kind.plural);
        paths.push((everywhere, operations(kind, &[("get", "list")])));
    }
    if kind.status {
        let below = operations(kind, &[("get", "get"), ("put", "put"), ("patch", "patch")]);
        paths.push((format!("{object}/status"), below));
    }
    paths
}

fn operations(kind: &Kind, verbs: &[(&str, &str)]) -> Value {
    let mut found = Map::new();
    for (method, action) in verbs {
        let writes = matches!(*method, "post" | "put" | "patch");
        found.insert((*method).to_owned(), operation(kind, action, writes));
    }
    Value::Object(found)
}

fn operation(kind: &Kind, action: &str, writes: bool) -> Value {
    let names: &[&str] = match action {
        "post" | "put" => &["dryRun", "fieldManager", "fieldValidation"],
        "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
        "delete" => &["dryRun", "gracePeriodSeconds", "propagationPolicy"],
        "list" => &[
            "allowWatchBookmarks",
            "continue",
            "fieldSelector",
            "labelSelector",
            "limit",
            "resourceVersion",
            "resourceVersionMatch",
            "sendInitialEvents",
            "timeoutSeconds",
            "watch",
        ],
        _ => &[],
    };
    let parameters: Vec<Value> = names.iter().map(|name| parameter(name)).collect();
    let name = if kind.custom() { Some(custom::name(kind)) } else { builtin::name(kind) };
    let schema = name.map_or_else(|| json!({}), |name| json!({ "$ref": format!("{COMPONENTS}{name}") }));
    let mut operation = json!({
        "x-kubernetes-action": action, "x-kubernetes-group-version-kind": group_version_kind(kind),
        "parameters": parameters,
        "responses": { "200": { "description": "OK", "content": { "application/json": { "schema": schema } } } },
    });
    if writes {
        let media: &[&str] = match (action, kind.custom()) {
            ("patch", true) => {
                &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]
            }
            ("patch", false) => &[
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
            ],
            _ => &["application/json", "application/yaml"],
        };
        // What a patch may be is not for the schema of its kind to say.
        let schema = if action == "patch" { json!({ "type": "object" }) } else { schema };
        let content: Map<String, Value> =
            media.iter().map(|media| ((*media).to_owned(), json!({ "schema": schema }))).collect();
        operation["requestBody"] = json!({ "content": content, "required": true });
    }
    operation
}

fn parameter(name: &str) -> Value {
    let kind = match name {
        "allowWatchBookmarks" | "force" | "sendInitialEvents" | "watch" => "boolean",
        "gracePeriodSeconds" | "limit" | "timeoutSeconds" => "integer",
        _ => "string",
    };
    json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } })
}
