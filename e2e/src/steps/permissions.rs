//! What the controller is allowed, and how it comes to be.

use super::Vocabulary;
use crate::world::World;
use anyhow::ensure;

/// Calls that make what policies know by its tags.
const TAGGED: [&str; 3] = ["ec2:CreateFleet", "ec2:RunInstances", "ec2:CreateLaunchTemplate"];

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add(
        "every launch and launch template carries the tags {string}, {string} and {string}",
        |world, arguments| {
            Box::pin(async move {
                let calls = world.cloud().calls().await?;
                let made: Vec<_> = calls.iter().filter(|call| TAGGED.contains(&call.name.as_str())).collect();
                ensure!(!made.is_empty(), "nothing was launched");
                for call in made {
                    for tag in [0, 1, 2].map(|index| arguments.text(index)) {
                        let carried = call.ending(".Key").any(|(_, key)| key == tag);
                        ensure!(carried, "{} at {} has no tag {tag}: {:?}", call.name, call.at, call.parameters);
                    }
                }
                Ok(())
            })
        },
    );
    steps.add("no call of the controller was refused", |world, _| {
        Box::pin(async move {
            let calls = world.cloud().calls().await?;
            let refused: Vec<_> = calls.iter().filter(|call| call.status == 403).map(|call| &call.answer).collect();
            ensure!(refused.is_empty(), "{refused:?}");
            Ok(())
        })
    });
    steps.add("the cluster's OIDC provider is not associated with the account", |world, _| {
        Box::pin(async move { world.cloud().associate_oidc_provider(false).await })
    });
    steps.add("the cluster's OIDC provider is associated with the account", |world, _| {
        Box::pin(async move { world.cloud().associate_oidc_provider(true).await })
    });
    steps.add("the controller's log names {string} and {string}", |world, arguments| {
        Box::pin(async move {
            let names = [0, 1].map(|index| arguments.text(index));
            let lines: Vec<String> = world.recorder().logs().iter().map(line).collect();
            let found = lines.iter().any(|line| names.iter().all(|name| line.contains(name)));
            ensure!(found, "no line does: {}", lines.join("\n"));
            Ok(())
        })
    });
    steps.add("no access key stands in the controller's environment", |world, _| {
        Box::pin(async move { no_access_key(world) })
    });
}

fn line(line: &crate::recorder::LogLine) -> String {
    let fields: Vec<String> = line.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{} {}", line.message, fields.join(" "))
}

fn no_access_key(world: &mut World) -> anyhow::Result<()> {
    let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
    let found: Vec<&str> =
        keys.into_iter().filter(|key| world.backend().environment().get(*key).is_some_and(|v| !v.is_empty())).collect();
    ensure!(found.is_empty(), "it has {}", found.join(", "));
    Ok(())
}
