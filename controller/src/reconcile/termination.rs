//! Termination of Nodes (core spec §6): a Node that is deleted is fenced, drained and freed of its volumes; then its
//! instance is terminated, and only when that is gone does the Node go.
//!
//! Deleting a Node deletes its NodeClaim and the other way round; each waits for what the other still has to do.

use super::{Context, Loop, Requeue, keyed};
use crate::apply::evictions::Evictions;
use crate::apply::patch::{self, Lock};
use crate::error::{Context as _, ReconcileError, chain, is_not_found};
use crate::events::{Event, reference};
use crate::mirror::{Change, Mirror};
use controller_api::{NodeClaim, labels};
use controller_core::cloud::CloudProvider as _;
use controller_core::lifecycle::detachment::{self, Attachment, Detachment};
use controller_core::lifecycle::{
    ConditionChange, condition, condition_of, drain, finalization, has_finalizer, is_ready, is_true, label,
    set_condition, since,
};
use controller_core::snapshot::Pod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as api, Node};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, ListParams};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How often a drain or detachment is looked at when nothing else calls (§6.3, §6.5).
const DRAIN_INTERVAL: Duration = Duration::from_secs(1);
/// How often the cloud is asked whether the instance is gone (§6.1).
const INSTANCE_INTERVAL: Duration = Duration::from_secs(5);

/// Follows deleted Nodes to their end, and works the eviction queue.
pub(crate) async fn run(context: Context) {
    let options = Loop::new("node.termination", 100).backoff(Duration::from_millis(100), Duration::from_secs(10));
    let evictions = Arc::new(Evictions::default());
    let queue = evictions.clone();
    let nodes = keyed(context.clone(), options, keys, move |context, name| {
        let evictions = evictions.clone();
        async move { reconcile(&context, &evictions, &name).await }
    });
    tokio::join!(nodes, queue.run(&context));
}

/// Only Nodes that are being deleted; everything else in the cluster is quiet here.
fn keys(mirror: &Mirror, change: &Change) -> Vec<String> {
    let is_deleting = |name: &&String| mirror.node(name).is_some_and(|node| node.metadata.deletion_timestamp.is_some());
    change.node.iter().filter(is_deleting).cloned().collect()
}

async fn reconcile(context: &Context, evictions: &Evictions, name: &str) -> Result<Requeue, ReconcileError> {
    let Some(node) = context.mirror.node(name).filter(|node| is_ours_to_end(node)) else {
        return Ok(Requeue::OnChange);
    };
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
    let claim = match context.mirror.node_claims_by_provider_id(provider_id).as_slice() {
        [claim] => Some(claim.clone()),
        _ => None,
    };
    if let Some(claim) = &claim
        && claim.metadata.deletion_timestamp.is_none()
    {
        patch::delete(context, &**claim).await?;
    }
    if !is_ready(&node) && instance_is_gone(context, provider_id).await? {
        return finish(context, &node, claim.as_deref()).await;
    }
    let deadline = claim.as_deref().map(finalization::deadline).transpose();
    let deadline = deadline.map_err(|error| ReconcileError::Other(chain(&error)))?.flatten();
    if let Some(deadline) = deadline {
        context.events.publish(expiring(&*node, deadline));
    }
    let node = fence(context, &node).await?;
    let mut stages = Stages { context, evictions, node: &node, deadline, claim: claim.as_deref().cloned() };
    let wait = stages.run().await;
    let after = stages.claim;
    if let (Some(before), Some(after)) = (&claim, &after) {
        patch::status(context, &**before, after).await?;
        if is_true(after, condition::DRAINED) && !is_true(before, condition::DRAINED) {
            context.metrics.nodes_drained.add([pool_of(after)]);
        }
    }
    match wait? {
        Some(wait) => Ok(Requeue::After(wait)),
        None => finish(context, &node, after.as_ref()).await,
    }
}

fn is_ours_to_end(node: &Node) -> bool {
    let is_managed = node.metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::NODE_CLASS_LABEL));
    is_managed && node.metadata.deletion_timestamp.is_some() && has_finalizer(node.metadata.finalizers.as_ref())
}

