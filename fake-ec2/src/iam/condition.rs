//! Condition operators: what each compares, and what it means when a key is missing or has several values.

use super::facts::Facts;
use super::pattern::Pattern;
use jiff::Timestamp;
use std::cmp::Ordering;
use std::net::IpAddr;

/// One line of a statement's conditions: the key's values, compared with the policy's.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    operator: Operator,
    /// In lower case.
    key: String,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operator {
    set: Option<Set>,
    if_exists: bool,
    comparison: Comparison,
    negated: bool,
}

/// How many of a key's values have to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    All,
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equals,
    EqualsIgnoreCase,
    Like,
    Arn,
    Number(Order),
    Date(Order),
    Bool,
    IpAddress,
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Every operator, and whether it is the negation of its comparison.
// fidelity: documented(IAM User Guide, IAM JSON policy elements: Condition operators)
const OPERATORS: [(&str, Comparison, bool); 27] = [
    ("StringEquals", Comparison::Equals, false),
    ("StringNotEquals", Comparison::Equals, true),
    ("StringEqualsIgnoreCase", Comparison::EqualsIgnoreCase, false),
    ("StringNotEqualsIgnoreCase", Comparison::EqualsIgnoreCase, true),
    ("StringLike", Comparison::Like, false),
    ("StringNotLike", Comparison::Like, true),
    ("NumericEquals", Comparison::Number(Order::Equal), false),
    ("NumericNotEquals", Comparison::Number(Order::Equal), true),
    ("NumericLessThan", Comparison::Number(Order::Less), false),
    ("NumericLessThanEquals", Comparison::Number(Order::LessOrEqual), false),
    ("NumericGreaterThan", Comparison::Number(Order::Greater), false),
    ("NumericGreaterThanEquals", Comparison::Number(Order::GreaterOrEqual), false),
    ("DateEquals", Comparison::Date(Order::Equal), false),
    ("DateNotEquals", Comparison::Date(Order::Equal), true),
    ("DateLessThan", Comparison::Date(Order::Less), false),
    ("DateLessThanEquals", Comparison::Date(Order::LessOrEqual), false),
    ("DateGreaterThan", Comparison::Date(Order::Greater), false),
    ("DateGreaterThanEquals", Comparison::Date(Order::GreaterOrEqual), false),
    ("Bool", Comparison::Bool, false),
    ("BinaryEquals", Comparison::Equals, false),
    ("IpAddress", Comparison::IpAddress, false),
    ("NotIpAddress", Comparison::IpAddress, true),
    ("ArnEquals", Comparison::Arn, false),
    ("ArnLike", Comparison::Arn, false),
    ("ArnNotEquals", Comparison::Arn, true),
    ("ArnNotLike", Comparison::Arn, true),
    ("Null", Comparison::Null, false),
];

impl Operator {
    fn parse(name: &str) -> Option<Self> {
        let (set, rest) = match name.split_once(':') {
            Some((set, rest)) if set.eq_ignore_ascii_case("ForAllValues") => (Some(Set::All), rest),
            Some((set, rest)) if set.eq_ignore_ascii_case("ForAnyValue") => (Some(Set::Any), rest),
            Some(_) => return None,
            None => (None, name),
        };
        let lower = rest.to_ascii_lowercase();
        let (rest, if_exists) = match lower.strip_suffix("ifexists") {
            Some(rest) => (rest, true),
            None => (lower.as_str(), false),
        };
        let (_, comparison, negated) = OPERATORS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(rest))?;
        // Null asks for the key itself; it has no "if it exists".
        let sensible = *comparison != Comparison::Null || (!if_exists && set.is_none());
        sensible.then_some(Self { set, if_exists, comparison: *comparison, negated: *negated })
    }
}

impl Condition {
    /// `None` if there is no such operator.
    pub(crate) fn new(operator: &str, key: &str, values: Vec<String>) -> Option<Self> {
        Some(Self { operator: Operator::parse(operator)?, key: key.to_ascii_lowercase(), values })
    }

