//! Route tables. The routes within the VPC are not kept: they follow from its ranges.

use super::{Cidr, Network, different_networks, has_dependencies};
use crate::cloud::ids::Ids;
use crate::cloud::resource::Kind;
use crate::cloud::tags::Tags;
use crate::config::NetworkLimits;
use crate::error::ApiError;
use serde::{Deserialize, Serialize};

/// A route table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RouteTable {
    pub id: String,
    pub vpc_id: String,
    pub associations: Vec<RouteAssociation>,
    /// Without those within the VPC.
    pub routes: Vec<Route>,
    pub tags: Tags,
}

/// What a route table decides for: a subnet, or, as the main one, every subnet without a table of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RouteAssociation {
    pub id: String,
    /// `None` where it is the main table.
    pub subnet_id: Option<String>,
}

/// A route that somebody made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Route {
    pub destination: Destination,
    pub target: Target,
}

/// Where a route leads to, and what it is known by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Destination {
    Ipv4(Cidr),
    Ipv6(String),
    PrefixList(String),
}

impl std::fmt::Display for Destination {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ipv4(cidr) => cidr.fmt(formatter),
            Self::Ipv6(text) | Self::PrefixList(text) => formatter.write_str(text),
        }
    }
}

/// Through what a route leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Target {
    /// An internet gateway.
    Gateway(String),
    /// An interface, and the instance that has it.
    Interface { id: String, instance_id: Option<String> },
}

impl RouteTable {
    /// The table a VPC begins with.
    pub(super) fn main_of(ids: &mut Ids, vpc_id: &str) -> Self {
        let association = RouteAssociation { id: ids.resource("rtbassoc"), subnet_id: None };
        Self {
            id: ids.resource("rtb"),
            vpc_id: vpc_id.into(),
            associations: vec![association],
            routes: Vec::new(),
            tags: Tags::new(),
        }
    }

    /// Whether it decides for subnets without a table of their own.
    pub fn is_main(&self) -> bool {
        self.associations.iter().any(|association| association.subnet_id.is_none())
    }

    pub(super) fn add_default_route(&mut self, target: Target) {
        let everywhere = Cidr::parse("0.0.0.0/0").expect("the constant range is well-formed");
        self.routes.push(Route { destination: Destination::Ipv4(everywhere), target });
    }
}

impl Network {
    pub(crate) fn route_table(&self, id: &str) -> Result<&RouteTable, ApiError> {
        self.route_tables.get(id).ok_or_else(|| Kind::ROUTE_TABLE.missing(id))
    }

    fn route_table_mut(&mut self, id: &str) -> Result<&mut RouteTable, ApiError> {
        self.route_tables.get_mut(id).ok_or_else(|| Kind::ROUTE_TABLE.missing(id))
    }

    pub(crate) fn create_route_table(
        &mut self,
        ids: &mut Ids,
        limits: &NetworkLimits,
        vpc_id: &str,
        tags: Tags,
    ) -> Result<String, ApiError> {
        self.vpc(vpc_id)?;
        if self.route_tables.values().filter(|table| table.vpc_id == vpc_id).count()
            >= limits.route_tables_per_vpc as usize
        {
            let message = "The maximum number of route tables has been reached.";
            return Err(ApiError::client("RouteTableLimitExceeded", message));
        }
        let id = ids.resource("rtb");
        let (associations, routes) = (Vec::new(), Vec::new());
        let table = RouteTable { id: id.clone(), vpc_id: vpc_id.into(), associations, routes, tags };
        self.route_tables.insert(id.clone(), table);
        Ok(id)
    }

    // fidelity: documented(EC2 API Reference, DeleteRouteTable: not the main one, and not with associations)
    pub(crate) fn delete_route_table(&mut self, id: &str) -> Result<(), ApiError> {
        if !self.route_table(id)?.associations.is_empty() {
            return Err(has_dependencies("routeTable", id));
        }
        self.route_tables.remove(id);
        Ok(())
    }

    pub(crate) fn associate_route_table(
        &mut self,
        ids: &mut Ids,
        id: &str,
        subnet_id: &str,
    ) -> Result<String, ApiError> {
        let (table, subnet) = (self.route_table(id)?, self.subnet(subnet_id)?);
        if table.vpc_id != subnet.vpc_id {
            return Err(different_networks(&format!("route table {id}"), &format!("subnet {subnet_id}")));
        }
        let subnets = self.route_tables.values().flat_map(|table| &table.associations);
        if subnets.into_iter().any(|association| association.subnet_id.as_deref() == Some(subnet_id)) {
            let message =
                format!("the specified association for route table {id} conflicts with an existing association");
            return Err(ApiError::client("Resource.AlreadyAssociated", message));
        }
        let association = RouteAssociation { id: ids.resource("rtbassoc"), subnet_id: Some(subnet_id.into()) };
        let association_id = association.id.clone();
        self.route_table_mut(id)?.associations.push(association);
        Ok(association_id)
    }

