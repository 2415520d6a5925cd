//! Volumes: of instances, and by themselves. Expected codes are those of the EC2 API Reference.

mod common;

use common::{Account, filter, first, values};
use std::time::Duration;

async fn a_minute() {
    tokio::time::sleep(Duration::from_secs(60)).await;
}

async fn volume(account: &Account, zone: &str) -> String {
    first(&account.ok("CreateVolume", &[("AvailabilityZone", zone), ("Size", "8")]).await, "volumeId")
}

#[tokio::test(start_paused = true)]
async fn volumes_of_instances_are_described() {
    let account = Account::new();
    let id = account.launch("on-demand", "m5.large").await;
    let described = account.ok("DescribeVolumes", &filter("attachment.instance-id", &id)).await;
    let root = first(&described, "volumeId");
    for (element, value) in [
        ("size", "20"),
        ("volumeType", "gp3"),
        ("iops", "3000"),
        ("throughput", "125"),
        ("availabilityZone", "us-west-2a"),
        ("device", "/dev/xvda"),
        ("deleteOnTermination", "true"),
        ("createTime", "2026-01-01T00:00:00.000Z"),
    ] {
        assert_eq!(first(&described, element), value, "{element}");
    }
    assert_eq!(values(&described, "status"), ["in-use", "attached"]);
    for (name, value) in [
        ("attachment.device", "/dev/xvda"),
        ("attachment.status", "attached"),
        ("availability-zone", "us-west-2a"),
        ("size", "20"),
        ("snapshot-id", "snap-*"),
        ("status", "in-use"),
        ("volume-type", "gp3"),
    ] {
        assert_eq!(first(&account.ok("DescribeVolumes", &filter(name, value)).await, "volumeId"), root, "{name}");
    }
    account.ok("TerminateInstances", &[("InstanceId.1", &id)]).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    account.refuses(&[("DescribeVolumes", &[("VolumeId.1", &root)], "InvalidVolume.NotFound")]).await;
}

#[tokio::test(start_paused = true)]
async fn volumes_are_created_attached_detached_and_deleted() {
    let account = Account::new();
    let instance = account.launch("on-demand", "m5.large").await;
    let (here, there) = (volume(&account, "us-west-2a").await, volume(&account, "us-west-2b").await);
    let attach = [("VolumeId", &*here), ("InstanceId", &*instance), ("Device", "/dev/sdf")];
    account.refuses(&[("AttachVolume", &attach, "IncorrectState")]).await;
    a_minute().await;
    let elsewhere = [("VolumeId", &*there), ("InstanceId", &*instance), ("Device", "/dev/sdf")];
    let taken = [("VolumeId", &*here), ("InstanceId", &*instance), ("Device", "/dev/xvda")];
    account
        .refuses(&[
            ("AttachVolume", &elsewhere, "InvalidVolume.ZoneMismatch"),
            ("AttachVolume", &taken, "InvalidParameterValue"),
            ("AttachVolume", &attach[..2], "MissingParameter"),
            ("DetachVolume", &[("VolumeId", &here)], "IncorrectState"),
        ])
        .await;
    assert_eq!(first(&account.ok("AttachVolume", &attach).await, "status"), "attaching");
    let described = account.ok("DescribeInstances", &[("InstanceId.1", &instance)]).await;
    assert!(values(&described, "volumeId").contains(&here), "{described}");
    let described = account.ok("DescribeVolumes", &[("VolumeId.1", &here)]).await;
    assert_eq!((first(&described, "status"), first(&described, "instanceId")), ("in-use".into(), instance.clone()));
    let root = first(&account.ok("DescribeVolumes", &filter("attachment.device", "/dev/xvda")).await, "volumeId");
    account
        .refuses(&[
            ("AttachVolume", &attach, "VolumeInUse"),
            ("DeleteVolume", &[("VolumeId", &here)], "VolumeInUse"),
            ("DetachVolume", &[("VolumeId", &root)], "OperationNotPermitted"),
            ("DetachVolume", &[("VolumeId", &here), ("Device", "/dev/sdg")], "InvalidAttachment.NotFound"),
        ])
        .await;
    let detached = account.ok("DetachVolume", &[("VolumeId", &here), ("InstanceId", &instance)]).await;
    assert_eq!((first(&detached, "status"), first(&detached, "device")), ("detaching".into(), "/dev/sdf".into()));
    let described = account.ok("DescribeVolumes", &[("VolumeId.1", &here)]).await;
    assert_eq!(values(&described, "status"), ["available"]);
    account.ok("DeleteVolume", &[("VolumeId", &here)]).await;
    account.refuses(&[("DeleteVolume", &[("VolumeId", &here)], "InvalidVolume.NotFound")]).await;
}

