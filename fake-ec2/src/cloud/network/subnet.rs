//! Subnets and their addresses.

use super::Cidr;
use crate::cloud::catalogue::Zone;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// A subnet and its addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Subnet {
    pub id: String,
    pub vpc_id: String,
    pub zone: String,
    pub zone_id: String,
    pub cidr: Cidr,
    /// Whether it is the zone's subnet of a default VPC.
    pub default_for_zone: bool,
    pub map_public_ip_on_launch: bool,
    pub private_dns: PrivateDnsNames,
    pub tags: Tags,
    taken: BTreeSet<u32>,
    next: u32,
    /// Addresses in use by things that are not modelled one by one: prefixes, secondary addresses, other services.
    reserved: u32,
}

/// How the instances of a subnet are named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct PrivateDnsNames {
    /// `ip-name` or `resource-name`.
    pub hostname_type: String,
    pub resource_name_a_record: bool,
    pub resource_name_aaaa_record: bool,
}

/// Network address, router, DNS, future use and broadcast.
// fidelity: documented(VPC User Guide, Subnet CIDR blocks: the first four and the last address are reserved)
const RESERVED_BY_AWS: u32 = 5;

impl Subnet {
    /// An empty subnet.
    pub fn new(id: String, vpc_id: String, zone: &Zone, cidr: Cidr, tags: Tags) -> Self {
        Self {
            id,
            vpc_id,
            zone: zone.name.to_owned(),
            zone_id: zone.id.to_owned(),
            cidr,
            default_for_zone: false,
            map_public_ip_on_launch: false,
            private_dns: PrivateDnsNames {
                hostname_type: "ip-name".into(),
                resource_name_a_record: false,
                resource_name_aaaa_record: false,
            },
            tags,
            taken: BTreeSet::new(),
            next: 4,
            reserved: 0,
        }
    }

    /// The answer's `availableIpAddressCount`.
    pub fn available_addresses(&self) -> u32 {
        (self.cidr.size() - RESERVED_BY_AWS).saturating_sub(self.taken.len() as u32).saturating_sub(self.reserved)
    }

    /// Whether an interface has an address of it.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.taken.is_empty()
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
                return Some(self.cidr.address(offset));
            }
        }
    }

    /// Takes this address; says whether it is the subnet's to give and was free.
    fn take_this_address(&mut self, address: Ipv4Addr) -> bool {
        let last = self.cidr.size() - 1;
        let offset = self.cidr.offset(address).filter(|offset| (4..last).contains(offset));
        offset.is_some_and(|offset| self.taken.insert(offset))
    }

    /// Takes all of these addresses, or none.
    // fidelity: documented(EC2 API Reference, Error codes: InvalidIPAddress.InUse)
    pub(crate) fn take_these(&mut self, addresses: &[Ipv4Addr]) -> Result<(), ApiError> {
        for (index, address) in addresses.iter().enumerate() {
            if let Err(error) = self.take_named(*address) {
                addresses[..index].iter().for_each(|taken| self.release_address(*taken));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes this address, or says why not.
    pub(crate) fn take_named(&mut self, address: Ipv4Addr) -> Result<(), ApiError> {
        if self.take_this_address(address) {
            return Ok(());
        }
        Err(match self.cidr.offset(address) {
            Some(_) => ApiError::client("InvalidIPAddress.InUse", format!("Address {address} is in use.")),
            None => {
                let message = format!("Address {address} does not fall within the subnet's address range");
                ApiError::invalid_value(message)
            }
        })
    }

    pub(crate) fn release_address(&mut self, address: Ipv4Addr) {
        if let Some(offset) = self.cidr.offset(address) {
            self.taken.remove(&offset);
        }
    }
}
