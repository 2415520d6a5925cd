//! The golden vectors of both specifications.

use super::*;
use controller_api::TemplateMetadata;
use serde_json::{Value, json};

fn pool(template: Value) -> NodePool {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": {"template": template},
    }))
    .unwrap()
}

fn class_ref() -> Value {
    json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"})
}

#[test]
fn the_primitive_is_fnv_1() {
    assert_eq!(text("abc"), 15_626_587_013_303_479_755);
}

#[test]
fn node_pool_hashes_are_upstreams_version_three() {
    let mut empty = pool(json!({"spec": {"requirements": [], "nodeClassRef": class_ref(), "expireAfter": "Never"}}));
    empty.spec.template.spec.node_class_ref = Default::default();
    assert_eq!(node_pool_hash(&empty), "17307646073972311821");

    let mut spec = json!({"requirements": [{"key": "a", "operator": "Exists"}], "nodeClassRef": class_ref(), "expireAfter": "Never"});
    assert_eq!(node_pool_hash(&pool(json!({"spec": spec}))), "7428780003907761376", "A");
    spec["expireAfter"] = json!("720h");
    assert_eq!(node_pool_hash(&pool(json!({"spec": spec}))), "12745407319442031341", "B");
    let mut metadata = json!({"labels": {"team": "a", "env": "prod"}});
    assert_eq!(node_pool_hash(&pool(json!({"metadata": metadata, "spec": spec}))), "17411878721874582034", "C");
    metadata["annotations"] = json!({"note": "x"});
    assert_eq!(node_pool_hash(&pool(json!({"metadata": metadata, "spec": spec}))), "6181807023428566094", "D");
    spec["taints"] = json!([{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]);
    assert_eq!(node_pool_hash(&pool(json!({"metadata": metadata, "spec": spec}))), "5752516408179605773", "E");
    let startup = [json!({"key": "cni", "effect": "NoExecute"}), json!({"key": "csi", "effect": "NoSchedule"})];
    for order in [[0, 1], [1, 0]] {
        spec["startupTaints"] = json!(order.map(|index| startup[index].clone()));
        assert_eq!(node_pool_hash(&pool(json!({"metadata": metadata, "spec": spec}))), "14286649727792155915", "F");
    }
    spec["terminationGracePeriod"] = json!("30s");
    let mut full = pool(json!({"metadata": metadata, "spec": spec}));
    assert_eq!(node_pool_hash(&full), "5726193587029771499", "G");
    let annotations = full.spec.template.metadata.as_ref().unwrap().annotations.clone();
    full.spec.template.metadata =
        Some(TemplateMetadata { labels: Some(BTreeMap::new()), annotations: annotations.clone() });
    assert_eq!(node_pool_hash(&full), "1190923459835420133", "H");
    full.spec.template.metadata = Some(TemplateMetadata { labels: None, annotations });
    assert_eq!(node_pool_hash(&full), "3063095436604137643", "I");
}

#[test]
fn requirements_limits_and_weight_do_not_change_the_hash() {
    let mut one = pool(json!({"spec": {"requirements": [], "nodeClassRef": class_ref()}}));
    let before = node_pool_hash(&one);
    one.spec.weight = Some(5);
    one.spec.template.spec.requirements.push(Default::default());
    assert_eq!(node_pool_hash(&one), before);
}

fn class_spec() -> Value {
    json!({
        "role": "role-1",
        "tags": {"keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2"},
        "context": "fake-context",
        "detailedMonitoring": false,
        "associatePublicIPAddress": false,
        "metadataOptions": {
            "httpEndpoint": "disabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "optional",
        },
        "blockDeviceMappings": [
            {"deviceName": "map-device-1", "ebs": {
                "deleteOnTermination": false, "encrypted": false, "iops": 0, "kmsKeyID": "fakeKMSKeyID",
                "snapshotID": "fakeSnapshot", "throughput": 0, "volumeSize": "2G", "volumeType": "standard",
            }},
            {"deviceName": "map-device-2"},
        ],
        "userData": "userdata-test-1",
        "amiFamily": "Custom",
        "subnetSelectorTerms": [], "securityGroupSelectorTerms": [], "amiSelectorTerms": [],
    })
}

fn class_hash(spec: Value) -> String {
    let class: Ec2NodeClass = serde_json::from_value(json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "c"}, "spec": spec,
    }))
    .unwrap();
    ec2_node_class_hash(&class, Some("test-ca-bundle"))
}

#[test]
fn node_class_hashes_are_upstreams_version_six() {
    assert_eq!(class_hash(class_spec()), "11148166120438674859");
    for (path, value, expected) in [
        ("/userData", json!("userdata-test-2"), "11774429238106843388"),
        (
            "/tags",
            json!({"keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2", "keyTag-test-3": "valueTag-test-3"}),
            "9327338697296909506",
        ),
        ("/context", json!("context-2"), "2279761750428738028"),
        ("/detailedMonitoring", json!(true), "1936848126751988570"),
        ("/associatePublicIPAddress", json!(true), "16141801171825097963"),
        ("/metadataOptions/httpEndpoint", json!("enabled"), "14969742554812447671"),
        ("/metadataOptions/httpPutResponseHopLimit", json!(10), "14046948658064232764"),
        ("/metadataOptions/httpTokens", json!("required"), "1346719102507290084"),
        ("/blockDeviceMappings/0/ebs/volumeSize", json!("10G"), "10372902467896351912"),
    ] {
        let mut spec = class_spec();
        *spec.pointer_mut(path).unwrap() = value;
        assert_eq!(class_hash(spec), expected, "{path}");
    }
    for (field, value, expected) in [
        ("instanceStorePolicy", json!("RAID0"), "16697988646989909967"),
        ("connectionTracking", json!({"tcpEstablishedTimeout": 300}), "1619669030802245540"),
        ("cpuOptions", json!({"nestedVirtualization": "enabled"}), "6157846767212910604"),
    ] {
        let mut spec = class_spec();
        spec[field] = value;
        assert_eq!(class_hash(spec), expected, "{field}");
    }
    let mut spec = class_spec();
    spec.as_object_mut().unwrap().remove("role");
    spec["instanceProfile"] = json!("test-instance-profile");
    assert_eq!(class_hash(spec), "10323991363677716244");
}

#[test]
fn the_kubelets_configuration_is_hashed_in_order_of_key() {
    let with = |kubelet: &str| {
        let mut spec = class_spec();
        spec["kubelet"] = serde_json::from_str(kubelet).unwrap();
        class_hash(spec)
    };
    assert_eq!(
        with(r#"{"maxPods": 20, "clusterDNS": ["10.0.0.10"]}"#),
        with(r#"{"clusterDNS":["10.0.0.10"],"maxPods":20}"#)
    );
    assert_ne!(with(r#"{"maxPods": 20}"#), with(r#"{"maxPods": 21}"#));
    assert_eq!(
        go_json(&json!({"b": "<1&2>", "a": [1, true, null]})),
        r#"{"a":[1,true,null],"b":"\u003c1\u00262\u003e"}"#
    );
}
