//! The rules of security groups: authorize, revoke, describe, modify, and their descriptions.

use super::describe::Describe;
use super::security_groups::{is_plain_text, target_group};
use super::tags::tag_specification;
use super::{finish, refuse_unsupported, returned_true, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::network::{
    Cidr, Direction, Peer, RuleSpecification, SecurityGroup, SecurityGroupRule, canonical_ipv6, prefix_lists,
};
use crate::cloud::resource::Kind;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

/// A rule as a request gives it, with its description.
type Given = (RuleSpecification, Option<String>);

/// The parameters that give one rule without a list, which only incoming rules still have.
const FLAT: [&str; 6] =
    ["CidrIp", "FromPort", "IpProtocol", "SourceSecurityGroupName", "SourceSecurityGroupOwnerId", "ToPort"];

// fidelity: documented(EC2 API Reference, AuthorizeSecurityGroupIngress and …Egress)
pub(super) fn authorize(cloud: &mut Cloud, query: &Query<'_>, direction: Direction) -> Result<String, ApiError> {
    let group = target_group(cloud, query)?;
    let given = read_given(cloud, query, group, direction)?;
    let tags = tag_specification(query, &Kind::SECURITY_GROUP_RULE)?;
    let id = group.id.clone();
    finish(query)?;
    if given.is_empty() {
        return Err(ApiError::missing("IpPermissions"));
    }
    let Cloud { network, ids, config, .. } = &mut *cloud;
    let group = network.groups.get_mut(&id).expect("it was looked up above");
    let rules = group.authorize((ids, &config.limits.network), direction, given, &tags)?;
    let mut xml = Xml::new();
    xml.value("return", true);
    xml.list("securityGroupRuleSet", &rules, |xml, rule| write_rule(xml, cloud, &id, rule));
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, RevokeSecurityGroupIngress and …Egress: what does not match is refused, but only told
// in the default VPC)
pub(super) fn revoke(cloud: &mut Cloud, query: &Query<'_>, direction: Direction) -> Result<String, ApiError> {
    let group = target_group(cloud, query)?;
    let rule_ids = query.list("SecurityGroupRuleId");
    let given = read_given(cloud, query, group, direction)?;
    finish(query)?;
    if rule_ids.is_empty() == given.is_empty() {
        return Err(either("IpPermissions", "SecurityGroupRuleId", given.is_empty()));
    }
    let (mut revoked, mut unknown) = (Vec::new(), Vec::new());
    for id in rule_ids {
        revoked.push(group.rule(direction, id)?.clone());
    }
    for (specification, _) in given {
        match group.find(direction, &specification) {
            Some(rule) => revoked.push(rule.clone()),
            None => unknown.push(specification),
        }
    }
    let in_default_vpc = cloud.network.vpc(&group.vpc_id).is_ok_and(|vpc| vpc.is_default);
    if !unknown.is_empty() && !in_default_vpc {
        let message = "The specified rule does not exist in this security group.";
        return Err(ApiError::client("InvalidPermission.NotFound", message));
    }
    let id = group.id.clone();
    if let Some(group) = cloud.network.groups.get_mut(&id) {
        revoked.iter().for_each(|rule| drop(group.rules.remove(&rule.id)));
    }
    let mut xml = Xml::new();
    xml.value("return", true);
    xml.list("unknownIpPermissionSet", &unknown, |xml, specification| write_permission(xml, cloud, specification));
    xml.list("revokedSecurityGroupRuleSet", &revoked, |xml, rule| {
        xml.text("securityGroupRuleId", &rule.id);
        xml.text("groupId", &id);
        write_specification(xml, rule);
        if let Peer::Group(other) = &rule.specification.peer {
            xml.text("referencedGroupId", other);
        }
        xml.optional("description", rule.description.as_ref());
    });
    Ok(xml.into_string())
}

fn either(one: &str, other: &str, neither: bool) -> ApiError {
    match neither {
        true => ApiError::missing(&format!("{one} or {other}")),
        false => {
            let message = format!("The parameter {one} cannot be used with the parameter {other}");
            ApiError::client("InvalidParameterCombination", message)
        }
    }
}

/// The rules that a request gives by their content: in a list or, for incoming ones, one without a list.
fn read_given(
    cloud: &Cloud,
    query: &Query<'_>,
    group: &SecurityGroup,
    direction: Direction,
) -> Result<Vec<Given>, ApiError> {
    let listed = read_permissions(cloud, query, group)?;
    if direction.is_egress() {
        refuse_unsupported(query, &FLAT)?;
        return Ok(listed);
    }
    if FLAT.iter().all(|name| query.text(name).is_none()) {
        return Ok(listed);
    }
    if !listed.is_empty() {
        return Err(either("IpPermissions", "IpProtocol", false));
    }
    let mut peers = Vec::new();
    if let Some(cidr) = query.text("CidrIp") {
        peers.push((read_ipv4(cidr)?, None));
    }
    if let Some(name) = query.text("SourceSecurityGroupName") {
        let other = named_group(cloud, group, name)?;
        peers.push((Peer::Group(other.id.clone()), None));
    }
    with_peers(query, peers)
}

fn read_permissions(cloud: &Cloud, query: &Query<'_>, group: &SecurityGroup) -> Result<Vec<Given>, ApiError> {
    let mut given = Vec::new();
    for permission in query.structures("IpPermissions") {
        let mut peers = Vec::new();
        for (list, member) in [
            ("IpRanges", "CidrIp"),
            ("Ipv6Ranges", "CidrIpv6"),
            ("PrefixListIds", "PrefixListId"),
            ("Groups", "GroupId"),
        ] {
            for entry in permission.structures(list) {
                let description = read_description(entry.text("Description"))?;
                let peer = match (list, entry.text("GroupName")) {
                    ("Groups", Some(name)) => Peer::Group(named_group(cloud, group, name)?.id.clone()),
                    _ => read_peer(cloud, group, member, entry.required(member)?)?,
                };
                if let Some(account) = entry.text("UserId").filter(|account| *account != cloud.config.account) {
                    let message = format!("The security group of account {account} does not exist");
                    return Err(ApiError::client("InvalidGroup.NotFound", message));
                }
                check_peering(cloud, &entry, &peer)?;
                peers.push((peer, description));
            }
        }
        given.extend(with_peers(&permission, peers)?);
    }
    Ok(given)
}

/// A group of another VPC is reached over a peering connection, of which there are none here.
// fidelity: documented(EC2 API Reference, UserIdGroupPair: VpcId, VpcPeeringConnectionId, PeeringStatus; Error codes:
// InvalidVpcPeeringConnectionID.NotFound)
fn check_peering(cloud: &Cloud, entry: &Query<'_>, peer: &Peer) -> Result<(), ApiError> {
    entry.choice("PeeringStatus", &["active", "deleted"])?;
    if let Some(connection) = entry.text("VpcPeeringConnectionId") {
        let message = format!("The vpcPeeringConnection ID '{connection}' does not exist");
        return Err(ApiError::client("InvalidVpcPeeringConnectionID.NotFound", message));
    }
    let (Peer::Group(group), Some(vpc)) = (peer, entry.text("VpcId")) else { return Ok(()) };
    cloud.network.vpc(vpc)?;
    match cloud.network.group(group)?.vpc_id == vpc {
        true => Ok(()),
        false => {
            let message = format!("The security group '{group}' does not exist in VPC '{vpc}'");
            Err(ApiError::client("InvalidGroup.NotFound", message))
        }
    }
}

/// One rule for each peer, all with the protocol and the ports that stand beside them.
// fidelity: assumed: the code for a permission that is for nobody
fn with_peers(query: &Query<'_>, peers: Vec<(Peer, Option<String>)>) -> Result<Vec<Given>, ApiError> {
    let (protocol, from_port, to_port) = read_ports(query)?;
    if peers.is_empty() {
        let message =
            "A permission needs at least one source or destination: IpRanges, Ipv6Ranges, PrefixListIds or Groups.";
        return Err(ApiError::client("MissingParameter", message));
    }
    let rule =
        |(peer, description)| (RuleSpecification { protocol: protocol.clone(), from_port, to_port, peer }, description);
    Ok(peers.into_iter().map(rule).collect())
}

fn read_peer(cloud: &Cloud, group: &SecurityGroup, member: &str, value: &str) -> Result<Peer, ApiError> {
    match member {
        "CidrIp" | "CidrIpv4" => read_ipv4(value),
        "CidrIpv6" => canonical_ipv6(value).map(Peer::Ipv6).ok_or_else(|| malformed_cidr(value)),
        "PrefixListId" => {
            let known = prefix_lists(&cloud.config.region).iter().any(|list| list.id == value);
            if known { Ok(Peer::PrefixList(value.into())) } else { Err(Kind::PREFIX_LIST.missing(value)) }
        }
        _ => {
            let other = cloud.network.group(value)?;
            match other.vpc_id == group.vpc_id {
                true => Ok(Peer::Group(value.into())),
                false => {
                    let message = "You have specified two resources that belong to different networks.";
                    Err(ApiError::client("InvalidGroup.NotFound", message))
                }
            }
        }
    }
}

// fidelity: documented(EC2 API Reference, Error codes: InvalidPermission.Malformed asks for CIDR notation); assumed:
// a range that is none is InvalidParameterValue, as commonly seen
fn malformed_cidr(text: &str) -> ApiError {
    ApiError::invalid_value(format!("CIDR block {text} is malformed"))
}

// fidelity: documented(EC2 API Reference, IpRange: ranges are made canonical)
fn read_ipv4(text: &str) -> Result<Peer, ApiError> {
    Cidr::parse(text).map(|cidr| Peer::Ipv4(cidr.to_string())).ok_or_else(|| malformed_cidr(text))
}

/// The group of this name in the VPC of the group that the rule is for.
fn named_group<'a>(cloud: &'a Cloud, group: &SecurityGroup, name: &str) -> Result<&'a SecurityGroup, ApiError> {
    let same = |other: &&SecurityGroup| other.vpc_id == group.vpc_id && other.name == name;
    cloud
        .network
        .groups
        .values()
        .find(same)
        .ok_or_else(|| ApiError::client("InvalidGroup.NotFound", format!("The security group '{name}' does not exist")))
}

