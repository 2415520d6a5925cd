//! RequestSpotInstances, CancelSpotInstanceRequests and DescribeSpotInstanceRequests.

use super::specification::{self, INTERRUPTION_BEHAVIORS, price};
use super::{finish, groups, page, tag_set};
use crate::cloud::Cloud;
use crate::cloud::check_id;
use crate::cloud::filter::Test;
use crate::cloud::launch_template::LaunchSpecification;
use crate::cloud::spot_request::{NewSpotRequest, SpotRequest, SpotState, no_such_spot_request};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;

// fidelity: documented(EC2 API Reference, DescribeSpotInstanceRequests: filters)
const FILTERS: [&str; 39] = [
    "availability-zone-group",
    "create-time",
    "fault-code",
    "fault-message",
    "instance-id",
    "launch-group",
    "launch.block-device-mapping.delete-on-termination",
    "launch.block-device-mapping.device-name",
    "launch.block-device-mapping.snapshot-id",
    "launch.block-device-mapping.volume-size",
    "launch.block-device-mapping.volume-type",
    "launch.group-id",
    "launch.group-name",
    "launch.image-id",
    "launch.instance-type",
    "launch.kernel-id",
    "launch.key-name",
    "launch.monitoring-enabled",
    "launch.ramdisk-id",
    "launched-availability-zone",
    "launched-availability-zone-id",
    "network-interface.addresses.primary",
    "network-interface.delete-on-termination",
    "network-interface.description",
    "network-interface.device-index",
    "network-interface.group-id",
    "network-interface.network-interface-id",
    "network-interface.private-ip-address",
    "network-interface.subnet-id",
    "product-description",
    "spot-instance-request-id",
    "spot-price",
    "state",
    "status-code",
    "status-message",
    "tag-key",
    "type",
    "valid-from",
    "valid-until",
];

const PRODUCT: &str = "Linux/UNIX";

