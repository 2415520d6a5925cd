//! What there is in a cluster and its cloud that must stay when another controller takes over.

use crate::world::World;
use controller_api::{Ec2NodeClass, HasConditions as _, NodeClaim, NodePool, conditions, labels};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use std::collections::{BTreeMap, BTreeSet};

/// The leases in this namespace tell who leads.
const LEASE_NAMESPACE: &str = "kube-system";
/// What Kubernetes' own components call theirs, or begin them with.
const KUBERNETES_LEASES: [&str; 3] = ["kube-controller-manager", "kube-scheduler", "apiserver-"];

/// The annotations by which static drift is told: the hash and how it is computed.
const HASHES: [(&str, &str); 2] = [
    (labels::NODE_POOL_HASH_ANNOTATION, labels::NODE_POOL_HASH_VERSION_ANNOTATION),
    (labels::NODE_CLASS_HASH_ANNOTATION, labels::NODE_CLASS_HASH_VERSION_ANNOTATION),
];

/// A hash with the version of its computation, by the annotation's name.
pub type Hashes = BTreeMap<&'static str, (String, String)>;

/// What there was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// NodeClaims by name.
    pub node_claims: BTreeMap<String, NodeClaimFacts>,
    /// The uid of each node, by its name.
    pub nodes: BTreeMap<String, String>,
    /// The hashes of NodePools and EC2NodeClasses, by kind and name.
    pub hashes: BTreeMap<String, Hashes>,
    /// The ids of the instances that live.
    pub instances: BTreeSet<String>,
    /// Instance profiles with their roles.
    pub instance_profiles: BTreeMap<String, Option<String>>,
    /// The leases of controllers, each with its uid and holder.
    pub leases: BTreeMap<String, (String, Option<String>)>,
}

/// What must stay of a NodeClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeClaimFacts {
    /// Its uid.
    pub uid: String,
    /// Its instance.
    pub provider_id: String,
    /// The hashes of its NodePool and EC2NodeClass at its launch.
    pub hashes: Hashes,
    /// What its condition `Drifted` says, if it has one.
    pub drifted: Option<String>,
}

impl Census {
    /// What there is now.
    pub async fn take(world: &World) -> anyhow::Result<Self> {
        let cloud = world.cloud();
        let pools = world.list::<NodePool>().await?;
        let classes = world.list::<Ec2NodeClass>().await?;
        let hashes = pools.iter().map(|pool| (format!("NodePool {}", pool.name_any()), hashes_of(&pool.metadata)));
        let of_classes =
            classes.iter().map(|class| (format!("EC2NodeClass {}", class.name_any()), hashes_of(&class.metadata)));
        let live = cloud.instances().await?.into_iter().filter(crate::cloud::Instance::is_live);
        Ok(Self {
            node_claims: world.node_claims().await?.iter().map(|claim| (claim.name_any(), facts(claim))).collect(),
            nodes: world.list::<Node>().await?.iter().map(|node| (node.name_any(), uid(&node.metadata))).collect(),
            hashes: hashes.chain(of_classes).collect(),
            instances: live.map(|instance| instance.id).collect(),
            instance_profiles: cloud.instance_profiles().await?,
            leases: leases(world).await?,
        })
    }

    /// What has changed since another census, a line for each. Who holds a lease is no part of it, and two releases may compute
    /// hashes in different versions: then they are brought up to date and cannot be compared.
    pub fn changes_since(&self, before: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        let facts = |census: &Self| -> BTreeMap<String, (String, String, Option<String>)> {
            let facts = census.node_claims.iter();
            facts
                .map(|(name, claim)| {
                    (name.clone(), (claim.uid.clone(), claim.provider_id.clone(), claim.drifted.clone()))
                })
                .collect()
        };
        compare("NodeClaim", &facts(before), &facts(self), &mut changes);
        for (name, claim) in &self.node_claims {
            let Some(before) = before.node_claims.get(name) else { continue };
            compare_hashes(&format!("NodeClaim {name}"), &before.hashes, &claim.hashes, &mut changes);
        }
        for (name, hashes) in &self.hashes {
            let Some(before) = before.hashes.get(name) else { continue };
            compare_hashes(name, before, hashes, &mut changes);
        }
        compare("Node", &before.nodes, &self.nodes, &mut changes);
        compare("instance", &present(&before.instances), &present(&self.instances), &mut changes);
        compare("instance profile", &before.instance_profiles, &self.instance_profiles, &mut changes);
        let uids = |census: &Self| -> BTreeMap<String, String> {
            census.leases.iter().map(|(name, (uid, _))| (name.clone(), uid.clone())).collect()
        };
        compare("Lease", &uids(before), &uids(self), &mut changes);
        changes
    }

    /// NodeClaims that have drifted, a line for each.
    pub fn drifted(&self) -> Vec<String> {
        let says = |(name, facts): (&String, &NodeClaimFacts)| {
            facts.drifted.as_ref().map(|said| format!("NodeClaim {name} has the condition Drifted: {said}"))
        };
        self.node_claims.iter().filter_map(says).collect()
    }
}

