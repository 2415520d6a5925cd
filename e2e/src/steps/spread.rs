//! Pods spread over domains, and where they and their nodes end up.

use super::Vocabulary;
use crate::eventually::Seen;
use crate::params::Arguments;
use crate::things::{NAMESPACE, is_pending, is_running, node_of};
use crate::world::World;
use anyhow::{Context, ensure};
use controller_api::{NodeClaim, labels};
use controller_core::quantity::Quantity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add(
        "a Deployment {string} of {integer} pods that ask for {quantity} CPU is created, spread by",
        |world, arguments| Box::pin(async move { create(world, &arguments, json!({})).await }),
    );
    steps.add(
        "a Deployment {string} of {integer} pods that ask for {quantity} CPU is created for NodePool {string}, spread by",
        |world, arguments| {
            Box::pin(async move {
                let spec = json!({"nodeSelector": {labels::NODE_POOL_LABEL: arguments.text(3)}});
                create(world, &arguments, spec).await
            })
        },
    );
    steps.add(
        "a Deployment {string} of {integer} pods that ask for {quantity} CPU is created for NodePool {string} and zones {string} and {string}, spread by",
        |world, arguments| {
            Box::pin(async move {
                let zones = json!({"key": labels::ZONE_LABEL, "operator": "In", "values": [arguments.text(4), arguments.text(5)]});
                let required = json!({"nodeSelectorTerms": [{"matchExpressions": [zones]}]});
                let spec = json!({
                    "nodeSelector": {labels::NODE_POOL_LABEL: arguments.text(3)},
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
                });
                create(world, &arguments, spec).await
            })
        },
    );
    steps.add("a pod {string} that asks for {quantity} memory is created", |world, arguments| {
        Box::pin(async move {
            world
                .apply_text(&format!(
                    "apiVersion: v1\nkind: Pod\nmetadata: {{name: {}, namespace: {NAMESPACE}}}\nspec:\n  containers:\n  - name: main\n    \
                     image: nginx\n    resources: {{requests: {{memory: {}}}}}\n",
                    arguments.text(0),
                    arguments.text(1)
                ))
                .await
        })
    });
    steps.add(
        "{integer} NodeClaims are launched in {integer} different zones within {duration}",
        |world, arguments| {
            Box::pin(async move {
                let (count, zones) = (arguments.integer(0), arguments.integer(1));
                let expected = format!("{count} NodeClaims are launched in {zones} zones");
                world
                    .eventually(&expected, arguments.duration(2), async || {
                        let claims = world.node_claims().await?;
                        let seen: Vec<Option<&String>> = claims.iter().map(zone_of_launched).collect();
                        let different: BTreeSet<&String> = seen.iter().copied().flatten().collect();
                        let holds = seen.len() == count && !seen.contains(&None) && different.len() == zones;
                        Ok(Seen::when(holds, (), || format!("{seen:?}")))
                    })
                    .await
            })
        },
    );
    steps.add(
        "all {integer} pods of Deployment {string} are Running within {duration}, {integer} in each of {integer} zones",
        |world, arguments| {
            Box::pin(async move {
                run(world, &arguments, arguments.duration(2)).await?;
                spread_evenly(world, &arguments).await
            })
        },
    );
    steps.add(
        "all {integer} pods of Deployment {string} are Running within {duration} of the first Pending one, {integer} in each of {integer} zones",
        |world, arguments| {
            Box::pin(async move {
                let passed = Duration::try_from(world.now().duration_since(first_created(world, arguments.text(1)).await?))?;
                let left = arguments.duration(2).checked_sub(passed).context("that time has passed already")?;
                run(world, &arguments, left).await?;
                spread_evenly(world, &arguments).await
            })
        },
    );
    steps.add(
        "all {integer} pods of Deployment {string} are Running within {duration}, at most {integer} on a node",
        |world, arguments| {
            Box::pin(async move {
                run(world, &arguments, arguments.duration(2)).await?;
                let counts = by_label(world, arguments.text(1), labels::HOSTNAME_LABEL).await?;
                ensure!(counts.values().all(|count| *count <= arguments.integer(3)), "they run on {counts:?}");
                Ok(())
            })
        },
    );
    steps.add("the pods of Deployment {string} run where the label {string} has", |world, arguments| {
        Box::pin(async move {
            let (header, rows) = arguments.table.split_first().context("the step needs a table")?;
            ensure!(header == &["value", "pods"], "the table's columns are value and pods");
            let wanted = rows.iter().map(|row| Ok((row[0].clone(), row[1].parse()?)));
            let wanted: BTreeMap<String, usize> = wanted.collect::<anyhow::Result<_>>()?;
            let counts = by_label(world, arguments.text(0), arguments.text(1)).await?;
            ensure!(counts == wanted, "they run in {counts:?}");
            Ok(())
        })
    });
    steps.add(
        "within {duration} {integer} pods of Deployment {string} are Running and {integer} is Pending",
        |world, arguments| {
            Box::pin(async move {
                let expected = format!("{} pods run and {} wait", arguments.integer(1), arguments.integer(3));
                world
                    .eventually(&expected, arguments.duration(0), async || {
                        let pods = world.pods_of_deployment(arguments.text(2)).await?;
                        let running = pods.iter().filter(|pod| is_running(pod)).count();
                        let pending = pods.iter().filter(|pod| is_pending(pod)).count();
                        let holds = (running, pending) == (arguments.integer(1), arguments.integer(3));
                        Ok(Seen::when(holds, (), || format!("{running} run and {pending} wait")))
                    })
                    .await
            })
        },
    );
    steps.add("a Pending pod of Deployment {string} is told {string}", |world, arguments| {
        Box::pin(async move {
            let pods = world.pods_of_deployment(arguments.text(0)).await?;
            let waiting: BTreeSet<String> = pods.iter().filter(|pod| is_pending(pod)).map(Pod::name_any).collect();
            let is_waiting = |name: &str| waiting.contains(name);
            world.warning("Pod", is_waiting, arguments.text(1), Duration::from_secs(30)).await
        })
    });
    steps.add(
        "EC2 was asked for the first instance within {duration} of the first Pending pod of Deployment {string}",
        |world, arguments| {
            Box::pin(async move {
                let first = first_created(world, arguments.text(1)).await?;
                asked_within(world, first, arguments.duration(0)).await
            })
        },
    );
    steps.add("pod {string} is Running within {duration} on a node launched for it", |world, arguments| {
        Box::pin(async move {
            let (name, limit) = (arguments.text(0), arguments.duration(1));
            let node = world
                .eventually(&format!("pod {name} is Running"), limit, async || {
                    let pod = world.pod(name).await?;
                    let node = node_of(&pod).filter(|_| is_running(&pod)).map(str::to_owned);
                    Ok(Seen::when(node.is_some(), node.unwrap_or_default(), || format!("{:?}", pod.status)))
                })
                .await?;
            let created = world.pod(name).await?.metadata.creation_timestamp.context("a pod has a creation time")?;
            let claims = world.node_claims().await?;
            let on_node = |claim: &&NodeClaim| claim.status.as_ref().is_some_and(|status| status.node_name == node);
            let claim = claims.iter().find(on_node).with_context(|| format!("no NodeClaim has node {node}"))?;
            let launched = claim.metadata.creation_timestamp.as_ref().context("a NodeClaim has a creation time")?;
            ensure!(launched.0 >= created.0, "{} is from {}, the pod from {}", claim.name_any(), launched.0, created.0);
            let others = world.workload_pods_on(&node).await?;
            ensure!(others.len() == 1, "{} pods run on {node}", others.len());
            world.set_launched(claim).await?;
            Ok(())
        })
    });
    steps.add("the node has at least {quantity} of memory for pods", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node().await?.context("the NodeClaim has no node")?;
            let memory = amount(&node, "memory")?;
            ensure!(memory >= arguments.text(0).parse()?, "it has {memory}");
            Ok(())
        })
    });
    steps.add("the node has at least {quantity} of memory for each CPU", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node().await?.context("the NodeClaim has no node")?;
            let per_cpu: Quantity = arguments.text(0).parse()?;
            let (memory, cpu) = (amount(&node, "memory")?, amount(&node, "cpu")?);
            let ratio = memory.nanos() as f64 / cpu.nanos() as f64;
            ensure!(ratio >= per_cpu.nanos() as f64 / 1e9, "it has {memory} for {cpu} CPUs");
            Ok(())
        })
    });
}

