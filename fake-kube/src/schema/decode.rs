//! Reading a body into a kind: types are checked, unknown fields dropped, values brought into the server's own form.
//!
//! For built-in kinds this is what decoding into Go structs does; for custom resources it is pruning.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{Scalar, Schema, Shape};
use crate::quantity;

/// What decoding found besides the value.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Paths of fields that no schema knows; they were dropped.
    pub(crate) unknown: Vec<String>,
}

/// Why a body cannot be read at all.
#[derive(Debug)]
pub(crate) struct DecodeError {
    /// The sentence of the server.
    pub(crate) message: String,
    /// Where, for people who look closer than the genuine message lets them.
    pub(crate) field: String,
}

/// Decodes a built-in kind in place.
pub(crate) fn builtin(schema: &Schema, value: &mut Value, findings: &mut Findings) -> Result<(), DecodeError> {
    let mut path = Vec::new();
    decode(schema, value, &mut path, "", findings)
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

fn shown(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => text.push_str(&format!(".{name}")),
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

fn decode<'a>(
    schema: &'a Schema,
    value: &mut Value,
    path: &mut Vec<Step<'a>>,
    owner: &str,
    findings: &mut Findings,
) -> Result<(), DecodeError> {
    match (&schema.shape, &mut *value) {
        (Shape::Any, _) => {}
        (Shape::Struct { name, fields, open, .. }, Value::Object(object)) => {
            let mut dropped: Vec<String> = Vec::new();
            for (key, child) in object.iter_mut() {
                match fields.get_key_value(key) {
                    // A null is the zero value of any Go field, which is left out on the way back.
                    Some(_) if child.is_null() => dropped.push(key.clone()),
                    Some((key, field)) => {
                        path.push(Step::Field(key));
                        decode(field, child, path, name, findings)?;
                        path.pop();
                        if is_empty_collection(field, child) && !schema.required.contains(key) {
                            dropped.push(key.clone());
                        }
                    }
                    None if *open => {}
                    None => {
                        let parent = shown(path);
                        let full = if parent.is_empty() { key.clone() } else { format!("{parent}.{key}") };
                        findings.unknown.push(full);
                        dropped.push(key.clone());
                    }
                }
            }
            for key in dropped {
                object.remove(&key);
            }
        }
        (Shape::Map { values, .. }, Value::Object(object)) => {
            if !matches!(values.shape, Shape::Any) {
                for (key, child) in object.iter_mut() {
                    // Keys live as long as the value, not as the schema: they are named only when something is wrong.
                    decode(values, child, path, owner, findings).map_err(|mut error| {
                        let prefix = shown(path);
                        let below = error.field.strip_prefix(&prefix).unwrap_or_default();
                        error.field = format!("{prefix}[{key}]{below}");
                        error
                    })?;
                }
            }
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            for (index, child) in list.iter_mut().enumerate() {
                path.push(Step::Index(index));
                decode(items, child, path, owner, findings)?;
                path.pop();
            }
        }
        (Shape::Scalar(scalar), _) => return decode_scalar(*scalar, value, path, owner),
        _ => return Err(mismatch(value, path, owner, &go_type(schema))),
    }
    Ok(())
}

/// Empty maps and lists are left out on the way back; an empty struct (`emptyDir: {}`) means something.
fn is_empty_collection(schema: &Schema, value: &Value) -> bool {
    match (&schema.shape, value) {
        (Shape::Map { .. }, Value::Object(object)) => object.is_empty(),
        (Shape::List { .. }, Value::Array(list)) => list.is_empty(),
        _ => false,
    }
}

fn decode_scalar(scalar: Scalar, value: &mut Value, path: &[Step], owner: &str) -> Result<(), DecodeError> {
    let fine = match (scalar, &*value) {
        (Scalar::Text, Value::String(_)) | (Scalar::Bool, Value::Bool(_)) => true,
        (Scalar::Int64, Value::Number(number)) => number.as_i64().is_some(),
        (Scalar::Int32, Value::Number(number)) => number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        (Scalar::IntOrString, Value::Number(number)) => number.as_i64().is_some(),
        (Scalar::IntOrString, Value::String(_)) | (Scalar::Number, Value::Number(_)) => true,
        (Scalar::Bytes, Value::String(text)) => match STANDARD.decode(text) {
            Ok(_) => true,
            Err(_) => {
                let at = text.find(|c: char| !c.is_ascii_alphanumeric() && !"+/=".contains(c)).unwrap_or(text.len());
                return Err(DecodeError {
                    message: format!("illegal base64 data at input byte {at}"),
                    field: shown(path),
                });
            }
        },
        (Scalar::Quantity, Value::String(_) | Value::Number(_)) => {
            let text = match &*value {
                Value::String(text) => text.clone(),
                number => number.to_string(),
            };
            let canonical = quantity::canonical(&text)
                .map_err(|error| DecodeError { message: error.to_string(), field: shown(path) })?;
            if value.as_str() != Some(&canonical) {
                *value = Value::String(canonical);
            }
            return Ok(());
        }
        (Scalar::Time | Scalar::MicroTime, Value::String(text)) => {
            let parsed: jiff::Timestamp = text.parse().map_err(|_| DecodeError {
                message: format!(
                    "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
                ),
                field: shown(path),
            })?;
            let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if scalar == Scalar::MicroTime && digits != 6 {
                let zone = text.get(19..).unwrap_or_default();
                let message = format!(
                    "parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {zone:?} as \".000000\""
                );
                return Err(DecodeError { message, field: shown(path) });
            }
            let canonical = if scalar == Scalar::Time { format!("{parsed:.0}") } else { format!("{parsed:.6}") };
            if *text != canonical {
                // Whole seconds: the fraction is cut, not rounded.
                let cut = jiff::Timestamp::from_second(parsed.as_second()).unwrap_or(parsed);
                *value = Value::String(if scalar == Scalar::Time { format!("{cut:.0}") } else { canonical });
            }
            return Ok(());
        }
        _ => false,
    };
    if fine {
        return Ok(());
    }
    let name = match scalar {
        Scalar::Text => "string",
        Scalar::Int32 => "int32",
        Scalar::Int64 => "int64",
        Scalar::Number => "float64",
        Scalar::Bool => "bool",
        Scalar::IntOrString => "intstr.IntOrString",
        Scalar::Quantity => "resource.Quantity",
        Scalar::Time => "time.Time",
        Scalar::MicroTime => "time.Time",
        Scalar::Bytes => "[]uint8",
    };
    Err(mismatch(value, path, owner, name))
}

fn mismatch(value: &Value, path: &[Step], owner: &str, wanted: &str) -> DecodeError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let found = match value {
        Value::Number(number) if wanted.starts_with("int") => format!("number {number}"),
        _ => found.to_owned(),
    };
    let names: Vec<&str> =
        path.iter().filter_map(|step| if let Step::Field(name) = step { Some(*name) } else { None }).collect();
    let message =
        format!("json: cannot unmarshal {found} into Go struct field {owner}.{} of type {wanted}", names.join("."));
    DecodeError { message, field: shown(path) }
}

