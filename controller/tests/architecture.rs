//! The dependency directions, as the manifests have them: who may see whom (ARCHITECTURE.md).

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};

fn metadata() -> Metadata {
    MetadataCommand::new().manifest_path("../Cargo.toml").no_deps().exec().expect("cargo describes the workspace")
}

/// What each package of the workspace depends on, tests left out.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    metadata()
        .packages
        .iter()
        .map(|package| {
            let normal = package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
            (package.name.to_string(), normal.map(|dependency| dependency.name.clone()).collect())
        })
        .collect()
}

fn ours() -> BTreeSet<String> {
    dependencies().into_keys().collect()
}

#[track_caller]
fn sees_only(package: &str, allowed: &[&str]) {
    let dependencies = dependencies();
    let seen: BTreeSet<&str> =
        dependencies[package].iter().map(String::as_str).filter(|name| ours().contains(*name)).collect();
    let forbidden: Vec<_> = seen.difference(&allowed.iter().copied().collect()).copied().collect();
    assert!(forbidden.is_empty(), "{package} must not depend on {forbidden:?}");
}

#[track_caller]
fn never_uses(package: &str, forbidden: impl Fn(&str) -> bool) {
    let dependencies = dependencies();
    let found: Vec<_> = dependencies[package].iter().filter(|name| forbidden(name)).collect();
    assert!(found.is_empty(), "{package} must not depend on {found:?}");
}

fn is_aws(name: &str) -> bool {
    name.starts_with("aws-")
}

#[test]
fn the_api_is_data() {
    sees_only("controller-api", &[]);
    never_uses("controller-api", |name| is_aws(name) || name.starts_with("tokio"));
}

#[test]
fn core_decides_without_clock_io_or_randomness() {
    sees_only("controller-core", &["controller-api"]);
    never_uses("controller-core", |name| {
        is_aws(name) || ["tokio", "kube", "tracing", "fastrand", "rand", "futures", "reqwest", "hyper"].contains(&name)
    });
}

#[test]
fn the_clock_is_a_leaf() {
    sees_only("controller-clock", &[]);
}

#[test]
fn aws_code_never_sees_a_kube_client() {
    sees_only("controller-aws", &["controller-api", "controller-core", "controller-clock"]);
    never_uses("controller-aws", |name| name.starts_with("kube"));
}

#[test]
fn the_controller_sees_no_fake_outside_its_tests() {
    sees_only("controller", &["controller-api", "controller-aws", "controller-core", "controller-clock"]);
    never_uses("controller", |name| name.starts_with("aws-sdk"));
}

#[test]
fn fakes_share_nothing_with_the_controller_but_the_clock() {
    sees_only("fake-ec2", &["controller-clock"]);
    sees_only("fake-kube", &["controller-clock"]);
}

#[test]
fn only_the_kit_pins_randomness() {
    for package in [
        "controller",
        "controller-api",
        "controller-aws",
        "controller-clock",
        "controller-core",
        "fake-ec2",
        "fake-kube",
    ] {
        never_uses(package, |name| name == "pinned-randomness");
    }
}
