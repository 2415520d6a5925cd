//! Budgets at an instant.

use super::*;
use crate::catalog::CapacityType;
use crate::snapshot::builder::{self, World};
use serde_json::{Value, json};
use std::sync::Arc;

/// A world with `nodes` nodes of a pool that has these budgets.
fn world(nodes: usize, budgets: Value, now: &str) -> Snapshot {
    let m5 = Arc::new(builder::instance_type("m5.large", 2, 8, 0.1));
    let mut world = World::at(now.parse().unwrap());
    let spec = json!({
        "template": {"spec": {"requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}},
        "disruption": {"budgets": budgets},
    });
    world.pool("default", spec, &[Arc::clone(&m5)]).unwrap();
    for index in 0..nodes {
        world.node(&format!("node-{index}"), "default", &m5, CapacityType::Spot).unwrap();
    }
    world.snapshot
}

fn allowed(nodes: usize, budgets: Value, now: &str) -> u32 {
    Budgets::new(&world(nodes, budgets, now)).into_pools()["default"].allowed[&Reason::Empty]
}

const NOON: &str = "2026-01-05T12:00:00Z"; // a Monday

#[test]
fn a_share_is_rounded_up_and_the_strictest_budget_counts() {
    for (nodes, budgets, expected) in [
        (0, json!([{"nodes": "10%"}]), 0),
        (1, json!([{"nodes": "10%"}]), 1),
        (11, json!([{"nodes": "10%"}]), 2),
        (10, json!([{"nodes": "10%"}]), 1),
        (10, json!([{"nodes": "100%"}]), 10),
        (10, json!([{"nodes": "50%"}, {"nodes": "3"}]), 3),
        (10, json!([{"nodes": "0"}]), 0),
        (10, json!([]), UNLIMITED),
        (10, json!([{"nodes": "0", "reasons": ["Drifted"]}]), UNLIMITED),
        (10, json!([{"nodes": "2", "reasons": ["Empty", "Drifted"]}, {"nodes": "5"}]), 2),
    ] {
        assert_eq!(allowed(nodes, budgets.clone(), NOON), expected, "{nodes} nodes, {budgets}");
    }
}

#[test]
fn a_budget_with_a_schedule_holds_for_its_duration_in_utc() {
    let office_hours = json!([{"nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h"}]);
    for (now, expected) in [
        ("2026-01-05T08:59:59Z", UNLIMITED),
        ("2026-01-05T09:00:00Z", 0),
        ("2026-01-05T16:59:59Z", 0),
        ("2026-01-05T17:00:00Z", UNLIMITED),
        ("2026-01-04T12:00:00Z", UNLIMITED),
    ] {
        assert_eq!(allowed(5, office_hours.clone(), now), expected, "{now}");
    }
}

#[test]
fn one_budget_that_cannot_be_evaluated_blocks_everything_and_says_why() {
    let snapshot = world(5, json!([{"nodes": "5"}, {"nodes": "1", "schedule": "0 25 * * *", "duration": "1h"}]), NOON);
    let budget = &Budgets::new(&snapshot).into_pools()["default"];
    assert_eq!(budget.allowed.values().copied().collect::<Vec<_>>(), [0, 0, 0]);
    assert!(budget.invalid.as_ref().unwrap().to_string().contains("0 25 * * *"));
}

#[test]
fn nodes_that_are_going_or_not_ready_consume_every_reasons_budget() {
    let mut snapshot = world(10, json!([{"nodes": "3"}]), NOON);
    let going = snapshot.nodes["node-0"].clone().marked(true);
    snapshot.nodes.insert("node-0".into(), going);
    let mut budgets = Budgets::new(&snapshot);
    assert!(budgets.take("default", Reason::Empty) && budgets.take("default", Reason::Drifted));
    assert!(!budgets.take("default", Reason::Empty) && !budgets.take("default", Reason::Underutilized));
    assert!(!budgets.take("unknown", Reason::Empty));
}
