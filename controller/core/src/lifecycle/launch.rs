//! Launch (core spec §5.2): whether a claim still needs an instance, and what each answer of the cloud means for it.

use super::{ConditionChange, condition, is_unknown, status_mut, truncated};
use crate::cloud::CloudError;
use controller_api::NodeClaim;
use std::error::Error;

/// Whether the cloud is to be asked for an instance.
pub fn needs_launch(claim: &NodeClaim) -> bool {
    is_unknown(claim, condition::LAUNCHED)
}

/// The claim with what the cloud said about its instance: the claim's own labels win over the cloud's, the cloud's
/// annotations over the claim's.
pub fn launched(claim: &NodeClaim, created: &NodeClaim) -> NodeClaim {
    let mut merged = claim.clone();
    let mut labels = created.metadata.labels.clone().unwrap_or_default();
    labels.extend(claim.metadata.labels.clone().unwrap_or_default());
    merged.metadata.labels = Some(labels);
    let mut annotations = claim.metadata.annotations.clone().unwrap_or_default();
    annotations.extend(created.metadata.annotations.clone().unwrap_or_default());
    merged.metadata.annotations = Some(annotations);
    let instance = created.status.clone().unwrap_or_default();
    let status = status_mut(&mut merged);
    status.provider_id = instance.provider_id;
    status.image_id = instance.image_id;
    status.capacity = instance.capacity;
    status.allocatable = instance.allocatable;
    merged
}

/// What a failed launch means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchFailure {
    /// The claim is deleted; its pods will be scheduled again.
    Abandon {
        /// The `reason` label of `karpenter_nodeclaims_disrupted_total`.
        reason: &'static str,
        /// The text of an `InsufficientCapacityError` event, where one is due.
        event: Option<String>,
    },
    /// The condition tells why, and the launch is tried again after a back-off.
    Retry(ConditionChange),
}

/// Reads a launch error.
pub fn failure(claim: &NodeClaim, error: &CloudError) -> LaunchFailure {
    match error {
        CloudError::InsufficientCapacity(_) => {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let event = format!("NodeClaim {name} event: {}", truncated(&error.to_string()));
            LaunchFailure::Abandon { reason: "insufficient_capacity", event: Some(event) }
        }
        CloudError::NodeClassNotReady(_) => LaunchFailure::Abandon { reason: "nodeclass_not_ready", event: None },
        CloudError::Create { reason, message } => {
            LaunchFailure::Retry(ConditionChange::unknown(condition::LAUNCHED, reason, truncated(message)))
        }
        CloudError::NotFound(_) | CloudError::Other { .. } => LaunchFailure::Retry(ConditionChange::unknown(
            condition::LAUNCHED,
            "LaunchFailed",
            truncated(&chain(error)),
        )),
    }
}

/// An error and its causes in one line: our errors do not print their causes themselves.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(", ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::fixtures::claim;
    use controller_api::NodeClaimStatus;
    use std::collections::BTreeMap;

    fn labels(entries: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
        Some(entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn a_claim_needs_a_launch_until_launched_is_true_or_false() {
        assert!(needs_launch(&claim()));
        assert!(needs_launch(&claim().with_condition("Launched", "Unknown", 0)));
        assert!(!needs_launch(&claim().with_condition("Launched", "True", 0)));
        assert!(!needs_launch(&claim().with_condition("Launched", "False", 0)));
    }

    #[test]
    fn own_labels_win_over_the_clouds_and_the_clouds_annotations_over_the_own() {
        let mut own = claim();
        own.metadata.labels = labels(&[("a", "own"), ("b", "own")]);
        own.metadata.annotations = labels(&[("x", "own"), ("y", "own")]);
        let mut created = claim();
        created.metadata.labels = labels(&[("b", "cloud"), ("c", "cloud")]);
        created.metadata.annotations = labels(&[("y", "cloud"), ("z", "cloud")]);
        created.status = Some(NodeClaimStatus {
            provider_id: "aws:///us-west-2a/i-1".into(),
            image_id: "ami-1".into(),
            ..Default::default()
        });
        let merged = launched(&own, &created);
        assert_eq!(merged.metadata.labels, labels(&[("a", "own"), ("b", "own"), ("c", "cloud")]));
        assert_eq!(merged.metadata.annotations, labels(&[("x", "own"), ("y", "cloud"), ("z", "cloud")]));
        let status = merged.status.unwrap();
        assert_eq!(status.provider_id, "aws:///us-west-2a/i-1");
        assert_eq!(status.image_id, "ami-1");
    }

    #[test]
    fn each_launch_error_has_its_consequence() {
        let claim = claim();
        let retry = |reason: &str, message: &str| {
            LaunchFailure::Retry(ConditionChange::unknown(condition::LAUNCHED, reason, message))
        };
        let cases = [
            (
                CloudError::InsufficientCapacity("all requested instance types were unavailable".into()),
                LaunchFailure::Abandon {
                    reason: "insufficient_capacity",
                    event: Some(
                        "NodeClaim claim-1 event: insufficient capacity, all requested instance types were unavailable"
                            .into(),
                    ),
                },
            ),
            (
                CloudError::NodeClassNotReady("SubnetsReady=False".into()),
                LaunchFailure::Abandon { reason: "nodeclass_not_ready", event: None },
            ),
            (
                CloudError::Create { reason: "Unauthorized".into(), message: "not allowed".into() },
                retry("Unauthorized", "not allowed"),
            ),
            (
                CloudError::Other { context: "creating fleet".into(), source: "connection reset".into() },
                retry("LaunchFailed", "creating fleet, connection reset"),
            ),
        ];
        for (error, expected) in cases {
            assert_eq!(failure(&claim, &error), expected, "{error:?}");
        }
    }

    #[test]
    fn long_messages_are_cut_at_300_bytes_on_a_character() {
        let text = format!("{}é{}", "x".repeat(299), "y".repeat(50));
        let cut = truncated(&text);
        assert_eq!(cut, format!("{}...", "x".repeat(299)));
        assert_eq!(truncated("short"), "short");
    }
}
