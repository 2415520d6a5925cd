//! A genuine control plane as child processes: etcd, kube-apiserver, kube-scheduler and kube-controller-manager on free
//! ports of the loopback interface, with certificates and tokens of its own. It is started once and then set back between
//! scenarios ([`ControlPlane::reset`]); all of it ends with its owner.
//!
//! Reading order: [`ControlPlane::start`], [`etcd`] (how it is set back), [`audit`] (how its requests are seen).

pub(crate) mod audit;
mod etcd;

use crate::release::{self, Release};
use crate::tied;
use crate::tools::{self, Missing, Tool};
use anyhow::{Context, anyhow, bail};
use base64::Engine as _;
use etcd::{Etcd, Kept};
use fake_kube::ServingCertificate;
use http::HeaderValue;
use http::header::USER_AGENT;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// How long the API server may take to be ready: it takes three seconds, on a busy machine some times that.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// How often other ports are tried where somebody took them between the choice and the start.
const ATTEMPTS: u32 = 3;

/// Where ports are looked for: above those of common servers, below those of clients (Linux: from 32768).
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Who signs the tokens of ServiceAccounts.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

/// The range that EKS takes for Services where the VPC is elsewhere.
const SERVICE_RANGE: &str = "10.100.0.0/16";

/// The programs of a control plane.
#[derive(Clone, Debug)]
pub struct Programs {
    etcd: PathBuf,
    kube_apiserver: PathBuf,
    kube_scheduler: PathBuf,
    kube_controller_manager: PathBuf,
}

impl Programs {
    /// Finds them.
    ///
    /// # Errors
    /// Where one is missing: all that are, by name and version, and how to get them.
    pub fn find() -> Result<Self, Missing> {
        let tools = [Tool::Etcd, Tool::KubeApiserver, Tool::KubeScheduler, Tool::KubeControllerManager];
        let [etcd, kube_apiserver, kube_scheduler, kube_controller_manager] = tools::find_all(tools)?;
        Ok(Self { etcd, kube_apiserver, kube_scheduler, kube_controller_manager })
    }
}

/// Who a client of the API server is. Each has a token; the audit log names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Trysquare itself, and people.
    Administrator,
    /// The kubelets of all nodes.
    Kubelet,
    /// What stands in for AWS's cloud controller.
    CloudController,
    /// A controller under test, by how many were started before it.
    Controller(usize),
}

impl User {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Administrator => "trysquare".into(),
            Self::Kubelet => "kubelet".into(),
            Self::CloudController => "cloud-controller-manager".into(),
            Self::Controller(number) => format!("{}-{}", crate::backend::CONTROLLER, number),
        }
    }
}

/// How to reach a control plane: all that another process needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    /// The API server's URL.
    pub url: String,
    /// The authority of its certificate, PEM.
    pub certificate_authority_pem: String,
    /// The folder of its processes' logs and of the audit log.
    pub folder: PathBuf,
    /// What tokens are derived from.
    secret: String,
}

impl Access {
    fn token(&self, name: &str) -> String {
        hex(&Sha256::digest(format!("{}|{name}", self.secret)))
    }

    /// The token of a user.
    pub(crate) fn token_of(&self, user: User) -> String {
        self.token(&user.name())
    }

    /// A kubeconfig for a user.
    pub fn kubeconfig(&self, user: User) -> String {
        self.kubeconfig_with(user, &self.token_of(user))
    }

    /// A kubeconfig for a user with another token.
    pub(crate) fn kubeconfig_with(&self, user: User, token: &str) -> String {
        kubeconfig(&self.url, &self.certificate_authority_pem, &user.name(), token)
    }

    /// A client of a user.
    pub async fn client(&self, user: User) -> anyhow::Result<kube::Client> {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig(user))?;
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.headers.push((USER_AGENT, HeaderValue::from_str(&user.name())?));
        Ok(kube::Client::try_from(config)?)
    }

    /// Where the API server writes its audit log.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// The logs of the processes.
    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        ["etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"]
            .map(|name| self.folder.join(format!("{name}.log")))
            .into()
    }
}

