//! SSM parameters: the public ones that name images, and the account's own.

mod filters;
mod write;

use super::{Context, described_tags, page, tag_list, text, texts, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::image::Parameter;
use crate::cloud::parameter::{OwnParameter, ParameterVersion, no_version};
use crate::cloud::tags::{self, Tags};
use crate::error::ApiError;
use crate::wire::pagination::Bounds;
use crate::wire::{Reply, Service};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use filters::Filters;
use serde_json::{Value, json};
use std::collections::BTreeMap;

// fidelity: documented(Systems Manager API Reference: each action and its errors)
pub(super) fn perform(cloud: &mut Cloud, context: &Context, action: &str, input: &Value) -> Result<Reply, ApiError> {
    let value = match action {
        "AddTagsToResource" => add_tags(cloud, input)?,
        "DeleteParameter" => {
            let name = required(input, "Name")?;
            if !write::delete(cloud, name) {
                return Err(not_found(name));
            }
            json!({})
        }
        "DeleteParameters" => {
            let (deleted, invalid): (Vec<&str>, Vec<&str>) =
                names(input)?.into_iter().partition(|name| write::delete(cloud, name));
            json!({"DeletedParameters": deleted, "InvalidParameters": invalid})
        }
        "DescribeParameters" => describe_parameters(cloud, input)?,
        "GetParameter" => {
            let name = required(input, "Name")?;
            json!({"Parameter": found(cloud, name, is_decrypted(input))?})
        }
        "GetParameterHistory" => history(cloud, input)?,
        "GetParameters" => get_parameters(cloud, input)?,
        "GetParametersByPath" => by_path(cloud, input)?,
        "LabelParameterVersion" => write::label(cloud, input)?,
        "ListTagsForResource" => json!({"TagList": described_tags(tagged(cloud, input)?)}),
        "PutParameter" => write::put(cloud, context, input)?,
        "RemoveTagsFromResource" => {
            let keys: Vec<&str> = texts(input, "TagKeys").collect();
            tagged(cloud, input)?.retain(|key, _| !keys.contains(&key.as_str()));
            json!({})
        }
        "UnlabelParameterVersion" => write::unlabel(cloud, input)?,
        _ => return Err(unknown_action(Service::Ssm, action)),
    };
    Ok(Reply::Json(value))
}

/// A parameter of either kind, to read.
enum Known<'a> {
    Public(&'a Parameter),
    Own(&'a OwnParameter),
}

/// Every parameter by its name.
fn all(cloud: &Cloud) -> BTreeMap<&str, Known<'_>> {
    let public = cloud.images.parameters.iter().map(|(name, parameter)| (name.as_str(), Known::Public(parameter)));
    let own = cloud.parameters.iter().map(|(name, parameter)| (name.as_str(), Known::Own(parameter)));
    public.chain(own).collect()
}

fn known<'a>(cloud: &'a Cloud, name: &str) -> Option<Known<'a>> {
    let own = cloud.parameters.get(name).map(Known::Own);
    own.or_else(|| cloud.images.parameters.get(name).map(Known::Public))
}

/// The name in a full ARN; a name outside hierarchies has no slash of its own.
fn plain_name(cloud: &Cloud, name: &str) -> String {
    let Some(path) = name.strip_prefix("arn:").and_then(|arn| arn.split_once(":parameter").map(|(_, path)| path))
    else {
        return name.to_owned();
    };
    match known(cloud, path.split(':').next().unwrap_or(path)) {
        Some(_) => path.to_owned(),
        None => path.trim_start_matches('/').to_owned(),
    }
}

/// The parameter that a name means, which may end in a version or a label.
// fidelity: documented(SSM API Reference, GetParameter: `name:version`, `name:label`); assumed: a public parameter has no
// version but its newest
fn found(cloud: &Cloud, asked: &str, decrypted: bool) -> Result<Value, ApiError> {
    let name = plain_name(cloud, asked.trim());
    let (name, selector) = match name.split_once(':') {
        Some((name, selector)) => (name, Some(selector)),
        None => (name.as_str(), None),
    };
    let mut value = match (known(cloud, name).ok_or_else(|| not_found(asked))?, selector) {
        (Known::Public(parameter), None) => describe_public(cloud, name, parameter),
        (Known::Public(parameter), Some(selector)) if parameter.version.to_string() == selector => {
            describe_public(cloud, name, parameter)
        }
        (Known::Own(parameter), None) => describe_own(cloud, name, parameter, parameter.latest(), decrypted),
        (Known::Own(parameter), Some(selector)) => {
            let version = parameter.version(selector).ok_or_else(|| no_version(selector))?;
            describe_own(cloud, name, parameter, version, decrypted)
        }
        (Known::Public(_), Some(selector)) => return Err(no_version(selector)),
    };
    if let Some(selector) = selector {
        value["Selector"] = json!(format!(":{selector}"));
    }
    Ok(value)
}

