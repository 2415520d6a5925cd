//! What happened in a scenario: the journal of both wires, the controller's log, and the story told from them.
//!
//! The journal is the whole truth (every request to the API server and to AWS, in order, unmasked) and is reduced to a
//! hash and counts as it grows, so that two runs can be compared; its lines are kept only where a file is asked for. The
//! timeline is the readable part, printed when a scenario fails.

use crate::chronicle::Chronicler;
use controller_clock::Clock;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard};

/// How many lines of the timeline are kept. A failing scenario is explained by what came last; a thousand lines are some
/// minutes of a busy cluster and a page or ten of print.
const TIMELINE_LINES: usize = 1_000;

/// How many log lines are kept for steps that look for one. A scenario's controller writes some hundreds; the bound keeps
/// a controller that floods its log from filling memory.
const LOG_LINES: usize = 50_000;

/// Which wire a request went over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The Kubernetes API.
    Kube,
    /// An AWS service.
    Aws,
}

/// One request with its answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// When it was answered.
    pub at: Timestamp,
    /// The wire.
    pub wire: Wire,
    /// The client's user agent.
    pub caller: String,
    /// What was asked for in short, such as `ec2:CreateFleet` or `patch nodeclaims/status`; what calls are counted by.
    pub name: String,
    /// The whole request.
    pub request: Value,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The whole answer.
    pub response: Value,
}

impl Call {
    /// The parts of a Kubernetes request's path, without its query.
    fn path_parts(&self) -> Vec<&str> {
        let path = self.request.get("path").and_then(Value::as_str).unwrap_or_default();
        path.split('?').next().unwrap_or_default().split('/').filter(|part| !part.is_empty()).collect()
    }

    /// The pod, with its namespace, whose eviction was asked for.
    pub(crate) fn evicted_pod(&self) -> Option<String> {
        if self.name != "create pods/eviction" {
            return None;
        }
        match self.path_parts().as_slice() {
            [.., "namespaces", namespace, "pods", pod, "eviction"] => Some(format!("{namespace}/{pod}")),
            _ => None,
        }
    }
}

/// A pod that a client asked to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRemoval {
    /// When.
    pub at: Timestamp,
    /// The client's user agent.
    pub caller: String,
    /// Namespace and name.
    pub pod: String,
    /// By the eviction API, which honours budgets; otherwise by a plain delete.
    pub eviction: bool,
}

/// One line of the controller's log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogLine {
    /// When.
    pub at: Timestamp,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub level: String,
    /// The fixed sentence.
    pub message: String,
    /// Its fields.
    pub fields: BTreeMap<String, String>,
}

/// The part of a journal that can be compared: equal runs have equal summaries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalSummary {
    /// SHA-256 over every line, in hexadecimal.
    pub sha256: String,
    /// How many requests there were.
    pub entries: u64,
    /// How many of each kind.
    pub calls: BTreeMap<String, u64>,
}

/// Collects what happens. Cheap to clone; all clones write to the same record.
#[derive(Clone, Default)]
pub struct Recorder {
    record: Arc<Mutex<Record>>,
    chronicler: Chronicler,
}

/// Whoever wants to hear of the timeline's lines at once: instant, source, text.
pub type Listener = Box<dyn Fn(Timestamp, &str, &str) + Send>;

#[derive(Default)]
struct Record {
    clock: Option<Clock>,
    listener: Option<Listener>,
    hash: Sha256,
    entries: u64,
    calls: BTreeMap<String, u64>,
    file: Option<std::io::BufWriter<std::fs::File>>,
    logs: VecDeque<LogLine>,
    timeline: VecDeque<String>,
    removals: Vec<PodRemoval>,
    taints: BTreeSet<(String, String)>,
    /// Who wrote objects, by resource and name, with namespaces where they have one.
    writers: BTreeMap<String, BTreeSet<String>>,
    terminations: Vec<String>,
    /// Who wrote an identity into a lease, by the identity.
    holders: BTreeMap<String, String>,
    /// Who wrote anything to the API server.
    callers: BTreeSet<String>,
}

impl Recorder {
    /// Keeps every line of the journal in a file as well.
    pub fn with_file(file: std::fs::File) -> Self {
        let record = Record { file: Some(std::io::BufWriter::new(file)), ..Record::default() };
        Self { record: Arc::new(Mutex::new(record)), chronicler: Chronicler::default() }
    }

    /// Tells every line of the timeline to `listener` as well.
    pub fn with_listener(listener: Listener) -> Self {
        let record = Record { listener: Some(listener), ..Record::default() };
        Self { record: Arc::new(Mutex::new(record)), chronicler: Chronicler::default() }
    }

    /// What happened as data. Requests are passed on to it; everything else is told by whoever sees it.
    pub fn chronicler(&self) -> &Chronicler {
        &self.chronicler
    }

    /// Whose instants log lines, told lines and the chronicle carry. The scenario begins now.
    pub fn set_clock(&self, clock: Clock) {
        self.chronicler.begin(clock.clone());
        self.record().clock = Some(clock);
    }

