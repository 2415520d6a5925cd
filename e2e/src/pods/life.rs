//! One pod from its start to its end.

use super::environment;
use super::identity::{Identity, RENEWED_EVERY, Secrets};
use super::probe::Probing;
use super::status::{self, Ended, Report, State};
use super::{Surroundings, container};
use crate::backend::{Process, Program};
use crate::control_plane::{free_ports, last_lines};
use crate::release::CONTAINER;
use anyhow::Context;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How soon a request that failed is sent again, and a container that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// The first wait of a kubelet before a container that has crashed more than once; each next one is twice as long.
const BACK_OFF: Duration = Duration::from_secs(10);
/// The longest.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);
/// After a run this long, a crash is the first one again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// How much of a log becomes the termination message (a kubelet's `FallbackToLogsOnError` takes 80 lines and 2048 bytes).
const MESSAGE_LINES: usize = 80;
const MESSAGE_BYTES: usize = 2048;

/// A pod on its node.
pub(super) struct Life {
    surroundings: Rc<Surroundings>,
    pod: Pod,
    report: Report,
    process: Option<Process>,
    /// What each crash in a row has waited.
    back_off: Option<Duration>,
}

/// What all processes of a pod share.
struct Prepared {
    secrets: Secrets,
    identity: Identity,
    container: Container,
    environment: BTreeMap<String, String>,
    /// The container's ports, and those that its program was given: pods have no addresses of their own here.
    ports: BTreeMap<u16, u16>,
}

impl Life {
    pub(super) fn new(surroundings: Rc<Surroundings>, pod: Pod) -> Self {
        let now = surroundings.clock.now();
        let state = State::Waiting { reason: "ContainerCreating", message: String::new() };
        let report = Report { state, last: None, restarts: 0, ready: false, ready_since: now, started_at: now };
        Self { surroundings, pod, report, process: None, back_off: None }
    }

