//! How an actor writes: a client under the actor's own name, and its events. Reads come from the view alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller_clock::Clock;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::objects::{Key, micro_time, time};
use super::selector::text;
use crate::resources::{self, Resource};
use crate::{ApiClient, DeleteOptions, FakeKube, Status};

/// client-go's recorder lets 25 events about one object pass, then one in five minutes.
const EVENT_BURST: u32 = 25;
const EVENT_REFILL: SignedDuration = SignedDuration::from_mins(5);
/// client-go remembers 4,096 events for counting repetitions; forgetting them only starts a new event.
const REMEMBERED_EVENTS: usize = 4096;

/// A caller of the API under a component's name.
pub(crate) struct Api {
    client: ApiClient,
    clock: Clock,
    component: &'static str,
    events: BTreeMap<EventKey, Remembered>,
    budgets: BTreeMap<String, (u32, Timestamp)>,
    recorded: u64,
}

/// What makes two events the same: uid of the object, type, reason, message.
type EventKey = (String, &'static str, &'static str, String);

struct Remembered {
    key: Key,
    count: u64,
}

impl Api {
    pub(crate) fn new(kube: &FakeKube, clock: Clock, component: &'static str) -> Self {
        let client = kube.client(component);
        Self { client, clock, component, events: BTreeMap::new(), budgets: BTreeMap::new(), recorded: 0 }
    }

    pub(crate) fn create(&self, resource: &Resource, object: Value) -> Result<Arc<Value>, Status> {
        let key = Key::of(&object);
        self.client.create(resource, key.namespace(), object)
    }

    pub(crate) fn patch(&self, resource: &Resource, key: &Key, patch: Value) -> Result<Arc<Value>, Status> {
        self.client.patch_merge(resource, key.namespace(), &key.name, patch, None)
    }

    pub(crate) fn patch_status(&self, resource: &Resource, key: &Key, patch: Value) -> Result<Arc<Value>, Status> {
        self.client.patch_merge(resource, key.namespace(), &key.name, patch, Some("status"))
    }

    /// Replaces the status of `object`, which must be its latest version, unless it stands so already.
    pub(crate) fn write_status(&self, resource: &Resource, object: &Arc<Value>, status: Value) -> Result<(), Status> {
        if object["status"] == status {
            return Ok(());
        }
        let mut object = Value::clone(object);
        object["status"] = status;
        let key = Key::of(&object);
        self.client.update_status(resource, key.namespace(), object).map(drop)
    }

    /// Deletes the object if it is still the one with this uid; one that is gone already is fine.
    pub(crate) fn delete(&self, resource: &Resource, object: &Value, options: DeleteOptions) -> Result<(), Status> {
        let key = Key::of(object);
        let options = DeleteOptions { uid: object["metadata"]["uid"].as_str().map(str::to_owned), ..options };
        match self.client.delete(resource, key.namespace(), &key.name, options) {
            Err(status) if !status.is_not_found() => Err(status),
            _ => Ok(()),
        }
    }

    pub(crate) fn bind(&self, pod: &Key, node: &str) -> Result<(), Status> {
        self.client.bind(&pod.namespace, &pod.name, node)
    }

    /// Tells of something normal.
    pub(crate) fn normal(&mut self, about: &Value, reason: &'static str, message: String) {
        self.event(about, "Normal", reason, message);
    }

    /// Tells of something a person may want to look into.
    pub(crate) fn warning(&mut self, about: &Value, reason: &'static str, message: String) {
        self.event(about, "Warning", reason, message);
    }

    /// Records an event as client-go's core recorder does: repetitions raise a count, floods are cut. Events are told
    /// at best effort, so a refused write is let go.
    fn event(&mut self, about: &Value, kind: &'static str, reason: &'static str, message: String) {
        let now = self.clock.now();
        let uid = text(&about["metadata"]["uid"]).to_owned();
        if !self.within_budget(&uid, now) {
            return;
        }
        let event_key = (uid, kind, reason, message);
        if let Some(known) = self.events.get_mut(&event_key) {
            known.count += 1;
            let patch = json!({"count": known.count, "lastTimestamp": time(now)});
            let key = known.key.clone();
            if self.patch(&resources::EVENTS, &key, patch).is_ok() {
                return;
            }
        }
        let mut event = self.new_event(about, kind, reason, &event_key.3, now);
        event["source"] = json!({"component": self.component});
        event["firstTimestamp"] = time(now);
        event["lastTimestamp"] = time(now);
        event["count"] = json!(1);
        let key = Key::of(&event);
        if self.create(&resources::EVENTS, event).is_ok() {
            if self.events.len() >= REMEMBERED_EVENTS {
                self.events.clear();
            }
            self.events.insert(event_key, Remembered { key, count: 1 });
        }
    }

    /// Records an event as client-go's newer recorder does, which the scheduler uses: no counts, but a time to the
    /// microsecond and the action.
    pub(crate) fn scheduling_event(
        &mut self,
        about: &Value,
        kind: &'static str,
        reason: &'static str,
        action: &str,
        message: &str,
    ) {
        let now = self.clock.now();
        let mut event = self.new_event(about, kind, reason, message, now);
        event["action"] = json!(action);
        event["eventTime"] = micro_time(now);
        event["reportingInstance"] = json!(self.component);
        let _ = self.create(&resources::EVENTS, event);
    }

    fn new_event(&mut self, about: &Value, kind: &str, reason: &str, message: &str, now: Timestamp) -> Value {
        self.recorded += 1;
        let (metadata, namespace) = (&about["metadata"], text(&about["metadata"]["namespace"]));
        // The genuine suffix is the time in nanoseconds; the running number keeps names apart within one instant.
        let suffix = now.as_nanosecond() + i128::from(self.recorded % 1_000_000);
        let mut involved = json!({
            "apiVersion": about["apiVersion"], "kind": about["kind"], "name": metadata["name"], "uid": metadata["uid"],
        });
        if !namespace.is_empty() {
            involved["namespace"] = json!(namespace);
        }
        if let Some(version) = metadata["resourceVersion"].as_str() {
            involved["resourceVersion"] = json!(version);
        }
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {
                "name": format!("{}.{suffix:x}", text(&metadata["name"])),
                "namespace": if namespace.is_empty() { "default" } else { namespace },
            },
            "involvedObject": involved, "reason": reason, "message": message, "type": kind,
            "reportingComponent": self.component, "reportingInstance": "",
        })
    }

    fn within_budget(&mut self, uid: &str, now: Timestamp) -> bool {
        if self.budgets.len() >= REMEMBERED_EVENTS {
            self.budgets.clear();
        }
        let (left, since) = self.budgets.entry(uid.to_owned()).or_insert((EVENT_BURST, now));
        while *left < EVENT_BURST && now.duration_since(*since) >= EVENT_REFILL {
            *left += 1;
            *since = since.saturating_add(EVENT_REFILL).unwrap_or(now);
        }
        if *left == EVENT_BURST {
            *since = now;
        }
        let allowed = *left > 0;
        *left = left.saturating_sub(1);
        allowed
    }
}
