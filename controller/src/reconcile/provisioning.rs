//! Pods without a place → NodeClaims: collect, schedule, create, tell (core spec §3.1–3.3, §3.15).
//!
//! A pass runs when a pod waits for a node or a node is being emptied, and again every ten seconds while one does: then
//! capacity that was missing may be back. Without either nothing runs.

use super::batcher::Batcher;
use super::{Context, Loop, Requeue, keyed};
use crate::apply::claims::{self, Created};
use crate::error::{ReconcileError, chain};
use crate::events::{Event, pod_reference, reference};
use crate::mirror::{Change, Kind, Mirror};
use crate::telemetry::first;
use controller_api::{NodeClaim, labels};
use controller_core::scheduling::{PoolLeftOut, Schedule, Unschedulable, schedule};
use controller_core::snapshot::{PodName, Snapshot};
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How often a pod that waits asks for another pass.
const RETRIGGER: Duration = Duration::from_secs(10);
/// How long nobody can decide before that is worth an error in the log, and how often it is repeated.
const UNSYNCED_IS_LONG: Duration = Duration::from_secs(30);
const UNSYNCED_REPEAT: Duration = Duration::from_secs(10);
/// A claim that no watch has confirmed after this long is asked for.
const UNCONFIRMED_IS_LONG: Duration = Duration::from_secs(15);

/// Provisions for as long as the future lives.
pub(crate) async fn run(context: Context) {
    let batcher = Batcher::new(context.settings.core.batch_idle_duration, context.settings.core.batch_max_duration);
    let concurrency = context.settings.concurrency(10, 1000);
    tokio::join!(
        keyed(context.clone(), Loop::new("provisioner.trigger.pod", concurrency), waiting_pods, |context, key| {
            let batcher = &batcher;
            async move { trigger_by_pod(&context, batcher, &key) }
        }),
        keyed(context.clone(), Loop::new("provisioner.trigger.node", concurrency), disrupted_nodes, |context, key| {
            let batcher = &batcher;
            async move { trigger_by_node(&context, batcher, &key) }
        }),
        keyed(context.clone(), Loop::new("state.nodeclaimgc", 1), unconfirmed_claims, confirm),
        passes(&context, &batcher),
    );
}

async fn passes(context: &Context, batcher: &Batcher) {
    loop {
        batcher.wait().await;
        synced(context).await;
        let started = Instant::now();
        let outcome = provision(context).await;
        context.metrics.reconciled("provisioner", outcome.is_ok(), started.elapsed());
        // No back-off of its own: the pods that still wait ask again.
        if let Err(error) = outcome {
            tracing::error!(controller = "provisioner", error = %chain(&error), "Reconciler error");
        }
    }
}

