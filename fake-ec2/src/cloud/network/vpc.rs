//! VPCs: what each has from its beginning, what keeps it from being deleted, and the default one.

use super::{Cidr, DhcpOptions, InternetGateway, Network, NetworkAcl, RouteTable, SecurityGroup, Subnet, Target};
use crate::cloud::catalogue::Zone;
use crate::cloud::ids::Ids;
use crate::cloud::tags::Tags;
use crate::config::NetworkLimits;
use crate::error::ApiError;
use serde::{Deserialize, Serialize};

/// A VPC.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Vpc {
    pub id: String,
    /// The primary range.
    pub cidr: Cidr,
    /// All ranges, the primary first.
    pub cidr_associations: Vec<CidrAssociation>,
    pub is_default: bool,
    pub tenancy: String,
    pub dns_support: bool,
    pub dns_hostnames: bool,
    pub network_address_usage_metrics: bool,
    pub dhcp_options_id: String,
    pub tags: Tags,
}

/// A range of a VPC.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct CidrAssociation {
    pub id: String,
    pub cidr: Cidr,
}

/// The range of default VPCs.
// fidelity: documented(VPC User Guide, Default VPCs: 172.31.0.0/16 with a /20 subnet in each zone)
const DEFAULT_CIDR: &str = "172.31.0.0/16";
const DEFAULT_SUBNET_BITS: u8 = 20;

impl Network {
    /// A VPC with what every VPC has: a security group, a route table and a network ACL, each the default.
    // fidelity: documented(VPC User Guide, VPC basics: what is created with a VPC; DNS attributes: host names are off outside
    // default VPCs)
    pub(crate) fn create_vpc(
        &mut self,
        ids: &mut Ids,
        cidr: Cidr,
        tenancy: &str,
        is_default: bool,
        tags: Tags,
    ) -> String {
        let id = ids.resource("vpc");
        let dhcp_options =
            self.dhcp_options.get_or_insert_with(|| DhcpOptions { id: ids.resource("dopt"), tags: Tags::new() });
        let vpc = Vpc {
            id: id.clone(),
            cidr,
            cidr_associations: vec![CidrAssociation { id: ids.resource("vpc-cidr-assoc"), cidr }],
            is_default,
            tenancy: tenancy.into(),
            dns_support: true,
            dns_hostnames: is_default,
            network_address_usage_metrics: false,
            dhcp_options_id: dhcp_options.id.clone(),
            tags,
        };
        self.vpcs.insert(id.clone(), vpc);
        let group = SecurityGroup::default_of(ids, &id);
        self.groups.insert(group.id.clone(), group);
        let table = RouteTable::main_of(ids, &id);
        self.route_tables.insert(table.id.clone(), table);
        let acl = NetworkAcl { id: ids.resource("acl"), vpc_id: id.clone(), tags: Tags::new() };
        self.acls.insert(acl.id.clone(), acl);
        id
    }

    // fidelity: documented(EC2 API Reference, Error codes: VpcLimitExceeded)
    pub(crate) fn check_room_for_vpc(&self, limits: &NetworkLimits) -> Result<(), ApiError> {
        match self.vpcs.len() < limits.vpcs as usize {
            true => Ok(()),
            false => Err(ApiError::client("VpcLimitExceeded", "The maximum number of VPCs has been reached.")),
        }
    }

    // fidelity: documented(EC2 API Reference, DeleteVpc: what is attached or associated has to go first, the defaults go with
    // it)
    pub(crate) fn delete_vpc(&mut self, id: &str) -> Result<(), ApiError> {
        self.vpc(id)?;
        let in_use = self.subnets.values().any(|subnet| subnet.vpc_id == id)
            || self.gateways.values().any(|gateway| gateway.vpc_id.as_deref() == Some(id))
            || self.groups.values().any(|group| group.vpc_id == id && !group.is_default())
            || self.route_tables.values().any(|table| table.vpc_id == id && !table.is_main());
        if in_use {
            return Err(super::has_dependencies("vpc", id));
        }
        self.groups.retain(|_, group| group.vpc_id != id);
        self.route_tables.retain(|_, table| table.vpc_id != id);
        self.acls.retain(|_, acl| acl.vpc_id != id);
        self.vpcs.remove(id);
        Ok(())
    }

