//! Nodes and the pods that leave them.

use super::Vocabulary;
use crate::eventually::Seen;
use crate::things::{describe, has_taint, is_ready};
use crate::world::{Moment, World};
use anyhow::{Context, ensure};
use controller_api::NodeClaim;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("the node carries the label {string} with value {string}", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node().await?.context("the NodeClaim has no node")?;
            let value = node.labels().get(arguments.text(0));
            ensure!(value.map(String::as_str) == Some(arguments.text(1)), "the value is {value:?}");
            Ok(())
        })
    });
    steps.add("the node carries the annotation {string} with value {string}", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node().await?.context("the NodeClaim has no node")?;
            let value = node.annotations().get(arguments.text(0));
            ensure!(value.map(String::as_str) == Some(arguments.text(1)), "the value is {value:?}");
            Ok(())
        })
    });
    steps.add("the labels of the node agree with the instance and the NodeClaim", |world, _| {
        Box::pin(async move { labels_agree(world).await })
    });
    steps.add("the node has the finalizer {string}", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node().await?.context("the NodeClaim has no node")?;
            let finalizers = node.finalizers();
            ensure!(finalizers.iter().any(|name| name == arguments.text(0)), "it has {finalizers:?}");
            Ok(())
        })
    });
    steps.add("the node is Ready between {duration} and {duration} after the launch", |world, arguments| {
        Box::pin(async move {
            let (from, to) = (arguments.duration(0), arguments.duration(1));
            world
                .by("the node is Ready", Moment::Launch, to, async || {
                    let node = world.subject_node().await?;
                    let is_ready = node.as_ref().is_some_and(is_ready);
                    Ok(Seen::when(is_ready, (), || format!("{:?}", node.and_then(|node| node.status))))
                })
                .await?;
            let after = Duration::try_from(world.now().duration_since(world.moment(Moment::Launch)?))?;
            ensure!(after >= from, "it was Ready {after:?} after the launch");
            Ok(())
        })
    });
    steps.add("the node is annotated {string} with {string}", |world, arguments| {
        Box::pin(async move {
            let annotations = json!({ arguments.text(0): arguments.text(1) });
            patch_node(world, json!({"metadata": {"annotations": annotations}})).await
        })
    });
    steps.add("taint {string} is taken off the node", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node().await?.context("the NodeClaim has no node")?;
            let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let before = taints.len();
            taints.retain(|taint| taint.key != arguments.text(0));
            ensure!(taints.len() < before, "the node has no such taint: {taints:?}");
            patch_node(world, json!({"spec": {"taints": taints}})).await
        })
    });
    steps.add("somebody deletes the node", |world, _| {
        Box::pin(async move {
            let name = world.subject_node_name().await?;
            Api::<Node>::all(world.kube()).delete(&name, &DeleteParams::background()).await?;
            Ok(())
        })
    });
    steps.add("somebody deletes the NodeClaim", |world, _| {
        Box::pin(async move {
            world.subject_node_name().await?;
            let name = world.subject().await?.node_claim;
            Api::<NodeClaim>::all(world.kube()).delete(&name, &DeleteParams::background()).await?;
            Ok(())
        })
    });
    steps.add("the node is gone within {duration}", |world, arguments| {
        Box::pin(async move {
            let name = world.subject_node_name().await?;
            world
                .eventually("the node is gone", arguments.duration(0), async || {
                    let node = Api::<Node>::all(world.kube()).get_opt(&name).await?;
                    Ok(Seen::when(node.is_none(), (), || format!("{:?}", node.map(|node| node.metadata))))
                })
                .await
        })
    });
    steps.add("the node has the taint {string} within {duration}", |world, arguments| {
        Box::pin(async move {
            world
                .eventually("the node is tainted", arguments.duration(1), async || {
                    let node = world.subject_node().await?.context("the NodeClaim has no node")?;
                    let taints = node.spec.clone().and_then(|spec| spec.taints);
                    Ok(Seen::when(has_taint(&node, arguments.text(0)), (), || format!("{taints:?}")))
                })
                .await
        })
    });
    steps.add("the node is not tainted {string}", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node().await?.context("the NodeClaim has no node")?;
            ensure!(!has_taint(&node, arguments.text(0)), "it is");
            Ok(())
        })
    });
    steps.add("the pods left the node by eviction", |world, _| Box::pin(async move { left_by_eviction(world).await }));
    steps.add("the pods left the node by eviction within {duration}", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node_name().await?;
            world
                .eventually("no pod of a workload is on the node", arguments.duration(0), async || {
                    let pods = world.workload_pods_on(&node).await?;
                    Ok(Seen::when(pods.is_empty(), (), || describe(&pods)))
                })
                .await?;
            left_by_eviction(world).await
        })
    });
    steps.add("volume {string} is attached to the node", |world, arguments| {
        Box::pin(async move {
            let volume = arguments.text(0);
            let attachment = serde_json::from_value(json!({
                "metadata": {"name": attachment_of(volume)},
                "spec": {
                    "attacher": "ebs.csi.aws.com",
                    "nodeName": world.subject_node_name().await?,
                    "source": {"persistentVolumeName": volume},
                },
            }))?;
            Api::<VolumeAttachment>::all(world.kube()).create(&PostParams::default(), &attachment).await?;
            Ok(())
        })
    });
    steps.add("volume {string} is detached from the node", |world, arguments| {
        Box::pin(async move {
            let name = attachment_of(arguments.text(0));
            Api::<VolumeAttachment>::all(world.kube()).delete(&name, &DeleteParams::default()).await?;
            Ok(())
        })
    });
    steps.add("event {string} is published on the node", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node_name().await?;
            world.event(arguments.text(0), "Node", &node, Duration::from_secs(10)).await
        })
    });
}

