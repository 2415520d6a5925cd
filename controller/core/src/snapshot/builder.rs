//! Readable construction of snapshots, for tests, examples and simulations.
//!
//! Objects are written as the YAML or JSON a user would apply, so that a test exercises the same parsing as a cluster;
//! what Kubernetes itself would add (uid, creation time, the verdict of kube-scheduler) is filled in here.

use super::{DaemonSet, Pdb, Pod, PodName, Pool, Snapshot, StateNode};
use crate::catalog::{CapacityType, InstanceType, Offering, Overhead};
use crate::quantity::Quantity;
use crate::requirement::{Operator, Requirement};
use crate::requirements::Requirements;
use crate::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources};
use crate::scheduling::PlannedNode;
use controller_api::{NodeClaimStatus, labels};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// A world under construction. Every method takes JSON in the shape of a manifest, without `apiVersion` and `kind`.
#[derive(Clone, Debug)]
pub struct World {
    /// The world so far.
    pub snapshot: Snapshot,
    pods_made: usize,
}

impl World {
    /// An empty world at `now`.
    pub fn at(now: Timestamp) -> Self {
        Self { snapshot: Snapshot::empty(now), pods_made: 0 }
    }

    /// Adds a NodePool that is ready.
    pub fn pool(
        &mut self,
        name: &str,
        spec: Value,
        instance_types: &[Arc<InstanceType>],
    ) -> serde_json::Result<&mut Self> {
        let ready = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": self.snapshot.now.to_string()});
        let object = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": name, "uid": format!("uid-of-pool-{name}")},
            "spec": spec,
            "status": {"nodes": 0, "conditions": [ready]},
        });
        let pool = Pool::new(Arc::new(serde_json::from_value(object)?), instance_types.to_vec());
        self.snapshot.pools.insert(name.to_owned(), pool);
        Ok(self)
    }

    /// Adds a pod that kube-scheduler found no place for. Later pods count as younger.
    pub fn pending_pod(&mut self, name: &str, metadata: Value, spec: Value) -> serde_json::Result<&mut Self> {
        let status = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        ]});
        self.pod(name, metadata, spec, status)
    }

    /// Adds a pod that runs on a node.
    pub fn running_pod(
        &mut self,
        name: &str,
        node: &str,
        metadata: Value,
        mut spec: Value,
    ) -> serde_json::Result<&mut Self> {
        spec["nodeName"] = node.into();
        let started = self.snapshot.now.to_string();
        let status =
            json!({"phase": "Running", "startTime": started, "conditions": [{"type": "Ready", "status": "True"}]});
        self.pod(name, metadata, spec, status)
    }

    /// Adds a pod as it is.
    pub fn pod(
        &mut self,
        name: &str,
        mut metadata: Value,
        spec: Value,
        status: Value,
    ) -> serde_json::Result<&mut Self> {
        self.pods_made += 1;
        let created = Timestamp::from_second(self.snapshot.now.as_second() - 3600 + self.pods_made as i64);
        fill(&mut metadata, "name", name);
        fill(&mut metadata, "namespace", "default");
        fill(&mut metadata, "uid", &format!("uid-of-pod-{name}"));
        fill(&mut metadata, "creationTimestamp", &created.unwrap_or(self.snapshot.now).to_string());
        let mut spec = spec;
        if spec["containers"].is_null() {
            spec["containers"] = json!([{"name": "main"}]);
        }
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status});
        let pod = Arc::new(Pod::from_api(&serde_json::from_value(object)?));
        self.snapshot.pods.insert(pod.name.clone(), pod);
        Ok(self)
    }

    /// Adds a DaemonSet in kube-system whose pods tolerate everything.
    pub fn daemon_set(&mut self, name: &str, mut pod_spec: Value) -> serde_json::Result<&mut Self> {
        if pod_spec["tolerations"].is_null() {
            pod_spec["tolerations"] = json!([{"operator": "Exists"}]);
        }
        let object = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": "kube-system", "uid": format!("uid-of-daemonset-{name}")},
            "spec": {"selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec}},
        });
        self.snapshot.daemon_sets.push(Arc::new(DaemonSet::from_api(&serde_json::from_value(object)?)));
        Ok(self)
    }

    /// Adds a PodDisruptionBudget in the default namespace that allows so many evictions now.
    pub fn pdb(&mut self, name: &str, spec: Value, allowed: i32) -> serde_json::Result<&mut Self> {
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        });
        self.snapshot.pod_disruption_budgets.push(Arc::new(Pdb::from_api(&serde_json::from_value(object)?)));
        Ok(self)
    }

    /// Adds a node that a pool launched and that is up: registered, initialized, ready. Its NodeClaim bears its name.
    pub fn node(
        &mut self,
        name: &str,
        pool: &str,
        instance_type: &InstanceType,
        market: CapacityType,
    ) -> serde_json::Result<&mut Self> {
        let (node, claim) = node_and_claim(name, pool, instance_type, market, self.snapshot.now);
        let node = StateNode::new(
            Some(Arc::new(serde_json::from_value(node)?)),
            Some(Arc::new(serde_json::from_value(claim)?)),
        );
        Ok(self.state_node(node))
    }

    /// Adds a node that is launched but has not registered yet.
    pub fn coming_node(
        &mut self,
        name: &str,
        pool: &str,
        instance_type: &InstanceType,
        market: CapacityType,
    ) -> serde_json::Result<&mut Self> {
        let (_, claim) = node_and_claim(name, pool, instance_type, market, self.snapshot.now);
        Ok(self.state_node(StateNode::new(None, Some(Arc::new(serde_json::from_value(claim)?)))))
    }

    /// Adds or replaces a node.
    pub fn state_node(&mut self, node: StateNode) -> &mut Self {
        self.snapshot.nodes.insert(node.name().to_owned(), node);
        self
    }

    /// The pod of that name in the default namespace.
    pub fn pod_name(name: &str) -> PodName {
        PodName::new("default", name)
    }
}