    // fidelity: assumed: the codes for ranges that overlap (CidrConflict) or are too many (CidrLimitExceeded)
    pub(crate) fn associate_cidr(
        &mut self,
        ids: &mut Ids,
        limits: &NetworkLimits,
        id: &str,
        cidr: Cidr,
    ) -> Result<CidrAssociation, ApiError> {
        let most = limits.cidr_blocks_per_vpc;
        let vpc = self.vpc(id)?;
        if vpc.cidr_associations.iter().any(|own| own.cidr.overlaps(cidr)) {
            let message = format!("The CIDR '{cidr}' conflicts with a CIDR block of the VPC '{id}'");
            return Err(ApiError::client("CidrConflict", message));
        }
        if vpc.cidr_associations.len() >= most as usize {
            let message = format!("This network '{id}' has met its maximum number of allowed CIDRs: {most}");
            return Err(ApiError::client("CidrLimitExceeded", message));
        }
        let association = CidrAssociation { id: ids.resource("vpc-cidr-assoc"), cidr };
        self.vpcs.entry(id.into()).and_modify(|vpc| vpc.cidr_associations.push(association.clone()));
        Ok(association)
    }

    /// Takes a further range away; its VPC is answered with it.
    // fidelity: documented(EC2 API Reference, DisassociateVpcCidrBlock: not the primary one, and not one with subnets)
    pub(crate) fn disassociate_cidr(&mut self, association: &str) -> Result<(String, CidrAssociation), ApiError> {
        let position = |vpc: &Vpc| vpc.cidr_associations.iter().position(|own| own.id == association);
        let found = self.vpcs.values().find_map(|vpc| Some((vpc.id.clone(), position(vpc)?)));
        let Some((vpc_id, index)) = found else {
            let message = format!("The vpc CIDR block association ID '{association}' does not exist");
            return Err(ApiError::client("InvalidVpcCidrBlockAssociationID.NotFound", message));
        };
        if index == 0 {
            let message = format!(
                "The vpc CIDR block with association ID {association} may not be disassociated. It is the primary IPv4 CIDR block of the VPC"
            );
            return Err(ApiError::client("OperationNotPermitted", message));
        }
        let cidr = self.vpcs[&vpc_id].cidr_associations[index].cidr;
        if self.subnets.values().any(|subnet| subnet.vpc_id == vpc_id && cidr.contains(subnet.cidr)) {
            let message = format!("The vpc '{vpc_id}' has subnets in {cidr}, which therefore cannot be disassociated.");
            return Err(ApiError::client("DependencyViolation", message));
        }
        let removed = self.vpcs.get_mut(&vpc_id).map(|vpc| vpc.cidr_associations.remove(index));
        Ok((vpc_id, removed.expect("it was found above")))
    }

    pub(crate) fn default_vpc(&self) -> Option<&Vpc> {
        self.vpcs.values().find(|vpc| vpc.is_default)
    }

    /// The default VPC with a public subnet in each zone, an internet gateway and the route to it.
    pub(crate) fn create_default_vpc(&mut self, ids: &mut Ids, zones: &[Zone]) -> Result<String, ApiError> {
        if self.default_vpc().is_some() {
            let message = "A Default VPC already exists for this account in this region.";
            return Err(ApiError::client("DefaultVpcAlreadyExists", message));
        }
        let cidr = Cidr::parse(DEFAULT_CIDR).expect("the constant range is well-formed");
        let id = self.create_vpc(ids, cidr, "default", true, Tags::new());
        for zone in zones {
            self.create_default_subnet(ids, zone)?;
        }
        let gateway = InternetGateway { id: ids.resource("igw"), vpc_id: Some(id.clone()), tags: Tags::new() };
        for table in self.route_tables.values_mut().filter(|table| table.vpc_id == id) {
            table.add_default_route(Target::Gateway(gateway.id.clone()));
        }
        self.gateways.insert(gateway.id.clone(), gateway);
        Ok(id)
    }

