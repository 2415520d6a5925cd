//! Defaults of built-in kinds, as far as clients can see them.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::kinds::Builtin;

/// Fills in what an object leaves out.
pub(crate) fn apply(builtin: Builtin, object: &mut Value) {
    match builtin {
        Builtin::Pod => {
            let host_network = object["spec"]["hostNetwork"] == true;
            if object["spec"].is_object() {
                pod_spec(&mut object["spec"]);
                set(&mut object["spec"], "enableServiceLinks", json!(true));
                if host_network {
                    host_ports(&mut object["spec"]);
                }
            }
            for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
                for status in items(&mut object["status"], list) {
                    set(status, "lastState", json!({}));
                    set(status, "state", json!({}));
                }
            }
            for condition in items(&mut object["status"], "conditions") {
                set(condition, "lastProbeTime", Value::Null);
                set(condition, "lastTransitionTime", Value::Null);
            }
        }
        Builtin::Node => {
            let status = &mut object["status"];
            if !status.is_object() {
                *status = json!({});
            }
            set(status, "daemonEndpoints", json!({ "kubeletEndpoint": { "Port": 0 } }));
            let info = child(status, "nodeInfo");
            for key in NODE_INFO {
                set(info, key, json!(""));
            }
            if status["allocatable"].is_null() && status["capacity"].is_object() {
                status["allocatable"] = status["capacity"].clone();
            }
        }
        Builtin::Deployment => {
            let spec = spec_of(object);
            set(spec, "replicas", json!(1));
            set(spec, "revisionHistoryLimit", json!(10));
            set(spec, "progressDeadlineSeconds", json!(600));
            let strategy = child(spec, "strategy");
            set(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                let rolling = child(strategy, "rollingUpdate");
                set(rolling, "maxUnavailable", json!("25%"));
                set(rolling, "maxSurge", json!("25%"));
            }
            template(spec);
        }
        Builtin::ReplicaSet => {
            let spec = spec_of(object);
            set(spec, "replicas", json!(1));
            template(spec);
        }
        Builtin::StatefulSet => {
            let spec = spec_of(object);
            set(spec, "replicas", json!(1));
            set(spec, "revisionHistoryLimit", json!(10));
            set(spec, "podManagementPolicy", json!("OrderedReady"));
            let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
            set(retention, "whenDeleted", json!("Retain"));
            set(retention, "whenScaled", json!("Retain"));
            for claim in items(spec, "volumeClaimTemplates") {
                set(claim, "apiVersion", json!("v1"));
                set(claim, "kind", json!("PersistentVolumeClaim"));
                set(child(claim, "spec"), "volumeMode", json!("Filesystem"));
                set(child(claim, "status"), "phase", json!("Pending"));
            }
            let strategy = child(spec, "updateStrategy");
            set(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                set(child(strategy, "rollingUpdate"), "partition", json!(0));
            }
            template(spec);
        }
        Builtin::DaemonSet => {
            let spec = spec_of(object);
            set(spec, "revisionHistoryLimit", json!(10));
            let strategy = child(spec, "updateStrategy");
            set(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                let rolling = child(strategy, "rollingUpdate");
                set(rolling, "maxUnavailable", json!(1));
                set(rolling, "maxSurge", json!(0));
            }
            template(spec);
        }
        Builtin::Job => {
            let spec = spec_of(object);
            if spec["completions"].is_null() && spec["parallelism"].is_null() {
                set(spec, "completions", json!(1));
            }
            set(spec, "parallelism", json!(1));
            set(spec, "completionMode", json!("NonIndexed"));
            set(spec, "suspend", json!(false));
            set(spec, "manualSelector", json!(false));
            set(spec, "podReplacementPolicy", json!("TerminatingOrFailed"));
            if spec["backoffLimitPerIndex"].is_null() {
                set(spec, "backoffLimit", json!(6));
            }
            template(spec);
        }
        Builtin::CronJob => {
            let spec = spec_of(object);
            set(spec, "concurrencyPolicy", json!("Allow"));
            set(spec, "suspend", json!(false));
            set(spec, "successfulJobsHistoryLimit", json!(3));
            set(spec, "failedJobsHistoryLimit", json!(1));
            if let Some(job) = spec.get_mut("jobTemplate").filter(|job| job.is_object()) {
                set(job, "metadata", json!({}));
                if let Some(job) = job.get_mut("spec") {
                    template(job);
                }
            }
        }
        Builtin::Service => service(spec_of(object)),
        Builtin::Secret => {
            encode_texts(object);
            set(object, "type", json!("Opaque"));
        }
        Builtin::PersistentVolume => {
            let spec = spec_of(object);
            if let Some(path) = spec.get_mut("hostPath") {
                set(path, "type", json!(""));
            }
            set(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
            set(spec, "volumeMode", json!("Filesystem"));
        }
        Builtin::PersistentVolumeClaim => set(spec_of(object), "volumeMode", json!("Filesystem")),
        Builtin::StorageClass => {
            set(object, "reclaimPolicy", json!("Delete"));
            set(object, "volumeBindingMode", json!("Immediate"));
        }
        Builtin::Event => {
            set(object, "source", json!({}));
            for key in ["firstTimestamp", "lastTimestamp", "eventTime"] {
                set(object, key, Value::Null);
            }
            for key in ["reportingComponent", "reportingInstance"] {
                set(object, key, json!(""));
            }
        }
        Builtin::EndpointSlice => {
            for endpoint in items(object, "endpoints") {
                set(endpoint, "conditions", json!({}));
            }
            for port in items(object, "ports") {
                set(port, "name", json!(""));
                set(port, "protocol", json!("TCP"));
            }
        }
        Builtin::Endpoints => {
            for subset in items(object, "subsets") {
                for port in items(subset, "ports") {
                    set(port, "protocol", json!("TCP"));
                }
            }
        }
        Builtin::PodTemplate => template(object),
        Builtin::ResourceClaim => device_requests(object, "/spec/devices/requests"),
        Builtin::ResourceClaimTemplate => device_requests(object, "/spec/spec/devices/requests"),
        Builtin::PriorityClass => set(object, "preemptionPolicy", json!("PreemptLowerPriority")),
        _ => {}
    }
}

