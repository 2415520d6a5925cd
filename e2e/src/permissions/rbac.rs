//! The rules of Roles and ClusterRoles, one verb on one resource at a time.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// How the core group, whose name is empty, is written.
const CORE: &str = "core";

/// One verb on one resource, allowed by one role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// The role's name.
    pub role: String,
    /// The API group, empty for the core group.
    pub group: String,
    /// The resource, with its subresource.
    pub resource: String,
    /// The verb.
    pub verb: String,
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, role, group, resource, verb } = self;
        let group = if group.is_empty() { CORE } else { group };
        write!(formatter, "{kind}/{role}/{group}/{resource}/{verb}")
    }
}

impl FromStr for Rule {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('/').collect();
        let [kind @ ("Role" | "ClusterRole"), role, group, resource @ .., verb] = parts.as_slice() else {
            return Err(());
        };
        if resource.is_empty() || parts.iter().any(|part| part.is_empty()) {
            return Err(());
        }
        let group = if *group == CORE { "" } else { group };
        Ok(Self {
            kind: (*kind).to_owned(),
            role: (*role).to_owned(),
            group: group.to_owned(),
            resource: resource.join("/"),
            verb: (*verb).to_owned(),
        })
    }
}

/// The rules of the roles among some objects that are bound to somebody among them: a role that is only aggregated to others
/// is for people.
pub(crate) fn rules<'a>(objects: impl Iterator<Item = &'a Value> + Clone) -> BTreeSet<Rule> {
    let bound: BTreeSet<(&str, &str)> = objects
        .clone()
        .filter_map(|object| {
            Some((object.pointer("/roleRef/kind")?.as_str()?, object.pointer("/roleRef/name")?.as_str()?))
        })
        .collect();
    objects.filter(|object| bound.contains(&name_of(object))).flat_map(rules_of).collect()
}

fn name_of(role: &Value) -> (&str, &str) {
    let text = |pointer: &str| role.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    (text("/kind"), text("/metadata/name"))
}

fn rules_of(role: &Value) -> Vec<Rule> {
    let (kind, name) = name_of(role);
    let mut found = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for verb in texts(rule, "verbs") {
                    let [group, resource, verb] = [group, resource, verb].map(str::to_owned);
                    found.push(Rule { kind: kind.to_owned(), role: name.to_owned(), group, resource, verb });
                }
            }
        }
    }
    found
}

fn texts<'a>(rule: &'a Value, field: &str) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
    rule.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice).iter().filter_map(Value::as_str)
}

/// The rules of a role without one: what the others allow stays as it is.
pub(crate) fn without(role: &Value, removed: &Rule) -> Value {
    let mut kept = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let holds = |field: &str, value: &str| texts(rule, field).any(|text| text == value);
        let concerns = holds("apiGroups", &removed.group)
            && holds("resources", &removed.resource)
            && holds("verbs", &removed.verb);
        if !concerns {
            kept.push(rule.clone());
            continue;
        }
        // The rule for the other groups, for the other resources of this group, and for the other verbs on this resource.
        for (field, value) in
            [("apiGroups", &removed.group), ("resources", &removed.resource), ("verbs", &removed.verb)]
        {
            let others: Vec<&str> = texts(rule, field).filter(|text| text != value).collect();
            if others.is_empty() {
                continue;
            }
            let mut part = rule.clone();
            part[field] = json!(others);
            if field != "apiGroups" {
                part["apiGroups"] = json!([removed.group]);
            }
            if field == "verbs" {
                part["resources"] = json!([removed.resource]);
            }
            kept.push(part);
        }
    }
    let mut role = role.clone();
    role["rules"] = json!(kept);
    role
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role() -> Value {
        json!({
            "kind": "ClusterRole", "metadata": {"name": "karpenter-core"},
            "rules": [
                {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list"]},
                {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["patch"],
                 "resourceNames": ["karpenter-leader-election"]},
            ],
        })
    }

    fn binding() -> Value {
        json!({"kind": "ClusterRoleBinding", "roleRef": {"kind": "ClusterRole", "name": "karpenter-core"}})
    }

    #[test]
    fn rules_are_told_one_by_one_and_only_of_roles_that_are_bound() {
        let admin = json!({"kind": "ClusterRole", "metadata": {"name": "karpenter-admin"},
            "rules": [{"apiGroups": ["karpenter.sh"], "resources": ["nodepools"], "verbs": ["delete"]}]});
        let objects = [role(), binding(), admin];
        let names: Vec<String> = rules(objects.iter()).iter().map(ToString::to_string).collect();
        assert_eq!(
            names,
            [
                "ClusterRole/karpenter-core/core/nodes/get",
                "ClusterRole/karpenter-core/core/nodes/list",
                "ClusterRole/karpenter-core/core/pods/get",
                "ClusterRole/karpenter-core/core/pods/list",
                "ClusterRole/karpenter-core/core/pods/eviction/create",
                "ClusterRole/karpenter-core/coordination.k8s.io/leases/patch",
            ]
        );
    }

    #[test]
    fn taking_one_away_leaves_exactly_the_others() {
        let all = rules([role(), binding()].iter());
        for removed in &all {
            let left = rules([without(&role(), removed), binding()].iter());
            let expected: BTreeSet<Rule> = all.iter().filter(|rule| *rule != removed).cloned().collect();
            assert_eq!(left, expected, "{removed}");
        }
        let names = |role: &Value| role["rules"].as_array().unwrap().last().unwrap()["resourceNames"].clone();
        assert_eq!(
            names(&without(&role(), &"ClusterRole/karpenter-core/core/pods/get".parse().unwrap())),
            names(&role())
        );
    }
}
