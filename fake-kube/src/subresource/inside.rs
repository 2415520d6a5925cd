//! What reaches into a pod. Nothing runs inside of them here: logs tell what is known of the container's state, and what
//! needs a process is refused.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    kinds::Kind,
    resources,
    state::Server,
    status::{FieldError, Status},
};

/// Why a subresource that needs a process inside a pod, or a port of one, cannot be had.
pub(crate) fn refuse(kind: &Kind, name: &str, subresource: &str) -> Status {
    let message = format!(
        "{} {name:?}: {subresource} is not possible: this is a simulated cluster, and nothing runs inside its pods",
        kind.qualified_resource()
    );
    Status::new(405, "MethodNotAllowed", message)
}

/// The options of a request for logs.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogRequest {
    pub(crate) container: String,
    pub(crate) follow: bool,
    pub(crate) previous: bool,
    timestamps: bool,
    tail_lines: Option<usize>,
    limit_bytes: Option<usize>,
    since: Option<Since>,
}

#[derive(Clone, Copy, Debug)]
enum Since {
    Ago(Duration),
    Instant(Timestamp),
}

impl LogRequest {
    /// Reads the query of a request.
    pub(crate) fn read(pod: &str, query: &std::collections::BTreeMap<String, String>) -> Result<Self, Status> {
        let text = |key: &str| query.get(key).map(String::as_str).unwrap_or_default();
        let flag = |key: &str| matches!(text(key), "true" | "1");
        let mut errors = Vec::new();
        let mut number = |key: &str, least: i64| -> Result<Option<u64>, Status> {
            if text(key).is_empty() {
                return Ok(None);
            }
            let given: i64 = text(key).parse().map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing {:?}: invalid syntax", text(key)))
            })?;
            if given < least {
                let rule = format!("must be greater than {}{}", if least == 0 { "or equal to " } else { "" }, 0);
                errors.push(FieldError::invalid(key, &given.into(), rule));
            }
            Ok(u64::try_from(given).ok())
        };
        let (tail, limit, ago) = (number("tailLines", 0)?, number("limitBytes", 1)?, number("sinceSeconds", 1)?);
        let since = match (ago, text("sinceTime")) {
            (Some(seconds), _) => Some(Since::Ago(Duration::from_secs(seconds))),
            (None, "") => None,
            (None, instant) => Some(Since::Instant(instant.parse().map_err(|_| {
                Status::bad_request(format!("sinceTime: {instant:?} is no instant such as 2026-01-01T00:00:00Z"))
            })?)),
        };
        if !errors.is_empty() {
            let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
            let message = format!("PodLogOptions \"{pod}\" is invalid: {}", texts.join(", "));
            return Err(Status::new(422, "Invalid", message));
        }
        Ok(Self {
            container: text("container").to_owned(),
            follow: flag("follow"),
            previous: flag("previous"),
            timestamps: flag("timestamps"),
            tail_lines: tail.and_then(|lines| usize::try_from(lines).ok()),
            limit_bytes: limit.and_then(|bytes| usize::try_from(bytes).ok()),
            since,
        })
    }

    /// The lines as text, cut as asked.
    fn shown(&self, lines: Vec<Line>, now: Timestamp) -> String {
        let since = self.since.map(|since| match since {
            Since::Ago(duration) => now.checked_sub(duration).unwrap_or(Timestamp::MIN),
            Since::Instant(instant) => instant,
        });
        let mut lines: Vec<Line> =
            lines.into_iter().filter(|line| since.is_none_or(|since| line.at >= since)).collect();
        if let Some(count) = self.tail_lines {
            lines.drain(..lines.len().saturating_sub(count));
        }
        let mut text = String::new();
        for Line { at, text: line } in lines {
            if self.timestamps {
                text.push_str(&at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ ").to_string());
            }
            text.push_str(&line);
            text.push('\n');
        }
        if let Some(limit) = self.limit_bytes {
            let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
        }
        text
    }
}

struct Line {
    at: Timestamp,
    text: String,
}

fn names<'a>(pod: &'a Value, list: &str) -> Vec<&'a str> {
    pod["spec"][list].as_array().into_iter().flatten().filter_map(|container| container["name"].as_str()).collect()
}

/// The container that is meant, in the words of the genuine server where it is not clear.
fn chosen(pod: &Value, wanted: &str) -> Result<String, Status> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let (containers, init) = (names(pod, "containers"), names(pod, "initContainers"));
    if wanted.is_empty() {
        return match containers.as_slice() {
            [one] => Ok((*one).to_owned()),
            _ => {
                let mut message = format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    containers.join(" ")
                );
                if !init.is_empty() {
                    message.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
                }
                Err(Status::bad_request(message))
            }
        };
    }
    if [containers, init, names(pod, "ephemeralContainers")].concat().contains(&wanted) {
        return Ok(wanted.to_owned());
    }
    Err(Status::bad_request(format!("container {wanted} is not valid for pod {name}")))
}

/// What a container's state allows to say.
enum Log {
    /// It runs; more may come.
    Running(Vec<Line>),
    Ended(Vec<Line>),
}

