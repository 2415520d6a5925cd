//! Looks at the state that the invariants are about, from wherever a backend has it.

use super::CONTROLLER;
use crate::account::CLUSTER;
use crate::cloud::{self, Ec2};
use crate::invariants::{self, Invariants, Seen};
use crate::recorder::Recorder;
use controller_api::labels;
use controller_clock::Clock;
use controller_core::quantity::Quantity;
use fake_kube::{ApiClient, ListSelector, Resource, resources};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// At most this often are the invariants looked at. They are about seconds and minutes; a look is a walk over everything.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often they are looked at where nothing changes.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(60);

/// Where objects of the cluster are read without a trace in its journal.
pub(super) trait Objects {
    /// All objects of a kind.
    fn list(&self, resource: &Resource) -> Vec<Arc<Value>>;
}

impl Objects for ApiClient {
    fn list(&self, resource: &Resource) -> Vec<Arc<Value>> {
        Self::list(self, resource, None, &ListSelector::everything())
    }
}

/// What is looked at.
pub(super) struct Watcher<O, E> {
    pub(super) kube: O,
    pub(super) ec2: E,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
}

impl<O: Objects, E: Ec2> Watcher<O, E> {
    /// Looks for as long as the future lives: after each change, and now and then without one, for some rules are about time
    /// alone.
    pub(super) async fn watch(self, invariants: Invariants, changed: Arc<Notify>) -> anyhow::Result<()> {
        loop {
            let _ = tokio::time::timeout(LOOK_AT_LEAST_EVERY, changed.notified()).await;
            invariants.look(&self.seen().await?);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn seen(&self) -> anyhow::Result<Seen> {
        let instances = self.ec2.instances().await?;
        let karpenter = |plural: &'static str| Resource::new(controller_api::GROUP, "v1", plural);
        let classes = self.kube.list(&Resource::new(controller_api::AWS_GROUP, "v1", "ec2nodeclasses"));
        let removals =
            self.recorder.pod_removals().into_iter().filter(|removal| removal.caller.starts_with(CONTROLLER)).collect();
        Ok(Seen {
            now: self.clock.now(),
            cluster: CLUSTER.into(),
            claims: self.kube.list(&karpenter("nodeclaims")).iter().map(|claim| claim_of(claim)).collect(),
            pools: self.kube.list(&karpenter("nodepools")).iter().map(|pool| pool_of(pool)).collect(),
            instances: instances.into_iter().map(instance_of).collect(),
            selected_subnets: classes
                .iter()
                .map(|class| (text(class, "/metadata/name").to_owned(), subnets_of(class)))
                .collect(),
            protected_pods: self
                .kube
                .list(&resources::PODS)
                .iter()
                .filter(|pod| is_protected(pod))
                .map(|pod| pod_name(pod))
                .collect(),
            removals,
            terminations: self.recorder.terminations(),
        })
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

fn instance_of(instance: cloud::Instance) -> invariants::Instance {
    invariants::Instance {
        live: matches!(instance.state.as_str(), "pending" | "running"),
        tags: instance.tags,
        subnet: instance.subnet,
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
