//! The fields of a problem, as they are written. Fields that nobody knows are refused, except inside Kubernetes objects,
//! which carry more than a decision looks at.

use super::ProblemError;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1 as storage;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// A problem.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProblemFile {
    pub(super) id: String,
    pub(super) now: Timestamp,
    /// For people and for statistics.
    #[serde(default, rename = "tags")]
    _tags: Vec<String>,
    /// The expectation in words.
    #[serde(default, rename = "note")]
    _note: String,
    pub(super) catalogue: String,
    #[serde(default)]
    pub(super) instance_types: Vec<String>,
    #[serde(default)]
    pub(super) offerings: Vec<OfferingChange>,
    #[serde(default)]
    pub(super) node_pools: Vec<Value>,
    #[serde(default)]
    pub(super) pods: Vec<PodGroup>,
    #[serde(default)]
    pub(super) daemon_sets: Vec<DaemonSet>,
    #[serde(default)]
    pub(super) nodes: Vec<NodeRecord>,
    #[serde(default)]
    pub(super) pdbs: Vec<PodDisruptionBudget>,
    #[serde(default)]
    pub(super) namespaces: Vec<core::Namespace>,
    #[serde(default)]
    pub(super) persistent_volumes: Vec<core::PersistentVolume>,
    #[serde(default)]
    pub(super) persistent_volume_claims: Vec<core::PersistentVolumeClaim>,
    #[serde(default)]
    pub(super) storage_classes: Vec<storage::StorageClass>,
    #[serde(default)]
    pub(super) csi_nodes: Vec<storage::CSINode>,
    #[serde(default)]
    pub(super) settings: SettingsFile,
}

/// So many equal pods.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PodGroup {
    pub(super) count: usize,
    pub(super) pod: core::Pod,
}

/// A node. Without `node` it is coming; without `nodeClaim` it is somebody else's.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeRecord {
    #[serde(default)]
    pub(super) node: Option<core::Node>,
    #[serde(default)]
    pub(super) node_claim: Option<Value>,
    #[serde(default)]
    pub(super) pods: Vec<PodGroup>,
    #[serde(default)]
    pub(super) marked_for_deletion: bool,
    #[serde(default)]
    pub(super) nominated: bool,
}

/// A change to the offerings that it selects, or a reservation that it adds.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OfferingChange {
    #[serde(default)]
    pub(super) instance_type: Option<String>,
    #[serde(default)]
    pub(super) zone: Option<String>,
    #[serde(default)]
    pub(super) capacity_type: Option<String>,
    #[serde(default)]
    pub(super) available: Option<bool>,
    #[serde(default)]
    pub(super) price: Option<f64>,
    #[serde(default)]
    pub(super) reservation_id: Option<String>,
    #[serde(default)]
    pub(super) reservation_capacity: u32,
}

/// Settings of the operator.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SettingsFile {
    #[serde(default)]
    pub(super) preference_policy: String,
    #[serde(default)]
    pub(super) min_values_policy: String,
    /// Of the gates, `ReservedCapacity` changes a schedule.
    #[serde(default)]
    pub(super) feature_gates: BTreeMap<String, bool>,
}

/// Reads text; errors name the path.
pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, ProblemError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| ProblemError::new(error.path().to_string(), without_position(error.inner())))?;
    reader.end().map_err(|error| ProblemError::new(".", without_position(&error)))?;
    Ok(value)
}

/// Reads a value that stands at `path`; errors name the path within it.
pub(super) fn typed<T: DeserializeOwned>(value: Value, path: &str) -> Result<T, ProblemError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let within = error.path().to_string();
        let path = if within == "." { path.to_owned() } else { format!("{path}.{within}") };
        ProblemError::new(path, without_position(error.inner()))
    })
}

/// The caller says which line of its input this was; serde's own position would be that within it.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}
