//! A server with chosen actors, a kubelet that is always content, and short ways to say what a test is about.

use std::sync::Arc;
use std::time::Duration;

use controller_clock::Clock;
use fake_kube::actors::{self, Options};
use fake_kube::{ApiClient, DeleteOptions, FakeKube, Resource, WatchEvent, resources};
use serde_json::{Value, json};
use tokio::task::JoinSet;

pub(crate) struct Cluster {
    pub(crate) kube: FakeKube,
    pub(crate) client: ApiClient,
    tasks: JoinSet<()>,
}

impl Cluster {
    /// A server at 2026-01-01 with these actors.
    pub(crate) fn start(options: Options) -> Self {
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
        let kube = FakeKube::new(fake_kube::Options::new(clock));
        let client = kube.client("test");
        let mut tasks = JoinSet::new();
        tasks.spawn(actors::run(kube.clone(), options));
        Self { kube, client, tasks }
    }

    /// As [`Cluster::start`], with a kubelet: bound pods run and are ready at once, deleted ones end at once.
    pub(crate) fn with_kubelet(options: Options) -> Self {
        let mut cluster = Self::start(options);
        cluster.tasks.spawn(kubelet(cluster.kube.client("kubelet")));
        cluster
    }

    /// Lets the actors come to rest.
    pub(crate) async fn settle(&self) {
        self.wait(2).await;
    }

    pub(crate) async fn wait(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    pub(crate) fn create(&self, resource: &Resource, object: Value) -> Arc<Value> {
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        self.client.create(resource, namespace.as_deref(), object).unwrap()
    }

    pub(crate) fn get(&self, resource: &Resource, name: &str) -> Arc<Value> {
        self.client.get(resource, namespace_of(resource), name).unwrap()
    }

    pub(crate) fn find(&self, resource: &Resource, name: &str) -> Option<Arc<Value>> {
        self.client.get(resource, namespace_of(resource), name).ok()
    }

    pub(crate) fn patch(&self, resource: &Resource, name: &str, patch: Value) -> Arc<Value> {
        self.client.patch_merge(resource, namespace_of(resource), name, patch, None).unwrap()
    }

    pub(crate) fn patch_status(&self, resource: &Resource, name: &str, status: Value) -> Arc<Value> {
        let patch = json!({"status": status});
        self.client.patch_merge(resource, namespace_of(resource), name, patch, Some("status")).unwrap()
    }

    pub(crate) fn delete(&self, resource: &Resource, name: &str) {
        self.client.delete(resource, namespace_of(resource), name, DeleteOptions::default()).unwrap();
    }

    pub(crate) fn list(&self, resource: &Resource) -> Vec<Arc<Value>> {
        self.client.list(resource, None, &Default::default())
    }

    /// A ready node with 4 CPUs, 16 GiB and room for 110 pods, in zone `us-west-2a`; `change` is merged in.
    pub(crate) fn node(&self, name: &str, change: Value) {
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "us-west-2a",
            }},
            "spec": {"providerID": format!("aws:///us-west-2a/i-{name}")},
        });
        let status = json!({
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        });
        let mut change = change;
        let status = merged(status, change["status"].take());
        node = merged(node, change);
        let taints = node["spec"]["taints"].clone();
        self.create(&resources::NODES, node);
        self.patch_status(&resources::NODES, name, status);
        // Admission taints a new node as not ready; the node controller, which not every test runs, would undo that.
        self.patch(&resources::NODES, name, json!({"spec": {"taints": taints}}));
    }

    /// A pod in `default` that asks for one CPU; `change` is merged in.
    pub(crate) fn pod(&self, name: &str, change: Value) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "1"}}}]},
        });
        self.create(&resources::PODS, merged(pod, change));
    }

    /// The node a pod is bound to; empty while pending.
    pub(crate) fn node_of(&self, pod: &str) -> String {
        self.get(&resources::PODS, pod)["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()
    }

    /// The nodes of all pods whose name begins so, in the order of the names.
    pub(crate) fn nodes_of(&self, prefix: &str) -> Vec<String> {
        let pods = self.pods(prefix);
        pods.iter().map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// All pods whose name begins so.
    pub(crate) fn pods(&self, prefix: &str) -> Vec<Arc<Value>> {
        let pods = self.list(&resources::PODS).into_iter();
        pods.filter(|pod| pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix))).collect()
    }

    pub(crate) fn condition(&self, resource: &Resource, name: &str, kind: &str) -> Value {
        condition(&self.get(resource, name), kind)
    }

    /// Why a pod is pending.
    pub(crate) fn verdict(&self, pod: &str) -> String {
        let condition = self.condition(&resources::PODS, pod, "PodScheduled");
        assert_eq!(condition["status"], "False", "{condition}");
        assert_eq!(condition["reason"], "Unschedulable", "{condition}");
        condition["message"].as_str().unwrap().to_owned()
    }

    /// Messages of the events about an object with this reason.
    pub(crate) fn events(&self, name: &str, reason: &str) -> Vec<String> {
        let events = self.list(&resources::EVENTS).into_iter();
        let about = events.filter(|event| event["involvedObject"]["name"] == name && event["reason"] == reason);
        about.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn taints(&self, node: &str) -> Vec<String> {
        let node = self.get(&resources::NODES, node);
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let text = |taint: &Value| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap());
        taints.iter().map(text).collect()
    }
}

pub(crate) fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

fn namespace_of(resource: &Resource) -> Option<&'static str> {
    (!["nodes", "namespaces"].contains(&resource.plural.as_ref())).then_some("default")
}

/// Merges objects key by key; anything else replaces.
pub(crate) fn merged(mut base: Value, change: Value) -> Value {
    match (base.as_object_mut(), change) {
        (Some(map), Value::Object(change)) => {
            for (key, value) in change {
                let before = map.remove(&key).unwrap_or_default();
                map.insert(key, merged(before, value));
            }
            base
        }
        (_, Value::Null) => base,
        (_, change) => change,
    }
}

async fn kubelet(client: ApiClient) {
    let mut watch = client.watch(&resources::PODS);
    while let Some(event) = watch.next().await {
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { continue };
        let name = pod["metadata"]["name"].as_str().unwrap();
        let namespace = pod["metadata"]["namespace"].as_str();
        if pod["spec"]["nodeName"].is_null() {
            continue;
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            let _ = client.delete(&resources::PODS, namespace, name, DeleteOptions::now());
        } else if pod["status"]["phase"] == "Pending" {
            let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let now = client.kube().clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            conditions.push(json!({"type": "Ready", "status": "True", "lastTransitionTime": now}));
            let patch = json!({"status": {"phase": "Running", "conditions": conditions}});
            let _ = client.patch_merge(&resources::PODS, namespace, name, patch, Some("status"));
        }
    }
}
