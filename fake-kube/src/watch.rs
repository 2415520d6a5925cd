//! Watches over HTTP.
//!
//! A watcher holds nothing but its position in the event log of a table: when woken it reads on from there. A body that
//! is dropped therefore leaves nothing behind, and a watcher that stays away too long is told 410.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    kinds::Kind,
    read::{ListRequest, Rendering, render},
    select::ListSelector,
    state::Server,
    status::Status,
    store::{Change, Event, Stored, to_bytes, watch_line},
    table,
};

/// The genuine server sends a bookmark about once a minute.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// So long before its end a watch is told how far it has come, so that its client can resume from there.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Longer than any client asks for.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Where the client names no timeout: the genuine server picks one between 30 and 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// Lines a watcher holds while its client does not take them. The event log holds the changes behind them anyway; these
/// are copies for one watcher.
const PORTION: usize = 64;

/// How far a watcher has read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reading {
    All,
    Portion,
}

struct Watcher {
    server: Arc<Server>,
    kind: Arc<Kind>,
    namespace: Option<String>,
    selector: ListSelector,
    rendering: Rendering,
    /// The version up to which everything was told.
    cursor: u64,
    cut: u64,
    changes: watch::Receiver<u64>,
    /// Objects of the beginning that are not told yet. They are shared with the store, and rendered one by one.
    initial: VecDeque<Arc<Stored>>,
    initial_end: bool,
    /// Lines that are not taken yet; never more than one portion.
    pending: VecDeque<Bytes>,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    silent_until: Option<Instant>,
    finished: bool,
    /// Whether the columns of a table were told: they stand in the first event alone.
    columns_told: bool,
}

/// What a fault does to a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Disturbance {
    #[default]
    None,
    Ends,
    Stalls(Duration),
    Expires,
}

