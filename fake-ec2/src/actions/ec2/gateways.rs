//! Internet gateways: create, attach, detach, delete, describe.

use super::describe::Describe;
use super::tags::tag_specification;
use super::{finish, returned_true, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::network::InternetGateway;
use crate::cloud::resource::Kind;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

// fidelity: documented(EC2 API Reference, CreateInternetGateway; Error codes: InternetGatewayLimitExceeded)
pub(super) fn create_internet_gateway(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let tags = tag_specification(query, &Kind::INTERNET_GATEWAY)?;
    finish(query)?;
    if cloud.network.gateways.len() >= cloud.config.limits.network.internet_gateways as usize {
        let message = "The maximum number of internet gateways has been reached.";
        return Err(ApiError::client("InternetGatewayLimitExceeded", message));
    }
    let gateway = InternetGateway { id: cloud.ids.resource("igw"), vpc_id: None, tags };
    let mut xml = Xml::new();
    xml.element("internetGateway", |xml| write_gateway(xml, cloud, &gateway));
    cloud.network.gateways.insert(gateway.id.clone(), gateway);
    Ok(xml.into_string())
}

pub(super) fn attach_internet_gateway(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, vpc) = (query.required("InternetGatewayId")?, query.required("VpcId")?);
    finish(query)?;
    cloud.network.attach_gateway(id, vpc)?;
    Ok(returned_true())
}

pub(super) fn detach_internet_gateway(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, vpc) = (query.required("InternetGatewayId")?, query.required("VpcId")?);
    finish(query)?;
    cloud.network.detach_gateway(id, vpc)?;
    Ok(returned_true())
}

pub(super) fn delete_internet_gateway(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("InternetGatewayId")?;
    finish(query)?;
    cloud.network.delete_gateway(id)?;
    Ok(returned_true())
}

/// The state of an attachment, where the model of the API would say `attached`.
// fidelity: documented(EC2 API Reference, InternetGatewayAttachment: for an internet gateway, the state is available)
const ATTACHED: &str = "available";

// fidelity: documented(EC2 API Reference, DescribeInternetGateways)
pub(super) fn describe_internet_gateways(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let filters = ["attachment.state", "attachment.vpc-id", "internet-gateway-id", "owner-id", "tag-key"];
    let asked = Describe::read(query, &Kind::INTERNET_GATEWAY, "InternetGatewayId", &filters)?;
    let attribute = |gateway: &&InternetGateway, name: &str, test: Test<'_>| match name {
        "attachment.state" => gateway.vpc_id.is_some() && test(ATTACHED),
        "attachment.vpc-id" => gateway.vpc_id.as_deref().is_some_and(test),
        "internet-gateway-id" => test(&gateway.id),
        "owner-id" => test(&cloud.config.account),
        _ => false,
    };
    let paged = asked.choose(cloud.network.gateways.values(), |own| &own.id, |own| &own.tags, attribute)?;
    let mut xml = Xml::new();
    xml.list("internetGatewaySet", paged.items, |xml, gateway| write_gateway(xml, cloud, gateway));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn write_gateway(xml: &mut Xml, cloud: &Cloud, gateway: &InternetGateway) {
    xml.text("internetGatewayId", &gateway.id);
    xml.text("ownerId", &cloud.config.account);
    xml.list("attachmentSet", &gateway.vpc_id, |xml, vpc| {
        xml.text("vpcId", vpc);
        xml.text("state", ATTACHED);
    });
    tag_set(xml, &gateway.tags);
}
