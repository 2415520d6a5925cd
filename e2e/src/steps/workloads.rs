//! Deployments, DaemonSets and pods.

use super::Vocabulary;
use crate::eventually::Seen;
use crate::things::{NAMESPACE, describe, is_pending, is_running, node_of};
use crate::world::{Moment, World};
use anyhow::{Context, ensure};
use controller_api::labels;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("a pod {string} that asks for {quantity} CPU is created", |world, arguments| {
        Box::pin(async move { world.create_pod(arguments.text(0), arguments.text(1)).await })
    });
    steps.add("a DaemonSet {string} whose pods ask for {quantity} CPU", |world, arguments| {
        Box::pin(async move {
            let (name, cpu) = (arguments.text(0), arguments.text(1));
            world
                .apply_text(&format!(
                    "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  selector: \
                     {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
                     containers:\n      - name: main\n        image: agent\n        resources: {{requests: {{cpu: {cpu}}}}}\n"
                ))
                .await
        })
    });
    steps.add("pod {string} is deleted", |world, arguments| {
        Box::pin(async move {
            world.api::<Pod>().delete(arguments.text(0), &DeleteParams::default()).await?;
            Ok(())
        })
    });
    steps.add("pod {string} is gone within {duration}", |world, arguments| {
        Box::pin(async move {
            let name = arguments.text(0);
            world
                .eventually(&format!("pod {name} is gone"), arguments.duration(1), async || {
                    let pod = world.api::<Pod>().get_opt(name).await?;
                    Ok(Seen::when(pod.is_none(), (), || describe(&Vec::from_iter(pod))))
                })
                .await
        })
    });
    steps.add("{integer} pods that ask for {quantity} CPU are created, one every {duration}", |world, arguments| {
        Box::pin(async move {
            for index in 0..arguments.integer(0) {
                world.create_pod(&format!("one-of-many-{index:03}"), arguments.text(1)).await?;
                world.pass(arguments.duration(2)).await;
            }
            Ok(())
        })
    });
    steps.add("the pod of DaemonSet {string} is Pending", |world, arguments| {
        Box::pin(async move {
            let pods = world.pods_of_daemon_set(arguments.text(0)).await?;
            // A DaemonSet's pod names its node in an affinity of its own and waits for room there.
            let waits = pods.len() == 1 && pods.iter().all(is_pending);
            ensure!(waits, "{}", describe(&pods));
            Ok(())
        })
    });
    steps.add("Deployment {string} is deleted", |world, arguments| {
        Box::pin(async move { world.delete_deployment(arguments.text(0)).await })
    });
    steps.add("a pod {string} that asks for {quantity} CPU on a node with {string} is created", |world, arguments| {
        Box::pin(async move {
            let [name, cpu, labels] = [0, 1, 2].map(|index| arguments.text(index));
            world
                .apply_text(&format!(
                    "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  nodeSelector: \
                     {{{labels}}}\n  containers:\n  - name: main\n    image: nginx\n    resources: {{requests: {{cpu: {cpu}}}}}\n"
                ))
                .await
        })
    });
    steps.add("Deployment {string} is scaled to {integer}", |world, arguments| {
        Box::pin(async move {
            let scale = json!({"spec": {"replicas": arguments.integer(1)}});
            let api = world.api::<Deployment>();
            api.patch_scale(arguments.text(0), &PatchParams::default(), &Patch::Merge(scale)).await?;
            Ok(())
        })
    });
    steps.add("StatefulSet {string} is scaled to {integer}", |world, arguments| {
        Box::pin(async move {
            let scale = json!({"spec": {"replicas": arguments.integer(1)}});
            let api = world.api::<StatefulSet>();
            api.patch_scale(arguments.text(0), &PatchParams::default(), &Patch::Merge(scale)).await?;
            Ok(())
        })
    });
    steps.add(
        "all {integer} pods of StatefulSet {string} are Running within {duration}, each in the zone of its volume",
        |world, arguments| {
            Box::pin(async move {
                for ordinal in 0..arguments.integer(0) {
                    let name = format!("{}-{ordinal}", arguments.text(1));
                    pod_runs(world, &name, arguments.duration(2)).await?;
                    is_in_zone_of_its_volume(world, &world.pod(&name).await?).await?;
                }
                Ok(())
            })
        },
    );
    steps.add("Job {string} is complete within {duration}", |world, arguments| {
        Box::pin(async move {
            world
                .eventually("the Job is complete", arguments.duration(1), async || {
                    let job = world.api::<Job>().get(arguments.text(0)).await?;
                    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
                    let is_complete = conditions
                        .into_iter()
                        .flatten()
                        .any(|condition| condition.type_ == "Complete" && condition.status == "True");
                    Ok(Seen::when(is_complete, (), || format!("{:?}", job.status)))
                })
                .await
        })
    });
    steps.add("the pod of Job {string} is Running within {duration}", |world, arguments| {
        Box::pin(async move {
            world
                .eventually("the Job's pod is Running", arguments.duration(1), async || {
                    let pods = world.pods_of_job(arguments.text(0)).await?;
                    let runs = matches!(pods.as_slice(), [pod] if is_running(pod));
                    Ok(Seen::when(runs, (), || describe(&pods)))
                })
                .await
        })
    });
    steps.add("the pod of Job {string} was never asked to leave", |world, arguments| {
        Box::pin(async move {
            let pods = world.pods_of_job(arguments.text(0)).await?;
            ensure!(pods.len() == 1, "the Job has had {} pods", pods.len());
            let removed = world.controller_pod_removals();
            let names: Vec<String> = pods.iter().map(|pod| format!("{NAMESPACE}/{}", pod.name_any())).collect();
            let asked: Vec<&str> =
                removed.iter().filter(|removal| names.contains(&removal.pod)).map(|r| r.pod.as_str()).collect();
            ensure!(asked.is_empty(), "the controller asked for {}", asked.join(", "));
            Ok(())
        })
    });
    steps.add(
        "all {integer} pods of Deployment {string} run on nodes with {string} within {duration}",
        |world, arguments| {
            Box::pin(async move {
                let (count, name, labels) = (arguments.integer(0), arguments.text(1), arguments.text(2));
                let expected = format!("{count} pods of Deployment {name} are Running");
                let pods = world
                    .eventually(&expected, arguments.duration(3), async || world.running_pods(name, count, None).await)
                    .await?;
                for pod in &pods {
                    on_node_with(world, pod, labels).await?;
                }
                Ok(())
            })
        },
    );
    steps.add("pod {string} is Running on a node with {string} within {duration}", |world, arguments| {
        Box::pin(async move {
            let (name, labels) = (arguments.text(0), arguments.text(1));
            pod_runs(world, name, arguments.duration(2)).await?;
            on_node_with(world, &world.pod(name).await?, labels).await
        })
    });
    steps.add("{integer} pods of Deployment {string} are Running and {integer} are Pending", |world, arguments| {
        Box::pin(async move {
            let pods = world.pods_of_deployment(arguments.text(1)).await?;
            let running = pods.iter().filter(|pod| is_running(pod)).count();
            let pending = pods.iter().filter(|pod| is_pending(pod)).count();
            let wanted = (arguments.integer(0), arguments.integer(2));
            ensure!((running, pending) == wanted, "{running} are Running, {pending} are Pending");
            Ok(())
        })
    });
    steps.add("pod {string} is Running", |world, arguments| {
        Box::pin(async move { pod_runs(world, arguments.text(0), Duration::ZERO).await })
    });
    steps.add("pod {string} is Running within {duration}", |world, arguments| {
        Box::pin(async move { pod_runs(world, arguments.text(0), arguments.duration(1)).await })
    });
    steps.add("pod {string} is Running within {duration} of the launch", |world, arguments| {
        Box::pin(async move {
            let name = arguments.text(0);
            world
                .by(&format!("pod {name} is Running"), Moment::Launch, arguments.duration(1), async || {
                    look_at_pod(world, name).await
                })
                .await
        })
    });
    steps.add("pod {string} is Pending", |world, arguments| {
        Box::pin(async move {
            let pod = world.pod(arguments.text(0)).await?;
            ensure!(is_pending(&pod), "the pod is on node {:?}: {:?}", node_of(&pod), pod.status);
            Ok(())
        })
    });
    steps.add("all {integer} pods of Deployment {string} are Pending", |world, arguments| {
        Box::pin(async move {
            let pods = world.pods_of_deployment(arguments.text(1)).await?;
            let pending = pods.iter().filter(|pod| is_pending(pod)).count();
            ensure!(
                pending == arguments.integer(0) && pods.len() == pending,
                "{pending} of {} pods are Pending",
                pods.len()
            );
            Ok(())
        })
    });
    steps.add("all {integer} pods of Deployment {string} are Running within {duration}", |world, arguments| {
        Box::pin(async move {
            let (count, name) = (arguments.integer(0), arguments.text(1));
            let expected = format!("{count} pods of Deployment {name} are Running");
            world
                .eventually(&expected, arguments.duration(2), async || world.running_pods(name, count, None).await)
                .await?;
            Ok(())
        })
    });
    steps.add(
        "all {integer} pods of Deployment {string} are Running within {duration} of the launch",
        |world, arguments| {
            Box::pin(async move {
                let (count, name) = (arguments.integer(0), arguments.text(1));
                let expected = format!("{count} pods of Deployment {name} are Running");
                world
                    .by(&expected, Moment::Launch, arguments.duration(2), async || {
                        world.running_pods(name, count, None).await
                    })
                    .await?;
                Ok(())
            })
        },
    );
    steps.add(
        "all {integer} pods of Deployment {string} run on that node within {duration} of the launch",
        |world, arguments| {
            Box::pin(async move {
                let (count, name) = (arguments.integer(0), arguments.text(1));
                let expected = format!("{count} pods of Deployment {name} are Running");
                let limit = arguments.duration(2);
                let pods = world
                    .by(&expected, Moment::Launch, limit, async || world.running_pods(name, count, None).await)
                    .await?;
                let node = world.subject_node().await?.context("the NodeClaim has no node")?.name_any();
                let elsewhere: Vec<String> =
                    pods.iter().filter(|pod| node_of(pod) != Some(&node)).map(Pod::name_any).collect();
                ensure!(elsewhere.is_empty(), "not on node {node}: {}", elsewhere.join(", "));
                Ok(())
            })
        },
    );
    steps.add(
        "all {integer} pods of Deployment {string} are Running on another node within {duration}",
        |world, arguments| {
            Box::pin(async move {
                run_elsewhere(world, arguments.text(1), arguments.integer(0), None, arguments.duration(2)).await
            })
        },
    );
    steps.add(
        "all {integer} pods of Deployment {string} are Running on another node within {duration} of the notice",
        |world, arguments| {
            Box::pin(async move {
                let moment = Some(Moment::Notice);
                run_elsewhere(world, arguments.text(1), arguments.integer(0), moment, arguments.duration(2)).await
            })
        },
    );
    steps.add("a pod of DaemonSet {string} runs on the node within {duration}", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node().await?.context("the NodeClaim has no node")?.name_any();
            world
                .eventually("a pod of the DaemonSet runs on the node", arguments.duration(1), async || {
                    let pods = world.pods_of_daemon_set(arguments.text(0)).await?;
                    let runs = pods.iter().any(|pod| is_running(pod) && node_of(pod) == Some(&node));
                    Ok(Seen::when(runs, (), || format!("{} pods, none of them Running on {node}", pods.len())))
                })
                .await
        })
    });
}

