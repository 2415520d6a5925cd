//! Network interfaces that no instance has. Those of instances are parts of them.

use super::Network;
use crate::cloud::ids::Ids;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// A network interface that was made by itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct FreeInterface {
    pub id: String,
    pub subnet_id: String,
    pub private_ip: Ipv4Addr,
    /// Id and name of each.
    pub security_groups: Vec<(String, String)>,
    pub interface_type: String,
    pub description: String,
    pub tags: Tags,
}

impl Network {
    /// Makes an interface: `new` without its id and, unless `address` names one, with the subnet's next free address.
    pub(crate) fn create_interface(
        &mut self,
        ids: &mut Ids,
        address: Option<Ipv4Addr>,
        mut new: FreeInterface,
    ) -> Result<String, ApiError> {
        let subnet_id = new.subnet_id.as_str();
        self.subnet(subnet_id)?;
        let subnet = self.subnets.get_mut(subnet_id).expect("it was looked up above");
        new.private_ip = match address {
            None => subnet.take_address().ok_or_else(|| {
                let message =
                    format!("There are not enough free addresses in subnet '{subnet_id}' to satisfy the request.");
                ApiError::client("InsufficientFreeAddressesInSubnet", message)
            })?,
            Some(address) => subnet.take_named(address).map(|()| address)?,
        };
        new.id = ids.resource("eni");
        let id = new.id.clone();
        self.interfaces.insert(id.clone(), new);
        Ok(id)
    }

    /// Deletes an interface that no instance has; says whether there was one.
    pub(crate) fn delete_interface(&mut self, id: &str) -> bool {
        let Some(interface) = self.interfaces.remove(id) else { return false };
        if let Some(subnet) = self.subnets.get_mut(&interface.subnet_id) {
            subnet.release_address(interface.private_ip);
        }
        true
    }
}
