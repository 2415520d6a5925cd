//! PersistentVolumes, the claims to them and their StorageClasses, as the volume binder and the scheduler read them: which
//! volume a claim may have, where a volume can be reached from, and how a volume is made a claim's own.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::amount::Amounts;
use super::api::Api;
use super::objects::{Key, Node};
use super::selector::{LabelSelector, Labels, NodeSelectorTerm, list, strings, text};
use crate::{Status, resources};

/// On a claim: volume and claim point at each other.
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim or a volume: its half of the bond was not the user's choice.
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: the node for which a provisioner shall make the volume.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The provisioner of classes whose volumes are made by hand.
pub(crate) const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Labels of a volume that bind it to places, each with the name it had before it was stable.
const ZONE_LABELS: [(&str, &str); 2] = [
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"),
];
/// Between the values of such a label.
const ZONE_SEPARATOR: &str = "__";

/// A PersistentVolumeClaim.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) key: Key,
    pub(crate) uid: String,
    version: String,
    pub(crate) deleting: bool,
    pub(crate) phase: String,
    /// Empty: none. `None`: whichever is the default.
    pub(crate) class: Option<String>,
    /// The volume it names, or was given; empty if none.
    pub(crate) volume: String,
    pub(crate) bind_completed: bool,
    pub(crate) selected_node: Option<String>,
    pub(crate) request: i64,
    access_modes: BTreeSet<String>,
    mode: String,
    /// `None` selects every volume.
    selector: Option<LabelSelector>,
}

impl Claim {
    pub(crate) fn parse(raw: &Value) -> Self {
        let (metadata, spec) = (&raw["metadata"], &raw["spec"]);
        Self {
            key: Key::of(raw),
            uid: text(&metadata["uid"]).to_owned(),
            version: text(&metadata["resourceVersion"]).to_owned(),
            deleting: !metadata["deletionTimestamp"].is_null(),
            phase: text(&raw["status"]["phase"]).to_owned(),
            class: class_of(raw),
            volume: text(&spec["volumeName"]).to_owned(),
            bind_completed: metadata["annotations"].get(BIND_COMPLETED).is_some(),
            selected_node: metadata["annotations"][SELECTED_NODE].as_str().map(str::to_owned),
            request: Amounts::parse(&spec["resources"]["requests"]).get("storage"),
            access_modes: list(&spec["accessModes"]).iter().map(|mode| text(mode).to_owned()).collect(),
            mode: mode_of(spec),
            selector: LabelSelector::parse(&spec["selector"]),
        }
    }

    /// Whether it has its volume for good.
    pub(crate) fn is_bound(&self) -> bool {
        self.bind_completed && !self.volume.is_empty()
    }

    /// The name of its class; empty if it has none.
    pub(crate) fn class_name(&self) -> &str {
        self.class.as_deref().unwrap_or_default()
    }
}

/// Whom a volume is for.
#[derive(Debug)]
pub(crate) struct ClaimReference {
    pub(crate) key: Key,
    /// Empty while the volume is only kept for a claim of that name.
    pub(crate) uid: String,
}

/// A PersistentVolume.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) name: String,
    uid: String,
    deleting: bool,
    pub(crate) phase: String,
    pub(crate) claim: Option<ClaimReference>,
    pub(crate) bound_by_controller: bool,
    pub(crate) class: String,
    capacity: i64,
    access_modes: BTreeSet<String>,
    mode: String,
    labels: Labels,
    /// Nodes of one of these terms reach it; `None`: all do.
    affinity: Option<Vec<NodeSelectorTerm>>,
    /// What its labels demand of a node's: key and allowed values.
    zones: Vec<(&'static str, BTreeSet<String>)>,
}

