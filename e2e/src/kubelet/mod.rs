//! The kubelets of all instances: reads what the controller wrote as user data, boots, joins the cluster if it may, and
//! runs and ends the pods bound to it. Every backend but EKS uses it.
//!
//! One task plays all kubelets. A wrong bootstrap means a node that never joins, as in life. Simplified: heartbeats only
//! where somebody looks for them ([`Pace::heartbeat`]), no images (a container starts after a fixed time), no probes (a
//! started container is ready). A container runs until it is stopped,
//! unless its command is `sleep` and a number of seconds.

mod node;
mod pods;
mod user_data;

use crate::recorder::Recorder;
use anyhow::Context;
use controller_clock::Clock;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// How fast kubelets are.
#[derive(Clone, Debug)]
pub struct Pace {
    /// From launch to registration at the shortest.
    pub boot_shortest: Duration,
    /// The slowest boot.
    pub boot_longest: Duration,
    /// From registration to Ready: the network plugin's start.
    pub ready_after: Duration,
    /// From binding to running containers, the image being there.
    pub pod_start: Duration,
    /// How long a container takes to stop when asked, after a `preStop` sleep if it has one.
    pub pod_stop: Duration,
    /// How often a kubelet renews its Lease. `None`: never; whoever dies is reported by the kubelets' task itself, after the
    /// grace period that a node lifecycle controller would give it.
    pub heartbeat: Option<Duration>,
}

impl Default for Pace {
    /// As in life: an AL2023 image on a current type takes about half a minute.
    fn default() -> Self {
        Self {
            boot_shortest: Duration::from_secs(20),
            boot_longest: Duration::from_secs(45),
            ready_after: Duration::from_secs(3),
            pod_start: Duration::from_secs(2),
            pod_stop: Duration::from_secs(1),
            heartbeat: None,
        }
    }
}

impl Pace {
    /// For those who wait in real time.
    pub fn quick() -> Self {
        Self {
            boot_shortest: Duration::from_secs(3),
            boot_longest: Duration::from_secs(5),
            ready_after: Duration::from_secs(1),
            pod_start: Duration::from_secs(1),
            ..Self::default()
        }
    }
}

/// How soon a request that failed is sent again.
const RETRY: Duration = Duration::from_secs(1);
/// How often a kubelet that is not admitted tries again.
const JOIN_RETRY: Duration = Duration::from_secs(10);
/// From the last heartbeat to Ready `Unknown`: the node lifecycle controller's grace period (--node-monitor-grace-period).
const NODE_MONITOR_GRACE_PERIOD: Duration = Duration::from_secs(50);

/// An instance, with all that its operating system could read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The instance's id.
    pub id: String,
    /// Whether it runs; a kubelet lives only as long as it does.
    pub running: bool,
    /// The instance type.
    pub instance_type: String,
    /// `amd64` or `arm64`.
    pub architecture: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The region's name.
    pub region: String,
    /// The zone's name.
    pub zone: String,
    /// The zone's id.
    pub zone_id: String,
    /// The private DNS name, which becomes the node's name.
    pub private_dns_name: String,
    /// The private address.
    pub private_ip: String,
    /// The user data, decoded.
    pub user_data: String,
    /// The role of its instance profile.
    pub role: String,
    /// When it was launched.
    pub launched_at: Timestamp,
}

/// The kubelets' view of a cloud.
#[async_trait::async_trait(?Send)]
pub trait Machines {
    /// Every instance that runs or is about to.
    async fn machines(&self) -> anyhow::Result<Vec<Machine>>;

    /// Returns when something may have changed since the last call. May return early, never too late.
    async fn changed(&self) -> anyhow::Result<()>;

    /// Whether the cluster admits nodes with this role by an access entry.
    async fn admits(&self, role: &str) -> anyhow::Result<bool>;
}

/// What runs pods in the place of playing them.
pub trait Runtime {
    /// Whether this pod is one of its own. All others are played.
    fn takes(&self, pod: &Pod) -> bool;

    /// One of its own was bound to a node whose kubelet lives, or has changed since.
    fn changed(&self, pod: &Pod);

    /// The pod of this uid is not there any more.
    fn gone(&self, uid: &str);

    /// The machine of a node has ended, and with it whatever ran on it.
    fn machine_ended(&self, node: &str);
}

/// What a kubelet compares its bootstrap with: the cluster it runs beside.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The cluster's name.
    pub name: String,
    /// The API server's URL.
    pub endpoint: String,
    /// The certificate authority of the API server, base64.
    pub certificate_authority: String,
    /// The kubelets' version.
    pub version: String,
}

