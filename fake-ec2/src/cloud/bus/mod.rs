//! EventBridge: rules that match events, and the queues they feed. No rule, no message.

pub(crate) mod pattern;

pub(crate) use pattern::{check_pattern, matches};

use super::tags::Tags;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A rule on the default bus.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) arn: String,
    pub(crate) pattern: Value,
    pub(crate) enabled: bool,
    pub(crate) description: String,
    /// By id.
    pub(crate) targets: BTreeMap<String, Target>,
    pub(crate) tags: Tags,
}

/// A queue that a rule feeds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) arn: String,
    pub(crate) input: Input,
    /// The group of its messages, if the queue is a FIFO queue.
    pub(crate) message_group_id: Option<String>,
}

/// What of an event a target is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Input {
    #[default]
    Event,
    /// This text, whatever the event.
    Constant(String),
    /// The part at this path, such as `$.detail`.
    Path(String),
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Bus {
    pub(crate) rules: BTreeMap<String, Rule>,
    pub(crate) tags: Tags,
}

impl Bus {
    /// What an event goes to: one for each target of each rule that matches it, each after the rule's ARN.
    pub(crate) fn targets(&self, event: &Value) -> Vec<(String, Target)> {
        let matching = self.rules.values().filter(|rule| rule.enabled && matches(&rule.pattern, event));
        matching.flat_map(|rule| rule.targets.values().map(|target| (rule.arn.clone(), target.clone()))).collect()
    }
}

impl Target {
    pub(crate) fn queue(arn: String) -> Self {
        Self { arn, ..Self::default() }
    }

    /// What it is sent of this event; nothing if the event has no such part.
    // fidelity: documented(EventBridge API Reference, Target: Input, InputPath); assumed: an event without the part is not sent
    pub(crate) fn body(&self, event: &Value) -> Option<String> {
        match &self.input {
            Input::Event => Some(event.to_string()),
            Input::Constant(text) => Some(text.clone()),
            Input::Path(path) => {
                let names = path.trim_start_matches('$').split('.').filter(|name| !name.is_empty());
                let mut part = event;
                for name in names {
                    part = part.get(name)?;
                }
                Some(part.to_string())
            }
        }
    }
}
