//! What kubectl asks on behalf of people: discovery, descriptions of fields, logs, reviews; and what is refused.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::kit::*;

async fn accepted(kit: &Kit, path: &str, accept: &str) -> (u16, String, Vec<u8>) {
    let response = kit.accept("GET", path, accept).await;
    let media = response.headers()["content-type"].to_str().unwrap().to_owned();
    (response.status().as_u16(), media, response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

#[tokio::test(start_paused = true)]
async fn aggregated_discovery_says_so_in_its_media_type() {
    let kit = with_widgets();
    let wanted = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let offer =
        format!("{wanted},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json");
    let (_, media, bytes) = accepted(&kit, "/apis", &offer).await;
    assert_eq!(media, wanted);
    let groups: Value = serde_json::from_slice(&bytes).unwrap();
    let group =
        groups["items"].as_array().unwrap().iter().find(|group| group["metadata"]["name"] == "example.com").unwrap();
    let resource = &group["versions"][0]["resources"][0];
    assert_eq!((text(&resource["resource"]), &resource["shortNames"]), ("widgets", &json!(["wd"])));
    let (_, media, bytes) = accepted(&kit, "/apis", "application/json").await;
    assert_eq!(media, "application/json");
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap()["kind"], "APIGroupList");
    let (_, reviews) = kit.get("/apis/authorization.k8s.io/v1").await;
    assert!(reviews["resources"].as_array().unwrap().iter().all(|resource| resource["verbs"] == json!(["create"])));
}

/// The document an index entry leads to.
async fn document(kit: &Kit, name: &str) -> (String, Value) {
    let (_, index) = kit.get("/openapi/v3").await;
    let url = text(&index["paths"][name]["serverRelativeURL"]).to_owned();
    let (code, document) = kit.get(&url).await;
    assert_eq!(code, 200, "{url}");
    (url, document)
}

#[tokio::test(start_paused = true)]
async fn built_in_fields_are_described_and_say_how_they_merge() {
    let kit = Kit::new();
    let (_, document) = document(&kit, "apis/apps/v1").await;
    let schemas = &document["components"]["schemas"];
    let kind = &schemas["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(
        kind["x-kubernetes-group-version-kind"],
        json!([{ "group": "apps", "version": "v1", "kind": "Deployment" }])
    );
    let spec = &schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"];
    assert!(text(&spec["replicas"]["description"]).starts_with("Number of desired pods."));
    assert_eq!(spec["strategy"]["x-kubernetes-patch-strategy"], "retainKeys");
    let pod = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"];
    let containers = &pod["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(containers["items"]["$ref"], "#/components/schemas/io.k8s.api.core.v1.Container");
    assert_eq!(pod["volumes"]["x-kubernetes-patch-strategy"], "merge,retainKeys");
    assert_eq!(pod["tolerations"]["x-kubernetes-list-type"], "atomic");
    // Every reference leads somewhere.
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas[name].is_object(), "{name}");
    }
    // kubectl looks here before it sends these parameters.
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().map(|found| crate::kit::text(&found["name"])).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());
}