/// The pod's node carries all of these labels, written as in a node selector.
async fn on_node_with(world: &World, pod: &Pod, labels: &str) -> anyhow::Result<()> {
    let name = node_of(pod).context("the pod has no node")?;
    let node = Api::<Node>::all(world.kube()).get(name).await?;
    let wanted: BTreeMap<String, String> =
        serde_yaml_ng::from_str(&format!("{{{labels}}}")).with_context(|| format!("{labels} are no labels"))?;
    for (key, value) in wanted {
        let found = node.labels().get(&key);
        ensure!(found == Some(&value), "{} is on {name}, of which {key} is {found:?}", pod.name_any());
    }
    Ok(())
}

/// The pod's node is in a zone that the volume of its only claim can be reached from.
async fn is_in_zone_of_its_volume(world: &World, pod: &Pod) -> anyhow::Result<()> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    let mut claims = volumes.into_iter().flatten().filter_map(|volume| volume.persistent_volume_claim.as_ref());
    let claim = &claims.next().with_context(|| format!("{} has no claim", pod.name_any()))?.claim_name;
    let claim = world.api::<PersistentVolumeClaim>().get(claim).await?;
    let name = claim.spec.and_then(|spec| spec.volume_name).context("the pod's claim has no volume")?;
    let volume = Api::<PersistentVolume>::all(world.kube()).get(&name).await?;
    let terms = volume.spec.and_then(|spec| spec.node_affinity?.required).map(|required| required.node_selector_terms);
    let expressions = terms.into_iter().flatten().filter_map(|term| term.match_expressions).flatten();
    let zones: Vec<String> = expressions
        .filter(|expression| expression.key == labels::ZONE_LABEL)
        .filter_map(|expression| expression.values)
        .flatten()
        .collect();
    let node = node_of(pod).context("the pod has no node")?;
    let node = Api::<Node>::all(world.kube()).get(node).await?;
    let zone = node.labels().get(labels::ZONE_LABEL).context("the pod's node is in no zone")?;
    ensure!(zones.contains(zone), "{} runs in {zone}, its volume {name} is in {zones:?}", pod.name_any());
    Ok(())
}

async fn look_at_pod(world: &World, name: &str) -> anyhow::Result<Seen<()>> {
    let pod = world.pod(name).await?;
    Ok(Seen::when(is_running(&pod), (), || format!("{:?}", pod.status)))
}

async fn pod_runs(world: &World, name: &str, limit: Duration) -> anyhow::Result<()> {
    world.eventually(&format!("pod {name} is Running"), limit, async || look_at_pod(world, name).await).await
}

/// The pods run, none of them on the node that the scenario has spoken of so far. That node may be gone by now.
async fn run_elsewhere(
    world: &World,
    name: &str,
    count: usize,
    since: Option<Moment>,
    limit: Duration,
) -> anyhow::Result<()> {
    let old = world.subject_node_name().await?;
    let expected = format!("{count} pods of Deployment {name} are Running on another node than {old}");
    let look = async || world.running_pods(name, count, Some(&old)).await;
    match since {
        Some(moment) => world.by(&expected, moment, limit, look).await?,
        None => world.eventually(&expected, limit, look).await?,
    };
    Ok(())
}
