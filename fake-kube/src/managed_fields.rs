//! Who owns which fields: server-side apply, its conflicts, and `metadata.managedFields`.
//!
//! A [`FieldSet`] is a tree of FieldsV1 steps (`f:name`, `k:{…}`, `v:…`). Plain updates are recorded once an object has
//! been applied to, or was created by somebody who named their field manager, as kubectl does. Other objects stay without
//! managed fields, which the server treats the same way at the first apply (everything there belongs to
//! `before-first-apply`).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    kinds::Kind,
    schema::{ListKind, Schema, Shape, shapes},
    status::Status,
    write::{Part, WriteOptions},
};

/// A set of field paths.
#[derive(Clone, Debug, Default, PartialEq)]
struct FieldSet {
    /// Whether the path to here is itself in the set.
    member: bool,
    children: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    fn leaf() -> Self {
        Self { member: true, children: BTreeMap::new() }
    }

    fn is_empty(&self) -> bool {
        !self.member && self.children.values().all(Self::is_empty)
    }

    fn from_json(value: &Value) -> Self {
        let Some(fields) = value.as_object() else { return Self::leaf() };
        if fields.is_empty() {
            return Self::leaf();
        }
        let children = fields.iter().filter(|(step, _)| *step != ".");
        Self {
            member: fields.contains_key("."),
            children: children.map(|(step, below)| (step.clone(), Self::from_json(below))).collect(),
        }
    }

    fn to_json(&self) -> Value {
        let mut fields = Map::new();
        if self.member && !self.children.is_empty() {
            fields.insert(".".into(), json!({}));
        }
        for (step, below) in self.children.iter().filter(|(_, below)| !below.is_empty()) {
            fields.insert(step.clone(), below.to_json());
        }
        Value::Object(fields)
    }

    fn union(&mut self, other: &Self) {
        self.member |= other.member;
        for (step, below) in &other.children {
            self.children.entry(step.clone()).or_default().union(below);
        }
    }

    fn intersection(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(step, below)| {
            let common = below.intersection(other.children.get(step)?);
            (!common.is_empty()).then(|| (step.clone(), common))
        });
        Self { member: self.member && other.member, children: children.collect() }
    }

    fn difference(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(step, below)| {
            let rest = other.children.get(step).map_or_else(|| below.clone(), |other| below.difference(other));
            (!rest.is_empty()).then(|| (step.clone(), rest))
        });
        Self { member: self.member && !other.member, children: children.collect() }
    }

    /// What is left once `other` names its own: a map or an item of which it names a field is its own as well, so that whoever
    /// applies a label keeps the labels that an update brought with their map.
    fn left_by(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(step, below)| {
            let rest = other.children.get(step).map_or_else(|| below.clone(), |other| below.left_by(other));
            (!rest.is_empty()).then(|| (step.clone(), rest))
        });
        Self { member: self.member && other.is_empty(), children: children.collect() }
    }

    /// Every path of the set as the server prints it: `.spec.containers[name="a"].image`.
    fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, path: &str, paths: &mut Vec<String>) {
        if self.member && !path.is_empty() {
            paths.push(path.to_owned());
        }
        for (step, below) in &self.children {
            let shown = match step.split_once(':') {
                Some(("f", name)) => format!("{path}.{name}"),
                Some(("k", keys)) => {
                    let keys: BTreeMap<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                    let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    format!("{path}[{}]", keys.join(","))
                }
                Some(("v", value)) => format!("{path}[={value}]"),
                _ => format!("{path}[{step}]"),
            };
            below.collect_paths(&shown, paths);
        }
    }
}

/// The step of a list item, or `None` where the list is owned as a whole.
fn item_step(kind: &ListKind, item: &Value) -> Option<String> {
    match kind {
        ListKind::Atomic => None,
        ListKind::Set => Some(format!("v:{item}")),
        ListKind::Map(keys) => {
            let keys = keys.iter().filter_map(|key| {
                // A key that is left out counts with its default; the protocol of a port is the one in use.
                let default = || (key == "protocol").then(|| json!("TCP"));
                Some((key.clone(), item.get(key).cloned().or_else(default)?))
            });
            Some(format!("k:{}", Value::Object(keys.collect())))
        }
    }
}

