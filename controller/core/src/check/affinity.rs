//! Whether pods are near those they must be near, and away from those they must be away from.
//!
//! A planned node that may still come up in several zones is in all of them as far as nearness goes. As for keeping away,
//! only what is settled counts: a pod without wishes of its own on a node without a zone may come up anywhere, and
//! kube-scheduler has the last word then.

use super::{Rule, Violations};
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use crate::scheduling::Schedule;
use crate::selector;
use crate::snapshot::{AffinityTerm, Pod, PodName, Snapshot, StateNode};
use controller_api::labels;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pods on a node that exists or is planned.
struct Site<'a> {
    hostname: String,
    labels: Requirements,
    /// With whether each was placed by the schedule.
    pods: Vec<(&'a Arc<Pod>, bool)>,
}

impl Site<'_> {
    /// The domains that the site is or may be in; nothing where nobody knows.
    fn domains(&self, key: &str) -> BTreeSet<&str> {
        if key == labels::HOSTNAME_LABEL {
            return BTreeSet::from([self.hostname.as_str()]);
        }
        let known = self.labels.get(key).filter(|requirement| !requirement.is_complement());
        known.map(Requirement::values).into_iter().flatten().map(String::as_str).collect()
    }
}

pub(super) fn check(snapshot: &Snapshot, schedule: &Schedule, found: &mut Violations) {
    let wants = |pod: &Arc<Pod>| !pod.affinity.required.is_empty() || !pod.affinity.required_anti.is_empty();
    if !snapshot.pods.values().any(wants) {
        return;
    }
    let sites = sites(snapshot, schedule);
    for site in &sites {
        for (pod, is_placed) in site.pods.iter().filter(|(pod, _)| wants(pod)) {
            for term in &pod.affinity.required_anti {
                if let Some(other) = meets(snapshot, &sites, site, pod, *is_placed, term) {
                    let key = &term.topology_key;
                    found.add(Rule::AntiAffinity, format!("{} and {} over {key}", pod.name, other));
                }
            }
            for term in pod.affinity.required.iter().filter(|_| *is_placed) {
                let on = || format!("{} over {}", pod.name, term.topology_key);
                found.unless(has_company(snapshot, &sites, site, pod, term), Rule::Affinity, on());
            }
        }
    }
}

fn sites<'a>(snapshot: &'a Snapshot, schedule: &'a Schedule) -> Vec<Site<'a>> {
    let planned = schedule.new_nodes.iter().map(|node| &node.pods);
    let placed: BTreeSet<&PodName> = schedule.existing.values().chain(planned).flatten().collect();
    let mut bound: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in snapshot.pods.values().filter(|pod| !pod.is_terminal() && !placed.contains(&pod.name)) {
        if let Some(node) = &pod.node_name {
            bound.entry(node).or_default().push(pod);
        }
    }
    let with = |pods: &'a [PodName]| pods.iter().filter_map(|name| Some((snapshot.pods.get(name)?, true)));
    let existing = snapshot.nodes.values().map(|node| {
        // Pods that leave a node that goes are no company, and no danger.
        let stay = |node: &StateNode| !node.is_marked_for_deletion();
        let running = node.node_name().filter(|_| stay(node)).and_then(|name| bound.get(name)).into_iter().flatten();
        let added = schedule.existing.get(node.name()).map(Vec::as_slice).unwrap_or_default();
        Site {
            hostname: node.hostname().to_owned(),
            labels: Requirements::from_labels(node.labels()),
            pods: running.map(|pod| (*pod, false)).chain(with(added)).collect(),
        }
    });
    let new = schedule.new_nodes.iter().enumerate().map(|(index, planned)| Site {
        hostname: format!("planned node {index}"),
        labels: planned.requirements.clone(),
        pods: with(&planned.pods).collect(),
    });
    existing.chain(new).collect()
}

/// A pod that must not be in the site's domain and is. Of two that run already nobody can be blamed.
fn meets<'a>(
    snapshot: &Snapshot,
    sites: &'a [Site<'_>],
    site: &Site<'_>,
    pod: &Pod,
    is_placed: bool,
    term: &AffinityTerm,
) -> Option<&'a PodName> {
    let domains = site.domains(&term.topology_key);
    let shared = sites.iter().filter(|other| !other.domains(&term.topology_key).is_disjoint(&domains));
    let mut others = shared.flat_map(|other| &other.pods);
    others
        .find(|(other, other_placed)| {
            (is_placed || *other_placed) && other.name != pod.name && is_selected(snapshot, pod, term, other)
        })
        .map(|(other, _)| &other.name)
}

/// Whether a pod that the term selects is, or may be, in the site's domain; or whether the pod is the first of its kind
/// where it can go.
fn has_company(snapshot: &Snapshot, sites: &[Site<'_>], site: &Site<'_>, pod: &Pod, term: &AffinityTerm) -> bool {
    let domains = site.domains(&term.topology_key);
    let selected = |site: &Site<'_>| {
        let others = site.pods.iter().filter(|(other, _)| other.name != pod.name && other.is_active());
        others.into_iter().any(|(other, _)| is_selected(snapshot, pod, term, other))
    };
    let near = |other: &&Site<'_>| !other.domains(&term.topology_key).is_disjoint(&domains);
    if sites.iter().filter(near).any(selected) {
        return true;
    }
    is_selected(snapshot, pod, term, pod)
}

fn is_selected(snapshot: &Snapshot, owner: &Pod, term: &AffinityTerm, other: &Pod) -> bool {
    let namespace = &other.name.namespace;
    let by_label = || {
        let wanted = term.namespace_selector.as_ref();
        let labels = snapshot.namespaces.get(namespace).map(|namespace| &namespace.labels);
        wanted.zip(labels).is_some_and(|(wanted, labels)| selector::matches(wanted, labels))
    };
    let is_own = term.namespaces.is_empty() && term.namespace_selector.is_none() && *namespace == owner.name.namespace;
    (is_own || term.namespaces.contains(namespace) || by_label())
        && term.selector.as_ref().is_some_and(|selector| selector::matches(selector, &other.labels))
}
