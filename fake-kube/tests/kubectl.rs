//! The real kubectl against the server on a socket.
//!
//! A session in `tests/kubectl` is what somebody would see in a terminal: `$ command`, then what it prints. `[..]` stands
//! for anything within a line, a line `...` for any number of lines; `? 1` before the output is the exit code if it is
//! not 0. Each session has a server of its own. The environment variable TRYSQUARE_KUBECTL names the kubectl; without it
//! nothing is run, and the test says so. `make kubectl-test` builds one and runs this.

#[path = "../examples/serve/kubelet.rs"]
mod kubelet;

use std::{
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::Duration,
};

use controller_clock::Clock;
use fake_kube::{FakeKube, Options, ServingCertificate, actors};
use serde_json::Value;
use tokio::{net::TcpListener, process::Command, task::JoinSet};

/// No command of a session waits for longer.
const PATIENCE: Duration = Duration::from_secs(60);

#[allow(clippy::disallowed_methods)] // Which kubectl is for the caller to say, and tests take no arguments.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(kubectl) = std::env::var_os("TRYSQUARE_KUBECTL").map(PathBuf::from) else {
        println!("kubectl: skipped, because the environment variable TRYSQUARE_KUBECTL names no kubectl to run");
        println!("kubectl: `make kubectl-test` builds one and runs this test with it");
        return ExitCode::SUCCESS;
    };
    // What follows the name of the test binary selects sessions, as with other tests.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let folder = Path::new("tests/kubectl");
    let mut sessions: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("tests/kubectl is a folder")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .filter(|path| wanted.is_empty() || wanted.iter().any(|word| path.to_string_lossy().contains(word.as_str())))
        .collect();
    sessions.sort();
    let mut failed = 0;
    for session in &sessions {
        let name = session.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let failures = run(&kubectl, session, &name).await;
        println!("session {name} ... {}", if failures.is_empty() { "ok" } else { "FAILED" });
        for failure in &failures {
            println!("{failure}");
        }
        failed += failures.len();
    }
    println!("kubectl: {} sessions, {failed} commands failed", sessions.len());
    if failed == 0 && !sessions.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A command of a session and what it should do.
#[derive(Debug, Default)]
struct Step {
    line: usize,
    command: String,
    code: i32,
    output: Vec<String>,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { line: index + 1, command: command.to_owned(), ..Step::default() });
        } else if let Some(step) = steps.last_mut() {
            match line.strip_prefix("? ").and_then(|code| code.parse().ok()) {
                Some(code) if step.output.is_empty() => step.code = code,
                _ => step.output.push(line.to_owned()),
            }
        }
    }
    for step in &mut steps {
        // Blank lines part commands; where a command prints some at its end, they do not matter.
        step.output.truncate(step.output.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1));
    }
    steps
}

/// Whether a line fits a pattern with `[..]`. How many blanks part words does not matter: columns are as wide as ages.
fn line_fits(pattern: &str, line: &str) -> bool {
    let narrow = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (pattern, line) = (narrow(pattern), narrow(line));
    let mut parts = pattern.split("[..]");
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(place) = rest.find(part) else { return false };
        rest = &rest[place + part.len()..];
    }
    rest.ends_with(last)
}

fn fits(patterns: &[String], lines: &[&str]) -> bool {
    match patterns.split_first() {
        None => lines.is_empty(),
        Some((pattern, rest)) if pattern == "..." => (0..=lines.len()).any(|skip| fits(rest, &lines[skip..])),
        Some((pattern, rest)) => {
            lines.split_first().is_some_and(|(line, lines)| line_fits(pattern, line) && fits(rest, lines))
        }
    }
}

async fn run(kubectl: &Path, session: &Path, name: &str) -> Vec<String> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl").join(name);
    let _ = std::fs::remove_dir_all(&home);
    std::fs::create_dir_all(&home).expect("the target folder can be written");
    std::os::unix::fs::symlink(kubectl, home.join("kubectl")).expect("the target folder can be written");
    let _cluster = cluster(&home).await;
    let mut failures = Vec::new();
    for step in steps(&std::fs::read_to_string(session).expect("the session can be read")) {
        let Step { line, command, code, output } = step;
        let running = Command::new("bash")
            .args(["-c", &format!("exec 2>&1; set -o pipefail; {command}")])
            .current_dir(session.parent().unwrap_or(Path::new(".")))
            .env_clear()
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", home.display()))
            .env("HOME", &home)
            .env("KUBECONFIG", home.join("kubeconfig"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let told = match tokio::time::timeout(PATIENCE, running).await {
            Err(_) => Err(format!("still running after {PATIENCE:?}")),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(told)) => Ok((told.status.code(), String::from_utf8_lossy(&told.stdout).into_owned())),
        };
        let (ended, text) = match told {
            Ok(told) => told,
            Err(why) => {
                failures.push(format!("  {}:{line}: $ {command}\n    {why}", session.display()));
                continue;
            }
        };
        let lines: Vec<&str> = text.trim_end().lines().collect();
        if ended != Some(code) || !fits(&output, &lines) {
            let shown =
                |lines: &mut dyn Iterator<Item = &str>| lines.map(|line| format!("      {line}\n")).collect::<String>();
            failures.push(format!(
                "  {}:{line}: $ {command}\n    expected exit code {code} and\n{}    got {ended:?} and\n{}",
                session.display(),
                shown(&mut output.iter().map(String::as_str)),
                shown(&mut lines.into_iter()),
            ));
        }
    }
    failures
}

/// A cluster of two nodes with the definitions of this repository; it ends when dropped.
async fn cluster(home: &Path) -> JoinSet<()> {
    let clock = Clock::system();
    let kube = FakeKube::new(Options::new(clock.clone()));
    let definitions = Path::new("../deploy/chart/crds");
    for entry in std::fs::read_dir(definitions).expect("the repository has definitions") {
        let text = std::fs::read_to_string(entry.expect("they can be read").path()).expect("they can be read");
        let definition: Value = serde_yaml_ng::from_str(&text).expect("they are YAML");
        kube.install_crd(definition).expect("they are valid");
    }
    for number in 1..=2 {
        kubelet::join(&kube.client("kubelet"), number).expect("a node can join");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("the machine has a port left");
    let address = listener.local_addr().expect("a listener has an address");
    let certificate = ServingCertificate::generate(&["127.0.0.1"], clock.now()).expect("an address is a fine name");
    let configuration = certificate.kubeconfig(&format!("https://{address}"));
    std::fs::write(home.join("kubeconfig"), configuration).expect("the target folder can be written");
    let mut tasks = JoinSet::new();
    tasks.spawn(actors::run(kube.clone(), actors::Options::default()));
    tasks.spawn(kubelet::run(kube.client("kubelet")));
    tasks.spawn(async move {
        let _ = kube.serve(listener, &certificate).await;
    });
    tasks
}
