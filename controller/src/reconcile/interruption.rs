//! Interruptions (AWS spec §6): messages of the queue and instances with a bad status, turned into deleted NodeClaims.
//!
//! Deleting a claim is all it takes: the ordinary termination drains its node, and the provisioner plans for the pods
//! of a node that is going at the same time.

use super::Context;
use super::node_claim::delete;
use crate::apply::patch::{self, Lock};
use crate::error::{ReconcileError, chain};
use crate::events::{Event, reference};
use controller_api::{NodeClaim, labels};
use controller_aws::{Interruption, InterruptionKind, Meaning, QueueMessage, UnhealthyCategory, UnhealthyInstance};
use controller_core::catalog::CapacityType;
use controller_core::lifecycle::{annotation, finalization, label, provider_id};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often the status of instances is asked for (§6.3).
const STATUS_INTERVAL: Duration = Duration::from_secs(60);
/// Waits between failed receives: from the first to the longest, doubling.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Acts on interruptions for as long as the future lives.
pub(crate) async fn run(context: Context) {
    tokio::join!(queue(&context), statuses(&context));
    // Neither a queue to receive from nor the right to ask for statuses: nothing left to do, which is no failure.
    std::future::pending::<()>().await;
}

/// Receives and acts without a pause; waiting for messages is left to the long poll.
async fn queue(context: &Context) {
    if !context.cloud.has_interruption_queue() {
        tracing::warn!(
            controller = "interruption",
            "no interruption queue is set (--interruption-queue, INTERRUPTION_QUEUE), nodes are not drained before EC2 takes \
             their instances back"
        );
        return;
    }
    let mut wait = FIRST_WAIT;
    loop {
        match context.cloud.receive_interruptions().await {
            Ok(messages) => {
                wait = FIRST_WAIT;
                if messages.is_empty() {
                    continue;
                }
                // One look at the claims serves all messages of a batch.
                let claims = by_instance_id(context);
                futures::future::join_all(messages.iter().map(|message| handle(context, &claims, message))).await;
            }
            Err(error) => {
                let error = chain(&error);
                tracing::error!(controller = "interruption", error, "failed receiving interruption messages");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

type ByInstance = BTreeMap<String, Vec<Arc<NodeClaim>>>;

fn by_instance_id(context: &Context) -> ByInstance {
    let mut by_id = ByInstance::new();
    for claim in context.mirror.node_claims() {
        if let Some(id) = provider_id(&claim).and_then(|id| id.rsplit('/').next()) {
            by_id.entry(id.to_owned()).or_default().push(claim.clone());
        }
    }
    by_id
}

/// A message that could not be acted on stays, and comes again.
async fn handle(context: &Context, claims: &ByInstance, message: &QueueMessage) {
    let started = Instant::now();
    let outcome = act_on(context, claims, message).await;
    context.metrics.reconciled("interruption", outcome.is_ok(), started.elapsed());
    if let Err(error) = outcome {
        tracing::error!(controller = "interruption", error = %chain(&error), "failed handling interruption message");
        return;
    }
    match context.cloud.delete_message(message).await {
        Ok(()) => context.metrics.interruption_deleted_messages.add([]),
        Err(error) => {
            let error = chain(&error);
            tracing::error!(controller = "interruption", error, "failed deleting interruption message");
        }
    }
}

async fn act_on(context: &Context, claims: &ByInstance, message: &QueueMessage) -> Result<(), ReconcileError> {
    if let Some(label) = message.interruption.label() {
        context.metrics.interruption_received_messages.add([label]);
    }
    let kind = match &message.interruption {
        Interruption::Malformed(complaint) => {
            tracing::error!(controller = "interruption", error = complaint, "failed parsing interruption message");
            return Ok(());
        }
        Interruption::Nothing => return Ok(()),
        Interruption::Event(kind) => *kind,
    };
    for id in &message.instance_ids {
        for claim in claims.get(id).into_iter().flatten() {
            if matches!(kind, InterruptionKind::SpotInterrupted) {
                mark_unavailable(context, claim);
            }
            act(context, claim, &Notice::of(kind)).await?;
        }
    }
    if let Some(happened) = message.event_time.or(message.sent_at) {
        let latency = context.clock.now().duration_since(happened).as_secs_f64().max(0.0);
        context.metrics.interruption_message_queue_duration_seconds.observe([], latency);
    }
    Ok(())
}

/// What is told and done about one kind of interruption (§6.4).
struct Notice {
    kind: &'static str,
    action: Action,
    reason: &'static str,
    message: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(clippy::enum_variant_names)] // "NoAction" is the word that logs carry.
enum Action {
    NoAction,
    CordonAndDrain,
    ForcefulTermination,
}

impl Action {
    fn as_str(self) -> &'static str {
        match self {
            Self::NoAction => "NoAction",
            Self::CordonAndDrain => "CordonAndDrain",
            Self::ForcefulTermination => "ForcefulTermination",
        }
    }
}

impl Notice {
    fn of(kind: InterruptionKind) -> Self {
        use Action::{CordonAndDrain, NoAction};
        let (action, reason, message) = match kind {
            InterruptionKind::SpotInterrupted => {
                (CordonAndDrain, "SpotInterrupted", "Spot interruption warning was triggered")
            }
            InterruptionKind::CapacityReservationInterrupted => (
                CordonAndDrain,
                "CapacityReservationInstanceInterrupted",
                "Capacity Reservation interruption warning was triggered",
            ),
            InterruptionKind::RebalanceRecommendation => {
                (NoAction, "SpotRebalanceRecommendation", "Spot rebalance recommendation was triggered")
            }
            InterruptionKind::ScheduledChange => {
                (CordonAndDrain, "InstanceUnhealthy", "An unhealthy warning was triggered for the instance")
            }
            InterruptionKind::InstanceStopped => (CordonAndDrain, "InstanceStopping", "Instance is stopping"),
            InterruptionKind::InstanceTerminated => (CordonAndDrain, "InstanceTerminating", "Instance is terminating"),
        };
        Self { kind: kind.as_str(), action, reason, message }
    }

    fn of_status(category: UnhealthyCategory) -> Self {
        let action = match category {
            UnhealthyCategory::InstanceStatus | UnhealthyCategory::SystemStatus => Action::ForcefulTermination,
            UnhealthyCategory::EventStatus => Action::CordonAndDrain,
        };
        Self {
            kind: category.kind(),
            action,
            reason: "InstanceUnhealthy",
            message: "An unhealthy warning was triggered for the instance",
        }
    }

    fn event(&self, object: ObjectReference) -> Event {
        let uid = object.uid.clone().unwrap_or_default();
        let event = match self.action {
            Action::NoAction => Event::normal(object, self.reason, self.message),
            _ => Event::warning(object, self.reason, self.message),
        };
        event.dedupe([uid])
    }
}

fn mark_unavailable(context: &Context, claim: &NodeClaim) {
    let (instance_type, zone) = (label(claim, labels::INSTANCE_TYPE_LABEL), label(claim, labels::ZONE_LABEL));
    if let (Some(instance_type), Some(zone)) = (instance_type, zone) {
        context.cloud.mark_unavailable(instance_type, zone, CapacityType::Spot);
    }
}

async fn act(context: &Context, claim: &NodeClaim, notice: &Notice) -> Result<(), ReconcileError> {
    // Another message about the same instance may have been acted on since the claim was looked up.
    let current = context.mirror.node_claim(claim.metadata.name.as_deref().unwrap_or_default());
    let Some(claim) = current.as_deref().filter(|current| current.metadata.uid == claim.metadata.uid) else {
        return Ok(());
    };
    let node = node_of(context, claim);
    context.events.publish(notice.event(reference(claim)));
    if let Some(node) = &node {
        context.events.publish(notice.event(reference(&**node)));
    }
    if notice.action == Action::NoAction {
        return Ok(());
    }
    if notice.action == Action::ForcefulTermination {
        end_at_once(context, claim).await?;
    }
    let terminating = |object: ObjectReference, kind: &str| {
        let uid = object.uid.clone().unwrap_or_default();
        let message = format!("Interruption triggered termination for the {kind}");
        Event::warning(object, "TerminatingOnInterruption", message).dedupe([uid])
    };
    if claim.metadata.deletion_timestamp.is_none() {
        delete(context, claim, notice.kind).await?;
        tracing::info!(
            controller = "interruption",
            queue = context.settings.aws.interruption_queue,
            messageKind = notice.kind,
            NodeClaim = claim.metadata.name,
            Node = node.as_ref().and_then(|node| node.metadata.name.as_deref()),
            action = notice.action.as_str(),
            "initiating delete from interruption message"
        );
        context.events.publish(terminating(reference(claim), "NodeClaim"));
        if let Some(node) = &node {
            context.events.publish(terminating(reference(&**node), "Node"));
        }
    }
    Ok(())
}

/// Fixes the end of the drain to now: an impaired instance cannot be waited for.
async fn end_at_once(context: &Context, claim: &NodeClaim) -> Result<(), ReconcileError> {
    if annotation(claim, labels::TERMINATION_TIMESTAMP_ANNOTATION).is_some() {
        return Ok(());
    }
    let mut annotated = claim.clone();
    let now = finalization::rfc3339(context.clock.now());
    let annotations = annotated.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::TERMINATION_TIMESTAMP_ANNOTATION.to_owned(), now);
    patch::object(context, claim, &annotated, Lock::Optimistic).await.map(drop)
}

fn node_of(context: &Context, claim: &NodeClaim) -> Option<Arc<Node>> {
    context.mirror.nodes_by_provider_id(provider_id(claim)?).into_iter().next()
}

/// Asks for impaired instances and scheduled events every minute. Without the permission it is asked for once.
async fn statuses(context: &Context) {
    let mut known = BTreeSet::new();
    loop {
        let started = Instant::now();
        let outcome = context.cloud.describe_instance_status().await;
        context.metrics.reconciled("interruption.instancestatus", outcome.is_ok(), started.elapsed());
        match outcome {
            Ok(unhealthy) => known = act_on_statuses(context, &known, &unhealthy).await,
            Err(error) if error.meaning() == Meaning::Unauthorized => {
                tracing::error!(
                    controller = "interruption.instancestatus",
                    error = %chain(&error),
                    "ec2:DescribeInstanceStatus is not allowed, instance health is not watched; allow it and restart"
                );
                return;
            }
            Err(error) => {
                tracing::error!(controller = "interruption.instancestatus", error = %chain(&error), "Reconciler error");
            }
        }
        tokio::time::sleep(STATUS_INTERVAL).await;
    }
}

type Known = BTreeSet<(String, UnhealthyCategory)>;

/// Answers what is reported now, so that it is told once and again only after it has gone.
async fn act_on_statuses(context: &Context, known: &Known, unhealthy: &[UnhealthyInstance]) -> Known {
    let mut reported = Known::new();
    for (instance_id, category, claim) in concerned(&by_instance_id(context), unhealthy) {
        let key = (instance_id.clone(), category);
        if !known.contains(&key) {
            tracing::info!(
                controller = "interruption.instancestatus",
                NodeClaim = claim.metadata.name,
                "instance-id" = instance_id,
                category = category.as_str(),
                "detected unhealthy instance owned by cluster"
            );
            context.metrics.interruption_instance_status_unhealthy.add([category.as_str()]);
        }
        reported.insert(key);
        if let Err(error) = act(context, &claim, &Notice::of_status(category)).await {
            tracing::error!(controller = "interruption.instancestatus", error = %chain(&error), "Reconciler error");
        }
    }
    reported
}

/// Everything that is wrong with instances of ours.
fn concerned(claims: &ByInstance, unhealthy: &[UnhealthyInstance]) -> Vec<(String, UnhealthyCategory, Arc<NodeClaim>)> {
    let mut concerned = Vec::new();
    for UnhealthyInstance { instance_id, categories } in unhealthy {
        for claim in claims.get(instance_id).into_iter().flatten() {
            concerned.extend(categories.iter().map(|category| (instance_id.clone(), *category, claim.clone())));
        }
    }
    concerned
}
