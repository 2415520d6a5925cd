//! Kubernetes, EC2, kubelets and the controller in one process and one thread, in virtual time. Needs nothing; nothing in it
//! touches a socket or a file.

use super::{Backend, CONTROLLER};
use crate::chronicle::follow;
use crate::cloud::Cloud;
use crate::fake_cluster::{self, CLUSTER, FakeCluster, Options, REGION, aws_call, kube_call};
use crate::invariants::{self, Invariants, Seen};
use crate::recorder::{Call, Recorder};
use crate::story;
use anyhow::{Context, anyhow};
use controller::RunHandles;
use controller_api::labels;
use controller_clock::Clock;
use controller_core::quantity::Quantity;
use fake_ec2::FakeEc2;
use fake_kube::{ApiClient, FakeKube, ListSelector, Resource, resources};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The instant at which every scenario begins.
const EPOCH: &str = "2026-01-01T00:00:00Z";
/// At most this often are the invariants looked at. They are about seconds and minutes; a look is a walk over everything.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often they are looked at where nothing changes.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(60);

/// The embedded cluster.
pub struct Embedded {
    cluster: FakeCluster,
    clock: Clock,
    /// The environment of the controller, as its Deployment would set it.
    environment: BTreeMap<String, String>,
    replicas: BTreeMap<usize, Replica>,
    /// How many replicas were started so far: each has a name of its own, as each pod of a Deployment has.
    started: usize,
    /// What runs in the cluster. Dropping it ends it.
    parts: JoinSet<anyhow::Result<()>>,
}

struct Replica {
    identity: String,
    run: JoinSet<anyhow::Result<()>>,
    handles: RunHandles,
}

