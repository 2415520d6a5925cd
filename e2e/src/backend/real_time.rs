//! Any controller as a process of its own, in real time: with fake-ec2 over HTTP and our kubelets, and either fake-kube over
//! TLS or a genuine control plane as the API server.

use super::mirror::Mirror;
use super::observe::{observe_ec2, observe_kube, record};
use super::process::{Process, Program, definitions_of, keep_log};
use super::seen::Watcher;
use super::{Backend, BackendName};
use crate::account::{self, Account, Pace, REGION};
use crate::chronicle::{Sighting, follow, follow_instances};
use crate::cloud::{Cloud, STS};
use crate::control_plane::audit::{Entry, Follower, Names};
use crate::control_plane::{self, Access, User, free_ports};
use crate::fake_cluster::{FakeCluster, Options};
use crate::invariants::Invariants;
use crate::loopback;
use crate::permissions::{Permission, iam};
use crate::place::Place;
use crate::recorder::Recorder;
use crate::release::{self, RELEASE};
use crate::scenario::On;
use crate::temporary::TemporaryFolder;
use crate::under_test::UnderTest;
use anyhow::{Context, anyhow, bail};
use base64::Engine as _;
use controller_clock::Clock;
use fake_kube::{Resource, ServingCertificate, resources};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How often the audit log is read.
const AUDIT_EVERY: Duration = Duration::from_millis(50);
/// How often AWS's cloud controller looks at nodes that are not ready (--node-monitor-period).
const NODE_MONITOR_PERIOD: Duration = Duration::from_secs(5);
/// How long a controller may take to end once it is asked to, which is what a pod is given.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);
/// A kubelet's own interval.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);

/// What a World stands on: the column of the report, and what was made ready for it.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Backend and controller.
    pub on: On,
    /// The cluster that was made ready, for the backends that have one.
    pub place: Option<Place>,
    /// The certificate of fake-kube. `None`: one of its own. The authority is hashed into every EC2NodeClass, so that clusters
    /// whose hashes are to be compared share one.
    pub certificate: Option<ServingCertificate>,
    /// Where the logs of the controller's processes are kept. `None`: nowhere.
    pub logs: Option<PathBuf>,
}

/// The API server.
enum ApiServer {
    Fake { cluster: Box<FakeCluster>, certificate: ServingCertificate, url: String },
    Genuine { account: Box<Account>, access: Access, administrator: kube::Client, names: Names },
}

impl ApiServer {
    fn account(&self) -> &Account {
        match self {
            Self::Fake { cluster, .. } => &cluster.account,
            Self::Genuine { account, .. } => account,
        }
    }

    /// A kubeconfig for a controller. The fake takes any token, and knows the names of those it is told; the genuine server
    /// knows the chart's ServiceAccount.
    async fn kubeconfig(&self, user: User, controller: &UnderTest) -> anyhow::Result<String> {
        match self {
            Self::Fake { certificate, url, .. } => {
                let authority = certificate.certificate_authority_pem();
                Ok(control_plane::kubeconfig(url, authority, &user.name(), &user.name()))
            }
            Self::Genuine { access, administrator, names, .. } => {
                let token = release::token(administrator, release::account_of(controller), None).await?;
                names.give(&token, &user.name()).context("the controller's token")?;
                Ok(access.kubeconfig_with(user, &token))
            }
        }
    }
}

/// The cluster.
pub struct RealTime {
    name: BackendName,
    api: ApiServer,
    controller: UnderTest,
    program: Program,
    clock: Clock,
    environment: BTreeMap<String, String>,
    replicas: BTreeMap<usize, Replica>,
    started: usize,
    recorder: Recorder,
    folder: TemporaryFolder,
    logs: Option<PathBuf>,
    parts: RefCell<JoinSet<anyhow::Result<()>>>,
}

struct Replica {
    user: String,
    metrics_port: u16,
    process: Process,
}

