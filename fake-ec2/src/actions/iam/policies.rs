//! Managed policies, and the policies of roles.

use super::{encoded, finish, name, page, path, validation, write_page, write_rest, write_tags};
use crate::cloud::Cloud;
use crate::cloud::identity::{ManagedPolicy, Role};
use crate::cloud::roles::{AWS_POLICIES, NewPolicy, no_role_policy, version_number};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;

pub(super) fn create_policy(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
    xml: &mut Xml,
) -> Result<(), ApiError> {
    let new = NewPolicy {
        name: name(query, "PolicyName")?,
        path: path(query)?,
        document: query.required("PolicyDocument")?.to_owned(),
        description: query.owned("Description").unwrap_or_default(),
        tags: query.tags("Tags.member")?,
    };
    finish(query)?;
    let arn = cloud.create_policy(now, new)?.arn.clone();
    xml.element("Policy", |xml| write_policy(xml, cloud, &cloud.identity.policies[&arn]));
    Ok(())
}

pub(super) fn get_policy(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let arn = query.required("PolicyArn")?;
    finish(query)?;
    let policy = cloud.managed_policy(arn)?;
    xml.element("Policy", |xml| write_policy(xml, cloud, policy));
    Ok(())
}

pub(super) fn get_policy_version(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let (arn, version) = (query.required("PolicyArn")?, query.required("VersionId")?);
    finish(query)?;
    let policy = cloud.managed_policy(arn)?;
    let number = version_number(policy, version)?;
    xml.element("PolicyVersion", |xml| {
        xml.text("Document", encoded(&policy.versions[&number].policy.text));
        write_version(xml, policy, number);
    });
    Ok(())
}

pub(super) fn create_policy_version(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
    xml: &mut Xml,
) -> Result<(), ApiError> {
    let (arn, document) = (query.required("PolicyArn")?, query.required("PolicyDocument")?);
    let as_default = query.boolean("SetAsDefault")?.unwrap_or(false);
    finish(query)?;
    let number = cloud.create_policy_version(now, arn, document, as_default)?;
    let policy = cloud.managed_policy(arn)?;
    xml.element("PolicyVersion", |xml| write_version(xml, policy, number));
    Ok(())
}

/// The newest first.
pub(super) fn list_policy_versions(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let policy = cloud.managed_policy(query.required("PolicyArn")?)?;
    let page = page(query)?;
    finish(query)?;
    let key = |number: &u32| format!("{:010}", u32::MAX - number);
    write_page(xml, "Versions", page.cut(policy.versions.keys().rev().copied(), key), |xml, number| {
        write_version(xml, policy, number);
    });
    Ok(())
}

/// There are no users and no groups.
pub(super) fn list_entities(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let arn = query.required("PolicyArn")?;
    cloud.managed_policy(arn)?;
    let filter = query.text("EntityFilter");
    let prefix = query.text("PathPrefix").unwrap_or("/");
    let usage = query.choice("PolicyUsageFilter", &USAGES).map_err(|error| validation(&error.message))?;
    let page = page(query)?;
    finish(query)?;
    let wanted = matches!(filter, None | Some("Role"));
    let uses = |role: &&Role| match usage.as_deref() {
        Some("PermissionsBoundary") => role.permissions_boundary.as_deref() == Some(arn),
        Some(_) => role.attached_policies.contains(arn),
        None => role.attached_policies.contains(arn) || role.permissions_boundary.as_deref() == Some(arn),
    };
    let roles = cloud.identity.roles.values();
    let attached = roles.filter(|role| wanted && uses(role) && role.path.starts_with(prefix));
    xml.list_of("PolicyGroups", "member", [(); 0], |_, ()| {});
    xml.list_of("PolicyUsers", "member", [(); 0], |_, ()| {});
    write_page(xml, "PolicyRoles", page.cut(attached, |role| role.name.clone()), |xml, role| {
        xml.text("RoleName", &role.name);
        xml.text("RoleId", &role.id);
    });
    Ok(())
}

/// What a policy is used for.
// fidelity: documented(IAM API Reference, ListPolicies and ListEntitiesForPolicy: PolicyUsageFilter)
const USAGES: [&str; 2] = ["PermissionsPolicy", "PermissionsBoundary"];

