//! Which node a pod gets, and what it is told while it gets none.

use fake_kube::actors::Options;
use fake_kube::{Calls, FaultRule, Outcome, resources};
use serde_json::{Value, json};

use crate::support::Cluster;

fn scheduler() -> Options {
    Options { scheduler: true, ..Options::none() }
}

fn cpu(amount: &str) -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": amount}}}]}})
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_to_a_node_with_room() {
    let cluster = Cluster::start(scheduler());
    cluster.node("one", json!({}));
    cluster.pod("web", json!({}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("web"), "one");
    assert_eq!(cluster.condition(&resources::PODS, "web", "PodScheduled")["status"], "True");
    assert_eq!(cluster.events("web", "Scheduled"), ["Successfully assigned default/web to one"]);
}

#[tokio::test(start_paused = true)]
async fn without_nodes_the_pod_is_told_so() {
    let cluster = Cluster::start(scheduler());
    cluster.pod("web", json!({}));
    cluster.settle().await;
    assert_eq!(cluster.verdict("web"), "no nodes available to schedule pods");
    assert_eq!(cluster.events("web", "FailedScheduling"), ["no nodes available to schedule pods"]);
}

#[tokio::test(start_paused = true)]
async fn the_verdict_counts_nodes_by_reason_as_kube_scheduler_does() {
    let cluster = Cluster::start(scheduler());
    cluster.node("full", json!({"status": {"allocatable": {"cpu": "2"}}}));
    cluster.pod("filler", cpu("1500m"));
    cluster.settle().await;
    let taint = json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]);
    cluster.node("new-a", json!({"spec": {"taints": taint}}));
    cluster.node("new-b", json!({"spec": {"taints": taint}}));
    cluster.pod("web", json!({}));
    cluster.settle().await;
    assert_eq!(
        cluster.verdict("web"),
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s). no new claims to deallocate, \
         preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not \
         helpful for scheduling."
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_beyond_the_whole_node_rules_preemption_out() {
    let cluster = Cluster::start(scheduler());
    cluster.node("small", json!({}));
    cluster.pod("large", cpu("64"));
    cluster.settle().await;
    assert_eq!(
        cluster.verdict("large"),
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: \
         1 Preemption is not helpful for scheduling."
    );
}

#[tokio::test(start_paused = true)]
async fn one_node_may_lack_several_resources() {
    let cluster = Cluster::start(scheduler());
    cluster.node("small", json!({"status": {"allocatable": {"pods": "0"}}}));
    let requests = json!({"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"});
    let containers = json!([{"name": "main", "image": "app", "resources": {"requests": requests, "limits": {"nvidia.com/gpu": "1"}}}]);
    cluster.pod("large", json!({"spec": {"containers": containers}}));
    cluster.settle().await;
    assert!(
        cluster.verdict("large").starts_with(
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Insufficient nvidia.com/gpu, 1 Too many \
             pods. "
        ),
        "{}",
        cluster.verdict("large")
    );
}

