//! What an operator reads: log, events, metrics.

use super::Vocabulary;
use super::stage::refused;
use crate::eventually::Seen;
use crate::recorder::LogLine;
use crate::things::NAMESPACE;
use crate::world::World;
use anyhow::{Context, ensure};
use kube::ResourceExt;

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("the controller logs {string}", |world, arguments| {
        Box::pin(async move { find_log(world, |line| line.message == arguments.text(0)).map(|_| ()) })
    });
    steps.add("the controller logs an error that contains {string}", |world, arguments| {
        Box::pin(async move {
            let told = lines_saying(world, "ERROR", arguments.text(0)).count();
            ensure!(told > 0, "none of the {} log lines reads like that", world.recorder().logs().len());
            Ok(())
        })
    });
    steps.add(
        "the controller logs {string} with the provider-id, instance-type, zone, capacity-type and allocatable of the instance",
        |world, arguments| {
            Box::pin(async move {
                let instance = world.subject_instance().await?;
                let line = find_log(world, |line| line.message == arguments.text(0))?;
                ensure!(line.level == "INFO", "its level is {}", line.level);
                let capacity_type = if instance.spot { "spot" } else { "on-demand" };
                let provider_id = format!("aws:///{}/{}", instance.zone, instance.id);
                let wanted = [
                    ("provider-id", provider_id.as_str()),
                    ("instance-type", &instance.instance_type),
                    ("zone", &instance.zone),
                    ("capacity-type", capacity_type),
                ];
                for (field, value) in wanted {
                    ensure!(line.fields.get(field).map(String::as_str) == Some(value), "{field} is {:?}", line.fields.get(field));
                }
                ensure!(line.fields.get("allocatable").is_some_and(|value| value.contains("cpu")), "no allocatable: {:?}", line.fields);
                Ok(())
            })
        },
    );
    steps.add("within {duration} the controller logs an error that contains {string}", |world, arguments| {
        Box::pin(async move {
            let (limit, text) = (arguments.duration(0), arguments.text(1));
            world
                .eventually("an error in the log", limit, async || {
                    let told = lines_saying(world, "ERROR", text).count();
                    Ok(Seen::when(told > 0, (), || {
                        format!("{} log lines, none of them like that", world.recorder().logs().len())
                    }))
                })
                .await
        })
    });
    steps.add("exactly {integer} warning(s) of the controller's log contain(s) {string}", |world, arguments| {
        Box::pin(async move {
            let told = lines_saying(world, "WARN", arguments.text(1)).count();
            ensure!(told == arguments.integer(0), "{told} do");
            Ok(())
        })
    });
    steps.add("within {duration} event {string} on {word} {string} contains {string}", |world, arguments| {
        Box::pin(async move {
            let [reason, kind, name, text] = [1, 2, 3, 4].map(|index| arguments.text(index));
            world.event_saying(reason, kind, name, text, arguments.duration(0)).await
        })
    });
    steps.add("within {duration} event {string} on the node contains {string}", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node_name().await?;
            world.event_saying(arguments.text(1), "Node", &node, arguments.text(2), arguments.duration(0)).await
        })
    });
    steps.add("within {duration} event {string} on the NodeClaim contains {string}", |world, arguments| {
        Box::pin(async move {
            let claim = world.subject().await?.node_claim;
            world.event_saying(arguments.text(1), "NodeClaim", &claim, arguments.text(2), arguments.duration(0)).await
        })
    });
    steps.add("within {duration} a Warning event on EC2NodeClass {string} contains {string}", |world, arguments| {
        Box::pin(async move {
            let (limit, name, text) = (arguments.duration(0), arguments.text(1), arguments.text(2));
            world.warning("EC2NodeClass", |object| object == name, text, limit).await
        })
    });
    steps.add("within {duration} a Warning event on a NodeClaim contains {string}", |world, arguments| {
        Box::pin(async move { world.warning("NodeClaim", |_| true, arguments.text(1), arguments.duration(0)).await })
    });
    steps.add(
        "within {duration} a Warning event on a pod of Deployment {string} contains {string}",
        |world, arguments| {
            Box::pin(async move {
                let pods: Vec<String> =
                    world.pods_of_deployment(arguments.text(1)).await?.iter().map(ResourceExt::name_any).collect();
                ensure!(!pods.is_empty(), "the Deployment has no pods in namespace {NAMESPACE}");
                world
                    .warning(
                        "Pod",
                        |object| pods.iter().any(|pod| pod == object),
                        arguments.text(2),
                        arguments.duration(0),
                    )
                    .await
            })
        },
    );
    steps.add("changing {string} of the manifest {string} to {string} is refused with {string}", |world, arguments| {
        Box::pin(async move {
            let change = (arguments.text(0), arguments.text(2));
            refused(world.apply_changed(arguments.text(1), &[change]).await, arguments.text(3))
        })
    });
    steps.add("changing {string} of the manifest {string} to {string} is accepted", |world, arguments| {
        Box::pin(async move { world.apply_changed(arguments.text(1), &[(arguments.text(0), arguments.text(2))]).await })
    });
    steps.add("metric {string} is {number}", |world, arguments| {
        Box::pin(async move { metric(world, arguments.text(0), &[], arguments.number(1)).await })
    });
    steps.add("metric {string} is at least {number}", |world, arguments| {
        Box::pin(async move {
            let sum = metric_sum(world, arguments.text(0), &[]).await?;
            ensure!(sum >= arguments.number(1), "it is {sum}");
            Ok(())
        })
    });
    steps.add("metric {string} is at most {number}", |world, arguments| {
        Box::pin(async move {
            let sum = metric_sum(world, arguments.text(0), &[]).await?;
            ensure!(sum <= arguments.number(1), "it is {sum}");
            Ok(())
        })
    });
    steps.add("metric {string} of NodePool {string} with resource_type {string} is {number}", |world, arguments| {
        Box::pin(async move {
            let labels = [("nodepool", arguments.text(1)), ("resource_type", arguments.text(2))];
            metric(world, arguments.text(0), &labels, arguments.number(3)).await
        })
    });
    steps.add("metric {string} with message_type {string} is {number}", |world, arguments| {
        Box::pin(async move {
            metric(world, arguments.text(0), &[("message_type", arguments.text(1))], arguments.number(2)).await
        })
    });
    steps.add("metric {string} with code {string} is at least {number}", |world, arguments| {
        Box::pin(async move {
            let sum = metric_sum(world, arguments.text(0), &[("code", arguments.text(1))]).await?;
            ensure!(sum >= arguments.number(2), "it is {sum}");
            Ok(())
        })
    });
    steps.add("the controller logs in this order", |world, arguments| {
        Box::pin(async move {
            let wanted: Vec<&String> = arguments.table.iter().flatten().collect();
            ensure!(!wanted.is_empty(), "the step has no table of sentences");
            let logs = world.recorder().logs();
            let mut lines = logs.iter();
            for sentence in wanted {
                let told = lines.any(|line| line.message == *sentence);
                ensure!(told, "{sentence:?} is not in the log, or not after the sentences before it");
            }
            Ok(())
        })
    });
    steps.add("metric {string} with reason {string} is {number}", |world, arguments| {
        Box::pin(async move {
            metric(world, arguments.text(0), &[("reason", arguments.text(1))], arguments.number(2)).await
        })
    });
    steps.add("metric {string} with decision {string} and reason {string} is {number}", |world, arguments| {
        Box::pin(async move {
            let labels = [("decision", arguments.text(1)), ("reason", arguments.text(2))];
            metric(world, arguments.text(0), &labels, arguments.number(3)).await
        })
    });
}

