//! fake-kube and fake-ec2 wired together: the API server with its controllers, the account with the stage that a Karpenter
//! user sets before the first node, and a kubelet for every instance. The embedded backend stands on it in virtual time,
//! `trysquare serve` in real time.

use crate::account::{self, Account, KUBERNETES_VERSION};
use crate::recorder::{Call, Recorder, Wire};
use crate::story;
use anyhow::{Context, anyhow};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use fake_ec2::JournalEntry;
use fake_kube::{FakeKube, Resource};
use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;

/// What eksctl and the guides leave in a cluster: the address of its DNS, and the DaemonSets of every node.
pub(crate) const STAGE: &str = include_str!("stage.yaml");

/// How a cluster is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The account, and what it shares with the API server.
    pub account: account::Options,
    /// How many entries of its own journal the API server keeps.
    pub journal_entries: usize,
    /// Names of clients of the API server by their tokens.
    pub users: BTreeMap<String, String>,
}

/// The API server, the account and what lives in them.
pub struct FakeCluster {
    /// The API server.
    pub kube: FakeKube,
    /// The account.
    pub account: Account,
}

impl FakeCluster {
    /// The API server and the account, with the stage set in the account. Nothing runs yet: whoever wants to see everything
    /// observes first.
    pub fn new(options: Options) -> Self {
        let Options { account, journal_entries, users } = options;
        let kube = FakeKube::new(fake_kube::Options {
            kubernetes_version: KUBERNETES_VERSION.into(),
            seed: account.seed,
            journal_entries,
            users,
            ..fake_kube::Options::new(account.clock.clone())
        });
        Self { kube, account: Account::new(account) }
    }

    /// Installs CRDs and what every EKS cluster holds, and starts everything but a node autoscaler. The parts end when the
    /// set is dropped; one that ends by itself is a defect.
    pub fn start(
        &self,
        definitions: &[CustomResourceDefinition],
        recorder: &Recorder,
    ) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
        for crd in definitions {
            self.kube
                .install_crd(serde_json::to_value(crd)?)
                .map_err(|status| anyhow!("installing a CRD: {}", status.message))?;
        }
        let mut parts = JoinSet::new();
        // On a socket it lets its time pass itself.
        if self.account.options().served.is_none() {
            let ec2 = self.account.ec2.clone();
            parts.spawn_local(async move {
                ec2.run().await;
                Ok(())
            });
        }
        let exists = Arc::new(self.account.instance_exists());
        let actors = fake_kube::actors::Options { instance_exists: Some(exists), ..Default::default() };
        let kube = self.kube.clone();
        parts.spawn_local(async move {
            fake_kube::actors::run(kube, actors).await;
            Ok(())
        });
        parts.spawn_local(self.account.kubelets(self.client("kubelet"), recorder.clone()));
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

    /// The SDK's clients for such a controller. They are wired to the account in memory: no setting of the environment can
    /// lead them to AWS itself.
    pub async fn aws_clients(&self) -> anyhow::Result<controller_aws::Clients> {
        let sdk = controller_aws::SdkSettings {
            region: Some(self.account.options().region.clone()),
            endpoint_url: Some("http://aws.embedded".into()),
            http_client: Some(SharedHttpClient::new(self.account.ec2.http_client())),
            credentials: self.account.controller_credentials(),
            simulated_time: Some(self.account.options().clock.clone()),
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
        caller: entry.user.as_ref().unwrap_or(&entry.user_agent).to_string(),
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
