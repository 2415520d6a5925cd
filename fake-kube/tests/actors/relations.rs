//! Pods that care about other pods: topology spread, affinity and anti-affinity.

use fake_kube::actors::Options;
use fake_kube::resources;
use serde_json::{Value, json};

use crate::support::{Cluster, merged};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A scheduler over nodes named after their zones.
fn zones(zones: &[&str]) -> Cluster {
    let cluster = Cluster::start(Options { scheduler: true, ..Options::none() });
    for (index, zone) in zones.iter().enumerate() {
        cluster.node(&format!("{zone}-{index}"), json!({"metadata": {"labels": {ZONE: zone}}}));
    }
    cluster
}

fn selector(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

fn app(app: &str, spec: Value) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": spec})
}

fn spread(change: Value) -> Value {
    let constraint = json!({
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector("web"),
    });
    json!({"topologySpreadConstraints": [merged(constraint, change)]})
}

fn affinity(kind: &str, key: &str, of: &str) -> Value {
    let term = json!({"labelSelector": selector(of), "topologyKey": key});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn by_zone(cluster: &Cluster, prefix: &str) -> Vec<(char, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for node in cluster.nodes_of(prefix) {
        *counts.entry(node.chars().next().unwrap_or('-')).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn spread_keeps_the_skew_between_zones() {
    // Zone b could take everything by resources alone.
    let cluster = zones(&["a", "b", "b", "b", "c"]);
    for index in 0..6 {
        cluster.pod(&format!("web-{index}"), app("web", spread(json!({}))));
    }
    cluster.settle().await;
    assert_eq!(by_zone(&cluster, "web-"), [('a', 2), ('b', 2), ('c', 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_full_zone_holds_the_others_back() {
    let cluster = zones(&["a", "b"]);
    cluster.patch_status(&resources::NODES, "a-0", json!({"allocatable": {"cpu": "1"}}));
    for index in 0..4 {
        cluster.pod(&format!("web-{index}"), app("web", spread(json!({}))));
    }
    cluster.settle().await;
    assert_eq!(by_zone(&cluster, "web-"), [('-', 1), ('a', 1), ('b', 2)]);
    let pending = cluster.pods("web-").into_iter().find(|pod| pod["spec"]["nodeName"].is_null()).unwrap();
    assert_eq!(
        cluster.verdict(pending["metadata"]["name"].as_str().unwrap()),
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints. no new \
         claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    );
}

#[tokio::test(start_paused = true)]
async fn nodes_without_the_key_are_no_domain() {
    let cluster = zones(&["a"]);
    cluster.node("none", json!({}));
    cluster.patch(&resources::NODES, "none", json!({"metadata": {"labels": {ZONE: null}}}));
    cluster.patch_status(&resources::NODES, "a-0", json!({"allocatable": {"cpu": "1"}}));
    cluster.settle().await;
    cluster.pod("web-0", app("web", spread(json!({}))));
    cluster.pod("web-1", app("web", spread(json!({}))));
    cluster.settle().await;
    assert_eq!(by_zone(&cluster, "web-"), [('-', 1), ('a', 1)]);
    let verdict = ["web-0", "web-1"].into_iter().find(|pod| cluster.node_of(pod).is_empty()).unwrap();
    assert!(
        cluster
            .verdict(verdict)
            .contains("1 node(s) didn't match pod topology spread constraints (missing required label)"),
        "{}",
        cluster.verdict(verdict)
    );
}

#[tokio::test(start_paused = true)]
async fn min_domains_waits_for_more_zones() {
    let cluster = zones(&["a"]);
    for index in 0..2 {
        cluster.pod(&format!("web-{index}"), app("web", spread(json!({"minDomains": 2}))));
    }
    cluster.settle().await;
    // With fewer than two zones the global minimum is zero: one pod fits under a skew of one.
    assert_eq!(by_zone(&cluster, "web-"), [('-', 1), ('a', 1)]);
    cluster.node("b", json!({"metadata": {"labels": {ZONE: "b"}}}));
    cluster.settle().await;
    assert_eq!(by_zone(&cluster, "web-"), [('a', 1), ('b', 1)]);
}

#[tokio::test(start_paused = true)]
async fn zones_the_pod_cannot_use_do_not_count_unless_the_policy_ignores_that() {
    let cluster = zones(&["a", "b"]);
    for (prefix, policy) in [("honor", "Honor"), ("ignore", "Ignore")] {
        let constraint = json!({"nodeAffinityPolicy": policy, "labelSelector": selector(prefix)});
        let pinned = json!({"nodeSelector": {ZONE: "a"}});
        for index in 0..2 {
            let spec = merged(spread(constraint.clone()), pinned.clone());
            cluster.pod(&format!("{prefix}-{index}"), app(prefix, spec));
        }
    }
    cluster.settle().await;
    assert_eq!(by_zone(&cluster, "honor-"), [('a', 2)]);
    assert_eq!(by_zone(&cluster, "ignore-"), [('-', 1), ('a', 1)]);
}

#[tokio::test(start_paused = true)]
async fn tainted_nodes_count_unless_the_policy_honors_taints() {
    let cluster = zones(&["a"]);
    cluster.node(
        "b",
        json!({"metadata": {"labels": {ZONE: "b"}}, "spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}),
    );
    for (prefix, policy) in [("honor", "Honor"), ("ignore", "Ignore")] {
        let constraint = json!({"nodeTaintsPolicy": policy, "labelSelector": selector(prefix)});
        for index in 0..2 {
            cluster.pod(&format!("{prefix}-{index}"), app(prefix, spread(constraint.clone())));
        }
    }
    cluster.settle().await;
    assert_eq!(by_zone(&cluster, "honor-"), [('a', 2)]);
    assert_eq!(by_zone(&cluster, "ignore-"), [('-', 1), ('a', 1)]);
}

#[tokio::test(start_paused = true)]
async fn match_label_keys_spread_each_version_by_itself() {
    let cluster = zones(&["a", "b"]);
    for version in ["v1", "v2"] {
        for index in 0..2 {
            let mut pod = app("web", spread(json!({"matchLabelKeys": ["version"]})));
            pod["metadata"]["labels"]["version"] = json!(version);
            cluster.pod(&format!("{version}-{index}"), pod);
        }
    }
    cluster.settle().await;
    assert_eq!(by_zone(&cluster, "v1-"), [('a', 1), ('b', 1)]);
    assert_eq!(by_zone(&cluster, "v2-"), [('a', 1), ('b', 1)]);
}

#[tokio::test(start_paused = true)]
async fn soft_spread_ranks_but_never_forbids() {
    let cluster = zones(&["a", "b"]);
    for index in 0..5 {
        cluster.pod(&format!("web-{index}"), app("web", spread(json!({"whenUnsatisfiable": "ScheduleAnyway"}))));
    }
    cluster.settle().await;
    assert_eq!(by_zone(&cluster, "web-"), [('a', 3), ('b', 2)]);
}

#[tokio::test(start_paused = true)]
async fn affinity_follows_and_waits() {
    let cluster = zones(&["a", "b"]);
    cluster.pod("client", app("client", affinity("podAffinity", ZONE, "web")));
    cluster.settle().await;
    assert_eq!(
        cluster.verdict("client"),
        "0/2 nodes are available: 2 node(s) didn't match pod affinity rules. no new claims to deallocate, preemption: 0/2 \
         nodes are available: 2 Preemption is not helpful for scheduling."
    );
    cluster.pod("web", app("web", json!({"nodeSelector": {ZONE: "b"}})));
    cluster.settle().await;
    assert_eq!(cluster.node_of("client"), "b-1");
}

#[tokio::test(start_paused = true)]
async fn the_first_of_a_company_may_start_it() {
    let cluster = zones(&["a", "b"]);
    for index in 0..3 {
        cluster.pod(&format!("web-{index}"), app("web", affinity("podAffinity", ZONE, "web")));
    }
    cluster.settle().await;
    assert_eq!(by_zone(&cluster, "web-").len(), 1);
    assert_eq!(by_zone(&cluster, "web-")[0].1, 3);
}

#[tokio::test(start_paused = true)]
async fn anti_affinity_takes_one_node_each() {
    let cluster = zones(&["a", "b"]);
    for index in 0..3 {
        cluster.pod(&format!("web-{index}"), app("web", affinity("podAntiAffinity", HOSTNAME, "web")));
    }
    cluster.settle().await;
    assert_eq!(by_zone(&cluster, "web-"), [('-', 1), ('a', 1), ('b', 1)]);
    let pending = ["web-0", "web-1", "web-2"].into_iter().find(|pod| cluster.node_of(pod).is_empty()).unwrap();
    assert!(
        cluster
            .verdict(pending)
            .starts_with("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.")
    );
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_avoided_keep_away_too() {
    let cluster = zones(&["a"]);
    cluster.pod("shy", app("shy", affinity("podAntiAffinity", ZONE, "loud")));
    cluster.settle().await;
    cluster.pod("loud", app("loud", json!({})));
    cluster.settle().await;
    assert!(
        cluster
            .verdict("loud")
            .starts_with("0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."),
        "{}",
        cluster.verdict("loud")
    );
}

#[tokio::test(start_paused = true)]
async fn namespace_selectors_follow_the_labels_of_namespaces() {
    let cluster = zones(&["a", "b"]);
    let namespace = |name: &str, team: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}});
    cluster.create(&resources::NAMESPACES, namespace("blue", "blue"));
    cluster.create(&resources::NAMESPACES, namespace("red", "red"));
    for (name, zone) in [("blue", "a"), ("red", "b")] {
        let pod =
            json!({"metadata": {"namespace": name, "labels": {"app": "web"}}, "spec": {"nodeSelector": {ZONE: zone}}});
        cluster.pod("web", pod);
    }
    let mut spec = affinity("podAffinity", ZONE, "web");
    let term = &mut spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    term["namespaceSelector"] = json!({"matchLabels": {"team": "red"}});
    cluster.pod("client", app("client", spec));
    cluster.settle().await;
    assert_eq!(cluster.node_of("client"), "b-1");
}
