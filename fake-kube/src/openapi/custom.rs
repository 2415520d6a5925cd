//! The schema of a custom resource: that of its definition, with what all objects have.

use serde_json::{Value, json};

use super::{COMPONENTS, builtin, group_version_kind};
use crate::kinds::Kind;

/// The schema's name, such as `sh.karpenter.v1.NodePool`: the group from its end.
pub(super) fn name(kind: &Kind) -> String {
    let mut parts: Vec<&str> = kind.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), kind.version, kind.kind)
}

pub(super) fn schema(kind: &Kind, definition: &Value) -> Value {
    let versions = definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let version = versions.iter().find(|version| version["name"] == kind.version.as_str());
    let mut schema = version.map(|version| version["schema"]["openAPIV3Schema"].clone()).unwrap_or_default();
    if !schema.is_object() {
        schema = json!({ "type": "object" });
    }
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    schema["properties"]["apiVersion"] = builtin::type_meta_field("apiVersion");
    schema["properties"]["kind"] = builtin::type_meta_field("kind");
    schema["properties"]["metadata"] = json!({
        "description": "Standard object's metadata. More info: \
            https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        "allOf": [{ "$ref": format!("{COMPONENTS}{}", builtin::OBJECT_META) }],
    });
    schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind)]);
    schema
}
