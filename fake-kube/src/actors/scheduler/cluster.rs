//! What the scheduler knows of the cluster, kept up to date pod by pod: free resources per node, how many pods each
//! selector in use matches on each node, and the anti-affinity of the pods that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::amount::Amounts;
use super::super::needs::{AffinityTerm, HostPort, Needs, PodSelector};
use super::super::objects::{Key, Node, Pod};
use super::super::selector::Labels;
use super::storage::Storage;

/// A node with what its pods take.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// `None` while pods name a node that does not exist.
    pub(super) node: Option<Arc<Node>>,
    pub(super) requested: Amounts,
    /// Requests as scoring counts them: CPU in thousandths, memory in bytes.
    pub(super) scored: (i64, i64),
    pub(super) pods: BTreeSet<Key>,
    pub(super) ports: Vec<HostPort>,
    /// Moves with every change of this place.
    pub(super) version: u64,
    /// When it last got better for some pod.
    improved: u64,
}

/// A pod that is on a node, or is being bound to one.
#[derive(Debug)]
pub(super) struct Placed {
    uid: String,
    pub(super) node: String,
    pub(super) needs: Arc<Needs>,
    pub(super) terminating: bool,
}

/// Which pods a counter counts: those that match every selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Counted {
    pub(super) selectors: Vec<PodSelector>,
    /// Spreading leaves pods out that are being deleted; affinity does not.
    pub(super) skips_terminating: bool,
}

#[derive(Debug)]
struct Counter {
    counted: Counted,
    users: usize,
    by_node: BTreeMap<String, i64>,
    revision: u64,
}

/// The scheduler's cache.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) places: BTreeMap<String, Place>,
    pub(super) placed: BTreeMap<Key, Placed>,
    /// Moves with every change.
    pub(super) revision: u64,
    /// Nodes by when they last got better.
    improvements: BTreeMap<u64, String>,
    counters: BTreeMap<u64, Counter>,
    counter_ids: BTreeMap<Counted, u64>,
    next_counter: u64,
    /// Required anti-affinity terms of placed pods, with how many pods on each node have them.
    anti_terms: BTreeMap<AffinityTerm, BTreeMap<String, i64>>,
    /// Every term of `anti_terms` by when it was first met.
    anti_log: BTreeMap<u64, AffinityTerm>,
    pub(super) anti_revision: u64,
    namespaces: BTreeMap<String, Labels>,
    pub(super) storage: Storage,
    /// How many pods of each priority are placed.
    priorities: BTreeMap<i64, usize>,
}

