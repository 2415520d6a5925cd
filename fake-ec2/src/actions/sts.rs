//! STS: who am I, and credentials for a role.

use super::{Context, unknown_action};
use crate::cloud::identity::{Credentials, Role, Session, SessionPolicies};
use crate::cloud::tags::Tags;
use crate::cloud::{Cloud, after};
use crate::config::Iam;
use crate::error::ApiError;
use crate::iam::caller::Principal;
use crate::iam::facts::Keys;
use crate::iam::policy::{Kind, Policy};
use crate::iam::{Refused, refusal, web_identity};
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use crate::wire::{Reply, Service};
use jiff::Timestamp;
use std::time::Duration;

// fidelity: documented(STS API Reference); assumed: where policies are not enforced, any caller may assume any role and
// tokens are not read.
pub(super) fn perform(
    cloud: &mut Cloud,
    context: &Context<'_>,
    action: &str,
    query: &Query<'_>,
) -> Result<Reply, Refused> {
    let mut xml = Xml::new();
    match action {
        "GetCallerIdentity" => {
            query.finish()?;
            let caller = context.asking.caller;
            let anonymous = || cloud.arn("iam", "user/anonymous");
            xml.text("Arn", if caller.arn.is_empty() { anonymous() } else { caller.arn.clone() });
            xml.text("UserId", caller.user_id());
            xml.text("Account", &cloud.config.account);
        }
        "AssumeRole" => {
            let request = AssumeRole::read(query)?;
            query.finish()?;
            let role = cloud.identity.roles.values().find(|role| role.arn == request.role_arn);
            context.asking.assume_role(cloud, (role, &request.role_arn), &request.keys())?;
            request.check_duration(role)?;
            write_session(&mut xml, &cloud.config.account.clone(), &start_session(cloud, context.now, &request));
            xml.optional("SourceIdentity", request.source_identity);
        }
        "AssumeRoleWithWebIdentity" => assume_role_with_web_identity(cloud, context, query, &mut xml)?,
        "GetSessionToken" => get_session_token(cloud, context, query, &mut xml)?,
        "GetAccessKeyInfo" => {
            let key = query.required("AccessKeyId")?;
            query.finish()?;
            check_access_key(key)?;
            xml.text("Account", &cloud.config.account);
        }
        "DecodeAuthorizationMessage" => {
            let message = query.required("EncodedMessage")?;
            query.finish()?;
            xml.text("DecodedMessage", refusal::decode(message)?);
        }
        _ => return Err(unknown_action(Service::Sts, action).into()),
    }
    Ok(Reply::Xml(xml.into_string()))
}

fn assume_role_with_web_identity(
    cloud: &mut Cloud,
    context: &Context<'_>,
    query: &Query<'_>,
    xml: &mut Xml,
) -> Result<(), Refused> {
    let request = AssumeRole::read(query)?;
    let token = query.required("WebIdentityToken")?;
    query.finish()?;
    let mut identity = None;
    if cloud.config.iam == Iam::Enforce {
        let known = web_identity::identify(cloud, context.now, token)?;
        let role = cloud.identity.roles.values().find(|role| role.arn == request.role_arn);
        if !role.is_some_and(|role| web_identity::trusted(&known, role, context.asking.common)) {
            let action = "sts:AssumeRoleWithWebIdentity";
            let error = ApiError::new(403, "AccessDenied", format!("Not authorized to perform {action}"));
            return Err(Refused::new(error, action, &request.role_arn));
        }
        identity = Some(known);
    }
    request.check_duration(cloud.identity.roles.values().find(|role| role.arn == request.role_arn))?;
    write_session(xml, &cloud.config.account.clone(), &start_session(cloud, context.now, &request));
    xml.optional("SourceIdentity", request.source_identity);
    if let Some(identity) = identity {
        xml.text("SubjectFromWebIdentityToken", identity.subject);
        xml.text("Audience", identity.audience);
        xml.text("Provider", identity.provider_arn);
    }
    Ok(())
}

