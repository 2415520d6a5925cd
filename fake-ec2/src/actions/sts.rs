//! STS: who am I, and credentials for a role.

use super::{Context, unknown_action};
use crate::cloud::identity::{Credentials, Role, Session};
use crate::cloud::tags::Tags;
use crate::cloud::{Cloud, after};
use crate::config::Iam;
use crate::error::ApiError;
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
            context.asking.assume_role(cloud, role, &request.role_arn)?;
            write_session(&mut xml, &cloud.config.account.clone(), &start_session(cloud, context.now, &request));
        }
        "AssumeRoleWithWebIdentity" => assume_role_with_web_identity(cloud, context, query, &mut xml)?,
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
    write_session(xml, &cloud.config.account.clone(), &start_session(cloud, context.now, &request));
    if let Some(identity) = identity {
        xml.text("SubjectFromWebIdentityToken", identity.subject);
        xml.text("Audience", identity.audience);
        xml.text("Provider", identity.provider_arn);
    }
    Ok(())
}

/// What the actions that start a session have in common.
struct AssumeRole {
    role_arn: String,
    session_name: String,
    duration: Duration,
    tags: Tags,
}

impl AssumeRole {
    // fidelity: documented(STS API Reference, AssumeRole: constraints of its parameters)
    fn read(query: &Query<'_>) -> Result<Self, ApiError> {
        let (role_arn, session_name) = (query.required("RoleArn")?, query.required("RoleSessionName")?);
        let seconds: u64 = query.number("DurationSeconds")?.unwrap_or(3600);
        query.ignore(&["Policy", "PolicyArns", "ProviderId", "TransitiveTagKeys", "ExternalId", "SourceIdentity"]);
        let refuse = |value: &str, member: &str, constraint: &str| {
            let message = format!(
                "1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: {constraint}"
            );
            Err(ApiError::client("ValidationError", message))
        };
        let allowed = |character: char| character.is_ascii_alphanumeric() || "_+=,.@-".contains(character);
        if !(2..=64).contains(&session_name.len()) || !session_name.chars().all(allowed) {
            let constraint = "Member must satisfy regular expression pattern: [\\w+=,.@-]{2,64}";
            return refuse(session_name, "roleSessionName", constraint);
        }
        if seconds < 900 {
            let constraint = "Member must have value greater than or equal to 900";
            return refuse(&seconds.to_string(), "durationSeconds", constraint);
        }
        if seconds > 43_200 {
            let constraint = "Member must have value less than or equal to 43200";
            return refuse(&seconds.to_string(), "durationSeconds", constraint);
        }
        Ok(Self {
            role_arn: role_arn.into(),
            session_name: session_name.into(),
            duration: Duration::from_secs(seconds),
            tags: query.tags("Tags.member")?,
        })
    }
}

fn start_session(cloud: &mut Cloud, now: Timestamp, request: &AssumeRole) -> Session {
    let AssumeRole { role_arn, session_name, duration, tags } = request;
    let name = role_arn.rsplit('/').next().unwrap_or(role_arn);
    open_session(cloud, now, name, session_name, *duration, tags.clone())
}

/// Credentials for a role, asked for by whoever may. A role that does not exist has no permissions.
pub(crate) fn open_session(
    cloud: &mut Cloud,
    now: Timestamp,
    role_name: &str,
    session_name: &str,
    duration: Duration,
    tags: Tags,
) -> Session {
    let credentials = Credentials {
        access_key_id: cloud.ids.unique("ASIA"),
        secret_access_key: cloud.ids.uuid(),
        session_token: cloud.ids.uuid(),
        expires_at: after(now, duration),
    };
    let known = cloud.identity.roles.get(role_name).map(|role: &Role| role.id.clone());
    let session = Session {
        role_name: role_name.into(),
        role_id: known.unwrap_or_else(|| cloud.ids.unique("AROA")),
        session_name: session_name.into(),
        credentials,
        issued_at: now,
        tags,
    };
    cloud.identity.add_session(session.clone());
    session
}

fn write_session(xml: &mut Xml, account: &str, session: &Session) {
    let Session { role_name, role_id, session_name, credentials, .. } = session;
    xml.element("Credentials", |xml| {
        xml.text("AccessKeyId", &credentials.access_key_id);
        xml.text("SecretAccessKey", &credentials.secret_access_key);
        xml.text("SessionToken", &credentials.session_token);
        xml.time("Expiration", credentials.expires_at);
    });
    xml.element("AssumedRoleUser", |xml| {
        xml.text("AssumedRoleId", format!("{role_id}:{session_name}"));
        xml.text("Arn", format!("arn:aws:sts::{account}:assumed-role/{role_name}/{session_name}"));
    });
}
