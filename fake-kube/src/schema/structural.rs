//! Reads `openAPIV3Schema` of a custom resource definition.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{ListKind, Scalar, Schema, Shape, cel, validate::Checks};

/// Nesting beyond this is refused; the deepest schema in use has about a dozen levels.
const MAX_DEPTH: usize = 64;

/// Reads a schema. The error says what of it cannot be used.
pub(crate) fn read(schema: &Value) -> Result<Schema, String> {
    read_at(schema, 0)
}

fn read_at(schema: &Value, depth: usize) -> Result<Schema, String> {
    if depth > MAX_DEPTH {
        return Err(format!("nesting is deeper than {MAX_DEPTH}"));
    }
    let flag = |name: &str| schema[name] == Value::Bool(true);
    let open = flag("x-kubernetes-preserve-unknown-fields");
    let atomic = schema["x-kubernetes-map-type"] == "atomic";
    let mut below: Vec<Arc<Schema>> = Vec::new();
    let mut child = |value: &Value| -> Result<Arc<Schema>, String> {
        let child = Arc::new(read_at(value, depth + 1)?);
        below.push(Arc::clone(&child));
        Ok(child)
    };
    let shape = if flag("x-kubernetes-int-or-string") {
        Shape::Scalar(Scalar::IntOrString)
    } else {
        match schema["type"].as_str().unwrap_or_default() {
            "object" => match (&schema["properties"], &schema["additionalProperties"]) {
                (Value::Object(properties), _) => {
                    let mut fields = BTreeMap::new();
                    for (name, property) in properties {
                        fields.insert(name.clone(), child(property)?);
                    }
                    Shape::Struct { name: String::new(), fields, open, atomic }
                }
                (_, values @ Value::Object(_)) => Shape::Map { values: child(values)?, atomic },
                (_, Value::Bool(true)) => Shape::Map { values: Arc::new(Schema::of(Shape::Any)), atomic },
                _ => Shape::Struct { name: String::new(), fields: BTreeMap::new(), open, atomic },
            },
            "array" => {
                let kind = match schema["x-kubernetes-list-type"].as_str() {
                    Some("set") => ListKind::Set,
                    Some("map") => {
                        let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                        ListKind::Map(keys.filter_map(Value::as_str).map(str::to_owned).collect())
                    }
                    _ => ListKind::Atomic,
                };
                Shape::List { items: child(&schema["items"])?, kind, strategic: ListKind::Atomic }
            }
            "string" => Shape::Scalar(Scalar::Text),
            "integer" => Shape::Scalar(Scalar::Int64),
            "number" => Shape::Scalar(Scalar::Number),
            "boolean" => Shape::Scalar(Scalar::Bool),
            _ => Shape::Any,
        }
    };
    let required = schema["required"].as_array().into_iter().flatten();
    let rules = cel::read_rules(&schema["x-kubernetes-validations"])?;
    let default = schema.get("default").cloned();
    Ok(Schema {
        nullable: flag("nullable"),
        required: required.filter_map(Value::as_str).map(str::to_owned).collect(),
        embedded: flag("x-kubernetes-embedded-resource"),
        checks: Checks::read(schema)?.map(Box::new),
        has_defaults: default.is_some() || below.iter().any(|schema| schema.has_defaults),
        has_rules: !rules.is_empty() || below.iter().any(|schema| schema.has_rules),
        default,
        passed: cel::Passed::default(),
        rules,
        shape,
    })
}
