//! Everything behind the lock: store, kinds, ids, faults; and what reads it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use controller_clock::Clock;
use jiff::Timestamp;

use crate::{
    Options, builtin,
    fault::{Faults, Subject},
    ids::Ids,
    journal::{Journal, JournalEntry, Payload},
    kinds::{Kind, Registry},
    openapi::Documents,
    resources::Resource,
    schema::cel::Evaluator,
    select::ListSelector,
    status::Status,
    store::{Store, Stored},
};

/// Who makes a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) user_agent: Arc<str>,
    /// Who it is by its token, if the token is one that was given a name.
    pub(crate) user: Option<Arc<str>>,
    pub(crate) in_process: bool,
}

impl Caller {
    pub(crate) fn in_process(user_agent: &str) -> Self {
        Self { user_agent: user_agent.into(), user: None, in_process: true }
    }

    pub(crate) fn http(user_agent: &str, user: Option<&str>) -> Self {
        Self { user_agent: user_agent.into(), user: user.map(Into::into), in_process: false }
    }

    /// The field manager a caller has without naming one: its user agent up to the first slash.
    pub(crate) fn manager(&self) -> &str {
        let name = self.user_agent.split('/').next().unwrap_or_default();
        if name.is_empty() { "unknown" } else { name }
    }
}

pub(crate) struct Server {
    pub(crate) clock: Clock,
    pub(crate) options: Options,
    state: Mutex<State>,
    journal: Journal,
    pub(crate) documents: Documents,
}

/// The mutable whole. `now` is the instant of the request at hand.
pub(crate) struct State {
    pub(crate) now: Timestamp,
    pub(crate) store: Store,
    pub(crate) kinds: Registry,
    pub(crate) ids: Ids,
    pub(crate) faults: Faults,
    pub(crate) rules: Evaluator,
    /// Writes of events, oldest first: instant, version, namespace, name. They expire.
    pub(crate) events: VecDeque<(Timestamp, u64, String, String)>,
    /// Cluster addresses given to services so far.
    pub(crate) services: u32,
}

impl Server {
    pub(crate) fn new(options: Options) -> Self {
        let mut state = State {
            now: options.clock.now(),
            store: Store::new(options.event_log),
            kinds: Registry::default(),
            ids: Ids::new(options.seed),
            faults: Faults::default(),
            rules: Evaluator::new(),
            events: VecDeque::new(),
            services: 0,
        };
        builtin::install(&mut state);
        Self {
            clock: options.clock.clone(),
            journal: Journal::new(options.journal_entries),
            documents: Documents::default(),
            state: Mutex::new(state),
            options,
        }
    }

    pub(crate) fn enter(&self) -> MutexGuard<'_, State> {
        // A panic in a caller's closure leaves whole objects behind, so the state stays usable.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = self.clock.now();
        state
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    pub(crate) fn journaling(&self) -> bool {
        self.journal.wanted()
    }

    pub(crate) fn record(
        &self,
        caller: &Caller,
        verb: &'static str,
        path: String,
        request: Payload,
        status: u16,
        response: Payload,
    ) {
        self.journal.record(JournalEntry {
            sequence: 0,
            at: self.clock.now(),
            user_agent: Arc::clone(&caller.user_agent),
            user: caller.user.clone(),
            verb,
            path,
            request,
            status,
            response,
        });
    }
}

impl State {
    pub(crate) fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<&Arc<Stored>, Status> {
        self.store.table(kind.table).get(namespace, name).ok_or_else(|| Status::not_found(kind, name))
    }

    /// The selected objects by namespace and name; uses the index of pods by node.
    pub(crate) fn select<'a>(
        &'a self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &'a ListSelector,
    ) -> Box<dyn Iterator<Item = &'a Arc<Stored>> + 'a> {
        let table = self.store.table(kind.table);
        let matching = |stored: &&Arc<Stored>| selector.is_everything() || selector.matches(&stored.value);
        if let Some(node) = selector.fields.required("spec.nodeName").filter(|node| !node.is_empty())
            && table.indexed_by_node()
        {
            let namespace = namespace.map(str::to_owned);
            return Box::new(table.iter_node(node).filter(matching).filter(move |stored| {
                namespace.as_deref().is_none_or(|namespace| stored.value["metadata"]["namespace"] == namespace)
            }));
        }
        match namespace {
            Some(namespace) => Box::new(table.iter_namespace(namespace).filter(matching)),
            None => Box::new(table.iter().filter(matching)),
        }
    }

    /// A built-in kind that is always served.
    pub(crate) fn builtin(&self, resource: &Resource) -> Result<Arc<Kind>, Status> {
        self.kinds.resource(resource).cloned().ok_or_else(Status::no_such_resource)
    }

    /// Applies the fault rules to an in-process call: refusals alone, since there is no connection to break.
    pub(crate) fn inject(
        &mut self,
        caller: &Caller,
        verb: &str,
        kind: &Kind,
        namespace: Option<&str>,
        name: Option<&str>,
        subresource: Option<&str>,
    ) -> Result<(), Status> {
        let subject = Subject {
            verb,
            resource: &kind.plural,
            subresource: subresource.unwrap_or_default(),
            namespace: namespace.unwrap_or_default(),
            name: name.unwrap_or_default(),
            user_agent: &caller.user_agent,
            in_process: caller.in_process,
        };
        let outcome = self.faults.strike(subject);
        match outcome.and_then(|outcome| outcome.refusal(kind, name.unwrap_or_default())) {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }

    /// The present instant as the API writes it.
    pub(crate) fn timestamp(&self) -> String {
        format_time(self.now)
    }
}

/// Whole seconds, cut.
pub(crate) fn format_time(instant: Timestamp) -> String {
    Timestamp::from_second(instant.as_second()).unwrap_or(instant).to_string()
}
