//! Everything that talks to AWS: the `CloudProvider` of controller-core over the official SDK.
//!
//! Decisions are pure functions (what a selector asks, what a machine offers, what a fleet request contains, what its
//! answer means); thin methods carry them out. The crate never sees a Kubernetes client and starts no tasks: whatever
//! runs on a cadence is a method of [`AwsCloud`] that the shell calls.

mod batch;
mod cache;
mod clients;
mod data;
mod description;
mod drift;
mod error;
mod filters;
#[cfg(test)]
mod fixtures;
mod fleet;
mod images;
mod instance_profile;
mod instance_types;
mod instances;
pub mod interruption;
mod kubelet;
mod launch;
mod launch_template;
mod network;
mod node_class;
mod offerings;
mod pricing;
mod provider;
mod resolved;
mod settings;
mod unavailable;
mod user_data;
mod validation;

pub use clients::{Clients, SdkSettings};
pub use error::{AwsError, FailureReason, Meaning, StartError};
pub use instances::{Instance, UnhealthyCategory, UnhealthyInstance};
pub use interruption::{Interruption, InterruptionKind, QueueMessage};
pub use launch::LaunchFailure;
pub use node_class::{NearMiss, NearMissResource, NodeClassContext, NodeClassResolution, ResolutionFailure};
pub use provider::AwsCloud;
pub use settings::Settings;

/// The tag with which EKS, and this controller, mark what belongs to a cluster.
pub const CLUSTER_NAME_TAG: &str = "eks:eks-cluster-name";
