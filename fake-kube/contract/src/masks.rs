//! What two servers cannot agree on: identities, times and revisions. Each is replaced by a sign that keeps what matters
//! of it: the same uid gets the same number, and so does the same version of an object, a time keeps its precision.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Value, json};

use crate::player::Transcript;
use crate::sequence::Sequence;

static UID: LazyLock<Regex> = LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"));
/// Revisions in sentences.
static REVISION: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)(resource version: |current: )\d+|\(\d+\)"));
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"^10\.\d+\.\d+\.\d+$"));
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d+(ms|s|m)$"));
static GENERATED: LazyLock<Regex> = LazyLock::new(|| pattern("-[bcdfghjklmnpqrstvwxz2456789]{5}$"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a constant of this file")
}

/// A transcript in the form in which it is compared and kept.
pub fn masked(sequence: &Sequence, transcript: &Transcript) -> Vec<Value> {
    let mut masks = Masks { sequence, kept: &transcript.kept, uids: BTreeMap::new(), versions: BTreeMap::new() };
    let mut records: Vec<Value> = transcript.records.iter().map(|record| masks.value(record, "")).collect();
    for record in &mut records {
        without_places(&mut record["body"]);
        in_any_order(&mut record["body"]);
    }
    records
}

// accepted: Where a body cannot be read fake-kube tells the place, as a cause without a sentence; the genuine server does not.
fn without_places(status: &mut Value) {
    let Some(causes) = status["details"]["causes"].as_array() else { return };
    let places = causes.iter().all(|cause| cause["message"].is_null() && cause["field"].is_string());
    if status["reason"] == "BadRequest"
        && places
        && status["details"].as_object().is_some_and(|fields| fields.len() == 1)
    {
        status.as_object_mut().map(|fields| fields.remove("details"));
    }
}

// accepted: The causes of a refusal come in the order of the schema; the genuine server's come in any order.
/// The genuine server looks at the fields of an object in no order: the causes of a refusal are sorted, and the sentence
/// that joins them is checked against them and taken out.
fn in_any_order(status: &mut Value) {
    let Some(causes) = status["details"]["causes"].as_array().filter(|causes| causes.len() > 1) else { return };
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    let mut joined: Vec<String> = Vec::new();
    for cause in causes {
        let one = format!("{}: {}", text(cause, "field"), text(cause, "message"));
        if !joined.contains(&one) {
            joined.push(one);
        }
    }
    let joined = if joined.len() == 1 { joined.remove(0) } else { format!("[{}]", joined.join(", ")) };
    let mut causes = causes.clone();
    causes.sort_by_key(|cause| (text(cause, "field"), text(cause, "message")));
    if let Some(before) = status["message"].as_str().and_then(|message| message.strip_suffix(&joined)) {
        status["message"] = json!(format!("{before}<the causes>"));
    }
    status["details"]["causes"] = Value::Array(causes);
}

struct Masks<'a> {
    sequence: &'a Sequence,
    kept: &'a BTreeMap<String, String>,
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Masks<'_> {
    fn value(&mut self, value: &Value, key: &str) -> Value {
        match value {
            Value::String(text) => json!(self.text(text, key)),
            Value::Array(list) => list.iter().map(|value| self.value(value, key)).collect(),
            Value::Object(fields) => {
                let mut masked = serde_json::Map::new();
                let uid = fields.get("uid").and_then(Value::as_str).unwrap_or_default();
                for (key, value) in fields {
                    let value = match (key.as_str(), value) {
                        ("managedFields", fields) if !self.sequence.managed_fields || by_default(fields) => continue,
                        ("resourceVersion", Value::String(version)) if !uid.is_empty() => {
                            json!(self.version(uid, version))
                        }
                        ("resourceVersion", Value::String(_)) => json!("<revision>"),
                        ("continue", Value::String(token)) if !token.is_empty() => json!("<token>"),
                        _ => self.value(value, key),
                    };
                    masked.insert(key.clone(), value);
                }
                Value::Object(masked)
            }
            other => other.clone(),
        }
    }

    /// Versions are counted object by object: how many others have changed in between is the server's affair.
    fn version(&mut self, uid: &str, version: &str) -> String {
        let seen = self.versions.entry(uid.to_owned()).or_default();
        let next = seen.len() + 1;
        format!("<version {}>", seen.entry(version.to_owned()).or_insert(next))
    }

    fn text(&mut self, text: &str, key: &str) -> String {
        if key == "cells" && AGE.is_match(text) {
            return "<age>".into();
        }
        if matches!(key, "clusterIP" | "clusterIPs") && ADDRESS.is_match(text) {
            return "<address>".into();
        }
        let mut masked = text.to_owned();
        // The longer value first: a namespace holds the word that makes it unique.
        let mut kept: Vec<(&String, &String)> = self.kept.iter().collect();
        kept.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        for (name, value) in kept {
            // A short value, such as a version, may stand in any text by chance.
            if masked == *value || value.len() >= 5 {
                masked = masked.replace(value.as_str(), &format!("${{{name}}}"));
            }
        }
        let masked = UID.replace_all(&masked, |found: &Captures<'_>| {
            let next = self.uids.len() + 1;
            format!("<uid {}>", self.uids.entry(found[0].to_owned()).or_insert(next))
        });
        let masked = TIME.replace_all(&masked, |found: &Captures<'_>| {
            if self.sequence.text.contains(&found[0]) {
                return found[0].to_owned();
            }
            let digits = found.get(1).map_or(0, |fraction| fraction.len() - 1);
            if digits == 0 { "<time>".into() } else { format!("<time to {digits} digits>") }
        });
        let masked = REVISION.replace_all(&masked, |found: &Captures<'_>| match found.get(1) {
            Some(before) => format!("{}<revision>", before.as_str()),
            None => "(<revision>)".into(),
        });
        if key == "name" {
            return GENERATED.replace(&masked, "-<suffix>").into_owned();
        }
        masked.into_owned()
    }
}

// accepted: Writes by callers who do not name their field manager are not recorded in managed fields until somebody applies.
/// Whether everything was written by callers who did not name themselves.
fn by_default(fields: &Value) -> bool {
    fields.as_array().is_some_and(|fields| {
        fields.iter().all(|entry| {
            entry["operation"] == "Update"
                && entry["manager"]
                    .as_str()
                    .is_some_and(|name| name == "contract" || name.starts_with("kube-apiserver"))
        })
    })
}

/// Whether a pattern covers a pointer: `*` stands for one segment, a pattern covers what lies below it.
pub fn covers(pattern: &str, pointer: &str) -> bool {
    let mut segments = pointer.split('/');
    pattern.split('/').all(|wanted| segments.next().is_some_and(|segment| wanted == "*" || wanted == segment))
}
