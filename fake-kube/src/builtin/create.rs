//! What the server does to a new object of a built-in kind before defaults: status, labels and taints that clients do
//! not choose.

use serde_json::{Value, json};

use super::pod;
use crate::kinds::Builtin;

/// Prepares a new object.
pub(crate) fn prepare(builtin: Builtin, object: &mut Value, now: &str) {
    match builtin {
        Builtin::Pod => new_pod(object, now),
        Builtin::Node => new_node(object),
        Builtin::Namespace => new_namespace(object),
        Builtin::Job => new_job(object),
        Builtin::PersistentVolume => {
            object["status"] = json!({ "phase": "Pending", "lastPhaseTransitionTime": now });
        }
        Builtin::PersistentVolumeClaim => object["status"] = json!({ "phase": "Pending" }),
        Builtin::Service => object["status"] = json!({ "loadBalancer": {} }),
        // These counters are always written, zero or not.
        Builtin::ReplicaSet => object["status"] = json!({ "replicas": 0 }),
        Builtin::StatefulSet => object["status"] = json!({ "replicas": 0, "availableReplicas": 0 }),
        Builtin::DaemonSet => {
            object["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = json!("1");
            object["status"] = json!({
                "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
            });
        }
        Builtin::PodDisruptionBudget => {
            object["status"] =
                json!({ "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0 });
        }
        Builtin::Deployment | Builtin::CronJob | Builtin::ResourceClaim => object["status"] = json!({}),
        _ => {}
    }
}

fn new_pod(object: &mut Value, now: &str) {
    object["status"] = json!({ "phase": "Pending" });
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    let spec = &mut object["spec"];
    if spec["serviceAccountName"].as_str().unwrap_or_default().is_empty() {
        spec["serviceAccountName"] = json!("default");
    }
    spec["serviceAccount"] = spec["serviceAccountName"].clone();
    tolerate_outages(spec);
    // Gates are told in a condition from the start.
    if spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": now,
        }]);
    }
    object["status"]["qosClass"] = json!(pod::qos_class(&object["spec"]));
}

/// Every pod tolerates a node that is not ready or unreachable for five minutes, unless it says otherwise
/// (admission plug-in `DefaultTolerationSeconds`).
pub(super) fn tolerate_outages(spec: &mut Value) {
    let tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    let mut extended = tolerations.clone();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covered = tolerations.iter().any(|toleration| {
            let text = |field: &str| toleration[field].as_str().unwrap_or_default();
            (text("key") == key || text("key").is_empty()) && matches!(text("effect"), "NoExecute" | "")
        });
        if !covered {
            extended.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    if !extended.is_empty() {
        spec["tolerations"] = Value::Array(extended);
    }
}

/// A node counts as not ready until the node lifecycle controller has seen otherwise (admission plug-in
/// `TaintNodesByCondition`).
fn new_node(object: &mut Value) {
    const NOT_READY: &str = "node.kubernetes.io/not-ready";
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    let mut taints = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
    if !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule") {
        taints.push(json!({ "key": NOT_READY, "effect": "NoSchedule" }));
    }
    object["spec"]["taints"] = Value::Array(taints);
}

fn new_namespace(object: &mut Value) {
    object["status"] = json!({ "phase": "Active" });
    object["spec"] = json!({ "finalizers": ["kubernetes"] });
    let name = object["metadata"]["name"].clone();
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
}

/// A job selects its pods by its own uid, unless the user manages the selector.
fn new_job(object: &mut Value) {
    object["status"] = json!({});
    if object["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone());
    let mut labels = Vec::new();
    let spec = &mut object["spec"];
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        spec["template"]["metadata"]["labels"][key] = value.clone();
        labels.push((key, value.clone()));
    }
    if !spec["selector"].is_object() {
        spec["selector"] = json!({});
    }
    spec["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid.clone();
    for (key, value) in labels {
        object["metadata"]["labels"][key] = value;
    }
}
