//! Custom resource definitions: from an object of the API to a served kind.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    deletion::{DeleteOptions, name_of, set_finalizer},
    kinds::{Builtin, Conversion, Kind, ScalePaths},
    resources,
    schema::{Schema, structural},
    state::State,
    status::{FieldError, Status},
    subresource::set_condition,
    write::{Part, WriteOptions},
};

/// The finalizer that holds a definition while it has objects.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Fills in names, checks the definition and sets its status as the controllers of the genuine server do.
pub(crate) fn prepare(object: &mut Value, now: &str) -> Result<(), Vec<FieldError>> {
    let kind = text(&object["spec"]["names"], "kind").to_owned();
    for (key, default) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
        if text(&object["spec"]["names"], key).is_empty() {
            object["spec"]["names"][key] = json!(default);
        }
    }
    if object["spec"]["conversion"].is_null() {
        object["spec"]["conversion"] = json!({ "strategy": "None" });
    }
    let errors = validate(object);
    if !errors.is_empty() {
        return Err(errors);
    }
    let versions = object["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let storage = versions.iter().find(|version| version["storage"] == true).map(|version| version["name"].clone());
    object["status"]["acceptedNames"] = object["spec"]["names"].clone();
    let mut stored = object["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    if let Some(storage) = storage
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
    object["status"]["storedVersions"] = Value::Array(stored);
    for (name, reason, message) in [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ] {
        let condition = json!({
            "type": name, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now,
        });
        set_condition(object, condition);
    }
    Ok(())
}

fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &object["spec"];
    let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
    for (path, value) in
        [("spec.group", group), ("spec.names.plural", plural), ("spec.names.kind", text(&spec["names"], "kind"))]
    {
        if value.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
    }
    let name = text(&object["metadata"], "name");
    if name != format!("{plural}.{group}") {
        errors.push(FieldError::invalid("metadata.name", &json!(name), "must be spec.names.plural+\".\"+spec.group"));
    }
    if !matches!(text(spec, "scope"), "Namespaced" | "Cluster") {
        let given = json!(text(spec, "scope"));
        errors.push(FieldError::not_supported("spec.scope", &given, &["Cluster", "Namespaced"]));
    }
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        errors.push(FieldError::invalid(
            "spec.versions",
            &spec["versions"],
            "must have exactly one version marked as storage version",
        ));
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let schema = &version["schema"]["openAPIV3Schema"];
        if !schema.is_object() {
            errors.push(FieldError::required(format!("{path}.schema.openAPIV3Schema"), "schemas are required"));
            continue;
        }
        if text(schema, "type") != "object" {
            let given = json!(text(schema, "type"));
            errors.push(FieldError::invalid(
                format!("{path}.schema.openAPIV3Schema.type"),
                &given,
                "must be object at the root",
            ));
        }
        if let Err(error) = structural::read(schema) {
            errors.push(FieldError::invalid(format!("{path}.schema.openAPIV3Schema"), &json!(""), error));
        }
    }
    errors
}

fn path_of(value: &Value) -> Option<Vec<String>> {
    let path = value.as_str()?.trim_start_matches('.');
    (!path.is_empty()).then(|| path.split('.').map(str::to_owned).collect())
}

/// The kinds a definition serves, without their table.
fn kinds_of(definition: &Value, table: usize) -> Vec<Kind> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let group = text(spec, "group");
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let storage =
        versions.iter().find(|version| version["storage"] == true).map_or("", |version| text(version, "name"));
    versions
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| {
            let scale = &version["subresources"]["scale"];
            let schema = structural::read(&version["schema"]["openAPIV3Schema"]);
            Kind {
                group: group.into(),
                version: text(version, "name").into(),
                plural: text(names, "plural").into(),
                singular: text(names, "singular").into(),
                kind: text(names, "kind").into(),
                list_kind: text(names, "listKind").into(),
                short_names: list(&names["shortNames"]),
                categories: list(&names["categories"]),
                namespaced: text(spec, "scope") == "Namespaced",
                status: version["subresources"]["status"].is_object(),
                scale: path_of(&scale["specReplicasPath"]).map(|spec_replicas| ScalePaths {
                    spec_replicas,
                    status_replicas: path_of(&scale["statusReplicasPath"]).unwrap_or_default(),
                    selector: path_of(&scale["labelSelectorPath"]),
                }),
                generation: true,
                builtin: Builtin::Custom,
                conversion: Conversion::None,
                // Checked when the definition was written.
                schema: Arc::new(schema.unwrap_or_else(|_| Schema::of(crate::schema::Shape::Any))),
                table,
                storage_api_version: format!("{group}/{storage}"),
                printer_columns: version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default(),
                selectable_fields: version["selectableFields"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
                    .collect(),
            }
        })
        .collect()
}

