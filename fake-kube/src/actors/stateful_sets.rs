//! StatefulSets: pods with names that stay, made and removed in order, each with its claims.
//!
//! Left out: ControllerRevision objects. The revision is a hash of the template; a pod below the partition that is
//! made anew during an update therefore gets the new template. Claims are made but never deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::Api;
use super::objects::{Key, Pod, controller_reference};
use super::queue::Queue;
use super::selector::{list, text};
use super::view::{Change, Kind, View};
use super::{Actor, PATIENCE, pods};
use crate::{Status, resources};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
const REVISION_HASH: &str = "controller-revision-hash";

/// The StatefulSet controller.
pub(crate) struct StatefulSets {
    api: Api,
    queue: Queue,
}

/// A StatefulSet, its pods by ordinal, and its revisions.
struct Ordered<'a> {
    set: &'a Arc<Value>,
    name: &'a str,
    pods: BTreeMap<i64, Arc<Pod>>,
    first: i64,
    replicas: i64,
    parallel: bool,
    update_revision: String,
    current_revision: String,
    minimum_s: i64,
    now: Timestamp,
}

impl<'a> Ordered<'a> {
    fn new(view: &View, set: &'a Arc<Value>, now: Timestamp) -> Self {
        let name = text(&set["metadata"]["name"]);
        let pods = view.pods_of(set).into_iter().filter_map(|pod| {
            let ordinal = pod.key.name.strip_prefix(name)?.strip_prefix('-')?.parse().ok()?;
            Some((ordinal, pod))
        });
        let hash = pods::template_hash(&set["spec"]["template"], set["status"]["collisionCount"].as_i64().unwrap_or(0));
        let update_revision = format!("{name}-{hash}");
        let current_revision = match text(&set["status"]["currentRevision"]) {
            "" => update_revision.clone(),
            revision => revision.to_owned(),
        };
        Self {
            set,
            name,
            pods: pods.collect(),
            first: set["spec"]["ordinals"]["start"].as_i64().unwrap_or(0),
            replicas: set["spec"]["replicas"].as_i64().unwrap_or(1),
            parallel: set["spec"]["podManagementPolicy"] == "Parallel",
            update_revision,
            current_revision,
            minimum_s: set["spec"]["minReadySeconds"].as_i64().unwrap_or(0),
            now,
        }
    }

    fn ordinals(&self) -> std::ops::Range<i64> {
        self.first..self.first + self.replicas
    }

    fn is_healthy(&self, pod: &Pod) -> bool {
        pod.phase == "Running" && pod.is_available(self.minimum_s, self.now) && pod.deleting.is_none()
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        pod.labels.get(REVISION_HASH) == Some(&self.update_revision)
    }

    fn pod(&self, ordinal: i64) -> Value {
        let name = format!("{}-{ordinal}", self.name);
        let owner = controller_reference("apps/v1", "StatefulSet", self.set);
        let mut pod = pods::from_template(&self.set["spec"]["template"], self.set, owner, "");
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.remove("generateName");
        }
        pod["metadata"]["name"] = json!(name);
        for (label, value) in
            [(POD_NAME, name.as_str()), (POD_INDEX, &ordinal.to_string()), (REVISION_HASH, &self.update_revision)]
        {
            pod["metadata"]["labels"][label] = json!(value);
        }
        pod["spec"]["hostname"] = json!(name);
        if self.set["spec"]["serviceName"].is_string() {
            pod["spec"]["subdomain"] = self.set["spec"]["serviceName"].clone();
        }
        let mut volumes: Vec<Value> = list(&pod["spec"]["volumes"]).to_vec();
        for claim in list(&self.set["spec"]["volumeClaimTemplates"]) {
            let template = text(&claim["metadata"]["name"]);
            volumes.retain(|volume| volume["name"] != template);
            volumes.push(json!({
                "name": template, "persistentVolumeClaim": {"claimName": format!("{template}-{name}")},
            }));
        }
        if !volumes.is_empty() {
            pod["spec"]["volumes"] = Value::Array(volumes);
        }
        pod
    }

    fn claims(&self, ordinal: i64) -> Vec<Value> {
        let templates = list(&self.set["spec"]["volumeClaimTemplates"]).iter();
        templates
            .map(|template| {
                let mut claim = template.clone();
                claim["apiVersion"] = json!("v1");
                claim["kind"] = json!("PersistentVolumeClaim");
                let name = format!("{}-{}-{ordinal}", text(&template["metadata"]["name"]), self.name);
                claim["metadata"]["name"] = json!(name);
                claim["metadata"]["namespace"] = self.set["metadata"]["namespace"].clone();
                for (key, value) in self.set["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten() {
                    claim["metadata"]["labels"][key.as_str()] = value.clone();
                }
                claim
            })
            .collect()
    }
}

