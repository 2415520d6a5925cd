//! What depends on more than the node: where other pods run (topology spread, affinity and anti-affinity) and where the pods'
//! volumes are, worked out for one group of equal pods over the whole cluster and then asked per node.

use std::collections::{BTreeMap, BTreeSet};

use super::super::needs::{AffinityTerm, Needs, Spread};
use super::super::objects::Node;
use super::cluster::{Cluster, Counted};
use super::filters::Reason;
use super::storage::Mounts;

/// The counters a group of equal pods needs, registered with the cluster for as long as the group lives.
#[derive(Debug, Default)]
pub(super) struct Counters {
    hard_spread: Vec<u64>,
    soft_spread: Vec<u64>,
    /// Pods that match all affinity terms at once.
    affinity: Option<u64>,
    anti_affinity: Vec<u64>,
    preferred: Vec<u64>,
}

impl Counters {
    pub(super) fn register(needs: &Needs, cluster: &mut Cluster) -> Self {
        let mut spread = |constraints: &[Spread]| -> Vec<u64> {
            let counted = constraints
                .iter()
                .map(|constraint| Counted { selectors: vec![constraint.selector.clone()], skips_terminating: true });
            counted.map(|counted| cluster.counter(counted)).collect()
        };
        let (hard_spread, soft_spread) = (spread(&needs.hard_spread), spread(&needs.soft_spread));
        let mut terms = |terms: &mut dyn Iterator<Item = &AffinityTerm>| -> Vec<u64> {
            let counted =
                terms.map(|term| Counted { selectors: vec![term.selector.clone()], skips_terminating: false });
            counted.map(|counted| cluster.counter(counted)).collect()
        };
        let anti_affinity = terms(&mut needs.anti_affinity.iter());
        let preferred = terms(&mut needs.preferred_pods.iter().map(|(_, term)| term));
        let affinity = (!needs.affinity.is_empty()).then(|| {
            let selectors = needs.affinity.iter().map(|term| term.selector.clone()).collect();
            cluster.counter(Counted { selectors, skips_terminating: false })
        });
        Self { hard_spread, soft_spread, affinity, anti_affinity, preferred }
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        let lists = [&self.hard_spread, &self.soft_spread, &self.anti_affinity, &self.preferred];
        lists.into_iter().flatten().copied().chain(self.affinity)
    }

    pub(super) fn release(&self, cluster: &mut Cluster) {
        self.all().for_each(|id| cluster.drop_counter(id));
    }

    /// When any of the counts last changed.
    pub(super) fn revision(&self, cluster: &Cluster) -> u64 {
        self.all().map(|id| cluster.counter_revision(id)).max().unwrap_or(0)
    }
}

/// What the other pods and the volumes mean for a group's next pod.
#[derive(Debug)]
pub(super) struct Relations {
    /// Or why the pod's claims let it go nowhere.
    mounts: Result<Mounts, String>,
    hard_spread: Vec<Skew>,
    soft_spread: Vec<Skew>,
    affinity: Option<Together>,
    /// Domains (key, value) that hold pods the group avoids.
    avoided: BTreeSet<(String, String)>,
    avoided_keys: Vec<String>,
    /// Domains that hold pods which avoid the group.
    avoiding: BTreeMap<String, BTreeSet<String>>,
    /// Weight by domain of preferred affinity.
    preferred: Vec<(String, BTreeMap<String, i64>)>,
}

#[derive(Debug)]
struct Skew {
    topology_key: String,
    max_skew: i64,
    /// One when the pod itself matches the selector.
    own: i64,
    /// The count of the emptiest domain, or zero when there are too few domains.
    least: i64,
    by_domain: BTreeMap<String, i64>,
}

#[derive(Debug)]
struct Together {
    topology_keys: Vec<String>,
    /// Domains with matching pods, by key.
    domains: BTreeSet<(String, String)>,
    /// No such pod exists anywhere and the pod itself is one: it may start the company.
    starts: bool,
}

impl Relations {
    /// Surveys the cluster for pods with these needs. `against` are the anti-affinity terms of other pods that match.
    pub(super) fn survey(needs: &Needs, counters: &Counters, against: &[AffinityTerm], cluster: &Cluster) -> Self {
        let own_namespace = cluster.namespace_labels(&needs.namespace);
        let matches_own = |term: &AffinityTerm| term.selector.matches(&needs.namespace, &own_namespace, &needs.labels);
        let skews = |constraints: &[Spread], ids: &[u64], strict: bool| {
            let keys: Vec<&str> = constraints.iter().map(|constraint| constraint.topology_key.as_str()).collect();
            constraints
                .iter()
                .zip(ids)
                .map(|(constraint, id)| {
                    let own = constraint.selector.matches(&needs.namespace, &own_namespace, &needs.labels);
                    let keys = if strict { &keys[..] } else { &[] };
                    Skew::survey(needs, constraint, *id, keys, i64::from(own), cluster)
                })
                .collect::<Vec<_>>()
        };
        let domains = |id: u64, key: &str| -> Vec<((String, String), i64)> {
            cluster
                .by_node(id)
                .filter_map(|(node, count)| Some(((key.to_owned(), domain(cluster, node, key)?), count)))
                .collect()
        };
        let affinity = counters.affinity.map(|id| {
            let topology_keys: Vec<String> = needs.affinity.iter().map(|term| term.topology_key.clone()).collect();
            let domains: BTreeSet<_> =
                topology_keys.iter().flat_map(|key| domains(id, key)).map(|(domain, _)| domain).collect();
            let starts = domains.is_empty() && needs.affinity.iter().all(matches_own);
            Together { topology_keys, domains, starts }
        });
        let avoided = needs
            .anti_affinity
            .iter()
            .zip(&counters.anti_affinity)
            .flat_map(|(term, id)| domains(*id, &term.topology_key))
            .map(|(domain, _)| domain)
            .collect();
        let mut avoiding: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for term in against {
            let held = cluster.nodes_with_anti_term(term).filter_map(|node| domain(cluster, node, &term.topology_key));
            avoiding.entry(term.topology_key.clone()).or_default().extend(held);
        }
        let preferred = needs.preferred_pods.iter().zip(&counters.preferred).map(|((weight, term), id)| {
            let mut by_domain = BTreeMap::new();
            for ((_, domain), count) in domains(*id, &term.topology_key) {
                *by_domain.entry(domain).or_insert(0) += weight * count;
            }
            (term.topology_key.clone(), by_domain)
        });
        Self {
            mounts: Mounts::survey(needs, &cluster.storage),
            hard_spread: skews(&needs.hard_spread, &counters.hard_spread, true),
            soft_spread: skews(&needs.soft_spread, &counters.soft_spread, false),
            affinity,
            avoided,
            avoided_keys: needs.anti_affinity.iter().map(|term| term.topology_key.clone()).collect(),
            avoiding,
            preferred: preferred.collect(),
        }
    }

