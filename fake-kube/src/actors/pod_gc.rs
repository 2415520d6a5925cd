//! Pods nobody else removes: those whose node is gone, those that were deleted before they had a node, and finished ones
//! beyond a generous number.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::Actor;
use super::api::Api;
use super::objects::{Key, Pod, set_condition};
use super::selector::list;
use super::view::{Change, View};
use crate::{DeleteOptions, Status, resources};

/// How long a node must have been missing before its pods go: it may only be late in the view.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);
/// kube-controller-manager's `--terminated-pod-gc-threshold`.
const FINISHED_PODS: usize = 12_500;
/// A refused write is tried again after the genuine controller's period.
const PERIOD: SignedDuration = SignedDuration::from_secs(20);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The pod garbage collector.
pub(crate) struct PodGarbageCollection {
    api: Api,
    /// Nodes that pods name but nobody knows, with the end of their quarantine.
    missing: BTreeMap<String, Timestamp>,
    suspects: BTreeSet<Key>,
    finished: BTreeMap<Key, Timestamp>,
    retry_at: Option<Timestamp>,
}

impl PodGarbageCollection {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, missing: BTreeMap::new(), suspects: BTreeSet::new(), finished: BTreeMap::new(), retry_at: None }
    }

    fn collect_orphans(&mut self, view: &View, now: Timestamp) -> Result<(), Status> {
        let due: Vec<String> =
            self.missing.iter().filter(|(_, end)| **end <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            if !view.nodes.contains_key(&name) {
                for pod in view.pods_on(&name) {
                    self.mark_disrupted(&pod, now)?;
                    self.remove(&pod)?;
                }
            }
            self.missing.remove(&name);
        }
        Ok(())
    }

    /// Pods that were deleted while no kubelet was there to finish them.
    fn collect_terminating(&mut self, view: &View, now: Timestamp) -> Result<(), Status> {
        for key in std::mem::take(&mut self.suspects) {
            let Some(pod) = view.pods.get(&key).filter(|pod| pod.deleting.is_some()) else { continue };
            let out_of_service = view.nodes.get(&pod.node_name).is_some_and(|node| {
                node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
                    && super::objects::condition(&node.raw, "Ready").is_none_or(|ready| ready["status"] != "True")
            });
            if pod.node_name.is_empty() || out_of_service {
                let result = match out_of_service {
                    true => self.mark_failed(pod, None, now),
                    false => Ok(()),
                };
                if let Err(status) = result.and_then(|()| self.remove(pod)) {
                    self.suspects.insert(key);
                    return Err(status);
                }
            }
        }
        Ok(())
    }

    fn collect_finished(&mut self, view: &View) -> Result<(), Status> {
        let excess = self.finished.len().saturating_sub(FINISHED_PODS);
        if excess == 0 {
            return Ok(());
        }
        let mut oldest: Vec<(Timestamp, Key)> =
            self.finished.iter().map(|(key, created)| (*created, key.clone())).collect();
        oldest.sort();
        for (_, key) in oldest.into_iter().take(excess) {
            if let Some(pod) = view.pods.get(&key) {
                self.remove(pod)?;
            }
            self.finished.remove(&key);
        }
        Ok(())
    }

    fn mark_disrupted(&mut self, pod: &Pod, now: Timestamp) -> Result<(), Status> {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        });
        self.mark_failed(pod, Some(condition), now)
    }

    /// No kubelet will tell how the pod ended, so it counts as failed.
    fn mark_failed(&mut self, pod: &Pod, condition: Option<serde_json::Value>, now: Timestamp) -> Result<(), Status> {
        if pod.is_finished() {
            return Ok(());
        }
        let mut conditions = list(&pod.raw["status"]["conditions"]).to_vec();
        if let Some(condition) = condition {
            set_condition(&mut conditions, condition, now);
        }
        let patch = json!({"metadata": {"uid": pod.uid}, "status": {"phase": "Failed", "conditions": conditions}});
        match self.api.patch_status(&resources::PODS, &pod.key, patch) {
            Err(status) if !status.is_not_found() => Err(status),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, pod: &Pod) -> Result<(), Status> {
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        self.api.delete(&resources::PODS, &pod.raw, options)
    }
}

impl Actor for PodGarbageCollection {
    fn observe(&mut self, view: &View, change: &Change, now: Timestamp) {
        let end = now.saturating_add(QUARANTINE).unwrap_or(Timestamp::MAX);
        match change {
            Change::Pod { before, after: Some(pod) } => {
                let unknown = !pod.node_name.is_empty() && !view.nodes.contains_key(&pod.node_name);
                if unknown && before.as_ref().is_none_or(|before| before.node_name.is_empty()) {
                    self.missing.entry(pod.node_name.clone()).or_insert(end);
                }
                if pod.deleting.is_some() {
                    self.suspects.insert(pod.key.clone());
                }
                if pod.is_finished() && pod.deleting.is_none() {
                    self.finished.insert(pod.key.clone(), pod.created);
                }
            }
            Change::Pod { before: Some(pod), after: None } => {
                self.finished.remove(&pod.key);
                self.suspects.remove(&pod.key);
            }
            Change::Node { before: Some(node), after: None } => {
                self.missing.insert(node.name.clone(), end);
            }
            Change::Node { after: Some(node), .. } => {
                self.missing.remove(&node.name);
                if node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE) {
                    let terminating = view.pods_on(&node.name).into_iter().filter(|pod| pod.deleting.is_some());
                    self.suspects.extend(terminating.map(|pod| pod.key.clone()));
                }
            }
            _ => {}
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        if self.retry_at.is_some() {
            return self.retry_at;
        }
        if !self.suspects.is_empty() || self.finished.len() > FINISHED_PODS {
            return Some(Timestamp::MIN);
        }
        self.missing.values().min().copied()
    }

    fn act(&mut self, view: &View, now: Timestamp) {
        let done = self.collect_orphans(view, now).and_then(|()| self.collect_terminating(view, now));
        let done = done.and_then(|()| self.collect_finished(view));
        self.retry_at = done.is_err().then(|| now.saturating_add(PERIOD).unwrap_or(Timestamp::MAX));
    }
}
