//! IAM roles and instance profiles; EKS clusters and who may join them.

use super::tags::Tags;
use crate::error::ApiError;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// An IAM role.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Role {
    pub id: String,
    pub name: String,
    pub path: String,
    pub arn: String,
    pub created_at: Timestamp,
    pub trust_policy: String,
    pub tags: Tags,
}

/// An instance profile: a box for at most one role.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct InstanceProfile {
    pub id: String,
    pub name: String,
    pub path: String,
    pub arn: String,
    pub created_at: Timestamp,
    /// The role's name.
    pub role: Option<String>,
    pub tags: Tags,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) roles: BTreeMap<String, Role>,
    pub(crate) profiles: BTreeMap<String, InstanceProfile>,
}

// fidelity: documented(IAM API Reference: errors and statuses of each action); observed(2026-08, docs/spec/karpenter-aws.md §12.2): wording
impl Identity {
    pub(crate) fn role(&self, name: &str) -> Result<&Role, ApiError> {
        self.roles.get(name).ok_or_else(|| no_such(format!("The role with name {name} cannot be found.")))
    }

    pub(crate) fn profile(&self, name: &str) -> Result<&InstanceProfile, ApiError> {
        self.profiles.get(name).ok_or_else(|| no_such(format!("Instance Profile {name} cannot be found.")))
    }

    pub(crate) fn add_profile(&mut self, profile: InstanceProfile) -> Result<(), ApiError> {
        let name = profile.name.clone();
        if self.profiles.contains_key(&name) {
            return Err(ApiError::new(409, "EntityAlreadyExists", format!("Instance Profile {name} already exists.")));
        }
        self.profiles.insert(name, profile);
        Ok(())
    }

    pub(crate) fn add_role_to_profile(&mut self, profile: &str, role: &str) -> Result<(), ApiError> {
        self.profile(profile)?;
        self.role(role)?;
        let entry = self.profiles.get_mut(profile).expect("looked up above");
        if entry.role.is_some() {
            return Err(ApiError::new(
                409,
                "LimitExceeded",
                "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1",
            ));
        }
        entry.role = Some(role.into());
        Ok(())
    }

    pub(crate) fn remove_role_from_profile(&mut self, profile: &str, role: &str) -> Result<(), ApiError> {
        self.profile(profile)?;
        let entry = self.profiles.get_mut(profile).expect("looked up above");
        if entry.role.as_deref() != Some(role) {
            return Err(no_such(format!("Role {role} is not in instance profile {profile}.")));
        }
        entry.role = None;
        Ok(())
    }

    pub(crate) fn remove_profile(&mut self, name: &str) -> Result<(), ApiError> {
        if self.profile(name)?.role.is_some() {
            let message = "Cannot delete entity, must remove roles from instance profile first.";
            return Err(ApiError::new(409, "DeleteConflict", message));
        }
        self.profiles.remove(name);
        Ok(())
    }
}

fn no_such(message: String) -> ApiError {
    ApiError::new(404, "NoSuchEntity", message)
}

/// An EKS cluster: what a node needs to find it, and the principals it lets in.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Cluster {
    pub name: String,
    pub arn: String,
    pub version: String,
    pub endpoint: String,
    /// Base64.
    pub certificate_authority: String,
    pub service_cidr: String,
    pub created_at: Timestamp,
    pub subnet_ids: Vec<String>,
    pub vpc_id: String,
    pub security_group_id: String,
    /// By principal ARN.
    pub access_entries: BTreeMap<String, AccessEntry>,
}

/// Lets a principal into a cluster.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct AccessEntry {
    pub principal_arn: String,
    pub arn: String,
    /// `EC2_LINUX`, `STANDARD`, …
    pub kind: String,
    pub user_name: String,
    pub groups: Vec<String>,
    pub created_at: Timestamp,
    pub tags: Tags,
}