fn fill(metadata: &mut Value, key: &str, value: &str) {
    if metadata[key].is_null() {
        metadata[key] = value.into();
    }
}

/// The two objects of a node that is up, as JSON, for tests that change a detail.
pub fn node_and_claim(
    name: &str,
    pool: &str,
    instance_type: &InstanceType,
    market: CapacityType,
    now: Timestamp,
) -> (Value, Value) {
    let zone = instance_type.offerings.first().map_or("", |offering| offering.zone.as_str());
    let mut labels = json!({
        labels::NODE_POOL_LABEL: pool,
        labels::INSTANCE_TYPE_LABEL: instance_type.name,
        labels::CAPACITY_TYPE_LABEL: market.as_str(),
        labels::ZONE_LABEL: zone,
    });
    for requirement in instance_type.requirements.iter() {
        if let Some(value) = requirement.single_value() {
            labels[requirement.key()] = value.into();
        }
    }
    let provider_id = format!("aws:///{zone}/i-{name}");
    let resources = json!({
        "capacity": instance_type.capacity.to_api(),
        "allocatable": instance_type.allocatable().to_api(),
    });
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": kind, "message": "",
        "lastTransitionTime": now.to_string()})
    };
    let mut claim_status = resources.clone();
    claim_status["providerID"] = json!(provider_id);
    claim_status["nodeName"] = json!(name);
    claim_status["conditions"] =
        json!(["Launched", "Registered", "Initialized", "Ready", "Consolidatable"].map(condition));
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "uid": format!("uid-of-claim-{name}"), "labels": labels},
        "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
        "status": claim_status,
    });
    labels[labels::REGISTERED_LABEL] = "true".into();
    labels[labels::INITIALIZED_LABEL] = "true".into();
    labels[labels::HOSTNAME_LABEL] = name.into();
    let mut node_status = resources;
    node_status["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("uid-of-node-{name}"), "labels": labels},
        "spec": {"providerID": provider_id},
        "status": node_status,
    });
    (node, claim)
}

