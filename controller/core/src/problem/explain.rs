//! A schedule in words: where every pod goes, and for those left out what each pool lacks. Pods of one group that share a
//! fate are one entry, and so are instance types that fail by the same rule.

use super::Problem;
use crate::resources::Resources;
use crate::scheduling::{NoInstanceType, PlannedNode, PoolRefusal, Refusal, Schedule, Unschedulable};
use crate::snapshot::PodName;
use controller_api::labels;
use std::collections::BTreeMap;
use std::fmt::Write;

/// At most this many names stand in a line; the rest are counted.
const SHOWN_NAMES: usize = 6;

/// The schedule in words.
pub fn explain(problem: &Problem, schedule: &Schedule) -> String {
    let mut text = String::new();
    let total = schedule.new_nodes.iter().map(|node| node.pods.len()).sum::<usize>()
        + schedule.existing.values().map(Vec::len).sum::<usize>()
        + schedule.unschedulable.len();
    line(&mut text, 0, format_args!("{}: pods {total}, new nodes {}", problem.id, schedule.new_nodes.len()));
    for (node, pods) in &schedule.existing {
        line(&mut text, 1, format_args!("node {node} has room for {}", groups(problem, pods)));
    }
    for planned in &schedule.new_nodes {
        new_node(&mut text, problem, planned);
    }
    for (pool, reason) in &schedule.pools_left_out {
        let more = reason.explain().map(|more| format!(": {more}")).unwrap_or_default();
        line(&mut text, 1, format_args!("NodePool {pool} takes no part, {reason}{more}"));
    }
    let mut fates: Vec<(&Unschedulable, Vec<PodName>)> = Vec::new();
    for (pod, reason) in &schedule.unschedulable {
        match fates.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, pods)) => pods.push(pod.clone()),
            None => fates.push((reason, vec![pod.clone()])),
        }
    }
    for (reason, pods) in fates {
        line(&mut text, 1, format_args!("left out: {}", groups(problem, &pods)));
        left_out(&mut text, reason);
    }
    text
}

fn new_node(text: &mut String, problem: &Problem, planned: &PlannedNode) {
    let weight = planned.node_pool.spec.weight.unwrap_or(0);
    line(text, 1, format_args!("a new node of NodePool {} for {}", planned.pool, groups(problem, &planned.pods)));
    let from = match problem.snapshot.pools.len() {
        0 | 1 => String::new(),
        _ => format!("of weight {weight}, the first in order that can give one; "),
    };
    let cheapest = planned.instance_types.first().map_or_else(String::new, |cheapest| {
        let price = cheapest.cheapest_price(&planned.requirements).unwrap_or(f64::NAN);
        format!("{} at ${price:.4}/h", cheapest.name)
    });
    let more = planned.instance_types.len().saturating_sub(1);
    line(text, 2, format_args!("{from}cheapest {cheapest}, {more} more types would do"));
    line(text, 2, format_args!("asks for {} with DaemonSets", short(&planned.requests)));
    let chosen: Vec<String> = [labels::ZONE_LABEL, labels::CAPACITY_TYPE_LABEL]
        .iter()
        .filter_map(|key| planned.requirements.get(key))
        .map(ToString::to_string)
        .collect();
    if !chosen.is_empty() {
        line(text, 2, format_args!("{}", chosen.join(", ")));
    }
}

fn left_out(text: &mut String, reason: &Unschedulable) {
    let Unschedulable::NoPoolFits(refusals) = reason else {
        return line(text, 2, format_args!("{reason}"));
    };
    for PoolRefusal { pool, refusal } in refusals {
        match refusal {
            Refusal::InstanceTypes(none) => {
                line(text, 2, format_args!("NodePool {pool}: {}", none.short()));
                types(text, none);
            }
            refusal => {
                // Our own sentence where there is one: it says what upstream's words say, and more.
                let reason = refusal.explain().unwrap_or_else(|| refusal.to_string());
                line(text, 2, format_args!("NodePool {pool}: {reason}"));
            }
        }
    }
}

fn types(text: &mut String, none: &NoInstanceType) {
    for (rule, names) in &none.by_rule {
        let count = names.len();
        let plural = if count == 1 { "type" } else { "types" };
        let facts = none.facts(rule).map(|facts| format!(" ({facts})")).unwrap_or_default();
        line(text, 3, format_args!("{count} {plural}, {rule}{facts}: {}", some(names)));
    }
}

fn groups(problem: &Problem, pods: &[PodName]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods {
        *counts.entry(problem.groups.get(pod).map_or(pod.name.as_str(), String::as_str)).or_default() += 1;
    }
    let texts: Vec<String> = counts
        .into_iter()
        .map(|(group, count)| if count == 1 { group.to_owned() } else { format!("{count} × {group}") })
        .collect();
    texts.join(", ")
}

fn some(names: &[String]) -> String {
    let rest = names.len().saturating_sub(SHOWN_NAMES);
    let shown = names[..names.len() - rest].join(", ");
    if rest == 0 { shown } else { format!("{shown} and {rest} more") }
}

fn short(resources: &Resources) -> String {
    resources.iter().map(|(name, quantity)| format!("{quantity} {name}")).collect::<Vec<_>>().join(", ")
}

fn line(text: &mut String, depth: usize, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{:indent$}{what}", "", indent = depth * 2).expect("a string takes every text");
}
