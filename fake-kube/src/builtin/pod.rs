//! Pod specs, on their own and in templates: validation and quality of service.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::metadata;
use crate::{quantity::Quantity, status::FieldError};

/// The quality-of-service class of a pod spec.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let mut anything = false;
    let mut guaranteed = true;
    let containers = ["initContainers", "containers"].into_iter().flat_map(|list| list_of(&spec[list]));
    for container in containers {
        let resources = &container["resources"];
        for name in ["cpu", "memory"] {
            let quantity = |part: &str| {
                let text = resources[part][name].as_str()?;
                Quantity::parse(text).ok().filter(|quantity| !quantity.is_zero())
            };
            let (request, limit) = (quantity("requests"), quantity("limits"));
            anything |= request.is_some() || limit.is_some();
            guaranteed &=
                limit.is_some() && request.is_none_or(|request| limit.is_some_and(|limit| limit.equals(&request)));
        }
    }
    match (anything, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn list_of(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Checks a pod spec at `path`.
pub(crate) fn validate_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes: BTreeSet<&str> = list_of(&spec["volumes"]).filter_map(|volume| volume["name"].as_str()).collect();
    validate_volumes(&spec["volumes"], &format!("{path}.volumes"), &mut errors);
    if list_of(&spec["containers"]).next().is_none() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in list_of(&spec[list]).enumerate() {
            let path = format!("{path}.{list}[{index}]");
            validate_container(container, &path, &volumes, &mut errors);
            let name = container["name"].as_str().unwrap_or_default();
            if !name.is_empty() && !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &container["name"]));
            }
        }
    }
    one_of(&spec["restartPolicy"], &format!("{path}.restartPolicy"), &["Always", "OnFailure", "Never"], &mut errors);
    one_of(
        &spec["dnsPolicy"],
        &format!("{path}.dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        &mut errors,
    );
    if spec["dnsPolicy"] == "None" && list_of(&spec["dnsConfig"]["nameservers"]).next().is_none() {
        let (field, detail) = if spec["dnsConfig"].is_null() {
            ("dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
        } else {
            ("dnsConfig.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
        };
        errors.push(FieldError::required(format!("{path}.{field}"), detail));
    }
    errors.extend(metadata::validate_labels(&spec["nodeSelector"], &format!("{path}.nodeSelector")));
    validate_tolerations(&spec["tolerations"], &format!("{path}.tolerations"), &mut errors);
    validate_affinity(&spec["affinity"], &format!("{path}.affinity"), &mut errors);
    validate_spread(&spec["topologySpreadConstraints"], &format!("{path}.topologySpreadConstraints"), &mut errors);
    errors
}

fn one_of(value: &Value, path: &str, supported: &[&str], errors: &mut Vec<FieldError>) {
    if let Some(text) = value.as_str()
        && !supported.contains(&text)
    {
        errors.push(FieldError::not_supported(path, value, supported));
    }
}

fn validate_volumes(volumes: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, volume) in list_of(volumes).enumerate() {
        let path = format!("{path}[{index}].name");
        let name = volume["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        for error in metadata::dns_label_errors(name) {
            errors.push(FieldError::invalid(&path, &volume["name"], error));
        }
        let before = errors.len();
        let sources =
            volume.as_object().into_iter().flatten().filter(|(key, value)| *key != "name" && !value.is_null());
        // In the order in which the server looks for them, which begins with these.
        let mut sources: Vec<&str> = sources.map(|(key, _)| key.as_str()).collect();
        sources.sort_by_key(|source| (*source != "emptyDir", *source != "hostPath"));
        for source in sources.iter().skip(1) {
            let path = path.replace(".name", &format!(".{source}"));
            errors.push(FieldError::forbidden(path, "may not specify more than 1 volume type"));
        }
        // Only a volume that is sound takes its name.
        if errors.len() == before && !seen.insert(name) {
            errors.push(FieldError::duplicate(path, &volume["name"]));
        }
    }
}

/// What is wrong with the name of a port.
fn port_name_errors(name: &str) -> Vec<&'static str> {
    let mut errors = Vec::new();
    if name.len() > 15 {
        errors.push("must be no more than 15 characters");
    }
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        errors.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        errors.push("must not begin or end with a hyphen");
    }
    errors
}

