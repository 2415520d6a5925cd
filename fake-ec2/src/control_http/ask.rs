//! The fields of a request to the control API, read strictly: what is left over at the end is refused by its name.

use super::Refusal;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Members of a JSON body, or the parameters of a query string as texts.
pub(super) struct Fields {
    /// Where they stand: empty, or the name of the object with a dot.
    at: String,
    members: Map<String, Value>,
    /// What has been asked for, to say what there could have been.
    known: BTreeSet<String>,
}

impl Fields {
    /// An empty body is an empty object.
    pub(super) fn of_body(body: &[u8]) -> Result<Self, Refusal> {
        let value = match body.trim_ascii().is_empty() {
            true => Ok(Value::Object(Map::new())),
            false => serde_json::from_slice(body),
        };
        match value {
            Ok(value) => Self::of_value("body", "", value),
            Err(error) => Err(Refusal::invalid("body", format!("the body is not JSON: {error}"), "a JSON object")),
        }
    }

    /// The members of a document that is no request.
    pub(super) fn of_document(value: Value) -> Result<Self, Refusal> {
        Self::of_value("the document", "", value)
    }

    pub(super) fn of_query(query: &str) -> Self {
        let pairs = form_urlencoded::parse(query.as_bytes());
        let members = pairs.map(|(key, value)| (key.into_owned(), Value::String(value.into_owned()))).collect();
        Self { at: String::new(), members, known: BTreeSet::new() }
    }

    /// The members of the object `name`, of which the refusals then speak.
    pub(super) fn below(name: &str, value: Value) -> Result<Self, Refusal> {
        Self::of_value(name, &format!("{name}."), value)
    }

    fn of_value(name: &str, at: &str, value: Value) -> Result<Self, Refusal> {
        match value {
            Value::Object(members) => Ok(Self { at: at.into(), members, known: BTreeSet::new() }),
            other => Err(Refusal::invalid(name, format!("{name} is {}", kind(&other)), "a JSON object")),
        }
    }

    /// The full name of a member, as refusals say it.
    pub(super) fn name(&self, member: &str) -> String {
        format!("{}{member}", self.at)
    }

    /// A member as it is; `null` counts as left out.
    pub(super) fn value(&mut self, member: &str) -> Option<Value> {
        self.known.insert(member.into());
        self.members.remove(member).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, member: &str) -> Result<Option<String>, Refusal> {
        match self.value(member) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(other) => Err(self.wrong(member, &other, "a text that is not empty")),
        }
    }

    pub(super) fn texts(&mut self, member: &str) -> Result<Option<Vec<String>>, Refusal> {
        let Some(value) = self.value(member) else { return Ok(None) };
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let texts = value.as_array().and_then(|values| values.iter().map(text).collect());
        texts.map(Some).ok_or_else(|| self.wrong(member, &value, "an array of texts that are not empty"))
    }

    pub(super) fn boolean(&mut self, member: &str) -> Result<Option<bool>, Refusal> {
        match self.value(member) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(Value::String(text)) if text == "true" || text == "false" => Ok(Some(text == "true")),
            Some(other) => Err(self.wrong(member, &other, "true or false")),
        }
    }

    pub(super) fn number(&mut self, member: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.value(member) else { return Ok(None) };
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let expected = format!("a whole number from {} to {}", range.start(), range.end());
                Err(self.wrong(member, &value, &expected))
            }
        }
    }

    pub(super) fn decimal(&mut self, member: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, Refusal> {
        let Some(value) = self.value(member) else { return Ok(None) };
        match value.as_f64().filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let expected = format!("a number from {} to {}", range.start(), range.end());
                Err(self.wrong(member, &value, &expected))
            }
        }
    }

    pub(super) fn object(&mut self, member: &str) -> Result<Option<Self>, Refusal> {
        let name = self.name(member);
        self.value(member).map(|value| Self::below(&name, value)).transpose()
    }

    pub(super) fn required<T>(&self, member: &str, value: Option<T>, expected: &str) -> Result<T, Refusal> {
        let name = self.name(member);
        value.ok_or_else(|| Refusal::invalid(&name, format!("{name} is missing"), expected))
    }

    pub(super) fn wrong(&self, member: &str, value: &Value, expected: &str) -> Refusal {
        let name = self.name(member);
        Refusal::invalid(&name, format!("{name} is {}", kind(value)), expected)
    }

    /// Everything at once.
    pub(super) fn whole(&mut self) -> Value {
        Value::Object(std::mem::take(&mut self.members))
    }

    /// Refuses what nobody has asked for.
    pub(super) fn finish(&self) -> Result<(), Refusal> {
        let Some(member) = self.members.keys().next() else { return Ok(()) };
        let name = self.name(member);
        let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        let expected = match known.is_empty() {
            true => "no fields at all".to_owned(),
            false => format!("only the fields {}", known.join(", ")),
        };
        let error = match nearest(member, &known) {
            Some(near) => format!("the field {name} is not known; is {} meant?", self.name(near)),
            None => format!("the field {name} is not known"),
        };
        Err(Refusal::invalid(&name, error, expected))
    }
}

/// The name that a misspelt one is likely to mean.
fn nearest<'a>(misspelt: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |name: &&str| strsim::normalized_damerau_levenshtein(&misspelt.to_lowercase(), &name.to_lowercase());
    let near = known.iter().copied().max_by(|one, other| likeness(one).total_cmp(&likeness(other)))?;
    (likeness(&near) >= 0.6).then_some(near)
}

/// A value in few words, whatever a client has sent.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) if text.chars().count() > 60 => {
            format!("{:?}…", text.chars().take(60).collect::<String>())
        }
        other => other.to_string(),
    }
}
