//! Two transcripts side by side.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::masks::covers;
use crate::sequence::Sequence;

/// Two answers that are not the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The step, counted from 1, and its title.
    pub step: String,
    /// Where in the record of the step, as JSON pointer.
    pub pointer: String,
    /// What the first server says; absent is `None`.
    pub left: Option<Value>,
    /// What the other says.
    pub right: Option<Value>,
    /// Why this is accepted; `None` is a fault.
    pub reason: Option<String>,
}

/// Every difference between two masked transcripts, and the accepted ones that were not met.
pub fn differences(sequence: &Sequence, left: &[Value], right: &[Value]) -> (Vec<Difference>, Vec<String>) {
    let mut found = Vec::new();
    let mut unmet = Vec::new();
    for (index, step) in sequence.steps.iter().enumerate() {
        let (Some(left), Some(right)) = (left.get(index), right.get(index)) else { break };
        let mut places = BTreeMap::new();
        walk("", Some(left), Some(right), &mut places);
        let mut met = BTreeSet::new();
        let title = format!("step {}, {}", index + 1, step.title());
        for (pointer, (left, right)) in places {
            if step.mask().iter().any(|pattern| covers(pattern, &pointer)) {
                continue;
            }
            let accepted = step.differs().find(|(pattern, _)| covers(pattern, &pointer));
            if let Some((pattern, _)) = accepted {
                met.insert(pattern.clone());
            }
            let reason = accepted.map(|(_, reason)| reason.clone());
            found.push(Difference { step: title.clone(), pointer, left, right, reason });
        }
        for (pattern, _) in step.differs().filter(|(pattern, _)| !met.contains(*pattern)) {
            unmet.push(format!("{title}: no difference at {pattern} any more; take it out"));
        }
    }
    (found, unmet)
}

type Places = BTreeMap<String, (Option<Value>, Option<Value>)>;

fn walk(pointer: &str, left: Option<&Value>, right: Option<&Value>, places: &mut Places) {
    match (left, right) {
        (Some(left), Some(right)) if left == right => {}
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let segment = key.replace('~', "~0").replace('/', "~1");
                walk(&format!("{pointer}/{segment}"), left.get(key), right.get(key), places);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for index in 0..left.len().max(right.len()) {
                walk(&format!("{pointer}/{index}"), left.get(index), right.get(index), places);
            }
        }
        _ => {
            places.insert(pointer.to_owned(), (left.cloned(), right.cloned()));
        }
    }
}
