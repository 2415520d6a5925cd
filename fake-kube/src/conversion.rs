//! Between the stored version of an object and the other versions it is served in.

use serde_json::{Map, Value, json};

use crate::kinds::{Conversion, Kind};

/// Fields that `events.k8s.io/v1` names differently from the core Event.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Whether objects must be rewritten to be shown as this kind.
pub(crate) fn converts(kind: &Kind) -> bool {
    kind.conversion != Conversion::None || kind.api_version() != kind.storage_api_version
}

/// From the version of the request to the stored one.
pub(crate) fn to_storage(kind: &Kind, object: &mut Value) {
    if !converts(kind) {
        return;
    }
    object["apiVersion"] = json!(kind.storage_api_version);
    if kind.conversion == Conversion::Events {
        rename(object, |core, new| (new, core));
    }
}

/// From the stored version to the one of the request.
pub(crate) fn from_storage(kind: &Kind, object: &mut Value) {
    if !converts(kind) {
        return;
    }
    object["apiVersion"] = json!(kind.api_version());
    if kind.conversion == Conversion::Events {
        rename(object, |core, new| (core, new));
        if let Some(fields) = object.as_object_mut() {
            for key in ["reportingController", "reportingInstance"] {
                if fields.get(key).is_some_and(|value| value == "") {
                    fields.remove(key);
                }
            }
        }
    }
}

fn rename(object: &mut Value, direction: impl Fn(&'static str, &'static str) -> (&'static str, &'static str)) {
    let Some(fields) = object.as_object_mut() else { return };
    let mut renamed = Map::new();
    for (core, new) in EVENT_FIELDS {
        let (from, to) = direction(core, new);
        if let Some(value) = fields.remove(from) {
            renamed.insert(to.to_owned(), value);
        }
    }
    fields.extend(renamed);
}
