//! Launch templates and their versions: create, describe, modify, delete, and the data of a running instance.

use super::instances::find_visible;
use super::{finish, page, refuse_unsupported, specification, tag_set};
use crate::cloud::filter::Test;
use crate::cloud::launch::check_user_data;
use crate::cloud::launch_template::{LaunchSpecification, LaunchTemplate, LaunchTemplateVersion};
use crate::cloud::{Cloud, after, tags};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Versions that one call may delete.
// fidelity: documented(EC2 API Reference, DeleteLaunchTemplateVersions: up to 200 in a request)
const MAX_DELETED: usize = 200;

// fidelity: documented(EC2 API Reference, CreateLaunchTemplate)
pub(super) fn create_launch_template(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let name = query.required("LaunchTemplateName")?.to_owned();
    check_name(&name)?;
    let version = read_version(query, now)?;
    let own_tags = super::tags_of_new(query, "TagSpecification", "launch-template")?;
    query.text("ClientToken");
    refuse_unsupported(query, &["Operator"])?;
    finish(query)?;
    let id = cloud.ids.resource("lt");
    let template = LaunchTemplate {
        id: id.clone(),
        name,
        created_at: now,
        visible_at: after(now, cloud.config.consistency_delay),
        default_version: 1,
        last_number: 1,
        versions: BTreeMap::from([(1, version)]),
        tags: own_tags,
    };
    let mut xml = Xml::new();
    xml.element("launchTemplate", |xml| write_template(xml, &template, &template.tags, &cloud.config.account));
    cloud.templates.add(template)?;
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, CreateLaunchTemplateVersion: the source's parameters, overwritten by the given)
pub(super) fn create_launch_template_version(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let (id, name) = named(query)?;
    let source = query.text("SourceVersion");
    let mut version = read_version(query, now)?;
    query.text("ClientToken");
    let resolve = query.boolean("ResolveAlias")?.unwrap_or(false);
    finish(query)?;
    let template = cloud.templates.find(id, name)?;
    if let Some(source) = source {
        version.data = template.version(Some(source))?.1.data.clone().overridden_by(&version.data);
    }
    let id = template.id.clone();
    let template = cloud.templates.get_mut(&id).expect("it has been looked up");
    let number = template.add_version(version)?;
    let mut xml = Xml::new();
    let (template, account) = (cloud.templates.find(Some(&id), None)?, &cloud.config.account);
    xml.element("launchTemplateVersion", |xml| match resolve {
        true => write_resolved(xml, cloud, template, number, account),
        false => write_version(xml, template, number, account),
    });
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, ModifyLaunchTemplate: the default version)
pub(super) fn modify_launch_template(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, name) = named(query)?;
    let version = query.text("SetDefaultVersion").ok_or_else(|| ApiError::missing("SetDefaultVersion"))?;
    query.text("ClientToken");
    finish(query)?;
    let template = cloud.templates.find(id, name)?;
    let (number, _) = template.version(Some(version))?;
    let id = template.id.clone();
    let template = cloud.templates.get_mut(&id).expect("it has been looked up");
    template.default_version = number;
    let mut xml = Xml::new();
    xml.element("launchTemplate", |xml| write_template(xml, template, &template.tags, &cloud.config.account));
    Ok(xml.into_string())
}

fn read_version(query: &Query<'_>, now: Timestamp) -> Result<LaunchTemplateVersion, ApiError> {
    let part = query.structure("LaunchTemplateData").ok_or_else(|| ApiError::missing("LaunchTemplateData"))?;
    let data = specification::read(&part)?;
    check_user_data(data.user_data.as_deref())?;
    for added in data.tags.values() {
        tags::check(&Default::default(), added)?;
    }
    if data.instance_type.is_some() && data.requirements.is_some() {
        let message = "Instance type and instance requirements can't be specified in the same launch template.";
        return Err(ApiError::client("InvalidParameterCombination", message));
    }
    let description = query.owned("VersionDescription");
    // fidelity: documented(EC2 API Reference, CreateLaunchTemplate: VersionDescription of at most 255 characters)
    if description.as_ref().is_some_and(|text| text.chars().count() > 255) {
        return Err(ApiError::invalid_value("The version description is longer than 255 characters."));
    }
    Ok(LaunchTemplateVersion { created_at: now, description, data })
}

/// The id or the name of the template a request is about.
fn named<'a>(query: &Query<'a>) -> Result<(Option<&'a str>, Option<&'a str>), ApiError> {
    match (query.text("LaunchTemplateId"), query.text("LaunchTemplateName")) {
        (Some(_), Some(_)) => Err(ApiError::client(
            "InvalidParameterCombination",
            "A launch template ID and a launch template name can't be specified together; specify one of them.",
        )),
        named => Ok(named),
    }
}

