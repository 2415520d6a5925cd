//! `NoExecute` taints: pods that do not tolerate them go, at once or when their patience (`tolerationSeconds`) ends.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::Actor;
use super::api::Api;
use super::objects::{Key, Node, Pod, Taint, set_condition};
use super::queue::Queue;
use super::selector::list;
use super::view::{Change, View};
use crate::{DeleteOptions, Status, resources};

/// The taint eviction controller.
pub(crate) struct TaintEviction {
    api: Api,
    queue: Queue,
    /// Since when each pod bears taints it tolerates for a time.
    bearing: BTreeMap<Key, Timestamp>,
}

/// What a node's taints mean for a pod.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Stays,
    Goes,
    GoesAfter(i64),
}

impl TaintEviction {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, queue: Queue::default(), bearing: BTreeMap::new() }
    }

    fn sync(&mut self, view: &View, key: &Key, now: Timestamp) -> Result<(), Status> {
        let pod = view.pods.get(key).filter(|pod| pod.is_active());
        let node = pod.and_then(|pod| view.nodes.get(&pod.node_name));
        let (Some(pod), Some(node)) = (pod, node) else {
            self.bearing.remove(key);
            return Ok(());
        };
        match verdict(pod, node) {
            Verdict::Stays => {
                if self.bearing.remove(key).is_some() {
                    self.api.normal(&pod.raw, "TaintManagerEviction", format!("Cancelling deletion of Pod {key}"));
                }
                Ok(())
            }
            Verdict::Goes => self.evict(pod, now),
            Verdict::GoesAfter(seconds) => {
                let since = *self.bearing.entry(key.clone()).or_insert(now);
                let end = since.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
                if end > now {
                    self.queue.add_at(key.clone(), end);
                    return Ok(());
                }
                self.evict(pod, now)
            }
        }
    }

    fn evict(&mut self, pod: &Pod, now: Timestamp) -> Result<(), Status> {
        self.bearing.remove(&pod.key);
        self.api.normal(&pod.raw, "TaintManagerEviction", format!("Marking for deletion Pod {}", pod.key));
        let mut conditions = list(&pod.raw["status"]["conditions"]).to_vec();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
        });
        set_condition(&mut conditions, condition, now);
        let patch = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": conditions}});
        match self.api.patch_status(&resources::PODS, &pod.key, patch) {
            Err(status) if !status.is_not_found() => return Err(status),
            _ => {}
        }
        self.api.delete(&resources::PODS, &pod.raw, DeleteOptions::default())
    }
}

impl Actor for TaintEviction {
    fn observe(&mut self, view: &View, change: &Change, _: Timestamp) {
        match change {
            Change::Node { before, after: Some(node) } => {
                let none = vec![];
                let before = before.as_ref().map_or(&none, |node| &node.taints);
                let executes = |taints: &[Taint]| taints.iter().any(|taint| taint.effect == "NoExecute");
                if *before != node.taints && (executes(before) || executes(&node.taints)) {
                    for pod in view.pods_on(&node.name) {
                        self.queue.add(pod.key.clone());
                    }
                }
            }
            Change::Pod { before, after } => {
                let bound = |pod: &Option<std::sync::Arc<Pod>>| pod.as_ref().map(|pod| pod.node_name.clone());
                if bound(before) != bound(after)
                    || before.as_ref().map(|pod| &pod.uid) != after.as_ref().map(|pod| &pod.uid)
                {
                    let pod = after.as_ref().or(before.as_ref());
                    self.queue.add(pod.map(|pod| pod.key.clone()).unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.queue.next_due()
    }

    fn act(&mut self, view: &View, now: Timestamp) {
        for key in self.queue.take(now) {
            match self.sync(view, &key, now) {
                Ok(()) => self.queue.forget(&key),
                Err(_) => self.queue.retry(key, now),
            }
        }
    }
}

/// A pod stays while it tolerates every taint without limit, goes when one is not tolerated, and otherwise bears as long
/// as the least patient toleration in use.
fn verdict(pod: &Pod, node: &Node) -> Verdict {
    let mut patience: Option<i64> = None;
    for taint in node.taints.iter().filter(|taint| taint.effect == "NoExecute") {
        let Some(toleration) = pod.needs().tolerations.iter().find(|toleration| toleration.tolerates(taint)) else {
            return Verdict::Goes;
        };
        if let Some(seconds) = toleration.seconds {
            patience = Some(patience.map_or(seconds, |least| least.min(seconds)));
        }
    }
    match patience {
        None => Verdict::Stays,
        Some(seconds) if seconds <= 0 => Verdict::Goes,
        Some(seconds) => Verdict::GoesAfter(seconds),
    }
}
