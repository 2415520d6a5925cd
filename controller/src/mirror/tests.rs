//! What the mirror promises, without an API server: versions, joins, marks, subscriptions.

use super::*;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use serde_json::{Value, json};

fn parse<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("the test's object is well-formed")
}

fn claim(name: &str, version: u64, provider_id: &str) -> NodeClaim {
    parse(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string() },
        "spec": {
            "requirements": [],
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
        },
        "status": { "providerID": provider_id },
    }))
}

fn node(name: &str, labels: Value, provider_id: &str) -> Node {
    parse(json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1", "labels": labels },
        "spec": { "providerID": provider_id },
    }))
}

fn pod(name: &str, version: u64, node: &str) -> ApiPod {
    parse(json!({
        "metadata": { "namespace": "default", "name": name, "uid": name, "resourceVersion": version.to_string() },
        "spec": { "nodeName": node, "containers": [] },
    }))
}

fn snapshot(mirror: &Mirror) -> Snapshot {
    mirror.snapshot("2026-01-01T00:00:00Z".parse().unwrap(), &BTreeMap::new())
}

fn listed() -> Mirror {
    let mirror = Mirror::new();
    for kind in Kind::ALL {
        lock(&mirror.state).listed.insert(kind);
    }
    mirror
}

#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let mirror = Mirror::new();
    mirror.observe(claim("a", 9, "aws:///z/i-1"));
    mirror.put(claim("a", 10, "aws:///z/i-2"), true);
    mirror.put(claim("a", 9, "aws:///z/i-1"), true);
    mirror.observe(claim("a", 8, ""));
    assert_eq!(provider_id(&mirror.node_claim("a").unwrap()), "aws:///z/i-2");
    assert!(mirror.node_claims_by_provider_id("aws:///z/i-1").is_empty());
    assert_eq!(mirror.node_claims_by_provider_id("aws:///z/i-2").len(), 1);
}

#[test]
fn a_created_claim_is_known_at_once_and_confirmed_by_the_watch() {
    let mirror = Mirror::new();
    mirror.observe(claim("a", 1, ""));
    assert!(mirror.node_claim("a").is_some() && mirror.unconfirmed("a"));
    mirror.put(claim("a", 1, ""), true);
    assert!(!mirror.unconfirmed("a"), "the same version, seen by the watch");
}

#[test]
fn a_late_answer_does_not_bring_a_deleted_claim_back() {
    let mirror = Mirror::new();
    mirror.put(claim("a", 1, ""), true);
    mirror.deleted(&claim("a", 2, ""));
    mirror.observe(claim("a", 1, ""));
    assert!(mirror.node_claim("a").is_none());
}

#[test]
fn a_deletion_does_not_take_a_successor_of_the_same_name() {
    let mirror = Mirror::new();
    mirror.put(claim("a", 3, ""), true);
    let mut old = claim("a", 2, "");
    old.metadata.uid = Some("another".into());
    mirror.deleted(&old);
    assert!(mirror.node_claim("a").is_some());
}

#[test]
fn foreign_claims_are_invisible() {
    let mirror = Mirror::new();
    let mut foreign = claim("a", 1, "");
    foreign.spec.node_class_ref.group = "karpenter.example.com".into();
    mirror.put(foreign, true);
    assert!(mirror.node_claims().is_empty());
}

#[test]
fn an_unlaunched_claim_blocks_decisions_unless_it_is_going() {
    let mirror = listed();
    assert!(mirror.synced());
    mirror.put(claim("a", 1, ""), true);
    assert!(!mirror.synced());
    let mut going = claim("a", 2, "");
    going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
    mirror.put(going, true);
    assert!(mirror.synced());
    mirror.put(claim("b", 1, ""), true);
    mirror.put(claim("b", 2, "aws:///z/i-1"), true);
    assert!(mirror.synced());
}

#[test]
fn nothing_is_decided_before_every_kind_is_listed() {
    let mirror = listed();
    lock(&mirror.state).listed.remove(&Kind::PodDisruptionBudget);
    assert!(!mirror.synced());
}

#[test]
fn node_and_claim_become_one_by_provider_id() {
    let mirror = Mirror::new();
    let ours = json!({
        "karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
    });
    mirror.put(claim("a", 1, "aws:///z/i-1"), true);
    mirror.put(node("node-a", ours, "aws:///z/i-1"), true);
    mirror.put(node("other", json!({}), ""), true);
    mirror.put(node("early", json!({ "karpenter.sh/nodepool": "default" }), ""), true);
    mirror.put(claim("b", 1, ""), true);
    let names: Vec<String> = snapshot(&mirror).nodes.into_keys().collect();
    assert_eq!(names, ["b", "node-a", "other"], "a managed node without provider id cannot be judged yet");
}

#[test]
fn marks_and_nominations_stay_with_the_instance_under_all_its_names() {
    let mirror = Mirror::new();
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    mirror.put(claim("a", 1, ""), true);
    mirror.nominate("a", now + std::time::Duration::from_secs(20));
    mirror.mark_for_deletion(["a"]);
    mirror.put(claim("a", 2, "aws:///z/i-1"), true);
    let registered = json!({ "karpenter.sh/registered": "true", "node.kubernetes.io/instance-type": "m5.large" });
    mirror.put(node("node-a", registered, "aws:///z/i-1"), true);
    let nodes = snapshot(&mirror).nodes;
    assert!(nodes["node-a"].is_nominated(now) && nodes["node-a"].is_marked_for_deletion());
    mirror.unmark_for_deletion(["node-a"]);
    assert!(!snapshot(&mirror).nodes["node-a"].is_marked_for_deletion());
    mirror.deleted(&claim("a", 3, "aws:///z/i-1"));
    mirror.deleted(&node("node-a", json!({}), "aws:///z/i-1"));
    assert!(lock(&mirror.state).nominated.is_empty(), "what is gone is forgotten");
}

#[test]
fn pods_are_found_by_their_node() {
    let mirror = Mirror::new();
    mirror.put(pod("a", 1, "node-a"), true);
    mirror.put(pod("b", 1, ""), true);
    assert_eq!(mirror.pods_on("node-a").len(), 1);
    mirror.put(pod("b", 2, "node-a"), true);
    mirror.deleted(&pod("a", 3, "node-a"));
    let names: Vec<String> = mirror.pods_on("node-a").iter().map(|pod| pod.name.name.clone()).collect();
    assert_eq!(names, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_holds_one_change_per_object_and_begins_with_what_is_there() {
    let mirror = Mirror::new();
    mirror.put(pod("a", 1, ""), true);
    let mut changes = mirror.subscribe();
    for version in 2..100 {
        mirror.put(pod("a", version, ""), true);
    }
    mirror.put(pod("b", 1, "node-b"), true);
    let names: Vec<_> = changes.next().await.iter().map(|change| (change.name.clone(), change.node.clone())).collect();
    assert_eq!(names, [("a".to_owned(), None), ("b".to_owned(), Some("node-b".to_owned()))]);
    let nothing = tokio::time::timeout(std::time::Duration::from_secs(60), changes.next()).await;
    assert!(nothing.is_err(), "nothing has changed since");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_change_ends_with_the_change() {
    let mirror = Mirror::new();
    let seen = mirror.revision();
    let waits = tokio::time::timeout(std::time::Duration::from_secs(1), mirror.changed_since(seen)).await;
    assert!(waits.is_err());
    mirror.put(pod("a", 1, ""), true);
    mirror.changed_since(seen).await;
    assert!(mirror.revision() > seen);
}
