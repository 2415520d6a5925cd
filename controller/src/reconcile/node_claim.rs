//! NodeClaims from wish to end (core spec §5): finalizer, launch, registration, initialization, liveness, the
//! `Consolidatable` condition, expiration, tags, and the way out.
//!
//! One pass over a claim takes every step that is due, writes what changed and says when to look again. What a pass
//! remembers between two looks only spares work: a launch whose result could not be written, and the pods seen last.

mod finalize;
mod memory;
mod registration_health;

use super::{Context, Loop, Requeue, keyed};
use crate::apply::commands::termination_mode;
use crate::apply::patch::{self, Lock};
use crate::error::{Context as _, ReconcileError, chain};
use crate::events::{Event, reference};
use crate::mirror::{Change, Kind, Mirror};
use controller_api::{NodeClaim, labels};
use controller_core::cloud::{CloudError, CloudProvider as _};
use controller_core::lifecycle::consolidatable;
use controller_core::lifecycle::expiration::{self, Expiration};
use controller_core::lifecycle::initialization::{self, Initialization};
use controller_core::lifecycle::launch::{self, LaunchFailure};
use controller_core::lifecycle::liveness::{self, Liveness};
use controller_core::lifecycle::registration::{self, Registration};
use controller_core::lifecycle::registration_health::Outcome;
use controller_core::lifecycle::{
    ConditionChange, NodeMatch, annotation, condition, has_finalizer, label, pod_events, provider_id, set_condition,
    status_mut,
};
use controller_core::quantity::Quantity;
use controller_core::snapshot::Pod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use memory::Memory;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Follows every managed NodeClaim, and keeps count of how launches end.
pub(crate) async fn run(context: Context) {
    // Upstream runs a thousand workers or more (§9.4): a launch waits for the cloud, and claims must not queue behind
    // it.
    let options = Loop::new("nodeclaim.lifecycle", 1000).backoff(Duration::from_secs(1), Duration::from_secs(60));
    let memory = Arc::new(Memory::default());
    let for_keys = memory.clone();
    let for_health = memory.clone();
    let claims = keyed(
        context.clone(),
        options,
        move |mirror, change| keys(&for_keys, mirror, change),
        move |context, name| {
            let memory = memory.clone();
            async move { reconcile(&context, &memory, &name).await }
        },
    );
    tokio::join!(claims, registration_health::run(context, for_health));
}

fn keys(memory: &Memory, mirror: &Mirror, change: &Change) -> Vec<String> {
    match change.kind {
        Kind::NodeClaim | Kind::Node | Kind::Pod => change.claim.iter().cloned().collect(),
        // A pool's status changes with each of its nodes; only its spec concerns its claims.
        Kind::NodePool if memory.is_new_generation(mirror, &change.name) => {
            let claims = mirror.node_claims();
            let of_pool = claims.iter().filter(|claim| label(claim, labels::NODE_POOL_LABEL) == Some(&change.name));
            of_pool.filter_map(|claim| claim.metadata.name.clone()).collect()
        }
        _ => Vec::new(),
    }
}

async fn reconcile(context: &Context, memory: &Memory, name: &str) -> Result<Requeue, ReconcileError> {
    let Some(claim) = context.mirror.node_claim(name) else {
        memory.forget(name);
        return Ok(Requeue::OnChange);
    };
    if claim.metadata.deletion_timestamp.is_some() {
        return finalize::finalize(context, memory, &claim).await;
    }
    // The finalizer comes first: an instance must not exist for a claim that could vanish.
    let stored = patch::object(context, &*claim, &adopted(&claim), Lock::Optimistic).await?;
    let mut pass = Pass {
        context,
        memory,
        claim: stored.clone(),
        stored,
        now: context.clock.now(),
        look_again: None,
        failure: None,
    };
    pass.run().await
}

