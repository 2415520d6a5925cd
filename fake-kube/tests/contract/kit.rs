//! A server and short ways to ask it.

use bytes::Bytes;
use controller_clock::Clock;
use fake_kube::{Body, ConnectionLost, FakeKube, Options};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) struct Kit {
    pub(crate) kube: FakeKube,
}

/// An answer: status code and JSON.
pub(crate) type Answer = (u16, Value);

impl Kit {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::new(Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap()));
        change(&mut options);
        Self { kube: FakeKube::new(options) }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: &str,
    ) -> Result<Response<Body>, ConnectionLost> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("user-agent", "tester/1.0")
            .header("content-type", media)
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        self.kube.service().oneshot(request).await
    }

    /// Asks for an answer in some form.
    pub(crate) async fn accept(&self, method: &str, path: &str, accept: &str) -> Response<Body> {
        let request = Request::builder().method(method).uri(path).header("accept", accept);
        self.kube.service().oneshot(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str, media: &str, body: &str) -> Answer {
        let response = self.send(method, path, media, body).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "application/json", "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path, "application/json", &body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.ask("PUT", path, "application/json", &body.to_string()).await
    }

    pub(crate) async fn merge(&self, path: &str, body: Value) -> Answer {
        self.ask("PATCH", path, "application/merge-patch+json", &body.to_string()).await
    }

    pub(crate) async fn strategic(&self, path: &str, body: Value) -> Answer {
        self.ask("PATCH", path, "application/strategic-merge-patch+json", &body.to_string()).await
    }

    pub(crate) async fn json_patch(&self, path: &str, body: Value) -> Answer {
        self.ask("PATCH", path, "application/json-patch+json", &body.to_string()).await
    }

    pub(crate) async fn apply(&self, path: &str, body: Value) -> Answer {
        self.ask("PATCH", path, "application/apply-patch+yaml", &body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, body: Value) -> Answer {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.ask("DELETE", path, "application/json", &text).await
    }

    /// Sends text that need not be JSON.
    pub(crate) async fn raw(&self, method: &str, path: &str, media: &str, body: &str) -> Answer {
        self.ask(method, path, media, body).await
    }

    /// Creates and expects success.
    pub(crate) async fn made(&self, path: &str, body: Value) -> Value {
        let (code, object) = self.post(path, body).await;
        assert_eq!(code, 201, "{object:#}");
        object
    }

    pub(crate) async fn watch(&self, path: &str) -> Lines {
        let response = self.send("GET", path, "application/json", "").await.unwrap();
        assert_eq!(response.status(), 200);
        Lines { body: response.into_body() }
    }
}

/// The lines of a watch.
pub(crate) struct Lines {
    body: Body,
}

impl Lines {
    /// The next event, if one comes before everything else in the process waits a virtual second.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        self.within(1).await
    }

    pub(crate) async fn within(&mut self, seconds: u64) -> Option<Value> {
        let frame = tokio::time::timeout(std::time::Duration::from_secs(seconds), self.body.frame()).await.ok()??;
        serde_json::from_slice(&frame.unwrap().into_data().unwrap()).ok()
    }

    /// The next piece of text, if one comes within so many virtual seconds.
    pub(crate) async fn text(&mut self, seconds: u64) -> Option<String> {
        let frame = tokio::time::timeout(std::time::Duration::from_secs(seconds), self.body.frame()).await.ok()??;
        String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).ok()
    }

    /// Whether the server has closed the stream.
    pub(crate) async fn ended(&mut self) -> bool {
        matches!(tokio::time::timeout(std::time::Duration::from_secs(1), self.body.frame()).await, Ok(None))
    }

    /// Type and name of the next event.
    pub(crate) async fn brief(&mut self) -> String {
        match self.next().await {
            Some(event) => format!("{} {}", text(&event["type"]), text(&event["object"]["metadata"]["name"])),
            None => "nothing".into(),
        }
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "nginx:1.27" }] },
    })
}

pub(crate) fn pod_on(name: &str, node: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = json!(node);
    pod
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "a": "1" } })
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": "nginx" }] },
            },
        },
    })
}

/// A definition with the features that custom resources of a controller use.
pub(crate) fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": { "plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["things"] },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" },
                },
                "additionalPrinterColumns": [
                    { "name": "Size", "type": "string", "jsonPath": ".spec.size" },
                    { "name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status" },
                ],
                "schema": { "openAPIV3Schema": {
                    "type": "object", "required": ["spec"],
                    "properties": {
                        "apiVersion": { "type": "string" }, "kind": { "type": "string" },
                        "metadata": { "type": "object" },
                        "spec": {
                            "type": "object", "required": ["size"],
                            "properties": {
                                "size": { "type": "string", "enum": ["small", "large"] },
                                "replicas": { "type": "integer", "minimum": 0, "maximum": 10 },
                                "name": { "type": "string", "maxLength": 5, "pattern": "^[a-z]+$" },
                                "limits": {
                                    "type": "object",
                                    "additionalProperties": {
                                        "anyOf": [{ "type": "integer" }, { "type": "string" }],
                                        "pattern": r"^[0-9]+m?$", "x-kubernetes-int-or-string": true,
                                    },
                                },
                                "policy": {
                                    "type": "object", "default": { "budgets": [{}] },
                                    "properties": {
                                        "after": { "type": "string", "default": "0s" },
                                        "budgets": {
                                            "type": "array",
                                            "items": {
                                                "type": "object",
                                                "properties": { "nodes": { "type": "string", "default": "10%" } },
                                            },
                                        },
                                    },
                                },
                                "rules": {
                                    "type": "array", "maxItems": 2,
                                    "items": {
                                        "type": "object", "required": ["key"],
                                        "properties": {
                                            "key": { "type": "string" },
                                            "values": { "type": "array", "items": { "type": "string" } },
                                        },
                                        "x-kubernetes-validations": [
                                            { "rule": "self.key != 'forbidden'", "message": "this key is taken" },
                                        ],
                                    },
                                },
                                "owner": {
                                    "type": "string",
                                    "x-kubernetes-validations": [
                                        { "rule": "self == oldSelf", "message": "owner is immutable" },
                                    ],
                                },
                                "labels": {
                                    "type": "object", "maxProperties": 2,
                                    "additionalProperties": { "type": "string" },
                                },
                            },
                            "x-kubernetes-validations": [
                                { "rule": "self.size != 'small' || !has(self.replicas) || self.replicas < 5",
                                  "message": "small widgets have fewer than five replicas" },
                            ],
                        },
                        "status": {
                            "type": "object",
                            "properties": {
                                "replicas": { "type": "integer" },
                                "conditions": {
                                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                                    "items": {
                                        "type": "object", "required": ["type", "status"],
                                        "properties": {
                                            "type": { "type": "string" }, "status": { "type": "string" },
                                            "reason": { "type": "string" },
                                        },
                                    },
                                },
                            },
                        },
                    },
                } },
            }],
        },
    })
}

pub(crate) const WIDGETS: &str = "/apis/example.com/v1/widgets";

pub(crate) fn widget(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name }, "spec": spec })
}

/// A server that serves widgets.
pub(crate) fn with_widgets() -> Kit {
    let kit = Kit::new();
    kit.kube.install_crd(widgets()).unwrap();
    kit
}
