//! A cluster, a cloud, a kubelet and the controller, all in one process and in virtual time.

use controller::{RunHandles, Settings, config::LeaderElection, metrics::Metrics};
use controller_clock::Clock;
use fake_ec2::{Bootstrap, Config, FakeEc2, Instance, State};
use fake_kube::{ApiClient, DeleteOptions, FakeKube, ListSelector, Options, Resource, actors, resources};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// Everything a test may look at and change.
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) client: ApiClient,
    pub(crate) metrics: Arc<Metrics>,
    kube: FakeKube,
    pub ec2: FakeEc2,
    aws: controller_aws::Clients,
    subnets: Vec<String>,
    writes: Arc<AtomicUsize>,
    _rest: JoinSet<()>,
}

/// A controller that runs. It goes on when this is dropped, until the runtime ends.
pub(crate) struct Controller {
    task: JoinHandle<anyhow::Result<()>>,
    shutdown: CancellationToken,
}

impl Controller {
    /// Ends it where it is, as a crash would.
    pub(crate) fn abort(self) {
        self.task.abort();
    }

    /// What its run ended with.
    pub(crate) async fn outcome(self) -> anyhow::Result<()> {
        tokio::time::timeout(Duration::from_secs(120), self.task).await.expect("it ends").expect("it does not panic")
    }
}

fn node_claims() -> Resource {
    Resource::new("karpenter.sh", "v1", "nodeclaims")
}