#[tokio::test(start_paused = true)]
async fn an_attached_volume_outlives_its_instance() {
    let account = Account::new();
    let instance = account.launch("on-demand", "m5.large").await;
    let own = volume(&account, "us-west-2a").await;
    a_minute().await;
    account.ok("AttachVolume", &[("VolumeId", &own), ("InstanceId", &instance), ("Device", "/dev/sdf")]).await;
    account.ok("TerminateInstances", &[("InstanceId.1", &instance)]).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let described = account.ok("DescribeVolumes", &[]).await;
    assert_eq!((values(&described, "volumeId"), values(&described, "status")), (vec![own], vec!["available".into()]));
}

#[tokio::test(start_paused = true)]
async fn volumes_that_cannot_be_are_refused() {
    let account = Account::new();
    let zone = ("AvailabilityZone", "us-west-2a");
    let sized = |kind: &'static str, size: &'static str| [zone, ("VolumeType", kind), ("Size", size)];
    account
        .refuses(&[
            ("CreateVolume", &[("Size", "8")], "MissingParameter"),
            ("CreateVolume", &[zone], "MissingParameter"),
            ("CreateVolume", &[("AvailabilityZone", "mars-1a"), ("Size", "8")], "InvalidZone.NotFound"),
            ("CreateVolume", &sized("gp9", "8"), "UnknownVolumeType"),
            ("CreateVolume", &sized("gp2", "16385"), "InvalidParameterValue"),
            ("CreateVolume", &sized("st1", "8"), "InvalidParameterValue"),
            ("CreateVolume", &sized("io2", "8"), "MissingParameter"),
            (
                "CreateVolume",
                &[sized("gp2", "8").as_slice(), &[("Iops", "3000")]].concat(),
                "InvalidParameterCombination",
            ),
            ("CreateVolume", &[sized("gp3", "8").as_slice(), &[("Iops", "80001")]].concat(), "InvalidParameterValue"),
            ("CreateVolume", &[zone, ("SnapshotId", "snap-0")], "InvalidSnapshot.NotFound"),
            ("CreateVolume", &[zone, ("Size", "8"), ("KmsKeyId", "k")], "InvalidParameterDependency"),
            ("DescribeVolumes", &[("VolumeId.1", "x")], "InvalidVolumeID.Malformed"),
            ("DescribeVolumes", &filter("colour", "blue"), "InvalidParameterValue"),
        ])
        .await;
    let made = account.ok("CreateVolume", &[zone, ("Size", "100"), ("ClientToken", "once")]).await;
    let again = account.ok("CreateVolume", &[zone, ("Size", "100"), ("ClientToken", "once")]).await;
    assert_eq!(first(&made, "volumeId"), first(&again, "volumeId"));
    assert_eq!((first(&made, "status"), first(&made, "volumeType")), ("creating".into(), "gp2".into()));
    // Three for each GiB.
    assert_eq!(first(&made, "iops"), "300");
}

#[tokio::test(start_paused = true)]
async fn snapshots_and_volumes_are_made_of_each_other() {
    let account = Account::new();
    let source = volume(&account, "us-west-2a").await;
    let made = account.ok("CreateSnapshot", &[("VolumeId", &source), ("Description", "before")]).await;
    let snapshot = first(&made, "snapshotId");
    assert_eq!((first(&made, "status"), first(&made, "volumeId")), ("pending".into(), source));
    let restored = account.ok("CreateVolume", &[("AvailabilityZone", "us-west-2b"), ("SnapshotId", &snapshot)]).await;
    assert_eq!((first(&restored, "size"), first(&restored, "snapshotId")), ("8".into(), snapshot.clone()));
    let smaller = [("AvailabilityZone", "us-west-2b"), ("SnapshotId", &*snapshot), ("Size", "4")];
    account.refuses(&[("CreateVolume", &smaller, "InvalidParameterValue")]).await;
}
