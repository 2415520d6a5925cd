//! What is open to a pod (core spec §3.9.5): worked out once for all nodes, then looked up for each.

use super::super::bits::Bits;
use super::super::sets::{SetId, Sets};
use super::group::{Group, Rule};
use super::{GroupId, HostId, Key, KeyId, Topology};
use crate::catalog::CapacityType;
use crate::requirement::{Operator, Requirement};
use crate::requirements::Requirements;
use controller_api::labels;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// At most this many combinations of domains are tried on one node. Six zones in three markets are 18; a label with
/// hundreds of values would make every pod that fits nowhere cost hundreds of looks at every instance type.
const MAX_CHOICES: usize = 100;

/// What a pod has to do with a group.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Constraint {
    pub(in super::super) group: GroupId,
    pub(in super::super) kind: Kind,
    /// Whether the pod is itself one of those counted.
    pub(in super::super) counts_itself: bool,
}

/// What is asked of a domain.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Kind {
    /// Not to be fuller than the emptiest by more than the skew.
    Spread { max_skew: u32, min_domains: Option<u32> },
    /// To have pods of the group.
    Near,
    /// To have none.
    Apart,
}

/// What must hold of a pod's own labels for the domains it may use.
#[derive(Clone, Copy)]
pub(in super::super) struct Bounds<'b> {
    /// What the pod must have, host name apart.
    pub(in super::super) strict: SetId,
    pub(in super::super) strict_hostname: Option<&'b Requirement>,
}

/// Whether only the emptiest of the domains will do that a node may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Reach {
    /// Only those.
    Emptiest,
    /// Any that the skew allows.
    Allowed,
}

/// A constraint, by its place in the pod's list, that leaves nothing open.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Closed(pub(in super::super) usize);

/// What is open to a pod.
#[derive(Default)]
pub(in super::super) struct Openings {
    hosts: Vec<(usize, HostRule)>,
    keys: Vec<OpenKey>,
    /// Choices by the set of the node, as one pod is offered many nodes of few different sets.
    choices: RefCell<BTreeMap<(SetId, Reach), Choices>>,
}

/// What a planned node could become for the pod, or the constraint that leaves nothing.
type Choices = Result<Rc<[Choice]>, Closed>;

/// What is asked of a host by itself.
enum HostRule {
    /// To have at most so many pods of the group.
    AtMost(GroupId, i64),
    /// To have some.
    Some(GroupId),
}

/// The open domains of one label.
struct OpenKey {
    key: KeyId,
    /// What affinity and anti-affinity leave, by constraint.
    fixed: Vec<(usize, Bits)>,
    /// What each spread constraint leaves.
    spreads: Vec<(usize, GroupId, Bits)>,
    /// Whether the pod has to settle for one domain.
    settles: bool,
}

/// What a planned node would have to be: for each label, a set of its values.
pub(in super::super) type Choice = Vec<SetId>;

