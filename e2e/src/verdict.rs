//! What came of a scenario: the schema that the scenario's process, the reports and `--format json` share.

use crate::chronicle::Chronicle;
use crate::features::Scenario;
use crate::recorder::JournalSummary;
use serde::{Deserialize, Serialize};

/// The result of one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScenarioResult {
    /// The scenario.
    pub scenario: Scenario,
    /// The backend it ran on.
    pub backend: String,
    /// The controller it was about: `ours`, `upstream` or a path.
    pub controller: String,
    /// The seed of every pinned source of randomness.
    pub seed: u64,
    /// What came of it.
    pub verdict: Verdict,
    /// The time that passed in the scenario, in seconds.
    pub virtual_s: f64,
    /// The time that passed outside, in seconds.
    pub wall_s: f64,
    /// The requests it made.
    pub journal: JournalSummary,
    /// What happened in it.
    #[serde(default)]
    pub chronicle: Chronicle,
    /// Set where the scenario ran twice: whether both journals were equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,
}

/// What came of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Verdict {
    /// Every step held, and so did every invariant.
    Passed,
    /// A step or an invariant did not hold.
    Failed(Failure),
    /// The backend lacks something the scenario needs.
    Skipped {
        /// The capability that is missing.
        missing: String,
    },
}

/// Where and why a scenario failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The step, as written, with its line; or the name of the invariant.
    pub step: String,
    /// What was expected.
    pub message: String,
    /// What was last observed, if the step waited for something.
    pub last_observed: Option<String>,
    /// The merged story: events, NodeClaims, nodes, EC2 calls, log lines.
    pub timeline: Vec<String>,
}

/// The comparison of two runs of a scenario with the same seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    /// Whether both journals were equal to the byte.
    pub identical: bool,
    /// The second run's journal.
    pub journal: JournalSummary,
    /// The first line that differs, with its number, from both runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<String>,
}

impl ScenarioResult {
    /// A verdict without anything that happened, and without time that passed.
    pub fn bare(scenario: Scenario, backend: &str, controller: &str, seed: u64, verdict: Verdict) -> Self {
        Self {
            scenario,
            backend: backend.into(),
            controller: controller.into(),
            seed,
            verdict,
            virtual_s: 0.0,
            wall_s: 0.0,
            journal: JournalSummary::default(),
            chronicle: Chronicle::default(),
            repeat: None,
        }
    }

    /// Whether the scenario failed, or ran differently the second time.
    pub fn failed(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_)) || self.repeat.as_ref().is_some_and(|repeat| !repeat.identical)
    }
}
