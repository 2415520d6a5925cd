//! Kubernetes events: deduplicated, rate-limited, and written in the background (core spec §10.5).
//!
//! kube's own recorder is not used: it reads the system's time and names events by it. Here a name is the clock's instant
//! and a running number, so that a simulation writes the same names every time. Publishing never waits and never fails;
//! an event that cannot be written is logged and lost, as everywhere in Kubernetes.

use crate::error::{chain, is_already_exists, is_not_found};
use controller_clock::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as ApiEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The component events are reported by.
const COMPONENT: &str = "karpenter";
/// Events waiting to be written. Client-go's recorder holds as many; a burst beyond it loses its newest events rather than
/// memory.
const QUEUE_LENGTH: usize = 1000;
/// Dedupe keys remembered. Ten thousand pods that cannot be scheduled fill it once; twice as many would be reported anew
/// more often than they should, which costs writes and nothing else.
const KEYS_REMEMBERED: usize = 10_000;
/// Events that can still be counted up rather than written anew; as many as client-go's correlator keeps.
const COUNTED: usize = 4096;
/// How long an event can be counted up; client-go's correlator has the same window.
const COUNT_WINDOW: Duration = Duration::from_secs(600);
/// How long an event is not repeated, unless it says otherwise.
const DEDUPE_WINDOW: Duration = Duration::from_secs(120);
/// `Nominated` events per second, and how many may come at once.
const NOMINATED_RATE: f64 = 5.0;
const NOMINATED_BURST: f64 = 10.0;

/// Something worth telling about an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    object: ObjectReference,
    type_: &'static str,
    reason: String,
    message: String,
    dedupe: Vec<String>,
    window: Duration,
    limited: bool,
}

impl Event {
    /// An event of type Normal. Without [`Event::dedupe`] it is written each time.
    pub(crate) fn normal(object: ObjectReference, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            object,
            type_: "Normal",
            reason: reason.into(),
            message: message.into(),
            dedupe: Vec::new(),
            window: DEDUPE_WINDOW,
            limited: false,
        }
    }

    /// An event of type Warning. Without [`Event::dedupe`] it is written each time.
    pub(crate) fn warning(object: ObjectReference, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_: "Warning", ..Self::normal(object, reason, message) }
    }

    /// Writes at most one event with this reason and these values within the window (two minutes unless
    /// [`Event::window`] says otherwise).
    pub(crate) fn dedupe(self, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { dedupe: values.into_iter().map(Into::into).collect(), ..self }
    }

    /// The window of [`Event::dedupe`].
    pub(crate) fn window(self, window: Duration) -> Self {
        Self { window, ..self }
    }

    /// Shares one allowance of five a second, ten at once, with all other limited events.
    pub(crate) fn limited(self) -> Self {
        Self { limited: true, ..self }
    }
}

/// A reference to an object, as an event carries it.
pub(crate) fn reference<K: kube::Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        ..ObjectReference::default()
    }
}

