//! What the account limits: vCPUs by class, calls by token bucket, what is seen when; and faults by caller.

mod common;

use common::{Account, items, values};
use fake_ec2::{ApiError, CapacityType, Config, FaultRule, Limits, Outcome, Rate, Service, Throttling, VcpuClass};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::sleep;

fn families(names: &[&str]) -> Config {
    Config { families: names.iter().map(|name| (*name).to_owned()).collect(), ..Config::default() }
}

#[tokio::test(start_paused = true)]
async fn each_class_of_types_has_a_quota_of_its_own() {
    let account = Account::with(families(&["m5", "p5", "g5"]));
    let cloud = account.ec2.cloud();
    let p_on_demand = (CapacityType::OnDemand, VcpuClass::P);
    cloud.set_limits(Limits {
        on_demand_vcpus: Some(4),
        vcpus_by_class: BTreeMap::from([(p_on_demand, 0)]),
        ..Limits::default()
    });
    account.template("nodes").await;
    let (_, body) = account.fleet("on-demand", 3, &[("m5.large", 0)], &[]).await;
    assert_eq!((items(&body, "instanceIds").len(), values(&body, "errorCode")), (2, vec!["VcpuLimitExceeded".into()]));
    let (_, body) = account.fleet("on-demand", 1, &[("p5.48xlarge", 0)], &[]).await;
    assert_eq!(values(&body, "errorCode"), ["VcpuLimitExceeded"]);
    let (_, body) = account.fleet("on-demand", 1, &[("g5.xlarge", 0)], &[]).await;
    assert_eq!(items(&body, "instanceIds").len(), 1, "no quota is set for G: {body}");
    // Stopped instances do not count, and cannot start beyond the quota.
    let running = cloud.instances().into_iter().filter(|one| one.instance_type == "m5.large").map(|one| one.id);
    let first = running.clone().next().unwrap();
    sleep(Duration::from_secs(10)).await;
    account.ok("StopInstances", &[("InstanceId.1", &first)]).await;
    sleep(Duration::from_secs(40)).await;
    let (_, body) = account.fleet("on-demand", 1, &[("m5.large", 0)], &[]).await;
    assert_eq!(items(&body, "instanceIds").len(), 1, "{body}");
    assert_eq!(account.refused("StartInstances", &[("InstanceId.1", &first)]).await, (400, "VcpuLimitExceeded".into()));
}

#[tokio::test(start_paused = true)]
async fn fleets_have_the_documented_sizes() {
    let account = Account::new();
    account.template("nodes").await;
    let (status, body) = account.fleet("on-demand", 10_001, &[("m5.large", 0)], &[]).await;
    assert_eq!((status, values(&body, "Code")), (400, vec!["InvalidParameterValue".into()]));
    account.ec2.cloud().set_limits(Limits { fleets: 0, ..Limits::default() });
    let params = [
        ("Type", "maintain"),
        ("TargetCapacitySpecification.TotalTargetCapacity", "1"),
        ("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName", "nodes"),
    ];
    assert_eq!(account.refused("CreateFleet", &params).await, (400, "MaxSpotFleetRequestCountExceeded".into()));
}

#[tokio::test(start_paused = true)]
async fn calls_are_throttled_action_by_action_once_it_is_asked_for() {
    let account = Account::new();
    let filtered = [("MaxResults", "5")];
    for _ in 0..200 {
        account.ok("DescribeInstances", &filtered).await;
    }
    account.ec2.cloud().set_throttling(Throttling::documented());
    for _ in 0..100 {
        account.ok("DescribeInstances", &filtered).await;
    }
    assert_eq!(account.refused("DescribeInstances", &filtered).await, (503, "RequestLimitExceeded".into()));
    // Another action has its own bucket, and so has the same one without filters or pages.
    account.ok("DescribeVpcs", &[]).await;
    for _ in 0..50 {
        account.ok("DescribeInstances", &[]).await;
    }
    assert_eq!(account.refused("DescribeInstances", &[]).await.0, 503);
    // Twenty a second flow in, and no more than the bucket holds.
    sleep(Duration::from_millis(500)).await;
    for _ in 0..10 {
        account.ok("DescribeInstances", &filtered).await;
    }
    assert_eq!(account.refused("DescribeInstances", &filtered).await.0, 503);
}

