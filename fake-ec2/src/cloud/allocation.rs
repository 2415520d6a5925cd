//! Allocation strategies: in which order a fleet tries its pools, and across how many it spreads.

use super::Cloud;
use super::capacity::CapacityType;
use super::fleet::Candidate;
use super::ids::fraction;
use serde::{Deserialize, Serialize};

/// How a fleet chooses among its pools.
// fidelity: documented(EC2 User Guide, Allocation strategies)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Strategy {
    #[default]
    LowestPrice,
    Diversified,
    CapacityOptimized,
    CapacityOptimizedPrioritized,
    PriceCapacityOptimized,
    Prioritized,
}

impl Strategy {
    /// The strategies of a market; the second spelling is that of older clients.
    pub(crate) fn parse(text: &str, capacity_type: CapacityType) -> Option<Self> {
        Some(match (text, capacity_type) {
            ("lowest-price" | "lowestPrice", _) => Self::LowestPrice,
            ("prioritized", CapacityType::OnDemand) => Self::Prioritized,
            ("diversified", CapacityType::Spot) => Self::Diversified,
            ("capacity-optimized" | "capacityOptimized", CapacityType::Spot) => Self::CapacityOptimized,
            ("capacity-optimized-prioritized" | "capacityOptimizedPrioritized", CapacityType::Spot) => {
                Self::CapacityOptimizedPrioritized
            }
            ("price-capacity-optimized" | "priceCapacityOptimized", CapacityType::Spot) => Self::PriceCapacityOptimized,
            _ => return None,
        })
    }

    /// As answers spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LowestPrice => "lowest-price",
            Self::Diversified => "diversified",
            Self::CapacityOptimized => "capacity-optimized",
            Self::CapacityOptimizedPrioritized => "capacity-optimized-prioritized",
            Self::PriceCapacityOptimized => "price-capacity-optimized",
            Self::Prioritized => "prioritized",
        }
    }

    /// Across how many pools instances are dealt one by one; every other pool waits until one of them has run dry.
    // fidelity: documented(EC2 API Reference, SpotOptionsRequest: InstancePoolsToUseCount of lowest-price, the next cheapest
    // pool takes the place of an empty one)
    pub(crate) fn width(self, pools_to_use: Option<u32>) -> usize {
        match self {
            Self::Diversified => usize::MAX,
            Self::LowestPrice => pools_to_use.unwrap_or(1).max(1) as usize,
            _ => 1,
        }
    }
}

impl Cloud {
    /// Positions of the candidates in the order in which they are tried.
    pub(super) fn ranked(
        &self,
        candidates: &[Candidate],
        capacity_type: CapacityType,
        strategy: Strategy,
    ) -> Vec<usize> {
        let mut keyed: Vec<([f64; 3], usize)> = candidates
            .iter()
            .enumerate()
            .filter(|(_, candidate)| candidate.market.is_none_or(|market| market == capacity_type))
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
        let price = self.price(candidate, capacity_type).map_or(f64::INFINITY, |price| price / candidate.weight);
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

    /// USD per hour of one instance, if there is a price.
    pub(super) fn price(&self, candidate: &Candidate, capacity_type: CapacityType) -> Option<f64> {
        let instance_type = candidate.over.instance_type.as_deref().unwrap_or_default();
        match capacity_type {
            CapacityType::OnDemand => self.on_demand_price(instance_type),
            CapacityType::Spot => {
                let zone = candidate.over.zone.as_deref().unwrap_or_default();
                self.spot_price(instance_type, zone).map(|(price, _)| price)
            }
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
}

/// How much a pool's price counts for, given how often its instances are interrupted.
// fidelity: assumed: AWS does not publish the formula; a tenth per band keeps clearly cheaper pools ahead.
fn band_weight(band: f64) -> f64 {
    1.0 + 0.1 * band
}
