//! Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs, with a kubelet that is always content.

use std::sync::Arc;

use fake_kube::actors::Options;
use fake_kube::{DeleteOptions, Propagation, resources};
use serde_json::{Value, json};

use crate::support::{Cluster, condition, merged};

fn actors() -> Options {
    Options {
        scheduler: true,
        deployments: true,
        replica_sets: true,
        stateful_sets: true,
        daemon_sets: true,
        jobs: true,
        ..Options::none()
    }
}

fn workload(kind: &str, change: Value) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    });
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
    let metadata = json!({"name": "web", "namespace": "default"});
    merged(json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}), change)
}

fn image(name: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": name}]}}}})
}

fn cluster() -> Cluster {
    let cluster = Cluster::with_kubelet(actors());
    cluster.node("one", json!({}));
    cluster
}

fn names(objects: &[Arc<Value>]) -> Vec<&str> {
    objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
}

fn replica_sets(cluster: &Cluster) -> Vec<Arc<Value>> {
    cluster.list(&resources::REPLICA_SETS)
}

fn images(cluster: &Cluster) -> Vec<String> {
    let pods = cluster.pods("web-");
    pods.iter().map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_its_replicas_through_a_replica_set() {
    let cluster = cluster();
    cluster.create(&resources::DEPLOYMENTS, workload("Deployment", json!({"spec": {"replicas": 3}})));
    cluster.settle().await;
    let sets = replica_sets(&cluster);
    assert_eq!(sets.len(), 1);
    let hash = sets[0]["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
    let name = sets[0]["metadata"]["name"].as_str().unwrap();
    assert_eq!(name, format!("web-{hash}"));
    assert_eq!(sets[0]["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert_eq!(sets[0]["spec"]["selector"]["matchLabels"], json!({"app": "web", "pod-template-hash": hash}));
    let pods = cluster.pods("web-");
    assert_eq!(pods.len(), 3);
    for pod in &pods {
        assert_eq!(pod["metadata"]["generateName"], format!("{name}-"));
        assert_eq!(pod["metadata"]["labels"]["pod-template-hash"], hash);
        let owner = &pod["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["name"]), (&json!("ReplicaSet"), &json!(name)));
        assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &json!(true)));
    }
    let deployment = cluster.get(&resources::DEPLOYMENTS, "web");
    let status = &deployment["status"];
    for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(status[field], 3, "{field}");
    }
    assert_eq!(status.get("unavailableReplicas"), None);
    assert_eq!(status["observedGeneration"], 1);
    let available = condition(&deployment, "Available");
    assert_eq!((&available["status"], &available["reason"]), (&json!("True"), &json!("MinimumReplicasAvailable")));
    let progressing = condition(&deployment, "Progressing");
    assert_eq!(progressing["reason"], "NewReplicaSetAvailable");
    assert_eq!(progressing["message"], format!("ReplicaSet \"{name}\" has successfully progressed."));
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    assert_eq!(cluster.events("web", "ScalingReplicaSet"), [format!("Scaled up replica set {name} from 0 to 3")]);
}

#[tokio::test(start_paused = true)]
async fn a_settled_deployment_writes_nothing() {
    let cluster = cluster();
    cluster.create(&resources::DEPLOYMENTS, workload("Deployment", json!({"spec": {"replicas": 3}})));
    cluster.settle().await;
    let versions = |cluster: &Cluster| {
        let lists = [resources::DEPLOYMENTS, resources::REPLICA_SETS, resources::PODS].map(|kind| cluster.list(&kind));
        lists.iter().flatten().map(|object| object["metadata"]["resourceVersion"].clone()).collect::<Vec<_>>()
    };
    let before = versions(&cluster);
    cluster.wait(86_400).await;
    assert_eq!(versions(&cluster), before);
}

#[tokio::test(start_paused = true)]
async fn scaling_adds_and_removes_pods() {
    let cluster = cluster();
    cluster.create(&resources::DEPLOYMENTS, workload("Deployment", json!({"spec": {"replicas": 2}})));
    cluster.settle().await;
    cluster.patch(&resources::DEPLOYMENTS, "web", json!({"spec": {"replicas": 5}}));
    cluster.settle().await;
    assert_eq!(cluster.pods("web-").len(), 5);
    cluster.patch(&resources::DEPLOYMENTS, "web", json!({"spec": {"replicas": 1}}));
    cluster.settle().await;
    assert_eq!(cluster.pods("web-").len(), 1);
    assert_eq!(replica_sets(&cluster).len(), 1);
    assert_eq!(cluster.get(&resources::DEPLOYMENTS, "web")["status"]["replicas"], 1);
}

#[tokio::test(start_paused = true)]
async fn scaling_down_by_many_pods_of_many_ages_ends_nothing() {
    let cluster = cluster();
    cluster.create(&resources::DEPLOYMENTS, workload("Deployment", json!({"spec": {"replicas": 1}})));
    for step in 1..=40 {
        cluster.patch(&resources::DEPLOYMENTS, "web", json!({"spec": {"replicas": 3 * step}}));
        cluster.wait(1 + step % 7).await;
    }
    cluster.settle().await;
    assert_eq!(cluster.pods("web-").len(), 120);
    cluster.patch(&resources::DEPLOYMENTS, "web", json!({"spec": {"replicas": 20}}));
    cluster.settle().await;
    assert_eq!(cluster.pods("web-").len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_new_template_rolls_out_and_keeps_the_old_replica_set() {
    let cluster = cluster();
    cluster.create(&resources::DEPLOYMENTS, workload("Deployment", json!({"spec": {"replicas": 4}})));
    cluster.settle().await;
    cluster.patch(&resources::DEPLOYMENTS, "web", image("app:2"));
    cluster.settle().await;
    assert_eq!(images(&cluster), ["app:2"; 4]);
    let mut sizes: Vec<_> = replica_sets(&cluster)
        .iter()
        .map(|set| {
            let revision = &set["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
            (revision.as_str().unwrap().to_owned(), set["spec"]["replicas"].as_i64().unwrap())
        })
        .collect();
    sizes.sort();
    assert_eq!(sizes, [("1".to_owned(), 0), ("2".to_owned(), 4)]);
    // Back to the first template: its ReplicaSet returns as revision 3.
    cluster.patch(&resources::DEPLOYMENTS, "web", image("app:1"));
    cluster.settle().await;
    assert_eq!(images(&cluster), ["app:1"; 4]);
    assert_eq!(replica_sets(&cluster).len(), 2);
    let deployment = cluster.get(&resources::DEPLOYMENTS, "web");
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
}

#[tokio::test(start_paused = true)]
async fn a_rollout_stops_at_surge_and_unavailability_while_new_pods_are_not_ready() {
    let cluster = Cluster::start(actors());
    cluster.node("one", json!({}));
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
    cluster.create(
        &resources::DEPLOYMENTS,
        workload("Deployment", json!({"spec": {"replicas": 4, "strategy": strategy, "progressDeadlineSeconds": 600}})),
    );
    cluster.settle().await;
    for pod in cluster.pods("web-") {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}]);
        cluster.patch_status(&resources::PODS, name, json!({"phase": "Running", "conditions": ready}));
    }
    cluster.settle().await;
    cluster.patch(&resources::DEPLOYMENTS, "web", image("app:2"));
    cluster.settle().await;
    // At most five in all and at least three available: one old goes, two new come.
    let sizes: Vec<_> = replica_sets(&cluster)
        .iter()
        .map(|set| (set["spec"]["template"]["spec"]["containers"][0]["image"].clone(), set["spec"]["replicas"].clone()))
        .collect();
    assert!(sizes.contains(&(json!("app:1"), json!(3))), "{sizes:?}");
    assert!(sizes.contains(&(json!("app:2"), json!(2))), "{sizes:?}");
    cluster.wait(601).await;
    let progressing = cluster.condition(&resources::DEPLOYMENTS, "web", "Progressing");
    assert_eq!((&progressing["status"], &progressing["reason"]), (&json!("False"), &json!("ProgressDeadlineExceeded")));
}

#[tokio::test(start_paused = true)]
async fn recreate_waits_until_the_old_pods_are_gone() {
    let cluster = Cluster::start(actors());
    cluster.node("one", json!({}));
    let change = json!({"spec": {"replicas": 1, "strategy": {"type": "Recreate"}}});
    cluster.create(&resources::DEPLOYMENTS, workload("Deployment", change));
    cluster.settle().await;
    let old = cluster.pods("web-")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.patch(&resources::DEPLOYMENTS, "web", image("app:2"));
    cluster.settle().await;
    assert_eq!(images(&cluster), ["app:1"]);
    cluster.client.delete(&resources::PODS, Some("default"), &old, DeleteOptions::now()).unwrap();
    cluster.settle().await;
    assert_eq!(images(&cluster), ["app:2"]);
}

#[tokio::test(start_paused = true)]
async fn a_resize_during_a_rollout_is_shared_in_proportion() {
    let cluster = Cluster::start(actors());
    cluster.node("one", json!({}));
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
    cluster.create(
        &resources::DEPLOYMENTS,
        workload("Deployment", json!({"spec": {"replicas": 10, "strategy": strategy}})),
    );
    cluster.settle().await;
    for pod in cluster.pods("web-") {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}]);
        cluster.patch_status(&resources::PODS, name, json!({"phase": "Running", "conditions": ready}));
    }
    cluster.settle().await;
    cluster.patch(&resources::DEPLOYMENTS, "web", image("app:broken"));
    cluster.settle().await;
    cluster.patch(&resources::DEPLOYMENTS, "web", json!({"spec": {"replicas": 15}}));
    cluster.settle().await;
    // The documented example of proportional scaling: 8 and 5 become 11 and 7.
    let mut sizes: Vec<_> =
        replica_sets(&cluster).iter().map(|set| set["spec"]["replicas"].as_i64().unwrap()).collect();
    sizes.sort();
    assert_eq!(sizes, [7, 11]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_is_replaced() {
    let cluster = cluster();
    cluster.create(&resources::REPLICA_SETS, workload("ReplicaSet", json!({"spec": {"replicas": 2}})));
    cluster.settle().await;
    let pods = cluster.pods("web-");
    let first = names(&pods)[0].to_owned();
    cluster.delete(&resources::PODS, &first);
    cluster.settle().await;
    let pods = cluster.pods("web-");
    assert_eq!(pods.len(), 2);
    assert!(!names(&pods).contains(&first.as_str()));
    assert_eq!(cluster.get(&resources::REPLICA_SETS, "web")["status"]["readyReplicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn matching_orphans_are_adopted_and_strangers_released() {
    let cluster = cluster();
    cluster.pod("orphan", json!({"metadata": {"labels": {"app": "web"}}}));
    cluster.create(&resources::REPLICA_SETS, workload("ReplicaSet", json!({"spec": {"replicas": 1}})));
    cluster.settle().await;
    assert_eq!(cluster.get(&resources::PODS, "orphan")["metadata"]["ownerReferences"][0]["name"], "web");
    assert_eq!(cluster.pods("").len(), 1);
    cluster.patch(&resources::PODS, "orphan", json!({"metadata": {"labels": {"app": "debug"}}}));
    cluster.settle().await;
    let references = &cluster.get(&resources::PODS, "orphan")["metadata"]["ownerReferences"];
    assert!(references.as_array().is_none_or(Vec::is_empty), "{references}");
    assert_eq!(cluster.pods("").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn available_waits_for_min_ready_seconds() {
    let cluster = cluster();
    cluster.create(
        &resources::REPLICA_SETS,
        workload("ReplicaSet", json!({"spec": {"replicas": 1, "minReadySeconds": 30}})),
    );
    cluster.wait(20).await;
    let status = cluster.get(&resources::REPLICA_SETS, "web")["status"].clone();
    assert_eq!((&status["readyReplicas"], status.get("availableReplicas")), (&json!(1), None));
    cluster.wait(15).await;
    assert_eq!(cluster.get(&resources::REPLICA_SETS, "web")["status"]["availableReplicas"], 1);
}

#[tokio::test(start_paused = true)]
async fn deleting_a_deployment_takes_everything_with_it() {
    let cluster = cluster();
    cluster.create(&resources::DEPLOYMENTS, workload("Deployment", json!({"spec": {"replicas": 2}})));
    cluster.settle().await;
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    cluster.client.delete(&resources::DEPLOYMENTS, Some("default"), "web", options).unwrap();
    cluster.settle().await;
    assert_eq!(replica_sets(&cluster).len(), 0);
    assert_eq!(cluster.pods("web-").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_runs_once_per_node_that_takes_it() {
    let cluster = cluster();
    cluster.node("two", json!({}));
    cluster.node("tainted", json!({"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}}));
    cluster.node("cordoned", json!({"spec": {"unschedulable": true}}));
    cluster.create(&resources::DAEMON_SETS, workload("DaemonSet", json!({})));
    cluster.settle().await;
    let mut nodes = cluster.nodes_of("web-");
    nodes.sort();
    assert_eq!(nodes, ["cordoned", "one", "two"]);
    let pod = &cluster.pods("web-")[0];
    let terms =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let node = &pod["spec"]["nodeName"];
    assert_eq!(*terms, json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]));
    let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
    for (key, effect) in [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ] {
        assert!(tolerations.contains(&json!({"key": key, "operator": "Exists", "effect": effect})), "{key}");
    }
    let status = cluster.get(&resources::DAEMON_SETS, "web")["status"].clone();
    for field in
        ["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "numberAvailable", "updatedNumberScheduled"]
    {
        assert_eq!(status[field], 3, "{field}");
    }
    assert_eq!(status["numberMisscheduled"], 0);
    cluster.node("late", json!({}));
    cluster.settle().await;
    assert!(cluster.nodes_of("web-").contains(&"late".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_update_replaces_pods_one_at_a_time() {
    let cluster = Cluster::start(actors());
    for name in ["a", "b", "c"] {
        cluster.node(name, json!({}));
    }
    cluster.create(&resources::DAEMON_SETS, workload("DaemonSet", json!({})));
    cluster.settle().await;
    for pod in cluster.pods("web-") {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}]);
        cluster.patch_status(&resources::PODS, name, json!({"phase": "Running", "conditions": ready}));
    }
    cluster.settle().await;
    cluster.patch(&resources::DAEMON_SETS, "web", image("app:2"));
    cluster.settle().await;
    let leaving = cluster.pods("web-").iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_string()).count();
    assert_eq!(leaving, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_starts_in_order_and_gives_each_pod_its_name_and_claim() {
    let cluster = Cluster::start(actors());
    cluster.node("one", json!({}));
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let change = json!({"spec": {"replicas": 2, "serviceName": "web", "volumeClaimTemplates": [claim]}});
    cluster.create(&resources::STATEFUL_SETS, workload("StatefulSet", change));
    cluster.settle().await;
    assert_eq!(names(&cluster.pods("web-")), ["web-0"]);
    let pod = cluster.get(&resources::PODS, "web-0");
    assert_eq!(pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"], "web-0");
    assert_eq!(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "0");
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-0"), &json!("web")));
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["persistentVolumeClaim"]["claimName"] == "data-web-0"), "{volumes:?}");
    assert!(cluster.find(&resources::PERSISTENT_VOLUME_CLAIMS, "data-web-0").is_some());
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}]);
    cluster.patch_status(&resources::PODS, "web-0", json!({"phase": "Running", "conditions": ready}));
    cluster.settle().await;
    assert_eq!(names(&cluster.pods("web-")), ["web-0", "web-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_shrinks_from_the_highest_ordinal_and_updates_in_reverse() {
    let cluster = cluster();
    cluster.create(
        &resources::STATEFUL_SETS,
        workload("StatefulSet", json!({"spec": {"replicas": 3, "serviceName": "web"}})),
    );
    cluster.settle().await;
    assert_eq!(names(&cluster.pods("web-")), ["web-0", "web-1", "web-2"]);
    cluster.patch(&resources::STATEFUL_SETS, "web", json!({"spec": {"replicas": 2}}));
    cluster.settle().await;
    assert_eq!(names(&cluster.pods("web-")), ["web-0", "web-1"]);
    cluster.patch(&resources::STATEFUL_SETS, "web", image("app:2"));
    cluster.settle().await;
    assert_eq!(images(&cluster), ["app:2", "app:2"]);
    let deleted = cluster.events("web", "SuccessfulDelete");
    let of = |pod: &str| format!("delete Pod {pod} in StatefulSet web successful");
    assert_eq!(deleted, [of("web-2"), of("web-1"), of("web-0")]);
    let status = cluster.get(&resources::STATEFUL_SETS, "web")["status"].clone();
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    assert_eq!(
        (&status["replicas"], &status["readyReplicas"], &status["currentReplicas"]),
        (&json!(2), &json!(2), &json!(2))
    );
}

fn job(change: Value) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app"}]}});
    let metadata = json!({"name": "batch", "namespace": "default"});
    merged(
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}),
        change,
    )
}

fn finish(cluster: &Cluster, phase: &str) {
    for pod in cluster.pods("batch-").iter().filter(|pod| pod["status"]["phase"] == "Running") {
        cluster.patch_status(&resources::PODS, pod["metadata"]["name"].as_str().unwrap(), json!({"phase": phase}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_its_completions_under_its_parallelism() {
    let cluster = cluster();
    cluster.create(&resources::JOBS, job(json!({"spec": {"completions": 3, "parallelism": 2}})));
    cluster.settle().await;
    assert_eq!(cluster.pods("batch-").len(), 2);
    assert_eq!(cluster.get(&resources::JOBS, "batch")["status"]["active"], 2);
    finish(&cluster, "Succeeded");
    cluster.settle().await;
    assert_eq!(cluster.pods("batch-").len(), 3);
    finish(&cluster, "Succeeded");
    cluster.settle().await;
    let job = cluster.get(&resources::JOBS, "batch");
    assert_eq!((&job["status"]["succeeded"], job["status"].get("active")), (&json!(3), None));
    assert_eq!(condition(&job, "Complete")["status"], "True");
    assert!(job["status"]["completionTime"].is_string());
    for pod in cluster.pods("batch-") {
        assert!(pod["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty), "counted pods are released");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_gives_up_beyond_its_backoff_limit() {
    let cluster = cluster();
    cluster.create(&resources::JOBS, job(json!({"spec": {"backoffLimit": 1}})));
    cluster.settle().await;
    finish(&cluster, "Failed");
    cluster.settle().await;
    assert_eq!(cluster.pods("batch-").len(), 1, "the next try waits for the back-off of ten seconds");
    cluster.wait(10).await;
    assert_eq!(cluster.pods("batch-").len(), 2);
    finish(&cluster, "Failed");
    cluster.settle().await;
    let failed = cluster.condition(&resources::JOBS, "batch", "Failed");
    assert_eq!((&failed["status"], &failed["reason"]), (&json!("True"), &json!("BackoffLimitExceeded")));
    assert_eq!(failed["message"], "Job has reached the specified backoff limit");
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_gives_every_pod_its_index() {
    let cluster = cluster();
    let change = json!({"spec": {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}});
    cluster.create(&resources::JOBS, job(change));
    cluster.settle().await;
    let pods = cluster.pods("batch-");
    let index = |pod: &Arc<Value>| pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].clone();
    assert_eq!(pods.iter().map(index).collect::<Vec<_>>(), ["0", "1"]);
    assert_eq!(pods[1]["spec"]["hostname"], "batch-1");
    finish(&cluster, "Succeeded");
    cluster.settle().await;
    assert_eq!(cluster.get(&resources::JOBS, "batch")["status"]["completedIndexes"], "0,1");
}

#[test]
fn the_same_cluster_lives_the_same_life_twice() {
    let life = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let cluster = Cluster::with_kubelet(Options::default());
            cluster.node("one", json!({}));
            cluster.node("two", json!({}));
            cluster.create(&resources::DEPLOYMENTS, workload("Deployment", json!({"spec": {"replicas": 5}})));
            cluster.create(&resources::JOBS, job(json!({"spec": {"completions": 3, "parallelism": 2}})));
            cluster.settle().await;
            cluster.patch(&resources::DEPLOYMENTS, "web", image("app:2"));
            cluster.wait(600).await;
            let entries = cluster.kube.journal();
            entries.iter().map(|entry| format!("{entry:?}")).collect::<Vec<_>>()
        })
    };
    let first = life();
    assert!(first.len() > 50);
    assert!(first == life());
}
