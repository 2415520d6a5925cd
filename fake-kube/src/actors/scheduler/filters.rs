//! May this pod go to this node, and if not, why not: the filter plugins of kube-scheduler in their default order, with
//! their sentences.
//!
//! Ranking is simpler than the genuine one, which adds up normalised scores: fewest `PreferNoSchedule` taints not
//! tolerated, then preferred node and pod affinity and soft spreading, then least allocated CPU and memory (as the
//! genuine plugin of that name), then the name. Image locality and balanced allocation are left out.

use std::fmt;

use super::super::needs::Needs;
use super::super::objects::{Node, Taint};
use super::cluster::Place;
use super::relations::Relations;

/// Why a pod cannot go to a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    Unschedulable,
    Taint,
    NodeAffinity,
    Ports,
    TooManyPods,
    /// The resource, and whether even the empty node would lack it.
    Insufficient(String, Shortage),
    /// What is wrong with the pod's claims is the same everywhere; the survey has the sentence.
    Claims,
    VolumeNodeAffinity,
    NoVolume,
    VolumeZone,
    SpreadLabelMissing,
    Spread,
    PodAffinity,
    PodAntiAffinity,
    ExistingAntiAffinity,
    /// The pod names its nodes, and this is not one.
    LeftOut,
    /// For preemption: nothing that could leave the node would help.
    PreemptionNotHelpful,
    /// For preemption: nothing of lower priority is there.
    NoVictims,
}

/// How lasting a lack of resources is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shortage {
    Now,
    Always,
}

impl Reason {
    /// Whether removing pods from the node could help.
    pub(super) fn preemption_may_help(&self) -> bool {
        match self {
            Self::Insufficient(_, shortage) => *shortage == Shortage::Now,
            Self::Ports | Self::TooManyPods | Self::Spread | Self::PodAntiAffinity | Self::ExistingAntiAffinity => true,
            Self::Unschedulable | Self::Taint | Self::NodeAffinity | Self::SpreadLabelMissing | Self::PodAffinity => {
                false
            }
            Self::Claims | Self::VolumeNodeAffinity | Self::NoVolume | Self::VolumeZone => false,
            Self::LeftOut | Self::PreemptionNotHelpful | Self::NoVictims => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::LeftOut => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            Self::PreemptionNotHelpful => "Preemption is not helpful for scheduling",
            Self::NoVictims => "No preemption victims found for incoming pod",
            // Since 1.34.2 the taint itself is not told, as its value may be nobody's business.
            Self::Taint => "node(s) had untolerated taint(s)",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::Ports => "node(s) didn't have free ports for the requested pod ports",
            Self::TooManyPods => "Too many pods",
            Self::Insufficient(resource, _) => return write!(formatter, "Insufficient {resource}"),
            Self::Claims => "node(s) were not looked at for the Pod's claims",
            Self::VolumeNodeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Self::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Self::VolumeZone => "node(s) had no available volume zone",
            Self::SpreadLabelMissing => "node(s) didn't match pod topology spread constraints (missing required label)",
            Self::Spread => "node(s) didn't match pod topology spread constraints",
            Self::PodAffinity => "node(s) didn't match pod affinity rules",
            Self::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
        })
    }
}

/// Every reason of the first plugin that refuses; empty when the pod fits.
pub(super) fn reasons(needs: &Needs, node: &Node, place: &Place, relations: Option<&Relations>) -> Vec<Reason> {
    if let Some(reason) = refused_by_node(needs, node) {
        return vec![reason];
    }
    if needs.ports.iter().any(|port| place.ports.iter().any(|taken| taken.conflicts(port))) {
        return vec![Reason::Ports];
    }
    let mut reasons = vec![];
    if place.pods.len() as i64 >= node.allocatable.get("pods") {
        reasons.push(Reason::TooManyPods);
    }
    for (resource, amount) in needs.requests.iter().filter(|(_, amount)| *amount > 0) {
        let allocatable = node.allocatable.get(resource);
        if amount > allocatable - place.requested.get(resource) {
            let shortage = if amount > allocatable { Shortage::Always } else { Shortage::Now };
            reasons.push(Reason::Insufficient(resource.to_owned(), shortage));
        }
    }
    if reasons.is_empty() {
        reasons = relations.map_or(vec![], |relations| relations.refuse(node));
    }
    reasons
}

/// Like [`reasons`], for the many cases in which nobody asks why; cheap checks first.
pub(super) fn fits(needs: &Needs, place: &Place, relations: Option<&Relations>) -> bool {
    let Some(node) = &place.node else { return false };
    (place.pods.len() as i64) < node.allocatable.get("pods")
        && needs.requests.iter().all(|(resource, amount)| {
            amount <= 0 || amount <= node.allocatable.get(resource) - place.requested.get(resource)
        })
        && refused_by_node(needs, node).is_none()
        && !needs.ports.iter().any(|port| place.ports.iter().any(|taken| taken.conflicts(port)))
        && relations.is_none_or(|relations| relations.refuse(node).is_empty())
}

/// What the node itself refuses, whatever runs on it.
fn refused_by_node(needs: &Needs, node: &Node) -> Option<Reason> {
    if node.unschedulable {
        let key = "node.kubernetes.io/unschedulable";
        let taint = Taint { key: key.to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
        if !needs.tolerates(&taint) {
            return Some(Reason::Unschedulable);
        }
    }
    if needs.untolerated(&node.taints).is_some() {
        return Some(Reason::Taint);
    }
    (!needs.selects(&node.name, &node.labels)).then_some(Reason::NodeAffinity)
}

/// How good a node is for a pod; larger is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    unwelcome: i64,
    preference: i64,
    free: i64,
}

pub(super) fn score(needs: &Needs, node: &Node, place: &Place, relations: Option<&Relations>) -> Score {
    let unwelcome = node.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule" && !needs.tolerates(taint));
    let free = |resource: &str, used: i64| {
        let allocatable = node.allocatable.get(resource);
        if allocatable <= 0 { 0 } else { (allocatable - used).max(0).saturating_mul(100) / allocatable }
    };
    Score {
        unwelcome: -(unwelcome.count() as i64),
        preference: needs.preference(node) + relations.map_or(0, |relations| relations.preference(node)),
        free: (free("cpu", place.scored.0 + needs.scored.0) + free("memory", place.scored.1 + needs.scored.1)) / 2,
    }
}
