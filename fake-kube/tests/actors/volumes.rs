//! Claims, volumes and where their pods go. Sentences, annotations and phases are those of kube-controller-manager and
//! kube-scheduler 1.36.3, as they gave them for the same objects.

use fake_kube::actors::Options;
use fake_kube::{DeleteOptions, resources};
use serde_json::{Value, json};

use crate::support::{Cluster, merged};

const ZONE: &str = "topology.kubernetes.io/zone";

fn binder() -> Options {
    Options { volume_binding: true, ..Options::none() }
}

fn both() -> Options {
    Options { volume_binding: true, scheduler: true, ..Options::none() }
}

fn class(cluster: &Cluster, name: &str, change: Value) {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
    });
    cluster.create(&resources::STORAGE_CLASSES, merged(class, change));
}

/// The class `wait`, whose claims wait for their pods.
fn waiting_class(cluster: &Cluster) {
    class(cluster, "wait", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
}

/// A volume of 5 GiB of the class `wait`; `change` is merged in.
fn volume(cluster: &Cluster, name: &str, change: Value) {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "wait",
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": format!("vol-{name}")},
        },
    });
    cluster.create(&resources::PERSISTENT_VOLUMES, merged(volume, change));
}

fn in_zone(zone: &str) -> Value {
    let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]});
    json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}})
}

/// A claim to 2 GiB of the class `wait`; `change` is merged in.
fn claim(cluster: &Cluster, name: &str, change: Value) {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "storageClassName": "wait", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}},
        },
    });
    cluster.create(&resources::PERSISTENT_VOLUME_CLAIMS, merged(claim, change));
}

fn pod_with(cluster: &Cluster, name: &str, claims: &[&str], change: Value) {
    let volumes: Vec<Value> =
        claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}})).collect();
    cluster.pod(name, merged(json!({"spec": {"volumes": volumes}}), change));
}

/// Two nodes, `a` in us-west-2a and `b` in us-west-2b.
fn nodes(cluster: &Cluster) {
    for (name, zone) in [("a", "us-west-2a"), ("b", "us-west-2b")] {
        cluster.node(name, json!({"metadata": {"labels": {ZONE: zone}}}));
    }
}

fn get_claim(cluster: &Cluster, name: &str) -> Value {
    Value::clone(&cluster.get(&resources::PERSISTENT_VOLUME_CLAIMS, name))
}

fn get_volume(cluster: &Cluster, name: &str) -> Value {
    Value::clone(&cluster.client.get(&resources::PERSISTENT_VOLUMES, None, name).unwrap())
}

/// The volume that a claim is bound to; empty while it is not.
fn volume_of(cluster: &Cluster, name: &str) -> String {
    let claim = get_claim(cluster, name);
    match claim["status"]["phase"].as_str() {
        Some("Bound") => claim["spec"]["volumeName"].as_str().unwrap().to_owned(),
        _ => String::new(),
    }
}

fn phase(cluster: &Cluster, volume: &str) -> String {
    get_volume(cluster, volume)["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_immediate_claim_gets_the_smallest_volume_that_fits() {
    let cluster = Cluster::start(binder());
    class(&cluster, "now", json!({}));
    let now = |capacity: &str| json!({"spec": {"storageClassName": "now", "capacity": {"storage": capacity}}});
    for (name, capacity) in [("a-large", "50Gi"), ("b-fits", "5Gi"), ("c-small", "1Gi")] {
        volume(&cluster, name, now(capacity));
    }
    volume(&cluster, "d-other-class", json!({"spec": {"capacity": {"storage": "2Gi"}}}));
    cluster.settle().await;
    assert_eq!(phase(&cluster, "b-fits"), "Available");
    claim(&cluster, "data", json!({"spec": {"storageClassName": "now"}}));
    cluster.settle().await;
    let (claim, volume) = (get_claim(&cluster, "data"), get_volume(&cluster, "b-fits"));
    assert_eq!(claim["spec"]["volumeName"], "b-fits");
    assert_eq!(claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"], "yes");
    assert_eq!(claim["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"], "yes");
    assert_eq!(
        claim["status"],
        json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}})
    );
    assert_eq!(volume["status"]["phase"], "Bound");
    assert_eq!(volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"], "yes");
    assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
    assert_eq!(volume["spec"]["claimRef"]["name"], "data");
    assert_eq!(phase(&cluster, "a-large"), "Available");
}

