//! Columns and cells of the built-in kinds, as the genuine server's printers give them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Seen, age::human_duration, pod};
use crate::kinds::{Builtin, Kind};

/// How a kind is shown: heading, type and priority of each column, and the cells of an object.
pub(super) struct Printer {
    pub(super) columns: &'static [(&'static str, &'static str, i64)],
    pub(super) cells: fn(Seen) -> Vec<Value>,
}

macro_rules! printer {
    ($cells:expr; $($name:literal $kind:ident $(+ $priority:literal)?),* $(,)?) => {
        Printer { columns: &[$(($name, stringify!($kind), 0 $(+ $priority)?)),*], cells: $cells }
    };
}

/// The printer of a kind; `None` for those the genuine server has none for, and for custom resources.
pub(super) fn printer(kind: &Kind) -> Option<Printer> {
    if kind.builtin == Builtin::Custom {
        return None;
    }
    Some(match kind.kind.as_str() {
        "Pod" => printer!(pod::cells; "Name" string, "Ready" string, "Status" string, "Restarts" string, "Age" string,
            "IP" string + 1, "Node" string + 1, "Nominated Node" string + 1, "Readiness Gates" string + 1),
        "PodTemplate" => {
            printer!(pod_template; "Name" string, "Containers" string, "Images" string, "Pod Labels" string)
        }
        "PodDisruptionBudget" => printer!(budget; "Name" string, "Min Available" string, "Max Unavailable" string,
            "Allowed Disruptions" integer, "Age" string),
        "ReplicationController" => {
            printer!(replication_controller; "Name" string, "Desired" integer, "Current" integer,
            "Ready" integer, "Age" string, "Containers" string + 1, "Images" string + 1, "Selector" string + 1)
        }
        "ReplicaSet" => printer!(replica_set; "Name" string, "Desired" integer, "Current" integer, "Ready" integer,
            "Age" string, "Containers" string + 1, "Images" string + 1, "Selector" string + 1),
        "DaemonSet" => printer!(daemon_set; "Name" string, "Desired" integer, "Current" integer, "Ready" integer,
            "Up-to-date" integer, "Available" integer, "Node Selector" string, "Age" string, "Containers" string + 1,
            "Images" string + 1, "Selector" string + 1),
        "Job" => printer!(job; "Name" string, "Status" string, "Completions" string, "Duration" string, "Age" string,
            "Containers" string + 1, "Images" string + 1, "Selector" string + 1),
        "CronJob" => printer!(cron_job; "Name" string, "Schedule" string, "Timezone" string, "Suspend" boolean,
            "Active" integer, "Last Schedule" string, "Age" string, "Containers" string + 1, "Images" string + 1,
            "Selector" string + 1),
        "Service" => printer!(service; "Name" string, "Type" string, "Cluster-IP" string, "External-IP" string,
            "Port(s)" string, "Age" string, "Selector" string + 1),
        "StatefulSet" => printer!(stateful_set; "Name" string, "Ready" string, "Age" string, "Containers" string + 1,
            "Images" string + 1),
        "Endpoints" => printer!(endpoints; "Name" string, "Endpoints" string, "Age" string),
        "EndpointSlice" => printer!(endpoint_slice; "Name" string, "AddressType" string, "Ports" string,
            "Endpoints" string, "Age" string),
        "Node" => printer!(node; "Name" string, "Status" string, "Roles" string, "Age" string, "Version" string,
            "Internal-IP" string + 1, "External-IP" string + 1, "OS-Image" string + 1, "Kernel-Version" string + 1,
            "Container-Runtime" string + 1),
        "Event" => printer!(event; "Last Seen" string, "Type" string, "Reason" string, "Object" string,
            "Subobject" string + 1, "Source" string + 1, "Message" string, "First Seen" string + 1, "Count" string + 1,
            "Name" string + 1),
        "Namespace" => printer!(namespace; "Name" string, "Status" string, "Age" string),
        "Secret" => printer!(secret; "Name" string, "Type" string, "Data" string, "Age" string),
        "ServiceAccount" | "DeviceClass" | "ResourceClaimTemplate" => {
            printer!(name_and_age; "Name" string, "Age" string)
        }
        "PersistentVolume" => printer!(persistent_volume; "Name" string, "Capacity" string, "Access Modes" string,
            "Reclaim Policy" string, "Status" string, "Claim" string, "StorageClass" string,
            "VolumeAttributesClass" string, "Reason" string, "Age" string, "VolumeMode" string + 1),
        "PersistentVolumeClaim" => printer!(persistent_volume_claim; "Name" string, "Status" string, "Volume" string,
            "Capacity" string, "Access Modes" string, "StorageClass" string, "VolumeAttributesClass" string,
            "Age" string, "VolumeMode" string + 1),
        "Deployment" => printer!(deployment; "Name" string, "Ready" string, "Up-to-date" string, "Available" string,
            "Age" string, "Containers" string + 1, "Images" string + 1, "Selector" string + 1),
        "ConfigMap" => printer!(config_map; "Name" string, "Data" string, "Age" string),
        "RoleBinding" | "ClusterRoleBinding" => printer!(role_binding; "Name" string, "Role" string, "Age" string,
            "Users" string + 1, "Groups" string + 1, "ServiceAccounts" string + 1),
        "Lease" => printer!(lease; "Name" string, "Holder" string, "Age" string),
        "StorageClass" => printer!(storage_class; "Name" string, "Provisioner" string, "ReclaimPolicy" string,
            "VolumeBindingMode" string, "AllowVolumeExpansion" string, "Age" string),
        "ControllerRevision" => printer!(controller_revision; "Name" string, "Controller" string, "Revision" string,
            "Age" string),
        "ResourceQuota" => printer!(resource_quota; "Name" string, "Request" string, "Limit" string, "Age" string),
        "PriorityClass" => printer!(priority_class; "Name" string, "Value" integer, "Global-Default" boolean,
            "Age" string, "PreemptionPolicy" string),
        "RuntimeClass" => printer!(runtime_class; "Name" string, "Handler" string, "Age" string),
        "VolumeAttachment" => printer!(volume_attachment; "Name" string, "Attacher" string, "PV" string, "Node" string,
            "Attached" boolean, "Age" string),
        "CSINode" => printer!(csi_node; "Name" string, "Drivers" integer, "Age" string),
        "CSIDriver" => printer!(csi_driver; "Name" string, "AttachRequired" boolean, "PodInfoOnMount" boolean,
            "StorageCapacity" boolean, "TokenRequests" string, "RequiresRepublish" boolean, "Modes" string,
            "Age" string),
        "CSIStorageCapacity" => printer!(csi_storage_capacity; "Name" string, "StorageClassName" string,
            "Capacity" string),
        "ResourceClaim" => printer!(resource_claim; "Name" string, "State" string, "Age" string),
        "ResourceSlice" => printer!(resource_slice; "Name" string, "Node" string, "Driver" string, "Pool" string,
            "Age" string),
        _ => return None,
    })
}

