//! EC2NodeClass: how instances are launched on EC2 (AWS spec §1).

use crate::conditions::Condition;
use crate::node_claim::NodeSelectorRequirementWithMinValues;
use crate::schema;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

// Fields that take part in the drift hash keep the difference between absent and empty (AWS spec §1.7), hence options.

/// How instances are launched.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.k8s.aws",
    version = "v1",
    kind = "EC2NodeClass",
    root = "Ec2NodeClass",
    plural = "ec2nodeclasses",
    singular = "ec2nodeclass",
    shortname = "ec2nc",
    shortname = "ec2ncs",
    status = "Ec2NodeClassStatus",
    derive = "Default",
    derive = "PartialEq",
    category = "karpenter",
    schema = "disabled",
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::ec2_node_class)]
pub struct Ec2NodeClassSpec {
    /// Which subnets to launch in: those that match any of the terms.
    #[schemars(length(max = 30), transform = schema::rules(schema::SUBNET_TERMS_RULES))]
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Which security groups instances get: all that match any of the terms.
    #[schemars(length(max = 30), transform = schema::rules(schema::SECURITY_GROUP_TERMS_RULES))]
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// Which capacity reservations may be launched into: those that match any of the terms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 30), transform = schema::rules(schema::CAPACITY_RESERVATION_TERMS_RULES))]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,
    /// The placement group to launch into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// Whether the primary interface gets a public address. Absent: as the subnet says.
    #[serde(rename = "associatePublicIPAddress", skip_serializing_if = "Option::is_none")]
    pub associate_public_ip_address: Option<bool>,
    /// How many address prefixes each interface gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ip_prefix_count: Option<i32>,
    /// Which images to launch: those that match any of the terms.
    #[schemars(length(min = 1, max = 30), transform = schema::rules(schema::AMI_TERMS_RULES))]
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// How instances of the image are bootstrapped. Absent: as the alias says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<AmiFamily>,
    /// Text that the bootstrap user data takes up, in the family's own format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// The IAM role of the nodes; the controller keeps an instance profile for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::rules(&[("self != ''", "role cannot be empty")]))]
    pub role: Option<String>,
    /// The instance profile of the nodes, when somebody else keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::rules(&[("self != ''", "instanceProfile cannot be empty")]))]
    pub instance_profile: Option<String>,
    /// Tags for everything that is launched.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::rules(schema::TAGS_RULES))]
    pub tags: Option<BTreeMap<String, String>>,
    /// The kubelet's configuration. The controller checks it, not the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_form")]
    pub kubelet: Option<Map<String, Value>>,
    /// Disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), transform = schema::rules(schema::BLOCK_DEVICE_MAPPINGS_RULES))]
    pub block_device_mappings: Option<Vec<BlockDeviceMapping>>,
    /// What to do with the disks that belong to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// Network interfaces; absent: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 150), transform = schema::rules(schema::NETWORK_INTERFACES_RULES))]
    pub network_interfaces: Option<Vec<NetworkInterface>>,
    /// Whether instances report metrics every minute instead of every five.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// How the instance metadata service may be used.
    #[serde(default)]
    pub metadata_options: MetadataOptions,
    /// How long idle connections are remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,
    /// The `Context` of fleet requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Options of the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
}

/// Selects subnets. What is set must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnetSelectorTerm {
    /// Tags the subnet carries; the value `*` matches any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::selector_tags)]
    pub tags: BTreeMap<String, String>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "subnet-[0-9a-z]+"))]
    pub id: Option<String>,
}

/// Selects security groups. What is set must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroupSelectorTerm {
    /// Tags the group carries; the value `*` matches any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::selector_tags)]
    pub tags: BTreeMap<String, String>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "sg-[0-9a-z]+"))]
    pub id: Option<String>,
    /// Its group name, which is not its `Name` tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Selects capacity reservations. What is set must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservationSelectorTerm {
    /// Tags the reservation carries; the value `*` matches any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::selector_tags)]
    pub tags: BTreeMap<String, String>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::CAPACITY_RESERVATION_ID))]
    pub id: Option<String>,
    /// The account that owns it.
    #[serde(rename = "ownerID", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::ACCOUNT_ID))]
    pub owner_id: Option<String>,
    /// `open` or `targeted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::one_of(&["open", "targeted"]))]
    pub instance_match_criteria: Option<String>,
}