/// Opens a watch. The stream yields lines and ends at the timeout, when cut, or after an error event.
pub(crate) fn open(
    server: &Arc<Server>,
    kind: &Arc<Kind>,
    namespace: Option<&str>,
    request: &ListRequest,
    rendering: Rendering,
    disturbance: Disturbance,
) -> Result<impl Stream<Item = Bytes> + Send + use<>, Status> {
    let asked = request.version()?;
    let now = Instant::now();
    // Zero is "not given"; and there is no instant after all time.
    let timeout = request.timeout_seconds.filter(|seconds| *seconds > 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let timeout = timeout.min(LONGEST_TIMEOUT);
    let state = server.enter();
    let table = state.store.table(kind.table);
    let mut watcher = Watcher {
        server: Arc::clone(server),
        kind: Arc::clone(kind),
        namespace: namespace.map(str::to_owned),
        selector: request.selector.clone(),
        rendering,
        cursor: asked,
        cut: table.cut,
        changes: table.changes.subscribe(),
        initial: VecDeque::new(),
        initial_end: false,
        pending: VecDeque::new(),
        bookmarks: request.bookmarks,
        next_bookmark: now + BOOKMARK_PERIOD.min(timeout.saturating_sub(LAST_BOOKMARK)),
        deadline: now + timeout,
        silent_until: None,
        finished: disturbance == Disturbance::Ends,
        columns_told: false,
    };
    let any = asked == 0;
    let initial = request.send_initial_events.unwrap_or(any);
    if disturbance == Disturbance::Expires || (!any && !initial && !table.can_resume(asked)) {
        watcher.fail(&Status::expired(asked, table.oldest()));
    } else if initial {
        watcher.cursor = state.store.version();
        watcher.initial = state.select(kind, namespace, &request.selector).cloned().collect();
        // Whoever names no version and takes bookmarks is told where the beginning ends, without having asked.
        let told = request.send_initial_events.unwrap_or(request.resource_version.is_empty());
        watcher.initial_end = told && request.bookmarks;
    } else if any {
        watcher.cursor = state.store.version();
    }
    if let Disturbance::Stalls(silence) = disturbance {
        watcher.silent_until = Some(now + silence);
    }
    drop(state);
    Ok(futures::stream::unfold(watcher, Watcher::next))
}

impl Watcher {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            if let Some(until) = self.silent_until.take() {
                sleep_until(until.min(self.deadline)).await;
            }
            if let Some(stored) = self.initial.pop_front() {
                let line = watch_line("ADDED", &self.shown(&stored));
                return Some((line, self));
            }
            if std::mem::take(&mut self.initial_end) {
                return Some((self.bookmark(self.cursor, true), self));
            }
            if let Some(line) = self.pending.pop_front() {
                return Some((line, self));
            }
            if self.finished {
                return None;
            }
            if self.deadline <= Instant::now() {
                // A watcher that is always behind ends at its time too.
                return None;
            }
            // Marked as seen before reading: a change in between wakes again.
            self.changes.borrow_and_update();
            if self.read_on() == Reading::Portion {
                continue;
            }
            if !self.pending.is_empty() || self.finished {
                continue;
            }
            let next_bookmark = self.bookmarks.then_some(self.next_bookmark);
            let wake = next_bookmark.map_or(self.deadline, |bookmark| bookmark.min(self.deadline));
            tokio::select! {
                biased;
                changed = self.changes.changed() => self.finished = changed.is_err(),
                () = sleep_until(wake) => {
                    if wake == self.deadline {
                        self.finished = true;
                    } else {
                        let last = self.deadline - LAST_BOOKMARK;
                        let next = self.next_bookmark + BOOKMARK_PERIOD;
                        self.next_bookmark = if self.next_bookmark < last { next.min(last) } else { next };
                        let version = self.server.enter().store.version();
                        // A change that has come since belongs before the bookmark.
                        if self.read_on() == Reading::All && !self.finished {
                            let line = self.bookmark(version.max(self.cursor), false);
                            self.pending.push_back(line);
                        }
                    }
                }
            }
        }
    }

    /// Turns the changes since the cursor into lines, a portion at most.
    fn read_on(&mut self) -> Reading {
        let server = Arc::clone(&self.server);
        let state = server.enter();
        let table = state.store.table(self.kind.table);
        if table.cut != self.cut {
            self.finished = true;
            return Reading::All;
        }
        if !table.can_resume(self.cursor) {
            self.fail(&Status::expired(self.cursor, table.oldest()));
            return Reading::All;
        }
        for event in table.since(self.cursor) {
            if self.pending.len() >= PORTION {
                return Reading::Portion;
            }
            if let Some(line) = self.line(event) {
                self.pending.push_back(line);
            }
            self.cursor = event.version;
        }
        Reading::All
    }

    fn sees(&self, value: &Value) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| value["metadata"]["namespace"] == namespace)
            && (self.selector.is_everything() || self.selector.matches(value))
    }

    fn shown(&mut self, stored: &Stored) -> Bytes {
        let shown = render(&self.kind, stored, self.rendering, self.server.clock.now());
        let told = std::mem::replace(&mut self.columns_told, true);
        match self.rendering {
            Rendering::Table(_) if told => table::without_columns(&shown),
            _ => shown,
        }
    }

    fn line(&mut self, event: &Event) -> Option<Bytes> {
        let now = event.change != Change::Deleted && self.sees(&event.object.value);
        let before = event.previous.as_ref().is_some_and(|previous| self.sees(&previous.value));
        let change = match (before, now) {
            (false, false) => return None,
            (false, true) => Change::Added,
            (true, true) => Change::Modified,
            (true, false) => Change::Deleted,
        };
        let whole = self.rendering == Rendering::Whole && !crate::conversion::converts(&self.kind);
        if change == event.change && whole {
            return Some(event.line());
        }
        // An object that leaves the selection is shown as it was, at the version of its leaving.
        if change == Change::Deleted
            && event.change != Change::Deleted
            && let Some(previous) = &event.previous
        {
            let mut value = (*previous.value).clone();
            value["metadata"]["resourceVersion"] = json!(event.version.to_string());
            let stored = Stored::new(value, event.version);
            return Some(watch_line(change.text(), &self.shown(&stored)));
        }
        Some(watch_line(change.text(), &self.shown(&event.object)))
    }

    fn bookmark(&self, version: u64, initial_end: bool) -> Bytes {
        let (kind, api_version) = match self.rendering {
            Rendering::Metadata => ("PartialObjectMetadata".to_owned(), "meta.k8s.io/v1".to_owned()),
            _ => (self.kind.kind.clone(), self.kind.api_version()),
        };
        let mut object = json!({
            "kind": kind, "apiVersion": api_version,
            "metadata": { "resourceVersion": version.to_string() },
        });
        if initial_end {
            object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        if let Rendering::Table(_) = self.rendering {
            object = table::bookmark(&self.kind, object["metadata"].take(), self.server.clock.now());
        }
        watch_line("BOOKMARK", &to_bytes(&object))
    }

    fn fail(&mut self, status: &Status) {
        self.pending.push_back(watch_line("ERROR", &to_bytes(&status.to_json())));
        self.finished = true;
    }
}
