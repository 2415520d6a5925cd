//! The built-in kinds: what is served, and what each kind adds to the shared rules.

pub(crate) mod create;
pub(crate) mod defaults;
pub(crate) mod metadata;
mod pod;
pub(crate) mod update;
pub(crate) mod validate;

pub(crate) use pod::qos_class;
use serde_json::json;

use crate::{
    kinds::{Builtin, Conversion, Kind, ScalePaths},
    resources,
    schema::shapes,
    state::State,
    write::WriteOptions,
};

/// A row of the table of kinds.
struct Row {
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    /// `n` namespaced, `s` status, `c` scale, `g` generation, `a` category "all".
    flags: &'static str,
    builtin: Builtin,
}

const fn row(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    short: &'static [&'static str],
    flags: &'static str,
    builtin: Builtin,
) -> Row {
    Row { group, plural, singular, kind, short, flags, builtin }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("", "namespaces", "namespace", "Namespace", &["ns"], "s", Builtin::Namespace),
    row("", "pods", "pod", "Pod", &["po"], "nsga", Builtin::Pod),
    row("", "bindings", "binding", "Binding", &[], "n", Builtin::Binding),
    row("", "nodes", "node", "Node", &["no"], "s", Builtin::Node),
    row("", "services", "service", "Service", &["svc"], "nsa", Builtin::Service),
    row("", "endpoints", "endpoints", "Endpoints", &["ep"], "n", Builtin::Endpoints),
    row("", "events", "event", "Event", &["ev"], "n", Builtin::Event),
    row("", "configmaps", "configmap", "ConfigMap", &["cm"], "n", Builtin::ConfigMap),
    row("", "secrets", "secret", "Secret", &[], "n", Builtin::Secret),
    row("", "serviceaccounts", "serviceaccount", "ServiceAccount", &["sa"], "n", Builtin::Plain),
    row("", "persistentvolumes", "persistentvolume", "PersistentVolume", &["pv"], "s", Builtin::PersistentVolume),
    row("", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", &["pvc"], "ns", Builtin::PersistentVolumeClaim),
    row("", "resourcequotas", "resourcequota", "ResourceQuota", &["quota"], "ns", Builtin::Plain),
    row("", "limitranges", "limitrange", "LimitRange", &["limits"], "n", Builtin::Plain),
    row("", "podtemplates", "podtemplate", "PodTemplate", &[], "ng", Builtin::PodTemplate),
    row("", "replicationcontrollers", "replicationcontroller", "ReplicationController", &["rc"], "nscga", Builtin::Plain),
    row("discovery.k8s.io", "endpointslices", "endpointslice", "EndpointSlice", &[], "ng", Builtin::EndpointSlice),
    row("coordination.k8s.io", "leases", "lease", "Lease", &[], "n", Builtin::Lease),
    row("apps", "deployments", "deployment", "Deployment", &["deploy"], "nscga", Builtin::Deployment),
    row("apps", "replicasets", "replicaset", "ReplicaSet", &["rs"], "nscga", Builtin::ReplicaSet),
    row("apps", "statefulsets", "statefulset", "StatefulSet", &["sts"], "nscga", Builtin::StatefulSet),
    row("apps", "daemonsets", "daemonset", "DaemonSet", &["ds"], "nsga", Builtin::DaemonSet),
    row("apps", "controllerrevisions", "controllerrevision", "ControllerRevision", &[], "n", Builtin::Plain),
    row("batch", "jobs", "job", "Job", &[], "nsga", Builtin::Job),
    row("batch", "cronjobs", "cronjob", "CronJob", &["cj"], "nsga", Builtin::CronJob),
    row("policy", "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget", &["pdb"], "nsg", Builtin::PodDisruptionBudget),
    row("storage.k8s.io", "storageclasses", "storageclass", "StorageClass", &["sc"], "", Builtin::StorageClass),
    row("storage.k8s.io", "csinodes", "csinode", "CSINode", &[], "", Builtin::Plain),
    row("storage.k8s.io", "csidrivers", "csidriver", "CSIDriver", &[], "", Builtin::Plain),
    row("storage.k8s.io", "csistoragecapacities", "csistoragecapacity", "CSIStorageCapacity", &[], "n", Builtin::Plain),
    row("storage.k8s.io", "volumeattachments", "volumeattachment", "VolumeAttachment", &[], "s", Builtin::Plain),
    row("resource.k8s.io", "deviceclasses", "deviceclass", "DeviceClass", &[], "g", Builtin::Plain),
    row("resource.k8s.io", "resourceclaims", "resourceclaim", "ResourceClaim", &[], "ns", Builtin::ResourceClaim),
    row("resource.k8s.io", "resourceclaimtemplates", "resourceclaimtemplate", "ResourceClaimTemplate", &[], "n", Builtin::ResourceClaimTemplate),
    row("resource.k8s.io", "resourceslices", "resourceslice", "ResourceSlice", &[], "g", Builtin::ResourceSlice),
    row("scheduling.k8s.io", "priorityclasses", "priorityclass", "PriorityClass", &["pc"], "g", Builtin::PriorityClass),
    row("node.k8s.io", "runtimeclasses", "runtimeclass", "RuntimeClass", &[], "", Builtin::Plain),
    row("rbac.authorization.k8s.io", "roles", "role", "Role", &[], "n", Builtin::Plain),
    row("rbac.authorization.k8s.io", "rolebindings", "rolebinding", "RoleBinding", &[], "n", Builtin::Plain),
    row("rbac.authorization.k8s.io", "clusterroles", "clusterrole", "ClusterRole", &[], "", Builtin::Plain),
    row("rbac.authorization.k8s.io", "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", &[], "", Builtin::Plain),
    row("authentication.k8s.io", "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview", &[], "", Builtin::Review),
    row("authentication.k8s.io", "tokenreviews", "tokenreview", "TokenReview", &[], "", Builtin::Review),
    row("authorization.k8s.io", "localsubjectaccessreviews", "localsubjectaccessreview", "LocalSubjectAccessReview", &[], "n", Builtin::Review),
    row("authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview", &[], "", Builtin::Review),
    row("authorization.k8s.io", "selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview", &[], "", Builtin::Review),
    row("authorization.k8s.io", "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview", &[], "", Builtin::Review),
    row("apiextensions.k8s.io", "customresourcedefinitions", "customresourcedefinition", "CustomResourceDefinition", &["crd", "crds"], "sg", Builtin::CustomResourceDefinition),
];

/// Serves the built-in kinds and creates what every cluster has from its start.
pub(crate) fn install(state: &mut State) {
    for row in ROWS {
        let table = state.store.add_table(row.builtin == Builtin::Pod);
        let kind = from_row(row, table);
        if row.builtin == Builtin::Event {
            let twin = Kind { group: "events.k8s.io".into(), conversion: Conversion::Events, ..from_row(row, table) };
            state.kinds.insert(twin);
        }
        state.kinds.insert(kind);
    }
    let options = WriteOptions { field_manager: "kube-apiserver".into(), ..WriteOptions::default() };
    let mut seed = |resource: &resources::Resource, name: &str, body: serde_json::Value| {
        let Some(kind) = state.kinds.resource(resource).cloned() else { return };
        let created = state.create(&kind, "", body, &options);
        debug_assert!(created.is_ok(), "{name}: {created:?}");
    };
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        seed(&resources::NAMESPACES, name, json!({ "metadata": { "name": name } }));
    }
    for (name, value, description) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        let body = json!({ "metadata": { "name": name }, "value": value, "description": description });
        seed(&resources::PRIORITY_CLASSES, name, body);
    }
}

fn from_row(row: &Row, table: usize) -> Kind {
    let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    let scale = row.flags.contains('c').then(|| ScalePaths {
        spec_replicas: path("spec.replicas"),
        status_replicas: path("status.replicas"),
        selector: Some(path("spec.selector")),
    });
    // A container's claims on devices are a type of this name too.
    let shape = if row.builtin == Builtin::ResourceClaim { "resource.ResourceClaim" } else { row.kind };
    Kind {
        group: row.group.into(),
        version: "v1".into(),
        plural: row.plural.into(),
        singular: row.singular.into(),
        kind: row.kind.into(),
        list_kind: format!("{}List", row.kind),
        short_names: row.short.iter().map(|name| (*name).to_owned()).collect(),
        categories: if row.flags.contains('a') { vec!["all".into()] } else { Vec::new() },
        namespaced: row.flags.contains('n'),
        status: row.flags.contains('s'),
        scale,
        generation: row.flags.contains('g'),
        builtin: row.builtin,
        conversion: Conversion::None,
        schema: shapes::named(shape),
        table,
        storage_api_version: if row.group.is_empty() { "v1".into() } else { format!("{}/v1", row.group) },
        printer_columns: Vec::new(),
        selectable_fields: Vec::new(),
    }
}
