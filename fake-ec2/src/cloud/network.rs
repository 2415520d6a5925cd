//! VPCs, subnets and security groups: only as much as a launch needs to know.

use super::tags::Tags;
use crate::error::ApiError;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// A VPC.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Vpc {
    pub id: String,
    pub cidr: Cidr,
    pub tags: Tags,
}

/// An IPv4 range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    base: u32,
    bits: u8,
}

impl Cidr {
    /// Parses `192.168.0.0/16`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let (base, bits) = (u32::from(address.parse::<Ipv4Addr>().ok()?), bits.parse::<u8>().ok()?);
        (16..=28).contains(&bits).then_some(Self { base, bits })
    }

    /// The n-th part when cut into parts of `bits`.
    pub fn part(self, index: u32, bits: u8) -> Self {
        Self { base: self.base.wrapping_add(index << (32 - u32::from(bits))), bits }
    }

    fn size(self) -> u32 {
        1 << (32 - u32::from(self.bits))
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", Ipv4Addr::from(self.base), self.bits)
    }
}

/// A subnet and its addresses.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Subnet {
    pub id: String,
    pub vpc_id: String,
    pub zone: String,
    pub zone_id: String,
    pub cidr: Cidr,
    pub map_public_ip_on_launch: bool,
    pub tags: Tags,
    taken: BTreeSet<u32>,
    next: u32,
    /// Addresses in use by things that are not modelled one by one: prefixes, secondary addresses, other services.
    reserved: u32,
}

/// Network address, router, DNS, future use and broadcast.
// fidelity: documented(VPC User Guide, Subnet CIDR blocks: the first four and the last address are reserved)
const RESERVED_BY_AWS: u32 = 5;

impl Subnet {
    /// An empty subnet.
    pub fn new(id: String, vpc_id: String, zone: &super::catalogue::Zone, cidr: Cidr, tags: Tags) -> Self {
        let (zone, zone_id) = (zone.name.to_owned(), zone.id.to_owned());
        let (taken, next, reserved) = (BTreeSet::new(), 4, 0);
        Self { id, vpc_id, zone, zone_id, cidr, map_public_ip_on_launch: false, tags, taken, next, reserved }
    }

    /// The answer's `availableIpAddressCount`.
    pub fn available_addresses(&self) -> u32 {
        (self.cidr.size() - RESERVED_BY_AWS).saturating_sub(self.taken.len() as u32).saturating_sub(self.reserved)
    }

    pub(crate) fn set_available(&mut self, count: u32) {
        self.reserved =
            (self.cidr.size() - RESERVED_BY_AWS).saturating_sub(self.taken.len() as u32).saturating_sub(count);
    }

    pub(crate) fn reserve(&mut self, count: u32) {
        self.reserved += count;
    }

    pub(crate) fn unreserve(&mut self, count: u32) {
        self.reserved = self.reserved.saturating_sub(count);
    }

    /// Takes the next free address, going round so that an address is not used again at once.
    pub(crate) fn take_address(&mut self) -> Option<Ipv4Addr> {
        if self.available_addresses() == 0 {
            return None;
        }
        let last = self.cidr.size() - 1;
        loop {
            if self.next >= last {
                self.next = 4;
            }
            let offset = self.next;
            self.next += 1;
            if self.taken.insert(offset) {
                return Some(Ipv4Addr::from(self.cidr.base + offset));
            }
        }
    }

    pub(crate) fn release_address(&mut self, address: Ipv4Addr) {
        self.taken.remove(&u32::from(address).wrapping_sub(self.cidr.base));
    }
}

/// A security group, without its rules.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct SecurityGroup {
    pub id: String,
    pub name: String,
    pub description: String,
    pub vpc_id: String,
    pub tags: Tags,
}

/// All networks of the account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    pub(crate) vpcs: BTreeMap<String, Vpc>,
    pub(crate) subnets: BTreeMap<String, Subnet>,
    pub(crate) groups: BTreeMap<String, SecurityGroup>,
}

impl Network {
    pub(crate) fn subnet(&self, id: &str) -> Result<&Subnet, ApiError> {
        self.subnets
            .get(id)
            .ok_or_else(|| ApiError::client("InvalidSubnetID.NotFound", format!("The subnet ID '{id}' does not exist")))
    }

    pub(crate) fn group(&self, id: &str) -> Result<&SecurityGroup, ApiError> {
        self.groups.get(id).ok_or_else(|| {
            ApiError::client("InvalidGroup.NotFound", format!("The security group '{id}' does not exist"))
        })
    }
}
