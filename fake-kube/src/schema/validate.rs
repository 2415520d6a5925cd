//! Checking a custom resource against its structural schema, in the server's words.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use serde_json::{Number, Value};

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

/// Formats of texts that the server knows; it passes over others. Dashes do not count.
const TEXT_FORMATS: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

fn known_format(schema: &Value) -> Option<String> {
    let format = schema["format"].as_str()?;
    let known = match schema["type"].as_str().unwrap_or_default() {
        "" | "string" => TEXT_FORMATS.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    known.then(|| format.to_owned())
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
            format: known_format(schema),
            options: schema["enum"].as_array().cloned(),
            all_of: branches("allOf")?,
            any_of: branches("anyOf")?,
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

/// Every way in which `value` breaks the schema. Messages speak of paths below `value`; fields stand below `prefix`.
pub(crate) fn check(schema: &Schema, value: &Value, old: Option<&Value>, prefix: &str) -> Vec<FieldError> {
    let mut findings = Findings { prefix, errors: Vec::new() };
    walk(schema, value, old, &mut String::new(), &mut findings);
    findings.errors
}

/// What was found, and below which field.
struct Findings<'a> {
    prefix: &'a str,
    errors: Vec<FieldError>,
}

impl Findings<'_> {
    fn field(&self, path: &str) -> String {
        match (self.prefix, path) {
            (prefix, "") => prefix.to_owned(),
            ("", path) => path.to_owned(),
            (prefix, path) => format!("{prefix}.{path}"),
        }
    }

    fn add(&mut self, path: &str, kind: ErrorKind, value: Option<String>, detail: String) {
        let field = self.field(path);
        self.errors.push(FieldError { field, kind, value, detail });
    }

    fn invalid(&mut self, path: &str, value: &Value, detail: String) {
        self.add(path, ErrorKind::Invalid, Some(crate::status::printed(value)), detail);
    }

    fn type_invalid(&mut self, path: &str, wanted: &str, found: &str) {
        let detail = format!("{path} in body must be of type {wanted}: {found:?}");
        self.add(path, ErrorKind::TypeInvalid, Some(format!("{found:?}")), detail);
    }

    /// The server loses the path of some findings: it stands in the sentence alone.
    fn lost(&mut self, detail: String) {
        let field = if self.prefix.is_empty() { "<nil>" } else { self.prefix };
        self.errors.push(FieldError::invalid(field, &Value::String(String::new()), detail));
    }
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

/// The largest whole number up to which every whole number has a float of its own.
const LARGEST_WHOLE_FLOAT: f64 = 9_007_199_254_740_991.0;

/// Numbers are whole if they are written so, or are a float without a fraction that stands for one whole number alone.
fn whole(number: &Number) -> bool {
    number.is_i64()
        || number.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() <= LARGEST_WHOLE_FLOAT)
}

fn type_fits(schema: &Schema, value: &Value) -> bool {
    match (&schema.shape, value) {
        (Shape::Any, _) => true,
        (_, Value::Null) => schema.nullable,
        (Shape::Struct { .. } | Shape::Map { .. }, value) => value.is_object(),
        (Shape::List { .. }, value) => value.is_array(),
        (Shape::Scalar(Scalar::Int32 | Scalar::Int64), value) => value.as_number().is_some_and(whole),
        (Shape::Scalar(Scalar::Number), value) => value.is_number(),
        (Shape::Scalar(Scalar::Bool), value) => value.is_boolean(),
        (Shape::Scalar(Scalar::IntOrString), value) => value.is_string() || value.as_number().is_some_and(whole),
        (Shape::Scalar(_), value) => value.is_string(),
    }
}

/// A value of another type than wanted. Where the schema has a format the server compares formats instead, with its
/// own names for those of numbers; and of texts it leaves all to the format.
fn type_mismatch(schema: &Schema, value: &Value, path: &str, findings: &mut Findings) {
    let format = schema.checks.as_ref().and_then(|checks| checks.format.as_deref());
    match (format, value) {
        (_, Value::Null) | (None, _) => findings.type_invalid(path, expected(schema), json_type(value)),
        (Some(_), Value::String(_) | Value::Array(_)) => {
            if expected(schema) != "string" {
                findings.type_invalid(path, expected(schema), json_type(value));
            }
        }
        (Some(format), Value::Number(number)) => {
            findings.type_invalid(path, format, if number.is_f64() { "float64" } else { "int64" });
        }
        (Some(format), Value::Bool(_) | Value::Object(_)) => findings.type_invalid(path, format, ""),
    }
}

