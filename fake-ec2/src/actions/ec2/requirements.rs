//! InstanceRequirements as they are asked, and GetInstanceTypesFromInstanceRequirements.

use super::{finish, page};
use crate::cloud::Cloud;
use crate::cloud::requirements::{Bounds, Inclusion, InstanceRequirements};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

/// Patterns that AllowedInstanceTypes and ExcludedInstanceTypes may have.
// fidelity: documented(EC2 API Reference, InstanceRequirementsRequest: up to 400 items)
const MAX_PATTERNS: usize = 400;

/// Reads what is below `InstanceRequirements`.
// fidelity: documented(EC2 API Reference, InstanceRequirementsRequest: VCpuCount and MemoryMiB are required; allowed and
// excluded types, and the two thresholds for spot, exclude each other)
pub(super) fn read(query: &Query<'_>) -> Result<InstanceRequirements, ApiError> {
    for required in ["VCpuCount.Min", "MemoryMiB.Min"] {
        query.required(required)?;
    }
    let list = |name: &str| -> Vec<String> { query.list(name).into_iter().map(str::to_owned).collect() };
    let requirements = InstanceRequirements {
        vcpus: bounds(query, "VCpuCount")?,
        memory_mib: bounds(query, "MemoryMiB")?,
        cpu_manufacturers: choices(query, "CpuManufacturer", &["intel", "amd", "amazon-web-services", "apple"])?,
        memory_gib_per_vcpu: bounds(query, "MemoryGiBPerVCpu")?,
        excluded_types: list("ExcludedInstanceType"),
        allowed_types: list("AllowedInstanceType"),
        generations: choices(query, "InstanceGeneration", &["current", "previous"])?,
        bare_metal: inclusion(query, "BareMetal")?.unwrap_or_default(),
        burstable: inclusion(query, "BurstablePerformance")?.unwrap_or_default(),
        hibernation: query.boolean("RequireHibernateSupport")?.unwrap_or(false),
        network_interfaces: bounds(query, "NetworkInterfaceCount")?,
        local_storage: inclusion(query, "LocalStorage")?,
        local_storage_types: choices(query, "LocalStorageType", &["hdd", "ssd"])?,
        local_storage_gb: bounds(query, "TotalLocalStorageGB")?,
        ebs_baseline_mbps: bounds(query, "BaselineEbsBandwidthMbps")?,
        accelerator_types: choices(query, "AcceleratorType", &["gpu", "fpga", "inference", "media"])?,
        accelerator_count: bounds(query, "AcceleratorCount")?,
        accelerator_manufacturers: choices(
            query,
            "AcceleratorManufacturer",
            &["amazon-web-services", "amd", "nvidia", "xilinx", "habana"],
        )?,
        accelerator_names: list("AcceleratorName"),
        accelerator_memory_mib: bounds(query, "AcceleratorTotalMemoryMiB")?,
        network_gbps: bounds(query, "NetworkBandwidthGbps")?,
        encryption_in_transit: query.boolean("RequireEncryptionInTransit")?.unwrap_or(false),
        spot_over_lowest_percent: percent(query, "SpotMaxPricePercentageOverLowestPrice")?,
        on_demand_over_lowest_percent: percent(query, "OnDemandMaxPricePercentageOverLowestPrice")?,
        spot_of_on_demand_percent: percent(query, "MaxSpotPriceAsPercentageOfOptimalOnDemandPrice")?,
        members: query.members(&KNOWN),
    };
    check(&requirements)?;
    query.ignore("told again; no public table has the figures to exclude a type by", &["BaselinePerformanceFactors"]);
    Ok(requirements)
}

const KNOWN: [&str; 26] = [
    "VCpuCount",
    "MemoryMiB",
    "CpuManufacturer",
    "MemoryGiBPerVCpu",
    "ExcludedInstanceType",
    "InstanceGeneration",
    "SpotMaxPricePercentageOverLowestPrice",
    "OnDemandMaxPricePercentageOverLowestPrice",
    "BareMetal",
    "BurstablePerformance",
    "RequireHibernateSupport",
    "NetworkInterfaceCount",
    "LocalStorage",
    "LocalStorageType",
    "TotalLocalStorageGB",
    "BaselineEbsBandwidthMbps",
    "AcceleratorType",
    "AcceleratorCount",
    "AcceleratorManufacturer",
    "AcceleratorName",
    "AcceleratorTotalMemoryMiB",
    "NetworkBandwidthGbps",
    "AllowedInstanceType",
    "MaxSpotPriceAsPercentageOfOptimalOnDemandPrice",
    "BaselinePerformanceFactors",
    "RequireEncryptionInTransit",
];

