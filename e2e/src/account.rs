//! An AWS account in fake-ec2 with the stage that a Karpenter user sets before the first node, the kubelets of its
//! instances, and what a controller is told about it. The API server beside it may be any.

use crate::cloud::{Ec2, FakeCloud, RemoteEc2, Start};
use crate::kubelet::{self, Kubelets};
use crate::recorder::Recorder;
use controller_clock::Clock;
use fake_ec2::{Bootstrap, Bootstrapped, FakeEc2};
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

/// The account and what lives in it; in a fake-ec2 in this process, unless it is said to be elsewhere.
pub struct Account<E = FakeEc2> {
    /// EC2, SQS and the others.
    pub ec2: E,
    /// The account, as scenarios and kubelets see it.
    pub cloud: Rc<FakeCloud<E>>,
    options: Options,
    bootstrap: Bootstrap,
}

impl Options {
    fn bootstrap(&self) -> Bootstrap {
        let mut bootstrap = Bootstrap::named(CLUSTER);
        if let Some((endpoint, certificate_authority)) = self.served.clone() {
            bootstrap.endpoint = endpoint;
            bootstrap.certificate_authority = certificate_authority;
        }
        bootstrap
    }
}

impl Account {
    /// The account with its stage.
    pub fn new(options: Options) -> Self {
        let config = fake_ec2::Config {
            region: options.region.clone(),
            seed: options.seed,
            families: options.families.clone(),
            pace: options.pace.ec2.clone(),
            ..Default::default()
        };
        let ec2 = FakeEc2::new(config, options.clock.clone());
        let stage = ec2.cloud().bootstrap(options.bootstrap());
        Self::staged(ec2, options, stage)
    }

    /// Whether the instance behind a provider id exists.
    pub fn instance_exists(&self) -> impl Fn(&str) -> bool + Send + Sync + use<> {
        let cloud = self.ec2.cloud();
        move |provider_id: &str| {
            let id = provider_id.rsplit('/').next().unwrap_or_default();
            cloud.instance(id).is_some_and(|instance| instance.state != fake_ec2::State::Terminated)
        }
    }
}

impl Account<RemoteEc2> {
    /// The account of a fake-ec2 in another process, set back to its stage. Its clock must be the system's.
    ///
    /// # Errors
    /// Where it does not answer, or refuses to be set up so.
    pub async fn reset(ec2: RemoteEc2, options: Options) -> anyhow::Result<Self> {
        let start = Start {
            seed: options.seed,
            region: &options.region,
            families: &options.families,
            pace: &options.pace.ec2,
            bootstrap: &options.bootstrap(),
        };
        let stage = ec2.reset(&start).await?;
        Ok(Self::staged(ec2, options, stage))
    }
}

impl<E: Ec2> Account<E> {
    fn staged(ec2: E, options: Options, stage: Bootstrapped) -> Self {
        let bootstrap = options.bootstrap();
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
    ) -> impl Future<Output = anyhow::Result<()>> + use<E> {
        let cluster = kubelet::Cluster {
            name: CLUSTER.into(),
            endpoint: self.bootstrap.endpoint.clone(),
            certificate_authority: self.bootstrap.certificate_authority.clone(),
            version: KUBERNETES_VERSION.into(),
        };
        let Options { clock, seed, pace, .. } = self.options.clone();
        Kubelets::new(client, self.cloud.clone(), clock, cluster, seed, pace.kubelets, recorder).run()
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