impl Topology<'_> {
    /// What is open to a pod of these constraints anywhere.
    pub(in super::super) fn openings(
        &mut self,
        sets: &Sets,
        constraints: &[Constraint],
        bounds: Bounds<'_>,
    ) -> Result<Openings, Closed> {
        let mut openings = Openings::default();
        for (index, constraint) in constraints.iter().enumerate() {
            let key = self.groups[constraint.group.0].key;
            if self.keys[key.0].is_hostname {
                if let Some(rule) = self.host_rule(constraint, bounds).ok_or(Closed(index))? {
                    openings.hosts.push((index, rule));
                }
                continue;
            }
            let usable = self.allowed(sets, key, bounds.strict);
            let group = &self.groups[constraint.group.0];
            let (open, settles) = match constraint.kind {
                Kind::Spread { max_skew, min_domains } => {
                    (spread(group, &usable, constraint.counts_itself, max_skew, min_domains), true)
                }
                Kind::Near => near(group, &usable, constraint.counts_itself),
                Kind::Apart => {
                    (Bits::of(self.keys[key.0].names.len(), |d| is_empty_and_usable(group, &usable, d)), false)
                }
            };
            if open.is_empty() {
                return Err(Closed(index));
            }
            let place = openings.keys.iter().position(|open| open.key == key);
            let place = place.unwrap_or_else(|| {
                openings.keys.push(OpenKey { key, fixed: Vec::new(), spreads: Vec::new(), settles: false });
                openings.keys.len() - 1
            });
            let entry = &mut openings.keys[place];
            entry.settles |= settles;
            match constraint.kind {
                Kind::Spread { .. } => entry.spreads.push((index, constraint.group, open)),
                Kind::Near | Kind::Apart => entry.fixed.push((index, open)),
            }
        }
        Ok(openings)
    }

    /// `None` where no host will do; no rule where any will.
    fn host_rule(&self, constraint: &Constraint, bounds: Bounds<'_>) -> Option<Option<HostRule>> {
        let group = &self.groups[constraint.group.0];
        match constraint.kind {
            // A new host has none, so that the emptiest always has none.
            Kind::Spread { max_skew, .. } => {
                let most = i64::from(max_skew) - i64::from(constraint.counts_itself);
                Some(Some(HostRule::AtMost(constraint.group, most)))
            }
            Kind::Apart => Some(Some(HostRule::AtMost(constraint.group, 0))),
            Kind::Near if group.filled > 0 && self.has_usable_host(group, bounds) => {
                Some(Some(HostRule::Some(constraint.group)))
            }
            Kind::Near => constraint.counts_itself.then_some(None),
        }
    }

    fn has_usable_host(&self, group: &Group, bounds: Bounds<'_>) -> bool {
        let Some(wanted) = bounds.strict_hostname else { return true };
        let key = &self.keys[group.key.0];
        let mut filled = group.filled();
        filled.any(|(host, _)| key.name_of(host).is_some_and(|name| wanted.has(name)))
    }

    /// What a planned node of the set would have to be for the pod: each answer names domains for every label, those with the
    /// fewest pods first, equals by name (markets in the order in which launches prefer them). At least one answer.
    ///
    /// Nothing may have been placed since the openings were worked out.
    pub(in super::super) fn choices(
        &mut self,
        sets: &mut Sets,
        openings: &Openings,
        set: SetId,
        reach: Reach,
    ) -> Choices {
        if let Some(known) = openings.choices.borrow().get(&(set, reach)) {
            return known.clone();
        }
        let choices = self.find_choices(sets, openings, set, reach);
        openings.choices.borrow_mut().insert((set, reach), choices.clone());
        choices
    }

    fn find_choices(&mut self, sets: &mut Sets, openings: &Openings, set: SetId, reach: Reach) -> Choices {
        let mut choices: Vec<Choice> = vec![Vec::new()];
        for open in &openings.keys {
            let domains = self.domains_open(sets, open, set, reach)?;
            let options: Vec<SetId> = domains.iter().map(|bits| self.domain_set(sets, open.key, bits)).collect();
            let with = |choice: &Choice, option: SetId| choice.iter().copied().chain([option]).collect();
            choices = choices
                .iter()
                .flat_map(|choice| options.iter().map(move |option| with(choice, *option)))
                .take(MAX_CHOICES)
                .collect();
        }
        Ok(choices.into())
    }

    /// Whether the host by itself will do, wherever it comes up.
    pub(in super::super) fn check_host(&self, openings: &Openings, host: HostId) -> Result<(), Closed> {
        let closed = openings.hosts.iter().find(|(_, rule)| !self.host_is_open(rule, host));
        closed.map_or(Ok(()), |(index, _)| Err(Closed(*index)))
    }

    /// Whether the node that exists will do.
    pub(in super::super) fn admits(&self, openings: &Openings, host: HostId) -> bool {
        // Of a node's one domain there is nothing to choose: the emptiest is itself.
        self.check_host(openings, host).is_ok()
            && openings.keys.iter().all(|open| {
                let domain = self.keys[open.key.0].of_nodes[host.0];
                domain.is_some_and(|domain| {
                    open.fixed.iter().all(|(_, bits)| bits.contains(domain))
                        && open.spreads.iter().all(|(_, _, bits)| bits.contains(domain))
                })
            })
    }

    fn host_is_open(&self, rule: &HostRule, host: HostId) -> bool {
        match rule {
            HostRule::AtMost(group, most) => i64::from(self.groups[group.0].count(host.0)) <= *most,
            HostRule::Some(group) => self.groups[group.0].count(host.0) > 0,
        }
    }

    /// For one label, the sets of domains that would do, the best first.
    fn domains_open(&mut self, sets: &Sets, open: &OpenKey, set: SetId, reach: Reach) -> Result<Vec<Bits>, Closed> {
        let here = (*self.allowed(sets, open.key, set)).clone();
        let mut left = here.clone();
        for (index, bits) in &open.fixed {
            left.keep(bits);
            if left.is_empty() {
                return Err(Closed(*index));
            }
        }
        for (index, group, bits) in &open.spreads {
            let mut candidates = here.clone();
            candidates.keep(bits);
            if reach == Reach::Emptiest {
                let least = candidates.iter().map(|domain| self.groups[group.0].count(domain)).min();
                candidates = filtered(&candidates, |domain| Some(self.groups[group.0].count(domain)) == least);
            }
            left.keep(&candidates);
            if left.is_empty() {
                return Err(Closed(*index));
            }
        }
        if !open.settles {
            return Ok(vec![left]);
        }
        let key = &self.keys[open.key.0];
        let mut domains: Vec<(Vec<u32>, Option<CapacityType>, &str, usize)> = left
            .iter()
            .map(|domain| {
                let counts = open.spreads.iter().map(|(_, group, _)| self.groups[group.0].count(domain)).collect();
                (counts, market(&key.label, &key.names[domain]), key.names[domain].as_str(), domain)
            })
            .collect();
        domains.sort();
        Ok(domains.into_iter().map(|(.., domain)| filtered(&left, |other| other == domain)).collect())
    }

    /// The requirement that the label has one of these values, as a set.
    fn domain_set(&mut self, sets: &mut Sets, key: KeyId, domains: &Bits) -> SetId {
        if let Some(known) = self.domain_sets.get(&(key, domains.clone())) {
            return *known;
        }
        let Key { label, names, .. } = &self.keys[key.0];
        let values = domains.iter().map(|domain| names[domain].as_str());
        let set = sets.number(Requirements::new().with(Requirement::new(label, Operator::In, values)));
        self.domain_sets.insert((key, domains.clone()), set);
        set
    }
}