// fidelity: documented(EC2 API Reference, IpRange: up to 255 characters of a set)
fn read_description(text: Option<&str>) -> Result<Option<String>, ApiError> {
    match text {
        Some(text) if !is_plain_text(text) => Err(ApiError::invalid_value(
            "Invalid rule description. Valid descriptions are strings less than 256 characters from the following set: \
             a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*",
        )),
        text => Ok(text.filter(|text| !text.is_empty()).map(str::to_owned)),
    }
}

/// Protocol and ports, or ICMP type and code.
// fidelity: documented(EC2 API Reference, IpPermission: names and numbers of protocols; ports are for TCP and UDP, types and
// codes for ICMP, and other protocols have all); assumed: the sentences
fn read_ports(query: &Query<'_>) -> Result<(String, Option<i32>, Option<i32>), ApiError> {
    let protocol = query.required("IpProtocol")?.to_ascii_lowercase();
    let (from, to): (Option<i32>, Option<i32>) = (query.number("FromPort")?, query.number("ToPort")?);
    let protocol = match protocol.as_str() {
        "all" | "-1" => "-1",
        "tcp" | "6" => "tcp",
        "udp" | "17" => "udp",
        "icmp" | "1" => "icmp",
        "icmpv6" | "58" => "icmpv6",
        number if number.parse::<u8>().is_ok() => number,
        other => {
            let message = format!("Invalid value '{other}' for IP protocol. Unknown protocol.");
            return Err(ApiError::invalid_value(message));
        }
    };
    let ports = match protocol {
        "tcp" | "udp" => {
            let (Some(from), Some(to)) = (from, to) else {
                let message = "Invalid value 'Must specify both from and to ports with TCP/UDP.' for portRange.";
                return Err(ApiError::invalid_value(message));
            };
            if let Some(port) = [from, to].into_iter().find(|port| !(0..=65_535).contains(port)) {
                return Err(ApiError::invalid_value(format!("TCP/UDP port ({port}) out of range")));
            }
            if from > to {
                return Err(ApiError::invalid_value(format!("Invalid TCP/UDP port range ({from}:{to})")));
            }
            (Some(from), Some(to))
        }
        "icmp" | "icmpv6" => {
            let (from, to) = (from.unwrap_or(-1), to.unwrap_or(-1));
            if !(-1..=255).contains(&from) || !(-1..=255).contains(&to) || (from == -1 && to != -1) {
                let message =
                    format!("ICMP type ({from}) and code ({to}) are invalid: each is -1 to 255, and -1 is all.");
                return Err(ApiError::invalid_value(message));
            }
            (Some(from), Some(to))
        }
        _ => (None, None),
    };
    Ok((protocol.to_owned(), ports.0, ports.1))
}