    /// The table with this association.
    pub(crate) fn associated_table(&self, association: &str) -> Result<&RouteTable, ApiError> {
        let has = |table: &&RouteTable| table.associations.iter().any(|own| own.id == association);
        self.route_tables.values().find(has).ok_or_else(|| {
            let message = format!("The association ID '{association}' does not exist");
            ApiError::client("InvalidAssociationID.NotFound", message)
        })
    }

    // fidelity: assumed: the code for the main table's association
    pub(crate) fn disassociate_route_table(&mut self, association: &str) -> Result<(), ApiError> {
        let table = self.associated_table(association)?;
        if table.associations.iter().any(|own| own.id == association && own.subnet_id.is_none()) {
            let message = format!("cannot disassociate the main route table association {association}");
            return Err(ApiError::invalid_value(message));
        }
        let id = table.id.clone();
        self.route_table_mut(&id)?.associations.retain(|own| own.id != association);
        Ok(())
    }

    /// Gives what one table decides for to another; also being the main table.
    // fidelity: documented(EC2 API Reference, ReplaceRouteTableAssociation: a new association id; also the main table)
    pub(crate) fn replace_association(
        &mut self,
        ids: &mut Ids,
        association: &str,
        to: &str,
    ) -> Result<String, ApiError> {
        let (from, target) = (self.associated_table(association)?, self.route_table(to)?);
        if from.vpc_id != target.vpc_id {
            return Err(different_networks(&format!("route table {to}"), &format!("route table {}", from.id)));
        }
        let from = from.id.clone();
        let table = self.route_table_mut(&from)?;
        let index = table.associations.iter().position(|own| own.id == association).expect("it was found above");
        let mut moved = table.associations.remove(index);
        moved.id = ids.resource("rtbassoc");
        let new = moved.id.clone();
        self.route_table_mut(to)?.associations.push(moved);
        Ok(new)
    }

    /// Whether the VPC's own routes lead there.
    fn is_local(&self, vpc_id: &str, destination: &Destination) -> bool {
        let ranges = self.vpcs.get(vpc_id).map_or(&[][..], |vpc| &vpc.cidr_associations);
        ranges.iter().any(|own| Destination::Ipv4(own.cidr) == *destination)
    }

    // fidelity: documented(EC2 API Reference, Error codes: RouteAlreadyExists, RouteLimitExceeded)
    pub(crate) fn create_route(&mut self, limits: &NetworkLimits, id: &str, route: Route) -> Result<(), ApiError> {
        let table = self.route_table(id)?;
        let destination = &route.destination;
        if self.is_local(&table.vpc_id, destination) || table.routes.iter().any(|own| own.destination == *destination) {
            let message = format!("The route identified by {destination} already exists.");
            return Err(ApiError::client("RouteAlreadyExists", message));
        }
        if table.routes.len() >= limits.routes_per_route_table as usize {
            let message = format!("The maximum number of routes has been reached in route table {id}.");
            return Err(ApiError::client("RouteLimitExceeded", message));
        }
        self.check_target(&table.vpc_id.clone(), id, &route.target)?;
        self.route_table_mut(id)?.routes.push(route);
        Ok(())
    }

    // fidelity: assumed: the code for a route that does not exist
    pub(crate) fn replace_route(&mut self, id: &str, route: Route) -> Result<(), ApiError> {
        let table = self.route_table(id)?;
        self.check_target(&table.vpc_id.clone(), id, &route.target)?;
        let present = self.route_table_mut(id)?.routes.iter_mut().find(|own| own.destination == route.destination);
        let Some(present) = present else {
            let message = format!(
                "There is no route defined for '{}' in the route table. Use CreateRoute instead.",
                route.destination
            );
            return Err(ApiError::invalid_value(message));
        };
        present.target = route.target;
        Ok(())
    }

    // fidelity: documented(EC2 API Reference, Error codes: InvalidRoute.NotFound); assumed: the code for the VPC's own routes
    pub(crate) fn delete_route(&mut self, id: &str, destination: &Destination) -> Result<(), ApiError> {
        let table = self.route_table(id)?;
        if self.is_local(&table.vpc_id, destination) {
            let message = format!("cannot remove local route {destination} in route table {id}");
            return Err(ApiError::invalid_value(message));
        }
        let Some(index) = table.routes.iter().position(|own| own.destination == *destination) else {
            let message = format!("no route with destination-cidr-block {destination} in route table {id}");
            return Err(ApiError::client("InvalidRoute.NotFound", message));
        };
        self.route_table_mut(id)?.routes.remove(index);
        Ok(())
    }

    fn check_target(&self, vpc_id: &str, table: &str, target: &Target) -> Result<(), ApiError> {
        match target {
            Target::Gateway(id) if self.gateway(id)?.vpc_id.as_deref() != Some(vpc_id) => {
                Err(different_networks(&format!("route table {table}"), &format!("network gateway {id}")))
            }
            // Interfaces are looked up by who reads the request, for they may be an instance's.
            Target::Gateway(_) | Target::Interface { .. } => Ok(()),
        }
    }
}
