//! The parameters that RunInstances and launch templates share, in both directions.

use super::{members, requirements};
use crate::cloud::launch_template::{
    BlockDevice, LaunchSpecification, MetadataOptions, NetworkInterfaceSpecification, SpotOptions,
};
use crate::cloud::members::Members;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use std::net::Ipv4Addr;

/// What a launch makes that can have tags.
// fidelity: documented(EC2 API Reference, LaunchTemplateTagSpecificationRequest and RunInstances: ResourceType)
const TAGGABLE: [&str; 5] = ["elastic-gpu", "instance", "network-interface", "spot-instances-request", "volume"];

const MARKETS: [&str; 3] = ["spot", "capacity-block", "interruptible-capacity-reservation"];

/// Members that are told again, and read where they matter.
const KEPT: [&str; 8] = [
    "CpuOptions",
    "CreditSpecification",
    "HibernationOptions",
    "LicenseSpecification",
    "MaintenanceOptions",
    "NetworkPerformanceOptions",
    "Placement.AvailabilityZoneId",
    "PrivateDnsNameOptions",
];

const RESOURCE_GROUP: &str =
    "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationResourceGroupArn";

/// Reads a specification.
pub(super) fn read(query: &Query<'_>) -> Result<LaunchSpecification, ApiError> {
    let mut specification = LaunchSpecification {
        image_id: query.owned("ImageId"),
        instance_type: query.owned("InstanceType"),
        key_name: query.owned("KeyName"),
        user_data: query.owned("UserData"),
        ebs_optimized: query.boolean("EbsOptimized")?,
        disable_api_termination: query.boolean("DisableApiTermination")?,
        disable_api_stop: query.boolean("DisableApiStop")?,
        shutdown_behavior: query.choice("InstanceInitiatedShutdownBehavior", &["stop", "terminate"])?,
        monitoring: query.boolean("Monitoring.Enabled")?,
        enclave: query.boolean("EnclaveOptions.Enabled")?,
        market: query.choice("InstanceMarketOptions.MarketType", &MARKETS)?,
        spot: read_spot(query)?,
        profile_name: query.owned("IamInstanceProfile.Name"),
        profile_arn: query.owned("IamInstanceProfile.Arn"),
        reservation_preference: query.owned("CapacityReservationSpecification.CapacityReservationPreference"),
        reservation_id: query.owned("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"),
        zone: query.owned("Placement.AvailabilityZone"),
        tenancy: query.owned("Placement.Tenancy"),
        placement_group_id: query.owned("Placement.GroupId"),
        placement_group_name: query.owned("Placement.GroupName"),
        partition: query.number("Placement.PartitionNumber")?,
        security_group_ids: query.list("SecurityGroupId").into_iter().map(str::to_owned).collect(),
        security_group_names: query.list("SecurityGroup").into_iter().map(str::to_owned).collect(),
        metadata: MetadataOptions {
            endpoint: query.owned("MetadataOptions.HttpEndpoint"),
            protocol_ipv6: query.owned("MetadataOptions.HttpProtocolIpv6"),
            hop_limit: query.number("MetadataOptions.HttpPutResponseHopLimit")?,
            tokens: query.owned("MetadataOptions.HttpTokens"),
            tags: query.owned("MetadataOptions.InstanceMetadataTags"),
        },
        ..Default::default()
    };
    for interface in query.structures("NetworkInterface") {
        specification.network_interfaces.push(read_interface(&interface)?);
    }
    specification.block_devices = read_devices(query)?;
    for part in query.structures("TagSpecification") {
        let resource = part.required("ResourceType")?.to_owned();
        if !TAGGABLE.contains(&resource.as_str()) {
            let message = format!("'{resource}' is not a valid taggable resource type for this operation.");
            return Err(ApiError::invalid_value(message));
        }
        specification.tags.entry(resource).or_default().extend(part.tags("Tag")?);
    }
    if let Some(part) = query.structure("InstanceRequirements") {
        specification.requirements = Some(requirements::read(&part)?);
    }
    check_options(query)?;
    for part in [
        query.keep(
            "told again; there are no resource groups here",
            &["CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationResourceGroupArn"],
        ),
        query.keep("retired by AWS; told again", &["ElasticGpuSpecification", "ElasticInferenceAccelerator"]),
        query.keep(
            "for paravirtual images, of which there are none; told again",
            &["KernelId", "RamDiskId", "RamdiskId"],
        ),
        query.keep("told again; there are no Outposts here", &["SecondaryInterface"]),
        read_host(query)?,
        query.members(&KEPT),
    ] {
        specification.rest.extend(part);
    }
    Ok(specification)
}

