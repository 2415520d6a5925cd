//! The eviction queue (core spec §6.4): pods of draining nodes leave through the eviction API, so that
//! PodDisruptionBudgets are heard; a refusal is backed off and tried again. Only a pod whose node has a deadline that
//! its grace would outlast is deleted directly.
//!
//! The queue lives in memory. Nothing is lost with it: every look at a draining node puts its pods in again.

use crate::error::chain;
use crate::events::{Event, pod_reference, reference};
use crate::reconcile::Context;
use controller_core::lifecycle::drain::{Eviction, force_delete_grace_seconds, needs_force_delete};
use controller_core::lifecycle::{condition, condition_of, finalization::rfc3339};
use controller_core::snapshot::{Pod, PodName};
use futures::stream::{FuturesUnordered, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as api;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Evictions under way at the same time; upstream starts with as many workers.
const CONCURRENCY: usize = 100;
const BACKOFF_BASE: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// What the API server answers, with status 500, when more than one budget selects the pod.
const MULTIPLE_BUDGETS: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

/// The queue. It never holds more than the pods of the nodes that are draining.
#[derive(Default)]
pub(crate) struct Evictions {
    pending: Mutex<Pending>,
    arrived: Notify,
}

#[derive(Default)]
struct Pending {
    entries: BTreeMap<Eviction, Entry>,
    arrivals: BTreeSet<Eviction>,
}

#[derive(Clone)]
struct Entry {
    node: String,
    deadline: Option<Timestamp>,
}

/// What one attempt came to.
enum Attempt {
    /// The pod is on its way, gone, or none of our business any more.
    Complete,
    /// Not yet.
    Again,
}

impl Evictions {
    /// Puts pods of a node in. A pod that waits already keeps its place; of two deadlines the earlier counts.
    pub(crate) fn add(&self, node: &str, pods: Vec<Eviction>, deadline: Option<Timestamp>) {
        let mut pending = self.lock();
        let Pending { entries, arrivals } = &mut *pending;
        for pod in pods {
            let entry = entries.entry(pod.clone()).or_insert_with(|| {
                arrivals.insert(pod);
                Entry { node: node.to_owned(), deadline }
            });
            entry.deadline = match (entry.deadline, deadline) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        drop(pending);
        self.arrived.notify_one();
    }

    /// Works the queue for as long as the future lives.
    pub(crate) async fn run(&self, context: &Context) {
        let mut due: BTreeSet<(Instant, Eviction)> = BTreeSet::new();
        let mut failures: BTreeMap<Eviction, u32> = BTreeMap::new();
        let mut running = FuturesUnordered::new();
        loop {
            let arrived = self.arrived.notified();
            let now = Instant::now();
            due.extend(std::mem::take(&mut self.lock().arrivals).into_iter().map(|pod| (now, pod)));
            while running.len() < CONCURRENCY
                && due.first().is_some_and(|(at, _)| *at <= now)
                && let Some((_, pod)) = due.pop_first()
            {
                if let Some(entry) = self.entry(&pod) {
                    running.push(async move { (attempt(context, &pod, &entry).await, pod) });
                }
            }
            // With every worker busy the next due pod waits for a worker, not for the clock.
            let next = due.first().map(|(at, _)| *at).filter(|_| running.len() < CONCURRENCY);
            tokio::select! {
                biased;
                Some((attempt, pod)) = running.next(), if !running.is_empty() => match attempt {
                    Attempt::Complete => {
                        failures.remove(&pod);
                        self.lock().entries.remove(&pod);
                    }
                    Attempt::Again => {
                        let failed = failures.entry(pod.clone()).or_default();
                        // 2^20 times the base exceeds the maximum; the bound only keeps the shift defined.
                        let wait = BACKOFF_BASE.saturating_mul(1 << (*failed).min(20)).min(BACKOFF_MAX);
                        *failed += 1;
                        due.insert((Instant::now() + wait, pod));
                    }
                },
                () = arrived => {}
                () = sleep_until(next) => {}
            }
        }
    }

    fn entry(&self, pod: &Eviction) -> Option<Entry> {
        self.lock().entries.get(pod).cloned()
    }

    /// A panic while the lock was held cannot leave these collections half-written, so poisoning carries no news.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn attempt(context: &Context, eviction: &Eviction, entry: &Entry) -> Attempt {
    let Some(pod) = context.mirror.pod(&eviction.pod).filter(|pod| pod.uid == eviction.uid) else {
        return Attempt::Complete;
    };
    let now = context.clock.now();
    if let Some(deadline) = entry.deadline
        && needs_force_delete(&pod, Some(deadline), now)
    {
        return force_delete(context, &pod, deadline, now).await;
    }
    if !pod.is_active() {
        return Attempt::Complete;
    }
    if !pod.is_evictable(now) {
        return Attempt::Again;
    }
    evict(context, &pod, &entry.node).await
}

async fn evict(context: &Context, pod: &Pod, node: &str) -> Attempt {
    let PodName { namespace, name } = &pod.name;
    // Not kube's `evict`: version 5 misspells the options it is given, and the UID would not be heard.
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "namespace": namespace, "name": name },
        "deleteOptions": { "preconditions": { "uid": pod.uid } },
    });
    let answer: Result<serde_json::Value, kube::Error> = Api::<api::Pod>::namespaced(context.kube.clone(), namespace)
        .create_subresource("eviction", name, &PostParams::default(), &body)
        .await;
    let code = match &answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    };
    context.metrics.pods_eviction_requests.add([&code.to_string()]);
    let refusal = match answer {
        Ok(_) => {
            let reason = disruption_reason(context, node);
            let evicted = format!("Evicted pod: {reason}");
            context.events.publish(Event::normal(pod_reference(pod), "Evicted", evicted).dedupe([name]));
            context.metrics.pods_drained.add([&reason]);
            return Attempt::Complete;
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Attempt::Complete,
        Err(kube::Error::Api(status)) if status.code == 429 => "evicting pod violates a PDB",
        Err(kube::Error::Api(status)) if status.message.contains(MULTIPLE_BUDGETS) => {
            "eviction does not support multiple PDBs"
        }
        Err(error) => {
            tracing::error!(Pod = %pod.name, error = %chain(&error), "failed evicting pod");
            return Attempt::Again;
        }
    };
    if let Some(node) = context.mirror.node(node) {
        let message = format!("Failed to drain node, {refusal} (Pod={})", pod.name);
        let name = node.metadata.name.clone().unwrap_or_default();
        context.events.publish(Event::warning(reference(&*node), "FailedDraining", message).dedupe([name]));
    }
    Attempt::Again
}

