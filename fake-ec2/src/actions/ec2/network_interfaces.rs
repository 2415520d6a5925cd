//! Network interfaces: those of instances, which are parts of them, and those made by themselves.

use super::describe::{Describe, test_boolean};
use super::tags::tag_specification;
use super::{finish, groups, refuse_unsupported, returned_true, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::ids::digits;
use crate::cloud::instance::{Instance, NetworkInterface};
use crate::cloud::network::{FreeInterface, SecurityGroup};
use crate::cloud::resource::Kind;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use std::net::Ipv4Addr;

/// An interface, wherever it is kept.
#[derive(Clone, Copy)]
pub(super) enum Interface<'a> {
    Attached(&'a Instance, &'a NetworkInterface),
    Free(&'a FreeInterface),
}

impl<'a> Interface<'a> {
    fn id(&self) -> &'a str {
        match self {
            Self::Attached(_, own) => &own.id,
            Self::Free(own) => &own.id,
        }
    }

    fn subnet_id(&self) -> &'a str {
        match self {
            Self::Attached(_, own) => &own.subnet_id,
            Self::Free(own) => &own.subnet_id,
        }
    }

    /// The VPC it is in.
    pub(super) fn vpc_id(&self, cloud: &'a Cloud) -> &'a str {
        match self {
            Self::Attached(instance, _) => &instance.vpc_id,
            Self::Free(own) => cloud.network.subnet(&own.subnet_id).map_or("", |subnet| &subnet.vpc_id),
        }
    }

    /// The instance that has it.
    pub(super) fn instance_id(&self) -> Option<&'a str> {
        match self {
            Self::Attached(instance, _) => Some(&instance.id),
            Self::Free(_) => None,
        }
    }

    fn address(&self) -> Ipv4Addr {
        match self {
            Self::Attached(_, own) => own.private_ip,
            Self::Free(own) => own.private_ip,
        }
    }

    /// Every address, the primary one first.
    fn addresses(&self) -> Vec<Ipv4Addr> {
        let secondary = match self {
            Self::Attached(_, own) => &own.secondary_ips[..],
            Self::Free(_) => &[],
        };
        std::iter::once(self.address()).chain(secondary.iter().copied()).collect()
    }

    fn interface_type(&self) -> &'a str {
        match self {
            Self::Attached(_, own) => &own.interface_type,
            Self::Free(own) => &own.interface_type,
        }
    }

    fn security_groups(&self) -> &'a [(String, String)] {
        match self {
            Self::Attached(_, own) => &own.security_groups,
            Self::Free(own) => &own.security_groups,
        }
    }

    fn description(&self) -> &'a str {
        match self {
            Self::Attached(_, own) => &own.description,
            Self::Free(own) => &own.description,
        }
    }

    fn tags(&self) -> &'a Tags {
        match self {
            Self::Attached(_, own) => &own.tags,
            Self::Free(own) => &own.tags,
        }
    }

    fn status(&self) -> &'static str {
        match self {
            Self::Attached(..) => "in-use",
            Self::Free(_) => "available",
        }
    }

    /// Zone name and id.
    fn zone(&self, cloud: &'a Cloud) -> (&'a str, &'a str) {
        cloud.network.subnet(self.subnet_id()).map_or(("", ""), |subnet| (&subnet.zone, &subnet.zone_id))
    }

    /// Locally administered, and the same whenever it is asked for.
    fn private_dns_name(&self, cloud: &Cloud) -> String {
        crate::cloud::launch::private_dns_name(self.address(), &cloud.config.region)
    }
}

/// Locally administered, and always the same for an interface.
pub(super) fn mac_address(id: &str) -> String {
    let digits = digits(0, &["mac", id]);
    let pairs: Vec<&str> = (1..11).step_by(2).map(|at| &digits[at..at + 2]).collect();
    format!("02:{}", pairs.join(":"))
}

/// The interface of this id.
pub(super) fn find_interface<'a>(cloud: &'a Cloud, id: &str) -> Result<Interface<'a>, ApiError> {
    if let Some(free) = cloud.network.interfaces.get(id) {
        return Ok(Interface::Free(free));
    }
    let owner = cloud.owner_of_part(id);
    let own = owner.and_then(|instance| Some((instance, instance.network_interfaces.iter().find(|own| own.id == id)?)));
    own.map(|(instance, own)| Interface::Attached(instance, own)).ok_or_else(|| Kind::NETWORK_INTERFACE.missing(id))
}