/// Where among dedicated hosts a launch goes. A launch finds that there are none; a template may name one.
// fidelity: documented(EC2 API Reference, Placement: Affinity is default or host)
pub(super) fn read_host(query: &Query<'_>) -> Result<Members, ApiError> {
    query.choice("Placement.Affinity", &["default", "host"])?;
    let mut kept = query.members(&["Placement.Affinity", "Placement.HostId", "Placement.HostResourceGroupArn"]);
    kept.extend(query.keep("reserved by AWS; told again", &["Placement.SpreadDomain"]));
    Ok(kept)
}

/// Options of which only some values are right.
// fidelity: documented(EC2 API Reference, CapacityReservationSpecification, CpuOptionsRequest, CreditSpecificationRequest,
// InstanceMetadataOptionsRequest, Placement, InstanceMaintenanceOptionsRequest, PrivateDnsNameOptionsRequest,
// InstanceNetworkPerformanceOptionsRequest)
fn check_options(query: &Query<'_>) -> Result<(), ApiError> {
    for (name, known) in [
        (
            "CapacityReservationSpecification.CapacityReservationPreference",
            &["capacity-reservations-only", "open", "none"][..],
        ),
        ("CpuOptions.AmdSevSnp", &["enabled", "disabled"]),
        ("CpuOptions.NestedVirtualization", &["enabled", "disabled"]),
        ("CreditSpecification.CpuCredits", &["standard", "unlimited"]),
        ("MaintenanceOptions.AutoRecovery", &["default", "disabled"]),
        ("MetadataOptions.HttpEndpoint", &["enabled", "disabled"]),
        ("MetadataOptions.HttpProtocolIpv6", &["enabled", "disabled"]),
        ("MetadataOptions.HttpTokens", &["optional", "required"]),
        ("MetadataOptions.InstanceMetadataTags", &["enabled", "disabled"]),
        ("NetworkPerformanceOptions.BandwidthWeighting", &["default", "vpc-1", "ebs-1"]),
        ("Placement.Tenancy", &["default", "dedicated", "host"]),
        ("PrivateDnsNameOptions.HostnameType", &["ip-name", "resource-name"]),
    ] {
        query.choice(name, known)?;
    }
    match query.number::<u32>("MetadataOptions.HttpPutResponseHopLimit")? {
        Some(limit) if !(1..=64).contains(&limit) => {
            let message = format!("Value ({limit}) for parameter HttpPutResponseHopLimit is invalid. Expected 1 to 64");
            return Err(ApiError::invalid_value(message));
        }
        _ => {}
    }
    query.number::<u32>("CpuOptions.CoreCount")?;
    query.number::<u32>("CpuOptions.ThreadsPerCore")?;
    query.boolean("PrivateDnsNameOptions.EnableResourceNameDnsARecord")?;
    query.boolean("PrivateDnsNameOptions.EnableResourceNameDnsAAAARecord")?;
    Ok(())
}

