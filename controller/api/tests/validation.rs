//! Run-time validation (core spec §1.8): upstream's messages for what the schema lets pass.

use controller_api::validation::{validate_node_pool, validate_requirement};
use controller_api::{NodeClassReference, NodePool, NodeSelectorRequirementWithMinValues, Operator, TemplateMetadata};
use k8s_openapi::api::core::v1::Taint;

fn requirement_message(key: &str, operator: &str, values: &[&str], min_values: Option<i64>) -> String {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    validate_requirement(key, operator, &values, min_values).message()
}

#[test]
fn requirements_that_can_be_used_pass() {
    for (key, operator, values) in [
        ("kubernetes.io/arch", "In", vec!["amd64"]),
        ("beta.kubernetes.io/arch", "In", vec!["amd64"]),
        ("karpenter.k8s.aws/instance-generation", "Gt", vec!["2"]),
        ("karpenter.k8s.aws/instance-cpu", "Lte", vec!["0"]),
        ("karpenter.sh/capacity-type", "In", vec!["spot", "on-demand"]),
        ("karpenter.sh/capacity-type", "NotIn", vec!["whatever"]),
        ("example.com/team", "Exists", vec![]),
        ("team", "DoesNotExist", vec![]),
        ("team", "NotIn", vec![]),
    ] {
        assert_eq!(requirement_message(key, operator, &values, None), "", "{key} {operator} {values:?}");
    }
}

#[test]
fn each_broken_requirement_has_upstreams_message() {
    let name = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                character (e.g. 'MyName', or 'my.name', or '123-abc', regex used for validation is \
                '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    for (key, operator, values, min_values, message) in [
        (
            "team",
            "Like",
            vec!["a"],
            None,
            "key team has an unsupported operator Like not in [In NotIn Exists DoesNotExist Gt Lt Gte Lte]".to_owned(),
        ),
        ("team", "In", vec![], None, "key team with operator In must have a value defined".to_owned()),
        (
            "team",
            "In",
            vec!["a"],
            Some(2),
            "key team with operator In must have at least minimum number of values defined in 'values' field".to_owned(),
        ),
        ("size", "Gt", vec![], None, "key size with operator Gt must have a single positive integer value".to_owned()),
        ("size", "Lt", vec!["1", "2"], None, "key size with operator Lt must have a single positive integer value".to_owned()),
        ("size", "Gte", vec!["x"], None, "key size with operator Gte must have a single positive integer value".to_owned()),
        ("te am", "Exists", vec![], None, format!("key te am is not a qualified name, name part {name}")),
        (
            "karpenter.sh/capacity-type",
            "In",
            vec!["cheap"],
            None,
            "no valid values found in [cheap] for karpenter.sh/capacity-type, expected one of: [on-demand reserved spot], \
             got: [cheap]"
                .to_owned(),
        ),
        (
            "karpenter.sh/capacity-type",
            "In",
            vec!["cheap", "spot"],
            Some(2),
            "not enough valid values found in [cheap spot] for karpenter.sh/capacity-type, expected at least 2 valid values \
             from: [on-demand reserved spot], got: 1"
                .to_owned(),
        ),
    ] {
        assert_eq!(requirement_message(key, operator, &values, min_values), message);
    }
}

#[test]
fn a_negative_number_is_named_as_value_and_as_number() {
    let message = requirement_message("size", "Lte", &["-1"], None);
    assert!(message.starts_with("invalid value -1 for key size, a valid label must be an empty string"), "{message}");
    assert!(message.ends_with("; key size with operator Lte must have a single positive integer value"), "{message}");
}

#[test]
fn a_restricted_label_names_what_may_be_used_instead() {
    for key in ["karpenter.sh/initialized", "sub.karpenter.sh/x", "karpenter.k8s.aws/other", "kubernetes.io/hostname"] {
        let message = requirement_message(key, "Exists", &[], None);
        let start = format!(
            "using label {key} is not allowed as it might interfere with the internal provisioning logic; specify a well \
             known label: [karpenter.k8s.aws/capacity-reservation-id "
        );
        assert!(message.starts_with(&start), "{message}");
        let end = "or a custom label that does not use a restricted domain: [karpenter.k8s.aws karpenter.sh]";
        assert!(message.ends_with(end), "{message}");
    }
}

#[test]
fn an_older_name_is_reported_under_the_name_in_use() {
    let message = requirement_message("beta.kubernetes.io/arch", "In", &[], None);
    assert_eq!(message, "key kubernetes.io/arch with operator In must have a value defined");
}

