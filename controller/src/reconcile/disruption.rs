//! Nodes that can go: plan, wait, look again, hand over (core spec §7.2, §7.11).
//!
//! Upstream decides every ten seconds. Here the same ten-second beat is kept, but a beat is skipped when the answer cannot
//! have changed: nothing in the cluster has, no nomination or budget window is running out, and the last look is less than
//! five minutes old (after which prices and offerings may differ, as upstream's own memo assumes). An idle cluster thus
//! costs nothing, and every decision is taken on the beat on which upstream would have taken it.

use super::Context;
use crate::apply::commands::{Commands, consolidation_type, unmark_disrupted};
use crate::error::{ReconcileError, chain};
use crate::events::{Event, reference};
use crate::reconcile::provisioning::is_disrupted;
use controller_api::conditions::{DISRUPTION_REASON, HasConditions as _};
use controller_core::disruption::{Command, Ineligible, PoolBudget, Reason, plan};
use controller_core::snapshot::{DoNotDisrupt, Snapshot, StateNode};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The beat.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long a graceful command is held before it is looked at again (core spec §7.11).
const VALIDATION_WAIT: Duration = Duration::from_secs(15);
/// How old a decision to do nothing may get.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// The wait after a failed pass; it doubles up to the beat.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// Disrupts for as long as the future lives.
pub(crate) async fn run(context: Context) {
    let commands = Commands::default();
    tokio::join!(passes(&context, &commands), commands.run(&context));
}

/// What a pass came to.
enum Outcome {
    /// Something was started; there may be more.
    Started,
    /// Nothing to do until something changes; `may_change` if time alone could change it.
    Nothing { may_change: bool },
}

async fn passes(context: &Context, commands: &Commands) {
    let start = Instant::now();
    let mut backoff = FIRST_BACKOFF;
    loop {
        context.mirror.wait_synced().await;
        let seen = context.mirror.revision();
        let started = Instant::now();
        let outcome = pass(context, commands).await;
        context.metrics.reconciled("disruption", outcome.is_ok(), started.elapsed());
        match outcome {
            Ok(Outcome::Started) => {}
            Ok(Outcome::Nothing { may_change }) => {
                if !may_change {
                    // Either a change or its absence for so long ends the wait; which one makes no difference.
                    let _ = tokio::time::timeout(LOOK_AGAIN, context.mirror.changed_since(seen)).await;
                }
                tokio::time::sleep_until(next_beat(start, Instant::now())).await;
            }
            Err(error) => {
                if !error.is_conflict() {
                    tracing::error!(controller = "disruption", error = %chain(&error), "Reconciler error");
                }
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(INTERVAL);
                continue;
            }
        }
        backoff = FIRST_BACKOFF;
    }
}

/// The first beat after `now`.
fn next_beat(start: Instant, now: Instant) -> Instant {
    let beats = (now - start).as_nanos() / INTERVAL.as_nanos() + 1;
    start + INTERVAL.saturating_mul(u32::try_from(beats).unwrap_or(u32::MAX))
}

async fn pass(context: &Context, commands: &Commands) -> Result<Outcome, ReconcileError> {
    let snapshot = context.snapshot().await;
    clean_up(context, &snapshot).await?;
    let started = Instant::now();
    let plan = plan(&snapshot, &context.settings.core);
    let took = started.elapsed().as_secs_f64();
    context.metrics.voluntary_disruption_decision_evaluation_duration_seconds.observe(["Empty", "empty"], took);
    for (name, reason) in &plan.passed_over {
        tell_passed_over(context, &snapshot, name, reason);
    }
    tell_budgets(context, &snapshot, &plan.budgets);
    let eligible: usize = plan.commands.iter().map(|command| command.candidates.len()).sum();
    context.metrics.voluntary_disruption_eligible_nodes.set(["Empty"], eligible as f64);
    if plan.commands.is_empty() {
        return Ok(Outcome::Nothing { may_change: may_change(context, &snapshot) });
    }
    let (graceful, at_once): (Vec<Command>, Vec<Command>) =
        plan.commands.into_iter().partition(|command| command.reason != Reason::Drifted);
    let mut valid: Vec<Command> = at_once;
    let mut snapshot = snapshot;
    if valid.is_empty() {
        tokio::time::sleep(VALIDATION_WAIT).await;
        snapshot = context.snapshot().await;
        valid = graceful.into_iter().filter_map(|command| still_valid(context, &snapshot, command)).collect();
    }
    if valid.is_empty() {
        return Ok(Outcome::Nothing { may_change: true });
    }
    let starting = valid.into_iter().map(|command| commands.start(context, &snapshot, command));
    futures::future::join_all(starting).await.into_iter().collect::<Result<(), _>>()?;
    Ok(Outcome::Started)
}