// fidelity: documented(EC2 API Reference, CreateLaunchTemplate: 3 to 128 letters, digits and ( ) . - / _)
fn check_name(name: &str) -> Result<(), ApiError> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "().-/_".contains(character);
    match (3..=128).contains(&name.len()) && name.chars().all(allowed) {
        true => Ok(()),
        false => Err(ApiError::client(
            "InvalidLaunchTemplateName.MalformedException",
            "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _.",
        )),
    }
}

/// A template that Describe calls see already.
fn seen<'a>(
    cloud: &'a Cloud,
    now: Timestamp,
    id: Option<&str>,
    name: Option<&str>,
) -> Result<&'a LaunchTemplate, ApiError> {
    let template = cloud.templates.find(id, name)?;
    match template.visible_at <= now {
        true => Ok(template),
        false => Err(cloud.templates.not_found(id, name)),
    }
}

// fidelity: documented(EC2 API Reference, DescribeLaunchTemplates: 1 to 200 results; an unknown name or id is an error)
pub(super) fn describe_launch_templates(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let (ids, names) = (query.list("LaunchTemplateId"), query.list("LaunchTemplateName"));
    let filters = query.filters()?;
    let page = page(query, 1, 200, 200)?;
    query.boolean("IncludeManagedResources")?; // No service of AWS has made any here.
    finish(query)?;
    filters.check(&["tag-key", "launch-template-name", "create-time"])?;
    let mut chosen: Vec<&LaunchTemplate> = Vec::new();
    for id in &ids {
        chosen.push(seen(cloud, now, Some(id), None)?);
    }
    for name in &names {
        chosen.push(seen(cloud, now, None, Some(name))?);
    }
    if ids.is_empty() && names.is_empty() {
        chosen.extend(cloud.templates.iter().filter(|template| template.visible_at <= now));
    }
    chosen.sort_by(|left, right| left.id.cmp(&right.id));
    let attribute = |template: &LaunchTemplate, name: &str, test: Test<'_>| match name {
        "launch-template-name" => test(&template.name),
        "create-time" => test(&timestamp(template.created_at)),
        _ => false,
    };
    let tags = |template: &'_ LaunchTemplate| cloud.seen_tags(now, &template.id, &template.tags).clone();
    chosen.retain(|template| filters.matches(Some(&tags(template)), |name, test| attribute(template, name, test)));
    let paged = page.cut(chosen, |template| template.id.clone());
    let mut xml = Xml::new();
    let account = &cloud.config.account;
    xml.list("launchTemplates", paged.items, |xml, template| write_template(xml, template, &tags(template), account));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

/// Every filter of DescribeLaunchTemplateVersions.
const VERSION_FILTERS: [&str; 14] = [
    "create-time",
    "ebs-optimized",
    "http-endpoint",
    "http-protocol-ipv4",
    "host-resource-group-arn",
    "http-tokens",
    "iam-instance-profile",
    "image-id",
    "instance-type",
    "is-default-version",
    "kernel-id",
    "license-configuration-arn",
    "network-card-index",
    "ram-disk-id",
];

pub(super) fn describe_launch_template_versions(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let cloud = &*cloud;
    let (id, name) = named(query)?;
    let wanted = Wanted {
        texts: query.list("LaunchTemplateVersion"),
        lowest: query.number("MinVersion")?,
        highest: query.number("MaxVersion")?,
    };
    let resolve = query.boolean("ResolveAlias")?.unwrap_or(false);
    let filters = query.filters()?;
    let page = page(query, 1, 200, 200)?;
    query.boolean("IncludeManagedResources")?; // No service of AWS has made any here.
    finish(query)?;
    filters.check(&VERSION_FILTERS)?;
    let mut chosen = match id.or(name) {
        Some(_) => wanted.of(seen(cloud, now, id, name)?)?,
        None => wanted.of_all(cloud.templates.iter().filter(|template| template.visible_at <= now))?,
    };
    // The newest version of a template comes first.
    let key = |(template, number): &(&LaunchTemplate, u64)| format!("{}\u{1}{:020}", template.id, u64::MAX - number);
    chosen.sort_by_key(key);
    chosen.dedup_by_key(|row| key(row));
    chosen.retain(|(template, number)| {
        filters.matches(None, |name, test| version_attribute(template, *number, name, test))
    });
    let paged = page.cut(chosen, key);
    let mut xml = Xml::new();
    let account = &cloud.config.account;
    xml.list("launchTemplateVersionSet", paged.items, |xml, (template, number)| match resolve {
        true => write_resolved(xml, cloud, template, number, account),
        false => write_version(xml, template, number, account),
    });
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

/// Which versions are to be described.
struct Wanted<'a> {
    texts: Vec<&'a str>,
    lowest: Option<u64>,
    highest: Option<u64>,
}

