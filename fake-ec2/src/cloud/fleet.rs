//! Fleets: what is asked, the ways to launch it allows, and filling its targets once. What a fleet does by itself later is in
//! `fleet_upkeep`.

use super::allocation::Strategy;
use super::capacity::CapacityType;
use super::instance::TemplateUse;
use super::launch::Launch;
use super::launch_template::{BlockDevice, LaunchSpecification, LaunchTemplateVersion, TemplateReference};
use super::requirements::{InstanceRequirements, Unit, units};
use super::tags::Tags;
use super::{Cloud, Due, after};
use crate::error::ApiError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// From CreateFleet to the first instances of a fleet that is not instant, and from a change to what follows it.
// fidelity: assumed: AWS promises no time; fleets act within seconds.
pub(super) const UPKEEP: Duration = Duration::from_secs(2);

/// Instant fleets kept to be described. They are forgotten with their last instance; those that launched nothing when this
/// many others have come after them. A controller makes one for every node: a thousand reach back hours and stay within a
/// few megabytes.
const MAX_INSTANT: usize = 1_000;

/// How long a fleet goes on after its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FleetKind {
    /// It is over with the answer.
    Instant,
    /// It launches once, soon.
    Request,
    /// It replaces what ends.
    #[default]
    Maintain,
}

impl FleetKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Instant => "instant",
            Self::Request => "request",
            Self::Maintain => "maintain",
        }
    }
}

/// What CreateFleet asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FleetRequest {
    pub(crate) kind: FleetKind,
    pub(crate) on_demand: u32,
    pub(crate) spot: u32,
    pub(crate) target: TargetAsked,
    pub(crate) on_demand_options: MarketOptions,
    pub(crate) spot_options: MarketOptions,
    pub(crate) configs: Vec<FleetConfig>,
    pub(crate) tags: BTreeMap<String, Tags>,
    pub(crate) client_token: Option<String>,
    pub(crate) no_excess_termination: bool,
    pub(crate) terminate_when_expired: bool,
    pub(crate) replace_unhealthy: bool,
    pub(crate) valid_from: Option<Timestamp>,
    pub(crate) valid_until: Option<Timestamp>,
    pub(crate) context: Option<String>,
}

/// The targets as they were asked, to be told again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TargetAsked {
    pub(crate) default_market: String,
    pub(crate) unit_name: Option<String>,
    pub(crate) unit: Unit,
}

/// SpotOptions or OnDemandOptions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct MarketOptions {
    pub(crate) strategy: Strategy,
    pub(crate) pools_to_use: Option<u32>,
    pub(crate) single_type: bool,
    pub(crate) single_zone: bool,
    pub(crate) minimum: Option<u32>,
    /// USD per hour, as it was written.
    pub(crate) max_total_price: Option<String>,
    /// On demand: `use-capacity-reservations-first`.
    pub(crate) reservations_first: bool,
    /// Spot: what happens to an interrupted instance.
    pub(crate) interruption_behavior: Option<String>,
    /// Spot: replacement strategy and termination delay.
    pub(crate) rebalance: Option<(String, Option<u32>)>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FleetConfig {
    pub(crate) template: TemplateReference,
    pub(crate) overrides: Vec<FleetOverride>,
}

/// One override, as asked and as echoed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FleetOverride {
    pub(crate) instance_type: Option<String>,
    pub(crate) subnet_id: Option<String>,
    pub(crate) image_id: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) zone_id: Option<String>,
    pub(crate) priority: Option<f64>,
    pub(crate) max_price: Option<String>,
    pub(crate) weight: Option<f64>,
    pub(crate) requirements: Option<InstanceRequirements>,
    pub(crate) block_devices: Vec<BlockDevice>,
    pub(crate) placement: LaunchSpecification,
}

/// One way to launch: a template's version with one override on top.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Candidate {
    pub(crate) template: TemplateUse,
    pub(crate) over: FleetOverride,
    /// What one instance counts for.
    pub(crate) weight: f64,
    /// The market it is for, where price protection has left only one.
    pub(crate) market: Option<CapacityType>,
    specification: Arc<LaunchSpecification>,
    /// The order of the request, by which equals are kept in order.
    position: usize,
}

