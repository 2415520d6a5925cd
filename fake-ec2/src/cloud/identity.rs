//! IAM roles, their policies and sessions, instance profiles, identity providers; EKS clusters and who may join them.

use super::cluster::{AssociatedPolicy, ControlPlane};
use super::roles::managed_by_aws;
use super::tags::Tags;
use crate::error::ApiError;
use crate::iam::policy::Policy;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Sessions kept, also expired ones, which are told so. A controller renews its credentials hourly; a thousand reach back
/// weeks and stay under a megabyte.
const MAX_SESSIONS: usize = 1_000;

/// An IAM role.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Role {
    pub id: String,
    pub name: String,
    pub path: String,
    pub arn: String,
    pub created_at: Timestamp,
    pub trust_policy: String,
    pub description: String,
    /// How long a session may be asked for.
    pub max_session_s: u64,
    pub tags: Tags,
    /// Policies of its own, by name.
    pub(crate) inline_policies: BTreeMap<String, Policy>,
    /// The ARNs of attached managed policies.
    pub attached_policies: BTreeSet<String>,
    /// The ARN of the managed policy beyond which nothing is allowed.
    #[serde(default)]
    pub permissions_boundary: Option<String>,
}

/// A managed policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ManagedPolicy {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) arn: String,
    pub(crate) description: String,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    /// By number; never empty.
    pub(crate) versions: BTreeMap<u32, PolicyVersion>,
    /// The number of the version that counts.
    pub(crate) default_version: u32,
    /// The number of the newest version there ever was.
    pub(crate) newest_version: u32,
    pub(crate) tags: Tags,
}

/// One version of a managed policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PolicyVersion {
    pub(crate) policy: Policy,
    pub(crate) created_at: Timestamp,
}

impl ManagedPolicy {
    /// The version that counts.
    pub(crate) fn policy(&self) -> &Policy {
        &self.versions.get(&self.default_version).expect("the default version cannot be deleted").policy
    }
}

/// An OpenID Connect provider that the account trusts to name its callers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OidcProvider {
    pub(crate) arn: String,
    /// Without `https://`, as condition keys begin.
    pub(crate) host_and_path: String,
    pub(crate) client_ids: BTreeSet<String>,
    pub(crate) thumbprints: Vec<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) tags: Tags,
}

/// Temporary credentials of a role, as STS issues them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Credentials {
    pub access_key_id: String,
    pub secret_access_key: String,
    pub session_token: String,
    pub expires_at: Timestamp,
}

/// What a session was limited to when it began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SessionPolicies {
    pub(crate) inline: Option<Policy>,
    /// ARNs of managed policies.
    pub(crate) managed: Vec<String>,
}

/// A role as somebody has assumed it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) role_name: String,
    pub(crate) role_id: String,
    pub(crate) session_name: String,
    pub(crate) credentials: Credentials,
    pub(crate) issued_at: Timestamp,
    /// Session tags, which come over the role's own.
    pub(crate) tags: Tags,
    /// Policies given with the session, beyond which nothing is allowed.
    #[serde(default)]
    pub(crate) policies: SessionPolicies,
}

/// An instance profile: a box for at most one role.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) roles: BTreeMap<String, Role>,
    pub(crate) profiles: BTreeMap<String, InstanceProfile>,
    /// The account's own managed policies, by ARN.
    pub(crate) policies: BTreeMap<String, ManagedPolicy>,
    /// By ARN.
    pub(crate) oidc_providers: BTreeMap<String, OidcProvider>,
    /// What issuers sign with, as a JSON Web Key Set, by issuer URL; kept apart from the providers, as the issuer's own
    /// web site keeps them.
    pub(crate) issuer_keys: BTreeMap<String, serde_json::Value>,
    /// By access key id.
    sessions: BTreeMap<String, Session>,
    session_order: VecDeque<String>,
    /// Users' names and what GetSessionToken gave them, by access key id.
    pub(crate) user_tokens: BTreeMap<String, (String, Credentials)>,
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

