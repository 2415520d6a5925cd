//! Tables: what `kubectl get` shows. Expectations are the cells of the genuine server's printers.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::kit::*;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn table(kit: &Kit, path: &str) -> Value {
    let response = kit.accept("GET", path, TABLE).await;
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

/// Headings, those of `-o wide` in brackets.
fn headings(table: &Value) -> Vec<String> {
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    columns
        .map(|column| {
            let name = text(&column["name"]);
            if column["priority"] == 0 { name.to_owned() } else { format!("[{name}]") }
        })
        .collect()
}

fn cells(table: &Value, row: usize) -> Value {
    table["rows"][row]["cells"].clone()
}

/// A pod with this status; the answer is STATUS, READY and RESTARTS.
async fn shown(change: Value) -> (String, String, String) {
    let kit = Kit::new();
    let mut body = pod("p");
    body["spec"]["initContainers"] = json!([{ "name": "first", "image": "a" }, { "name": "second", "image": "b" }]);
    body["metadata"]["finalizers"] = json!(["example.com/held"]);
    kit.made(PODS, body).await;
    kit.merge(&format!("{PODS}/p/status"), json!({ "status": change["status"] })).await;
    if change["deleted"] == true {
        kit.delete(&format!("{PODS}/p"), json!({ "gracePeriodSeconds": 0 })).await;
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    let table = table(&kit, PODS).await;
    let cell = |index: usize| text(&table["rows"][0]["cells"][index]).to_owned();
    (cell(2), cell(1), cell(3))
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_pod_is_what_its_containers_add_up_to() {
    let running = json!({ "name": "main", "ready": true, "restartCount": 0, "state": { "running": {} } });
    let ready = json!([{ "type": "Ready", "status": "True" }, { "type": "Initialized", "status": "True" }]);
    let waiting = |reason: &str| json!({ "name": "main", "ready": false, "restartCount": 0, "state": { "waiting": { "reason": reason } } });
    let ended = |code: i64, reason: &str| {
        json!({
            "name": "main", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "reason": reason, "finishedAt": "2026-01-01T00:00:00Z" } },
        })
    };
    let of = |containers: Value| json!({ "status": { "phase": "Running", "containerStatuses": containers } });
    let init = |statuses: Value| json!({ "status": { "phase": "Pending", "initContainerStatuses": statuses } });
    let crashed = json!({
        "name": "main", "ready": false, "restartCount": 3, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
        "lastState": { "terminated": { "exitCode": 1, "finishedAt": "2026-01-01T00:02:00Z" } },
    });
    for (status, expected) in [
        (json!({ "status": { "phase": "Pending" } }), ("Pending", "0/1", "0")),
        (json!({ "status": { "phase": "Failed", "reason": "Evicted" } }), ("Evicted", "0/1", "0")),
        (
            json!({ "status": { "phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" }] } }),
            ("SchedulingGated", "0/1", "0"),
        ),
        (of(json!([running])), ("Running", "1/1", "0")),
        (of(json!([waiting("ContainerCreating")])), ("ContainerCreating", "0/1", "0")),
        (of(json!([crashed])), ("CrashLoopBackOff", "0/1", "3 (3m ago)")),
        (of(json!([ended(0, "Completed")])), ("Completed", "0/1", "0")),
        (of(json!([ended(137, "OOMKilled")])), ("OOMKilled", "0/1", "0")),
        (of(json!([ended(3, "")])), ("ExitCode:3", "0/1", "0")),
        // One ended, one runs.
        (of(json!([ended(0, "Completed"), running])), ("NotReady", "1/1", "0")),
        (
            json!({ "status": { "phase": "Running", "conditions": ready, "containerStatuses": [ended(0, "Completed"), running] } }),
            ("Running", "1/1", "0"),
        ),
        (init(json!([{ "name": "first", "restartCount": 0, "state": { "running": {} } }])), ("Init:0/2", "0/1", "0")),
        (
            init(json!([
                { "name": "first", "restartCount": 0, "state": { "terminated": { "exitCode": 0 } } },
                { "name": "second", "restartCount": 2, "state": { "waiting": { "reason": "CrashLoopBackOff" } } },
            ])),
            ("Init:CrashLoopBackOff", "0/1", "2"),
        ),
        (
            init(
                json!([{ "name": "first", "restartCount": 0, "state": { "terminated": { "exitCode": 1, "reason": "Error" } } }]),
            ),
            ("Init:Error", "0/1", "0"),
        ),
        (
            json!({ "status": { "phase": "Running", "containerStatuses": [running] }, "deleted": true }),
            ("Terminating", "1/1", "0"),
        ),
        (json!({ "status": { "phase": "Running", "reason": "NodeLost" }, "deleted": true }), ("Unknown", "0/1", "0")),
    ] {
        let (name, ready, restarts) = shown(status.clone()).await;
        assert_eq!((name.as_str(), ready.as_str(), restarts.as_str()), expected, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_and_nodes_have_the_columns_of_the_genuine_printers() {
    let kit = Kit::new();
    kit.made(PODS, pod_on("p", "n")).await;
    let pods = table(&kit, PODS).await;
    assert_eq!(
        headings(&pods),
        ["Name", "Ready", "Status", "Restarts", "Age", "[IP]", "[Node]", "[Nominated Node]", "[Readiness Gates]"]
    );
    assert_eq!(cells(&pods, 0), json!(["p", "0/1", "Pending", "0", "0s", "<none>", "n", "<none>", "<none>"]));
    let node = json!({
        "metadata": { "name": "n", "labels": { "node-role.kubernetes.io/b": "", "node-role.kubernetes.io/a": "" } },
        "spec": { "unschedulable": true },
        "status": {
            "conditions": [{ "type": "Ready", "status": "False" }],
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
            "nodeInfo": { "kubeletVersion": "v1.36.3", "kernelVersion": "6.1", "architecture": "arm64", "osImage": "Linux" },
        },
    });
    kit.made("/api/v1/nodes", node).await;
    tokio::time::sleep(Duration::from_secs(3 * 3_600)).await;
    let nodes = table(&kit, "/api/v1/nodes").await;
    assert_eq!(
        headings(&nodes),
        [
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "[Internal-IP]",
            "[External-IP]",
            "[OS-Image]",
            "[Kernel-Version]",
            "[Container-Runtime]"
        ]
    );
    assert_eq!(
        cells(&nodes, 0),
        json!([
            "n",
            "NotReady,SchedulingDisabled",
            "a,b",
            "3h",
            "v1.36.3",
            "10.0.0.1",
            "<none>",
            "Linux",
            "6.1 (arm64)",
            "<unknown>"
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn workloads_services_and_the_rest_show_their_numbers() {
    let kit = Kit::new();
    let mut body = deployment("d");
    body["spec"]["selector"]["matchExpressions"] = json!([{ "key": "app", "operator": "In", "values": ["d", "a"] }]);
    kit.made(DEPLOYMENTS, body).await;
    let shown = table(&kit, DEPLOYMENTS).await;
    assert_eq!(
        headings(&shown),
        ["Name", "Ready", "Up-to-date", "Available", "Age", "[Containers]", "[Images]", "[Selector]"]
    );
    assert_eq!(cells(&shown, 0), json!(["d", "0/1", 0, 0, "0s", "main", "nginx", "app=d,app in (a,d)"]));

    let service = json!({
        "metadata": { "name": "s" },
        "spec": { "type": "LoadBalancer", "selector": { "a": "b" }, "ports": [{ "name": "a", "port": 80, "nodePort": 30080 }, { "name": "b", "port": 53, "protocol": "UDP" }] },
    });
    kit.made("/api/v1/namespaces/default/services", service).await;
    let shown = table(&kit, "/api/v1/services").await;
    assert_eq!(
        cells(&shown, 0),
        json!(["s", "LoadBalancer", "10.100.0.1", "<pending>", "80:30080/TCP,53/UDP", "0s", "a=b"])
    );

    kit.made(BUDGETS, json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": "50%" } })).await;
    assert_eq!(cells(&table(&kit, BUDGETS).await, 0), json!(["b", "50%", "N/A", 0, "0s"]));

    let class = json!({
        "metadata": { "name": "c", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        "provisioner": "ebs",
    });
    kit.made("/apis/storage.k8s.io/v1/storageclasses", class).await;
    let shown = table(&kit, "/apis/storage.k8s.io/v1/storageclasses").await;
    assert_eq!(cells(&shown, 0), json!(["c (default)", "ebs", "Delete", "Immediate", false, "0s"]));

    // The genuine server has no printer for these.
    let role = json!({ "metadata": { "name": "r" }, "rules": [] });
    kit.made("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    let shown = table(&kit, "/apis/rbac.authorization.k8s.io/v1/clusterroles").await;
    assert_eq!(
        (headings(&shown), cells(&shown, 0)),
        (vec!["Name".into(), "Created At".into()], json!(["r", "2026-01-01T00:00:00Z"]))
    );
}

#[tokio::test(start_paused = true)]
async fn events_show_when_they_were_last_seen_and_how_often() {
    let kit = Kit::new();
    let event = json!({
        "metadata": { "name": "e" }, "involvedObject": { "kind": "Pod", "name": "p" }, "type": "Normal", "reason": "Why",
        "message": " because\n", "source": { "component": "kubelet", "host": "n" }, "count": 4,
        "firstTimestamp": "2025-12-31T23:00:00Z", "lastTimestamp": "2025-12-31T23:59:30Z",
    });
    kit.made("/api/v1/namespaces/default/events", event).await;
    let shown = table(&kit, "/apis/events.k8s.io/v1/events").await;
    assert_eq!(
        headings(&shown),
        [
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "[Subobject]",
            "[Source]",
            "Message",
            "[First Seen]",
            "[Count]",
            "[Name]"
        ]
    );
    assert_eq!(cells(&shown, 0), json!(["30s", "Normal", "Why", "pod/p", "", "kubelet, n", "because", "60m", 4, "e"]));
}

#[tokio::test(start_paused = true)]
async fn custom_resources_show_the_columns_of_their_definition() {
    let kit = Kit::new();
    let mut definition = widgets();
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        { "name": "Size", "type": "string", "jsonPath": ".spec.size" },
        { "name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1 },
        { "name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status" },
        { "name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
        { "name": "Size as number", "type": "integer", "jsonPath": ".spec.size" },
    ]);
    kit.kube.install_crd(definition).unwrap();
    kit.made(WIDGETS, widget("w", json!({ "size": "small", "replicas": 2 }))).await;
    kit.merge(
        &format!("{WIDGETS}/w/status"),
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }),
    )
    .await;
    tokio::time::sleep(Duration::from_secs(65)).await;
    let shown = table(&kit, WIDGETS).await;
    assert_eq!(headings(&shown), ["Name", "Size", "[Replicas]", "Ready", "Since", "Size as number"]);
    assert_eq!(cells(&shown, 0), json!(["w", "small", 2, "True", "65s", null]));
}

#[tokio::test(start_paused = true)]
async fn rows_carry_metadata_the_object_or_nothing_as_asked() {
    let kit = Kit::new();
    kit.made(CONFIG_MAPS, config_map("a")).await;
    let row = async |query: &str| table(&kit, &format!("{CONFIG_MAPS}?{query}")).await["rows"][0]["object"].clone();
    assert_eq!(row("").await["kind"], "PartialObjectMetadata");
    assert!(row("").await["data"].is_null());
    assert_eq!(row("includeObject=Object").await["data"], json!({ "a": "1" }));
    assert_eq!(row("includeObject=None").await, Value::Null);
    assert_eq!(kit.accept("GET", &format!("{CONFIG_MAPS}?includeObject=Some"), TABLE).await.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn pages_and_watches_are_tables_too() {
    let kit = Kit::new();
    for name in ["a", "b", "c"] {
        kit.made(CONFIG_MAPS, config_map(name)).await;
    }
    let page = table(&kit, &format!("{CONFIG_MAPS}?limit=2")).await;
    assert_eq!((page["rows"].as_array().unwrap().len(), page["metadata"]["remainingItemCount"].clone()), (2, json!(1)));
    assert!(page["metadata"]["continue"].is_string());
    let response = kit
        .accept("GET", &format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", kit.kube.resource_version()), TABLE)
        .await;
    let mut body = response.into_body();
    kit.made(CONFIG_MAPS, config_map("d")).await;
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let event: Value = serde_json::from_slice(&frame).unwrap();
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    assert_eq!(cells(&event["object"], 0), json!(["d", 1, "0s"]));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_replicas_is_a_table_of_its_own() {
    let kit = Kit::new();
    kit.made(DEPLOYMENTS, deployment("d")).await;
    let shown = table(&kit, &format!("{DEPLOYMENTS}/d/scale")).await;
    assert_eq!(
        (headings(&shown), cells(&shown, 0)),
        (vec!["Name".into(), "Desired".into(), "Available".into(), "Age".into()], json!(["d", 1, 0, "0s"]),)
    );
}
