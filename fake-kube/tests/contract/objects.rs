//! Creating, replacing, and what the server keeps for itself.

use serde_json::{Value, json};

use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn a_new_object_gets_uid_creation_time_in_whole_seconds_and_a_version() {
    let kit = Kit::new();
    tokio::time::sleep(std::time::Duration::from_millis(90_750)).await;
    let made = kit.made(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(made["metadata"]["creationTimestamp"], "2026-01-01T00:01:30Z");
    assert_eq!(made["metadata"]["namespace"], "default");
    assert_eq!(text(&made["metadata"]["uid"]).len(), 36);
    assert!(text(&made["metadata"]["resourceVersion"]).parse::<u64>().unwrap() > 0);
    assert!(made["metadata"].get("generation").is_none(), "config maps have no generation");
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_uids_and_names() {
    let mut seen = Vec::new();
    for seed in [7, 7, 8] {
        let kit = Kit::with(|options| options.seed = seed);
        let mut body = config_map("");
        body["metadata"] = json!({ "generateName": "x-" });
        let made = kit.made(CONFIG_MAPS, body).await;
        let name = text(&made["metadata"]["name"]).to_owned();
        assert_eq!(name.len(), 7);
        seen.push((name, made["metadata"]["uid"].clone()));
    }
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0], seen[2]);
}

#[tokio::test(start_paused = true)]
async fn a_second_create_of_the_same_name_is_already_exists() {
    let kit = Kit::new();
    kit.made(CONFIG_MAPS, config_map("a")).await;
    let (code, status) = kit.post(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(
        (code, status),
        (
            409,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "configmaps \"a\" already exists", "reason": "AlreadyExists", "code": 409,
                "details": { "name": "a", "kind": "configmaps" },
            })
        )
    );
}

