//! Bootstrap: what an instance is told on its first start, per AMI family (spec §4.7). A wrong text means a node that never
//! joins, so a family that is not known here is an error.

mod al2;
mod al2023;
mod mime;
mod yaml;

use crate::kubelet::Kubelet;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use controller_api::{AmiFamily, labels};
use k8s_openapi::api::core::v1::Taint;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// EC2's limit of the decoded text, and the size from which the controller speaks up.
pub(crate) const LARGE: usize = 14_745;

/// Everything a bootstrap may need.
#[derive(Clone, Debug)]
pub(crate) struct Bootstrap<'a> {
    pub(crate) cluster_name: &'a str,
    pub(crate) endpoint: &'a str,
    /// Base64 of PEM.
    pub(crate) ca_bundle: &'a str,
    /// The network of Services; AL2023 cannot do without.
    pub(crate) service_cidr: Option<&'a str>,
    pub(crate) cluster_dns: Option<IpAddr>,
    pub(crate) kubelet: &'a Kubelet,
    pub(crate) max_pods: u32,
    /// All labels the kubelet sets on its Node.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    /// Whether the host's disks become the node's storage.
    pub(crate) raid0: bool,
    /// What the class adds.
    pub(crate) custom: Option<&'a str>,
}

/// Why there is no user data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UserDataError {
    /// The bootstrap of this family is not known.
    #[error("user data for the AMI family {0} is not supported by this controller")]
    UnsupportedFamily(&'static str),
    /// AL2023 needs the network of Services.
    #[error("resolving the cluster's service CIDR")]
    NoServiceCidr,
    /// The class's own text cannot be merged.
    #[error("parsing spec.userData: {0}")]
    Custom(String),
}

/// The text, not yet in base64.
pub(crate) fn render(family: AmiFamily, bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    match family {
        AmiFamily::AL2 => Ok(al2::render(bootstrap)),
        AmiFamily::AL2023 => al2023::render(bootstrap),
        AmiFamily::Custom => Ok(bootstrap.custom.unwrap_or_default().to_owned()),
        AmiFamily::Bottlerocket | AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            Err(UserDataError::UnsupportedFamily(family.as_str()))
        }
    }
}

/// As EC2 wants it.
pub(crate) fn encode(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

impl Bootstrap<'_> {
    /// The addresses of the cluster's DNS: the class's own, or the one that was found.
    fn cluster_dns(&self) -> Vec<String> {
        match (self.kubelet.cluster_dns.as_slice(), self.cluster_dns) {
            ([], Some(address)) => vec![address.to_string()],
            (own, _) => own.to_vec(),
        }
    }

    /// `k=v,…` of the labels.
    fn node_labels(&self) -> String {
        joined(&self.labels, "=")
    }
}

/// The labels a kubelet may set on its own Node: those of Kubernetes' own domains are not its to set.
pub(crate) fn node_labels(
    family: AmiFamily,
    claim_labels: &BTreeMap<String, String>,
    capacity_type: &str,
) -> BTreeMap<String, String> {
    let reserved = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        ["kubernetes.io", "k8s.io", "node-restriction.kubernetes.io"]
            .into_iter()
            .any(|suffix| domain == suffix || domain.ends_with(&format!(".{suffix}")))
    };
    let mut labels: BTreeMap<String, String> =
        claim_labels.iter().filter(|(key, _)| !reserved(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    labels.insert(labels::CAPACITY_TYPE_LABEL.to_owned(), capacity_type.to_owned());
    if family != AmiFamily::Custom {
        labels.insert(labels::DO_NOT_SYNC_TAINTS_LABEL.to_owned(), "true".to_owned());
    }
    labels
}

/// The taints a node registers with: its own, its startup taints, and the one that keeps pods away until it is known.
pub(crate) fn node_taints(taints: &[Taint], startup_taints: &[Taint]) -> Vec<Taint> {
    let mut all: Vec<Taint> = taints.iter().chain(startup_taints).cloned().collect();
    if !all.iter().any(|taint| taint.key == labels::UNREGISTERED_TAINT_KEY) {
        all.push(Taint {
            key: labels::UNREGISTERED_TAINT_KEY.to_owned(),
            effect: "NoExecute".to_owned(),
            ..Taint::default()
        });
    }
    all
}

/// `key=value:Effect`, or `key:Effect` without a value.
fn taint_text(taint: &Taint) -> String {
    match taint.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{}={value}:{}", taint.key, taint.effect),
        _ => format!("{}:{}", taint.key, taint.effect),
    }
}