/// A reference to a parsed pod.
pub(crate) fn pod_reference(pod: &controller_core::snapshot::Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(pod.name.name.to_string()),
        namespace: Some(pod.name.namespace.to_string()),
        uid: Some(pod.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// Publishes events. Cheap to clone; clones share what they have published.
#[derive(Clone)]
pub(crate) struct Events(Arc<Shared>);

struct Shared {
    clock: Clock,
    state: Mutex<State>,
    arrived: Notify,
}

struct State {
    queue: VecDeque<(Event, Timestamp)>,
    /// Whether events have been lost since the queue was last empty; that is logged once.
    is_overrun: bool,
    /// Until when an event with this key is not repeated.
    silent_until: BTreeMap<String, Timestamp>,
    allowance: f64,
    allowance_at: Timestamp,
}

impl Events {
    /// A publisher on this clock. [`Events::run`] writes what is published.
    pub(crate) fn new(clock: Clock) -> Self {
        let state = State {
            queue: VecDeque::new(),
            is_overrun: false,
            silent_until: BTreeMap::new(),
            allowance: NOMINATED_BURST,
            allowance_at: clock.now(),
        };
        Self(Arc::new(Shared { clock, state: Mutex::new(state), arrived: Notify::new() }))
    }

    /// Publishes an event, unless an equal one was published within its window or its allowance is used up.
    pub(crate) fn publish(&self, event: Event) {
        let now = self.0.clock.now();
        let mut state = self.0.lock();
        if state.is_silenced(&event, now) || (event.limited && !state.take_allowance(now)) {
            return;
        }
        if state.queue.len() >= QUEUE_LENGTH {
            // Ten thousand pods without a place must not cost ten thousand lines.
            if !std::mem::replace(&mut state.is_overrun, true) {
                tracing::warn!(reason = %event.reason, "dropped an event, too many are waiting to be written");
            }
            return;
        }
        state.queue.push_back((event, now));
        drop(state);
        self.0.arrived.notify_one();
    }

    /// Writes published events for as long as the future lives.
    pub(crate) async fn run(&self, kube: kube::Client) {
        let mut writer = Writer { kube, sequence: 0, counted: BTreeMap::new() };
        loop {
            let arrived = self.0.arrived.notified();
            let next = self.0.lock().take_next();
            match next {
                Some((event, at)) => writer.write(event, at).await,
                None => arrived.await,
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_next(&mut self) -> Option<(Event, Timestamp)> {
        let next = self.queue.pop_front();
        self.is_overrun &= next.is_some();
        next
    }

    fn is_silenced(&mut self, event: &Event, now: Timestamp) -> bool {
        if event.dedupe.is_empty() {
            return false;
        }
        let key = format!("{}-{}", event.reason.to_lowercase(), event.dedupe.join("-"));
        if self.silent_until.get(&key).is_some_and(|until| *until > now) {
            return true;
        }
        if self.silent_until.len() >= KEYS_REMEMBERED {
            self.silent_until.retain(|_, until| *until > now);
        }
        if self.silent_until.len() < KEYS_REMEMBERED {
            self.silent_until.insert(key, now + event.window);
        }
        false
    }

    fn take_allowance(&mut self, now: Timestamp) -> bool {
        let passed = now.duration_since(self.allowance_at).as_secs_f64().max(0.0);
        self.allowance = (self.allowance + passed * NOMINATED_RATE).min(NOMINATED_BURST);
        self.allowance_at = now;
        let is_allowed = self.allowance >= 1.0;
        if is_allowed {
            self.allowance -= 1.0;
        }
        is_allowed
    }
}

/// Writes one event after the other; an equal one is counted up rather than written anew.
struct Writer {
    kube: kube::Client,
    sequence: u64,
    counted: BTreeMap<Occurrence, Counted>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Occurrence {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    type_: &'static str,
    reason: String,
    message: String,
}

struct Counted {
    event: String,
    count: i32,
    last: Timestamp,
}

impl Writer {
    async fn write(&mut self, event: Event, now: Timestamp) {
        let reason = event.reason.clone();
        if let Err(error) = self.try_write(event, now).await {
            tracing::debug!(reason = %reason, error = %chain(&error), "could not write an event");
        }
    }

    async fn try_write(&mut self, event: Event, now: Timestamp) -> Result<(), kube::Error> {
        let Event { object, type_, reason, message, dedupe: _, window: _, limited: _ } = event;
        let namespace = object.namespace.clone().unwrap_or_else(|| "default".into());
        let api = Api::<ApiEvent>::namespaced(self.kube.clone(), &namespace);
        let occurrence = Occurrence {
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: object.uid.clone(),
            type_,
            reason,
            message,
        };
        self.counted.retain(|_, counted| {
            now.duration_since(counted.last) < jiff::SignedDuration::try_from(COUNT_WINDOW).unwrap_or_default()
        });
        if let Some(counted) = self.counted.get_mut(&occurrence) {
            let patch = json!({ "count": counted.count + 1, "lastTimestamp": Time(now) });
            match api.patch(&counted.event, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {
                    counted.count += 1;
                    counted.last = now;
                    return Ok(());
                }
                Err(error) if is_not_found(&error) => drop(self.counted.remove(&occurrence)),
                Err(error) => return Err(error),
            }
        }
        let name = self.create(&api, object, &occurrence, &namespace, now).await?;
        if self.counted.len() < COUNTED {
            self.counted.insert(occurrence, Counted { event: name, count: 1, last: now });
        }
        Ok(())
    }

    async fn create(
        &mut self,
        api: &Api<ApiEvent>,
        object: ObjectReference,
        occurrence: &Occurrence,
        namespace: &str,
        now: Timestamp,
    ) -> Result<String, kube::Error> {
        loop {
            // Another run may have used the name within the same instant; the next number is free soon.
            let number = now.as_nanosecond().unsigned_abs() + u128::from(self.sequence);
            self.sequence += 1;
            let name = format!("{}.{number:016x}", object.name.as_deref().unwrap_or("unnamed"));
            let event = ApiEvent {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    namespace: Some(namespace.to_owned()),
                    ..ObjectMeta::default()
                },
                involved_object: object.clone(),
                type_: Some(occurrence.type_.to_owned()),
                reason: Some(occurrence.reason.clone()),
                message: Some(occurrence.message.clone()),
                first_timestamp: Some(Time(now)),
                last_timestamp: Some(Time(now)),
                count: Some(1),
                source: Some(EventSource { component: Some(COMPONENT.into()), host: None }),
                reporting_component: Some(COMPONENT.into()),
                reporting_instance: Some(String::new()),
                ..ApiEvent::default()
            };
            match api.create(&PostParams::default(), &event).await {
                Err(error) if is_already_exists(&error) => {}
                result => return result.map(|_| name),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> ObjectReference {
        ObjectReference { kind: Some("Pod".into()), uid: Some(uid.into()), ..ObjectReference::default() }
    }

    fn nominated(uid: &str) -> Event {
        Event::normal(pod(uid), "Nominated", "Pod should schedule on: nodeclaim/a").dedupe([uid])
    }

    fn events() -> Events {
        Events::new(Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap()))
    }

    fn waiting(events: &Events) -> usize {
        events.0.lock().queue.len()
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_not_repeated_within_two_minutes() {
        let events = events();
        events.publish(nominated("a"));
        events.publish(nominated("a"));
        events.publish(nominated("b"));
        assert_eq!(waiting(&events), 2);
        tokio::time::advance(Duration::from_secs(119)).await;
        events.publish(nominated("a"));
        assert_eq!(waiting(&events), 2);
        tokio::time::advance(Duration::from_secs(1)).await;
        events.publish(nominated("a"));
        assert_eq!(waiting(&events), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_message_does_not_count_and_the_window_can_be_longer() {
        let events = events();
        let failed = |message: &str| {
            Event::warning(pod("a"), "FailedScheduling", message).dedupe(["a"]).window(Duration::from_secs(300))
        };
        events.publish(failed("one"));
        tokio::time::advance(Duration::from_secs(299)).await;
        events.publish(failed("two"));
        assert_eq!(waiting(&events), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        events.publish(failed("three"));
        assert_eq!(waiting(&events), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_without_dedupe_values_is_written_each_time() {
        let events = events();
        for _ in 0..3 {
            events.publish(Event::normal(pod("a"), "Finalized", "Finalized karpenter.sh/termination"));
        }
        assert_eq!(waiting(&events), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn nominations_are_limited_to_ten_at_once_and_five_a_second() {
        let events = events();
        for number in 0..20 {
            events.publish(nominated(&number.to_string()).limited());
        }
        assert_eq!(waiting(&events), 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        for number in 20..40 {
            events.publish(nominated(&number.to_string()).limited());
        }
        assert_eq!(waiting(&events), 15);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_drops_the_newest() {
        let events = events();
        for number in 0..QUEUE_LENGTH + 5 {
            events.publish(nominated(&number.to_string()));
        }
        assert_eq!(waiting(&events), QUEUE_LENGTH);
        assert!(events.0.lock().is_overrun, "told once for the burst");
        while events.0.lock().take_next().is_some() {}
        assert!(!events.0.lock().is_overrun, "the next burst is told again");
    }
}
