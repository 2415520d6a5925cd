//! One label's allowed values as a set: membership, intersection, emptiness (core spec §2.1–2.4, 2.7–2.9).
//!
//! A requirement is either a finite set of values or everything but a finite set, optionally between two numbers. All
//! eight operators are such sets, and so is every intersection of them: that is what makes the algebra closed.

use controller_api::{NodeSelectorRequirementWithMinValues, labels};
use std::collections::BTreeSet;
use std::fmt;

pub use controller_api::Operator;

/// At most this many values appear in a message; the rest are counted.
const SHOWN_VALUES: usize = 5;

/// The values that one label may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    key: String,
    /// Whether `values` are those excluded rather than those allowed.
    complement: bool,
    values: BTreeSet<String>,
    at_least: Option<i64>,
    at_most: Option<i64>,
    /// How many different values the instance types of a node must offer.
    pub min_values: Option<u32>,
}

impl Requirement {
    /// The requirement that `operator` and `values` state on `key`. The key is normalised. A numeric operator reads its
    /// first value; text that is no number counts as 0, as upstream has it (validation refuses it earlier).
    pub fn new<V: Into<String>>(key: &str, operator: Operator, values: impl IntoIterator<Item = V>) -> Self {
        let values: BTreeSet<String> = values.into_iter().map(Into::into).collect();
        let number = || values.first().and_then(|value| value.parse::<i64>().ok()).unwrap_or(0);
        let everything = Self::exists(key);
        match operator {
            Operator::In => Self { complement: false, values, ..everything },
            Operator::NotIn => Self { values, ..everything },
            Operator::Exists => everything,
            Operator::DoesNotExist => Self::does_not_exist(key),
            Operator::Gte => Self { at_least: Some(number()), ..everything },
            Operator::Lte => Self { at_most: Some(number()), ..everything },
            Operator::Gt => match number().checked_add(1) {
                Some(bound) => Self { at_least: Some(bound), ..everything },
                None => Self::does_not_exist(key),
            },
            Operator::Lt => match number().checked_sub(1) {
                Some(bound) => Self { at_most: Some(bound), ..everything },
                None => Self::does_not_exist(key),
            },
        }
    }

    /// `key In [value]`.
    pub fn equals(key: &str, value: impl Into<String>) -> Self {
        Self::new(key, Operator::In, [value])
    }

    /// `key Exists`: any value, which is also what an absent requirement means.
    pub fn exists(key: &str) -> Self {
        Self {
            key: labels::normalize(key).to_owned(),
            complement: true,
            values: BTreeSet::new(),
            at_least: None,
            at_most: None,
            min_values: None,
        }
    }

    /// `key DoesNotExist`: no value.
    pub fn does_not_exist(key: &str) -> Self {
        Self { complement: false, ..Self::exists(key) }
    }

    /// Reads an API requirement.
    pub fn from_api(requirement: &NodeSelectorRequirementWithMinValues) -> Self {
        let parsed = Self::new(&requirement.key, requirement.operator, requirement.values.iter().cloned());
        // A bound that no number satisfies drops minValues too (core §2.1).
        let unsatisfiable = requirement.operator != Operator::DoesNotExist
            && requirement.operator != Operator::In
            && parsed.operator() == Operator::DoesNotExist;
        let min_values = requirement.min_values.and_then(|count| u32::try_from(count).ok());
        parsed.with_min_values(if unsatisfiable { None } else { min_values })
    }

    /// The same with `minValues` set.
    #[must_use]
    pub fn with_min_values(mut self, min_values: Option<u32>) -> Self {
        self.min_values = min_values;
        self
    }

    /// The label's key, normalised.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The values listed: those allowed for `In`, those excluded for `NotIn`.
    pub fn values(&self) -> &BTreeSet<String> {
        &self.values
    }

