//! Pods and nodes as the actors read them: parsed once per version, with the raw object kept for writing back.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::amount::Amounts;
use super::selector::{Labels, list, strings, text};

/// Namespace and name. Objects of the whole cluster have an empty namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        Self { namespace: text(&metadata["namespace"]).to_owned(), name: text(&metadata["name"]).to_owned() }
    }

    /// The namespace as the API client wants it.
    pub(crate) fn namespace(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(self.namespace.as_str())
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(formatter, "{namespace}/{}", self.name),
            None => formatter.write_str(&self.name),
        }
    }
}

/// The controlling owner of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The owner reference with `controller: true`, if any.
pub(crate) fn controller_of(object: &Value) -> Option<Owner> {
    let owner = list(&object["metadata"]["ownerReferences"]).iter().find(|owner| owner["controller"] == true)?;
    Some(Owner {
        kind: text(&owner["kind"]).to_owned(),
        name: text(&owner["name"]).to_owned(),
        uid: text(&owner["uid"]).to_owned(),
    })
}

/// An owner reference that makes `object` the controller, deletion of which waits for the dependent when foreground.
pub(crate) fn controller_reference(api_version: &str, kind: &str, object: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Reads a timestamp of the API.
pub(crate) fn timestamp(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// A timestamp as `metav1.Time` writes it: whole seconds.
pub(crate) fn time(at: Timestamp) -> Value {
    Value::String(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A timestamp as `metav1.MicroTime` writes it.
pub(crate) fn micro_time(at: Timestamp) -> Value {
    Value::String(at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}

/// The condition of this type in `status.conditions`.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(&object["status"]["conditions"]).iter().find(|condition| condition["type"] == kind)
}

/// Puts `condition` in place of the one with its type; the time of transition moves only with the status. Returns
/// whether anything changed.
pub(crate) fn set_condition(conditions: &mut Vec<Value>, mut condition: Value, now: Timestamp) -> bool {
    let existing = conditions.iter().position(|other| other["type"] == condition["type"]);
    let moved = existing.is_none_or(|index| conditions[index]["status"] != condition["status"]);
    condition["lastTransitionTime"] = match existing {
        Some(index) if !moved => conditions[index]["lastTransitionTime"].clone(),
        _ => time(now),
    };
    match existing {
        Some(index) => {
            let before = &conditions[index];
            for field in ["lastProbeTime", "lastUpdateTime", "lastHeartbeatTime"] {
                if condition.get(field).is_none() && before.get(field).is_some() {
                    condition[field] = before[field].clone();
                }
            }
            let changed = *before != condition;
            conditions[index] = condition;
            changed
        }
        None => {
            conditions.push(condition);
            true
        }
    }
}

/// A pod, parsed for the actors.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) raw: Arc<Value>,
    pub(crate) labels: Labels,
    pub(crate) owner: Option<Owner>,
    /// Empty until the pod is bound.
    pub(crate) node_name: String,
    pub(crate) phase: String,
    /// Since when the pod is Ready.
    pub(crate) ready_since: Option<Timestamp>,
    pub(crate) deleting: Option<Timestamp>,
    pub(crate) created: Timestamp,
    needs: OnceLock<Arc<super::needs::Needs>>,
}

impl Pod {
    pub(crate) fn parse(raw: Arc<Value>) -> Self {
        let metadata = &raw["metadata"];
        let ready = condition(&raw, "Ready").filter(|ready| ready["status"] == "True");
        Self {
            key: Key::of(&raw),
            uid: text(&metadata["uid"]).to_owned(),
            labels: strings(&metadata["labels"]),
            owner: controller_of(&raw),
            node_name: text(&raw["spec"]["nodeName"]).to_owned(),
            phase: match text(&raw["status"]["phase"]) {
                "" => "Pending".to_owned(),
                phase => phase.to_owned(),
            },
            ready_since: ready.map(|ready| timestamp(&ready["lastTransitionTime"]).unwrap_or(Timestamp::UNIX_EPOCH)),
            deleting: timestamp(&metadata["deletionTimestamp"]),
            created: timestamp(&metadata["creationTimestamp"]).unwrap_or(Timestamp::UNIX_EPOCH),
            needs: OnceLock::new(),
            raw,
        }
    }

    /// What the pod asks of a node, worked out on first use.
    pub(crate) fn needs(&self) -> &Arc<super::needs::Needs> {
        self.needs.get_or_init(|| Arc::new(super::needs::Needs::parse(&self.raw)))
    }

    /// Takes over what `before` has worked out, when the part of the object it depends on is unchanged.
    pub(crate) fn inherit(&self, before: &Self) {
        if let Some(needs) = before.needs.get()
            && self.labels == before.labels
            && self.node_name == before.node_name
            && self.raw["spec"] == before.raw["spec"]
        {
            let _ = self.needs.set(needs.clone());
        }
    }

    /// Succeeded or failed: it holds no resources any more.
    pub(crate) fn is_finished(&self) -> bool {
        self.phase == "Succeeded" || self.phase == "Failed"
    }

    /// Neither finished nor being deleted.
    pub(crate) fn is_active(&self) -> bool {
        !self.is_finished() && self.deleting.is_none()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready_since.is_some()
    }

    /// Ready for at least `seconds`.
    pub(crate) fn is_available(&self, seconds: i64, now: Timestamp) -> bool {
        self.available_at(seconds).is_some_and(|at| at <= now)
    }

    /// When a ready pod becomes available.
    pub(crate) fn available_at(&self, seconds: i64) -> Option<Timestamp> {
        let ready = self.ready_since?;
        ready.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()
    }
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taint {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

impl Taint {
    pub(crate) fn parse(value: &Value) -> Self {
        let field = |name: &str| text(&value[name]).to_owned();
        Self { key: field("key"), value: field("value"), effect: field("effect") }
    }
}

/// A toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Toleration {
    key: String,
    exists: bool,
    value: String,
    effect: String,
    /// How long a `NoExecute` taint is borne; `None` is for ever.
    pub(crate) seconds: Option<i64>,
}

impl Toleration {
    pub(crate) fn parse(value: &Value) -> Self {
        let field = |name: &str| text(&value[name]).to_owned();
        Self {
            key: field("key"),
            exists: value["operator"] == "Exists",
            value: field("value"),
            effect: field("effect"),
            seconds: value["tolerationSeconds"].as_i64(),
        }
    }

    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() && self.exists || self.key == taint.key)
            && (self.exists || self.value == taint.value)
    }
}

/// A node, parsed for the actors.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) raw: Arc<Value>,
    pub(crate) labels: Labels,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    pub(crate) allocatable: Amounts,
    pub(crate) provider_id: String,
    pub(crate) deleting: bool,
}

impl Node {
    pub(crate) fn parse(raw: Arc<Value>) -> Self {
        let (metadata, spec) = (&raw["metadata"], &raw["spec"]);
        Self {
            name: text(&metadata["name"]).to_owned(),
            labels: strings(&metadata["labels"]),
            taints: list(&spec["taints"]).iter().map(Taint::parse).collect(),
            unschedulable: spec["unschedulable"] == true,
            allocatable: Amounts::parse(&raw["status"]["allocatable"]),
            provider_id: text(&spec["providerID"]).to_owned(),
            deleting: !metadata["deletionTimestamp"].is_null(),
            raw,
        }
    }

    /// Whether a pod could be judged differently on this version than on the other.
    pub(crate) fn places_as(&self, other: &Self) -> bool {
        self.labels == other.labels
            && self.taints == other.taints
            && self.unschedulable == other.unschedulable
            && self.allocatable == other.allocatable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_match_as_documented() {
        let taint = Taint { key: "a".into(), value: "x".into(), effect: "NoSchedule".into() };
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "a", "operator": "Exists"}), true),
            (json!({"key": "a", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "a", "value": "x"}), true),
            (json!({"key": "a", "value": "y"}), false),
            (json!({"key": "b", "operator": "Exists"}), false),
            (json!({"key": "a", "operator": "Equal", "value": "x", "effect": "NoSchedule"}), true),
        ] {
            assert_eq!(Toleration::parse(&toleration).tolerates(&taint), expected, "{toleration}");
        }
    }

    #[test]
    fn a_condition_keeps_its_transition_time_while_its_status_stays() {
        let (early, late) = (Timestamp::UNIX_EPOCH, "2026-01-01T00:00:00Z".parse().unwrap());
        let mut conditions = vec![];
        assert!(set_condition(&mut conditions, json!({"type": "A", "status": "True", "reason": "x"}), early));
        assert!(!set_condition(&mut conditions, json!({"type": "A", "status": "True", "reason": "x"}), late));
        assert!(set_condition(&mut conditions, json!({"type": "A", "status": "True", "reason": "y"}), late));
        assert_eq!(conditions[0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert!(set_condition(&mut conditions, json!({"type": "A", "status": "False", "reason": "y"}), late));
        assert_eq!(conditions[0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }
}
