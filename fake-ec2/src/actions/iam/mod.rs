//! IAM: instance profiles, roles, policies, identity providers.
//!
//! // fidelity: documented(IAM API Reference: each action and its errors)

mod policies;
mod providers;
mod tags;

use super::{Context, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::identity::{Identity, InstanceProfile, Role};
use crate::cloud::roles::{AWS_POLICIES, NewRole, SESSION_S};
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page, Paged};
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use crate::wire::{Reply, Service};
use jiff::Timestamp;

pub(super) fn perform(
    cloud: &mut Cloud,
    context: &Context,
    action: &str,
    query: &Query<'_>,
) -> Result<Reply, ApiError> {
    let now = context.now;
    let mut xml = Xml::new();
    match action {
        "CreateInstanceProfile" => create_instance_profile(cloud, now, query, &mut xml)?,
        "GetInstanceProfile" => {
            let name = query.required("InstanceProfileName")?;
            finish(query)?;
            write_profile(&mut xml, "InstanceProfile", &cloud.identity, cloud.identity.profile(name)?);
        }
        "DeleteInstanceProfile" => {
            let name = query.required("InstanceProfileName")?;
            finish(query)?;
            cloud.identity.remove_profile(name)?;
        }
        "AddRoleToInstanceProfile" | "RemoveRoleFromInstanceProfile" => {
            let (name, role) = (query.required("InstanceProfileName")?, query.required("RoleName")?);
            finish(query)?;
            match action {
                "AddRoleToInstanceProfile" => cloud.identity.add_role_to_profile(name, role)?,
                _ => cloud.identity.remove_role_from_profile(name, role)?,
            }
        }
        "ListInstanceProfiles" => list_instance_profiles(cloud, query, &mut xml, |_| true)?,
        "ListInstanceProfilesForRole" => {
            let role = query.required("RoleName")?.to_owned();
            cloud.identity.role(&role)?;
            list_instance_profiles(cloud, query, &mut xml, |profile| profile.role.as_deref() == Some(&role))?;
        }
        "TagInstanceProfile" | "TagRole" | "TagPolicy" | "TagOpenIDConnectProvider" => tags::add(cloud, action, query)?,
        "UntagInstanceProfile" | "UntagRole" | "UntagPolicy" | "UntagOpenIDConnectProvider" => {
            tags::remove(cloud, action, query)?;
        }
        "ListInstanceProfileTags" | "ListRoleTags" | "ListPolicyTags" | "ListOpenIDConnectProviderTags" => {
            tags::list(cloud, action, query, &mut xml)?;
        }
        "GetAccountSummary" => {
            finish(query)?;
            write_summary(&mut xml, cloud);
        }
        "CreateRole" => create_role(cloud, now, query, &mut xml)?,
        "GetRole" => {
            let name = query.required("RoleName")?;
            finish(query)?;
            let role = cloud.identity.role(name)?;
            xml.element("Role", |xml| write_role(xml, role));
        }
        "ListRoles" => list_roles(cloud, query, &mut xml)?,
        "DeleteRole" => {
            let name = query.required("RoleName")?;
            finish(query)?;
            cloud.delete_role(name)?;
        }
        "UpdateAssumeRolePolicy" => {
            let (name, document) = (query.required("RoleName")?, query.required("PolicyDocument")?);
            finish(query)?;
            cloud.update_trust_policy(name, document)?;
        }
        "PutRolePermissionsBoundary" => {
            let (role, arn) = (query.required("RoleName")?, query.required("PermissionsBoundary")?);
            finish(query)?;
            cloud.set_boundary(role, Some(arn))?;
        }
        "DeleteRolePermissionsBoundary" => {
            let role = query.required("RoleName")?;
            finish(query)?;
            cloud.set_boundary(role, None)?;
        }
        "UpdateRole" | "UpdateRoleDescription" => update_role(cloud, action, query, &mut xml)?,
        "CreateServiceLinkedRole" => create_service_linked_role(cloud, now, query, &mut xml)?,
        "CreatePolicy" => policies::create_policy(cloud, now, query, &mut xml)?,
        "GetPolicy" => policies::get_policy(cloud, query, &mut xml)?,
        "GetPolicyVersion" => policies::get_policy_version(cloud, query, &mut xml)?,
        "ListPolicies" => policies::list_policies(cloud, query, &mut xml)?,
        "CreatePolicyVersion" => policies::create_policy_version(cloud, now, query, &mut xml)?,
        "ListPolicyVersions" => policies::list_policy_versions(cloud, query, &mut xml)?,
        "ListEntitiesForPolicy" => policies::list_entities(cloud, query, &mut xml)?,
        "DeletePolicyVersion" | "SetDefaultPolicyVersion" => {
            let (arn, version) = (query.required("PolicyArn")?, query.required("VersionId")?);
            finish(query)?;
            match action {
                "DeletePolicyVersion" => cloud.delete_policy_version(arn, version)?,
                _ => cloud.set_default_policy_version(now, arn, version)?,
            }
        }
        "DeletePolicy" => {
            let arn = query.required("PolicyArn")?;
            finish(query)?;
            cloud.delete_policy(arn)?;
        }
        "AttachRolePolicy" | "DetachRolePolicy" => policies::change_attachment(cloud, action, query)?,
        "ListAttachedRolePolicies" => policies::list_attached(cloud, query, &mut xml)?,
        "PutRolePolicy" => policies::put_role_policy(cloud, query)?,
        "GetRolePolicy" => policies::get_role_policy(cloud, query, &mut xml)?,
        "DeleteRolePolicy" => policies::delete_role_policy(cloud, query)?,
        "ListRolePolicies" => policies::list_role_policies(cloud, query, &mut xml)?,
        "CreateOpenIDConnectProvider" => providers::create(cloud, now, query, &mut xml)?,
        "GetOpenIDConnectProvider" => providers::get(cloud, query, &mut xml)?,
        "ListOpenIDConnectProviders" => providers::list(cloud, query, &mut xml)?,
        "DeleteOpenIDConnectProvider" => providers::delete(cloud, query)?,
        _ => return Err(unknown_action(Service::Iam, action)),
    }
    Ok(Reply::Xml(xml.into_string()))
}

