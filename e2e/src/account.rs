//! An AWS account in fake-ec2 with the stage that a Karpenter user sets before the first node, the kubelets of its
//! instances, and what a controller is told about it. The API server beside it may be any.

use crate::cloud::FakeCloud;
use crate::kubelet::{self, Kubelets, Runtime};
use crate::recorder::Recorder;
use controller_clock::Clock;
use fake_ec2::{Bootstrap, FakeEc2};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The cluster's name, unless somebody asks for another.
pub const CLUSTER: &str = "demo";
/// The region, unless somebody asks for another.
pub const REGION: &str = "us-west-2";
/// The Kubernetes version of the cluster and its kubelets.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// How an account is set up.
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
    /// How fast instances and nodes come and go.
    pub pace: Pace,
}

/// How fast instances and nodes come and go.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// EC2's part.
    pub ec2: fake_ec2::Pace,
    /// The kubelets' part.
    pub kubelets: kubelet::Pace,
}

impl Pace {
    /// For people and machines that wait in real time: everything that takes a while in life takes a second or two.
    pub fn quick() -> Self {
        let ec2 = fake_ec2::Pace {
            pending: Duration::from_secs(1),
            shutting_down: Duration::from_secs(3),
            stopping: Duration::from_secs(3),
            ..fake_ec2::Pace::default()
        };
        Self { ec2, kubelets: kubelet::Pace::quick() }
    }
}

/// The account and what lives in it.
pub struct Account {
    /// EC2, SQS and the others.
    pub ec2: FakeEc2,
    /// The account, as scenarios and kubelets see it.
    pub cloud: Rc<FakeCloud>,
    options: Options,
    bootstrap: Bootstrap,
}

impl Account {
    /// The account with its stage.
    pub fn new(options: Options) -> Self {
        Self::set_up(options, Bootstrap::named(CLUSTER))
    }

    /// The account as `eksctl create cluster` leaves it: network, cluster, and the identity provider of its issuer. Nothing of
    /// it is for a node autoscaler.
    pub fn with_cluster_alone(options: Options, oidc_issuer: &str) -> Self {
        let bootstrap = Bootstrap {
            queue: None,
            prerequisites: false,
            oidc_issuer: oidc_issuer.to_owned(),
            ..Bootstrap::named(CLUSTER)
        };
        let account = Self::set_up(options, bootstrap);
        account.cloud.remove_discovery_tags();
        account
    }

    fn set_up(options: Options, mut bootstrap: Bootstrap) -> Self {
        let config = fake_ec2::Config {
            region: options.region.clone(),
            seed: options.seed,
            families: options.families.clone(),
            pace: options.pace.ec2.clone(),
            ..Default::default()
        };
        let ec2 = FakeEc2::new(config, options.clock.clone());
        if let Some((endpoint, certificate_authority)) = options.served.clone() {
            bootstrap.endpoint = endpoint;
            bootstrap.certificate_authority = certificate_authority;
        }
        let stage = ec2.cloud().bootstrap(bootstrap.clone());
        let cloud = FakeCloud::new(ec2.clone(), options.clock.clone(), CLUSTER, &options.region, stage);
        Self { ec2, cloud: Rc::new(cloud), options, bootstrap }
    }

    /// How it was set up.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The authority of the API server, as nodes are told it.
    pub fn certificate_authority(&self) -> &str {
        &self.bootstrap.certificate_authority
    }

    /// Plays the kubelets of all instances towards an API server.
    pub fn kubelets(
        &self,
        client: kube::Client,
        recorder: Recorder,
    ) -> impl Future<Output = anyhow::Result<()>> + use<> {
        self.kubelets_with(client, recorder, None)
    }

    /// The same, where some pods run.
    pub fn kubelets_with(
        &self,
        client: kube::Client,
        recorder: Recorder,
        runtime: Option<Rc<dyn Runtime>>,
    ) -> impl Future<Output = anyhow::Result<()>> + use<> {
        let cluster = kubelet::Cluster {
            name: CLUSTER.into(),
            endpoint: self.bootstrap.endpoint.clone(),
            certificate_authority: self.bootstrap.certificate_authority.clone(),
            version: KUBERNETES_VERSION.into(),
        };
        let Options { clock, seed, pace, .. } = self.options.clone();
        let kubelets = Kubelets::new(client, self.cloud.clone(), clock, cluster, seed, pace.kubelets, recorder);
        kubelets.with_runtime(runtime).run()
    }

    /// Whether the instance behind a provider id exists.
    pub fn instance_exists(&self) -> impl Fn(&str) -> bool + Send + Sync + use<> {
        let cloud = self.ec2.cloud();
        move |provider_id: &str| {
            let id = provider_id.rsplit('/').next().unwrap_or_default();
            cloud.instance(id).is_some_and(|instance| instance.state != fake_ec2::State::Terminated)
        }
    }

    /// The environment of a controller for this cluster, as the chart would set it. The sockets that metrics and health would
    /// be served on are nobody's here.
    pub fn controller_environment(&self) -> BTreeMap<String, String> {
        let environment = [
            ("CLUSTER_NAME", CLUSTER),
            ("INTERRUPTION_QUEUE", CLUSTER),
            ("CLUSTER_CA_BUNDLE", self.certificate_authority()),
            ("EKS_CONTROL_PLANE", "true"),
            ("METRICS_PORT", "0"),
            ("HEALTH_PROBE_PORT", "0"),
        ];
        environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }
}
