//! A Kubernetes API server in memory.
//!
//! [`FakeKube::service`] speaks HTTP as the genuine server does, so that official clients can be pointed at it;
//! [`FakeKube::client`] gives what lives in the cluster (scheduler, controllers, kubelets) the same semantics without
//! the wire. Time comes from a [`Clock`](controller_clock::Clock), ids from a seed: the same requests give the same
//! answers.
//!
//! Deliberately absent: authentication and authorisation (every caller may do everything), admission webhooks,
//! quotas, replies in protobuf form.

mod status;

mod admission;
mod builtin;
mod client;
mod conversion;
mod crd;
mod deletion;
mod discovery;
mod fault;
mod ids;
mod journal;
mod kinds;
mod listener;
mod managed_fields;
mod openapi;
mod patch;
mod protobuf;
mod quantity;
mod read;
mod review;
mod route;
mod schema;
mod select;
mod server;
mod state;
mod store;
mod subresource;
mod table;
mod watch;
mod write;

pub mod actors;
pub mod resources;

use std::{collections::BTreeMap, sync::Arc};

use controller_clock::Clock;
use serde_json::Value;

use crate::state::Server;
pub use crate::{
    client::{ApiClient, Watch, WatchEvent},
    deletion::{DeleteOptions, Propagation},
    fault::{Calls, FaultRule, Outcome},
    journal::{JournalEntry, Observer, Payload},
    listener::{CertificateError, Limits, ServingCertificate},
    resources::Resource,
    select::{FieldSelector, LabelSelector, ListSelector},
    server::{Body, ConnectionLost, KubeService},
    status::{Cause, Details, Status},
};

/// The server. Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub struct FakeKube(Arc<Server>);

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where instants come from.
    pub clock: Clock,
    /// What `/version` says, such as `v1.36.3`.
    pub kubernetes_version: String,
    /// Seed of uids and generated names.
    pub seed: u64,
    /// Changes kept per resource for watches that resume. A watch that falls further behind is told 410.
    pub event_log: usize,
    /// Entries [`FakeKube::journal`] keeps. Observers see every entry regardless.
    pub journal_entries: usize,
    /// Names of clients by the bearer token they send, for the journal: a client's own user agent may be anything. Every
    /// other token, and none, is let in as well.
    pub users: BTreeMap<String, String>,
}

impl Options {
    /// Defaults with a clock.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            kubernetes_version: "v1.36.3".into(),
            seed: 1,
            // A pod with its bookkeeping is some 10 KB: 160 MB at worst. Twice as many would only help a watcher that
            // stays away during 16,000 changes, which then lists again.
            event_log: 16_384,
            // Enough to look back over a failed scenario; whoever needs all of it observes.
            journal_entries: 1_000,
            users: BTreeMap::new(),
        }
    }
}

impl FakeKube {
    /// A server with the built-in kinds and the namespaces every cluster has.
    pub fn new(options: Options) -> Self {
        Self(Arc::new(Server::new(options)))
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.0
    }

    /// In-process access. The name stands as user agent in the journal and as field manager.
    pub fn client(&self, user_agent: &str) -> ApiClient {
        ApiClient::new(self.clone(), user_agent)
    }

    /// The server as a `tower::Service` over HTTP requests, as `kube::Client::new` wants it.
    pub fn service(&self) -> KubeService {
        KubeService::new(Arc::clone(&self.0))
    }

    /// The clock the server reads.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Installs a custom resource definition; established when this returns. Installing one again updates it.
    pub fn install_crd(&self, definition: Value) -> Result<(), Status> {
        self.0.enter().install_crd(definition)
    }

    /// Calls `observer` with every journal entry from now on.
    pub fn observe(&self, observer: Observer) {
        self.0.journal().observe(observer);
    }

    /// The latest journal entries, oldest first.
    pub fn journal(&self) -> Vec<Arc<JournalEntry>> {
        self.0.journal().entries()
    }

    /// Adds a fault rule; earlier rules win.
    pub fn fault(&self, rule: FaultRule) {
        self.0.enter().faults.add(rule);
    }

    /// Drops all fault rules.
    pub fn clear_faults(&self) {
        self.0.enter().faults.clear();
    }

    /// Ends the open HTTP watches of a resource, as a restart of the server would. They may resume.
    pub fn cut_watches(&self, resource: &Resource) {
        let mut state = self.0.enter();
        if let Some(table) = state.kinds.resource(resource).map(|kind| kind.table) {
            state.store.cut_watches(table);
        }
    }

    /// How many watches over HTTP are open, of all resources.
    pub fn open_watches(&self) -> usize {
        let state = self.0.enter();
        (0..state.store.tables()).map(|table| state.store.table(table).changes.receiver_count()).sum()
    }

    /// Forgets the past of a resource: watches that resume from before are told 410 and must list again. In-process
    /// watches are not touched.
    pub fn compact(&self, resource: &Resource) {
        let mut state = self.0.enter();
        if let Some(table) = state.kinds.resource(resource).map(|kind| kind.table) {
            state.store.compact(table);
        }
    }

    /// The newest resource version.
    pub fn resource_version(&self) -> u64 {
        self.0.enter().store.version()
    }
}
