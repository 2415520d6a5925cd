//! Golden schedules from text scenarios, what must hold of every one of them, and proof that the checker can fail.

mod common;

use common::{after_launch, catalog, check_scenarios, pool_spec, render, world};
use controller_core::check::{self, Rule};
use controller_core::requirement::Requirement;
use controller_core::scheduling::{PlannedNode, Schedule, Unschedulable, schedule};
use controller_core::settings::Settings;
use controller_core::snapshot::builder::World;
use controller_core::snapshot::{Pod, PodName, Pool, Snapshot};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn settings() -> Settings {
    Settings::default()
}

#[test]
fn scenarios_give_the_golden_schedules_and_end_at_a_fixed_point() {
    check_scenarios("scheduling", |name, world| {
        let snapshot = &world.snapshot;
        let first = schedule(snapshot, &settings());
        assert_eq!(check::schedule(snapshot, &settings(), &first), [], "{name}");
        if !name.starts_with("in_several_passes") {
            assert_fixed_point(name, snapshot, &first);
        }
        assert_order_does_not_matter(name, snapshot, &first);
        render(&first)
    });
}

/// Once what was planned is on its way, there is nothing more to launch: the pods fit what is coming.
fn assert_fixed_point(name: &str, snapshot: &Snapshot, first: &Schedule) {
    let later = after_launch(snapshot, first);
    let second = schedule(&later, &settings());
    assert!(second.new_nodes.is_empty(), "{name} never settles:\n{}", render(&second));
    let placed = |schedule: &Schedule| {
        let planned = schedule.new_nodes.iter().flat_map(|node| &node.pods);
        let mut pods: Vec<_> = planned.chain(schedule.existing.values().flatten()).cloned().collect();
        pods.sort();
        pods
    };
    assert_eq!(placed(first), placed(&second), "{name}");
}

fn assert_order_does_not_matter(name: &str, snapshot: &Snapshot, first: &Schedule) {
    let mut shuffled = snapshot.clone();
    shuffled.daemon_sets.reverse();
    for pool in shuffled.pools.values_mut() {
        let mut types = pool.instance_types.clone();
        types.reverse();
        let middle = types.len().min(7);
        types.rotate_left(middle);
        *pool = Pool::new(Arc::clone(&pool.object), types);
    }
    assert_eq!(render(&schedule(&shuffled, &settings())), render(first), "{name}");
}

fn article_pool() -> Value {
    json!({"requirements": [
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
    ], "limits": {"cpu": "1000"}})
}

fn article_world() -> World {
    world(&json!({
        "daemonSets": {"aws-node": {"cpu": "50m"}, "kube-proxy": {"cpu": "100m"}},
        "pools": {"default": article_pool()},
        "pods": [{"name": "nginx", "count": 10, "cpu": "500m"}],
    }))
}

