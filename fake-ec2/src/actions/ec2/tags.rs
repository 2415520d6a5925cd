//! CreateTags, DeleteTags, DescribeTags.

use super::{finish, page, returned_true};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::tags;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;

// fidelity: documented(EC2 API Reference, CreateTags: overwrites; all resources or none)
pub(super) fn create_tags(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, added) = (query.list("ResourceId"), query.tags("Tag")?);
    if ids.is_empty() {
        return Err(ApiError::missing("ResourceId"));
    }
    if added.is_empty() {
        return Err(ApiError::missing("Tag"));
    }
    finish(query)?;
    for id in &ids {
        // Tags that AWS sets itself do not count against the limit.
        let mut present = cloud.tags_mut(id).ok_or_else(|| not_found(id))?.clone();
        present.retain(|key, _| !key.starts_with("aws:"));
        tags::check(&present, &added)?;
    }
    for id in ids {
        if let Some(present) = cloud.tags_mut(id) {
            present.extend(added.clone());
        }
    }
    Ok(returned_true())
}

// fidelity: documented(EC2 API Reference, DeleteTags: a value, if given, must be equal; no tags means all)
pub(super) fn delete_tags(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let ids = query.list("ResourceId");
    let mut removed = Vec::new();
    for tag in query.structures("Tag") {
        removed.push((tag.required("Key")?.to_owned(), tag.owned("Value")));
    }
    if ids.is_empty() {
        return Err(ApiError::missing("ResourceId"));
    }
    finish(query)?;
    for id in &ids {
        cloud.tags_mut(id).ok_or_else(|| not_found(id))?;
    }
    for id in ids {
        let Some(present) = cloud.tags_mut(id) else { continue };
        let named = |key: &String, value: &String| {
            removed.iter().any(|(name, only)| name == key && only.as_ref().is_none_or(|only| only == value))
        };
        present.retain(|key, value| key.starts_with("aws:") || !(removed.is_empty() || named(key, value)));
    }
    Ok(returned_true())
}

/// Of instances, subnets, security groups, images and launch templates.
pub(super) fn describe_tags(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let filters = query.filters()?;
    let page = page(query, 5, 1000, usize::MAX)?;
    finish(query)?;
    filters.check(&["key", "value", "resource-id", "resource-type", "tag-key"])?;
    let kinds = [
        ("image", cloud.images.images.iter().map(|(id, own)| (id, &own.tags)).collect::<Vec<_>>()),
        ("instance", cloud.instances.iter().map(|(id, own)| (id, &own.tags)).collect()),
        ("launch-template", cloud.templates.iter().map(|own| (&own.id, &own.tags)).collect()),
        ("security-group", cloud.network.groups.iter().map(|(id, own)| (id, &own.tags)).collect()),
        ("subnet", cloud.network.subnets.iter().map(|(id, own)| (id, &own.tags)).collect()),
    ];
    let mut rows: Vec<(&str, &str, &str, &str)> = Vec::new();
    for (kind, resources) in &kinds {
        for (id, tags) in resources {
            rows.extend(tags.iter().map(|(key, value)| (id.as_str(), *kind, key.as_str(), value.as_str())));
        }
    }
    rows.sort_unstable();
    let attribute = |(id, kind, key, value): &(&str, &str, &str, &str), name: &str, test: Test<'_>| match name {
        "key" => test(key),
        "value" => test(value),
        "resource-id" => test(id),
        "resource-type" => test(kind),
        _ => false,
    };
    rows.retain(|row| filters.matches(None, |name, test| attribute(row, name, test)));
    let paged = page.cut(rows, |(id, kind, key, _)| format!("{id}\u{1}{kind}\u{1}{key}"));
    let mut xml = Xml::new();
    xml.list("tagSet", paged.items, |xml, (id, kind, key, value)| {
        xml.text("resourceId", id);
        xml.text("resourceType", kind);
        xml.text("key", key);
        xml.text("value", value);
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn not_found(id: &str) -> ApiError {
    let (code, kind) = match id.split('-').next().unwrap_or_default() {
        "i" => ("InvalidInstanceID.NotFound", "instance"),
        "subnet" => ("InvalidSubnetID.NotFound", "subnet"),
        "sg" => ("InvalidGroup.NotFound", "security group"),
        "ami" => ("InvalidAMIID.NotFound", "image"),
        "lt" => ("InvalidLaunchTemplateId.NotFound", "launch template"),
        "vol" => ("InvalidVolume.NotFound", "volume"),
        "eni" => ("InvalidNetworkInterfaceID.NotFound", "networkInterface"),
        "vpc" => ("InvalidVpcID.NotFound", "vpc"),
        _ => ("InvalidID", "resource"),
    };
    ApiError::client(code, format!("The {kind} ID '{id}' does not exist"))
}
