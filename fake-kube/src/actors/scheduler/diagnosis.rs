//! The sentence that says why a pod is pending, as kube-scheduler 1.36 words it: how many nodes refuse for which
//! reason, and what preemption could do.

use std::collections::BTreeMap;

use super::super::needs::Needs;
use super::cluster::Cluster;
use super::filters::{self, Reason};
use super::preemption;
use super::relations::Relations;

/// What separates the filters' verdict from what could be done about it. The plugin for dynamic resources has its say
/// before preemption, even where no claims are in play.
pub(super) const AFTER_FILTERS: &str = " no new claims to deallocate, preemption: ";

/// Why no node takes a pod with these needs.
pub(super) fn explain(needs: &Needs, relations: Option<&Relations>, cluster: &Cluster) -> String {
    let total = cluster.nodes().count();
    if total == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    if let Some(sentence) = relations.and_then(Relations::refusal) {
        // Nothing is filtered then, and the plugin for dynamic resources does not find what it keeps while it filters.
        return format!("0/{total} nodes are available: {sentence}. not found");
    }
    let mut filtered = Histogram::default();
    let mut preempted = Histogram::default();
    for (node, place) in cluster.nodes() {
        let named = needs.node_names.as_ref().is_none_or(|names| names.contains(&node.name));
        if !named {
            // The nodes a pod's affinity does not name are left out before any filter runs.
            filtered.add(Reason::LeftOut);
            preempted.add(Reason::PreemptionNotHelpful);
            continue;
        }
        let reasons = filters::reasons(needs, node, place, relations);
        if reasons.iter().all(Reason::preemption_may_help) {
            let obstacles = preemption::obstacles(needs, node, place, relations, cluster);
            obstacles.into_iter().for_each(|reason| preempted.add(reason));
        } else {
            preempted.add(Reason::PreemptionNotHelpful);
        }
        reasons.into_iter().for_each(|reason| filtered.add(reason));
    }
    let preemption = match needs.preempts {
        true => format!("0/{total} nodes are available: {preempted}"),
        false => "not eligible due to preemptionPolicy=Never.".to_owned(),
    };
    format!("0/{total} nodes are available: {filtered}{AFTER_FILTERS}{preemption}")
}

/// Counted reasons, sorted as text with their counts, as the genuine message has them.
#[derive(Default)]
struct Histogram(BTreeMap<Reason, usize>);

impl Histogram {
    fn add(&mut self, reason: Reason) {
        *self.0.entry(reason).or_insert(0) += 1;
    }
}

impl std::fmt::Display for Histogram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Two reasons may read alike: a resource that is short now, and one that always will be.
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (reason, count) in &self.0 {
            *counts.entry(reason.to_string()).or_insert(0) += count;
        }
        let mut texts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        texts.sort();
        write!(formatter, "{}.", texts.join(", "))
    }
}
