//! What every network has and nobody changes here: DescribeNetworkAcls, DescribeDhcpOptions, DescribePrefixLists,
//! DescribeManagedPrefixLists.

use super::describe::{Describe, test_boolean};
use super::tag_set;
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::ids::digits;
use crate::cloud::network::{DhcpOptions, NetworkAcl, PrefixList, Subnet, prefix_lists};
use crate::cloud::resource::Kind;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

const ACL_FILTERS: [&str; 18] = [
    "association.association-id",
    "association.network-acl-id",
    "association.subnet-id",
    "default",
    "entry.cidr",
    "entry.egress",
    "entry.icmp.code",
    "entry.icmp.type",
    "entry.ipv6-cidr",
    "entry.port-range.from",
    "entry.port-range.to",
    "entry.protocol",
    "entry.rule-action",
    "entry.rule-number",
    "network-acl-id",
    "owner-id",
    "tag-key",
    "vpc-id",
];

/// The rules of a default network ACL: number, whether they are for what goes out, and action.
// fidelity: documented(VPC User Guide, Default network ACL)
const ENTRIES: [(u16, bool, &str); 4] =
    [(100, true, "allow"), (32_767, true, "deny"), (100, false, "allow"), (32_767, false, "deny")];

// fidelity: documented(EC2 API Reference, DescribeNetworkAcls)
pub(super) fn describe_network_acls(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let asked = Describe::read(query, &Kind::NETWORK_ACL, "NetworkAclId", &ACL_FILTERS)?;
    let subnets = |acl: &NetworkAcl| {
        let vpc = acl.vpc_id.clone();
        cloud.network.subnets.values().filter(move |subnet| subnet.vpc_id == vpc)
    };
    let attribute = |acl: &&NetworkAcl, name: &str, test: Test<'_>| match name {
        "association.association-id" => subnets(acl).any(|subnet| test(&association_id(subnet))),
        "association.network-acl-id" => subnets(acl).next().is_some() && test(&acl.id),
        "association.subnet-id" => subnets(acl).any(|subnet| test(&subnet.id)),
        "default" => test_boolean(true, test),
        "entry.cidr" => test("0.0.0.0/0"),
        "entry.egress" => ENTRIES.iter().any(|(_, egress, _)| test_boolean(*egress, test)),
        "entry.protocol" => test("-1"),
        "entry.rule-action" => ENTRIES.iter().any(|(_, _, action)| test(action)),
        "entry.rule-number" => ENTRIES.iter().any(|(number, _, _)| test(&number.to_string())),
        "network-acl-id" => test(&acl.id),
        "owner-id" => test(&cloud.config.account),
        "vpc-id" => test(&acl.vpc_id),
        _ => false,
    };
    let paged = asked.choose(cloud.network.acls.values(), |acl| &acl.id, |acl| &acl.tags, attribute)?;
    let mut xml = Xml::new();
    xml.list("networkAclSet", paged.items, |xml, acl| {
        xml.text("networkAclId", &acl.id);
        xml.text("vpcId", &acl.vpc_id);
        xml.text("ownerId", &cloud.config.account);
        xml.value("default", true);
        xml.list("entrySet", ENTRIES, |xml, (number, egress, action)| {
            xml.value("ruleNumber", number);
            xml.text("protocol", "-1");
            xml.text("ruleAction", action);
            xml.value("egress", egress);
            xml.text("cidrBlock", "0.0.0.0/0");
        });
        xml.list("associationSet", subnets(acl), |xml, subnet| {
            xml.text("networkAclAssociationId", association_id(subnet));
            xml.text("networkAclId", &acl.id);
            xml.text("subnetId", &subnet.id);
        });
        tag_set(xml, &acl.tags);
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

/// The association of a subnet with its VPC's network ACL, which nothing else has to know.
fn association_id(subnet: &Subnet) -> String {
    format!("aclassoc-{}", digits(0, &["acl", &subnet.id]))
}

// fidelity: documented(EC2 API Reference, DescribeDhcpOptions; VPC User Guide, DHCP option sets: the default set)
pub(super) fn describe_dhcp_options(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let filters = ["dhcp-options-id", "key", "owner-id", "tag-key", "value"];
    let asked = Describe::read(query, &Kind::DHCP_OPTIONS, "DhcpOptionsId", &filters)?;
    let domain = match cloud.config.region.as_str() {
        "us-east-1" => "ec2.internal".to_owned(),
        region => format!("{region}.compute.internal"),
    };
    let options = [("domain-name", domain.as_str()), ("domain-name-servers", "AmazonProvidedDNS")];
    let attribute = |own: &&DhcpOptions, name: &str, test: Test<'_>| match name {
        "dhcp-options-id" => test(&own.id),
        "key" => options.iter().any(|(key, _)| test(key)),
        "value" => options.iter().any(|(_, value)| test(value)),
        "owner-id" => test(&cloud.config.account),
        _ => false,
    };
    let paged = asked.choose(&cloud.network.dhcp_options, |own| &own.id, |own| &own.tags, attribute)?;
    let mut xml = Xml::new();
    xml.list("dhcpOptionsSet", paged.items, |xml, own| {
        xml.text("dhcpOptionsId", &own.id);
        xml.text("ownerId", &cloud.config.account);
        xml.list("dhcpConfigurationSet", options, |xml, (key, value)| {
            xml.text("key", key);
            xml.list("valueSet", [value], |xml, value| xml.text("value", value));
        });
        tag_set(xml, &own.tags);
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, DescribePrefixLists)
pub(super) fn describe_prefix_lists(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let filters = ["prefix-list-id", "prefix-list-name"];
    let asked = Describe::read(query, &Kind::PREFIX_LIST, "PrefixListId", &filters)?;
    write_lists(cloud, &asked, |xml, list| {
        xml.text("prefixListId", &list.id);
        xml.text("prefixListName", &list.name);
        xml.texts("cidrSet", &list.cidrs);
    })
}

// fidelity: documented(EC2 API Reference, DescribeManagedPrefixLists: of AWS's lists, no version and no maximum is told)
pub(super) fn describe_managed_prefix_lists(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let filters = ["owner-id", "prefix-list-id", "prefix-list-name"];
    let asked = Describe::bounded(query, &Kind::PREFIX_LIST, "PrefixListId", &filters, 1, 100)?;
    let region = cloud.config.region.as_str();
    write_lists(cloud, &asked, |xml, list| {
        xml.text("prefixListId", &list.id);
        xml.text("addressFamily", "IPv4");
        xml.text("state", "create-complete");
        xml.text("prefixListArn", format!("arn:aws:ec2:{region}:aws:prefix-list/{}", list.id));
        xml.text("prefixListName", &list.name);
        xml.element("tagSet", |_| ());
        xml.text("ownerId", "AWS");
    })
}

fn write_lists(
    cloud: &Cloud,
    asked: &Describe<'_>,
    mut write: impl FnMut(&mut Xml, PrefixList),
) -> Result<String, ApiError> {
    let attribute = |list: &PrefixList, name: &str, test: Test<'_>| match name {
        "owner-id" => test("AWS"),
        "prefix-list-id" => test(&list.id),
        "prefix-list-name" => test(&list.name),
        _ => false,
    };
    let lists = prefix_lists(&cloud.config.region);
    let paged = asked.choose(lists, |list| &list.id, |_| const { &Tags::new() }, attribute)?;
    let mut xml = Xml::new();
    xml.list("prefixListSet", paged.items, &mut write);
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}
