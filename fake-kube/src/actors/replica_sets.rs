//! ReplicaSets: as many pods as asked for, made from the template, and the counts in the status. Pods are given up in
//! the order of kube-controller-manager: first those that matter least.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::Api;
use super::objects::{Key, Pod, controller_reference, set_condition};
use super::queue::Queue;
use super::selector::{LabelSelector, list, strings, text};
use super::view::{Change, Kind, View};
use super::{Actor, PATIENCE, pods};
use crate::resources;

/// The ReplicaSet controller.
pub(crate) struct ReplicaSets {
    api: Api,
    queue: Queue,
}

impl ReplicaSets {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, queue: Queue::default() }
    }

    fn sync(&mut self, view: &View, key: &Key, now: Timestamp) -> Result<(), crate::Status> {
        let Some(replica_set) = view.get(Kind::ReplicaSet, key) else { return Ok(()) };
        let mut owned = view.pods_of(replica_set);
        if replica_set["metadata"]["deletionTimestamp"].is_null() {
            let selector = LabelSelector::parse(&replica_set["spec"]["selector"]);
            pods::release_strangers(&self.api, replica_set, selector.as_ref(), &mut owned)?;
            if pods::adopt(&self.api, "apps/v1", "ReplicaSet", replica_set, selector.as_ref(), view)? {
                return Ok(()); // The adopted pods come back as events.
            }
        }
        let terminating = owned.iter().filter(|pod| pod.deleting.is_some() && !pod.is_finished()).count();
        let active: Vec<Arc<Pod>> = owned.into_iter().filter(|pod| pod.is_active()).collect();
        let failure = match replica_set["metadata"]["deletionTimestamp"].is_null() {
            true => self.manage(view, replica_set, &active, now).err(),
            false => None,
        };
        self.write_status(replica_set, &active, terminating, failure.as_ref(), now)?;
        failure.map_or(Ok(()), Err)
    }

    fn manage(
        &mut self,
        view: &View,
        replica_set: &Arc<Value>,
        active: &[Arc<Pod>],
        now: Timestamp,
    ) -> Result<(), crate::Status> {
        let wanted = replica_set["spec"]["replicas"].as_u64().unwrap_or(1) as usize;
        for _ in active.len()..wanted {
            let owner = controller_reference("apps/v1", "ReplicaSet", replica_set);
            let prefix = format!("{}-", text(&replica_set["metadata"]["name"]));
            let pod = pods::from_template(&replica_set["spec"]["template"], replica_set, owner, &prefix);
            pods::create(&mut self.api, replica_set, pod)?;
        }
        if active.len() > wanted {
            for pod in least_important(active, &related(view, replica_set), now).into_iter().take(active.len() - wanted)
            {
                pods::delete(&mut self.api, replica_set, &pod)?;
            }
        }
        Ok(())
    }

    fn write_status(
        &mut self,
        replica_set: &Arc<Value>,
        active: &[Arc<Pod>],
        terminating: usize,
        failure: Option<&crate::Status>,
        now: Timestamp,
    ) -> Result<(), crate::Status> {
        let template_labels = strings(&replica_set["spec"]["template"]["metadata"]["labels"]);
        let minimum = replica_set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
        let fully_labeled =
            |pod: &&Arc<Pod>| template_labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value));
        let mut conditions = list(&replica_set["status"]["conditions"]).to_vec();
        match failure {
            Some(failure) => drop(set_condition(
                &mut conditions,
                json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": failure.message}),
                now,
            )),
            None => conditions.retain(|condition| condition["type"] != "ReplicaFailure"),
        }
        let mut status = pods::counts([
            ("fullyLabeledReplicas", active.iter().filter(fully_labeled).count()),
            ("readyReplicas", active.iter().filter(|pod| pod.is_ready()).count()),
            ("availableReplicas", active.iter().filter(|pod| pod.is_available(minimum, now)).count()),
        ]);
        status["replicas"] = json!(active.len());
        status["terminatingReplicas"] = json!(terminating);
        status["observedGeneration"] = replica_set["metadata"]["generation"].clone();
        if !conditions.is_empty() {
            status["conditions"] = Value::Array(conditions);
        }
        if let Some(at) = active.iter().filter_map(|pod| pod.available_at(minimum)).filter(|at| *at > now).min() {
            self.queue.add_at(Key::of(replica_set), at);
        }
        self.api.write_status(&resources::REPLICA_SETS, replica_set, status)
    }
}