#[tokio::test(start_paused = true)]
async fn an_absent_object_is_not_found_with_the_qualified_resource() {
    let kit = Kit::new();
    let (code, status) = kit.get(&format!("{DEPLOYMENTS}/x")).await;
    assert_eq!(code, 404);
    assert_eq!(status["message"], "deployments.apps \"x\" not found");
    assert_eq!(status["details"], json!({ "name": "x", "group": "apps", "kind": "deployments" }));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_resource_is_not_found_and_a_wrong_method_not_allowed() {
    let kit = Kit::new();
    let (code, nothing) = kit.get("/apis/nowhere.io/v1/things").await;
    assert_eq!(
        (code, nothing),
        (404, Value::Null),
        "where there is no group there is no Status either, but plain text"
    );
    let (code, status) = kit.get("/apis/apps/v1/things").await;
    assert_eq!((code, text(&status["message"])), (404, "the server could not find the requested resource"));
    let (code, status) = kit.post("/api/v1/nodes/x", json!({})).await;
    assert_eq!(code, 405);
    assert_eq!(status["message"], "the server does not allow this method on the requested resource");
}

#[tokio::test(start_paused = true)]
async fn objects_need_their_namespace_to_exist() {
    let kit = Kit::new();
    let (code, status) = kit.post("/api/v1/namespaces/nowhere/configmaps", config_map("a")).await;
    assert_eq!((code, text(&status["message"])), (404, "namespaces \"nowhere\" not found"));
}

#[tokio::test(start_paused = true)]
async fn a_stale_update_is_a_conflict_in_the_servers_words() {
    let kit = Kit::new();
    let first = kit.made(CONFIG_MAPS, config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let mut next = first.clone();
    next["data"]["a"] = json!("2");
    assert_eq!(kit.put(&path, next).await.0, 200);
    let mut stale = first;
    stale["data"]["a"] = json!("3");
    let (code, status) = kit.put(&path, stale).await;
    assert_eq!(code, 409);
    assert_eq!(status["reason"], "Conflict");
    assert_eq!(
        status["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to \
         the latest version and try again"
    );
}

#[tokio::test(start_paused = true)]
async fn an_update_without_version_is_unconditional_for_built_in_kinds_and_refused_for_custom_ones() {
    let kit = with_widgets();
    kit.made(CONFIG_MAPS, config_map("a")).await;
    assert_eq!(kit.put(&format!("{CONFIG_MAPS}/a"), config_map("a")).await.0, 200);
    kit.made(WIDGETS, widget("w", json!({ "size": "small" }))).await;
    let (code, status) = kit.put(&format!("{WIDGETS}/w"), widget("w", json!({ "size": "large" }))).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "widgets.example.com \"w\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
}

#[tokio::test(start_paused = true)]
async fn an_update_that_changes_nothing_keeps_the_version_and_tells_nobody() {
    let kit = Kit::new();
    let made = kit.made(CONFIG_MAPS, config_map("a")).await;
    let version = kit.kube.resource_version();
    let (code, same) = kit.put(&format!("{CONFIG_MAPS}/a"), made.clone()).await;
    assert_eq!((code, same), (200, made));
    assert_eq!(kit.kube.resource_version(), version);
}

#[tokio::test(start_paused = true)]
async fn name_and_namespace_of_the_body_must_fit_the_url() {
    let kit = Kit::new();
    kit.made(CONFIG_MAPS, config_map("a")).await;
    let (code, status) = kit.put(&format!("{CONFIG_MAPS}/a"), config_map("b")).await;
    assert_eq!(code, 400);
    assert_eq!(status["message"], "the name of the object (b) does not match the name on the URL (a)");
    let mut body = config_map("c");
    body["metadata"]["namespace"] = json!("kube-system");
    let (code, status) = kit.post(CONFIG_MAPS, body).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "the namespace of the provided object does not match the namespace sent on the request"
    );
}

#[tokio::test(start_paused = true)]
async fn generation_counts_changes_of_the_spec_alone() {
    let kit = with_widgets();
    let path = format!("{WIDGETS}/w");
    let made = kit.made(WIDGETS, widget("w", json!({ "size": "small" }))).await;
    assert_eq!(made["metadata"]["generation"], 1);
    let (_, labelled) = kit.merge(&path, json!({ "metadata": { "labels": { "a": "b" } } })).await;
    assert_eq!(labelled["metadata"]["generation"], 1);
    let (_, grown) = kit.merge(&path, json!({ "spec": { "size": "large" } })).await;
    assert_eq!(grown["metadata"]["generation"], 2);
    let (_, reported) = kit.merge(&format!("{path}/status"), json!({ "status": { "replicas": 1 } })).await;
    assert_eq!(reported["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn the_status_is_written_through_its_subresource_only_and_that_writes_nothing_else() {
    let kit = with_widgets();
    let path = format!("{WIDGETS}/w");
    let mut body = widget("w", json!({ "size": "small" }));
    body["status"] = json!({ "replicas": 9 });
    let made = kit.made(WIDGETS, body).await;
    assert!(made.get("status").is_none());
    let (_, object) = kit.merge(&path, json!({ "status": { "replicas": 9 } })).await;
    assert!(object.get("status").is_none());
    let (_, object) = kit
        .merge(
            &format!("{path}/status"),
            json!({ "status": { "replicas": 3 }, "spec": { "size": "large" },
            "metadata": { "labels": { "a": "b" } } }),
        )
        .await;
    assert_eq!(object["status"]["replicas"], 3);
    assert_eq!(object["spec"]["size"], "small");
    assert!(object["metadata"].get("labels").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_answers_as_if_and_changes_nothing() {
    let kit = Kit::new();
    let version = kit.kube.resource_version();
    let (code, object) = kit.post(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("a")).await;
    assert_eq!(code, 201);
    assert!(object["metadata"]["uid"].is_string());
    assert_eq!(kit.get(&format!("{CONFIG_MAPS}/a")).await.0, 404);
    assert_eq!(kit.kube.resource_version(), version);
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_cannot_be_understood_deletes_nothing() {
    let kit = Kit::new();
    kit.made(CONFIG_MAPS, config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    let cases = [
        ("?dryRun=Some", Value::Null, 422, "dryRun"),
        ("?gracePeriodSeconds=abc", Value::Null, 400, "parsing \"abc\""),
        ("?propagationPolicy=Sideways", Value::Null, 422, "propagationPolicy"),
        ("", json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["Some"]}), 422, "dryRun"),
    ];
    for (query, body, expected, named) in cases {
        let (code, status) = kit.delete(&format!("{path}{query}"), body.clone()).await;
        assert_eq!(code, expected, "{query} {body}: {status:#}");
        assert!(status["message"].as_str().unwrap().contains(named), "{status:#}");
        assert_eq!(kit.get(&path).await.0, 200, "{query} {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_dropped_warned_of_or_refused_as_asked() {
    let kit = with_widgets();
    let body = || widget("w", json!({ "size": "small", "foo": 1 }));
    let (code, status) = kit.post(&format!("{WIDGETS}?fieldValidation=Strict"), body()).await;
    assert_eq!((code, text(&status["reason"])), (400, "BadRequest"));
    assert_eq!(
        status["message"],
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.foo\""
    );
    let response = kit.send("POST", WIDGETS, "application/json", &body().to_string()).await.unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers()["warning"], "299 - \"unknown field \\\"spec.foo\\\"\"");
    let (_, object) = kit.get(&format!("{WIDGETS}/w")).await;
    assert!(object["spec"].get("foo").is_none());
    let mut pod = pod("p");
    pod["spec"]["containers"][0]["colour"] = json!("red");
    let (code, status) = kit.post(&format!("{PODS}?fieldValidation=Strict"), pod).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \
         \"spec.containers[0].colour\""
    );
}

#[tokio::test(start_paused = true)]
async fn values_of_the_wrong_type_are_refused_as_go_refuses_them() {
    let kit = Kit::new();
    let mut body = deployment("d");
    body["spec"]["replicas"] = json!("three");
    let (code, status) = kit.post(DEPLOYMENTS, body).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct \
         field DeploymentSpec.spec.replicas of type int32"
    );
}

#[tokio::test(start_paused = true)]
async fn bad_bodies_and_media_types_are_client_errors() {
    let kit = Kit::new();
    assert_eq!(kit.raw("POST", CONFIG_MAPS, "application/json", "{").await.0, 400);
    assert_eq!(kit.raw("POST", CONFIG_MAPS, "application/json", "[]").await.0, 400);
    assert_eq!(kit.raw("POST", CONFIG_MAPS, "application/json", "7").await.0, 400);
    assert_eq!(kit.raw("POST", CONFIG_MAPS, "application/vnd.kubernetes.protobuf", "k8s").await.0, 400);
    assert_eq!(kit.raw("POST", CONFIG_MAPS, "application/cbor", "k8s").await.0, 415);
    kit.made(CONFIG_MAPS, config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(kit.raw("PATCH", &path, "application/json", "{}").await.0, 415);
    assert_eq!(kit.raw("PATCH", &path, "application/merge-patch+json", "[]").await.0, 400);
    let (code, _) = kit.merge(&path, json!({ "metadata": 3 })).await;
    assert!((400..500).contains(&code), "{code}");
}

#[tokio::test(start_paused = true)]
async fn labels_and_names_follow_the_rules_of_kubernetes() {
    let kit = Kit::new();
    let mut body = config_map("a");
    body["metadata"]["labels"] = json!({ "a": "not ok" });
    let (code, status) = kit.post(CONFIG_MAPS, body).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "ConfigMap \"a\" is invalid: metadata.labels: Invalid value: \"not ok\": a valid label must be an empty string or \
         consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
         (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    );
    let (code, status) = kit.post(CONFIG_MAPS, config_map("Not_A_Name")).await;
    assert_eq!(code, 422);
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
}

#[tokio::test(start_paused = true)]
async fn events_are_the_same_objects_in_both_groups() {
    let kit = Kit::new();
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "e" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "karpenter", "reportingInstance": "k-1",
        "action": "Launched", "reason": "Launched", "regarding": { "kind": "Pod", "name": "p", "namespace": "default" },
        "note": "hello", "type": "Normal",
    });
    kit.made("/apis/events.k8s.io/v1/namespaces/default/events", event).await;
    let (_, core) = kit.get("/api/v1/namespaces/default/events/e").await;
    assert_eq!(core["apiVersion"], "v1");
    assert_eq!(core["message"], "hello");
    assert_eq!(core["involvedObject"]["name"], "p");
    assert_eq!(core["reportingComponent"], "karpenter");
    let (_, new) = kit.get("/apis/events.k8s.io/v1/namespaces/default/events/e").await;
    assert_eq!((text(&new["note"]), text(&new["apiVersion"])), ("hello", "events.k8s.io/v1"));
    let (_, list) = kit.get("/api/v1/events?fieldSelector=involvedObject.name=p,reason=Launched").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn discovery_lists_groups_resources_and_the_version() {
    let kit = with_widgets();
    assert_eq!(kit.get("/version").await.1["gitVersion"], "v1.36.3");
    let (_, groups) = kit.get("/apis").await;
    let names: Vec<&str> = groups["groups"].as_array().unwrap().iter().map(|group| text(&group["name"])).collect();
    assert!(names.contains(&"apps") && names.contains(&"example.com"), "{names:?}");
    let (_, resources) = kit.get("/apis/example.com/v1").await;
    let names: Vec<&str> =
        resources["resources"].as_array().unwrap().iter().map(|entry| text(&entry["name"])).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    assert_eq!(resources["resources"][0]["shortNames"], json!(["wd"]));
    assert_eq!(kit.get("/nothing/here").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn workloads_are_scaled_through_their_scale() {
    let kit = with_widgets();
    kit.made(DEPLOYMENTS, deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    let (_, scale) = kit.get(&path).await;
    assert_eq!((scale["kind"].as_str(), scale["spec"]["replicas"].as_i64()), (Some("Scale"), Some(1)));
    assert_eq!(scale["status"]["selector"], "app=d");
    let (code, scale) = kit.merge(&path, json!({ "spec": { "replicas": 7 } })).await;
    assert_eq!((code, scale["spec"]["replicas"].as_i64()), (200, Some(7)));
    let (_, object) = kit.get(&format!("{DEPLOYMENTS}/d")).await;
    assert_eq!((object["spec"]["replicas"].as_i64(), object["metadata"]["generation"].as_i64()), (Some(7), Some(2)));
    kit.made(WIDGETS, widget("w", json!({ "size": "large", "replicas": 1 }))).await;
    let (code, scale) = kit.put(&format!("{WIDGETS}/w/scale"), json!({ "spec": { "replicas": 3 } })).await;
    assert_eq!((code, scale["spec"]["replicas"].as_i64()), (200, Some(3)));
}

#[tokio::test(start_paused = true)]
async fn events_are_forgotten_an_hour_after_their_last_write() {
    let kit = Kit::new();
    let events = "/api/v1/namespaces/default/events";
    let event = |name: &str| json!({ "metadata": { "name": name }, "involvedObject": { "name": "p", "namespace": "default" }, "reason": "R" });
    kit.made(events, event("old")).await;
    kit.made(events, event("renewed")).await;
    tokio::time::sleep(std::time::Duration::from_secs(1_800)).await;
    kit.merge(&format!("{events}/renewed"), json!({ "count": 2 })).await;
    tokio::time::sleep(std::time::Duration::from_secs(2_000)).await;
    kit.made(events, event("new")).await;
    let (_, list) = kit.get(events).await;
    let names: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|item| text(&item["metadata"]["name"])).collect();
    assert_eq!(names, ["new", "renewed"]);
}

#[tokio::test(start_paused = true)]
async fn a_body_of_another_kind_or_version_is_refused() {
    let kit = Kit::new();
    let (code, status) = kit.post(CONFIG_MAPS, deployment("d")).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "Deployment in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Deployment) to (core.ConfigMap): \
         unknown conversion"
    );
    assert_eq!(kit.post(CONFIG_MAPS, pod("p")).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn services_get_an_address_and_keep_it() {
    let kit = Kit::new();
    let services = "/api/v1/namespaces/default/services";
    let body =
        json!({ "metadata": { "name": "s" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } });
    let made = kit.made(services, body.clone()).await;
    assert_eq!(made["spec"]["clusterIP"], "10.100.0.1");
    assert_eq!(made["spec"]["ports"], json!([{ "port": 80, "protocol": "TCP", "targetPort": 80 }]));
    let (code, object) = kit.put(&format!("{services}/s"), body).await;
    assert_eq!((code, text(&object["spec"]["clusterIP"])), (200, "10.100.0.1"));
}

#[tokio::test(start_paused = true)]
async fn garbage_is_refused_and_never_breaks_the_server() {
    let kit = with_widgets();
    kit.made(PODS, pod("p")).await;
    kit.made(WIDGETS, widget("w", json!({ "size": "small" }))).await;
    kit.made(DEPLOYMENTS, deployment("d")).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let paths = [
        PODS.to_owned(),
        format!("{PODS}/p"),
        format!("{PODS}/p/status"),
        format!("{PODS}/p/binding"),
        format!("{PODS}/p/eviction"),
        format!("{DEPLOYMENTS}/d"),
        format!("{DEPLOYMENTS}/d/scale"),
        "/api/v1/nodes".to_owned(),
        "/apis/batch/v1/namespaces/default/jobs".to_owned(),
        WIDGETS.to_owned(),
        format!("{WIDGETS}/w"),
        format!("{WIDGETS}/w/status"),
        format!("{WIDGETS}/w/scale"),
        definitions.to_owned(),
        "/api/v1/%ff/%/x".to_owned(),
        "//".to_owned(),
    ];
    let values = [json!(null), json!(7), json!("x"), json!([]), json!([null]), json!({}), json!({ "a": null })];
    let mut bodies: Vec<serde_json::Value> = values.to_vec();
    for value in &values {
        bodies.push(json!({ "metadata": value }));
        bodies.push(
            json!({ "metadata": { "name": "p", "labels": value, "finalizers": value, "ownerReferences": value } }),
        );
        bodies.push(json!({ "metadata": { "name": value }, "spec": value, "status": value }));
        bodies.push(
            json!({ "metadata": { "name": "z" }, "spec": { "template": value, "containers": value, "names": value,
            "versions": value, "replicas": value, "taints": value, "selector": value } }),
        );
        bodies.push(json!([{ "op": value, "path": value, "value": value }]));
    }
    let medias = [
        "application/json",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "",
    ];
    for path in &paths {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"] {
            for media in medias {
                for body in bodies.iter().filter(|_| method != "DELETE") {
                    let path = format!("{path}?fieldManager=m&dryRun=All");
                    let (code, status) = kit.raw(method, &path, media, &body.to_string()).await;
                    // These the genuine server answers in this way too.
                    let known = [
                        "resourceVersion",
                        "strconv.ParseUint",
                        "target.",
                        "failed to create typed patch object",
                        "does not exist",
                    ];
                    let message = status["message"].as_str().unwrap_or_default();
                    let expected = code < 500 || known.iter().any(|known| message.contains(known));
                    assert!(expected, "{method} {path} {media} {body}: {code} {status:#}");
                }
            }
        }
    }
    for query in [
        "labelSelector=%28",
        "fieldSelector=%3D",
        "limit=x",
        "continue=%00",
        "resourceVersion=x",
        "watch=true&resourceVersion=x",
    ] {
        let (code, _) = kit.get(&format!("{PODS}?{query}")).await;
        assert!(code == 200 || (400..500).contains(&code), "{query}: {code}");
    }
}