fn validate_probe(probe: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !probe.is_object() {
        return;
    }
    let handlers = ["exec", "httpGet", "tcpSocket", "grpc"].into_iter().filter(|handler| !probe[*handler].is_null());
    let handlers: Vec<&str> = handlers.collect();
    if handlers.is_empty() {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
    for handler in handlers.iter().skip(1) {
        errors.push(FieldError::forbidden(format!("{path}.{handler}"), "may not specify more than 1 handler type"));
    }
    for key in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        if probe[key].as_i64().is_some_and(|number| number < 0) {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("{path}.{key}"), &probe[key], detail));
        }
    }
}

fn validate_pod_terms(affinity: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = &affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"];
        for (index, term) in list_of(terms).enumerate() {
            let key = term["topologyKey"].as_str().unwrap_or_default();
            let path = format!("{path}.{kind}.requiredDuringSchedulingIgnoredDuringExecution[{index}].topologyKey");
            if key.is_empty() {
                errors.push(FieldError::required(&path, "can not be empty"));
            }
            for error in metadata::qualified_name_errors(key) {
                errors.push(FieldError::invalid(&path, &json!(key), error));
            }
        }
    }
}

fn validate_container(container: &Value, path: &str, volumes: &BTreeSet<&str>, errors: &mut Vec<FieldError>) {
    let text = |key: &str| container[key].as_str().unwrap_or_default();
    if text("name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else {
        for error in metadata::dns_label_errors(text("name")) {
            errors.push(FieldError::invalid(format!("{path}.name"), &container["name"], error));
        }
    }
    if text("image").is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    for (index, port) in list_of(&container["ports"]).enumerate() {
        let path = format!("{path}.ports[{index}]");
        let number = port["containerPort"].as_i64().unwrap_or(0);
        if number == 0 {
            errors.push(FieldError::required(format!("{path}.containerPort"), ""));
        } else if !(1..=65_535).contains(&number) {
            let detail = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{path}.containerPort"), &port["containerPort"], detail));
        }
        for error in port["name"].as_str().map(port_name_errors).into_iter().flatten() {
            errors.push(FieldError::invalid(format!("{path}.name"), &port["name"], error));
        }
        one_of(&port["protocol"], &format!("{path}.protocol"), &["SCTP", "TCP", "UDP"], errors);
    }
    for (index, variable) in list_of(&container["env"]).enumerate() {
        let name = variable["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.env[{index}].name"), ""));
        } else if !name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
            let detail = "a valid environment variable name must consist only of printable ASCII characters other than \
                          '='";
            errors.push(FieldError::invalid(format!("{path}.env[{index}].name"), &variable["name"], detail));
        }
    }
    for (index, mount) in list_of(&container["volumeMounts"]).enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let name = mount["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::not_found(format!("{path}.name"), &mount["name"]));
        }
        if mount["mountPath"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        }
    }
    one_of(
        &container["imagePullPolicy"],
        &format!("{path}.imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
        errors,
    );
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        validate_probe(&container[probe], &format!("{path}.{probe}"), errors);
    }
    validate_resources(&container["resources"], &format!("{path}.resources"), errors);
}

/// Resources other than these are counted in whole units and never overcommitted.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.split('/').next().is_some_and(|domain| domain.ends_with("kubernetes.io"))
}