/// An instance type of the usual shape, in three zones and both markets; spot costs 40 % of the list price.
///
/// `name` is `<family>.<size>`, from which category and generation follow, as on AWS.
pub fn instance_type(name: &str, cpu: i64, memory_gib: i64, price: f64) -> InstanceType {
    let (family, size) = name.split_once('.').unwrap_or((name, ""));
    let category: String = family.chars().take_while(char::is_ascii_alphabetic).collect();
    let generation: String = family.chars().skip(category.len()).take_while(char::is_ascii_digit).collect();
    // Graviton families end in `g`, possibly with more letters after it.
    let suffix = &family[(category.len() + generation.len()).min(family.len())..];
    let arch = if suffix.contains('g') { labels::ARCH_ARM64 } else { labels::ARCH_AMD64 };
    let zones = ["us-west-2a", "us-west-2b", "us-west-2c"];
    let markets = [(CapacityType::OnDemand, price), (CapacityType::Spot, price * 0.4)];
    let requirements: Requirements = [
        (labels::INSTANCE_TYPE_LABEL, name),
        (labels::ARCH_LABEL, arch),
        (labels::OS_LABEL, "linux"),
        (labels::REGION_LABEL, "us-west-2"),
        (labels::INSTANCE_CATEGORY_LABEL, category.as_str()),
        (labels::INSTANCE_GENERATION_LABEL, generation.as_str()),
        (labels::INSTANCE_FAMILY_LABEL, family),
        (labels::INSTANCE_SIZE_LABEL, size),
        (labels::INSTANCE_CPU_LABEL, cpu.to_string().as_str()),
        (labels::INSTANCE_MEMORY_LABEL, (memory_gib * 1024).to_string().as_str()),
    ]
    .into_iter()
    .map(|(key, value)| Requirement::equals(key, value))
    .chain([
        Requirement::new(labels::ZONE_LABEL, Operator::In, zones),
        Requirement::new(labels::CAPACITY_TYPE_LABEL, Operator::In, markets.map(|(market, _)| market.as_str())),
        Requirement::does_not_exist(labels::INSTANCE_GPU_NAME_LABEL),
        Requirement::does_not_exist(labels::INSTANCE_LOCAL_NVME_LABEL),
        Requirement::does_not_exist(labels::WINDOWS_BUILD_LABEL),
    ])
    .collect();
    let offerings = zones.iter().flat_map(|zone| {
        markets.map(|(capacity_type, price)| Offering {
            requirements: [
                Requirement::equals(labels::ZONE_LABEL, *zone),
                Requirement::equals(labels::CAPACITY_TYPE_LABEL, capacity_type.as_str()),
            ]
            .into_iter()
            .collect(),
            zone: (*zone).to_owned(),
            capacity_type,
            price,
            available: true,
            reservation: None,
        })
    });
    InstanceType {
        name: name.to_owned(),
        requirements,
        offerings: offerings.collect(),
        capacity: Resources::new()
            .with(CPU, Quantity::units(cpu))
            .with(MEMORY, Quantity::mebibytes(memory_gib * 1024))
            .with(EPHEMERAL_STORAGE, Quantity::mebibytes(20 * 1024))
            .with(PODS, Quantity::units(58)),
        overhead: Overhead {
            kube_reserved: Resources::new().with(CPU, Quantity::from_milli(80)).with(MEMORY, Quantity::mebibytes(893)),
            ..Overhead::default()
        },
    }
}

/// The node a cloud would launch for a plan: its cheapest type in the cheapest way. It is launched but not registered.
pub fn launched(planned: &PlannedNode, name: &str, now: Timestamp) -> serde_json::Result<StateNode> {
    let mut claim = planned.to_node_claim();
    let labels = claim.metadata.labels.get_or_insert_default();
    let mut status = NodeClaimStatus { provider_id: format!("aws:///zone/i-{name}"), ..NodeClaimStatus::default() };
    if let Some(instance_type) = planned.instance_types.first() {
        let offering = instance_type.offerings_for(&planned.requirements).min_by(|a, b| a.price.total_cmp(&b.price));
        let offered = offering.map(|offering| offering.requirements.labels()).unwrap_or_default();
        labels.extend(instance_type.requirements.labels());
        labels.extend(offered);
        status.capacity = instance_type.capacity.to_api();
        status.allocatable = instance_type.allocatable().to_api();
    }
    let launched = json!({"type": "Launched", "status": "True", "reason": "Launched", "message": "",
        "lastTransitionTime": now.to_string()});
    status.conditions = vec![serde_json::from_value(launched)?];
    claim.metadata.name = Some(name.to_owned());
    claim.status = Some(status);
    Ok(StateNode::new(None, Some(Arc::new(claim))))
}