#[test]
fn some_invalid_values_among_valid_ones_are_only_worth_a_log_line() {
    let values = ["spot", "cheap"].map(str::to_owned);
    let findings = validate_requirement("karpenter.sh/capacity-type", "In", &values, Some(1));
    assert!(findings.is_ok());
    assert_eq!(findings.ignored.len(), 1);
    assert_eq!((&findings.ignored[0].valid[..], &findings.ignored[0].invalid[..]), (&values[..1], &values[1..]));
}

fn pool(change: impl FnOnce(&mut NodePool)) -> NodePool {
    let mut pool = NodePool::default();
    pool.spec.template.spec.node_class_ref = NodeClassReference::ec2("default");
    change(&mut pool);
    pool
}

fn taint(key: &str, value: Option<&str>, effect: &str) -> Taint {
    let (key, value, effect) = (key.to_owned(), value.map(str::to_owned), effect.to_owned());
    Taint { key, value, effect, time_added: None }
}

fn labelled(key: &str, value: &str) -> NodePool {
    let labels = Some([(key.to_owned(), value.to_owned())].into());
    pool(|pool| pool.spec.template.metadata = Some(TemplateMetadata { labels, annotations: None }))
}

fn requiring(key: &str, operator: Operator, values: &[&str]) -> NodePool {
    let (key, values) = (key.to_owned(), values.iter().map(ToString::to_string).collect());
    let requirement = NodeSelectorRequirementWithMinValues { key, operator, values, min_values: None };
    pool(|pool| pool.spec.template.spec.requirements = vec![requirement])
}

#[test]
fn a_plain_pool_passes() {
    assert!(validate_node_pool(&pool(|_| ())).is_ok());
    assert!(validate_node_pool(&labelled("team", "a")).is_ok());
    assert!(validate_node_pool(&requiring("kubernetes.io/os", Operator::In, &["linux"])).is_ok());
}

#[test]
fn the_pools_own_label_is_nobodys_to_set_or_require() {
    assert_eq!(
        validate_node_pool(&labelled("karpenter.sh/nodepool", "other")).message(),
        "invalid key name \"karpenter.sh/nodepool\" in labels, restricted"
    );
    assert_eq!(
        validate_node_pool(&requiring("karpenter.sh/nodepool", Operator::Exists, &[])).message(),
        "invalid key: \"karpenter.sh/nodepool\" in requirements, restricted"
    );
}

#[test]
fn template_labels_are_checked() {
    let message = validate_node_pool(&labelled("kubernetes.io/hostname", "a")).message();
    assert!(
        message.starts_with(
            "invalid key name \"kubernetes.io/hostname\" in labels, using label kubernetes.io/hostname is not allowed"
        ),
        "{message}"
    );
    let message = validate_node_pool(&labelled("team", "a b")).message();
    assert!(message.starts_with("invalid value: a b for label[team], a valid label must be"), "{message}");
    let message = validate_node_pool(&labelled("te am", "a")).message();
    assert!(message.starts_with("invalid key name \"te am\" in labels, \"name part must consist of"), "{message}");
}

#[test]
fn a_requirement_is_wrapped_with_everything_that_is_wrong_with_it() {
    let message = validate_node_pool(&requiring("size", Operator::In, &[])).message();
    assert_eq!(
        message,
        "invalid value: key size with operator In must have a value defined in requirements, restricted"
    );
}

#[test]
fn taints_may_not_repeat_across_both_lists() {
    let repeated = pool(|pool| {
        pool.spec.template.spec.taints =
            Some(vec![taint("gpu", Some("a"), "NoSchedule"), taint("gpu", None, "NoExecute")]);
        pool.spec.template.spec.startup_taints = Some(vec![taint("gpu", Some("b"), "NoSchedule")]);
    });
    assert_eq!(validate_node_pool(&repeated).message(), "duplicate taint Key/Effect pair gpu=NoSchedule");
}

#[test]
fn taints_are_checked() {
    let broken = pool(|pool| {
        pool.spec.template.spec.taints = Some(vec![taint("gpu", Some(""), "")]);
        pool.spec.template.spec.startup_taints = Some(vec![taint("a", None, "Sometimes"), taint("b", Some("-"), "")]);
    });
    let messages: Vec<_> = validate_node_pool(&broken).errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 2, "{messages:#?}");
    assert_eq!(messages[0], "invalid value: \"Sometimes\" in startupTaints");
    assert!(messages[1].starts_with("invalid value: name part must consist of"), "{}", messages[1]);
    assert!(messages[1].ends_with(" in startupTaints"), "{}", messages[1]);
}