#[test]
fn ten_pods_of_half_a_core_get_one_node_with_room_for_them_and_the_daemon_sets() {
    let schedule = schedule(&article_world().snapshot, &settings());
    let [node] = schedule.new_nodes.as_slice() else { panic!("one node:\n{}", render(&schedule)) };
    assert_eq!(node.pods.len(), 10);
    assert_eq!(node.requests.to_string(), r#"{"cpu":"5150m","pods":"12"}"#);
    assert_eq!(node.instance_types[0].name, "c5.2xlarge");
    for instance_type in &node.instance_types {
        assert!(instance_type.capacity.get("cpu").value() >= 8, "{}", instance_type.name);
        assert!(instance_type.name.starts_with(['c', 'm', 'r']) && !instance_type.name.starts_with("m1"));
        assert!(!instance_type.name.starts_with("c6g"), "arm64 was not asked for");
    }
    assert!(schedule.unschedulable.is_empty() && schedule.existing.is_empty());
}

#[test]
fn the_node_claim_says_everything_a_launch_needs() {
    let mut world = World::at(common::NOW.parse().unwrap());
    let mut pool = article_pool();
    pool["requirements"].as_array_mut().unwrap().extend([
        json!({"key": "example.com/team", "operator": "Exists"}),
        json!({"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["9"]}),
    ]);
    pool["labels"] = json!({"env": "test"});
    pool["annotations"] = json!({"note": "x"});
    pool["taints"] = json!([{"key": "dedicated", "effect": "NoSchedule"}]);
    pool["startupTaints"] = json!([{"key": "cni", "effect": "NoExecute"}]);
    pool["terminationGracePeriod"] = json!("1h");
    pool["expireAfter"] = json!("24h");
    world.pool("default", pool_spec(&pool), &catalog()).unwrap();
    common::add_pods(&mut world, &json!({"name": "web", "cpu": "5", "tolerations": [{"operator": "Exists"}]}));
    let schedule = schedule(&world.snapshot, &settings());
    let claim = serde_json::to_value(schedule.new_nodes[0].to_node_claim()).unwrap();
    let hash = controller_core::drift_hash::node_pool_hash(&world.snapshot.pools["default"].object);
    assert_eq!(
        claim["metadata"],
        json!({
            "generateName": "default-",
            "labels": {
                "env": "test", "example.com/team": "0", "karpenter.k8s.aws/ec2nodeclass": "default",
                "karpenter.sh/nodepool": "default",
            },
            "annotations": {
                "note": "x", "karpenter.sh/nodepool-hash": hash, "karpenter.sh/nodepool-hash-version": "v3",
                "karpenter.sh/nodeclaim-min-values-relaxed": "false",
            },
            "ownerReferences": [{
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": "uid-of-pool-default",
                "blockOwnerDeletion": true,
            }],
        })
    );
    let requirement =
        |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    assert_eq!(
        claim["spec"],
        json!({
            "taints": [{"key": "dedicated", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "cni", "effect": "NoExecute"}],
            "requirements": [
                requirement("env", "In", &["test"]),
                {"key": "example.com/team", "operator": "Exists"},
                requirement("karpenter.k8s.aws/ec2nodeclass", "In", &["default"]),
                requirement("karpenter.k8s.aws/instance-category", "In", &["c", "m", "r"]),
                requirement("karpenter.k8s.aws/instance-cpu", "Lte", &["8"]),
                requirement("karpenter.k8s.aws/instance-generation", "Gte", &["3"]),
                requirement("karpenter.sh/capacity-type", "In", &["spot"]),
                requirement("karpenter.sh/nodepool", "In", &["default"]),
                requirement("kubernetes.io/arch", "In", &["amd64"]),
                requirement("kubernetes.io/os", "In", &["linux"]),
                requirement("node.kubernetes.io/instance-type", "In",
                    &["c5.2xlarge", "m5.2xlarge", "m6i.2xlarge", "r5.2xlarge", "r6i.2xlarge"]),
            ],
            "resources": {"requests": {"cpu": "5", "pods": "1"}},
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "terminationGracePeriod": "1h0m0s",
            "expireAfter": "24h",
        })
    );
}

#[test]
fn best_effort_min_values_are_lowered_to_what_can_be_had() {
    let mut world = World::at(common::NOW.parse().unwrap());
    let pool = json!({"requirements": [
        {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "c5"], "minValues": 5},
    ]});
    world.pool("default", pool_spec(&pool), &catalog()).unwrap();
    common::add_pods(&mut world, &json!({"name": "web", "cpu": "1"}));
    let strict = schedule(&world.snapshot, &settings());
    assert!(strict.new_nodes.is_empty());
    let best_effort =
        Settings { min_values_policy: controller_core::settings::MinValuesPolicy::BestEffort, ..settings() };
    let relaxed = schedule(&world.snapshot, &best_effort);
    let node = &relaxed.new_nodes[0];
    assert_eq!(node.requirements.get("karpenter.k8s.aws/instance-family").unwrap().min_values, Some(2));
    let claim = node.to_node_claim();
    assert_eq!(claim.metadata.annotations.unwrap()["karpenter.sh/nodeclaim-min-values-relaxed"], "true");
}

#[test]
fn ignored_preferences_have_no_effect() {
    let given = json!({"pools": {"default": {}}, "pods": [{"name": "web", "cpu": "1", "affinity": {"nodeAffinity": {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]}},
    ]}}}]});
    let snapshot = world(&given).snapshot;
    let ignore = Settings { preference_policy: controller_core::settings::PreferencePolicy::Ignore, ..settings() };
    assert!(schedule(&snapshot, &settings()).new_nodes[0].requirements.contains("kubernetes.io/arch"));
    assert!(!schedule(&snapshot, &ignore).new_nodes[0].requirements.contains("kubernetes.io/arch"));
}

#[test]
fn at_most_six_hundred_types_the_cheapest_go_into_a_claim() {
    let mut world = World::at(common::NOW.parse().unwrap());
    world.pool("default", pool_spec(&json!({})), &thousand_types()).unwrap();
    common::add_pods(&mut world, &json!({"name": "web", "cpu": "1"}));
    let node = &schedule(&world.snapshot, &settings()).new_nodes[0];
    assert_eq!(node.instance_types.len(), 600);
    assert_eq!(node.instance_types[0].name, "m100.large");
}

#[test]
fn a_node_whose_cheapest_types_are_too_few_different_ones_is_dropped_with_its_pods() {
    let mut world = World::at(common::NOW.parse().unwrap());
    // All sizes but the dearest are among the 600 cheapest types.
    let sizes = json!({"key": "karpenter.k8s.aws/instance-size", "operator": "Exists", "minValues": 4});
    world.pool("default", pool_spec(&json!({"requirements": [sizes]})), &thousand_types()).unwrap();
    common::add_pods(&mut world, &json!({"name": "web", "cpu": "1"}));
    let schedule = schedule(&world.snapshot, &settings());
    assert!(schedule.new_nodes.is_empty());
    assert_eq!(
        schedule.unschedulable[&World::pod_name("web")].to_string(),
        "pod didn\u{2019}t schedule because NodePool couldn\u{2019}t meet minValues requirements, minValues requirement is \
         not met for label(s) (label(s)=karpenter.k8s.aws/instance-size) (NodePool=default)"
    );
}

