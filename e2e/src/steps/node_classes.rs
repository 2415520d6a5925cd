//! EC2NodeClasses and what their selectors find.

use super::Vocabulary;
use crate::eventually::Seen;
use crate::things::{condition, conditions_of};
use crate::world::World;
use anyhow::{Context, ensure};
use controller_api::Ec2NodeClass;
use kube::Api;
use kube::api::DeleteParams;

/// The tag that the guides put on subnets and security groups.
const DISCOVERY: &str = "karpenter.sh/discovery";

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("the subnets carry the discovery tag with value {string}", |world, arguments| {
        Box::pin(async move { world.cloud().tag_subnets(DISCOVERY, arguments.text(0)).await })
    });
    steps.add("the security group carries the discovery tag with value {string}", |world, arguments| {
        Box::pin(async move { world.cloud().tag_security_group(DISCOVERY, arguments.text(0)).await })
    });
    steps.add("the subnet in zone {string} carries the discovery tag with value {string}", |world, arguments| {
        Box::pin(async move { world.cloud().tag_subnet_in(arguments.text(0), DISCOVERY, arguments.text(1)).await })
    });
    steps.add("somebody deletes EC2NodeClass {string}", |world, arguments| {
        Box::pin(async move {
            Api::<Ec2NodeClass>::all(world.kube()).delete(arguments.text(0), &DeleteParams::default()).await?;
            Ok(())
        })
    });
    steps.add("EC2NodeClass {string} still exists", |world, arguments| {
        Box::pin(async move { class(world, arguments.text(0)).await.map(drop) })
    });
    steps.add("EC2NodeClass {string} is gone within {duration}", |world, arguments| {
        Box::pin(async move {
            let classes = Api::<Ec2NodeClass>::all(world.kube());
            world
                .eventually("the EC2NodeClass is gone", arguments.duration(1), async || {
                    let class = classes.get_opt(arguments.text(0)).await?;
                    Ok(Seen::when(class.is_none(), (), || format!("{:?}", class.map(|class| class.metadata))))
                })
                .await
        })
    });
    steps.add("no instance profile is left", |world, _| {
        Box::pin(async move {
            let left = world.cloud().instance_profiles().await?;
            ensure!(left.is_empty(), "there are {left:?}");
            Ok(())
        })
    });
    steps.add("images of release {string} are published", |world, arguments| {
        Box::pin(async move { world.cloud().release_images(arguments.text(0)).await })
    });
    steps.add("condition {string} of EC2NodeClass {string} is {string}", |world, arguments| {
        Box::pin(
            async move { class_condition(world, arguments.text(1), arguments.text(0), arguments.text(2), None).await },
        )
    });
    steps.add("condition {string} of EC2NodeClass {string} is {string} with reason {string}", |world, arguments| {
        Box::pin(async move {
            let why = Some((arguments.text(3), None));
            class_condition(world, arguments.text(1), arguments.text(0), arguments.text(2), why).await
        })
    });
    steps.add(
        "condition {string} of EC2NodeClass {string} is {string} with reason {string} and message {string}",
        |world, arguments| {
            Box::pin(async move {
                let why = Some((arguments.text(3), Some(arguments.text(4))));
                class_condition(world, arguments.text(1), arguments.text(0), arguments.text(2), why).await
            })
        },
    );
    steps.add("status.subnets of EC2NodeClass {string} has {integer} entries within {duration}", |world, arguments| {
        Box::pin(async move {
            let (name, count) = (arguments.text(0), arguments.integer(1));
            world
                .eventually(&format!("status.subnets has {count} entries"), arguments.duration(2), async || {
                    let class = class(world, name).await?;
                    let found = class.status.as_ref().map_or(0, |status| status.subnets.len());
                    Ok(Seen::when(found == count, (), || conditions_of(&class)))
                })
                .await
        })
    });
    steps.add(
        "status.securityGroups of EC2NodeClass {string} has {integer} entry within {duration}",
        |world, arguments| {
            Box::pin(async move {
                let (name, count) = (arguments.text(0), arguments.integer(1));
                world
                    .eventually(
                        &format!("status.securityGroups has {count} entries"),
                        arguments.duration(2),
                        async || {
                            let class = class(world, name).await?;
                            let found = class.status.as_ref().map_or(0, |status| status.security_groups.len());
                            Ok(Seen::when(found == count, (), || conditions_of(&class)))
                        },
                    )
                    .await
            })
        },
    );
}

async fn class(world: &World, name: &str) -> anyhow::Result<Ec2NodeClass> {
    Ok(Api::<Ec2NodeClass>::all(world.kube()).get(name).await?)
}

async fn class_condition(
    world: &World,
    name: &str,
    kind: &str,
    status: &str,
    why: Option<(&str, Option<&str>)>,
) -> anyhow::Result<()> {
    let class = class(world, name).await?;
    let found =
        condition(&class, kind).with_context(|| format!("there is no such condition: {}", conditions_of(&class)))?;
    let as_said = why.is_none_or(|(reason, message)| {
        found.reason == reason && message.is_none_or(|message| found.message == message)
    });
    ensure!(found.status.as_str() == status && as_said, "{}", conditions_of(&class));
    Ok(())
}
