//! Objects, resource versions and the event log.
//!
//! One counter numbers every change, as etcd's revision does. Each table keeps its last changes, so that a watch can
//! resume; what falls out of that log answers 410. The store knows no rules: it puts, removes and remembers.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::client::WatchEvent;

/// One version of an object. Serialised at most once, for replies and watchers alike.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) value: Arc<Value>,
    pub(crate) version: u64,
    bytes: OnceLock<Bytes>,
    bare: OnceLock<Bytes>,
}

impl Stored {
    pub(crate) fn new(value: Value, version: u64) -> Arc<Self> {
        Arc::new(Self { value: Arc::new(value), version, bytes: OnceLock::new(), bare: OnceLock::new() })
    }

    /// Without kind and version of the API: so the items of a list of built-in kinds are told.
    pub(crate) fn bare(&self) -> Bytes {
        self.bare.get_or_init(|| to_bytes(&without_type(&self.value))).clone()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.get_or_init(|| to_bytes(&self.value)).clone()
    }
}

/// An object as an item of a list.
pub(crate) fn without_type(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    value
}

/// JSON text of a value.
pub(crate) fn to_bytes(value: &Value) -> Bytes {
    // Serialising a `Value` into memory cannot fail: its keys are strings.
    serde_json::to_vec(value).map(Bytes::from).unwrap_or_default()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change, as watchers see it.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) change: Change,
    pub(crate) object: Arc<Stored>,
    /// What stood there before; selectors compare against it.
    pub(crate) previous: Option<Arc<Stored>>,
    line: OnceLock<Bytes>,
    /// About how many bytes the log keeps for this change.
    weight: usize,
}

/// What the log of one table may weigh. The number of changes bounds it as long as objects are of the usual size.
const MAX_LOG_BYTES: usize = 96 << 20;

