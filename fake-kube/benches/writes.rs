//! What a write costs: `cargo bench -p fake-kube`. Prints microseconds per request over the in-memory service and in
//! process, with a watcher that reads everything.

// The time of the machine is what a benchmark measures.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use bytes::Bytes;
use controller_clock::Clock;
use fake_kube::{FakeKube, ListSelector, Options, resources};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

const POOLS: &str = include_str!("../../deploy/chart/crds/karpenter.sh_nodepools.yaml");

async fn send(kube: &FakeKube, method: &str, path: &str, media: &str, body: &Value) {
    let body = Full::new(Bytes::from(body.to_string()));
    let request = Request::builder().method(method).uri(path).header("content-type", media).body(body).unwrap();
    let response = kube.service().oneshot(request).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    response.into_body().collect().await.unwrap();
}

async fn measure<F: Future<Output = ()>>(name: &str, count: usize, mut step: impl FnMut(usize) -> F) {
    let started = Instant::now();
    for index in 0..count {
        step(index).await;
    }
    println!("{name}: {:.1} µs", started.elapsed().as_secs_f64() * 1e6 / count as f64);
}

fn pod(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("pod-{index}"), "labels": { "app": "web", "index": index.to_string() } },
        "spec": { "containers": [{
            "name": "main", "image": "nginx:1.27", "ports": [{ "containerPort": 80 }],
            "resources": { "requests": { "cpu": "500m", "memory": "256Mi" } },
        }] },
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let kube = FakeKube::new(Options::new(Clock::system()));
    kube.install_crd(serde_yaml_ng::from_str(POOLS).unwrap()).unwrap();
    let watch = Request::builder().uri("/api/v1/pods?watch=true").body(http_body_util::Empty::<Bytes>::new()).unwrap();
    let mut lines = kube.service().oneshot(watch).await.unwrap().into_body();
    let reader = tokio::spawn(async move { while lines.frame().await.is_some() {} });

    let count = 5_000;
    let pods = "/api/v1/namespaces/default/pods";
    let merge = "application/merge-patch+json";
    let kube = &kube;
    measure("create a pod over HTTP", count, |index| async move {
        send(kube, "POST", pods, "application/json", &pod(index)).await;
    })
    .await;
    let status = &json!({ "status": { "phase": "Running", "podIP": "10.0.0.1",
        "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
    measure("patch a pod's status over HTTP", count, |index| async move {
        send(kube, "PATCH", &format!("{pods}/pod-{index}/status"), merge, status).await;
    })
    .await;
    let client = &kube.client("bench");
    measure("bind a pod in process", count, |index| async move {
        client.bind("default", &format!("pod-{index}"), &format!("node-{}", index % 100)).unwrap();
    })
    .await;
    measure("list the pods of a node in process", count, |index| async move {
        let found = client.list(&resources::PODS, None, &ListSelector::on_node(&format!("node-{}", index % 100)));
        assert_eq!(found.len(), count / 100);
    })
    .await;
    measure("list all pods over HTTP", 20, |_| async move {
        send(kube, "GET", "/api/v1/pods", "application/json", &Value::Null).await;
    })
    .await;
    let pools = "/apis/karpenter.sh/v1/nodepools";
    measure("create a NodePool over HTTP", 1_000, |index| async move {
        let body = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": format!("pool-{index}") },
            "spec": { "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                "requirements": [
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"] },
                    { "key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"] },
                    { "key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"] },
                ],
            } } },
        });
        send(kube, "POST", pools, "application/json", &body).await;
    })
    .await;
    measure("patch a NodePool's status over HTTP", 1_000, |index| async move {
        let patch = json!({ "status": { "nodes": index, "resources": { "cpu": "4" } } });
        send(kube, "PATCH", &format!("{pools}/pool-{index}/status"), merge, &patch).await;
    })
    .await;
    measure("delete a pod in process", count, |index| async move {
        let options = fake_kube::DeleteOptions::now();
        client.delete(&resources::PODS, Some("default"), &format!("pod-{index}"), options).unwrap();
    })
    .await;
    reader.abort();
}