/// Creates a Deployment whose pods are spread as the table says: one constraint per row, the columns named for its fields.
async fn create(world: &World, arguments: &Arguments, mut spec: Value) -> anyhow::Result<()> {
    let (name, replicas, cpu) = (arguments.text(0), arguments.integer(1), arguments.text(2));
    let (header, rows) = arguments.table.split_first().context("the step needs a table of constraints")?;
    let selector = json!({"matchLabels": {"app": name}});
    let constraints = rows.iter().map(|row| {
        let cells = header.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
        let field = |cell: &String| cell.parse::<i64>().map_or_else(|_| json!(cell), |number| json!(number));
        let mut constraint: serde_json::Map<String, Value> =
            cells.map(|(column, cell)| (column.clone(), field(cell))).collect();
        constraint.insert("labelSelector".into(), selector.clone());
        Value::from(constraint)
    });
    spec["topologySpreadConstraints"] = constraints.collect();
    spec["containers"] = json!([{"name": "main", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}]);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "selector": selector,
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    });
    world.apply_text(&deployment.to_string()).await
}

/// The first two parameters are how many pods, and of which Deployment.
async fn run(world: &World, arguments: &Arguments, limit: Duration) -> anyhow::Result<()> {
    let (count, name) = (arguments.integer(0), arguments.text(1));
    let expected = format!("{count} pods of Deployment {name} are Running");
    world.eventually(&expected, limit, async || world.running_pods(name, count, None).await).await?;
    Ok(())
}

