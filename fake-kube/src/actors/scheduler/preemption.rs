//! Making room for a pod by removing pods of lower priority.
//!
//! Simpler than the genuine plugin: budgets are not weighed, relations between pods are taken as they stand rather than
//! as they would be without the victims, and the room is not reserved until the pod is bound (pods are tried by
//! priority, so that only one of a higher priority can come first).

use super::super::needs::Needs;
use super::super::objects::{Key, Node};
use super::cluster::{Cluster, Place};
use super::filters::{self, Reason};
use super::relations::Relations;

/// The node to preempt on, and the pods to remove there.
pub(super) struct Preemption {
    pub(super) node: String,
    pub(super) victims: Vec<Key>,
}

/// Why preemption on this node does not help.
pub(super) fn obstacles(
    needs: &Needs,
    node: &Node,
    place: &Place,
    relations: Option<&Relations>,
    cluster: &Cluster,
) -> Vec<Reason> {
    let Some(emptied) = without_lower(needs, place, cluster) else { return vec![Reason::NoVictims] };
    let reasons = filters::reasons(needs, node, &emptied, relations);
    // Where victims exist, whoever asks for a preemption finds them.
    if reasons.is_empty() { vec![Reason::NoVictims] } else { reasons }
}

/// The least harmful preemption: lowest priority of the most important victim, fewest victims, first by name.
pub(super) fn find(needs: &Needs, relations: Option<&Relations>, cluster: &Cluster) -> Option<Preemption> {
    if !needs.preempts || !cluster.has_below(needs.priority) {
        return None;
    }
    let named = |node: &Node| needs.node_names.as_ref().is_none_or(|names| names.contains(&node.name));
    let options = cluster.nodes().filter(|(node, _)| named(node)).filter_map(|(node, place)| {
        let reasons = filters::reasons(needs, node, place, relations);
        if !reasons.iter().all(Reason::preemption_may_help) {
            return None;
        }
        let victims = victims(needs, node, place, relations, cluster)?;
        let highest = victims.iter().map(|key| cluster.placed[key].needs.priority).max()?;
        Some(((highest, victims.len()), Preemption { node: node.name.clone(), victims }))
    });
    options
        .min_by(|(one, first), (other, second)| (one, &first.node).cmp(&(other, &second.node)))
        .map(|(_, found)| found)
}

/// Whether pods of lower priority are already leaving the node: their room is worth waiting for.
pub(super) fn is_under_way(needs: &Needs, node: &str, cluster: &Cluster) -> bool {
    let pods = cluster.places.get(node).into_iter().flat_map(|place| &place.pods);
    pods.filter_map(|key| cluster.placed.get(key)).any(|pod| pod.terminating && pod.needs.priority < needs.priority)
}

/// All pods of lower priority, less those that may stay, the most important first.
fn victims(
    needs: &Needs,
    node: &Node,
    place: &Place,
    relations: Option<&Relations>,
    cluster: &Cluster,
) -> Option<Vec<Key>> {
    let mut emptied = without_lower(needs, place, cluster)?;
    if !filters::reasons(needs, node, &emptied, relations).is_empty() {
        return None;
    }
    let mut lower: Vec<&Key> = lower(needs, place, cluster).collect();
    lower.sort_by_key(|key| (std::cmp::Reverse(cluster.placed[*key].needs.priority), (*key).clone()));
    let mut victims = vec![];
    for key in lower {
        let pod = &cluster.placed[key].needs;
        emptied.requested.add(&pod.requests);
        emptied.ports.extend(pod.ports.iter().cloned());
        emptied.pods.insert(key.clone());
        if !filters::reasons(needs, node, &emptied, relations).is_empty() {
            emptied.requested.subtract(&pod.requests);
            emptied.ports.truncate(emptied.ports.len() - pod.ports.len());
            emptied.pods.remove(key);
            victims.push(key.clone());
        }
    }
    Some(victims)
}

fn lower<'a>(needs: &'a Needs, place: &'a Place, cluster: &'a Cluster) -> impl Iterator<Item = &'a Key> {
    place.pods.iter().filter(|key| cluster.placed.get(*key).is_some_and(|pod| pod.needs.priority < needs.priority))
}

/// The node without its pods of lower priority; `None` if it has none.
fn without_lower(needs: &Needs, place: &Place, cluster: &Cluster) -> Option<Place> {
    if !cluster.has_below(needs.priority) {
        return None;
    }
    let mut emptied = place.clone();
    let mut removed = false;
    for key in lower(needs, place, cluster) {
        let pod = &cluster.placed[key].needs;
        emptied.requested.subtract(&pod.requests);
        for port in &pod.ports {
            if let Some(index) = emptied.ports.iter().position(|other| other == port) {
                emptied.ports.swap_remove(index);
            }
        }
        emptied.pods.remove(key);
        removed = true;
    }
    removed.then_some(emptied)
}