impl StatefulSets {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, queue: Queue::default() }
    }

    fn sync(&mut self, view: &View, key: &Key, now: Timestamp) -> Result<(), Status> {
        let Some(set) = view.get(Kind::StatefulSet, key) else { return Ok(()) };
        let ordered = Ordered::new(view, set, now);
        let failure = match set["metadata"]["deletionTimestamp"].is_null() {
            true => self.manage(&ordered).err(),
            false => None,
        };
        self.write_status(&ordered)?;
        failure.map_or(Ok(()), Err)
    }

    /// Makes, removes and replaces pods. In order means: one step at a time, and only past healthy pods.
    fn manage(&mut self, ordered: &Ordered) -> Result<(), Status> {
        for ordinal in ordered.ordinals() {
            match ordered.pods.get(&ordinal) {
                None => {
                    self.create(ordered, ordinal)?;
                    if !ordered.parallel {
                        return Ok(());
                    }
                }
                Some(pod) if pod.is_finished() => {
                    if pod.deleting.is_none() {
                        let message =
                            format!("StatefulSet {} is recreating failed Pod {}", Key::of(ordered.set), pod.key.name);
                        self.api.warning(ordered.set, "RecreatingFailedPod", message);
                        self.delete(ordered, pod)?;
                    }
                    if !ordered.parallel {
                        return Ok(());
                    }
                }
                Some(pod) if !ordered.parallel && !ordered.is_healthy(pod) => return Ok(()),
                Some(_) => {}
            }
        }
        let condemned: Vec<&Arc<Pod>> = ordered
            .pods
            .iter()
            .rev()
            .filter(|(ordinal, _)| !ordered.ordinals().contains(ordinal))
            .map(|(_, pod)| pod)
            .collect();
        for pod in &condemned {
            if pod.deleting.is_none() {
                self.delete(ordered, pod)?;
            }
            if !ordered.parallel {
                return Ok(());
            }
        }
        if ordered.set["spec"]["updateStrategy"]["type"] == "OnDelete" || !condemned.is_empty() {
            return Ok(());
        }
        let partition = ordered.set["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
        for ordinal in ordered.ordinals().rev().take_while(|ordinal| ordinal - ordered.first >= partition) {
            let Some(pod) = ordered.pods.get(&ordinal) else { return Ok(()) };
            if !ordered.is_updated(pod) && pod.deleting.is_none() {
                return self.delete(ordered, pod);
            }
            if !ordered.is_healthy(pod) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn create(&mut self, ordered: &Ordered, ordinal: i64) -> Result<(), Status> {
        for claim in ordered.claims(ordinal) {
            match self.api.create(&resources::PERSISTENT_VOLUME_CLAIMS, claim) {
                Err(status) if !status.is_already_exists() => return Err(status),
                _ => {}
            }
        }
        let pod = self.api.create(&resources::PODS, ordered.pod(ordinal));
        let name = format!("{}-{ordinal}", ordered.name);
        match pod {
            Ok(_) => {
                let message = format!("create Pod {name} in StatefulSet {} successful", ordered.name);
                self.api.normal(ordered.set, "SuccessfulCreate", message);
                Ok(())
            }
            Err(status) => {
                let message = format!("create Pod {name} in StatefulSet {} failed error: {status}", ordered.name);
                self.api.warning(ordered.set, "FailedCreate", message);
                Err(status)
            }
        }
    }

    fn delete(&mut self, ordered: &Ordered, pod: &Pod) -> Result<(), Status> {
        self.api.delete(&resources::PODS, &pod.raw, Default::default())?;
        let message = format!("delete Pod {} in StatefulSet {} successful", pod.key.name, ordered.name);
        self.api.normal(ordered.set, "SuccessfulDelete", message);
        Ok(())
    }

    fn write_status(&mut self, ordered: &Ordered) -> Result<(), Status> {
        let alive: Vec<_> = ordered.pods.values().filter(|pod| !pod.is_finished()).collect();
        let active = || alive.iter().filter(|pod| pod.deleting.is_none());
        let updated = active().filter(|pod| ordered.is_updated(pod)).count();
        let ready = alive.iter().filter(|pod| pod.phase == "Running" && pod.is_ready());
        let available = ready.clone().filter(|pod| pod.is_available(ordered.minimum_s, ordered.now)).count();
        if let Some(at) =
            ready.clone().filter_map(|pod| pod.available_at(ordered.minimum_s)).filter(|at| *at > ordered.now).min()
        {
            self.queue.add_at(Key::of(ordered.set), at);
        }
        let ready = ready.count();
        // The update is over once every pod has the new revision and is ready.
        let wanted = ordered.replicas.max(0) as usize;
        let over = updated == wanted && ready == wanted && alive.len() == wanted;
        let current_revision = if over { &ordered.update_revision } else { &ordered.current_revision };
        let current = active().filter(|pod| pod.labels.get(REVISION_HASH) == Some(current_revision)).count();
        let mut status =
            pods::counts([("readyReplicas", ready), ("currentReplicas", current), ("updatedReplicas", updated)]);
        status["replicas"] = json!(alive.len());
        status["availableReplicas"] = json!(available);
        status["currentRevision"] = json!(current_revision);
        status["updateRevision"] = json!(ordered.update_revision);
        status["collisionCount"] = json!(ordered.set["status"]["collisionCount"].as_i64().unwrap_or(0));
        status["observedGeneration"] = ordered.set["metadata"]["generation"].clone();
        self.api.write_status(&resources::STATEFUL_SETS, ordered.set, status)
    }
}

impl Actor for StatefulSets {
    fn observe(&mut self, _: &View, change: &Change, now: Timestamp) {
        match change {
            Change::Other { kind: Kind::StatefulSet, key, .. } => self.queue.add(key.clone()),
            Change::Pod { before, after } => {
                let soon = now.saturating_add(PATIENCE).unwrap_or(now);
                let keys = [before, after].into_iter().flatten().filter_map(|pod| pods::owner_key(pod, "StatefulSet"));
                keys.for_each(|key| self.queue.add_at(key, soon));
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
