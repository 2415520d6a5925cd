//! The timeline's lines: which requests are worth telling a person, and in which words.

use crate::chronicle::{self, CloudCall};
use crate::recorder::{Call, Wire};
use serde_json::Value;
use std::collections::BTreeMap;

/// A line for the timeline, or nothing for what is only routine.
pub(crate) fn line(call: &Call) -> Option<(&'static str, String)> {
    match call.wire {
        Wire::Kube => kube(call).map(|text| ("api", text)),
        Wire::Aws => aws(call).map(|text| ("aws", text)),
    }
}

fn aws(call: &Call) -> Option<String> {
    let failed = !(200..300).contains(&call.status);
    let answer = call.response.as_str().unwrap_or_default();
    // Looking for something that is not there is no refusal.
    let not_there = between(answer, "<Code>").any(|code| code.contains("NotFound"));
    if (is_read(call) && (!failed || not_there)) || is_dry_run(call) {
        return None;
    }
    let told: &[&str] = if failed { &["<Code>", "<Message>"] } else { &["<item>i-", "<instanceType>", "<errorCode>"] };
    let detail: Vec<&str> = told.iter().flat_map(|open| between(answer, open)).take(6).collect();
    let outcome = if failed { format!("refused with {}: ", call.status) } else { String::new() };
    Some(format!("{} {outcome}{}", call.name, detail.join(" ")))
}

fn is_read(call: &Call) -> bool {
    let action = call.name.split(':').nth(1).unwrap_or_default();
    ["Describe", "Get", "List", "Receive"].iter().any(|prefix| action.starts_with(prefix))
}

fn is_dry_run(call: &Call) -> bool {
    call.request.get("DryRun").and_then(Value::as_str) == Some("true")
}

/// A call to AWS as the chronicle keeps it, without its time; nothing for reads, dry runs, and what only passes messages or
/// credentials.
pub(crate) fn aws_write(call: &Call) -> Option<CloudCall> {
    let service = call.name.split(':').next().unwrap_or_default();
    if is_read(call) || is_dry_run(call) || matches!(service, "sqs" | "sts") {
        return None;
    }
    let named = |key: &str| {
        matches!(key, "LaunchTemplateName" | "LaunchTemplateId" | "InstanceProfileName" | "RoleName")
            || key.starts_with("InstanceId.")
            || key.starts_with("ResourceId.")
    };
    let parameters = call.request.as_object().into_iter().flatten();
    let asked = parameters.filter(|(key, _)| named(key)).filter_map(|(_, value)| value.as_str());
    let answer = call.response.as_str().unwrap_or_default();
    // CreateFleet lists ids as bare items; RunInstances and TerminateInstances name the element.
    let launched = between(answer, "<item>").filter(|text| text.starts_with("i-"));
    let answered = launched.chain(between(answer, "<instanceId>"));
    let mut errors: BTreeMap<String, u64> = BTreeMap::new();
    for code in between(answer, "<Code>").chain(between(answer, "<errorCode>")) {
        *errors.entry(code.to_owned()).or_default() += 1;
    }
    Some(CloudCall {
        at_ms: 0,
        action: call.name.clone(),
        caller: call.caller.split(' ').next().unwrap_or_default().to_owned(),
        status: call.status,
        objects: chronicle::call_objects(asked.chain(answered).map(str::to_owned)),
        errors,
    })
}

/// The texts that follow an opening tag.
fn between<'a>(answer: &'a str, open: &'a str) -> impl Iterator<Item = &'a str> {
    answer.split(open).skip(1).filter_map(|rest| rest.split('<').next())
}

