//! NodePools and NodeClaims.

use super::Vocabulary;
use crate::eventually::Seen;
use crate::things::{condition, conditions_of};
use crate::world::World;
use anyhow::{Context, ensure};
use controller_api::{NodeClaim, NodePool};
use controller_core::quantity::Quantity;
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
            let deleted = world
                .eventually("the NodeClaim is deleted", left, async || {
                    let claim = world.subject_claim().await?.context("it vanished without a deletion timestamp")?;
                    Ok(match claim.metadata.deletion_timestamp.clone() {
                        Some(_) => Seen::Yes(world.now()),
                        None => Seen::NotYet(conditions_of(&claim)),
                    })
                })
                .await?;
            let after = Duration::try_from(deleted.duration_since(created))?;
            ensure!(after >= from, "it was deleted {after:?} after its creation");
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
