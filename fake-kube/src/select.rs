//! Label and field selectors.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    builtin::metadata::{label_value_errors, qualified_name_errors},
    kinds::Builtin,
    status::Status,
};

/// What a list or watch is narrowed to. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListSelector {
    /// Requirements on `metadata.labels`.
    pub labels: LabelSelector,
    /// Requirements on fields.
    pub fields: FieldSelector,
}

impl ListSelector {
    /// Everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// What a label selector's text selects, such as `app=web,tier!=cache`.
    pub fn labels(text: &str) -> Result<Self, Status> {
        Ok(Self { labels: LabelSelector::parse(text)?, ..Self::default() })
    }

    /// What a field selector's text selects, such as `status.phase=Pending`.
    pub fn fields(text: &str) -> Result<Self, Status> {
        Ok(Self { fields: FieldSelector::parse(text)?, ..Self::default() })
    }

    /// The pods bound to one node; answered from an index.
    pub fn on_node(node: &str) -> Self {
        let term = FieldTerm { path: "spec.nodeName".into(), equal: true, value: node.into() };
        Self { fields: FieldSelector(vec![term]), ..Self::default() }
    }

    /// Whether the object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.matches(&object["metadata"]["labels"]) && self.fields.matches(object)
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.0.is_empty() && self.fields.0.is_empty()
    }
}

/// A conjunction of label requirements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelSelector(Vec<LabelTerm>);

#[derive(Clone, Debug, PartialEq)]
struct LabelTerm {
    key: String,
    test: LabelTest,
}

#[derive(Clone, Debug, PartialEq)]
enum LabelTest {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Greater(i64),
    Less(i64),
    Never,
}

impl LabelSelector {
    /// Parses a selector's text: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, `a>1`, `a<1`.
    pub fn parse(text: &str) -> Result<Self, Status> {
        let tokens = tokens(text);
        let mut rest = tokens.as_slice();
        let mut terms = Vec::new();
        while let [first, ..] = rest {
            if first == "," && terms.is_empty() {
                return Err(Status::bad_request("found ',', expected: !, identifier, or 'end of string'"));
            }
            let (term, after) = requirement(rest)
                .map_err(|error| Status::bad_request(format!("unable to parse requirement: {error}")))?;
            terms.push(term);
            rest = match after {
                [] => after,
                [comma, following @ ..] if comma == "," => {
                    if following.first().is_none_or(|next| !is_word(next) && next != "!") {
                        let found = following.first().map_or("", String::as_str);
                        let message = format!("found '{found}', expected: identifier after ','");
                        return Err(Status::bad_request(message));
                    }
                    following
                }
                [other, ..] => {
                    let message = format!("found '{other}', expected: ',' or 'end of string'");
                    return Err(Status::bad_request(message));
                }
            };
        }
        Ok(Self(terms))
    }

    /// A `LabelSelector` object (`matchLabels`, `matchExpressions`). Absent selects nothing; empty selects everything.
    pub fn from_object(selector: &Value) -> Self {
        let Value::Object(fields) = selector else {
            return Self(vec![LabelTerm { key: String::new(), test: LabelTest::Never }]);
        };
        let mut terms = Vec::new();
        for (key, value) in fields.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            terms.push(LabelTerm { key: key.clone(), test: LabelTest::In(vec![value]) });
        }
        for expression in fields.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let key = expression["key"].as_str().unwrap_or_default().to_owned();
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            let test = match expression["operator"].as_str().unwrap_or_default() {
                "In" => LabelTest::In(values),
                "NotIn" => LabelTest::NotIn(values),
                "Exists" => LabelTest::Exists,
                "DoesNotExist" => LabelTest::DoesNotExist,
                _ => LabelTest::Never,
            };
            terms.push(LabelTerm { key, test });
        }
        Self(terms)
    }

    /// Whether a labels map (or null) is selected.
    pub fn matches(&self, labels: &Value) -> bool {
        self.0.iter().all(|term| {
            let found = labels.get(&term.key).and_then(Value::as_str);
            match (&term.test, found) {
                (LabelTest::In(values), Some(found)) => values.iter().any(|value| value == found),
                (LabelTest::NotIn(values), Some(found)) => values.iter().all(|value| value != found),
                (LabelTest::NotIn(_), None) => true,
                (LabelTest::Exists, found) => found.is_some(),
                (LabelTest::DoesNotExist, found) => found.is_none(),
                (LabelTest::Greater(bound), Some(found)) => found.parse::<i64>().is_ok_and(|found| found > *bound),
                (LabelTest::Less(bound), Some(found)) => found.parse::<i64>().is_ok_and(|found| found < *bound),
                (LabelTest::In(_) | LabelTest::Greater(_) | LabelTest::Less(_), None) | (LabelTest::Never, _) => false,
            }
        })
    }
}

