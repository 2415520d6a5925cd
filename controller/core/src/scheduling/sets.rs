//! Sets of requirements by number. A cluster has thousands of pods and a handful of different things they ask for, so each
//! different set is kept once, and what two of them come to together is worked out once.

use crate::requirement::Requirement;
use crate::requirements::{AllowUndefined, Requirements};
use controller_api::labels;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The number of a set of requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SetId(u32);

/// Every set of requirements of one pass. Host names are kept apart ([`Split`]): each node has its own, and with it every
/// node's set would be unlike every other's.
#[derive(Default)]
pub(super) struct Sets {
    sets: Vec<Rc<Requirements>>,
    known: BTreeMap<Rc<Requirements>, SetId>,
    /// The labels of each set that may only have few values.
    narrow: Vec<Narrow>,
    /// Keys and values of those, by number.
    words: BTreeMap<String, u32>,
    /// What a node of the first set may be once the second is asked of it; `None` where it cannot be. Those that differ in a
    /// narrow label are not here: with ten thousand nodes of a label's ten thousand values they would be all pairs.
    together: BTreeMap<(SetId, SetId), Option<SetId>>,
}

/// Labels by number, in order, with their values by number.
type Narrow = Vec<(u32, Vec<u32>)>;

/// So many values are few: enough for zones and markets, and few enough to compare each with each.
const FEW_VALUES: usize = 8;

/// Requirements with what they say of the host name apart.
#[derive(Clone)]
pub(super) struct Split {
    pub(super) set: SetId,
    pub(super) hostname: Option<Requirement>,
}

impl Sets {
    /// The number of a set.
    pub(super) fn number(&mut self, requirements: Requirements) -> SetId {
        if let Some(known) = self.known.get(&requirements) {
            return *known;
        }
        let id = SetId(u32::try_from(self.sets.len()).expect("fewer sets than pods, and those fit in memory"));
        let shared = Rc::new(requirements);
        let narrow = self.narrow_labels(&shared);
        self.narrow.push(narrow);
        self.sets.push(Rc::clone(&shared));
        self.known.insert(shared, id);
        id
    }

    /// The number of a set, its host name apart.
    pub(super) fn split(&mut self, mut requirements: Requirements) -> Split {
        let hostname = requirements.remove(labels::HOSTNAME_LABEL);
        Split { set: self.number(requirements), hostname }
    }

    /// The set of that number.
    pub(super) fn get(&self, id: SetId) -> &Rc<Requirements> {
        &self.sets[id.0 as usize]
    }

    /// What a new node of `present` may be once `wanted` is asked of it; `None` where they clash.
    pub(super) fn together(&mut self, present: SetId, wanted: SetId) -> Option<SetId> {
        if present == wanted || self.get(wanted).is_empty() {
            return Some(present);
        }
        if self.differ_in_a_narrow_label(present, wanted) {
            return None;
        }
        if let Some(known) = self.together.get(&(present, wanted)) {
            return *known;
        }
        let (a, b) = (Rc::clone(self.get(present)), Rc::clone(self.get(wanted)));
        let both = a.is_compatible(&b, AllowUndefined::WellKnown).then(|| self.number(a.narrowed_by(&b)));
        self.together.insert((present, wanted), both);
        both
    }

    fn narrow_labels(&mut self, requirements: &Requirements) -> Narrow {
        let is_narrow = |r: &&Requirement| !r.is_complement() && (1..=FEW_VALUES).contains(&r.values().len());
        let narrow = requirements.iter().filter(is_narrow);
        let mut narrow: Narrow =
            narrow.map(|r| (self.word(r.key()), r.values().iter().map(|value| self.word(value)).collect())).collect();
        narrow.sort_unstable();
        narrow
    }

    fn word(&mut self, text: &str) -> u32 {
        if let Some(known) = self.words.get(text) {
            return *known;
        }
        let number = u32::try_from(self.words.len()).expect("fewer words than fit in memory");
        self.words.insert(text.to_owned(), number);
        number
    }

    /// Whether both name values of a label and none in common: seen without a look at a single text.
    fn differ_in_a_narrow_label(&self, a: SetId, b: SetId) -> bool {
        let [a, b] = [a, b].map(|id| &self.narrow[id.0 as usize]);
        let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
        while let (Some((key, values)), Some((other_key, other_values))) = (a.peek(), b.peek()) {
            if key == other_key && !values.iter().any(|value| other_values.contains(value)) {
                return true;
            }
            let (next_in_a, next_in_b) = (key <= other_key, other_key <= key);
            next_in_a.then(|| a.next());
            next_in_b.then(|| b.next());
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::{FEW_VALUES, Sets};
    use crate::requirement::{Operator, Requirement};
    use crate::requirements::Requirements;

    #[test]
    fn sets_go_together_exactly_where_their_requirements_do() {
        let many = || (0..=FEW_VALUES).map(|n| format!("v{n}"));
        let all = [
            Requirement::new("team", Operator::In, ["red"]),
            Requirement::new("team", Operator::In, ["blue", "v1"]),
            Requirement::new("team", Operator::In, ["red", "v1"]),
            Requirement::new("team", Operator::In, many()),
            Requirement::new("team", Operator::NotIn, ["red"]),
            Requirement::new("team", Operator::Exists, Vec::<String>::new()),
            Requirement::does_not_exist("team"),
            Requirement::new("tier", Operator::In, ["gold"]),
        ];
        let mut sets = Sets::default();
        let mut clashes = 0;
        for a in &all {
            for b in &all {
                let [x, y] = [a, b].map(|r| Requirements::new().with(r.clone()));
                let expected = x.is_compatible(&y, crate::requirements::AllowUndefined::WellKnown).then(|| {
                    let mut both = x.clone();
                    both.add_all(&y);
                    both
                });
                clashes += usize::from(expected.is_none());
                let (x, y) = (sets.number(x), sets.number(y));
                let found = sets.together(x, y).map(|id| (**sets.get(id)).clone());
                assert_eq!(found, expected, "{a} and {b}");
            }
        }
        assert!(clashes > 10, "{clashes}");
    }
}