/// A kubeconfig with one user, who has a token. JSON is YAML, and a kubeconfig either.
pub(crate) fn kubeconfig(server: &str, certificate_authority_pem: &str, user: &str, token: &str) -> String {
    let authority = base64::engine::general_purpose::STANDARD.encode(certificate_authority_pem);
    let configuration = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "trysquare",
        "clusters": [{"name": "trysquare", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "trysquare", "context": {"cluster": "trysquare", "user": user}}],
    });
    format!("{configuration:#}\n")
}

/// Which definitions are installed in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definitions {
    /// None: somebody installs them.
    Nothing,
    /// This project's.
    Ours,
    /// The YAML files of a folder: upstream's.
    Folder(PathBuf),
}

impl Definitions {
    /// The definitions.
    pub fn read(&self) -> anyhow::Result<Vec<CustomResourceDefinition>> {
        let folder = match self {
            Self::Nothing => return Ok(Vec::new()),
            Self::Ours => return Ok(controller_api::crds()),
            Self::Folder(folder) => folder,
        };
        let about = || format!("reading the CRDs in {}", folder.display());
        let entries = std::fs::read_dir(folder).with_context(about)?;
        let mut paths =
            entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().with_context(about)?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        paths.sort();
        let read =
            |path: &PathBuf| -> anyhow::Result<_> { Ok(serde_yaml_ng::from_str(&std::fs::read_to_string(path)?)?) };
        paths.iter().map(|path| read(path).with_context(|| format!("reading the CRD {}", path.display()))).collect()
    }
}