    /// Records a request.
    pub fn call(&self, call: &Call) {
        self.chronicler.call(call);
        let line = serde_json::json!({
            "at": call.at,
            "wire": match call.wire { Wire::Kube => "kube", Wire::Aws => "aws" },
            "caller": call.caller,
            "name": call.name,
            "request": call.request,
            "status": call.status,
            "response": call.response,
        })
        .to_string();
        let mut record = self.record();
        record.entries += 1;
        record.hash.update(line.as_bytes());
        record.hash.update(b"\n");
        *record.calls.entry(call.name.clone()).or_default() += 1;
        record.notice(call);
        if let Some(file) = &mut record.file {
            // A journal that cannot be written must not change the run; the reader sees a short file.
            let _ = writeln!(file, "{line}");
        }
    }

    /// Adds a line to the timeline: who did or saw what.
    pub fn tell(&self, source: &str, text: impl std::fmt::Display) {
        let mut record = self.record();
        let at = record.now();
        record.tell(at, source, &text.to_string());
    }

    /// Records a line of the controller's log, and tells it from level INFO up.
    pub fn log(&self, level: &str, message: String, fields: BTreeMap<String, String>) {
        let mut record = self.record();
        let at = record.now();
        if !matches!(level, "DEBUG" | "TRACE") {
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}={value}")).collect();
            record.tell(at, "log", &format!("{level} {message} {}", fields.join(" ")));
        }
        if record.logs.len() == LOG_LINES {
            record.logs.pop_front();
        }
        record.logs.push_back(LogLine { at, level: level.to_owned(), message, fields });
    }

    /// The controller's log so far.
    pub fn logs(&self) -> Vec<LogLine> {
        self.record().logs.iter().cloned().collect()
    }

    /// Every pod that a client asked successfully to be removed, in order.
    pub fn pod_removals(&self) -> Vec<PodRemoval> {
        self.record().removals.clone()
    }

    /// Every instance that a client asked EC2 successfully to terminate, in order.
    pub fn terminations(&self) -> Vec<String> {
        self.record().terminations.clone()
    }

    /// Whether any request put a taint, written as `key:Effect`, on a node.
    pub fn saw_taint(&self, node: &str, taint: &str) -> bool {
        self.record().taints.contains(&(node.to_owned(), taint.to_owned()))
    }

    /// The clients that created, changed or deleted an object, such as `nodes/a` or `deployments/default/web`, its
    /// subresources included.
    pub fn writers(&self, object: &str) -> BTreeSet<String> {
        self.record().writers.get(object).cloned().unwrap_or_default()
    }

    /// Whether a client whose name begins like this has written anything to the API server.
    pub fn has_written(&self, caller: &str) -> bool {
        self.record().callers.range(caller.to_owned()..).next().is_some_and(|first| first.starts_with(caller))
    }

    /// The replica, by its name as a caller, that holds or held the lease under an identity.
    pub fn holder(&self, identity: &str) -> Option<String> {
        self.record().holders.get(identity).cloned()
    }

    /// The story so far, oldest first.
    pub fn timeline(&self) -> Vec<String> {
        self.record().timeline.iter().cloned().collect()
    }

    /// The journal so far, reduced to what can be compared. Flushes the journal's file.
    pub fn summary(&self) -> JournalSummary {
        let mut record = self.record();
        if let Some(file) = &mut record.file {
            let _ = file.flush();
        }
        let sha256 = record.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        JournalSummary { sha256, entries: record.entries, calls: record.calls.clone() }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Record {
    fn now(&self) -> Timestamp {
        self.clock.as_ref().map_or(Timestamp::UNIX_EPOCH, Clock::now)
    }

    /// Keeps what steps ask about after the fact: who removed which pod how, and which taints nodes were given.
    fn notice(&mut self, call: &Call) {
        if !(200..300).contains(&call.status) {
            return;
        }
        if call.wire == Wire::Aws {
            // An administrator may terminate anything; the rules are about the controller.
            if call.name == "ec2:TerminateInstances" && call.caller != "administrator" {
                let fields = call.request.as_object().into_iter().flatten();
                let ids = fields.filter(|(key, _)| key.starts_with("InstanceId.")).filter_map(|(_, id)| id.as_str());
                self.terminations.extend(ids.map(str::to_owned));
            }
            return;
        }
        let verb = call.name.split(' ').next().unwrap_or_default();
        if matches!(verb, "create" | "patch" | "update" | "delete") && !self.callers.contains(&call.caller) {
            self.callers.insert(call.caller.clone());
        }
        if let Some(object) = written_object(verb, call) {
            self.writers.entry(object).or_default().insert(call.caller.clone());
        }
        let removal = |pod: &str, eviction| PodRemoval {
            at: call.at,
            caller: call.caller.clone(),
            pod: pod.to_owned(),
            eviction,
        };
        match (verb, call.path_parts().as_slice()) {
            ("create", [.., "namespaces", namespace, "pods", pod, "eviction"]) => {
                self.removals.push(removal(&format!("{namespace}/{pod}"), true));
            }
            ("delete", [.., "namespaces", namespace, "pods", pod]) => {
                self.removals.push(removal(&format!("{namespace}/{pod}"), false));
            }
            ("patch" | "update", [.., "nodes", node]) => {
                // From the answer: a request may be a patch of any kind.
                let answer: Value =
                    serde_json::from_str(call.response.as_str().unwrap_or_default()).unwrap_or_default();
                let taints = answer.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
                let text = |taint: &Value, key: &str| taint[key].as_str().unwrap_or_default().to_owned();
                self.taints
                    .extend(taints.map(|t| (node.to_string(), format!("{}:{}", text(t, "key"), text(t, "effect")))));
            }
            // Only replicas in processes of their own have names that tell them apart.
            ("create" | "patch" | "update", parts)
                if parts.contains(&"leases") && call.caller.starts_with("karpenter-") =>
            {
                let answer: Value =
                    serde_json::from_str(call.response.as_str().unwrap_or_default()).unwrap_or_default();
                if let Some(identity) = answer.pointer("/spec/holderIdentity").and_then(Value::as_str) {
                    self.holders.insert(identity.to_owned(), call.caller.clone());
                }
            }
            _ => {}
        }
    }

    fn tell(&mut self, at: Timestamp, source: &str, text: &str) {
        if let Some(listener) = &self.listener {
            listener(at, source, text.trim_end());
        }
        if self.timeline.len() == TIMELINE_LINES {
            self.timeline.pop_front();
        }
        self.timeline.push_back(format!("{} {source:<10} {}", at.strftime("%H:%M:%S%.3f"), text.trim_end()));
    }
}

/// The object that a request to the API server writes: those of the kinds that steps ask about.
fn written_object(verb: &str, call: &Call) -> Option<String> {
    const ASKED_ABOUT: [&str; 4] = ["nodes", "nodeclaims", "deployments", "replicasets"];
    if !matches!(verb, "create" | "patch" | "update" | "delete") {
        return None;
    }
    let parts = call.path_parts();
    let kind_at = parts.iter().position(|part| ASKED_ABOUT.contains(part))?;
    let namespace = match parts.get(..kind_at) {
        Some([.., "namespaces", namespace]) => format!("{namespace}/"),
        _ => String::new(),
    };
    let name = match parts.get(kind_at + 1) {
        Some(name) => (*name).to_owned(),
        None => {
            let answer: Value = serde_json::from_str(call.response.as_str().unwrap_or_default()).unwrap_or_default();
            answer.pointer("/metadata/name")?.as_str()?.to_owned()
        }
    };
    Some(format!("{}/{namespace}{name}", parts[kind_at]))
}

/// A tracing layer that sends the log of whatever runs on this thread to a recorder.
pub struct LogLayer(pub Recorder);

impl<S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>> tracing_subscriber::Layer<S>
    for LogLayer
{
    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        id: &tracing::Id,
        context: tracing_subscriber::layer::Context<'_, S>,
    ) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: tracing_subscriber::layer::Context<'_, S>) {
        let mut fields = Fields::default();
        if let Some(scope) = context.event_scope(event) {
            for span in scope.from_root() {
                if let Some(known) = span.extensions().get::<Fields>() {
                    fields.0.extend(known.0.clone());
                }
            }
        }
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        self.0.log(event.metadata().level().as_str(), message, fields.0);
    }
}