fn validate_resources(resources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let limits = &resources["limits"];
    for part in ["limits", "requests"] {
        for (name, text) in resources[part].as_object().into_iter().flatten() {
            let at = format!("{path}.{part}[{name}]");
            for error in metadata::qualified_name_errors(name) {
                errors.push(FieldError::invalid(&at, &json!(name), error));
            }
            if !name.contains('/') && !standard_container_resource(name) {
                errors.push(FieldError::invalid(&at, &json!(name), "must be a standard resource for containers"));
            }
            let Some(quantity) = text.as_str().and_then(|text| Quantity::parse(text).ok()) else { continue };
            if quantity.is_negative() {
                errors.push(FieldError::invalid(&at, text, "must be greater than or equal to 0"));
            }
            if is_extended(name) && !quantity.is_whole() {
                errors.push(FieldError::invalid(&at, text, "must be an integer"));
            }
            if part == "limits" {
                continue;
            }
            let overcommit = !is_extended(name) && !name.starts_with("hugepages-");
            let limit = limits[name].as_str().unwrap_or_default();
            match Quantity::parse(limit) {
                Ok(bound) if !overcommit && !bound.equals(&quantity) => errors.push(FieldError::invalid(
                    format!("{path}.requests"),
                    text,
                    format!("must be equal to {name} limit of {limit}"),
                )),
                Ok(bound) if quantity > bound => errors.push(FieldError::invalid(
                    format!("{path}.requests"),
                    text,
                    format!("must be less than or equal to {name} limit of {limit}"),
                )),
                Err(_) if !overcommit => errors.push(FieldError::required(
                    format!("{path}.limits"),
                    "Limit must be set for non overcommitable resources",
                )),
                _ => {}
            }
        }
    }
}

fn standard_container_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
}

fn validate_tolerations(tolerations: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, toleration) in list_of(tolerations).enumerate() {
        let path = format!("{path}[{index}]");
        let text = |key: &str| toleration[key].as_str().unwrap_or_default();
        let quoted = |key: &str| json!(text(key));
        if !text("key").is_empty() {
            for error in metadata::qualified_name_errors(text("key")) {
                errors.push(FieldError::invalid(format!("{path}.key"), &toleration["key"], error));
            }
        } else if text("operator") != "Exists" {
            errors.push(FieldError::invalid(
                format!("{path}.operator"),
                &quoted("operator"),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ));
        }
        if toleration["tolerationSeconds"].is_number() && text("effect") != "NoExecute" {
            errors.push(FieldError::invalid(
                format!("{path}.effect"),
                &quoted("effect"),
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            ));
        }
        match text("operator") {
            "" | "Equal" => {
                let found = metadata::label_value_errors(text("value"));
                if !found.is_empty() {
                    errors.push(FieldError::invalid(format!("{path}.operator"), &quoted("value"), found.join(";")));
                }
            }
            "Exists" if !text("value").is_empty() => errors.push(FieldError::invalid(
                format!("{path}.operator"),
                &quoted("value"),
                "value must be empty when `operator` is 'Exists'",
            )),
            "Exists" => {}
            _ => errors.push(FieldError::not_supported(
                format!("{path}.operator"),
                &toleration["operator"],
                &["Equal", "Exists"],
            )),
        }
        if !text("effect").is_empty() {
            validate_effect(&toleration["effect"], &format!("{path}.effect"), errors);
        }
    }
}

/// Checks the effect of a taint or toleration.
pub(crate) fn validate_effect(effect: &Value, path: &str, errors: &mut Vec<FieldError>) {
    one_of(effect, path, &["NoSchedule", "PreferNoSchedule", "NoExecute"], errors);
}

fn validate_affinity(affinity: &Value, path: &str, errors: &mut Vec<FieldError>) {
    validate_pod_terms(affinity, path, errors);
    let node = &affinity["nodeAffinity"];
    let required = &node["requiredDuringSchedulingIgnoredDuringExecution"];
    let path = format!("{path}.nodeAffinity");
    if required.is_object() {
        let path = format!("{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
        if list_of(&required["nodeSelectorTerms"]).next().is_none() {
            errors.push(FieldError::required(&path, "must have at least one node selector term"));
        }
        for (index, term) in list_of(&required["nodeSelectorTerms"]).enumerate() {
            validate_term(term, &format!("{path}[{index}]"), errors);
        }
    }
    for (index, preferred) in list_of(&node["preferredDuringSchedulingIgnoredDuringExecution"]).enumerate() {
        let path = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]");
        let weight = preferred["weight"].as_i64().unwrap_or(0);
        if !(1..=100).contains(&weight) {
            errors.push(FieldError::invalid(format!("{path}.weight"), &json!(weight), "must be in the range 1-100"));
        }
        validate_term(&preferred["preference"], &format!("{path}.preference"), errors);
    }
}

