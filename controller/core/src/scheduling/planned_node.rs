//! A node that should be launched, and the NodeClaim that asks for it (core spec §3.13).

use super::{NodesPassedOver, PoolRefusal};
use crate::catalog::{self, InstanceType};
use crate::drift_hash;
use crate::requirement::{Operator, Requirement};
use crate::requirements::Requirements;
use crate::resources::Resources;
use crate::snapshot::PodName;
use controller_api::{NodeClaim, NodeClaimSpec, NodePool, ResourceRequirements, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node that should be launched.
#[derive(Clone, Debug)]
pub struct PlannedNode {
    /// The NodePool it comes from.
    pub pool: String,
    /// Pods planned for it.
    pub pods: Vec<PodName>,
    /// Types that would do, cheapest first, at most 600.
    pub instance_types: Vec<Arc<InstanceType>>,
    /// Labels it may carry.
    pub requirements: Requirements,
    /// What its pods ask for, DaemonSets included.
    pub requests: Resources,
    /// Whether `minValues` was lowered to what can be had.
    pub min_values_relaxed: bool,
    /// The pool as it was when the node was planned.
    pub node_pool: Arc<NodePool>,
    /// Pools that come before this one and refused the pod that the node was opened for; told only by
    /// [`schedule_explained`](super::schedule_explained).
    pub passed_over: Vec<PoolRefusal>,
    /// Nodes that exist and had no place for that pod; told in the same case.
    pub nodes_passed_over: NodesPassedOver,
}

impl PlannedNode {
    /// As many types as a NodeClaim names at most.
    pub const MOST_TYPES: usize = super::truncate::MAX_INSTANCE_TYPES;

    /// The NodeClaim that asks for this node, ready to be created.
    pub fn to_node_claim(&self) -> NodeClaim {
        let template = &self.node_pool.spec.template;
        let spec = NodeClaimSpec {
            taints: template.spec.taints().to_vec(),
            startup_taints: template.spec.startup_taints().to_vec(),
            requirements: self.launch_requirements().to_api(),
            resources: ResourceRequirements { requests: self.requests.to_api() },
            node_class_ref: template.spec.node_class_ref.clone(),
            // Written as Go writes it, unlike the times that keep their text.
            termination_grace_period: (template.spec.termination_grace_period.as_ref())
                .map(|grace| grace.as_duration().into()),
            expire_after: template.spec.expire_after.clone(),
        };
        let metadata = ObjectMeta {
            generate_name: Some(format!("{}-", self.pool)),
            labels: Some(self.labels()),
            annotations: Some(self.annotations()),
            owner_references: Some(vec![OwnerReference {
                api_version: "karpenter.sh/v1".to_owned(),
                kind: "NodePool".to_owned(),
                name: self.pool.clone(),
                uid: self.node_pool.metadata.uid.clone().unwrap_or_default(),
                block_owner_deletion: Some(true),
                controller: None,
            }]),
            ..ObjectMeta::default()
        };
        NodeClaim { metadata, spec, status: None }
    }

    /// The requirements with the types and markets that would do spelled out.
    fn launch_requirements(&self) -> Requirements {
        let mut requirements = self.requirements.clone();
        let names = self.instance_types.iter().map(|instance_type| instance_type.name.as_str());
        requirements.add(Requirement::new(labels::INSTANCE_TYPE_LABEL, Operator::In, names));
        let markets = catalog::capacity_types(&self.instance_types, &self.requirements);
        if !markets.is_empty() {
            let names = markets.into_iter().map(|market| market.as_str());
            requirements.add(Requirement::new(labels::CAPACITY_TYPE_LABEL, Operator::In, names));
        }
        requirements
    }

    /// The template's labels, pool and class, and one value for each custom label that is required.
    fn labels(&self) -> BTreeMap<String, String> {
        let template = &self.node_pool.spec.template;
        let class = &template.spec.node_class_ref;
        let mut result: BTreeMap<String, String> =
            template.labels().map(|(key, value)| (key.clone(), value.clone())).collect();
        result.insert(labels::NODE_POOL_LABEL.to_owned(), self.pool.clone());
        result.insert(crate::snapshot::node_class_label(&class.group, &class.kind), class.name.clone());
        for requirement in self.requirements.iter() {
            let key = requirement.key();
            let is_custom = !labels::is_well_known(key) && !labels::is_restricted(key);
            if let Some(value) = requirement.any().filter(|_| is_custom) {
                result.insert(key.to_owned(), value);
            }
        }
        result
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let template = self.node_pool.spec.template.annotations();
        let mut annotations: BTreeMap<String, String> =
            template.map(|(key, value)| (key.clone(), value.clone())).collect();
        let ours = [
            (labels::NODE_POOL_HASH_ANNOTATION, drift_hash::node_pool_hash(&self.node_pool)),
            (labels::NODE_POOL_HASH_VERSION_ANNOTATION, drift_hash::NODE_POOL_HASH_VERSION.to_owned()),
            (labels::MIN_VALUES_RELAXED_ANNOTATION, self.min_values_relaxed.to_string()),
        ];
        annotations.extend(ours.map(|(key, value)| (key.to_owned(), value)));
        annotations
    }
}