fn thousand_types() -> Vec<Arc<controller_core::catalog::InstanceType>> {
    let sizes = [("large", 2), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16)];
    let types = (100..350).flat_map(|generation| {
        sizes.map(|(size, cpu)| {
            let price = cpu as f64 * (0.04 + f64::from(generation) / 10_000.0);
            let name = format!("m{generation}.{size}");
            Arc::new(controller_core::snapshot::builder::instance_type(&name, cpu, cpu * 4, price))
        })
    });
    types.collect()
}

/// Quadratic behaviour or filtering a thousand types anew for each pod would take many seconds. The bound leaves room
/// for slow machines and for the checks of a debug build.
#[test]
#[allow(clippy::disallowed_methods)] // Real time is what this test measures.
fn hundreds_of_pods_over_a_thousand_types_are_placed_quickly() {
    let mut world = World::at(common::NOW.parse().unwrap());
    world.pool("default", pool_spec(&article_pool_of_any_category()), &thousand_types()).unwrap();
    for (name, cpu) in [("aws-node", "50m"), ("kube-proxy", "100m")] {
        let spec = json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]});
        world.daemon_set(name, spec).unwrap();
    }
    common::add_pods(&mut world, &json!({"name": "web", "count": 200, "cpu": "500m", "memory": "256Mi"}));
    let started = Instant::now();
    let schedule = schedule(&world.snapshot, &settings());
    let took = started.elapsed();
    let checked = Instant::now();
    check::schedule(&world.snapshot, &settings(), &schedule);
    println!("200 pods over 1000 types: {took:?}, of it the checker {:?}", checked.elapsed());
    assert_eq!(schedule.new_nodes.iter().map(|node| node.pods.len()).sum::<usize>(), 200);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
#[allow(clippy::disallowed_methods)] // Real time is what this test measures.
fn hundreds_of_pods_that_fit_nowhere_are_refused_quickly() {
    let mut world = World::at(common::NOW.parse().unwrap());
    world.pool("default", pool_spec(&article_pool_of_any_category()), &thousand_types()).unwrap();
    common::add_pods(&mut world, &json!({"name": "huge", "count": 300, "cpu": "500"}));
    let started = Instant::now();
    let schedule = schedule(&world.snapshot, &settings());
    println!("300 pods refused: {:?}", started.elapsed());
    assert_eq!(schedule.unschedulable.len(), 300);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
#[allow(clippy::disallowed_methods)] // Real time is what this test measures.
fn a_thousand_pods_over_three_zones_are_planned_quickly() {
    let mut world = World::at(common::NOW.parse().unwrap());
    let mut pool = article_pool_of_any_category();
    pool["limits"] = Value::Null;
    world.pool("default", pool_spec(&pool), &thousand_types()).unwrap();
    common::add_pods(
        &mut world,
        &json!({"name": "web", "count": 1000, "cpu": "1", "labels": {"app": "web"},
            "topologySpreadConstraints": spread_over(ZONE, 1, "web")}),
    );
    let started = Instant::now();
    let schedule = schedule(&world.snapshot, &settings());
    println!("1000 pods over three zones: {:?}", started.elapsed());
    let mut zones = std::collections::BTreeMap::new();
    for node in &schedule.new_nodes {
        *zones.entry(node.requirements.get(ZONE).unwrap().to_string()).or_insert(0) += node.pods.len();
    }
    assert_eq!(zones.into_values().collect::<Vec<_>>(), [334, 333, 333]);
    assert!(started.elapsed() < Duration::from_secs(10));
}

fn article_pool_of_any_category() -> Value {
    let mut pool = article_pool();
    pool["requirements"].as_array_mut().unwrap().truncate(3);
    pool
}

#[test]
fn the_checker_refuses_answers_that_were_broken_on_purpose() {
    let given = json!({
        "daemonSets": {"aws-node": {"cpu": "50m"}},
        "pools": {"default": {
            "requirements": [{"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"], "minValues": 1}],
            "taints": [{"key": "team", "effect": "NoSchedule"}],
            "limits": {"cpu": "40", "nodes": "3"},
        }},
        "nodes": {"here": {"type": "m5.large", "pool": "default"}, "going": {"type": "m5.large", "pool": "default", "marked": true}},
        "pods": [
            {"name": "running", "on": "here", "cpu": "1"},
            {"name": "small", "cpu": "500m", "hostPort": 80, "tolerations": [{"operator": "Exists"}]},
            {"name": "large", "cpu": "3", "hostPort": 81, "tolerations": [{"operator": "Exists"}],
                "nodeSelector": {"kubernetes.io/arch": "amd64"}},
            {"name": "intolerant", "cpu": "6", "hostPort": 80},
        ],
    });
    let snapshot = world(&given).snapshot;
    let good = schedule(&snapshot, &settings());
    assert_eq!(check::schedule(&snapshot, &settings(), &good), []);
    let small = World::pod_name("small");
    let large = World::pod_name("large");
    let intolerant = World::pod_name("intolerant");
    let broken = |expected: Rule, breaks: &dyn Fn(&mut Schedule)| {
        let mut bad = good.clone();
        breaks(&mut bad);
        let found = check::schedule(&snapshot, &settings(), &bad);
        assert!(found.iter().any(|violation| violation.rule == expected), "{expected:?} not among {found:?}");
    };
    broken(Rule::OnePlacePerPod, &|s| s.new_nodes[0].pods.push(large.clone()));
    broken(Rule::OnePlacePerPod, &|s| s.unschedulable.clear());
    broken(Rule::PodNeedsPlace, &|s| s.new_nodes[0].pods.push(World::pod_name("running")));
    broken(Rule::PodNeedsPlace, &|s| s.new_nodes[0].pods.push(World::pod_name("unknown")));
    broken(Rule::PlaceIsUsable, &|s| drop(s.existing.insert("going".into(), vec![small.clone()])));
    broken(Rule::PlaceIsUsable, &|s| s.new_nodes[0].pool = "other".into());
    broken(Rule::Taints, &|s| s.new_nodes[0].pods.push(intolerant.clone()));
    broken(Rule::Capacity, &|s| s.new_nodes[0].instance_types.push(common::type_named("m5.large")));
    broken(Rule::Capacity, &|s| drop(s.existing.insert("here".into(), vec![large.clone()])));
    broken(Rule::HostPorts, &|s| s.existing.entry("here".into()).or_default().push(intolerant.clone()));
    broken(Rule::InstanceTypes, &|s| s.new_nodes[0].instance_types.push(common::type_named("c5.4xlarge")));
    broken(Rule::LaunchList, &|s| s.new_nodes[0].instance_types.reverse());
    broken(Rule::MinValues, &|s| {
        let wanted = s.new_nodes[0].requirements.get("karpenter.k8s.aws/instance-family").unwrap().clone();
        s.new_nodes[0].requirements.replace(wanted.with_min_values(Some(2)));
    });
    broken(Rule::Labels, &|s| drop(s.new_nodes[0].requirements.remove("kubernetes.io/arch")));
    broken(Rule::Labels, &|s| {
        s.new_nodes[0].requirements.replace(Requirement::exists("karpenter.k8s.aws/instance-family"));
    });
    broken(Rule::Limits, &|s| {
        let more = s.new_nodes[0].clone();
        s.new_nodes.extend([more.clone(), more]);
    });
}

