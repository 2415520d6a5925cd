//! Managed policies, and the policies of roles.

use super::{encoded, finish, name, path, write_tags};
use crate::cloud::Cloud;
use crate::cloud::identity::ManagedPolicy;
use crate::cloud::roles::{AWS_POLICIES, NewPolicy, no_role_policy};
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page};
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

/// There is one version of each policy.
pub(super) fn get_policy_version(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let (arn, version) = (query.required("PolicyArn")?, query.required("VersionId")?);
    finish(query)?;
    let policy = cloud.managed_policy(arn)?;
    if version != "v1" {
        let message = format!("Policy {arn} version {version} does not exist or is not attachable.");
        return Err(ApiError::new(404, "NoSuchEntity", message));
    }
    xml.element("PolicyVersion", |xml| {
        xml.text("Document", encoded(&policy.policy.text));
        xml.text("VersionId", "v1");
        xml.value("IsDefaultVersion", true);
        xml.text("CreateDate", timestamp(policy.created_at));
    });
    Ok(())
}

pub(super) fn list_policies(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let scope = query.text("Scope").unwrap_or("All").to_owned();
    let attached_alone = query.boolean("OnlyAttached")?.unwrap_or(false);
    let prefix = query.text("PathPrefix").unwrap_or("/").to_owned();
    query.ignore(&["PolicyUsageFilter"]);
    let page =
        Page::new(query.number("MaxItems")?, query.text("Marker"), Bounds { minimum: 1, maximum: 1000, default: 100 })?;
    finish(query)?;
    let wanted = |policy: &&ManagedPolicy| {
        let by_aws = policy.arn.starts_with(AWS_POLICIES);
        (scope == "All" || by_aws == (scope == "AWS"))
            && policy.path.starts_with(&prefix)
            && (!attached_alone || cloud.attachments(&policy.arn) > 0)
    };
    let paged = page.cut(cloud.identity.policies.values().filter(wanted), |policy| policy.arn.clone());
    xml.value("IsTruncated", paged.next.is_some());
    xml.list_of("Policies", "member", paged.items, |xml, policy| write_policy(xml, cloud, policy));
    xml.optional("Marker", paged.next);
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
    query.ignore(&["PathPrefix", "MaxItems", "Marker"]);
    finish(query)?;
    let attached = cloud.identity.role(role)?.attached_policies.iter();
    xml.list_of("AttachedPolicies", "member", attached, |xml, arn| {
        xml.text("PolicyName", arn.rsplit('/').next().unwrap_or(arn));
        xml.text("PolicyArn", arn);
    });
    xml.value("IsTruncated", false);
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
    query.ignore(&["MaxItems", "Marker"]);
    finish(query)?;
    let names = cloud.identity.role(role)?.inline_policies.keys();
    xml.element("PolicyNames", |xml| names.for_each(|name| xml.text("member", name)));
    xml.value("IsTruncated", false);
    Ok(())
}

fn write_policy(xml: &mut Xml, cloud: &Cloud, policy: &ManagedPolicy) {
    let ManagedPolicy { id, name, path, arn, description, created_at, policy: _, tags } = policy;
    xml.text("PolicyName", name);
    xml.text("PolicyId", id);
    xml.text("Arn", arn);
    xml.text("Path", path);
    xml.text("DefaultVersionId", "v1");
    xml.value("AttachmentCount", cloud.attachments(arn));
    xml.value("PermissionsBoundaryUsageCount", 0);
    xml.value("IsAttachable", true);
    xml.optional("Description", Some(description).filter(|text| !text.is_empty()));
    xml.text("CreateDate", timestamp(*created_at));
    xml.text("UpdateDate", timestamp(*created_at));
    write_tags(xml, tags);
}
