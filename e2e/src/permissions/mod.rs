//! What the controller is allowed: the rules of the chart's roles and the statements of the CloudFormation template, each
//! single permission by a name, so that one can be taken away.
//!
//! Reading order: [`Permission`], [`rbac`] (Kubernetes), [`iam`] (AWS), [`scenario_for`] (what shows that one is needed).

pub(crate) mod iam;
pub(crate) mod rbac;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One thing that is allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Permission {
    /// One verb on one resource, by a role of the chart: `rbac/ClusterRole/karpenter-core/core/pods/eviction/create`.
    Rbac(rbac::Rule),
    /// One action by one statement of the CloudFormation template: `iam/AllowScopedDeletion/ec2:TerminateInstances`.
    Iam {
        /// The statement's Sid.
        statement: String,
        /// The action, with its service.
        action: String,
    },
}

impl fmt::Display for Permission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rbac(rule) => write!(formatter, "rbac/{rule}"),
            Self::Iam { statement, action } => write!(formatter, "iam/{statement}/{action}"),
        }
    }
}

impl FromStr for Permission {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = || {
            format!(
                "{text:?} is no permission: iam/STATEMENT/SERVICE:ACTION or rbac/KIND/ROLE/GROUP/RESOURCE/VERB, as `trysquare \
                 permissions` lists them"
            )
        };
        match text.split_once('/') {
            Some(("rbac", rule)) => rule.parse().map(Self::Rbac).map_err(|()| expected()),
            Some(("iam", rest)) => match rest.split_once('/') {
                Some((statement, action)) if !statement.is_empty() && action.contains(':') => {
                    Ok(Self::Iam { statement: statement.into(), action: action.into() })
                }
                _ => Err(expected()),
            },
            _ => Err(expected()),
        }
    }
}

impl From<Permission> for String {
    fn from(permission: Permission) -> Self {
        permission.to_string()
    }
}

impl TryFrom<String> for Permission {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl Permission {
    /// What the answer to whoever lacks it says.
    pub(crate) fn refusal(&self) -> String {
        match self {
            Self::Rbac(rbac::Rule { group, resource, verb, .. }) => {
                format!("cannot {verb} resource {resource:?} in API group {group:?}")
            }
            Self::Iam { action, .. } => format!("is not authorized to perform: {action}"),
        }
    }
}

/// Which scenarios show that permissions are needed.
const SCENARIOS: &str = include_str!("scenarios.yaml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    scenario: String,
    permissions: Vec<String>,
}

/// The title of the scenario that fails where a permission is missing.
///
/// # Errors
/// Where nothing is written down for it.
pub(crate) fn scenario_for(permission: &Permission) -> anyhow::Result<String> {
    let shown: Vec<Shown> = serde_yaml_ng::from_str(SCENARIOS).context("reading permissions/scenarios.yaml")?;
    let text = permission.to_string();
    let found = shown.into_iter().find(|entry| entry.permissions.iter().any(|pattern| matches(pattern, &text)));
    found
        .map(|entry| entry.scenario)
        .with_context(|| format!("permissions/scenarios.yaml names no scenario for {text}"))
}

/// Whether a text is as a pattern says, in which a star stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| matches(after, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_permission_has_a_scenario_that_exists() {
        let of = |text: &str| scenario_for(&text.parse().unwrap()).unwrap();
        assert_eq!(
            of("rbac/ClusterRole/karpenter-core/core/pods/eviction/create"),
            "Deleting a NodeClaim drains its node and ends its instance"
        );
        assert_eq!(
            of("rbac/ClusterRole/karpenter-core/core/pods/list"),
            "One pod that fits nowhere gets a node of its pool"
        );
        let all = crate::features::load(&["../features".into()]).unwrap();
        let shown: Vec<Shown> = serde_yaml_ng::from_str(SCENARIOS).unwrap();
        for entry in shown {
            let times = all.iter().filter(|scenario| scenario.name == entry.scenario).count();
            assert_eq!(times, 1, "{}", entry.scenario);
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("a/*/c", "a/b/b/c") && matches("*", "") && matches("a", "a") && matches("*c", "abc"));
        assert!(!matches("a/*/c", "a/c") && !matches("a", "ab") && !matches("*/b", "a/bc"));
    }

    #[test]
    fn permissions_are_read_as_they_are_written() {
        for text in [
            "rbac/ClusterRole/karpenter-core/core/pods/eviction/create",
            "rbac/Role/karpenter/coordination.k8s.io/leases/patch",
            "iam/AllowScopedDeletion/ec2:TerminateInstances",
        ] {
            assert_eq!(text.parse::<Permission>().unwrap().to_string(), text);
        }
        for text in
            ["", "rbac/Role/karpenter", "rbac/Secret/a/core/pods/get", "iam/AllowScopedDeletion", "ec2:RunInstances"]
        {
            let error = text.parse::<Permission>().unwrap_err();
            assert!(error.contains(&format!("{text:?}")) && error.contains("trysquare permissions"), "{error}");
        }
    }
}
