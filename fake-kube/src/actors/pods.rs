//! What the workload controllers share: making pods from templates, giving them up, adopting and releasing them.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::api::Api;
use super::objects::{Key, Pod, controller_reference};
use super::selector::{LabelSelector, list, text};
use super::view::View;
use crate::resources;
use crate::{DeleteOptions, Status};

/// A pod of this template for `owner`, with a generated name behind `prefix`.
pub(crate) fn from_template(template: &Value, owner: &Value, reference: Value, prefix: &str) -> Value {
    let mut metadata = json!({
        "generateName": prefix, "namespace": owner["metadata"]["namespace"], "ownerReferences": [reference],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// Creates the pod and tells of it in the events of `owner`.
pub(crate) fn create(api: &mut Api, owner: &Value, pod: Value) -> Result<Arc<Value>, Status> {
    match api.create(&resources::PODS, pod) {
        Ok(pod) => {
            let name = text(&pod["metadata"]["name"]);
            api.normal(owner, "SuccessfulCreate", format!("Created pod: {name}"));
            Ok(pod)
        }
        Err(status) => {
            api.warning(owner, "FailedCreate", format!("Error creating: {status}"));
            Err(status)
        }
    }
}

/// Deletes the pod and tells of it in the events of `owner`.
pub(crate) fn delete(api: &mut Api, owner: &Value, pod: &Pod) -> Result<(), Status> {
    api.delete(&resources::PODS, &pod.raw, DeleteOptions::default())?;
    api.normal(owner, "SuccessfulDelete", format!("Deleted pod: {}", pod.key.name));
    Ok(())
}

/// Drops the owner's claim on pods whose labels no longer match, and leaves them out of `owned`.
pub(crate) fn release_strangers(
    api: &Api,
    owner: &Value,
    selector: Option<&LabelSelector>,
    owned: &mut Vec<Arc<Pod>>,
) -> Result<(), Status> {
    let (kept, strangers): (Vec<_>, Vec<_>) = std::mem::take(owned)
        .into_iter()
        .partition(|pod| selector.is_some_and(|selector| selector.matches(&pod.labels)));
    *owned = kept;
    for pod in strangers.iter().filter(|pod| pod.deleting.is_none()) {
        let references = list(&pod.raw["metadata"]["ownerReferences"]).iter();
        let others: Vec<_> = references.filter(|other| other["uid"] != owner["metadata"]["uid"]).collect();
        api.patch(&resources::PODS, &pod.key, json!({"metadata": {"ownerReferences": others}}))?;
    }
    Ok(())
}

/// Claims matching pods that have no controller. Returns whether there were any.
pub(crate) fn adopt(
    api: &Api,
    api_version: &str,
    kind: &str,
    owner: &Value,
    selector: Option<&LabelSelector>,
    view: &View,
) -> Result<bool, Status> {
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else { return Ok(false) };
    let mut adopted = false;
    for pod in view.pods_without_owner(text(&owner["metadata"]["namespace"])) {
        if pod.is_active() && selector.matches(&pod.labels) {
            let mut references = list(&pod.raw["metadata"]["ownerReferences"]).to_vec();
            references.push(controller_reference(api_version, kind, owner));
            let patch = json!({"metadata": {"uid": pod.uid, "ownerReferences": references}});
            api.patch(&resources::PODS, &pod.key, patch)?;
            adopted = true;
        }
    }
    Ok(adopted)
}

/// A status object of the counts that are not zero, as the API leaves zeros out.
pub(crate) fn counts<const N: usize>(counts: [(&str, usize); N]) -> Value {
    let present = counts.into_iter().filter(|(_, count)| *count > 0);
    Value::Object(present.map(|(name, count)| (name.to_owned(), json!(count))).collect::<Map<_, _>>())
}

/// A short hash of a template in the alphabet of generated names: no vowels, no digits that look like letters. It
/// differs from the genuine server's, which hashes Go's memory layout; only its form and its stability are relied on.
pub(crate) fn template_hash(template: &Value, collisions: i64) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hash: u32 = 0x811c_9dc5;
    let salt = if collisions > 0 { collisions.to_string() } else { String::new() };
    // serde_json's maps are ordered by key, so equal templates have equal text.
    for byte in template.to_string().bytes().chain(salt.bytes()) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}

/// Resolves a number or percentage of `total`.
pub(crate) fn resolve(value: &Value, total: i64, round_up: bool) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let scaled = percent.checked_mul(total)?;
            Some(if round_up {
                scaled.div_euclid(100) + i64::from(scaled.rem_euclid(100) != 0)
            } else {
                scaled.div_euclid(100)
            })
        }
        _ => None,
    }
}

/// The key of the object that controls the pod.
pub(crate) fn owner_key(pod: &Pod, kind: &str) -> Option<Key> {
    let owner = pod.owner.as_ref().filter(|owner| owner.kind == kind)?;
    Some(Key { namespace: pod.key.namespace.clone(), name: owner.name.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_resolve_up_and_down() {
        assert_eq!(resolve(&json!("25%"), 10, true), Some(3));
        assert_eq!(resolve(&json!("25%"), 10, false), Some(2));
        assert_eq!(resolve(&json!(4), 10, false), Some(4));
        assert_eq!(resolve(&json!("four"), 10, false), None);
    }

    #[test]
    fn a_hash_depends_on_the_template_alone() {
        let template = |image: &str| json!({"spec": {"containers": [{"image": image}]}});
        assert_eq!(template_hash(&template("a"), 0), template_hash(&template("a"), 0));
        assert_ne!(template_hash(&template("a"), 0), template_hash(&template("b"), 0));
        assert_ne!(template_hash(&template("a"), 0), template_hash(&template("a"), 1));
    }
}
