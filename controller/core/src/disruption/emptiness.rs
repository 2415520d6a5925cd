//! Nodes without pods that would have to move (core spec §7.5).

use super::budget::Budgets;
use super::candidate::{Candidate, DisruptionClass, Ineligible, candidate};
use super::{Command, Reason};
use crate::snapshot::Snapshot;
use controller_api::conditions;
use std::collections::BTreeMap;

/// One command for every empty node that budgets allow to go, and why all others stay.
pub(super) fn decide(snapshot: &Snapshot, budgets: &Budgets) -> (Option<Command>, BTreeMap<String, Ineligible>) {
    let (empty, passed_over) = candidates(snapshot);
    choose(empty, passed_over, budgets)
}

/// The same, for these nodes alone: what was decided for others meanwhile is not this command's business.
pub(super) fn decide_among(
    snapshot: &Snapshot,
    budgets: &Budgets,
    proposed: &[String],
) -> (Option<Command>, BTreeMap<String, Ineligible>) {
    let is_proposed = |name: &str| proposed.iter().any(|proposed| proposed == name);
    let (mut empty, mut passed_over) = candidates(snapshot);
    empty.retain(|candidate| is_proposed(candidate.node.name()));
    passed_over.retain(|name, _| is_proposed(name));
    choose(empty, passed_over, budgets)
}

fn choose(
    empty: Vec<Candidate<'_>>,
    mut passed_over: BTreeMap<String, Ineligible>,
    budgets: &Budgets,
) -> (Option<Command>, BTreeMap<String, Ineligible>) {
    let mut budgets = budgets.clone();
    let mut chosen = Vec::new();
    for candidate in empty {
        let (name, pool) = (candidate.node.name().to_owned(), candidate.pool.name().to_owned());
        if budgets.take(&pool, Reason::Empty) {
            chosen.push(name);
        } else {
            passed_over.insert(name, Ineligible::PoolBudgetSpent { pool, reason: Reason::Empty });
        }
    }
    let command = Command { reason: Reason::Empty, candidates: chosen, replacements: Vec::new() };
    ((!command.candidates.is_empty()).then_some(command), passed_over)
}

/// Empty nodes, the dearest for what they hold first, and why each other node is none.
fn candidates(snapshot: &Snapshot) -> (Vec<Candidate<'_>>, BTreeMap<String, Ineligible>) {
    let bound = snapshot.pods_by_node();
    let mut empty = Vec::new();
    let mut passed_over = BTreeMap::new();
    for node in snapshot.nodes.values() {
        let pods = node.node_name().and_then(|name| bound.get(name)).map_or(&[][..], Vec::as_slice);
        match candidate(snapshot, node, pods, DisruptionClass::Graceful).and_then(should_go) {
            Ok(candidate) => empty.push(candidate),
            Err(reason) => {
                passed_over.insert(node.name().to_owned(), reason);
            }
        }
    }
    let worth = |candidate: &Candidate<'_>| candidate.price / candidate.disruption_cost;
    empty.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then_with(|| a.node.name().cmp(b.node.name())));
    (empty, passed_over)
}

fn should_go(candidate: Candidate<'_>) -> Result<Candidate<'_>, Ineligible> {
    if candidate.pool.is_static() {
        return Err(Ineligible::StaticPool);
    }
    if candidate.pool.consolidate_after().is_none() {
        return Err(Ineligible::ConsolidationDisabled { pool: candidate.pool.name().to_owned() });
    }
    if !candidate.is_empty() {
        return Err(Ineligible::NotEmpty { pods: candidate.reschedulable.len() });
    }
    if !candidate.node.has_claim_condition(conditions::CONSOLIDATABLE) {
        return Err(Ineligible::NotConsolidatable);
    }
    Ok(candidate)
}
