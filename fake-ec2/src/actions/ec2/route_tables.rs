//! Route tables, what they are associated with, and their routes.

use super::describe::{Describe, test_boolean};
use super::network_interfaces::find_interface;
use super::tags::tag_specification;
use super::vpcs::parse_cidr;
use super::{finish, refuse_unsupported, returned_true, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::network::{Destination, Route, RouteTable, Target, canonical_ipv6, different_networks, prefix_lists};
use crate::cloud::resource::Kind;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

// fidelity: documented(EC2 API Reference, CreateRouteTable)
pub(super) fn create_route_table(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let vpc = query.required("VpcId")?;
    let token = query.text("ClientToken");
    let tags = tag_specification(query, &Kind::ROUTE_TABLE)?;
    finish(query)?;
    let id = cloud.network.create_route_table(&mut cloud.ids, &cloud.config.limits.network, vpc, tags)?;
    let table = cloud.network.route_table(&id)?;
    let mut xml = Xml::new();
    xml.element("routeTable", |xml| write_table(xml, cloud, table));
    xml.optional("clientToken", token);
    Ok(xml.into_string())
}

pub(super) fn delete_route_table(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("RouteTableId")?;
    finish(query)?;
    cloud.network.delete_route_table(id)?;
    Ok(returned_true())
}

// fidelity: documented(EC2 API Reference, AssociateRouteTable: a subnet or a gateway); with gateways it is not played
pub(super) fn associate_route_table(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, subnet) = (query.required("RouteTableId")?, query.text("SubnetId"));
    refuse_unsupported(query, &["GatewayId", "PublicIpv4Pool"])?;
    finish(query)?;
    let subnet = subnet.ok_or_else(|| ApiError::missing("SubnetId"))?;
    let association = cloud.network.associate_route_table(&mut cloud.ids, id, subnet)?;
    Ok(write_association("associationId", &association))
}

fn write_association(name: &str, association: &str) -> String {
    let mut xml = Xml::new();
    xml.text(name, association);
    xml.element("associationState", |xml| xml.text("state", "associated"));
    xml.into_string()
}

pub(super) fn disassociate_route_table(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let association = query.required("AssociationId")?;
    finish(query)?;
    cloud.network.disassociate_route_table(association)?;
    Ok(returned_true())
}

pub(super) fn replace_route_table_association(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (association, table) = (query.required("AssociationId")?, query.required("RouteTableId")?);
    finish(query)?;
    let association = cloud.network.replace_association(&mut cloud.ids, association, table)?;
    Ok(write_association("newAssociationId", &association))
}

/// Targets that are not played: there are no such resources.
const OTHER_TARGETS: [&str; 9] = [
    "CarrierGatewayId",
    "CoreNetworkArn",
    "EgressOnlyInternetGatewayId",
    "LocalGatewayId",
    "NatGatewayId",
    "OdbNetworkArn",
    "TransitGatewayId",
    "VpcEndpointId",
    "VpcPeeringConnectionId",
];

pub(super) fn create_route(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (table, route) = read_route(cloud, query)?;
    finish(query)?;
    cloud.network.create_route(&cloud.config.limits.network, table, route)?;
    Ok(returned_true())
}

pub(super) fn replace_route(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    refuse_unsupported(query, &["LocalTarget"])?;
    let (table, route) = read_route(cloud, query)?;
    finish(query)?;
    cloud.network.replace_route(table, route)?;
    Ok(returned_true())
}

pub(super) fn delete_route(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (table, destination) = (query.required("RouteTableId")?, read_destination(cloud, query)?);
    finish(query)?;
    cloud.network.delete_route(table, &destination)?;
    Ok(returned_true())
}

fn read_route<'a>(cloud: &Cloud, query: &Query<'a>) -> Result<(&'a str, Route), ApiError> {
    let id = query.required("RouteTableId")?;
    let destination = read_destination(cloud, query)?;
    refuse_unsupported(query, &OTHER_TARGETS)?;
    let vpc = &cloud.network.route_table(id)?.vpc_id;
    let (name, target) = exactly_one(query, &["GatewayId", "InstanceId", "NetworkInterfaceId"])?;
    let target = match name {
        "GatewayId" => Target::Gateway(target.into()),
        "InstanceId" => only_interface(cloud, vpc, target)?,
        _ => {
            let interface = find_interface(cloud, target)?;
            if interface.vpc_id(cloud) != vpc {
                return Err(different_networks(&format!("route table {id}"), &format!("interface {target}")));
            }
            Target::Interface { id: target.into(), instance_id: interface.instance_id().map(str::to_owned) }
        }
    };
    Ok((id, Route { destination, target }))
}

