//! The public contract of the controller: NodePool, NodeClaim and EC2NodeClass v1, and every name that other programs
//! rely on.
//!
//! The Rust types are the one source of the schemas: field rules stand beside the fields, and [`crds`] turns them into
//! the CustomResourceDefinitions that the chart ships. Nothing here talks to a server, reads a clock or decides.

// The lint takes two printer columns of the same type for a repetition.
#![allow(clippy::duplicated_attributes)]

pub mod conditions;
mod duration;
mod ec2_node_class;
pub mod labels;
mod names;
mod node_claim;
mod node_pool;
mod schema;
mod time;
pub mod validation;

pub use conditions::{Condition, ConditionSet, ConditionStatus, HasConditions, READY, get};
pub use duration::{GoDuration, InvalidDuration, NillableDuration};
pub use ec2_node_class::*;
pub use node_claim::*;
pub use node_pool::*;
pub use schema::crds;

/// Core's API group.
pub const GROUP: &str = "karpenter.sh";
/// The AWS provider's API group.
pub const AWS_GROUP: &str = "karpenter.k8s.aws";