/// A running control plane.
pub struct ControlPlane {
    access: Access,
    etcd: Etcd,
    /// What it holds before the first scenario.
    kept: Kept,
    children: Vec<(&'static str, Child)>,
}

impl ControlPlane {
    /// Starts one in a new folder below `base` and installs the definitions and what every EKS cluster holds. The API server
    /// listens on `port`, or on any that is free. The processes are tied to the calling thread.
    ///
    /// # Errors
    /// Where a program does not run or is not ready in time; with the last lines it wrote.
    pub async fn start(
        programs: &Programs,
        base: &Path,
        definitions: &Definitions,
        port: Option<u16>,
    ) -> anyhow::Result<Self> {
        let mut attempt = 1;
        loop {
            match Self::try_start(programs, base, definitions, port).await {
                Err(error) if attempt < ATTEMPTS && format!("{error:#}").contains("address already in use") => {
                    attempt += 1
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_start(
        programs: &Programs,
        base: &Path,
        definitions: &Definitions,
        port: Option<u16>,
    ) -> anyhow::Result<Self> {
        let folder = new_folder(base)?;
        let [etcd_port, peer_port, free_port] = free_ports()?;
        let port = port.unwrap_or(free_port);
        let certificate = ServingCertificate::generate(&["localhost", "127.0.0.1", "kubernetes.default.svc"], now())?;
        let access = Access {
            url: format!("https://127.0.0.1:{port}"),
            certificate_authority_pem: certificate.certificate_authority_pem().to_owned(),
            folder: folder.clone(),
            secret: hex(&Sha256::digest(certificate.private_key_pem())),
        };
        write_files(&access, &certificate)?;
        let etcd = Etcd::at(etcd_port);
        let mut plane = Self { access, etcd, kept: Kept::default(), children: Vec::new() };
        plane.spawn("etcd", &programs.etcd, &etcd_arguments(&folder, etcd_port, peer_port))?;
        plane.spawn("kube-apiserver", &programs.kube_apiserver, &apiserver_arguments(&folder, etcd_port, port))?;
        let client = plane.access.client(User::Administrator).await?;
        plane
            .wait("the API server is ready", async || {
                let ready = client.request_text(http::Request::get("/readyz").body(Vec::new())?).await;
                Ok(ready.is_ok_and(|text| text == "ok"))
            })
            .await?;
        plane.spawn("kube-scheduler", &programs.kube_scheduler, &scheduler_arguments(&folder))?;
        let manager = manager_arguments(&folder);
        plane.spawn("kube-controller-manager", &programs.kube_controller_manager, &manager)?;
        plane.install(&client, definitions).await?;
        plane.kept = plane.etcd.when_quiet().await?;
        Ok(plane)
    }

    /// How to reach it.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Installs what authorises a controller: from now on that belongs to what it is set back to.
    pub async fn authorise(&mut self, release: &Release) -> anyhow::Result<()> {
        let client = self.access.client(User::Administrator).await?;
        release::authorise(&client, release).await?;
        self.kept = self.etcd.when_quiet().await?;
        Ok(())
    }

    /// Sets it back to what it held before the first scenario, key by key in its store.
    pub async fn reset(&mut self) -> anyhow::Result<()> {
        self.check()?;
        self.etcd.set_back(&self.kept).await?;
        // The API server appends; nobody reads any more what was written.
        let _ = File::options().write(true).truncate(true).open(self.access.audit_log());
        Ok(())
    }

    /// An error where one of its processes has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for (name, child) in &mut self.children {
            if let Some(status) = child.try_wait()? {
                let log = self.access.folder.join(format!("{name}.log"));
                bail!("{name} ended with {status}; it said last: {}", last_lines(&log, 5));
            }
        }
        Ok(())
    }

    fn spawn(&mut self, name: &'static str, program: &Path, arguments: &[String]) -> anyhow::Result<()> {
        let path = self.access.folder.join(format!("{name}.log"));
        let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let arguments: Vec<_> = arguments.iter().map(Into::into).collect();
        let mut command = tied::command(program, &arguments, &BTreeMap::new())?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        self.children.push((name, child));
        Ok(())
    }

    async fn wait(&mut self, what: &str, look: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let started = tokio::time::Instant::now();
        while started.elapsed() < READY_WITHIN {
            self.check()?;
            if look().await? {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let last =
            |path: &PathBuf| format!("{}: {}", path.file_stem().unwrap_or_default().display(), last_lines(path, 3));
        let logs: Vec<String> = self.access.logs().iter().map(last).collect();
        Err(anyhow!("{what}: not within {READY_WITHIN:?}; {}", logs.join("; ")))
    }

    async fn install(&mut self, client: &kube::Client, definitions: &Definitions) -> anyhow::Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        let definitions = definitions.read()?;
        for crd in &definitions {
            crds.create(&PostParams::default(), crd)
                .await
                .with_context(|| format!("installing CRD {}", crd.name_any()))?;
        }
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
        self.wait("the CRDs are established and the namespaces have their service accounts", async || {
            let list = crds.list(&Default::default()).await?;
            let established = list.iter().filter(|crd| is_established(crd)).count();
            Ok(established >= definitions.len() && accounts.get_opt("default").await?.is_some())
        })
        .await?;
        crate::things::manifests::apply_text(client, crate::fake_cluster::STAGE).await.context("setting the stage")?;
        Ok(())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // The store last: the others complain of its absence.
        for (_, child) in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.access.folder);
    }
}

/// Whether the API server has taken a definition up.
pub(crate) fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

#[allow(clippy::disallowed_methods)] // Certificates are about the time of this machine.
fn now() -> Timestamp {
    Timestamp::now()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A folder that nobody else may read: it holds keys.
fn new_folder(base: &Path) -> anyhow::Result<PathBuf> {
    for number in 1.. {
        let path = base.join(format!("control-plane-{number}"));
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path.clone()).with_context(|| format!("cannot make {}", path.display())),
        }
    }
    unreachable!("some number is free")
}

/// Ports that are free now, for programs that are about to take them. They are below those that the kernel gives to clients:
/// one of these may be a connection's the moment after.
pub(crate) fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (first, count) = (u32::from(PORTS.start), u32::from(PORTS.end - PORTS.start));
    // Processes begin at different places, so that two that look at the same time do not find the same.
    let offset = std::process::id().wrapping_mul(61);
    let mut ports = [0; N];
    let mut found = 0;
    for _ in 0..count {
        if found == N {
            return Ok(ports);
        }
        let step = offset.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(first + step % count).unwrap_or(PORTS.start);
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            ports[found] = port;
            found += 1;
        }
    }
    bail!("no port from {} to {} is free", PORTS.start, PORTS.end)
}

