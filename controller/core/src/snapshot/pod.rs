//! A pod parsed once, and the words Karpenter has for what may be done with it (core spec §2.10, §3.4, §6.2).

use crate::host_ports::HostPort;
use crate::quantity::Quantity;
use crate::requirement::{Operator, Requirement};
use crate::requirements::Requirements;
use crate::resources::{PODS, Resources};
use crate::taints;
use controller_api::labels;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::fmt;

mod affinity;
mod requests;
mod spread;
mod volumes;

pub use affinity::{AffinityTerm, PodAffinity, WeightedTerm};
pub use spread::SpreadConstraint;
pub use volumes::PodVolume;

/// A pod still terminating this long after its deadline is stuck (core spec §6.2).
const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Namespace and name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// What scheduling and disruption need to know of a pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Namespace and name.
    pub name: PodName,
    /// The uid, which tells a pod from an earlier one of the same name.
    pub uid: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Until when it has to be gone: the deletion timestamp, grace period included.
    pub deletion: Option<Timestamp>,
    /// When its containers began to start.
    pub started: Option<Timestamp>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its owners.
    pub owners: Vec<Owner>,
    /// The Node it is bound to.
    pub node_name: Option<String>,
    /// The Node that preemption makes room for it on.
    pub nominated_node_name: Option<String>,
    /// How far it has come.
    pub phase: Phase,
    /// Whether kube-scheduler found no place for it.
    pub unschedulable: bool,
    /// The `Ready` condition, where there is one.
    pub ready: Option<bool>,
    /// Its scheduling priority.
    pub priority: i32,
    /// Whether it is of one of the two priority classes without which a node or cluster does not work; drained last.
    pub is_critical: bool,
    /// How many seconds it is given to end.
    pub grace_period_s: Option<i64>,
    /// What it asks for, itself as one of `pods` included.
    pub requests: Resources,
    /// Taints it can live with.
    pub tolerations: Vec<api::Toleration>,
    /// Ports it takes on the node.
    pub host_ports: Vec<HostPort>,
    /// Labels its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: alternatives, one of which must hold. Empty: no such constraint.
    pub required_terms: Vec<MatchExpressions>,
    /// Preferred node affinity, heaviest first.
    pub preferred_terms: Vec<PreferredTerm>,
    /// How it wants pods spread over domains.
    pub topology_spread: Vec<SpreadConstraint>,
    /// Which pods it wants near, and which it keeps away from.
    pub affinity: PodAffinity,
    /// Its volumes that a claim stands behind.
    pub volumes: Vec<PodVolume>,
    /// Whether it claims devices through dynamic resource allocation.
    pub claims_devices: bool,
    /// What about it is wrong, so that nothing can be planned for it.
    pub problems: Vec<String>,
}

/// One node selector term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MatchExpressions {
    /// What it requires of labels.
    pub requirements: Vec<Requirement>,
    /// Whether it also selects by field, which cannot be planned for.
    pub has_match_fields: bool,
}

/// One preferred node selector term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferredTerm {
    /// Its weight, 1 to 100.
    pub weight: i32,
    /// The term.
    pub term: MatchExpressions,
}

/// An owner of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its kind, as far as it matters here.
    pub kind: OwnerKind,
    /// Its uid.
    pub uid: String,
    /// Its name.
    pub name: String,
}

/// Kinds of owners that decisions treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// `apps/v1` DaemonSet.
    DaemonSet,
    /// `apps/v1` StatefulSet.
    StatefulSet,
    /// `v1` Node: a mirror of a static pod.
    Node,
    /// Anything else.
    Other,
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have started.
    Pending,
    /// Bound, and at least one container runs or restarts.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
    /// The node cannot be asked.
    Unknown,
}

/// What `karpenter.sh/do-not-disrupt` on a pod amounts to at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoNotDisrupt {
    /// No such annotation.
    Absent,
    /// In force without end.
    Always,
    /// In force until then.
    Until(Timestamp),
    /// Its time has passed.
    Elapsed,
    /// Neither `true` nor a positive duration: ignored.
    Invalid(String),
}

