//! What PodDisruptionBudgets say of themselves.

use fake_kube::actors::Options;
use fake_kube::resources::{self, POD_DISRUPTION_BUDGETS};
use serde_json::{Value, json};

use crate::support::{Cluster, condition};

fn actors() -> Options {
    Options { scheduler: true, deployments: true, replica_sets: true, disruption: true, ..Options::none() }
}

fn budget(cluster: &Cluster, spec: Value) {
    let mut budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    });
    for (field, value) in spec.as_object().unwrap() {
        budget["spec"][field] = value.clone();
    }
    cluster.create(&POD_DISRUPTION_BUDGETS, budget);
}

fn deployment(cluster: &Cluster, replicas: i64) {
    let container = json!({"name": "main", "image": "app"});
    cluster.create(
        &resources::DEPLOYMENTS,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
            },
        }),
    );
}

/// currentHealthy, desiredHealthy, expectedPods, disruptionsAllowed.
fn status(cluster: &Cluster) -> [i64; 4] {
    let budget = cluster.get(&POD_DISRUPTION_BUDGETS, "web");
    ["currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed"]
        .map(|field| budget["status"][field].as_i64().unwrap_or_else(|| panic!("{field} is missing: {budget}")))
}

async fn with_deployment(replicas: i64, spec: Value) -> Cluster {
    let cluster = Cluster::with_kubelet(actors());
    cluster.node("one", json!({}));
    deployment(&cluster, replicas);
    budget(&cluster, spec);
    cluster.settle().await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn min_available_as_a_number() {
    let cluster = with_deployment(5, json!({"minAvailable": 3})).await;
    assert_eq!(status(&cluster), [5, 3, 5, 2]);
    let condition = cluster.condition(&POD_DISRUPTION_BUDGETS, "web", "DisruptionAllowed");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("SufficientPods")));
    assert_eq!(cluster.get(&POD_DISRUPTION_BUDGETS, "web")["status"]["observedGeneration"], 1);
}

#[tokio::test(start_paused = true)]
async fn min_available_as_a_percentage_rounds_up() {
    let cluster = with_deployment(5, json!({"minAvailable": "50%"})).await;
    assert_eq!(status(&cluster), [5, 3, 5, 2]);
}

#[tokio::test(start_paused = true)]
async fn max_unavailable_as_a_percentage_rounds_up() {
    let cluster = with_deployment(5, json!({"maxUnavailable": "30%"})).await;
    assert_eq!(status(&cluster), [5, 3, 5, 2]);
}

#[tokio::test(start_paused = true)]
async fn max_unavailable_of_zero_allows_nothing() {
    let cluster = with_deployment(3, json!({"maxUnavailable": 0})).await;
    assert_eq!(status(&cluster), [3, 3, 3, 0]);
    let condition = cluster.condition(&POD_DISRUPTION_BUDGETS, "web", "DisruptionAllowed");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("InsufficientPods")));
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_not_ready_count_against_the_budget() {
    let cluster = with_deployment(3, json!({"maxUnavailable": 1})).await;
    assert_eq!(status(&cluster), [3, 2, 3, 1]);
    let pods = cluster.pods("web-");
    let pod = pods[0]["metadata"]["name"].as_str().unwrap();
    cluster.patch_status(&resources::PODS, pod, json!({"conditions": [{"type": "Ready", "status": "False"}]}));
    cluster.settle().await;
    assert_eq!(status(&cluster), [2, 2, 3, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_budget_without_pods_allows_nothing() {
    let cluster = Cluster::start(actors());
    budget(&cluster, json!({"maxUnavailable": 1}));
    cluster.settle().await;
    assert_eq!(status(&cluster), [0, 0, 0, 0]);
    assert_eq!(cluster.events("web", "NoPods"), ["No matching pods found"]);
}

#[tokio::test(start_paused = true)]
async fn a_bare_pod_counts_for_a_number_but_not_for_a_percentage() {
    let cluster = Cluster::with_kubelet(actors());
    cluster.node("one", json!({}));
    cluster.pod("bare", json!({"metadata": {"labels": {"app": "web"}}}));
    budget(&cluster, json!({"minAvailable": 1}));
    cluster.settle().await;
    assert_eq!(status(&cluster), [1, 1, 1, 0]);
    cluster.patch(&POD_DISRUPTION_BUDGETS, "web", json!({"spec": {"minAvailable": "50%"}}));
    cluster.settle().await;
    assert_eq!(status(&cluster), [1, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_daemon_set_make_a_percentage_unknowable() {
    let cluster = Cluster::start(actors());
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "some", "controller": true});
    // The owner must exist, or garbage collection takes the pod.
    let container = json!({"name": "main", "image": "app"});
    let set = cluster.create(
        &resources::DAEMON_SETS,
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}}}),
    );
    let mut owner = owner;
    owner["uid"] = set["metadata"]["uid"].clone();
    cluster.pod("agent-x", json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": [owner]}}));
    budget(&cluster, json!({"maxUnavailable": 1}));
    cluster.settle().await;
    let condition = cluster.condition(&POD_DISRUPTION_BUDGETS, "web", "DisruptionAllowed");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("SyncFailed")));
    assert_eq!(condition["message"], "daemonsets.apps does not implement the scale subresource");
}

#[tokio::test(start_paused = true)]
async fn a_granted_eviction_that_does_not_happen_counts_again_after_two_minutes() {
    let cluster = with_deployment(3, json!({"maxUnavailable": 1})).await;
    let pods = cluster.pods("web-");
    let pod = pods[0]["metadata"]["name"].as_str().unwrap();
    let now = cluster.kube.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    cluster.patch_status(&POD_DISRUPTION_BUDGETS, "web", json!({"disruptedPods": {pod: now}, "disruptionsAllowed": 0}));
    cluster.wait(100).await;
    assert_eq!(status(&cluster), [2, 2, 3, 0]);
    cluster.wait(25).await;
    assert_eq!(status(&cluster), [3, 2, 3, 1]);
    assert_eq!(cluster.events(pod, "NotDeleted").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_makes_a_replacement_and_the_budget_recovers() {
    let cluster = with_deployment(3, json!({"maxUnavailable": 1})).await;
    let pods = cluster.pods("web-");
    let pod = pods[0]["metadata"]["name"].as_str().unwrap();
    cluster.client.evict("default", pod, Default::default()).unwrap();
    let refused = pods[1]["metadata"]["name"].as_str().unwrap();
    assert!(cluster.client.evict("default", refused, Default::default()).unwrap_err().is_too_many_requests());
    cluster.settle().await;
    assert_eq!(status(&cluster), [3, 2, 3, 1]);
    let budget = cluster.get(&POD_DISRUPTION_BUDGETS, "web");
    assert!(budget["status"].get("disruptedPods").is_none_or(|pods| pods.as_object().unwrap().is_empty()));
    assert_eq!(condition(&budget, "DisruptionAllowed")["status"], "True");
}
