//! Parameters that stand at the edge of a request: each is told again, looked up, or refused where it is wrong.

mod common;

use common::{Account, first, values};
use fake_ec2::Config;

/// A launch of one instance into the first subnet.
fn launch<'a>(account: &'a Account, image: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut params = vec![
        ("ImageId", image),
        ("InstanceType", "m5.large"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("SubnetId", account.setup.subnet_ids[0].as_str()),
    ];
    params.retain(|(name, _)| !more.iter().any(|(given, _)| given == name));
    params.extend(more);
    params
}

/// The same with the subnet in its interface.
fn through_interface<'a>(account: &'a Account, image: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut params = launch(account, image, &[]);
    params.retain(|(name, _)| *name != "SubnetId");
    params.push(("NetworkInterface.1.DeviceIndex", "0"));
    params.push(("NetworkInterface.1.SubnetId", &account.setup.subnet_ids[0]));
    params.extend(more);
    params
}

/// An address of the first subnet.
fn address(account: &Account, last: u32) -> String {
    let subnet = account.ec2.cloud().subnets().into_iter().find(|own| own.id == account.setup.subnet_ids[0]).unwrap();
    let network = subnet.cidr.to_string();
    format!("{}.{last}", network.split('/').next().unwrap().rsplit_once('.').unwrap().0)
}

#[tokio::test(start_paused = true)]
async fn an_instance_gets_the_address_it_asks_for() {
    let account = Account::new();
    let (image, wanted) = (account.image("x86_64"), address(&account, 77));
    let body = account.ok("RunInstances", &launch(&account, &image, &[("PrivateIpAddress", &wanted)])).await;
    assert_eq!(values(&body, "privateIpAddress")[0], wanted);
    let taken = account.refused("RunInstances", &launch(&account, &image, &[("PrivateIpAddress", &wanted)])).await;
    assert_eq!(taken, (400, "InvalidIPAddress.InUse".into()));
    let free = address(&account, 78);
    for (more, code) in [
        ([("PrivateIpAddress", "8.8.8.8"), ("MaxCount", "1")], "InvalidParameterValue"),
        ([("PrivateIpAddress", "ten"), ("MaxCount", "1")], "InvalidParameterValue"),
        ([("PrivateIpAddress", &free), ("MaxCount", "2")], "InvalidParameterCombination"),
    ] {
        let refused = account.refused("RunInstances", &launch(&account, &image, &more)).await;
        assert_eq!(refused, (400, code.into()), "{more:?}");
    }
    // Terminated, its address is free again.
    account.ok("TerminateInstances", &[("InstanceId.1", &first(&body, "instanceId"))]).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    account.ok("RunInstances", &launch(&account, &image, &[("PrivateIpAddress", &wanted)])).await;
}

#[tokio::test(start_paused = true)]
async fn an_interface_has_its_description_and_secondary_addresses() {
    let account = Account::new();
    let image = account.image("x86_64");
    let (one, two) = (address(&account, 100), address(&account, 101));
    let named = through_interface(
        &account,
        &image,
        &[
            ("NetworkInterface.1.Description", "primary"),
            ("NetworkInterface.1.PrivateIpAddresses.1.PrivateIpAddress", &two),
            ("NetworkInterface.1.PrivateIpAddresses.2.PrivateIpAddress", &one),
            ("NetworkInterface.1.PrivateIpAddresses.2.Primary", "true"),
        ],
    );
    account.ok("RunInstances", &named).await;
    let filter = [("Filter.1.Name", "description"), ("Filter.1.Value.1", "primary")];
    let described = account.ok("DescribeNetworkInterfaces", &filter).await;
    assert_eq!(first(&described, "description"), "primary");
    let list = first(&described, "privateIpAddressesSet");
    assert_eq!(values(&list, "privateIpAddress"), [one.clone(), two.clone()]);
    assert_eq!(values(&list, "primary"), ["true", "false"]);
    let secondary = [("Filter.1.Name", "addresses.private-ip-address"), ("Filter.1.Value.1", two.as_str())];
    assert_eq!(values(&account.ok("DescribeNetworkInterfaces", &secondary).await, "networkInterfaceId").len(), 1);

    let free = |account: &Account| {
        let subnets = account.ec2.cloud().subnets();
        subnets.iter().find(|own| own.id == account.setup.subnet_ids[0]).unwrap().available_addresses()
    };
    let before = free(&account);
    let counted = [("NetworkInterface.1.SecondaryPrivateIpAddressCount", "3")];
    let body = account.ok("RunInstances", &through_interface(&account, &image, &counted)).await;
    assert_eq!(values(&first(&body, "privateIpAddressesSet"), "primary"), ["true", "false", "false", "false"]);
    assert_eq!(free(&account), before - 4);
    account.ok("TerminateInstances", &[("InstanceId.1", &first(&body, "instanceId"))]).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(free(&account), before, "every address came back");
    // An interface of an m5.large has ten addresses.
    let many = [("NetworkInterface.1.SecondaryPrivateIpAddressCount", "10")];
    let refused = account.refused("RunInstances", &through_interface(&account, &image, &many)).await;
    assert_eq!(refused, (400, "PrivateIpAddressLimitExceeded".into()));
    assert_eq!(free(&account), before);
}

