//! Launch templates: versions, and what a launch is made of once template, override and request are merged.

use super::check_id;
use super::members::Members;
use super::requirements::InstanceRequirements;
use super::tags::Tags;
use crate::error::ApiError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Launch templates of one account in a region.
// fidelity: documented(EC2 User Guide, Launch template restrictions: 5,000 templates in a Region, 10,000 versions of each)
const MAX_TEMPLATES: usize = 5_000;
const MAX_VERSIONS: usize = 10_000;

/// Everything a launch may specify; the data of a launch template and the parameters of RunInstances alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // Named as in RequestLaunchTemplateData.
pub struct LaunchSpecification {
    pub image_id: Option<String>,
    pub instance_type: Option<String>,
    pub key_name: Option<String>,
    /// Base64, as it travels.
    pub user_data: Option<String>,
    pub profile_name: Option<String>,
    pub profile_arn: Option<String>,
    pub monitoring: Option<bool>,
    pub ebs_optimized: Option<bool>,
    pub disable_api_termination: Option<bool>,
    pub disable_api_stop: Option<bool>,
    pub shutdown_behavior: Option<String>,
    pub subnet_id: Option<String>,
    pub zone: Option<String>,
    pub tenancy: Option<String>,
    pub placement_group_id: Option<String>,
    pub placement_group_name: Option<String>,
    pub partition: Option<u32>,
    pub security_group_ids: Vec<String>,
    pub security_group_names: Vec<String>,
    pub network_interfaces: Vec<NetworkInterfaceSpecification>,
    pub block_devices: Vec<BlockDevice>,
    pub metadata: MetadataOptions,
    pub market: Option<String>,
    pub spot: SpotOptions,
    pub enclave: Option<bool>,
    pub reservation_preference: Option<String>,
    pub reservation_id: Option<String>,
    /// Tags by resource type.
    pub tags: BTreeMap<String, Tags>,
    pub(crate) requirements: Option<InstanceRequirements>,
    /// The primary interface's address, which only RunInstances takes beside the interfaces.
    #[serde(default)]
    pub private_ip: Option<Ipv4Addr>,
    /// What is told again as it was given; what a launch looks at among it, it looks up there.
    pub rest: Members,
}

/// The spot part of the market options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // Named as in LaunchTemplateSpotMarketOptionsRequest.
pub struct SpotOptions {
    /// USD per hour.
    pub max_price: Option<String>,
    /// `one-time` or `persistent`.
    pub request_type: Option<String>,
    pub valid_until: Option<Timestamp>,
    /// `terminate`, `stop` or `hibernate`.
    pub interruption_behavior: Option<String>,
}

/// One network interface of a launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct NetworkInterfaceSpecification {
    pub device_index: u32,
    pub network_card_index: u32,
    pub interface_type: Option<String>,
    pub subnet_id: Option<String>,
    pub security_group_ids: Vec<String>,
    pub associate_public_ip: Option<bool>,
    pub ipv4_prefix_count: u32,
    pub ipv6_prefix_count: u32,
    pub ipv6_address_count: u32,
    pub primary_ipv6: Option<bool>,
    pub delete_on_termination: Option<bool>,
    /// TCP established, UDP stream and UDP timeouts, in seconds.
    pub connection_tracking: [Option<u32>; 3],
    /// Addresses it asks for, the primary one first.
    #[serde(default)]
    pub private_ips: Vec<Ipv4Addr>,
    /// Secondary addresses of its subnet's choice.
    #[serde(default)]
    pub secondary_count: u32,
    /// What is kept and told again, and has no effect here.
    pub rest: Members,
}

impl NetworkInterfaceSpecification {
    /// Whether only one instance can have it.
    pub(crate) fn names_address(&self) -> bool {
        !self.private_ips.is_empty() || self.rest.get("NetworkInterfaceId").is_some()
    }
}

/// One volume of a launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct BlockDevice {
    pub device_name: String,
    pub volume_size_gib: Option<u32>,
    pub volume_type: Option<String>,
    pub iops: Option<u32>,
    pub throughput: Option<u32>,
    pub encrypted: Option<bool>,
    pub kms_key_id: Option<String>,
    pub snapshot_id: Option<String>,
    pub initialization_rate: Option<u32>,
    pub delete_on_termination: Option<bool>,
    /// The image's device of this name is left out.
    pub no_device: bool,
    /// What is kept and told again, and has no effect here.
    pub rest: Members,
}

