//! Random nodes and pods, put before two schedulers: both must find the same pods schedulable and say the same of the
//! others. Which of several feasible nodes is chosen is each scheduler's own affair, so pods are judged one at a time.

// accepted: Of several feasible nodes the scheduler may choose another than the genuine one, which weighs more.

use std::time::Duration;

use fastrand::Rng;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// A scheduler answers within milliseconds; a busy machine takes some times that.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nodes, what runs on them, and the pods to be judged.
#[derive(Clone, Debug)]
pub struct Case {
    /// The nodes, with their allocatable resources under `status`.
    pub nodes: Vec<Value>,
    /// Pods that are bound already.
    pub bound: Vec<Value>,
    /// Pods to be judged, each alone beside those.
    pub pods: Vec<Value>,
}

/// What a scheduler said of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It found a node.
    Scheduled,
    /// It found none: reason and message of the condition `PodScheduled`.
    Refused(String),
    /// It said nothing in time.
    Silent,
}

const ZONES: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 3] = ["web", "db", "job"];
const TAINTS: [(&str, &str); 3] = [("dedicated", "db"), ("dedicated", "web"), ("gpu", "true")];

fn one<'a, T>(random: &mut Rng, list: &'a [T]) -> &'a T {
    &list[random.usize(..list.len())]
}

fn chance(random: &mut Rng, percent: u8) -> bool {
    random.u8(..100) < percent
}

/// A case from a seed: the same seed, the same case.
pub fn case(seed: u64, unique: &str) -> Case {
    let random = &mut Rng::with_seed(seed);
    let count = random.usize(1..=6);
    let nodes: Vec<Value> = (0..count).map(|index| node(random, unique, index)).collect();
    let bound = (0..random.usize(0..=8)).map(|index| {
        let node = one(random, &nodes)["metadata"]["name"].clone();
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("bound-{index}"), "labels": { "app": one(random, &APPS) } },
            "spec": { "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container(random)] },
        });
        if chance(random, 15) {
            pod["spec"]["affinity"] = json!({ "podAntiAffinity": pod_terms(random) });
        }
        pod
    });
    let bound = bound.collect();
    let pods = (0..4).map(|index| pod(random, unique, index, count)).collect();
    Case { nodes, bound, pods }
}

fn node(random: &mut Rng, unique: &str, index: usize) -> Value {
    let name = format!("node-{unique}-{index}");
    let mut labels = json!({ "kubernetes.io/hostname": name });
    if chance(random, 85) {
        labels["topology.kubernetes.io/zone"] = json!(one(random, &ZONES));
    }
    if chance(random, 50) {
        labels["size"] = json!(random.u8(1..9).to_string());
    }
    if chance(random, 30) {
        labels["disk"] = json!("ssd");
    }
    let mut taints = Vec::new();
    for (key, value) in TAINTS {
        let effect = *one(random, &["NoSchedule", "NoExecute", "PreferNoSchedule"]);
        let taken = taints.iter().any(|taint: &Value| taint["key"] == key && taint["effect"] == effect);
        if chance(random, 12) && !taken {
            taints.push(json!({ "key": key, "value": value, "effect": effect }));
        }
    }
    let mut allocatable = json!({
        "cpu": *one(random, &["500m", "1", "2", "4"]), "memory": *one(random, &["512Mi", "1Gi", "4Gi", "8G"]),
        "pods": *one(random, &["1", "2", "3", "10", "110"]), "ephemeral-storage": *one(random, &["1Gi", "20Gi"]),
    });
    if chance(random, 20) {
        allocatable["nvidia.com/gpu"] = json!("1");
    }
    let mut spec = json!({ "taints": taints });
    if chance(random, 15) {
        spec["unschedulable"] = json!(true);
    }
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels }, "spec": spec,
        "status": {
            "capacity": allocatable, "allocatable": allocatable,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        },
    })
}

