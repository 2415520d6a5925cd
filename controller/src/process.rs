//! What the program takes from its surroundings: environment, identity, signals, the API server's certificate authority.
//! Nothing here is used when the controller is embedded.

use crate::config::Settings;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use controller_clock::Clock;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

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
pub fn use_authority_of(settings: &mut Settings, config: &kube::Config) {
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
pub async fn until_asked_to_end<T>(shutdown: CancellationToken, run: impl Future<Output = T>) -> std::io::Result<T> {
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
pub fn exit_code(outcome: anyhow::Result<()>) -> ExitCode {
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
