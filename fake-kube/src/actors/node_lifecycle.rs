//! Nodes: taints that follow conditions, Leases that run out, and nodes whose instance is gone.
//!
//! Differences from the genuine controllers: a kubelet that never made a Lease is trusted for ever, since a simulated
//! one may not send heartbeats at all; `NoExecute` taints come at once rather than at a tenth of a node per second.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::api::Api;
use super::objects::{Key, Node, condition, set_condition, time, timestamp};
use super::queue::Queue;
use super::selector::{list, text};
use super::view::{Change, Kind, View};
use super::{Actor, InstanceExists};
use crate::{DeleteOptions, Status, resources};

/// The namespace of the kubelets' Leases.
const LEASES: &str = "kube-node-lease";
/// The controller manager's grace period: a kubelet renews every 10 s a Lease of 40 s, and is given 10 s more than that.
const GRACE: SignedDuration = SignedDuration::from_secs(50);
/// What the grace period leaves beyond the Lease. A Lease that states a longer duration gets the same on top.
const GRACE_BEYOND_LEASE: SignedDuration = SignedDuration::from_secs(10);
/// How often a node that is not ready is looked up in the cloud: the genuine controller's period for a while, then
/// rarely, so that a node that stays broken does not keep a quiet day busy.
const CLOUD_CHECK: SignedDuration = SignedDuration::from_secs(5);
const CLOUD_CHECK_LATER: SignedDuration = SignedDuration::from_mins(1);
const CLOUD_CHECK_OFTEN_FOR: SignedDuration = SignedDuration::from_mins(5);

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Condition, status and the taint it calls for.
const CONDITION_TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// The node lifecycle controllers.
pub(crate) struct NodeLifecycle {
    api: Api,
    instance_exists: Option<InstanceExists>,
    queue: Queue,
    /// When each node with a Lease was last heard of.
    heard: BTreeMap<String, Heard>,
    /// Since when a node is not ready.
    not_ready_since: BTreeMap<String, Timestamp>,
}

struct Heard {
    at: Timestamp,
    /// How long silence may last.
    grace: SignedDuration,
}

impl NodeLifecycle {
    pub(crate) fn new(api: Api, instance_exists: Option<InstanceExists>) -> Self {
        Self { api, instance_exists, queue: Queue::default(), heard: BTreeMap::new(), not_ready_since: BTreeMap::new() }
    }

    fn sync(&mut self, view: &View, key: &Key, now: Timestamp) -> Result<(), Status> {
        let Some(node) = view.nodes.get(&key.name) else {
            self.heard.remove(&key.name);
            self.not_ready_since.remove(&key.name);
            return Ok(());
        };
        if self.fell_silent(node, now) {
            return self.mark_unknown(view, node, now); // The status comes back as an event.
        }
        self.taint(node, now)?;
        let ready = ready_status(node);
        if ready == "True" || ready.is_empty() {
            self.not_ready_since.remove(&node.name);
            return Ok(());
        }
        let since = *self.not_ready_since.entry(node.name.clone()).or_insert(now);
        self.look_up_instance(node, since, now)
    }

    /// Whether the node's Lease ran out while its status still claims to know; otherwise watches for that.
    fn fell_silent(&mut self, node: &Node, now: Timestamp) -> bool {
        let Some(heard) = self.heard.get(&node.name) else { return false };
        if ready_status(node) == "Unknown" {
            return false;
        }
        let expiry = heard.at.saturating_add(heard.grace).unwrap_or(Timestamp::MAX);
        if expiry > now {
            self.queue.add_at(Key { namespace: String::new(), name: node.name.clone() }, expiry);
        }
        expiry <= now
    }