#[tokio::test(start_paused = true)]
async fn launch_options_are_looked_at_when_an_instance_is_launched() {
    let account = Account::new();
    let image = account.image("x86_64");
    for (more, code) in [
        // An m5.large has one core of two threads.
        ([("CpuOptions.CoreCount", "2"), ("CpuOptions.ThreadsPerCore", "2")], "InvalidParameterValue"),
        ([("CpuOptions.CoreCount", "1"), ("CpuOptions.ThreadsPerCore", "4")], "InvalidParameterValue"),
        ([("CpuOptions.CoreCount", "1"), ("ImageId", &image)], "InvalidParameterCombination"),
        ([("MaintenanceOptions.AutoRecovery", "never"), ("ImageId", &image)], "InvalidParameterValue"),
        ([("PrivateDnsNameOptions.HostnameType", "name"), ("ImageId", &image)], "InvalidParameterValue"),
        ([("NetworkPerformanceOptions.BandwidthWeighting", "all"), ("ImageId", &image)], "InvalidParameterValue"),
        ([("Placement.HostId", "h-0123456789abcdef0"), ("ImageId", &image)], "InvalidHostID.NotFound"),
        ([("Placement.Affinity", "near"), ("ImageId", &image)], "InvalidParameterValue"),
        ([("Placement.AvailabilityZoneId", "usw2-az9"), ("ImageId", &image)], "InvalidParameterValue"),
        ([("Operator.Principal", "eks.amazonaws.com"), ("ImageId", &image)], "UnsupportedOperation"),
        (
            [("BlockDeviceMapping.1.DeviceName", "/dev/sdb"), ("BlockDeviceMapping.1.VirtualName", "disk0")],
            "InvalidParameterValue",
        ),
    ] {
        let refused = account.refused("RunInstances", &launch(&account, &image, &more)).await;
        assert_eq!(refused, (400, code.into()), "{more:?}");
    }
    for (name, value, code) in [
        ("KeyName", "nobody", "InvalidKeyPair.NotFound"),
        ("MetadataOptions.HttpTokens", "maybe", "InvalidParameterValue"),
        ("MetadataOptions.HttpEndpoint", "on", "InvalidParameterValue"),
        ("MetadataOptions.HttpPutResponseHopLimit", "65", "InvalidParameterValue"),
        ("Placement.Tenancy", "odd", "InvalidParameterValue"),
        ("CreditSpecification.CpuCredits", "lots", "InvalidParameterValue"),
        ("CapacityReservationSpecification.CapacityReservationPreference", "never", "InvalidParameterValue"),
        ("TagSpecification.1.ResourceType", "bucket", "InvalidParameterValue"),
        ("NetworkInterface.1.DeviceIndex", "0", "InvalidParameterCombination"),
    ] {
        let refused = account.refused("RunInstances", &launch(&account, &image, &[(name, value)])).await;
        assert_eq!(refused, (400, code.into()), "{name} {value}");
    }
    for (name, value, code) in [
        ("VolumeSize", "0", "InvalidParameterValue"),
        ("VolumeType", "gp9", "UnknownVolumeType"),
        ("VolumeType", "io1", "MissingParameter"),
    ] {
        let name = format!("BlockDeviceMapping.1.Ebs.{name}");
        let device = [("BlockDeviceMapping.1.DeviceName", "/dev/sdb"), (name.as_str(), value)];
        let refused = account.refused("RunInstances", &launch(&account, &image, &device)).await;
        assert_eq!(refused, (400, code.into()), "{name} {value}");
    }
    let hibernates = [("HibernationOptions.Configured", "true"), ("InstanceType", "m5.metal")];
    let refused = account.refused("RunInstances", &launch(&account, &image, &hibernates)).await;
    assert_eq!(refused, (400, "UnsupportedHibernationConfiguration".into()));
    let missing = [("NetworkInterface.1.NetworkInterfaceId", "eni-0123456789abcdef0")];
    let refused = account.refused("RunInstances", &through_interface(&account, &image, &missing)).await;
    assert_eq!(refused, (400, "InvalidNetworkInterfaceID.NotFound".into()));
    assert!(account.ec2.cloud().instances().is_empty());

    let right = [
        ("CpuOptions.CoreCount", "1"),
        ("CpuOptions.ThreadsPerCore", "1"),
        ("PrivateDnsNameOptions.HostnameType", "resource-name"),
        (
            "LicenseSpecification.1.LicenseConfigurationArn",
            "arn:aws:license-manager:us-west-2:1:license-configuration:a",
        ),
        ("BlockDeviceMapping.1.DeviceName", "/dev/sdb"),
        ("BlockDeviceMapping.1.VirtualName", "ephemeral0"),
    ];
    let body = account.ok("RunInstances", &launch(&account, &image, &right)).await;
    let id = first(&body, "instanceId");
    assert_eq!(first(&body, "threadsPerCore"), "1");
    assert_eq!(first(&body, "privateDnsName"), format!("{id}.us-west-2.compute.internal"));
    assert!(first(&body, "licenseSet").contains("license-configuration:a"));
    assert_eq!(values(&body, "volumeId").len(), 1, "an instance store volume is none of EBS");
}

