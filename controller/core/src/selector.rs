//! Kubernetes' label selectors.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;

/// Whether every label and every expression of the selector matches. An operator the API server would not have let
/// through matches nothing.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let value = |key: &str| labels.get(key).map(String::as_str);
    let equal = selector.match_labels.iter().flatten().all(|(key, wanted)| value(key) == Some(wanted));
    equal
        && selector.match_expressions.iter().flatten().all(|expression| {
            let listed = |actual: &str| expression.values.iter().flatten().any(|wanted| wanted == actual);
            match expression.operator.as_str() {
                "In" => value(&expression.key).is_some_and(listed),
                "NotIn" => !value(&expression.key).is_some_and(listed),
                "Exists" => value(&expression.key).is_some(),
                "DoesNotExist" => value(&expression.key).is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_selector_matches_as_kubernetes_says() {
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]});
        for (selector, web, none) in [
            (json!({}), true, true),
            (json!({"matchLabels": {"app": "web"}}), true, false),
            (json!({"matchLabels": {"app": "web", "tier": "front"}}), false, false),
            (expression("In", json!(["db", "web"])), true, false),
            (expression("In", json!([])), false, false),
            (expression("NotIn", json!(["db"])), true, true),
            (expression("NotIn", json!(["web"])), false, true),
            (expression("Exists", json!(null)), true, false),
            (expression("DoesNotExist", json!(null)), false, true),
            (expression("Near", json!(["web"])), false, false),
        ] {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
            assert_eq!(matches(&parsed, &labels), web, "{selector} on app=web");
            assert_eq!(matches(&parsed, &BTreeMap::new()), none, "{selector} on no label");
        }
    }
}