impl Volume {
    pub(crate) fn parse(raw: &Value) -> Self {
        let (metadata, spec) = (&raw["metadata"], &raw["spec"]);
        let labels = strings(&metadata["labels"]);
        let zones = ZONE_LABELS.iter().filter_map(|(key, old)| {
            let value = labels.get(*key).or_else(|| labels.get(*old))?;
            Some((*key, value.split(ZONE_SEPARATOR).map(str::to_owned).collect()))
        });
        let terms = spec["nodeAffinity"]["required"]["nodeSelectorTerms"].as_array();
        Self {
            name: text(&metadata["name"]).to_owned(),
            uid: text(&metadata["uid"]).to_owned(),
            deleting: !metadata["deletionTimestamp"].is_null(),
            phase: text(&raw["status"]["phase"]).to_owned(),
            claim: reference(raw).map(|key| ClaimReference { key, uid: text(&spec["claimRef"]["uid"]).to_owned() }),
            bound_by_controller: metadata["annotations"].get(BOUND_BY_CONTROLLER).is_some(),
            class: class_of(raw).unwrap_or_default(),
            capacity: Amounts::parse(&spec["capacity"]).get("storage"),
            access_modes: list(&spec["accessModes"]).iter().map(|mode| text(mode).to_owned()).collect(),
            mode: mode_of(spec),
            affinity: terms.map(|terms| terms.iter().map(NodeSelectorTerm::parse).collect()),
            zones: zones.collect(),
            labels,
        }
    }

    /// Whether it is this claim's, or kept for it.
    pub(crate) fn is_for(&self, claim: &Claim) -> bool {
        let refers = |to: &ClaimReference| to.key == claim.key && (to.uid.is_empty() || to.uid == claim.uid);
        self.claim.as_ref().is_some_and(refers)
    }

    /// Whether its node affinity lets this node reach it.
    pub(crate) fn is_reached_from(&self, node: &Node) -> bool {
        let matches = |terms: &Vec<NodeSelectorTerm>| terms.iter().any(|term| term.matches(&node.name, &node.labels));
        self.affinity.as_ref().is_none_or(matches)
    }

    /// Whether its labels let it be used in the node's zone. A node without zone and region is in all of them.
    pub(crate) fn is_in_zone_of(&self, node: &Node) -> bool {
        let placed = ZONE_LABELS.iter().any(|(key, _)| node.labels.contains_key(*key));
        !placed || self.zones.iter().all(|(key, values)| node.labels.get(*key).is_some_and(|at| values.contains(at)))
    }

    /// Why the claim that names it cannot have it, in the words of the genuine binder.
    pub(crate) fn mismatch(&self, claim: &Claim) -> Option<&'static str> {
        if self.capacity < claim.request {
            Some("requested PV is too small")
        } else if self.class != claim.class_name() {
            Some("storageClassName does not match")
        } else if self.mode != claim.mode {
            Some("incompatible volumeMode")
        } else if !claim.access_modes.is_subset(&self.access_modes) {
            Some("incompatible accessMode")
        } else {
            None
        }
    }

    fn holds(&self, claim: &Claim) -> bool {
        !self.deleting
            && self.capacity >= claim.request
            && self.mode == claim.mode
            && claim.access_modes.is_subset(&self.access_modes)
    }

    /// Whether nobody has it.
    pub(crate) fn is_free(&self) -> bool {
        self.claim.is_none() && self.phase == "Available"
    }

    /// Whether nobody has it and the claim could.
    fn is_free_for(&self, claim: &Claim) -> bool {
        self.is_free()
            && self.class == claim.class_name()
            && claim.selector.as_ref().is_none_or(|selector| selector.matches(&self.labels))
            && self.holds(claim)
    }
}

