//! The manifests under `manifests/`: what the API server takes is read without loss, and what a CEL rule refuses is refused
//! with the rule's message. Refusals by the shape of the schema are the API server's own work; whoever plays one tests
//! them with the same files.

use controller_api::{Ec2NodeClass, NillableDuration, NodeClaim, NodePool, Operator, crds};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifests {
    base: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    old: Option<Value>,
    patch: Value,
    error: Option<String>,
}

const PLURALS: [&str; 3] = ["nodepools", "nodeclaims", "ec2nodeclasses"];

fn manifests(plural: &str) -> Manifests {
    let path = format!("tests/manifests/{plural}.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn schema(plural: &str) -> Value {
    let definition = crds().into_iter().find(|definition| definition.spec.names.plural == plural).unwrap();
    serde_json::to_value(&definition.spec.versions[0].schema).unwrap()["openAPIV3Schema"].clone()
}

/// A JSON merge patch (RFC 7386).
fn merged(base: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut result = base.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        match value {
            Value::Null => result.remove(key),
            _ => result.insert(key.clone(), merged(base.get(key).unwrap_or(&Value::Null), value)),
        };
    }
    Value::Object(result)
}

fn object(plural: &str, name: &str) -> Value {
    let Manifests { base, cases } = manifests(plural);
    let case = cases.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("{plural} has no case {name}"));
    merged(&base, &case.patch)
}

fn read<T: DeserializeOwned>(plural: &str, name: &str) -> T {
    serde_json::from_value(object(plural, name)).unwrap()
}

fn rule_messages(schema: &Value, found: &mut BTreeSet<String>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        found.insert(rule["message"].as_str().unwrap().to_owned());
    }
    schema["properties"].as_object().into_iter().flatten().for_each(|(_, property)| rule_messages(property, found));
    ["items", "additionalProperties"]
        .iter()
        .filter_map(|key| schema.get(key))
        .for_each(|inner| rule_messages(inner, found));
}

#[test]
fn rules_refuse_with_their_message_and_pass_the_rest() {
    for plural in PLURALS {
        let schema = schema(plural);
        let mut messages = BTreeSet::new();
        rule_messages(&schema, &mut messages);
        let mut shown = BTreeSet::new();
        let Manifests { base, cases } = manifests(plural);
        for Case { name, old, patch, error } in &cases {
            let old = old.as_ref().map(|old| merged(&base, old));
            let result = kube_cel::validate(&schema, &merged(&base, patch), old.as_ref());
            let found: Vec<_> = result.err().into_iter().flat_map(|errors| errors.into_vec()).collect();
            let found: Vec<_> = found.iter().map(|error| error.message.as_str()).collect();
            match error {
                None => assert!(found.is_empty(), "{plural}, {name}: {found:#?}"),
                Some(error) => {
                    for message in messages.iter().filter(|message| error.ends_with(*message)) {
                        assert!(found.contains(&message.as_str()), "{plural}, {name}: {message} is not in {found:#?}");
                        shown.insert(message.clone());
                    }
                }
            }
        }
        // Families differ in nothing but their name; two stand for all.
        let missing: Vec<_> =
            messages.difference(&shown).filter(|message| !message.starts_with("if set, amiFamily")).collect();
        assert!(missing.is_empty(), "{plural} has no case for {missing:#?}");
    }
}

/// Every field of `sent` comes back, whatever else the types add. Quantities may be numbers and come back as text.
fn assert_kept(path: &str, sent: &Value, kept: &Value) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(_)) => {
            sent.iter().for_each(|(key, value)| assert_kept(&format!("{path}.{key}"), value, &kept[key]));
        }
        (Value::Array(sent), Value::Array(kept)) if sent.len() == kept.len() => {
            sent.iter().zip(kept).enumerate().for_each(|(index, (sent, kept))| {
                assert_kept(&format!("{path}[{index}]"), sent, kept);
            });
        }
        (Value::Number(sent), Value::String(kept)) => assert_eq!(&sent.to_string(), kept, "{path}"),
        _ => assert_eq!(sent, kept, "{path}"),
    }
}

fn round_trips<T: DeserializeOwned + serde::Serialize + PartialEq + std::fmt::Debug>(plural: &str) {
    let Manifests { base, cases } = manifests(plural);
    for Case { name, patch, .. } in cases.iter().filter(|case| case.error.is_none()) {
        let sent = merged(&base, patch);
        let typed: T = serde_json::from_value(sent.clone()).unwrap_or_else(|error| panic!("{plural}, {name}: {error}"));
        let kept = serde_json::to_value(&typed).unwrap();
        assert_kept(&format!("{plural}, {name}: "), &drop_empty(sent), &drop_empty(kept.clone()));
        assert_eq!(serde_json::from_value::<T>(kept).unwrap(), typed, "{plural}, {name}");
    }
}

/// Empty lists that stand for absent ones are not written back, which no reader can tell.
fn drop_empty(mut object: Value) -> Value {
    for pointer in ["/spec", "/spec/template/spec"] {
        if let Some(Value::Object(fields)) = object.pointer_mut(pointer) {
            fields.retain(|key, value| key == "requirements" || value != &json!([]));
        }
    }
    object
}

