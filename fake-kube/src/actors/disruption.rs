//! PodDisruptionBudgets: how many pods are healthy, how many must be, and how many may be evicted now. The eviction
//! itself, and what an unhealthy pod may do (`unhealthyPodEvictionPolicy`), is the server's business.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::api::Api;
use super::objects::{Key, Pod, controller_of, set_condition, timestamp};
use super::queue::Queue;
use super::selector::{LabelSelector, list};
use super::view::{Change, Kind, View};
use super::{Actor, PATIENCE, pods};
use crate::{Status, resources};

/// How long an eviction that was granted may take until the pod counts again.
const DISRUPTION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// The disruption controller.
pub(crate) struct Disruption {
    api: Api,
    queue: Queue,
}

impl Disruption {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, queue: Queue::default() }
    }

    fn sync(&mut self, view: &View, key: &Key, now: Timestamp) -> Result<(), Status> {
        let Some(budget) = view.get(Kind::Budget, key) else { return Ok(()) };
        let selector = LabelSelector::parse(&budget["spec"]["selector"]);
        let matching: Vec<Arc<Pod>> = view
            .pods_in(&key.namespace)
            .filter(|pod| selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels)))
            .cloned()
            .collect();
        if matching.is_empty() {
            self.api.normal(budget, "NoPods", "No matching pods found".to_owned());
        }
        match demand(view, budget, &matching) {
            Ok(demand) => self.write(budget, &matching, demand, now),
            Err(message) => self.write_failure(budget, &message, now),
        }
    }

    fn write(
        &mut self,
        budget: &Arc<Value>,
        matching: &[Arc<Pod>],
        demand: Demand,
        now: Timestamp,
    ) -> Result<(), Status> {
        let disrupted = self.pending_disruptions(budget, matching, now);
        let healthy = matching
            .iter()
            .filter(|pod| pod.deleting.is_none() && pod.is_ready() && !disrupted.contains_key(&pod.key.name))
            .count() as i64;
        let allowed = if demand.expected > 0 { (healthy - demand.healthy).max(0) } else { 0 };
        let (verdict, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        let mut conditions = list(&budget["status"]["conditions"]).to_vec();
        let condition = json!({
            "type": "DisruptionAllowed", "status": verdict, "reason": reason, "message": "",
            "observedGeneration": budget["metadata"]["generation"],
        });
        set_condition(&mut conditions, condition, now);
        let mut status = json!({
            "currentHealthy": healthy, "desiredHealthy": demand.healthy, "expectedPods": demand.expected,
            "disruptionsAllowed": allowed, "observedGeneration": budget["metadata"]["generation"],
            "conditions": conditions,
        });
        if !disrupted.is_empty() {
            status["disruptedPods"] = Value::Object(disrupted);
        }
        self.api.write_status(&resources::POD_DISRUPTION_BUDGETS, budget, status)
    }

    /// Without knowing how many pods there should be, none may go.
    fn write_failure(&mut self, budget: &Arc<Value>, message: &str, now: Timestamp) -> Result<(), Status> {
        let mut status = budget["status"].clone();
        if !status.is_object() {
            status = json!({"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
        }
        status["disruptionsAllowed"] = json!(0);
        let mut conditions = list(&status["conditions"]).to_vec();
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": message,
            "observedGeneration": status["observedGeneration"].as_i64().unwrap_or(0),
        });
        set_condition(&mut conditions, condition, now);
        status["conditions"] = Value::Array(conditions);
        self.api.warning(
            budget,
            "CalculateExpectedPodCountFailed",
            format!("Failed to calculate the number of expected pods: {message}"),
        );
        self.api.write_status(&resources::POD_DISRUPTION_BUDGETS, budget, status)
    }

    /// Pods whose eviction was granted a while ago and that are neither gone nor going; they do not count as healthy
    /// until the grant expires.
    fn pending_disruptions(
        &mut self,
        budget: &Arc<Value>,
        matching: &[Arc<Pod>],
        now: Timestamp,
    ) -> Map<String, Value> {
        let mut pending = Map::new();
        let granted = budget["status"]["disruptedPods"].as_object();
        let pods: BTreeMap<&str, &Arc<Pod>> = match granted {
            Some(_) => matching.iter().map(|pod| (pod.key.name.as_str(), pod)).collect(),
            None => BTreeMap::new(),
        };
        for (name, at) in granted.into_iter().flatten() {
            let Some(pod) = pods.get(name.as_str()).filter(|pod| pod.deleting.is_none()) else { continue };
            let since = timestamp(at).unwrap_or(now);
            let expiry = since.saturating_add(DISRUPTION_TIMEOUT).unwrap_or(Timestamp::MAX);
            if expiry > now {
                pending.insert(name.clone(), at.clone());
                self.queue.add_at(Key::of(budget), expiry);
            } else {
                let key = Key::of(budget);
                let message = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
                self.api.warning(&pod.raw, "NotDeleted", message);
            }
        }
        pending
    }
}

