//! Tags of whatever IAM tags: roles, instance profiles, policies, identity providers.

use super::{finish, page, write_page};
use crate::cloud::Cloud;
use crate::cloud::identity::no_such;
use crate::cloud::tags::{self, Tags};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

/// The tags of the resource that an action is about, which its name tells.
fn tagged<'a>(cloud: &'a mut Cloud, action: &str, query: &Query<'_>) -> Result<&'a mut Tags, ApiError> {
    if action.contains("Role") {
        return Ok(&mut cloud.role_mut(query.required("RoleName")?)?.tags);
    }
    if action.contains("Policy") {
        return Ok(&mut cloud.policy_mut(query.required("PolicyArn")?)?.tags);
    }
    if action.contains("InstanceProfile") {
        let name = query.required("InstanceProfileName")?;
        let missing = || no_such(format!("Instance Profile {name} cannot be found."));
        return cloud.identity.profiles.get_mut(name).map(|profile| &mut profile.tags).ok_or_else(missing);
    }
    let arn = query.required("OpenIDConnectProviderArn")?;
    let missing = || no_such(format!("OpenIDConnect Provider not found for arn {arn}"));
    cloud.identity.oidc_providers.get_mut(arn).map(|provider| &mut provider.tags).ok_or_else(missing)
}

// fidelity: documented(IAM API Reference, TagRole and its like: at most 50 tags, LimitExceeded, InvalidInput)
pub(super) fn add(cloud: &mut Cloud, action: &str, query: &Query<'_>) -> Result<(), ApiError> {
    let added = query.tags("Tags.member")?;
    let present = tagged(cloud, action, query)?;
    finish(query)?;
    tags::check(present, &added).map_err(|error| match error.code.as_ref() {
        "TagLimitExceeded" => ApiError::new(409, "LimitExceeded", error.message),
        _ => ApiError::client("InvalidInput", error.message),
    })?;
    present.extend(added);
    Ok(())
}

pub(super) fn remove(cloud: &mut Cloud, action: &str, query: &Query<'_>) -> Result<(), ApiError> {
    let removed = query.list("TagKeys.member");
    let present = tagged(cloud, action, query)?;
    finish(query)?;
    present.retain(|key, _| !removed.contains(&key.as_str()));
    Ok(())
}

pub(super) fn list(cloud: &mut Cloud, action: &str, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let page = page(query)?;
    let present = tagged(cloud, action, query)?;
    finish(query)?;
    write_page(xml, "Tags", page.cut(present.iter(), |(key, _)| (*key).clone()), |xml, (key, value)| {
        xml.text("Key", key);
        xml.text("Value", value);
    });
    Ok(())
}
