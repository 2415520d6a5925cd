//! NodePools and NodeClaims.

use super::Vocabulary;
use crate::eventually::Seen;
use crate::things::{condition, conditions_of};
use crate::world::World;
use anyhow::{Context, ensure};
use controller_api::{NodeClaim, NodePool};
use controller_core::quantity::Quantity;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::Value;
use std::time::Duration;

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("exactly {integer} NodeClaim(s) is launched within {duration}", |world, arguments| {
        Box::pin(async move { launched(world, arguments.integer(0), arguments.duration(1)).await })
    });
    steps.add("exactly {integer} NodeClaim(s) exists within {duration}", |world, arguments| {
        Box::pin(async move { claims(world, arguments.integer(0), arguments.duration(1)).await })
    });
    steps.add("no NodeClaim exists", |world, _| Box::pin(async move { claims(world, 0, Duration::ZERO).await }));
    steps.add("no NodeClaim exists within {duration}", |world, arguments| {
        Box::pin(async move { claims(world, 0, arguments.duration(0)).await })
    });
    steps.add("the NodeClaim still exists", |world, _| {
        Box::pin(async move {
            let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
            ensure!(claim.metadata.deletion_timestamp.is_none(), "the NodeClaim is being deleted");
            Ok(())
        })
    });
    steps.add("the NodeClaim is deleted within {duration}", |world, arguments| {
        Box::pin(async move {
            world
                .eventually("the NodeClaim is deleted", arguments.duration(0), async || {
                    let claim = world.subject_claim().await?;
                    let deleted = claim.as_ref().is_none_or(|claim| claim.metadata.deletion_timestamp.is_some());
                    Ok(Seen::when(deleted, (), || claim.map(|claim| conditions_of(&claim)).unwrap_or_default()))
                })
                .await
        })
    });
    steps.add("the NodeClaim is deleted between {duration} and {duration} after its creation", |world, arguments| {
        Box::pin(async move {
            let (from, to) = (arguments.duration(0), arguments.duration(1));
            world.subject_node_name().await?;
            let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
            let created = claim.metadata.creation_timestamp.context("the NodeClaim has no creation timestamp")?.0;
            let passed = Duration::try_from(world.now().duration_since(created))?;
            let left = to.checked_sub(passed).with_context(|| format!("{passed:?} have passed already"))?;
            // Nothing is to be seen before; what comes too early is known by its timestamp.
            let until_then = from.saturating_sub(passed);
            world.pass(until_then).await;
            let deleted = world
                .eventually("the NodeClaim is deleted", left.saturating_sub(until_then), async || {
                    let claim = world.subject_claim().await?.context("it is gone already")?;
                    Ok(match claim.metadata.deletion_timestamp.clone() {
                        Some(at) => Seen::Yes(at.0),
                        None => Seen::NotYet(conditions_of(&claim)),
                    })
                })
                .await?;
            let after = Duration::try_from(deleted.duration_since(created))?;
            ensure!(after >= from, "it was deleted {after:?} after its creation");
            Ok(())
        })
    });
    steps.add(
        "the first NodeClaim was created between {duration} and {duration} after the first pod",
        |world, arguments| {
            Box::pin(async move {
                let first = |times: Vec<Option<Time>>| times.into_iter().flatten().map(|time| time.0).min();
                let pods = world.api::<Pod>().list(&ListParams::default()).await?.items;
                let pod = first(pods.into_iter().map(|pod| pod.metadata.creation_timestamp).collect());
                let claims = world.node_claims().await?;
                let claim = first(claims.into_iter().map(|claim| claim.metadata.creation_timestamp).collect());
                let (pod, claim) = (pod.context("there is no pod")?, claim.context("there is no NodeClaim")?);
                let after = Duration::try_from(claim.duration_since(pod)).context("the NodeClaim came first")?;
                let range = arguments.duration(0)..=arguments.duration(1);
                ensure!(range.contains(&after), "it was created {after:?} after it");
                Ok(())
            })
        },
    );
    steps.add(
        "the NodeClaim was made by the controller, is named for NodePool {string} and owned by it",
        |world, arguments| Box::pin(async move { made_by_controller(world, arguments.text(0)).await }),
    );
    steps.add("the NodeClaim, its node and its instance name each other", |world, _| {
        Box::pin(async move {
            let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
            let status = claim.status.clone().context("the NodeClaim has no status")?;
            let node = world.subject_node().await?.context("the NodeClaim has no node")?;
            let instance = world.subject_instance().await?;
            let provider_id = format!("aws:///{}/{}", instance.zone, instance.id);
            ensure!(status.provider_id == provider_id, "status.providerID is {}", status.provider_id);
            ensure!(status.node_name == node.name_any(), "status.nodeName is {}", status.node_name);
            ensure!(status.image_id == instance.image_id, "status.imageID is {}", status.image_id);
            let owners: Vec<String> =
                node.owner_references().iter().map(|o| format!("{}/{}", o.kind, o.name)).collect();
            let claim_name = format!("NodeClaim/{}", claim.name_any());
            ensure!(owners == [claim_name.as_str()], "the node is owned by {owners:?}");
            let finalizers = claim.finalizers();
            ensure!(finalizers == ["karpenter.sh/termination"], "the NodeClaim has the finalizers {finalizers:?}");
            Ok(())
        })
    });
    steps.add("the conditions {string} of the NodeClaim came true in this order", |world, arguments| {
        Box::pin(async move {
            let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
            let mut before = None;
            for kind in arguments.text(0).split(", ") {
                let found = condition(&claim, kind).with_context(|| format!("no {kind}: {}", conditions_of(&claim)))?;
                ensure!(found.status.as_str() == "True", "{}", conditions_of(&claim));
                let at = found.last_transition_time;
                ensure!(before.is_none_or(|before| before <= at), "{kind} came true at {at}, before the one before it");
                before = Some(at);
            }
            Ok(())
        })
    });
    steps.add("the NodeClaim has no condition {string}", |world, arguments| {
        Box::pin(async move {
            let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
            ensure!(condition(&claim, arguments.text(0)).is_none(), "{}", conditions_of(&claim));
            Ok(())
        })
    });
    steps.add("the NodeClaim is annotated {string} with {string}", |world, arguments| {
        Box::pin(async move {
            let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
            let value = claim.annotations().get(arguments.text(0));
            ensure!(value.is_some_and(|value| value == arguments.text(1)), "the value is {value:?}");
            Ok(())
        })
    });
    steps.add("all NodeClaims are deleted within {duration}, no more than {duration} apart", |world, arguments| {
        Box::pin(async move {
            let started = world.node_claims().await?.len();
            ensure!(started > 1, "there are only {started}");
            let deletions = world
                .eventually("all NodeClaims are deleted", arguments.duration(0), async || {
                    let claims = world.node_claims().await?;
                    let deleted = claims.iter().filter_map(|claim| claim.metadata.deletion_timestamp.as_ref());
                    let deleted: Vec<jiff::Timestamp> = deleted.map(|time| time.0).collect();
                    let seen = || claims.iter().map(describe).collect::<Vec<_>>().join("\n");
                    Ok(Seen::when(deleted.len() == started, deleted, seen))
                })
                .await?;
            let (first, last) = (deletions.iter().min(), deletions.iter().max());
            let (first, last) = (first.context("no deletion")?, last.context("no deletion")?);
            let apart = Duration::try_from(last.duration_since(*first))?;
            ensure!(apart <= arguments.duration(1), "they were deleted {apart:?} apart");
            Ok(())
        })
    });
    steps.add("somebody deletes NodePool {string}", |world, arguments| {
        Box::pin(async move {
            world.subject_node_name().await?;
            Api::<NodePool>::all(world.kube()).delete(arguments.text(0), &DeleteParams::background()).await?;
            Ok(())
        })
    });
    steps.add("the NodeClaim is of NodePool {string}", |world, arguments| {
        Box::pin(async move {
            let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
            let pool = claim.labels().get("karpenter.sh/nodepool");
            ensure!(pool.is_some_and(|pool| pool == arguments.text(0)), "its pool is {pool:?}");
            Ok(())
        })
    });
    steps.add("field {string} of the NodeClaim is {string}", |world, arguments| {
        Box::pin(async move {
            let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
            field_is(&serde_json::to_value(claim)?, arguments.text(0), arguments.text(1))
        })
    });
    steps.add("field {string} of NodePool {string} is {string} within {duration}", |world, arguments| {
        Box::pin(async move {
            let (path, name, value) = (arguments.text(0), arguments.text(1), arguments.text(2));
            world
                .eventually(&format!("{path} is {value}"), arguments.duration(3), async || {
                    let pool = Api::<NodePool>::all(world.kube()).get(name).await?;
                    let found = field_is(&serde_json::to_value(pool)?, path, value);
                    Ok(Seen::when(found.is_ok(), (), || found.err().map(|e| e.to_string()).unwrap_or_default()))
                })
                .await
        })
    });
    steps.add("the NodeClaim requests at least {quantity} CPU", |world, arguments| {
        Box::pin(async move {
            let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
            let requested = claim.spec.resources.requests.get("cpu").context("the NodeClaim requests no cpu")?;
            let requested: Quantity = requested.0.parse()?;
            let wanted: Quantity = arguments.text(0).parse()?;
            ensure!(requested >= wanted, "it requests {requested}");
            Ok(())
        })
    });
    steps.add(
        "condition {string} of the NodeClaim is {string} with reason {string} within {duration}",
        |world, arguments| {
            Box::pin(async move {
                let (kind, status, reason) = (arguments.text(0), arguments.text(1), arguments.text(2));
                world
                    .eventually(&format!("condition {kind} is {status}"), arguments.duration(3), async || {
                        let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
                        let found = condition(&claim, kind);
                        let holds = found
                            .as_ref()
                            .is_some_and(|found| found.status.as_str() == status && found.reason == reason);
                        Ok(Seen::when(holds, (), || conditions_of(&claim)))
                    })
                    .await
            })
        },
    );
    steps.add("condition {string} of NodePool {string} is {string}", |world, arguments| {
        Box::pin(
            async move { pool_condition(world, arguments.text(1), arguments.text(0), arguments.text(2), None).await },
        )
    });
    steps.add("condition {string} of NodePool {string} is {string} with reason {string}", |world, arguments| {
        Box::pin(async move {
            let reason = Some(arguments.text(3));
            pool_condition(world, arguments.text(1), arguments.text(0), arguments.text(2), reason).await
        })
    });
}

