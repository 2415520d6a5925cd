//! Capacity reservations and placement groups: create, describe, modify and end them.

use super::{finish, page, refuse_unsupported, returned_true, tag_set};
use crate::cloud::filter::Test;
use crate::cloud::reservation::{CapacityReservation, PlacementGroup, ReservationChange};
use crate::cloud::{Cloud, check_id};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;

// fidelity: documented(EC2 API Reference, CreateCapacityReservation: InstancePlatform)
const PLATFORMS: [&str; 18] = [
    "Linux/UNIX",
    "Red Hat Enterprise Linux",
    "SUSE Linux",
    "Windows",
    "Windows with SQL Server",
    "Windows with SQL Server Enterprise",
    "Windows with SQL Server Standard",
    "Windows with SQL Server Web",
    "Linux with SQL Server Standard",
    "Linux with SQL Server Web",
    "Linux with SQL Server Enterprise",
    "RHEL with SQL Server Standard",
    "RHEL with SQL Server Enterprise",
    "RHEL with SQL Server Web",
    "RHEL with HA",
    "RHEL with HA and SQL Server Standard",
    "RHEL with HA and SQL Server Enterprise",
    "Ubuntu Pro",
];

// fidelity: documented(EC2 API Reference, CreateCapacityReservation); reservations that begin later are not played here.
pub(super) fn create_capacity_reservation(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let instance_type = query.required("InstanceType")?.to_owned();
    let platform =
        query.choice("InstancePlatform", &PLATFORMS)?.ok_or_else(|| ApiError::missing("InstancePlatform"))?;
    let count: u32 = query.number("InstanceCount")?.ok_or_else(|| ApiError::missing("InstanceCount"))?;
    let (zone, zone_id) = (query.text("AvailabilityZone"), query.text("AvailabilityZoneId"));
    let tenancy = query.choice("Tenancy", &["default", "dedicated"])?;
    let criteria = query.choice("InstanceMatchCriteria", &["open", "targeted"])?;
    let ends_at = read_end(query, now)?.flatten();
    let ebs_optimized = query.boolean("EbsOptimized")?.unwrap_or(false);
    let placement_group_arn = query.owned("PlacementGroupArn");
    let tags = super::tags_of_new(query, "TagSpecifications", "capacity-reservation")?;
    for later in ["StartDate", "CommitmentDuration", "DeliveryPreference", "OutpostArn"] {
        if query.text(later).is_some() {
            let message = format!("Capacity reservations with {later} are not played here.");
            return Err(ApiError::client("UnsupportedOperation", message));
        }
    }
    query.text("ClientToken");
    query.boolean("EphemeralStorage")?; // Deprecated; a reservation is the same with and without.
    finish(query)?;
    if count == 0 {
        return Err(ApiError::invalid_value("Value (0) for parameter InstanceCount is invalid. Expected at least 1"));
    }
    let zone = reserved_zone(cloud, &instance_type, zone, zone_id)?;
    let reservation = CapacityReservation {
        id: String::new(),
        owner_id: cloud.config.account.clone(),
        instance_type,
        instance_platform: platform,
        zone,
        tenancy: tenancy.unwrap_or_else(|| "default".into()),
        ebs_optimized,
        instance_match_criteria: criteria.unwrap_or_else(|| "open".into()),
        reservation_type: "default".into(),
        interruptible: false,
        state: "active".into(),
        total: count,
        available: count,
        created_at: now,
        ends_at,
        placement_group_arn,
        tags,
    };
    let id = cloud.create_reservation(reservation)?;
    let mut xml = Xml::new();
    xml.element("capacityReservation", |xml| write_reservation(xml, cloud, &cloud.reservations[&id]));
    Ok(xml.into_string())
}

