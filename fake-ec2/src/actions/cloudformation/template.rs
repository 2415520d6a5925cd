//! Templates: read from JSON or YAML, checked, and their parameters given values.

use crate::cloud::Cloud;
use crate::error::ApiError;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A template as read: the short forms of YAML are written out.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) document: Value,
}

/// What a template may consist of.
const SECTIONS: [&str; 10] = [
    "AWSTemplateFormatVersion",
    "Description",
    "Metadata",
    "Parameters",
    "Rules",
    "Mappings",
    "Conditions",
    "Transform",
    "Resources",
    "Outputs",
];

// fidelity: documented(CloudFormation User Guide, Template anatomy and limits); observed(2026-08): wording
impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        let not_well_formed = |error: &dyn std::fmt::Display| format_error(&format!("YAML not well-formed. ({error})"));
        let document = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text).map_err(|error| {
                format_error(&format!("JSON not well-formed. (line {}, column {})", error.line(), error.column()))
            })?,
            false => {
                let value: serde_yaml_ng::Value =
                    serde_yaml_ng::from_str(text).map_err(|error| not_well_formed(&error))?;
                written_out(value).map_err(|error| not_well_formed(&error))?
            }
        };
        let template = Self { document };
        template.check()?;
        Ok(template)
    }

    fn check(&self) -> Result<(), ApiError> {
        let sections = self.document.as_object().ok_or_else(|| format_error("unsupported structure."))?;
        let unknown: Vec<&str> = sections.keys().map(String::as_str).filter(|key| !SECTIONS.contains(key)).collect();
        if !unknown.is_empty() {
            let message = format!("Invalid template property or properties [{}]", unknown.join(", "));
            return Err(validation(message));
        }
        if sections.contains_key("Transform") {
            return Err(validation("Transforms are not played here."));
        }
        if self.section("Resources").is_none_or(Map::is_empty) {
            return Err(format_error("At least one Resources member must be defined."));
        }
        for (id, resource) in self.section("Resources").into_iter().flatten() {
            if !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return Err(format_error(&format!("Resource name {id} is non alphanumeric.")));
            }
            if resource.get("Type").and_then(Value::as_str).is_none() {
                return Err(format_error(&format!(
                    "[/Resources/{id}] Every Resources object must contain a Type member."
                )));
            }
        }
        Ok(())
    }

    pub(super) fn section(&self, name: &str) -> Option<&Map<String, Value>> {
        self.document.get(name).and_then(Value::as_object)
    }

    pub(super) fn description(&self) -> Option<String> {
        self.document.get("Description").and_then(Value::as_str).map(str::to_owned)
    }

    /// The capability that its resources require, and why.
    // fidelity: documented(CloudFormation User Guide, Acknowledging IAM resources in templates)
    pub(super) fn capability(&self) -> Option<(&'static str, String)> {
        let iam = |resource: &&Value| {
            resource["Type"]
                .as_str()
                .is_some_and(|kind| kind.starts_with("AWS::IAM::") && kind != "AWS::IAM::OIDCProvider")
        };
        let resources: Vec<&Value> =
            self.section("Resources").into_iter().flat_map(|all| all.values()).filter(iam).collect();
        let names = ["RoleName", "ManagedPolicyName", "InstanceProfileName", "UserName", "GroupName"];
        let named =
            resources.iter().any(|resource| names.iter().any(|name| resource["Properties"].get(name).is_some()));
        let kinds: BTreeSet<&str> = resources.iter().filter_map(|resource| resource["Type"].as_str()).collect();
        let reason = format!(
            "The following resource(s) require capabilities: [{}]",
            kinds.into_iter().collect::<Vec<_>>().join(", ")
        );
        let capability = if named { "CAPABILITY_NAMED_IAM" } else { "CAPABILITY_IAM" };
        (!resources.is_empty()).then_some((capability, reason))
    }

    // fidelity: observed(2026-08): wording, with a space before the colon
    pub(super) fn check_capabilities(&self, given: &BTreeSet<String>) -> Result<(), ApiError> {
        let Some((needed, _)) = self.capability() else { return Ok(()) };
        match given.contains(needed) || given.contains("CAPABILITY_NAMED_IAM") {
            true => Ok(()),
            false => Err(ApiError::client(
                "InsufficientCapabilitiesException",
                format!("Requires capabilities : [{needed}]"),
            )),
        }
    }

    /// The given parameters with the defaults of the others, as texts.
    pub(super) fn with_defaults(&self, given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let declared = self.section("Parameters").into_iter().flatten();
        let defaults =
            declared.filter_map(|(name, declaration)| Some((name.clone(), scalar(declaration.get("Default")?))));
        defaults.chain(given.clone()).collect()
    }

    /// The values of its parameters: given, or their defaults.
    pub(super) fn parameters(
        &self,
        cloud: &Cloud,
        given: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, Value>, ApiError> {
        let declared = self.section("Parameters");
        let is_declared = |name: &str| declared.is_some_and(|declared| declared.contains_key(name));
        let unknown: Vec<&str> = given.keys().map(String::as_str).filter(|name| !is_declared(name)).collect();
        if !unknown.is_empty() {
            return Err(validation(format!("Parameters: [{}] do not exist in the template", unknown.join(", "))));
        }
        let (mut values, mut missing) = (BTreeMap::new(), Vec::new());
        let given = self.with_defaults(given);
        for (name, declaration) in declared.into_iter().flatten() {
            match given.get(name) {
                Some(text) => drop(values.insert(name.clone(), parameter(cloud, name, declaration, text)?)),
                None => missing.push(name.as_str()),
            }
        }
        match missing.is_empty() {
            true => Ok(values),
            false => Err(validation(format!("Parameters: [{}] must have values", missing.join(", ")))),
        }
    }
}

