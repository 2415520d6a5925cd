//! Volumes and claims find each other, as the persistentvolume-binder of kube-controller-manager has it: a claim that names a
//! volume, a volume that names a claim, and the smallest free volume for a claim that does not wait for its pod.
//!
//! Left out: making volumes (a claim whose class has a provisioner is handed to it and waits), recycling them, and the
//! finalizers that protect volumes in use. What is told of a claim is told again only when it changed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::Api;
use super::objects::{Key, time};
use super::queue::Queue;
use super::selector::text;
use super::view::{Change, Kind, View};
use super::volumes::{self, BIND_COMPLETED, BOUND_BY_CONTROLLER, Choice, Claim, Class, NO_PROVISIONER, Volume};
use super::{Actor, PATIENCE};
use crate::{DeleteOptions, Status, resources};

const PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// The volume binder.
pub(crate) struct VolumeBinding {
    api: Api,
    claims: Queue,
    volumes: Queue,
    /// What each unbound claim was told last.
    told: BTreeMap<Key, String>,
    /// Volumes given away in this turn, which the view does not show yet.
    given: BTreeSet<String>,
}

impl VolumeBinding {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, claims: Queue::default(), volumes: Queue::default(), told: BTreeMap::new(), given: BTreeSet::new() }
    }

    fn sync_claim(&mut self, view: &View, key: &Key, now: Timestamp) -> Result<(), Status> {
        let Some(raw) = view.get(Kind::Claim, key) else { return Ok(()) };
        let claim = Claim::parse(raw);
        if claim.bind_completed {
            return self.sync_bound(view, raw, &claim, now);
        }
        if claim.volume.is_empty() {
            return self.sync_unbound(view, raw, &claim, now);
        }
        match volume(view, &claim.volume) {
            Some(volume) if volume.is_for(&claim) => self.bind(view, &volume, raw, &claim, now),
            Some(volume) if volume.claim.is_some() => {
                let message = format!("volume {:?} already bound to a different claim.", volume.name);
                self.tell(raw, &claim, "Warning", "FailedBinding", message);
                Ok(())
            }
            Some(volume) => match volume.mismatch(&claim) {
                None => self.bind(view, &volume, raw, &claim, now),
                Some(why) => {
                    let message = format!("Cannot bind to requested volume {:?}: {why}", volume.name);
                    self.tell(raw, &claim, "Warning", "VolumeMismatch", message);
                    Ok(())
                }
            },
            // It may still come.
            None => Ok(()),
        }
    }

    /// A claim that names no volume gets one, or is told what it waits for.
    fn sync_unbound(&mut self, view: &View, raw: &Arc<Value>, claim: &Claim, now: Timestamp) -> Result<(), Status> {
        let Some(class_name) = claim.class.as_deref().or_else(|| default_class(view)) else {
            return self.find(view, raw, claim, None, now);
        };
        if claim.class.is_none() {
            let patch = json!({"metadata": {"uid": claim.uid}, "spec": {"storageClassName": class_name}});
            return self.api.patch(&resources::PERSISTENT_VOLUME_CLAIMS, &claim.key, patch).map(drop);
        }
        let class = view.get(Kind::StorageClass, &in_cluster(class_name)).map(|class| Class::parse(class));
        self.find(view, raw, claim, class.as_ref(), now)
    }

    fn find(
        &mut self,
        view: &View,
        raw: &Arc<Value>,
        claim: &Claim,
        class: Option<&Class>,
        now: Timestamp,
    ) -> Result<(), Status> {
        let waits = class.is_some_and(|class| class.waits);
        // Cheap checks first: most volumes are somebody's.
        let may_be_had = |volume: &Value| match volumes::reference(volume) {
            Some(reference) => reference == claim.key,
            None => !waits && volumes::class_of(volume).unwrap_or_default() == claim.class_name(),
        };
        let volumes =
            view.all(Kind::Volume).filter(|(key, volume)| !self.given.contains(&key.name) && may_be_had(volume));
        let volumes: Vec<Arc<Volume>> = volumes.map(|(_, volume)| Arc::new(Volume::parse(volume))).collect();
        let found = match volumes::choice(claim, volumes.iter()) {
            Choice::Kept(volume) => Some(volume),
            Choice::Free(free) => volumes::plainest(&free),
        };
        if let Some(volume) = found {
            return self.bind(view, volume, raw, claim, now);
        }
        let provisioner = class.map(|class| class.provisioner.as_str());
        let (kind, reason, message) = match provisioner {
            _ if waits && claim.selected_node.is_none() => {
                let message = "waiting for first consumer to be created before binding".to_owned();
                ("Normal", "WaitForFirstConsumer", message)
            }
            None if claim.class_name().is_empty() => {
                let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
                ("Normal", "FailedBinding", message)
            }
            None => {
                let message = format!("storageclass.storage.k8s.io {:?} not found", claim.class_name());
                ("Warning", "ProvisioningFailed", message)
            }
            Some(NO_PROVISIONER) => {
                ("Warning", "ProvisioningFailed", format!("no volume plugin matched name: {NO_PROVISIONER}"))
            }
            Some(provisioner) => {
                self.hand_over(raw, claim, provisioner)?;
                let message = format!(
                    "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
                     the system administrator. If volume creation is delayed, please verify that the provisioner is \
                     running and correctly registered."
                );
                ("Normal", "ExternalProvisioning", message)
            }
        };
        self.tell(raw, claim, kind, reason, message);
        Ok(())
    }

    /// Tells the provisioner of a class that the claim is its to serve.
    fn hand_over(&self, raw: &Value, claim: &Claim, provisioner: &str) -> Result<(), Status> {
        if PROVISIONER.iter().all(|annotation| raw["metadata"]["annotations"][*annotation] == provisioner) {
            return Ok(());
        }
        let annotations: BTreeMap<&str, &str> = PROVISIONER.iter().map(|name| (*name, provisioner)).collect();
        let patch = json!({"metadata": {"uid": claim.uid, "annotations": annotations}});
        self.api.patch(&resources::PERSISTENT_VOLUME_CLAIMS, &claim.key, patch).map(drop)
    }

    /// A claim that once had a volume still has it, or is lost.
    fn sync_bound(&mut self, view: &View, raw: &Arc<Value>, claim: &Claim, now: Timestamp) -> Result<(), Status> {
        let (reason, message) = match volume(view, &claim.volume) {
            Some(volume) if volume.claim.as_ref().is_none_or(|present| present.uid == claim.uid) => {
                return self.bind(view, &volume, raw, claim, now);
            }
            Some(_) => ("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly"),
            None if claim.volume.is_empty() => {
                ("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
            }
            None => ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!"),
        };
        if claim.phase != "Lost" {
            let status = json!({"phase": "Lost", "accessModes": null, "capacity": null});
            let patch = json!({"metadata": {"uid": claim.uid}, "status": status});
            self.api.patch_status(&resources::PERSISTENT_VOLUME_CLAIMS, &claim.key, patch)?;
            self.api.warning(raw, reason, message.to_owned());
        }
        Ok(())
    }

    /// Both sides point at each other, step by step; what stands already is not written again.
    fn bind(
        &mut self,
        view: &View,
        volume: &Volume,
        raw: &Arc<Value>,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<(), Status> {
        if self.given.contains(&volume.name) {
            // Another claim was quicker; the next turn sees it.
            self.claims.add(claim.key.clone());
            return Ok(());
        }
        if volumes::reserve(&self.api, volume, claim)?.is_some() {
            self.given.insert(volume.name.clone());
        }
        self.set_phase(volume, "Bound", None, now)?;
        let mut annotations = json!({});
        if !claim.bind_completed {
            annotations[BIND_COMPLETED] = json!("yes");
        }
        if claim.volume.is_empty() {
            annotations[BOUND_BY_CONTROLLER] = json!("yes");
        }
        if annotations != json!({}) {
            let metadata = json!({"uid": claim.uid, "annotations": annotations});
            let patch = json!({"metadata": metadata, "spec": {"volumeName": volume.name}});
            self.api.patch(&resources::PERSISTENT_VOLUME_CLAIMS, &claim.key, patch)?;
        }
        let Some(given) = view.get(Kind::Volume, &in_cluster(&volume.name)) else { return Ok(()) };
        let spec = &given["spec"];
        let status = json!({"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]});
        if ["phase", "accessModes", "capacity"].iter().any(|field| raw["status"][*field] != status[*field]) {
            let patch = json!({"metadata": {"uid": claim.uid}, "status": status});
            self.api.patch_status(&resources::PERSISTENT_VOLUME_CLAIMS, &claim.key, patch)?;
        }
        self.told.remove(&claim.key);
        Ok(())
    }

    fn sync_volume(&mut self, view: &View, key: &Key, now: Timestamp) -> Result<(), Status> {
        let Some(raw) = view.get(Kind::Volume, key) else { return Ok(()) };
        let volume = Volume::parse(raw);
        let Some(reference) = volume.claim.as_ref().filter(|reference| !reference.uid.is_empty()) else {
            return self.set_phase(&volume, "Available", None, now);
        };
        let claim = view.get(Kind::Claim, &reference.key).map(|claim| Claim::parse(claim));
        match claim.filter(|claim| claim.uid == reference.uid) {
            None => self.release(&volume, raw, now),
            // The claim's turn completes the bond.
            Some(claim) if claim.volume.is_empty() => {
                self.claims.add(claim.key);
                Ok(())
            }
            Some(claim) if claim.volume == volume.name => self.set_phase(&volume, "Bound", None, now),
            Some(_) => self.unbind(&volume, key),
        }
    }

    /// The claim took another volume. One that the user kept for it stays kept.
    fn unbind(&mut self, volume: &Volume, key: &Key) -> Result<(), Status> {
        let patch = match volume.bound_by_controller {
            true => json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER: null}}, "spec": {"claimRef": null}}),
            false => json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}}),
        };
        self.api.patch(&resources::PERSISTENT_VOLUMES, key, patch).map(drop)
    }

    /// The claim is gone: what comes of the volume is as its reclaim policy says.
    fn release(&mut self, volume: &Volume, raw: &Arc<Value>, now: Timestamp) -> Result<(), Status> {
        if volume.phase == "Failed" {
            return Ok(());
        }
        self.set_phase(volume, "Released", None, now)?;
        if raw["spec"]["persistentVolumeReclaimPolicy"] != "Delete" {
            return Ok(());
        }
        match deletion(raw) {
            Deletion::OfSomebodyElse => Ok(()),
            Deletion::AtOnce => self.api.delete(&resources::PERSISTENT_VOLUMES, raw, DeleteOptions::default()),
            Deletion::Impossible(message) => {
                self.set_phase(volume, "Failed", Some(&message), now)?;
                self.api.warning(raw, "VolumeFailedDelete", message);
                Ok(())
            }
        }
    }

    fn set_phase(&self, volume: &Volume, phase: &str, message: Option<&str>, now: Timestamp) -> Result<(), Status> {
        if volume.phase == phase {
            return Ok(());
        }
        let status = json!({"phase": phase, "message": message, "lastPhaseTransitionTime": time(now)});
        let patch = json!({"status": status});
        self.api.patch_status(&resources::PERSISTENT_VOLUMES, &in_cluster(&volume.name), patch).map(drop)
    }

    fn tell(&mut self, raw: &Value, claim: &Claim, kind: &str, reason: &'static str, message: String) {
        if self.told.get(&claim.key) == Some(&message) {
            return;
        }
        self.told.insert(claim.key.clone(), message.clone());
        match kind {
            "Warning" => self.api.warning(raw, reason, message),
            _ => self.api.normal(raw, reason, message),
        }
    }

    fn follow_claim(&mut self, view: &View, key: &Key, before: Option<&Value>, after: Option<&Value>) {
        self.claims.add(key.clone());
        for claim in [before, after].into_iter().flatten() {
            let name = text(&claim["spec"]["volumeName"]);
            if !name.is_empty() {
                self.volumes.add(in_cluster(name));
            }
        }
        if after.is_none() {
            self.told.remove(key);
            let left = view.all(Kind::Volume).filter(|(_, volume)| volumes::reference(volume).as_ref() == Some(key));
            left.for_each(|(name, _)| self.volumes.add(name.clone()));
        }
    }

    /// A volume concerns the claim that it names, and while it is free those that name it or would take one like it.
    fn follow_volume(
        &mut self,
        view: &View,
        key: &Key,
        before: Option<&Value>,
        after: Option<&Value>,
        soon: Timestamp,
    ) {
        self.volumes.add(key.clone());
        for claim in [before, after].into_iter().flatten().filter_map(volumes::reference) {
            self.claims.add_at(claim, soon);
        }
        let Some(free) = after.filter(|volume| volume["status"]["phase"] == "Available") else { return };
        let class = volumes::class_of(free).unwrap_or_default();
        let waits = view.get(Kind::StorageClass, &in_cluster(&class)).is_some_and(|class| Class::parse(class).waits);
        for (claim, raw) in view.all(Kind::Claim).filter(|(_, claim)| claim["status"]["phase"] == "Pending") {
            let named = text(&raw["spec"]["volumeName"]);
            if named == key.name || !waits && named.is_empty() && volumes::class_of(raw).unwrap_or_default() == class {
                self.claims.add_at(claim.clone(), soon);
            }
        }
    }
}