fn kube(call: &Call) -> Option<String> {
    let verb = call.name.split(' ').next().unwrap_or_default();
    let resource = call.name.split(' ').nth(1).unwrap_or_default();
    let object = call.request.get("path").and_then(Value::as_str).and_then(named).unwrap_or_default();
    // The program alone, without the version and platform that stand behind it.
    let caller = call.caller.split(['/', ' ']).next().unwrap_or_default();
    let body = &call.request["body"];
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if !(200..300).contains(&call.status) {
        let message = serde_json::from_str::<Value>(call.response.as_str().unwrap_or_default()).ok();
        let message = message.as_ref().and_then(|status| status["message"].as_str()).unwrap_or_default();
        // Looking for something that is not there is no refusal.
        return (verb != "get")
            .then(|| format!("{caller} {verb} {resource} {object}: refused with {}: {message}", call.status));
    }
    match (verb, resource) {
        ("create", "events") => {
            let subject = if text("/involvedObject/kind").is_empty() { "/regarding" } else { "/involvedObject" };
            let message = if text("/message").is_empty() { text("/note") } else { text("/message") };
            let (kind, name) = (text(&format!("{subject}/kind")), text(&format!("{subject}/name")));
            Some(format!("event {} {} on {kind}/{name}: {message}", text("/type"), text("/reason")))
        }
        ("create", "nodeclaims") => Some(format!("{caller} created a NodeClaim {}", created_name(call))),
        ("create", "pods/binding") => Some(format!("{caller} bound {object} to {}", text("/target/name"))),
        ("create", "pods/eviction") => Some(format!("{caller} evicted {object}")),
        ("create" | "delete", "nodes" | "pods" | "deployments") => {
            let name = if object.is_empty() { created_name(call) } else { object };
            Some(format!("{caller} {verb}d {resource} {name}"))
        }
        ("delete", "nodeclaims") => Some(format!("{caller} deleted nodeclaims {object}")),
        ("patch" | "update", "nodes") if body.pointer("/spec/taints").is_some() => {
            Some(format!("{caller} set taints of {object}: {}", body["spec"]["taints"]))
        }
        ("patch" | "update", "nodeclaims/status" | "ec2nodeclasses/status") => {
            let conditions = body.pointer("/status/conditions").and_then(Value::as_array)?;
            let written = |c: &Value| {
                format!("{}={}", c["type"].as_str().unwrap_or_default(), c["status"].as_str().unwrap_or_default())
            };
            let conditions: Vec<String> = conditions.iter().map(written).collect();
            Some(format!("{caller} set {resource} {object}: {}", conditions.join(" ")))
        }
        _ => None,
    }
}

fn created_name(call: &Call) -> String {
    let answer: Option<Value> = serde_json::from_str(call.response.as_str().unwrap_or_default()).ok();
    answer
        .as_ref()
        .and_then(|object| object.pointer("/metadata/name"))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Resource (with its subresource) that a path names, such as `pods/eviction`.
pub(crate) fn resource(path: &str) -> String {
    let parts = after_version(path);
    match parts.as_slice() {
        ["namespaces", _, resource] | ["namespaces", _, resource, _] => (*resource).to_owned(),
        ["namespaces", _, resource, _, rest @ ..] => format!("{resource}/{}", rest.join("/")),
        [resource] | [resource, _] => (*resource).to_owned(),
        [resource, _, rest @ ..] => format!("{resource}/{}", rest.join("/")),
        [] => path.split('?').next().unwrap_or_default().to_owned(),
    }
}

/// The object that a path names, with its namespace if it has one.
fn named(path: &str) -> Option<String> {
    match after_version(path).as_slice() {
        ["namespaces", namespace, _, name, ..] => Some(format!("{namespace}/{name}")),
        ["namespaces", _, _] | [_] => None,
        [_, name, ..] => Some((*name).to_owned()),
        [] => None,
    }
}

/// What follows `/api/v1` or `/apis/GROUP/VERSION`.
fn after_version(path: &str) -> Vec<&str> {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.first() {
        Some(&"api") => parts.get(2..).unwrap_or_default().to_vec(),
        Some(&"apis") => parts.get(3..).unwrap_or_default().to_vec(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{named, resource};

    #[test]
    fn paths_name_resources_and_objects() {
        let cases = [
            ("/api/v1/pods?watch=true", "pods", None),
            ("/api/v1/namespaces/default/pods", "pods", None),
            ("/api/v1/namespaces/default/pods/a/eviction", "pods/eviction", Some("default/a")),
            ("/apis/karpenter.sh/v1/nodeclaims/default-x/status", "nodeclaims/status", Some("default-x")),
            ("/api/v1/nodes/n", "nodes", Some("n")),
            ("/version", "/version", None),
        ];
        for (path, wanted, object) in cases {
            assert_eq!(resource(path), wanted);
            assert_eq!(named(path).as_deref(), object, "{path}");
        }
    }
}
