//! Which nodes may be disrupted at all, and every reason why one may not (core spec §7.3).

use super::Reason;
use crate::catalog::{CapacityType, InstanceType};
use crate::snapshot::{EvictionBlock, Pdb, PdbMode, Pod, PodName, Pool, Snapshot, StateNode, blocking_pdb};
use controller_api::labels;
use std::fmt;
use std::sync::Arc;

/// A node that may be disrupted.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The node.
    pub node: &'a StateNode,
    /// Its pool.
    pub pool: &'a Pool,
    /// Its instance type, if the pool still knows it.
    pub instance_type: Option<Arc<InstanceType>>,
    /// Its market, by label.
    pub capacity_type: Option<CapacityType>,
    /// Its zone, by label.
    pub zone: Option<&'a str>,
    /// Pods that will need another place.
    pub reschedulable: Vec<&'a Arc<Pod>>,
    /// Dollars per hour; 0 if unknown.
    pub price: f64,
    /// 1, plus what it costs to move each pod.
    pub disruption_cost: f64,
}

/// How patient a method is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisruptionClass {
    /// Pods that forbid disruption keep their node.
    Graceful,
    /// They do not, if the node's termination grace period bounds the wait.
    Eventual,
}

/// Why a node is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// Somebody else's node.
    NotManaged,
    /// There is no Node yet.
    NoNode,
    /// It has not been ready for pods yet.
    NotInitialized,
    /// It goes away already.
    Deleting,
    /// It is reserved for pods that were planned for it.
    Nominated,
    /// It carries the annotation that forbids disruption.
    DoNotDisrupt,
    /// It lacks the label of its pool.
    NoPoolLabel,
    /// Its pool is gone, or resolves to no instance types.
    PoolNotFound {
        /// The pool's name.
        pool: String,
    },
    /// A pod forbids disruption.
    PodDoNotDisrupt {
        /// The pod.
        pod: PodName,
    },
    /// Budgets of its pods allow no eviction now.
    PodDisruptionBudget {
        /// The pod.
        pod: PodName,
        /// The budgets.
        block: EvictionBlock,
    },
    /// Its pool keeps a fixed number of nodes.
    StaticPool,
    /// Its pool never consolidates.
    ConsolidationDisabled {
        /// The pool's name.
        pool: String,
    },
    /// It has pods that would have to move.
    NotEmpty {
        /// How many.
        pods: usize,
    },
    /// Pods have come or gone too recently.
    NotConsolidatable,
    /// The pool's budget for this reason is spent.
    PoolBudgetSpent {
        /// The pool's name.
        pool: String,
        /// The reason.
        reason: Reason,
    },
}

/// Checks one node and gathers what methods need to know of it. `bound` are the pods on it that have not finished.
pub fn candidate<'a>(
    snapshot: &'a Snapshot,
    node: &'a StateNode,
    bound: &[&'a Arc<Pod>],
    class: DisruptionClass,
) -> Result<Candidate<'a>, Ineligible> {
    check_node(snapshot, node)?;
    let name = node.pool().ok_or(Ineligible::NoPoolLabel)?;
    let pool = snapshot.pools.get(name).filter(|pool| !pool.instance_types.is_empty());
    let pool = pool.ok_or_else(|| Ineligible::PoolNotFound { pool: name.to_owned() })?;
    let bounded = node.claim.as_ref().is_some_and(|claim| claim.spec.termination_grace_period.is_some());
    if class == DisruptionClass::Graceful || !bounded {
        check_pods(snapshot, bound)?;
    }
    let label = |key: &str| node.labels().get(key).map(String::as_str);
    let instance_type = label(labels::INSTANCE_TYPE_LABEL).and_then(|name| pool.instance_type(name)).cloned();
    let capacity_type = label(labels::CAPACITY_TYPE_LABEL).and_then(CapacityType::from_label);
    let zone = label(labels::ZONE_LABEL);
    let offering = instance_type
        .iter()
        .flat_map(|instance_type| &instance_type.offerings)
        .find(|offering| Some(offering.capacity_type) == capacity_type && Some(offering.zone.as_str()) == zone);
    let price = offering.map_or(0.0, |offering| offering.price);
    let reschedulable: Vec<&Arc<Pod>> = bound.iter().copied().filter(|pod| pod.is_reschedulable()).collect();
    let disruption_cost = 1.0 + reschedulable.iter().map(|pod| pod.eviction_cost().max(0.0)).sum::<f64>();
    Ok(Candidate { node, pool, instance_type, capacity_type, zone, reschedulable, price, disruption_cost })
}

