//! DaemonSets: one pod on every node that takes it, pinned by a node affinity on the node's name and tolerant of the
//! node's troubles.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::Api;
use super::needs::Needs;
use super::objects::{Key, Node, Pod, controller_reference};
use super::queue::Queue;
use super::selector::{LabelSelector, list, text};
use super::view::{Change, Kind, View};
use super::{Actor, PATIENCE, pods};
use crate::{Status, resources};

const REVISION_HASH: &str = "controller-revision-hash";
const TEMPLATE_GENERATION: &str = "pod-template-generation";

/// Taints every daemon pod tolerates.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// The one more for pods on the host's network: they must run before the network does.
const TOLERATED_ON_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The DaemonSet controller.
pub(crate) struct DaemonSets {
    api: Api,
    queue: Queue,
}

/// Whether a node should have the daemon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Runs,
    /// A pod that is there may stay, none is made: the node got a `NoSchedule` taint.
    Keeps,
    Refuses,
}

impl DaemonSets {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, queue: Queue::default() }
    }

    fn sync(&mut self, view: &View, key: &Key, now: Timestamp) -> Result<(), Status> {
        let Some(set) = view.get(Kind::DaemonSet, key) else { return Ok(()) };
        // A selector that selects everything is refused by the genuine controller too.
        if LabelSelector::parse(&set["spec"]["selector"]).is_none_or(|selector| selector.is_empty())
            || !set["metadata"]["deletionTimestamp"].is_null()
        {
            return Ok(());
        }
        let daemon = Daemon::new(set);
        let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in view.pods_of(set) {
            by_node.entry(node_of(&pod)).or_default().push(pod);
        }
        let failure = self.place(view, &daemon, &by_node).and_then(|()| self.roll(view, &daemon, &by_node, now)).err();
        self.write_status(view, &daemon, &by_node, now)?;
        failure.map_or(Ok(()), Err)
    }

    /// Makes the pods that are missing and removes those that must not be.
    fn place(&mut self, view: &View, daemon: &Daemon, by_node: &BTreeMap<String, Vec<Arc<Pod>>>) -> Result<(), Status> {
        let none = vec![];
        for node in view.nodes.values() {
            let pods = by_node.get(&node.name).unwrap_or(&none);
            let place = daemon.place(node);
            let (failed, alive): (Vec<_>, Vec<_>) =
                pods.iter().filter(|pod| pod.deleting.is_none()).partition(|pod| pod.is_finished());
            if place != Place::Refuses {
                for pod in &failed {
                    let (what, reason) = match pod.phase.as_str() {
                        "Failed" => ("failed", "FailedDaemonPod"),
                        _ => ("succeeded", "SucceededDaemonPod"),
                    };
                    let message =
                        format!("Found {what} daemon pod {} on node {}, will try to kill it", pod.key, node.name);
                    self.api.warning(daemon.set, reason, message);
                    pods::delete(&mut self.api, daemon.set, pod)?;
                }
            }
            match place {
                // A pod that is still terminating holds the place.
                Place::Runs if pods.is_empty() => {
                    drop(pods::create(&mut self.api, daemon.set, daemon.pod(&node.name))?)
                }
                Place::Refuses => {
                    for pod in alive {
                        pods::delete(&mut self.api, daemon.set, pod)?;
                    }
                }
                // Two of the same version: the older stays. During a surge old and new stand side by side.
                _ => {
                    let mut same: Vec<_> = alive.into_iter().filter(|pod| daemon.is_updated(pod)).collect();
                    same.sort_by_key(|pod| (pod.node_name.is_empty(), pod.created, pod.key.clone()));
                    for pod in same.into_iter().skip(1) {
                        pods::delete(&mut self.api, daemon.set, pod)?;
                    }
                }
            }
        }
        // Pods for a node that is gone will never be bound.
        for (node, pods) in by_node.iter().filter(|(node, _)| !view.nodes.contains_key(*node)) {
            for pod in pods.iter().filter(|pod| pod.deleting.is_none() && pod.node_name.is_empty() && !node.is_empty())
            {
                pods::delete(&mut self.api, daemon.set, pod)?;
            }
        }
        Ok(())
    }

    /// Replaces pods of older versions: unavailable ones at once, others as far as `maxUnavailable` allows, or behind
    /// a ready replacement where the set surges.
    fn roll(
        &mut self,
        view: &View,
        daemon: &Daemon,
        by_node: &BTreeMap<String, Vec<Arc<Pod>>>,
        now: Timestamp,
    ) -> Result<(), Status> {
        if daemon.set["spec"]["updateStrategy"]["type"] == "OnDelete" {
            return Ok(());
        }
        let wanted: Vec<&Arc<Node>> = view.nodes.values().filter(|node| daemon.place(node) == Place::Runs).collect();
        let rolling = &daemon.set["spec"]["updateStrategy"]["rollingUpdate"];
        let total = wanted.len() as i64;
        let surge = pods::resolve(&rolling["maxSurge"], total, true).unwrap_or(0);
        let unavailable = pods::resolve(&rolling["maxUnavailable"], total, true).unwrap_or(1);
        let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
        let (mut down, mut surging, mut candidates) = (0, 0, vec![]);
        for node in wanted {
            let Some(pods) = by_node.get(&node.name) else {
                down += 1;
                continue;
            };
            let alive = || pods.iter().filter(|pod| pod.is_active());
            let available = |pod: &&Arc<Pod>| pod.is_available(daemon.minimum_s(), now);
            let new = alive().find(|pod| daemon.is_updated(pod));
            let old = alive().find(|pod| !daemon.is_updated(pod));
            match (new, old) {
                (Some(new), Some(old)) if available(&new) => pods::delete(&mut self.api, daemon.set, old)?,
                (Some(_), Some(_)) => surging += 1,
                (None, Some(old)) if available(&old) => candidates.push((node, old.clone())),
                (None, Some(old)) => {
                    down += 1;
                    pods::delete(&mut self.api, daemon.set, old)?;
                }
                (Some(new), None) if available(&new) => {}
                _ => down += 1,
            }
        }
        if surge > 0 {
            for (node, _) in candidates.into_iter().take((surge - surging).max(0) as usize) {
                pods::create(&mut self.api, daemon.set, daemon.pod(&node.name))?;
            }
        } else {
            for (_, old) in candidates.into_iter().take((unavailable - down).max(0) as usize) {
                pods::delete(&mut self.api, daemon.set, &old)?;
            }
        }
        Ok(())
    }

    fn write_status(
        &mut self,
        view: &View,
        daemon: &Daemon,
        by_node: &BTreeMap<String, Vec<Arc<Pod>>>,
        now: Timestamp,
    ) -> Result<(), Status> {
        let (mut desired, mut current, mut misplaced, mut ready, mut available, mut updated) = (0, 0, 0, 0, 0, 0);
        let mut next = None;
        for node in view.nodes.values() {
            let pods = by_node.get(&node.name).map_or(&[][..], Vec::as_slice);
            if daemon.place(node) != Place::Runs {
                misplaced += usize::from(daemon.place(node) == Place::Refuses && !pods.is_empty());
                continue;
            }
            desired += 1;
            let Some(pod) = pods.iter().min_by_key(|pod| (pod.created, pod.key.clone())) else { continue };
            current += 1;
            if pod.is_ready() {
                ready += 1;
                match pod.is_available(daemon.minimum_s(), now) {
                    true => available += 1,
                    false => next = next.into_iter().chain(pod.available_at(daemon.minimum_s())).min(),
                }
            }
            updated += usize::from(daemon.is_updated(pod));
        }
        if let Some(at) = next {
            self.queue.add_at(Key::of(daemon.set), at);
        }
        let mut status = pods::counts([
            ("updatedNumberScheduled", updated),
            ("numberAvailable", available),
            ("numberUnavailable", desired - available),
        ]);
        for (field, count) in [
            ("currentNumberScheduled", current),
            ("desiredNumberScheduled", desired),
            ("numberMisscheduled", misplaced),
            ("numberReady", ready),
        ] {
            status[field] = json!(count);
        }
        status["observedGeneration"] = daemon.set["metadata"]["generation"].clone();
        self.api.write_status(&resources::DAEMON_SETS, daemon.set, status)
    }
}

