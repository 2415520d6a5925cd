//! What the AWS provider wants done from time to time (AWS spec §8.4). A failure is logged and tried again after a
//! minute, then after two, and so on up to the cadence: prices that could not be had at the start must not stay wrong for
//! half a day.

use super::Context;
use crate::error::{Context as _, ReconcileError, chain};
use std::error::Error;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// The wait after a first failure; it doubles up to the cadence.
const FIRST_RETRY: Duration = MINUTE;

/// Keeps the provider's knowledge fresh for as long as the future lives.
pub(crate) async fn run(context: Context) {
    let cloud = &context.cloud;
    report("providers.launchtemplate", cloud.hydrate_launch_templates().await);
    let is_priced = report("providers.pricing", cloud.refresh_pricing().await);
    let until_priced = if is_priced { 12 * HOUR } else { FIRST_RETRY };
    tokio::join!(
        every("providers.pricing", until_priced, 12 * HOUR, || cloud.refresh_pricing()),
        every("providers.instancetype", 12 * HOUR, 12 * HOUR, || cloud.refresh_instance_types()),
        every("providers.version", 5 * MINUTE, 5 * MINUTE, || refresh_version(&context)),
        every("providers.ssm.invalidation", 30 * MINUTE, 30 * MINUTE, || cloud.refresh_parameters()),
        every("providers.launchtemplate", MINUTE, MINUTE, || cloud.clean_up_launch_templates()),
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

async fn every<E, F>(name: &str, first: Duration, period: Duration, act: impl Fn() -> F)
where
    E: Error + 'static,
    F: Future<Output = Result<(), E>>,
{
    let (mut wait, mut retry) = (first, FIRST_RETRY);
    loop {
        tokio::time::sleep(wait).await;
        if report(name, act().await) {
            (wait, retry) = (period, FIRST_RETRY);
        } else {
            wait = retry.min(period);
            retry = (wait * 2).min(period);
        }
    }
}

/// Logs a failure; tells whether it went well.
fn report<E: Error + 'static>(name: &str, outcome: Result<(), E>) -> bool {
    if let Err(error) = &outcome {
        tracing::error!(controller = name, error = %chain(error), "Reconciler error");
    }
    outcome.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_made_up_for_before_the_next_turn() {
        let start = Instant::now();
        let turns = Mutex::new(Vec::new());
        let act = || {
            let mut turns = turns.lock().unwrap();
            turns.push(start.elapsed().as_secs() / 60);
            // The second to the fourth turn fail.
            let outcome = if (2..=4).contains(&turns.len()) { Err(std::fmt::Error) } else { Ok(()) };
            std::future::ready(outcome)
        };
        let _ = tokio::time::timeout(4 * HOUR, every("test", HOUR, HOUR, act)).await;
        assert_eq!(*turns.lock().unwrap(), [60, 120, 121, 123, 127, 187]);
    }
}
