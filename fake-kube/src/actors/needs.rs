//! What a pod asks of its node: requests, node affinity, tolerations, host ports, spread and inter-pod affinity. Parsed
//! once per pod; pods with the same [`Needs::signature`] are interchangeable to the scheduler.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::amount::Amounts;
use super::objects::{Node, Taint, Toleration};
use super::selector::{LabelSelector, Labels, NodeSelectorTerm, list, strings, text};

/// Requests assumed for scoring where a pod states none, as kube-scheduler does per container.
const ASSUMED_CPU_MILLI: i64 = 100;
const ASSUMED_MEMORY: i64 = 200 << 20;

/// What a pod asks of its node.
#[derive(Debug)]
pub(crate) struct Needs {
    /// Equal for pods that are interchangeable to the scheduler.
    pub(crate) signature: String,
    pub(crate) namespace: String,
    pub(crate) labels: Labels,
    pub(crate) priority: i64,
    pub(crate) preempts: bool,
    pub(crate) scheduler_name: String,
    pub(crate) gated: bool,
    pub(crate) requests: Amounts,
    /// CPU in thousandths and memory in bytes as scoring counts them.
    pub(crate) scored: (i64, i64),
    pub(crate) tolerations: Vec<Toleration>,
    node_selector: Labels,
    node_affinity: Option<Vec<NodeSelectorTerm>>,
    preferred_nodes: Vec<(i64, NodeSelectorTerm)>,
    /// The only nodes that the required node affinity names, if it names nodes at all.
    pub(crate) node_names: Option<BTreeSet<String>>,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) claims: Vec<ClaimUse>,
    /// Constraints that forbid.
    pub(crate) hard_spread: Vec<Spread>,
    /// Constraints that only rank.
    pub(crate) soft_spread: Vec<Spread>,
    pub(crate) affinity: Vec<AffinityTerm>,
    pub(crate) anti_affinity: Vec<AffinityTerm>,
    /// Weight (negative for anti-affinity) and term.
    pub(crate) preferred_pods: Vec<(i64, AffinityTerm)>,
}

/// A port on the node's own address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostPort {
    pub(crate) port: i64,
    pub(crate) protocol: String,
    pub(crate) address: String,
}

impl HostPort {
    /// Two ports exclude each other when number and protocol agree and the addresses are equal or one is a wildcard.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let wildcard = |port: &Self| port.address == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || wildcard(self) || wildcard(other))
    }
}

/// A volume of the pod that is somebody's claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimUse {
    pub(crate) name: String,
    /// Made for this pod alone.
    pub(crate) ephemeral: bool,
}

/// Which pods count: in these namespaces, with these labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodSelector {
    namespaces: BTreeSet<String>,
    namespace_selector: Option<LabelSelector>,
    /// `None` selects nothing.
    labels: Option<LabelSelector>,
}

impl PodSelector {
    pub(crate) fn matches(&self, namespace: &str, namespace_labels: &Labels, labels: &Labels) -> bool {
        self.labels.as_ref().is_some_and(|selector| selector.matches(labels))
            && (self.namespaces.contains(namespace)
                || self.namespace_selector.as_ref().is_some_and(|selector| selector.matches(namespace_labels)))
    }
}

/// A topology spread constraint.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    pub(crate) max_skew: i64,
    pub(crate) min_domains: i64,
    pub(crate) topology_key: String,
    pub(crate) selector: PodSelector,
    /// Only nodes that the pod's node affinity allows count (the default).
    pub(crate) honors_affinity: bool,
    /// Only nodes whose taints the pod tolerates count (not the default).
    pub(crate) honors_taints: bool,
}

/// A term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AffinityTerm {
    pub(crate) topology_key: String,
    pub(crate) selector: PodSelector,
}

