//! Internet gateways: attached to one VPC or to none.

use super::Network;
use crate::cloud::resource::Kind;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use serde::{Deserialize, Serialize};

/// An internet gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct InternetGateway {
    pub id: String,
    /// The VPC it is attached to.
    pub vpc_id: Option<String>,
    pub tags: Tags,
}

impl Network {
    pub(crate) fn gateway(&self, id: &str) -> Result<&InternetGateway, ApiError> {
        self.gateways.get(id).ok_or_else(|| Kind::INTERNET_GATEWAY.missing(id))
    }

    // fidelity: documented(EC2 API Reference, Error codes: Resource.AlreadyAssociated); assumed: the code for a VPC that has one
    pub(crate) fn attach_gateway(&mut self, id: &str, vpc_id: &str) -> Result<(), ApiError> {
        self.vpc(vpc_id)?;
        if let Some(attached) = &self.gateway(id)?.vpc_id {
            let message = format!("resource {id} is already attached to network {attached}");
            return Err(ApiError::client("Resource.AlreadyAssociated", message));
        }
        if self.gateways.values().any(|gateway| gateway.vpc_id.as_deref() == Some(vpc_id)) {
            let message = format!("Network {vpc_id} already has an internet gateway attached");
            return Err(ApiError::invalid_value(message));
        }
        self.gateways.entry(id.into()).and_modify(|gateway| gateway.vpc_id = Some(vpc_id.into()));
        Ok(())
    }

    // fidelity: documented(EC2 API Reference, Error codes: Gateway.NotAttached)
    pub(crate) fn detach_gateway(&mut self, id: &str, vpc_id: &str) -> Result<(), ApiError> {
        self.vpc(vpc_id)?;
        if self.gateway(id)?.vpc_id.as_deref() != Some(vpc_id) {
            let message = format!("resource {id} is not attached to network {vpc_id}");
            return Err(ApiError::client("Gateway.NotAttached", message));
        }
        self.gateways.entry(id.into()).and_modify(|gateway| gateway.vpc_id = None);
        Ok(())
    }

    // fidelity: documented(EC2 API Reference, DeleteInternetGateway: it has to be detached first)
    pub(crate) fn delete_gateway(&mut self, id: &str) -> Result<(), ApiError> {
        if self.gateway(id)?.vpc_id.is_some() {
            return Err(super::has_dependencies("internetGateway", id));
        }
        self.gateways.remove(id);
        Ok(())
    }
}
