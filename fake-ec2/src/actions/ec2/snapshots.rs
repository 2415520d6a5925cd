//! Snapshots: CreateSnapshot, DeleteSnapshot, DescribeSnapshots.

use super::describe::{Describe, test_boolean};
use super::tags::tag_specification;
use super::volumes::find_volume;
use super::{finish, refuse_unsupported, returned_true, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::image::Snapshot;
use crate::cloud::resource::Kind;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;

// fidelity: documented(EC2 API Reference, CreateSnapshot)
pub(super) fn create_snapshot(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let volume = find_volume(cloud, query.required("VolumeId")?)?.volume().clone();
    let description = query.text("Description").unwrap_or_default();
    let tags = tag_specification(query, &Kind::SNAPSHOT)?;
    refuse_unsupported(query, &["Location", "OutpostArn"])?;
    finish(query)?;
    let id = cloud.add_snapshot(now, &volume, description, tags);
    let mut xml = Xml::new();
    write_snapshot(&mut xml, cloud, now, cloud.snapshot(&id)?);
    Ok(xml.into_string())
}

pub(super) fn delete_snapshot(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("SnapshotId")?;
    finish(query)?;
    cloud.delete_snapshot(id)?;
    Ok(returned_true())
}

const FILTERS: [&str; 13] = [
    "description",
    "encrypted",
    "owner-alias",
    "owner-id",
    "progress",
    "snapshot-id",
    "start-time",
    "status",
    "storage-tier",
    "tag-key",
    "transfer-type",
    "volume-id",
    "volume-size",
];

// fidelity: documented(EC2 API Reference, DescribeSnapshots); of the snapshots behind public images nothing is told.
pub(super) fn describe_snapshots(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let (owners, restorable) = (query.list("Owner"), query.list("RestorableBy"));
    let asked = Describe::bounded(query, &Kind::SNAPSHOT, "SnapshotId", &FILTERS, 5, 1000)?;
    let account = cloud.config.account.as_str();
    let ours = |names: &[&str]| names.is_empty() || names.iter().any(|name| *name == "self" || *name == account);
    let attribute = |snapshot: &&Snapshot, name: &str, test: Test<'_>| match name {
        "description" => test(&snapshot.description),
        "encrypted" => test_boolean(snapshot.encrypted, test),
        "owner-id" => test(account),
        "progress" => test(progress(snapshot, now)),
        "snapshot-id" => test(&snapshot.id),
        "start-time" => test(&timestamp(snapshot.started_at)),
        "status" => test(snapshot.status(now)),
        "storage-tier" => test("standard"),
        "volume-id" => test(volume_id(snapshot)),
        "volume-size" => test(&snapshot.volume_size_gib.to_string()),
        _ => false,
    };
    let wanted = cloud.images.snapshots.values().filter(|_| ours(&owners) && ours(&restorable));
    let paged = asked.choose(wanted, |own| &own.id, |own| &own.tags, attribute)?;
    let mut xml = Xml::new();
    xml.list("snapshotSet", paged.items, |xml, snapshot| write_snapshot(xml, cloud, now, snapshot));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn progress(snapshot: &Snapshot, now: Timestamp) -> &'static str {
    if snapshot.status(now) == "completed" { "100%" } else { "0%" }
}

/// The volume it is of; copies are told an id that no volume has.
// fidelity: documented(EC2 API Reference, Snapshot: copies have an arbitrary volume id that is not to be used)
fn volume_id(snapshot: &Snapshot) -> &str {
    if snapshot.volume_id.is_empty() { "vol-ffffffff" } else { &snapshot.volume_id }
}

fn write_snapshot(xml: &mut Xml, cloud: &Cloud, now: Timestamp, snapshot: &Snapshot) {
    xml.text("snapshotId", &snapshot.id);
    xml.text("volumeId", volume_id(snapshot));
    xml.text("status", snapshot.status(now));
    xml.time("startTime", snapshot.started_at);
    xml.text("progress", progress(snapshot, now));
    xml.text("ownerId", &cloud.config.account);
    xml.value("volumeSize", snapshot.volume_size_gib);
    xml.text("description", &snapshot.description);
    xml.value("encrypted", snapshot.encrypted);
    xml.optional("kmsKeyId", snapshot.kms_key_id.as_ref());
    xml.text("storageTier", "standard");
    if snapshot.status(now) == "completed" {
        xml.time("completionTime", snapshot.completed_at);
    }
    tag_set(xml, &snapshot.tags);
}
