//! The `controller` program: arguments, logs, clients, run.

use anyhow::Context as _;
use clap::Parser as _;
use controller::config::{Args, Command, Settings};
use controller::{crd, process, telemetry};
use controller_clock::Clock;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    process::exit_code(run(Args::parse()).await)
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
