//! `pods/binding`: a scheduler assigns a pod to a node.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    resources,
    state::State,
    status::{FieldError, Status},
    store::Stored,
};

impl State {
    /// Binds a pod: once, and not while it is being deleted.
    pub(crate) fn bind(&mut self, namespace: &str, name: &str, binding: &Value) -> Result<Arc<Stored>, Status> {
        let kind = self.builtin(&resources::PODS)?;
        let given = binding["metadata"]["name"].as_str().unwrap_or_default();
        if !given.is_empty() && given != name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Err(Status::new(500, "", FieldError::required("target.name", "").to_string()));
        }
        let target = &binding["target"]["kind"];
        if !matches!(target.as_str().unwrap_or_default(), "" | "Node") {
            let error = FieldError::not_supported("target.kind", target, &["Node", "<empty>"]);
            return Err(Status::new(500, "", error.to_string()));
        }
        let pod = Arc::clone(self.get(&kind, namespace, name)?);
        let refuse = |why: String| {
            let mut status = Status::conflict(&kind, name, &why);
            status.message = format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}");
            if let Some(details) = &mut status.details {
                details.kind = "pods/binding".into();
            }
            status
        };
        if let Some(uid) = binding["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty())
            && pod.value["metadata"]["uid"] != uid
        {
            let known = pod.value["metadata"]["uid"].as_str().unwrap_or_default();
            return Err(Status::other_uid(&kind, namespace, name, uid, known));
        }
        if pod.value["metadata"]["deletionTimestamp"].is_string() {
            return Err(refuse(format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        let present = pod.value["spec"]["nodeName"].as_str().unwrap_or_default();
        if !present.is_empty() {
            return Err(refuse(format!("pod {name} is already assigned to node \"{present}\"")));
        }
        if pod.value["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return Err(refuse(format!("pod {name} has non-empty .spec.schedulingGates")));
        }
        let mut bound = (*pod.value).clone();
        bound["spec"]["nodeName"] = json!(node);
        if let Some(status) = bound["status"].as_object_mut() {
            status.remove("nominatedNodeName");
        }
        // Admission copies where the node is to the pod, so that workloads can read it.
        let nodes = self.builtin(&resources::NODES)?;
        if let Ok(found) = self.get(&nodes, "", node) {
            for label in ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"] {
                if let Some(value) = found.value["metadata"]["labels"].get(label) {
                    bound["metadata"]["labels"][label] = value.clone();
                }
            }
        }
        for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
            bound["metadata"]["annotations"][key] = value.clone();
        }
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": self.timestamp(),
        });
        set_condition(&mut bound, scheduled);
        Ok(self.store.put(kind.table, namespace, name, bound))
    }
}

/// Puts a condition in the place of the one of its type; keeps the transition time if the status is the same.
pub(crate) fn set_condition(object: &mut Value, mut condition: Value) {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|present| present["type"] == condition["type"]) {
        Some(present) => {
            if present["status"] == condition["status"] {
                condition["lastTransitionTime"] = present["lastTransitionTime"].clone();
            }
            *present = condition;
        }
        None => conditions.push(condition),
    }
}
