//! Schemas of the built-in kinds: types and descriptions from k8s-openapi, merging of lists and maps from the shapes that
//! this server decodes with. Fields that only a later Kubernetes knows are left out.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::{
        apps::v1 as apps, authentication::v1 as authentication, authorization::v1 as authorization, batch::v1 as batch,
        coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery, events::v1 as events,
        node::v1 as node, policy::v1 as policy, rbac::v1 as rbac, resource::v1 as resource,
        scheduling::v1 as scheduling, storage::v1 as storage,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use schemars::{JsonSchema, Schema as Described, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{COMPONENTS, group_version_kind};
use crate::{
    kinds::Kind,
    schema::{ListKind, Schema, Shape},
};

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A type of k8s-openapi.
struct Type {
    name: fn() -> std::borrow::Cow<'static, str>,
    schema: fn(&mut SchemaGenerator) -> Described,
}

fn of<T: JsonSchema>() -> Option<Type> {
    Some(Type { name: T::schema_name, schema: SchemaGenerator::subschema_for::<T> })
}

fn known(kind: &Kind) -> Option<Type> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => of::<core::Namespace>(),
        ("", "Pod") => of::<core::Pod>(),
        ("", "Node") => of::<core::Node>(),
        ("", "Service") => of::<core::Service>(),
        ("", "Endpoints") => of::<core::Endpoints>(),
        ("", "Event") => of::<core::Event>(),
        ("", "ConfigMap") => of::<core::ConfigMap>(),
        ("", "Secret") => of::<core::Secret>(),
        ("", "ServiceAccount") => of::<core::ServiceAccount>(),
        ("", "PersistentVolume") => of::<core::PersistentVolume>(),
        ("", "PersistentVolumeClaim") => of::<core::PersistentVolumeClaim>(),
        ("", "ResourceQuota") => of::<core::ResourceQuota>(),
        ("", "LimitRange") => of::<core::LimitRange>(),
        ("", "PodTemplate") => of::<core::PodTemplate>(),
        ("", "ReplicationController") => of::<core::ReplicationController>(),
        ("events.k8s.io", "Event") => of::<events::Event>(),
        ("discovery.k8s.io", "EndpointSlice") => of::<discovery::EndpointSlice>(),
        ("coordination.k8s.io", "Lease") => of::<coordination::Lease>(),
        ("apps", "Deployment") => of::<apps::Deployment>(),
        ("apps", "ReplicaSet") => of::<apps::ReplicaSet>(),
        ("apps", "StatefulSet") => of::<apps::StatefulSet>(),
        ("apps", "DaemonSet") => of::<apps::DaemonSet>(),
        ("apps", "ControllerRevision") => of::<apps::ControllerRevision>(),
        ("batch", "Job") => of::<batch::Job>(),
        ("batch", "CronJob") => of::<batch::CronJob>(),
        ("policy", "PodDisruptionBudget") => of::<policy::PodDisruptionBudget>(),
        ("storage.k8s.io", "StorageClass") => of::<storage::StorageClass>(),
        ("storage.k8s.io", "CSINode") => of::<storage::CSINode>(),
        ("storage.k8s.io", "CSIDriver") => of::<storage::CSIDriver>(),
        ("storage.k8s.io", "CSIStorageCapacity") => of::<storage::CSIStorageCapacity>(),
        ("storage.k8s.io", "VolumeAttachment") => of::<storage::VolumeAttachment>(),
        ("resource.k8s.io", "DeviceClass") => of::<resource::DeviceClass>(),
        ("resource.k8s.io", "ResourceClaim") => of::<resource::ResourceClaim>(),
        ("resource.k8s.io", "ResourceClaimTemplate") => of::<resource::ResourceClaimTemplate>(),
        ("resource.k8s.io", "ResourceSlice") => of::<resource::ResourceSlice>(),
        ("scheduling.k8s.io", "PriorityClass") => of::<scheduling::PriorityClass>(),
        ("node.k8s.io", "RuntimeClass") => of::<node::RuntimeClass>(),
        ("rbac.authorization.k8s.io", "Role") => of::<rbac::Role>(),
        ("rbac.authorization.k8s.io", "RoleBinding") => of::<rbac::RoleBinding>(),
        ("rbac.authorization.k8s.io", "ClusterRole") => of::<rbac::ClusterRole>(),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => of::<rbac::ClusterRoleBinding>(),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => of::<apiextensions::CustomResourceDefinition>(),
        ("authentication.k8s.io", "SelfSubjectReview") => of::<authentication::SelfSubjectReview>(),
        ("authentication.k8s.io", "TokenReview") => of::<authentication::TokenReview>(),
        ("authorization.k8s.io", "SelfSubjectAccessReview") => of::<authorization::SelfSubjectAccessReview>(),
        ("authorization.k8s.io", "SelfSubjectRulesReview") => of::<authorization::SelfSubjectRulesReview>(),
        ("authorization.k8s.io", "SubjectAccessReview") => of::<authorization::SubjectAccessReview>(),
        ("authorization.k8s.io", "LocalSubjectAccessReview") => of::<authorization::LocalSubjectAccessReview>(),
        _ => None,
    }
}

/// The schema's name of a built-in kind, such as `io.k8s.api.core.v1.Pod`.
pub(super) fn name(kind: &Kind) -> Option<String> {
    known(kind).map(|known| (known.name)().into_owned())
}

fn generator() -> SchemaGenerator {
    SchemaSettings::openapi3().into_generator()
}

/// Definitions of a generator in the form of the genuine documents: a description stands beside `allOf`, not `$ref`.
fn definitions(mut generator: SchemaGenerator) -> Map<String, Value> {
    let mut found = generator.take_definitions(false);
    found.values_mut().for_each(stand_beside);
    found
}

