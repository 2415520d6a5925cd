//! Tells a chronicler what happens in the fakes: watches of fake-kube in process and the instances of fake-ec2. It reads and
//! leaves no trace in the journals; each change is seen in the virtual instant in which it happens.

use super::chronicler::Sighting;
use super::{Chronicler, InstanceFacts, InstancePhase, SeenInstance};
use crate::cloud::{Ec2, Instance};
use anyhow::bail;
use controller_api::labels;
use controller_clock::Clock;
use fake_ec2::FakeEc2;
use fake_kube::{ApiClient, Resource, Watch, WatchEvent, resources};
use serde_json::Value;
use std::collections::BTreeMap;

/// Follows both fakes for as long as the future lives. What is there already is seen at once.
pub(crate) fn follow(
    kube: &ApiClient,
    ec2: &FakeEc2,
    clock: Clock,
    chronicler: Chronicler,
) -> impl Future<Output = anyhow::Result<()>> + use<> {
    let node_claims = Resource::new(controller_api::GROUP, "v1", "nodeclaims");
    let mut pods = kube.watch(&resources::PODS);
    let mut node_claims = kube.watch(&node_claims);
    let mut nodes = kube.watch(&resources::NODES);
    let mut events = kube.watch(&resources::EVENTS);
    let mut instances = Instances { ec2: ec2.clone(), clock, known: BTreeMap::new() };
    async move {
        let mut revision = 0;
        loop {
            // Biased, so that of several things at one instant the same is told first in every run.
            tokio::select! {
                biased;
                Some(change) = pods.next() => each(change, &mut pods, |how, pod| chronicler.pod(how, pod)),
                Some(change) = nodes.next() => each(change, &mut nodes, |how, node| chronicler.node(how, node)),
                Some(change) = node_claims.next() => {
                    each(change, &mut node_claims, |how, claim| chronicler.node_claim(how, claim));
                }
                Some(change) = events.next() => each(change, &mut events, |how, event| chronicler.event(how, event)),
                changed = instances.ec2.instances_changed(revision) => {
                    revision = changed?;
                    instances.look(&chronicler).await?;
                }
            }
        }
    }
}

/// Follows the instances alone, for as long as the future lives.
pub(crate) fn follow_instances<E: Ec2>(
    ec2: &E,
    clock: Clock,
    chronicler: Chronicler,
) -> impl Future<Output = anyhow::Result<()>> + use<E> {
    let mut instances = Instances { ec2: ec2.clone(), clock, known: BTreeMap::new() };
    async move {
        let mut revision = 0;
        loop {
            revision = instances.ec2.instances_changed(revision).await?;
            instances.look(&chronicler).await?;
        }
    }
}

/// Tells a change, and those that came with it.
fn each(first: WatchEvent, watch: &mut Watch, tell: impl Fn(Sighting, &Value)) {
    let mut next = Some(first);
    while let Some(change) = next {
        match &change {
            WatchEvent::Added(object) => tell(Sighting::Added, object),
            WatchEvent::Modified(object) => tell(Sighting::Modified, object),
            WatchEvent::Deleted(object) => tell(Sighting::Deleted, object),
        }
        next = watch.try_next();
    }
}

/// The instances, with what was told of each last.
struct Instances<E> {
    ec2: E,
    clock: Clock,
    known: BTreeMap<String, InstancePhase>,
}

impl<E: Ec2> Instances<E> {
    async fn look(&mut self, chronicler: &Chronicler) -> anyhow::Result<()> {
        let mut known = BTreeMap::new();
        for instance in self.ec2.instances().await? {
            let phase = phase_of(&instance)?;
            if self.known.get(&instance.id) != Some(&phase) {
                chronicler.instance(&self.seen(&instance, phase));
            }
            known.insert(instance.id, phase);
        }
        self.known = known;
        Ok(())
    }

    fn seen(&self, instance: &Instance, phase: InstancePhase) -> SeenInstance {
        SeenInstance {
            id: instance.id.clone(),
            phase,
            // A notice is no state of its own; it is seen in the instant in which it is given.
            since: if phase == InstancePhase::Notice { self.clock.now() } else { instance.state_since },
            node_pool: instance.tags.get(labels::NODE_POOL_LABEL).cloned(),
            facts: InstanceFacts {
                instance_type: instance.instance_type.clone(),
                zone: instance.zone.clone(),
                capacity_type: if instance.spot { "spot" } else { "on-demand" }.to_owned(),
                usd_per_hour: instance.usd_per_hour,
                state_reason: instance.state_reason.clone(),
            },
        }
    }
}

fn phase_of(instance: &Instance) -> anyhow::Result<InstancePhase> {
    Ok(match instance.state.as_str() {
        "pending" => InstancePhase::Pending,
        "running" if instance.reclaim_at.is_some() => InstancePhase::Notice,
        "running" => InstancePhase::Running,
        "stopping" => InstancePhase::Stopping,
        "stopped" => InstancePhase::Stopped,
        "shutting-down" => InstancePhase::ShuttingDown,
        "terminated" => InstancePhase::Terminated,
        other => bail!("the instance {} is {other:?}, which EC2 does not know", instance.id),
    })
}
