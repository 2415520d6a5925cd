//! Security groups: CreateSecurityGroup, DeleteSecurityGroup, DescribeSecurityGroups.

use super::describe::{Describe, test_number};
use super::tags::tag_specification;
use super::{finish, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::network::{Direction, Peer, SecurityGroup, SecurityGroupRule, group_in_use};
use crate::cloud::resource::Kind;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use std::collections::BTreeMap;

/// The longest name and description, in characters.
// fidelity: documented(EC2 API Reference, CreateSecurityGroup: 255 characters of a set)
const MAX_TEXT: usize = 255;

/// Whether a name or a description has only characters that EC2 takes.
pub(super) fn is_plain_text(text: &str) -> bool {
    let allowed = |character: char| character.is_ascii_alphanumeric() || " ._-:/()#,@[]+=&;{}!$*".contains(character);
    text.chars().count() <= MAX_TEXT && text.chars().all(allowed)
}

// fidelity: documented(EC2 API Reference, CreateSecurityGroup)
pub(super) fn create_security_group(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (name, description) = (query.required("GroupName")?, query.required("GroupDescription")?);
    let vpc = query.text("VpcId");
    let tags = tag_specification(query, &Kind::SECURITY_GROUP)?;
    finish(query)?;
    for (parameter, text) in [("groupName", name), ("groupDescription", description)] {
        if !is_plain_text(text) || (parameter == "groupName" && text.starts_with("sg-")) {
            let message = format!(
                "Value ({text}) for parameter {parameter} is invalid. It may have up to {MAX_TEXT} characters of a-z, A-Z, \
                 0-9, spaces and ._-:/()#,@[]+=&;{{}}!$*; a name may not begin with sg-."
            );
            return Err(ApiError::invalid_value(message));
        }
    }
    let vpc = match vpc {
        Some(vpc) => vpc.to_owned(),
        None => cloud.network.default_vpc().ok_or_else(no_default_vpc)?.id.clone(),
    };
    let id =
        cloud.network.create_group((&mut cloud.ids, &cloud.config.limits.network), name, description, &vpc, tags)?;
    let mut xml = Xml::new();
    xml.value("return", true);
    xml.text("groupId", &id);
    tag_set(&mut xml, &cloud.network.group(&id)?.tags);
    xml.text("securityGroupArn", arn(cloud, &id));
    Ok(xml.into_string())
}

fn arn(cloud: &Cloud, id: &str) -> String {
    cloud.arn("ec2", &format!("security-group/{id}"))
}

// fidelity: documented(EC2 API Reference, Error codes: VPCIdNotSpecified)
fn no_default_vpc() -> ApiError {
    ApiError::client("VPCIdNotSpecified", "No default VPC for this user")
}

/// The group that a request is about: by id or, in the default VPC, by name.
// fidelity: documented(EC2 API Reference, AuthorizeSecurityGroupIngress: names are for default VPCs)
pub(super) fn target_group<'a>(cloud: &'a Cloud, query: &Query<'_>) -> Result<&'a SecurityGroup, ApiError> {
    match (query.text("GroupId"), query.text("GroupName")) {
        (Some(_), Some(_)) => {
            let message = "The parameter groupName cannot be used with the parameter groupId";
            Err(ApiError::client("InvalidParameterCombination", message))
        }
        (Some(id), None) => cloud.network.group(id),
        (None, Some(name)) => {
            let vpc = cloud.network.default_vpc().ok_or_else(no_default_vpc)?;
            let found = cloud.network.groups.values().find(|group| group.vpc_id == vpc.id && group.name == name);
            found.ok_or_else(|| {
                let message = format!("The security group '{name}' does not exist in default VPC '{}'", vpc.id);
                ApiError::client("InvalidGroup.NotFound", message)
            })
        }
        (None, None) => Err(ApiError::missing("GroupId")),
    }
}

pub(super) fn delete_security_group(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = target_group(cloud, query)?.id.clone();
    finish(query)?;
    let mut interfaces = cloud.instances.values().flat_map(|instance| &instance.network_interfaces);
    if interfaces.any(|interface| interface.security_groups.iter().any(|(group, _)| *group == id)) {
        return Err(group_in_use(&id));
    }
    cloud.network.delete_group(&id)?;
    let mut xml = Xml::new();
    xml.value("return", true);
    xml.text("groupId", id);
    Ok(xml.into_string())
}

const FILTERS: [&str; 24] = [
    "description",
    "egress.ip-permission.cidr",
    "egress.ip-permission.from-port",
    "egress.ip-permission.group-id",
    "egress.ip-permission.group-name",
    "egress.ip-permission.ipv6-cidr",
    "egress.ip-permission.prefix-list-id",
    "egress.ip-permission.protocol",
    "egress.ip-permission.to-port",
    "egress.ip-permission.user-id",
    "group-id",
    "group-name",
    "ip-permission.cidr",
    "ip-permission.from-port",
    "ip-permission.group-id",
    "ip-permission.group-name",
    "ip-permission.ipv6-cidr",
    "ip-permission.prefix-list-id",
    "ip-permission.protocol",
    "ip-permission.to-port",
    "ip-permission.user-id",
    "owner-id",
    "tag-key",
    "vpc-id",
];

// fidelity: documented(EC2 API Reference, DescribeSecurityGroups: names are for default VPCs)
pub(super) fn describe_security_groups(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let names = query.list("GroupName");
    let asked = Describe::read(query, &Kind::SECURITY_GROUP, "GroupId", &FILTERS)?;
    let groups = &cloud.network.groups;
    if let Some(missing) = names.iter().find(|name| !groups.values().any(|group| group.name == **name)) {
        let message = format!("The security group '{missing}' does not exist");
        return Err(ApiError::client("InvalidGroup.NotFound", message));
    }
    let attribute = |group: &&SecurityGroup, name: &str, test: Test<'_>| match name {
        "group-id" => test(&group.id),
        "group-name" => test(&group.name),
        "vpc-id" => test(&group.vpc_id),
        "owner-id" => test(&cloud.config.account),
        "description" => test(&group.description),
        _ => match (name.strip_prefix("egress.ip-permission."), name.strip_prefix("ip-permission.")) {
            (Some(part), _) => group.rules_of(Direction::Egress).any(|rule| rule_has(cloud, rule, part, test)),
            (_, Some(part)) => group.rules_of(Direction::Ingress).any(|rule| rule_has(cloud, rule, part, test)),
            _ => false,
        },
    };
    let named = groups.values().filter(|group| names.is_empty() || names.contains(&group.name.as_str()));
    let paged = asked.choose(named, |group| &group.id, |group| &group.tags, attribute)?;
    let mut xml = Xml::new();
    xml.list("securityGroupInfo", paged.items, |xml, group| write_group(xml, cloud, group));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn rule_has(cloud: &Cloud, rule: &SecurityGroupRule, part: &str, test: Test<'_>) -> bool {
    let specification = &rule.specification;
    match (part, &specification.peer) {
        ("protocol", _) => test(&specification.protocol),
        ("from-port", _) => test_number(specification.from_port, test),
        ("to-port", _) => test_number(specification.to_port, test),
        ("cidr", Peer::Ipv4(cidr)) | ("ipv6-cidr", Peer::Ipv6(cidr)) => test(cidr),
        ("prefix-list-id", Peer::PrefixList(id)) | ("group-id", Peer::Group(id)) => test(id),
        ("group-name", Peer::Group(id)) => cloud.network.group(id).is_ok_and(|group| test(&group.name)),
        ("user-id", Peer::Group(_)) => test(&cloud.config.account),
        _ => false,
    }
}

fn write_group(xml: &mut Xml, cloud: &Cloud, group: &SecurityGroup) {
    xml.text("ownerId", &cloud.config.account);
    xml.text("groupId", &group.id);
    xml.text("securityGroupArn", arn(cloud, &group.id));
    xml.text("groupName", &group.name);
    xml.text("groupDescription", &group.description);
    xml.text("vpcId", &group.vpc_id);
    write_permissions(xml, cloud, "ipPermissions", group.rules_of(Direction::Ingress));
    write_permissions(xml, cloud, "ipPermissionsEgress", group.rules_of(Direction::Egress));
    tag_set(xml, &group.tags);
}

/// Rules in the older shape: one entry for each protocol and range of ports, with everybody it is for.
fn write_permissions<'a>(xml: &mut Xml, cloud: &Cloud, name: &str, rules: impl Iterator<Item = &'a SecurityGroupRule>) {
    let mut entries: BTreeMap<_, Vec<&SecurityGroupRule>> = BTreeMap::new();
    for rule in rules {
        let specification = &rule.specification;
        let ports = (&specification.protocol, specification.from_port, specification.to_port);
        entries.entry(ports).or_default().push(rule);
    }
    xml.list(name, entries, |xml, ((protocol, from_port, to_port), rules)| {
        xml.text("ipProtocol", protocol);
        xml.optional("fromPort", from_port.map(|port| port.to_string()));
        xml.optional("toPort", to_port.map(|port| port.to_string()));
        for (set, member, of) in PEERS {
            let peers = rules.iter().filter_map(|rule| Some((of(&rule.specification.peer)?, &rule.description)));
            xml.list(set, peers, |xml, (peer, description)| {
                if member == "groupId" {
                    xml.text("userId", &cloud.config.account);
                }
                xml.text(member, peer);
                xml.optional("description", description.as_ref());
            });
        }
    });
}

/// How an entry lists the peers of one kind: the list, what its members name, and who belongs to it.
type PeerList = (&'static str, &'static str, fn(&Peer) -> Option<&str>);

const PEERS: [PeerList; 4] = [
    ("groups", "groupId", |peer| if let Peer::Group(id) = peer { Some(id) } else { None }),
    ("ipRanges", "cidrIp", |peer| if let Peer::Ipv4(cidr) = peer { Some(cidr) } else { None }),
    ("ipv6Ranges", "cidrIpv6", |peer| if let Peer::Ipv6(cidr) = peer { Some(cidr) } else { None }),
    ("prefixListIds", "prefixListId", |peer| if let Peer::PrefixList(id) = peer { Some(id) } else { None }),
];