#[tokio::test(start_paused = true)]
async fn ec2_refuses_what_contradicts_itself_at_the_edge_of_a_request() {
    let account = Account::new();
    let image = account.image("x86_64");
    let group = account.setup.security_group_id.as_str();
    let rule = [
        ("GroupId", group),
        ("IpPermissions.1.IpProtocol", "tcp"),
        ("IpPermissions.1.FromPort", "80"),
        ("IpPermissions.1.ToPort", "80"),
        ("IpPermissions.1.Groups.1.GroupId", group),
    ];
    let peer = |name: &'static str, value: &'static str| [&rule[..], &[(name, value)]].concat();
    account
        .refuses(&[
            (
                "CreateLaunchTemplate",
                &[("LaunchTemplateName", "t-1"), ("LaunchTemplateData.ImageId", &image), ("Operator.Principal", "x")],
                "UnsupportedOperation",
            ),
            ("CreatePlacementGroup", &[("GroupName", "g"), ("LinkedGroupId", "pg-1")], "UnsupportedOperation"),
            (
                "CopyImage",
                &[("Name", "copy"), ("SourceRegion", "us-west-2"), ("SourceImageId", &image), ("KmsKeyId", "k")],
                "InvalidParameterCombination",
            ),
            (
                "CopyImage",
                &[
                    ("Name", "copy"),
                    ("SourceRegion", "us-west-2"),
                    ("SourceImageId", &image),
                    ("SnapshotCopyCompletionDurationMinutes", "20"),
                ],
                "InvalidParameterValue",
            ),
            ("DescribeInstances", &[("IncludeManagedResources", "maybe")], "InvalidParameterValue"),
            ("StopInstances", &[("InstanceId.1", "i-0123456789abcdef0"), ("Force", "hard")], "InvalidParameterValue"),
            (
                "AuthorizeSecurityGroupIngress",
                &peer("IpPermissions.1.Groups.1.VpcPeeringConnectionId", "pcx-0123456789abcdef0"),
                "InvalidVpcPeeringConnectionID.NotFound",
            ),
            (
                "AuthorizeSecurityGroupIngress",
                &peer("IpPermissions.1.Groups.1.VpcId", "vpc-0123456789abcdef0"),
                "InvalidVpcID.NotFound",
            ),
            (
                "AuthorizeSecurityGroupIngress",
                &peer("IpPermissions.1.Groups.1.PeeringStatus", "lost"),
                "InvalidParameterValue",
            ),
        ])
        .await;
    let encrypted = [
        ("Name", "copy"),
        ("SourceRegion", "us-west-2"),
        ("SourceImageId", image.as_str()),
        ("Encrypted", "true"),
        ("KmsKeyId", "alias/own"),
        ("SnapshotCopyCompletionDurationMinutes", "30"),
    ];
    let copy = first(&account.ok("CopyImage", &encrypted).await, "imageId");
    let snapshots = account.ok("DescribeSnapshots", &[("Owner.1", "self")]).await;
    assert_eq!(values(&snapshots, "kmsKeyId"), ["alias/own"], "{copy}");
}