/// Selects a placement group by name or by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::rules(schema::PLACEMENT_GROUP_RULES))]
pub struct PlacementGroupSelector {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub name: Option<String>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^pg-[0-9a-z]+$"))]
    pub id: Option<String>,
}

/// Selects images. What is set must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AmiSelectorTerm {
    /// A published family and version, such as `al2023@latest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 30), transform = schema::rules(schema::ALIAS_RULES))]
    pub alias: Option<String>,
    /// Tags the image carries; the value `*` matches any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::selector_tags)]
    pub tags: BTreeMap<String, String>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "ami-[0-9a-z]+"))]
    pub id: Option<String>,
    /// Its name, which is not its `Name` tag; `*` and `?` match as in EC2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Who owns it: an account id, `self`, `amazon` and the like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Name or ARN of the SSM parameter that holds its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
}

impl AmiSelectorTerm {
    /// The two halves of the alias: family and version.
    pub fn alias_parts(&self) -> Option<(&str, &str)> {
        self.alias.as_deref()?.split_once('@')
    }
}

/// How an image bootstraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::plain_enum)]
pub enum AmiFamily {
    /// Amazon Linux 2.
    AL2,
    /// Amazon Linux 2023.
    AL2023,
    /// Bottlerocket.
    Bottlerocket,
    /// Any other; user data is left alone.
    Custom,
    /// Windows Server 2019.
    Windows2019,
    /// Windows Server 2022.
    Windows2022,
    /// Windows Server 2025.
    Windows2025,
}

impl AmiFamily {
    /// Every family.
    pub const ALL: [Self; 7] = [
        Self::AL2,
        Self::AL2023,
        Self::Bottlerocket,
        Self::Custom,
        Self::Windows2019,
        Self::Windows2022,
        Self::Windows2025,
    ];

    /// The text in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AL2 => "AL2",
            Self::AL2023 => "AL2023",
            Self::Bottlerocket => "Bottlerocket",
            Self::Custom => "Custom",
            Self::Windows2019 => "Windows2019",
            Self::Windows2022 => "Windows2022",
            Self::Windows2025 => "Windows2025",
        }
    }

    /// The family an alias names before its `@`; `Custom` has none.
    pub fn from_alias(family: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known != Self::Custom && known.as_str().eq_ignore_ascii_case(family))
    }

    /// Whether nodes of the family run Windows.
    pub fn is_windows(self) -> bool {
        matches!(self, Self::Windows2019 | Self::Windows2022 | Self::Windows2025)
    }
}

impl Ec2NodeClassSpec {
    /// The family that `amiFamily` or else the alias names. `None` only for objects the API server would refuse.
    pub fn resolved_ami_family(&self) -> Option<AmiFamily> {
        let from_alias =
            || self.ami_selector_terms.iter().find_map(|term| AmiFamily::from_alias(term.alias_parts()?.0));
        self.ami_family.or_else(from_alias)
    }
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceMapping {
    /// The device, such as `/dev/xvda`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// The EBS volume behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ebs: Option<BlockDevice>,
    /// Whether it holds the kubelet's files, so that its size is the node's ephemeral storage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub root_volume: bool,
}

/// An EBS volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::rules(schema::EBS_RULES))]
pub struct BlockDevice {
    /// Whether the volume goes with the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Whether it is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// The key it is encrypted with.
    #[serde(rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// The snapshot it starts from.
    #[serde(rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// MiB per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// MiB per second at which the snapshot is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 300))]
    pub volume_initialization_rate: Option<i32>,
    /// Its size: a whole number of `Gi`, `G`, `Ti` or `T`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::volume_size")]
    pub volume_size: Option<Quantity>,
    /// Its type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::one_of(&["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"]))]
    pub volume_type: Option<String>,
}

/// What to do with the disks that belong to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::plain_enum)]
pub enum InstanceStorePolicy {
    /// Bind them into one volume that the kubelet and the container runtime use.
    RAID0,
}

impl InstanceStorePolicy {
    /// The text in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RAID0 => "RAID0",
        }
    }
}

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// The network card it is on.
    #[schemars(range(min = 0))]
    pub network_card_index: i32,
    /// Its place on the instance.
    #[schemars(range(min = 0))]
    pub device_index: i32,
    /// What it carries.
    pub interface_type: InterfaceType,
}

/// What a network interface carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(transform = schema::plain_enum)]
pub enum InterfaceType {
    /// IP traffic.
    Interface,
    /// Elastic Fabric Adapter traffic alone.
    EfaOnly,
}

