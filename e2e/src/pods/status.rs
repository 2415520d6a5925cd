//! The status of a pod as its kubelet reports it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

/// How a container's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) exit_code: i32,
    /// The signal that ended it, if one did.
    pub(super) signal: Option<i32>,
    pub(super) message: String,
    pub(super) started_at: Timestamp,
    pub(super) finished_at: Timestamp,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp },
    Ended(Ended),
}

/// What is known of the container that runs.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) state: State,
    /// How the process before this one ended.
    pub(super) last: Option<Ended>,
    pub(super) restarts: i32,
    pub(super) ready: bool,
    /// When that became so.
    pub(super) ready_since: Timestamp,
    /// When the kubelet first saw the pod.
    pub(super) started_at: Timestamp,
}

/// Whether nothing of a pod will run again.
pub(super) fn has_ended(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// The patch of the pod's status.
pub(super) fn patch(pod: &Pod, name: &str, report: &Report, is_restarted: bool) -> Value {
    let statuses: Vec<Value> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| container_status(container, name, report))
        .collect();
    let phase = match &report.state {
        State::Ended(ended) if !is_restarted => match ended.exit_code {
            0 => "Succeeded",
            _ => "Failed",
        },
        State::Waiting { .. } if report.restarts == 0 && report.last.is_none() => "Pending",
        _ => "Running",
    };
    let ready = |kind: &str| {
        let mut condition = condition(kind, report.ready, report.ready_since);
        if !report.ready {
            condition["reason"] = json!("ContainersNotReady");
            condition["message"] = json!(format!("containers with unready status: [{name}]"));
        }
        condition
    };
    json!({"status": {
        "phase": phase,
        "startTime": time(report.started_at),
        "conditions": [condition("Initialized", true, report.started_at), ready("Ready"), ready("ContainersReady")],
        "containerStatuses": statuses,
    }})
}

fn condition(kind: &str, holds: bool, since: Timestamp) -> Value {
    let status = if holds { "True" } else { "False" };
    json!({"type": kind, "status": status, "lastTransitionTime": time(since), "reason": null, "message": null})
}

/// Containers beside the one that runs are not played: they do what it does.
fn container_status(container: &Container, name: &str, report: &Report) -> Value {
    let own = container.name == name;
    let (mut waiting, mut running, mut terminated) = (Value::Null, Value::Null, Value::Null);
    match &report.state {
        State::Waiting { reason, message } => waiting = json!({"reason": reason, "message": message}),
        State::Running { since } => running = json!({"startedAt": time(*since)}),
        State::Ended(how) => terminated = ended(how),
    }
    let is_running = !running.is_null();
    json!({
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": is_running && (report.ready || !own),
        "started": is_running,
        "restartCount": if own { report.restarts } else { 0 },
        "state": {"waiting": waiting, "running": running, "terminated": terminated},
        "lastState": {"terminated": report.last.as_ref().filter(|_| own).map(ended)},
    })
}

fn ended(ended: &Ended) -> Value {
    json!({
        "exitCode": ended.exit_code,
        "signal": ended.signal,
        "reason": if ended.exit_code == 0 { "Completed" } else { "Error" },
        "message": ended.message,
        "startedAt": time(ended.started_at),
        "finishedAt": time(ended.finished_at),
    })
}

/// Kubernetes' times have whole seconds.
pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        let spec = json!({"spec": {"containers": [{"name": "controller", "image": "i"}]}});
        serde_json::from_value(spec).unwrap()
    }

    fn crashed() -> Ended {
        let at = Timestamp::UNIX_EPOCH;
        Ended { exit_code: 1, signal: None, message: "error: no".into(), started_at: at, finished_at: at }
    }

    fn report(state: State, last: Option<Ended>, restarts: i32) -> Report {
        let at = Timestamp::UNIX_EPOCH;
        Report { state, last, restarts, ready: false, ready_since: at, started_at: at }
    }

    #[test]
    fn a_crashed_container_that_waits_shows_why_it_crashed() {
        let state = State::Waiting { reason: "CrashLoopBackOff", message: "back-off 20s".into() };
        let status = patch(&pod(), "controller", &report(state, Some(crashed()), 2), true);
        let container = &status["status"]["containerStatuses"][0];
        assert_eq!(status["status"]["phase"], "Running");
        assert_eq!(container["restartCount"], 2);
        assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(container["lastState"]["terminated"]["exitCode"], 1);
        assert_eq!(container["lastState"]["terminated"]["message"], "error: no");
        let conditions = status["status"]["conditions"].as_array().unwrap();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ContainersNotReady")));
    }

    #[test]
    fn a_new_pod_is_pending_and_one_that_is_not_restarted_ends() {
        let creating = State::Waiting { reason: "ContainerCreating", message: String::new() };
        let phase = |state, restarted| {
            patch(&pod(), "controller", &report(state, None, 0), restarted)["status"]["phase"].clone()
        };
        assert_eq!(phase(creating, true), "Pending");
        assert_eq!(phase(State::Ended(crashed()), true), "Running");
        assert_eq!(phase(State::Ended(crashed()), false), "Failed");
        assert_eq!(phase(State::Ended(Ended { exit_code: 0, ..crashed() }), false), "Succeeded");
    }
}