/// Words, and the signs between them.
fn tokens(text: &str) -> Vec<String> {
    const SIGNS: &str = "=!<>(),";
    let mut tokens: Vec<String> = Vec::new();
    let mut apart = true;
    for character in text.chars() {
        let sign = SIGNS.contains(character);
        match tokens.last_mut() {
            _ if character.is_whitespace() => {
                apart = true;
                continue;
            }
            Some(last)
                if !apart && (!sign && is_word(last) || character == '=' && matches!(last.as_str(), "=" | "!")) =>
            {
                last.push(character);
            }
            _ => tokens.push(character.to_string()),
        }
        apart = false;
    }
    tokens
}

fn is_word(token: &str) -> bool {
    !token.contains(['=', '!', '<', '>', '(', ')', ','])
}

/// One requirement at the beginning of some tokens, and what follows it.
fn requirement(tokens: &[String]) -> Result<(LabelTerm, &[String]), String> {
    let (negated, rest) = match tokens {
        [first, rest @ ..] if first == "!" => (true, rest),
        _ => (false, tokens),
    };
    let [key, rest @ ..] = rest else { return Err("found '', expected: identifier".into()) };
    if !is_word(key) {
        return Err(format!("found '{key}', expected: identifier"));
    }
    let term = |test| LabelTerm { key: key.clone(), test };
    if let Some(error) = qualified_name_errors(key).first() {
        return Err(format!("<nil>: Invalid value: {key:?}: {error}"));
    }
    let Some(operator) = rest.first().filter(|next| *next != "," && !negated) else {
        let test = if negated { LabelTest::DoesNotExist } else { LabelTest::Exists };
        return Ok((term(test), rest));
    };
    let rest = &rest[1..];
    match operator.as_str() {
        "in" | "notin" => {
            let (values, rest) = values(rest)?;
            let test = if operator == "in" { LabelTest::In(values) } else { LabelTest::NotIn(values) };
            Ok((term(test), rest))
        }
        "=" | "==" | "!=" | "<" | ">" => {
            let (value, rest) = match rest {
                [value, rest @ ..] if is_word(value) => (value.clone(), rest),
                [] => (String::new(), rest),
                [comma, ..] if comma == "," => (String::new(), rest),
                [other, ..] => return Err(format!("found '{other}', expected: identifier")),
            };
            if let Some(error) = label_value_errors(&value).first() {
                return Err(format!("values[0][{key}]: Invalid value: {value:?}: {error}"));
            }
            let number = || {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                value.parse().map_err(|_| format!("values[0]: Invalid value: {value:?}: {detail}"))
            };
            Ok((
                term(match operator.as_str() {
                    "<" => LabelTest::Less(number()?),
                    ">" => LabelTest::Greater(number()?),
                    "!=" => LabelTest::NotIn(vec![value]),
                    _ => LabelTest::In(vec![value]),
                }),
                rest,
            ))
        }
        other => Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
    }
}

/// The values of a set, in parentheses.
fn values(tokens: &[String]) -> Result<(Vec<String>, &[String]), String> {
    let Some((open, mut rest)) = tokens.split_first() else { return Err("found '' expected: '('".into()) };
    if open != "(" {
        return Err(format!("found '{open}' expected: '('"));
    }
    let mut values = vec![String::new()];
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        match token.as_str() {
            ")" => {
                values.sort();
                values.dedup();
                return Ok((values, rest));
            }
            "," => values.push(String::new()),
            word if is_word(word) => {
                if let Some(last) = values.last_mut() {
                    *last = word.to_owned();
                }
            }
            other => return Err(format!("found '{other}', expected: ',', or identifier")),
        }
    }
    Err("found '', expected: ',' or ')'".into())
}