const ZONE: &str = "topology.kubernetes.io/zone";

fn spread_over(key: &str, max_skew: u32, app: &str) -> Value {
    json!([{"maxSkew": max_skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}}}])
}

#[test]
fn the_checker_refuses_pods_that_are_not_spread() {
    let given = json!({
        "pools": {"default": {}},
        "nodes": {"here": {"type": "m5.8xlarge", "pool": "default"}},
        "pods": [
            {"name": "zonal", "count": 6, "cpu": "1", "labels": {"app": "zonal"},
                "topologySpreadConstraints": spread_over(ZONE, 1, "zonal")},
            {"name": "apart", "count": 3, "cpu": "500m", "labels": {"app": "apart"},
                "topologySpreadConstraints": spread_over("kubernetes.io/hostname", 1, "apart")},
        ],
    });
    let snapshot = world(&given).snapshot;
    let good = schedule(&snapshot, &settings());
    assert_eq!(check::schedule(&snapshot, &settings(), &good), []);
    let zones: Vec<_> = good.new_nodes.iter().map(|n| n.requirements.get(ZONE).unwrap().to_string()).collect();
    assert_eq!(zones, [format!("{ZONE} In [us-west-2b]"), format!("{ZONE} In [us-west-2c]")]);
    let named = |pods: &[PodName], prefix: &str| pods.iter().position(|pod| pod.name.starts_with(prefix)).unwrap();
    let broken = |breaks: &dyn Fn(&mut Schedule)| {
        let mut bad = good.clone();
        breaks(&mut bad);
        let found = check::schedule(&snapshot, &settings(), &bad);
        assert!(found.iter().any(|violation| violation.rule == Rule::Spread), "nothing about spread among {found:?}");
    };
    // Both new nodes in one zone.
    broken(&|s| s.new_nodes[1].requirements.replace(Requirement::equals(ZONE, "us-west-2b")));
    // A node that may come up in any zone.
    broken(&|s| drop(s.new_nodes[0].requirements.remove(ZONE)));
    // Three pods in one zone and one in another.
    broken(&|s| {
        let index = named(&s.new_nodes[0].pods, "zonal");
        let moved = s.new_nodes[0].pods.remove(index);
        s.new_nodes[1].pods.push(moved);
    });
    // Two on one host.
    broken(&|s| {
        let index = named(&s.new_nodes[0].pods, "apart");
        let moved = s.new_nodes[0].pods.remove(index);
        s.existing.get_mut("here").unwrap().push(moved);
    });
}

