//! Applying manifests as `kubectl apply --server-side` does.

use super::NAMESPACE;
use crate::world::World;
use anyhow::{Context, anyhow, ensure};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::discovery::Scope;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

impl World {
    /// Applies every document of a manifest file.
    pub async fn apply_file(&self, name: &str) -> anyhow::Result<()> {
        apply_file(&self.kube(), &self.manifest(name)).await
    }

    /// Applies every document of a YAML text.
    pub async fn apply_text(&self, text: &str) -> anyhow::Result<()> {
        ensure!(apply_text(&self.kube(), text).await? > 0, "it holds no object");
        Ok(())
    }

    /// Applies a manifest of one object with fields changed, or taken away where the value is `null`. A change is a path such
    /// as `spec.limits.cpu` and a value in YAML.
    pub async fn apply_changed(&self, file: &str, changes: &[(&str, &str)]) -> anyhow::Result<()> {
        let text =
            std::fs::read_to_string(self.manifest(file)).with_context(|| format!("cannot read the manifest {file}"))?;
        let mut object: Value = serde_yaml_ng::from_str(&text)?;
        for (path, value) in changes {
            change(&mut object, path, serde_yaml_ng::from_str(value).with_context(|| format!("the value of {path}"))?)?;
        }
        self.apply(serde_json::from_value(object)?).await.map(drop)
    }

    /// Applies one object; its kind is looked up at the API server, which answers unknown kinds and fields itself.
    pub async fn apply(&self, object: DynamicObject) -> anyhow::Result<DynamicObject> {
        apply(&self.kube(), object).await
    }
}

/// Applies the manifests of a folder, in the order of their names, as `kubectl apply -f FOLDER` does.
pub async fn apply_folder(kube: &kube::Client, folder: &Path) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
    let manifest = |path: &Path| path.extension().is_some_and(|kind| kind == "yaml" || kind == "yml" || kind == "json");
    let mut paths: Vec<PathBuf> = paths.into_iter().filter(|path| manifest(path)).collect();
    ensure!(!paths.is_empty(), "the folder {} holds no .yaml, .yml or .json file", folder.display());
    paths.sort();
    let mut objects = 0;
    for path in &paths {
        objects += apply_objects(kube, path).await?;
    }
    ensure!(objects > 0, "the manifests in {} hold no object", folder.display());
    Ok(())
}

/// Applies the objects of a manifest.
pub async fn apply_file(kube: &kube::Client, path: &Path) -> anyhow::Result<()> {
    let objects = apply_objects(kube, path).await?;
    ensure!(objects > 0, "manifest {}: it holds no object", path.display());
    Ok(())
}

/// Applies the objects of a manifest and answers how many it holds.
async fn apply_objects(kube: &kube::Client, path: &Path) -> anyhow::Result<usize> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the manifest {}", path.display()))?;
    apply_text(kube, &text).await.with_context(|| format!("manifest {}", path.display()))
}

pub(crate) async fn apply_text(kube: &kube::Client, text: &str) -> anyhow::Result<usize> {
    let mut objects = 0;
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        // Through YAML's own values: they refuse a key that stands twice, of which JSON's would keep the last.
        let value = serde_yaml_ng::Value::deserialize(document).context("not valid YAML")?;
        if value.is_null() {
            continue;
        }
        ensure!(value.is_mapping(), "not a Kubernetes object: a document is no mapping of fields");
        let value = serde_json::to_value(value).context("not a Kubernetes object")?;
        apply(kube, serde_json::from_value(value).context("not a Kubernetes object")?).await?;
        objects += 1;
    }
    Ok(objects)
}

/// Applies one object.
pub(crate) async fn apply_object(kube: &kube::Client, object: Value) -> anyhow::Result<()> {
    apply(kube, serde_json::from_value(object).context("not a Kubernetes object")?).await.map(drop)
}

async fn apply(kube: &kube::Client, object: DynamicObject) -> anyhow::Result<DynamicObject> {
    let types = object.types.clone().context("the object has no apiVersion and kind")?;
    let kind = kube::core::GroupVersionKind::try_from(&types)?;
    let no_matches = || anyhow!("no matches for kind {:?} in version {:?}", types.kind, types.api_version);
    let (resource, capabilities) = kube::discovery::pinned_kind(kube, &kind).await.map_err(|error| match error {
        kube::Error::Discovery(_) => no_matches(),
        // Not even the group is known.
        kube::Error::Api(status) if status.code == 404 => no_matches(),
        other => other.into(),
    })?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(kube.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.metadata.namespace.clone();
            Api::namespaced_with(kube.clone(), namespace.as_deref().unwrap_or(NAMESPACE), &resource)
        }
    };
    let name = object.metadata.name.clone().context("the object has no metadata.name")?;
    let mut parameters = PatchParams::apply("trysquare").force();
    parameters.field_validation = Some(ValidationDirective::Strict);
    Ok(api.patch(&name, &parameters, &Patch::Apply(&object)).await?)
}

fn change(object: &mut Value, path: &str, value: Value) -> anyhow::Result<()> {
    let (parents, last) = path.rsplit_once('.').with_context(|| format!("{path} has no parent"))?;
    let mut fields = object;
    for part in parents.split('.') {
        let inner =
            fields.as_object_mut().with_context(|| format!("{path} leads through something that is no object"))?;
        fields = inner.entry(part).or_insert_with(|| Value::Object(Map::new()));
    }
    let fields = fields.as_object_mut().with_context(|| format!("the parent of {path} is no object"))?;
    match value {
        Value::Null => drop(fields.remove(last)),
        value => drop(fields.insert(last.to_owned(), value)),
    }
    Ok(())
}
