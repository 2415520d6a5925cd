//! In-process access for whatever lives in the cluster: the same rules as over HTTP, without the wire.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    FakeKube,
    deletion::DeleteOptions,
    journal::Payload,
    kinds::Kind,
    patch::Patch,
    resources::{self, Resource},
    select::ListSelector,
    state::{Caller, State},
    status::Status,
    store::Stored,
    write::{Part, WriteOptions, Written},
};

/// A caller inside the process, such as a scheduler. Cheap to clone.
///
/// Every call is synchronous and complete when it returns: there is no wire to wait for. Writes stand in the journal
/// under the client's name; reads do not, since they change nothing and cost nothing.
#[derive(Clone)]
pub struct ApiClient {
    kube: FakeKube,
    caller: Caller,
}

/// One change of a watched resource.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// The object is there: at the start of the watch, or created since.
    Added(Arc<Value>),
    /// The object changed.
    Modified(Arc<Value>),
    /// The object is gone; this is its last state.
    Deleted(Arc<Value>),
}

impl WatchEvent {
    /// The object, whatever happened to it.
    pub fn object(&self) -> &Arc<Value> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => object,
        }
    }
}

/// Every present object as [`WatchEvent::Added`], then every change in order. Never misses one, never ends while the
/// server lives; dropping it ends the watch.
#[derive(Debug)]
pub struct Watch(mpsc::UnboundedReceiver<WatchEvent>);

impl Watch {
    /// The next change; waits for it. `None` when the server is gone.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.0.recv().await
    }

    /// The next change, if there is one already.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        self.0.try_recv().ok()
    }
}

impl futures::Stream for Watch {
    type Item = WatchEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        self.0.poll_recv(context)
    }
}

impl ApiClient {
    pub(crate) fn new(kube: FakeKube, user_agent: &str) -> Self {
        Self { kube, caller: Caller::in_process(user_agent) }
    }

    /// The server this client talks to.
    pub fn kube(&self) -> &FakeKube {
        &self.kube
    }

    /// One object.
    pub fn get(&self, resource: &Resource, namespace: Option<&str>, name: &str) -> Result<Arc<Value>, Status> {
        let state = self.kube.server().enter();
        let kind = kind(&state, resource)?;
        Ok(Arc::clone(&state.get(&kind, namespace.unwrap_or_default(), name)?.value))
    }

    /// The selected objects, by namespace and name. An unknown resource has none.
    pub fn list(&self, resource: &Resource, namespace: Option<&str>, selector: &ListSelector) -> Vec<Arc<Value>> {
        let state = self.kube.server().enter();
        let Ok(kind) = kind(&state, resource) else { return Vec::new() };
        state.select(&kind, namespace, selector).map(|stored| Arc::clone(&stored.value)).collect()
    }

    /// Creates an object.
    pub fn create(&self, resource: &Resource, namespace: Option<&str>, object: Value) -> Result<Arc<Value>, Status> {
        self.write("create", resource, namespace, None, None, object, |state, kind, object| {
            state.create(kind, namespace.unwrap_or_default(), object, &self.options())
        })
    }

    /// Replaces an object; `metadata.name` says which. A stale `resourceVersion` is a conflict.
    pub fn update(&self, resource: &Resource, namespace: Option<&str>, object: Value) -> Result<Arc<Value>, Status> {
        self.replace(resource, namespace, object, None)
    }

    /// Replaces the status of an object; everything else in `object` is ignored.
    pub fn update_status(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        object: Value,
    ) -> Result<Arc<Value>, Status> {
        self.replace(resource, namespace, object, Some("status"))
    }