fn child_schema<'a>(schema: &'a Schema, name: &str) -> Option<&'a Schema> {
    schema.field(name).map(AsRef::as_ref)
}

fn atomic(schema: &Schema) -> bool {
    match &schema.shape {
        Shape::Struct { atomic, .. } | Shape::Map { atomic, .. } => *atomic,
        Shape::List { kind, .. } => *kind == ListKind::Atomic,
        Shape::Scalar(_) => true,
        Shape::Any => false,
    }
}

/// The fields a value sets.
fn fields_of(schema: Option<&Schema>, value: &Value) -> FieldSet {
    if schema.is_some_and(atomic) {
        return FieldSet::leaf();
    }
    match (schema.map(|schema| &schema.shape), value) {
        (_, Value::Object(object)) if !object.is_empty() => {
            let children = object.iter().map(|(name, child)| {
                let below = schema.and_then(|schema| child_schema(schema, name));
                (format!("f:{name}"), fields_of(below, child))
            });
            FieldSet { member: false, children: children.collect() }
        }
        (Some(Shape::List { items, kind, .. }), Value::Array(list)) if !list.is_empty() => {
            let children = list.iter().filter_map(|item| {
                let mut below = match kind {
                    ListKind::Map(_) => fields_of(Some(items), item),
                    _ => FieldSet::leaf(),
                };
                below.member = true;
                Some((item_step(kind, item)?, below))
            });
            FieldSet { member: false, children: children.collect() }
        }
        _ => FieldSet::leaf(),
    }
}

/// The fields that an update brings: unlike those of an apply, with the maps that hold them.
fn brought(schema: Option<&Schema>, value: &Value) -> FieldSet {
    let mut set = fields_of(schema, value);
    match (schema.map(|schema| &schema.shape), value) {
        (shape, Value::Object(object)) if !set.children.is_empty() => {
            set.member = matches!(shape, Some(Shape::Map { .. }));
            for (name, child) in object {
                let below = schema.and_then(|schema| child_schema(schema, name));
                set.children.insert(format!("f:{name}"), brought(below, child));
            }
        }
        (Some(Shape::List { items, kind: kind @ ListKind::Map(_), .. }), Value::Array(list)) => {
            for item in list {
                if let Some(step) = item_step(kind, item) {
                    let mut below = brought(Some(items), item);
                    below.member = true;
                    set.children.insert(step, below);
                }
            }
        }
        _ => {}
    }
    set
}

/// The fields in which two values differ, as far as the second one has them.
fn changed_fields(schema: Option<&Schema>, old: Option<&Value>, new: &Value) -> FieldSet {
    let Some(old) = old else { return brought(schema, new) };
    if old == new {
        return FieldSet::default();
    }
    if schema.is_some_and(atomic) {
        return FieldSet::leaf();
    }
    match (schema.map(|schema| &schema.shape), old, new) {
        (_, Value::Object(before), Value::Object(after)) => {
            let children = after.iter().filter_map(|(name, child)| {
                let below = schema.and_then(|schema| child_schema(schema, name));
                let changed = changed_fields(below, before.get(name), child);
                (!changed.is_empty()).then(|| (format!("f:{name}"), changed))
            });
            FieldSet { member: false, children: children.collect() }
        }
        (Some(Shape::List { items, kind, .. }), Value::Array(before), Value::Array(after)) => {
            let children = after.iter().filter_map(|item| {
                let step = item_step(kind, item)?;
                let past = before.iter().find(|past| item_step(kind, past).as_deref() == Some(&step));
                let changed = match (past, kind) {
                    (Some(past), ListKind::Map(_)) => changed_fields(Some(items), Some(past), item),
                    (Some(_), _) => FieldSet::default(),
                    (None, ListKind::Map(_)) => {
                        let mut fields = fields_of(Some(items), item);
                        fields.member = true;
                        fields
                    }
                    (None, _) => FieldSet::leaf(),
                };
                (!changed.is_empty()).then_some((step, changed))
            });
            FieldSet { member: false, children: children.collect() }
        }
        _ => FieldSet::leaf(),
    }
}

