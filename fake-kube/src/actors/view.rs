//! The cluster as the actors see it: an ordered copy of every watched kind, with the look-ups they share. Only the event
//! loop changes it, one watch event at a time, and tells every actor what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::objects::{Key, Node, Pod, controller_of};
use crate::resources::{self, Resource};

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Namespace,
    Node,
    Lease,
    StorageClass,
    Volume,
    Claim,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    Budget,
    Pod,
}

impl Kind {
    pub(crate) const ALL: [Self; 13] = [
        Self::Namespace,
        Self::Node,
        Self::Lease,
        Self::StorageClass,
        Self::Volume,
        Self::Claim,
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
        Self::Budget,
        Self::Pod,
    ];

    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::Namespace => resources::NAMESPACES,
            Self::Node => resources::NODES,
            Self::Lease => resources::LEASES,
            Self::StorageClass => resources::STORAGE_CLASSES,
            Self::Volume => resources::PERSISTENT_VOLUMES,
            Self::Claim => resources::PERSISTENT_VOLUME_CLAIMS,
            Self::Deployment => resources::DEPLOYMENTS,
            Self::ReplicaSet => resources::REPLICA_SETS,
            Self::StatefulSet => resources::STATEFUL_SETS,
            Self::DaemonSet => resources::DAEMON_SETS,
            Self::Job => resources::JOBS,
            Self::Budget => resources::POD_DISRUPTION_BUDGETS,
            Self::Pod => resources::PODS,
        }
    }
}

/// One change of the view: what was there before and what is there now.
pub(crate) enum Change {
    Pod { before: Option<Arc<Pod>>, after: Option<Arc<Pod>> },
    Node { before: Option<Arc<Node>>, after: Option<Arc<Node>> },
    Other { kind: Kind, key: Key, before: Option<Arc<Value>>, after: Option<Arc<Value>> },
}

/// The watched state.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) pods: BTreeMap<Key, Arc<Pod>>,
    pub(crate) nodes: BTreeMap<String, Arc<Node>>,
    objects: BTreeMap<Kind, BTreeMap<Key, Arc<Value>>>,
    pods_by_owner: BTreeMap<String, BTreeSet<Key>>,
    pods_by_node: BTreeMap<String, BTreeSet<Key>>,
    pods_without_owner: BTreeSet<Key>,
    replica_sets_by_owner: BTreeMap<String, BTreeSet<Key>>,
}

impl View {
    /// Takes in one watch event; `None` when it tells nothing new.
    pub(crate) fn apply(&mut self, kind: Kind, object: Arc<Value>, deleted: bool) -> Option<Change> {
        let key = Key::of(&object);
        match kind {
            Kind::Pod => {
                let before = self.pods.remove(&key);
                if let Some(pod) = &before {
                    self.index_pod(pod, false);
                }
                let after = (!deleted).then(|| Arc::new(Pod::parse(object)));
                if let Some(pod) = &after {
                    if let Some(before) = &before {
                        pod.inherit(before);
                    }
                    self.index_pod(pod, true);
                    self.pods.insert(key, pod.clone());
                }
                (before.is_some() || after.is_some()).then_some(Change::Pod { before, after })
            }
            Kind::Node => {
                let before = self.nodes.remove(&key.name);
                let after = (!deleted).then(|| Arc::new(Node::parse(object)));
                if let Some(node) = &after {
                    self.nodes.insert(key.name, node.clone());
                }
                (before.is_some() || after.is_some()).then_some(Change::Node { before, after })
            }
            _ => {
                let objects = self.objects.entry(kind).or_default();
                let before = objects.remove(&key);
                let after = (!deleted).then_some(object);
                if let Some(object) = &after {
                    objects.insert(key.clone(), object.clone());
                }
                if kind == Kind::ReplicaSet {
                    for (object, present) in [(&before, false), (&after, true)] {
                        if let Some(owner) = object.as_ref().and_then(|object| controller_of(object)) {
                            index(&mut self.replica_sets_by_owner, &owner.uid, &key, present);
                        }
                    }
                }
                (before.is_some() || after.is_some()).then_some(Change::Other { kind, key, before, after })
            }
        }
    }

    fn index_pod(&mut self, pod: &Pod, present: bool) {
        match &pod.owner {
            Some(owner) => index(&mut self.pods_by_owner, &owner.uid, &pod.key, present),
            None if present => drop(self.pods_without_owner.insert(pod.key.clone())),
            None => drop(self.pods_without_owner.remove(&pod.key)),
        }
        if !pod.node_name.is_empty() {
            index(&mut self.pods_by_node, &pod.node_name, &pod.key, present);
        }
    }

    pub(crate) fn get(&self, kind: Kind, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(&kind)?.get(key)
    }

    /// All objects of a kind other than pods and nodes.
    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.get(&kind).into_iter().flatten()
    }

    /// The objects of a kind in one namespace.
    pub(crate) fn in_namespace(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        let first = Key { namespace: namespace.to_owned(), name: String::new() };
        let objects = self.objects.get(&kind).into_iter().flat_map(move |objects| objects.range(first.clone()..));
        objects.take_while(move |(key, _)| key.namespace == namespace)
    }

    pub(crate) fn pods_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<Pod>> {
        let first = Key { namespace: namespace.to_owned(), name: String::new() };
        self.pods.range(first..).take_while(move |(key, _)| key.namespace == namespace).map(|(_, pod)| pod)
    }

    /// The pods that this object controls.
    pub(crate) fn pods_of(&self, owner: &Value) -> Vec<Arc<Pod>> {
        let uid = owner["metadata"]["uid"].as_str().unwrap_or_default();
        self.lookup(self.pods_by_owner.get(uid))
    }

    pub(crate) fn pods_on(&self, node_name: &str) -> Vec<Arc<Pod>> {
        self.lookup(self.pods_by_node.get(node_name))
    }

    /// Pods of the namespace that no controller owns.
    pub(crate) fn pods_without_owner(&self, namespace: &str) -> Vec<Arc<Pod>> {
        let first = Key { namespace: namespace.to_owned(), name: String::new() };
        let keys = self.pods_without_owner.range(first..).take_while(|key| key.namespace == namespace);
        keys.filter_map(|key| self.pods.get(key)).cloned().collect()
    }

    /// The ReplicaSets that this object controls.
    pub(crate) fn replica_sets_of(&self, owner: &Value) -> Vec<Arc<Value>> {
        let uid = owner["metadata"]["uid"].as_str().unwrap_or_default();
        let keys = self.replica_sets_by_owner.get(uid).into_iter().flatten();
        keys.filter_map(|key| self.get(Kind::ReplicaSet, key)).cloned().collect()
    }

    fn lookup(&self, keys: Option<&BTreeSet<Key>>) -> Vec<Arc<Pod>> {
        keys.into_iter().flatten().filter_map(|key| self.pods.get(key)).cloned().collect()
    }
}

fn index(map: &mut BTreeMap<String, BTreeSet<Key>>, under: &str, key: &Key, present: bool) {
    if present {
        map.entry(under.to_owned()).or_default().insert(key.clone());
    } else if let Some(keys) = map.get_mut(under) {
        keys.remove(key);
        if keys.is_empty() {
            map.remove(under);
        }
    }
}
