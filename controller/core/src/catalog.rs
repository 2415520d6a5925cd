//! What the cloud offers: instance types and, for each, where and how it can be bought.

use crate::quantity::Quantity;
use crate::requirements::{AllowUndefined, Requirements};
use crate::resources::{MEMORY, Resources};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// One instance type as a cloud provider resolved it for one node class (core spec §1.11).
#[derive(Clone, Debug)]
pub struct InstanceType {
    /// The provider's name, such as `m5.large`.
    pub name: String,
    /// Every well-known label with the values a node of this type carries.
    pub requirements: Requirements,
    /// Zones and markets in which the type exists, available now or not.
    pub offerings: Vec<Offering>,
    /// What the whole machine has.
    pub capacity: Resources,
    /// What of it is not for pods.
    pub overhead: Overhead,
}

/// The share of a machine that pods cannot use.
#[derive(Clone, Debug, Default)]
pub struct Overhead {
    /// Set aside for the kubelet and the container runtime.
    pub kube_reserved: Resources,
    /// Set aside for the operating system.
    pub system_reserved: Resources,
    /// What the kubelet keeps free by evicting pods.
    pub eviction_threshold: Resources,
}

impl InstanceType {
    /// What is left for pods: capacity less overhead, and memory less what huge pages take of it (core spec §1.11).
    pub fn allocatable(&self) -> Resources {
        let mut allocatable = self.capacity.minus(&self.overhead.total());
        let huge_pages: Vec<Quantity> = allocatable
            .iter()
            .filter(|(name, _)| name.starts_with("hugepages-"))
            .map(|(_, quantity)| quantity)
            .collect();
        for pages in huge_pages {
            allocatable.set(MEMORY, (allocatable.get(MEMORY) - pages).max(Quantity::ZERO));
        }
        allocatable
    }

    /// Offerings that can be had now and that a node of these requirements could be.
    pub fn offerings_for<'a>(&'a self, requirements: &'a Requirements) -> impl Iterator<Item = &'a Offering> {
        self.offerings.iter().filter(|offering| offering.available && offering.is_compatible(requirements))
    }

    /// The lowest price at which a node of these requirements can be had now.
    pub fn cheapest_price(&self, requirements: &Requirements) -> Option<f64> {
        self.offerings_for(requirements).map(|offering| offering.price).min_by(f64::total_cmp)
    }
}

/// Sorts by the lowest price at which a node of these requirements can be had, those that cannot be had last; equal
/// prices by name.
pub fn order_by_price(instance_types: &mut [Arc<InstanceType>], requirements: &Requirements) {
    let price = |instance_type: &Arc<InstanceType>| instance_type.cheapest_price(requirements).unwrap_or(f64::INFINITY);
    instance_types.sort_by_cached_key(|instance_type| (TotalOrder(price(instance_type)), instance_type.name.clone()));
}

/// A price as a sort key.
struct TotalOrder(f64);

impl PartialEq for TotalOrder {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for TotalOrder {}

impl PartialOrd for TotalOrder {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TotalOrder {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Overhead {
    /// All of it.
    pub fn total(&self) -> Resources {
        let Self { kube_reserved, system_reserved, eviction_threshold } = self;
        kube_reserved.plus(system_reserved).plus(eviction_threshold)
    }
}

impl Offering {
    /// Whether it draws on a capacity reservation.
    pub fn is_reserved(&self) -> bool {
        self.capacity_type == CapacityType::Reserved
    }

    /// Whether a node of these requirements could be bought this way.
    pub fn is_compatible(&self, requirements: &Requirements) -> bool {
        requirements.is_compatible(&self.requirements, AllowUndefined::WellKnown)
    }
}

/// The markets in which some of the types can be had now for a node of these requirements.
pub fn capacity_types<'a>(
    instance_types: impl IntoIterator<Item = &'a Arc<InstanceType>>,
    requirements: &Requirements,
) -> BTreeSet<CapacityType> {
    instance_types
        .into_iter()
        .flat_map(|t| t.offerings_for(requirements).map(|o| o.capacity_type).collect::<Vec<_>>())
        .collect()
}

/// One way to buy an instance type: a zone and a market, with its price.
#[derive(Clone, Debug)]
pub struct Offering {
    /// Labels a node bought this way carries; zone and capacity type always among them.
    pub requirements: Requirements,
    /// The zone's name, such as `us-west-2a`.
    pub zone: String,
    /// The market.
    pub capacity_type: CapacityType,
    /// US dollars per hour.
    pub price: f64,
    /// False while launches of it are known to fail.
    pub available: bool,
    /// The capacity reservation it draws on; only of [`CapacityType::Reserved`].
    pub reservation: Option<Reservation>,
}

/// Capacity that is paid for already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its id.
    pub id: String,
    /// How many more instances it has room for.
    pub capacity: u32,
}

/// How an instance is paid for. The order is that of preference at launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityType {
    /// A capacity reservation.
    Reserved,
    /// Spare capacity that can be reclaimed at two minutes' notice.
    Spot,
    /// Capacity at list price.
    OnDemand,
}

impl CapacityType {
    /// The value of the label `karpenter.sh/capacity-type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// Reads the label's value; `None` for any other text.
    pub fn from_label(value: &str) -> Option<Self> {
        [Self::Reserved, Self::Spot, Self::OnDemand].into_iter().find(|kind| kind.as_str() == value)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
