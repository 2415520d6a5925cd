//! Validation of built-in kinds, as far as clients rely on it.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{metadata, pod};
use crate::{
    kinds::Builtin,
    select::LabelSelector,
    status::{ErrorKind, FieldError},
    write::Part,
};

/// Everything wrong with the new state of an object.
pub(crate) fn check(builtin: Builtin, new: &Value, old: Option<&Value>, part: Part) -> Vec<FieldError> {
    let spec_unchanged = old.is_some_and(|old| old["spec"] == new["spec"]);
    match builtin {
        Builtin::Pod if part == Part::Whole => match old {
            None => pod::validate_spec(&new["spec"], "spec"),
            Some(old) => pod::validate_spec_update(&new["spec"], &old["spec"], "spec"),
        },
        Builtin::Node => node(new, old),
        Builtin::ConfigMap => config_map(new, old),
        Builtin::Secret => secret(new, old),
        Builtin::PriorityClass => priority_class(new, old),
        Builtin::StorageClass if new["provisioner"].as_str().unwrap_or_default().is_empty() => {
            vec![FieldError::required("provisioner", "")]
        }
        Builtin::Event => event(new),
        _ if spec_unchanged && old.is_some() => Vec::new(),
        Builtin::Deployment | Builtin::ReplicaSet | Builtin::StatefulSet | Builtin::DaemonSet => {
            workload(builtin, new, old)
        }
        Builtin::Job => job(new, old),
        Builtin::PodDisruptionBudget => budget(new),
        Builtin::CronJob => cron_job(new),
        Builtin::Lease => lease(new),
        Builtin::PersistentVolumeClaim => claim(new),
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
    // The server names the taints by this path, which is not theirs.
    let path = "metadata.taints";
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
            error.value = Some(format!(
                "{{\"Key\":{:?},\"Value\":{:?},\"Effect\":{:?},\"TimeAdded\":null}}",
                text("key"),
                text("value"),
                text("effect")
            ));
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
    strategy(builtin, spec, &mut errors);
    if builtin == Builtin::Deployment {
        let (deadline, ready) = (&spec["progressDeadlineSeconds"], spec["minReadySeconds"].as_i64().unwrap_or(0));
        negative(deadline, "spec.progressDeadlineSeconds", &mut errors);
        if deadline.as_i64().is_some_and(|seconds| seconds <= ready) {
            let detail = "must be greater than minReadySeconds";
            errors.push(FieldError::invalid("spec.progressDeadlineSeconds", deadline, detail));
        }
    }
    if let Some(old) = old.filter(|_| builtin == Builtin::StatefulSet) {
        let fixed = |object: &Value| {
            let mut spec = object["spec"].clone();
            for key in [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
            ] {
                spec.as_object_mut().map(|spec| spec.remove(key));
            }
            spec
        };
        if fixed(old) != fixed(new) {
            errors.push(FieldError::forbidden(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                 'minReadySeconds' are forbidden",
            ));
        }
    }
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
        if errors.iter().any(|error| error.field.starts_with("spec.selector.")) {
            // What cannot be read cannot be compared either.
            errors.push(FieldError::invalid("spec.selector", &spec["selector"], "invalid label selector"));
        } else if !LabelSelector::from_object(&spec["selector"]).matches(labels) {
            errors.push(FieldError::invalid(
                "spec.template.metadata.labels",
                labels,
                "`selector` does not match template `labels`",
            ));
        }
    }
    let claims = &spec["volumeClaimTemplates"];
    template(&spec["template"], old.map(|old| &old["spec"]["template"]), claims, &["Always"], &mut errors);
    if spec["template"]["spec"]["activeDeadlineSeconds"].is_number() {
        let kind = if builtin == Builtin::Deployment || builtin == Builtin::ReplicaSet {
            "ReplicaSet"
        } else if builtin == Builtin::StatefulSet {
            "StatefulSet"
        } else {
            "DaemonSet"
        };
        errors.push(FieldError::forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        ));
    }
    if let Some(old) = old
        && builtin != Builtin::StatefulSet
        && old["spec"]["selector"] != spec["selector"]
    {
        errors.push(FieldError::invalid("spec.selector", &spec["selector"], "field is immutable"));
    }
    errors
}

/// How an update is rolled out.
fn strategy(builtin: Builtin, spec: &Value, errors: &mut Vec<FieldError>) {
    let (key, known): (&str, &[&str]) = match builtin {
        Builtin::Deployment => ("strategy", &["Recreate", "RollingUpdate"]),
        Builtin::DaemonSet => ("updateStrategy", &["RollingUpdate", "OnDelete"]),
        _ => return,
    };
    let (strategy, path) = (&spec[key], format!("spec.{key}"));
    let given = strategy["type"].as_str().unwrap_or_default();
    if !known.contains(&given) {
        let mut error = FieldError::not_supported(path, &strategy["type"], known);
        error.value = Some(format!("{{\"Type\":{given:?},\"RollingUpdate\":null}}"));
        errors.push(error);
        return;
    }
    let rolling = &strategy["rollingUpdate"];
    if given == "Recreate" && !rolling.is_null() {
        let detail = "may not be specified when strategy `type` is 'Recreate'";
        errors.push(FieldError::forbidden(format!("{path}.rollingUpdate"), detail));
    }
    if given != "RollingUpdate" {
        return;
    }
    let before = errors.len();
    for key in ["maxUnavailable", "maxSurge"] {
        int_or_percent(&rolling[key], &format!("{path}.rollingUpdate.{key}"), errors);
    }
    let none = |key: &str| matches!(rolling[key].as_i64(), Some(0)) || rolling[key] == "0%";
    if errors.len() == before && builtin == Builtin::Deployment && none("maxUnavailable") && none("maxSurge") {
        let path = format!("{path}.rollingUpdate.maxUnavailable");
        errors.push(FieldError::invalid(path, &json!(0), "may not be 0 when `maxSurge` is 0"));
    }
}