/// The kubelets of all instances.
pub struct Kubelets {
    kube: kube::Client,
    machines: Rc<dyn Machines>,
    clock: Clock,
    cluster: Cluster,
    seed: u64,
    pace: Pace,
    recorder: Recorder,
    runtime: Option<Rc<dyn Runtime>>,
    nodes: BTreeMap<String, Kubelet>,
    pods: BTreeMap<String, PodState>,
    due: BTreeMap<(Instant, u64), Due>,
    next_timer: u64,
}

/// How far an instance is on its way to being a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kubelet {
    /// Its operating system starts.
    Booting(Box<Machine>),
    /// It registered under this name.
    Joined { node: String },
    /// It cannot join: its user data is wrong.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PodState {
    uid: String,
    node: String,
    stopping: bool,
}

/// What is due at an instant.
#[derive(Clone, Debug)]
enum Due {
    Join { instance: String },
    Ready { node: String },
    Start { pod: String, uid: String },
    Ended { pod: String, uid: String },
    Stopped { pod: String, uid: String },
    Unknown { node: String },
    Heartbeat { node: String },
}

impl Kubelets {
    /// Kubelets for every instance of a cloud.
    pub fn new(
        kube: kube::Client,
        machines: Rc<dyn Machines>,
        clock: Clock,
        cluster: Cluster,
        seed: u64,
        pace: Pace,
        recorder: Recorder,
    ) -> Self {
        let (nodes, pods, due) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let runtime = None;
        Self { kube, machines, clock, cluster, seed, pace, recorder, runtime, nodes, pods, due, next_timer: 0 }
    }

    /// Lets some pods run.
    pub fn with_runtime(mut self, runtime: Option<Rc<dyn Runtime>>) -> Self {
        self.runtime = runtime;
        self
    }

