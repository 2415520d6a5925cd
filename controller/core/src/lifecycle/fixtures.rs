//! Claims and nodes for the tests of this folder. Time is counted in seconds from the claim's creation.

use controller_api::{Condition, ConditionStatus, NodeClaim};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// A claim under construction; reads as the claim itself.
#[derive(Clone, Debug)]
pub(crate) struct Claim(NodeClaim);

pub(crate) fn at(second: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second)
}

/// A claim named `claim-1`, created at second 0.
pub(crate) fn claim() -> Claim {
    let mut claim = NodeClaim::default();
    claim.metadata.name = Some("claim-1".into());
    claim.metadata.uid = Some("uid-1".into());
    claim.metadata.generation = Some(1);
    claim.metadata.creation_timestamp = Some(Time(at(0)));
    Claim(claim)
}

impl Claim {
    /// The same with one more condition.
    pub(crate) fn with_condition(mut self, type_: &str, status: &str, since: i64) -> Self {
        let status = match status {
            "True" => ConditionStatus::True,
            "False" => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        };
        let condition = Condition {
            type_: type_.into(),
            status,
            reason: String::new(),
            message: String::new(),
            last_transition_time: at(since),
            observed_generation: 1,
        };
        super::status_mut(&mut self.0).conditions.push(condition);
        self
    }
}

impl Deref for Claim {
    type Target = NodeClaim;

    fn deref(&self) -> &NodeClaim {
        &self.0
    }
}

impl DerefMut for Claim {
    fn deref_mut(&mut self) -> &mut NodeClaim {
        &mut self.0
    }
}

impl From<Claim> for NodeClaim {
    fn from(claim: Claim) -> Self {
        claim.0
    }
}

/// A node that reports nothing yet.
pub(crate) fn node() -> Node {
    let mut node = Node::default();
    node.metadata.name = Some("node-1".into());
    node
}

pub(crate) fn ready(mut node: Node) -> Node {
    let condition = NodeCondition { type_: "Ready".into(), status: "True".into(), ..Default::default() };
    node.status.get_or_insert_default().conditions = Some(vec![condition]);
    node
}

pub(crate) fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.into(), effect: effect.into(), ..Default::default() }
}

pub(crate) fn quantities(entries: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    entries.iter().map(|(name, quantity)| ((*name).to_owned(), Quantity((*quantity).to_owned()))).collect()
}
