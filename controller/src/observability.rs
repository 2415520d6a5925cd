//! Metrics about pods, nodes and pools (core spec §10.3).
//!
//! Upstream refreshes its gauges every few seconds; here they are computed from the mirror when somebody asks. Only what
//! happens once, a pod being bound or becoming ready, is followed as it happens.

use crate::apply::claims::usage_by_pool;
use crate::metrics::Metrics;
use crate::mirror::{Kind, Mirror};
use crate::reconcile::Context;
use controller_api::labels;
use controller_aws::LaunchFailure;
use controller_core::quantity::Quantity;
use controller_core::snapshot::{OwnerKind, Phase, Pod, PodName, Snapshot};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::time::Instant;

/// Fills the gauges whenever the metrics' text is asked for.
pub(crate) fn describe_when_asked(context: &Context) {
    let (mirror, clock, settings) = (context.mirror.clone(), context.clock.clone(), context.settings.clone());
    let cloud = context.cloud.clone();
    let unsynced_since = Mutex::new(None);
    let told = Mutex::new(BTreeMap::new());
    context.metrics.refresh_with(move |metrics| {
        let snapshot = mirror.snapshot(clock.now(), &BTreeMap::new());
        describe_state(metrics, &mirror, &snapshot, &unsynced_since);
        count_launch_failures(metrics, cloud.launch_failures(), &told);
        if settings.cluster_state_observability {
            describe_pools(metrics, &snapshot);
            describe_pods(metrics, &snapshot);
        }
    });
}

fn describe_state(metrics: &Metrics, mirror: &Mirror, snapshot: &Snapshot, unsynced_since: &Mutex<Option<Instant>>) {
    let is_synced = mirror.synced();
    metrics.cluster_state_node_count.set([], snapshot.nodes.len() as f64);
    metrics.cluster_state_synced.set([], f64::from(u8::from(is_synced)));
    let mut since = unsynced_since.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let unsynced = if is_synced { None } else { Some(since.unwrap_or_else(Instant::now)) };
    metrics.cluster_state_unsynced_time_seconds.set([], unsynced.map_or(0.0, |since| since.elapsed().as_secs_f64()));
    *since = unsynced;
}

/// The provider counts from its start; the metric is moved on by what has come since the last time.
fn count_launch_failures(
    metrics: &Metrics,
    failures: Vec<(LaunchFailure, u64)>,
    told: &Mutex<BTreeMap<LaunchFailure, u64>>,
) {
    let mut told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (failure, count) in failures {
        let LaunchFailure { zone, zone_id, capacity_type, reason } = &failure;
        let labels = [zone.as_str(), zone_id.as_str(), capacity_type.as_str(), *reason];
        let before = told.get(&failure).copied().unwrap_or_default();
        metrics.cloudprovider_instance_launch_failures.add_many(labels, count.saturating_sub(before));
        told.insert(failure, count);
    }
}

fn describe_pools(metrics: &Metrics, snapshot: &Snapshot) {
    metrics.nodepools_limit.clear();
    metrics.nodepools_usage.clear();
    for (name, pool) in &snapshot.pools {
        for (resource, limit) in pool.limits().iter() {
            metrics.nodepools_limit.set([&resource_type(resource), name], limit.as_f64());
        }
    }
    for (name, usage) in usage_by_pool(snapshot) {
        for (resource, used) in usage.iter().filter(|(_, used)| *used != Quantity::ZERO) {
            metrics.nodepools_usage.set([&resource_type(resource), &name], used.as_f64());
        }
    }
}

fn resource_type(resource: &str) -> String {
    resource.to_lowercase().replace('-', "_")
}

fn describe_pods(metrics: &Metrics, snapshot: &Snapshot) {
    let by_node: BTreeMap<&str, _> =
        snapshot.nodes.values().filter_map(|node| Some((node.node_name()?, node))).collect();
    metrics.pods_state.clear();
    for pod in snapshot.pods.values() {
        let node = pod.node_name.as_deref().and_then(|name| by_node.get(name));
        let label = |key| node.and_then(|node| node.labels().get(key)).map_or("", String::as_str);
        let flag = |is_set| if is_set { "true" } else { "false" };
        metrics.pods_state.set(
            [
                &pod.name.name,
                &pod.name.namespace,
                &owner(pod),
                pod.node_name.as_deref().unwrap_or_default(),
                flag(pod.node_name.is_some()),
                label(labels::NODE_POOL_LABEL),
                label(labels::ZONE_LABEL),
                label(labels::ARCH_LABEL),
                label(labels::CAPACITY_TYPE_LABEL),
                label(labels::INSTANCE_TYPE_LABEL),
                phase(pod.phase),
                flag(pod.ready == Some(true)),
                flag(!label(labels::NODE_POOL_LABEL).is_empty()),
            ],
            1.0,
        );
    }
}

/// The first owner's path. Owners other than those told apart by decisions have no kind here and are left out.
fn owner(pod: &Pod) -> String {
    let Some(owner) = pod.owners.first() else { return String::new() };
    let (group, kind) = match owner.kind {
        OwnerKind::DaemonSet => ("apps/v1", "daemonsets"),
        OwnerKind::StatefulSet => ("apps/v1", "statefulsets"),
        OwnerKind::Node => ("v1", "nodes"),
        OwnerKind::Other => return String::new(),
    };
    format!("/apis/{group}/namespaces/{}/{kind}/{}", pod.name.namespace, owner.name)
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
        Phase::Unknown => "Unknown",
    }
}

/// Measures how long pods take from creation to binding and to readiness, for those seen pending.
pub(crate) async fn run(context: Context) {
    if !context.settings.cluster_state_observability {
        return std::future::pending().await;
    }
    let mut changes = context.mirror.subscribe();
    // Holds pods that are not ready yet: at most as many as the mirror has.
    let mut starting: BTreeMap<PodName, Starting> = BTreeMap::new();
    loop {
        for change in changes.next().await.into_iter().filter(|change| change.kind == Kind::Pod) {
            let name = PodName::new(&change.namespace, &change.name);
            match context.mirror.pod(&name) {
                Some(pod) => follow(&context, &mut starting, &pod),
                None => drop(starting.remove(&name)),
            }
        }
    }
}

#[derive(Default)]
struct Starting {
    is_bound: bool,
}

fn follow(context: &Context, starting: &mut BTreeMap<PodName, Starting>, pod: &Pod) {
    let is_ready = pod.ready == Some(true);
    if pod.is_terminal() {
        starting.remove(&pod.name);
        return;
    }
    if !starting.contains_key(&pod.name) {
        if pod.phase != Phase::Pending {
            return;
        }
        starting.insert(pod.name.clone(), Starting { is_bound: pod.node_name.is_some() });
    }
    let Some(state) = starting.get_mut(&pod.name) else { return };
    let age = pod.created.map_or(0.0, |created| context.clock.now().duration_since(created).as_secs_f64());
    if pod.node_name.is_some() && !state.is_bound {
        state.is_bound = true;
        context.metrics.pods_bound_duration_seconds.observe([], age);
    }
    if is_ready {
        context.metrics.pods_startup_duration_seconds.observe([], age);
        starting.remove(&pod.name);
    }
}