    fn mark_unknown(&mut self, view: &View, node: &Node, now: Timestamp) -> Result<(), Status> {
        let mut conditions = list(&node.raw["status"]["conditions"]).to_vec();
        for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
            let known = conditions.iter().any(|condition| condition["type"] == kind);
            let (reason, message) = match known {
                true => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
                false => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
            };
            let condition = json!({"type": kind, "status": "Unknown", "reason": reason, "message": message});
            set_condition(&mut conditions, condition, now);
        }
        let key = Key { namespace: String::new(), name: node.name.clone() };
        self.api.patch_status(&resources::NODES, &key, json!({"status": {"conditions": conditions}}))?;
        match ready_status(node).as_str() {
            "True" => self.mark_pods_not_ready(view, node, now),
            _ => Ok(()),
        }
    }

    /// Pods of a node nobody hears of count as serving nobody. (A kubelet that reports itself not ready is left to tell
    /// of its pods.)
    fn mark_pods_not_ready(&mut self, view: &View, node: &Node, now: Timestamp) -> Result<(), Status> {
        self.api.normal(&node.raw, "NodeNotReady", format!("Node {} status is now: NodeNotReady", node.name));
        for pod in view.pods_on(&node.name).iter().filter(|pod| pod.is_ready()) {
            let mut conditions = list(&pod.raw["status"]["conditions"]).to_vec();
            for condition in conditions.iter_mut().filter(|condition| condition["type"] == "Ready") {
                condition["status"] = json!("False");
                condition["lastTransitionTime"] = time(now);
            }
            let patch = json!({"status": {"conditions": conditions}});
            match self.api.patch_status(&resources::PODS, &pod.key, patch) {
                Err(status) if !status.is_not_found() => return Err(status),
                _ => self.api.warning(&pod.raw, "NodeNotReady", "Node is not ready".to_owned()),
            }
        }
        Ok(())
    }

    /// Brings the taints that conditions and `spec.unschedulable` call for in line; all others stay.
    fn taint(&mut self, node: &Node, now: Timestamp) -> Result<(), Status> {
        let holds = |kind: &str, status: &str| {
            condition(&node.raw, kind).is_some_and(|condition| condition["status"] == status)
        };
        let mut wanted = vec![];
        let mut ours = vec![(UNSCHEDULABLE, "NoSchedule")];
        for (kind, status, key) in CONDITION_TAINTS {
            let effects: &[&str] = if kind == "Ready" { &["NoSchedule", "NoExecute"] } else { &["NoSchedule"] };
            for effect in effects {
                ours.push((key, effect));
                if holds(kind, status) {
                    wanted.push((key, *effect));
                }
            }
        }
        if node.unschedulable {
            wanted.push((UNSCHEDULABLE, "NoSchedule"));
        }
        // Without a Ready condition nothing is known: the taint that admission gave a new node stays.
        let undecided = condition(&node.raw, "Ready").is_none();
        let before = list(&node.raw["spec"]["taints"]);
        let named = |taint: &Value| (text(&taint["key"]).to_owned(), text(&taint["effect"]).to_owned());
        let is = |taint: &Value, (key, effect): &(&str, &str)| taint["key"] == *key && taint["effect"] == *effect;
        let mut taints: Vec<Value> = before
            .iter()
            .filter(|taint| {
                let keeps = undecided && (taint["key"] == NOT_READY || taint["key"] == UNREACHABLE);
                keeps || !ours.iter().any(|pair| is(taint, pair)) || wanted.iter().any(|pair| is(taint, pair))
            })
            .cloned()
            .collect();
        for (key, effect) in wanted {
            if !taints.iter().any(|taint| named(taint) == (key.to_owned(), effect.to_owned())) {
                taints.push(json!({"key": key, "effect": effect, "timeAdded": time(now)}));
            }
        }
        if taints == before {
            return Ok(());
        }
        // Others write taints too (the controller under test above all), so only the version read is replaced.
        let patch = json!({
            "metadata": {"resourceVersion": node.raw["metadata"]["resourceVersion"]}, "spec": {"taints": taints},
        });
        let key = Key { namespace: String::new(), name: node.name.clone() };
        self.api.patch(&resources::NODES, &key, patch).map(drop)
    }

    fn look_up_instance(&mut self, node: &Node, since: Timestamp, now: Timestamp) -> Result<(), Status> {
        let Some(exists) = self.instance_exists.as_ref().filter(|_| !node.provider_id.is_empty()) else {
            return Ok(());
        };
        if node.deleting {
            return Ok(());
        }
        if exists(&node.provider_id) {
            let early = now.duration_since(since) < CLOUD_CHECK_OFTEN_FOR;
            let wait = if early { CLOUD_CHECK } else { CLOUD_CHECK_LATER };
            let key = Key { namespace: String::new(), name: node.name.clone() };
            self.queue.add_at(key, now.saturating_add(wait).unwrap_or(Timestamp::MAX));
            return Ok(());
        }
        let message = format!("Deleting node {} because it does not exist in the cloud provider", node.name);
        self.api.normal(&node.raw, "DeletingNode", message);
        self.api.delete(&resources::NODES, &node.raw, DeleteOptions::default())
    }

    fn hear(&mut self, lease: &Arc<Value>, name: &str, now: Timestamp) {
        let spec = &lease["spec"];
        if timestamp(&spec["renewTime"]).is_none() {
            return;
        }
        let lease_seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or(0);
        let grace = GRACE.max(SignedDuration::from_secs(lease_seconds) + GRACE_BEYOND_LEASE);
        // As in the genuine controller, what counts is when the renewal was seen, not the kubelet's clock.
        self.heard.insert(name.to_owned(), Heard { at: now, grace });
        let expiry = now.saturating_add(grace).unwrap_or(Timestamp::MAX);
        self.queue.add_at(Key { namespace: String::new(), name: name.to_owned() }, expiry);
    }
}

impl Actor for NodeLifecycle {
    fn observe(&mut self, _: &View, change: &Change, now: Timestamp) {
        match change {
            Change::Node { before, after } => {
                // Heartbeats in the status alone change nothing here, except that they are a sign of life.
                if let (Some(before), Some(after)) = (before, after)
                    && let Some(heard) = self.heard.get_mut(&after.name)
                    && heartbeat(before) != heartbeat(after)
                {
                    heard.at = now;
                }
                if let Some(node) = before.as_ref().or(after.as_ref()) {
                    self.queue.add(Key { namespace: String::new(), name: node.name.clone() });
                }
            }
            Change::Other { kind: Kind::Lease, key, before, after } if key.namespace == LEASES => match after {
                Some(lease) => {
                    let renewed = |lease: &Arc<Value>| lease["spec"]["renewTime"].clone();
                    if before.as_ref().map(renewed) != Some(renewed(lease)) {
                        self.hear(lease, &key.name, now);
                    }
                }
                None => drop(self.heard.remove(&key.name)),
            },
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

/// Status of the Ready condition; empty when there is none.
fn ready_status(node: &Node) -> String {
    condition(&node.raw, "Ready").map(|ready| text(&ready["status"]).to_owned()).unwrap_or_default()
}

fn heartbeat(node: &Node) -> Value {
    condition(&node.raw, "Ready").map(|ready| ready["lastHeartbeatTime"].clone()).unwrap_or_default()
}