fn validate_term(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, expression) in list_of(&term["matchExpressions"]).enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let count = list_of(&expression["values"]).count();
        let mut wrong = |field: &str, detail: &str, required: bool| {
            let field = format!("{path}.{field}");
            errors.push(if required {
                FieldError::required(field, detail)
            } else {
                FieldError::forbidden(field, detail)
            });
        };
        match expression["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" if count == 0 => {
                wrong("values", "must be specified when `operator` is 'In' or 'NotIn'", true);
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                wrong("values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'", false);
            }
            "Gt" | "Lt" if count != 1 => {
                wrong("values", "must be specified single value when `operator` is 'Lt' or 'Gt'", true);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
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

fn validate_spread(constraints: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, constraint) in list_of(constraints).enumerate() {
        let path = format!("{path}[{index}]");
        if constraint["maxSkew"].as_i64().unwrap_or(0) <= 0 {
            errors.push(FieldError::invalid(
                format!("{path}.maxSkew"),
                &json!(constraint["maxSkew"].as_i64().unwrap_or(0)),
                "must be greater than zero",
            ));
        }
        if constraint["topologyKey"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("{path}.topologyKey"), "can not be empty"));
        }
        let action = &constraint["whenUnsatisfiable"];
        let shown = json!(action.as_str().unwrap_or_default());
        one_of(&shown, &format!("{path}.whenUnsatisfiable"), &["DoNotSchedule", "ScheduleAnyway"], errors);
    }
}

/// What of a pod's spec may change after its creation.
pub(crate) fn validate_spec_update(new: &Value, old: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if new == old {
        return errors;
    }
    let mutable = |spec: &Value| {
        let mut spec = spec.clone();
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(fields) = container.as_object_mut() {
                    fields.remove("image");
                    // Kubelets and tools see the pull policy that was defaulted from the image at creation.
                    fields.remove("imagePullPolicy");
                }
            }
        }
        if let Some(fields) = spec.as_object_mut() {
            for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
                fields.remove(key);
            }
        }
        spec
    };
    // Of a toleration that is there, only its seconds may change.
    let essence = |toleration: &Value| {
        let text = |key: &str| toleration[key].as_str().unwrap_or_default().to_owned();
        (text("key"), text("operator"), text("value"), text("effect"))
    };
    let kept = list_of(&old["tolerations"])
        .all(|toleration| list_of(&new["tolerations"]).any(|present| essence(present) == essence(toleration)));
    if !kept {
        errors.push(FieldError::forbidden(
            format!("{path}.tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
    let deadline = |spec: &Value| spec["activeDeadlineSeconds"].as_i64();
    match (deadline(old), deadline(new)) {
        (Some(before), Some(after)) if after > before => errors.push(FieldError::invalid(
            format!("{path}.activeDeadlineSeconds"),
            &new["activeDeadlineSeconds"],
            "must be less than or equal to previous value",
        )),
        (Some(_), None) => errors.push(FieldError::invalid(
            format!("{path}.activeDeadlineSeconds"),
            &Value::Null,
            "must not update from a positive integer to nil value",
        )),
        _ => {}
    }
    let gates: BTreeSet<String> = list_of(&old["schedulingGates"]).map(Value::to_string).collect();
    for (index, gate) in list_of(&new["schedulingGates"]).enumerate() {
        if !gates.contains(&gate.to_string()) {
            let name = gate["name"].as_str().unwrap_or_default();
            errors.push(FieldError::forbidden(
                format!("{path}.schedulingGates[{index}].name"),
                format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            ));
        }
    }
    let (mut before, mut after) = (mutable(old), mutable(new));
    // A pod that waits at a gate may be given a narrower choice of nodes.
    if !gates.is_empty() {
        for spec in [&mut before, &mut after] {
            if let Some(fields) = spec.as_object_mut() {
                fields.remove("nodeSelector");
                fields.remove("affinity");
            }
        }
    }
    if before != after {
        errors.push(FieldError::forbidden(
            path,
            "pod updates may not change fields other than \
             `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
             (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if \
             it was previously negative)",
        ));
    }
    errors
}
