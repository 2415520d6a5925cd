//! Tells a chronicler what happens in the fakes: watches of fake-kube in process and the instances of fake-ec2. It reads and
//! leaves no trace in the journals; each change is seen in the virtual instant in which it happens.

use super::chronicler::Sighting;
use super::{Chronicler, InstanceFacts, InstancePhase, SeenInstance};
use controller_api::labels;
use controller_clock::Clock;
use fake_ec2::{CapacityType, Control, FakeEc2, Instance, State};
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
    let cloud = ec2.cloud();
    let mut instances = Instances { cloud: cloud.clone(), clock, known: BTreeMap::new() };
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
                changed = cloud.instances_changed(revision) => {
                    revision = changed;
                    instances.look(&chronicler);
                }
            }
        }
    }
}

/// Follows the instances alone, for as long as the future lives.
pub(crate) fn follow_instances(
    ec2: &FakeEc2,
    clock: Clock,
    chronicler: Chronicler,
) -> impl Future<Output = anyhow::Result<()>> + use<> {
    let cloud = ec2.cloud();
    let mut instances = Instances { cloud: cloud.clone(), clock, known: BTreeMap::new() };
    async move {
        let mut revision = 0;
        loop {
            revision = cloud.instances_changed(revision).await;
            instances.look(&chronicler);
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
struct Instances {
    cloud: Control,
    clock: Clock,
    known: BTreeMap<String, InstancePhase>,
}

impl Instances {
    fn look(&mut self, chronicler: &Chronicler) {
        let mut known = BTreeMap::new();
        for instance in self.cloud.instances() {
            let phase = phase_of(&instance);
            if self.known.get(&instance.id) != Some(&phase) {
                chronicler.instance(&self.seen(&instance, phase));
            }
            known.insert(instance.id, phase);
        }
        self.known = known;
    }

    fn seen(&self, instance: &Instance, phase: InstancePhase) -> SeenInstance {
        let usd_per_hour = match instance.capacity_type {
            CapacityType::Spot => self.cloud.spot_price(instance.instance_type, &instance.zone),
            CapacityType::OnDemand => self.cloud.on_demand_price(instance.instance_type),
        };
        SeenInstance {
            id: instance.id.clone(),
            phase,
            // A notice is no state of its own; it is seen in the instant in which it is given.
            since: if phase == InstancePhase::Notice { self.clock.now() } else { instance.state_since },
            node_pool: instance.tags.get(labels::NODE_POOL_LABEL).cloned(),
            facts: InstanceFacts {
                instance_type: instance.instance_type.to_owned(),
                zone: instance.zone.clone(),
                capacity_type: instance.capacity_type.name().to_owned(),
                usd_per_hour,
                state_reason: instance.state_reason.as_ref().map(|(code, _)| code.clone()),
            },
        }
    }
}

fn phase_of(instance: &Instance) -> InstancePhase {
    match instance.state {
        State::Pending => InstancePhase::Pending,
        State::Running if instance.reclaim_at.is_some() => InstancePhase::Notice,
        State::Running => InstancePhase::Running,
        State::Stopping => InstancePhase::Stopping,
        State::Stopped => InstancePhase::Stopped,
        State::ShuttingDown => InstancePhase::ShuttingDown,
        State::Terminated => InstancePhase::Terminated,
    }
}
