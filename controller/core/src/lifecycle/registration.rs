//! Registration (core spec §5.4): a Node with the claim's provider id has joined; it gets the claim's labels,
//! annotations and taints, the finalizer and the owner, and loses the taint that kept pods away until now.

use super::{ConditionChange, NodeMatch, condition, is_unknown, taints_of};
use crate::taints;
use controller_api::{NodeClaim, labels};
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The next step of registration.
#[derive(Clone, Debug)]
pub enum Registration {
    /// Registered, or given up on.
    Settled,
    /// Not yet: this is what the condition is to say.
    Waiting(ConditionChange),
    /// The Node is to become this.
    Register {
        /// The Node as it is to be written.
        node: Box<Node>,
        /// The kubelet joined without the unregistered taint, so pods may have been bound before the labels were there.
        unregistered_taint_missing: bool,
    },
}

/// Decides about the claim's registration.
pub fn next(claim: &NodeClaim, nodes: NodeMatch<'_>) -> Registration {
    if !is_unknown(claim, condition::REGISTERED) {
        return Registration::Settled;
    }
    match nodes {
        NodeMatch::None => Registration::Waiting(ConditionChange::unknown(
            condition::REGISTERED,
            "NodeNotFound",
            "Node not registered with cluster",
        )),
        NodeMatch::Many => Registration::Waiting(ConditionChange::no(
            condition::REGISTERED,
            "MultipleNodesFound",
            "Invariant violated, matched multiple nodes",
        )),
        NodeMatch::One(node) => Registration::Register {
            unregistered_taint_missing: !has_label(node, labels::REGISTERED_LABEL)
                && !taints_of(node).iter().any(is_unregistered),
            node: Box::new(registered(claim, node)),
        },
    }
}

/// The Node with everything that registration gives and takes.
fn registered(claim: &NodeClaim, node: &Node) -> Node {
    let mut node = synced(claim, node);
    let spec = node.spec.get_or_insert_default();
    if let Some(taints) = &mut spec.taints {
        taints.retain(|taint| !is_unregistered(taint));
    }
    node.metadata.labels.get_or_insert_default().insert(labels::REGISTERED_LABEL.to_owned(), "true".to_owned());
    node
}

/// The Node with the claim's labels, annotations and taints, Karpenter's finalizer and the claim as an owner.
fn synced(claim: &NodeClaim, node: &Node) -> Node {
    let mut node = node.clone();
    let finalizers = node.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|one| one == labels::TERMINATION_FINALIZER) {
        finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
    }
    let owners = node.metadata.owner_references.get_or_insert_default();
    let owner = owner_reference(claim);
    if !owners.iter().any(|one| one.uid == owner.uid) {
        owners.push(owner);
    }
    if node_label(&node, labels::DO_NOT_SYNC_TAINTS_LABEL) != Some("true") {
        let wanted = claim.spec.taints.iter().chain(&claim.spec.startup_taints);
        add_taints(node.spec.get_or_insert_default().taints.get_or_insert_default(), wanted);
    }
    let own = &claim.metadata;
    node.metadata.annotations.get_or_insert_default().extend(own.annotations.clone().unwrap_or_default());
    node.metadata.labels.get_or_insert_default().extend(own.labels.clone().unwrap_or_default());
    node
}

fn add_taints<'a>(taints: &mut Vec<Taint>, wanted: impl Iterator<Item = &'a Taint>) {
    for taint in wanted {
        if !taints.iter().any(|present| taints::same(present, taint)) {
            taints.push(taint.clone());
        }
    }
}

fn owner_reference(claim: &NodeClaim) -> OwnerReference {
    OwnerReference {
        api_version: "karpenter.sh/v1".to_owned(),
        kind: "NodeClaim".to_owned(),
        name: claim.metadata.name.clone().unwrap_or_default(),
        uid: claim.metadata.uid.clone().unwrap_or_default(),
        block_owner_deletion: Some(true),
        controller: None,
    }
}

fn is_unregistered(taint: &Taint) -> bool {
    taints::same(taint, &taints::unregistered())
}

fn has_label(node: &Node, key: &str) -> bool {
    node_label(node, key).is_some()
}

