//! Validation of built-in kinds, as far as clients rely on it.

use serde_json::{Value, json};

use super::{metadata, pod};
use crate::{kinds::Builtin, select::LabelSelector, status::FieldError, write::Part};

/// Everything wrong with the new state of an object.
pub(crate) fn check(builtin: Builtin, new: &Value, old: Option<&Value>, part: Part) -> Vec<FieldError> {
    let spec_unchanged = old.is_some_and(|old| old["spec"] == new["spec"]);
    match builtin {
        Builtin::Pod if part == Part::Whole => match old {
            None => pod::validate_spec(&new["spec"], "spec"),
            Some(old) => pod::validate_spec_update(&new["spec"], &old["spec"], "spec"),
        },
        Builtin::Node => node(new, old),
        _ if spec_unchanged => Vec::new(),
        Builtin::Deployment | Builtin::ReplicaSet | Builtin::StatefulSet | Builtin::DaemonSet => {
            workload(builtin, new, old)
        }
        Builtin::Job => job(new, old),
        Builtin::PodDisruptionBudget => budget(new),
        Builtin::PriorityClass => priority_class(new, old),
        Builtin::Service => service(new),
        _ => Vec::new(),
    }
}

fn negative(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if value.as_i64().is_some_and(|number| number < 0) {
        errors.push(FieldError::invalid(path, value, "must be greater than or equal to 0"));
    }
}

fn node(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // The server names the taints of an update by another path than those of a create.
    let path = if old.is_some() { "metadata.taints" } else { "spec.taints" };
    if old.is_none_or(|old| old["spec"]["taints"] != new["spec"]["taints"]) {
        taints(&new["spec"]["taints"], path, &mut errors);
    }
    let Some(old) = old else { return errors };
    let provider = old["spec"]["providerID"].as_str().unwrap_or_default();
    if !provider.is_empty() && new["spec"]["providerID"] != provider {
        errors.push(FieldError::forbidden(
            "spec.providerID",
            "node updates may not change providerID except from \"\" to valid",
        ));
    }
    let ranges = old["spec"]["podCIDRs"].as_array();
    if ranges.is_some_and(|ranges| !ranges.is_empty()) && new["spec"]["podCIDRs"] != old["spec"]["podCIDRs"] {
        errors.push(FieldError::forbidden(
            "spec.podCIDRs",
            "node updates may not change podCIDR except from \"\" to valid",
        ));
    }
    errors
}

fn taints(taints: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::BTreeSet::new();
    for (index, taint) in taints.as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}[{index}]");
        let text = |key: &str| taint[key].as_str().unwrap_or_default();
        for error in metadata::qualified_name_errors(text("key")) {
            errors.push(FieldError::invalid(format!("{path}.key"), &json!(text("key")), error));
        }
        let found = metadata::label_value_errors(text("value"));
        if !found.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.value"), &taint["value"], found.join(";")));
        }
        if text("effect").is_empty() {
            errors.push(FieldError::required(format!("{path}.effect"), ""));
        } else {
            pod::validate_effect(&taint["effect"], &format!("{path}.effect"), errors);
        }
        if !seen.insert((text("key"), text("effect"))) {
            let mut error = FieldError::duplicate(path, taint);
            error.detail = "taints must be unique by key and effect pair".into();
            errors.push(error);
        }
    }
}

fn workload(builtin: Builtin, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    negative(&spec["replicas"], "spec.replicas", &mut errors);
    negative(&spec["minReadySeconds"], "spec.minReadySeconds", &mut errors);
    negative(&spec["revisionHistoryLimit"], "spec.revisionHistoryLimit", &mut errors);
    let name = match builtin {
        Builtin::Deployment => "deployment",
        Builtin::ReplicaSet => "replicaset",
        Builtin::StatefulSet => "statefulset",
        _ => "daemonset",
    };
    if spec["selector"].is_null() {
        errors.push(FieldError::required("spec.selector", ""));
        // Without a selector the server takes one that selects nothing, which then does not fit the template either.
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            &spec["template"]["metadata"]["labels"],
            "`selector` does not match template `labels`",
        ));
    } else {
        selector(&spec["selector"], "spec.selector", &mut errors);
        if is_empty_selector(&spec["selector"]) {
            let detail = format!("empty selector is invalid for {name}");
            errors.push(FieldError::invalid("spec.selector", &spec["selector"], detail));
        }
        let labels = &spec["template"]["metadata"]["labels"];
        if !LabelSelector::from_object(&spec["selector"]).matches(labels) {
            errors.push(FieldError::invalid(
                "spec.template.metadata.labels",
                labels,
                "`selector` does not match template `labels`",
            ));
        }
    }
    template(&spec["template"], old.map(|old| &old["spec"]["template"]), &["Always"], &mut errors);
    if let Some(old) = old
        && old["spec"]["selector"] != spec["selector"]
    {
        errors.push(FieldError::invalid("spec.selector", &spec["selector"], "field is immutable"));
    }
    errors
}

