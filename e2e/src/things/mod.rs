//! Handles for the things that scenarios speak of. Each reads the API server or the cloud afresh: nothing is cached, so
//! what a step asserts is what anyone with kubectl would see.

mod claims;
mod facts;
pub mod manifests;
mod workloads;

pub use claims::{has_taint, is_ready};
pub use facts::{condition, conditions_of, instance_requirements};
pub use workloads::{describe, is_pending, is_running, node_of};

use crate::world::World;
use kube::Api;
use kube::api::ListParams;
use std::fmt::Debug;

/// The namespace that scenarios put their workloads into.
pub const NAMESPACE: &str = "default";

impl World {
    /// Every object of a kind, by name.
    pub async fn list<K>(&self) -> anyhow::Result<Vec<K>>
    where
        K: kube::Resource<DynamicType = ()> + Clone + Debug + serde::de::DeserializeOwned,
    {
        let mut objects = Api::<K>::all(self.kube()).list(&ListParams::default()).await?.items;
        objects.sort_by_key(|object| (object.meta().namespace.clone(), object.meta().name.clone()));
        Ok(objects)
    }

    /// A namespaced kind in the scenarios' namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.kube(), NAMESPACE)
    }
}
