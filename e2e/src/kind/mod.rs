//! Clusters of the kind program (https://kind.sigs.k8s.io), each a container: a genuine control plane and kubelet, fake-ec2 as a
//! Deployment, and the controller installed by its chart. A cluster is made once and set back between scenarios.
//!
//! Reading order: [`Cluster::start`], [`contents`] (what it holds at first, and how it is set back), [`Access`].

pub(crate) mod contents;

use crate::control_plane::{Definitions, audit, free_ports};
use crate::release::{self, Release};
use crate::tools;
use anyhow::{Context, bail, ensure};
use contents::Contents;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// The port of every node at which fake-ec2 answers; the machine's own port leads there.
const EC2_NODE_PORT: u16 = 30_456;
/// The port of fake-ec2 in its pod.
const EC2_PORT: u16 = 4566;
/// The namespace of fake-ec2.
pub(crate) const EC2_NAMESPACE: &str = "trysquare";
/// Where pods find fake-ec2.
pub(crate) fn in_cluster_ec2_url() -> String {
    format!("http://fake-ec2.{EC2_NAMESPACE}:{EC2_PORT}")
}

/// How long a new cluster may take until its nodes are ready: 20 s on an idle machine.
const READY_WITHIN: &str = "300s";
/// How long a Deployment may take until its pod is ready.
const AVAILABLE_WITHIN: Duration = Duration::from_secs(120);

/// What clusters are made of.
#[derive(Clone, Debug)]
pub struct Clusters {
    /// The kind program.
    pub kind: PathBuf,
    /// The helm program.
    pub helm: PathBuf,
    /// The image of nodes. `None`: the one that belongs to the kind program.
    pub node_image: Option<String>,
    /// The image of the controller.
    pub controller_image: String,
    /// The image of fake-ec2.
    pub ec2_image: String,
    /// The chart.
    pub chart: PathBuf,
    /// The chart, rendered: what it would refuse is told before anything is made.
    pub release: Release,
    /// The definitions that go with the controller.
    pub definitions: Definitions,
    /// The folder of audit logs, one below it for each cluster.
    pub folder: PathBuf,
    /// Whether clusters stay when the run has ended, for the next one.
    pub keep: bool,
}

/// An image of this project, of this version.
pub(crate) fn our_image(name: &str) -> String {
    format!("ghcr.io/trysquare/{name}:{}", env!("CARGO_PKG_VERSION"))
}

/// Where the files of clusters are: they may outlive the process.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    Ok(tools::cache_folder().context("neither XDG_CACHE_HOME nor HOME is set")?.join("kind-clusters"))
}

impl Clusters {
    fn name(number: usize) -> String {
        format!("trysquare-{number}")
    }

    async fn kind(&self, arguments: &[&str], input: Option<&str>) -> anyhow::Result<String> {
        run(&self.kind, arguments, input).await
    }
}

/// How to reach a cluster: all that another process needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Access {
    /// The cluster's name.
    pub name: String,
    /// An administrator's kubeconfig.
    pub kubeconfig: String,
    /// The URL of the API server as nodes reach it.
    pub url: String,
    /// The authority of its certificate, PEM.
    pub certificate_authority_pem: String,
    /// The port of this machine at which fake-ec2 answers.
    pub ec2_port: u16,
    /// The helm program.
    pub helm: PathBuf,
    /// The chart.
    pub chart: PathBuf,
    /// The image of the controller.
    pub controller_image: String,
    /// The folder of its files.
    pub folder: PathBuf,
}

impl Access {
    /// A client that may do everything.
    pub(crate) async fn client(&self) -> anyhow::Result<kube::Client> {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(kube::Client::try_from(config)?)
    }

    /// Where the API server writes its audit log.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.folder.join("audit/audit.log")
    }

    /// The kubeconfig as a file.
    pub(crate) fn kubeconfig_file(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Nothing but the audit log is outside the cluster.
    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        vec![self.audit_log()]
    }

    /// Runs helm with this cluster.
    pub(crate) async fn helm(&self, arguments: &[&str], input: Option<&str>) -> anyhow::Result<String> {
        let file = self.kubeconfig_file();
        let file = file.to_str().context("the path of the kubeconfig is no UTF-8")?;
        run(&self.helm, &[&["--kubeconfig", file, "--namespace", release::NAMESPACE], arguments].concat(), input).await
    }
}

/// A running cluster.
pub struct Cluster {
    access: Access,
    contents: Contents,
    kind: PathBuf,
    keep: bool,
}

