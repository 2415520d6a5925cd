//! Another controller that takes over the cluster.

use super::Vocabulary;
use crate::compatibility::Census;
use crate::eventually::{NotInTime, Seen};
use crate::things::conditions_of;
use crate::world::World;
use anyhow::{Context, ensure};
use controller_api::{Ec2NodeClass, HasConditions as _, NodeClaim, NodePool, conditions};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use std::time::Duration;

/// The lease of the leader election, by which every release of Karpenter has known its leader.
const LEASE: &str = "karpenter-leader-election";

/// How long a launch may take.
const LAUNCHED_WITHIN: Duration = Duration::from_secs(60);

/// How often what must stay is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the annotations with the hashes of NodePool and EC2NodeClass begin with; a NodeClaim's labels with their names too.
const HASHED: [&str; 2] = ["karpenter.sh/nodepool", "karpenter.k8s.aws/ec2nodeclass"];

/// What a claim carries whose hash nobody can compute any more.
const OLD_VERSION: &str = "v0";

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("the other controller takes over", |world, _| {
        Box::pin(async move {
            world.census = Some(Census::take(world).await?);
            world.backend().replace_controller().await
        })
    });
    steps.add("the other controller takes over as soon as {integer} instances are launched", |world, arguments| {
        Box::pin(async move {
            let wanted = arguments.integer(0);
            world
                .eventually(&format!("{wanted} instances are launched"), LAUNCHED_WITHIN, async || {
                    let instances = world.cloud().instances().await?;
                    Ok(Seen::when(instances.len() >= wanted, (), || format!("there are {}", instances.len())))
                })
                .await?;
            world.census = Some(Census::take(world).await?);
            world.backend().replace_controller().await
        })
    });
    steps.add("all NodeClaims are settled within {duration}", |world, arguments| {
        Box::pin(async move {
            world
                .eventually("all NodeClaims are settled", arguments.duration(0), async || {
                    let claims = world.node_claims().await?;
                    let unsettled: Vec<String> =
                        claims.iter().filter(|claim| !is_settled(claim)).map(conditions_of).collect();
                    Ok(Seen::when(unsettled.is_empty(), (), || unsettled.join("; ")))
                })
                .await
        })
    });
    steps.add("it leads by the same lease within {duration}", |world, arguments| {
        Box::pin(async move {
            let before = before(world)?;
            let (uid, former) = before.leases.get(LEASE).with_context(|| format!("nobody held the lease {LEASE}"))?;
            let former = former.as_ref().with_context(|| format!("nobody held the lease {LEASE}"))?;
            world
                .eventually("the lease has another holder", arguments.duration(0), async || {
                    let now = Census::take(world).await?.leases;
                    let mut leases = now.iter();
                    let led = match (leases.next(), leases.next()) {
                        (Some((name, (now, Some(holder)))), None) => name == LEASE && now == uid && holder != former,
                        _ => false,
                    };
                    Ok(Seen::when(led, (), || format!("the leases are {now:?}; {former} held {LEASE} ({uid})")))
                })
                .await
        })
    });
    steps.add("nothing has drifted or been replaced for {duration}", |world, arguments| {
        Box::pin(async move {
            let before = before(world)?;
            stays(world, before, arguments.duration(0)).await
        })
    });
    steps.add("nothing drifts or is replaced for {duration}", |world, arguments| {
        Box::pin(async move {
            let before = Census::take(world).await?;
            stays(world, &before, arguments.duration(0)).await
        })
    });
    steps.add("no launch template is left within {duration}", |world, arguments| {
        Box::pin(async move {
            world
                .eventually("every launch template is deleted", arguments.duration(0), async || {
                    let left = world.cloud().launch_templates().await?;
                    Ok(Seen::when(left.is_empty(), (), || format!("there are {left:?}")))
                })
                .await
        })
    });
    steps.add("every instance profile is one that an EC2NodeClass uses", |world, _| {
        Box::pin(async move {
            let classes = world.list::<Ec2NodeClass>().await?;
            let used: Vec<_> =
                classes.iter().filter_map(|class| Some(class.status.as_ref()?.instance_profile.clone())).collect();
            let profiles = world.cloud().instance_profiles().await?;
            let unused: Vec<_> = profiles.keys().filter(|name| !used.contains(name)).collect();
            ensure!(unused.is_empty(), "nobody uses {unused:?}; the classes use {used:?}");
            Ok(())
        })
    });
    steps.add("all hashes are of a version that is no longer known", |world, _| {
        Box::pin(async move {
            // The claims first: they are hashed anew when their pool or class is.
            for name in HASHED {
                outdate::<NodeClaim>(world, name).await?;
            }
            outdate::<NodePool>(world, HASHED[0]).await?;
            outdate::<Ec2NodeClass>(world, HASHED[1]).await?;
            Ok(())
        })
    });
    steps.add(
        "every NodeClaim carries the hashes of its NodePool and EC2NodeClass within {duration}",
        |world, arguments| {
            Box::pin(async move {
                world
                    .eventually("every NodeClaim carries the hashes", arguments.duration(0), async || {
                        let stale = stale(world).await?;
                        Ok(Seen::when(stale.is_empty(), (), || stale.join("; ")))
                    })
                    .await
            })
        },
    );
    steps.add("{integer} node(s) of before are still there", |world, arguments| {
        Box::pin(async move {
            let before = before(world)?;
            let nodes = world.list::<Node>().await?;
            let known = nodes.iter().filter(|node| {
                before.nodes.get(&node.name_any()).is_some_and(|uid| Some(uid) == node.metadata.uid.as_ref())
            });
            let known = known.count();
            ensure!(known == arguments.integer(0), "of {} nodes {known} are of before", nodes.len());
            Ok(())
        })
    });
}

