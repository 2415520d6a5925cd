//! Launch templates: create, describe, delete.

use super::{finish, page, specification, tag_set};
use crate::cloud::Cloud;
use crate::cloud::filter::Test;
use crate::cloud::launch::check_user_data;
use crate::cloud::launch_template::{LaunchTemplate, LaunchTemplateVersion};
use crate::cloud::tags;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use jiff::Timestamp;
use std::collections::BTreeMap;

// fidelity: documented(EC2 API Reference, CreateLaunchTemplate)
pub(super) fn create_launch_template(cloud: &mut Cloud, now: Timestamp, query: &Query<'_>) -> Result<String, ApiError> {
    let name = query.required("LaunchTemplateName")?.to_owned();
    check_name(&name)?;
    let version = read_version(query, now)?;
    let mut own_tags = tags::Tags::new();
    for part in query.structures("TagSpecification") {
        match part.required("ResourceType")? {
            "launch-template" => own_tags.extend(part.tags("Tag")?),
            other => {
                let message = format!("'{other}' is not a valid taggable resource type for this operation.");
                return Err(ApiError::invalid_value(message));
            }
        }
    }
    tags::check(&Default::default(), &own_tags)?;
    query.ignore(&["ClientToken", "Operator"]);
    finish(query)?;
    let id = cloud.ids.resource("lt");
    let versions = BTreeMap::from([(1, version)]);
    let template =
        LaunchTemplate { id: id.clone(), name, created_at: now, default_version: 1, versions, tags: own_tags };
    let mut xml = Xml::new();
    let account = cloud.config.account.clone();
    xml.element("launchTemplate", |xml| write_template(xml, &template, &account));
    cloud.templates.add(template)?;
    Ok(xml.into_string())
}

pub(super) fn create_launch_template_version(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let (id, name) = (query.text("LaunchTemplateId"), query.text("LaunchTemplateName"));
    let source = query.text("SourceVersion");
    let mut version = read_version(query, now)?;
    query.ignore(&["ClientToken", "ResolveAlias"]);
    finish(query)?;
    let template = cloud.templates.find(id, name)?;
    if let Some(source) = source {
        version.data = template.version(Some(source))?.1.data.clone().overridden_by(&version.data);
    }
    let (id, number) = (template.id.clone(), template.latest() + 1);
    let mut xml = Xml::new();
    let default = template.default_version;
    xml.element("launchTemplateVersion", |xml| {
        write_version(xml, template, number, &version, default, &cloud.config.account)
    });
    if let Some(template) = cloud.templates.get_mut(&id) {
        template.versions.insert(number, version);
    }
    Ok(xml.into_string())
}

fn read_version(query: &Query<'_>, now: Timestamp) -> Result<LaunchTemplateVersion, ApiError> {
    let part = query.structure("LaunchTemplateData").ok_or_else(|| ApiError::missing("LaunchTemplateData"))?;
    let data = specification::read(&part)?;
    check_user_data(data.user_data.as_deref())?;
    for added in data.tags.values() {
        tags::check(&Default::default(), added)?;
    }
    Ok(LaunchTemplateVersion { created_at: now, description: query.owned("VersionDescription"), data })
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

// fidelity: documented(EC2 API Reference, DescribeLaunchTemplates: 1 to 200 results; an unknown name or id is an error)
pub(super) fn describe_launch_templates(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (ids, names) = (query.list("LaunchTemplateId"), query.list("LaunchTemplateName"));
    let filters = query.filters()?;
    let page = page(query, 1, 200, 200)?;
    query.ignore(&["IncludeManagedResources"]);
    finish(query)?;
    filters.check(&["tag-key", "launch-template-name", "create-time"])?;
    let mut chosen: Vec<&LaunchTemplate> = Vec::new();
    for id in &ids {
        chosen.push(cloud.templates.find(Some(id), None)?);
    }
    for name in &names {
        chosen.push(cloud.templates.find(None, Some(name))?);
    }
    if ids.is_empty() && names.is_empty() {
        chosen.extend(cloud.templates.iter());
    }
    chosen.sort_by(|left, right| left.id.cmp(&right.id));
    let attribute = |template: &LaunchTemplate, name: &str, test: Test<'_>| match name {
        "launch-template-name" => test(&template.name),
        "create-time" => test(&timestamp(template.created_at)),
        _ => false,
    };
    chosen.retain(|template| filters.matches(Some(&template.tags), |name, test| attribute(template, name, test)));
    let paged = page.cut(chosen, |template| template.id.clone());
    let mut xml = Xml::new();
    let account = &cloud.config.account;
    xml.list("launchTemplates", paged.items, |xml, template| write_template(xml, template, account));
    xml.optional("nextToken", paged.next);
    Ok(xml.into_string())
}

pub(super) fn describe_launch_template_versions(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, name) = (query.text("LaunchTemplateId"), query.text("LaunchTemplateName"));
    let wanted = query.list("LaunchTemplateVersion");
    query.ignore(&["MaxResults", "NextToken", "ResolveAlias"]);
    finish(query)?;
    let template = cloud.templates.find(id, name)?;
    let mut versions = Vec::new();
    match wanted.is_empty() {
        true => versions.extend(template.versions.iter().rev().map(|(number, version)| (*number, version))),
        false => {
            for text in wanted {
                versions.push(template.version(Some(text))?);
            }
        }
    }
    let mut xml = Xml::new();
    xml.list("launchTemplateVersionSet", versions, |xml, (number, version)| {
        write_version(xml, template, number, version, template.default_version, &cloud.config.account);
    });
    Ok(xml.into_string())
}

pub(super) fn delete_launch_template(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, name) = (query.text("LaunchTemplateId"), query.text("LaunchTemplateName"));
    finish(query)?;
    let id = cloud.templates.find(id, name)?.id.clone();
    let mut xml = Xml::new();
    if let Some(template) = cloud.templates.remove(&id) {
        xml.element("launchTemplate", |xml| write_template(xml, &template, &cloud.config.account));
    }
    Ok(xml.into_string())
}

fn write_template(xml: &mut Xml, template: &LaunchTemplate, account: &str) {
    xml.text("launchTemplateId", &template.id);
    xml.text("launchTemplateName", &template.name);
    xml.time("createTime", template.created_at);
    xml.text("createdBy", format!("arn:aws:iam::{account}:root"));
    xml.value("defaultVersionNumber", template.default_version);
    xml.value("latestVersionNumber", template.latest());
    tag_set(xml, &template.tags);
}

fn write_version(
    xml: &mut Xml,
    template: &LaunchTemplate,
    number: u64,
    version: &LaunchTemplateVersion,
    default: u64,
    account: &str,
) {
    xml.text("launchTemplateId", &template.id);
    xml.text("launchTemplateName", &template.name);
    xml.value("versionNumber", number);
    xml.optional("versionDescription", version.description.as_ref());
    xml.time("createTime", version.created_at);
    xml.text("createdBy", format!("arn:aws:iam::{account}:root"));
    xml.value("defaultVersion", number == default);
    xml.element("launchTemplateData", |xml| specification::write(xml, &version.data));
}
