//! DescribeInstanceTypes and DescribeInstanceTypeOfferings: the catalogue, copied to the wire.

use super::{finish, page};
use crate::cloud::Cloud;
use crate::cloud::catalogue::{InstanceType, Offering};
use crate::cloud::facts::texts;
use crate::cloud::filter::Test;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use std::collections::BTreeSet;

/// Every filter, and where its values stand in the XML of a type.
// fidelity: documented(EC2 API Reference, DescribeInstanceTypes: filters)
const FILTERS: [(&str, &[&str]); 56] = [
    ("auto-recovery-supported", &["autoRecoverySupported"]),
    ("bare-metal", &["bareMetal"]),
    ("burstable-performance-supported", &["burstablePerformanceSupported"]),
    ("current-generation", &["currentGeneration"]),
    ("dedicated-hosts-supported", &["dedicatedHostsSupported"]),
    ("ebs-info.attachment-limit-type", &["ebsInfo", "attachmentLimitType"]),
    ("ebs-info.maximum-ebs-attachments", &["ebsInfo", "maximumEbsAttachments"]),
    (
        "ebs-info.ebs-optimized-info.baseline-bandwidth-in-mbps",
        &["ebsInfo", "ebsOptimizedInfo", "baselineBandwidthInMbps"],
    ),
    ("ebs-info.ebs-optimized-info.baseline-iops", &["ebsInfo", "ebsOptimizedInfo", "baselineIops"]),
    (
        "ebs-info.ebs-optimized-info.baseline-throughput-in-mbps",
        &["ebsInfo", "ebsOptimizedInfo", "baselineThroughputInMBps"],
    ),
    (
        "ebs-info.ebs-optimized-info.maximum-bandwidth-in-mbps",
        &["ebsInfo", "ebsOptimizedInfo", "maximumBandwidthInMbps"],
    ),
    ("ebs-info.ebs-optimized-info.maximum-iops", &["ebsInfo", "ebsOptimizedInfo", "maximumIops"]),
    (
        "ebs-info.ebs-optimized-info.maximum-throughput-in-mbps",
        &["ebsInfo", "ebsOptimizedInfo", "maximumThroughputInMBps"],
    ),
    ("ebs-info.ebs-optimized-support", &["ebsInfo", "ebsOptimizedSupport"]),
    ("ebs-info.encryption-support", &["ebsInfo", "encryptionSupport"]),
    ("ebs-info.nvme-support", &["ebsInfo", "nvmeSupport"]),
    ("free-tier-eligible", &["freeTierEligible"]),
    ("hibernation-supported", &["hibernationSupported"]),
    ("hypervisor", &["hypervisor"]),
    ("instance-storage-info.disk.count", &["instanceStorageInfo", "disks", "item", "count"]),
    ("instance-storage-info.disk.size-in-gb", &["instanceStorageInfo", "disks", "item", "sizeInGB"]),
    ("instance-storage-info.disk.type", &["instanceStorageInfo", "disks", "item", "type"]),
    ("instance-storage-info.encryption-support", &["instanceStorageInfo", "encryptionSupport"]),
    ("instance-storage-info.nvme-support", &["instanceStorageInfo", "nvmeSupport"]),
    ("instance-storage-info.total-size-in-gb", &["instanceStorageInfo", "totalSizeInGB"]),
    ("instance-storage-supported", &["instanceStorageSupported"]),
    ("instance-type", &["instanceType"]),
    ("memory-info.size-in-mib", &["memoryInfo", "sizeInMiB"]),
    ("network-info.bandwidth-weightings", &["networkInfo", "bandwidthWeightings", "item"]),
    ("network-info.efa-info.maximum-efa-interfaces", &["networkInfo", "efaInfo", "maximumEfaInterfaces"]),
    ("network-info.efa-supported", &["networkInfo", "efaSupported"]),
    ("network-info.ena-support", &["networkInfo", "enaSupport"]),
    ("network-info.flexible-ena-queues-support", &["networkInfo", "flexibleEnaQueuesSupport"]),
    ("network-info.encryption-in-transit-supported", &["networkInfo", "encryptionInTransitSupported"]),
    ("network-info.ipv4-addresses-per-interface", &["networkInfo", "ipv4AddressesPerInterface"]),
    ("network-info.ipv6-addresses-per-interface", &["networkInfo", "ipv6AddressesPerInterface"]),
    ("network-info.ipv6-supported", &["networkInfo", "ipv6Supported"]),
    ("network-info.maximum-network-cards", &["networkInfo", "maximumNetworkCards"]),
    ("network-info.maximum-network-interfaces", &["networkInfo", "maximumNetworkInterfaces"]),
    ("network-info.network-performance", &["networkInfo", "networkPerformance"]),
    ("nitro-enclaves-support", &["nitroEnclavesSupport"]),
    ("nitro-tpm-support", &["nitroTpmSupport"]),
    ("nitro-tpm-info.supported-versions", &["nitroTpmInfo", "supportedVersions", "item"]),
    ("processor-info.supported-architecture", &["processorInfo", "supportedArchitectures", "item"]),
    ("processor-info.sustained-clock-speed-in-ghz", &["processorInfo", "sustainedClockSpeedInGhz"]),
    ("processor-info.supported-features", &["processorInfo", "supportedFeatures", "item"]),
    ("reboot-migration-support", &["rebootMigrationSupport"]),
    ("supported-boot-mode", &["supportedBootModes", "item"]),
    ("supported-root-device-type", &["supportedRootDeviceTypes", "item"]),
    ("supported-usage-class", &["supportedUsageClasses", "item"]),
    ("supported-virtualization-type", &["supportedVirtualizationTypes", "item"]),
    ("vcpu-info.default-cores", &["vCpuInfo", "defaultCores"]),
    ("vcpu-info.default-threads-per-core", &["vCpuInfo", "defaultThreadsPerCore"]),
    ("vcpu-info.default-vcpus", &["vCpuInfo", "defaultVCpus"]),
    ("vcpu-info.valid-cores", &["vCpuInfo", "validCores", "item"]),
    ("vcpu-info.valid-threads-per-core", &["vCpuInfo", "validThreadsPerCore", "item"]),
];

