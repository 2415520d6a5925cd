//! Instances after their launch: get, list, delete, tag, health, drift.

use crate::support::{Scene, instance_id, label, node_claim, pass, provider_id};
use controller_api::{NodeClaim, labels};
use controller_aws::UnhealthyCategory;
use controller_core::cloud::CloudProvider;
use fake_ec2::{FaultRule, Impairment};
use futures::future::join_all;
use std::collections::BTreeMap;

const ON_DEMAND: (&str, &[&str]) = (labels::CAPACITY_TYPE_LABEL, &["on-demand"]);
const M5_LARGE: (&str, &[&str]) = (labels::INSTANCE_TYPE_LABEL, &["m5.large"]);

async fn launched(scene: &Scene) -> NodeClaim {
    let class = scene.ready_class().await;
    scene.create(&node_claim("n-1", &[M5_LARGE, ON_DEMAND]), &class).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_deleted_by_asking_until_it_is_gone() {
    let scene = Scene::new().await;
    let claim = launched(&scene).await;
    assert_eq!(scene.cloud.get(provider_id(&claim)).await.unwrap().metadata.deletion_timestamp, None);
    pass(10).await;
    scene.cloud.delete(&claim).await.unwrap();
    scene.cloud.delete(&claim).await.unwrap();
    assert_eq!(scene.calls("TerminateInstances").len(), 1, "it is going already");
    assert!(scene.cloud.get(provider_id(&claim)).await.unwrap().metadata.deletion_timestamp.is_some());
    pass(60).await;
    assert!(scene.cloud.delete(&claim).await.unwrap_err().is_not_found());
    assert!(scene.cloud.get(provider_id(&claim)).await.unwrap_err().is_not_found());
    assert!(scene.cloud.list().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn throttled_calls_are_not_taken_apart_into_many() {
    let scene = Scene::new().await;
    scene.ec2.cloud().fault(FaultRule::throttled("DescribeInstances"));
    let ids = ["aws:///us-west-2a/i-1", "aws:///us-west-2a/i-2", "aws:///us-west-2a/i-3"];
    let outcomes = join_all(ids.map(|id| scene.cloud.get(id))).await;
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(|error| !error.is_not_found())));
    let calls = scene.calls("DescribeInstances").len();
    assert!(calls <= 3, "{calls} calls: one, and what the SDK repeats of it");
}

#[tokio::test(start_paused = true)]
async fn list_tells_what_each_instance_is_and_when_it_was_launched() {
    let scene = Scene::new().await;
    let claim = launched(&scene).await;
    let listed = scene.cloud.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    let only = &listed[0];
    assert_eq!(provider_id(only), provider_id(&claim));
    for key in [
        labels::INSTANCE_TYPE_LABEL,
        labels::ZONE_LABEL,
        labels::ZONE_ID_LABEL,
        labels::CAPACITY_TYPE_LABEL,
        labels::NODE_POOL_LABEL,
        labels::NODE_CLASS_LABEL,
        labels::ARCH_LABEL,
    ] {
        assert_eq!(label(only, key), label(&claim, key), "{key}");
    }
    let launched_at = only.metadata.creation_timestamp.as_ref().unwrap().0;
    assert!(scene.clock.now().duration_since(launched_at).as_secs() < 5);
}

#[tokio::test(start_paused = true)]
async fn describing_many_is_one_call_and_a_vanished_one_does_not_spoil_the_others() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    let claims: Vec<NodeClaim> = (0..3).map(|n| node_claim(&format!("n-{n}"), &[M5_LARGE, ON_DEMAND])).collect();
    let claims = join_all(claims.iter().map(|claim| scene.create(claim, &class))).await;
    let ids: Vec<String> = claims.iter().map(|claim| provider_id(claim.as_ref().unwrap()).to_owned()).collect();
    let found = join_all(ids.iter().map(|id| scene.cloud.get(id))).await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(scene.calls("DescribeInstances").len(), 1);
    let mut mixed = ids.clone();
    mixed.push("aws:///us-west-2a/i-00000000000000000".to_owned());
    let found = join_all(mixed.iter().map(|id| scene.cloud.get(id))).await;
    assert_eq!(found.iter().filter(|result| result.is_ok()).count(), 3);
    assert!(found[3].as_ref().unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn tagging_adds_what_is_missing_and_overwrites_nothing() {
    let scene = Scene::new().await;
    let claim = launched(&scene).await;
    scene.ec2.cloud().set_tags(instance_id(&claim), [("Name", "mine")]).unwrap();
    let tags = [("Name", "node-1"), ("karpenter.sh/nodeclaim", "n-1"), ("eks:eks-cluster-name", "demo")];
    let tags: BTreeMap<String, String> = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    scene.cloud.tag_instance(provider_id(&claim), &tags).await.unwrap();
    let instance = scene.ec2.cloud().instance(instance_id(&claim)).unwrap();
    assert_eq!((instance.tags["Name"].as_str(), instance.tags["karpenter.sh/nodeclaim"].as_str()), ("mine", "n-1"));
    scene.cloud.tag_instance(provider_id(&claim), &tags).await.unwrap();
    assert_eq!(scene.calls("CreateTags").len(), 1, "nothing is missing any more");
    assert_eq!(scene.cloud.list().await.unwrap()[0].metadata.name.as_deref(), Some("n-1"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_check_counts_after_two_minutes_and_an_event_at_once() {
    let scene = Scene::new().await;
    let claim = launched(&scene).await;
    let id = instance_id(&claim).to_owned();
    pass(200).await;
    let unhealthy = async || -> Vec<UnhealthyCategory> {
        let found = scene.cloud.describe_instance_status().await.unwrap();
        found.into_iter().filter(|status| status.instance_id == id).flat_map(|status| status.categories).collect()
    };
    assert_eq!(unhealthy().await, []);
    scene.ec2.cloud().impair(&id, Impairment::System, true).unwrap();
    pass(60).await;
    assert_eq!(unhealthy().await, []);
    pass(61).await;
    assert_eq!(unhealthy().await, [UnhealthyCategory::SystemStatus]);
    scene.ec2.cloud().impair(&id, Impairment::System, false).unwrap();
    assert_eq!(unhealthy().await, []);
    let later = "2026-02-01T00:00:00Z".parse().unwrap();
    scene.ec2.cloud().schedule_maintenance(&id, "instance-retirement", later).unwrap();
    assert_eq!(unhealthy().await, [UnhealthyCategory::EventStatus]);
}

#[tokio::test(start_paused = true)]
async fn drift_is_found_in_image_groups_and_subnet() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    let claim = scene.create(&node_claim("n-1", &[M5_LARGE, ON_DEMAND]), &class).await.unwrap();
    let drift = async |class: &controller_api::Ec2NodeClass| scene.cloud.drift_reason(&claim, class).await;
    assert_eq!(drift(&class).await.unwrap(), None);
    let mut other = class.clone();
    for ami in &mut other.status.as_mut().unwrap().amis {
        ami.id = format!("{}-new", ami.id);
    }
    assert_eq!(drift(&other).await.unwrap().as_deref(), Some("AMIDrift"));
    let mut other = class.clone();
    other.status.as_mut().unwrap().security_groups[0].id = "sg-other".to_owned();
    assert_eq!(drift(&other).await.unwrap().as_deref(), Some("SecurityGroupDrift"));
    let mut other = class.clone();
    for subnet in &mut other.status.as_mut().unwrap().subnets {
        subnet.id = format!("{}-other", subnet.id);
    }
    assert_eq!(drift(&other).await.unwrap().as_deref(), Some("SubnetDrift"));
    let mut other = class.clone();
    other.status.as_mut().unwrap().security_groups.clear();
    assert!(drift(&other).await.is_err(), "an empty status decides nothing");
}

#[tokio::test(start_paused = true)]
async fn real_memory_replaces_the_estimate_for_the_images_it_was_seen_with() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    let memory = async || {
        let types = scene.cloud.instance_types(&crate::support::node_pool(), &class).await.unwrap();
        types.iter().find(|kind| kind.name == "m5.large").unwrap().capacity.get("memory").to_string()
    };
    assert_eq!(memory().await, "7577Mi");
    let image = class.status.as_ref().unwrap().amis[0].id.clone();
    scene.cloud.record_memory(&class, "m5.large", "ami-foreign", "1Gi".parse().unwrap());
    assert_eq!(memory().await, "7577Mi");
    scene.cloud.record_memory(&class, "m5.large", &image, "7800Mi".parse().unwrap());
    assert_eq!(memory().await, "7800Mi");
    scene.cloud.record_memory(&class, "m5.large", &image, "7700Mi".parse().unwrap());
    scene.cloud.record_memory(&class, "m5.large", &image, "7750Mi".parse().unwrap());
    assert_eq!(memory().await, "7700Mi", "the least seen");
}
