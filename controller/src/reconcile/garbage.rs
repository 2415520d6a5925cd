//! Garbage collection, both ways: claims whose instance is gone (core spec §5.9), instances that no claim knows, and
//! instance profiles that nothing uses (AWS spec §5.2). Unused launch templates go on the provider's cadence.

use super::Context;
use super::node_claim::{count_pods, delete};
use crate::apply::patch;
use crate::error::{Context as _, ReconcileError, chain};
use controller_api::{NodeClaim, labels};
use controller_core::cloud::CloudProvider as _;
use controller_core::lifecycle::{annotation, garbage, provider_id};
use futures::stream::{self, StreamExt as _};
use kube::api::{Api, ListParams};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Both directions look this often once the controller has run for a while.
const INTERVAL: Duration = Duration::from_secs(120);
/// Just started, instances are looked at more often: what an earlier run may have leaked costs money.
const EAGER_INTERVAL: Duration = Duration::from_secs(10);
const EAGER_ROUNDS: u32 = 20;
/// Workers of each direction, as many as upstream's.
const CLAIMS_TOGETHER: usize = 20;
const INSTANCES_TOGETHER: usize = 100;
/// How often unused instance profiles are deleted.
const PROFILES_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// Collects garbage for as long as the future lives.
pub(crate) async fn run(context: Context) {
    tokio::join!(
        every(&context, "nodeclaim.garbagecollection", |_| INTERVAL, || claims(&context)),
        every(&context, "instance.garbagecollection", instance_interval, || instances(&context)),
        every(&context, "instanceprofile.garbagecollection", |_| PROFILES_INTERVAL, || instance_profiles(&context)),
    );
}

fn instance_interval(successes: u32) -> Duration {
    if successes < EAGER_ROUNDS { EAGER_INTERVAL } else { INTERVAL }
}

/// Repeats `work`; the wait after it depends on how often it has succeeded. A failure is logged and the round is made
/// up for after the next wait.
async fn every<F>(context: &Context, name: &'static str, wait: impl Fn(u32) -> Duration, work: impl Fn() -> F)
where
    F: Future<Output = Result<(), ReconcileError>>,
{
    let mut successes = 0;
    loop {
        let started = Instant::now();
        let outcome = work().await;
        context.metrics.reconciled(name, outcome.is_ok(), started.elapsed());
        match outcome {
            Ok(()) => successes += 1,
            Err(error) => tracing::error!(controller = name, error = %chain(&error), "Reconciler error"),
        }
        tokio::time::sleep(wait(successes)).await;
    }
}

async fn claims(context: &Context) -> Result<(), ReconcileError> {
    // The claims come before the instances: each of these had its instance when the list was made.
    let candidates = context.mirror.node_claims();
    if candidates.is_empty() {
        return Ok(());
    }
    let instances = context.cloud.list().await.context("listing instances")?;
    let node_of = |id: &str| context.mirror.nodes_by_provider_id(id).into_iter().next();
    let lost = garbage::claims_without_instance(&candidates, &instances, node_of);
    let lost: Vec<Arc<NodeClaim>> = lost.into_iter().cloned().collect();
    let removals = lost.into_iter().map(|claim| remove_claim(context, claim));
    first_error(stream::iter(removals).buffer_unordered(CLAIMS_TOGETHER).collect::<Vec<_>>().await)
}

async fn remove_claim(context: &Context, claim: Arc<NodeClaim>) -> Result<(), ReconcileError> {
    const REASON: &str = "garbage_collected";
    delete(context, &claim, REASON).await?;
    count_pods(context, &claim, REASON);
    tracing::debug!(
        controller = "nodeclaim.garbagecollection",
        NodeClaim = claim.metadata.name,
        "provider-id" = provider_id(&claim),
        "garbage collecting nodeclaim with no cloudprovider representation"
    );
    Ok(())
}

async fn instances(context: &Context) -> Result<(), ReconcileError> {
    let instances = context.cloud.list().await.context("listing instances")?;
    // The claims come after the instances: an instance launched meanwhile is younger than the list.
    let claims = context.mirror.node_claims();
    let leaked = garbage::instances_without_claim(&instances, &claims, context.clock.now());
    if leaked.is_empty() {
        return Ok(());
    }
    // Before anything is terminated the claims are asked of the API server itself: the mirror may be behind.
    let claims = Api::<NodeClaim>::all(context.kube.clone()).list(&ListParams::default()).await;
    let claims: Vec<_> = claims.context("listing nodeclaims")?.items.into_iter().map(Arc::new).collect();
    let leaked = garbage::instances_without_claim(&instances, &claims, context.clock.now());
    let leaked: Vec<NodeClaim> = leaked.into_iter().cloned().collect();
    let removals = leaked.into_iter().map(|instance| remove_instance(context, instance));
    first_error(stream::iter(removals).buffer_unordered(INSTANCES_TOGETHER).collect::<Vec<_>>().await)
}

async fn remove_instance(context: &Context, instance: NodeClaim) -> Result<(), ReconcileError> {
    let id = provider_id(&instance).unwrap_or_default();
    match context.cloud.delete(&instance).await {
        Err(error) if !error.is_not_found() => {
            return Err(error).context(format_args!("garbage collecting instance {id}"));
        }
        _ => {}
    }
    tracing::debug!(
        controller = "instance.garbagecollection",
        "provider-id" = id,
        "garbage collected cloudprovider instance"
    );
    for node in context.mirror.nodes_by_provider_id(id) {
        patch::delete(context, &*node).await?;
        tracing::debug!(
            controller = "instance.garbagecollection",
            Node = node.metadata.name,
            "provider-id" = id,
            "garbage collected node"
        );
    }
    Ok(())
}

async fn instance_profiles(context: &Context) -> Result<(), ReconcileError> {
    let of_claims = context
        .mirror
        .node_claims()
        .into_iter()
        .filter_map(|claim| annotation(&claim, labels::INSTANCE_PROFILE_NAME_ANNOTATION).map(str::to_owned));
    let of_classes = context.mirror.node_classes().into_iter();
    let of_classes = of_classes.filter_map(|class| class.status.as_ref().map(|status| status.instance_profile.clone()));
    let in_use: BTreeSet<String> = of_claims.chain(of_classes).filter(|name| !name.is_empty()).collect();
    let collected = context.cloud.collect_instance_profiles(&in_use).await;
    for profile in collected.map_err(|error| ReconcileError::Other(chain(&error)))? {
        tracing::debug!(controller = "instanceprofile.garbagecollection", profile, "deleted instance profile");
    }
    Ok(())
}

fn first_error(outcomes: Vec<Result<(), ReconcileError>>) -> Result<(), ReconcileError> {
    outcomes.into_iter().collect()
}
