//! The embedded pair for people: fake-kube with TLS and fake-ec2 on sockets, kubelets for every instance, and our controller
//! beside them if asked for, in real time or faster.
//!
//! Reading order: [`run`] (the sequence), [`pace`] (time that passes faster), [`files`] (what a shell is told).

mod files;
mod pace;

pub use files::Endpoints;

use crate::account;
use crate::backend::CONTROLLER;
use crate::fake_cluster::{self, FakeCluster, aws_call, kube_call};
use crate::recorder::{Call, Recorder};
use crate::story;
use crate::things::manifests;
use anyhow::{Context, anyhow, bail};
use controller::RunHandles;
use controller_clock::Clock;
use fake_ec2::SocketOptions;
use fake_kube::ServingCertificate;
use files::Files;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};
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
    /// Whether our controller runs beside the fakes.
    pub controller: bool,
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
    let (kube_listener, ec2_listener) = listen(&options).await?;
    let (kube_address, ec2_address) = (kube_listener.local_addr()?, ec2_listener.local_addr()?);
    let host = reachable(options.address).to_string();
    let certificate = ServingCertificate::generate(&["localhost", &host, "127.0.0.1", "::1"], clock.now())
        .context("making the API server's certificate")?;
    let url = format!("https://{}", SocketAddr::new(reachable(options.address), kube_address.port()));
    let authority = files::base64(certificate.certificate_authority_pem());
    let cluster = FakeCluster::new(fake_cluster::Options {
        account: account::Options {
            clock: clock.clone(),
            seed: options.seed,
            region: options.region.clone(),
            families: Vec::new(),
            served: Some((url.clone(), authority.clone())),
            pace: account::Pace::default(),
        },
        journal_entries: 0,
        users: Default::default(),
    });
    tell_writes(&cluster, &recorder, options.tell_everything);
    let mut parts = cluster.start(&controller_api::crds(), &recorder)?;
    let kubeconfig = certificate.kubeconfig(&url);
    let kube = cluster.kube.clone();
    parts.spawn_local(async move { Ok(kube.serve(kube_listener, &certificate).await?) });
    let ec2 = cluster.account.ec2.clone();
    let bounds = ec2_bounds(options.speed);
    parts.spawn_local(async move { Ok(ec2.serve_with(ec2_listener, bounds).await?) });
    if let Some(path) = &options.manifests {
        let client = cluster.client("trysquare");
        match path.is_dir() {
            true => manifests::apply_folder(&client, path).await?,
            false => manifests::apply_file(&client, path).await?,
        }
    }
    let goodbye = CancellationToken::new();
    let mut controller = JoinSet::new();
    let mut metrics_url = None;
    if options.controller {
        let client = client_of(&kubeconfig, CONTROLLER).await?;
        let environment = cluster.account.controller_environment();
        let mut settings = fake_cluster::controller_settings(&environment, "karpenter-0")?;
        let metrics = TcpListener::bind((options.address, 0)).await?.local_addr()?;
        settings.metrics_address = Some(metrics);
        let metrics_host = SocketAddr::new(reachable(options.address), metrics.port());
        metrics_url = Some(format!("http://{metrics_host}/metrics"));
        let clients = cluster.aws_clients().await?;
        let handles = RunHandles::default();
        let run = controller::run_with(settings, client, clients, clock.clone(), goodbye.clone(), handles);
        controller.spawn_local(run);
    }
    let endpoints = Endpoints {
        kube_url: url,
        aws_url: format!("http://{}", SocketAddr::new(reachable(options.address), ec2_address.port())),
        region: options.region.clone(),
        metrics_url,
        kubeconfig: PathBuf::new(),
    };
    let files = Files::write(&options, endpoints, &kubeconfig, kube_address.port())?;
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

/// A client of the API server over its socket, as any program with this kubeconfig has one.
async fn client_of(kubeconfig: &str, user_agent: &'static str) -> anyhow::Result<kube::Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(user_agent)));
    Ok(kube::Client::try_from(config)?)
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

/// Tells what changes on both wires, as a failed scenario's timeline does: all of it, or without what comes once for every
/// pod, which kubectl shows better.
fn tell_writes(cluster: &FakeCluster, recorder: &Recorder, everything: bool) {
    let tell = |recorder: &Recorder, call: &Call| {
        if let Some((source, line)) = story::line(call) {
            recorder.tell(source, line);
        }
    };
    let record = recorder.clone();
    cluster.kube.observe(Box::new(move |entry| {
        // Reads are never told, and their answers may be large.
        if matches!(entry.verb, "get" | "list" | "watch") {
            return;
        }
        let per_pod = matches!(story::resource(&entry.path).as_str(), "events" | "pods" | "pods/binding");
        if everything || !per_pod {
            tell(&record, &kube_call(entry));
        }
    }));
    let record = recorder.clone();
    cluster.account.ec2.cloud().observe(Box::new(move |entry| tell(&record, &aws_call(entry))));
}

/// Checks that a region is one of the catalogue.
pub fn check_region(region: &str) -> anyhow::Result<()> {
    let known = fake_ec2::regions();
    if !known.contains(&region) {
        bail!("--region {region:?}: the catalogue has no such region; it has {}", known.join(", "));
    }
    Ok(())
}
