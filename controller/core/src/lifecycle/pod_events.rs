//! When a node last saw a pod come or go (core spec §5.11): what `consolidateAfter` is counted from.
//!
//! The watch tells that something changed, not what it was before, so the pods seen last are remembered per claim and
//! compared. Nothing essential is lost with that memory: after a restart every node's pods are new, which moves the
//! time once, as it does upstream.

use crate::snapshot::{OwnerKind, Pod};
use controller_api::NodeClaim;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Events closer together than this are recorded once.
pub const RESOLUTION: SignedDuration = SignedDuration::from_secs(10);

/// The pods of one node as they were seen, by UID.
pub type SeenPods = BTreeMap<String, PodState>;

/// How far a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodState {
    terminal: bool,
    terminating: bool,
}

/// The pods of a node that count: those of DaemonSets do not.
pub fn seen<'a>(pods: impl IntoIterator<Item = &'a Arc<Pod>>) -> SeenPods {
    let counted = pods.into_iter().filter(|pod| !pod.is_owned_by(OwnerKind::DaemonSet));
    counted
        .map(|pod| (pod.uid.clone(), PodState { terminal: pod.is_terminal(), terminating: pod.is_terminating() }))
        .collect()
}

/// Whether a pod was newly bound, newly finished or newly told to go. One that vanishes was told before.
pub fn happened(before: &SeenPods, after: &SeenPods) -> bool {
    after.iter().any(|(uid, state)| match before.get(uid) {
        None => true,
        Some(earlier) => (state.terminal && !earlier.terminal) || (state.terminating && !earlier.terminating),
    })
}

/// Whether an event at this instant is to be recorded, given the last one recorded.
pub fn is_due(claim: &NodeClaim, now: Timestamp) -> bool {
    let last = claim.status.as_ref().and_then(|status| status.last_pod_event_time);
    last.is_none_or(|last| now.duration_since(last) >= RESOLUTION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::fixtures::{at, claim};
    use crate::lifecycle::status_mut;

    fn pods(states: &[(&str, bool, bool)]) -> SeenPods {
        let state =
            |&(uid, terminal, terminating): &(&str, bool, bool)| (uid.into(), PodState { terminal, terminating });
        states.iter().map(state).collect()
    }

    #[test]
    fn binding_finishing_and_being_told_to_go_are_events_and_vanishing_is_not() {
        let running = pods(&[("a", false, false)]);
        assert!(happened(&pods(&[]), &running), "bound");
        assert!(happened(&running, &pods(&[("a", true, false)])), "finished");
        assert!(happened(&running, &pods(&[("a", false, true)])), "terminating");
        assert!(!happened(&running, &running), "nothing");
        assert!(!happened(&pods(&[("a", false, true)]), &pods(&[])), "gone");
        assert!(happened(&running, &pods(&[("b", false, false)])), "replaced under another uid");
    }

    #[test]
    fn events_within_ten_seconds_are_recorded_once() {
        let mut claim = claim();
        assert!(is_due(&claim, at(100)));
        status_mut(&mut claim).last_pod_event_time = Some(at(100));
        assert!(!is_due(&claim, at(109)));
        assert!(is_due(&claim, at(110)));
    }
}