    /// Whether it holds for a request. `variables` tells whether the policy's version knows policy variables.
    // fidelity: documented(IAM User Guide: missing keys, IfExists, multivalued context keys, negated matching operators)
    pub(crate) fn holds(&self, facts: &Facts<'_>, variables: bool) -> bool {
        let Operator { set, if_exists, comparison, negated } = self.operator;
        let present = facts.values(&self.key);
        if comparison == Comparison::Null {
            return self.values.iter().any(|wanted| wanted.eq_ignore_ascii_case("true") == present.is_none());
        }
        let Some(present) = present else {
            return match set {
                Some(Set::All) => true,
                Some(Set::Any) => if_exists,
                None => negated || if_exists,
            };
        };
        let pattern = |wanted: &String| match variables {
            true => Pattern::with_variables(wanted, facts),
            false => Some(Pattern::plain(wanted)),
        };
        let wanted: Vec<Pattern> = self.values.iter().filter_map(pattern).collect();
        let matches = |value: &String| wanted.iter().any(|wanted| holds(comparison, value, wanted)) != negated;
        match set {
            Some(Set::All) => present.iter().all(matches),
            Some(Set::Any) => present.iter().any(matches),
            None if negated => present.iter().all(matches),
            None => present.iter().any(matches),
        }
    }
}

fn holds(comparison: Comparison, value: &str, wanted: &Pattern) -> bool {
    match comparison {
        Comparison::Equals => wanted.equals(value),
        Comparison::EqualsIgnoreCase | Comparison::Bool => wanted.text().eq_ignore_ascii_case(value),
        Comparison::Like => wanted.matches(value),
        Comparison::Arn => wanted.matches_arn(value),
        Comparison::Number(order) => compare(number(value), number(&wanted.text()), order),
        Comparison::Date(order) => compare(date(value), date(&wanted.text()), order),
        Comparison::IpAddress => in_range(value, &wanted.text()),
        Comparison::Null => false,
    }
}

