//! The actors against the server they live beside, under paused time: what a user of a genuine cluster would see.

#[path = "actors/disruption.rs"]
mod disruption;
#[path = "actors/events.rs"]
mod events;
#[path = "actors/nodes.rs"]
mod nodes;
#[path = "actors/relations.rs"]
mod relations;
#[path = "actors/scheduler.rs"]
mod scheduler;
#[path = "actors/support.rs"]
mod support;
#[path = "actors/volumes.rs"]
mod volumes;
#[path = "actors/workloads.rs"]
mod workloads;
