//! What IAM creates and deletes besides instance profiles: roles and their policies, identity providers.

use super::Cloud;
use super::identity::{ManagedPolicy, OidcProvider, PolicyVersion, Role, no_such};
use super::tags::Tags;
use crate::error::ApiError;
use crate::iam::policy::{Kind, Policy};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// What a new role is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewRole {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) trust_policy: String,
    pub(crate) tags: Tags,
}

/// How long a session of a role may be asked for unless the role says otherwise.
// fidelity: documented(IAM API Reference, CreateRole: MaxSessionDuration of one hour by default)
pub(crate) const SESSION_S: u64 = 3600;
// fidelity: documented(IAM User Guide, IAM and STS quotas: five versions of a managed policy)
const MAX_VERSIONS: usize = 5;

/// What a new managed policy is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewPolicy {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) document: String,
    pub(crate) description: String,
    pub(crate) tags: Tags,
}

/// What a new identity provider is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewOidcProvider {
    /// Beginning with `https://`.
    pub(crate) url: String,
    pub(crate) client_ids: BTreeSet<String>,
    pub(crate) thumbprints: Vec<String>,
    pub(crate) tags: Tags,
}

// fidelity: documented(IAM API Reference: errors and statuses of each action); observed(2026-08): wording
impl Cloud {
    pub(crate) fn create_role(&mut self, now: Timestamp, new: NewRole) -> Result<&Role, ApiError> {
        let NewRole { name, path, trust_policy, tags } = new;
        Policy::parse(&trust_policy, Kind::Trust)?;
        if self.identity.roles.contains_key(&name) {
            return Err(exists(format!("Role with name {name} already exists.")));
        }
        let role = Role {
            id: self.ids.unique("AROA"),
            name: name.clone(),
            arn: self.arn("iam", &format!("role{path}{name}")),
            path,
            created_at: now,
            trust_policy,
            description: String::new(),
            max_session_s: SESSION_S,
            tags,
            inline_policies: BTreeMap::new(),
            attached_policies: BTreeSet::new(),
            permissions_boundary: None,
        };
        Ok(self.identity.roles.entry(name).or_insert(role))
    }

    pub(crate) fn delete_role(&mut self, name: &str) -> Result<(), ApiError> {
        let role = self.identity.role(name)?;
        if self.identity.profiles.values().any(|profile| profile.role.as_deref() == Some(name)) {
            return Err(conflict("Cannot delete entity, must remove roles from instance profile first."));
        }
        if !role.attached_policies.is_empty() {
            return Err(conflict("Cannot delete entity, must detach all policies first."));
        }
        if !role.inline_policies.is_empty() {
            return Err(conflict("Cannot delete entity, must delete policies first."));
        }
        self.identity.roles.remove(name);
        Ok(())
    }

    pub(crate) fn create_policy(&mut self, now: Timestamp, new: NewPolicy) -> Result<&ManagedPolicy, ApiError> {
        let NewPolicy { name, path, document, description, tags } = new;
        let policy = Policy::parse(&document, Kind::Identity)?;
        let arn = self.arn("iam", &format!("policy{path}{name}"));
        if self.identity.policies.values().any(|known| known.name == name && !known.arn.starts_with(AWS_POLICIES)) {
            return Err(exists(format!("A policy called {name} already exists. Duplicate names are not allowed.")));
        }
        let id = self.ids.unique("ANPA");
        let versions = BTreeMap::from([(1, PolicyVersion { policy, created_at: now })]);
        let new = ManagedPolicy {
            id,
            name,
            path,
            arn: arn.clone(),
            description,
            created_at: now,
            updated_at: now,
            versions,
            default_version: 1,
            newest_version: 1,
            tags,
        };
        Ok(self.identity.policies.entry(arn).or_insert(new))
    }

    pub(crate) fn managed_policy(&self, arn: &str) -> Result<&ManagedPolicy, ApiError> {
        self.identity.policies.get(arn).ok_or_else(|| no_such(format!("Policy {arn} was not found.")))
    }

    pub(crate) fn delete_policy(&mut self, arn: &str) -> Result<(), ApiError> {
        self.managed_policy(arn)?;
        if arn.starts_with(AWS_POLICIES) {
            return Err(ApiError::new(403, "AccessDenied", "Policies of AWS cannot be deleted."));
        }
        if self.attachments(arn) + self.bounded(arn) > 0 {
            return Err(conflict("Cannot delete a policy attached to entities."));
        }
        if self.managed_policy(arn)?.versions.len() > 1 {
            return Err(conflict(
                "This policy has more than one version. Before you delete a policy, you must delete the policy's versions. The default version is deleted with the policy.",
            ));
        }
        self.identity.policies.remove(arn);
        Ok(())
    }

