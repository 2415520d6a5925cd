//! The pods that run and stay, by node and by what they are labelled with.

use super::super::Bound;
use super::LabelsId;
use crate::requirements::Requirements;
use crate::snapshot::{Pod, PodName, Snapshot, StateNode};
use controller_api::labels;
use k8s_openapi::api::core::v1::{Node, Taint};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Nodes that exist, with the pods on them that stay.
#[derive(Default)]
pub(super) struct Survey<'a> {
    pub(super) nodes: Vec<Surveyed<'a>>,
    /// Pods that must not meet others, with the place of their node.
    pub(super) forbidding: Vec<(&'a Pod, usize)>,
}

pub(super) struct Surveyed<'a> {
    pub(super) state: &'a StateNode,
    node: &'a Node,
    /// Its own taints, those that pass while it starts included.
    pub(super) taints: &'a [Taint],
    /// Its own labels.
    pub(super) requirements: Arc<Requirements>,
    /// How many pods of each labels run there.
    pub(super) pods: BTreeMap<LabelsId, u32>,
}

/// Namespaces with pod labels, each different one once.
#[derive(Default)]
pub(super) struct LabelSets<'a> {
    known: BTreeMap<(&'a str, &'a BTreeMap<String, String>), LabelsId>,
    in_order: Vec<(&'a str, &'a BTreeMap<String, String>)>,
}

impl<'a> LabelSets<'a> {
    /// The number of the pod's namespace and labels, and whether it is new.
    pub(super) fn number(&mut self, pod: &'a Pod) -> (LabelsId, bool) {
        let key = (pod.name.namespace.as_str(), &pod.labels);
        if let Some(known) = self.known.get(&key) {
            return (*known, false);
        }
        let id = LabelsId(self.in_order.len());
        self.known.insert(key, id);
        self.in_order.push(key);
        (id, true)
    }

    pub(super) fn get(&self, id: LabelsId) -> (&'a str, &'a BTreeMap<String, String>) {
        self.in_order[id.0]
    }

    pub(super) fn len(&self) -> usize {
        self.in_order.len()
    }
}

impl<'a> Survey<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        bound: &Bound<'a>,
        moving: &BTreeSet<&PodName>,
        labels: &mut LabelSets<'a>,
    ) -> Self {
        let mut survey = Self::default();
        for state in snapshot.nodes.values() {
            let Some(node) = state.node.as_deref() else { continue };
            let pods = bound.get(state.node_name().unwrap_or_default()).into_iter().flatten();
            let pods = pods.filter(|pod| !moving.contains(&pod.name));
            let place = survey.nodes.len();
            let mut counts: BTreeMap<LabelsId, u32> = BTreeMap::new();
            for pod in pods {
                // One that is going keeps others away until it is gone, but is not counted.
                if !pod.affinity.required_anti.is_empty() {
                    survey.forbidding.push((pod, place));
                }
                if !pod.is_terminating() {
                    *counts.entry(labels.number(pod).0).or_default() += 1;
                }
            }
            survey.nodes.push(Surveyed {
                state,
                node,
                taints: node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default(),
                requirements: match state.is_registered() {
                    true => Arc::clone(state.requirements()),
                    false => Arc::new(Requirements::from_labels(node.metadata.labels.iter().flatten())),
                },
                pods: counts,
            });
        }
        survey.forbidding.sort_by_key(|(pod, _)| &pod.name);
        survey
    }

    /// The value of a node's label; a node is its own host even before its kubelet has said so.
    pub(super) fn domain(&self, node: usize, label: &str) -> Option<&str> {
        let surveyed = &self.nodes[node];
        let own_name = surveyed.state.node_name().filter(|_| label == labels::HOSTNAME_LABEL);
        let value = surveyed.node.metadata.labels.as_ref().and_then(|labels| labels.get(label));
        value.map(String::as_str).or(own_name)
    }
}