/// How the instance metadata service answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct MetadataOptions {
    pub endpoint: Option<String>,
    pub protocol_ipv6: Option<String>,
    pub hop_limit: Option<u32>,
    pub tokens: Option<String>,
    pub tags: Option<String>,
}

impl LaunchSpecification {
    /// Puts `over` on top: what it specifies wins, lists replace lists.
    // fidelity: documented(EC2 User Guide, Launch templates: parameters of the launch override the template's)
    pub(crate) fn overridden_by(mut self, over: &Self) -> Self {
        // Destructured without `..`, so that a new member cannot be forgotten here.
        let Self {
            image_id,
            instance_type,
            key_name,
            user_data,
            profile_name,
            profile_arn,
            monitoring,
            ebs_optimized,
            disable_api_termination,
            disable_api_stop,
            shutdown_behavior,
            subnet_id,
            zone,
            tenancy,
            placement_group_id,
            placement_group_name,
            partition,
            security_group_ids,
            security_group_names,
            network_interfaces,
            block_devices,
            metadata,
            market,
            spot,
            enclave,
            reservation_preference,
            reservation_id,
            tags,
            requirements,
            private_ip,
            rest,
        } = over;
        replace(&mut self.image_id, image_id);
        replace(&mut self.instance_type, instance_type);
        replace(&mut self.key_name, key_name);
        replace(&mut self.user_data, user_data);
        if profile_name.is_some() || profile_arn.is_some() {
            self.profile_name.clone_from(profile_name);
            self.profile_arn.clone_from(profile_arn);
        }
        replace(&mut self.monitoring, monitoring);
        replace(&mut self.ebs_optimized, ebs_optimized);
        replace(&mut self.disable_api_termination, disable_api_termination);
        replace(&mut self.disable_api_stop, disable_api_stop);
        replace(&mut self.shutdown_behavior, shutdown_behavior);
        replace(&mut self.subnet_id, subnet_id);
        replace(&mut self.zone, zone);
        replace(&mut self.tenancy, tenancy);
        replace(&mut self.placement_group_id, placement_group_id);
        replace(&mut self.placement_group_name, placement_group_name);
        replace(&mut self.partition, partition);
        if !security_group_ids.is_empty() || !security_group_names.is_empty() {
            self.security_group_ids.clone_from(security_group_ids);
            self.security_group_names.clone_from(security_group_names);
        }
        for interface in network_interfaces {
            let index = (interface.network_card_index, interface.device_index);
            match self.network_interfaces.iter_mut().find(|own| (own.network_card_index, own.device_index) == index) {
                // fidelity: assumed: a launch that names only the subnet leaves the rest of the interface to the template.
                Some(own) if interface.security_group_ids.is_empty() => {
                    replace(&mut own.subnet_id, &interface.subnet_id)
                }
                Some(own) => own.clone_from(interface),
                None => self.network_interfaces.push(interface.clone()),
            }
        }
        for device in block_devices {
            self.block_devices.retain(|own| own.device_name != device.device_name);
            self.block_devices.push(device.clone());
        }
        let MetadataOptions { endpoint, protocol_ipv6, hop_limit, tokens, tags: metadata_tags } = metadata;
        replace(&mut self.metadata.endpoint, endpoint);
        replace(&mut self.metadata.protocol_ipv6, protocol_ipv6);
        replace(&mut self.metadata.hop_limit, hop_limit);
        replace(&mut self.metadata.tokens, tokens);
        replace(&mut self.metadata.tags, metadata_tags);
        replace(&mut self.market, market);
        if *spot != SpotOptions::default() {
            self.spot.clone_from(spot);
        }
        replace(&mut self.enclave, enclave);
        replace(&mut self.reservation_preference, reservation_preference);
        replace(&mut self.reservation_id, reservation_id);
        for (resource, added) in tags {
            self.tags.entry(resource.clone()).or_default().extend(added.clone());
        }
        // A type and requirements for one exclude each other: whichever is given last holds.
        if requirements.is_some() {
            self.requirements.clone_from(requirements);
            self.instance_type = None;
        } else if instance_type.is_some() {
            self.requirements = None;
        }
        replace(&mut self.private_ip, private_ip);
        self.rest.override_with(rest);
        self
    }

    /// The subnet the primary interface goes to.
    pub(crate) fn primary_subnet(&self) -> Option<&str> {
        let interface = self.network_interfaces.iter().find(|interface| interface.device_index == 0);
        interface.and_then(|interface| interface.subnet_id.as_deref()).or(self.subnet_id.as_deref())
    }
}

fn replace<T: Clone>(own: &mut Option<T>, over: &Option<T>) {
    if over.is_some() {
        own.clone_from(over);
    }
}

