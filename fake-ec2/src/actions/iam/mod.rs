//! IAM: instance profiles, roles, policies, identity providers.
//!
//! // fidelity: documented(IAM API Reference: each action and its errors)

mod policies;
mod providers;

use super::{Context, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::identity::{Identity, InstanceProfile, Role};
use crate::cloud::roles::NewRole;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page};
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
        "TagInstanceProfile" => {
            let name = query.required("InstanceProfileName")?.to_owned();
            let added = query.tags("Tags.member")?;
            finish(query)?;
            cloud.identity.profile(&name)?;
            cloud.identity.profiles.entry(name).and_modify(|profile| profile.tags.extend(added));
        }
        "CreateRole" => create_role(cloud, now, query, &mut xml)?,
        "GetRole" => {
            let name = query.required("RoleName")?;
            finish(query)?;
            let role = cloud.identity.role(name)?;
            xml.element("Role", |xml| write_role(xml, role));
        }
        "ListRoles" => {
            query.ignore(&["PathPrefix", "MaxItems", "Marker"]);
            finish(query)?;
            xml.list_of("Roles", "member", cloud.identity.roles.values(), write_role);
            xml.value("IsTruncated", false);
        }
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
        "TagRole" => {
            let (name, added) = (query.required("RoleName")?, query.tags("Tags.member")?);
            finish(query)?;
            cloud.role_mut(name)?.tags.extend(added);
        }
        "UntagRole" => {
            let (name, removed) = (query.required("RoleName")?, query.list("TagKeys.member"));
            finish(query)?;
            cloud.role_mut(name)?.tags.retain(|key, _| !removed.contains(&key.as_str()));
        }
        "CreateServiceLinkedRole" => create_service_linked_role(cloud, now, query, &mut xml)?,
        "CreatePolicy" => policies::create_policy(cloud, now, query, &mut xml)?,
        "GetPolicy" => policies::get_policy(cloud, query, &mut xml)?,
        "GetPolicyVersion" => policies::get_policy_version(cloud, query, &mut xml)?,
        "ListPolicies" => policies::list_policies(cloud, query, &mut xml)?,
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
    let page =
        Page::new(query.number("MaxItems")?, query.text("Marker"), Bounds { minimum: 1, maximum: 1000, default: 100 })?;
    finish(query)?;
    let chosen =
        cloud.identity.profiles.values().filter(|profile| profile.path.starts_with(&prefix) && wanted(profile));
    let paged = page.cut(chosen, |profile| profile.name.clone());
    xml.value("IsTruncated", paged.next.is_some());
    xml.open("InstanceProfiles");
    paged.items.iter().for_each(|profile| write_profile(xml, "member", &cloud.identity, profile));
    xml.close("InstanceProfiles");
    xml.optional("Marker", paged.next);
    Ok(())
}

fn create_role(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let new = NewRole {
        name: name(query, "RoleName")?,
        path: path(query)?,
        trust_policy: query.required("AssumeRolePolicyDocument")?.to_owned(),
        tags: query.tags("Tags.member")?,
    };
    query.ignore(&["Description", "MaxSessionDuration", "PermissionsBoundary"]);
    finish(query)?;
    let role = cloud.create_role(now, new)?;
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
    query.ignore(&["Description", "CustomSuffix"]);
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
    let role = cloud.create_role(now, new)?;
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