/// Terms of affinity or anti-affinity that must hold.
fn must(key: &str, app: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}},
    ]})
}

#[test]
fn the_checker_refuses_pods_that_are_with_others_they_must_avoid_or_without_those_they_need() {
    let given = json!({
        "pools": {"default": {}},
        "nodes": {"here": {"type": "m5.8xlarge", "pool": "default"}},
        "pods": [
            {"name": "db", "on": "here", "cpu": "1", "labels": {"app": "db"}, "affinity": {"podAntiAffinity": must("kubernetes.io/hostname", "noisy")}},
            {"name": "noisy", "cpu": "1", "labels": {"app": "noisy"}},
            {"name": "web", "cpu": "2", "labels": {"app": "web"}, "affinity": {"podAffinity": must(ZONE, "db")}},
            {"name": "apart", "count": 2, "cpu": "3", "labels": {"app": "apart"}, "affinity": {"podAntiAffinity": must("kubernetes.io/hostname", "apart")}},
        ],
    });
    let snapshot = world(&given).snapshot;
    let good = schedule(&snapshot, &settings());
    assert_eq!(check::schedule(&snapshot, &settings(), &good), []);
    let noisy = World::pod_name("noisy");
    assert!(good.unschedulable.is_empty() && !good.existing["here"].contains(&noisy), "{}", render(&good));
    let broken = |expected: Rule, breaks: &dyn Fn(&mut Schedule)| {
        let mut bad = good.clone();
        breaks(&mut bad);
        let found = check::schedule(&snapshot, &settings(), &bad);
        assert!(found.iter().any(|violation| violation.rule == expected), "{expected:?} not among {found:?}");
    };
    let take = |s: &mut Schedule, name: &PodName| {
        s.new_nodes.iter_mut().for_each(|node| node.pods.retain(|pod| pod != name));
        s.existing.values_mut().for_each(|pods| pods.retain(|pod| pod != name));
    };
    // Next to a pod that runs and does not want it.
    broken(Rule::AntiAffinity, &|s| {
        take(s, &noisy);
        s.existing.get_mut("here").unwrap().push(noisy.clone());
    });
    // Both of those that avoid each other in one place.
    broken(Rule::AntiAffinity, &|s| {
        for name in ["apart-01", "apart-02"].map(World::pod_name) {
            take(s, &name);
            s.new_nodes[0].pods.push(name);
        }
    });
    // In another zone than the pods it has to be near.
    broken(Rule::Affinity, &|s| {
        let web = World::pod_name("web");
        take(s, &web);
        s.new_nodes[0].pods.push(web);
        s.new_nodes[0].requirements.replace(Requirement::equals(ZONE, "us-west-2c"));
    });
}

#[test]
fn the_checker_refuses_volumes_out_of_reach_and_pods_left_out_for_nothing() {
    let given = json!({
        "pools": {"default": {}},
        "nodes": {"here": {"type": "m5.8xlarge", "pool": "default"}},
        "claims": {"data": {"zone": "us-west-2b"}, "logs": {"zone": "us-west-2a"}},
        "attachLimits": {"here": 1},
        "pods": [
            {"name": "stateful", "cpu": "1", "claims": ["data"]},
            {"name": "logger", "cpu": "1", "claims": ["logs"]},
            {"name": "huge", "cpu": "999"},
        ],
    });
    let snapshot = world(&given).snapshot;
    let good = schedule(&snapshot, &settings());
    assert_eq!(check::schedule(&snapshot, &settings(), &good), []);
    assert_eq!(good.existing["here"], [World::pod_name("logger")], "{}", render(&good));
    let broken = |snapshot: &Snapshot, expected: Rule, breaks: &dyn Fn(&mut Schedule)| {
        let mut bad = good.clone();
        breaks(&mut bad);
        let found = check::schedule(snapshot, &settings(), &bad);
        assert!(found.iter().any(|violation| violation.rule == expected), "{expected:?} not among {found:?}");
    };
    broken(&snapshot, Rule::Volumes, &|s| {
        s.new_nodes[0].requirements.replace(Requirement::equals(ZONE, "us-west-2c"));
    });
    broken(&snapshot, Rule::Volumes, &|s| {
        let moved = s.new_nodes.remove(0).pods;
        s.existing.get_mut("here").unwrap().extend(moved);
    });
    broken(&snapshot, Rule::AttachLimit, &|s| {
        let moved = s.new_nodes.remove(0).pods;
        s.existing.get_mut("here").unwrap().extend(moved);
    });
    // The same refusal in a world where the pod is small.
    let mut small = snapshot.clone();
    let huge = World::pod_name("huge");
    let pod = Arc::make_mut(small.pods.get_mut(&huge).unwrap());
    pod.requests.set("cpu", "1".parse().unwrap());
    broken(&small, Rule::NothingLeftOut, &|_| {});
}