impl Needs {
    pub(crate) fn parse(pod: &Value) -> Self {
        let (spec, metadata) = (&pod["spec"], &pod["metadata"]);
        let namespace = text(&metadata["namespace"]).to_owned();
        let labels = strings(&metadata["labels"]);
        let (affinity, priority) = (&spec["affinity"], spec["priority"].as_i64().unwrap_or(0));
        let required = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let node_affinity: Option<Vec<_>> =
            required.as_array().map(|terms| terms.iter().map(NodeSelectorTerm::parse).collect());
        let requests = requests(spec);
        let ports = host_ports(spec);
        let claims = claims(text(&metadata["name"]), spec);
        let term = |value: &Value| affinity_term(value, &namespace, &labels);
        let required_terms = |kind: &str| {
            list(&affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"]).iter().map(term).collect::<Vec<_>>()
        };
        let preferred_terms = |kind: &str, sign: i64| {
            list(&affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"])
                .iter()
                .map(|item| (sign * item["weight"].as_i64().unwrap_or(0), term(&item["podAffinityTerm"])))
                .collect::<Vec<_>>()
        };
        let mut preferred_pods = preferred_terms("podAffinity", 1);
        preferred_pods.extend(preferred_terms("podAntiAffinity", -1));
        let (hard_spread, soft_spread) = list(&spec["topologySpreadConstraints"])
            .iter()
            .partition::<Vec<_>, _>(|constraint| constraint["whenUnsatisfiable"] != "ScheduleAnyway");
        let spread = |constraints: Vec<&Value>| {
            constraints.into_iter().map(|constraint| spread(constraint, &namespace, &labels)).collect()
        };
        let signature = json!([
            namespace,
            metadata["labels"],
            affinity,
            spec["nodeSelector"],
            spec["tolerations"],
            spec["topologySpreadConstraints"],
            priority,
            spec["preemptionPolicy"],
            spec["schedulerName"],
            requests.iter().collect::<Vec<_>>(),
            ports.iter().map(|port| (port.port, &port.protocol, &port.address)).collect::<Vec<_>>(),
            claims.iter().map(|claim| (&claim.name, claim.ephemeral)).collect::<Vec<_>>(),
        ])
        .to_string();
        let or_assumed = |amount: i64, assumed| if amount == 0 { assumed } else { amount };
        Self {
            signature,
            priority,
            preempts: spec["preemptionPolicy"] != "Never",
            scheduler_name: match text(&spec["schedulerName"]) {
                "" => "default-scheduler".to_owned(),
                name => name.to_owned(),
            },
            gated: !list(&spec["schedulingGates"]).is_empty(),
            scored: (
                or_assumed(requests.get("cpu"), ASSUMED_CPU_MILLI),
                or_assumed(requests.get("memory"), ASSUMED_MEMORY),
            ),
            requests,
            tolerations: list(&spec["tolerations"]).iter().map(Toleration::parse).collect(),
            node_selector: strings(&spec["nodeSelector"]),
            node_names: named_nodes(node_affinity.as_deref()),
            node_affinity,
            preferred_nodes: list(&affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"])
                .iter()
                .map(|item| (item["weight"].as_i64().unwrap_or(0), NodeSelectorTerm::parse(&item["preference"])))
                .collect(),
            ports,
            claims,
            hard_spread: spread(hard_spread),
            soft_spread: spread(soft_spread),
            affinity: required_terms("podAffinity"),
            anti_affinity: required_terms("podAntiAffinity"),
            preferred_pods,
            namespace,
            labels,
        }
    }

    /// Whether node selector and required node affinity allow a node of this name with these labels.
    pub(crate) fn selects(&self, node_name: &str, labels: &Labels) -> bool {
        self.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.node_affinity.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(node_name, labels)))
    }

    /// The first taint of the node that keeps this pod away.
    pub(crate) fn untolerated<'a>(&self, taints: &'a [Taint]) -> Option<&'a Taint> {
        taints.iter().find(|taint| taint.effect != "PreferNoSchedule" && !self.tolerates(taint))
    }

    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    }

    /// Sum of the weights of the preferred node affinity terms that match.
    pub(crate) fn preference(&self, node: &Node) -> i64 {
        let matching = self.preferred_nodes.iter().filter(|(_, term)| term.matches(&node.name, &node.labels));
        matching.map(|(weight, _)| weight).sum()
    }

    /// Whether the verdict on a node depends on more than the node and the pods there: on pods elsewhere, or on volumes.
    pub(crate) fn is_relational(&self) -> bool {
        !(self.claims.is_empty()
            && self.hard_spread.is_empty()
            && self.soft_spread.is_empty()
            && self.affinity.is_empty()
            && self.anti_affinity.is_empty()
            && self.preferred_pods.is_empty())
    }
}

/// Every alternative of the required affinity must name nodes, or none is excluded by name.
fn named_nodes(terms: Option<&[NodeSelectorTerm]>) -> Option<BTreeSet<String>> {
    let terms = terms.filter(|terms| !terms.is_empty())?;
    let named = terms.iter().map(NodeSelectorTerm::node_names).collect::<Option<Vec<_>>>()?;
    Some(named.into_iter().flatten().cloned().collect())
}

/// The effective request of a pod: containers and sidecars together, or the largest moment of the init containers;
/// pod-level requests replace the sum; overhead comes on top.
fn requests(spec: &Value) -> Amounts {
    let of = |container: &Value| Amounts::parse(&container["resources"]["requests"]);
    let mut total = Amounts::default();
    for container in list(&spec["containers"]) {
        total.add(&of(container));
    }
    let (mut sidecars, mut initial) = (Amounts::default(), Amounts::default());
    for container in list(&spec["initContainers"]) {
        let mut moment = of(container);
        if container["restartPolicy"] == "Always" {
            total.add(&moment);
            sidecars.add(&moment);
            moment = sidecars.clone();
        } else {
            moment.add(&sidecars);
        }
        initial.raise_to(&moment);
    }
    total.raise_to(&initial);
    for (name, amount) in Amounts::parse(&spec["resources"]["requests"]).iter() {
        total.set(name, amount);
    }
    total.add(&Amounts::parse(&spec["overhead"]));
    total
}