/// One parameter's value, checked against its declaration.
// fidelity: documented(CloudFormation User Guide, Parameters: types and constraints); observed(2026-08): wording
fn parameter(cloud: &Cloud, name: &str, declaration: &Value, text: &str) -> Result<Value, ApiError> {
    let refuse = |constraint: String| {
        let described = declaration.get("ConstraintDescription").and_then(Value::as_str);
        validation(match described {
            Some(description) => format!("Parameter {name} failed to satisfy constraint: {description}"),
            None => format!("Parameter '{name}' {constraint}"),
        })
    };
    let limit = |member: &str| declaration.get(member).map(scalar).and_then(|text| text.parse::<f64>().ok());
    let length = text.chars().count() as f64;
    if limit("MinLength").is_some_and(|least| length < least) {
        return Err(refuse(format!("must contain at least {} characters", scalar(&declaration["MinLength"]))));
    }
    if limit("MaxLength").is_some_and(|most| length > most) {
        return Err(refuse(format!("must contain at most {} characters", scalar(&declaration["MaxLength"]))));
    }
    if let Some(pattern) = declaration.get("AllowedPattern").and_then(Value::as_str) {
        let whole = regex::Regex::new(&format!("^(?:{pattern})$")).map_err(|_| {
            format_error(&format!("Parameter '{name}' has an AllowedPattern that is no regular expression: {pattern}"))
        })?;
        if !whole.is_match(text) {
            return Err(refuse(format!("must match pattern {pattern}")));
        }
    }
    let allowed = declaration.get("AllowedValues").and_then(Value::as_array);
    if allowed.is_some_and(|allowed| !allowed.iter().any(|value| scalar(value) == text)) {
        return Err(refuse("must be one of AllowedValues".into()));
    }
    let kind = declaration.get("Type").and_then(Value::as_str).unwrap_or("String");
    let number = || text.parse::<f64>().map_err(|_| refuse("must be a number".into()));
    match kind {
        "Number" => {
            let number = number()?;
            if limit("MinValue").is_some_and(|least| number < least)
                || limit("MaxValue").is_some_and(|most| number > most)
            {
                return Err(refuse("must be within MinValue and MaxValue".into()));
            }
            Ok(json!(text))
        }
        "CommaDelimitedList" => Ok(list(text)),
        list_type if list_type.starts_with("List<") => Ok(list(text)),
        ssm if ssm.starts_with("AWS::SSM::Parameter::Value") => {
            let found = cloud.images.parameters.get(text).map(|parameter| json!(parameter.value));
            let missing =
                || validation(format!("Unable to fetch parameters [{text}] from parameter store for this account."));
            found.ok_or_else(missing)
        }
        "String" => Ok(json!(text)),
        // An id, checked by whoever uses it.
        specific if specific.starts_with("AWS::") => Ok(json!(text)),
        other => Err(format_error(&format!("Unrecognized parameter type: {other}"))),
    }
}

fn list(text: &str) -> Value {
    text.split(',').map(|item| json!(item.trim())).collect()
}

/// A text, number or boolean as text.
pub(super) fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// YAML with its tags as the functions they stand for.
// fidelity: documented(CloudFormation User Guide, Intrinsic functions: short forms)
fn written_out(value: serde_yaml_ng::Value) -> Result<Value, String> {
    use serde_yaml_ng::Value as Yaml;
    Ok(match value {
        Yaml::Null => Value::Null,
        Yaml::Bool(flag) => json!(flag),
        Yaml::Number(number) => serde_json::to_value(number).map_err(|error| error.to_string())?,
        Yaml::String(text) => json!(text),
        Yaml::Sequence(items) => items.into_iter().map(written_out).collect::<Result<_, _>>()?,
        Yaml::Mapping(members) => {
            let mut map = Map::new();
            for (key, value) in members {
                let key = scalar(&written_out(key)?);
                if map.contains_key(&key) {
                    return Err(format!("duplicate key {key}"));
                }
                map.insert(key, written_out(value)?);
            }
            Value::Object(map)
        }
        Yaml::Tagged(tagged) => {
            let name = tagged.tag.to_string();
            let name = name.trim_start_matches('!');
            let value = written_out(tagged.value)?;
            match (name, &value) {
                ("Ref" | "Condition", _) => json!({name: value}),
                ("GetAtt", Value::String(text)) => {
                    let (resource, attribute) = text.split_once('.').unwrap_or((text, ""));
                    json!({"Fn::GetAtt": [resource, attribute]})
                }
                _ => json!({format!("Fn::{name}"): value}),
            }
        }
    })
}

pub(super) fn validation(message: impl Into<String>) -> ApiError {
    ApiError::client("ValidationError", message)
}

pub(super) fn format_error(message: &str) -> ApiError {
    validation(format!("Template format error: {message}"))
}
