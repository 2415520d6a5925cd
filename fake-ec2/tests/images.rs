//! Images, the snapshots behind them, and key pairs. Expected codes are those of the EC2 API Reference.

mod common;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{Account, filter, first, values};
use std::time::Duration;

/// Long enough for instances to run and for images to be available.
async fn a_minute() {
    tokio::time::sleep(Duration::from_secs(60)).await;
}

/// An account with a running instance and an available image of it: both ids.
async fn with_image() -> (Account, String, String) {
    let account = Account::new();
    let instance = account.launch("on-demand", "m5.large").await;
    a_minute().await;
    let image = first(&account.ok("CreateImage", &[("InstanceId", &instance), ("Name", "golden")]).await, "imageId");
    a_minute().await;
    (account, instance, image)
}

#[tokio::test(start_paused = true)]
async fn an_image_of_an_instance_is_pending_and_then_available() {
    let account = Account::new();
    let instance = account.launch("on-demand", "m5.large").await;
    let params = [
        ("InstanceId", instance.as_str()),
        ("Name", "golden"),
        ("Description", "as it was"),
        ("NoReboot", "true"),
        ("TagSpecification.1.ResourceType", "image"),
        ("TagSpecification.1.Tag.1.Key", "team"),
        ("TagSpecification.1.Tag.1.Value", "blue"),
        ("TagSpecification.2.ResourceType", "snapshot"),
        ("TagSpecification.2.Tag.1.Key", "team"),
        ("TagSpecification.2.Tag.1.Value", "red"),
    ];
    account.refuses(&[("CreateImage", &params, "IncorrectInstanceState")]).await;
    a_minute().await;
    let image = first(&account.ok("CreateImage", &params).await, "imageId");
    let run = [
        ("ImageId", image.as_str()),
        ("InstanceType", "m5.large"),
        ("SubnetId", &account.setup.subnet_ids[0]),
        ("MinCount", "1"),
        ("MaxCount", "1"),
    ];
    let pending = account.ok("DescribeImages", &[("ImageId.1", &image)]).await;
    assert_eq!(first(&pending, "imageState"), "pending");
    account.refuses(&[("RunInstances", &run, "InvalidAMIID.Unavailable")]).await;
    a_minute().await;
    let described = account.ok("DescribeImages", &[("Owner.1", "self")]).await;
    for (element, value) in [
        ("imageId", image.as_str()),
        ("imageState", "available"),
        ("imageOwnerId", "123456789012"),
        ("isPublic", "false"),
        ("architecture", "x86_64"),
        ("description", "as it was"),
        ("rootDeviceName", "/dev/xvda"),
        ("volumeSize", "20"),
        ("sourceInstanceId", &instance),
        ("value", "blue"),
    ] {
        assert_eq!(first(&described, element), value, "{element}");
    }
    let snapshots = account.ok("DescribeSnapshots", &[("SnapshotId.1", &first(&described, "snapshotId"))]).await;
    for (element, value) in [("status", "completed"), ("progress", "100%"), ("volumeSize", "20"), ("value", "red")] {
        assert_eq!(first(&snapshots, element), value, "{element}");
    }
    let launched = account.ok("RunInstances", &run).await;
    assert_eq!(first(&launched, "imageId"), image);
}

