//! Status conditions and the rules by which they change (core spec §1.7).
//!
//! Timeouts are measured from `lastTransitionTime`, so these rules decide behaviour: a condition that is missing when an
//! object is bound starts at the object's creation, one whose status stays keeps its time, and the root condition `Ready`
//! follows from the others. Nothing here reads a clock: `now` is passed in.

use crate::{Ec2NodeClass, NodeClaim, NodePool};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Root of every set: the object can be used.
pub const READY: &str = "Ready";

/// NodeClaim: the instance has been launched.
pub const LAUNCHED: &str = "Launched";
/// NodeClaim: its Node has joined.
pub const REGISTERED: &str = "Registered";
/// NodeClaim: its Node was ready for pods once.
pub const INITIALIZED: &str = "Initialized";
/// NodeClaim: no pod has come or gone for as long as `consolidateAfter` asks.
pub const CONSOLIDATABLE: &str = "Consolidatable";
/// NodeClaim: the instance no longer matches its pool or class.
pub const DRIFTED: &str = "Drifted";
/// NodeClaim: the Node has what the NodeClaim promised.
pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
/// NodeClaim: its pods have left.
pub const DRAINED: &str = "Drained";
/// NodeClaim: its volumes have been detached.
pub const VOLUMES_DETACHED: &str = "VolumesDetached";
/// NodeClaim: the cloud has been told to terminate the instance.
pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
/// NodeClaim: why it is being disrupted.
pub const DISRUPTION_REASON: &str = "DisruptionReason";

/// NodePool: its fields make sense beyond what the schema can tell.
pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
/// NodePool: its class is ready.
pub const NODE_CLASS_READY: &str = "NodeClassReady";
/// NodePool: nodes launched from it do join.
pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";

/// EC2NodeClass: images were found.
pub const AMIS_READY: &str = "AMIsReady";
/// EC2NodeClass: subnets were found.
pub const SUBNETS_READY: &str = "SubnetsReady";
/// EC2NodeClass: security groups were found.
pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
/// EC2NodeClass: there is an instance profile.
pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
/// EC2NodeClass: the placement group was found, or none is asked for.
pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
/// EC2NodeClass: capacity reservations were looked up.
pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";

const AWAITING_RECONCILIATION: &str = "AwaitingReconciliation";
const AWAITING_RECONCILIATION_MESSAGE: &str = "object is awaiting reconciliation";
const UNHEALTHY_DEPENDENTS: &str = "UnhealthyDependents";
const RECONCILING_DEPENDENTS: &str = "ReconcilingDependents";

/// One aspect of an object's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which aspect.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one word for programs.
    #[serde(default)]
    pub reason: String,
    /// Why, in a sentence for people.
    #[serde(default)]
    pub message: String,
    /// When `status` last became another; whole seconds on the wire.
    #[serde(with = "crate::time")]
    pub last_transition_time: Timestamp,
    /// The object's generation this was found out for; 0 when unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// Not known yet.
    Unknown,
}

impl ConditionStatus {
    /// The text in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Condition {
    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }

    /// Whether it is known not to hold.
    pub fn is_false(&self) -> bool {
        self.status == ConditionStatus::False
    }

    /// Whether nobody knows yet.
    pub fn is_unknown(&self) -> bool {
        self.status == ConditionStatus::Unknown
    }
}

/// Which conditions make up the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionSet {
    /// The condition that follows from the others.
    pub root: &'static str,
    /// Those it follows from; they always exist.
    pub dependents: &'static [&'static str],
}

