//! Typed parameters of steps: what may stand in the place of `{duration}` and its like, and how it is read.

use regex::Regex;
use std::time::Duration;

/// The parameter types, with the pattern of what each accepts. Every pattern has exactly one group. Numbers end where they
/// would no longer fit into their types: nine digits of a count, and 999999 days, at which the calendar ends too.
const TYPES: [(&str, &str); 6] = [
    ("string", r#""([^"]*)""#),
    ("integer", r"([0-9]{1,9})"),
    ("number", r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"),
    ("duration", r"((?:[0-9]{1,6}(?:ms|s|m|h|d)){1,5})"),
    ("quantity", r"([0-9]+(?:\.[0-9]+)?(?:m|k|M|G|T|Ki|Mi|Gi|Ti)?)"),
    ("word", r"([A-Za-z0-9][A-Za-z0-9_.\-/]*)"),
];

/// The pattern of a step's expression: its words as they stand, `{type}` for a parameter, `(s)` for an optional ending. Not
/// compiled yet: of all the expressions, a scenario needs those few that begin like its lines.
pub(crate) fn pattern(expression: &str) -> Result<String, String> {
    let mut pattern = String::from("^");
    let mut rest = expression;
    while let Some(at) = rest.find(['{', '(']) {
        pattern.push_str(&regex::escape(&rest[..at]));
        let (open, close) = if rest[at..].starts_with('{') { ('{', '}') } else { ('(', ')') };
        let end = rest[at..].find(close).ok_or_else(|| format!("{open:?} is not closed"))? + at;
        let inner = &rest[at + 1..end];
        if open == '{' {
            let known = TYPES.iter().find(|(name, _)| *name == inner);
            let names = || TYPES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            pattern.push_str(known.ok_or_else(|| format!("no parameter type {inner:?}; there are {}", names()))?.1);
        } else {
            pattern.push_str(&format!("(?:{})?", regex::escape(inner)));
        }
        rest = &rest[end + 1..];
    }
    pattern.push_str(&regex::escape(rest));
    pattern.push('$');
    Ok(pattern)
}

/// What every line that an expression matches begins with.
pub(crate) fn beginning(expression: &str) -> &str {
    &expression[..expression.find(['{', '(']).unwrap_or(expression.len())]
}

/// Compiles a pattern.
pub(crate) fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern is made of escaped words and of the types above")
}

/// The parameters of one line, in the order in which they stand.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    values: Vec<String>,
    /// The text block below the step.
    pub docstring: Option<String>,
    /// The table below the step.
    pub table: Vec<Vec<String>>,
}

impl Arguments {
    pub(crate) fn new(values: Vec<String>, docstring: Option<String>, table: Vec<Vec<String>>) -> Self {
        Self { values, docstring, table }
    }

    /// The parameter as it stands.
    pub fn text(&self, index: usize) -> &str {
        &self.values[index]
    }

    /// A whole number.
    pub fn integer(&self, index: usize) -> usize {
        self.values[index].parse().expect("the pattern of {integer} accepts digits only")
    }

    /// A number.
    pub fn number(&self, index: usize) -> f64 {
        self.values[index].parse().expect("the pattern of {number} accepts digits and one point only")
    }

    /// A duration such as `90s`, `1h30m` or `2d`.
    pub fn duration(&self, index: usize) -> Duration {
        duration(&self.values[index])
    }
}

fn duration(text: &str) -> Duration {
    let mut total = Duration::ZERO;
    let mut digits = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character.is_ascii_digit() {
            digits.push(character);
            continue;
        }
        let count: u64 = digits.parse().unwrap_or(u64::MAX);
        digits.clear();
        let unit_ms = match character {
            'm' if characters.next_if_eq(&'s').is_some() => 1,
            's' => 1_000,
            'm' => 60_000,
            'h' => 3_600_000,
            _ => 86_400_000,
        };
        total += Duration::from_millis(count.saturating_mul(unit_ms));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_all_units_add_up() {
        assert_eq!(duration("1d2h3m4s5ms"), Duration::from_millis(93_784_005));
        assert_eq!(duration("90s"), Duration::from_secs(90));
    }

    #[test]
    fn an_expression_matches_whole_lines_only() {
        let pattern = compiled(&pattern("{integer} pod(s) of {string} run within {duration}").unwrap());
        assert!(pattern.is_match("1 pod of \"web\" run within 1m"));
        assert!(pattern.is_match("2 pods of \"web\" run within 1m30s"));
        assert!(!pattern.is_match("2 pods of \"web\" run within 1m or so"));
        assert!(!pattern.is_match("two pods of \"web\" run within 1m"));
    }

    #[test]
    fn a_number_that_fits_no_type_is_no_number() {
        for (expression, good, bad) in
            [("{integer}", "999999999", "9999999999"), ("{duration}", "999999s", "99999999999s")]
        {
            let pattern = compiled(&pattern(expression).unwrap());
            assert!(pattern.is_match(good) && !pattern.is_match(bad), "{expression}");
        }
    }

    #[test]
    fn a_digit_that_no_number_is_read_from_is_none() {
        assert!(!compiled(&pattern("{integer} pods").unwrap()).is_match("٣ pods"));
    }

    #[test]
    fn an_unknown_parameter_type_is_named() {
        assert!(pattern("{weight} of it").unwrap_err().contains("\"weight\""));
    }
}
