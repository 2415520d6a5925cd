//! The parameters that RunInstances and launch templates share, in both directions.

use crate::cloud::launch_template::{BlockDevice, LaunchSpecification, MetadataOptions, NetworkInterfaceSpecification};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

/// Reads a specification.
pub(super) fn read(query: &Query<'_>) -> Result<LaunchSpecification, ApiError> {
    let mut specification = LaunchSpecification {
        image_id: query.owned("ImageId"),
        instance_type: query.owned("InstanceType"),
        key_name: query.owned("KeyName"),
        user_data: query.owned("UserData"),
        ebs_optimized: query.boolean("EbsOptimized")?,
        disable_api_termination: query.boolean("DisableApiTermination")?,
        shutdown_behavior: query.owned("InstanceInitiatedShutdownBehavior"),
        monitoring: query.boolean("Monitoring.Enabled")?,
        enclave: query.boolean("EnclaveOptions.Enabled")?,
        nested_virtualization: query.owned("CpuOptions.NestedVirtualization"),
        market: query.owned("InstanceMarketOptions.MarketType"),
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
        specification.tags.entry(resource).or_default().extend(part.tags("Tag")?);
    }
    // What is not modelled has no effect.
    query.ignore(&[
        "CpuOptions",
        "CreditSpecification",
        "InstanceMarketOptions.SpotOptions",
        "PrivateDnsNameOptions",
        "MaintenanceOptions",
        "HibernationOptions",
        "DisableApiStop",
        "LicenseSpecification",
        "KernelId",
        "RamDiskId",
        "RamdiskId",
        "NetworkPerformanceOptions",
        "Placement.Affinity",
        "Placement.AvailabilityZoneId",
        "Placement.HostId",
        "Placement.HostResourceGroupArn",
        "Placement.SpreadDomain",
        "ElasticGpuSpecification",
        "ElasticInferenceAccelerator",
    ]);
    Ok(specification)
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
    };
    query.ignore(&["Description", "EnaSrdSpecification", "EnaQueueCount", "SecondaryPrivateIpAddressCount"]);
    Ok(interface)
}

/// The block device mapping of a request.
pub(super) fn read_devices(query: &Query<'_>) -> Result<Vec<BlockDevice>, ApiError> {
    query.structures("BlockDeviceMapping").iter().map(read_device).collect()
}

fn read_device(query: &Query<'_>) -> Result<BlockDevice, ApiError> {
    query.ignore(&["VirtualName", "NoDevice", "Ebs.EbsCardIndex"]);
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
    })
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
        enclave,
        nested_virtualization,
        reservation_preference,
        reservation_id,
        tags,
    } = specification;
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
    if zone.is_some() || tenancy.is_some() || placement_group_id.is_some() || placement_group_name.is_some() {
        xml.element("placement", |xml| {
            xml.optional("availabilityZone", zone.as_ref());
            xml.optional("groupId", placement_group_id.as_ref());
            xml.optional("groupName", placement_group_name.as_ref());
            xml.optional("tenancy", tenancy.as_ref());
            if let Some(partition) = partition {
                xml.value("partitionNumber", partition);
            }
        });
    }
    if let Some(disabled) = disable_api_termination {
        xml.value("disableApiTermination", disabled);
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
    if let Some(market) = market {
        xml.element("instanceMarketOptions", |xml| xml.text("marketType", market));
    }
    if let Some(nested) = nested_virtualization {
        xml.element("cpuOptions", |xml| xml.text("nestedVirtualization", nested));
    }
    if reservation_preference.is_some() || reservation_id.is_some() {
        xml.element("capacityReservationSpecification", |xml| {
            xml.optional("capacityReservationPreference", reservation_preference.as_ref());
            if let Some(id) = reservation_id {
                xml.element("capacityReservationTarget", |xml| xml.text("capacityReservationId", id));
            }
        });
    }
    if *metadata != MetadataOptions::default() {
        xml.element("metadataOptions", |xml| write_metadata(xml, metadata));
    }
    if let Some(enabled) = enclave {
        xml.element("enclaveOptions", |xml| xml.value("enabled", enabled));
    }
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

fn write_device(xml: &mut Xml, device: &BlockDevice) {
    xml.text("deviceName", &device.device_name);
    xml.element("ebs", |xml| {
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
}