impl Candidate {
    pub(crate) fn specification(&self) -> &LaunchSpecification {
        &self.specification
    }
}

/// What one fill came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FleetOutcome {
    pub(crate) launched: Vec<(Candidate, CapacityType, Vec<String>)>,
    pub(crate) errors: Vec<(Candidate, CapacityType, ApiError)>,
}

/// Where a fleet is in its life.
// fidelity: documented(EC2 User Guide, EC2 Fleet request states)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FleetState {
    Submitted,
    Active,
    Modifying,
    DeletedRunning,
    DeletedTerminating,
    Deleted,
}

impl FleetState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Active => "active",
            Self::Modifying => "modifying",
            Self::DeletedRunning => "deleted_running",
            Self::DeletedTerminating => "deleted_terminating",
            Self::Deleted => "deleted",
        }
    }

    pub(crate) fn is_deleted(self) -> bool {
        matches!(self, Self::DeletedRunning | Self::DeletedTerminating | Self::Deleted)
    }
}

/// An instance of a fleet and what it counts for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) capacity_type: CapacityType,
    pub(crate) weight: f64,
}

/// Something that happened to a fleet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FleetRecord {
    pub(crate) at: Timestamp,
    /// `fleet-change`, `instance-change` or `service-error`.
    pub(crate) kind: String,
    pub(crate) sub_type: String,
    pub(crate) description: String,
    pub(crate) instance_id: Option<String>,
}

/// A fleet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fleet {
    pub(crate) id: String,
    pub(crate) request: Arc<FleetRequest>,
    pub(crate) state: FleetState,
    pub(crate) created_at: Timestamp,
    pub(crate) tags: Tags,
    /// The instances that count towards the targets.
    pub(crate) members: BTreeMap<String, Member>,
    /// Instances not forgotten yet.
    pub(super) remembered: usize,
    /// What the last fill came to; an instant fleet's only one.
    pub(crate) outcome: FleetOutcome,
    /// The oldest first.
    pub(crate) history: VecDeque<FleetRecord>,
    pub(super) expired: bool,
}

impl Fleet {
    /// What the instances of a market count for together.
    pub(crate) fn fulfilled(&self, capacity_type: CapacityType) -> f64 {
        let own = self.members.values().filter(|member| member.capacity_type == capacity_type);
        own.map(|member| member.weight).sum()
    }

    /// What both markets lack, on demand first.
    pub(super) fn lacking(&self) -> [(CapacityType, f64); 2] {
        let lack = |capacity_type, target: u32| (capacity_type, f64::from(target) - self.fulfilled(capacity_type));
        [lack(CapacityType::OnDemand, self.request.on_demand), lack(CapacityType::Spot, self.request.spot)]
    }
}

/// All fleets by id.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Fleets {
    by_id: BTreeMap<String, Fleet>,
    instant: VecDeque<String>,
}

