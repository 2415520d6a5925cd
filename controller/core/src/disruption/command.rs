//! What to do about a node, specific enough to need no judgement, and whether it is still right a while later.

use super::budget::Budgets;
use super::{Ineligible, Reason, emptiness};
use crate::scheduling::PlannedNode;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::fmt;

/// Take these nodes away, once the replacements are up.
#[derive(Clone, Debug)]
pub struct Command {
    /// Why.
    pub reason: Reason,
    /// The nodes, by [`StateNode::name`](crate::snapshot::StateNode::name).
    pub candidates: Vec<String>,
    /// Nodes to launch first.
    pub replacements: Vec<PlannedNode>,
}

/// Why a command is no longer right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Its nodes are no longer what they were; why, for each.
    Churn(BTreeMap<String, Ineligible>),
    /// Budgets no longer allow it.
    Budget(BTreeMap<String, Ineligible>),
}

impl Command {
    /// Checks the command against a later snapshot. What is left of it may be less: for emptiness any part of it will do
    /// (core spec §7.11).
    pub fn still_valid(&self, snapshot: &Snapshot, _settings: &Settings) -> Result<Self, Invalid> {
        let (now, passed_over) = emptiness::decide_among(snapshot, &Budgets::new(snapshot), &self.candidates);
        if let Some(command) = now {
            return Ok(command);
        }
        if passed_over.values().any(|reason| matches!(reason, Ineligible::PoolBudgetSpent { .. })) {
            return Err(Invalid::Budget(passed_over));
        }
        Err(Invalid::Churn(passed_over))
    }

    /// `delete` or `replace`, as in logs and metrics.
    pub fn decision(&self) -> &'static str {
        if self.replacements.is_empty() { "delete" } else { "replace" }
    }
}

impl Invalid {
    /// The word for it in metrics and events.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Churn(_) => "churn",
            Self::Budget(_) => "budget",
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Churn(reasons) | Self::Budget(reasons)) = self;
        let reasons: Vec<String> = reasons.iter().map(|(node, reason)| format!("{node}: {reason}")).collect();
        write!(f, "command is no longer valid ({}), {}", self.label(), reasons.join("; "))
    }
}

impl std::error::Error for Invalid {}
