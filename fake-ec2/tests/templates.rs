//! Launch templates: versions, aliases, merging, what is kept and told again, limits (EC2 API Reference).

mod common;

use common::{Account, values};

async fn create(account: &Account, name: &str, more: &[(&str, &str)]) -> String {
    let mut params = vec![("LaunchTemplateName", name)];
    params.extend(more);
    values(&account.ok("CreateLaunchTemplate", &params).await, "launchTemplateId").remove(0)
}

/// A template with three versions: types a, b and c; the first is the default.
async fn three_versions(account: &Account) -> String {
    let id = create(account, "three", &[("LaunchTemplateData.InstanceType", "m5.large")]).await;
    for instance_type in ["m5.xlarge", "m5.2xlarge"] {
        let version = [("LaunchTemplateId", id.as_str()), ("LaunchTemplateData.InstanceType", instance_type)];
        account.ok("CreateLaunchTemplateVersion", &version).await;
    }
    id
}

#[tokio::test(start_paused = true)]
async fn versions_are_described_by_number_alias_and_range() {
    let account = Account::new();
    let id = three_versions(&account).await;
    let describe = async |more: &[(&str, &str)]| {
        let mut params = vec![("LaunchTemplateId", id.as_str())];
        params.extend(more);
        values(&account.ok("DescribeLaunchTemplateVersions", &params).await, "versionNumber")
    };
    assert_eq!(describe(&[]).await, ["3", "2", "1"], "the newest first");
    let aliases = [("LaunchTemplateVersion.1", "$Latest"), ("LaunchTemplateVersion.2", "$Default")];
    assert_eq!(describe(&aliases).await, ["3", "1"]);
    assert_eq!(describe(&[("MinVersion", "2")]).await, ["3", "2"]);
    assert_eq!(describe(&[("MaxVersion", "2"), ("MinVersion", "2")]).await, ["2"]);
    let by_filter = [("Filter.1.Name", "is-default-version"), ("Filter.1.Value.1", "true")];
    assert_eq!(describe(&by_filter).await, ["1"]);
    let by_type = [("Filter.1.Name", "instance-type"), ("Filter.1.Value.1", "m5.?xlarge")];
    assert_eq!(describe(&by_type).await, ["3"]);
    let first =
        account.ok("DescribeLaunchTemplateVersions", &[("LaunchTemplateId", id.as_str()), ("MaxResults", "2")]).await;
    let token = values(&first, "nextToken").remove(0);
    assert_eq!(values(&first, "versionNumber"), ["3", "2"]);
    assert_eq!(describe(&[("MaxResults", "2"), ("NextToken", &token)]).await, ["1"]);
    // Of every template, only the aliases.
    create(&account, "other", &[("LaunchTemplateData.ImageId", "ami-1")]).await;
    let all = account.ok("DescribeLaunchTemplateVersions", &[("LaunchTemplateVersion.1", "$Latest")]).await;
    let mut names = values(&all, "launchTemplateName");
    names.sort();
    assert_eq!((names, values(&all, "versionNumber").len()), (vec!["other".into(), "three".into()], 2));
    assert_eq!(account.refused("DescribeLaunchTemplateVersions", &[]).await, (400, "MissingParameter".into()));
    assert_eq!(
        account
            .refused("DescribeLaunchTemplateVersions", &[("LaunchTemplateId", &id), ("LaunchTemplateVersion.1", "7")])
            .await,
        (400, "InvalidLaunchTemplateId.VersionNotFound".into())
    );
    assert_eq!(
        account.refused("DescribeLaunchTemplateVersions", &[("LaunchTemplateId", "lt-xyz")]).await,
        (400, "InvalidLaunchTemplateId.Malformed".into())
    );
}

#[tokio::test(start_paused = true)]
async fn the_default_version_changes_and_cannot_be_deleted() {
    let account = Account::new();
    let id = three_versions(&account).await;
    let body = account.ok("ModifyLaunchTemplate", &[("LaunchTemplateName", "three"), ("SetDefaultVersion", "2")]).await;
    assert_eq!(
        (values(&body, "defaultVersionNumber"), values(&body, "latestVersionNumber")),
        (vec!["2".into()], vec!["3".into()])
    );
    assert_eq!(
        account.refused("ModifyLaunchTemplate", &[("LaunchTemplateId", &id), ("SetDefaultVersion", "9")]).await,
        (400, "InvalidLaunchTemplateId.VersionNotFound".into())
    );
    let delete = [
        ("LaunchTemplateId", id.as_str()),
        ("LaunchTemplateVersion.1", "2"),
        ("LaunchTemplateVersion.2", "3"),
        ("LaunchTemplateVersion.3", "9"),
    ];
    let body = account.ok("DeleteLaunchTemplateVersions", &delete).await;
    let deleted = &values(&body, "successfullyDeletedLaunchTemplateVersionSet")[0];
    let kept = &values(&body, "unsuccessfullyDeletedLaunchTemplateVersionSet")[0];
    assert_eq!(values(deleted, "versionNumber"), ["3"]);
    assert_eq!(values(kept, "versionNumber"), ["2", "9"]);
    assert_eq!(values(kept, "code"), ["unexpectedError", "launchTemplateVersionDoesNotExist"]);
    // Its number is not used again.
    let version = [("LaunchTemplateId", id.as_str()), ("LaunchTemplateData.InstanceType", "m5.4xlarge")];
    let body = account.ok("CreateLaunchTemplateVersion", &version).await;
    assert_eq!(values(&body, "versionNumber"), ["4"]);
    let both = [("LaunchTemplateId", id.as_str()), ("LaunchTemplateName", "three")];
    assert_eq!(account.refused("DeleteLaunchTemplate", &both).await, (400, "InvalidParameterCombination".into()));
}