    pub(crate) fn create_default_subnet(&mut self, ids: &mut Ids, zone: &Zone) -> Result<String, ApiError> {
        let vpc = self.default_vpc().ok_or_else(|| {
            let message = "No default VPC exists for this account in this region.";
            ApiError::client("DefaultVpcDoesNotExist", message)
        })?;
        if self.subnets.values().any(|subnet| subnet.default_for_zone && subnet.zone == zone.name) {
            let message = format!("Default subnet already exists in zone {}", zone.name);
            return Err(ApiError::client("DefaultSubnetAlreadyExistsInAvailabilityZone", message));
        }
        let parts = (0..1 << (DEFAULT_SUBNET_BITS - 16)).map(|index| vpc.cidr.part(index, DEFAULT_SUBNET_BITS));
        let free = |cidr: &Cidr| !self.subnets.values().any(|own| own.vpc_id == vpc.id && own.cidr.overlaps(*cidr));
        let cidr = parts.into_iter().find(free).ok_or_else(|| conflict(vpc.cidr))?;
        let mut subnet = Subnet::new(ids.resource("subnet"), vpc.id.clone(), zone, cidr, Tags::new());
        (subnet.default_for_zone, subnet.map_public_ip_on_launch) = (true, true);
        let id = subnet.id.clone();
        self.subnets.insert(id.clone(), subnet);
        Ok(id)
    }

    // fidelity: documented(EC2 API Reference, CreateSubnet; Error codes: InvalidSubnet.Range, InvalidSubnet.Conflict,
    // SubnetLimitExceeded)
    pub(crate) fn create_subnet(
        &mut self,
        (ids, limits): (&mut Ids, &NetworkLimits),
        vpc_id: &str,
        zone: &Zone,
        cidr: Cidr,
        tags: Tags,
    ) -> Result<String, ApiError> {
        let vpc = self.vpc(vpc_id)?;
        let within = vpc.cidr_associations.iter().any(|own| own.cidr.contains(cidr));
        if !cidr.is_network_size() || !within {
            return Err(ApiError::client("InvalidSubnet.Range", format!("The CIDR '{cidr}' is invalid.")));
        }
        let siblings = || self.subnets.values().filter(|subnet| subnet.vpc_id == vpc_id);
        if siblings().any(|subnet| subnet.cidr.overlaps(cidr)) {
            return Err(conflict(cidr));
        }
        if siblings().count() >= limits.subnets_per_vpc as usize {
            let message = "The maximum number of subnets has been reached.";
            return Err(ApiError::client("SubnetLimitExceeded", message));
        }
        let id = ids.resource("subnet");
        self.subnets.insert(id.clone(), Subnet::new(id.clone(), vpc_id.into(), zone, cidr, tags));
        Ok(id)
    }

    // fidelity: documented(EC2 API Reference, DeleteSubnet: all interfaces in it have to be deleted first)
    pub(crate) fn delete_subnet(&mut self, id: &str) -> Result<(), ApiError> {
        if self.subnet(id)?.is_in_use() {
            return Err(super::has_dependencies("subnet", id));
        }
        self.subnets.remove(id);
        for table in self.route_tables.values_mut() {
            table.associations.retain(|association| association.subnet_id.as_deref() != Some(id));
        }
        Ok(())
    }
}

fn conflict(cidr: Cidr) -> ApiError {
    ApiError::client("InvalidSubnet.Conflict", format!("The CIDR '{cidr}' conflicts with another subnet"))
}
