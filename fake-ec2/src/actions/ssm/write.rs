//! What changes parameters: put, label, delete.

use super::{lower_first, not_found, required, validation};
use crate::actions::{Context, integer, tag_list, text, texts};
use crate::cloud::Cloud;
use crate::cloud::parameter::{OwnParameter, ParameterVersion};
use crate::cloud::tags::{self, Tags};
use crate::error::ApiError;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};

// fidelity: documented(SSM API Reference, PutParameter: constraints and errors); assumed: wording
pub(super) fn put(cloud: &mut Cloud, context: &Context, input: &Value) -> Result<Value, ApiError> {
    let name = required(input, "Name")?;
    check_name(name)?;
    let value = required(input, "Value")?.to_owned();
    let overwrite = input.get("Overwrite").and_then(Value::as_bool).unwrap_or(false);
    let tags = tag_list(input);
    tags::check(&Tags::new(), &tags).map_err(|error| refuse(error.message))?;
    if overwrite && !tags.is_empty() {
        return Err(refuse(
            "Invalid request: tags and overwrite can't be used together. To create a parameter with tags, please remove overwrite flag. To update tags for an existing parameter, please use AddTagsToResource or RemoveTagsFromResource.",
        ));
    }
    if input.get("Policies").is_some() {
        return Err(refuse("Parameter policies are not played here."));
    }
    let caller = context.asking.caller.arn.clone();
    let known = cloud.parameters.get(name);
    if known.is_some() && !overwrite {
        let message =
            "The parameter already exists. To overwrite this value, set the overwrite option in the request to true.";
        return Err(ApiError::client("ParameterAlreadyExists", message));
    }
    let described = describe(input, known)?;
    check_value(&described, &value)?;
    let mut parameter = described;
    let number = match parameter.versions.is_empty() {
        true => {
            parameter.tags = tags;
            let labels = BTreeSet::new();
            let version = ParameterVersion { number: 1, value, modified_at: context.now, modified_by: caller, labels };
            parameter.versions.push_back(version);
            1
        }
        false => parameter.add(value, context.now, caller)?,
    };
    let tier = parameter.tier.clone();
    cloud.parameters.insert(name.to_owned(), parameter);
    Ok(json!({"Version": number, "Tier": tier}))
}

/// The parameter as the request describes it, without the new version.
fn describe(input: &Value, known: Option<&OwnParameter>) -> Result<OwnParameter, ApiError> {
    let one_of = |member: &str, allowed: &[&str]| match text(input, member) {
        Some(given) if !allowed.contains(&given) => {
            let constraint = format!("Member must satisfy enum value set: [{}]", allowed.join(", "));
            Err(validation(&lower_first(member), &constraint))
        }
        given => Ok(given.map(str::to_owned)),
    };
    let kind = one_of("Type", &["SecureString", "String", "StringList"])?;
    let tier = one_of("Tier", &["Advanced", "Intelligent-Tiering", "Standard"])?;
    let data_type = one_of("DataType", &["text", "aws:ec2:image", "aws:ssm:integration"])?;
    let mut parameter = match known {
        Some(known) => known.clone(),
        None => OwnParameter {
            kind: kind.clone().ok_or_else(|| refuse("A parameter type is required when you create a parameter."))?,
            description: String::new(),
            tier: "Standard".into(),
            data_type: "text".into(),
            key_id: None,
            allowed_pattern: None,
            tags: Tags::new(),
            versions: VecDeque::new(),
        },
    };
    if kind.is_some_and(|kind| kind != parameter.kind) {
        let message = "Parameter Store doesn't support changing a parameter type in a hierarchy. For example, you can't change a parameter from a String type to a SecureString type. You must create a new, unique parameter.";
        return Err(ApiError::client("HierarchyTypeMismatchException", message));
    }
    match tier.as_deref() {
        Some("Standard") if parameter.tier == "Advanced" => {
            return Err(refuse(
                "This parameter uses the advanced-parameter tier. You can't downgrade a parameter from the advanced-parameter tier to the standard-parameter tier.",
            ));
        }
        Some("Advanced") => parameter.tier = "Advanced".into(),
        // It becomes an advanced one only where it has to be.
        Some("Intelligent-Tiering") if text(input, "Value").is_some_and(|value| value.len() > STANDARD_BYTES) => {
            parameter.tier = "Advanced".into();
        }
        _ => {}
    }
    if let Some(data_type) = data_type {
        parameter.data_type = data_type;
    }
    if let Some(description) = text(input, "Description") {
        parameter.description = description.into();
    }
    if parameter.kind == "SecureString" {
        let given = text(input, "KeyId").map(str::to_owned);
        parameter.key_id = given.or(parameter.key_id).or_else(|| Some("alias/aws/ssm".into()));
    } else if text(input, "KeyId").is_some() {
        return Err(refuse("KeyId is required for SecureString type parameter only."));
    }
    if let Some(pattern) = text(input, "AllowedPattern") {
        parameter.allowed_pattern = Some(pattern.to_owned()).filter(|pattern| !pattern.is_empty());
    }
    Ok(parameter)
}

