//! Pending pods that are interchangeable, judged together: what is true of one is true of all until something changes.
//!
//! A group whose verdicts depend on nodes alone keeps its candidates in a heap that is corrected lazily: other pods only
//! make a node worse, which shows when its entry comes up; what makes a node better is looked up since the last time.
//! So placing n equal pods costs n logarithms rather than n times all nodes. Groups with relations to other pods,
//! or with claims, are surveyed anew for each pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::needs::{AffinityTerm, Needs};
use super::super::objects::Key;
use super::cluster::{Cluster, Place};
use super::diagnosis;
use super::filters::{self, Score};
use super::relations::{Counters, Relations};
use super::storage::{Mounts, Step};

/// A pod's back-off begins at one second and doubles up to ten.
const FIRST_BACKOFF_S: i64 = 1;
const LAST_BACKOFF_S: i64 = 10;
/// Many pending pods are told anew no faster than the genuine scheduler's client may write (its default of 50 requests a
/// second, an event and a status per pod), or thousands of pods would be rewritten with every node that joins.
const TOLD_PER_SECOND: i64 = 25;

/// Pending pods with equal needs.
pub(super) struct Group {
    pub(super) needs: Arc<Needs>,
    /// By arrival.
    pub(super) pods: BTreeMap<u64, Key>,
    counters: Counters,
    /// Anti-affinity terms of placed pods that match this group, as far as looked at.
    against: Vec<AffinityTerm>,
    against_seen: u64,
    candidates: Option<BinaryHeap<(Score, Reverse<String>, u64)>>,
    /// The cluster's revision at the last look for a place.
    seen: u64,
    /// That look found none: only nodes that got better since can have one.
    exhausted: bool,
    /// Pods to which the verdict has not been told.
    pub(super) untold: BTreeSet<u64>,
    /// Why there is no place, and the cluster's revision this was found for.
    pub(super) verdict: Option<(u64, String)>,
    /// The verdict that the whole group was told last.
    pub(super) told: Option<String>,
    /// When there is something to tell.
    pub(super) tell_at: Option<Timestamp>,
    /// How often the whole group was told, which spaces out the next time.
    pub(super) attempts: u32,
    /// Not told again before.
    pub(super) quiet_until: Timestamp,
}

impl Group {
    pub(super) fn new(needs: Arc<Needs>, cluster: &mut Cluster) -> Self {
        let counters = Counters::register(&needs, cluster);
        Self {
            needs,
            pods: BTreeMap::new(),
            counters,
            against: vec![],
            against_seen: 0,
            candidates: None,
            seen: 0,
            exhausted: false,
            untold: BTreeSet::new(),
            verdict: None,
            told: None,
            tell_at: None,
            attempts: 0,
            quiet_until: Timestamp::MIN,
        }
    }

    pub(super) fn release(&self, cluster: &mut Cluster) {
        self.counters.release(cluster);
    }

    /// The survey of other pods and of volumes, if any matter to this group.
    pub(super) fn relations(&mut self, cluster: &Cluster) -> Option<Relations> {
        let namespace_labels = cluster.namespace_labels(&self.needs.namespace);
        for term in cluster.anti_terms_since(self.against_seen) {
            if term.selector.matches(&self.needs.namespace, &namespace_labels, &self.needs.labels) {
                self.against.push(term.clone());
            }
        }
        self.against_seen = cluster.revision + 1;
        let related = self.needs.is_relational() || !self.against.is_empty();
        related.then(|| Relations::survey(&self.needs, &self.counters, &self.against, cluster))
    }

    /// Whether, after a failed look, a new one could find a place.
    pub(super) fn may_fit_now(&mut self, cluster: &Cluster) -> bool {
        if self.seen == cluster.revision {
            return false;
        }
        let improved = || self.improved(cluster, self.seen);
        let hopeful = if self.needs.is_relational() || !self.against.is_empty() {
            improved().next().is_some() || self.counters.revision(cluster) > self.seen
        } else {
            improved().any(|place| filters::fits(&self.needs, place, None))
        };
        if !hopeful {
            self.seen = cluster.revision;
        }
        hopeful
    }

    /// The best node for the next pod.
    pub(super) fn best(&mut self, cluster: &Cluster) -> Option<String> {
        let relations = self.relations(cluster);
        let since = std::mem::replace(&mut self.seen, cluster.revision);
        let best = if relations.is_some() {
            self.candidates = None;
            self.best_of(self.places(cluster), relations.as_ref())
        } else if self.exhausted && self.pods.len() == 1 {
            self.best_of(self.improved(cluster, since), None)
        } else if self.pods.len() == 1 || self.needs.node_names.is_some() {
            self.candidates = None;
            self.best_of(self.places(cluster), None)
        } else {
            self.best_candidate(cluster, since)
        };
        self.exhausted = best.is_none() && relations.is_none();
        best
    }

