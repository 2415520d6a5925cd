//! A cloud in memory with a cluster in it, and the objects a controller would bring.

use controller_api::{Ec2NodeClass, NodeClaim, NodePool, labels};
use controller_aws::{AwsCloud, Clients, NodeClassContext, NodeClassResolution, SdkSettings, Settings};
use controller_clock::Clock;
use controller_core::cloud::{CloudError, CloudProvider};
use fake_ec2::{Bootstrap, Bootstrapped, Config, FakeEc2, JournalEntry};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The scene: an account with the cluster `demo`, and a controller connected to it.
pub(crate) struct Scene {
    pub(crate) ec2: FakeEc2,
    pub(crate) made: Bootstrapped,
    pub(crate) clock: Clock,
    pub(crate) cloud: AwsCloud,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// The same with other settings.
    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
        let families = ["m5", "c5", "m6g", "g4dn", "inf2"].map(str::to_owned).to_vec();
        let ec2 = FakeEc2::new(Config { families, ..Config::default() }, clock.clone());
        let made = ec2.cloud().bootstrap(Bootstrap::named("demo"));
        let mut settings = Settings::new("demo");
        settings.cluster_ca_bundle = Some("Y2E=".to_owned());
        settings.cluster_dns = Some("10.100.0.10".parse().unwrap());
        settings.interruption_queue = Some("demo".to_owned());
        change(&mut settings);
        let clients = clients(&ec2, &clock).await;
        let cloud = AwsCloud::connect(settings, clients, clock.clone(), "1.36").await.unwrap();
        Self { ec2, made, clock, cloud }
    }

    /// Resolves a class and takes the status over, as its reconciler would.
    pub(crate) async fn resolve(&self, class: &mut Ec2NodeClass) -> NodeClassResolution {
        let context = NodeClassContext { node_pools: vec![Arc::new(node_pool())] };
        let resolution = self.cloud.resolve_node_class(class, &context).await;
        class.status = Some(resolution.status.clone());
        resolution
    }

    /// The class `default`, resolved and ready.
    pub(crate) async fn ready_class(&self) -> Ec2NodeClass {
        let mut class = node_class(json!({}));
        let resolution = self.resolve(&mut class).await;
        assert_eq!(conditions(&class)["Ready"], "True", "{:#?} {:#?}", class.status, resolution.failures);
        class
    }

    pub(crate) async fn create(&self, claim: &NodeClaim, class: &Ec2NodeClass) -> Result<NodeClaim, CloudError> {
        self.cloud.create(claim, class).await
    }

    /// Every call of `action` so far.
    pub(crate) fn calls(&self, action: &str) -> Vec<Arc<JournalEntry>> {
        self.ec2.cloud().journal().into_iter().filter(|entry| entry.action == action).collect()
    }

    /// Every action so far, in order, repetitions in a row counted.
    pub(crate) fn trace(&self, from: usize) -> Vec<String> {
        let mut trace: Vec<(String, usize)> = Vec::new();
        for entry in self.ec2.cloud().journal().into_iter().skip(from) {
            let failed = entry.error_code.as_ref().map(|code| format!("!{code}")).unwrap_or_default();
            let action = format!("{}{failed}", entry.action);
            match trace.last_mut() {
                Some((last, count)) if *last == action => *count += 1,
                _ => trace.push((action, 1)),
            }
        }
        trace
            .into_iter()
            .map(|(action, count)| if count == 1 { action } else { format!("{action} ×{count}") })
            .collect()
    }

    pub(crate) fn journal_len(&self) -> usize {
        self.ec2.cloud().journal().len()
    }
}

pub(crate) async fn clients(ec2: &FakeEc2, clock: &Clock) -> Clients {
    let sdk = SdkSettings {
        region: Some("us-west-2".to_owned()),
        http_client: Some(aws_smithy_runtime_api::client::http::SharedHttpClient::new(ec2.http_client())),
        simulated_time: Some(clock.clone()),
        ..SdkSettings::default()
    };
    Clients::new(sdk).await.unwrap()
}

pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// The class `default` with `spec` laid over the usual one.
pub(crate) fn node_class(spec: Value) -> Ec2NodeClass {
    let mut whole = json!({
        "role": "KarpenterNodeRole-demo",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let object = json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "uid-1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": whole,
    });
    serde_json::from_value(object).unwrap()
}

pub(crate) fn node_pool() -> NodePool {
    let object = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "requirements": [{"key": labels::ARCH_LABEL, "operator": "In", "values": ["amd64"]}],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        }}},
    });
    serde_json::from_value(object).unwrap()
}

/// A claim of the pool `default` for one CPU, with these requirements.
pub(crate) fn node_claim(name: &str, requirements: &[(&str, &[&str])]) -> NodeClaim {
    let requirements: Vec<Value> =
        requirements.iter().map(|(key, values)| json!({"key": key, "operator": "In", "values": values})).collect();
    let object = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {labels::NODE_POOL_LABEL: "default", labels::NODE_CLASS_LABEL: "default"}},
        "spec": {
            "requirements": requirements,
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "resources": {"requests": {"cpu": "1", "memory": "1Gi", "pods": "3"}},
        },
    });
    serde_json::from_value(object).unwrap()
}

/// Status of each condition, with the reason when it is not true.
pub(crate) fn conditions(class: &Ec2NodeClass) -> std::collections::BTreeMap<String, String> {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    conditions
        .map(|condition| {
            let text = match condition.is_true() {
                true => "True".to_owned(),
                false => format!("{} {}: {}", condition.status, condition.reason, condition.message),
            };
            (condition.type_.clone(), text)
        })
        .collect()
}

pub(crate) fn label<'a>(claim: &'a NodeClaim, key: &str) -> &'a str {
    claim.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

pub(crate) fn provider_id(claim: &NodeClaim) -> &str {
    claim.status.as_ref().map_or("", |status| &status.provider_id)
}

pub(crate) fn instance_id(claim: &NodeClaim) -> &str {
    provider_id(claim).rsplit('/').next().unwrap_or("")
}
