//! Decision problems as text: a cluster, its instance types and its settings in one line of JSON, read strictly, and the
//! decision written in the same form for every scheduler that is asked.
//!
//! The form is that of the decision oracle, which asks upstream Karpenter the same questions: Kubernetes objects are as
//! `kubectl get -o json` prints them, equal pods are written once with a count. What an API server or kube-scheduler would
//! have added is filled in here. Reading files and telling the time are the caller's business.

mod answer;
mod catalogue;
mod file;

pub use answer::{answer, answer_of};
pub use catalogue::Catalogue;

use crate::catalog::InstanceType;
use crate::explanation::Explanation;
use crate::scheduling::schedule_explained;
use crate::settings::{MinValuesPolicy, PreferencePolicy, Settings};
use crate::snapshot::{
    DaemonSet, Namespace, Pdb, PersistentVolume, Pod, PodName, Pool, Snapshot, StateNode, Storage, StorageClass,
    VolumeClaim, attach_limits,
};
use controller_api::{NodeClaim, NodePool, labels};
use file::{NodeRecord, PodGroup, ProblemFile};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// How much younger than the problem's instant pods are that do not say when they were created.
const AGE: SignedDuration = SignedDuration::from_secs(60);

/// A question: where do these pods go?
#[derive(Clone, Debug)]
pub struct Problem {
    /// Its name.
    pub id: String,
    /// The world.
    pub snapshot: Snapshot,
    /// The operator's settings.
    pub settings: Settings,
    /// The group that each pod is counted under.
    pub groups: BTreeMap<PodName, String>,
}

/// What is wrong with a problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ProblemError {
    /// Where, as in `nodePools[0].spec.limits.cpu`.
    pub path: String,
    /// What is there and what was expected.
    pub message: String,
}

impl ProblemError {
    fn new(path: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self { path: path.to_string(), message: message.to_string() }
    }
}

impl Problem {
    /// What is decided about it, for people.
    pub fn explain(&self) -> Explanation {
        let schedule = schedule_explained(&self.snapshot, &self.settings);
        let name = |pod: &PodName| self.groups.get(pod).unwrap_or(&pod.name).clone();
        Explanation::of(&self.id, &self.snapshot, &self.settings, &schedule, &name)
    }

    /// Reads one line. `catalogue` answers the named catalogue, or says why there is none.
    pub fn read(
        line: &str,
        catalogue: &mut dyn FnMut(&str) -> Result<Arc<Catalogue>, String>,
    ) -> Result<Self, ProblemError> {
        let file: ProblemFile = file::parse(line)?;
        let known = catalogue(&file.catalogue).map_err(|message| ProblemError::new("catalogue", message))?;
        let types = known.select(&file.instance_types, &file.offerings)?;
        let mut reader = Reader {
            snapshot: Snapshot::empty(file.now),
            groups: BTreeMap::new(),
            group_names: BTreeSet::new(),
            pods_made: 0,
        };
        for (index, pool) in file.node_pools.iter().enumerate() {
            reader.add_pool(pool, &types, &format!("nodePools[{index}]"))?;
        }
        for (index, group) in file.pods.iter().enumerate() {
            reader.add_pods(group, None, &format!("pods[{index}]"))?;
        }
        for (index, record) in file.nodes.iter().enumerate() {
            reader.add_node(record, &format!("nodes[{index}]"))?;
        }
        let snapshot = &mut reader.snapshot;
        snapshot.daemon_sets = file.daemon_sets.iter().map(|set| Arc::new(DaemonSet::from_api(set))).collect();
        snapshot.pod_disruption_budgets = file.pdbs.iter().map(|pdb| Arc::new(Pdb::from_api(pdb))).collect();
        snapshot.storage = Some(Arc::new(Storage {
            claims: file.persistent_volume_claims.iter().map(VolumeClaim::from_api).collect(),
            volumes: file.persistent_volumes.iter().map(PersistentVolume::from_api).collect(),
            classes: file.storage_classes.iter().map(StorageClass::from_api).collect(),
            attach_limits: file.csi_nodes.iter().map(attach_limits).collect(),
        }));
        snapshot.namespaces = file.namespaces.iter().map(Namespace::from_api).collect();
        Ok(Self { id: file.id, snapshot: reader.snapshot, settings: settings(&file.settings)?, groups: reader.groups })
    }
}

/// A problem being read.
struct Reader {
    snapshot: Snapshot,
    groups: BTreeMap<PodName, String>,
    group_names: BTreeSet<String>,
    pods_made: usize,
}

