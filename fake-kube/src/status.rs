//! The API's own errors: `Status` objects with the reasons, codes and sentences of the genuine server.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::kinds::Kind;

/// A refusal, as the API server words it. Rendered as a `v1` object of kind `Status`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, such as `NotFound`.
    pub reason: Cow<'static, str>,
    /// The sentence for people.
    pub message: String,
    /// What the refusal is about.
    pub details: Option<Box<Details>>,
    /// Warnings that go with the refusal, outside of it.
    pub warnings: Vec<String>,
}

/// The object a [`Status`] is about, and the single causes of an `Invalid` one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Resource (plural) or kind, as the server chooses for the reason at hand.
    pub kind: String,
    /// The object's uid, where the server tells it.
    pub uid: String,
    /// Every cause.
    pub causes: Vec<Cause>,
    /// Seconds after which a client may try again.
    pub retry_after_seconds: u32,
}

/// One cause of a refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Machine-readable, such as `FieldValueInvalid`.
    pub reason: Cow<'static, str>,
    /// For people.
    pub message: String,
    /// Path of the field.
    pub field: String,
}

impl Status {
    /// A status without details.
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), details: None, warnings: Vec::new() }
    }

    /// The same refusal with what was found before it.
    pub(crate) fn with_warnings(mut self, warnings: &[String]) -> Self {
        self.warnings.extend_from_slice(warnings);
        self
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.details =
            Some(Box::new(Details { name: name.into(), group: group.into(), kind: kind.into(), ..Details::default() }));
        self
    }

    pub(crate) fn with_cause(mut self, reason: &'static str, message: impl Into<String>, field: &str) -> Self {
        let cause = Cause { reason: reason.into(), message: message.into(), field: field.into() };
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// No such object.
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.qualified_resource());
        Self::new(404, "NotFound", message).about(&kind.group, &kind.plural, name)
    }

    /// No such resource or path.
    pub(crate) fn no_such_resource() -> Self {
        let mut status = Self::new(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(Box::default());
        status
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.qualified_resource());
        Self::new(409, "AlreadyExists", message).about(&kind.group, &kind.plural, name)
    }

    /// Why a write met another state than the one it was made for.
    pub(crate) fn conflict(kind: &Kind, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified_resource());
        Self::new(409, "Conflict", message).about(&kind.group, &kind.plural, name)
    }

    /// The object is not the one that is meant: another uid. The store says so, by its key.
    pub(crate) fn other_uid(kind: &Kind, namespace: &str, name: &str, meant: &str, found: &str) -> Self {
        let group = if kind.custom() { format!("{}/", kind.group) } else { String::new() };
        let place = if kind.namespaced { format!("{}/{namespace}", kind.plural) } else { kind.plural.clone() };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{group}{place}/{name}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: UID in precondition: {meant}, UID in object meta: {found}"
        );
        Self::conflict(kind, name, why)
    }

    /// The optimistic lock failed.
    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.qualified_resource());
        Self::new(403, "Forbidden", message).about(&kind.group, &kind.plural, name)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let mut status =
            Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        status.details = Some(Box::default());
        status
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let mut status = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        status.details.get_or_insert_default().causes.push(Cause { reason: "".into(), message, field: String::new() });
        status
    }

    pub(crate) fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message).retry_after(retry_after_seconds)
    }

    /// A watch or list asked for a version that is no longer kept.
    pub(crate) fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// Validation refused the object. `errors` must not be empty.
    pub(crate) fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_as(&kind.group, &kind.kind, name, errors)
    }

    /// Validation refused the options of a request.
    pub(crate) fn invalid_options(options: &str, errors: &[FieldError]) -> Self {
        Self::invalid_as("meta.k8s.io", options, "", errors)
    }

    /// Validation refused what goes by this group and kind in the refusal.
    pub(crate) fn invalid_as(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        let aggregate = match texts.as_slice() {
            [one] => one.clone(),
            many => {
                // The server's aggregate names equal texts once.
                let mut seen = std::collections::BTreeSet::new();
                let unique: Vec<&str> = many.iter().map(String::as_str).filter(|text| seen.insert(*text)).collect();
                if unique.len() == 1 { unique[0].to_owned() } else { format!("[{}]", unique.join(", ")) }
            }
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{qualified} \"{name}\" is invalid: {aggregate}");
        let mut status = Self::new(422, "Invalid", message).about(group, kind, name);
        let details = status.details.get_or_insert_default();
        details.causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.kind.cause_reason().into(),
                message: error.body(),
                field: error.field.clone(),
            })
            .collect();
        status
    }

    /// True when the object or resource does not exist.
    pub fn is_not_found(&self) -> bool {
        self.reason == "NotFound"
    }

    /// True when a write lost against a later one, or a precondition failed.
    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    /// True when a create met an object of the same name.
    pub fn is_already_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    /// True for a 429, such as a refused eviction.
    pub fn is_too_many_requests(&self) -> bool {
        self.code == 429
    }

    /// The `v1` Status object.
    pub fn to_json(&self) -> Value {
        let mut object = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            object["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            let mut rendered = Map::new();
            for (key, text) in
                [("name", &details.name), ("group", &details.group), ("kind", &details.kind), ("uid", &details.uid)]
            {
                if !text.is_empty() {
                    rendered.insert(key.into(), json!(text));
                }
            }
            if !details.causes.is_empty() {
                let causes = details.causes.iter().map(Cause::to_json).collect();
                rendered.insert("causes".into(), Value::Array(causes));
            }
            if details.retry_after_seconds > 0 {
                rendered.insert("retryAfterSeconds".into(), json!(details.retry_after_seconds));
            }
            object["details"] = Value::Object(rendered);
        }
        object
    }
}