impl Identity {
    /// An account with AWS's own policies.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { policies: managed_by_aws(now), ..Self::default() }
    }

    pub(crate) fn session(&self, access_key_id: &str) -> Option<&Session> {
        self.sessions.get(access_key_id)
    }

    pub(crate) fn add_session(&mut self, session: Session) {
        let key = session.credentials.access_key_id.clone();
        self.sessions.insert(key.clone(), session);
        self.session_order.push_back(key);
        if self.session_order.len() > MAX_SESSIONS {
            self.session_order.pop_front().and_then(|oldest| self.sessions.remove(&oldest));
        }
    }

    /// Keeps what a user was given; what has expired long ago goes, so that an expired token is still told from a wrong one.
    pub(crate) fn add_user_token(&mut self, now: Timestamp, user: &str, token: Credentials) {
        let day = jiff::SignedDuration::from_hours(24);
        let is_recent = |token: &Credentials| token.expires_at.checked_add(day).is_ok_and(|until| now < until);
        self.user_tokens.retain(|_, (_, token)| is_recent(token));
        if self.user_tokens.len() >= MAX_SESSIONS {
            self.user_tokens.pop_first();
        }
        self.user_tokens.insert(token.access_key_id.clone(), (user.to_owned(), token));
    }

    /// The same with the names by which they are known.
    pub(crate) fn documents_of(&self, role: &str) -> BTreeMap<String, serde_json::Value> {
        let role = self.roles.get(role);
        let own = role.into_iter().flat_map(|role| &role.inline_policies).map(|(name, policy)| (name.clone(), policy));
        let attached = role.into_iter().flat_map(|role| &role.attached_policies);
        let attached = attached.filter_map(|arn| Some((arn.clone(), self.policies.get(arn)?.policy())));
        own.chain(attached)
            .map(|(name, policy)| (name, serde_json::from_str(&policy.text).expect("it was read when it was stored")))
            .collect()
    }

    /// The policy that bounds a role, if one does: `None` within, where it is not there.
    pub(crate) fn boundary_of(&self, role: &str) -> Option<Option<&Policy>> {
        let arn = self.roles.get(role)?.permissions_boundary.as_ref()?;
        Some(self.policies.get(arn).map(ManagedPolicy::policy))
    }

    /// Every policy that speaks for a role: its own and the attached ones.
    pub(crate) fn policies_of(&self, role: &str) -> impl Iterator<Item = &Policy> {
        let role = self.roles.get(role);
        let attached = role.into_iter().flat_map(|role| &role.attached_policies);
        let attached = attached.filter_map(|arn| Some(self.policies.get(arn)?.policy()));
        role.into_iter().flat_map(|role| role.inline_policies.values()).chain(attached)
    }
}

pub(crate) fn no_such(message: String) -> ApiError {
    ApiError::new(404, "NoSuchEntity", message)
}

/// An EKS cluster: what a node needs to find it, and the principals it lets in.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// The issuer of its service account tokens.
    pub oidc_issuer: String,
    /// By association id.
    pub pod_identity_associations: BTreeMap<String, PodIdentityAssociation>,
    /// What its control plane is set to.
    pub control_plane: ControlPlane,
}

/// Gives the pods of a service account a role.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct PodIdentityAssociation {
    pub id: String,
    pub arn: String,
    pub namespace: String,
    pub service_account: String,
    pub role_arn: String,
    pub created_at: Timestamp,
    pub modified_at: Timestamp,
    pub tags: Tags,
}

/// Lets a principal into a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct AccessEntry {
    pub principal_arn: String,
    pub arn: String,
    /// `EC2_LINUX`, `STANDARD`, …
    pub kind: String,
    pub user_name: String,
    pub groups: Vec<String>,
    /// Access policies, by ARN.
    pub policies: BTreeMap<String, AssociatedPolicy>,
    pub created_at: Timestamp,
    pub modified_at: Timestamp,
    pub tags: Tags,
}
