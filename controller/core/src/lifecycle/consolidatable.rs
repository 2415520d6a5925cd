//! The `Consolidatable` condition (core spec §5.17): true once the node has seen no pod come or go for the pool's
//! `consolidateAfter`.

use super::{ConditionChange, condition, condition_of, is_true};
use controller_api::{NodeClaim, NodePool};
use jiff::{SignedDuration, Timestamp};

/// What becomes of the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consolidatable {
    /// The condition.
    pub change: ConditionChange,
    /// When to look again, if time alone will change the answer.
    pub look_again: Option<Timestamp>,
}

/// Decides about the condition. Static pools are not consolidated; their claims' condition is none of our business.
pub fn next(claim: &NodeClaim, pool: &NodePool, now: Timestamp) -> Option<Consolidatable> {
    if pool.spec.replicas.is_some() {
        return None;
    }
    let not = |look_again| Consolidatable { change: ConditionChange::absent(condition::CONSOLIDATABLE), look_again };
    let Some(after) = pool.spec.disruption.consolidate_after.as_duration() else {
        return Some(not(None));
    };
    if !is_true(claim, condition::INITIALIZED) {
        return Some(not(None));
    }
    if let Some(quiet_at) = quiet_at(claim, after)
        && now < quiet_at
    {
        return Some(not(Some(quiet_at)));
    }
    Some(Consolidatable { change: ConditionChange::yes(condition::CONSOLIDATABLE), look_again: None })
}

fn quiet_at(claim: &NodeClaim, after: std::time::Duration) -> Option<Timestamp> {
    if after.is_zero() {
        return None;
    }
    let last_event = claim.status.as_ref().and_then(|status| status.last_pod_event_time);
    let initialized = || condition_of(claim, condition::INITIALIZED).map(|condition| condition.last_transition_time);
    let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
    Some(last_event.or_else(initialized)?.checked_add(after).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::fixtures::{Claim, at, claim};
    use crate::lifecycle::status_mut;

    fn pool(consolidate_after: &str) -> NodePool {
        let mut pool = NodePool::default();
        pool.spec.disruption.consolidate_after = consolidate_after.parse().expect("a duration");
        pool
    }

    fn initialized() -> Claim {
        claim().with_condition("Initialized", "True", 60)
    }

    fn yes() -> Option<Consolidatable> {
        Some(Consolidatable { change: ConditionChange::yes("Consolidatable"), look_again: None })
    }

    fn not(look_again: Option<Timestamp>) -> Option<Consolidatable> {
        Some(Consolidatable { change: ConditionChange::absent("Consolidatable"), look_again })
    }

    #[test]
    fn never_and_not_yet_initialized_clear_it() {
        assert_eq!(next(&initialized(), &pool("Never"), at(9999)), not(None));
        assert_eq!(next(&claim(), &pool("0s"), at(9999)), not(None));
    }

    #[test]
    fn it_turns_true_consolidate_after_the_node_was_initialized() {
        assert_eq!(next(&initialized(), &pool("1m"), at(119)), not(Some(at(120))));
        assert_eq!(next(&initialized(), &pool("1m"), at(120)), yes());
        assert_eq!(next(&initialized(), &pool("0s"), at(60)), yes());
    }

    #[test]
    fn each_pod_event_starts_the_wait_again() {
        let mut claim = initialized();
        status_mut(&mut claim).last_pod_event_time = Some(at(200));
        assert_eq!(next(&claim, &pool("1m"), at(259)), not(Some(at(260))));
        assert_eq!(next(&claim, &pool("1m"), at(260)), yes());
    }

    #[test]
    fn static_pools_are_left_alone() {
        let mut pool = pool("0s");
        pool.spec.replicas = Some(2);
        assert_eq!(next(&initialized(), &pool, at(60)), None);
    }
}
