//! Event patterns: whether they are well-formed, and which events they match.
//!
//! // fidelity: documented(EventBridge User Guide, Comparison operators for use in event patterns)

use crate::error::ApiError;
use serde_json::{Map, Value};
use std::net::IpAddr;

/// Whether a pattern matches: every member must, any of its alternatives will do.
pub(crate) fn matches(pattern: &Value, event: &Value) -> bool {
    match (pattern, event) {
        // Of several objects any may match.
        (_, Value::Array(events)) => events.iter().any(|event| matches(pattern, event)),
        (Value::Object(members), _) => members.iter().all(|(name, wanted)| member(name, wanted, event)),
        _ => false,
    }
}

fn member(name: &str, wanted: &Value, event: &Value) -> bool {
    let found = event.get(name);
    match wanted {
        Value::Array(alternatives) if name == "$or" && alternatives.iter().all(Value::is_object) => {
            alternatives.iter().any(|pattern| matches(pattern, event))
        }
        // Without the member there is nothing below it, which `exists` can ask for.
        Value::Object(_) => matches(wanted, found.unwrap_or(&Value::Object(Map::new()))),
        Value::Array(alternatives) => alternatives.iter().any(|wanted| condition(wanted, found)),
        _ => false,
    }
}

fn condition(wanted: &Value, found: Option<&Value>) -> bool {
    // Only leaves exist.
    let leaf = found.filter(|found| !found.is_object());
    if let Some(exists) = wanted.get("exists") {
        return leaf.is_some() == (exists == &Value::Bool(true));
    }
    match leaf {
        None => false,
        Some(Value::Array(values)) => values.iter().any(|value| holds(wanted, value)),
        Some(value) => holds(wanted, value),
    }
}

/// Whether one value meets one alternative.
fn holds(wanted: &Value, value: &Value) -> bool {
    let Some((operator, argument)) = wanted.as_object().and_then(|map| map.iter().next()) else {
        return wanted == value;
    };
    match operator.as_str() {
        "anything-but" => !any(argument, |argument| match argument {
            Value::Object(_) => holds_any(argument, value),
            other => other == value,
        }),
        "numeric" => value.as_f64().is_some_and(|number| in_range(argument, number)),
        operator => value.as_str().is_some_and(|text| text_holds(operator, argument, text)),
    }
}

/// An operator within `anything-but`, whose argument may be a list.
fn holds_any(wanted: &Value, value: &Value) -> bool {
    let Some((operator, arguments)) = wanted.as_object().and_then(|map| map.iter().next()) else { return false };
    value.as_str().is_some_and(|text| any(arguments, |argument| text_holds(operator, argument, text)))
}

fn any(arguments: &Value, test: impl Fn(&Value) -> bool) -> bool {
    match arguments {
        Value::Array(arguments) => arguments.iter().any(test),
        single => test(single),
    }
}

fn text_holds(operator: &str, argument: &Value, text: &str) -> bool {
    let ignoring_case = argument.get("equals-ignore-case").and_then(Value::as_str);
    match (operator, argument.as_str(), ignoring_case) {
        ("prefix", Some(prefix), _) => text.starts_with(prefix),
        ("prefix", _, Some(prefix)) => text.to_lowercase().starts_with(&prefix.to_lowercase()),
        ("suffix", Some(suffix), _) => text.ends_with(suffix),
        ("suffix", _, Some(suffix)) => text.to_lowercase().ends_with(&suffix.to_lowercase()),
        ("equals-ignore-case", Some(other), _) => text.to_lowercase() == other.to_lowercase(),
        ("wildcard", Some(pattern), _) => wildcard(pattern).is_some_and(|parts| wildcard_holds(&parts, text)),
        ("cidr", Some(range), _) => {
            text.parse().is_ok_and(|address| Cidr::parse(range).is_some_and(|range| range.contains(address)))
        }
        _ => false,
    }
}

/// The texts between the stars. A backslash makes a star or a backslash literal; stars side by side are refused.
fn wildcard(pattern: &str) -> Option<Vec<String>> {
    let mut parts = vec![String::new()];
    let mut characters = pattern.chars();
    let mut after_star = false;
    while let Some(character) = characters.next() {
        match character {
            '*' if after_star => return None,
            '*' => parts.push(String::new()),
            '\\' => parts.last_mut()?.push(characters.next().filter(|next| "*\\".contains(*next))?),
            other => parts.last_mut()?.push(other),
        }
        after_star = character == '*';
    }
    Some(parts)
}

