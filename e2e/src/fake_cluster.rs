//! fake-kube and fake-ec2 wired together: the API server with its controllers, the account with the stage that a Karpenter
//! user sets before the first node, and a kubelet for every instance. The embedded backend stands on it in virtual time,
//! `trysquare serve` in real time.

use crate::cloud::FakeCloud;
use crate::kubelet::{self, Kubelets};
use crate::recorder::{Call, Recorder, Wire};
use crate::story;
use anyhow::{Context, anyhow};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use controller_clock::Clock;
use fake_ec2::{Bootstrap, FakeEc2, JournalEntry};
use fake_kube::{FakeKube, Resource};
use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The cluster's name, unless somebody asks for another.
pub const CLUSTER: &str = "demo";
/// The region, unless somebody asks for another.
pub const REGION: &str = "us-west-2";
/// What the API server says it is.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// What eksctl and the guides leave in a cluster: the address of its DNS, and the DaemonSets of every node.
const STAGE: &str = include_str!("stage.yaml");

/// How a cluster is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The time of all its parts.
    pub clock: Clock,
    /// The seed of ids, boot times and prices.
    pub seed: u64,
    /// The AWS region.
    pub region: String,
    /// The instance families that EC2 offers; none listed is the whole catalogue of the region.
    pub families: Vec<String>,
    /// The URL of the API server and its authority (base64), where it is served; nodes are told both.
    pub served: Option<(String, String)>,
    /// How many entries of its own journal the API server keeps.
    pub journal_entries: usize,
}

/// The API server, the account and what lives in them.
pub struct FakeCluster {
    /// The API server.
    pub kube: FakeKube,
    /// The account.
    pub ec2: FakeEc2,
    /// The account, as scenarios and kubelets see it.
    pub cloud: Rc<FakeCloud>,
    options: Options,
    bootstrap: Bootstrap,
}

impl FakeCluster {
    /// The API server and the account, with the stage set in the account. Nothing runs yet: whoever wants to see everything
    /// observes first.
    pub fn new(options: Options) -> Self {
        let kube = FakeKube::new(fake_kube::Options {
            kubernetes_version: KUBERNETES_VERSION.into(),
            seed: options.seed,
            journal_entries: options.journal_entries,
            ..fake_kube::Options::new(options.clock.clone())
        });
        let config = fake_ec2::Config {
            region: options.region.clone(),
            seed: options.seed,
            families: options.families.clone(),
            ..Default::default()
        };
        let ec2 = FakeEc2::new(config, options.clock.clone());
        let mut bootstrap = Bootstrap::named(CLUSTER);
        if let Some((endpoint, certificate_authority)) = options.served.clone() {
            bootstrap.endpoint = endpoint;
            bootstrap.certificate_authority = certificate_authority;
        }
        let stage = ec2.cloud().bootstrap(bootstrap.clone());
        let cloud = FakeCloud::new(ec2.clone(), options.clock.clone(), CLUSTER, &options.region, stage);
        Self { kube, ec2, cloud: Rc::new(cloud), options, bootstrap }
    }

    /// The authority of the API server, as nodes are told it.
    pub fn certificate_authority(&self) -> &str {
        &self.bootstrap.certificate_authority
    }