/// A launch template with all its versions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct LaunchTemplate {
    pub id: String,
    pub name: String,
    pub created_at: Timestamp,
    /// When Describe calls begin to see it.
    pub visible_at: Timestamp,
    pub default_version: u64,
    /// The number of the newest version there ever was; numbers are not used again.
    pub last_number: u64,
    pub versions: BTreeMap<u64, LaunchTemplateVersion>,
    pub tags: Tags,
}

/// One version of a launch template.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct LaunchTemplateVersion {
    pub created_at: Timestamp,
    pub description: Option<String>,
    pub data: LaunchSpecification,
}

impl LaunchTemplate {
    pub(crate) fn latest(&self) -> u64 {
        self.versions.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Adds a version and answers its number.
    pub(crate) fn add_version(&mut self, version: LaunchTemplateVersion) -> Result<u64, ApiError> {
        if self.versions.len() >= MAX_VERSIONS {
            let message = format!("You've reached the limit of {MAX_VERSIONS} versions of this launch template.");
            return Err(ApiError::client("MaxTemplateVersionLimitExceeded", message));
        }
        self.last_number += 1;
        self.versions.insert(self.last_number, version);
        Ok(self.last_number)
    }

    /// The version a text names: a number, `$Latest`, or `$Default` when nothing is named.
    pub(crate) fn version(&self, text: Option<&str>) -> Result<(u64, &LaunchTemplateVersion), ApiError> {
        let number = match text {
            None | Some("$Default") | Some("") => Some(self.default_version),
            Some("$Latest") => Some(self.latest()),
            Some(number) => number.parse().ok(),
        };
        let found = number.and_then(|number| Some((number, self.versions.get(&number)?)));
        found.ok_or_else(|| {
            let (text, id) = (text.unwrap_or_default(), &self.id);
            let message = format!("Could not find the specified version {text} for the launch template with ID {id}.");
            ApiError::client("InvalidLaunchTemplateId.VersionNotFound", message)
        })
    }
}

/// How a request names a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TemplateReference {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
}

/// All templates, by id and by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LaunchTemplates {
    by_id: BTreeMap<String, LaunchTemplate>,
    by_name: BTreeMap<String, String>,
}

// fidelity: documented(EC2 API Reference, Error codes: InvalidLaunchTemplateName.NotFoundException, …)
impl LaunchTemplates {
    pub(crate) fn add(&mut self, template: LaunchTemplate) -> Result<(), ApiError> {
        if self.by_name.contains_key(&template.name) {
            return Err(ApiError::client(
                "InvalidLaunchTemplateName.AlreadyExistsException",
                "Launch template name already in use.",
            ));
        }
        if self.by_id.len() >= MAX_TEMPLATES {
            let message = format!("You've reached the limit of {MAX_TEMPLATES} launch templates in this Region.");
            return Err(ApiError::client("MaxTemplateLimitExceeded", message));
        }
        self.by_name.insert(template.name.clone(), template.id.clone());
        self.by_id.insert(template.id.clone(), template);
        Ok(())
    }

    pub(crate) fn find(&self, id: Option<&str>, name: Option<&str>) -> Result<&LaunchTemplate, ApiError> {
        if let Some(id) = id {
            check_id(id, "lt", "InvalidLaunchTemplateId.Malformed")?;
        }
        let found = match (id, name) {
            (Some(id), _) => self.by_id.get(id),
            (None, Some(name)) => self.by_name.get(name).and_then(|id| self.by_id.get(id)),
            (None, None) => None,
        };
        found.ok_or_else(|| self.not_found(id, name))
    }

    /// The refusal of a template that does not exist, or is not seen yet.
    pub(crate) fn not_found(&self, id: Option<&str>, name: Option<&str>) -> ApiError {
        match (id, name) {
            (Some(id), _) => ApiError::client(
                "InvalidLaunchTemplateId.NotFound",
                format!("The specified launch template, with template ID {id}, does not exist."),
            ),
            (None, Some(_)) => ApiError::client(
                "InvalidLaunchTemplateName.NotFoundException",
                "At least one of the launch templates specified in the request does not exist.",
            ),
            (None, None) => ApiError::client(
                "MissingParameter",
                "Either a launch template ID or a launch template name must be specified in the request.",
            ),
        }
    }

    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut LaunchTemplate> {
        self.by_id.get_mut(id)
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<LaunchTemplate> {
        let template = self.by_id.remove(id)?;
        self.by_name.remove(&template.name);
        Some(template)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LaunchTemplate> {
        self.by_id.values()
    }
}