#[tokio::test(start_paused = true)]
async fn a_version_is_made_on_top_of_its_source() {
    let account = Account::new();
    let id = create(
        &account,
        "base",
        &[
            ("LaunchTemplateData.InstanceType", "m5.large"),
            ("LaunchTemplateData.ImageId", "ami-1"),
            ("LaunchTemplateData.CpuOptions.CoreCount", "1"),
            ("LaunchTemplateData.CpuOptions.ThreadsPerCore", "2"),
            ("LaunchTemplateData.KernelId", "aki-1"),
        ],
    )
    .await;
    let version = [
        ("LaunchTemplateId", id.as_str()),
        ("SourceVersion", "1"),
        ("VersionDescription", "smaller"),
        ("LaunchTemplateData.ImageId", "ami-2"),
        ("LaunchTemplateData.CpuOptions.CoreCount", "2"),
    ];
    let body = account.ok("CreateLaunchTemplateVersion", &version).await;
    assert_eq!(
        (values(&body, "imageId"), values(&body, "instanceType")),
        (vec!["ami-2".into()], vec!["m5.large".into()])
    );
    assert_eq!(
        values(&body, "cpuOptions"),
        ["<coreCount>2</coreCount>"],
        "a member given again replaces the whole one"
    );
    assert_eq!(
        (values(&body, "kernelId"), values(&body, "versionDescription")),
        (vec!["aki-1".into()], vec!["smaller".into()])
    );
    // Without a source, nothing is taken over.
    let version = [("LaunchTemplateId", id.as_str()), ("LaunchTemplateData.ImageId", "ami-3")];
    assert!(values(&account.ok("CreateLaunchTemplateVersion", &version).await, "instanceType").is_empty());
    // Requirements and a type exclude each other: whichever comes last holds.
    let version = [
        ("LaunchTemplateId", id.as_str()),
        ("SourceVersion", "1"),
        ("LaunchTemplateData.InstanceRequirements.VCpuCount.Min", "2"),
        ("LaunchTemplateData.InstanceRequirements.MemoryMiB.Min", "1024"),
    ];
    let body = account.ok("CreateLaunchTemplateVersion", &version).await;
    assert!(values(&body, "instanceType").is_empty(), "{body}");
    assert_eq!(
        values(&body, "instanceRequirements"),
        ["<memoryMiB><min>1024</min></memoryMiB><vCpuCount><min>2</min></vCpuCount>"]
    );
}

