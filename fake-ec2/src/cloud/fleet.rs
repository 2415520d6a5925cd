//! Instant fleets: which pools to try in which order, and what came of it.

use super::Cloud;
use super::capacity::CapacityType;
use super::ids::fraction;
use super::instance::TemplateUse;
use super::launch::Launch;
use super::launch_template::{LaunchSpecification, TemplateReference};
use super::tags::Tags;
use crate::error::ApiError;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a fleet chooses among its pools.
// fidelity: documented(EC2 User Guide, Allocation strategies)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    LowestPrice,
    Diversified,
    CapacityOptimized,
    CapacityOptimizedPrioritized,
    PriceCapacityOptimized,
    Prioritized,
}

impl Strategy {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "lowest-price" | "lowestPrice" => Self::LowestPrice,
            "diversified" => Self::Diversified,
            "capacity-optimized" | "capacityOptimized" => Self::CapacityOptimized,
            "capacity-optimized-prioritized" | "capacityOptimizedPrioritized" => Self::CapacityOptimizedPrioritized,
            "price-capacity-optimized" | "priceCapacityOptimized" => Self::PriceCapacityOptimized,
            "prioritized" => Self::Prioritized,
            _ => return None,
        })
    }
}

/// What CreateFleet asks.
#[derive(Clone, Debug)]
pub(crate) struct FleetRequest {
    pub(crate) on_demand: u32,
    pub(crate) spot: u32,
    pub(crate) on_demand_strategy: Strategy,
    pub(crate) spot_strategy: Strategy,
    pub(crate) configs: Vec<FleetConfig>,
    pub(crate) tags: BTreeMap<String, Tags>,
    pub(crate) client_token: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct FleetConfig {
    pub(crate) template: TemplateReference,
    pub(crate) overrides: Vec<FleetOverride>,
}

/// One override, as asked and as echoed.
#[derive(Clone, Debug, Default)]
pub(crate) struct FleetOverride {
    pub(crate) instance_type: Option<String>,
    pub(crate) subnet_id: Option<String>,
    pub(crate) image_id: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) priority: Option<f64>,
    pub(crate) max_price: Option<String>,
    pub(crate) weight: Option<f64>,
}

/// One way to launch: a template's version with one override on top.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) template: TemplateUse,
    pub(crate) over: FleetOverride,
    specification: Arc<LaunchSpecification>,
    /// The order of the request, by which equals are kept in order.
    position: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct FleetOutcome {
    pub(crate) id: String,
    pub(crate) launched: Vec<(Candidate, CapacityType, Vec<String>)>,
    pub(crate) errors: Vec<(Candidate, CapacityType, ApiError)>,
}

impl Candidate {
    pub(crate) fn specification(&self) -> &LaunchSpecification {
        &self.specification
    }
}

