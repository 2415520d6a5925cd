//! Filters of parameters.

use super::Known;
use crate::actions::{text, texts};
use crate::cloud::parameter::{OwnParameter, ParameterVersion};
use crate::error::ApiError;
use serde_json::Value;

/// All of them must match.
pub(super) struct Filters<'a>(Vec<Filter<'a>>);

struct Filter<'a> {
    key: &'a str,
    option: &'a str,
    values: Vec<&'a str>,
}

impl<'a> Filters<'a> {
    /// Reads `ParameterFilters`; a key of `tag:` allows the tags.
    // fidelity: documented(SSM API Reference, ParameterStringFilter: options by key, InvalidFilterKey, InvalidFilterOption,
    // InvalidFilterValue)
    pub(super) fn read(input: &'a Value, allowed: &[&str]) -> Result<Self, ApiError> {
        if input.get("Filters").is_some() {
            tracing::warn!("`Filters` of parameters is deprecated and not played here; use ParameterFilters");
            return Err(ApiError::client("InvalidFilterKey", "Filters is deprecated; use ParameterFilters."));
        }
        let given = input.get("ParameterFilters").and_then(Value::as_array).into_iter().flatten();
        let filter = |filter: &'a Value| {
            let key = text(filter, "Key").unwrap_or_default();
            let tag = key.strip_prefix("tag:").is_some_and(|key| !key.is_empty());
            if !(if tag { allowed.contains(&"tag:") } else { allowed.contains(&key) && key != "tag:" }) {
                return Err(ApiError::client("InvalidFilterKey", format!("The filter key {key} is not valid here.")));
            }
            let option = text(filter, "Option").unwrap_or(if key == "Path" { "OneLevel" } else { "Equals" });
            let options: &[&str] = match key {
                "Name" => &["BeginsWith", "Contains", "Equals"],
                "Path" => &["OneLevel", "Recursive"],
                _ => &["BeginsWith", "Equals"],
            };
            if !options.contains(&option) {
                let message = format!("The option {option} of the filter {key} must be one of {}.", options.join(", "));
                return Err(ApiError::client("InvalidFilterOption", message));
            }
            let values: Vec<&str> = texts(filter, "Values").collect();
            if values.is_empty() && !tag || values.len() > 50 {
                return Err(ApiError::client("InvalidFilterValue", format!("The filter {key} needs 1 to 50 values.")));
            }
            Ok(Filter { key, option, values })
        };
        given.map(filter).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn match_known(&self, name: &str, known: &Known<'_>) -> bool {
        match known {
            Known::Own(parameter) => self.match_own(name, parameter),
            // Public parameters are plain texts without labels and keys.
            Known::Public(_) => self.0.iter().all(|filter| filter.key == "Type" && filter.takes("String")),
        }
    }

    pub(super) fn match_own(&self, name: &str, parameter: &OwnParameter) -> bool {
        self.0.iter().all(|filter| filter.matches(name, parameter))
    }

    /// The version that has a label which is asked for.
    pub(super) fn labelled<'b>(&self, parameter: &'b OwnParameter) -> Option<&'b ParameterVersion> {
        let labels = self.0.iter().filter(|filter| filter.key == "Label").flat_map(|filter| &filter.values);
        labels.into_iter().find_map(|label| parameter.version(label))
    }
}

impl Filter<'_> {
    fn matches(&self, name: &str, parameter: &OwnParameter) -> bool {
        match self.key {
            "Name" => self.takes(name) || self.takes(name.trim_start_matches('/')),
            "Path" => self.values.iter().any(|path| {
                let rest = name.strip_prefix(path.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
                rest.is_some_and(|rest| self.option == "Recursive" || !rest.contains('/'))
            }),
            "Type" => self.takes(&parameter.kind),
            "KeyId" => parameter.key_id.as_ref().is_some_and(|key| self.takes(key)),
            "Tier" => self.takes(&parameter.tier),
            "DataType" => self.takes(&parameter.data_type),
            "Label" => parameter.versions.iter().flat_map(|version| &version.labels).any(|label| self.takes(label)),
            tag => {
                let value = parameter.tags.get(tag.trim_start_matches("tag:"));
                value.is_some_and(|value| self.values.is_empty() || self.takes(value))
            }
        }
    }

    fn takes(&self, own: &str) -> bool {
        self.values.iter().any(|value| match self.option {
            "BeginsWith" => own.starts_with(value),
            "Contains" => own.contains(value),
            _ => own == *value,
        })
    }
}
