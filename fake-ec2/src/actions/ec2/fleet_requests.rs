//! Fleets after their creation: describe, modify, delete, and what became of them.

use super::fleets::{check_target, read_configs, read_target, write_outcome, write_override};
use super::{finish, page, returned_true, tag_set};
use crate::cloud::Cloud;
use crate::cloud::allocation::Strategy;
use crate::cloud::capacity::CapacityType;
use crate::cloud::filter::Test;
use crate::cloud::fleet::{Fleet, FleetConfig, FleetKind, FleetRequest, FleetState, MarketOptions};
use crate::cloud::fleet_upkeep::no_such_fleet;
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page};
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use jiff::Timestamp;

const FILTERS: [&str; 5] =
    ["activity-status", "excess-capacity-termination-policy", "fleet-state", "replace-unhealthy-instances", "type"];

/// Fleets that one call may delete.
// fidelity: documented(EC2 API Reference, DeleteFleets: 25 instant fleets, 100 of the other types)
const MAX_DELETED_INSTANT: usize = 25;
const MAX_DELETED: usize = 100;

// fidelity: documented(EC2 API Reference, DescribeFleets: instant fleets only if they are asked for by id)
pub(super) fn describe_fleets(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let cloud = &*cloud;
    let (ids, filters) = (query.list("FleetId"), query.filters()?);
    let page = page(query, 1, 1000, 1000)?;
    finish(query)?;
    filters.check(&FILTERS)?;
    for id in &ids {
        named(cloud, id)?;
    }
    let attribute = |fleet: &Fleet, name: &str, test: Test<'_>| match name {
        "activity-status" => test(activity(fleet)),
        "excess-capacity-termination-policy" => test(excess_policy(&fleet.request)),
        "fleet-state" => test(fleet.state.name()),
        "replace-unhealthy-instances" => test(&fleet.request.replace_unhealthy.to_string()),
        "type" => test(fleet.request.kind.name()),
        _ => false,
    };
    let chosen = cloud
        .fleets
        .iter()
        .filter(|fleet| match ids.is_empty() {
            true => fleet.request.kind != FleetKind::Instant,
            false => ids.contains(&fleet.id.as_str()),
        })
        .filter(|fleet| filters.matches(Some(&fleet.tags), |name, test| attribute(fleet, name, test)));
    let paged = page.cut(chosen, |fleet| fleet.id.clone());
    let mut xml = Xml::new();
    xml.list("fleetSet", paged.items, write_fleet);
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn named<'a>(cloud: &'a Cloud, id: &str) -> Result<&'a Fleet, ApiError> {
    if !is_fleet_id(id) {
        let message = format!("The fleet ID '{id}' is malformed; expected fleet- and a UUID.");
        return Err(ApiError::client("InvalidFleetId.Malformed", message));
    }
    cloud.fleets.get(id).ok_or_else(|| no_such_fleet(id))
}

fn is_fleet_id(id: &str) -> bool {
    let uuid = id.strip_prefix("fleet-").unwrap_or_default();
    uuid.len() == 36 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

// fidelity: documented(EC2 API Reference, FleetData: ActivityStatus)
fn activity(fleet: &Fleet) -> &'static str {
    let request = &fleet.request;
    let lacks = |market, target: u32| fleet.fulfilled(market) < f64::from(target);
    let lacking = lacks(CapacityType::OnDemand, request.on_demand) || lacks(CapacityType::Spot, request.spot);
    match fleet.state {
        FleetState::DeletedTerminating => "pending_termination",
        _ if lacking && !fleet.outcome.errors.is_empty() => "error",
        _ if lacking => "pending_fulfillment",
        _ => "fulfilled",
    }
}

fn excess_policy(request: &FleetRequest) -> &'static str {
    if request.no_excess_termination { "no-termination" } else { "termination" }
}

fn write_fleet(xml: &mut Xml, fleet: &Fleet) {
    let request = &fleet.request;
    xml.text("activityStatus", activity(fleet));
    xml.time("createTime", fleet.created_at);
    xml.text("fleetId", &fleet.id);
    xml.text("fleetState", fleet.state.name());
    xml.optional("clientToken", request.client_token.as_ref());
    xml.text("excessCapacityTerminationPolicy", excess_policy(request));
    let on_demand = fleet.fulfilled(CapacityType::OnDemand);
    xml.value("fulfilledCapacity", on_demand + fleet.fulfilled(CapacityType::Spot));
    xml.value("fulfilledOnDemandCapacity", on_demand);
    xml.list("launchTemplateConfigs", &request.configs, write_config);
    xml.element("targetCapacitySpecification", |xml| {
        xml.value("totalTargetCapacity", u64::from(request.on_demand) + u64::from(request.spot));
        xml.value("onDemandTargetCapacity", request.on_demand);
        xml.value("spotTargetCapacity", request.spot);
        xml.text("defaultTargetCapacityType", &request.target.default_market);
        xml.optional("targetCapacityUnitType", request.target.unit_name.as_ref());
    });
    xml.value("terminateInstancesWithExpiration", request.terminate_when_expired);
    xml.text("type", request.kind.name());
    for (name, time) in [("validFrom", request.valid_from), ("validUntil", request.valid_until)] {
        if let Some(time) = time {
            xml.time(name, time);
        }
    }
    xml.value("replaceUnhealthyInstances", request.replace_unhealthy);
    xml.element("spotOptions", |xml| write_spot_options(xml, &request.spot_options));
    xml.element("onDemandOptions", |xml| {
        write_options(xml, &request.on_demand_options);
        if request.on_demand_options.reservations_first {
            xml.element("capacityReservationOptions", |xml| {
                xml.text("usageStrategy", "use-capacity-reservations-first");
            });
        }
    });
    tag_set(xml, &fleet.tags);
    if request.kind == FleetKind::Instant {
        write_outcome(xml, &fleet.outcome);
    }
    xml.optional("context", request.context.as_ref());
}

