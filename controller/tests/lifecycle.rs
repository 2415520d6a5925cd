//! NodeClaims and Nodes on their way out, classes that cannot be launched from, and what interruptions do: the whole
//! controller against a cluster and a cloud in memory, through the real clients.

#[allow(dead_code)] // Other tests use the rest of it.
#[path = "reconcile/world.rs"]
mod world;

use fake_ec2::FaultRule;
use fake_kube::{DeleteOptions, ListSelector, Resource, resources};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use world::World;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn classes() -> Resource {
    Resource::new("karpenter.k8s.aws", "v1", "ec2nodeclasses")
}

fn node_claims() -> Resource {
    Resource::new("karpenter.sh", "v1", "nodeclaims")
}

fn pools() -> Resource {
    Resource::new("karpenter.sh", "v1", "nodepools")
}

fn budgets() -> Resource {
    Resource::new("policy", "v1", "poddisruptionbudgets")
}

fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// A world in which this many pods run on one spot node.
async fn with_pods(replicas: u32) -> (World, world::Controller) {
    let mut world = World::new().await;
    let requirement = json!({ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"] });
    let spot = json!({ "spec": { "template": { "spec": { "requirements": [requirement] } } } });
    world.client.patch_merge(&pools(), None, "default", spot, None).unwrap();
    let controller = world.start_without_election();
    world.create_workload("web", replicas, "500m");
    world.eventually(5 * MINUTE, "the pods run", |world| world.running("web") == replicas as usize).await;
    (world, controller)
}

fn budget(world: &World, min_available: u32) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web", "namespace": "default" },
        "spec": { "minAvailable": min_available, "selector": { "matchLabels": { "app": "web" } } },
    });
    world.client.create(&budgets(), Some("default"), budget).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_passes_every_station_and_its_node_and_instance_show_it() {
    let (world, _controller) = with_pods(2).await;
    world.pass(5 * SECOND).await;
    let claim: Arc<Value> = world.node_claims()[0].clone();
    for type_ in ["Launched", "Registered", "Initialized", "Ready"] {
        assert_eq!(condition(&claim, type_)["status"], "True", "{type_} of {claim:#}");
        assert_eq!(condition(&claim, type_)["reason"], type_);
    }
    assert_eq!(claim["metadata"]["finalizers"], json!(["karpenter.sh/termination"]));
    assert_eq!(claim["metadata"]["annotations"]["karpenter.k8s.aws/tagged"], "true");
    assert!(claim["status"]["lastPodEventTime"].is_string());
    let node: Arc<Value> = world.nodes()[0].clone();
    assert_eq!(claim["status"]["nodeName"], node["metadata"]["name"]);
    assert_eq!(node["metadata"]["labels"]["karpenter.sh/registered"], "true");
    assert_eq!(node["metadata"]["labels"]["karpenter.sh/initialized"], "true");
    assert_eq!(node["metadata"]["finalizers"], json!(["karpenter.sh/termination"]));
    assert_eq!(node["metadata"]["ownerReferences"][0]["name"], claim["metadata"]["name"]);
    assert_eq!(node["spec"]["taints"].as_array().map_or(0, Vec::len), 0, "{:#}", node["spec"]);
    let instance = &world.running_instances()[0];
    assert_eq!(instance.tags["Name"], name(&node));
    assert_eq!(instance.tags["karpenter.sh/nodeclaim"], name(&claim));
    let pool = world.client.get(&pools(), None, "default").unwrap();
    assert_eq!(pool["status"]["nodes"], 1);
    assert_eq!(condition(&pool, "NodeRegistrationHealthy")["status"], "True", "{pool:#}");
    world.pass(MINUTE).await;
    assert_eq!(condition(&world.node_claims()[0], "Consolidatable")["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_is_fenced_and_drained_before_its_instance_goes() {
    let (world, _controller) = with_pods(3).await;
    let node = name(&world.nodes()[0]);
    world.client.delete(&resources::NODES, None, &node, DeleteOptions::default()).unwrap();
    world.pass(2 * SECOND).await;
    let fenced = world.client.get(&resources::NODES, None, &node).unwrap();
    assert_eq!(fenced["spec"]["taints"], json!([{ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" }]));
    let labels = &fenced["metadata"]["labels"];
    assert_eq!(labels["node.kubernetes.io/exclude-from-external-load-balancers"], "karpenter");
    let gone = |world: &World| world.client.get(&resources::NODES, None, &node).is_err();
    world
        .eventually(5 * MINUTE, "the node goes and the pods run elsewhere", |world| {
            gone(world) && world.running("web") == 3
        })
        .await;
    world.eventually(MINUTE, "one claim is left", |world| world.node_claims().len() == 1).await;
    assert_eq!(world.running_instances().len(), 1);
    assert!(world.events("Evicted").iter().any(|message| message == "Evicted pod: Forceful Termination"));
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_heard_and_the_refusal_told() {
    let (world, _controller) = with_pods(3).await;
    budget(&world, 3);
    world.pass(SECOND).await;
    let node = name(&world.nodes()[0]);
    let claim = name(&world.node_claims()[0]);
    world.client.delete(&node_claims(), None, &claim, DeleteOptions::default()).unwrap();
    world.pass(3 * MINUTE).await;
    assert!(world.client.get(&resources::NODES, None, &node).is_ok(), "nothing forces the drain");
    assert_eq!(world.running("web"), 3);
    let told = world.events("FailedDraining");
    assert!(
        told.iter().any(|message| message.contains("evicting pod violates a PDB")
            || message.contains("3 pods are waiting to be evicted")),
        "{told:?}"
    );
    world.client.delete(&budgets(), Some("default"), "web", DeleteOptions::default()).unwrap();
    world
        .eventually(2 * MINUTE, "the node goes", |world| world.client.get(&resources::NODES, None, &node).is_err())
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_grace_period_ends_the_patience_with_a_budget() {
    let mut world = World::new().await;
    let pool = json!({ "spec": { "template": { "spec": { "terminationGracePeriod": "2m" } } } });
    world.client.patch_merge(&pools(), None, "default", pool, None).unwrap();
    let _controller = world.start_without_election();
    world.create_workload("web", 2, "500m");
    world.eventually(5 * MINUTE, "the pods run", |world| world.running("web") == 2).await;
    budget(&world, 2);
    let node = name(&world.nodes()[0]);
    let claim = name(&world.node_claims()[0]);
    world.client.delete(&node_claims(), None, &claim, DeleteOptions::default()).unwrap();
    world.pass(MINUTE).await;
    let deleting = world.client.get(&node_claims(), None, &claim).unwrap();
    assert!(deleting["metadata"]["annotations"]["karpenter.sh/nodeclaim-termination-timestamp"].is_string());
    assert!(world.client.get(&resources::NODES, None, &node).is_ok());
    world
        .eventually(2 * MINUTE, "the node goes", |world| world.client.get(&resources::NODES, None, &node).is_err())
        .await;
    assert!(!world.events("TerminationGracePeriodExpiring").is_empty());
    assert!(!world.events("Disrupted").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_spot_notice_replaces_the_node_before_the_reclaim() {
    let (world, _controller) = with_pods(4).await;
    let instance = world.running_instances()[0].clone();
    let before = name(&world.node_claims()[0]);
    world.ec2.cloud().interrupt(&instance.id).unwrap();
    world.pass(5 * SECOND).await;
    let claims = world.node_claims();
    assert!(claims.iter().any(|claim| name(claim) == before && claim["metadata"]["deletionTimestamp"].is_string()));
    world
        .eventually(115 * SECOND, "the pods run elsewhere", |world| {
            world.running("web") == 4 && world.node_claims().iter().all(|claim| name(claim) != before)
        })
        .await;
    assert!(!world.events("SpotInterrupted").is_empty());
    assert!(!world.events("TerminatingOnInterruption").is_empty());
    assert_eq!(world.ec2.cloud().queue_counts("demo").unwrap().0, 0, "the message is deleted");
}

#[tokio::test(start_paused = true)]
async fn malformed_and_foreign_messages_are_deleted_and_the_loop_goes_on() {
    let (world, _controller) = with_pods(1).await;
    let cloud = world.ec2.cloud();
    for body in [
        "not json",
        "{}",
        r#"{"version":"0","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","time":"noon"}"#,
    ] {
        cloud.send_raw_message("demo", body).unwrap();
    }
    world.pass(30 * SECOND).await;
    assert_eq!(world.ec2.cloud().queue_counts("demo").map(|(a, b, c)| a + b + c), Some(0));
    let instance = world.running_instances()[0].clone();
    world.ec2.cloud().interrupt(&instance.id).unwrap();
    world
        .eventually(MINUTE, "the notice is acted on", |world| !world.events("TerminatingOnInterruption").is_empty())
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_dies_takes_its_claim_along() {
    let (world, _controller) = with_pods(1).await;
    let instance = world.running_instances()[0].clone();
    let before = name(&world.node_claims()[0]);
    world.ec2.cloud().kill(&instance.id).unwrap();
    let node = name(&world.nodes()[0]);
    let lost = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    world.client.patch_merge(&resources::NODES, None, &node, lost, Some("status")).unwrap();
    world
        .eventually(5 * MINUTE, "the claim goes and the pod runs elsewhere", |world| {
            world.node_claims().iter().all(|claim| name(claim) != before) && world.running("web") == 1
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_discovery_tag_is_explained_and_heals() {
    let mut world = World::new().await;
    let subnets: Vec<String> = world.ec2.cloud().subnets().iter().map(|subnet| subnet.id.clone()).collect();
    for subnet in &subnets {
        world.ec2.cloud().set_tags(subnet, [("karpenter.sh/discovery", "other")]).unwrap();
    }
    let _controller = world.start_without_election();
    world.create_workload("web", 1, "500m");
    world.pass(2 * MINUTE).await;
    let class = world.client.get(&classes(), None, "default").unwrap();
    let ready = condition(&class, "SubnetsReady");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("SubnetsNotFound")), "{class:#}");
    assert_eq!(ready["message"], "SubnetSelector did not match any Subnets");
    let pool = world.client.get(&pools(), None, "default").unwrap();
    assert_eq!(condition(&pool, "NodeClassReady")["status"], "False");
    let told = world.events("SubnetsNotFound");
    let near = format!(
        "{} subnets carry the key karpenter.sh/discovery with another value: other ({})",
        subnets.len(),
        subnets.len()
    );
    assert_eq!(told.iter().filter(|message| message.contains(&near)).count(), 2, "class and pod: {told:?}");
    assert!(world.node_claims().is_empty());
    for subnet in &subnets {
        world.ec2.cloud().set_tags(subnet, [("karpenter.sh/discovery", "demo")]).unwrap();
    }
    world.eventually(3 * MINUTE, "the pod runs", |world| world.running("web") == 1).await;
    let transitions = world.events("SubnetsReady");
    assert!(
        transitions.iter().any(|message| message
            == "Status condition transitioned, Type: SubnetsReady, Status: False -> True, Reason: SubnetsReady"),
        "{transitions:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_class_waits_for_its_claims_and_cleans_up() {
    let (world, _controller) = with_pods(1).await;
    world.client.delete(&classes(), None, "default", DeleteOptions::default()).unwrap();
    world.pass(5 * SECOND).await;
    assert!(world.client.get(&classes(), None, "default").is_ok());
    assert!(!world.events("WaitingOnNodeClaimTermination").is_empty());
    world.scale("web", 0);
    world
        .eventually(10 * MINUTE, "the class goes", |world| world.client.get(&classes(), None, "default").is_err())
        .await;
    assert!(world.ec2.cloud().instance_profiles().is_empty());
    assert!(world.ec2.cloud().launch_templates().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_its_class_is_given_up() {
    let mut world = World::new().await;
    let _controller = world.start_without_election();
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": { "name": "alone" },
        "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "missing" },
            "requirements": [],
        },
    });
    world.client.create(&node_claims(), None, claim).unwrap();
    world.eventually(MINUTE, "a claim without a class is given up", |world| world.node_claims().is_empty()).await;
    assert!(!world.events("InsufficientCapacityError").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_the_launch_leaks_no_instance() {
    let mut world = World::new().await;
    let first = world.start_without_election();
    world.create_workload("web", 1, "500m");
    let launched = |world: &World| !world.ec2.cloud().instances().is_empty();
    let deadline = tokio::time::Instant::now() + 5 * MINUTE;
    while !launched(&world) {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.abort();
    let _second = world.start_without_election();
    world.eventually(5 * MINUTE, "the pod runs", |world| world.running("web") == 1).await;
    world.pass(5 * MINUTE).await;
    assert_eq!(world.running_instances().len(), 1);
    assert_eq!(world.node_claims().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_no_claim_knows_is_terminated_with_its_node() {
    let (world, controller) = with_pods(1).await;
    controller.abort();
    let (claim, node) = (name(&world.node_claims()[0]), name(&world.nodes()[0]));
    let instance = world.running_instances()[0].id.clone();
    world
        .client
        .patch_merge(&node_claims(), None, &claim, json!({ "metadata": { "finalizers": null } }), None)
        .unwrap();
    world.client.delete(&node_claims(), None, &claim, DeleteOptions::default()).unwrap();
    let mut world = world;
    let _again = world.start_without_election();
    world
        .eventually(5 * MINUTE, "instance and node are gone, and the pod runs elsewhere", |world| {
            world.running_instances().iter().all(|running| running.id != instance)
                && world.client.get(&resources::NODES, None, &node).is_err()
                && world.running("web") == 1
        })
        .await;
    assert_eq!(world.running_instances().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn failing_launches_are_backed_off_and_given_up_after_five_minutes() {
    let mut world = World::new().await;
    let _controller = world.start_without_election();
    world.pass(30 * SECOND).await;
    let fault = world.ec2.cloud().fault(FaultRule::unauthorized("CreateFleet"));
    let fleets = |world: &World| {
        world.ec2.cloud().journal().iter().filter(|entry| entry.action == "CreateFleet" && entry.status != 412).count()
    };
    let before = fleets(&world);
    world.create_workload("web", 1, "500m");
    world.pass(4 * MINUTE).await;
    let claim = world.node_claims()[0].clone();
    let launched = condition(&claim, "Launched");
    assert_eq!(launched["status"], "Unknown", "{claim:#}");
    assert!(launched["message"].as_str().is_some_and(|message| !message.is_empty()));
    let tried = fleets(&world) - before;
    assert!((4..=12).contains(&tried), "{tried} launches in four minutes");
    world
        .eventually(2 * MINUTE, "the claim is given up", |world| {
            world.node_claims().iter().all(|present| name(present) != name(&claim))
        })
        .await;
    assert!(world.metrics.text().contains(r#"reason="launch_timeout""#));
    world.ec2.cloud().remove_fault(fault);
    world.eventually(10 * MINUTE, "the pod runs", |world| world.running("web") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_must_not_be_disrupted_holds_the_drain_and_the_node_says_so() {
    let (world, _controller) = with_pods(2).await;
    let pods = world.client.list(&resources::PODS, Some("default"), &ListSelector::default());
    let annotation = json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } });
    world.client.patch_merge(&resources::PODS, Some("default"), &name(&pods[0]), annotation, None).unwrap();
    let (claim, node) = (name(&world.node_claims()[0]), name(&world.nodes()[0]));
    world.client.delete(&node_claims(), None, &claim, DeleteOptions::default()).unwrap();
    world.pass(10 * MINUTE).await;
    assert!(world.client.get(&resources::NODES, None, &node).is_ok());
    let kept = world.client.get(&resources::PODS, Some("default"), &name(&pods[0])).unwrap();
    assert!(kept["metadata"]["deletionTimestamp"].is_null());
    let told = world.events("FailedDraining");
    let held = format!("Failed to drain node, pod default/{} has karpenter.sh/do-not-disrupt", name(&pods[0]));
    assert!(told.contains(&held), "{told:?}");
}
