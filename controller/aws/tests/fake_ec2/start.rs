//! Start-up, prices, instance types.

use crate::support::{Scene, clients, node_claim, node_pool, pass};
use controller_api::labels;
use controller_aws::{AwsCloud, Settings, StartError};
use controller_clock::Clock;
use controller_core::catalog::CapacityType;
use controller_core::cloud::CloudProvider;
use controller_core::requirements::Requirements;
use fake_ec2::{Config, FakeEc2, FaultRule};

#[tokio::test(start_paused = true)]
async fn start_up_makes_the_calls_of_the_specification_in_order() {
    let scene = Scene::new().await;
    let trace = scene.trace(0);
    assert_eq!(trace[0], "DescribeInstanceTypes!DryRunOperation");
    assert_eq!(trace[1], "DescribeCluster");
    assert!(trace[2].starts_with("DescribeInstanceTypes"), "{trace:?}");
    assert!(trace[3].starts_with("DescribeInstanceTypeOfferings"), "{trace:?}");
    assert_eq!(trace[4..], ["GetQueueUrl"]);
    assert_eq!(scene.cloud.cluster_endpoint(), "https://demo.eks.example");
    assert_eq!(scene.cloud.kubernetes_version(), "1.36");
}

#[tokio::test(start_paused = true)]
async fn a_configured_endpoint_spares_the_question_and_eks_may_tell_the_version() {
    let scene = Scene::with(|settings| settings.cluster_endpoint = Some("https://api.example".to_owned())).await;
    assert!(scene.calls("DescribeCluster").is_empty());
    assert_eq!(scene.cloud.cluster_endpoint(), "https://api.example");
    let scene = Scene::with(|settings| settings.eks_control_plane = true).await;
    assert_eq!(scene.calls("DescribeCluster").len(), 1);
    scene.cloud.refresh_kubernetes_version().await.unwrap();
    assert_eq!(scene.cloud.kubernetes_version(), "1.36");
}

#[tokio::test(start_paused = true)]
async fn without_permission_or_cluster_it_does_not_start() {
    let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
    let ec2 = FakeEc2::new(Config { families: vec!["m5".to_owned()], ..Config::default() }, clock.clone());
    let connect = async || {
        AwsCloud::connect(Settings::new("demo"), clients(&ec2, &clock).await, clock.clone(), "1.36").await.map(drop)
    };
    let no_cluster = connect().await.unwrap_err();
    assert_eq!(no_cluster.to_string(), "failed detecting cluster endpoint");
    ec2.cloud().fault(FaultRule::unauthorized("DescribeInstanceTypes"));
    assert!(matches!(connect().await, Err(StartError::Connectivity(_))));
}

#[tokio::test(start_paused = true)]
async fn types_are_offered_where_the_class_has_subnets_at_the_prices_of_the_market() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    let price = async |market: CapacityType, zone: &str| {
        let types = scene.cloud.instance_types(&node_pool(), &class).await.unwrap();
        let m5 = types.iter().find(|kind| kind.name == "m5.large").unwrap().clone();
        m5.offerings.iter().find(|offering| offering.zone == zone && offering.capacity_type == market).map(|o| o.price)
    };
    assert_eq!(price(CapacityType::OnDemand, "us-west-2a").await, Some(0.096), "the embedded table");
    assert_eq!(price(CapacityType::Spot, "us-west-2a").await, Some(0.096), "no spot price is known yet");
    scene.ec2.cloud().set_on_demand_price("m5.large", 0.1);
    scene.ec2.cloud().set_spot_price("m5.large", "us-west-2a", 0.04);
    scene.cloud.refresh_pricing().await.unwrap();
    assert_eq!(price(CapacityType::OnDemand, "us-west-2a").await, Some(0.1));
    assert_eq!(price(CapacityType::Spot, "us-west-2a").await, Some(0.04));

    let types = scene.cloud.instance_types(&node_pool(), &class).await.unwrap();
    let again = scene.cloud.instance_types(&node_pool(), &class).await.unwrap();
    assert!(
        types.iter().zip(&again).all(|(a, b)| std::sync::Arc::ptr_eq(a, b)),
        "nothing changed, nothing is resolved"
    );
    let m5 = types.iter().find(|kind| kind.name == "m5.large").unwrap();
    let zones = m5.requirements.get(labels::ZONE_LABEL).unwrap().values().len();
    assert_eq!(zones, 3);
    let allocatable = m5.allocatable();
    assert_eq!(allocatable.get("memory").to_string(), "6903Mi", "the worked example of the specification");
    assert_eq!(allocatable.get("pods").to_string(), "29");
    let gpu = types.iter().find(|kind| kind.name == "g4dn.xlarge").unwrap();
    assert_eq!(gpu.capacity.get("nvidia.com/gpu").to_string(), "1");
}

#[tokio::test(start_paused = true)]
async fn a_marked_offering_is_hidden_for_three_minutes_and_only_its_type_is_resolved_anew() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    let before = scene.cloud.instance_types(&node_pool(), &class).await.unwrap();
    scene.cloud.mark_unavailable("m5.large", "us-west-2a", CapacityType::Spot);
    let after = scene.cloud.instance_types(&node_pool(), &class).await.unwrap();
    let changed: Vec<&str> = before
        .iter()
        .zip(&after)
        .filter(|(a, b)| !std::sync::Arc::ptr_eq(a, b))
        .map(|(a, _)| a.name.as_str())
        .collect();
    assert_eq!(changed, ["m5.large"]);
    let claim = node_claim("n", &[(labels::INSTANCE_TYPE_LABEL, &["m5.large"]), (labels::ZONE_LABEL, &["us-west-2a"])]);
    let wanted = Requirements::from_api(&claim.spec.requirements);
    let markets = async || {
        let types = scene.cloud.instance_types(&node_pool(), &class).await.unwrap();
        let m5 = types.iter().find(|kind| kind.name == "m5.large").unwrap().clone();
        m5.offerings_for(&wanted).map(|offering| offering.capacity_type).collect::<Vec<_>>()
    };
    assert_eq!(markets().await, [CapacityType::OnDemand]);
    pass(179).await;
    assert_eq!(markets().await, [CapacityType::OnDemand]);
    pass(1).await;
    assert_eq!(markets().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_price_list_without_bare_metal_is_not_believed() {
    let scene = Scene::new().await;
    scene
        .ec2
        .cloud()
        .fault(FaultRule::error("GetProducts", fake_ec2::ApiError::new(500, "InternalErrorException", "no")));
    assert!(scene.cloud.refresh_pricing().await.is_err());
    let class = scene.ready_class().await;
    let types = scene.cloud.instance_types(&node_pool(), &class).await.unwrap();
    assert!(types.iter().any(|kind| kind.offerings.iter().any(|offering| offering.available)), "old prices stand");
}
