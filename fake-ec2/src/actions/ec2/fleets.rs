//! CreateFleet, and reading what it and ModifyFleet ask. Describing and deleting is in `fleet_requests`.

use super::specification::{INTERRUPTION_BEHAVIORS, price, read_devices};
use super::{members, permissions, refuse_unsupported, requirements, specification};
use crate::actions::Context;
use crate::cloud::Cloud;
use crate::cloud::allocation::Strategy;
use crate::cloud::capacity::CapacityType;
use crate::cloud::fleet::{
    Candidate, FleetConfig, FleetKind, FleetOutcome, FleetOverride, FleetRequest, MarketOptions, TargetAsked,
};
use crate::cloud::launch_template::{LaunchSpecification, TemplateReference};
use crate::cloud::requirements::Unit;
use crate::error::ApiError;
use crate::wire::Service;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use jiff::Timestamp;
use std::collections::BTreeMap;

// fidelity: documented(EC2 API Reference, CreateFleet; EC2 User Guide, instant fleets)
pub(super) fn create_fleet(cloud: &mut Cloud, context: &Context<'_>, query: &Query<'_>) -> Result<String, ApiError> {
    let request = read(query)?;
    let dry_run = query.dry_run()?;
    query.finish()?;
    check_period(&request, context.now)?;
    // A dry run checks what does not depend on capacity.
    let candidates = cloud.fleet_candidates(&request)?;
    check_quotas(cloud, &request)?;
    if dry_run {
        return Err(ApiError::dry_run());
    }
    let permit = |cloud: &Cloud, candidate: &Candidate, market: CapacityType| {
        let template = Some(candidate.template.id.as_str());
        let needed = || permissions::launch(cloud, candidate.specification(), template, market);
        context.asking.permit(cloud, Service::Ec2, needed).map_err(|refused| refused.error)
    };
    let fleet = cloud.create_fleet(context.now, request, &candidates, &permit);
    let mut xml = Xml::new();
    xml.text("fleetId", &fleet.id);
    write_outcome(&mut xml, &fleet.outcome);
    Ok(xml.into_string())
}

/// What was launched and what was refused.
pub(super) fn write_outcome(xml: &mut Xml, outcome: &FleetOutcome) {
    xml.list("errorSet", &outcome.errors, |xml, (candidate, capacity_type, error)| {
        write_candidate(xml, candidate);
        xml.text("lifecycle", capacity_type.name());
        xml.text("errorCode", &error.code);
        xml.text("errorMessage", &error.message);
    });
    xml.list("fleetInstanceSet", &outcome.launched, |xml, (candidate, capacity_type, ids)| {
        write_candidate(xml, candidate);
        xml.text("lifecycle", capacity_type.name());
        xml.texts("instanceIds", ids);
        xml.optional("instanceType", candidate.over.instance_type.as_ref());
        xml.optional("availabilityZone", candidate.over.zone.as_ref());
        xml.optional("subnetId", candidate.over.subnet_id.as_ref());
    });
}

pub(super) fn read(query: &Query<'_>) -> Result<FleetRequest, ApiError> {
    let kind = match query.choice("Type", &["instant", "request", "maintain"])?.as_deref() {
        Some("instant") => FleetKind::Instant,
        Some("request") => FleetKind::Request,
        _ => FleetKind::Maintain,
    };
    let part = query.structure("TargetCapacitySpecification");
    let part = part.ok_or_else(|| ApiError::missing("TargetCapacitySpecification.TotalTargetCapacity"))?;
    let (on_demand, spot, target) = read_target(&part)?;
    let mut tags = BTreeMap::new();
    for part in query.structures("TagSpecification") {
        tags.insert(part.required("ResourceType")?.to_owned(), part.tags("Tag")?);
    }
    for added in tags.values() {
        crate::cloud::tags::check(&Default::default(), added)?;
    }
    refuse_unsupported(query, &["ReservedCapacityOptions"])?;
    let excess = query.choice("ExcessCapacityTerminationPolicy", &["termination", "no-termination"])?;
    let request = FleetRequest {
        kind,
        on_demand,
        spot,
        target,
        on_demand_options: read_options(query, "OnDemandOptions", CapacityType::OnDemand)?,
        spot_options: read_options(query, "SpotOptions", CapacityType::Spot)?,
        configs: read_configs(query, "LaunchTemplateConfigs")?,
        tags,
        client_token: query.owned("ClientToken"),
        no_excess_termination: excess.as_deref() == Some("no-termination"),
        terminate_when_expired: query.boolean("TerminateInstancesWithExpiration")?.unwrap_or(false),
        replace_unhealthy: query.boolean("ReplaceUnhealthyInstances")?.unwrap_or(false),
        valid_from: query.time("ValidFrom")?,
        valid_until: query.time("ValidUntil")?,
        context: query.owned("Context"),
    };
    if request.configs.is_empty() {
        return Err(ApiError::missing("LaunchTemplateConfigs"));
    }
    check(&request)?;
    Ok(request)
}