fn container(random: &mut Rng) -> Value {
    let mut requests = json!({});
    if chance(random, 80) {
        requests["cpu"] = json!(*one(random, &["100m", "250m", "600m", "1", "1500m", "3"]));
    }
    if chance(random, 60) {
        requests["memory"] = json!(*one(random, &["64Mi", "300M", "1Gi", "3Gi"]));
    }
    if chance(random, 10) {
        requests["ephemeral-storage"] = json!(*one(random, &["500Mi", "2Gi"]));
    }
    let mut container = json!({ "name": "main", "image": "pause", "resources": { "requests": requests } });
    if chance(random, 8) {
        container["resources"]["limits"] = json!({ "nvidia.com/gpu": "1" });
        container["resources"]["requests"]["nvidia.com/gpu"] = json!("1");
    }
    if chance(random, 12) {
        container["ports"] = json!([{ "containerPort": 80, "hostPort": *one(random, &[80, 81]) }]);
    }
    container
}

fn pod(random: &mut Rng, unique: &str, index: usize, nodes: usize) -> Value {
    let mut spec = json!({ "terminationGracePeriodSeconds": 0, "containers": [container(random)] });
    if chance(random, 12) {
        spec["initContainers"] = json!([{ "name": "init", "image": "pause",
            "resources": { "requests": { "cpu": *one(random, &["100m", "2"]) } } }]);
    }
    if chance(random, 25) {
        spec["nodeSelector"] = match random.u8(..3) {
            0 => json!({ "topology.kubernetes.io/zone": one(random, &ZONES) }),
            1 => json!({ "disk": "ssd" }),
            _ => json!({ "disk": "ssd", "size": "3" }),
        };
    }
    let mut tolerations = Vec::new();
    for (key, value) in TAINTS {
        if chance(random, 25) {
            tolerations.push(match random.u8(..3) {
                0 => json!({ "key": key, "operator": "Exists" }),
                1 => json!({ "key": key, "operator": "Equal", "value": value, "effect": "NoSchedule" }),
                _ => json!({ "key": key, "value": value }),
            });
        }
    }
    let mut affinity = json!({});
    if chance(random, 35) {
        let terms: Vec<Value> = (0..random.usize(1..=2)).map(|_| node_term(random)).collect();
        affinity["nodeAffinity"] =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
    }
    if chance(random, 12) {
        affinity["podAffinity"] = pod_terms(random);
    }
    if chance(random, 15) {
        affinity["podAntiAffinity"] = pod_terms(random);
    }
    if chance(random, 12) {
        // As a DaemonSet's pod: one node by name, whatever its taints.
        let name = format!("node-{unique}-{}", random.usize(..nodes + 1));
        affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] }] } } });
        tolerations = vec![json!({ "operator": "Exists" })];
    }
    if !tolerations.is_empty() {
        spec["tolerations"] = json!(tolerations);
    }
    if affinity != json!({}) {
        spec["affinity"] = affinity;
    }
    if chance(random, 30) {
        let constraint = |random: &mut Rng| {
            let mut constraint = json!({
                "maxSkew": random.u8(1..=2),
                "topologyKey": *one(random, &["topology.kubernetes.io/zone", "kubernetes.io/hostname"]),
                "whenUnsatisfiable": if chance(random, 80) { "DoNotSchedule" } else { "ScheduleAnyway" },
                "labelSelector": { "matchLabels": { "app": one(random, &APPS) } },
            });
            if chance(random, 20) && constraint["whenUnsatisfiable"] == "DoNotSchedule" {
                constraint["minDomains"] = json!(random.u8(1..=4));
            }
            if chance(random, 20) {
                constraint["nodeTaintsPolicy"] = json!("Honor");
            }
            if chance(random, 20) {
                constraint["nodeAffinityPolicy"] = json!("Ignore");
            }
            constraint
        };
        let mut constraints = vec![constraint(random)];
        let second = constraint(random);
        if chance(random, 25) && second["topologyKey"] != constraints[0]["topologyKey"] {
            constraints.push(second);
        }
        spec["topologySpreadConstraints"] = json!(constraints);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("pod-{index}"), "labels": { "app": one(random, &APPS) } }, "spec": spec,
    })
}

fn node_term(random: &mut Rng) -> Value {
    let expressions: Vec<Value> = (0..random.usize(1..=2))
        .map(|_| match random.u8(..6) {
            0 => {
                json!({ "key": "topology.kubernetes.io/zone", "operator": "In", "values": [one(random, &ZONES), "d"] })
            }
            1 => json!({ "key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": [one(random, &ZONES)] }),
            2 => json!({ "key": "disk", "operator": "Exists" }),
            3 => json!({ "key": "disk", "operator": "DoesNotExist" }),
            4 => json!({ "key": "size", "operator": "Gt", "values": ["4"] }),
            _ => json!({ "key": "size", "operator": "Lt", "values": ["6"] }),
        })
        .collect();
    json!({ "matchExpressions": expressions })
}

