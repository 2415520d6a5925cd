//! SSM parameters, read only: the public ones that name images, and those a test has set.

use super::{integer, text, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::image::Parameter;
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page};
use crate::wire::{Reply, Service};
use serde_json::{Value, json};

// fidelity: documented(Systems Manager API Reference, GetParameter, GetParameters, GetParametersByPath)
pub(super) fn perform(cloud: &mut Cloud, action: &str, input: &Value) -> Result<Reply, ApiError> {
    let parameters = &cloud.images.parameters;
    let value = match action {
        "GetParameter" => {
            let name = text(input, "Name").ok_or_else(|| validation("Name"))?;
            let parameter = parameters
                .get(name)
                .ok_or_else(|| ApiError::client("ParameterNotFound", format!("Parameter {name} not found.")))?;
            json!({"Parameter": describe(cloud, name, parameter)})
        }
        "GetParameters" => {
            let names = input.get("Names").and_then(Value::as_array).filter(|names| (1..=10).contains(&names.len()));
            let names = names.ok_or_else(|| validation("Names"))?.iter().filter_map(Value::as_str);
            let (found, invalid): (Vec<&str>, Vec<&str>) = names.partition(|name| parameters.contains_key(*name));
            let found: Vec<Value> =
                found.iter().filter_map(|name| Some(describe(cloud, name, parameters.get(*name)?))).collect();
            json!({"Parameters": found, "InvalidParameters": invalid})
        }
        "GetParametersByPath" => {
            let path = text(input, "Path").ok_or_else(|| validation("Path"))?.trim_end_matches('/');
            let recursive = input.get("Recursive").and_then(Value::as_bool).unwrap_or(false);
            let below = |name: &str| {
                name.strip_prefix(path)
                    .and_then(|rest| rest.strip_prefix('/'))
                    .is_some_and(|rest| recursive || !rest.contains('/'))
            };
            let found = parameters.iter().filter(|(name, _)| below(name));
            // fidelity: documented(SSM API Reference, GetParametersByPath: at most 10 in a page)
            let bounds = Bounds { minimum: 1, maximum: 10, default: 10 };
            let page = Page::new(integer(input, "MaxResults"), text(input, "NextToken"), bounds)
                .map_err(|error| ApiError { code: page_error(&error), ..error })?;
            let paged = page.cut(found, |(name, _)| (*name).clone());
            let found: Vec<Value> =
                paged.items.iter().map(|(name, parameter)| describe(cloud, name, parameter)).collect();
            let mut answer = json!({ "Parameters": found });
            if let Some(next) = paged.next {
                answer["NextToken"] = json!(next);
            }
            answer
        }
        _ => return Err(unknown_action(Service::Ssm, action)),
    };
    Ok(Reply::Json(value))
}

/// SSM has its own code for a page size out of range.
fn page_error(error: &ApiError) -> std::borrow::Cow<'static, str> {
    match error.code.as_ref() {
        "InvalidParameterValue" => "ValidationException".into(),
        _ => error.code.clone(),
    }
}

fn describe(cloud: &Cloud, name: &str, parameter: &Parameter) -> Value {
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

fn validation(member: &str) -> ApiError {
    let message = format!(
        "1 validation error detected: Value at '{member}' failed to satisfy constraint: Member must not be null"
    );
    ApiError::client("ValidationException", message)
}