fn wildcard_holds(parts: &[String], text: &str) -> bool {
    let [first, middle @ .., last] = parts else { return parts.first().is_some_and(|only| only == text) };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
    for part in middle {
        let Some((_, after)) = rest.split_once(part.as_str()) else { return false };
        rest = after;
    }
    rest.ends_with(last.as_str())
}

/// A range of addresses, of either family.
struct Cidr {
    network: IpAddr,
    bits: u32,
}

impl Cidr {
    fn parse(text: &str) -> Option<Self> {
        let (network, bits) = text.split_once('/')?;
        let (network, bits): (IpAddr, u32) = (network.parse().ok()?, bits.parse().ok()?);
        (bits <= if network.is_ipv4() { 32 } else { 128 }).then_some(Self { network, bits })
    }

    fn contains(&self, address: IpAddr) -> bool {
        let (network, address, width) = match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => (u32::from(network).into(), u32::from(address).into(), 32),
            (IpAddr::V6(network), IpAddr::V6(address)) => (u128::from(network), u128::from(address), 128),
            _ => return false,
        };
        let host_bits = width - self.bits;
        // Without any bits of a network, every address is in it.
        u128::checked_shr(network, host_bits) == u128::checked_shr(address, host_bits)
    }
}

/// The pairs of comparison and bound of `numeric`, if they are one or two.
fn comparisons(argument: &Value) -> Option<Vec<(&str, f64)>> {
    let parts = argument.as_array()?;
    if parts.len() % 2 != 0 || !(2..=4).contains(&parts.len()) {
        return None;
    }
    parts.chunks(2).map(|pair| Some((pair[0].as_str()?, pair[1].as_f64()?))).collect()
}

fn in_range(argument: &Value, number: f64) -> bool {
    comparisons(argument).is_some_and(|all| {
        all.into_iter().all(|(comparison, bound)| match comparison {
            "=" => number == bound,
            "<" => number < bound,
            "<=" => number <= bound,
            ">" => number > bound,
            ">=" => number >= bound,
            _ => false,
        })
    })
}

/// The longest pattern.
// fidelity: documented(EventBridge API Reference, PutRule: EventPattern of at most 4,096 characters)
const MAX_PATTERN: usize = 4096;

/// Refuses patterns that EventBridge would refuse.
// fidelity: documented(EventBridge API Reference, PutRule: InvalidEventPatternException); assumed: wording
pub(crate) fn check_pattern(text: &str) -> Result<Value, ApiError> {
    let refuse = |reason: String| {
        ApiError::client("InvalidEventPatternException", format!("Event pattern is not valid. Reason: {reason}"))
    };
    if text.len() > MAX_PATTERN {
        return Err(refuse(format!("it is longer than {MAX_PATTERN} characters")));
    }
    let pattern: Value = serde_json::from_str(text).map_err(|_| refuse("it is not JSON".into()))?;
    check_object(&pattern).map_err(refuse)?;
    Ok(pattern)
}

fn check_object(pattern: &Value) -> Result<(), String> {
    let members = pattern.as_object().ok_or("Filter is not an object")?;
    if members.is_empty() {
        return Err("Empty objects are not allowed".into());
    }
    for (name, wanted) in members {
        match wanted {
            Value::Object(_) => check_object(wanted)?,
            Value::Array(alternatives) if alternatives.is_empty() => {
                return Err(format!("Empty arrays are not allowed: \"{name}\""));
            }
            Value::Array(alternatives) if name == "$or" => {
                if alternatives.len() < 2 {
                    return Err("$or needs at least two alternatives".into());
                }
                alternatives.iter().try_for_each(check_object)?;
            }
            Value::Array(alternatives) => alternatives.iter().try_for_each(check_alternative)?,
            _ => return Err(format!("\"{name}\" must be an object or an array")),
        }
    }
    Ok(())
}

fn check_alternative(wanted: &Value) -> Result<(), String> {
    let Value::Object(operators) = wanted else {
        return if wanted.is_array() { Err("Arrays within arrays are not allowed".into()) } else { Ok(()) };
    };
    let mut operators = operators.iter();
    let (Some((operator, argument)), None) = (operators.next(), operators.next()) else {
        return Err("Only one key allowed in match expression".into());
    };
    let wrong = || Err(format!("{operator} match pattern has the wrong argument {argument}"));
    match operator.as_str() {
        "exists" if argument.is_boolean() => Ok(()),
        "numeric" => match comparisons(argument) {
            Some(all) if all.iter().all(|(comparison, _)| ["=", "<", "<=", ">", ">="].contains(comparison)) => Ok(()),
            _ => wrong(),
        },
        "anything-but" => check_exclusion(argument),
        "exists" => wrong(),
        _ => check_text(operator, argument),
    }
}