impl Actor for ReplicaSets {
    fn observe(&mut self, view: &View, change: &Change, now: Timestamp) {
        match change {
            Change::Other { kind: Kind::ReplicaSet, key, .. } => self.queue.add(key.clone()),
            Change::Pod { before, after } => {
                for pod in [before, after].into_iter().flatten() {
                    match &pod.owner {
                        Some(owner) if owner.kind == "ReplicaSet" => {
                            let key = Key { namespace: pod.key.namespace.clone(), name: owner.name.clone() };
                            self.queue.add_at(key, now.saturating_add(PATIENCE).unwrap_or(now));
                        }
                        Some(_) => {}
                        None => {
                            for (key, replica_set) in view.in_namespace(Kind::ReplicaSet, &pod.key.namespace) {
                                let selector = LabelSelector::parse(&replica_set["spec"]["selector"]);
                                if selector.is_some_and(|selector| selector.matches(&pod.labels)) {
                                    self.queue.add(key.clone());
                                }
                            }
                        }
                    }
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

/// How many active pods of the same workload (all ReplicaSets of the same owner) each node holds.
fn related(view: &View, replica_set: &Arc<Value>) -> BTreeMap<String, usize> {
    let siblings = match super::objects::controller_of(replica_set) {
        Some(owner) => view.replica_sets_of(&json!({"metadata": {"uid": owner.uid}})),
        None => vec![replica_set.clone()],
    };
    let mut by_node = BTreeMap::new();
    for pod in siblings.iter().flat_map(|sibling| view.pods_of(sibling)).filter(|pod| pod.is_active()) {
        *by_node.entry(pod.node_name.clone()).or_insert(0) += 1;
    }
    by_node
}

/// The pods, those to be given up first in front.
fn least_important(active: &[Arc<Pod>], related: &BTreeMap<String, usize>, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut pods = active.to_vec();
    pods.sort_by(|one, other| compare(one, other, related, now));
    pods
}

/// Unassigned before assigned, pending before running, not ready before ready, lower deletion cost first, crowded nodes
/// first, briefly ready before long ready, more restarts first, young before old. Ages compare by powers of two, so
/// that equals are chosen by uid and not always the youngest. The genuine controller looks at the uid as soon as two
/// different ages are of one power, which is no order (it can go round in a ring); here it decides last.
fn compare(one: &Pod, other: &Pod, related: &BTreeMap<String, usize>, now: Timestamp) -> Ordering {
    let phase = |pod: &Pod| match pod.phase.as_str() {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    let crowd = |pod: &Pod| Reverse(related.get(&pod.node_name).copied().unwrap_or(0));
    let ready = |pod: &Pod| pod.ready_since.map(|since| magnitude(now, since));
    (!one.node_name.is_empty())
        .cmp(&!other.node_name.is_empty())
        .then_with(|| phase(one).cmp(&phase(other)))
        .then_with(|| one.is_ready().cmp(&other.is_ready()))
        .then_with(|| deletion_cost(one).cmp(&deletion_cost(other)))
        .then_with(|| crowd(one).cmp(&crowd(other)))
        .then_with(|| ready(one).cmp(&ready(other)))
        .then_with(|| restarts(other).cmp(&restarts(one)))
        .then_with(|| magnitude(now, one.created).cmp(&magnitude(now, other.created)))
        .then_with(|| one.uid.cmp(&other.uid))
}

fn deletion_cost(pod: &Pod) -> i64 {
    text(&pod.raw["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"]).parse().unwrap_or(0)
}

fn restarts(pod: &Pod) -> i64 {
    let statuses = list(&pod.raw["status"]["containerStatuses"]).iter();
    statuses.filter_map(|status| status["restartCount"].as_i64()).max().unwrap_or(0)
}

/// The power of two of an age; younger is smaller.
fn magnitude(now: Timestamp, since: Timestamp) -> i64 {
    match now.duration_since(since).as_nanos() {
        age if age <= 0 => -1,
        age => i64::from(age.ilog2()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
        let mut raw = json!({
            "metadata": {"namespace": "default", "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "node"},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}]},
        });
        change(&mut raw);
        Arc::new(Pod::parse(Arc::new(raw)))
    }

    #[test]
    fn pods_are_given_up_in_the_documented_order() {
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let pods = [
            pod("7-old", |_| {}),
            pod("6-restarted", |raw| raw["status"]["containerStatuses"] = json!([{"restartCount": 3}])),
            pod("5-recently-ready", |raw| {
                raw["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T23:59:00Z")
            }),
            pod("4-crowded", |raw| raw["spec"]["nodeName"] = json!("crowded")),
            pod("3-cheap", |raw| {
                raw["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": "-10"})
            }),
            pod("2-not-ready", |raw| raw["status"]["conditions"] = json!([])),
            pod("1-pending", |raw| raw["status"]["phase"] = json!("Pending")),
            pod("0-unassigned", |raw| raw["spec"] = json!({})),
        ];
        let related = BTreeMap::from([("node".to_owned(), 1), ("crowded".to_owned(), 5)]);
        let order: Vec<_> = least_important(&pods, &related, now).iter().map(|pod| pod.key.name.clone()).collect();
        let mut expected = order.clone();
        expected.sort();
        assert_eq!(order, expected);
    }
}