fn host_ports(spec: &Value) -> Vec<HostPort> {
    let sidecars = list(&spec["initContainers"]).iter().filter(|container| container["restartPolicy"] == "Always");
    let containers = list(&spec["containers"]).iter().chain(sidecars);
    let ports = containers.flat_map(|container| list(&container["ports"]));
    ports
        .filter_map(|port| {
            let or = |field: &str, default: &str| match text(&port[field]) {
                "" => default.to_owned(),
                value => value.to_owned(),
            };
            let number = port["hostPort"].as_i64().filter(|number| *number > 0)?;
            Some(HostPort { port: number, protocol: or("protocol", "TCP"), address: or("hostIP", "0.0.0.0") })
        })
        .collect()
}

fn claims(pod: &str, spec: &Value) -> Vec<ClaimUse> {
    let volumes = list(&spec["volumes"]).iter();
    volumes
        .filter_map(|volume| match volume["persistentVolumeClaim"]["claimName"].as_str() {
            Some(name) => Some(ClaimUse { name: name.to_owned(), ephemeral: false }),
            None if volume["ephemeral"].is_object() => {
                Some(ClaimUse { name: format!("{pod}-{}", text(&volume["name"])), ephemeral: true })
            }
            None => None,
        })
        .collect()
}

fn spread(constraint: &Value, namespace: &str, labels: &Labels) -> Spread {
    let mut selector = LabelSelector::parse(&constraint["labelSelector"]);
    if let Some(selector) = &mut selector {
        for key in list(&constraint["matchLabelKeys"]).iter().map(text) {
            if let Some(value) = labels.get(key) {
                selector.require(key, value);
            }
        }
    }
    Spread {
        max_skew: constraint["maxSkew"].as_i64().unwrap_or(1),
        min_domains: constraint["minDomains"].as_i64().unwrap_or(1),
        topology_key: text(&constraint["topologyKey"]).to_owned(),
        selector: PodSelector {
            namespaces: BTreeSet::from([namespace.to_owned()]),
            namespace_selector: None,
            labels: selector,
        },
        honors_affinity: constraint["nodeAffinityPolicy"] != "Ignore",
        honors_taints: constraint["nodeTaintsPolicy"] == "Honor",
    }
}

fn affinity_term(term: &Value, namespace: &str, labels: &Labels) -> AffinityTerm {
    let mut selector = LabelSelector::parse(&term["labelSelector"]);
    if let Some(selector) = &mut selector {
        for (field, require) in [("matchLabelKeys", true), ("mismatchLabelKeys", false)] {
            for key in list(&term[field]).iter().map(text) {
                match labels.get(key) {
                    Some(value) if require => selector.require(key, value),
                    Some(value) => selector.exclude(key, value),
                    None => {}
                }
            }
        }
    }
    let mut namespaces: BTreeSet<String> = list(&term["namespaces"]).iter().map(|name| text(name).to_owned()).collect();
    let namespace_selector = LabelSelector::parse(&term["namespaceSelector"]);
    if namespaces.is_empty() && namespace_selector.is_none() {
        namespaces.insert(namespace.to_owned());
    }
    AffinityTerm {
        topology_key: text(&term["topologyKey"]).to_owned(),
        selector: PodSelector { namespaces, namespace_selector, labels: selector },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(request: &str) -> Value {
        json!({"resources": {"requests": {"cpu": request}}})
    }

    #[test]
    fn requests_are_the_larger_of_running_and_starting_plus_overhead() {
        // Documented under "Sidecar containers / resource sharing within containers".
        let mut sidecar = cpu("200m");
        sidecar["restartPolicy"] = json!("Always");
        let spec = json!({
            "initContainers": [cpu("100m"), sidecar, cpu("1")],
            "containers": [cpu("300m"), cpu("400m")],
            "overhead": {"cpu": "50m"},
        });
        // Starting: 1000m + 200m sidecar; running: 300m + 400m + 200m.
        assert_eq!(requests(&spec).get("cpu"), 1250);
    }

    #[test]
    fn pod_level_requests_replace_the_sum() {
        let spec = json!({"containers": [cpu("300m")], "resources": {"requests": {"cpu": "2"}}});
        assert_eq!(requests(&spec).get("cpu"), 2000);
    }

    #[test]
    fn ports_conflict_on_wildcard_addresses_only_with_the_same_protocol() {
        let port =
            |protocol: &str, address: &str| HostPort { port: 80, protocol: protocol.into(), address: address.into() };
        assert!(port("TCP", "0.0.0.0").conflicts(&port("TCP", "10.0.0.1")));
        assert!(!port("TCP", "10.0.0.2").conflicts(&port("TCP", "10.0.0.1")));
        assert!(!port("UDP", "0.0.0.0").conflicts(&port("TCP", "0.0.0.0")));
    }
}