fn write_specification(xml: &mut Xml, rule: &SecurityGroupRule) {
    let RuleSpecification { protocol, from_port, to_port, peer } = &rule.specification;
    xml.value("isEgress", rule.egress);
    xml.text("ipProtocol", protocol);
    // Rules have both, where permissions leave them out.
    xml.value("fromPort", from_port.unwrap_or(-1));
    xml.value("toPort", to_port.unwrap_or(-1));
    match peer {
        Peer::Ipv4(cidr) => xml.text("cidrIpv4", cidr),
        Peer::Ipv6(cidr) => xml.text("cidrIpv6", cidr),
        Peer::PrefixList(id) => xml.text("prefixListId", id),
        Peer::Group(_) => {}
    }
}

fn write_rule(xml: &mut Xml, cloud: &Cloud, group_id: &str, rule: &SecurityGroupRule) {
    xml.text("securityGroupRuleId", &rule.id);
    xml.text("securityGroupRuleArn", cloud.arn("ec2", &format!("security-group-rule/{}", rule.id)));
    xml.text("groupId", group_id);
    xml.text("groupOwnerId", &cloud.config.account);
    write_specification(xml, rule);
    if let Peer::Group(other) = &rule.specification.peer {
        xml.element("referencedGroupInfo", |xml| {
            xml.text("groupId", other);
            xml.text("userId", &cloud.config.account);
        });
    }
    xml.optional("description", rule.description.as_ref());
    tag_set(xml, &rule.tags);
}

