//! A conjunction of requirements, one per label; compatibility, with the clash named (core spec §2.5, 2.6, 2.9, 2.10).

use crate::requirement::{Operator, Requirement};
use controller_api::{NodeSelectorRequirementWithMinValues, labels};
use std::collections::BTreeMap;
use std::fmt;

/// Requirements by label key, all of which hold together. A key that is absent may have any value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirements(BTreeMap<String, Requirement>);

/// Which labels may be required although the other side says nothing about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowUndefined {
    /// Labels a provider gives to every node: right for nodes that are still to be built.
    WellKnown,
    /// None: right for nodes that exist, whose labels are all known.
    None,
}

/// One key on which two sets of requirements cannot both hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clash {
    /// A value is required for a label that the node will not have.
    Undefined {
        /// The label.
        key: String,
        /// A known label that it may be a misspelling of.
        similar: Option<String>,
    },
    /// Both sides name the label and no value satisfies both.
    Disjoint {
        /// What the incoming side (pod, offering) wants.
        wanted: Requirement,
        /// What the node side allows.
        allowed: Requirement,
    },
}

/// Every key on which two sets of requirements clash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incompatible(pub Vec<Clash>);

impl Requirements {
    /// No requirement: anything goes.
    pub fn new() -> Self {
        Self::default()
    }