    /// The operator that describes the set. Bounds do not show in it: a bounded set is `Exists` or `NotIn`.
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, true) => Operator::Exists,
            (true, false) => Operator::NotIn,
            (false, true) => Operator::DoesNotExist,
            (false, false) => Operator::In,
        }
    }

    /// Whether [`values`](Self::values) are those excluded.
    pub fn is_complement(&self) -> bool {
        self.complement
    }

    /// The smallest and the largest number allowed, where there is such a bound.
    pub fn bounds(&self) -> (Option<i64>, Option<i64>) {
        (self.at_least, self.at_most)
    }

    /// Whether a label with this value meets the requirement.
    pub fn has(&self, value: &str) -> bool {
        self.values.contains(value) != self.complement && self.within_bounds(value)
    }

    /// The only value allowed, if there is just one.
    pub fn single_value(&self) -> Option<&str> {
        if self.complement || self.values.len() != 1 { None } else { self.values.first().map(String::as_str) }
    }

    /// Whether a missing label meets the requirement as well as an excluded value does.
    pub fn is_negative(&self) -> bool {
        matches!(self.operator(), Operator::NotIn | Operator::DoesNotExist)
    }

    fn within_bounds(&self, value: &str) -> bool {
        if self.at_least.is_none() && self.at_most.is_none() {
            return true;
        }
        value.parse::<i64>().is_ok_and(|number| {
            self.at_least.is_none_or(|bound| number >= bound) && self.at_most.is_none_or(|bound| number <= bound)
        })
    }

    /// What both allow. `minValues` is the larger of the two; the key is `self`'s.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut result = Self {
            key: self.key.clone(),
            complement: self.complement && other.complement,
            values: BTreeSet::new(),
            at_least: self.at_least.max(other.at_least),
            at_most: lower(self.at_most, other.at_most),
            min_values: self.min_values.max(other.min_values),
        };
        if conflict(result.at_least, result.at_most) {
            return Self { min_values: result.min_values, ..Self::does_not_exist(&self.key) };
        }
        let values: Vec<&String> = match (self.complement, other.complement) {
            (true, true) => self.values.union(&other.values).collect(),
            (true, false) => other.values.difference(&self.values).collect(),
            (false, true) => self.values.difference(&other.values).collect(),
            (false, false) => self.values.intersection(&other.values).collect(),
        };
        result.values = values.into_iter().filter(|value| result.within_bounds(value)).cloned().collect();
        if !result.complement {
            (result.at_least, result.at_most) = (None, None);
        }
        result
    }

    /// Whether both allow some value; the same as a non-empty [`intersection`](Self::intersection), without building it.
    pub fn intersects(&self, other: &Self) -> bool {
        if conflict(self.at_least.max(other.at_least), lower(self.at_most, other.at_most)) {
            return false;
        }
        match (self.complement, other.complement) {
            (true, true) => true,
            // The shorter list is looked up in the longer.
            (false, false) if self.values.len() > other.values.len() => other.intersects(self),
            (false, _) => self.values.iter().any(|value| self.within_bounds(value) && other.has(value)),
            (true, false) => other.values.iter().any(|value| other.within_bounds(value) && self.has(value)),
        }
    }

    /// One concrete value: the smallest listed, or the smallest number from the lower bound (or 0) up that is not
    /// excluded. `None` when there is no value to give. Upstream draws at random here; we prefer the same answer twice.
    pub fn any(&self) -> Option<String> {
        if !self.complement {
            return self.values.first().cloned();
        }
        let upwards = self.at_least.unwrap_or(0)..=self.at_most.unwrap_or(i64::MAX);
        // Below zero only where nothing else is left and nothing forbids it.
        let downwards = (i64::MIN..=self.at_most.unwrap_or(-1).min(-1)).rev().take_while(|_| self.at_least.is_none());
        // Of each range, one more candidate than there are exclusions is enough.
        let enough = self.values.len() + 1;
        let candidates = upwards.take(enough).chain(downwards.take(enough));
        candidates.map(|number| number.to_string()).find(|text| !self.values.contains(text))
    }

    /// As API requirements, one or two. Like upstream, exclusions are lost when there are bounds (core §2.8).
    pub fn to_api(&self) -> Vec<NodeSelectorRequirementWithMinValues> {
        let entry = |operator, values: Vec<String>| NodeSelectorRequirementWithMinValues {
            key: self.key.clone(),
            operator,
            values,
            min_values: self.min_values.map(i64::from),
        };
        if self.at_least.is_some() || self.at_most.is_some() {
            let bound = |operator, number: Option<i64>| number.map(|number| entry(operator, vec![number.to_string()]));
            return [bound(Operator::Gte, self.at_least), bound(Operator::Lte, self.at_most)]
                .into_iter()
                .flatten()
                .collect();
        }
        vec![entry(self.operator(), self.values.iter().cloned().collect())]
    }
}

