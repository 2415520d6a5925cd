//! The end of a claim (core spec §5.8, §6.6): the instant from which pods are no longer spared, and the order in which
//! Node, instance and claim go.

use super::{annotation, has_finalizer};
use controller_api::{NodeClaim, labels};
use jiff::{SignedDuration, Timestamp};

/// The instant at which the claim's pods are deleted regardless of budgets, as the annotation on the claim fixes it.
pub fn deadline(claim: &NodeClaim) -> Result<Option<Timestamp>, InvalidDeadline> {
    let Some(text) = annotation(claim, labels::TERMINATION_TIMESTAMP_ANNOTATION) else { return Ok(None) };
    text.parse().map(Some).map_err(|source| InvalidDeadline { text: text.to_owned(), source })
}

/// The annotation that fixes the deadline is not an RFC 3339 timestamp.
#[derive(Debug, thiserror::Error)]
#[error("parsing annotation karpenter.sh/nodeclaim-termination-timestamp {text:?}")]
pub struct InvalidDeadline {
    text: String,
    source: jiff::Error,
}

/// The deadline that is still to be written on a deleting claim: its deletion plus the grace period. Once written it is
/// never moved.
pub fn missing_deadline(claim: &NodeClaim) -> Option<Timestamp> {
    if annotation(claim, labels::TERMINATION_TIMESTAMP_ANNOTATION).is_some() {
        return None;
    }
    let grace = SignedDuration::try_from(claim.spec.termination_grace_period.as_ref()?.as_duration()).ok()?;
    let deleted = claim.metadata.deletion_timestamp.as_ref()?.0;
    Some(deleted.checked_add(grace).unwrap_or(Timestamp::MAX))
}

/// An instant as annotations and messages carry it: RFC 3339 in whole seconds.
pub fn rfc3339(instant: Timestamp) -> String {
    jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%SZ", instant).unwrap_or_else(|_| instant.to_string())
}

/// Whether there is anything left to do for a deleting claim.
pub fn is_finished(claim: &NodeClaim) -> bool {
    !has_finalizer(claim.metadata.finalizers.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::fixtures::{at, claim};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn the_deadline_is_deletion_plus_grace_and_is_written_once() {
        let mut claim = claim();
        claim.metadata.deletion_timestamp = Some(Time(at(100)));
        assert_eq!(missing_deadline(&claim), None, "no grace period, no deadline");
        claim.spec.termination_grace_period = Some("1h".parse().unwrap());
        assert_eq!(missing_deadline(&claim), Some(at(3700)));
        assert_eq!(deadline(&claim).unwrap(), None);
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert("karpenter.sh/nodeclaim-termination-timestamp".into(), rfc3339(at(50)));
        assert_eq!(missing_deadline(&claim), None);
        assert_eq!(deadline(&claim).unwrap(), Some(at(50)));
    }

    #[test]
    fn a_deadline_that_is_no_time_is_an_error_that_names_it() {
        let mut claim = claim();
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert("karpenter.sh/nodeclaim-termination-timestamp".into(), "soon".into());
        assert!(deadline(&claim).unwrap_err().to_string().contains("\"soon\""));
    }
}