fn walk(schema: &Schema, value: &Value, old: Option<&Value>, path: &mut String, findings: &mut Findings) {
    // What is as it was stays accepted even if the schema has become stricter since.
    if old == Some(value) {
        return;
    }
    // The server goes on after a wrong type, with whatever it can say of such a value.
    if !type_fits(schema, value) {
        type_mismatch(schema, value, path, findings);
    }
    if value.is_null() {
        return;
    }
    if let Some(checks) = &schema.checks {
        constraints(checks, value, path, findings);
    }
    if let Value::Number(number) = value {
        range(schema, number, path, findings);
    }
    if let Some(options) = schema.checks.as_ref().and_then(|checks| checks.options.as_ref()) {
        one_of_options(options, value, path, findings);
    }
    let length = path.len();
    let dot = if path.is_empty() { "" } else { "." };
    if let Value::Object(object) = value {
        for name in schema.required.iter().filter(|name| !object.contains_key(*name)) {
            findings.add(&format!("{path}{dot}{name}"), ErrorKind::Required, None, String::new());
        }
    }
    match (&schema.shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(object)) => {
            for (name, field) in fields {
                let Some(child) = object.get(name) else { continue };
                path.push_str(dot);
                path.push_str(name);
                walk(field, child, old.and_then(|old| old.get(name)), path, findings);
                path.truncate(length);
            }
        }
        (Shape::Map { values, .. }, Value::Object(object)) => {
            for (key, child) in object {
                path.push_str(dot);
                path.push_str(key);
                walk(values, child, old.and_then(|old| old.get(key)), path, findings);
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
                walk(items, child, past, path, findings);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Every second item of a list whose items should differ. An object that had such lists before may keep them.
pub(crate) fn duplicates(schema: &Schema, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let found = |value: &Value| {
        let mut errors = Vec::new();
        find_duplicates(schema, value, &mut String::new(), &mut errors);
        errors
    };
    let errors = found(value);
    if !errors.is_empty() && old.is_some_and(|old| !found(old).is_empty()) { Vec::new() } else { errors }
}

fn find_duplicates(schema: &Schema, value: &Value, path: &mut String, errors: &mut Vec<FieldError>) {
    let length = path.len();
    match (&schema.shape, value) {
        (Shape::Struct { fields, .. }, Value::Object(object)) => {
            for (name, child) in object {
                let Some(field) = fields.get(name) else { continue };
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                find_duplicates(field, child, path, errors);
                path.truncate(length);
            }
        }
        (Shape::Map { values, .. }, Value::Object(object)) => {
            for (key, child) in object {
                path.push_str(&format!("[{key}]"));
                find_duplicates(values, child, path, errors);
                path.truncate(length);
            }
        }
        (Shape::List { items, kind, .. }, Value::Array(list)) => {
            list_duplicates(kind, list, path, errors);
            for (index, child) in list.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                find_duplicates(items, child, path, errors);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Names the second item of each kind, not the third.
fn list_duplicates(kind: &ListKind, list: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    if let ListKind::Map(_) = kind
        && let Some(index) = list.iter().position(|item| !item.is_object() && !item.is_null())
    {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(format!("{path}[{index}]"), &list[index], detail));
        return;
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, item) in list.iter().enumerate() {
        let identity = match kind {
            ListKind::Atomic => return,
            ListKind::Set => item.clone(),
            ListKind::Map(keys) => {
                let entries = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
                Value::Object(entries.collect())
            }
        };
        let times = seen.entry(identity.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), &identity));
        }
    }
}

/// Whether a number is within what its type and format can hold.
fn range(schema: &Schema, number: &Number, path: &str, findings: &mut Findings) {
    if !matches!(schema.shape, Shape::Scalar(Scalar::Int32 | Scalar::Int64)) {
        return;
    }
    let format = schema.checks.as_ref().and_then(|checks| checks.format.as_deref());
    let held = match (number.as_i64(), number.as_f64()) {
        (Some(number), _) => format != Some("int32") || i32::try_from(number).is_ok(),
        // Written in full digits it is read as a whole number.
        (None, Some(number)) => {
            let (least, most) = if format == Some("int32") {
                (f64::from(i32::MIN), f64::from(i32::MAX))
            } else {
                (-9_223_372_036_854_775_808.0, 9_223_372_036_854_774_784.0)
            };
            number.fract() == 0.0 && number >= least && number <= most
        }
        (None, None) => false,
    };
    if !held {
        let format = format.map_or_else(|| "(default format)".to_owned(), |format| format!("with format {format}"));
        findings.lost(format!("Checked value must be of type integer {format} in {path}"));
    }
}

/// Every check but those of types and of lists of options, in the server's order.
fn constraints(checks: &Checks, value: &Value, path: &str, findings: &mut Findings) {
    junctors(checks, value, path, findings);
    match value {
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if let Some(factor) = checks.multiple_of
                && (number / factor).fract() != 0.0
            {
                findings.invalid(path, value, format!("{path} in body should be a multiple of {factor}"));
            }
            if let Some(minimum) = checks.minimum {
                if checks.exclusive_minimum && number <= minimum {
                    findings.invalid(path, value, format!("{path} in body should be greater than {minimum}"));
                } else if number < minimum {
                    let detail = format!("{path} in body should be greater than or equal to {minimum}");
                    findings.invalid(path, value, detail);
                }
            }
            if let Some(maximum) = checks.maximum {
                if checks.exclusive_maximum && number >= maximum {
                    findings.invalid(path, value, format!("{path} in body should be less than {maximum}"));
                } else if number > maximum {
                    findings.invalid(path, value, format!("{path} in body should be less than or equal to {maximum}"));
                }
            }
        }
        Value::String(text) => {
            text_constraints(checks, text, value, path, findings);
            if let Some(format) = checks.format.as_deref().filter(|format| !has_format(text, format)) {
                findings.type_invalid(path, format, text);
            }
        }
        Value::Array(list) => {
            if let Some(minimum) = checks.min_items.filter(|minimum| list.len() < *minimum) {
                let detail = format!("{path} in body should have at least {minimum} items");
                findings.invalid(path, &list.len().into(), detail);
            }
            too_many(list.len(), checks.max_items, path, findings);
            if checks.unique_items {
                let distinct: BTreeSet<String> = list.iter().map(Value::to_string).collect();
                if distinct.len() < list.len() {
                    findings.invalid(path, value, format!("{path} in body shouldn't contain duplicates"));
                }
            }
        }
        Value::Object(object) => {
            if let Some(minimum) = checks.min_properties.filter(|minimum| object.len() < *minimum) {
                let detail = format!("{path} in body should have at least {minimum} properties");
                findings.invalid(path, &object.len().into(), detail);
            }
            too_many(object.len(), checks.max_properties, path, findings);
        }
        _ => {}
    }
}

/// Of a text's length and pattern the server names the first thing that is wrong.
fn text_constraints(checks: &Checks, text: &str, value: &Value, path: &str, findings: &mut Findings) {
    let length = text.chars().count();
    if let Some(maximum) = checks.max_length.filter(|maximum| length > *maximum) {
        let unit = if maximum == 1 { "byte" } else { "bytes" };
        findings.add(path, ErrorKind::TooLong, None, format!("may not be more than {maximum} {unit}"));
    } else if let Some(minimum) = checks.min_length.filter(|minimum| length < *minimum) {
        findings.invalid(path, value, format!("{path} in body should be at least {minimum} chars long"));
    } else if let Some((source, _)) = checks.pattern.as_ref().filter(|(_, pattern)| !pattern.is_match(text)) {
        findings.invalid(path, value, format!("{path} in body should match '{source}'"));
    }
}

fn one_of_options(options: &[Value], value: &Value, path: &str, findings: &mut Findings) {
    if options.contains(value) {
        return;
    }
    let supported: Vec<String> =
        options.iter().map(|option| option.as_str().map_or_else(|| option.to_string(), str::to_owned)).collect();
    let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
    let field = findings.field(path);
    findings.errors.push(FieldError::not_supported(field, value, &supported));
}

fn too_many(count: usize, maximum: Option<usize>, path: &str, findings: &mut Findings) {
    if let Some(maximum) = maximum.filter(|maximum| count > *maximum) {
        let unit = if maximum == 1 { "item" } else { "items" };
        let detail = format!("must have at most {maximum} {unit}");
        findings.add(path, ErrorKind::TooMany, Some(count.to_string()), detail);
    }
}

fn junctors(checks: &Checks, value: &Value, path: &str, findings: &mut Findings) {
    let prefix = findings.prefix;
    let fits = |schema: &Schema| {
        let mut found = Findings { prefix, errors: Vec::new() };
        walk(schema, value, None, &mut path.to_owned(), &mut found);
        found.errors
    };
    let any: Vec<Vec<FieldError>> = checks.any_of.iter().map(fits).collect();
    if !any.is_empty() && any.iter().all(|found| !found.is_empty()) {
        findings.lost(format!("{path:?} must validate at least one schema (anyOf)"));
        // The server shows what the best of them says: the first, unless another has more that fits.
        findings.errors.extend(any.into_iter().next().unwrap_or_default());
    }
    let one: Vec<Vec<FieldError>> = checks.one_of.iter().map(fits).collect();
    if !one.is_empty() {
        match one.iter().filter(|found| found.is_empty()).count() {
            1 => {}
            0 => {
                findings.lost(format!("{path:?} must validate one and only one schema (oneOf). Found none valid"));
                findings.errors.extend(one.into_iter().next().unwrap_or_default());
            }
            many => findings.lost(format!(
                "{path:?} must validate one and only one schema (oneOf). Found {many} valid alternatives"
            )),
        }
    }
    let all: Vec<Vec<FieldError>> = checks.all_of.iter().map(fits).collect();
    if all.iter().any(|found| !found.is_empty()) {
        let none = if all.iter().all(|found| !found.is_empty()) { ". None validated" } else { "" };
        findings.errors.extend(all.into_iter().flatten());
        findings.lost(format!("{path:?} must validate all the schemas (allOf){none}"));
    }
    if checks.not.as_ref().is_some_and(|schema| fits(schema).is_empty()) {
        findings.lost(format!("{path:?} must not validate the schema (not)"));
    }
}

/// The formats in use; other known ones count as met.
fn has_format(text: &str, format: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_date_time(text),
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

/// A day, a `T` and a time of day with its offset (RFC 3339). The server knows no leap second.
fn is_date_time(text: &str) -> bool {
    let text = text.to_ascii_uppercase();
    let Some((day, time)) = text.split_once('T') else { return false };
    let day_fits = day.len() == 10 && day.parse::<jiff::civil::Date>().is_ok();
    let within = |range: std::ops::Range<usize>, most: u8| {
        let number = time.get(range).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        number.and_then(|digits| digits.parse::<u8>().ok()).is_some_and(|number| number <= most)
    };
    let colon = |index: usize| time.as_bytes().get(index) == Some(&b':');
    let clock_fits = within(0..2, 23) && colon(2) && within(3..5, 59) && colon(5) && within(6..8, 59);
    let rest = time.get(8..).unwrap_or_default();
    let offset =
        rest.strip_prefix('.').map_or(rest, |fraction| fraction.trim_start_matches(|c: char| c.is_ascii_digit()));
    let empty_fraction = rest.strip_prefix('.').is_some_and(|fraction| fraction.len() == offset.len());
    let offset_fits = offset == "Z"
        || offset.strip_prefix(['+', '-']).is_some_and(|offset| {
            offset.len() == 5
                && offset
                    .bytes()
                    .enumerate()
                    .all(|(index, byte)| if index == 2 { byte == b':' } else { byte.is_ascii_digit() })
        });
    day_fits && clock_fits && offset_fits && !empty_fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_rfc_3339() {
        for text in ["2026-01-01T00:00:00Z", "2026-02-28t23:59:59.123456789z", "2026-01-01T00:00:00+02:00"] {
            assert!(is_date_time(text), "{text}");
        }
        for text in [
            "",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-02-30T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00+0200",
            "26-01-01T00:00:00Z",
        ] {
            assert!(!is_date_time(text), "{text}");
        }
    }
}
