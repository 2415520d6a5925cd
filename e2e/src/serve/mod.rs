//! A cluster for people: fake-kube with TLS or a genuine control plane, fake-ec2, kubelets for every instance, and a controller
//! beside them if asked for, in real time or, all of it in one process, faster.
//!
//! Reading order: [`run`] (the sequence), [`cluster`] (what is served), [`from_nothing`] (a cluster to deploy to), [`pace`] (time that passes faster), [`files`] (what a
//! shell is told).

mod cluster;
mod files;
mod from_nothing;
mod pace;

pub use files::Endpoints;

use crate::backend::{BackendName, CONTROLLER, Process, Program, process_environment};
use crate::fake_cluster;
use crate::recorder::Recorder;
use crate::temporary::TemporaryFolder;
use crate::things::manifests;
use crate::under_test::UnderTest;
use anyhow::{Context, anyhow, bail};
use cluster::{Cluster, Kind};
use controller::RunHandles;
use controller_clock::Clock;
use fake_ec2::{Iam, SocketOptions};
use files::Files;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The ports that are tried first: what stands in a shell's history stays right from one start to the next.
const FIRST_PORT: u16 = 7443;

/// How long a controller may take to give up its lease at the end.
const GOODBYE: Duration = Duration::from_secs(3);

/// What is served, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The API server.
    pub backend: BackendName,
    /// The controller that runs in the cluster, if any.
    pub controller: Option<UnderTest>,
    /// Whether there is only what `eksctl create cluster` leaves, and pods of the controller's Deployment run.
    pub from_nothing: bool,
    /// Whether policies decide who may do what.
    pub iam: Iam,
    /// A manifest, or a folder of them, that is applied at the start.
    pub manifests: Option<PathBuf>,
    /// The AWS region.
    pub region: String,
    /// The seed of ids, boot times and prices.
    pub seed: u64,
    /// The address to listen on.
    pub address: IpAddr,
    /// The API server's port; EC2's is the next one. `None`: the usual ones, or any that are free.
    pub port: Option<u16>,
    /// How many times as fast as the system's time passes, from 1.
    pub speed: u32,
    /// Where the kubeconfig is written. `None`: a file of this server's own, removed at its end.
    pub kubeconfig: Option<PathBuf>,
    /// Whether events and the writes that come once for every pod are told too.
    pub tell_everything: bool,
    /// Where the variables for a shell are written as well.
    pub environment_file: Option<PathBuf>,
}

impl Options {
    /// The time of everything that is served. Must be called inside the runtime that serves.
    fn clock(&self) -> Clock {
        if self.speed == 1 {
            return Clock::system();
        }
        Clock::virtual_from(Clock::system().now())
    }
}

