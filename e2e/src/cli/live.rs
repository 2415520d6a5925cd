//! `trysquare explain` on a cluster that runs.

use super::{CliError, tell};
use anyhow::{Context, anyhow};
use controller::config::{Args, Settings};
use controller::process;
use controller_aws::{Clients, SdkSettings};
use controller_clock::Clock;
use controller_core::explanation::Explanation;
use controller_core::scheduling::{Schedule, schedule_explained};
use controller_core::snapshot::{OwnerKind, Pod, PodName, Snapshot};
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;
use std::sync::Arc;
use tracing_subscriber::filter::LevelFilter;

/// What becomes of the pods that wait, or of one of them.
pub(super) fn explain(kubeconfig: Option<&Path>, pod: Option<&PodName>) -> Result<Explanation, CliError> {
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(LevelFilter::WARN);
    let _logging = tracing::subscriber::set_default(lines.without_time().with_target(false).finish());
    let clock = Clock::system();
    // Nothing that is looked at depends on the cluster's name in AWS.
    let named = Args { cluster_name: Some("any".to_owned()), ..Args::default() };
    let settings = Settings::from_args(named, &process::environment, &process::identity(&clock));
    let settings = settings.map_err(CliError::usage)?;
    let core = settings.core.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::backend)?;
    let (title, snapshot) = runtime.block_on(look(kubeconfig, settings, clock)).map_err(CliError::backend)?;
    let mut schedule = schedule_explained(&snapshot, &core);
    if let Some(name) = pod {
        keep(&mut schedule, name);
        if schedule.existing.is_empty() && schedule.new_nodes.is_empty() && schedule.unschedulable.is_empty() {
            return Err(CliError::usage(takes_no_part(name, &snapshot)));
        }
    }
    Ok(Explanation::of(&title, &snapshot, &core, &schedule, &|name| called(name, &snapshot)))
}

async fn look(kubeconfig: Option<&Path>, settings: Settings, clock: Clock) -> anyhow::Result<(String, Snapshot)> {
    let config = match kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path).with_context(|| format!("--kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer().await.context("finding the Kubernetes API server")?,
    };
    let title = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let kube = process::client(config).context("connecting to the Kubernetes API server")?;
    let aws = Clients::new(SdkSettings::default()).await?;
    tell(&format!("trysquare: looking at {title} and at AWS in {}", aws.region));
    Ok((title, controller::look(settings, kube, aws, clock).await?))
}

/// What a pod does instead of waiting for a node.
fn takes_no_part(name: &PodName, snapshot: &Snapshot) -> anyhow::Error {
    let instead = match snapshot.pods.get(name).map(Arc::as_ref) {
        None => return anyhow!("--pod {name}: there is no such pod"),
        Some(Pod { node_name: Some(node), .. }) => format!("it is on node {node}"),
        Some(Pod { nominated_node_name: Some(node), .. }) => {
            format!("kube-scheduler makes room for it on node {node}")
        }
        Some(pod) if pod.is_owned_by(OwnerKind::DaemonSet) => {
            "it is a DaemonSet's, which goes where nodes are".to_owned()
        }
        Some(_) => "kube-scheduler has not said that it finds no place for it".to_owned(),
    };
    anyhow!("--pod {name} waits for no node: {instead}")
}

/// Leaves what has to do with the pod.
fn keep(schedule: &mut Schedule, pod: &PodName) {
    schedule.existing.retain(|_, pods| pods.contains(pod));
    schedule.new_nodes.retain(|node| node.pods.contains(pod));
    schedule.unschedulable.retain(|name, _| name == pod);
}

/// Pods of one owner go by its name.
fn called(name: &PodName, snapshot: &Snapshot) -> String {
    let owner = snapshot.pods.get(name).and_then(|pod| pod.owners.first());
    owner.map_or_else(|| name.to_string(), |owner| format!("{}/{}", name.namespace, owner.name))
}
