//! DescribeCapacityReservations and DescribePlacementGroups.

use super::{finish, page, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::reservation::{CapacityReservation, PlacementGroup};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

// fidelity: documented(EC2 API Reference, DescribeCapacityReservations)
pub(super) fn describe_capacity_reservations(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, filters) = (query.list("CapacityReservationId"), query.filters()?);
    let page = page(query, 1, 1000, 1000)?;
    finish(query)?;
    filters.check(&[
        "tag-key",
        "state",
        "owner-id",
        "instance-type",
        "availability-zone",
        "instance-match-criteria",
        "tenancy",
    ])?;
    if let Some(missing) = ids.iter().find(|id| !cloud.reservations.contains_key(**id)) {
        let message = format!("The capacity reservation '{missing}' does not exist.");
        return Err(ApiError::client("InvalidCapacityReservationId.NotFound", message));
    }
    let attribute = |own: &CapacityReservation, name: &str, test: Test<'_>| match name {
        "state" => test(&own.state),
        "owner-id" => test(&own.owner_id),
        "instance-type" => test(&own.instance_type),
        "availability-zone" => test(&own.zone),
        "instance-match-criteria" => test(&own.instance_match_criteria),
        "tenancy" => test("default"),
        _ => false,
    };
    let chosen = cloud.reservations.values().filter(|own| ids.is_empty() || ids.contains(&own.id.as_str()));
    let chosen = chosen.filter(|own| filters.matches(Some(&own.tags), |name, test| attribute(own, name, test)));
    let paged = page.cut(chosen, |own| own.id.clone());
    let mut xml = Xml::new();
    xml.list("capacityReservationSet", paged.items, |xml, own| {
        xml.text("capacityReservationId", &own.id);
        xml.text("ownerId", &own.owner_id);
        xml.text("availabilityZone", &own.zone);
        xml.optional("availabilityZoneId", cloud.catalogue.zone(&own.zone).map(|zone| zone.id));
        xml.text("instanceType", &own.instance_type);
        xml.text("instancePlatform", "Linux/UNIX");
        xml.text("tenancy", "default");
        xml.value("totalInstanceCount", own.total);
        xml.value("availableInstanceCount", own.available);
        xml.text("state", &own.state);
        xml.time("startDate", own.created_at);
        if let Some(end) = own.ends_at {
            xml.time("endDate", end);
        }
        xml.text("endDateType", if own.ends_at.is_some() { "limited" } else { "unlimited" });
        xml.text("instanceMatchCriteria", &own.instance_match_criteria);
        xml.text("reservationType", &own.reservation_type);
        xml.value("interruptible", own.interruptible);
        xml.time("createDate", own.created_at);
        tag_set(xml, &own.tags);
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, DescribePlacementGroups)
pub(super) fn describe_placement_groups(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, names, filters) = (query.list("GroupId"), query.list("GroupName"), query.filters()?);
    finish(query)?;
    filters.check(&["tag-key", "group-name", "state", "strategy", "spread-level"])?;
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
    xml.list("placementGroupSet", chosen, |xml, own| {
        xml.text("groupId", &own.id);
        xml.text("groupName", &own.name);
        xml.text("strategy", &own.strategy);
        xml.text("state", &own.state);
        if let Some(count) = own.partition_count {
            xml.value("partitionCount", count);
        }
        xml.optional("spreadLevel", own.spread_level.as_ref());
        xml.text("groupArn", cloud.arn("ec2", &format!("placement-group/{}", own.name)));
        tag_set(xml, &own.tags);
    });
    Ok(xml.into_string())
}