/// Which volumes a claim may have, the best first.
pub(crate) enum Choice<'a> {
    /// This one is kept for it: that or none.
    Kept(&'a Arc<Volume>),
    /// The smallest first. Of equals the genuine programs take any; here names decide.
    Free(Vec<&'a Arc<Volume>>),
}

/// The volumes that an unbound claim may have, wherever they are, of all in the order of their names.
pub(crate) fn choice<'a>(claim: &Claim, volumes: impl Iterator<Item = &'a Arc<Volume>>) -> Choice<'a> {
    let mut free = vec![];
    for volume in volumes {
        if volume.is_for(claim) && volume.holds(claim) {
            return Choice::Kept(volume);
        }
        if volume.is_free_for(claim) {
            free.push(volume);
        }
    }
    free.sort_by_key(|volume| volume.capacity);
    Choice::Free(free)
}

/// As the binder chooses: whatever can do least beyond what the claim asks for comes before what is smallest.
pub(crate) fn plainest<'a>(free: &[&'a Arc<Volume>]) -> Option<&'a Arc<Volume>> {
    free.iter().min_by_key(|volume| volume.access_modes.len()).copied()
}

/// Makes the volume the claim's, unless it is. Returns the volume as it is then, if it had to be written.
pub(crate) fn reserve(api: &Api, volume: &Volume, claim: &Claim) -> Result<Option<Arc<Value>>, Status> {
    if volume.claim.as_ref().is_some_and(|present| present.uid == claim.uid && present.key == claim.key) {
        return Ok(None);
    }
    let reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.key.namespace, "name": claim.key.name,
        "uid": claim.uid, "resourceVersion": claim.version,
    });
    let mut patch = json!({"metadata": {"uid": volume.uid}, "spec": {"claimRef": reference}});
    if !volume.is_for(claim) {
        patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
    }
    let key = Key { namespace: String::new(), name: volume.name.clone() };
    api.patch(&resources::PERSISTENT_VOLUMES, &key, patch).map(Some)
}

/// A StorageClass.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) provisioner: String,
    /// Whether claims wait until a pod that uses them has a node.
    pub(crate) waits: bool,
    /// Where volumes can be made: nodes of one of these have, for each key, one of the values. Empty: anywhere.
    topologies: Vec<Vec<(String, BTreeSet<String>)>>,
}

impl Class {
    pub(crate) fn parse(raw: &Value) -> Self {
        let values = |item: &Value| list(&item["values"]).iter().map(|value| text(value).to_owned()).collect();
        let term = |term: &Value| {
            let items = list(&term["matchLabelExpressions"]).iter();
            items.map(|item| (text(&item["key"]).to_owned(), values(item))).collect()
        };
        Self {
            provisioner: text(&raw["provisioner"]).to_owned(),
            waits: raw["volumeBindingMode"] == "WaitForFirstConsumer",
            topologies: list(&raw["allowedTopologies"]).iter().map(term).collect(),
        }
    }

    /// Whether somebody could make a volume that this node reaches.
    pub(crate) fn provisions_for(&self, node: &Node) -> bool {
        let has =
            |(key, values): &(String, BTreeSet<String>)| node.labels.get(key).is_some_and(|at| values.contains(at));
        let allows = |term: &Vec<(String, BTreeSet<String>)>| !term.is_empty() && term.iter().all(has);
        self.provisioner != NO_PROVISIONER && (self.topologies.is_empty() || self.topologies.iter().any(allows))
    }
}

/// The claim that a volume names.
pub(crate) fn reference(volume: &Value) -> Option<Key> {
    let claim = &volume["spec"]["claimRef"];
    let key = || Key { namespace: text(&claim["namespace"]).to_owned(), name: text(&claim["name"]).to_owned() };
    claim.is_object().then(key)
}

/// The class of a claim or a volume. The annotation is older than the field and goes before it.
pub(crate) fn class_of(object: &Value) -> Option<String> {
    let annotated = object["metadata"]["annotations"][CLASS].as_str();
    annotated.or(object["spec"]["storageClassName"].as_str()).map(str::to_owned)
}

fn mode_of(spec: &Value) -> String {
    match text(&spec["volumeMode"]) {
        "" => "Filesystem".to_owned(),
        mode => mode.to_owned(),
    }
}