fn write_config(xml: &mut Xml, config: &FleetConfig) {
    xml.element("launchTemplateSpecification", |xml| {
        xml.optional("launchTemplateId", config.template.id.as_ref());
        xml.optional("launchTemplateName", config.template.name.as_ref());
        xml.optional("version", config.template.version.as_ref());
    });
    xml.list("overrides", &config.overrides, write_override);
}

fn write_options(xml: &mut Xml, options: &MarketOptions) {
    xml.text("allocationStrategy", options.strategy.name());
    xml.value("singleInstanceType", options.single_type);
    xml.value("singleAvailabilityZone", options.single_zone);
    if let Some(minimum) = options.minimum {
        xml.value("minTargetCapacity", minimum);
    }
    xml.optional("maxTotalPrice", options.max_total_price.as_ref());
}

fn write_spot_options(xml: &mut Xml, options: &MarketOptions) {
    write_options(xml, options);
    xml.text("instanceInterruptionBehavior", options.interruption_behavior.as_deref().unwrap_or("terminate"));
    if options.strategy == Strategy::LowestPrice {
        xml.value("instancePoolsToUseCount", options.pools_to_use.unwrap_or(1));
    }
    if let Some((strategy, delay)) = &options.rebalance {
        xml.element("maintenanceStrategies", |xml| {
            xml.element("capacityRebalance", |xml| {
                xml.text("replacementStrategy", strategy);
                if let Some(delay) = delay {
                    xml.value("terminationDelay", delay);
                }
            });
        });
    }
}

// fidelity: documented(EC2 API Reference, ModifyFleet: target, policy and configurations; what is not named stays)
pub(super) fn modify_fleet(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("FleetId")?;
    let excess = query.choice("ExcessCapacityTerminationPolicy", &["termination", "no-termination"])?;
    let target = match query.structure("TargetCapacitySpecification") {
        Some(part) => Some(read_target(&part)?),
        None => None,
    };
    let configs = read_configs(query, "LaunchTemplateConfig")?;
    let context = query.owned("Context");
    finish(query)?;
    let mut changed = (*named(cloud, id)?.request).clone();
    if let Some(policy) = excess {
        changed.no_excess_termination = policy == "no-termination";
    }
    if let Some((on_demand, spot, asked)) = target {
        check_target(cloud, u64::from(on_demand) + u64::from(spot))?;
        (changed.on_demand, changed.spot, changed.target) = (on_demand, spot, asked);
    }
    if !configs.is_empty() {
        changed.configs = configs;
    }
    changed.context = context.or(changed.context);
    cloud.fleet_candidates(&changed)?;
    cloud.modify_fleet(now, id, changed)?;
    Ok(returned_true())
}