const FILTERS: [&str; 36] = [
    "addresses.association.owner-id",
    "addresses.association.public-ip",
    "addresses.primary",
    "addresses.private-ip-address",
    "association.allocation-id",
    "association.association-id",
    "association.ip-owner-id",
    "association.public-dns-name",
    "association.public-ip",
    "attachment.attach-time",
    "attachment.attachment-id",
    "attachment.delete-on-termination",
    "attachment.device-index",
    "attachment.instance-id",
    "attachment.instance-owner-id",
    "attachment.status",
    "availability-zone",
    "availability-zone-id",
    "description",
    "group-id",
    "interface-type",
    "ipv6-addresses.ipv6-address",
    "mac-address",
    "network-interface-id",
    "operator.managed",
    "operator.principal",
    "owner-id",
    "private-dns-name",
    "private-ip-address",
    "requester-id",
    "requester-managed",
    "source-dest-check",
    "status",
    "subnet-id",
    "tag-key",
    "vpc-id",
];

// fidelity: documented(EC2 API Reference, DescribeNetworkInterfaces)
pub(super) fn describe_network_interfaces(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    query.boolean("IncludeManagedResources")?;
    let asked = Describe::read(query, &Kind::NETWORK_INTERFACE, "NetworkInterfaceId", &FILTERS)?;
    let mut interfaces: Vec<Interface<'_>> = match asked.ids.is_empty() {
        false => asked.ids.iter().map(|id| find_interface(cloud, id)).collect::<Result<_, _>>()?,
        true => {
            let attached = cloud.instances.values().flat_map(|instance| {
                instance.network_interfaces.iter().map(move |own| Interface::Attached(instance, own))
            });
            attached.chain(cloud.network.interfaces.values().map(Interface::Free)).collect()
        }
    };
    interfaces.sort_unstable_by(|one, other| one.id().cmp(other.id()));
    interfaces.dedup_by(|one, other| one.id() == other.id());
    let paged =
        asked.choose(interfaces, |own| own.id(), |own| own.tags(), |own, name, test| has(cloud, own, name, test))?;
    let mut xml = Xml::new();
    xml.list("networkInterfaceSet", paged.items, |xml, interface| write_interface(xml, cloud, interface));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn has(cloud: &Cloud, interface: &Interface<'_>, name: &str, test: Test<'_>) -> bool {
    match name {
        "addresses.primary" => test("true") || (interface.addresses().len() > 1 && test("false")),
        "addresses.private-ip-address" => interface.addresses().iter().any(|own| test(&own.to_string())),
        "private-ip-address" => test(&interface.address().to_string()),
        "availability-zone" => test(interface.zone(cloud).0),
        "availability-zone-id" => test(interface.zone(cloud).1),
        "description" => test(interface.description()),
        "group-id" => interface.security_groups().iter().any(|(id, _)| test(id)),
        "interface-type" => test(interface.interface_type()),
        "mac-address" => test(&mac_address(interface.id())),
        "network-interface-id" => test(interface.id()),
        "owner-id" => test(&cloud.config.account),
        "private-dns-name" => test(&interface.private_dns_name(cloud)),
        "operator.managed" | "requester-managed" => test_boolean(false, test),
        "source-dest-check" => test_boolean(true, test),
        "status" => test(interface.status()),
        "subnet-id" => test(interface.subnet_id()),
        "vpc-id" => test(interface.vpc_id(cloud)),
        _ => match (name.strip_prefix("attachment."), interface) {
            (Some(part), Interface::Attached(instance, own)) => attachment_has(cloud, instance, own, part, test),
            _ => false,
        },
    }
}

fn attachment_has(cloud: &Cloud, instance: &Instance, own: &NetworkInterface, part: &str, test: Test<'_>) -> bool {
    match part {
        "attach-time" => test(&timestamp(instance.launched_at)),
        "attachment-id" => test(&own.attachment_id),
        "delete-on-termination" => test_boolean(true, test),
        "device-index" => test(&own.device_index.to_string()),
        "instance-id" => test(&instance.id),
        "instance-owner-id" => test(&cloud.config.account),
        "status" => test("attached"),
        _ => false,
    }
}

