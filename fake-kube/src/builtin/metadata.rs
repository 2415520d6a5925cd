//! Names, labels, annotations, finalizers and owner references: the same for all kinds.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::Regex;
use serde_json::{Value, json};

use crate::{
    kinds::Builtin,
    status::{ErrorKind, FieldError},
};

const LABEL_NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const DNS_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// Annotations of one object may hold this much together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

// These patterns are constants of this file; that they compile is a matter of its tests.
fn anchored(pattern: &str) -> Option<Regex> {
    Regex::new(&format!("^(?:{pattern})$")).ok()
}

static LABEL_NAME_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(LABEL_NAME));
static DNS_LABEL_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(DNS_LABEL));
static DNS_SUBDOMAIN_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| anchored(DNS_SUBDOMAIN));

fn fits(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_none_or(|pattern| pattern.is_match(text))
}

/// What is wrong with a label value.
pub(crate) fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !fits(&LABEL_NAME_PATTERN, value) {
        errors.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
             validation is '({LABEL_NAME})?')"
        ));
    }
    errors
}

/// What is wrong with a qualified name, such as a label key.
pub(crate) fn qualified_name_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let part = match name.split('/').collect::<Vec<_>>().as_slice() {
        [part] => *part,
        [prefix, part] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(dns_subdomain_errors(prefix).into_iter().map(|error| format!("prefix part {error}")));
            }
            *part
        }
        _ => {
            errors.push(format!(
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                 with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation \
                 is '{LABEL_NAME}') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return errors;
        }
    };
    if part.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if part.len() > 63 {
        errors.push("name part must be no more than 63 bytes".to_owned());
    }
    if !fits(&LABEL_NAME_PATTERN, part) {
        errors.push(format!(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '{LABEL_NAME}')"
        ));
    }
    errors
}

/// What is wrong with a DNS label.
pub(crate) fn dns_label_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 63 {
        errors.push("must be no more than 63 characters".to_owned());
    }
    if !fits(&DNS_LABEL_PATTERN, name) {
        errors.push(if fits(&DNS_SUBDOMAIN_PATTERN, name) {
            "must not contain dots".to_owned()
        } else {
            format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '{DNS_LABEL}')"
            )
        });
    }
    errors
}

/// What is wrong with a DNS subdomain.
pub(crate) fn dns_subdomain_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 253 {
        errors.push("must be no more than 253 characters".to_owned());
    }
    if !fits(&DNS_SUBDOMAIN_PATTERN, name) {
        errors.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{DNS_SUBDOMAIN}')"
        ));
    }
    errors
}

/// Checks the name a new object asks for.
pub(crate) fn validate_name(name: &str, builtin: Builtin, loose: bool) -> Vec<FieldError> {
    let errors = if loose {
        let bad = name.contains(['/', '%']) || matches!(name, "." | "..");
        if bad { vec!["may not contain '/' or '%'".to_owned()] } else { Vec::new() }
    } else if matches!(builtin, Builtin::Namespace | Builtin::Service) {
        dns_label_errors(name)
    } else {
        dns_subdomain_errors(name)
    };
    errors.into_iter().map(|error| FieldError::invalid("metadata.name", &json!(name), error)).collect()
}

/// Checks a map of labels.
pub(crate) fn validate_labels(labels: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        for error in qualified_name_errors(key) {
            errors.push(FieldError::invalid(path, &json!(key), error));
        }
        for error in label_value_errors(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(path, value, error));
        }
    }
    errors
}