    /// Why no node will do, before any is looked at.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.mounts.as_ref().err().map(String::as_str)
    }

    /// Why the node will not do: every reason of the first plugin that refuses.
    pub(super) fn refuse(&self, node: &Node) -> Vec<Reason> {
        let reasons = match &self.mounts {
            Ok(mounts) => mounts.refuse(node),
            Err(_) => vec![Reason::Claims],
        };
        if reasons.is_empty() { self.refuse_for_pods(node).into_iter().collect() } else { reasons }
    }

    fn refuse_for_pods(&self, node: &Node) -> Option<Reason> {
        for skew in &self.hard_spread {
            let Some(domain) = node.labels.get(&skew.topology_key) else { return Some(Reason::SpreadLabelMissing) };
            let count = skew.by_domain.get(domain).copied().unwrap_or(0);
            if count + skew.own - skew.least > skew.max_skew {
                return Some(Reason::Spread);
            }
        }
        let in_domain = |domains: &BTreeSet<(String, String)>, key: &String| {
            node.labels.get(key).is_some_and(|value| domains.contains(&(key.clone(), value.clone())))
        };
        if let Some(together) = &self.affinity {
            let labelled = together.topology_keys.iter().all(|key| node.labels.contains_key(key));
            let joined = together.topology_keys.iter().all(|key| in_domain(&together.domains, key));
            if !labelled || !joined && !together.starts {
                return Some(Reason::PodAffinity);
            }
        }
        if self.avoided_keys.iter().any(|key| in_domain(&self.avoided, key)) {
            return Some(Reason::PodAntiAffinity);
        }
        let avoids = |(key, domains): (&String, &BTreeSet<String>)| {
            node.labels.get(key).is_some_and(|value| domains.contains(value))
        };
        self.avoiding.iter().any(avoids).then_some(Reason::ExistingAntiAffinity)
    }

    /// How welcome the node is by preferred affinity and soft spreading.
    pub(super) fn preference(&self, node: &Node) -> i64 {
        let weights = self.preferred.iter().map(|(key, by_domain)| {
            node.labels.get(key).and_then(|domain| by_domain.get(domain)).copied().unwrap_or(0)
        });
        let crowding = self.soft_spread.iter().map(|skew| {
            let domain = node.labels.get(&skew.topology_key);
            // A node outside of the topology ranks behind the fullest domain.
            let fullest = || skew.by_domain.values().copied().max().unwrap_or(0) + 1;
            domain.map_or_else(fullest, |domain| skew.by_domain.get(domain).copied().unwrap_or(0))
        });
        weights.sum::<i64>() - crowding.sum::<i64>()
    }
}

impl Skew {
    /// Counts the pods in every domain of the nodes that take part: those with all of the constraints' keys, and as the
    /// constraint's policies say.
    fn survey(needs: &Needs, constraint: &Spread, counter: u64, keys: &[&str], own: i64, cluster: &Cluster) -> Self {
        let mut by_domain: BTreeMap<String, i64> = BTreeMap::new();
        for (node, _) in cluster.nodes() {
            let Some(domain) = node.labels.get(&constraint.topology_key) else { continue };
            if !keys.iter().all(|key| node.labels.contains_key(*key))
                || constraint.honors_affinity && !needs.selects(&node.name, &node.labels)
                || constraint.honors_taints && needs.untolerated(&node.taints).is_some()
            {
                continue;
            }
            let count = cluster.counted_on(counter, &node.name);
            match by_domain.get_mut(domain) {
                Some(total) => *total += count,
                None => drop(by_domain.insert(domain.clone(), count)),
            }
        }
        let enough = by_domain.len() as i64 >= constraint.min_domains;
        let least = if enough { by_domain.values().copied().min().unwrap_or(0) } else { 0 };
        Self { topology_key: constraint.topology_key.clone(), max_skew: constraint.max_skew, own, least, by_domain }
    }
}

fn domain(cluster: &Cluster, node: &str, key: &str) -> Option<String> {
    cluster.places.get(node)?.node.as_ref()?.labels.get(key).cloned()
}