#[derive(Clone, Default)]
struct Fields(BTreeMap<String, String>);

impl tracing::field::Visit for Fields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    fn call(name: &str, status: u16) -> Call {
        let at = Timestamp::UNIX_EPOCH;
        Call {
            at,
            wire: Wire::Aws,
            caller: "c".into(),
            name: name.into(),
            request: Value::Null,
            status,
            response: Value::Null,
        }
    }

    #[test]
    fn equal_calls_give_equal_summaries_and_any_difference_shows() {
        let summary = |calls: &[Call]| {
            let recorder = Recorder::default();
            calls.iter().for_each(|call| recorder.call(call));
            recorder.summary()
        };
        let one = summary(&[call("ec2:A", 200), call("ec2:B", 200)]);
        assert_eq!(one, summary(&[call("ec2:A", 200), call("ec2:B", 200)]));
        assert_ne!(one.sha256, summary(&[call("ec2:B", 200), call("ec2:A", 200)]).sha256);
        assert_ne!(one.sha256, summary(&[call("ec2:A", 200), call("ec2:B", 503)]).sha256);
        assert_eq!(one.entries, 2);
        assert_eq!(one.calls["ec2:A"], 1);
    }

    #[test]
    fn a_log_line_carries_its_fields_and_those_of_its_spans() {
        let recorder = Recorder::default();
        let subscriber = tracing_subscriber::registry().with(LogLayer(recorder.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("reconcile", controller = "x");
            let _entered = span.enter();
            tracing::info!(zone = "us-west-2a", "launched nodeclaim");
        });
        let lines = recorder.logs();
        assert_eq!(lines[0].message, "launched nodeclaim");
        assert_eq!(lines[0].fields["zone"], "us-west-2a");
        assert_eq!(lines[0].fields["controller"], "x");
        assert!(recorder.timeline()[0].contains("INFO launched nodeclaim controller=x zone=us-west-2a"));
    }
}