impl Fleets {
    pub(crate) fn get(&self, id: &str) -> Option<&Fleet> {
        self.by_id.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut Fleet> {
        self.by_id.get_mut(id)
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Fleet> {
        self.by_id.remove(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Fleet> {
        self.by_id.values()
    }

    fn insert(&mut self, fleet: Fleet) {
        if fleet.request.kind == FleetKind::Instant {
            self.instant.push_back(fleet.id.clone());
            if self.instant.len() > MAX_INSTANT {
                let oldest = self.instant.pop_front();
                // With instances it stays until the last of them is forgotten.
                if let Some(oldest) = oldest.filter(|id| self.by_id.get(id).is_some_and(|fleet| fleet.remembered == 0))
                {
                    self.by_id.remove(&oldest);
                }
            }
        }
        self.by_id.insert(fleet.id.clone(), fleet);
    }
}

/// Whether the caller may launch this candidate in this market.
pub(super) type Permit<'a> = &'a dyn Fn(&Cloud, &Candidate, CapacityType) -> Result<(), ApiError>;

/// One market of one fill.
struct Fill<'a> {
    fleet_id: &'a str,
    client_token: Option<&'a str>,
    capacity_type: CapacityType,
    options: &'a MarketOptions,
    /// In units of weight.
    target: f64,
    /// USD per hour that this fill may still spend.
    budget: f64,
}

/// One try at a group of pools, and how far it has come.
struct Attempt<'a> {
    now: Timestamp,
    fill: &'a Fill<'a>,
    permit: Permit<'a>,
    /// In units of weight.
    missing: f64,
    /// USD per hour.
    budget: f64,
    outcome: FleetOutcome,
}

impl Attempt<'_> {
    /// How many instances of a candidate would be enough.
    fn wanted(&self, candidate: &Candidate) -> u32 {
        (self.missing / candidate.weight).ceil().clamp(0.0, f64::from(u32::MAX)) as u32
    }

    fn deliver(&mut self, candidate: &Candidate, ids: Vec<String>) {
        self.missing -= candidate.weight * ids.len() as f64;
        if ids.is_empty() {
            return;
        }
        let mut launched = self.outcome.launched.iter_mut();
        match launched.find(|(known, ..)| known.position == candidate.position) {
            Some((_, _, known)) => known.extend(ids),
            None => self.outcome.launched.push((candidate.clone(), self.fill.capacity_type, ids)),
        }
    }
}

/// Whether a pool that was asked gives more.
enum Pool {
    GivesMore,
    Refuses,
}

impl Cloud {
    /// The ways a request allows, templates looked up. A template that does not exist fails the whole call.
    pub(crate) fn fleet_candidates(&self, request: &FleetRequest) -> Result<Vec<Candidate>, ApiError> {
        let mut candidates = Vec::new();
        for config in &request.configs {
            let TemplateReference { id, name, version } = &config.template;
            let template = self.templates.find(id.as_deref(), name.as_deref())?;
            let (number, version) = template.version(version.as_deref())?;
            let used = TemplateUse { id: template.id.clone(), name: template.name.clone(), version: number };
            let none = [FleetOverride::default()];
            let overrides = if config.overrides.is_empty() { &none[..] } else { &config.overrides[..] };
            for over in overrides.iter().flat_map(by_place) {
                self.add_candidates(request, &used, version, &over, &mut candidates);
            }
        }
        Ok(candidates)
    }

    /// One candidate for a type that is named, one for each type and market that has the attributes.
    fn add_candidates(
        &self,
        request: &FleetRequest,
        used: &TemplateUse,
        version: &LaunchTemplateVersion,
        over: &FleetOverride,
        candidates: &mut Vec<Candidate>,
    ) {
        let of_template = version.data.requirements.as_ref().filter(|_| over.instance_type.is_none());
        let Some(requirements) = over.requirements.as_ref().or(of_template) else {
            candidates.push(self.candidate(request, used, &version.data, over, candidates.len()));
            return;
        };
        let image = over.image_id.as_deref().or(version.data.image_id.as_deref()).unwrap_or_default();
        let architecture = self.images.images.get(image).map(|image| image.architecture.as_str());
        let offerings = self.types_with(requirements, architecture.as_slice());
        for (capacity_type, target) in [(CapacityType::OnDemand, request.on_demand), (CapacityType::Spot, request.spot)]
        {
            if target == 0 {
                continue;
            }
            let sold = offerings.iter().filter(|offering| offering.instance_type.sold_as(capacity_type.name()));
            let sold = sold.copied().collect();
            for offering in self.price_protected(sold, requirements, capacity_type, request.target.unit) {
                let chosen = FleetOverride {
                    instance_type: Some(offering.instance_type.name.to_owned()),
                    requirements: Some(requirements.clone()),
                    ..over.clone()
                };
                let candidate = self.candidate(request, used, &version.data, &chosen, candidates.len());
                let zone = candidate.over.zone.as_deref();
                if zone.is_none_or(|zone| offering.zones.contains(&zone)) {
                    candidates.push(Candidate { market: Some(capacity_type), ..candidate });
                }
            }
        }
    }