fn or<'a>(text: &'a str, absent: &'a str) -> &'a str {
    if text.is_empty() { absent } else { text }
}

/// Names and images of containers.
fn containers(seen: Seen, template: &str) -> [Value; 2] {
    let list = seen.list(&format!("{template}.spec.containers"));
    ["name", "image"].map(|field| {
        let texts: Vec<&str> = list.iter().map(|container| container[field].as_str().unwrap_or_default()).collect();
        json!(texts.join(","))
    })
}

/// Labels as `key=value`, or `<none>`.
fn labels(labels: &Value) -> String {
    let pairs: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    or(&pairs.join(","), "<none>").to_owned()
}

/// A label selector as one writes it after `-l`, by key.
fn selector(selector: &Value) -> String {
    let mut parts: Vec<(String, String)> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
        .collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let listed = expression["values"].as_array().into_iter().flatten();
        let values: BTreeSet<&str> = listed.filter_map(Value::as_str).collect();
        let values = values.into_iter().collect::<Vec<_>>().join(",");
        let text = match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".into(),
        };
        parts.push((key.to_owned(), text));
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    let texts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    or(&texts.join(","), "<none>").to_owned()
}

fn name_and_age(seen: Seen) -> Vec<Value> {
    vec![json!(seen.name()), json!(seen.age())]
}

