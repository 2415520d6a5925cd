//! The stores behind the mirror, one per kind, and how each kind relates to the others.

use super::changes::{Change, Kind};
use super::{Index, is_launched, pool_label, provider_id};
use controller_api::labels;
use controller_api::{Ec2NodeClass, NodeClaim, NodePool};
use controller_core::snapshot;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;

/// How many deleted objects are remembered, to refuse a late answer about one of them. An answer overtaken by more than
/// this many deletions would resurrect its object until the next list; that takes thousands of deletions within one
/// round trip.
const GONE_REMEMBERED: usize = 4096;

/// Namespace (empty for kinds without) and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectName {
    /// Empty for kinds that have none.
    pub(crate) namespace: String,
    /// The object's name.
    pub(crate) name: String,
}

impl ObjectName {
    /// The name of an object of a kind without namespaces.
    pub(crate) fn cluster(name: &str) -> Self {
        Self { namespace: String::new(), name: name.to_owned() }
    }

    /// The name of `object`.
    pub(crate) fn of<K: kube::Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
    }
}

/// One version of an object, as it is kept.
pub(crate) struct Stored<V> {
    pub(super) version: String,
    pub(super) uid: String,
    pub(super) view: Arc<V>,
    /// Whether a watch has shown the object; false while only the answer to our own create has.
    pub(super) confirmed: bool,
}

pub(super) type Store<V> = BTreeMap<ObjectName, Stored<V>>;

/// Everything the mirror knows.
#[derive(Default)]
pub(crate) struct State {
    pub(super) pods: Store<snapshot::Pod>,
    pub(super) nodes: Store<Node>,
    pub(super) claims: Store<NodeClaim>,
    pub(super) pools: Store<NodePool>,
    pub(super) classes: Store<Ec2NodeClass>,
    pub(super) daemon_sets: Store<snapshot::DaemonSet>,
    pub(super) budgets: Store<snapshot::Pdb>,
    pub(super) namespaces: Store<snapshot::Namespace>,
    pub(super) volumes: Store<snapshot::PersistentVolume>,
    pub(super) volume_claims: Store<snapshot::VolumeClaim>,
    pub(super) storage_classes: Store<snapshot::StorageClass>,
    /// By node, how many volumes of each driver it takes.
    pub(super) attach_limits: Store<BTreeMap<String, usize>>,
    pub(super) pods_by_node: Index<ObjectName>,
    pub(super) nodes_by_provider: Index<String>,
    pub(super) claims_by_provider: Index<String>,
    /// Until when a node is spared because pods are expected on it; by key of the joined node.
    pub(super) nominated: BTreeMap<String, Timestamp>,
    /// Nodes that are being disrupted; by key of the joined node.
    pub(super) marked: BTreeSet<String>,
    /// Kinds listed at least once.
    pub(super) listed: BTreeSet<Kind>,
    pub(super) gone: Gone,
}

/// The uids of objects deleted lately.
#[derive(Default)]
pub(super) struct Gone {
    uids: BTreeSet<String>,
    order: VecDeque<String>,
}

impl Gone {
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    fn insert(&mut self, uid: String) {
        if self.uids.insert(uid.clone()) {
            self.order.push_back(uid);
        }
        if self.order.len() > GONE_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }
}

/// The names a [`Change`] carries beside the object's own.
#[derive(Default)]
pub(crate) struct Related {
    node: Option<String>,
    claim: Option<String>,
    pool: Option<String>,
}

/// A kind the mirror watches.
pub(crate) trait Watched:
    kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// What is kept of an object.
    type View: Send + Sync + 'static;
    /// The kind's name in changes.
    const KIND: Kind;
    /// What to keep of this object; nothing if it is not ours to see (core spec §1.10).
    fn view(self) -> Option<Self::View>;
    /// Where objects of this kind are kept.
    fn store(state: &mut State) -> &mut Store<Self::View>;
    /// Its store, to read.
    fn stored(state: &State) -> &Store<Self::View>;
    /// The nodes, claims and pools concerned by the object.
    fn related(_state: &State, _name: &ObjectName, _view: &Self::View) -> Related {
        Related::default()
    }
    /// Takes the object out of the indexes.
    fn unindex(_state: &mut State, _name: &ObjectName, _view: &Self::View) {}
    /// Puts the object into the indexes.
    fn index(_state: &mut State, _name: &ObjectName, _view: &Self::View) {}
}

impl State {
    pub(super) fn is_listed(&self) -> bool {
        Kind::ALL.iter().all(|kind| self.listed.contains(kind))
    }

    pub(super) fn claim(&self, name: &str) -> Option<Arc<NodeClaim>> {
        self.claims.get(&ObjectName::cluster(name)).map(|stored| stored.view.clone())
    }