/// Entries joined by commas.
fn joined(map: &BTreeMap<String, String>, between: &str) -> String {
    map.iter().map(|(key, value)| format!("{key}{between}{value}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::json;

    #[track_caller]
    fn check(family: AmiFamily, kubelet: serde_json::Value, raid0: bool, custom: Option<&str>, expected: Expect) {
        let kubelet = Kubelet::read(kubelet.as_object());
        let claim_labels = BTreeMap::from(
            [
                ("karpenter.sh/nodepool", "default"),
                ("karpenter.k8s.aws/ec2nodeclass", "default"),
                ("kubernetes.io/arch", "amd64"),
                ("node.kubernetes.io/instance-type", "m5.large"),
                ("team", "a"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let taint = |key: &str, value: Option<&str>, effect: &str| Taint {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            effect: effect.to_owned(),
            ..Taint::default()
        };
        let bootstrap = Bootstrap {
            cluster_name: "demo",
            endpoint: "https://demo.example",
            ca_bundle: "Y2E=",
            service_cidr: Some("10.100.0.0/16"),
            cluster_dns: Some("10.100.0.10".parse().unwrap()),
            kubelet: &kubelet,
            max_pods: 29,
            labels: node_labels(family, &claim_labels, "spot"),
            taints: node_taints(&[taint("dedicated", Some("gpu"), "NoSchedule")], &[]),
            raid0,
            custom,
        };
        let text = render(family, &bootstrap).unwrap_or_else(|error| format!("error: {error}\n"));
        expected.assert_eq(&text);
    }

    #[test]
    fn al2023_gets_a_node_config() {
        check(
            AmiFamily::AL2023,
            json!({}),
            false,
            None,
            expect![[r#"
            MIME-Version: 1.0
            Content-Type: multipart/mixed; boundary="//"

            --//
            Content-Type: application/node.eks.aws

            # Karpenter Generated NodeConfig
            apiVersion: node.eks.aws/v1alpha1
            kind: NodeConfig
            metadata: {}
            spec:
              cluster:
                apiServerEndpoint: https://demo.example
                certificateAuthority: Y2E=
                cidr: 10.100.0.0/16
                name: demo
              containerd: {}
              instance:
                localStorage: {}
              kubelet:
                config:
                  clusterDNS:
                  - 10.100.0.10
                  maxPods: 29
                  registerWithTaints:
                  - effect: NoSchedule
                    key: dedicated
                    value: gpu
                  - effect: NoExecute
                    key: karpenter.sh/unregistered
                flags:
                - --node-labels="karpenter.k8s.aws/ec2nodeclass=default,karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=default,team=a"

            --//--
        "#]],
        );
    }

    #[test]
    fn al2023_takes_up_the_kubelet_configuration_host_disks_and_own_texts() {
        let kubelet = json!({"shutdownGracePeriod": "30s", "maxPods": 20, "kubeReserved": {"cpu": "100m"}});
        let config =
            "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config:\n      maxPods: 5\n";
        check(
            AmiFamily::AL2023,
            kubelet,
            true,
            Some(config),
            expect![[r#"
            MIME-Version: 1.0
            Content-Type: multipart/mixed; boundary="//"

            --//
            Content-Type: application/node.eks.aws

            apiVersion: node.eks.aws/v1alpha1
            kind: NodeConfig
            spec:
              kubelet:
                config:
                  maxPods: 5

            --//
            Content-Type: application/node.eks.aws

            # Karpenter Generated NodeConfig
            apiVersion: node.eks.aws/v1alpha1
            kind: NodeConfig
            metadata: {}
            spec:
              cluster:
                apiServerEndpoint: https://demo.example
                certificateAuthority: Y2E=
                cidr: 10.100.0.0/16
                name: demo
              containerd: {}
              instance:
                localStorage:
                  strategy: RAID0
              kubelet:
                config:
                  clusterDNS:
                  - 10.100.0.10
                  kubeReserved:
                    cpu: 100m
                  maxPods: 29
                  registerWithTaints:
                  - effect: NoSchedule
                    key: dedicated
                    value: gpu
                  - effect: NoExecute
                    key: karpenter.sh/unregistered
                  shutdownGracePeriod: 30s
                flags:
                - --node-labels="karpenter.k8s.aws/ec2nodeclass=default,karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=default,team=a"

            --//--
        "#]],
        );
    }

    #[test]
    fn al2_gets_a_call_of_the_bootstrap_script_after_the_own_text() {
        let kubelet = json!({"kubeReserved": {"cpu": "100m"}, "evictionHard": {"memory.available": "5%"}});
        check(
            AmiFamily::AL2,
            kubelet,
            true,
            Some("#!/bin/bash\necho hello\n"),
            expect![[r#"
            MIME-Version: 1.0
            Content-Type: multipart/mixed; boundary="//"

            --//
            Content-Type: text/x-shellscript; charset="us-ascii"

            #!/bin/bash
            echo hello

            --//
            Content-Type: text/x-shellscript; charset="us-ascii"

            #!/bin/bash -xe
            exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1
            /etc/eks/bootstrap.sh 'demo' --apiserver-endpoint 'https://demo.example' --b64-cluster-ca 'Y2E=' \
            --dns-cluster-ip '10.100.0.10' \
            --use-max-pods false \
            --kubelet-extra-args '--node-labels="karpenter.k8s.aws/ec2nodeclass=default,karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=default,team=a" --register-with-taints="dedicated=gpu:NoSchedule,karpenter.sh/unregistered:NoExecute" --max-pods=29 --kube-reserved="cpu=100m" --eviction-hard="memory.available<5%"' \
            --local-disks raid0
            --//--
        "#]],
        );
    }

    #[test]
    fn custom_text_is_left_alone() {
        check(
            AmiFamily::Custom,
            json!({}),
            false,
            Some("anything\n"),
            expect![[r#"
            anything
        "#]],
        );
        check(AmiFamily::Custom, json!({}), false, None, expect![""]);
    }

    #[test]
    fn families_without_a_bootstrap_here_are_refused() {
        check(
            AmiFamily::Windows2022,
            json!({}),
            false,
            None,
            expect![[r#"
            error: user data for the AMI family Windows2022 is not supported by this controller
        "#]],
        );
    }
}
