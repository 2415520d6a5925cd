//! Deleting: preconditions, grace periods, finalizers, and the garbage collection of dependents.
//!
//! The genuine cluster collects garbage in a controller a moment later; here it happens in the same step, which leaves
//! no window in which a test could see either state.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    kinds::{Builtin, Kind},
    read::ListRequest,
    state::{State, format_time},
    status::{FieldError, Status},
    store::{Address, Stored},
};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What becomes of an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The object goes first, then its dependents.
    Background,
    /// The object waits for the dependents that block it.
    Foreground,
    /// The dependents stay and lose their owner.
    Orphan,
}

/// How to delete.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeleteOptions {
    /// Time a pod has to end; its own if absent. Zero removes it at once, which is how a kubelet confirms.
    pub grace_period_seconds: Option<i64>,
    /// What becomes of the dependents; in the background if absent.
    pub propagation: Option<Propagation>,
    /// Delete only the object of this uid.
    pub uid: Option<String>,
    /// Delete only this version.
    pub resource_version: Option<String>,
    /// Change nothing.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Removal at once, as a kubelet asks for once the containers have ended.
    pub fn now() -> Self {
        Self { grace_period_seconds: Some(0), ..Self::default() }
    }

    /// With a precondition on the uid.
    pub fn of_uid(uid: impl Into<String>) -> Self {
        Self { uid: Some(uid.into()), ..Self::default() }
    }

    /// Reads a `DeleteOptions` object.
    pub(crate) fn from_json(body: &Value) -> Result<Self, Status> {
        let given = &body["propagationPolicy"];
        let invalid = |error| Status::invalid_options("DeleteOptions", &[error]);
        if given.is_string() && body["orphanDependents"].is_boolean() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            return Err(invalid(FieldError::invalid("propagationPolicy", given, detail)));
        }
        let propagation = match given.as_str() {
            None => (body["orphanDependents"] == true).then_some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(_) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                return Err(invalid(FieldError::not_supported("propagationPolicy", given, &known)));
            }
        };
        let text = |key: &str| body["preconditions"][key].as_str().map(str::to_owned);
        let mut dry_run = false;
        for said in body["dryRun"].as_array().into_iter().flatten() {
            dry_run |= is_dry_run("DeleteOptions", said.as_str().unwrap_or_default())?;
        }
        Ok(Self {
            grace_period_seconds: body["gracePeriodSeconds"].as_i64(),
            propagation,
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            dry_run,
        })
    }

    /// The object of the API.
    pub(crate) fn to_json(&self) -> Value {
        let mut body = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
        if let Some(seconds) = self.grace_period_seconds {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(propagation) = self.propagation {
            body["propagationPolicy"] = json!(format!("{propagation:?}"));
        }
        if let Some(uid) = &self.uid {
            body["preconditions"]["uid"] = json!(uid);
        }
        if let Some(version) = &self.resource_version {
            body["preconditions"]["resourceVersion"] = json!(version);
        }
        if self.dry_run {
            body["dryRun"] = json!(["All"]);
        }
        body
    }
}

/// The result of a delete.
#[derive(Debug)]
pub(crate) struct Deleted {
    pub(crate) object: Arc<Stored>,
    /// False while a grace period or finalizers hold it.
    pub(crate) gone: bool,
}