impl Cluster {
    /// Makes a cluster, or takes the one of its name that is there.
    ///
    /// # Errors
    /// Where kind cannot make it, or something does not become ready, with what was said last.
    pub async fn start(of: &Clusters, number: usize) -> anyhow::Result<Self> {
        let name = Clusters::name(number);
        let there = of.kind(&["get", "clusters"], None).await?;
        if there.lines().any(|line| line == name) {
            match Self::filled(of, &name).await {
                // Whatever it cannot forget goes with it.
                Err(_) => delete(&of.kind, &name),
                cluster => return cluster,
            }
        }
        create(of, &name).await.with_context(|| format!("making the kind cluster {name}"))?;
        Self::filled(of, &name).await
    }

    async fn filled(of: &Clusters, name: &str) -> anyhow::Result<Self> {
        let access = access(of, name).await?;
        load(of, name, &of.controller_image).await?;
        let ec2_image_id = load(of, name, &of.ec2_image).await?;
        let contents = Contents::install(&access, of, &ec2_image_id.unwrap_or_default()).await?;
        Ok(Self { access, contents, kind: of.kind.clone(), keep: of.keep })
    }

    /// Lets it go with its owner, whatever was asked for: it is not as it was.
    pub(crate) fn spoil(&mut self) {
        self.keep = false;
    }

    /// How to reach it.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Sets it back to what it held before the first scenario.
    pub async fn reset(&mut self) -> anyhow::Result<()> {
        self.contents.set_back(&self.access).await
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.keep {
            delete(&self.kind, &self.access.name);
            let _ = std::fs::remove_dir_all(&self.access.folder);
        }
    }
}

/// Clusters that were made and are not deleted yet, for whoever ends the run early: containers outlive the process.
static MADE: Mutex<Vec<(PathBuf, String)>> = Mutex::new(Vec::new());

/// Deletes every cluster that this process has made.
pub(crate) fn delete_all() {
    let made = std::mem::take(&mut *MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    for (kind, name) in made {
        delete(&kind, &name);
    }
}

fn delete(kind: &Path, name: &str) {
    MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).retain(|(_, made)| made != name);
    // What cannot be deleted is named by `kind get clusters`, and taken by the next run.
    let _ = std::process::Command::new(kind)
        .args(["delete", "cluster", "--quiet", "--name", name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

async fn create(of: &Clusters, name: &str) -> anyhow::Result<()> {
    let folder = of.folder.join(name);
    let audit = folder.join("audit");
    std::fs::create_dir_all(&audit).with_context(|| format!("cannot make the folder {}", audit.display()))?;
    // It is this user's and not root's, whose the API server's would be.
    std::fs::File::create(audit.join("audit.log")).context("making the audit log")?;
    let policy = folder.join("audit-policy.yaml");
    std::fs::write(&policy, audit::POLICY).with_context(|| format!("cannot write {}", policy.display()))?;
    let [port] = free_ports()?;
    let configuration = configuration(of.node_image.as_deref(), &audit, &policy, port);
    if !of.keep {
        let made = (of.kind.clone(), name.to_owned());
        MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(made);
    }
    let kubeconfig = folder.join("kubeconfig");
    let kubeconfig = kubeconfig.to_str().context("the path of the kubeconfig is no UTF-8")?;
    let arguments =
        ["create", "cluster", "--name", name, "--config", "-", "--wait", READY_WITHIN, "--kubeconfig", kubeconfig];
    of.kind(&arguments, Some(&configuration.to_string())).await.map(drop)
}

/// The cluster as kind makes it: the API server's audit log lies in a folder of this machine, and a port leads to fake-ec2.
fn configuration(node_image: Option<&str>, audit: &Path, policy: &Path, ec2_port: u16) -> Value {
    let arguments = [
        ("audit-policy-file", "/etc/trysquare/audit-policy.yaml"),
        ("audit-log-path", "/var/log/trysquare/audit.log"),
        ("audit-log-maxsize", "100000"),
    ];
    let volume = |name: &str, path: &str, read_only: bool, kind: &str| json!({"name": name, "hostPath": path, "mountPath": path, "readOnly": read_only, "pathType": kind});
    let patch = json!({
        "kind": "ClusterConfiguration",
        "apiServer": {
            "extraArgs": arguments.map(|(name, value)| json!({"name": name, "value": value})),
            "extraVolumes": [
                volume("trysquare-audit-policy", "/etc/trysquare/audit-policy.yaml", true, "File"),
                volume("trysquare-audit-log", "/var/log/trysquare", false, "DirectoryOrCreate"),
            ],
        },
        // It annotates each Node whenever it gets to it, for the caches of kubelets: no two runs would be equal.
        "controllerManager": {"extraArgs": [{"name": "controllers", "value": "*,-ttl-controller"}]},
    });
    let mut node = json!({
        "role": "control-plane",
        "extraMounts": [
            {"hostPath": audit, "containerPath": "/var/log/trysquare"},
            {"hostPath": policy, "containerPath": "/etc/trysquare/audit-policy.yaml", "readOnly": true},
        ],
        "extraPortMappings": [{"containerPort": EC2_NODE_PORT, "hostPort": ec2_port, "listenAddress": "127.0.0.1"}],
        "kubeadmConfigPatches": [patch.to_string()],
    });
    if let Some(image) = node_image {
        node["image"] = json!(image);
    }
    json!({
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"kubeProxyMode": "nftables"},
        "nodes": [node],
    })
}

async fn access(of: &Clusters, name: &str) -> anyhow::Result<Access> {
    let folder = of.folder.join(name);
    let kubeconfig = of.kind(&["get", "kubeconfig", "--name", name], None).await?;
    let inside = of.kind(&["get", "kubeconfig", "--internal", "--name", name], None).await?;
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let access = Access {
        url: text_of(&inside, "/clusters/0/cluster/server")?,
        certificate_authority_pem: pem(&text_of(&kubeconfig, "/clusters/0/cluster/certificate-authority-data")?)?,
        kubeconfig,
        ec2_port: ec2_port(name).await?,
        helm: of.helm.clone(),
        chart: of.chart.clone(),
        controller_image: of.controller_image.clone(),
        name: name.to_owned(),
        folder,
    };
    std::fs::write(access.kubeconfig_file(), &access.kubeconfig).context("writing the kubeconfig")?;
    Ok(access)
}

fn text_of(yaml: &str, pointer: &str) -> anyhow::Result<String> {
    let value: Value = serde_yaml_ng::from_str(yaml).context("the kubeconfig of kind")?;
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.map(str::to_owned).with_context(|| format!("the kubeconfig of kind has no {pointer}"))
}

fn pem(base64_text: &str) -> anyhow::Result<String> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64_text).context("the authority of kind")?;
    String::from_utf8(bytes).context("the authority of kind")
}