/// The zone to reserve in, where the type has to be sold.
fn reserved_zone(
    cloud: &Cloud,
    instance_type: &str,
    zone: Option<&str>,
    zone_id: Option<&str>,
) -> Result<String, ApiError> {
    let offering = cloud.catalogue.offering(instance_type).ok_or_else(|| {
        ApiError::client("InvalidInstanceType", format!("The instance type '{instance_type}' does not exist."))
    })?;
    let found = match (zone, zone_id) {
        (None, None) => return Err(ApiError::missing("AvailabilityZone")),
        (Some(_), Some(_)) => {
            let message = "AvailabilityZone and AvailabilityZoneId can't be specified together; specify one of them.";
            return Err(ApiError::client("InvalidParameterCombination", message));
        }
        (name, id) => cloud.catalogue.zones.iter().find(|own| Some(own.name) == name || Some(own.id) == id),
    };
    let named = zone.or(zone_id).unwrap_or_default();
    let missing = || ApiError::client("InvalidZone.NotFound", format!("The zone '{named}' does not exist."));
    let zone = found.ok_or_else(missing)?.name;
    match offering.zones.contains(&zone) {
        true => Ok(zone.to_owned()),
        false => Err(ApiError::client(
            "Unsupported",
            format!("The requested configuration is currently not supported: {instance_type} in {zone}."),
        )),
    }
}

/// `EndDate` and `EndDateType`: nothing, no end, or an end.
// fidelity: documented(EC2 API Reference, CreateCapacityReservation: EndDate is required if and only if EndDateType is limited)
fn read_end(query: &Query<'_>, now: Timestamp) -> Result<Option<Option<Timestamp>>, ApiError> {
    let (kind, end) = (query.choice("EndDateType", &["unlimited", "limited"])?, query.time("EndDate")?);
    match (kind.as_deref(), end) {
        (None, None) => Ok(None),
        (Some("unlimited"), None) => Ok(Some(None)),
        (Some(_), None) => Err(ApiError::missing("EndDate")),
        (Some("unlimited"), Some(_)) => Err(ApiError::client(
            "InvalidParameterCombination",
            "EndDate can't be specified with the EndDateType unlimited.",
        )),
        (_, Some(end)) if end <= now => Err(ApiError::invalid_value(format!(
            "Value ({end}) for parameter EndDate is invalid. It has to be in the future"
        ))),
        (_, Some(end)) => Ok(Some(Some(end))),
    }
}

// fidelity: documented(EC2 API Reference, ModifyCapacityReservation: the count, the end and the matching)
pub(super) fn modify_capacity_reservation(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let id = reservation_id(query)?;
    let change = ReservationChange {
        total: query.number("InstanceCount")?,
        ends_at: read_end(query, now)?,
        match_criteria: query.choice("InstanceMatchCriteria", &["open", "targeted"])?,
    };
    query.ignore("reserved by AWS", &["Accept", "AdditionalInfo"]);
    finish(query)?;
    if change.total == Some(0) {
        return Err(ApiError::invalid_value("Value (0) for parameter InstanceCount is invalid. Expected at least 1"));
    }
    cloud.modify_reservation(id, &change)?;
    Ok(returned_true())
}

// fidelity: documented(EC2 API Reference, CancelCapacityReservation: instances go on outside of it)
pub(super) fn cancel_capacity_reservation(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = reservation_id(query)?;
    finish(query)?;
    cloud.cancel_reservation(id)?;
    Ok(returned_true())
}

fn reservation_id<'a>(query: &Query<'a>) -> Result<&'a str, ApiError> {
    let id = query.required("CapacityReservationId")?;
    check_id(id, "cr", "InvalidCapacityReservationId.Malformed")?;
    Ok(id)
}

