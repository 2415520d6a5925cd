//! The scheduler: binds pending pods by priority and arrival, and tells those that find no place why.
//!
//! Differences from kube-scheduler that a client could notice: ranking is simpler (see `filters`), a pod's own
//! volumes are looked at as `storage` says, and a verdict is told again only when it changed, not every few minutes.

mod cluster;
mod diagnosis;
mod filters;
mod group;
mod preemption;
mod relations;
mod storage;
mod waiting;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use self::cluster::Cluster;
use self::group::Group;
use self::storage::{Concern, Step};
use self::waiting::{Progress, Waiting};
use super::Actor;
use super::api::Api;
use super::objects::{Key, Pod, set_condition};
use super::selector::{list, strings, text};
use super::view::{Change, Kind, View};
use super::volumes::{self, SELECTED_NODE};
use crate::{DeleteOptions, Status, resources};

const NAME: &str = "default-scheduler";
/// How long after a binding or a status was refused it is tried again: a pod's first back-off.
const RETRY: SignedDuration = SignedDuration::from_secs(1);
/// Bindings or statuses per turn, after which others of the process get theirs.
const WRITES_PER_TURN: usize = 500;

/// What a pod is told whose volumes do not come.
const TIMED_OUT: &str = "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";

/// The scheduler.
pub(crate) struct Scheduler {
    api: Api,
    cluster: Cluster,
    groups: BTreeMap<u64, Group>,
    group_ids: BTreeMap<String, u64>,
    pending: BTreeMap<Key, Pending>,
    /// Groups that may find a place, by priority and arrival of their first pod.
    hot: BTreeSet<(Reverse<i64>, u64, u64)>,
    /// Groups without a place that have something to be told, by when.
    cold: BTreeSet<(Timestamp, u64)>,
    /// Groups whose binding was refused, by when they are tried again.
    refused: BTreeSet<(Timestamp, u64)>,
    /// Groups by the claims of their pods.
    claimants: BTreeMap<Key, BTreeSet<u64>>,
    /// Classes of which something has changed for claims without a volume.
    stirred: BTreeSet<String>,
    /// Pods that have a node and wait for their volumes.
    waiting: BTreeMap<Key, Waiting>,
    /// Those of them whose claims have changed.
    moved: BTreeSet<Key>,
    /// The cluster's revision at which all cold groups were last considered.
    considered: u64,
    next_arrival: u64,
    next_group: u64,
}

struct Pending {
    uid: String,
    group: u64,
    arrival: u64,
}

/// Whether room is being made for a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preempting {
    No,
    /// Since an earlier try.
    UnderWay,
    /// Just now.
    Started,
}

impl Scheduler {
    pub(crate) fn new(api: Api) -> Self {
        Self {
            api,
            cluster: Cluster::default(),
            groups: BTreeMap::new(),
            group_ids: BTreeMap::new(),
            pending: BTreeMap::new(),
            hot: BTreeSet::new(),
            cold: BTreeSet::new(),
            refused: BTreeSet::new(),
            claimants: BTreeMap::new(),
            stirred: BTreeSet::new(),
            waiting: BTreeMap::new(),
            moved: BTreeSet::new(),
            considered: 0,
            next_arrival: 0,
            next_group: 0,
        }
    }

    fn follow_pod(&mut self, key: &Key, pod: Option<&Arc<Pod>>) {
        if let Some(waiting) = self.waiting.get(key) {
            if pod.is_some_and(|pod| pod.uid == waiting.uid && pod.node_name.is_empty() && pod.is_active()) {
                // Its place is held.
                return;
            }
            self.waiting.remove(key);
        }
        self.cluster.set_pod(key, pod.map(Arc::as_ref));
        let waiting = pod.filter(|pod| pod.node_name.is_empty() && pod.is_active());
        let waiting = waiting.filter(|pod| pod.needs().scheduler_name == NAME && !pod.needs().gated);
        let known = self.pending.get(key).map(|pending| (pending.uid.clone(), pending.group));
        match (known, waiting) {
            (Some((uid, group)), Some(pod)) => {
                let same = self.groups.get(&group).is_some_and(|group| group.needs.signature == pod.needs().signature);
                if uid != pod.uid || !same {
                    self.leave(key);
                    self.join(pod);
                }
            }
            (Some(_), None) => self.leave(key),
            (None, Some(pod)) => self.join(pod),
            (None, None) => {}
        }
    }