fn pod_template(seen: Seen) -> Vec<Value> {
    let [names, images] = containers(seen, "template");
    vec![json!(seen.name()), names, images, json!(labels(seen.at("template.metadata.labels")))]
}

fn budget(seen: Seen) -> Vec<Value> {
    let amount = |path: &str| match seen.at(path) {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        number => json!(number.to_string()),
    };
    vec![
        json!(seen.name()),
        amount("spec.minAvailable"),
        amount("spec.maxUnavailable"),
        json!(seen.number("status.disruptionsAllowed")),
        json!(seen.age()),
    ]
}

fn replicas(seen: Seen, selector: String) -> Vec<Value> {
    let [names, images] = containers(seen, "spec.template");
    vec![
        json!(seen.name()),
        json!(seen.number("spec.replicas")),
        json!(seen.number("status.replicas")),
        json!(seen.number("status.readyReplicas")),
        json!(seen.age()),
        names,
        images,
        json!(selector),
    ]
}

fn replication_controller(seen: Seen) -> Vec<Value> {
    replicas(seen, labels(seen.at("spec.selector")))
}

fn replica_set(seen: Seen) -> Vec<Value> {
    replicas(seen, selector(seen.at("spec.selector")))
}

fn deployment(seen: Seen) -> Vec<Value> {
    let [names, images] = containers(seen, "spec.template");
    let selector = match selector(seen.at("spec.selector")).as_str() {
        "<none>" => String::new(),
        "<error>" => "<invalid>".into(),
        selector => selector.to_owned(),
    };
    vec![
        json!(seen.name()),
        json!(format!("{}/{}", seen.number("status.readyReplicas"), seen.number("spec.replicas"))),
        json!(seen.number("status.updatedReplicas")),
        json!(seen.number("status.availableReplicas")),
        json!(seen.age()),
        names,
        images,
        json!(selector),
    ]
}

fn daemon_set(seen: Seen) -> Vec<Value> {
    let [names, images] = containers(seen, "spec.template");
    let count = |field: &str| json!(seen.number(&format!("status.{field}")));
    vec![
        json!(seen.name()),
        count("desiredNumberScheduled"),
        count("currentNumberScheduled"),
        count("numberReady"),
        count("updatedNumberScheduled"),
        count("numberAvailable"),
        json!(labels(seen.at("spec.template.spec.nodeSelector"))),
        json!(seen.age()),
        names,
        images,
        json!(selector(seen.at("spec.selector"))),
    ]
}

fn stateful_set(seen: Seen) -> Vec<Value> {
    let [names, images] = containers(seen, "spec.template");
    let ready = format!("{}/{}", seen.number("status.readyReplicas"), seen.number("spec.replicas"));
    vec![json!(seen.name()), json!(ready), json!(seen.age()), names, images]
}