/// The claim with Karpenter's finalizer and the label that names its class (§5.1, §5.19).
fn adopted(claim: &NodeClaim) -> NodeClaim {
    let mut claim = claim.clone();
    if !has_finalizer(claim.metadata.finalizers.as_ref()) {
        claim.metadata.finalizers.get_or_insert_default().push(labels::TERMINATION_FINALIZER.to_owned());
    }
    let class = claim.spec.node_class_ref.name.clone();
    claim.metadata.labels.get_or_insert_default().insert(labels::NODE_CLASS_LABEL.to_owned(), class);
    claim
}

/// Whether a pass goes on with its claim.
#[derive(PartialEq, Eq)]
enum Fate {
    Lives,
    Deleted,
}

/// One look at one claim.
struct Pass<'a> {
    context: &'a Context,
    memory: &'a Memory,
    /// The claim as the API server has it.
    stored: NodeClaim,
    /// The claim as it should be.
    claim: NodeClaim,
    now: Timestamp,
    look_again: Option<Timestamp>,
    failure: Option<ReconcileError>,
}

impl Pass<'_> {
    async fn run(&mut self) -> Result<Requeue, ReconcileError> {
        if self.launch().await? == Fate::Deleted {
            return Ok(Requeue::OnChange);
        }
        let nodes = self.nodes();
        let nodes = self.register(nodes).await;
        self.initialize(&nodes).await;
        self.follow_pods(&nodes);
        self.judge_consolidatable();
        if let Err(error) = self.write().await {
            // The pods that came or went must be news again to the next look, or their instant would be lost.
            self.memory.forget(self.name());
            return Err(error);
        }
        if self.check_liveness().await? == Fate::Deleted || self.check_expiration().await? == Fate::Deleted {
            return Ok(Requeue::OnChange);
        }
        self.tag().await?;
        match (self.failure.take(), self.look_again) {
            (Some(failure), _) => Err(failure),
            (None, Some(instant)) => Ok(Requeue::After(until(self.now, instant))),
            (None, None) => Ok(Requeue::OnChange),
        }
    }

    async fn launch(&mut self) -> Result<Fate, ReconcileError> {
        let uid = self.claim.metadata.uid.clone().unwrap_or_default();
        if !launch::needs_launch(&self.claim) {
            self.memory.launch_is_stored(&uid);
            return Ok(Fate::Lives);
        }
        if let Some(created) = self.memory.launched(&uid, self.now) {
            self.claim = launch::launched(&self.claim, &created);
            self.set(&ConditionChange::yes(condition::LAUNCHED));
            return Ok(Fate::Lives);
        }
        if let Some(instant) = self.memory.launch_waits_until(&uid, self.now) {
            self.look_again_at(Some(instant));
            return Ok(Fate::Lives);
        }
        match self.create().await {
            Ok(created) => {
                self.memory.remember_launch(&uid, created.clone(), self.context.clock.now());
                self.claim = launch::launched(&self.claim, &created);
                self.now = self.context.clock.now();
                self.set(&ConditionChange::yes(condition::LAUNCHED));
                self.tell_launched();
            }
            Err(error) => match launch::failure(&self.claim, &error) {
                LaunchFailure::Abandon { reason, event } => {
                    tracing::error!(NodeClaim = self.name(), error = %chain(&error), "failed launching nodeclaim");
                    if let Some(message) = event {
                        let event = Event::warning(reference(&self.claim), "InsufficientCapacityError", message);
                        self.context.events.publish(event.dedupe([uid]));
                    }
                    return self.delete(reason).await;
                }
                LaunchFailure::Retry(change) => {
                    self.memory.launch_failed(&uid, self.context.clock.now());
                    self.set(&change);
                    let doing = format!("launching nodeclaim {}", self.name());
                    self.failure = Some(ReconcileError::Cloud { context: doing, source: Box::new(error) });
                }
            },
        }
        Ok(Fate::Lives)
    }

    async fn create(&self) -> Result<NodeClaim, CloudError> {
        let class = &self.claim.spec.node_class_ref.name;
        let Some(class) = self.context.mirror.node_class(class) else {
            // Without its class the claim can never be launched; upstream counts that as a lack of capacity.
            let object = reference(&self.claim);
            self.context.events.publish(Event::warning(object, "", "Failed resolving NodeClass").dedupe([self.name()]));
            return Err(CloudError::InsufficientCapacity(format!("resolving node class, {class:?} not found")));
        };
        self.context.cloud.create(&self.claim, &class).await
    }

    fn tell_launched(&self) {
        let text = |key: &str| label(&self.claim, key).unwrap_or_default();
        tracing::info!(
            NodeClaim = self.name(),
            "provider-id" = provider_id(&self.claim),
            "instance-type" = text(labels::INSTANCE_TYPE_LABEL),
            zone = text(labels::ZONE_LABEL),
            "capacity-type" = text(labels::CAPACITY_TYPE_LABEL),
            allocatable = %json!(self.claim.status.as_ref().map(|status| &status.allocatable)),
            "launched nodeclaim"
        );
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        provider_id(&self.claim).map(|id| self.context.mirror.nodes_by_provider_id(id)).unwrap_or_default()
    }

    /// Answers the claim's nodes as they are afterwards.
    async fn register(&mut self, nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
        match registration::next(&self.claim, NodeMatch::of(&nodes)) {
            Registration::Settled => return self.hydrate(nodes).await,
            Registration::Waiting(change) => self.set(&change),
            Registration::Register { node, unregistered_taint_missing } => {
                if unregistered_taint_missing {
                    self.tell_missing_taint();
                }
                match patch::object(self.context, &*nodes[0], &*node, Lock::Optimistic).await {
                    Ok(node) => {
                        self.registered(&node).await;
                        return vec![Arc::new(node)];
                    }
                    Err(error) => self.failure = Some(error),
                }
            }
        }
        nodes
    }

    async fn registered(&mut self, node: &Node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        status_mut(&mut self.claim).node_name = name.clone();
        self.set(&ConditionChange::yes(condition::REGISTERED));
        tracing::info!(
            NodeClaim = self.name(),
            "provider-id" = provider_id(&self.claim),
            Node = name,
            "registered nodeclaim"
        );
        let text = |key: &str| label(&self.claim, key).unwrap_or_default();
        self.context.metrics.nodes_created.add([text(labels::NODE_POOL_LABEL), text(labels::ZONE_LABEL)]);
        self.learn_memory(node);
        registration_health::record(self.context, self.memory, &self.claim, Outcome::Registered).await;
    }

    /// What a machine of this type really has is known once one has registered (AWS spec §3.2.1).
    fn learn_memory(&self, node: &Node) {
        let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
        let memory =
            capacity.and_then(|capacity| capacity.get("memory")).and_then(|memory| Quantity::from_api(memory).ok());
        let class = self.context.mirror.node_class(&self.claim.spec.node_class_ref.name);
        let instance_type = label(&self.claim, labels::INSTANCE_TYPE_LABEL);
        let image_id = self.claim.status.as_ref().map(|status| status.image_id.as_str());
        if let (Some(memory), Some(class), Some(instance_type), Some(image_id)) =
            (memory, class, instance_type, image_id)
        {
            self.context.cloud.record_memory(&class, instance_type, image_id, memory);
        }
    }

    fn tell_missing_taint(&self) {
        let taint = controller_core::taints::text(&controller_core::taints::unregistered());
        tracing::error!(NodeClaim = self.name(), taint, "node claim registration error");
        let message = "Missing karpenter.sh/unregistered taint which prevents registration related race conditions on \
                       Karpenter-managed nodes";
        let event = Event::warning(reference(&self.claim), "UnregisteredTaintMissing", message);
        self.context.events.publish(event.dedupe([self.claim.metadata.uid.clone().unwrap_or_default()]));
    }

    /// A registered node without the label of its class gets it: the termination of Nodes goes by it (§5.19).
    async fn hydrate(&mut self, nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
        let [node] = nodes.as_slice() else { return nodes };
        let class = self.claim.spec.node_class_ref.name.clone();
        if node.metadata.labels.as_ref().and_then(|all| all.get(labels::NODE_CLASS_LABEL)) == Some(&class) {
            return nodes;
        }
        let mut hydrated = (**node).clone();
        hydrated.metadata.labels.get_or_insert_default().insert(labels::NODE_CLASS_LABEL.to_owned(), class);
        match patch::object(self.context, &**node, &hydrated, Lock::None).await {
            Ok(node) => vec![Arc::new(node)],
            Err(error) => {
                self.failure = Some(error);
                nodes
            }
        }
    }

    async fn initialize(&mut self, nodes: &[Arc<Node>]) {
        match initialization::next(&self.claim, NodeMatch::of(nodes)) {
            Initialization::Settled => {}
            Initialization::Waiting(lack) => self.set(&lack.condition()),
            Initialization::Initialize(node) => {
                let mut labelled = (*node).clone();
                let labels = labelled.metadata.labels.get_or_insert_default();
                labels.insert(labels::INITIALIZED_LABEL.to_owned(), "true".to_owned());
                match patch::object(self.context, &*node, &labelled, Lock::None).await {
                    Ok(node) => self.initialized(&node),
                    Err(error) => self.failure = Some(error),
                }
            }
        }
    }

    fn initialized(&mut self, node: &Node) {
        self.set(&ConditionChange::yes(condition::INITIALIZED));
        tracing::info!(
            NodeClaim = self.name(),
            "provider-id" = provider_id(&self.claim),
            Node = node.metadata.name,
            allocatable = %json!(node.status.as_ref().and_then(|status| status.allocatable.as_ref())),
            "initialized nodeclaim"
        );
    }

    fn follow_pods(&mut self, nodes: &[Arc<Node>]) {
        let NodeMatch::One(node) = NodeMatch::of(nodes) else { return };
        let pods = self.context.mirror.pods_on(node.metadata.name.as_deref().unwrap_or_default());
        let happened = self.memory.pods_changed(self.name(), pod_events::seen(&pods));
        if happened && pod_events::is_due(&self.claim, self.now) {
            status_mut(&mut self.claim).last_pod_event_time = Some(self.now);
        }
    }

    fn judge_consolidatable(&mut self) {
        let pool = label(&self.claim, labels::NODE_POOL_LABEL).and_then(|pool| self.context.mirror.node_pool(pool));
        let Some(pool) = pool else { return };
        let Some(next) = consolidatable::next(&self.claim, &pool, self.now) else { return };
        if set_condition(&mut self.claim, &next.change, self.now) {
            match next.change.to == ConditionChange::yes(condition::CONSOLIDATABLE).to {
                true => tracing::debug!(NodeClaim = self.name(), "marking consolidatable"),
                false => tracing::debug!(NodeClaim = self.name(), "removing consolidatable status condition"),
            }
        }
        self.look_again_at(next.look_again);
    }

    async fn write(&mut self) -> Result<(), ReconcileError> {
        let stored = patch::object(self.context, &self.stored, &self.claim, Lock::None).await?;
        let wanted = NodeClaim { status: self.claim.status.take(), ..stored.clone() };
        self.stored = patch::status(self.context, &stored, &wanted).await?;
        self.claim = self.stored.clone();
        Ok(())
    }

    async fn check_liveness(&mut self) -> Result<Fate, ReconcileError> {
        match liveness::next(&self.claim, self.now) {
            Liveness::Alive => Ok(Fate::Lives),
            Liveness::Until(instant) => {
                self.look_again_at(Some(instant));
                Ok(Fate::Lives)
            }
            Liveness::TimedOut { reason, timeout } => {
                tracing::debug!(NodeClaim = self.name(), %timeout, reason, "terminating due to timeout");
                registration_health::record(self.context, self.memory, &self.claim, Outcome::Failed).await;
                self.delete(reason).await
            }
        }
    }

    async fn check_expiration(&mut self) -> Result<Fate, ReconcileError> {
        match expiration::next(&self.claim, self.now) {
            Expiration::Never => Ok(Fate::Lives),
            Expiration::At(instant) => {
                self.look_again_at(Some(instant));
                Ok(Fate::Lives)
            }
            Expiration::Expired => {
                tracing::debug!(NodeClaim = self.name(), "deleting expired nodeclaim");
                count_pods(self.context, &self.claim, "expired");
                self.delete("expired").await
            }
        }
    }

    /// Tags the instance with what was not known at its launch (AWS spec §5.3).
    async fn tag(&mut self) -> Result<(), ReconcileError> {
        const DONE: [&str; 2] = [labels::TAGGED_ANNOTATION, labels::CLUSTER_NAME_TAGGED_ANNOTATION];
        let node = self.claim.status.as_ref().map(|status| status.node_name.clone()).unwrap_or_default();
        let is_done = DONE.iter().all(|key| annotation(&self.claim, key) == Some("true"));
        let Some(id) = provider_id(&self.claim).filter(|_| !node.is_empty() && !is_done) else { return Ok(()) };
        let tags = BTreeMap::from([
            ("Name".to_owned(), node),
            ("karpenter.sh/nodeclaim".to_owned(), self.name().to_owned()),
            (controller_aws::CLUSTER_NAME_TAG.to_owned(), self.context.settings.aws.cluster_name.clone()),
        ]);
        match self.context.cloud.tag_instance(id, &tags).await {
            Ok(()) => {}
            // An instance that is gone needs no tags; garbage collection will find its claim.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error).context(format_args!("tagging the instance of nodeclaim {}", self.name())),
        }
        let mut tagged = self.claim.clone();
        let annotations = tagged.metadata.annotations.get_or_insert_default();
        annotations.extend(DONE.map(|key| (key.to_owned(), "true".to_owned())));
        self.claim = patch::object(self.context, &self.claim, &tagged, Lock::None).await?;
        Ok(())
    }

    async fn delete(&self, reason: &str) -> Result<Fate, ReconcileError> {
        delete(self.context, &self.claim, reason).await?;
        Ok(Fate::Deleted)
    }

    fn set(&mut self, change: &ConditionChange) {
        set_condition(&mut self.claim, change, self.now);
    }

    fn look_again_at(&mut self, instant: Option<Timestamp>) {
        self.look_again = match (self.look_again, instant) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    fn name(&self) -> &str {
        self.claim.metadata.name.as_deref().unwrap_or_default()
    }
}

