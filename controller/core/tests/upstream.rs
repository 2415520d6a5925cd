//! The same problems as upstream Karpenter v1.14.0 was given, with what it decided. Its answers were recorded once with
//! its own scheduler over an in-memory API server; several outcomes mean that it does not always decide the same.

use controller_core::catalog::{CapacityType, InstanceType, Offering, Overhead};
use controller_core::check;
use controller_core::quantity::Quantity;
use controller_core::requirement::{Operator, Requirement};
use controller_core::resources::Resources;
use controller_core::scheduling::{PlannedNode, Schedule, schedule};
use controller_core::settings::{MinValuesPolicy, PreferencePolicy, Settings};
use controller_core::snapshot::{DaemonSet, Pod, PodName, Pool, Snapshot, StateNode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[test]
fn pods_are_spread_as_upstream_spreads_them() {
    let catalogue: Value = serde_json::from_str(include_str!("data/upstream/catalogue.json")).expect("a catalogue");
    let problems = include_str!("data/upstream/spread.jsonl").lines();
    let mut differing = Vec::new();
    let mut compared = 0;
    for line in problems {
        let recorded: Value = serde_json::from_str(line).expect("a problem and its answer");
        let ours = decide(&recorded["problem"], &catalogue);
        compared += 1;
        let theirs: Vec<Value> = list(&recorded["answer"]["outcomes"]).map(|o| outcome_of(o, &recorded)).collect();
        if !theirs.contains(&ours) {
            let first = theirs.first().cloned().unwrap_or_default();
            differing.push(format!("{}\n  ours     {ours}\n  upstream {first}", recorded["problem"]["id"]));
        }
    }
    assert_eq!(compared, 14);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// An outcome of upstream's in the form of ours.
fn outcome_of(outcome: &Value, recorded: &Value) -> Value {
    let refused: BTreeMap<&String, &Value> =
        outcome["unschedulable"].as_object().into_iter().flatten().map(|(group, r)| (group, &r["count"])).collect();
    let mut claims: Vec<Value> = list(&outcome["newClaims"])
        .map(|claim| {
            let types = |field: &str| &recorded["answer"]["typeSets"][claim[field].as_str().expect("a key")];
            json!({
                "nodePool": claim["nodePool"], "pods": claim["pods"], "requirements": claim["requirements"],
                "instanceTypes": types("instanceTypes"), "launchOrder": types("launchOrder"),
                "resources": claim["resources"], "cheapest": claim["cheapest"],
            })
        })
        .collect();
    claims.sort_by_key(Value::to_string);
    json!({"unschedulable": refused, "existing": outcome["existing"], "newClaims": claims})
}

/// What our scheduler decides about a problem.
pub(crate) fn decide(problem: &Value, catalogue: &Value) -> Value {
    let world = World::of(problem, catalogue);
    let schedule = schedule(&world.snapshot, &world.settings);
    assert_eq!(check::schedule(&world.snapshot, &world.settings, &schedule), [], "{}", problem["id"]);
    world.describe(&schedule)
}

struct World {
    snapshot: Snapshot,
    settings: Settings,
    /// The group that each pod is counted under.
    groups: BTreeMap<PodName, String>,
}

impl World {
    fn of(problem: &Value, catalogue: &Value) -> Self {
        let now: Timestamp = problem["now"].as_str().expect("an instant").parse().expect("an instant");
        let types: Vec<Arc<InstanceType>> = instance_types(problem, catalogue).into_iter().map(Arc::new).collect();
        let mut world = Self { snapshot: Snapshot::empty(now), settings: settings(problem), groups: BTreeMap::new() };
        for pool in list(&problem["nodePools"]) {
            let mut pool = pool.clone();
            if pool["spec"]["template"]["spec"]["nodeClassRef"].is_null() {
                pool["spec"]["template"]["spec"]["nodeClassRef"] =
                    json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
            }
            if pool["status"]["conditions"].as_array().is_none_or(Vec::is_empty) {
                pool["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
                    "lastTransitionTime": now.to_string()}]});
            }
            let pool = Pool::new(Arc::new(serde_json::from_value(pool).expect("a NodePool")), types.clone());
            world.snapshot.pools.insert(pool.name().to_owned(), pool);
        }
        list(&problem["pods"]).for_each(|group| world.add_pods(group, None));
        for record in list(&problem["nodes"]) {
            let claim = Some(&record["nodeClaim"]).filter(|c| !c.is_null()).map(|claim| {
                let mut claim = claim.clone();
                if claim["status"]["providerID"].is_null() {
                    claim["status"]["providerID"] = json!(format!("provider-{}", claim["metadata"]["name"]));
                }
                Arc::new(serde_json::from_value(claim).expect("a NodeClaim"))
            });
            let node = Some(&record["node"]).filter(|n| !n.is_null());
            let node = node.map(|node| Arc::new(serde_json::from_value(node.clone()).expect("a Node")));
            let state = StateNode::new(node, claim).marked(record["markedForDeletion"] == json!(true));
            let name = state.node_name().map(str::to_owned);
            world.snapshot.nodes.insert(state.name().to_owned(), state);
            list(&record["pods"]).for_each(|group| world.add_pods(group, name.as_deref()));
        }
        for daemon_set in list(&problem["daemonSets"]) {
            let daemon_set = serde_json::from_value(daemon_set.clone()).expect("a DaemonSet");
            world.snapshot.daemon_sets.push(Arc::new(DaemonSet::from_api(&daemon_set)));
        }
        world
    }

    /// Equal pods, named and numbered as upstream was given them: equal requests are taken in order of age, then of uid.
    fn add_pods(&mut self, group: &Value, node: Option<&str>) {
        let base = group["pod"]["metadata"]["name"].as_str().expect("a name").to_owned();
        for index in 0..group["count"].as_u64().unwrap_or(0) {
            let number = self.groups.len() + 1;
            let mut pod = group["pod"].clone();
            let metadata = &mut pod["metadata"];
            metadata["name"] = json!(format!("{base}-{index}"));
            metadata["uid"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
            if metadata["namespace"].is_null() {
                metadata["namespace"] = json!("default");
            }
            if metadata["creationTimestamp"].is_null() {
                let a_minute_ago = self.snapshot.now.checked_sub(SignedDuration::from_secs(60));
                metadata["creationTimestamp"] = json!(a_minute_ago.expect("an instant").to_string());
            }
            match node {
                Some(node) => {
                    pod["spec"]["nodeName"] = json!(node);
                    if pod["status"]["phase"].is_null() {
                        pod["status"]["phase"] = json!("Running");
                    }
                }
                None => {
                    let waits = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
                    pod["status"] = json!({"phase": "Pending", "conditions": [waits]});
                }
            }
            let pod = Pod::from_api(&serde_json::from_value(pod).expect("a pod"));
            let namespace = pod.name.namespace.as_str();
            let group = if namespace == "default" { base.clone() } else { format!("{namespace}/{base}") };
            self.groups.insert(pod.name.clone(), group);
            self.snapshot.pods.insert(pod.name.clone(), Arc::new(pod));
        }
    }

    fn describe(&self, schedule: &Schedule) -> Value {
        let count = |pods: &mut dyn Iterator<Item = &PodName>| {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            pods.for_each(|pod| *counts.entry(self.groups[pod].as_str()).or_default() += 1);
            json!(counts)
        };
        let existing: BTreeMap<&String, Value> =
            schedule.existing.iter().map(|(node, pods)| (node, count(&mut pods.iter()))).collect();
        let mut claims: Vec<Value> = schedule
            .new_nodes
            .iter()
            .map(|planned| {
                let names: Vec<&str> = planned.instance_types.iter().map(|t| t.name.as_str()).collect();
                let by_name: BTreeSet<&str> = names.iter().copied().collect();
                json!({
                    "nodePool": planned.pool, "pods": count(&mut planned.pods.iter()),
                    "instanceTypes": by_name, "launchOrder": names.iter().take(60).collect::<Vec<_>>(),
                    "requirements": requirements_of(planned), "resources": amounts(&planned.requests),
                    "cheapest": planned.instance_types[0].cheapest_price(&planned.requirements),
                })
            })
            .collect();
        claims.sort_by_key(Value::to_string);
        json!({"unschedulable": count(&mut schedule.unschedulable.keys()), "existing": existing, "newClaims": claims})
    }
}

