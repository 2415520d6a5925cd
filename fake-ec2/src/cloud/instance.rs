//! An instance and its states.
//!
//! ```text
//! pending → running → shutting-down → terminated
//!    ↑         ↓                          ↑
//!    │      stopping                      │
//!    └──────stopped───────────────────────┘
//! ```

use super::capacity::CapacityType;
use super::launch_template::{BlockDevice, LaunchSpecification, MetadataOptions};
use super::tags::Tags;
use crate::state::interned::Constant;
use base64::Engine;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Where an instance is in its life.
// fidelity: documented(EC2 User Guide, Instance lifecycle; codes: API Reference, InstanceState)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum State {
    Pending,
    Running,
    ShuttingDown,
    Terminated,
    Stopping,
    Stopped,
}

impl State {
    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }

    /// As the API numbers it.
    pub fn code(self) -> u16 {
        match self {
            Self::Pending => 0,
            Self::Running => 16,
            Self::ShuttingDown => 32,
            Self::Terminated => 48,
            Self::Stopping => 64,
            Self::Stopped => 80,
        }
    }

    /// Whether it is going or gone.
    pub fn is_ending(self) -> bool {
        matches!(self, Self::ShuttingDown | Self::Terminated)
    }
}

/// One instance, with what only its inside would know.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // Named as in the Instance structure of DescribeInstances.
pub struct Instance {
    pub id: String,
    pub reservation_id: String,
    pub fleet_id: Option<String>,
    pub image_id: String,
    pub architecture: String,
    #[serde(with = "crate::state::interned")]
    pub instance_type: Constant,
    pub vcpus: u32,
    #[serde(with = "crate::state::interned")]
    pub hypervisor: Constant,
    pub capacity_type: CapacityType,
    pub state: State,
    /// When the present state began.
    pub state_since: Timestamp,
    /// Code and message of why it stopped or ended.
    pub state_reason: Option<(String, String)>,
    /// The same in words, with the time if its owner asked for it; empty while it lives.
    pub transition_reason: String,
    pub launched_at: Timestamp,
    /// When Describe calls begin to see it.
    pub visible_at: Timestamp,
    pub vpc_id: String,
    pub subnet_id: String,
    pub zone: String,
    pub zone_id: String,
    pub tenancy: String,
    pub private_ip: Ipv4Addr,
    pub private_dns_name: String,
    /// Id and name of each.
    pub security_groups: Vec<(String, String)>,
    pub network_interfaces: Vec<NetworkInterface>,
    pub volumes: Vec<Volume>,
    pub profile: Option<InstanceProfileReference>,
    /// Base64, as it was given.
    pub user_data: Option<String>,
    pub metadata: MetadataOptions,
    pub monitoring: bool,
    pub ebs_optimized: bool,
    pub disable_api_termination: bool,
    pub disable_api_stop: bool,
    /// `stop` or `terminate`: what a shutdown from inside does.
    pub shutdown_behavior: String,
    pub source_dest_check: bool,
    /// `standard` or `unlimited`, of burstable types.
    pub cpu_credits: Option<String>,
    pub key_name: Option<String>,
    pub client_token: Option<String>,
    /// Id, name and version of the template it was launched from.
    pub launch_template: Option<TemplateUse>,
    pub spot_request_id: Option<String>,
    /// When a spot notice said it would be reclaimed.
    pub reclaim_at: Option<Timestamp>,
    pub capacity_reservation_id: Option<String>,
    pub capacity_reservation_preference: Option<String>,
    pub placement_group: Option<(String, String)>,
    pub partition: Option<u32>,
    pub tags: Tags,
    /// Since when the instance status check fails.
    pub instance_impaired_since: Option<Timestamp>,
    /// Since when the system status check fails.
    pub system_impaired_since: Option<Timestamp>,
    pub scheduled_events: Vec<ScheduledEvent>,
    /// Whether it takes up capacity: a stopped instance does not.
    pub(crate) holds_capacity: bool,
    pub(crate) launch_index: u32,
    pub(crate) reserved_addresses: u32,
    pub(crate) specification: Arc<LaunchSpecification>,
}

impl Instance {
    /// The user data as the instance reads it.
    pub fn user_data_bytes(&self) -> Option<Vec<u8>> {
        base64::engine::general_purpose::STANDARD.decode(self.user_data.as_deref()?).ok()
    }

    /// The user data as text.
    pub fn user_data_text(&self) -> Option<String> {
        self.user_data_bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The tags of one of its interfaces or volumes.
    pub(crate) fn part_tags(&self, id: &str) -> Option<&Tags> {
        let interface = self.network_interfaces.iter().find(|interface| interface.id == id);
        let volume = || self.volumes.iter().find(|volume| volume.id == id).map(|volume| &volume.tags);
        interface.map(|interface| &interface.tags).or_else(volume)
    }

    /// The same, to write.
    pub(crate) fn part_tags_mut(&mut self, id: &str) -> Option<&mut Tags> {
        let interface = self.network_interfaces.iter_mut().find(|interface| interface.id == id);
        let volume = self.volumes.iter_mut().find(|volume| volume.id == id);
        interface.map(|interface| &mut interface.tags).or(volume.map(|volume| &mut volume.tags))
    }

    /// `aws:///us-west-2a/i-0123…`: what the cloud provider writes on its Node.
    pub fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.id)
    }
}

/// A network interface of an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct NetworkInterface {
    pub id: String,
    pub attachment_id: String,
    pub device_index: u32,
    pub network_card_index: u32,
    pub interface_type: String,
    pub private_ip: Ipv4Addr,
    /// Its addresses beside the primary one.
    #[serde(default)]
    pub secondary_ips: Vec<Ipv4Addr>,
    #[serde(default)]
    pub description: String,
    pub subnet_id: String,
    pub security_groups: Vec<(String, String)>,
    pub tags: Tags,
}

/// A volume of an instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Volume {
    pub id: String,
    pub device: BlockDevice,
    pub tags: Tags,
    pub created_at: Timestamp,
    pub attached_at: Timestamp,
}

/// The instance profile an instance was launched with, as it was then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct InstanceProfileReference {
    pub arn: String,
    pub id: String,
    pub name: String,
    /// The role whose credentials the instance gets.
    pub role_arn: Option<String>,
}

/// A launch template as a launch used it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct TemplateUse {
    pub id: String,
    pub name: String,
    pub version: u64,
}

/// Maintenance that AWS announced for an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ScheduledEvent {
    pub id: String,
    /// `instance-stop`, `system-reboot`, `instance-retirement`, …
    pub code: String,
    pub description: String,
    pub not_before: Timestamp,
    pub not_after: Option<Timestamp>,
}