fn pod_terms(random: &mut Rng) -> Value {
    json!({ "requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": *one(random, &["topology.kubernetes.io/zone", "kubernetes.io/hostname"]),
        "labelSelector": { "matchLabels": { "app": one(random, &APPS) } },
    }] })
}

/// A server with a scheduler.
pub struct Arena<'a> {
    client: &'a kube::Client,
    namespace: String,
    /// How long the server's scheduler may take to hear of nodes: it follows them by another watch than pods.
    settle: Duration,
}

impl<'a> Arena<'a> {
    /// In a namespace of this run, which is made here.
    pub async fn new(client: &'a kube::Client, unique: &str, settle: Duration) -> Result<Self, String> {
        let arena = Self { client, namespace: format!("contract-{unique}"), settle };
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": arena.namespace } });
        arena.wanted("POST", "/api/v1/namespaces", Some(&body)).await?;
        let account = format!("/api/v1/namespaces/{}/serviceaccounts/default", arena.namespace);
        let deadline = Instant::now() + PATIENCE;
        while arena.ask("GET", &account, None).await?.0 != 200 {
            if Instant::now() > deadline {
                return Err("the namespace gets no service account".into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(arena)
    }

    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value), String> {
        let media = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = http::Request::builder().method(method).uri(path).header(CONTENT_TYPE, media);
        let request =
            request.header(ACCEPT, "application/json").body(Body::from(bytes)).map_err(|error| error.to_string())?;
        let response = self.client.send(request).await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        Ok((status, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    async fn wanted(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        match self.ask(method, path, body).await? {
            (200..300, reply) => Ok(reply),
            (status, reply) => Err(format!("{method} {path}: {status}: {reply}")),
        }
    }

    fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    /// What the scheduler says of each pod of a case.
    pub async fn judge(&self, case: &Case) -> Result<Vec<Verdict>, String> {
        for node in &case.nodes {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            self.wanted("POST", "/api/v1/nodes", Some(node)).await?;
            let path = format!("/api/v1/nodes/{name}");
            self.wanted("PATCH", &format!("{path}/status"), Some(&json!({ "status": node["status"] }))).await?;
            // A new node is tainted as not ready; its kubelet has reported by now.
            self.wanted("PATCH", &path, Some(&json!({ "spec": { "taints": node["spec"]["taints"] } }))).await?;
        }
        for pod in &case.bound {
            self.wanted("POST", &self.pods(), Some(pod)).await?;
        }
        sleep(self.settle).await;
        let mut verdicts = Vec::new();
        for pod in &case.pods {
            self.wanted("POST", &self.pods(), Some(pod)).await?;
            let path = format!("{}/{}", self.pods(), pod["metadata"]["name"].as_str().unwrap_or_default());
            verdicts.push(self.verdict(&path).await?);
            self.remove(&path).await?;
        }
        for pod in &case.bound {
            self.remove(&format!("{}/{}", self.pods(), pod["metadata"]["name"].as_str().unwrap_or_default())).await?;
        }
        for node in &case.nodes {
            self.remove(&format!("/api/v1/nodes/{}", node["metadata"]["name"].as_str().unwrap_or_default())).await?;
        }
        Ok(verdicts)
    }

    async fn verdict(&self, path: &str) -> Result<Verdict, String> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let pod = self.wanted("GET", path, None).await?;
            if pod["spec"]["nodeName"].is_string() {
                return Ok(Verdict::Scheduled);
            }
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let condition = conditions.into_iter().find(|condition| condition["type"] == "PodScheduled");
            if let Some(condition) = condition {
                let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
                return Ok(Verdict::Refused(format!("{}: {}", text("reason"), text("message"))));
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(Verdict::Silent)
    }

    /// Eviction by a taint, or a preemption, may have been quicker.
    async fn remove(&self, path: &str) -> Result<(), String> {
        let now = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 });
        match self.ask("DELETE", path, Some(&now)).await? {
            (200..300 | 404, _) => Ok(()),
            (status, reply) => Err(format!("DELETE {path}: {status}: {reply}")),
        }
    }
}
