//! DescribeInstances, DescribeSpotInstanceRequests and the actions that end, stop and start instances.

use super::{finish, groups, page, specification, tag_set};
use crate::cloud::filter::{Filters, Test};
use crate::cloud::instance::{Instance, SpotRequest, State};
use crate::cloud::{Cloud, check_id, no_such_instance};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;
use std::collections::BTreeMap;

const FILTERS: [&str; 27] = [
    "tag-key",
    "instance-id",
    "instance-state-name",
    "instance-state-code",
    "instance-type",
    "image-id",
    "subnet-id",
    "vpc-id",
    "availability-zone",
    "availability-zone-id",
    "private-ip-address",
    "private-dns-name",
    "reservation-id",
    "owner-id",
    "client-token",
    "instance-lifecycle",
    "spot-instance-request-id",
    "instance.group-id",
    "instance.group-name",
    "iam-instance-profile.arn",
    "architecture",
    "tenancy",
    "launch-time",
    "placement-group-name",
    "key-name",
    "capacity-reservation-id",
    "network-interface.network-interface-id",
];

// fidelity: documented(EC2 API Reference, DescribeInstances)
pub(super) fn describe_instances(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, filters) = (query.list("InstanceId"), query.filters()?);
    if !ids.is_empty() && query.text("MaxResults").is_some() {
        let message = "The parameter instancesSet cannot be used with the parameter maxResults";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    // fidelity: documented(EC2 API, DescribeInstances): MaxResults is 5 to 1000; without MaxResults everything is answered.
    let page = page(query, 5, 1000, usize::MAX)?;
    query.ignore(&["IncludeManagedResources"]);
    finish(query)?;
    filters.check(&FILTERS)?;
    let account = cloud.config.account.as_str();
    let visible = |instance: &&Instance| instance.visible_at <= now;
    let chosen: Vec<&Instance> = match ids.is_empty() {
        true => {
            cloud.instances.values().filter(visible).filter(|instance| passes(instance, &filters, account)).collect()
        }
        false => named(cloud, now, &ids)?.into_iter().filter(|instance| passes(instance, &filters, account)).collect(),
    };
    let paged = page.cut(chosen, |instance| instance.id.clone());
    let mut reservations: BTreeMap<&str, Vec<&Instance>> = BTreeMap::new();
    for instance in paged.items {
        reservations.entry(&instance.reservation_id).or_default().push(instance);
    }
    let mut xml = Xml::new();
    xml.list("reservationSet", reservations, |xml, (id, instances)| {
        xml.text("reservationId", id);
        xml.text("ownerId", account);
        xml.open("groupSet");
        xml.close("groupSet");
        xml.list("instancesSet", instances, write_instance);
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

/// The instances of these ids, or the refusal that names the missing ones.
pub(super) fn named<'a>(cloud: &'a Cloud, now: Timestamp, ids: &[&str]) -> Result<Vec<&'a Instance>, ApiError> {
    for id in ids {
        check_id(id, "i", "InvalidInstanceID.Malformed")?;
    }
    let find = |id: &&str| cloud.instances.get(*id).filter(|instance| instance.visible_at <= now);
    let missing: Vec<&str> = ids.iter().copied().filter(|id| find(id).is_none()).collect();
    match missing.is_empty() {
        true => Ok(ids.iter().filter_map(find).collect()),
        false => Err(no_such_instance(&missing)),
    }
}

fn passes(instance: &Instance, filters: &Filters, account: &str) -> bool {
    filters.matches(Some(&instance.tags), |name, test| attribute(instance, account, name, test))
}

fn attribute(instance: &Instance, account: &str, name: &str, test: Test<'_>) -> bool {
    match name {
        "instance-id" => test(&instance.id),
        "instance-state-name" => test(instance.state.name()),
        "instance-state-code" => test(&instance.state.code().to_string()),
        "instance-type" => test(instance.instance_type),
        "image-id" => test(&instance.image_id),
        "subnet-id" => test(&instance.subnet_id),
        "vpc-id" => test(&instance.vpc_id),
        "availability-zone" => test(&instance.zone),
        "availability-zone-id" => test(&instance.zone_id),
        "private-ip-address" => test(&instance.private_ip.to_string()),
        "private-dns-name" => test(&instance.private_dns_name),
        "reservation-id" => test(&instance.reservation_id),
        "owner-id" => test(account),
        "client-token" => instance.client_token.as_deref().is_some_and(test),
        "instance-lifecycle" => instance.spot_request_id.is_some() && test("spot"),
        "spot-instance-request-id" => instance.spot_request_id.as_deref().is_some_and(test),
        "instance.group-id" => instance.security_groups.iter().any(|(id, _)| test(id)),
        "instance.group-name" => instance.security_groups.iter().any(|(_, name)| test(name)),
        "iam-instance-profile.arn" => instance.profile.as_ref().is_some_and(|profile| test(&profile.arn)),
        "architecture" => test(&instance.architecture),
        "tenancy" => test(&instance.tenancy),
        "launch-time" => test(&timestamp(instance.launched_at)),
        "placement-group-name" => instance.placement_group.as_ref().is_some_and(|(_, name)| test(name)),
        "key-name" => instance.key_name.as_deref().is_some_and(test),
        "capacity-reservation-id" => instance.capacity_reservation_id.as_deref().is_some_and(test),
        "network-interface.network-interface-id" => {
            instance.network_interfaces.iter().any(|interface| test(&interface.id))
        }
        _ => false,
    }
}

pub(super) fn write_instance(xml: &mut Xml, instance: &Instance) {
    xml.text("instanceId", &instance.id);
    xml.text("imageId", &instance.image_id);
    xml.element("instanceState", |xml| write_state(xml, instance.state));
    xml.text("privateDnsName", if instance.state == State::Terminated { "" } else { &instance.private_dns_name });
    xml.text("dnsName", "");
    xml.text("reason", instance.state_reason.as_ref().map_or("", |(code, _)| code));
    xml.optional("keyName", instance.key_name.as_ref());
    xml.value("amiLaunchIndex", instance.launch_index);
    xml.text("instanceType", instance.instance_type);
    xml.time("launchTime", instance.launched_at);
    xml.element("placement", |xml| {
        xml.text("availabilityZone", &instance.zone);
        xml.text("availabilityZoneId", &instance.zone_id);
        xml.text("groupName", instance.placement_group.as_ref().map_or("", |(_, name)| name));
        xml.optional("groupId", instance.placement_group.as_ref().map(|(id, _)| id));
        xml.text("tenancy", &instance.tenancy);
        if let Some(partition) = instance.partition {
            xml.value("partitionNumber", partition);
        }
    });
    xml.element("monitoring", |xml| xml.text("state", if instance.monitoring { "enabled" } else { "disabled" }));
    if instance.state != State::Terminated {
        xml.text("subnetId", &instance.subnet_id);
        xml.text("vpcId", &instance.vpc_id);
        xml.text("privateIpAddress", instance.private_ip.to_string());
    }
    xml.value("sourceDestCheck", true);
    groups(xml, "groupSet", &instance.security_groups);
    if let Some((code, message)) = &instance.state_reason {
        xml.element("stateReason", |xml| {
            xml.text("code", code);
            xml.text("message", message);
        });
    }
    xml.text("architecture", &instance.architecture);
    xml.text("rootDeviceType", "ebs");
    xml.optional("rootDeviceName", instance.volumes.first().map(|volume| &volume.device.device_name));
    xml.list("blockDeviceMapping", &instance.volumes, |xml, volume| {
        xml.text("deviceName", &volume.device.device_name);
        xml.element("ebs", |xml| {
            xml.text("volumeId", &volume.id);
            xml.text("status", "attached");
            xml.time("attachTime", volume.attached_at);
            xml.value("deleteOnTermination", volume.device.delete_on_termination.unwrap_or(true));
        });
    });
    xml.text("virtualizationType", "hvm");
    if instance.spot_request_id.is_some() {
        xml.text("instanceLifecycle", "spot");
    }
    xml.optional("spotInstanceRequestId", instance.spot_request_id.as_ref());
    xml.text("clientToken", instance.client_token.as_deref().unwrap_or_default());
    tag_set(xml, &instance.tags);
    xml.text("hypervisor", "xen");
    xml.list("networkInterfaceSet", &instance.network_interfaces, |xml, interface| {
        xml.text("networkInterfaceId", &interface.id);
        xml.text("subnetId", &interface.subnet_id);
        xml.text("vpcId", &instance.vpc_id);
        xml.text("status", "in-use");
        xml.text("privateIpAddress", interface.private_ip.to_string());
        groups(xml, "groupSet", &interface.security_groups);
        xml.element("attachment", |xml| {
            xml.text("attachmentId", &interface.attachment_id);
            xml.value("deviceIndex", interface.device_index);
            xml.text("status", "attached");
            xml.time("attachTime", instance.launched_at);
            xml.value("deleteOnTermination", true);
            xml.value("networkCardIndex", interface.network_card_index);
        });
        xml.text("interfaceType", &interface.interface_type);
    });
    if let Some(profile) = &instance.profile {
        xml.element("iamInstanceProfile", |xml| {
            xml.text("arn", &profile.arn);
            xml.text("id", &profile.id);
        });
    }
    xml.value("ebsOptimized", instance.ebs_optimized);
    xml.value("enaSupport", true);
    xml.optional("capacityReservationId", instance.capacity_reservation_id.as_ref());
    xml.element("capacityReservationSpecification", |xml| {
        xml.text(
            "capacityReservationPreference",
            instance.capacity_reservation_preference.as_deref().unwrap_or("open"),
        );
        if let Some(id) = &instance.specification.reservation_id {
            xml.element("capacityReservationTarget", |xml| xml.text("capacityReservationId", id));
        }
    });
    xml.element("metadataOptions", |xml| specification::write_metadata(xml, &instance.metadata));
    xml.element("enclaveOptions", |xml| xml.value("enabled", instance.specification.enclave.unwrap_or(false)));
    xml.text("platformDetails", "Linux/UNIX");
    xml.text("usageOperation", "RunInstances");
}

fn write_state(xml: &mut Xml, state: State) {
    xml.value("code", state.code());
    xml.text("name", state.name());
}

pub(super) fn terminate_instances(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    query.ignore(&["Force", "SkipOsShutdown"]);
    change_states(cloud, now, query, Cloud::terminate)
}

pub(super) fn stop_instances(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    query.ignore(&["Force", "Hibernate", "SkipOsShutdown"]);
    change_states(cloud, now, query, Cloud::stop)
}

pub(super) fn start_instances(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    change_states(cloud, now, query, Cloud::start)
}

pub(super) fn reboot_instances(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let ids = instance_ids(query)?;
    finish(query)?;
    let missing: Vec<&str> = ids.into_iter().filter(|id| !cloud.instances.contains_key(*id)).collect();
    if missing.is_empty() { Ok(super::returned_true()) } else { Err(no_such_instance(&missing)) }
}

type Change = fn(&mut Cloud, Timestamp, &str) -> Result<(State, State), ApiError>;

/// One unknown id fails the whole call, and nothing changes.
fn change_states(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>, change: Change) -> Result<String, ApiError> {
    let ids = instance_ids(query)?;
    finish(query)?;
    // A change is asked for by id, which also finds what Describe calls do not see yet.
    let missing: Vec<&str> = ids.iter().copied().filter(|id| !cloud.instances.contains_key(*id)).collect();
    if !missing.is_empty() {
        return Err(no_such_instance(&missing));
    }
    let mut changes = Vec::new();
    for id in ids {
        changes.push((id, change(cloud, now, id)?));
    }
    let mut xml = Xml::new();
    xml.list("instancesSet", changes, |xml, (id, (previous, current))| {
        xml.text("instanceId", id);
        xml.element("currentState", |xml| write_state(xml, current));
        xml.element("previousState", |xml| write_state(xml, previous));
    });
    Ok(xml.into_string())
}

fn instance_ids<'a>(query: &Query<'a>) -> Result<Vec<&'a str>, ApiError> {
    let ids = query.list("InstanceId");
    if ids.is_empty() {
        return Err(ApiError::missing("InstanceId"));
    }
    for id in &ids {
        check_id(id, "i", "InvalidInstanceID.Malformed")?;
    }
    Ok(ids)
}

