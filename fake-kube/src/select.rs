//! Label and field selectors.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{kinds::Builtin, status::Status};

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
        let mut terms = Vec::new();
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            let term = parse_label_term(part)
                .ok_or_else(|| Status::bad_request(format!("unable to parse requirement: found '{part}'")))?;
            terms.push(term);
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

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (position, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn is_label_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
}

fn parse_label_term(part: &str) -> Option<LabelTerm> {
    let term = |key: &str, test| is_label_key(key.trim()).then(|| LabelTerm { key: key.trim().to_owned(), test });
    if let Some(key) = part.strip_prefix('!') {
        return term(key, LabelTest::DoesNotExist);
    }
    if let Some(inner) = part.strip_suffix(')') {
        let (head, list) = inner.split_once('(')?;
        let values = list.split(',').map(|value| value.trim().to_owned()).collect();
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => term(key, LabelTest::In(values)),
            "notin" => term(key, LabelTest::NotIn(values)),
            _ => None,
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return term(key, LabelTest::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return term(key, LabelTest::In(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = part.split_once('>') {
        return term(key, LabelTest::Greater(value.trim().parse().ok()?));
    }
    if let Some((key, value)) = part.split_once('<') {
        return term(key, LabelTest::Less(value.trim().parse().ok()?));
    }
    term(part, LabelTest::Exists)
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
                return Err(Status::bad_request(format!("field label not supported: {}", term.path)));
            }
        }
        Ok(())
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
        Builtin::ReplicaSet => &["status.replicas"],
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