/// The last lines of a log.
pub(crate) fn last_lines(path: &Path, count: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() { "nothing".into() } else { lines[lines.len().saturating_sub(count)..].join("\n") }
}

fn write_files(access: &Access, certificate: &ServingCertificate) -> anyhow::Result<()> {
    let write = |name: &str, text: &str| {
        let path = access.folder.join(name);
        std::fs::write(&path, text)
            .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)))
            .with_context(|| format!("cannot write {}", path.display()))
    };
    write("ca.crt", &access.certificate_authority_pem)?;
    write("apiserver.crt", certificate.certificate_pem())?;
    write("apiserver.key", certificate.private_key_pem())?;
    write("audit-policy.yaml", audit::POLICY)?;
    let users = [User::Administrator, User::Kubelet, User::CloudController];
    let users = users.into_iter().chain([User::Controller(0)]).map(User::name);
    // These may do everything. A controller under test has the chart's ServiceAccount instead.
    let administrators = users.map(|name| (name, "system:masters"));
    let own = ["kube-scheduler", "kube-controller-manager"].map(|name| (format!("system:{name}"), "system:masters"));
    let tokens: Vec<String> = administrators
        .chain(own.clone())
        .map(|(name, group)| format!("{},{name},{name},\"{group}\"\n", access.token(&name)))
        .collect();
    write("tokens.csv", &tokens.concat())?;
    for (name, _) in own {
        let text = kubeconfig(&access.url, &access.certificate_authority_pem, &name, &access.token(&name));
        write(&format!("{}.kubeconfig", name.trim_start_matches("system:")), &text)?;
    }
    Ok(())
}

fn etcd_arguments(folder: &Path, port: u16, peer_port: u16) -> Vec<String> {
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // Nothing in it outlives the process.
        "--unsafe-no-fsync".into(),
        "--max-txn-ops=100000".into(),
        "--max-request-bytes=67108864".into(),
        "--log-level=warn".into(),
    ]
}

fn apiserver_arguments(folder: &Path, etcd_port: u16, port: u16) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--cert-dir={}", folder.display()),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=Node,RBAC".into(),
        format!("--service-account-issuer={ISSUER}"),
        // The public half of the same key.
        format!("--service-account-key-file={}", file("apiserver.crt")),
        format!("--service-account-signing-key-file={}", file("apiserver.key")),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--allow-privileged=true".into(),
        "--endpoint-reconciler-type=none".into(),
        format!("--audit-policy-file={}", file("audit-policy.yaml")),
        format!("--audit-log-path={}", file("audit.log")),
        "--audit-log-maxsize=100000".into(),
        "--profiling=false".into(),
    ]
}

fn scheduler_arguments(folder: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", folder.join("kube-scheduler.kubeconfig").display()),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        // A busy machine is no reason to be slow.
        "--kube-api-qps=500".into(),
        "--kube-api-burst=500".into(),
    ]
}

fn manager_arguments(folder: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", folder.join("kube-controller-manager.kubeconfig").display()),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        // A busy machine is no reason to be slow.
        "--kube-api-qps=500".into(),
        "--kube-api-burst=500".into(),
        format!("--service-account-private-key-file={}", folder.join("apiserver.key").display()),
        format!("--root-ca-file={}", folder.join("ca.crt").display()),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        // It annotates each Node whenever it gets to it, for the caches of kubelets: no two runs would be equal.
        "--controllers=*,-ttl-controller".into(),
    ]
}