fn stand_beside(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // A property may be called like this too; it is no text then.
            if fields.len() > 1 && fields.get("$ref").is_some_and(Value::is_string) {
                let reference = fields.remove("$ref");
                fields.insert("allOf".into(), json!([{ "$ref": reference }]));
            }
            fields.values_mut().for_each(stand_beside);
        }
        Value::Array(list) => list.iter_mut().for_each(stand_beside),
        _ => {}
    }
}

/// Schemas of some kinds and of all that they consist of.
pub(super) fn schemas(kinds: &[&Kind]) -> Map<String, Value> {
    let mut generator = generator();
    for known in kinds.iter().filter_map(|kind| known(kind)) {
        (known.schema)(&mut generator);
    }
    let mut schemas = definitions(generator);
    let mut done = BTreeSet::new();
    for kind in kinds {
        let Some(name) = name(kind) else { continue };
        if let Some(schema) = schemas.get_mut(&name) {
            schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind)]);
        }
        shape(&mut schemas, &name, &kind.schema, &mut done);
    }
    let reachable = reachable(&schemas, kinds.iter().filter_map(|kind| name(kind)));
    schemas.retain(|name, _| reachable.contains(name));
    schemas
}

/// Adds the schema of metadata, which custom resources refer to.
pub(super) fn add_object_meta(schemas: &mut Map<String, Value>) {
    if schemas.contains_key(OBJECT_META) {
        return;
    }
    let mut generator = generator();
    generator.subschema_for::<ObjectMeta>();
    let mut added = definitions(generator);
    shape(&mut added, OBJECT_META, &crate::schema::shapes::named("ObjectMeta"), &mut BTreeSet::new());
    schemas.extend(added);
}

/// A field that every object has, described as on all of them.
pub(super) fn type_meta_field(field: &str) -> Value {
    let mut generator = generator();
    generator.subschema_for::<core::ConfigMap>();
    definitions(generator)["io.k8s.api.core.v1.ConfigMap"]["properties"][field].clone()
}

/// The schema a value refers to by name, alone or beside a description.
fn referred(schema: &Value) -> Option<&str> {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str())?;
    reference.strip_prefix(COMPONENTS)
}

/// Marks a definition, and those it refers to, with how lists and maps merge; drops the fields this server does not know.
fn shape(schemas: &mut Map<String, Value>, name: &str, known: &Schema, done: &mut BTreeSet<String>) {
    let Shape::Struct { fields, open: false, .. } = &known.shape else { return };
    if !done.insert(name.to_owned()) {
        return;
    }
    let Some(properties) = schemas.get_mut(name).and_then(|schema| schema["properties"].as_object_mut()) else {
        return;
    };
    properties.retain(|field, _| fields.contains_key(field));
    let mut below: Vec<(String, &Schema)> = Vec::new();
    for (field, property) in properties.iter_mut() {
        let mut known = &*fields[field];
        mark(field, property, known);
        // The selector of a budget is meant whole, which its type does not tell.
        if name.ends_with(".PodDisruptionBudgetSpec") && field == "selector" {
            property["x-kubernetes-patch-strategy"] = json!("replace");
        }
        // Lists and maps are looked into until something with a name comes.
        let mut inner = &*property;
        loop {
            known = match &known.shape {
                Shape::List { items, .. } => items,
                Shape::Map { values, .. } => values,
                _ => break,
            };
            inner = if inner["items"].is_object() { &inner["items"] } else { &inner["additionalProperties"] };
        }
        if let Some(name) = referred(inner) {
            below.push((name.to_owned(), known));
        }
    }
    for (name, known) in below {
        shape(schemas, &name, known, done);
    }
}

fn mark(field: &str, property: &mut Value, known: &Schema) {
    match &known.shape {
        Shape::List { kind, strategic, .. } => {
            let (text, keys) = match kind {
                ListKind::Atomic => ("atomic", None),
                ListKind::Set => ("set", None),
                ListKind::Map(keys) => ("map", Some(keys)),
            };
            property["x-kubernetes-list-type"] = json!(text);
            if let Some(keys) = keys {
                property["x-kubernetes-list-map-keys"] = json!(keys);
            }
            match strategic {
                ListKind::Atomic => {}
                // A volume has one source: what is not in the patch must go.
                ListKind::Map(keys) => {
                    let strategy = if field == "volumes" { "merge,retainKeys" } else { "merge" };
                    property["x-kubernetes-patch-strategy"] = json!(strategy);
                    property["x-kubernetes-patch-merge-key"] = json!(keys.first());
                }
                ListKind::Set => property["x-kubernetes-patch-strategy"] = json!("merge"),
            }
        }
        Shape::Map { atomic: true, .. } => property["x-kubernetes-map-type"] = json!("atomic"),
        Shape::Struct { atomic: true, .. } => property["x-kubernetes-map-type"] = json!("atomic"),
        // A change of the type of a Deployment's strategy takes the fields of the other with it.
        Shape::Struct { name, .. } if name == "DeploymentStrategy" => {
            property["x-kubernetes-patch-strategy"] = json!("retainKeys");
        }
        _ => {}
    }
}

fn reachable(schemas: &Map<String, Value>, roots: impl Iterator<Item = String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<String> = roots.collect();
    while let Some(name) = waiting.pop() {
        if let Some(schema) = schemas.get(&name)
            && found.insert(name)
        {
            collect(schema, &mut waiting);
        }
    }
    found
}

fn collect(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(name) =
                fields.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix(COMPONENTS))
            {
                names.push(name.to_owned());
            }
            fields.values().for_each(|value| collect(value, names));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, names)),
        _ => {}
    }
}