    /// What has to come of the claims of the group's next pod before it can be bound to this node.
    pub(super) fn steps(&self, cluster: &Cluster, node: &str) -> Vec<Step> {
        let node = cluster.places.get(node).and_then(|place| place.node.as_ref());
        let Some(node) = node.filter(|_| !self.needs.claims.is_empty()) else { return vec![] };
        let mounts = Mounts::survey(&self.needs, &cluster.storage);
        mounts.ok().and_then(|mounts| mounts.steps(node)).unwrap_or_default()
    }

    /// The group's claims.
    pub(super) fn claims(&self) -> impl Iterator<Item = Key> {
        let namespace = &self.needs.namespace;
        self.needs.claims.iter().map(|claim| Key { namespace: namespace.clone(), name: claim.name.clone() })
    }

    fn best_of<'a>(&self, places: impl Iterator<Item = &'a Place>, relations: Option<&Relations>) -> Option<String> {
        let fitting = places.filter(|place| filters::fits(&self.needs, place, relations));
        fitting.filter_map(|place| self.rank(place, relations)).max().map(|(_, Reverse(name), _)| name)
    }

    fn best_candidate(&mut self, cluster: &Cluster, since: u64) -> Option<String> {
        let known = self.candidates.take();
        let mut candidates = known.unwrap_or_default();
        if self.exhausted || !candidates.is_empty() {
            candidates.extend(self.improved(cluster, since).filter_map(|place| self.candidate(place)));
        } else {
            candidates.extend(self.places(cluster).filter_map(|place| self.candidate(place)));
        }
        while let Some((score, Reverse(name), version)) = candidates.pop() {
            let Some(place) = cluster.places.get(&name) else { continue };
            if place.version == version {
                // Stays in, so that it is corrected after the pod was placed there.
                candidates.push((score, Reverse(name.clone()), version));
                self.candidates = Some(candidates);
                return Some(name);
            }
            candidates.extend(self.candidate(place));
        }
        None
    }

    /// Brings the verdict up to date and marks who has to be told, in a cluster with so many pending pods. Returns the
    /// verdict, and when it must be looked at again because it is too early to tell everybody.
    pub(super) fn explain(&mut self, cluster: &Cluster, pending: usize, now: Timestamp) -> (String, Option<Timestamp>) {
        let message = match self.verdict.take().filter(|(revision, _)| *revision == cluster.revision) {
            Some((_, message)) => message,
            None => {
                let relations = self.relations(cluster);
                diagnosis::explain(&self.needs, relations.as_ref(), cluster)
            }
        };
        self.verdict = Some((cluster.revision, message.clone()));
        if self.told.as_ref() == Some(&message) {
            return (message, None);
        }
        if now < self.quiet_until {
            return (message, Some(self.quiet_until));
        }
        self.untold.extend(self.pods.keys());
        self.told = Some(message.clone());
        let backoff = (FIRST_BACKOFF_S << self.attempts.min(8)).min(LAST_BACKOFF_S);
        let pace = pending as i64 / TOLD_PER_SECOND;
        self.quiet_until = now.saturating_add(SignedDuration::from_secs(backoff.max(pace))).unwrap_or(Timestamp::MAX);
        self.attempts += 1;
        (message, None)
    }

    fn candidate(&self, place: &Place) -> Option<(Score, Reverse<String>, u64)> {
        if filters::fits(&self.needs, place, None) { self.rank(place, None) } else { None }
    }

    fn rank(&self, place: &Place, relations: Option<&Relations>) -> Option<(Score, Reverse<String>, u64)> {
        let node = place.node.as_ref()?;
        Some((filters::score(&self.needs, node, place, relations), Reverse(node.name.clone()), place.version))
    }

    /// The nodes the pod's affinity leaves by name; most pods name none.
    fn places<'a>(&'a self, cluster: &'a Cluster) -> Box<dyn Iterator<Item = &'a Place> + 'a> {
        match &self.needs.node_names {
            Some(names) => Box::new(names.iter().filter_map(|name| cluster.places.get(name))),
            None => Box::new(cluster.nodes().map(|(_, place)| place)),
        }
    }

    fn improved<'a>(&'a self, cluster: &'a Cluster, since: u64) -> impl Iterator<Item = &'a Place> {
        cluster.improved_since(since).filter(|place| self.allows(place))
    }

    fn allows(&self, place: &Place) -> bool {
        let named = |names: &BTreeSet<String>| place.node.as_ref().is_some_and(|node| names.contains(&node.name));
        self.needs.node_names.as_ref().is_none_or(named)
    }
}
