//! Built-in kinds: defaults, validation, binding.

use serde_json::{Value, json};

use crate::kit::*;

async fn refusal(kit: &Kit, path: &str, body: Value) -> String {
    let (code, status) = kit.post(path, body).await;
    assert_eq!(code, 422, "{status:#}");
    text(&status["message"]).to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_the_defaults_that_schedulers_and_kubelets_rely_on() {
    let kit = Kit::new();
    let mut body = pod("p");
    body["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": 0.5, "memory": "1024Mi" } });
    body["status"] = json!({ "phase": "Running" });
    let made = kit.made(PODS, body).await;
    let spec = &made["spec"];
    assert_eq!(spec["restartPolicy"], "Always");
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    assert_eq!(spec["schedulerName"], "default-scheduler");
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["priority"], 0);
    assert_eq!(spec["containers"][0]["resources"]["requests"], json!({ "cpu": "500m", "memory": "1Gi" }));
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(spec["tolerations"][0]["tolerationSeconds"], 300);
    assert_eq!(made["status"], json!({ "phase": "Pending", "qosClass": "Guaranteed" }));
}

#[tokio::test(start_paused = true)]
async fn priority_comes_from_the_class() {
    let kit = Kit::new();
    let mut body = pod("p");
    body["spec"]["priorityClassName"] = json!("system-node-critical");
    assert_eq!(kit.made(PODS, body).await["spec"]["priority"], 2_000_001_000);
    let mut body = pod("q");
    body["spec"]["priorityClassName"] = json!("none");
    let (code, status) = kit.post(PODS, body).await;
    assert_eq!(
        (code, text(&status["message"])),
        (403, "pods \"q\" is forbidden: no PriorityClass with name none was found")
    );
}

#[tokio::test(start_paused = true)]
async fn broken_containers_are_named_by_path() {
    let kit = Kit::new();
    let mut body = pod("p");
    body["spec"]["containers"] = json!([{ "image": "nginx" }, { "name": "b" }]);
    assert_eq!(
        refusal(&kit, PODS, body).await,
        "Pod \"p\" is invalid: [spec.containers[0].name: Required value, spec.containers[1].image: Required value]"
    );
    let mut body = pod("p");
    body["spec"]["containers"] = json!([]);
    assert_eq!(refusal(&kit, PODS, body).await, "Pod \"p\" is invalid: spec.containers: Required value");
    let mut body = deployment("d");
    body["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({ "requests": { "cpu": "-1" }, "limits": { "memory": "1Gi" } });
    assert_eq!(
        refusal(&kit, DEPLOYMENTS, body).await,
        "Deployment.apps \"d\" is invalid: spec.template.spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": \
         must be greater than or equal to 0"
    );
    let mut body = pod("p");
    body["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } });
    assert_eq!(
        refusal(&kit, PODS, body).await,
        "Pod \"p\" is invalid: spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to \
         cpu limit of 1"
    );
}

#[tokio::test(start_paused = true)]
async fn a_text_that_is_no_quantity_is_refused_and_its_place_is_told() {
    let kit = Kit::new();
    let mut body = deployment("d");
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "lots" } });
    let (code, status) = kit.post(DEPLOYMENTS, body).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "Deployment in version \"v1\" cannot be handled as a Deployment: quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
    assert_eq!(status["details"]["causes"][0]["field"], "spec.template.spec.containers[0].resources.requests[cpu]");
}