fn job(seen: Seen) -> Vec<Value> {
    let succeeded = seen.number("status.succeeded");
    let completions = match (seen.at("spec.completions").as_i64(), seen.number("spec.parallelism")) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let instant = |path: &str| seen.text(path).parse::<jiff::Timestamp>().ok();
    let duration = match (instant("status.startTime"), instant("status.completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration(end.unwrap_or(seen.now).duration_since(start)),
    };
    let holds = |kind: &str| {
        let conditions = seen.list("status.conditions");
        conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let status = match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if !seen.at("metadata.deletionTimestamp").is_null() => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let [names, images] = containers(seen, "spec.template");
    vec![
        json!(seen.name()),
        json!(status),
        json!(completions),
        json!(duration),
        json!(seen.age()),
        names,
        images,
        json!(selector(seen.at("spec.selector"))),
    ]
}

fn cron_job(seen: Seen) -> Vec<Value> {
    let last = match seen.at("status.lastScheduleTime") {
        Value::Null => "<none>".into(),
        instant => seen.since(instant),
    };
    let suspend = match seen.at("spec.suspend") {
        Value::Bool(suspend) => {
            if *suspend {
                "True"
            } else {
                "False"
            }
        }
        _ => "<unset>",
    };
    let [names, images] = containers(seen, "spec.jobTemplate.spec.template");
    vec![
        json!(seen.name()),
        json!(seen.text("spec.schedule")),
        json!(or(seen.text("spec.timeZone"), "<none>")),
        json!(suspend),
        json!(seen.list("status.active").len()),
        json!(last),
        json!(seen.age()),
        names,
        images,
        json!(selector(seen.at("spec.jobTemplate.spec.selector"))),
    ]
}

fn texts(list: &[Value]) -> Vec<&str> {
    list.iter().filter_map(Value::as_str).collect()
}

fn service(seen: Seen) -> Vec<Value> {
    let kind = seen.text("spec.type");
    let external = texts(seen.list("spec.externalIPs"));
    let external = match kind {
        "ClusterIP" | "NodePort" => or(&external.join(","), "<none>").to_owned(),
        "LoadBalancer" => {
            let ingress = seen.list("status.loadBalancer.ingress").iter();
            let balanced = ingress.filter_map(|ingress| ingress["ip"].as_str().or(ingress["hostname"].as_str()));
            let all: Vec<&str> = balanced.chain(external).collect();
            or(&all.join(","), "<pending>").to_owned()
        }
        "ExternalName" => seen.text("spec.externalName").to_owned(),
        _ => "<unknown>".into(),
    };
    let ports: Vec<String> = seen
        .list("spec.ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (&port["port"], port["protocol"].as_str().unwrap_or_default());
            match port["nodePort"].as_i64() {
                Some(node_port @ 1..) => format!("{number}:{node_port}/{protocol}"),
                _ => format!("{number}/{protocol}"),
            }
        })
        .collect();
    let address = texts(seen.list("spec.clusterIPs")).first().copied().unwrap_or("<none>");
    vec![
        json!(seen.name()),
        json!(kind),
        json!(address),
        json!(external),
        json!(or(&ports.join(","), "<none>")),
        json!(seen.age()),
        json!(labels(seen.at("spec.selector"))),
    ]
}

/// The first three, and how many more.
fn some_of(all: &[String], absent: &str) -> String {
    const SHOWN: usize = 3;
    match all {
        [] => absent.to_owned(),
        all if all.len() > SHOWN => format!("{} + {} more...", all[..SHOWN].join(","), all.len() - SHOWN),
        all => all.join(","),
    }
}

fn endpoints(seen: Seen) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in seen.list("subsets") {
        let addresses = subset["addresses"].as_array().into_iter().flatten();
        let addresses: Vec<&str> = addresses.filter_map(|address| address["ip"].as_str()).collect();
        match subset["ports"].as_array().map(Vec::as_slice).unwrap_or_default() {
            [] => all.extend(addresses.iter().map(|address| (*address).to_owned())),
            ports => {
                for port in ports {
                    all.extend(addresses.iter().map(|address| match address.contains(':') {
                        true => format!("[{address}]:{}", port["port"]),
                        false => format!("{address}:{}", port["port"]),
                    }));
                }
            }
        }
    }
    let absent = if seen.list("subsets").is_empty() { "<none>" } else { "" };
    vec![json!(seen.name()), json!(some_of(&all, absent)), json!(seen.age())]
}

