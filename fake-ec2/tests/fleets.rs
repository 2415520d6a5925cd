//! Launches: strategies, partial fulfilment, merging, idempotency (aws spec §2.4.1, §4.4, §12.2).

mod common;

use common::{Account, items, values};
use fake_ec2::{CapacityType, Config, Limits, State};

#[tokio::test(start_paused = true)]
async fn on_demand_takes_the_cheapest_override() {
    let account = Account::new();
    account.template("nodes").await;
    let (status, body) =
        account.fleet("on-demand", 1, &[("m5.xlarge", 0), ("m5.large", 1), ("c5.large", 2)], &[]).await;
    assert_eq!((status, values(&body, "errorCode").len()), (200, 0), "{body}");
    // c5.large costs 0.085, m5.large 0.096.
    let instance = account.ec2.cloud().instances().pop().unwrap();
    assert_eq!(
        (instance.instance_type, instance.zone.as_str(), instance.zone_id.as_str()),
        ("c5.large", "us-west-2c", "usw2-az3")
    );
    assert_eq!((instance.capacity_type, instance.spot_request_id), (CapacityType::OnDemand, None));
    let chosen = &values(&body, "fleetInstanceSet")[0];
    assert_eq!(values(chosen, "availabilityZone")[0], "us-west-2c");
    assert_eq!(values(chosen, "imageId"), [account.image("x86_64")]);
    assert_eq!(values(chosen, "subnetId")[0], account.setup.subnet_ids[2]);
    assert_eq!(items(&body, "instanceIds"), [instance.id]);
}

#[tokio::test(start_paused = true)]
async fn spot_weighs_price_by_interruption_band_and_carries_its_request() {
    let account = Account::new();
    account.template("nodes").await;
    let overrides = [("m5.large", 0), ("m5.large", 1), ("c5.large", 0), ("c5.large", 1), ("m5.xlarge", 0)];
    account.fleet("spot", 1, &overrides, &[]).await;
    let instance = account.ec2.cloud().instances().pop().unwrap();
    let score = |instance_type: &str, zone: &str| account.ec2.cloud().spot_score(instance_type, zone).unwrap();
    let best = overrides
        .iter()
        .map(|(instance_type, zone)| (score(instance_type, ["us-west-2a", "us-west-2b"][*zone]), *instance_type))
        .min_by(|left, right| left.0.total_cmp(&right.0))
        .unwrap();
    assert_eq!(instance.instance_type, best.1);
    let request = account.ec2.cloud().spot_requests().pop().unwrap();
    assert_eq!(
        (Some(&request.id), request.tags.get("team").map(String::as_str)),
        (instance.spot_request_id.as_ref(), Some("blue"))
    );
    let body = account.ok("DescribeInstances", &[("InstanceId.1", &instance.id)]).await;
    assert_eq!(values(&body, "instanceLifecycle"), ["spot"]);
    assert_eq!(values(&body, "spotInstanceRequestId"), [request.id]);
}

#[tokio::test(start_paused = true)]
async fn exhausted_pools_leave_errors_with_their_overrides_and_the_rest_is_filled() {
    let account = Account::new();
    account.template("nodes").await;
    let cloud = account.ec2.cloud();
    cloud.exhaust("c5.large", "us-west-2a", CapacityType::OnDemand);
    let (_, body) = account.fleet("on-demand", 1, &[("c5.large", 0), ("m5.large", 1)], &[]).await;
    let errors = &values(&body, "errorSet")[0];
    assert_eq!(
        (values(errors, "errorCode"), values(errors, "instanceType")),
        (vec!["InsufficientInstanceCapacity".into()], vec!["c5.large".into()])
    );
    assert_eq!(values(errors, "availabilityZone"), ["us-west-2a"]);
    assert_eq!(values(errors, "lifecycle"), ["on-demand"]);
    assert_eq!(cloud.instances()[0].instance_type, "m5.large");
    cloud.exhaust("*", "*", CapacityType::OnDemand);
    let (status, body) = account.fleet("on-demand", 3, &[("c5.large", 0), ("m5.large", 1)], &[]).await;
    assert_eq!((status, values(&body, "errorCode").len(), items(&body, "instanceIds").len()), (200, 2, 0));
    cloud.restore("*", "*", CapacityType::OnDemand);
    cloud.set_capacity("c5.large", "us-west-2a", CapacityType::OnDemand, 2);
    let (_, body) = account.fleet("on-demand", 3, &[("c5.large", 0)], &[]).await;
    assert_eq!(
        (values(&body, "errorCode").len(), items(&body, "instanceIds").len()),
        (1, 2),
        "two delivered and one error"
    );
}

