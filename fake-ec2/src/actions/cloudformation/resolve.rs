//! Intrinsic functions, conditions and references.

use super::template::{Template, format_error, scalar, validation};
use crate::cloud::Cloud;
use crate::cloud::stack::StackResource;
use crate::error::ApiError;
use base64::Engine;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A condition that refers to itself never ends; templates of people are nested a few levels.
const MAX_DEPTH: usize = 50;

/// What references can refer to.
pub(super) struct Scope<'a> {
    template: &'a Template,
    /// Parameters and pseudo parameters.
    values: BTreeMap<String, Value>,
    zones: Vec<String>,
    /// The resources made so far; without them, references to resources are left as they are.
    pub(super) resources: Option<&'a BTreeMap<String, StackResource>>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(
        cloud: &Cloud,
        template: &'a Template,
        parameters: BTreeMap<String, Value>,
        stack: (&str, &str),
    ) -> Self {
        let mut values = parameters;
        // fidelity: documented(CloudFormation User Guide, Pseudo parameters)
        for (name, value) in [
            ("AWS::AccountId", cloud.config.account.as_str()),
            ("AWS::Partition", "aws"),
            ("AWS::Region", &cloud.config.region),
            ("AWS::StackName", stack.0),
            ("AWS::StackId", stack.1),
            ("AWS::URLSuffix", "amazonaws.com"),
        ] {
            values.insert(name.into(), json!(value));
        }
        values.insert("AWS::NotificationARNs".into(), json!([]));
        let zones = cloud.catalogue.zones.iter().map(|zone| zone.name.to_owned()).collect();
        Self { template, values, zones, resources: None }
    }

    pub(super) fn with(&self, resources: &'a BTreeMap<String, StackResource>) -> Self {
        let (template, values, zones) = (self.template, self.values.clone(), self.zones.clone());
        Self { template, values, zones, resources: Some(resources) }
    }

    /// A value with its functions carried out; `None` for `AWS::NoValue`.
    pub(super) fn resolve(&self, value: &Value) -> Result<Option<Value>, ApiError> {
        match value {
            Value::Object(members) => match members.iter().next().filter(|_| members.len() == 1) {
                Some((name, argument)) if name == "Ref" || name.starts_with("Fn::") => self.function(name, argument),
                _ => self.members(members).map(Some),
            },
            Value::Array(items) => {
                let mut resolved = Vec::new();
                for item in items {
                    resolved.extend(self.resolve(item)?);
                }
                Ok(Some(Value::Array(resolved)))
            }
            plain => Ok(Some(plain.clone())),
        }
    }

    /// Whether a resource or output with this `Condition` is there.
    pub(super) fn active(&self, item: &Value) -> Result<bool, ApiError> {
        match item.get("Condition").and_then(Value::as_str) {
            Some(name) => self.condition(name, 0),
            None => Ok(true),
        }
    }

    fn members(&self, members: &Map<String, Value>) -> Result<Value, ApiError> {
        let mut resolved = Map::new();
        for (name, value) in members {
            if let Some(value) = self.resolve(value)? {
                resolved.insert(name.clone(), value);
            }
        }
        Ok(Value::Object(resolved))
    }

    // fidelity: documented(CloudFormation User Guide, Intrinsic functions)
    fn function(&self, name: &str, argument: &Value) -> Result<Option<Value>, ApiError> {
        let malformed =
            || validation(format!("Template error: every {name} object has the wrong arguments: {argument}"));
        let part = |index: usize| argument.get(index).ok_or_else(malformed);
        let resolved = |value: &Value| Ok::<_, ApiError>(self.resolve(value)?.unwrap_or(Value::Null));
        Ok(Some(match name {
            "Ref" => match argument.as_str().ok_or_else(malformed)? {
                "AWS::NoValue" => return Ok(None),
                target => self.reference(target)?,
            },
            "Fn::GetAtt" => {
                let text = argument.as_str().map(|text| text.split_once('.').unwrap_or((text, "")));
                let pair = || Some((argument.get(0)?.as_str()?, argument.get(1)?.as_str()?));
                let (resource, attribute) = text.or_else(pair).ok_or_else(malformed)?;
                self.attribute(resource, attribute)?
            }
            "Fn::Sub" => self.substitute(argument)?,
            "Fn::Join" => {
                let items = resolved(part(1)?)?;
                let items: Vec<String> = items.as_array().ok_or_else(malformed)?.iter().map(scalar).collect();
                json!(items.join(part(0)?.as_str().ok_or_else(malformed)?))
            }
            "Fn::Split" => {
                let text = scalar(&resolved(part(1)?)?);
                text.split(part(0)?.as_str().filter(|text| !text.is_empty()).ok_or_else(malformed)?)
                    .map(Value::from)
                    .collect()
            }
            "Fn::Select" => {
                let (index, items) = (scalar(&resolved(part(0)?)?), resolved(part(1)?)?);
                let index: usize = index.parse().map_err(|_| malformed())?;
                let missing = || {
                    validation(format!("Template error: Fn::Select cannot select nonexistent value at index {index}"))
                };
                items.get(index).cloned().ok_or_else(missing)?
            }
            "Fn::If" => {
                let holds = self.condition(part(0)?.as_str().ok_or_else(malformed)?, 0)?;
                return self.resolve(part(if holds { 1 } else { 2 })?);
            }
            "Fn::FindInMap" => {
                let keys = [resolved(part(0)?)?, resolved(part(1)?)?, resolved(part(2)?)?].map(|key| scalar(&key));
                let found =
                    self.template.section("Mappings").and_then(|maps| maps.get(&keys[0])?.get(&keys[1])?.get(&keys[2]));
                let [map, top, second] = &keys;
                found.cloned().ok_or_else(|| {
                    validation(format!("Template error: Unable to get mapping for {map}::{top}::{second}"))
                })?
            }
            "Fn::Base64" => json!(base64::engine::general_purpose::STANDARD.encode(scalar(&resolved(argument)?))),
            "Fn::GetAZs" => json!(self.zones),
            "Fn::ToJsonString" => json!(resolved(argument)?.to_string()),
            other => return Err(validation(format!("Template error: {other} is not played here."))),
        }))
    }

    fn reference(&self, name: &str) -> Result<Value, ApiError> {
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        match self.resources {
            None => Ok(json!({"Ref": name})),
            Some(resources) => {
                resources.get(name).map(|resource| json!(resource.physical_id)).ok_or_else(|| unresolved(&[name]))
            }
        }
    }

    fn attribute(&self, resource: &str, attribute: &str) -> Result<Value, ApiError> {
        let Some(resources) = self.resources else { return Ok(json!({"Fn::GetAtt": [resource, attribute]})) };
        let found = resources.get(resource).ok_or_else(|| unresolved(&[resource]))?;
        found.attributes.get(attribute).map(|value| json!(value)).ok_or_else(|| {
            validation(format!(
                "Template error: resource {resource} does not support attribute type {attribute} in Fn::GetAtt"
            ))
        })
    }

    fn substitute(&self, argument: &Value) -> Result<Value, ApiError> {
        let malformed = || {
            validation(
                "Template error: One or more Fn::Sub intrinsic functions don't specify expected arguments. Specify a string as first argument, and an optional second argument to specify a mapping of values to replace in the string",
            )
        };
        let (text, own) = match argument {
            Value::Array(parts) => (parts.first(), parts.get(1)),
            text => (Some(text), None),
        };
        let text = text.and_then(Value::as_str).ok_or_else(malformed)?;
        let mut out = String::new();
        for part in substitutions(text) {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Variable(name) => {
                    let value = match (own.and_then(|own| own.get(name)), name.split_once('.')) {
                        (Some(value), _) => self.resolve(value)?.unwrap_or_default(),
                        (None, Some((resource, attribute))) => self.attribute(resource, attribute)?,
                        (None, None) => self.reference(name)?,
                    };
                    out.push_str(&scalar(&value));
                }
            }
        }
        Ok(json!(out))
    }

    fn condition(&self, name: &str, depth: usize) -> Result<bool, ApiError> {
        let definition = self.template.section("Conditions").and_then(|conditions| conditions.get(name));
        let missing = || validation(format!("Template error: unresolved condition dependency {name} in the template"));
        self.test(definition.ok_or_else(missing)?, depth)
    }

    fn test(&self, condition: &Value, depth: usize) -> Result<bool, ApiError> {
        let malformed = || format_error(&format!("Every Condition member must be a condition function: {condition}"));
        if depth > MAX_DEPTH {
            return Err(format_error("A condition refers to itself."));
        }
        let (name, argument) = condition.as_object().and_then(|members| members.iter().next()).ok_or_else(malformed)?;
        let arguments = argument.as_array();
        let tests = || {
            arguments
                .ok_or_else(malformed)?
                .iter()
                .map(|one| self.test(one, depth + 1))
                .collect::<Result<Vec<bool>, _>>()
        };
        match name.as_str() {
            "Condition" => self.condition(argument.as_str().ok_or_else(malformed)?, depth + 1),
            "Fn::Equals" => match arguments.map(Vec::as_slice) {
                Some([left, right]) => {
                    let text = |value| Ok::<_, ApiError>(self.resolve(value)?.as_ref().map(scalar));
                    Ok(text(left)? == text(right)?)
                }
                _ => Err(malformed()),
            },
            "Fn::Not" => Ok(tests()?.iter().all(|held| !held)),
            "Fn::And" => Ok(tests()?.iter().all(|held| *held)),
            "Fn::Or" => Ok(tests()?.iter().any(|held| *held)),
            _ => Err(malformed()),
        }
    }
}

