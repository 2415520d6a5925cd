//! A NodePool as a starting point for nodes (core spec §3.7): its requirements, the instance types that meet them, and
//! the DaemonSet pods that nodes of each type will carry.

use super::amounts::{Axes, Row};
use super::preferences::tolerate_preferred_taints;
use super::reason::{MinValuesUnmet, PoolLeftOut};
use super::truncate::{self, MinValuesOutcome};
use crate::catalog::InstanceType;
use crate::host_ports::HostPort;
use crate::requirement::Requirement;
use crate::requirements::{AllowUndefined, Requirements};
use crate::resources::Resources;
use crate::settings::{MinValuesPolicy, Settings};
use crate::snapshot::{Pod, Pool};
use crate::taints;
use controller_api::labels;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Labels every node will carry once it is up. Templates pretend to have them, so that DaemonSets which select them are
/// counted; they never reach a NodeClaim.
pub(super) const SIMULATION_ONLY: [&str; 2] = [labels::REGISTERED_LABEL, labels::INITIALIZED_LABEL];

/// A pool that nodes can be planned from.
pub(super) struct Template<'a> {
    pub(super) pool: &'a Pool,
    pub(super) requirements: Requirements,
    /// Instance types that meet the requirements and can be had.
    pub(super) types: Vec<TemplateType>,
    /// Types that carry the same DaemonSet pods are a group.
    pub(super) groups: Vec<DaemonGroup>,
}

/// An instance type with what the inner loop needs of it.
pub(super) struct TemplateType {
    pub(super) instance_type: Arc<InstanceType>,
    /// What is for pods, DaemonSet pods included.
    pub(super) room: Row,
    /// Its place in [`Template::groups`].
    pub(super) group: usize,
}

/// What DaemonSets put on each node of some instance types.
#[derive(Default)]
pub(super) struct DaemonGroup {
    pub(super) overhead: Resources,
    pub(super) amounts: Row,
    pub(super) host_ports: Vec<HostPort>,
}

impl<'a> Template<'a> {
    /// Filters the pool's instance types by its requirements and groups them by their DaemonSet pods.
    pub(super) fn new(pool: &'a Pool, daemons: &[Pod], axes: &Axes, settings: &Settings) -> Result<Self, PoolLeftOut> {
        if pool.instance_types.is_empty() {
            return Err(PoolLeftOut::NoInstanceTypes);
        }
        let mut requirements = pool.requirements().clone();
        SIMULATION_ONLY.iter().for_each(|key| requirements.add(Requirement::equals(key, "true")));
        let meets = |t: &&Arc<InstanceType>| {
            t.requirements.intersects(&requirements) && t.offerings_for(&requirements).next().is_some()
        };
        let compatible: Vec<&Arc<InstanceType>> = pool.instance_types.iter().filter(meets).collect();
        let min_values = unmet_min_values(&requirements, &compatible, settings);
        if compatible.is_empty() || min_values.is_some() {
            let unavailable =
                compatible.is_empty() && pool.instance_types.iter().any(|t| t.requirements.intersects(&requirements));
            return Err(PoolLeftOut::NoCompatibleInstanceTypes { min_values, unavailable });
        }
        let daemons: Vec<&Pod> = daemons.iter().filter(|daemon| tolerates_pool(daemon, pool)).collect();
        let mut groups: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let types = compatible.into_iter().map(|instance_type| {
            let carried: Vec<usize> =
                (0..daemons.len()).filter(|index| runs_on(daemons[*index], &requirements, instance_type)).collect();
            let next = groups.len();
            let group = *groups.entry(carried).or_insert(next);
            TemplateType {
                instance_type: Arc::clone(instance_type),
                room: axes.room(&instance_type.allocatable()),
                group,
            }
        });
        let types = types.collect();
        let mut in_order: Vec<(usize, Vec<usize>)> =
            groups.into_iter().map(|(carried, index)| (index, carried)).collect();
        in_order.sort();
        let groups =
            in_order.iter().map(|(_, carried)| DaemonGroup::of(carried.iter().map(|i| daemons[*i]), axes)).collect();
        Ok(Self { pool, requirements, types, groups })
    }

    /// The smallest and the largest DaemonSet overhead among the groups.
    pub(super) fn overheads(&self) -> (Resources, Resources) {
        let mut overheads: Vec<&Resources> = self.groups.iter().map(|group| &group.overhead).collect();
        overheads.sort_by_cached_key(|overhead| overhead.iter().map(|(_, quantity)| quantity).collect::<Vec<_>>());
        let end = |overhead: Option<&&Resources>| overhead.copied().cloned().unwrap_or_default();
        (end(overheads.first()), end(overheads.last()))
    }
}

impl DaemonGroup {
    fn of<'p>(pods: impl Iterator<Item = &'p Pod>, axes: &Axes) -> Self {
        let mut group = Self::default();
        for pod in pods {
            group.overhead.add(&pod.requests);
            group.host_ports.extend(pod.host_ports.iter().cloned());
        }
        group.amounts = axes.row(&group.overhead);
        group
    }
}

fn unmet_min_values(
    requirements: &Requirements,
    compatible: &[&Arc<InstanceType>],
    settings: &Settings,
) -> Option<MinValuesUnmet> {
    if settings.min_values_policy == MinValuesPolicy::BestEffort || compatible.is_empty() {
        return None;
    }
    match truncate::min_values(requirements, compatible.iter().copied()) {
        MinValuesOutcome::Met => None,
        MinValuesOutcome::Unmet(unmet) => Some(unmet),
    }
}

/// Startup taints do not count: they are gone by the time DaemonSet pods matter for capacity.
fn tolerates_pool(daemon: &Pod, pool: &Pool) -> bool {
    let mut tolerations = daemon.tolerations.clone();
    tolerations.push(tolerate_preferred_taints());
    taints::tolerates(pool.taints(), &tolerations).is_ok()
}

/// Whether nodes of this type will carry the DaemonSet's pod: some alternative of its node affinity holds there.
fn runs_on(daemon: &Pod, template: &Requirements, instance_type: &InstanceType) -> bool {
    let alternatives = daemon.required_terms.iter().map(Some).chain(daemon.required_terms.is_empty().then_some(None));
    alternatives.into_iter().any(|term| {
        let wanted = daemon.requirements(term, None);
        template.is_compatible(&wanted, AllowUndefined::WellKnown) && instance_type.requirements.intersects(&wanted)
    })
}
