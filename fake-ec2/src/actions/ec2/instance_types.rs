//! DescribeInstanceTypes and DescribeInstanceTypeOfferings: the catalogue, copied to the wire.

use super::{finish, page};
use crate::cloud::Cloud;
use crate::cloud::catalogue::{InstanceType, Offering};
use crate::cloud::filter::Test;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

const FILTERS: [&str; 9] = [
    "instance-type",
    "supported-virtualization-type",
    "supported-usage-class",
    "processor-info.supported-architecture",
    "bare-metal",
    "current-generation",
    "hypervisor",
    "memory-info.size-in-mib",
    "vcpu-info.default-vcpus",
];

// fidelity: documented(EC2 API Reference, DescribeInstanceTypes: 5 to 100 results, 100 by default)
pub(super) fn describe_instance_types(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (names, filters) = (query.list("InstanceType"), query.filters()?);
    let page = page(query, 5, 100, 100)?;
    query.ignore(&["IncludeUnsupportedInRegion"]);
    finish(query)?;
    filters.check(&FILTERS)?;
    let unknown: Vec<&str> = names.iter().copied().filter(|name| cloud.catalogue.offering(name).is_none()).collect();
    if !unknown.is_empty() {
        let message = format!("The following supplied instance types do not exist: [{}]", unknown.join(", "));
        return Err(ApiError::client("InvalidInstanceType", message));
    }
    let chosen = cloud
        .catalogue
        .offerings()
        .iter()
        .map(|offering| offering.instance_type)
        .filter(|own| names.is_empty() || names.contains(&own.name))
        .filter(|own| filters.matches(None, |name, test| attribute(own, name, test)));
    let paged = page.cut(chosen, |own| own.name.to_owned());
    let mut xml = Xml::new();
    xml.list("instanceTypeSet", paged.items, |xml, own| xml.raw(own.xml));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

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
        _ => false,
    }
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
