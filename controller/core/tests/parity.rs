//! The same problems as upstream Karpenter v1.14.0 was given, with what it decided. Its answers were recorded once with its
//! own scheduler over an in-memory API server; several outcomes mean that it does not always decide the same.

mod corpus;

use controller_core::check;
use controller_core::problem::{Catalogue, Problem, answer_of};
use controller_core::scheduling::schedule;
use corpus::{catalogue, unpack};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Examples in which upstream's answer is a defect that we do not share; `docs/differences.md` says what we do instead.
const OURS_DIFFER: [(&str, &str); 4] = [
    ("example-contradiction", "expressions that exclude each other are met by no node"),
    ("example-existing-label-borrowed", "a node has the labels that it has"),
    ("example-limit-nodes", "a limit on nodes counts within a pass"),
    ("example-preference-cancels", "expressions that exclude each other are met by no node"),
];

#[test]
fn small_problems_are_decided_as_upstream_decides_them() {
    let differing = compare(include_bytes!("data/parity/examples.jsonl.gz"), 48);
    let ids: Vec<&str> = differing.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, OURS_DIFFER.map(|(id, _)| id), "{differing:#?}");
}

#[test]
fn a_hundred_random_problems_are_decided_as_upstream_decides_them() {
    let differing = compare(include_bytes!("data/parity/problems.jsonl.gz"), 100);
    assert!(differing.is_empty(), "{differing:#?}");
}

/// Decides every problem; answers those on which ours is none of upstream's outcomes, in order, with both.
fn compare(packed: &[u8], expected: usize) -> Vec<(String, String)> {
    let text = unpack(packed);
    let catalogues = BTreeMap::from([
        ("catalogue", catalogue(include_bytes!("data/parity/catalogue.json.gz"))),
        ("catalogue-small", catalogue(include_bytes!("data/parity/catalogue-small.json.gz"))),
    ]);
    let mut differing = Vec::new();
    for line in text.lines() {
        let recorded: Value = serde_json::from_str(line).expect("a problem and its answer");
        let ours = decide(&recorded["problem"].to_string(), &catalogues);
        let theirs = list(&recorded["answer"]["outcomes"]);
        let ours_of = |theirs: &Value| ties(&recorded["answer"], theirs);
        let is_ours = |theirs: &&Value| {
            let tied = ours_of(theirs);
            outcome(&json!({}), &ours, &tied) == outcome(&recorded["answer"]["typeSets"], theirs, &tied)
        };
        if !theirs.clone().any(|theirs| is_ours(&theirs)) {
            let id = recorded["problem"]["id"].as_str().expect("an id").to_owned();
            let none = BTreeSet::new();
            let first = theirs.map(|o| outcome(&recorded["answer"]["typeSets"], o, &none)).next().unwrap_or_default();
            differing.push((id, format!("ours {}\n  upstream {first}", outcome(&json!({}), &ours, &none))));
        }
    }
    assert_eq!(text.lines().count(), expected);
    differing.sort();
    differing
}

/// Our outcome, which the checker has looked at.
fn decide(line: &str, catalogues: &BTreeMap<&str, Arc<Catalogue>>) -> Value {
    let mut known = |name: &str| catalogues.get(name).cloned().ok_or_else(|| format!("no catalogue {name}"));
    let problem = Problem::read(line, &mut known).unwrap_or_else(|error| panic!("{error}: {line}"));
    let schedule = schedule(&problem.snapshot, &problem.settings);
    assert_eq!(check::schedule(&problem.snapshot, &problem.settings, &schedule), [], "{}", problem.id);
    answer_of(&problem, &schedule)["outcomes"][0].clone()
}

/// Types whose presence upstream leaves to a sort that promises no order among equals, where it cuts the list to 600.
fn ties(answer: &Value, outcome: &Value) -> BTreeSet<String> {
    let keys = list(&outcome["newClaims"]).filter_map(|claim| claim["boundaryTies"].as_str());
    keys.flat_map(|key| list(&answer["typeSets"][key])).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What makes two outcomes the same, with the types that are tied left out but counted.
fn outcome(type_sets: &Value, outcome: &Value, tied: &BTreeSet<String>) -> Value {
    let refused: BTreeMap<&String, &Value> =
        outcome["unschedulable"].as_object().into_iter().flatten().map(|(group, r)| (group, &r["count"])).collect();
    let mut claims: Vec<Value> = list(&outcome["newClaims"])
        .map(|claim| {
            let types = |field: &str| {
                let given = claim[field].as_str().map_or(&claim[field], |key| &type_sets[key]);
                list(given).filter(|name| !tied.contains(name.as_str().unwrap_or_default())).collect::<Vec<_>>()
            };
            let amounts = claim["resources"].as_object().into_iter().flatten();
            let amounts: BTreeMap<&String, Option<f64>> = amounts.map(|(name, n)| (name, n.as_f64())).collect();
            json!({
                "nodePool": claim["nodePool"], "pods": claim["pods"], "requirements": claim["requirements"],
                "instanceTypes": types("instanceTypes"), "launchOrder": types("launchOrder"),
                "typeCount": claim["typeCount"], "resources": amounts,
            })
        })
        .collect();
    claims.sort_by_cached_key(Value::to_string);
    json!({"unschedulable": refused, "existing": outcome["existing"], "newClaims": claims})
}

fn list(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}
