//! The program `controller` itself, started as a container runtime starts it.

use std::process::{Command, Output};

fn started(arguments: &[&str]) -> Output {
    // Nothing of the surroundings: no cluster, no credentials, no settings.
    Command::new(env!("CARGO_BIN_EXE_controller")).args(arguments).env_clear().output().expect("the program starts")
}

#[test]
fn without_a_cluster_name_it_ends_at_once_with_one_sentence() {
    let output = started(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: the cluster's name is not set: give --cluster-name or CLUSTER_NAME, the name of the EKS cluster\n"
    );
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn it_prints_the_custom_resource_definitions_that_it_asks_for() {
    let output = started(&["crd"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    for name in ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"] {
        assert!(text.contains(&format!("name: {name}\n")), "{name} is missing");
    }
}
