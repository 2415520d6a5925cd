//! The definitions this server exists for: Karpenter's, as the chart installs them.

use serde_json::{Value, json};

use crate::kit::*;

const DEFINITIONS: [&str; 3] = [
    include_str!("../../../deploy/chart/crds/karpenter.sh_nodepools.yaml"),
    include_str!("../../../deploy/chart/crds/karpenter.sh_nodeclaims.yaml"),
    include_str!("../../../deploy/chart/crds/karpenter.k8s.aws_ec2nodeclasses.yaml"),
];

const POOLS: &str = "/apis/karpenter.sh/v1/nodepools";

fn karpenter() -> Kit {
    let kit = Kit::new();
    for text in DEFINITIONS {
        kit.kube.install_crd(serde_yaml_ng::from_str(text).unwrap()).unwrap();
    }
    kit
}

fn pool(change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({
        "template": { "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
            "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"] }],
        } },
    });
    change(&mut spec);
    json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" }, "spec": spec })
}

async fn refused(kit: &Kit, change: impl FnOnce(&mut Value)) -> String {
    let (code, status) = kit.post(POOLS, pool(change)).await;
    assert_eq!(code, 422, "{status:#}");
    text(&status["message"]).to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_small_pool_is_filled_with_its_defaults() {
    let kit = karpenter();
    let made = kit.made(POOLS, pool(|_| {})).await;
    assert_eq!(
        made["spec"]["disruption"],
        json!({
            "consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{ "nodes": "10%" }],
        })
    );
    assert_eq!(made["spec"]["template"]["spec"]["expireAfter"], "720h");
}

#[tokio::test(start_paused = true)]
async fn wrong_pools_are_refused_by_path() {
    let kit = karpenter();
    let message = refused(&kit, |spec| spec["limits"] = json!({ "cpu": "lots" })).await;
    assert!(
        message.contains("spec.limits.cpu: Invalid value: \"lots\": spec.limits.cpu in body should match"),
        "{message}"
    );
    let message = refused(&kit, |spec| {
        spec["template"]["spec"]["requirements"][0]["operator"] = json!("Is");
    })
    .await;
    assert!(
        message.contains("spec.template.spec.requirements[0].operator: Unsupported value: \"Is\": supported values: "),
        "{message}"
    );
    let message = refused(&kit, |spec| spec["template"]["spec"]["requirements"][0]["values"] = json!([])).await;
    assert!(message.contains("requirements with operator 'In' must have a value defined"), "{message}");
    let message = refused(&kit, |spec| {
        spec["template"]["spec"]["requirements"][0]["key"] = json!("karpenter.sh/nodepool");
    })
    .await;
    assert!(message.contains("label \"karpenter.sh/nodepool\" is restricted"), "{message}");
    let message = refused(&kit, |spec| spec["weight"] = json!(101)).await;
    assert!(message.contains("spec.weight in body should be less than or equal to 100"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn the_node_class_of_a_pool_keeps_its_kind() {
    let kit = karpenter();
    kit.made(POOLS, pool(|_| {})).await;
    let path = format!("{POOLS}/default");
    let patch = json!({ "spec": { "template": { "spec": { "nodeClassRef": { "kind": "OtherNodeClass" } } } } });
    let (code, status) = kit.merge(&path, patch).await;
    assert_eq!(code, 422);
    assert!(text(&status["message"]).contains("nodeClassRef.kind is immutable"), "{status:#}");
    let (code, _) = kit.merge(&path, json!({ "spec": { "weight": 3 } })).await;
    assert_eq!(code, 200);
}
