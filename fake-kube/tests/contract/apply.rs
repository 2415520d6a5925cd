//! Server-side apply.

use serde_json::{Value, json};

use crate::kit::*;

fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.map(|entry| format!("{} {}", text(&entry["manager"]), text(&entry["operation"]))).collect()
}

#[tokio::test(start_paused = true)]
async fn an_apply_creates_updates_and_drops_what_it_no_longer_names() {
    let kit = Kit::new();
    let path = format!("{CONFIG_MAPS}/a?fieldManager=one");
    let body =
        |data: Value| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data });
    let (code, object) = kit.apply(&path, body(json!({ "x": "1", "y": "2" }))).await;
    assert_eq!(code, 201);
    assert_eq!(object["metadata"]["managedFields"][0]["fieldsV1"], json!({ "f:data": { "f:x": {}, "f:y": {} } }));
    let (code, object) = kit.apply(&path, body(json!({ "x": "1", "z": "3" }))).await;
    assert_eq!(code, 200);
    assert_eq!(object["data"], json!({ "x": "1", "z": "3" }));
    assert_eq!(owners(&object), ["one Apply"]);
}

#[tokio::test(start_paused = true)]
async fn applying_the_same_again_changes_nothing() {
    let kit = Kit::new();
    let path = format!("{DEPLOYMENTS}/d?fieldManager=one");
    let (_, first) = kit.apply(&path, deployment("d")).await;
    let version = kit.kube.resource_version();
    let (code, second) = kit.apply(&path, deployment("d")).await;
    assert_eq!(code, 200);
    assert_eq!(first, second);
    assert_eq!(kit.kube.resource_version(), version);
}

#[tokio::test(start_paused = true)]
async fn two_managers_conflict_over_a_value_and_share_it_when_they_agree() {
    let kit = Kit::new();
    let body = |value: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "x": value } });
    kit.apply(&format!("{CONFIG_MAPS}/a?fieldManager=one"), body("1")).await;
    let (code, status) = kit.apply(&format!("{CONFIG_MAPS}/a?fieldManager=two"), body("2")).await;
    assert_eq!((code, text(&status["reason"])), (409, "Conflict"));
    assert_eq!(status["message"], "Apply failed with 1 conflict: conflict with \"one\": .data.x");
    assert_eq!(
        status["details"]["causes"],
        json!([{ "reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.x" }])
    );
    let (code, object) = kit.apply(&format!("{CONFIG_MAPS}/a?fieldManager=two"), body("1")).await;
    assert_eq!((code, owners(&object)), (200, vec!["one Apply".to_owned(), "two Apply".to_owned()]));
    let (code, object) = kit.apply(&format!("{CONFIG_MAPS}/a?fieldManager=three&force=true"), body("3")).await;
    assert_eq!(code, 200);
    assert_eq!((owners(&object), text(&object["data"]["x"])), (vec!["three Apply".to_owned()], "3"));
}

#[tokio::test(start_paused = true)]
async fn an_update_takes_over_what_it_changes() {
    let kit = Kit::new();
    let path = format!("{DEPLOYMENTS}/d");
    let mut body = deployment("d");
    body["spec"]["replicas"] = json!(2);
    kit.apply(&format!("{path}?fieldManager=one"), body.clone()).await;
    let (_, object) = kit.merge(&path, json!({ "spec": { "replicas": 5 } })).await;
    assert_eq!(owners(&object), ["one Apply", "tester Update"]);
    let (code, status) = kit.apply(&format!("{path}?fieldManager=one"), body).await;
    assert_eq!(code, 409);
    assert_eq!(
        status["message"],
        "Apply failed with 1 conflict: conflict with \"tester\" using apps/v1: .spec.replicas"
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_apply_to_an_older_object_meets_its_former_owner() {
    let kit = Kit::new();
    kit.made(CONFIG_MAPS, config_map("a")).await;
    let mut body = config_map("a");
    body["data"]["a"] = json!("2");
    let (code, status) = kit.apply(&format!("{CONFIG_MAPS}/a?fieldManager=one"), body).await;
    assert_eq!(code, 409);
    assert_eq!(
        status["message"],
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
    );
}

#[tokio::test(start_paused = true)]
async fn lists_with_keys_are_owned_item_by_item() {
    let kit = with_widgets();
    kit.made(WIDGETS, widget("w", json!({ "size": "small" }))).await;
    let path = format!("{WIDGETS}/w/status");
    let condition = |name: &str, status: &str| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" },
            "status": { "conditions": [{ "type": name, "status": status }] },
        })
    };
    kit.apply(&format!("{path}?fieldManager=one"), condition("Ready", "True")).await;
    let (code, object) = kit.apply(&format!("{path}?fieldManager=two"), condition("Healthy", "True")).await;
    assert_eq!(code, 200, "{object:#}");
    let types: Vec<&str> =
        object["status"]["conditions"].as_array().unwrap().iter().map(|item| text(&item["type"])).collect();
    assert_eq!(types, ["Ready", "Healthy"]);
    let (code, status) = kit.apply(&format!("{path}?fieldManager=two"), condition("Ready", "False")).await;
    assert_eq!(code, 409);
    assert_eq!(status["details"]["causes"][0]["field"], ".status.conditions[type=\"Ready\"].status", "{status:#}");
}

#[tokio::test(start_paused = true)]
async fn shared_finalizers_do_not_push_each_other_out() {
    let kit = Kit::new();
    let body = |finalizer: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "finalizers": [finalizer] },
        })
    };
    kit.apply(&format!("{CONFIG_MAPS}/a?fieldManager=one"), body("example.com/one")).await;
    let (_, object) = kit.apply(&format!("{CONFIG_MAPS}/a?fieldManager=two"), body("example.com/two")).await;
    assert_eq!(object["metadata"]["finalizers"], json!(["example.com/one", "example.com/two"]));
}

#[tokio::test(start_paused = true)]
async fn an_apply_names_its_manager_and_may_be_yaml() {
    let kit = Kit::new();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: \"1\"\n";
    let media = "application/apply-patch+yaml";
    let (code, status) = kit.raw("PATCH", &format!("{CONFIG_MAPS}/a"), media, yaml).await;
    assert_eq!(code, 422);
    assert!(text(&status["message"]).contains("fieldManager: Required value: is required for apply patch"));
    assert_eq!(kit.raw("PATCH", &format!("{CONFIG_MAPS}/a?fieldManager=one"), media, yaml).await.0, 201);
}