    fn join(&mut self, pod: &Arc<Pod>) {
        let needs = pod.needs();
        let id = match self.group_ids.get(&needs.signature) {
            Some(id) => *id,
            None => {
                let id = self.next_group;
                self.next_group += 1;
                self.group_ids.insert(needs.signature.clone(), id);
                let group = Group::new(needs.clone(), &mut self.cluster);
                for claim in group.claims() {
                    self.claimants.entry(claim).or_default().insert(id);
                }
                self.groups.insert(id, group);
                id
            }
        };
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        self.cool(id);
        if let Some(group) = self.groups.get_mut(&id) {
            group.pods.insert(arrival, pod.key.clone());
            group.untold.insert(arrival);
        }
        self.pending.insert(pod.key.clone(), Pending { uid: pod.uid.clone(), group: id, arrival });
        self.heat(id);
    }

    fn leave(&mut self, key: &Key) {
        let Some(Pending { group: id, arrival, .. }) = self.pending.remove(key) else { return };
        let hot = self.cool(id);
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.pods.remove(&arrival);
        group.untold.remove(&arrival);
        if group.pods.is_empty() {
            self.tell_at(id, None);
            if let Some(group) = self.groups.remove(&id) {
                self.group_ids.remove(&group.needs.signature);
                group.release(&mut self.cluster);
                for claim in group.claims() {
                    if let Some(ids) = self.claimants.get_mut(&claim) {
                        ids.remove(&id);
                        if ids.is_empty() {
                            self.claimants.remove(&claim);
                        }
                    }
                }
            }
        } else if hot {
            self.heat(id);
        }
    }

    /// Takes an object of storage in, and notes whom it concerns.
    fn follow_storage(&mut self, kind: Kind, key: &Key, object: Option<&Value>) {
        self.stir(kind, key);
        self.cluster.storage.follow(kind, key, object);
        self.stir(kind, key);
        if kind == Kind::Claim {
            let waiting = self.waiting.iter().filter(|(_, waiting)| waiting.has(key));
            self.moved.extend(waiting.map(|(pod, _)| pod.clone()));
        }
    }

    fn stir(&mut self, kind: Kind, key: &Key) {
        match self.cluster.storage.concern(kind, key) {
            Concern::Nobody => {}
            Concern::Claim(claim) => self.reheat(self.claimants.get(&claim).cloned().unwrap_or_default()),
            Concern::Class(_) if self.claimants.is_empty() => {}
            Concern::Class(class) => {
                self.stirred.insert(class);
            }
        }
    }

    /// Once a turn, however many volumes of a class have changed.
    fn reheat_stirred(&mut self) {
        for class in std::mem::take(&mut self.stirred) {
            let storage = &self.cluster.storage;
            let claims = self.claimants.iter().filter(|(claim, _)| storage.waits(claim, &class));
            self.reheat(claims.flat_map(|(_, ids)| ids).copied().collect());
        }
    }

    /// These groups may find a place now, or have to be told something else.
    fn reheat(&mut self, groups: BTreeSet<u64>) {
        for id in groups {
            if let Some(group) = self.groups.get_mut(&id) {
                group.verdict = None;
                self.heat(id);
            }
        }
    }

    fn rank(&self, id: u64) -> Option<(Reverse<i64>, u64, u64)> {
        let group = self.groups.get(&id)?;
        Some((Reverse(group.needs.priority), *group.pods.first_key_value()?.0, id))
    }

    /// The group may find a place: it is tried in its turn.
    fn heat(&mut self, id: u64) {
        if let Some(rank) = self.rank(id) {
            self.hot.insert(rank);
            self.tell_at(id, None);
        }
    }

