//! Carries disruption commands out: taint → replacements → wait → delete, with a way back (core spec §7.12).
//!
//! A command is in memory only. A crash forgets it; the disruption loop then takes the taint off every node that is not
//! on its way out.

use super::claims;
use super::patch::{self, Lock};
use crate::error::{Context as _, ReconcileError, chain};
use crate::events::{Event, reference};
use crate::reconcile::Context;
use crate::reconcile::provisioning::is_disrupted;
use controller_api::conditions::{BoundConditions, DISRUPTION_REASON, HasConditions as _, INITIALIZED};
use controller_api::{NodeClaim, labels};
use controller_core::disruption::{Command, DisruptionClass, Reason, candidate};
use controller_core::snapshot::{Snapshot, StateNode};
use futures::stream::{FuturesUnordered, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Api;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Writing a taint or a condition is tried this often before the node is left alone: somebody else writing to the same
/// node at the same time is common, four times in a row is not.
const TRIES: u32 = 4;
/// The wait after a first failed try; it grows fivefold, as client-go's default back-off does.
const FIRST_WAIT: Duration = Duration::from_millis(10);

/// The commands being carried out.
#[derive(Default)]
pub(crate) struct Commands {
    started: Mutex<VecDeque<Started>>,
    arrived: Notify,
    /// Nodes of all commands not yet done.
    nodes: AtomicUsize,
    /// Commands begun in this run; numbers them in the logs.
    count: AtomicUsize,
}

/// A command whose nodes are tainted and whose replacements exist.
struct Started {
    command: Command,
    text: String,
    candidates: Vec<StateNode>,
    replacements: Vec<String>,
    at: Instant,
}

impl Commands {
    /// Begins: taints the nodes, creates the replacements, marks the nodes. What follows is left to [`Commands::run`].
    pub(crate) async fn start(
        &self,
        context: &Context,
        snapshot: &Snapshot,
        command: Command,
    ) -> Result<(), ReconcileError> {
        let candidates: Vec<&StateNode> =
            command.candidates.iter().filter_map(|name| snapshot.nodes.get(name)).collect();
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let text = describe(snapshot, &command, &candidates, number);
        tell_start(snapshot, &command, &candidates, &text);
        let reason = command.reason;
        let marking = candidates.iter().map(|candidate| mark_disrupted(context, candidate, reason));
        let mut marked = Vec::new();
        let mut failure = None;
        for (candidate, outcome) in candidates.iter().zip(futures::future::join_all(marking).await) {
            match outcome {
                Ok(()) => marked.push((*candidate).clone()),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure
            && (!command.replacements.is_empty() || marked.is_empty())
        {
            return Err(error);
        }
        // Replacements come before the mark: the other way round, the provisioner would buy for the same pods too.
        let label = reason.to_string().to_lowercase();
        let mut replacements = Vec::new();
        for outcome in claims::create(context, snapshot, &command.replacements, &label).await {
            replacements.push(outcome?.name);
        }
        context.mirror.mark_for_deletion(marked.iter().map(StateNode::name));
        count_decision(context, &command, &marked);
        self.nodes.fetch_add(marked.len(), Ordering::Relaxed);
        let started = Started { command, text, candidates: marked, replacements, at: Instant::now() };
        self.started.lock().unwrap_or_else(PoisonError::into_inner).push_back(started);
        self.arrived.notify_one();
        Ok(())
    }

    /// Carries started commands out for as long as the future lives.
    pub(crate) async fn run(&self, context: &Context) {
        let mut running = FuturesUnordered::new();
        loop {
            let arrived = self.arrived.notified();
            while let Some(started) = self.started.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
                running.push(self.carry_out(context, started));
            }
            tokio::select! {
                biased;
                () = arrived => {}
                Some(()) = running.next(), if !running.is_empty() => {}
            }
        }
    }

    async fn carry_out(&self, context: &Context, started: Started) {
        let outcome = match tokio::time::timeout_at(started.at + self.patience(), replaced(context, &started)).await {
            Ok(Ok(())) => delete_candidates(context, &started).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ReconcileError::Other("command reached timeout".into())),
        };
        context.metrics.reconciled("disruption.queue", outcome.is_ok(), started.at.elapsed());
        match outcome {
            Ok(()) => tracing::debug!(controller = "disruption.queue", command = %started.text, "command succeeded"),
            Err(error) => roll_back(context, &started, &error).await,
        }
        self.nodes.fetch_sub(started.candidates.len(), Ordering::Relaxed);
    }

    /// How long a command may take: longer when many nodes go at once, as they share the API and the cloud.
    fn patience(&self) -> Duration {
        let nodes = u32::try_from(self.nodes.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        (Duration::from_millis(80).saturating_mul(nodes)).clamp(Duration::from_secs(600), Duration::from_secs(3600))
    }
}

/// Waits until every replacement is initialized; fails if one is gone.
async fn replaced(context: &Context, started: &Started) -> Result<(), ReconcileError> {
    loop {
        let revision = context.mirror.revision();
        let mut waiting = false;
        for name in &started.replacements {
            let Some(claim) =
                context.mirror.node_claim(name).filter(|claim| claim.metadata.deletion_timestamp.is_none())
            else {
                return Err(ReconcileError::Other(format!("replacement was deleted, nodeclaim {name}")));
            };
            let uid = claim.metadata.uid.clone().unwrap_or_default();
            let reason = started.command.reason;
            let launching =
                Event::normal(reference(&*claim), "DisruptionLaunching", format!("Launching NodeClaim: {reason}"));
            context.events.publish(launching.dedupe([uid.clone(), reason.to_string()]));
            if !claim.is_true(&[INITIALIZED]) {
                let message = "Waiting on readiness to continue disruption";
                let event = Event::normal(reference(&*claim), "DisruptionWaitingReadiness", message);
                context.events.publish(event.dedupe([uid]));
                waiting = true;
            }
        }
        if !waiting {
            return Ok(());
        }
        context.mirror.changed_since(revision).await;
    }
}

async fn delete_candidates(context: &Context, started: &Started) -> Result<(), ReconcileError> {
    let deletions = started.candidates.iter().filter_map(|candidate| {
        let claim = candidate.claim.as_deref()?;
        Some(async move {
            retried(|| patch::delete(context, claim)).await?;
            tell_terminating(context, candidate, claim, started);
            Ok::<_, ReconcileError>(())
        })
    });
    futures::future::join_all(deletions).await.into_iter().collect()
}

fn tell_terminating(context: &Context, candidate: &StateNode, claim: &NodeClaim, started: &Started) {
    let reason = started.command.reason;
    let tell = |object, kind: &str, uid: Option<&String>| {
        let event = Event::normal(object, "DisruptionTerminating", format!("Disrupting {kind}: {reason}"));
        context.events.publish(event.dedupe([uid.cloned().unwrap_or_default(), reason.to_string()]));
    };
    if let Some(node) = candidate.node.as_deref() {
        tell(reference(node), "Node", node.metadata.uid.as_ref());
    }
    tell(reference(claim), "NodeClaim", claim.metadata.uid.as_ref());
    let pool = candidate.pool().unwrap_or_default();
    let policy = match (reason, context.mirror.node_pool(pool)) {
        (Reason::Drifted, _) | (_, None) => String::new(),
        (_, Some(pool)) => snake_case(pool.spec.disruption.consolidation_policy.as_str()),
    };
    let capacity_type = candidate.labels().get(labels::CAPACITY_TYPE_LABEL).map_or("", String::as_str);
    let values =
        [snake_case(&reason.to_string()), pool.into(), capacity_type.into(), policy, termination_mode(claim).into()];
    let values = values.each_ref().map(String::as_str);
    context.metrics.nodeclaims_disrupted.add(values);
    let now = context.clock.now();
    let pods = candidate.node_name().map(|node| context.mirror.pods_on(node)).unwrap_or_default();
    let moving = pods.iter().filter(|pod| pod.is_reschedulable() && pod.is_disruptable(now)).count();
    context.metrics.pods_disruption_initiated.add_many(values, moving as u64);
}

/// How a claim's grace period lets it go, as metrics call it (core spec §10.1).
pub(crate) fn termination_mode(claim: &NodeClaim) -> &'static str {
    match claim.spec.termination_grace_period.as_ref().map(|period| period.as_duration()) {
        None => "graceful",
        Some(period) if period.is_zero() => "forceful",
        Some(_) => "eventual",
    }
}

/// Takes everything back that can be taken back. Replacements that exist stay: they may be in use already.
async fn roll_back(context: &Context, started: &Started, error: &ReconcileError) {
    let Started { command, text, candidates, replacements, at: _ } = started;
    let failed = replacements
        .iter()
        .filter(|name| context.mirror.node_claim(name).is_none_or(|claim| !claim.is_true(&[INITIALIZED])));
    let values = [command.decision(), &command.reason.to_string(), consolidation_type(command)].map(str::to_lowercase);
    context
        .metrics
        .voluntary_disruption_queue_failures
        .add_many(values.each_ref().map(String::as_str), failed.count() as u64);
    for outcome in
        futures::future::join_all(candidates.iter().map(|candidate| unmark_disrupted(context, candidate))).await
    {
        if let Err(error) = outcome {
            tracing::error!(controller = "disruption.queue", error = %chain(&error), "removing taint from nodes");
        }
    }
    tracing::error!(
        controller = "disruption.queue", command = %text, error = %chain(error),
        "failed terminating nodes while executing a disruption command"
    );
    context.mirror.unmark_for_deletion(candidates.iter().map(StateNode::name));
}

/// Taints the node and says on the claim why it goes.
async fn mark_disrupted(context: &Context, candidate: &StateNode, reason: Reason) -> Result<(), ReconcileError> {
    let (Some(node), Some(claim)) = (candidate.node_name(), candidate.claim_name()) else {
        return Err(ReconcileError::Other(format!(
            "marking disrupted, {} has no node or no nodeclaim",
            candidate.name()
        )));
    };
    set_taint(context, node, true).await?;
    let reason = reason.to_string();
    change_conditions(context, claim, |conditions| {
        conditions.set_true_with_reason(DISRUPTION_REASON, &reason, &reason);
    })
    .await
}

/// Takes the taint and the reason off again; nothing is written where there is none.
pub(crate) async fn unmark_disrupted(context: &Context, node: &StateNode) -> Result<(), ReconcileError> {
    if let Some(node) = node.node_name() {
        set_taint(context, node, false).await?;
    }
    if let Some(claim) = node.claim.as_deref().filter(|claim| claim.is_true(&[DISRUPTION_REASON])) {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        change_conditions(context, name, |conditions| {
            // The root does not depend on this condition, so it can always be cleared.
            let _ = conditions.clear(DISRUPTION_REASON);
        })
        .await?;
    }
    Ok(())
}

/// Adds or removes the taint on the Node as it is now. A Node that is gone needs neither; one that is being deleted keeps
/// its taint.
async fn set_taint(context: &Context, name: &str, is_wanted: bool) -> Result<(), ReconcileError> {
    retried(|| async {
        let Some(node) =
            Api::<Node>::all(context.kube.clone()).get_opt(name).await.context(format_args!("getting node {name}"))?
        else {
            return Ok(());
        };
        if is_disrupted(&node) == is_wanted || node.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let mut after = node.clone();
        let taints = after.spec.get_or_insert_default().taints.get_or_insert_default();
        if is_wanted {
            taints.push(Taint {
                key: labels::DISRUPTED_TAINT_KEY.into(),
                effect: "NoSchedule".into(),
                ..Taint::default()
            });
        } else {
            taints.retain(|taint| taint.key != labels::DISRUPTED_TAINT_KEY || taint.effect != "NoSchedule");
        }
        patch::object(context, &node, &after, Lock::Optimistic).await.map(drop)
    })
    .await
}

async fn change_conditions(
    context: &Context,
    name: &str,
    change: impl Fn(&mut BoundConditions<'_>),
) -> Result<(), ReconcileError> {
    retried(|| async {
        let found = Api::<NodeClaim>::all(context.kube.clone()).get_opt(name).await;
        let Some(claim) = found.context(format_args!("getting nodeclaim {name}"))? else { return Ok(()) };
        let mut after = claim.clone();
        change(&mut after.bind(context.clock.now()));
        patch::status(context, &claim, &after).await.map(drop)
    })
    .await
}

/// Tries a write a few times; an object that is gone needs none.
async fn retried<F>(mut write: impl FnMut() -> F) -> Result<(), ReconcileError>
where
    F: Future<Output = Result<(), ReconcileError>>,
{
    let mut wait = FIRST_WAIT;
    for _ in 1..TRIES {
        match write().await {
            Err(error) if !error.is_not_found() => {
                tokio::time::sleep(wait).await;
                wait *= 5;
            }
            _ => return Ok(()),
        }
    }
    match write().await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// The command in one line (core spec §7.13). Numbered rather than given a random name, so that runs can be compared.
fn describe(snapshot: &Snapshot, command: &Command, candidates: &[&StateNode], number: usize) -> String {
    let pools: BTreeSet<&str> = candidates.iter().filter_map(|node| node.pool()).collect();
    let pools: Vec<&str> = pools.into_iter().collect();
    let price =
        |node: &&StateNode| candidate(snapshot, node, &[], DisruptionClass::Eventual).map_or(0.0, |found| found.price);
    let savings: f64 = candidates.iter().map(price).sum();
    let replacements = match command.replacements.len() {
        0 => String::new(),
        count => format!(" -> [{count} replacement]"),
    };
    format!(
        "{}/{number}: {}: nodepools=[{}]: [{}]{replacements} (savings: ${savings:.2})",
        command.reason,
        command.decision(),
        pools.join(","),
        command.candidates.join(", "),
    )
}

fn tell_start(snapshot: &Snapshot, command: &Command, candidates: &[&StateNode], text: &str) {
    let pods = candidates.iter().filter_map(|node| node.node_name());
    let pods =
        pods.flat_map(|node| snapshot.pods_on(node)).filter(|pod| snapshot.is_currently_reschedulable(pod)).count();
    let nodes: Vec<_> = candidates
        .iter()
        .map(|node| {
            let label = |key| node.labels().get(key).map_or("", String::as_str);
            serde_json::json!({
                "Node": { "name": node.node_name() },
                "NodeClaim": { "name": node.claim_name() },
                "instance-type": label(labels::INSTANCE_TYPE_LABEL),
                "capacity-type": label(labels::CAPACITY_TYPE_LABEL),
            })
        })
        .collect();
    tracing::info!(
        controller = "disruption",
        command = text,
        decision = command.decision(),
        "disrupted-node-count" = candidates.len(),
        "replacement-node-count" = command.replacements.len(),
        "pod-count" = pods,
        "disrupted-nodes" = %serde_json::Value::from(nodes),
        "disrupting node(s)"
    );
}

fn count_decision(context: &Context, command: &Command, candidates: &[StateNode]) {
    let (decision, reason, kind) =
        (command.decision(), command.reason.to_string().to_lowercase(), consolidation_type(command));
    context.metrics.voluntary_disruption_decisions.add([decision, &reason, kind]);
    let pools: BTreeSet<&str> = candidates.iter().filter_map(StateNode::pool).collect();
    for pool in pools {
        context.metrics.voluntary_disruption_decisions_by_nodepool.add([pool, decision, &reason, kind]);
    }
}

/// The metrics' name for the method that made the command (core spec §7.1).
pub(crate) fn consolidation_type(command: &Command) -> &'static str {
    match command.reason {
        Reason::Empty => "empty",
        Reason::Drifted => "",
        Reason::Underutilized if command.candidates.len() > 1 => "multi",
        Reason::Underutilized => "single",
    }
}

/// `WhenEmptyOrUnderutilized` → `when_empty_or_underutilized`.
fn snake_case(text: &str) -> String {
    let mut snake = String::new();
    for letter in text.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_labelled_in_snake_case() {
        assert_eq!(snake_case("WhenEmptyOrUnderutilized"), "when_empty_or_underutilized");
        assert_eq!(snake_case("Empty"), "empty");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_tried_four_times() {
        let tries = AtomicUsize::new(0);
        let outcome = retried(|| async {
            tries.fetch_add(1, Ordering::Relaxed);
            Err(ReconcileError::Other("refused".into()))
        });
        assert!(outcome.await.is_err());
        assert_eq!(tries.load(Ordering::Relaxed), 4);
    }
}
