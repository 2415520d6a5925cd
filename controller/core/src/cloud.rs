//! The port to a cloud: what the controller asks of a provider and what each answer means. The only async trait of this
//! crate; its implementation lives in `controller-aws`.

use crate::catalog::InstanceType;
use async_trait::async_trait;
use controller_api::{Ec2NodeClass, NodeClaim, NodePool};
use std::sync::Arc;

/// A cloud that launches and terminates instances for NodeClaims (core spec §1.11).
#[async_trait]
pub trait CloudProvider: Send + Sync {
    /// Launches one instance for `claim`. Answers the claim hydrated with what was launched: labels, annotations,
    /// `status.providerID`, `status.imageID`, `status.capacity` and `status.allocatable`.
    async fn create(&self, claim: &NodeClaim, node_class: &Ec2NodeClass) -> Result<NodeClaim, CloudError>;

    /// Begins terminating the claim's instance. Succeeds while it is going; [`CloudError::NotFound`] once it is gone, which
    /// is what the caller waits for.
    async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError>;

    /// The instance with this provider id, as a claim; [`CloudError::NotFound`] when it is gone.
    async fn get(&self, provider_id: &str) -> Result<NodeClaim, CloudError>;

    /// Every instance of this cluster. One that is going carries a deletion timestamp; `metadata.creationTimestamp` is
    /// the launch time.
    async fn list(&self) -> Result<Vec<NodeClaim>, CloudError>;

    /// All instance types for nodes of `pool`, also those that cannot be had at the moment.
    async fn instance_types(
        &self,
        pool: &NodePool,
        node_class: &Ec2NodeClass,
    ) -> Result<Vec<Arc<InstanceType>>, CloudError>;

    /// The reason why the claim's instance no longer matches its class, such as `AMIDrift`; `None` if it still does.
    async fn drift_reason(&self, claim: &NodeClaim, node_class: &Ec2NodeClass) -> Result<Option<String>, CloudError>;
}

/// Why a cloud refused, told apart by what the caller does about it.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// The instance does not exist (any more).
    #[error("nodeclaim not found, {0}")]
    NotFound(String),
    /// Nothing that satisfies the claim can be had now: the claim is deleted and its pods are scheduled again.
    #[error("insufficient capacity, {0}")]
    InsufficientCapacity(String),
    /// The class cannot be launched from now: the claim is deleted.
    #[error("NodeClassRef not ready, {0}")]
    NodeClassNotReady(String),
    /// The launch failed for a reason that `reason` and `message` put on the claim's `Launched` condition; retried.
    #[error("creating nodeclaim, {message}")]
    Create {
        /// A condition reason, such as `Unauthorized`.
        reason: String,
        /// A sentence for the condition.
        message: String,
    },
    /// Any other failure; retried with back-off.
    #[error("{context}")]
    Other {
        /// What was being done, on which object.
        context: String,
        /// What went wrong underneath.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl CloudError {
    /// Whether the instance is gone.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }
}
