//! Patterns of policies: `*` and `?`, policy variables, and ARNs part by part.

use super::facts::Facts;

/// One element of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Character(char),
    /// `?`
    One,
    /// `*`
    Any,
}

/// What a policy may match a value against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Token>);

impl Pattern {
    /// A pattern without variables.
    pub(crate) fn plain(text: &str) -> Self {
        Self(text.chars().map(wildcard).collect())
    }

    /// A pattern whose variables are replaced by their values, which are taken literally. `None` if a variable has neither
    /// a value nor a default.
    // fidelity: documented(IAM User Guide, Policy variables: ${key}, ${key, 'default'}, ${*}, ${?}, ${$}); assumed: what
    // contains a variable without a value matches nothing.
    pub(crate) fn with_variables(text: &str, facts: &Facts<'_>) -> Option<Self> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, tail)) = after.split_once('}') else { break };
            tokens.extend(before.chars().map(wildcard));
            tokens.extend(variable(name, facts)?.chars().map(Token::Character));
            rest = tail;
        }
        tokens.extend(rest.chars().map(wildcard));
        Some(Self(tokens))
    }

    /// The same in lower case.
    pub(crate) fn lowercase(self) -> Self {
        let lower = |token| match token {
            Token::Character(character) => Token::Character(character.to_ascii_lowercase()),
            other => other,
        };
        Self(self.0.into_iter().map(lower).collect())
    }

    /// Wildcards stand for any characters.
    pub(crate) fn matches(&self, value: &str) -> bool {
        let value: Vec<char> = value.chars().collect();
        like(&self.0, &value)
    }

    /// Wildcards are characters like any others.
    pub(crate) fn equals(&self, value: &str) -> bool {
        self.text() == value
    }

    /// What it says, wildcards as written.
    pub(crate) fn text(&self) -> String {
        let character = |token: &Token| match token {
            Token::Character(character) => *character,
            Token::One => '?',
            Token::Any => '*',
        };
        self.0.iter().map(character).collect()
    }

    /// Whether an ARN matches, each of the six parts for itself; parts that are left out match anything.
    // fidelity: documented(IAM User Guide, ARN condition operators; Resource element: incomplete ARNs)
    pub(crate) fn matches_arn(&self, arn: &str) -> bool {
        if self.0 == [Token::Any] {
            return true;
        }
        let patterns: Vec<&[Token]> = self.0.splitn(6, |token| *token == Token::Character(':')).collect();
        let parts: Vec<Vec<char>> = arn.splitn(6, ':').map(|part| part.chars().collect()).collect();
        parts.len() == 6
            && parts.iter().enumerate().all(|(index, part)| patterns.get(index).is_none_or(|wanted| like(wanted, part)))
    }
}

fn wildcard(character: char) -> Token {
    match character {
        '*' => Token::Any,
        '?' => Token::One,
        other => Token::Character(other),
    }
}

fn variable(name: &str, facts: &Facts<'_>) -> Option<String> {
    if matches!(name, "*" | "?" | "$") {
        return Some(name.to_owned());
    }
    let (key, default) = match name.split_once(',') {
        Some((key, default)) => (key.trim(), Some(default.trim().trim_matches('\'').to_owned())),
        None => (name.trim(), None),
    };
    // Only keys with one value can be variables.
    let value = facts.values(&key.to_ascii_lowercase()).filter(|values| values.len() == 1);
    value.map(|values| values[0].clone()).or(default)
}

/// Backtracks to the latest `*` alone, which is enough and takes at most pattern × value steps.
fn like(pattern: &[Token], value: &[char]) -> bool {
    let (mut at, mut position) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while position < value.len() {
        match pattern.get(at) {
            Some(Token::Any) => {
                retry = Some((at + 1, position));
                at += 1;
            }
            Some(Token::One) => (at, position) = (at + 1, position + 1),
            Some(Token::Character(wanted)) if *wanted == value[position] => (at, position) = (at + 1, position + 1),
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    (at, position) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|token| *token == Token::Any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iam::facts::Keys;

    #[test]
    fn wildcards_stand_for_any_characters() {
        for (pattern, value, expected) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*b*b*", "abab", true),
            ("*b*b*", "aba", false),
            ("", "a", false),
        ] {
            assert_eq!(Pattern::plain(pattern).matches(value), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn arns_match_part_by_part() {
        let arn = "arn:aws:ec2:us-west-2:123456789012:instance/i-1";
        for (pattern, expected) in [
            ("*", true),
            ("arn:aws:ec2:*:*:instance/*", true),
            ("arn:aws:ec2:us-west-2::instance/*", false),
            ("arn:*", true),
            // A wildcard does not reach over a colon.
            ("arn:aws:*:instance/*", false),
            ("arn:aws:ec2:us-west-2:123456789012:volume/*", false),
        ] {
            assert_eq!(Pattern::plain(pattern).matches_arn(arn), expected, "{pattern}");
        }
        let image = "arn:aws:ec2:us-west-2::image/ami-1";
        assert!(Pattern::plain("arn:aws:ec2:us-west-2::image/*").matches_arn(image));
    }

    #[test]
    fn variables_are_replaced_literally() {
        let mut keys = Keys::default();
        keys.set("aws:PrincipalTag/team", "a*b");
        keys.set("aws:username", "ann");
        let (none, facts) = (Keys::default(), &keys);
        let facts = Facts { own: &none, common: facts };
        let check = |pattern: &str, value: &str| {
            Pattern::with_variables(pattern, &facts).is_some_and(|pattern| pattern.matches(value))
        };
        assert!(check("x/${aws:username}/*", "x/ann/y"));
        assert!(check("${aws:PrincipalTag/Team}", "a*b"));
        assert!(!check("${aws:PrincipalTag/team}", "axb"), "a value's star is a star");
        assert!(check("${*}", "*") && !check("${*}", "x"));
        assert!(check("${aws:none, 'fallback'}", "fallback"));
        assert!(!check("${aws:none}", ""));
    }
}
