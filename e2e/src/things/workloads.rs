//! Deployments, DaemonSets and their pods.

use super::NAMESPACE;
use crate::eventually::Seen;
use crate::world::World;
use anyhow::Context;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use std::time::Duration;

/// Whether the pod runs and is ready, and is not on its way out.
pub fn is_running(pod: &Pod) -> bool {
    let ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none() && ready(pod)
}

/// Whether the pod waits for a node.
pub fn is_pending(pod: &Pod) -> bool {
    phase(pod) == "Pending" && node_of(pod).is_none()
}

/// The node the pod is bound to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("")
}

fn is_owned_by(object: &impl ResourceExt, kind: &str, names: &[String]) -> bool {
    object.owner_references().iter().any(|owner| owner.kind == kind && names.contains(&owner.name))
}

impl World {
    /// The pods of a Deployment, by name, those on their way out included.
    pub async fn pods_of_deployment(&self, deployment: &str) -> anyhow::Result<Vec<Pod>> {
        let sets = self.api::<ReplicaSet>().list(&ListParams::default()).await?.items;
        let owner = [deployment.to_owned()];
        let sets: Vec<String> =
            sets.iter().filter(|set| is_owned_by(*set, "Deployment", &owner)).map(ResourceExt::name_any).collect();
        self.pods_owned_by("ReplicaSet", &sets).await
    }

    /// The pods of a DaemonSet in the scenarios' namespace, by name.
    pub async fn pods_of_daemon_set(&self, daemon_set: &str) -> anyhow::Result<Vec<Pod>> {
        self.pods_owned_by("DaemonSet", &[daemon_set.to_owned()]).await
    }

    /// The pods of a Job, by name.
    pub async fn pods_of_job(&self, job: &str) -> anyhow::Result<Vec<Pod>> {
        self.pods_owned_by("Job", &[job.to_owned()]).await
    }

    async fn pods_owned_by(&self, kind: &str, names: &[String]) -> anyhow::Result<Vec<Pod>> {
        let mut pods = self.api::<Pod>().list(&ListParams::default()).await?.items;
        pods.retain(|pod| is_owned_by(pod, kind, names));
        pods.sort_by_key(ResourceExt::name_any);
        Ok(pods)
    }

    /// Every pod on a node that is not a DaemonSet's.
    pub async fn workload_pods_on(&self, node: &str) -> anyhow::Result<Vec<Pod>> {
        let mut pods = self.list::<Pod>().await?;
        pods.retain(|pod| {
            node_of(pod) == Some(node) && !pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet")
        });
        Ok(pods)
    }

    /// Deletes a Deployment as `kubectl delete` does.
    pub async fn delete_deployment(&self, name: &str) -> anyhow::Result<()> {
        self.api::<Deployment>().delete(name, &DeleteParams::background()).await?;
        Ok(())
    }

    /// Creates a bare pod that asks for so much CPU.
    pub async fn create_pod(&self, name: &str, cpu: &str) -> anyhow::Result<()> {
        self.apply_text(&format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\nspec:\n  containers:\n  - name: main\n    \
             image: nginx\n    resources: {{requests: {{cpu: {cpu}}}}}\n"
        ))
        .await
    }

    /// A pod of the scenarios' namespace.
    pub async fn pod(&self, name: &str) -> anyhow::Result<Pod> {
        self.api::<Pod>().get(name).await.with_context(|| format!("pod {name:?}"))
    }

    /// Waits until the pod runs on this node.
    pub async fn pod_runs_on(&self, name: &str, node: &str, limit: Duration) -> anyhow::Result<()> {
        self.eventually(&format!("pod {name} runs on node {node}"), limit, async || {
            let pod = self.pod(name).await?;
            Ok(Seen::when(is_running(&pod) && node_of(&pod) == Some(node), (), || describe(&[pod])))
        })
        .await
    }

    /// A look for exactly so many running pods of a Deployment, none of them on a certain node.
    pub async fn running_pods(
        &self,
        deployment: &str,
        count: usize,
        not_on: Option<&str>,
    ) -> anyhow::Result<Seen<Vec<Pod>>> {
        let pods = self.pods_of_deployment(deployment).await?;
        let running: Vec<Pod> = pods
            .iter()
            .filter(|pod| is_running(pod) && (not_on.is_none() || node_of(pod) != not_on))
            .cloned()
            .collect();
        Ok(Seen::when(running.len() == count, running, || describe(&pods)))
    }
}

/// The pods with their phases and nodes, for the diagnosis of a failure.
pub fn describe(pods: &[Pod]) -> String {
    if pods.is_empty() {
        return "no pods".into();
    }
    let line = |pod: &Pod| {
        let leaving = if pod.metadata.deletion_timestamp.is_some() { " (terminating)" } else { "" };
        let why = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref())
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
            .and_then(|condition| condition.message.clone())
            .map(|message| format!(": {message}"))
            .unwrap_or_default();
        format!("{} {}{leaving} on {}{why}", pod.name_any(), phase(pod), node_of(pod).unwrap_or("no node"))
    };
    pods.iter().map(line).collect::<Vec<_>>().join("\n")
}
