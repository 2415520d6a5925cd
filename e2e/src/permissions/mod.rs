//! What the controller is allowed: the rules of the chart's roles and the statements of the CloudFormation template, each
//! single permission by a name, so that one can be taken away.
//!
//! Reading order: [`Permission`], [`rbac`] (Kubernetes).

pub(crate) mod rbac;

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

#[cfg(test)]
mod tests {
    use super::*;

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