impl RealTime {
    /// Sets the stage of a scenario. The controller is not started.
    ///
    /// # Errors
    /// Where the controller's program is missing, or the backend is not there yet.
    pub async fn start(
        setting: Setting,
        seed: u64,
        families: Vec<String>,
        recorder: Recorder,
        invariants: Invariants,
    ) -> anyhow::Result<Self> {
        let Setting { on, place, certificate, logs } = setting;
        let program = Program::of(&on.controller)?;
        let clock = Clock::system();
        recorder.set_clock(clock.clone());
        let ec2_listener = TcpListener::bind(("127.0.0.1", 0)).await.context("a socket for EC2")?;
        let ec2_url = format!("http://{}", ec2_listener.local_addr()?);
        let options = |url: &str, authority_pem: &str, heartbeat| {
            let mut pace = Pace::quick();
            pace.kubelets.heartbeat = heartbeat;
            let authority = base64::engine::general_purpose::STANDARD.encode(authority_pem);
            let served = Some((url.to_owned(), authority));
            account::Options {
                clock: clock.clone(),
                seed,
                region: REGION.into(),
                families: families.clone(),
                served,
                pace,
                issuer: Some(control_plane::ISSUER.into()),
                enforce_iam: on.enforce_iam,
            }
        };
        let changed = Arc::new(Notify::new());
        let mut parts = JoinSet::new();
        let mut environment = BTreeMap::new();
        let api = match (on.backend, place) {
            (BackendName::Embedded, _) => {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("a socket for Kubernetes")?;
                let url = format!("https://{}", listener.local_addr()?);
                let certificate = match certificate {
                    Some(certificate) => certificate,
                    None => ServingCertificate::generate(&["localhost", "127.0.0.1"], clock.now())?,
                };
                // Every replica that may ever be started has a token, which is its name.
                let users = (0..1_000).map(|number| User::Controller(number).name()).map(|name| (name.clone(), name));
                let cluster = FakeCluster::new(Options {
                    account: options(&url, certificate.certificate_authority_pem(), None),
                    journal_entries: 0,
                    users: users.collect(),
                });
                observe_kube(&cluster.kube, recorder.clone(), changed.clone());
                parts = cluster.start(&definitions_of(&on.controller)?.read()?, &recorder)?;
                let ec2 = &cluster.account.ec2;
                let chronicle = cluster.kube.client("chronicle");
                parts.spawn_local(follow(&chronicle, ec2, clock.clone(), recorder.chronicler().clone()));
                let watcher = Watcher {
                    kube: cluster.kube.client("invariants"),
                    ec2: ec2.clone(),
                    clock: clock.clone(),
                    recorder: recorder.clone(),
                };
                parts.spawn_local(watcher.watch(invariants.clone(), changed.clone()));
                let (kube, serving) = (cluster.kube.clone(), certificate.clone());
                parts.spawn_local(async move { Ok(kube.serve(listener, &serving).await?) });
                ApiServer::Fake { cluster: Box::new(cluster), certificate, url }
            }
            (BackendName::Apiserver, Some(Place::ControlPlane { access, environment: of_the_chart })) => {
                environment = of_the_chart;
                let account = Account::new(options(&access.url, &access.certificate_authority_pem, Some(HEARTBEAT)));
                let administrator = access.client(User::Administrator).await?;
                if let Some(Permission::Rbac(rule)) = &on.without {
                    release::take_away(&administrator, rule).await?;
                }
                let names = Names::default();
                let audit = Follower::from_the_end_of(&access.audit_log(), names.clone())?;
                parts.spawn_local(follow_audit(audit, watch_writes(&recorder, &invariants, &changed)));
                let mirror = Mirror::default();
                follow_objects(&mut parts, &mirror, &administrator, &recorder, &changed);
                parts.spawn_local(follow_instances(&account.ec2, clock.clone(), recorder.chronicler().clone()));
                let watcher = Watcher {
                    kube: mirror,
                    ec2: account.ec2.clone(),
                    clock: clock.clone(),
                    recorder: recorder.clone(),
                };
                parts.spawn_local(watcher.watch(invariants.clone(), changed.clone()));
                parts.spawn_local(account.kubelets(access.client(User::Kubelet).await?, recorder.clone()));
                let cloud_controller = access.client(User::CloudController).await?;
                parts.spawn_local(remove_dead_nodes(cloud_controller, instance_exists(&account)));
                ApiServer::Genuine { account: Box::new(account), access, administrator, names }
            }
            (other, _) => bail!("no cluster was made ready for the backend {other}"),
        };
        let account = api.account();
        observe_ec2(&account.ec2, recorder.clone(), invariants.clone(), changed);
        let ec2 = account.ec2.clone();
        parts.spawn_local(async move { Ok(ec2.serve(ec2_listener).await?) });
        environment.extend(account.controller_environment());
        environment.extend(process_environment(&ec2_url, REGION));
        if on.enforce_iam {
            account.deploy_stack(on.without.as_ref())?;
            // Each replica gets its own.
            environment.retain(|name, _| !["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].contains(&name.as_str()));
        }
        environment.extend(on.environment);
        let folder = TemporaryFolder::make()?;
        let (replicas, name, controller) = (BTreeMap::new(), on.backend, on.controller);
        Ok(Self {
            name,
            api,
            controller,
            program,
            clock,
            environment,
            replicas,
            started: 0,
            recorder,
            folder,
            logs,
            parts: RefCell::new(parts),
        })
    }
}

impl RealTime {
    /// What a controller signs its calls with where policies decide: a session of its role, which ours gets for the token of
    /// its ServiceAccount, as on EKS; fake-kube makes no tokens, and the role trusts no other account.
    async fn credentials(&self, replica: &str) -> anyhow::Result<BTreeMap<String, String>> {
        if !self.account().options().enforce_iam {
            return Ok(BTreeMap::new());
        }
        let variables = match &self.api {
            ApiServer::Genuine { administrator, .. } if self.controller == UnderTest::Ours => {
                let token = release::token(administrator, RELEASE, Some(STS)).await?;
                let file = self.folder.path().join(format!("{replica}.token"));
                std::fs::write(&file, token).context("writing the controller's token")?;
                let role = format!("arn:aws:iam::{}:role/{}", self.account().account_id(), iam::role());
                vec![("AWS_ROLE_ARN", role), ("AWS_WEB_IDENTITY_TOKEN_FILE", file.display().to_string())]
            }
            _ => {
                let session = self.account().ec2.cloud().assume_role(&iam::role(), RELEASE)?;
                vec![
                    ("AWS_ACCESS_KEY_ID", session.access_key_id),
                    ("AWS_SECRET_ACCESS_KEY", session.secret_access_key),
                    ("AWS_SESSION_TOKEN", session.session_token),
                ]
            }
        };
        Ok(variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The account in fake-ec2.
    pub(crate) fn account(&self) -> &Account {
        self.api.account()
    }
}

/// What a controller in a process of its own needs beside its settings: how to reach AWS, and where its lease lies.
pub(crate) fn process_environment(ec2_url: &str, region: &str) -> BTreeMap<String, String> {
    let variables = [
        ("AWS_ENDPOINT_URL", ec2_url),
        ("AWS_REGION", region),
        ("AWS_ACCESS_KEY_ID", "trysquare"),
        ("AWS_SECRET_ACCESS_KEY", "trysquare"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("LEADER_ELECTION_NAMESPACE", "kube-system"),
        ("POD_NAMESPACE", "kube-system"),
        ("SYSTEM_NAMESPACE", "kube-system"),
        ("LOG_LEVEL", "debug"),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Records what an audit log tells. A controller that is refused for want of permission breaks a rule of every scenario.
pub(super) fn watch_writes(
    recorder: &Recorder,
    invariants: &Invariants,
    changed: &Arc<Notify>,
) -> impl Fn(&Entry) + use<> {
    let (recorder, invariants, changed) = (recorder.clone(), invariants.clone(), changed.clone());
    move |entry| {
        record(&recorder, &entry.call);
        if let Some(refusal) = &entry.refusal {
            invariants.refused(&entry.call.caller, refusal);
        }
        changed.notify_one();
    }
}

pub(crate) async fn follow_audit(mut audit: Follower, tell: impl Fn(&Entry)) -> anyhow::Result<()> {
    loop {
        for entry in audit.entries()? {
            tell(&entry);
        }
        tokio::time::sleep(AUDIT_EVERY).await;
    }
}

/// Follows every kind that the invariants or the chronicle ask about.
pub(super) fn follow_objects(
    parts: &mut JoinSet<anyhow::Result<()>>,
    mirror: &Mirror,
    client: &kube::Client,
    recorder: &Recorder,
    changed: &Arc<Notify>,
) {
    type Tell = Box<dyn Fn(Sighting, &Value)>;
    let chronicler = || recorder.chronicler().clone();
    let karpenter = |plural: &'static str| Resource::new(controller_api::GROUP, "v1", plural);
    let (pods, nodes, events, claims) = (chronicler(), chronicler(), chronicler(), chronicler());
    let followed: [(Resource, &str, Tell); 6] = [
        (resources::PODS, "Pod", Box::new(move |how, pod| pods.pod(how, pod))),
        (resources::NODES, "Node", Box::new(move |how, node| nodes.node(how, node))),
        (resources::EVENTS, "Event", Box::new(move |how, event| events.event(how, event))),
        (karpenter("nodeclaims"), "NodeClaim", Box::new(move |how, claim| claims.node_claim(how, claim))),
        (karpenter("nodepools"), "NodePool", Box::new(|_, _| ())),
        (Resource::new(controller_api::AWS_GROUP, "v1", "ec2nodeclasses"), "EC2NodeClass", Box::new(|_, _| ())),
    ];
    for (resource, kind, tell) in followed {
        parts.spawn_local(mirror.follow(client.clone(), &resource, kind, changed.clone(), tell));
    }
}

/// Whether the instance behind a provider id exists, for whoever may be kept waiting for the answer.
pub(crate) fn instance_exists(account: &Account) -> impl AsyncFn(&str) -> bool + use<> {
    let exists = account.instance_exists();
    async move |provider_id: &str| exists(provider_id)
}

/// What AWS's cloud controller does: a node that is not ready and whose instance is gone is deleted.
pub(crate) async fn remove_dead_nodes(client: kube::Client, exists: impl AsyncFn(&str) -> bool) -> anyhow::Result<()> {
    let api = Api::<Node>::all(client);
    loop {
        tokio::time::sleep(NODE_MONITOR_PERIOD).await;
        // Whoever cannot look now looks again.
        let Ok(nodes) = api.list(&ListParams::default()).await else { continue };
        for node in nodes {
            let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
            if !crate::things::is_ready(&node) && !exists(&provider_id).await {
                let _ = api.delete(&node.name_any(), &DeleteParams::default()).await;
            }
        }
    }
}

#[async_trait::async_trait(?Send)]
impl Backend for RealTime {
    fn name(&self) -> &'static str {
        match self.name {
            BackendName::Embedded => "embedded",
            BackendName::Apiserver => "apiserver",
            BackendName::Kind => "kind",
            BackendName::Eks => "eks",
        }
    }

    fn kube(&self) -> kube::Client {
        match &self.api {
            ApiServer::Fake { cluster, .. } => cluster.client("trysquare"),
            ApiServer::Genuine { administrator, .. } => administrator.clone(),
        }
    }

    fn cloud(&self) -> Rc<dyn Cloud> {
        self.api.account().cloud.clone()
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn replica_named(&self, identity: &str) -> Option<usize> {
        let user = self.recorder.holder(identity)?;
        self.replicas.iter().find(|(_, replica)| replica.user == user).map(|(number, _)| *number)
    }

    fn environment(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.environment
    }

    async fn start_controller(&mut self, replica: usize) -> anyhow::Result<()> {
        let user = User::Controller(self.started);
        self.started += 1;
        let kubeconfig = self.folder.path().join(format!("{}.kubeconfig", user.name()));
        std::fs::write(&kubeconfig, self.api.kubeconfig(user, &self.controller).await?)
            .context("writing the controller's kubeconfig")?;
        let [metrics_port, health_port] = free_ports()?;
        let mut environment = self.environment.clone();
        environment.extend(self.credentials(&user.name()).await?);
        environment.insert("KUBECONFIG".into(), kubeconfig.display().to_string());
        environment.insert("METRICS_PORT".into(), metrics_port.to_string());
        environment.insert("HEALTH_PROBE_PORT".into(), health_port.to_string());
        let log = self.folder.path().join(format!("{}.log", user.name()));
        let process = Process::start(&self.program, &environment, log, &self.recorder).await?;
        self.replicas.insert(replica, Replica { user: user.name(), metrics_port, process });
        Ok(())
    }

    async fn kill_controller(&mut self, replica: usize) -> anyhow::Result<()> {
        self.replicas.remove(&replica).with_context(|| format!("replica {replica} does not run"))?.process.kill().await
    }

    async fn replace_controller(&mut self) -> anyhow::Result<()> {
        let other = self.controller.other();
        self.program = Program::of(&other)?;
        self.controller = other;
        let stopped = std::mem::take(&mut self.replicas);
        let numbers: Vec<usize> = stopped.keys().copied().collect();
        anyhow::ensure!(!numbers.is_empty(), "no controller runs that another could follow");
        for mut replica in stopped.into_values() {
            replica.process.stop(STOPPED_WITHIN).await?;
        }
        for number in numbers {
            self.start_controller(number).await?;
        }
        Ok(())
    }

    fn is_controlled(&self) -> bool {
        !self.replicas.is_empty()
    }

    async fn metrics(&self) -> anyhow::Result<String> {
        let mut all = String::new();
        for replica in self.replicas.values() {
            let request = http::Request::get("/metrics").body(Default::default())?;
            let (status, body) = loopback::ask(replica.metrics_port, request).await.context("reading the metrics")?;
            anyhow::ensure!(status.is_success(), "the controller's metrics: {status}");
            all += &String::from_utf8_lossy(&body);
        }
        Ok(all)
    }

    fn is_real_time(&self) -> bool {
        true
    }

    fn check_alive(&self) -> anyhow::Result<()> {
        for (number, replica) in &self.replicas {
            replica.process.check().with_context(|| format!("replica {number} of the controller"))?;
        }
        match self.parts.borrow_mut().try_join_next() {
            None => Ok(()),
            Some(ended) => Err(anyhow!("a part of the cluster ended: {ended:?}")),
        }
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        let Some(logs) = &self.logs else { return };
        let entries = std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in entries.filter(|path| path.extension().is_some_and(|extension| extension == "log")) {
            // The scenario has its result; a log that cannot be kept takes nothing from it.
            let _ = std::fs::create_dir_all(logs).map_err(Into::into).and_then(|()| keep_log(&path, logs));
        }
    }
}