/// Serves until `stop` ends, or until a part fails. `ready` is called once, when everything can be used.
///
/// Must run inside a `LocalSet`; in a runtime with paused time if the speed is not 1.
pub async fn run(
    options: Options,
    recorder: Recorder,
    ready: impl FnOnce(&Endpoints),
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let mut stop = std::pin::pin!(stop);
    let mut tasks = JoinSet::new();
    if options.speed > 1 {
        tasks.spawn_local(pace::pass(options.speed));
    }
    let clock = options.clock();
    recorder.set_clock(clock.clone());
    let folder = TemporaryFolder::make()?;
    let (cluster, mut parts) = Cluster::start(&options, &clock, &recorder, folder.path()).await?;
    if options.from_nothing {
        let client = cluster.client().await?;
        tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            Some(ended) = parts.join_next() => return Err(why("a part of the cluster", ended)),
            joined = from_nothing::wait_for_nodes(&client) => joined?,
        }
    }
    if let Some(path) = &options.manifests {
        let client = cluster.client().await?;
        match path.is_dir() {
            true => manifests::apply_folder(&client, path).await?,
            false => manifests::apply_file(&client, path).await?,
        }
    }
    let goodbye = CancellationToken::new();
    let mut controller = JoinSet::new();
    let mut metrics_url = None;
    if let Some(under_test) = &options.controller {
        let [metrics_port, health_port] = cluster::controller_ports()?;
        let metrics = SocketAddr::new(options.address, metrics_port);
        match &cluster.kind {
            Kind::Fake(fake) if *under_test == UnderTest::Ours => {
                let client = cluster::client_of(&cluster.controller_kubeconfig, CONTROLLER).await?;
                let environment = fake.account.controller_environment();
                let mut settings = fake_cluster::controller_settings(&environment, "karpenter-0")?;
                settings.metrics_address = Some(metrics);
                let clients = fake.aws_clients().await?;
                let handles = RunHandles::default();
                let run = controller::run_with(settings, client, clients, clock.clone(), goodbye.clone(), handles);
                controller.spawn_local(run);
            }
            kind => {
                let kubeconfig = folder.path().join("controller.kubeconfig");
                std::fs::write(&kubeconfig, &cluster.controller_kubeconfig)?;
                let mut environment = kind.account().controller_environment();
                environment.extend(process_environment(&cluster.aws_url, &options.region));
                environment.insert("KUBECONFIG".into(), kubeconfig.display().to_string());
                environment.insert("METRICS_PORT".into(), metrics_port.to_string());
                environment.insert("HEALTH_PROBE_PORT".into(), health_port.to_string());
                let log = folder.path().join("controller.log");
                let process = Process::start(&Program::of(under_test)?, &environment, log, &recorder).await?;
                controller.spawn_local(process.until(goodbye.clone(), GOODBYE));
            }
        }
        metrics_url = Some(format!("http://{}/metrics", SocketAddr::new(reachable(options.address), metrics_port)));
    }
    let endpoints = Endpoints {
        kube_url: cluster.url.clone(),
        aws_url: cluster.aws_url.clone(),
        region: options.region.clone(),
        metrics_url,
        pod_logs: options.from_nothing.then(|| from_nothing::logs(folder.path())),
        kubeconfig: PathBuf::new(),
    };
    let files = Files::write(&options, endpoints, &cluster.kubeconfig, cluster.port)?;
    ready(files.endpoints());
    let outcome = tokio::select! {
        biased;
        () = &mut stop => Ok(()),
        Some(ended) = parts.join_next() => Err(why("a part of the cluster", ended)),
        Some(ended) = controller.join_next() => Err(why("the controller", ended)),
        Some(ended) = tasks.join_next() => Err(why("the pace of time", ended)),
    };
    goodbye.cancel();
    let _ = tokio::time::timeout(GOODBYE * options.speed, controller.join_next()).await;
    outcome
}

fn why(what: &str, ended: Result<anyhow::Result<()>, tokio::task::JoinError>) -> anyhow::Error {
    match ended {
        Ok(Ok(())) => anyhow!("{what} ended by itself"),
        Ok(Err(error)) => error.context(format!("{what} ended")),
        Err(error) => anyhow!("{what} failed: {error}"),
    }
}

/// Where a client on this machine reaches what listens on this address.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(four) if four.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(six) if six.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
        other => other,
    }
}

/// Two sockets: the API server's and EC2's.
async fn listen(options: &Options) -> anyhow::Result<(TcpListener, TcpListener)> {
    let pair = async |port: u16| {
        let kube = TcpListener::bind((options.address, port)).await?;
        let next = if port == 0 { Some(0) } else { port.checked_add(1) };
        let next = next.ok_or_else(|| std::io::Error::other("port 65535 has no next one for EC2"))?;
        std::io::Result::Ok((kube, TcpListener::bind((options.address, next)).await?))
    };
    let Some(port) = options.port else {
        return match pair(FIRST_PORT).await {
            Ok(both) => Ok(both),
            Err(_) => pair(0).await.with_context(|| format!("cannot listen on {}", options.address)),
        };
    };
    pair(port).await.with_context(|| {
        format!(
            "cannot listen on {} with the ports {port} (Kubernetes) and {} (EC2); leave the port out of --listen to \
             take any that are free",
            options.address,
            u32::from(port) + 1
        )
    })
}

/// How long EC2's clients may take: they live in real time, and fake-ec2 counts in the cluster's.
fn ec2_bounds(speed: u32) -> SocketOptions {
    let usual = SocketOptions::default();
    SocketOptions {
        head_timeout: usual.head_timeout * speed,
        body_timeout: usual.body_timeout * speed,
        answer_timeout: usual.answer_timeout * speed,
        ..usual
    }
}

/// Checks that a region is one of the catalogue.
pub fn check_region(region: &str) -> anyhow::Result<()> {
    let known = fake_ec2::regions();
    if !known.contains(&region) {
        bail!("--region {region:?}: the catalogue has no such region; it has {}", known.join(", "));
    }
    Ok(())
}
