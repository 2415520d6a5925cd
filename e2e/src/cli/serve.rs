//! `trysquare serve`: a cluster and an account on sockets, for kubectl, the AWS CLI and people.

use super::{CliError, Format, PASSED, output, print, print_json, tell};
use crate::backend::{BackendName, Program};
use crate::control_plane::Programs;
use crate::recorder::{Listener, LogLayer, Recorder};
use crate::serve::{self, Endpoints, Options};
use crate::under_test::UnderTest;
use anyhow::anyhow;
use fake_ec2::Iam;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;

const AFTER_HELP: &str = "\
Examples:
  trysquare serve --controller                    a cluster with the node autoscaler, until Ctrl-C
  trysquare serve --controller --manifests PATH --speed 10
  trysquare serve --backend apiserver --controller upstream
                                                  Karpenter itself on a genuine control plane
  trysquare serve --backend apiserver --from-nothing --iam enforce
                                                  a cluster to deploy to, by deploy/README.md
  trysquare serve --listen 127.0.0.1:9443         Kubernetes on 9443, EC2 on 9444

It prints lines to paste into another shell; there, kubectl, the AWS CLI and boto3 work. What happens is told here.
At --speed N simulated time begins now and runs ahead of the system's: ages that a client counts itself are then off.

Exit codes: 0 ended by Ctrl-C or SIGTERM, 2 wrong usage, 3 it could not start or a part of it failed.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The API server: fake-kube, or a genuine control plane (needs `make tools`).
    #[arg(long, value_enum, default_value = "embedded")]
    backend: BackendName,
    /// Run a controller in the cluster: ours, upstream (needs `make tools`), or the path of a program.
    #[arg(long, value_name = "CONTROLLER", num_args = 0..=1, default_missing_value = "ours")]
    controller: Option<UnderTest>,
    /// Have only what `eksctl create cluster` leaves: no role, queue, tags or CRDs for a controller, and a node group of two
    /// nodes that run the pods of the controller's chart, each as a process with the identity that EKS would give it.
    #[arg(long)]
    from_nothing: bool,
    /// Whether IAM policies decide who may do what. The printed keys are an administrator's in either case.
    #[arg(long, value_enum, default_value = "off")]
    iam: Policies,
    /// Apply this manifest at the start, or every .yaml, .yml and .json file of this folder in the order of their names.
    #[arg(long, value_name = "PATH")]
    manifests: Option<PathBuf>,
    /// The AWS region.
    #[arg(long, value_name = "REGION", default_value = crate::account::REGION)]
    region: String,
    /// The seed of ids, boot times and prices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// ADDRESS or ADDRESS:PORT to listen on; EC2 takes the port after [default: 127.0.0.1, ports 7443 and 7444 or others
    /// that are free].
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1", hide_default_value = true)]
    listen: Listen,
    /// How many times as fast as real time everything passes: boots, waits, notices.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
    speed: u32,
    /// Where to write the kubeconfig [default: a file under ~/.cache/trysquare]. It is removed at the end.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Write the printed variables into this file too, once all is ready. It is removed at the end.
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    /// Tell Kubernetes events too, and what is done to every pod.
    #[arg(long)]
    verbose: bool,
    /// Tell nothing of what happens.
    #[arg(long, conflicts_with = "verbose")]
    quiet: bool,
    /// How to print where everything is.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Policies {
    /// Whoever can connect can do everything.
    Off,
    /// Roles may do what their policies allow.
    Enforce,
}

/// An address with or without a port.
#[derive(Clone, Debug)]
struct Listen {
    address: IpAddr,
    port: Option<u16>,
}

impl FromStr for Listen {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.replace("localhost", "127.0.0.1").parse() {
            return Ok(Self { address, port: None });
        }
        let wanted = || anyhow!("an IP address with or without a port is wanted, such as 127.0.0.1:7443 or [::1]");
        let socket: std::net::SocketAddr = text.replace("localhost", "127.0.0.1").parse().map_err(|_| wanted())?;
        Ok(Self { address: socket.ip(), port: Some(socket.port()) })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let options = Options {
        backend: arguments.backend,
        controller: arguments.controller.clone(),
        from_nothing: arguments.from_nothing,
        iam: match arguments.iam {
            Policies::Off => Iam::Off,
            Policies::Enforce => Iam::Enforce,
        },
        manifests: arguments.manifests.clone(),
        region: arguments.region.clone(),
        seed: arguments.seed,
        address: arguments.listen.address,
        port: arguments.listen.port,
        speed: arguments.speed,
        kubeconfig: arguments.kubeconfig.clone(),
        tell_everything: arguments.verbose,
        environment_file: arguments.env_file.clone(),
    };
    serve::check_region(&options.region).map_err(CliError::usage)?;
    if let Some(path) = options.manifests.as_ref().filter(|path| !path.exists()) {
        return Err(CliError::usage(anyhow!("--manifests {}: there is no such file or folder", path.display())));
    }
    check(&options)?;
    if !options.address.is_loopback() {
        tell(&format!(
            "trysquare: {} is not a loopback address: whoever reaches it may do everything, without a password",
            options.address
        ));
    }
    let recorder = if arguments.quiet { Recorder::default() } else { Recorder::with_listener(feed()) };
    let targets = Targets::new()
        .with_target("controller", LevelFilter::INFO)
        .with_target("controller_aws", LevelFilter::INFO)
        .with_target("fake_ec2", LevelFilter::WARN)
        .with_target("fake_kube", LevelFilter::WARN);
    let subscriber = tracing_subscriber::registry().with(LogLayer(recorder.clone()).with_filter(targets));
    let _logging = tracing::subscriber::set_default(subscriber);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(options.speed > 1)
        .build()
        .map_err(CliError::backend)?;
    let local = tokio::task::LocalSet::new();
    let format = arguments.format;
    let speed = options.speed;
    let with = with_what(&options);
    let ended = local.block_on(&runtime, async {
        let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut hung_up = signal(SignalKind::hangup())?;
        let stop = async {
            tokio::select! {
                biased;
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
                _ = hung_up.recv() => {}
            }
        };
        serve::run(options, recorder, |endpoints| announce(endpoints, format, speed, &with), stop).await
    });
    // The pace's beat may be in its sleep; nobody waits for it.
    drop(local);
    runtime.shutdown_background();
    ended.map_err(CliError::backend)?;
    tell("trysquare: ended; the cluster and its account are gone");
    Ok(PASSED)
}

