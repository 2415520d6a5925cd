//! Custom resource definitions: schema, defaults, rules.

use serde_json::{Value, json};

use crate::kit::*;

async fn refused(kit: &Kit, spec: Value) -> (String, Vec<String>) {
    let (code, status) = kit.post(WIDGETS, widget("w", spec)).await;
    assert_eq!(code, 422, "{status:#}");
    let reasons = status["details"]["causes"].as_array().unwrap().iter().map(|cause| text(&cause["reason"]).to_owned());
    (text(&status["message"]).to_owned(), reasons.collect())
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_established_and_served_at_once() {
    let kit = Kit::new();
    let made = kit.made("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets()).await;
    let conditions: Vec<String> = made["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| format!("{}={}", text(&condition["type"]), text(&condition["status"])))
        .collect();
    assert_eq!(conditions, ["NamesAccepted=True", "Established=True"]);
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(made["spec"]["names"]["singular"], "widget");
    assert_eq!(kit.get(WIDGETS).await.1["kind"], "WidgetList");
}

#[tokio::test(start_paused = true)]
async fn schema_errors_speak_as_the_server_does() {
    let kit = with_widgets();
    let (message, reasons) = refused(&kit, json!({ "size": "huge" })).await;
    assert_eq!(
        message,
        "Widget.example.com \"w\" is invalid: [spec.size: Unsupported value: \"huge\": supported values: \"small\", \
         \"large\", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
         correct the existing errors to complete validation]"
    );
    assert_eq!(reasons, ["FieldValueNotSupported", "FieldValueInvalid"]);
    let (message, _) = refused(&kit, json!({})).await;
    assert!(message.contains("spec.size: Required value"), "{message}");
    let (message, reasons) = refused(&kit, json!({ "size": "small", "limits": { "cpu": "1.5x" } })).await;
    assert_eq!(
        message,
        "Widget.example.com \"w\" is invalid: spec.limits.cpu: Invalid value: \"1.5x\": spec.limits.cpu in body should match \
         '^[0-9]+m?$'"
    );
    assert_eq!(reasons, ["FieldValueInvalid"]);
    let (message, reasons) = refused(&kit, json!({ "size": "small", "replicas": "three" })).await;
    assert!(
        message.contains(
            "spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\""
        ),
        "{message}"
    );
    assert_eq!(reasons[0], "FieldValueTypeInvalid");
    let (message, _) = refused(&kit, json!({ "size": "large", "replicas": 11 })).await;
    assert!(
        message.ends_with("spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10"),
        "{message}"
    );
    let (message, _) = refused(&kit, json!({ "size": "small", "name": "abcdefg" })).await;
    assert!(message.contains("spec.name: Too long: may not be more than 5 bytes"), "{message}");
    let (message, _) =
        refused(&kit, json!({ "size": "small", "rules": [{ "key": "a" }, { "key": "b" }, { "key": "c" }] })).await;
    assert!(message.contains("spec.rules: Too many: 3: must have at most 2 items"), "{message}");
    let (message, _) = refused(&kit, json!({ "size": "small", "rules": [{ "values": [] }] })).await;
    assert!(message.contains("spec.rules[0].key: Required value"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn defaults_reach_into_what_was_defaulted() {
    let kit = with_widgets();
    let made = kit.made(WIDGETS, widget("w", json!({ "size": "small" }))).await;
    assert_eq!(made["spec"]["policy"], json!({ "after": "0s", "budgets": [{ "nodes": "10%" }] }));
    let made = kit.made(WIDGETS, widget("v", json!({ "size": "small", "policy": { "after": "1m" } }))).await;
    assert_eq!(made["spec"]["policy"], json!({ "after": "1m" }));
    let made = kit.made(WIDGETS, widget("u", json!({ "size": "small", "policy": { "after": null } }))).await;
    assert_eq!(made["spec"]["policy"], json!({ "after": "0s" }));
}

#[tokio::test(start_paused = true)]
async fn rules_are_checked_and_told_with_their_path() {
    let kit = with_widgets();
    let (message, reasons) = refused(&kit, json!({ "size": "small", "replicas": 7 })).await;
    assert_eq!(
        message,
        "Widget.example.com \"w\" is invalid: spec: Invalid value: small widgets have fewer than five replicas"
    );
    assert_eq!(reasons, ["FieldValueInvalid"]);
    let (message, _) =
        refused(&kit, json!({ "size": "small", "rules": [{ "key": "a" }, { "key": "forbidden" }] })).await;
    assert_eq!(message, "Widget.example.com \"w\" is invalid: spec.rules[1]: Invalid value: this key is taken");
}

#[tokio::test(start_paused = true)]
async fn transition_rules_compare_with_the_former_value() {
    let kit = with_widgets();
    kit.made(WIDGETS, widget("w", json!({ "size": "small", "owner": "me" }))).await;
    let path = format!("{WIDGETS}/w");
    let (code, status) = kit.merge(&path, json!({ "spec": { "owner": "you" } })).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Widget.example.com \"w\" is invalid: spec.owner: Invalid value: \"you\": owner is immutable"
    );
    assert_eq!(kit.merge(&path, json!({ "spec": { "size": "large" } })).await.0, 200);
    let (code, _) = kit.merge(&path, json!({ "spec": { "owner": null } })).await;
    assert_eq!(code, 200, "a value that goes away has nothing to compare with");
}

#[tokio::test(start_paused = true)]
async fn what_did_not_change_is_not_judged_again() {
    let kit = with_widgets();
    kit.made(WIDGETS, widget("w", json!({ "size": "small", "name": "abc" }))).await;
    let mut stricter = widgets();
    stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["name"]["pattern"] =
        json!("^x$");
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    assert_eq!(kit.merge(path, stricter).await.0, 200);
    let path = format!("{WIDGETS}/w");
    assert_eq!(kit.merge(&path, json!({ "spec": { "replicas": 1 } })).await.0, 200);
    assert_eq!(kit.merge(&path, json!({ "spec": { "name": "abd" } })).await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_cannot_be_used_is_refused() {
    let kit = Kit::new();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut body = widgets();
    body["metadata"]["name"] = json!("gadgets.example.com");
    let (code, status) = kit.post(path, body).await;
    assert_eq!(code, 422);
    assert!(text(&status["message"]).contains("must be spec.names.plural+\".\"+spec.group"));
    let mut body = widgets();
    let spec = &mut body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["x-kubernetes-validations"] = json!([{ "rule": "self.size ==" }]);
    assert_eq!(kit.post(path, body).await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn deleting_a_definition_takes_its_objects_along_and_waits_for_finalizers() {
    let kit = with_widgets();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    kit.made(WIDGETS, widget("w", json!({ "size": "small" }))).await;
    let mut held = widget("h", json!({ "size": "small" }));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    kit.made(WIDGETS, held).await;
    assert_eq!(kit.delete(path, Value::Null).await.0, 200);
    assert_eq!(kit.get(&format!("{WIDGETS}/w")).await.0, 404);
    assert_eq!(kit.get(path).await.0, 200);
    kit.merge(&format!("{WIDGETS}/h"), json!({ "metadata": { "finalizers": null } })).await;
    assert_eq!(kit.get(path).await.0, 404);
    assert_eq!(kit.get(WIDGETS).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn kubectl_gets_a_table_with_the_definitions_columns() {
    let kit = with_widgets();
    kit.made(WIDGETS, widget("w", json!({ "size": "small" }))).await;
    kit.merge(
        &format!("{WIDGETS}/w/status"),
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }),
    )
    .await;
    let request = http::Request::builder()
        .uri(WIDGETS)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
        .body(http_body_util::Empty::new())
        .unwrap();
    let response = tower::ServiceExt::oneshot(kit.kube.service(), request).await.unwrap();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let table: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["cells"], json!(["w", "small", "True"]));
}
