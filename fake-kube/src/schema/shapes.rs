//! Reads the shapes of the built-in kinds from `builtin/shapes.txt`, each type when it is first asked for.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use super::{ListKind, Scalar, Schema, Shape};

static TEXT: &str = include_str!("../builtin/shapes.txt");

/// Type name → its fields as written. Immutable, hence shared by all servers of a process.
static PARAGRAPHS: LazyLock<BTreeMap<&'static str, Vec<&'static str>>> = LazyLock::new(|| {
    let mut paragraphs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut current = "";
    for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            current = words.next().unwrap_or_default();
        }
        paragraphs.entry(current).or_default().extend(words);
    }
    paragraphs
});

static BUILT: Mutex<BTreeMap<String, Arc<Schema>>> = Mutex::new(BTreeMap::new());

/// The schema of a built-in type such as `Pod`.
pub(crate) fn named(name: &str) -> Arc<Schema> {
    if let Some(schema) = BUILT.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
        return Arc::clone(schema);
    }
    let schema = Arc::new(build(name));
    BUILT.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), Arc::clone(&schema));
    schema
}

fn build(name: &str) -> Schema {
    let Some(words) = PARAGRAPHS.get(name) else { return Schema::of(Shape::Any) };
    let (mut fields, mut required) = (BTreeMap::new(), Vec::new());
    for (field, kind) in words.iter().filter_map(|word| word.split_once(':')) {
        let plain = field.trim_end_matches('!');
        if plain != field {
            required.push(plain.to_owned());
        }
        fields.insert(plain.to_owned(), reference(kind));
    }
    let name = name.rsplit('.').next().unwrap_or(name).to_owned();
    Schema { required, ..Schema::of(Shape::Struct { name, fields, open: false, atomic: false }) }
}

fn reference(text: &str) -> Arc<Schema> {
    let scalar = |scalar| Arc::new(Schema::of(Shape::Scalar(scalar)));
    match text {
        "str" => return scalar(Scalar::Text),
        "i32" => return scalar(Scalar::Int32),
        "i64" => return scalar(Scalar::Int64),
        "number" => return scalar(Scalar::Number),
        "bool" => return scalar(Scalar::Bool),
        "intstr" => return scalar(Scalar::IntOrString),
        "quantity" => return scalar(Scalar::Quantity),
        "time" => return scalar(Scalar::Time),
        "microtime" => return scalar(Scalar::MicroTime),
        "bytes" => return scalar(Scalar::Bytes),
        "any" => return Arc::new(Schema::of(Shape::Any)),
        _ => {}
    }
    let (core, atomic) = match text.strip_suffix('~') {
        Some(core) => (core, true),
        None => (text, false),
    };
    if let Some(values) = core.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        return Arc::new(Schema::of(Shape::Map { values: reference(values), atomic }));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (items, marks) = rest.rsplit_once(']').unwrap_or((rest, ""));
        let (apply, strategic) = marks.split_once('^').map_or((marks, None), |(apply, mark)| (apply, Some(mark)));
        let keys = |text: &str| match text {
            "" => ListKind::Atomic,
            "=" => ListKind::Set,
            keys => ListKind::Map(keys.split(',').map(str::to_owned).collect()),
        };
        let kind = keys(apply.trim_start_matches('@'));
        let strategic = strategic.map_or_else(|| kind.clone(), keys);
        return Arc::new(Schema::of(Shape::List { items: reference(items), kind, strategic }));
    }
    if !atomic {
        return named(core);
    }
    let mut schema = build(core);
    if let Shape::Struct { atomic, .. } = &mut schema.shape {
        *atomic = true;
    }
    Arc::new(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_merge_by_name_and_tolerations_are_atomic() {
        let pod = named("Pod");
        let spec = pod.field("spec").unwrap();
        let Shape::List { kind, strategic, .. } = &spec.field("containers").unwrap().shape else { panic!() };
        assert_eq!(*kind, ListKind::Map(vec!["name".into()]));
        assert_eq!(kind, strategic);
        let Shape::List { kind, .. } = &spec.field("tolerations").unwrap().shape else { panic!() };
        assert_eq!(*kind, ListKind::Atomic);
    }

    #[test]
    fn service_ports_merge_by_port_and_protocol_but_by_port_alone_in_strategic_patches() {
        let service = named("Service");
        let ports = service.field("spec").unwrap().field("ports").unwrap();
        let Shape::List { kind, strategic, .. } = &ports.shape else { panic!() };
        assert_eq!(*kind, ListKind::Map(vec!["port".into(), "protocol".into()]));
        assert_eq!(*strategic, ListKind::Map(vec!["port".into()]));
    }

    #[test]
    fn every_named_type_exists() {
        for words in PARAGRAPHS.values() {
            for (_, kind) in words.iter().filter_map(|word| word.split_once(':')) {
                let core = kind.trim_matches(|c| "[]{}~".contains(c));
                let core = core.split(']').next().unwrap().trim_end_matches('~');
                let scalar = ["str", "i32", "i64", "number", "bool", "intstr", "quantity", "time", "microtime", "any"];
                assert!(core == "bytes" || scalar.contains(&core) || PARAGRAPHS.contains_key(core), "{kind}");
            }
        }
    }
}
