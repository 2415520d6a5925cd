//! `scale`: the number of replicas of a workload or custom resource, seen alike.

use serde_json::{Value, json};

use crate::{
    kinds::{Kind, ScalePaths},
    select::LabelSelector,
    status::{FieldError, Status},
};

/// The `autoscaling/v1` Scale of an object.
pub(crate) fn of(kind: &Kind, object: &Value) -> Result<Value, Status> {
    let paths = kind.scale.as_ref().ok_or_else(Status::no_such_resource)?;
    let number = |path: &[String]| at(object, path).and_then(Value::as_i64).unwrap_or(0);
    if kind.custom() && at(object, &paths.spec_replicas).is_none() {
        let path = paths.spec_replicas.join(".");
        return Err(Status::internal(format!("the spec replicas field \".{path}\" does not exist")));
    }
    let metadata = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {},
        "status": { "replicas": number(&paths.status_replicas) },
    });
    // Zero is left out.
    if number(&paths.spec_replicas) != 0 {
        scale["spec"]["replicas"] = json!(number(&paths.spec_replicas));
    }
    if metadata["namespace"].is_string() {
        scale["metadata"]["namespace"] = metadata["namespace"].clone();
    }
    if let Some(selector) = selector(paths, object) {
        scale["status"]["selector"] = json!(selector);
    }
    Ok(scale)
}

/// The object with the replicas of `scale`.
pub(crate) fn applied(kind: &Kind, object: &Value, scale: &Value) -> Result<Value, Status> {
    let paths = kind.scale.as_ref().ok_or_else(Status::no_such_resource)?;
    let mut object = object.clone();
    if let Some(version) = scale["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty()) {
        object["metadata"]["resourceVersion"] = json!(version);
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 && !kind.custom() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let detail = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", &json!(replicas), detail);
        return Err(Status::invalid_as("autoscaling", "Scale", name, &[error]));
    }
    let mut place = &mut object;
    for step in &paths.spec_replicas {
        if !place.is_object() && !place.is_null() {
            return Err(Status::bad_request("the object has no place for replicas"));
        }
        place = &mut place[step.as_str()];
    }
    *place = json!(replicas);
    Ok(object)
}

fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, step| value.get(step))
}

fn selector(paths: &ScalePaths, object: &Value) -> Option<String> {
    let found = at(object, paths.selector.as_deref()?)?;
    match found {
        Value::String(text) => Some(text.clone()),
        object => Some(LabelSelector::from_object(object).to_string()),
    }
}