/// Why a fleet was not deleted: code and message.
type NotDeleted = (&'static str, String);

// fidelity: documented(EC2 API Reference, DeleteFleets: successes and failures side by side; instant fleets only with their
// instances); assumed: that an instant fleet that would leave instances is not in a deletable state.
pub(super) fn delete_fleets(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let ids = query.list("FleetId");
    let terminate = query.boolean("TerminateInstances")?.ok_or_else(|| ApiError::missing("TerminateInstances"))?;
    finish(query)?;
    if ids.is_empty() {
        return Err(ApiError::missing("FleetId"));
    }
    let kinds = ids.iter().filter_map(|id| cloud.fleets.get(id)).map(|fleet| fleet.request.kind);
    let instant = kinds.filter(|kind| *kind == FleetKind::Instant).count();
    if ids.len() > MAX_DELETED || instant > MAX_DELETED_INSTANT {
        let message = format!(
            "One request deletes at most {MAX_DELETED} fleets, of them {MAX_DELETED_INSTANT} of type instant; {} and {instant} were named.",
            ids.len()
        );
        return Err(ApiError::invalid_value(message));
    }
    let mut deleted: Vec<(&str, FleetState, FleetState)> = Vec::new();
    let mut kept: Vec<(&str, NotDeleted)> = Vec::new();
    for id in ids {
        match deletable(cloud, id, terminate) {
            Err(refused) => kept.push((id, refused)),
            Ok(()) => deleted
                .extend(cloud.delete_fleet(now, id, terminate).map(|(previous, current)| (id, previous, current))),
        }
    }
    let mut xml = Xml::new();
    xml.list("successfulFleetDeletionSet", deleted, |xml, (id, previous, current)| {
        xml.text("currentFleetState", current.name());
        xml.text("previousFleetState", previous.name());
        xml.text("fleetId", id);
    });
    xml.list("unsuccessfulFleetDeletionSet", kept, |xml, (id, (code, message))| {
        xml.element("error", |xml| {
            xml.text("code", code);
            xml.text("message", message);
        });
        xml.text("fleetId", id);
    });
    Ok(xml.into_string())
}

fn deletable(cloud: &Cloud, id: &str, terminate: bool) -> Result<(), NotDeleted> {
    if !is_fleet_id(id) {
        return Err(("fleetIdMalformed", format!("The fleet ID '{id}' is malformed.")));
    }
    let Some(fleet) = cloud.fleets.get(id) else {
        return Err(("fleetIdDoesNotExist", format!("The fleet ID '{id}' does not exist.")));
    };
    let leaves = fleet.request.kind == FleetKind::Instant && !terminate && !fleet.members.is_empty();
    match fleet.state.is_deleted() || leaves {
        true => Err(("fleetNotInDeletableState", format!("The fleet '{id}' is not in a deletable state."))),
        false => Ok(()),
    }
}

// fidelity: documented(EC2 API Reference, DescribeFleetInstances: running instances; not for type instant); assumed: the code.
pub(super) fn describe_fleet_instances(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let cloud = &*cloud;
    let id = query.required("FleetId")?;
    let (page, filters) = (page(query, 1, 1000, 1000)?, query.filters()?);
    finish(query)?;
    filters.check(&["instance-type"])?;
    let fleet = lasting(cloud, id, "DescribeFleetInstances")?;
    let own = fleet.members.keys().filter_map(|id| cloud.instances.get(id));
    let chosen = own.filter(|own| filters.matches(None, |_, test| test(own.instance_type)));
    let paged = page.cut(chosen, |own| own.id.clone());
    let mut xml = Xml::new();
    xml.list("activeInstanceSet", paged.items, |xml, own| {
        xml.text("instanceId", &own.id);
        xml.text("instanceType", own.instance_type);
        xml.optional("spotInstanceRequestId", own.spot_request_id.as_ref());
        xml.text("instanceHealth", if cloud.is_healthy(&own.id) { "healthy" } else { "unhealthy" });
    });
    xml.optional("nextToken", paged.next);
    xml.text("fleetId", id);
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, DescribeFleetHistory: from StartTime on, by type of event; not for type instant)
pub(super) fn describe_fleet_history(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let cloud = &*cloud;
    let id = query.required("FleetId")?;
    let start = query.time("StartTime")?.ok_or_else(|| ApiError::missing("StartTime"))?;
    let kind = query.choice("EventType", &["instance-change", "fleet-change", "service-error"])?;
    let bounds = Bounds { minimum: 1, maximum: 1000, default: 1000 };
    let page = Page::new(query.number("MaxResults")?, query.text("NextToken"), bounds)?;
    finish(query)?;
    let fleet = lasting(cloud, id, "DescribeFleetHistory")?;
    let numbered = fleet.history.iter().enumerate();
    let chosen = numbered
        .filter(|(_, record)| record.at >= start)
        .filter(|(_, record)| kind.as_ref().is_none_or(|kind| *kind == record.kind));
    // Records are only ever added, but for those that fall off the beginning of a very long history.
    let paged = page.cut(chosen, |(number, _)| format!("{number:08}"));
    let mut xml = Xml::new();
    xml.list("historyRecordSet", paged.items, |xml, (_, record)| {
        xml.element("eventInformation", |xml| {
            xml.text("eventDescription", &record.description);
            xml.text("eventSubType", &record.sub_type);
            xml.optional("instanceId", record.instance_id.as_ref());
        });
        xml.text("eventType", &record.kind);
        xml.time("timestamp", record.at);
    });
    xml.time("lastEvaluatedTime", now);
    xml.optional("nextToken", paged.next);
    xml.text("fleetId", id);
    xml.time("startTime", start);
    Ok(xml.into_string())
}

/// A fleet that goes on after its answer.
fn lasting<'a>(cloud: &'a Cloud, id: &str, action: &str) -> Result<&'a Fleet, ApiError> {
    let fleet = named(cloud, id)?;
    match fleet.request.kind {
        FleetKind::Instant => Err(ApiError::client(
            "Unsupported",
            format!("{action} does not support fleets of type instant; use DescribeFleets with the fleet ID."),
        )),
        _ => Ok(fleet),
    }
}