#[tokio::test(start_paused = true)]
async fn the_spot_rebalance_of_a_fleet_is_checked() {
    let account = Account::new();
    account.template("nodes").await;
    let strategy = "SpotOptions.MaintenanceStrategies.CapacityRebalance.ReplacementStrategy";
    let delay = "SpotOptions.MaintenanceStrategies.CapacityRebalance.TerminationDelay";
    for (more, code) in [
        (vec![(strategy, "launch"), (delay, "200")], "InvalidParameterCombination"),
        (vec![(strategy, "launch-before-terminate")], "MissingParameter"),
        (vec![(strategy, "launch-before-terminate"), (delay, "60")], "InvalidParameterValue"),
        (vec![("ReservedCapacityOptions.ReservationTypes.1", "x")], "UnsupportedOperation"),
    ] {
        let (status, body) = account.fleet("spot", 1, &[("m5.large", 0)], &more).await;
        assert_eq!((status, first(&body, "Code")), (400, code.to_owned()), "{more:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_template_version_tells_the_image_behind_its_alias() {
    let account = Account::new();
    account.template("nodes").await;
    let alias =
        "resolve:ssm:/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id";
    let version = [("LaunchTemplateName", "nodes"), ("LaunchTemplateData.ImageId", alias)];
    let as_given = account.ok("CreateLaunchTemplateVersion", &version).await;
    assert_eq!(first(&as_given, "imageId"), alias);
    let resolved =
        account.ok("CreateLaunchTemplateVersion", &[&version[..], &[("ResolveAlias", "true")]].concat()).await;
    assert_eq!(first(&resolved, "imageId"), account.image("x86_64"));
}

#[tokio::test(start_paused = true)]
async fn a_volume_attribute_names_the_volume_that_is_there() {
    let account = Account::new();
    let image = account.image("x86_64");
    let body = account.ok("RunInstances", &launch(&account, &image, &[])).await;
    let (id, volume) = (first(&body, "instanceId"), first(&body, "volumeId"));
    let device = first(&body, "deviceName");
    let change = |volume| {
        vec![
            ("InstanceId", id.as_str()),
            ("BlockDeviceMapping.1.DeviceName", device.as_str()),
            ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "false"),
            ("BlockDeviceMapping.1.Ebs.VolumeId", volume),
        ]
    };
    let refused = account.refused("ModifyInstanceAttribute", &change("vol-0123456789abcdef0")).await;
    assert_eq!(refused, (400, "InvalidInstanceAttributeValue".into()));
    account.ok("ModifyInstanceAttribute", &change(&volume)).await;
    let described = account.ok("DescribeInstances", &[("InstanceId.1", &id)]).await;
    assert_eq!(values(&first(&described, "blockDeviceMapping"), "deleteOnTermination"), ["false"]);
}

const TRUST: &str = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}"#;
const READ_ONLY: &str = "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly";

#[tokio::test(start_paused = true)]
async fn a_role_has_its_permissions_boundary() {
    let account = Account::new();
    let role = [("RoleName", "bounded"), ("AssumeRolePolicyDocument", TRUST)];
    let missing = [&role[..], &[("PermissionsBoundary", "arn:aws:iam::123456789012:policy/none")]].concat();
    let (status, body) = account.iam("CreateRole", &missing).await;
    assert_eq!((status, first(&body, "Code")), (404, "NoSuchEntity".into()));
    let (status, body) = account.iam("CreateRole", &[&role[..], &[("PermissionsBoundary", READ_ONLY)]].concat()).await;
    assert_eq!(status, 200, "{body}");
    let (_, body) = account.iam("GetRole", &[("RoleName", "bounded")]).await;
    assert_eq!(first(&body, "PermissionsBoundaryArn"), READ_ONLY);
    let usage = [("PolicyUsageFilter", "PermissionsBoundary")];
    assert_eq!(values(&account.iam("ListPolicies", &usage).await.1, "Arn"), [READ_ONLY]);
    let (status, body) = account.iam("ListPolicies", &[("PolicyUsageFilter", "Everything")]).await;
    assert_eq!((status, first(&body, "Code")), (400, "ValidationError".into()));
    account.iam("DeleteRolePermissionsBoundary", &[("RoleName", "bounded")]).await;
    assert!(!account.iam("GetRole", &[("RoleName", "bounded")]).await.1.contains("PermissionsBoundary"));
}

