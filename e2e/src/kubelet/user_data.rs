//! Reading user data as the AL2023 image does: a MIME message with a NodeConfig, from which nodeadm configures the
//! kubelet (https://awslabs.github.io/amazon-eks-ami/nodeadm/).

use super::Cluster;
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What the user data tells the kubelet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bootstrap {
    pub(super) cluster: ClusterConfig,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
    pub(super) max_pods: Option<u32>,
    pub(super) kube_reserved: BTreeMap<String, String>,
    pub(super) system_reserved: BTreeMap<String, String>,
    pub(super) eviction_hard: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClusterConfig {
    name: String,
    api_server_endpoint: String,
    certificate_authority: String,
    cidr: String,
}

#[derive(Deserialize)]
struct NodeConfig {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    #[serde(default)]
    spec: NodeConfigSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeConfigSpec {
    cluster: Option<ClusterConfig>,
    kubelet: KubeletConfig,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KubeletConfig {
    config: KubeletConfiguration,
    flags: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KubeletConfiguration {
    max_pods: Option<u32>,
    register_with_taints: Vec<Taint>,
    kube_reserved: BTreeMap<String, String>,
    system_reserved: BTreeMap<String, String>,
    eviction_hard: BTreeMap<String, String>,
}

/// Reads user data. The error is a sentence for the timeline.
pub(super) fn parse(text: &str) -> Result<Bootstrap, String> {
    let configs = mime_parts(text)?.into_iter().filter(|(kind, _)| kind.starts_with("application/node.eks.aws"));
    let mut bootstrap = Bootstrap::default();
    let mut found = false;
    for (_, body) in configs {
        let config: NodeConfig =
            serde_yaml_ng::from_str(&body).map_err(|error| format!("its NodeConfig is not valid: {error}"))?;
        if config.api_version != "node.eks.aws/v1alpha1" || config.kind != "NodeConfig" {
            return Err(format!("its NodeConfig is {} of {}", config.kind, config.api_version));
        }
        found = true;
        merge(&mut bootstrap, config.spec);
    }
    if found { Ok(bootstrap) } else { Err("its user data holds no NodeConfig for the AL2023 image".into()) }
}

/// A later NodeConfig wins, as nodeadm merges them.
fn merge(bootstrap: &mut Bootstrap, spec: NodeConfigSpec) {
    if let Some(cluster) = spec.cluster {
        bootstrap.cluster = cluster;
    }
    let config = spec.kubelet.config;
    bootstrap.max_pods = config.max_pods.or(bootstrap.max_pods);
    if !config.register_with_taints.is_empty() {
        bootstrap.taints = config.register_with_taints;
    }
    bootstrap.kube_reserved.extend(config.kube_reserved);
    bootstrap.system_reserved.extend(config.system_reserved);
    bootstrap.eviction_hard.extend(config.eviction_hard);
    for flag in spec.kubelet.flags {
        let Some(labels) = flag.strip_prefix("--node-labels=") else { continue };
        let pairs = labels.trim_matches('"').split(',').filter_map(|pair| pair.split_once('='));
        bootstrap.labels.extend(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
}

/// The parts of a MIME multipart message: content type and body.
fn mime_parts(text: &str) -> Result<Vec<(String, String)>, String> {
    let (header, rest) = text.split_once("\n\n").ok_or("its user data is no MIME message")?;
    let boundary = header.split("boundary=").nth(1).ok_or("its user data names no MIME boundary")?;
    let boundary = boundary.lines().next().unwrap_or_default().trim().trim_matches('"');
    let separator = format!("--{boundary}");
    let mut parts: Vec<(String, String)> = Vec::new();
    let mut lines: Option<Vec<&str>> = None;
    for line in rest.lines() {
        let line = line.trim_end_matches('\r');
        if line == separator || line == format!("{separator}--") {
            parts.extend(lines.take().map(|lines| part(&lines)));
            lines = (line == separator).then(Vec::new);
        } else if let Some(lines) = &mut lines {
            lines.push(line);
        }
    }
    Ok(parts)
}

fn part(lines: &[&str]) -> (String, String) {
    let end = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
    let kind = lines[..end].iter().find_map(|line| line.strip_prefix("Content-Type:")).unwrap_or_default().trim();
    (kind.to_owned(), lines.get(end + 1..).unwrap_or_default().join("\n"))
}

impl Bootstrap {
    /// Whether a kubelet configured like this reaches the cluster.
    pub(super) fn check(&self, cluster: &Cluster) -> Result<(), String> {
        let config = &self.cluster;
        let wrong = |what: &str, is: &str, wanted: &str| Err(format!("its {what} is {is:?} and not {wanted:?}"));
        if config.name != cluster.name {
            return wrong("cluster name", &config.name, &cluster.name);
        }
        if config.api_server_endpoint != cluster.endpoint {
            return wrong("API server endpoint", &config.api_server_endpoint, &cluster.endpoint);
        }
        if config.certificate_authority != cluster.certificate_authority {
            return wrong("certificate authority", &config.certificate_authority, &cluster.certificate_authority);
        }
        if config.cidr.is_empty() {
            return Err("it has no service CIDR, which nodeadm requires".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER_DATA: &str = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\necho hello\n--//\nContent-Type: application/node.eks.aws\n\n# marker\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nmetadata: {}\nspec:\n  cluster:\n    apiServerEndpoint: https://api\n    certificateAuthority: Y2E=\n    cidr: 10.100.0.0/16\n    name: demo\n  kubelet:\n    config:\n      maxPods: 58\n      registerWithTaints:\n      - effect: NoExecute\n        key: karpenter.sh/unregistered\n    flags:\n    - --node-labels=\"a=b,karpenter.sh/nodepool=default\"\n--//--\n";

    fn cluster() -> Cluster {
        Cluster {
            name: "demo".into(),
            endpoint: "https://api".into(),
            certificate_authority: "Y2E=".into(),
            version: "v1.36.0".into(),
        }
    }

    #[test]
    fn a_node_config_among_other_parts_is_read() {
        let bootstrap = parse(USER_DATA).unwrap();
        assert_eq!(bootstrap.max_pods, Some(58));
        assert_eq!(bootstrap.labels["karpenter.sh/nodepool"], "default");
        assert_eq!(bootstrap.labels["a"], "b");
        assert_eq!(bootstrap.taints[0].key, "karpenter.sh/unregistered");
        assert_eq!(bootstrap.check(&cluster()), Ok(()));
    }

    #[test]
    fn a_kubelet_for_another_cluster_or_without_bootstrap_says_why_it_cannot_join() {
        let other = Cluster { name: "other".into(), ..cluster() };
        let reason = parse(USER_DATA).unwrap().check(&other).unwrap_err();
        assert!(reason.contains("\"demo\" and not \"other\""), "{reason}");
        assert!(parse("#!/bin/sh\necho\n").is_err());
        assert!(
            parse("Content-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: text/plain\n\nx\n--//--\n")
                .unwrap_err()
                .contains("no NodeConfig")
        );
    }
}