/// Versions, each with its template.
type Versions<'a> = Vec<(&'a LaunchTemplate, u64)>;

// fidelity: documented(EC2 API Reference, DescribeLaunchTemplateVersions: by id or name with versions or a range; of every
// template only $Latest and $Default)
impl Wanted<'_> {
    fn of<'a>(&self, template: &'a LaunchTemplate) -> Result<Versions<'a>, ApiError> {
        let within = |number: &u64| {
            self.lowest.is_none_or(|low| *number >= low) && self.highest.is_none_or(|high| *number <= high)
        };
        if self.texts.is_empty() {
            return Ok(template.versions.keys().copied().filter(within).map(|number| (template, number)).collect());
        }
        if self.lowest.is_some() || self.highest.is_some() {
            let message = "MinVersion and MaxVersion can't be specified together with versions.";
            return Err(ApiError::client("InvalidParameterCombination", message));
        }
        self.texts.iter().map(|text| Ok((template, template.version(Some(text))?.0))).collect()
    }

    fn of_all<'a>(&self, templates: impl Iterator<Item = &'a LaunchTemplate>) -> Result<Versions<'a>, ApiError> {
        let aliases = self.texts.iter().all(|text| matches!(*text, "$Latest" | "$Default"));
        if self.texts.is_empty() || !aliases {
            let message =
                "Without a launch template ID or name, only the versions $Latest and $Default can be described.";
            return Err(ApiError::client("MissingParameter", message));
        }
        let each: Result<Vec<_>, _> = templates.map(|template| self.of(template)).collect();
        Ok(each?.into_iter().flatten().collect())
    }
}

fn version_attribute(template: &LaunchTemplate, number: u64, name: &str, test: Test<'_>) -> bool {
    let version = &template.versions[&number];
    let data = &version.data;
    let optional = |value: &Option<String>, test: Test<'_>| value.as_deref().is_some_and(test);
    let rest = |path: &str, test: Test<'_>| data.rest.get(path).is_some_and(test);
    match name {
        "create-time" => test(&timestamp(version.created_at)),
        "ebs-optimized" => data.ebs_optimized.is_some_and(|optimized| test(&optimized.to_string())),
        "http-endpoint" => optional(&data.metadata.endpoint, test),
        "http-tokens" => optional(&data.metadata.tokens, test),
        "host-resource-group-arn" => rest("Placement.HostResourceGroupArn", test),
        "iam-instance-profile" => optional(&data.profile_arn, test) || optional(&data.profile_name, test),
        "image-id" => optional(&data.image_id, test),
        "instance-type" => optional(&data.instance_type, test),
        "is-default-version" => test(&(number == template.default_version).to_string()),
        "kernel-id" => rest("KernelId", test),
        "ram-disk-id" => rest("RamDiskId", test),
        "license-configuration-arn" => {
            data.rest.iter().any(|(path, value)| path.starts_with("LicenseSpecification.") && test(value))
        }
        "network-card-index" => {
            data.network_interfaces.iter().any(|interface| test(&interface.network_card_index.to_string()))
        }
        _ => false,
    }
}

// fidelity: documented(EC2 API Reference, DeleteLaunchTemplateVersions: successes and failures side by side); assumed: that
// the default version, which the reference says must be replaced first, fails with unexpectedError.
pub(super) fn delete_launch_template_versions(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, name) = named(query)?;
    let wanted = query.list("LaunchTemplateVersion");
    finish(query)?;
    if wanted.is_empty() {
        return Err(ApiError::missing("LaunchTemplateVersion"));
    }
    if wanted.len() > MAX_DELETED {
        let message =
            format!("At most {MAX_DELETED} versions can be deleted in one request; {} were given.", wanted.len());
        return Err(ApiError::invalid_value(message));
    }
    let id = cloud.templates.find(id, name)?.id.clone();
    let template = cloud.templates.get_mut(&id).expect("it has been looked up");
    let (mut deleted, mut kept) = (Vec::new(), Vec::new());
    for text in wanted {
        let number: u64 = text.parse().map_err(|_| {
            ApiError::invalid_value(format!(
                "Value ({text}) for parameter LaunchTemplateVersion is invalid. Expected a number"
            ))
        })?;
        if number == template.default_version && template.versions.contains_key(&number) {
            kept.push((number, "unexpectedError", "The default version of a launch template cannot be deleted."));
        } else if template.versions.remove(&number).is_some() {
            deleted.push(number);
        } else {
            kept.push((number, "launchTemplateVersionDoesNotExist", "The launch template version does not exist."));
        }
    }
    let of_template = |xml: &mut Xml, number: u64| {
        xml.text("launchTemplateId", &template.id);
        xml.text("launchTemplateName", &template.name);
        xml.value("versionNumber", number);
    };
    let mut xml = Xml::new();
    xml.list("successfullyDeletedLaunchTemplateVersionSet", deleted, of_template);
    xml.list("unsuccessfullyDeletedLaunchTemplateVersionSet", kept, |xml, (number, code, message)| {
        of_template(xml, number);
        xml.element("responseError", |xml| {
            xml.text("code", code);
            xml.text("message", message);
        });
    });
    Ok(xml.into_string())
}