#[tokio::test(start_paused = true)]
async fn a_stack_tells_its_options_and_its_protection_holds() {
    let account = Account::with(Config { families: vec!["m5".into()], ..Config::default() });
    let template = "Resources: {Q: {Type: 'AWS::SQS::Queue'}}";
    let form = async |action: &str, params: &[(&str, &str)]| account.form("2010-05-15", action, params).await;
    let role = "arn:aws:iam::123456789012:role/deployer";
    let base = [("StackName", "s"), ("TemplateBody", template)];
    for wrong in [
        ("TimeoutInMinutes", "0"),
        ("RollbackConfiguration.MonitoringTimeInMinutes", "181"),
        ("ResourceTypes.member.1", "AWS::IAM::*"),
        ("RoleARN", "deployer"),
    ] {
        let (status, body) = form("CreateStack", &[&base[..], &[wrong]].concat()).await;
        assert_eq!((status, first(&body, "Code")), (400, "ValidationError".into()), "{wrong:?}");
    }
    let more = [
        ("EnableTerminationProtection", "true"),
        ("RoleARN", role),
        ("TimeoutInMinutes", "5"),
        ("NotificationARNs.member.1", "arn:aws:sns:us-west-2:123456789012:t"),
        ("ResourceTypes.member.1", "AWS::SQS::*"),
        ("ClientRequestToken", "one"),
        ("DisableRollback", "true"),
    ];
    let (status, body) = form("CreateStack", &[&base[..], &more].concat()).await;
    assert_eq!(status, 200, "{body}");
    let (_, body) = form("DescribeStacks", &[("StackName", "s")]).await;
    for (name, value) in [
        ("EnableTerminationProtection", "true"),
        ("RoleARN", role),
        ("TimeoutInMinutes", "5"),
        ("DisableRollback", "true"),
    ] {
        assert_eq!(first(&body, name), value, "{name}");
    }
    assert!(first(&body, "NotificationARNs").contains("arn:aws:sns:us-west-2:123456789012:t"));
    let (_, events) = form("DescribeStackEvents", &[("StackName", "s")]).await;
    assert!(values(&events, "ClientRequestToken").iter().all(|token| token == "one"));
    let (status, _) = form("DescribeStackEvents", &[("StackName", "s"), ("NextToken", "made-up")]).await;
    assert_eq!(status, 400);

    let (status, body) = form("DeleteStack", &[("StackName", "s")]).await;
    assert_eq!(status, 400);
    assert!(first(&body, "Message").contains("TerminationProtection is enabled"), "{body}");
    form("UpdateTerminationProtection", &[("StackName", "s"), ("EnableTerminationProtection", "false")]).await;
    let (status, _) = form("DeleteStack", &[("StackName", "s"), ("RetainResources.member.1", "Q")]).await;
    assert_eq!(status, 400, "only what failed to be deleted may be retained");
    let (status, _) = form("DeleteStack", &[("StackName", "s")]).await;
    assert_eq!(status, 200);
}

/// EC2 User Guide, Configure the Instance Metadata Service options: what is not asked for is as the image wants it. m5.large has
/// one core of two threads.
#[tokio::test(start_paused = true)]
async fn what_a_launch_leaves_open_is_told_as_ec2_decides_it() {
    let account = Account::new();
    let image = account.image("x86_64");
    let told = |body: &str| {
        ["httpTokens", "httpPutResponseHopLimit", "httpEndpoint", "coreCount"].map(|name| first(body, name))
    };
    let plain = account.ok("RunInstances", &launch(&account, &image, &[])).await;
    assert_eq!(told(&plain), ["optional", "1", "enabled", "1"]);
    assert_eq!(first(&plain, "threadsPerCore"), "2");
    let source = first(&plain, "instanceId");
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let own = first(&account.ok("CreateImage", &[("InstanceId", &source), ("Name", "own")]).await, "imageId");
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    account.ok("ModifyImageAttribute", &[("ImageId", &own), ("ImdsSupport.Value", "v2.0")]).await;
    let version_2 = account.ok("RunInstances", &launch(&account, &own, &[])).await;
    assert_eq!(told(&version_2), ["required", "2", "enabled", "1"]);
    let asked = [("MetadataOptions.HttpTokens", "optional"), ("MetadataOptions.HttpPutResponseHopLimit", "3")];
    let asked = account.ok("RunInstances", &launch(&account, &own, &asked)).await;
    assert_eq!(told(&asked), ["optional", "3", "enabled", "1"]);
    let filter = [("Filter.1.Name", "metadata-options.http-tokens"), ("Filter.1.Value.1", "required")];
    let found = account.ok("DescribeInstances", &filter).await;
    assert_eq!(values(&found, "instanceId"), [first(&version_2, "instanceId")]);
}