impl Pod {
    /// Reads an API pod.
    pub fn from_api(pod: &api::Pod) -> Self {
        let metadata = &pod.metadata;
        let spec = pod.spec.clone().unwrap_or_default();
        let status = pod.status.clone().unwrap_or_default();
        let mut parsed = Self::from_spec(metadata, &spec, status.container_statuses.as_deref().unwrap_or_default());
        let condition = |kind: &str| status.conditions.iter().flatten().find(|c| c.type_ == kind);
        parsed.started = status.start_time.as_ref().map(|time| time.0);
        parsed.nominated_node_name = status.nominated_node_name.clone().filter(|name| !name.is_empty());
        parsed.phase = Phase::from_api(status.phase.as_deref());
        parsed.unschedulable = condition("PodScheduled").is_some_and(|c| c.reason.as_deref() == Some("Unschedulable"));
        parsed.ready = condition("Ready").map(|c| c.status == "True");
        parsed
    }

    /// Reads the part that a pod template has too.
    pub(super) fn from_spec(metadata: &ObjectMeta, spec: &api::PodSpec, statuses: &[api::ContainerStatus]) -> Self {
        let affinity = spec.affinity.clone().unwrap_or_default();
        let pod_affinity = PodAffinity::from_api(&affinity);
        let node_affinity = affinity.node_affinity.unwrap_or_default();
        let required = node_affinity.required_during_scheduling_ignored_during_execution;
        let mut preferred_terms: Vec<PreferredTerm> = node_affinity
            .preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
            .map(|term| PreferredTerm { weight: term.weight, term: MatchExpressions::from_api(&term.preference) })
            .collect();
        // Stable: among equal weights the first in the list counts as heavier.
        preferred_terms.sort_by_key(|term| std::cmp::Reverse(term.weight));
        let labels = metadata.labels.clone().unwrap_or_default();
        let spread = spec.topology_spread_constraints.iter().flatten();
        let topology_spread = spread.map(|constraint| SpreadConstraint::from_api(constraint, &labels)).collect();
        let mut invalid = Vec::new();
        let requests = requests::of(spec, statuses, &mut invalid).with(PODS, Quantity::units(1));
        let required = required.iter().flat_map(|selector| &selector.node_selector_terms);
        let mut problems: Vec<String> = invalid.iter().map(ToString::to_string).collect();
        problems.extend(required.clone().flat_map(term_problems));
        for (key, value) in spec.node_selector.iter().flatten() {
            problems.extend(requirement_problems(key, "In", std::slice::from_ref(value)));
        }
        Self {
            name: PodName {
                namespace: metadata.namespace.clone().unwrap_or_default(),
                name: metadata.name.clone().unwrap_or_default(),
            },
            uid: metadata.uid.clone().unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            deletion: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            started: None,
            labels,
            annotations: metadata.annotations.clone().unwrap_or_default(),
            owners: metadata.owner_references.iter().flatten().map(Owner::from_api).collect(),
            node_name: spec.node_name.clone().filter(|name| !name.is_empty()),
            nominated_node_name: None,
            phase: Phase::Pending,
            unschedulable: false,
            ready: None,
            priority: spec.priority.unwrap_or(0),
            is_critical: matches!(
                spec.priority_class_name.as_deref(),
                Some("system-cluster-critical" | "system-node-critical")
            ),
            grace_period_s: spec.termination_grace_period_seconds,
            requests,
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            host_ports: host_ports(spec),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            required_terms: required.map(MatchExpressions::from_api).collect(),
            preferred_terms,
            topology_spread,
            affinity: pod_affinity,
            volumes: PodVolume::from_api(spec),
            claims_devices: spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()),
            problems,
        }
    }

    /// The requirements that hold with the first required term and the given preferred one (core spec §2.10).
    pub fn requirements(
        &self,
        required: Option<&MatchExpressions>,
        preferred: Option<&MatchExpressions>,
    ) -> Requirements {
        let mut requirements = Requirements::from_labels(&self.node_selector);
        for requirement in preferred.into_iter().chain(required).flat_map(|term| &term.requirements) {
            requirements.add(requirement.clone());
        }
        requirements
    }

    /// Node selector and first required term.
    pub fn strict_requirements(&self) -> Requirements {
        self.requirements(self.required_terms.first(), None)
    }

    /// Whether the pod waits for a node that this controller may build (core spec §3.4). A terminating pod counts, and so
    /// does one of another scheduler, as upstream has it.
    pub fn is_provisionable(&self) -> bool {
        self.unschedulable
            && self.node_name.is_none()
            && self.nominated_node_name.is_none()
            && !self.is_owned_by(OwnerKind::DaemonSet)
            && !self.is_owned_by(OwnerKind::Node)
    }

    /// Whether both ask the same of a node and count alike for others, so that what is true of one's placing is true of the
    /// other's. A volume made for one pod alone makes it one of its kind.
    pub fn is_scheduled_like(&self, other: &Self) -> bool {
        let own_volume = |volume: &PodVolume| matches!(volume, PodVolume::Ephemeral(_));
        self.requests == other.requests
            && self.labels == other.labels
            && self.name.namespace == other.name.namespace
            && self.topology_spread == other.topology_spread
            && self.affinity == other.affinity
            && self.tolerations == other.tolerations
            && self.host_ports == other.host_ports
            && self.node_selector == other.node_selector
            && self.required_terms == other.required_terms
            && self.preferred_terms == other.preferred_terms
            && self.volumes == other.volumes
            && !self.volumes.iter().any(own_volume)
    }

    /// Whether it ended for good.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.deletion.is_some()
    }

    /// Whether it is neither finished nor being deleted.
    pub fn is_active(&self) -> bool {
        !self.is_terminal() && !self.is_terminating()
    }

    /// Whether it should have been gone a minute ago: its node can no longer stop it.
    pub fn is_stuck_terminating(&self, now: Timestamp) -> bool {
        self.deletion.is_some_and(|deadline| now.duration_since(deadline) > STUCK_AFTER)
    }

    /// Whether it tolerates the taint of a node that is being taken away, and so does not mind the node going.
    pub fn tolerates_disrupted(&self) -> bool {
        taints::tolerates(&[taints::disrupted()], &self.tolerations).is_ok()
    }

    /// Whether it will need another place when its node goes. A StatefulSet's pod counts until it is gone, because its
    /// successor comes only then.
    pub fn is_reschedulable(&self) -> bool {
        (self.is_active() || (self.is_owned_by(OwnerKind::StatefulSet) && self.is_terminating()))
            && !self.is_owned_by(OwnerKind::DaemonSet)
            && !self.is_owned_by(OwnerKind::Node)
    }

    /// Whether a drain evicts it.
    pub fn is_evictable(&self, now: Timestamp) -> bool {
        self.is_active()
            && !self.tolerates_disrupted()
            && !self.is_owned_by(OwnerKind::Node)
            && !self.do_not_disrupt(now).is_active()
    }

    /// Whether a drain waits for it.
    pub fn is_drainable(&self, now: Timestamp) -> bool {
        !self.tolerates_disrupted() && !self.is_stuck_terminating(now) && !self.is_owned_by(OwnerKind::Node)
    }

    /// Whether it still has to leave its node.
    pub fn is_waiting_eviction(&self, now: Timestamp) -> bool {
        !self.is_terminal() && self.is_drainable(now)
    }

    /// Whether it lets its node be taken away.
    pub fn is_disruptable(&self, now: Timestamp) -> bool {
        !self.is_active() || !self.do_not_disrupt(now).is_active()
    }

    /// What its `karpenter.sh/do-not-disrupt` annotation amounts to (core spec §6.2.1).
    pub fn do_not_disrupt(&self, now: Timestamp) -> DoNotDisrupt {
        let Some(text) = self.annotations.get(labels::DO_NOT_DISRUPT_ANNOTATION) else { return DoNotDisrupt::Absent };
        if text == "true" {
            return DoNotDisrupt::Always;
        }
        let duration = match text.parse::<controller_api::GoDuration>() {
            Ok(duration) if !duration.as_duration().is_zero() => duration.as_duration(),
            Ok(_) => return DoNotDisrupt::Invalid("the duration must be positive".into()),
            Err(error) => return DoNotDisrupt::Invalid(error.to_string()),
        };
        let Some(started) = self.started else { return DoNotDisrupt::Always };
        let ends = SignedDuration::try_from(duration).ok().and_then(|d| started.checked_add(d).ok());
        match ends {
            Some(ends) if now >= ends => DoNotDisrupt::Elapsed,
            ends => DoNotDisrupt::Until(ends.unwrap_or(Timestamp::MAX)),
        }
    }

    /// Whether one of its owners is of that kind.
    pub fn is_owned_by(&self, kind: OwnerKind) -> bool {
        self.owners.iter().any(|owner| owner.kind == kind)
    }

    /// What it costs to move the pod: 1, more for priority and for its deletion cost, between −10 and 10 (core spec §7.3).
    pub fn eviction_cost(&self) -> f64 {
        // A deletion cost that is no number counts as none; ReplicaSet's admission refuses it anyway.
        let deletion_cost: f64 = self
            .annotations
            .get("controller.kubernetes.io/pod-deletion-cost")
            .and_then(|text| text.parse().ok())
            .filter(|cost: &f64| cost.is_finite())
            .unwrap_or(0.0);
        let cost = 1.0 + deletion_cost / 2f64.powi(27) + f64::from(self.priority) / 2f64.powi(25);
        cost.clamp(-10.0, 10.0)
    }
}