fn endpoint_slice(seen: Seen) -> Vec<Value> {
    let ports: Vec<String> = seen
        .list("ports")
        .iter()
        .map(|port| match (port["port"].as_i64(), port["name"].as_str()) {
            (Some(number), _) => number.to_string(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "*".into(),
        })
        .collect();
    let listed =
        seen.list("endpoints").iter().flat_map(|endpoint| endpoint["addresses"].as_array().into_iter().flatten());
    let addresses: Vec<String> = listed.filter_map(Value::as_str).map(str::to_owned).collect();
    vec![
        json!(seen.name()),
        json!(seen.text("addressType")),
        json!(some_of(&ports, "<unset>")),
        json!(some_of(&addresses, "<unset>")),
        json!(seen.age()),
    ]
}

fn node(seen: Seen) -> Vec<Value> {
    let ready = seen.list("status.conditions").iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if seen.at("spec.unschedulable") == true {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        let first = seen.list("status.addresses").iter().find(|address| address["type"] == kind);
        json!(first.and_then(|address| address["address"].as_str()).unwrap_or("<none>"))
    };
    let info = |field: &str| or(seen.text(&format!("status.nodeInfo.{field}")), "<unknown>");
    let mut kernel = info("kernelVersion").to_owned();
    let architecture = seen.text("status.nodeInfo.architecture");
    if !architecture.is_empty() {
        kernel.push_str(&format!(" ({architecture})"));
    }
    vec![
        json!(seen.name()),
        json!(status),
        json!(roles(seen)),
        json!(seen.age()),
        json!(seen.text("status.nodeInfo.kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        json!(info("osImage")),
        json!(kernel),
        json!(info("containerRuntimeVersion")),
    ]
}

fn roles(seen: Seen) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in seen.at("metadata.labels").as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => roles.insert(role),
            None if key == "kubernetes.io/role" && !value.is_empty() => roles.insert(value),
            _ => false,
        };
    }
    let roles: Vec<&str> = roles.into_iter().collect();
    or(&roles.join(","), "<none>").to_owned()
}

fn event(seen: Seen) -> Vec<Value> {
    let first = match seen.at("firstTimestamp") {
        Value::Null => seen.since(seen.at("eventTime")),
        instant => seen.since(instant),
    };
    let (last, count) = match (seen.at("series"), seen.at("lastTimestamp")) {
        (series @ Value::Object(_), _) => (seen.since(&series["lastObservedTime"]), series["count"].as_i64()),
        (_, Value::Null) => (first.clone(), seen.at("count").as_i64()),
        (_, instant) => (seen.since(instant), seen.at("count").as_i64()),
    };
    // Single events of the newer API carry no count.
    let count = count.filter(|count| *count != 0 || seen.at("series").is_object()).unwrap_or(1);
    let kind = seen.text("involvedObject.kind").to_lowercase();
    let object = match seen.text("involvedObject.name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = or(seen.text("source.component"), seen.text("reportingComponent"));
    let instance = or(seen.text("source.host"), seen.text("reportingInstance"));
    let source = if instance.is_empty() { source.to_owned() } else { format!("{source}, {instance}") };
    vec![
        json!(last),
        json!(seen.text("type")),
        json!(seen.text("reason")),
        json!(object),
        json!(seen.text("involvedObject.fieldPath")),
        json!(source),
        json!(seen.text("message").trim()),
        json!(first),
        json!(count),
        json!(seen.name()),
    ]
}

fn namespace(seen: Seen) -> Vec<Value> {
    vec![json!(seen.name()), json!(seen.text("status.phase")), json!(seen.age())]
}

fn entries(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

fn secret(seen: Seen) -> Vec<Value> {
    vec![json!(seen.name()), json!(seen.text("type")), json!(entries(seen.at("data"))), json!(seen.age())]
}

fn config_map(seen: Seen) -> Vec<Value> {
    let count = entries(seen.at("data")) + entries(seen.at("binaryData"));
    vec![json!(seen.name()), json!(count), json!(seen.age())]
}

fn access_modes(modes: &[Value]) -> String {
    let given = texts(modes);
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let shown: Vec<&str> = known.iter().filter(|(mode, _)| given.contains(mode)).map(|(_, short)| *short).collect();
    shown.join(",")
}

fn storage_class_of<'a>(seen: Seen<'a>) -> &'a str {
    or(
        seen.at("metadata.annotations")["volume.beta.kubernetes.io/storage-class"].as_str().unwrap_or_default(),
        seen.text("spec.storageClassName"),
    )
}