impl Actor for Disruption {
    fn observe(&mut self, view: &View, change: &Change, now: Timestamp) {
        let soon = now.saturating_add(PATIENCE).unwrap_or(now);
        match change {
            Change::Other { kind: Kind::Budget, key, .. } => self.queue.add(key.clone()),
            Change::Pod { before, after } => {
                if let (Some(before), Some(after)) = (before, after)
                    && counts_alike(before, after)
                {
                    return;
                }
                let versions: Vec<_> = [before, after].into_iter().flatten().collect();
                let Some(pod) = versions.first() else { return };
                for (key, budget) in view.in_namespace(Kind::Budget, &pod.key.namespace) {
                    let selector = LabelSelector::parse(&budget["spec"]["selector"]);
                    if selector.is_some_and(|selector| versions.iter().any(|pod| selector.matches(&pod.labels))) {
                        self.queue.add_at(key.clone(), soon);
                    }
                }
            }
            // A workload's size changes what percentages mean.
            Change::Other {
                kind: Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet,
                key,
                before: Some(before),
                after: Some(after),
            } if before["spec"]["replicas"] != after["spec"]["replicas"] => {
                for (key, _) in view.in_namespace(Kind::Budget, &key.namespace) {
                    self.queue.add_at(key.clone(), soon);
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

fn counts_alike(before: &Pod, after: &Pod) -> bool {
    before.uid == after.uid
        && before.labels == after.labels
        && before.is_ready() == after.is_ready()
        && before.deleting.is_some() == after.deleting.is_some()
        && before.owner == after.owner
}

/// How many pods there should be, and how many of them healthy.
struct Demand {
    expected: i64,
    healthy: i64,
}

fn demand(view: &View, budget: &Value, matching: &[Arc<Pod>]) -> Result<Demand, String> {
    let spec = &budget["spec"];
    if !spec["maxUnavailable"].is_null() {
        let expected = expected_scale(view, matching)?;
        let unavailable = pods::resolve(&spec["maxUnavailable"], expected, true).ok_or("invalid maxUnavailable")?;
        return Ok(Demand { expected, healthy: (expected - unavailable).max(0) });
    }
    match &spec["minAvailable"] {
        Value::Null => Ok(Demand { expected: 0, healthy: 0 }),
        Value::Number(number) => Ok(Demand { expected: matching.len() as i64, healthy: number.as_i64().unwrap_or(0) }),
        percentage => {
            let expected = expected_scale(view, matching)?;
            let healthy = pods::resolve(percentage, expected, true).ok_or("invalid minAvailable")?;
            Ok(Demand { expected, healthy })
        }
    }
}

/// The sizes of the workloads behind the pods, each once. Pods without a controller count nothing.
fn expected_scale(view: &View, matching: &[Arc<Pod>]) -> Result<i64, String> {
    let mut scales = BTreeMap::new();
    for pod in matching {
        let Some(owner) = &pod.owner else { continue };
        let key = Key { namespace: pod.key.namespace.clone(), name: owner.name.clone() };
        let found = match owner.kind.as_str() {
            "ReplicaSet" => view.get(Kind::ReplicaSet, &key).map(|set| {
                let above = controller_of(set).filter(|owner| owner.kind == "Deployment");
                let deployment = above.and_then(|owner| {
                    view.get(Kind::Deployment, &Key { namespace: key.namespace.clone(), name: owner.name })
                });
                deployment.unwrap_or(set)
            }),
            "StatefulSet" => view.get(Kind::StatefulSet, &key),
            _ => {
                let kind = resource_of(&owner.kind);
                return Err(format!("{kind} does not implement the scale subresource"));
            }
        };
        let Some(workload) = found else {
            return Err(format!("found no controllers for pod {:?}", pod.key.name));
        };
        let uid = workload["metadata"]["uid"].to_string();
        scales.insert(uid, workload["spec"]["replicas"].as_i64().unwrap_or(1));
    }
    Ok(scales.values().sum())
}

fn resource_of(kind: &str) -> String {
    match kind {
        "DaemonSet" => "daemonsets.apps".to_owned(),
        "Job" => "jobs.batch".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    }
}