    fn replace(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        object: Value,
        subresource: Option<&str>,
    ) -> Result<Arc<Value>, Status> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.write("update", resource, namespace, Some(&name), subresource, object, |state, kind, object| {
            let part = Part::of(subresource)?;
            state.update(kind, namespace.unwrap_or_default(), &name, object, part, &self.options())
        })
    }

    /// Applies a JSON merge patch to an object or to one of its subresources (`status`).
    pub fn patch_merge(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        patch: Value,
        subresource: Option<&str>,
    ) -> Result<Arc<Value>, Status> {
        self.write("patch", resource, namespace, Some(name), subresource, patch, |state, kind, patch| {
            let part = Part::of(subresource)?;
            state.patch(kind, namespace.unwrap_or_default(), name, Patch::Merge(patch), part, &self.options())
        })
    }

    /// Deletes an object. The answer is its last or its terminating state.
    pub fn delete(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        options: DeleteOptions,
    ) -> Result<Arc<Value>, Status> {
        let body = options.to_json();
        self.write("delete", resource, namespace, Some(name), None, body, |state, kind, _| {
            let deleted = state.delete(kind, namespace.unwrap_or_default(), name, &options)?;
            Ok(Written::plain(deleted.object))
        })
    }

    /// Evicts a pod, as far as disruption budgets allow.
    pub fn evict(&self, namespace: &str, pod: &str, options: DeleteOptions) -> Result<(), Status> {
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": pod, "namespace": namespace }, "deleteOptions": options.to_json(),
        });
        let call = (&resources::PODS, Some(namespace), Some(pod), Some("eviction"));
        self.write("create", call.0, call.1, call.2, call.3, body, |state, _, _| {
            Ok(Written::plain(state.evict(namespace, pod, &options)?))
        })
        .map(drop)
    }

    /// Binds a pod to a node.
    pub fn bind(&self, namespace: &str, pod: &str, node: &str) -> Result<(), Status> {
        let body = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod, "namespace": namespace },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let call = (&resources::PODS, Some(namespace), Some(pod), Some("binding"));
        self.write("create", call.0, call.1, call.2, call.3, body, |state, _, body| {
            Ok(Written::plain(state.bind(namespace, pod, &body)?))
        })
        .map(drop)
    }

    /// Follows a resource in all namespaces.
    pub fn watch(&self, resource: &Resource) -> Watch {
        let mut state = self.kube.server().enter();
        match kind(&state, resource) {
            Ok(kind) => Watch(state.store.tap(kind.table)),
            // Nobody will ever send: the watch of an unknown resource is empty and ends.
            Err(_) => Watch(mpsc::unbounded_channel().1),
        }
    }

    fn options(&self) -> WriteOptions {
        WriteOptions { field_manager: self.caller.manager().to_owned(), ..WriteOptions::default() }
    }

    #[allow(clippy::too_many_arguments)] // The parts of a request line, each once.
    fn write(
        &self,
        verb: &'static str,
        resource: &Resource,
        namespace: Option<&str>,
        name: Option<&str>,
        subresource: Option<&str>,
        body: Value,
        action: impl FnOnce(&mut State, &Arc<Kind>, Value) -> Result<Written, Status>,
    ) -> Result<Arc<Value>, Status> {
        let server = self.kube.server();
        let journaled = server.journaling().then(|| Payload::from(&body));
        let outcome = {
            let mut state = server.enter();
            kind(&state, resource).and_then(|kind| {
                state.inject(&self.caller, verb, &kind, namespace, name, subresource)?;
                action(&mut state, &kind, body)
            })
        };
        if let Some(body) = journaled {
            let path = path(resource, namespace, name, subresource);
            let reply: Result<Arc<Stored>, &Status> = outcome.as_ref().map(|written| Arc::clone(&written.object));
            let created = verb == "create" && reply.is_ok();
            let status = reply.as_ref().map_or_else(|status| status.code, |_| if created { 201 } else { 200 });
            let response = match &reply {
                Ok(stored) => Payload::Object(Arc::clone(stored)),
                Err(status) => Payload::from(&status.to_json()),
            };
            server.record(&self.caller, verb, path, body, status, response);
        }
        outcome.map(|written| Arc::clone(&written.object.value))
    }
}

fn kind(state: &State, resource: &Resource) -> Result<Arc<Kind>, Status> {
    state.kinds.resource(resource).cloned().ok_or_else(Status::no_such_resource)
}

/// The URL path a request over HTTP would have.
pub(crate) fn path(
    resource: &Resource,
    namespace: Option<&str>,
    name: Option<&str>,
    subresource: Option<&str>,
) -> String {
    let mut path = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    if let Some(namespace) = namespace {
        path.push_str(&format!("/namespaces/{namespace}"));
    }
    path.push('/');
    path.push_str(&resource.plural);
    for part in [name, subresource].into_iter().flatten() {
        path.push('/');
        path.push_str(part);
    }
    path
}
