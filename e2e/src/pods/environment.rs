//! The environment of a container as a kubelet makes it of `env`: values, `$(…)` in them, and what only a pod knows.

use anyhow::{Context, bail, ensure};
use controller_core::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, EnvVar, Node, Pod, ResourceFieldSelector};
use kube::ResourceExt;
use std::collections::BTreeMap;

/// The variables of a container, whose pod is on this node.
///
/// # Errors
/// Where one is from something that is not played, or that is not there.
pub(super) fn of(pod: &Pod, container: &Container, node: Option<&Node>) -> anyhow::Result<BTreeMap<String, String>> {
    ensure!(container.env_from.as_ref().is_none_or(Vec::is_empty), "envFrom is not played; write the variables to env");
    let mut variables = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let value =
            value(pod, container, node, variable, &variables).with_context(|| format!("env {:?}", variable.name))?;
        variables.insert(variable.name.clone(), value);
    }
    Ok(variables)
}

fn value(
    pod: &Pod,
    container: &Container,
    node: Option<&Node>,
    variable: &EnvVar,
    before: &BTreeMap<String, String>,
) -> anyhow::Result<String> {
    let Some(source) = &variable.value_from else {
        return Ok(expanded(variable.value.as_deref().unwrap_or_default(), before));
    };
    match (&source.field_ref, &source.resource_field_ref) {
        (Some(field), _) => field_of(pod, &field.field_path),
        (_, Some(selector)) => resource(pod, container, node, selector).map(|value| value.to_string()),
        _ => bail!("only value, fieldRef and resourceFieldRef are played"),
    }
}

/// `$(NAME)` is the value of a variable further up, `$$` a `$`; what names no variable stays as it is.
fn expanded(text: &str, variables: &BTreeMap<String, String>) -> String {
    let (mut result, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            match variables.get(name) {
                Some(value) => result.push_str(value),
                None => result.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            result.push('$');
        }
    }
    result + rest
}

fn field_of(pod: &Pod, path: &str) -> anyhow::Result<String> {
    let spec = pod.spec.as_ref().context("the pod has no spec")?;
    let in_map = |map: &BTreeMap<String, String>, key: &str| map.get(key).cloned().unwrap_or_default();
    if let Some((map, key)) = path.split_once("['").and_then(|(map, key)| Some((map, key.strip_suffix("']")?))) {
        return match map {
            "metadata.labels" => Ok(in_map(pod.labels(), key)),
            "metadata.annotations" => Ok(in_map(pod.annotations(), key)),
            _ => bail!("fieldPath {path:?} is not played"),
        };
    }
    Ok(match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "spec.nodeName" => spec.node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => super::identity::account_of(pod).to_owned(),
        // Pods have no addresses here.
        _ => bail!("fieldPath {path:?} is not played"),
    })
}

/// A request or a limit in units of the divisor, fractions rounded up. A limit that is not set is what the node has.
fn resource(pod: &Pod, own: &Container, node: Option<&Node>, selector: &ResourceFieldSelector) -> anyhow::Result<i128> {
    let name = selector.container_name.as_deref().unwrap_or(&own.name);
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let container = containers.into_iter().find(|container| container.name == name);
    let container = container.with_context(|| format!("the pod has no container {name:?}"))?;
    let resources = container.resources.as_ref();
    let allocatable = || node.and_then(|node| node.status.as_ref()?.allocatable.as_ref());
    let quantity = match selector.resource.split_once('.') {
        Some(("requests", resource)) => resources.and_then(|all| all.requests.as_ref()?.get(resource)),
        Some(("limits", resource)) => resources
            .and_then(|all| all.limits.as_ref()?.get(resource))
            .or_else(|| allocatable().and_then(|allocatable| allocatable.get(resource))),
        _ => bail!("resource {:?}: requests.… or limits.… is meant", selector.resource),
    };
    let quantity = quantity.map_or(Ok(Quantity::ZERO), Quantity::from_api)?;
    let divisor = selector.divisor.as_ref().map_or(Ok(Quantity::ZERO), Quantity::from_api)?;
    let divisor = if divisor.is_zero() { Quantity::units(1) } else { divisor };
    ensure!(!divisor.is_negative() && !quantity.is_negative(), "a quantity is negative");
    Ok((quantity.nanos() + divisor.nanos() - 1) / divisor.nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn variables(env: Value) -> anyhow::Result<BTreeMap<String, String>> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "karpenter-1", "namespace": "kube-system", "uid": "u", "labels": {"a/b": "c"}},
            "spec": {"nodeName": "n", "serviceAccountName": "karpenter", "containers": [{
                "name": "controller",
                "env": env,
                "resources": {"requests": {"cpu": "1200m"}, "limits": {"memory": "1Gi"}},
            }]},
        }))
        .unwrap();
        let node = json!({"metadata": {}, "status": {"allocatable": {"cpu": "1930m"}}});
        of(&pod, super::super::container(&pod).unwrap(), Some(&serde_json::from_value(node).unwrap()))
    }

    fn value(variable: Value) -> String {
        let mut variable = variable;
        variable["name"] = json!("X");
        variables(json!([{"name": "ONE", "value": "1"}, variable])).unwrap().remove("X").unwrap()
    }

    #[test]
    fn a_container_sees_values_and_what_its_pod_is() {
        assert_eq!(value(json!({"value": "$(ONE) $$(ONE) $(NONE) $5 $"})), "1 $(ONE) $(NONE) $5 $");
        let field = |path: &str| value(json!({"valueFrom": {"fieldRef": {"fieldPath": path}}}));
        assert_eq!(field("metadata.name"), "karpenter-1");
        assert_eq!(field("metadata.namespace"), "kube-system");
        assert_eq!(field("metadata.labels['a/b']"), "c");
        assert_eq!(field("metadata.annotations['a/b']"), "");
        assert_eq!(field("spec.nodeName"), "n");
    }

    #[test]
    fn resources_are_counted_in_their_divisor_and_rounded_up() {
        let resource = |resource: &str, divisor: &str| {
            value(json!({"valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}}))
        };
        assert_eq!(resource("requests.cpu", "1m"), "1200");
        assert_eq!(resource("requests.cpu", "0"), "2");
        assert_eq!(resource("limits.memory", "1Mi"), "1024");
        // Without a limit, the node is one; without a request, nothing is asked for.
        assert_eq!(resource("limits.cpu", "1m"), "1930");
        assert_eq!(resource("requests.memory", "1"), "0");
    }

    #[test]
    fn what_is_not_played_is_named() {
        let secret = json!([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        let error = format!("{:#}", variables(secret).unwrap_err());
        assert_eq!(error, "env \"KEY\": only value, fieldRef and resourceFieldRef are played");
        let address = json!([{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
        assert!(format!("{:#}", variables(address).unwrap_err()).contains("\"status.podIP\" is not played"));
    }
}
