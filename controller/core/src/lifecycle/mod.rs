//! The life of a NodeClaim as pure steps (core spec §5, §6): launched, registered, initialized, kept or found too slow,
//! consolidatable, expired, drained, gone.
//!
//! Every phase is one function of the claim, its nodes, its pods and the instant. It answers what to do next or what it
//! waits for, with the reason and message that belong on the claim's condition. Nothing here calls a cloud or writes an
//! object: `controller::reconcile` carries the steps out.

pub mod consolidatable;
pub mod detachment;
pub mod drain;
pub mod expiration;
pub mod finalization;
pub mod garbage;
pub mod initialization;
pub mod launch;
pub mod liveness;
pub mod node_pool;
pub mod pod_events;
pub mod registration;
pub mod registration_health;

pub use controller_api::conditions as condition;
use controller_api::{Condition, HasConditions, NodeClaim, NodeClaimStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use std::sync::Arc;

/// A condition as a decision wants it to be; generation and instant are added by whoever writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionChange {
    /// The condition's type.
    pub type_: &'static str,
    /// What becomes of it.
    pub to: ConditionValue,
}

/// What becomes of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionValue {
    /// `True`; the reason is the type, the message empty.
    True,
    /// `False`, for a reason.
    False {
        /// The reason, one word.
        reason: String,
        /// The message, a sentence.
        message: String,
    },
    /// `Unknown`, for a reason.
    Unknown {
        /// The reason, one word.
        reason: String,
        /// The message, a sentence.
        message: String,
    },
    /// The condition is removed.
    Absent,
}

impl ConditionChange {
    /// The condition becomes `True`.
    pub fn yes(type_: &'static str) -> Self {
        Self { type_, to: ConditionValue::True }
    }

    /// The condition becomes `False`.
    pub fn no(type_: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_, to: ConditionValue::False { reason: reason.into(), message: message.into() } }
    }

    /// The condition becomes, or stays, `Unknown`.
    pub fn unknown(type_: &'static str, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_, to: ConditionValue::Unknown { reason: reason.into(), message: message.into() } }
    }

    /// The condition is removed.
    pub fn absent(type_: &'static str) -> Self {
        Self { type_, to: ConditionValue::Absent }
    }
}

/// The Nodes that carry a claim's provider id (core spec §5.3).
#[derive(Clone, Copy, Debug)]
pub enum NodeMatch<'a> {
    /// None carries it, or the claim has no provider id yet.
    None,
    /// The claim's node.
    One(&'a Arc<Node>),
    /// More than one, which nothing we do can explain.
    Many,
}

impl<'a> NodeMatch<'a> {
    /// Reads the answer of a look-up by provider id.
    pub fn of(nodes: &'a [Arc<Node>]) -> Self {
        match nodes {
            [] => Self::None,
            [node] => Self::One(node),
            _ => Self::Many,
        }
    }
}

/// Changes a condition of an object by the rules of core spec §1.7. Tells whether anything changed.
pub fn set_condition<K: HasConditions>(object: &mut K, change: &ConditionChange, now: Timestamp) -> bool {
    let mut conditions = object.bind(now);
    match &change.to {
        ConditionValue::True => conditions.set_true(change.type_),
        ConditionValue::False { reason, message } => conditions.set_false(change.type_, reason, message),
        ConditionValue::Unknown { reason, message } => {
            conditions.set_unknown_with_reason(change.type_, reason, message)
        }
        // A condition that `Ready` depends on cannot be removed; no decision here asks for it.
        ConditionValue::Absent => conditions.clear(change.type_).unwrap_or(false),
    }
}

/// The claim's condition of this type.
pub fn condition_of<'a>(claim: &'a NodeClaim, type_: &str) -> Option<&'a Condition> {
    claim.condition(type_)
}

/// Whether the claim's condition of this type is `True`.
pub fn is_true(claim: &NodeClaim, type_: &str) -> bool {
    condition_of(claim, type_).is_some_and(Condition::is_true)
}

/// Whether the claim's condition of this type is `Unknown` or was never written.
pub fn is_unknown(claim: &NodeClaim, type_: &str) -> bool {
    condition_of(claim, type_).is_none_or(Condition::is_unknown)
}

/// Since when the claim's condition has had its status; one never written dates from the claim's creation (§1.7).
pub fn since(claim: &NodeClaim, type_: &str) -> Option<Timestamp> {
    match condition_of(claim, type_) {
        Some(condition) => Some(condition.last_transition_time),
        None => created_at(claim),
    }
}

/// When the claim was created.
pub fn created_at(claim: &NodeClaim) -> Option<Timestamp> {
    claim.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// The claim's provider id, once it has one.
pub fn provider_id(claim: &NodeClaim) -> Option<&str> {
    claim.status.as_ref().map(|status| status.provider_id.as_str()).filter(|id| !id.is_empty())
}

/// The value of one of the claim's labels.
pub fn label<'a>(claim: &'a NodeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// The value of one of the claim's annotations.
pub fn annotation<'a>(claim: &'a NodeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether the object carries Karpenter's finalizer.
pub fn has_finalizer(finalizers: Option<&Vec<String>>) -> bool {
    finalizers.is_some_and(|all| all.iter().any(|one| one == controller_api::labels::TERMINATION_FINALIZER))
}

/// The claim's status, written to if it was absent.
pub fn status_mut(claim: &mut NodeClaim) -> &mut NodeClaimStatus {
    claim.status.get_or_insert_default()
}

/// Whether the Node's kubelet reports it ready.
pub fn is_ready(node: &Node) -> bool {
    ready_condition(node).is_some_and(|condition| condition.status == "True")
}

fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

pub(crate) fn taints_of(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// `text`, cut after 300 bytes as upstream cuts the messages it puts on conditions and events.
pub(crate) fn truncated(text: &str) -> String {
    const LIMIT: usize = 300;
    match text.len() > LIMIT {
        true => format!("{}...", &text[..text.floor_char_boundary(LIMIT)]),
        false => text.to_owned(),
    }
}

/// The first of `names`, and how many more there are.
pub fn first_few(names: &[String], shown: usize) -> String {
    let first = names[..names.len().min(shown)].join(", ");
    match names.len() {
        count if count > shown => format!("{first} and {} other(s)", count - shown),
        _ => first,
    }
}

#[cfg(test)]
mod fixtures;
