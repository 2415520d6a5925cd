//! What Kubernetes accepts as a label's key or value, with the API server's words for what it does not.

const NAME_PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const NAME: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const EMPTY: &str = "must be non-empty";

/// Longest name or value of a label, in bytes.
const LONGEST_NAME: usize = 63;
/// Longest DNS subdomain, in bytes.
const LONGEST_SUBDOMAIN: usize = 253;

/// What keeps a text from being a label's key (a *qualified name*): an optional DNS subdomain with a slash, then a name.
pub(crate) fn qualified_name_problems(text: &str) -> Vec<String> {
    let name_examples =
        format!("{NAME} (e.g. 'MyName', or 'my.name', or '123-abc', regex used for validation is '{NAME_PATTERN}')");
    let (prefix, name) = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => {
            return vec![format!(
                "a valid label key {name_examples} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut problems = prefix.map(prefix_problems).unwrap_or_default();
    if name.is_empty() {
        problems.push(format!("name part {EMPTY}"));
    } else if name.len() > LONGEST_NAME {
        problems.push(format!("name part {}", too_long(LONGEST_NAME)));
    }
    if !is_name(name) {
        problems.push(format!("name part {name_examples}"));
    }
    problems
}

/// What keeps a text from being a label's value, which may be empty.
pub(crate) fn label_value_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LONGEST_NAME {
        problems.push(too_long(LONGEST_NAME));
    }
    if !text.is_empty() && !is_name(text) {
        problems.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
             and end with an alphanumeric character (e.g. 'MyValue', or 'my_value', or '12345', regex used for \
             validation is '({NAME_PATTERN})?')"
        ));
    }
    problems
}

fn prefix_problems(prefix: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if prefix.is_empty() {
        return vec![format!("prefix part {EMPTY}")];
    }
    if prefix.len() > LONGEST_SUBDOMAIN {
        problems.push(format!("prefix part {}", too_long(LONGEST_SUBDOMAIN)));
    }
    if !prefix.split('.').all(is_dns_label) {
        problems.push(format!("prefix part {SUBDOMAIN}"));
    }
    problems
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn is_dns_label(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alphanumeric) && text.ends_with(alphanumeric) && text.chars().all(|c| alphanumeric(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names_are_told_from_others() {
        for text in ["team", "a", "example.com/team", "1-2.x/A_b.c", &"a".repeat(63), "karpenter.sh/nodepool"] {
            assert_eq!(qualified_name_problems(text), Vec::<String>::new(), "{text}");
        }
        let example = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                       alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc', regex used for validation is \
                       '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        for (text, problems) in [
            ("", vec!["name part must be non-empty", example]),
            ("-a", vec![example]),
            ("a b", vec![example]),
            ("/a", vec!["prefix part must be non-empty"]),
            (&"a".repeat(64), vec!["name part must be no more than 63 bytes"]),
        ] {
            assert_eq!(qualified_name_problems(text), problems, "{text}");
        }
        for text in ["Example.com/a", "a..b/c", "-a/b", "a-/b"] {
            let problems = qualified_name_problems(text);
            assert!(problems[0].starts_with("prefix part a lowercase RFC 1123 subdomain"), "{text}: {problems:?}");
        }
        assert!(qualified_name_problems("a/b/c")[0].starts_with("a valid label key must consist of"));
    }

    #[test]
    fn label_values_are_told_from_others() {
        for text in ["", "a", "A.b_c-1", &"a".repeat(63)] {
            assert_eq!(label_value_problems(text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(label_value_problems(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        for text in ["-", "a b", "a/b", "ä"] {
            assert!(label_value_problems(text)[0].starts_with("a valid label must be an empty string"), "{text}");
        }
    }
}