impl World {
    pub(crate) async fn new() -> Self {
        // The logs belong to a failing test's diagnosis; the harness shows them only then.
        let logs = tracing_subscriber::fmt().with_test_writer().without_time();
        let _ = logs.with_env_filter("warn,controller=debug,controller_aws=debug").try_init();
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
        let kube = FakeKube::new(Options::new(clock.clone()));
        let ec2 = FakeEc2::new(Config { families: vec!["m5".into()], ..Config::default() }, clock.clone());
        let cloud = ec2.cloud().bootstrap(Bootstrap::named("demo"));
        let client = kube.client("test");
        for crd in controller_api::crds() {
            kube.install_crd(serde_json::to_value(crd).unwrap()).unwrap();
        }
        let class = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": { "name": "default" },
            "spec": {
                "role": cloud.node_role_name,
                "amiSelectorTerms": [{ "alias": "al2023@latest" }],
                "subnetSelectorTerms": [{ "tags": { "karpenter.sh/discovery": "demo" } }],
                "securityGroupSelectorTerms": [{ "tags": { "karpenter.sh/discovery": "demo" } }],
            },
        });
        client.create(&Resource::new("karpenter.k8s.aws", "v1", "ec2nodeclasses"), None, class).unwrap();
        let pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
            "spec": {
                "template": { "spec": {
                    "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                    "requirements": [
                        { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                    ],
                } },
                "disruption": { "consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s" },
            },
        });
        client.create(&Resource::new("karpenter.sh", "v1", "nodepools"), None, pool).unwrap();
        let subnets = cloud.subnet_ids;
        let writes = Arc::new(AtomicUsize::new(0));
        let counter = writes.clone();
        kube.observe(Box::new(move |entry| {
            if entry.verb != "get" && entry.verb != "list" && entry.verb != "watch" {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }));
        let sdk = controller_aws::SdkSettings {
            region: Some("us-west-2".into()),
            http_client: Some(aws_smithy_runtime_api::client::http::SharedHttpClient::new(ec2.http_client())),
            simulated_time: Some(clock.clone()),
            ..controller_aws::SdkSettings::default()
        };
        let aws = controller_aws::Clients::new(sdk).await.unwrap();
        let mut rest = JoinSet::new();
        rest.spawn(actors::run(kube.clone(), actors::Options::default()));
        let cloud = ec2.clone();
        rest.spawn(async move { cloud.run().await });
        rest.spawn(kubelets(kube.client("kubelet"), ec2.clone()));
        Self { clock, client, metrics: Arc::default(), kube, ec2, aws, subnets, writes, _rest: rest }
    }

    /// Starts a replica that takes part in the election.
    pub(crate) fn start(&mut self, identity: &str) -> Controller {
        self.run(Some(LeaderElection::new(identity)))
    }

    /// Starts a controller that does not ask whether it may.
    pub(crate) fn start_without_election(&mut self) -> Controller {
        self.run(None)
    }

    fn run(&mut self, leader_election: Option<LeaderElection>) -> Controller {
        let mut aws = controller_aws::Settings::new("demo");
        aws.interruption_queue = Some("demo".into());
        let settings = Settings { leader_election, ..Settings::new(aws) };
        let kube = kube::Client::new(self.kube.service(), "default");
        let shutdown = CancellationToken::new();
        let handles = RunHandles { metrics: self.metrics.clone() };
        let run = controller::run_with(settings, kube, self.aws.clone(), self.clock.clone(), shutdown.clone(), handles);
        #[allow(clippy::disallowed_methods)] // The test aborts or awaits it by its handle.
        let task = tokio::spawn(run);
        Controller { task, shutdown }
    }

    /// Asks a controller to end and waits until it has.
    pub(crate) async fn stop(&self, controller: Controller) {
        controller.shutdown.cancel();
        controller.outcome().await.expect("it ends in good order");
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until `condition` holds; fails with what there is if it never does.
    pub(crate) async fn eventually(&self, limit: Duration, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + limit;
        while !condition(self) {
            assert!(tokio::time::Instant::now() < deadline, "not in {limit:?}: {what}\n{}", self.describe());
            self.pass(Duration::from_millis(500)).await;
        }
    }

    fn describe(&self) -> String {
        let conditions = |object: &Arc<Value>| {
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let texts = conditions.iter().map(|c| format!("{}={}({})", c["type"], c["status"], c["message"]));
            format!("{}: {}", object["metadata"]["name"], texts.collect::<Vec<_>>().join(" "))
        };
        let mut lines = Vec::new();
        for (group, kind) in
            [("karpenter.k8s.aws", "ec2nodeclasses"), ("karpenter.sh", "nodepools"), ("karpenter.sh", "nodeclaims")]
        {
            lines.extend(self.list(&Resource::new(group, "v1", kind)).iter().map(conditions));
        }
        lines.extend(
            self.nodes()
                .iter()
                .map(|node| format!("node {} {} {}", node["metadata"], node["spec"], node["status"]["conditions"])),
        );
        lines.extend(
            self.list(&resources::PODS)
                .iter()
                .map(|pod| format!("pod {} on {} {}", pod["metadata"]["name"], pod["spec"]["nodeName"], pod["status"])),
        );
        lines.extend(
            self.list(&resources::EVENTS).iter().map(|event| format!("event {} {}", event["reason"], event["message"])),
        );
        lines.extend(self.ec2.cloud().journal().iter().map(|entry| format!("{entry:?}").chars().take(300).collect()));
        lines.join("\n")
    }

    fn list(&self, resource: &Resource) -> Vec<Arc<Value>> {
        self.client.list(resource, None, &ListSelector::default())
    }

    pub(crate) fn node_claims(&self) -> Vec<Arc<Value>> {
        self.list(&node_claims())
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Value>> {
        self.list(&resources::NODES)
    }

    /// The messages of all events with this reason.
    pub(crate) fn events(&self, reason: &str) -> Vec<String> {
        let events = self.list(&resources::EVENTS);
        let found = events.iter().filter(|event| event["reason"] == reason);
        found.filter_map(|event| event["message"].as_str().map(str::to_owned)).collect()
    }

    pub(crate) fn running_instances(&self) -> Vec<Instance> {
        self.ec2.cloud().instances().into_iter().filter(|instance| instance.state == State::Running).collect()
    }

    /// How many pods of a workload run.
    pub(crate) fn running(&self, workload: &str) -> usize {
        let pods = self.list(&resources::PODS);
        pods.iter()
            .filter(|pod| pod["metadata"]["labels"]["app"] == workload && pod["status"]["phase"] == "Running")
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .count()
    }

    /// Changes the NodePool.
    pub(crate) fn change_pool(&self, patch: Value) {
        self.client
            .patch_merge(&Resource::new("karpenter.sh", "v1", "nodepools"), None, "default", patch, None)
            .unwrap();
    }

    /// Takes the discovery tag off every subnet.
    pub(crate) fn lose_subnet_tags(&self) {
        for subnet in &self.subnets {
            self.ec2.cloud().remove_tag(subnet, "karpenter.sh/discovery").unwrap();
        }
    }

    /// Puts it back.
    pub(crate) fn set_subnet_tags(&self) {
        for subnet in &self.subnets {
            self.ec2.cloud().set_tags(subnet, [("karpenter.sh/discovery", "demo")]).unwrap();
        }
    }

    /// The name of the only Node.
    pub(crate) fn node_name(&self) -> String {
        self.nodes()[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }

    /// Writes to the cluster so far.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    pub(crate) fn create_workload(&self, name: &str, replicas: u32, cpu: &str) {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [
                        { "name": "main", "image": "example", "resources": { "requests": { "cpu": cpu } } },
                    ] },
                },
            },
        });
        self.client.create(&resources::DEPLOYMENTS, Some("default"), deployment).unwrap();
    }

    pub(crate) fn scale(&self, name: &str, replicas: u32) {
        let patch = json!({ "spec": { "replicas": replicas } });
        self.client.patch_merge(&resources::DEPLOYMENTS, Some("default"), name, patch, None).unwrap();
    }
}

