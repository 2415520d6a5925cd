//! Requests and predicates of pods.

use super::*;
use serde_json::{Value, json};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-01-01T12:00:00Z")
}

fn pod(metadata: Value, spec: Value, status: Value) -> Pod {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "main"}]);
    }
    Pod::from_api(&serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap())
}

fn requests(spec: Value) -> String {
    pod(json!({}), spec, json!({})).requests.to_string()
}

fn cpu(name: &str, quantity: &str) -> Value {
    json!({"name": name, "resources": {"requests": {"cpu": quantity}}})
}

fn sidecar(name: &str, quantity: &str) -> Value {
    let mut container = cpu(name, quantity);
    container["restartPolicy"] = "Always".into();
    container
}

#[test]
fn containers_add_up_and_the_pod_counts_itself() {
    let spec = json!({"containers": [
        {"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
        cpu("b", "250m"),
    ]});
    assert_eq!(requests(spec), r#"{"cpu":"750m","memory":"1Gi","pods":"1"}"#);
}

#[test]
fn the_larger_of_starting_and_running_counts() {
    let spec =
        |init: &str| json!({"containers": [cpu("a", "1")], "initContainers": [cpu("i", init), cpu("j", "100m")]});
    assert_eq!(requests(spec("3")), r#"{"cpu":"3","pods":"1"}"#);
    assert_eq!(requests(spec("500m")), r#"{"cpu":"1","pods":"1"}"#);
}

#[test]
fn sidecars_run_beside_containers_and_beside_the_init_containers_after_them() {
    let before = json!({"containers": [cpu("a", "1")], "initContainers": [sidecar("s", "2"), cpu("i", "4")]});
    assert_eq!(requests(before), r#"{"cpu":"6","pods":"1"}"#);
    let after = json!({"containers": [cpu("a", "1")], "initContainers": [cpu("i", "4"), sidecar("s", "2")]});
    assert_eq!(requests(after), r#"{"cpu":"4","pods":"1"}"#);
    let small = json!({"containers": [cpu("a", "1")], "initContainers": [sidecar("s", "2"), cpu("i", "500m")]});
    assert_eq!(requests(small), r#"{"cpu":"3","pods":"1"}"#);
}

#[test]
fn pod_level_requests_replace_the_sum_and_overhead_comes_on_top() {
    let spec = json!({
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        "resources": {"requests": {"cpu": "4"}, "limits": {"memory": "8Gi"}},
        "overhead": {"cpu": "250m", "memory": "120Mi"},
    });
    assert_eq!(requests(spec), r#"{"cpu":"4250m","memory":"1144Mi","pods":"1"}"#);
}

#[test]
fn a_limit_without_a_request_is_a_request() {
    let spec =
        json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}}}]});
    assert_eq!(requests(spec), r#"{"cpu":"2","memory":"1Gi","pods":"1"}"#);
}

#[test]
fn while_a_resize_is_in_flight_the_larger_value_counts() {
    let status = json!({"containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "allocatedResources": {"cpu": "3"}}]});
    let resized = pod(json!({}), json!({"containers": [cpu("a", "1")]}), status);
    assert_eq!(resized.requests.to_string(), r#"{"cpu":"3","pods":"1"}"#);
}

#[test]
fn a_quantity_that_cannot_be_read_is_named() {
    let broken = pod(json!({}), json!({"containers": [cpu("a", "lots")]}), json!({}));
    assert!(broken.problems[0].contains("\"lots\""), "{:?}", broken.problems);
}

#[test]
fn provisionable_is_what_the_scheduler_found_no_place_for() {
    let unschedulable =
        || json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
    let gated = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]});
    let owner = |version: &str, kind: &str| json!({"ownerReferences": [{"apiVersion": version, "kind": kind, "name": "o", "uid": "u"}]});
    assert!(pod(json!({}), json!({}), unschedulable()).is_provisionable());
    assert!(!pod(json!({}), json!({}), gated).is_provisionable());
    assert!(!pod(json!({}), json!({}), json!({})).is_provisionable());
    assert!(!pod(json!({}), json!({"nodeName": "n"}), unschedulable()).is_provisionable());
    let mut nominated = unschedulable();
    nominated["nominatedNodeName"] = "n".into();
    assert!(!pod(json!({}), json!({}), nominated).is_provisionable());
    assert!(!pod(owner("apps/v1", "DaemonSet"), json!({}), unschedulable()).is_provisionable());
    assert!(!pod(owner("v1", "Node"), json!({}), unschedulable()).is_provisionable());
    assert!(pod(owner("example.com/v1", "DaemonSet"), json!({}), unschedulable()).is_provisionable());
}

#[test]
fn reschedulable_evictable_and_drainable_follow_owner_phase_and_tolerations() {
    let owned = |kind: &str, deleting: bool| {
        let mut metadata = json!({"ownerReferences": [{"apiVersion": if kind == "Node" {"v1"} else {"apps/v1"}, "kind": kind, "name": "o", "uid": "u"}]});
        if deleting {
            metadata["deletionTimestamp"] = "2026-01-01T11:59:30Z".into();
        }
        pod(metadata, json!({"nodeName": "n"}), json!({"phase": "Running"}))
    };
    for (pod, reschedulable, evictable, drainable) in [
        (owned("ReplicaSet", false), true, true, true),
        (owned("ReplicaSet", true), false, false, true),
        (owned("StatefulSet", true), true, false, true),
        (owned("DaemonSet", false), false, true, true),
        (owned("Node", false), false, false, false),
    ] {
        assert_eq!(pod.is_reschedulable(), reschedulable, "{:?}", pod.owners);
        assert_eq!(pod.is_evictable(now()), evictable, "{:?}", pod.owners);
        assert_eq!(pod.is_drainable(now()), drainable, "{:?}", pod.owners);
    }
    let tolerant = pod(json!({}), json!({"tolerations": [{"operator": "Exists"}]}), json!({"phase": "Running"}));
    assert!(!tolerant.is_evictable(now()) && !tolerant.is_drainable(now()) && tolerant.is_reschedulable());
    let finished = pod(json!({}), json!({}), json!({"phase": "Succeeded"}));
    assert!(!finished.is_waiting_eviction(now()) && !finished.is_reschedulable() && finished.is_disruptable(now()));
}

#[test]
fn a_pod_is_stuck_a_minute_after_its_deadline() {
    let deleted = |time: &str| pod(json!({"deletionTimestamp": time}), json!({}), json!({"phase": "Running"}));
    assert!(!deleted("2026-01-01T11:59:00Z").is_stuck_terminating(now()));
    assert!(deleted("2026-01-01T11:58:59Z").is_stuck_terminating(now()));
    assert!(!deleted("2026-01-01T11:58:59Z").is_drainable(now()));
}

#[test]
fn do_not_disrupt_is_true_or_a_time_from_the_pods_start() {
    let annotated = |text: &str, started: Option<&str>| {
        pod(
            json!({"annotations": {"karpenter.sh/do-not-disrupt": text}}),
            json!({}),
            json!({"phase": "Running", "startTime": started}),
        )
        .do_not_disrupt(now())
    };
    assert_eq!(annotated("true", None), DoNotDisrupt::Always);
    assert_eq!(annotated("30m", None), DoNotDisrupt::Always);
    assert_eq!(annotated("30m", Some("2026-01-01T11:45:00Z")), DoNotDisrupt::Until(at("2026-01-01T12:15:00Z")));
    assert_eq!(annotated("30m", Some("2026-01-01T11:30:00Z")), DoNotDisrupt::Elapsed);
    for invalid in ["false", "", "0s", "-5m", "yes"] {
        assert!(matches!(annotated(invalid, None), DoNotDisrupt::Invalid(_)), "{invalid:?}");
    }
}

#[test]
fn the_eviction_cost_grows_with_priority_and_deletion_cost_within_bounds() {
    let cost = |priority: i64, annotation: &str| {
        pod(
            json!({"annotations": {"controller.kubernetes.io/pod-deletion-cost": annotation}}),
            json!({"priority": priority}),
            json!({}),
        )
        .eviction_cost()
    };
    assert_eq!(cost(0, "0"), 1.0);
    assert_eq!(cost(0, "nonsense"), 1.0);
    assert_eq!(cost(33_554_432, "0"), 2.0);
    assert_eq!(cost(-33_554_432, "0"), 0.0);
    assert_eq!(cost(0, "134217728"), 2.0);
    assert_eq!(cost(2_000_000_000, "2147483647"), 10.0);
}

#[test]
fn requirements_take_the_first_required_and_the_heaviest_preferred_term() {
    let spec = json!({
        "nodeSelector": {"team": "a"},
        "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
                {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["hdd"]}]},
            ]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}},
                {"weight": 50, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}},
            ],
        }},
    });
    let pod = pod(json!({}), spec, json!({}));
    let preferred = pod.preferred_terms.first().map(|preferred| &preferred.term);
    assert_eq!(
        pod.requirements(pod.required_terms.first(), preferred).to_string(),
        "disk In [ssd], team In [a], zone In [b]"
    );
    assert_eq!(pod.strict_requirements().to_string(), "disk In [ssd], team In [a]");
}

#[test]
fn affinity_to_pods_is_read_with_the_heaviest_wish_first() {
    let term = |key: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}});
    let spec = json!({"affinity": {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("zone")]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": term("host")}, {"weight": 9, "podAffinityTerm": term("rack")},
        ]},
    }});
    let affinity = pod(json!({}), spec, json!({})).affinity;
    let keys: Vec<&str> = affinity.preferred_anti.iter().map(|wish| wish.term.topology_key.as_str()).collect();
    assert_eq!((affinity.required[0].topology_key.as_str(), keys), ("zone", vec!["rack", "host"]));
    assert!(affinity.required_anti.is_empty() && affinity.preferred.is_empty() && !affinity.is_empty());
}

#[test]
fn volumes_with_a_claim_behind_them_are_read() {
    let spec = json!({"volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "web-data"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "settings", "configMap": {"name": "web"}},
    ]});
    let pod = pod(json!({"name": "web-0", "namespace": "shop"}), spec, json!({}));
    let claims: Vec<String> = pod.volumes.iter().map(|volume| volume.claim(&pod.name).to_string()).collect();
    assert_eq!(claims, ["shop/web-data", "shop/web-0-scratch"]);
}
