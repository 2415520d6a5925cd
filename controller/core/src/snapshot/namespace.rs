//! Namespaces, whose labels affinity between pods may select by.

use k8s_openapi::api::core::v1 as api;
use std::collections::BTreeMap;

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl Namespace {
    /// Reads an API namespace, with its name.
    pub fn from_api(namespace: &api::Namespace) -> (String, Self) {
        let metadata = &namespace.metadata;
        (metadata.name.clone().unwrap_or_default(), Self { labels: metadata.labels.clone().unwrap_or_default() })
    }
}
