//! Security groups and their rules. The rules are kept and told; no packet is held against them.

use super::Network;
use crate::cloud::ids::Ids;
use crate::cloud::resource::Kind;
use crate::cloud::tags::Tags;
use crate::config::NetworkLimits;
use crate::error::ApiError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A security group.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SecurityGroup {
    pub id: String,
    pub name: String,
    pub description: String,
    pub vpc_id: String,
    pub tags: Tags,
    /// By id.
    pub rules: BTreeMap<String, SecurityGroupRule>,
}

/// One rule of a security group.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SecurityGroupRule {
    pub id: String,
    /// Whether it lets packets out rather than in.
    pub egress: bool,
    pub specification: RuleSpecification,
    pub description: Option<String>,
    pub tags: Tags,
}

/// What a rule lets pass; a group has no two rules alike in this in one direction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RuleSpecification {
    /// `tcp`, `udp`, `icmp`, `icmpv6`, the number of another protocol, or `-1` for all.
    pub protocol: String,
    /// The first port, or the ICMP type.
    pub from_port: Option<i32>,
    /// The last port, or the ICMP code.
    pub to_port: Option<i32>,
    pub peer: Peer,
}

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Peer {
    Ipv4(String),
    Ipv6(String),
    PrefixList(String),
    /// The members of a security group, by its id.
    Group(String),
}

/// Which of a group's two lists of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    pub(crate) fn is_egress(self) -> bool {
        self == Self::Egress
    }
}

impl SecurityGroup {
    /// A group that lets everything out, as every new one does.
    // fidelity: documented(VPC User Guide, Security group rules: a new group has one outbound rule that allows all traffic)
    pub(crate) fn new(ids: &mut Ids, name: &str, description: &str, vpc_id: &str, tags: Tags) -> Self {
        let (id, name, description, vpc_id) = (ids.resource("sg"), name.into(), description.into(), vpc_id.into());
        let mut group = Self { id, name, description, vpc_id, tags, rules: BTreeMap::new() };
        group.add_rule(ids, Direction::Egress, Peer::Ipv4("0.0.0.0/0".into()));
        group
    }

    /// The group a VPC begins with: its members may also reach each other.
    // fidelity: documented(VPC User Guide, Default security groups)
    pub(super) fn default_of(ids: &mut Ids, vpc_id: &str) -> Self {
        let mut group = Self::new(ids, "default", "default VPC security group", vpc_id, Tags::new());
        group.let_members_in(ids);
        group
    }

    /// Adds the rule by which members reach each other.
    pub(crate) fn let_members_in(&mut self, ids: &mut Ids) {
        self.add_rule(ids, Direction::Ingress, Peer::Group(self.id.clone()));
    }

    /// Adds a rule for every protocol.
    fn add_rule(&mut self, ids: &mut Ids, direction: Direction, peer: Peer) {
        let specification = RuleSpecification { protocol: "-1".into(), from_port: None, to_port: None, peer };
        let (id, egress) = (ids.resource("sgr"), direction.is_egress());
        let rule = SecurityGroupRule { id: id.clone(), egress, specification, description: None, tags: Tags::new() };
        self.rules.insert(id, rule);
    }

    /// Whether it is the one its VPC began with.
    pub fn is_default(&self) -> bool {
        self.name == "default"
    }

    /// Its rules in one direction.
    pub(crate) fn rules_of(&self, direction: Direction) -> impl Iterator<Item = &SecurityGroupRule> {
        self.rules.values().filter(move |rule| rule.egress == direction.is_egress())
    }

    pub(crate) fn find(&self, direction: Direction, specification: &RuleSpecification) -> Option<&SecurityGroupRule> {
        self.rules_of(direction).find(|rule| rule.specification == *specification)
    }

    /// The rule of this id in this direction.
    pub(crate) fn rule(&self, direction: Direction, id: &str) -> Result<&SecurityGroupRule, ApiError> {
        let rule = self.rules.get(id).filter(|rule| rule.egress == direction.is_egress());
        rule.ok_or_else(|| Kind::SECURITY_GROUP_RULE.missing(id))
    }

    // fidelity: documented(EC2 API Reference, Error codes: InvalidPermission.Duplicate, RulesPerSecurityGroupLimitExceeded)
    pub(crate) fn authorize(
        &mut self,
        (ids, limits): (&mut Ids, &NetworkLimits),
        direction: Direction,
        wanted: Vec<(RuleSpecification, Option<String>)>,
        tags: &Tags,
    ) -> Result<Vec<SecurityGroupRule>, ApiError> {
        for (index, (specification, _)) in wanted.iter().enumerate() {
            if wanted[..index].iter().any(|(earlier, _)| earlier == specification) {
                return Err(ApiError::invalid_value("The same permission must not appear multiple times"));
            }
            if self.find(direction, specification).is_some() {
                return Err(duplicate(specification));
            }
        }
        self.check_room(limits, direction, wanted.iter().map(|(specification, _)| specification))?;
        let egress = direction.is_egress();
        let rules = wanted.into_iter().map(|(specification, description)| {
            let (id, tags) = (ids.resource("sgr"), tags.clone());
            SecurityGroupRule { id, egress, specification, description, tags }
        });
        let rules: Vec<SecurityGroupRule> = rules.collect();
        self.rules.extend(rules.iter().map(|rule| (rule.id.clone(), rule.clone())));
        Ok(rules)
    }