fn compare<T: PartialOrd>(value: Option<T>, wanted: Option<T>, order: Order) -> bool {
    let (Some(value), Some(wanted)) = (value, wanted) else { return false };
    let Some(found) = value.partial_cmp(&wanted) else { return false };
    match order {
        Order::Equal => found == Ordering::Equal,
        Order::Less => found == Ordering::Less,
        Order::LessOrEqual => found != Ordering::Greater,
        Order::Greater => found == Ordering::Greater,
        Order::GreaterOrEqual => found != Ordering::Less,
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Seconds since 1970, or a date of ISO 8601 with or without a time.
fn date(text: &str) -> Option<Timestamp> {
    let seconds = text.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    seconds.or_else(|| text.parse().ok()).or_else(|| format!("{text}T00:00:00Z").parse().ok())
}

fn in_range(value: &str, range: &str) -> bool {
    let (network, length) = range.split_once('/').unwrap_or((range, ""));
    let (Ok(value), Ok(network)) = (value.parse::<IpAddr>(), network.parse::<IpAddr>()) else { return false };
    let (value, network, width) = match (value, network) {
        (IpAddr::V4(value), IpAddr::V4(network)) => (u128::from(value.to_bits()), u128::from(network.to_bits()), 32),
        (IpAddr::V6(value), IpAddr::V6(network)) => (value.to_bits(), network.to_bits(), 128),
        _ => return false,
    };
    let length: u32 = if length.is_empty() { width } else { length.parse().unwrap_or(u32::MAX) };
    length <= width && (value ^ network).checked_shr(width - length).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iam::facts::Keys;

    /// `key=value` words, several for a key with several values.
    fn keys(words: &str) -> Keys {
        let mut keys = Keys::default();
        let pairs: Vec<(&str, &str)> = words.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        for (key, _) in &pairs {
            keys.set_all(key, pairs.iter().filter(|(own, _)| own == key).map(|(_, value)| *value));
        }
        keys
    }

    fn check(operator: &str, values: &[&str], request: &str, expected: bool) {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let condition = Condition::new(operator, "K", values).expect("a known operator");
        let (own, common) = (keys(request), Keys::default());
        let held = condition.holds(&Facts { own: &own, common: &common }, true);
        assert_eq!(held, expected, "{operator} {:?} on {request:?}", condition.values);
    }

    #[test]
    fn texts() {
        check("StringEquals", &["a", "b"], "k=b", true);
        check("StringEquals", &["a*"], "k=abc", false);
        check("StringLike", &["a*"], "k=abc", true);
        check("StringNotLike", &["a*"], "k=abc", false);
        check("StringEqualsIgnoreCase", &["ABC"], "k=abc", true);
        check("StringNotEquals", &["a", "b"], "k=b", false);
        check("StringNotEquals", &["a", "b"], "k=c", true);
        check("StringNotEqualsIgnoreCase", &["ABC"], "k=abc", false);
        check("BinaryEquals", &["AQID"], "k=AQID", true);
    }

    #[test]
    fn a_missing_key_satisfies_negated_operators_and_if_exists_alone() {
        check("StringEquals", &["a"], "", false);
        check("StringNotEquals", &["a"], "", true);
        check("StringEqualsIfExists", &["a"], "", true);
        check("StringEqualsIfExists", &["a"], "k=b", false);
        check("NumericLessThan", &["1"], "", false);
        check("NotIpAddress", &["10.0.0.0/8"], "", true);
        check("ArnNotLike", &["*"], "", true);
        check("Bool", &["false"], "", false);
        check("BoolIfExists", &["false"], "", true);
        check("Null", &["true"], "", true);
        check("Null", &["false"], "", false);
        check("Null", &["false"], "k=a", true);
    }

    #[test]
    fn keys_with_several_values() {
        check("ForAllValues:StringEquals", &["a", "b"], "k=a k=b", true);
        check("ForAllValues:StringEquals", &["a", "b"], "k=a k=c", false);
        check("ForAllValues:StringEquals", &["a"], "", true);
        check("ForAnyValue:StringEquals", &["a"], "k=a k=c", true);
        check("ForAnyValue:StringEquals", &["a"], "k=b k=c", false);
        check("ForAnyValue:StringEquals", &["a"], "", false);
        check("ForAnyValue:StringNotEquals", &["a"], "k=a k=c", true);
        check("ForAllValues:StringNotEquals", &["a"], "k=a k=c", false);
        check("ForAnyValue:StringLike", &["kubernetes.io/*"], "k=kubernetes.io/cluster", true);
    }

    #[test]
    fn numbers_dates_and_booleans() {
        check("NumericEquals", &["10"], "k=10.0", true);
        check("NumericNotEquals", &["10"], "k=11", true);
        check("NumericLessThan", &["10"], "k=9", true);
        check("NumericLessThanEquals", &["10"], "k=10", true);
        check("NumericGreaterThan", &["10"], "k=10", false);
        check("NumericGreaterThanEquals", &["10"], "k=x", false);
        check("DateLessThan", &["2026-01-02T00:00:00Z"], "k=2026-01-01T00:00:00Z", true);
        check("DateGreaterThan", &["2026-01-02"], "k=1767400000", true);
        check("DateEquals", &["2026-01-01"], "k=2026-01-01T00:00:00Z", true);
        check("Bool", &["true"], "k=True", true);
        check("Bool", &["false"], "k=true", false);
    }

    #[test]
    fn addresses_and_arns() {
        check("IpAddress", &["10.0.0.0/8"], "k=10.1.2.3", true);
        check("IpAddress", &["10.1.2.3"], "k=10.1.2.4", false);
        check("IpAddress", &["2001:db8::/32"], "k=2001:db8::1", true);
        check("IpAddress", &["0.0.0.0/0"], "k=1.2.3.4", true);
        check("IpAddress", &["10.0.0.0/99"], "k=10.0.0.1", false);
        check("NotIpAddress", &["10.0.0.0/8"], "k=11.1.2.3", true);
        check("ArnEquals", &["arn:aws:iam::*:role/a*"], "k=arn:aws:iam::1:role/ab", true);
        check("ArnLike", &["arn:aws:iam::1:role/b"], "k=arn:aws:iam::1:role/ab", false);
        check("ArnNotEquals", &["arn:aws:iam::1:role/b"], "k=arn:aws:iam::1:role/ab", true);
    }

    #[test]
    fn unknown_operators_are_none() {
        for name in ["StringMatches", "ForSomeValues:StringEquals", "NullIfExists", "", "IfExists"] {
            assert!(Condition::new(name, "k", Vec::new()).is_none(), "{name}");
        }
    }
}