fn before(world: &World) -> anyhow::Result<&Census> {
    world.census.as_ref().context("no other controller has taken over yet")
}

/// Nothing drifts, comes or goes for so long.
async fn stays(world: &World, before: &Census, limit: Duration) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + limit;
    while tokio::time::Instant::now() < deadline {
        let now = Census::take(world).await?;
        let changes = [now.drifted(), now.changes_since(before)].concat();
        if !changes.is_empty() {
            // Not an error that another look may put right.
            let expected = "nothing drifts, comes or goes".to_owned();
            let late = NotInTime { expected, limit, last_seen: changes.join("; ") };
            world.observe(&late.last_seen);
            return Err(late.into());
        }
        world.pass(LOOK_EVERY).await;
    }
    Ok(())
}

/// Initialized, and known in EC2 by its node's name: whatever a launch brings with it is done.
fn is_settled(claim: &NodeClaim) -> bool {
    let tagged = claim.annotations().get("karpenter.k8s.aws/tagged").is_some_and(|value| value == "true");
    claim.metadata.deletion_timestamp.is_none() && claim.is_true(&[conditions::READY]) && tagged
}

/// Gives all objects of a kind a hash, and a version of it, that no release computes.
async fn outdate<K>(world: &World, name: &str) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let annotations = json!({format!("{name}-hash"): "17", format!("{name}-hash-version"): OLD_VERSION});
    let patch = json!({"metadata": {"annotations": annotations}});
    for object in world.list::<K>().await? {
        let api = Api::<K>::all(world.kube());
        api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    Ok(())
}

/// NodeClaims whose hashes are not those of their NodePool and EC2NodeClass, a line for each.
async fn stale(world: &World) -> anyhow::Result<Vec<String>> {
    let mut hashes = Vec::new();
    for pool in world.list::<NodePool>().await? {
        hashes.push((pool.name_any(), HASHED[0], pool.annotations().clone()));
    }
    for class in world.list::<Ec2NodeClass>().await? {
        hashes.push((class.name_any(), HASHED[1], class.annotations().clone()));
    }
    let mut stale = Vec::new();
    for claim in world.node_claims().await? {
        for (owner, name, theirs) in &hashes {
            if claim.labels().get(*name) != Some(owner) {
                continue;
            }
            for annotation in [format!("{name}-hash"), format!("{name}-hash-version")] {
                let (wanted, found) = (theirs.get(&annotation), claim.annotations().get(&annotation));
                if wanted != found || found.is_some_and(|value| value == OLD_VERSION) {
                    stale.push(format!(
                        "{annotation} of NodeClaim {} is {found:?}, {owner} has {wanted:?}",
                        claim.name_any()
                    ));
                }
            }
        }
    }
    Ok(stale)
}
