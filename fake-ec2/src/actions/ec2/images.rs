//! Images: RegisterImage, CreateImage, CopyImage, DeregisterImage, DescribeImages.

use super::describe::{test_boolean, test_number};
use super::specification::read_devices;
use super::tags::tag_specifications;
use super::{finish, page, refuse_unsupported, returned_true, tag_set};
use crate::cloud::Cloud;
use crate::cloud::catalogue::regions;
use crate::cloud::filter::Test;
use crate::cloud::image::{Image, NewImage};
use crate::cloud::launch_template::BlockDevice;
use crate::cloud::resource::Kind;
use crate::cloud::tags::Tags;
use crate::cloud::volume::check_device;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Images that are not played: instance store, paravirtual and Marketplace ones, UEFI variables.
const UNPLAYED: [&str; 8] = [
    "BillingProduct",
    "ImageLocation",
    "KernelId",
    "RamdiskId",
    "SriovNetSupport",
    "TpmSupport",
    "UefiData",
    "SnapshotLocation",
];

/// Name, description and tags of the image that a request makes.
fn read_new<'a>(query: &Query<'a>) -> Result<NewImage<'a>, ApiError> {
    let name = query.required("Name")?;
    let description = read_description(query.text("Description").unwrap_or_default())?;
    let mut tags = tag_specifications(query, &[&Kind::IMAGE, &Kind::SNAPSHOT])?;
    let mut take = |kind: &Kind| -> Tags { tags.remove(kind.name).unwrap_or_default() };
    Ok(NewImage { name, description, tags: take(&Kind::IMAGE), snapshot_tags: take(&Kind::SNAPSHOT) })
}

// fidelity: documented(EC2 API Reference, RegisterImage: descriptions of up to 255 characters)
pub(super) fn read_description(text: &str) -> Result<&str, ApiError> {
    match text.chars().count() > 255 {
        true => Err(ApiError::invalid_value("The description of an image may have up to 255 characters")),
        false => Ok(text),
    }
}

/// The answer of the actions that make an image.
fn made(id: &str) -> String {
    let mut xml = Xml::new();
    xml.text("imageId", id);
    xml.into_string()
}

// fidelity: documented(EC2 API Reference, RegisterImage: from a snapshot of a root volume); paravirtual images, the default of
// old, are not played, and an image without an architecture is for x86_64.
pub(super) fn register_image(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let new = read_new(query)?;
    let devices = read_devices(query)?;
    let root_device = query.text("RootDeviceName");
    let architecture = query.text("Architecture").unwrap_or("x86_64");
    one_of("architecture", architecture, &["arm64", "arm64_mac", "i386", "x86_64", "x86_64_mac"])?;
    one_of("virtualizationType", query.text("VirtualizationType").unwrap_or("hvm"), &["hvm"])?;
    let boot_mode = query.text("BootMode");
    one_of("bootMode", boot_mode.unwrap_or("uefi"), &["legacy-bios", "uefi", "uefi-preferred"])?;
    let imds_support = query.text("ImdsSupport");
    one_of("imdsSupport", imds_support.unwrap_or("v2.0"), &["v2.0"])?;
    let ena_support = query.boolean("EnaSupport")?.unwrap_or(false);
    refuse_unsupported(query, &UNPLAYED)?;
    finish(query)?;
    cloud.check_image_name(new.name)?;
    let root_device = root_device.ok_or_else(|| ApiError::missing("RootDeviceName"))?;
    let block_devices = with_snapshots(cloud, devices)?;
    if !block_devices.iter().any(|own| own.device_name == root_device && own.snapshot_id.is_some()) {
        let message = format!("The block device mapping has no snapshot for the root device {root_device}");
        return Err(ApiError::client("InvalidBlockDeviceMapping", message));
    }
    let image = Image {
        architecture: architecture.into(),
        root_device: root_device.into(),
        block_devices,
        boot_mode: boot_mode.map(str::to_owned),
        imds_support: imds_support.map(str::to_owned),
        ena_support,
        ..cloud.own_image(now, new)
    };
    Ok(made(&cloud.add_pending_image(now, image)))
}

fn one_of(parameter: &str, value: &str, known: &[&str]) -> Result<(), ApiError> {
    match known.contains(&value) {
        true => Ok(()),
        false => Err(ApiError::invalid_value(format!(
            "Value ({value}) for parameter {parameter} is invalid. It has to be one of {}.",
            known.join(", ")
        ))),
    }
}