impl DoNotDisrupt {
    /// Whether the pod must stay.
    pub fn is_active(&self) -> bool {
        matches!(self, Self::Always | Self::Until(_))
    }
}

impl MatchExpressions {
    fn from_api(term: &api::NodeSelectorTerm) -> Self {
        let requirements = term
            .match_expressions
            .iter()
            .flatten()
            // An operator the API server would not have let through counts as one that nothing satisfies.
            .map(|e| match e.operator.parse::<Operator>() {
                Ok(operator) => Requirement::new(&e.key, operator, e.values.iter().flatten().cloned()),
                Err(_) => Requirement::does_not_exist(&e.key),
            })
            .collect();
        Self { requirements, has_match_fields: term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty()) }
    }
}

impl Owner {
    fn from_api(reference: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference) -> Self {
        let kind = match (reference.api_version.as_str(), reference.kind.as_str()) {
            ("apps/v1", "DaemonSet") => OwnerKind::DaemonSet,
            ("apps/v1", "StatefulSet") => OwnerKind::StatefulSet,
            ("v1", "Node") => OwnerKind::Node,
            _ => OwnerKind::Other,
        };
        Self { kind, uid: reference.uid.clone(), name: reference.name.clone() }
    }
}

impl Phase {
    fn from_api(phase: Option<&str>) -> Self {
        match phase {
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some("Unknown") => Self::Unknown,
            _ => Self::Pending,
        }
    }
}

fn term_problems(term: &api::NodeSelectorTerm) -> Vec<String> {
    let expressions = term.match_expressions.iter().flatten();
    expressions
        .flat_map(|e| requirement_problems(&e.key, &e.operator, e.values.as_deref().unwrap_or_default()))
        .collect()
}

fn requirement_problems(key: &str, operator: &str, values: &[String]) -> Vec<String> {
    let findings = controller_api::validation::validate_requirement(key, operator, values, None);
    findings.errors.iter().map(ToString::to_string).collect()
}

fn host_ports(spec: &api::PodSpec) -> Vec<HostPort> {
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(HostPort {
                ip: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".into()),
                port: port.host_port.filter(|port| *port != 0)?,
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            })
        })
        .collect()
}

impl PodName {
    /// From its two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests;