fn node_label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::ConditionValue;
    use crate::lifecycle::fixtures::{claim, node, taint};
    use std::sync::Arc;

    fn register(claim: &NodeClaim, node: Node) -> (Node, bool) {
        match next(claim, NodeMatch::of(&[Arc::new(node)])) {
            Registration::Register { node, unregistered_taint_missing } => (*node, unregistered_taint_missing),
            other => panic!("expected a registration, got {other:?}"),
        }
    }

    fn keys(node: &Node) -> Vec<String> {
        taints_of(node).iter().map(taints::text).collect()
    }

    #[test]
    fn without_a_node_the_condition_stays_unknown_and_says_so() {
        let Registration::Waiting(change) = next(&claim(), NodeMatch::None) else { panic!("a node was found") };
        let expected = ConditionChange::unknown("Registered", "NodeNotFound", "Node not registered with cluster");
        assert_eq!(change, expected);
    }

    #[test]
    fn two_nodes_with_one_provider_id_make_it_false() {
        let nodes = [Arc::new(node()), Arc::new(node())];
        let Registration::Waiting(change) = next(&claim(), NodeMatch::of(&nodes)) else { panic!("one was chosen") };
        let ConditionValue::False { reason, message } = change.to else { panic!("not False") };
        assert_eq!((&*reason, &*message), ("MultipleNodesFound", "Invariant violated, matched multiple nodes"));
    }

    #[test]
    fn a_settled_claim_is_left_alone() {
        for status in ["True", "False"] {
            let settled = next(&claim().with_condition("Registered", status, 0), NodeMatch::None);
            assert!(matches!(settled, Registration::Settled), "{status}");
        }
    }

    #[test]
    fn the_node_gets_labels_annotations_taints_finalizer_and_owner_and_loses_the_unregistered_taint() {
        let mut claim = claim();
        claim.metadata.labels = Some([("team".into(), "a".into()), ("zone".into(), "claim".into())].into());
        claim.metadata.annotations = Some([("note".into(), "claim".into())].into());
        claim.spec.taints = vec![taint("dedicated", "NoSchedule")];
        claim.spec.startup_taints = vec![taint("cilium", "NoExecute")];
        let mut joined = node();
        joined.metadata.labels = Some([("zone".into(), "node".into()), ("own".into(), "node".into())].into());
        joined.spec.get_or_insert_default().taints = Some(vec![
            taint("karpenter.sh/unregistered", "NoExecute"),
            taint("node.kubernetes.io/not-ready", "NoSchedule"),
            taint("dedicated", "NoSchedule"),
        ]);

        let (node, missing) = register(&claim, joined);

        assert!(!missing);
        assert_eq!(
            keys(&node),
            ["node.kubernetes.io/not-ready:NoSchedule", "dedicated:NoSchedule", "cilium:NoExecute"]
        );
        let labels = node.metadata.labels.unwrap();
        assert_eq!(labels["zone"], "claim");
        assert_eq!(labels["own"], "node");
        assert_eq!(labels["team"], "a");
        assert_eq!(labels["karpenter.sh/registered"], "true");
        assert_eq!(node.metadata.annotations.unwrap()["note"], "claim");
        assert_eq!(node.metadata.finalizers.unwrap(), ["karpenter.sh/termination"]);
        let owners = node.metadata.owner_references.unwrap();
        assert_eq!(owners.len(), 1);
        assert_eq!(
            (&*owners[0].kind, &*owners[0].name, owners[0].block_owner_deletion),
            ("NodeClaim", "claim-1", Some(true))
        );
    }

    #[test]
    fn a_node_that_asks_for_it_keeps_its_taints_to_itself() {
        let mut claim = claim();
        claim.spec.taints = vec![taint("dedicated", "NoSchedule")];
        let mut joined = node();
        joined.metadata.labels = Some([("karpenter.sh/do-not-sync-taints".into(), "true".into())].into());
        joined.spec.get_or_insert_default().taints = Some(vec![taint("karpenter.sh/unregistered", "NoExecute")]);
        let (node, _) = register(&claim, joined);
        assert!(keys(&node).is_empty(), "the unregistered taint goes nevertheless");
    }

    #[test]
    fn a_missing_unregistered_taint_is_noticed_once() {
        let (node, missing) = register(&claim(), node());
        assert!(missing);
        let (_, missing_again) = register(&claim(), node);
        assert!(!missing_again, "the label shows that it had been there");
    }

    #[test]
    fn registering_twice_changes_nothing_more() {
        let (once, _) = register(&claim(), node());
        let (twice, _) = register(&claim(), once.clone());
        assert_eq!(once, twice);
    }
}
