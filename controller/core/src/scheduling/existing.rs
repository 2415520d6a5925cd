//! Placing pods on nodes that exist or are coming up (core spec §3.6).

use super::amounts::{self, Axes, Row};
use super::preferences::Wishes;
use super::topology::{Place, Topology};
use crate::host_ports::{self, HostPort};
use crate::requirement::Requirement;
use crate::requirements::{AllowUndefined, Requirements};
use crate::resources::Resources;
use crate::snapshot::{OwnerKind, Pod, PodName, StateNode};
use crate::taints;
use controller_api::labels;
use k8s_openapi::api::core::v1::Taint;
use std::sync::Arc;

/// A node with what is left of it.
pub(super) struct ExistingNode<'a> {
    pub(super) name: &'a str,
    pub(super) initialized: bool,
    pub(super) pods: Vec<PodName>,
    taints: &'a [Taint],
    requirements: Requirements,
    room: Row,
    host_ports: Vec<HostPort>,
}

impl<'a> ExistingNode<'a> {
    /// What `node` has left beside the pods bound to it and the DaemonSet pods that are still to come.
    pub(super) fn new(node: &'a StateNode, bound: &[&Arc<Pod>], daemons: &[Pod], axes: &Axes) -> Self {
        let labels = Requirements::from_labels(node.labels());
        let requirements = labels.clone().with(Requirement::equals(labels::HOSTNAME_LABEL, node.hostname()));
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
        Self {
            name: node.name(),
            initialized: node.is_initialized(),
            pods: Vec::new(),
            taints: node.taints(),
            requirements,
            room: axes.room(&remaining),
            host_ports: bound.iter().flat_map(|pod| pod.host_ports.iter().cloned()).collect(),
        }
    }

    /// Whether the pod can run here. Every label it requires must be on the node.
    pub(super) fn takes(&self, wishes: &Wishes<'_>, topology: &Topology) -> bool {
        let none = vec![0; wishes.amounts.len()];
        amounts::fits(&none, &wishes.amounts, &self.room)
            && taints::tolerates(self.taints, &wishes.tolerations).is_ok()
            && !host_ports::conflict(&self.host_ports, &wishes.pod.host_ports)
            && self.requirements.is_compatible(&wishes.requirements, AllowUndefined::None)
            && (wishes.spread.is_empty() || topology.choices(wishes, &self.as_place()).is_ok())
    }

    fn as_place(&self) -> Place<'_> {
        Place { requirements: &self.requirements, allow: AllowUndefined::None }
    }

    /// Plans the pod here.
    pub(super) fn place(&mut self, wishes: &Wishes<'_>, topology: &mut Topology) {
        topology.record(wishes.pod, self.taints, &self.requirements);
        amounts::subtract(&mut self.room, &wishes.amounts);
        self.host_ports.extend(wishes.pod.host_ports.iter().cloned());
        self.pods.push(wishes.pod.name.clone());
    }
}