// fidelity: documented(EC2 API Reference, RequestSpotInstances)
pub(super) fn request_spot_instances(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let count: u32 = query.number("InstanceCount")?.unwrap_or(1);
    let part = query.structure("LaunchSpecification").ok_or_else(|| ApiError::missing("LaunchSpecification"))?;
    let mut specification = specification::read(&part)?;
    specification.subnet_id = part.owned("SubnetId");
    part.ignore("deprecated by AWS", &["AddressingType"]);
    let new = NewSpotRequest {
        specification,
        persistent: query.choice("Type", &["one-time", "persistent"])?.as_deref() == Some("persistent"),
        max_price: price(query, "SpotPrice")?,
        valid_from: query.time("ValidFrom")?,
        valid_until: query.time("ValidUntil")?,
        interruption_behavior: query.choice("InstanceInterruptionBehavior", &INTERRUPTION_BEHAVIORS)?,
        launch_group: query.owned("LaunchGroup"),
        zone_group: query.owned("AvailabilityZoneGroup"),
        tags: super::tags_of_new(query, "TagSpecification", "spot-instances-request")?,
    };
    query.text("ClientToken");
    query.ignore("deprecated by AWS", &["BlockDurationMinutes"]);
    let dry_run = query.dry_run()?;
    query.finish()?;
    check(cloud, now, count, &new)?;
    if dry_run {
        return Err(ApiError::dry_run());
    }
    let ids: Vec<String> = (0..count).map(|_| cloud.request_spot(now, &new)).collect();
    let mut xml = Xml::new();
    let requests = ids.iter().filter_map(|id| cloud.spot_requests.get(id));
    xml.list("spotInstanceRequestSet", requests, |xml, request| write_request(xml, cloud, request));
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, RequestSpotInstances: stop and hibernate, and ValidUntil, of persistent requests)
fn check(cloud: &Cloud, now: Timestamp, count: u32, new: &NewSpotRequest) -> Result<(), ApiError> {
    if count == 0 {
        return Err(ApiError::invalid_value("Value (0) for parameter InstanceCount is invalid. Expected at least 1"));
    }
    if !new.persistent && new.interruption_behavior.as_deref().is_some_and(|behavior| behavior != "terminate") {
        let message = "The interruption behaviors stop and hibernate require a request of type persistent.";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    match (new.valid_from, new.valid_until) {
        (Some(from), Some(until)) if until <= from => {
            return Err(ApiError::invalid_value("ValidUntil has to be after ValidFrom."));
        }
        (_, Some(until)) if until <= now => return Err(ApiError::client("InvalidTime", "ValidUntil is in the past.")),
        _ => {}
    }
    cloud.check_launch(&new.specification).map(drop)
}

// fidelity: documented(EC2 API Reference, CancelSpotInstanceRequests)
pub(super) fn cancel_spot_instance_requests(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let ids = query.list("SpotInstanceRequestId");
    finish(query)?;
    if ids.is_empty() {
        return Err(ApiError::missing("SpotInstanceRequestId"));
    }
    check_ids(cloud, &ids)?;
    let mut cancelled: Vec<(&str, SpotState)> = Vec::new();
    for id in ids {
        cancelled.push((id, cloud.cancel_spot_request(now, id)?));
    }
    let mut xml = Xml::new();
    xml.list("spotInstanceRequestSet", cancelled, |xml, (id, state)| {
        xml.text("spotInstanceRequestId", id);
        xml.text("state", state.name());
    });
    Ok(xml.into_string())
}

fn check_ids(cloud: &Cloud, ids: &[&str]) -> Result<(), ApiError> {
    for id in ids {
        check_id(id, "sir", "InvalidSpotInstanceRequestID.Malformed")?;
        if !cloud.spot_requests.contains_key(*id) {
            return Err(no_such_spot_request(id));
        }
    }
    Ok(())
}

// fidelity: documented(EC2 API Reference, DescribeSpotInstanceRequests; status codes: User Guide, Spot request status)
pub(super) fn describe_spot_instance_requests(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let cloud = &*cloud;
    let (ids, filters) = (query.list("SpotInstanceRequestId"), query.filters()?);
    let page = page(query, 5, 1000, usize::MAX)?;
    finish(query)?;
    filters.check(&FILTERS)?;
    check_ids(cloud, &ids)?;
    let all: Box<dyn Iterator<Item = &SpotRequest>> = match ids.is_empty() {
        true => Box::new(cloud.spot_requests.values()),
        false => {
            let sorted: std::collections::BTreeSet<&str> = ids.into_iter().collect();
            Box::new(sorted.into_iter().filter_map(|id| cloud.spot_requests.get(id)))
        }
    };
    let chosen = all.filter(|own| filters.matches(Some(&own.tags), |name, test| attribute(cloud, own, name, test)));
    let paged = page.cut(chosen, |request| request.id.clone());
    let mut xml = Xml::new();
    xml.list("spotInstanceRequestSet", paged.items, |xml, request| write_request(xml, cloud, request));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn attribute(cloud: &Cloud, own: &SpotRequest, name: &str, test: Test<'_>) -> bool {
    let optional = |value: Option<&str>, test: Test<'_>| value.is_some_and(test);
    let time = |value: Option<Timestamp>, test: Test<'_>| value.is_some_and(|at| test(&timestamp(at)));
    match name {
        "availability-zone-group" => optional(own.zone_group.as_deref(), test),
        "create-time" => test(&timestamp(own.created_at)),
        "fault-code" => optional(own.fault.as_ref().map(|(code, _)| code.as_str()), test),
        "fault-message" => optional(own.fault.as_ref().map(|(_, message)| message.as_str()), test),
        "instance-id" => optional(own.instance_id.as_deref(), test),
        "launch-group" => optional(own.launch_group.as_deref(), test),
        "launched-availability-zone" => optional(own.launched_zone.as_deref(), test),
        "launched-availability-zone-id" => optional(launched_zone_id(cloud, own), test),
        "product-description" => test(PRODUCT),
        "spot-instance-request-id" => test(&own.id),
        "spot-price" => test(&spot_price(cloud, own)),
        "state" => test(own.state.name()),
        "status-code" => test(&own.status),
        "status-message" => test(own.message()),
        "type" => test(kind(own)),
        "valid-from" => time(own.valid_from, test),
        "valid-until" => time(own.valid_until, test),
        launch => launch_attribute(&own.specification, launch, test),
    }
}

fn launch_attribute(own: &LaunchSpecification, name: &str, test: Test<'_>) -> bool {
    let optional = |value: Option<&str>, test: Test<'_>| value.is_some_and(test);
    let groups =
        || own.security_group_ids.iter().chain(own.network_interfaces.iter().flat_map(|one| &one.security_group_ids));
    if let Some(name) = name.strip_prefix("launch.block-device-mapping.") {
        return own.block_devices.iter().any(|device| match name {
            "delete-on-termination" => test(&device.delete_on_termination.unwrap_or(true).to_string()),
            "device-name" => test(&device.device_name),
            "snapshot-id" => optional(device.snapshot_id.as_deref(), test),
            "volume-size" => device.volume_size_gib.is_some_and(|size| test(&size.to_string())),
            "volume-type" => optional(device.volume_type.as_deref(), test),
            _ => false,
        });
    }
    if let Some(name) = name.strip_prefix("network-interface.") {
        return own.network_interfaces.iter().any(|interface| match name {
            "delete-on-termination" => test(&interface.delete_on_termination.unwrap_or(true).to_string()),
            "description" => optional(interface.rest.get("Description"), test),
            "device-index" => test(&interface.device_index.to_string()),
            "group-id" => interface.security_group_ids.iter().any(|id| test(id)),
            "network-interface-id" => optional(interface.rest.get("NetworkInterfaceId"), test),
            "private-ip-address" => optional(interface.rest.get("PrivateIpAddress"), test),
            "subnet-id" => optional(interface.subnet_id.as_deref(), test),
            _ => false,
        });
    }
    match name {
        "launch.group-id" => groups().any(|id| test(id)),
        "launch.group-name" => own.security_group_names.iter().any(|name| test(name)),
        "launch.image-id" => optional(own.image_id.as_deref(), test),
        "launch.instance-type" => optional(own.instance_type.as_deref(), test),
        "launch.kernel-id" => optional(own.rest.get("KernelId"), test),
        "launch.key-name" => optional(own.key_name.as_deref(), test),
        "launch.monitoring-enabled" => test(&own.monitoring.unwrap_or(false).to_string()),
        "launch.ramdisk-id" => optional(own.rest.get("RamdiskId"), test),
        _ => false,
    }
}

fn launched_zone_id<'a>(cloud: &'a Cloud, own: &SpotRequest) -> Option<&'a str> {
    cloud.catalogue.zone(own.launched_zone.as_deref()?).map(|zone| zone.id)
}