fn check_exclusion(argument: &Value) -> Result<(), String> {
    let scalar = |value: &Value| value.is_string() || value.is_number();
    match argument {
        Value::Object(operators) if operators.len() == 1 => operators.iter().try_for_each(|(operator, arguments)| {
            if operator == "cidr" {
                return Err("Unsupported anything-but pattern: cidr".to_owned());
            }
            match arguments {
                Value::Array(all) if !all.is_empty() => all.iter().try_for_each(|one| check_text(operator, one)),
                one => check_text(operator, one),
            }
        }),
        Value::Array(all) if !all.is_empty() && all.iter().all(scalar) => Ok(()),
        one if scalar(one) => Ok(()),
        other => Err(format!("anything-but match pattern has the wrong argument {other}")),
    }
}

fn check_text(operator: &str, argument: &Value) -> Result<(), String> {
    let ignoring_case = argument.as_object().is_some_and(|map| map.len() == 1)
        && argument.get("equals-ignore-case").is_some_and(Value::is_string);
    let right = match operator {
        "prefix" | "suffix" => argument.is_string() || ignoring_case,
        "equals-ignore-case" => argument.is_string(),
        "wildcard" => argument.as_str().is_some_and(|pattern| wildcard(pattern).is_some()),
        "cidr" => argument.as_str().is_some_and(|range| Cidr::parse(range).is_some()),
        unknown => return Err(format!("Unrecognized match type {unknown}")),
    };
    match right {
        true => Ok(()),
        false => Err(format!("{operator} match pattern has the wrong argument {argument}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// An event as the guide's examples have them.
    fn event() -> Value {
        json!({
            "source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "resources": ["a", "b"],
            "detail": {
                "state": "running", "instance-id": "i-1", "c-count": 5, "d-count": 3, "x-limit": 3.018e2, "empty": "",
                "nothing": null, "flag": true, "source-ip": "10.0.0.7", "six": "2001:db8::1", "file": "dir/photo.PNG",
                "volumes": [{"id": "v-1", "size": 1}, {"id": "v-2", "size": 2}],
            },
        })
    }

    fn detail(name: &str, alternative: Value) -> Value {
        json!({"detail": {name: [alternative]}})
    }

    #[test]
    fn patterns_match_as_documented() {
        for (pattern, expected) in [
            (json!({"source": ["aws.ec2"]}), true),
            (json!({"source": ["aws.health"]}), false),
            (json!({"source": ["aws.health", "aws.ec2"], "detail": {"state": ["running"]}}), true),
            (json!({"detail": {"state": ["stopped", "stopping"]}}), false),
            (json!({"resources": ["b"]}), true),
            (json!({"resources": ["c"]}), false),
            (detail("empty", json!("")), true),
            (detail("nothing", Value::Null), true),
            (detail("reason", Value::Null), false),
            (detail("flag", json!(true)), true),
            (detail("c-count", json!(5)), true),
            (detail("c-count", json!("5")), false),
            (detail("reason", json!("x")), false),
            (json!({"detail": {"volumes": {"id": ["v-2"], "size": [2]}}}), true),
            (json!({"detail": {"volumes": {"id": ["v-1"], "size": [2]}}}), false),
            (json!({"$or": [{"source": ["aws.health"]}, {"detail": {"state": ["running"]}}]}), true),
            (json!({"$or": [{"source": ["aws.health"]}, {"detail": {"state": ["stopped"]}}]}), false),
            (
                json!({"source": ["aws.ec2"], "detail": {"$or": [{"c-count": [{"numeric": [">", 9]}]}, {"d-count": [3]}]}}),
                true,
            ),
        ] {
            assert_eq!(matches(&pattern, &event()), expected, "{pattern}");
            assert!(check_pattern(&pattern.to_string()).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn operators_compare_as_documented() {
        for (name, alternative, expected) in [
            ("instance-id", json!({"prefix": "i-"}), true),
            ("instance-id", json!({"prefix": "I-"}), false),
            ("instance-id", json!({"prefix": {"equals-ignore-case": "I-"}}), true),
            ("file", json!({"suffix": ".png"}), false),
            ("file", json!({"suffix": {"equals-ignore-case": ".png"}}), true),
            ("state", json!({"equals-ignore-case": "RUNNING"}), true),
            ("state", json!({"exists": true}), true),
            ("state", json!({"exists": false}), false),
            ("reason", json!({"exists": false}), true),
            ("reason", json!({"exists": true}), false),
            ("state", json!({"anything-but": "running"}), false),
            ("state", json!({"anything-but": ["stopped", "terminated"]}), true),
            ("reason", json!({"anything-but": ["stopped"]}), false),
            ("c-count", json!({"anything-but": [5, 6]}), false),
            ("c-count", json!({"anything-but": 6}), true),
            ("state", json!({"anything-but": {"prefix": "run"}}), false),
            ("state", json!({"anything-but": {"prefix": ["stop", "term"]}}), true),
            ("state", json!({"anything-but": {"suffix": "ing"}}), false),
            ("state", json!({"anything-but": {"equals-ignore-case": ["RUNNING", "x"]}}), false),
            ("file", json!({"anything-but": {"wildcard": "*/photo.*"}}), false),
            ("c-count", json!({"numeric": [">", 0, "<=", 5]}), true),
            ("c-count", json!({"numeric": ["<", 5]}), false),
            ("c-count", json!({"numeric": [">=", 5]}), true),
            ("x-limit", json!({"numeric": ["=", 301.8]}), true),
            ("state", json!({"numeric": [">", 0]}), false),
            ("source-ip", json!({"cidr": "10.0.0.0/24"}), true),
            ("source-ip", json!({"cidr": "10.0.1.0/24"}), false),
            ("source-ip", json!({"cidr": "0.0.0.0/0"}), true),
            ("six", json!({"cidr": "2001:db8::/32"}), true),
            ("six", json!({"cidr": "10.0.0.0/8"}), false),
            ("file", json!({"wildcard": "dir/*.PNG"}), true),
            ("file", json!({"wildcard": "*photo*"}), true),
            ("file", json!({"wildcard": "dir/photo.PNG"}), true),
            ("file", json!({"wildcard": "dir/*.png"}), false),
            ("file", json!({"wildcard": "dir/photo.PNG*PNG"}), false),
            ("file", json!({"wildcard": "dir\\*"}), false),
        ] {
            let pattern = detail(name, alternative);
            assert_eq!(matches(&pattern, &event()), expected, "{pattern}");
            assert!(check_pattern(&pattern.to_string()).is_ok(), "{pattern}");
        }
        assert!(!matches(&json!({"detail": [{"exists": true}]}), &event()), "only leaves exist");
        assert!(matches(&json!({"detail": {"none": {"below": [{"exists": false}]}}}), &event()));
    }

    #[test]
    fn broken_patterns_are_refused() {
        for text in [
            "",
            "[]",
            "{}",
            "{\"source\": \"aws.ec2\"}",
            "{\"source\": []}",
            "{\"source\": [[\"x\"]]}",
            "{\"detail\": {}}",
        ] {
            assert_eq!(check_pattern(text).unwrap_err().code, "InvalidEventPatternException", "{text}");
        }
        for alternative in [
            json!({"wild": 1}),
            json!({}),
            json!({"prefix": "a", "suffix": "b"}),
            json!({"prefix": 1}),
            json!({"suffix": {"prefix": "x"}}),
            json!({"exists": "yes"}),
            json!({"numeric": [">"]}),
            json!({"numeric": ["!", 1]}),
            json!({"numeric": [">", "1"]}),
            json!({"numeric": [">", 1, "<", 2, "=", 3]}),
            json!({"cidr": "10.0.0.0"}),
            json!({"cidr": "10.0.0.0/33"}),
            json!({"wildcard": "a**b"}),
            json!({"wildcard": "a\\b"}),
            json!({"anything-but": []}),
            json!({"anything-but": {"cidr": "10.0.0.0/8"}}),
            json!({"anything-but": {"numeric": ["=", 1]}}),
            json!({"anything-but": true}),
        ] {
            let pattern = detail("x", alternative);
            assert!(check_pattern(&pattern.to_string()).is_err(), "{pattern}");
        }
        assert!(check_pattern(&json!({"$or": [{"a": ["b"]}]}).to_string()).is_err());
        assert!(check_pattern(&json!({"a": ["b".repeat(4096)]}).to_string()).is_err());
    }
}
