//! Kubernetes, EC2, kubelets and the controller in one process and one thread, in virtual time. Needs nothing; nothing in it
//! touches a socket or a file.

use super::{Backend, CONTROLLER};
use crate::chronicle::follow;
use crate::cloud::{Cloud, FakeCloud};
use crate::invariants::{self, Invariants, Seen};
use crate::kubelet::{Cluster, Kubelets};
use crate::recorder::{Call, Recorder, Wire};
use crate::story;
use anyhow::{Context, anyhow};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use controller::{RunHandles, Settings};
use controller_api::labels;
use controller_clock::Clock;
use controller_core::quantity::Quantity;
use fake_ec2::{Bootstrap, FakeEc2};
use fake_kube::{ApiClient, FakeKube, ListSelector, Resource, resources};
use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use jiff::Timestamp;
use kube::api::DynamicObject;
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
/// The cluster of every scenario.
const CLUSTER: &str = "demo";
const REGION: &str = "us-west-2";
const KUBERNETES_VERSION: &str = "v1.36.3";
/// At most this often are the invariants looked at. They are about seconds and minutes; a look is a walk over everything.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often they are looked at where nothing changes.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(60);

/// What eksctl and the guides leave in a cluster: the address of its DNS, and the DaemonSets of every node.
const STAGE: &str = include_str!("stage.yaml");

/// The embedded cluster.
pub struct Embedded {
    kube: FakeKube,
    ec2: FakeEc2,
    cloud: Rc<FakeCloud>,
    clock: Clock,
    certificate_authority: String,
    replicas: BTreeMap<usize, Replica>,
    /// How many replicas were started so far: each has a name of its own, as each pod of a Deployment has.
    started: usize,
    /// The fakes' own tasks. Dropping them ends them.
    parts: JoinSet<anyhow::Result<()>>,
}

struct Replica {
    identity: String,
    run: JoinSet<anyhow::Result<()>>,
    handles: RunHandles,
}

impl Embedded {
    /// Sets the stage of a scenario. The controller is not started.
    pub async fn start(seed: u64, recorder: Recorder, invariants: Invariants) -> anyhow::Result<Self> {
        let epoch: Timestamp = EPOCH.parse().context("the epoch")?;
        let clock = Clock::virtual_from(epoch);
        recorder.set_clock(clock.clone());
        let changed = Arc::new(Notify::new());
        let kube = FakeKube::new(fake_kube::Options {
            kubernetes_version: KUBERNETES_VERSION.into(),
            seed,
            journal_entries: 0,
            ..fake_kube::Options::new(clock.clone())
        });
        let ec2 = FakeEc2::new(fake_ec2::Config { region: REGION.into(), seed, ..Default::default() }, clock.clone());
        let bootstrap = Bootstrap::named(CLUSTER);
        let cluster = Cluster {
            name: CLUSTER.into(),
            endpoint: bootstrap.endpoint.clone(),
            certificate_authority: bootstrap.certificate_authority.clone(),
            version: KUBERNETES_VERSION.into(),
        };
        let stage = ec2.cloud().bootstrap(bootstrap);
        let cloud = Rc::new(FakeCloud::new(ec2.clone(), clock.clone(), CLUSTER, REGION, stage));
        observe_kube(&kube, recorder.clone(), changed.clone());
        observe_ec2(&ec2, recorder.clone(), changed.clone());
        for crd in controller_api::crds() {
            kube.install_crd(serde_json::to_value(&crd)?)
                .map_err(|status| anyhow!("installing a CRD: {}", status.message))?;
        }
        let certificate_authority = cluster.certificate_authority.clone();
        let (replicas, started, parts) = (BTreeMap::new(), 0, JoinSet::new());
        let mut embedded = Self { kube, ec2, cloud, clock, certificate_authority, replicas, started, parts };
        embedded.start_parts(seed, cluster, recorder.clone(), invariants, changed);
        embedded.apply_stage().await?;
        Ok(embedded)
    }