/// Plays the kubelet of every instance: joins as a Node once it runs, runs and ends the pods bound to it. It takes the
/// Node's labels and capacity from the NodeClaim; the kit's kubelet reads user data instead.
async fn kubelets(client: ApiClient, ec2: FakeEc2) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let claims = client.list(&node_claims(), None, &ListSelector::default());
        for instance in ec2.cloud().instances().iter().filter(|instance| instance.state == State::Running) {
            let provider_id = format!("aws:///{}/{}", instance.zone, instance.id);
            let claim = claims.iter().find(|claim| claim["status"]["providerID"] == provider_id.as_str());
            if let Some(claim) = claim
                && client.get(&resources::NODES, None, &instance.id).is_err()
            {
                join(&client, &instance.id, &provider_id, claim);
            }
        }
        for pod in client.list(&resources::PODS, None, &ListSelector::default()) {
            let (namespace, name) = (pod["metadata"]["namespace"].as_str(), pod["metadata"]["name"].as_str().unwrap());
            if pod["spec"]["nodeName"].is_null() {
                continue;
            }
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
                let _ = client.delete(&resources::PODS, namespace, name, options);
            } else if pod["status"]["phase"] == "Pending" {
                let conditions = json!([
                    { "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": "True" },
                ]);
                let status = json!({ "status": { "phase": "Running", "conditions": conditions } });
                let _ = client.patch_merge(&resources::PODS, namespace, name, status, Some("status"));
            }
        }
    }
}

fn join(client: &ApiClient, name: &str, provider_id: &str, claim: &Value) {
    let mut labels = claim["metadata"]["labels"].clone();
    labels["kubernetes.io/hostname"] = name.into();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
        "spec": {
            "providerID": provider_id,
            "taints": [{ "key": "karpenter.sh/unregistered", "effect": "NoExecute" }],
        },
    });
    client.create(&resources::NODES, None, node).unwrap();
    let status = json!({ "status": {
        "capacity": claim["status"]["capacity"],
        "allocatable": claim["status"]["allocatable"],
        "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
    } });
    client.patch_merge(&resources::NODES, None, name, status, Some("status")).unwrap();
}
