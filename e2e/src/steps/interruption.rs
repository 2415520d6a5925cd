//! Messages of the interruption queue.

use super::Vocabulary;
use crate::eventually::Seen;
use crate::things::is_running;
use crate::world::{Moment, World};
use anyhow::{Context, ensure};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::time::Duration;

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("a spot interruption notice arrives for the instance", |world, _| {
        Box::pin(async move {
            let subject = world.subject().await?;
            world.subject_node_name().await?;
            world.cloud().interrupt(&subject.instance).await?;
            world.mark(Moment::Notice, world.now());
            Ok(())
        })
    });
    steps.add("a rebalance recommendation arrives for the instance", |world, _| {
        Box::pin(async move {
            let subject = world.subject().await?;
            world.subject_node_name().await?;
            world.cloud().recommend_rebalance(&subject.instance).await
        })
    });
    steps.add("a message {string} is put into the interruption queue", |world, arguments| {
        Box::pin(async move { world.cloud().send_to_queue(arguments.text(0)).await })
    });
    steps.add("a state-change message {string} arrives for the instance", |world, arguments| {
        Box::pin(async move {
            let instance = world.subject().await?.instance;
            world.subject_node_name().await?;
            let detail = json!({"instance-id": instance, "state": arguments.text(0)});
            send(world, "EC2 Instance State-change Notification", "aws.ec2", detail).await
        })
    });
    steps.add(
        "a health message of category {string} and service {string} arrives for the instance",
        |world, arguments| {
            Box::pin(async move {
                let instance = world.subject().await?.instance;
                world.subject_node_name().await?;
                let detail = json!({
                    "service": arguments.text(1),
                    "eventTypeCategory": arguments.text(0),
                    "affectedEntities": [{"entityValue": instance}],
                });
                send(world, "AWS Health Event", "aws.health", detail).await
            })
        },
    );
    steps.add("a spot interruption message arrives for the instance", |world, _| {
        Box::pin(async move {
            let instance = world.subject().await?.instance;
            world.subject_node_name().await?;
            let detail = json!({"instance-id": instance, "instance-action": "terminate"});
            send(world, "EC2 Spot Instance Interruption Warning", "aws.ec2", detail).await
        })
    });
    steps.add("a spot interruption message arrives for an instance that nobody knows", |world, _| {
        Box::pin(async move { world.cloud().send_to_queue(&message(world, 0)).await })
    });
    steps.add("a status check of the instance fails", |world, _| {
        Box::pin(async move {
            let instance = world.subject().await?.instance;
            world.subject_node_name().await?;
            world.cloud().impair(&instance).await
        })
    });
    steps.add("maintenance {string} is scheduled for the instance", |world, arguments| {
        Box::pin(async move {
            let instance = world.subject().await?.instance;
            world.subject_node_name().await?;
            world.cloud().schedule_maintenance(&instance, arguments.text(0)).await
        })
    });
    steps.add("EC2 action {string} is not allowed", |world, arguments| {
        Box::pin(async move { world.cloud().deny(arguments.text(0)).await })
    });
    steps.add("the interruption queue does not exist", |world, _| {
        Box::pin(async move { world.cloud().have_queue(false).await })
    });
    steps.add("the interruption queue is created", |world, _| {
        Box::pin(async move { world.cloud().have_queue(true).await })
    });
    steps.add("no call of {word} was made by the controller", |world, arguments| {
        Box::pin(async move {
            let calls = world.cloud().calls().await?;
            let service = format!("{}:", arguments.text(0));
            let count = calls.iter().filter(|call| call.name.starts_with(&service)).count();
            ensure!(!calls.is_empty() && count == 0, "{count} of {} calls were", calls.len());
            Ok(())
        })
    });
    steps.add("{integer} interruption messages of mixed kinds arrive", |world, arguments| {
        Box::pin(async move {
            for index in 0..arguments.integer(0) {
                world.cloud().send_to_queue(&message(world, index)).await?;
            }
            Ok(())
        })
    });
    steps.add("the interruption queue is empty", |world, _| {
        Box::pin(async move { queue_is_empty(world, Duration::ZERO).await })
    });
    steps.add("the interruption queue is empty within {duration}", |world, arguments| {
        Box::pin(async move { queue_is_empty(world, arguments.duration(0)).await })
    });
    steps.add(
        "a second NodeClaim is created within {duration} of the notice, while the old pods shut down",
        |world, arguments| {
            Box::pin(async move {
                let old = world.subject().await?.node_claim;
                let node = world.subject_node_name().await?;
                let created = world
                    .by("a second NodeClaim exists", Moment::Notice, arguments.duration(0), async || {
                        let claims = world.node_claims().await?;
                        let others: Vec<String> =
                            claims.iter().map(ResourceExt::name_any).filter(|name| *name != old).collect();
                        Ok(Seen::when(!others.is_empty(), (), || "only the first NodeClaim exists".into()))
                    })
                    .await;
                created?;
                let left = world.workload_pods_on(&node).await?;
                ensure!(!left.is_empty(), "every old pod was gone when the second NodeClaim appeared");
                world
                    .by("every old pod is shutting down", Moment::Notice, arguments.duration(0), async || {
                        let left = world.workload_pods_on(&node).await?;
                        let waiting = left.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
                        let waiting: Vec<String> = waiting.map(ResourceExt::name_any).collect();
                        Ok(Seen::when(waiting.is_empty(), (), || format!("not asked to stop: {}", waiting.join(", "))))
                    })
                    .await
            })
        },
    );
    steps.add(
        "at no time until the reclaim is more than {integer} pod(s) of Deployment {string} missing",
        |world, arguments| {
            Box::pin(async move {
                let (allowed, name) = (arguments.integer(0), arguments.text(1));
                let reclaim = world.moment(Moment::Notice)?.checked_add(jiff::SignedDuration::from_secs(120))?;
                let left = Duration::try_from(reclaim.duration_since(world.now()))
                    .context("the reclaim has passed already")?;
                // Up to the reclaim, not through it: from then on the pods are gone with their instance.
                at_most_missing(world, left.saturating_sub(Duration::from_secs(1)), allowed, name).await
            })
        },
    );
    steps.add(
        "at no time within {duration} is more than {integer} pod(s) of Deployment {string} missing",
        |world, arguments| {
            Box::pin(async move {
                at_most_missing(world, arguments.duration(0), arguments.integer(1), arguments.text(2)).await
            })
        },
    );
    steps.add("the pods left the node by eviction until the reclaim", |world, _| {
        Box::pin(async move {
            let reclaim: Timestamp = world.moment(Moment::Notice)?.checked_add(jiff::SignedDuration::from_secs(120))?;
            let removals = world.controller_pod_removals();
            let before: Vec<_> = removals.iter().filter(|removal| removal.at < reclaim).collect();
            ensure!(before.iter().any(|removal| removal.eviction), "nothing was evicted before the reclaim");
            let deleted: Vec<&str> =
                before.iter().filter(|removal| !removal.eviction).map(|removal| removal.pod.as_str()).collect();
            ensure!(deleted.is_empty(), "deleted and not evicted: {}", deleted.join(", "));
            Ok(())
        })
    });
}

