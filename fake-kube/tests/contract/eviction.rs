//! Evictions and disruption budgets.

use serde_json::{Value, json};

use crate::kit::*;

async fn running(kit: &Kit, name: &str, ready: bool) {
    kit.made(PODS, pod_on(name, "n")).await;
    let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] });
    kit.merge(&format!("{PODS}/{name}/status"), json!({ "status": status })).await;
}

async fn budget(kit: &Kit, name: &str, allowed: i64, current: i64, desired: i64) {
    kit.made(
        BUDGETS,
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name },
            "spec": { "minAvailable": desired, "selector": { "matchLabels": { "app": "web" } } },
        }),
    )
    .await;
    let status = json!({
        "disruptionsAllowed": allowed, "currentHealthy": current, "desiredHealthy": desired, "expectedPods": current,
        "observedGeneration": 1,
    });
    assert_eq!(kit.merge(&format!("{BUDGETS}/{name}/status"), json!({ "status": status })).await.0, 200);
}

async fn evict(kit: &Kit, name: &str, options: Value) -> Answer {
    kit.post(
        &format!("{PODS}/{name}/eviction"),
        json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name, "namespace": "default" },
            "deleteOptions": options,
        }),
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn without_a_budget_an_eviction_is_a_graceful_deletion_with_a_reason() {
    let kit = Kit::new();
    running(&kit, "p", true).await;
    let (code, status) = evict(&kit, "p", json!({ "gracePeriodSeconds": 10 })).await;
    assert_eq!((code, text(&status["status"])), (201, "Success"));
    let (_, pod) = kit.get(&format!("{PODS}/p")).await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 10);
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!(
        (text(&target["reason"]), text(&target["message"])),
        ("EvictionByEvictionAPI", "Eviction API: evicting")
    );
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_refuses_with_the_cause() {
    let kit = Kit::new();
    running(&kit, "p", true).await;
    budget(&kit, "b", 0, 2, 2).await;
    let (code, status) = evict(&kit, "p", Value::Null).await;
    assert_eq!((code, text(&status["reason"])), (429, "TooManyRequests"));
    assert_eq!(status["message"], "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(
        status["details"]["causes"],
        json!([{ "reason": "DisruptionBudget", "message": "The disruption budget b needs 2 healthy pods and has 2 currently" }])
    );
    assert!(kit.get(&format!("{PODS}/p")).await.1["metadata"].get("deletionTimestamp").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_eviction_spends_the_budget_and_notes_the_pod() {
    let kit = Kit::new();
    running(&kit, "p", true).await;
    running(&kit, "q", true).await;
    budget(&kit, "b", 1, 2, 1).await;
    assert_eq!(evict(&kit, "p", Value::Null).await.0, 201);
    let (_, object) = kit.get(&format!("{BUDGETS}/b")).await;
    assert_eq!(object["status"]["disruptionsAllowed"], 0);
    assert_eq!(object["status"]["disruptedPods"], json!({ "p": "2026-01-01T00:00:00Z" }));
    assert_eq!(evict(&kit, "q", Value::Null).await.0, 429);
    assert_eq!(evict(&kit, "p", Value::Null).await.0, 201, "a pod that is leaving disrupts nothing more");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_was_not_yet_seen_refuses_for_ten_seconds() {
    let kit = Kit::new();
    running(&kit, "p", true).await;
    budget(&kit, "b", 1, 2, 1).await;
    kit.merge(&format!("{BUDGETS}/b"), json!({ "spec": { "minAvailable": 2 } })).await;
    let (code, status) = evict(&kit, "p", Value::Null).await;
    assert_eq!((code, status["details"]["retryAfterSeconds"].as_i64()), (429, Some(10)));
    assert_eq!(
        status["details"]["causes"][0]["message"],
        "The disruption budget b is still being processed by the server."
    );
}

#[tokio::test(start_paused = true)]
async fn two_budgets_over_one_pod_are_an_error_that_comes_as_a_result() {
    let kit = Kit::new();
    running(&kit, "p", true).await;
    budget(&kit, "b", 1, 2, 1).await;
    budget(&kit, "c", 1, 2, 1).await;
    let (_, status) = evict(&kit, "p", Value::Null).await;
    assert_eq!((text(&status["status"]), status["code"].as_i64()), ("Failure", Some(500)));
    assert_eq!(
        status["message"],
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
    let client = kit.kube.client("in-process");
    let refused = client.evict("default", "p", Default::default()).unwrap_err();
    assert_eq!(refused.code, 500);
}

#[tokio::test(start_paused = true)]
async fn unready_pods_go_while_the_budget_is_healthy() {
    let kit = Kit::new();
    running(&kit, "p", false).await;
    budget(&kit, "b", 0, 2, 2).await;
    assert_eq!(evict(&kit, "p", Value::Null).await.0, 201);
    let (_, object) = kit.get(&format!("{BUDGETS}/b")).await;
    assert!(object["status"].get("disruptedPods").is_none());
}

#[tokio::test(start_paused = true)]
async fn pending_pods_need_no_budget_and_preconditions_hold() {
    let kit = Kit::new();
    kit.made(PODS, pod("p")).await;
    budget(&kit, "b", 0, 0, 2).await;
    let (code, _) = evict(&kit, "p", json!({ "preconditions": { "uid": "other" } })).await;
    assert_eq!(code, 409);
    assert_eq!(evict(&kit, "p", Value::Null).await.0, 201);
    assert_eq!(kit.get(&format!("{PODS}/p")).await.0, 404);
    assert_eq!(evict(&kit, "p", Value::Null).await.0, 404);
}
