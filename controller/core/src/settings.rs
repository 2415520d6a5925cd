//! The knobs that change decisions. Passed in, never looked up.

use std::time::Duration;

/// Settings that decisions depend on (core spec §9.1, §9.2).
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long pods are collected at most before a decision; also bounds how long a node stays nominated.
    pub batch_max_duration: Duration,
    /// How long without a new pod closes the batch.
    pub batch_idle_duration: Duration,
    /// Whether preferences are respected or ignored.
    pub preference_policy: PreferencePolicy,
    /// Whether `minValues` is strict or may be lowered.
    pub min_values_policy: MinValuesPolicy,
    /// The feature gate `ReservedCapacity`: whether capacity reservations are used.
    pub reserved_capacity: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_max_duration: Duration::from_secs(10),
            batch_idle_duration: Duration::from_secs(1),
            preference_policy: PreferencePolicy::Respect,
            min_values_policy: MinValuesPolicy::Strict,
            reserved_capacity: true,
        }
    }
}

impl Settings {
    /// How long a node stays reserved for pods that were planned for it: twice the longest batch, at least ten seconds
    /// (core spec §4.4).
    pub fn nomination_window(&self) -> Duration {
        (self.batch_max_duration * 2).max(Duration::from_secs(10))
    }
}

/// `--preference-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreferencePolicy {
    /// Preferences are tried first and relaxed one by one.
    Respect,
    /// Preferences have no effect.
    Ignore,
}

/// `--min-values-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinValuesPolicy {
    /// A requirement's `minValues` must be met.
    Strict,
    /// It is lowered to what can be had.
    BestEffort,
}
