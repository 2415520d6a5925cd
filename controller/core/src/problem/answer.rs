//! A schedule as an answer, in the form that answers of every scheduler are compared in.

use super::Problem;
use crate::catalog::InstanceType;
use crate::resources::Resources;
use crate::scheduling::{PlannedNode, Schedule, schedule};
use crate::snapshot::PodName;
use controller_api::labels;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many types go into one launch request.
const LAUNCH_ORDER_LENGTH: usize = 60;

/// Decides the problem.
pub fn answer(problem: &Problem) -> Value {
    answer_of(problem, &schedule(&problem.snapshot, &problem.settings))
}

/// The answer that the schedule amounts to.
pub fn answer_of(problem: &Problem, schedule: &Schedule) -> Value {
    let existing: BTreeMap<&String, Value> =
        schedule.existing.iter().map(|(node, pods)| (node, json!(count(problem, pods)))).collect();
    let mut claims: Vec<Value> = schedule.new_nodes.iter().map(|planned| claim(problem, planned)).collect();
    claims.sort_by_cached_key(Value::to_string);
    let price: f64 = claims.iter().filter_map(|claim| claim["cheapest"].as_f64()).sum();
    let planned = schedule.new_nodes.iter().map(|node| node.pods.len()).sum::<usize>();
    let placed = schedule.existing.values().map(Vec::len).sum::<usize>();
    let refused = schedule.unschedulable.values().filter(|reason| !reason.is_ignored()).count();
    let outcome = json!({
        "count": 1,
        "unschedulable": refusals(problem, schedule),
        "existing": existing,
        "claims": claims.len(),
        "price": rounded(price),
        "newClaims": claims,
    });
    json!({"id": problem.id, "runs": 1, "distinct": 1, "pods": planned + placed + refused, "outcomes": [outcome],
        "typeSets": {}})
}

fn refusals(problem: &Problem, schedule: &Schedule) -> Value {
    let mut refused: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    for (pod, reason) in &schedule.unschedulable {
        let entry = refused.entry(&problem.groups[pod]).or_insert_with(|| (0, reason.to_string()));
        entry.0 += 1;
    }
    let refused = refused.into_iter();
    refused
        .map(|(group, (count, error))| (group.to_owned(), json!({"count": count, "error": error})))
        .collect::<Map<_, _>>()
        .into()
}

fn count<'p>(problem: &'p Problem, pods: &[PodName]) -> BTreeMap<&'p str, usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    pods.iter().for_each(|pod| *counts.entry(problem.groups[pod].as_str()).or_default() += 1);
    counts
}

fn claim(problem: &Problem, planned: &PlannedNode) -> Value {
    let names = |types: &[Arc<InstanceType>]| -> Vec<String> { types.iter().map(|t| t.name.clone()).collect() };
    let by_price = names(&planned.instance_types);
    let mut by_name = by_price.clone();
    by_name.sort();
    // The types are in order of price.
    let first = planned.instance_types.first();
    let cheapest = first.and_then(|t| t.cheapest_price(&planned.requirements)).unwrap_or(-1.0);
    json!({
        "nodePool": planned.pool,
        "pods": count(problem, &planned.pods),
        "requirements": requirements(planned),
        "typeCount": by_name.len(),
        "instanceTypes": by_name,
        "launchOrder": by_price.iter().take(LAUNCH_ORDER_LENGTH).collect::<Vec<_>>(),
        "resources": amounts(&planned.requests),
        "cheapest": rounded(cheapest),
    })
}

/// The NodeClaim's requirements as text, without the list of instance types, which stands for itself.
fn requirements(planned: &PlannedNode) -> Vec<String> {
    let mut texts = Vec::new();
    for requirement in &planned.to_node_claim().spec.requirements {
        let min_values = requirement.min_values.map(|count| format!(" minValues {count}")).unwrap_or_default();
        if requirement.key == labels::INSTANCE_TYPE_LABEL {
            texts.extend(Some(format!("{}{min_values}", requirement.key)).filter(|_| !min_values.is_empty()));
            continue;
        }
        let mut values = requirement.values.clone();
        values.sort();
        let values = if values.is_empty() { String::new() } else { format!(" [{}]", values.join(" ")) };
        texts.push(format!("{} {}{values}{min_values}", requirement.key, requirement.operator));
    }
    texts.sort();
    texts
}

/// Amounts in cores, bytes and pieces, to the millionth.
fn amounts(resources: &Resources) -> BTreeMap<&str, f64> {
    let amounts = resources.iter().filter(|(_, quantity)| !quantity.is_zero());
    amounts.map(|(name, quantity)| (name, (quantity.nanos() as f64 / 1e3).round() / 1e6)).collect()
}

/// Keeps the tiny prices of reserved capacity apart from zero.
fn rounded(price: f64) -> f64 {
    (price * 1e12).round() / 1e12
}