impl Actor for DaemonSets {
    fn observe(&mut self, view: &View, change: &Change, now: Timestamp) {
        let soon = now.saturating_add(PATIENCE).unwrap_or(now);
        match change {
            Change::Other { kind: Kind::DaemonSet, key, .. } => self.queue.add(key.clone()),
            Change::Pod { before, after } => {
                let keys = [before, after].into_iter().flatten().filter_map(|pod| pods::owner_key(pod, "DaemonSet"));
                keys.for_each(|key| self.queue.add_at(key, soon));
            }
            Change::Node { before, after } => {
                let same = matches!((before, after), (Some(before), Some(after)) if before.places_as(after));
                if !same {
                    view.all(Kind::DaemonSet).for_each(|(key, _)| self.queue.add_at(key.clone(), soon));
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

/// A DaemonSet with what its pods will look like.
struct Daemon<'a> {
    set: &'a Arc<Value>,
    template: Value,
    needs: Needs,
    /// `spec.template.spec.nodeName`, where the template is meant for one node.
    node_name: String,
    hash: String,
}

impl<'a> Daemon<'a> {
    fn new(set: &'a Arc<Value>) -> Self {
        let mut template = set["spec"]["template"].clone();
        let hash = pods::template_hash(&template, set["status"]["collisionCount"].as_i64().unwrap_or(0));
        template["metadata"]["labels"][REVISION_HASH] = json!(hash);
        let generation = &set["metadata"]["annotations"]["deprecated.daemonset.template.generation"];
        template["metadata"]["labels"][TEMPLATE_GENERATION] =
            if generation.is_string() { generation.clone() } else { json!("1") };
        let host_network = template["spec"]["hostNetwork"] == true;
        let extra = host_network.then_some(TOLERATED_ON_HOST_NETWORK);
        let mut tolerations = list(&template["spec"]["tolerations"]).to_vec();
        for (key, effect) in TOLERATED.into_iter().chain(extra) {
            let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
            if !tolerations.contains(&toleration) {
                tolerations.push(toleration);
            }
        }
        template["spec"]["tolerations"] = Value::Array(tolerations);
        let needs = Needs::parse(&template);
        Self { set, needs, node_name: text(&template["spec"]["nodeName"]).to_owned(), template, hash }
    }

    fn minimum_s(&self) -> i64 {
        self.set["spec"]["minReadySeconds"].as_i64().unwrap_or(0)
    }

    fn place(&self, node: &Node) -> Place {
        let named = self.node_name.is_empty() || self.node_name == node.name;
        if !named || !self.needs.selects(&node.name, &node.labels) {
            return Place::Refuses;
        }
        let mut place = Place::Runs;
        for taint in node.taints.iter().filter(|taint| !self.needs.tolerates(taint)) {
            match taint.effect.as_str() {
                "NoExecute" => return Place::Refuses,
                "NoSchedule" => place = Place::Keeps,
                _ => {}
            }
        }
        place
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        pod.labels.get(REVISION_HASH) == Some(&self.hash)
    }

    /// The pod for one node. Its name in the required affinity replaces the template's own terms, which the node meets.
    fn pod(&self, node_name: &str) -> Value {
        let owner = controller_reference("apps/v1", "DaemonSet", self.set);
        let prefix = format!("{}-", text(&self.set["metadata"]["name"]));
        let mut pod = pods::from_template(&self.template, self.set, owner, &prefix);
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]},
            ],
        });
        pod
    }
}

/// The node a daemon pod is on or meant for.
fn node_of(pod: &Pod) -> String {
    if !pod.node_name.is_empty() {
        return pod.node_name.clone();
    }
    pod.needs().node_names.iter().flatten().next().cloned().unwrap_or_default()
}