fn still_valid(context: &Context, snapshot: &Snapshot, command: Command) -> Option<Command> {
    let kind = consolidation_type(&command);
    let before = command.candidates.len();
    let valid = command.still_valid(snapshot, &context.settings.core);
    let left = valid.as_ref().map_or(0, |command| command.candidates.len());
    context.metrics.voluntary_disruption_failed_validations.add_many([kind], before.saturating_sub(left) as u64);
    match valid {
        Ok(command) => Some(command),
        Err(reason) => {
            tracing::debug!(
                controller = "disruption", reason = %reason,
                "abandoning empty node consolidation attempt due to pod churn, command is no longer valid"
            );
            None
        }
    }
}

/// Gives back nodes that carry the marks of a disruption nobody remembers: one that failed to start, or one of an earlier
/// run of the controller (core spec §7.2, step 4).
async fn clean_up(context: &Context, snapshot: &Snapshot) -> Result<(), ReconcileError> {
    let left_behind = snapshot.nodes.values().filter(|node| !node.is_marked_for_deletion() && is_left_behind(node));
    for node in left_behind {
        unmark_disrupted(context, node).await?;
    }
    Ok(())
}

fn is_left_behind(node: &StateNode) -> bool {
    let is_tainted =
        |node: &k8s_openapi::api::core::v1::Node| is_disrupted(node) && node.metadata.deletion_timestamp.is_none();
    node.is_managed()
        && (node.node.as_deref().is_some_and(is_tainted)
            || node.claim.as_deref().is_some_and(|claim| claim.is_true(&[DISRUPTION_REASON])))
}

/// Whether time alone may change the answer: a nomination runs out, a budget's window opens or closes, or a pod's request
/// not to be disrupted ends.
fn may_change(context: &Context, snapshot: &Snapshot) -> bool {
    let has_window = |budget: &controller_api::Budget| budget.schedule.is_some();
    context.mirror.has_nominations(snapshot.now)
        || snapshot.pools.values().any(|pool| pool.budgets().iter().any(has_window))
        || snapshot.pods.values().any(|pod| matches!(pod.do_not_disrupt(snapshot.now), DoNotDisrupt::Until(_)))
}

fn tell_passed_over(context: &Context, snapshot: &Snapshot, name: &str, reason: &Ineligible) {
    let (Some(node), Some(event_reason)) = (snapshot.nodes.get(name), reason.event_reason()) else { return };
    // Why a node is never consolidated changes seldom, and is repeated seldom (core spec §10.5).
    let minutes = if event_reason == "Unconsolidatable" { 15 } else { 2 };
    let tell = |object, uid: Option<&String>| {
        let event = Event::normal(object, event_reason, reason.message()).dedupe([uid.cloned().unwrap_or_default()]);
        context.events.publish(event.window(Duration::from_secs(60 * minutes)));
    };
    if let Some(node) = node.node.as_deref() {
        tell(reference(node), node.metadata.uid.as_ref());
    }
    if let Some(claim) = node.claim.as_deref() {
        tell(reference(claim), claim.metadata.uid.as_ref());
    }
}

fn tell_budgets(context: &Context, snapshot: &Snapshot, budgets: &BTreeMap<String, PoolBudget>) {
    context.metrics.nodepools_allowed_disruptions.clear();
    context.metrics.nodepools_nodes_consuming_budgets.clear();
    for (name, budget) in budgets {
        if let Some(error) = &budget.invalid {
            let error = format!("invalid disruption budgets in nodepool {name}, {}", chain(error));
            tracing::error!(controller = "disruption", error, "detected disruption budget errors");
        }
        for (reason, allowed) in &budget.allowed {
            let values = [name.as_str(), reason.as_str()];
            context.metrics.nodepools_allowed_disruptions.set(values, f64::from(*allowed));
            context.metrics.nodepools_nodes_consuming_budgets.set(values, f64::from(budget.disrupting));
            let Some(pool) = snapshot.pools.get(name).filter(|_| budget.is_blocking(*reason)) else { continue };
            let message = format!("No allowed disruptions for disruption reason {reason} due to blocking budget");
            let uid = pool.object.metadata.uid.clone().unwrap_or_default();
            let event = Event::normal(reference(&*pool.object), "DisruptionBlocked", message);
            context.events.publish(event.dedupe([uid, reason.to_string()]).window(Duration::from_secs(60)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn passes_fall_on_the_beat() {
        let start = Instant::now();
        for (now, expected) in [(0, 10), (9, 10), (10, 20), (25, 30)] {
            let beat = next_beat(start, start + Duration::from_secs(now));
            assert_eq!(beat - start, Duration::from_secs(expected), "at {now}s");
        }
    }
}