    /// Enters a fleet. An instant one is filled at once, as far as capacity goes: each pool that refuses leaves one error, and
    /// a fleet that delivers less than its target has at least one. The others begin a little later.
    pub(crate) fn create_fleet(
        &mut self,
        now: Timestamp,
        request: FleetRequest,
        candidates: &[Candidate],
        permit: Permit<'_>,
    ) -> &Fleet {
        let id = format!("fleet-{}", self.ids.uuid());
        let instant = request.kind == FleetKind::Instant;
        let request = Arc::new(request);
        let fleet = Fleet {
            id: id.clone(),
            state: if instant { FleetState::Active } else { FleetState::Submitted },
            created_at: now,
            tags: request.tags.get("fleet").cloned().unwrap_or_default(),
            request: Arc::clone(&request),
            members: BTreeMap::new(),
            remembered: 0,
            outcome: FleetOutcome::default(),
            history: VecDeque::new(),
            expired: false,
        };
        self.fleets.insert(fleet);
        if instant {
            let lacking =
                [(CapacityType::OnDemand, f64::from(request.on_demand)), (CapacityType::Spot, f64::from(request.spot))];
            self.fill_fleet(now, &id, lacking, candidates, permit);
        } else {
            self.record_fleet(now, &id, "fleet-change", "submitted", None);
            let begin = request.valid_from.filter(|from| *from > now).unwrap_or_else(|| after(now, UPKEEP));
            self.schedule(begin, Due::KeepFleet { fleet: id.clone() });
        }
        self.fleets.get(&id).expect("it has just been entered")
    }

    /// Launches what is lacking, as far as capacity goes, and keeps what came of it with the fleet.
    pub(super) fn fill_fleet(
        &mut self,
        now: Timestamp,
        id: &str,
        lacking: [(CapacityType, f64); 2],
        candidates: &[Candidate],
        permit: Permit<'_>,
    ) {
        let Some(request) = self.fleets.get(id).map(|fleet| Arc::clone(&fleet.request)) else { return };
        let mut outcome = FleetOutcome::default();
        for (capacity_type, target) in lacking.into_iter().filter(|(_, target)| *target > 0.0) {
            let options = match capacity_type {
                CapacityType::OnDemand => &request.on_demand_options,
                CapacityType::Spot => &request.spot_options,
            };
            let limit = options.max_total_price.as_deref().and_then(|text| text.parse::<f64>().ok());
            let fill = Fill {
                fleet_id: id,
                client_token: request.client_token.as_deref(),
                capacity_type,
                options,
                target,
                budget: limit.map_or(f64::INFINITY, |limit| limit - self.spent(id, capacity_type)),
            };
            self.fill(now, candidates, &fill, permit, &mut outcome);
        }
        let Some(fleet) = self.fleets.get_mut(id) else { return };
        for (candidate, capacity_type, ids) in &outcome.launched {
            let member = Member { capacity_type: *capacity_type, weight: candidate.weight };
            fleet.members.extend(ids.iter().map(|id| (id.clone(), member)));
            fleet.remembered += ids.len();
        }
        fleet.outcome = outcome;
    }

    /// USD per hour of the instances a fleet has in a market.
    fn spent(&self, id: &str, capacity_type: CapacityType) -> f64 {
        let members = self.fleets.get(id).into_iter().flat_map(|fleet| &fleet.members);
        let own = members.filter(|(_, member)| member.capacity_type == capacity_type);
        let price = |id: &String| {
            let instance = self.instances.get(id)?;
            match capacity_type {
                CapacityType::OnDemand => self.on_demand_price(instance.instance_type),
                CapacityType::Spot => self.spot_price(instance.instance_type, &instance.zone).map(|(price, _)| price),
            }
        };
        own.filter_map(|(id, _)| price(id)).sum()
    }

