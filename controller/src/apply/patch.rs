//! Patches: what changed between an object as it was read and as it should be, sent as a JSON merge patch.
//!
//! A merge patch replaces lists whole, so a patch that touches one (conditions, finalizers, taints) must not overwrite
//! what somebody else wrote in between: it carries the resourceVersion that was read, and the API server refuses it
//! with a conflict if there is a newer one. The loop then looks again. Answers go into the mirror, so that the next
//! look does not wait for the watch.

use crate::error::{Context as _, ReconcileError};
use crate::events::{Event, reference};
use crate::mirror::Watched;
use crate::reconcile::Context;
use controller_api::HasConditions;
use controller_api::conditions::ConditionSet;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Whether a patch is refused when the object has changed since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Refused, with a conflict.
    Optimistic,
    /// Applied all the same: only for values that nobody else writes.
    None,
}

/// Writes what differs outside of `status`. Answers the object as stored; `before` itself if nothing differs.
pub(crate) async fn object<K: Patchable>(
    context: &Context,
    before: &K,
    after: &K,
    lock: Lock,
) -> Result<K, ReconcileError> {
    // Most looks at an object find it as it should be; comparing is far cheaper than serialising.
    if before == after {
        return Ok(before.clone());
    }
    let (mut from, mut to) = (to_json(before)?, to_json(after)?);
    for value in [&mut from, &mut to] {
        value.remove("status");
    }
    let Some(patch) = difference(&from, &to) else { return Ok(before.clone()) };
    let name = name_of(before);
    let answer = Api::<K>::all(context.kube.clone())
        .patch(&name, &PatchParams::default(), &Patch::Merge(locked(patch, before, lock)))
        .await
        .context(format_args!("patching {} {name}", K::kind(&())))?;
    context.mirror.observe(answer.clone());
    Ok(answer)
}

/// Writes what differs in `status`, with an optimistic lock, and tells of conditions that changed their status. Answers
/// the object as stored; `before` itself if nothing differs.
pub(crate) async fn status<K: Patchable + HasConditions>(
    context: &Context,
    before: &K,
    after: &K,
) -> Result<K, ReconcileError> {
    if before == after {
        return Ok(before.clone());
    }
    let only_status =
        |object: &K| Ok::<_, ReconcileError>(to_json(object)?.remove("status").unwrap_or_else(|| json!({})));
    let (from, to) = (only_status(before)?, only_status(after)?);
    let (Some(from), Some(to)) = (from.as_object(), to.as_object()) else { return Ok(before.clone()) };
    let Some(patch) = difference(from, to) else { return Ok(before.clone()) };
    let name = name_of(before);
    let patch = locked(Map::from_iter([("status".to_owned(), Value::Object(patch))]), before, Lock::Optimistic);
    let answer = Api::<K>::all(context.kube.clone())
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .context(format_args!("patching the status of {} {name}", K::kind(&())))?;
    for (type_, message) in transitions(from, to, &K::SET) {
        context.events.publish(Event::normal(reference(before), type_, message));
    }
    context.mirror.observe(answer.clone());
    Ok(answer)
}