enum Part<'a> {
    Text(&'a str),
    Variable(&'a str),
}

/// The parts of a text with `${Variable}`; `${!Literal}` stands for `${Literal}`.
fn substitutions(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, tail)) = after.split_once('}') else { break };
        parts.push(Part::Text(before));
        match name.strip_prefix('!') {
            Some(literal) => parts.extend([Part::Text("${"), Part::Text(literal), Part::Text("}")]),
            None => parts.push(Part::Variable(name.trim())),
        }
        rest = tail;
    }
    parts.push(Part::Text(rest));
    parts
}

/// The names a resource refers to.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, argument) in members {
                let text = argument.as_str();
                match (name.as_str(), text, argument.get(0).and_then(Value::as_str)) {
                    ("Ref", Some(target), _) => drop(found.insert(target.into())),
                    ("Fn::GetAtt", text, first) => {
                        found.extend(text.or(first).map(|text| text.split('.').next().unwrap_or(text).to_owned()));
                    }
                    ("Fn::Sub", text, first) => {
                        let own = argument.get(1).and_then(Value::as_object);
                        for part in substitutions(text.or(first).unwrap_or_default()) {
                            if let Part::Variable(name) = part
                                && !own.is_some_and(|own| own.contains_key(name))
                            {
                                found.insert(name.split('.').next().unwrap_or(name).to_owned());
                            }
                        }
                        own.into_iter().flat_map(Map::values).for_each(|value| references(value, found));
                    }
                    _ => references(argument, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// The active resources, each after those it needs.
// fidelity: documented(CloudFormation User Guide, DependsOn); observed(2026-08): wording
pub(super) fn ordered(template: &Template, scope: &Scope<'_>) -> Result<Vec<String>, ApiError> {
    let resources = template.section("Resources").into_iter().flatten();
    let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let known = |name: &str| template.section("Resources").is_some_and(|all| all.contains_key(name));
    for (id, resource) in resources {
        if !scope.active(resource)? {
            continue;
        }
        let mut found = BTreeSet::new();
        references(resource, &mut found);
        let missing: Vec<&str> = found
            .iter()
            .map(String::as_str)
            .filter(|name| !known(name) && !scope.values.contains_key(*name) && *name != "AWS::NoValue")
            .collect();
        if !missing.is_empty() {
            return Err(unresolved(&missing));
        }
        match &resource["DependsOn"] {
            Value::String(other) => drop(found.insert(other.clone())),
            Value::Array(others) => found.extend(others.iter().map(scalar)),
            _ => {}
        }
        needs.insert(id.clone(), found);
    }
    let mut order: Vec<String> = Vec::new();
    while order.len() < needs.len() {
        let waits = |need: &String| needs.contains_key(need) && !order.contains(need);
        let ready = needs.iter().find(|(id, needed)| !order.contains(id) && !needed.iter().any(waits));
        match ready.map(|(id, _)| id.clone()) {
            Some(id) => order.push(id),
            None => {
                let rest: Vec<&str> = needs.keys().filter(|id| !order.contains(id)).map(String::as_str).collect();
                return Err(validation(format!("Circular dependency between resources: [{}]", rest.join(", "))));
            }
        }
    }
    Ok(order)
}

fn unresolved(names: &[&str]) -> ApiError {
    let names = names.join(", ");
    format_error(&format!("Unresolved resource dependencies [{names}] in the Resources block of the template"))
}
