//! Creating and updating: the shared path of every write.
//!
//! Body → decoded and defaulted → validated → generation and managed fields → stored. What single kinds add stands in
//! `builtin`; what custom resources add in `schema`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::{
    builtin, conversion, crd,
    kinds::{Builtin, Conversion, Kind},
    managed_fields,
    patch::{self, Patch},
    schema::{self, decode::Findings},
    state::State,
    status::{FieldError, Status},
    store::Stored,
};

/// What a write concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Status,
    /// The number of replicas, through `scale`.
    Scale,
    /// A few more subresources of pods write only their own fields.
    Resize,
    EphemeralContainers,
}

impl Part {
    pub(crate) fn of(subresource: Option<&str>) -> Result<Self, Status> {
        match subresource {
            None => Ok(Self::Whole),
            Some("status") => Ok(Self::Status),
            Some("resize") => Ok(Self::Resize),
            Some("ephemeralcontainers") => Ok(Self::EphemeralContainers),
            Some(_) => Err(Status::no_such_resource()),
        }
    }

    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Status => Some("status"),
            Self::Scale => Some("scale"),
            Self::Resize => Some("resize"),
            Self::EphemeralContainers => Some("ephemeralcontainers"),
        }
    }
}

/// What to do about fields that no schema knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_manager: String,
    /// Whether the caller named the manager: then it is recorded from the object's beginning.
    pub(crate) names_manager: bool,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: bool,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Arc<Stored>,
    pub(crate) warnings: Vec<String>,
    /// Whether a patch or update created the object.
    pub(crate) created: bool,
}

impl Written {
    pub(crate) fn plain(object: Arc<Stored>) -> Self {
        Self { object, warnings: Vec::new(), created: false }
    }
}

/// Names of objects that may be any path segment rather than a DNS name.
fn loose_names(kind: &Kind) -> bool {
    kind.group == "rbac.authorization.k8s.io"
}

impl State {
    /// Reads a body into the stored form of the kind.
    fn decode(&self, kind: &Kind, object: &mut Value, options: &WriteOptions) -> Result<Vec<String>, Status> {
        if !object.is_object() {
            return Err(Status::bad_request(
                "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct",
            ));
        }
        conversion::to_storage(kind, object);
        let mut findings = Findings::default();
        let context = |message: String| {
            format!("{} in version \"{}\" cannot be handled as a {}: {message}", kind.kind, kind.version, kind.kind)
        };
        let refuse = |error: schema::decode::DecodeError| {
            Status::bad_request(context(error.message)).with_cause("FieldValueInvalid", "", &error.field)
        };
        if kind.custom() {
            let metadata = schema::shapes::named("ObjectMeta");
            if let Some(found) = object.get_mut("metadata") {
                let mut inner = Findings::default();
                schema::decode::builtin(&metadata, found, &mut inner).map_err(refuse)?;
                findings.unknown.extend(inner.unknown.into_iter().map(|path| format!("metadata.{path}")));
            }
            schema::decode::prune(&kind.schema, object, &mut findings);
        } else {
            schema::decode::builtin(&kind.schema, object, &mut findings).map_err(refuse)?;
        }
        if findings.unknown.is_empty() || options.field_validation == FieldValidation::Ignore {
            return Ok(Vec::new());
        }
        let warnings: Vec<String> = findings.unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        if options.field_validation == FieldValidation::Strict {
            return Err(Status::bad_request(context(format!("strict decoding error: {}", warnings.join(", ")))));
        }
        Ok(warnings)
    }

    fn fill_in(&self, kind: &Kind, object: &mut Value) {
        if kind.custom() {
            schema::default::drop_nulls(&kind.schema, object);
            schema::default::apply(&kind.schema, object);
        } else {
            builtin::defaults::apply(kind.builtin, object);
        }
    }

