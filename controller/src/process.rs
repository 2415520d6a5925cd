//! What the program takes from its surroundings: environment, identity, signals, the API server's certificate authority.
//! Nothing here is used when the controller is embedded.

use crate::config::{Args, Command, Settings};
use crate::{crd, telemetry};
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use controller_clock::Clock;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A decision computes without pause on the thread that asks for it; leases, watches and probes need others meanwhile, also
/// where the container has a single CPU.
const WORKER_THREADS: usize = 4;

/// The whole program: arguments, logs, clients, run.
pub fn main(args: Args) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build();
    exit_code(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(args))))
}

async fn run(args: Args) -> anyhow::Result<()> {
    if let Some(Command::Crd) = args.command {
        print!("{}", crd::yaml()?);
        return Ok(());
    }
    let clock = Clock::system();
    let mut settings = Settings::from_args(args, &environment, &identity(&clock))?;
    tracing::subscriber::set_global_default(telemetry::subscriber(settings.log_level, clock.clone()))?;
    let config = kube::Config::infer().await.context("finding the Kubernetes API server")?;
    use_authority_of(&mut settings, &config);
    let kube = client(config).context("connecting to the Kubernetes API server")?;
    let aws = controller_aws::Clients::new(controller_aws::SdkSettings::default()).await?;
    let stop = CancellationToken::new();
    let run = until_asked_to_end(stop.clone(), crate::run(settings, kube, aws, clock, stop)).await?;
    run.map_err(|error| with_identity(error, &environment))
}

/// Says for whom AWS refused credentials: the SDK tells why, but neither the call nor the role.
fn with_identity(error: anyhow::Error, environment: &dyn Fn(&str) -> Option<String>) -> anyhow::Error {
    if !format!("{error:#}").contains("loading credentials") {
        return error;
    }
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let identity = match (set("AWS_ROLE_ARN"), set("AWS_WEB_IDENTITY_TOKEN_FILE")) {
        (Some(role), Some(file)) => {
            format!("sts:AssumeRoleWithWebIdentity for the role {role} with the token in {file} gives no credentials")
        }
        _ => match set("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
            Some(uri) => format!("the EKS Pod Identity agent at {uri} gives no credentials"),
            None => "there are no AWS credentials: the pod has neither a Pod Identity association, nor a ServiceAccount with \
                     the annotation eks.amazonaws.com/role-arn"
                .to_owned(),
        },
    };
    error.context(identity)
}

/// A client as the controller wants it. The library would send a request that was answered with 429 again by itself, for
/// seconds: but an eviction that a budget forbids is an answer, which is counted, told and tried again in its turn.
pub fn client(mut config: kube::Config) -> kube::Result<kube::Client> {
    config.default_retry = false;
    kube::Client::try_from(config)
}

/// An environment variable.
#[allow(clippy::disallowed_methods)] // Settings are read from the environment here and nowhere else.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// This replica's name in the leader election, `<hostname>_<uuid>`: a restarted container is another replica.
pub fn identity(clock: &Clock) -> String {
    let read =
        |path| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let host =
        read("/proc/sys/kernel/hostname").or_else(|| environment("HOSTNAME")).unwrap_or_else(|| "controller".into());
    let unique = read("/proc/sys/kernel/random/uuid");
    let unique = unique.unwrap_or_else(|| format!("{}-{}", std::process::id(), clock.now().as_nanosecond()));
    format!("{host}_{unique}")
}

/// Lets nodes trust the API server as this program does, unless a bundle is set.
fn use_authority_of(settings: &mut Settings, config: &kube::Config) {
    let bundle = || {
        let certificates = config.root_cert.as_deref().unwrap_or_default();
        (!certificates.is_empty()).then(|| STANDARD.encode(certificates.iter().map(|der| pem(der)).collect::<String>()))
    };
    settings.aws.cluster_ca_bundle = settings.aws.cluster_ca_bundle.take().or_else(bundle);
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for at in (0..text.len()).step_by(64) {
        pem.push_str(&text[at..text.len().min(at + 64)]);
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// Awaits `run`. When the program is asked to end (SIGTERM or SIGINT), `shutdown` is cancelled and `run` may finish.
async fn until_asked_to_end<T>(shutdown: CancellationToken, run: impl Future<Output = T>) -> std::io::Result<T> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut run = std::pin::pin!(run);
    tokio::select! {
        biased;
        outcome = &mut run => return Ok(outcome),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    shutdown.cancel();
    Ok(run.await)
}

/// How the program ends: in silence, or with one sentence that says what went wrong and why.
fn exit_code(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_credentials_are_told_with_the_call_and_the_role() {
        let refused = || anyhow::anyhow!("an error occurred while loading credentials: InvalidIdentityToken");
        let told = |variables: &[(&str, &str)], error| {
            let variable =
                |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            format!("{:#}", with_identity(error, &variable))
        };
        let role = [("AWS_ROLE_ARN", "arn:aws:iam::1:role/controller"), ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token")];
        assert_eq!(
            told(&role, refused()),
            "sts:AssumeRoleWithWebIdentity for the role arn:aws:iam::1:role/controller with the token in /token gives no \
             credentials: an error occurred while loading credentials: InvalidIdentityToken"
        );
        assert!(told(&[], refused()).starts_with("there are no AWS credentials: the pod has neither"));
        assert_eq!(told(&role, anyhow::anyhow!("no such cluster")), "no such cluster");
    }

    #[test]
    fn certificates_become_pem() {
        let text = pem(&[0; 60]);
        assert_eq!(text.lines().nth(1).map(str::len), Some(64));
        assert!(
            text.starts_with("-----BEGIN CERTIFICATE-----\nAAAA") && text.ends_with("\n-----END CERTIFICATE-----\n")
        );
    }

    #[test]
    fn no_two_identities_are_equal() {
        let clock = Clock::system();
        assert_ne!(identity(&clock), identity(&clock));
    }
}
