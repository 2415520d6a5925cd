//! What `kubectl explain` and the validation of clients read: OpenAPI documents, one per group and version.
//!
//! A document is built when first asked for and kept until a definition in it changes, so that a server starts at once.
//! Version 2 is served without paths, since clients in use ask for version 3; its protobuf form names no type at all.

mod builtin;
mod custom;
mod paths;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::{
    kinds::Kind,
    resources,
    state::{Server, State},
    store::to_bytes,
};

/// Where schemas stand in a document of version 3.
const COMPONENTS: &str = "#/components/schemas/";

/// How clients ask for version 2 in protobuf form.
pub(crate) const VERSION_2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2";
pub(crate) const VERSION_2_PROTOBUF_MEDIA: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Version 2 in protobuf form, with a heading alone. kubectl falls back to it for kinds that version 3 does not have: a
/// document without them says that there is nothing to check against, an error that the manifest could not be checked.
pub(crate) fn version_2_protobuf(kubernetes_version: &str) -> Bytes {
    fn text(number: u8, content: &[u8]) -> Vec<u8> {
        // Field and length take a byte each: the contents are a version and a few words.
        let content = &content[..content.len().min(100)];
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }
    let info = [text(1, b"Kubernetes"), text(2, kubernetes_version.as_bytes())].concat();
    Bytes::from([text(1, b"2.0"), text(2, &info)].concat())
}

/// Documents that were asked for, with the hash they have.
#[derive(Default)]
pub(crate) struct Documents(Mutex<BTreeMap<String, (String, Bytes)>>);

impl Documents {
    fn get_or_build(&self, name: &str, hash: String, build: impl FnOnce() -> Value) -> Bytes {
        let mut documents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, document)) = documents.get(name)
            && *known == hash
        {
            return document.clone();
        }
        let document = to_bytes(&build());
        documents.insert(name.to_owned(), (hash, document.clone()));
        document
    }
}

impl Server {
    /// The document at a path below `/openapi`; `None` if there is none.
    pub(crate) fn openapi(&self, path: &[&str]) -> Option<Bytes> {
        let version = &self.options.kubernetes_version;
        let state = self.enter();
        match path {
            ["v2"] => {
                let hash = state.openapi_hash(version, None);
                Some(self.documents.get_or_build("v2", hash, || state.version_2(version)))
            }
            ["v3"] => Some(to_bytes(&state.openapi_index(version))),
            ["v3", "api", "v1"] => self.openapi_document(&state, "", "v1"),
            ["v3", "apis", group, group_version] => self.openapi_document(&state, group, group_version),
            _ => None,
        }
    }

    fn openapi_document(&self, state: &State, group: &str, group_version: &str) -> Option<Bytes> {
        let kinds = state.kinds.groups().get(group)?.get(group_version)?;
        let hash = state.openapi_hash(&self.options.kubernetes_version, Some((group, group_version)));
        Some(self.documents.get_or_build(&path_of(group, group_version), hash, || {
            let kinds: Vec<&Kind> = kinds.values().map(|kind| &**kind).collect();
            json!({
                "openapi": "3.0.0",
                "info": { "title": "Kubernetes", "version": self.options.kubernetes_version },
                "paths": kinds.iter().flat_map(|kind| paths::of(kind)).collect::<Map<_, _>>(),
                "components": { "schemas": state.schemas(&kinds) },
            })
        }))
    }
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

impl State {
    fn openapi_index(&self, kubernetes_version: &str) -> Value {
        let mut paths = Map::new();
        for (group, versions) in self.kinds.groups() {
            for version in versions.keys() {
                let path = path_of(group, version);
                let hash = self.openapi_hash(kubernetes_version, Some((group, version)));
                let url = format!("/openapi/v3/{path}?hash={hash}");
                paths.insert(path, json!({ "serverRelativeURL": url }));
            }
        }
        json!({ "paths": paths })
    }

    /// Changes whenever a document does: with the server's version, and with each definition of the group.
    fn openapi_hash(&self, kubernetes_version: &str, only: Option<(&str, &str)>) -> String {
        let mut text = format!("{kubernetes_version} {only:?}");
        for (group, versions) in self.kinds.groups() {
            for (version, kinds) in versions {
                if only.is_some_and(|only| only != (group, version)) {
                    continue;
                }
                for kind in kinds.values().filter(|kind| kind.custom()) {
                    let metadata = self.definition(kind).map(|definition| &definition["metadata"]);
                    let part = |key: &str| metadata.map(|metadata| metadata[key].to_string()).unwrap_or_default();
                    text.push_str(&format!(" {} {}", part("uid"), part("generation")));
                }
            }
        }
        // FNV-1a: any change of the text changes it, and it need not withstand anybody.
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        format!("{hash:016X}")
    }

    /// The stored definition a custom kind comes from.
    fn definition(&self, kind: &Kind) -> Option<&Value> {
        let definitions = self.kinds.resource(&resources::CUSTOM_RESOURCE_DEFINITIONS)?;
        let name = format!("{}.{}", kind.plural, kind.group);
        self.store.table(definitions.table).get("", &name).map(|stored| &*stored.value)
    }

    /// Schemas of some kinds and of all that they consist of.
    fn schemas(&self, kinds: &[&Kind]) -> Map<String, Value> {
        let built_in: Vec<&Kind> = kinds.iter().copied().filter(|kind| !kind.custom()).collect();
        let mut schemas = builtin::schemas(&built_in);
        for kind in kinds.iter().filter(|kind| kind.custom()) {
            if let Some(definition) = self.definition(kind) {
                schemas.insert(custom::name(kind), custom::schema(kind, definition));
                builtin::add_object_meta(&mut schemas);
            }
        }
        schemas
    }

    fn version_2(&self, kubernetes_version: &str) -> Value {
        let mut definitions = Map::new();
        for versions in self.kinds.groups().values() {
            for kinds in versions.values() {
                let kinds: Vec<&Kind> = kinds.values().map(|kind| &**kind).collect();
                definitions.extend(self.schemas(&kinds));
            }
        }
        let mut definitions = Value::Object(definitions);
        refer_to_definitions(&mut definitions);
        json!({
            "swagger": "2.0", "info": { "title": "Kubernetes", "version": kubernetes_version },
            "paths": {}, "definitions": definitions,
        })
    }
}

/// Brings references, and what version 2 cannot say, into its form.
fn refer_to_definitions(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // Version 2 has a reference stand alone, with a description beside it.
            // A property may be called like this too; it is no list then.
            if let Some(Value::Array(parts)) = fields.get("allOf")
                && let [Value::Object(part)] = parts.as_slice()
            {
                let part = part.clone();
                fields.remove("allOf");
                fields.extend(part);
            }
            if let Some(Value::String(reference)) = fields.get_mut("$ref") {
                *reference = reference.replace(COMPONENTS, "#/definitions/");
            }
            fields.values_mut().for_each(refer_to_definitions);
        }
        Value::Array(list) => list.iter_mut().for_each(refer_to_definitions),
        _ => {}
    }
}

/// The mark by which clients find the schema of a kind.
fn group_version_kind(kind: &Kind) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}
