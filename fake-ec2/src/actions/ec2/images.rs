//! DescribeImages.

use super::{finish, page, tag_set};
use crate::cloud::filter::Test;
use crate::cloud::image::Image;
use crate::cloud::{Cloud, check_id};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;

const FILTERS: [&str; 14] = [
    "tag-key",
    "image-id",
    "name",
    "state",
    "architecture",
    "owner-id",
    "owner-alias",
    "is-public",
    "root-device-type",
    "virtualization-type",
    "creation-date",
    "platform",
    "description",
    "image-type",
];

// fidelity: documented(EC2 API Reference, DescribeImages)
pub(super) fn describe_images(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, owners, filters) = (query.list("ImageId"), query.list("Owner"), query.filters()?);
    // Deprecated images are answered to their owner and to whoever asks for them or names them by id.
    let include_deprecated = query.boolean("IncludeDeprecated")?.unwrap_or(false);
    let page = page(query, 1, 1000, usize::MAX)?;
    query.ignore(&["ExecutableBy", "IncludeDisabled"]);
    finish(query)?;
    filters.check(&FILTERS)?;
    for id in &ids {
        check_id(id, "ami", "InvalidAMIID.Malformed")?;
        if !cloud.images.images.contains_key(*id) {
            return Err(ApiError::client("InvalidAMIID.NotFound", format!("The image id '[{id}]' does not exist")));
        }
    }
    let account = cloud.config.account.as_str();
    let owned = |image: &Image, owner: &str| match owner {
        "self" => image.owner_id == account,
        alias => image.owner_id == alias || image.owner_alias.as_deref() == Some(alias),
    };
    let deprecated = |image: &Image| image.deprecated_at.is_some_and(|at| at <= now);
    let chosen = cloud
        .images
        .images
        .values()
        .filter(|image| ids.is_empty() || ids.contains(&image.id.as_str()))
        .filter(|image| owners.is_empty() || owners.iter().any(|owner| owned(image, owner)))
        .filter(|image| include_deprecated || !ids.is_empty() || image.owner_id == account || !deprecated(image))
        .filter(|image| filters.matches(Some(&image.tags), |name, test| attribute(image, account, name, test)));
    let paged = page.cut(chosen, |image| image.id.clone());
    let mut xml = Xml::new();
    xml.list("imagesSet", paged.items, |xml, image| write_image(xml, image, account));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

fn attribute(image: &Image, account: &str, name: &str, test: Test<'_>) -> bool {
    match name {
        "image-id" => test(&image.id),
        "name" => test(&image.name),
        "state" => test(&image.state),
        "architecture" => test(&image.architecture),
        "owner-id" => test(&image.owner_id),
        "owner-alias" => image.owner_alias.as_deref().is_some_and(test),
        "is-public" => test(if image.owner_id == account { "false" } else { "true" }),
        "root-device-type" => test("ebs"),
        "virtualization-type" => test("hvm"),
        "creation-date" => test(&timestamp(image.created_at)),
        "platform" => image.platform.as_deref().is_some_and(test),
        "description" => test(&image.description),
        "image-type" => test("machine"),
        _ => false,
    }
}

fn write_image(xml: &mut Xml, image: &Image, account: &str) {
    xml.text("imageId", &image.id);
    let owner = image.owner_alias.as_deref().unwrap_or(&image.owner_id);
    xml.text("imageLocation", format!("{owner}/{}", image.name));
    xml.text("imageState", &image.state);
    xml.text("imageOwnerId", &image.owner_id);
    xml.time("creationDate", image.created_at);
    xml.value("isPublic", image.owner_id != account);
    xml.text("architecture", &image.architecture);
    xml.text("imageType", "machine");
    xml.optional("platform", image.platform.as_ref());
    xml.optional("imageOwnerAlias", image.owner_alias.as_ref());
    xml.text("name", &image.name);
    xml.text("description", &image.description);
    xml.text("rootDeviceType", "ebs");
    xml.text("rootDeviceName", &image.root_device);
    xml.text("virtualizationType", "hvm");
    xml.text("hypervisor", "xen");
    xml.value("enaSupport", true);
    if let Some(at) = image.deprecated_at {
        xml.time("deprecationTime", at);
    }
    tag_set(xml, &image.tags);
}
