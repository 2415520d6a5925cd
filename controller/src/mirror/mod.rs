//! The watched state of the cluster: watches fill ordered stores, reconcilers read them, and a decision gets a snapshot.
//!
//! The mirror alone holds watched state. It parses a pod, a budget or a DaemonSet once per version of the object, joins
//! Nodes with NodeClaims by provider id, and keeps the two kinds of knowledge the API does not have: nominations and marks
//! (core spec §4). The answer to one of our own writes can be put in with [`Mirror::observe`], so that the next decision
//! does not wait for the watch; an older version never replaces a newer one.

mod changes;
mod nominations;
mod stores;
mod watch;

pub(crate) use changes::{Change, Changes, Kind};
pub(crate) use stores::{ObjectName, Watched};

use changes::{Subscribers, lock};
use controller_api::labels;
use controller_api::{Ec2NodeClass, NodeClaim, NodePool};
use controller_core::catalog::InstanceType;
use controller_core::snapshot::{Pod, PodName, Pool, Snapshot, StateNode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use stores::{State, is_newer};
use tokio::sync::watch as revision;

/// The watched state. Shared by every reconciler of a run.
pub(crate) struct Mirror {
    state: Mutex<State>,
    subscribers: Subscribers,
    /// Counts every change of the state, nominations and marks included.
    revision: revision::Sender<u64>,
    /// Parsed nodes of the last snapshot: a node is parsed again only when its Node or NodeClaim has changed.
    parsed: Mutex<BTreeMap<String, StateNode>>,
}

impl Mirror {
    /// An empty mirror; [`Mirror::run`] fills it.
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            subscribers: Subscribers::default(),
            revision: revision::Sender::new(0),
            parsed: Mutex::default(),
        }
    }

    // ---- decisions ----

    /// The world at `now`, as decisions see it. `instance_types` holds what each NodePool may launch, by pool name.
    pub(crate) fn snapshot(
        &self,
        now: Timestamp,
        instance_types: &BTreeMap<String, Vec<Arc<InstanceType>>>,
    ) -> Snapshot {
        let state = lock(&self.state);
        let pools = state
            .pools
            .iter()
            .map(|(name, stored)| {
                let types = instance_types.get(&name.name).cloned().unwrap_or_default();
                (name.name.clone(), Pool::new(stored.view.clone(), types))
            })
            .collect();
        let mut parsed = lock(&self.parsed);
        let mut fresh = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        for (key, node, claim) in state.joined() {
            let known =
                parsed.remove(&key).filter(|known| is_same(&known.node, &node) && is_same(&known.claim, &claim));
            let plain = known.unwrap_or_else(|| StateNode::new(node, claim));
            let joined = plain.clone().nominated(state.nominated_until(&key)).marked(state.marked.contains(&key));
            nodes.insert(joined.name().to_owned(), joined);
            fresh.insert(key, plain);
        }
        *parsed = fresh;
        Snapshot {
            now,
            pools,
            nodes,
            pods: state.pods.values().map(|stored| (stored.view.name.clone(), stored.view.clone())).collect(),
            daemon_sets: state.daemon_sets.values().map(|stored| stored.view.clone()).collect(),
            pod_disruption_budgets: state.budgets.values().map(|stored| stored.view.clone()).collect(),
            namespaces: state.namespaces.iter().map(|(name, ns)| (name.name.clone(), (*ns.view).clone())).collect(),
            storage: Some(Arc::new(state.storage())),
        }
    }

    /// Whether decisions may be made: every kind has been listed, and every NodeClaim that is to stay has its instance
    /// (core spec §4.2). A claim without an instance stands for capacity nobody can see yet; deciding around it would buy
    /// the same capacity twice. A claim on its way out stands for none.
    pub(crate) fn synced(&self) -> bool {
        let state = lock(&self.state);
        state.is_listed() && state.claims.values().all(|stored| is_launched(&stored.view) || is_deleting(&stored.view))
    }

    /// Kinds that have not been listed yet.
    pub(crate) fn unlisted(&self) -> Vec<Kind> {
        let state = lock(&self.state);
        Kind::ALL.into_iter().filter(|kind| !state.listed.contains(kind)).collect()
    }

    /// Waits until every kind has been listed once.
    pub(crate) async fn listed(&self) {
        self.when(|| lock(&self.state).is_listed()).await;
    }

    /// Waits until [`Mirror::synced`].
    pub(crate) async fn wait_synced(&self) {
        self.when(|| self.synced()).await;
    }

    /// A number that grows with every change.
    pub(crate) fn revision(&self) -> u64 {
        *self.revision.borrow()
    }

    /// Waits until [`Mirror::revision`] is past `seen`.
    pub(crate) async fn changed_since(&self, seen: u64) {
        let mut receiver = self.revision.subscribe();
        let _ = receiver.wait_for(|revision| *revision > seen).await;
    }

    // ---- reading ----

    /// Every managed NodeClaim, by name.
    pub(crate) fn node_claims(&self) -> Vec<Arc<NodeClaim>> {
        lock(&self.state).claims.values().map(|stored| stored.view.clone()).collect()
    }

    /// The managed NodeClaim of this name.
    pub(crate) fn node_claim(&self, name: &str) -> Option<Arc<NodeClaim>> {
        lock(&self.state).claims.get(&ObjectName::cluster(name)).map(|stored| stored.view.clone())
    }

    /// The NodeClaims with this provider id: more than one only if something is wrong.
    pub(crate) fn node_claims_by_provider_id(&self, provider_id: &str) -> Vec<Arc<NodeClaim>> {
        let state = lock(&self.state);
        state.claims_by_provider.of(provider_id).filter_map(|name| state.claim(name)).collect()
    }

    /// The Node of this name.
    pub(crate) fn node(&self, name: &str) -> Option<Arc<Node>> {
        lock(&self.state).nodes.get(&ObjectName::cluster(name)).map(|stored| stored.view.clone())
    }

    /// The Nodes with this provider id: more than one only if something is wrong.
    pub(crate) fn nodes_by_provider_id(&self, provider_id: &str) -> Vec<Arc<Node>> {
        let state = lock(&self.state);
        state.nodes_by_provider.of(provider_id).filter_map(|name| state.node(name)).collect()
    }

    /// The PersistentVolume that a claim is bound to.
    pub(crate) fn volume_of(&self, namespace: &str, claim: &str) -> Option<String> {
        let name = ObjectName { namespace: namespace.to_owned(), name: claim.to_owned() };
        lock(&self.state).volume_claims.get(&name).and_then(|stored| stored.view.volume.clone())
    }

    /// Every managed NodePool, by name.
    pub(crate) fn node_pools(&self) -> Vec<Arc<NodePool>> {
        lock(&self.state).pools.values().map(|stored| stored.view.clone()).collect()
    }

    /// The managed NodePool of this name.
    pub(crate) fn node_pool(&self, name: &str) -> Option<Arc<NodePool>> {
        lock(&self.state).pools.get(&ObjectName::cluster(name)).map(|stored| stored.view.clone())
    }

    /// Every EC2NodeClass, by name.
    pub(crate) fn node_classes(&self) -> Vec<Arc<Ec2NodeClass>> {
        lock(&self.state).classes.values().map(|stored| stored.view.clone()).collect()
    }

    /// The EC2NodeClass of this name.
    pub(crate) fn node_class(&self, name: &str) -> Option<Arc<Ec2NodeClass>> {
        lock(&self.state).classes.get(&ObjectName::cluster(name)).map(|stored| stored.view.clone())
    }

    /// Every pod, by namespace and name.
    pub(crate) fn pods(&self) -> Vec<Arc<Pod>> {
        lock(&self.state).pods.values().map(|stored| stored.view.clone()).collect()
    }

    /// The pod of this name.
    pub(crate) fn pod(&self, name: &PodName) -> Option<Arc<Pod>> {
        let name = ObjectName { namespace: name.namespace.to_string(), name: name.name.to_string() };
        lock(&self.state).pods.get(&name).map(|stored| stored.view.clone())
    }

    /// The pods bound to a node, finished ones included.
    pub(crate) fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        let state = lock(&self.state);
        let names = state.pods_by_node.of(node);
        names.filter_map(|name| state.pods.get(name)).map(|stored| stored.view.clone()).collect()
    }

    // ---- following ----

    /// Changes from now on, beginning with every object present.
    pub(crate) fn subscribe(&self) -> Changes {
        // The lock is held while subscribing, so that no change falls between what is present and what follows.
        let state = lock(&self.state);
        self.subscribers.subscribe(state.present())
    }

    // ---- own writes ----

    /// Puts in an object as the API server answered one of our writes. Ignored if the mirror already knows a newer version
    /// or knows that the object is gone.
    pub(crate) fn observe<K: Watched>(&self, object: K) {
        self.put(object, false);
    }

    /// The NodeClaims put in by [`Mirror::observe`] that no watch has confirmed yet.
    pub(crate) fn unconfirmed(&self, claim: &str) -> bool {
        lock(&self.state).claims.get(&ObjectName::cluster(claim)).is_some_and(|stored| !stored.confirmed)
    }

    /// Takes a NodeClaim out that turned out not to exist.
    pub(crate) fn forget_claim(&self, claim: &str) {
        self.take::<NodeClaim>(&ObjectName::cluster(claim));
    }

    fn put<K: Watched>(&self, mut object: K, watched: bool) {
        let name = ObjectName::of(&object);
        let meta = object.meta_mut();
        meta.managed_fields = None;
        let (version, uid) = (meta.resource_version.clone().unwrap_or_default(), meta.uid.clone().unwrap_or_default());
        let mut state = lock(&self.state);
        if let Some(current) = K::store(&mut state).get_mut(&name)
            && current.uid == uid
            && !is_newer(&current.version, &version)
        {
            current.confirmed |= watched;
            return;
        }
        if !watched && state.gone.contains(&uid) {
            return;
        }
        match object.view() {
            Some(view) => {
                let change = state.insert::<K>(name, version, uid, view, watched);
                self.tell(state, change);
            }
            None => {
                drop(state);
                self.take::<K>(&name);
            }
        }
    }

    /// A deletion seen by the watch; it says nothing about another object of the same name that has come since.
    fn deleted<K: Watched>(&self, object: &K) {
        let name = ObjectName::of(object);
        let is_known = K::stored(&lock(&self.state)).get(&name).map(|stored| &stored.uid) == object.meta().uid.as_ref();
        if is_known {
            self.take::<K>(&name);
        }
    }

    fn take<K: Watched>(&self, name: &ObjectName) {
        let mut state = lock(&self.state);
        if let Some(change) = state.remove::<K>(name) {
            self.tell(state, change);
        }
    }

    fn tell(&self, state: std::sync::MutexGuard<'_, State>, change: Change) {
        self.subscribers.tell(change);
        drop(state);
        self.revision.send_modify(|revision| *revision += 1);
    }

    async fn when(&self, condition: impl Fn() -> bool + Send) {
        let mut receiver = self.revision.subscribe();
        loop {
            receiver.mark_unchanged();
            if condition() || receiver.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Whether the claim has an instance.
pub(crate) fn is_launched(claim: &NodeClaim) -> bool {
    !provider_id(claim).is_empty()
}

fn is_deleting(claim: &NodeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some()
}

/// The claim's provider id; empty before launch.
pub(crate) fn provider_id(claim: &NodeClaim) -> &str {
    claim.status.as_ref().map_or("", |status| status.provider_id.as_str())
}

/// The NodePool an object's labels name.
pub(crate) fn pool_label(labels: Option<&BTreeMap<String, String>>) -> Option<String> {
    labels?.get(labels::NODE_POOL_LABEL).filter(|pool| !pool.is_empty()).cloned()
}

fn is_same<T>(left: &Option<Arc<T>>, right: &Option<Arc<T>>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => Arc::ptr_eq(left, right),
        (None, None) => true,
        _ => false,
    }
}

/// Names by another name: pods by node, nodes by provider id.
#[derive(Default)]
struct Index<K>(BTreeMap<String, BTreeSet<K>>);

impl<K: Ord> Index<K> {
    fn of(&self, key: &str) -> impl Iterator<Item = &K> {
        self.0.get(key).into_iter().flatten()
    }

    fn insert(&mut self, key: &str, value: K) {
        if !key.is_empty() {
            self.0.entry(key.to_owned()).or_default().insert(value);
        }
    }

    fn remove(&mut self, key: &str, value: &K) {
        if let Some(values) = self.0.get_mut(key) {
            values.remove(value);
            if values.is_empty() {
                self.0.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