    /// One market. Where a single type or zone is asked for, each group of such pools is tried until one delivers.
    // fidelity: documented(EC2 API Reference, SpotOptionsRequest and OnDemandOptionsRequest: SingleInstanceType,
    // SingleAvailabilityZone, MinTargetCapacity below which nothing is launched); assumed: that the first group that reaches
    // the minimum (or, without one, launches anything) is taken.
    fn fill(
        &mut self,
        now: Timestamp,
        candidates: &[Candidate],
        fill: &Fill<'_>,
        permit: Permit<'_>,
        outcome: &mut FleetOutcome,
    ) {
        let order = self.ranked(candidates, fill.capacity_type, fill.options.strategy);
        for group in groups(candidates, &order, fill.options) {
            let attempt = self.attempt(now, candidates, group, fill, permit);
            let delivered: f64 =
                attempt.launched.iter().map(|(candidate, _, ids)| candidate.weight * ids.len() as f64).sum();
            let ids: Vec<String> = attempt.launched.iter().flat_map(|(_, _, ids)| ids.clone()).collect();
            outcome.errors.extend(attempt.errors);
            if delivered <= 0.0 || fill.options.minimum.is_some_and(|minimum| delivered < f64::from(minimum)) {
                ids.iter().for_each(|id| self.unmake(id));
                continue;
            }
            self.begin(now, &ids);
            outcome.launched.extend(attempt.launched);
            return;
        }
    }

    /// Prepares instances from one group of pools; `order` names them, the best first.
    fn attempt(
        &mut self,
        now: Timestamp,
        candidates: &[Candidate],
        mut order: Vec<usize>,
        fill: &Fill<'_>,
        permit: Permit<'_>,
    ) -> FleetOutcome {
        let outcome = FleetOutcome::default();
        let mut attempt = Attempt { now, fill, permit, missing: fill.target, budget: fill.budget, outcome };
        if fill.options.reservations_first {
            order.iter().for_each(|position| self.take_reserved(&mut attempt, &candidates[*position]));
        }
        let width = fill.options.strategy.width(fill.options.pools_to_use);
        let mut turn = 0;
        while attempt.missing > 0.0 && !order.is_empty() {
            turn %= order.len().min(width);
            let candidate = &candidates[order[turn]];
            let count = if width > 1 { 1 } else { attempt.wanted(candidate) };
            match self.take(&mut attempt, candidate, count) {
                Pool::Refuses => drop(order.remove(turn)),
                Pool::GivesMore => turn += 1,
            }
        }
        attempt.outcome
    }

    /// On demand, capacity that is reserved and unused goes first, pool by pool in the strategy's order.
    // fidelity: documented(EC2 User Guide, EC2 Fleet: use Capacity Reservations first)
    fn take_reserved(&mut self, attempt: &mut Attempt<'_>, candidate: &Candidate) {
        let FleetOverride { instance_type, zone, .. } = &candidate.over;
        let reserved =
            self.openly_reserved(instance_type.as_deref().unwrap_or_default(), zone.as_deref().unwrap_or_default());
        let count = reserved.min(attempt.wanted(candidate));
        if count > 0 {
            self.take(attempt, candidate, count);
        }
    }

    /// Prepares up to `count` instances of one candidate.
    fn take(&mut self, attempt: &mut Attempt<'_>, candidate: &Candidate, count: u32) -> Pool {
        let capacity_type = attempt.fill.capacity_type;
        let price = self.price(candidate, capacity_type).unwrap_or(0.0);
        // A price that fits exactly may be off by the last digit.
        let affordable = if price > 0.0 { (attempt.budget / price + 1e-9).floor().max(0.0) } else { f64::INFINITY };
        let granted = f64::from(count).min(affordable) as u32;
        let launch = Launch {
            capacity_type,
            template: Some(&candidate.template),
            fleet_id: Some(attempt.fill.fleet_id),
            client_token: attempt.fill.client_token,
            ..Launch::of(&candidate.specification, granted)
        };
        let (ids, error) = match (attempt.permit)(self, candidate, capacity_type) {
            Ok(()) if granted == 0 => (Vec::new(), None),
            Ok(()) => self.prepare(attempt.now, &launch),
            Err(error) => (Vec::new(), Some(error)),
        };
        attempt.budget -= price * ids.len() as f64;
        attempt.deliver(candidate, ids);
        match error.or_else(|| (granted < count).then(too_dear)) {
            None => Pool::GivesMore,
            Some(error) => {
                attempt.outcome.errors.push((candidate.clone(), capacity_type, error));
                Pool::Refuses
            }
        }
    }