    /// Plays the kubelets until dropped.
    pub async fn run(mut self) -> anyhow::Result<()> {
        let pods = watcher(Api::<Pod>::all(self.kube.clone()), watcher::Config::default()).default_backoff();
        let mut pods = std::pin::pin!(pods);
        let machines = self.machines.clone();
        self.look_at_machines().await?;
        loop {
            let next = self.due.first_key_value().map(|((at, _), _)| *at);
            let timer = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                event = pods.next() => match event.context("the watch on pods ended")? {
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) => self.pod_changed(&pod),
                    Ok(Event::Delete(pod)) => self.pod_gone(&pod),
                    Ok(Event::Init | Event::InitDone) => {}
                    // The watch is resumed with back-off; what it missed is listed again.
                    Err(error) => self.recorder.tell("kubelet", format_args!("watch on pods: {error}")),
                },
                changed = machines.changed() => {
                    changed?;
                    self.look_at_machines().await?;
                }
                () = timer => {
                    if let Some((_, due)) = self.due.pop_first()
                        && let Err(error) = self.carry_out(due.clone()).await
                    {
                        // A kubelet outlives an API server that refuses or is away.
                        self.recorder.tell("kubelet", format_args!("{error:#}; tried again in {RETRY:?}"));
                        self.after(RETRY, due);
                    }
                }
            }
        }
    }

    fn after(&mut self, wait: Duration, due: Due) {
        self.next_timer += 1;
        self.due.insert((Instant::now() + wait, self.next_timer), due);
    }

    /// New instances begin to boot; a kubelet whose instance no longer runs falls silent.
    async fn look_at_machines(&mut self) -> anyhow::Result<()> {
        let machines: BTreeMap<String, Machine> =
            self.machines.machines().await?.into_iter().map(|m| (m.id.clone(), m)).collect();
        let gone: Vec<String> =
            self.nodes.keys().filter(|id| !machines.get(*id).is_some_and(|m| m.running)).cloned().collect();
        for id in gone {
            if let Some(Kubelet::Joined { node }) = self.nodes.remove(&id) {
                self.recorder.tell("kubelet", format_args!("{node}: its instance {id} no longer runs"));
                self.pods.retain(|_, pod| pod.node != node);
                if let Some(runtime) = &self.runtime {
                    runtime.machine_ended(&node);
                }
                // A node lifecycle controller that sees no heartbeats any more says so itself.
                if self.pace.heartbeat.is_none() {
                    self.after(NODE_MONITOR_GRACE_PERIOD, Due::Unknown { node });
                }
            }
        }
        for (id, machine) in machines {
            if machine.running && !self.nodes.contains_key(&id) {
                let since_launch =
                    Duration::try_from(self.clock.now().duration_since(machine.launched_at)).unwrap_or_default();
                self.after(self.boot_time(&id).saturating_sub(since_launch), Due::Join { instance: id.clone() });
                self.nodes.insert(id, Kubelet::Booting(Box::new(machine)));
            }
        }
        Ok(())
    }

    /// The same seed and instance always boot in the same time.
    fn boot_time(&self, instance: &str) -> Duration {
        let digest = Sha256::digest(format!("boot|{}|{instance}", self.seed));
        let random = u64::from_le_bytes(digest[..8].try_into().expect("a digest has 32 bytes"));
        let range_ms = (self.pace.boot_longest - self.pace.boot_shortest).as_millis() as u64;
        self.pace.boot_shortest + Duration::from_millis(random % (range_ms + 1))
    }

    async fn carry_out(&mut self, due: Due) -> anyhow::Result<()> {
        match due {
            Due::Join { instance } => self.join(&instance).await,
            Due::Ready { node } => self.set_ready(&node, node::READY, "").await,
            Due::Unknown { node } => self.set_ready(&node, node::UNKNOWN, "Kubelet stopped posting node status.").await,
            Due::Heartbeat { node } => self.heartbeat(node).await,
            Due::Start { pod, uid } => self.start_pod(&pod, &uid).await,
            Due::Ended { pod, uid } => self.end_pod(&pod, &uid).await,
            Due::Stopped { pod, uid } => self.remove_pod(&pod, &uid).await,
        }
    }

    async fn join(&mut self, instance: &str) -> anyhow::Result<()> {
        let Some(Kubelet::Booting(machine)) = self.nodes.get(instance).cloned() else { return Ok(()) };
        let bootstrap = user_data::parse(&machine.user_data)
            .and_then(|bootstrap| bootstrap.check(&self.cluster).map(|()| bootstrap));
        let bootstrap = match bootstrap {
            Ok(bootstrap) => bootstrap,
            Err(reason) => {
                self.recorder.tell("kubelet", format_args!("{instance} never joins: {reason}"));
                self.nodes.insert(instance.to_owned(), Kubelet::Lost);
                return Ok(());
            }
        };
        if !self.machines.admits(&machine.role).await? && !self.mapped_by_aws_auth(&machine.role).await? {
            self.recorder
                .tell("kubelet", format_args!("{instance}: Unauthorized: role {:?} has no access entry", machine.role));
            self.after(JOIN_RETRY, Due::Join { instance: instance.to_owned() });
            return Ok(());
        }
        let node = node::registered(&machine, &bootstrap, &self.cluster, self.clock.now());
        let name = node.name_any();
        match Api::<Node>::all(self.kube.clone()).create(&PostParams::default(), &node).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error).with_context(|| format!("registering node {name}")),
        }
        self.recorder.tell("kubelet", format_args!("{name} registered ({}, {})", machine.instance_type, machine.zone));
        self.nodes.insert(instance.to_owned(), Kubelet::Joined { node: name.clone() });
        self.after(self.pace.ready_after, Due::Ready { node: name.clone() });
        if self.pace.heartbeat.is_some() {
            self.after(Duration::ZERO, Due::Heartbeat { node: name });
        }
        Ok(())
    }

    /// Whether the ConfigMap `kube-system/aws-auth` maps the role, the way before access entries.
    async fn mapped_by_aws_auth(&self, role: &str) -> anyhow::Result<bool> {
        let map = Api::<ConfigMap>::namespaced(self.kube.clone(), "kube-system").get_opt("aws-auth").await?;
        let roles = map.and_then(|map| map.data?.remove("mapRoles")).unwrap_or_default();
        let maps_role = |line: &str| {
            line.trim_start_matches([' ', '-'])
                .strip_prefix("rolearn:")
                .is_some_and(|arn| arn.trim().ends_with(&format!(":role/{role}")))
        };
        Ok(roles.lines().any(maps_role))
    }

    async fn set_ready(&mut self, name: &str, (status, reason): (&str, &str), message: &str) -> anyhow::Result<()> {
        let patch = node::ready_patch(status, reason, message, self.clock.now());
        let api = Api::<Node>::all(self.kube.clone());
        match api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error).with_context(|| format!("status of node {name}")),
        }
    }

    /// Renews the node's Lease, which tells a node lifecycle controller that the kubelet lives.
    async fn heartbeat(&mut self, node: String) -> anyhow::Result<()> {
        let Some(interval) = self.pace.heartbeat.filter(|_| self.is_joined(&node)) else { return Ok(()) };
        let lease = serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": node, "namespace": "kube-node-lease"},
            "spec": {
                "holderIdentity": node,
                "leaseDurationSeconds": 40,
                "renewTime": self.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
            },
        });
        let api = Api::<Lease>::namespaced(self.kube.clone(), "kube-node-lease");
        api.patch(&node, &PatchParams::apply("kubelet").force(), &Patch::Apply(lease))
            .await
            .with_context(|| format!("lease of node {node}"))?;
        self.after(interval, Due::Heartbeat { node });
        Ok(())
    }

    fn is_joined(&self, node: &str) -> bool {
        self.nodes.values().any(|kubelet| matches!(kubelet, Kubelet::Joined { node: joined } if joined == node))
    }
}