    pub(super) fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&ObjectName::cluster(name)).map(|stored| stored.view.clone())
    }

    pub(super) fn insert<K: Watched>(
        &mut self,
        name: ObjectName,
        version: String,
        uid: String,
        view: K::View,
        confirmed: bool,
    ) -> Change {
        let view = Arc::new(view);
        let confirmed = confirmed || K::stored(self).get(&name).is_some_and(|old| old.uid == uid && old.confirmed);
        if let Some(old) = K::store(self).insert(name.clone(), Stored { version, uid, view: view.clone(), confirmed }) {
            K::unindex(self, &name, &old.view);
        }
        K::index(self, &name, &view);
        change::<K>(self, &name, &view, false)
    }

    pub(super) fn remove<K: Watched>(&mut self, name: &ObjectName) -> Option<Change> {
        let key = if matches!(K::KIND, Kind::Node | Kind::NodeClaim) { self.key_of(&name.name) } else { None };
        let old = K::store(self).remove(name)?;
        let change = change::<K>(self, name, &old.view, true);
        K::unindex(self, name, &old.view);
        self.gone.insert(old.uid);
        if let Some(key) = key {
            self.drop_mark_if_gone(&key);
        }
        Some(change)
    }

    /// Every object as a change, for a new subscriber.
    pub(super) fn present(&self) -> BTreeSet<Arc<Change>> {
        fn all<K: Watched>(state: &State) -> impl Iterator<Item = Change> {
            K::stored(state).iter().map(|(name, stored)| change::<K>(state, name, &stored.view, false))
        }
        all::<Pod>(self)
            .chain(all::<Node>(self))
            .chain(all::<NodeClaim>(self))
            .chain(all::<NodePool>(self))
            .chain(all::<Ec2NodeClass>(self))
            .chain(all::<DaemonSet>(self))
            .chain(all::<PodDisruptionBudget>(self))
            .chain(all::<Namespace>(self))
            .chain(all::<PersistentVolume>(self))
            .chain(all::<PersistentVolumeClaim>(self))
            .chain(all::<StorageClass>(self))
            .chain(all::<CSINode>(self))
            .map(Arc::new)
            .collect()
    }

    /// What decides where pods with volumes can run.
    pub(super) fn storage(&self) -> snapshot::Storage {
        fn by_name<V: Clone>(store: &Store<V>) -> impl Iterator<Item = (String, V)> {
            store.iter().map(|(name, stored)| (name.name.clone(), (*stored.view).clone()))
        }
        let claims = self.volume_claims.iter().map(|(name, stored)| {
            (snapshot::PodName::new(name.namespace.as_str(), name.name.as_str()), (*stored.view).clone())
        });
        snapshot::Storage {
            claims: claims.collect(),
            volumes: by_name(&self.volumes).collect(),
            classes: by_name(&self.storage_classes).collect(),
            attach_limits: by_name(&self.attach_limits).collect(),
        }
    }

    /// Nodes joined with NodeClaims by provider id, under the key by which marks and nominations know them. Left out, as
    /// they cannot be judged yet (core spec §4.3): managed Nodes without a provider id, or without an instance type before
    /// they are initialized.
    pub(super) fn joined(&self) -> impl Iterator<Item = (String, Option<Arc<Node>>, Option<Arc<NodeClaim>>)> {
        let claims = self.claims.iter().map(|(name, stored)| {
            let node = match provider_id(&stored.view) {
                "" => None,
                id => self.nodes_by_provider.of(id).next().and_then(|name| self.node(name)),
            };
            let node = node.filter(|node| is_judgeable(node));
            (claim_key(&name.name, &stored.view), node, Some(stored.view.clone()))
        });
        let unclaimed = self.nodes.iter().filter_map(|(name, stored)| {
            let id = node_provider_id(&stored.view);
            let is_claimed = !id.is_empty() && self.claims_by_provider.of(id).next().is_some();
            let is_left_out = is_claimed || !is_judgeable(&stored.view);
            (!is_left_out).then(|| (node_key(&name.name, &stored.view), Some(stored.view.clone()), None))
        });
        claims.chain(unclaimed)
    }

    /// The key of the joined node that a decision calls `name`: a NodeClaim's name or a Node's.
    pub(super) fn key_of(&self, name: &str) -> Option<String> {
        let claim = self.claim(name).map(|claim| claim_key(name, &claim));
        claim.or_else(|| self.node(name).map(|node| node_key(name, &node)))
    }

    /// Mark and nomination go with the last of Node and NodeClaim, so that they cannot pile up.
    fn drop_mark_if_gone(&mut self, key: &str) {
        if self.nodes_by_provider.of(key).next().is_none() && self.claims_by_provider.of(key).next().is_none() {
            self.marked.remove(key);
            self.nominated.remove(key);
        }
    }
}

