//! Scenarios as text: a world in YAML, a line of dashes, and what is decided.

#![allow(dead_code, unreachable_pub)] // Each test program uses its part.

use controller_api::labels;
use controller_core::catalog::{CapacityType, InstanceType, Offering, Reservation};
use controller_core::requirement::{Operator, Requirement};
use controller_core::requirements::Requirements;
use controller_core::scheduling::{PlannedNode, Schedule};
use controller_core::snapshot::builder::{self, World};
use controller_core::snapshot::{
    Namespace, PersistentVolume, PodName, Snapshot, StateNode, Storage, StorageClass, VolumeClaim,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The instant of every scenario, unless it names another.
pub const NOW: &str = "2026-01-01T00:00:00Z";

/// On-demand prices of the `large` size; larger sizes cost in proportion.
const FAMILIES: [(&str, i64, f64); 8] = [
    ("c5", 2, 0.085),
    ("c6g", 2, 0.068),
    ("m1", 4, 0.175),
    ("m5", 4, 0.096),
    ("m6i", 4, 0.096),
    ("r5", 8, 0.126),
    ("r6i", 8, 0.126),
    ("t3", 4, 0.0832),
];
const SIZES: [(&str, i64); 5] = [("large", 2), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16), ("8xlarge", 32)];

/// Forty types of eight families.
pub fn catalog() -> Vec<Arc<InstanceType>> {
    FAMILIES
        .iter()
        .flat_map(|(family, gib_per_cpu, price)| {
            SIZES.iter().map(move |(size, cpu)| {
                let name = format!("{family}.{size}");
                Arc::new(builder::instance_type(&name, *cpu, cpu * gib_per_cpu, price * (*cpu as f64) / 2.0))
            })
        })
        .collect()
}

pub fn type_named(name: &str) -> Arc<InstanceType> {
    catalog().into_iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no instance type {name} in the catalog"))
}

/// A NodePool's spec around the fields that matter.
pub fn pool_spec(fields: &Value) -> Value {
    let field = |name: &str| fields[name].clone();
    let mut template = json!({"spec": {
        "requirements": if fields["requirements"].is_null() { json!([]) } else { field("requirements") },
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    }});
    for name in ["taints", "startupTaints", "expireAfter", "terminationGracePeriod"] {
        if !fields[name].is_null() {
            template["spec"][name] = field(name);
        }
    }
    template["metadata"] = json!({"labels": fields["labels"], "annotations": fields["annotations"]});
    let mut spec = json!({"template": template});
    for name in ["limits", "weight", "disruption", "replicas"] {
        if !fields[name].is_null() {
            spec[name] = field(name);
        }
    }
    spec
}

