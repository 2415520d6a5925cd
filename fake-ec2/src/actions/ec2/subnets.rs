//! Subnets: CreateSubnet, CreateDefaultSubnet, DeleteSubnet, ModifySubnetAttribute, DescribeSubnets.

use super::describe::{Describe, test_boolean};
use super::tags::tag_specification;
use super::vpcs::parse_cidr;
use super::zones::chosen_zone;
use super::{finish, refuse_unsupported, returned_true, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::network::Subnet;
use crate::cloud::resource::Kind;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

/// Ranges and places that are not played: IPAM, IPv6, Outposts.
const OTHER_RANGES: [&str; 6] =
    ["Ipv4IpamPoolId", "Ipv4NetmaskLength", "Ipv6CidrBlock", "Ipv6IpamPoolId", "Ipv6NetmaskLength", "OutpostArn"];

// fidelity: documented(EC2 API Reference, CreateSubnet); assumed: where none is named, the first zone is chosen
pub(super) fn create_subnet(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let vpc = query.required("VpcId")?;
    refuse_unsupported(query, &OTHER_RANGES)?;
    refuse_ipv6_native(query)?;
    let cidr = parse_cidr("cidrBlock", query.required("CidrBlock")?)?;
    let zone = chosen_zone(cloud, query, ApiError::invalid_value)?;
    let tags = tag_specification(query, &Kind::SUBNET)?;
    finish(query)?;
    let Cloud { network, ids, catalogue, config, .. } = &mut *cloud;
    let zone = zone.or_else(|| catalogue.zones.first().cloned()).expect("a region has zones");
    let id = network.create_subnet((ids, &config.limits.network), vpc, &zone, cidr, tags)?;
    told(cloud, &id)
}

// fidelity: documented(EC2 API Reference, CreateDefaultSubnet)
pub(super) fn create_default_subnet(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    refuse_ipv6_native(query)?;
    let zone = chosen_zone(cloud, query, ApiError::invalid_value)?;
    finish(query)?;
    let zone = zone.ok_or_else(|| ApiError::missing("AvailabilityZone"))?;
    let id = cloud.network.create_default_subnet(&mut cloud.ids, &zone)?;
    told(cloud, &id)
}

fn refuse_ipv6_native(query: &Query<'_>) -> Result<(), ApiError> {
    match query.boolean("Ipv6Native")? {
        Some(true) => Err(ApiError::client("UnsupportedOperation", "IPv6-only subnets are not supported here.")),
        _ => Ok(()),
    }
}

fn told(cloud: &Cloud, id: &str) -> Result<String, ApiError> {
    let subnet = cloud.network.subnet(id)?;
    let mut xml = Xml::new();
    xml.element("subnet", |xml| write_subnet(xml, cloud, subnet));
    Ok(xml.into_string())
}

pub(super) fn delete_subnet(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("SubnetId")?;
    finish(query)?;
    cloud.network.delete_subnet(id)?;
    Ok(returned_true())
}

// fidelity: documented(EC2 API Reference, ModifySubnetAttribute: one attribute in each call); assumed: the code for several
pub(super) fn modify_subnet_attribute(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("SubnetId")?;
    let public = query.boolean("MapPublicIpOnLaunch.Value")?;
    let hostname_type = query.text("PrivateDnsHostnameTypeOnLaunch");
    let a_record = query.boolean("EnableResourceNameDnsARecordOnLaunch.Value")?;
    let aaaa_record = query.boolean("EnableResourceNameDnsAAAARecordOnLaunch.Value")?;
    let ipv6 = query.boolean("AssignIpv6AddressOnCreation.Value")?;
    let dns64 = query.boolean("EnableDns64.Value")?;
    let unplayed =
        ["CustomerOwnedIpv4Pool", "DisableLniAtDeviceIndex", "EnableLniAtDeviceIndex", "MapCustomerOwnedIpOnLaunch"];
    refuse_unsupported(query, &unplayed)?;
    finish(query)?;
    cloud.network.subnet(id)?;
    let given = [public, a_record, aaaa_record, ipv6, dns64].iter().flatten().count();
    match given + usize::from(hostname_type.is_some()) {
        0 => return Err(ApiError::missing("MapPublicIpOnLaunch or another attribute")),
        1 => {}
        _ => {
            let message = "Only one attribute can be modified at a time.";
            return Err(ApiError::client("InvalidParameterCombination", message));
        }
    }
    if ipv6 == Some(true) || dns64 == Some(true) {
        let name = if ipv6 == Some(true) { "assignIpv6AddressOnCreation" } else { "enableDns64" };
        let message = format!("Invalid value 'true' for {name}. Subnet {id} has no associated IPv6 CIDR block.");
        return Err(ApiError::invalid_value(message));
    }
    if let Some(other) = hostname_type.filter(|name| !["ip-name", "resource-name"].contains(name)) {
        return Err(ApiError::invalid_value(format!(
            "Value ({other}) for parameter privateDnsHostnameTypeOnLaunch is invalid. It has to be ip-name or resource-name."
        )));
    }
    cloud.network.subnets.entry(id.into()).and_modify(|subnet| {
        subnet.map_public_ip_on_launch = public.unwrap_or(subnet.map_public_ip_on_launch);
        let names = &mut subnet.private_dns;
        names.resource_name_a_record = a_record.unwrap_or(names.resource_name_a_record);
        names.resource_name_aaaa_record = aaaa_record.unwrap_or(names.resource_name_aaaa_record);
        if let Some(hostname_type) = hostname_type {
            names.hostname_type = hostname_type.into();
        }
    });
    Ok(returned_true())
}

const FILTERS: [&str; 29] = [
    "availability-zone",
    "availability-zone-id",
    "availabilityZone",
    "availabilityZoneId",
    "available-ip-address-count",
    "cidr",
    "cidr-block",
    "cidrBlock",
    "customer-owned-ipv4-pool",
    "default-for-az",
    "defaultForAz",
    "enable-dns64",
    "enable-lni-at-device-index",
    "ipv6-cidr-block-association.association-id",
    "ipv6-cidr-block-association.ipv6-cidr-block",
    "ipv6-cidr-block-association.state",
    "ipv6-native",
    "map-customer-owned-ip-on-launch",
    "map-public-ip-on-launch",
    "outpost-arn",
    "owner-id",
    "private-dns-name-options-on-launch.enable-resource-name-dns-a-record",
    "private-dns-name-options-on-launch.enable-resource-name-dns-aaaa-record",
    "private-dns-name-options-on-launch.hostname-type",
    "state",
    "subnet-arn",
    "subnet-id",
    "tag-key",
    "vpc-id",
];

// fidelity: documented(EC2 API Reference, DescribeSubnets)
pub(super) fn describe_subnets(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let asked = Describe::read(query, &Kind::SUBNET, "SubnetId", &FILTERS)?;
    let attribute = |subnet: &&Subnet, name: &str, test: Test<'_>| match name {
        "subnet-id" => test(&subnet.id),
        "subnet-arn" => test(&arn(cloud, subnet)),
        "vpc-id" => test(&subnet.vpc_id),
        "availability-zone" | "availabilityZone" => test(&subnet.zone),
        "availability-zone-id" | "availabilityZoneId" => test(&subnet.zone_id),
        "cidr-block" | "cidr" | "cidrBlock" => test(&subnet.cidr.to_string()),
        "state" => test("available"),
        "owner-id" => test(&cloud.config.account),
        "default-for-az" | "defaultForAz" => test_boolean(subnet.default_for_zone, test),
        "map-public-ip-on-launch" => test_boolean(subnet.map_public_ip_on_launch, test),
        "available-ip-address-count" => test(&subnet.available_addresses().to_string()),
        "private-dns-name-options-on-launch.hostname-type" => test(&subnet.private_dns.hostname_type),
        "private-dns-name-options-on-launch.enable-resource-name-dns-a-record" => {
            test_boolean(subnet.private_dns.resource_name_a_record, test)
        }
        "private-dns-name-options-on-launch.enable-resource-name-dns-aaaa-record" => {
            test_boolean(subnet.private_dns.resource_name_aaaa_record, test)
        }
        "enable-dns64" | "ipv6-native" | "map-customer-owned-ip-on-launch" => test_boolean(false, test),
        _ => false,
    };
    let paged = asked.choose(cloud.network.subnets.values(), |subnet| &subnet.id, |subnet| &subnet.tags, attribute)?;
    let mut xml = Xml::new();
    xml.list("subnetSet", paged.items, |xml, subnet| write_subnet(xml, cloud, subnet));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn arn(cloud: &Cloud, subnet: &Subnet) -> String {
    cloud.arn("ec2", &format!("subnet/{}", subnet.id))
}

fn write_subnet(xml: &mut Xml, cloud: &Cloud, subnet: &Subnet) {
    xml.text("subnetId", &subnet.id);
    xml.text("subnetArn", arn(cloud, subnet));
    xml.text("state", "available");
    xml.text("ownerId", &cloud.config.account);
    xml.text("vpcId", &subnet.vpc_id);
    xml.text("cidrBlock", subnet.cidr.to_string());
    xml.element("ipv6CidrBlockAssociationSet", |_| ());
    xml.value("availableIpAddressCount", subnet.available_addresses());
    xml.text("availabilityZone", &subnet.zone);
    xml.text("availabilityZoneId", &subnet.zone_id);
    xml.value("defaultForAz", subnet.default_for_zone);
    xml.value("mapPublicIpOnLaunch", subnet.map_public_ip_on_launch);
    xml.value("mapCustomerOwnedIpOnLaunch", false);
    xml.value("assignIpv6AddressOnCreation", false);
    xml.value("enableDns64", false);
    xml.value("ipv6Native", false);
    xml.element("privateDnsNameOptionsOnLaunch", |xml| {
        xml.text("hostnameType", &subnet.private_dns.hostname_type);
        xml.value("enableResourceNameDnsARecord", subnet.private_dns.resource_name_a_record);
        xml.value("enableResourceNameDnsAAAARecord", subnet.private_dns.resource_name_aaaa_record);
    });
    tag_set(xml, &subnet.tags);
}
