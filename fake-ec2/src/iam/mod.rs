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
    // fidelity: documented(STS API Reference, AssumeRoleWithWebIdentity; EKS Auth API Reference: calling them does not
    // require AWS credentials)
    if matches!(call.action.as_str(), "AssumeRoleWithWebIdentity" | "AssumeRoleForPodIdentity") {
        return Ok(());
    }
    admitted.caller.check_credentials(now, call)?;
    admitted.asking().permit(cloud, call.service, || permissions::needed(cloud, call))
}