/// Targets on demand and of spot, from what is below `TargetCapacitySpecification`.
pub(super) fn read_target(query: &Query<'_>) -> Result<(u32, u32, TargetAsked), ApiError> {
    let name = |member: &str| format!("TargetCapacitySpecification.{member}");
    let total: u32 =
        query.number("TotalTargetCapacity")?.ok_or_else(|| ApiError::missing(&name("TotalTargetCapacity")))?;
    let on_demand: Option<u32> = query.number("OnDemandTargetCapacity")?;
    let spot: Option<u32> = query.number("SpotTargetCapacity")?;
    let default = query.text("DefaultTargetCapacityType").unwrap_or("on-demand");
    let named = on_demand.unwrap_or(0).saturating_add(spot.unwrap_or(0));
    let rest = total.checked_sub(named).ok_or_else(|| {
        ApiError::client(
            "InvalidTargetCapacitySpecification",
            "The sum of the target capacities exceeds the total target capacity.",
        )
    })?;
    let (on_demand, spot) = (on_demand.unwrap_or(0), spot.unwrap_or(0));
    let (on_demand, spot) = match default {
        "spot" => (on_demand, spot + rest),
        // Reservations are bought on demand; the launch template names the reservation.
        "on-demand" | "capacity-block" | "reserved-capacity" => (on_demand + rest, spot),
        other => {
            return Err(ApiError::invalid_value(format!(
                "Value ({other}) for parameter DefaultTargetCapacityType is invalid."
            )));
        }
    };
    let unit_name = query.choice("TargetCapacityUnitType", &["vcpu", "memory-mib", "units"])?;
    let unit = match unit_name.as_deref() {
        Some("vcpu") => Unit::Vcpu,
        Some("memory-mib") => Unit::MemoryMib,
        _ => Unit::Units,
    };
    Ok((on_demand, spot, TargetAsked { default_market: default.to_owned(), unit_name, unit }))
}

fn read_options(query: &Query<'_>, name: &str, capacity_type: CapacityType) -> Result<MarketOptions, ApiError> {
    let Some(part) = query.structure(name) else { return Ok(MarketOptions::default()) };
    let strategy = match part.text("AllocationStrategy") {
        None => Strategy::default(),
        Some(text) => Strategy::parse(text, capacity_type).ok_or_else(|| {
            ApiError::invalid_value(format!("Value ({text}) for parameter {name}.AllocationStrategy is invalid."))
        })?,
    };
    let mut options = MarketOptions {
        strategy,
        single_type: part.boolean("SingleInstanceType")?.unwrap_or(false),
        single_zone: part.boolean("SingleAvailabilityZone")?.unwrap_or(false),
        minimum: part.number("MinTargetCapacity")?,
        max_total_price: price(&part, "MaxTotalPrice")?,
        ..MarketOptions::default()
    };
    match capacity_type {
        CapacityType::OnDemand => {
            let usage =
                part.choice("CapacityReservationOptions.UsageStrategy", &["use-capacity-reservations-first"])?;
            options.reservations_first = usage.is_some();
        }
        CapacityType::Spot => {
            options.pools_to_use = part.number("InstancePoolsToUseCount")?;
            options.interruption_behavior = part.choice("InstanceInterruptionBehavior", &INTERRUPTION_BEHAVIORS)?;
            options.rebalance = read_rebalance(&part)?;
        }
    }
    Ok(options)
}

fn read_rebalance(query: &Query<'_>) -> Result<Option<(String, Option<u32>)>, ApiError> {
    let Some(part) = query.structure("MaintenanceStrategies.CapacityRebalance") else { return Ok(None) };
    let strategy = part.choice("ReplacementStrategy", &["launch", "launch-before-terminate"])?;
    let delay: Option<u32> = part.number("TerminationDelay")?;
    // fidelity: documented(EC2 API Reference, FleetSpotCapacityRebalanceRequest: a delay of 120 to 7200 seconds, which
    // launch-before-terminate requires and launch does not have); a fleet replaces what is interrupted, not what is at risk
    match (strategy.as_deref(), delay) {
        (Some("launch-before-terminate"), Some(seconds)) if !(120..=7200).contains(&seconds) => {
            let message = format!("Value ({seconds}) for parameter TerminationDelay is invalid. Expected 120 to 7200");
            return Err(ApiError::invalid_value(message));
        }
        (Some("launch-before-terminate"), None) => {
            let message = "TerminationDelay is required with the replacement strategy launch-before-terminate.";
            return Err(ApiError::client("MissingParameter", message));
        }
        (Some("launch") | None, Some(_)) => {
            let message = "TerminationDelay is valid only with the replacement strategy launch-before-terminate.";
            return Err(ApiError::client("InvalidParameterCombination", message));
        }
        _ => {}
    }
    Ok(strategy.map(|strategy| (strategy, delay)))
}