#[tokio::test(start_paused = true)]
async fn equal_claims_get_a_volume_each() {
    let cluster = Cluster::start(binder());
    class(&cluster, "now", json!({}));
    for name in ["one", "two", "three"] {
        volume(&cluster, name, json!({"spec": {"storageClassName": "now"}}));
        claim(&cluster, name, json!({"spec": {"storageClassName": "now"}}));
    }
    claim(&cluster, "late", json!({"spec": {"storageClassName": "now"}}));
    cluster.settle().await;
    let mut volumes = ["one", "two", "three"].map(|name| volume_of(&cluster, name));
    volumes.sort();
    let late = volume_of(&cluster, "late");
    let mut all: Vec<String> = volumes.into_iter().chain([late]).filter(|name| !name.is_empty()).collect();
    all.sort();
    assert_eq!(all, ["one", "three", "two"]);
}

#[tokio::test(start_paused = true)]
async fn selector_access_modes_and_volume_mode_must_match() {
    let cluster = Cluster::start(binder());
    class(&cluster, "now", json!({}));
    let spec = |change: Value| merged(json!({"spec": {"storageClassName": "now"}}), change);
    volume(&cluster, "block", spec(json!({"spec": {"volumeMode": "Block"}})));
    volume(&cluster, "labelled", spec(json!({"metadata": {"labels": {"tier": "db"}}})));
    volume(&cluster, "shared", spec(json!({"spec": {"accessModes": ["ReadWriteMany"]}})));
    claim(&cluster, "raw", spec(json!({"spec": {"volumeMode": "Block"}})));
    claim(&cluster, "chosen", spec(json!({"spec": {"selector": {"matchLabels": {"tier": "db"}}}})));
    claim(&cluster, "many", spec(json!({"spec": {"accessModes": ["ReadWriteMany"]}})));
    claim(&cluster, "none", spec(json!({"spec": {"accessModes": ["ReadOnlyMany"]}})));
    cluster.settle().await;
    let volumes = ["raw", "chosen", "many", "none"].map(|name| volume_of(&cluster, name));
    assert_eq!(volumes, ["block", "labelled", "shared", ""]);
}

