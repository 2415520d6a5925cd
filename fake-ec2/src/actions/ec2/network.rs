//! DescribeVpcs, DescribeSubnets, DescribeSecurityGroups, DescribeAvailabilityZones.

use super::{finish, page, tag_set};
use crate::cloud::Cloud;
use crate::cloud::catalogue::Zone;
use crate::cloud::filter::Test;
use crate::cloud::network::{SecurityGroup, Subnet, Vpc};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

// fidelity: documented(EC2 API Reference, DescribeVpcs)
pub(super) fn describe_vpcs(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, filters) = (query.list("VpcId"), query.filters()?);
    let page = page(query, 5, 1000, 1000)?;
    finish(query)?;
    filters.check(&["tag-key", "vpc-id", "cidr", "state", "is-default", "owner-id"])?;
    if let Some(missing) = ids.iter().find(|id| !cloud.network.vpcs.contains_key(**id)) {
        return Err(ApiError::client("InvalidVpcID.NotFound", format!("The vpc ID '{missing}' does not exist")));
    }
    let account = cloud.config.account.as_str();
    let attribute = |vpc: &Vpc, name: &str, test: Test<'_>| match name {
        "vpc-id" => test(&vpc.id),
        "cidr" => test(&vpc.cidr.to_string()),
        "state" => test("available"),
        "is-default" => test("false"),
        "owner-id" => test(account),
        _ => false,
    };
    let chosen = cloud.network.vpcs.values().filter(|vpc| ids.is_empty() || ids.contains(&vpc.id.as_str()));
    let chosen = chosen.filter(|vpc| filters.matches(Some(&vpc.tags), |name, test| attribute(vpc, name, test)));
    let paged = page.cut(chosen, |vpc| vpc.id.clone());
    let mut xml = Xml::new();
    xml.list("vpcSet", paged.items, |xml, vpc| {
        xml.text("vpcId", &vpc.id);
        xml.text("ownerId", account);
        xml.text("state", "available");
        xml.text("cidrBlock", vpc.cidr.to_string());
        xml.text("instanceTenancy", "default");
        xml.value("isDefault", false);
        tag_set(xml, &vpc.tags);
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

const SUBNET_FILTERS: [&str; 13] = [
    "tag-key",
    "subnet-id",
    "vpc-id",
    "availability-zone",
    "availabilityZone",
    "availability-zone-id",
    "availabilityZoneId",
    "cidr-block",
    "cidr",
    "state",
    "owner-id",
    "map-public-ip-on-launch",
    "available-ip-address-count",
];

// fidelity: documented(EC2 API Reference, DescribeSubnets)
pub(super) fn describe_subnets(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, filters) = (query.list("SubnetId"), query.filters()?);
    let page = page(query, 5, 1000, 1000)?;
    finish(query)?;
    filters.check(&SUBNET_FILTERS)?;
    for id in &ids {
        cloud.network.subnet(id)?;
    }
    let account = cloud.config.account.as_str();
    let attribute = |subnet: &Subnet, name: &str, test: Test<'_>| match name {
        "subnet-id" => test(&subnet.id),
        "vpc-id" => test(&subnet.vpc_id),
        "availability-zone" | "availabilityZone" => test(&subnet.zone),
        "availability-zone-id" | "availabilityZoneId" => test(&subnet.zone_id),
        "cidr-block" | "cidr" => test(&subnet.cidr.to_string()),
        "state" => test("available"),
        "owner-id" => test(account),
        "map-public-ip-on-launch" => test(if subnet.map_public_ip_on_launch { "true" } else { "false" }),
        "available-ip-address-count" => test(&subnet.available_addresses().to_string()),
        _ => false,
    };
    let chosen = cloud.network.subnets.values().filter(|subnet| ids.is_empty() || ids.contains(&subnet.id.as_str()));
    let chosen =
        chosen.filter(|subnet| filters.matches(Some(&subnet.tags), |name, test| attribute(subnet, name, test)));
    let paged = page.cut(chosen, |subnet| subnet.id.clone());
    let mut xml = Xml::new();
    xml.list("subnetSet", paged.items, |xml, subnet| {
        xml.text("subnetId", &subnet.id);
        xml.text("subnetArn", cloud.arn("ec2", &format!("subnet/{}", subnet.id)));
        xml.text("state", "available");
        xml.text("ownerId", account);
        xml.text("vpcId", &subnet.vpc_id);
        xml.text("cidrBlock", subnet.cidr.to_string());
        xml.value("availableIpAddressCount", subnet.available_addresses());
        xml.text("availabilityZone", &subnet.zone);
        xml.text("availabilityZoneId", &subnet.zone_id);
        xml.value("defaultForAz", false);
        xml.value("mapPublicIpOnLaunch", subnet.map_public_ip_on_launch);
        xml.value("assignIpv6AddressOnCreation", false);
        tag_set(xml, &subnet.tags);
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, DescribeSecurityGroups); rules are not modelled and answered as empty.
pub(super) fn describe_security_groups(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, names, filters) = (query.list("GroupId"), query.list("GroupName"), query.filters()?);
    let page = page(query, 5, 1000, 1000)?;
    finish(query)?;
    filters.check(&["tag-key", "group-id", "group-name", "vpc-id", "owner-id", "description"])?;
    for id in &ids {
        cloud.network.group(id)?;
    }
    let account = cloud.config.account.as_str();
    let attribute = |group: &SecurityGroup, name: &str, test: Test<'_>| match name {
        "group-id" => test(&group.id),
        "group-name" => test(&group.name),
        "vpc-id" => test(&group.vpc_id),
        "owner-id" => test(account),
        "description" => test(&group.description),
        _ => false,
    };
    let chosen = cloud
        .network
        .groups
        .values()
        .filter(|group| ids.is_empty() || ids.contains(&group.id.as_str()))
        .filter(|group| names.is_empty() || names.contains(&group.name.as_str()))
        .filter(|group| filters.matches(Some(&group.tags), |name, test| attribute(group, name, test)));
    let paged = page.cut(chosen, |group| group.id.clone());
    let mut xml = Xml::new();
    xml.list("securityGroupInfo", paged.items, |xml, group| {
        xml.text("ownerId", account);
        xml.text("groupId", &group.id);
        xml.text("groupName", &group.name);
        xml.text("groupDescription", &group.description);
        xml.text("vpcId", &group.vpc_id);
        for rules in ["ipPermissions", "ipPermissionsEgress"] {
            xml.open(rules);
            xml.close(rules);
        }
        tag_set(xml, &group.tags);
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, DescribeAvailabilityZones)
pub(super) fn describe_availability_zones(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (names, ids, filters) = (query.list("ZoneName"), query.list("ZoneId"), query.filters()?);
    query.ignore(&["AllAvailabilityZones"]);
    finish(query)?;
    filters.check(&["zone-name", "zone-id", "zone-type", "state", "region-name", "opt-in-status", "group-name"])?;
    if let Some(missing) = names.iter().find(|name| cloud.catalogue.zone(name).is_none()) {
        return Err(ApiError::invalid_value(format!("Invalid availability zone: [{missing}]")));
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
    let chosen = cloud
        .catalogue
        .zones
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
        xml.open("messageSet");
        xml.close("messageSet");
    });
    Ok(xml.into_string())
}
