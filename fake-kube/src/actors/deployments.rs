//! Deployments: one ReplicaSet per version of the template, sizes moved between them by the strategy, old versions kept
//! for the history, and conditions that tell how far a rollout is.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Actor;
use super::api::Api;
use super::objects::{Key, controller_of, controller_reference, time, timestamp};
use super::queue::Queue;
use super::selector::{list, text};
use super::view::{Change, Kind, View};
use super::{PATIENCE, pods};
use crate::{DeleteOptions, Status, resources};

const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
const TEMPLATE_HASH: &str = "pod-template-hash";

/// The Deployment controller.
pub(crate) struct Deployments {
    api: Api,
    queue: Queue,
}

/// A Deployment with its ReplicaSets, and what its strategy allows.
struct Rollout {
    deployment: Arc<Value>,
    current: Option<Set>,
    /// Oldest first.
    old: Vec<Set>,
    replicas: i64,
    max_surge: i64,
    max_unavailable: i64,
    /// The current ReplicaSet was made in this sync.
    created: bool,
}

/// A ReplicaSet with its size, which moves as the sync proceeds.
#[derive(Clone)]
struct Set {
    object: Arc<Value>,
    replicas: i64,
}

impl Set {
    fn new(object: Arc<Value>) -> Self {
        Self { replicas: object["spec"]["replicas"].as_i64().unwrap_or(1), object }
    }

    fn name(&self) -> &str {
        text(&self.object["metadata"]["name"])
    }

    fn count(&self, field: &str) -> i64 {
        self.object["status"][field].as_i64().unwrap_or(0)
    }

    fn annotation(&self, name: &str) -> Option<i64> {
        text(&self.object["metadata"]["annotations"][name]).parse().ok()
    }
}

impl Rollout {
    fn new(deployment: &Arc<Value>, view: &View) -> Self {
        let mut sets: Vec<Set> = view.replica_sets_of(deployment).into_iter().map(Set::new).collect();
        sets.sort_by_key(|set| (timestamp(&set.object["metadata"]["creationTimestamp"]), set.name().to_owned()));
        let template = without_hash(&deployment["spec"]["template"]);
        let current = sets.iter().position(|set| without_hash(&set.object["spec"]["template"]) == template);
        let current = current.map(|index| sets.remove(index));
        let replicas = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
        let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
        let recreates = deployment["spec"]["strategy"]["type"] == "Recreate";
        let resolve = |field: &str, round_up| match &rolling[field] {
            Value::Null => pods::resolve(&json!("25%"), replicas, round_up),
            value => pods::resolve(value, replicas, round_up),
        };
        let (mut max_surge, mut max_unavailable) = (0, 0);
        if !recreates {
            max_surge = resolve("maxSurge", true).unwrap_or(0);
            max_unavailable = resolve("maxUnavailable", false).unwrap_or(0).min(replicas);
            if max_surge == 0 && max_unavailable == 0 {
                max_unavailable = 1; // Both zero would never move; percentages can round to that.
            }
        }
        Self {
            deployment: deployment.clone(),
            current,
            old: sets,
            replicas,
            max_surge,
            max_unavailable,
            created: false,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.current)
    }

    fn sum(&self, field: &str) -> i64 {
        self.all().map(|set| set.count(field)).sum()
    }

    fn total(&self) -> i64 {
        self.all().map(|set| set.replicas).sum()
    }

    fn is_paused(&self) -> bool {
        self.deployment["spec"]["paused"] == true
    }

    /// Everything runs the current version and nothing else runs.
    fn is_complete(&self) -> bool {
        let current = self.current.as_ref();
        let updated = current.map_or(0, |set| set.count("replicas"));
        updated == self.replicas
            && self.sum("replicas") == self.replicas
            && self.sum("availableReplicas") == self.replicas
            && current
                .is_some_and(|set| set.object["status"]["observedGeneration"] == set.object["metadata"]["generation"])
    }
}

