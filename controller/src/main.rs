//! The `controller` program: arguments, logs, clients, run.

use anyhow::Context as _;
use clap::Parser as _;
use controller::config::{Args, Command, Settings};
use controller::{crd, process, telemetry};
use controller_clock::Clock;
use tokio_util::sync::CancellationToken;

/// A decision computes without pause on the thread that asks for it; leases, watches and probes need others meanwhile, also
/// where the container has a single CPU.
const WORKER_THREADS: usize = 4;

fn main() -> std::process::ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build();
    process::exit_code(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(args))))
}

async fn run(args: Args) -> anyhow::Result<()> {
    if let Some(Command::Crd) = args.command {
        print!("{}", crd::yaml()?);
        return Ok(());
    }
    let clock = Clock::system();
    let mut settings = Settings::from_args(args, &process::environment, &process::identity(&clock))?;
    tracing::subscriber::set_global_default(telemetry::subscriber(settings.log_level, clock.clone()))?;
    let config = kube::Config::infer().await.context("finding the Kubernetes API server")?;
    process::use_authority_of(&mut settings, &config);
    let kube = kube::Client::try_from(config).context("connecting to the Kubernetes API server")?;
    let aws = controller_aws::Clients::new(controller_aws::SdkSettings::default()).await?;
    let stop = CancellationToken::new();
    process::until_asked_to_end(stop.clone(), controller::run(settings, kube, aws, clock, stop)).await?
}