#[tokio::test(start_paused = true)]
async fn a_pending_pod_is_bound_when_a_node_joins() {
    let cluster = Cluster::start(scheduler());
    cluster.pod("web", json!({}));
    cluster.settle().await;
    cluster.node("late", json!({}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("web"), "late");
}

#[tokio::test(start_paused = true)]
async fn a_pending_pod_is_bound_when_a_taint_goes() {
    let cluster = Cluster::start(scheduler());
    cluster.node("new", json!({"spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}}));
    cluster.pod("web", json!({}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("web"), "");
    cluster.patch(&resources::NODES, "new", json!({"spec": {"taints": null}}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("web"), "new");
}

#[tokio::test(start_paused = true)]
async fn a_pending_pod_is_bound_when_another_pod_leaves() {
    let cluster = Cluster::with_kubelet(scheduler());
    cluster.node("one", json!({}));
    cluster.pod("first", cpu("3"));
    cluster.settle().await;
    cluster.pod("second", cpu("3"));
    cluster.settle().await;
    assert_eq!(cluster.node_of("second"), "");
    cluster.delete(&resources::PODS, "first");
    cluster.settle().await;
    assert_eq!(cluster.node_of("second"), "one");
}

#[tokio::test(start_paused = true)]
async fn finished_pods_hold_no_resources() {
    let cluster = Cluster::start(scheduler());
    cluster.node("one", json!({}));
    cluster.pod("batch", cpu("3"));
    cluster.settle().await;
    cluster.patch_status(&resources::PODS, "batch", json!({"phase": "Succeeded"}));
    cluster.pod("web", cpu("3"));
    cluster.settle().await;
    assert_eq!(cluster.node_of("web"), "one");
}

#[tokio::test(start_paused = true)]
async fn node_selector_and_node_affinity_must_both_match() {
    let cluster = Cluster::start(scheduler());
    for (name, zone, cpus) in [("a", "us-west-2a", "8"), ("b", "us-west-2b", "16"), ("c", "us-west-2b", "8")] {
        let labels = json!({"topology.kubernetes.io/zone": zone, "cpus": cpus, "tier": "web"});
        cluster.node(name, json!({"metadata": {"labels": labels}}));
    }
    let expressions = json!([
        {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["us-west-2a"]},
        {"key": "cpus", "operator": "Gt", "values": ["10"]},
    ]);
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    cluster.pod("picky", json!({"spec": {"nodeSelector": {"tier": "web"}, "affinity": affinity}}));
    cluster.pod("impossible", json!({"spec": {"nodeSelector": {"tier": "batch"}, "affinity": affinity}}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("picky"), "b");
    assert_eq!(
        cluster.verdict("impossible"),
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, \
         preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    );
}

#[tokio::test(start_paused = true)]
async fn match_fields_leave_all_other_nodes_out_before_filtering() {
    let cluster = Cluster::start(scheduler());
    cluster.node("one", json!({"status": {"allocatable": {"cpu": "500m"}}}));
    cluster.node("two", json!({}));
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["one"]}]});
    let required = json!({"nodeSelectorTerms": [term]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    cluster.pod("daemon", json!({"spec": {"affinity": affinity}}));
    cluster.settle().await;
    assert_eq!(
        cluster.verdict("daemon"),
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]. no new claims \
         to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
}

#[tokio::test(start_paused = true)]
async fn preferred_node_affinity_ranks() {
    let cluster = Cluster::start(scheduler());
    cluster.node("a", json!({}));
    cluster.node("b", json!({"metadata": {"labels": {"disk": "ssd"}}}));
    let preference = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
    let preferred = json!([{"weight": 10, "preference": preference}]);
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    cluster.pod("web", json!({"spec": {"affinity": affinity}}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("web"), "b");
}

#[tokio::test(start_paused = true)]
async fn cordoned_nodes_take_only_pods_that_tolerate_it() {
    let cluster = Cluster::start(scheduler());
    cluster.node("one", json!({"spec": {"unschedulable": true}}));
    cluster.pod("web", json!({}));
    let toleration = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"});
    cluster.pod("daemon", json!({"spec": {"tolerations": [toleration]}}));
    cluster.settle().await;
    assert!(cluster.verdict("web").starts_with("0/1 nodes are available: 1 node(s) were unschedulable. "));
    assert_eq!(cluster.node_of("daemon"), "one");
}

#[tokio::test(start_paused = true)]
async fn host_ports_are_taken_once_per_node() {
    let cluster = Cluster::start(scheduler());
    cluster.node("one", json!({}));
    let containers = json!([{"name": "main", "image": "app", "ports": [{"containerPort": 80, "hostPort": 8080}]}]);
    cluster.pod("first", json!({"spec": {"containers": containers}}));
    cluster.settle().await;
    cluster.pod("second", json!({"spec": {"containers": containers}}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("first"), "one");
    assert_eq!(
        cluster.verdict("second"),
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. no new claims to \
         deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    );
}

#[tokio::test(start_paused = true)]
async fn pods_spread_to_the_least_allocated_node() {
    let cluster = Cluster::start(scheduler());
    cluster.node("a", json!({}));
    cluster.node("b", json!({}));
    for name in ["web-0", "web-1", "web-2", "web-3"] {
        cluster.pod(name, json!({}));
    }
    cluster.settle().await;
    let mut nodes = cluster.nodes_of("web-");
    nodes.sort();
    assert_eq!(nodes, ["a", "a", "b", "b"]);
}

#[tokio::test(start_paused = true)]
async fn higher_priority_goes_first_when_room_is_short() {
    let cluster = Cluster::start(scheduler());
    for (name, priority) in [("a-low", 0), ("b-high", 1000)] {
        cluster.create(
            &resources::PRIORITY_CLASSES,
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": format!("class-{name}")},
                "value": priority, "preemptionPolicy": "Never"}),
        );
        let mut pod = cpu("3");
        pod["spec"]["priorityClassName"] = json!(format!("class-{name}"));
        pod["spec"]["priority"] = json!(priority);
        pod["spec"]["preemptionPolicy"] = json!("Never");
        cluster.pod(name, pod);
    }
    cluster.settle().await;
    cluster.node("one", json!({}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("b-high"), "one");
    assert!(
        cluster.verdict("a-low").ends_with(" preemption: not eligible due to preemptionPolicy=Never."),
        "{}",
        cluster.verdict("a-low")
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_higher_priority_preempts() {
    let cluster = Cluster::with_kubelet(scheduler());
    cluster.node("one", json!({}));
    cluster.pod("low", cpu("3"));
    cluster.settle().await;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000});
    cluster.create(&resources::PRIORITY_CLASSES, class);
    let mut pod = cpu("3");
    pod["spec"]["priorityClassName"] = json!("high");
    pod["spec"]["priority"] = json!(1000);
    cluster.pod("high", pod);
    cluster.settle().await;
    assert_eq!(cluster.node_of("high"), "one");
    assert!(cluster.find(&resources::PODS, "low").is_none());
    assert_eq!(cluster.events("low", "Preempted").len(), 1);
    let told = cluster.events("high", "FailedScheduling");
    assert_eq!(told, ["0/1 nodes are available: 1 Insufficient cpu."]);
}

#[tokio::test(start_paused = true)]
async fn gated_pods_and_pods_of_other_schedulers_are_left_alone() {
    let cluster = Cluster::start(scheduler());
    cluster.node("one", json!({}));
    cluster.pod("gated", json!({"spec": {"schedulingGates": [{"name": "example.com/wait"}]}}));
    cluster.pod("foreign", json!({"spec": {"schedulerName": "another"}}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("gated"), "");
    assert_eq!(cluster.node_of("foreign"), "");
    cluster.patch(&resources::PODS, "gated", json!({"spec": {"schedulingGates": []}}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("gated"), "one");
}

#[tokio::test(start_paused = true)]
async fn a_verdict_changes_with_the_cluster_but_is_not_repeated() {
    let cluster = Cluster::start(scheduler());
    cluster.pod("large", cpu("64"));
    cluster.settle().await;
    cluster.node("one", json!({}));
    cluster.wait(15).await;
    assert!(cluster.verdict("large").starts_with("0/1 nodes are available: 1 Insufficient cpu."));
    let version = cluster.get(&resources::PODS, "large")["metadata"]["resourceVersion"].clone();
    cluster.wait(86_400).await;
    assert_eq!(cluster.get(&resources::PODS, "large")["metadata"]["resourceVersion"], version);
    assert_eq!(cluster.events("large", "FailedScheduling").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_resource_short_on_one_node_and_absent_on_another_is_counted_together() {
    let cluster = Cluster::start(scheduler());
    cluster.node("full", json!({}));
    cluster.pod("filler", cpu("3"));
    cluster.settle().await;
    cluster.node("tiny", json!({"status": {"allocatable": {"cpu": "1"}}}));
    cluster.pod("web", cpu("2"));
    cluster.settle().await;
    assert_eq!(
        cluster.verdict("web"),
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are available: 1 \
         No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    );
}

#[tokio::test(start_paused = true)]
async fn refused_writes_are_tried_again() {
    let cluster = Cluster::start(scheduler());
    for (verb, subresource) in [("create", "binding"), ("patch", "status")] {
        for (outcome, name) in [(Outcome::Conflict, "web-0"), (Outcome::InternalError, "web-1")] {
            cluster.kube.fault(FaultRule {
                verb: Some(verb.into()),
                subresource: Some(subresource.into()),
                name: Some(name.into()),
                user_agent: Some("default-scheduler".into()),
                calls: Calls::First(2),
                outcome,
                ..FaultRule::default()
            });
        }
    }
    cluster.pod("web-0", json!({}));
    cluster.pod("web-1", json!({}));
    cluster.wait(5).await;
    assert_eq!(cluster.verdict("web-0"), "no nodes available to schedule pods");
    assert_eq!(cluster.verdict("web-1"), "no nodes available to schedule pods");
    cluster.node("one", json!({}));
    cluster.wait(5).await;
    assert_eq!(cluster.nodes_of("web-"), ["one", "one"]);
}

#[tokio::test(start_paused = true)]
async fn five_thousand_pods_fill_hundreds_of_nodes() {
    let cluster = Cluster::start(scheduler());
    for index in 0..5000 {
        cluster.pod(&format!("web-{index}"), cpu("250m"));
    }
    cluster.settle().await;
    for index in 0..300 {
        cluster.node(&format!("node-{index}"), json!({}));
        tokio::task::yield_now().await;
    }
    cluster.wait(20).await;
    // 16 pods of a quarter CPU fill a node of four: 4,800 fit, 200 stay.
    let pending = cluster.nodes_of("web-").iter().filter(|node| node.is_empty()).count();
    assert_eq!(pending, 200);
}
