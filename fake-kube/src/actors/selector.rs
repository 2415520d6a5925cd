//! Label selectors and node selector terms, parsed once. Both share the operators' meaning; node selectors add `Gt` and
//! `Lt` and the OR between terms.

use std::collections::BTreeMap;

use serde_json::Value;

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    /// `None` for an operator that does not exist.
    fn parse(value: &Value) -> Option<Self> {
        let operator = match text(&value["operator"]) {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => return None,
        };
        let values = list(&value["values"]).iter().map(|value| text(value).to_owned()).collect();
        Some(Self { key: text(&value["key"]).to_owned(), operator, values })
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|wanted| wanted == value);
        let compare = |value: &str| Some((value.parse::<i64>().ok()?, self.values.first()?.parse::<i64>().ok()?));
        match (&self.operator, value) {
            (Operator::In, Some(value)) => listed(value),
            (Operator::NotIn, Some(value)) => !listed(value),
            (Operator::NotIn | Operator::DoesNotExist, None) | (Operator::Exists, Some(_)) => true,
            (Operator::Gt, Some(value)) => compare(value).is_some_and(|(value, bound)| value > bound),
            (Operator::Lt, Some(value)) => compare(value).is_some_and(|(value, bound)| value < bound),
            _ => false,
        }
    }
}

/// A `metav1.LabelSelector`: every requirement must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// `None` when the selector is absent (it then selects nothing) or has an operator that does not exist.
    pub(crate) fn parse(value: &Value) -> Option<Self> {
        value.as_object()?;
        let mut selector = Self::default();
        for (key, value) in value["matchLabels"].as_object().into_iter().flatten() {
            selector.require(key, text(value));
        }
        for expression in list(&value["matchExpressions"]) {
            selector.0.push(Requirement::parse(expression)?);
        }
        Some(selector)
    }

    /// Adds `key in (value)`.
    pub(crate) fn require(&mut self, key: &str, value: &str) {
        self.0.push(Requirement { key: key.to_owned(), operator: Operator::In, values: vec![value.to_owned()] });
    }

    /// Adds `key notin (value)`.
    pub(crate) fn exclude(&mut self, key: &str, value: &str) {
        self.0.push(Requirement { key: key.to_owned(), operator: Operator::NotIn, values: vec![value.to_owned()] });
    }

    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels.get(&requirement.key).map(String::as_str)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One term of a node selector: labels and fields (`metadata.name`) must all match. An empty term matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeSelectorTerm {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
    readable: bool,
}

impl NodeSelectorTerm {
    pub(crate) fn parse(value: &Value) -> Self {
        let read = |field: &str| list(&value[field]).iter().map(Requirement::parse).collect::<Option<Vec<_>>>();
        let (labels, fields) = (read("matchExpressions"), read("matchFields"));
        let readable = labels.is_some() && fields.is_some();
        Self { labels: labels.unwrap_or_default(), fields: fields.unwrap_or_default(), readable }
    }

    pub(crate) fn matches(&self, node_name: &str, labels: &Labels) -> bool {
        self.readable
            && (!self.labels.is_empty() || !self.fields.is_empty())
            && self
                .labels
                .iter()
                .all(|requirement| requirement.matches(labels.get(&requirement.key).map(String::as_str)))
            && self.fields.iter().all(|field| field.key == "metadata.name" && field.matches(Some(node_name)))
    }

    /// The names this term allows when it names nodes (`matchFields: metadata.name In …`), as DaemonSet pods do.
    pub(crate) fn node_names(&self) -> Option<&[String]> {
        let field = self.fields.iter().find(|field| field.key == "metadata.name" && field.operator == Operator::In)?;
        Some(&field.values)
    }
}

/// The text of a JSON string, or nothing.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a JSON array, or none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A map of strings, such as labels.
pub(crate) fn strings(value: &Value) -> Labels {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operators_agree_with_the_api() {
        let labels = strings(&json!({"zone": "a", "cpu": "8"}));
        for (operator, key, values, expected) in [
            ("In", "zone", json!(["a", "b"]), true),
            ("In", "absent", json!(["a"]), false),
            ("NotIn", "zone", json!(["a"]), false),
            ("NotIn", "absent", json!(["a"]), true),
            ("Exists", "zone", json!([]), true),
            ("DoesNotExist", "zone", json!([]), false),
            ("DoesNotExist", "absent", json!([]), true),
            ("Gt", "cpu", json!(["7"]), true),
            ("Gt", "cpu", json!(["8"]), false),
            ("Lt", "cpu", json!(["9"]), true),
            ("Lt", "zone", json!(["9"]), false),
            ("Gt", "absent", json!(["1"]), false),
        ] {
            let term = json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
            assert_eq!(NodeSelectorTerm::parse(&term).matches("node", &labels), expected, "{operator} {key}");
        }
    }

    #[test]
    fn empty_terms_match_nothing_and_empty_selectors_everything() {
        assert!(!NodeSelectorTerm::parse(&json!({})).matches("node", &Labels::new()));
        assert!(LabelSelector::parse(&json!({})).unwrap().matches(&Labels::new()));
        assert_eq!(LabelSelector::parse(&Value::Null), None);
    }

    #[test]
    fn match_fields_compare_the_node_name() {
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["one"]}]});
        let term = NodeSelectorTerm::parse(&term);
        assert!(term.matches("one", &Labels::new()));
        assert!(!term.matches("two", &Labels::new()));
        assert_eq!(term.node_names().unwrap(), ["one"]);
    }
}
