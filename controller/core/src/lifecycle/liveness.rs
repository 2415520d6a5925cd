//! Liveness (core spec §5.6): a claim that has no instance after five minutes, or no Node after fifteen, is given up.

use super::{condition, is_true, since};
use controller_api::NodeClaim;
use jiff::{SignedDuration, Timestamp};

/// How long a launch may take.
pub const LAUNCH_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// How long a node may take to join.
pub const REGISTRATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(15);

/// Whether the claim makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Registered; nothing to watch.
    Alive,
    /// Still within its time: look again at this instant.
    Until(Timestamp),
    /// Too slow: the claim is deleted.
    TimedOut {
        /// The `reason` label of `karpenter_nodeclaims_disrupted_total`.
        reason: &'static str,
        /// The time it had.
        timeout: SignedDuration,
    },
}

/// Decides whether the claim is still waited for.
pub fn next(claim: &NodeClaim, now: Timestamp) -> Liveness {
    if is_true(claim, condition::REGISTERED) {
        return Liveness::Alive;
    }
    let registration = check(claim, condition::REGISTERED, REGISTRATION_TIMEOUT, "registration_timeout", now);
    if is_true(claim, condition::LAUNCHED) {
        return registration;
    }
    match (check(claim, condition::LAUNCHED, LAUNCH_TIMEOUT, "launch_timeout", now), registration) {
        (Liveness::Until(launch), Liveness::Until(registration)) => Liveness::Until(launch.min(registration)),
        (Liveness::Until(_), late) => late,
        (late, _) => late,
    }
}

fn check(claim: &NodeClaim, type_: &str, timeout: SignedDuration, reason: &'static str, now: Timestamp) -> Liveness {
    // A claim without a creation timestamp has not been stored yet, so its time has not begun.
    let deadline = since(claim, type_).unwrap_or(now).checked_add(timeout).unwrap_or(Timestamp::MAX);
    match now < deadline {
        true => Liveness::Until(deadline),
        false => Liveness::TimedOut { reason, timeout },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::fixtures::{at, claim};

    fn timed_out(reason: &'static str, minutes: i64) -> Liveness {
        Liveness::TimedOut { reason, timeout: SignedDuration::from_mins(minutes) }
    }

    #[test]
    fn five_minutes_to_launch_counted_from_creation() {
        assert_eq!(next(&claim(), at(0)), Liveness::Until(at(300)));
        assert_eq!(next(&claim(), at(299)), Liveness::Until(at(300)));
        assert_eq!(next(&claim(), at(300)), timed_out("launch_timeout", 5));
        let failing = claim().with_condition("Launched", "Unknown", 0);
        assert_eq!(next(&failing, at(300)), timed_out("launch_timeout", 5));
    }

    #[test]
    fn fifteen_minutes_to_register_counted_from_creation_too() {
        let launched = claim().with_condition("Launched", "True", 240).with_condition("Registered", "Unknown", 0);
        assert_eq!(next(&launched, at(899)), Liveness::Until(at(900)));
        assert_eq!(next(&launched, at(900)), timed_out("registration_timeout", 15));
    }

    #[test]
    fn two_nodes_with_one_provider_id_start_the_fifteen_minutes_again() {
        let twice = claim().with_condition("Launched", "True", 20).with_condition("Registered", "False", 60);
        assert_eq!(next(&twice, at(900)), Liveness::Until(at(960)));
    }

    #[test]
    fn a_registered_claim_is_alive_for_good() {
        let registered = claim().with_condition("Launched", "True", 20).with_condition("Registered", "True", 60);
        assert_eq!(next(&registered, at(1_000_000)), Liveness::Alive);
    }
}