/// What contradicts itself.
// fidelity: documented(EC2 API Reference, CreateFleet, SpotOptionsRequest, OnDemandOptionsRequest: the constraints); assumed:
// InvalidParameterCombination and InvalidParameterValue as the codes.
fn check(request: &FleetRequest) -> Result<(), ApiError> {
    let refuse = |message: String| Err(ApiError::client("InvalidParameterCombination", message));
    let instant = request.kind == FleetKind::Instant;
    for (name, options) in [("OnDemandOptions", &request.on_demand_options), ("SpotOptions", &request.spot_options)] {
        let single = options.single_type || options.single_zone;
        if !instant && (single || options.minimum.is_some()) {
            return refuse(format!(
                "{name}: SingleInstanceType, SingleAvailabilityZone and MinTargetCapacity are supported only for fleets of type instant."
            ));
        }
        if options.minimum.is_some() && !single {
            return refuse(format!(
                "{name}: MinTargetCapacity requires SingleInstanceType or SingleAvailabilityZone to be true."
            ));
        }
    }
    let spot = &request.spot_options;
    if spot.pools_to_use.is_some() && spot.strategy != Strategy::LowestPrice {
        return refuse("InstancePoolsToUseCount is supported only with the allocation strategy lowest-price.".into());
    }
    if spot.pools_to_use == Some(0) {
        return Err(ApiError::invalid_value("InstancePoolsToUseCount has to be at least 1."));
    }
    // fidelity: documented(EC2 API Reference, CreateFleet: TagSpecification, instances only of instant fleets)
    if let Some(kind) = request.tags.keys().find(|kind| !(*kind == "fleet" || instant)) {
        return Err(ApiError::invalid_value(format!(
            "'{kind}' is not a valid taggable resource type for a fleet of type {}; tag instances in the launch template.",
            request.kind.name()
        )));
    }
    if instant && (request.valid_from.is_some() || request.valid_until.is_some()) {
        return refuse("ValidFrom and ValidUntil are not supported for fleets of type instant.".into());
    }
    if request.replace_unhealthy && request.kind != FleetKind::Maintain {
        return refuse("ReplaceUnhealthyInstances is supported only for fleets of type maintain.".into());
    }
    let attributes = |over: &FleetOverride| over.requirements.is_some();
    let by_attributes = request.configs.iter().flat_map(|config| &config.overrides).any(attributes);
    if request.target.unit != Unit::Units && !by_attributes {
        return refuse("TargetCapacityUnitType is supported only when InstanceRequirements is specified.".into());
    }
    Ok(())
}

fn check_period(request: &FleetRequest, now: Timestamp) -> Result<(), ApiError> {
    match (request.valid_from, request.valid_until) {
        (Some(from), Some(until)) if until <= from => {
            Err(ApiError::invalid_value("ValidUntil has to be after ValidFrom."))
        }
        (_, Some(until)) if until <= now => Err(ApiError::invalid_value("ValidUntil is in the past.")),
        _ => Ok(()),
    }
}

/// Sizes of fleets that the account allows.
// fidelity: documented(EC2 User Guide, Fleet quotas: 1,000 fleets, 10,000 units of a fleet, 100,000 of all; none of the first
// and the last for instant fleets); assumed: MaxSpotFleetRequestCountExceeded, which the error codes give to both.
fn check_quotas(cloud: &Cloud, request: &FleetRequest) -> Result<(), ApiError> {
    let limits = &cloud.config.limits;
    let own = u64::from(request.on_demand) + u64::from(request.spot);
    check_target(cloud, own)?;
    if request.kind == FleetKind::Instant {
        return Ok(());
    }
    let (count, target) = cloud.fleet_targets();
    let refuse = |message: String| Err(ApiError::client("MaxSpotFleetRequestCountExceeded", message));
    if count >= limits.fleets as usize {
        return refuse(format!("You've reached the limit of {} fleets in this Region.", limits.fleets));
    }
    if target + own > u64::from(limits.target_capacity_of_all_fleets) {
        let limit = limits.target_capacity_of_all_fleets;
        return refuse(format!("The target capacity of all fleets in this Region would exceed {limit}."));
    }
    Ok(())
}