fn template(
    template: &Value,
    old: Option<&Value>,
    claims: &Value,
    restart_policies: &[&str],
    errors: &mut Vec<FieldError>,
) {
    if old == Some(template) {
        return;
    }
    errors.extend(metadata::validate_labels(&template["metadata"]["labels"], "spec.template.labels"));
    errors.extend(pod::validate_spec(&with_claims(&template["spec"], claims), "spec.template.spec"));
    let policy = &template["spec"]["restartPolicy"];
    if policy.as_str().is_some_and(|policy| !restart_policies.contains(&policy)) {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, restart_policies));
    }
}

/// The pod's specification as a StatefulSet makes it: its claims are volumes by the names of their templates.
fn with_claims<'a>(spec: &'a Value, claims: &Value) -> Cow<'a, Value> {
    let mut spec = Cow::Borrowed(spec);
    for claim in claims.as_array().into_iter().flatten() {
        let name = &claim["metadata"]["name"];
        let volumes = spec["volumes"].as_array();
        if volumes.is_none_or(|volumes| volumes.iter().all(|volume| volume["name"] != *name)) {
            let mut list = volumes.cloned().unwrap_or_default();
            list.push(json!({"name": name}));
            spec.to_mut()["volumes"] = list.into();
        }
    }
    spec
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
        &Value::Null,
        &["Always", "OnFailure", "Never"],
        &mut errors,
    );
    let Some(old) = old else {
        generated_selector(new, &mut errors);
        return errors;
    };
    for key in ["completions", "selector", "template", "completionMode"] {
        if old["spec"][key] != spec[key] {
            errors.push(FieldError::invalid(format!("spec.{key}"), &spec[key], "field is immutable"));
        }
    }
    errors
}

/// A job that does not manage its selector has the one the server made.
fn generated_selector(job: &Value, errors: &mut Vec<FieldError>) {
    let spec = &job["spec"];
    let uid = &job["metadata"]["uid"];
    let selector = &spec["selector"]["matchLabels"];
    let own = json!({ "batch.kubernetes.io/controller-uid": uid });
    if spec["manualSelector"] == true || *selector == own {
        return;
    }
    errors.push(FieldError::invalid("spec.selector", &spec["selector"], "`selector` not auto-generated"));
    if !LabelSelector::from_object(&spec["selector"]).matches(&spec["template"]["metadata"]["labels"]) {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            &spec["template"]["metadata"]["labels"],
            "`selector` does not match template `labels`",
        ));
    }
}

fn cron_job(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    let schedule = spec["schedule"].as_str().unwrap_or_default();
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else if let Some(why) = wrong_schedule(schedule) {
        errors.push(FieldError::invalid("spec.schedule", &spec["schedule"], why));
    }
    let policy = &spec["concurrencyPolicy"];
    if policy.as_str().is_some_and(|policy| !matches!(policy, "Allow" | "Forbid" | "Replace")) {
        let known = ["Allow", "Forbid", "Replace"];
        errors.push(FieldError::not_supported("spec.concurrencyPolicy", policy, &known));
    }
    for key in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        negative(&spec[key], &format!("spec.{key}"), &mut errors);
    }
    let template = &spec["jobTemplate"]["spec"]["template"]["spec"];
    let path = "spec.jobTemplate.spec.template.spec";
    errors.extend(pod::validate_spec(template, path));
    if template["restartPolicy"] == "Always" {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        errors.push(FieldError::required(format!("{path}.restartPolicy"), detail));
    }
    errors
}