async fn made_by_controller(world: &World, pool: &str) -> anyhow::Result<()> {
    let claim = world.subject_claim().await?.context("the NodeClaim is gone")?;
    let suffix = claim.name_any().strip_prefix(&format!("{pool}-")).map(str::to_owned);
    ensure!(suffix.is_some_and(|suffix| suffix.len() == 5), "it is called {}", claim.name_any());
    let owners: Vec<(String, String, Option<bool>)> = claim
        .owner_references()
        .iter()
        .map(|owner| (owner.kind.clone(), owner.name.clone(), owner.block_owner_deletion))
        .collect();
    ensure!(owners == [("NodePool".to_owned(), pool.to_owned(), Some(true))], "its owners are {owners:?}");
    let writers = world.recorder().writers(&format!("nodeclaims/{}", claim.name_any()));
    let alone = !writers.is_empty() && writers.iter().all(|writer| writer.starts_with(crate::backend::CONTROLLER));
    ensure!(alone, "it was written by {writers:?}");
    Ok(())
}

/// Compares a field with a value in YAML.
fn field_is(object: &Value, path: &str, value: &str) -> anyhow::Result<()> {
    let found = path.split('.').try_fold(object, |object, part| object.get(part));
    let wanted: Value = serde_yaml_ng::from_str(value)?;
    ensure!(found == Some(&wanted), "{path} is {}", found.map_or("not there".into(), Value::to_string));
    Ok(())
}

