//! What the AWS provider wants done from time to time (AWS spec §8.4). A failure is logged and tried again at the next turn.

use super::Context;
use crate::error::{Context as _, ReconcileError, chain};
use std::error::Error;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Keeps the provider's knowledge fresh for as long as the future lives.
pub(crate) async fn run(context: Context) {
    let cloud = &context.cloud;
    report("providers.launchtemplate", cloud.hydrate_launch_templates().await);
    report("providers.pricing", cloud.refresh_pricing().await);
    tokio::join!(
        every("providers.pricing", 12 * HOUR, || cloud.refresh_pricing()),
        every("providers.instancetype", 12 * HOUR, || cloud.refresh_instance_types()),
        every("providers.version", 5 * MINUTE, || refresh_version(&context)),
        every("providers.ssm.invalidation", 30 * MINUTE, || cloud.refresh_parameters()),
        every("providers.launchtemplate", MINUTE, || cloud.clean_up_launch_templates()),
    );
}

/// The version that node images are chosen by: EKS's where EKS is to be asked, else the API server's.
async fn refresh_version(context: &Context) -> Result<(), ReconcileError> {
    if context.settings.aws.eks_control_plane {
        let refreshed = context.cloud.refresh_kubernetes_version().await;
        return refreshed.map_err(|error| ReconcileError::Other(chain(&error)));
    }
    let version = context.kube.apiserver_version().await.context("asking the API server for its version")?;
    context.cloud.set_kubernetes_version(&format!("{}.{}", version.major, version.minor));
    Ok(())
}

async fn every<E, F>(name: &str, period: Duration, act: impl Fn() -> F)
where
    E: Error + 'static,
    F: Future<Output = Result<(), E>>,
{
    loop {
        tokio::time::sleep(period).await;
        report(name, act().await);
    }
}

fn report<E: Error + 'static>(name: &str, outcome: Result<(), E>) {
    if let Err(error) = outcome {
        tracing::error!(controller = name, error = %chain(&error), "Reconciler error");
    }
}
