//! Which of Node and NodeClaim counts, by how far the node has come.

use super::*;
use crate::snapshot::builder;
use controller_api::labels;
use serde_json::{Value, json};

fn parts() -> (Value, Value) {
    let m5 = builder::instance_type("m5.large", 2, 8, 0.1);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    builder::node_and_claim("n", "default", &m5, crate::catalog::CapacityType::Spot, now)
}

fn joined(node: Option<Value>, claim: Option<Value>) -> StateNode {
    let node = node.map(|node| Arc::new(serde_json::from_value(node).unwrap()));
    StateNode::new(node, claim.map(|claim| Arc::new(serde_json::from_value(claim).unwrap())))
}

fn taint_names(node: &StateNode) -> Vec<String> {
    node.taints().iter().map(crate::taints::text).collect()
}

#[test]
fn until_it_has_registered_a_node_goes_by_its_claim() {
    let (mut node, mut claim) = parts();
    node["metadata"]["name"] = "ip-10-0-0-1".into();
    claim["metadata"]["name"] = "default-abcde".into();
    claim["metadata"]["labels"]["from"] = "claim".into();
    node["metadata"]["labels"]["from"] = "node".into();
    let up = joined(Some(node.clone()), Some(claim.clone()));
    assert_eq!((up.name(), up.labels()["from"].as_str()), ("ip-10-0-0-1", "node"));
    node["metadata"]["labels"].as_object_mut().unwrap().remove(labels::REGISTERED_LABEL);
    let coming = joined(Some(node.clone()), Some(claim.clone()));
    assert_eq!((coming.name(), coming.labels()["from"].as_str()), ("default-abcde", "claim"));
    assert_eq!(coming.node_name(), Some("ip-10-0-0-1"));
    let launched = joined(None, Some(claim));
    assert_eq!((launched.name(), launched.is_registered(), launched.is_initialized()), ("default-abcde", false, false));
    let foreign = joined(Some(node), None);
    assert_eq!((foreign.name(), foreign.is_registered(), foreign.is_initialized()), ("ip-10-0-0-1", true, true));
    assert_eq!(foreign.labels()["from"], "node");
}

#[test]
fn taints_that_pass_do_not_count_while_the_node_starts() {
    let (mut node, mut claim) = parts();
    node["spec"]["taints"] = json!([
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "cni", "effect": "NoExecute", "value": "other"},
        {"key": "dedicated", "effect": "NoSchedule"},
    ]);
    claim["spec"]["startupTaints"] = json!([{"key": "cni", "effect": "NoExecute"}]);
    claim["spec"]["taints"] = json!([{"key": "from-claim", "effect": "NoSchedule"}]);
    let up = joined(Some(node.clone()), Some(claim.clone()));
    assert_eq!(
        taint_names(&up),
        ["node.kubernetes.io/not-ready:NoSchedule", "cni=other:NoExecute", "dedicated:NoSchedule"]
    );
    node["metadata"]["labels"].as_object_mut().unwrap().remove(labels::INITIALIZED_LABEL);
    assert_eq!(taint_names(&joined(Some(node.clone()), Some(claim.clone()))), ["dedicated:NoSchedule"]);
    node["metadata"]["labels"].as_object_mut().unwrap().remove(labels::REGISTERED_LABEL);
    assert_eq!(taint_names(&joined(Some(node), Some(claim))), ["from-claim:NoSchedule"]);
}

#[test]
fn missing_or_zero_resources_are_filled_in_from_the_claim_until_initialization() {
    let (mut node, mut claim) = parts();
    node["status"]["allocatable"] = json!({"cpu": "1", "memory": "0"});
    claim["status"]["allocatable"] = json!({"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"});
    let up = joined(Some(node.clone()), Some(claim.clone()));
    assert_eq!(up.allocatable().to_string(), r#"{"cpu":"1","memory":"0"}"#);
    node["metadata"]["labels"].as_object_mut().unwrap().remove(labels::INITIALIZED_LABEL);
    let starting = joined(Some(node), Some(claim.clone()));
    assert_eq!(starting.allocatable().to_string(), r#"{"cpu":"1","memory":"4Gi","nvidia.com/gpu":"1"}"#);
    assert_eq!(joined(None, Some(claim)).allocatable().get("cpu"), Quantity::units(2));
    assert_eq!(starting.capacity().get(NODES), Quantity::units(1));
}

#[test]
fn a_node_is_going_when_its_claim_is_or_its_instance_is() {
    let (node, claim) = parts();
    assert!(!joined(Some(node.clone()), Some(claim.clone())).is_marked_for_deletion());
    assert!(joined(Some(node.clone()), Some(claim.clone())).marked(true).is_marked_for_deletion());
    let mut deleting = claim.clone();
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert!(joined(Some(node.clone()), Some(deleting)).is_deleted());
    let mut terminating = claim.clone();
    terminating["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "InstanceTerminating", "status": "True",
        "reason": "InstanceTerminating", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}));
    assert!(joined(Some(node.clone()), Some(terminating)).is_deleted());
    let mut deleting_node = node;
    deleting_node["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert!(!joined(Some(deleting_node.clone()), Some(claim)).is_deleted());
    assert!(joined(Some(deleting_node), None).is_deleted());
}

#[test]
fn a_nomination_ends_at_its_time() {
    let (node, claim) = parts();
    let until: Timestamp = "2026-01-01T00:00:20Z".parse().unwrap();
    let nominated = joined(Some(node), Some(claim)).nominated(Some(until));
    assert!(nominated.is_nominated("2026-01-01T00:00:19Z".parse().unwrap()));
    assert!(!nominated.is_nominated(until));
}