fn lower(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn conflict(at_least: Option<i64>, at_most: Option<i64>) -> bool {
    matches!((at_least, at_most), (Some(low), Some(high)) if low > high)
}

/// `key Op [values] >=low <=high minValues n`, the form of Karpenter's messages.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.operator())?;
        if !self.values.is_empty() {
            let shown: Vec<&str> = self.values.iter().take(SHOWN_VALUES).map(String::as_str).collect();
            write!(f, " [{}", shown.join(" "))?;
            if self.values.len() > SHOWN_VALUES {
                write!(f, " and {} others", self.values.len() - SHOWN_VALUES)?;
            }
            f.write_str("]")?;
        }
        if let Some(bound) = self.at_least {
            write!(f, " >={bound}")?;
        }
        if let Some(bound) = self.at_most {
            write!(f, " <={bound}")?;
        }
        if let Some(count) = self.min_values {
            write!(f, " minValues {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "example.com/key";

    fn requirement(operator: Operator, values: &[&str]) -> Requirement {
        Requirement::new(KEY, operator, values.iter().copied())
    }

    #[test]
    fn every_operator_is_a_set() {
        for (operator, values, members, strangers) in [
            (Operator::In, vec!["a", "b"], vec!["a", "b"], vec!["c", ""]),
            (Operator::NotIn, vec!["a"], vec!["b", "1"], vec!["a"]),
            (Operator::Exists, vec![], vec!["a", "1", ""], vec![]),
            (Operator::DoesNotExist, vec![], vec![], vec!["a", ""]),
            (Operator::Gt, vec!["2"], vec!["3", "100"], vec!["2", "1", "a", ""]),
            (Operator::Lt, vec!["2"], vec!["1", "-5"], vec!["2", "3", "a"]),
            (Operator::Gte, vec!["2"], vec!["2", "3"], vec!["1", "a"]),
            (Operator::Lte, vec!["2"], vec!["2", "1"], vec!["3", "a"]),
        ] {
            let set = requirement(operator, &values);
            for member in members {
                assert!(set.has(member), "{set} has {member}");
            }
            for stranger in strangers {
                assert!(!set.has(stranger), "{set} has not {stranger}");
            }
        }
    }

    #[test]
    fn the_derived_operator_ignores_bounds() {
        assert_eq!(requirement(Operator::Gt, &["2"]).operator(), Operator::Exists);
        let bounded = requirement(Operator::NotIn, &["5"]).intersection(&requirement(Operator::Gte, &["3"]));
        assert_eq!(bounded.operator(), Operator::NotIn);
        assert_eq!(requirement(Operator::In, &[]).operator(), Operator::DoesNotExist);
    }

    #[test]
    fn conflicting_bounds_leave_nothing_but_keep_min_values() {
        let low = requirement(Operator::Lt, &["3"]).with_min_values(Some(2));
        let none = low.intersection(&requirement(Operator::Gt, &["3"]));
        assert_eq!(none, Requirement::does_not_exist(KEY).with_min_values(Some(2)));
    }

    #[test]
    fn intersecting_removes_exclusions_outside_the_bounds_and_drops_bounds_of_finite_sets() {
        let result = requirement(Operator::NotIn, &["1", "5", "x"]).intersection(&requirement(Operator::Gte, &["3"]));
        assert_eq!(result.to_string(), "example.com/key NotIn [5] >=3");
        let finite = requirement(Operator::In, &["1", "5", "x"]).intersection(&requirement(Operator::Gte, &["3"]));
        assert_eq!(finite, requirement(Operator::In, &["5"]));
    }

    #[test]
    fn greater_than_the_largest_number_is_nothing_without_min_values() {
        let api = NodeSelectorRequirementWithMinValues {
            key: KEY.into(),
            operator: Operator::Gt,
            values: vec![i64::MAX.to_string()],
            min_values: Some(3),
        };
        assert_eq!(Requirement::from_api(&api), Requirement::does_not_exist(KEY));
        assert_eq!(requirement(Operator::Gt, &["nonsense"]), requirement(Operator::Gte, &["1"]));
    }

    #[test]
    fn aliases_of_keys_are_normalised() {
        assert_eq!(Requirement::equals("beta.kubernetes.io/arch", "amd64").key(), "kubernetes.io/arch");
        assert_eq!(Requirement::exists("failure-domain.beta.kubernetes.io/zone").key(), "topology.kubernetes.io/zone");
    }

    #[test]
    fn serialising_writes_bounds_as_two_entries_and_loses_exclusions_beside_them() {
        let both = requirement(Operator::Gte, &["3"])
            .intersection(&requirement(Operator::Lt, &["9"]))
            .intersection(&requirement(Operator::NotIn, &["5"]))
            .with_min_values(Some(2));
        let api = both.to_api();
        let seen: Vec<_> = api.iter().map(|r| (r.operator, r.values.clone(), r.min_values)).collect();
        assert_eq!(seen, [(Operator::Gte, vec!["3".into()], Some(2)), (Operator::Lte, vec!["8".into()], Some(2))]);
        assert_eq!(requirement(Operator::NotIn, &["b", "a"]).to_api()[0].values, ["a", "b"]);
        assert_eq!(requirement(Operator::Exists, &[]).to_api()[0].operator, Operator::Exists);
        assert_eq!(requirement(Operator::In, &[]).to_api()[0].operator, Operator::DoesNotExist);
    }

    #[test]
    fn the_text_shows_five_values_and_counts_the_rest() {
        assert_eq!(requirement(Operator::In, &["b", "a"]).to_string(), "example.com/key In [a b]");
        assert_eq!(
            requirement(Operator::In, &["1", "2", "3", "4", "5", "6", "7"]).to_string(),
            "example.com/key In [1 2 3 4 5 and 2 others]"
        );
        assert_eq!(requirement(Operator::Exists, &[]).to_string(), "example.com/key Exists");
        assert_eq!(
            requirement(Operator::Gt, &["2"]).with_min_values(Some(4)).to_string(),
            "example.com/key Exists >=3 minValues 4"
        );
    }

    #[test]
    fn any_gives_the_same_allowed_value_every_time() {
        assert_eq!(requirement(Operator::In, &["b", "a"]).any().as_deref(), Some("a"));
        assert_eq!(requirement(Operator::NotIn, &["0", "1"]).any().as_deref(), Some("2"));
        assert_eq!(requirement(Operator::Gt, &["7"]).any().as_deref(), Some("8"));
        assert_eq!(requirement(Operator::DoesNotExist, &[]).any(), None);
    }
}