    /// Adds a version to a policy of the account; its number is answered.
    pub(crate) fn create_policy_version(
        &mut self,
        now: Timestamp,
        arn: &str,
        document: &str,
        as_default: bool,
    ) -> Result<u32, ApiError> {
        let policy = Policy::parse(document, Kind::Identity)?;
        let managed = self.policy_mut(arn)?;
        if managed.versions.len() >= MAX_VERSIONS {
            let message = "A managed policy can have up to 5 versions. Before you create a new version, you must delete an existing version.";
            return Err(ApiError::new(409, "LimitExceeded", message));
        }
        managed.newest_version += 1;
        let number = managed.newest_version;
        managed.versions.insert(number, PolicyVersion { policy, created_at: now });
        managed.updated_at = now;
        if as_default {
            managed.default_version = number;
        }
        Ok(number)
    }

    /// Puts another document in the place of the one that counts, as a stack does, which keeps no older versions here.
    pub(crate) fn replace_policy(&mut self, now: Timestamp, arn: &str, policy: Policy) {
        if let Some(managed) = self.identity.policies.get_mut(arn) {
            managed.versions.insert(managed.default_version, PolicyVersion { policy, created_at: now });
            managed.updated_at = now;
        }
    }

    pub(crate) fn delete_policy_version(&mut self, arn: &str, version: &str) -> Result<(), ApiError> {
        let managed = self.policy_mut(arn)?;
        let number = version_number(managed, version)?;
        if number == managed.default_version {
            return Err(conflict("Cannot delete the default version of a policy."));
        }
        managed.versions.remove(&number);
        Ok(())
    }

    pub(crate) fn set_default_policy_version(
        &mut self,
        now: Timestamp,
        arn: &str,
        version: &str,
    ) -> Result<(), ApiError> {
        let managed = self.policy_mut(arn)?;
        (managed.default_version, managed.updated_at) = (version_number(managed, version)?, now);
        Ok(())
    }

    /// A policy of the account's own; AWS's cannot be changed.
    pub(crate) fn policy_mut(&mut self, arn: &str) -> Result<&mut ManagedPolicy, ApiError> {
        if arn.starts_with(AWS_POLICIES) {
            return Err(ApiError::new(403, "AccessDenied", "Policies of AWS cannot be changed."));
        }
        let missing = || no_such(format!("Policy {arn} was not found."));
        self.identity.policies.get_mut(arn).ok_or_else(missing)
    }

    /// How many roles a managed policy is attached to.
    pub(crate) fn attachments(&self, arn: &str) -> usize {
        self.identity.roles.values().filter(|role| role.attached_policies.contains(arn)).count()
    }

    /// How many roles a policy bounds.
    pub(crate) fn bounded(&self, arn: &str) -> usize {
        self.identity.roles.values().filter(|role| role.permissions_boundary.as_deref() == Some(arn)).count()
    }

    pub(crate) fn check_boundary(&self, arn: &str) -> Result<(), ApiError> {
        match self.identity.policies.contains_key(arn) {
            true => Ok(()),
            false => Err(no_such(format!("Scope ARN: {arn} does not exist or is not attachable."))),
        }
    }

    /// Bounds a role, or no longer.
    // fidelity: documented(IAM API Reference, PutRolePermissionsBoundary, DeleteRolePermissionsBoundary)
    pub(crate) fn set_boundary(&mut self, role: &str, arn: Option<&str>) -> Result<(), ApiError> {
        arn.map_or(Ok(()), |arn| self.check_boundary(arn))?;
        self.role_mut(role)?.permissions_boundary = arn.map(str::to_owned);
        Ok(())
    }

    pub(crate) fn attach_policy(&mut self, role: &str, arn: &str) -> Result<(), ApiError> {
        self.identity.role(role)?;
        if !self.identity.policies.contains_key(arn) {
            return Err(no_such(format!("Policy {arn} does not exist or is not attachable.")));
        }
        self.role_mut(role)?.attached_policies.insert(arn.into());
        Ok(())
    }

    pub(crate) fn detach_policy(&mut self, role: &str, arn: &str) -> Result<(), ApiError> {
        match self.role_mut(role)?.attached_policies.remove(arn) {
            true => Ok(()),
            false => Err(no_such(format!("Policy {arn} was not found."))),
        }
    }

    pub(crate) fn put_role_policy(&mut self, role: &str, name: &str, document: &str) -> Result<(), ApiError> {
        let policy = Policy::parse(document, Kind::Identity)?;
        self.role_mut(role)?.inline_policies.insert(name.into(), policy);
        Ok(())
    }

    pub(crate) fn delete_role_policy(&mut self, role: &str, name: &str) -> Result<(), ApiError> {
        match self.role_mut(role)?.inline_policies.remove(name) {
            Some(_) => Ok(()),
            None => Err(no_role_policy(name)),
        }
    }

    pub(crate) fn update_trust_policy(&mut self, role: &str, document: &str) -> Result<(), ApiError> {
        Policy::parse(document, Kind::Trust)?;
        document.clone_into(&mut self.role_mut(role)?.trust_policy);
        Ok(())
    }

    pub(crate) fn role_mut(&mut self, name: &str) -> Result<&mut Role, ApiError> {
        self.identity.role(name)?;
        Ok(self.identity.roles.get_mut(name).expect("looked up above"))
    }