// fidelity: documented(STS API Reference, GetSessionToken: 900 to 129,600 seconds, 43,200 by default; it is for users, not for
// sessions); assumed: devices and their codes are not looked at
fn get_session_token(
    cloud: &mut Cloud,
    context: &Context<'_>,
    query: &Query<'_>,
    xml: &mut Xml,
) -> Result<(), ApiError> {
    let seconds: u64 = query.number("DurationSeconds")?.unwrap_or(43_200);
    query.ignore("there are no MFA devices here", &["SerialNumber", "TokenCode"]);
    query.finish()?;
    let caller = context.asking.caller;
    if matches!(caller.principal, Principal::Session(_)) || caller.token.is_some() {
        return Err(ApiError::new(403, "AccessDenied", "Cannot call GetSessionToken with session credentials"));
    }
    check_seconds(seconds, 129_600)?;
    let user = caller.user_id();
    let credentials = new_credentials(cloud, context.now, Duration::from_secs(seconds));
    write_credentials(xml, &credentials);
    cloud.identity.add_user_token(context.now, &user, credentials);
    Ok(())
}

// fidelity: documented(STS API Reference, GetAccessKeyInfo); assumed: every key belongs to the one account there is
fn check_access_key(key: &str) -> Result<(), ApiError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match (16..=128).contains(&key.len()) && key.bytes().all(allowed) {
        true => Ok(()),
        false => Err(invalid(key, "accessKeyId", "Member must have 16 to 128 letters and digits")),
    }
}

fn check_seconds(seconds: u64, maximum: u64) -> Result<(), ApiError> {
    let constraint = match seconds {
        0..900 => "Member must have value greater than or equal to 900".to_owned(),
        _ if seconds > maximum => format!("Member must have value less than or equal to {maximum}"),
        _ => return Ok(()),
    };
    Err(invalid(&seconds.to_string(), "durationSeconds", &constraint))
}

fn invalid(value: &str, member: &str, constraint: &str) -> ApiError {
    let message = format!(
        "1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: {constraint}"
    );
    ApiError::client("ValidationError", message)
}

/// What the actions that start a session have in common.
struct AssumeRole {
    role_arn: String,
    session_name: String,
    duration: Duration,
    tags: Tags,
    policies: SessionPolicies,
    external_id: Option<String>,
    source_identity: Option<String>,
}

impl AssumeRole {
    // fidelity: documented(STS API Reference, AssumeRole: constraints of its parameters)
    fn read(query: &Query<'_>) -> Result<Self, ApiError> {
        let (role_arn, session_name) = (query.required("RoleArn")?, query.required("RoleSessionName")?);
        let seconds: u64 = query.number("DurationSeconds")?.unwrap_or(3600);
        query.ignore("for OAuth 2.0 providers, of which there are none", &["ProviderId"]);
        query.ignore("sessions pass no tags on here", &["TransitiveTagKeys"]);
        let allowed = |character: char| character.is_ascii_alphanumeric() || "_+=,.@-".contains(character);
        if !(2..=64).contains(&session_name.len()) || !session_name.chars().all(allowed) {
            let constraint = "Member must satisfy regular expression pattern: [\\w+=,.@-]{2,64}";
            return Err(invalid(session_name, "roleSessionName", constraint));
        }
        check_seconds(seconds, 43_200)?;
        Ok(Self {
            role_arn: role_arn.into(),
            session_name: session_name.into(),
            duration: Duration::from_secs(seconds),
            tags: query.tags("Tags.member")?,
            policies: session_policies(query)?,
            external_id: query.owned("ExternalId"),
            source_identity: source_identity(query)?,
        })
    }

    /// What the role's trust policy may ask about.
    // fidelity: documented(IAM User Guide, condition keys of AWS STS: sts:ExternalId, sts:RoleSessionName, sts:SourceIdentity)
    fn keys(&self) -> Keys {
        let mut keys = Keys::default();
        keys.set("sts:RoleSessionName", self.session_name.as_str());
        self.external_id.iter().for_each(|id| keys.set("sts:ExternalId", id.as_str()));
        self.source_identity.iter().for_each(|identity| keys.set("sts:SourceIdentity", identity.as_str()));
        keys
    }
}

