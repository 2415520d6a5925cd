//! Checking a custom resource against its structural schema, in the server's words.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use super::{ListKind, Scalar, Schema, Shape};
use crate::status::{ErrorKind, FieldError};

/// Constraints beyond type and required fields.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    minimum: Option<f64>,
    exclusive_minimum: bool,
    maximum: Option<f64>,
    exclusive_maximum: bool,
    multiple_of: Option<f64>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    min_properties: Option<usize>,
    max_properties: Option<usize>,
    unique_items: bool,
    pattern: Option<(String, Regex)>,
    format: Option<String>,
    options: Option<Vec<Value>>,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Schema>,
}

impl Checks {
    /// Reads the constraints of one schema node; `None` when it has none.
    pub(crate) fn read(schema: &Value) -> Result<Option<Self>, String> {
        let size = |name: &str| schema[name].as_u64().and_then(|size| usize::try_from(size).ok());
        let flag = |name: &str| schema[name] == Value::Bool(true);
        let branches = |name: &str| -> Result<Vec<Schema>, String> {
            schema[name].as_array().into_iter().flatten().map(branch).collect()
        };
        let pattern = match schema["pattern"].as_str() {
            Some(text) => Some((text.to_owned(), Regex::new(text).map_err(|error| format!("pattern: {error}"))?)),
            None => None,
        };
        let int_or_string = flag("x-kubernetes-int-or-string");
        let checks = Self {
            minimum: schema["minimum"].as_f64(),
            exclusive_minimum: flag("exclusiveMinimum"),
            maximum: schema["maximum"].as_f64(),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: schema["multipleOf"].as_f64(),
            min_length: size("minLength"),
            max_length: size("maxLength"),
            min_items: size("minItems"),
            max_items: size("maxItems"),
            min_properties: size("minProperties"),
            max_properties: size("maxProperties"),
            unique_items: flag("uniqueItems"),
            pattern,
            format: schema["format"].as_str().map(str::to_owned),
            options: schema["enum"].as_array().cloned(),
            all_of: branches("allOf")?,
            // `anyOf: [integer, string]` is how int-or-string is spelled; the type check covers it.
            any_of: if int_or_string { Vec::new() } else { branches("anyOf")? },
            one_of: branches("oneOf")?,
            not: match &schema["not"] {
                not @ Value::Object(_) => Some(branch(not)?),
                _ => None,
            },
        };
        Ok(checks.any().then_some(checks))
    }

    fn any(&self) -> bool {
        self.minimum.is_some()
            || self.maximum.is_some()
            || self.multiple_of.is_some()
            || self.min_length.is_some()
            || self.max_length.is_some()
            || self.min_items.is_some()
            || self.max_items.is_some()
            || self.min_properties.is_some()
            || self.max_properties.is_some()
            || self.unique_items
            || self.pattern.is_some()
            || self.format.is_some()
            || self.options.is_some()
            || !self.all_of.is_empty()
            || !self.any_of.is_empty()
            || !self.one_of.is_empty()
            || self.not.is_some()
    }
}

/// A branch of a logical junctor says nothing of the type: its properties alone make it an object.
fn branch(schema: &Value) -> Result<Schema, String> {
    let mut schema = schema.clone();
    if let Some(fields) = schema.as_object_mut()
        && !fields.contains_key("type")
        && fields.contains_key("properties")
    {
        fields.insert("type".into(), "object".into());
    }
    super::structural::read(&schema)
}

/// Every way in which `value` breaks the schema.
pub(crate) fn check(schema: &Schema, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, value, old, &mut String::new(), &mut errors);
    errors
}

/// Findings after which the server does not run CEL rules: the object is too far from what rules may rely on.
pub(crate) fn blocks_rules(errors: &[FieldError]) -> bool {
    errors.iter().any(|error| {
        matches!(
            error.kind,
            ErrorKind::NotSupported
                | ErrorKind::Required
                | ErrorKind::TooLong
                | ErrorKind::TooMany
                | ErrorKind::TypeInvalid
        )
    })
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn expected(schema: &Schema) -> &'static str {
    match &schema.shape {
        Shape::Any => "",
        Shape::Struct { .. } | Shape::Map { .. } => "object",
        Shape::List { .. } => "array",
        Shape::Scalar(Scalar::Int32 | Scalar::Int64) => "integer",
        Shape::Scalar(Scalar::Number) => "number",
        Shape::Scalar(Scalar::Bool) => "boolean",
        Shape::Scalar(Scalar::IntOrString) => "integer,string",
        Shape::Scalar(_) => "string",
    }
}

