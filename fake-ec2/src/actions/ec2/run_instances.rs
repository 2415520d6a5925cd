//! RunInstances, also as the dry run that checks permissions.

use super::{fleets, instances, refuse_unsupported, specification};
use crate::cloud::Cloud;
use crate::cloud::instance::TemplateUse;
use crate::cloud::launch::Launch;
use crate::cloud::launch_template::{LaunchSpecification, NetworkInterfaceSpecification, SpotOptions};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use jiff::Timestamp;
use std::sync::Arc;

// fidelity: documented(EC2 API Reference, RunInstances)
pub(super) fn run_instances(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let (merged, template) = requested(cloud, query)?;
    let minimum: u32 = query.number("MinCount")?.ok_or_else(|| ApiError::missing("MinCount"))?;
    let maximum: u32 = query.number("MaxCount")?.ok_or_else(|| ApiError::missing("MaxCount"))?;
    if minimum == 0 || minimum > maximum {
        let message = "Invalid value for instance count: the minimum must be at least 1 and not above the maximum.";
        return Err(ApiError::invalid_value(message));
    }
    let client_token = query.owned("ClientToken");
    let dry_run = query.dry_run()?;
    refuse_unsupported(query, &["Ipv6AddressCount", "Ipv6Address", "EnablePrimaryIpv6", "Operator"])?;
    query.ignore("reserved by AWS", &["AdditionalInfo"]);
    query.finish()?;
    for added in merged.tags.values() {
        crate::cloud::tags::check(&Default::default(), added)?;
    }
    check_spot(&merged)?;
    check_address(&merged, maximum)?;
    cloud.check_launch(&merged)?;
    if dry_run {
        return Err(ApiError::dry_run());
    }
    let merged = Arc::new(merged);
    let launch = Launch {
        capacity_type: fleets::market(merged.market.as_deref()),
        template: template.as_ref(),
        client_token: client_token.as_deref(),
        // All or nothing below the minimum.
        minimum,
        ..Launch::of(&merged, maximum)
    };
    let (ids, error) = cloud.launch(now, &launch);
    if ids.is_empty() {
        return Err(error.unwrap_or_else(|| ApiError::new(500, "InternalError", "An internal error has occurred")));
    }
    let mut xml = Xml::new();
    let launched: Vec<_> = ids.iter().filter_map(|id| cloud.instances.get(id)).collect();
    xml.text("reservationId", launched.first().map_or("", |instance| &instance.reservation_id));
    xml.text("ownerId", &cloud.config.account);
    xml.open("groupSet");
    xml.close("groupSet");
    xml.list("instancesSet", launched, |xml, instance| instances::write_instance(xml, &cloud.config, instance));
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, SpotMarketOptions: stop and hibernate, and ValidUntil, of persistent requests)
fn check_spot(merged: &LaunchSpecification) -> Result<(), ApiError> {
    let spot = &merged.spot;
    let refuse = |message: &str| Err(ApiError::client("InvalidParameterCombination", message));
    if merged.market.as_deref() != Some("spot") && *spot != SpotOptions::default() {
        return refuse("SpotOptions can be specified only with the market type spot.");
    }
    let persistent = spot.request_type.as_deref() == Some("persistent");
    if !persistent && spot.interruption_behavior.as_deref().is_some_and(|behavior| behavior != "terminate") {
        return refuse("The interruption behaviors stop and hibernate require a Spot request of type persistent.");
    }
    if !persistent && spot.valid_until.is_some() {
        return refuse("ValidUntil requires a Spot request of type persistent.");
    }
    Ok(())
}

/// An address is one instance's.
// fidelity: documented(EC2 API Reference, RunInstances and InstanceNetworkInterfaceSpecification: a private address cannot
// be given where more than one instance is launched)
fn check_address(merged: &LaunchSpecification, count: u32) -> Result<(), ApiError> {
    match count > 1
        && (merged.private_ip.is_some()
            || merged.network_interfaces.iter().any(NetworkInterfaceSpecification::names_address))
    {
        true => {
            let message = "Network interfaces and an instance-level private address may not be specified for more than one instance.";
            Err(ApiError::client("InvalidParameterCombination", message))
        }
        false => Ok(()),
    }
}

/// What the request asks for on top of the launch template it names, if it names one.
pub(super) fn requested(
    cloud: &Cloud,
    query: &Query<'_>,
) -> Result<(LaunchSpecification, Option<TemplateUse>), ApiError> {
    let mut requested = specification::read(query)?;
    requested.subnet_id = query.owned("SubnetId");
    read_address(query, &mut requested)?;
    check_interfaces(&requested)?;
    let (id, name) = (query.text("LaunchTemplate.LaunchTemplateId"), query.text("LaunchTemplate.LaunchTemplateName"));
    let version = query.text("LaunchTemplate.Version");
    if id.is_none() && name.is_none() {
        return Ok((requested, None));
    }
    let template = cloud.templates.find(id, name)?;
    let (number, version) = template.version(version)?;
    let used = TemplateUse { id: template.id.clone(), name: template.name.clone(), version: number };
    Ok((version.data.clone().overridden_by(&requested), Some(used)))
}

/// The primary interface's address, where the request names it beside the instance.
// fidelity: documented(EC2 API Reference, RunInstances: not both here and among the network interfaces)
fn read_address(query: &Query<'_>, requested: &mut LaunchSpecification) -> Result<(), ApiError> {
    let Some(address) = specification::address(query, "PrivateIpAddress")? else { return Ok(()) };
    if !requested.network_interfaces.is_empty() {
        let message =
            "Network interfaces and an instance-level private address may not be specified on the same request";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    requested.private_ip = Some(address);
    Ok(())
}

// fidelity: documented(EC2 API Reference, RunInstances: with network interfaces, subnet and security groups are named there);
// the sentences as commonly seen
fn check_interfaces(requested: &LaunchSpecification) -> Result<(), ApiError> {
    if requested.network_interfaces.is_empty() {
        return Ok(());
    }
    let own = if requested.subnet_id.is_some() {
        "subnet ID"
    } else if !requested.security_group_ids.is_empty() || !requested.security_group_names.is_empty() {
        "security groups"
    } else {
        return Ok(());
    };
    let message = format!("Network interfaces and an instance-level {own} may not be specified on the same request");
    Err(ApiError::client("InvalidParameterCombination", message))
}