impl Reader {
    fn add_pool(&mut self, pool: &Value, types: &[Arc<InstanceType>], path: &str) -> Result<(), ProblemError> {
        let mut pool = pool.clone();
        let class = &mut pool["spec"]["template"]["spec"]["nodeClassRef"];
        if class.is_null() {
            *class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        }
        if pool["status"]["conditions"].as_array().is_none_or(Vec::is_empty) {
            pool["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": self.snapshot.now.to_string()}]);
        }
        let object: NodePool = file::typed(pool, path)?;
        let name = required_name(&object.metadata, path)?;
        for (resource, limit) in &object.spec.limits {
            quantity(&limit.0, &format!("{path}.spec.limits.{resource}"))?;
        }
        let requirements = object.spec.template.spec.requirements.iter().enumerate();
        for (index, requirement) in requirements {
            let (operator, values) = (requirement.operator.to_string(), &requirement.values);
            let findings = controller_api::validation::validate_requirement(&requirement.key, &operator, values, None);
            if let Some(error) = findings.errors.first() {
                return Err(ProblemError::new(format!("{path}.spec.template.spec.requirements[{index}]"), error));
            }
        }
        if self.snapshot.pools.contains_key(&name) {
            return Err(ProblemError::new(format!("{path}.metadata.name"), twice("NodePool", &name)));
        }
        self.snapshot.pools.insert(name, Pool::new(Arc::new(object), types.to_vec()));
        Ok(())
    }

    /// Equal pods, named and numbered in order: equal requests are taken in order of age, then of uid.
    fn add_pods(&mut self, group: &PodGroup, node: Option<&str>, path: &str) -> Result<(), ProblemError> {
        let base = required_name(&group.pod.metadata, &format!("{path}.pod"))?;
        let namespace = group.pod.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = if namespace == "default" { base.clone() } else { format!("{namespace}/{base}") };
        check_requests(&group.pod, &format!("{path}.pod.spec"))?;
        if !self.group_names.insert(name.clone()) {
            return Err(ProblemError::new(format!("{path}.pod.metadata.name"), twice("group of pods", &name)));
        }
        let mut pod = group.pod.clone();
        pod.metadata.namespace = Some(namespace.clone());
        pod.metadata.creation_timestamp.get_or_insert_with(|| Time(a_minute_before(self.snapshot.now)));
        match node {
            Some(node) => prepare_bound(&mut pod, node),
            None => prepare_pending(&mut pod),
        }
        let parsed = Pod::from_api(&pod);
        for index in 0..group.count {
            self.pods_made += 1;
            let mut pod = parsed.clone();
            pod.name = PodName::new(&namespace, format!("{base}-{index}"));
            pod.uid = format!("00000000-0000-4000-8000-{:012}", self.pods_made);
            if self.snapshot.pods.contains_key(&pod.name) {
                return Err(ProblemError::new(format!("{path}.pod.metadata.name"), twice("pod", &pod.name)));
            }
            self.groups.insert(pod.name.clone(), name.clone());
            self.snapshot.pods.insert(pod.name.clone(), Arc::new(pod));
        }
        Ok(())
    }

    fn add_node(&mut self, record: &NodeRecord, path: &str) -> Result<(), ProblemError> {
        let claim =
            record.node_claim.as_ref().map(|claim| node_claim(claim, &format!("{path}.nodeClaim"))).transpose()?;
        if claim.is_none() && record.node.is_none() {
            return Err(ProblemError::new(path, "neither node nor nodeClaim is given, and one of them is expected"));
        }
        let node = record.node.clone().map(Arc::new);
        let state = StateNode::new(node, claim.map(Arc::new)).marked(record.marked_for_deletion);
        let pool = state.pool().filter(|_| state.is_managed());
        if let Some(pool) = pool.filter(|pool| !self.snapshot.pools.contains_key(*pool)) {
            let known: Vec<&str> = self.snapshot.pools.keys().map(String::as_str).collect();
            let message = format!("NodePool {pool:?} is not in nodePools, which has {known:?}");
            return Err(ProblemError::new(format!("{path} label {}", labels::NODE_POOL_LABEL), message));
        }
        let window = SignedDuration::try_from(Settings::default().nomination_window()).ok();
        let until = window.and_then(|window| self.snapshot.now.checked_add(window).ok());
        let state = state.nominated(until.filter(|_| record.nominated));
        let name = state.name().to_owned();
        let node_name = state.node_name().map(str::to_owned);
        if self.snapshot.nodes.insert(name.clone(), state).is_some() {
            return Err(ProblemError::new(path, twice("node", &name)));
        }
        for (index, group) in record.pods.iter().enumerate() {
            let path = format!("{path}.pods[{index}]");
            let Some(node_name) = &node_name else {
                return Err(ProblemError::new(path, "pods run on a node that has not come up: node is missing"));
            };
            self.add_pods(group, Some(node_name), &path)?;
        }
        Ok(())
    }
}

