//! A schedule for people: where every pod goes and why there, and for each pool and instance type left out the rule with its
//! facts. Pods that go by one name and share a fate are one entry, nodes alike are one, and so are instance types that fail
//! by the same rule.
//!
//! [`Explanation`] is data, which is printed as text or serialised for programs.

use crate::catalog::InstanceType;
use crate::scheduling::{
    NodesPassedOver, PlannedNode, PoolRefusal, Refusal, Schedule, TypeRule, TypesLeftOut, Unschedulable,
};
use crate::settings::Settings;
use crate::snapshot::{PodName, Snapshot};
use controller_api::labels;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// At most this many names stand in a line; the rest are counted.
const SHOWN_NAMES: usize = 6;

/// A schedule in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What was decided about.
    pub title: String,
    /// How many pods were to be placed.
    pub pods: usize,
    /// Nodes that exist or are coming and take pods.
    pub existing_nodes: Vec<ExistingNode>,
    /// Nodes to launch; those alike are one entry.
    pub new_nodes: Vec<NewNode>,
    /// Pools that take no part.
    pub node_pools_left_out: Vec<Refused>,
    /// Pods without a place.
    pub left_out: Vec<LeftOut>,
}

/// Pods that go by one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    /// The name.
    pub name: String,
    /// How many.
    pub count: usize,
}

/// A node that is there and has room.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExistingNode {
    /// The node, or the NodeClaim of one that is coming.
    pub name: String,
    /// What it takes.
    pub pods: Vec<Pods>,
}

/// A node to launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewNode {
    /// How many of this kind.
    pub count: usize,
    /// Its pool.
    pub node_pool: String,
    /// The pool's weight, where there are several pools.
    pub weight: Option<i32>,
    /// What it is for.
    pub pods: Vec<Pods>,
    /// The cheapest type that would do.
    pub cheapest: Option<Cheapest>,
    /// How many other types would do.
    pub other_instance_types: usize,
    /// What its pods ask for, DaemonSets included.
    pub requests: BTreeMap<String, String>,
    /// What is required of its zone and capacity type.
    pub requirements: Vec<String>,
    /// Pools that come before this one, and why they gave no node.
    pub passed_over: Vec<Refused>,
    /// The pool's types that would not do.
    pub types_left_out: Vec<TypesOut>,
    /// Why nodes that exist were no place for the pod that this one was opened for.
    pub existing_nodes: Vec<NodesOut>,
}

/// An instance type with its price.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cheapest {
    /// Its name.
    pub instance_type: String,
    /// US dollars per hour, of the cheapest offering that would do.
    pub price: f64,
}

/// Why a pool gives no node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The pool.
    pub node_pool: String,
    /// Why.
    pub reason: String,
    /// Where it is for want of a type: what each lacks.
    pub instance_types: Vec<TypesOut>,
}

/// Instance types that fail by the same rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TypesOut {
    /// The rule.
    pub rule: String,
    /// What was wanted and what there is.
    pub facts: Option<String>,
    /// The types.
    pub names: Vec<String>,
}

/// Nodes that exist and fail by the same rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesOut {
    /// The rule.
    pub rule: String,
    /// The nodes.
    pub names: Vec<String>,
}

/// Pods that share the reason for which they have no place.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// The pods.
    pub pods: Vec<Pods>,
    /// The reason, where it is the pods' own.
    pub reason: Option<String>,
    /// Why each pool gives no node.
    pub node_pools: Vec<Refused>,
    /// Why nodes that exist are no place.
    pub existing_nodes: Vec<NodesOut>,
}

impl Explanation {
    /// Explains what [`schedule_explained`](crate::scheduling::schedule_explained) made of the snapshot. `name` is what a
    /// pod goes by; pods of one name are counted.
    pub fn of(
        title: &str,
        snapshot: &Snapshot,
        settings: &Settings,
        schedule: &Schedule,
        name: &dyn Fn(&PodName) -> String,
    ) -> Self {
        let snapshot = &*snapshot.for_sale(settings);
        let mut fates: Vec<(&Unschedulable, Vec<PodName>)> = Vec::new();
        for (pod, reason) in &schedule.unschedulable {
            match fates.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, pods)) => pods.push(pod.clone()),
                None => fates.push((reason, vec![pod.clone()])),
            }
        }
        let existing = schedule.existing.iter();
        Self {
            title: title.to_owned(),
            pods: schedule.new_nodes.iter().map(|node| node.pods.len()).sum::<usize>()
                + schedule.existing.values().map(Vec::len).sum::<usize>()
                + schedule.unschedulable.len(),
            existing_nodes: existing
                .map(|(node, pods)| ExistingNode { name: node.clone(), pods: counted(pods, name) })
                .collect(),
            new_nodes: new_nodes(snapshot, schedule, name),
            node_pools_left_out: (schedule.pools_left_out.iter())
                .map(|(pool, reason)| {
                    let more = reason.explain().map(|more| format!(": {more}")).unwrap_or_default();
                    Refused { node_pool: pool.clone(), reason: format!("{reason}{more}"), instance_types: Vec::new() }
                })
                .collect(),
            left_out: (fates.into_iter())
                .map(|(reason, pods)| {
                    let nodes = pods.iter().find_map(|pod| schedule.nodes_passed_over.get(pod));
                    let existing_nodes = nodes.map(nodes_out).unwrap_or_default();
                    LeftOut { existing_nodes, ..left_out(reason, counted(&pods, name)) }
                })
                .collect(),
        }
    }
}