/// The interface of an instance, which must not have several.
// fidelity: documented(EC2 API Reference, Error codes: InvalidInstanceID for instances with several interfaces)
fn only_interface(cloud: &Cloud, vpc: &str, id: &str) -> Result<Target, ApiError> {
    let instance = cloud.instance(id)?;
    if instance.vpc_id != vpc {
        return Err(different_networks(&format!("route table's network {vpc}"), &format!("instance {id}")));
    }
    match instance.network_interfaces.as_slice() {
        [interface] => Ok(Target::Interface { id: interface.id.clone(), instance_id: Some(id.into()) }),
        interfaces => {
            let count = interfaces.len();
            let message = format!(
                "There are {count} interfaces attached to instance '{id}'. Please specify an interface ID instead."
            );
            Err(ApiError::client("InvalidInstanceID", message))
        }
    }
}

fn read_destination(cloud: &Cloud, query: &Query<'_>) -> Result<Destination, ApiError> {
    let names = ["DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId"];
    let (name, text) = exactly_one(query, &names)?;
    match name {
        "DestinationCidrBlock" => parse_cidr("destinationCidrBlock", text).map(Destination::Ipv4),
        "DestinationIpv6CidrBlock" => canonical_ipv6(text).map(Destination::Ipv6).ok_or_else(|| {
            ApiError::invalid_value(format!(
                "Value ({text}) for parameter destinationIpv6CidrBlock is invalid. This is not a valid IPv6 CIDR block."
            ))
        }),
        _ => match prefix_lists(&cloud.config.region).iter().any(|list| list.id == text) {
            true => Ok(Destination::PrefixList(text.into())),
            false => Err(Kind::PREFIX_LIST.missing(text)),
        },
    }
}

/// Name and value of the one parameter of these that is given.
fn exactly_one<'a, 'n>(query: &Query<'a>, names: &[&'n str]) -> Result<(&'n str, &'a str), ApiError> {
    let mut given = names.iter().filter_map(|name| Some((*name, query.text(name)?)));
    let first = given.next().ok_or_else(|| ApiError::missing(&names.join(" or ")))?;
    match given.next() {
        None => Ok(first),
        Some((other, _)) => {
            let message = format!("The parameter {} cannot be used with the parameter {other}", first.0);
            Err(ApiError::client("InvalidParameterCombination", message))
        }
    }
}

const FILTERS: [&str; 20] = [
    "association.gateway-id",
    "association.main",
    "association.route-table-association-id",
    "association.route-table-id",
    "association.subnet-id",
    "owner-id",
    "route-table-id",
    "route.destination-cidr-block",
    "route.destination-ipv6-cidr-block",
    "route.destination-prefix-list-id",
    "route.egress-only-internet-gateway-id",
    "route.gateway-id",
    "route.instance-id",
    "route.nat-gateway-id",
    "route.origin",
    "route.state",
    "route.transit-gateway-id",
    "route.vpc-peering-connection-id",
    "tag-key",
    "vpc-id",
];

/// A route as it is told: destination, target if it is not the VPC itself, origin, state.
struct Told<'a> {
    destination: Destination,
    target: Option<&'a Target>,
    origin: &'static str,
    state: &'static str,
}

/// Those within the VPC and those that somebody made.
fn told<'a>(cloud: &'a Cloud, table: &'a RouteTable) -> Vec<Told<'a>> {
    let ranges = cloud.network.vpc(&table.vpc_id).map_or(&[][..], |vpc| &vpc.cidr_associations);
    let local = ranges.iter().map(|own| Told {
        destination: Destination::Ipv4(own.cidr),
        target: None,
        origin: "CreateRouteTable",
        state: "active",
    });
    let made = table.routes.iter().map(|route| Told {
        destination: route.destination.clone(),
        target: Some(&route.target),
        origin: "CreateRoute",
        state: if leads_somewhere(cloud, table, &route.target) { "active" } else { "blackhole" },
    });
    local.chain(made).collect()
}