fn go_type(schema: &Schema) -> String {
    match &schema.shape {
        Shape::Any => "runtime.RawExtension".into(),
        Shape::Struct { name, .. } if name == "ObjectMeta" || name == "LabelSelector" => format!("v1.{name}"),
        Shape::Struct { name, .. } => format!("v1.{name}"),
        Shape::Map { values, .. } => format!("map[string]{}", go_type(values)),
        Shape::List { items, .. } => format!("[]{}", go_type(items)),
        Shape::Scalar(Scalar::Text) => "string".into(),
        Shape::Scalar(Scalar::Quantity) => "resource.Quantity".into(),
        Shape::Scalar(_) => "int".into(),
    }
}

/// Numbers as a custom resource is stored with them: a float that stands for one whole number is that number.
pub(crate) fn whole_numbers(value: &mut Value) {
    /// Beyond this a float stands for several whole numbers.
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    numbers(value, &|number| {
        let float = number.as_f64().filter(|_| number.is_f64())?;
        #[allow(clippy::cast_possible_truncation)] // Just compared.
        (float.fract() == 0.0 && float.abs() <= LARGEST).then(|| Value::from(float as i64))
    });
}

/// Whole numbers beyond 64 bits with a sign are floats, as the server reads them.
fn large_numbers(value: &mut Value) {
    numbers(value, &|number| {
        let float = number.as_f64().filter(|_| number.as_i64().is_none() && !number.is_f64())?;
        serde_json::Number::from_f64(float).map(Value::Number)
    });
}

fn numbers(value: &mut Value, changed: &impl Fn(&serde_json::Number) -> Option<Value>) {
    match value {
        Value::Number(number) => {
            if let Some(other) = changed(number) {
                *value = other;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|item| numbers(item, changed)),
        Value::Object(fields) => fields.values_mut().for_each(|field| numbers(field, changed)),
        _ => {}
    }
}

/// Drops what a custom resource's schema does not know, in place. `metadata` is decoded with its own built-in shape.
pub(crate) fn prune(schema: &Schema, value: &mut Value, findings: &mut Findings) {
    large_numbers(value);
    let mut found = Findings::default();
    prune_at(schema, value, &mut String::new(), &mut found, true);
    found.unknown.sort();
    findings.unknown.append(&mut found.unknown);
}

fn prune_at(schema: &Schema, value: &mut Value, path: &mut String, findings: &mut Findings, root: bool) {
    match (&schema.shape, value) {
        (Shape::Any | Shape::Struct { open: true, .. }, Value::Array(_)) | (Shape::Any, _) => {}
        (Shape::Struct { fields, open, .. }, Value::Object(object)) => {
            let implied = |key: &str| (root || schema.embedded) && matches!(key, "apiVersion" | "kind" | "metadata");
            let length = path.len();
            object.retain(|key, child| {
                let keep = match fields.get(key) {
                    // The server reads these itself, whatever the definition says of them.
                    _ if implied(key) => return true,
                    Some(_) => true,
                    None => *open,
                };
                push_field(path, key);
                match fields.get(key) {
                    Some(field) => prune_at(field, child, path, findings, false),
                    None if keep => {}
                    None => findings.unknown.push(path.clone()),
                }
                path.truncate(length);
                keep
            });
        }
        (Shape::Map { values, .. }, Value::Object(object)) => {
            let length = path.len();
            for (key, child) in object.iter_mut() {
                push_field(path, key);
                prune_at(values, child, path, findings, false);
                path.truncate(length);
            }
        }
        (Shape::List { items, .. }, Value::Array(list)) => {
            let length = path.len();
            for (index, child) in list.iter_mut().enumerate() {
                path.push_str(&format!("[{index}]"));
                prune_at(items, child, path, findings, false);
                path.truncate(length);
            }
        }
        (_, value) => prune_all(value, path, findings),
    }
}

fn push_field(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Where no object may stand, none of its fields is known.
fn prune_all(value: &mut Value, path: &mut String, findings: &mut Findings) {
    let length = path.len();
    match value {
        Value::Object(object) => {
            for key in object.keys() {
                push_field(path, key);
                findings.unknown.push(path.clone());
                path.truncate(length);
            }
            object.clear();
        }
        Value::Array(list) => {
            for (index, child) in list.iter_mut().enumerate() {
                path.push_str(&format!("[{index}]"));
                prune_all(child, path, findings);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