// fidelity: documented(EC2 API Reference, DescribeCapacityReservations)
pub(super) fn describe_capacity_reservations(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let cloud = &*cloud;
    let (ids, filters) = (query.list("CapacityReservationId"), query.filters()?);
    let page = page(query, 1, 1000, 1000)?;
    finish(query)?;
    filters.check(&[
        "tag-key",
        "state",
        "owner-id",
        "instance-type",
        "instance-platform",
        "availability-zone",
        "instance-match-criteria",
        "tenancy",
        "start-date",
        "end-date",
        "end-date-type",
        "outpost-arn",
        "placement-group-arn",
    ])?;
    for id in &ids {
        check_id(id, "cr", "InvalidCapacityReservationId.Malformed")?;
        cloud.reservation(id)?;
    }
    let attribute = |own: &CapacityReservation, name: &str, test: Test<'_>| match name {
        "state" => test(&own.state),
        "owner-id" => test(&own.owner_id),
        "instance-type" => test(&own.instance_type),
        "instance-platform" => test(&own.instance_platform),
        "availability-zone" => test(&own.zone),
        "instance-match-criteria" => test(&own.instance_match_criteria),
        "tenancy" => test(&own.tenancy),
        "start-date" => test(&timestamp(own.created_at)),
        "end-date" => own.ends_at.is_some_and(|end| test(&timestamp(end))),
        "end-date-type" => test(end_date_type(own)),
        "placement-group-arn" => own.placement_group_arn.as_deref().is_some_and(test),
        _ => false,
    };
    let chosen = cloud.reservations.values().filter(|own| ids.is_empty() || ids.contains(&own.id.as_str()));
    let chosen = chosen.filter(|own| filters.matches(Some(&own.tags), |name, test| attribute(own, name, test)));
    let paged = page.cut(chosen, |own| own.id.clone());
    let mut xml = Xml::new();
    xml.list("capacityReservationSet", paged.items, |xml, own| write_reservation(xml, cloud, own));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn end_date_type(own: &CapacityReservation) -> &'static str {
    if own.ends_at.is_some() { "limited" } else { "unlimited" }
}

fn write_reservation(xml: &mut Xml, cloud: &Cloud, own: &CapacityReservation) {
    xml.text("capacityReservationId", &own.id);
    xml.text("ownerId", &own.owner_id);
    xml.text("capacityReservationArn", cloud.arn("ec2", &format!("capacity-reservation/{}", own.id)));
    xml.text("availabilityZone", &own.zone);
    xml.optional("availabilityZoneId", cloud.catalogue.zone(&own.zone).map(|zone| zone.id));
    xml.text("instanceType", &own.instance_type);
    xml.text("instancePlatform", &own.instance_platform);
    xml.text("tenancy", &own.tenancy);
    xml.value("totalInstanceCount", own.total);
    xml.value("availableInstanceCount", own.available);
    xml.value("ebsOptimized", own.ebs_optimized);
    xml.value("ephemeralStorage", false);
    xml.text("state", &own.state);
    xml.time("startDate", own.created_at);
    if let Some(end) = own.ends_at {
        xml.time("endDate", end);
    }
    xml.text("endDateType", end_date_type(own));
    xml.text("instanceMatchCriteria", &own.instance_match_criteria);
    xml.text("reservationType", &own.reservation_type);
    xml.value("interruptible", own.interruptible);
    xml.time("createDate", own.created_at);
    xml.optional("placementGroupArn", own.placement_group_arn.as_ref());
    tag_set(xml, &own.tags);
}

