//! Who may do what: policies, their evaluation, and AWS's refusals.
//!
//! [`admit`] is asked once for each request, before it is carried out: who calls, and whether the caller's policies give
//! every permission that the action needs (`actions::permissions` lists those). `refusal` words what they refuse. With
//! [`Iam::Off`] nothing is refused.

pub(crate) mod caller;
pub(crate) mod condition;
pub(crate) mod decision;
pub(crate) mod facts;
pub(crate) mod pattern;
pub(crate) mod policy;
pub(crate) mod refusal;
pub(crate) mod web_identity;

use crate::actions::permissions;
use crate::cloud::Cloud;
use crate::config::Iam;
use crate::error::ApiError;
use crate::journal::Denial;
use crate::wire::Call;
use crate::wire::signature::Secret;
use caller::Caller;
use decision::Asking;
use facts::Keys;
use jiff::Timestamp;

/// One permission that a request needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Permission {
    /// `ec2:RunInstances`
    pub(crate) action: String,
    /// An ARN, or `*` where the action has no resources.
    pub(crate) resource: String,
    /// The condition keys that are about this resource alone.
    pub(crate) keys: Keys,
}

/// A refusal, and the permission that was missing if policies refused.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: ApiError,
    pub(crate) denied: Option<Denial>,
}

impl Refused {
    pub(crate) fn new(error: ApiError, action: &str, resource: &str) -> Self {
        Self { error, denied: Some(Denial { action: action.to_owned(), resource: resource.to_owned() }) }
    }
}

/// A refusal that is no matter of policies.
impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self { error, denied: None }
    }
}

/// Who calls, with the condition keys of the request. An action that asks for permissions while it is carried out, as
/// CreateFleet does for each launch, needs both again.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) caller: Caller,
    pub(crate) keys: Keys,
}

impl Admitted {
    pub(crate) fn asking(&self) -> Asking<'_> {
        Asking { caller: &self.caller, common: &self.keys }
    }
}

/// Finds out who calls and, where policies are enforced, whether the call is permitted.
pub(crate) fn admit(cloud: &Cloud, now: Timestamp, call: &Call) -> Result<Admitted, Refused> {
    let caller = Caller::of(cloud, call);
    if cloud.config.iam == Iam::Off {
        return Ok(Admitted { caller, keys: Keys::default() });
    }
    let admitted = Admitted { keys: caller.keys(cloud, now, call), caller };
    check(cloud, now, call, &admitted)?;
    Ok(admitted)
}

fn check(cloud: &Cloud, now: Timestamp, call: &Call, admitted: &Admitted) -> Result<(), Refused> {
    if is_unsigned(&call.action) {
        return Ok(());
    }
    admitted.caller.check_credentials(now, call)?;
    admitted.asking().permit(cloud, call.service, || permissions::needed(cloud, call))
}

/// Whether an action is asked for by whoever has no credentials yet.
// fidelity: documented(STS API Reference, AssumeRoleWithWebIdentity; EKS Auth API Reference: calling them does not
// require AWS credentials)
pub(crate) fn is_unsigned(action: &str) -> bool {
    matches!(action, "AssumeRoleWithWebIdentity" | "AssumeRoleForPodIdentity")
}

/// What belongs to an access key: one of the configuration, or one that the account has issued.
pub(crate) fn secret_of(cloud: &Cloud, now: Timestamp, access_key_id: &str) -> Option<Secret> {
    if let Some(key) = cloud.config.access_keys.get(access_key_id) {
        return Some(Secret { key: key.clone(), token: None, expired: false });
    }
    let of_user = || cloud.identity.user_tokens.get(access_key_id).map(|(_, credentials)| credentials);
    let credentials = cloud.identity.session(access_key_id).map(|session| &session.credentials).or_else(of_user)?;
    Some(Secret {
        key: credentials.secret_access_key.clone(),
        token: Some(credentials.session_token.clone()),
        expired: credentials.expires_at <= now,
    })
}
