//! Affinity and anti-affinity of a pod to other pods, parsed once.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Which pods a pod wants near, and which it keeps away from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodAffinity {
    /// Pods that must be in the same domain.
    pub required: Vec<AffinityTerm>,
    /// Pods that would better be, the heaviest wish first.
    pub preferred: Vec<WeightedTerm>,
    /// Pods that must not be in the same domain.
    pub required_anti: Vec<AffinityTerm>,
    /// Pods that would better not be, the heaviest wish first.
    pub preferred_anti: Vec<WeightedTerm>,
}

/// Some pods, and the label whose values are the domains.
#[derive(Clone, Debug, PartialEq)]
pub struct AffinityTerm {
    /// The label.
    pub topology_key: String,
    /// The pods, by their labels; without a selector, none.
    pub selector: Option<LabelSelector>,
    /// Their namespaces, by name.
    pub namespaces: Vec<String>,
    /// Their namespaces, by labels. With neither it is the pod's own.
    pub namespace_selector: Option<LabelSelector>,
}

/// A wish.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedTerm {
    /// 1 to 100.
    pub weight: i32,
    /// The term.
    pub term: AffinityTerm,
}

impl PodAffinity {
    /// Reads the part of an API affinity that is about pods.
    pub(super) fn from_api(affinity: &api::Affinity) -> Self {
        let near = affinity.pod_affinity.clone().unwrap_or_default();
        let apart = affinity.pod_anti_affinity.clone().unwrap_or_default();
        Self {
            required: terms(near.required_during_scheduling_ignored_during_execution),
            preferred: weighted(near.preferred_during_scheduling_ignored_during_execution),
            required_anti: terms(apart.required_during_scheduling_ignored_during_execution),
            preferred_anti: weighted(apart.preferred_during_scheduling_ignored_during_execution),
        }
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        let Self { required, preferred, required_anti, preferred_anti } = self;
        required.is_empty() && preferred.is_empty() && required_anti.is_empty() && preferred_anti.is_empty()
    }
}

fn terms(list: Option<Vec<api::PodAffinityTerm>>) -> Vec<AffinityTerm> {
    list.into_iter().flatten().map(term).collect()
}

fn weighted(list: Option<Vec<api::WeightedPodAffinityTerm>>) -> Vec<WeightedTerm> {
    let list = list.into_iter().flatten();
    let mut terms: Vec<WeightedTerm> =
        list.map(|entry| WeightedTerm { weight: entry.weight, term: term(entry.pod_affinity_term) }).collect();
    // Stable: among equal weights the first in the list counts as heavier.
    terms.sort_by_key(|term| std::cmp::Reverse(term.weight));
    terms
}

fn term(term: api::PodAffinityTerm) -> AffinityTerm {
    AffinityTerm {
        topology_key: term.topology_key,
        selector: term.label_selector,
        namespaces: term.namespaces.unwrap_or_default(),
        namespace_selector: term.namespace_selector,
    }
}