    /// Installs the CRDs and what every EKS cluster holds, and starts everything but a node autoscaler. The parts end when
    /// the set is dropped; one that ends by itself is a defect.
    pub fn start(&self, recorder: &Recorder) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
        for crd in controller_api::crds() {
            self.kube
                .install_crd(serde_json::to_value(&crd)?)
                .map_err(|status| anyhow!("installing a CRD: {}", status.message))?;
        }
        let mut parts = JoinSet::new();
        // On a socket it lets its time pass itself.
        if self.options.served.is_none() {
            let ec2 = self.ec2.clone();
            parts.spawn_local(async move {
                ec2.run().await;
                Ok(())
            });
        }
        let cloud = self.ec2.cloud();
        let exists = move |provider_id: &str| {
            let id = provider_id.rsplit('/').next().unwrap_or_default();
            cloud.instance(id).is_some_and(|instance| instance.state != fake_ec2::State::Terminated)
        };
        let actors = fake_kube::actors::Options { instance_exists: Some(Arc::new(exists)), ..Default::default() };
        let kube = self.kube.clone();
        parts.spawn_local(async move {
            fake_kube::actors::run(kube, actors).await;
            Ok(())
        });
        let (machines, clock, seed) = (self.cloud.clone(), self.options.clock.clone(), self.options.seed);
        let cluster = kubelet::Cluster {
            name: CLUSTER.into(),
            endpoint: self.bootstrap.endpoint.clone(),
            certificate_authority: self.bootstrap.certificate_authority.clone(),
            version: KUBERNETES_VERSION.into(),
        };
        let kubelets = Kubelets::new(self.client("kubelet"), machines, clock, cluster, seed, recorder.clone());
        parts.spawn_local(kubelets.run());
        self.apply_stage()?;
        Ok(parts)
    }

    /// A client of the API server, in memory, that goes by this name in the journal.
    pub fn client(&self, user_agent: &'static str) -> kube::Client {
        let service = tower::ServiceBuilder::new()
            .map_request(move |mut request: Request<kube::client::Body>| {
                request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(user_agent));
                request
            })
            .service(self.kube.service());
        kube::Client::new(service, "default")
    }

    /// The environment of a controller for this cluster, as the chart would set it. The sockets that metrics and health would
    /// be served on are nobody's here.
    pub fn controller_environment(&self) -> BTreeMap<String, String> {
        let environment = [
            ("CLUSTER_NAME", CLUSTER),
            ("INTERRUPTION_QUEUE", CLUSTER),
            ("CLUSTER_CA_BUNDLE", &self.bootstrap.certificate_authority),
            ("EKS_CONTROL_PLANE", "true"),
            ("METRICS_PORT", "0"),
            ("HEALTH_PROBE_PORT", "0"),
        ];
        environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    /// The SDK's clients for such a controller. They are wired to the account in memory: no setting of the environment can
    /// lead them to AWS itself.
    pub async fn aws_clients(&self) -> anyhow::Result<controller_aws::Clients> {
        let sdk = controller_aws::SdkSettings {
            region: Some(self.options.region.clone()),
            endpoint_url: Some("http://aws.embedded".into()),
            http_client: Some(SharedHttpClient::new(self.ec2.http_client())),
            credentials: None,
            simulated_time: Some(self.options.clock.clone()),
        };
        Ok(controller_aws::Clients::new(sdk).await?)
    }

    fn apply_stage(&self) -> anyhow::Result<()> {
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

/// What a controller of ours makes of its environment, in a pod of this name.
pub fn controller_settings(
    environment: &BTreeMap<String, String>,
    identity: &str,
) -> Result<controller::Settings, controller::config::ConfigError> {
    let variable = |name: &str| environment.get(name).cloned();
    controller::Settings::from_args(controller::config::Args::default(), &variable, identity)
}

/// A request to the API server, as records have it.
pub(crate) fn kube_call(entry: &fake_kube::JournalEntry) -> Call {
    let body = entry.request.bytes();
    Call {
        at: entry.at,
        wire: Wire::Kube,
        caller: entry.user_agent.to_string(),
        name: format!("{} {}", entry.verb, story::resource(&entry.path)),
        request: serde_json::json!({
            "path": entry.path,
            "body": serde_json::from_slice(&body)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned())),
        }),
        status: entry.status,
        response: Value::String(String::from_utf8_lossy(&entry.response.bytes()).into_owned()),
    }
}

/// A request to AWS, as records have it.
pub(crate) fn aws_call(entry: &JournalEntry) -> Call {
    Call {
        at: entry.answered_at,
        wire: Wire::Aws,
        caller: entry.user_agent.clone(),
        name: format!("{}:{}", entry.service.name(), entry.action),
        request: entry.params.clone(),
        status: entry.status,
        response: Value::String(entry.response_text()),
    }
}