impl Actor for VolumeBinding {
    fn observe(&mut self, view: &View, change: &Change, now: Timestamp) {
        let soon = now.saturating_add(PATIENCE).unwrap_or(now);
        match change {
            Change::Other { kind: Kind::Claim, key, before, after } => {
                self.follow_claim(view, key, before.as_deref(), after.as_deref());
            }
            Change::Other { kind: Kind::Volume, key, before, after } => {
                self.follow_volume(view, key, before.as_deref(), after.as_deref(), soon);
            }
            Change::Other { kind: Kind::StorageClass, .. } => {
                let unbound = view.all(Kind::Claim).filter(|(_, claim)| claim["status"]["phase"] == "Pending");
                unbound.for_each(|(key, _)| self.claims.add_at(key.clone(), soon));
            }
            _ => {}
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        [self.claims.next_due(), self.volumes.next_due()].into_iter().flatten().min()
    }

    fn act(&mut self, view: &View, now: Timestamp) {
        for key in self.volumes.take(now) {
            match self.sync_volume(view, &key, now) {
                Ok(()) => self.volumes.forget(&key),
                Err(_) => self.volumes.retry(key, now),
            }
        }
        self.given.clear();
        for key in self.claims.take(now) {
            match self.sync_claim(view, &key, now) {
                Ok(()) => self.claims.forget(&key),
                Err(_) => self.claims.retry(key, now),
            }
        }
    }
}

fn in_cluster(name: &str) -> Key {
    Key { namespace: String::new(), name: name.to_owned() }
}

fn volume(view: &View, name: &str) -> Option<Volume> {
    view.get(Kind::Volume, &in_cluster(name)).map(|volume| Volume::parse(volume))
}

/// The class that claims get which name none: of several defaults the newest.
fn default_class(view: &View) -> Option<&str> {
    let marked = |class: &Value| {
        let annotations = &class["metadata"]["annotations"];
        DEFAULT_CLASS.iter().any(|annotation| annotations[*annotation] == "true")
    };
    let classes = view.all(Kind::StorageClass).filter(|(_, class)| marked(class));
    let newest = classes.max_by_key(|(key, class)| (text(&class["metadata"]["creationTimestamp"]), Reverse(&key.name)));
    newest.map(|(key, _)| key.name.as_str())
}

/// What deleting a released volume takes.
enum Deletion {
    /// Whoever provisioned it deletes it.
    OfSomebodyElse,
    AtOnce,
    /// kube-controller-manager has nothing that could, and says so.
    Impossible(String),
}

fn deletion(volume: &Value) -> Deletion {
    let provisioned_by = text(&volume["metadata"]["annotations"][PROVISIONED_BY]);
    let spec = &volume["spec"];
    if !spec["csi"].is_null() || !provisioned_by.is_empty() && !provisioned_by.starts_with("kubernetes.io/") {
        return Deletion::OfSomebodyElse;
    }
    match spec["hostPath"]["path"].as_str() {
        Some(path) if path.strip_prefix("/tmp/").is_some_and(|rest| !rest.is_empty()) => Deletion::AtOnce,
        Some(path) => {
            Deletion::Impossible(format!("host_path deleter only supports /tmp/.+ but received provided {path}"))
        }
        None => {
            let name = text(&volume["metadata"]["name"]);
            Deletion::Impossible(format!(
                "error getting deleter volume plugin for volume {name:?}: no volume plugin matched"
            ))
        }
    }
}