fn type_fits(schema: &Schema, value: &Value) -> bool {
    match (&schema.shape, value) {
        (Shape::Any, _) => true,
        (_, Value::Null) => schema.nullable,
        (Shape::Struct { .. } | Shape::Map { .. }, value) => value.is_object(),
        (Shape::List { .. }, value) => value.is_array(),
        (Shape::Scalar(Scalar::Int32 | Scalar::Int64), Value::Number(number)) => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        (Shape::Scalar(Scalar::Number), value) => value.is_number(),
        (Shape::Scalar(Scalar::Bool), value) => value.is_boolean(),
        (Shape::Scalar(Scalar::IntOrString), value) => value.is_string() || value.is_i64() || value.is_u64(),
        (Shape::Scalar(Scalar::Int32 | Scalar::Int64), _) => false,
        (Shape::Scalar(_), value) => value.is_string(),
    }
}

fn walk(schema: &Schema, value: &Value, old: Option<&Value>, path: &mut String, errors: &mut Vec<FieldError>) {
    // What is as it was stays accepted even if the schema has become stricter since.
    if old == Some(value) {
        return;
    }
    if !type_fits(schema, value) {
        let (found, wanted) = (json_type(value), expected(schema));
        errors.push(FieldError {
            field: path.clone(),
            kind: ErrorKind::TypeInvalid,
            value: Some(format!("{found:?}")),
            detail: format!("{path} in body must be of type {wanted}: {found:?}"),
        });
        if let Some(options) = schema.checks.as_ref().and_then(|checks| checks.options.as_ref()) {
            errors.push(unlisted(path, value, options));
        }
        return;
    }
    if value.is_null() {
        return;
    }
    if let Some(checks) = &schema.checks {
        constraints(checks, value, path, errors);
    }
    let length = path.len();
    let dot = if path.is_empty() { "" } else { "." };
    match (&schema.shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(object)) => {
            for name in schema.required.iter().filter(|name| !object.contains_key(*name)) {
                errors.push(FieldError::required(format!("{path}{dot}{name}"), ""));
            }
            for (name, field) in fields {
                let Some(child) = object.get(name) else { continue };
                path.push_str(dot);
                path.push_str(name);
                walk(field, child, old.and_then(|old| old.get(name)), path, errors);
                path.truncate(length);
            }
        }
        (Shape::Map { values, .. }, Value::Object(object)) => {
            for name in schema.required.iter().filter(|name| !object.contains_key(*name)) {
                errors.push(FieldError::required(format!("{path}{dot}{name}"), ""));
            }
            for (key, child) in object {
                path.push_str(dot);
                path.push_str(key);
                walk(values, child, old.and_then(|old| old.get(key)), path, errors);
                path.truncate(length);
            }
        }
        (Shape::List { items, kind, .. }, Value::Array(list)) => {
            for (index, child) in list.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                let past = match kind {
                    ListKind::Map(keys) => old
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                        .find(|old| keys.iter().all(|key| old.get(key) == child.get(key))),
                    _ => None,
                };
                walk(items, child, past, path, errors);
                path.truncate(length);
            }
            duplicates(kind, list, path, errors);
        }
        _ => {}
    }
}

fn duplicates(kind: &ListKind, list: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, item) in list.iter().enumerate() {
        let identity = match kind {
            ListKind::Atomic => return,
            ListKind::Set => item.clone(),
            ListKind::Map(keys) => {
                let entries = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
                Value::Object(entries.collect())
            }
        };
        if !seen.insert(identity.to_string()) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), &identity));
        }
    }
}

