//! Amazon Linux 2023: a NodeConfig for nodeadm, after the class's own parts.

use super::mime::{self, NODE_CONFIG, Part, SHELL_SCRIPT};
use super::{Bootstrap, UserDataError, yaml};
use serde_json::{Map, Value, json};
use serde_yaml_ng::Value as Yaml;

pub(super) fn render(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let mut parts = match bootstrap.custom {
        Some(text) if !text.is_empty() => custom_parts(text)?,
        _ => Vec::new(),
    };
    let config = format!("# Karpenter Generated NodeConfig\n{}", yaml::write(&node_config(bootstrap)?));
    parts.push(Part::new(NODE_CONFIG, config));
    Ok(mime::write(&parts))
}

/// The class's own text: an archive's parts, a NodeConfig if it is a YAML map, else a script.
fn custom_parts(text: &str) -> Result<Vec<Part>, UserDataError> {
    if mime::is_multipart(text) {
        return mime::read(text).map_err(UserDataError::Custom);
    }
    let is_map = serde_yaml_ng::from_str::<Yaml>(text).is_ok_and(|value| value.is_mapping());
    Ok(vec![Part::new(if is_map { NODE_CONFIG } else { SHELL_SCRIPT }, text)])
}

fn node_config(bootstrap: &Bootstrap<'_>) -> Result<Value, UserDataError> {
    let local_storage = if bootstrap.raid0 { json!({"strategy": "RAID0"}) } else { json!({}) };
    Ok(json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": {
            "cluster": {
                "name": bootstrap.cluster_name,
                "apiServerEndpoint": bootstrap.endpoint,
                "certificateAuthority": bootstrap.ca_bundle,
                "cidr": bootstrap.service_cidr.ok_or(UserDataError::NoServiceCidr)?,
            },
            "containerd": {},
            "instance": {"localStorage": local_storage},
            "kubelet": {
                "config": kubelet_config(bootstrap),
                "flags": [format!("--node-labels=\"{}\"", bootstrap.node_labels())],
            },
        },
    }))
}

/// The class's configuration as it is, with what the controller decides.
fn kubelet_config(bootstrap: &Bootstrap<'_>) -> Map<String, Value> {
    let mut config = bootstrap.kubelet.raw.clone();
    let dns = bootstrap.cluster_dns();
    if !dns.is_empty() {
        config.insert("clusterDNS".to_owned(), json!(dns));
    }
    config.insert("maxPods".to_owned(), json!(bootstrap.max_pods));
    let taints = bootstrap.taints.iter().map(|taint| {
        let mut entry = json!({"key": taint.key, "effect": taint.effect});
        if let Some(value) = taint.value.as_deref().filter(|value| !value.is_empty()) {
            entry["value"] = json!(value);
        }
        entry
    });
    config.insert("registerWithTaints".to_owned(), taints.collect());
    config
}