    fn candidate(
        &self,
        request: &FleetRequest,
        template: &TemplateUse,
        data: &LaunchSpecification,
        over: &FleetOverride,
        position: usize,
    ) -> Candidate {
        let zone_of =
            |id: &String| self.catalogue.zones.iter().find(|zone| zone.id == id).map(|zone| zone.name.to_owned());
        let named_zone = over.zone.clone().or_else(|| over.zone_id.as_ref().and_then(zone_of));
        let on_top = LaunchSpecification {
            instance_type: over.instance_type.clone(),
            image_id: over.image_id.clone(),
            zone: named_zone.clone(),
            tags: request.tags.clone(),
            block_devices: over.block_devices.clone(),
            ..over.placement.clone()
        };
        let mut specification = data.clone().overridden_by(&on_top);
        let spot_options = &request.spot_options;
        if over.max_price.is_some() {
            specification.spot.max_price.clone_from(&over.max_price);
        }
        if spot_options.interruption_behavior.is_some() {
            specification.spot.interruption_behavior.clone_from(&spot_options.interruption_behavior);
        }
        if let Some(subnet) = &over.subnet_id {
            match specification.network_interfaces.iter_mut().find(|interface| interface.device_index == 0) {
                Some(primary) => primary.subnet_id = Some(subnet.clone()),
                None => specification.subnet_id = Some(subnet.clone()),
            }
        }
        // The answer echoes what was chosen, also where the request left it to the template.
        let subnet = specification.primary_subnet().map(str::to_owned);
        let zone = subnet.as_ref().and_then(|id| self.network.subnets.get(id)).map(|subnet| subnet.zone.clone());
        let mut over = over.clone();
        over.instance_type = specification.instance_type.clone();
        over.image_id = specification.image_id.clone();
        over.zone = named_zone.or(zone);
        over.subnet_id = subnet;
        let offering = over.instance_type.as_deref().and_then(|name| self.catalogue.offering(name));
        let weight = match (request.target.unit, offering) {
            (Unit::Units, _) | (_, None) => over.weight.filter(|weight| *weight > 0.0).unwrap_or(1.0),
            (unit, Some(offering)) => units(offering, unit),
        };
        let specification = Arc::new(specification);
        Candidate { template: template.clone(), over, weight, market: None, specification, position }
    }
}

/// An override with several subnets or zones stands for one with each.
// fidelity: documented(EC2 API Reference, FleetLaunchTemplateOverridesRequest: comma-separated SubnetId)
fn by_place(over: &FleetOverride) -> Vec<FleetOverride> {
    let parts = |text: &Option<String>| -> Vec<Option<String>> {
        match text {
            None => vec![None],
            Some(text) => text.split(',').map(|part| Some(part.trim().to_owned())).collect(),
        }
    };
    let mut all = Vec::new();
    for subnet_id in parts(&over.subnet_id) {
        for zone in parts(&over.zone) {
            all.push(FleetOverride { subnet_id: subnet_id.clone(), zone, ..over.clone() });
        }
    }
    all
}

/// The pools that may be used together, the group with the best pool first.
fn groups(candidates: &[Candidate], order: &[usize], options: &MarketOptions) -> Vec<Vec<usize>> {
    let key = |position: &usize| {
        let over = &candidates[*position].over;
        let instance_type = options.single_type.then(|| over.instance_type.clone());
        (instance_type, options.single_zone.then(|| over.zone.clone()))
    };
    let mut groups: Vec<(_, Vec<usize>)> = Vec::new();
    for position in order {
        match groups.iter_mut().find(|(known, _)| *known == key(position)) {
            Some((_, group)) => group.push(*position),
            None => groups.push((key(position), vec![*position])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Why a fleet with a maximum total price launches no more.
// fidelity: documented(EC2 API Reference, SpotOptionsRequest: MaxTotalPrice stops launching); assumed: that it is told as an
// error of the pool, and the code.
fn too_dear() -> ApiError {
    let message = "The fleet has reached the maximum total price per hour that you're willing to pay.";
    ApiError::client("MaxTotalPriceExceeded", message)
}
