//! What the control API shows, as JSON.

use crate::cloud::capacity::{Capacity, CapacityType};
use crate::cloud::instance::Instance;
use crate::cloud::{Cloud, Emitted};
use crate::journal::JournalEntry;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) fn state(cloud: &mut Cloud, now: Timestamp, faults: usize) -> Value {
    let counts = cloud.queues.iter_mut().map(|(name, queue)| (name.clone(), queue.counts(now)));
    let counts: Vec<_> = counts.collect();
    let queues: Vec<Value> = counts
        .into_iter()
        .map(|(name, (visible, in_flight, delayed))| {
            let url = cloud.queue_url(&name);
            json!({"name": name, "url": url, "visible": visible, "inFlight": in_flight, "delayed": delayed})
        })
        .collect();
    json!({
        "now": now,
        "region": cloud.config.region,
        "account": cloud.config.account,
        "clusters": cloud.clusters.keys().collect::<Vec<_>>(),
        "instances": cloud.instances.values().map(|one| instance(cloud, one)).collect::<Vec<_>>(),
        "queues": queues,
        "capacity": capacity(cloud),
        "faults": faults,
    })
}

fn instance(cloud: &Cloud, instance: &Instance) -> Value {
    let price = match instance.capacity_type {
        CapacityType::OnDemand => cloud.on_demand_price(instance.instance_type),
        CapacityType::Spot => cloud.spot_price(instance.instance_type, &instance.zone).map(|(price, _)| price),
    };
    json!({
        "id": instance.id,
        "instanceType": instance.instance_type,
        "zone": instance.zone,
        "capacityType": instance.capacity_type.name(),
        "state": instance.state.name(),
        "stateSince": instance.state_since,
        "launchedAt": instance.launched_at,
        // Two minutes after a spot notice.
        "reclaimAt": instance.reclaim_at,
        // At the present price, which is what it costs from now on.
        "pricePerHourUsd": price,
        "privateIp": instance.private_ip,
        "privateDnsName": instance.private_dns_name,
        "tags": instance.tags,
    })
}

/// Where capacity is short. The last rule that covers a pool decides, so that `rules` reads from top to bottom.
pub(super) fn capacity(cloud: &Cloud) -> Value {
    let capacity: &Capacity = &cloud.capacity;
    let rules = capacity.rules().iter().map(|rule| {
        json!({
            "instanceType": rule.instance_type,
            "zone": rule.zone,
            "capacityType": rule.capacity_type.name(),
            "exhausted": rule.exhausted,
        })
    });
    let sized = capacity.sized().map(|(instance_type, zone, capacity_type, free)| {
        json!({"instanceType": instance_type, "zone": zone, "capacityType": capacity_type.name(), "free": free})
    });
    json!({"rules": rules.collect::<Vec<_>>(), "sized": sized.collect::<Vec<_>>()})
}

/// The instances that are neither going nor gone.
pub(super) fn living(cloud: &Cloud) -> Vec<String> {
    let living = cloud.instances.values().filter(|instance| !instance.state.is_ending());
    living.map(|instance| instance.id.clone()).collect()
}

/// The instances that a spot notice can be sent to.
pub(super) fn interruptible(cloud: &Cloud) -> Vec<String> {
    let living = cloud.instances.values().filter(|instance| !instance.state.is_ending());
    let spot = living.filter(|instance| instance.capacity_type == CapacityType::Spot);
    spot.map(|instance| instance.id.clone()).collect()
}

pub(super) fn call(entry: &JournalEntry) -> Value {
    let JournalEntry {
        sequence,
        at,
        answered_at,
        service,
        action,
        caller,
        principal,
        denied,
        user_agent,
        params,
        request_bytes,
        status,
        error_code,
        response,
    } = entry;
    json!({
        "sequence": sequence,
        "at": at,
        "answeredAt": answered_at,
        "service": service.name(),
        "action": action,
        "caller": caller,
        "principal": principal,
        "denied": denied.as_ref().map(|denied| json!({"action": denied.action, "resource": denied.resource})),
        "userAgent": user_agent,
        "parameters": params,
        // No answer left if a fault swallowed it.
        "status": (*status != 0).then_some(status),
        "errorCode": error_code,
        "requestBytes": request_bytes,
        "responseBytes": response.len(),
    })
}

pub(super) fn event(emitted: &Emitted) -> Value {
    let Emitted { sequence, event, targets } = emitted;
    let event: Value = serde_json::from_str(event).unwrap_or_default();
    json!({"sequence": sequence, "event": event, "targets": targets})
}
