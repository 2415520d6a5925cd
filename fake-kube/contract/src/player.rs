//! Plays a sequence to one server and writes down what it answers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::future::Either;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::sequence::{Events, Request, Sequence, Step, Watch};

/// Controllers, and the server's own caches, take a moment; a genuine namespace is gone after some seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Headers that tell a client something. The others are the connection's own, or tell of the server's flow control.
const HEADERS: [&str; 4] = ["content-type", "warning", "retry-after", "allow"];

/// What a controller puts into every namespace. It is left out of lists and watches, so that they show what the sequence
/// itself has made.
const CERTIFICATE: &str = "kube-root-ca.crt";

/// What one server answered.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    /// A record for each step; fewer where a step could not be carried out.
    pub records: Vec<Value>,
    /// What was not as the sequence itself expects.
    pub faults: Vec<String>,
    /// The values kept, by name.
    pub kept: BTreeMap<String, String>,
}

/// How a sequence is played.
#[derive(Clone, Debug)]
pub struct Manner {
    /// What makes the names of this run its own.
    pub unique: String,
    /// How long a watch must have been silent to be called quiet.
    pub quiet: Duration,
}

struct Player<'a> {
    client: &'a kube::Client,
    manner: &'a Manner,
    transcript: Transcript,
    watches: BTreeMap<String, Lines>,
    /// Cluster-wide objects that were made and are to be removed.
    made: Vec<String>,
}

/// Plays a sequence in a namespace of its own.
pub async fn play(client: &kube::Client, sequence: &Sequence, manner: &Manner) -> Transcript {
    let namespace = format!("contract-{}", manner.unique);
    let kept = [("unique".to_owned(), manner.unique.clone()), ("namespace".to_owned(), namespace.clone())].into();
    let transcript = Transcript { kept, ..Transcript::default() };
    let mut player = Player { client, manner, transcript, watches: BTreeMap::new(), made: Vec::new() };
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    if let Err(error) = player.send("POST", "/api/v1/namespaces", None, None, Some(&body)).await {
        player.transcript.faults.push(format!("no namespace: {error}"));
        return player.transcript;
    }
    if let Err(error) = player.furnish(&namespace).await {
        player.transcript.faults.push(format!("no furniture in the namespace: {error}"));
        return player.transcript;
    }
    for (index, step) in sequence.steps.iter().enumerate() {
        let record = match step {
            Step::Request(step) => player.request(step).await,
            Step::Watch(step) => player.watch(step).await,
            Step::Events(step) => player.events(step).await,
        };
        match record {
            Ok(record) => player.transcript.records.push(record),
            Err(error) => {
                player.transcript.faults.push(format!("step {}, {}: {error}", index + 1, step.title()));
                break;
            }
        }
    }
    player.watches.clear();
    player.clean_up(&namespace).await;
    player.transcript
}

