//! Two things that make a server look like a cluster: nodes that register, and a kubelet that is always content.
//!
//! Pods that are bound run at once; those that need not run for ever end well after two seconds; deleted ones end at
//! once. Nothing runs inside of any of them.

use std::{collections::BTreeMap, time::Duration};

use fake_kube::{ApiClient, DeleteOptions, WatchEvent, resources};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

/// How long a pod that need not run for ever takes.
const WORK: Duration = Duration::from_secs(2);

fn now(client: &ApiClient) -> String {
    client.kube().clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A node registers and reports ready.
pub(crate) fn join(client: &ApiClient, number: usize) -> Result<(), fake_kube::Status> {
    let (name, now) = (format!("node-{number}"), now(client));
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let amounts = json!({ "cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "80Gi" });
    let node = json!({
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": "m5.xlarge", "topology.kubernetes.io/region": "us-west-2",
            "topology.kubernetes.io/zone": "us-west-2a", "karpenter.sh/capacity-type": "on-demand",
        } },
        "spec": { "providerID": format!("aws:///us-west-2a/i-{number:017x}") },
    });
    client.create(&resources::NODES, None, node)?;
    let status = json!({ "status": {
        "capacity": amounts, "allocatable": amounts,
        "addresses": [
            { "type": "InternalIP", "address": format!("10.0.0.{number}") }, { "type": "Hostname", "address": name },
        ],
        "nodeInfo": {
            "kubeletVersion": "v1.36.3", "kubeProxyVersion": "", "osImage": "Amazon Linux 2023", "architecture": "amd64",
            "kernelVersion": "6.12.0", "containerRuntimeVersion": "containerd://2.1.0", "operatingSystem": "linux",
            "bootID": "", "machineID": "", "systemUUID": "",
        },
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
    } });
    client.patch_merge(&resources::NODES, None, &name, status, Some("status"))?;
    let lease = json!({
        "metadata": { "name": name },
        "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_now(client) },
    });
    client.create(&resources::LEASES, Some("kube-node-lease"), lease).map(drop)
}

fn micro_now(client: &ApiClient) -> String {
    client.kube().clock().now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Renews the Lease of every node that has one.
fn renew(client: &ApiClient) {
    for lease in client.list(&resources::LEASES, Some("kube-node-lease"), &Default::default()) {
        let name = lease["metadata"]["name"].as_str().unwrap_or_default();
        let patch = json!({ "spec": { "renewTime": micro_now(client) } });
        // A node's Lease may be deleted by hand: then the node is on its own.
        let _ = client.patch_merge(&resources::LEASES, Some("kube-node-lease"), name, patch, None);
    }
}

pub(crate) async fn run(client: ApiClient) {
    let mut pods = client.watch(&resources::PODS);
    let mut ending: BTreeMap<(String, String), Instant> = BTreeMap::new();
    let mut heartbeat = tokio::time::interval(Duration::from_secs(10));
    loop {
        let next = ending.values().min().copied();
        tokio::select! {
            event = pods.next() => match event {
                Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => attend(&client, &pod, &mut ending),
                Some(WatchEvent::Deleted(_)) => {}
                None => return,
            },
            _ = heartbeat.tick() => renew(&client),
            () = until(next) => {
                let due = ending.extract_if(.., |_, at| *at <= Instant::now());
                for ((namespace, name), _) in due.collect::<Vec<_>>() {
                    if let Ok(pod) = client.get(&resources::PODS, Some(&namespace), &name) {
                        report(&client, &pod, "Succeeded");
                    }
                }
            }
        }
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => sleep(Duration::MAX).await,
    }
}

fn attend(client: &ApiClient, pod: &Value, ending: &mut BTreeMap<(String, String), Instant>) {
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    if text("/spec/nodeName").is_empty() {
        return;
    }
    if !text("/metadata/deletionTimestamp").is_empty() {
        // It may be gone already, which is just as well.
        let _ = client.delete(&resources::PODS, Some(namespace), name, DeleteOptions::now());
    } else if text("/status/phase") == "Pending" {
        report(client, pod, "Running");
        if text("/spec/restartPolicy") != "Always" {
            ending.insert((namespace.to_owned(), name.to_owned()), Instant::now() + WORK);
        }
    }
}

/// Writes the status of a pod whose containers all run, or have all ended well.
fn report(client: &ApiClient, pod: &Value, phase: &str) {
    let now = now(client);
    let running = phase == "Running";
    let started = pod["status"]["startTime"].as_str().unwrap_or(&now);
    let statuses = |list: &str, ended: bool| -> Vec<Value> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers
            .map(|container| {
                let state = if ended {
                    json!({ "terminated": {
                        "exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": now,
                        "containerID": "fake://0",
                    } })
                } else {
                    json!({ "running": { "startedAt": now } })
                };
                json!({
                    "name": container["name"], "image": container["image"], "imageID": container["image"],
                    "containerID": "fake://0", "ready": !ended || list == "initContainers", "started": !ended,
                    "restartCount": 0, "lastState": {}, "state": state,
                })
            })
            .collect()
    };
    let condition = |kind: &str, holds: bool| {
        let status = if holds { "True" } else { "False" };
        let mut condition = json!({ "type": kind, "status": status, "lastTransitionTime": now });
        if !holds {
            condition["reason"] = json!("PodCompleted");
        }
        condition
    };
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] == "PodScheduled");
    conditions.extend([
        condition("Initialized", true),
        condition("Ready", running),
        condition("ContainersReady", running),
    ]);
    let patch = json!({ "status": {
        "phase": phase, "conditions": conditions, "startTime": started, "podIP": "10.1.0.1",
        "podIPs": [{ "ip": "10.1.0.1" }], "hostIP": "10.0.0.1", "hostIPs": [{ "ip": "10.0.0.1" }],
        "containerStatuses": statuses("containers", !running), "initContainerStatuses": statuses("initContainers", true),
    } });
    let (namespace, name) = (pod["metadata"]["namespace"].as_str(), pod["metadata"]["name"].as_str());
    // A pod that has gone meanwhile needs no status.
    let _ = client.patch_merge(&resources::PODS, namespace, name.unwrap_or_default(), patch, Some("status"));
}