impl Embedded {
    /// Sets the stage of a scenario. The controller is not started.
    pub async fn start(
        seed: u64,
        families: Vec<String>,
        recorder: Recorder,
        invariants: Invariants,
    ) -> anyhow::Result<Self> {
        let epoch: Timestamp = EPOCH.parse().context("the epoch")?;
        let clock = Clock::virtual_from(epoch);
        recorder.set_clock(clock.clone());
        let options =
            Options { clock: clock.clone(), seed, region: REGION.into(), families, served: None, journal_entries: 0 };
        let cluster = FakeCluster::new(options);
        let changed = Arc::new(Notify::new());
        observe_kube(&cluster.kube, recorder.clone(), changed.clone());
        observe_ec2(&cluster.ec2, recorder.clone(), changed.clone());
        let mut parts = cluster.start(&recorder)?;
        let chronicle = cluster.kube.client("chronicle");
        parts.spawn_local(follow(&chronicle, &cluster.ec2, clock.clone(), recorder.chronicler().clone()));
        let watcher = Watcher {
            kube: cluster.kube.client("invariants"),
            ec2: cluster.ec2.clone(),
            clock: clock.clone(),
            recorder,
        };
        parts.spawn_local(async move {
            loop {
                // After a change, and now and then without one: some rules are about time alone.
                let _ = tokio::time::timeout(LOOK_AT_LEAST_EVERY, changed.notified()).await;
                invariants.look(&watcher.seen());
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        let environment = cluster.controller_environment();
        Ok(Self { cluster, clock, environment, replicas: BTreeMap::new(), started: 0, parts })
    }
}

#[async_trait::async_trait(?Send)]
impl Backend for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn kube(&self) -> kube::Client {
        self.cluster.client("trysquare")
    }

    fn cloud(&self) -> Rc<dyn Cloud> {
        self.cluster.cloud.clone()
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn replica_named(&self, identity: &str) -> Option<usize> {
        self.replicas.iter().find(|(_, replica)| replica.identity == identity).map(|(number, _)| *number)
    }

    fn set_environment(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => drop(self.environment.insert(name.to_owned(), value.to_owned())),
            None => drop(self.environment.remove(name)),
        }
    }

    fn place_controller(&mut self, node: &str) {
        self.set_environment("NODE_NAME", Some(node));
    }

    async fn start_controller(&mut self, replica: usize) -> anyhow::Result<()> {
        self.started += 1;
        let identity = format!("karpenter-{}", self.started);
        let settings = fake_cluster::controller_settings(&self.environment, &identity)?;
        let clients = self.cluster.aws_clients().await?;
        let handles = RunHandles::default();
        let mut run = JoinSet::new();
        let shutdown = CancellationToken::new();
        run.spawn_local(controller::run_with(
            settings,
            self.cluster.client(CONTROLLER),
            clients,
            self.clock.clone(),
            shutdown,
            handles.clone(),
        ));
        self.replicas.insert(replica, Replica { identity, run, handles });
        Ok(())
    }

    async fn kill_controller(&mut self, replica: usize) -> anyhow::Result<()> {
        let mut killed = self.replicas.remove(&replica).with_context(|| format!("replica {replica} does not run"))?;
        killed.run.shutdown().await;
        Ok(())
    }

    fn is_controlled(&self) -> bool {
        !self.replicas.is_empty()
    }

    async fn metrics(&self) -> anyhow::Result<String> {
        Ok(self.replicas.values().map(|replica| replica.handles.metrics.text()).collect())
    }

    fn check_alive(&mut self) -> anyhow::Result<()> {
        for (number, replica) in &mut self.replicas {
            match replica.run.try_join_next() {
                None => {}
                Some(Ok(Ok(()))) => return Err(anyhow!("replica {number} of the controller ended by itself")),
                Some(Ok(Err(error))) => return Err(error.context(format!("replica {number} of the controller ended"))),
                Some(Err(error)) => return Err(anyhow!(error).context(format!("replica {number} of the controller"))),
            }
        }
        match self.parts.try_join_next() {
            None => Ok(()),
            Some(ended) => Err(anyhow!("a part of the embedded cluster ended: {ended:?}")),
        }
    }
}

fn observe_kube(kube: &FakeKube, recorder: Recorder, changed: Arc<Notify>) {
    kube.observe(Box::new(move |entry| {
        record(&recorder, &kube_call(entry));
        // A lease is renewed every two seconds and is no rule's concern: a quiet month would be looked at a million times.
        if !matches!(entry.verb, "get" | "list" | "watch") && !entry.path.contains("/leases/") {
            changed.notify_one();
        }
    }));
}

fn observe_ec2(ec2: &FakeEc2, recorder: Recorder, changed: Arc<Notify>) {
    ec2.cloud().observe(Box::new(move |entry| {
        record(&recorder, &aws_call(entry));
        changed.notify_one();
    }));
}

fn record(recorder: &Recorder, call: &Call) {
    recorder.call(call);
    if let Some((source, line)) = story::line(call) {
        recorder.tell(source, line);
    }
}

/// Reads the state that the invariants are about, from the fakes directly: it leaves no trace in the journal.
struct Watcher {
    kube: ApiClient,
    ec2: FakeEc2,
    clock: Clock,
    recorder: Recorder,
}

impl Watcher {
    fn list(&self, resource: &Resource) -> Vec<Arc<Value>> {
        self.kube.list(resource, None, &ListSelector::everything())
    }

    fn seen(&self) -> Seen {
        let karpenter = |plural: &'static str| Resource::new(controller_api::GROUP, "v1", plural);
        let classes = self.list(&Resource::new(controller_api::AWS_GROUP, "v1", "ec2nodeclasses"));
        let removals =
            self.recorder.pod_removals().into_iter().filter(|removal| removal.caller.starts_with(CONTROLLER)).collect();
        Seen {
            now: self.clock.now(),
            cluster: CLUSTER.into(),
            claims: self.list(&karpenter("nodeclaims")).iter().map(|claim| claim_of(claim)).collect(),
            pools: self.list(&karpenter("nodepools")).iter().map(|pool| pool_of(pool)).collect(),
            instances: self.ec2.cloud().instances().into_iter().map(instance_of).collect(),
            selected_subnets: classes
                .iter()
                .map(|class| (text(class, "/metadata/name").to_owned(), subnets_of(class)))
                .collect(),
            protected_pods: self
                .list(&resources::PODS)
                .iter()
                .filter(|pod| is_protected(pod))
                .map(|pod| pod_name(pod))
                .collect(),
            removals,
            terminations: self.recorder.terminations(),
        }
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A quantity in thousandths.
fn milli(object: &Value, pointer: &str) -> Option<i64> {
    let value = object.pointer(pointer)?;
    let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    written.parse::<Quantity>().ok().and_then(|quantity| i64::try_from(quantity.milli()).ok())
}

fn condition_is_true(object: &Value, kind: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn claim_of(claim: &Value) -> invariants::Claim {
    let annotations = &claim["metadata"]["annotations"];
    invariants::Claim {
        pool: claim["metadata"]["labels"][labels::NODE_POOL_LABEL].as_str().unwrap_or_default().to_owned(),
        instance: text(claim, "/status/providerID").rsplit('/').next().unwrap_or_default().to_owned(),
        cpu_m: milli(claim, "/status/capacity/cpu").unwrap_or_default(),
        deleting: !text(claim, "/metadata/deletionTimestamp").is_empty(),
        instance_terminating: condition_is_true(claim, "InstanceTerminating"),
        disrupted: condition_is_true(claim, "DisruptionReason"),
        has_deadline: annotations.get("karpenter.sh/nodeclaim-termination-timestamp").is_some(),
    }
}

fn pool_of(pool: &Value) -> invariants::Pool {
    let budgets = pool.pointer("/spec/disruption/budgets").and_then(Value::as_array).cloned().unwrap_or_default();
    let always = budgets.iter().filter(|budget| budget.get("schedule").is_none() && budget.get("reasons").is_none());
    let budget = |budget: &Value| {
        let nodes = text(budget, "/nodes");
        match nodes.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(invariants::Budget::Percent),
            None => nodes.parse().ok().map(invariants::Budget::Nodes),
        }
    };
    invariants::Pool {
        name: text(pool, "/metadata/name").to_owned(),
        cpu_limit_m: milli(pool, "/spec/limits/cpu"),
        budgets: always.filter_map(budget).collect(),
    }
}

fn instance_of(instance: fake_ec2::Instance) -> invariants::Instance {
    invariants::Instance {
        live: matches!(instance.state, fake_ec2::State::Pending | fake_ec2::State::Running),
        tags: instance.tags,
        subnet: instance.subnet_id,
        launched_at: instance.launched_at,
        reclaim_at: instance.reclaim_at,
        id: instance.id,
    }
}

fn subnets_of(class: &Value) -> std::collections::BTreeSet<String> {
    let subnets = class.pointer("/status/subnets").and_then(Value::as_array);
    subnets.into_iter().flatten().map(|subnet| text(subnet, "/id").to_owned()).collect()
}

fn is_protected(pod: &Value) -> bool {
    pod["metadata"]["annotations"][labels::DO_NOT_DISRUPT_ANNOTATION] == "true"
}

fn pod_name(pod: &Value) -> String {
    format!("{}/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))
}