    /// Runs the pod until it is to end, ends it within its grace period, and removes it.
    pub(super) async fn run(mut self, mut end: watch::Receiver<Option<Duration>>) {
        let asked = async {
            match end.wait_for(Option::is_some).await {
                Ok(grace) => grace.unwrap_or_default(),
                // Whoever drops the sender drops this as well.
                Err(_) => std::future::pending().await,
            }
        };
        let grace = tokio::select! {
            biased;
            grace = asked => grace,
            never = self.keep_running() => match never {},
        };
        if let Some(mut process) = self.process.take() {
            self.tell(&format!("is asked to end, within {} s", grace.as_secs()));
            if let Err(error) = process.stop(grace).await {
                self.tell(&format!("cannot be ended: {error:#}"));
            }
        }
        while let Err(error) = self.remove().await {
            self.tell(&format!("cannot be removed: {error:#}"));
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn keep_running(&mut self) -> Infallible {
        self.say().await;
        tokio::time::sleep(self.surroundings.pace.pod_start).await;
        let prepared = self.prepared().await;
        loop {
            let started_at = self.surroundings.clock.now();
            let began = Instant::now();
            let log = match self.start(&prepared).await {
                Ok(log) => log,
                Err(error) => {
                    self.cannot_start("RunContainerError", &error).await;
                    continue;
                }
            };
            let status = self.watch(&prepared).await;
            self.process = None;
            let ended = self.ended(status, started_at, &log);
            let last = ended.message.lines().last().unwrap_or_default();
            self.tell(&format!("has ended with exit code {}: {last}", ended.exit_code));
            if began.elapsed() > FORGOTTEN_AFTER {
                self.back_off = None;
            }
            self.set_ready(false);
            self.report.state = State::Ended(ended.clone());
            self.say().await;
            if !self.is_restarted(ended.exit_code) {
                return std::future::pending().await;
            }
            self.wait_before_restart(ended).await;
        }
    }

    /// Gathers what the pod's processes need, again and again until it is there.
    async fn prepared(&mut self) -> Prepared {
        loop {
            match self.prepare().await {
                Ok(prepared) => return prepared,
                Err(error) => self.cannot_start("CreateContainerConfigError", &error).await,
            }
        }
    }

    async fn prepare(&self) -> anyhow::Result<Prepared> {
        let surroundings = &self.surroundings;
        let container = container(&self.pod).context("the pod has no such container")?.clone();
        let node = self.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let node = Api::<Node>::all(surroundings.kube.clone()).get_opt(node).await.context("the pod's node")?;
        let own = environment::of(&self.pod, &container, node.as_ref())?;
        let identity = Identity::of(&self.pod, surroundings).await?;
        let secrets = Secrets::make(surroundings.secrets.join(self.pod.uid().unwrap_or_default()))?;
        secrets.renew(&self.pod, &identity, &surroundings.kube).await?;
        let mut environment = secrets.environment(&identity, surroundings)?;
        environment.insert("HOSTNAME".into(), self.pod.name_any());
        // Like the webhook, which leaves alone what is set.
        environment.extend(own);
        let (mut ports, free) = (BTreeMap::new(), free_ports::<2>()?);
        for (name, free) in ["METRICS_PORT", "HEALTH_PROBE_PORT"].into_iter().zip(free) {
            if let Some(port) = environment.get(name).and_then(|port| port.parse().ok()).filter(|port| *port != 0) {
                ports.insert(port, free);
                environment.insert(name.into(), free.to_string());
            }
        }
        Ok(Prepared { secrets, identity, container, environment, ports })
    }

    /// Starts the container's next process; answers its log.
    async fn start(&mut self, prepared: &Prepared) -> anyhow::Result<PathBuf> {
        let surroundings = self.surroundings.clone();
        let folder = surroundings.logs.join(self.pod.name_any());
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let log = folder.join(format!("{CONTAINER}-{}.log", self.report.restarts));
        let Program { path, mut arguments } = surroundings.program.clone();
        arguments.extend(prepared.container.args.iter().flatten().map(Into::into));
        let program = Program { path, arguments };
        let process = Process::spawn(&program, &prepared.environment, log.clone(), &surroundings.recorder)?;
        let id = process.id().map_or_else(|| "none".to_owned(), |id| id.to_string());
        self.tell(&format!("runs as process {id}; {}; its log is {}", prepared.identity.sentence(), log.display()));
        self.process = Some(process);
        self.report.state = State::Running { since: surroundings.clock.now() };
        self.say().await;
        Ok(log)
    }

    /// Waits until the process ends, or fails its liveness probe and is ended.
    async fn watch(&mut self, prepared: &Prepared) -> Option<ExitStatus> {
        let Prepared { secrets, identity, container, ports, .. } = prepared;
        let mut readiness = Probing::new(container.readiness_probe.as_ref(), container, ports, false);
        let mut liveness = Probing::new(container.liveness_probe.as_ref(), container, ports, true);
        let mut renewal = tokio::time::interval_at(Instant::now() + RENEWED_EVERY, RENEWED_EVERY);
        if readiness.holds() {
            self.set_ready(true);
            self.say().await;
        }
        loop {
            let Some(process) = &mut self.process else { return None };
            tokio::select! {
                biased;
                status = process.wait() => return status.ok(),
                ready = readiness.changed() => {
                    self.set_ready(ready);
                    self.say().await;
                }
                _ = liveness.changed() => {
                    self.tell("fails its liveness probe and is ended");
                    let grace = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
                    let grace = Duration::from_secs(grace.unwrap_or(30).max(0).unsigned_abs());
                    if let Some(process) = &mut self.process {
                        // An error is that it has ended by itself.
                        let _ = process.stop(grace).await;
                        return process.wait().await.ok();
                    }
                }
                _ = renewal.tick() => {
                    if let Err(error) = secrets.renew(&self.pod, identity, &self.surroundings.kube).await {
                        self.tell(&format!("its tokens are not renewed: {error:#}"));
                    }
                }
            }
        }
    }

    fn ended(&self, status: Option<ExitStatus>, started_at: jiff::Timestamp, log: &std::path::Path) -> Ended {
        let signal = status.and_then(|status| status.signal());
        // A runtime says 128 and the signal.
        let exit_code = status.and_then(|status| status.code()).unwrap_or_else(|| 128 + signal.unwrap_or_default());
        let mut message = if exit_code == 0 { String::new() } else { last_lines(log, MESSAGE_LINES) };
        while message.len() > MESSAGE_BYTES {
            message.remove(0);
        }
        Ended { exit_code, signal, message, started_at, finished_at: self.surroundings.clock.now() }
    }

    fn is_restarted(&self, exit_code: i32) -> bool {
        let policy = self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        match policy {
            Some("Never") => false,
            Some("OnFailure") => exit_code != 0,
            _ => true,
        }
    }

    /// The first restart comes at once, the others after longer and longer waits.
    async fn wait_before_restart(&mut self, ended: Ended) {
        if let Some(wait) = self.back_off {
            let message = format!("back-off {}s restarting failed container", wait.as_secs());
            self.report.last = Some(ended.clone());
            self.report.state = State::Waiting { reason: "CrashLoopBackOff", message };
            self.say().await;
            tokio::time::sleep(wait).await;
        }
        self.back_off = Some(self.back_off.map_or(BACK_OFF, |wait| (wait * 2).min(LONGEST_BACK_OFF)));
        self.report.last = Some(ended);
        self.report.restarts += 1;
    }

    async fn cannot_start(&mut self, reason: &'static str, error: &anyhow::Error) {
        let message = format!("{error:#}");
        self.tell(&format!("{reason}: {message}"));
        self.report.state = State::Waiting { reason, message };
        self.say().await;
        tokio::time::sleep(RETRY).await;
    }

    fn set_ready(&mut self, ready: bool) {
        if self.report.ready != ready {
            self.report.ready = ready;
            self.report.ready_since = self.surroundings.clock.now();
        }
    }

    fn tell(&self, what: &str) {
        let (namespace, name) = (self.pod.namespace().unwrap_or_default(), self.pod.name_any());
        self.surroundings.recorder.tell("kubelet", format_args!("pod {namespace}/{name} {what}"));
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.surroundings.kube.clone(), &self.pod.namespace().unwrap_or_default())
    }

    /// Reports the status, until the API server takes it.
    async fn say(&self) {
        let restarted = match &self.report.state {
            State::Ended(ended) => self.is_restarted(ended.exit_code),
            _ => true,
        };
        let patch = Patch::Strategic(status::patch(&self.pod, CONTAINER, &self.report, restarted));
        loop {
            match self.api().patch_status(&self.pod.name_any(), &PatchParams::default(), &patch).await {
                Ok(_) => return,
                // Its end is noticed elsewhere.
                Err(kube::Error::Api(status)) if status.is_not_found() => return,
                Err(error) => self.tell(&format!("its status is not taken: {error}")),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn remove(&self) -> anyhow::Result<()> {
        let preconditions = Preconditions { uid: self.pod.uid(), ..Preconditions::default() };
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match self.api().delete(&self.pod.name_any(), &parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