/// What is always told of a node's system, known or not.
const NODE_INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];
/// Requests for devices ask for one, unless they say otherwise.
fn device_requests(object: &mut Value, path: &str) {
    let Some(requests) = object.pointer_mut(path).and_then(Value::as_array_mut) else { return };
    let one = |request: &mut Value| {
        set(request, "allocationMode", json!("ExactCount"));
        if request["allocationMode"] == "ExactCount" {
            set(request, "count", json!(1));
        }
    };
    for request in requests.iter_mut().filter_map(Value::as_object_mut) {
        request.get_mut("exactly").into_iter().for_each(one);
        let alternatives = request.get_mut("firstAvailable").and_then(Value::as_array_mut);
        alternatives.into_iter().flatten().for_each(one);
    }
}

fn set(object: &mut Value, key: &str, default: Value) {
    if let Some(fields) = object.as_object_mut() {
        let place = fields.entry(key).or_insert(Value::Null);
        if place.is_null() {
            *place = default;
        }
    }
}

/// The child object, created if missing.
fn child<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    set(object, key, json!({}));
    &mut object[key]
}

fn spec_of(object: &mut Value) -> &mut Value {
    child(object, "spec")
}

fn items<'a>(object: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// `stringData` is for writing alone: its texts become data, before anybody reads the object.
fn encode_texts(secret: &mut Value) {
    let texts = secret.as_object_mut().and_then(|fields| fields.remove("stringData"));
    for (key, text) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
        let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
        child(secret, "data")[key] = json!(encoded);
    }
}

