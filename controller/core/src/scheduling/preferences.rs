//! What a pod asks for, from everything it would like down to what it must have (core spec §3.11).

use super::amounts::{Axes, Row};
use super::topology::{Spread, Topology};
use crate::requirements::Requirements;
use crate::settings::{PreferencePolicy, Settings};
use crate::snapshot::Pod;
use k8s_openapi::api::core::v1::Toleration;

/// A pod as one attempt sees it. Each failure gives up one thing; a new attempt starts again with all of them.
pub(super) struct Wishes<'a> {
    pub(super) pod: &'a Pod,
    pub(super) amounts: Row,
    pub(super) requirements: Requirements,
    /// The same without what is only preferred.
    pub(super) strict_requirements: Requirements,
    pub(super) tolerations: Vec<Toleration>,
    /// Topology spread constraints, those that are only wishes included as long as they are kept.
    pub(super) spread: Vec<Spread<'a>>,
    required: usize,
    preferred: usize,
    tolerates_preferred_taints: bool,
}

impl<'a> Wishes<'a> {
    /// Everything the pod would like, unless preferences are ignored.
    pub(super) fn new(pod: &'a Pod, topology: &Topology, axes: &Axes, settings: &Settings) -> Self {
        let mut spread = topology.spread_of(pod);
        let preferred = match settings.preference_policy {
            PreferencePolicy::Respect => 0,
            PreferencePolicy::Ignore => {
                spread.retain(|spread| spread.constraint.is_required);
                pod.preferred_terms.len()
            }
        };
        let mut wishes = Self {
            pod,
            amounts: axes.row(&pod.requests),
            requirements: Requirements::new(),
            strict_requirements: Requirements::new(),
            tolerations: pod.tolerations.clone(),
            spread,
            required: 0,
            preferred,
            tolerates_preferred_taints: false,
        };
        wishes.restate();
        wishes
    }

    /// Gives up the next thing; false when nothing is left to give up. The order is upstream's: alternatives of required
    /// node affinity, preferred node affinity by falling weight, topology spread that is only a wish, at last aversion to
    /// taints that are only preferences.
    pub(super) fn relax(&mut self, some_pool_has_preferred_taints: bool) -> bool {
        if self.required + 1 < self.pod.required_terms.len() {
            self.required += 1;
        } else if self.preferred < self.pod.preferred_terms.len() {
            self.preferred += 1;
        } else if let Some(index) = self.spread.iter().position(|spread| !spread.constraint.is_required) {
            // The last takes the place of the one given up, and is given up next: upstream's order.
            self.spread.swap_remove(index);
        } else if some_pool_has_preferred_taints && !self.tolerates_preferred_taints {
            self.tolerates_preferred_taints = true;
            self.tolerations.push(tolerate_preferred_taints());
            self.spread.iter_mut().for_each(|spread| spread.count = spread.tolerant_count);
        } else {
            return false;
        }
        self.restate();
        true
    }

    /// Only one preferred term counts at a time, the heaviest that is left.
    fn restate(&mut self) {
        let required = self.pod.required_terms.get(self.required);
        let preferred = self.pod.preferred_terms.get(self.preferred).map(|preferred| &preferred.term);
        self.requirements = self.pod.requirements(required, preferred);
        self.strict_requirements = self.pod.requirements(required, None);
    }
}

/// Tolerates every taint that is only a preference.
pub(super) fn tolerate_preferred_taints() -> Toleration {
    Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("PreferNoSchedule".to_owned()),
        ..Toleration::default()
    }
}