impl State {
    /// Creates or updates a definition.
    pub(crate) fn install_crd(&mut self, definition: Value) -> Result<(), Status> {
        let kind = self.builtin(&resources::CUSTOM_RESOURCE_DEFINITIONS)?;
        let options = WriteOptions { field_manager: "install".into(), ..WriteOptions::default() };
        let name = name_of(&definition).unwrap_or_default();
        if self.store.table(kind.table).get("", &name).is_some() {
            self.update(&kind, "", &name, definition, Part::Whole, &options)?;
        } else {
            self.create(&kind, "", definition, &options)?;
        }
        Ok(())
    }

    /// Serves what a stored definition says.
    pub(crate) fn serve_crd(&mut self, definition: &Value) -> Result<(), Status> {
        let spec = &definition["spec"];
        let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
        let present = self
            .kinds
            .groups()
            .get(group)
            .and_then(|versions| versions.values().find_map(|kinds| kinds.get(plural)).map(|kind| kind.table));
        let table = present.unwrap_or_else(|| self.store.add_table(false));
        self.kinds.remove(group, plural);
        for kind in kinds_of(definition, table) {
            self.kinds.insert(kind);
        }
        Ok(())
    }

    /// Stops serving a definition that is gone.
    pub(crate) fn unserve_crd(&mut self, definition: &Value) {
        let spec = &definition["spec"];
        let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
        for kind in kinds_of(definition, 0) {
            if let Some(served) = self.kinds.get(group, &kind.version, plural) {
                let table = served.table;
                self.store.cut_watches(table);
            }
        }
        self.kinds.remove(group, plural);
    }

    fn stored_kind(&self, definition: &Value) -> Option<Arc<Kind>> {
        let spec = &definition["spec"];
        let versions = self.kinds.groups().get(text(spec, "group"))?;
        let plural = text(&spec["names"], "plural");
        versions.values().find_map(|kinds| kinds.get(plural)).cloned()
    }

    /// Deletes all objects of a definition. Answers whether some are still held.
    pub(crate) fn delete_instances(&mut self, definition: &Value) -> bool {
        let Some(kind) = self.stored_kind(definition) else { return false };
        let objects: Vec<_> = self.store.table(kind.table).iter().cloned().collect();
        for stored in objects {
            let metadata = &stored.value["metadata"];
            let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
            let _ = self.delete(&kind, namespace, name, &DeleteOptions::default());
        }
        self.store.table(kind.table).len() > 0
    }

    /// Lets a terminating definition go once its last object is gone.
    pub(crate) fn finish_crd(&mut self, kind: &Kind) {
        if self.store.table(kind.table).len() > 0 {
            return;
        }
        let Ok(definitions) = self.builtin(&resources::CUSTOM_RESOURCE_DEFINITIONS) else { return };
        let name = format!("{}.{}", kind.plural, kind.group);
        let Some(stored) = self.store.table(definitions.table).get("", &name) else { return };
        let finalizers = stored.value["metadata"]["finalizers"].as_array();
        if !finalizers.is_some_and(|list| list.contains(&json!(CLEANUP))) {
            return;
        }
        let mut object = (*stored.value).clone();
        set_finalizer(&mut object, CLEANUP, false);
        self.release(&definitions, "", &name, object);
    }
}
