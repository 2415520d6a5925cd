//! A NodePool parsed: readiness, limits, weight, and what it offers.

use crate::catalog::{InstanceType, Offering};
use crate::quantity::Quantity;
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use crate::resources::Resources;
use controller_api::{Budget, HasConditions, NodePool, conditions, labels};
use k8s_openapi::api::core::v1::Taint;
use std::sync::Arc;
use std::time::Duration;

/// A NodePool with the instance types its class resolves to. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The object.
    pub object: Arc<NodePool>,
    /// Every instance type for nodes of the pool, available or not.
    pub instance_types: Vec<Arc<InstanceType>>,
    parsed: Arc<Parsed>,
}

#[derive(Debug)]
struct Parsed {
    requirements: Requirements,
    limits: Resources,
}

impl Pool {
    /// Parses a NodePool.
    pub fn new(object: Arc<NodePool>, instance_types: Vec<Arc<InstanceType>>) -> Self {
        let template = &object.spec.template;
        let mut requirements = Requirements::from_api(&template.spec.requirements);
        requirements.add_all(&Requirements::from_labels(template.labels()));
        let name = object.metadata.name.as_deref().unwrap_or_default();
        requirements.add(Requirement::equals(labels::NODE_POOL_LABEL, name));
        let class = &template.spec.node_class_ref;
        requirements.add(Requirement::equals(&node_class_label(&class.group, &class.kind), class.name.as_str()));
        // A limit that cannot be read lets nothing through, rather than everything.
        let limits = object.spec.limits.iter();
        let limits = limits.map(|(name, limit)| (name.clone(), Quantity::from_api(limit).unwrap_or(Quantity::ZERO)));
        let parsed = Arc::new(Parsed { requirements, limits: limits.collect() });
        Self { object, instance_types, parsed }
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// Requirements of its nodes: those of the template, its labels, the pool's name and the class's.
    pub fn requirements(&self) -> &Requirements {
        &self.parsed.requirements
    }

    /// What all its nodes together may have; a resource that is not listed is unlimited.
    pub fn limits(&self) -> &Resources {
        &self.parsed.limits
    }

    /// Taints its nodes carry for good.
    pub fn taints(&self) -> &[Taint] {
        self.object.spec.template.spec.taints()
    }

    /// Pools with more weight are tried first.
    pub fn weight(&self) -> i32 {
        self.object.spec.weight.unwrap_or(0)
    }

    /// Whether some instance type can draw on a capacity reservation.
    pub(super) fn sells_reservations(&self) -> bool {
        self.instance_types.iter().flat_map(|t| &t.offerings).any(Offering::is_reserved)
    }

    /// The same pool, whose instance types draw on no capacity reservation.
    pub(super) fn without_reservations(&self) -> Self {
        let mut pool = self.clone();
        for instance_type in &mut pool.instance_types {
            if instance_type.offerings.iter().any(Offering::is_reserved) {
                Arc::make_mut(instance_type).offerings.retain(|offering| !offering.is_reserved());
            }
        }
        pool
    }

    /// Whether nodes may be launched from it.
    pub fn is_ready(&self) -> bool {
        self.object.is_true(&[conditions::READY])
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// Whether it keeps a fixed number of nodes instead of following the pods.
    pub fn is_static(&self) -> bool {
        self.object.spec.replicas.is_some()
    }

    /// How long a node must have seen no pod come or go; `None` for never.
    pub fn consolidate_after(&self) -> Option<Duration> {
        self.object.spec.disruption.consolidate_after.as_duration()
    }

    /// How many nodes may be disrupted at a time.
    pub fn budgets(&self) -> &[Budget] {
        &self.object.spec.disruption.budgets
    }

    /// The instance type of that name.
    pub fn instance_type(&self, name: &str) -> Option<&Arc<InstanceType>> {
        self.instance_types.iter().find(|instance_type| instance_type.name == name)
    }
}

/// The label that names a node's class: `<group>/<kind in lower case>`.
pub(crate) fn node_class_label(group: &str, kind: &str) -> String {
    format!("{group}/{}", kind.to_lowercase())
}
