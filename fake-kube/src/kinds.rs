//! What the server serves: one [`Kind`] per group, version and resource, built in or from a custom resource definition.

use std::{collections::BTreeMap, sync::Arc};

use crate::{resources::Resource, schema::Schema};

/// Which hooks a kind has beyond what all kinds share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    Pod,
    Node,
    Namespace,
    Service,
    Event,
    Secret,
    PersistentVolume,
    PersistentVolumeClaim,
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    PodDisruptionBudget,
    StorageClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    PriorityClass,
    CustomResourceDefinition,
    /// A question that is answered and not stored.
    Review,
    Binding,
    Endpoints,
    EndpointSlice,
    PodTemplate,
    ConfigMap,
    Lease,
    /// Stored with the shared rules alone.
    Plain,
    /// From a custom resource definition.
    Custom,
}

/// How objects of an additional version are derived from the stored ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Only `apiVersion` differs.
    None,
    /// `events.k8s.io/v1` renames several fields of the core Event.
    Events,
}

/// Where the scale subresource finds its numbers.
#[derive(Clone, Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: Vec<String>,
    pub(crate) status_replicas: Vec<String>,
    pub(crate) selector: Option<Vec<String>>,
}

/// One served resource.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) status: bool,
    pub(crate) scale: Option<ScalePaths>,
    /// Whether `metadata.generation` is kept.
    pub(crate) generation: bool,
    pub(crate) builtin: Builtin,
    pub(crate) conversion: Conversion,
    pub(crate) schema: Arc<Schema>,
    /// Index of the table in the store; versions of one resource share it.
    pub(crate) table: usize,
    /// `apiVersion` of the objects as they are stored.
    pub(crate) storage_api_version: String,
    /// `additionalPrinterColumns` of a custom resource definition.
    pub(crate) printer_columns: Vec<serde_json::Value>,
    /// `selectableFields` of a custom resource definition, without the leading dot.
    pub(crate) selectable_fields: Vec<String>,
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods` or `deployments.apps`.
    pub(crate) fn qualified_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `Pod` or `Deployment.apps`.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// What can be done with the resource, as discovery tells it.
    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        match self.builtin {
            Builtin::Review | Builtin::Binding => &["create"],
            // Namespaces are not deleted in bulk.
            Builtin::Namespace => &["create", "delete", "get", "list", "patch", "update", "watch"],
            _ => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        }
    }

    pub(crate) fn custom(&self) -> bool {
        self.builtin == Builtin::Custom
    }
}

/// Every served kind, by group, version and plural.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    groups: BTreeMap<String, BTreeMap<String, BTreeMap<String, Arc<Kind>>>>,
    /// One kind per table, the stored version, for what walks over all objects.
    pub(crate) tables: Vec<Option<Arc<Kind>>>,
}

impl Registry {
    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.groups.get(group)?.get(version)?.get(plural)
    }

    pub(crate) fn resource(&self, resource: &Resource) -> Option<&Arc<Kind>> {
        self.get(&resource.group, &resource.version, &resource.plural)
    }

    /// The kind an owner reference or an applied object names.
    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.groups.get(group)?.get(version)?.values().find(|candidate| candidate.kind == kind)
    }

    pub(crate) fn insert(&mut self, kind: Kind) -> Arc<Kind> {
        let kind = Arc::new(kind);
        if self.tables.len() <= kind.table {
            self.tables.resize(kind.table + 1, None);
        }
        if kind.api_version() == kind.storage_api_version {
            self.tables[kind.table] = Some(Arc::clone(&kind));
        }
        self.groups
            .entry(kind.group.clone())
            .or_default()
            .entry(kind.version.clone())
            .or_default()
            .insert(kind.plural.clone(), Arc::clone(&kind));
        kind
    }

    /// Stops serving a resource in all its versions.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        let Some(versions) = self.groups.get_mut(group) else { return };
        for kinds in versions.values_mut() {
            if let Some(kind) = kinds.remove(plural) {
                self.tables[kind.table] = None;
            }
        }
        versions.retain(|_, kinds| !kinds.is_empty());
        if versions.is_empty() {
            self.groups.remove(group);
        }
    }

    pub(crate) fn groups(&self) -> &BTreeMap<String, BTreeMap<String, BTreeMap<String, Arc<Kind>>>> {
        &self.groups
    }
}