// fidelity: documented(EC2 API Reference, CreatePlacementGroup: 1 to 7 partitions of a partition group; a spread level host only
// on Outposts)
pub(super) fn create_placement_group(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let name = query.required("GroupName")?.to_owned();
    let strategy = query.choice("Strategy", &["cluster", "spread", "partition"])?.unwrap_or_else(|| "cluster".into());
    let partition_count: Option<u32> = query.number("PartitionCount")?;
    let spread_level = query.choice("SpreadLevel", &["host", "rack"])?;
    let tags = super::tags_of_new(query, "TagSpecification", "placement-group")?;
    refuse_unsupported(query, &["LinkedGroupId", "Operator"])?;
    finish(query)?;
    if name.len() > 255 || !name.is_ascii() {
        return Err(ApiError::invalid_value("A placement group name has up to 255 ASCII characters."));
    }
    match (strategy.as_str(), partition_count) {
        ("partition", Some(count)) if !(1..=7).contains(&count) => {
            let message = format!("Value ({count}) for parameter PartitionCount is invalid. Expected 1 to 7");
            return Err(ApiError::invalid_value(message));
        }
        ("partition", _) | (_, None) => {}
        _ => {
            let message = "PartitionCount is valid only with the strategy partition.";
            return Err(ApiError::client("InvalidParameterCombination", message));
        }
    }
    if spread_level.is_some() && (strategy != "spread" || spread_level.as_deref() == Some("host")) {
        let message = "SpreadLevel is valid only with the strategy spread, and host only on an Outpost.";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    let group = PlacementGroup {
        id: String::new(),
        name,
        partition_count: (strategy == "partition").then(|| partition_count.unwrap_or(2)),
        spread_level: (strategy == "spread").then(|| spread_level.unwrap_or_else(|| "rack".into())),
        strategy,
        state: "available".into(),
        tags,
    };
    let id = cloud.create_placement_group(group)?;
    let mut xml = Xml::new();
    xml.element("placementGroup", |xml| write_placement_group(xml, cloud, &cloud.placement_groups[&id]));
    Ok(xml.into_string())
}

pub(super) fn delete_placement_group(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let name = query.required("GroupName")?;
    finish(query)?;
    cloud.delete_placement_group(name)?;
    Ok(returned_true())
}

// fidelity: documented(EC2 API Reference, DescribePlacementGroups)
pub(super) fn describe_placement_groups(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, names, filters) = (query.list("GroupId"), query.list("GroupName"), query.filters()?);
    finish(query)?;
    filters.check(&["tag-key", "group-name", "group-arn", "state", "strategy", "spread-level"])?;
    let cloud = &*cloud;
    let known = |id: &&str| cloud.placement_groups.contains_key(*id);
    let named = |name: &&str| cloud.placement_groups.values().any(|group| group.name == *name);
    if let Some(missing) = ids.iter().find(|id| !known(id)).or_else(|| names.iter().find(|name| !named(name))) {
        return Err(ApiError::client(
            "InvalidPlacementGroup.Unknown",
            format!("The Placement Group '{missing}' is unknown."),
        ));
    }
    let attribute = |own: &PlacementGroup, name: &str, test: Test<'_>| match name {
        "group-name" => test(&own.name),
        "group-arn" => test(&group_arn(cloud, own)),
        "state" => test(&own.state),
        "strategy" => test(&own.strategy),
        "spread-level" => own.spread_level.as_deref().is_some_and(test),
        _ => false,
    };
    let chosen = cloud
        .placement_groups
        .values()
        .filter(|own| ids.is_empty() || ids.contains(&own.id.as_str()))
        .filter(|own| names.is_empty() || names.contains(&own.name.as_str()))
        .filter(|own| filters.matches(Some(&own.tags), |name, test| attribute(own, name, test)));
    let mut xml = Xml::new();
    xml.list("placementGroupSet", chosen, |xml, own| write_placement_group(xml, cloud, own));
    Ok(xml.into_string())
}

fn group_arn(cloud: &Cloud, own: &PlacementGroup) -> String {
    cloud.arn("ec2", &format!("placement-group/{}", own.name))
}

fn write_placement_group(xml: &mut Xml, cloud: &Cloud, own: &PlacementGroup) {
    xml.text("groupId", &own.id);
    xml.text("groupName", &own.name);
    xml.text("strategy", &own.strategy);
    xml.text("state", &own.state);
    if let Some(count) = own.partition_count {
        xml.value("partitionCount", count);
    }
    xml.optional("spreadLevel", own.spread_level.as_ref());
    xml.text("groupArn", group_arn(cloud, own));
    tag_set(xml, &own.tags);
}
