//! Volumes: those of instances, which are parts of them, and those that no instance has.

use super::describe::{Describe, test_boolean, test_number};
use super::tags::tag_specification;
use super::zones::chosen_zone;
use super::{finish, refuse_unsupported, returned_true, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::instance::{Instance, Volume};
use crate::cloud::launch_template::BlockDevice;
use crate::cloud::resource::Kind;
use crate::cloud::volume::{FreeVolume, check_device};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;

/// A volume, wherever it is kept.
#[derive(Clone, Copy)]
pub(super) enum AnyVolume<'a> {
    Attached(&'a Instance, &'a Volume),
    Free(&'a FreeVolume),
}

impl<'a> AnyVolume<'a> {
    pub(super) fn volume(&self) -> &'a Volume {
        match self {
            Self::Attached(_, volume) => volume,
            Self::Free(free) => &free.volume,
        }
    }

    fn id(&self) -> &'a str {
        &self.volume().id
    }

    /// Name and id.
    fn zone(&self) -> (&'a str, &'a str) {
        match self {
            Self::Attached(instance, _) => (&instance.zone, &instance.zone_id),
            Self::Free(free) => (&free.zone, &free.zone_id),
        }
    }

    fn status(&self, now: Timestamp) -> &'static str {
        match self {
            Self::Attached(..) => "in-use",
            Self::Free(free) => free.status(now),
        }
    }
}

/// The volume of this id.
pub(super) fn find_volume<'a>(cloud: &'a Cloud, id: &str) -> Result<AnyVolume<'a>, ApiError> {
    if let Some(free) = cloud.volumes.get(id) {
        return Ok(AnyVolume::Free(free));
    }
    let owner = cloud.owner_of_part(id);
    let own = owner.and_then(|instance| Some((instance, instance.volumes.iter().find(|own| own.id == id)?)));
    own.map(|(instance, own)| AnyVolume::Attached(instance, own)).ok_or_else(|| Kind::VOLUME.missing(id))
}

// fidelity: documented(EC2 API Reference, CreateVolume)
pub(super) fn create_volume(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let no_such_zone = |message| ApiError::client("InvalidZone.NotFound", message);
    let zone = chosen_zone(cloud, query, no_such_zone)?.ok_or_else(|| ApiError::missing("AvailabilityZone"))?;
    let snapshot_id = query.owned("SnapshotId");
    let mut device = BlockDevice {
        volume_size_gib: query.number("Size")?,
        volume_type: Some(query.text("VolumeType").unwrap_or("gp2").to_owned()),
        iops: query.number("Iops")?,
        throughput: query.number("Throughput")?,
        encrypted: query.boolean("Encrypted")?,
        kms_key_id: query.owned("KmsKeyId"),
        initialization_rate: query.number("VolumeInitializationRate")?,
        ..BlockDevice::default()
    };
    let tags = tag_specification(query, &Kind::VOLUME)?;
    if query.boolean("MultiAttachEnabled")? == Some(true) {
        return Err(ApiError::client("UnsupportedOperation", "Multi-Attach is not supported here."));
    }
    refuse_unsupported(query, &["Operator", "OutpostArn"])?;
    // Repetitions are answered before this is reached.
    query.text("ClientToken");
    finish(query)?;
    match &snapshot_id {
        None if device.volume_size_gib.is_none() => return Err(ApiError::missing("size/snapshot")),
        None => {}
        Some(id) => {
            let snapshot = cloud.snapshot(id)?;
            let size = *device.volume_size_gib.get_or_insert(snapshot.volume_size_gib);
            if size < snapshot.volume_size_gib {
                let smallest = snapshot.volume_size_gib;
                let message =
                    format!("Volume size of {size} GiB is smaller than snapshot {id}, which has {smallest} GiB.");
                return Err(ApiError::invalid_value(message));
            }
        }
    }
    check_device(&device)?;
    if device.kms_key_id.is_some() && device.encrypted != Some(true) {
        let message = "The parameter KmsKeyId requires the parameter Encrypted to be set.";
        return Err(ApiError::client("InvalidParameterDependency", message));
    }
    device.snapshot_id = snapshot_id;
    let id = cloud.create_volume(now, &zone, Volume { tags, ..Volume::unnamed(device, now) });
    let mut xml = Xml::new();
    write_volume(&mut xml, now, find_volume(cloud, &id)?);
    Ok(xml.into_string())
}

pub(super) fn delete_volume(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("VolumeId")?;
    finish(query)?;
    cloud.delete_volume(now, id)?;
    Ok(returned_true())
}

pub(super) fn attach_volume(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, instance) = (query.required("VolumeId")?, query.required("InstanceId")?);
    let device = query.required("Device")?;
    refuse_unsupported(query, &["EbsCardIndex"])?;
    finish(query)?;
    Kind::VOLUME.check(id)?;
    Kind::INSTANCE.check(instance)?;
    let volume = cloud.attach_volume(now, id, instance, device)?;
    let mut xml = Xml::new();
    write_attachment(&mut xml, instance, &volume, "attaching");
    Ok(xml.into_string())
}

pub(super) fn detach_volume(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, instance, device) = (query.required("VolumeId")?, query.text("InstanceId"), query.text("Device"));
    // Nothing here ever holds on to a volume.
    query.boolean("Force")?;
    finish(query)?;
    let (instance, volume) = cloud.detach_volume(now, id, instance, device)?;
    let mut xml = Xml::new();
    write_attachment(&mut xml, &instance, &volume, "detaching");
    Ok(xml.into_string())
}