#[tokio::test(start_paused = true)]
async fn a_deregistered_image_launches_nothing_more() {
    let (account, _, image) = with_image().await;
    let run = [
        ("ImageId", image.as_str()),
        ("InstanceType", "m5.large"),
        ("SubnetId", &account.setup.subnet_ids[0]),
        ("MinCount", "1"),
        ("MaxCount", "1"),
    ];
    let instance = first(&account.ok("RunInstances", &run).await, "instanceId");
    let snapshot = first(&account.ok("DescribeImages", &[("ImageId.1", &image)]).await, "snapshotId");
    account.refuses(&[("DeleteSnapshot", &[("SnapshotId", &snapshot)], "InvalidSnapshot.InUse")]).await;
    account.ok("DeregisterImage", &[("ImageId", &image)]).await;
    a_minute().await;
    let described = account.ok("DescribeInstances", &[("InstanceId.1", &instance)]).await;
    assert_eq!(values(&described, "name").first().map(String::as_str), Some("running"), "what was launched goes on");
    account
        .refuses(&[
            ("RunInstances", &run, "InvalidAMIID.Unavailable"),
            ("DeregisterImage", &[("ImageId", &image)], "InvalidAMIID.Unavailable"),
            ("DescribeImages", &[("ImageId.1", &image)], "InvalidAMIID.NotFound"),
        ])
        .await;
    account.ok("DeleteSnapshot", &[("SnapshotId", &snapshot)]).await;
    account.refuses(&[("DeleteSnapshot", &[("SnapshotId", &snapshot)], "InvalidSnapshot.NotFound")]).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_goes_with_its_snapshots_if_asked_to() {
    let (account, _, image) = with_image().await;
    let answer = account.ok("DeregisterImage", &[("ImageId", &image), ("DeleteAssociatedSnapshots", "true")]).await;
    assert_eq!((first(&answer, "return"), first(&answer, "returnCode")), ("true".into(), "success".into()));
    assert!(values(&account.ok("DescribeSnapshots", &[("Owner.1", "self")]).await, "snapshotId").is_empty());
}

#[tokio::test(start_paused = true)]
async fn images_are_registered_from_snapshots() {
    let (account, instance, image) = with_image().await;
    let snapshot = first(&account.ok("DescribeImages", &[("ImageId.1", &image)]).await, "snapshotId");
    let params = [
        ("Name", "second"),
        ("Architecture", "arm64"),
        ("RootDeviceName", "/dev/xvda"),
        ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
        ("BlockDeviceMapping.1.Ebs.SnapshotId", &snapshot),
        ("VirtualizationType", "hvm"),
        ("EnaSupport", "true"),
        ("BootMode", "uefi"),
    ];
    let registered = first(&account.ok("RegisterImage", &params).await, "imageId");
    let described = account.ok("DescribeImages", &[("ImageId.1", &registered)]).await;
    for (element, value) in
        [("architecture", "arm64"), ("bootMode", "uefi"), ("volumeSize", "20"), ("enaSupport", "true")]
    {
        assert_eq!(first(&described, element), value, "{element}");
    }
    let smaller = [params.as_slice(), &[("BlockDeviceMapping.1.Ebs.VolumeSize", "10"), ("Name", "third")]].concat();
    let named = |name: &'static str| [("InstanceId", instance.as_str()), ("Name", name)];
    let long = "n".repeat(129);
    account
        .refuses(&[
            ("RegisterImage", &params, "InvalidAMIName.Duplicate"),
            ("RegisterImage", &smaller, "InvalidBlockDeviceMapping"),
            ("RegisterImage", &[("Name", "third")], "MissingParameter"),
            ("RegisterImage", &[("Name", "third"), ("RootDeviceName", "/dev/xvda")], "InvalidBlockDeviceMapping"),
            ("RegisterImage", &[("Name", "third"), ("ImageLocation", "bucket/manifest")], "UnsupportedOperation"),
            ("RegisterImage", &[("Name", "third"), ("Architecture", "sparc")], "InvalidParameterValue"),
            ("CreateImage", &named("golden"), "InvalidAMIName.Duplicate"),
            ("CreateImage", &named("ab"), "InvalidAMIName.Malformed"),
            ("CreateImage", &named("a*c"), "InvalidAMIName.Malformed"),
            ("CreateImage", &[("InstanceId", &instance), ("Name", &long)], "InvalidAMIName.Malformed"),
            ("CreateImage", &[("Name", "fourth")], "MissingParameter"),
            ("CreateImage", &[("InstanceId", "i-0"), ("Name", "fourth")], "InvalidInstanceID.NotFound"),
            ("CreateImage", &[("InstanceId", "x"), ("Name", "fourth")], "InvalidInstanceID.Malformed"),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn copies_are_images_of_their_own() {
    let (account, _, image) = with_image().await;
    account.ok("CreateTags", &[("ResourceId.1", &image), ("Tag.1.Key", "team"), ("Tag.1.Value", "blue")]).await;
    let params = [
        ("SourceImageId", image.as_str()),
        ("SourceRegion", "us-west-2"),
        ("Name", "copied"),
        ("CopyImageTags", "true"),
        ("Encrypted", "true"),
        ("ClientToken", "once"),
    ];
    let copy = first(&account.ok("CopyImage", &params).await, "imageId");
    assert_eq!(first(&account.ok("CopyImage", &params).await, "imageId"), copy, "the same token makes one copy");
    let described = account.ok("DescribeImages", &filter("source-image-id", &image)).await;
    for (element, value) in
        [("imageId", &*copy), ("sourceImageRegion", "us-west-2"), ("encrypted", "true"), ("value", "blue")]
    {
        assert_eq!(first(&described, element), value, "{element}");
    }
    // Public images can be copied too.
    let public = account.image("arm64");
    let params = [("SourceImageId", public.as_str()), ("SourceRegion", "us-west-2"), ("Name", "mine")];
    let copy = first(&account.ok("CopyImage", &params).await, "imageId");
    let described = account.ok("DescribeImages", &[("ImageId.1", &copy)]).await;
    assert_eq!((first(&described, "architecture"), first(&described, "isPublic")), ("arm64".into(), "false".into()));
    let from = |region: &'static str| [("SourceImageId", image.as_str()), ("SourceRegion", region), ("Name", "other")];
    account
        .refuses(&[
            ("CopyImage", &from("us-east-1"), "InvalidAMIID.NotFound"),
            ("CopyImage", &from("mars-1"), "InvalidRegion"),
            ("CopyImage", &from("us-east-1")[..2], "MissingParameter"),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn owners_say_who_may_launch_their_images() {
    let (account, _, image) = with_image().await;
    let id = ("ImageId", image.as_str());
    let asked = [id, ("Attribute", "launchPermission")];
    account.ok("ModifyImageAttribute", &[id, ("LaunchPermission.Add.1.UserId", "210987654321")]).await;
    let by_list = [id, ("Attribute", "launchPermission"), ("OperationType", "add"), ("UserGroup.1", "all")];
    account.ok("ModifyImageAttribute", &by_list).await;
    let told = account.ok("DescribeImageAttribute", &asked).await;
    assert_eq!((first(&told, "group"), first(&told, "userId")), ("all".into(), "210987654321".into()));
    let shared = account.ok("DescribeImages", &[("ExecutableBy.1", "210987654321")]).await;
    assert_eq!((first(&shared, "imageId"), first(&shared, "isPublic")), (image.clone(), "true".into()));
    account.ok("ModifyImageAttribute", &[id, ("LaunchPermission.Remove.1.Group", "all")]).await;
    assert_eq!(values(&account.ok("DescribeImageAttribute", &asked).await, "group").len(), 0);
    account.ok("ResetImageAttribute", &asked).await;
    assert!(values(&account.ok("DescribeImageAttribute", &asked).await, "userId").is_empty());
    account.ok("ModifyImageAttribute", &[id, ("Description.Value", "new")]).await;
    assert_eq!(first(&account.ok("DescribeImageAttribute", &[id, ("Attribute", "description")]).await, "value"), "new");
    let public = account.image("x86_64");
    let foreign = [("ImageId", public.as_str()), ("Description.Value", "mine")];
    assert_eq!(account.refused("ModifyImageAttribute", &foreign).await, (403, "AuthFailure".into()));
    assert_eq!(account.refused("DeregisterImage", &foreign[..1]).await, (403, "AuthFailure".into()));
    account
        .refuses(&[
            ("ModifyImageAttribute", &[id], "InvalidParameterCombination"),
            ("ModifyImageAttribute", &[id, ("LaunchPermission.Add.1.UserId", "me")], "InvalidAMIAttributeItemValue"),
            ("ModifyImageAttribute", &[id, ("LaunchPermission.Add.1.Group", "some")], "InvalidAMIAttributeItemValue"),
            ("ModifyImageAttribute", &[id, ("UserGroup.1", "all")], "InvalidParameterValue"),
            ("ResetImageAttribute", &[id, ("Attribute", "description")], "InvalidParameterValue"),
            ("DescribeImageAttribute", &[id, ("Attribute", "colour")], "InvalidParameterValue"),
            ("DescribeImageAttribute", &[("ImageId", "x"), ("Attribute", "bootMode")], "InvalidAMIID.Malformed"),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn owners_deprecate_their_images() {
    let (account, _, image) = with_image().await;
    let id = ("ImageId", image.as_str());
    account.ok("EnableImageDeprecation", &[id, ("DeprecateAt", "2026-02-01T00:00:40Z")]).await;
    let described = account.ok("DescribeImages", &[("ImageId.1", &image)]).await;
    assert_eq!(first(&described, "deprecationTime"), "2026-02-01T00:01:00.000Z", "seconds are rounded to the minute");
    account.ok("DisableImageDeprecation", &[id]).await;
    let described = account.ok("DescribeImages", &[("ImageId.1", &image)]).await;
    assert!(values(&described, "deprecationTime").is_empty());
    account
        .refuses(&[
            ("EnableImageDeprecation", &[id, ("DeprecateAt", "2025-01-01T00:00:00Z")], "InvalidParameterValue"),
            ("EnableImageDeprecation", &[id, ("DeprecateAt", "2037-01-01T00:00:00Z")], "InvalidParameterValue"),
            ("EnableImageDeprecation", &[id], "MissingParameter"),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn images_are_found_by_every_kind_of_filter() {
    let (account, _, image) = with_image().await;
    let snapshot = first(&account.ok("DescribeImages", &[("ImageId.1", &image)]).await, "snapshotId");
    for (name, value) in [
        ("block-device-mapping.snapshot-id", snapshot.as_str()),
        ("is-public", "false"),
        ("manifest-location", "123456789012/golden"),
        ("name", "gold*"),
        ("owner-id", "123456789012"),
    ] {
        assert_eq!(
            values(&account.ok("DescribeImages", &filter(name, value)).await, "imageId"),
            [image.as_str()],
            "{name}"
        );
    }
    for (name, value) in [
        ("block-device-mapping.volume-size", "20"),
        ("block-device-mapping.volume-type", "gp3"),
        ("block-device-mapping.encrypted", "false"),
        ("ena-support", "true"),
        ("hypervisor", "xen"),
        ("root-device-name", "/dev/xvda"),
    ] {
        assert!(account.ok("DescribeImages", &filter(name, value)).await.contains(&image), "{name}");
    }
    account
        .refuses(&[
            ("DescribeImages", &filter("colour", "blue"), "InvalidParameterValue"),
            ("DescribeImages", &[("Owner.1", "me")], "InvalidUserID.Malformed"),
            ("DescribeSnapshots", &filter("colour", "blue"), "InvalidParameterValue"),
            ("DescribeSnapshots", &[("SnapshotId.1", "x")], "InvalidSnapshotID.Malformed"),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn key_pairs_are_made_described_and_deleted() {
    let account = Account::new();
    let params = [
        ("KeyName", "mine"),
        ("KeyType", "ed25519"),
        ("TagSpecification.1.ResourceType", "key-pair"),
        ("TagSpecification.1.Tag.1.Key", "team"),
        ("TagSpecification.1.Tag.1.Value", "blue"),
    ];
    let made = account.ok("CreateKeyPair", &params).await;
    let material = first(&made, "keyMaterial");
    assert!(material.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n"), "{material}");
    let public = [filter("tag:team", "blue").as_slice(), &[("IncludePublicKey", "true")]].concat();
    let described = account.ok("DescribeKeyPairs", &public).await;
    assert_eq!(
        (first(&described, "keyType"), first(&described, "keyPairId")),
        ("ed25519".into(), first(&made, "keyPairId"))
    );
    // Its own public key, imported under another name, has the same fingerprint.
    let line = STANDARD.encode(first(&described, "publicKey"));
    let imported = account.ok("ImportKeyPair", &[("KeyName", "again"), ("PublicKeyMaterial", &line)]).await;
    assert_eq!(first(&imported, "keyFingerprint"), first(&made, "keyFingerprint"));
    let deleted = account.ok("DeleteKeyPair", &[("KeyName", "mine")]).await;
    assert_eq!(first(&deleted, "keyPairId"), first(&made, "keyPairId"));
    account.ok("DeleteKeyPair", &[("KeyName", "mine")]).await;
    let nonsense = STANDARD.encode("ssh-rsa AAAA nobody");
    let ed25519 = |name: &'static str| [("KeyName", name), ("KeyType", "ed25519")];
    account
        .refuses(&[
            ("CreateKeyPair", &ed25519("again"), "InvalidKeyPair.Duplicate"),
            ("CreateKeyPair", &ed25519(" again"), "InvalidParameterValue"),
            ("CreateKeyPair", &[("KeyName", "rsa")], "UnsupportedOperation"),
            ("CreateKeyPair", &[("KeyName", "dsa"), ("KeyType", "dsa")], "InvalidParameterValue"),
            ("CreateKeyPair", &[], "MissingParameter"),
            ("ImportKeyPair", &[("KeyName", "new"), ("PublicKeyMaterial", &nonsense)], "InvalidKey.Format"),
            ("ImportKeyPair", &[("KeyName", "new"), ("PublicKeyMaterial", "?")], "InvalidParameterValue"),
            ("ImportKeyPair", &[("KeyName", "again"), ("PublicKeyMaterial", &line)], "InvalidKeyPair.Duplicate"),
            ("DescribeKeyPairs", &[("KeyName.1", "mine")], "InvalidKeyPair.NotFound"),
            ("DescribeKeyPairs", &[("KeyPairId.1", "key-0")], "InvalidKeyPair.NotFound"),
            ("DeleteKeyPair", &[], "MissingParameter"),
        ])
        .await;
}

/// A key of 2,048 bits and the figures that OpenSSL 3 and OpenSSH 9 give for it and for one of Ed25519.
const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCtO/uHopVWKYhs7aFXMokMqfZssMeHOBMAsZCHinFsVJo6aGxDHAys/xfRIWCvNltwxPnRry7uuVoUgeHuZg15zaiei8Iq/n+9uiI3RhJDZgVb4vVol5v4UVLh+So9LFOLTSVOKS2AIIUdyEmUH5s4zgqBl/CUugkYZe/Kw2RCFOGceg9xsTPkt64dScx4d9v+6MqY8Qt8XmSiOxnTqjUxjqLDDzM458tYftD8MG99C9XvfeQfii5ZRDEF0xVG1ly/8Ru3In1HeyirtnR8ctcXyMns8touaT/gsbvFEPGIzQxaCSM9Bi1lVrmtKFfgW11PT/z/g5APgTOgc4j3BHvJ test";
const RSA_MD5: &str = "66:36:3d:54:9c:67:77:bb:e0:c7:79:d8:8f:bd:57:72";
const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFWd/6i28nPdgd0xKmgB1ceP71kqulrARsfRpiVT+a0Y test";
const ED25519_SHA256: &str = "NAgeyI2y9xSO1gDC3QKMa/1iebpm5AN+skLLDsck6Qg=";

#[tokio::test(start_paused = true)]
async fn fingerprints_are_those_of_openssl_and_openssh() {
    let account = Account::new();
    for (name, key, fingerprint) in [("rsa", RSA, RSA_MD5), ("ed25519", ED25519, ED25519_SHA256)] {
        let material = STANDARD.encode(key);
        let made = account.ok("ImportKeyPair", &[("KeyName", name), ("PublicKeyMaterial", &material)]).await;
        assert_eq!(first(&made, "keyFingerprint"), fingerprint, "{name}");
        let described = account.ok("DescribeKeyPairs", &[("KeyName.1", name)]).await;
        assert_eq!(first(&described, "keyType"), name);
    }
}
