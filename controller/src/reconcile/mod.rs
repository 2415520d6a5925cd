//! The shape every reconciler repeats: observe → decide → apply → tell.
//!
//! Each file exposes `run(context)`, one task of the list in `app.rs`. Most of them are a [`keyed`] loop: changes seen by
//! the mirror become names, each name is reconciled alone, and the answer says when to look again. Nothing polls: a loop
//! with nothing to do sleeps until the mirror changes or a time it asked for has come.

mod batcher;
pub(crate) mod provisioning;

pub(crate) mod disruption;

pub(crate) mod cadences;
pub(crate) mod ec2_node_class;
pub(crate) mod garbage;
pub(crate) mod interruption;
pub(crate) mod node_claim;
pub(crate) mod node_pool;
pub(crate) mod own_node;
pub(crate) mod termination;

mod keyed;

pub(crate) use keyed::{Loop, Requeue, keyed};

use crate::config::Settings;
use crate::error::chain;
use crate::events::Events;
use crate::measured::MeasuredCloud;
use crate::metrics::Metrics;
use crate::mirror::Mirror;
use controller_api::{HasConditions as _, READY};
use controller_clock::Clock;
use controller_core::cloud::CloudProvider as _;
use controller_core::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything a reconciler may use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    /// The Kubernetes API, for writes and for the reads the mirror does not hold.
    pub(crate) kube: kube::Client,
    /// AWS.
    pub(crate) cloud: Arc<MeasuredCloud>,
    /// The time.
    pub(crate) clock: Clock,
    /// The settings of this run.
    pub(crate) settings: Arc<Settings>,
    /// The watched state of the cluster.
    pub(crate) mirror: Arc<Mirror>,
    /// Kubernetes events.
    pub(crate) events: Events,
    /// Metrics.
    pub(crate) metrics: Arc<Metrics>,
}

impl Context {
    /// The cluster as it is known now, with the instance types each NodePool may use. A pool whose types cannot be had is
    /// in the snapshot without any, which keeps its pods waiting and its nodes undisturbed.
    pub(crate) async fn snapshot(&self) -> Snapshot {
        let mut instance_types = BTreeMap::new();
        for pool in self.mirror.node_pools() {
            let name = pool.metadata.name.clone().unwrap_or_default();
            let Some(class) = self.mirror.node_class(&pool.spec.template.spec.node_class_ref.name) else { continue };
            match self.cloud.instance_types(&pool, &class).await {
                Ok(types) => drop(instance_types.insert(name, types)),
                // A class that is not ready has no types, and says so in its conditions.
                Err(error) if !pool.is_true(&[READY]) => {
                    tracing::debug!(NodePool = %name, error = %chain(&error), "skipping, unable to resolve instance types");
                }
                Err(error) => {
                    tracing::error!(NodePool = %name, error = %chain(&error), "skipping, unable to resolve instance types");
                }
            }
        }
        self.mirror.snapshot(self.clock.now(), &instance_types)
    }
}
