//! Attributes of an instance, one by one: describe, modify, reset; metadata options, CPU credits, monitoring, console.

use super::instances::{existing, find_visible};
use super::specification::write_metadata;
use super::{finish, groups, refuse_unsupported, returned_true};
use crate::cloud::instance::{Instance, State};
use crate::cloud::launch::check_user_data;
use crate::cloud::lifecycle::wrong_state;
use crate::cloud::{Cloud, check_id};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use jiff::Timestamp;

// fidelity: documented(EC2 API Reference, DescribeInstanceAttribute: attributes)
const ATTRIBUTES: [&str; 16] = [
    "instanceType",
    "kernel",
    "ramdisk",
    "userData",
    "disableApiTermination",
    "instanceInitiatedShutdownBehavior",
    "rootDeviceName",
    "blockDeviceMapping",
    "productCodes",
    "sourceDestCheck",
    "groupSet",
    "ebsOptimized",
    "sriovNetSupport",
    "enaSupport",
    "enclaveOptions",
    "disableApiStop",
];

// fidelity: documented(EC2 API Reference, DescribeInstanceAttribute: one attribute at a time)
pub(super) fn describe_instance_attribute(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let id = query.required("InstanceId")?;
    let attribute = query.choice("Attribute", &ATTRIBUTES)?.ok_or_else(|| ApiError::missing("Attribute"))?;
    finish(query)?;
    let instance = find_visible(cloud, now, id)?;
    let mut xml = Xml::new();
    xml.text("instanceId", id);
    write_attribute(&mut xml, instance, &attribute);
    Ok(xml.into_string())
}

fn write_attribute(xml: &mut Xml, instance: &Instance, attribute: &str) {
    let kept = |path: &str| instance.specification.rest.get(path).map(str::to_owned);
    let value = match attribute {
        "instanceType" => Some(instance.instance_type.to_owned()),
        "kernel" => kept("KernelId"),
        "ramdisk" => kept("RamdiskId"),
        "userData" => instance.user_data.clone(),
        "disableApiTermination" => Some(instance.disable_api_termination.to_string()),
        "disableApiStop" => Some(instance.disable_api_stop.to_string()),
        "instanceInitiatedShutdownBehavior" => Some(instance.shutdown_behavior.clone()),
        "rootDeviceName" => instance.volumes.first().map(|own| own.device.device_name.clone()),
        "sourceDestCheck" => Some(instance.source_dest_check.to_string()),
        "ebsOptimized" => Some(instance.ebs_optimized.to_string()),
        "sriovNetSupport" => Some("simple".to_owned()),
        "enaSupport" => Some("true".to_owned()),
        "groupSet" => return groups(xml, "groupSet", &instance.security_groups),
        "productCodes" => return xml.list("productCodes", [(); 0], |_, ()| {}),
        "enclaveOptions" => {
            let enabled = instance.specification.enclave.unwrap_or(false);
            return xml.element("enclaveOptions", |xml| xml.value("enabled", enabled));
        }
        _ => return write_devices(xml, instance),
    };
    xml.element(attribute, |xml| xml.optional("value", value));
}

fn write_devices(xml: &mut Xml, instance: &Instance) {
    xml.list("blockDeviceMapping", &instance.volumes, |xml, own| {
        xml.text("deviceName", &own.device.device_name);
        xml.element("ebs", |xml| {
            xml.text("volumeId", &own.id);
            xml.text("status", "attached");
            xml.time("attachTime", instance.launched_at);
            xml.value("deleteOnTermination", own.device.delete_on_termination.unwrap_or(true));
        });
    });
}

/// Whether the volume at a device ends with the instance.
#[derive(Debug)]
struct DeviceChange {
    name: String,
    ends: bool,
    /// The volume that has to be there.
    volume: Option<String>,
}

/// What ModifyInstanceAttribute changes: one attribute in a call.
#[derive(Debug)]
enum Change {
    InstanceType(String),
    UserData(String),
    DisableApiTermination(bool),
    DisableApiStop(bool),
    ShutdownBehavior(String),
    SourceDestCheck(bool),
    EbsOptimized(bool),
    Groups(Vec<String>),
    Devices(Vec<DeviceChange>),
}