/// The devices with the sizes of the snapshots they name.
fn with_snapshots(cloud: &Cloud, devices: Vec<BlockDevice>) -> Result<Vec<BlockDevice>, ApiError> {
    let complete = |mut device: BlockDevice| {
        if let Some(id) = &device.snapshot_id {
            let size = cloud.snapshot(id)?.volume_size_gib;
            if *device.volume_size_gib.get_or_insert(size) < size {
                let name = &device.device_name;
                let message =
                    format!("Volume of size smaller than that of snapshot '{id}', {size} GiB, for device {name}");
                return Err(ApiError::client("InvalidBlockDeviceMapping", message));
            }
        }
        check_device(&device)?;
        Ok(device)
    };
    devices.into_iter().map(complete).collect()
}

// fidelity: documented(EC2 API Reference, CreateImage); assumed: with or without NoReboot, the instance goes on running
pub(super) fn create_image(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let instance = query.required("InstanceId")?;
    Kind::INSTANCE.check(instance)?;
    let new = read_new(query)?;
    let devices = read_devices(query)?;
    query.boolean("NoReboot")?;
    refuse_unsupported(query, &["SnapshotLocation"])?;
    finish(query)?;
    cloud.create_image(now, instance, &devices, new).map(|id| made(&id))
}

// fidelity: documented(EC2 API Reference, CopyImage: tags of the source are copied if asked for); there is one region, in which
// alone an image can be found.
pub(super) fn copy_image(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let (source, region) = (query.required("SourceImageId")?, query.required("SourceRegion")?);
    Kind::IMAGE.check(source)?;
    let mut new = read_new(query)?;
    let copy_tags = query.boolean("CopyImageTags")?.unwrap_or(false);
    let encrypted = query.boolean("Encrypted")?;
    refuse_unsupported(
        query,
        &["DestinationAvailabilityZone", "DestinationAvailabilityZoneId", "DestinationOutpostArn"],
    )?;
    // Repetitions are answered before this is reached.
    query.text("ClientToken");
    let key = query.owned("KmsKeyId");
    check_copy_duration(query.number("SnapshotCopyCompletionDurationMinutes")?)?;
    finish(query)?;
    if !regions().contains(&region) {
        let message = format!("Value ({region}) for parameter sourceRegion is invalid. The region does not exist.");
        return Err(ApiError::client("InvalidRegion", message));
    }
    if region != cloud.config.region {
        return Err(Kind::IMAGE.missing(source));
    }
    let copied = cloud.images.find(source)?;
    if copy_tags && copied.owner_id == cloud.config.account {
        let own = copied.tags.iter().filter(|(key, _)| !key.starts_with("aws:"));
        let own: Tags = own.map(|(key, value)| (key.clone(), value.clone())).collect();
        new.tags = own.into_iter().chain(new.tags).collect();
    }
    cloud.copy_image(now, source, (encrypted, key), new).map(|id| made(&id))
}

// fidelity: documented(EC2 API Reference, CopySnapshot, CompletionDurationMinutes: 15 minutes to 48 hours in steps of 15); a
// copy takes as long with it as without
fn check_copy_duration(minutes: Option<u32>) -> Result<(), ApiError> {
    match minutes {
        Some(minutes) if !(15..=2880).contains(&minutes) || minutes % 15 != 0 => {
            let message = format!(
                "Value ({minutes}) for parameter SnapshotCopyCompletionDurationMinutes is invalid. Expected a multiple of 15 from 15 to 2880"
            );
            Err(ApiError::invalid_value(message))
        }
        _ => Ok(()),
    }
}

// fidelity: documented(EC2 API Reference, DeregisterImage: the snapshots too, if asked for)
pub(super) fn deregister_image(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("ImageId")?;
    let with_snapshots = query.boolean("DeleteAssociatedSnapshots")?.unwrap_or(false);
    finish(query)?;
    let snapshots = cloud.deregister_image(id)?;
    let mut answer = returned_true();
    if with_snapshots {
        let mut deleted = BTreeMap::new();
        for snapshot in snapshots {
            let done = cloud.delete_snapshot(&snapshot).is_ok();
            deleted.insert(snapshot, if done { "success" } else { "skipped" });
        }
        let mut xml = Xml::new();
        xml.list("deleteSnapshotResultSet", deleted, |xml, (snapshot, code)| {
            xml.text("snapshotId", snapshot);
            xml.text("returnCode", code);
        });
        answer.push_str(&xml.into_string());
    }
    Ok(answer)
}

