//! The account's networks: VPCs with what each has from its beginning, subnets, security groups and their rules, gateways,
//! routes, and interfaces that no instance has. Those of instances are parts of them.

mod cidr;
mod gateway;
mod interface;
mod prefix_list;
mod route_table;
mod security_group;
mod subnet;
mod vpc;

pub use cidr::Cidr;
pub use gateway::InternetGateway;
pub use interface::FreeInterface;
pub(crate) use prefix_list::{PrefixList, prefix_lists};
pub use route_table::{Destination, Route, RouteAssociation, RouteTable, Target};
pub(crate) use security_group::{Direction, group_in_use};
pub use security_group::{Peer, RuleSpecification, SecurityGroup, SecurityGroupRule};
pub use subnet::{PrivateDnsNames, Subnet};
pub use vpc::{CidrAssociation, Vpc};

pub(crate) use cidr::canonical_ipv6;

use super::resource::Kind;
use super::tags::Tags;
use crate::error::ApiError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A VPC's default network ACL, which lets everything pass; there are no others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NetworkAcl {
    pub(crate) id: String,
    pub(crate) vpc_id: String,
    pub(crate) tags: Tags,
}

/// The DHCP options that every VPC of the account uses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DhcpOptions {
    pub(crate) id: String,
    pub(crate) tags: Tags,
}

/// All networks of the account.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) vpcs: BTreeMap<String, Vpc>,
    pub(crate) subnets: BTreeMap<String, Subnet>,
    pub(crate) groups: BTreeMap<String, SecurityGroup>,
    pub(crate) gateways: BTreeMap<String, InternetGateway>,
    pub(crate) route_tables: BTreeMap<String, RouteTable>,
    pub(crate) acls: BTreeMap<String, NetworkAcl>,
    pub(crate) dhcp_options: Option<DhcpOptions>,
    /// Those that no instance has.
    pub(crate) interfaces: BTreeMap<String, FreeInterface>,
}

impl Network {
    pub(crate) fn vpc(&self, id: &str) -> Result<&Vpc, ApiError> {
        self.vpcs.get(id).ok_or_else(|| Kind::VPC.missing(id))
    }

    pub(crate) fn subnet(&self, id: &str) -> Result<&Subnet, ApiError> {
        self.subnets.get(id).ok_or_else(|| Kind::SUBNET.missing(id))
    }

    pub(crate) fn group(&self, id: &str) -> Result<&SecurityGroup, ApiError> {
        self.groups.get(id).ok_or_else(|| Kind::SECURITY_GROUP.missing(id))
    }

    /// The tags of whatever part of the network has this id.
    pub(crate) fn tags_of(&self, id: &str) -> Option<&Tags> {
        let rule = || self.groups.values().find_map(|group| group.rules.get(id)).map(|rule| &rule.tags);
        (self.subnets.get(id).map(|own| &own.tags))
            .or_else(|| self.groups.get(id).map(|own| &own.tags))
            .or_else(|| self.vpcs.get(id).map(|own| &own.tags))
            .or_else(|| self.gateways.get(id).map(|own| &own.tags))
            .or_else(|| self.route_tables.get(id).map(|own| &own.tags))
            .or_else(|| self.acls.get(id).map(|own| &own.tags))
            .or_else(|| self.dhcp_options.as_ref().filter(|own| own.id == id).map(|own| &own.tags))
            .or_else(|| self.interfaces.get(id).map(|own| &own.tags))
            .or_else(rule)
    }

    /// The same, to write.
    pub(crate) fn tags_mut(&mut self, id: &str) -> Option<&mut Tags> {
        if Kind::of(id).is_some_and(|kind| kind.name == Kind::SECURITY_GROUP_RULE.name) {
            return self.groups.values_mut().find_map(|group| group.rules.get_mut(id)).map(|rule| &mut rule.tags);
        }
        (self.subnets.get_mut(id).map(|own| &mut own.tags))
            .or_else(|| self.groups.get_mut(id).map(|own| &mut own.tags))
            .or_else(|| self.vpcs.get_mut(id).map(|own| &mut own.tags))
            .or_else(|| self.gateways.get_mut(id).map(|own| &mut own.tags))
            .or_else(|| self.route_tables.get_mut(id).map(|own| &mut own.tags))
            .or_else(|| self.acls.get_mut(id).map(|own| &mut own.tags))
            .or_else(|| self.dhcp_options.as_mut().filter(|own| own.id == id).map(|own| &mut own.tags))
            .or_else(|| self.interfaces.get_mut(id).map(|own| &mut own.tags))
    }

    /// Every resource with its kind and tags.
    pub(crate) fn tagged(&self) -> impl Iterator<Item = (&'static Kind, &str, &Tags)> {
        let rules = self.groups.values().flat_map(|group| group.rules.values());
        let rules = rules.map(|own| (&Kind::SECURITY_GROUP_RULE, own.id.as_str(), &own.tags));
        (self.vpcs.values().map(|own| (&Kind::VPC, own.id.as_str(), &own.tags)))
            .chain(self.subnets.values().map(|own| (&Kind::SUBNET, own.id.as_str(), &own.tags)))
            .chain(self.groups.values().map(|own| (&Kind::SECURITY_GROUP, own.id.as_str(), &own.tags)))
            .chain(self.gateways.values().map(|own| (&Kind::INTERNET_GATEWAY, own.id.as_str(), &own.tags)))
            .chain(self.route_tables.values().map(|own| (&Kind::ROUTE_TABLE, own.id.as_str(), &own.tags)))
            .chain(self.acls.values().map(|own| (&Kind::NETWORK_ACL, own.id.as_str(), &own.tags)))
            .chain(self.dhcp_options.iter().map(|own| (&Kind::DHCP_OPTIONS, own.id.as_str(), &own.tags)))
            .chain(self.interfaces.values().map(|own| (&Kind::NETWORK_INTERFACE, own.id.as_str(), &own.tags)))
            .chain(rules)
    }
}

// fidelity: documented(EC2 API Reference, Error codes: DependencyViolation); the sentence as commonly seen.
pub(crate) fn has_dependencies(kind: &str, id: &str) -> ApiError {
    ApiError::client("DependencyViolation", format!("The {kind} '{id}' has dependencies and cannot be deleted."))
}

/// Two things that cannot be joined because they are of different VPCs.
pub(crate) fn different_networks(one: &str, other: &str) -> ApiError {
    ApiError::invalid_value(format!("{one} and {other} belong to different networks"))
}