// fidelity: documented(EC2 API Reference, ModifyInstanceAttribute: one attribute at a time; type, user data and EBS optimization
// only of a stopped instance); assumed: InvalidParameterCombination for more than one.
pub(super) fn modify_instance_attribute(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("InstanceId")?;
    check_id(id, "i", "InvalidInstanceID.Malformed")?;
    let mut changes = read_changes(query)?;
    finish(query)?;
    let state = cloud.instance(id)?.state;
    let Some(change) = changes.pop() else {
        return Err(ApiError::missing("Attribute"));
    };
    if !changes.is_empty() {
        let message = "Fields for multiple attribute types specified; modify one attribute in a request.";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    let needs_stop = matches!(change, Change::InstanceType(_) | Change::UserData(_) | Change::EbsOptimized(_));
    if needs_stop && state != State::Stopped {
        return Err(wrong_state(id, "modified: it has to be stopped"));
    }
    apply(cloud, id, change)?;
    Ok(returned_true())
}

fn read_changes(query: &Query<'_>) -> Result<Vec<Change>, ApiError> {
    // The older form names the attribute and its value.
    let attribute = query.choice("Attribute", &ATTRIBUTES)?;
    let text = |name: &str| {
        let old = format!("{}{}", name[..1].to_ascii_lowercase(), &name[1..]);
        let by_name = attribute.as_deref() == Some(old.as_str());
        query.owned(&format!("{name}.Value")).or_else(|| by_name.then(|| query.owned("Value")).flatten())
    };
    let flag = |name: &str| match text(name) {
        None => Ok(None),
        Some(text) => text.to_ascii_lowercase().parse::<bool>().map(Some).map_err(|_| {
            ApiError::invalid_value(format!("Value ({text}) for parameter {name} is invalid. Expected a boolean"))
        }),
    };
    let mut changes: Vec<Change> = Vec::new();
    changes.extend(text("InstanceType").map(Change::InstanceType));
    changes.extend(text("UserData").map(Change::UserData));
    changes.extend(flag("DisableApiTermination")?.map(Change::DisableApiTermination));
    changes.extend(flag("DisableApiStop")?.map(Change::DisableApiStop));
    changes.extend(text("InstanceInitiatedShutdownBehavior").map(Change::ShutdownBehavior));
    changes.extend(flag("SourceDestCheck")?.map(Change::SourceDestCheck));
    changes.extend(flag("EbsOptimized")?.map(Change::EbsOptimized));
    let groups: Vec<String> = query.list("GroupId").into_iter().map(str::to_owned).collect();
    changes.extend((!groups.is_empty()).then_some(Change::Groups(groups)));
    let mut devices = Vec::new();
    for part in query.structures("BlockDeviceMapping") {
        let ends = part.boolean("Ebs.DeleteOnTermination")?.unwrap_or(true);
        refuse_unsupported(&part, &["VirtualName", "NoDevice"])?;
        let volume = part.owned("Ebs.VolumeId");
        devices.push(DeviceChange { name: part.required("DeviceName")?.to_owned(), ends, volume });
    }
    changes.extend((!devices.is_empty()).then_some(Change::Devices(devices)));
    for name in ["Kernel", "Ramdisk", "SriovNetSupport", "EnaSupport"] {
        if text(name).is_some() {
            let message = format!("The attribute {name} can't be modified here.");
            return Err(ApiError::client("UnsupportedInstanceAttribute", message));
        }
    }
    Ok(changes)
}

fn apply(cloud: &mut Cloud, id: &str, change: Change) -> Result<(), ApiError> {
    match change {
        Change::InstanceType(name) => return cloud.change_type(id, &name),
        Change::UserData(data) => {
            check_user_data(Some(&data))?;
            edit(cloud, id, |own| own.user_data = Some(data));
        }
        Change::ShutdownBehavior(behavior) => {
            if !["stop", "terminate"].contains(&behavior.as_str()) {
                let message = format!(
                    "Value ({behavior}) for parameter instanceInitiatedShutdownBehavior is invalid. Valid values are: stop, terminate"
                );
                return Err(ApiError::invalid_value(message));
            }
            edit(cloud, id, |own| own.shutdown_behavior = behavior);
        }
        Change::DisableApiTermination(disabled) => {
            // fidelity: documented(EC2 User Guide, Termination protection: not for Spot Instances)
            if disabled && cloud.instance(id)?.spot_request_id.is_some() {
                let message = "The attribute disableApiTermination can't be enabled for Spot Instances.";
                return Err(ApiError::client("UnsupportedOperation", message));
            }
            edit(cloud, id, |own| own.disable_api_termination = disabled);
        }
        Change::DisableApiStop(disabled) => edit(cloud, id, |own| own.disable_api_stop = disabled),
        Change::SourceDestCheck(checked) => edit(cloud, id, |own| own.source_dest_check = checked),
        Change::EbsOptimized(optimized) => edit(cloud, id, |own| own.ebs_optimized = optimized),
        Change::Groups(ids) => return change_groups(cloud, id, &ids),
        Change::Devices(devices) => return change_devices(cloud, id, devices),
    }
    Ok(())
}

fn edit(cloud: &mut Cloud, id: &str, change: impl FnOnce(&mut Instance)) {
    if let Some(instance) = cloud.instances.get_mut(id) {
        change(instance);
        cloud.instance_revision += 1;
        cloud.revision += 1;
    }
}

// fidelity: documented(EC2 API Reference, ModifyInstanceAttribute: GroupId replaces the groups of the primary interface)
fn change_groups(cloud: &mut Cloud, id: &str, ids: &[String]) -> Result<(), ApiError> {
    let vpc = cloud.instance(id)?.vpc_id.clone();
    cloud.check_groups_per_interface(ids.len())?;
    let mut chosen = Vec::new();
    for group in ids {
        let group = cloud.network.group(group)?;
        if group.vpc_id != vpc {
            let message = format!("Security group {} and instance {id} belong to different networks.", group.id);
            return Err(ApiError::client("InvalidParameter", message));
        }
        chosen.push((group.id.clone(), group.name.clone()));
    }
    edit(cloud, id, |own| {
        if let Some(primary) = own.network_interfaces.iter_mut().find(|interface| interface.device_index == 0) {
            primary.security_groups.clone_from(&chosen);
        }
        own.security_groups = chosen;
    });
    Ok(())
}

fn change_devices(cloud: &mut Cloud, id: &str, devices: Vec<DeviceChange>) -> Result<(), ApiError> {
    let present = &cloud.instance(id)?.volumes;
    for DeviceChange { name, volume, .. } in &devices {
        let mapped = present.iter().find(|own| own.device.device_name == *name);
        let message = match (mapped, volume) {
            (None, _) => format!("No device is currently mapped at {name}"),
            (Some(own), Some(volume)) if own.id != *volume => {
                format!("The volume mapped at {name} is {}, not {volume}", own.id)
            }
            _ => continue,
        };
        return Err(ApiError::client("InvalidInstanceAttributeValue", message));
    }
    edit(cloud, id, |own| {
        for DeviceChange { name, ends, .. } in devices {
            let volume = own.volumes.iter_mut().find(|volume| volume.device.device_name == name);
            volume.into_iter().for_each(|volume| volume.device.delete_on_termination = Some(ends));
        }
    });
    Ok(())
}

// fidelity: documented(EC2 API Reference, ResetInstanceAttribute: kernel, ramdisk and sourceDestCheck)
pub(super) fn reset_instance_attribute(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("InstanceId")?;
    check_id(id, "i", "InvalidInstanceID.Malformed")?;
    let attribute = query.choice("Attribute", &ATTRIBUTES)?.ok_or_else(|| ApiError::missing("Attribute"))?;
    finish(query)?;
    cloud.instance(id)?;
    match attribute.as_str() {
        "sourceDestCheck" => edit(cloud, id, |own| own.source_dest_check = true),
        // An instance here has the kernel of its image.
        "kernel" | "ramdisk" => {}
        other => {
            let message = format!(
                "Value ({other}) for parameter attribute is invalid. Valid values are: kernel, ramdisk, sourceDestCheck"
            );
            return Err(ApiError::invalid_value(message));
        }
    }
    Ok(returned_true())
}

// fidelity: documented(EC2 API Reference, ModifyInstanceMetadataOptions: a hop limit of 1 to 64; what is not named stays)
pub(super) fn modify_instance_metadata_options(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("InstanceId")?;
    check_id(id, "i", "InvalidInstanceID.Malformed")?;
    let switch = ["enabled", "disabled"];
    let (tokens, endpoint) =
        (query.choice("HttpTokens", &["optional", "required"])?, query.choice("HttpEndpoint", &switch)?);
    let (ipv6, tags) = (query.choice("HttpProtocolIpv6", &switch)?, query.choice("InstanceMetadataTags", &switch)?);
    let hop_limit: Option<u32> = query.number("HttpPutResponseHopLimit")?;
    finish(query)?;
    if let Some(limit) = hop_limit.filter(|limit| !(1..=64).contains(limit)) {
        let message = format!("Value ({limit}) for parameter HttpPutResponseHopLimit is invalid. Expected 1 to 64");
        return Err(ApiError::invalid_value(message));
    }
    if cloud.instance(id)?.state.is_ending() {
        return Err(wrong_state(id, "modified"));
    }
    edit(cloud, id, |own| {
        let options = &mut own.metadata;
        for (present, given) in [
            (&mut options.tokens, tokens),
            (&mut options.endpoint, endpoint),
            (&mut options.protocol_ipv6, ipv6),
            (&mut options.tags, tags),
        ] {
            *present = given.or_else(|| present.take());
        }
        options.hop_limit = hop_limit.or(options.hop_limit);
    });
    let mut xml = Xml::new();
    xml.text("instanceId", id);
    xml.element("instanceMetadataOptions", |xml| {
        if let Some(instance) = cloud.instances.get(id) {
            write_metadata(xml, &instance.metadata);
        }
    });
    Ok(xml.into_string())
}

/// Why CPU credits were not changed: code and message.
type Unchanged = (&'static str, String);

// fidelity: documented(EC2 API Reference, ModifyInstanceCreditSpecification: successes and failures side by side)
pub(super) fn modify_instance_credit_specification(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let mut wanted = Vec::new();
    for part in query.structures("InstanceCreditSpecification") {
        wanted.push((part.required("InstanceId")?, part.choice("CpuCredits", &["standard", "unlimited"])?));
    }
    query.text("ClientToken");
    finish(query)?;
    if wanted.is_empty() {
        return Err(ApiError::missing("InstanceCreditSpecification"));
    }
    let mut changed: Vec<&str> = Vec::new();
    let mut kept: Vec<(&str, Unchanged)> = Vec::new();
    for (id, credits) in wanted {
        match credits_changeable(cloud, id) {
            Ok(()) => {
                edit(cloud, id, |own| own.cpu_credits = credits.or_else(|| own.cpu_credits.take()));
                changed.push(id);
            }
            Err(refused) => kept.push((id, refused)),
        }
    }
    let mut xml = Xml::new();
    xml.list("successfulInstanceCreditSpecificationSet", changed, |xml, id| xml.text("instanceId", id));
    xml.list("unsuccessfulInstanceCreditSpecificationSet", kept, |xml, (id, (code, message))| {
        xml.text("instanceId", id);
        xml.element("error", |xml| {
            xml.text("code", code);
            xml.text("message", message);
        });
    });
    Ok(xml.into_string())
}

fn credits_changeable(cloud: &Cloud, id: &str) -> Result<(), Unchanged> {
    if check_id(id, "i", "InvalidInstanceID.Malformed").is_err() {
        return Err(("InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\"")));
    }
    match cloud.instances.get(id) {
        None => Err(("InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist"))),
        Some(own) if own.state.is_ending() => {
            Err(("IncorrectInstanceState", format!("The instance '{id}' is not in a state to be modified.")))
        }
        Some(own) if own.cpu_credits.is_none() => Err((
            "InstanceCreditSpecification.NotSupported",
            format!("The instance '{id}' is not of a burstable performance type."),
        )),
        Some(_) => Ok(()),
    }
}