fn template(template: &Value, old: Option<&Value>, restart_policies: &[&str], errors: &mut Vec<FieldError>) {
    if old == Some(template) {
        return;
    }
    errors.extend(metadata::validate_labels(&template["metadata"]["labels"], "spec.template.labels"));
    errors.extend(pod::validate_spec(&template["spec"], "spec.template.spec"));
    let policy = &template["spec"]["restartPolicy"];
    if policy.as_str().is_some_and(|policy| !restart_policies.contains(&policy)) {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, restart_policies));
    }
}

fn is_empty_selector(selector: &Value) -> bool {
    ["matchLabels", "matchExpressions"].iter().all(|key| match &selector[*key] {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    })
}

fn selector(selector: &Value, path: &str, errors: &mut Vec<FieldError>) {
    errors.extend(metadata::validate_labels(&selector["matchLabels"], &format!("{path}.matchLabels")));
    for (index, expression) in selector["matchExpressions"].as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let count = expression["values"].as_array().map_or(0, Vec::len);
        match expression["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" if count == 0 => errors.push(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if count > 0 => errors.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(FieldError::invalid(
                format!("{path}.operator"),
                &json!(expression["operator"].as_str().unwrap_or_default()),
                "not a valid selector operator",
            )),
        }
        for error in metadata::qualified_name_errors(expression["key"].as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{path}.key"), &expression["key"], error));
        }
    }
}

fn job(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    for key in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"] {
        negative(&spec[key], &format!("spec.{key}"), &mut errors);
    }
    if spec["template"]["spec"]["restartPolicy"] == "Always" {
        errors.push(FieldError::required("spec.template.spec.restartPolicy", "valid values: \"OnFailure\", \"Never\""));
    }
    template(
        &spec["template"],
        old.map(|old| &old["spec"]["template"]),
        &["Always", "OnFailure", "Never"],
        &mut errors,
    );
    let Some(old) = old else { return errors };
    for key in ["completions", "selector", "template", "completionMode"] {
        if old["spec"][key] != spec[key] {
            errors.push(FieldError::invalid(format!("spec.{key}"), &spec[key], "field is immutable"));
        }
    }
    errors
}

fn budget(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        errors.push(FieldError::invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        int_or_percent(&spec[key], &format!("spec.{key}"), &mut errors);
    }
    selector(&spec["selector"], "spec.selector", &mut errors);
    if let Some(policy) = spec["unhealthyPodEvictionPolicy"].as_str()
        && !matches!(policy, "AlwaysAllow" | "IfHealthyBudget")
    {
        errors.push(FieldError::not_supported(
            "spec.unhealthyPodEvictionPolicy",
            &spec["unhealthyPodEvictionPolicy"],
            &["AlwaysAllow", "IfHealthyBudget"],
        ));
    }
    errors
}

fn int_or_percent(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    negative(value, path, errors);
    let Some(text) = value.as_str() else { return };
    match text.strip_suffix('%').and_then(|number| number.parse::<u32>().ok()) {
        None => errors.push(FieldError::invalid(
            path,
            value,
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used \
             for validation is '[0-9]+%')",
        )),
        Some(percent) if percent > 100 => {
            errors.push(FieldError::invalid(path, value, "must not be greater than 100%"));
        }
        Some(_) => {}
    }
}

fn priority_class(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(old) = old
        && old["value"] != new["value"]
    {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    errors
}

fn service(new: &Value) -> Vec<FieldError> {
    let spec = &new["spec"];
    let mut errors = Vec::new();
    let portless = spec["ports"].as_array().is_none_or(Vec::is_empty);
    if portless && spec["type"] != "ExternalName" && spec["clusterIP"] != "None" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    for (index, port) in spec["ports"].as_array().into_iter().flatten().enumerate() {
        for field in ["port", "targetPort"] {
            let Some(number) = port[field].as_i64().filter(|number| !(1..=65_535).contains(number)) else { continue };
            errors.push(FieldError::invalid(
                format!("spec.ports[{index}].{field}"),
                &number.into(),
                "must be between 1 and 65535, inclusive",
            ));
        }
    }
    errors
}