fn attachment_of(volume: &str) -> String {
    format!("csi-{volume}")
}

async fn patch_node(world: &World, patch: Value) -> anyhow::Result<()> {
    let name = world.subject_node_name().await?;
    Api::<Node>::all(world.kube()).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// What the node says of its instance is so, and its NodeClaim says the same.
async fn labels_agree(world: &World) -> anyhow::Result<()> {
    let instance = world.subject_instance().await?;
    let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
    let node = world.subject_node().await?.context("the NodeClaim has no node")?;
    let market = if instance.spot { "spot" } else { "on-demand" };
    let wanted = [
        ("node.kubernetes.io/instance-type", Some(instance.instance_type.as_str())),
        ("topology.kubernetes.io/zone", Some(&instance.zone)),
        ("karpenter.sh/capacity-type", Some(market)),
        ("kubernetes.io/arch", None),
        ("kubernetes.io/os", None),
        ("karpenter.sh/nodepool", None),
    ];
    for (key, of_instance) in wanted {
        let (of_node, of_claim) = (node.labels().get(key), claim.labels().get(key));
        ensure!(
            of_node.is_some() && of_node == of_claim,
            "{key} is {of_node:?} on the node, {of_claim:?} on its claim"
        );
        let agrees = of_instance.is_none_or(|value| of_node.is_some_and(|of_node| of_node == value));
        ensure!(agrees, "{key} is {of_node:?}, of the instance {of_instance:?}");
    }
    Ok(())
}

/// Every pod of a workload that was deleted on the node since it was known went by the eviction API, never by a plain
/// delete, which would ignore the budgets. A kubelet's own removal of a pod that has stopped does not count.
async fn left_by_eviction(world: &World) -> anyhow::Result<()> {
    let removals = world.controller_pod_removals();
    ensure!(!removals.is_empty(), "the controller evicted nothing");
    let deleted: Vec<String> =
        removals.iter().filter(|removal| !removal.eviction).map(|removal| removal.pod.clone()).collect();
    ensure!(deleted.is_empty(), "deleted and not evicted: {}", deleted.join(", "));
    Ok(())
}
