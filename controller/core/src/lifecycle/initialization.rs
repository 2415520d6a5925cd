//! Initialization (core spec §5.5): the Node is ready, its start-up taints are gone and the resources the pods were
//! promised are there. Once reached it is never taken back.

use super::{ConditionChange, NodeMatch, condition, is_ready, is_true, is_unknown, taints_of};
use crate::quantity::Quantity;
use crate::taints;
use controller_api::NodeClaim;
use k8s_openapi::api::core::v1::{Node, Taint};
use std::fmt;
use std::sync::Arc;

/// The next step of initialization.
#[derive(Clone, Debug)]
pub enum Initialization {
    /// Already decided, or not its turn before registration.
    Settled,
    /// Not yet, and why.
    Waiting(NotInitialized),
    /// The Node is to carry the label `karpenter.sh/initialized=true`.
    Initialize(Arc<Node>),
}

/// What an uninitialized node lacks.
#[derive(Clone, Debug, PartialEq)]
pub enum NotInitialized {
    /// There is no single Node with the claim's provider id.
    NodeNotFound,
    /// The kubelet does not report Ready.
    NodeNotReady,
    /// A start-up taint is for someone else to remove, who has not.
    StartupTaint(Taint),
    /// Kubernetes still keeps pods away.
    EphemeralTaint(Taint),
    /// A requested resource is absent from the Node's allocatable; a device plugin has to register it.
    Resource(String),
}

impl NotInitialized {
    /// The condition's reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NodeNotFound => "NodeNotFound",
            Self::NodeNotReady => "NodeNotReady",
            Self::StartupTaint(_) => "StartupTaintsExist",
            Self::EphemeralTaint(_) => "KnownEphemeralTaintsExist",
            Self::Resource(_) => "ResourceNotRegistered",
        }
    }

    /// What the condition is to say.
    pub fn condition(&self) -> ConditionChange {
        ConditionChange::unknown(condition::INITIALIZED, self.reason(), self.to_string())
    }
}

impl fmt::Display for NotInitialized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeNotFound => f.write_str("Node not registered with cluster"),
            Self::NodeNotReady => f.write_str("Node status is NotReady"),
            Self::StartupTaint(taint) => write!(f, "StartupTaint \"{}\" still exists", taints::text(taint)),
            Self::EphemeralTaint(taint) => write!(f, "KnownEphemeralTaint \"{}\" still exists", taints::text(taint)),
            Self::Resource(name) => write!(f, "Resource \"{name}\" was requested but not registered"),
        }
    }
}

/// Decides about the claim's initialization.
pub fn next(claim: &NodeClaim, nodes: NodeMatch<'_>) -> Initialization {
    if !is_unknown(claim, condition::INITIALIZED) || !is_true(claim, condition::REGISTERED) {
        return Initialization::Settled;
    }
    let NodeMatch::One(node) = nodes else {
        return Initialization::Waiting(NotInitialized::NodeNotFound);
    };
    match lacking(claim, node) {
        Some(lack) => Initialization::Waiting(lack),
        None => Initialization::Initialize(node.clone()),
    }
}

fn lacking(claim: &NodeClaim, node: &Node) -> Option<NotInitialized> {
    if !is_ready(node) {
        return Some(NotInitialized::NodeNotReady);
    }
    let is_startup = |taint: &&Taint| claim.spec.startup_taints.iter().any(|startup| taints::same(startup, taint));
    if let Some(taint) = taints_of(node).iter().find(is_startup) {
        return Some(NotInitialized::StartupTaint(taint.clone()));
    }
    if let Some(taint) = taints_of(node).iter().find(|taint| taints::is_ephemeral(taint)) {
        return Some(NotInitialized::EphemeralTaint(taint.clone()));
    }
    unregistered_resource(claim, node).map(NotInitialized::Resource)
}

fn unregistered_resource(claim: &NodeClaim, node: &Node) -> Option<String> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let is_positive = |quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| {
        Quantity::from_api(quantity).is_ok_and(|quantity| !quantity.is_zero())
    };
    let requests = &claim.spec.resources.requests;
    let mut requested = requests.iter().filter(|(_, quantity)| is_positive(quantity));
    requested
        .find(|(name, _)| !allocatable.and_then(|all| all.get(*name)).is_some_and(is_positive))
        .map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::fixtures::{claim, node, quantities, ready, taint};

    fn registered() -> crate::lifecycle::fixtures::Claim {
        let mut claim = claim().with_condition("Registered", "True", 0);
        claim.spec.startup_taints = vec![taint("cilium", "NoExecute")];
        claim.spec.resources.requests = quantities(&[("cpu", "500m"), ("nvidia.com/gpu", "1"), ("unused", "0")]);
        claim
    }

    fn able() -> Node {
        let mut node = ready(node());
        node.status.get_or_insert_default().allocatable = Some(quantities(&[("cpu", "4"), ("nvidia.com/gpu", "1")]));
        node
    }

    fn tainted(key: &str, effect: &str) -> Node {
        let mut node = able();
        node.spec.get_or_insert_default().taints = Some(vec![taint(key, effect)]);
        node
    }

    #[test]
    fn each_row_of_the_table_waits_with_its_reason_and_message() {
        let without_gpu = {
            let mut node = able();
            node.status.get_or_insert_default().allocatable =
                Some(quantities(&[("cpu", "4"), ("nvidia.com/gpu", "0")]));
            node
        };
        let cases = [
            (None, "NodeNotFound", "Node not registered with cluster"),
            (Some(node()), "NodeNotReady", "Node status is NotReady"),
            (
                Some(tainted("cilium", "NoExecute")),
                "StartupTaintsExist",
                "StartupTaint \"cilium:NoExecute\" still exists",
            ),
            (
                Some(tainted("node.kubernetes.io/not-ready", "NoSchedule")),
                "KnownEphemeralTaintsExist",
                "KnownEphemeralTaint \"node.kubernetes.io/not-ready:NoSchedule\" still exists",
            ),
            (
                Some(tainted("readiness.k8s.io/network", "NoSchedule")),
                "KnownEphemeralTaintsExist",
                "KnownEphemeralTaint \"readiness.k8s.io/network:NoSchedule\" still exists",
            ),
            (
                Some(without_gpu),
                "ResourceNotRegistered",
                "Resource \"nvidia.com/gpu\" was requested but not registered",
            ),
        ];
        for (node, reason, message) in cases {
            let nodes: Vec<_> = node.into_iter().map(Arc::new).collect();
            let Initialization::Waiting(lack) = next(&registered(), NodeMatch::of(&nodes)) else {
                panic!("{reason}: not waiting")
            };
            assert_eq!(lack.condition(), ConditionChange::unknown("Initialized", reason, message));
        }
    }

    #[test]
    fn a_node_with_everything_is_initialized() {
        let other_effect = tainted("cilium", "NoSchedule");
        let unreachable = tainted("node.kubernetes.io/unreachable", "NoExecute");
        for node in [able(), other_effect, unreachable] {
            let nodes = [Arc::new(node)];
            assert!(matches!(next(&registered(), NodeMatch::of(&nodes)), Initialization::Initialize(_)));
        }
    }

    #[test]
    fn an_initialized_claim_stays_so_and_an_unregistered_one_is_not_looked_at() {
        let initialized = registered().with_condition("Initialized", "True", 0);
        assert!(matches!(next(&initialized, NodeMatch::None), Initialization::Settled));
        assert!(matches!(next(&claim(), NodeMatch::None), Initialization::Settled));
    }
}
