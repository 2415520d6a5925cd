//! NodeClaims, their nodes and instances.

use crate::cloud::{CloudCall, Instance};
use crate::world::{Moment, Subject, World};
use anyhow::Context;
use controller_api::NodeClaim;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{Api, ResourceExt};

impl World {
    /// Every NodeClaim, by name.
    pub async fn node_claims(&self) -> anyhow::Result<Vec<NodeClaim>> {
        self.list::<NodeClaim>().await
    }

    /// The NodeClaim the scenario speaks of, if it still exists.
    pub async fn subject_claim(&self) -> anyhow::Result<Option<NodeClaim>> {
        let subject = self.subject().await?;
        Ok(Api::<NodeClaim>::all(self.kube()).get_opt(&subject.node_claim).await?)
    }

    /// The node of the NodeClaim the scenario speaks of, if it exists.
    pub async fn subject_node(&self) -> anyhow::Result<Option<Node>> {
        let subject = self.subject().await?;
        let nodes = self.list::<Node>().await?;
        let ends_with_instance = |node: &Node| {
            let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            provider_id.is_some_and(|id| id.ends_with(&format!("/{}", subject.instance)))
        };
        Ok(nodes.into_iter().find(ends_with_instance))
    }

    /// The instance of the NodeClaim the scenario speaks of.
    pub async fn subject_instance(&self) -> anyhow::Result<Instance> {
        let subject = self.subject().await?;
        self.instance(&subject.instance).await
    }

    /// An instance by id.
    pub async fn instance(&self, id: &str) -> anyhow::Result<Instance> {
        let instances = self.cloud().instances().await?;
        instances.into_iter().find(|instance| instance.id == id).with_context(|| format!("there is no instance {id}"))
    }

    /// Makes the NodeClaim the scenario's, and the call that launched its instance the launch.
    pub async fn set_launched(&self, claim: &NodeClaim) -> anyhow::Result<Subject> {
        let subject = self.set_subject(claim)?;
        let launch = self.launch_of(&subject.instance).await?;
        self.mark(Moment::Launch, launch.at);
        Ok(subject)
    }

    /// The call whose answer names the instance as launched.
    pub async fn launch_of(&self, instance: &str) -> anyhow::Result<CloudCall> {
        let calls = self.cloud().calls().await?;
        let launched = |call: &CloudCall| call.is_launch() && call.status == 200 && call.answer.contains(instance);
        calls.into_iter().find(launched).with_context(|| format!("no call launched instance {instance}"))
    }

    /// How many instances calls have launched.
    pub async fn launches(&self) -> anyhow::Result<usize> {
        let calls = self.cloud().calls().await?;
        Ok(calls
            .iter()
            .filter(|call| call.is_launch() && call.status == 200)
            .map(|call| call.answer.matches("<item>i-").count())
            .sum())
    }

    /// When the last pod of a workload left the node: the moment at which none was seen there any more.
    pub async fn wait_for_last_pod(&self) -> anyhow::Result<Timestamp> {
        let node = self.subject_node().await?.context("the NodeClaim has no node")?.name_any();
        self.eventually("no pod of a workload is on the node", std::time::Duration::from_secs(180), async || {
            let pods = self.workload_pods_on(&node).await?;
            Ok(crate::eventually::Seen::when(pods.is_empty(), (), || super::workloads::describe(&pods)))
        })
        .await?;
        let left_at = self.now();
        self.mark(Moment::LastPodLeft, left_at);
        Ok(left_at)
    }
}

/// Whether the node is Ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether the node carries a taint written as `key[=value]:Effect`.
pub fn has_taint(node: &Node, taint: &str) -> bool {
    let written = |t: &Taint| match t.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{}={value}:{}", t.key, t.effect),
        _ => format!("{}:{}", t.key, t.effect),
    };
    node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten().any(|t| written(t) == taint)
}