fn change<K: Watched>(state: &State, name: &ObjectName, view: &K::View, gone: bool) -> Change {
    let Related { node, claim, pool } = K::related(state, name, view);
    Change { kind: K::KIND, namespace: name.namespace.clone(), name: name.name.clone(), node, claim, pool, gone }
}

/// Whether `incoming` should replace `current`. Resource versions of one object are compared as numbers, which the API
/// promises since Kubernetes 1.35; anything else replaces, as a watch delivers in order.
pub(super) fn is_newer(current: &str, incoming: &str) -> bool {
    match (current.parse::<u128>(), incoming.parse::<u128>()) {
        (Ok(current), Ok(incoming)) => incoming > current,
        _ => incoming != current,
    }
}

fn claim_key(name: &str, claim: &NodeClaim) -> String {
    if is_launched(claim) { provider_id(claim).to_owned() } else { format!("nodeclaim/{name}") }
}

fn node_key(name: &str, node: &Node) -> String {
    match node_provider_id(node) {
        "" => name.to_owned(),
        id => id.to_owned(),
    }
}

fn node_provider_id(node: &Node) -> &str {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default()
}

fn is_judgeable(node: &Node) -> bool {
    let label = |key| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).is_some_and(|v| !v.is_empty());
    let is_managed = label(labels::NODE_POOL_LABEL);
    !is_managed
        || (!node_provider_id(node).is_empty()
            && (label(labels::INSTANCE_TYPE_LABEL) || label(labels::INITIALIZED_LABEL)))
}

impl Watched for Pod {
    type View = snapshot::Pod;
    const KIND: Kind = Kind::Pod;

    fn view(self) -> Option<Self::View> {
        Some(snapshot::Pod::from_api(&self))
    }

    fn store(state: &mut State) -> &mut Store<Self::View> {
        &mut state.pods
    }

    fn stored(state: &State) -> &Store<Self::View> {
        &state.pods
    }

    fn related(state: &State, _: &ObjectName, view: &Self::View) -> Related {
        let Some(node) = view.node_name.as_deref() else { return Related::default() };
        let id = state.node(node).map(|node| node_provider_id(&node).to_owned()).unwrap_or_default();
        let claim = state.claims_by_provider.of(&id).next().cloned();
        Related { node: Some(node.to_owned()), claim, pool: None }
    }

    fn unindex(state: &mut State, name: &ObjectName, view: &Self::View) {
        state.pods_by_node.remove(view.node_name.as_deref().unwrap_or_default(), name);
    }

    fn index(state: &mut State, name: &ObjectName, view: &Self::View) {
        state.pods_by_node.insert(view.node_name.as_deref().unwrap_or_default(), name.clone());
    }
}

impl Watched for Node {
    type View = Self;
    const KIND: Kind = Kind::Node;

    fn view(self) -> Option<Self> {
        Some(self)
    }

    fn store(state: &mut State) -> &mut Store<Self> {
        &mut state.nodes
    }

    fn stored(state: &State) -> &Store<Self> {
        &state.nodes
    }

    fn related(state: &State, name: &ObjectName, view: &Self) -> Related {
        Related {
            node: Some(name.name.clone()),
            claim: state.claims_by_provider.of(node_provider_id(view)).next().cloned(),
            pool: pool_label(view.metadata.labels.as_ref()),
        }
    }

    fn unindex(state: &mut State, name: &ObjectName, view: &Self) {
        state.nodes_by_provider.remove(node_provider_id(view), &name.name);
    }

    fn index(state: &mut State, name: &ObjectName, view: &Self) {
        state.nodes_by_provider.insert(node_provider_id(view), name.name.clone());
    }
}

impl Watched for NodeClaim {
    type View = Self;
    const KIND: Kind = Kind::NodeClaim;

    fn view(self) -> Option<Self> {
        self.spec.node_class_ref.is_ec2().then_some(self)
    }

    fn store(state: &mut State) -> &mut Store<Self> {
        &mut state.claims
    }

    fn stored(state: &State) -> &Store<Self> {
        &state.claims
    }

    fn related(state: &State, name: &ObjectName, view: &Self) -> Related {
        let known = view.status.as_ref().map(|status| status.node_name.clone()).filter(|name| !name.is_empty());
        Related {
            node: known.or_else(|| state.nodes_by_provider.of(provider_id(view)).next().cloned()),
            claim: Some(name.name.clone()),
            pool: pool_label(view.metadata.labels.as_ref()),
        }
    }

