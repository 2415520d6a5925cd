//! Objects for unit tests: a ready node class in three zones, an m5.large, an offering.

use crate::description::Description;
use controller_api::{Ec2NodeClass, labels};
use serde_json::{Value, json};

/// The class `default`, ready, with `spec` laid over an AL2023 class that selects by discovery tag.
pub(crate) fn node_class(spec: Value) -> Ec2NodeClass {
    let mut whole = json!({
        "role": "KarpenterNodeRole-demo",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    let zone = |letter: &str, number: u32| json!({"id": format!("subnet-{letter}"), "zone": format!("us-west-2{letter}"), "zoneID": format!("usw2-az{number}")});
    let arch = |value: &str| json!({"key": labels::ARCH_LABEL, "operator": "In", "values": [value]});
    let without = |key: &str| json!({"key": key, "operator": "DoesNotExist"});
    let standard = |id: &str, value: &str| {
        json!({"id": id, "name": format!("al2023-{value}"), "requirements": [
            arch(value),
            without(labels::INSTANCE_GPU_COUNT_LABEL),
            without(labels::INSTANCE_ACCELERATOR_COUNT_LABEL),
        ]})
    };
    let object = json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "uid-1", "generation": 1},
        "spec": whole,
        "status": {
            "subnets": [zone("a", 1), zone("b", 2), zone("c", 3)],
            "securityGroups": [{"id": "sg-1", "name": "nodes"}],
            "amis": [standard("ami-amd64", "amd64"), standard("ami-arm64", "arm64")],
            "instanceProfile": "demo_1",
        },
    });
    serde_json::from_value(object).expect("the fixture is a valid class")
}

/// An m5.large as EC2 describes it.
pub(crate) fn m5_large() -> Description {
    Description {
        name: "m5.large".to_owned(),
        architecture: Some("amd64"),
        on_demand: true,
        spot: true,
        vcpus: 2,
        memory_mib: 8192,
        cpu_manufacturer: Some("Intel".to_owned()),
        clock_speed_mhz: Some(3100),
        ebs_bandwidth_mbps: Some(4750),
        hypervisor: "nitro".to_owned(),
        nitro_enclaves: false,
        ena: true,
        default_card_interfaces: 3,
        cards: vec![(0, 3)],
        ipv4_per_interface: 10,
        ..Description::default()
    }
}