fn compare<T: PartialEq + std::fmt::Debug>(
    what: &str,
    before: &BTreeMap<String, T>,
    now: &BTreeMap<String, T>,
    changes: &mut Vec<String>,
) {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    for name in names {
        match (before.get(name), now.get(name)) {
            (Some(_), None) => changes.push(format!("{what} {name} is gone")),
            (None, Some(new)) => changes.push(format!("{what} {name} is new: {new:?}")),
            (Some(old), Some(new)) if old != new => {
                changes.push(format!("{what} {name} was {old:?} and is {new:?}"));
            }
            _ => {}
        }
    }
}

fn compare_hashes(whose: &str, before: &Hashes, now: &Hashes, changes: &mut Vec<String>) {
    for (name, (old_version, old)) in before {
        match now.get(name) {
            None => changes.push(format!("{name} of {whose} is gone")),
            Some((version, new)) if version == old_version && new != old => {
                changes.push(format!("{name} ({version}) of {whose} was {old} and is {new}"));
            }
            Some(_) => {}
        }
    }
}

fn present(names: &BTreeSet<String>) -> BTreeMap<String, ()> {
    names.iter().map(|name| (name.clone(), ())).collect()
}

fn uid(metadata: &ObjectMeta) -> String {
    metadata.uid.clone().unwrap_or_default()
}

fn hashes_of(metadata: &ObjectMeta) -> Hashes {
    let annotation = |name: &str| metadata.annotations.as_ref().and_then(|all| all.get(name)).cloned();
    let pairs = HASHES.into_iter();
    pairs.filter_map(|(hash, version)| Some((hash, (annotation(version)?, annotation(hash)?)))).collect()
}

fn facts(claim: &NodeClaim) -> NodeClaimFacts {
    NodeClaimFacts {
        uid: uid(&claim.metadata),
        provider_id: claim.status.as_ref().map(|status| status.provider_id.clone()).unwrap_or_default(),
        hashes: hashes_of(&claim.metadata),
        drifted: claim
            .condition(conditions::DRIFTED)
            .map(|condition| format!("{} ({}: {})", condition.status.as_str(), condition.reason, condition.message)),
    }
}

async fn leases(world: &World) -> anyhow::Result<BTreeMap<String, (String, Option<String>)>> {
    let api = Api::<Lease>::namespaced(world.kube(), LEASE_NAMESPACE);
    let leases = api.list(&ListParams::default()).await?.items.into_iter();
    let of_kubernetes = |lease: &Lease| KUBERNETES_LEASES.iter().any(|name| lease.name_any().starts_with(name));
    Ok(leases
        .filter(|lease| !of_kubernetes(lease))
        .map(|lease| {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
            (lease.name_any(), (uid(&lease.metadata), holder.filter(|holder| !holder.is_empty())))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before() -> Census {
        let facts = NodeClaimFacts {
            uid: "1".into(),
            provider_id: "aws:///us-west-2a/i-1".into(),
            hashes: [(labels::NODE_POOL_HASH_ANNOTATION, ("v3".to_owned(), "17".to_owned()))].into(),
            drifted: None,
        };
        Census {
            node_claims: [("default-a".to_owned(), facts)].into(),
            instances: ["i-1".to_owned()].into(),
            instance_profiles: [("demo_1".to_owned(), Some("Role".to_owned()))].into(),
            leases: [("karpenter-leader-election".to_owned(), ("9".to_owned(), Some("one".to_owned())))].into(),
            ..Census::default()
        }
    }

    #[test]
    fn another_holder_of_the_lease_is_no_change() {
        let mut now = before();
        now.leases.values_mut().for_each(|(_, holder)| *holder = Some("two".into()));
        assert_eq!(now.changes_since(&before()), Vec::<String>::new());
    }

    #[test]
    fn a_hash_of_another_version_is_no_change() {
        let mut now = before();
        let claim = now.node_claims.get_mut("default-a").unwrap();
        claim.hashes.insert(labels::NODE_POOL_HASH_ANNOTATION, ("v4".into(), "18".into()));
        assert_eq!(now.changes_since(&before()), Vec::<String>::new());
        now.node_claims.get_mut("default-a").unwrap().hashes.clear();
        assert_eq!(now.changes_since(&before()), ["karpenter.sh/nodepool-hash of NodeClaim default-a is gone"]);
    }

    #[test]
    fn what_comes_goes_or_changes_is_told() {
        let mut now = before();
        now.instances = ["i-2".to_owned()].into();
        now.leases.insert("other-lock".into(), ("10".into(), None));
        let claim = now.node_claims.get_mut("default-a").unwrap();
        claim.hashes.insert(labels::NODE_POOL_HASH_ANNOTATION, ("v3".into(), "18".into()));
        claim.drifted = Some("True (NodePoolDrifted: NodePoolDrifted)".into());
        let changes = now.changes_since(&before());
        assert_eq!(changes.len(), 5, "{changes:?}");
        assert!(changes[0].starts_with("NodeClaim default-a was ") && changes[0].contains("Drifted"), "{changes:?}");
        assert_eq!(changes[1], "karpenter.sh/nodepool-hash (v3) of NodeClaim default-a was 17 and is 18");
        assert_eq!(changes[2..4], ["instance i-1 is gone", "instance i-2 is new: ()"]);
        assert_eq!(changes[4], "Lease other-lock is new: \"10\"");
        let drifted = "NodeClaim default-a has the condition Drifted: True (NodePoolDrifted: NodePoolDrifted)";
        assert_eq!(now.drifted(), [drifted]);
    }
}
