//! A group: some pods, counted by domain.

use super::super::bits::Bits;
use super::KeyId;
use crate::requirements::{AllowUndefined, Requirements};
use crate::selector;
use crate::snapshot::{MatchExpressions, Pod, SpreadConstraint};
use crate::taints;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::{BTreeMap, BTreeSet};

/// What the counts are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Rule {
    /// Domains should be about equally full.
    Spread,
    /// The pod goes where they are.
    Affinity,
    /// The pod goes where they are not.
    AntiAffinity,
}

/// The pods that are counted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selection {
    pub(super) namespaces: BTreeSet<String>,
    pub(super) selector: Option<LabelSelector>,
    /// Without a selector no pod that is placed is counted, but every pod that runs: upstream's rule for spread.
    pub(super) counts_all_running: bool,
}

/// The nodes whose pods are counted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Filter {
    /// Node selector and alternatives of required node affinity, unless the constraint ignores them.
    affinity: Option<(BTreeMap<String, String>, Vec<MatchExpressions>)>,
    /// Tolerations, if the constraint honours taints.
    tolerations: Option<Vec<Toleration>>,
}

/// How many of some pods are in each domain of one label.
pub(super) struct Group {
    pub(super) key: KeyId,
    pub(super) rule: Rule,
    pub(super) selection: Selection,
    filter: Option<Filter>,
    pub(super) seeds: Option<Vec<Toleration>>,
    /// What the nodes that take part must have: one of these. Empty: no such condition.
    alternatives: Vec<Requirements>,
    /// Domains there are as far as anybody knows. Of hosts, all count as known.
    pub(super) known: Bits,
    counts: Vec<u32>,
    /// Counts of hosts that nothing can be placed on.
    elsewhere: BTreeMap<usize, u32>,
    /// How many domains have pods.
    pub(super) filled: usize,
}

impl Filter {
    pub(super) fn of(pod: &Pod, constraint: &SpreadConstraint, tolerations: &[Toleration]) -> Self {
        Self {
            affinity: constraint.honors_affinity.then(|| (pod.node_selector.clone(), pod.required_terms.clone())),
            tolerations: constraint.honors_taints.then(|| tolerations.to_vec()),
        }
    }

    fn alternatives(&self) -> Vec<Requirements> {
        let Some((selector, terms)) = &self.affinity else { return vec![] };
        let selector = Requirements::from_labels(selector);
        if terms.is_empty() {
            return if selector.is_empty() { vec![] } else { vec![selector] };
        }
        let with_term = |term: &MatchExpressions| {
            term.requirements.iter().fold(selector.clone(), |all, requirement| all.with(requirement.clone()))
        };
        terms.iter().map(with_term).collect()
    }
}

impl Group {
    pub(super) fn new(
        key: KeyId,
        rule: Rule,
        selection: Selection,
        filter: Option<Filter>,
        seeds: Option<Vec<Toleration>>,
    ) -> Self {
        let alternatives = filter.as_ref().map(Filter::alternatives).unwrap_or_default();
        Self {
            key,
            rule,
            selection,
            filter,
            seeds,
            alternatives,
            known: Bits::default(),
            counts: Vec::new(),
            elsewhere: BTreeMap::new(),
            filled: 0,
        }
    }

    /// Whether this is the group of these parts.
    pub(super) fn is(
        &self,
        key: KeyId,
        rule: Rule,
        selection: &Selection,
        filter: Option<&Filter>,
        seeds: Option<&[Toleration]>,
    ) -> bool {
        self.key == key
            && self.rule == rule
            && self.selection == *selection
            && self.filter.as_ref() == filter
            && self.seeds.as_deref() == seeds
    }

    /// Whether a pod that is placed is one of those counted.
    pub(super) fn selects(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        self.selection.namespaces.contains(namespace)
            && self.selection.selector.as_ref().is_some_and(|selector| selector::matches(selector, labels))
    }

    /// Whether a pod that runs is.
    pub(super) fn selects_running(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        self.selects(namespace, labels)
            || (self.selection.counts_all_running && self.selection.namespaces.contains(namespace))
    }

    /// Whether a node of these taints and labels takes part.
    pub(super) fn includes(&self, taints: &[Taint], requirements: &Requirements) -> bool {
        let meets = |wanted: &Requirements| requirements.is_compatible(wanted, AllowUndefined::None);
        let tolerations = self.filter.as_ref().and_then(|filter| filter.tolerations.as_ref());
        (self.alternatives.is_empty() || self.alternatives.iter().any(meets))
            && tolerations.is_none_or(|tolerations| taints::tolerates(taints, tolerations).is_ok())
    }

    /// Takes note that there is such a domain.
    pub(super) fn know(&mut self, domain: usize) {
        if domain < super::FOREIGN_HOSTS {
            self.known.insert(domain);
        }
    }

    pub(super) fn add(&mut self, domain: usize, pods: u32) {
        let count = if domain < super::FOREIGN_HOSTS {
            if self.counts.len() <= domain {
                self.counts.resize(domain + 1, 0);
            }
            self.known.insert(domain);
            &mut self.counts[domain]
        } else {
            self.elsewhere.entry(domain).or_default()
        };
        self.filled += usize::from(*count == 0 && pods > 0);
        *count += pods;
    }

    /// How many pods are in the domain.
    pub(super) fn count(&self, domain: usize) -> u32 {
        self.counts.get(domain).copied().unwrap_or(0)
    }

    /// Domains with pods: numbers and counts, hosts that nothing can be placed on included.
    pub(super) fn filled(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let here = self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0);
        here.chain(self.elsewhere.iter().map(|(domain, count)| (*domain, *count)))
    }
}