#[tokio::test(start_paused = true)]
async fn every_member_is_told_as_it_was_given() {
    let account = Account::new();
    let id = create(
        &account,
        "whole",
        &[
            ("LaunchTemplateData.DisableApiStop", "true"),
            ("LaunchTemplateData.InstanceMarketOptions.MarketType", "spot"),
            ("LaunchTemplateData.InstanceMarketOptions.SpotOptions.MaxPrice", "0.05"),
            ("LaunchTemplateData.InstanceMarketOptions.SpotOptions.SpotInstanceType", "persistent"),
            ("LaunchTemplateData.CreditSpecification.CpuCredits", "unlimited"),
            ("LaunchTemplateData.HibernationOptions.Configured", "true"),
            ("LaunchTemplateData.LicenseSpecification.1.LicenseConfigurationArn", "arn:l"),
            ("LaunchTemplateData.MaintenanceOptions.AutoRecovery", "disabled"),
            ("LaunchTemplateData.PrivateDnsNameOptions.HostnameType", "resource-name"),
            ("LaunchTemplateData.NetworkPerformanceOptions.BandwidthWeighting", "vpc-1"),
            ("LaunchTemplateData.RamDiskId", "ari-1"),
            ("LaunchTemplateData.Placement.Affinity", "host"),
            ("LaunchTemplateData.Placement.HostId", "h-1"),
            ("LaunchTemplateData.Placement.Tenancy", "host"),
            ("LaunchTemplateData.BlockDeviceMapping.1.DeviceName", "/dev/sdb"),
            ("LaunchTemplateData.BlockDeviceMapping.1.NoDevice", ""),
            ("LaunchTemplateData.NetworkInterface.1.DeviceIndex", "0"),
            ("LaunchTemplateData.NetworkInterface.1.Description", "front"),
            ("LaunchTemplateData.NetworkInterface.1.EnaSrdSpecification.EnaSrdEnabled", "true"),
            ("LaunchTemplateData.NetworkInterface.1.Ipv6Addresses.1.Ipv6Address", "::1"),
            ("LaunchTemplateData.CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationResourceGroupArn", "arn:g"),
        ],
    )
    .await;
    let body = account.ok("DescribeLaunchTemplateVersions", &[("LaunchTemplateId", &id)]).await;
    for part in [
        "<disableApiStop>true</disableApiStop>",
        "<instanceMarketOptions><marketType>spot</marketType><spotOptions><maxPrice>0.05</maxPrice><spotInstanceType>persistent</spotInstanceType></spotOptions></instanceMarketOptions>",
        "<creditSpecification><cpuCredits>unlimited</cpuCredits></creditSpecification>",
        "<hibernationOptions><configured>true</configured></hibernationOptions>",
        "<licenseSet><item><licenseConfigurationArn>arn:l</licenseConfigurationArn></item></licenseSet>",
        "<maintenanceOptions><autoRecovery>disabled</autoRecovery></maintenanceOptions>",
        "<privateDnsNameOptions><hostnameType>resource-name</hostnameType></privateDnsNameOptions>",
        "<networkPerformanceOptions><bandwidthWeighting>vpc-1</bandwidthWeighting></networkPerformanceOptions>",
        "<ramDiskId>ari-1</ramDiskId>",
        "<placement><tenancy>host</tenancy><affinity>host</affinity><hostId>h-1</hostId></placement>",
        "<deviceName>/dev/sdb</deviceName><noDevice></noDevice>",
        "<description>front</description><enaSrdSpecification><enaSrdEnabled>true</enaSrdEnabled></enaSrdSpecification><ipv6AddressesSet><item><ipv6Address>::1</ipv6Address></item></ipv6AddressesSet>",
        "<capacityReservationTarget><capacityReservationResourceGroupArn>arn:g</capacityReservationResourceGroupArn></capacityReservationTarget>",
    ] {
        assert!(body.contains(part), "{part} is missing: {body}");
    }
    let unknown = [("LaunchTemplateName", "bad"), ("LaunchTemplateData.Colour", "blue")];
    assert_eq!(account.refused("CreateLaunchTemplate", &unknown).await, (400, "UnknownParameter".into()));
    let long = "x".repeat(256);
    let described =
        [("LaunchTemplateName", "bad"), ("LaunchTemplateData.ImageId", "ami-1"), ("VersionDescription", &long)];
    assert_eq!(account.refused("CreateLaunchTemplate", &described).await, (400, "InvalidParameterValue".into()));
}

#[tokio::test(start_paused = true)]
async fn an_alias_of_an_image_is_resolved_where_it_is_asked_and_at_launch() {
    let account = Account::new();
    let parameter = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id";
    let alias = format!("resolve:ssm:{parameter}");
    let id = create(&account, "alias", &[("LaunchTemplateData.ImageId", &alias)]).await;
    let describe = [("LaunchTemplateId", id.as_str())];
    assert_eq!(values(&account.ok("DescribeLaunchTemplateVersions", &describe).await, "imageId"), [alias.as_str()]);
    let resolved = [("LaunchTemplateId", id.as_str()), ("ResolveAlias", "true")];
    let image = account.image("x86_64");
    assert_eq!(values(&account.ok("DescribeLaunchTemplateVersions", &resolved).await, "imageId"), [image.as_str()]);
    let run = [
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("InstanceType", "m5.large"),
        ("LaunchTemplate.LaunchTemplateId", id.as_str()),
        ("SubnetId", &account.setup.subnet_ids[0]),
    ];
    assert_eq!(values(&account.ok("RunInstances", &run).await, "imageId"), [image]);
}

#[tokio::test(start_paused = true)]
async fn an_instance_tells_the_data_it_could_be_launched_with_again() {
    let account = Account::new();
    let id = account.launch("on-demand", "m5.large").await;
    let body = account.ok("GetLaunchTemplateData", &[("InstanceId", &id)]).await;
    let data = &values(&body, "launchTemplateData")[0];
    assert_eq!(values(data, "instanceType"), ["m5.large"]);
    assert_eq!(
        (values(data, "imageId"), values(data, "userData")),
        (vec![account.image("x86_64")], vec!["aGVsbG8=".into()])
    );
    assert_eq!(values(data, "availabilityZone"), ["us-west-2a"]);
    assert!(data.contains("<key>karpenter.sh/nodepool</key>") && !data.contains("aws:ec2"), "{data}");
    assert_eq!(
        account.refused("GetLaunchTemplateData", &[("InstanceId", "i-0000000000000dead")]).await,
        (400, "InvalidInstanceID.NotFound".into())
    );
}
