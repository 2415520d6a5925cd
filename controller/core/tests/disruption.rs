//! Golden disruption plans, what must hold of every one of them, and how a command fares when the world moves on.

mod common;

use common::{NOW, check_scenarios, world};
use controller_core::check::{self, Rule};
use controller_core::disruption::{DisruptionPlan, Ineligible, Invalid, Reason, plan};
use controller_core::settings::Settings;
use controller_core::snapshot::builder::World;
use controller_core::snapshot::{PodName, Snapshot};
use serde_json::{Value, json};

fn settings() -> Settings {
    Settings::default()
}

fn render(plan: &DisruptionPlan) -> String {
    let mut lines = Vec::new();
    for command in &plan.commands {
        lines.push(format!("{} {}: {}", command.decision(), command.reason, command.candidates.join(", ")));
    }
    for (node, reason) in &plan.passed_over {
        lines.push(format!("{node} stays: {reason} [{}]", reason.event_reason().unwrap_or("no event")));
    }
    for (pool, budget) in &plan.budgets {
        let blocking = if budget.is_blocking(Reason::Empty) { ", blocking" } else { "" };
        let allowed = budget.allowed[&Reason::Empty];
        lines.push(format!(
            "budget of {pool}: {allowed} of {} nodes, {} disrupting{blocking}",
            budget.nodes, budget.disrupting
        ));
    }
    lines.join("\n") + "\n"
}

#[test]
fn scenarios_give_the_golden_plans_and_end_at_a_fixed_point() {
    check_scenarios("disruption", |name, world| {
        let snapshot = &world.snapshot;
        let first = plan(snapshot, &settings());
        assert_eq!(check::disruption(snapshot, &first), [], "{name}");
        assert_fixed_point(name, snapshot, first.clone());
        render(&first)
    });
}

/// Carrying plans out again and again comes to an end, and never takes a node twice.
fn assert_fixed_point(name: &str, snapshot: &Snapshot, mut plan_now: DisruptionPlan) {
    let mut now = snapshot.clone();
    for _ in 0..=snapshot.nodes.len() {
        if plan_now.commands.is_empty() {
            return;
        }
        for node in plan_now.commands.iter().flat_map(|command| &command.candidates) {
            assert!(now.nodes.remove(node).is_some(), "{name}: {node} was there");
        }
        plan_now = plan(&now, &settings());
    }
    panic!("{name} never settles");
}

fn one_empty_node() -> World {
    world(&json!({"pools": {"default": {}}, "nodes": {"empty": {"pool": "default", "type": "m5.large"}}}))
}

#[test]
fn a_pod_that_arrives_in_the_wait_keeps_its_node() {
    let mut world = one_empty_node();
    let command = plan(&world.snapshot, &settings()).commands.remove(0);
    assert_eq!(command.still_valid(&world.snapshot, &settings()).unwrap().candidates, ["empty"]);
    common::add_pods(&mut world, &json!({"name": "late", "on": "empty"}));
    let invalid = command.still_valid(&world.snapshot, &settings()).unwrap_err();
    let Invalid::Churn(reasons) = &invalid else { panic!("{invalid}") };
    assert_eq!(reasons["empty"], Ineligible::NotEmpty { pods: 1 });
    assert_eq!(invalid.label(), "churn");
}

#[test]
fn a_node_reserved_or_gone_in_the_wait_is_not_taken() {
    let world = one_empty_node();
    let command = plan(&world.snapshot, &settings()).commands.remove(0);
    let mut reserved = world.snapshot.clone();
    let until = "2026-01-01T00:00:20Z".parse().unwrap();
    let node = reserved.nodes["empty"].clone().nominated(Some(until));
    reserved.nodes.insert("empty".into(), node);
    assert!(matches!(command.still_valid(&reserved, &settings()), Err(Invalid::Churn(_))));
    let gone = Snapshot::empty(NOW.parse().unwrap());
    assert!(matches!(command.still_valid(&gone, &settings()), Err(Invalid::Churn(_))));
}