impl InterfaceType {
    /// The text in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::EfaOnly => "efa-only",
        }
    }
}

// The API server fills in what is absent, so every field has a value; all of them take part in the drift hash.

/// How the instance metadata service may be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataOptions {
    /// Whether it answers over IPv4: `enabled` or `disabled`.
    #[schemars(transform = schema::one_of(&["enabled", "disabled"]))]
    pub http_endpoint: String,
    /// Whether it answers over IPv6: `enabled` or `disabled`.
    #[serde(rename = "httpProtocolIPv6")]
    #[schemars(transform = schema::one_of(&["enabled", "disabled"]))]
    pub http_protocol_ipv6: String,
    /// How far its answers travel: 1 keeps them out of pods.
    #[schemars(range(min = 1, max = 64))]
    pub http_put_response_hop_limit: i64,
    /// Whether session tokens are `required` or `optional`.
    #[schemars(transform = schema::one_of(&["required", "optional"]))]
    pub http_tokens: String,
}

impl Default for MetadataOptions {
    fn default() -> Self {
        Self {
            http_endpoint: "enabled".to_owned(),
            http_protocol_ipv6: "disabled".to_owned(),
            http_put_response_hop_limit: 1,
            http_tokens: "required".to_owned(),
        }
    }
}

/// How long idle connections are remembered, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::rules(schema::CONNECTION_TRACKING_RULES))]
pub struct ConnectionTracking {
    /// Established TCP connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 432_000))]
    pub tcp_established_timeout: Option<i32>,
    /// UDP flows that have seen more than one request and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 180))]
    pub udp_stream_timeout: Option<i32>,
    /// Other UDP flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30, max = 60))]
    pub udp_timeout: Option<i32>,
}

/// Options of the processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuOptions {
    /// Whether virtual machines may run on the instance: `enabled` or `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::one_of(&["enabled", "disabled"]))]
    pub nested_virtualization: Option<String>,
}

/// What the selectors found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ec2NodeClassStatus {
    /// Subnets, those with most free addresses first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Subnet>,
    /// Security groups by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroup>,
    /// Capacity reservations by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// Images, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<Ami>,
    /// Name of the instance profile in use.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance_profile: String,
    /// Whether instances can be launched, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ec2_node_class_conditions")]
    pub conditions: Vec<Condition>,
}

/// A subnet that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    /// Its id.
    pub id: String,
    /// Name of its zone, such as `us-west-2a`.
    pub zone: String,
    /// Id of its zone, such as `usw2-az1`.
    #[serde(default, rename = "zoneID", skip_serializing_if = "String::is_empty")]
    pub zone_id: String,
}

/// A security group that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroup {
    /// Its id.
    pub id: String,
    /// Its group name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// An image that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ami {
    /// Its id.
    pub id: String,
    /// Whether its owner has deprecated it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deprecated: bool,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Which instance types it runs on.
    #[schemars(schema_with = "schema::ami_requirements")]
    pub requirements: Vec<NodeSelectorRequirementWithMinValues>,
}

/// A capacity reservation that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// Its zone.
    pub availability_zone: String,
    /// When it ends.
    #[serde(default, with = "crate::time::option", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub end_time: Option<Timestamp>,
    /// Its id.
    #[schemars(regex(pattern = schema::CAPACITY_RESERVATION_ID))]
    pub id: String,
    /// `open` or `targeted`.
    #[schemars(transform = schema::one_of(&["open", "targeted"]))]
    pub instance_match_criteria: String,
    /// The instance type it reserves.
    pub instance_type: String,
    /// Whether its owner may take it back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interruptible: bool,
    /// The account that owns it.
    #[serde(rename = "ownerID")]
    #[schemars(regex(pattern = schema::ACCOUNT_ID))]
    pub owner_id: String,
    /// `default` or `capacity-block`.
    #[serde(default = "default_reservation_type")]
    #[schemars(transform = schema::one_of(&["default", "capacity-block"]))]
    pub reservation_type: String,
    /// `active` or `expiring`.
    #[serde(default = "default_reservation_state")]
    #[schemars(transform = schema::one_of(&["active", "expiring"]))]
    pub state: String,
}

fn default_reservation_type() -> String {
    "default".to_owned()
}

fn default_reservation_state() -> String {
    "active".to_owned()
}
