//! Names of resources: group, version and plural.

use std::borrow::Cow;

/// A resource as it stands in a URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// API version, such as `v1`.
    pub version: Cow<'static, str>,
    /// Plural name, such as `pods`.
    pub plural: Cow<'static, str>,
}

impl Resource {
    /// Any resource, such as one of a custom resource definition.
    pub fn new(
        group: impl Into<Cow<'static, str>>,
        version: impl Into<Cow<'static, str>>,
        plural: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { group: group.into(), version: version.into(), plural: plural.into() }
    }

    const fn fixed(group: &'static str, version: &'static str, plural: &'static str) -> Self {
        Self { group: Cow::Borrowed(group), version: Cow::Borrowed(version), plural: Cow::Borrowed(plural) }
    }
}

macro_rules! resources {
    ($($name:ident = $group:literal, $version:literal, $plural:literal;)*) => {
        $(
            #[doc = concat!("`", $plural, "` of `", $group, "/", $version, "`.")]
            pub const $name: Resource = Resource::fixed($group, $version, $plural);
        )*
    };
}

resources! {
    PODS = "", "v1", "pods";
    NODES = "", "v1", "nodes";
    NAMESPACES = "", "v1", "namespaces";
    SERVICES = "", "v1", "services";
    ENDPOINTS = "", "v1", "endpoints";
    EVENTS = "", "v1", "events";
    CONFIG_MAPS = "", "v1", "configmaps";
    SECRETS = "", "v1", "secrets";
    SERVICE_ACCOUNTS = "", "v1", "serviceaccounts";
    PERSISTENT_VOLUMES = "", "v1", "persistentvolumes";
    PERSISTENT_VOLUME_CLAIMS = "", "v1", "persistentvolumeclaims";
    RESOURCE_QUOTAS = "", "v1", "resourcequotas";
    LIMIT_RANGES = "", "v1", "limitranges";
    EVENTS_V1 = "events.k8s.io", "v1", "events";
    ENDPOINT_SLICES = "discovery.k8s.io", "v1", "endpointslices";
    LEASES = "coordination.k8s.io", "v1", "leases";
    DEPLOYMENTS = "apps", "v1", "deployments";
    REPLICA_SETS = "apps", "v1", "replicasets";
    STATEFUL_SETS = "apps", "v1", "statefulsets";
    DAEMON_SETS = "apps", "v1", "daemonsets";
    JOBS = "batch", "v1", "jobs";
    POD_DISRUPTION_BUDGETS = "policy", "v1", "poddisruptionbudgets";
    STORAGE_CLASSES = "storage.k8s.io", "v1", "storageclasses";
    CSI_NODES = "storage.k8s.io", "v1", "csinodes";
    VOLUME_ATTACHMENTS = "storage.k8s.io", "v1", "volumeattachments";
    PRIORITY_CLASSES = "scheduling.k8s.io", "v1", "priorityclasses";
    CUSTOM_RESOURCE_DEFINITIONS = "apiextensions.k8s.io", "v1", "customresourcedefinitions";
}
