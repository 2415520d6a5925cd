//! NodePools: hash, readiness, validation and counters (core spec §5.12–5.15). How their launches end is counted beside
//! the NodeClaims, in `node_claim/registration_health.rs`.

use super::{Context, Loop, Requeue, keyed};
use crate::apply::patch::{self, Lock};
use crate::error::ReconcileError;
use crate::mirror::{Change, Kind, Mirror};
use controller_api::validation::{Findings, validate_node_pool};
use controller_api::{HasConditions as _, NodeClaim, NodePool, labels};
use controller_core::drift_hash::{NODE_POOL_HASH_VERSION, node_pool_hash};
use controller_core::lifecycle::node_pool::{class_readiness, counters};
use controller_core::lifecycle::{ConditionChange, annotation, condition, label, provider_id, set_condition};
use controller_core::snapshot::StateNode;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A pool's nodes are counted at most this often: upstream counts every five seconds, and a thousand nodes that come at
/// once must cause neither a thousand counts nor a thousand writes.
const COUNTER_INTERVAL: Duration = Duration::from_secs(1);

/// When the nodes of each pool were counted last, by the pool's name.
type Counted = Arc<Mutex<BTreeMap<String, Instant>>>;

/// Follows every managed NodePool.
pub(crate) async fn run(context: Context) {
    let options = Loop::new("nodepool", context.settings.concurrency(10, 1000));
    let counted = Counted::default();
    keyed(context, options, keys, move |context, name| {
        let counted = counted.clone();
        async move { reconcile(&context, &counted, &name).await }
    })
    .await;
}

fn keys(mirror: &Mirror, change: &Change) -> Vec<String> {
    match change.kind {
        Kind::NodePool | Kind::Node | Kind::NodeClaim => change.pool.iter().cloned().collect(),
        Kind::NodeClass => pools_of_class(mirror, &change.name),
        _ => Vec::new(),
    }
}

/// The pools that launch from a class.
pub(super) fn pools_of_class(mirror: &Mirror, class: &str) -> Vec<String> {
    let pools = mirror.node_pools();
    let of_class = pools.iter().filter(|pool| pool.spec.template.spec.node_class_ref.name == class);
    of_class.filter_map(|pool| pool.metadata.name.clone()).collect()
}

async fn reconcile(context: &Context, counted: &Counted, name: &str) -> Result<Requeue, ReconcileError> {
    let Some(pool) = context.mirror.node_pool(name) else {
        counted.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        return Ok(Requeue::OnChange);
    };
    let pool = hash(context, &pool).await?;
    let now = context.clock.now();
    let mut wanted = pool.clone();
    set_condition(&mut wanted, &validation(&pool), now);
    let class = context.mirror.node_class(&pool.spec.template.spec.node_class_ref.name);
    set_condition(&mut wanted, &class_readiness(class.as_deref()), now);
    let wait = until_count(counted, name);
    if wait.is_none() {
        count(context, &mut wanted);
    }
    patch::status(context, &pool, &wanted).await?;
    Ok(wait.map_or(Requeue::OnChange, Requeue::After))
}

/// How long the pool's nodes are not to be counted yet; if they are, the count begins.
fn until_count(counted: &Counted, name: &str) -> Option<Duration> {
    let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    match counted.get(name).map(|at| *at + COUNTER_INTERVAL).filter(|due| *due > now) {
        Some(due) => Some(due - now),
        None => {
            counted.insert(name.to_owned(), now);
            None
        }
    }
}

/// Keeps the pool's hash current (§5.14). When the way of hashing changes, claims of the old way take the new hash over
/// first, so that the change alone replaces nothing; a claim that has drifted stays drifted.
async fn hash(context: &Context, pool: &NodePool) -> Result<NodePool, ReconcileError> {
    let hash = node_pool_hash(pool);
    let annotations = pool.metadata.annotations.as_ref();
    let version = annotations.and_then(|all| all.get(labels::NODE_POOL_HASH_VERSION_ANNOTATION));
    if version.is_none_or(|version| version != NODE_POOL_HASH_VERSION) {
        let claims = context.mirror.node_claims();
        let of_pool = |claim: &&Arc<NodeClaim>| label(claim, labels::NODE_POOL_LABEL) == pool.metadata.name.as_deref();
        for claim in claims.iter().filter(of_pool) {
            rehash(context, claim, &hash).await?;
        }
    }
    let mut hashed = pool.clone();
    hashed.metadata.annotations.get_or_insert_default().extend([
        (labels::NODE_POOL_HASH_ANNOTATION.to_owned(), hash),
        (labels::NODE_POOL_HASH_VERSION_ANNOTATION.to_owned(), NODE_POOL_HASH_VERSION.to_owned()),
    ]);
    patch::object(context, pool, &hashed, Lock::None).await
}

async fn rehash(context: &Context, claim: &NodeClaim, hash: &str) -> Result<(), ReconcileError> {
    if annotation(claim, labels::NODE_POOL_HASH_VERSION_ANNOTATION) == Some(NODE_POOL_HASH_VERSION) {
        return Ok(());
    }
    let mut hashed = claim.clone();
    let annotations = hashed.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::NODE_POOL_HASH_VERSION_ANNOTATION.to_owned(), NODE_POOL_HASH_VERSION.to_owned());
    if claim.condition(condition::DRIFTED).is_none() {
        annotations.insert(labels::NODE_POOL_HASH_ANNOTATION.to_owned(), hash.to_owned());
    }
    patch::object(context, claim, &hashed, Lock::None).await.map(drop)
}

fn validation(pool: &NodePool) -> ConditionChange {
    let findings: Findings = validate_node_pool(pool);
    for ignored in &findings.ignored {
        tracing::error!(
            NodePool = pool.metadata.name,
            key = ignored.key,
            "valid-values" = ?ignored.valid,
            "invalid-values" = ?ignored.invalid,
            "please correct found invalid values, proceeding with valid values"
        );
    }
    match findings.is_ok() {
        true => ConditionChange::yes(condition::VALIDATION_SUCCEEDED),
        false => ConditionChange::no(condition::VALIDATION_SUCCEEDED, "NodePoolValidationFailed", findings.message()),
    }
}

/// What the pool's nodes have together (§5.13).
fn count(context: &Context, pool: &mut NodePool) {
    let name = pool.metadata.name.clone().unwrap_or_default();
    let claims = context.mirror.node_claims();
    let nodes =
        claims.iter().filter(|claim| label(claim, labels::NODE_POOL_LABEL) == Some(&name)).filter_map(|claim| {
            // A claim without an instance has no capacity yet.
            let node = context.mirror.nodes_by_provider_id(provider_id(claim)?).into_iter().next();
            let claim_name = claim.metadata.name.as_deref().unwrap_or_default();
            Some(StateNode::new(node, Some(claim.clone())).marked(context.mirror.is_marked(claim_name)))
        });
    let (resources, count) = counters(nodes);
    let status = pool.status.get_or_insert_default();
    status.resources = resources.to_api();
    status.nodes = count;
}