fn read_spot(query: &Query<'_>) -> Result<SpotOptions, ApiError> {
    let Some(query) = query.structure("InstanceMarketOptions.SpotOptions") else { return Ok(SpotOptions::default()) };
    // fidelity: documented(EC2 API Reference, SpotMarketOptions: BlockDurationMinutes is deprecated and without effect)
    query.ignore("deprecated by AWS", &["BlockDurationMinutes"]);
    Ok(SpotOptions {
        max_price: price(&query, "MaxPrice")?,
        request_type: query.choice("SpotInstanceType", &["one-time", "persistent"])?,
        valid_until: query.time("ValidUntil")?,
        interruption_behavior: query.choice("InstanceInterruptionBehavior", &INTERRUPTION_BEHAVIORS)?,
    })
}

pub(super) const INTERRUPTION_BEHAVIORS: [&str; 3] = ["terminate", "stop", "hibernate"];

/// A price in USD, kept as it was written.
pub(super) fn price(query: &Query<'_>, name: &str) -> Result<Option<String>, ApiError> {
    match query.text(name) {
        Some(text) if text.parse::<f64>().ok().is_none_or(|price| !(price > 0.0 && price.is_finite())) => {
            Err(ApiError::invalid_value(format!(
                "Value ({text}) for parameter {name} is invalid. Expected a price above zero"
            )))
        }
        text => Ok(text.map(str::to_owned)),
    }
}

