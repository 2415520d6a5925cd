//! CreateTags, DeleteTags, DescribeTags, and the tags that a request gives to what it makes.

use super::{finish, page, returned_true};
use crate::cloud::Cloud;
use crate::cloud::filter::{Filters, Test};
use crate::cloud::resource::Kind;
use crate::cloud::tags::{self, Tags};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use std::collections::BTreeMap;

/// Resources in one request.
// fidelity: documented(EC2 API Reference, CreateTags: up to 1000 resource IDs); assumed: the code
const MAX_RESOURCES: usize = 1_000;

/// The tags for the one kind of resource that an action makes.
pub(super) fn tag_specification(query: &Query<'_>, kind: &Kind) -> Result<Tags, ApiError> {
    Ok(tag_specifications(query, &[kind])?.remove(kind.name).unwrap_or_default())
}

/// The tags for each kind of resource that an action makes.
// fidelity: documented(EC2 API Reference, TagSpecification: the type must be of what the action creates)
pub(super) fn tag_specifications(query: &Query<'_>, kinds: &[&Kind]) -> Result<BTreeMap<&'static str, Tags>, ApiError> {
    let mut all: BTreeMap<&'static str, Tags> = BTreeMap::new();
    for part in query.structures("TagSpecification") {
        let resource = part.required("ResourceType")?;
        let Some(kind) = kinds.iter().find(|kind| kind.name == resource) else {
            let message = format!("'{resource}' is not a valid taggable resource type for this operation.");
            return Err(ApiError::invalid_value(message));
        };
        all.entry(kind.name).or_default().extend(part.tags("Tag")?);
    }
    for given in all.values() {
        tags::check(&Tags::new(), given)?;
    }
    Ok(all)
}

// fidelity: documented(EC2 API Reference, CreateTags: overwrites; all resources or none)
pub(super) fn create_tags(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, added) = (resources(query)?, query.tags("Tag")?);
    if added.is_empty() {
        return Err(ApiError::missing("Tag"));
    }
    finish(query)?;
    for id in &ids {
        // Tags that AWS sets itself do not count against the limit.
        let mut present = cloud.tags_of(id).ok_or_else(|| not_found(id))?.clone();
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
    let ids = resources(query)?;
    let mut removed = Vec::new();
    for tag in query.structures("Tag") {
        removed.push((tag.required("Key")?.to_owned(), tag.owned("Value")));
    }
    finish(query)?;
    for id in &ids {
        cloud.tags_of(id).ok_or_else(|| not_found(id))?;
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

fn resources<'a>(query: &Query<'a>) -> Result<Vec<&'a str>, ApiError> {
    let ids = query.list("ResourceId");
    match ids.len() {
        0 => Err(ApiError::missing("ResourceId")),
        count if count > MAX_RESOURCES => Err(ApiError::invalid_value(format!(
            "{count} resources are too many for one request: at most {MAX_RESOURCES} are taken."
        ))),
        _ => Ok(ids),
    }
}

/// One tag of one resource: id, type, key, value.
type Row<'a> = (&'a str, &'static str, &'a str, &'a str);

// fidelity: documented(EC2 API Reference, DescribeTags)
pub(super) fn describe_tags(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let filters = query.filters()?;
    let page = page(query, 5, 1000, usize::MAX)?;
    finish(query)?;
    filters.check(&["key", "value", "resource-id", "resource-type", "tag-key"])?;
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (kind, id, tags) in candidates(cloud, &filters) {
        rows.extend(tags.iter().map(|(key, value)| (id, kind.name, key.as_str(), value.as_str())));
    }
    rows.sort_unstable();
    rows.dedup();
    let attribute = |(id, kind, key, value): &Row<'_>, name: &str, test: Test<'_>| match name {
        "key" => test(key),
        "value" => test(value),
        "resource-id" => test(id),
        "resource-type" => test(kind),
        _ => false,
    };
    // Filters by tag are about the row's own tag.
    let own = |(_, _, key, value): &Row<'_>| Tags::from([((*key).to_owned(), (*value).to_owned())]);
    rows.retain(|row| filters.matches(Some(&own(row)), |name, test| attribute(row, name, test)));
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

/// The resources that can pass the filters: those that are named, if they are, else all.
fn candidates<'a>(cloud: &'a Cloud, filters: &'a Filters) -> Vec<(&'static Kind, &'a str, &'a Tags)> {
    match filters.exact().find(|(name, _)| *name == "resource-id") {
        Some((_, ids)) => {
            let named = |id: &'a String| Some((Kind::of(id)?, id.as_str(), cloud.tags_of(id)?));
            ids.iter().filter_map(named).collect()
        }
        None => everything(cloud),
    }
}

fn everything(cloud: &Cloud) -> Vec<(&'static Kind, &str, &Tags)> {
    let mut all: Vec<(&'static Kind, &str, &Tags)> = cloud.network.tagged().collect();
    let parts = cloud.instances.values().flat_map(|instance| {
        let interfaces = instance.network_interfaces.iter();
        let interfaces = interfaces.map(|own| (&Kind::NETWORK_INTERFACE, own.id.as_str(), &own.tags));
        interfaces.chain(instance.volumes.iter().map(|own| (&Kind::VOLUME, own.id.as_str(), &own.tags)))
    });
    all.extend(parts);
    all.extend(cloud.instances.values().map(|own| (&Kind::INSTANCE, own.id.as_str(), &own.tags)));
    all.extend(cloud.images.images.values().map(|own| (&Kind::IMAGE, own.id.as_str(), &own.tags)));
    all.extend(cloud.images.snapshots.values().map(|own| (&Kind::SNAPSHOT, own.id.as_str(), &own.tags)));
    all.extend(cloud.key_pairs.values().map(|own| (&Kind::KEY_PAIR, own.id.as_str(), &own.tags)));
    all.extend(cloud.placement_groups.values().map(|own| (&Kind::PLACEMENT_GROUP, own.id.as_str(), &own.tags)));
    all.extend(cloud.reservations.values().map(|own| (&Kind::CAPACITY_RESERVATION, own.id.as_str(), &own.tags)));
    all.extend(cloud.spot_requests.values().map(|own| (&Kind::SPOT_REQUEST, own.id.as_str(), &own.tags)));
    all.extend(cloud.templates.iter().map(|own| (&Kind::LAUNCH_TEMPLATE, own.id.as_str(), &own.tags)));
    all.extend(cloud.volumes.values().map(|own| (&Kind::VOLUME, own.volume.id.as_str(), &own.volume.tags)));
    all
}

// fidelity: documented(EC2 API Reference, Error codes: InvalidID for ids of no known kind)
fn not_found(id: &str) -> ApiError {
    match Kind::of(id) {
        Some(kind) => kind.missing(id),
        None => ApiError::client("InvalidID", format!("The ID '{id}' is not valid")),
    }
}
