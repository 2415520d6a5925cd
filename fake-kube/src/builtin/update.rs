//! What the server does to an update of a built-in kind before it compares and validates.

use serde_json::Value;

use crate::{
    kinds::Builtin,
    write::{Part, restore},
};

/// Prepares the new state of an existing object.
pub(crate) fn prepare(builtin: Builtin, old: &Value, new: &mut Value, part: Part) {
    match (builtin, part) {
        // Quality of service is computed once.
        (Builtin::Pod, Part::Status) => restore(&mut new["status"], &old["status"], "qosClass"),
        (Builtin::Pod, Part::Whole) => super::create::tolerate_outages(&mut new["spec"]),
        (Builtin::Namespace, Part::Whole) => restore(new, old, "spec"),
        (Builtin::Service, Part::Whole) => {
            for key in ["clusterIP", "clusterIPs"] {
                if new["spec"][key].is_null() {
                    restore(&mut new["spec"], &old["spec"], key);
                }
            }
        }
        // Job selectors are generated; a client that applies its manifest again does not send them.
        (Builtin::Job, Part::Whole) if new["spec"]["selector"].is_null() => {
            restore(&mut new["spec"], &old["spec"], "selector");
            let labels = old["spec"]["template"]["metadata"]["labels"].clone();
            if new["spec"]["manualSelector"] != true {
                for (key, value) in labels.as_object().into_iter().flatten() {
                    let present = &mut new["spec"]["template"]["metadata"]["labels"];
                    if present.get(key).is_none() {
                        present[key.as_str()] = value.clone();
                    }
                }
            }
        }
        _ => {}
    }
}
