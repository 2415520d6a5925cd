//! Namespaces: the objects every one is born with. Emptying a deleted namespace is the server's business.

use jiff::Timestamp;
use serde_json::json;

use super::Actor;
use super::api::Api;
use super::objects::Key;
use super::queue::Queue;
use super::view::{Change, Kind, View};
use crate::{Status, resources};

/// The controllers for service accounts and for the certificate of the API server.
pub(crate) struct Namespaces {
    api: Api,
    queue: Queue,
}

impl Namespaces {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, queue: Queue::default() }
    }

    fn furnish(&mut self, view: &View, key: &Key) -> Result<(), Status> {
        let alive = view.get(Kind::Namespace, key);
        if alive.is_none_or(|namespace| !namespace["metadata"]["deletionTimestamp"].is_null()) {
            return Ok(());
        }
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": key.name},
        });
        // The certificate itself belongs to whoever serves the API on a socket; pods in a simulation do not read it.
        let certificate = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kube-root-ca.crt", "namespace": key.name}, "data": {"ca.crt": ""},
        });
        for (resource, object) in [(&resources::SERVICE_ACCOUNTS, account), (&resources::CONFIG_MAPS, certificate)] {
            match self.api.create(resource, object) {
                Err(status) if !status.is_already_exists() => return Err(status),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Actor for Namespaces {
    fn observe(&mut self, _: &View, change: &Change, _: Timestamp) {
        if let Change::Other { kind: Kind::Namespace, key, before: None, after: Some(_) } = change {
            self.queue.add(key.clone());
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.queue.next_due()
    }

    fn act(&mut self, view: &View, now: Timestamp) {
        for key in self.queue.take(now) {
            match self.furnish(view, &key) {
                Ok(()) => self.queue.forget(&key),
                Err(_) => self.queue.retry(key, now),
            }
        }
    }
}
