//! A NodePool as a starting point for nodes (core spec §3.7): its requirements, the instance types that meet them, and
//! the DaemonSet pods that nodes of each type will carry.
//!
//! Which types go with a set of requirements is asked for every pod, so the answer is put together from sets that are worked
//! out once: the types that a single requirement leaves, and the types that are sold in one way (a zone, a market).

use super::amounts::{Axes, Row};
use super::ask::tolerate_preferred_taints;
use super::bits::Bits;
use super::reason::{MinValuesUnmet, PoolLeftOut};
use super::sets::{SetId, Sets};
use super::truncate::{self, MinValuesOutcome};
use crate::catalog::{InstanceType, Offering};
use crate::host_ports::HostPort;
use crate::requirement::Requirement;
use crate::requirements::{AllowUndefined, Requirements};
use crate::resources::{NODES, Resources};
use crate::settings::{MinValuesPolicy, Settings};
use crate::snapshot::{Pod, Pool};
use crate::taints;
use controller_api::labels;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Labels every node will carry once it is up. Templates pretend to have them, so that DaemonSets which select them are
/// counted; they never reach a NodeClaim.
pub(super) const SIMULATION_ONLY: [&str; 2] = [labels::REGISTERED_LABEL, labels::INITIALIZED_LABEL];

/// A pool that nodes can be planned from.
pub(super) struct Template<'a> {
    pub(super) pool: &'a Pool,
    pub(super) requirements: Requirements,
    pub(super) set: SetId,
    /// Instance types that meet the requirements and can be had.
    pub(super) types: Vec<TemplateType>,
    /// Types that carry the same DaemonSet pods are a group.
    pub(super) groups: Vec<DaemonGroup>,
    /// The pool's limited resources, `nodes` apart.
    pub(super) limited: Axes,
    /// Whether `minValues` has to be met by every node.
    pub(super) keeps_min_values: bool,
    /// Ways to buy that some type has.
    ways: Vec<Way>,
    lookups: Lookups,
}

/// An instance type with what the inner loop needs of it.
pub(super) struct TemplateType {
    pub(super) instance_type: Arc<InstanceType>,
    /// What is for pods, DaemonSet pods excluded.
    pub(super) room: Row,
    /// What it counts against the pool's limits.
    pub(super) capacity: Row,
    /// Its place in [`Template::groups`].
    pub(super) group: usize,
    /// Ways it can be bought now, with prices.
    prices: Vec<(usize, f64)>,
}

/// A way to buy: what offerings of many types have in common.
struct Way {
    requirements: Requirements,
    /// The reservation it draws on.
    reservation: Option<String>,
    /// Types that can be bought so now.
    types: Bits,
}

/// What DaemonSets put on each node of some instance types.
#[derive(Default)]
pub(super) struct DaemonGroup {
    pub(super) overhead: Resources,
    pub(super) amounts: Row,
    pub(super) host_ports: Vec<HostPort>,
}

/// What has been worked out before.
#[derive(Default)]
struct Lookups {
    by_requirement: BTreeMap<Requirement, Rc<Bits>>,
    options: BTreeMap<SetId, Rc<Options>>,
    by_price: BTreeMap<SetId, Rc<Vec<usize>>>,
}

/// What a set of requirements leaves of a template.
pub(super) struct Options {
    /// Types whose labels fit and that can be bought so.
    pub(super) types: Bits,
    /// Whether some label wants several values.
    pub(super) has_min_values: bool,
    /// Reservations that could be drawn on, with the types that draw on each.
    pub(super) reserved: Vec<(String, Bits)>,
}

impl<'a> Template<'a> {
    /// Filters the pool's instance types by its requirements and groups them by their DaemonSet pods.
    pub(super) fn new(
        pool: &'a Pool,
        daemons: &[Pod],
        axes: &Axes,
        settings: &Settings,
        sets: &mut Sets,
    ) -> Result<Self, PoolLeftOut> {
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
        let limited = Axes::of([pool.limits()]).without(NODES);
        let daemons: Vec<&Pod> = daemons.iter().filter(|daemon| tolerates_pool(daemon, pool)).collect();
        let mut known: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let mut groups = Vec::new();
        let mut ways = Ways::default();
        let mut types = Vec::new();
        for instance_type in compatible {
            let carried: Vec<usize> =
                (0..daemons.len()).filter(|index| runs_on(daemons[*index], &requirements, instance_type)).collect();
            let group = *known.entry(carried).or_insert_with_key(|carried| {
                groups.push(DaemonGroup::of(carried.iter().map(|i| daemons[*i]), axes));
                groups.len() - 1
            });
            let allocatable = instance_type.allocatable();
            let mut room = axes.room(&allocatable);
            super::amounts::subtract(&mut room, &groups[group].amounts);
            let available = instance_type.offerings.iter().filter(|offering| offering.available);
            let prices = available.map(|offering| (ways.of(offering, types.len()), offering.price)).collect();
            types.push(TemplateType {
                instance_type: Arc::clone(instance_type),
                room,
                capacity: limited.row(&instance_type.capacity),
                group,
                prices,
            });
        }
        Ok(Self {
            pool,
            set: sets.number(requirements.clone()),
            requirements,
            types,
            groups,
            limited,
            keeps_min_values: settings.min_values_policy == MinValuesPolicy::Strict,
            ways: ways.ways,
            lookups: Lookups::default(),
        })
    }