/// Takes a finalizer off. An object that is gone already is what was wanted.
pub(crate) async fn remove_finalizer<K: Patchable>(
    context: &Context,
    object: &K,
    finalizer: &str,
) -> Result<(), ReconcileError> {
    let mut left = object.meta().finalizers.clone().unwrap_or_default();
    left.retain(|one| one != finalizer);
    let patch = Map::from_iter([("metadata".to_owned(), json!({ "finalizers": left }))]);
    let name = name_of(object);
    // The answer shows the object that has just been deleted, so it is not put into the mirror.
    let answer = Api::<K>::all(context.kube.clone())
        .patch(&name, &PatchParams::default(), &Patch::Merge(locked(patch, object, Lock::Optimistic)))
        .await;
    match answer.context(format_args!("removing the finalizer of {} {name}", K::kind(&()))) {
        Ok(_) => {
            let finalized = Event::normal(reference(object), "Finalized", format!("Finalized {finalizer}"));
            context.events.publish(finalized);
            Ok(())
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes the object, but not a successor of the same name. One that is gone already is what was wanted.
pub(crate) async fn delete<K: Patchable>(context: &Context, object: &K) -> Result<(), ReconcileError> {
    let name = name_of(object);
    let preconditions = Preconditions { uid: object.meta().uid.clone(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match Api::<K>::all(context.kube.clone()).delete(&name, &parameters).await {
        // Without a deletion timestamp nothing held the object: it is gone, and the watch will say so.
        Ok(answer) => {
            if let Some(going) = answer.left().filter(|going| going.meta().deletion_timestamp.is_some()) {
                context.mirror.observe(going);
            }
        }
        // 409: an object of this name exists, but another one.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => return Err(error).context(format_args!("deleting {} {name}", K::kind(&()))),
    }
    Ok(())
}

/// Kinds without a namespace that the mirror watches.
pub(crate) trait Patchable:
    Watched + kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope> + Serialize + PartialEq
{
}

impl<K> Patchable for K where
    K: Watched + kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope> + Serialize + PartialEq
{
}

fn name_of<K: kube::Resource>(object: &K) -> String {
    object.meta().name.clone().unwrap_or_default()
}

fn to_json<K: Serialize>(object: &K) -> Result<Map<String, Value>, ReconcileError> {
    match serde_json::to_value(object) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(ReconcileError::Other("an object serialises to something else than an object".into())),
        Err(error) => Err(ReconcileError::Other(format!("serialising an object, {error}"))),
    }
}

fn locked<K: kube::Resource>(mut patch: Map<String, Value>, object: &K, lock: Lock) -> Value {
    if let (Lock::Optimistic, Some(version)) = (lock, &object.meta().resource_version) {
        let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
        metadata["resourceVersion"] = json!(version);
    }
    Value::Object(patch)
}

/// The merge patch (RFC 7396) that turns `from` into `to`; nothing if they are equal.
fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Option<Map<String, Value>> {
    let mut patch = Map::new();
    for (key, value) in to {
        match (from.get(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                if let Some(inner) = difference(old, new) {
                    patch.insert(key.clone(), Value::Object(inner));
                }
            }
            (Some(old), new) if old == new => {}
            _ => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(patch)
}

/// Conditions that have another status than before, each with the message of its event (core spec §10.5). The root and those
/// it depends on are unknown before they are first set; of any other condition nobody tells that it is new.
fn transitions(from: &Map<String, Value>, to: &Map<String, Value>, set: &ConditionSet) -> Vec<(String, String)> {
    fn conditions(status: &Map<String, Value>) -> impl Iterator<Item = &Value> {
        status.get("conditions").and_then(Value::as_array).into_iter().flatten()
    }
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let transition = |after: &Value| {
        let (type_, message) = (text(after, "type"), text(after, "message"));
        let is_expected = set.root == type_ || set.dependents.contains(&type_.as_str());
        let before = match conditions(from).find(|before| before["type"] == after["type"]) {
            Some(before) => text(before, "status"),
            None if is_expected => "Unknown".to_owned(),
            None => return None,
        };
        if before == text(after, "status") {
            return None;
        }
        let mut told = format!(
            "Status condition transitioned, Type: {type_}, Status: {before} -> {}, Reason: {}",
            text(after, "status"),
            text(after, "reason")
        );
        if !message.is_empty() {
            told.push_str(", Message: ");
            told.push_str(&message);
        }
        Some((type_, told))
    };
    conditions(to).filter_map(transition).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(from: Value, to: Value, expected: Option<Value>) {
        let (Value::Object(from), Value::Object(to)) = (from, to) else { panic!("objects only") };
        assert_eq!(difference(&from, &to).map(Value::Object), expected);
    }

    #[test]
    fn a_patch_holds_what_differs_and_nothing_else() {
        check(json!({"a": 1}), json!({"a": 1}), None);
        check(json!({"a": 1, "b": 2}), json!({"a": 1, "b": 3}), Some(json!({"b": 3})));
        check(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1}}), Some(json!({"a": {"c": null}})));
        check(json!({}), json!({"a": {"b": 1}}), Some(json!({"a": {"b": 1}})));
        check(json!({"l": [1, 2]}), json!({"l": [2]}), Some(json!({"l": [2]})));
    }

    #[test]
    fn conditions_with_another_status_are_transitions_and_expected_ones_were_unknown() {
        let set = ConditionSet { root: "Ready", dependents: &["SubnetsReady", "AMIsReady", "Awaited"] };
        let condition = |type_: &str, status: &str, message: &str| json!({"type": type_, "status": status, "reason": "Why", "message": message});
        let before = json!({"conditions": [condition("SubnetsReady", "True", ""), condition("Same", "True", "")]});
        let after = json!({"conditions": [
            condition("SubnetsReady", "False", "none"),
            condition("Same", "True", ""),
            condition("AMIsReady", "True", ""),
            condition("Awaited", "Unknown", ""),
            condition("New", "True", ""),
        ]});
        let told = transitions(before.as_object().unwrap(), after.as_object().unwrap(), &set);
        let expected = [
            ("SubnetsReady", "Type: SubnetsReady, Status: True -> False, Reason: Why, Message: none"),
            ("AMIsReady", "Type: AMIsReady, Status: Unknown -> True, Reason: Why"),
        ];
        let expected =
            expected.map(|(type_, text)| (type_.to_owned(), format!("Status condition transitioned, {text}")));
        assert_eq!(told, expected);
    }
}