fn constraints(checks: &Checks, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut invalid = |value: &Value, detail: String| errors.push(FieldError::invalid(path, value, detail));
    match value {
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if let Some(minimum) = checks.minimum {
                if checks.exclusive_minimum && number <= minimum {
                    invalid(value, format!("{path} in body should be greater than {minimum}"));
                } else if number < minimum {
                    invalid(value, format!("{path} in body should be greater than or equal to {minimum}"));
                }
            }
            if let Some(maximum) = checks.maximum {
                if checks.exclusive_maximum && number >= maximum {
                    invalid(value, format!("{path} in body should be less than {maximum}"));
                } else if number > maximum {
                    invalid(value, format!("{path} in body should be less than or equal to {maximum}"));
                }
            }
            if let Some(factor) = checks.multiple_of
                && (number / factor).fract() != 0.0
            {
                invalid(value, format!("{path} in body should be a multiple of {factor}"));
            }
        }
        Value::String(text) => {
            let length = text.chars().count();
            if let Some(minimum) = checks.min_length.filter(|minimum| length < *minimum) {
                invalid(value, format!("{path} in body should be at least {minimum} chars long"));
            }
            let too_long = checks.max_length.is_some_and(|maximum| length > maximum);
            let pattern = checks.pattern.as_ref().filter(|_| !too_long);
            if let Some((source, _)) = pattern.filter(|(_, pattern)| !pattern.is_match(text)) {
                invalid(value, format!("{path} in body should match '{source}'"));
            }
            if let Some(format) = checks.format.as_deref().filter(|format| !has_format(text, format)) {
                invalid(value, format!("{path} in body must be of type {format}: {text:?}"));
            }
            if let Some(maximum) = checks.max_length.filter(|maximum| length > *maximum) {
                let unit = if maximum == 1 { "byte" } else { "bytes" };
                errors.push(FieldError {
                    field: path.to_owned(),
                    kind: ErrorKind::TooLong,
                    value: None,
                    detail: format!("may not be more than {maximum} {unit}"),
                });
            }
        }
        Value::Array(list) => {
            if let Some(minimum) = checks.min_items.filter(|minimum| list.len() < *minimum) {
                invalid(&list.len().into(), format!("{path} in body should have at least {minimum} items"));
            }
            if checks.unique_items {
                let distinct: BTreeSet<String> = list.iter().map(Value::to_string).collect();
                if distinct.len() < list.len() {
                    invalid(value, format!("{path} in body shouldn't contain duplicates"));
                }
            }
            too_many(list.len(), checks.max_items, path, errors);
        }
        Value::Object(object) => {
            if let Some(minimum) = checks.min_properties.filter(|minimum| object.len() < *minimum) {
                invalid(&object.len().into(), format!("{path} in body should have at least {minimum} properties"));
            }
            too_many(object.len(), checks.max_properties, path, errors);
        }
        _ => {}
    }
    if let Some(options) = checks.options.as_ref().filter(|options| !options.contains(value)) {
        errors.push(unlisted(path, value, options));
    }
    junctors(checks, value, path, errors);
}

/// A value that is none of the listed.
fn unlisted(path: &str, value: &Value, options: &[Value]) -> FieldError {
    let supported: Vec<String> =
        options.iter().map(|option| option.as_str().map_or_else(|| option.to_string(), str::to_owned)).collect();
    let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
    FieldError::not_supported(path, value, &supported)
}

fn too_many(count: usize, maximum: Option<usize>, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(maximum) = maximum.filter(|maximum| count > *maximum) {
        let unit = if maximum == 1 { "item" } else { "items" };
        errors.push(FieldError {
            field: path.to_owned(),
            kind: ErrorKind::TooMany,
            value: Some(count.to_string()),
            detail: format!("must have at most {maximum} {unit}"),
        });
    }
}

fn junctors(checks: &Checks, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let fits = |schema: &Schema| {
        let mut found = Vec::new();
        walk(schema, value, None, &mut path.to_owned(), &mut found);
        found
    };
    // The server loses the path of these: it stands in the sentence alone.
    let mut lost = |detail: String| errors.push(FieldError::invalid("<nil>", &Value::String(String::new()), detail));
    if !checks.any_of.is_empty() && !checks.any_of.iter().any(|schema| fits(schema).is_empty()) {
        lost(format!("{path:?} must validate at least one schema (anyOf)"));
    }
    if !checks.one_of.is_empty() {
        match checks.one_of.iter().filter(|schema| fits(schema).is_empty()).count() {
            1 => {}
            0 => lost(format!("{path:?} must validate one and only one schema (oneOf). Found none valid")),
            many => {
                lost(format!("{path:?} must validate one and only one schema (oneOf). Found {many} valid alternatives"))
            }
        }
    }
    if checks.not.as_ref().is_some_and(|schema| fits(schema).is_empty()) {
        lost(format!("{path:?} must not validate the schema (not)"));
    }
    let all: Vec<Vec<FieldError>> = checks.all_of.iter().map(fits).collect();
    if all.iter().any(|found| !found.is_empty()) {
        errors.extend(all.into_iter().flatten());
        errors.push(FieldError::invalid(
            "<nil>",
            &Value::String(String::new()),
            format!("{path:?} must validate all the schemas (allOf)"),
        ));
    }
}

/// The formats in use; unknown ones are ignored, as the server does.
fn has_format(text: &str, format: &str) -> bool {
    match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => text.split_once('/').is_some_and(|(address, bits)| {
            address.parse::<std::net::IpAddr>().is_ok_and(|address| {
                bits.parse::<u8>().is_ok_and(|bits| bits <= if address.is_ipv4() { 32 } else { 128 })
            })
        }),
        _ => true,
    }
}
