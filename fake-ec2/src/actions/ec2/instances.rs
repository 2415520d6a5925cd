//! DescribeInstances and the actions that end, stop and start instances.

use super::network_interfaces::mac_address;
use super::{finish, groups, instance_filters, members, page, specification, tag_set};
use crate::cloud::catalogue::InstanceType;
use crate::cloud::filter::Filters;
use crate::cloud::instance::{Instance, NetworkInterface, State};
use crate::cloud::launch::private_dns_name;
use crate::cloud::launch_options;
use crate::cloud::tags::Tags;
use crate::cloud::{Cloud, check_id, no_such_instance};
use crate::config::Config;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// What an instance takes in an answer, with some tags; only a guess of how much to set aside.
const INSTANCE_BYTES: usize = 3_000;

// fidelity: documented(EC2 API Reference, DescribeInstances)
pub(super) fn describe_instances(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, filters) = (query.list("InstanceId"), query.filters()?);
    if !ids.is_empty() && query.text("MaxResults").is_some() {
        let message = "The parameter instancesSet cannot be used with the parameter maxResults";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    // fidelity: documented(EC2 API, DescribeInstances): MaxResults is 5 to 1000; without MaxResults everything is answered.
    let page = page(query, 5, 1000, usize::MAX)?;
    query.boolean("IncludeManagedResources")?; // No service of AWS has made any here.
    finish(query)?;
    filters.check(&instance_filters::KNOWN)?;
    let account = cloud.config.account.clone();
    if !ids.is_empty() {
        named(cloud, now, &ids)?;
    }
    // An index of the present tags would miss what is still seen with earlier ones.
    let indexed = if cloud.sees_earlier_tags() { Filters::default() } else { filters.clone() };
    cloud.instances.refresh();
    let cloud = &*cloud;
    let passes = |instance: &&Instance| {
        let tags = cloud.seen_tags(now, &instance.id, &instance.tags);
        instance.visible_at <= now
            && filters.matches(Some(tags), |name, test| instance_filters::attribute(instance, &account, name, test))
    };
    let candidates: Box<dyn Iterator<Item = &Instance>> = match ids.is_empty() {
        true => cloud.instances.candidates(&indexed, page.after()),
        false => {
            let sorted: BTreeSet<&str> = ids.iter().copied().collect();
            Box::new(sorted.into_iter().filter_map(|id| cloud.instances.get(id)))
        }
    };
    let paged = page.cut(candidates.filter(passes), |instance| instance.id.clone());
    let bytes = paged.items.len() * INSTANCE_BYTES;
    let mut reservations: BTreeMap<&str, Vec<&Instance>> = BTreeMap::new();
    for instance in paged.items {
        reservations.entry(&instance.reservation_id).or_default().push(instance);
    }
    let mut xml = Xml::with_capacity(bytes);
    xml.list("reservationSet", reservations, |xml, (id, instances)| {
        xml.text("reservationId", id);
        xml.text("ownerId", &account);
        xml.open("groupSet");
        xml.close("groupSet");
        xml.list("instancesSet", instances, |xml, instance| {
            write_seen_instance(xml, &cloud.config, instance, cloud.seen_tags(now, &instance.id, &instance.tags));
        });
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

/// An instance that Describe calls see already.
pub(super) fn find_visible<'a>(cloud: &'a Cloud, now: Timestamp, id: &str) -> Result<&'a Instance, ApiError> {
    named(cloud, now, &[id]).map(|found| found[0])
}

pub(super) fn write_instance(xml: &mut Xml, config: &Config, instance: &Instance) {
    write_seen_instance(xml, config, instance, &instance.tags);
}

fn write_seen_instance(xml: &mut Xml, config: &Config, instance: &Instance, tags: &Tags) {
    xml.text("instanceId", &instance.id);
    xml.text("imageId", &instance.image_id);
    xml.element("instanceState", |xml| write_state(xml, instance.state));
    xml.text("privateDnsName", if instance.state == State::Terminated { "" } else { &instance.private_dns_name });
    xml.text("dnsName", "");
    xml.text("reason", &instance.transition_reason);
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
        xml.value("privateIpAddress", instance.private_ip);
    }
    xml.list("productCodes", [(); 0], |_, ()| {});
    xml.value("sourceDestCheck", instance.source_dest_check);
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
    tag_set(xml, tags);
    xml.text("hypervisor", "xen");
    xml.list("networkInterfaceSet", &instance.network_interfaces, |xml, interface| {
        xml.text("networkInterfaceId", &interface.id);
        xml.text("subnetId", &interface.subnet_id);
        xml.text("vpcId", &instance.vpc_id);
        xml.text("ownerId", &config.account);
        xml.text("status", "in-use");
        xml.text("macAddress", mac_address(&interface.id));
        xml.value("privateIpAddress", interface.private_ip);
        xml.text("privateDnsName", private_dns_name(interface.private_ip, &config.region));
        xml.value("sourceDestCheck", instance.source_dest_check);
        xml.list("ipv6AddressesSet", [(); 0], |_, ()| {});
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
        xml.text("description", &interface.description);
        xml.list("privateIpAddressesSet", addresses(interface), |xml, (address, primary)| {
            xml.value("privateIpAddress", address);
            xml.text("privateDnsName", private_dns_name(address, &config.region));
            xml.value("primary", primary);
        });
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
    write_kept(xml, instance);
    xml.text("platformDetails", "Linux/UNIX");
    xml.text("usageOperation", "RunInstances");
}

/// An interface's addresses, and whether each is the primary one.
pub(super) fn addresses(interface: &NetworkInterface) -> impl ExactSizeIterator<Item = (Ipv4Addr, bool)> + Clone {
    let all: Vec<Ipv4Addr> =
        std::iter::once(interface.private_ip).chain(interface.secondary_ips.iter().copied()).collect();
    all.into_iter().enumerate().map(|(index, address)| (address, index == 0))
}

/// What the launch asked that has no effect, as DescribeInstances tells it; of cores what the type has, if nothing was asked.
fn write_kept(xml: &mut Xml, instance: &Instance) {
    let kept = &instance.specification.rest;
    let hibernation = kept.get("HibernationOptions.Configured").unwrap_or("false");
    xml.element("hibernationOptions", |xml| xml.text("configured", hibernation));
    let recovery = kept.get("MaintenanceOptions.AutoRecovery").unwrap_or("default");
    xml.element("maintenanceOptions", |xml| xml.text("autoRecovery", recovery));
    if let Some(own) = InstanceType::named(instance.instance_type) {
        let (cores, threads) = launch_options::cores(&instance.specification, own);
        xml.element("cpuOptions", |xml| {
            xml.value("coreCount", cores);
            xml.value("threadsPerCore", threads);
            xml.optional("amdSevSnp", kept.get("CpuOptions.AmdSevSnp"));
            xml.optional("nestedVirtualization", kept.get("CpuOptions.NestedVirtualization"));
        });
    }
    if let Some(performance) = kept.get("NetworkPerformanceOptions.BandwidthWeighting") {
        xml.element("networkPerformanceOptions", |xml| xml.text("bandwidthWeighting", performance));
    }
    members::write(xml, &kept.only(&["LicenseSpecification"]));
    if kept.iter().any(|(path, _)| path.starts_with("PrivateDnsNameOptions.")) {
        xml.element("privateDnsNameOptions", |xml| members::write_below(xml, kept, "PrivateDnsNameOptions"));
    }
}

fn write_state(xml: &mut Xml, state: State) {
    xml.value("code", state.code());
    xml.text("name", state.name());
}

// fidelity: documented(EC2 API Reference, TerminateInstances: a protected instance keeps the others of its zone alive too; those
// of other zones end although the request fails)
pub(super) fn terminate_instances(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    read_haste(query)?;
    let ids = existing(cloud, query)?;
    let mut kept_zones = BTreeSet::new();
    let mut refusal = None;
    for id in &ids {
        if let Err(error) = cloud.check_protection(id) {
            kept_zones.insert(cloud.instance(id)?.zone.clone());
            refusal.get_or_insert(error);
        }
    }
    let mut changes = Vec::new();
    for id in ids {
        if !kept_zones.contains(&cloud.instance(id)?.zone) {
            changes.push((id, cloud.terminate(now, id)?));
        }
    }
    refusal.map_or_else(|| Ok(write_changes(changes)), Err)
}

pub(super) fn stop_instances(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let hibernate = query.boolean("Hibernate")?.unwrap_or(false);
    read_haste(query)?;
    change_states(cloud, query, |cloud, id| cloud.stop(now, id, hibernate))
}

pub(super) fn start_instances(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    query.ignore("reserved by AWS", &["AdditionalInfo"]);
    change_states(cloud, query, |cloud, id| cloud.start(now, id))
}

// fidelity: documented(EC2 API Reference, RebootInstances: succeeds if the instances exist, whatever their state)
pub(super) fn reboot_instances(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    existing(cloud, query)?;
    Ok(super::returned_true())
}

/// How an operating system is to be shut down. There is none inside these instances: either way they take as long.
fn read_haste(query: &Query<'_>) -> Result<(), ApiError> {
    query.boolean("Force")?;
    query.boolean("SkipOsShutdown")?;
    Ok(())
}

type Change = (State, State);

/// What the first instance that refuses is told; those before it have changed.
fn change_states(
    cloud: &mut Cloud,
    query: &Query<'_>,
    change: impl Fn(&mut Cloud, &str) -> Result<Change, ApiError>,
) -> Result<String, ApiError> {
    let mut changes = Vec::new();
    for id in existing(cloud, query)? {
        changes.push((id, change(cloud, id)?));
    }
    Ok(write_changes(changes))
}

fn write_changes(changes: Vec<(&str, Change)>) -> String {
    let mut xml = Xml::new();
    xml.list("instancesSet", changes, |xml, (id, (previous, current))| {
        xml.text("instanceId", id);
        xml.element("currentState", |xml| write_state(xml, current));
        xml.element("previousState", |xml| write_state(xml, previous));
    });
    xml.into_string()
}

/// The ids a request names. One unknown id fails the whole call, and nothing changes.
pub(super) fn existing<'a>(cloud: &Cloud, query: &Query<'a>) -> Result<Vec<&'a str>, ApiError> {
    let ids = query.list("InstanceId");
    if ids.is_empty() {
        return Err(ApiError::missing("InstanceId"));
    }
    for id in &ids {
        check_id(id, "i", "InvalidInstanceID.Malformed")?;
    }
    finish(query)?;
    // A change is asked for by id, which also finds what Describe calls do not see yet.
    let missing: Vec<&str> = ids.iter().copied().filter(|id| !cloud.instances.contains_key(*id)).collect();
    if missing.is_empty() { Ok(ids) } else { Err(no_such_instance(&missing)) }
}