#[test]
fn the_checker_refuses_a_reservation_used_twice() {
    let given = json!({
        "pools": {"default": {}},
        "reservations": {"cr-1": {"type": "m5.xlarge", "zone": "us-west-2a", "capacity": 1}},
        "pods": [{"name": "web", "cpu": "3"}],
    });
    let snapshot = world(&given).snapshot;
    let good = schedule(&snapshot, &settings());
    assert_eq!(check::schedule(&snapshot, &settings(), &good), []);
    let ids = "karpenter.k8s.aws/capacity-reservation-id";
    assert_eq!(good.new_nodes[0].requirements.get(ids).unwrap().single_value(), Some("cr-1"), "{}", render(&good));
    let mut bad = good.clone();
    bad.new_nodes.push(good.new_nodes[0].clone());
    let found = check::schedule(&snapshot, &settings(), &bad);
    assert!(found.iter().any(|violation| violation.rule == Rule::Reservations), "{found:?}");
}

#[test]
fn reservations_are_not_used_while_their_feature_gate_is_closed() {
    let only = json!({"karpenter.sh/capacity-type": "reserved"});
    let given = json!({
        "pools": {"default": {}},
        "reservations": {"cr-1": {"type": "r6i.8xlarge", "zone": "us-west-2a", "capacity": 9}},
        "pods": [{"name": "any", "cpu": "3"}, {"name": "reserved-only", "cpu": "3", "nodeSelector": only}],
    });
    let snapshot = world(&given).snapshot;
    let capacity_types = |node: &PlannedNode| {
        let requirements = node.to_node_claim().spec.requirements;
        requirements.into_iter().find(|r| r.key == "karpenter.sh/capacity-type").expect("claims say").values
    };
    let open = schedule(&snapshot, &settings());
    assert!(open.unschedulable.is_empty(), "{}", render(&open));
    assert_eq!(open.new_nodes.iter().map(capacity_types).collect::<Vec<_>>(), [["reserved"]]);

    let closed = Settings { reserved_capacity: false, ..settings() };
    let schedule = schedule(&snapshot, &closed);
    assert_eq!(check::schedule(&snapshot, &closed, &schedule), []);
    let [node] = schedule.new_nodes.as_slice() else { panic!("one node:\n{}", render(&schedule)) };
    assert_eq!(node.pods, [PodName::new("default", "any")]);
    assert_eq!(capacity_types(node), ["on-demand", "spot"]);
    assert!(!node.requirements.contains("karpenter.k8s.aws/capacity-reservation-id"));
    assert_eq!(
        node.instance_types[0].name, "c6g.xlarge",
        "the cheapest with three cores, not the one that is paid for"
    );
    let refused: Vec<String> = schedule.unschedulable.keys().map(ToString::to_string).collect();
    assert_eq!(refused, ["default/reserved-only"]);
}

#[test]
fn pods_that_no_pool_can_ever_take_change_nothing_for_the_others() {
    let zone = "topology.kubernetes.io/zone";
    let spread = json!([{"maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}}}]);
    let apart = |name: &str| {
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}]}})
    };
    let others = [
        json!({"name": "web", "count": 30, "cpu": "700m"}),
        json!({"name": "spread", "count": 9, "cpu": 2, "labels": {"app": "spread"}, "topologySpreadConstraints": spread}),
        json!({"name": "apart", "count": 4, "cpu": "300m", "labels": {"app": "apart"}, "affinity": apart("apart")}),
    ];
    // Larger than the others, so that each is tried before them, and of every kind of hopelessness.
    let hopeless = [
        json!({"name": "too-big", "count": 50, "cpu": 5000}),
        json!({"name": "no-such-label", "count": 50, "cpu": 20, "nodeSelector": {"example.com/none": "x"}}),
        json!({"name": "no-such-zone", "count": 50, "cpu": 20, "nodeSelector": {zone: "mars-1a"}}),
        json!({"name": "contradiction", "count": 50, "cpu": 20, "nodeSelector": {"example.com/team": "red"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "example.com/team", "operator": "DoesNotExist"}]}]}}}}),
        json!({"name": "near-nobody", "count": 50, "cpu": 20, "affinity": {"podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": zone, "labelSelector": {"matchLabels": {"app": "nobody"}}}]}}}),
    ];
    let plan =
        |pods: &[Value]| schedule(&world(&json!({"pools": {"default": {}}, "pods": pods})).snapshot, &settings());
    let (alone, together) = (plan(&others), plan(&[&hopeless[..], &others[..]].concat()));
    assert!(alone.unschedulable.is_empty(), "{}", render(&alone));
    assert_eq!(together.unschedulable.len(), 250);
    let rest = Schedule { unschedulable: alone.unschedulable.clone(), ..together.clone() };
    assert_eq!(render(&rest), render(&alone));
}

