//! EKS clusters over time: what their control planes are set to, and the states they pass through.

use super::tags::Tags;
use super::{Cloud, Due, after};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a cluster stays in each passing state.
// fidelity: assumed: EKS takes some ten minutes to create a cluster, and less for the rest; a minute is enough to see the states
const CREATING: Duration = Duration::from_secs(60);
const UPDATING: Duration = Duration::from_secs(30);
const DELETING: Duration = Duration::from_secs(60);

/// The state of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum ClusterStatus {
    Creating,
    #[default]
    Active,
    Updating,
    Deleting,
}

impl ClusterStatus {
    /// As EKS spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Creating => "CREATING",
            Self::Active => "ACTIVE",
            Self::Updating => "UPDATING",
            Self::Deleting => "DELETING",
        }
    }
}

/// What a cluster's control plane is set to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ControlPlane {
    pub status: ClusterStatus,
    pub role_arn: String,
    /// `API`, `API_AND_CONFIG_MAP` or `CONFIG_MAP`.
    pub authentication_mode: String,
    pub public_access: bool,
    pub private_access: bool,
    pub public_access_cidrs: Vec<String>,
    /// Beside the cluster's own.
    pub security_group_ids: Vec<String>,
    pub deletion_protection: bool,
    pub tags: Tags,
    /// By id.
    pub updates: BTreeMap<String, ClusterUpdate>,
}

/// A change of a control plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ClusterUpdate {
    pub kind: String,
    /// What it changes, by the names that EKS gives them.
    pub params: BTreeMap<String, String>,
    pub created_at: Timestamp,
    pub done: bool,
}

impl Default for ControlPlane {
    fn default() -> Self {
        Self {
            status: ClusterStatus::Active,
            role_arn: String::new(),
            authentication_mode: "API_AND_CONFIG_MAP".into(),
            public_access: true,
            private_access: true,
            public_access_cidrs: vec!["0.0.0.0/0".into()],
            security_group_ids: Vec::new(),
            deletion_protection: false,
            tags: Tags::new(),
            updates: BTreeMap::new(),
        }
    }
}

/// An access policy that an access entry has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct AssociatedPolicy {
    /// Of `namespace` scope if there are any, else of the whole cluster.
    pub namespaces: Vec<String>,
    pub associated_at: Timestamp,
    pub modified_at: Timestamp,
}

impl Cloud {
    /// Moves a cluster into a passing state, which it will leave by itself.
    pub(crate) fn enter_cluster(&mut self, now: Timestamp, name: &str, status: ClusterStatus) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        cluster.control_plane.status = status;
        let stay = match status {
            ClusterStatus::Active => return,
            ClusterStatus::Creating => CREATING,
            ClusterStatus::Updating => UPDATING,
            ClusterStatus::Deleting => DELETING,
        };
        self.schedule(after(now, stay), Due::Cluster { name: name.to_owned(), from: status });
    }

    /// What a passing state ends in.
    pub(super) fn leave_cluster(&mut self, name: &str, from: ClusterStatus) {
        let Some(cluster) = self.clusters.get_mut(name).filter(|cluster| cluster.control_plane.status == from) else {
            return;
        };
        self.revision += 1;
        if from == ClusterStatus::Deleting {
            self.clusters.remove(name);
            return;
        }
        cluster.control_plane.status = ClusterStatus::Active;
        cluster.control_plane.updates.values_mut().for_each(|update| update.done = true);
    }
}
