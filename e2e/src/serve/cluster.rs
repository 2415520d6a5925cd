//! The cluster that is served: fake-kube, or a genuine control plane, beside the account.

use super::{Options, ec2_bounds, files, from_nothing, listen, reachable};
use crate::account::{self, Account, Pace};
use crate::backend::{BackendName, HEARTBEAT, definitions_of, follow_audit, instance_exists, remove_dead_nodes};
use crate::control_plane::audit::{Follower, Names};
use crate::control_plane::{self, ControlPlane, Definitions, Programs, User};
use crate::fake_cluster::{self, FakeCluster, aws_call, kube_call};
use crate::recorder::{Call, Recorder};
use crate::story;
use anyhow::{Context, bail};
use controller_clock::Clock;
use fake_kube::ServingCertificate;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often the processes of a control plane are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What runs, and how it is reached.
pub(super) struct Cluster {
    /// The API server's URL.
    pub(super) url: String,
    /// Its port.
    pub(super) port: u16,
    /// EC2's URL.
    pub(super) aws_url: String,
    /// For people.
    pub(super) kubeconfig: String,
    /// For the controller.
    pub(super) controller_kubeconfig: String,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Fake(Box<FakeCluster>),
    Genuine(Box<Account>),
}

impl Cluster {
    /// Starts everything but the controller. The parts end when the set is dropped.
    pub(super) async fn start(
        options: &Options,
        clock: &Clock,
        recorder: &Recorder,
        folder: &Path,
    ) -> anyhow::Result<(Self, JoinSet<anyhow::Result<()>>)> {
        let (kube_listener, ec2_listener) = listen(options).await?;
        let (kube_address, ec2_address) = (kube_listener.local_addr()?, ec2_listener.local_addr()?);
        let aws_url = format!("http://{}", SocketAddr::new(reachable(options.address), ec2_address.port()));
        let url = format!("https://{}", SocketAddr::new(reachable(options.address), kube_address.port()));
        let account = |url: &str, authority_pem: &str, pace| account::Options {
            clock: clock.clone(),
            seed: options.seed,
            region: options.region.clone(),
            families: Vec::new(),
            served: Some((url.to_owned(), files::base64(authority_pem))),
            pace,
            issuer: None,
            enforce_iam: false,
        };
        let definitions = match &options.controller {
            Some(controller) => definitions_of(controller)?,
            None if options.from_nothing => Definitions::Nothing,
            None => Definitions::Ours,
        };
        let mut parts;
        let (kind, kubeconfig, controller_kubeconfig) = match options.backend {
            BackendName::Embedded => {
                let host = reachable(options.address).to_string();
                let names = ["localhost", &host, "127.0.0.1", "::1"];
                // A client's own clock says whether a certificate is valid.
                let certificate = ServingCertificate::generate(&names, Clock::system().now())
                    .context("making the API server's certificate")?;
                let cluster = FakeCluster::new(fake_cluster::Options {
                    account: account(&url, certificate.certificate_authority_pem(), Pace::default()),
                    journal_entries: 0,
                    users: Default::default(),
                });
                tell_kube_writes(&cluster, recorder, options.tell_everything);
                parts = cluster.start(&definitions.read()?, recorder)?;
                let kubeconfig = certificate.kubeconfig(&url);
                let kube = cluster.kube.clone();
                parts.spawn_local(async move { Ok(kube.serve(kube_listener, &certificate).await?) });
                (Kind::Fake(Box::new(cluster)), kubeconfig.clone(), kubeconfig)
            }
            BackendName::Apiserver => {
                parts = JoinSet::new();
                // It takes the port itself.
                drop(kube_listener);
                let programs = Programs::find()?;
                let mut plane = ControlPlane::start(&programs, folder, &definitions, Some(kube_address.port())).await?;
                let access = plane.access().clone();
                let mut pace = Pace::default();
                pace.kubelets.heartbeat = Some(HEARTBEAT);
                let account = account(&access.url, &access.certificate_authority_pem, pace);
                let (account, runtime) = match options.from_nothing {
                    false => (Account::new(account), None),
                    true => {
                        let account = Account::with_cluster_alone(account, control_plane::ISSUER);
                        let place = from_nothing::Place { access: &access, aws_url: &aws_url, folder };
                        let runtime = from_nothing::prepare(options, &account, place, recorder, &mut parts).await?;
                        (account, Some(runtime))
                    }
                };
                let audit = Follower::from_the_end_of(&access.audit_log(), Names::default())?;
                let (told, everything) = (recorder.clone(), options.tell_everything);
                parts.spawn_local(follow_audit(audit, move |entry| tell_kube_write(&told, &entry.call, everything)));
                parts.spawn_local(account.kubelets_with(
                    access.client(User::Kubelet).await?,
                    recorder.clone(),
                    runtime,
                ));
                let cloud_controller = access.client(User::CloudController).await?;
                parts.spawn_local(remove_dead_nodes(cloud_controller, instance_exists(&account)));
                parts.spawn_local(async move {
                    loop {
                        plane.check()?;
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                });
                let kubeconfigs = [User::Administrator, User::Controller(0)].map(|user| access.kubeconfig(user));
                let [people, controller] = kubeconfigs;
                (Kind::Genuine(Box::new(account)), people, controller)
            }
            other => bail!("the backend {other} is not there yet; embedded and apiserver are"),
        };
        // From here on: the stage is set by somebody who need not ask.
        kind.account().ec2.cloud().set_iam(options.iam);
        let (ec2, bounds) = (kind.account().ec2.clone(), ec2_bounds(options.speed));
        let told = recorder.clone();
        ec2.cloud().observe(Box::new(move |entry| tell(&told, &aws_call(entry))));
        parts.spawn_local(async move { Ok(ec2.serve_with(ec2_listener, bounds).await?) });
        let port = kube_address.port();
        Ok((Self { url, port, aws_url, kubeconfig, controller_kubeconfig, kind }, parts))
    }

    /// A client of the API server that may do everything.
    pub(super) async fn client(&self) -> anyhow::Result<kube::Client> {
        match &self.kind {
            Kind::Fake(cluster) => Ok(cluster.client("trysquare")),
            Kind::Genuine(_) => client_of(&self.kubeconfig, "trysquare").await,
        }
    }
}

impl Kind {
    pub(super) fn account(&self) -> &Account {
        match self {
            Self::Fake(cluster) => &cluster.account,
            Self::Genuine(account) => account,
        }
    }
}

/// A client of the API server over its socket, as any program with this kubeconfig has one.
pub(super) async fn client_of(kubeconfig: &str, user_agent: &'static str) -> anyhow::Result<kube::Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(user_agent)));
    Ok(controller::process::client(config)?)
}

/// Tells what changes in Kubernetes, as a failed scenario's timeline does.
fn tell_kube_writes(cluster: &FakeCluster, recorder: &Recorder, everything: bool) {
    let recorder = recorder.clone();
    cluster.kube.observe(Box::new(move |entry| {
        // Reads are never told, and their answers may be large.
        if !matches!(entry.verb, "get" | "list" | "watch") {
            tell_kube_write(&recorder, &kube_call(entry), everything);
        }
    }));
}

/// Tells a write: everything, or not what comes once for every pod, which kubectl shows better.
fn tell_kube_write(recorder: &Recorder, call: &Call, everything: bool) {
    let resource = call.name.split(' ').nth(1).unwrap_or_default();
    if everything || !matches!(resource, "events" | "pods" | "pods/binding") {
        tell(recorder, call);
    }
}

fn tell(recorder: &Recorder, call: &Call) {
    if let Some((source, line)) = story::line(call) {
        recorder.tell(source, line);
    }
}

/// A free port for the metrics and one for the health of a controller.
pub(super) fn controller_ports() -> anyhow::Result<[u16; 2]> {
    control_plane::free_ports()
}