async fn launched(world: &World, count: usize, limit: Duration) -> anyhow::Result<()> {
    let has_instance = |claim: &NodeClaim| claim.status.as_ref().is_some_and(|status| !status.provider_id.is_empty());
    let claims = world
        .eventually(&format!("{count} NodeClaims are launched"), limit, async || {
            let claims = world.node_claims().await?;
            let all = claims.len() == count && claims.iter().all(has_instance);
            Ok(Seen::when(all, claims.clone(), || claims.iter().map(describe).collect::<Vec<_>>().join("\n")))
        })
        .await?;
    if let [claim] = claims.as_slice() {
        world.set_launched(claim).await?;
    }
    Ok(())
}

async fn claims(world: &World, count: usize, limit: Duration) -> anyhow::Result<()> {
    world
        .eventually(&format!("{count} NodeClaims exist"), limit, async || {
            let claims = world.node_claims().await?;
            Ok(Seen::when(claims.len() == count, (), || claims.iter().map(describe).collect::<Vec<_>>().join("\n")))
        })
        .await
}

async fn pool_condition(
    world: &World,
    pool: &str,
    kind: &str,
    status: &str,
    reason: Option<&str>,
) -> anyhow::Result<()> {
    let pool = Api::<NodePool>::all(world.kube()).get(pool).await?;
    let found =
        condition(&pool, kind).with_context(|| format!("there is no such condition: {}", conditions_of(&pool)))?;
    let holds = found.status.as_str() == status && reason.is_none_or(|reason| found.reason == reason);
    ensure!(holds, "{}", conditions_of(&pool));
    Ok(())
}

fn describe(claim: &NodeClaim) -> String {
    format!("{}: {}", claim.name_any(), conditions_of(claim))
}