fn write_permission(xml: &mut Xml, cloud: &Cloud, specification: &RuleSpecification) {
    let RuleSpecification { protocol, from_port, to_port, peer } = specification;
    xml.text("ipProtocol", protocol);
    xml.optional("fromPort", from_port.map(|port| port.to_string()));
    xml.optional("toPort", to_port.map(|port| port.to_string()));
    let (list, member, value) = match peer {
        Peer::Group(id) => ("groups", "groupId", id),
        Peer::Ipv4(cidr) => ("ipRanges", "cidrIp", cidr),
        Peer::Ipv6(cidr) => ("ipv6Ranges", "cidrIpv6", cidr),
        Peer::PrefixList(id) => ("prefixListIds", "prefixListId", id),
    };
    xml.list(list, [value], |xml, value| {
        if list == "groups" {
            xml.text("userId", &cloud.config.account);
        }
        xml.text(member, value);
    });
}

// fidelity: documented(EC2 API Reference, DescribeSecurityGroupRules)
pub(super) fn describe_security_group_rules(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let filters = ["group-id", "security-group-rule-id", "tag-key"];
    let asked = Describe::read(query, &Kind::SECURITY_GROUP_RULE, "SecurityGroupRuleId", &filters)?;
    let rules = cloud.network.groups.values().flat_map(|group| group.rules.values().map(move |rule| (group, rule)));
    let mut rules: Vec<(&SecurityGroup, &SecurityGroupRule)> = rules.collect();
    rules.sort_unstable_by(|(_, one), (_, other)| one.id.cmp(&other.id));
    let attribute = |(group, rule): &(&SecurityGroup, &SecurityGroupRule), name: &str, test: Test<'_>| match name {
        "group-id" => test(&group.id),
        "security-group-rule-id" => test(&rule.id),
        _ => false,
    };
    let paged = asked.choose(rules, |(_, rule)| &rule.id, |(_, rule)| &rule.tags, attribute)?;
    let mut xml = Xml::new();
    xml.list("securityGroupRuleSet", paged.items, |xml, (group, rule)| write_rule(xml, cloud, &group.id, rule));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, ModifySecurityGroupRules: the rule given replaces the one with the id)
