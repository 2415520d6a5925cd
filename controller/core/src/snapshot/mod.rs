//! The world at one instant, as decisions see it.
//!
//! Raw objects are parsed once, each kind in its own file, into types where a missing field is no longer a question. A
//! snapshot shares those parsed objects, so that building one costs no more than cloning pointers.

mod daemons;
mod namespace;
mod node;
mod pdb;
mod pod;
mod pool;
mod storage;

pub mod builder;

pub use daemons::DaemonSet;
pub use namespace::Namespace;
pub use node::StateNode;
pub use pdb::{EvictionBlock, Pdb, PdbMode, blocking_pdb};
pub use pod::{
    AffinityTerm, DoNotDisrupt, MatchExpressions, Owner, OwnerKind, Phase, Pod, PodAffinity, PodName, PodVolume,
    PreferredTerm, SpreadConstraint, WeightedTerm,
};
pub use pool::Pool;
pub(crate) use pool::node_class_label;
pub use storage::{PersistentVolume, Storage, StorageClass, VolumeClaim, attach_limits};

use crate::settings::Settings;
use jiff::Timestamp;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything a decision may see.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The instant all of this held at.
    pub now: Timestamp,
    /// NodePools by name, ready or not.
    pub pools: BTreeMap<String, Pool>,
    /// Nodes and NodeClaims, joined, by [`StateNode::name`].
    pub nodes: BTreeMap<String, StateNode>,
    /// Every live pod, bound or not.
    pub pods: BTreeMap<PodName, Arc<Pod>>,
    /// DaemonSets, whose pods every new node carries.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// PodDisruptionBudgets.
    pub pod_disruption_budgets: Vec<Arc<Pdb>>,
    /// Namespaces by name.
    pub namespaces: BTreeMap<String, Namespace>,
    /// Volumes and what belongs to them; `None` where nobody watches them: then they constrain nothing.
    pub storage: Option<Arc<Storage>>,
}

impl Snapshot {
    /// An empty world.
    pub fn empty(now: Timestamp) -> Self {
        Self {
            now,
            pools: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            daemon_sets: Vec::new(),
            pod_disruption_budgets: Vec::new(),
            namespaces: BTreeMap::new(),
            storage: None,
        }
    }

    /// The world with what the settings allow to be bought: while the gate `ReservedCapacity` is closed, reservations are as
    /// good as not there.
    pub fn for_sale(&self, settings: &Settings) -> Cow<'_, Self> {
        let sells_reservations = self.pools.values().any(Pool::sells_reservations);
        if settings.reserved_capacity || !sells_reservations {
            return Cow::Borrowed(self);
        }
        let pools = self.pools.iter().map(|(name, pool)| (name.clone(), pool.without_reservations()));
        Cow::Owned(Self { pools: pools.collect(), ..self.clone() })
    }

    /// Bound pods that have not finished, by the Node they are bound to.
    pub fn pods_by_node(&self) -> BTreeMap<&str, Vec<&Arc<Pod>>> {
        let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in self.pods.values().filter(|pod| !pod.is_terminal()) {
            if let Some(node) = &pod.node_name {
                by_node.entry(node.as_str()).or_default().push(pod);
            }
        }
        by_node
    }

    /// Bound pods of one Node that have not finished.
    pub fn pods_on<'a>(&'a self, node_name: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.pods.values().filter(move |pod| !pod.is_terminal() && pod.node_name.as_deref() == Some(node_name))
    }

    /// Whether a bound pod needs another place when its node goes, and may be moved now (core spec §6.2
    /// *CurrentlyReschedulable*): pods that forbid disruption or that a budget forbids to move for good stay out.
    pub fn is_currently_reschedulable(&self, pod: &Pod) -> bool {
        pod.is_reschedulable()
            && pod.is_disruptable(self.now)
            && blocking_pdb(pod, &self.pod_disruption_budgets, PdbMode::FullyBlocking, self.now).is_none()
    }
}