    fn start_parts(
        &mut self,
        seed: u64,
        cluster: Cluster,
        recorder: Recorder,
        invariants: Invariants,
        changed: Arc<Notify>,
    ) {
        let ec2 = self.ec2.clone();
        self.parts.spawn_local(async move {
            ec2.run().await;
            Ok(())
        });
        let cloud = self.ec2.cloud();
        let exists = move |provider_id: &str| {
            let id = provider_id.rsplit('/').next().unwrap_or_default();
            cloud.instance(id).is_some_and(|instance| instance.state != fake_ec2::State::Terminated)
        };
        let actors = fake_kube::actors::Options { instance_exists: Some(Arc::new(exists)), ..Default::default() };
        let kube = self.kube.clone();
        self.parts.spawn_local(async move {
            fake_kube::actors::run(kube, actors).await;
            Ok(())
        });
        let client = self.client("kubelet");
        let kubelets = Kubelets::new(client, self.cloud.clone(), self.clock.clone(), cluster, seed, recorder.clone());
        self.parts.spawn_local(kubelets.run());
        let chronicle = self.kube.client("chronicle");
        self.parts.spawn_local(follow(&chronicle, &self.ec2, self.clock.clone(), recorder.chronicler().clone()));
        let watcher = Watcher {
            kube: self.kube.client("invariants"),
            ec2: self.ec2.clone(),
            clock: self.clock.clone(),
            recorder,
        };
        self.parts.spawn_local(async move {
            loop {
                // After a change, and now and then without one: some rules are about time alone.
                let _ = tokio::time::timeout(LOOK_AT_LEAST_EVERY, changed.notified()).await;
                invariants.look(&watcher.seen());
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
    }

    /// A client of the API server that goes by this name in the journal.
    fn client(&self, user_agent: &'static str) -> kube::Client {
        let service = tower::ServiceBuilder::new()
            .map_request(move |mut request: Request<kube::client::Body>| {
                request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(user_agent));
                request
            })
            .service(self.kube.service());
        kube::Client::new(service, "default")
    }

    async fn apply_stage(&self) -> anyhow::Result<()> {
        use serde::Deserialize;
        let administrator = self.kube.client("administrator");
        for document in serde_yaml_ng::Deserializer::from_str(STAGE) {
            let object = DynamicObject::deserialize(document)?;
            let types = object.types.clone().context("an object of the stage has no kind")?;
            let (group, version) = types.api_version.rsplit_once('/').unwrap_or(("", &types.api_version));
            let resource =
                Resource::new(group.to_owned(), version.to_owned(), format!("{}s", types.kind.to_lowercase()));
            administrator
                .create(&resource, object.metadata.namespace.as_deref(), serde_json::to_value(&object)?)
                .map_err(|status| anyhow!("setting the stage: {}", status.message))?;
        }
        Ok(())
    }
}

#[async_trait::async_trait(?Send)]
impl Backend for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn kube(&self) -> kube::Client {
        self.client("trysquare")
    }

    fn cloud(&self) -> Rc<dyn Cloud> {
        self.cloud.clone()
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn replica_named(&self, identity: &str) -> Option<usize> {
        self.replicas.iter().find(|(_, replica)| replica.identity == identity).map(|(number, _)| *number)
    }

    async fn start_controller(&mut self, replica: usize) -> anyhow::Result<()> {
        let sdk = controller_aws::SdkSettings {
            region: Some(REGION.into()),
            endpoint_url: Some("http://aws.embedded".into()),
            http_client: Some(SharedHttpClient::new(self.ec2.http_client())),
            credentials: None,
            simulated_time: Some(self.clock.clone()),
        };
        let clients = controller_aws::Clients::new(sdk).await?;
        let mut aws = controller_aws::Settings::new(CLUSTER);
        aws.interruption_queue = Some(CLUSTER.into());
        aws.cluster_ca_bundle = Some(self.certificate_authority.clone());
        aws.eks_control_plane = true;
        let mut settings = Settings::new(aws);
        self.started += 1;
        let identity = format!("karpenter-{}", self.started);
        settings.leader_election = Some(controller::config::LeaderElection::new(identity.as_str()));
        let handles = RunHandles::default();
        let mut run = JoinSet::new();
        let shutdown = CancellationToken::new();
        run.spawn_local(controller::run_with(
            settings,
            self.client(CONTROLLER),
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
        let body = entry.request.bytes();
        let name = format!("{} {}", entry.verb, story::resource(&entry.path));
        record(&recorder, &Call {
            at: entry.at,
            wire: Wire::Kube,
            caller: entry.user_agent.to_string(),
            name,
            request: serde_json::json!({
                "path": entry.path,
                "body": serde_json::from_slice(&body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned())),
            }),
            status: entry.status,
            response: Value::String(String::from_utf8_lossy(&entry.response.bytes()).into_owned()),
        });
        if !matches!(entry.verb, "get" | "list" | "watch") {
            changed.notify_one();
        }
    }));
}

fn observe_ec2(ec2: &FakeEc2, recorder: Recorder, changed: Arc<Notify>) {
    ec2.cloud().observe(Box::new(move |entry| {
        record(
            &recorder,
            &Call {
                at: entry.answered_at,
                wire: Wire::Aws,
                caller: entry.user_agent.clone(),
                name: format!("{}:{}", entry.service.name(), entry.action),
                request: entry.params.clone(),
                status: entry.status,
                response: Value::String(entry.response_text()),
            },
        );
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