/// Conditions of a NodeClaim.
pub const NODE_CLAIM: ConditionSet = ConditionSet { root: READY, dependents: &[LAUNCHED, REGISTERED, INITIALIZED] };
/// Conditions of a NodePool.
pub const NODE_POOL: ConditionSet = ConditionSet { root: READY, dependents: &[VALIDATION_SUCCEEDED, NODE_CLASS_READY] };
/// Conditions of an EC2NodeClass with the gate ReservedCapacity on, which is the default.
pub const EC2_NODE_CLASS: ConditionSet = ConditionSet {
    root: READY,
    dependents: &[
        AMIS_READY,
        SUBNETS_READY,
        SECURITY_GROUPS_READY,
        INSTANCE_PROFILE_READY,
        VALIDATION_SUCCEEDED,
        PLACEMENT_GROUP_READY,
        CAPACITY_RESERVATIONS_READY,
    ],
};
/// Conditions of an EC2NodeClass with the gate ReservedCapacity off.
pub const EC2_NODE_CLASS_WITHOUT_RESERVATIONS: ConditionSet = ConditionSet {
    root: READY,
    dependents: &[
        AMIS_READY,
        SUBNETS_READY,
        SECURITY_GROUPS_READY,
        INSTANCE_PROFILE_READY,
        VALIDATION_SUCCEEDED,
        PLACEMENT_GROUP_READY,
    ],
};

/// An object with conditions.
pub trait HasConditions {
    /// Which conditions make up its root.
    const SET: ConditionSet;

    /// Its metadata and its conditions, with an empty status made if there is none.
    fn metadata_and_conditions(&mut self) -> (&ObjectMeta, &mut Vec<Condition>);

    /// Its conditions as they are.
    fn conditions(&self) -> &[Condition];

    /// One of its conditions. `None`, it was never set, is not the same as `Unknown`.
    fn condition(&self, type_: &str) -> Option<&Condition> {
        get(self.conditions(), type_)
    }

    /// Whether every one of these holds, for whatever generation.
    fn is_true(&self, types: &[&str]) -> bool {
        is_true(self.conditions(), types)
    }

    /// Binds its conditions for changes at `now`; those its root depends on are made if they are missing.
    fn bind(&mut self, now: Timestamp) -> BoundConditions<'_> {
        self.bind_to(Self::SET, now)
    }

    /// The same with another set, as a feature gate may ask.
    fn bind_to(&mut self, set: ConditionSet, now: Timestamp) -> BoundConditions<'_> {
        let (metadata, conditions) = self.metadata_and_conditions();
        BoundConditions::new(set, ObjectFacts::new(metadata, now), conditions, now)
    }
}

macro_rules! has_conditions {
    ($($kind:ty => $set:expr),+ $(,)?) => {$(
        impl HasConditions for $kind {
            const SET: ConditionSet = $set;

            fn metadata_and_conditions(&mut self) -> (&ObjectMeta, &mut Vec<Condition>) {
                (&self.metadata, &mut self.status.get_or_insert_default().conditions)
            }

            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |status| &status.conditions)
            }
        }
    )+};
}

has_conditions!(NodeClaim => NODE_CLAIM, NodePool => NODE_POOL, Ec2NodeClass => EC2_NODE_CLASS);

/// One of these conditions.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether every one of these types is there and holds, for whatever generation.
pub fn is_true(conditions: &[Condition], types: &[&str]) -> bool {
    types.iter().all(|type_| get(conditions, type_).is_some_and(Condition::is_true))
}

/// What the rules need to know about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
}