/// Why a text is no schedule: five fields, or a word such as `@daily`.
fn wrong_schedule(schedule: &str) -> Option<String> {
    const WORDS: [&str; 8] =
        ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@every"];
    if let Some(word) = schedule.split_whitespace().next().filter(|word| word.starts_with('@')) {
        return (!WORDS.contains(&word)).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    (fields.len() != 5).then(|| format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")))
}

fn lease(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    if spec["leaseDurationSeconds"].as_i64().is_some_and(|seconds| seconds <= 0) {
        let value = &spec["leaseDurationSeconds"];
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", value, "must be greater than 0"));
    }
    negative(&spec["leaseTransitions"], "spec.leaseTransitions", &mut errors);
    errors
}

fn claim(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    if spec["accessModes"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    if spec["resources"]["requests"]["storage"].is_null() {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    }
    errors
}

/// One megabyte as computers count: what a config map or a secret may hold.
const MAX_DATA: usize = 1024 * 1024;

/// The keys of config maps and secrets, which become file names.
fn data_keys(data: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const PATTERN: &str = "[-._a-zA-Z0-9]+";
    for key in data.as_object().into_iter().flat_map(|data| data.keys()) {
        let at = format!("{path}[{key}]");
        if key.len() > 253 {
            errors.push(FieldError::invalid(&at, &json!(key), "must be no more than 253 bytes"));
        }
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
            let detail = format!(
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                 'KEY_NAME',  or 'key-name', regex used for validation is '{PATTERN}')"
            );
            errors.push(FieldError::invalid(&at, &json!(key), detail));
        } else if key == "." {
            errors.push(FieldError::invalid(&at, &json!(key), "must not be '.'"));
        } else if key == ".." {
            errors.push(FieldError::invalid(&at, &json!(key), "must not be '..'"));
        } else if key.starts_with("..") {
            errors.push(FieldError::invalid(&at, &json!(key), "must not start with '..'"));
        }
    }
}

fn too_large(path: &str, size: usize, errors: &mut Vec<FieldError>) {
    if size > MAX_DATA {
        errors.push(FieldError {
            field: path.into(),
            kind: ErrorKind::TooLong,
            value: None,
            detail: format!("may not be more than {MAX_DATA} bytes"),
        });
    }
}

fn size_of(data: &Value, encoded: bool) -> usize {
    let text = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        if encoded {
            text.len() / 4 * 3 - text.bytes().rev().take_while(|byte| *byte == b'=').count()
        } else {
            text.len()
        }
    };
    data.as_object().into_iter().flatten().map(|(_, value)| text(value)).sum()
}

/// What was said to be immutable stays as it is.
fn immutable(new: &Value, old: &Value, keys: &[&str], errors: &mut Vec<FieldError>) {
    if old["immutable"] != true {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    for key in keys.iter().filter(|key| new[**key] != old[**key]) {
        errors.push(FieldError::forbidden(*key, detail));
    }
}

fn config_map(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(old) = old {
        immutable(new, old, &["immutable", "data", "binaryData"], &mut errors);
    }
    data_keys(&new["data"], "data", &mut errors);
    for key in new["data"].as_object().into_iter().flat_map(|data| data.keys()) {
        if new["binaryData"].get(key).is_some() {
            let detail = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(format!("data[{key}]"), &json!(key), detail));
        }
    }
    data_keys(&new["binaryData"], "binaryData", &mut errors);
    too_large("", size_of(&new["data"], false) + size_of(&new["binaryData"], true), &mut errors);
    errors
}

fn secret(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(old) = old {
        if new["type"] != old["type"] {
            errors.push(FieldError::invalid("type", &new["type"], "field is immutable"));
        }
        immutable(new, old, &["immutable", "data"], &mut errors);
    }
    data_keys(&new["data"], "data", &mut errors);
    let required: &[&str] = match new["type"].as_str().unwrap_or_default() {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    for key in required.iter().filter(|key| new["data"].get(key).is_none()) {
        errors.push(FieldError::required(format!("data[{key}]"), ""));
    }
    too_large("data", size_of(&new["data"], true), &mut errors);
    errors
}

/// An event is about something in its own namespace.
fn event(new: &Value) -> Vec<FieldError> {
    let about = new["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let own = new["metadata"]["namespace"].as_str().unwrap_or_default();
    // Events about what has no namespace stand in the one called default.
    if about == own || (about.is_empty() && own == "default") {
        return Vec::new();
    }
    let given = &json!(about);
    vec![FieldError::invalid("involvedObject.namespace", given, "does not match event.namespace")]
}

fn budget(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &new["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        // In the order and the words of the server's own type.
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec["minAvailable"], spec["selector"], spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]
        );
        errors.push(FieldError {
            field: "spec".into(),
            kind: ErrorKind::Invalid,
            value: Some(shown),
            detail: "minAvailable and maxUnavailable cannot be both set".into(),
        });
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

/// Above this, priorities are the system's own.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

fn priority_class(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(old) = old {
        if old["value"] != new["value"] {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        return errors;
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let own = matches!(name, "system-cluster-critical" | "system-node-critical");
    if name.starts_with("system-") && !own {
        errors.push(FieldError::forbidden(
            "metadata.name",
            format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a \
                 known system priority class"
            ),
        ));
    } else if !own && new["value"].as_i64().is_some_and(|value| value > HIGHEST_USER_PRIORITY) {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
        errors.push(FieldError::forbidden("value", detail));
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
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if spec["type"].as_str().is_some_and(|kind| !kinds.contains(&kind)) {
        errors.push(FieldError::not_supported("spec.type", &spec["type"], &kinds));
    }
    let several = spec["ports"].as_array().is_some_and(|ports| ports.len() > 1);
    for (index, port) in spec["ports"].as_array().into_iter().flatten().enumerate() {
        if several && port["name"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("spec.ports[{index}].name"), ""));
        }
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