impl Cause {
    fn to_json(&self) -> Value {
        let mut object = Map::new();
        for (key, text) in [("reason", self.reason.as_ref()), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                object.insert(key.into(), json!(text));
            }
        }
        Value::Object(object)
    }
}

/// One finding of validation: a field path, what is wrong and the value met.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    pub(crate) field: String,
    pub(crate) kind: ErrorKind,
    /// The offending value as the server prints it, quotes included; `None` where the kind prints none.
    pub(crate) value: Option<String>,
    pub(crate) detail: String,
}

/// The server's kinds of field errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    Required,
    Invalid,
    NotSupported,
    Duplicate,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    NotFound,
}

impl ErrorKind {
    fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TypeInvalid => "Invalid value",
            Self::NotFound => "Not found",
        }
    }

    fn cause_reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotFound => "FieldValueNotFound",
        }
    }
}

/// Why a text is no JSON, in the words of the server's decoder, as far as they can be told from its beginning and end.
pub(crate) fn go_json_error(text: &[u8]) -> String {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    match (first, serde_json::from_slice::<Value>(text)) {
        (None, _) => "unexpected end of JSON input".into(),
        (Some(_), Err(error)) if error.is_eof() => "unexpected end of JSON input".into(),
        (Some(first), _) if !b"{[\"-0123456789tfn".contains(first) => {
            format!("invalid character '{}' looking for beginning of value", char::from(*first))
        }
        (Some(first), Err(error)) => {
            let literal = ["null", "true", "false"].into_iter().find(|word| word.as_bytes()[0] == *first);
            let begin = text.iter().position(|byte| byte == first).unwrap_or(0);
            let wrong = literal.and_then(|word| {
                let at = word.bytes().zip(&text[begin..]).position(|(wanted, found)| wanted != *found)?;
                let (found, wanted) = (char::from(text[begin + at]), char::from(word.as_bytes()[at]));
                Some(format!("invalid character '{found}' in literal {word} (expecting '{wanted}')"))
            });
            wrong.unwrap_or_else(|| error.to_string())
        }
        (Some(_), Ok(_)) => String::new(),
    }
}

/// A JSON value as the server prints it in a field error: text quoted, numbers plain, the rest as JSON.
pub(crate) fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Null => "null".into(),
        Value::Number(number) if number.is_f64() => printed_in_go(value),
        other => other.to_string(),
    }
}

/// A value as Go prints it with `%v`.
pub(crate) fn printed_in_go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => float_in_go(number.as_f64().unwrap_or(f64::NAN)),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(list) => format!("[{}]", list.iter().map(printed_in_go).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", printed_in_go(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

/// The shortest digits that tell the number from others; below 10⁻⁴ and from 10⁶ on with an exponent of two digits.
fn float_in_go(number: f64) -> String {
    let text = format!("{number:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let Ok(power) = exponent.parse::<i32>() else { return text };
    if (-4..6).contains(&power) {
        return number.to_string();
    }
    format!("{digits}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}

impl FieldError {
    pub(crate) fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), kind: ErrorKind::Required, value: None, detail: detail.into() }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self { field: field.into(), kind: ErrorKind::Invalid, value: Some(printed(value)), detail: detail.into() }
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), kind: ErrorKind::Forbidden, value: None, detail: detail.into() }
    }

    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self { field: field.into(), kind: ErrorKind::NotFound, value: Some(printed(value)), detail: String::new() }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self { field: field.into(), kind: ErrorKind::Duplicate, value: Some(printed(value)), detail: String::new() }
    }

    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|text| format!("{text:?}")).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self { field: field.into(), kind: ErrorKind::NotSupported, value: Some(printed(value)), detail }
    }

    /// The error without its field.
    pub(crate) fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        if let Some(value) = &self.value {
            text = format!("{text}: {value}");
        }
        if !self.detail.is_empty() {
            text = format!("{text}: {}", self.detail);
        }
        text
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}
