//! NodeClaim: one node wanted, and what has become of it (core spec §1.3).

use crate::conditions::Condition;
use crate::duration::{GoDuration, NillableDuration};
use crate::schema;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The node that is wanted. It never changes once the NodeClaim exists.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodeClaim",
    status = "NodeClaimStatus",
    derive = "Default",
    derive = "PartialEq",
    category = "karpenter",
    schema = "disabled",
    printcolumn(name = "Type", type_ = "string", json_path = r".metadata.labels.node\.kubernetes\.io/instance-type"),
    printcolumn(name = "Capacity", type_ = "string", json_path = r".metadata.labels.karpenter\.sh/capacity-type"),
    printcolumn(name = "Zone", type_ = "string", json_path = r".metadata.labels.topology\.kubernetes\.io/zone"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "ImageID", type_ = "string", json_path = ".status.imageID", priority = 1),
    printcolumn(name = "ID", type_ = "string", json_path = ".status.providerID", priority = 1),
    printcolumn(
        name = "NodePool",
        type_ = "string",
        json_path = r".metadata.labels.karpenter\.sh/nodepool",
        priority = 1
    ),
    printcolumn(name = "NodeClass", type_ = "string", json_path = ".spec.nodeClassRef.name", priority = 1),
    printcolumn(
        name = "Drifted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Drifted")].status"#,
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::rules(&[("self == oldSelf", "spec is immutable")]))]
pub struct NodeClaimSpec {
    /// Taints the node carries for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::taints")]
    pub taints: Vec<Taint>,
    /// Taints the node carries until something else removes them; pods need not tolerate them to be planned there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::taints")]
    pub startup_taints: Vec<Taint>,
    /// What labels the node may carry. All of them hold together.
    #[schemars(transform = schema::requirements)]
    pub requirements: Vec<NodeSelectorRequirementWithMinValues>,
    /// What the pods planned for the node ask for; the instance must hold at least this.
    #[serde(default, skip_serializing_if = "ResourceRequirements::is_empty")]
    pub resources: ResourceRequirements,
    /// The class that says how instances are launched.
    pub node_class_ref: NodeClassReference,
    /// How long a drain may take before pods are deleted regardless of disruption budgets. Absent: as long as it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<GoDuration>,
    /// Age at which the node is replaced.
    #[serde(default = "default_expire_after")]
    pub expire_after: NillableDuration,
}

/// Thirty days.
pub(crate) fn default_expire_after() -> NillableDuration {
    GoDuration::known("720h").into()
}

/// One condition on a node's label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorRequirementWithMinValues {
    /// The label.
    #[schemars(length(max = 316), regex(pattern = schema::QUALIFIED_NAME))]
    pub key: String,
    /// How the label relates to `values`.
    pub operator: Operator,
    /// The values: at least one for `In`, exactly one integer for `Gt`, `Lt`, `Gte` and `Lte`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::requirement_values)]
    pub values: Vec<String>,
    /// How many distinct values the instance types of one launch must offer at least (alpha).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 50))]
    pub min_values: Option<i64>,
}

/// How a requirement's label relates to its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::plain_enum)]
pub enum Operator {
    /// One of the values.
    #[default]
    In,
    /// None of the values.
    NotIn,
    /// Any value.
    Exists,
    /// No such label.
    DoesNotExist,
    /// An integer above the value.
    Gt,
    /// An integer below the value.
    Lt,
    /// An integer of at least the value.
    Gte,
    /// An integer of at most the value.
    Lte,
}

impl Operator {
    /// Every operator.
    pub const ALL: [Self; 8] =
        [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist, Self::Gt, Self::Lt, Self::Gte, Self::Lte];

    /// The text in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }

    /// Whether it compares integers.
    pub fn is_numeric(self) -> bool {
        matches!(self, Self::Gt | Self::Lt | Self::Gte | Self::Lte)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is no operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an operator")]
pub struct UnknownOperator(pub String);

impl FromStr for Operator {
    type Err = UnknownOperator;

    fn from_str(text: &str) -> Result<Self, UnknownOperator> {
        Self::ALL.into_iter().find(|operator| operator.as_str() == text).ok_or_else(|| UnknownOperator(text.to_owned()))
    }
}

/// Names a NodeClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassReference {
    /// Its API group.
    #[schemars(regex(pattern = schema::NO_SLASH))]
    #[schemars(transform = schema::rules(&[("self != ''", "group may not be empty")]))]
    pub group: String,
    /// Its kind.
    #[schemars(transform = schema::rules(&[("self != ''", "kind may not be empty")]))]
    pub kind: String,
    /// Its name.
    #[schemars(transform = schema::rules(&[("self != ''", "name may not be empty")]))]
    pub name: String,
}

impl NodeClassReference {
    /// A reference to an EC2NodeClass.
    pub fn ec2(name: impl Into<String>) -> Self {
        Self { group: crate::AWS_GROUP.to_owned(), kind: "EC2NodeClass".to_owned(), name: name.into() }
    }

    /// Whether it refers to an EC2NodeClass, the only kind this controller manages.
    pub fn is_ec2(&self) -> bool {
        self.group == crate::AWS_GROUP && self.kind == "EC2NodeClass"
    }
}

/// What the pods planned for a node ask for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// The sum of their requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub requests: BTreeMap<String, Quantity>,
}

impl ResourceRequirements {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// What has become of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// Name of the Node, once it has registered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// The provider's identity of the instance; equals the Node's `spec.providerID`.
    #[serde(default, rename = "providerID", skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    /// The image the instance was launched from.
    #[serde(default, rename = "imageID", skip_serializing_if = "String::is_empty")]
    pub image_id: String,
    /// What the whole machine is expected to have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub capacity: BTreeMap<String, Quantity>,
    /// What of it is expected to be left for pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// How far the node has come: Launched, Registered, Initialized and the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_claim_conditions")]
    pub conditions: Vec<Condition>,
    /// When a pod was last bound to the node, removed from it or finished on it.
    #[serde(default, with = "crate::time::option", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_pod_event_time: Option<Timestamp>,
}
