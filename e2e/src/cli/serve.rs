//! `trysquare serve`: the embedded cluster on sockets, for kubectl, the AWS CLI and people.

use super::{CliError, Format, PASSED, output, print, print_json, tell};
use crate::recorder::{Listener, LogLayer, Recorder};
use crate::serve::{self, Endpoints, Options};
use anyhow::anyhow;
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
  trysquare serve --listen 127.0.0.1:9443         Kubernetes on 9443, EC2 on 9444

It prints lines to paste into another shell; there, kubectl, the AWS CLI and boto3 work. What happens is told here.
At --speed N simulated time begins now and runs ahead of the system's: ages that a client counts itself are then off.

Exit codes: 0 ended by Ctrl-C or SIGTERM, 2 wrong usage, 3 it could not start or a part of it failed.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Run our controller beside the cluster.
    #[arg(long)]
    controller: bool,
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
        controller: arguments.controller,
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
    let has_controller = options.controller;
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
        serve::run(options, recorder, |endpoints| announce(endpoints, format, speed, has_controller), stop).await
    });
    // The pace's beat may be in its sleep; nobody waits for it.
    drop(local);
    runtime.shutdown_background();
    ended.map_err(CliError::backend)?;
    tell("trysquare: ended; the cluster and its account are gone");
    Ok(PASSED)
}

fn announce(endpoints: &Endpoints, format: Format, speed: u32, controller: bool) {
    let printed = match format {
        Format::Json => print_json(endpoints),
        Format::Text => print(&endpoints.exports()),
    };
    if let Err(error) = printed {
        tell(&format!("trysquare: {:#}", error.cause));
    }
    let with = if controller { "a node autoscaler" } else { "no node autoscaler (--controller runs ours)" };
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
    tell("trysquare: paste the lines above into another shell; Ctrl-C ends everything");
}

/// What happens, a line each, on standard error.
fn feed() -> Listener {
    let (dim, reset) = if output::colours(&std::io::stderr()) { ("\u{1b}[2m", "\u{1b}[0m") } else { ("", "") };
    Box::new(move |at, source, text| {
        tell(&format!("{dim}{} {source:<8}{reset} {text}", at.strftime("%H:%M:%S%.3f")));
    })
}
