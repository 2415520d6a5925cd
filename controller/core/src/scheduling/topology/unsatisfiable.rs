//! A constraint between pods that leaves no domain, with the facts.

use super::super::sets::Sets;
use super::opening::{Bounds, Constraint, Kind, least};
use super::{HostId, Topology};
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use controller_api::labels;
use std::collections::BTreeMap;
use std::fmt;

/// At most this many domains appear in a message; the rest are counted.
const SHOWN_DOMAINS: usize = 25;

/// A constraint that leaves no domain for a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologyUnsatisfiable {
    /// What is asked.
    pub kind: TopologyKind,
    /// The label whose values are the domains.
    pub topology_key: String,
    /// How many pods are counted in each domain.
    pub counts: BTreeMap<String, u32>,
    /// Whether the pod is itself one of those counted.
    pub counts_itself: bool,
    /// Domains the pod may use.
    pub pod_domains: Requirement,
    /// Domains the node may be in.
    pub node_domains: Requirement,
}

/// What is asked of a domain.
#[derive(Clone, Debug, PartialEq)]
pub enum TopologyKind {
    /// Not to be fuller than the emptiest by more than the skew.
    Spread {
        /// How much fuller one may be.
        max_skew: u32,
        /// What the emptiest domain has that the pod may use; nothing if there is none. A new host always has none.
        least: Option<u32>,
        /// How many domains the pod may use and how many it wants at least, where it has fewer than it wants.
        too_few_domains: Option<(usize, u32)>,
    },
    /// To have certain pods.
    Affinity,
    /// To have none of certain pods: the pod's own wish, or theirs.
    AntiAffinity,
}

impl Topology<'_> {
    /// The facts behind a constraint that closes a node of these requirements.
    pub(in super::super) fn explain(
        &mut self,
        sets: &Sets,
        constraint: &Constraint,
        bounds: Bounds<'_>,
        node: &Requirements,
        host: HostId,
    ) -> TopologyUnsatisfiable {
        let key = self.groups[constraint.group.0].key;
        let label = self.keys[key.0].label.clone();
        let is_hostname = self.keys[key.0].is_hostname;
        let usable = self.allowed(sets, key, bounds.strict);
        let group = &self.groups[constraint.group.0];
        let kind = match constraint.kind {
            Kind::Spread { max_skew, min_domains } => {
                let mut known = group.known.clone();
                known.keep(&usable);
                let too_few = min_domains.filter(|wanted| !is_hostname && known.len() < *wanted as usize);
                TopologyKind::Spread {
                    max_skew,
                    least: if is_hostname { Some(0) } else { least(group, &usable, min_domains) },
                    too_few_domains: too_few.map(|wanted| (known.len(), wanted)),
                }
            }
            Kind::Near => TopologyKind::Affinity,
            Kind::Apart => TopologyKind::AntiAffinity,
        };
        let known = group.known.iter().map(|domain| (domain, group.count(domain)));
        let counts = known.chain(group.filled()).filter_map(|(domain, count)| {
            let name = self.keys[key.0].name_of(domain).map(str::to_owned);
            let planned = (is_hostname && domain < super::FOREIGN_HOSTS).then(|| placeholder(HostId(domain)));
            Some((name.or(planned)?, count))
        });
        let strict = sets.get(bounds.strict).get_or_any(&label);
        TopologyUnsatisfiable {
            kind,
            counts: counts.collect(),
            counts_itself: constraint.counts_itself,
            pod_domains: match (is_hostname, bounds.strict_hostname) {
                (true, Some(hostname)) => hostname.clone(),
                _ => strict,
            },
            node_domains: match is_hostname {
                true => Requirement::equals(labels::HOSTNAME_LABEL, placeholder(host)),
                false => node.get_or_any(&label),
            },
            topology_key: label,
        }
    }
}

/// The name that a planned node goes by until it has one.
pub(in super::super) fn placeholder(host: HostId) -> String {
    format!("hostname-placeholder-{:04}", host.0)
}

impl TopologyUnsatisfiable {
    /// What the counts mean, in a sentence.
    pub(in super::super) fn explain(&self) -> String {
        let reachable = self.counts.iter().filter(|(domain, _)| self.node_domains.has(domain));
        let reachable: Vec<String> =
            reachable.take(SHOWN_DOMAINS).map(|(domain, count)| format!("{domain} has {count}")).collect();
        match &self.kind {
            TopologyKind::Spread { max_skew, least, too_few_domains } => {
                self.explain_spread(&reachable, *max_skew, *least, *too_few_domains)
            }
            TopologyKind::Affinity if self.counts.values().all(|count| *count == 0) => {
                format!("it has to be where certain pods are by {}, and there are none.", self.topology_key)
            }
            TopologyKind::Affinity => format!(
                "it has to be where certain pods are by {} ({}), and the node cannot be there.",
                self.topology_key,
                self.shown(|count| count > 0)
            ),
            TopologyKind::AntiAffinity => format!(
                "it has to keep away from certain pods, or they from it, by {}; they are, or may come up, in {}.",
                self.topology_key,
                self.shown(|count| count > 0)
            ),
        }
    }

    fn shown(&self, which: impl Fn(u32) -> bool) -> String {
        let domains: Vec<&str> =
            self.counts.iter().filter(|(_, count)| which(**count)).map(|(domain, _)| domain.as_str()).collect();
        let rest = domains.len().saturating_sub(SHOWN_DOMAINS);
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        format!("{}{more}", domains[..domains.len() - rest].join(", "))
    }

    fn explain_spread(
        &self,
        reachable: &[String],
        max_skew: u32,
        least: Option<u32>,
        too_few_domains: Option<(usize, u32)>,
    ) -> String {
        let Self { topology_key, counts, counts_itself, .. } = self;
        if reachable.is_empty() && topology_key != labels::HOSTNAME_LABEL {
            let known: Vec<&str> = counts.keys().map(String::as_str).take(SHOWN_DOMAINS).collect();
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
impl fmt::Display for TopologyUnsatisfiable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.counts.iter().take(SHOWN_DOMAINS);
        let mut counts = shown.map(|(domain, count)| format!("{domain}: {count}")).collect::<Vec<_>>().join(", ");
        if self.counts.len() > SHOWN_DOMAINS {
            counts += &format!(" and {} other(s)", self.counts.len() - SHOWN_DOMAINS);
        }
        let kind = match self.kind {
            TopologyKind::Spread { .. } => "topology spread",
            TopologyKind::Affinity => "pod affinity",
            TopologyKind::AntiAffinity => "pod anti-affinity",
        };
        write!(
            f,
            "unsatisfiable topology constraint for {kind}, key={} (counts = {counts}, podDomains = {}, nodeDomains = {}",
            self.topology_key, self.pod_domains, self.node_domains
        )
    }
}