#[tokio::test(start_paused = true)]
async fn deployments_need_a_selector_that_fits_and_never_changes() {
    let kit = Kit::new();
    let mut body = deployment("d");
    body["spec"]["selector"] = json!({ "matchLabels": { "app": "other" } });
    assert_eq!(
        refusal(&kit, DEPLOYMENTS, body).await,
        "Deployment.apps \"d\" is invalid: spec.template.metadata.labels: Invalid value: {\"app\":\"d\"}: `selector` does \
         not match template `labels`"
    );
    kit.made(DEPLOYMENTS, deployment("d")).await;
    let (code, status) = kit
        .merge(&format!("{DEPLOYMENTS}/d"), json!({ "spec": {
            "selector": { "matchLabels": { "app": "x" } }, "template": { "metadata": { "labels": { "app": "x" } } } } }))
        .await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Deployment.apps \"d\" is invalid: spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\"}}: field is immutable"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pods_spec_is_fixed_but_for_images_and_added_tolerations() {
    let kit = Kit::new();
    let made = kit.made(PODS, pod("p")).await;
    let path = format!("{PODS}/p");
    let (code, status) = kit.merge(&path, json!({ "spec": { "nodeSelector": { "a": "b" } } })).await;
    assert_eq!(code, 422);
    assert!(
        text(&status["message"])
            .starts_with("Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields")
    );
    let patch = json!({ "spec": { "containers": [{ "name": "main", "image": "nginx:2" }] } });
    assert_eq!(kit.strategic(&path, patch).await.0, 200);
    let mut tolerations = made["spec"]["tolerations"].as_array().unwrap().clone();
    tolerations.push(json!({ "key": "a", "operator": "Exists" }));
    assert_eq!(kit.merge(&path, json!({ "spec": { "tolerations": tolerations } })).await.0, 200);
    assert_eq!(kit.merge(&path, json!({ "spec": { "tolerations": [] } })).await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn taints_have_known_effects_and_a_provider_id_stays() {
    let kit = Kit::new();
    let node = |taint: Value| {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" },
            "spec": { "providerID": "aws:///us-west-2a/i-1", "taints": [taint] },
        })
    };
    assert_eq!(
        refusal(&kit, "/api/v1/nodes", node(json!({ "key": "a", "effect": "Sometimes" }))).await,
        "Node \"n\" is invalid: metadata.taints[0].effect: Unsupported value: \"Sometimes\": supported values: \"NoSchedule\", \
         \"PreferNoSchedule\", \"NoExecute\""
    );
    let made = kit.made("/api/v1/nodes", node(json!({ "key": "a", "effect": "NoExecute" }))).await;
    assert_eq!(
        made["spec"]["taints"][1],
        json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }),
        "a new node is not ready until proven otherwise"
    );
    let (code, status) =
        kit.merge("/api/v1/nodes/n", json!({ "spec": { "providerID": "aws:///us-west-2a/i-2" } })).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Node \"n\" is invalid: spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid"
    );
}

#[tokio::test(start_paused = true)]
async fn a_budget_names_either_minimum_or_maximum() {
    let kit = Kit::new();
    let body = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "b" },
        "spec": { "minAvailable": 1, "maxUnavailable": "50%" },
    });
    assert_eq!(
        refusal(&kit, BUDGETS, body).await,
        "PodDisruptionBudget.policy \"b\" is invalid: spec: Invalid value: {\"MinAvailable\":1,\"Selector\":null,\"MaxUnavailable\":\"50%\",\"UnhealthyPodEvictionPolicy\":null}: \
         minAvailable and maxUnavailable cannot be both set"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_once_and_takes_its_zone_from_the_node() {
    let kit = Kit::new();
    let labels = json!({ "topology.kubernetes.io/zone": "us-west-2a" });
    kit.made("/api/v1/nodes", json!({ "metadata": { "name": "n", "labels": labels } })).await;
    kit.made(PODS, pod("p")).await;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "p" }, "target": { "kind": "Node", "name": "n" },
    });
    let (code, status) = kit.post(&format!("{PODS}/p/binding"), binding.clone()).await;
    assert_eq!((code, text(&status["status"])), (201, "Success"));
    let (_, bound) = kit.get(&format!("{PODS}/p")).await;
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(bound["metadata"]["labels"]["topology.kubernetes.io/zone"], "us-west-2a");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let (code, status) = kit.post(&format!("{PODS}/p/binding"), binding).await;
    assert_eq!(code, 409);
    assert_eq!(
        status["message"],
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\""
    );
    let (_, list) = kit.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}