    /// What the set leaves of the types.
    pub(super) fn options(&mut self, sets: &Sets, set: SetId) -> Rc<Options> {
        if let Some(known) = self.lookups.options.get(&set) {
            return Rc::clone(known);
        }
        let requirements = sets.get(set);
        let ways: Vec<&Way> = self.ways.iter().filter(|way| way.suits(requirements)).collect();
        let mut types = Bits::none(self.types.len());
        ways.iter().for_each(|way| types.join(&way.types));
        let reserved = ways.iter().filter_map(|way| Some((way.reservation.clone()?, way.types.clone()))).collect();
        for requirement in requirements.iter() {
            types.keep(&labelled(&mut self.lookups.by_requirement, &self.types, requirement));
        }
        let options = Rc::new(Options { types, has_min_values: requirements.has_min_values(), reserved });
        self.lookups.options.insert(set, Rc::clone(&options));
        options
    }

    /// All types in order of the lowest price that the set allows, equal prices by name.
    pub(super) fn by_price(&mut self, sets: &Sets, set: SetId) -> Rc<Vec<usize>> {
        if let Some(known) = self.lookups.by_price.get(&set) {
            return Rc::clone(known);
        }
        let suits: Vec<bool> = self.ways.iter().map(|way| way.suits(sets.get(set))).collect();
        let price = |t: &TemplateType| {
            let prices = t.prices.iter().filter(|(way, _)| suits[*way]).map(|(_, price)| *price);
            prices.min_by(f64::total_cmp).unwrap_or(f64::INFINITY)
        };
        let mut order: Vec<(f64, usize)> = self.types.iter().map(price).zip(0..).collect();
        let name = |index: usize| &self.types[index].instance_type.name;
        order.sort_by(|(a, i), (b, j)| a.total_cmp(b).then_with(|| name(*i).cmp(name(*j))));
        let order: Rc<Vec<usize>> = Rc::new(order.into_iter().map(|(_, index)| index).collect());
        self.lookups.by_price.insert(set, Rc::clone(&order));
        order
    }

    /// The smallest and the largest DaemonSet overhead among the groups.
    pub(super) fn overheads(&self) -> (Resources, Resources) {
        let mut overheads: Vec<&Resources> = self.groups.iter().map(|group| &group.overhead).collect();
        overheads.sort_by_cached_key(|overhead| overhead.iter().map(|(_, quantity)| quantity).collect::<Vec<_>>());
        let end = |overhead: Option<&&Resources>| overhead.copied().cloned().unwrap_or_default();
        (end(overheads.first()), end(overheads.last()))
    }
}

/// Types whose labels go with one requirement.
fn labelled(
    known: &mut BTreeMap<Requirement, Rc<Bits>>,
    types: &[TemplateType],
    requirement: &Requirement,
) -> Rc<Bits> {
    if let Some(known) = known.get(requirement) {
        return Rc::clone(known);
    }
    let single = Requirements::new().with(requirement.clone());
    let bits = Rc::new(Bits::of(types.len(), |index| types[index].instance_type.requirements.intersects(&single)));
    known.insert(requirement.clone(), Rc::clone(&bits));
    bits
}

impl Way {
    fn suits(&self, requirements: &Requirements) -> bool {
        requirements.is_compatible(&self.requirements, AllowUndefined::WellKnown)
    }
}

/// Ways to buy, found by what they require.
#[derive(Default)]
struct Ways {
    known: BTreeMap<Requirements, usize>,
    ways: Vec<Way>,
}

impl Ways {
    /// The way that an offering of the type is.
    fn of(&mut self, offering: &Offering, instance_type: usize) -> usize {
        let way = self.known.get(&offering.requirements).copied().unwrap_or_else(|| self.add(offering));
        self.ways[way].types.insert(instance_type);
        way
    }

    fn add(&mut self, offering: &Offering) -> usize {
        let reservation = offering.reservation.as_ref().filter(|_| offering.is_reserved()).map(|r| r.id.clone());
        self.ways.push(Way { requirements: offering.requirements.clone(), reservation, types: Bits::default() });
        self.known.insert(offering.requirements.clone(), self.ways.len() - 1);
        self.ways.len() - 1
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