pub(super) fn modify_security_group_rules(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let group_id = query.required("GroupId")?;
    let group = cloud.network.group(group_id)?;
    let mut changes = Vec::new();
    for update in query.structures("SecurityGroupRule") {
        let id = update.required("SecurityGroupRuleId")?;
        if !group.rules.contains_key(id) {
            return Err(Kind::SECURITY_GROUP_RULE.missing(id));
        }
        let rule = update.structure("SecurityGroupRule").ok_or_else(|| ApiError::missing("SecurityGroupRule"))?;
        let mut peers = Vec::new();
        for member in ["CidrIpv4", "CidrIpv6", "PrefixListId", "ReferencedGroupId"] {
            if let Some(value) = rule.text(member) {
                peers.push((read_peer(cloud, group, member, value)?, read_description(rule.text("Description"))?));
            }
        }
        if peers.len() > 1 {
            let message = "Only one of CidrIpv4, CidrIpv6, PrefixListId and ReferencedGroupId can be given for a rule.";
            return Err(ApiError::client("InvalidParameterCombination", message));
        }
        changes.extend(with_peers(&rule, peers)?.into_iter().map(|given| (id, given)));
    }
    finish(query)?;
    if changes.is_empty() {
        return Err(ApiError::missing("SecurityGroupRule"));
    }
    // On a copy first: all of them or none.
    let mut group = group.clone();
    for (id, (specification, description)) in changes {
        group.modify(id, specification, description)?;
    }
    cloud.network.groups.insert(group_id.into(), group);
    Ok(returned_true())
}

// fidelity: documented(EC2 API Reference, UpdateSecurityGroupRuleDescriptionsIngress and …Egress: no description removes it)
pub(super) fn update_descriptions(
    cloud: &mut Cloud,
    query: &Query<'_>,
    direction: Direction,
) -> Result<String, ApiError> {
    let group = target_group(cloud, query)?;
    let mut changes = Vec::new();
    let by_id = query.structures("SecurityGroupRuleDescription");
    for entry in &by_id {
        let id = entry.required("SecurityGroupRuleId")?;
        changes.push((group.rule(direction, id)?.id.clone(), read_description(entry.text("Description"))?));
    }
    let given = read_permissions(cloud, query, group)?;
    finish(query)?;
    if by_id.is_empty() == given.is_empty() {
        return Err(either("IpPermissions", "SecurityGroupRuleDescription", given.is_empty()));
    }
    for (specification, description) in given {
        let rule = group.find(direction, &specification).ok_or_else(|| {
            let message = "The specified rule does not exist in this security group.";
            ApiError::client("InvalidPermission.NotFound", message)
        })?;
        changes.push((rule.id.clone(), description));
    }
    let id = group.id.clone();
    let group = cloud.network.groups.get_mut(&id).expect("it was looked up above");
    for (rule, description) in changes {
        group.rules.entry(rule).and_modify(|rule| rule.description = description);
    }
    Ok(returned_true())
}