pub(super) fn list_policies(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let scope = query.text("Scope").unwrap_or("All").to_owned();
    let attached_alone = query.boolean("OnlyAttached")?.unwrap_or(false);
    let prefix = query.text("PathPrefix").unwrap_or("/").to_owned();
    let usage = query.choice("PolicyUsageFilter", &USAGES).map_err(|error| validation(&error.message))?;
    let page = page(query)?;
    finish(query)?;
    let wanted = |policy: &&ManagedPolicy| {
        let by_aws = policy.arn.starts_with(AWS_POLICIES);
        (scope == "All" || by_aws == (scope == "AWS"))
            && policy.path.starts_with(&prefix)
            && (!attached_alone || cloud.attachments(&policy.arn) > 0)
            && match usage.as_deref() {
                Some("PermissionsBoundary") => cloud.bounded(&policy.arn) > 0,
                Some(_) => cloud.attachments(&policy.arn) > 0,
                None => true,
            }
    };
    let paged = page.cut(cloud.identity.policies.values().filter(wanted), |policy| policy.arn.clone());
    write_page(xml, "Policies", paged, |xml, policy| write_policy(xml, cloud, policy));
    Ok(())
}

pub(super) fn change_attachment(cloud: &mut Cloud, action: &str, query: &Query<'_>) -> Result<(), ApiError> {
    let (role, arn) = (query.required("RoleName")?, query.required("PolicyArn")?);
    finish(query)?;
    match action {
        "AttachRolePolicy" => cloud.attach_policy(role, arn),
        _ => cloud.detach_policy(role, arn),
    }
}

pub(super) fn list_attached(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let role = query.required("RoleName")?;
    let prefix = query.text("PathPrefix").unwrap_or("/");
    let page = page(query)?;
    finish(query)?;
    let under = |arn: &&String| cloud.identity.policies.get(*arn).is_none_or(|policy| policy.path.starts_with(prefix));
    let attached = cloud.identity.role(role)?.attached_policies.iter().filter(under);
    write_page(xml, "AttachedPolicies", page.cut(attached, |arn| (*arn).clone()), |xml, arn| {
        xml.text("PolicyName", arn.rsplit('/').next().unwrap_or(arn));
        xml.text("PolicyArn", arn);
    });
    Ok(())
}

pub(super) fn put_role_policy(cloud: &mut Cloud, query: &Query<'_>) -> Result<(), ApiError> {
    let (role, policy) = (query.required("RoleName")?, name(query, "PolicyName")?);
    let document = query.required("PolicyDocument")?;
    finish(query)?;
    cloud.put_role_policy(role, &policy, document)
}

pub(super) fn get_role_policy(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let (role, policy) = (query.required("RoleName")?, query.required("PolicyName")?);
    finish(query)?;
    let found = cloud.identity.role(role)?.inline_policies.get(policy).ok_or_else(|| no_role_policy(policy))?;
    xml.text("RoleName", role);
    xml.text("PolicyName", policy);
    xml.text("PolicyDocument", encoded(&found.text));
    Ok(())
}

pub(super) fn delete_role_policy(cloud: &mut Cloud, query: &Query<'_>) -> Result<(), ApiError> {
    let (role, policy) = (query.required("RoleName")?, query.required("PolicyName")?);
    finish(query)?;
    cloud.delete_role_policy(role, policy)
}

pub(super) fn list_role_policies(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let role = query.required("RoleName")?;
    let page = page(query)?;
    finish(query)?;
    let paged = page.cut(cloud.identity.role(role)?.inline_policies.keys(), |name| (*name).clone());
    xml.element("PolicyNames", |xml| paged.items.iter().for_each(|name| xml.text("member", name)));
    write_rest(xml, paged.next);
    Ok(())
}

fn write_version(xml: &mut Xml, policy: &ManagedPolicy, number: u32) {
    xml.text("VersionId", format!("v{number}"));
    xml.value("IsDefaultVersion", number == policy.default_version);
    xml.text("CreateDate", timestamp(policy.versions[&number].created_at));
}

fn write_policy(xml: &mut Xml, cloud: &Cloud, policy: &ManagedPolicy) {
    let ManagedPolicy {
        id,
        name,
        path,
        arn,
        description,
        created_at,
        updated_at,
        versions: _,
        default_version,
        newest_version: _,
        tags,
    } = policy;
    xml.text("PolicyName", name);
    xml.text("PolicyId", id);
    xml.text("Arn", arn);
    xml.text("Path", path);
    xml.text("DefaultVersionId", format!("v{default_version}"));
    xml.value("AttachmentCount", cloud.attachments(arn));
    xml.value("PermissionsBoundaryUsageCount", cloud.bounded(arn));
    xml.value("IsAttachable", true);
    xml.optional("Description", Some(description).filter(|text| !text.is_empty()));
    xml.text("CreateDate", timestamp(*created_at));
    xml.text("UpdateDate", timestamp(*updated_at));
    write_tags(xml, tags);
}
