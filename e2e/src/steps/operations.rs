//! What an operator reads: log, events, metrics.

use super::Vocabulary;
use crate::recorder::LogLine;
use crate::things::NAMESPACE;
use crate::world::World;
use anyhow::{Context, ensure};
use kube::ResourceExt;
use serde_json::{Map, Value};

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("the controller logs {string}", |world, arguments| {
        Box::pin(async move { find_log(world, |line| line.message == arguments.text(0)).map(|_| ()) })
    });
    steps.add("the controller logs an error that contains {string}", |world, arguments| {
        Box::pin(async move {
            let told = |line: &LogLine| {
                let text = line.fields.values().fold(line.message.clone(), |text, field| text + " " + field);
                line.level == "ERROR" && text.contains(arguments.text(0))
            };
            find_log(world, told).map(|_| ())
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
            refused(world, arguments.text(1), arguments.text(0), arguments.text(2), arguments.text(3)).await
        })
    });
    steps.add("changing {string} of the manifest {string} to {string} is accepted", |world, arguments| {
        Box::pin(async move { apply_changed(world, arguments.text(1), arguments.text(0), arguments.text(2)).await })
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

/// Applies a manifest with one field changed, or taken away where the value is `null`.
async fn apply_changed(world: &World, file: &str, path: &str, value: &str) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(world.manifest(file)).with_context(|| format!("cannot read the manifest {file}"))?;
    let mut object: Value = serde_yaml_ng::from_str(&text)?;
    let (parents, last) = path.rsplit_once('.').with_context(|| format!("{path} has no parent"))?;
    let mut fields = &mut object;
    for part in parents.split('.') {
        let inner =
            fields.as_object_mut().with_context(|| format!("{path} leads through something that is no object"))?;
        fields = inner.entry(part).or_insert_with(|| Value::Object(Map::new()));
    }
    let fields = fields.as_object_mut().with_context(|| format!("the parent of {path} is no object"))?;
    match serde_yaml_ng::from_str(value)? {
        Value::Null => drop(fields.remove(last)),
        value => drop(fields.insert(last.to_owned(), value)),
    }
    world.apply(serde_json::from_value(object)?).await.map(|_| ())
}

/// Applies a manifest with one field changed and expects the API server to refuse it.
async fn refused(world: &World, file: &str, path: &str, value: &str, message: &str) -> anyhow::Result<()> {
    match apply_changed(world, file, path, value).await {
        Ok(()) => anyhow::bail!("it was accepted"),
        Err(error) => {
            let told = format!("{error:#}");
            ensure!(told.contains(message), "it was refused with: {told}");
            Ok(())
        }
    }
}
