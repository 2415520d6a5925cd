//! Whether a pool's launches become nodes (core spec §5.7): the last four outcomes of each pool.

use controller_api::ConditionStatus;
use std::collections::VecDeque;

/// Upstream looks at four outcomes; two failures among them make a pool unhealthy.
const REMEMBERED: usize = 4;
const UNHEALTHY_FAILURES: usize = 2;

/// The last outcomes of one pool's launches, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationHealth {
    outcomes: VecDeque<Outcome>,
}

/// What became of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A Node registered.
    Registered,
    /// The claim ran out of time.
    Failed,
}

/// A pool's state of health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing is remembered.
    Unknown,
    /// Fewer than two of the last four failed.
    Healthy,
    /// Two or more of the last four failed.
    Unhealthy,
}

impl RegistrationHealth {
    /// What is remembered of a pool whose condition survived a restart of the controller.
    pub fn from_condition(status: ConditionStatus) -> Self {
        let outcomes: &[Outcome] = match status {
            ConditionStatus::True => &[Outcome::Registered],
            ConditionStatus::False => &[Outcome::Failed, Outcome::Failed],
            ConditionStatus::Unknown => &[],
        };
        Self { outcomes: outcomes.iter().copied().collect() }
    }

    /// The pool's health.
    pub fn health(&self) -> Health {
        let failures = self.outcomes.iter().filter(|outcome| **outcome == Outcome::Failed).count();
        match (self.outcomes.is_empty(), failures >= UNHEALTHY_FAILURES) {
            (true, _) => Health::Unknown,
            (false, true) => Health::Unhealthy,
            (false, false) => Health::Healthy,
        }
    }

    /// Remembers an outcome and tells the health that follows.
    pub fn record(&mut self, outcome: Outcome) -> Health {
        if self.outcomes.len() == REMEMBERED {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(outcome);
        self.health()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Failed, Registered};
    use super::*;

    #[test]
    fn two_failures_among_the_last_four_are_unhealthy() {
        let cases: [(&[Outcome], Health); 6] = [
            (&[], Health::Unknown),
            (&[Failed], Health::Healthy),
            (&[Failed, Failed], Health::Unhealthy),
            (&[Failed, Registered, Registered, Failed], Health::Unhealthy),
            (&[Failed, Registered, Registered, Registered, Failed], Health::Healthy),
            (&[Failed, Failed, Registered, Registered, Registered], Health::Healthy),
        ];
        for (outcomes, expected) in cases {
            let mut health = RegistrationHealth::default();
            outcomes.iter().for_each(|outcome| {
                health.record(*outcome);
            });
            assert_eq!(health.health(), expected, "{outcomes:?}");
        }
    }

    #[test]
    fn a_restart_remembers_what_the_condition_says() {
        assert_eq!(RegistrationHealth::from_condition(ConditionStatus::True).health(), Health::Healthy);
        assert_eq!(RegistrationHealth::from_condition(ConditionStatus::False).health(), Health::Unhealthy);
        assert!(RegistrationHealth::from_condition(ConditionStatus::Unknown).is_empty());
    }
}