fn template(spec: &mut Value) {
    if let Some(template) = spec.get_mut("template").filter(|template| template.is_object()) {
        set(template, "metadata", json!({}));
    }
    if let Some(pod) = spec.get_mut("template").and_then(|template| template.get_mut("spec")) {
        pod_spec(pod);
    }
}

fn service(spec: &mut Value) {
    set(spec, "type", json!("ClusterIP"));
    set(spec, "sessionAffinity", json!("None"));
    if spec["type"] == "ExternalName" {
        return;
    }
    set(spec, "internalTrafficPolicy", json!("Cluster"));
    set(spec, "ipFamilies", json!(["IPv4"]));
    set(spec, "ipFamilyPolicy", json!("SingleStack"));
    for port in items(spec, "ports") {
        set(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        set(port, "targetPort", number);
    }
    if matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer")) {
        set(spec, "externalTrafficPolicy", json!("Cluster"));
    }
}

fn pod_spec(spec: &mut Value) {
    set(spec, "restartPolicy", json!("Always"));
    set(spec, "terminationGracePeriodSeconds", json!(30));
    set(spec, "dnsPolicy", json!("ClusterFirst"));
    set(spec, "schedulerName", json!("default-scheduler"));
    set(spec, "securityContext", json!({}));
    if let Some(name) = spec.get("serviceAccountName").cloned() {
        set(spec, "serviceAccount", name);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items(spec, list) {
            container_defaults(container);
        }
    }
    for volume in items(spec, "volumes") {
        volume_defaults(volume);
    }
    for gated in items(spec, "topologySpreadConstraints") {
        set(gated, "maxSkew", json!(1));
    }
}

fn container_defaults(container: &mut Value) {
    set(container, "terminationMessagePath", json!("/dev/termination-log"));
    set(container, "terminationMessagePolicy", json!("File"));
    set(container, "resources", json!({}));
    if let Some(image) = container["image"].as_str() {
        let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
        let latest = !image.contains('@') && matches!(tag, None | Some("latest"));
        set(container, "imagePullPolicy", json!(if latest { "Always" } else { "IfNotPresent" }));
    }
    let limits = container["resources"]["limits"].clone();
    for (name, limit) in limits.as_object().into_iter().flatten() {
        set(child(&mut container["resources"], "requests"), name, limit.clone());
    }
    for port in items(container, "ports") {
        set(port, "protocol", json!("TCP"));
    }
    for variable in items(container, "env") {
        if let Some(reference) = variable.get_mut("valueFrom").and_then(|from| from.get_mut("fieldRef")) {
            set(reference, "apiVersion", json!("v1"));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(name).filter(|probe| probe.is_object()) else { continue };
        for (key, default) in
            [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
        {
            set(probe, key, json!(default));
        }
        http_get(probe);
    }
    for name in ["postStart", "preStop"] {
        if let Some(handler) = container.get_mut("lifecycle").and_then(|lifecycle| lifecycle.get_mut(name)) {
            http_get(handler);
        }
    }
}

fn http_get(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet") {
        set(get, "path", json!("/"));
        set(get, "scheme", json!("HTTP"));
    }
}

fn field_references(source: &mut Value) {
    for item in items(source, "items") {
        if let Some(reference) = item.get_mut("fieldRef") {
            set(reference, "apiVersion", json!("v1"));
        }
    }
}

fn volume_defaults(volume: &mut Value) {
    let sourced = volume.as_object().is_some_and(|fields| fields.len() > 1);
    if !sourced {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(found) = volume.get_mut(source) {
            set(found, "defaultMode", json!(420));
        }
    }
    if let Some(found) = volume.get_mut("downwardAPI") {
        field_references(found);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in items(projected, "sources") {
            if let Some(found) = source.get_mut("downwardAPI") {
                field_references(found);
            }
        }
    }
    if let Some(found) = volume.get_mut("hostPath") {
        set(found, "type", json!(""));
    }
}

fn host_ports(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            for port in items(container, "ports") {
                let number = port["containerPort"].clone();
                set(port, "hostPort", number);
            }
        }
    }
}
