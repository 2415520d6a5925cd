//! Networks as people set them up: VPCs, subnets, security groups and their rules, gateways, routes, interfaces. Expected
//! codes are those of the EC2 API Reference.

mod common;

use common::{Account, Refused, filter, first, values};

/// An account with a cluster's network and a default VPC, and helpers that answer one element of what was made.
struct Stage(Account);

impl Stage {
    async fn new() -> Self {
        let stage = Self(Account::new());
        stage.ok("CreateDefaultVpc", &[]).await;
        stage
    }

    async fn ok(&self, action: &str, params: &[(&str, &str)]) -> String {
        self.0.ok(action, params).await
    }

    async fn refuses(&self, cases: &[Refused<'_>]) {
        self.0.refuses(cases).await;
    }

    /// What a Describe action tells of the resources that a filter finds.
    async fn described(&self, action: &str, name: &str, value: &str) -> String {
        self.ok(action, &filter(name, value)).await
    }

    async fn made(&self, action: &str, element: &str, params: &[(&str, &str)]) -> String {
        first(&self.ok(action, params).await, element)
    }

    async fn vpc(&self, cidr: &str) -> String {
        self.made("CreateVpc", "vpcId", &[("CidrBlock", cidr)]).await
    }

    async fn subnet(&self, vpc: &str, cidr: &str) -> String {
        self.made("CreateSubnet", "subnetId", &[("VpcId", vpc), ("CidrBlock", cidr)]).await
    }

    async fn group(&self, vpc: &str, name: &str) -> String {
        let params = [("VpcId", vpc), ("GroupName", name), ("GroupDescription", "for tests")];
        self.made("CreateSecurityGroup", "groupId", &params).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_vpc_comes_with_its_defaults_and_goes_with_them() {
    let stage = Stage::new().await;
    let params = [
        ("CidrBlock", "10.0.0.18/16"),
        ("TagSpecification.1.ResourceType", "vpc"),
        ("TagSpecification.1.Tag.1.Key", "Name"),
        ("TagSpecification.1.Tag.1.Value", "mine"),
    ];
    let created = stage.ok("CreateVpc", &params).await;
    assert_eq!(first(&created, "cidrBlock"), "10.0.0.0/16", "what lies beyond the prefix is dropped");
    assert_eq!((first(&created, "isDefault"), first(&created, "value")), ("false".into(), "mine".into()));
    let vpc = first(&created, "vpcId");
    let groups = stage.described("DescribeSecurityGroups", "vpc-id", &vpc).await;
    assert_eq!(values(&groups, "groupName"), ["default"]);
    assert_eq!(values(&groups, "cidrIp"), ["0.0.0.0/0"], "everything may go out");
    let tables = stage.described("DescribeRouteTables", "vpc-id", &vpc).await;
    assert_eq!(values(&tables, "main"), ["true"]);
    assert_eq!(values(&tables, "destinationCidrBlock"), ["10.0.0.0/16"]);
    assert_eq!((first(&tables, "gatewayId"), first(&tables, "origin")), ("local".into(), "CreateRouteTable".into()));
    let acls = stage.described("DescribeNetworkAcls", "vpc-id", &vpc).await;
    assert_eq!((first(&acls, "default"), values(&acls, "ruleNumber").len()), ("true".into(), 4));
    let options = stage.ok("DescribeDhcpOptions", &[]).await;
    assert_eq!(first(&options, "dhcpOptionsId"), first(&created, "dhcpOptionsId"));
    stage.ok("DeleteVpc", &[("VpcId", &vpc)]).await;
    for action in ["DescribeSecurityGroups", "DescribeRouteTables", "DescribeNetworkAcls"] {
        assert!(values(&stage.ok(action, &filter("vpc-id", &vpc)).await, "vpcId").is_empty(), "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_vpc_is_kept_by_what_is_in_it() {
    let stage = Stage::new().await;
    let vpc = stage.vpc("10.0.0.0/16").await;
    let kept = [("VpcId", vpc.as_str())];
    let subnet = stage.subnet(&vpc, "10.0.0.0/24").await;
    stage.refuses(&[("DeleteVpc", &kept, "DependencyViolation")]).await;
    stage.ok("DeleteSubnet", &[("SubnetId", &subnet)]).await;
    let group = stage.group(&vpc, "web").await;
    stage.refuses(&[("DeleteVpc", &kept, "DependencyViolation")]).await;
    stage.ok("DeleteSecurityGroup", &[("GroupId", &group)]).await;
    let gateway = stage.made("CreateInternetGateway", "internetGatewayId", &[]).await;
    stage.ok("AttachInternetGateway", &[("InternetGatewayId", &gateway), ("VpcId", &vpc)]).await;
    stage.refuses(&[("DeleteVpc", &kept, "DependencyViolation")]).await;
    stage.ok("DetachInternetGateway", &[("InternetGatewayId", &gateway), ("VpcId", &vpc)]).await;
    let table = stage.made("CreateRouteTable", "routeTableId", &[("VpcId", &vpc)]).await;
    stage.refuses(&[("DeleteVpc", &kept, "DependencyViolation")]).await;
    stage.ok("DeleteRouteTable", &[("RouteTableId", &table)]).await;
    stage.ok("DeleteVpc", &kept).await;
    stage.refuses(&[("DeleteVpc", &kept, "InvalidVpcID.NotFound")]).await;
}

#[tokio::test(start_paused = true)]
async fn what_no_vpc_can_be_is_refused() {
    let stage = Stage::new().await;
    stage
        .refuses(&[
            ("CreateVpc", &[], "MissingParameter"),
            ("CreateVpc", &[("CidrBlock", "10.0.0.0/15")], "InvalidVpc.Range"),
            ("CreateVpc", &[("CidrBlock", "10.0.0.0/29")], "InvalidVpc.Range"),
            ("CreateVpc", &[("CidrBlock", "ten/16")], "InvalidParameterValue"),
            ("CreateVpc", &[("CidrBlock", "10.0.0.0/16"), ("InstanceTenancy", "shared")], "InvalidParameterValue"),
            ("CreateVpc", &[("CidrBlock", "10.0.0.0/16"), ("Ipv4IpamPoolId", "p")], "UnsupportedOperation"),
            (
                "CreateVpc",
                &[("CidrBlock", "10.0.0.0/16"), ("TagSpecification.1.ResourceType", "subnet")],
                "InvalidParameterValue",
            ),
            ("DeleteVpc", &[], "MissingParameter"),
            ("DeleteVpc", &[("VpcId", "vpc-0123456789abcdef0")], "InvalidVpcID.NotFound"),
            ("DeleteVpc", &[("VpcId", "mine")], "InvalidVpcID.Malformed"),
            ("DescribeVpcs", &[("VpcId.1", "mine")], "InvalidVpcID.Malformed"),
            ("DescribeVpcs", &[("MaxResults", "4")], "InvalidParameterValue"),
            ("DescribeVpcs", &[("MaxResults", "1001")], "InvalidParameterValue"),
            ("DescribeVpcs", &filter("colour", "blue"), "InvalidParameterValue"),
            ("CreateDefaultVpc", &[], "DefaultVpcAlreadyExists"),
        ])
        .await;
    let dry = [("CidrBlock", "10.0.0.0/16"), ("DryRun", "true")];
    assert_eq!(stage.0.refused("CreateVpc", &dry).await, (412, "DryRunOperation".to_owned()));
    // Two there are: the cluster's and the default one.
    for network in 0..3 {
        stage.vpc(&format!("10.{network}.0.0/16")).await;
    }
    stage.refuses(&[("CreateVpc", &[("CidrBlock", "10.9.0.0/16")], "VpcLimitExceeded")]).await;
}

#[tokio::test(start_paused = true)]
async fn attributes_of_a_vpc_are_changed_one_at_a_time() {
    let stage = Stage::new().await;
    let vpc = stage.vpc("10.0.0.0/16").await;
    let asked = [("VpcId", vpc.as_str()), ("Attribute", "enableDnsHostnames")];
    assert_eq!(first(&stage.ok("DescribeVpcAttribute", &asked).await, "value"), "false");
    stage.ok("ModifyVpcAttribute", &[("VpcId", &vpc), ("EnableDnsHostnames.Value", "true")]).await;
    assert_eq!(first(&stage.ok("DescribeVpcAttribute", &asked).await, "value"), "true");
    let both = [("VpcId", &*vpc), ("EnableDnsHostnames.Value", "true"), ("EnableDnsSupport.Value", "true")];
    stage
        .refuses(&[
            ("ModifyVpcAttribute", &both, "InvalidParameterCombination"),
            ("DescribeVpcAttribute", &[("VpcId", &vpc), ("Attribute", "colour")], "InvalidParameterValue"),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn further_ranges_make_room_for_subnets() {
    let stage = Stage::new().await;
    let vpc = stage.vpc("10.0.0.0/24").await;
    let params = [("VpcId", vpc.as_str()), ("CidrBlock", "10.1.0.0/24")];
    stage.refuses(&[("CreateSubnet", &params, "InvalidSubnet.Range")]).await;
    let association = stage.made("AssociateVpcCidrBlock", "associationId", &params).await;
    let subnet = stage.subnet(&vpc, "10.1.0.0/25").await;
    let described = stage.ok("DescribeVpcs", &filter("cidr-block-association.cidr-block", "10.1.0.0/24")).await;
    assert_eq!(values(&described, "associationId").len(), 2);
    let primary = values(&described, "associationId").into_iter().find(|id| *id != association).unwrap();
    stage
        .refuses(&[
            ("AssociateVpcCidrBlock", &params, "CidrConflict"),
            ("DisassociateVpcCidrBlock", &[("AssociationId", &association)], "DependencyViolation"),
            ("DisassociateVpcCidrBlock", &[("AssociationId", &primary)], "OperationNotPermitted"),
            (
                "DisassociateVpcCidrBlock",
                &[("AssociationId", "vpc-cidr-assoc-0")],
                "InvalidVpcCidrBlockAssociationID.NotFound",
            ),
        ])
        .await;
    stage.ok("DeleteSubnet", &[("SubnetId", &subnet)]).await;
    stage.ok("DisassociateVpcCidrBlock", &[("AssociationId", &association)]).await;
    let described = stage.ok("DescribeVpcs", &[("VpcId.1", &vpc)]).await;
    assert_eq!(values(&described, "associationId"), [primary]);
}

#[tokio::test(start_paused = true)]
async fn the_default_vpc_has_a_public_subnet_in_each_zone() {
    let stage = Stage::new().await;
    let described = stage.described("DescribeVpcs", "is-default", "true").await;
    assert_eq!(first(&described, "cidrBlock"), "172.31.0.0/16");
    let vpc = first(&described, "vpcId");
    let subnets = stage.described("DescribeSubnets", "vpc-id", &vpc).await;
    let mut zones = values(&subnets, "availabilityZone");
    zones.sort();
    assert_eq!(zones, ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"]);
    assert_eq!(values(&subnets, "defaultForAz"), ["true"; 4]);
    assert_eq!(values(&subnets, "mapPublicIpOnLaunch"), ["true"; 4]);
    // A /20 has 4,096 addresses, five of them reserved.
    assert_eq!(values(&subnets, "availableIpAddressCount"), ["4091"; 4]);
    let tables = stage.described("DescribeRouteTables", "vpc-id", &vpc).await;
    assert_eq!(values(&tables, "destinationCidrBlock"), ["172.31.0.0/16", "0.0.0.0/0"]);
    assert_eq!(values(&tables, "state").iter().filter(|state| *state == "active").count(), 2);
    let attributes = stage.ok("DescribeAccountAttributes", &[("AttributeName.1", "default-vpc")]).await;
    assert_eq!(first(&attributes, "attributeValue"), vpc);
    let zone = [("AvailabilityZone", "us-west-2a")];
    stage.refuses(&[("CreateDefaultSubnet", &zone, "DefaultSubnetAlreadyExistsInAvailabilityZone")]).await;
    let in_zone = [
        filter("vpc-id", &vpc).to_vec(),
        vec![("Filter.2.Name", "availability-zone"), ("Filter.2.Value.1", "us-west-2a")],
    ];
    let subnet = first(&stage.ok("DescribeSubnets", &in_zone.concat()).await, "subnetId");
    stage.ok("DeleteSubnet", &[("SubnetId", &subnet)]).await;
    let again = stage.ok("CreateDefaultSubnet", &zone).await;
    assert_eq!(
        (first(&again, "defaultForAz"), first(&again, "availabilityZone")),
        ("true".into(), "us-west-2a".into())
    );
    assert_eq!(first(&again, "cidrBlock"), "172.31.0.0/20", "the range that became free");
}

#[tokio::test(start_paused = true)]
async fn a_launch_that_names_no_subnet_goes_to_the_default_vpc() {
    let stage = Stage::new().await;
    let image = stage.0.image("x86_64");
    let launch = [("ImageId", image.as_str()), ("InstanceType", "m5.large"), ("MinCount", "1"), ("MaxCount", "1")];
    let vpc = first(&stage.described("DescribeVpcs", "is-default", "true").await, "vpcId");
    let launched = stage.ok("RunInstances", &launch).await;
    assert_eq!((first(&launched, "availabilityZone"), first(&launched, "vpcId")), ("us-west-2a".into(), vpc));
    let in_c = [&launch[..], &[("Placement.AvailabilityZone", "us-west-2c")]].concat();
    assert_eq!(first(&stage.ok("RunInstances", &in_c).await, "availabilityZone"), "us-west-2c");
    // An interface of an instance is told as DescribeNetworkInterfaces tells it.
    let id = first(&launched, "networkInterfaceId");
    let interface = stage.ok("DescribeNetworkInterfaces", &[("NetworkInterfaceId.1", &id)]).await;
    let interfaces = launched.split_once("<networkInterfaceSet>").expect("there is one").1;
    for member in ["ownerId", "macAddress", "privateDnsName"] {
        assert_eq!(first(interfaces, member), first(&interface, member), "{member}");
    }
    let subnet = first(&stage.described("DescribeSubnets", "availability-zone", "us-west-2d").await, "subnetId");
    stage.ok("DeleteSubnet", &[("SubnetId", &subnet)]).await;
    let in_d = [&launch[..], &[("Placement.AvailabilityZone", "us-west-2d")]].concat();
    stage.refuses(&[("RunInstances", &in_d, "MissingInput")]).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_default_vpc_its_subnets_are_refused() {
    let stage = Stage(Account::new());
    let group = [("GroupName", "web"), ("GroupDescription", "for tests")];
    stage
        .refuses(&[
            ("CreateDefaultSubnet", &[("AvailabilityZone", "us-west-2a")], "DefaultVpcDoesNotExist"),
            ("CreateSecurityGroup", &group, "VPCIdNotSpecified"),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn subnets_lie_within_their_vpc_and_apart() {
    let stage = Stage::new().await;
    let vpc = stage.vpc("10.0.0.0/16").await;
    let zone = [("VpcId", &*vpc), ("CidrBlock", "10.0.1.0/24"), ("AvailabilityZoneId", "usw2-az2")];
    let created = stage.ok("CreateSubnet", &zone).await;
    assert_eq!(first(&created, "availabilityZoneId"), "usw2-az2");
    assert_eq!(first(&created, "availableIpAddressCount"), "251");
    let with = |cidr: &'static str| [("VpcId", vpc.as_str()), ("CidrBlock", cidr)];
    let both = [zone.to_vec(), vec![("AvailabilityZone", "us-west-2a")]].concat();
    stage
        .refuses(&[
            ("CreateSubnet", &with("10.0.1.128/25"), "InvalidSubnet.Conflict"),
            ("CreateSubnet", &with("10.0.0.0/16"), "InvalidSubnet.Conflict"),
            ("CreateSubnet", &with("10.1.0.0/24"), "InvalidSubnet.Range"),
            ("CreateSubnet", &with("10.0.2.0/29"), "InvalidSubnet.Range"),
            ("CreateSubnet", &with("10.0.2.0"), "InvalidParameterValue"),
            ("CreateSubnet", &[("VpcId", &vpc)], "MissingParameter"),
            ("CreateSubnet", &[("CidrBlock", "10.0.2.0/24")], "MissingParameter"),
            ("CreateSubnet", &both, "InvalidParameterCombination"),
            (
                "CreateSubnet",
                &[("VpcId", &vpc), ("CidrBlock", "10.0.2.0/24"), ("AvailabilityZone", "mars-1a")],
                "InvalidParameterValue",
            ),
            ("DeleteSubnet", &[("SubnetId", "subnet-x")], "InvalidSubnetID.Malformed"),
        ])
        .await;
    let subnet = first(&created, "subnetId");
    let public = [("SubnetId", subnet.as_str()), ("MapPublicIpOnLaunch.Value", "true")];
    stage.ok("ModifySubnetAttribute", &public).await;
    let found = stage.ok("DescribeSubnets", &filter("subnet-arn", &format!("*{subnet}"))).await;
    assert_eq!(first(&found, "mapPublicIpOnLaunch"), "true");
    stage
        .refuses(&[
            (
                "ModifySubnetAttribute",
                &[("SubnetId", &subnet), ("AssignIpv6AddressOnCreation.Value", "true")],
                "InvalidParameterValue",
            ),
            ("ModifySubnetAttribute", &[("SubnetId", &subnet)], "MissingParameter"),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn security_groups_have_names_of_their_own() {
    let stage = Stage::new().await;
    let vpc = stage.vpc("10.0.0.0/16").await;
    let group = stage.group(&vpc, "web").await;
    let named = |name: &'static str| [("VpcId", vpc.as_str()), ("GroupName", name), ("GroupDescription", "for tests")];
    let default = stage.described("DescribeSecurityGroups", "vpc-id", &vpc).await;
    let default = values(&default, "groupId").into_iter().find(|id| *id != group).unwrap();
    stage
        .refuses(&[
            ("CreateSecurityGroup", &named("web"), "InvalidGroup.Duplicate"),
            ("CreateSecurityGroup", &named("WEB"), "InvalidGroup.Duplicate"),
            ("CreateSecurityGroup", &named("default"), "InvalidGroup.Reserved"),
            ("CreateSecurityGroup", &named("sg-web"), "InvalidParameterValue"),
            ("CreateSecurityGroup", &named("w\u{fc}b"), "InvalidParameterValue"),
            ("CreateSecurityGroup", &[("VpcId", &vpc), ("GroupName", "a")], "MissingParameter"),
            ("DeleteSecurityGroup", &[("GroupId", &default)], "CannotDelete"),
            ("DeleteSecurityGroup", &[], "MissingParameter"),
            ("DescribeSecurityGroups", &[("GroupId.1", "web")], "InvalidGroupId.Malformed"),
            ("DescribeSecurityGroups", &[("GroupName.1", "none")], "InvalidGroup.NotFound"),
        ])
        .await;
    // Another VPC may have the name again.
    let other = stage.vpc("10.1.0.0/16").await;
    stage.group(&other, "web").await;
}

const HTTPS: [(&str, &str); 4] = [
    ("IpPermissions.1.IpProtocol", "tcp"),
    ("IpPermissions.1.FromPort", "443"),
    ("IpPermissions.1.ToPort", "443"),
    ("IpPermissions.1.IpRanges.1.CidrIp", "10.0.0.0/8"),
];

#[tokio::test(start_paused = true)]
async fn rules_are_authorized_described_and_revoked() {
    let stage = Stage::new().await;
    let vpc = stage.vpc("10.0.0.0/16").await;
    let (web, other) = (stage.group(&vpc, "web").await, stage.group(&vpc, "other").await);
    let lists = stage.ok("DescribePrefixLists", &filter("prefix-list-name", "*.s3")).await;
    let list = first(&lists, "prefixListId");
    let more = [
        ("GroupId", web.as_str()),
        ("IpPermissions.1.IpRanges.1.Description", "the office"),
        ("IpPermissions.1.IpRanges.2.CidrIp", "192.0.2.9/24"),
        ("IpPermissions.1.Ipv6Ranges.1.CidrIpv6", "2001:DB8::/32"),
        ("IpPermissions.1.PrefixListIds.1.PrefixListId", &list),
        ("IpPermissions.1.Groups.1.GroupId", &other),
        ("IpPermissions.2.IpProtocol", "-1"),
        ("IpPermissions.2.Groups.1.GroupName", "web"),
        ("TagSpecification.1.ResourceType", "security-group-rule"),
        ("TagSpecification.1.Tag.1.Key", "team"),
        ("TagSpecification.1.Tag.1.Value", "blue"),
    ];
    let made = stage.ok("AuthorizeSecurityGroupIngress", &[more.as_slice(), HTTPS.as_slice()].concat()).await;
    let rules = values(&made, "securityGroupRuleId");
    assert!(rules.len() == 6 && rules.iter().all(|id| id.starts_with("sgr-")), "{made}");
    assert_eq!(values(&made, "cidrIpv4"), ["10.0.0.0/8", "192.0.2.0/24"], "ranges are made canonical");
    assert_eq!((values(&made, "cidrIpv6"), values(&made, "prefixListId")), (vec!["2001:db8::/32".into()], vec![list]));
    assert_eq!(
        (values(&made, "description"), values(&made, "isEgress")),
        (vec!["the office".into()], vec!["false".into(); 6])
    );
    let described = stage.ok("DescribeSecurityGroups", &filter("ip-permission.cidr", "192.0.2.0/24")).await;
    assert_eq!((values(&described, "ipProtocol").len(), first(&described, "userId")), (3, "123456789012".into()));
    for (name, value) in [
        ("ip-permission.from-port", "443"),
        ("ip-permission.protocol", "tcp"),
        ("ip-permission.group-id", &*other),
        ("ip-permission.group-name", "other"),
        ("ip-permission.ipv6-cidr", "2001:db8::/32"),
        ("description", "for *"),
    ] {
        let found = stage.ok("DescribeSecurityGroups", &filter(name, value)).await;
        assert!(values(&found, "groupId").contains(&web), "{name}: {found}");
    }
    let tagged = stage.described("DescribeSecurityGroupRules", "tag:team", "blue").await;
    assert_eq!(values(&tagged, "securityGroupRuleId").len(), 6);
    let of_group = stage.described("DescribeSecurityGroupRules", "group-id", &web).await;
    assert_eq!(values(&of_group, "isEgress").iter().filter(|egress| *egress == "true").count(), 1, "the default rule");
    stage.refuses(&[("DeleteSecurityGroup", &[("GroupId", &other)], "DependencyViolation")]).await;
    let revoked =
        stage.ok("RevokeSecurityGroupIngress", &[[("GroupId", web.as_str())].as_slice(), &HTTPS].concat()).await;
    assert_eq!((values(&revoked, "cidrIpv4"), first(&revoked, "return")), (vec!["10.0.0.0/8".into()], "true".into()));
    let by_id = [("GroupId", web.as_str()), ("SecurityGroupRuleId.1", &*rules[4])];
    let revoked = stage.ok("RevokeSecurityGroupIngress", &by_id).await;
    assert_eq!(first(&revoked, "referencedGroupId"), other);
    stage.ok("DeleteSecurityGroup", &[("GroupId", &other)]).await;
    stage
        .refuses(&[
            ("RevokeSecurityGroupIngress", &by_id, "InvalidSecurityGroupRuleId.NotFound"),
            (
                "DescribeSecurityGroupRules",
                &[("SecurityGroupRuleId.1", "sgr-0")],
                "InvalidSecurityGroupRuleId.NotFound",
            ),
            ("DescribeSecurityGroupRules", &[("SecurityGroupRuleId.1", "x")], "InvalidSecurityGroupRuleId.Malformed"),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn rules_that_cannot_be_are_refused() {
    let stage = Stage::new().await;
    let vpc = stage.vpc("10.0.0.0/16").await;
    let group = stage.group(&vpc, "web").await;
    let own = [("GroupId", group.as_str())];
    let https = [own.as_slice(), &HTTPS].concat();
    stage.ok("AuthorizeSecurityGroupIngress", &https).await;
    // The other direction has rules of its own.
    stage.ok("AuthorizeSecurityGroupEgress", &https).await;
    let permission = |params: &[(&'static str, &'static str)]| [own.as_slice(), params].concat();
    let twice = [https.as_slice(), &[("IpPermissions.1.IpRanges.2.CidrIp", "10.1.0.0/8")]].concat();
    let flat = [https.as_slice(), &[("CidrIp", "10.0.0.0/8")]].concat();
    let unknown = permission(&[
        ("IpPermissions.1.IpProtocol", "udp"),
        ("IpPermissions.1.FromPort", "53"),
        ("IpPermissions.1.ToPort", "53"),
        ("IpPermissions.1.IpRanges.1.CidrIp", "10.0.0.0/8"),
    ]);
    for (port, of) in [("65536", "80"), ("80", "79"), ("-1", "80")] {
        let params = permission(&[("IpProtocol", "tcp"), ("FromPort", port), ("ToPort", of), ("CidrIp", "10.0.0.0/8")]);
        stage.refuses(&[("AuthorizeSecurityGroupIngress", &params, "InvalidParameterValue")]).await;
    }
    let no_port = permission(&[("IpProtocol", "tcp"), ("CidrIp", "10.0.0.0/8")]);
    let no_peer = permission(&[("IpPermissions.1.IpProtocol", "-1")]);
    let protocol = permission(&[("IpProtocol", "quic"), ("CidrIp", "10.0.0.0/8")]);
    let range = permission(&[("IpProtocol", "-1"), ("CidrIp", "10.0.0.0")]);
    let missing = permission(&[("IpPermissions.1.IpProtocol", "-1"), ("IpPermissions.1.Groups.1.GroupId", "sg-0123")]);
    let description = permission(&[
        ("IpPermissions.1.IpProtocol", "-1"),
        ("IpPermissions.1.IpRanges.1.CidrIp", "10.0.0.0/8"),
        ("IpPermissions.1.IpRanges.1.Description", "caf\u{e9}"),
    ]);
    stage
        .refuses(&[
            ("AuthorizeSecurityGroupIngress", &https, "InvalidPermission.Duplicate"),
            ("AuthorizeSecurityGroupEgress", &https, "InvalidPermission.Duplicate"),
            ("AuthorizeSecurityGroupIngress", &own, "MissingParameter"),
            ("AuthorizeSecurityGroupIngress", &HTTPS, "MissingParameter"),
            ("AuthorizeSecurityGroupIngress", &twice, "InvalidPermission.Duplicate"),
            ("AuthorizeSecurityGroupIngress", &flat, "InvalidParameterCombination"),
            ("AuthorizeSecurityGroupIngress", &no_port, "InvalidParameterValue"),
            ("AuthorizeSecurityGroupIngress", &no_peer, "MissingParameter"),
            ("AuthorizeSecurityGroupIngress", &protocol, "InvalidParameterValue"),
            ("AuthorizeSecurityGroupIngress", &range, "InvalidParameterValue"),
            ("AuthorizeSecurityGroupIngress", &missing, "InvalidGroup.NotFound"),
            ("AuthorizeSecurityGroupIngress", &description, "InvalidParameterValue"),
            ("RevokeSecurityGroupIngress", &unknown, "InvalidPermission.NotFound"),
            ("RevokeSecurityGroupIngress", &own, "MissingParameter"),
        ])
        .await;
    let many: Vec<(String, String)> = (0..60)
        .map(|index| (format!("IpPermissions.1.IpRanges.{}.CidrIp", index + 1), format!("10.{index}.0.0/16")))
        .collect();
    let mut too_many = permission(&[("IpPermissions.1.IpProtocol", "-1")]);
    too_many.extend(many.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    // With the one there is, 61.
    stage.refuses(&[("AuthorizeSecurityGroupIngress", &too_many, "RulesPerSecurityGroupLimitExceeded")]).await;
}

#[tokio::test(start_paused = true)]
async fn in_the_default_vpc_what_is_not_there_is_only_told() {
    let stage = Stage::new().await;
    let params = [("GroupName", "web"), ("GroupDescription", "for tests")];
    stage.made("CreateSecurityGroup", "groupId", &params).await;
    let named =
        [("GroupName", "web"), ("IpProtocol", "tcp"), ("FromPort", "22"), ("ToPort", "22"), ("CidrIp", "0.0.0.0/0")];
    let answer = stage.ok("RevokeSecurityGroupIngress", &named).await;
    let unknown = values(&answer, "unknownIpPermissionSet");
    assert_eq!(
        (values(&unknown[0], "fromPort"), values(&unknown[0], "cidrIp")),
        (vec!["22".into()], vec!["0.0.0.0/0".into()])
    );
    stage.ok("AuthorizeSecurityGroupIngress", &named).await;
    let answer = stage.ok("RevokeSecurityGroupIngress", &named).await;
    assert_eq!(values(&answer, "cidrIpv4"), ["0.0.0.0/0"]);
    stage.ok("DeleteSecurityGroup", &[("GroupName", "web")]).await;
}

#[tokio::test(start_paused = true)]
async fn rules_are_modified_by_id_and_described_anew() {
    let stage = Stage::new().await;
    let vpc = stage.vpc("10.0.0.0/16").await;
    let group = stage.group(&vpc, "web").await;
    let own = [("GroupId", group.as_str())];
    let https = [own.as_slice(), &HTTPS].concat();
    let rule = stage.made("AuthorizeSecurityGroupIngress", "securityGroupRuleId", &https).await;
    let change = [
        ("GroupId", group.as_str()),
        ("SecurityGroupRule.1.SecurityGroupRuleId", &rule),
        ("SecurityGroupRule.1.SecurityGroupRule.IpProtocol", "udp"),
        ("SecurityGroupRule.1.SecurityGroupRule.FromPort", "53"),
        ("SecurityGroupRule.1.SecurityGroupRule.ToPort", "54"),
        ("SecurityGroupRule.1.SecurityGroupRule.CidrIpv4", "10.2.0.0/16"),
        ("SecurityGroupRule.1.SecurityGroupRule.Description", "names"),
    ];
    stage.ok("ModifySecurityGroupRules", &change).await;
    let described = stage.ok("DescribeSecurityGroupRules", &[("SecurityGroupRuleId.1", &rule)]).await;
    for (element, value) in
        [("ipProtocol", "udp"), ("toPort", "54"), ("cidrIpv4", "10.2.0.0/16"), ("description", "names")]
    {
        assert_eq!(first(&described, element), value);
    }
    let by_id = [
        ("GroupId", group.as_str()),
        ("SecurityGroupRuleDescription.1.SecurityGroupRuleId", &rule),
        ("SecurityGroupRuleDescription.1.Description", "name servers"),
    ];
    stage.ok("UpdateSecurityGroupRuleDescriptionsIngress", &by_id).await;
    let described = stage.ok("DescribeSecurityGroupRules", &[("SecurityGroupRuleId.1", &rule)]).await;
    assert_eq!(first(&described, "description"), "name servers");
    let by_content = [
        ("GroupId", group.as_str()),
        ("IpPermissions.1.IpProtocol", "udp"),
        ("IpPermissions.1.FromPort", "53"),
        ("IpPermissions.1.ToPort", "54"),
        ("IpPermissions.1.IpRanges.1.CidrIp", "10.2.0.0/16"),
    ];
    stage.ok("UpdateSecurityGroupRuleDescriptionsIngress", &by_content).await;
    let described = stage.ok("DescribeSecurityGroupRules", &[("SecurityGroupRuleId.1", &rule)]).await;
    assert!(values(&described, "description").is_empty(), "none given removes it");
    stage
        .refuses(&[
            ("UpdateSecurityGroupRuleDescriptionsIngress", &own, "MissingParameter"),
            ("UpdateSecurityGroupRuleDescriptionsIngress", &https, "InvalidPermission.NotFound"),
            ("UpdateSecurityGroupRuleDescriptionsEgress", &by_id, "InvalidSecurityGroupRuleId.NotFound"),
            ("ModifySecurityGroupRules", &own, "MissingParameter"),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_belongs_to_one_vpc() {
    let stage = Stage::new().await;
    let (one, two) = (stage.vpc("10.0.0.0/16").await, stage.vpc("10.1.0.0/16").await);
    let gateway = stage.made("CreateInternetGateway", "internetGatewayId", &[]).await;
    let spare = stage.made("CreateInternetGateway", "internetGatewayId", &[]).await;
    let params = [("InternetGatewayId", gateway.as_str()), ("VpcId", one.as_str())];
    stage.ok("AttachInternetGateway", &params).await;
    let described = stage.described("DescribeInternetGateways", "attachment.vpc-id", &one).await;
    assert_eq!(
        (first(&described, "internetGatewayId"), first(&described, "state")),
        (gateway.clone(), "available".into())
    );
    stage
        .refuses(&[
            (
                "AttachInternetGateway",
                &[("InternetGatewayId", &gateway), ("VpcId", &two)],
                "Resource.AlreadyAssociated",
            ),
            ("AttachInternetGateway", &[("InternetGatewayId", &spare), ("VpcId", &one)], "InvalidParameterValue"),
            (
                "AttachInternetGateway",
                &[("InternetGatewayId", "igw-0"), ("VpcId", &two)],
                "InvalidInternetGatewayID.NotFound",
            ),
            (
                "AttachInternetGateway",
                &[("InternetGatewayId", "x"), ("VpcId", &two)],
                "InvalidInternetGatewayId.Malformed",
            ),
            ("DetachInternetGateway", &[("InternetGatewayId", &gateway), ("VpcId", &two)], "Gateway.NotAttached"),
            ("DeleteInternetGateway", &[("InternetGatewayId", &gateway)], "DependencyViolation"),
        ])
        .await;
    stage.ok("DetachInternetGateway", &params).await;
    stage.ok("DeleteInternetGateway", &[("InternetGatewayId", &gateway)]).await;
    stage
        .refuses(&[("DeleteInternetGateway", &[("InternetGatewayId", &gateway)], "InvalidInternetGatewayID.NotFound")])
        .await;
}

#[tokio::test(start_paused = true)]
async fn routes_lead_through_gateways_of_their_vpc() {
    let stage = Stage::new().await;
    let (vpc, other) = (stage.vpc("10.0.0.0/16").await, stage.vpc("10.1.0.0/16").await);
    let gateway = stage.made("CreateInternetGateway", "internetGatewayId", &[]).await;
    let created = stage.ok("CreateRouteTable", &[("VpcId", &vpc), ("ClientToken", "once")]).await;
    let again = stage.ok("CreateRouteTable", &[("VpcId", &vpc), ("ClientToken", "once")]).await;
    let table = first(&created, "routeTableId");
    assert_eq!(first(&again, "routeTableId"), table, "the same token makes one table");
    stage
        .refuses(&[("CreateRouteTable", &[("VpcId", &other), ("ClientToken", "once")], "IdempotentParameterMismatch")])
        .await;
    let everywhere = [("RouteTableId", &*table), ("DestinationCidrBlock", "0.0.0.0/0"), ("GatewayId", &*gateway)];
    stage.refuses(&[("CreateRoute", &everywhere, "InvalidParameterValue")]).await;
    stage.ok("AttachInternetGateway", &[("InternetGatewayId", &gateway), ("VpcId", &vpc)]).await;
    stage.ok("CreateRoute", &everywhere).await;
    let two_ends = [everywhere.as_slice(), &[("DestinationIpv6CidrBlock", "::/0")]].concat();
    let local = [("RouteTableId", &*table), ("DestinationCidrBlock", "10.0.0.0/16")];
    stage
        .refuses(&[
            ("CreateRoute", &everywhere, "RouteAlreadyExists"),
            ("CreateRoute", &everywhere[..2], "MissingParameter"),
            ("CreateRoute", &two_ends, "InvalidParameterCombination"),
            ("CreateRoute", &[local.as_slice(), &[("GatewayId", &gateway)]].concat(), "RouteAlreadyExists"),
            ("CreateRoute", &[local.as_slice(), &[("NatGatewayId", "nat-0")]].concat(), "UnsupportedOperation"),
            (
                "ReplaceRoute",
                &[("RouteTableId", &table), ("DestinationCidrBlock", "10.9.0.0/16"), ("GatewayId", &gateway)],
                "InvalidParameterValue",
            ),
            ("DeleteRoute", &local, "InvalidParameterValue"),
            (
                "DeleteRoute",
                &[("RouteTableId", &table), ("DestinationCidrBlock", "10.9.0.0/16")],
                "InvalidRoute.NotFound",
            ),
            (
                "DeleteRoute",
                &[("RouteTableId", "rtb-0"), ("DestinationCidrBlock", "10.9.0.0/16")],
                "InvalidRouteTableID.NotFound",
            ),
            ("DescribeRouteTables", &[("MaxResults", "101")], "InvalidParameterValue"),
        ])
        .await;
    let found = stage.described("DescribeRouteTables", "route.gateway-id", &gateway).await;
    assert_eq!(first(&found, "routeTableId"), table);
    stage.ok("DetachInternetGateway", &[("InternetGatewayId", &gateway), ("VpcId", &vpc)]).await;
    let found = stage.described("DescribeRouteTables", "route.state", "blackhole").await;
    assert_eq!(first(&found, "routeTableId"), table, "a route without its gateway leads nowhere");
    stage.ok("DeleteRoute", &everywhere[..2]).await;
    let found = stage.ok("DescribeRouteTables", &[("RouteTableId.1", &table)]).await;
    assert_eq!(values(&found, "destinationCidrBlock"), ["10.0.0.0/16"]);
}

#[tokio::test(start_paused = true)]
async fn a_subnet_has_one_route_table() {
    let stage = Stage::new().await;
    let (vpc, other) = (stage.vpc("10.0.0.0/16").await, stage.vpc("10.1.0.0/16").await);
    let (subnet, foreign) = (stage.subnet(&vpc, "10.0.0.0/24").await, stage.subnet(&other, "10.1.0.0/24").await);
    let table = stage.made("CreateRouteTable", "routeTableId", &[("VpcId", &vpc)]).await;
    let second = stage.made("CreateRouteTable", "routeTableId", &[("VpcId", &vpc)]).await;
    let params = [("RouteTableId", &*table), ("SubnetId", &*subnet)];
    let association = stage.made("AssociateRouteTable", "associationId", &params).await;
    let main = stage
        .ok(
            "DescribeRouteTables",
            &[
                filter("vpc-id", &vpc).as_slice(),
                &[("Filter.2.Name", "association.main"), ("Filter.2.Value.1", "true")],
            ]
            .concat(),
        )
        .await;
    let (main_table, main_association) = (first(&main, "routeTableId"), first(&main, "routeTableAssociationId"));
    stage
        .refuses(&[
            ("AssociateRouteTable", &params, "Resource.AlreadyAssociated"),
            ("AssociateRouteTable", &[("RouteTableId", &second), ("SubnetId", &subnet)], "Resource.AlreadyAssociated"),
            ("AssociateRouteTable", &[("RouteTableId", &table), ("SubnetId", &foreign)], "InvalidParameterValue"),
            ("AssociateRouteTable", &[("RouteTableId", &table)], "MissingParameter"),
            ("DeleteRouteTable", &[("RouteTableId", &table)], "DependencyViolation"),
            ("DeleteRouteTable", &[("RouteTableId", &main_table)], "DependencyViolation"),
            ("DisassociateRouteTable", &[("AssociationId", &main_association)], "InvalidParameterValue"),
            ("DisassociateRouteTable", &[("AssociationId", "rtbassoc-0")], "InvalidAssociationID.NotFound"),
        ])
        .await;
    let moved = [("AssociationId", &*association), ("RouteTableId", &*second)];
    let moved = stage.made("ReplaceRouteTableAssociation", "newAssociationId", &moved).await;
    assert_ne!(moved, association);
    let found = stage.described("DescribeRouteTables", "association.subnet-id", &subnet).await;
    assert_eq!(first(&found, "routeTableId"), second);
    stage.ok("DisassociateRouteTable", &[("AssociationId", &moved)]).await;
    stage.ok("DeleteRouteTable", &[("RouteTableId", &second)]).await;
    // Another table becomes the main one.
    stage.ok("ReplaceRouteTableAssociation", &[("AssociationId", &main_association), ("RouteTableId", &table)]).await;
    stage.ok("DeleteRouteTable", &[("RouteTableId", &main_table)]).await;
}

#[tokio::test(start_paused = true)]
async fn interfaces_of_instances_hold_subnets_and_groups() {
    let stage = Stage::new().await;
    let account = &stage.0;
    let id = account.launch("on-demand", "m5.large").await;
    let described = account.ok("DescribeNetworkInterfaces", &filter("attachment.instance-id", &id)).await;
    let interface = first(&described, "networkInterfaceId");
    let (subnet, group) = (account.setup.subnet_ids[0].as_str(), account.setup.security_group_id.as_str());
    assert_eq!((first(&described, "subnetId"), first(&described, "groupId")), (subnet.into(), group.into()));
    assert_eq!(values(&described, "status"), ["in-use", "attached"]);
    for (name, value) in [
        ("availability-zone", "us-west-2a"),
        ("group-id", group),
        ("private-ip-address", &first(&described, "privateIpAddress")),
        ("attachment.device-index", "0"),
        ("status", "in-use"),
        ("vpc-id", &account.setup.vpc_id),
        ("mac-address", &first(&described, "macAddress")),
        ("private-dns-name", "ip-192-168-*"),
    ] {
        let found = account.ok("DescribeNetworkInterfaces", &filter(name, value)).await;
        assert_eq!(values(&found, "networkInterfaceId"), [interface.as_str()], "{name}");
    }
    let tag = [("ResourceId.1", &*interface), ("Tag.1.Key", "team"), ("Tag.1.Value", "blue")];
    account.ok("CreateTags", &tag).await;
    let tags = account.ok("DescribeTags", &filter("resource-type", "network-interface")).await;
    assert_eq!((first(&tags, "resourceId"), first(&tags, "value")), (interface.clone(), "blue".into()));
    stage
        .refuses(&[
            ("DeleteSubnet", &[("SubnetId", subnet)], "DependencyViolation"),
            ("DeleteSecurityGroup", &[("GroupId", group)], "DependencyViolation"),
            ("DeleteNetworkInterface", &[("NetworkInterfaceId", &interface)], "InvalidParameterValue"),
            ("DescribeNetworkInterfaces", &[("NetworkInterfaceId.1", "x")], "InvalidNetworkInterfaceId.Malformed"),
        ])
        .await;
    account.ok("TerminateInstances", &[("InstanceId.1", &id)]).await;
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    let gone = [("NetworkInterfaceId.1", interface.as_str())];
    stage.refuses(&[("DescribeNetworkInterfaces", &gone, "InvalidNetworkInterfaceID.NotFound")]).await;
    account.ok("DeleteSubnet", &[("SubnetId", subnet)]).await;
    account.ok("DeleteSecurityGroup", &[("GroupId", group)]).await;
}

#[tokio::test(start_paused = true)]
async fn interfaces_by_themselves_take_an_address() {
    let stage = Stage::new().await;
    let vpc = stage.vpc("10.0.0.0/16").await;
    let subnet = stage.subnet(&vpc, "10.0.0.0/28").await;
    let named = [("SubnetId", &*subnet), ("PrivateIpAddress", "10.0.0.9"), ("Description", "spare")];
    let made = stage.ok("CreateNetworkInterface", &named).await;
    assert_eq!((first(&made, "privateIpAddress"), first(&made, "status")), ("10.0.0.9".into(), "available".into()));
    assert_eq!(first(&made, "groupName"), "default");
    let described = stage.ok("DescribeSubnets", &[("SubnetId.1", &subnet)]).await;
    assert_eq!(first(&described, "availableIpAddressCount"), "10");
    let outside = [("SubnetId", &*subnet), ("PrivateIpAddress", "10.0.1.9")];
    let foreign = [("SubnetId", &*subnet), ("SecurityGroupId.1", &*stage.0.setup.security_group_id)];
    stage
        .refuses(&[
            ("CreateNetworkInterface", &named, "InvalidIPAddress.InUse"),
            ("CreateNetworkInterface", &outside, "InvalidParameterValue"),
            ("CreateNetworkInterface", &foreign, "InvalidParameter"),
            ("CreateNetworkInterface", &[], "MissingParameter"),
            ("DeleteSubnet", &[("SubnetId", &subnet)], "DependencyViolation"),
        ])
        .await;
    let found = stage.described("DescribeNetworkInterfaces", "description", "spare").await;
    let interface = first(&found, "networkInterfaceId");
    stage.ok("DeleteNetworkInterface", &[("NetworkInterfaceId", &interface)]).await;
    stage.ok("DeleteSubnet", &[("SubnetId", &subnet)]).await;
}

#[tokio::test(start_paused = true)]
async fn regions_zones_and_lists_are_told() {
    let stage = Stage::new().await;
    let region = stage.ok("DescribeRegions", &[("RegionName.1", "eu-west-1")]).await;
    assert_eq!(first(&region, "regionEndpoint"), "ec2.eu-west-1.amazonaws.com");
    let zones = stage.described("DescribeAvailabilityZones", "zone-id", "usw2-az1").await;
    assert_eq!(values(&zones, "zoneId"), ["usw2-az1"]);
    let managed = stage.described("DescribeManagedPrefixLists", "owner-id", "AWS").await;
    assert_eq!(values(&managed, "prefixListName").len(), 2);
    stage
        .refuses(&[
            ("DescribeRegions", &[("RegionName.1", "mars-1")], "InvalidParameterValue"),
            ("DescribeAvailabilityZones", &[("ZoneId.1", "mars-az1")], "InvalidParameterValue"),
            ("DescribeAccountAttributes", &[("AttributeName.1", "colour")], "InvalidParameterValue"),
            ("DescribePrefixLists", &[("PrefixListId.1", "pl-0")], "InvalidPrefixListID.NotFound"),
            ("DescribeDhcpOptions", &[("DhcpOptionsId.1", "dopt-0")], "InvalidDhcpOptionID.NotFound"),
            ("DescribeNetworkAcls", &[("NetworkAclId.1", "acl-0")], "InvalidNetworkAclID.NotFound"),
        ])
        .await;
}

#[tokio::test(start_paused = true)]
async fn every_kind_takes_tags() {
    let stage = Stage::new().await;
    let vpc = stage.vpc("10.0.0.0/16").await;
    let subnet = stage.subnet(&vpc, "10.0.0.0/24").await;
    let group = stage.group(&vpc, "web").await;
    let in_vpc = filter("vpc-id", &vpc);
    let ids = [
        ("vpc", vpc.clone()),
        ("subnet", subnet),
        ("security-group", group.clone()),
        (
            "security-group-rule",
            first(&stage.described("DescribeSecurityGroupRules", "group-id", &group).await, "securityGroupRuleId"),
        ),
        ("internet-gateway", stage.made("CreateInternetGateway", "internetGatewayId", &[]).await),
        ("route-table", first(&stage.ok("DescribeRouteTables", &in_vpc).await, "routeTableId")),
        ("network-acl", first(&stage.ok("DescribeNetworkAcls", &in_vpc).await, "networkAclId")),
        ("dhcp-options", first(&stage.ok("DescribeDhcpOptions", &[]).await, "dhcpOptionsId")),
        ("key-pair", stage.made("CreateKeyPair", "keyPairId", &[("KeyName", "mine"), ("KeyType", "ed25519")]).await),
        ("volume", stage.made("CreateVolume", "volumeId", &[("AvailabilityZone", "us-west-2a"), ("Size", "8")]).await),
    ];
    for (kind, id) in &ids {
        stage.ok("CreateTags", &[("ResourceId.1", id), ("Tag.1.Key", "team"), ("Tag.1.Value", "blue")]).await;
        let told = stage.described("DescribeTags", "resource-id", id).await;
        assert_eq!((first(&told, "resourceType"), first(&told, "value")), ((*kind).to_owned(), "blue".to_owned()));
    }
    let told = stage.described("DescribeTags", "tag:team", "blue").await;
    assert_eq!(values(&told, "resourceId").len(), ids.len());
    stage.ok("DeleteTags", &[("ResourceId.1", &ids[0].1), ("Tag.1.Key", "team")]).await;
    assert!(values(&stage.ok("DescribeTags", &filter("resource-id", &ids[0].1)).await, "key").is_empty());
    let (key, value) = ("k".repeat(129), "v".repeat(257));
    stage
        .refuses(&[
            ("CreateTags", &[("ResourceId.1", "unicorn-1"), ("Tag.1.Key", "a")], "InvalidID"),
            ("CreateTags", &[("ResourceId.1", "rtb-0"), ("Tag.1.Key", "a")], "InvalidRouteTableID.NotFound"),
            ("CreateTags", &[("ResourceId.1", &vpc), ("Tag.1.Key", &key)], "InvalidParameterValue"),
            (
                "CreateTags",
                &[("ResourceId.1", &vpc), ("Tag.1.Key", "a"), ("Tag.1.Value", &value)],
                "InvalidParameterValue",
            ),
            ("CreateTags", &[("ResourceId.1", &vpc)], "MissingParameter"),
        ])
        .await;
}