/// The most its owner pays: what was named, or the on-demand price.
// fidelity: documented(EC2 User Guide, Spot Instances: the default maximum price is the on-demand price)
fn spot_price(cloud: &Cloud, own: &SpotRequest) -> String {
    let on_demand = || cloud.on_demand_price(own.specification.instance_type.as_deref().unwrap_or_default());
    match &own.max_price {
        Some(price) => price.clone(),
        None => on_demand().map_or_else(String::new, |price| format!("{price:.6}")),
    }
}

fn kind(own: &SpotRequest) -> &'static str {
    if own.persistent { "persistent" } else { "one-time" }
}

fn write_request(xml: &mut Xml, cloud: &Cloud, own: &SpotRequest) {
    xml.text("spotInstanceRequestId", &own.id);
    xml.text("spotPrice", spot_price(cloud, own));
    xml.text("type", kind(own));
    xml.text("state", own.state.name());
    xml.element("status", |xml| {
        xml.text("code", &own.status);
        xml.time("updateTime", own.updated_at);
        xml.text("message", own.message());
    });
    if let Some((code, message)) = &own.fault {
        xml.element("fault", |xml| {
            xml.text("code", code);
            xml.text("message", message);
        });
    }
    xml.optional("instanceId", own.instance_id.as_ref());
    xml.time("createTime", own.created_at);
    xml.text("productDescription", PRODUCT);
    xml.optional("launchedAvailabilityZone", own.launched_zone.as_ref());
    xml.optional("launchedAvailabilityZoneId", launched_zone_id(cloud, own));
    xml.optional("launchGroup", own.launch_group.as_ref());
    xml.optional("availabilityZoneGroup", own.zone_group.as_ref());
    for (name, time) in [("validFrom", own.valid_from), ("validUntil", own.valid_until)] {
        if let Some(time) = time {
            xml.time(name, time);
        }
    }
    xml.text("instanceInterruptionBehavior", &own.interruption_behavior);
    xml.element("launchSpecification", |xml| write_specification(xml, cloud, &own.specification));
    tag_set(xml, &own.tags);
}

/// As LaunchSpecification, whose names are others than those of a template's data.
fn write_specification(xml: &mut Xml, cloud: &Cloud, own: &LaunchSpecification) {
    xml.optional("imageId", own.image_id.as_ref());
    xml.optional("keyName", own.key_name.as_ref());
    let named = own.security_group_ids.iter().map(|id| {
        let name = cloud.network.groups.get(id).map_or_else(String::new, |group| group.name.clone());
        (id.clone(), name)
    });
    groups(xml, "groupSet", &named.collect::<Vec<_>>());
    xml.optional("userData", own.user_data.as_ref());
    xml.optional("instanceType", own.instance_type.as_ref());
    if own.zone.is_some() || own.placement_group_name.is_some() || own.tenancy.is_some() {
        xml.element("placement", |xml| {
            xml.optional("availabilityZone", own.zone.as_ref());
            xml.optional("groupName", own.placement_group_name.as_ref());
            xml.optional("tenancy", own.tenancy.as_ref());
        });
    }
    if !own.block_devices.is_empty() {
        xml.list("blockDeviceMapping", &own.block_devices, specification::write_device);
    }
    xml.element("monitoring", |xml| xml.value("enabled", own.monitoring.unwrap_or(false)));
    xml.optional("subnetId", own.subnet_id.as_ref());
    if !own.network_interfaces.is_empty() {
        xml.list("networkInterfaceSet", &own.network_interfaces, |xml, interface| {
            xml.value("deviceIndex", interface.device_index);
            xml.optional("subnetId", interface.subnet_id.as_ref());
            if !interface.security_group_ids.is_empty() {
                xml.open("SecurityGroupId");
                interface.security_group_ids.iter().for_each(|id| xml.text("SecurityGroupId", id));
                xml.close("SecurityGroupId");
            }
        });
    }
    if own.profile_name.is_some() || own.profile_arn.is_some() {
        xml.element("iamInstanceProfile", |xml| {
            xml.optional("arn", own.profile_arn.as_ref());
            xml.optional("name", own.profile_name.as_ref());
        });
    }
    if let Some(optimized) = own.ebs_optimized {
        xml.value("ebsOptimized", optimized);
    }
}