/// The port of this machine that leads to fake-ec2, also of a cluster that was there before.
async fn ec2_port(name: &str) -> anyhow::Result<u16> {
    let container = format!("{name}-control-plane");
    let answer = run(Path::new("docker"), &["port", &container, &format!("{EC2_NODE_PORT}/tcp")], None).await?;
    let port = answer.lines().next().and_then(|line| line.rsplit(':').next()).and_then(|port| port.trim().parse().ok());
    port.with_context(|| {
        format!("the cluster {name} was made by somebody else: no port leads to its {EC2_NODE_PORT}; delete it with `kind delete cluster --name {name}`")
    })
}

/// Gives the node an image of this machine, and answers its id. What is not here, the node fetches.
async fn load(of: &Clusters, name: &str, image: &str) -> anyhow::Result<Option<String>> {
    let inspect = ["image", "inspect", "--format", "{{.Id}}", image];
    let Ok(id) = run(Path::new("docker"), &inspect, None).await else { return Ok(None) };
    of.kind(&["load", "docker-image", "--name", name, image], None)
        .await
        .with_context(|| format!("loading the image {image} into {name}"))?;
    Ok(Some(id.trim().to_owned()))
}

/// Runs a program to its end and answers what it printed.
pub(crate) async fn run(program: &Path, arguments: &[&str], input: Option<&str>) -> anyhow::Result<String> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot start {name}; is it installed?"))?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        // A program that ends before it has read everything says why.
        let _ = pipe.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{name} {}` ended with {}: {}",
        arguments.join(" "),
        output.status,
        last(&said, 8)
    );
    String::from_utf8(output.stdout).with_context(|| format!("what {name} printed"))
}

fn last(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Waits until something holds.
pub(crate) async fn wait(
    what: &str,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<String>>,
) -> anyhow::Result<()> {
    let started = tokio::time::Instant::now();
    loop {
        let Some(seen) = look().await? else { return Ok(()) };
        if started.elapsed() > AVAILABLE_WITHIN {
            bail!("{what}: not within {AVAILABLE_WITHIN:?}; {seen}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_tells_its_audit_log_and_leads_to_fake_ec2() {
        let made = configuration(Some("node:1"), Path::new("/a/audit"), Path::new("/a/policy.yaml"), 20_001);
        let node = &made["nodes"][0];
        assert_eq!(node["image"], "node:1");
        assert_eq!(node["extraMounts"][0]["hostPath"], "/a/audit");
        assert_eq!(
            node["extraPortMappings"][0],
            json!({"containerPort": 30456, "hostPort": 20001, "listenAddress": "127.0.0.1"})
        );
        let patch: Value = serde_json::from_str(node["kubeadmConfigPatches"][0].as_str().unwrap()).unwrap();
        assert_eq!(
            patch["apiServer"]["extraArgs"][1],
            json!({"name": "audit-log-path", "value": "/var/log/trysquare/audit.log"})
        );
        assert!(configuration(None, Path::new("/a"), Path::new("/b"), 1)["nodes"][0].get("image").is_none());
    }
}