/// Checks the metadata of a new state. What did not change is taken as checked.
pub(crate) fn validate(metadata: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let changed = |key: &str| !metadata[key].is_null() && old.is_none_or(|old| old[key] != metadata[key]);
    let mut errors = Vec::new();
    if changed("labels") {
        errors.extend(validate_labels(&metadata["labels"], "metadata.labels"));
    }
    if changed("annotations") {
        let mut total = 0;
        for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
            // Annotation keys may have capitals in their prefix.
            for error in qualified_name_errors(&key.to_lowercase()) {
                errors.push(FieldError::invalid("metadata.annotations", &json!(key), error));
            }
            total += key.len() + value.as_str().map_or(0, str::len);
        }
        if total > MAX_ANNOTATIONS {
            let detail = format!("may not be more than {MAX_ANNOTATIONS} bytes");
            errors.push(FieldError {
                field: "metadata.annotations".into(),
                kind: ErrorKind::TooLong,
                value: None,
                detail,
            });
        }
    }
    if changed("finalizers") {
        for finalizer in metadata["finalizers"].as_array().into_iter().flatten() {
            let name = finalizer.as_str().unwrap_or_default();
            for error in qualified_name_errors(name) {
                errors.push(FieldError::invalid("metadata.finalizers", finalizer, error));
            }
        }
    }
    if changed("ownerReferences") {
        errors.extend(validate_owners(&metadata["ownerReferences"]));
    }
    errors
}

/// Built-in kinds take finalizers of a domain, and a few that have none.
pub(crate) fn plain_finalizers(metadata: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if old.is_some_and(|old| old["finalizers"] == metadata["finalizers"]) {
        return Vec::new();
    }
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten().enumerate();
    finalizers
        .filter(|(_, finalizer)| {
            let name = finalizer.as_str().unwrap_or_default();
            !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion")
        })
        .map(|(index, finalizer)| {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            FieldError::invalid(format!("metadata.finalizers[{index}]"), finalizer, detail)
        })
        .collect()
}

fn validate_owners(owners: &Value) -> Vec<FieldError> {
    const PATH: &str = "metadata.ownerReferences";
    let mut errors = Vec::new();
    let mut controllers = Vec::new();
    for owner in owners.as_array().into_iter().flatten() {
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        let version = text("apiVersion");
        if version.is_empty() || version.matches('/').count() > 1 {
            let detail = "version must not be empty";
            errors.push(FieldError::invalid(format!("{PATH}.apiVersion"), &json!(version), detail));
        }
        for key in ["kind", "name", "uid"] {
            if text(key).is_empty() {
                errors.push(FieldError::invalid(format!("{PATH}.{key}"), &json!(""), "must not be empty"));
            }
        }
        if matches!((version, text("kind")), ("v1" | "events.k8s.io/v1", "Event")) {
            let shown = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
            let detail = format!("{shown}, Kind=Event is disallowed from being an owner");
            errors.push(shown_owner(PATH, printed_owner(owner), detail));
        }
        if owner["controller"] == true {
            controllers.push(format!("{}/{}", text("kind"), text("name")));
        }
    }
    if let [first, second, ..] = controllers.as_slice() {
        let all: Vec<String> = owners.as_array().into_iter().flatten().map(printed_owner).collect();
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        errors.push(shown_owner(PATH, format!("[{}]", all.join(",")), detail));
    }
    errors
}

fn shown_owner(path: &str, value: String, detail: String) -> FieldError {
    FieldError { field: path.into(), kind: ErrorKind::Invalid, value: Some(value), detail }
}

/// In the order of the server's type.
fn printed_owner(owner: &Value) -> String {
    let fields: Vec<String> = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"]
        .into_iter()
        .filter_map(|key| owner.get(key).map(|value| format!("{key:?}:{value}")))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// What an update of the metadata may not do.
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // What the caller leaves out is filled in by the server.
    for key in ["uid", "deletionTimestamp"] {
        if !new[key].is_null() && new[key] != "" && new[key] != old[key] {
            errors.push(FieldError::invalid(format!("metadata.{key}"), &new[key], "field is immutable"));
        }
    }
    if !old["deletionTimestamp"].is_string() {
        return errors;
    }
    let list = |metadata: &Value| -> BTreeMap<String, ()> {
        let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
        finalizers.filter_map(|finalizer| Some((finalizer.as_str()?.to_owned(), ()))).collect()
    };
    let before = list(old);
    let extra: Vec<String> =
        list(new).into_keys().filter(|name| !before.contains_key(name)).map(|name| format!("{name:?}")).collect();
    if extra.is_empty() {
        return errors;
    }
    errors.push(FieldError::forbidden(
        "metadata.finalizers",
        format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            extra.join(", ")
        ),
    ));
    errors
}