/// Merges an applied configuration into the live value.
fn merge(schema: Option<&Schema>, live: &mut Value, applied: &Value) {
    if schema.is_some_and(atomic) {
        live.clone_from(applied);
        return;
    }
    match (schema.map(|schema| &schema.shape), &mut *live, applied) {
        (_, Value::Object(target), Value::Object(fields)) => {
            for (name, value) in fields {
                let below = schema.and_then(|schema| child_schema(schema, name));
                match target.get_mut(name) {
                    Some(present) => merge(below, present, value),
                    None => {
                        target.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Some(Shape::List { items, kind, .. }), Value::Array(target), Value::Array(list)) => {
            merge_list(items, kind, target, list);
        }
        _ => live.clone_from(applied),
    }
}

/// Merges an applied list: what is new stands before the next item that both have, or else at the end.
fn merge_list(items: &Schema, kind: &ListKind, target: &mut Vec<Value>, applied: &[Value]) {
    let step = |item: &Value| item_step(kind, item);
    let wanted: Vec<Option<String>> = applied.iter().map(step).collect();
    let mut live = std::mem::take(target);
    let mut new = Vec::new();
    for (item, wanted_step) in applied.iter().zip(&wanted) {
        let Some(place) = live.iter().position(|there| step(there) == *wanted_step) else {
            new.push(item.clone());
            continue;
        };
        let mut there = live.remove(place);
        if matches!(kind, ListKind::Map(_)) {
            merge(Some(items), &mut there, item);
        }
        // What is not applied keeps its place before it.
        let (before, rest): (Vec<Value>, Vec<Value>) = {
            let later = live.split_off(place);
            let (shared, alone): (Vec<Value>, Vec<Value>) =
                live.into_iter().partition(|there| wanted.contains(&step(there)));
            (alone, shared.into_iter().chain(later).collect())
        };
        live = rest;
        target.extend(before);
        target.append(&mut new);
        target.push(there);
    }
    target.append(&mut live);
    target.append(&mut new);
}

/// Takes the given fields out of a value. Answers whether nothing is left of it.
fn remove(schema: Option<&Schema>, value: &mut Value, gone: &FieldSet) -> bool {
    if gone.children.is_empty() {
        return gone.member;
    }
    match (schema.map(|schema| &schema.shape), &mut *value) {
        (_, Value::Object(object)) => {
            for (step, below) in &gone.children {
                let Some(name) = step.strip_prefix("f:") else { continue };
                let schema = schema.and_then(|schema| child_schema(schema, name));
                if object.get_mut(name).is_some_and(|child| remove(schema, child, below)) {
                    object.remove(name);
                }
            }
            gone.member || object.is_empty()
        }
        (Some(Shape::List { items, kind, .. }), Value::Array(list)) => {
            list.retain_mut(|item| {
                let Some(below) = item_step(kind, item).and_then(|step| gone.children.get(&step)) else { return true };
                if below.member {
                    return false;
                }
                remove(Some(items), item, below);
                true
            });
            gone.member || list.is_empty()
        }
        _ => gone.member,
    }
}

/// One entry of `metadata.managedFields`.
#[derive(Clone, Debug)]
struct Manager {
    name: String,
    operation: String,
    api_version: String,
    subresource: Option<String>,
    time: Value,
    fields: FieldSet,
}

impl Manager {
    fn read(entry: &Value) -> Self {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        Self {
            name: text("manager"),
            operation: text("operation"),
            api_version: text("apiVersion"),
            subresource: entry["subresource"].as_str().map(str::to_owned),
            time: entry["time"].clone(),
            fields: FieldSet::from_json(&entry["fieldsV1"]),
        }
    }

    fn to_json(&self) -> Value {
        let mut entry = json!({
            "manager": self.name, "operation": self.operation, "apiVersion": self.api_version,
            "fieldsType": "FieldsV1", "fieldsV1": self.fields.to_json(),
        });
        if !self.time.is_null() {
            entry["time"] = self.time.clone();
        }
        if let Some(subresource) = &self.subresource {
            entry["subresource"] = json!(subresource);
        }
        entry
    }

    fn is(&self, name: &str, operation: &str, subresource: Option<&str>) -> bool {
        self.name == name && self.operation == operation && self.subresource.as_deref() == subresource
    }

    fn shown(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if let Some(subresource) = &self.subresource {
            text = format!("{text} with subresource {subresource:?}");
        }
        if self.operation == "Update" { format!("{text} using {}", self.api_version) } else { text }
    }
}

fn read_managers(object: &Value) -> Vec<Manager> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.map(Manager::read).collect()
}

fn write_managers(object: &mut Value, mut managers: Vec<Manager>) {
    managers.retain(|manager| !manager.fields.is_empty());
    // Applies first, then by time and name, as the server sorts them.
    managers.sort_by(|a, b| {
        let key = |manager: &Manager| {
            (manager.operation != "Apply", manager.time.as_str().unwrap_or_default().to_owned(), manager.name.clone())
        };
        key(a).cmp(&key(b))
    });
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if managers.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".into(), Value::Array(managers.iter().map(Manager::to_json).collect()));
    }
}

/// The part of an object that managers can own.
fn ownable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            for key in [
                "name",
                "namespace",
                "generateName",
                "uid",
                "creationTimestamp",
                "selfLink",
                "resourceVersion",
                "generation",
                "managedFields",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
            ] {
                metadata.remove(key);
            }
            if metadata.is_empty() {
                fields.remove("metadata");
            }
        }
    }
    object
}