    fn validate(&self, kind: &Kind, new: &Value, old: Option<&Value>, part: Part) -> Vec<FieldError> {
        let mut errors = builtin::metadata::validate(&new["metadata"], old.map(|old| &old["metadata"]));
        if !kind.custom() {
            if old.is_some() {
                // What all kinds share is checked four times over on an update, and told each time.
                let once = errors.clone();
                errors.extend([once.clone(), once.clone(), once].concat());
            }
            errors.extend(builtin::metadata::plain_finalizers(&new["metadata"], old.map(|old| &old["metadata"])));
        }
        if kind.custom() {
            errors.extend(schema::custom::check(&self.rules, kind, new, old, part));
        } else {
            errors.extend(builtin::validate::check(kind.builtin, new, old, part));
        }
        errors
    }

    /// Creates an object.
    pub(crate) fn create(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        // Who owns what is for the server to say.
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        self.create_managed(kind, namespace, object, options)
    }

    /// Creates an object that may come with managed fields.
    fn create_managed(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        self.check_type(kind, &object)?;
        let warnings = self.decode(kind, &mut object, options)?;
        let created = self.create_decoded(kind, namespace, object, options);
        let object = created.map_err(|refused| refused.with_warnings(&warnings))?;
        Ok(Written { object, warnings, created: true })
    }

