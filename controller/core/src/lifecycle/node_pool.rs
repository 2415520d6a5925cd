//! What a NodePool's status says about the class it launches from and about its nodes (core spec §5.13, §5.15).

use super::{ConditionChange, condition};
use crate::quantity::Quantity;
use crate::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, NODES, PODS, Resources};
use crate::snapshot::StateNode;
use controller_api::{Ec2NodeClass, HasConditions as _};

/// Whether the pool's class can be launched from.
pub fn class_readiness(class: Option<&Ec2NodeClass>) -> ConditionChange {
    let no = |reason: &str, message: &str| ConditionChange::no(condition::NODE_CLASS_READY, reason, message);
    let Some(class) = class else {
        return no("NodeClassNotFound", "NodeClass not found on cluster");
    };
    if class.metadata.deletion_timestamp.is_some() {
        return no("NodeClassTerminating", "NodeClass is Terminating");
    }
    match class.condition(condition::READY) {
        Some(ready) if ready.is_true() => ConditionChange::yes(condition::NODE_CLASS_READY),
        Some(ready) if ready.is_false() => no(&ready.reason, &ready.message),
        _ => no("NodeClassReadinessUnknown", "Node Class Readiness Unknown"),
    }
}

/// What a pool's nodes have together, and how many there are. Nodes on their way out do not count; resources that every
/// node has are there even at zero.
pub fn counters(nodes: impl IntoIterator<Item = StateNode>) -> (Resources, i64) {
    let zero = |resources: Resources, name: &&str| resources.with(name, Quantity::default());
    let mut total = [CPU, MEMORY, PODS, EPHEMERAL_STORAGE, NODES].iter().fold(Resources::new(), zero);
    let mut count = 0;
    for node in nodes.into_iter().filter(|node| !node.is_marked_for_deletion()) {
        total.add(node.capacity());
        count += 1;
    }
    (total, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::fixtures::{at, claim, quantities};
    use crate::lifecycle::{set_condition, status_mut};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use std::sync::Arc;

    fn class(ready: Option<ConditionChange>) -> Ec2NodeClass {
        let mut class = Ec2NodeClass::default();
        if let Some(change) = ready {
            set_condition(&mut class, &change, at(0));
        }
        class
    }

    #[test]
    fn each_state_of_the_class_has_its_reason() {
        let no = |reason: &str, message: &str| ConditionChange::no("NodeClassReady", reason, message);
        let mut going = class(None);
        going.metadata.deletion_timestamp = Some(Time(at(0)));
        let failing = class(Some(ConditionChange::no("SubnetsReady", "SubnetsNotFound", "none")));
        assert_eq!(class_readiness(None), no("NodeClassNotFound", "NodeClass not found on cluster"));
        assert_eq!(class_readiness(Some(&going)), no("NodeClassTerminating", "NodeClass is Terminating"));
        let unknown = no("NodeClassReadinessUnknown", "Node Class Readiness Unknown");
        assert_eq!(class_readiness(Some(&class(None))), unknown);
        let copied = class_readiness(Some(&failing));
        let message = &failing.condition("Ready").unwrap().message;
        assert!(message.contains("SubnetsReady=False"), "{message}");
        assert_eq!(copied, no("UnhealthyDependents", message));
    }

    #[test]
    fn counters_sum_what_stays_and_show_zeros() {
        let with = |deleting: bool| {
            let mut claim = claim();
            status_mut(&mut claim).capacity = quantities(&[("cpu", "4"), ("memory", "8Gi"), ("nvidia.com/gpu", "1")]);
            claim.metadata.deletion_timestamp = deleting.then(|| Time(at(0)));
            StateNode::new(None, Some(Arc::new(claim.into())))
        };
        let (none, count) = counters([]);
        assert_eq!(
            (none.to_api(), count),
            (
                quantities(
                    &[("cpu", "0"), ("memory", "0"), ("pods", "0"), ("ephemeral-storage", "0"), ("nodes", "0"),]
                ),
                0
            )
        );
        let (two, count) = counters([with(false), with(true), with(false)]);
        let two = two.to_api();
        assert_eq!(
            (two["cpu"].0.as_str(), two["memory"].0.as_str(), two["nvidia.com/gpu"].0.as_str()),
            ("8", "16Gi", "2")
        );
        assert_eq!((two["nodes"].0.as_str(), count), ("2", 2));
    }
}
