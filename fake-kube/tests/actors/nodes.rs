//! Nodes that come, fall silent and go, and what becomes of their pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fake_kube::actors::Options;
use fake_kube::resources;
use serde_json::{Value, json};

use crate::support::{Cluster, condition};

fn lifecycle() -> Options {
    Options { scheduler: true, node_lifecycle: true, taint_eviction: true, ..Options::none() }
}

fn set_ready(cluster: &Cluster, node: &str, status: &str) {
    let mut conditions = cluster.get(&resources::NODES, node)["status"]["conditions"].as_array().unwrap().clone();
    conditions.iter_mut().find(|condition| condition["type"] == "Ready").unwrap()["status"] = json!(status);
    cluster.patch_status(&resources::NODES, node, json!({"conditions": conditions}));
}

fn tolerations(seconds: i64) -> Value {
    let toleration =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    let both = [toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")];
    json!({"spec": {"tolerations": both}})
}

fn renew(cluster: &Cluster, node: &str, duration_s: i64) {
    let now = cluster.kube.clock().now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let namespace = Some("kube-node-lease");
    let spec = json!({"holderIdentity": node, "leaseDurationSeconds": duration_s, "renewTime": now});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease"}, "spec": spec,
    });
    if cluster.client.get(&resources::LEASES, namespace, node).is_ok() {
        cluster.client.patch_merge(&resources::LEASES, namespace, node, json!({"spec": spec}), None).unwrap();
    } else {
        cluster.client.create(&resources::LEASES, namespace, lease).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_becomes_ready_loses_its_not_ready_taints() {
    let cluster = Cluster::start(lifecycle());
    cluster.node("one", json!({}));
    set_ready(&cluster, "one", "False");
    cluster.settle().await;
    assert_eq!(
        cluster.taints("one"),
        ["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"]
    );
    set_ready(&cluster, "one", "True");
    cluster.settle().await;
    assert_eq!(cluster.taints("one"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn taints_follow_cordoning_and_pressure_and_leave_others_alone() {
    let cluster = Cluster::start(lifecycle());
    cluster.node("one", json!({"spec": {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}], "unschedulable": true}}));
    let conditions = json!([{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]);
    cluster.patch_status(&resources::NODES, "one", json!({"conditions": conditions}));
    cluster.settle().await;
    let mut taints = cluster.taints("one");
    taints.sort();
    assert_eq!(
        taints,
        [
            "dedicated:NoSchedule",
            "node.kubernetes.io/disk-pressure:NoSchedule",
            "node.kubernetes.io/unschedulable:NoSchedule",
        ]
    );
    cluster.patch(&resources::NODES, "one", json!({"spec": {"unschedulable": false}}));
    set_ready(&cluster, "one", "True");
    cluster.settle().await;
    assert!(!cluster.taints("one").contains(&"node.kubernetes.io/unschedulable:NoSchedule".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_silent_kubelet_makes_the_node_unknown_after_fifty_seconds() {
    let cluster = Cluster::with_kubelet(lifecycle());
    cluster.node("one", json!({}));
    cluster.pod("web", json!({}));
    renew(&cluster, "one", 40);
    cluster.wait(30).await;
    renew(&cluster, "one", 40);
    cluster.wait(49).await;
    assert_eq!(cluster.condition(&resources::NODES, "one", "Ready")["status"], "True");
    cluster.wait(2).await;
    let ready = cluster.condition(&resources::NODES, "one", "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")));
    assert_eq!(ready["message"], "Kubelet stopped posting node status.");
    assert_eq!(
        cluster.taints("one"),
        ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"]
    );
    assert_eq!(condition(&cluster.get(&resources::PODS, "web"), "Ready")["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_without_a_lease_is_trusted() {
    let cluster = Cluster::start(lifecycle());
    cluster.node("one", json!({}));
    cluster.wait(86_400).await;
    assert_eq!(cluster.condition(&resources::NODES, "one", "Ready")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn pods_leave_when_their_toleration_of_the_taint_ends() {
    let cluster = Cluster::with_kubelet(lifecycle());
    cluster.node("one", json!({}));
    cluster.pod("patient", tolerations(300));
    cluster.pod("hasty", tolerations(10));
    let everything = json!([{"operator": "Exists"}]);
    cluster.pod("daemon", json!({"spec": {"tolerations": everything}}));
    cluster.settle().await;
    set_ready(&cluster, "one", "Unknown");
    cluster.wait(12).await;
    assert!(cluster.find(&resources::PODS, "hasty").is_none());
    assert!(cluster.find(&resources::PODS, "patient").is_some());
    cluster.wait(291).await;
    assert!(cluster.find(&resources::PODS, "patient").is_none());
    assert!(cluster.find(&resources::PODS, "daemon").is_some());
    assert_eq!(cluster.events("patient", "TaintManagerEviction"), ["Marking for deletion Pod default/patient"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_recovers_in_time_keeps_its_pods() {
    let cluster = Cluster::with_kubelet(lifecycle());
    cluster.node("one", json!({}));
    cluster.pod("web", tolerations(300));
    cluster.settle().await;
    set_ready(&cluster, "one", "Unknown");
    cluster.wait(200).await;
    set_ready(&cluster, "one", "True");
    cluster.wait(600).await;
    assert!(cluster.find(&resources::PODS, "web").is_some());
    assert_eq!(cluster.events("web", "TaintManagerEviction"), ["Cancelling deletion of Pod default/web"]);
}

#[tokio::test(start_paused = true)]
async fn an_untolerated_no_execute_taint_evicts_at_once() {
    let cluster = Cluster::start(lifecycle());
    cluster.node("one", json!({}));
    cluster.pod("web", json!({}));
    cluster.settle().await;
    cluster.patch(&resources::NODES, "one", json!({"spec": {"taints": [{"key": "gone", "effect": "NoExecute"}]}}));
    cluster.settle().await;
    // Without a kubelet the pod stays terminating, and says why.
    let pod = cluster.get(&resources::PODS, "web");
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    let target = condition(&pod, "DisruptionTarget");
    assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!("DeletionByTaintManager")));
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_instance_is_gone_is_deleted_once_it_is_not_ready() {
    let alive = Arc::new(AtomicBool::new(true));
    let answer = alive.clone();
    let options = Options {
        instance_exists: Some(Arc::new(move |provider_id| {
            assert_eq!(provider_id, "aws:///us-west-2a/i-one");
            answer.load(Ordering::Relaxed)
        })),
        ..lifecycle()
    };
    let cluster = Cluster::start(options);
    cluster.node("one", json!({}));
    set_ready(&cluster, "one", "Unknown");
    cluster.wait(20).await;
    assert!(cluster.find(&resources::NODES, "one").is_some());
    alive.store(false, Ordering::Relaxed);
    cluster.wait(6).await;
    assert!(cluster.find(&resources::NODES, "one").is_none());
    let events = cluster.events("one", "DeletingNode");
    assert_eq!(events, ["Deleting node one because it does not exist in the cloud provider"]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_vanished_node_are_collected_after_quarantine() {
    let cluster = Cluster::start(Options { scheduler: true, pod_garbage_collection: true, ..Options::none() });
    cluster.node("one", json!({}));
    cluster.pod("web", json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    cluster.settle().await;
    cluster.delete(&resources::NODES, "one");
    cluster.wait(39).await;
    assert!(cluster.get(&resources::PODS, "web")["metadata"]["deletionTimestamp"].is_null());
    cluster.wait(2).await;
    let pod = cluster.get(&resources::PODS, "web");
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(pod["status"]["phase"], "Failed");
    let target = condition(&pod, "DisruptionTarget");
    assert_eq!(
        (&target["status"], &target["reason"], &target["message"]),
        (&json!("True"), &json!("DeletionByPodGC"), &json!("PodGC: node no longer exists"))
    );
    cluster.patch(&resources::PODS, "web", json!({"metadata": {"finalizers": null}}));
    cluster.settle().await;
    assert!(cluster.find(&resources::PODS, "web").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_in_quarantine_keeps_its_pods() {
    let cluster = Cluster::start(Options { scheduler: true, pod_garbage_collection: true, ..Options::none() });
    cluster.node("one", json!({}));
    cluster.pod("web", json!({}));
    cluster.settle().await;
    cluster.delete(&resources::NODES, "one");
    cluster.wait(30).await;
    cluster.node("one", json!({}));
    cluster.wait(60).await;
    assert!(cluster.find(&resources::PODS, "web").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_new_namespace_has_its_default_objects() {
    let cluster = Cluster::start(Options { namespaces: true, ..Options::none() });
    cluster
        .create(&resources::NAMESPACES, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}));
    cluster.settle().await;
    for namespace in ["team", "default", "kube-system"] {
        assert!(cluster.client.get(&resources::SERVICE_ACCOUNTS, Some(namespace), "default").is_ok(), "{namespace}");
        assert!(
            cluster.client.get(&resources::CONFIG_MAPS, Some(namespace), "kube-root-ca.crt").is_ok(),
            "{namespace}"
        );
    }
}