#[tokio::test(start_paused = true)]
async fn every_built_in_kind_has_a_schema() {
    let kit = Kit::new();
    let (_, index) = kit.get("/openapi/v3").await;
    for name in index["paths"].as_object().unwrap().keys() {
        let (_, resources) = kit.get(&format!("/{name}")).await;
        let (_, document) = document(&kit, name).await;
        let schemas: Vec<&Value> = document["components"]["schemas"].as_object().unwrap().values().collect();
        for resource in resources["resources"].as_array().unwrap() {
            // Bindings are written alone; nobody explains them.
            if text(&resource["name"]).contains('/') || resource["name"] == "bindings" {
                continue;
            }
            let named = |schema: &&&Value| schema["x-kubernetes-group-version-kind"][0]["kind"] == resource["kind"];
            let schema = schemas.iter().find(named).unwrap_or_else(|| panic!("{name}: {resource}"));
            assert!(schema["description"].is_string(), "{name}: {resource}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_described_and_a_changed_one_has_another_address() {
    let kit = with_widgets();
    let (first, described) = document(&kit, "apis/example.com/v1").await;
    let schema = &described["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(schema["properties"]["spec"]["properties"]["size"]["enum"], json!(["small", "large"]));
    assert_eq!(
        schema["properties"]["spec"]["properties"]["owner"]["x-kubernetes-validations"][0]["message"],
        "owner is immutable"
    );
    let metadata = &schema["properties"]["metadata"]["allOf"][0]["$ref"];
    assert!(described["components"]["schemas"][text(metadata).rsplit('/').next().unwrap()].is_object());
    let mut definition = widgets();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["new"] =
        json!({ "type": "string" });
    kit.kube.install_crd(definition).unwrap();
    let (second, described) = document(&kit, "apis/example.com/v1").await;
    assert_ne!(first, second);
    let schema = &described["components"]["schemas"]["com.example.v1.Widget"];
    assert!(schema["properties"]["spec"]["properties"]["new"].is_object());
}

#[tokio::test(start_paused = true)]
async fn version_two_is_json_and_its_protobuf_form_names_no_type() {
    let kit = with_widgets();
    let (code, document) = kit.get("/openapi/v2").await;
    assert_eq!(code, 200);
    let pod = &document["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"];
    assert_eq!(pod["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
    assert!(document["definitions"]["com.example.v1.Widget"].is_object());
    let offer = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let (code, media, bytes) = accepted(&kit, "/openapi/v2", offer).await;
    assert_eq!((code, media.as_str()), (200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"));
    assert_eq!(bytes, b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.3");
    assert_eq!(accepted(&kit, "/openapi/v3", "application/cbor").await.0, 406);
}

async fn log(kit: &Kit, query: &str) -> (u16, String) {
    let (code, _, bytes) = accepted(kit, &format!("{PODS}/p/log?{query}"), "*/*").await;
    (code, String::from_utf8(bytes).unwrap())
}

fn state(state: Value) -> Value {
    json!({ "status": { "phase": "Running", "containerStatuses": [{ "name": "main", "restartCount": 0, "state": state }] } })
}

#[tokio::test(start_paused = true)]
async fn logs_tell_the_state_of_the_container_and_that_nothing_runs_inside() {
    let kit = Kit::new();
    kit.made(PODS, pod("p")).await;
    assert_eq!(log(&kit, "").await, (200, String::new()), "nobody has the pod yet");
    kit.delete(&format!("{PODS}/p"), json!({ "gracePeriodSeconds": 0 })).await;
    kit.made(PODS, pod_on("p", "n")).await;
    let message =
        |answer: (u16, String)| text(&serde_json::from_str::<Value>(&answer.1).unwrap()["message"]).to_owned();
    assert_eq!(message(log(&kit, "").await), "container \"main\" in pod \"p\" is waiting to start: ContainerCreating");
    kit.merge(&format!("{PODS}/p/status"), state(json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } }))).await;
    let first = "container main of pod default/p on n: image nginx:1.27, started at 2026-01-01T00:00:00Z\n";
    let second = "nothing runs inside: this is a simulated cluster, so there is no output\n";
    assert_eq!(log(&kit, "").await, (200, format!("{first}{second}")));
    assert_eq!(log(&kit, "container=main&tailLines=1").await.1, second);
    assert_eq!(log(&kit, "tailLines=1&timestamps=true").await.1, format!("2026-01-01T00:00:00.000000000Z {second}"));
    assert_eq!(log(&kit, "limitBytes=9").await.1, "container");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(log(&kit, "sinceSeconds=30").await.1, "");
    assert_eq!(message(log(&kit, "container=nope").await), "container nope is not valid for pod p");
    assert_eq!(
        message(log(&kit, "previous=true").await),
        "previous terminated container \"main\" in pod \"p\" not found"
    );
    assert_eq!(
        message(log(&kit, "tailLines=-1").await),
        "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0"
    );
    assert_eq!(log(&kit, "tailLines=many").await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_log_of_several_containers_needs_a_name() {
    let kit = Kit::new();
    let mut body = pod_on("p", "n");
    body["spec"]["containers"] = json!([{ "name": "a", "image": "a" }, { "name": "b", "image": "b" }]);
    body["spec"]["initContainers"] = json!([{ "name": "c", "image": "c" }]);
    kit.made(PODS, body).await;
    let (code, status) = kit.get(&format!("{PODS}/p/log")).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [c]"
    );
}

#[tokio::test(start_paused = true)]
async fn a_followed_log_ends_with_its_container_or_its_pod() {
    for deleted in [false, true] {
        let kit = Kit::new();
        kit.made(PODS, pod_on("p", "n")).await;
        let running = state(json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } }));
        kit.merge(&format!("{PODS}/p/status"), running).await;
        let mut lines = kit.watch(&format!("{PODS}/p/log?follow=true")).await;
        assert!(lines.text(1).await.unwrap().ends_with("there is no output\n"));
        assert_eq!(lines.text(600).await, None, "nothing happens, and the log stays open");
        if deleted {
            kit.delete(&format!("{PODS}/p"), json!({ "gracePeriodSeconds": 0 })).await;
        } else {
            let ended =
                json!({ "terminated": { "exitCode": 2, "reason": "Error", "finishedAt": "2026-01-01T00:10:00Z" } });
            kit.merge(&format!("{PODS}/p/status"), state(ended)).await;
            assert_eq!(lines.text(1).await.unwrap(), "ended at 2026-01-01T00:10:00Z with exit code 2 (Error)\n");
        }
        assert!(lines.ended().await);
    }
}

#[tokio::test(start_paused = true)]
async fn what_needs_a_process_is_refused_in_plain_words() {
    let kit = Kit::new();
    kit.made(PODS, pod_on("p", "n")).await;
    for (method, subresource) in [
        ("POST", "exec?command=ls"),
        ("GET", "exec"),
        ("POST", "attach"),
        ("POST", "portforward"),
        ("GET", "proxy/a/b"),
    ] {
        let (code, status) = kit.raw(method, &format!("{PODS}/p/{subresource}"), "application/json", "").await;
        let name = subresource.split(['?', '/']).next().unwrap();
        assert_eq!(code, 405, "{subresource}: {status}");
        assert_eq!(
            status["message"],
            format!(
                "pods \"p\": {name} is not possible: this is a simulated cluster, and nothing runs inside its pods"
            )
        );
    }
    assert_eq!(kit.raw("POST", &format!("{PODS}/gone/exec"), "application/json", "").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn everybody_may_do_everything_and_reviews_say_so() {
    let kit = Kit::new();
    let reviews = "/apis/authorization.k8s.io/v1";
    let ask = json!({ "spec": { "resourceAttributes": { "verb": "delete", "resource": "nodes" } } });
    let answer = kit.made(&format!("{reviews}/selfsubjectaccessreviews"), ask.clone()).await;
    assert_eq!((&answer["kind"], &answer["status"]["allowed"]), (&json!("SelfSubjectAccessReview"), &json!(true)));
    assert_eq!(answer["spec"], ask["spec"]);
    let (code, status) = kit.post(&format!("{reviews}/selfsubjectaccessreviews"), json!({ "spec": {} })).await;
    assert_eq!(code, 422, "{status}");
    let rules =
        kit.made(&format!("{reviews}/selfsubjectrulesreviews"), json!({ "spec": { "namespace": "default" } })).await;
    assert_eq!(rules["status"]["resourceRules"][0]["verbs"], json!(["*"]));
    let who = kit.made("/apis/authentication.k8s.io/v1/selfsubjectreviews", json!({})).await;
    assert_eq!(who["status"]["userInfo"]["groups"][0], "system:masters");
    assert_eq!(kit.get(&format!("{reviews}/selfsubjectaccessreviews")).await.0, 405, "there is nothing to list");
}

#[tokio::test(start_paused = true)]
async fn a_created_object_belongs_to_the_manager_that_named_itself() {
    let kit = Kit::new();
    let path = format!("{CONFIG_MAPS}?fieldManager=kubectl-client-side-apply");
    let mut body = config_map("a");
    let last = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "a": "1" } });
    body["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!(last.to_string());
    let object = kit.made(&path, body).await;
    assert_eq!(object["metadata"]["managedFields"][0]["manager"], "kubectl-client-side-apply");
    let mut wanted = config_map("a");
    wanted["data"]["a"] = json!("2");
    let (code, status) = kit.apply(&format!("{CONFIG_MAPS}/a?fieldManager=other"), wanted.clone()).await;
    assert_eq!(code, 409, "{status}");
    // kubectl itself takes over what it applied before.
    let (code, object) = kit.apply(&format!("{CONFIG_MAPS}/a?fieldManager=kubectl"), wanted).await;
    assert_eq!((code, &object["data"]["a"]), (200, &json!("2")));
}

#[tokio::test(start_paused = true)]
async fn texts_of_a_secret_become_data() {
    let kit = Kit::new();
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = kit.made(secrets, json!({ "metadata": { "name": "s" }, "stringData": { "a": "b" } })).await;
    assert_eq!((&secret["data"], secret.get("stringData")), (&json!({ "a": "Yg==" }), None));
    let (_, secret) = kit.merge(&format!("{secrets}/s"), json!({ "stringData": { "c": "d" } })).await;
    assert_eq!(secret["data"], json!({ "a": "Yg==", "c": "ZA==" }));
}

#[tokio::test(start_paused = true)]
async fn properties_called_like_keywords_stay_in_the_documents() {
    let kit = Kit::new();
    let (code, document) = kit.get("/openapi/v3/apis/apiextensions.k8s.io/v1").await;
    assert_eq!(code, 200);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let (_, schema) = schemas.iter().find(|(name, _)| name.ends_with(".JSONSchemaProps")).unwrap();
    assert!(schema["properties"]["$ref"].is_object() && schema["properties"]["allOf"].is_object(), "{schema:#}");
    let (_, document) = kit.get("/openapi/v2").await;
    let definitions = document["definitions"].as_object().unwrap();
    let (_, schema) = definitions.iter().find(|(name, _)| name.ends_with(".JSONSchemaProps")).unwrap();
    assert!(schema["properties"]["$ref"].is_object() && schema["properties"]["allOf"].is_object(), "{schema:#}");
}

#[tokio::test(start_paused = true)]
async fn a_definition_whose_properties_are_no_object_does_not_break_its_group() {
    let kit = Kit::new();
    let mut definition = widgets();
    let group = definition["spec"]["group"].as_str().unwrap().to_owned();
    let version = definition["spec"]["versions"][0]["name"].as_str().unwrap().to_owned();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!([5]);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, _) = kit.post(path, definition).await;
    if code == 201 {
        assert_eq!(kit.get(&format!("/openapi/v3/apis/{group}/{version}")).await.0, 200);
    }
    assert_eq!(kit.get("/openapi/v2").await.0, 200);
}