fn check(requirements: &InstanceRequirements) -> Result<(), ApiError> {
    let exclusive = |both: bool, first: &str, second: &str| match both {
        true => Err(ApiError::client(
            "InvalidParameterCombination",
            format!("{first} and {second} can't be specified together; specify one of them."),
        )),
        false => Ok(()),
    };
    let (allowed, excluded) = (&requirements.allowed_types, &requirements.excluded_types);
    exclusive(!allowed.is_empty() && !excluded.is_empty(), "AllowedInstanceTypes", "ExcludedInstanceTypes")?;
    exclusive(
        requirements.spot_over_lowest_percent.is_some() && requirements.spot_of_on_demand_percent.is_some(),
        "SpotMaxPricePercentageOverLowestPrice",
        "MaxSpotPriceAsPercentageOfOptimalOnDemandPrice",
    )?;
    match allowed.len().max(excluded.len()) {
        count if count > MAX_PATTERNS => Err(ApiError::invalid_value(format!(
            "At most {MAX_PATTERNS} instance types can be named; {count} were given."
        ))),
        _ => Ok(()),
    }
}

fn bounds(query: &Query<'_>, name: &str) -> Result<Bounds, ApiError> {
    let bounds = Bounds { min: query.number(&format!("{name}.Min"))?, max: query.number(&format!("{name}.Max"))? };
    match (bounds.min, bounds.max) {
        (Some(min), Some(max)) if min > max => {
            Err(ApiError::invalid_value(format!("The minimum {min} of {name} is greater than its maximum {max}.")))
        }
        (min, max) if min.into_iter().chain(max).any(|value: f64| value.is_nan() || value < 0.0) => {
            Err(ApiError::invalid_value(format!("{name} can't be negative.")))
        }
        _ => Ok(bounds),
    }
}

fn percent(query: &Query<'_>, name: &str) -> Result<Option<f64>, ApiError> {
    let percent: Option<u32> = query.number(name)?;
    Ok(percent.map(f64::from))
}

fn inclusion(query: &Query<'_>, name: &str) -> Result<Option<Inclusion>, ApiError> {
    let chosen = query.choice(name, &["included", "required", "excluded"])?;
    Ok(chosen.map(|text| match text.as_str() {
        "included" => Inclusion::Included,
        "required" => Inclusion::Required,
        _ => Inclusion::Excluded,
    }))
}

fn choices(query: &Query<'_>, name: &str, known: &[&str]) -> Result<Vec<String>, ApiError> {
    let given = query.list(name);
    match given.iter().find(|value| !known.contains(value)) {
        None => Ok(given.into_iter().map(str::to_owned).collect()),
        Some(value) => Err(ApiError::invalid_value(format!(
            "Value ({value}) for parameter {name} is invalid. Valid values are: {}",
            known.join(", ")
        ))),
    }
}

// fidelity: documented(EC2 API Reference, GetInstanceTypesFromInstanceRequirements: by attributes alone, prices are not
// looked at; 1 to 1000 results)
pub(super) fn get_instance_types(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let architectures = choices(query, "ArchitectureType", &["i386", "x86_64", "arm64", "x86_64_mac", "arm64_mac"])?;
    let virtualization = choices(query, "VirtualizationType", &["hvm", "paravirtual"])?;
    let part = query.structure("InstanceRequirements").ok_or_else(|| ApiError::missing("InstanceRequirements"))?;
    let requirements = read(&part)?;
    let page = page(query, 1, 1000, 1000)?;
    query.ignore("reserved by AWS", &["Context"]);
    finish(query)?;
    for (name, given) in [("ArchitectureType", &architectures), ("VirtualizationType", &virtualization)] {
        if given.is_empty() {
            return Err(ApiError::missing(name));
        }
    }
    let architectures: Vec<&str> = architectures.iter().map(String::as_str).collect();
    let virtualized = |types: &str| types.split(',').any(|own| virtualization.iter().any(|wanted| wanted == own));
    let chosen = cloud.types_with(&requirements, &architectures).into_iter().map(|offering| offering.instance_type);
    let chosen = chosen.filter(|own| virtualized(own.virtualization_types));
    let paged = page.cut(chosen, |own| own.name.to_owned());
    let mut xml = Xml::new();
    xml.list("instanceTypeSet", paged.items, |xml, own| xml.text("instanceType", own.name));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}