impl Deployments {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, queue: Queue::default() }
    }

    fn sync(&mut self, view: &View, key: &Key, now: Timestamp) -> Result<(), Status> {
        let Some(deployment) = view.get(Kind::Deployment, key) else { return Ok(()) };
        let mut rollout = Rollout::new(deployment, view);
        if !deployment["metadata"]["deletionTimestamp"].is_null() {
            return self.write_status(&rollout, now);
        }
        if rollout.is_paused() || self.is_being_scaled(&rollout) {
            self.scale(&mut rollout)?;
        } else if deployment["spec"]["strategy"]["type"] == "Recreate" {
            self.recreate(view, &mut rollout)?;
        } else {
            self.roll(&mut rollout)?;
        }
        if rollout.is_complete() {
            self.clean_up(&rollout)?;
        }
        self.write_status(&rollout, now)
    }

    /// The wanted size differs from the one the ReplicaSets were last sized for.
    fn is_being_scaled(&self, rollout: &Rollout) -> bool {
        let mut active = rollout.all().filter(|set| set.replicas > 0);
        active.any(|set| set.annotation(DESIRED_REPLICAS).is_some_and(|desired| desired != rollout.replicas))
    }

    /// Sizes the ReplicaSets for a new total without moving the rollout on: the only active one takes all, several share
    /// the difference in proportion, the largest takes what rounding leaves.
    fn scale(&mut self, rollout: &mut Rollout) -> Result<(), Status> {
        let active: Vec<usize> = (0..rollout.old.len()).filter(|index| rollout.old[*index].replicas > 0).collect();
        let current_active = rollout.current.as_ref().is_some_and(|set| set.replicas > 0);
        if active.is_empty() {
            let replicas = rollout.replicas;
            let Some(set) = rollout.current.take() else { return Ok(()) };
            rollout.current = Some(self.resize(rollout, set, replicas)?);
            return Ok(());
        }
        if active.len() == 1 && !current_active {
            let (index, replicas) = (active[0], rollout.replicas);
            rollout.old[index] = self.resize(rollout, rollout.old[index].clone(), replicas)?;
            return Ok(());
        }
        let mut sets: Vec<Set> = active.iter().map(|index| rollout.old[*index].clone()).collect();
        sets.extend(rollout.current.clone().filter(|_| current_active));
        let total: i64 = sets.iter().map(|set| set.replicas).sum();
        let allowed = if rollout.replicas > 0 { rollout.replicas + rollout.max_surge } else { 0 };
        let to_add = allowed - total;
        // Growing favours the newer of equals, shrinking the older.
        sets.sort_by_key(|set| {
            let created = timestamp(&set.object["metadata"]["creationTimestamp"]).map_or(0, Timestamp::as_second);
            (-set.replicas, if to_add > 0 { -created } else { created })
        });
        let mut added = 0;
        let mut sizes = BTreeMap::new();
        for set in &sets {
            let share = if to_add == 0 { 0 } else { self.share(rollout, set, to_add, added) };
            added += share;
            sizes.insert(set.name().to_owned(), set.replicas + share);
        }
        if let Some(largest) = sets.first() {
            let size = sizes.entry(largest.name().to_owned()).or_default();
            *size = (*size + to_add - added).max(0);
        }
        for set in sets {
            let size = sizes[set.name()];
            let resized = self.resize(rollout, set, size)?;
            match rollout.old.iter_mut().find(|old| old.name() == resized.name()) {
                Some(old) => *old = resized,
                None => rollout.current = Some(resized),
            }
        }
        Ok(())
    }

    /// A ReplicaSet's share of the replicas to add or remove, measured by the size it had of the former maximum.
    fn share(&self, rollout: &Rollout, set: &Set, to_add: i64, added: i64) -> i64 {
        let former = set.annotation(MAX_REPLICAS).filter(|former| *former > 0);
        let former = former.unwrap_or_else(|| rollout.deployment["status"]["replicas"].as_i64().unwrap_or(1).max(1));
        let grown = (set.replicas * (rollout.replicas + rollout.max_surge)) as f64 / former as f64;
        let share = grown.round() as i64 - set.replicas;
        let left = to_add - added;
        if to_add > 0 { share.clamp(0, left.max(0)) } else { share.clamp(left.min(0), 0) }
    }

    fn recreate(&mut self, view: &View, rollout: &mut Rollout) -> Result<(), Status> {
        let mut shrunk = false;
        for index in 0..rollout.old.len() {
            if rollout.old[index].replicas > 0 {
                rollout.old[index] = self.resize(rollout, rollout.old[index].clone(), 0)?;
                shrunk = true;
            }
        }
        let old_pods = rollout.old.iter().flat_map(|set| view.pods_of(&set.object));
        if shrunk || old_pods.into_iter().any(|pod| !pod.is_finished()) {
            return Ok(());
        }
        let set = self.current(rollout, rollout.replicas)?;
        let replicas = rollout.replicas;
        rollout.current = Some(self.resize(rollout, set, replicas)?);
        Ok(())
    }

    fn roll(&mut self, rollout: &mut Rollout) -> Result<(), Status> {
        let room = |rollout: &Rollout| (rollout.replicas + rollout.max_surge - rollout.total()).max(0);
        let set = match rollout.current.take() {
            Some(set) => {
                rollout.current = Some(set.clone());
                let set = self.annotate(rollout, set)?;
                if set.replicas > rollout.replicas {
                    let replicas = rollout.replicas;
                    self.resize(rollout, set, replicas)?
                } else if set.replicas < rollout.replicas {
                    let size = set.replicas + room(rollout).min(rollout.replicas - set.replicas);
                    self.resize(rollout, set, size)?
                } else {
                    set
                }
            }
            None => self.current(rollout, room(rollout).min(rollout.replicas))?,
        };
        let grew = rollout.current.as_ref().is_none_or(|before| before.replicas != set.replicas);
        rollout.current = Some(set);
        if !grew {
            self.shrink_old(rollout)?;
        }
        Ok(())
    }

    /// Takes replicas from old versions as far as availability allows, the unhealthy ones first.
    fn shrink_old(&mut self, rollout: &mut Rollout) -> Result<(), Status> {
        let old: i64 = rollout.old.iter().map(|set| set.replicas).sum();
        let Some(current) = rollout.current.clone().filter(|_| old > 0) else { return Ok(()) };
        let minimum = rollout.replicas - rollout.max_unavailable;
        let pending = current.replicas - current.count("availableReplicas");
        let mut unhealthy = (rollout.total() - minimum - pending).max(0);
        for index in 0..rollout.old.len() {
            let set = rollout.old[index].clone();
            let dead = (set.replicas - set.count("availableReplicas")).clamp(0, unhealthy);
            if dead > 0 {
                unhealthy -= dead;
                rollout.old[index] = self.resize(rollout, set.clone(), set.replicas - dead)?;
            }
        }
        let mut spare = rollout.sum("availableReplicas") - minimum;
        for index in 0..rollout.old.len() {
            let set = rollout.old[index].clone();
            let give = set.replicas.min(spare);
            if give > 0 {
                spare -= give;
                rollout.old[index] = self.resize(rollout, set.clone(), set.replicas - give)?;
            }
        }
        Ok(())
    }

    /// The ReplicaSet of the present template, created with `replicas` if there is none.
    fn current(&mut self, rollout: &mut Rollout, replicas: i64) -> Result<Set, Status> {
        if let Some(set) = rollout.current.clone() {
            return self.annotate(rollout, set);
        }
        let deployment = rollout.deployment.clone();
        let (metadata, spec) = (&deployment["metadata"], &deployment["spec"]);
        let collisions = deployment["status"]["collisionCount"].as_i64().unwrap_or(0);
        let hash = pods::template_hash(&spec["template"], collisions);
        let mut template = spec["template"].clone();
        template["metadata"]["labels"][TEMPLATE_HASH] = json!(hash);
        let mut selector = spec["selector"].clone();
        selector["matchLabels"][TEMPLATE_HASH] = json!(hash);
        let mut annotations = inherited_annotations(&deployment);
        annotations[REVISION] = json!(next_revision(rollout).to_string());
        annotations[DESIRED_REPLICAS] = json!(rollout.replicas.to_string());
        annotations[MAX_REPLICAS] = json!((rollout.replicas + rollout.max_surge).to_string());
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": format!("{}-{hash}", text(&metadata["name"])), "namespace": metadata["namespace"],
                "labels": template["metadata"]["labels"], "annotations": annotations,
                "ownerReferences": [controller_reference("apps/v1", "Deployment", &deployment)],
            },
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        });
        if let Some(seconds) = spec["minReadySeconds"].as_i64() {
            object["spec"]["minReadySeconds"] = json!(seconds);
        }
        match self.api.create(&resources::REPLICA_SETS, object) {
            Ok(object) => {
                let set = Set::new(object);
                rollout.created = true;
                if replicas > 0 {
                    self.tell_scaled(rollout, set.name(), 0, replicas);
                }
                Ok(set)
            }
            Err(status) => {
                if status.is_already_exists() {
                    // Another template with the same hash: count the collision, so that the next try hashes otherwise.
                    let patch = json!({"status": {"collisionCount": collisions + 1}});
                    self.api.patch_status(&resources::DEPLOYMENTS, &Key::of(&deployment), patch)?;
                } else {
                    let message = format!("Failed to create new replica set: {status}");
                    self.api.warning(&deployment, "ReplicaSetCreateError", message);
                }
                Err(status)
            }
        }
    }

    /// Makes the current ReplicaSet the newest revision, as a rollback to an older template needs.
    fn annotate(&mut self, rollout: &Rollout, set: Set) -> Result<Set, Status> {
        let highest = rollout.old.iter().filter_map(|set| set.annotation(REVISION)).max().unwrap_or(0);
        let mut annotations = json!({});
        if set.annotation(REVISION).unwrap_or(0) <= highest {
            annotations[REVISION] = json!((highest + 1).to_string());
        }
        let wanted = &rollout.deployment["spec"]["minReadySeconds"];
        let delayed = wanted.as_i64().unwrap_or(0) != set.object["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
        if annotations == json!({}) && !delayed {
            return Ok(set);
        }
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"minReadySeconds": wanted}});
        Ok(Set::new(self.api.patch(&resources::REPLICA_SETS, &Key::of(&set.object), patch)?))
    }

    fn resize(&mut self, rollout: &Rollout, set: Set, replicas: i64) -> Result<Set, Status> {
        let desired = rollout.replicas;
        let most = desired + rollout.max_surge;
        let sized_for = set.annotation(DESIRED_REPLICAS) == Some(desired) && set.annotation(MAX_REPLICAS) == Some(most);
        if set.replicas == replicas && sized_for {
            return Ok(set);
        }
        let patch = json!({
            "metadata": {"annotations": {DESIRED_REPLICAS: desired.to_string(), MAX_REPLICAS: most.to_string()}},
            "spec": {"replicas": replicas},
        });
        let object = self.api.patch(&resources::REPLICA_SETS, &Key::of(&set.object), patch)?;
        if set.replicas != replicas {
            self.tell_scaled(rollout, set.name(), set.replicas, replicas);
        }
        Ok(Set::new(object))
    }

    fn tell_scaled(&mut self, rollout: &Rollout, name: &str, from: i64, to: i64) {
        let direction = if to > from { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
        self.api.normal(&rollout.deployment, "ScalingReplicaSet", message);
    }

    /// Deletes empty old versions beyond the history the Deployment keeps.
    fn clean_up(&mut self, rollout: &Rollout) -> Result<(), Status> {
        let kept = rollout.deployment["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10) as usize;
        let mut old: Vec<&Set> =
            rollout.old.iter().filter(|set| set.object["metadata"]["deletionTimestamp"].is_null()).collect();
        old.sort_by_key(|set| set.annotation(REVISION));
        let excess = old.len().saturating_sub(kept);
        for set in old.into_iter().take(excess).filter(|set| set.replicas == 0 && set.count("replicas") == 0) {
            self.api.delete(&resources::REPLICA_SETS, &set.object, DeleteOptions::default())?;
        }
        Ok(())
    }

    fn write_status(&mut self, rollout: &Rollout, now: Timestamp) -> Result<(), Status> {
        let deployment = &rollout.deployment;
        if let Some(revision) = rollout.current.as_ref().and_then(|set| set.annotation(REVISION))
            && text(&deployment["metadata"]["annotations"][REVISION]).parse() != Ok(revision)
        {
            let patch = json!({"metadata": {"annotations": {REVISION: revision.to_string()}}});
            self.api.patch(&resources::DEPLOYMENTS, &Key::of(deployment), patch)?;
            return Ok(()); // The patched object comes back as an event, and with it the status' turn.
        }
        let (total, available) = (rollout.sum("replicas"), rollout.sum("availableReplicas"));
        let count = |number: i64| number.max(0) as usize;
        let mut status = pods::counts([
            ("replicas", count(total)),
            ("updatedReplicas", count(rollout.current.as_ref().map_or(0, |set| set.count("replicas")))),
            ("readyReplicas", count(rollout.sum("readyReplicas"))),
            ("availableReplicas", count(available)),
            ("unavailableReplicas", count(rollout.total() - available)),
        ]);
        status["terminatingReplicas"] = json!(rollout.sum("terminatingReplicas"));
        status["observedGeneration"] = deployment["metadata"]["generation"].clone();
        if let Some(collisions) = deployment["status"]["collisionCount"].as_i64() {
            status["collisionCount"] = json!(collisions);
        }
        let mut conditions = list(&deployment["status"]["conditions"]).to_vec();
        self.set_progress(rollout, &mut conditions, &status, now);
        let enough = available >= rollout.replicas - rollout.max_unavailable;
        let (availability, reason, message) = match enough {
            true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
            false => ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
        };
        set_condition(&mut conditions, "Available", availability, reason, message, now);
        let failure = rollout.all().find_map(|set| super::objects::condition(&set.object, "ReplicaFailure"));
        match failure {
            Some(failure) => set_condition(
                &mut conditions,
                "ReplicaFailure",
                "True",
                text(&failure["reason"]),
                text(&failure["message"]),
                now,
            ),
            None => conditions.retain(|condition| condition["type"] != "ReplicaFailure"),
        }
        status["conditions"] = Value::Array(conditions);
        self.api.write_status(&resources::DEPLOYMENTS, deployment, status)
    }

    fn set_progress(&mut self, rollout: &Rollout, conditions: &mut Vec<Value>, status: &Value, now: Timestamp) {
        let name = rollout.current.as_ref().map(Set::name);
        let existing = conditions.iter().find(|condition| condition["type"] == "Progressing").cloned();
        let Some(existing) = existing.filter(|_| !rollout.created) else {
            if let Some(name) = name {
                let (verb, reason) = match rollout.created {
                    true => ("Created", "NewReplicaSetCreated"),
                    false => ("Found", "FoundNewReplicaSet"),
                };
                set_condition(
                    conditions,
                    "Progressing",
                    "True",
                    reason,
                    &format!("{verb} new replica set {name:?}"),
                    now,
                );
            }
            return;
        };
        let subject = match name {
            Some(name) => format!("ReplicaSet {name:?}"),
            None => format!("Deployment {:?}", text(&rollout.deployment["metadata"]["name"])),
        };
        let reason = text(&existing["reason"]);
        if rollout.is_paused() {
            if reason != "DeploymentPaused" {
                let message = "Deployment is paused";
                set_condition(conditions, "Progressing", "Unknown", "DeploymentPaused", message, now);
            }
            return;
        }
        if reason == "DeploymentPaused" {
            let message = "Deployment is resumed";
            set_condition(conditions, "Progressing", "Unknown", "DeploymentResumed", message, now);
            return;
        }
        // A rollout that was complete stays so, even while a pod of it is being replaced.
        if reason == "NewReplicaSetAvailable" && status["replicas"] == status["updatedReplicas"] {
            return;
        }
        if rollout.is_complete() {
            let message = format!("{subject} has successfully progressed.");
            set_condition(conditions, "Progressing", "True", "NewReplicaSetAvailable", &message, now);
            return;
        }
        let count = |status: &Value, field: &str| status[field].as_i64().unwrap_or(0);
        let before = &rollout.deployment["status"];
        let more = |field: &str| count(status, field) > count(before, field);
        let outdated = |status: &Value| count(status, "replicas") - count(status, "updatedReplicas");
        if more("updatedReplicas")
            || more("readyReplicas")
            || more("availableReplicas")
            || outdated(status) < outdated(before)
        {
            let message = format!("{subject} is progressing.");
            // Progress counts even where the reason stays: the deadline runs from the last update.
            conditions.retain(|condition| condition["type"] != "Progressing");
            set_condition(conditions, "Progressing", "True", "ReplicaSetUpdated", &message, now);
            if existing["status"] == "True"
                && let Some(condition) = conditions.iter_mut().find(|condition| condition["type"] == "Progressing")
            {
                condition["lastTransitionTime"] = existing["lastTransitionTime"].clone();
            }
        }
        let Some(deadline) = rollout.deployment["spec"]["progressDeadlineSeconds"].as_i64() else { return };
        let Some(condition) = conditions.iter().find(|condition| condition["type"] == "Progressing") else { return };
        let since = timestamp(&condition["lastUpdateTime"]).unwrap_or(now);
        let expiry = since.saturating_add(SignedDuration::from_secs(deadline)).unwrap_or(Timestamp::MAX);
        if expiry > now {
            self.queue.add_at(Key::of(&rollout.deployment), expiry);
        } else if condition["reason"] != "ProgressDeadlineExceeded" {
            let message = format!("{subject} has timed out progressing.");
            set_condition(conditions, "Progressing", "False", "ProgressDeadlineExceeded", &message, now);
        }
    }
}

impl Actor for Deployments {
    fn observe(&mut self, _: &View, change: &Change, now: Timestamp) {
        match change {
            Change::Other { kind: Kind::Deployment, key, .. } => self.queue.add(key.clone()),
            Change::Other { kind: Kind::ReplicaSet, key, before, after } => {
                for object in [before, after].into_iter().flatten() {
                    if let Some(owner) = controller_of(object).filter(|owner| owner.kind == "Deployment") {
                        let key = Key { namespace: key.namespace.clone(), name: owner.name };
                        self.queue.add_at(key, now.saturating_add(PATIENCE).unwrap_or(now));
                    }
                }
            }
            // Recreate waits for the last old pod to be gone; its ReplicaSet's status tells of active ones only.
            Change::Pod { before: Some(pod), after: None } => {
                if let Some(name) =
                    pod.owner.as_ref().filter(|owner| owner.kind == "ReplicaSet").map(|owner| &owner.name)
                    && let Some((name, _)) = name.rsplit_once('-')
                {
                    self.queue.add(Key { namespace: pod.key.namespace.clone(), name: name.to_owned() });
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

fn next_revision(rollout: &Rollout) -> i64 {
    rollout.old.iter().filter_map(|set| set.annotation(REVISION)).max().unwrap_or(0) + 1
}

/// The Deployment's annotations that its ReplicaSets carry too: all but the bookkeeping.
fn inherited_annotations(deployment: &Value) -> Value {
    let mut annotations = deployment["metadata"]["annotations"].clone();
    if !annotations.is_object() {
        annotations = json!({});
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.retain(|name, _| {
            name != "kubectl.kubernetes.io/last-applied-configuration" && !name.starts_with("deployment.kubernetes.io/")
        });
    }
    annotations
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(TEMPLATE_HASH);
    }
    template
}

/// Deployment conditions know the time of the last update besides that of the last transition; both stay while status
/// and reason do.
fn set_condition(conditions: &mut Vec<Value>, kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) {
    let existing = conditions.iter().position(|condition| condition["type"] == kind);
    let mut transition = time(now);
    if let Some(index) = existing {
        let before = &conditions[index];
        if before["status"] == status {
            if before["reason"] == reason {
                return;
            }
            transition = before["lastTransitionTime"].clone();
        }
        conditions.remove(index);
    }
    conditions.push(json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastUpdateTime": time(now), "lastTransitionTime": transition,
    }));
}
