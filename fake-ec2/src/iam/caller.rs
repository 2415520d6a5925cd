//! Who calls: the access key of a request, looked up.

use super::facts::Keys;
use super::policy::Asker;
use crate::cloud::Cloud;
use crate::cloud::identity::{Credentials, Session};
use crate::error::ApiError;
use crate::wire::{Call, Protocol, Service};
use jiff::Timestamp;

/// Who calls.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    /// The ARN policies and refusals name; empty for nobody.
    pub(crate) arn: String,
    /// What GetSessionToken gave a user, if the request is signed with that.
    pub(crate) token: Option<Credentials>,
}

#[derive(Clone, Debug)]
pub(crate) enum Principal {
    /// The request is not signed.
    Nobody,
    /// The user an unknown key belongs to, who may do everything.
    Administrator,
    Session(Box<Session>),
}

impl Caller {
    /// The owner of the key that signed a request.
    pub(crate) fn of(cloud: &Cloud, call: &Call) -> Self {
        let (account, key) = (&cloud.config.account, &call.sender.access_key_id);
        if key.is_empty() {
            return Self { principal: Principal::Nobody, arn: String::new(), token: None };
        }
        match (cloud.identity.session(key), cloud.identity.user_tokens.get(key)) {
            (Some(session), _) => Self::session(account, session.clone()),
            (None, Some((user, token))) => Self { token: Some(token.clone()), ..Self::administrator(account, user) },
            (None, None) => Self::administrator(account, key),
        }
    }

    pub(crate) fn administrator(account: &str, name: &str) -> Self {
        Self { principal: Principal::Administrator, arn: format!("arn:aws:iam::{account}:user/{name}"), token: None }
    }

    fn session(account: &str, session: Session) -> Self {
        let arn = format!("arn:aws:sts::{account}:assumed-role/{}/{}", session.role_name, session.session_name);
        Self { principal: Principal::Session(Box::new(session)), arn, token: None }
    }

    /// The unique id that GetCallerIdentity and `aws:userid` give.
    pub(crate) fn user_id(&self) -> String {
        match &self.principal {
            Principal::Nobody => "anonymous".into(),
            Principal::Administrator => self.arn.rsplit('/').next().unwrap_or_default().into(),
            Principal::Session(session) => format!("{}:{}", session.role_id, session.session_name),
        }
    }

    /// The names under which a policy may mean this caller, and only this caller.
    pub(crate) fn asker(&self, cloud: &Cloud) -> Asker {
        let mut names = vec![self.arn.clone()];
        if let Principal::Session(session) = &self.principal {
            names.extend(cloud.identity.roles.get(&session.role_name).map(|role| role.arn.clone()));
        }
        Asker { kind: "AWS", names }
    }

    /// Refuses credentials that are not good any more, or never were.
    // fidelity: documented(Common errors of each service: ExpiredToken, RequestExpired, InvalidClientTokenId, AuthFailure,
    // MissingAuthenticationToken); assumed: that an unknown key beginning with ASIA is refused, for only STS issues those,
    // while any other unknown key is the administrator's.
    pub(crate) fn check_credentials(&self, now: Timestamp, call: &Call) -> Result<(), ApiError> {
        if let Some(token) = &self.token {
            return check_token(token, now, call);
        }
        match &self.principal {
            Principal::Nobody => Err(call.missing_token()),
            Principal::Administrator if call.sender.access_key_id.starts_with("ASIA") => Err(call.invalid_token()),
            Principal::Administrator => Ok(()),
            Principal::Session(session) => check_token(&session.credentials, now, call),
        }
    }

    /// What every request says of itself and its caller.
    // fidelity: documented(IAM User Guide, AWS global condition context keys); assumed: aws:SourceIp is the loopback
    // address, whoever calls.
    pub(crate) fn keys(&self, cloud: &Cloud, now: Timestamp, call: &Call) -> Keys {
        let mut keys = Keys::default();
        let account = &cloud.config.account;
        // The global services are asked in us-east-1.
        let region = match call.service {
            Service::Iam | Service::Pricing => "us-east-1",
            _ => &cloud.config.region,
        };
        keys.set("aws:RequestedRegion", region);
        keys.set(
            "aws:SecureTransport",
            call.sender.secure_transport.unwrap_or(cloud.config.secure_transport).to_string(),
        );
        keys.set("aws:CurrentTime", now.to_string());
        keys.set("aws:EpochTime", now.as_second().to_string());
        keys.set("aws:SourceIp", "127.0.0.1");
        keys.set("aws:UserAgent", call.sender.user_agent.as_str());
        keys.set("aws:ViaAWSService", "false");
        keys.set("aws:PrincipalIsAWSService", "false");
        keys.set("aws:PrincipalAccount", account.as_str());
        keys.set("aws:ResourceAccount", account.as_str());
        keys.set("aws:userid", self.user_id());
        match &self.principal {
            Principal::Nobody => keys.set("aws:PrincipalType", "Anonymous"),
            Principal::Administrator => {
                keys.set("aws:PrincipalType", "User");
                keys.set("aws:PrincipalArn", self.arn.as_str());
                keys.set("aws:username", self.user_id());
            }
            Principal::Session(session) => {
                keys.set("aws:PrincipalType", "AssumedRole");
                keys.set("aws:TokenIssueTime", session.issued_at.to_string());
                if let Some(role) = cloud.identity.roles.get(&session.role_name) {
                    keys.set("aws:PrincipalArn", role.arn.as_str());
                    keys.tags("aws:PrincipalTag", &role.tags);
                }
                keys.tags("aws:PrincipalTag", &session.tags);
            }
        }
        keys
    }
}

/// Refuses temporary credentials that have expired, and those without their token.
fn check_token(token: &Credentials, now: Timestamp, call: &Call) -> Result<(), ApiError> {
    if token.expires_at <= now {
        return Err(call.expired_token());
    }
    match call.sender.security_token.as_ref() == Some(&token.session_token) {
        true => Ok(()),
        false => Err(call.invalid_token()),
    }
}

/// Refusals of credentials, in the words of each protocol.
impl Call {
    pub(crate) fn expired_token(&self) -> ApiError {
        let message = "The security token included in the request is expired";
        match self.protocol {
            Protocol::Ec2Query => ApiError::client("RequestExpired", "Request has expired."),
            protocol if protocol.speaks_json() => ApiError::client("ExpiredTokenException", message),
            _ => ApiError::new(403, "ExpiredToken", message),
        }
    }

    pub(crate) fn invalid_token(&self) -> ApiError {
        let message = "The security token included in the request is invalid.";
        match self.protocol {
            Protocol::Ec2Query => {
                let message = "AWS was not able to validate the provided access credentials";
                ApiError::new(401, "AuthFailure", message)
            }
            protocol if protocol.speaks_json() => ApiError::client("UnrecognizedClientException", message),
            _ => ApiError::new(403, "InvalidClientTokenId", message),
        }
    }

    pub(crate) fn missing_token(&self) -> ApiError {
        match self.protocol.speaks_json() {
            true => ApiError::client("MissingAuthenticationTokenException", "Missing Authentication Token"),
            false => ApiError::new(403, "MissingAuthenticationToken", "Request is missing Authentication Token"),
        }
    }
}