fn node_claim(claim: &Value, path: &str) -> Result<NodeClaim, ProblemError> {
    let mut claim = claim.clone();
    if claim["status"]["providerID"].is_null() {
        claim["status"]["providerID"] = json!(format!("provider-{}", claim["metadata"]["name"]));
    }
    let claim: NodeClaim = file::typed(claim, path)?;
    required_name(&claim.metadata, path)?;
    Ok(claim)
}

fn required_name(metadata: &ObjectMeta, path: &str) -> Result<String, ProblemError> {
    let name = metadata.name.clone().filter(|name| !name.is_empty());
    name.ok_or_else(|| ProblemError::new(format!("{path}.metadata.name"), "missing, and a name is expected"))
}

fn twice(kind: &str, name: &impl fmt::Display) -> String {
    format!("there is a {kind} {:?} already; names are expected to be unique", name.to_string())
}

fn quantity(text: &str, path: &str) -> Result<(), ProblemError> {
    match text.parse::<crate::quantity::Quantity>() {
        Ok(quantity) if quantity.is_negative() => {
            Err(ProblemError::new(path, format!("{text:?} is negative; a quantity of 0 or more is expected")))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(ProblemError::new(path, format!("{error}; expected one such as 500m, 2 or 4Gi"))),
    }
}

fn check_requests(pod: &api::Pod, path: &str) -> Result<(), ProblemError> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let containers = spec.containers.iter().map(|c| ("containers", c));
    let all = containers.chain(spec.init_containers.iter().flatten().map(|c| ("initContainers", c)));
    for (list, container) in all {
        let Some(resources) = &container.resources else { continue };
        for (kind, amounts) in [("requests", &resources.requests), ("limits", &resources.limits)] {
            for (name, amount) in amounts.iter().flatten() {
                quantity(&amount.0, &format!("{path}.{list}[{}].resources.{kind}.{name}", container.name))?;
            }
        }
    }
    for (name, amount) in spec.overhead.iter().flatten() {
        quantity(&amount.0, &format!("{path}.overhead.{name}"))?;
    }
    Ok(())
}

fn a_minute_before(now: Timestamp) -> Timestamp {
    now.checked_sub(AGE).unwrap_or(now)
}

/// As kube-scheduler leaves a pod that it found no node for.
fn prepare_pending(pod: &mut api::Pod) {
    let status = pod.status.get_or_insert_default();
    status.phase.get_or_insert_with(|| "Pending".to_owned());
    if status.conditions.as_ref().is_none_or(Vec::is_empty) {
        status.conditions = Some(vec![condition("PodScheduled", "False", Some("Unschedulable"))]);
    }
}

fn prepare_bound(pod: &mut api::Pod, node: &str) {
    pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
    let status = pod.status.get_or_insert_default();
    status.phase.get_or_insert_with(|| "Running".to_owned());
    if status.conditions.as_ref().is_none_or(Vec::is_empty) {
        status.conditions = Some(vec![condition("PodScheduled", "True", None), condition("Ready", "True", None)]);
    }
}

fn condition(kind: &str, status: &str, reason: Option<&str>) -> api::PodCondition {
    api::PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.map(str::to_owned),
        ..api::PodCondition::default()
    }
}

fn settings(given: &file::SettingsFile) -> Result<Settings, ProblemError> {
    let preference_policy = match given.preference_policy.as_str() {
        "" | "Respect" => PreferencePolicy::Respect,
        "Ignore" => PreferencePolicy::Ignore,
        other => return Err(not_one_of("settings.preferencePolicy", other, "Respect or Ignore")),
    };
    let min_values_policy = match given.min_values_policy.as_str() {
        "" | "Strict" => MinValuesPolicy::Strict,
        "BestEffort" => MinValuesPolicy::BestEffort,
        other => return Err(not_one_of("settings.minValuesPolicy", other, "Strict or BestEffort")),
    };
    let usual = Settings::default();
    let reserved_capacity = given.feature_gates.get("ReservedCapacity").copied().unwrap_or(usual.reserved_capacity);
    Ok(Settings { preference_policy, min_values_policy, reserved_capacity, ..usual })
}

fn not_one_of(path: &str, value: &str, expected: &str) -> ProblemError {
    ProblemError::new(path, format!("{value:?}, and {expected} is expected"))
}
