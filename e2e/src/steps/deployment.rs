//! How the controller is deployed: its settings, its place, the CRDs, and node groups that are not its own.

use super::Vocabulary;
use crate::backend::CONTROLLER;
use crate::control_plane::is_established;
use crate::eventually::Seen;
use crate::things::is_ready;
use crate::world::World;
use anyhow::{Context, bail, ensure};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a controller may take to end that cannot work.
const ENDED_WITHIN: Duration = Duration::from_secs(30);

/// What belongs to Karpenter on a Node that is none of its own.
const KARPENTER: &str = "karpenter";

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("environment variable {string} of the controller is {string}", |world, arguments| {
        Box::pin(async move {
            world.backend().set_environment(arguments.text(0), Some(arguments.text(1)));
            Ok(())
        })
    });
    steps.add("environment variable {string} of the controller is not set", |world, arguments| {
        Box::pin(async move {
            world.backend().set_environment(arguments.text(0), None);
            Ok(())
        })
    });
    steps.add("the controller does not start and says {string}", |world, arguments| {
        Box::pin(async move {
            let end = match world.backend().start_controller(0).await {
                Ok(()) => end_of_controller(world).await?,
                Err(error) => error,
            };
            // Its last words, or a line before them.
            let told = format!("{end:#}");
            let logged = world.recorder().logs().iter().any(|line| line.message.contains(arguments.text(0)));
            ensure!(logged || told.contains(arguments.text(0)), "it says: {told}");
            Ok(())
        })
    });
    steps.add("the controller runs on the node", |world, _| {
        Box::pin(async move {
            let node = world.subject_node_name().await?;
            world.backend().place_controller(&node);
            world.backend().kill_controller(0).await?;
            world.backend().start_controller(0).await
        })
    });
    steps.add("the controller runs on the node of managed node group {string}", |world, arguments| {
        Box::pin(async move {
            let node = group_node(world, arguments.text(0)).await?.context("the group has no node")?.name_any();
            world.backend().place_controller(&node);
            world.backend().kill_controller(0).await?;
            world.backend().start_controller(0).await
        })
    });
    steps.add("the controller wrote no Deployment and no ReplicaSet", |world, _| {
        Box::pin(async move {
            let deployments = world.list::<Deployment>().await?.into_iter().map(|d| ("deployments", d.metadata));
            let sets = world.list::<ReplicaSet>().await?.into_iter().map(|set| ("replicasets", set.metadata));
            let mut seen = 0;
            for (resource, meta) in deployments.chain(sets) {
                let object =
                    format!("{resource}/{}/{}", meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default());
                let writers = world.recorder().writers(&object);
                // Some were there before the scenario.
                seen += usize::from(!writers.is_empty());
                ensure!(!by_controller(&writers), "{object} was written by {writers:?}");
            }
            ensure!(seen > 0, "nobody is known to have written any of them");
            Ok(())
        })
    });
    steps.add("the CRDs are not installed", |world, _| {
        Box::pin(async move {
            let api = Api::<CustomResourceDefinition>::all(world.kube());
            for crd in controller_api::crds() {
                api.delete(&crd.name_any(), &DeleteParams::default()).await?;
            }
            Ok(())
        })
    });
    steps.add("the CRDs are installed", |world, _| {
        Box::pin(async move {
            let api = Api::<CustomResourceDefinition>::all(world.kube());
            let definitions = controller_api::crds();
            for crd in &definitions {
                api.create(&PostParams::default(), crd).await?;
            }
            // As `kubectl wait --for condition=Established` does.
            let limit = Duration::from_secs(30);
            world
                .eventually("the CRDs are established", limit, async || {
                    let list = api.list(&Default::default()).await?;
                    let ours = |crd: &&CustomResourceDefinition| {
                        definitions.iter().any(|own| own.name_any() == crd.name_any())
                    };
                    let established = list.iter().filter(ours).filter(|crd| is_established(crd)).count();
                    let all = established == definitions.len();
                    Ok(Seen::when(all, (), || format!("{established} of {} are", definitions.len())))
                })
                .await?;
            // A genuine server takes a moment more until it serves what is established.
            world
                .eventually("the new kinds are served", limit, async || {
                    let nodes = world.node_claims().await;
                    Ok(Seen::when(nodes.is_ok(), (), || format!("{nodes:?}")))
                })
                .await
        })
    });
    steps.add("managed node group {string} grows by a node", |world, arguments| {
        Box::pin(async move {
            let group = arguments.text(0);
            let instance = world.cloud().launch_in_node_group(group).await?;
            world.strays.insert(group.to_owned(), instance);
            Ok(())
        })
    });
    steps.add("the node of managed node group {string} is Ready within {duration}", |world, arguments| {
        Box::pin(async move {
            let group = arguments.text(0);
            world
                .eventually("the node of the group is Ready", arguments.duration(1), async || {
                    let node = group_node(world, group).await?;
                    let is_ready = node.as_ref().is_some_and(is_ready);
                    Ok(Seen::when(is_ready, (), || format!("{:?}", node.and_then(|node| node.status))))
                })
                .await
        })
    });
    steps.add("pod {string} runs on the node of managed node group {string} within {duration}", |world, arguments| {
        Box::pin(async move {
            let name = arguments.text(0);
            let node = group_node(world, arguments.text(1)).await?.context("the group has no node")?.name_any();
            world.pod_runs_on(name, &node, arguments.duration(2)).await
        })
    });
    steps.add(
        "a spot interruption message arrives for the instance of managed node group {string}",
        |world, arguments| {
            Box::pin(async move {
                let instance = group_instance(world, arguments.text(0))?.to_owned();
                let detail = json!({"instance-id": instance, "instance-action": "terminate"});
                let event = world.cloud().event("EC2 Spot Instance Interruption Warning", "aws.ec2", detail);
                world.cloud().send_to_queue(&event.to_string()).await
            })
        },
    );
    steps.add("the node of managed node group {string} was never touched by the controller", |world, arguments| {
        Box::pin(async move { untouched(world, arguments.text(0)).await })
    });
}