impl Player<'_> {
    fn fault(&mut self, text: String) {
        self.transcript.faults.push(text);
    }

    fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.transcript.kept {
            text = text.replace(&format!("${{{name}}}"), value);
        }
        text
    }

    fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(list) => list.iter().map(|value| self.fill_value(value)).collect(),
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(key, value)| (self.fill(key), self.fill_value(value))).collect())
            }
            other => other.clone(),
        }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        media: Option<&str>,
        accept: Option<&str>,
        body: Option<&Value>,
    ) -> Result<http::Response<Body>, String> {
        let bytes = match body {
            None => Bytes::new(),
            Some(Value::String(text)) => Bytes::from(text.clone()),
            Some(value) => Bytes::from(value.to_string()),
        };
        let mut request = http::Request::builder().method(method).uri(path).header(USER_AGENT, "contract/1.0");
        if body.is_some() || media.is_some() {
            request = request.header(CONTENT_TYPE, media.unwrap_or("application/json"));
        }
        request = request.header(ACCEPT, accept.unwrap_or("application/json"));
        let request = request.body(Body::from(bytes)).map_err(|error| error.to_string())?;
        self.client.send(request).await.map_err(|error| chain(&error))
    }

    async fn request(&mut self, step: &Request) -> Result<Value, String> {
        let line = self.fill(&step.request);
        let (method, path) = line.split_once(' ').ok_or("a request is a method and a path")?;
        let media = step.media.as_deref().map(media_type);
        let accept = step.accept.as_deref().map(|accept| self.fill(accept));
        let body = step.body.as_ref().map(|body| self.fill_value(body));
        let until: Vec<(&String, Value)> =
            step.until.iter().map(|(pointer, value)| (pointer, self.fill_value(value))).collect();
        let deadline = Instant::now() + PATIENCE;
        let record = loop {
            let response = self.send(method, path, media.as_deref(), accept.as_deref(), body.as_ref()).await?;
            let record = record(response).await?;
            let waits = until.iter().any(|(pointer, value)| at(&record["body"], pointer) != *value);
            let again = !step.until.is_empty() && (waits || record["status"] != step.expect);
            if !again {
                break record;
            }
            if Instant::now() >= deadline {
                self.fault(format!("{line}: never became {:?}; last: {}", step.until, record["body"]));
                break record;
            }
            sleep(Duration::from_millis(50)).await;
        };
        if record["status"] != step.expect {
            self.fault(format!("{line}: expected {}, answered {}: {}", step.expect, record["status"], record["body"]));
        }
        for (pointer, wanted) in &step.see {
            let (found, wanted) = (at(&record["body"], pointer), self.fill_value(wanted));
            if found != wanted {
                self.fault(format!("{line}: expected {wanted} at {pointer}, found {found}"));
            }
        }
        for (name, pointer) in &step.keep {
            match record["body"].pointer(pointer) {
                Some(Value::String(text)) => {
                    self.transcript.kept.insert(name.clone(), text.clone());
                }
                Some(other) => {
                    self.transcript.kept.insert(name.clone(), other.to_string());
                }
                None => return Err(format!("nothing to keep at {pointer}: {}", record["body"])),
            }
        }
        if method == "POST" && record["status"] == 201 && !path.contains("/namespaces/") {
            self.made.extend(made(path, &record["body"]));
        }
        if method == "PATCH" && record["status"] == 201 && !path.contains("/namespaces/") {
            self.made.extend(path.split('?').next().map(str::to_owned));
        }
        Ok(record)
    }

    async fn watch(&mut self, step: &Watch) -> Result<Value, String> {
        let path = self.fill(&step.watch);
        let response = self.send("GET", &path, None, step.accept.as_deref(), None).await?;
        let (status, headers) = head(&response);
        if status != 200 {
            return record(response).await.map(|record| format!("the watch is refused: {record}")).and_then(Err);
        }
        self.watches.insert(step.name.clone(), Lines { body: response.into_body(), rest: Vec::new(), ended: false });
        Ok(json!({ "status": status, "headers": headers }))
    }

    async fn events(&mut self, step: &Events) -> Result<Value, String> {
        let quiet = self.manner.quiet;
        let mut lines = self.watches.remove(&step.events).ok_or("there is no watch of this name")?;
        let mut events = Vec::new();
        loop {
            let complete = events.len() >= step.expect.len();
            let wait = if complete && !step.end { quiet } else { PATIENCE };
            match timeout(wait, lines.next()).await {
                Ok(Some(event)) => {
                    let bookmark = event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"].is_null();
                    let again = bookmark && events.last().is_some_and(|last: &Value| last["type"] == "BOOKMARK");
                    if (step.bookmarks && !again || !bookmark) && !is_furniture(&event["object"]) {
                        events.push(event);
                    }
                }
                Ok(None) | Err(_) => break,
            }
        }
        let seen: Vec<String> = events.iter().map(brief).collect();
        let expected: Vec<String> = step.expect.iter().map(|text| self.fill(text)).collect();
        if seen != expected {
            self.fault(format!("events of {}: expected {expected:?}, told {seen:?}", step.events));
        }
        if step.end != lines.ended {
            let what = if lines.ended { "ended" } else { "did not end" };
            self.fault(format!("events of {}: the watch {what}", step.events));
        }
        let record = json!({ "events": events, "ended": lines.ended });
        self.watches.insert(step.events.clone(), lines);
        Ok(record)
    }

    // accepted: No tokens are issued: pods mount none, and the token controller's part of service accounts is absent.
    /// Waits for what controllers put into every namespace, and has pods mount no token: fake-kube issues none.
    async fn furnish(&self, namespace: &str) -> Result<(), String> {
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        let no_token = json!({ "automountServiceAccountToken": false });
        let deadline = Instant::now() + PATIENCE;
        for (method, path, media, body) in [
            ("PATCH", account, Some("application/merge-patch+json"), Some(&no_token)),
            ("GET", format!("/api/v1/namespaces/{namespace}/configmaps/{CERTIFICATE}"), None, None),
        ] {
            while self.send(method, &path, media, None, body).await?.status() != 200 {
                if Instant::now() > deadline {
                    return Err(format!("{path} does not appear"));
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// Leaves the server as it was, as far as others could notice.
    async fn clean_up(&self, namespace: &str) {
        let free = json!({ "metadata": { "finalizers": null } });
        for path in self.made.iter().rev() {
            let _ = self.send("PATCH", path, Some("application/merge-patch+json"), None, Some(&free)).await;
            let _ = self.send("DELETE", path, None, None, None).await;
        }
        let path = format!("/api/v1/namespaces/{namespace}");
        let _ = self.send("DELETE", &path, None, None, None).await;
    }
}

/// Type and name of an event.
fn brief(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &event["object"]["metadata"];
    let name = match metadata["name"].as_str() {
        Some(name) => name.to_owned(),
        None => text(&event["object"]["rows"][0]["object"]["metadata"]["name"]),
    };
    format!("{} {name}", text(&event["type"])).trim_end().to_owned()
}

/// Whether an object, a row of a table or a table of one row is what every namespace has.
fn is_furniture(item: &Value) -> bool {
    [&item["metadata"]["name"], &item["object"]["metadata"]["name"], &item["rows"][0]["object"]["metadata"]["name"]]
        .into_iter()
        .any(|name| name == CERTIFICATE)
}

/// The path of an object that a POST has made.
fn made(path: &str, body: &Value) -> Option<String> {
    let name = body["metadata"]["name"].as_str()?;
    Some(format!("{}/{name}", path.split('?').next()?))
}

fn media_type(given: &str) -> String {
    match given {
        "json-patch" | "merge-patch" | "strategic-merge-patch" => format!("application/{given}+json"),
        "apply-patch" => "application/apply-patch+yaml".into(),
        other => other.into(),
    }
}

/// The value at a pointer; absent is null.
fn at(value: &Value, pointer: &str) -> Value {
    value.pointer(pointer).cloned().unwrap_or_default()
}

fn head(response: &http::Response<Body>) -> (u16, Map<String, Value>) {
    let mut headers = Map::new();
    for name in HEADERS {
        let values: Vec<&str> =
            response.headers().get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        if !values.is_empty() {
            headers.insert(name.into(), json!(values.join(", ")));
        }
    }
    (response.status().as_u16(), headers)
}

async fn record(response: http::Response<Body>) -> Result<Value, String> {
    let (status, headers) = head(&response);
    let body = response.into_body().collect();
    let bytes = timeout(PATIENCE, body).await.map_err(|_| "the reply does not end")?;
    let bytes = bytes.map_err(|error| chain(&error))?.to_bytes();
    let mut body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    for list in ["items", "rows"] {
        if let Some(list) = body.get_mut(list).and_then(Value::as_array_mut) {
            list.retain(|item| !is_furniture(item));
        }
    }
    Ok(json!({ "status": status, "headers": headers, "body": body }))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The lines of a watch.
struct Lines {
    body: Body,
    rest: Vec<u8>,
    ended: bool,
}

impl Lines {
    /// Nothing is lost when this is dropped before it is ready.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap_or_else(|_| json!(String::from_utf8_lossy(&line))));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.rest.extend(frame.into_data().unwrap_or_default()),
                _ => {
                    self.ended = true;
                    return None;
                }
            }
        }
    }
}

/// Plays a sequence to two servers at once.
pub async fn play_both(
    one: &kube::Client,
    other: &kube::Client,
    sequence: &Sequence,
    manner: &Manner,
) -> (Transcript, Transcript) {
    let plays = futures::future::join(play(one, sequence, manner), play(other, sequence, manner));
    match futures::future::select(Box::pin(plays), Box::pin(sleep(Duration::from_secs(180)))).await {
        Either::Left((both, _)) => both,
        Either::Right(_) => {
            let stuck = Transcript { faults: vec!["not done after three minutes".into()], ..Transcript::default() };
            (stuck.clone(), stuck)
        }
    }
}