fn read_interface(query: &Query<'_>) -> Result<NetworkInterfaceSpecification, ApiError> {
    let tracking = |name: &str| query.number(&format!("ConnectionTrackingSpecification.{name}"));
    let interface = NetworkInterfaceSpecification {
        device_index: query.number("DeviceIndex")?.unwrap_or(0),
        network_card_index: query.number("NetworkCardIndex")?.unwrap_or(0),
        interface_type: query.owned("InterfaceType"),
        subnet_id: query.owned("SubnetId"),
        security_group_ids: query.list("SecurityGroupId").into_iter().map(str::to_owned).collect(),
        associate_public_ip: query.boolean("AssociatePublicIpAddress")?,
        ipv4_prefix_count: query.number("Ipv4PrefixCount")?.unwrap_or(0),
        ipv6_prefix_count: query.number("Ipv6PrefixCount")?.unwrap_or(0),
        ipv6_address_count: query.number("Ipv6AddressCount")?.unwrap_or(0),
        primary_ipv6: query.boolean("PrimaryIpv6")?,
        delete_on_termination: query.boolean("DeleteOnTermination")?,
        connection_tracking: [
            tracking("TcpEstablishedTimeout")?,
            tracking("UdpStreamTimeout")?,
            tracking("UdpTimeout")?,
        ],
        private_ips: read_addresses(query)?,
        secondary_count: query.number("SecondaryPrivateIpAddressCount")?.unwrap_or(0),
        rest: read_other(query)?,
    };
    // fidelity: documented(EC2 API Reference, InstanceNetworkInterfaceSpecification: secondary addresses by number or by
    // name, not both)
    if interface.secondary_count > 0 && interface.private_ips.len() > 1 {
        let message = "SecondaryPrivateIpAddressCount and secondary PrivateIpAddresses may not be specified on the same interface.";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    Ok(interface)
}

fn read_other(query: &Query<'_>) -> Result<Members, ApiError> {
    query.boolean("AssociateCarrierIpAddress")?;
    let mut rest = query.members(&["AssociateCarrierIpAddress", "Description", "NetworkInterfaceId"]);
    rest.extend(query.keep("told again; subnets have no IPv6 ranges here", &["Ipv6Addresses", "Ipv6Prefix"]));
    rest.extend(
        query.keep("told again; nothing here is as fast as its network", &["EnaQueueCount", "EnaSrdSpecification"]),
    );
    rest.extend(query.keep("told again; by number (Ipv4PrefixCount) they take addresses", &["Ipv4Prefix"]));
    Ok(rest)
}

/// An interface's own private addresses, the primary one first.
// fidelity: documented(EC2 API Reference, InstanceNetworkInterfaceSpecification: only one address can be primary)
fn read_addresses(query: &Query<'_>) -> Result<Vec<Ipv4Addr>, ApiError> {
    let mut addresses: Vec<Ipv4Addr> = address(query, "PrivateIpAddress")?.into_iter().collect();
    let mut has_primary = !addresses.is_empty();
    for part in query.structures("PrivateIpAddresses") {
        let own = address(&part, "PrivateIpAddress")?.ok_or_else(|| ApiError::missing("PrivateIpAddress"))?;
        match (part.boolean("Primary")?.unwrap_or(false), has_primary) {
            (true, true) => {
                let message = "Only one private IP address can be designated as primary.";
                return Err(ApiError::client("InvalidParameterCombination", message));
            }
            (true, false) => {
                has_primary = true;
                addresses.insert(0, own);
            }
            (false, _) => addresses.push(own),
        }
    }
    if !addresses.is_empty() && !has_primary {
        let message = "One of the private IP addresses has to be designated as primary.";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    Ok(addresses)
}

/// An IPv4 address.
pub(super) fn address(query: &Query<'_>, name: &str) -> Result<Option<Ipv4Addr>, ApiError> {
    let parse = |text: &str| {
        text.parse().map_err(|_| ApiError::invalid_value(format!("invalid value for parameter address: [{text}]")))
    };
    query.text(name).map(parse).transpose()
}

/// The block device mapping of a request.
pub(super) fn read_devices(query: &Query<'_>) -> Result<Vec<BlockDevice>, ApiError> {
    query.structures("BlockDeviceMapping").iter().map(read_device).collect()
}

fn read_device(query: &Query<'_>) -> Result<BlockDevice, ApiError> {
    Ok(BlockDevice {
        device_name: query.required("DeviceName")?.to_owned(),
        volume_size_gib: query.number("Ebs.VolumeSize")?,
        volume_type: query.owned("Ebs.VolumeType"),
        iops: query.number("Ebs.Iops")?,
        throughput: query.number("Ebs.Throughput")?,
        encrypted: query.boolean("Ebs.Encrypted")?,
        kms_key_id: query.owned("Ebs.KmsKeyId"),
        snapshot_id: query.owned("Ebs.SnapshotId"),
        initialization_rate: query.number("Ebs.VolumeInitializationRate")?,
        delete_on_termination: query.boolean("Ebs.DeleteOnTermination")?,
        // Named with an empty text, as the reference asks, or with any other.
        no_device: query.text("NoDevice").is_some(),
        rest: read_device_rest(query)?,
    })
}

// fidelity: documented(EC2 API Reference, BlockDeviceMapping: VirtualName is ephemeral0 to ephemeral23)
fn read_device_rest(query: &Query<'_>) -> Result<Members, ApiError> {
    if let Some(name) = query.text("VirtualName") {
        let number = name.strip_prefix("ephemeral").and_then(|number| number.parse::<u8>().ok());
        if number.is_none_or(|number| number > 23) {
            let message =
                format!("Value ({name}) for parameter virtualName is invalid. Expected ephemeral0 to ephemeral23");
            return Err(ApiError::invalid_value(message));
        }
    }
    query.number::<u32>("Ebs.EbsCardIndex")?;
    let mut rest = query.members(&["VirtualName", "Ebs.EbsCardIndex"]);
    let there = ["Ebs.OutpostArn", "Ebs.AvailabilityZone", "Ebs.AvailabilityZoneId"];
    rest.extend(query.keep("a volume is where its instance is", &there));
    Ok(rest)
}

/// Writes a specification as `ResponseLaunchTemplateData`.
pub(super) fn write(xml: &mut Xml, specification: &LaunchSpecification) {
    let LaunchSpecification {
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
        subnet_id: _,
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
        private_ip: _,
        rest,
    } = specification;
    let kept_placement = rest.iter().any(|(path, _)| path.starts_with("Placement."));
    if let Some(optimized) = ebs_optimized {
        xml.value("ebsOptimized", optimized);
    }
    if profile_name.is_some() || profile_arn.is_some() {
        xml.element("iamInstanceProfile", |xml| {
            xml.optional("arn", profile_arn.as_ref());
            xml.optional("name", profile_name.as_ref());
        });
    }
    if !block_devices.is_empty() {
        xml.list("blockDeviceMappingSet", block_devices, write_device);
    }
    if !network_interfaces.is_empty() {
        xml.list("networkInterfaceSet", network_interfaces, write_interface);
    }
    xml.optional("imageId", image_id.as_ref());
    xml.optional("instanceType", instance_type.as_ref());
    xml.optional("keyName", key_name.as_ref());
    if let Some(enabled) = monitoring {
        xml.element("monitoring", |xml| xml.value("enabled", enabled));
    }
    let typed_placement = zone.is_some() || tenancy.is_some() || partition.is_some();
    if typed_placement || placement_group_id.is_some() || placement_group_name.is_some() || kept_placement {
        xml.element("placement", |xml| {
            xml.optional("availabilityZone", zone.as_ref());
            xml.optional("groupId", placement_group_id.as_ref());
            xml.optional("groupName", placement_group_name.as_ref());
            xml.optional("tenancy", tenancy.as_ref());
            if let Some(partition) = partition {
                xml.value("partitionNumber", partition);
            }
            members::write_below(xml, rest, "Placement");
        });
    }
    if let Some(disabled) = disable_api_termination {
        xml.value("disableApiTermination", disabled);
    }
    if let Some(disabled) = disable_api_stop {
        xml.value("disableApiStop", disabled);
    }
    xml.optional("instanceInitiatedShutdownBehavior", shutdown_behavior.as_ref());
    xml.optional("userData", user_data.as_ref());
    if !tags.is_empty() {
        xml.list("tagSpecificationSet", tags, |xml, (resource, tags)| {
            xml.text("resourceType", resource);
            super::tag_set(xml, tags);
        });
    }
    if !security_group_ids.is_empty() {
        xml.texts("securityGroupIdSet", security_group_ids);
    }
    if !security_group_names.is_empty() {
        xml.texts("securityGroupSet", security_group_names);
    }
    if market.is_some() || *spot != SpotOptions::default() {
        xml.element("instanceMarketOptions", |xml| {
            xml.optional("marketType", market.as_ref());
            if *spot != SpotOptions::default() {
                xml.element("spotOptions", |xml| write_spot(xml, spot));
            }
        });
    }
    let resource_group = rest.get(RESOURCE_GROUP);
    if reservation_preference.is_some() || reservation_id.is_some() || resource_group.is_some() {
        xml.element("capacityReservationSpecification", |xml| {
            xml.optional("capacityReservationPreference", reservation_preference.as_ref());
            if reservation_id.is_some() || resource_group.is_some() {
                xml.element("capacityReservationTarget", |xml| {
                    xml.optional("capacityReservationId", reservation_id.as_ref());
                    xml.optional("capacityReservationResourceGroupArn", resource_group);
                });
            }
        });
    }
    if *metadata != MetadataOptions::default() {
        xml.element("metadataOptions", |xml| write_metadata(xml, metadata));
    }
    if let Some(enabled) = enclave {
        xml.element("enclaveOptions", |xml| xml.value("enabled", enabled));
    }
    if let Some(requirements) = requirements {
        xml.element("instanceRequirements", |xml| members::write(xml, &requirements.members));
    }
    members::write(xml, &rest.without(&["CapacityReservationSpecification", "Placement"]));
}

fn write_spot(xml: &mut Xml, spot: &SpotOptions) {
    let SpotOptions { max_price, request_type, valid_until, interruption_behavior } = spot;
    xml.optional("maxPrice", max_price.as_ref());
    xml.optional("spotInstanceType", request_type.as_ref());
    if let Some(until) = valid_until {
        xml.time("validUntil", *until);
    }
    xml.optional("instanceInterruptionBehavior", interruption_behavior.as_ref());
}

pub(super) fn write_metadata(xml: &mut Xml, metadata: &MetadataOptions) {
    xml.text("state", "applied");
    xml.optional("httpTokens", metadata.tokens.as_ref());
    if let Some(limit) = metadata.hop_limit {
        xml.value("httpPutResponseHopLimit", limit);
    }
    xml.optional("httpEndpoint", metadata.endpoint.as_ref());
    xml.optional("httpProtocolIpv6", metadata.protocol_ipv6.as_ref());
    xml.optional("instanceMetadataTags", metadata.tags.as_ref());
}

pub(super) fn write_device(xml: &mut Xml, device: &BlockDevice) {
    xml.text("deviceName", &device.device_name);
    xml.optional("virtualName", device.rest.get("VirtualName"));
    if device.no_device {
        xml.text("noDevice", "");
        return;
    }
    xml.element("ebs", |xml| {
        xml.optional("ebsCardIndex", device.rest.get("Ebs.EbsCardIndex"));
        if let Some(encrypted) = device.encrypted {
            xml.value("encrypted", encrypted);
        }
        if let Some(delete) = device.delete_on_termination {
            xml.value("deleteOnTermination", delete);
        }
        for (name, number) in [
            ("iops", device.iops),
            ("volumeSize", device.volume_size_gib),
            ("throughput", device.throughput),
            ("volumeInitializationRate", device.initialization_rate),
        ] {
            if let Some(number) = number {
                xml.value(name, number);
            }
        }
        xml.optional("kmsKeyId", device.kms_key_id.as_ref());
        xml.optional("snapshotId", device.snapshot_id.as_ref());
        xml.optional("volumeType", device.volume_type.as_ref());
    });
}

fn write_interface(xml: &mut Xml, interface: &NetworkInterfaceSpecification) {
    if let Some(public) = interface.associate_public_ip {
        xml.value("associatePublicIpAddress", public);
    }
    if let Some(delete) = interface.delete_on_termination {
        xml.value("deleteOnTermination", delete);
    }
    xml.value("deviceIndex", interface.device_index);
    xml.value("networkCardIndex", interface.network_card_index);
    if !interface.security_group_ids.is_empty() {
        xml.open("groupSet");
        interface.security_group_ids.iter().for_each(|id| xml.text("groupId", id));
        xml.close("groupSet");
    }
    xml.optional("interfaceType", interface.interface_type.as_ref());
    xml.optional("subnetId", interface.subnet_id.as_ref());
    for (name, number) in [
        ("ipv4PrefixCount", interface.ipv4_prefix_count),
        ("ipv6PrefixCount", interface.ipv6_prefix_count),
        ("ipv6AddressCount", interface.ipv6_address_count),
    ] {
        if number > 0 {
            xml.value(name, number);
        }
    }
    if let Some((primary, secondary)) = interface.private_ips.split_first() {
        xml.value("privateIpAddress", primary);
        if !secondary.is_empty() {
            xml.list("privateIpAddressesSet", &interface.private_ips, |xml, address| {
                xml.value("primary", address == primary);
                xml.value("privateIpAddress", address);
            });
        }
    }
    if interface.secondary_count > 0 {
        xml.value("secondaryPrivateIpAddressCount", interface.secondary_count);
    }
    if let Some(primary) = interface.primary_ipv6 {
        xml.value("primaryIpv6", primary);
    }
    let names = ["tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout"];
    if interface.connection_tracking.iter().any(Option::is_some) {
        xml.element("connectionTrackingSpecification", |xml| {
            for (name, seconds) in names.iter().zip(interface.connection_tracking) {
                if let Some(seconds) = seconds {
                    xml.value(name, seconds);
                }
            }
        });
    }
    members::write(xml, &interface.rest);
}