/// The phase, unless the object is going.
fn phase<'a>(seen: Seen<'a>) -> &'a str {
    if seen.at("metadata.deletionTimestamp").is_null() { seen.text("status.phase") } else { "Terminating" }
}

fn persistent_volume(seen: Seen) -> Vec<Value> {
    let claim = match seen.at("spec.claimRef") {
        Value::Null => String::new(),
        _ => format!("{}/{}", seen.text("spec.claimRef.namespace"), seen.text("spec.claimRef.name")),
    };
    vec![
        json!(seen.name()),
        json!(or(seen.text("spec.capacity.storage"), "0")),
        json!(access_modes(seen.list("spec.accessModes"))),
        json!(seen.text("spec.persistentVolumeReclaimPolicy")),
        json!(phase(seen)),
        json!(claim),
        json!(storage_class_of(seen)),
        json!(or(seen.text("spec.volumeAttributesClassName"), "<unset>")),
        json!(seen.text("status.reason")),
        json!(seen.age()),
        json!(or(seen.text("spec.volumeMode"), "<unset>")),
    ]
}

fn persistent_volume_claim(seen: Seen) -> Vec<Value> {
    let volume = seen.text("spec.volumeName");
    let (capacity, modes) = match volume {
        "" => ("", String::new()),
        _ => (or(seen.text("status.capacity.storage"), "0"), access_modes(seen.list("status.accessModes"))),
    };
    vec![
        json!(seen.name()),
        json!(phase(seen)),
        json!(volume),
        json!(capacity),
        json!(modes),
        json!(storage_class_of(seen)),
        json!(or(seen.text("spec.volumeAttributesClassName"), "<unset>")),
        json!(seen.age()),
        json!(or(seen.text("spec.volumeMode"), "<unset>")),
    ]
}

fn role_binding(seen: Seen) -> Vec<Value> {
    let role = format!("{}/{}", seen.text("roleRef.kind"), seen.text("roleRef.name"));
    let subjects = |kind: &str| {
        let found = seen.list("subjects").iter().filter(|subject| subject["kind"] == kind);
        let names: Vec<String> = found
            .map(|subject| {
                let name = subject["name"].as_str().unwrap_or_default();
                match subject["namespace"].as_str().unwrap_or_default() {
                    namespace if kind == "ServiceAccount" && !namespace.is_empty() => format!("{namespace}/{name}"),
                    _ => name.to_owned(),
                }
            })
            .collect();
        json!(names.join(", "))
    };
    vec![
        json!(seen.name()),
        json!(role),
        json!(seen.age()),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn lease(seen: Seen) -> Vec<Value> {
    vec![json!(seen.name()), json!(seen.text("spec.holderIdentity")), json!(seen.age())]
}

fn storage_class(seen: Seen) -> Vec<Value> {
    let annotations = seen.at("metadata.annotations");
    let default = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
        .iter()
        .any(|key| annotations[key] == "true");
    vec![
        json!(if default { format!("{} (default)", seen.name()) } else { seen.name().to_owned() }),
        json!(seen.text("provisioner")),
        json!(or(seen.text("reclaimPolicy"), "Delete")),
        json!(or(seen.text("volumeBindingMode"), "Immediate")),
        json!(seen.at("allowVolumeExpansion") == true),
        json!(seen.age()),
    ]
}

fn controller_revision(seen: Seen) -> Vec<Value> {
    let owner = seen.list("metadata.ownerReferences").iter().find(|owner| owner["controller"] == true);
    let controller = owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let text = |key: &str| owner[key].as_str().unwrap_or_default();
            let kind = match text("apiVersion").split_once('/') {
                Some((group, _)) => format!("{}.{group}", text("kind")),
                None => text("kind").to_owned(),
            };
            format!("{}/{}", kind.to_lowercase(), text("name"))
        },
    );
    vec![json!(seen.name()), json!(controller), json!(seen.number("revision")), json!(seen.age())]
}

