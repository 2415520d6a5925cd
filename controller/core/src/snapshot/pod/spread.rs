//! Topology spread constraints of a pod, parsed once.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use std::collections::BTreeMap;

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq)]
pub struct SpreadConstraint {
    /// The label whose values are the domains.
    pub topology_key: String,
    /// How many more of the pods a domain may have than the one with the fewest.
    pub max_skew: u32,
    /// With fewer domains than this, the fewest counts as none.
    pub min_domains: Option<u32>,
    /// Whether it must hold, or is only a wish.
    pub is_required: bool,
    /// The pods counted, in the pod's own namespace; `matchLabelKeys` are part of it.
    pub selector: Option<LabelSelector>,
    /// Whether nodes that the pod's node selector or required node affinity excludes are left out of the count.
    pub honors_affinity: bool,
    /// Whether nodes whose taints the pod does not tolerate are left out of the count.
    pub honors_taints: bool,
}

impl SpreadConstraint {
    /// Reads an API constraint of a pod with these labels.
    pub(super) fn from_api(constraint: &api::TopologySpreadConstraint, labels: &BTreeMap<String, String>) -> Self {
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        Self {
            topology_key: constraint.topology_key.clone(),
            max_skew: count(constraint.max_skew),
            min_domains: constraint.min_domains.map(count),
            is_required: constraint.when_unsatisfiable == "DoNotSchedule",
            selector: constraint.label_selector.clone().map(|selector| with_match_labels(selector, constraint, labels)),
            honors_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}

/// Adds `key In [value]` for every one of `matchLabelKeys` that the pod has. API servers from 1.34 on have done so
/// already; what is there is not added again, so that pods of either kind are counted together.
fn with_match_labels(
    mut selector: LabelSelector,
    constraint: &api::TopologySpreadConstraint,
    labels: &BTreeMap<String, String>,
) -> LabelSelector {
    for key in constraint.match_label_keys.iter().flatten() {
        let Some(value) = labels.get(key) else { continue };
        let expressions = selector.match_expressions.get_or_insert_default();
        let wanted =
            LabelSelectorRequirement { key: key.clone(), operator: "In".to_owned(), values: Some(vec![value.clone()]) };
        if !expressions.contains(&wanted) {
            expressions.push(wanted);
        }
    }
    selector
}
