//! The end of a NodeClaim (core spec §5.8): first its Node drains and goes, then the instance, then the claim.

use super::Memory;
use crate::apply::patch::{self, Lock};
use crate::error::{Context as _, ReconcileError};
use crate::reconcile::termination::expiring;
use crate::reconcile::{Context, Requeue};
use controller_api::{NodeClaim, labels};
use controller_core::cloud::CloudProvider as _;
use controller_core::lifecycle::{
    ConditionChange, condition, finalization, is_true, label, launch, provider_id, set_condition, since,
};
use std::time::Duration;

/// How often the cloud is asked whether the instance is gone.
const INSTANCE_INTERVAL: Duration = Duration::from_secs(5);

pub(super) async fn finalize(context: &Context, memory: &Memory, claim: &NodeClaim) -> Result<Requeue, ReconcileError> {
    if finalization::is_finished(claim) {
        return Ok(Requeue::OnChange);
    }
    let claim = fix_deadline(context, claim).await?;
    if is_true(&claim, condition::REGISTERED) && !nodes_are_gone(context, &claim).await? {
        return Ok(Requeue::OnChange);
    }
    let claim = with_unwritten_launch(context, memory, claim);
    if provider_id(&claim).is_some() && !instance_is_gone(context, memory, &claim).await? {
        return Ok(Requeue::After(INSTANCE_INTERVAL));
    }
    // The status patch above has made a newer version.
    let current = context.mirror.node_claim(name_of(&claim)).map_or(claim, |claim| (*claim).clone());
    patch::remove_finalizer(context, &current, labels::TERMINATION_FINALIZER).await?;
    memory.launch_is_stored(current.metadata.uid.as_deref().unwrap_or_default());
    tell_deleted(context, &current);
    Ok(Requeue::OnChange)
}

/// Writes the instant from which pods are no longer spared, once.
async fn fix_deadline(context: &Context, claim: &NodeClaim) -> Result<NodeClaim, ReconcileError> {
    let Some(deadline) = finalization::missing_deadline(claim) else { return Ok(claim.clone()) };
    let text = finalization::rfc3339(deadline);
    let mut annotated = claim.clone();
    let annotations = annotated.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::TERMINATION_TIMESTAMP_ANNOTATION.to_owned(), text.clone());
    let annotated = patch::object(context, claim, &annotated, Lock::Optimistic).await?;
    tracing::info!(
        NodeClaim = name_of(claim),
        "karpenter.sh/nodeclaim-termination-timestamp" = text,
        "annotated nodeclaim"
    );
    context.events.publish(expiring(claim, deadline));
    Ok(annotated)
}

/// Deletes the claim's Nodes; their own finalizer drains them. The Nodes' changes bring us back.
async fn nodes_are_gone(context: &Context, claim: &NodeClaim) -> Result<bool, ReconcileError> {
    let nodes = provider_id(claim).map(|id| context.mirror.nodes_by_provider_id(id)).unwrap_or_default();
    for node in nodes.iter().filter(|node| node.metadata.deletion_timestamp.is_none()) {
        patch::delete(context, &**node).await?;
    }
    Ok(nodes.is_empty())
}

/// A claim deleted before its launch could be written still has its instance.
fn with_unwritten_launch(context: &Context, memory: &Memory, claim: NodeClaim) -> NodeClaim {
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    match memory.launched(uid, context.clock.now()).filter(|_| provider_id(&claim).is_none()) {
        Some(created) => launch::launched(&claim, &created),
        None => claim,
    }
}

async fn instance_is_gone(context: &Context, memory: &Memory, claim: &NodeClaim) -> Result<bool, ReconcileError> {
    let is_gone = match context.cloud.delete(claim).await {
        Ok(()) => false,
        Err(error) if error.is_not_found() => true,
        Err(error) => {
            return Err(error).context(format_args!("terminating the instance of nodeclaim {}", name_of(claim)));
        }
    };
    // The call took its time; meanwhile the drain may have written to the claim.
    let stored = context.mirror.node_claim(name_of(claim)).map_or_else(|| claim.clone(), |claim| (*claim).clone());
    let mut terminating = with_unwritten_launch(context, memory, stored.clone());
    set_condition(&mut terminating, &ConditionChange::yes(condition::INSTANCE_TERMINATING), context.clock.now());
    patch::status(context, &stored, &terminating).await?;
    if is_gone && let Some(began) = since(&terminating, condition::INSTANCE_TERMINATING) {
        let taken = context.clock.now().duration_since(began).as_secs_f64();
        let pool = label(claim, labels::NODE_POOL_LABEL).unwrap_or_default();
        context.metrics.nodeclaims_instance_termination_duration_seconds.observe([pool], taken);
    }
    Ok(is_gone)
}

fn tell_deleted(context: &Context, claim: &NodeClaim) {
    let text = |key: &str| label(claim, key).unwrap_or_default();
    let pool = text(labels::NODE_POOL_LABEL);
    tracing::info!(
        NodeClaim = name_of(claim),
        "provider-id" = provider_id(claim),
        Node = claim.status.as_ref().map(|status| status.node_name.as_str()).filter(|name| !name.is_empty()),
        "deleted nodeclaim"
    );
    if let Some(deleted) = &claim.metadata.deletion_timestamp {
        let taken = context.clock.now().duration_since(deleted.0).as_secs_f64();
        context.metrics.nodeclaims_termination_duration_seconds.observe([pool], taken);
    }
    let labels = [pool, text(labels::CAPACITY_TYPE_LABEL), text(labels::ZONE_LABEL)];
    context.metrics.nodeclaims_terminated.add(labels);
}

fn name_of(claim: &NodeClaim) -> &str {
    claim.metadata.name.as_deref().unwrap_or_default()
}
