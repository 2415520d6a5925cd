//! Volumes, as far as they decide where a pod can run (core spec §3.10): claims, the volumes they are bound to, classes, and
//! how many volumes a node takes.

use super::pod::PodName;
use crate::requirement::{Operator, Requirement};
use crate::requirements::Requirements;
use controller_api::labels;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as api;
use std::collections::BTreeMap;

/// What is known of storage.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    /// PersistentVolumeClaims by namespace and name.
    pub claims: BTreeMap<PodName, VolumeClaim>,
    /// PersistentVolumes by name.
    pub volumes: BTreeMap<String, PersistentVolume>,
    /// StorageClasses by name.
    pub classes: BTreeMap<String, StorageClass>,
    /// By node, how many volumes of each CSI driver can be attached.
    pub attach_limits: BTreeMap<String, BTreeMap<String, usize>>,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeClaim {
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Whether its volume is gone.
    pub is_lost: bool,
    /// The volume it is bound to.
    pub volume: Option<String>,
    /// Whether binding has been completed.
    pub is_bind_completed: bool,
    /// Its class.
    pub class: Option<String>,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistentVolume {
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// The CSI driver that attaches it; none for volumes that count towards no limit.
    pub driver: Option<String>,
    /// Where it can be reached from: nodes of one of these. Empty: from everywhere.
    pub alternatives: Vec<Requirements>,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageClass {
    /// The CSI driver that makes its volumes.
    pub driver: String,
    /// Whether volumes are made before a pod has a node, by whoever makes them.
    pub is_immediate: bool,
    /// Where its volumes are made: one of these. Empty: anywhere.
    pub alternatives: Vec<Requirements>,
}

/// Names that in-tree drivers had before CSI, with those of the drivers that took over.
const IN_TREE: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];
const EBS_DRIVER: &str = "ebs.csi.aws.com";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

impl VolumeClaim {
    /// Reads an API claim, with its name.
    pub fn from_api(claim: &core::PersistentVolumeClaim) -> (PodName, Self) {
        let metadata = &claim.metadata;
        let name = PodName::new(
            metadata.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            metadata.name.clone().unwrap_or_default(),
        );
        let spec = claim.spec.as_ref();
        let given = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
        let parsed = Self {
            is_deleting: metadata.deletion_timestamp.is_some(),
            is_lost: claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Lost"),
            volume: given(spec.and_then(|spec| spec.volume_name.as_ref())),
            is_bind_completed: metadata.annotations.as_ref().is_some_and(|a| a.contains_key(BIND_COMPLETED)),
            class: given(spec.and_then(|spec| spec.storage_class_name.as_ref())),
        };
        (name, parsed)
    }
}

impl PersistentVolume {
    /// Reads an API volume, with its name.
    pub fn from_api(volume: &core::PersistentVolume) -> (String, Self) {
        let spec = volume.spec.clone().unwrap_or_default();
        // A volume on one machine names its host, which another machine of the same name need not be: with the host gone, what
        // else the term says decides.
        let is_on_host = spec.local.is_some() || spec.host_path.is_some();
        let terms =
            spec.node_affinity.and_then(|affinity| affinity.required).map(|required| required.node_selector_terms);
        let alternatives = terms.iter().flatten().map(|term| {
            let expressions = term.match_expressions.iter().flatten();
            let parsed = expressions.map(|e| match e.operator.parse::<Operator>() {
                Ok(operator) => Requirement::new(&e.key, operator, e.values.iter().flatten().cloned()),
                Err(_) => Requirement::does_not_exist(&e.key),
            });
            parsed.filter(|r| !is_on_host || r.key() != labels::HOSTNAME_LABEL).collect()
        });
        let driver = match (&spec.csi, &spec.aws_elastic_block_store) {
            (Some(csi), _) => Some(csi.driver.clone()),
            (None, Some(_)) => Some(EBS_DRIVER.to_owned()),
            (None, None) => None,
        };
        let parsed = Self {
            is_deleting: volume.metadata.deletion_timestamp.is_some(),
            driver,
            alternatives: alternatives.collect(),
        };
        (volume.metadata.name.clone().unwrap_or_default(), parsed)
    }
}

impl StorageClass {
    /// Reads an API class, with its name.
    pub fn from_api(class: &api::StorageClass) -> (String, Self) {
        let terms = class.allowed_topologies.iter().flatten();
        let alternatives = terms.map(|term| {
            let expressions = term.match_label_expressions.iter().flatten();
            expressions.map(|e| Requirement::new(&e.key, Operator::In, e.values.iter().cloned())).collect()
        });
        let provisioner = class.provisioner.as_str();
        let driver = IN_TREE.iter().find(|(in_tree, _)| *in_tree == provisioner).map_or(provisioner, |(_, csi)| csi);
        let parsed = Self {
            driver: driver.to_owned(),
            is_immediate: class.volume_binding_mode.as_deref().unwrap_or("Immediate") == "Immediate",
            alternatives: alternatives.collect(),
        };
        (class.metadata.name.clone().unwrap_or_default(), parsed)
    }
}

/// Reads a CSINode: the node's name, and how many volumes of each driver it takes.
pub fn attach_limits(node: &api::CSINode) -> (String, BTreeMap<String, usize>) {
    let limits = node.spec.drivers.iter().filter_map(|driver| {
        let count = driver.allocatable.as_ref()?.count?;
        Some((driver.name.clone(), usize::try_from(count).unwrap_or(0)))
    });
    (node.metadata.name.clone().unwrap_or_default(), limits.collect())
}
