//! Where pods of one kind are, by domain, and what that leaves open for the next pod (core spec §3.9).
//!
//! A domain is a value of a label: a zone, a host. A [`Group`] counts the pods of some namespaces and a selector in every
//! domain of one label: first those that run, then those that the pass places. Pods that want the same counted share one.
//! Before a pod is placed, [`Topology::openings`] works out once what is open to it anywhere; whether one node is among
//! that is then a look at a bit. [`Topology::record`] takes note of where it went.

mod domains;
mod group;
mod opening;
mod survey;
mod unsatisfiable;

pub(super) use group::Rule;
pub(super) use opening::{Bounds, Closed, Constraint, Kind, Openings, Reach};
pub(super) use unsatisfiable::placeholder;
pub use unsatisfiable::{TopologyKind, TopologyUnsatisfiable};

use super::Bound;
use super::bits::Bits;
use super::sets::{SetId, Sets};
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use crate::snapshot::{AffinityTerm, Namespace, Pod, PodName, Pool, Snapshot, SpreadConstraint};
use controller_api::labels;
use domains::Domains;
use group::{Filter, Group, Selection};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use survey::{LabelSets, Survey};

/// Place of a label among those that pods are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyId(usize);

/// Place of a group among those of the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupId(usize);

/// The number of a namespace with pod labels: what decides which groups count a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LabelsId(usize);

/// A node, existing or planned, by its place among the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostId(pub(super) usize);

/// All groups of one pass.
pub(super) struct Topology<'a> {
    namespaces: &'a BTreeMap<String, Namespace>,
    pools: Vec<&'a Pool>,
    survey: Survey<'a>,
    label_sets: LabelSets<'a>,
    keys: Vec<Key<'a>>,
    groups: Vec<Group>,
    /// For each set of labels, the groups that count pods with them.
    counted_in: Vec<Vec<GroupId>>,
    /// Groups of pods that others must keep away from, because those want it so.
    inverse: Vec<GroupId>,
    hosts: Vec<Host<'a>>,
    /// Which of a label's domains a set of requirements allows, and how many there were when that was worked out.
    allowed: BTreeMap<(KeyId, SetId), (usize, Rc<Bits>)>,
    /// The requirement that a label has one of certain domains, as a set.
    domain_sets: BTreeMap<(KeyId, Bits), SetId>,
}

/// A label whose values are domains.
struct Key<'a> {
    label: String,
    is_hostname: bool,
    /// What can be built.
    of_pools: Domains<'a>,
    /// Every domain heard of. Of host names, those of [`Topology::hosts`] come first.
    names: Vec<String>,
    numbers: BTreeMap<String, usize>,
    /// The domain of each node that exists.
    of_nodes: Vec<Option<usize>>,
    /// Of each node in [`Survey::nodes`]: the domain that there is because of it, if it stays, and the domain of its pods.
    surveyed: Vec<(Option<usize>, Option<usize>)>,
}

/// A node as the topology sees it.
struct Host<'a> {
    taints: &'a [Taint],
    labels: HostLabels,
    pods: BTreeMap<LabelsId, u32>,
}

/// What is known of a node's labels.
enum HostLabels {
    /// All of them.
    Existing(Arc<Requirements>),
    /// What the plan leaves open.
    Planned(SetId),
}

