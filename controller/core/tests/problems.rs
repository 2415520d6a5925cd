//! Problems as text: what is wrong with one is told with its path, and what was decided is told in words.

mod corpus;

use controller_core::problem::Problem;
use corpus::catalogue;
use expect_test::expect_file;
use serde_json::{Value, json};

fn read(problem: &Value) -> Result<Problem, String> {
    let mut find = |name: &str| match name {
        "catalogue-small" => Ok(catalogue(include_bytes!("data/parity/catalogue-small.json.gz"))),
        "catalogue" => Ok(catalogue(include_bytes!("data/parity/catalogue.json.gz"))),
        other => Err(format!("{other:?} is not known")),
    };
    Problem::read(&problem.to_string(), &mut find).map_err(|error| error.to_string())
}

fn pool(name: &str, spec: Value) -> Value {
    let mut pool = json!({"metadata": {"name": name}, "spec": {"template": {"spec": {"requirements": []}}}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        match field.as_str() {
            "requirements" | "taints" => pool["spec"]["template"]["spec"][field] = value.clone(),
            _ => pool["spec"][field] = value.clone(),
        }
    }
    pool
}

fn pods(name: &str, count: usize, cpu: &str, more: Value) -> Value {
    let memory = more["memory"].as_str().unwrap_or("1Gi");
    let requests = json!({"cpu": cpu, "memory": memory});
    let mut spec = json!({"containers": [{"name": "main", "image": "main", "resources": {"requests": requests}}]});
    for (field, value) in more.as_object().into_iter().flatten().filter(|(field, _)| *field != "memory") {
        spec[field] = value.clone();
    }
    json!({"count": count, "pod": {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}})
}

fn problem(pools: Value, groups: Value) -> Value {
    json!({"id": "a", "now": "2026-06-01T12:00:00Z", "catalogue": "catalogue-small", "nodePools": pools, "pods": groups})
}

#[test]
fn what_is_wrong_with_a_problem_is_told_with_its_path() {
    let good = problem(json!([pool("default", json!({}))]), json!([pods("web", 1, "1", json!({}))]));
    assert!(read(&good).is_ok());
    let changed = |pointer: &str, value: Value| {
        let mut bad = good.clone();
        let (parent, field) = pointer.rsplit_once('/').expect("a path");
        bad.pointer_mut(parent).expect("it is there")[field] = value;
        read(&bad).expect_err(pointer)
    };
    for (pointer, value, expected) in [
        ("/nodepools", json!([]), "nodepools: unknown field `nodepools`, expected one of"),
        (
            "/settings",
            json!({"preferencePolicy": "Sometimes"}),
            "settings.preferencePolicy: \"Sometimes\", and Respect or Ignore is expected",
        ),
        ("/catalogue", json!("elsewhere"), "catalogue: \"elsewhere\" is not known"),
        (
            "/instanceTypes",
            json!(["m5*", "m99.large"]),
            "instanceTypes[1]: no instance type of the catalogue matches \"m99.large\"",
        ),
        ("/pods/0/count", json!(-1), "pods[0].count: invalid value: integer `-1`, expected usize"),
        ("/pods/0/pod/metadata", json!({}), "pods[0].pod.metadata.name: missing, and a name is expected"),
        (
            "/pods/0/pod/spec/containers/0/resources/requests/cpu",
            json!("1 core"),
            "pods[0].pod.spec.containers[main].resources.requests.cpu: \"1 core\" is not a quantity",
        ),
        (
            "/pods/0/pod/spec/containers/0/resources/requests/cpu",
            json!("-1"),
            "pods[0].pod.spec.containers[main].resources.requests.cpu: \"-1\" is negative; a quantity of 0 or more is expected",
        ),
        (
            "/nodePools/0/spec/limits",
            json!({"cpu": "many"}),
            "nodePools[0].spec.limits.cpu: \"many\" is not a quantity",
        ),
        (
            "/nodePools",
            json!([pool("default", json!({})), pool("default", json!({}))]),
            "nodePools[1].metadata.name: there is a NodePool \"default\" already",
        ),
        (
            "/pods",
            json!([pods("web", 1, "1", json!({})), pods("web", 1, "1", json!({}))]),
            "pods[1].pod.metadata.name: there is a group of pods \"web\" already",
        ),
        ("/nodes", json!([{}]), "nodes[0]: neither node nor nodeClaim is given, and one of them is expected"),
        (
            "/nodes",
            json!([claim("other")]),
            "nodes[0] label karpenter.sh/nodepool: NodePool \"other\" is not in nodePools, which has [\"default\"]",
        ),
    ] {
        let error = changed(pointer, value);
        assert!(error.starts_with(expected), "{pointer}:\n  {error}\n  {expected}");
    }
}

/// A node that is coming up, of that pool.
fn claim(pool: &str) -> Value {
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    json!({"nodeClaim": {
        "metadata": {"name": "coming", "labels": {"karpenter.sh/nodepool": pool}},
        "spec": {"requirements": [], "nodeClassRef": class, "resources": {}},
    }})
}

/// A node of half a CPU that is up.
fn node(name: &str, taints: Value) -> Value {
    let amounts = json!({"cpu": "500m", "memory": "4Gi", "pods": "10"});
    json!({"node": {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": taints},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }})
}

/// The node, in a zone, with what runs on it.
fn with_pods(mut node: Value, pods: Value) -> Value {
    node["node"]["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("us-west-2a");
    node["pods"] = pods;
    node
}

fn with_nodes(mut problem: Value, nodes: Value) -> Value {
    problem["nodes"] = nodes;
    problem
}

#[test]
fn where_pods_go_and_why_not_elsewhere_is_told_in_words() {
    let no_spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "minDomains": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]});
    let anti = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}});
    let port = json!({"containers": [{"name": "main", "image": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}]});
    let mut asks = port.clone();
    asks["nodeSelector"] = json!({"topology.kubernetes.io/zone": "us-west-2a"});
    asks["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]}});
    let mut in_other_zone = node("far", json!([]));
    in_other_zone["node"]["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("us-west-2b");
    let taints = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
    let tainted = pool("gpu", json!({"weight": 10, "taints": taints}));
    let limited = pool("small", json!({"limits": {"cpu": "1"}}));
    let small = json!([{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["9"]}]);
    let mut of_all_types = problem(json!([pool("default", json!({}))]), json!([pods("web", 1, "1", json!({}))]));
    of_all_types["catalogue"] = json!("catalogue");
    let of_2_vcpu = json!([{"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["2"]}]);
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "small"}},
    }]});
    let zones = ["us-west-2a", "us-west-2b", "us-west-2c"];
    let three_zones = json!([{"key": "topology.kubernetes.io/zone", "operator": "In", "values": zones}]);
    let stories = [
        (
            "a pod too big for every type",
            problem(json!([pool("default", json!({}))]), json!([pods("huge", 1, "500", json!({}))])),
        ),
        (
            "a pod kept off one pool by a taint and off another by its limit",
            problem(json!([tainted.clone(), limited]), json!([pods("web", 1, "4", json!({}))])),
        ),
        (
            "ten pods to be spread over more zones than there are",
            problem(json!([pool("default", json!({}))]), json!([pods("web", 10, "1", no_spread)])),
        ),
        (
            "pools that come first and give no node: one tainted, one of small types",
            problem(
                json!([
                    tainted,
                    pool("large", json!({"weight": 5, "requirements": of_2_vcpu})),
                    pool("rest", json!({}))
                ]),
                json!([pods("web", 2, "3", json!({"nodeSelector": {"topology.kubernetes.io/zone": "us-west-2a"}}))]),
            ),
        ),
        (
            "why two nodes that exist are no place",
            with_nodes(
                problem(json!([pool("default", json!({}))]), json!([pods("web", 3, "1", json!({}))])),
                json!([
                    node("full", json!([])),
                    node("fenced", json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]))
                ]),
            ),
        ),
        (
            "types beyond the pool's limit, and nodes that exist and will not do for other reasons",
            with_nodes(
                problem(
                    json!([pool("default", json!({"limits": {"cpu": "4"}}))]),
                    json!([pods("web", 1, "100m", asks)]),
                ),
                json!([
                    with_pods(node("crowded", json!([])), json!([pods("apart", 1, "100m", json!({}))])),
                    with_pods(node("taken", json!([])), json!([pods("served", 1, "100m", port.clone())])),
                    in_other_zone,
                ]),
            ),
        ),
        (
            "what is chosen, and types that fail by different rules",
            problem(
                json!([pool("default", json!({"requirements": small}))]),
                json!([
                    pods("web", 3, "1", json!({})),
                    pods("graviton", 2, "8900m", json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}}))
                ]),
            ),
        ),
        (
            "sixty small pods over three zones, and one that needs 64 GB",
            problem(
                json!([pool("default", json!({"requirements": three_zones}))]),
                json!([pods("small", 60, "250m", spread), pods("big", 1, "4", json!({"memory": "64Gi"}))]),
            ),
        ),
        ("a pod that more types would do for than a NodeClaim names", of_all_types),
    ];
    let mut text = String::new();
    for (story, problem) in stories {
        let problem = read(&problem).expect(story);
        text += &format!("# {story}\n{}\n", problem.explain());
    }
    expect_file!["data/explained.txt"].assert_eq(&text);
}
