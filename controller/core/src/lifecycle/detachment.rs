//! Volume detachment (core spec §6.5): an instance is not terminated while volumes of pods that were moved are
//! attached.

use super::{ConditionChange, condition, first_few};
use jiff::Timestamp;
use std::collections::BTreeSet;

/// A VolumeAttachment of the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attachment {
    /// The VolumeAttachment's name.
    pub name: String,
    /// The PersistentVolume; inline volumes have none.
    pub persistent_volume: Option<String>,
}

/// Whether the node's volumes are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detachment {
    /// Nothing is attached that would have to be detached.
    Detached,
    /// These attachments are waited for.
    Waiting(Vec<String>),
    /// The deadline has passed with attachments left; the instance goes nevertheless.
    GivenUp,
}

/// Decides about the node's volumes. `staying` are the PersistentVolumes of pods that are not drained: they will be
/// attached until the instance is gone.
pub fn next(
    attachments: &[Attachment],
    staying: &BTreeSet<String>,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Detachment {
    let counts = |attachment: &&Attachment| {
        attachment.persistent_volume.as_ref().is_some_and(|volume| !staying.contains(volume))
    };
    let left: Vec<String> = attachments.iter().filter(counts).map(|attachment| attachment.name.clone()).collect();
    match left.is_empty() {
        true => Detachment::Detached,
        false if deadline.is_some_and(|deadline| now > deadline) => Detachment::GivenUp,
        false => Detachment::Waiting(left),
    }
}

impl Detachment {
    /// What the claim's condition is to say.
    pub fn condition(&self) -> ConditionChange {
        const REASON: &str = "AwaitingVolumeDetachment";
        const ELAPSED: &str = "TerminationGracePeriodElapsed";
        match self {
            Self::Detached => ConditionChange::yes(condition::VOLUMES_DETACHED),
            Self::Waiting(_) => ConditionChange::unknown(condition::VOLUMES_DETACHED, REASON, REASON),
            Self::GivenUp => ConditionChange::no(condition::VOLUMES_DETACHED, ELAPSED, ELAPSED),
        }
    }
}

/// The text of the event while attachments are waited for: the first five by name.
pub fn waiting_message(names: &[String]) -> String {
    format!("Awaiting deletion of bound volumeattachments ({})", first_few(names, 5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::fixtures::at;

    fn attachment(name: &str, volume: Option<&str>) -> Attachment {
        Attachment { name: name.into(), persistent_volume: volume.map(Into::into) }
    }

    #[test]
    fn attachments_without_volume_or_of_staying_pods_do_not_count() {
        let all = [attachment("a", None), attachment("b", Some("pv-daemon")), attachment("c", Some("pv-app"))];
        let staying = BTreeSet::from(["pv-daemon".to_owned()]);
        assert_eq!(next(&all[..2], &staying, None, at(0)), Detachment::Detached);
        assert_eq!(next(&all, &staying, None, at(0)), Detachment::Waiting(vec!["c".into()]));
        assert_eq!(next(&[], &staying, None, at(0)), Detachment::Detached);
    }

    #[test]
    fn the_deadline_ends_the_wait() {
        let all = [attachment("c", Some("pv-app"))];
        let wait = next(&all, &BTreeSet::new(), Some(at(100)), at(100));
        assert_eq!(wait, Detachment::Waiting(vec!["c".into()]));
        let given_up = next(&all, &BTreeSet::new(), Some(at(100)), at(101));
        assert_eq!(given_up, Detachment::GivenUp);
        let elapsed = "TerminationGracePeriodElapsed";
        assert_eq!(given_up.condition(), ConditionChange::no("VolumesDetached", elapsed, elapsed));
    }

    #[test]
    fn the_message_names_five_at_most() {
        let names: Vec<String> = (1..=7).map(|n| format!("va-{n}")).collect();
        assert_eq!(
            waiting_message(&names),
            "Awaiting deletion of bound volumeattachments (va-1, va-2, va-3, va-4, va-5 and 2 other(s))"
        );
        assert_eq!(waiting_message(&names[..1]), "Awaiting deletion of bound volumeattachments (va-1)");
    }
}