/// What stands around the members of an item.
const ITEM_BYTES: usize = "<item></item>".len();

// fidelity: documented(EC2 API Reference, DescribeInstanceTypes: 5 to 100 results, 100 by default)
pub(super) fn describe_instance_types(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (names, filters) = (query.list("InstanceType"), query.filters()?);
    let page = page(query, 5, 100, 100)?;
    query.ignore("the catalogue holds the region's own types alone", &["IncludeUnsupportedInRegion"]);
    finish(query)?;
    filters.check(&FILTERS.map(|(name, _)| name))?;
    // fidelity: documented(EC2 API Reference, DescribeInstanceTypes: up to 100 types; no MaxResults with them)
    if names.len() > 100 {
        return Err(ApiError::invalid_value(format!(
            "At most 100 instance types can be named; {} were given.",
            names.len()
        )));
    }
    let unknown: Vec<&str> = names.iter().copied().filter(|name| cloud.catalogue.offering(name).is_none()).collect();
    if !unknown.is_empty() {
        let message = format!("The following supplied instance types do not exist: [{}]", unknown.join(", "));
        return Err(ApiError::client("InvalidInstanceType", message));
    }
    let named: BTreeSet<&str> = names.into_iter().collect();
    let offered: Box<dyn Iterator<Item = &Offering>> = match named.is_empty() {
        true => Box::new(cloud.catalogue.offerings().iter()),
        false => Box::new(named.into_iter().filter_map(|name| cloud.catalogue.offering(name))),
    };
    let chosen = offered
        .map(|offering| offering.instance_type)
        .filter(|own| filters.matches(None, |name, test| attribute(own, name, test)));
    let paged = page.cut(chosen, |own| own.name.to_owned());
    let mut xml = Xml::with_capacity(paged.items.iter().map(|own| own.xml.len() + ITEM_BYTES).sum());
    xml.list("instanceTypeSet", paged.items, |xml, own| xml.raw(own.xml));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

/// What is asked most has a column of the catalogue; the rest is looked up in the XML.
fn attribute(own: &InstanceType, name: &str, test: Test<'_>) -> bool {
    let yes_or_no = |flag: bool| if flag { "true" } else { "false" };
    match name {
        "instance-type" => test(own.name),
        "supported-virtualization-type" => own.virtualization_types.split(',').any(test),
        "supported-usage-class" => own.usage_classes.split(',').any(test),
        "processor-info.supported-architecture" => own.architectures.split(',').any(test),
        "bare-metal" => test(yes_or_no(own.bare_metal)),
        "current-generation" => test(yes_or_no(own.current_generation)),
        "hypervisor" => test(own.hypervisor),
        "memory-info.size-in-mib" => test(&own.memory_mib.to_string()),
        "vcpu-info.default-vcpus" => test(&own.vcpus.to_string()),
        other => FILTERS.iter().find(|(name, _)| *name == other).is_some_and(|(_, path)| published(own, path, test)),
    }
}

fn published(own: &InstanceType, path: &[&str], test: Test<'_>) -> bool {
    let mut passed = false;
    texts(own.xml, path, &mut |value| passed |= test(value));
    passed
}

// fidelity: documented(EC2 API Reference, DescribeInstanceTypeOfferings: by region unless asked by zone)
pub(super) fn describe_instance_type_offerings(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let location_type = query.text("LocationType").unwrap_or("region");
    let filters = query.filters()?;
    let page = page(query, 5, 1000, 1000)?;
    finish(query)?;
    filters.check(&["instance-type", "location"])?;
    let region = cloud.config.region.as_str();
    let locations = |offering: &Offering| -> Vec<&str> {
        let id = |zone: &&'static str| cloud.catalogue.zone(zone).map(|zone| zone.id);
        match location_type {
            "availability-zone" => offering.zones.clone(),
            "availability-zone-id" => offering.zones.iter().filter_map(id).collect(),
            _ => vec![region],
        }
    };
    if !["region", "availability-zone", "availability-zone-id"].contains(&location_type) {
        return Err(ApiError::invalid_value(format!("Value ({location_type}) for parameter locationType is invalid.")));
    }
    let all = cloud.catalogue.offerings().iter();
    let chosen = all
        .flat_map(|offering| locations(offering).into_iter().map(|location| (offering.instance_type.name, location)));
    let attribute = |(name, location): &(&str, &str), filter: &str, test: Test<'_>| match filter {
        "instance-type" => test(name),
        "location" => test(location),
        _ => false,
    };
    let chosen = chosen.filter(|pair| filters.matches(None, |name, test| attribute(pair, name, test)));
    // The separator sorts before every character of a type's name, so that keys sort as the rows do.
    let paged = page.cut(chosen, |(name, location)| format!("{name}\u{1}{location}"));
    let mut xml = Xml::new();
    xml.list("instanceTypeOfferingSet", paged.items, |xml, (name, location)| {
        xml.text("instanceType", name);
        xml.text("locationType", location_type);
        xml.text("location", location);
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}