// fidelity: documented(SSM API Reference, GetParameters: in alphabetical order)
fn get_parameters(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let (mut parameters, mut invalid) = (BTreeMap::new(), Vec::new());
    for name in names(input)? {
        match found(cloud, name, is_decrypted(input)) {
            Ok(parameter) => drop(parameters.insert(name, parameter)),
            Err(_) => invalid.push(name),
        }
    }
    Ok(json!({"Parameters": parameters.into_values().collect::<Vec<_>>(), "InvalidParameters": invalid}))
}

// fidelity: documented(SSM API Reference, GetParametersByPath: at most 10 in a page, filters by Type, KeyId and Label); assumed:
// wording
fn by_path(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let path = required(input, "Path")?;
    if !path.starts_with('/') {
        let message = "The parameter doesn't meet the parameter name requirements. The parameter name must begin with a forward slash \"/\".";
        return Err(ApiError::client("ValidationException", message));
    }
    let path = path.trim_end_matches('/');
    let recursive = input.get("Recursive").and_then(Value::as_bool).unwrap_or(false);
    let below = |name: &str| {
        let rest = name.strip_prefix(path).and_then(|rest| rest.strip_prefix('/'));
        rest.is_some_and(|rest| recursive || !rest.contains('/'))
    };
    let filters = Filters::read(input, &["KeyId", "Label", "Type"])?;
    let chosen = all(cloud).into_iter().filter(|(name, known)| below(name) && filters.match_known(name, known));
    let bounds = Bounds { minimum: 1, maximum: 10, default: 10 };
    let page = page(input, ["MaxResults", "NextToken"], bounds, ["ValidationException", "InvalidNextToken"])?;
    let paged = page.cut(chosen, |(name, _)| (*name).to_owned());
    let decrypted = is_decrypted(input);
    let parameters = paged.items.into_iter().map(|(name, known)| match known {
        Known::Public(parameter) => describe_public(cloud, name, parameter),
        // A label selects the version that has it.
        Known::Own(parameter) => {
            let version = filters.labelled(parameter).unwrap_or_else(|| parameter.latest());
            describe_own(cloud, name, parameter, version, decrypted)
        }
    });
    Ok(with_next(json!({"Parameters": parameters.collect::<Vec<_>>()}), paged.next))
}

// fidelity: documented(SSM API Reference, DescribeParameters: at most 50 in a page; public parameters are not listed)
fn describe_parameters(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let allowed = ["DataType", "KeyId", "Label", "Name", "Path", "Tier", "Type", "tag:"];
    let filters = Filters::read(input, &allowed)?;
    let own = cloud.parameters.iter().filter(|(name, parameter)| filters.match_own(name, parameter));
    let bounds = Bounds { minimum: 1, maximum: 50, default: 50 };
    let page = page(input, ["MaxResults", "NextToken"], bounds, ["ValidationException", "InvalidNextToken"])?;
    let paged = page.cut(own, |(name, _)| (*name).clone());
    let described = paged.items.into_iter().map(|(name, parameter)| {
        let mut value = metadata(parameter, parameter.latest());
        value["Name"] = json!(name);
        value["ARN"] = json!(arn(cloud, name));
        value
    });
    Ok(with_next(json!({"Parameters": described.collect::<Vec<_>>()}), paged.next))
}

fn history(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let asked = required(input, "Name")?;
    let name = plain_name(cloud, asked);
    let parameter = cloud.parameters.get(&name).ok_or_else(|| not_found(asked))?;
    let bounds = Bounds { minimum: 1, maximum: 50, default: 50 };
    let page = page(input, ["MaxResults", "NextToken"], bounds, ["ValidationException", "InvalidNextToken"])?;
    let paged = page.cut(&parameter.versions, |version| format!("{:020}", version.number));
    let decrypted = is_decrypted(input);
    let versions = paged.items.into_iter().map(|version| {
        let mut value = metadata(parameter, version);
        value["Name"] = json!(name);
        value["Value"] = json!(shown(parameter, version, decrypted));
        value["Labels"] = json!(version.labels);
        value
    });
    Ok(with_next(json!({"Parameters": versions.collect::<Vec<_>>()}), paged.next))
}

