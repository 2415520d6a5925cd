//! One look at a cluster that runs, as a decision would see it now. Nothing is written, and nobody leads.

use crate::app;
use crate::config::Settings;
use crate::error::chain;
use crate::events::Events;
use crate::measured::MeasuredCloud;
use crate::metrics::Metrics;
use crate::mirror::Mirror;
use crate::reconcile::Context;
use anyhow::bail;
use controller_aws::Clients;
use controller_clock::Clock;
use controller_core::snapshot::Snapshot;
use std::sync::Arc;
use std::time::Duration;

/// How long it may take to list the cluster.
const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster and what its NodePools may launch. What a running controller alone knows is not in it: offerings that it
/// found out of stock, and pods that it expects on nodes.
///
/// # Errors
/// Says what cannot be reached or listed.
pub async fn look(mut settings: Settings, kube: kube::Client, aws: Clients, clock: Clock) -> anyhow::Result<Snapshot> {
    // Only nodes are told the endpoint, and none is launched.
    settings.aws.cluster_endpoint.get_or_insert_default();
    settings.aws.eks_control_plane = false;
    let metrics = Arc::new(Metrics::default());
    let cloud = app::connect(&settings, &kube, aws, &clock).await?;
    let context = Context {
        cloud: Arc::new(MeasuredCloud::new(cloud, metrics.clone())),
        events: Events::new(clock.clone()),
        settings: Arc::new(settings),
        mirror: Arc::new(Mirror::new()),
        kube,
        clock,
        metrics,
    };
    if let Err(error) = context.cloud.refresh_pricing().await {
        tracing::warn!(error = %chain(&error), "prices cannot be had; those that were known at the time of this version are used");
    }
    tokio::select! {
        biased;
        () = context.mirror.listed() => {}
        () = context.mirror.run(&context.kube) => {}
        () = tokio::time::sleep(PATIENCE) => {
            let missing = context.mirror.unlisted();
            bail!("after {} s these kinds could not be listed: {missing:?}; the lines before this one say why", PATIENCE.as_secs());
        }
    }
    Ok(context.snapshot().await)
}