async fn force_delete(context: &Context, pod: &Pod, deadline: Timestamp, now: Timestamp) -> Attempt {
    let PodName { namespace, name } = &pod.name;
    let grace = force_delete_grace_seconds(deadline, now);
    let own_grace = pod.grace_period_s.map_or_else(|| "<nil>".to_owned(), |seconds| seconds.to_string());
    let message = format!(
        "Deleting the pod to accommodate the terminationTime {} of the node. The pod was granted {grace} seconds of \
         grace-period of its {own_grace} terminationGracePeriodSeconds. This bypasses the PDB of the pod and the \
         do-not-disrupt annotation.",
        rfc3339(deadline)
    );
    context.events.publish(Event::normal(pod_reference(pod), "Disrupted", message).dedupe([name]));
    tracing::debug!(Pod = %pod.name, "deleting pod");
    let parameters = DeleteParams {
        grace_period_seconds: u32::try_from(grace).ok(),
        preconditions: Some(Preconditions { uid: Some(pod.uid.clone()), resource_version: None }),
        ..DeleteParams::default()
    };
    let pods = Api::<api::Pod>::namespaced(context.kube.clone(), namespace);
    match pods.delete(name, &parameters).await {
        Ok(_) => Attempt::Complete,
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Attempt::Complete,
        Err(error) => {
            tracing::error!(Pod = %pod.name, error = %chain(&error), "failed force-deleting pod");
            Attempt::Again
        }
    }
}

/// Why the pod's node goes, in the words of the claim's condition.
fn disruption_reason(context: &Context, node: &str) -> String {
    let id = context.mirror.node(node).and_then(|node| node.spec.as_ref()?.provider_id.clone());
    let claims = id.map(|id| context.mirror.node_claims_by_provider_id(&id)).unwrap_or_default();
    let [claim] = claims.as_slice() else { return String::new() };
    match condition_of(claim, condition::DISRUPTION_REASON) {
        Some(reason) if reason.is_true() => reason.reason.clone(),
        _ => "Forceful Termination".to_owned(),
    }
}