/// The schema with `metadata` known, also for custom resources, whose definition leaves it out.
fn root_schema(kind: &Kind) -> Schema {
    let mut fields = match &kind.schema.shape {
        Shape::Struct { fields, .. } => fields.clone(),
        _ => BTreeMap::new(),
    };
    fields.insert("metadata".into(), shapes::named("ObjectMeta"));
    Schema::of(Shape::Struct { name: kind.kind.clone(), fields, open: true, atomic: false })
}

/// Server-side apply: changes `object` (the live one, or the configuration itself when it is new) and its managers.
pub(crate) fn applied(
    kind: &Kind,
    live: Option<&Value>,
    object: &mut Value,
    configuration: &Value,
    part: Part,
    options: &WriteOptions,
    time: &str,
) -> Result<(), Status> {
    let schema = root_schema(kind);
    let mut wanted = ownable(configuration);
    if let Some(fields) = wanted.as_object_mut() {
        match part {
            Part::Whole if kind.status => {
                fields.remove("status");
            }
            Part::Status => fields.retain(|key, _| key == "status"),
            _ => {}
        }
    }
    // Who applies nothing owns nothing, not even the whole.
    let nothing = wanted.as_object().is_some_and(Map::is_empty);
    let set = if nothing { FieldSet::default() } else { fields_of(Some(&schema), &wanted) };
    let mut managers = live.map(read_managers).unwrap_or_default();
    let mut before_first = None;
    if let Some(live) = live
        && managers.is_empty()
    {
        before_first = Some(Manager {
            name: "before-first-apply".into(),
            operation: "Update".into(),
            api_version: kind.api_version(),
            subresource: None,
            time: json!(time),
            fields: fields_of(Some(&schema), &ownable(live)),
        });
    }
    managers.extend(before_first);
    let own = managers.iter().position(|manager| manager.is(&options.field_manager, "Apply", part.name()));
    let previous = own.map(|own| managers.remove(own));
    if let Some(live) = live {
        let mut merged = live.clone();
        merge(Some(&schema), &mut merged, &wanted);
        let changed = changed_fields(Some(&schema), Some(&ownable(live)), &ownable(&merged));
        let conflicts: Vec<(usize, FieldSet)> = managers
            .iter()
            .enumerate()
            .map(|(index, manager)| (index, manager.fields.intersection(&changed)))
            .filter(|(_, common)| !common.is_empty())
            .collect();
        if !options.force {
            let mut refused = conflicts.clone();
            if options.field_manager == "kubectl" {
                let before = applied_by_client(&schema, live);
                refused = refused.into_iter().map(|(index, set)| (index, set.difference(&before))).collect();
                refused.retain(|(_, set)| !set.is_empty());
            }
            if !refused.is_empty() {
                return Err(conflict(&managers, &refused));
            }
        }
        for (index, common) in conflicts {
            managers[index].fields = managers[index].fields.difference(&common);
        }
        if let Some(previous) = &previous {
            let mut gone = previous.fields.left_by(&set);
            for manager in &managers {
                gone = gone.left_by(&manager.fields);
            }
            remove(Some(&schema), &mut merged, &gone);
        }
        *object = merged;
    }
    let unchanged = previous.as_ref().filter(|previous| previous.fields == set).map(|previous| previous.time.clone());
    managers.push(Manager {
        name: options.field_manager.clone(),
        operation: "Apply".into(),
        api_version: kind.api_version(),
        subresource: part.name().map(str::to_owned),
        time: unchanged.unwrap_or_else(|| json!(time)),
        fields: set,
    });
    write_managers(object, managers);
    Ok(())
}

