//! Whether the launches of a pool become nodes (core spec §5.7, §5.15): the condition `NodeRegistrationHealthy`, which
//! informs and decides nothing.

use super::Memory;
use crate::apply::patch;
use crate::error::{ReconcileError, chain};
use crate::mirror::{Change, Kind, Mirror};
use crate::reconcile::{Context, Loop, Requeue, keyed};
use controller_api::{HasConditions as _, NodeClaim, NodePool, labels};
use controller_core::lifecycle::registration_health::{Health, Outcome, RegistrationHealth};
use controller_core::lifecycle::{ConditionChange, condition, condition_of, is_true, label, set_condition};
use std::sync::Arc;
use std::time::Duration;

/// Starts the count again when the pool or its class changes.
pub(super) async fn run(context: Context, memory: Arc<Memory>) {
    keyed(context, Loop::new("nodepool.registrationhealth", 10), keys, move |context, name| {
        let memory = memory.clone();
        async move { reset(&context, &memory, &name).await }
    })
    .await;
}

fn keys(mirror: &Mirror, change: &Change) -> Vec<String> {
    match change.kind {
        Kind::NodePool => vec![change.name.clone()],
        Kind::NodeClass => super::super::node_pool::pools_of_class(mirror, &change.name),
        _ => Vec::new(),
    }
}

async fn reset(context: &Context, memory: &Memory, name: &str) -> Result<Requeue, ReconcileError> {
    let Some(pool) = context.mirror.node_pool(name) else {
        let uids: Vec<_> = context.mirror.node_pools().iter().filter_map(|pool| pool.metadata.uid.clone()).collect();
        memory.retain_health(|uid| uids.iter().any(|one| one == uid));
        return Ok(Requeue::OnChange);
    };
    let Some(class) = context.mirror.node_class(&pool.spec.template.spec.node_class_ref.name) else {
        return Ok(Requeue::OnChange);
    };
    let condition = pool.condition(condition::NODE_REGISTRATION_HEALTHY);
    let class_generation = class.metadata.generation;
    let is_current = condition.is_some_and(|condition| Some(condition.observed_generation) == pool.metadata.generation)
        && pool.status.as_ref().and_then(|status| status.node_class_observed_generation) == class_generation;
    let uid = pool.metadata.uid.as_deref().unwrap_or_default();
    memory.with_health(uid, |health| match condition {
        Some(condition) if is_current && health.is_empty() => {
            *health = RegistrationHealth::from_condition(condition.status);
        }
        _ if !is_current => *health = RegistrationHealth::default(),
        _ => {}
    });
    if !is_current {
        let mut wanted = (*pool).clone();
        let change = ConditionChange::unknown(
            condition::NODE_REGISTRATION_HEALTHY,
            "AwaitingReconciliation",
            "object is awaiting reconciliation",
        );
        set_condition(&mut wanted, &change, context.clock.now());
        wanted.status.get_or_insert_default().node_class_observed_generation = class_generation;
        patch::status(context, &*pool, &wanted).await?;
    }
    Ok(Requeue::OnChange)
}

/// Counts how a launch ended and tells the pool. A failure to tell is logged: the next launch will tell again.
pub(super) async fn record(context: &Context, memory: &Memory, claim: &NodeClaim, outcome: Outcome) {
    let Some(pool) = pool_of(context, claim) else { return };
    let uid = pool.metadata.uid.as_deref().unwrap_or_default();
    let health = memory.with_health(uid, |health| health.record(outcome));
    let change = match (outcome, health) {
        (Outcome::Registered, Health::Healthy) => ConditionChange::yes(condition::NODE_REGISTRATION_HEALTHY),
        (Outcome::Failed, Health::Unhealthy) => unhealthy(claim),
        _ => return,
    };
    if let Err(error) = tell(context, pool.clone(), outcome, &change).await {
        let error = chain(&error);
        tracing::warn!(NodePool = pool.metadata.name, error, "could not tell a pool's registration health");
    }
}

fn unhealthy(claim: &NodeClaim) -> ConditionChange {
    let (reason, message) = match condition_of(claim, condition::LAUNCHED) {
        Some(launched) if !is_true(claim, condition::LAUNCHED) => (launched.reason.clone(), launched.message.clone()),
        _ => ("RegistrationFailed".to_owned(), "Failed to register node".to_owned()),
    };
    ConditionChange::no(condition::NODE_REGISTRATION_HEALTHY, reason, message)
}

/// The claim's pool, if it is still the one that made the claim.
fn pool_of(context: &Context, claim: &NodeClaim) -> Option<Arc<NodePool>> {
    let pool = context.mirror.node_pool(label(claim, labels::NODE_POOL_LABEL)?)?;
    let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|owner| Some(&owner.uid) == pool.metadata.uid.as_ref()).then_some(pool)
}

/// How long to wait for the mirror to show what another writer wrote.
const CONFLICT_RETRY: Duration = Duration::from_millis(100);

/// Many claims of a pool register at once, each with something to tell, so a conflict is answered by trying again on what
/// the mirror has learnt by then.
async fn tell(
    context: &Context,
    pool: Arc<NodePool>,
    outcome: Outcome,
    change: &ConditionChange,
) -> Result<(), ReconcileError> {
    let mut pool = pool;
    for attempt in 0.. {
        let present = pool.condition(condition::NODE_REGISTRATION_HEALTHY);
        if outcome == Outcome::Failed && present.is_some_and(|condition| condition.is_false()) {
            break;
        }
        let mut wanted = (*pool).clone();
        set_condition(&mut wanted, change, context.clock.now());
        match patch::status(context, &*pool, &wanted).await {
            Err(error) if error.is_conflict() && attempt < 10 => {
                tokio::time::sleep(CONFLICT_RETRY).await;
                let uid = pool.metadata.uid.clone();
                match context.mirror.node_pool(pool.metadata.name.as_deref().unwrap_or_default()) {
                    Some(known) if known.metadata.uid == uid => pool = known,
                    _ => break,
                }
            }
            answer => return answer.map(|_| ()),
        }
    }
    Ok(())
}
