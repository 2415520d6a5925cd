//! A node class whose selectors have been looked up: what launching needs to know of it, in types where a missing field
//! is no longer a question.

use crate::kubelet::Kubelet;
use controller_api::{
    AmiFamily, BlockDeviceMapping, Ec2NodeClass, Ec2NodeClassSpec, Ec2NodeClassStatus, InstanceStorePolicy,
    InterfaceType, labels,
};
use controller_core::quantity::Quantity;
use controller_core::requirements::Requirements;
use std::collections::{BTreeMap, BTreeSet};

/// A node class with its status. Borrows the class.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedNodeClass<'a> {
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) generation: i64,
    pub(crate) spec: &'a Ec2NodeClassSpec,
    pub(crate) status: &'a Ec2NodeClassStatus,
    pub(crate) family: AmiFamily,
    pub(crate) kubelet: Kubelet,
    /// The images with the instance types they run on.
    pub(crate) images: Vec<(&'a str, Requirements)>,
}

/// An empty status, for a class that has none yet.
static NO_STATUS: Ec2NodeClassStatus = Ec2NodeClassStatus {
    subnets: Vec::new(),
    security_groups: Vec::new(),
    capacity_reservations: Vec::new(),
    amis: Vec::new(),
    instance_profile: String::new(),
    conditions: Vec::new(),
};

impl<'a> ResolvedNodeClass<'a> {
    /// Reads a class. A class without any family, which the API server refuses, counts as `Custom`.
    pub(crate) fn new(class: &'a Ec2NodeClass) -> Self {
        Self::with_status(class, class.status.as_ref().unwrap_or(&NO_STATUS))
    }

    /// Reads a class with a status that is not written yet.
    pub(crate) fn with_status(class: &'a Ec2NodeClass, status: &'a Ec2NodeClassStatus) -> Self {
        Self {
            name: class.metadata.name.as_deref().unwrap_or_default(),
            uid: class.metadata.uid.as_deref().unwrap_or_default(),
            generation: class.metadata.generation.unwrap_or_default(),
            spec: &class.spec,
            status,
            family: class.spec.resolved_ami_family().unwrap_or(AmiFamily::Custom),
            kubelet: Kubelet::read(class.spec.kubelet.as_ref()),
            images: status
                .amis
                .iter()
                .map(|ami| (ami.id.as_str(), Requirements::from_api(&ami.requirements)))
                .collect(),
        }
    }

    /// The zones that have a subnet, with their ids.
    pub(crate) fn zones(&self) -> BTreeMap<&'a str, &'a str> {
        self.status.subnets.iter().map(|subnet| (subnet.zone.as_str(), subnet.zone_id.as_str())).collect()
    }

    /// The image that instances of a type with these requirements start from: the first that matches.
    pub(crate) fn image_for(&self, requirements: &Requirements) -> Option<&'a str> {
        self.images.iter().find(|(_, wanted)| requirements.intersects(wanted)).map(|(id, _)| *id)
    }

    /// Whether the host's disks become the node's storage.
    pub(crate) fn binds_host_disks(&self) -> bool {
        self.spec.instance_store_policy == Some(InstanceStorePolicy::RAID0)
    }

    /// The disks asked for, or the family's own.
    pub(crate) fn block_devices(&self) -> Vec<BlockDeviceMapping> {
        self.spec.block_device_mappings.clone().unwrap_or_else(|| default_block_devices(self.family))
    }

    /// The device that holds the kubelet's files.
    pub(crate) fn ephemeral_device(&self) -> Option<&'static str> {
        match self.family {
            AmiFamily::AL2 | AmiFamily::AL2023 => Some("/dev/xvda"),
            AmiFamily::Bottlerocket => Some("/dev/xvdb"),
            AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => Some("/dev/sda1"),
            AmiFamily::Custom => None,
        }
    }

    /// How many interfaces carry EFA traffic alone; `None` when the class lists no interfaces.
    pub(crate) fn efa_only_interfaces(&self) -> Option<u32> {
        let interfaces = self.spec.network_interfaces.as_ref().filter(|interfaces| !interfaces.is_empty())?;
        let efa_only = interfaces.iter().filter(|interface| interface.interface_type == InterfaceType::EfaOnly);
        u32::try_from(efa_only.count()).ok()
    }

    /// How many of those sit on the first card and take an interface from pods.
    pub(crate) fn efa_only_on_first_card(&self) -> u32 {
        let interfaces = self.spec.network_interfaces.iter().flatten();
        let on_first = interfaces.filter(|interface| {
            interface.interface_type == InterfaceType::EfaOnly && interface.network_card_index == 0
        });
        u32::try_from(on_first.count()).unwrap_or(u32::MAX)
    }

    /// Tags for everything launched from the class, or the keys that users may not set (spec §4.1).
    pub(crate) fn tags(&self, cluster: &str, node_pool: &str) -> Result<BTreeMap<String, String>, RestrictedTags> {
        let own = self.spec.tags.clone().unwrap_or_default();
        let restricted: BTreeSet<String> = own.keys().filter(|key| is_restricted_tag(key)).cloned().collect();
        if !restricted.is_empty() {
            return Err(RestrictedTags(restricted));
        }
        let mut tags = own;
        tags.insert(format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned());
        tags.insert(labels::NODE_POOL_LABEL.to_owned(), node_pool.to_owned());
        tags.insert(crate::CLUSTER_NAME_TAG.to_owned(), cluster.to_owned());
        tags.insert(labels::NODE_CLASS_LABEL.to_owned(), self.name.to_owned());
        Ok(tags)
    }
}

/// Tag keys that belong to the controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tags failed validation requirements, {}", self.0.iter().map(String::as_str).collect::<Vec<_>>().join(", "))]
pub(crate) struct RestrictedTags(pub(crate) BTreeSet<String>);

fn is_restricted_tag(key: &str) -> bool {
    let owned_cluster = key.strip_prefix("kubernetes.io/cluster/").is_some_and(|name| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    });
    owned_cluster
        || [crate::CLUSTER_NAME_TAG, labels::NODE_POOL_LABEL, "karpenter.sh/nodeclaim", labels::NODE_CLASS_LABEL]
            .contains(&key)
}

/// The disks of a family that asks for none (spec §4.3).
fn default_block_devices(family: AmiFamily) -> Vec<BlockDeviceMapping> {
    let disk = |device: &str, gibibytes: u32| BlockDeviceMapping {
        device_name: Some(device.to_owned()),
        ebs: Some(controller_api::BlockDevice {
            encrypted: Some(true),
            volume_type: Some("gp3".to_owned()),
            volume_size: Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity(format!("{gibibytes}Gi"))),
            ..Default::default()
        }),
        root_volume: false,
    };
    match family {
        AmiFamily::AL2 | AmiFamily::AL2023 => vec![disk("/dev/xvda", 20)],
        AmiFamily::Bottlerocket => vec![disk("/dev/xvda", 4), disk("/dev/xvdb", 20)],
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => vec![disk("/dev/sda1", 50)],
        AmiFamily::Custom => Vec::new(),
    }
}

/// The size a disk asks for.
pub(crate) fn volume_size(mapping: &BlockDeviceMapping) -> Option<Quantity> {
    Quantity::from_api(mapping.ebs.as_ref()?.volume_size.as_ref()?).ok()
}