// fidelity: documented(Systems Manager User Guide, Managing parameter tiers: 4 KB and 8 KB)
const STANDARD_BYTES: usize = 4096;
const ADVANCED_BYTES: usize = 8192;

fn check_value(parameter: &OwnParameter, value: &str) -> Result<(), ApiError> {
    let (tier, limit) =
        if parameter.tier == "Advanced" { ("Advanced", ADVANCED_BYTES) } else { ("Standard", STANDARD_BYTES) };
    if value.len() > limit {
        return Err(refuse(format!(
            "{tier} tier parameters support a maximum parameter value of {limit} characters. To create a larger parameter value, upgrade the parameter to use the advanced-parameter tier."
        )));
    }
    if value.contains("{{") && value.contains("}}") {
        return Err(refuse("Parameter value can't nest another parameter. Do not use \"{{}}\" in the value"));
    }
    if parameter.data_type == "aws:ec2:image" && !value.starts_with("ami-") {
        return Err(refuse(format!(
            "The value {value} is not the id of an image, as the data type aws:ec2:image wants."
        )));
    }
    if let Some(pattern) = &parameter.allowed_pattern {
        let regex = Regex::new(&format!("^(?:{pattern})$")).map_err(|_| {
            let message = format!("The allowed pattern {pattern} is not a valid regular expression.");
            ApiError::client("InvalidAllowedPatternException", message)
        })?;
        if !regex.is_match(value) {
            let message = format!("Parameter value, cannot be validated against allowedPattern: {pattern}");
            return Err(ApiError::client("ParameterPatternMismatchException", message));
        }
    }
    Ok(())
}

// fidelity: documented(Systems Manager User Guide, About requirements and constraints for parameter names)
fn check_name(name: &str) -> Result<(), ApiError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte);
    if !name.bytes().all(allowed) {
        return Err(refuse(
            "Invalid parameter name. Please use correct syntax for referencing a version/label <name>:<version/label>. Only a mix of letters, numbers and the following 4 symbols .-_/ are allowed.",
        ));
    }
    let lower = name.trim_start_matches('/').to_ascii_lowercase();
    if name.starts_with('/') && lower.split('/').next().is_some_and(|first| first == "aws" || first == "ssm") {
        return Err(ApiError::client(
            "AccessDeniedException",
            format!("No access to reserved parameter name: {name}."),
        ));
    }
    if lower.starts_with("aws") || lower.starts_with("ssm") {
        return Err(refuse("Parameter name: can't be prefixed with \"aws\" or \"ssm\" (case-insensitive)."));
    }
    if name.contains('/') && !name.starts_with('/') {
        return Err(refuse("Parameter name must be a fully qualified name."));
    }
    if name.ends_with('/') || name.contains("//") {
        return Err(refuse("Parameter name can't end with a slash or have empty levels."));
    }
    if name.matches('/').count() > 15 {
        let message = "A hierarchy can have a maximum of 15 levels.";
        return Err(ApiError::client("HierarchyLevelLimitExceededException", message));
    }
    match name.len() > 1011 {
        true => Err(refuse("The parameter name can have at most 1011 characters.")),
        false => Ok(()),
    }
}

/// Whether there was such a parameter of the account.
pub(super) fn delete(cloud: &mut Cloud, name: &str) -> bool {
    let own = cloud.parameters.remove(name).is_some();
    // What a test has set through the handle, unless AWS publishes it.
    own || !name.starts_with("/aws/") && cloud.images.parameters.remove(name).is_some()
}

pub(super) fn label(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = required(input, "Name")?;
    let parameter = cloud.parameters.get_mut(name).ok_or_else(|| not_found(name))?;
    let labels = labels(input)?;
    let number = integer(input, "ParameterVersion").map_or(parameter.latest().number, |number| number.max(0) as u64);
    let invalid = parameter.label(number, &labels)?;
    Ok(json!({"InvalidLabels": invalid, "ParameterVersion": number}))
}

pub(super) fn unlabel(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = required(input, "Name")?;
    let parameter = cloud.parameters.get_mut(name).ok_or_else(|| not_found(name))?;
    let number =
        integer(input, "ParameterVersion").ok_or_else(|| validation("parameterVersion", "Member must not be null"))?;
    let (removed, invalid) = parameter.unlabel(number.max(0) as u64, &labels(input)?)?;
    Ok(json!({"RemovedLabels": removed, "InvalidLabels": invalid}))
}

fn labels(input: &Value) -> Result<Vec<&str>, ApiError> {
    let labels: Vec<&str> = texts(input, "Labels").collect();
    match (1..=10).contains(&labels.len()) {
        true => Ok(labels),
        false => Err(validation("labels", "Member must have length between 1 and 10")),
    }
}

fn refuse(message: impl Into<String>) -> ApiError {
    ApiError::client("ValidationException", message)
}
