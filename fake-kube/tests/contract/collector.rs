//! Deletion: grace, finalizers, owners, namespaces.

use serde_json::{Value, json};

use crate::kit::*;

fn owned(name: &str, owner: &Value, block: bool) -> Value {
    let mut body = config_map(name);
    body["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block, "controller": true,
    }]);
    body
}

#[tokio::test(start_paused = true)]
async fn a_plain_object_goes_at_once_and_the_answer_is_a_success() {
    let kit = Kit::new();
    let made = kit.made(CONFIG_MAPS, config_map("a")).await;
    let (code, status) = kit.delete(&format!("{CONFIG_MAPS}/a"), Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(
        status,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": { "name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"] },
        })
    );
    assert_eq!(kit.delete(&format!("{CONFIG_MAPS}/a"), Value::Null).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let kit = with_widgets();
    let path = format!("{WIDGETS}/w");
    let mut body = widget("w", json!({ "size": "small" }));
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    kit.made(WIDGETS, body).await;
    let mut lines = kit.watch(&format!("{WIDGETS}?watch=true")).await;
    assert_eq!(lines.brief().await, "ADDED w");
    let (code, object) = kit.delete(&path, Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(object["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(object["metadata"]["generation"], 2);
    assert_eq!(lines.brief().await, "MODIFIED w");
    let (code, status) =
        kit.merge(&path, json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/more"] } })).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Widget.example.com \"w\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object \
         is being deleted, found new finalizers []string{\"example.com/more\"}"
    );
    assert_eq!(kit.merge(&path, json!({ "metadata": { "finalizers": [] } })).await.0, 200);
    assert_eq!(lines.brief().await, "DELETED w");
    assert_eq!(kit.get(&path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn preconditions_guard_against_another_object_of_the_same_name() {
    let kit = Kit::new();
    let made = kit.made(CONFIG_MAPS, config_map("a")).await;
    let (code, status) = kit.delete(&format!("{CONFIG_MAPS}/a"), json!({ "preconditions": { "uid": "other" } })).await;
    assert_eq!(code, 409);
    assert_eq!(
        status["message"],
        format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match the UID in \
             record ({}). The object might have been deleted and then recreated",
            text(&made["metadata"]["uid"])
        )
    );
    let version = json!({ "preconditions": { "resourceVersion": "1" } });
    assert_eq!(kit.delete(&format!("{CONFIG_MAPS}/a"), version).await.0, 409);
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_gets_its_grace_and_the_kubelet_removes_it() {
    let kit = Kit::new();
    kit.made(PODS, pod_on("p", "n")).await;
    let path = format!("{PODS}/p");
    let (code, object) = kit.delete(&path, Value::Null).await;
    assert_eq!((code, text(&object["kind"])), (200, "Pod"));
    assert_eq!(object["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], 30);
    let (_, object) = kit.delete(&path, json!({ "gracePeriodSeconds": 60 })).await;
    assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], 30, "a grace period only shrinks");
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let (_, object) = kit.delete(&path, json!({ "gracePeriodSeconds": 10 })).await;
    assert_eq!(object["metadata"]["deletionTimestamp"], "2026-01-01T00:00:10Z");
    assert_eq!(kit.delete(&path, json!({ "gracePeriodSeconds": 0 })).await.0, 200);
    assert_eq!(kit.get(&path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn unscheduled_and_finished_pods_go_at_once() {
    let kit = Kit::new();
    kit.made(PODS, pod("p")).await;
    kit.delete(&format!("{PODS}/p"), Value::Null).await;
    assert_eq!(kit.get(&format!("{PODS}/p")).await.0, 404);
    kit.made(PODS, pod_on("q", "n")).await;
    kit.merge(&format!("{PODS}/q/status"), json!({ "status": { "phase": "Succeeded" } })).await;
    kit.delete(&format!("{PODS}/q"), Value::Null).await;
    assert_eq!(kit.get(&format!("{PODS}/q")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner_in_the_background() {
    let kit = Kit::new();
    let owner = kit.made(DEPLOYMENTS, deployment("d")).await;
    let child = kit.made(CONFIG_MAPS, owned("child", &owner, true)).await;
    kit.made(CONFIG_MAPS, owned("grandchild", &child, true)).await;
    kit.delete(&format!("{DEPLOYMENTS}/d"), Value::Null).await;
    for name in ["child", "grandchild"] {
        assert_eq!(kit.get(&format!("{CONFIG_MAPS}/{name}")).await.0, 404, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_is_meant_by_uid_not_by_name() {
    let kit = Kit::new();
    let first = kit.made(CONFIG_MAPS, config_map("owner")).await;
    kit.delete(&format!("{CONFIG_MAPS}/owner"), Value::Null).await;
    kit.made(CONFIG_MAPS, config_map("owner")).await;
    kit.made(CONFIG_MAPS, owned("late", &first, true)).await;
    assert_eq!(kit.get(&format!("{CONFIG_MAPS}/late")).await.0, 404, "its owner was gone already");
}

#[tokio::test(start_paused = true)]
async fn a_second_owner_keeps_a_dependent_alive() {
    let kit = Kit::new();
    let one = kit.made(CONFIG_MAPS, config_map("one")).await;
    let two = kit.made(CONFIG_MAPS, config_map("two")).await;
    let mut body = owned("child", &one, false);
    let mut reference = owned("child", &two, false)["metadata"]["ownerReferences"][0].clone();
    reference["controller"] = json!(false);
    body["metadata"]["ownerReferences"].as_array_mut().unwrap().push(reference);
    kit.made(CONFIG_MAPS, body).await;
    kit.delete(&format!("{CONFIG_MAPS}/one"), Value::Null).await;
    let (code, child) = kit.get(&format!("{CONFIG_MAPS}/child")).await;
    assert_eq!(code, 200);
    let references = child["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(references.len(), 1);
    assert_eq!(references[0]["name"], "two");
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_waits_for_dependents_that_block() {
    let kit = Kit::new();
    let owner = kit.made(DEPLOYMENTS, deployment("d")).await;
    let mut child = owned("child", &owner, true);
    child["metadata"]["finalizers"] = json!(["example.com/hold"]);
    kit.made(CONFIG_MAPS, child).await;
    let path = format!("{DEPLOYMENTS}/d");
    let (code, object) = kit.delete(&path, json!({ "propagationPolicy": "Foreground" })).await;
    assert_eq!(code, 200);
    assert_eq!(object["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(kit.get(&format!("{CONFIG_MAPS}/child")).await.1["metadata"]["deletionTimestamp"].is_string());
    kit.merge(&format!("{CONFIG_MAPS}/child"), json!({ "metadata": { "finalizers": null } })).await;
    assert_eq!(kit.get(&path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_without_owner() {
    let kit = Kit::new();
    let owner = kit.made(DEPLOYMENTS, deployment("d")).await;
    kit.made(CONFIG_MAPS, owned("child", &owner, true)).await;
    kit.delete(&format!("{DEPLOYMENTS}/d?propagationPolicy=Orphan"), Value::Null).await;
    assert_eq!(kit.get(&format!("{DEPLOYMENTS}/d")).await.0, 404);
    let (code, child) = kit.get(&format!("{CONFIG_MAPS}/child")).await;
    assert_eq!((code, child["metadata"].get("ownerReferences")), (200, None));
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selector() {
    let kit = Kit::new();
    for name in ["a", "b", "c"] {
        let mut body = config_map(name);
        body["metadata"]["labels"] = json!({ "keep": if name == "b" { "yes" } else { "no" } });
        kit.made(CONFIG_MAPS, body).await;
    }
    let (code, _) = kit.delete(&format!("{CONFIG_MAPS}?labelSelector=keep%3Dno"), Value::Null).await;
    assert_eq!(code, 200);
    let (_, list) = kit.get(CONFIG_MAPS).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["metadata"]["name"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_when_its_content_is_gone() {
    let kit = Kit::new();
    kit.made("/api/v1/namespaces", json!({ "metadata": { "name": "team" } })).await;
    kit.made("/api/v1/namespaces/team/configmaps", config_map("a")).await;
    kit.made("/api/v1/namespaces/team/pods", pod_on("p", "n")).await;
    let (_, namespace) = kit.delete("/api/v1/namespaces/team", Value::Null).await;
    assert_eq!(namespace["status"]["phase"], "Terminating");
    assert_eq!(kit.get("/api/v1/namespaces/team/configmaps/a").await.0, 404);
    let (code, status) = kit.post("/api/v1/namespaces/team/configmaps", config_map("b")).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "configmaps \"b\" is forbidden: unable to create new content in namespace team because it is being terminated"
    );
    kit.delete("/api/v1/namespaces/team/pods/p", json!({ "gracePeriodSeconds": 0 })).await;
    assert_eq!(kit.get("/api/v1/namespaces/team").await.0, 404);
    assert_eq!(kit.delete("/api/v1/namespaces/kube-system", Value::Null).await.0, 403);
}
