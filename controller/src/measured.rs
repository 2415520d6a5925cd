//! The cloud with its calls counted and timed (core spec §10.4, AWS spec §8.1).

use crate::metrics::Metrics;
use async_trait::async_trait;
use controller_api::{Ec2NodeClass, NodeClaim, NodePool};
use controller_aws::AwsCloud;
use controller_core::catalog::InstanceType;
use controller_core::cloud::{CloudError, CloudProvider};
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use tokio::time::Instant;

/// AWS as reconcilers use it: the port's methods are measured, the rest is [`AwsCloud`] itself.
pub(crate) struct MeasuredCloud {
    cloud: AwsCloud,
    metrics: Arc<Metrics>,
}

impl MeasuredCloud {
    pub(crate) fn new(cloud: AwsCloud, metrics: Arc<Metrics>) -> Self {
        Self { cloud, metrics }
    }

    async fn measure<T>(
        &self,
        method: &str,
        call: impl Future<Output = Result<T, CloudError>> + Send,
    ) -> Result<T, CloudError> {
        // Which controller calls is not known here; upstream's label stays, empty.
        let labels = ["", method, "aws"];
        let started = Instant::now();
        let outcome = call.await;
        self.metrics.cloudprovider_duration_seconds.observe(labels, started.elapsed().as_secs_f64());
        if let Err(error) = &outcome {
            self.metrics.cloudprovider_errors.add(["", method, "aws", error_type(error)]);
        }
        outcome
    }
}

/// Upstream's name for the kind of error; empty for those without a meaning of their own.
fn error_type(error: &CloudError) -> &'static str {
    match error {
        CloudError::NotFound(_) => "NodeClaimNotFoundError",
        CloudError::InsufficientCapacity(_) => "InsufficientCapacityError",
        CloudError::NodeClassNotReady(_) => "NodeClassNotReadyError",
        CloudError::Create { .. } | CloudError::Other { .. } => "",
    }
}

impl Deref for MeasuredCloud {
    type Target = AwsCloud;

    fn deref(&self) -> &AwsCloud {
        &self.cloud
    }
}

#[async_trait]
impl CloudProvider for MeasuredCloud {
    async fn create(&self, claim: &NodeClaim, node_class: &Ec2NodeClass) -> Result<NodeClaim, CloudError> {
        self.measure("Create", self.cloud.create(claim, node_class)).await
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        self.measure("Delete", self.cloud.delete(claim)).await
    }

    async fn get(&self, provider_id: &str) -> Result<NodeClaim, CloudError> {
        self.measure("Get", self.cloud.get(provider_id)).await
    }

    async fn list(&self) -> Result<Vec<NodeClaim>, CloudError> {
        self.measure("List", self.cloud.list()).await
    }

    async fn instance_types(
        &self,
        pool: &NodePool,
        node_class: &Ec2NodeClass,
    ) -> Result<Vec<Arc<InstanceType>>, CloudError> {
        self.measure("GetInstanceTypes", self.cloud.instance_types(pool, node_class)).await
    }

    async fn drift_reason(&self, claim: &NodeClaim, node_class: &Ec2NodeClass) -> Result<Option<String>, CloudError> {
        self.measure("IsDrifted", self.cloud.drift_reason(claim, node_class)).await
    }
}