/// Refuses what cannot be had together, and programs that are not there.
fn check(options: &Options) -> Result<(), CliError> {
    let genuine = match options.backend {
        BackendName::Embedded => false,
        BackendName::Apiserver => true,
        other => {
            return Err(CliError::backend(anyhow!("the backend {other} is not there yet; embedded and apiserver are")));
        }
    };
    check_identities(options, genuine)?;
    let foreign = options.controller.as_ref().is_some_and(|controller| *controller != UnderTest::Ours);
    if options.speed > 1 && (genuine || foreign) {
        let what = if genuine { "a genuine control plane" } else { "a controller in a process of its own" };
        return Err(CliError::usage(anyhow!("--speed {}: {what} lives in real time", options.speed)));
    }
    if genuine && !options.address.is_loopback() {
        return Err(CliError::usage(anyhow!(
            "--listen {}: a control plane listens on 127.0.0.1 alone",
            options.address
        )));
    }
    if let Some(UnderTest::Program(path)) = &options.controller
        && !path.is_file()
    {
        return Err(CliError::usage(anyhow!("--controller {}: there is no such file", path.display())));
    }
    if let Some(controller) = &options.controller {
        Program::of(controller).map_err(CliError::backend)?;
    }
    if genuine {
        Programs::find().map_err(CliError::backend)?;
    }
    Ok(())
}

/// Refuses clusters to deploy to that are none, and policies that nothing is subject to.
fn check_identities(options: &Options, genuine: bool) -> Result<(), CliError> {
    if options.from_nothing && !genuine {
        return Err(CliError::usage(anyhow!(
            "--from-nothing: a Deployment needs a genuine control plane to run on; add --backend apiserver"
        )));
    }
    if let Some(controller) = options.controller.as_ref().filter(|_| options.from_nothing) {
        return Err(CliError::usage(anyhow!(
            "--controller {controller}: with --from-nothing the controller comes by its chart (deploy/README.md); leave one \
             of the two out"
        )));
    }
    if let Some(controller) = options.controller.as_ref().filter(|_| options.iam == Iam::Enforce) {
        return Err(CliError::usage(anyhow!(
            "--controller {controller}: it has an administrator's keys, which --iam enforce allows everything; \
             --from-nothing and the chart give it a role"
        )));
    }
    Ok(())
}

fn announce(endpoints: &Endpoints, format: Format, speed: u32, with: &str) {
    let printed = match format {
        Format::Json => print_json(endpoints),
        Format::Text => print(&endpoints.exports()),
    };
    if let Err(error) = printed {
        tell(&format!("trysquare: {:#}", error.cause));
    }
    let pace = if speed == 1 { String::new() } else { format!(", {speed} times as fast as real time") };
    tell(&format!(
        "trysquare: Kubernetes {} at {}, EC2 and SQS at {}, {with}{pace}",
        crate::account::KUBERNETES_VERSION,
        endpoints.kube_url,
        endpoints.aws_url
    ));
    if let Some(url) = &endpoints.metrics_url {
        tell(&format!("trysquare: the controller's metrics are at {url}"));
    }
    if let Some(folder) = &endpoints.pod_logs {
        tell(&format!(
            "trysquare: logs of the controller's pods are files in {}; `kubectl logs` has no kubelet to ask",
            folder.display()
        ));
    }
    tell("trysquare: paste the lines above into another shell; Ctrl-C ends everything");
}

/// What runs in the cluster, for people.
fn with_what(options: &Options) -> String {
    match &options.controller {
        None if options.from_nothing => "a node group of two nodes and nothing for a node autoscaler".to_owned(),
        None => "no node autoscaler (--controller runs ours)".to_owned(),
        Some(UnderTest::Ours) => "a node autoscaler".to_owned(),
        Some(other) => format!("the node autoscaler {other}"),
    }
}

/// What happens, a line each, on standard error.
fn feed() -> Listener {
    let (dim, reset) = if output::colours(&std::io::stderr()) { ("\u{1b}[2m", "\u{1b}[0m") } else { ("", "") };
    Box::new(move |at, source, text| {
        tell(&format!("{dim}{} {source:<8}{reset} {text}", at.strftime("%H:%M:%S%.3f")));
    })
}
