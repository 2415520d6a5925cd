//! PodDisruptionBudgets, as far as they decide whether a pod may be moved (core spec §6.2.2).

use super::pod::{Pod, PodName};
use crate::selector;
use jiff::Timestamp;
use k8s_openapi::api::policy::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;

/// A PodDisruptionBudget parsed once.
#[derive(Clone, Debug)]
pub struct Pdb {
    /// Namespace and name.
    pub name: PodName,
    /// How many more of its pods may be evicted now.
    pub disruptions_allowed: i32,
    selector: Option<LabelSelector>,
    fully_blocking: bool,
    always_allow_unhealthy: bool,
}

/// Which budgets count as standing in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PdbMode {
    /// Those that allow no eviction now.
    ZeroDisruptions,
    /// Those that never allow one.
    FullyBlocking,
}

/// Why budgets forbid to evict a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionBlock {
    /// Two or more budgets cover the pod, which the eviction API refuses.
    MultiplePdbs(Vec<PodName>),
    /// The one budget that covers it.
    Pdb(PodName),
}

impl Pdb {
    /// Reads an API PodDisruptionBudget.
    pub fn from_api(pdb: &api::PodDisruptionBudget) -> Self {
        let spec = pdb.spec.clone().unwrap_or_default();
        let none_unavailable = match &spec.max_unavailable {
            Some(IntOrString::Int(count)) => *count == 0,
            Some(IntOrString::String(text)) => text == "0%",
            None => false,
        };
        let all_available = matches!(&spec.min_available, Some(IntOrString::String(text)) if text == "100%");
        Self {
            name: PodName::new(
                pdb.metadata.namespace.clone().unwrap_or_default(),
                pdb.metadata.name.clone().unwrap_or_default(),
            ),
            disruptions_allowed: pdb.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or(0),
            selector: spec.selector,
            fully_blocking: none_unavailable || all_available,
            always_allow_unhealthy: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
        }
    }

    /// Whether the budget covers the pod. An empty selector covers every pod of the namespace, an absent one none.
    pub fn covers(&self, pod: &Pod) -> bool {
        self.name.namespace == pod.name.namespace
            && self.selector.as_ref().is_some_and(|selector| selector::matches(selector, &pod.labels))
    }
}

/// What keeps the pod from being evicted, if anything does. A pod that a drain would not evict anyway is not kept.
pub fn blocking_pdb(pod: &Pod, pdbs: &[Arc<Pdb>], mode: PdbMode, now: Timestamp) -> Option<EvictionBlock> {
    if !pod.is_evictable(now) {
        return None;
    }
    let covering: Vec<&Arc<Pdb>> = pdbs.iter().filter(|pdb| pdb.covers(pod)).collect();
    let pdb = match covering.as_slice() {
        [] => return None,
        [pdb] => pdb,
        several => return Some(EvictionBlock::MultiplePdbs(several.iter().map(|pdb| pdb.name.clone()).collect())),
    };
    if pdb.always_allow_unhealthy && pod.ready == Some(false) {
        return None;
    }
    let blocks = match mode {
        PdbMode::ZeroDisruptions => pdb.disruptions_allowed <= 0,
        PdbMode::FullyBlocking => pdb.fully_blocking,
    };
    blocks.then(|| EvictionBlock::Pdb(pdb.name.clone()))
}