impl Cluster {
    /// Nodes that exist, by name.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&Arc<Node>, &Place)> {
        self.places.values().filter_map(|place| place.node.as_ref().map(|node| (node, place)))
    }

    pub(super) fn set_node(&mut self, name: &str, node: Option<Arc<Node>>) {
        self.revision += 1;
        let place = self.places.entry(name.to_owned()).or_default();
        place.node = node;
        place.version = self.revision;
        if place.node.is_none() && place.pods.is_empty() {
            self.forget(name);
        } else {
            self.improve(name);
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(place) = self.places.remove(name) {
            self.improvements.remove(&place.improved);
        }
    }

    fn improve(&mut self, name: &str) {
        let Some(place) = self.places.get_mut(name) else { return };
        self.improvements.remove(&place.improved);
        place.improved = self.revision;
        self.improvements.insert(self.revision, name.to_owned());
    }

    /// Nodes that got better after a revision.
    pub(super) fn improved_since(&self, revision: u64) -> impl Iterator<Item = &Place> {
        self.improvements.range(revision + 1..).filter_map(|(_, name)| self.places.get(name))
    }

    /// Follows a pod. One that finished or is gone frees its node.
    pub(super) fn set_pod(&mut self, key: &Key, pod: Option<&Pod>) {
        let pod = pod.filter(|pod| !pod.node_name.is_empty() && !pod.is_finished());
        if let (Some(placed), Some(pod)) = (self.placed.get(key), pod)
            && placed.uid == pod.uid
            && placed.node == pod.node_name
            && placed.terminating == pod.deleting.is_some()
            && placed.needs.signature == pod.needs().signature
        {
            return;
        }
        // Binding adds labels, deletion begins: neither frees anything.
        let frees = match (self.placed.get(key), pod) {
            (Some(placed), Some(pod)) => placed.node != pod.node_name || placed.needs.requests != pod.needs().requests,
            _ => true,
        };
        self.remove(key, frees);
        if let Some(pod) = pod {
            let placed = Placed {
                uid: pod.uid.clone(),
                node: pod.node_name.clone(),
                needs: pod.needs().clone(),
                terminating: pod.deleting.is_some(),
            };
            self.insert(key, placed);
        }
    }

    /// Frees what was counted for a pod that is not going to be bound after all.
    pub(super) fn give_back(&mut self, key: &Key) {
        self.remove(key, true);
    }

    /// Counts a pod on its node before the watch confirms the binding.
    pub(super) fn assume(&mut self, pod: &Pod, node: &str) {
        let placed =
            Placed { uid: pod.uid.clone(), node: node.to_owned(), needs: pod.needs().clone(), terminating: false };
        self.insert(&pod.key, placed);
    }

    fn insert(&mut self, key: &Key, placed: Placed) {
        self.revision += 1;
        let place = self.places.entry(placed.node.clone()).or_default();
        place.requested.add(&placed.needs.requests);
        place.scored.0 += placed.needs.scored.0;
        place.scored.1 += placed.needs.scored.1;
        place.pods.insert(key.clone());
        place.ports.extend(placed.needs.ports.iter().cloned());
        place.version = self.revision;
        *self.priorities.entry(placed.needs.priority).or_insert(0) += 1;
        self.count(&placed, 1);
        self.placed.insert(key.clone(), placed);
    }

    fn remove(&mut self, key: &Key, frees: bool) {
        let Some(placed) = self.placed.remove(key) else { return };
        self.revision += 1;
        if let Some(place) = self.places.get_mut(&placed.node) {
            place.requested.subtract(&placed.needs.requests);
            place.scored.0 -= placed.needs.scored.0;
            place.scored.1 -= placed.needs.scored.1;
            place.pods.remove(key);
            for port in &placed.needs.ports {
                if let Some(index) = place.ports.iter().position(|other| other == port) {
                    place.ports.swap_remove(index);
                }
            }
            place.version = self.revision;
            if place.node.is_none() && place.pods.is_empty() {
                self.forget(&placed.node);
            } else if frees {
                self.improve(&placed.node);
            }
        }
        if let Some(count) = self.priorities.get_mut(&placed.needs.priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&placed.needs.priority);
            }
        }
        self.count(&placed, -1);
    }

    fn count(&mut self, placed: &Placed, by: i64) {
        let none = Labels::new();
        let namespace_labels = self.namespaces.get(&placed.needs.namespace).unwrap_or(&none);
        for counter in self.counters.values_mut() {
            if counts(&counter.counted, placed, namespace_labels) {
                add(&mut counter.by_node, &placed.node, by);
                counter.revision = self.revision;
            }
        }
        for term in &placed.needs.anti_affinity {
            if !self.anti_terms.contains_key(term) {
                self.anti_revision = self.revision;
                self.anti_log.insert(self.revision, term.clone());
                // Terms of one pod are met in one revision; a key of its own keeps each.
                self.revision += 1;
            }
            add(self.anti_terms.entry(term.clone()).or_default(), &placed.node, by);
        }
    }

    /// Starts to count, or counts for one more user.
    pub(super) fn counter(&mut self, counted: Counted) -> u64 {
        if let Some(id) = self.counter_ids.get(&counted) {
            if let Some(counter) = self.counters.get_mut(id) {
                counter.users += 1;
            }
            return *id;
        }
        let id = self.next_counter;
        self.next_counter += 1;
        self.counter_ids.insert(counted.clone(), id);
        let by_node = self.recount(&counted);
        self.counters.insert(id, Counter { counted, users: 1, by_node, revision: self.revision });
        id
    }

    /// One user less; nobody counts for nobody.
    pub(super) fn drop_counter(&mut self, id: u64) {
        let Some(counter) = self.counters.get_mut(&id) else { return };
        counter.users -= 1;
        if counter.users == 0 {
            self.counter_ids.remove(&counter.counted);
            self.counters.remove(&id);
        }
    }

    fn recount(&self, counted: &Counted) -> BTreeMap<String, i64> {
        let none = Labels::new();
        let mut by_node = BTreeMap::new();
        for placed in self.placed.values() {
            let namespace_labels = self.namespaces.get(&placed.needs.namespace).unwrap_or(&none);
            if counts(counted, placed, namespace_labels) {
                add(&mut by_node, &placed.node, 1);
            }
        }
        by_node
    }

    /// How many pods a counter counts on each node that has any.
    pub(super) fn by_node(&self, counter: u64) -> impl Iterator<Item = (&str, i64)> {
        let counts = self.counters.get(&counter).into_iter().flat_map(|counter| &counter.by_node);
        counts.map(|(node, count)| (node.as_str(), *count))
    }

    pub(super) fn counted_on(&self, counter: u64, node: &str) -> i64 {
        self.counters.get(&counter).and_then(|counter| counter.by_node.get(node)).copied().unwrap_or(0)
    }

    /// When a counter last changed.
    pub(super) fn counter_revision(&self, counter: u64) -> u64 {
        self.counters.get(&counter).map_or(0, |counter| counter.revision)
    }

    /// Anti-affinity terms met after a revision.
    pub(super) fn anti_terms_since(&self, revision: u64) -> impl Iterator<Item = &AffinityTerm> {
        self.anti_log.range(revision..).map(|(_, term)| term)
    }

    /// The nodes with pods that have this anti-affinity term.
    pub(super) fn nodes_with_anti_term(&self, term: &AffinityTerm) -> impl Iterator<Item = &str> {
        self.anti_terms.get(term).into_iter().flat_map(|nodes| nodes.keys()).map(String::as_str)
    }

    pub(super) fn namespace_labels(&self, namespace: &str) -> Labels {
        self.namespaces.get(namespace).cloned().unwrap_or_default()
    }

    /// Follows a namespace's labels, on which selectors of namespaces depend.
    pub(super) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        if self.namespaces.get(name) == labels.as_ref() {
            return;
        }
        match labels {
            Some(labels) => drop(self.namespaces.insert(name.to_owned(), labels)),
            None => drop(self.namespaces.remove(name)),
        }
        self.revision += 1;
        let ids: Vec<(u64, Counted)> =
            self.counters.iter().map(|(id, counter)| (*id, counter.counted.clone())).collect();
        for (id, counted) in ids {
            let by_node = self.recount(&counted);
            if let Some(counter) = self.counters.get_mut(&id).filter(|counter| counter.by_node != by_node) {
                counter.by_node = by_node;
                counter.revision = self.revision;
            }
        }
    }

    /// Whether any placed pod has a lower priority.
    pub(super) fn has_below(&self, priority: i64) -> bool {
        self.priorities.first_key_value().is_some_and(|(lowest, _)| *lowest < priority)
    }
}

fn counts(counted: &Counted, placed: &Placed, namespace_labels: &Labels) -> bool {
    let needs = &placed.needs;
    !(counted.skips_terminating && placed.terminating)
        && counted.selectors.iter().all(|selector| selector.matches(&needs.namespace, namespace_labels, &needs.labels))
}

fn add(counts: &mut BTreeMap<String, i64>, node: &str, by: i64) {
    let count = counts.entry(node.to_owned()).or_insert(0);
    *count += by;
    if *count == 0 {
        counts.remove(node);
    }
}