    /// `In [value]` for each label.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        labels.into_iter().map(|(key, value)| Requirement::equals(key, value.as_str())).collect()
    }

    /// Reads API requirements; several on one key are intersected.
    pub fn from_api(requirements: &[NodeSelectorRequirementWithMinValues]) -> Self {
        requirements.iter().map(Requirement::from_api).collect()
    }

    /// As API requirements, in order of key.
    pub fn to_api(&self) -> Vec<NodeSelectorRequirementWithMinValues> {
        self.0.values().flat_map(Requirement::to_api).collect()
    }

    /// Narrows the requirement of that key.
    pub fn add(&mut self, requirement: Requirement) {
        let narrowed = match self.0.get(requirement.key()) {
            Some(present) => requirement.intersection(present),
            None => requirement,
        };
        self.0.insert(narrowed.key().to_owned(), narrowed);
    }

    /// Narrows by all of `other`.
    pub fn add_all(&mut self, other: &Self) {
        for requirement in other.iter() {
            self.add(requirement.clone());
        }
    }

    /// The same narrowed by all of `other`, without a copy of the values that this takes away: a pool may list thousands.
    #[must_use]
    pub fn narrowed_by(&self, other: &Self) -> Self {
        let untouched = self.0.iter().filter(|(key, _)| !other.0.contains_key(*key));
        let mut both: BTreeMap<String, Requirement> =
            untouched.map(|(key, requirement)| (key.clone(), requirement.clone())).collect();
        for (key, requirement) in &other.0 {
            let narrowed = self.0.get(key).map_or_else(|| requirement.clone(), |own| requirement.intersection(own));
            both.insert(key.clone(), narrowed);
        }
        Self(both)
    }

    /// The same narrowed by `requirement`.
    #[must_use]
    pub fn with(mut self, requirement: Requirement) -> Self {
        self.add(requirement);
        self
    }

    /// Replaces the requirement of that key.
    pub fn replace(&mut self, requirement: Requirement) {
        self.0.insert(requirement.key().to_owned(), requirement);
    }

    /// Forgets what is required of `key`.
    pub fn remove(&mut self, key: &str) -> Option<Requirement> {
        self.0.remove(labels::normalize(key))
    }

    /// The requirement on `key`, if there is one.
    pub fn get(&self, key: &str) -> Option<&Requirement> {
        self.0.get(labels::normalize(key))
    }

    /// The requirement on `key`; `Exists` if nothing is said about it.
    pub fn get_or_any(&self, key: &str) -> Requirement {
        self.get(key).cloned().unwrap_or_else(|| Requirement::exists(key))
    }

    /// Whether a label `key=value` is allowed.
    pub fn allows(&self, key: &str, value: &str) -> bool {
        self.get(key).is_none_or(|requirement| requirement.has(value))
    }

    /// Whether a node must not carry the label `key`.
    pub fn forbids(&self, key: &str) -> bool {
        self.get(key).is_some_and(|requirement| requirement.operator() == Operator::DoesNotExist)
    }

    /// Whether something is said about `key`.
    pub fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The requirements in order of key.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.0.values()
    }

    /// The keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// How many keys are constrained.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some requirement asks for a number of different values.
    pub fn has_min_values(&self) -> bool {
        self.iter().any(|requirement| requirement.min_values.is_some())
    }

    /// The labels that follow from requirements with a single value.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.iter().filter_map(|r| r.single_value().map(|value| (r.key().to_owned(), value.to_owned()))).collect()
    }

    /// Whether both can hold, key by key, for the keys named on both sides. Two negative requirements always can: a
    /// node without the label satisfies both.
    pub fn intersects(&self, other: &Self) -> bool {
        let (few, many) = if self.len() <= other.len() { (self, other) } else { (other, self) };
        few.0
            .iter()
            .all(|(key, requirement)| many.0.get(key).is_none_or(|counterpart| can_both_hold(requirement, counterpart)))
    }

    /// Like [`intersects`](Self::intersects), naming what clashes. `other` is the incoming side.
    pub fn check_intersects(&self, other: &Self) -> Result<(), Incompatible> {
        let clashes: Vec<Clash> = other
            .iter()
            .filter_map(|wanted| self.0.get(wanted.key()).map(|allowed| (wanted, allowed)))
            .filter(|(wanted, allowed)| !can_both_hold(allowed, wanted))
            .map(|(wanted, allowed)| Clash::Disjoint { wanted: wanted.clone(), allowed: allowed.clone() })
            .collect();
        if clashes.is_empty() { Ok(()) } else { Err(Incompatible(clashes)) }
    }

    /// Whether a node of these requirements can meet the incoming ones: besides intersecting, a label that `incoming`
    /// requires to be there must be defined here, unless it is one of those allowed to be undefined.
    pub fn is_compatible(&self, incoming: &Self, allow: AllowUndefined) -> bool {
        incoming.iter().all(|wanted| match self.0.get(wanted.key()) {
            Some(allowed) => can_both_hold(allowed, wanted),
            None => may_stay_undefined(wanted, allow),
        })
    }

    /// Like [`is_compatible`](Self::is_compatible), naming what clashes.
    pub fn compatible(&self, incoming: &Self, allow: AllowUndefined) -> Result<(), Incompatible> {
        match incoming.iter().find(|wanted| !self.0.contains_key(wanted.key()) && !may_stay_undefined(wanted, allow)) {
            Some(undefined) => {
                let similar = self.similar_label(undefined.key(), allow);
                Err(Incompatible(vec![Clash::Undefined { key: undefined.key().to_owned(), similar }]))
            }
            None => self.check_intersects(incoming),
        }
    }

    /// A label that `key` may be a misspelling of: one that contains it or ends in its name.
    fn similar_label(&self, key: &str, allow: AllowUndefined) -> Option<String> {
        let name = key.rsplit('/').next().unwrap_or(key);
        let resembles = |label: &&str| label.contains(key) || label.ends_with(name);
        let well_known: &[&str] = if allow == AllowUndefined::WellKnown { labels::WELL_KNOWN_LABELS } else { &[] };
        let known = well_known.iter().copied().find(resembles);
        known.or_else(|| self.keys().find(resembles)).map(str::to_owned)
    }
}

/// Whether a node can satisfy two requirements on one key.
fn can_both_hold(a: &Requirement, b: &Requirement) -> bool {
    a.intersects(b) || (a.is_negative() && b.is_negative())
}

fn may_stay_undefined(wanted: &Requirement, allow: AllowUndefined) -> bool {
    wanted.is_negative() || (allow == AllowUndefined::WellKnown && labels::is_well_known(wanted.key()))
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(iter: I) -> Self {
        let mut requirements = Self::new();
        iter.into_iter().for_each(|requirement| requirements.add(requirement));
        requirements
    }
}

/// The requirements joined with commas, without restricted labels such as the hostname.
impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<String> =
            self.iter().filter(|r| r.key() != labels::HOSTNAME_LABEL).map(ToString::to_string).collect();
        texts.sort();
        f.write_str(&texts.join(", "))
    }
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined { key, similar: None } => write!(f, "label {key:?} does not have known values"),
            Self::Undefined { key, similar: Some(label) } => {
                write!(f, "label {key:?} does not have known values (typo of {label:?}?)")
            }
            Self::Disjoint { wanted, allowed } => write!(f, "key {}, {wanted} not in {allowed}", wanted.key()),
        }
    }
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("; "))
    }
}

impl std::error::Error for Incompatible {}
