//! EventBridge: rules that match events, and the queues they feed. No rule, no message.

use crate::error::ApiError;
use serde_json::Value;
use std::collections::BTreeMap;

/// A rule on the default bus.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) arn: String,
    pub(crate) pattern: Value,
    pub(crate) enabled: bool,
    pub(crate) description: String,
    /// Target ids and their ARNs.
    pub(crate) targets: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Bus {
    pub(crate) rules: BTreeMap<String, Rule>,
}

impl Bus {
    /// The ARNs an event goes to, one for each target of each rule that matches it, each after the rule's own.
    pub(crate) fn targets(&self, event: &Value) -> Vec<(String, String)> {
        let matching = self.rules.values().filter(|rule| rule.enabled && matches(&rule.pattern, event));
        matching.flat_map(|rule| rule.targets.values().map(|target| (rule.arn.clone(), target.clone()))).collect()
    }
}

/// Whether an event pattern matches: every member must, any of its alternatives will do.
// fidelity: documented(EventBridge User Guide, Event patterns; content filters not listed in `condition` are refused)
pub(crate) fn matches(pattern: &Value, event: &Value) -> bool {
    let Value::Object(members) = pattern else { return false };
    members.iter().all(|(name, wanted)| {
        let found = event.get(name);
        match wanted {
            Value::Object(_) => found.is_some_and(|found| matches(wanted, found)),
            Value::Array(alternatives) => match found {
                Some(Value::Array(values)) => {
                    values.iter().any(|value| alternatives.iter().any(|wanted| condition(wanted, Some(value))))
                }
                found => alternatives.iter().any(|wanted| condition(wanted, found)),
            },
            _ => false,
        }
    })
}

fn condition(wanted: &Value, found: Option<&Value>) -> bool {
    let Value::Object(operator) = wanted else { return found == Some(wanted) };
    let text = found.and_then(Value::as_str);
    operator.iter().all(|(name, argument)| match (name.as_str(), argument) {
        ("exists", argument) => found.is_some() == (argument == &Value::Bool(true)),
        ("prefix", Value::String(prefix)) => text.is_some_and(|text| text.starts_with(prefix.as_str())),
        ("suffix", Value::String(suffix)) => text.is_some_and(|text| text.ends_with(suffix.as_str())),
        ("equals-ignore-case", Value::String(other)) => text.is_some_and(|text| text.eq_ignore_ascii_case(other)),
        ("anything-but", Value::Array(others)) => found.is_some_and(|found| !others.contains(found)),
        ("anything-but", other) => found.is_some_and(|found| found != other),
        _ => false,
    })
}

/// Refuses patterns that EventBridge would refuse, and those this crate cannot match.
pub(crate) fn check_pattern(text: &str) -> Result<Value, ApiError> {
    let refuse = |reason: &str| {
        ApiError::client("InvalidEventPatternException", format!("Event pattern is not valid. Reason: {reason}"))
    };
    let pattern: Value = serde_json::from_str(text).map_err(|_| refuse("it is not JSON"))?;
    if !pattern.is_object() {
        return Err(refuse("Filter is not an object"));
    }
    check_members(&pattern, &refuse)?;
    Ok(pattern)
}

fn check_members(pattern: &Value, refuse: &dyn Fn(&str) -> ApiError) -> Result<(), ApiError> {
    for (name, wanted) in pattern.as_object().into_iter().flatten() {
        match wanted {
            Value::Object(_) => check_members(wanted, refuse)?,
            Value::Array(alternatives) => {
                for operator in alternatives.iter().filter_map(Value::as_object).flat_map(|map| map.keys()) {
                    if !["exists", "prefix", "suffix", "equals-ignore-case", "anything-but"]
                        .contains(&operator.as_str())
                    {
                        return Err(refuse(&format!("Unrecognized match type {operator}")));
                    }
                }
            }
            _ => return Err(refuse(&format!("\"{name}\" must be an object or an array"))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patterns_match_as_documented() {
        let event = json!({"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification",
                           "detail": {"state": "running", "instance-id": "i-1"}});
        for (pattern, expected) in [
            (json!({"source": ["aws.ec2"]}), true),
            (json!({"source": ["aws.health"]}), false),
            (json!({"source": ["aws.health", "aws.ec2"], "detail": {"state": ["running"]}}), true),
            (json!({"detail": {"state": ["stopped", "stopping"]}}), false),
            (json!({"detail": {"instance-id": [{"prefix": "i-"}]}}), true),
            (json!({"detail": {"state": [{"anything-but": ["terminated"]}]}}), true),
            (json!({"detail": {"reason": [{"exists": false}]}}), true),
            (json!({"detail": {"reason": ["x"]}}), false),
        ] {
            assert_eq!(matches(&pattern, &event), expected, "{pattern}");
        }
    }

    #[test]
    fn broken_patterns_are_refused() {
        for text in ["", "[]", "{\"source\": \"aws.ec2\"}", "{\"source\": [{\"wild\": 1}]}"] {
            assert_eq!(check_pattern(text).unwrap_err().code, "InvalidEventPatternException", "{text}");
        }
    }
}
