//! Garbage (core spec §5.9, AWS spec §5.2): claims whose instance is gone, instances that no claim knows.

use super::{condition, created_at, is_ready, is_true, provider_id};
use controller_api::NodeClaim;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Younger instances may belong to a claim whose status has not been written yet.
pub const YOUNG: SignedDuration = SignedDuration::from_secs(30);

/// Registered claims whose instance the cloud does not list (any more) and whose Node is missing or not Ready, by name.
/// A Ready Node outweighs the list, which may be late or incomplete.
pub fn claims_without_instance<'a>(
    claims: &'a [Arc<NodeClaim>],
    instances: &[NodeClaim],
    node_of: impl Fn(&str) -> Option<Arc<Node>>,
) -> Vec<&'a Arc<NodeClaim>> {
    let is_going = |instance: &&NodeClaim| instance.metadata.deletion_timestamp.is_some();
    let live: BTreeSet<&str> =
        instances.iter().filter(|instance| !is_going(instance)).filter_map(provider_id).collect();
    let mut lost: Vec<&Arc<NodeClaim>> = claims
        .iter()
        .filter(|claim| claim.metadata.deletion_timestamp.is_none() && is_true(claim, condition::REGISTERED))
        .filter(|claim| provider_id(claim).is_some_and(|id| !live.contains(id)))
        .filter(|claim| !provider_id(claim).and_then(&node_of).is_some_and(|node| is_ready(&node)))
        .collect();
    lost.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    lost
}

/// Instances of this cluster that no claim names, neither going nor younger than half a minute, by provider id.
pub fn instances_without_claim<'a>(
    instances: &'a [NodeClaim],
    claims: &[Arc<NodeClaim>],
    now: Timestamp,
) -> Vec<&'a NodeClaim> {
    let known: BTreeSet<&str> = claims.iter().filter_map(|claim| provider_id(claim)).collect();
    let is_old =
        |instance: &&NodeClaim| created_at(instance).is_some_and(|launched| now.duration_since(launched) > YOUNG);
    let leaked = instances.iter().filter(|instance| instance.metadata.deletion_timestamp.is_none()).filter(is_old);
    let by_id: BTreeMap<&str, &NodeClaim> = leaked
        .filter_map(|instance| Some((provider_id(instance)?, instance)))
        .filter(|(id, _)| !known.contains(id))
        .collect();
    by_id.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::fixtures::{Claim, at, claim, node, ready};
    use crate::lifecycle::status_mut;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn with_id(mut claim: Claim, id: &str) -> NodeClaim {
        status_mut(&mut claim).provider_id = id.into();
        claim.into()
    }

    fn registered(id: &str) -> Arc<NodeClaim> {
        Arc::new(with_id(claim().with_condition("Registered", "True", 0), id))
    }

    fn instance(id: &str) -> NodeClaim {
        with_id(claim(), id)
    }

    fn going(mut claim: NodeClaim) -> NodeClaim {
        claim.metadata.deletion_timestamp = Some(Time(at(0)));
        claim
    }

    fn lost(claim: Arc<NodeClaim>, instances: &[NodeClaim], node: Option<Node>) -> bool {
        let node = node.map(Arc::new);
        !claims_without_instance(&[claim], instances, |_| node.clone()).is_empty()
    }

    #[test]
    fn a_registered_claim_whose_instance_is_not_listed_is_lost_unless_its_node_is_ready() {
        assert!(lost(registered("a"), &[], None), "node missing");
        assert!(lost(registered("a"), &[], Some(node())), "node not ready");
        assert!(!lost(registered("a"), &[], Some(ready(node()))), "node ready");
        assert!(!lost(registered("a"), &[instance("a")], None), "listed");
        assert!(lost(registered("a"), &[going(instance("a"))], None), "listed, but going");
        assert!(!lost(Arc::new(with_id(claim(), "a")), &[], None), "not registered");
        assert!(!lost(Arc::new(going((*registered("a")).clone())), &[], None), "deleting already");
    }

    #[test]
    fn an_instance_no_claim_knows_goes_once_it_is_older_than_thirty_seconds() {
        let stray = [instance("a")];
        let leaked = |instances: &[NodeClaim], claims: &[Arc<NodeClaim>], now| {
            !instances_without_claim(instances, claims, at(now)).is_empty()
        };
        assert!(!leaked(&stray, &[], 30));
        assert!(leaked(&stray, &[], 31));
        assert!(!leaked(&stray, &[registered("a")], 31));
        assert!(leaked(&stray, &[registered("b")], 31));
        assert!(!leaked(&[going(instance("a"))], &[], 31));
    }
}