impl ObjectFacts {
    /// Reads them; an object that does not exist yet is created now.
    pub fn new(metadata: &ObjectMeta, now: Timestamp) -> Self {
        Self {
            generation: metadata.generation.unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map_or(now, |time| time.0),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// An object's conditions at an instant, ready to be changed. Every setter says whether anything changed.
#[derive(Debug)]
pub struct BoundConditions<'a> {
    set: ConditionSet,
    object: ObjectFacts,
    conditions: &'a mut Vec<Condition>,
    now: Timestamp,
}

/// A condition that its set depends on cannot be cleared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("condition {0} cannot be cleared, the root condition depends on it")]
pub struct DependentCondition(pub String);

impl<'a> BoundConditions<'a> {
    /// Binds `conditions`: the root and then every dependent that is missing becomes `Unknown`, awaiting reconciliation.
    pub fn new(set: ConditionSet, object: ObjectFacts, conditions: &'a mut Vec<Condition>, now: Timestamp) -> Self {
        let mut bound = Self { set, object, conditions, now };
        for type_ in std::iter::once(&set.root).chain(set.dependents) {
            if bound.get(type_).is_none() {
                bound.set_unknown(type_);
            }
        }
        bound
    }

    /// One of the conditions. `None` is not the same as `Unknown`.
    pub fn get(&self, type_: &str) -> Option<&Condition> {
        get(self.conditions, type_)
    }

    /// The root condition.
    pub fn root(&self) -> &Condition {
        self.get(self.set.root).expect("binding made the root condition and it is never removed")
    }

    /// Whether every one of these holds, for whatever generation.
    pub fn is_true(&self, types: &[&str]) -> bool {
        is_true(self.conditions, types)
    }

    /// It holds; the reason is the type itself.
    pub fn set_true(&mut self, type_: &str) -> bool {
        self.set_true_with_reason(type_, type_, "")
    }

    /// It holds, for a reason worth telling.
    pub fn set_true_with_reason(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        self.set(type_, ConditionStatus::True, reason, message)
    }

    /// It does not hold.
    pub fn set_false(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        self.set(type_, ConditionStatus::False, reason, message)
    }

    /// Nobody has looked yet.
    pub fn set_unknown(&mut self, type_: &str) -> bool {
        self.set_unknown_with_reason(type_, AWAITING_RECONCILIATION, AWAITING_RECONCILIATION_MESSAGE)
    }

    /// It is not known, for a reason worth telling.
    pub fn set_unknown_with_reason(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        self.set(type_, ConditionStatus::Unknown, reason, message)
    }

    /// Removes a condition that the root does not depend on. What is left is ordered by type. The root cannot be removed
    /// either.
    pub fn clear(&mut self, type_: &str) -> Result<bool, DependentCondition> {
        if type_ == self.set.root || self.set.dependents.contains(&type_) {
            return Err(DependentCondition(type_.to_owned()));
        }
        if self.get(type_).is_none() {
            return Ok(false);
        }
        self.conditions.retain(|condition| condition.type_ != type_);
        self.conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
        Ok(true)
    }

    fn set(&mut self, type_: &str, status: ConditionStatus, reason: &str, message: &str) -> bool {
        let stored = self.get(type_);
        let condition = Condition {
            type_: type_.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: match stored {
                Some(stored) if stored.status == status => stored.last_transition_time,
                Some(_) => self.now,
                None if type_ == self.set.root || self.set.dependents.contains(&type_) => self.object.created,
                None => self.now,
            },
            observed_generation: self.object.generation,
        };
        if stored == Some(&condition) {
            return false;
        }
        self.conditions.retain(|other| other.type_ != type_);
        if self.object.deleting {
            // Deletion raises the generation; that alone must not make a condition stale and the object unready.
            for other in self.conditions.iter_mut() {
                other.observed_generation = self.object.generation;
            }
        }
        self.conditions.push(condition);
        let root = self.set.root;
        self.conditions.sort_by_key(|condition| (condition.type_ == root, condition.last_transition_time));
        if type_ != root {
            self.recompute_root();
        }
        true
    }

    fn recompute_root(&mut self) {
        let current = self.object.generation;
        let mut unhealthy: Vec<&Condition> = self
            .conditions
            .iter()
            .filter(|condition| self.set.dependents.contains(&condition.type_.as_str()))
            .filter(|condition| !condition.is_true() || condition.observed_generation != current)
            .collect();
        // What changed last comes first, also of what changed in one look; what was never set stays in its order.
        let never_set = unhealthy.iter().filter(|condition| condition.last_transition_time == self.object.created);
        let never_set: Vec<&Condition> = never_set.copied().collect();
        unhealthy.retain(|condition| condition.last_transition_time != self.object.created);
        unhealthy.reverse();
        unhealthy.sort_by_key(|condition| std::cmp::Reverse(condition.last_transition_time));
        unhealthy.extend(never_set);
        let is_false =
            unhealthy.iter().any(|condition| condition.is_false() && condition.observed_generation == current);
        let message = unhealthy
            .iter()
            .map(|condition| format!("{}={}", condition.type_, condition.status))
            .collect::<Vec<_>>()
            .join(", ");
        match (unhealthy.is_empty(), is_false) {
            (true, _) => self.set_true(self.set.root),
            (false, true) => self.set_false(self.set.root, UNHEALTHY_DEPENDENTS, &message),
            (false, false) => self.set_unknown_with_reason(self.set.root, RECONCILING_DEPENDENTS, &message),
        };
    }
}