impl Key<'_> {
    /// The name of a domain by its number.
    pub(super) fn name_of(&self, number: usize) -> Option<&str> {
        if let Some(name) = self.names.get(number) {
            return Some(name);
        }
        self.numbers.iter().find(|(_, known)| **known == number).map(|(name, _)| name.as_str())
    }
}

fn filtered(bits: &Bits, keeps: impl Fn(usize) -> bool) -> Bits {
    let mut kept = bits.clone();
    bits.iter().filter(|number| !keeps(*number)).for_each(|number| kept.remove(number));
    kept
}

/// Domains that may have one pod more.
fn spread(group: &Group, usable: &Bits, counts_itself: bool, max_skew: u32, min_domains: Option<u32>) -> Bits {
    let most =
        i64::from(least(group, usable, min_domains).unwrap_or(0)) + i64::from(max_skew) - i64::from(counts_itself);
    filtered(&group.known, |domain| i64::from(group.count(domain)) <= most)
}

/// What the emptiest usable domain has; nothing where there are fewer than wanted.
pub(super) fn least(group: &Group, usable: &Bits, min_domains: Option<u32>) -> Option<u32> {
    let mut candidates = group.known.clone();
    candidates.keep(usable);
    if min_domains.is_some_and(|wanted| candidates.len() < wanted as usize) {
        return Some(0);
    }
    candidates.iter().map(|domain| group.count(domain)).min()
}

/// Usable domains with pods of the group. A pod that would be the first of its own kind may start anywhere, and then has to
/// settle for one domain.
fn near(group: &Group, usable: &Bits, counts_itself: bool) -> (Bits, bool) {
    let mut candidates = group.known.clone();
    candidates.keep(usable);
    let filled = filtered(&candidates, |domain| group.count(domain) > 0);
    match filled.is_empty() {
        false => (filled, false),
        true if counts_itself => (candidates, true),
        true => (Bits::default(), false),
    }
}

fn is_empty_and_usable(group: &Group, usable: &Bits, domain: usize) -> bool {
    group.known.contains(domain) && group.count(domain) == 0 && usable.contains(domain)
}

fn market(key: &str, domain: &str) -> Option<CapacityType> {
    if key == labels::CAPACITY_TYPE_LABEL { CapacityType::from_label(domain) } else { None }
}

impl Rule {
    /// The kind of constraint that is met by the group's counts as they are.
    pub(in super::super) fn kind(self) -> Kind {
        match self {
            Self::Spread => Kind::Spread { max_skew: 0, min_domains: None },
            Self::Affinity => Kind::Near,
            Self::AntiAffinity => Kind::Apart,
        }
    }
}
