//! Crashes, second replicas, and things that happen behind the controller's back.

use super::Vocabulary;
use crate::eventually::Seen;
use crate::world::World;
use anyhow::{Context, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("the controller is killed as soon as an instance is launched", |world, _| {
        Box::pin(async move {
            world
                .eventually("an instance is launched", Duration::from_secs(60), async || {
                    let launches = world.launches().await?;
                    Ok(Seen::when(launches > 0, (), || "no launch yet".into()))
                })
                .await?;
            world.backend().kill_controller(0).await
        })
    });
    steps.add("the controller is started again", |world, _| {
        Box::pin(async move { world.backend().start_controller(0).await })
    });
    steps.add("a second replica of the controller runs", |world, _| {
        Box::pin(async move { world.backend().start_controller(1).await })
    });
    steps.add("the leading replica is killed", |world, _| {
        Box::pin(async move {
            let leader = leader(world).await?;
            let replica =
                world.backend().replica_named(&leader).with_context(|| format!("no replica is called {leader}"))?;
            world.former_leader = Some(leader);
            world.backend().kill_controller(replica).await
        })
    });
    steps.add("another replica leads within {duration}", |world, arguments| {
        Box::pin(async move {
            let former = world.former_leader.clone().context("no step killed a leader")?;
            world
                .eventually("the lease has another holder", arguments.duration(0), async || {
                    let now = leader(world).await?;
                    Ok(Seen::when(now != former, (), || format!("the lease is held by {now}")))
                })
                .await
        })
    });
    steps.add("an instance tagged as a node of cluster {string} without NodeClaim", |world, arguments| {
        Box::pin(async move {
            let cluster = arguments.text(0);
            let tags = BTreeMap::from([
                ("karpenter.sh/nodepool".to_owned(), "default".to_owned()),
                ("karpenter.k8s.aws/ec2nodeclass".to_owned(), "default".to_owned()),
                ("eks:eks-cluster-name".to_owned(), cluster.to_owned()),
                (format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned()),
            ]);
            let instance = world.cloud().launch(&tags).await?;
            world.strays.insert(cluster.to_owned(), instance);
            Ok(())
        })
    });
    steps.add("the instance of cluster {string} is terminated", |world, arguments| {
        Box::pin(async move {
            let id = world.strays.get(arguments.text(0)).context("no step launched one")?;
            let state = world.instance(id).await?.state;
            ensure!(matches!(state.as_str(), "shutting-down" | "terminated"), "it is {state}");
            Ok(())
        })
    });
    steps.add("the instance of cluster {string} is running", |world, arguments| {
        Box::pin(async move {
            let id = world.strays.get(arguments.text(0)).context("no step launched one")?;
            let state = world.instance(id).await?.state;
            ensure!(state == "running", "it is {state}");
            Ok(())
        })
    });
    steps.add("the instance is terminated through the EC2 API", |world, _| {
        Box::pin(async move {
            let subject = world.subject().await?;
            world.subject_node_name().await?;
            world.cloud().terminate(&subject.instance).await
        })
    });
    steps.add("the node role has neither access entry nor aws-auth mapping", |world, _| {
        Box::pin(async move { world.cloud().admit_node_role(false).await })
    });
    steps.add("the node role is mapped by aws-auth", |world, _| {
        Box::pin(async move {
            world
                .apply_text(
                    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: aws-auth, namespace: kube-system}\ndata:\n  mapRoles: |\n    \
                     - groups: [system:bootstrappers, system:nodes]\n      rolearn: arn:aws:iam::123456789012:role/KarpenterNodeRole-demo\n      \
                     username: system:node:{{EC2PrivateDNSName}}\n",
                )
                .await
        })
    });
    steps.add("the node role is given an access entry", |world, _| {
        Box::pin(async move { world.cloud().admit_node_role(true).await })
    });
}

/// Who holds the lease of the leader election, once somebody does.
async fn leader(world: &World) -> anyhow::Result<String> {
    world
        .eventually("a replica holds the lease", Duration::from_secs(30), async || {
            let lease =
                Api::<Lease>::namespaced(world.kube(), "kube-system").get_opt("karpenter-leader-election").await?;
            let holder = lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty());
            Ok(holder.map_or_else(|| Seen::NotYet("nobody holds it".into()), Seen::Yes))
        })
        .await
}