// fidelity: documented(STS API Reference, AssumeRole: Policy, and PolicyArns, up to 10; MalformedPolicyDocument)
fn session_policies(query: &Query<'_>) -> Result<SessionPolicies, ApiError> {
    let inline = query.text("Policy").map(|text| Policy::parse(text, Kind::Identity)).transpose()?;
    let arns = query.structures("PolicyArns.member").into_iter();
    let managed: Vec<String> = arns.map(|part| part.required("arn").map(str::to_owned)).collect::<Result<_, _>>()?;
    if managed.len() > 10 {
        let constraint = "Member must have length less than or equal to 10";
        return Err(invalid(&managed.join(", "), "policyArns", constraint));
    }
    Ok(SessionPolicies { inline, managed })
}

// fidelity: documented(STS API Reference, AssumeRole: SourceIdentity of 2 to 64 characters [\\w+=,.@-])
fn source_identity(query: &Query<'_>) -> Result<Option<String>, ApiError> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "_+=,.@-".contains(character);
    match query.text("SourceIdentity") {
        Some(text) if !(2..=64).contains(&text.len()) || !text.chars().all(allowed) => {
            let constraint = "Member must satisfy regular expression pattern: [\\w+=,.@-]{2,64}";
            Err(invalid(text, "sourceIdentity", constraint))
        }
        text => Ok(text.map(str::to_owned)),
    }
}

impl AssumeRole {
    /// Refuses sessions longer than the role allows.
    // fidelity: documented(STS API Reference, AssumeRole: DurationSeconds up to the role's maximum session duration)
    fn check_duration(&self, role: Option<&Role>) -> Result<(), ApiError> {
        match role.is_some_and(|role| self.duration > Duration::from_secs(role.max_session_s)) {
            true => {
                let message = "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.";
                Err(ApiError::client("ValidationError", message))
            }
            false => Ok(()),
        }
    }
}

fn start_session(cloud: &mut Cloud, now: Timestamp, request: &AssumeRole) -> Session {
    let AssumeRole { role_arn, session_name, duration, tags, policies, external_id: _, source_identity: _ } = request;
    let name = role_arn.rsplit('/').next().unwrap_or(role_arn);
    open_session(cloud, now, name, session_name, *duration, tags.clone(), policies.clone())
}

/// Credentials for a role, asked for by whoever may. A role that does not exist has no permissions.
pub(crate) fn open_session(
    cloud: &mut Cloud,
    now: Timestamp,
    role_name: &str,
    session_name: &str,
    duration: Duration,
    tags: Tags,
    policies: SessionPolicies,
) -> Session {
    let credentials = new_credentials(cloud, now, duration);
    let known = cloud.identity.roles.get(role_name).map(|role: &Role| role.id.clone());
    let session = Session {
        role_name: role_name.into(),
        role_id: known.unwrap_or_else(|| cloud.ids.unique("AROA")),
        session_name: session_name.into(),
        credentials,
        issued_at: now,
        tags,
        policies,
    };
    cloud.identity.add_session(session.clone());
    session
}

fn new_credentials(cloud: &mut Cloud, now: Timestamp, duration: Duration) -> Credentials {
    Credentials {
        access_key_id: cloud.ids.unique("ASIA"),
        secret_access_key: cloud.ids.uuid(),
        session_token: cloud.ids.uuid(),
        expires_at: after(now, duration),
    }
}

fn write_credentials(xml: &mut Xml, credentials: &Credentials) {
    xml.element("Credentials", |xml| {
        xml.text("AccessKeyId", &credentials.access_key_id);
        xml.text("SecretAccessKey", &credentials.secret_access_key);
        xml.text("SessionToken", &credentials.session_token);
        xml.time("Expiration", credentials.expires_at);
    });
}

fn write_session(xml: &mut Xml, account: &str, session: &Session) {
    let Session { role_name, role_id, session_name, credentials, .. } = session;
    write_credentials(xml, credentials);
    xml.element("AssumedRoleUser", |xml| {
        xml.text("AssumedRoleId", format!("{role_id}:{session_name}"));
        xml.text("Arn", format!("arn:aws:sts::{account}:assumed-role/{role_name}/{session_name}"));
    });
}