impl State {
    /// Deletes an object or marks it for deletion.
    pub(crate) fn delete(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let old = Arc::clone(self.get(kind, namespace, name)?);
        check_preconditions(kind, name, &old.value, options)?;
        if kind.builtin == Builtin::Namespace && matches!(name, "default" | "kube-system" | "kube-public") {
            return Err(Status::forbidden(kind, name, "this namespace may not be deleted"));
        }
        let metadata = &old.value["metadata"];
        let terminating = metadata["deletionTimestamp"].is_string();
        let mut object = (*old.value).clone();
        let grace = match kind.builtin {
            Builtin::Pod if terminating => match self.shortened(&mut object, options) {
                Some(grace) => grace,
                None => return Ok(Deleted { object: old, gone: false }),
            },
            Builtin::Pod => pod_grace(&old.value, options),
            _ => 0,
        };
        if options.dry_run {
            return Ok(Deleted { object: old, gone: grace == 0 });
        }
        if kind.builtin == Builtin::Namespace {
            return self.delete_namespace(kind, name, old);
        }
        let uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
        let policy = options.propagation.unwrap_or_else(|| policy_of_finalizers(metadata));
        if policy == Propagation::Orphan {
            self.orphan_dependents(&uid);
            set_finalizer(&mut object, ORPHAN, false);
        }
        let foreground = policy == Propagation::Foreground && self.blocking_dependents(&uid).next().is_some();
        set_finalizer(&mut object, FOREGROUND, foreground);
        if kind.builtin == Builtin::CustomResourceDefinition {
            // The server holds a definition until its last object is gone.
            let held = self.delete_instances(&old.value);
            set_finalizer(&mut object, crate::crd::CLEANUP, held);
        }
        let held = grace > 0 || object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        if !held && kind.builtin == Builtin::Pod {
            // A pod is marked before it goes, also where it goes at once.
            let last = self.mark_last(kind, namespace, name, object, terminating);
            return Ok(Deleted { object: last, gone: true });
        }
        if !held {
            let last = self.finish_deletion(kind, namespace, name, None).unwrap_or(old);
            return Ok(Deleted { object: last, gone: true });
        }
        if !terminating {
            let metadata = &mut object["metadata"];
            let at = self.now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
            metadata["deletionTimestamp"] = json!(format_time(at));
            metadata["deletionGracePeriodSeconds"] = json!(grace);
            if let Some(generation) = metadata["generation"].as_i64().filter(|generation| *generation > 0) {
                metadata["generation"] = json!(generation + 1);
            }
        }
        let marked = if object == *old.value { old } else { self.store.put(kind.table, namespace, name, object) };
        if foreground {
            self.delete_dependents(&uid, Propagation::Foreground);
            self.release_if_free(&(kind.table, namespace.to_owned(), name.to_owned()));
        }
        Ok(Deleted { object: marked, gone: false })
    }

    /// Marks a pod whose time is over as deleted now, and removes it.
    fn mark_last(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        mut object: Value,
        terminating: bool,
    ) -> Arc<Stored> {
        let now = self.timestamp();
        let metadata = &mut object["metadata"];
        metadata["deletionTimestamp"] = json!(now);
        metadata["deletionGracePeriodSeconds"] = json!(0);
        if let Some(generation) = metadata["generation"].as_i64().filter(|_| !terminating) {
            metadata["generation"] = json!(generation + 1);
        }
        let marked = match self.store.table(kind.table).get(namespace, name) {
            Some(present) if *present.value == object => Arc::clone(present),
            _ => self.store.put(kind.table, namespace, name, object),
        };
        self.finish_deletion(kind, namespace, name, None).unwrap_or(marked)
    }

    /// The grace period a second delete leaves to a terminating pod; `None` when it changes nothing.
    fn shortened(&self, object: &mut Value, options: &DeleteOptions) -> Option<i64> {
        let metadata = &mut object["metadata"];
        let current = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if current == 0 {
            return Some(0);
        }
        let mut period = options.grace_period_seconds.map(|period| if period < 0 { 1 } else { period })?;
        if period >= current {
            return None;
        }
        let old: Timestamp = metadata["deletionTimestamp"].as_str()?.parse().ok()?;
        let mut at = old.checked_add(SignedDuration::from_secs(period - current)).unwrap_or(old);
        if at < self.now {
            at = self.now;
            period = period.min(1);
        }
        metadata["deletionTimestamp"] = json!(format_time(at));
        metadata["deletionGracePeriodSeconds"] = json!(period);
        Some(period)
    }

