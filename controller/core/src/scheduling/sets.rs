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
    /// What a node of the first set may be once the second is asked of it; `None` where it cannot be.
    together: BTreeMap<(SetId, SetId), Option<SetId>>,
}

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
        if let Some(known) = self.together.get(&(present, wanted)) {
            return *known;
        }
        let (a, b) = (Rc::clone(self.get(present)), Rc::clone(self.get(wanted)));
        let both = a.is_compatible(&b, AllowUndefined::WellKnown).then(|| {
            let mut both = (*a).clone();
            both.add_all(&b);
            self.number(both)
        });
        self.together.insert((present, wanted), both);
        both
    }
}