fn write_interface(xml: &mut Xml, cloud: &Cloud, interface: Interface<'_>) {
    let (zone, zone_id) = interface.zone(cloud);
    xml.text("networkInterfaceId", interface.id());
    xml.text("subnetId", interface.subnet_id());
    xml.text("vpcId", interface.vpc_id(cloud));
    xml.text("availabilityZone", zone);
    xml.text("availabilityZoneId", zone_id);
    xml.text("description", interface.description());
    xml.text("ownerId", &cloud.config.account);
    xml.value("requesterManaged", false);
    xml.text("status", interface.status());
    xml.text("macAddress", mac_address(interface.id()));
    xml.text("privateIpAddress", interface.address().to_string());
    xml.text("privateDnsName", interface.private_dns_name(cloud));
    xml.value("sourceDestCheck", true);
    groups(xml, "groupSet", interface.security_groups());
    if let Interface::Attached(instance, own) = interface {
        xml.element("attachment", |xml| {
            xml.text("attachmentId", &own.attachment_id);
            xml.text("instanceId", &instance.id);
            xml.text("instanceOwnerId", &cloud.config.account);
            xml.value("deviceIndex", own.device_index);
            xml.value("networkCardIndex", own.network_card_index);
            xml.text("status", "attached");
            xml.time("attachTime", instance.launched_at);
            xml.value("deleteOnTermination", true);
        });
    }
    tag_set(xml, interface.tags());
    xml.list("privateIpAddressesSet", interface.addresses(), |xml, address| {
        xml.value("privateIpAddress", address);
        xml.text("privateDnsName", crate::cloud::launch::private_dns_name(address, &cloud.config.region));
        xml.value("primary", address == interface.address());
    });
    xml.element("ipv6AddressesSet", |_| ());
    xml.text("interfaceType", interface.interface_type());
}

/// Addresses beyond the first, and what else is not played of an interface by itself.
const UNPLAYED: [&str; 11] = [
    "ConnectionTrackingSpecification",
    "EnablePrimaryIpv6",
    "Ipv4Prefix",
    "Ipv4PrefixCount",
    "Ipv6AddressCount",
    "Ipv6Addresses",
    "Ipv6Prefix",
    "Ipv6PrefixCount",
    "Operator",
    "PrivateIpAddresses",
    "SecondaryPrivateIpAddressCount",
];

// fidelity: documented(EC2 API Reference, CreateNetworkInterface)
pub(super) fn create_network_interface(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let subnet = cloud.network.subnet(query.required("SubnetId")?)?;
    refuse_unsupported(query, &UNPLAYED)?;
    let interface_type = query.text("InterfaceType").unwrap_or("interface");
    if !["interface", "efa", "efa-only", "branch", "trunk"].contains(&interface_type) {
        return Err(ApiError::invalid_value(format!(
            "Value ({interface_type}) for parameter interfaceType is invalid."
        )));
    }
    let address: Option<Ipv4Addr> = query.number("PrivateIpAddress")?;
    let description = query.owned("Description").unwrap_or_default();
    let group_ids = query.list("SecurityGroupId");
    let tags = tag_specification(query, &Kind::NETWORK_INTERFACE)?;
    // Repetitions are answered before this is reached.
    query.text("ClientToken");
    finish(query)?;
    cloud.check_groups_per_interface(group_ids.len())?;
    cloud.check_interfaces(1)?;
    let mut security_groups = Vec::new();
    for id in group_ids {
        let group = cloud.network.group(id)?;
        if group.vpc_id != subnet.vpc_id {
            let message = format!("Security group {id} and subnet {} belong to different networks.", subnet.id);
            return Err(ApiError::client("InvalidParameter", message));
        }
        security_groups.push((group.id.clone(), group.name.clone()));
    }
    if security_groups.is_empty() {
        let of_vpc = |group: &&SecurityGroup| group.vpc_id == subnet.vpc_id && group.is_default();
        let default = cloud.network.groups.values().find(of_vpc);
        security_groups.extend(default.map(|group| (group.id.clone(), group.name.clone())));
    }
    let new = FreeInterface {
        id: String::new(),
        subnet_id: subnet.id.clone(),
        private_ip: Ipv4Addr::UNSPECIFIED,
        security_groups,
        interface_type: interface_type.into(),
        description,
        tags,
    };
    let id = cloud.network.create_interface(&mut cloud.ids, address, new)?;
    let interface = find_interface(cloud, &id)?;
    let mut xml = Xml::new();
    xml.element("networkInterface", |xml| write_interface(xml, cloud, interface));
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, DeleteNetworkInterface: it has to be detached first; Error codes:
// InvalidNetworkInterface.InUse, or InvalidParameterValue, which is what is commonly seen)
pub(super) fn delete_network_interface(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("NetworkInterfaceId")?;
    finish(query)?;
    if find_interface(cloud, id)?.instance_id().is_some() {
        let message = format!("Network interface '{id}' is currently in use.");
        return Err(ApiError::invalid_value(message));
    }
    cloud.network.delete_interface(id);
    Ok(returned_true())
}
