//! How many nodes of a pool may be disrupted at this instant, per reason (core spec §7.4).

use super::Reason;
use super::cron::{InvalidSchedule, Schedule};
use crate::snapshot::{Pool, Snapshot, StateNode};
use controller_api::{Budget, conditions};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// The budgets of all pools. Asking for a node to be disrupted takes it from the budget.
#[derive(Clone, Debug)]
pub struct Budgets {
    pools: BTreeMap<String, PoolBudget>,
}

/// Where one pool's budgets stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolBudget {
    /// How many nodes the pool has that count.
    pub nodes: u32,
    /// How many of them are being disrupted already, or are not ready.
    pub disrupting: u32,
    /// How many may be disrupted at a time, before subtracting those that are; `u32` of 2³¹−1 when nothing limits it.
    pub allowed: BTreeMap<Reason, u32>,
    /// What is wrong with the budgets; while something is, nothing is allowed.
    pub invalid: Option<InvalidBudget>,
}

/// A budget that cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBudget {
    /// The number of nodes is neither a number nor a percentage.
    #[error("invalid nodes {0:?}: neither a number nor a percentage")]
    Nodes(String),
    /// The schedule cannot be read.
    #[error("invalid schedule: {0}")]
    Schedule(#[from] InvalidSchedule),
    /// A schedule without a duration, or the reverse.
    #[error("'schedule' must be set with 'duration'")]
    HalfAWindow,
}

/// What upstream uses for "not limited".
const UNLIMITED: u32 = i32::MAX as u32;
const REASONS: [Reason; 3] = [Reason::Underutilized, Reason::Empty, Reason::Drifted];

impl Budgets {
    /// Evaluates every pool's budgets at the snapshot's instant.
    pub fn new(snapshot: &Snapshot) -> Self {
        let pools = snapshot.pools.values().map(|pool| (pool.name().to_owned(), PoolBudget::new(pool, snapshot)));
        Self { pools: pools.collect() }
    }

    /// Takes one node from the pool's budget for that reason; false if there is nothing left.
    pub fn take(&mut self, pool: &str, reason: Reason) -> bool {
        let Some(budget) = self.pools.get_mut(pool) else { return false };
        let free = budget.remaining(reason) > 0;
        if free {
            // A node that is being disrupted counts against every reason.
            budget.disrupting += 1;
        }
        free
    }

    /// The budgets by pool.
    pub fn into_pools(self) -> BTreeMap<String, PoolBudget> {
        self.pools
    }
}

impl PoolBudget {
    fn new(pool: &Pool, snapshot: &Snapshot) -> Self {
        let counted: Vec<&StateNode> = snapshot.nodes.values().filter(|node| counts(node, pool.name())).collect();
        let nodes = u32::try_from(counted.len()).unwrap_or(u32::MAX);
        let disrupting = counted.iter().filter(|node| !node.is_ready() || node.is_marked_for_deletion()).count();
        let mut invalid = None;
        let mut limits = Vec::new();
        for budget in pool.budgets() {
            match limit(budget, nodes, snapshot.now) {
                Ok(limit) => limits.push((budget, limit)),
                Err(error) => invalid = invalid.or(Some(error)),
            }
        }
        let allowed = |reason: Reason| {
            let applies = |budget: &Budget| budget.reasons.as_ref().is_none_or(|reasons| reasons.contains(&reason));
            let strictest = limits.iter().filter(|(budget, _)| applies(budget)).map(|(_, limit)| *limit).min();
            if invalid.is_some() { 0 } else { strictest.unwrap_or(UNLIMITED) }
        };
        let allowed = REASONS.into_iter().map(|reason| (reason, allowed(reason))).collect();
        Self { nodes, disrupting: u32::try_from(disrupting).unwrap_or(u32::MAX), allowed, invalid }
    }

    /// How many more nodes may be disrupted now.
    pub fn remaining(&self, reason: Reason) -> u32 {
        self.allowed.get(&reason).copied().unwrap_or(0).saturating_sub(self.disrupting)
    }

    /// Whether the budgets forbid every disruption for that reason although there are nodes.
    pub fn is_blocking(&self, reason: Reason) -> bool {
        self.nodes != 0 && self.allowed.get(&reason) == Some(&0)
    }
}

/// Nodes that are up count, until their instance is being terminated.
fn counts(node: &StateNode, pool: &str) -> bool {
    node.is_managed()
        && node.pool() == Some(pool)
        && node.is_initialized()
        && !node.has_claim_condition(conditions::INSTANCE_TERMINATING)
}

/// How many nodes one budget allows now; unlimited while its window is closed. A share is rounded up.
fn limit(budget: &Budget, nodes: u32, now: Timestamp) -> Result<u32, InvalidBudget> {
    let wrong = || InvalidBudget::Nodes(budget.nodes.clone());
    let limit = match budget.nodes.strip_suffix('%') {
        Some(percent) => {
            let percent: u32 = percent.parse().map_err(|_| wrong())?;
            let share = (u64::from(nodes) * u64::from(percent)).div_ceil(100);
            u32::try_from(share).unwrap_or(UNLIMITED)
        }
        None => budget.nodes.parse().map_err(|_| wrong())?,
    };
    Ok(if is_active(budget, now)? { limit } else { UNLIMITED })
}

/// Whether the budget's window is open: some start of it lies within the last `duration`.
fn is_active(budget: &Budget, now: Timestamp) -> Result<bool, InvalidBudget> {
    let (schedule, duration) = match (&budget.schedule, &budget.duration) {
        (None, None) => return Ok(true),
        (Some(schedule), Some(duration)) => (schedule.parse::<Schedule>()?, duration.as_duration()),
        _ => return Err(InvalidBudget::HalfAWindow),
    };
    let back = SignedDuration::try_from(duration).ok().and_then(|duration| now.checked_sub(duration).ok());
    Ok(schedule.next_after(back.unwrap_or(Timestamp::MIN)).is_some_and(|start| start <= now))
}

#[cfg(test)]
mod tests;
