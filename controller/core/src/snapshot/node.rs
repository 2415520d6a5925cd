//! A Node and its NodeClaim as one (core spec §4.4): which labels, taints and capacity count while the node is coming up.

use crate::quantity::Quantity;
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use crate::resources::{NODES, Resources};
use crate::taints;
use controller_api::{HasConditions, NodeClaim, conditions, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A Node, a NodeClaim, or both joined by their provider id. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StateNode {
    /// The Node, once there is one.
    pub node: Option<Arc<Node>>,
    /// The NodeClaim; without one the node is not managed by this controller.
    pub claim: Option<Arc<NodeClaim>>,
    /// Until when the node is reserved for pods that were planned for it.
    pub nominated_until: Option<Timestamp>,
    /// Whether a decision to take it away has been made.
    pub marked_for_deletion: bool,
    parsed: Arc<Parsed>,
}

/// What the two objects amount to.
#[derive(Debug)]
struct Parsed {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    requirements: Arc<Requirements>,
    taints: Vec<Taint>,
    capacity: Resources,
    allocatable: Resources,
}

impl StateNode {
    /// Joins a Node and its NodeClaim. At least one of them should be there.
    pub fn new(node: Option<Arc<Node>>, claim: Option<Arc<NodeClaim>>) -> Self {
        let parsed = Arc::new(Parsed::new(node.as_deref(), claim.as_deref()));
        Self { node, claim, nominated_until: None, marked_for_deletion: false, parsed }
    }

    /// The same, reserved for planned pods until then.
    #[must_use]
    pub fn nominated(mut self, until: Option<Timestamp>) -> Self {
        self.nominated_until = until;
        self
    }

    /// The same, marked for deletion or not.
    #[must_use]
    pub fn marked(mut self, marked: bool) -> Self {
        self.marked_for_deletion = marked;
        self
    }

    /// The NodeClaim's name until the node has registered, then the Node's.
    pub fn name(&self) -> &str {
        &self.parsed.name
    }

    /// Name of the Node, which is what pods are bound to.
    pub fn node_name(&self) -> Option<&str> {
        self.node.as_ref()?.metadata.name.as_deref()
    }

    /// Name of the NodeClaim.
    pub fn claim_name(&self) -> Option<&str> {
        self.claim.as_ref()?.metadata.name.as_deref()
    }

    /// The provider's identity of the instance.
    pub fn provider_id(&self) -> Option<&str> {
        let node = self.node.as_ref().and_then(|node| node.spec.as_ref()?.provider_id.as_deref());
        let claim = self.claim.as_ref().and_then(|claim| Some(claim.status.as_ref()?.provider_id.as_str()));
        node.or(claim).filter(|id| !id.is_empty())
    }

    /// The NodePool it belongs to.
    pub fn pool(&self) -> Option<&str> {
        self.labels().get(labels::NODE_POOL_LABEL).map(String::as_str)
    }

    /// Labels: the Node's if it has registered or has no NodeClaim, else the NodeClaim's.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.parsed.labels
    }

    /// The labels as requirements, the host name among them.
    pub fn requirements(&self) -> &Arc<Requirements> {
        &self.parsed.requirements
    }

    /// Annotations, from the same object as the labels.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        &self.parsed.annotations
    }

    /// The hostname label, else the name.
    pub fn hostname(&self) -> &str {
        self.labels().get(labels::HOSTNAME_LABEL).map_or(self.name(), String::as_str)
    }

    /// Taints that count for planning: while the node starts, those that pass by themselves do not.
    pub fn taints(&self) -> &[Taint] {
        &self.parsed.taints
    }

    /// What the machine has, itself as one of `nodes` included.
    pub fn capacity(&self) -> &Resources {
        &self.parsed.capacity
    }

    /// What of it is for pods.
    pub fn allocatable(&self) -> &Resources {
        &self.parsed.allocatable
    }

    /// Whether it has a NodeClaim.
    pub fn is_managed(&self) -> bool {
        self.claim.is_some()
    }

    /// Whether the Node has been recognised; always so without a NodeClaim.
    pub fn is_registered(&self) -> bool {
        is_registered(self.node.as_deref(), self.claim.as_deref())
    }

    /// Whether the node has been ready for pods once; always so without a NodeClaim.
    pub fn is_initialized(&self) -> bool {
        is_initialized(self.node.as_deref(), self.claim.as_deref())
    }

    /// Whether it is on its way out in the API.
    pub fn is_deleted(&self) -> bool {
        match &self.claim {
            Some(claim) => {
                claim.metadata.deletion_timestamp.is_some()
                    || self.has_claim_condition(conditions::INSTANCE_TERMINATING)
            }
            None => self.node.as_ref().is_some_and(|node| node.metadata.deletion_timestamp.is_some()),
        }
    }

    /// Whether it goes away, by decision or in the API.
    pub fn is_marked_for_deletion(&self) -> bool {
        self.marked_for_deletion || self.is_deleted()
    }

    /// Whether it is reserved for planned pods.
    pub fn is_nominated(&self, now: Timestamp) -> bool {
        self.nominated_until.is_some_and(|until| until > now)
    }

    /// Whether the NodeClaim's condition of that type is True.
    pub fn has_claim_condition(&self, kind: &str) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.is_true(&[kind]))
    }

    /// Whether the Node's `Ready` condition is True.
    pub fn is_ready(&self) -> bool {
        let conditions = self.node.iter().filter_map(|node| node.status.as_ref()?.conditions.as_ref()).flatten();
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }
}

