//! Which nodes to take away, and why every other one stays (core spec §7).
//!
//! [`plan`] looks at the world once and returns at once. Its commands are to be held for 15 seconds and checked against
//! a later snapshot with [`Command::still_valid`] before anything is done: a pod that arrives meanwhile keeps its node.
//! Emptiness is the one method so far; drift and consolidation will join it here, in upstream's order.

mod budget;
mod candidate;
mod command;
mod cron;
mod emptiness;

pub use budget::{Budgets, InvalidBudget, PoolBudget};
pub use candidate::{Candidate, DisruptionClass, Ineligible, candidate};
pub use command::{Command, Invalid};
pub use controller_api::DisruptionReason as Reason;
pub use cron::{InvalidSchedule, Schedule};

use crate::settings::Settings;
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;

/// What to take away, and why the rest stays.
#[derive(Clone, Debug, Default)]
pub struct DisruptionPlan {
    /// What to do.
    pub commands: Vec<Command>,
    /// Why everything else was left alone, by [`StateNode::name`](crate::snapshot::StateNode::name).
    pub passed_over: BTreeMap<String, Ineligible>,
    /// Where each pool's budgets stand, by name of the pool.
    pub budgets: BTreeMap<String, PoolBudget>,
}

/// Decides which nodes to disrupt now. No knob changes emptiness; consolidation will read the settings.
pub fn plan(snapshot: &Snapshot, _settings: &Settings) -> DisruptionPlan {
    let mut plan = DisruptionPlan::default();
    let budgets = Budgets::new(snapshot);
    let (command, passed_over) = emptiness::decide(snapshot, &budgets);
    plan.commands.extend(command);
    plan.passed_over = passed_over;
    plan.budgets = budgets.into_pools();
    plan
}