    fn unindex(state: &mut State, name: &ObjectName, view: &Self) {
        state.claims_by_provider.remove(provider_id(view), &name.name);
    }

    fn index(state: &mut State, name: &ObjectName, view: &Self) {
        state.claims_by_provider.insert(provider_id(view), name.name.clone());
        if is_launched(view) {
            state.follow_launch(&name.name, provider_id(view));
        }
    }
}

impl Watched for NodePool {
    type View = Self;
    const KIND: Kind = Kind::NodePool;

    fn view(self) -> Option<Self> {
        self.spec.template.spec.node_class_ref.is_ec2().then_some(self)
    }

    fn store(state: &mut State) -> &mut Store<Self> {
        &mut state.pools
    }

    fn stored(state: &State) -> &Store<Self> {
        &state.pools
    }

    fn related(_: &State, name: &ObjectName, _: &Self) -> Related {
        Related { pool: Some(name.name.clone()), ..Related::default() }
    }
}

impl Watched for Ec2NodeClass {
    type View = Self;
    const KIND: Kind = Kind::NodeClass;

    fn view(self) -> Option<Self> {
        Some(self)
    }

    fn store(state: &mut State) -> &mut Store<Self> {
        &mut state.classes
    }

    fn stored(state: &State) -> &Store<Self> {
        &state.classes
    }

    fn related(_: &State, _: &ObjectName, _: &Self) -> Related {
        Related::default()
    }
}

impl Watched for DaemonSet {
    type View = snapshot::DaemonSet;
    const KIND: Kind = Kind::DaemonSet;

    fn view(self) -> Option<Self::View> {
        Some(snapshot::DaemonSet::from_api(&self))
    }

    fn store(state: &mut State) -> &mut Store<Self::View> {
        &mut state.daemon_sets
    }

    fn stored(state: &State) -> &Store<Self::View> {
        &state.daemon_sets
    }
}

impl Watched for PodDisruptionBudget {
    type View = snapshot::Pdb;
    const KIND: Kind = Kind::PodDisruptionBudget;

    fn view(self) -> Option<Self::View> {
        Some(snapshot::Pdb::from_api(&self))
    }

    fn store(state: &mut State) -> &mut Store<Self::View> {
        &mut state.budgets
    }

    fn stored(state: &State) -> &Store<Self::View> {
        &state.budgets
    }
}

impl Watched for Namespace {
    type View = snapshot::Namespace;
    const KIND: Kind = Kind::Namespace;

    fn view(self) -> Option<Self::View> {
        Some(snapshot::Namespace::from_api(&self).1)
    }

    fn store(state: &mut State) -> &mut Store<Self::View> {
        &mut state.namespaces
    }

    fn stored(state: &State) -> &Store<Self::View> {
        &state.namespaces
    }
}

impl Watched for PersistentVolume {
    type View = snapshot::PersistentVolume;
    const KIND: Kind = Kind::PersistentVolume;

    fn view(self) -> Option<Self::View> {
        Some(snapshot::PersistentVolume::from_api(&self).1)
    }

    fn store(state: &mut State) -> &mut Store<Self::View> {
        &mut state.volumes
    }

    fn stored(state: &State) -> &Store<Self::View> {
        &state.volumes
    }
}

impl Watched for PersistentVolumeClaim {
    type View = snapshot::VolumeClaim;
    const KIND: Kind = Kind::PersistentVolumeClaim;

    fn view(self) -> Option<Self::View> {
        Some(snapshot::VolumeClaim::from_api(&self).1)
    }

    fn store(state: &mut State) -> &mut Store<Self::View> {
        &mut state.volume_claims
    }

    fn stored(state: &State) -> &Store<Self::View> {
        &state.volume_claims
    }
}

impl Watched for StorageClass {
    type View = snapshot::StorageClass;
    const KIND: Kind = Kind::StorageClass;

    fn view(self) -> Option<Self::View> {
        Some(snapshot::StorageClass::from_api(&self).1)
    }

    fn store(state: &mut State) -> &mut Store<Self::View> {
        &mut state.storage_classes
    }

    fn stored(state: &State) -> &Store<Self::View> {
        &state.storage_classes
    }
}

impl Watched for CSINode {
    type View = BTreeMap<String, usize>;
    const KIND: Kind = Kind::CsiNode;

    fn view(self) -> Option<Self::View> {
        Some(snapshot::attach_limits(&self).1)
    }

    fn store(state: &mut State) -> &mut Store<Self::View> {
        &mut state.attach_limits
    }

    fn stored(state: &State) -> &Store<Self::View> {
        &state.attach_limits
    }
}
