//! CloudFormation's stacks and change sets, as they are described.

use super::tags::Tags;
use crate::state::interned::Constant;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A stack, also one that was deleted, which only its id finds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stack {
    pub(crate) name: String,
    pub(crate) id: String,
    #[serde(with = "crate::state::interned")]
    pub(crate) status: Constant,
    pub(crate) reason: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) template: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) capabilities: BTreeSet<String>,
    pub(crate) tags: Tags,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Option<Timestamp>,
    pub(crate) deleted_at: Option<Timestamp>,
    /// By logical id.
    pub(crate) resources: BTreeMap<String, StackResource>,
    /// Logical ids in the order in which they were made.
    pub(crate) order: Vec<String>,
    pub(crate) outputs: Vec<Output>,
    /// The oldest first.
    pub(crate) events: Vec<StackEvent>,
    #[serde(default)]
    pub(crate) options: StackOptions,
    /// Whether DeleteStack is refused.
    #[serde(default)]
    pub(crate) termination_protection: bool,
    /// By name.
    pub(crate) change_sets: BTreeMap<String, ChangeSet>,
}

/// A resource of a stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StackResource {
    pub(crate) kind: String,
    pub(crate) physical_id: String,
    #[serde(with = "crate::state::interned")]
    pub(crate) status: Constant,
    pub(crate) reason: Option<String>,
    pub(crate) properties: Value,
    /// What `Fn::GetAtt` gives.
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) updated_at: Timestamp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Output {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) description: Option<String>,
    pub(crate) export: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StackEvent {
    pub(crate) id: String,
    pub(crate) at: Timestamp,
    pub(crate) logical_id: String,
    pub(crate) physical_id: String,
    pub(crate) kind: String,
    #[serde(with = "crate::state::interned")]
    pub(crate) status: Constant,
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) client_request_token: Option<String>,
}

/// A change that waits to be carried out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ChangeSet {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) description: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) request: StackRequest,
    pub(crate) changes: Vec<Change>,
    /// Why there is nothing to carry out.
    pub(crate) failure: Option<String>,
    pub(crate) executed: bool,
}

impl ChangeSet {
    /// Whether it can still be carried out: it holds changes and nobody has executed it.
    pub(crate) fn is_executable(&self) -> bool {
        self.failure.is_none() && !self.executed
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    /// `Add`, `Modify` or `Remove`.
    #[serde(with = "crate::state::interned")]
    pub(crate) action: Constant,
    pub(crate) logical_id: String,
    pub(crate) physical_id: Option<String>,
    pub(crate) kind: String,
}

/// What a stack is to be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StackRequest {
    pub(crate) template: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) capabilities: BTreeSet<String>,
    pub(crate) tags: Tags,
    #[serde(default)]
    pub(crate) options: StackOptions,
}

/// What a request says of a stack beside its template: told again, and without effect on what is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StackOptions {
    pub(crate) role_arn: Option<String>,
    pub(crate) notification_arns: Vec<String>,
    pub(crate) timeout_minutes: Option<u32>,
    pub(crate) monitoring_minutes: Option<u32>,
    /// ARN and type of each alarm that would roll an update back.
    pub(crate) rollback_triggers: Vec<(String, String)>,
    /// Stands beside the events of the request.
    pub(crate) client_request_token: Option<String>,
    /// Whether what fails is left as it is.
    pub(crate) disable_rollback: bool,
}

impl Stack {
    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted_at.is_some()
    }
}