#[test]
fn part_of_an_emptiness_command_is_still_worth_doing_within_what_the_budget_became() {
    let given = |budget: &str, taken: Value| {
        json!({
            "pools": {"default": {"disruption": {"budgets": [{"nodes": budget}]}}},
            "nodes": {
                "a": {"pool": "default", "type": "r5.large"}, "b": {"pool": "default", "type": "m5.large"},
                "c": {"pool": "default", "type": "c5.large"},
                "later": {"pool": "default", "type": "r5.8xlarge", "consolidatable": taken},
            },
            "pods": [],
        })
    };
    let before = world(&given("100%", json!(false)));
    let command = plan(&before.snapshot, &settings()).commands.remove(0);
    assert_eq!(command.candidates, ["a", "b", "c"]);
    // A node that became empty meanwhile is not this command's business, and takes nothing from its budget.
    let after = world(&given("2", json!(true)));
    assert_eq!(command.still_valid(&after.snapshot, &settings()).unwrap().candidates, ["a", "b"]);
    let closed = world(&given("0", json!(false)));
    let invalid = command.still_valid(&closed.snapshot, &settings()).unwrap_err();
    assert_eq!(invalid.label(), "budget");
}

#[test]
fn pods_that_budgets_or_annotations_protect_are_named() {
    let mut world = one_empty_node();
    common::add_pods(&mut world, &json!({"name": "web", "on": "empty", "labels": {"app": "web"}}));
    let selector = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}});
    world.pdb("one", selector.clone(), 0).unwrap();
    let reason = |world: &World| plan(&world.snapshot, &settings()).passed_over["empty"].clone();
    assert_eq!(reason(&world).to_string(), "pdb prevents pod evictions (PodDisruptionBudget=default/one)");
    assert_eq!(reason(&world).message(), "Pdb prevents pod evictions (PodDisruptionBudget=default/one)");
    world.pdb("two", selector, 1).unwrap();
    assert_eq!(
        reason(&world).to_string(),
        "eviction does not support multiple PDBs (PodDisruptionBudget(s)=[default/one default/two])"
    );
    common::add_pods(
        &mut world,
        &json!({"name": "kept", "on": "empty", "annotations": {"karpenter.sh/do-not-disrupt": "true"}}),
    );
    assert_eq!(reason(&world), Ineligible::PodDoNotDisrupt { pod: PodName::new("default", "kept") });
    assert_eq!(reason(&world).to_string(), r#"pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/kept)"#);
}

#[test]
fn a_budget_of_pods_allows_what_it_allows() {
    let mut world = one_empty_node();
    common::add_pods(&mut world, &json!({"name": "web", "on": "empty", "labels": {"app": "web"}}));
    world.pdb("open", json!({"selector": {"matchLabels": {"app": "web"}}}), 1).unwrap();
    world.pdb("other", json!({"selector": {"matchLabels": {"app": "other"}}}), 0).unwrap();
    assert_eq!(plan(&world.snapshot, &settings()).passed_over["empty"], Ineligible::NotEmpty { pods: 1 });
}

#[test]
fn the_checker_refuses_plans_that_were_broken_on_purpose() {
    let given = json!({"pools": {"default": {}}, "nodes": {
        "empty": {"pool": "default", "type": "r5.large"}, "second": {"pool": "default", "type": "m5.large"},
        "busy": {"pool": "default", "type": "m5.large"},
    }, "pods": [{"name": "web", "on": "busy"}]});
    let snapshot = world(&given).snapshot;
    let good = plan(&snapshot, &settings());
    assert_eq!(check::disruption(&snapshot, &good), []);
    let broken = |node: &str, expected: Rule| {
        let mut bad = good.clone();
        bad.commands[0].candidates.push(node.to_owned());
        let found = check::disruption(&snapshot, &bad);
        assert!(found.iter().any(|violation| violation.rule == expected), "{expected:?} not among {found:?}");
    };
    broken("second", Rule::Budget);
    broken("busy", Rule::Emptiness);
    broken("unknown", Rule::PlaceIsUsable);
}
