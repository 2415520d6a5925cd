//! JSON, merge and strategic merge patches.

use serde_json::json;

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn a_json_patch_may_test_an_absent_path_for_null() {
    let kit = Kit::new();
    kit.made(CONFIG_MAPS, config_map("a")).await;
    let (code, object) = kit
        .json_patch(
            &format!("{CONFIG_MAPS}/a"),
            json!([
                { "op": "test", "path": "/metadata/finalizers", "value": null },
                { "op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold"] },
            ]),
        )
        .await;
    assert_eq!(code, 200);
    assert_eq!(object["metadata"]["finalizers"], json!(["example.com/hold"]));
}

#[tokio::test(start_paused = true)]
async fn a_failed_test_of_a_json_patch_changes_nothing() {
    let kit = Kit::new();
    let made = kit.made(CONFIG_MAPS, config_map("a")).await;
    let (code, status) = kit
        .json_patch(
            &format!("{CONFIG_MAPS}/a"),
            json!([
                { "op": "replace", "path": "/data/a", "value": "2" },
                { "op": "test", "path": "/data/a", "value": "1" },
            ]),
        )
        .await;
    assert_eq!((code, text(&status["reason"])), (422, "Invalid"));
    assert_eq!(kit.get(&format!("{CONFIG_MAPS}/a")).await.1, made);
    assert_eq!(kit.json_patch(&format!("{CONFIG_MAPS}/a"), json!({ "op": "add" })).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_merge_patch_removes_with_null_and_may_carry_a_version() {
    let kit = Kit::new();
    let made = kit.made(CONFIG_MAPS, config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let version = made["metadata"]["resourceVersion"].clone();
    let (code, object) =
        kit.merge(&path, json!({ "data": { "a": null, "b": "2" }, "metadata": { "resourceVersion": version } })).await;
    assert_eq!((code, &object["data"]), (200, &json!({ "b": "2" })));
    let (code, _) = kit.merge(&path, json!({ "data": { "c": "3" }, "metadata": { "resourceVersion": version } })).await;
    assert_eq!(code, 409);
}

#[tokio::test(start_paused = true)]
async fn a_strategic_patch_merges_containers_by_name_and_replaces_tolerations() {
    let kit = Kit::new();
    let mut body = deployment("d");
    body["spec"]["template"]["spec"]["tolerations"] = json!([{ "key": "a", "operator": "Exists" }]);
    kit.made(DEPLOYMENTS, body).await;
    let path = format!("{DEPLOYMENTS}/d");
    let (code, object) = kit
        .strategic(
            &path,
            json!({ "spec": { "template": { "spec": {
            "containers": [{ "name": "side", "image": "envoy" }],
            "tolerations": [{ "key": "b", "operator": "Exists" }],
        } } } }),
        )
        .await;
    assert_eq!(code, 200, "{object:#}");
    let spec = &object["spec"]["template"]["spec"];
    let names: Vec<&str> = spec["containers"].as_array().unwrap().iter().map(|item| text(&item["name"])).collect();
    assert_eq!(names, ["side", "main"], "what is new comes first");
    assert_eq!(spec["tolerations"], json!([{ "key": "b", "operator": "Exists" }]));
    let (_, object) = kit
        .strategic(
            &path,
            json!({ "spec": { "template": { "spec": {
            "containers": [{ "name": "main", "$patch": "delete" }] } } } }),
        )
        .await;
    let spec = &object["spec"]["template"]["spec"];
    assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn strategic_patches_are_not_for_custom_resources() {
    let kit = with_widgets();
    kit.made(WIDGETS, widget("w", json!({ "size": "small" }))).await;
    let (code, status) = kit.strategic(&format!("{WIDGETS}/w"), json!({ "spec": { "size": "large" } })).await;
    assert_eq!((code, text(&status["reason"])), (415, "UnsupportedMediaType"));
}