// fidelity: documented(EC2 API Reference, DescribeSpotInstanceRequests; status codes: User Guide, Spot request status)
pub(super) fn describe_spot_instance_requests(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, filters) = (query.list("SpotInstanceRequestId"), query.filters()?);
    let page = page(query, 5, 1000, usize::MAX)?;
    finish(query)?;
    filters.check(&[
        "tag-key",
        "state",
        "status-code",
        "instance-id",
        "spot-instance-request-id",
        "launched-availability-zone",
    ])?;
    if let Some(missing) = ids.iter().find(|id| !cloud.spot_requests.contains_key(**id)) {
        let message = format!("The spot instance request ID '{missing}' does not exist");
        return Err(ApiError::client("InvalidSpotInstanceRequestID.NotFound", message));
    }
    let attribute = |request: &SpotRequest, name: &str, test: Test<'_>| match name {
        "state" => test(request.state),
        "status-code" => test(request.status),
        "instance-id" => test(&request.instance_id),
        "spot-instance-request-id" => test(&request.id),
        "launched-availability-zone" => test(&request.zone),
        _ => false,
    };
    let chosen = cloud.spot_requests.values().filter(|request| ids.is_empty() || ids.contains(&request.id.as_str()));
    let chosen =
        chosen.filter(|request| filters.matches(Some(&request.tags), |name, test| attribute(request, name, test)));
    let paged = page.cut(chosen, |request| request.id.clone());
    let mut xml = Xml::new();
    xml.list("spotInstanceRequestSet", paged.items, |xml, request| {
        xml.text("spotInstanceRequestId", &request.id);
        xml.text("type", "one-time");
        xml.text("state", request.state);
        xml.element("status", |xml| {
            xml.text("code", request.status);
            xml.time("updateTime", request.updated_at);
        });
        xml.text("instanceId", &request.instance_id);
        xml.time("createTime", request.created_at);
        xml.text("productDescription", "Linux/UNIX");
        xml.text("launchedAvailabilityZone", &request.zone);
        xml.element("launchSpecification", |xml| xml.text("instanceType", request.instance_type));
        tag_set(xml, &request.tags);
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}
