//! The Node object that a kubelet registers.

use super::user_data::Bootstrap;
use super::{Cluster, Machine};
use controller_core::quantity::Quantity as Exact;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSpec, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Ready, and why.
pub(super) const READY: (&str, &str) = ("True", "KubeletReady");
/// Not known to be ready, and why.
pub(super) const UNKNOWN: (&str, &str) = ("Unknown", "NodeStatusUnknown");

/// The share of a machine's memory that its firmware and kernel keep, in thousandths: about 4 % on the types measured in
/// public. Less than the 7.5 % that the controller takes off, as it must be.
const KERNEL_MEMORY_PERMILLE: u64 = 40;

/// The root volume: the EKS image's default.
const ROOT_VOLUME_GIB: u64 = 20;

/// Pods per node where the bootstrap sets none: the kubelet's default.
const DEFAULT_MAX_PODS: u32 = 110;

/// The node as it stands in the first request to the API server.
pub(super) fn registered(machine: &Machine, bootstrap: &Bootstrap, cluster: &Cluster, now: Timestamp) -> Node {
    let mut labels = bootstrap.labels.clone();
    let own = [
        ("beta.kubernetes.io/arch", &machine.architecture),
        ("beta.kubernetes.io/instance-type", &machine.instance_type),
        ("failure-domain.beta.kubernetes.io/region", &machine.region),
        ("failure-domain.beta.kubernetes.io/zone", &machine.zone),
        ("kubernetes.io/arch", &machine.architecture),
        ("kubernetes.io/hostname", &machine.private_dns_name),
        ("node.kubernetes.io/instance-type", &machine.instance_type),
        ("topology.k8s.aws/zone-id", &machine.zone_id),
        ("topology.kubernetes.io/region", &machine.region),
        ("topology.kubernetes.io/zone", &machine.zone),
    ];
    labels.extend(own.map(|(key, value)| (key.to_owned(), value.clone())));
    labels.extend(["beta.kubernetes.io/os", "kubernetes.io/os"].map(|key| (key.to_owned(), "linux".to_owned())));
    let address = |kind: &str, address: &str| NodeAddress { type_: kind.into(), address: address.into() };
    let capacity = capacity(machine, bootstrap);
    Node {
        metadata: ObjectMeta {
            name: Some(machine.private_dns_name.clone()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(format!("aws:///{}/{}", machine.zone, machine.id)),
            taints: Some(bootstrap.taints.clone()).filter(|taints| !taints.is_empty()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            addresses: Some(vec![
                address("InternalIP", &machine.private_ip),
                address("InternalDNS", &machine.private_dns_name),
                address("Hostname", &machine.private_dns_name),
            ]),
            allocatable: Some(allocatable(&capacity, bootstrap, machine.vcpus)),
            capacity: Some(capacity),
            conditions: serde_json::from_value(json!([ready(
                "False",
                "KubeletNotReady",
                "container runtime network not ready",
                now
            )]))
            .ok(),
            node_info: Some(NodeSystemInfo {
                architecture: machine.architecture.clone(),
                container_runtime_version: "containerd://2.1.4".into(),
                kubelet_version: cluster.version.clone(),
                operating_system: "linux".into(),
                os_image: "Amazon Linux 2023".into(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    }
}

fn capacity(machine: &Machine, bootstrap: &Bootstrap) -> BTreeMap<String, Quantity> {
    let memory_ki = machine.memory_mib * 1024 * (1000 - KERNEL_MEMORY_PERMILLE) / 1000;
    BTreeMap::from([
        ("cpu".into(), Quantity(machine.vcpus.to_string())),
        ("memory".into(), Quantity(format!("{memory_ki}Ki"))),
        ("ephemeral-storage".into(), Quantity(format!("{}Ki", ROOT_VOLUME_GIB * 1024 * 1024))),
        ("pods".into(), Quantity(bootstrap.max_pods.unwrap_or(DEFAULT_MAX_PODS).to_string())),
    ])
}

/// Capacity less what the kubelet reserves: what the bootstrap sets, else nodeadm's defaults, and the hard eviction
/// thresholds (https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/).
fn allocatable(capacity: &BTreeMap<String, Quantity>, bootstrap: &Bootstrap, vcpus: u32) -> BTreeMap<String, Quantity> {
    let max_pods = bootstrap.max_pods.unwrap_or(DEFAULT_MAX_PODS);
    let mut kube_reserved = BTreeMap::from([
        ("cpu".to_owned(), format!("{}m", nodeadm_reserved_cpu_m(vcpus))),
        ("ephemeral-storage".to_owned(), "1Gi".to_owned()),
        ("memory".to_owned(), format!("{}Mi", 11 * max_pods + 255)),
    ]);
    kube_reserved.extend(bootstrap.kube_reserved.clone());
    let eviction_memory = bootstrap.eviction_hard.get("memory.available").cloned().unwrap_or_else(|| "100Mi".into());
    let eviction_storage = format!("{}Ki", ROOT_VOLUME_GIB * 1024 * 1024 / 10);
    let evictions =
        BTreeMap::from([("memory".to_owned(), eviction_memory), ("ephemeral-storage".to_owned(), eviction_storage)]);
    let less = |name: &str, total: &Quantity| {
        let mut left: Exact = total.0.parse().ok()?;
        for part in [&kube_reserved, &bootstrap.system_reserved, &evictions] {
            // A threshold in per cent, or text that is no quantity, takes nothing off here.
            if let Some(amount) = part.get(name).and_then(|text| text.parse::<Exact>().ok()) {
                left -= amount;
            }
        }
        Some(Quantity(left.to_string()))
    };
    capacity.iter().map(|(name, total)| (name.clone(), less(name, total).unwrap_or_else(|| total.clone()))).collect()
}

/// Milli-CPUs that nodeadm reserves: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.
fn nodeadm_reserved_cpu_m(vcpus: u32) -> u32 {
    let band = |from: u32, to: u32| vcpus.clamp(from, to) - from;
    60 * band(0, 1) + 10 * band(1, 2) + 5 * band(2, 4) + 25 * band(4, u32::MAX) / 10
}

fn ready(status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"type": "Ready", "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now})
}

/// The patch of a node's status that sets its Ready condition.
pub(super) fn ready_patch(status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({"status": {"conditions": [ready(status, reason, message, now)]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_reserved_in_bands() {
        assert_eq!([1, 2, 4, 8, 96].map(nodeadm_reserved_cpu_m), [60, 70, 80, 90, 310]);
    }

    #[test]
    fn an_m5_large_has_what_the_kubelet_would_report() {
        let machine = Machine {
            id: "i-1".into(),
            running: true,
            instance_type: "m5.large".into(),
            architecture: "amd64".into(),
            vcpus: 2,
            memory_mib: 8192,
            region: "us-west-2".into(),
            zone: "us-west-2a".into(),
            zone_id: "usw2-az1".into(),
            private_dns_name: "ip-10-0-0-1.us-west-2.compute.internal".into(),
            private_ip: "10.0.0.1".into(),
            user_data: String::new(),
            role: "r".into(),
            launched_at: Timestamp::UNIX_EPOCH,
        };
        let bootstrap = Bootstrap { max_pods: Some(29), ..Bootstrap::default() };
        let capacity = capacity(&machine, &bootstrap);
        let allocatable = allocatable(&capacity, &bootstrap, 2);
        assert_eq!(allocatable["cpu"].0, "1930m");
        assert_eq!(allocatable["pods"].0, "29");
        // 8192 Mi less 4 %, less 11 × 29 + 255 Mi, less 100 Mi.
        let memory: Exact = allocatable["memory"].0.parse().unwrap();
        assert_eq!(
            memory,
            format!("{}Ki", 8192_i64 * 1024 * 960 / 1000 - (574 + 100) * 1024).parse::<Exact>().unwrap()
        );
    }
}