fn has_label(node: Option<&Node>, key: &str) -> bool {
    node.and_then(|node| node.metadata.labels.as_ref()?.get(key)).is_some_and(|value| value == "true")
}

fn is_registered(node: Option<&Node>, claim: Option<&NodeClaim>) -> bool {
    claim.is_none() || has_label(node, labels::REGISTERED_LABEL)
}

fn is_initialized(node: Option<&Node>, claim: Option<&NodeClaim>) -> bool {
    claim.is_none() || has_label(node, labels::INITIALIZED_LABEL)
}

impl Parsed {
    fn new(node: Option<&Node>, claim: Option<&NodeClaim>) -> Self {
        let registered = is_registered(node, claim);
        let node_metadata = node.map(|node| &node.metadata);
        let claim_metadata = claim.map(|claim| &claim.metadata);
        let metadata = if registered { node_metadata.or(claim_metadata) } else { claim_metadata };
        let named_by = if node.is_none() || !registered { claim_metadata } else { node_metadata };
        let status = node.and_then(|node| node.status.as_ref());
        let claim_status = claim.and_then(|claim| claim.status.as_ref());
        // Until the node is initialized its own figures may be missing or zero: extended resources register late.
        let expected = claim_status.filter(|_| !is_initialized(node, claim));
        let capacity = resources(status.and_then(|s| s.capacity.as_ref()), expected.map(|s| &s.capacity));
        let name = named_by.or(node_metadata).and_then(|m| m.name.clone()).unwrap_or_default();
        let labels = metadata.and_then(|m| m.labels.clone()).unwrap_or_default();
        let hostname = labels.get(labels::HOSTNAME_LABEL).unwrap_or(&name);
        Self {
            requirements: Arc::new(
                Requirements::from_labels(&labels).with(Requirement::equals(labels::HOSTNAME_LABEL, hostname.as_str())),
            ),
            name,
            labels,
            annotations: metadata.and_then(|m| m.annotations.clone()).unwrap_or_default(),
            taints: taints_that_count(node, claim),
            capacity: capacity.with(NODES, Quantity::units(1)),
            allocatable: resources(status.and_then(|s| s.allocatable.as_ref()), expected.map(|s| &s.allocatable)),
        }
    }
}

fn taints_that_count(node: Option<&Node>, claim: Option<&NodeClaim>) -> Vec<Taint> {
    let taints: &[Taint] = match (node, claim) {
        (Some(node), _) if is_registered(Some(node), claim) => {
            node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
        }
        (_, Some(claim)) => &claim.spec.taints,
        _ => &[],
    };
    let starting = if is_initialized(node, claim) { None } else { claim };
    let passes = |taint: &Taint| {
        starting.is_some_and(|claim| {
            taints::is_ephemeral(taint) || claim.spec.startup_taints.iter().any(|startup| taints::same(startup, taint))
        })
    };
    taints.iter().filter(|taint| !passes(taint)).cloned().collect()
}

/// The reported quantities, those that are missing or zero replaced by what is expected. A quantity that cannot be read
/// counts as missing, so that nothing is planned on it.
fn resources(
    reported: Option<&BTreeMap<String, ApiQuantity>>,
    expected: Option<&BTreeMap<String, ApiQuantity>>,
) -> Resources {
    let read = |list: Option<&BTreeMap<String, ApiQuantity>>| -> Resources {
        let entries = list.into_iter().flatten();
        entries.filter_map(|(name, quantity)| Some((name.clone(), Quantity::from_api(quantity).ok()?))).collect()
    };
    let mut resources = read(reported);
    for (name, quantity) in read(expected).iter() {
        if resources.get(name).is_zero() {
            resources.set(name, quantity);
        }
    }
    resources
}

#[cfg(test)]
mod tests;