/// The NodeClaim's requirements as text, without instance types, and without values that were made up for custom labels.
fn requirements_of(planned: &PlannedNode) -> Vec<String> {
    let claim = planned.to_node_claim();
    let mut texts = Vec::new();
    for requirement in &claim.spec.requirements {
        let min_values = requirement.min_values.map(|count| format!(" minValues {count}")).unwrap_or_default();
        let is_type = requirement.key == "node.kubernetes.io/instance-type";
        let values = Some(requirement.values.join(" ")).filter(|values| !values.is_empty());
        let values = values.map(|values| format!(" [{values}]")).unwrap_or_default();
        match is_type {
            true if min_values.is_empty() => {}
            true => texts.push(format!("{}{min_values}", requirement.key)),
            false => texts.push(format!("{} {}{values}{min_values}", requirement.key, requirement.operator)),
        }
    }
    texts.sort();
    texts
}

fn amounts(resources: &Resources) -> Value {
    let amounts = resources.iter().filter(|(_, quantity)| !quantity.is_zero());
    let amounts: BTreeMap<&str, f64> =
        amounts.map(|(name, quantity)| (name, (quantity.nanos() as f64 / 1e3).round() / 1e6)).collect();
    // Whole numbers as the recorded answers have them.
    let number = |amount: f64| if amount.fract() == 0.0 { json!(amount as i64) } else { json!(amount) };
    amounts
        .into_iter()
        .map(|(name, amount)| (name.to_owned(), number(amount)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn settings(problem: &Value) -> Settings {
    let given = &problem["settings"];
    let mut settings = Settings::default();
    if given["preferencePolicy"] == "Ignore" {
        settings.preference_policy = PreferencePolicy::Ignore;
    }
    if given["minValuesPolicy"] == "BestEffort" {
        settings.min_values_policy = MinValuesPolicy::BestEffort;
    }
    settings
}

fn instance_types(problem: &Value, catalogue: &Value) -> Vec<InstanceType> {
    let matches = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    };
    let wanted: Vec<&str> = list(&problem["instanceTypes"]).filter_map(Value::as_str).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|pattern| matches(pattern, name));
    let mut types: Vec<InstanceType> =
        list(&catalogue["instanceTypes"]).map(instance_type).filter(|t| is_wanted(&t.name)).collect();
    for change in list(&problem["offerings"]) {
        let is = |field: &str, value: &str| change[field].as_str().is_none_or(|wanted| matches(wanted, value));
        let offerings = types.iter_mut().filter(|t| is("instanceType", &t.name)).flat_map(|t| &mut t.offerings);
        for offering in offerings.filter(|o| is("zone", &o.zone) && is("capacityType", o.capacity_type.as_str())) {
            offering.available = change["available"].as_bool().unwrap_or(offering.available);
            offering.price = change["price"].as_f64().unwrap_or(offering.price);
        }
    }
    types
}

fn instance_type(record: &Value) -> InstanceType {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let resources = |value: &Value| -> Resources {
        let entries = value.as_object().into_iter().flatten();
        entries.map(|(name, amount)| (name.clone(), text(amount).parse::<Quantity>().expect("a quantity"))).collect()
    };
    let requirement = |(key, values): (&String, &Value)| match list(values).map(text).collect::<Vec<_>>() {
        values if values.is_empty() => Requirement::does_not_exist(key),
        values => Requirement::new(key, Operator::In, values),
    };
    let offering = |offering: &Value| Offering {
        requirements: [
            ("topology.kubernetes.io/zone", "zone"),
            ("topology.k8s.aws/zone-id", "zoneId"),
            ("karpenter.sh/capacity-type", "capacityType"),
        ]
        .into_iter()
        .map(|(key, field)| Requirement::equals(key, text(&offering[field])))
        .chain(
            ["id", "type", "interruptible"]
                .map(|what| Requirement::does_not_exist(&format!("karpenter.k8s.aws/capacity-reservation-{what}"))),
        )
        .collect(),
        zone: text(&offering["zone"]),
        capacity_type: CapacityType::from_label(&text(&offering["capacityType"])).expect("a market"),
        price: offering["price"].as_f64().expect("a price"),
        available: offering["available"] != json!(false),
        reservation: None,
    };
    InstanceType {
        name: text(&record["name"]),
        requirements: record["requirements"].as_object().into_iter().flatten().map(requirement).collect(),
        offerings: list(&record["offerings"]).map(offering).collect(),
        capacity: resources(&record["capacity"]),
        overhead: Overhead {
            kube_reserved: resources(&record["overhead"]["kubeReserved"]),
            system_reserved: resources(&record["overhead"]["systemReserved"]),
            eviction_threshold: resources(&record["overhead"]["evictionThreshold"]),
        },
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