#[tokio::test(start_paused = true)]
async fn a_named_volume_is_bound_whoever_names_it() {
    let cluster = Cluster::start(binder());
    waiting_class(&cluster);
    volume(&cluster, "large", json!({"spec": {"capacity": {"storage": "50Gi"}}}));
    volume(&cluster, "kept", json!({"spec": {"claimRef": {"namespace": "default", "name": "reserved"}}}));
    claim(&cluster, "named", json!({"spec": {"volumeName": "large"}}));
    claim(&cluster, "reserved", json!({}));
    cluster.settle().await;
    let named = get_claim(&cluster, "named");
    assert_eq!((volume_of(&cluster, "named"), volume_of(&cluster, "reserved")), ("large".into(), "kept".into()));
    // Each half that was the user's choice is not marked as the controller's.
    let marked = |object: &Value| !object["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"].is_null();
    assert!(!marked(&named) && marked(&get_volume(&cluster, "large")));
    assert!(marked(&get_claim(&cluster, "reserved")) && !marked(&get_volume(&cluster, "kept")));
    assert_eq!(named["status"]["capacity"]["storage"], "50Gi");
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_volume_is_told_why() {
    let cluster = Cluster::start(binder());
    waiting_class(&cluster);
    class(&cluster, "hand", json!({}));
    class(&cluster, "made", json!({"provisioner": "ebs.csi.aws.com"}));
    volume(&cluster, "taken", json!({"spec": {"claimRef": {"namespace": "default", "name": "first"}}}));
    volume(&cluster, "small", json!({"spec": {"capacity": {"storage": "1Gi"}}}));
    claim(&cluster, "first", json!({}));
    cluster.settle().await;
    for (name, spec) in [
        ("waits", json!({})),
        ("by-hand", json!({"storageClassName": "hand"})),
        ("made", json!({"storageClassName": "made"})),
        ("classless", json!({"storageClassName": ""})),
        ("stray", json!({"storageClassName": "gone"})),
        ("second", json!({"volumeName": "taken"})),
        ("too-big", json!({"volumeName": "small"})),
        ("nowhere", json!({"volumeName": "nothing"})),
    ] {
        claim(&cluster, name, json!({"spec": spec}));
    }
    cluster.settle().await;
    for (name, reason, message) in [
        ("waits", "WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
        ("by-hand", "ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner"),
        (
            "made",
            "ExternalProvisioning",
            "Waiting for a volume to be created either by the external provisioner 'ebs.csi.aws.com' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered.",
        ),
        ("classless", "FailedBinding", "no persistent volumes available for this claim and no storage class is set"),
        ("stray", "ProvisioningFailed", "storageclass.storage.k8s.io \"gone\" not found"),
        ("second", "FailedBinding", "volume \"taken\" already bound to a different claim."),
        ("too-big", "VolumeMismatch", "Cannot bind to requested volume \"small\": requested PV is too small"),
    ] {
        assert_eq!(cluster.events(name, reason), [message], "{name}");
        assert_eq!(get_claim(&cluster, name)["status"], json!({"phase": "Pending"}), "{name}");
    }
    let annotations = get_claim(&cluster, "made")["metadata"]["annotations"].clone();
    for name in ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"] {
        assert_eq!(annotations[name], "ebs.csi.aws.com");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pending_claim_is_bound_when_its_volume_comes() {
    let cluster = Cluster::start(binder());
    class(&cluster, "now", json!({}));
    let six = json!({"requests": {"storage": "6Gi"}});
    claim(&cluster, "data", json!({"spec": {"storageClassName": "now", "resources": six}}));
    claim(&cluster, "named", json!({"spec": {"storageClassName": "now", "volumeName": "late"}}));
    cluster.settle().await;
    volume(&cluster, "late", json!({"spec": {"storageClassName": "now"}}));
    cluster.settle().await;
    volume(&cluster, "later", json!({"spec": {"storageClassName": "now", "capacity": {"storage": "9Gi"}}}));
    cluster.settle().await;
    assert_eq!((volume_of(&cluster, "named"), volume_of(&cluster, "data")), ("late".into(), "later".into()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_names_no_class_gets_the_default_one() {
    let cluster = Cluster::start(binder());
    let default = json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    claim(&cluster, "data", json!({}));
    cluster.patch(&resources::PERSISTENT_VOLUME_CLAIMS, "data", json!({"spec": {"storageClassName": null}}));
    cluster.settle().await;
    class(&cluster, "gp3", default);
    cluster.settle().await;
    assert_eq!(get_claim(&cluster, "data")["spec"]["storageClassName"], "gp3");
}

#[tokio::test(start_paused = true)]
async fn what_comes_of_a_released_volume_is_its_reclaim_policy() {
    let cluster = Cluster::start(binder());
    waiting_class(&cluster);
    let kept_for = |name: &str, policy: &str, source: Value| {
        let spec = json!({
            "claimRef": {"namespace": "default", "name": name}, "persistentVolumeReclaimPolicy": policy,
            "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "wait",
        });
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec});
        cluster.create(&resources::PERSISTENT_VOLUMES, merged(volume, json!({"spec": source})));
        claim(&cluster, name, json!({}));
    };
    let csi = json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}});
    kept_for("retained", "Retain", csi.clone());
    kept_for("of-a-driver", "Delete", csi);
    kept_for("folder", "Delete", json!({"hostPath": {"path": "/tmp/x"}}));
    kept_for("other-folder", "Delete", json!({"hostPath": {"path": "/x"}}));
    let mut local = in_zone("us-west-2a")["spec"].take();
    local["local"] = json!({"path": "/x"});
    kept_for("local", "Delete", local);
    cluster.settle().await;
    let names = ["retained", "of-a-driver", "folder", "other-folder", "local"];
    for name in names {
        assert_eq!(volume_of(&cluster, name), name);
        cluster.delete(&resources::PERSISTENT_VOLUME_CLAIMS, name);
    }
    cluster.settle().await;
    let volumes = cluster.list(&resources::PERSISTENT_VOLUMES);
    let phases: Vec<(&str, &str)> = volumes
        .iter()
        .map(|volume| (volume["metadata"]["name"].as_str().unwrap(), volume["status"]["phase"].as_str().unwrap()))
        .collect();
    assert_eq!(
        phases,
        [("local", "Failed"), ("of-a-driver", "Released"), ("other-folder", "Failed"), ("retained", "Released")]
    );
    assert_eq!(
        get_volume(&cluster, "local")["status"]["message"],
        "error getting deleter volume plugin for volume \"local\": no volume plugin matched"
    );
    assert_eq!(
        cluster.events("other-folder", "VolumeFailedDelete"),
        ["host_path deleter only supports /tmp/.+ but received provided /x"]
    );
    // A new claim of the same name is somebody else.
    claim(&cluster, "retained", json!({}));
    cluster.settle().await;
    assert_eq!(volume_of(&cluster, "retained"), "");
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_volume_is_deleted_is_lost_and_so_are_pods_that_want_it() {
    let cluster = Cluster::start(both());
    nodes(&cluster);
    waiting_class(&cluster);
    volume(&cluster, "lost", json!({}));
    claim(&cluster, "data", json!({"spec": {"volumeName": "lost"}}));
    cluster.settle().await;
    cluster.client.delete(&resources::PERSISTENT_VOLUMES, None, "lost", DeleteOptions::default()).unwrap();
    cluster.settle().await;
    assert_eq!(get_claim(&cluster, "data")["status"], json!({"phase": "Lost"}));
    assert_eq!(
        cluster.events("data", "ClaimLost"),
        ["Bound claim has lost its PersistentVolume. Data on the volume is lost!"]
    );
    pod_with(&cluster, "web", &["data"], json!({}));
    cluster.settle().await;
    assert_eq!(
        cluster.verdict("web"),
        "0/2 nodes are available: persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"lost\". not found"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_goes_where_its_volume_is() {
    let cluster = Cluster::start(both());
    nodes(&cluster);
    waiting_class(&cluster);
    volume(&cluster, "in-b", in_zone("us-west-2b"));
    claim(&cluster, "data", json!({"spec": {"volumeName": "in-b"}}));
    cluster.settle().await;
    pod_with(&cluster, "web", &["data"], json!({}));
    pod_with(&cluster, "torn", &["data"], json!({"spec": {"nodeSelector": {ZONE: "us-west-2a"}}}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("web"), "b");
    assert_eq!(
        cluster.verdict("torn"),
        "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) didn't match Pod's node \
         affinity/selector. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful \
         for scheduling."
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_may_name_its_zone_by_label() {
    let cluster = Cluster::start(both());
    nodes(&cluster);
    waiting_class(&cluster);
    volume(&cluster, "zonal", json!({"metadata": {"labels": {ZONE: "us-west-2b__us-west-2c"}}}));
    claim(&cluster, "data", json!({"spec": {"volumeName": "zonal"}}));
    cluster.settle().await;
    pod_with(&cluster, "torn", &["data"], json!({"spec": {"nodeSelector": {ZONE: "us-west-2a"}}}));
    pod_with(&cluster, "web", &["data"], json!({}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("web"), "b");
    assert_eq!(
        cluster.verdict("torn"),
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had no available volume \
         zone. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiting_claim_gets_a_volume_that_its_pods_node_reaches() {
    let cluster = Cluster::start(both());
    nodes(&cluster);
    waiting_class(&cluster);
    volume(&cluster, "in-a", in_zone("us-west-2a"));
    volume(&cluster, "in-b", in_zone("us-west-2b"));
    claim(&cluster, "data", json!({}));
    cluster.settle().await;
    assert_eq!(volume_of(&cluster, "data"), "");
    pod_with(&cluster, "web", &["data"], json!({"spec": {"nodeSelector": {ZONE: "us-west-2b"}}}));
    cluster.settle().await;
    assert_eq!((cluster.node_of("web"), volume_of(&cluster, "data")), ("b".into(), "in-b".into()));
    assert_eq!(cluster.events("web", "Scheduled"), ["Successfully assigned default/web to b"]);
    let volume = get_volume(&cluster, "in-b");
    assert_eq!(volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"], "yes");
    assert_eq!(volume["status"]["phase"], "Bound");
    assert!(cluster.get(&resources::PODS, "web")["status"]["nominatedNodeName"].is_null());
}

#[tokio::test(start_paused = true)]
async fn pods_that_wait_together_get_a_volume_each() {
    let cluster = Cluster::start(both());
    nodes(&cluster);
    waiting_class(&cluster);
    for (name, zone) in [("in-a", "us-west-2a"), ("in-b", "us-west-2b")] {
        volume(&cluster, name, in_zone(zone));
    }
    for name in ["one", "two", "three"] {
        claim(&cluster, name, json!({}));
        pod_with(&cluster, name, &[name], json!({}));
    }
    cluster.settle().await;
    let (placed, pending): (Vec<&str>, Vec<&str>) =
        ["one", "two", "three"].into_iter().partition(|name| !cluster.node_of(name).is_empty());
    assert_eq!((placed.len(), pending.len()), (2, 1));
    for name in placed {
        assert_eq!(volume_of(&cluster, name), format!("in-{}", cluster.node_of(name)));
    }
    assert_eq!(
        cluster.verdict(pending[0]),
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. no new claims to deallocate, \
         preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    // A volume that comes wakes the pod.
    volume(&cluster, "another", in_zone("us-west-2b"));
    cluster.settle().await;
    assert_eq!((cluster.node_of(pending[0]), volume_of(&cluster, pending[0])), ("b".into(), "another".into()));
}

#[tokio::test(start_paused = true)]
async fn one_node_may_fail_a_pods_volumes_in_two_ways() {
    let cluster = Cluster::start(both());
    nodes(&cluster);
    waiting_class(&cluster);
    volume(&cluster, "in-b", in_zone("us-west-2b"));
    claim(&cluster, "has", json!({"spec": {"volumeName": "in-b"}}));
    claim(&cluster, "wants", json!({}));
    cluster.settle().await;
    pod_with(&cluster, "web", &["has", "wants"], json!({}));
    cluster.settle().await;
    assert_eq!(
        cluster.verdict("web"),
        "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 2 node(s) didn't find available \
         persistent volumes to bind. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not \
         helpful for scheduling."
    );
}

#[tokio::test(start_paused = true)]
async fn claims_that_no_node_could_help_are_told_before_nodes_are_looked_at() {
    let cluster = Cluster::start(both());
    class(&cluster, "hand", json!({}));
    claim(&cluster, "unbound", json!({"spec": {"storageClassName": "hand"}}));
    pod_with(&cluster, "early", &["unbound"], json!({}));
    cluster.settle().await;
    assert_eq!(cluster.verdict("early"), "no nodes available to schedule pods");
    nodes(&cluster);
    pod_with(&cluster, "absent", &["nothing"], json!({}));
    pod_with(&cluster, "immediate", &["unbound"], json!({}));
    let template = json!({"spec": {
        "storageClassName": "hand", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let ephemeral = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
    cluster.pod("own", json!({"spec": {"volumes": ephemeral}}));
    cluster.wait(12).await;
    for (pod, sentence) in [
        ("absent", "persistentvolumeclaim \"nothing\" not found"),
        ("immediate", "pod has unbound immediate PersistentVolumeClaims"),
        ("early", "pod has unbound immediate PersistentVolumeClaims"),
        ("own", "waiting for ephemeral volume controller to create the persistentvolumeclaim \"own-scratch\""),
    ] {
        assert_eq!(cluster.verdict(pod), format!("0/2 nodes are available: {sentence}. not found"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_comes_or_is_bound_wakes_its_pod() {
    let cluster = Cluster::start(both());
    nodes(&cluster);
    class(&cluster, "hand", json!({}));
    pod_with(&cluster, "web", &["data"], json!({}));
    cluster.settle().await;
    assert_eq!(cluster.node_of("web"), "");
    claim(&cluster, "data", json!({"spec": {"storageClassName": "hand"}}));
    cluster.wait(12).await;
    assert!(cluster.verdict("web").contains("unbound immediate"), "{}", cluster.verdict("web"));
    volume(&cluster, "in-b", merged(in_zone("us-west-2b"), json!({"spec": {"storageClassName": "hand"}})));
    cluster.settle().await;
    assert_eq!(cluster.node_of("web"), "b");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_being_deleted_keeps_its_pods_out() {
    let cluster = Cluster::start(both());
    nodes(&cluster);
    waiting_class(&cluster);
    volume(&cluster, "any", json!({}));
    claim(&cluster, "data", json!({"metadata": {"finalizers": ["example.com/hold"]}, "spec": {"volumeName": "any"}}));
    cluster.settle().await;
    cluster.delete(&resources::PERSISTENT_VOLUME_CLAIMS, "data");
    pod_with(&cluster, "web", &["data"], json!({}));
    cluster.settle().await;
    assert_eq!(
        cluster.verdict("web"),
        "0/2 nodes are available: persistentvolumeclaim \"data\" is being deleted. not found"
    );
    assert_eq!(phase(&cluster, "any"), "Bound");
}

#[tokio::test(start_paused = true)]
async fn a_pod_holds_its_place_while_a_provisioner_makes_its_volume() {
    let cluster = Cluster::start(both());
    cluster.node("a", json!({}));
    let topology = |zone: &str| json!([{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}]);
    let made = |zone: &str| {
        json!({"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": topology(zone)})
    };
    class(&cluster, "here", made("us-west-2a"));
    class(&cluster, "there", made("us-west-2b"));
    claim(&cluster, "data", json!({"spec": {"storageClassName": "here"}}));
    claim(&cluster, "far", json!({"spec": {"storageClassName": "there"}}));
    let three =
        json!({"spec": {"containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "3"}}}]}});
    pod_with(&cluster, "web", &["data"], three.clone());
    pod_with(&cluster, "far", &["far"], json!({}));
    cluster.settle().await;
    assert!(cluster.verdict("far").contains("1 node(s) didn't find available persistent volumes to bind"));
    let claim = get_claim(&cluster, "data");
    assert_eq!(claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "a");
    assert_eq!(claim["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"], "ebs.csi.aws.com");
    assert_eq!(cluster.node_of("web"), "");
    assert_eq!(cluster.get(&resources::PODS, "web")["status"]["nominatedNodeName"], "a");
    cluster.pod("other", three);
    cluster.settle().await;
    assert!(cluster.verdict("other").contains("1 Insufficient cpu"), "{}", cluster.verdict("other"));
    // What a provisioner does.
    let uid = claim["metadata"]["uid"].clone();
    let reference = json!({"namespace": "default", "name": "data", "uid": uid});
    let spec = json!({"spec": {"storageClassName": "here", "claimRef": reference}});
    volume(&cluster, "made", merged(in_zone("us-west-2a"), spec));
    cluster.settle().await;
    assert_eq!((cluster.node_of("web"), volume_of(&cluster, "data")), ("a".into(), "made".into()));
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_not_made_in_ten_minutes_is_told() {
    let cluster = Cluster::start(both());
    cluster.node("a", json!({}));
    let made = json!({"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"});
    class(&cluster, "made", made);
    claim(&cluster, "data", json!({"spec": {"storageClassName": "made"}}));
    pod_with(&cluster, "web", &["data"], json!({}));
    cluster.wait(599).await;
    assert!(cluster.events("web", "FailedScheduling").is_empty());
    cluster.wait(2).await;
    let condition = cluster.condition(&resources::PODS, "web", "PodScheduled");
    assert_eq!(condition["reason"], "SchedulerError");
    assert_eq!(
        condition["message"],
        "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_leaves_while_it_waits_frees_its_place() {
    let cluster = Cluster::with_kubelet(both());
    cluster.node("a", json!({}));
    class(&cluster, "made", json!({"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"}));
    claim(&cluster, "data", json!({"spec": {"storageClassName": "made"}}));
    let three =
        json!({"spec": {"containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "3"}}}]}});
    pod_with(&cluster, "web", &["data"], three.clone());
    cluster.settle().await;
    cluster.pod("other", three);
    cluster.settle().await;
    assert_eq!(cluster.node_of("other"), "");
    cluster.delete(&resources::PODS, "web");
    cluster.settle().await;
    assert_eq!(cluster.node_of("other"), "a");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_stateful_set_return_to_their_volumes() {
    let cluster = Cluster::with_kubelet(Options { stateful_sets: true, ..both() });
    for zone in ["us-west-2a", "us-west-2b", "us-west-2c"] {
        cluster.node(zone, json!({"metadata": {"labels": {ZONE: zone}}}));
    }
    waiting_class(&cluster);
    for zone in ["us-west-2a", "us-west-2b", "us-west-2c"] {
        volume(&cluster, zone, in_zone(zone));
    }
    let labels = json!({"app": "db"});
    let spread = json!([{
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels},
    }]);
    let template = json!({"metadata": {"name": "data"}, "spec": {
        "storageClassName": "wait", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "replicas": 3, "serviceName": "db", "selector": {"matchLabels": labels}, "volumeClaimTemplates": [template],
            "template": {"metadata": {"labels": labels}, "spec": {
                "topologySpreadConstraints": spread,
                // The claim is a volume by its template's name.
                "containers": [{"name": "main", "image": "db", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            }},
        },
    });
    cluster.create(&resources::STATEFUL_SETS, set);
    cluster.wait(10).await;
    let first = cluster.nodes_of("db-");
    let mut zones = first.clone();
    zones.sort();
    assert_eq!(zones, ["us-west-2a", "us-west-2b", "us-west-2c"]);
    cluster.patch(&resources::STATEFUL_SETS, "db", json!({"spec": {"replicas": 0}}));
    cluster.wait(60).await;
    assert!(cluster.pods("db-").is_empty());
    cluster.patch(&resources::STATEFUL_SETS, "db", json!({"spec": {"replicas": 3}}));
    cluster.wait(10).await;
    assert_eq!(cluster.nodes_of("db-"), first);
}