/// A Node that is not ready may have lost its instance; then there is nothing left to drain.
async fn instance_is_gone(context: &Context, provider_id: &str) -> Result<bool, ReconcileError> {
    match context.cloud.get(provider_id).await {
        Ok(_) => Ok(false),
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) => Err(error).context(format_args!("getting instance {provider_id}")),
    }
}

async fn fence(context: &Context, node: &Node) -> Result<Node, ReconcileError> {
    let fenced = patch::object(context, node, &drain::fenced(node), Lock::Optimistic).await?;
    if fenced.metadata.resource_version != node.metadata.resource_version {
        tracing::info!(
            Node = node.metadata.name,
            "taint.Key" = labels::DISRUPTED_TAINT_KEY,
            "taint.Value" = "",
            "taint.Effect" = "NoSchedule",
            "tainted node"
        );
    }
    Ok(fenced)
}

/// The stages between fence and end. The first that has to wait says for how long.
struct Stages<'a> {
    context: &'a Context,
    evictions: &'a Evictions,
    node: &'a Node,
    deadline: Option<Timestamp>,
    claim: Option<NodeClaim>,
}

impl Stages<'_> {
    async fn run(&mut self) -> Result<Option<Duration>, ReconcileError> {
        if let Some(wait) = self.drain() {
            return Ok(Some(wait));
        }
        if let Some(wait) = self.detach_volumes().await? {
            return Ok(Some(wait));
        }
        self.terminate_instance().await
    }

    fn drain(&mut self) -> Option<Duration> {
        let now = self.context.clock.now();
        let name = name_of(self.node);
        if self.claim.as_ref().is_some_and(|claim| condition_of(claim, condition::DRAINED).is_none()) {
            self.set(&ConditionChange::unknown(condition::DRAINED, "Draining", "Draining"));
        }
        let plan = drain::plan(&self.context.mirror.pods_on(name), self.deadline, now);
        self.evictions.add(name, plan.evict, self.deadline);
        if !plan.waiting.is_empty() {
            let message = format!("Failed to drain node, {} pods are waiting to be evicted", plan.waiting.len());
            let event = Event::warning(reference(self.node), "FailedDraining", message);
            self.context.events.publish(event.dedupe([name]));
            if let Some(held) = plan.held.first() {
                let message = format!("Failed to drain node, pod {held} has {}", labels::DO_NOT_DISRUPT_ANNOTATION);
                let event = Event::warning(reference(self.node), "FailedDraining", message);
                self.context.events.publish(event.dedupe([name, labels::DO_NOT_DISRUPT_ANNOTATION]));
            }
            return Some(DRAIN_INTERVAL);
        }
        let claim = self.claim.as_ref()?;
        let is_settling = !is_true(claim, condition::DRAINED)
            && since(claim, condition::DRAINED).is_some_and(|since| now.duration_since(since) < drain::MIN_DRAIN_TIME);
        if is_settling {
            return Some(DRAIN_INTERVAL);
        }
        self.set(&ConditionChange::yes(condition::DRAINED));
        None
    }

    async fn detach_volumes(&mut self) -> Result<Option<Duration>, ReconcileError> {
        let name = name_of(self.node).to_owned();
        let attachments = attachments(self.context, &name).await?;
        let staying = match attachments.is_empty() {
            true => BTreeSet::new(),
            false => staying_volumes(self.context, &name).await?,
        };
        let detachment = detachment::next(&attachments, &staying, self.deadline, self.context.clock.now());
        self.set(&detachment.condition());
        let Detachment::Waiting(left) = detachment else { return Ok(None) };
        let message = detachment::waiting_message(&left);
        let event = Event::normal(reference(self.node), "AwaitingVolumeDetachment", message);
        self.context.events.publish(event.dedupe([name]));
        Ok(Some(DRAIN_INTERVAL))
    }

    async fn terminate_instance(&mut self) -> Result<Option<Duration>, ReconcileError> {
        let Some(claim) = &self.claim else { return Ok(None) };
        let wait = match self.context.cloud.delete(claim).await {
            Ok(()) => Some(INSTANCE_INTERVAL),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                return Err(error).context(format_args!("terminating the instance of {}", name_of(self.node)));
            }
        };
        self.set(&ConditionChange::yes(condition::INSTANCE_TERMINATING));
        Ok(wait)
    }

    fn set(&mut self, change: &ConditionChange) {
        if let Some(claim) = &mut self.claim {
            set_condition(claim, change, self.context.clock.now());
        }
    }
}

