//! All wiring: one run of the controller, and the list of everything that runs in it.
//!
//! Every task lives in one set, so that dropping the run's future stops them all where they are, as a crash would. A task
//! that ends is a defect and ends the run; so does losing the lease, as nothing may be written from then on.

use crate::config::Settings;
use crate::error::chain;
use crate::events::Events;
use crate::leader::Elector;
use crate::measured::MeasuredCloud;
use crate::metrics::Metrics;
use crate::mirror::Mirror;
use crate::reconcile::{self, Context};
use crate::server::{self, Readiness};
use crate::{leader, observability};
use anyhow::Context as _;
use controller_aws::{AwsCloud, Clients};
use controller_clock::Clock;
use k8s_openapi::api::core::v1::Service;
use std::future::Future;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What an embedding program may look at while the controller runs.
#[derive(Clone, Default)]
pub struct RunHandles {
    /// The metrics of the run.
    pub metrics: Arc<Metrics>,
}

/// Runs the controller until `shutdown` is cancelled (then it gives up its lease and answers `Ok`) or something ends it.
/// Dropping the future is a crash.
pub async fn run(
    settings: Settings,
    kube: kube::Client,
    aws: Clients,
    clock: Clock,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    run_with(settings, kube, aws, clock, shutdown, RunHandles::default()).await
}

/// The same, with handles that the caller keeps.
pub async fn run_with(
    settings: Settings,
    kube: kube::Client,
    aws: Clients,
    clock: Clock,
    shutdown: CancellationToken,
    handles: RunHandles,
) -> anyhow::Result<()> {
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let mut tasks = Tasks::default();
    let mut elector =
        settings.leader_election.clone().map(|election| Elector::new(kube.clone(), election, clock.clone()));
    let outcome = tokio::select! {
        biased;
        () = shutdown.cancelled() => Ok(()),
        outcome = lead(settings, kube, aws, clock, handles, &mut tasks, elector.as_mut()) => outcome,
    };
    // First nobody writes any more, then the lease is given up.
    tasks.0.shutdown().await;
    if let Some(elector) = elector {
        elector.release().await;
    }
    outcome
}

/// Starts everything and leads until that ends.
async fn lead(
    settings: Settings,
    kube: kube::Client,
    aws: Clients,
    clock: Clock,
    handles: RunHandles,
    tasks: &mut Tasks,
    mut elector: Option<&mut Elector>,
) -> anyhow::Result<()> {
    let readiness = Readiness::default();
    if let Some(address) = settings.health_address {
        tasks.spawn("health endpoint", server::health(address, readiness.clone()));
    }
    if let Some(address) = settings.metrics_address {
        tasks.spawn("metrics endpoint", server::metrics(address, handles.metrics.clone()));
    }
    let cloud = connect(&settings, &kube, aws, &clock).await?;
    readiness.set(true);
    if let Some(elector) = elector.as_deref_mut() {
        elector.acquire().await;
    }
    // From here on this replica is ready once it has seen the cluster.
    readiness.set(false);
    let context = Context {
        kube,
        cloud: Arc::new(MeasuredCloud::new(cloud, handles.metrics.clone())),
        events: Events::new(clock.clone()),
        clock,
        settings: Arc::new(settings),
        mirror: Arc::new(Mirror::new()),
        metrics: handles.metrics,
    };
    start(tasks, &context, readiness);
    let held = async {
        match elector {
            Some(elector) => elector.hold().await,
            None => std::future::pending::<leader::LeadershipLost>().await,
        }
    };
    tokio::select! {
        biased;
        lost = held => Err(lost.into()),
        ended = tasks.ended() => Err(ended),
    }
}

/// Everything that runs on the leader, in one list.
fn start(tasks: &mut Tasks, context: &Context, readiness: Readiness) {
    observability::describe_when_asked(context);
    let Context { kube, mirror, events, .. } = context.clone();
    let watched = mirror.clone();
    let client = kube.clone();
    tasks.spawn("mirror", async move {
        watched.run(&client).await;
        Ok(())
    });
    tasks.spawn("events", async move {
        events.run(kube).await;
        Ok(())
    });
    tasks.spawn("readiness", async move {
        mirror.listed().await;
        readiness.set(true);
        std::future::pending().await
    });
    tasks.reconcile("observability", context, observability::run);
    tasks.reconcile("provider", context, reconcile::cadences::run);
    tasks.reconcile("nodeclass", context, reconcile::ec2_node_class::run);
    tasks.reconcile("nodepool", context, reconcile::node_pool::run);
    tasks.reconcile("provisioner", context, reconcile::provisioning::run);
    tasks.reconcile("nodeclaim.lifecycle", context, reconcile::node_claim::run);
    tasks.reconcile("node.termination", context, reconcile::termination::run);
    tasks.reconcile("disruption", context, reconcile::disruption::run);
    tasks.reconcile("interruption", context, reconcile::interruption::run);
    tasks.reconcile("garbagecollection", context, reconcile::garbage::run);
    tasks.reconcile("ownnode", context, reconcile::own_node::run);
}

/// The tasks of one run, each with its name.
#[derive(Default)]
struct Tasks(JoinSet<(&'static str, anyhow::Result<()>)>);

impl Tasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.0.spawn(async move { (name, task.await) });
    }

    /// Starts a reconciler once the mirror has seen the whole cluster.
    fn reconcile<F>(&mut self, name: &'static str, context: &Context, run: impl FnOnce(Context) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let context = context.clone();
        self.spawn(name, async move {
            context.mirror.listed().await;
            run(context).await;
            Ok(())
        });
    }

    /// Waits until a task has ended, and says which and why.
    async fn ended(&mut self) -> anyhow::Error {
        match self.0.join_next().await {
            Some(Ok((name, Ok(())))) => anyhow::anyhow!("task {name} has ended"),
            Some(Ok((name, Err(error)))) => error.context(format!("task {name} has failed")),
            Some(Err(error)) => anyhow::anyhow!("a task has failed: {error}"),
            None => std::future::pending().await,
        }
    }
}

/// The start-up sequence of every replica (AWS spec §2.1): what nodes must be told about the cluster, then AWS.
pub(crate) async fn connect(
    settings: &Settings,
    kube: &kube::Client,
    aws: Clients,
    clock: &Clock,
) -> anyhow::Result<AwsCloud> {
    let mut settings = settings.aws.clone();
    if settings.cluster_dns.is_none() {
        settings.cluster_dns = cluster_dns(kube).await;
    }
    let version = kube.apiserver_version().await.context("asking the API server for its version")?;
    let version = format!("{}.{}", version.major, version.minor);
    AwsCloud::connect(settings, aws, clock.clone(), &version).await.context("starting with AWS")
}

/// The address of the cluster's DNS service. Without one, addresses are taken to be IPv4.
async fn cluster_dns(kube: &kube::Client) -> Option<std::net::IpAddr> {
    match kube::Api::<Service>::namespaced(kube.clone(), "kube-system").get_opt("kube-dns").await {
        Ok(service) => service?.spec?.cluster_ip?.parse().ok(),
        Err(error) => {
            tracing::debug!(error = %chain(&error), "unable to detect the IP of the kube-dns service, services/kube-dns");
            None
        }
    }
}