fn finish(query: &Query<'_>) -> Result<(), ApiError> {
    query.finish()
}

fn path(query: &Query<'_>) -> Result<String, ApiError> {
    let path = query.text("Path").unwrap_or("/");
    match path.starts_with('/') && path.ends_with('/') && path.len() <= 512 {
        true => Ok(path.to_owned()),
        false => Err(ApiError::client(
            "ValidationError",
            "The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.",
        )),
    }
}

fn name(query: &Query<'_>, parameter: &str) -> Result<String, ApiError> {
    let name = query.required(parameter)?;
    let allowed = |character: char| character.is_ascii_alphanumeric() || "+=,.@-_".contains(character);
    match name.len() <= 128 && name.chars().all(allowed) {
        true => Ok(name.to_owned()),
        false => Err(ApiError::client(
            "ValidationError",
            format!(
                "The specified value for {parameter} is invalid. It must contain only alphanumeric characters and/or the following: +=,.@_-"
            ),
        )),
    }
}

fn create_instance_profile(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
    xml: &mut Xml,
) -> Result<(), ApiError> {
    let (name, path, tags) = (name(query, "InstanceProfileName")?, path(query)?, query.tags("Tags.member")?);
    finish(query)?;
    let arn = cloud.arn("iam", &format!("instance-profile{path}{name}"));
    let profile = InstanceProfile { id: cloud.ids.unique("AIPA"), name, path, arn, created_at: now, role: None, tags };
    cloud.identity.add_profile(profile.clone())?;
    write_profile(xml, "InstanceProfile", &cloud.identity, &profile);
    Ok(())
}

fn list_instance_profiles(
    cloud: &Cloud,
    query: &Query<'_>,
    xml: &mut Xml,
    wanted: impl Fn(&InstanceProfile) -> bool,
) -> Result<(), ApiError> {
    let prefix = query.text("PathPrefix").unwrap_or("/").to_owned();
    let page = page(query)?;
    finish(query)?;
    let chosen =
        cloud.identity.profiles.values().filter(|profile| profile.path.starts_with(&prefix) && wanted(profile));
    let paged = page.cut(chosen, |profile| profile.name.clone());
    xml.open("InstanceProfiles");
    paged.items.iter().for_each(|profile| write_profile(xml, "member", &cloud.identity, profile));
    xml.close("InstanceProfiles");
    write_rest(xml, paged.next);
    Ok(())
}