/// What kubectl applied when it still merged on the client's side, as far as it stands unchanged: kubectl may take that
/// over without conflict, as the genuine server allows it alone.
fn applied_by_client(schema: &Schema, live: &Value) -> FieldSet {
    let annotation = &live["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    let last: Option<Value> = annotation.as_str().and_then(|text| serde_json::from_str(text).ok());
    let Some(last) = last.filter(Value::is_object) else { return FieldSet::default() };
    let last = ownable(&last);
    let mut merged = live.clone();
    merge(Some(schema), &mut merged, &last);
    let changed = changed_fields(Some(schema), Some(&ownable(live)), &ownable(&merged));
    fields_of(Some(schema), &last).difference(&changed)
}

fn conflict(managers: &[Manager], conflicts: &[(usize, FieldSet)]) -> Status {
    let mut causes = Vec::new();
    let mut texts = Vec::new();
    for (index, common) in conflicts {
        let manager = managers[*index].shown();
        texts.push(format!("conflicts with {manager}:"));
        for path in common.paths() {
            texts.push(format!("- {path}"));
            causes.push((format!("conflict with {manager}"), path));
        }
    }
    let message = match causes.as_slice() {
        [(manager, path)] => format!("Apply failed with 1 conflict: {manager}: {path}"),
        many => format!("Apply failed with {} conflicts: {}", many.len(), texts.join("\n")),
    };
    causes.into_iter().fold(Status::new(409, "Conflict", message), |status, (message, path)| {
        status.with_cause("FieldManagerConflict", message, &path)
    })
}

/// Records who created an object: all of it but the status belongs to them.
pub(crate) fn created(kind: &Kind, object: &mut Value, options: &WriteOptions, time: &str) {
    let mut owned = ownable(object);
    if kind.status
        && let Some(fields) = owned.as_object_mut()
    {
        fields.remove("status");
    }
    let manager = Manager {
        name: options.field_manager.clone(),
        operation: "Update".into(),
        api_version: kind.api_version(),
        subresource: None,
        time: json!(time),
        fields: brought(Some(&root_schema(kind)), &owned),
    };
    write_managers(object, vec![manager]);
}

/// Records a plain update of an object that has managed fields: what it changed now belongs to its writer.
pub(crate) fn updated(kind: &Kind, old: &Value, new: &mut Value, part: Part, options: &WriteOptions, time: &str) {
    let given = &new["metadata"]["managedFields"];
    // Absent: nobody applies. Empty or `[{}]`: the caller resets. Changed by an apply: already complete.
    if given.is_null() || *given != old["metadata"]["managedFields"] {
        if given.as_array().is_some_and(|list| list.iter().all(|entry| entry["manager"].is_null())) {
            write_managers(new, Vec::new());
        }
        return;
    }
    let schema = root_schema(kind);
    let (before, after) = (ownable(old), ownable(new));
    let changed = changed_fields(Some(&schema), Some(&before), &after);
    let present = fields_of(Some(&schema), &after);
    let mut managers = read_managers(new);
    for manager in &mut managers {
        let kept = manager.fields.difference(&changed);
        manager.fields = kept.intersection(&with_parents(&present));
    }
    if !changed.is_empty() {
        let api_version = kind.api_version();
        match managers.iter_mut().find(|manager| manager.is(&options.field_manager, "Update", part.name())) {
            Some(manager) => {
                manager.fields.union(&changed);
                manager.time = json!(time);
            }
            None => managers.push(Manager {
                name: options.field_manager.clone(),
                operation: "Update".into(),
                api_version,
                subresource: part.name().map(str::to_owned),
                time: json!(time),
                fields: changed,
            }),
        }
    }
    write_managers(new, managers);
}

/// The set with every path above its members, so that owners of a whole keep it while anything of it is there.
fn with_parents(set: &FieldSet) -> FieldSet {
    FieldSet {
        member: true,
        children: set.children.iter().map(|(step, below)| (step.clone(), with_parents(below))).collect(),
    }
}