#[tokio::test(start_paused = true)]
async fn launches_are_throttled_by_their_instances_too() {
    let account = Account::new();
    account.ec2.cloud().set_throttling(Throttling::documented());
    let image = account.image("x86_64");
    let run = async |count: &str| {
        let params = [
            ("MinCount", count),
            ("MaxCount", count),
            ("InstanceType", "m5.large"),
            ("ImageId", image.as_str()),
            ("SubnetId", account.setup.subnet_ids[0].as_str()),
        ];
        account.ec2("RunInstances", &params).await.0
    };
    assert_eq!(run("999").await, 200);
    assert_eq!(run("2").await, 503, "one token of a thousand is left");
    assert_eq!(run("1").await, 200);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(run("2").await, 200, "two a second flow in");
    // Five calls at once: the first three have been answered, and two a second have come back.
    sleep(Duration::from_secs(10)).await;
    for _ in 0..5 {
        assert_eq!(run("1").await, 200);
    }
    assert_eq!(run("1").await, 503);
}

#[tokio::test(start_paused = true)]
async fn other_services_are_throttled_in_their_own_words() {
    let account = Account::new();
    let once = Rate::new(1.0, 0.5);
    let throttling = Throttling::default().with(Service::Iam, "*", once).with(Service::Ssm, "GetParameter", once);
    account.ec2.cloud().set_throttling(throttling);
    assert_eq!(account.iam("ListRoles", &[]).await.0, 200);
    let (status, body) = account.iam("ListInstanceProfiles", &[]).await;
    assert_eq!((status, values(&body, "Code")), (400, vec!["Throttling".into()]));
    let parameter = serde_json::json!({"Name": "/none"});
    account.json("AmazonSSM.GetParameter", parameter.clone()).await;
    let (status, value, _) = account.json("AmazonSSM.GetParameter", parameter).await;
    assert_eq!((status, value["__type"].as_str()), (400, Some("ThrottlingException")));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(account.iam("ListRoles", &[]).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn new_templates_and_changed_tags_are_seen_after_a_while() {
    let account = Account::with(Config { consistency_delay: Duration::from_secs(3), ..families(&["m5"]) });
    let id = account.launch("on-demand", "m5.large").await;
    let template = values(&account.ok("DescribeLaunchTemplates", &[]).await, "launchTemplateId");
    assert_eq!(template, Vec::<String>::new());
    assert_eq!(
        account.refused("DescribeLaunchTemplates", &[("LaunchTemplateName.1", "nodes")]).await,
        (400, "InvalidLaunchTemplateName.NotFoundException".into())
    );
    sleep(Duration::from_secs(3)).await;
    assert_eq!(values(&account.ok("DescribeLaunchTemplates", &[]).await, "launchTemplateName"), ["nodes"]);
    account.ok("CreateTags", &[("ResourceId.1", &id), ("Tag.1.Key", "team"), ("Tag.1.Value", "blue")]).await;
    let by_tag = [("Filter.1.Name", "tag:team"), ("Filter.1.Value.1", "blue")];
    assert_eq!(values(&account.ok("DescribeInstances", &by_tag).await, "instanceId").len(), 0);
    let before = [("Filter.1.Name", "tag:karpenter.sh/nodepool"), ("Filter.1.Value.1", "default")];
    account.ok("DeleteTags", &[("ResourceId.1", &id), ("Tag.1.Key", "karpenter.sh/nodepool")]).await;
    assert_eq!(values(&account.ok("DescribeInstances", &before).await, "instanceId"), [id.as_str()]);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(values(&account.ok("DescribeInstances", &by_tag).await, "instanceId"), [id]);
    assert_eq!(values(&account.ok("DescribeInstances", &before).await, "instanceId").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn faults_strike_the_caller_they_name() {
    let account = Account::new();
    let cloud = account.ec2.cloud();
    let keys = cloud.assume_role(&account.setup.node_role_name, "node").unwrap();
    let call = async |key: &str| {
        let credential = format!("AWS4-HMAC-SHA256 Credential={key}/20260101/us-west-2/ec2/aws4_request");
        let request = http::Request::post("/").header("authorization", credential);
        let request = request.body("Action=DescribeVpcs&Version=2016-11-15".into()).unwrap();
        account.ec2.handle(request).await.status().as_u16()
    };
    let rule = |caller: &str| FaultRule::throttled("DescribeVpcs").by_caller(caller);
    let by_key = cloud.fault(rule("AKIAME"));
    assert_eq!((call("AKIAME").await, call("AKIAYOU").await), (503, 200));
    cloud.remove_fault(by_key);
    let by_role = cloud.fault(rule(&account.setup.node_role_name));
    assert_eq!((call("AKIAME").await, call(&keys.access_key_id).await), (200, 503));
    cloud.remove_fault(by_role);
    let arn = format!("arn:aws:sts::123456789012:assumed-role/{}/node", account.setup.node_role_name);
    cloud.fault(rule(&arn));
    assert_eq!((call("AKIAME").await, call(&keys.access_key_id).await), (200, 503));
}

#[tokio::test(start_paused = true)]
async fn a_truncated_answer_was_carried_out() {
    let account = Account::new();
    let rule = FaultRule::error("DescribeVpcs", ApiError::client("", ""));
    account.ec2.cloud().fault(FaultRule { outcome: Outcome::TruncatedBody, ..rule });
    let (status, body) = account.ec2("DescribeVpcs", &[]).await;
    assert_eq!(status, 200);
    assert!(body.starts_with("<?xml") && !body.contains("</DescribeVpcsResponse>"), "{body}");
    let entry = account.ec2.cloud().journal().pop().unwrap();
    assert_eq!(entry.status, 200);
    assert!(entry.response.len() > body.len(), "the journal has the whole answer");
}

#[tokio::test(start_paused = true)]
async fn quotas_of_networks_are_settings() {
    use fake_ec2::NetworkLimits;
    let account = Account::new();
    let (vpc, group, subnet) =
        (account.setup.vpc_id.as_str(), account.setup.security_group_id.as_str(), account.setup.subnet_ids[0].as_str());
    let none = NetworkLimits {
        vpcs: 1,
        subnets_per_vpc: 3,
        cidr_blocks_per_vpc: 1,
        security_groups: 2,
        rules_per_security_group: 0,
        security_groups_per_interface: 0,
        route_tables_per_vpc: 1,
        routes_per_route_table: 0,
        internet_gateways: 0,
        network_interfaces: Some(0),
    };
    let limit = |network| account.ec2.cloud().set_limits(Limits { network, ..Limits::default() });
    limit(none.clone());
    let image = account.image("x86_64");
    let rule = [
        ("GroupId", group),
        ("IpPermissions.1.IpProtocol", "icmp"),
        ("IpPermissions.1.FromPort", "-1"),
        ("IpPermissions.1.ToPort", "-1"),
        ("IpPermissions.1.IpRanges.1.CidrIp", "192.0.2.0/24"),
    ];
    let run = [
        ("ImageId", image.as_str()),
        ("InstanceType", "m5.large"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("SubnetId", subnet),
    ];
    account
        .refuses(&[
            ("CreateVpc", &[("CidrBlock", "10.9.0.0/16")], "VpcLimitExceeded"),
            ("CreateSubnet", &[("VpcId", vpc), ("CidrBlock", "192.168.240.0/24")], "SubnetLimitExceeded"),
            (
                "CreateSecurityGroup",
                &[("VpcId", vpc), ("GroupName", "more"), ("GroupDescription", "d")],
                "SecurityGroupLimitExceeded",
            ),
            ("AuthorizeSecurityGroupIngress", &rule, "RulesPerSecurityGroupLimitExceeded"),
            ("CreateRouteTable", &[("VpcId", vpc)], "RouteTableLimitExceeded"),
            ("CreateInternetGateway", &[], "InternetGatewayLimitExceeded"),
            ("CreateNetworkInterface", &[("SubnetId", subnet)], "NetworkInterfaceLimitExceeded"),
            (
                "CreateNetworkInterface",
                &[("SubnetId", subnet), ("SecurityGroupId.1", group)],
                "SecurityGroupsPerInterfaceLimitExceeded",
            ),
            ("RunInstances", &run, "NetworkInterfaceLimitExceeded"),
            (
                "RunInstances",
                &[&run[..], &[("SecurityGroupId.1", group)]].concat(),
                "SecurityGroupsPerInterfaceLimitExceeded",
            ),
        ])
        .await;
    let attribute = [("AttributeName.1", "vpc-max-security-groups-per-interface")];
    assert!(account.ok("DescribeAccountAttributes", &attribute).await.contains("<attributeValue>0</attributeValue>"));
    limit(NetworkLimits::default());
    account.ok("CreateVpc", &[("CidrBlock", "10.9.0.0/16")]).await;
    account.ok("AuthorizeSecurityGroupIngress", &rule).await;
    account.ok("RunInstances", &run).await;
}