fn with_next(mut answer: Value, next: Option<String>) -> Value {
    if let Some(next) = next {
        answer["NextToken"] = json!(next);
    }
    answer
}

fn describe_public(cloud: &Cloud, name: &str, parameter: &Parameter) -> Value {
    json!({
        "Name": name,
        "Type": "String",
        "Value": parameter.value,
        "Version": parameter.version,
        "LastModifiedDate": parameter.modified_at.as_second(),
        // Public parameters belong to no account.
        "ARN": format!("arn:aws:ssm:{}::parameter{name}", cloud.config.region),
        "DataType": "text",
    })
}

fn describe_own(
    cloud: &Cloud,
    name: &str,
    parameter: &OwnParameter,
    version: &ParameterVersion,
    decrypted: bool,
) -> Value {
    json!({
        "Name": name,
        "Type": parameter.kind,
        "Value": shown(parameter, version, decrypted),
        "Version": version.number,
        "LastModifiedDate": version.modified_at.as_second(),
        "ARN": arn(cloud, name),
        "DataType": parameter.data_type,
    })
}

/// What is told of a parameter besides its value.
fn metadata(parameter: &OwnParameter, version: &ParameterVersion) -> Value {
    let mut value = json!({
        "Type": parameter.kind,
        "LastModifiedDate": version.modified_at.as_second(),
        "LastModifiedUser": version.modified_by,
        "Version": version.number,
        "Tier": parameter.tier,
        "Policies": [],
        "DataType": parameter.data_type,
    });
    let texts = [
        ("Description", Some(&parameter.description).filter(|text| !text.is_empty())),
        ("KeyId", parameter.key_id.as_ref()),
        ("AllowedPattern", parameter.allowed_pattern.as_ref()),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            value[name] = json!(text);
        }
    }
    value
}

/// The value, or for a secure one that nobody wants decrypted something that does not tell it at a glance.
// fidelity: assumed: the ciphertext, which is none
fn shown(parameter: &OwnParameter, version: &ParameterVersion, decrypted: bool) -> String {
    match parameter.kind == "SecureString" && !decrypted {
        true => STANDARD.encode(format!("encrypted\u{0}{}", version.value)),
        false => version.value.clone(),
    }
}

fn arn(cloud: &Cloud, name: &str) -> String {
    cloud.arn("ssm", &format!("parameter/{}", name.trim_start_matches('/')))
}

fn is_decrypted(input: &Value) -> bool {
    input.get("WithDecryption").and_then(Value::as_bool).unwrap_or(false)
}

/// One to ten names.
fn names(input: &Value) -> Result<Vec<&str>, ApiError> {
    let names: Vec<&str> = texts(input, "Names").collect();
    match (1..=10).contains(&names.len()) {
        true => Ok(names),
        false => Err(validation("names", "Member must have length between 1 and 10")),
    }
}

/// The tags of the parameter that a request names.
fn tagged<'a>(cloud: &'a mut Cloud, input: &Value) -> Result<&'a mut Tags, ApiError> {
    if text(input, "ResourceType") != Some("Parameter") {
        let message = "Only the tags of the resource type Parameter are played here.";
        return Err(ApiError::client("InvalidResourceType", message));
    }
    let id = required(input, "ResourceId")?;
    let missing = || ApiError::client("InvalidResourceId", format!("The resource ID {id} is not valid."));
    cloud.parameters.get_mut(id).map(|parameter| &mut parameter.tags).ok_or_else(missing)
}

fn add_tags(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let added = tag_list(input);
    let tags = tagged(cloud, input)?;
    tags::check(tags, &added).map_err(|error| ApiError::client("ValidationException", error.message))?;
    tags.extend(added);
    Ok(json!({}))
}

fn required<'a>(input: &'a Value, member: &str) -> Result<&'a str, ApiError> {
    let given = text(input, member).filter(|text| !text.is_empty());
    given.ok_or_else(|| validation(&lower_first(member), "Member must not be null"))
}

fn lower_first(member: &str) -> String {
    let (first, rest) = member.split_at(1);
    first.to_ascii_lowercase() + rest
}

fn not_found(name: &str) -> ApiError {
    ApiError::client("ParameterNotFound", format!("Parameter {name} not found."))
}

fn validation(member: &str, constraint: &str) -> ApiError {
    let message =
        format!("1 validation error detected: Value at '{member}' failed to satisfy constraint: {constraint}");
    ApiError::client("ValidationException", message)
}