const FILTERS: [&str; 19] = [
    "attachment.attach-time",
    "attachment.delete-on-termination",
    "attachment.device",
    "attachment.instance-id",
    "attachment.status",
    "availability-zone",
    "availability-zone-id",
    "create-time",
    "encrypted",
    "fast-restored",
    "multi-attach-enabled",
    "operator.managed",
    "operator.principal",
    "size",
    "snapshot-id",
    "status",
    "tag-key",
    "volume-id",
    "volume-type",
];

// fidelity: documented(EC2 API Reference, DescribeVolumes)
pub(super) fn describe_volumes(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    query.boolean("IncludeManagedResources")?;
    let asked = Describe::read(query, &Kind::VOLUME, "VolumeId", &FILTERS)?;
    let attribute = |own: &AnyVolume<'_>, name: &str, test: Test<'_>| has(own, now, name, test);
    let paged = asked.choose(candidates(cloud, &asked)?, |own| own.id(), |own| &own.volume().tags, attribute)?;
    let mut xml = Xml::new();
    xml.list("volumeSet", paged.items, |xml, volume| write_volume(xml, now, volume));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

/// The volumes that may be meant, by id: those of the ids or of the instances that are named, or all.
fn candidates<'a>(cloud: &'a Cloud, asked: &Describe<'_>) -> Result<Vec<AnyVolume<'a>>, ApiError> {
    let of = |instance: &'a Instance| instance.volumes.iter().map(move |own| AnyVolume::Attached(instance, own));
    let by_instance = asked.filters.exact().find(|(name, _)| *name == "attachment.instance-id");
    let mut volumes: Vec<AnyVolume<'_>> = if !asked.ids.is_empty() {
        asked.ids.iter().map(|id| find_volume(cloud, id)).collect::<Result<_, _>>()?
    } else if let Some((_, instances)) = by_instance {
        instances.iter().filter_map(|id| cloud.instances.get(id)).flat_map(of).collect()
    } else {
        cloud.instances.values().flat_map(of).chain(cloud.volumes.values().map(AnyVolume::Free)).collect()
    };
    volumes.sort_unstable_by(|one, other| one.id().cmp(other.id()));
    volumes.dedup_by(|one, other| one.id() == other.id());
    Ok(volumes)
}

fn has(own: &AnyVolume<'_>, now: Timestamp, name: &str, test: Test<'_>) -> bool {
    let volume = own.volume();
    match name {
        "availability-zone" => test(own.zone().0),
        "availability-zone-id" => test(own.zone().1),
        "create-time" => test(&timestamp(volume.created_at)),
        "encrypted" => test_boolean(volume.device.encrypted.unwrap_or(false), test),
        "fast-restored" | "multi-attach-enabled" | "operator.managed" => test_boolean(false, test),
        "size" => test_number(Some(volume.size_gib()), test),
        "snapshot-id" => volume.device.snapshot_id.as_deref().is_some_and(test),
        "status" => test(own.status(now)),
        "volume-id" => test(&volume.id),
        "volume-type" => test(volume.volume_type()),
        _ => match (name.strip_prefix("attachment."), own) {
            (Some(part), AnyVolume::Attached(instance, _)) => attachment_has(instance, volume, part, test),
            _ => false,
        },
    }
}

fn attachment_has(instance: &Instance, volume: &Volume, part: &str, test: Test<'_>) -> bool {
    match part {
        "attach-time" => test(&timestamp(volume.attached_at)),
        "delete-on-termination" => test_boolean(volume.device.delete_on_termination.unwrap_or(true), test),
        "device" => test(&volume.device.device_name),
        "instance-id" => test(&instance.id),
        "status" => test("attached"),
        _ => false,
    }
}

fn write_volume(xml: &mut Xml, now: Timestamp, own: AnyVolume<'_>) {
    let volume = own.volume();
    let (zone, zone_id) = own.zone();
    xml.text("volumeId", &volume.id);
    xml.value("size", volume.size_gib());
    xml.text("snapshotId", volume.device.snapshot_id.as_deref().unwrap_or_default());
    xml.text("availabilityZone", zone);
    xml.text("availabilityZoneId", zone_id);
    xml.text("status", own.status(now));
    xml.time("createTime", volume.created_at);
    let attachment = match own {
        AnyVolume::Attached(instance, _) => Some(instance),
        AnyVolume::Free(_) => None,
    };
    xml.list("attachmentSet", attachment, |xml, instance| write_attachment(xml, &instance.id, volume, "attached"));
    xml.text("volumeType", volume.volume_type());
    xml.optional("iops", volume.iops().map(|number| number.to_string()));
    xml.optional("throughput", volume.throughput().map(|number| number.to_string()));
    xml.value("encrypted", volume.device.encrypted.unwrap_or(false));
    xml.optional("kmsKeyId", volume.device.kms_key_id.as_ref());
    xml.value("multiAttachEnabled", false);
    tag_set(xml, &volume.tags);
}

fn write_attachment(xml: &mut Xml, instance_id: &str, volume: &Volume, status: &str) {
    xml.text("volumeId", &volume.id);
    xml.text("instanceId", instance_id);
    xml.text("device", &volume.device.device_name);
    xml.text("status", status);
    xml.time("attachTime", volume.attached_at);
    xml.value("deleteOnTermination", volume.device.delete_on_termination.unwrap_or(true));
}