// fidelity: documented(EC2 API Reference, Route: blackhole if the target is gone or not attached)
fn leads_somewhere(cloud: &Cloud, table: &RouteTable, target: &Target) -> bool {
    match target {
        Target::Gateway(id) => cloud.network.gateway(id).is_ok_and(|own| own.vpc_id.as_ref() == Some(&table.vpc_id)),
        Target::Interface { id, .. } => find_interface(cloud, id).is_ok_and(|own| own.instance_id().is_some()),
    }
}

// fidelity: documented(EC2 API Reference, DescribeRouteTables)
pub(super) fn describe_route_tables(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let asked = Describe::bounded(query, &Kind::ROUTE_TABLE, "RouteTableId", &FILTERS, 5, 100)?;
    let attribute = |table: &&RouteTable, name: &str, test: Test<'_>| match name {
        "route-table-id" => test(&table.id),
        "vpc-id" => test(&table.vpc_id),
        "owner-id" => test(&cloud.config.account),
        "association.main" => table.associations.iter().any(|own| test_boolean(own.subnet_id.is_none(), test)),
        "association.route-table-id" => !table.associations.is_empty() && test(&table.id),
        "association.route-table-association-id" => table.associations.iter().any(|own| test(&own.id)),
        "association.subnet-id" => {
            table.associations.iter().any(|own| own.subnet_id.as_deref().is_some_and(&mut *test))
        }
        _ => match name.strip_prefix("route.") {
            Some(part) => told(cloud, table).iter().any(|route| route_has(route, part, test)),
            None => false,
        },
    };
    let paged = asked.choose(cloud.network.route_tables.values(), |own| &own.id, |own| &own.tags, attribute)?;
    let mut xml = Xml::new();
    xml.list("routeTableSet", paged.items, |xml, table| write_table(xml, cloud, table));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn route_has(route: &Told<'_>, part: &str, test: Test<'_>) -> bool {
    match (part, &route.destination, route.target) {
        ("origin", _, _) => test(route.origin),
        ("state", _, _) => test(route.state),
        ("destination-cidr-block", Destination::Ipv4(_), _)
        | ("destination-ipv6-cidr-block", Destination::Ipv6(_), _)
        | ("destination-prefix-list-id", Destination::PrefixList(_), _) => test(&route.destination.to_string()),
        ("gateway-id", _, None) => test("local"),
        ("gateway-id", _, Some(Target::Gateway(id))) => test(id),
        ("instance-id", _, Some(Target::Interface { instance_id: Some(id), .. })) => test(id),
        _ => false,
    }
}

fn write_table(xml: &mut Xml, cloud: &Cloud, table: &RouteTable) {
    xml.text("routeTableId", &table.id);
    xml.text("vpcId", &table.vpc_id);
    xml.text("ownerId", &cloud.config.account);
    xml.list("routeSet", told(cloud, table), |xml, route| write_route(xml, cloud, &route));
    xml.list("associationSet", &table.associations, |xml, association| {
        xml.text("routeTableAssociationId", &association.id);
        xml.text("routeTableId", &table.id);
        xml.optional("subnetId", association.subnet_id.as_ref());
        xml.value("main", association.subnet_id.is_none());
        xml.element("associationState", |xml| xml.text("state", "associated"));
    });
    xml.element("propagatingVgwSet", |_| ());
    tag_set(xml, &table.tags);
}

fn write_route(xml: &mut Xml, cloud: &Cloud, route: &Told<'_>) {
    let destination = match &route.destination {
        Destination::Ipv4(_) => "destinationCidrBlock",
        Destination::Ipv6(_) => "destinationIpv6CidrBlock",
        Destination::PrefixList(_) => "destinationPrefixListId",
    };
    xml.text(destination, route.destination.to_string());
    match route.target {
        None => xml.text("gatewayId", "local"),
        Some(Target::Gateway(id)) => xml.text("gatewayId", id),
        Some(Target::Interface { id, instance_id }) => {
            if let Some(instance) = instance_id {
                xml.text("instanceId", instance);
                xml.text("instanceOwnerId", &cloud.config.account);
            }
            xml.text("networkInterfaceId", id);
        }
    }
    xml.text("state", route.state);
    xml.text("origin", route.origin);
}