/// A conjunction of field comparisons.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSelector(Vec<FieldTerm>);

#[derive(Clone, Debug, PartialEq)]
struct FieldTerm {
    path: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Parses a selector's text: `path=value`, `path==value`, `path!=value`, joined by commas.
    pub fn parse(text: &str) -> Result<Self, Status> {
        let mut terms = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (path, equal, value) = if let Some((path, value)) = part.split_once("!=") {
                (path, false, value)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, true, value)
            } else {
                return Err(Status::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            terms.push(FieldTerm { path: path.to_owned(), equal, value: value.to_owned() });
        }
        Ok(Self(terms))
    }

    /// Whether the object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| (field_text(object, &term.path) == term.value) == term.equal)
    }

    /// The value that `path` must equal, if the selector says so.
    pub(crate) fn required(&self, path: &str) -> Option<&str> {
        self.0.iter().find(|term| term.equal && term.path == path).map(|term| term.value.as_str())
    }

    /// Refuses paths that the kind has no selectable field for.
    pub(crate) fn check(&self, builtin: Builtin, selectable: &[String]) -> Result<(), Status> {
        for term in &self.0 {
            let known = matches!(term.path.as_str(), "metadata.name" | "metadata.namespace")
                || selectable_fields(builtin).contains(&term.path.as_str())
                || selectable.contains(&term.path);
            if !known {
                return Err(Status::bad_request(unselectable(builtin, &term.path)));
            }
        }
        Ok(())
    }
}

/// Kinds with fields of their own have another sentence than the rest.
fn unselectable(builtin: Builtin, path: &str) -> String {
    match builtin {
        Builtin::Job => format!("field label {path:?} not supported for batchv1.Job"),
        _ if builtin == Builtin::Custom || !selectable_fields(builtin).is_empty() => {
            format!("field label not supported: {path}")
        }
        _ => format!("{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
    }
}

fn field_text<'a>(object: &'a Value, path: &str) -> std::borrow::Cow<'a, str> {
    let found = path.split('.').try_fold(object, |value, part| value.get(part));
    match found {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Bool(value)) => value.to_string().into(),
        Some(Value::Number(number)) => number.to_string().into(),
        // A field that is absent reads as its zero value, which is `false` for the one boolean among them.
        _ if path == "spec.unschedulable" || path == "spec.hostNetwork" => "false".into(),
        _ => "".into(),
    }
}

fn selectable_fields(builtin: Builtin) -> &'static [&'static str] {
    match builtin {
        Builtin::Pod => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        Builtin::Node => &["spec.unschedulable"],
        Builtin::Namespace => &["status.phase"],
        Builtin::Job => &["status.successful"],
        Builtin::ResourceSlice => &["spec.driver", "spec.nodeName"],
        Builtin::Secret => &["type"],
        Builtin::Service => &["spec.clusterIP", "spec.type"],
        Builtin::Event => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingComponent",
            "reportingController",
            "source",
            "type",
        ],
        _ => &[],
    }
}

/// Flat labels for callers that hold a map.
impl From<&BTreeMap<String, String>> for LabelSelector {
    fn from(labels: &BTreeMap<String, String>) -> Self {
        let terms =
            labels.iter().map(|(key, value)| LabelTerm { key: key.clone(), test: LabelTest::In(vec![value.clone()]) });
        Self(terms.collect())
    }
}

impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, term) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            let key = &term.key;
            match &term.test {
                LabelTest::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0])?,
                LabelTest::In(values) => write!(f, "{key} in ({})", values.join(","))?,
                LabelTest::NotIn(values) => write!(f, "{key} notin ({})", values.join(","))?,
                LabelTest::Exists => write!(f, "{key}")?,
                LabelTest::DoesNotExist => write!(f, "!{key}")?,
                LabelTest::Greater(bound) => write!(f, "{key}>{bound}")?,
                LabelTest::Less(bound) => write!(f, "{key}<{bound}")?,
                LabelTest::Never => write!(f, "!")?,
            }
        }
        Ok(())
    }
}
