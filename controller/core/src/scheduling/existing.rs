//! Placing pods on nodes that exist or are coming up (core spec §3.6).

use super::amounts::{self, Axes, Row};
use super::ask::PodClass;
use super::reason::NodeRule;
use super::topology::{HostId, Topology};
use super::volumes;
use crate::host_ports::{self, HostPort};
use crate::requirement::Requirement;
use crate::requirements::{AllowUndefined, Requirements};
use crate::resources::Resources;
use crate::snapshot::{OwnerKind, Pod, PodName, StateNode, Storage};
use crate::taints;
use k8s_openapi::api::core::v1::Taint;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node with what is left of it.
pub(super) struct ExistingNode<'a> {
    pub(super) name: &'a str,
    pub(super) initialized: bool,
    pub(super) pods: Vec<PodName>,
    pub(super) taints: &'a [Taint],
    pub(super) host: HostId,
    pub(super) labels: Arc<Requirements>,
    room: Row,
    host_ports: Vec<HostPort>,
    /// Drivers with a limit on this node: the limit, and the claims that are attached.
    volumes: BTreeMap<&'a str, (usize, BTreeSet<PodName>)>,
}

impl<'a> ExistingNode<'a> {
    /// What `node` has left beside the pods bound to it and the DaemonSet pods that are still to come.
    pub(super) fn new(
        node: &'a StateNode,
        bound: &[&Arc<Pod>],
        daemons: &[Pod],
        axes: &Axes,
        storage: Option<&'a Storage>,
    ) -> Self {
        let labels = node.requirements();
        let mut expected = Resources::new();
        for daemon in daemons {
            let tolerated = taints::tolerates(node.taints(), &daemon.tolerations).is_ok();
            if tolerated && labels.is_compatible(&daemon.strict_requirements(), AllowUndefined::None) {
                expected.add(&daemon.requests);
            }
        }
        let mut used = Resources::new();
        for pod in bound {
            used.add(&pod.requests);
            if pod.is_owned_by(OwnerKind::DaemonSet) {
                expected.subtract(&pod.requests);
            }
        }
        expected.floor_at_zero();
        let remaining = node.allocatable().minus(&used).minus(&expected);
        let limits = node.node_name().and_then(|name| storage?.attach_limits.get(name)).into_iter().flatten();
        let mut volumes: BTreeMap<&str, (usize, BTreeSet<PodName>)> =
            limits.map(|(driver, limit)| (driver.as_str(), (*limit, BTreeSet::new()))).collect();
        let storage = storage.filter(|_| !volumes.is_empty());
        let claims = storage.map(|storage| bound.iter().flat_map(|pod| volumes::attached(pod, storage)));
        for (driver, claim) in claims.into_iter().flatten() {
            if let Some((_, claims)) = volumes.get_mut(driver.as_str()) {
                claims.insert(claim);
            }
        }
        Self {
            name: node.name(),
            initialized: node.is_initialized(),
            pods: Vec::new(),
            taints: node.taints(),
            host: HostId(usize::MAX),
            labels: Arc::clone(labels),
            room: axes.room(&remaining),
            host_ports: bound.iter().flat_map(|pod| pod.host_ports.iter().cloned()).collect(),
            volumes,
        }
    }

    /// Whether the node's labels meet the expression.
    pub(super) fn meets(&self, expression: &Requirement) -> bool {
        match self.labels.get(expression.key()).and_then(Requirement::single_value) {
            Some(value) => expression.has(value),
            None => expression.is_negative(),
        }
    }

    /// Whether there is room for a pod of the class, its ports and its volumes.
    pub(super) fn has_room(&self, class: &PodClass<'_>) -> bool {
        class.amounts.iter().zip(&self.room).all(|(wanted, room)| wanted <= room)
            && (class.pod.host_ports.is_empty() || !host_ports::conflict(&self.host_ports, &class.pod.host_ports))
            && (class.attached.is_empty() || self.attaches(&class.attached))
    }

    /// What a node whose labels and taints are right lacks for a pod of the class; none if it has room.
    pub(super) fn lacks(&self, class: &PodClass<'_>, axes: &Axes) -> Option<NodeRule> {
        let names = axes.short(&class.amounts, &self.room);
        if !names.is_empty() {
            return Some(NodeRule::Resources { names });
        }
        if host_ports::conflict(&self.host_ports, &class.pod.host_ports) {
            return Some(NodeRule::HostPort);
        }
        (!self.attaches(&class.attached)).then_some(NodeRule::AttachLimit)
    }

    fn attaches(&self, claims: &[(String, PodName)]) -> bool {
        self.volumes.iter().all(|(driver, (limit, attached))| {
            let new = claims.iter().filter(|(d, claim)| d == driver && !attached.contains(claim));
            let new: BTreeSet<&PodName> = new.map(|(_, claim)| claim).collect();
            // A node may be over its limit already; what adds nothing is let in.
            new.is_empty() || attached.len() + new.len() <= *limit
        })
    }

    /// Plans the pod here.
    pub(super) fn place(&mut self, class: &PodClass<'_>, pod: &PodName) {
        amounts::subtract(&mut self.room, &class.amounts);
        self.host_ports.extend(class.pod.host_ports.iter().cloned());
        for (driver, claim) in &class.attached {
            if let Some((_, attached)) = self.volumes.get_mut(driver.as_str()) {
                attached.insert(claim.clone());
            }
        }
        self.pods.push(pod.clone());
    }

    /// Makes the node known as a place in the topology.
    pub(super) fn join(&mut self, topology: &mut Topology<'a>) {
        self.host = topology.add_existing(self.taints, Arc::clone(&self.labels));
    }
}