/// The lines of the log at this level that contain the text, in their sentence or in a field.
fn lines_saying(world: &World, level: &str, text: &str) -> impl Iterator<Item = LogLine> {
    world.recorder().logs().into_iter().filter(move |line| {
        let all = line.fields.values().fold(line.message.clone(), |all, field| all + " " + field);
        line.level == level && all.contains(text)
    })
}

fn find_log(world: &World, wanted: impl Fn(&LogLine) -> bool) -> anyhow::Result<LogLine> {
    let logs = world.recorder().logs();
    let count = logs.len();
    logs.into_iter().rfind(wanted).with_context(|| format!("none of the {count} log lines reads like that"))
}

/// Compares the sum of a metric's series that carry the labels.
async fn metric(world: &World, name: &str, labels: &[(&str, &str)], wanted: f64) -> anyhow::Result<()> {
    let sum = metric_sum(world, name, labels).await?;
    ensure!((sum - wanted).abs() < 1e-9, "it is {sum}");
    Ok(())
}

async fn metric_sum(world: &World, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<f64> {
    let text = world.metrics().await?;
    let series = text.lines().filter(|line| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']));
        rest.is_some_and(|rest| labels.iter().all(|(key, value)| rest.contains(&format!("{key}=\"{value}\""))))
    });
    let number = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
    let values: Vec<f64> =
        series.map(|line| number(line).with_context(|| format!("no number in {line:?}"))).collect::<Result<_, _>>()?;
    ensure!(!values.is_empty(), "there is no such series");
    Ok(values.iter().sum())
}