fn new_nodes(snapshot: &Snapshot, schedule: &Schedule, name: &dyn Fn(&PodName) -> String) -> Vec<NewNode> {
    let mut nodes: Vec<NewNode> = Vec::new();
    for planned in &schedule.new_nodes {
        let mut node = new_node(snapshot, planned, counted(&planned.pods, name));
        match nodes.iter_mut().find(|known| NewNode { count: 1, ..(*known).clone() } == node) {
            Some(known) => known.count += 1,
            None => {
                node.count = 1;
                nodes.push(node);
            }
        }
    }
    nodes
}

fn new_node(snapshot: &Snapshot, planned: &PlannedNode, pods: Vec<Pods>) -> NewNode {
    let weight = planned.node_pool.spec.weight.unwrap_or(0);
    let required = [labels::ZONE_LABEL, labels::CAPACITY_TYPE_LABEL].into_iter();
    NewNode {
        count: 1,
        node_pool: planned.pool.clone(),
        weight: (snapshot.pools.len() > 1).then_some(weight),
        pods,
        cheapest: planned.instance_types.first().map(|cheapest| Cheapest {
            instance_type: cheapest.name.clone(),
            price: cheapest.cheapest_price(&planned.requirements).unwrap_or(f64::NAN),
        }),
        other_instance_types: planned.instance_types.len().saturating_sub(1),
        requests: planned.requests.iter().map(|(name, quantity)| (name.to_owned(), quantity.to_string())).collect(),
        requirements: required.filter_map(|key| planned.requirements.get(key)).map(ToString::to_string).collect(),
        passed_over: planned.passed_over.iter().map(refused).collect(),
        types_left_out: types_left_out(snapshot, planned),
        existing_nodes: nodes_out(&planned.nodes_passed_over),
    }
}

/// The types of the pool that the finished node cannot be of.
fn types_left_out(snapshot: &Snapshot, planned: &PlannedNode) -> Vec<TypesOut> {
    let Some(pool) = snapshot.pools.get(&planned.pool) else { return Vec::new() };
    let taken: BTreeSet<&str> = planned.instance_types.iter().map(|taken| taken.name.as_str()).collect();
    let mut left_out = TypesLeftOut::new(planned.requirements.clone(), planned.requests.clone());
    for instance_type in pool.instance_types.iter().filter(|known| !taken.contains(known.name.as_str())) {
        let room = &instance_type.allocatable();
        let rule = left_out.rule(instance_type, room).unwrap_or_else(|| beyond(planned, instance_type));
        left_out.add(rule, instance_type, room);
    }
    types_out(&left_out)
}

/// Of a type that would do by itself: what else keeps it out.
fn beyond(planned: &PlannedNode, instance_type: &InstanceType) -> TypeRule {
    let dearest = planned.instance_types.last().and_then(|last| last.cheapest_price(&planned.requirements));
    match (instance_type.cheapest_price(&planned.requirements), dearest) {
        (Some(price), Some(dearest)) if planned.instance_types.len() >= PlannedNode::MOST_TYPES && price >= dearest => {
            TypeRule::Dearer
        }
        _ => TypeRule::Beyond,
    }
}

fn left_out(reason: &Unschedulable, pods: Vec<Pods>) -> LeftOut {
    match reason {
        Unschedulable::NoPoolFits(refusals) => LeftOut {
            pods,
            reason: None,
            node_pools: refusals.iter().map(refused).collect(),
            existing_nodes: Vec::new(),
        },
        reason => {
            LeftOut { pods, reason: Some(reason.to_string()), node_pools: Vec::new(), existing_nodes: Vec::new() }
        }
    }
}

fn refused(PoolRefusal { pool, refusal }: &PoolRefusal) -> Refused {
    let (reason, instance_types) = match refusal {
        Refusal::InstanceTypes(none) => (none.short(), types_out(&none.types)),
        // Our own sentence where there is one: it says what upstream's words say, and more.
        refusal => (refusal.explain().unwrap_or_else(|| refusal.to_string()), Vec::new()),
    };
    Refused { node_pool: pool.clone(), reason, instance_types }
}

