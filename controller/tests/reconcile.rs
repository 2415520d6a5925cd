//! The whole controller against a cluster and a cloud in memory, through the real clients.

#[path = "reconcile/world.rs"]
mod world;

use fake_kube::resources;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use world::World;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn pods_without_a_place_get_one_node_and_an_empty_node_goes() {
    let mut world = World::new().await;
    let controller = world.start("replica");
    world.create_workload("web", 10, "500m");
    world.eventually(5 * MINUTE, "ten pods run", |world| world.running("web") == 10).await;
    assert_eq!(world.node_claims().len(), 1, "ten pods of 500m share one node");
    assert_eq!(world.running_instances().len(), 1);
    let claim = &world.node_claims()[0];
    assert_eq!(claim["metadata"]["labels"]["karpenter.sh/nodepool"], "default");
    assert!(!world.events("Nominated").is_empty(), "pods are told where they will go");

    world.scale("web", 0);
    world
        .eventually(5 * MINUTE, "the node is gone", |world| {
            world.node_claims().is_empty() && world.nodes().is_empty() && world.running_instances().is_empty()
        })
        .await;
    assert!(!world.events("DisruptionTerminating").is_empty());
    let text = world.metrics.text();
    for line in [
        r#"karpenter_nodeclaims_created_total{reason="provisioned",nodepool="default",min_values_relaxed="false"} 1"#,
        r#"karpenter_voluntary_disruption_decisions_total{decision="delete",reason="empty",consolidation_type="empty"} 1"#,
        "karpenter_pods_startup_duration_seconds_count 10",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    world.stop(controller).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_nowhere_is_told_why_and_nothing_is_launched() {
    let mut world = World::new().await;
    let _controller = world.start("replica");
    world.create_workload("huge", 1, "5000");
    world
        .eventually(MINUTE, "the pod is told", |world| {
            world.events("FailedScheduling").iter().any(|message| message.starts_with("Failed to schedule pod, "))
        })
        .await;
    world.pass(5 * MINUTE).await;
    assert!(world.node_claims().is_empty());
    assert!(world.running_instances().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_during_the_wait_keeps_its_node() {
    let mut world = World::new().await;
    let _controller = world.start("replica");
    world.create_workload("web", 1, "500m");
    world.eventually(5 * MINUTE, "the pod runs", |world| world.running("web") == 1).await;
    let node = world.node_claims()[0]["metadata"]["name"].clone();
    world.pass(2 * MINUTE).await;
    for _ in 0..5 {
        world.scale("web", 0);
        world.pass(Duration::from_secs(7)).await;
        world.scale("web", 1);
        world.pass(Duration::from_secs(20)).await;
    }
    assert_eq!(world.running("web"), 1);
    assert_eq!(world.node_claims()[0]["metadata"]["name"], node);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_next_run_takes_the_taint_off_and_goes_on() {
    let mut world = World::new().await;
    let controller = world.start("first");
    world.create_workload("web", 1, "500m");
    world.eventually(5 * MINUTE, "the pod runs", |world| world.running("web") == 1).await;
    controller.abort();
    let node = world.node_name();
    let taints = json!({ "spec": { "taints": [{ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" }] } });
    world.client.patch_merge(&resources::NODES, None, &node, taints, None).unwrap();
    let _again = world.start("second");
    world
        .eventually(MINUTE, "the taint is gone", |world| {
            world.nodes()[0]["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
        })
        .await;
    assert_eq!(world.running("web"), 1);
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_one_works_and_the_other_takes_over() {
    let mut world = World::new().await;
    let first = world.start("first");
    world.pass(Duration::from_secs(5)).await;
    let _second = world.start("second");
    world.create_workload("web", 1, "500m");
    world.eventually(5 * MINUTE, "the pod runs", |world| world.running("web") == 1).await;
    assert_eq!(world.node_claims().len(), 1, "two replicas do not launch twice");
    world.stop(first).await;
    world.create_workload("more", 20, "1");
    world.eventually(5 * MINUTE, "the other replica provisions", |world| world.running("more") == 20).await;
}

#[tokio::test(start_paused = true)]
async fn losing_the_lease_ends_the_run_with_an_error() {
    let mut world = World::new().await;
    let controller = world.start("first");
    world.pass(Duration::from_secs(10)).await;
    let lease = world.client.get(&resources::LEASES, Some("kube-system"), "karpenter-leader-election").unwrap();
    let mut taken = (*lease).clone();
    taken["spec"]["holderIdentity"] = "somebody else".into();
    world.client.update(&resources::LEASES, Some("kube-system"), taken).unwrap();
    let error = controller.outcome().await.unwrap_err();
    assert!(error.to_string().starts_with("leader election lost"), "{error:#}");
}

#[tokio::test(start_paused = true)]
async fn a_pool_never_has_more_than_its_limits() {
    let mut world = World::new().await;
    world.change_pool(json!({ "spec": { "limits": { "cpu": "8" } } }));
    let _controller = world.start("replica");
    world.create_workload("web", 20, "1");
    world.pass(10 * MINUTE).await;
    let cores =
        |claim: &Arc<Value>| claim["status"]["capacity"]["cpu"].as_str().and_then(|cpu| cpu.parse::<u32>().ok());
    let total: u32 = world.node_claims().iter().filter_map(cores).sum();
    assert_eq!(total, 8, "all of the limit and no more");
    assert!(world.events("FailedScheduling").iter().any(|message| message.contains("limits")));
}

#[tokio::test(start_paused = true)]
async fn without_discovery_tags_pods_are_told_and_tags_heal_it() {
    let mut world = World::new().await;
    world.lose_subnet_tags();
    let _controller = world.start("replica");
    world.create_workload("web", 1, "500m");
    world
        .eventually(2 * MINUTE, "the pod is told", |world| {
            world.events("FailedScheduling").iter().any(|message| message.contains("no dynamic nodepools found"))
        })
        .await;
    assert!(world.running_instances().is_empty());
    world.set_subnet_tags();
    world.eventually(5 * MINUTE, "the pod runs", |world| world.running("web") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_forbids_disruption_stays_and_says_why() {
    let mut world = World::new().await;
    let _controller = world.start("replica");
    world.create_workload("web", 1, "500m");
    world.eventually(5 * MINUTE, "the pod runs", |world| world.running("web") == 1).await;
    let claim = world.node_claims()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let annotation = json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } });
    world.client.patch_merge(&resources::NODES, None, &world.node_name(), annotation, None).unwrap();
    world.scale("web", 0);
    world.pass(10 * MINUTE).await;
    assert_eq!(world.node_claims()[0]["metadata"]["name"], claim.as_str());
    let told = world.events("DisruptionBlocked");
    assert!(told.iter().any(|message| message.contains("karpenter.sh/do-not-disrupt")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_day_asks_little_of_anybody() {
    let mut world = World::new().await;
    let _controller = world.start_without_election();
    world.create_workload("web", 3, "500m");
    world.eventually(5 * MINUTE, "the pods run", |world| world.running("web") == 3).await;
    world.pass(30 * MINUTE).await;
    let before = world.writes();
    world.pass(24 * 60 * MINUTE).await;
    let written = world.writes() - before;
    assert!(written < 500, "{written} writes in a day in which nothing happened");
    assert_eq!(world.node_claims().len(), 1);
}
