//! Events are forgotten an hour after their last write, as kube-apiserver forgets them (`--event-ttl`). Nobody asks for it, so
//! no request stands in the journal.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::sleep_until;
use crate::{DeleteOptions, FakeKube, WatchEvent, resources};

/// kube-apiserver's default.
const TIME_TO_LIVE: SignedDuration = SignedDuration::from_hours(1);

/// Namespace and name.
type Key = (String, String);

/// Forgets events until dropped.
pub(super) async fn run(kube: &FakeKube) {
    let clock = kube.clock().clone();
    let mut watch = kube.client("event-ttl").watch(&resources::EVENTS);
    let mut due_at: BTreeMap<Key, Timestamp> = BTreeMap::new();
    let mut due: BTreeSet<(Timestamp, Key)> = BTreeSet::new();
    loop {
        let next = due.first().map(|(at, _)| *at);
        tokio::select! {
            biased;
            event = watch.next() => {
                let Some(event) = event else { return };
                let key = key_of(event.object());
                if let Some(at) = due_at.remove(&key) {
                    due.remove(&(at, key.clone()));
                }
                if !matches!(event, WatchEvent::Deleted(_)) {
                    let at = clock.now().saturating_add(TIME_TO_LIVE).unwrap_or(Timestamp::MAX);
                    due_at.insert(key.clone(), at);
                    due.insert((at, key));
                }
            }
            () = sleep_until(next, clock.now()) => {
                let now = clock.now();
                while let Some((_, (namespace, name))) = due.first().filter(|(at, _)| *at <= now).cloned() {
                    due.pop_first();
                    due_at.remove(&(namespace.clone(), name.clone()));
                    let mut state = kube.server().enter();
                    if let Some(kind) = state.kinds.resource(&resources::EVENTS).cloned() {
                        // Only one that is gone already can be refused.
                        let _ = state.delete(&kind, &namespace, &name, &DeleteOptions::default());
                    }
                }
            }
        }
    }
}

fn key_of(event: &Value) -> Key {
    let text = |name: &str| event["metadata"][name].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}