const FILTERS: [&str; 52] = [
    "architecture",
    "block-device-mapping.delete-on-termination",
    "block-device-mapping.device-name",
    "block-device-mapping.encrypted",
    "block-device-mapping.snapshot-id",
    "block-device-mapping.volume-size",
    "block-device-mapping.volume-type",
    "boot-mode",
    "creation-date",
    "description",
    "ena-support",
    "free-tier-eligible",
    "hypervisor",
    "image-allowed",
    "image-id",
    "image-type",
    "image-watermark.source-image-creation-time",
    "image-watermark.source-image-id",
    "image-watermark.source-image-region",
    "image-watermark.watermark-creation-time",
    "image-watermark.watermark-key",
    "instance-type-specification.supported-instance-type",
    "instance-type-specification.unsupported-instance-type",
    "is-public",
    "kernel-id",
    "manifest-location",
    "name",
    "owner-alias",
    "owner-id",
    "platform",
    "product-code",
    "product-code.type",
    "public-ssm-parameter-name",
    "ramdisk-id",
    "root-device-name",
    "root-device-type",
    "scan-result.critical-fix-available-since",
    "scan-result.finding-scan-date",
    "scan-result.high-fix-available-since",
    "scan-result.highest-finding-severity-label",
    "scan-result.informational-fix-available-since",
    "scan-result.low-fix-available-since",
    "scan-result.medium-fix-available-since",
    "source-image-id",
    "source-image-region",
    "source-instance-id",
    "sriov-net-support",
    "state",
    "state-reason-code",
    "state-reason-message",
    "tag-key",
    "virtualization-type",
];

/// Owners that go by a name.
// fidelity: documented(EC2 API Reference, DescribeImages: self, amazon, aws-backup-vault, aws-marketplace, or account ids)
const OWNER_NAMES: [&str; 4] = ["self", "amazon", "aws-backup-vault", "aws-marketplace"];

fn check_account(text: &str, names: &[&str]) -> Result<(), ApiError> {
    let is_account = text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    match is_account || names.contains(&text) {
        true => Ok(()),
        false => Err(ApiError::client("InvalidUserID.Malformed", format!("Invalid user id: \"{text}\""))),
    }
}

// fidelity: documented(EC2 API Reference, DescribeImages: deprecated images are answered to their owner and to whoever asks
// for them or names them by id)
pub(super) fn describe_images(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, owners, executable) = (query.list("ImageId"), query.list("Owner"), query.list("ExecutableBy"));
    let filters = query.filters()?;
    let include_deprecated = query.boolean("IncludeDeprecated")?.unwrap_or(false);
    // There are no disabled ones.
    query.boolean("IncludeDisabled")?;
    let page = page(query, 1, 1000, usize::MAX)?;
    finish(query)?;
    filters.check(&FILTERS)?;
    owners.iter().try_for_each(|owner| check_account(owner, &OWNER_NAMES))?;
    executable.iter().try_for_each(|account| check_account(account, &["self", "all"]))?;
    for id in &ids {
        if !cloud.images.images.get(*id).is_some_and(|image| image.is_for(&cloud.config.account)) {
            return Err(Kind::IMAGE.missing(id));
        }
    }
    let account = cloud.config.account.as_str();
    let owned = |image: &Image, owner: &str| match owner {
        "self" => image.owner_id == account,
        alias => image.owner_id == alias || image.owner_alias.as_deref() == Some(alias),
    };
    let permitted = |image: &Image, to: &str| match to {
        "self" => image.launch_accounts.contains(account),
        "all" => image.public,
        other => image.launch_accounts.contains(other),
    };
    let deprecated = |image: &Image| image.deprecated_at.is_some_and(|at| at <= now);
    let chosen = cloud
        .images
        .images
        .values()
        .filter(|image| image.is_for(account))
        .filter(|image| ids.is_empty() || ids.contains(&image.id.as_str()))
        .filter(|image| owners.is_empty() || owners.iter().any(|owner| owned(image, owner)))
        .filter(|image| executable.is_empty() || executable.iter().any(|to| permitted(image, to)))
        .filter(|image| include_deprecated || !ids.is_empty() || image.owner_id == account || !deprecated(image))
        .filter(|image| {
            filters.matches(Some(&image.tags), |name, test| match name {
                "public-ssm-parameter-name" => cloud.images.parameters_of(&image.id).any(test),
                _ => attribute(image, name, test),
            })
        });
    let paged = page.cut(chosen, |image| image.id.clone());
    let mut xml = Xml::new();
    xml.list("imagesSet", paged.items, write_image);
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