fn list_roles(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let prefix = query.text("PathPrefix").unwrap_or("/");
    let page = page(query)?;
    finish(query)?;
    let roles = cloud.identity.roles.values().filter(|role| role.path.starts_with(prefix));
    write_page(xml, "Roles", page.cut(roles, |role| role.name.clone()), write_role);
    Ok(())
}

/// The page that a list is asked for.
// fidelity: documented(IAM API Reference: MaxItems of 1 to 1,000, 100 by default, Marker); assumed: wording
fn page(query: &Query<'_>) -> Result<Page, ApiError> {
    let size: Option<i64> = query.number("MaxItems").map_err(|error| validation(&error.message))?;
    let bounds = Bounds { minimum: 1, maximum: 1000, default: 100 };
    Page::new(size, query.text("Marker"), bounds).map_err(|error| match error.code.as_ref() {
        "InvalidNextToken" => ApiError::client("InvalidInput", "The specified Marker is not valid."),
        _ => validation(&error.message.replace("maxResults", "maxItems")),
    })
}

fn write_page<T>(xml: &mut Xml, name: &str, paged: Paged<T>, write: impl FnMut(&mut Xml, T)) {
    xml.list_of(name, "member", paged.items, write);
    write_rest(xml, paged.next);
}

/// Whether there is more, and what to ask for it with.
fn write_rest(xml: &mut Xml, next: Option<String>) {
    xml.value("IsTruncated", next.is_some());
    xml.optional("Marker", next);
}

fn validation(message: &str) -> ApiError {
    ApiError::client("ValidationError", message)
}

// fidelity: documented(IAM API Reference, CreateRole and UpdateRole: a description of at most 1,000 characters, sessions of one
// to twelve hours)
fn role_options(query: &Query<'_>) -> Result<(Option<String>, Option<u64>), ApiError> {
    let (description, seconds) = (query.owned("Description"), query.number::<u64>("MaxSessionDuration")?);
    if description.as_ref().is_some_and(|text| text.chars().count() > 1000) {
        return Err(validation(
            "1 validation error detected: Value at 'description' failed to satisfy constraint: Member must have length less than or equal to 1000",
        ));
    }
    match seconds {
        Some(seconds) if !(3600..=43_200).contains(&seconds) => Err(validation(&format!(
            "1 validation error detected: Value '{seconds}' at 'maxSessionDuration' failed to satisfy constraint: Member must have value between 3600 and 43200"
        ))),
        _ => Ok((description, seconds)),
    }
}

/// What is left out of UpdateRole is reset.
// fidelity: documented(IAM API Reference, UpdateRole: without MaxSessionDuration the default of one hour is applied)
fn update_role(cloud: &mut Cloud, action: &str, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let name = query.required("RoleName")?;
    let (description, seconds) = role_options(query)?;
    finish(query)?;
    let role = cloud.role_mut(name)?;
    if let Some(description) = description {
        role.description = description;
    }
    if action == "UpdateRole" {
        role.max_session_s = seconds.unwrap_or(SESSION_S);
    } else {
        xml.element("Role", |xml| write_role(xml, role));
    }
    Ok(())
}

// fidelity: documented(IAM User Guide, IAM and STS quotas: the defaults); assumed: the members without which tools do well are
/// left out
fn write_summary(xml: &mut Xml, cloud: &Cloud) {
    let identity = &cloud.identity;
    let own = identity.policies.keys().filter(|arn| !arn.starts_with(AWS_POLICIES));
    let versions = identity.policies.values().filter(|policy| !policy.arn.starts_with(AWS_POLICIES));
    let entries = [
        ("AttachedPoliciesPerRoleQuota", 10),
        ("InstanceProfiles", identity.profiles.len()),
        ("InstanceProfilesQuota", 1000),
        ("Policies", own.count()),
        ("PoliciesQuota", 1500),
        ("PolicyVersionsInUse", versions.map(|policy| policy.versions.len()).sum()),
        ("Providers", identity.oidc_providers.len()),
        ("Roles", identity.roles.len()),
        ("RolesQuota", 1000),
        ("VersionsPerPolicyQuota", 5),
    ];
    xml.open("SummaryMap");
    for (key, value) in entries {
        xml.element("entry", |xml| {
            xml.text("key", key);
            xml.value("value", value);
        });
    }
    xml.close("SummaryMap");
}