    fn tell_at(&mut self, id: u64, at: Option<Timestamp>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut group.tell_at, at) {
            self.cold.remove(&(before, id));
        }
        if let Some(at) = at {
            self.cold.insert((at, id));
        }
    }

    /// Takes the group out of its turn; must be called before its first pod changes. Returns whether it was waiting.
    fn cool(&mut self, id: u64) -> bool {
        self.rank(id).is_some_and(|rank| self.hot.remove(&rank))
    }

    /// Groups without a place try again when something got better for them; their verdict may change with anything.
    fn reconsider(&mut self, now: Timestamp) {
        if self.considered == self.cluster.revision {
            return;
        }
        self.considered = self.cluster.revision;
        let hot: BTreeSet<u64> = self.hot.iter().map(|(_, _, id)| *id).collect();
        let ids: Vec<u64> = self.groups.keys().filter(|id| !hot.contains(id)).copied().collect();
        for id in ids {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            if group.may_fit_now(&self.cluster) {
                self.heat(id);
            } else if group.tell_at.is_none() {
                let at = group.quiet_until.max(now);
                self.tell_at(id, Some(at));
            }
        }
    }

    /// Finds a place for the first pod of the group and binds it there.
    fn try_group(&mut self, view: &View, id: u64, now: Timestamp) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let Some((_, key)) = group.pods.first_key_value() else { return };
        let key = key.clone();
        let Some(pod) = view.pods.get(&key) else { return self.leave(&key) };
        let Some(node) = group.best(&self.cluster) else {
            // Pods that know the verdict need not hear at once that it may read differently now.
            let at = if group.untold.is_empty() { group.quiet_until.max(now) } else { now };
            self.cool(id);
            self.tell_at(id, Some(at));
            return;
        };
        let steps = group.steps(&self.cluster, &node);
        if !steps.is_empty() {
            return self.wait_for_volumes(id, pod, node, &steps, now);
        }
        match self.api.bind(&key, &node) {
            Ok(()) => {
                self.leave(&key);
                self.cluster.assume(pod, &node);
                self.announce(pod, &node);
            }
            // If the pod is gone or somebody else bound it, the watch tells; until then it is still to be placed.
            Err(status) => {
                self.cool(id);
                self.refused.insert((now.saturating_add(RETRY).unwrap_or(now), id));
                if !status.is_not_found() && !status.is_conflict() {
                    let message = format!("binding rejected: running Bind plugin \"DefaultBinder\": {status}");
                    self.tell(pod, "SchedulerError", &message, now);
                }
            }
        }
    }

    fn announce(&mut self, pod: &Pod, node: &str) {
        let message = format!("Successfully assigned {} to {node}", pod.key);
        self.api.scheduling_event(&pod.raw, "Normal", "Scheduled", "Binding", &message);
    }

    /// Has the claims of a pod get their volumes where its node is; the pod is bound once they have.
    fn wait_for_volumes(&mut self, id: u64, pod: &Arc<Pod>, node: String, steps: &[Step], now: Timestamp) {
        if steps.iter().try_for_each(|step| self.take(step, &node)).is_err() {
            // Somebody was quicker, which the watch tells.
            self.cool(id);
            self.refused.insert((now.saturating_add(RETRY).unwrap_or(now), id));
            return;
        }
        self.leave(&pod.key);
        self.cluster.assume(pod, &node);
        // Others see so that the pod has a place. It goes without if this is refused.
        let patch = json!({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}});
        let _ = self.api.patch_status(&resources::PODS, &pod.key, patch);
        let claims = steps.iter().map(|step| (step.claim().clone(), step.volume().map(str::to_owned))).collect();
        let until = now.saturating_add(waiting::LIMIT).unwrap_or(Timestamp::MAX);
        self.waiting.insert(pod.key.clone(), Waiting { uid: pod.uid.clone(), node, claims, until });
    }

    /// Writes one step, and takes what was written in before the watch tells of it.
    fn take(&mut self, step: &Step, node: &str) -> Result<(), Status> {
        match step {
            Step::Take(claim, volume) => {
                if let Some(written) = volumes::reserve(&self.api, volume, claim)? {
                    self.cluster.storage.follow(Kind::Volume, &Key::of(&written), Some(&written));
                }
            }
            Step::Provision(claim) if claim.selected_node.is_none() => {
                let patch = json!({"metadata": {"uid": claim.uid, "annotations": {SELECTED_NODE: node}}});
                let written = self.api.patch(&resources::PERSISTENT_VOLUME_CLAIMS, &claim.key, patch)?;
                self.cluster.storage.follow(Kind::Claim, &claim.key, Some(&written));
            }
            Step::Provision(_) => {}
        }
        Ok(())
    }

    /// Binds the pods whose volumes are there, and finds another place for those that wait in vain.
    fn follow_waiting(&mut self, view: &View, now: Timestamp) {
        let mut due = std::mem::take(&mut self.moved);
        due.extend(self.waiting.iter().filter(|(_, waiting)| waiting.until <= now).map(|(key, _)| key.clone()));
        for key in due {
            let Some((waiting, pod)) = self.waiting.get(&key).zip(view.pods.get(&key)) else { continue };
            let node = waiting.node.clone();
            match waiting.progress(&self.cluster.storage, now) {
                Progress::OnTheirWay => {}
                Progress::There if self.api.bind(&key, &node).is_ok() => {
                    self.waiting.remove(&key);
                    self.announce(pod, &node);
                }
                Progress::There | Progress::GivenUp => self.give_up(pod),
                Progress::TimedOut => {
                    self.give_up(pod);
                    self.tell(pod, "SchedulerError", TIMED_OUT, now);
                }
            }
        }
    }

    /// The pod's place is free again, and the pod waits for one.
    fn give_up(&mut self, pod: &Arc<Pod>) {
        self.waiting.remove(&pod.key);
        self.cluster.give_back(&pod.key);
        self.follow_pod(&pod.key, Some(pod));
    }

    /// Tells a group's pods why they are pending; returns how many were told.
    fn tell_group(&mut self, view: &View, id: u64, now: Timestamp) -> usize {
        let Some(group) = self.groups.get_mut(&id) else { return 0 };
        let (message, again_at) = group.explain(&self.cluster, self.pending.len(), now);
        let turn: Vec<u64> = group.untold.iter().take(WRITES_PER_TURN).copied().collect();
        let mut preempting = group.needs.preempts && self.cluster.has_below(group.needs.priority);
        let (mut told, mut refused) = (0, vec![]);
        for arrival in turn {
            let Some(group) = self.groups.get_mut(&id) else { break };
            group.untold.remove(&arrival);
            let Some(pod) = group.pods.get(&arrival).and_then(|key| view.pods.get(key)) else { continue };
            let preemption = if preempting { self.preempt(view, id, pod, now) } else { Preempting::No };
            preempting = preempting && preemption == Preempting::UnderWay;
            // Whoever has room made is not told what preemption could not do.
            let message = match preemption {
                Preempting::No => message.as_str(),
                _ => message.split_once(diagnosis::AFTER_FILTERS).map_or(message.as_str(), |(filters, _)| filters),
            };
            told += 1;
            if !self.tell(pod, "Unschedulable", message, now) {
                refused.push(arrival);
            }
        }
        let Some(group) = self.groups.get_mut(&id) else { return told };
        let at = match (group.untold.is_empty(), refused.is_empty()) {
            (false, _) => Some(now),
            (true, false) => Some(now.saturating_add(RETRY).unwrap_or(now)),
            (true, true) => again_at,
        };
        group.untold.extend(refused);
        self.tell_at(id, at);
        told
    }

    /// Removes pods of lower priority for this one.
    fn preempt(&mut self, view: &View, id: u64, pod: &Pod, now: Timestamp) -> Preempting {
        let Some(group) = self.groups.get_mut(&id) else { return Preempting::No };
        let nominated = text(&pod.raw["status"]["nominatedNodeName"]);
        if !nominated.is_empty() && preemption::is_under_way(&group.needs, nominated, &self.cluster) {
            return Preempting::UnderWay;
        }
        let relations = group.relations(&self.cluster);
        let Some(found) = preemption::find(&group.needs, relations.as_ref(), &self.cluster) else {
            return Preempting::No;
        };
        for victim in
            found.victims.iter().filter_map(|key| view.pods.get(key)).filter(|victim| victim.deleting.is_none())
        {
            let mut conditions = list(&victim.raw["status"]["conditions"]).to_vec();
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": format!("{NAME}: preempting to accommodate a higher priority pod"),
            });
            set_condition(&mut conditions, condition, now);
            let _ = self.api.patch_status(&resources::PODS, &victim.key, json!({"status": {"conditions": conditions}}));
            // A victim that cannot be deleted now is found again with the next change.
            let _ = self.api.delete(&resources::PODS, &victim.raw, DeleteOptions::default());
            let message = format!("Preempted by pod {} on node {}", pod.uid, found.node);
            self.api.scheduling_event(&victim.raw, "Normal", "Preempted", "Preempting", &message);
        }
        let patch = json!({"status": {"nominatedNodeName": found.node}});
        let _ = self.api.patch_status(&resources::PODS, &pod.key, patch);
        // The room these victims leave is this pod's; the next pod of the group must not count on it.
        Preempting::Started
    }

    /// Writes the condition and the event. Returns whether the pod knows now.
    fn tell(&mut self, pod: &Pod, reason: &str, message: &str, now: Timestamp) -> bool {
        let mut conditions = list(&pod.raw["status"]["conditions"]).to_vec();
        let mut condition = json!({
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message, "lastProbeTime": null,
        });
        if !pod.raw["metadata"]["generation"].is_null() {
            condition["observedGeneration"] = pod.raw["metadata"]["generation"].clone();
        }
        if set_condition(&mut conditions, condition, now) {
            let patch = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": conditions}});
            match self.api.patch_status(&resources::PODS, &pod.key, patch) {
                Err(status) if !status.is_not_found() => return false,
                _ => {}
            }
        }
        self.api.scheduling_event(&pod.raw, "Warning", "FailedScheduling", "Scheduling", message);
        true
    }
}

