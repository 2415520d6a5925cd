//! Launching: templates, fleets, what comes of failures.

use crate::support::{Scene, instance_id, label, node_claim, node_class, pass, provider_id};
use base64::Engine;
use controller_api::{NodeClaim, labels};
use controller_core::cloud::{CloudError, CloudProvider};
use expect_test::expect;
use fake_ec2::{ApiError, Calls, CapacityType, FaultRule};
use futures::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const M5_LARGE: (&str, &[&str]) = (labels::INSTANCE_TYPE_LABEL, &["m5.large"]);
const ON_DEMAND: (&str, &[&str]) = (labels::CAPACITY_TYPE_LABEL, &["on-demand"]);
const BOTH: (&str, &[&str]) = (labels::CAPACITY_TYPE_LABEL, &["spot", "on-demand"]);
const ZONE_A: (&str, &[&str]) = (labels::ZONE_LABEL, &["us-west-2a"]);

/// A request's parameters, one a line, in natural order; text that differs from run to run is cut out.
fn parameters(params: &Value) -> String {
    let mut fields: Vec<(String, String)> = params
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| !key.contains("ClientToken") && !key.ends_with("UserData") && !key.contains("Tag."))
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    fields.sort();
    fields.into_iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_claim_becomes_an_instance_and_is_told_what_it_got() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    let claim = scene.create(&node_claim("n-1", &[M5_LARGE, ON_DEMAND, ZONE_A]), &class).await.unwrap();
    let instance = scene.ec2.cloud().instance(instance_id(&claim)).unwrap();
    assert_eq!(provider_id(&claim), format!("aws:///us-west-2a/{}", instance.id));
    assert_eq!(instance.instance_type, "m5.large");
    for (key, value) in [
        (labels::INSTANCE_TYPE_LABEL, "m5.large"),
        (labels::ZONE_LABEL, "us-west-2a"),
        (labels::CAPACITY_TYPE_LABEL, "on-demand"),
        (labels::ARCH_LABEL, "amd64"),
        (labels::OS_LABEL, "linux"),
        (labels::REGION_LABEL, "us-west-2"),
        (labels::INSTANCE_TENANCY_LABEL, "default"),
        (labels::NODE_POOL_LABEL, "default"),
        (labels::INSTANCE_CPU_LABEL, "2"),
    ] {
        assert_eq!(label(&claim, key), value, "{key}");
    }
    assert_eq!(label(&claim, labels::ZONE_ID_LABEL), instance.zone_id);
    let status = claim.status.as_ref().unwrap();
    assert_eq!(status.image_id, instance.image_id);
    assert_eq!(status.capacity["memory"].0, "7577Mi");
    assert_eq!(status.allocatable["memory"].0, "6903Mi");
    assert!(!status.capacity.contains_key("nvidia.com/gpu"), "zeros are left out");
    let annotations = claim.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[labels::NODE_CLASS_HASH_VERSION_ANNOTATION], "v6");
    assert_eq!(annotations[labels::INSTANCE_PROFILE_NAME_ANNOTATION], class.status.as_ref().unwrap().instance_profile);
    for (key, value) in [
        ("karpenter.sh/nodepool", "default"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("eks:eks-cluster-name", "demo"),
        ("kubernetes.io/cluster/demo", "owned"),
    ] {
        assert_eq!(instance.tags[key], value, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_fleet_request_of_an_on_demand_launch() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    scene.create(&node_claim("n-1", &[M5_LARGE, ON_DEMAND, ZONE_A]), &class).await.unwrap();
    let call = scene.calls("CreateFleet").pop().unwrap();
    let subnet = &scene.made.subnet_ids[0];
    let image = &class.status.as_ref().unwrap().amis[0].id;
    let image = call.param("LaunchTemplateConfigs.1.Overrides.1.ImageId").unwrap_or(image);
    let template = call.param("LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName").unwrap();
    let text = parameters(&call.params).replace(subnet, "SUBNET").replace(image, "IMAGE").replace(template, "TEMPLATE");
    expect![[r#"
        LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName=TEMPLATE
        LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version=$Latest
        LaunchTemplateConfigs.1.Overrides.1.AvailabilityZone=us-west-2a
        LaunchTemplateConfigs.1.Overrides.1.ImageId=IMAGE
        LaunchTemplateConfigs.1.Overrides.1.InstanceType=m5.large
        LaunchTemplateConfigs.1.Overrides.1.Priority=0.096
        LaunchTemplateConfigs.1.Overrides.1.SubnetId=SUBNET
        OnDemandOptions.AllocationStrategy=lowest-price
        TagSpecification.1.ResourceType=instance
        TagSpecification.2.ResourceType=volume
        TagSpecification.3.ResourceType=fleet
        TargetCapacitySpecification.DefaultTargetCapacityType=on-demand
        TargetCapacitySpecification.TotalTargetCapacity=1
        Type=instant
    "#]]
    .assert_eq(&text);
}

#[tokio::test(start_paused = true)]
async fn the_launch_template_of_a_spot_launch() {
    let scene = Scene::new().await;
    let mut class = node_class(json!({
        "tags": {"team": "a"},
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi", "volumeType": "gp3", "throughput": 0}}],
        "associatePublicIPAddress": false,
        "detailedMonitoring": true,
    }));
    scene.resolve(&mut class).await;
    scene.create(&node_claim("n-1", &[M5_LARGE, BOTH]), &class).await.unwrap();
    let call = scene.calls("CreateLaunchTemplate").pop().unwrap();
    let image = call.param("LaunchTemplateData.ImageId").unwrap();
    let profile = &class.status.as_ref().unwrap().instance_profile;
    let group = &scene.made.security_group_id;
    let template = call.param("LaunchTemplateName").unwrap();
    assert!(template.starts_with("karpenter.k8s.aws/"));
    let text = parameters(&call.params)
        .replace(image, "IMAGE")
        .replace(profile, "PROFILE")
        .replace(group, "GROUP")
        .replace(template, "TEMPLATE");
    expect![[r#"
        LaunchTemplateData.BlockDeviceMapping.1.DeviceName=/dev/xvda
        LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize=100
        LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeType=gp3
        LaunchTemplateData.CapacityReservationSpecification.CapacityReservationPreference=none
        LaunchTemplateData.EnclaveOptions.Enabled=false
        LaunchTemplateData.IamInstanceProfile.Name=PROFILE
        LaunchTemplateData.ImageId=IMAGE
        LaunchTemplateData.MetadataOptions.HttpEndpoint=enabled
        LaunchTemplateData.MetadataOptions.HttpProtocolIpv6=disabled
        LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit=1
        LaunchTemplateData.MetadataOptions.HttpTokens=required
        LaunchTemplateData.MetadataOptions.InstanceMetadataTags=disabled
        LaunchTemplateData.Monitoring.Enabled=true
        LaunchTemplateData.NetworkInterface.1.AssociatePublicIpAddress=false
        LaunchTemplateData.NetworkInterface.1.DeviceIndex=0
        LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1=GROUP
        LaunchTemplateData.Placement.Tenancy=default
        LaunchTemplateData.TagSpecification.1.ResourceType=network-interface
        LaunchTemplateData.TagSpecification.2.ResourceType=spot-instances-request
        LaunchTemplateName=TEMPLATE
        TagSpecification.1.ResourceType=launch-template
    "#]]
    .assert_eq(&text);
    let user_data = call.param("LaunchTemplateData.UserData").unwrap();
    let user_data = String::from_utf8(base64::prelude::BASE64_STANDARD.decode(user_data).unwrap()).unwrap();
    assert!(user_data.contains("cidr: 10.100.0.0/16"), "{user_data}");
    assert!(user_data.contains("karpenter.sh/capacity-type=spot"), "{user_data}");
}

#[tokio::test(start_paused = true)]
async fn equal_launches_share_one_fleet_and_one_template_and_each_gets_its_own_instance() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    let before = (scene.calls("CreateFleet").len(), scene.calls("CreateLaunchTemplate").len());
    let claims: Vec<NodeClaim> = (0..10).map(|n| node_claim(&format!("n-{n}"), &[M5_LARGE, ON_DEMAND])).collect();
    let launched = join_all(claims.iter().map(|claim| scene.create(claim, &class))).await;
    let ids: BTreeSet<String> = launched.iter().map(|claim| instance_id(claim.as_ref().unwrap()).to_owned()).collect();
    assert_eq!(ids.len(), 10);
    assert_eq!(scene.calls("CreateLaunchTemplate").len(), before.1 + 1);
    let fleets = &scene.calls("CreateFleet")[before.0..];
    let sizes: Vec<&str> =
        fleets.iter().map(|call| call.param("TargetCapacitySpecification.TotalTargetCapacity").unwrap()).collect();
    let total: u32 = sizes.iter().map(|size| size.parse::<u32>().unwrap()).sum();
    assert_eq!(total, 10, "{sizes:?}");
    assert!(sizes.len() <= 3, "subnets may alternate, launches are merged all the same: {sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn spot_without_capacity_is_remembered_and_the_next_launch_buys_on_demand() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    for zone in ["us-west-2a", "us-west-2b", "us-west-2c"] {
        scene.ec2.cloud().exhaust("m5.large", zone, CapacityType::Spot);
    }
    let claim = node_claim("n-1", &[M5_LARGE, BOTH]);
    let refused = scene.create(&claim, &class).await;
    assert!(matches!(refused, Err(CloudError::InsufficientCapacity(_))), "{refused:?}");
    let launched = scene.create(&claim, &class).await.unwrap();
    assert_eq!(label(&launched, labels::CAPACITY_TYPE_LABEL), "on-demand");
    let failures = scene.cloud.launch_failures();
    assert_eq!(failures.len(), 3, "{failures:?}");
    assert!(failures.iter().all(|(failure, count)| failure.reason == "LaunchFailed" && *count == 1), "{failures:?}");
}

#[tokio::test(start_paused = true)]
async fn one_zone_without_capacity_only_narrows_the_choice() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    scene.ec2.cloud().exhaust("m5.large", "us-west-2a", CapacityType::OnDemand);
    let launched = scene.create(&node_claim("n-1", &[M5_LARGE, ON_DEMAND]), &class).await.unwrap();
    assert_ne!(label(&launched, labels::ZONE_LABEL), "us-west-2a");
}

#[tokio::test(start_paused = true)]
async fn nothing_that_fits_is_insufficient_capacity_without_a_call() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    let before = scene.calls("CreateFleet").len();
    let refused = scene.create(&node_claim("n-1", &[(labels::INSTANCE_TYPE_LABEL, &["x9.large"])]), &class).await;
    let text = refused.unwrap_err().to_string();
    assert_eq!(text, "insufficient capacity, all requested instance types were unavailable during launch");
    assert_eq!(scene.calls("CreateFleet").len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_template_deleted_behind_our_back_costs_one_immediate_retry() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    scene.create(&node_claim("n-1", &[M5_LARGE, ON_DEMAND]), &class).await.unwrap();
    for template in scene.ec2.cloud().launch_templates() {
        scene.ec2.cloud().remove_launch_template(&template.id).unwrap();
    }
    let launched = scene.create(&node_claim("n-2", &[M5_LARGE, ON_DEMAND]), &class).await.unwrap();
    assert!(scene.ec2.cloud().instance(instance_id(&launched)).is_some());
}

#[tokio::test(start_paused = true)]
async fn failures_other_than_capacity_name_their_reason() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    for (fault, expected) in [
        (FaultRule::throttled("CreateFleet"), "RequestLimitExceeded"),
        (FaultRule::unauthorized("CreateFleet"), "Unauthorized"),
        (FaultRule::error("CreateFleet", ApiError::new(500, "InternalError", "An internal error")), "InternalError"),
    ] {
        let fault = scene.ec2.cloud().fault(fault.calls(Calls::All));
        let refused = scene.create(&node_claim("n-1", &[M5_LARGE, ON_DEMAND]), &class).await;
        let Err(CloudError::Create { reason, message }) = refused else { panic!("{refused:?}") };
        assert_eq!(reason, expected);
        assert!(message.starts_with("Error creating fleet request: "), "{message}");
        scene.ec2.cloud().remove_fault(fault);
    }
    assert!(scene.ec2.cloud().instances().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_not_ready_is_not_launched_from() {
    let scene = Scene::new().await;
    let ready = scene.ready_class().await;
    let claim = node_claim("n-1", &[M5_LARGE]);
    let unknown = scene.create(&claim, &node_class(json!({}))).await;
    assert!(matches!(unknown, Err(CloudError::Create { reason, .. }) if reason == "NodeClassReadinessUnknown"));
    let mut stale = ready.clone();
    stale.metadata.generation = Some(2);
    assert!(matches!(scene.create(&claim, &stale).await, Err(CloudError::NodeClassNotReady(_))));
    let mut missing = node_class(json!({"subnetSelectorTerms": [{"tags": {"no": "subnet"}}]}));
    missing.metadata.uid = Some("uid-2".to_owned());
    scene.resolve(&mut missing).await;
    assert!(matches!(scene.create(&claim, &missing).await, Err(CloudError::NodeClassNotReady(_))));
}

#[tokio::test(start_paused = true)]
async fn a_subnet_without_addresses_is_avoided_for_a_while() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    scene.ec2.cloud().set_available_addresses(&scene.made.subnet_ids[0], 0).unwrap();
    let refused = scene.create(&node_claim("n-1", &[M5_LARGE, ON_DEMAND, ZONE_A]), &class).await;
    assert!(matches!(refused, Err(CloudError::InsufficientCapacity(_))), "{refused:?}");
    let types = scene.cloud.instance_types(&crate::support::node_pool(), &class).await.unwrap();
    let in_zone_a = types.iter().flat_map(|kind| &kind.offerings).filter(|offering| offering.zone == "us-west-2a");
    assert!(in_zone_a.clone().count() > 0 && in_zone_a.clone().all(|offering| !offering.available));
}

#[tokio::test(start_paused = true)]
async fn templates_live_while_they_are_used_and_a_new_process_finds_the_old_ones() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    scene.create(&node_claim("n-1", &[M5_LARGE, ON_DEMAND]), &class).await.unwrap();
    assert_eq!(scene.ec2.cloud().launch_templates().len(), 2, "one for the dry run, one for the launch");
    pass(45).await;
    scene.create(&node_claim("n-2", &[M5_LARGE, ON_DEMAND]), &class).await.unwrap();
    pass(30).await;
    scene.cloud.clean_up_launch_templates().await.unwrap();
    assert_eq!(scene.ec2.cloud().launch_templates().len(), 1, "the one in use stays");
    let fresh = controller_aws::AwsCloud::connect(
        controller_aws::Settings::new("demo"),
        crate::support::clients(&scene.ec2, &scene.clock).await,
        scene.clock.clone(),
        "1.36",
    )
    .await
    .unwrap();
    fresh.hydrate_launch_templates().await.unwrap();
    pass(61).await;
    fresh.clean_up_launch_templates().await.unwrap();
    assert!(scene.ec2.cloud().launch_templates().is_empty());
}

#[tokio::test(start_paused = true)]
async fn arm_and_gpu_types_get_their_own_images() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    let image = async |kind: &'static [&'static str]| {
        let claim = scene.create(&node_claim("n", &[(labels::INSTANCE_TYPE_LABEL, kind), ON_DEMAND]), &class).await;
        claim.unwrap().status.unwrap().image_id
    };
    let (amd, arm, gpu) = (image(&["m5.large"]).await, image(&["m6g.large"]).await, image(&["g4dn.xlarge"]).await);
    assert!(amd != arm && amd != gpu && arm != gpu, "{amd} {arm} {gpu}");
    let name = |id: &str| class.status.iter().flat_map(|s| &s.amis).find(|ami| ami.id == id).unwrap().name.clone();
    assert!(name(&arm).contains("arm64") && name(&gpu).contains("nvidia"), "{} {}", name(&arm), name(&gpu));
}
