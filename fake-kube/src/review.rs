//! Questions about callers: who am I, and what may I do. Nothing is stored; everybody may do everything here, and the
//! answers say so.

use serde_json::{Value, json};

use crate::{
    kinds::Kind,
    status::{ErrorKind, FieldError, Status},
};

/// Whom the server takes every caller for: it asks nobody who they are.
fn user() -> Value {
    json!({ "username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"] })
}

/// The review with its answer.
pub(crate) fn answered(kind: &Kind, namespace: &str, mut review: Value, now: &str) -> Result<Value, Status> {
    if !review.is_object() {
        return Err(Status::bad_request("the request does not hold a review"));
    }
    let status = match kind.kind.as_str() {
        "SelfSubjectReview" => {
            review["metadata"]["creationTimestamp"] = json!(now);
            json!({ "userInfo": user() })
        }
        "TokenReview" => {
            if review["spec"]["token"].as_str().unwrap_or_default().is_empty() {
                return Err(Status::bad_request("token is required for TokenReview in authentication"));
            }
            json!({ "authenticated": true, "user": user() })
        }
        "SelfSubjectRulesReview" => {
            if review["spec"]["namespace"].as_str().unwrap_or_default().is_empty() {
                return Err(Status::bad_request("no namespace on request"));
            }
            json!({
                "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
                "incomplete": false,
            })
        }
        _ => {
            check_access(kind, namespace, &review)?;
            json!({ "allowed": true, "reason": "this server does no authorization" })
        }
    };
    review["apiVersion"] = json!(kind.api_version());
    review["kind"] = json!(kind.kind);
    if review["metadata"].is_null() {
        review["metadata"] = json!({});
    }
    review["status"] = status;
    Ok(review)
}

fn check_access(kind: &Kind, namespace: &str, review: &Value) -> Result<(), Status> {
    let spec = &review["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut errors = Vec::new();
    if resource.is_object() && other.is_object() {
        let text = |key: &str| other[key].as_str().unwrap_or_default();
        errors.push(FieldError {
            field: "spec.nonResourceAttributes".into(),
            kind: ErrorKind::Invalid,
            value: Some(format!("{{\"Path\":{:?},\"Verb\":{:?}}}", text("path"), text("verb"))),
            detail: "cannot be specified in combination with resourceAttributes".into(),
        });
    }
    if !resource.is_object() && !other.is_object() {
        errors.push(FieldError::invalid(
            "spec.resourceAttributes",
            resource,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ));
    }
    let nobody =
        spec["user"].as_str().unwrap_or_default().is_empty() && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if kind.kind != "SelfSubjectAccessReview" && nobody {
        errors.push(FieldError::invalid("spec.user", &json!(""), "at least one of user or group must be specified"));
    }
    if kind.namespaced && resource["namespace"] != namespace {
        errors.push(FieldError::invalid(
            "spec.resourceAttributes.namespace",
            &resource["namespace"],
            "must match metadata.namespace",
        ));
    }
    // The server does not name the kind here.
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid_as(&kind.group, "", "", &errors)) }
}
