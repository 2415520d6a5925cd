//! VPCs: CreateVpc, CreateDefaultVpc, DeleteVpc, DescribeVpcs, their attributes and further ranges.

use super::describe::{Describe, test_boolean};
use super::tags::tag_specification;
use super::{finish, refuse_unsupported, returned_true, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::network::{Cidr, CidrAssociation, Vpc};
use crate::cloud::resource::Kind;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

/// Ways to get a range that are not played: IPAM, IPv6.
const OTHER_RANGES: [&str; 7] = [
    "Ipv4IpamPoolId",
    "Ipv4NetmaskLength",
    "Ipv6CidrBlock",
    "Ipv6CidrBlockNetworkBorderGroup",
    "Ipv6IpamPoolId",
    "Ipv6NetmaskLength",
    "Ipv6Pool",
];

// fidelity: documented(EC2 API Reference, CreateVpc)
pub(super) fn create_vpc(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let cidr = read_range(query)?;
    let tenancy = query.text("InstanceTenancy").unwrap_or("default");
    if !["default", "dedicated"].contains(&tenancy) {
        return Err(ApiError::invalid_value(format!(
            "Value ({tenancy}) for parameter instanceTenancy is invalid. It has to be default or dedicated."
        )));
    }
    refuse_unsupported(query, &["VpcEncryptionControl"])?;
    let tags = tag_specification(query, &Kind::VPC)?;
    finish(query)?;
    cloud.network.check_room_for_vpc(&cloud.config.limits.network)?;
    let id = cloud.network.create_vpc(&mut cloud.ids, cidr, tenancy, false, tags);
    told(cloud, &id)
}

/// The IPv4 range that creating and widening a VPC ask for.
// fidelity: documented(VPC User Guide, VPC CIDR blocks: /28 to /16); assumed: the code is InvalidVpc.Range, as commonly seen, where the
// error codes' page says InvalidVpcRange
fn read_range(query: &Query<'_>) -> Result<Cidr, ApiError> {
    refuse_unsupported(query, &OTHER_RANGES)?;
    if query.boolean("AmazonProvidedIpv6CidrBlock")? == Some(true) {
        return Err(ApiError::client("UnsupportedOperation", "IPv6 ranges are not supported here."));
    }
    let text = query.required("CidrBlock")?;
    let cidr = parse_cidr("cidrBlock", text)?;
    match cidr.is_network_size() {
        true => Ok(cidr),
        false => Err(ApiError::client("InvalidVpc.Range", format!("The CIDR '{text}' is invalid."))),
    }
}

pub(super) fn parse_cidr(parameter: &str, text: &str) -> Result<Cidr, ApiError> {
    Cidr::parse(text).ok_or_else(|| {
        ApiError::invalid_value(format!(
            "Value ({text}) for parameter {parameter} is invalid. This is not a valid CIDR block."
        ))
    })
}

// fidelity: documented(EC2 API Reference, CreateDefaultVpc)
pub(super) fn create_default_vpc(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    finish(query)?;
    let Cloud { network, ids, catalogue, .. } = &mut *cloud;
    let id = network.create_default_vpc(ids, &catalogue.zones)?;
    told(cloud, &id)
}

fn told(cloud: &Cloud, id: &str) -> Result<String, ApiError> {
    let vpc = cloud.network.vpc(id)?;
    let mut xml = Xml::new();
    xml.element("vpc", |xml| write_vpc(xml, cloud, vpc));
    Ok(xml.into_string())
}

pub(super) fn delete_vpc(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("VpcId")?;
    finish(query)?;
    cloud.network.delete_vpc(id)?;
    Ok(returned_true())
}

const FILTERS: [&str; 15] = [
    "cidr",
    "cidr-block-association.association-id",
    "cidr-block-association.cidr-block",
    "cidr-block-association.state",
    "dhcp-options-id",
    "ipv6-cidr-block-association.association-id",
    "ipv6-cidr-block-association.ipv6-cidr-block",
    "ipv6-cidr-block-association.ipv6-pool",
    "ipv6-cidr-block-association.state",
    "is-default",
    "isDefault",
    "owner-id",
    "state",
    "tag-key",
    "vpc-id",
];

// fidelity: documented(EC2 API Reference, DescribeVpcs)
pub(super) fn describe_vpcs(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let asked = Describe::read(query, &Kind::VPC, "VpcId", &FILTERS)?;
    let account = cloud.config.account.as_str();
    let ranges = |vpc: &Vpc, test: &mut dyn FnMut(&CidrAssociation) -> bool| vpc.cidr_associations.iter().any(test);
    let attribute = |vpc: &&Vpc, name: &str, test: Test<'_>| match name {
        "vpc-id" => test(&vpc.id),
        "cidr" => test(&vpc.cidr.to_string()),
        "cidr-block-association.association-id" => ranges(vpc, &mut |own| test(&own.id)),
        "cidr-block-association.cidr-block" => ranges(vpc, &mut |own| test(&own.cidr.to_string())),
        "cidr-block-association.state" => test("associated"),
        "dhcp-options-id" => test(&vpc.dhcp_options_id),
        "state" => test("available"),
        "is-default" | "isDefault" => test_boolean(vpc.is_default, test),
        "owner-id" => test(account),
        _ => false,
    };
    let paged = asked.choose(cloud.network.vpcs.values(), |vpc| &vpc.id, |vpc| &vpc.tags, attribute)?;
    let mut xml = Xml::new();
    xml.list("vpcSet", paged.items, |xml, vpc| write_vpc(xml, cloud, vpc));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn write_vpc(xml: &mut Xml, cloud: &Cloud, vpc: &Vpc) {
    xml.text("vpcId", &vpc.id);
    xml.text("ownerId", &cloud.config.account);
    xml.text("state", "available");
    xml.text("cidrBlock", vpc.cidr.to_string());
    xml.list("cidrBlockAssociationSet", &vpc.cidr_associations, |xml, own| write_range(xml, own, "associated"));
    xml.element("ipv6CidrBlockAssociationSet", |_| ());
    xml.text("dhcpOptionsId", &vpc.dhcp_options_id);
    xml.text("instanceTenancy", &vpc.tenancy);
    xml.value("isDefault", vpc.is_default);
    tag_set(xml, &vpc.tags);
}

fn write_range(xml: &mut Xml, association: &CidrAssociation, state: &str) {
    xml.text("associationId", &association.id);
    xml.text("cidrBlock", association.cidr.to_string());
    xml.element("cidrBlockState", |xml| xml.text("state", state));
}

/// Adds a further range.
pub(super) fn associate_cidr_block(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("VpcId")?;
    let cidr = read_range(query)?;
    finish(query)?;
    let association = cloud.network.associate_cidr(&mut cloud.ids, &cloud.config.limits.network, id, cidr)?;
    Ok(write_change(id, &association, "associating"))
}

/// Takes a further range away.
pub(super) fn disassociate_cidr_block(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let association = query.required("AssociationId")?;
    finish(query)?;
    let (id, association) = cloud.network.disassociate_cidr(association)?;
    Ok(write_change(&id, &association, "disassociating"))
}

fn write_change(id: &str, association: &CidrAssociation, state: &str) -> String {
    let mut xml = Xml::new();
    xml.element("cidrBlockAssociation", |xml| write_range(xml, association, state));
    xml.text("vpcId", id);
    xml.into_string()
}

// fidelity: documented(EC2 API Reference, ModifyVpcAttribute: one attribute in each call); assumed: the code for several
pub(super) fn modify_vpc_attribute(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("VpcId")?;
    let support = query.boolean("EnableDnsSupport.Value")?;
    let hostnames = query.boolean("EnableDnsHostnames.Value")?;
    let metrics = query.boolean("EnableNetworkAddressUsageMetrics.Value")?;
    finish(query)?;
    cloud.network.vpc(id)?;
    match [support, hostnames, metrics].iter().flatten().count() {
        0 => return Err(ApiError::missing("EnableDnsSupport, EnableDnsHostnames or EnableNetworkAddressUsageMetrics")),
        1 => {}
        _ => {
            let message = "Only one attribute can be modified at a time.";
            return Err(ApiError::client("InvalidParameterCombination", message));
        }
    }
    cloud.network.vpcs.entry(id.into()).and_modify(|vpc| {
        vpc.dns_support = support.unwrap_or(vpc.dns_support);
        vpc.dns_hostnames = hostnames.unwrap_or(vpc.dns_hostnames);
        vpc.network_address_usage_metrics = metrics.unwrap_or(vpc.network_address_usage_metrics);
    });
    Ok(returned_true())
}

// fidelity: documented(EC2 API Reference, DescribeVpcAttribute)
pub(super) fn describe_vpc_attribute(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, attribute) = (query.required("VpcId")?, query.required("Attribute")?);
    finish(query)?;
    let vpc = cloud.network.vpc(id)?;
    let value = match attribute {
        "enableDnsSupport" => vpc.dns_support,
        "enableDnsHostnames" => vpc.dns_hostnames,
        "enableNetworkAddressUsageMetrics" => vpc.network_address_usage_metrics,
        other => {
            let message = format!(
                "Value ({other}) for parameter attribute is invalid. It has to be enableDnsSupport, enableDnsHostnames or \
                 enableNetworkAddressUsageMetrics."
            );
            return Err(ApiError::invalid_value(message));
        }
    };
    let mut xml = Xml::new();
    xml.text("vpcId", id);
    xml.element(attribute, |xml| xml.value("value", value));
    Ok(xml.into_string())
}