/// Whether the caller may launch this candidate in this market.
type Permit<'a> = &'a dyn Fn(&Cloud, &Candidate, CapacityType) -> Result<(), ApiError>;

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
            for over in overrides {
                candidates.push(self.candidate(request, &used, &version.data, over, candidates.len()));
            }
        }
        Ok(candidates)
    }

    /// Fills the targets as far as capacity goes. Each pool that refuses leaves one error; a fleet that delivers less than
    /// its target has at least one.
    pub(crate) fn create_fleet(
        &mut self,
        now: Timestamp,
        request: &FleetRequest,
        candidates: &[Candidate],
        permit: Permit<'_>,
    ) -> FleetOutcome {
        let id = format!("fleet-{}", self.ids.uuid());
        let mut outcome = FleetOutcome { id, launched: Vec::new(), errors: Vec::new() };
        for (capacity_type, target, strategy) in [
            (CapacityType::OnDemand, request.on_demand, request.on_demand_strategy),
            (CapacityType::Spot, request.spot, request.spot_strategy),
        ] {
            if target > 0 {
                self.fill(now, request, candidates, (capacity_type, target, strategy), permit, &mut outcome);
            }
        }
        outcome
    }

    fn fill(
        &mut self,
        now: Timestamp,
        request: &FleetRequest,
        candidates: &[Candidate],
        (capacity_type, target, strategy): (CapacityType, u32, Strategy),
        permit: Permit<'_>,
        outcome: &mut FleetOutcome,
    ) {
        let mut missing = f64::from(target);
        let mut order = self.ranked(candidates, capacity_type, strategy);
        // `diversified` deals one at a time; every other strategy empties the best pool first.
        let mut turn = 0;
        while missing > 0.0 && !order.is_empty() {
            turn %= order.len();
            let candidate = &candidates[order[turn]];
            let weight = candidate.over.weight.filter(|weight| *weight > 0.0).unwrap_or(1.0);
            let wanted = (missing / weight).ceil().min(f64::from(u32::MAX)) as u32;
            let count = if strategy == Strategy::Diversified { 1 } else { wanted };
            let launch = Launch {
                specification: &candidate.specification,
                capacity_type,
                template: Some(&candidate.template),
                fleet_id: Some(&outcome.id),
                client_token: request.client_token.as_deref(),
                count,
            };
            let (ids, error) = match permit(self, candidate, capacity_type) {
                Ok(()) => self.launch(now, &launch),
                Err(error) => (Vec::new(), Some(error)),
            };
            missing -= weight * ids.len() as f64;
            if !ids.is_empty() {
                let same = |(known, market, _): &&mut (Candidate, CapacityType, Vec<String>)| {
                    known.position == candidate.position && *market == capacity_type
                };
                match outcome.launched.iter_mut().find(same) {
                    Some((_, _, known)) => known.extend(ids),
                    None => outcome.launched.push((candidate.clone(), capacity_type, ids)),
                }
            }
            match error {
                Some(error) => {
                    outcome.errors.push((candidate.clone(), capacity_type, error));
                    order.remove(turn);
                }
                None => turn += 1,
            }
        }
    }

    /// Positions of the candidates in the order in which they are tried.
    fn ranked(&self, candidates: &[Candidate], capacity_type: CapacityType, strategy: Strategy) -> Vec<usize> {
        let mut keyed: Vec<([f64; 3], usize)> = candidates
            .iter()
            .enumerate()
            .map(|(index, candidate)| (self.rank(candidate, capacity_type, strategy), index))
            .collect();
        keyed.sort_by(|(left, left_index), (right, right_index)| {
            let by_key = left.iter().zip(right).map(|(left, right)| left.total_cmp(right)).find(|order| order.is_ne());
            by_key.unwrap_or(left_index.cmp(right_index))
        });
        keyed.into_iter().map(|(_, index)| index).collect()
    }

    /// Smaller is tried earlier.
    fn rank(&self, candidate: &Candidate, capacity_type: CapacityType, strategy: Strategy) -> [f64; 3] {
        let instance_type = candidate.over.instance_type.as_deref().unwrap_or_default();
        let zone = candidate.over.zone.as_deref().unwrap_or_default();
        let weight = candidate.over.weight.filter(|weight| *weight > 0.0).unwrap_or(1.0);
        let price = match capacity_type {
            CapacityType::OnDemand => self.on_demand_price(instance_type),
            CapacityType::Spot => self.spot_price(instance_type, zone).map(|(price, _)| price),
        };
        let price = price.map_or(f64::INFINITY, |price| price / weight);
        let priority = candidate.over.priority.unwrap_or(f64::INFINITY);
        let band = self.interruption_band(instance_type);
        let tie = fraction(self.config.seed, &["allocation", instance_type, zone]);
        match strategy {
            Strategy::LowestPrice | Strategy::Diversified => [price, tie, 0.0],
            Strategy::Prioritized => [priority, price, tie],
            Strategy::PriceCapacityOptimized => [price * band_weight(band), tie, 0.0],
            // fidelity: assumed: AWS does not publish pool depth; the interruption band stands for it.
            Strategy::CapacityOptimized => [band, tie, 0.0],
            Strategy::CapacityOptimizedPrioritized => [band, priority, tie],
        }
    }

    fn interruption_band(&self, instance_type: &str) -> f64 {
        self.catalogue.offering(instance_type).map_or(0.0, |offering| f64::from(offering.interruption_band))
    }

    /// What `price-capacity-optimized` sorts spot pools by; smaller is better.
    pub(crate) fn spot_score(&self, instance_type: &str, zone: &str) -> Option<f64> {
        let (price, _) = self.spot_price(instance_type, zone)?;
        Some(price * band_weight(self.interruption_band(instance_type)))
    }

    fn candidate(
        &self,
        request: &FleetRequest,
        template: &TemplateUse,
        data: &LaunchSpecification,
        over: &FleetOverride,
        position: usize,
    ) -> Candidate {
        let on_top = LaunchSpecification {
            instance_type: over.instance_type.clone(),
            image_id: over.image_id.clone(),
            zone: over.zone.clone(),
            tags: request.tags.clone(),
            ..Default::default()
        };
        let mut specification = data.clone().overridden_by(&on_top);
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
        over.zone = over.zone.or(zone);
        over.subnet_id = subnet;
        Candidate { template: template.clone(), over, specification: Arc::new(specification), position }
    }
}

/// How much a pool's price counts for, given how often its instances are interrupted.
// fidelity: assumed: AWS does not publish the formula; a tenth per band keeps clearly cheaper pools ahead.
fn band_weight(band: f64) -> f64 {
    1.0 + 0.1 * band
}