/// About how many bytes a value takes, as it stands in memory and as a line of a watch.
fn weight(value: &Value) -> usize {
    const NODE: usize = 40;
    NODE + match value {
        Value::String(text) => 2 * text.len(),
        Value::Array(list) => list.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| NODE + 2 * name.len() + weight(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

impl Event {
    /// The watch line of this change, for watchers that see the object whole.
    pub(crate) fn line(&self) -> Bytes {
        self.line.get_or_init(|| watch_line(self.change.text(), &self.object.bytes())).clone()
    }
}

/// A line of a watch: `{"type":…,"object":…}`.
pub(crate) fn watch_line(change: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(change.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    Bytes::from(line)
}

type Objects = BTreeMap<String, BTreeMap<String, Arc<Stored>>>;

/// Everything of one resource.
#[derive(Debug)]
pub(crate) struct Table {
    objects: Objects,
    count: usize,
    /// `spec.nodeName` → namespace and name; filled for pods alone.
    by_node: Option<BTreeMap<String, BTreeSet<(String, String)>>>,
    log: VecDeque<Arc<Event>>,
    log_bytes: usize,
    /// Highest version whose successors can no longer be replayed in full.
    compacted: u64,
    /// Counts up when faults cut the watches.
    pub(crate) cut: u64,
    pub(crate) changes: watch::Sender<u64>,
    taps: Vec<mpsc::UnboundedSender<WatchEvent>>,
}

impl Table {
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Stored>> {
        self.objects.get(namespace)?.get(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Objects in the order of namespace and name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.objects.values().flat_map(BTreeMap::values)
    }

    pub(crate) fn iter_namespace<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        self.objects.get(namespace).into_iter().flat_map(BTreeMap::values)
    }

    pub(crate) fn iter_node<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        let keys = self.by_node.as_ref().and_then(|index| index.get(node));
        keys.into_iter().flatten().filter_map(|(namespace, name)| self.get(namespace, name))
    }

    pub(crate) fn indexed_by_node(&self) -> bool {
        self.by_node.is_some()
    }

    /// Whether every change after `version` is still in the log.
    pub(crate) fn can_resume(&self, version: u64) -> bool {
        version >= self.compacted
    }

    pub(crate) fn oldest(&self) -> u64 {
        self.compacted + 1
    }

    /// Changes after `version`, in order.
    pub(crate) fn since(&self, version: u64) -> impl Iterator<Item = &Arc<Event>> {
        let start = self.log.partition_point(|event| event.version <= version);
        self.log.range(start..)
    }

    fn index(&mut self, stored: &Stored, namespace: &str, name: &str, present: bool) {
        let Some(index) = &mut self.by_node else { return };
        let Some(node) = stored.value["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else { return };
        if present {
            index.entry(node.to_owned()).or_default().insert((namespace.to_owned(), name.to_owned()));
        } else if let Some(keys) = index.get_mut(node) {
            keys.remove(&(namespace.to_owned(), name.to_owned()));
            if keys.is_empty() {
                index.remove(node);
            }
        }
    }
}

/// Where an object lives: table, namespace (empty for cluster scope), name.
pub(crate) type Address = (usize, String, String);

/// All tables and the counter.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    tables: Vec<Table>,
    log_limit: usize,
    by_uid: BTreeMap<String, Address>,
    /// Owner's uid → its dependents.
    dependents: BTreeMap<String, BTreeSet<Address>>,
}

impl Store {
    pub(crate) fn new(log_limit: usize) -> Self {
        Self { version: 1, tables: Vec::new(), log_limit, by_uid: BTreeMap::new(), dependents: BTreeMap::new() }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn add_table(&mut self, index_by_node: bool) -> usize {
        self.tables.push(Table {
            objects: BTreeMap::new(),
            count: 0,
            by_node: index_by_node.then(BTreeMap::new),
            log: VecDeque::new(),
            log_bytes: 0,
            // What comes into being later has no past to watch from.
            compacted: self.version - 1,
            cut: 0,
            changes: watch::Sender::new(self.version),
            taps: Vec::new(),
        });
        self.tables.len() - 1
    }

    pub(crate) fn table(&self, table: usize) -> &Table {
        &self.tables[table]
    }

    pub(crate) fn tables(&self) -> usize {
        self.tables.len()
    }

    pub(crate) fn uid(&self, uid: &str) -> Option<&Address> {
        self.by_uid.get(uid)
    }

    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Address> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Puts a new version and returns it; `resourceVersion` is set here.
    pub(crate) fn put(&mut self, table: usize, namespace: &str, name: &str, mut value: Value) -> Arc<Stored> {
        self.version += 1;
        value["metadata"]["resourceVersion"] = Value::String(self.version.to_string());
        let stored = Stored::new(value, self.version);
        let target = &mut self.tables[table];
        let previous =
            target.objects.entry(namespace.to_owned()).or_default().insert(name.to_owned(), Arc::clone(&stored));
        let same_node = previous
            .as_ref()
            .is_some_and(|previous| previous.value["spec"]["nodeName"] == stored.value["spec"]["nodeName"]);
        if !same_node {
            if let Some(previous) = &previous {
                target.index(previous, namespace, name, false);
            }
            target.index(&stored, namespace, name, true);
        }
        let change = if previous.is_some() { Change::Modified } else { Change::Added };
        if change == Change::Added {
            target.count += 1;
        }
        self.index_owners(table, namespace, name, previous.as_deref(), Some(&stored));
        self.publish(table, change, Arc::clone(&stored), previous);
        stored
    }

    /// Removes an object; watchers see it with the version of its removal.
    pub(crate) fn remove(&mut self, table: usize, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        let target = &mut self.tables[table];
        let objects = target.objects.get_mut(namespace)?;
        let previous = objects.remove(name)?;
        if objects.is_empty() {
            target.objects.remove(namespace);
        }
        target.count -= 1;
        target.index(&previous, namespace, name, false);
        self.version += 1;
        let mut value = (*previous.value).clone();
        value["metadata"]["resourceVersion"] = Value::String(self.version.to_string());
        let last = Stored::new(value, self.version);
        self.index_owners(table, namespace, name, Some(&previous), None);
        self.publish(table, Change::Deleted, Arc::clone(&last), Some(previous));
        Some(last)
    }

    fn index_owners(
        &mut self,
        table: usize,
        namespace: &str,
        name: &str,
        previous: Option<&Stored>,
        next: Option<&Stored>,
    ) {
        fn metadata<'a>(stored: Option<&'a Stored>, key: &str) -> Option<&'a Value> {
            stored.map(|stored| &stored.value["metadata"][key])
        }
        if metadata(previous, "uid") != metadata(next, "uid") {
            if let Some(uid) = metadata(previous, "uid").and_then(Value::as_str) {
                self.by_uid.remove(uid);
            }
            if let Some(uid) = metadata(next, "uid").and_then(Value::as_str) {
                self.by_uid.insert(uid.to_owned(), (table, namespace.to_owned(), name.to_owned()));
            }
        }
        if metadata(previous, "ownerReferences") == metadata(next, "ownerReferences") {
            return;
        }
        let address = (table, namespace.to_owned(), name.to_owned());
        for owner in owner_uids(previous) {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(&address);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        for owner in owner_uids(next) {
            self.dependents.entry(owner.to_owned()).or_default().insert(address.clone());
        }
    }

    fn publish(&mut self, table: usize, change: Change, object: Arc<Stored>, previous: Option<Arc<Stored>>) {
        let limit = self.log_limit;
        let target = &mut self.tables[table];
        target.taps.retain(|tap| {
            let value = Arc::clone(&object.value);
            let event = match change {
                Change::Added => WatchEvent::Added(value),
                Change::Modified => WatchEvent::Modified(value),
                Change::Deleted => WatchEvent::Deleted(value),
            };
            tap.send(event).is_ok()
        });
        let version = object.version;
        let weight = weight(&object.value);
        target.log_bytes += weight;
        target.log.push_back(Arc::new(Event { version, change, object, previous, line: OnceLock::new(), weight }));
        while target.log.len() > limit || (target.log_bytes > MAX_LOG_BYTES && target.log.len() > 1) {
            let Some(gone) = target.log.pop_front() else { break };
            target.log_bytes -= gone.weight;
            target.compacted = gone.version;
        }
        target.changes.send_replace(version);
    }

    /// Follows a table in process: every present object first, then each change.
    pub(crate) fn tap(&mut self, table: usize) -> mpsc::UnboundedReceiver<WatchEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let target = &mut self.tables[table];
        for stored in target.iter() {
            // The receiver lives in this function, so the send succeeds.
            let _ = sender.send(WatchEvent::Added(Arc::clone(&stored.value)));
        }
        target.taps.push(sender);
        receiver
    }

    /// Forgets the log of a table: older versions answer 410 from here on.
    pub(crate) fn compact(&mut self, table: usize) {
        let version = self.version;
        let target = &mut self.tables[table];
        target.log.clear();
        target.log_bytes = 0;
        target.compacted = version;
    }

    /// Ends the open watches of a table.
    pub(crate) fn cut_watches(&mut self, table: usize) {
        let version = self.version;
        let target = &mut self.tables[table];
        target.cut += 1;
        target.changes.send_replace(version);
    }
}

fn owner_uids(stored: Option<&Stored>) -> impl Iterator<Item = &str> {
    stored
        .and_then(|stored| stored.value["metadata"]["ownerReferences"].as_array())
        .into_iter()
        .flatten()
        .filter_map(|reference| reference["uid"].as_str())
}