    fn create_decoded(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<Stored>, Status> {
        let name = self.prepare_metadata(kind, namespace, &mut object)?;
        if kind.namespaced {
            self.check_namespace(kind, namespace, &name)?;
        }
        if kind.custom()
            && kind.status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        builtin::create::prepare(kind.builtin, &mut object, &self.timestamp());
        self.fill_in(kind, &mut object);
        self.admit(kind, &mut object)?;
        let mut errors = Vec::new();
        if let Some(prefix) = object["metadata"]["generateName"].as_str().filter(|prefix| !prefix.is_empty()) {
            // A dash at its end is followed by the suffix.
            let probe = prefix.strip_suffix('-').map_or(prefix.to_owned(), |begin| format!("{begin}a"));
            errors.extend(builtin::metadata::validate_name(&probe, kind.builtin, loose_names(kind)).into_iter().map(
                |mut error| {
                    error.field = "metadata.generateName".into();
                    error.value = Some(format!("{prefix:?}"));
                    error
                },
            ));
        }
        errors.extend(builtin::metadata::validate_name(&name, kind.builtin, loose_names(kind)));
        errors.extend(self.validate(kind, &object, None, Part::Whole));
        if kind.conversion == Conversion::Events && object["eventTime"].is_null() {
            // The new form asks for more; the refusal names the kind without its group.
            errors.push(FieldError::required("eventTime", ""));
            let given = json!(object["type"].as_str().unwrap_or_default());
            if !matches!(given.as_str(), Some("Normal" | "Warning")) {
                let detail = format!("has invalid value: {}", given.as_str().unwrap_or_default());
                errors.push(FieldError::invalid("type", &given, detail));
            }
            return Err(Status::invalid_as("", &kind.kind, &name, &errors));
        }
        if !errors.is_empty() {
            return Err(Status::invalid(kind, &name, &errors));
        }
        if kind.custom() {
            schema::decode::whole_numbers(&mut object);
        }
        if self.store.table(kind.table).get(namespace, &name).is_some() {
            return Err(Status::already_exists(kind, &name));
        }
        if kind.builtin == Builtin::CustomResourceDefinition {
            crd::prepare(&mut object, &self.timestamp()).map_err(|errors| Status::invalid(kind, &name, &errors))?;
        }
        if options.names_manager && object["metadata"]["managedFields"].is_null() {
            managed_fields::created(kind, &mut object, options, &self.timestamp());
        }
        self.insert(kind, namespace, &name, object, options.dry_run)
    }

    /// Puts a complete new object and lets its consequences happen.
    fn insert(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        object: Value,
        dry_run: bool,
    ) -> Result<Arc<Stored>, Status> {
        if dry_run {
            return Ok(Stored::new(object, 0));
        }
        let stored = self.store.put(kind.table, namespace, name, object);
        if kind.builtin == Builtin::CustomResourceDefinition {
            self.serve_crd(&stored.value)?;
        }
        if kind.builtin == Builtin::Event {
            self.expire_events(kind, &stored);
        }
        self.collect_if_orphaned(kind, namespace, name, &stored);
        Ok(stored)
    }

    fn prepare_metadata(&mut self, kind: &Kind, namespace: &str, object: &mut Value) -> Result<String, Status> {
        let uid = self.ids.uid();
        let timestamp = self.timestamp();
        let Some(fields) = object.as_object_mut() else { return Err(Status::bad_request("not an object")) };
        fields.insert("apiVersion".into(), json!(kind.storage_api_version));
        fields.insert("kind".into(), json!(kind.kind));
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        let Some(metadata) = metadata.as_object_mut() else {
            return Err(Status::bad_request("metadata: not an object"));
        };
        let text = |metadata: &Map<String, Value>, key: &str| {
            metadata.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let given = text(metadata, "namespace");
        if kind.namespaced {
            if !given.is_empty() && given != namespace {
                return Err(Status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            metadata.insert("namespace".into(), json!(namespace));
        } else {
            metadata.remove("namespace");
        }
        if !text(metadata, "resourceVersion").is_empty() {
            return Err(Status::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        let mut name = text(metadata, "name");
        if name.is_empty() {
            let prefix = text(metadata, "generateName");
            if prefix.is_empty() {
                let errors = [FieldError::required("metadata.name", "name or generateName is required")];
                return Err(Status::invalid(kind, "", &errors));
            }
            // The longest prefix that leaves room for the suffix in a DNS label.
            let prefix: String = prefix.chars().take(58).collect();
            name = format!("{prefix}{}", self.ids.suffix());
            metadata.insert("name".into(), json!(name));
        }
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            metadata.remove(key);
        }
        metadata.insert("uid".into(), json!(uid));
        metadata.insert("creationTimestamp".into(), json!(timestamp));
        if kind.generation {
            metadata.insert("generation".into(), json!(1));
        }
        Ok(name)
    }

    /// Replaces an object or one part of it.
    pub(crate) fn update(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        mut object: Value,
        part: Part,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        self.check_type(kind, &object)?;
        let warnings = self.decode(kind, &mut object, options)?;
        let metadata = &object["metadata"];
        let given = metadata["name"].as_str().unwrap_or_default();
        if given != name {
            return Err(Status::bad_request(if given.is_empty() {
                format!("the name of the object ({name} based on URL) was undeterminable: name must be provided")
            } else {
                format!("the name of the object ({given}) does not match the name on the URL ({name})")
            }));
        }
        check_place(namespace, metadata)?;
        let old = Arc::clone(self.get(kind, namespace, name)?);
        let unconditional = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().is_empty();
        if unconditional && kind.custom() {
            let errors =
                [FieldError::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update")];
            return Err(Status::invalid_as(&kind.group, &kind.plural, name, &errors));
        }
        let (uid, known) = (&object["metadata"]["uid"], &old.value["metadata"]["uid"]);
        if let (Some(uid), Some(known)) = (uid.as_str().filter(|uid| !uid.is_empty() && known != uid), known.as_str()) {
            return Err(Status::other_uid(kind, namespace, name, uid, known));
        }
        let replaced = self.replace(kind, namespace, name, &old, object, part, options);
        let mut written = replaced.map_err(|refused| refused.with_warnings(&warnings))?;
        written.warnings = warnings;
        Ok(written)
    }

    /// Applies a patch; server-side apply may create the object.
    pub(crate) fn patch(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        patch: Patch,
        part: Part,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        let current = self.store.table(kind.table).get(namespace, name).cloned();
        if let Patch::Apply(applied) = patch {
            return self.apply(kind, namespace, name, current, applied, part, options);
        }
        let old = current.ok_or_else(|| Status::not_found(kind, name))?;
        let mut shown = (*old.value).clone();
        conversion::from_storage(kind, &mut shown);
        let mut object = patch::changed(kind, shown, patch)?;
        let patched = object.clone();
        let decoded = self.check_type(kind, &object).and_then(|()| self.decode(kind, &mut object, options));
        let warnings = decoded.map_err(|why| unfit(&patched, &why))?;
        if object["metadata"]["name"] != name {
            return Err(Status::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                object["metadata"]["name"].as_str().unwrap_or_default()
            )));
        }
        check_place(namespace, &object["metadata"])?;
        let replaced = self.replace(kind, namespace, name, &old, object, part, options);
        let mut written = replaced.map_err(|refused| refused.with_warnings(&warnings))?;
        written.warnings = warnings;
        Ok(written)
    }

    #[allow(clippy::too_many_arguments)] // Address, body and manner of one request.
    fn apply(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        current: Option<Arc<Stored>>,
        mut applied: Value,
        part: Part,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        if options.field_manager.is_empty() {
            let errors = [FieldError::required("fieldManager", "is required for apply patch")];
            return Err(Status::invalid_options("PatchOptions", &errors));
        }
        check_applied(kind, name, &applied)?;
        if applied["metadata"].get("managedFields").is_some_and(|fields| !fields.is_null()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        let strict = WriteOptions { field_validation: FieldValidation::Warn, ..options.clone() };
        if let Some(unknown) = self.decode(kind, &mut applied, &strict)?.first() {
            // Only fields of the schema can be owned.
            let path = unknown.trim_start_matches("unknown field ").trim_matches('"').to_owned();
            return Err(untyped(kind, &applied, &path));
        }
        let warnings = Vec::new();
        if let Some(metadata) = applied["metadata"].as_object_mut() {
            metadata.remove("creationTimestamp");
            if kind.namespaced {
                metadata.insert("namespace".into(), json!(namespace));
            }
            metadata.insert("name".into(), json!(name));
        }
        let time = self.timestamp();
        let Some(old) = current else {
            if part != Part::Whole {
                return Err(Status::not_found(kind, name));
            }
            if let Some(uid) = applied["metadata"]["uid"].as_str() {
                return Err(Status::conflict(
                    kind,
                    name,
                    format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found"),
                ));
            }
            let mut object = applied.clone();
            managed_fields::applied(kind, None, &mut object, &applied, part, options, &time)?;
            let mut written = self.create_managed(kind, namespace, object, options)?;
            written.warnings = warnings;
            return Ok(written);
        };
        let mut object = (*old.value).clone();
        managed_fields::applied(kind, Some(&old.value), &mut object, &applied, part, options, &time)?;
        if let Some(version) = applied["metadata"].get("resourceVersion").filter(|version| !version.is_null()) {
            object["metadata"]["resourceVersion"] = version.clone();
        }
        let replaced = self.replace(kind, namespace, name, &old, object, part, options);
        let mut written = replaced.map_err(|refused| refused.with_warnings(&warnings))?;
        written.warnings = warnings;
        Ok(written)
    }

    /// The end of every update: `new` is decoded and meant to take the place of `old`.
    #[allow(clippy::too_many_arguments)] // Address, both states and manner of one request.
    pub(crate) fn replace(
        &mut self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
        old: &Arc<Stored>,
        mut new: Value,
        part: Part,
        options: &WriteOptions,
    ) -> Result<Written, Status> {
        check_version(kind, name, old, &new)?;
        let metadata_errors = builtin::metadata::validate_update(&new["metadata"], &old.value["metadata"]);
        keep_system_fields(kind, &old.value, &mut new);
        keep_other_parts(kind, &old.value, &mut new, part);
        builtin::update::prepare(kind.builtin, &old.value, &mut new, part);
        self.fill_in(kind, &mut new);
        if part == Part::Resize && builtin::qos_class(&new["spec"]) != builtin::qos_class(&old.value["spec"]) {
            let detail = "Pod QOS Class may not change as a result of resizing";
            let error = FieldError::invalid("spec", &json!(builtin::qos_class(&old.value["spec"])), detail);
            return Err(Status::invalid(kind, name, &[error]));
        }
        if new == *old.value && metadata_errors.is_empty() {
            return Ok(Written::plain(Arc::clone(old)));
        }
        // Twice: the server checks what all kinds share, and then each kind checks it again.
        let mut errors = [metadata_errors.clone(), metadata_errors].concat();
        errors.extend(self.validate(kind, &new, Some(&old.value), part));
        if !errors.is_empty() {
            return Err(Status::invalid(kind, name, &errors));
        }
        if kind.custom() {
            schema::decode::whole_numbers(&mut new);
        }
        if kind.generation && part != Part::Status && spec_differs(kind, &old.value, &new) {
            let generation = old.value["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            new["metadata"]["generation"] = json!(generation);
        }
        managed_fields::updated(kind, &old.value, &mut new, part, options, &self.timestamp());
        if kind.builtin == Builtin::CustomResourceDefinition && part == Part::Whole {
            crd::prepare(&mut new, &self.timestamp()).map_err(|errors| Status::invalid(kind, name, &errors))?;
        }
        if options.dry_run {
            return Ok(Written::plain(Stored::new(new, old.version)));
        }
        if finished_terminating(&new) {
            let last = self.finish_deletion(kind, namespace, name, Some(new));
            return Ok(Written::plain(last.unwrap_or_else(|| Arc::clone(old))));
        }
        let stored = self.store.put(kind.table, namespace, name, new);
        if kind.builtin == Builtin::CustomResourceDefinition {
            self.serve_crd(&stored.value)?;
        }
        match kind.builtin {
            Builtin::Event => self.expire_events(kind, &stored),
            // The last finalizer of an empty terminating namespace may just have gone.
            Builtin::Namespace => self.finish_namespace(name),
            _ => {}
        }
        if stored.value["metadata"]["ownerReferences"] != old.value["metadata"]["ownerReferences"] {
            self.collect_if_orphaned(kind, namespace, name, &stored);
            self.release_owners(&old.value);
        }
        Ok(Written::plain(stored))
    }
}

impl State {
    /// The body must be of the kind that the path is about, where it says what it is.
    fn check_type(&self, kind: &Kind, object: &Value) -> Result<(), Status> {
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        let (version, name) = (text("apiVersion"), text("kind"));
        let wanted = kind.api_version();
        if (version.is_empty() || version == wanted) && (name.is_empty() || name == kind.kind) {
            return Ok(());
        }
        if kind.custom() || version.is_empty() || name.is_empty() {
            return Err(Status::bad_request(if name.is_empty() || name == kind.kind {
                format!("the API version in the data ({version}) does not match the expected API version ({wanted})")
            } else {
                format!(
                    "{name} in version \"{}\" cannot be handled as a {}: the kind of the object does not match the \
                     resource",
                    kind.version, kind.kind
                )
            }));
        }
        let (_, short) = version.rsplit_once('/').unwrap_or(("", version));
        let why = if self.kinds.by_kind(version, name).is_some() {
            format!(
                "converting ({short}.{name}) to ({}.{}): unknown conversion",
                internal_group(&kind.group),
                kind.kind
            )
        } else {
            format!("no kind {name:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"")
        };
        Err(Status::bad_request(format!("{name} in version {short:?} cannot be handled as a {}: {why}", kind.kind)))
    }
}

/// What the server's own package for a group is called.
fn internal_group(group: &str) -> &str {
    match group.split('.').next().unwrap_or_default() {
        "" | "events" => "core",
        first => first,
    }
}

/// A patch whose result is no object of the kind.
fn unfit(object: &Value, why: &Status) -> Status {
    let why = match why.message.split_once("cannot be handled as a ") {
        Some((_, rest)) => rest.split_once(": ").map_or(rest, |(_, why)| why),
        None => &why.message,
    };
    let error = FieldError::invalid("patch", &json!(object.to_string()), why);
    Status::invalid_as("", "", "", &[error])
}

/// What a body says of its namespace must agree with the path.
fn check_place(namespace: &str, metadata: &Value) -> Result<(), Status> {
    let given = metadata["namespace"].as_str().unwrap_or_default();
    if given.is_empty() || given == namespace {
        return Ok(());
    }
    Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request"))
}

/// An applied configuration says in full what it is.
fn check_applied(kind: &Kind, name: &str, applied: &Value) -> Result<(), Status> {
    let text = |key: &str| applied[key].as_str().unwrap_or_default();
    if text("apiVersion") != kind.api_version() || text("kind") != kind.kind {
        return Err(Status::bad_request(format!(
            "invalid object type: {}, Kind={}",
            group_version(text("apiVersion")),
            text("kind")
        )));
    }
    let given = applied["metadata"]["name"].as_str().unwrap_or_default();
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// With the slash that the core group has where both are printed.
fn group_version(api_version: &str) -> String {
    if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") }
}

/// An applied field that the schema does not know.
fn untyped(kind: &Kind, applied: &Value, path: &str) -> Status {
    let text = |key: &str| applied["metadata"][key].as_str().unwrap_or_default();
    Status::new(
        500,
        "",
        format!(
            "failed to create typed patch object ({}/{}; {}, Kind={}): .{path}: field not declared in schema",
            text("namespace"),
            text("name"),
            group_version(&kind.api_version()),
            kind.kind
        ),
    )
}

fn check_version(kind: &Kind, name: &str, old: &Stored, new: &Value) -> Result<(), Status> {
    match new["metadata"]["resourceVersion"].as_str().unwrap_or_default() {
        "" => Ok(()),
        version if version == old.version.to_string() => Ok(()),
        version if version.parse::<u64>().is_err() => {
            Err(Status::new(500, "", format!("strconv.ParseUint: parsing {version:?}: invalid syntax")))
        }
        _ => Err(Status::modified(kind, name)),
    }
}

/// Fields of the metadata that only the server writes.
fn keep_system_fields(kind: &Kind, old: &Value, new: &mut Value) {
    new["apiVersion"] = json!(kind.storage_api_version);
    new["kind"] = json!(kind.kind);
    if !new["metadata"].is_object() {
        new["metadata"] = json!({});
    }
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "namespace",
        "name",
        "resourceVersion",
        "generateName",
    ] {
        restore(&mut new["metadata"], &old["metadata"], key);
    }
    // An update without managed fields keeps them, so that old clients need not know of them; an empty list resets.
    if new["metadata"]["managedFields"].is_null() {
        restore(&mut new["metadata"], &old["metadata"], "managedFields");
    }
}

/// Makes `key` in `target` as it is in `source`, absence included.
pub(crate) fn restore(target: &mut Value, source: &Value, key: &str) {
    let Some(target) = target.as_object_mut() else { return };
    match source.get(key) {
        Some(value) => {
            target.insert(key.to_owned(), value.clone());
        }
        None => {
            target.remove(key);
        }
    }
}

fn keep_other_parts(kind: &Kind, old: &Value, new: &mut Value, part: Part) {
    match part {
        Part::Whole | Part::Scale if kind.status => restore(new, old, "status"),
        Part::Whole | Part::Scale => {}
        Part::Status if kind.custom() => {
            let status = new.get("status").cloned();
            let managed = new["metadata"]["managedFields"].clone();
            *new = old.clone();
            if let Some(fields) = new.as_object_mut() {
                match status {
                    Some(status) => fields.insert("status".into(), status),
                    None => fields.remove("status"),
                };
            }
            if !managed.is_null() {
                new["metadata"]["managedFields"] = managed;
            }
        }
        Part::Status => {
            restore(new, old, "spec");
            // Kubelets set labels and annotations along with a node's or pod's status; elsewhere labels stay.
            if !matches!(kind.builtin, Builtin::Node | Builtin::Pod) {
                restore(&mut new["metadata"], &old["metadata"], "labels");
            }
            if kind.builtin == Builtin::Pod {
                restore(&mut new["metadata"], &old["metadata"], "ownerReferences");
            }
        }
        Part::Resize | Part::EphemeralContainers => restore(new, old, "status"),
    }
}

fn spec_differs(kind: &Kind, old: &Value, new: &Value) -> bool {
    if !kind.custom() {
        return old["spec"] != new["spec"];
    }
    let significant = |object: &Value| {
        let mut object = object.as_object().cloned().unwrap_or_default();
        object.remove("metadata");
        if kind.status {
            object.remove("status");
        }
        object
    };
    significant(old) != significant(new)
}

/// Whether nothing holds a terminating object any more.
fn finished_terminating(object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["deletionTimestamp"].is_string()
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && object["spec"]["finalizers"].as_array().is_none_or(|list| object["kind"] != "Namespace" || list.is_empty())
}