#[tokio::test(start_paused = true)]
async fn prioritized_follows_priority_and_not_price() {
    let account = Account::new();
    account.template("nodes").await;
    let more = [
        ("OnDemandOptions.AllocationStrategy", "prioritized"),
        ("LaunchTemplateConfigs.1.Overrides.1.Priority", "1"),
        ("LaunchTemplateConfigs.1.Overrides.2.Priority", "2"),
    ];
    account.fleet("on-demand", 1, &[("m5.xlarge", 0), ("c5.large", 1)], &more).await;
    assert_eq!(account.ec2.cloud().instances()[0].instance_type, "m5.xlarge");
}

#[tokio::test(start_paused = true)]
async fn template_override_and_fleet_meet_on_the_instance() {
    let account = Account::new();
    let id = account.launch("on-demand", "m5.large").await;
    let instance = account.ec2.cloud().instance(&id).unwrap();
    assert_eq!(instance.user_data_text().as_deref(), Some("hello"));
    assert_eq!(instance.tags["karpenter.sh/nodepool"], "default");
    assert_eq!(instance.tags["aws:ec2launchtemplate:version"], "1");
    assert_eq!(instance.security_groups[0].0, account.setup.security_group_id);
    assert_eq!(instance.profile.as_ref().unwrap().role_arn.as_deref(), Some(account.setup.node_role_arn.as_str()));
    assert_eq!(instance.private_dns_name, "ip-192-168-0-4.us-west-2.compute.internal");
    assert_eq!(instance.provider_id(), format!("aws:///us-west-2a/{id}"));
    let subnets = account.ec2.cloud().subnets();
    let subnet = subnets.iter().find(|subnet| subnet.id == instance.subnet_id).unwrap();
    assert_eq!(subnet.available_addresses(), 8186);
    let filters = [
        ("Filter.1.Name", "tag-key"),
        ("Filter.1.Value.1", "karpenter.sh/nodepool"),
        ("Filter.2.Name", "instance-state-name"),
        ("Filter.2.Value.1", "pending"),
        ("Filter.2.Value.2", "running"),
        ("MaxResults", "1000"),
    ];
    assert_eq!(values(&account.ok("DescribeInstances", &filters).await, "instanceId"), [id]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_launched_is_an_error_of_the_fleet_and_not_of_the_call() {
    let account = Account::new();
    account.template("nodes").await;
    let cloud = account.ec2.cloud();
    cloud.set_available_addresses(&account.setup.subnet_ids[1], 0).unwrap();
    for (overrides, code) in [
        (("m6g.large", 0), "InvalidParameterValue"),
        (("m5.large", 1), "InsufficientFreeAddressesInSubnet"),
        (("m99.large", 0), "InvalidParameterValue"),
    ] {
        let (status, body) = account.fleet("on-demand", 1, &[overrides], &[]).await;
        assert_eq!((status, values(&body, "errorCode")), (200, vec![code.to_owned()]), "{overrides:?}");
    }
    assert!(cloud.instances().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_missing_template_fails_the_call() {
    let account = Account::new();
    let (status, body) = account.fleet("spot", 1, &[("m5.large", 0)], &[]).await;
    assert_eq!((status, values(&body, "Code")), (400, vec!["InvalidLaunchTemplateName.NotFoundException".into()]));
}

#[tokio::test(start_paused = true)]
async fn the_same_client_token_gives_the_same_answer() {
    let account = Account::new();
    account.template("nodes").await;
    let token = [("ClientToken", "t-1")];
    let (_, first) = account.fleet("spot", 1, &[("m5.large", 0)], &token).await;
    let (_, second) = account.fleet("spot", 1, &[("m5.large", 0)], &token).await;
    assert_eq!(items(&first, "instanceIds"), items(&second, "instanceIds"));
    assert_eq!(account.ec2.cloud().instances().len(), 1);
    let (status, body) = account.fleet("spot", 2, &[("m5.large", 0)], &token).await;
    assert_eq!((status, values(&body, "Code")), (400, vec!["IdempotentParameterMismatch".into()]));
}

#[tokio::test(start_paused = true)]
async fn dry_runs_check_and_change_nothing() {
    let account = Account::new();
    account.template("nodes").await;
    let (status, body) = account.fleet("on-demand", 1, &[("m5.large", 0)], &[("DryRun", "true")]).await;
    assert_eq!((status, values(&body, "Code")), (412, vec!["DryRunOperation".into()]));
    let subnet = account.setup.subnet_ids[0].clone();
    let run = [
        ("DryRun", "true"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("InstanceType", "m5.large"),
        ("LaunchTemplate.LaunchTemplateName", "nodes"),
        ("LaunchTemplate.Version", "$Latest"),
        ("NetworkInterface.1.DeviceIndex", "0"),
        ("NetworkInterface.1.SubnetId", subnet.as_str()),
    ];
    assert_eq!(account.refused("RunInstances", &run).await, (412, "DryRunOperation".into()));
    account
        .iam(
            "RemoveRoleFromInstanceProfile",
            &[("InstanceProfileName", "nodes"), ("RoleName", &account.setup.node_role_name)],
        )
        .await;
    account.iam("DeleteInstanceProfile", &[("InstanceProfileName", "nodes")]).await;
    let (status, body) = account.ec2("RunInstances", &run).await;
    assert_eq!((status, values(&body, "Code")), (400, vec!["InvalidParameterValue".into()]));
    assert!(body.contains("Invalid IAM Instance Profile name"), "{body}");
    assert!(account.ec2.cloud().instances().is_empty());
}

#[tokio::test(start_paused = true)]
async fn run_instances_launches_and_describes_what_it_launched() {
    let account = Account::new();
    let image = account.image("arm64");
    let subnet = account.setup.subnet_ids[0].clone();
    let params = [
        ("MinCount", "2"),
        ("MaxCount", "2"),
        ("InstanceType", "m6g.large"),
        ("ImageId", image.as_str()),
        ("SubnetId", subnet.as_str()),
        ("TagSpecification.1.ResourceType", "instance"),
        ("TagSpecification.1.Tag.1.Key", "Name"),
        ("TagSpecification.1.Tag.1.Value", "a&b"),
    ];
    let body = account.ok("RunInstances", &params).await;
    assert_eq!((values(&body, "instanceId").len(), values(&body, "architecture")[0].as_str()), (2, "arm64"));
    assert!(body.contains("<value>a&amp;b</value>"), "{body}");
    let described = account.ok("DescribeInstances", &[]).await;
    assert_eq!((values(&described, "reservationId").len(), values(&described, "instanceId").len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn quotas_refuse_as_aws_does() {
    let limits = Limits { on_demand_vcpus: Some(2), spot_vcpus: Some(0), ..Limits::default() };
    let account = Account::with(Config { families: vec!["m5".into()], limits, ..Config::default() });
    account.template("nodes").await;
    let (_, body) = account.fleet("on-demand", 2, &[("m5.large", 0)], &[]).await;
    assert_eq!((items(&body, "instanceIds").len(), values(&body, "errorCode")), (1, vec!["VcpuLimitExceeded".into()]));
    let (_, body) = account.fleet("spot", 1, &[("m5.large", 0)], &[]).await;
    assert_eq!(values(&body, "errorCode"), ["MaxSpotInstanceCountExceeded"]);
}

#[tokio::test(start_paused = true)]
async fn launch_templates_are_unique_versioned_and_checked() {
    let account = Account::new();
    account.template("nodes").await;
    let image = account.image("x86_64");
    let again = [("LaunchTemplateName", "nodes"), ("LaunchTemplateData.ImageId", image.as_str())];
    assert_eq!(
        account.refused("CreateLaunchTemplate", &again).await,
        (400, "InvalidLaunchTemplateName.AlreadyExistsException".into())
    );
    let long = "QUFB".repeat(5462);
    let (status, body) = account
        .ec2("CreateLaunchTemplate", &[("LaunchTemplateName", "big"), ("LaunchTemplateData.UserData", &long)])
        .await;
    assert_eq!((status, values(&body, "Code")), (400, vec!["InvalidUserData.Malformed".into()]));
    assert!(body.contains("User data is limited to 16384 bytes"), "{body}");
    let by_tag = [("Filter.1.Name", "tag:eks:eks-cluster-name"), ("Filter.1.Value.1", "demo"), ("MaxResults", "200")];
    let body = account.ok("DescribeLaunchTemplates", &by_tag).await;
    assert_eq!(values(&body, "launchTemplateName"), ["nodes"]);
    let id = values(&body, "launchTemplateId").pop().unwrap();
    let body = account.ok("DescribeLaunchTemplateVersions", &[("LaunchTemplateId", &id)]).await;
    assert_eq!(
        (values(&body, "userData"), values(&body, "versionNumber")),
        (vec!["aGVsbG8=".into()], vec!["1".into()])
    );
    account.ok("DeleteLaunchTemplate", &[("LaunchTemplateId", &id)]).await;
    assert_eq!(
        account.refused("DeleteLaunchTemplate", &[("LaunchTemplateId", &id)]).await,
        (400, "InvalidLaunchTemplateId.NotFound".into())
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_ids() {
    let ids = || async {
        let account = Account::new();
        let id = account.launch("spot", "m5.large").await;
        (account.setup.subnet_ids.clone(), id, account.image("x86_64"))
    };
    assert_eq!(ids().await, ids().await);
    let other = Account::with(Config { seed: 1, ..Config::default() });
    assert_ne!(other.setup.subnet_ids, ids().await.0);
    assert!(other.ec2.cloud().instances().iter().all(|instance| instance.state == State::Pending));
}