fn check_node(snapshot: &Snapshot, node: &StateNode) -> Result<(), Ineligible> {
    if node.claim.is_none() {
        return Err(Ineligible::NotManaged);
    }
    if node.node.is_none() {
        return Err(Ineligible::NoNode);
    }
    if !node.is_initialized() {
        return Err(Ineligible::NotInitialized);
    }
    if node.is_marked_for_deletion() {
        return Err(Ineligible::Deleting);
    }
    if node.is_nominated(snapshot.now) {
        return Err(Ineligible::Nominated);
    }
    // On nodes only the exact value counts, unlike on pods.
    if node.annotations().get(labels::DO_NOT_DISRUPT_ANNOTATION).is_some_and(|value| value == "true") {
        return Err(Ineligible::DoNotDisrupt);
    }
    Ok(())
}

fn check_pods(snapshot: &Snapshot, bound: &[&Arc<Pod>]) -> Result<(), Ineligible> {
    if let Some(pod) = bound.iter().find(|pod| !pod.is_disruptable(snapshot.now)) {
        return Err(Ineligible::PodDoNotDisrupt { pod: pod.name.clone() });
    }
    let budgets: &[Arc<Pdb>] = &snapshot.pod_disruption_budgets;
    for pod in bound {
        if let Some(block) = blocking_pdb(pod, budgets, PdbMode::ZeroDisruptions, snapshot.now) {
            return Err(Ineligible::PodDisruptionBudget { pod: pod.name.clone(), block });
        }
    }
    Ok(())
}

impl Candidate<'_> {
    /// Whether taking the node away disturbs nobody. A notion of cost rather than of number: pods that cost nothing to
    /// move do not count.
    pub fn is_empty(&self) -> bool {
        self.disruption_cost <= 1.0
    }
}

impl Ineligible {
    /// The reason of the event that tells it on Node and NodeClaim; `None` for what goes without saying.
    pub fn event_reason(&self) -> Option<&'static str> {
        match self {
            Self::NotManaged | Self::StaticPool | Self::NotEmpty { .. } | Self::NotConsolidatable => None,
            Self::PoolBudgetSpent { .. } => None,
            Self::ConsolidationDisabled { .. } => Some("Unconsolidatable"),
            Self::NoNode
            | Self::NotInitialized
            | Self::Deleting
            | Self::Nominated
            | Self::DoNotDisrupt
            | Self::NoPoolLabel
            | Self::PoolNotFound { .. }
            | Self::PodDoNotDisrupt { .. }
            | Self::PodDisruptionBudget { .. } => Some("DisruptionBlocked"),
        }
    }

    /// The text as a sentence, for events.
    pub fn message(&self) -> String {
        let text = self.to_string();
        let mut characters = text.chars();
        characters
            .next()
            .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + characters.as_str())
    }
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotManaged => f.write_str("node isn't managed by karpenter"),
            Self::NoNode => f.write_str("nodeclaim does not have an associated node"),
            Self::NotInitialized => f.write_str("node isn't initialized"),
            Self::Deleting => f.write_str("node is deleting or marked for deletion"),
            Self::Nominated => f.write_str("node is nominated for a pending pod"),
            Self::DoNotDisrupt => {
                write!(f, "disruption is blocked through the {:?} annotation", labels::DO_NOT_DISRUPT_ANNOTATION)
            }
            Self::NoPoolLabel => write!(f, "node doesn't have required label (label={})", labels::NODE_POOL_LABEL),
            Self::PoolNotFound { pool } => write!(f, "NodePool not found (NodePool={pool})"),
            Self::PodDoNotDisrupt { pod } => {
                write!(f, "pod has {:?} annotation (Pod={pod})", labels::DO_NOT_DISRUPT_ANNOTATION)
            }
            Self::PodDisruptionBudget { block: EvictionBlock::MultiplePdbs(budgets), .. } => {
                let names: Vec<String> = budgets.iter().map(ToString::to_string).collect();
                write!(f, "eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{}])", names.join(" "))
            }
            Self::PodDisruptionBudget { block: EvictionBlock::Pdb(budget), .. } => {
                write!(f, "pdb prevents pod evictions (PodDisruptionBudget={budget})")
            }
            Self::StaticPool => f.write_str("node belongs to a static nodepool"),
            Self::ConsolidationDisabled { pool } => write!(f, "NodePool {pool:?} has consolidation disabled"),
            Self::NotEmpty { pods } => write!(f, "node is not empty (pods={pods})"),
            Self::NotConsolidatable => f.write_str("node isn't consolidatable yet"),
            Self::PoolBudgetSpent { pool, reason } => {
                write!(f, "disruption budget of nodepool {pool:?} for reason {reason} is spent")
            }
        }
    }
}