/// MonitorInstances and UnmonitorInstances.
// fidelity: documented(EC2 API Reference, MonitorInstances: pending, UnmonitorInstances: disabling in the answer)
pub(super) fn monitor_instances(cloud: &mut Cloud, query: &Query<'_>, enabled: bool) -> Result<String, ApiError> {
    let ids = existing(cloud, query)?;
    if let Some(ended) = ids.iter().find(|id| cloud.instances.get(**id).is_some_and(|own| own.state.is_ending())) {
        let message = format!("The instance '{ended}' is not in a state in which its monitoring can be changed.");
        return Err(ApiError::client("InvalidState", message));
    }
    let mut states = Vec::new();
    for id in ids {
        let before = cloud.instance(id)?.monitoring;
        edit(cloud, id, |own| own.monitoring = enabled);
        let state = match (before, enabled) {
            (true, true) => "enabled",
            (false, true) => "pending",
            (true, false) => "disabling",
            (false, false) => "disabled",
        };
        states.push((id, state));
    }
    let mut xml = Xml::new();
    xml.list("instancesSet", states, |xml, (id, state)| {
        xml.text("instanceId", id);
        xml.element("monitoring", |xml| xml.text("state", state));
    });
    Ok(xml.into_string())
}

/// Nothing is ever printed on a console here.
// fidelity: documented(EC2 API Reference, GetConsoleOutput: the output is base64)
pub(super) fn get_console_output(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("InstanceId")?;
    query.boolean("Latest")?;
    finish(query)?;
    let instance = find_visible(cloud, now, id)?;
    let mut xml = Xml::new();
    xml.text("instanceId", id);
    xml.time("timestamp", instance.state_since);
    xml.text("output", "");
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, DescribeInstanceCreditSpecifications: without ids those that are unlimited)
pub(super) fn describe_instance_credit_specifications(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let (ids, filters) = (query.list("InstanceId"), query.filters()?);
    let page = super::page(query, 5, 1000, 1000)?;
    finish(query)?;
    filters.check(&["instance-id"])?;
    super::instances::named(cloud, now, &ids)?;
    let visible = cloud.instances.values().filter(|own| own.visible_at <= now);
    let chosen = visible.filter(|own| match ids.is_empty() {
        true => own.cpu_credits.as_deref() == Some("unlimited"),
        false => ids.contains(&own.id.as_str()) && own.cpu_credits.is_some(),
    });
    let chosen = chosen.filter(|own| filters.matches(None, |_, test| test(&own.id)));
    let paged = page.cut(chosen, |own| own.id.clone());
    let mut xml = Xml::new();
    xml.list("instanceCreditSpecificationSet", paged.items, |xml, own| {
        xml.text("instanceId", &own.id);
        xml.optional("cpuCredits", own.cpu_credits.as_ref());
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}