fn group_instance<'a>(world: &'a World, group: &str) -> anyhow::Result<&'a str> {
    world.strays.get(group).map(String::as_str).with_context(|| format!("no step made node group {group} grow"))
}

/// How a controller ends that had seemed to start.
async fn end_of_controller(world: &mut World) -> anyhow::Result<anyhow::Error> {
    for _ in 0..ENDED_WITHIN.as_secs() {
        if let Err(end) = world.backend().check_alive() {
            // What is left of it; a process that has ended cannot be killed.
            let _ = world.backend().kill_controller(0).await;
            return Ok(end);
        }
        world.pass(Duration::from_secs(1)).await;
    }
    world.backend().kill_controller(0).await?;
    bail!("it started")
}

async fn group_node(world: &World, group: &str) -> anyhow::Result<Option<Node>> {
    let instance = group_instance(world, group)?;
    let nodes = world.list::<Node>().await?;
    let of_instance = |node: &Node| {
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        provider_id.is_some_and(|id| id.ends_with(&format!("/{instance}")))
    };
    Ok(nodes.into_iter().find(of_instance))
}

/// The node and its instance are as the node group made them: the controller has not written the Node, nothing of its own is
/// on it, and no NodeClaim speaks of the instance.
async fn untouched(world: &World, group: &str) -> anyhow::Result<()> {
    // Twice the interval of garbage collection.
    world.pass(Duration::from_secs(240)).await;
    let id = group_instance(world, group)?;
    let instance = world.instance(id).await?;
    ensure!(instance.state == "running", "instance {id} is {}", instance.state);
    let of_ours: Vec<&String> = instance.tags.keys().filter(|key| key.contains(KARPENTER)).collect();
    ensure!(of_ours.is_empty(), "instance {id} has the tags {of_ours:?}");
    let node = group_node(world, group).await?.context("the node is gone")?;
    ensure!(node.metadata.deletion_timestamp.is_none(), "the node is being deleted");
    let writers = world.recorder().writers(&format!("nodes/{}", node.name_any()));
    ensure!(!writers.is_empty(), "nobody is known to have written the node");
    ensure!(!by_controller(&writers), "the node was written by {writers:?}");
    let keys = node.labels().keys().chain(node.annotations().keys()).chain(node.finalizers());
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten().map(|taint| &taint.key);
    let of_ours: Vec<&String> = keys.chain(taints).filter(|key| key.contains(KARPENTER)).collect();
    ensure!(of_ours.is_empty(), "the node carries {of_ours:?}");
    for claim in world.node_claims().await? {
        let provider_id = claim.status.as_ref().map(|status| status.provider_id.as_str()).unwrap_or_default();
        ensure!(!provider_id.ends_with(id), "NodeClaim {} speaks of it", claim.name_any());
    }
    Ok(())
}

fn by_controller(writers: &BTreeSet<String>) -> bool {
    writers.iter().any(|writer| writer.starts_with(CONTROLLER))
}
