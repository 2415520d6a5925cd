//! Running and ending pods.

use super::{Due, Kubelets, PodState};
use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;

/// Namespace and name.
pub(super) fn key(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

fn has_ended(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// How long the pod's containers take to stop: the longest `preStop` sleep and a moment more, but never longer than the
/// grace period, after which they are killed.
fn stop_time(pod: &Pod, pod_stop: Duration) -> Duration {
    let grace = pod
        .metadata
        .deletion_grace_period_seconds
        .map_or(Duration::MAX, |seconds| Duration::from_secs(seconds.max(0) as u64));
    let sleep = |container: &Container| {
        container.lifecycle.as_ref()?.pre_stop.as_ref()?.sleep.as_ref().map(|sleep| sleep.seconds)
    };
    let longest = pod.spec.iter().flat_map(|spec| &spec.containers).filter_map(sleep).max().unwrap_or_default();
    (pod_stop + Duration::from_secs(longest.max(0) as u64)).min(grace)
}

/// How long the containers of a pod that is not restarted run: a command `sleep` tells it. Others run until they are stopped.
fn run_time(pod: &Pod) -> Option<Duration> {
    let spec = pod.spec.as_ref()?;
    let seconds = |container: &Container| match container.command.as_deref()? {
        [program, seconds] if program == "sleep" => seconds.parse().ok(),
        _ => None,
    };
    let is_restarted = spec.restart_policy.as_deref().is_none_or(|policy| policy == "Always");
    let all: Vec<u64> = spec.containers.iter().map(seconds).collect::<Option<_>>()?;
    all.into_iter().max().filter(|_| !is_restarted).map(Duration::from_secs)
}

impl Kubelets {
    pub(super) fn pod_changed(&mut self, pod: &Pod) {
        let key = key(pod);
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return };
        // A pod bound to a node whose kubelet is gone waits for the pod garbage collector, as in life.
        if !self.is_joined(&node) {
            return;
        }
        if let Some(runtime) = self.runtime.as_ref().filter(|runtime| runtime.takes(pod)) {
            runtime.changed(pod);
            return;
        }
        let uid = pod.uid().unwrap_or_default();
        let known = self.pods.get(&key).filter(|known| known.uid == uid).cloned();
        let stopping = pod.metadata.deletion_timestamp.is_some();
        match (known, stopping) {
            (None, false) if !has_ended(pod) => {
                self.after(self.pace.pod_start, Due::Start { pod: key.clone(), uid: uid.clone() })
            }
            (None | Some(PodState { stopping: false, .. }), true) => {
                self.after(stop_time(pod, self.pace.pod_stop), Due::Stopped { pod: key.clone(), uid: uid.clone() });
            }
            _ => {}
        }
        self.pods.insert(key, PodState { uid, node, stopping });
    }

    pub(super) fn pod_gone(&mut self, pod: &Pod) {
        self.pods.remove(&key(pod));
        if let Some(runtime) = &self.runtime {
            runtime.gone(&pod.uid().unwrap_or_default());
        }
    }

    /// Whether the pod is still the one a timer was set for, on a kubelet that still lives.
    fn is_current(&self, key: &str, uid: &str) -> bool {
        self.pods.get(key).is_some_and(|pod| pod.uid == uid && self.is_joined(&pod.node))
    }

    fn pod_api(&self, key: &str) -> (Api<Pod>, String) {
        let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
        (Api::namespaced(self.kube.clone(), namespace), name.to_owned())
    }

    pub(super) async fn start_pod(&mut self, key: &str, uid: &str) -> anyhow::Result<()> {
        if !self.is_current(key, uid) || self.pods.get(key).is_some_and(|pod| pod.stopping) {
            return Ok(());
        }
        let (api, name) = self.pod_api(key);
        let Some(pod) = api.get_opt(&name).await? else { return Ok(()) };
        if pod.uid().as_deref() != Some(uid) || pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        self.patch_pod_status(key, running_patch(&pod, self.clock.now())).await?;
        if let Some(run_time) = run_time(&pod) {
            self.after(run_time, Due::Ended { pod: key.to_owned(), uid: uid.to_owned() });
        }
        Ok(())
    }

    /// The containers have ended by themselves, without a failure.
    pub(super) async fn end_pod(&mut self, key: &str, uid: &str) -> anyhow::Result<()> {
        if !self.is_current(key, uid) || self.pods.get(key).is_some_and(|pod| pod.stopping) {
            return Ok(());
        }
        let (api, name) = self.pod_api(key);
        let Some(pod) = api.get_opt(&name).await? else { return Ok(()) };
        self.patch_pod_status(key, succeeded_patch(&pod, self.clock.now())).await
    }

    async fn patch_pod_status(&self, key: &str, patch: Value) -> anyhow::Result<()> {
        let (api, name) = self.pod_api(key);
        match api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error).with_context(|| format!("status of pod {key}")),
        }
    }

    pub(super) async fn remove_pod(&mut self, key: &str, uid: &str) -> anyhow::Result<()> {
        if !self.is_current(key, uid) {
            return Ok(());
        }
        let (api, name) = self.pod_api(key);
        let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match api.delete(&name, &parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => Err(error).with_context(|| format!("removing pod {key}")),
        }
    }
}

fn running_patch(pod: &Pod, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let status = |container: &Container| {
        json!({
            "name": container.name,
            "image": container.image,
            "imageID": "",
            "ready": true,
            "started": true,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        })
    };
    let containers: Vec<Value> = pod.spec.iter().flat_map(|spec| &spec.containers).map(status).collect();
    let conditions = ["Initialized", "Ready", "ContainersReady"].map(condition);
    json!({"status": {
        "phase": "Running",
        "startTime": now,
        "conditions": conditions,
        "containerStatuses": containers,
    }})
}

fn succeeded_patch(pod: &Pod, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition =
        |kind: &str| json!({"type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now});
    let status = |container: &Container| {
        json!({
            "name": container.name,
            "image": container.image,
            "imageID": "",
            "ready": false,
            "started": false,
            "restartCount": 0,
            "state": {"running": null, "terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}},
        })
    };
    let containers: Vec<Value> = pod.spec.iter().flat_map(|spec| &spec.containers).map(status).collect();
    let conditions = ["Ready", "ContainersReady"].map(condition);
    json!({"status": {"phase": "Succeeded", "conditions": conditions, "containerStatuses": containers}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(restart_policy: &str, commands: &[&[&str]]) -> Pod {
        let containers: Vec<Value> =
            commands.iter().map(|command| json!({"name": "main", "image": "busybox", "command": command})).collect();
        serde_json::from_value(json!({"spec": {"restartPolicy": restart_policy, "containers": containers}})).unwrap()
    }

    #[test]
    fn a_pod_ends_with_the_longest_sleep_of_its_containers_unless_it_is_restarted() {
        let sleeps: &[&[&str]] = &[&["sleep", "60"], &["sleep", "600"]];
        assert_eq!(run_time(&pod("Never", sleeps)), Some(Duration::from_secs(600)));
        assert_eq!(run_time(&pod("OnFailure", sleeps)), Some(Duration::from_secs(600)));
        assert_eq!(run_time(&pod("Always", sleeps)), None);
        assert_eq!(run_time(&pod("Never", &[&["sleep", "60"], &["nginx"]])), None);
        assert_eq!(run_time(&pod("Never", &[&["sleep", "infinity"]])), None);
    }
}
