//! Topology spread constraints (core spec §3.9.5): which domains may have one pod more.

use super::super::preferences::Wishes;
use super::{Count, Place};
use crate::requirement::Requirement;
use crate::snapshot::SpreadConstraint;
use controller_api::labels;
use std::collections::BTreeMap;
use std::fmt;

/// At most this many domains appear in a message; the rest are counted.
const SHOWN_DOMAINS: usize = 25;

/// A pod's constraint with the place of its count among those of the pass.
#[derive(Clone, Debug)]
pub(in super::super) struct Spread<'a> {
    pub(in super::super) constraint: &'a SpreadConstraint,
    pub(in super::super) count: usize,
    /// The count that holds once the pod tolerates taints that are only preferences.
    pub(in super::super) tolerant_count: usize,
}

/// A spread constraint that leaves no domain for a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct SpreadUnsatisfiable {
    /// The label whose values are the domains.
    pub topology_key: String,
    /// How much fuller than the emptiest domain one may be.
    pub max_skew: u32,
    /// How many pods are counted in each domain.
    pub counts: BTreeMap<String, u32>,
    /// Whether the pod is itself one of those counted.
    pub counts_itself: bool,
    /// What the emptiest domain has that the pod may use; nothing if there is none. A new host always has none.
    pub least: Option<u32>,
    /// How many domains the pod may use and how many it wants at least, where it has fewer than it wants.
    pub too_few_domains: Option<(usize, u32)>,
    /// Domains the pod may use.
    pub pod_domains: Requirement,
    /// Domains the node may be in.
    pub node_domains: Requirement,
}

impl Count {
    /// The domains of the place that may have the pod, with how many pods each has.
    pub(super) fn open<'o>(
        &'o self,
        spread: &Spread<'_>,
        wishes: &Wishes<'_>,
        place: &Place<'o>,
    ) -> BTreeMap<&'o str, u32> {
        let constraint = spread.constraint;
        let key = &constraint.topology_key;
        let own = u32::from(self.counts(wishes.pod));
        let allowed = i64::from(constraint.max_skew) + i64::from(self.least(spread, wishes).unwrap_or(0));
        let is_open = |(_, count): &(&str, u32)| i64::from(count + own) <= allowed;
        let here = place.requirements.get(key);
        // A node's host is known, and a planned one is a domain of its own from now on.
        if key == labels::HOSTNAME_LABEL
            && let Some(host) = here.and_then(Requirement::single_value)
        {
            return [(host, self.domains.get(host).copied().unwrap_or(0))].into_iter().filter(is_open).collect();
        }
        let wanted = wishes.requirements.get(key);
        let is_here =
            |domain: &str| here.is_none_or(|here| here.has(domain)) && wanted.is_none_or(|wanted| wanted.has(domain));
        let known = self.domains.iter().map(|(domain, count)| (domain.as_str(), *count));
        known.filter(|(domain, _)| is_here(domain)).filter(is_open).collect()
    }

    /// What the emptiest domain has that the pod may use by what it must have; nothing if it may use none. Hosts can be
    /// added at will, so that the emptiest has none.
    fn least(&self, spread: &Spread<'_>, wishes: &Wishes<'_>) -> Option<u32> {
        if spread.constraint.topology_key == labels::HOSTNAME_LABEL || self.too_few(spread, wishes).is_some() {
            return Some(0);
        }
        self.usable(spread, wishes).min()
    }

    fn too_few(&self, spread: &Spread<'_>, wishes: &Wishes<'_>) -> Option<(usize, u32)> {
        let wanted = spread.constraint.min_domains?;
        let usable = self.usable(spread, wishes).count();
        (usable < wanted as usize).then_some((usable, wanted))
    }

    fn usable(&self, spread: &Spread<'_>, wishes: &Wishes<'_>) -> impl Iterator<Item = u32> {
        let usable = wishes.strict_requirements.get(&spread.constraint.topology_key);
        self.domains.iter().filter(move |(domain, _)| usable.is_none_or(|r| r.has(domain))).map(|(_, count)| *count)
    }

    pub(super) fn explain(&self, spread: &Spread<'_>, wishes: &Wishes<'_>, place: &Place<'_>) -> SpreadUnsatisfiable {
        let key = &spread.constraint.topology_key;
        let here = place.requirements.get_or_any(key);
        SpreadUnsatisfiable {
            topology_key: key.clone(),
            max_skew: spread.constraint.max_skew,
            counts: self.domains.clone(),
            counts_itself: self.counts(wishes.pod),
            least: self.least(spread, wishes),
            too_few_domains: self.too_few(spread, wishes),
            pod_domains: wishes.strict_requirements.get_or_any(key),
            node_domains: wishes
                .requirements
                .get(key)
                .map_or_else(|| here.clone(), |wanted| wanted.intersection(&here)),
        }
    }
}

impl SpreadUnsatisfiable {
    /// What the counts mean, in a sentence.
    pub(in super::super) fn explain(&self) -> String {
        let Self { topology_key, max_skew, counts, counts_itself, least, too_few_domains, .. } = self;
        let reachable = counts.iter().filter(|(domain, _)| self.node_domains.has(domain));
        let reachable: Vec<String> =
            reachable.take(SHOWN_DOMAINS).map(|(domain, count)| format!("{domain} has {count}")).collect();
        let known: Vec<&str> = counts.keys().map(String::as_str).take(SHOWN_DOMAINS).collect();
        if reachable.is_empty() && topology_key != labels::HOSTNAME_LABEL {
            return match known.as_slice() {
                [] => format!("no value of {topology_key} is known to spread over."),
                known => format!("its nodes can be in none of the domains of {topology_key}: {}.", known.join(", ")),
            };
        }
        let most = max_skew.saturating_add(least.unwrap_or(0)).saturating_sub(u32::from(*counts_itself));
        let few = match too_few_domains {
            Some((usable, wanted)) => format!("with {usable} of the {wanted} domains wanted that counts as 0"),
            None => format!("the emptiest domain has {}", least.unwrap_or(0)),
        };
        format!(
            "spread over {topology_key} with maxSkew {max_skew} allows a domain that has at most {most} of these pods \
             ({few}), and {}.",
            if reachable.is_empty() { "a new node has too many".to_owned() } else { reachable.join(", ") }
        )
    }
}

/// Upstream's words, which lack the closing parenthesis.
impl fmt::Display for SpreadUnsatisfiable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.counts.iter().take(SHOWN_DOMAINS);
        let mut counts = shown.map(|(domain, count)| format!("{domain}: {count}")).collect::<Vec<_>>().join(", ");
        if self.counts.len() > SHOWN_DOMAINS {
            counts += &format!(" and {} other(s)", self.counts.len() - SHOWN_DOMAINS);
        }
        write!(
            f,
            "unsatisfiable topology constraint for topology spread, key={} (counts = {counts}, podDomains = {}, \
             nodeDomains = {}",
            self.topology_key, self.pod_domains, self.node_domains
        )
    }
}