/// One pass.
async fn provision(context: &Context) -> Result<(), ReconcileError> {
    let started = Instant::now();
    let snapshot = context.snapshot().await;
    let schedule = schedule(&snapshot, &context.settings.core);
    let took = started.elapsed();
    context.metrics.scheduler_scheduling_duration_seconds.observe(["provisioner"], took.as_secs_f64());
    tell(context, &snapshot, &schedule, took);
    nominate(context, &snapshot, &schedule);
    let mut failure = None;
    let created = claims::create(context, &snapshot, &schedule.new_nodes, "provisioned").await;
    for (planned, outcome) in schedule.new_nodes.iter().zip(created) {
        match outcome {
            Ok(Created { name }) => {
                for pod in &planned.pods {
                    tell_nominated(context, &snapshot, pod, &format!("nodeclaim/{name}"));
                }
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Spares the nodes that pods are expected on, and tells the pods.
fn nominate(context: &Context, snapshot: &Snapshot, schedule: &Schedule) {
    // Twice the batch window, as a pod may be bound only after the next pass (core spec §4.4).
    let window = (2 * context.settings.core.batch_max_duration).max(Duration::from_secs(10));
    for (name, pods) in &schedule.existing {
        let Some(node) = snapshot.nodes.get(name) else { continue };
        context.mirror.nominate(name, snapshot.now + window);
        let claim = node.claim_name().map(|claim| format!("nodeclaim/{claim}"));
        let node = node.node_name().map(|node| format!("node/{node}"));
        let target = [claim, node].into_iter().flatten().collect::<Vec<_>>().join(", ");
        for pod in pods {
            tell_nominated(context, snapshot, pod, &target);
        }
    }
}

fn tell_nominated(context: &Context, snapshot: &Snapshot, pod: &PodName, target: &str) {
    if let Some(pod) = snapshot.pods.get(pod) {
        let message = format!("Pod should schedule on: {target}");
        let event = Event::normal(pod_reference(pod), "Nominated", message);
        context.events.publish(event.dedupe([pod.uid.as_str()]).limited());
    }
}

fn tell(context: &Context, snapshot: &Snapshot, schedule: &Schedule, took: Duration) {
    for (name, reason) in &schedule.pools_left_out {
        tell_left_out(context, snapshot, name, reason);
    }
    if schedule.unschedulable.values().any(|reason| matches!(reason, Unschedulable::NoNodePools)) {
        tracing::info!(controller = "provisioner", "no dynamic nodepools found");
    }
    // Pods that wait for reserved capacity are not stuck: a later pass may find some.
    let failed = schedule.unschedulable.values().filter(|reason| !reason.is_deferred()).count();
    context.metrics.scheduler_unschedulable_pods_count.set(["provisioner"], failed as f64);
    count_by_reason(context, schedule);
    for (name, reason) in &schedule.unschedulable {
        let is_ignored = matches!(reason, Unschedulable::Ignored(_));
        if is_ignored {
            tracing::debug!(controller = "provisioner", Pod = %name, error = %reason, "ignoring pod");
        } else if reason.is_deferred() {
            tracing::debug!(
                controller = "provisioner", Pod = %name,
                "deferring scheduling decision for provisionable pod(s) to future simulation due to limited reserved \
                 offering capacity"
            );
        } else {
            tracing::error!(controller = "provisioner", Pod = %name, error = %reason, "could not schedule pod");
        }
        // Beyond upstream: a pod that waits because no NodePool is ready is told so too.
        let is_told = reason.is_told() || matches!(reason, Unschedulable::NoNodePools);
        let Some(pod) = snapshot.pods.get(name).filter(|_| is_told) else { continue };
        let explanation = explanation(schedule, reason).map(|text| format!(" ({text})")).unwrap_or_default();
        let message = format!("Failed to schedule pod, {reason}{explanation}");
        let event = Event::warning(pod_reference(pod), "FailedScheduling", message);
        context.events.publish(event.dedupe([pod.uid.as_str()]).window(Duration::from_secs(300)));
    }
    if schedule.new_nodes.is_empty() {
        return;
    }
    let new: Vec<&PodName> = schedule.new_nodes.iter().flat_map(|node| &node.pods).collect();
    let existing: usize = schedule.existing.values().map(Vec::len).sum();
    let all = schedule.existing.values().flatten().chain(new.iter().copied());
    tracing::info!(
        controller = "provisioner",
        Pods = %first(all, 5),
        duration = %format_args!("{took:?}"),
        "found provisionable pod(s)"
    );
    tracing::info!(
        controller = "provisioner",
        nodeclaims = schedule.new_nodes.len(),
        pods = new.len(),
        "computed new nodeclaim(s) to fit pod(s)"
    );
    if existing > 0 {
        tracing::info!(
            controller = "provisioner",
            nodes = schedule.existing.len(),
            pods = existing,
            "computed unready node(s) will fit pod(s)"
        );
    }
}

/// Counts the pods that each NodePool refused, by the kind of reason.
fn count_by_reason(context: &Context, schedule: &Schedule) {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for refusal in schedule.unschedulable.values().flat_map(Unschedulable::refusals) {
        *counts.entry((&refusal.pool, refusal.refusal.kind())).or_default() += 1;
    }
    let metric = &context.metrics.scheduler_unschedulable_pods_by_reason;
    metric.clear();
    counts.into_iter().for_each(|((pool, kind), count)| metric.set(["provisioner", pool, kind], count as f64));
}

/// What the facts say beyond upstream's words: of the pod, or of the pools where none of them could take part.
fn explanation(schedule: &Schedule, reason: &Unschedulable) -> Option<String> {
    if *reason != Unschedulable::NoTemplates {
        return reason.explain();
    }
    let of_pools = schedule.pools_left_out.iter();
    let sentences: Vec<String> =
        of_pools.filter_map(|(pool, why)| Some(format!("NodePool {pool}: {}", why.explain()?))).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

fn tell_left_out(context: &Context, snapshot: &Snapshot, name: &str, reason: &PoolLeftOut) {
    match reason {
        PoolLeftOut::Static | PoolLeftOut::Deleting => {}
        PoolLeftOut::NotReady => {
            tracing::error!(controller = "provisioner", NodePool = %name, "ignoring nodepool, not ready");
        }
        PoolLeftOut::NoInstanceTypes => tracing::info!(controller = "provisioner", NodePool = %name, "{reason}"),
        PoolLeftOut::NoCompatibleInstanceTypes { min_values, unavailable: _ } => {
            tracing::info!(controller = "provisioner", NodePool = %name, "{reason}");
            let Some(pool) = snapshot.pools.get(name) else { return };
            let why = if min_values.is_some() { " due to minValues incompatibility" } else { "" };
            let message = format!("NodePool requirements filtered out all compatible available instance types{why}");
            let event = Event::warning(reference(&*pool.object), "NoCompatibleInstanceTypes", message);
            let uid = pool.object.metadata.uid.clone().unwrap_or_default();
            context.events.publish(event.dedupe([uid]).window(Duration::from_secs(60)));
        }
    }
}

/// Waits until decisions may be made, and says so in the log while that takes long.
async fn synced(context: &Context) {
    let started = Instant::now();
    let mut complain = started + UNSYNCED_IS_LONG;
    loop {
        tokio::select! {
            biased;
            () = context.mirror.wait_synced() => return,
            () = tokio::time::sleep_until(complain) => {
                let duration = format!("{}s", started.elapsed().as_secs());
                tracing::error!(
                    controller = "provisioner", duration, error = "waiting on cluster sync",
                    "cluster is waiting on sync for extended duration"
                );
                complain += UNSYNCED_REPEAT;
            }
        }
    }
}

fn waiting_pods(mirror: &Mirror, change: &Change) -> Vec<String> {
    let is_waiting =
        || mirror.pod(&PodName::new(&change.namespace, &change.name)).is_some_and(|pod| pod.is_provisionable());
    if change.kind == Kind::Pod && is_waiting() {
        vec![format!("{}/{}", change.namespace, change.name)]
    } else {
        vec![]
    }
}

fn trigger_by_pod(context: &Context, batcher: &Batcher, key: &str) -> Result<Requeue, ReconcileError> {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    match context.mirror.pod(&PodName::new(namespace, name)).filter(|pod| pod.is_provisionable()) {
        Some(pod) => {
            batcher.trigger(&pod.uid);
            Ok(Requeue::After(RETRIGGER))
        }
        None => Ok(Requeue::OnChange),
    }
}

fn disrupted_nodes(mirror: &Mirror, change: &Change) -> Vec<String> {
    let is_disrupted = || mirror.node(&change.name).is_some_and(|node| is_disrupted(&node));
    if change.kind == Kind::Node && is_disrupted() { vec![change.name.clone()] } else { vec![] }
}

fn trigger_by_node(context: &Context, batcher: &Batcher, name: &str) -> Result<Requeue, ReconcileError> {
    match context.mirror.node(name).filter(|node| is_disrupted(node)) {
        Some(node) => {
            batcher.trigger(node.metadata.uid.as_deref().unwrap_or(name));
            Ok(Requeue::After(RETRIGGER))
        }
        None => Ok(Requeue::OnChange),
    }
}

/// Whether the node carries the taint of one that is being taken away.
pub(crate) fn is_disrupted(node: &Node) -> bool {
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    taints.into_iter().any(|taint| taint.key == labels::DISRUPTED_TAINT_KEY && taint.effect == "NoSchedule")
}

fn unconfirmed_claims(mirror: &Mirror, change: &Change) -> Vec<String> {
    let is_unconfirmed = change.kind == Kind::NodeClaim && mirror.unconfirmed(&change.name);
    if is_unconfirmed { vec![change.name.clone()] } else { vec![] }
}

/// A claim we created and no watch has shown yet may have been deleted before any watch saw it. It would block every
/// decision for ever, so after a while the API is asked (core spec §4.8, `state.nodeclaimgc`).
async fn confirm(context: Context, name: String) -> Result<Requeue, ReconcileError> {
    let Some(claim) = context.mirror.node_claim(&name).filter(|_| context.mirror.unconfirmed(&name)) else {
        return Ok(Requeue::OnChange);
    };
    let created = claim.metadata.creation_timestamp.as_ref().map_or(context.clock.now(), |time| time.0);
    let age = Duration::try_from(context.clock.now().duration_since(created)).unwrap_or_default();
    if age < UNCONFIRMED_IS_LONG {
        return Ok(Requeue::After(UNCONFIRMED_IS_LONG - age));
    }
    match kube::Api::<NodeClaim>::all(context.kube.clone()).get_opt(&name).await? {
        Some(claim) => context.mirror.observe(claim),
        None => {
            tracing::debug!(NodeClaim = %name, "garbage collecting stale unlaunched nodeclaim from cluster state");
            context.mirror.forget_claim(&name);
        }
    }
    Ok(Requeue::After(UNCONFIRMED_IS_LONG))
}