#[test]
fn a_refusal_by_the_pods_own_wish_is_not_told_and_others_are() {
    let given = json!({"pools": {"default": {}}, "pods": [
        {"name": "elsewhere", "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}]}}}},
        {"name": "huge", "cpu": "1000"},
    ]});
    let schedule = schedule(&world(&given).snapshot, &settings());
    assert!(!schedule.unschedulable[&World::pod_name("elsewhere")].is_told());
    assert!(schedule.unschedulable[&World::pod_name("huge")].is_told());
    assert!(matches!(schedule.unschedulable[&World::pod_name("huge")], Unschedulable::NoPoolFits(_)));
}

mod random_worlds {
    //! Worlds nobody thought of: the checker inside [`schedule`] reads every answer.

    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn requirements() -> impl Strategy<Value = Value> {
        let families = proptest::sample::subsequence(vec!["c5", "c6g", "m5", "r5"], 1..=4).prop_map(
            |families| json!({"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": families}),
        );
        let smaller_than = (3i64..40).prop_map(
            |cpu| json!({"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": [cpu.to_string()]}),
        );
        let team = Just(json!({"key": "team", "operator": "Exists"}));
        let any = prop_oneof![families, smaller_than, team];
        proptest::collection::vec(any, 0..=3).prop_map(Value::from)
    }

    fn pool() -> impl Strategy<Value = Value> {
        let limits = prop_oneof![
            Just(Value::Null),
            (1u32..80).prop_map(|cpu| json!({"cpu": cpu})),
            (0u32..4).prop_map(|nodes| json!({"nodes": nodes})),
        ];
        let taints = prop_oneof![
            3 => Just(Value::Null),
            1 => Just(json!([{"key": "dedicated", "effect": "NoSchedule"}])),
            1 => Just(json!([{"key": "costly", "effect": "PreferNoSchedule"}])),
        ];
        (requirements(), limits, taints, 1i32..4).prop_map(|(requirements, limits, taints, weight)| {
            json!({"requirements": requirements, "limits": limits, "taints": taints, "weight": weight})
        })
    }

    fn pod() -> impl Strategy<Value = Value> {
        let selector = prop_oneof![
            3 => Just(Value::Null),
            1 => Just(json!({"kubernetes.io/arch": "arm64"})),
            1 => Just(json!({"team": "a"})),
            1 => Just(json!({"topology.kubernetes.io/zone": "us-west-2b"})),
        ];
        let tolerations = prop_oneof![Just(Value::Null), Just(json!([{"key": "dedicated", "operator": "Exists"}]))];
        let port = prop_oneof![4 => Just(Value::Null), 1 => Just(json!(80))];
        let constraints = proptest::collection::vec(constraint(), 0..=2);
        let app = proptest::sample::select(vec!["web", "api"]);
        (100u32..9000, selector, tolerations, port, constraints, app, affinity()).prop_map(
            |(cpu, selector, tolerations, port, constraints, app, affinity)| {
                json!({"affinity": affinity, "cpu": format!("{cpu}m"), "nodeSelector": selector, "tolerations": tolerations, "hostPort": port,
                    "labels": {"app": app}, "topologySpreadConstraints": constraints})
            },
        )
    }

    /// Nearness to pods or distance from them, required or only preferred.
    fn affinity() -> impl Strategy<Value = Value> {
        let one = (
            proptest::sample::select(vec!["podAffinity", "podAntiAffinity"]),
            proptest::sample::select(vec![ZONE, "kubernetes.io/hostname", "karpenter.sh/capacity-type"]),
            proptest::sample::select(vec!["web", "api"]),
            any::<bool>(),
        );
        let one = one.prop_map(|(kind, key, app, is_required)| {
            let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
            match is_required {
                true => json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}),
                false => json!({kind: {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": term}]}}),
            }
        });
        prop_oneof![2 => Just(Value::Null), 1 => one]
    }

    fn constraint() -> impl Strategy<Value = Value> {
        (
            proptest::sample::select(vec![ZONE, "kubernetes.io/hostname", "karpenter.sh/capacity-type", "team"]),
            1u32..4,
            proptest::sample::select(vec!["DoNotSchedule", "ScheduleAnyway"]),
            proptest::sample::select(vec!["web", "api"]),
            proptest::option::of(1u32..5),
            proptest::sample::select(vec!["Honor", "Ignore"]),
            proptest::sample::select(vec!["Honor", "Ignore"]),
        )
            .prop_map(|(key, skew, when, app, min_domains, affinity, taints)| {
                let min_domains = min_domains.filter(|_| when == "DoNotSchedule");
                json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "minDomains": min_domains,
                    "labelSelector": {"matchLabels": {"app": app}},
                    "nodeAffinityPolicy": affinity, "nodeTaintsPolicy": taints})
            })
    }

    /// Pods per zone, on nodes that exist and on planned ones.
    fn by_zone(snapshot: &Snapshot, schedule: &Schedule) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (node, pods) in &schedule.existing {
            *counts.entry(snapshot.nodes[node].labels()[ZONE].clone()).or_default() += pods.len();
        }
        for planned in &schedule.new_nodes {
            let zone = planned.requirements.get(ZONE).and_then(Requirement::single_value).expect("one zone");
            *counts.entry(zone.to_owned()).or_default() += planned.pods.len();
        }
        counts
    }

    /// The same pods created in another order: each gets the age and the uid of another.
    fn with_ages_rotated(snapshot: &Snapshot, by: usize) -> Snapshot {
        let mut ages: Vec<_> = snapshot.pods.values().map(|pod| (pod.created, pod.uid.clone())).collect();
        let by = by % ages.len();
        ages.rotate_left(by);
        let mut rotated = snapshot.clone();
        for (pod, (created, uid)) in rotated.pods.values_mut().zip(ages) {
            *pod = Arc::new(Pod { created, uid, ..(**pod).clone() });
        }
        rotated
    }

    fn node() -> impl Strategy<Value = Value> {
        (proptest::sample::select(vec!["m5.large", "c6g.2xlarge", "r5.xlarge"]), any::<bool>(), any::<bool>())
            .prop_map(|(name, coming, marked)| json!({"type": name, "pool": "pool-0", "coming": coming, "marked": marked && !coming}))
    }

    fn numbered(prefix: &str, items: Vec<Value>) -> Value {
        items
            .into_iter()
            .enumerate()
            .map(|(index, item)| (format!("{prefix}-{index}"), item))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_schedule_passes_the_checker_whatever_the_order_of_input(
            pools in proptest::collection::vec(pool(), 0..=3),
            nodes in proptest::collection::vec(node(), 0..=3),
            pods in proptest::collection::vec(pod(), 1..=15),
        ) {
            let pods: Vec<Value> = pods.into_iter().enumerate().map(|(index, mut pod)| {
                pod["name"] = json!(format!("pod-{index:02}"));
                pod
            }).collect();
            let given = json!({
                "daemonSets": {"aws-node": {"cpu": "50m"}, "kube-proxy": {"cpu": "100m"}},
                "pools": numbered("pool", pools), "nodes": numbered("node", nodes), "pods": pods,
            });
            let snapshot = world(&given).snapshot;
            let schedule = schedule(&snapshot, &settings());
            prop_assert_eq!(check::schedule(&snapshot, &settings(), &schedule), []);
            assert_order_does_not_matter("a random world", &snapshot, &schedule);
        }

        #[test]
        fn the_skew_is_kept_whatever_the_size_of_pods(
            sizes in proptest::collection::vec(100u32..6000, 1..=20),
            max_skew in 1u32..4,
            zones in proptest::sample::subsequence(vec!["us-west-2a", "us-west-2b", "us-west-2c"], 1..=3),
            nodes in proptest::collection::vec(proptest::sample::select(vec!["us-west-2a", "us-west-2b", "us-west-2c"]), 0..=4),
        ) {
            let nodes = nodes.iter().map(|zone| json!({"type": "m5.xlarge", "pool": "pool-0", "labels": {ZONE: zone}}));
            let pods: Vec<Value> = sizes.iter().enumerate().map(|(index, cpu)| {
                json!({"name": format!("pod-{index:02}"), "cpu": format!("{cpu}m"), "labels": {"app": "web"},
                    "topologySpreadConstraints": spread_over(ZONE, max_skew, "web"),
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}]}}}})
            }).collect();
            let given = json!({"pools": {"pool-0": {}}, "nodes": numbered("node", nodes.collect()), "pods": pods});
            let snapshot = world(&given).snapshot;
            let first = schedule(&snapshot, &settings());
            prop_assert!(first.unschedulable.is_empty(), "{}", render(&first));
            let counts = by_zone(&snapshot, &first);
            let count = |zone: &&str| counts.get(*zone).copied().unwrap_or(0);
            let (least, most) = (zones.iter().map(count).min().unwrap(), zones.iter().map(count).max().unwrap());
            prop_assert_eq!(zones.iter().map(count).sum::<usize>(), sizes.len());
            prop_assert!(most - least <= max_skew as usize, "{:?}", counts);
        }

        #[test]
        fn equal_pods_are_counted_alike_in_any_order(count in 1usize..25, max_skew in 1u32..4, rotation in 0usize..25) {
            let given = json!({"pools": {"default": {}}, "nodes": {"here": {"type": "m5.xlarge", "pool": "default"}}, "pods": [
                {"name": "web", "count": count, "cpu": "1", "labels": {"app": "web"},
                    "topologySpreadConstraints": spread_over(ZONE, max_skew, "web")},
            ]});
            let snapshot = world(&given).snapshot;
            let other = with_ages_rotated(&snapshot, rotation);
            let counts = by_zone(&snapshot, &schedule(&snapshot, &settings()));
            prop_assert_eq!(counts.values().sum::<usize>(), count);
            prop_assert_eq!(by_zone(&other, &schedule(&other, &settings())), counts);
        }
    }
}