/// Images here have no watermarks, no results of scans and no instance types that they are restricted to.
fn attribute(image: &Image, name: &str, test: Test<'_>) -> bool {
    match name {
        "image-id" => test(&image.id),
        "name" => test(&image.name),
        "state" => test(&image.state),
        "architecture" => test(&image.architecture),
        "owner-id" => test(&image.owner_id),
        "owner-alias" => image.owner_alias.as_deref().is_some_and(test),
        "is-public" => test_boolean(image.public, test),
        "root-device-type" => test("ebs"),
        "root-device-name" => test(&image.root_device),
        "virtualization-type" => test("hvm"),
        "hypervisor" => test("xen"),
        "ena-support" => test_boolean(image.ena_support, test),
        "image-allowed" => test_boolean(true, test),
        "free-tier-eligible" => test_boolean(false, test),
        "creation-date" => test(&timestamp(image.created_at)),
        "platform" => image.platform.as_deref().is_some_and(test),
        "description" => test(&image.description),
        "boot-mode" => image.boot_mode.as_deref().is_some_and(test),
        "image-type" => test("machine"),
        "manifest-location" => test(&location(image)),
        "source-instance-id" => image.source_instance_id.as_deref().is_some_and(test),
        "source-image-id" => image.source_image.as_ref().is_some_and(|(id, _)| test(id)),
        "source-image-region" => image.source_image.as_ref().is_some_and(|(_, region)| test(region)),
        _ => match name.strip_prefix("block-device-mapping.") {
            Some(part) => image.block_devices.iter().any(|device| device_has(device, part, test)),
            None => false,
        },
    }
}

fn device_has(device: &BlockDevice, part: &str, test: Test<'_>) -> bool {
    match part {
        "delete-on-termination" => test_boolean(device.delete_on_termination.unwrap_or(true), test),
        "device-name" => test(&device.device_name),
        "encrypted" => test_boolean(device.encrypted.unwrap_or(false), test),
        "snapshot-id" => device.snapshot_id.as_deref().is_some_and(test),
        "volume-size" => test_number(device.volume_size_gib, test),
        "volume-type" => device.volume_type.as_deref().is_some_and(test),
        _ => false,
    }
}

fn location(image: &Image) -> String {
    format!("{}/{}", image.owner_alias.as_deref().unwrap_or(&image.owner_id), image.name)
}

fn write_image(xml: &mut Xml, image: &Image) {
    let windows = image.platform.as_deref() == Some("windows");
    xml.text("imageId", &image.id);
    xml.text("imageLocation", location(image));
    xml.text("imageState", &image.state);
    xml.text("imageOwnerId", &image.owner_id);
    xml.time("creationDate", image.created_at);
    xml.value("isPublic", image.public);
    xml.text("architecture", &image.architecture);
    xml.text("imageType", "machine");
    xml.optional("platform", image.platform.as_ref());
    // fidelity: documented(EC2 User Guide, AMI billing information fields)
    xml.text("platformDetails", if windows { "Windows" } else { "Linux/UNIX" });
    xml.text("usageOperation", if windows { "RunInstances:0002" } else { "RunInstances" });
    xml.optional("imageOwnerAlias", image.owner_alias.as_ref());
    xml.text("name", &image.name);
    xml.text("description", &image.description);
    xml.text("rootDeviceType", "ebs");
    xml.text("rootDeviceName", &image.root_device);
    write_devices(xml, &image.block_devices);
    xml.text("virtualizationType", "hvm");
    xml.text("hypervisor", "xen");
    xml.value("enaSupport", image.ena_support);
    xml.optional("bootMode", image.boot_mode.as_ref());
    xml.optional("imdsSupport", image.imds_support.as_ref());
    xml.optional("sourceInstanceId", image.source_instance_id.as_ref());
    xml.optional("sourceImageId", image.source_image.as_ref().map(|(id, _)| id));
    xml.optional("sourceImageRegion", image.source_image.as_ref().map(|(_, region)| region));
    if let Some(at) = image.deprecated_at {
        xml.time("deprecationTime", at);
    }
    tag_set(xml, &image.tags);
}

pub(super) fn write_devices(xml: &mut Xml, devices: &[BlockDevice]) {
    xml.list("blockDeviceMapping", devices, |xml, device| {
        xml.text("deviceName", &device.device_name);
        xml.element("ebs", |xml| {
            xml.value("deleteOnTermination", device.delete_on_termination.unwrap_or(true));
            xml.optional("snapshotId", device.snapshot_id.as_ref());
            for (name, number) in
                [("volumeSize", device.volume_size_gib), ("iops", device.iops), ("throughput", device.throughput)]
            {
                xml.optional(name, number.map(|number| number.to_string()));
            }
            xml.optional("volumeType", device.volume_type.as_ref());
            xml.value("encrypted", device.encrypted.unwrap_or(false));
            xml.optional("kmsKeyId", device.kms_key_id.as_ref());
        });
    });
}