/// The target of one fleet.
pub(super) fn check_target(cloud: &Cloud, target: u64) -> Result<(), ApiError> {
    let limit = cloud.config.limits.target_capacity_of_a_fleet;
    match target > u64::from(limit) {
        true => Err(ApiError::invalid_value(format!(
            "The target capacity {target} exceeds the limit of {limit} of a fleet."
        ))),
        false => Ok(()),
    }
}

pub(super) fn read_configs(query: &Query<'_>, name: &str) -> Result<Vec<FleetConfig>, ApiError> {
    query.structures(name).iter().map(read_config).collect()
}

fn read_config(query: &Query<'_>) -> Result<FleetConfig, ApiError> {
    let template = TemplateReference {
        id: query.owned("LaunchTemplateSpecification.LaunchTemplateId"),
        name: query.owned("LaunchTemplateSpecification.LaunchTemplateName"),
        version: query.owned("LaunchTemplateSpecification.Version"),
    };
    let overrides: Result<_, _> = query.structures("Overrides").iter().map(read_override).collect();
    Ok(FleetConfig { template, overrides: overrides? })
}

fn read_override(query: &Query<'_>) -> Result<FleetOverride, ApiError> {
    let requirements = match query.structure("InstanceRequirements") {
        Some(part) => Some(requirements::read(&part)?),
        None => None,
    };
    let over = FleetOverride {
        instance_type: query.owned("InstanceType"),
        subnet_id: query.owned("SubnetId"),
        image_id: query.owned("ImageId"),
        zone: query.owned("AvailabilityZone"),
        zone_id: query.owned("AvailabilityZoneId"),
        priority: query.number("Priority")?,
        max_price: price(query, "MaxPrice")?,
        weight: query.number("WeightedCapacity")?,
        requirements,
        block_devices: read_devices(query)?,
        placement: LaunchSpecification {
            tenancy: query.choice("Placement.Tenancy", &["default", "dedicated", "host"])?,
            placement_group_id: query.owned("Placement.GroupId"),
            placement_group_name: query.owned("Placement.GroupName"),
            partition: query.number("Placement.PartitionNumber")?,
            rest: specification::read_host(query)?,
            ..LaunchSpecification::default()
        },
    };
    let placed = query.owned("Placement.AvailabilityZone");
    let placed_id = query.owned("Placement.AvailabilityZoneId");
    if over.instance_type.is_some() && over.requirements.is_some() {
        let message = "InstanceType and InstanceRequirements can't be specified in the same override.";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    if over.weight.is_some_and(|weight| !(weight > 0.0 && weight.is_finite())) {
        return Err(ApiError::invalid_value("WeightedCapacity has to be above zero."));
    }
    if over.priority.is_some_and(|priority| priority.is_nan() || priority < 0.0) {
        return Err(ApiError::invalid_value("Priority can't be negative."));
    }
    Ok(FleetOverride { zone: over.zone.clone().or(placed), zone_id: over.zone_id.clone().or(placed_id), ..over })
}

fn write_candidate(xml: &mut Xml, candidate: &Candidate) {
    let Candidate { template, over, .. } = candidate;
    xml.element("launchTemplateAndOverrides", |xml| {
        xml.element("launchTemplateSpecification", |xml| {
            xml.text("launchTemplateId", &template.id);
            xml.value("version", template.version);
        });
        xml.element("overrides", |xml| write_override(xml, over));
    });
}

pub(super) fn write_override(xml: &mut Xml, over: &FleetOverride) {
    xml.optional("instanceType", over.instance_type.as_ref());
    xml.optional("maxPrice", over.max_price.as_ref());
    xml.optional("subnetId", over.subnet_id.as_ref());
    xml.optional("availabilityZone", over.zone.as_ref());
    xml.optional("availabilityZoneId", over.zone_id.as_ref());
    if let Some(weight) = over.weight {
        xml.value("weightedCapacity", weight);
    }
    if let Some(priority) = over.priority {
        xml.value("priority", priority);
    }
    if let Some(group) = &over.placement.placement_group_name {
        xml.element("placement", |xml| xml.text("groupName", group));
    }
    if let Some(requirements) = &over.requirements {
        xml.element("instanceRequirements", |xml| members::write(xml, &requirements.members));
    }
    xml.optional("imageId", over.image_id.as_ref());
    if !over.block_devices.is_empty() {
        xml.list("blockDeviceMappingSet", &over.block_devices, super::specification::write_device);
    }
}

/// The market of a capacity type named in a launch's market options.
pub(super) fn market(name: Option<&str>) -> CapacityType {
    if name == Some("spot") { CapacityType::Spot } else { CapacityType::OnDemand }
}