    /// Removes an object that nothing holds, and follows the consequences. `last` is what the caller is shown instead
    /// of the stored state, which the watchers see.
    pub(crate) fn finish_deletion(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        last: Option<Value>,
    ) -> Option<Arc<Stored>> {
        let removed = self.store.remove(kind.table, namespace, name)?;
        if kind.builtin == Builtin::CustomResourceDefinition {
            self.unserve_crd(&removed.value);
        }
        if let Some(uid) = removed.value["metadata"]["uid"].as_str() {
            self.collect_dependents(uid);
        }
        self.release_owners(&removed.value);
        if kind.namespaced {
            self.finish_namespace(namespace);
        }
        if kind.custom() {
            self.finish_crd(kind);
        }
        Some(last.map_or_else(|| Arc::clone(&removed), |last| Stored::new(last, removed.version)))
    }

    /// Deletes what depended on a uid that is gone; what has other owners loses only the reference.
    fn collect_dependents(&mut self, uid: &str) {
        for address in self.store.dependents(uid).cloned().collect::<Vec<_>>() {
            let Some((kind, stored)) = self.at(&address) else { continue };
            let references = stored.value["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            let (living, dangling): (Vec<_>, Vec<_>) = references.into_iter().partition(|owner| self.lives(owner));
            if dangling.is_empty() {
                continue;
            }
            if living.is_empty() {
                self.delete_dependent(&kind, &address, &stored, Propagation::Background);
            } else {
                let mut object = (*stored.value).clone();
                object["metadata"]["ownerReferences"] = Value::Array(living);
                self.store.put(address.0, &address.1, &address.2, object);
            }
        }
    }

    /// Deletes an object whose owners are all gone already when it is written.
    pub(crate) fn collect_if_orphaned(&mut self, kind: &Arc<Kind>, namespace: &str, name: &str, stored: &Arc<Stored>) {
        let Some(references) = stored.value["metadata"]["ownerReferences"].as_array() else { return };
        // References to kinds that are not served cannot be judged; the collector leaves them alone.
        let judged = |owner: &Value| {
            let text = |key: &str| owner[key].as_str().unwrap_or_default();
            self.kinds.by_kind(text("apiVersion"), text("kind")).is_some()
        };
        if !references.is_empty() && references.iter().all(|owner| judged(owner) && !self.lives(owner)) {
            let address = (kind.table, namespace.to_owned(), name.to_owned());
            self.delete_dependent(kind, &address, stored, Propagation::Background);
        }
    }

    fn lives(&self, owner: &Value) -> bool {
        owner["uid"].as_str().is_some_and(|uid| self.store.uid(uid).is_some())
    }

    fn at(&self, address: &Address) -> Option<(Arc<Kind>, Arc<Stored>)> {
        let kind = self.kinds.tables.get(address.0)?.clone()?;
        let stored = self.store.table(address.0).get(&address.1, &address.2)?;
        Some((kind, Arc::clone(stored)))
    }

    fn delete_dependent(&mut self, kind: &Arc<Kind>, address: &Address, stored: &Stored, policy: Propagation) {
        let uid = stored.value["metadata"]["uid"].as_str().map(str::to_owned);
        let options = DeleteOptions { propagation: Some(policy), uid, ..DeleteOptions::default() };
        // It was just seen under this lock, so only a protected namespace could refuse, and those have no owners.
        let _ = self.delete(kind, &address.1, &address.2, &options);
    }

    fn delete_dependents(&mut self, uid: &str, policy: Propagation) {
        for address in self.store.dependents(uid).cloned().collect::<Vec<_>>() {
            if let Some((kind, stored)) = self.at(&address) {
                self.delete_dependent(&kind, &address, &stored, policy);
            }
        }
    }

    fn orphan_dependents(&mut self, uid: &str) {
        for address in self.store.dependents(uid).cloned().collect::<Vec<_>>() {
            let Some((_, stored)) = self.at(&address) else { continue };
            let mut object = (*stored.value).clone();
            let metadata = &mut object["metadata"];
            if let Some(references) = metadata["ownerReferences"].as_array_mut() {
                references.retain(|owner| owner["uid"] != uid);
                if references.is_empty()
                    && let Some(metadata) = metadata.as_object_mut()
                {
                    metadata.remove("ownerReferences");
                }
            }
            self.store.put(address.0, &address.1, &address.2, object);
        }
    }

    fn blocking_dependents<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a Address> {
        self.store.dependents(uid).filter(move |address| {
            self.store.table(address.0).get(&address.1, &address.2).is_some_and(|stored| {
                let references = stored.value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                references.into_iter().any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
            })
        })
    }

    /// Lets owners go that waited for this object.
    pub(crate) fn release_owners(&mut self, object: &Value) {
        let references = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        for owner in references {
            let Some(address) = owner["uid"].as_str().and_then(|uid| self.store.uid(uid)).cloned() else { continue };
            self.release_if_free(&address);
        }
    }

    fn release_if_free(&mut self, address: &Address) {
        let Some((kind, stored)) = self.at(address) else { return };
        let metadata = &stored.value["metadata"];
        let waits = metadata["deletionTimestamp"].is_string()
            && metadata["finalizers"].as_array().is_some_and(|list| list.contains(&json!(FOREGROUND)));
        let uid = metadata["uid"].as_str().unwrap_or_default();
        if !waits || self.blocking_dependents(uid).next().is_some() {
            return;
        }
        let mut object = (*stored.value).clone();
        set_finalizer(&mut object, FOREGROUND, false);
        self.release(&kind, &address.1, &address.2, object);
    }

    /// Stores an object that lost a finalizer of the server's own, or removes it if that was the last hold.
    pub(crate) fn release(&mut self, kind: &Arc<Kind>, namespace: &str, name: &str, object: Value) {
        let free = object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
            && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
        if free {
            self.finish_deletion(kind, namespace, name, None);
        } else {
            self.store.put(kind.table, namespace, name, object);
        }
    }

    fn delete_namespace(&mut self, kind: &Arc<Kind>, name: &str, old: Arc<Stored>) -> Result<Deleted, Status> {
        if old.value["metadata"]["deletionTimestamp"].is_string() {
            return Err(Status::conflict(
                kind,
                name,
                "The system is ensuring all content is removed from this namespace.  Upon completion, this namespace \
                 will automatically be purged by the system.",
            ));
        }
        let mut object = (*old.value).clone();
        object["metadata"]["deletionTimestamp"] = json!(self.timestamp());
        object["status"]["phase"] = json!("Terminating");
        let marked = self.store.put(kind.table, "", name, object);
        for table in 0..self.store.tables() {
            let Some(content) = self.kinds.tables.get(table).cloned().flatten().filter(|kind| kind.namespaced) else {
                continue;
            };
            let names: Vec<String> =
                self.store.table(table).iter_namespace(name).filter_map(|stored| name_of(&stored.value)).collect();
            for object in names {
                let _ = self.delete(&content, name, &object, &DeleteOptions::default());
            }
        }
        self.finish_namespace(name);
        let gone = self.store.table(kind.table).get("", name).is_none();
        Ok(Deleted { object: marked, gone })
    }

    /// Removes a terminating namespace once it is empty.
    pub(crate) fn finish_namespace(&mut self, name: &str) {
        let Ok(kind) = self.builtin(&crate::resources::NAMESPACES) else { return };
        let Some(stored) = self.store.table(kind.table).get("", name) else { return };
        let metadata = &stored.value["metadata"];
        let held = !metadata["deletionTimestamp"].is_string()
            || metadata["finalizers"].as_array().is_some_and(|list| !list.is_empty());
        let filled = |table| self.store.table(table).iter_namespace(name).next().is_some();
        if !held && !(0..self.store.tables()).any(filled) {
            self.finish_deletion(&kind, "", name, None);
        }
    }

    /// Notes an event's last write and forgets those whose hour has passed, as the genuine server's storage does.
    pub(crate) fn expire_events(&mut self, kind: &Kind, written: &Stored) {
        const TIME_TO_LIVE: SignedDuration = SignedDuration::from_hours(1);
        let metadata = &written.value["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        self.events.push_back((self.now, written.version, text("namespace"), text("name")));
        while let Some((at, version, namespace, name)) = self.events.front() {
            if self.now.duration_since(*at) < TIME_TO_LIVE {
                return;
            }
            // A later write stands further back in the queue with its own hour.
            let last = self.store.table(kind.table).get(namespace, name).map(|stored| stored.version);
            if last == Some(*version) {
                self.store.remove(kind.table, namespace, name);
            }
            self.events.pop_front();
        }
    }

    /// Deletes everything a list selects and returns it.
    pub(crate) fn delete_collection(
        &mut self,
        kind: &Arc<Kind>,
        namespace: Option<&str>,
        request: &ListRequest,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Stored>>, Status> {
        let selected: Vec<_> = self.select(kind, namespace, &request.selector).cloned().collect();
        let mut deleted = Vec::new();
        for stored in selected {
            let metadata = &stored.value["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            let name = metadata["name"].as_str().unwrap_or_default();
            match self.delete(kind, namespace, name, options) {
                Ok(outcome) => deleted.push(outcome.object),
                // Garbage collection may have taken it along with an earlier one.
                Err(status) if status.is_not_found() => {}
                Err(status) => return Err(status),
            }
        }
        Ok(deleted)
    }
}

/// What `dryRun` says: `All`. Anything else is refused, so that nothing is done that somebody only wanted to try.
pub(crate) fn is_dry_run(options: &str, said: &str) -> Result<bool, Status> {
    if said == "All" {
        return Ok(true);
    }
    let error = FieldError::not_supported("dryRun", &json!([said]), &["All"]);
    Err(Status::invalid_options(options, &[error]))
}

pub(crate) fn name_of(object: &Value) -> Option<String> {
    object["metadata"]["name"].as_str().map(str::to_owned)
}

/// What finalizers of the collector that somebody set by hand ask for.
fn policy_of_finalizers(metadata: &Value) -> Propagation {
    let has = |name: &str| metadata["finalizers"].as_array().is_some_and(|list| list.contains(&json!(name)));
    match (has(ORPHAN), has(FOREGROUND)) {
        (true, _) => Propagation::Orphan,
        (_, true) => Propagation::Foreground,
        _ => Propagation::Background,
    }
}

pub(crate) fn set_finalizer(object: &mut Value, name: &str, present: bool) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let mut finalizers = metadata.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    finalizers.retain(|finalizer| finalizer != name);
    if present {
        finalizers.push(json!(name));
    }
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), Value::Array(finalizers));
    }
}

fn pod_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let mut grace =
        options.grace_period_seconds.or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
    if grace < 0 {
        grace = 1;
    }
    // Nothing runs that would need time to end.
    let unscheduled = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if unscheduled || finished { 0 } else { grace }
}

pub(crate) fn check_preconditions(
    kind: &Kind,
    name: &str,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let conflict = |why: String| {
        let mut status = Status::conflict(kind, name, &why);
        status.message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified_kind());
        if let Some(details) = &mut status.details {
            details.kind = kind.kind.clone();
        }
        status
    };
    let known = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != known("uid")) {
        return Err(conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            known("uid")
        )));
    }
    if let Some(version) = options.resource_version.as_deref().filter(|version| *version != known("resourceVersion")) {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The \
             object might have been modified",
            known("resourceVersion")
        )));
    }
    Ok(())
}
