//! NodeClaims created from plans (core spec §3.14).

use crate::error::{Context as _, ReconcileError};
use crate::reconcile::Context;
use crate::telemetry::first;
use controller_api::NodeClaim;
use controller_core::resources::Resources;
use controller_core::scheduling::PlannedNode;
use controller_core::snapshot::{Pool, Snapshot};
use kube::Api;
use kube::api::PostParams;
use std::collections::BTreeMap;

/// A NodeClaim that now exists.
pub(crate) struct Created {
    /// Its name.
    pub(crate) name: String,
}

/// Creates a NodeClaim for each planned node, all at the same time; `reason` is the metric's label. The mirror knows each
/// of them before this returns, so that the next decision counts on it.
pub(crate) async fn create(
    context: &Context,
    snapshot: &Snapshot,
    planned: &[PlannedNode],
    reason: &str,
) -> Vec<Result<Created, ReconcileError>> {
    let usage = usage_by_pool(snapshot);
    futures::future::join_all(planned.iter().map(|planned| create_one(context, planned, &usage, reason))).await
}

async fn create_one(
    context: &Context,
    planned: &PlannedNode,
    usage: &BTreeMap<String, Resources>,
    reason: &str,
) -> Result<Created, ReconcileError> {
    let pool = planned.pool.as_str();
    within_limits(context, pool, usage)?;
    let claim = planned.to_node_claim();
    let created = Api::<NodeClaim>::all(context.kube.clone())
        .create(&PostParams::default(), &claim)
        .await
        .context(format_args!("creating node claim for nodepool {pool}"))?;
    let name = created.metadata.name.clone().unwrap_or_default();
    let is_relaxed = if planned.min_values_relaxed { "true" } else { "false" };
    context.metrics.nodeclaims_created.add([reason, pool, is_relaxed]);
    tracing::info!(
        NodePool = %pool,
        NodeClaim = %name,
        requests = %serde_json::to_string(&created.spec.resources.requests).unwrap_or_default(),
        "instance-types" = %first(planned.instance_types.iter().map(|instance_type| &instance_type.name), 5),
        "created nodeclaim"
    );
    context.mirror.observe(created);
    Ok(Created { name })
}

/// Refuses if the pool already has more than it may have. What this batch adds is not counted here; the scheduler has
/// planned it within what was left.
fn within_limits(context: &Context, pool: &str, usage: &BTreeMap<String, Resources>) -> Result<(), ReconcileError> {
    let Some(object) = context.mirror.node_pool(pool) else {
        return Err(ReconcileError::Other(format!("creating node claim, nodepool {pool} is gone")));
    };
    let none = Resources::default();
    let used = usage.get(pool).unwrap_or(&none);
    for (name, limit) in Pool::new(object, Vec::new()).limits().iter() {
        let used = used.get(name);
        if used > limit {
            return Err(ReconcileError::Other(format!(
                "creating node claim, resource usage exceeds limit (resource-name={name}, usage={used}, limit={limit})"
            )));
        }
    }
    Ok(())
}

/// What the nodes of each pool have together; nodes that are going are not counted (core spec §4.1).
pub(crate) fn usage_by_pool(snapshot: &Snapshot) -> BTreeMap<String, Resources> {
    let mut usage: BTreeMap<String, Resources> = BTreeMap::new();
    for node in snapshot.nodes.values() {
        if let Some(pool) = node.pool().filter(|_| !node.is_marked_for_deletion()) {
            usage.entry(pool.to_owned()).or_default().add(node.capacity());
        }
    }
    usage
}