fn types_out(left_out: &TypesLeftOut) -> Vec<TypesOut> {
    let rules = left_out.by_rule().iter();
    rules
        .map(|(rule, names)| TypesOut {
            rule: rule.to_string(),
            facts: left_out.facts(rule),
            names: names.iter().cloned().collect(),
        })
        .collect()
}

fn nodes_out(passed_over: &NodesPassedOver) -> Vec<NodesOut> {
    passed_over.iter().map(|(rule, names)| NodesOut { rule: rule.to_string(), names: names.clone() }).collect()
}

fn counted(pods: &[PodName], name: &dyn Fn(&PodName) -> String) -> Vec<Pods> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    pods.iter().for_each(|pod| *counts.entry(name(pod)).or_default() += 1);
    counts.into_iter().map(|(name, count)| Pods { name, count }).collect()
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let new: usize = self.new_nodes.iter().map(|node| node.count).sum();
        writeln!(f, "{}: pods {}, new nodes {new}", self.title, self.pods)?;
        if self.pods == 0 {
            writeln!(f, "  no pod waits for a node")?;
        }
        for ExistingNode { name, pods } in &self.existing_nodes {
            writeln!(f, "  node {name} has room for {}", Names(pods))?;
        }
        self.new_nodes.iter().try_for_each(|node| node.fmt(f))?;
        for Refused { node_pool, reason, .. } in &self.node_pools_left_out {
            writeln!(f, "  NodePool {node_pool} takes no part, {reason}")?;
        }
        for LeftOut { pods, reason, node_pools, existing_nodes } in &self.left_out {
            writeln!(f, "  left out: {}", Names(pods))?;
            if let Some(reason) = reason {
                writeln!(f, "    {reason}")?;
            }
            existing_nodes.iter().try_for_each(|nodes| nodes.fmt(f))?;
            node_pools.iter().try_for_each(|refused| refused.write(f, ""))?;
        }
        Ok(())
    }
}

impl fmt::Display for NewNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, node_pool, pods, .. } = self;
        match count {
            1 => writeln!(f, "  a new node of NodePool {node_pool} for {}", Names(pods))?,
            _ => writeln!(f, "  {count} new nodes of NodePool {node_pool}, each for {}", Names(pods))?,
        }
        self.existing_nodes.iter().try_for_each(|nodes| nodes.fmt(f))?;
        self.passed_over.iter().try_for_each(|refused| refused.write(f, ", which comes first"))?;
        f.write_str("    ")?;
        if let Some(weight) = self.weight {
            write!(f, "of weight {weight}, the first in order that can give one; ")?;
        }
        if let Some(Cheapest { instance_type, price }) = &self.cheapest {
            let others = match self.other_instance_types {
                0 => "no other type".to_owned(),
                1 => "1 more type".to_owned(),
                more => format!("{more} more types"),
            };
            writeln!(f, "cheapest {instance_type} at ${price:.4}/h, {others} would do")?;
        }
        let requests: Vec<String> = self.requests.iter().map(|(name, amount)| format!("{amount} {name}")).collect();
        writeln!(f, "    asks for {} with DaemonSets", requests.join(", "))?;
        if !self.requirements.is_empty() {
            writeln!(f, "    {}", self.requirements.join(", "))?;
        }
        self.types_left_out.iter().try_for_each(|types| types.write(f, "    "))
    }
}

impl Refused {
    fn write(&self, f: &mut fmt::Formatter<'_>, which: &str) -> fmt::Result {
        writeln!(f, "    NodePool {}{which}: {}", self.node_pool, self.reason)?;
        self.instance_types.iter().try_for_each(|types| types.write(f, "      "))
    }
}

impl TypesOut {
    fn write(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        let Self { rule, facts, names } = self;
        let plural = if names.len() == 1 { "type" } else { "types" };
        let facts = facts.as_ref().map(|facts| format!(" ({facts})")).unwrap_or_default();
        writeln!(f, "{indent}{} {plural}, {rule}{facts}: {}", names.len(), some(names))
    }
}

impl fmt::Display for NodesOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.names.len() == 1 { "node" } else { "nodes" };
        writeln!(f, "    no place on {} {plural} {}: {}", self.names.len(), self.rule, some(&self.names))
    }
}

/// The first names, and how many more there are.
fn some(names: &[String]) -> String {
    let rest = names.len().saturating_sub(SHOWN_NAMES);
    let shown = names[..names.len() - rest].join(", ");
    if rest == 0 { shown } else { format!("{shown} and {rest} more") }
}

/// Pods in one line.
struct Names<'a>(&'a [Pods]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |Pods { name, count }: &Pods| match count {
            1 => name.clone(),
            _ => format!("{count} × {name}"),
        };
        f.write_str(&self.0.iter().map(text).collect::<Vec<_>>().join(", "))
    }
}
