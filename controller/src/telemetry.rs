//! Logs: one JSON object per line, with upstream's keys (core spec §9.8).
//!
//! An object's name in a field called as its kind (`NodeClaim = %name`) becomes `{"name": …}`, as upstream writes it;
//! fields of the surrounding reconcile come along.

use crate::config::LogLevel;
use controller_clock::Clock;
use serde_json::{Map, Value, json};
use std::fmt;
use std::fmt::Display;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;

/// Fields that name an object.
const KINDS: &[&str] = &["DaemonSet", "EC2NodeClass", "Node", "NodeClaim", "NodePool", "Pod", "PodDisruptionBudget"];

/// A subscriber that writes log lines to standard output. The program installs it; an embedding program installs what it
/// likes, or nothing.
pub fn subscriber(level: LogLevel, clock: Clock) -> impl Subscriber + Send + Sync {
    // The libraries underneath speak up only when something is wrong.
    let filter = EnvFilter::new(format!("warn,controller={level},controller_aws={level},controller_core={level}"));
    let lines = tracing_subscriber::fmt::layer().event_format(Lines { clock }).fmt_fields(JsonFields);
    tracing_subscriber::registry().with(lines.with_filter(filter))
}

/// One event as one line.
struct Lines {
    clock: Clock,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let meta = event.metadata();
        let level = if *meta.level() == tracing::Level::TRACE { "DEBUG" } else { meta.level().as_str() };
        let mut line = Map::new();
        line.insert("level".into(), level.into());
        line.insert("time".into(), format!("{:.3}", self.clock.now()).into());
        line.insert("logger".into(), "controller".into());
        event.record(&mut Fields(&mut line));
        for span in ctx.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>().map(|fields| fields.fields.as_str());
            if let Some(Ok(Value::Object(fields))) = fields.map(serde_json::from_str::<Value>) {
                for (key, value) in fields {
                    line.entry(key).or_insert(value);
                }
            }
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// A span's fields, kept as a JSON object.
struct JsonFields;

impl<'writer> FormatFields<'writer> for JsonFields {
    fn format_fields<R: tracing_subscriber::field::RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut object = Map::new();
        fields.record(&mut Fields(&mut object));
        write!(writer, "{}", Value::Object(object))
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn insert(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }

    fn insert_text(&mut self, field: &Field, text: &str) {
        let value = match (KINDS.contains(&field.name()), text.split_once('/')) {
            (false, _) => text.into(),
            (true, None) => json!({ "name": text }),
            (true, Some((namespace, name))) => json!({ "namespace": namespace, "name": name }),
        };
        self.insert(field, value);
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert_text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert_text(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }
}

/// The first few names of a list, and how many follow.
pub(crate) fn first<T: Display>(names: impl IntoIterator<Item = T>, shown: usize) -> String {
    let mut names = names.into_iter();
    let mut text = names.by_ref().take(shown).map(|name| name.to_string()).collect::<Vec<_>>().join(", ");
    match names.count() {
        0 => {}
        more => text.push_str(&format!(" and {more} other(s)")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_carries_upstreams_keys_and_the_reconciles_fields() {
        let sink = Sink::default();
        let writer = sink.clone();
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
        let lines = tracing_subscriber::fmt::layer()
            .event_format(Lines { clock })
            .fmt_fields(JsonFields)
            .with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("reconcile", controller = "nodeclaim.lifecycle", name = "default-abcde");
            span.in_scope(|| {
                tracing::info!(NodeClaim = %"default-abcde", Pod = "web/a", "provider-id" = "aws:///x/i-1", "launched nodeclaim");
            });
        });
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let line: Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(
            line,
            json!({
                "level": "INFO",
                "time": "2026-01-01T00:00:00.000Z",
                "logger": "controller",
                "message": "launched nodeclaim",
                "controller": "nodeclaim.lifecycle",
                "name": "default-abcde",
                "NodeClaim": { "name": "default-abcde" },
                "Pod": { "namespace": "web", "name": "a" },
                "provider-id": "aws:///x/i-1",
            })
        );
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(first(["a", "b"], 5), "a, b");
        assert_eq!(first(["a", "b", "c"], 2), "a, b and 1 other(s)");
        assert_eq!(first(Vec::<String>::new(), 2), "");
    }
}