/// The fourth parameter is how many pods run in each zone, the fifth how many zones there are.
async fn spread_evenly(world: &World, arguments: &Arguments) -> anyhow::Result<()> {
    let counts = by_label(world, arguments.text(1), labels::ZONE_LABEL).await?;
    let even = counts.len() == arguments.integer(4) && counts.values().all(|count| *count == arguments.integer(3));
    ensure!(even, "they run in {counts:?}");
    Ok(())
}

/// When the first pod of the Deployment was created, and so began to wait.
async fn first_created(world: &World, deployment: &str) -> anyhow::Result<Timestamp> {
    let pods = world.pods_of_deployment(deployment).await?;
    let created = pods.iter().filter_map(|pod| Some(pod.metadata.creation_timestamp.as_ref()?.0));
    created.min().context("the Deployment has no pods")
}

/// How many pods of the Deployment run on nodes with each value of a label.
async fn by_label(world: &World, deployment: &str, label: &str) -> anyhow::Result<BTreeMap<String, usize>> {
    let nodes = world.list::<Node>().await?;
    let value = |name: &str| {
        let node = nodes.iter().find(|node| node.name_any() == name)?;
        node.labels().get(label).cloned()
    };
    let mut counts = BTreeMap::new();
    for pod in world.pods_of_deployment(deployment).await?.iter().filter(|pod| is_running(pod)) {
        let node = node_of(pod).context("a running pod has a node")?;
        let value = value(node).with_context(|| format!("node {node} has no label {label}"))?;
        *counts.entry(value).or_default() += 1;
    }
    Ok(counts)
}

async fn asked_within(world: &World, since: Timestamp, limit: Duration) -> anyhow::Result<()> {
    let calls = world.cloud().calls().await?;
    let first = calls.iter().find(|call| call.is_launch()).context("EC2 was never asked")?;
    let took = Duration::try_from(first.at.duration_since(since)).context("EC2 was asked before there was a pod")?;
    ensure!(took <= world.bearing(limit), "it was asked after {took:?}");
    Ok(())
}

fn zone_of_launched(claim: &NodeClaim) -> Option<&String> {
    claim.status.as_ref().filter(|status| !status.provider_id.is_empty())?;
    claim.labels().get(labels::ZONE_LABEL)
}

fn amount(node: &Node, resource: &str) -> anyhow::Result<Quantity> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let quantity =
        allocatable.and_then(|all| all.get(resource)).with_context(|| format!("the node has no {resource}"))?;
    Ok(quantity.0.parse()?)
}