    // fidelity: documented(IAM API Reference, CreateOpenIDConnectProvider)
    pub(crate) fn create_oidc_provider(
        &mut self,
        now: Timestamp,
        new: NewOidcProvider,
    ) -> Result<&OidcProvider, ApiError> {
        let NewOidcProvider { url, client_ids, thumbprints, tags } = new;
        let host_and_path = url.strip_prefix("https://").map(|rest| rest.trim_end_matches('/').to_owned());
        let host_and_path = host_and_path.filter(|rest| !rest.is_empty()).ok_or_else(|| {
            ApiError::client(
                "ValidationError",
                format!("Invalid Open ID Connect Provider URL {url}: it must begin with https://"),
            )
        })?;
        let arn = self.arn("iam", &format!("oidc-provider/{host_and_path}"));
        if self.identity.oidc_providers.contains_key(&arn) {
            return Err(exists(format!("Provider with url https://{host_and_path} already exists.")));
        }
        let new = OidcProvider { arn: arn.clone(), host_and_path, client_ids, thumbprints, created_at: now, tags };
        Ok(self.identity.oidc_providers.entry(arn).or_insert(new))
    }

    pub(crate) fn oidc_provider(&self, arn: &str) -> Result<&OidcProvider, ApiError> {
        let missing = || no_such(format!("OpenIDConnect Provider not found for arn {arn}"));
        self.identity.oidc_providers.get(arn).ok_or_else(missing)
    }
}

/// The number in `v1`, if the policy has such a version.
pub(crate) fn version_number(policy: &ManagedPolicy, version: &str) -> Result<u32, ApiError> {
    let number = version.strip_prefix('v').and_then(|number| number.parse().ok());
    number
        .filter(|number| policy.versions.contains_key(number))
        .ok_or_else(|| no_such(format!("Policy {} version {version} does not exist or is not attachable.", policy.arn)))
}

pub(crate) fn no_role_policy(name: &str) -> ApiError {
    no_such(format!("The role policy with name {name} cannot be found."))
}

fn exists(message: String) -> ApiError {
    ApiError::new(409, "EntityAlreadyExists", message)
}

fn conflict(message: &str) -> ApiError {
    ApiError::new(409, "DeleteConflict", message)
}

/// How the ARNs of AWS's own managed policies begin.
pub(crate) const AWS_POLICIES: &str = "arn:aws:iam::aws:policy/";

/// AWS's managed policies that node roles and administrators use, with the actions they allow on everything.
// fidelity: documented(AWS Managed Policy Reference: each policy, at its version of 2026-08); conditions and resources of
// single statements are left out.
const MANAGED: [(&str, &[&str]); 6] = [
    ("AdministratorAccess", &["*"]),
    ("AmazonEKSWorkerNodePolicy", &["ec2:Describe*", "eks:DescribeCluster", "eks-auth:AssumeRoleForPodIdentity"]),
    (
        "AmazonEKS_CNI_Policy",
        &[
            "ec2:AssignPrivateIpAddresses",
            "ec2:AttachNetworkInterface",
            "ec2:CreateNetworkInterface",
            "ec2:CreateTags",
            "ec2:DeleteNetworkInterface",
            "ec2:Describe*",
            "ec2:DetachNetworkInterface",
            "ec2:ModifyNetworkInterfaceAttribute",
            "ec2:UnassignPrivateIpAddresses",
        ],
    ),
    ("AmazonEC2ContainerRegistryPullOnly", &["ecr:BatchGetImage", "ecr:BatchImportUpstreamImage", "ecr:Get*"]),
    (
        "AmazonEC2ContainerRegistryReadOnly",
        &["ecr:BatchCheck*", "ecr:BatchGetImage", "ecr:Describe*", "ecr:Get*", "ecr:List*"],
    ),
    (
        "AmazonSSMManagedInstanceCore",
        &["ec2messages:*", "ssm:Get*", "ssm:ListAssociations", "ssm:Put*", "ssm:Update*", "ssmmessages:*"],
    ),
];

/// AWS's own policies, by ARN.
pub(crate) fn managed_by_aws(now: Timestamp) -> BTreeMap<String, ManagedPolicy> {
    let policy = |(name, actions): &(&str, &[&str])| {
        let document = serde_json::json!({"Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]});
        let arn = format!("{AWS_POLICIES}{name}");
        let policy = Policy::parse(&document.to_string(), Kind::Identity).expect("the table is well-formed");
        let policy = ManagedPolicy {
            id: format!("ANPA{name}"),
            name: (*name).to_owned(),
            path: "/".into(),
            arn: arn.clone(),
            description: String::new(),
            created_at: now,
            updated_at: now,
            versions: BTreeMap::from([(1, PolicyVersion { policy, created_at: now })]),
            default_version: 1,
            newest_version: 1,
            tags: Tags::new(),
        };
        (arn, policy)
    };
    MANAGED.iter().map(policy).collect()
}
