//! STS: who am I, and credentials for a role. Any caller may assume any role.

use super::{Context, unknown_action};
use crate::cloud::{Cloud, after};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use crate::wire::{Reply, Service};
use std::time::Duration;

// fidelity: documented(STS API Reference); assumed: no policy is evaluated, tokens are not verified.
pub(super) fn perform(
    cloud: &mut Cloud,
    context: &Context,
    action: &str,
    query: &Query<'_>,
    caller: &str,
) -> Result<Reply, ApiError> {
    let mut xml = Xml::new();
    match action {
        "GetCallerIdentity" => {
            query.finish()?;
            xml.text(
                "Arn",
                cloud.arn("iam", &format!("user/{}", if caller.is_empty() { "anonymous" } else { caller })),
            );
            xml.text("UserId", if caller.is_empty() { "anonymous" } else { caller });
            xml.text("Account", &cloud.config.account);
        }
        "AssumeRole" | "AssumeRoleWithWebIdentity" => {
            let (role, session) = (query.required("RoleArn")?, query.required("RoleSessionName")?);
            if action == "AssumeRoleWithWebIdentity" {
                query.required("WebIdentityToken")?;
            }
            let seconds: u64 = query.number("DurationSeconds")?.unwrap_or(3600);
            query.ignore(&["Policy", "PolicyArns", "ProviderId", "Tags", "TransitiveTagKeys", "ExternalId"]);
            query.finish()?;
            let name = role.rsplit('/').next().unwrap_or(role);
            let assumed = format!("arn:aws:sts::{}:assumed-role/{name}/{session}", cloud.config.account);
            let (key, secret, token) = (cloud.ids.unique("ASIA"), cloud.ids.uuid(), cloud.ids.uuid());
            let id = format!("{}:{session}", cloud.ids.unique("AROA"));
            xml.element("Credentials", |xml| {
                xml.text("AccessKeyId", key);
                xml.text("SecretAccessKey", secret);
                xml.text("SessionToken", token);
                xml.time("Expiration", after(context.now, Duration::from_secs(seconds)));
            });
            xml.element("AssumedRoleUser", |xml| {
                xml.text("AssumedRoleId", id);
                xml.text("Arn", assumed);
            });
        }
        _ => return Err(unknown_action(Service::Sts, action)),
    }
    Ok(Reply::Xml(xml.into_string()))
}