async fn at_most_missing(world: &World, limit: Duration, allowed: usize, deployment: &str) -> anyhow::Result<()> {
    let wanted = world.replicas(deployment).await?;
    crate::eventually::throughout(limit, async || {
        let pods = world.pods_of_deployment(deployment).await?;
        let running = pods.iter().filter(|pod| is_running(pod)).count();
        ensure!(running + allowed >= wanted, "at {} only {running} of {wanted} pods run", world.now());
        Ok(())
    })
    .await
}

async fn send(world: &World, detail_type: &str, source: &str, detail: Value) -> anyhow::Result<()> {
    let event = world.cloud().event(detail_type, source, detail);
    world.cloud().send_to_queue(&event.to_string()).await
}

/// Messages as EventBridge shapes them, of every kind the queue's rules let through, all about instances that are not ours.
fn message(world: &World, index: usize) -> String {
    let instance = format!("i-0{index:016x}");
    let cloud = world.cloud();
    let event = match index % 5 {
        0 => cloud.event("EC2 Spot Instance Interruption Warning", "aws.ec2", json!({"instance-id": instance, "instance-action": "terminate"})),
        1 => cloud.event("EC2 Instance Rebalance Recommendation", "aws.ec2", json!({"instance-id": instance})),
        2 => cloud.event("EC2 Instance State-change Notification", "aws.ec2", json!({"instance-id": instance, "state": "stopping"})),
        3 => cloud.event("EC2 Instance State-change Notification", "aws.ec2", json!({"instance-id": instance, "state": "running"})),
        _ => cloud.event(
            "AWS Health Event",
            "aws.health",
            json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": [{"entityValue": instance}]}),
        ),
    };
    event.to_string()
}

async fn queue_is_empty(world: &World, limit: Duration) -> anyhow::Result<()> {
    world
        .eventually("the interruption queue is empty", limit, async || {
            let length = world.cloud().queue_length().await?;
            Ok(Seen::when(length == 0, (), || format!("{length} messages are in it")))
        })
        .await
}