pub(super) fn delete_launch_template(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, name) = named(query)?;
    finish(query)?;
    let id = cloud.templates.find(id, name)?.id.clone();
    let mut xml = Xml::new();
    if let Some(template) = cloud.templates.remove(&id) {
        xml.element("launchTemplate", |xml| write_template(xml, &template, &template.tags, &cloud.config.account));
    }
    Ok(xml.into_string())
}

// fidelity: documented(EC2 API Reference, GetLaunchTemplateData: the configuration data of an instance)
pub(super) fn get_launch_template_data(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let id = query.required("InstanceId")?;
    finish(query)?;
    let instance = find_visible(cloud, now, id)?;
    let mut data: LaunchSpecification = (*instance.specification).clone();
    data.image_id = Some(instance.image_id.clone());
    data.instance_type = Some(instance.instance_type.to_owned());
    data.requirements = None;
    data.monitoring = Some(instance.monitoring);
    data.ebs_optimized = Some(instance.ebs_optimized);
    data.disable_api_termination = Some(instance.disable_api_termination);
    data.disable_api_stop = Some(instance.disable_api_stop);
    data.shutdown_behavior = Some(instance.shutdown_behavior.clone());
    data.user_data.clone_from(&instance.user_data);
    data.metadata.clone_from(&instance.metadata);
    data.zone = Some(instance.zone.clone());
    data.tenancy = Some(instance.tenancy.clone());
    data.tags = match instance.tags.is_empty() {
        true => BTreeMap::new(),
        false => {
            let own = instance.tags.iter().filter(|(key, _)| !key.starts_with("aws:"));
            BTreeMap::from([("instance".to_owned(), own.map(|(key, value)| (key.clone(), value.clone())).collect())])
        }
    };
    let mut xml = Xml::new();
    xml.element("launchTemplateData", |xml| specification::write(xml, &data));
    Ok(xml.into_string())
}

fn write_template(xml: &mut Xml, template: &LaunchTemplate, tags: &tags::Tags, account: &str) {
    xml.text("launchTemplateId", &template.id);
    xml.text("launchTemplateName", &template.name);
    xml.time("createTime", template.created_at);
    xml.text("createdBy", format!("arn:aws:iam::{account}:root"));
    xml.value("defaultVersionNumber", template.default_version);
    xml.value("latestVersionNumber", template.latest());
    tag_set(xml, tags);
}

fn write_version(xml: &mut Xml, template: &LaunchTemplate, number: u64, account: &str) {
    write_version_with(xml, template, number, account, &template.versions[&number].data);
}

/// With the image that an SSM parameter names in the place of its alias.
// fidelity: documented(EC2 API Reference, DescribeLaunchTemplateVersions: ResolveAlias, resolve:ssm:parameter-name)
fn write_resolved(xml: &mut Xml, cloud: &Cloud, template: &LaunchTemplate, number: u64, account: &str) {
    let mut data = template.versions[&number].data.clone();
    data.image_id = data.image_id.map(|image| cloud.resolved_image(&image).unwrap_or(image));
    write_version_with(xml, template, number, account, &data);
}

fn write_version_with(
    xml: &mut Xml,
    template: &LaunchTemplate,
    number: u64,
    account: &str,
    data: &LaunchSpecification,
) {
    let version = &template.versions[&number];
    xml.text("launchTemplateId", &template.id);
    xml.text("launchTemplateName", &template.name);
    xml.value("versionNumber", number);
    xml.optional("versionDescription", version.description.as_ref());
    xml.time("createTime", version.created_at);
    xml.text("createdBy", format!("arn:aws:iam::{account}:root"));
    xml.value("defaultVersion", number == template.default_version);
    xml.element("launchTemplateData", |xml| specification::write(xml, data));
}