/// The VolumeAttachments of a node. They are read when a node goes, rather than watched all the time; from the API server's
/// cache, so that many nodes that go at once do not each cost a read of the whole list from its store.
async fn attachments(context: &Context, node: &str) -> Result<Vec<Attachment>, ReconcileError> {
    let all = match Api::<VolumeAttachment>::all(context.kube.clone()).list(&ListParams::default().match_any()).await {
        // A cluster without the storage API has no attachments.
        Err(error) if is_not_found(&error) => return Ok(Vec::new()),
        answer => answer.context("listing VolumeAttachments")?,
    };
    let of_node = all.items.into_iter().filter(|attachment| attachment.spec.node_name == node);
    let mut attachments: Vec<_> = of_node
        .map(|attachment| Attachment {
            name: attachment.metadata.name.unwrap_or_default(),
            persistent_volume: attachment.spec.source.persistent_volume_name,
        })
        .collect();
    attachments.sort();
    Ok(attachments)
}

/// The PersistentVolumes of the node's pods that are not drained.
async fn staying_volumes(context: &Context, node: &str) -> Result<BTreeSet<String>, ReconcileError> {
    let now = context.clock.now();
    let on_node = ListParams::default().match_any().fields(&format!("spec.nodeName={node}"));
    let pods = Api::<api::Pod>::all(context.kube.clone()).list(&on_node).await.context("listing the node's pods")?;
    let mut volumes = BTreeSet::new();
    for pod in pods.items.iter().filter(|pod| !Pod::from_api(pod).is_drainable(now)) {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        volumes.extend(claim_names(pod).iter().filter_map(|claim| context.mirror.volume_of(namespace, claim)));
    }
    Ok(volumes)
}

fn claim_names(pod: &api::Pod) -> Vec<String> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let name = |volume: &api::Volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{pod_name}-{}", volume.name)),
        (None, None) => None,
    };
    volumes.filter_map(name).collect()
}

async fn finish(context: &Context, node: &Node, claim: Option<&NodeClaim>) -> Result<Requeue, ReconcileError> {
    patch::remove_finalizer(context, node, labels::TERMINATION_FINALIZER).await?;
    let now = context.clock.now();
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str);
    let (pool, zone) = (label(labels::NODE_POOL_LABEL), label(labels::ZONE_LABEL));
    context.metrics.nodes_terminated.add([pool, zone]);
    if let Some(deleted) = &node.metadata.deletion_timestamp {
        let taken = now.duration_since(deleted.0).as_secs_f64();
        context.metrics.nodes_termination_duration_seconds.observe([pool], taken);
    }
    if let Some(created) = &node.metadata.creation_timestamp {
        context.metrics.nodes_lifetime_duration_seconds.observe([pool], now.duration_since(created.0).as_secs_f64());
    }
    let claim = claim.and_then(|claim| claim.metadata.name.as_deref());
    tracing::info!(Node = name_of(node), NodeClaim = claim, "deleted node");
    Ok(Requeue::OnChange)
}

/// The event that tells from when on pods are no longer spared.
pub(super) fn expiring<K: kube::Resource<DynamicType = ()>>(object: &K, deadline: Timestamp) -> Event {
    let message = format!("All pods will be deleted by {}", finalization::rfc3339(deadline));
    let name = object.meta().name.clone().unwrap_or_default();
    Event::warning(reference(object), "TerminationGracePeriodExpiring", message).dedupe([name])
}

fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn pool_of(claim: &NodeClaim) -> &str {
    label(claim, labels::NODE_POOL_LABEL).unwrap_or_default()
}
