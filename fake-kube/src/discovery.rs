//! What the server serves, told to clients: `/version`, `/api`, `/apis`, and the resources of each group.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    kinds::{Builtin, Kind},
    state::State,
};

impl State {
    /// The answer to a path outside the resources; `None` if there is none.
    pub(crate) fn discover(&self, path: &str, kubernetes_version: &str, aggregated: bool) -> Option<Value> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        Some(match parts.as_slice() {
            ["version"] => version(kubernetes_version),
            ["api"] if aggregated => self.aggregated(true),
            ["api"] => json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "kubernetes.default.svc:443" }],
            }),
            ["apis"] if aggregated => self.aggregated(false),
            ["apis"] => {
                let groups = self.kinds.groups().keys().filter(|group| !group.is_empty());
                let groups: Vec<Value> = groups.filter_map(|group| self.group(group)).collect();
                json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
            }
            ["apis", group] => {
                let mut found = self.group(group)?;
                found["kind"] = json!("APIGroup");
                found["apiVersion"] = json!("v1");
                found
            }
            ["api", version] => self.resources("", version)?,
            ["apis", group, version] => self.resources(group, version)?,
            [] => json!({ "paths": self.paths() }),
            _ => return None,
        })
    }

    /// Everything that can be asked for without naming a resource.
    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> =
            ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
                .map(str::to_owned)
                .into();
        for (group, versions) in self.kinds.groups() {
            if !group.is_empty() {
                paths.push(format!("/apis/{group}"));
            }
            for version in versions.keys() {
                paths.push(if group.is_empty() {
                    format!("/api/{version}")
                } else {
                    format!("/apis/{group}/{version}")
                });
            }
        }
        paths.sort();
        paths
    }

    fn group(&self, group: &str) -> Option<Value> {
        let versions = self.kinds.groups().get(group)?;
        let versions: Vec<Value> = versions
            .keys()
            .map(|version| json!({ "groupVersion": format!("{group}/{version}"), "version": version }))
            .collect();
        let preferred = versions.last().cloned();
        Some(json!({ "name": group, "versions": versions, "preferredVersion": preferred }))
    }

    fn resources(&self, group: &str, version: &str) -> Option<Value> {
        let kinds = self.kinds.groups().get(group)?.get(version)?;
        let mut resources = Vec::new();
        for kind in kinds.values() {
            let mut entry = json!({
                "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
                "verbs": if kind.custom() { &CUSTOM_VERBS } else { kind.verbs() },
            });
            if kind.verbs().len() > 1 {
                entry["storageVersionHash"] = json!(version_hash(kind));
            }
            if !kind.short_names.is_empty() {
                entry["shortNames"] = json!(kind.short_names);
            }
            if !kind.categories.is_empty() {
                entry["categories"] = json!(kind.categories);
            }
            resources.push(entry);
            for subresource in subresources(kind) {
                let mut entry = json!({
                    "name": format!("{}/{}", kind.plural, subresource.name), "singularName": "",
                    "namespaced": kind.namespaced, "kind": subresource.kind, "verbs": subresource.verbs,
                });
                if let Some((group, version)) = subresource.group {
                    entry["group"] = json!(group);
                    entry["version"] = json!(version);
                }
                resources.push(entry);
            }
        }
        let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        Some(json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
        }))
    }

    fn aggregated(&self, core: bool) -> Value {
        let groups = self.kinds.groups().iter().filter(|(group, _)| group.is_empty() == core);
        let items: Vec<Value> = groups
            .map(|(group, versions)| {
                let versions: Vec<Value> = versions
                    .iter()
                    .map(|(version, kinds)| {
                        let resources: Vec<Value> = kinds.values().map(|kind| aggregated_resource(kind)).collect();
                        json!({ "version": version, "resources": resources, "freshness": "Current" })
                    })
                    .collect();
                json!({ "metadata": { "name": group, "creationTimestamp": null }, "versions": versions })
            })
            .collect();
        json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
        })
    }
}

/// Custom resources have the same verbs in another order.
const CUSTOM_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// By this clients tell whether objects are stored in another version than before.
fn version_hash(kind: &Kind) -> String {
    let (group, version) = kind.storage_api_version.rsplit_once('/').unwrap_or(("", &kind.storage_api_version));
    let digest = Sha256::digest(format!("{group}/{version}/{}", kind.kind));
    STANDARD.encode(&digest[..8])
}

struct Subresource {
    name: &'static str,
    kind: String,
    verbs: &'static [&'static str],
    group: Option<(&'static str, &'static str)>,
}

fn subresources(kind: &Kind) -> Vec<Subresource> {
    let mut found = Vec::new();
    if kind.scale.is_some() {
        let verbs = &["get", "patch", "update"];
        found.push(Subresource { name: "scale", kind: "Scale".into(), verbs, group: Some(("autoscaling", "v1")) });
    }
    if kind.status {
        let verbs = &["get", "patch", "update"];
        found.push(Subresource { name: "status", kind: kind.kind.clone(), verbs, group: None });
    }
    if kind.custom() {
        found.reverse();
    }
    if kind.builtin == Builtin::Pod {
        let mut add =
            |name, kind: &str, verbs, group| found.push(Subresource { name, kind: kind.into(), verbs, group });
        add("binding", "Binding", &["create"], None);
        add("ephemeralcontainers", "Pod", &["get", "patch", "update"], None);
        add("eviction", "Eviction", &["create"], Some(("policy", "v1")));
        add("log", "Pod", &["get"], None);
        add("resize", "Pod", &["get", "patch", "update"], None);
        // Served to be refused: clients look these up before they try.
        add("attach", "PodAttachOptions", &["create", "get"], None);
        add("exec", "PodExecOptions", &["create", "get"], None);
        add("portforward", "PodPortForwardOptions", &["create", "get"], None);
    }
    found
}

fn aggregated_resource(kind: &Kind) -> Value {
    let response = |kind_name: &str| json!({ "group": kind.group, "version": kind.version, "kind": kind_name });
    let mut resource = json!({
        "resource": kind.plural, "singularResource": kind.singular, "responseKind": response(&kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "verbs": kind.verbs(),
    });
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
    let below: Vec<Value> = subresources(kind)
        .iter()
        .map(|subresource| {
            let mut response = response(&subresource.kind);
            if let Some((group, version)) = subresource.group {
                response["group"] = json!(group);
                response["version"] = json!(version);
            }
            json!({ "subresource": subresource.name, "responseKind": response, "verbs": subresource.verbs })
        })
        .collect();
    if !below.is_empty() {
        resource["subresources"] = Value::Array(below);
    }
    resource
}

fn version(text: &str) -> Value {
    let mut numbers = text.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or("1"), numbers.next().unwrap_or("0"));
    json!({
        "major": major, "minor": minor, "gitVersion": text, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
    })
}
