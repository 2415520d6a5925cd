//! What a Kubernetes object tells of itself: the phase it is in, what it belongs to, the facts worth keeping. Functions over
//! the object as JSON, whoever watched it.

use super::{NO_OWNER, NodeClaimFacts, NodeClaimPhase, NodeFacts, NodePhase, PodFacts, PodPhase};
use controller_api::{conditions, labels};
use serde_json::Value;

/// The group of what belongs to no NodePool.
const NO_POOL: &str = "no NodePool";

/// Reasons of the controller's events about a NodeClaim that say why it must go, where no condition does (core spec §10.5).
const FATAL_REASONS: [&str; 6] = [
    "SpotInterrupted",
    "CapacityReservationInstanceInterrupted",
    "InstanceUnhealthy",
    "InstanceStopping",
    "InstanceTerminating",
    "InsufficientCapacityError",
];

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn known(object: &Value, pointer: &str) -> Option<String> {
    Some(text(object, pointer)).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn label(object: &Value, key: &str) -> Option<String> {
    object["metadata"]["labels"][key].as_str().map(str::to_owned)
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind)
}

fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Namespace and name, or the name of what has no namespace.
pub(super) fn name(object: &Value) -> String {
    match (text(object, "/metadata/namespace"), text(object, "/metadata/name")) {
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// The NodePool that a NodeClaim or a node belongs to.
pub(super) fn pool(object: &Value) -> String {
    label(object, labels::NODE_POOL_LABEL).unwrap_or_else(|| NO_POOL.into())
}

/// As [`pool`], of an instance by the value of its tag.
pub(super) fn pool_of_tag(tag: Option<&str>) -> &str {
    tag.unwrap_or(NO_POOL)
}

/// What controls a pod, such as `Deployment web`.
pub(super) fn owner(pod: &Value) -> String {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let Some(owner) = owners.into_iter().flatten().find(|owner| owner["controller"] == true) else {
        return NO_OWNER.into();
    };
    let (kind, name) = (owner["kind"].as_str().unwrap_or_default(), owner["name"].as_str().unwrap_or_default());
    // The ReplicaSet of a Deployment is named for it and for the hash of its template, which the pod carries.
    let hash = label(pod, "pod-template-hash").map(|hash| format!("-{hash}")).unwrap_or_default();
    match name.strip_suffix(&hash) {
        Some(deployment) if kind == "ReplicaSet" && !hash.is_empty() => format!("Deployment {deployment}"),
        _ => format!("{kind} {name}"),
    }
}

pub(super) fn pod_phase(pod: &Value) -> PodPhase {
    let evicted =
        condition(pod, "DisruptionTarget").is_some_and(|condition| condition["reason"] == "EvictionByEvictionAPI");
    match text(pod, "/status/phase") {
        "Succeeded" => PodPhase::Succeeded,
        "Failed" => PodPhase::Failed,
        _ if evicted => PodPhase::Evicted,
        _ if is_deleting(pod) => PodPhase::Terminating,
        "Running" => PodPhase::Running,
        _ if text(pod, "/spec/nodeName").is_empty() => PodPhase::Pending,
        _ => PodPhase::Bound,
    }
}

pub(super) fn pod_facts(pod: &Value, facts: &mut PodFacts) {
    facts.node = known(pod, "/spec/nodeName").or(facts.node.take());
}

pub(super) fn node_claim_phase(claim: &Value) -> NodeClaimPhase {
    match () {
        () if is_deleting(claim) => NodeClaimPhase::Terminating,
        () if is_true(claim, conditions::DISRUPTION_REASON) => NodeClaimPhase::Disrupted,
        () if is_true(claim, conditions::INITIALIZED) => NodeClaimPhase::Initialized,
        () if is_true(claim, conditions::REGISTERED) => NodeClaimPhase::Registered,
        () if is_true(claim, conditions::LAUNCHED) => NodeClaimPhase::Launched,
        () => NodeClaimPhase::Created,
    }
}

pub(super) fn node_claim_facts(claim: &Value, facts: &mut NodeClaimFacts) {
    let disrupted = condition(claim, conditions::DISRUPTION_REASON).filter(|condition| condition["status"] == "True");
    *facts = NodeClaimFacts {
        node: known(claim, "/status/nodeName"),
        instance: instance_id(text(claim, "/status/providerID")),
        instance_type: label(claim, labels::INSTANCE_TYPE_LABEL),
        zone: label(claim, labels::ZONE_LABEL),
        capacity_type: label(claim, labels::CAPACITY_TYPE_LABEL),
        reason: disrupted.and_then(|condition| known(condition, "/reason")).or(facts.reason.take()),
    };
}

/// Whether an event about a NodeClaim says why it must go.
pub(super) fn is_fatal(reason: &str) -> bool {
    FATAL_REASONS.contains(&reason)
}

/// The phase of a node, given whether it was ready before.
pub(super) fn node_phase(node: &Value, was_ready: bool) -> NodePhase {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    match () {
        () if is_deleting(node) => NodePhase::Terminating,
        () if taints.into_iter().flatten().any(|taint| taint["key"] == labels::DISRUPTED_TAINT_KEY) => {
            NodePhase::Disrupted
        }
        () if node["spec"]["unschedulable"] == true => NodePhase::Cordoned,
        () if is_true(node, "Ready") => NodePhase::Ready,
        () if was_ready => NodePhase::NotReady,
        () => NodePhase::Joined,
    }
}

pub(super) fn node_facts(node: &Value, facts: &mut NodeFacts) {
    *facts = NodeFacts {
        instance: instance_id(text(node, "/spec/providerID")),
        instance_type: label(node, labels::INSTANCE_TYPE_LABEL),
        zone: label(node, labels::ZONE_LABEL),
        capacity_type: label(node, labels::CAPACITY_TYPE_LABEL),
    };
}

/// The id in `aws:///us-west-2a/i-0123…`.
fn instance_id(provider_id: &str) -> Option<String> {
    provider_id.rsplit('/').next().filter(|id| id.starts_with("i-")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_phase_of_a_pod_is_what_its_user_would_say() {
        let evicted = json!([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]);
        let cases = [
            (json!({}), PodPhase::Pending),
            (json!({"spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}), PodPhase::Bound),
            (json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}), PodPhase::Running),
            (json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}}), PodPhase::Terminating),
            (json!({"status": {"phase": "Running", "conditions": evicted}}), PodPhase::Evicted),
            (json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Failed"}}), PodPhase::Failed),
        ];
        for (pod, phase) in cases {
            assert_eq!(pod_phase(&pod), phase, "{pod}");
        }
    }

    #[test]
    fn a_pod_belongs_to_its_deployment_and_not_to_the_replica_set_between() {
        let pod = |kind: &str, name: &str| {
            json!({"metadata": {
                "labels": {"pod-template-hash": "6d9f"},
                "ownerReferences": [{"kind": kind, "name": name, "controller": true}],
            }})
        };
        assert_eq!(owner(&pod("ReplicaSet", "web-6d9f")), "Deployment web");
        assert_eq!(owner(&pod("ReplicaSet", "web")), "ReplicaSet web");
        assert_eq!(owner(&pod("DaemonSet", "agent")), "DaemonSet agent");
        assert_eq!(owner(&json!({})), NO_OWNER);
    }

    #[test]
    fn a_node_that_was_ready_is_not_ready_and_no_longer_joining() {
        let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        assert_eq!(node_phase(&unready, false), NodePhase::Joined);
        assert_eq!(node_phase(&unready, true), NodePhase::NotReady);
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(node_phase(&ready, false), NodePhase::Ready);
        let tainted = json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}});
        assert_eq!(node_phase(&tainted, true), NodePhase::Disrupted);
    }
}
