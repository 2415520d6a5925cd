//! What a controller made, written so that two clusters can be compared: forms as trees, names of their own masked.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Texts that belong to one cluster alone, and what stands for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Masks(Vec<(String, String)>);

impl Masks {
    /// Masks a text wherever it stands.
    pub(super) fn add(&mut self, text: impl Into<String>, placeholder: impl Into<String>) {
        let text = text.into();
        // A short text would be found where it means something else.
        if text.len() > 3 {
            self.0.push((text, placeholder.into()));
        }
    }

    /// The longest first, since one name may be the beginning of another.
    pub(super) fn sorted(mut self) -> Self {
        self.0.sort_by(|one, other| other.0.len().cmp(&one.0.len()).then_with(|| one.cmp(other)));
        self
    }

    pub(super) fn text(&self, text: &str) -> String {
        let masked = self.0.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        without_times(&masked)
    }

    pub(super) fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.value(item)).collect()),
            Value::Object(fields) => {
                Value::Object(fields.into_iter().map(|(name, value)| (self.text(&name), self.value(value))).collect())
            }
            other => other,
        }
    }
}

/// Replaces every RFC 3339 instant.
fn without_times(text: &str) -> String {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let bytes = text.as_bytes();
    let instant_at = |at: usize| {
        bytes.get(at..at + SHAPE.len()).is_some_and(|found| {
            found
                .iter()
                .zip(SHAPE)
                .all(|(byte, shape)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == shape })
        })
    };
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let Some(next) = rest.chars().next() else { break };
        if instant_at(at) {
            masked.push_str("<time>");
            at += SHAPE.len();
            while bytes.get(at).is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'Z')) {
                at += 1;
            }
        } else {
            masked.push(next);
            at += next.len_utf8();
        }
    }
    masked
}

/// A form such as `LaunchTemplateData.BlockDeviceMapping.1.DeviceName` as a tree. Lists of tags become maps, other lists
/// stay in their order.
pub(super) fn form<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    let mut tree = Value::Object(Map::new());
    for (path, value) in fields {
        let mut place = &mut tree;
        for part in path.split('.') {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            let Value::Object(map) = place else { break };
            place = map.entry(part).or_insert_with(|| Value::Object(Map::new()));
        }
        *place = Value::String(value.to_owned());
    }
    lists(tree)
}

/// Objects whose fields are numbers are lists.
fn lists(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let numbered = !fields.is_empty() && fields.keys().all(|name| name.parse::<usize>().is_ok());
    let fields: Map<String, Value> = fields.into_iter().map(|(name, value)| (name, lists(value))).collect();
    if !numbered {
        return Value::Object(fields);
    }
    let by_number: BTreeMap<usize, Value> =
        fields.into_iter().filter_map(|(name, value)| Some((name.parse().ok()?, value))).collect();
    let items: Vec<Value> = by_number.into_values().collect();
    keyed(&items, "Key", |item| item.get("Value").cloned().unwrap_or_default())
        .or_else(|| keyed(&items, "ResourceType", |item| item.get("Tag").cloned().unwrap_or_default()))
        .unwrap_or(Value::Array(items))
}

/// A list of objects that are told apart by a field, as a map. `None` where they are not.
pub(super) fn keyed(items: &[Value], field: &str, value: impl Fn(&Value) -> Value) -> Option<Value> {
    let pairs: Option<Map<String, Value>> =
        items.iter().map(|item| Some((item.get(field)?.as_str()?.to_owned(), value(item)))).collect();
    pairs.filter(|pairs| pairs.len() == items.len() && !pairs.is_empty()).map(Value::Object)
}

/// Every leaf by its path.
pub(super) fn leaves(value: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    walk(value, String::new(), &mut found);
    found
}

fn walk(value: &Value, path: String, found: &mut BTreeMap<String, String>) {
    let below = |part: &str| if path.is_empty() { part.to_owned() } else { format!("{path} / {part}") };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, value)| walk(value, below(name), found));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(index, value)| walk(value, below(&index.to_string()), found));
        }
        Value::String(text) => drop(found.insert(path, text.clone())),
        other => drop(found.insert(path, other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_form_becomes_a_tree_whose_tags_are_maps() {
        let fields = [
            ("Data.Tag.1.Key", "a"),
            ("Data.Tag.1.Value", "1"),
            ("Data.TagSpecification.1.ResourceType", "volume"),
            ("Data.TagSpecification.1.Tag.1.Key", "b"),
            ("Data.TagSpecification.1.Tag.1.Value", "2"),
            ("Data.Group.2", "sg-2"),
            ("Data.Group.1", "sg-1"),
            ("Data.Group.10", "sg-10"),
        ];
        let tree = form(fields.into_iter());
        let expected = json!({"Data": {
            "Tag": {"a": "1"}, "TagSpecification": {"volume": {"b": "2"}}, "Group": ["sg-1", "sg-2", "sg-10"],
        }});
        assert_eq!(tree, expected);
        assert_eq!(leaves(&tree)["Data / TagSpecification / volume / b"], "2");
    }

    #[test]
    fn names_and_times_are_masked_the_longest_first() {
        let mut masks = Masks::default();
        masks.add("default-a", "<claim 1>");
        masks.add("default-abc", "<claim 2>");
        let masks = masks.sorted();
        let text = "default-abc and default-a at 2026-01-02T03:04:05.678Z, ümlaut 2026-01-02";
        assert_eq!(masks.text(text), "<claim 2> and <claim 1> at <time>, ümlaut 2026-01-02");
    }
}
