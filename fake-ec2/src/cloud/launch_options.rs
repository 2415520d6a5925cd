//! What a launch asks beside image, type and place, looked at when it is launched: a template may hold what no launch gets.

use super::Cloud;
use super::catalogue::InstanceType;
use super::facts::Facts;
use super::image::Image;
use super::launch_template::{LaunchSpecification, MetadataOptions, NetworkInterfaceSpecification};
use super::network::Subnet;
use super::resource::Kind;
use crate::error::ApiError;

impl Cloud {
    /// Refuses options that the type, the subnet or the account does not have.
    // fidelity: documented(EC2 API Reference, Placement, InstanceNetworkInterfaceSpecification; Error codes: InvalidHostID.NotFound,
    // InvalidKeyPair.NotFound, UnsupportedHibernationConfiguration, UnsupportedOperation)
    pub(super) fn check_options(
        &self,
        specification: &LaunchSpecification,
        own: &'static InstanceType,
        subnet: &Subnet,
    ) -> Result<(), ApiError> {
        let rest = &specification.rest;
        check_cores(specification, own)?;
        if let Some(name) = specification.key_name.as_ref().filter(|name| !self.key_pairs.contains_key(*name)) {
            let message = format!("The key pair '{name}' does not exist");
            return Err(ApiError::client("InvalidKeyPair.NotFound", message));
        }
        if rest.get("HibernationOptions.Configured") == Some("true") && !Facts::of(own).hibernation {
            let message = format!("Hibernation is not supported for the instance type {}.", own.name);
            return Err(ApiError::client("UnsupportedHibernationConfiguration", message));
        }
        if let Some(zone_id) = rest.get("Placement.AvailabilityZoneId").filter(|id| *id != subnet.zone_id) {
            let message = format!("The specified subnet {} is not in the Availability Zone {zone_id}.", subnet.id);
            return Err(ApiError::invalid_value(message));
        }
        if let Some(host) = rest.get("Placement.HostId") {
            let message = format!("The specified Dedicated Host ID {host} does not exist.");
            return Err(ApiError::client("InvalidHostID.NotFound", message));
        }
        if rest.get("Placement.HostResourceGroupArn").is_some() {
            let message =
                "There are no host resource groups here; Placement.HostResourceGroupArn can't be launched into.";
            return Err(ApiError::client("UnsupportedOperation", message));
        }
        specification.network_interfaces.iter().try_for_each(|interface| self.check_interface(interface, own))
    }

    // fidelity: documented(EC2 User Guide, IP addresses per network interface; API Reference, Error codes:
    // PrivateIpAddressLimitExceeded)
    fn check_interface(
        &self,
        interface: &NetworkInterfaceSpecification,
        own: &'static InstanceType,
    ) -> Result<(), ApiError> {
        if let Some(id) = interface.rest.get("NetworkInterfaceId") {
            if !self.network.interfaces.contains_key(id) && self.owner_of_part(id).is_none() {
                return Err(Kind::NETWORK_INTERFACE.missing(id));
            }
            let message =
                "Launching with a network interface that exists already (NetworkInterfaceId) is not played here.";
            return Err(ApiError::client("UnsupportedOperation", message));
        }
        if interface.rest.get("AssociateCarrierIpAddress") == Some("true") {
            let message = "Carrier IP addresses are assigned only in Wavelength Zones.";
            return Err(ApiError::client("InvalidParameterCombination", message));
        }
        let limit = Facts::of(own).addresses_per_interface;
        match addresses(interface) > limit {
            true => {
                let message = format!("Number of private addresses will exceed limit of {limit} for {}.", own.name);
                Err(ApiError::client("PrivateIpAddressLimitExceeded", message))
            }
            false => Ok(()),
        }
    }
}

/// How many addresses an interface takes by itself.
pub(super) fn addresses(interface: &NetworkInterfaceSpecification) -> u32 {
    (interface.private_ips.len() as u32).max(1) + interface.secondary_count
}

/// Whether the instance is named `i-0123….region.compute.internal`.
// fidelity: documented(EC2 User Guide, EC2 instance hostname types: resource-name, by default as the subnet says)
pub(super) fn is_named_by_id(specification: &LaunchSpecification, subnet: &Subnet) -> bool {
    let asked = specification.rest.get("PrivateDnsNameOptions.HostnameType");
    asked.unwrap_or(&subnet.private_dns.hostname_type) == "resource-name"
}

/// What was asked of the metadata service, and for the rest what EC2 takes: images made for version 2 want tokens, and let
/// containers ask, which are a hop further away.
// fidelity: documented(EC2 User Guide, Configure the Instance Metadata Service options, Order of precedence; EC2 API Reference,
// InstanceMetadataOptionsRequest: defaults; RegisterImage: ImdsSupport)
pub(super) fn metadata(asked: &MetadataOptions, image: &Image) -> MetadataOptions {
    let (tokens, hops) = if image.imds_support.is_some() { ("required", 2) } else { ("optional", 1) };
    let or = |asked: &Option<String>, otherwise: &str| Some(asked.clone().unwrap_or_else(|| otherwise.into()));
    MetadataOptions {
        endpoint: or(&asked.endpoint, "enabled"),
        protocol_ipv6: or(&asked.protocol_ipv6, "disabled"),
        hop_limit: asked.hop_limit.or(Some(hops)),
        tokens: or(&asked.tokens, tokens),
        tags: or(&asked.tags, "disabled"),
    }
}

/// Cores and threads of each, as the launch or the type has them.
// fidelity: documented(EC2 User Guide, CPU options: each type lists its valid cores and threads)
pub(crate) fn cores(specification: &LaunchSpecification, own: &'static InstanceType) -> (u32, u32) {
    let asked = |name| specification.rest.get(name).and_then(|text| text.parse().ok());
    let facts = Facts::of(own);
    let cores = asked("CpuOptions.CoreCount").unwrap_or(facts.default_cores);
    (cores, asked("CpuOptions.ThreadsPerCore").unwrap_or(facts.default_threads))
}

fn check_cores(specification: &LaunchSpecification, own: &'static InstanceType) -> Result<(), ApiError> {
    let facts = Facts::of(own);
    let given = |name| specification.rest.get(name).is_some();
    if given("CpuOptions.CoreCount") != given("CpuOptions.ThreadsPerCore") {
        let message = "CpuOptions: CoreCount and ThreadsPerCore must be specified together.";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    let (cores, threads) = cores(specification, own);
    for (name, number, valid) in
        [("CoreCount", cores, &facts.valid_cores), ("ThreadsPerCore", threads, &facts.valid_threads)]
    {
        let asked = specification.rest.get(&format!("CpuOptions.{name}")).is_some();
        // Some types, bare metal among them, take no CPU options.
        if asked && !valid.contains(&number) {
            let valid: Vec<String> = valid.iter().map(u32::to_string).collect();
            let message = format!(
                "Value ({number}) for parameter CpuOptions.{name} is invalid for {}. Valid values are: {}",
                own.name,
                if valid.is_empty() { "none".to_owned() } else { valid.join(", ") }
            );
            return Err(ApiError::invalid_value(message));
        }
    }
    Ok(())
}