impl Actor for Scheduler {
    fn observe(&mut self, _: &View, change: &Change, _: Timestamp) {
        match change {
            Change::Pod { before, after } => {
                if let Some(pod) = after.as_ref().or(before.as_ref()) {
                    self.follow_pod(&pod.key, after.as_ref());
                }
            }
            Change::Node { before, after } => {
                let same = matches!((before, after), (Some(before), Some(after)) if before.places_as(after));
                if let Some(node) = before.as_ref().or(after.as_ref()).filter(|_| !same) {
                    self.cluster.set_node(&node.name, after.clone());
                }
            }
            Change::Other { kind: Kind::Namespace, key, after, .. } => {
                let labels = after.as_ref().map(|namespace| strings(&namespace["metadata"]["labels"]));
                self.cluster.set_namespace(&key.name, labels);
            }
            Change::Other { kind: kind @ (Kind::StorageClass | Kind::Volume | Kind::Claim), key, after, .. } => {
                self.follow_storage(*kind, key, after.as_deref());
            }
            _ => {}
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        let unconsidered = self.considered != self.cluster.revision && !self.groups.is_empty();
        if !self.hot.is_empty() || !self.moved.is_empty() || !self.stirred.is_empty() || unconsidered {
            return Some(Timestamp::MIN);
        }
        let waiting = self.waiting.values().map(|waiting| waiting.until);
        [self.cold.first(), self.refused.first()].into_iter().flatten().map(|(at, _)| *at).chain(waiting).min()
    }

    fn act(&mut self, view: &View, now: Timestamp) {
        while let Some((_, id)) = self.refused.first().copied().filter(|(at, _)| *at <= now) {
            self.refused.pop_first();
            self.heat(id);
        }
        self.follow_waiting(view, now);
        self.reheat_stirred();
        self.reconsider(now);
        let mut writes = 0;
        while writes < WRITES_PER_TURN {
            let Some((_, _, id)) = self.hot.first().copied() else { break };
            self.try_group(view, id, now);
            writes += 1;
        }
        if !self.hot.is_empty() {
            return;
        }
        let due: Vec<u64> = self.cold.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        for id in due {
            if writes >= WRITES_PER_TURN {
                return;
            }
            writes += self.tell_group(view, id, now).max(1);
        }
    }
}
