//! What EC2 runs out of, and calls that it does not carry out.

use super::Vocabulary;
use super::capacity::overrides;
use crate::world::World;
use anyhow::ensure;

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("type {string} cannot be had in zone {string}", |world, arguments| {
        Box::pin(async move { both_markets(world, arguments.text(0), arguments.text(1), true).await })
    });
    steps.add("type {string} can be had in zone {string} again", |world, arguments| {
        Box::pin(async move { both_markets(world, arguments.text(0), arguments.text(1), false).await })
    });
    steps.add("type {string} has no spot price in zone {string}", |world, arguments| {
        Box::pin(async move { world.cloud().withdraw_spot(arguments.text(0), arguments.text(1)).await })
    });
    steps.add("the subnet in zone {string} has {integer} free address(es)", |world, arguments| {
        Box::pin(async move {
            world.cloud().set_free_addresses(arguments.text(0), u32::try_from(arguments.integer(1))?).await
        })
    });
    steps.add("EC2 action {string} fails with {string}", |world, arguments| {
        Box::pin(async move {
            let (action, code) = (arguments.text(0), arguments.text(1));
            world.cloud().fail(action, code, status_of(code), None).await
        })
    });
    steps.add("the first {integer} calls of EC2 action {string} fail with {string}", |world, arguments| {
        Box::pin(async move {
            let (action, code) = (arguments.text(1), arguments.text(2));
            world.cloud().fail(action, code, status_of(code), Some(arguments.integer(0))).await
        })
    });
    steps.add("EC2 carries out every call again", |world, _| Box::pin(async move { world.cloud().heal().await }));
    steps.add("every fleet request names types and subnets", |world, _| {
        Box::pin(async move {
            let mut launches = 0;
            for call in world.cloud().calls().await?.iter().filter(|call| call.is_launch()) {
                launches += 1;
                let (types, subnets) = (call.ending(".InstanceType").count(), call.ending(".SubnetId").count());
                ensure!(types > 0 && types == subnets, "the one at {} has {types} types, {subnets} subnets", call.at);
            }
            ensure!(launches > 0, "EC2 was never asked for an instance");
            Ok(())
        })
    });
    steps.add("no fleet request offers type {string} in zone {string}", |world, arguments| {
        Box::pin(async move {
            let (kind, zone) = (arguments.text(0), arguments.text(1));
            let calls = world.cloud().calls().await?;
            let launches: Vec<_> = calls.iter().filter(|call| call.is_launch()).collect();
            ensure!(!launches.is_empty(), "EC2 was never asked for an instance");
            for call in launches {
                ensure!(!overrides(call).any(|pair| pair == (kind, zone)), "the one at {} does", call.at);
            }
            Ok(())
        })
    });
    steps.add("EC2 action {string} was called between {integer} and {integer} times", |world, arguments| {
        Box::pin(async move {
            let name = format!("ec2:{}", arguments.text(0));
            let calls = world.cloud().calls().await?;
            let count = calls.iter().filter(|call| call.name == name).count();
            ensure!((arguments.integer(1)..=arguments.integer(2)).contains(&count), "it was called {count} times");
            Ok(())
        })
    });
    steps.add("the instance runs in zone {string}", |world, arguments| {
        Box::pin(async move {
            let instance = world.subject_instance().await?;
            ensure!(instance.zone == arguments.text(0), "it runs in {}", instance.zone);
            Ok(())
        })
    });
}

async fn both_markets(world: &World, instance_type: &str, zone: &str, exhausted: bool) -> anyhow::Result<()> {
    for market in ["spot", "on-demand"] {
        world.cloud().exhaust(instance_type, zone, market, exhausted).await?;
    }
    Ok(())
}

/// The HTTP status that EC2 sends with a code.
fn status_of(code: &str) -> u16 {
    match code {
        "InternalError" => 500,
        "RequestLimitExceeded" | "Unavailable" => 503,
        _ => 400,
    }
}