impl<'a> Topology<'a> {
    /// With the groups of required anti-affinity of pods that run. Pods in `moving` are on their way to another place and
    /// not counted where they are.
    pub(super) fn new(
        snapshot: &'a Snapshot,
        bound: &Bound<'a>,
        pools: &[&'a Pool],
        moving: &BTreeSet<&PodName>,
    ) -> Self {
        let mut topology = Self {
            namespaces: &snapshot.namespaces,
            pools: pools.to_vec(),
            survey: Survey::default(),
            label_sets: LabelSets::default(),
            keys: Vec::new(),
            groups: Vec::new(),
            counted_in: Vec::new(),
            inverse: Vec::new(),
            hosts: Vec::new(),
            allowed: BTreeMap::new(),
            domain_sets: BTreeMap::new(),
        };
        topology.survey = Survey::new(snapshot, bound, moving, &mut topology.label_sets);
        topology.counted_in.resize_with(topology.label_sets.len(), Vec::new);
        topology
    }

    /// Adds a node that exists.
    pub(super) fn add_existing(&mut self, taints: &'a [Taint], labels: Arc<Requirements>) -> HostId {
        self.hosts.push(Host { taints, labels: HostLabels::Existing(labels), pods: BTreeMap::new() });
        HostId(self.hosts.len() - 1)
    }

    /// Adds a node that is planned; called when it gets its first pod.
    pub(super) fn add_planned(&mut self, taints: &'a [Taint], set: SetId) -> HostId {
        self.hosts.push(Host { taints, labels: HostLabels::Planned(set), pods: BTreeMap::new() });
        HostId(self.hosts.len() - 1)
    }

    /// The host that the next planned node will be.
    pub(super) fn next_host(&self) -> HostId {
        HostId(self.hosts.len())
    }

    /// Takes pods that run and forbid others near them into account: to be called when all nodes that exist are known.
    pub(super) fn add_running_anti_affinity(&mut self) {
        for (pod, node) in std::mem::take(&mut self.survey.forbidding) {
            for term in &pod.affinity.required_anti {
                let group = self.inverse_group(pod, term);
                let key = self.groups[group.0].key;
                if let Some(domain) = self.survey.domain(node, &self.keys[key.0].label).map(str::to_owned) {
                    let number = self.domain(key, &domain);
                    self.groups[group.0].add(number, 1);
                }
            }
        }
    }

    /// Constraints of pods with these labels that others want.
    pub(super) fn inverse_of(&self, labels: LabelsId) -> Vec<Constraint> {
        let (namespace, labels) = self.label_sets.get(labels);
        let meant = self.inverse.iter().filter(|group| self.groups[group.0].selects(namespace, labels));
        meant.map(|group| Constraint { group: *group, kind: Kind::Apart, counts_itself: false }).collect()
    }

    /// Whether the group counts pods with these labels.
    pub(super) fn counts(&self, group: GroupId, labels: LabelsId) -> bool {
        let (namespace, labels) = self.label_sets.get(labels);
        self.groups[group.0].selects(namespace, labels)
    }

    /// The number of the pod's namespace and labels.
    pub(super) fn labels_of(&mut self, pod: &'a Pod) -> LabelsId {
        let (id, is_new) = self.label_sets.number(pod);
        if is_new {
            let (namespace, labels) = self.label_sets.get(id);
            let counted = (0..self.groups.len()).map(GroupId);
            let counted = counted.filter(|g| !self.inverse.contains(g) && self.groups[g.0].selects(namespace, labels));
            let counted = counted.collect();
            self.counted_in.push(counted);
        }
        id
    }

    /// The group of a spread constraint of a pod with these tolerations.
    pub(super) fn spread_group(
        &mut self,
        sets: &Sets,
        pod: &Pod,
        constraint: &SpreadConstraint,
        tolerations: &[Toleration],
    ) -> GroupId {
        let filter = Filter::of(pod, constraint, tolerations);
        let selection = Selection {
            namespaces: BTreeSet::from([pod.name.namespace.clone()]),
            selector: constraint.selector.clone(),
            counts_all_running: constraint.selector.is_none(),
        };
        let seeds = constraint.honors_taints.then(|| tolerations.to_vec());
        self.group(sets, &constraint.topology_key, Rule::Spread, selection, Some(filter), seeds)
    }

    /// The group of a term of the pod's affinity or anti-affinity to other pods.
    pub(super) fn affinity_group(&mut self, sets: &Sets, pod: &Pod, term: &AffinityTerm, rule: Rule) -> GroupId {
        let selection = self.selection(pod, term);
        // Upstream looks at taints here, whatever the pod says: what it cannot reach is no domain to bootstrap in.
        let seeds = self.pools.iter().any(|pool| !pool.taints().is_empty()).then(|| pod.tolerations.clone());
        self.group(sets, &term.topology_key, rule, selection, None, seeds)
    }

    /// The group of pods that must not meet those which the pod's term selects.
    pub(super) fn inverse_group(&mut self, pod: &Pod, term: &AffinityTerm) -> GroupId {
        let selection = self.selection(pod, term);
        let key = self.key(&term.topology_key);
        let known = |g: &&GroupId| self.groups[g.0].key == key && self.groups[g.0].selection == selection;
        if let Some(known) = self.inverse.iter().find(known) {
            return *known;
        }
        let mut group = Group::new(key, Rule::AntiAffinity, selection, None, None);
        let reachable: Vec<String> = self.keys[key.0].of_pools.open_to(None).map(str::to_owned).collect();
        reachable.iter().for_each(|domain| group.know(self.domain(key, domain)));
        let nodes: Vec<usize> = self.keys[key.0].of_nodes.iter().copied().flatten().collect();
        nodes.iter().for_each(|domain| group.know(*domain));
        self.groups.push(group);
        self.inverse.push(GroupId(self.groups.len() - 1));
        GroupId(self.groups.len() - 1)
    }

    fn selection(&self, pod: &Pod, term: &AffinityTerm) -> Selection {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().cloned().collect();
        match &term.namespace_selector {
            Some(selector) => {
                let selected = |labels| crate::selector::matches(selector, labels);
                let selected = self.namespaces.iter().filter(|(_, namespace)| selected(&namespace.labels));
                namespaces.extend(selected.map(|(name, _)| name.clone()));
            }
            None if namespaces.is_empty() => drop(namespaces.insert(pod.name.namespace.clone())),
            None => {}
        }
        Selection { namespaces, selector: term.selector.clone(), counts_all_running: false }
    }

    /// The group of that kind, counted now if it is the first. `seeds`: tolerations that a domain's taints must be covered
    /// by for it to be known.
    fn group(
        &mut self,
        sets: &Sets,
        label: &str,
        rule: Rule,
        selection: Selection,
        filter: Option<Filter>,
        seeds: Option<Vec<Toleration>>,
    ) -> GroupId {
        let key = self.key(label);
        let is_it = |group: &Group| group.is(key, rule, &selection, filter.as_ref(), seeds.as_deref());
        let known = (0..self.groups.len()).find(|i| is_it(&self.groups[*i]) && !self.inverse.contains(&GroupId(*i)));
        if let Some(known) = known {
            return GroupId(known);
        }
        let mut group = Group::new(key, rule, selection, filter, seeds);
        self.count(sets, &mut group);
        self.groups.push(group);
        let id = GroupId(self.groups.len() - 1);
        for (labels, counted) in self.counted_in.iter_mut().enumerate() {
            let (namespace, labels) = self.label_sets.get(LabelsId(labels));
            if self.groups[id.0].selects(namespace, labels) {
                counted.push(id);
            }
        }
        id
    }

    /// Counts what runs, and what the pass has placed so far.
    fn count(&mut self, sets: &Sets, group: &mut Group) {
        let key = group.key;
        let seeds = group.seeds.clone();
        let reachable: Vec<String> = self.keys[key.0].of_pools.open_to(seeds.as_deref()).map(str::to_owned).collect();
        for domain in reachable {
            group.know(self.domain(key, &domain));
        }
        let selected: Vec<bool> = (0..self.label_sets.len())
            .map(|labels| {
                let (namespace, labels) = self.label_sets.get(LabelsId(labels));
                group.selects_running(namespace, labels)
            })
            .collect();
        for (node, (seed, domain)) in self.survey.nodes.iter().zip(&self.keys[key.0].surveyed) {
            if !group.includes(node.taints, &node.requirements) {
                continue;
            }
            seed.iter().for_each(|domain| group.know(*domain));
            let counted: u32 = node.pods.iter().filter(|(labels, _)| selected[labels.0]).map(|(_, pods)| *pods).sum();
            if let Some(domain) = domain.filter(|_| counted > 0) {
                group.add(domain, counted);
            }
        }
        for host in (0..self.hosts.len()).map(HostId) {
            let placed: Vec<(LabelsId, u32)> = self.hosts[host.0].pods.iter().map(|(id, pods)| (*id, *pods)).collect();
            for (labels, pods) in placed {
                let (namespace, labels) = self.label_sets.get(labels);
                if group.selects(namespace, labels) && self.takes_part(sets, group, host) {
                    for domain in self.landing(sets, group.key, group.rule, host) {
                        group.add(domain, pods);
                    }
                }
            }
        }
    }

    /// Takes note that a pod was placed on a host; a planned one is of `set` from now on.
    pub(super) fn record(
        &mut self,
        sets: &Sets,
        host: HostId,
        set: Option<SetId>,
        labels: LabelsId,
        forbids: &[GroupId],
    ) {
        if let Some(set) = set {
            self.hosts[host.0].labels = HostLabels::Planned(set);
        }
        *self.hosts[host.0].pods.entry(labels).or_default() += 1;
        for index in 0..self.counted_in[labels.0].len() {
            let id = self.counted_in[labels.0][index];
            if self.takes_part(sets, &self.groups[id.0], host) {
                self.add_landing(sets, id, host);
            }
        }
        for id in forbids {
            self.add_landing(sets, *id, host);
        }
    }

    fn add_landing(&mut self, sets: &Sets, id: GroupId, host: HostId) {
        let Group { key, rule, .. } = self.groups[id.0];
        if self.keys[key.0].is_hostname {
            return self.groups[id.0].add(host.0, 1);
        }
        for domain in self.landing(sets, key, rule, host) {
            self.groups[id.0].add(domain, 1);
        }
    }

    /// The domains that a pod on the host counts in. As long as a planned node may still come up in several, it counts in
    /// none, except for pods that keep others away: those may end up in any.
    fn landing(&mut self, sets: &Sets, key: KeyId, rule: Rule, host: HostId) -> Vec<usize> {
        if self.keys[key.0].is_hostname {
            return vec![host.0];
        }
        let requirement = match &self.hosts[host.0].labels {
            HostLabels::Existing(_) => return self.keys[key.0].of_nodes[host.0].into_iter().collect(),
            HostLabels::Planned(set) => sets.get(*set).get(&self.keys[key.0].label),
        };
        let Some(requirement) = requirement.filter(|requirement| !requirement.is_complement()) else { return vec![] };
        if rule != Rule::AntiAffinity && requirement.single_value().is_none() {
            return vec![];
        }
        requirement.values().iter().map(|domain| self.domain(key, domain)).collect()
    }

    fn takes_part(&self, sets: &Sets, group: &Group, host: HostId) -> bool {
        let host = &self.hosts[host.0];
        let labels = match &host.labels {
            HostLabels::Existing(labels) => labels.as_ref(),
            HostLabels::Planned(set) => sets.get(*set).as_ref(),
        };
        group.includes(host.taints, labels)
    }

    fn key(&mut self, label: &str) -> KeyId {
        if let Some(known) = self.keys.iter().position(|key| key.label == label) {
            return KeyId(known);
        }
        let is_hostname = label == labels::HOSTNAME_LABEL;
        let mut key = Key {
            label: label.to_owned(),
            is_hostname,
            of_pools: Domains::of_pools(label, &self.pools),
            names: Vec::new(),
            numbers: BTreeMap::new(),
            of_nodes: Vec::new(),
            surveyed: Vec::new(),
        };
        let existing: Vec<Option<String>> = self
            .hosts
            .iter()
            .filter_map(|host| match &host.labels {
                HostLabels::Existing(labels) => {
                    Some(labels.get(label).and_then(Requirement::single_value).map(str::to_owned))
                }
                HostLabels::Planned(_) => None,
            })
            .collect();
        key.of_nodes = match is_hostname {
            true => (0..existing.len()).map(Some).collect(),
            false => existing.iter().map(|value| value.as_ref().map(|v| number_of(&mut key, v))).collect(),
        };
        if is_hostname {
            for (number, name) in existing.into_iter().enumerate() {
                let name = name.unwrap_or_default();
                key.numbers.entry(name.clone()).or_insert(number);
                key.names.push(name);
            }
        }
        for (index, node) in self.survey.nodes.iter().enumerate() {
            let seed = node.state.labels().get(label).filter(|_| !node.state.is_marked_for_deletion());
            let seed = seed.map(|domain| number_of(&mut key, domain));
            let domain = self.survey.domain(index, label).map(|domain| number_of(&mut key, domain));
            key.surveyed.push((seed, domain));
        }
        self.keys.push(key);
        KeyId(self.keys.len() - 1)
    }

    fn domain(&mut self, key: KeyId, domain: &str) -> usize {
        number_of(&mut self.keys[key.0], domain)
    }

    /// Which of the label's domains the set allows.
    fn allowed(&mut self, sets: &Sets, key: KeyId, set: SetId) -> Rc<Bits> {
        let Key { names, label, .. } = &self.keys[key.0];
        if let Some((seen, bits)) = self.allowed.get(&(key, set))
            && *seen == names.len()
        {
            return Rc::clone(bits);
        }
        let requirement = sets.get(set).get(label);
        let bits =
            Bits::of(names.len(), |domain| requirement.is_none_or(|requirement| requirement.has(&names[domain])));
        let bits = Rc::new(bits);
        self.allowed.insert((key, set), (names.len(), Rc::clone(&bits)));
        bits
    }
}

/// Host names that are no host's number are numbered from here: no pass has so many hosts.
const FOREIGN_HOSTS: usize = 1 << 20;

/// The number of a domain, new ones at the end.
fn number_of(key: &mut Key<'_>, domain: &str) -> usize {
    if let Some(known) = key.numbers.get(domain) {
        return *known;
    }
    let number = if key.is_hostname { FOREIGN_HOSTS + key.numbers.len() } else { key.names.len() };
    if !key.is_hostname {
        key.names.push(domain.to_owned());
    }
    key.numbers.insert(domain.to_owned(), number);
    number
}
