//! An AWS account in fake-ec2 with the stage that a Karpenter user sets before the first node, the kubelets of its
//! instances, and what a controller is told about it. The API server beside it may be any.

use crate::cloud::{Ec2, FakeCloud, RemoteEc2, Start};
use crate::kubelet::{self, Kubelets, Runtime};
use crate::permissions::{Permission, iam};
use crate::recorder::Recorder;
use crate::release::RELEASE;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use controller_clock::Clock;
use fake_ec2::{Bootstrap, Bootstrapped, Control, FakeEc2, Iam};
use std::collections::BTreeMap;
use std::fmt;
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
    /// Who signs the tokens of the cluster's ServiceAccounts; a name of its own where nobody does.
    pub issuer: Option<String>,
    /// Whether policies decide what the controller may do: those of the stack that the deploy README deploys.
    pub enforce_iam: bool,
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

/// Sessions of the controller's role, as somebody gets them whom its trust policy lets in.
struct RoleSessions(Control);

impl fmt::Debug for RoleSessions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RoleSessions")
    }
}

impl ProvideCredentials for RoleSessions {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let session = self.0.assume_role(&iam::role(), RELEASE);
        future::ProvideCredentials::ready(session.map_err(CredentialsError::not_loaded).map(|session| {
            let expiry = std::time::SystemTime::from(session.expires_at);
            let token = Some(session.session_token);
            Credentials::new(session.access_key_id, session.secret_access_key, token, Some(expiry), "RoleSessions")
        }))
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
        // What the stack makes is left to it.
        let mut bootstrap = Bootstrap { prerequisites: !self.enforce_iam, ..Bootstrap::named(CLUSTER) };
        if let Some(issuer) = &self.issuer {
            bootstrap.oidc_issuer = issuer.clone();
        }
        if let Some((endpoint, certificate_authority)) = self.served.clone() {
            bootstrap.endpoint = endpoint;
            bootstrap.certificate_authority = certificate_authority;
        }
        bootstrap
    }

    fn config(&self) -> fake_ec2::Config {
        fake_ec2::Config {
            region: self.region.clone(),
            seed: self.seed,
            families: self.families.clone(),
            pace: self.pace.ec2.clone(),
            iam: if self.enforce_iam { Iam::Enforce } else { Iam::Off },
            ..Default::default()
        }
    }
}

impl Account {
    /// The account with its stage.
    pub fn new(options: Options) -> Self {
        let ec2 = FakeEc2::new(options.config(), options.clock.clone());
        let stage = ec2.cloud().bootstrap(options.bootstrap());
        Self::staged(ec2, options, stage)
    }

    /// The account as `eksctl create cluster` leaves it: network, cluster, and the identity provider of its issuer. Nothing of
    /// it is for a node autoscaler.
    pub fn with_cluster_alone(options: Options, oidc_issuer: &str) -> Self {
        let bootstrap =
            Bootstrap { queue: None, prerequisites: false, oidc_issuer: oidc_issuer.to_owned(), ..options.bootstrap() };
        let ec2 = FakeEc2::new(options.config(), options.clock.clone());
        let stage = ec2.cloud().bootstrap(bootstrap);
        for resource in stage.subnet_ids.iter().chain([&stage.security_group_id]) {
            // It was just made; one that is gone has no tag either.
            let _ = ec2.cloud().remove_tag(resource, "karpenter.sh/discovery");
        }
        Self::staged(ec2, options, stage)
    }

    /// Deploys the stack, whose policies decide from now on, admits the nodes' role as the guides do, and takes a permission
    /// away.
    ///
    /// # Errors
    /// Where the template cannot be deployed, or nothing in it gives the permission.
    pub fn deploy_stack(&self, without: Option<&Permission>) -> anyhow::Result<()> {
        let cloud = self.ec2.cloud();
        iam::deploy(&cloud, &[("OidcIssuer", self.cloud.issuer())])?;
        cloud.set_access_entry(CLUSTER, &self.cloud.node_role_arn(), Some("EC2_LINUX"))?;
        match without {
            Some(Permission::Iam { statement, action }) => iam::take_away(&cloud, statement, action),
            _ => Ok(()),
        }
    }

    /// What the controller signs its calls with in this process, where policies decide: sessions of its role, made anew before
    /// they expire.
    pub fn controller_credentials(&self) -> Option<SharedCredentialsProvider> {
        self.options.enforce_iam.then(|| SharedCredentialsProvider::new(RoleSessions(self.ec2.cloud())))
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
            enforce_iam: options.enforce_iam,
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

    /// The account's number.
    pub fn account_id(&self) -> String {
        self.cloud.node_role_arn().split(':').nth(4).unwrap_or_default().to_owned()
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
        self.kubelets_with(client, recorder, None)
    }

    /// The same, where some pods run.
    pub fn kubelets_with(
        &self,
        client: kube::Client,
        recorder: Recorder,
        runtime: Option<Rc<dyn Runtime>>,
    ) -> impl Future<Output = anyhow::Result<()>> + use<E> {
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
