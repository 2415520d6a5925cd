//! JSONPath as printer columns use it: fields, `['field']`, `[n]`, `[*]`, `[?(@.key=="value")]`, escaped dots.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// Counted from the end if negative.
    Index(i64),
    All,
    Filter {
        path: Vec<Step>,
        /// Comparison with a literal; without one the field must be there.
        wanted: Option<(bool, Value)>,
    },
}

/// The first value at a path; `None` where there is none, or the path is of another kind.
pub(super) fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut found = vec![object];
    for step in parse(path)? {
        found = found.into_iter().flat_map(|value| follow(value, &step)).collect();
    }
    found.first().copied()
}

fn follow<'a>(value: &'a Value, step: &Step) -> Vec<&'a Value> {
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let place = if *index < 0 { list.len() as i64 + index } else { *index };
            usize::try_from(place).ok().and_then(|place| list.get(place)).into_iter().collect()
        }
        Step::All => match value {
            Value::Array(list) => list.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            _ => Vec::new(),
        },
        Step::Filter { path, wanted } => {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let passes = |item: &Value| {
                let mut found = vec![item];
                for step in path {
                    found = found.into_iter().flat_map(|value| follow(value, step)).collect();
                }
                match (found.first(), wanted) {
                    (found, None) => found.is_some(),
                    (None, Some(_)) => false,
                    (Some(found), Some((equal, literal))) => (*found == literal) == *equal,
                }
            };
            list.iter().filter(|item| passes(item)).collect()
        }
    }
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = bracket_end(inner)?;
            steps.push(bracket(inner[..end].trim())?);
            rest = &inner[end + 1..];
            continue;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let (name, left) = field(rest);
        match name.as_str() {
            "" if left.starts_with('[') || left.is_empty() => {}
            "" => return None,
            "*" => steps.push(Step::All),
            _ => steps.push(Step::Field(name)),
        }
        rest = left;
    }
    Some(steps)
}

/// A field's name up to the next dot or bracket; a backslash takes the next character as it is.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '.' | '[' => return (name, &text[place..]),
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            other => name.push(other),
        }
    }
    (name, "")
}

/// Where the bracket ends that was opened just before; brackets in quotes do not count.
fn bracket_end(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (place, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(place),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        let (path, wanted) = match filter.split_once("==").map(|parts| (true, parts)) {
            Some((equal, (path, value))) => (path, Some((equal, literal(value)?))),
            None => match filter.split_once("!=") {
                Some((path, value)) => (path, Some((false, literal(value)?))),
                None => (filter, None),
            },
        };
        return Some(Step::Filter { path: parse(path.trim().strip_prefix('@')?)?, wanted });
    }
    if let Ok(index) = text.parse() {
        return Some(Step::Index(index));
    }
    match literal(text)? {
        Value::String(name) => Some(Step::Field(name)),
        _ => None,
    }
}

fn literal(text: &str) -> Option<Value> {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return Some(Value::String(inner.to_owned()));
        }
    }
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_of_printer_columns_find_the_first_match_or_nothing() {
        let object = json!({
            "metadata": { "labels": { "karpenter.sh/capacity-type": "spot" } },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Drifted", "status": "False", "n": 3 }],
                "zones": ["a", "b"],
            },
        });
        for (path, expected) in [
            (r".metadata.labels.karpenter\.sh/capacity-type", json!("spot")),
            (".metadata.labels['karpenter.sh/capacity-type']", json!("spot")),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            (".status.conditions[?(@.type=='Drifted')].status", json!("False")),
            (r#".status.conditions[?(@.type != "Ready")].type"#, json!("Drifted")),
            (".status.conditions[?(@.n)].type", json!("Drifted")),
            (".status.conditions[?(@.n==3)].type", json!("Drifted")),
            (".status.zones[1]", json!("b")),
            (".status.zones[-1]", json!("b")),
            (".status.zones[*]", json!("a")),
            (".status.conditions[*].type", json!("Ready")),
            (".status", object["status"].clone()),
        ] {
            assert_eq!(find(&object, path), Some(&expected), "{path}");
        }
        for path in
            [".spec.size", r#".status.conditions[?(@.type=="Gone")].status"#, ".status.zones[7]", ".status[", "..a"]
        {
            assert_eq!(find(&object, path), None, "{path}");
        }
    }
}
