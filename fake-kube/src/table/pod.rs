//! The row of a pod: what its containers' states add up to.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Seen, age::human_duration};
use crate::kinds::Builtin;

/// Conditions of the row, which clients use to tell finished pods.
pub(super) fn row_conditions(builtin: Builtin, seen: Seen) -> Option<Value> {
    let (reason, message) = match (builtin, seen.text("status.phase")) {
        (Builtin::Pod, "Succeeded") => ("Succeeded", "The pod has completed successfully."),
        (Builtin::Pod, "Failed") => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{ "type": "Completed", "status": "True", "reason": reason, "message": message }]))
}

/// Restarts of containers and the end of the last one.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += status["restartCount"].as_i64().unwrap_or(0);
        let ended = status["lastState"]["terminated"]["finishedAt"].as_str().and_then(|text| text.parse().ok());
        self.last = self.last.max(ended);
    }

    fn text(self, now: Timestamp) -> String {
        match (self.count, self.last) {
            (count @ 1.., Some(last)) => format!("{count} ({} ago)", human_duration(now.duration_since(last))),
            (count, _) => count.to_string(),
        }
    }
}

pub(super) fn cells(seen: Seen) -> Vec<Value> {
    let Summary { ready, total, status, restarts } = summary(seen);
    let or_none = |text: &str| if text.is_empty() { "<none>".to_owned() } else { text.to_owned() };
    let address = seen.list("status.podIPs").first().map_or("", |first| first["ip"].as_str().unwrap_or_default());
    vec![
        json!(seen.name()),
        json!(format!("{ready}/{total}")),
        json!(status),
        json!(restarts.text(seen.now)),
        json!(seen.age()),
        json!(or_none(address)),
        json!(or_none(seen.text("spec.nodeName"))),
        json!(or_none(seen.text("status.nominatedNodeName"))),
        json!(readiness_gates(seen)),
    ]
}

fn readiness_gates(seen: Seen) -> String {
    let gates = seen.list("spec.readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let holds = |gate: &&Value| condition(seen, gate["conditionType"].as_str().unwrap_or_default());
    format!("{}/{}", gates.iter().filter(holds).count(), gates.len())
}

fn condition(seen: Seen, kind: &str) -> bool {
    let first = seen.list("status.conditions").iter().find(|condition| condition["type"] == kind);
    first.is_some_and(|condition| condition["status"] == "True")
}

struct Summary {
    ready: usize,
    total: usize,
    status: String,
    restarts: Restarts,
}

fn summary(seen: Seen) -> Summary {
    let phase = seen.text("status.phase");
    let mut status = match seen.text("status.reason") {
        "" => phase.to_owned(),
        reason => reason.to_owned(),
    };
    let gated = |condition: &Value| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated";
    if seen.list("status.conditions").iter().any(gated) {
        status = "SchedulingGated".into();
    }
    // An init container that restarts always is a sidecar: it counts among the containers.
    let sidecars: BTreeSet<&str> = seen
        .list("spec.initContainers")
        .iter()
        .filter(|container| container["restartPolicy"] == "Always")
        .filter_map(|container| container["name"].as_str())
        .collect();
    let total = seen.list("spec.containers").len() + sidecars.len();
    let Beginning { ready: ready_sidecars, unfinished, restarts: of_init, sidecar_restarts } =
        beginning(seen, &sidecars);
    let mut summary = Summary { ready: ready_sidecars, total, status, restarts: of_init };
    match unfinished {
        Some(unfinished) if !condition(seen, "Initialized") => summary.status = unfinished,
        unfinished => {
            summary.status = unfinished.unwrap_or(summary.status);
            summary.restarts = sidecar_restarts;
            main_containers(seen, &mut summary);
        }
    }
    if !seen.at("metadata.deletionTimestamp").is_null() {
        if seen.text("status.reason") == "NodeLost" {
            summary.status = "Unknown".into();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            summary.status = "Terminating".into();
        }
    }
    summary
}

/// What the init containers have come to.
struct Beginning {
    ready: usize,
    /// Told instead of the containers' state while one of them is not through.
    unfinished: Option<String>,
    restarts: Restarts,
    sidecar_restarts: Restarts,
}

fn beginning(seen: Seen, sidecars: &BTreeSet<&str>) -> Beginning {
    let (mut restarts, mut sidecar_restarts) = (Restarts::default(), Restarts::default());
    let (mut ready, mut unfinished) = (0, None);
    for (index, container) in seen.list("status.initContainerStatuses").iter().enumerate() {
        let sidecar = container["name"].as_str().is_some_and(|name| sidecars.contains(name));
        restarts.add(container);
        if sidecar {
            sidecar_restarts.add(container);
        }
        let (terminated, waiting) = (&container["state"]["terminated"], &container["state"]["waiting"]);
        if terminated.is_object() && terminated["exitCode"] == 0 {
            continue;
        }
        if sidecar && container["started"] == true {
            ready += usize::from(container["ready"] == true);
            continue;
        }
        let waiting_for = waiting["reason"].as_str().unwrap_or_default();
        unfinished = Some(if terminated.is_object() {
            format!("Init:{}", ended(terminated))
        } else if !matches!(waiting_for, "" | "PodInitializing") {
            format!("Init:{waiting_for}")
        } else {
            format!("Init:{index}/{}", seen.list("spec.initContainers").len())
        });
        break;
    }
    Beginning { ready, unfinished, restarts, sidecar_restarts }
}

/// Why a container ended, in a word.
fn ended(terminated: &Value) -> String {
    let reason = terminated["reason"].as_str().unwrap_or_default();
    let signal = terminated["signal"].as_i64().unwrap_or(0);
    match (reason, signal) {
        ("", 0) => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn main_containers(seen: Seen, summary: &mut Summary) {
    let (mut running, mut failure) = (false, None);
    for container in seen.list("status.containerStatuses").iter().rev() {
        summary.restarts.add(container);
        let (terminated, waiting) = (&container["state"]["terminated"], &container["state"]["waiting"]);
        let waiting_for = waiting["reason"].as_str().unwrap_or_default();
        if !waiting_for.is_empty() {
            summary.status = waiting_for.into();
        } else if terminated.is_object() {
            summary.status = ended(terminated);
            if terminated["exitCode"] != 0 {
                failure = Some(summary.status.clone());
            }
        } else if container["ready"] == true && container["state"]["running"].is_object() {
            running = true;
            summary.ready += 1;
        }
    }
    // One container that ended does not make a pod complete while another runs.
    if summary.status == "Completed" {
        if running && condition(seen, "Ready") {
            summary.status = "Running".into();
        } else if let Some(failure) = failure {
            summary.status = failure;
        } else if running {
            summary.status = "NotReady".into();
        }
    }
}