#[test]
fn what_is_taken_is_read_and_written_without_loss() {
    round_trips::<NodePool>("nodepools");
    round_trips::<NodeClaim>("nodeclaims");
    round_trips::<Ec2NodeClass>("ec2nodeclasses");
}

#[test]
fn the_articles_pool_reads_as_it_says() {
    let pool: NodePool = read("nodepools", "the article's pool");
    let spec = &pool.spec.template.spec;
    let requirements: Vec<_> = spec
        .requirements
        .iter()
        .map(|requirement| (requirement.key.as_str(), requirement.operator, requirement.values.join(",")))
        .collect();
    assert_eq!(
        requirements,
        [
            ("kubernetes.io/arch", Operator::In, "amd64".to_owned()),
            ("kubernetes.io/os", Operator::In, "linux".to_owned()),
            ("karpenter.sh/capacity-type", Operator::In, "spot".to_owned()),
            ("karpenter.k8s.aws/instance-category", Operator::In, "c,m,r".to_owned()),
            ("karpenter.k8s.aws/instance-generation", Operator::Gt, "2".to_owned()),
        ]
    );
    assert!(spec.node_class_ref.is_ec2());
    assert_eq!(spec.expire_after.as_str(), "720h");
    assert_eq!(pool.spec.limits["cpu"].0, "1000");
    assert_eq!(pool.spec.disruption.consolidate_after.as_duration(), Some(Duration::from_secs(60)));
    assert_eq!(pool.spec.disruption.budgets.len(), 1);
    assert_eq!(pool.spec.disruption.budgets[0].nodes, "10%");
}

#[test]
fn the_articles_class_reads_as_it_says() {
    let class: Ec2NodeClass = read("ec2nodeclasses", "the article's class");
    assert_eq!(class.spec.role.as_deref(), Some("KarpenterNodeRole-demo"));
    assert_eq!(class.spec.ami_selector_terms[0].alias_parts(), Some(("al2023", "latest")));
    assert_eq!(class.spec.resolved_ami_family().map(|family| family.as_str()), Some("AL2023"));
    assert_eq!(class.spec.subnet_selector_terms[0].tags["karpenter.sh/discovery"], "demo");
    assert_eq!(class.spec.security_group_selector_terms[0].tags["karpenter.sh/discovery"], "demo");
    assert_eq!(class.spec.metadata_options.http_tokens, "required");
    assert_eq!(class.spec.metadata_options.http_put_response_hop_limit, 1);
}

#[test]
fn a_pool_that_says_the_least_has_upstreams_defaults() {
    let pool: NodePool = read("nodepools", "the least a pool must say");
    assert_eq!(
        serde_json::to_value(&pool.spec).unwrap(),
        json!({
            "template": {
                "spec": {
                    "requirements": [],
                    "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                    "expireAfter": "720h",
                },
            },
            "disruption": {
                "consolidateAfter": "0s",
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "budgets": [{ "nodes": "10%" }],
            },
        })
    );
    let claim: NodeClaim = read("nodeclaims", "the least a claim must say");
    assert_eq!(claim.spec.expire_after.as_duration(), Some(Duration::from_secs(720 * 3600)));
}

/// Both mean no labels and no taints, but the pool's hash tells them apart.
#[test]
fn absent_and_empty_stay_apart_where_the_hash_needs_it() {
    let pool: NodePool = read("nodepools", "the article's pool");
    assert_eq!((pool.spec.template.metadata, pool.spec.template.spec.taints), (None, None));
    let pool: NodePool = read("nodepools", "an empty list of taints");
    assert_eq!(pool.spec.template.spec.taints, Some(Vec::new()));
    let pool: NodePool = read("nodepools", "an empty list of budgets");
    assert_eq!(pool.spec.disruption.budgets, []);
}

#[test]
fn durations_keep_the_users_words_within_an_object() {
    let mut sent = object("nodepools", "the article's pool");
    for text in ["24h", "1440m", "Never"] {
        sent["spec"]["template"]["spec"]["expireAfter"] = text.into();
        let pool: NodePool = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(serde_json::to_value(&pool).unwrap()["spec"]["template"]["spec"]["expireAfter"], text);
    }
    let pool: NodePool = serde_json::from_value(sent).unwrap();
    assert_eq!(pool.spec.template.spec.expire_after, NillableDuration::Never);
}

#[test]
fn unknown_fields_are_the_api_servers_to_refuse() {
    let mut sent = object("nodepools", "the article's pool");
    sent["spec"]["fromTheFuture"] = json!(true);
    assert!(serde_json::from_value::<NodePool>(sent).is_ok());
}

#[test]
fn a_broken_duration_or_operator_is_named() {
    let mut sent = object("nodepools", "the article's pool");
    sent["spec"]["template"]["spec"]["expireAfter"] = "30d".into();
    let error = serde_json::from_value::<NodePool>(sent).unwrap_err().to_string();
    assert!(error.starts_with("\"30d\" is not a duration or \"Never\": its unit is unknown"), "{error}");
    let mut sent = object("nodepools", "the article's pool");
    sent["spec"]["template"]["spec"]["requirements"][0]["operator"] = "Like".into();
    let error = serde_json::from_value::<NodePool>(sent).unwrap_err().to_string();
    assert!(error.contains("unknown variant `Like`"), "{error}");
}
