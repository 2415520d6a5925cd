//! Where the account is: DescribeRegions, DescribeAvailabilityZones, and DescribeAccountAttributes.

use super::finish;
use crate::cloud::Cloud;
use crate::cloud::catalogue::{Zone, regions};
use crate::cloud::filter::Test;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

/// The zone a request names by `AvailabilityZone` or `AvailabilityZoneId`, if it names one.
pub(super) fn chosen_zone(
    cloud: &Cloud,
    query: &Query<'_>,
    refuse: impl Fn(String) -> ApiError,
) -> Result<Option<Zone>, ApiError> {
    let (name, id) = (query.text("AvailabilityZone"), query.text("AvailabilityZoneId"));
    if name.is_some() && id.is_some() {
        let message = "AvailabilityZone and AvailabilityZoneId cannot be used together.";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    let Some(wanted) = name.or(id) else { return Ok(None) };
    let zones = &cloud.catalogue.zones;
    let found = zones.iter().find(|zone| name == Some(zone.name) || id == Some(zone.id));
    let known = || zones.iter().map(|zone| if name.is_some() { zone.name } else { zone.id }).collect::<Vec<_>>();
    let refusal = || refuse(format!("The zone '{wanted}' does not exist. It has to be one of {}.", known().join(", ")));
    found.cloned().map(Some).ok_or_else(refusal)
}

// fidelity: documented(EC2 API Reference, DescribeRegions); the regions of which there are facts, all without opting in.
pub(super) fn describe_regions(query: &Query<'_>) -> Result<String, ApiError> {
    let (names, filters) = (query.list("RegionName"), query.filters()?);
    query.boolean("AllRegions")?;
    finish(query)?;
    filters.check(&["endpoint", "opt-in-status", "region-name"])?;
    if let Some(missing) = names.iter().find(|name| !regions().contains(name)) {
        return Err(ApiError::invalid_value(format!("Invalid region name: [{missing}]")));
    }
    let endpoint = |region: &str| format!("ec2.{region}.amazonaws.com");
    let attribute = |region: &str, name: &str, test: Test<'_>| match name {
        "endpoint" => test(&endpoint(region)),
        "opt-in-status" => test("opt-in-not-required"),
        "region-name" => test(region),
        _ => false,
    };
    let chosen = regions().iter().filter(|region| names.is_empty() || names.contains(region));
    let chosen = chosen.filter(|region| filters.matches(None, |name, test| attribute(region, name, test)));
    let mut xml = Xml::new();
    xml.list("regionInfo", chosen, |xml, region| {
        xml.text("regionName", region);
        xml.text("regionEndpoint", endpoint(region));
        xml.text("optInStatus", "opt-in-not-required");
    });
    Ok(xml.into_string())
}

const ZONE_FILTERS: [&str; 11] = [
    "group-long-name",
    "group-name",
    "message",
    "opt-in-status",
    "parent-zone-id",
    "parent-zone-name",
    "region-name",
    "state",
    "zone-id",
    "zone-name",
    "zone-type",
];

// fidelity: documented(EC2 API Reference, DescribeAvailabilityZones); assumed: the network border group is the region, and
// the group `REGION-zg-1` (documented since 2025) is told as the region's name
pub(super) fn describe_availability_zones(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (names, ids, filters) = (query.list("ZoneName"), query.list("ZoneId"), query.filters()?);
    // There are no local zones and no zones to opt in to.
    query.boolean("AllAvailabilityZones")?;
    finish(query)?;
    filters.check(&ZONE_FILTERS)?;
    let zones = &cloud.catalogue.zones;
    if let Some(missing) = names.iter().find(|name| cloud.catalogue.zone(name).is_none()) {
        return Err(ApiError::invalid_value(format!("Invalid availability zone: [{missing}]")));
    }
    if let Some(missing) = ids.iter().find(|id| !zones.iter().any(|zone| zone.id == **id)) {
        return Err(ApiError::invalid_value(format!("Invalid availability zone-id: [{missing}]")));
    }
    let region = cloud.config.region.as_str();
    let attribute = |zone: &Zone, name: &str, test: Test<'_>| match name {
        "zone-name" => test(zone.name),
        "zone-id" => test(zone.id),
        "zone-type" => test("availability-zone"),
        "state" => test("available"),
        "region-name" | "group-name" => test(region),
        "opt-in-status" => test("opt-in-not-required"),
        _ => false,
    };
    let chosen = zones
        .iter()
        .filter(|zone| names.is_empty() || names.contains(&zone.name))
        .filter(|zone| ids.is_empty() || ids.contains(&zone.id))
        .filter(|zone| filters.matches(None, |name, test| attribute(zone, name, test)));
    let mut xml = Xml::new();
    xml.list("availabilityZoneInfo", chosen, |xml, zone| {
        xml.text("zoneName", zone.name);
        xml.text("zoneState", "available");
        xml.text("regionName", region);
        xml.text("zoneId", zone.id);
        xml.text("groupName", region);
        xml.text("networkBorderGroup", region);
        xml.text("optInStatus", "opt-in-not-required");
        xml.text("zoneType", "availability-zone");
        xml.element("messageSet", |_| ());
    });
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, DescribeAccountAttributes: the attributes); assumed: the figures of new accounts
pub(super) fn describe_account_attributes(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let names = query.list("AttributeName");
    finish(query)?;
    let default_vpc = cloud.network.default_vpc().map_or("none", |vpc| vpc.id.as_str());
    let most_groups = cloud.config.limits.network.security_groups_per_interface.to_string();
    let attributes = [
        ("default-vpc", default_vpc),
        ("max-elastic-ips", "5"),
        ("max-instances", "20"),
        ("supported-platforms", "VPC"),
        ("vpc-max-elastic-ips", "5"),
        ("vpc-max-security-groups-per-interface", most_groups.as_str()),
    ];
    if let Some(unknown) = names.iter().find(|name| !attributes.iter().any(|(known, _)| known == *name)) {
        return Err(ApiError::invalid_value(format!("The attribute '{unknown}' is not valid.")));
    }
    let chosen = attributes.into_iter().filter(|(name, _)| names.is_empty() || names.contains(name));
    let mut xml = Xml::new();
    xml.list("accountAttributeSet", chosen, |xml, (name, value)| {
        xml.text("attributeName", name);
        xml.list("attributeValueSet", [value], |xml, value| xml.text("attributeValue", value));
    });
    Ok(xml.into_string())
}