/// Deletes a claim and counts why.
pub(super) async fn delete(context: &Context, claim: &NodeClaim, reason: &str) -> Result<(), ReconcileError> {
    patch::delete(context, claim).await?;
    context.metrics.nodeclaims_disrupted.add(disrupted_labels(claim, reason));
    Ok(())
}

/// Counts the pods that the end of a claim makes homeless.
pub(super) fn count_pods(context: &Context, claim: &NodeClaim, reason: &str) {
    let node = claim.status.as_ref().map(|status| status.node_name.as_str()).filter(|name| !name.is_empty());
    let pods: Vec<Arc<Pod>> = node.map(|node| context.mirror.pods_on(node)).unwrap_or_default();
    let count = pods.iter().filter(|pod| pod.is_reschedulable()).count();
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    context.metrics.pods_disruption_initiated.add_many(disrupted_labels(claim, reason), count);
}

fn disrupted_labels<'a>(claim: &'a NodeClaim, reason: &'a str) -> [&'a str; 5] {
    let text = |key: &str| label(claim, key).unwrap_or_default();
    [reason, text(labels::NODE_POOL_LABEL), text(labels::CAPACITY_TYPE_LABEL), "", termination_mode(claim)]
}

/// How long until an instant; a moment at least, so that nothing is looked at twice at once.
fn until(now: Timestamp, instant: Timestamp) -> Duration {
    Duration::try_from(instant.duration_since(now)).unwrap_or_default().max(Duration::from_millis(1))
}
