//! Taints and tolerations (core spec §1.6.3, §3.17).

use controller_api::labels;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use std::fmt;

/// A taint that no toleration covers.
#[derive(Clone, Debug, PartialEq)]
pub struct Untolerated(pub Taint);

/// Whether `tolerations` cover every taint. Any effect counts, `PreferNoSchedule` too: what is only preferred is relaxed
/// by adding a toleration.
pub fn tolerates(taints: &[Taint], tolerations: &[Toleration]) -> Result<(), Untolerated> {
    match taints.iter().find(|taint| !tolerations.iter().any(|toleration| covers(toleration, taint))) {
        Some(taint) => Err(Untolerated(taint.clone())),
        None => Ok(()),
    }
}

/// Whether one toleration covers one taint, numeric operators included.
pub fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    if given(&toleration.effect).is_some_and(|effect| effect != taint.effect) {
        return false;
    }
    let key = given(&toleration.key);
    if key.as_ref().is_some_and(|key| *key != taint.key) {
        return false;
    }
    let (wanted, actual) = (toleration.value.as_deref().unwrap_or(""), taint.value.as_deref().unwrap_or(""));
    let numbers = || Some((actual.parse::<i64>().ok()?, wanted.parse::<i64>().ok()?));
    match toleration.operator.as_deref().unwrap_or("") {
        // An empty key is allowed with Exists only, and then matches every taint.
        "" | "Equal" => key.is_some() && wanted == actual,
        "Exists" => true,
        "Gt" => numbers().is_some_and(|(actual, wanted)| actual > wanted),
        "Lt" => numbers().is_some_and(|(actual, wanted)| actual < wanted),
        _ => false,
    }
}

/// Whether two taints are the same for Kubernetes: key and effect agree.
pub fn same(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}

/// Whether a taint is one that passes by itself while a node starts, so that it does not speak against planning pods
/// there: not ready, unreachable, uninitialized by its cloud provider, not yet registered, or any readiness gate.
pub fn is_ephemeral(taint: &Taint) -> bool {
    const KNOWN: [(&str, &str); 5] = [
        ("node.kubernetes.io/not-ready", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
        (labels::UNREGISTERED_TAINT_KEY, "NoExecute"),
    ];
    taint.key.starts_with("readiness.k8s.io/") || KNOWN.contains(&(taint.key.as_str(), taint.effect.as_str()))
}

/// The taint of a node that is being taken away.
pub fn disrupted() -> Taint {
    Taint { key: labels::DISRUPTED_TAINT_KEY.into(), effect: "NoSchedule".into(), ..Taint::default() }
}

/// The taint of a node that this controller has not registered yet.
pub fn unregistered() -> Taint {
    Taint { key: labels::UNREGISTERED_TAINT_KEY.into(), effect: "NoExecute".into(), ..Taint::default() }
}

/// `key[=value]:effect`.
pub fn text(taint: &Taint) -> String {
    match taint.value.as_deref() {
        None | Some("") => format!("{}:{}", taint.key, taint.effect),
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
    }
}

impl fmt::Display for Untolerated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "did not tolerate taint (taint={})", text(&self.0))
    }
}

impl std::error::Error for Untolerated {}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        let value = Some(value.to_owned()).filter(|v| !v.is_empty());
        Taint { key: key.into(), value, effect: effect.into(), time_added: None }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let given = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
        Toleration {
            key: given(key),
            operator: given(operator),
            value: given(value),
            effect: given(effect),
            toleration_seconds: None,
        }
    }

    #[test]
    fn a_toleration_covers_what_kubernetes_says_it_covers() {
        let dedicated = taint("dedicated", "gpu", "NoSchedule");
        for (toleration, expected) in [
            (toleration("dedicated", "Equal", "gpu", "NoSchedule"), true),
            (toleration("dedicated", "", "gpu", ""), true),
            (toleration("dedicated", "Equal", "cpu", "NoSchedule"), false),
            (toleration("dedicated", "Exists", "", "NoExecute"), false),
            (toleration("dedicated", "Exists", "", ""), true),
            (toleration("", "Exists", "", ""), true),
            (toleration("", "Equal", "gpu", ""), false),
            (toleration("other", "Exists", "", ""), false),
        ] {
            assert_eq!(covers(&toleration, &dedicated), expected, "{toleration:?}");
        }
    }

    #[test]
    fn numeric_tolerations_compare_the_taints_value() {
        let level = taint("level", "5", "NoSchedule");
        assert!(covers(&toleration("level", "Gt", "4", ""), &level));
        assert!(!covers(&toleration("level", "Gt", "5", ""), &level));
        assert!(covers(&toleration("level", "Lt", "6", ""), &level));
        assert!(!covers(&toleration("level", "Lt", "six", ""), &level));
    }

    #[test]
    fn an_untolerated_taint_is_named() {
        let error = tolerates(&[taint("dedicated", "gpu", "NoSchedule")], &[]).unwrap_err();
        assert_eq!(error.to_string(), "did not tolerate taint (taint=dedicated=gpu:NoSchedule)");
    }

    #[test]
    fn unreachable_no_execute_does_not_pass_by_itself() {
        assert!(is_ephemeral(&taint("node.kubernetes.io/unreachable", "", "NoSchedule")));
        assert!(!is_ephemeral(&taint("node.kubernetes.io/unreachable", "", "NoExecute")));
        assert!(is_ephemeral(&taint("node.cloudprovider.kubernetes.io/uninitialized", "false", "NoSchedule")));
        assert!(is_ephemeral(&taint("readiness.k8s.io/storage", "", "NoExecute")));
    }
}
