//! NodePool: which nodes may be launched and when they are replaced (core spec §1.2).

use crate::conditions::Condition;
use crate::duration::{GoDuration, NillableDuration};
use crate::node_claim::{NodeClassReference, NodeSelectorRequirementWithMinValues, default_expire_after};
use crate::schema;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Which nodes may be launched and when they are replaced.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodePool",
    status = "NodePoolStatus",
    derive = "Default",
    derive = "PartialEq",
    category = "karpenter",
    schema = "disabled",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.nodes"),
    printcolumn(name = "NodeClass", type_ = "string", json_path = ".spec.template.spec.nodeClassRef.name"),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1),
    printcolumn(name = "CPU", type_ = "string", json_path = ".status.resources.cpu", priority = 1),
    printcolumn(name = "Memory", type_ = "string", json_path = ".status.resources.memory", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::rules(schema::NODE_POOL_RULES))]
pub struct NodePoolSpec {
    /// The NodeClaims that the pool makes.
    pub template: NodeClaimTemplate,
    /// When and how fast nodes are removed or replaced.
    #[serde(default)]
    #[schemars(transform = schema::disruption_default)]
    pub disruption: Disruption,
    /// What all nodes of the pool together may have at most. A resource that is absent is unlimited.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub limits: BTreeMap<String, Quantity>,
    /// Pools with more weight are tried first; absent counts as 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: Option<i32>,
    /// How many nodes to keep whatever the pods need. Its presence makes the pool static (alpha).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i64>,
}

/// What a pool's NodeClaims look like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplate {
    /// Labels and annotations for NodeClaims and their nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The rest of them.
    pub spec: NodeClaimTemplateSpec,
}

impl NodeClaimTemplate {
    /// Each label for the nodes.
    pub fn labels(&self) -> impl Iterator<Item = (&String, &String)> {
        self.metadata.iter().flat_map(|metadata| &metadata.labels).flatten()
    }

    /// Each annotation for the nodes.
    pub fn annotations(&self) -> impl Iterator<Item = (&String, &String)> {
        self.metadata.iter().flat_map(|metadata| &metadata.annotations).flatten()
    }
}

// Absent and empty mean the same for nodes but not for the pool's hash (core spec §1.9), hence options here and below.

/// Labels and annotations of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels every node of the pool carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::template_labels")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations every node of the pool carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "granular"))]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// The spec of a pool's NodeClaims.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Taints the nodes carry for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::taints")]
    pub taints: Option<Vec<Taint>>,
    /// Taints the nodes carry until something else removes them; pods need not tolerate them to be planned there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::taints")]
    pub startup_taints: Option<Vec<Taint>>,
    /// What labels the nodes may carry. All of them hold together.
    #[schemars(transform = schema::node_pool_requirements)]
    pub requirements: Vec<NodeSelectorRequirementWithMinValues>,
    /// The class that says how instances are launched.
    #[schemars(transform = schema::rules(schema::NODE_CLASS_REF_RULES))]
    pub node_class_ref: NodeClassReference,
    /// How long a drain may take before pods are deleted regardless of disruption budgets. Absent: as long as it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<GoDuration>,
    /// Age at which a node is replaced.
    #[serde(default = "default_expire_after")]
    pub expire_after: NillableDuration,
}

impl NodeClaimTemplateSpec {
    /// Taints the nodes carry for good.
    pub fn taints(&self) -> &[Taint] {
        self.taints.as_deref().unwrap_or_default()
    }

    /// Taints the nodes carry until something else removes them.
    pub fn startup_taints(&self) -> &[Taint] {
        self.startup_taints.as_deref().unwrap_or_default()
    }
}

/// When and how fast a pool's nodes are removed or replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// How long a node must have seen no pod come or go before it may be consolidated.
    #[serde(default = "default_consolidate_after")]
    pub consolidate_after: NillableDuration,
    /// Which nodes may be consolidated.
    #[serde(default)]
    pub consolidation_policy: ConsolidationPolicy,
    /// How many nodes may be disrupted at a time. The strictest that applies counts.
    #[serde(default = "default_budgets")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(transform = schema::rules(schema::BUDGETS_RULES))]
    pub budgets: Vec<Budget>,
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            consolidate_after: default_consolidate_after(),
            consolidation_policy: ConsolidationPolicy::default(),
            budgets: default_budgets(),
        }
    }
}

fn default_consolidate_after() -> NillableDuration {
    GoDuration::known("0s").into()
}

fn default_budgets() -> Vec<Budget> {
    vec![Budget::default()]
}

/// Which nodes may be consolidated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::plain_enum)]
pub enum ConsolidationPolicy {
    /// Those without pods that would have to move.
    WhenEmpty,
    /// Also those whose pods fit elsewhere or on something cheaper.
    #[default]
    WhenEmptyOrUnderutilized,
    /// Also those, where the saving outweighs the disturbance.
    Balanced,
}

impl ConsolidationPolicy {
    /// The text in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WhenEmpty => "WhenEmpty",
            Self::WhenEmptyOrUnderutilized => "WhenEmptyOrUnderutilized",
            Self::Balanced => "Balanced",
        }
    }
}

/// A limit to how many nodes may be disrupted at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Reasons the limit holds for. Absent: for every reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "set"))]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// A number of nodes or a percentage of the pool's nodes.
    #[serde(default = "default_budget_nodes")]
    #[schemars(regex(pattern = schema::BUDGET_NODES))]
    pub nodes: String,
    /// When the limit begins to hold, as a cron schedule in UTC. Absent: it holds always.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::CRON))]
    pub schedule: Option<String>,
    /// How long the limit holds from each begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::budget_duration")]
    pub duration: Option<GoDuration>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { reasons: None, nodes: default_budget_nodes(), schedule: None, duration: None }
    }
}

fn default_budget_nodes() -> String {
    "10%".to_owned()
}

/// Why a node is disrupted, as budgets name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::plain_enum)]
pub enum DisruptionReason {
    /// Its pods fit elsewhere or on something cheaper.
    Underutilized,
    /// It has no pods that would have to move.
    Empty,
    /// It no longer matches its pool or class.
    Drifted,
}

impl DisruptionReason {
    /// The text in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Underutilized => "Underutilized",
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
        }
    }
}

impl fmt::Display for DisruptionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How the pool is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// What all nodes of the pool have together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resources: BTreeMap<String, Quantity>,
    /// How many nodes the pool has.
    #[serde(default)]
    pub nodes: i64,
    /// Generation of the NodeClass at which node registrations were last counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    /// Whether the pool can be launched from, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_pool_conditions")]
    pub conditions: Vec<Condition>,
}