fn resource_quota(seen: Seen) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let used = seen.at("status.used");
    for (resource, hard) in seen.at("status.hard").as_object().into_iter().flatten() {
        let text = format!("{resource}: {}/{}", used[resource].as_str().unwrap_or("0"), hard.as_str().unwrap_or("0"));
        if resource.starts_with("limits.") { limits.push(text) } else { requests.push(text) }
    }
    vec![json!(seen.name()), json!(requests.join(", ")), json!(limits.join(", ")), json!(seen.age())]
}

fn priority_class(seen: Seen) -> Vec<Value> {
    vec![
        json!(seen.name()),
        json!(seen.number("value")),
        json!(seen.at("globalDefault") == true),
        json!(seen.age()),
        json!(seen.text("preemptionPolicy")),
    ]
}

fn runtime_class(seen: Seen) -> Vec<Value> {
    vec![json!(seen.name()), json!(seen.text("handler")), json!(seen.age())]
}

fn volume_attachment(seen: Seen) -> Vec<Value> {
    vec![
        json!(seen.name()),
        json!(seen.text("spec.attacher")),
        json!(seen.text("spec.source.persistentVolumeName")),
        json!(seen.text("spec.nodeName")),
        json!(seen.at("status.attached") == true),
        json!(seen.age()),
    ]
}

fn resource_claim(seen: Seen) -> Vec<Value> {
    let deleted = !seen.at("metadata.deletionTimestamp").is_null();
    let allocated = !seen.at("status.allocation").is_null();
    let states = [
        ("deleted", deleted),
        ("pending", !allocated && !deleted),
        ("allocated", allocated),
        ("reserved", allocated && !seen.list("status.reservedFor").is_empty()),
    ];
    let states: Vec<&str> = states.into_iter().filter_map(|(state, holds)| holds.then_some(state)).collect();
    vec![json!(seen.name()), json!(states.join(",")), json!(seen.age())]
}

fn resource_slice(seen: Seen) -> Vec<Value> {
    vec![
        json!(seen.name()),
        json!(seen.text("spec.nodeName")),
        json!(seen.text("spec.driver")),
        json!(seen.text("spec.pool.name")),
        json!(seen.age()),
    ]
}

fn csi_node(seen: Seen) -> Vec<Value> {
    vec![json!(seen.name()), json!(seen.list("spec.drivers").len()), json!(seen.age())]
}

fn csi_driver(seen: Seen) -> Vec<Value> {
    let flag = |field: &str, absent: bool| json!(seen.at(&format!("spec.{field}")).as_bool().unwrap_or(absent));
    let audiences = seen.at("spec.tokenRequests").as_array().map(|requests| {
        let audiences: Vec<&str> = requests.iter().filter_map(|request| request["audience"].as_str()).collect();
        audiences.join(",")
    });
    let modes = texts(seen.list("spec.volumeLifecycleModes")).join(",");
    vec![
        json!(seen.name()),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        json!(audiences.unwrap_or_else(|| "<unset>".into())),
        flag("requiresRepublish", false),
        json!(or(&modes, "<none>")),
        json!(seen.age()),
    ]
}

fn csi_storage_capacity(seen: Seen) -> Vec<Value> {
    vec![json!(seen.name()), json!(seen.text("storageClassName")), json!(or(seen.text("capacity"), "<unset>"))]
}