/// Builds the world that a scenario's YAML describes.
pub fn world(given: &Value) -> World {
    let now: Timestamp = given["now"].as_str().unwrap_or(NOW).parse().expect("now is a time");
    let mut world = World::at(now);
    let exhausted: Vec<&str> = given["exhausted"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let types: Vec<Arc<InstanceType>> = catalog().into_iter().map(|t| exhaust(t, &exhausted)).collect();
    let types: Vec<Arc<InstanceType>> = types.into_iter().map(|t| reserve(t, &given["reservations"])).collect();
    for (name, requests) in entries(&given["daemonSets"]) {
        let mut spec = json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": requests["cpu"]}}}]});
        for field in ["tolerations", "nodeSelector", "affinity"] {
            spec[field] = requests[field].clone();
        }
        world.daemon_set(&name, spec).expect("a DaemonSet");
    }
    for (name, fields) in entries(&given["pools"]) {
        world.pool(&name, pool_spec(&fields), &types).unwrap_or_else(|error| panic!("pool {name}: {error}"));
        if fields["ready"] == json!(false) {
            let pool = &world.snapshot.pools[&name];
            let mut object = (*pool.object).clone();
            object.status = None;
            let pool = controller_core::snapshot::Pool::new(Arc::new(object), types.clone());
            world.snapshot.pools.insert(name, pool);
        }
    }
    for (name, fields) in entries(&given["nodes"]) {
        let state = node(&name, &fields, now);
        world.state_node(state);
    }
    for pod in given["pods"].as_array().into_iter().flatten() {
        add_pods(&mut world, pod);
    }
    add_storage(&mut world, given);
    for (name, labels) in entries(&given["namespaces"]) {
        let labels = serde_json::from_value(labels).expect("labels");
        world.snapshot.namespaces.insert(name, Namespace { labels });
    }
    world
}

/// Claims by name: bound to a volume in `zone`, or of a class whose volumes are made in one of `classZones`, or of one that
/// makes them anywhere; `attachLimits`: how many volumes a node takes.
fn add_storage(world: &mut World, given: &Value) {
    let mut storage = Storage::default();
    let zones = |zones: &Value| -> Vec<Requirements> {
        let zones = zones.as_array().into_iter().flatten().filter_map(Value::as_str);
        zones.map(|zone| Requirements::new().with(Requirement::equals(ZONE, zone))).collect()
    };
    for (name, fields) in entries(&given["claims"]) {
        let mut claim = VolumeClaim { class: Some(format!("class-of-{name}")), ..VolumeClaim::default() };
        let driver = "ebs.csi.aws.com".to_owned();
        let class =
            StorageClass { driver: driver.clone(), is_immediate: false, alternatives: zones(&fields["classZones"]) };
        storage.classes.insert(format!("class-of-{name}"), class);
        if fields["zone"].is_string() {
            claim.volume = Some(format!("volume-of-{name}"));
            claim.is_bind_completed = true;
            let alternatives = zones(&json!([fields["zone"]]));
            let volume = PersistentVolume { driver: Some(driver), alternatives, ..PersistentVolume::default() };
            storage.volumes.insert(format!("volume-of-{name}"), volume);
        }
        claim.is_lost = fields["lost"] == json!(true);
        storage.claims.insert(PodName::new("default", name), claim);
    }
    for (node, limit) in entries(&given["attachLimits"]) {
        let limit = limit.as_u64().expect("a number") as usize;
        storage.attach_limits.insert(node, BTreeMap::from([("ebs.csi.aws.com".to_owned(), limit)]));
    }
    world.snapshot.storage = Some(Arc::new(storage));
}

/// Adds reservations by id, each of a `type` in a `zone` with a `capacity`.
fn reserve(instance_type: Arc<InstanceType>, reservations: &Value) -> Arc<InstanceType> {
    let mut changed = (*instance_type).clone();
    for (id, fields) in entries(reservations) {
        if fields["type"] != json!(changed.name) {
            continue;
        }
        let zone = fields["zone"].as_str().expect("a zone").to_owned();
        let given = [
            (ZONE, zone.as_str()),
            (labels::CAPACITY_TYPE_LABEL, "reserved"),
            (labels::CAPACITY_RESERVATION_ID_LABEL, &id),
        ];
        let requirements = given.iter().map(|(key, value)| Requirement::equals(key, *value)).collect();
        let mut markets = changed.requirements.get_or_any(labels::CAPACITY_TYPE_LABEL).values().clone();
        markets.insert("reserved".to_owned());
        changed.requirements.replace(Requirement::new(labels::CAPACITY_TYPE_LABEL, Operator::In, markets));
        changed.requirements.replace(Requirement::equals(labels::CAPACITY_RESERVATION_ID_LABEL, id.as_str()));
        let capacity = fields["capacity"].as_u64().expect("a number") as u32;
        changed.offerings.push(Offering {
            requirements,
            zone,
            capacity_type: CapacityType::Reserved,
            price: 0.000_000_01,
            available: capacity > 0,
            reservation: Some(Reservation { id, capacity }),
        });
    }
    Arc::new(changed)
}

const ZONE: &str = "topology.kubernetes.io/zone";

fn entries(map: &Value) -> Vec<(String, Value)> {
    map.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Marks offerings unavailable that match one of `type/zone/market`, where `*` matches all.
fn exhaust(instance_type: Arc<InstanceType>, patterns: &[&str]) -> Arc<InstanceType> {
    let mut changed = (*instance_type).clone();
    for offering in &mut changed.offerings {
        let actual = [changed.name.as_str(), offering.zone.as_str(), offering.capacity_type.as_str()];
        let matches =
            |pattern: &&&str| pattern.split('/').zip(actual).all(|(wanted, actual)| wanted == "*" || wanted == actual);
        offering.available = !patterns.iter().any(|pattern| matches(&pattern));
    }
    Arc::new(changed)
}

/// A node from its fields: `pool` (absent: not managed), `type`, `market`, `coming`, `taints`, `labels`, `marked`,
/// `nominated`, `consolidatable`, `initialized`, `annotations`, `ready`.
pub fn node(name: &str, fields: &Value, now: Timestamp) -> StateNode {
    let instance_type = type_named(fields["type"].as_str().expect("a node has a type"));
    let market = CapacityType::from_label(fields["market"].as_str().unwrap_or("spot")).expect("a market");
    let pool = fields["pool"].as_str().unwrap_or("default");
    let (mut node, mut claim) = builder::node_and_claim(name, pool, &instance_type, market, now);
    for (key, value) in entries(&fields["labels"]) {
        node["metadata"]["labels"][&key] = value.clone();
        claim["metadata"]["labels"][&key] = value;
    }
    node["metadata"]["annotations"] = fields["annotations"].clone();
    node["spec"]["taints"] = fields["taints"].clone();
    let off = |field: &str| fields[field] == json!(false);
    if off("initialized") {
        node["metadata"]["labels"].as_object_mut().expect("labels").remove("karpenter.sh/initialized");
    }
    if off("ready") {
        node["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    }
    if off("consolidatable") {
        claim["status"]["conditions"].as_array_mut().expect("conditions").retain(|c| c["type"] != "Consolidatable");
    }
    let managed = fields["pool"].as_str().is_some();
    let claim = managed.then(|| Arc::new(serde_json::from_value(claim).expect("a NodeClaim")));
    let node = (fields["coming"] != json!(true)).then(|| Arc::new(serde_json::from_value(node).expect("a Node")));
    let nominated = fields["nominated"].as_str().map(|until| until.parse().expect("a time"));
    StateNode::new(node, claim).nominated(nominated).marked(fields["marked"] == json!(true))
}

/// Adds `count` pods from fields: `name`, `cpu`, `memory`, `on` (a node), `phase`, and anything of a pod's spec or metadata.
pub fn add_pods(world: &mut World, fields: &Value) {
    let count = fields["count"].as_u64().unwrap_or(1);
    let base = fields["name"].as_str().expect("a pod has a name");
    for index in 1..=count {
        let name = if count == 1 { base.to_owned() } else { format!("{base}-{index:02}") };
        let mut requests = json!({});
        for resource in ["cpu", "memory", "nvidia.com/gpu"] {
            if !fields[resource].is_null() {
                requests[resource] = fields[resource].clone();
            }
        }
        let ports = fields["hostPort"].as_i64().map(|port| json!([{"containerPort": port, "hostPort": port}]));
        let mut spec = json!({"containers": [{"name": "main", "resources": {"requests": requests}, "ports": ports}]});
        for field in
            ["nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "priority", "resourceClaims"]
        {
            spec[field] = fields[field].clone();
        }
        let claims = fields["claims"].as_array().into_iter().flatten();
        let volumes = claims.map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
        spec["volumes"] = volumes.collect::<Vec<_>>().into();
        for field in ["initContainers", "overhead"] {
            spec[field] = fields[field].clone();
        }
        let metadata = json!({"labels": fields["labels"], "annotations": fields["annotations"],
            "namespace": fields["namespace"], "deletionTimestamp": fields["deletionTimestamp"],
            "ownerReferences": fields["ownerReferences"]});
        match fields["on"].as_str() {
            Some(node) if !fields["phase"].is_null() => {
                spec["nodeName"] = node.into();
                world.pod(&name, metadata, spec, json!({"phase": fields["phase"]}))
            }
            Some(node) => world.running_pod(&name, node, metadata, spec),
            None => world.pending_pod(&name, metadata, spec),
        }
        .unwrap_or_else(|error| panic!("pod {name}: {error}"));
    }
}

/// A schedule as lines for people.
pub fn render(schedule: &Schedule) -> String {
    let mut lines = Vec::new();
    for planned in &schedule.new_nodes {
        lines.extend(render_planned(planned));
    }
    for (node, pods) in &schedule.existing {
        lines.push(format!("node {node}: {}", names(pods)));
    }
    let mut reasons: BTreeMap<String, Vec<PodName>> = BTreeMap::new();
    for (pod, reason) in &schedule.unschedulable {
        let explanation = reason.explain().map(|text| format!("\n  i.e. {text}")).unwrap_or_default();
        reasons.entry(format!("{reason}{explanation}")).or_default().push(pod.clone());
    }
    for (reason, pods) in reasons {
        lines.push(format!("unschedulable {}: {reason}", names(&pods)));
    }
    for (pool, reason) in &schedule.pools_left_out {
        lines.push(format!("pool {pool}: {reason}"));
    }
    if lines.is_empty() {
        lines.push("nothing to do".to_owned());
    }
    lines.join("\n") + "\n"
}

fn render_planned(planned: &PlannedNode) -> Vec<String> {
    let cheapest = planned.instance_types.first().map_or("none".to_owned(), |t| {
        let price = t.cheapest_price(&planned.requirements).unwrap_or(f64::NAN);
        format!("{} ${price:.4}", t.name)
    });
    vec![
        format!("new node of {}: {}", planned.pool, names(&planned.pods)),
        format!("  requests {}", planned.requests),
        format!("  {} instance types, cheapest {cheapest}", planned.instance_types.len()),
        format!("  {}", planned.requirements),
    ]
}

fn names(pods: &[PodName]) -> String {
    let shown: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    match shown.as_slice() {
        [first, .., last] if shown.len() > 3 => format!("{} pods, {first} to {last}", shown.len()),
        _ => shown.join(", "),
    }
}

/// Runs `decide` on every scenario of a folder and compares with what stands below the dashes. `UPDATE_EXPECT=1` writes
/// it anew.
pub fn check_scenarios(folder: &str, decide: impl Fn(&str, &World) -> String) {
    let folder = PathBuf::from("tests/scenarios").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("the folder exists").map(|f| f.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let mut differences = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a text file");
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let (given, expected) = text.split_once("---\n").unwrap_or_else(|| panic!("{name} has no line of dashes"));
        let given: Value = serde_yaml_ng::from_str(given).unwrap_or_else(|error| panic!("{name}: {error}"));
        let actual = decide(&name, &world(&given));
        if actual != expected {
            if std::env::var_os("UPDATE_EXPECT").is_some() {
                let (story, _) = text.split_once("---\n").expect("seen above");
                std::fs::write(&file, format!("{story}---\n{actual}")).expect("the scenario can be written");
            }
            differences.push(format!("== {name}\n-- expected\n{expected}-- actual\n{actual}"));
        }
    }
    assert!(differences.is_empty(), "scenarios differ (UPDATE_EXPECT=1 accepts):\n{}", differences.join("\n"));
}

/// The world after a cloud launched what was planned: the nodes are coming, the pods still pending.
pub fn after_launch(snapshot: &Snapshot, schedule: &Schedule) -> Snapshot {
    let mut later = snapshot.clone();
    for (index, planned) in schedule.new_nodes.iter().enumerate() {
        let node = builder::launched(planned, &format!("launched-{index}"), snapshot.now).expect("a NodeClaim");
        later.nodes.insert(node.name().to_owned(), node);
    }
    later
}
