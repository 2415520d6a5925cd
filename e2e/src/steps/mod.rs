//! The vocabulary of the features: every sentence a scenario may use, with the function that carries it out.
//!
//! Steps are few, short and typed; they are grouped by concept. A step calls handles that know how to wait and never
//! sleeps for a fixed time, unless time passing is what the sentence says.

mod capacity;
mod compatibility;
mod deployment;
mod disruption;
mod interruption;
mod node_classes;
mod nodes;
mod operations;
mod permissions;
mod pools;
mod resilience;
mod shortages;
mod spread;
mod stage;
mod time;
mod workloads;

use crate::features::{Scenario, Step as Line};
use crate::params::{self, Arguments};
use crate::world::World;
use regex::Regex;
use std::cell::OnceCell;
use std::pin::Pin;

/// What a step's function answers.
pub type StepFuture<'world> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'world>>;

/// A step's function.
pub type StepFunction = for<'world> fn(&'world mut World, Arguments) -> StepFuture<'world>;

/// Adds the sentences of one concept.
type Register = fn(&mut Vocabulary);

/// One sentence of the vocabulary.
pub struct Step {
    /// The sentence, with typed parameters in braces, such as `{duration} passes`.
    pub expression: &'static str,
    /// The concept it belongs to.
    pub group: &'static str,
    pattern: String,
    compiled: OnceCell<Regex>,
    function: StepFunction,
}

/// Every step there is.
pub struct Vocabulary {
    steps: Vec<Step>,
    group: &'static str,
}

/// Why a line of a scenario cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum UnknownStep {
    /// No step reads like this.
    #[error("{location}: no step reads {text:?}; the nearest is {nearest:?} (`trysquare steps` lists them all)")]
    Undefined {
        /// File and line.
        location: String,
        /// The sentence.
        text: String,
        /// The known sentence most like it.
        nearest: &'static str,
    },
    /// Two steps read like this, which is a fault of the vocabulary.
    #[error("{location}: {text:?} is ambiguous: both {first:?} and {second:?} match")]
    Ambiguous {
        /// File and line.
        location: String,
        /// The sentence.
        text: String,
        /// One candidate.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
}

impl Vocabulary {
    /// The whole vocabulary.
    pub fn whole() -> Self {
        let mut vocabulary = Self { steps: Vec::new(), group: "" };
        let groups: [(&'static str, Register); 16] = [
            ("stage", stage::register),
            ("pools", pools::register),
            ("workloads", workloads::register),
            ("spread", spread::register),
            ("nodes", nodes::register),
            ("capacity", capacity::register),
            ("shortages", shortages::register),
            ("disruption", disruption::register),
            ("interruption", interruption::register),
            ("node classes", node_classes::register),
            ("resilience", resilience::register),
            ("operations", operations::register),
            ("deployment", deployment::register),
            ("permissions", permissions::register),
            ("compatibility", compatibility::register),
            ("time", time::register),
        ];
        for (group, register) in groups {
            vocabulary.group = group;
            register(&mut vocabulary);
        }
        vocabulary
    }

    /// Adds a sentence. Panics where the expression names an unknown parameter type, or is there already: a fault of the
    /// vocabulary that the first start shows.
    pub(crate) fn add(&mut self, expression: &'static str, function: StepFunction) {
        let twin = self.steps.iter().find(|step| step.expression == expression);
        assert!(twin.is_none(), "step {expression:?} stands in two groups");
        let pattern = params::pattern(expression).unwrap_or_else(|error| panic!("step {expression:?}: {error}"));
        self.steps.push(Step { expression, group: self.group, pattern, compiled: OnceCell::new(), function });
    }

    /// All steps in reading order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Finds the step that a line asks for.
    pub fn find(&self, scenario: &Scenario, line: &Line) -> Result<(&Step, Arguments), UnknownStep> {
        let location = || format!("{}:{}", scenario.path.display(), line.line);
        let mut matching = self.steps.iter().filter_map(|step| Some((step, step.captures(&line.text)?)));
        let Some((step, captures)) = matching.next() else {
            let nearest = self
                .steps
                .iter()
                .max_by(|a, b| {
                    let likeness = |step: &Step| strsim::normalized_levenshtein(step.expression, &line.text);
                    likeness(a).total_cmp(&likeness(b))
                })
                .map_or("", |step| step.expression);
            return Err(UnknownStep::Undefined { location: location(), text: line.text.clone(), nearest });
        };
        if let Some((second, _)) = matching.next() {
            return Err(UnknownStep::Ambiguous {
                location: location(),
                text: line.text.clone(),
                first: step.expression,
                second: second.expression,
            });
        }
        let values = captures.iter().skip(1).map(|value| value.map_or("", |v| v.as_str()).to_owned()).collect();
        Ok((step, Arguments::new(values, line.docstring.clone(), line.table.clone())))
    }
}

impl Step {
    fn captures<'line>(&self, line: &'line str) -> Option<regex::Captures<'line>> {
        if !line.starts_with(params::beginning(self.expression)) {
            return None;
        }
        self.compiled.get_or_init(|| params::compiled(&self.pattern)).captures(line)
    }

    /// Carries the step out.
    pub fn run<'world>(&self, world: &'world mut World, arguments: Arguments) -> StepFuture<'world> {
        (self.function)(world, arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    fn scenario(text: &str) -> Scenario {
        let step = Line { keyword: "When".into(), text: text.into(), line: 7, docstring: None, table: vec![] };
        Scenario {
            feature: "F".into(),
            name: "S".into(),
            path: PathBuf::from("some.feature"),
            line: 5,
            tags: vec![],
            steps: vec![step],
        }
    }

    #[test]
    fn an_undefined_step_is_named_with_its_line_and_the_nearest_known_one() {
        let scenario = scenario("5m pass by");
        let error = Vocabulary::whole().find(&scenario, &scenario.steps[0]).err().unwrap().to_string();
        assert!(error.starts_with("some.feature:7: no step reads \"5m pass by\""), "{error}");
        assert!(error.contains("{duration} passes"), "{error}");
    }

    #[test]
    fn every_expression_is_a_pattern_and_stands_once() {
        let vocabulary = Vocabulary::whole();
        let mut expressions = BTreeSet::new();
        for step in vocabulary.steps() {
            params::compiled(&step.pattern);
            assert!(expressions.insert(step.expression), "{} stands twice", step.expression);
        }
    }

    #[test]
    fn parameters_are_read() {
        let vocabulary = Vocabulary::whole();
        let scenario = scenario("1h30m passes");
        let (step, arguments) = vocabulary.find(&scenario, &scenario.steps[0]).unwrap();
        assert_eq!(step.expression, "{duration} passes");
        assert_eq!(arguments.duration(0), std::time::Duration::from_secs(5400));
    }
}