    // fidelity: documented(VPC User Guide, Quotas: inbound and outbound rules, IPv4 and IPv6 are counted separately; a group or a
    // prefix list counts for both)
    fn check_room<'a>(
        &'a self,
        limits: &NetworkLimits,
        direction: Direction,
        added: impl Iterator<Item = &'a RuleSpecification> + Clone,
    ) -> Result<(), ApiError> {
        let own = self.rules_of(direction).map(|rule| &rule.specification);
        let count = |counts: fn(&Peer) -> bool, all: &mut dyn Iterator<Item = &RuleSpecification>| {
            all.filter(|specification| counts(&specification.peer)).count()
        };
        let all: Vec<&RuleSpecification> = own.chain(added).collect();
        let ipv4 = count(|peer| !matches!(peer, Peer::Ipv6(_)), &mut all.iter().copied());
        let ipv6 = count(|peer| !matches!(peer, Peer::Ipv4(_)), &mut all.iter().copied());
        match ipv4.max(ipv6) > limits.rules_per_security_group as usize {
            false => Ok(()),
            true => Err(ApiError::client(
                "RulesPerSecurityGroupLimitExceeded",
                "The maximum number of rules per security group has been reached.",
            )),
        }
    }

    /// Puts a rule in the place of one that exists, keeping its id and tags.
    pub(crate) fn modify(
        &mut self,
        id: &str,
        specification: RuleSpecification,
        description: Option<String>,
    ) -> Result<(), ApiError> {
        let present = self.rules.get(id).ok_or_else(|| Kind::SECURITY_GROUP_RULE.missing(id))?;
        let same = |rule: &&SecurityGroupRule| {
            rule.id != id && rule.egress == present.egress && rule.specification == specification
        };
        if self.rules.values().any(|rule| same(&rule)) {
            return Err(duplicate(&specification));
        }
        self.rules.entry(id.into()).and_modify(|rule| {
            rule.specification = specification;
            rule.description = description;
        });
        Ok(())
    }
}

impl Network {
    // fidelity: documented(EC2 API Reference, CreateSecurityGroup; Error codes: InvalidGroup.Duplicate, InvalidGroup.Reserved,
    // SecurityGroupLimitExceeded)
    pub(crate) fn create_group(
        &mut self,
        (ids, limits): (&mut Ids, &NetworkLimits),
        name: &str,
        description: &str,
        vpc_id: &str,
        tags: Tags,
    ) -> Result<String, ApiError> {
        self.vpc(vpc_id)?;
        if name.eq_ignore_ascii_case("default") {
            let message = "Cannot use reserved security group name: default";
            return Err(ApiError::client("InvalidGroup.Reserved", message));
        }
        let same = |group: &SecurityGroup| group.vpc_id == vpc_id && group.name.eq_ignore_ascii_case(name);
        if self.groups.values().any(same) {
            let message = format!("The security group '{name}' already exists for VPC '{vpc_id}'");
            return Err(ApiError::client("InvalidGroup.Duplicate", message));
        }
        if self.groups.len() >= limits.security_groups as usize {
            let message = "The maximum number of security groups has been reached.";
            return Err(ApiError::client("SecurityGroupLimitExceeded", message));
        }
        let group = SecurityGroup::new(ids, name, description, vpc_id, tags);
        let id = group.id.clone();
        self.groups.insert(id.clone(), group);
        Ok(id)
    }

    /// Deletes a group that neither another group's rules nor an unattached interface mentions. Whether an instance has it, who
    /// asks has to know.
    // fidelity: documented(EC2 API Reference, DeleteSecurityGroup; Error codes: CannotDelete, DependencyViolation)
    pub(crate) fn delete_group(&mut self, id: &str) -> Result<(), ApiError> {
        if self.group(id)?.is_default() {
            let message = format!("the specified group: \"{id}\" name: \"default\" cannot be deleted by a user");
            return Err(ApiError::client("CannotDelete", message));
        }
        let mentioned = self
            .groups
            .values()
            .filter(|group| group.id != id)
            .any(|group| group.rules.values().any(|rule| rule.specification.peer == Peer::Group(id.to_owned())));
        let held = self.interfaces.values().any(|own| own.security_groups.iter().any(|(group, _)| group == id));
        if mentioned || held {
            return Err(group_in_use(id));
        }
        self.groups.remove(id);
        Ok(())
    }
}

pub(crate) fn group_in_use(id: &str) -> ApiError {
    ApiError::client("DependencyViolation", format!("resource {id} has a dependent object"))
}

fn duplicate(specification: &RuleSpecification) -> ApiError {
    let RuleSpecification { protocol, from_port, to_port, peer } = specification;
    let peer = match peer {
        Peer::Ipv4(text) | Peer::Ipv6(text) | Peer::PrefixList(text) | Peer::Group(text) => text,
    };
    let protocol = if protocol == "-1" { "ALL".into() } else { protocol.to_ascii_uppercase() };
    let ports = match (from_port, to_port) {
        (Some(from), Some(to)) => format!("from port: {from}, to port: {to}, "),
        _ => String::new(),
    };
    let message = format!("the specified rule \"peer: {peer}, {protocol}, {ports}ALLOW\" already exists");
    ApiError::client("InvalidPermission.Duplicate", message)
}