fn create_role(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let new = NewRole {
        name: name(query, "RoleName")?,
        path: path(query)?,
        trust_policy: query.required("AssumeRolePolicyDocument")?.to_owned(),
        tags: query.tags("Tags.member")?,
    };
    let (description, seconds) = role_options(query)?;
    let boundary = query.text("PermissionsBoundary");
    finish(query)?;
    boundary.map_or(Ok(()), |arn| cloud.check_boundary(arn))?;
    let name = cloud.create_role(now, new)?.name.clone();
    cloud.set_boundary(&name, boundary)?;
    let role = cloud.role_mut(&name)?;
    role.description = description.unwrap_or_default();
    role.max_session_s = seconds.unwrap_or(SESSION_S);
    xml.element("Role", |xml| write_role(xml, role));
    Ok(())
}

// fidelity: documented(IAM API Reference, CreateServiceLinkedRole; EC2 User Guide, Service-linked role for Spot Instance
// requests); observed(2026-08): the refusal of a second one
fn create_service_linked_role(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
    xml: &mut Xml,
) -> Result<(), ApiError> {
    let service = query.required("AWSServiceName")?.to_owned();
    let description = query.owned("Description").unwrap_or_default();
    if query.text("CustomSuffix").is_some() {
        let message = format!("Custom suffix is not allowed for {service}");
        return Err(ApiError::client("InvalidInput", message));
    }
    finish(query)?;
    let name = match service.as_str() {
        "spot.amazonaws.com" => "AWSServiceRoleForEC2Spot",
        "spotfleet.amazonaws.com" => "AWSServiceRoleForEC2SpotFleet",
        "eks.amazonaws.com" => "AWSServiceRoleForAmazonEKS",
        other => {
            let message = format!("Service-linked roles of {other} are not played here.");
            return Err(ApiError::client("InvalidInput", message));
        }
    };
    if cloud.identity.roles.contains_key(name) {
        let message =
            format!("Service role name {name} has been taken in this account, please try a different suffix.");
        return Err(ApiError::client("InvalidInput", message));
    }
    let trust = serde_json::json!({"Version": "2012-10-17", "Statement": [{"Effect": "Allow",
        "Principal": {"Service": service}, "Action": "sts:AssumeRole"}]});
    let path = format!("/aws-service-role/{service}/");
    let new = NewRole { name: name.into(), path, trust_policy: trust.to_string(), tags: Tags::new() };
    cloud.create_role(now, new)?;
    let role = cloud.role_mut(name)?;
    role.description = description;
    xml.element("Role", |xml| write_role(xml, role));
    Ok(())
}

fn write_profile(xml: &mut Xml, element: &str, identity: &Identity, profile: &InstanceProfile) {
    xml.element(element, |xml| {
        xml.text("Path", &profile.path);
        xml.text("InstanceProfileName", &profile.name);
        xml.text("InstanceProfileId", &profile.id);
        xml.text("Arn", &profile.arn);
        xml.text("CreateDate", timestamp(profile.created_at));
        let roles = profile.role.as_ref().and_then(|role| identity.roles.get(role));
        xml.list_of("Roles", "member", roles, write_role);
        write_tags(xml, &profile.tags);
    });
}

fn write_role(xml: &mut Xml, role: &Role) {
    xml.text("Path", &role.path);
    xml.text("RoleName", &role.name);
    xml.text("RoleId", &role.id);
    xml.text("Arn", &role.arn);
    xml.text("CreateDate", timestamp(role.created_at));
    xml.text("AssumeRolePolicyDocument", encoded(&role.trust_policy));
    xml.optional("Description", Some(&role.description).filter(|text| !text.is_empty()));
    xml.value("MaxSessionDuration", role.max_session_s);
    if let Some(arn) = &role.permissions_boundary {
        xml.element("PermissionsBoundary", |xml| {
            xml.text("PermissionsBoundaryType", "Policy");
            xml.text("PermissionsBoundaryArn", arn);
        });
    }
    write_tags(xml, &role.tags);
}

/// Policies travel percent-encoded.
// fidelity: documented(IAM API Reference, GetRolePolicy: the document is URL-encoded, compliant with RFC 3986)
fn encoded(document: &str) -> String {
    form_urlencoded::byte_serialize(document.as_bytes()).collect::<String>().replace('+', "%20")
}

fn write_tags(xml: &mut Xml, tags: &Tags) {
    xml.list_of("Tags", "member", tags, |xml, (key, value)| {
        xml.text("Key", key);
        xml.text("Value", value);
    });
}
