//! Nodes and the pods that leave them.

use super::Vocabulary;
use crate::eventually::Seen;
use crate::things::has_taint;
use crate::world::World;
use anyhow::{Context, ensure};
use kube::ResourceExt;
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
    steps.add("event {string} is published on the node", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node_name().await?;
            world.event(arguments.text(0), "Node", &node, Duration::from_secs(10)).await
        })
    });
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