/// The log of a container; an error where it has not begun.
fn log(pod: &Value, container: &str, previous: bool) -> Result<Log, Status> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&pod["metadata"]["name"]);
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let status = lists
        .iter()
        .flat_map(|list| pod["status"][*list].as_array().into_iter().flatten())
        .find(|status| status["name"] == container);
    let instant = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let image = ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten())
        .find(|found| found["name"] == container)
        .map_or_else(String::new, |found| text(&found["image"]));
    let begin = |started: Timestamp| {
        let place = format!("{}/{name} on {}", text(&pod["metadata"]["namespace"]), text(&pod["spec"]["nodeName"]));
        vec![
            Line {
                at: started,
                text: format!("container {container} of pod {place}: image {image}, started at {started}"),
            },
            Line {
                at: started,
                text: "nothing runs inside: this is a simulated cluster, so there is no output".into(),
            },
        ]
    };
    let end = |terminated: &Value| {
        let started = instant(&terminated["startedAt"]).or(instant(&pod["status"]["startTime"])).unwrap_or_default();
        let finished = instant(&terminated["finishedAt"]).unwrap_or(started);
        let mut lines = begin(started);
        let reason = terminated["reason"].as_str().unwrap_or("no reason given");
        let code = terminated["exitCode"].as_i64().unwrap_or(0);
        lines.push(Line { at: finished, text: format!("ended at {finished} with exit code {code} ({reason})") });
        lines
    };
    if previous {
        return match status.map(|status| &status["lastState"]["terminated"]) {
            Some(terminated @ Value::Object(_)) => Ok(Log::Ended(end(terminated))),
            _ => Err(Status::bad_request(format!(
                "previous terminated container {container:?} in pod {name:?} not found"
            ))),
        };
    }
    let waiting = |reason: &str| {
        Err(Status::bad_request(format!("container {container:?} in pod {name:?} is waiting to start: {reason}")))
    };
    match status.map(|status| &status["state"]) {
        Some(state) if state["terminated"].is_object() => Ok(Log::Ended(end(&state["terminated"]))),
        Some(state) if state["running"].is_object() => {
            Ok(Log::Running(begin(instant(&state["running"]["startedAt"]).unwrap_or_default())))
        }
        Some(state) => waiting(state["waiting"]["reason"].as_str().unwrap_or("ContainerCreating")),
        // A kubelet that tells a pod's phase alone.
        None => match pod["status"]["phase"].as_str() {
            Some("Running") => Ok(Log::Running(begin(instant(&pod["status"]["startTime"]).unwrap_or_default()))),
            Some("Succeeded" | "Failed") => {
                Ok(Log::Ended(begin(instant(&pod["status"]["startTime"]).unwrap_or_default())))
            }
            _ => waiting("ContainerCreating"),
        },
    }
}

/// The text of a log, and whether there is more to come.
pub(crate) fn read(pod: &Value, request: &LogRequest, now: Timestamp) -> Result<(String, bool), Status> {
    let container = chosen(pod, &request.container)?;
    // Without a node there is nobody to ask.
    if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        return Ok((String::new(), false));
    }
    Ok(match log(pod, &container, request.previous)? {
        Log::Running(lines) => (request.shown(lines, now), true),
        Log::Ended(lines) => (request.shown(lines, now), false),
    })
}

/// A log that is followed: what there is, then what the container's end adds. It ends with the container or the pod.
pub(crate) fn follow(
    server: &Arc<Server>,
    kind: &Kind,
    pod: &Value,
    request: LogRequest,
    first: String,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + use<> {
    let changes = server.enter().store.table(kind.table).changes.subscribe();
    let follower = Follower {
        server: Arc::clone(server),
        namespace: pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
        name: pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        uid: pod["metadata"]["uid"].clone(),
        request,
        changes,
        pending: VecDeque::from([first]),
        ended: false,
    };
    futures::stream::unfold(follower, Follower::next)
}

struct Follower {
    server: Arc<Server>,
    namespace: String,
    name: String,
    uid: Value,
    request: LogRequest,
    changes: tokio::sync::watch::Receiver<u64>,
    pending: VecDeque<String>,
    ended: bool,
}

impl Follower {
    async fn next(mut self) -> Option<(Result<Frame<Bytes>, Infallible>, Self)> {
        loop {
            if let Some(text) = self.pending.pop_front() {
                return Some((Ok(Frame::data(Bytes::from(text))), self));
            }
            if self.ended {
                return None;
            }
            self.changes.borrow_and_update();
            self.look();
            if self.pending.is_empty() && !self.ended && self.changes.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Reads the pod again; what its container's end adds is the last line.
    fn look(&mut self) {
        let state = self.server.enter();
        let pod = state
            .builtin(&resources::PODS)
            .and_then(|kind| state.get(&kind, &self.namespace, &self.name).cloned())
            .ok()
            .filter(|pod| pod.value["metadata"]["uid"] == self.uid);
        let Some(pod) = pod else {
            self.ended = true;
            return;
        };
        let last_line = LogRequest { tail_lines: Some(1), since: None, ..self.request.clone() };
        match read(&pod.value, &last_line, state.now) {
            Ok((_, true)) => {}
            Ok((text, false)) => {
                self.ended = true;
                self.pending.push_back(text);
            }
            // The container is about to start again.
            Err(_) => self.ended = true,
        }
    }
}
