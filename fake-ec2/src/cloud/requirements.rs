//! Attribute-based selection: which instance types have the attributes asked for, and which of them are too dear.
//!
//! `BaselinePerformanceFactors` is kept and told again and excludes nothing: no public table has the figures.

use super::Cloud;
use super::capacity::CapacityType;
use super::catalogue::Offering;
use super::facts::Facts;
use super::filter::wildcard;
use super::members::Members;
use serde::{Deserialize, Serialize};

/// A smallest and a largest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
}

impl Bounds {
    fn contains(self, value: f64) -> bool {
        self.min.is_none_or(|min| value >= min) && self.max.is_none_or(|max| value <= max)
    }

    fn asks(self) -> bool {
        self.min.is_some_and(|min| min > 0.0)
    }
}

/// Whether types with a property take part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Inclusion {
    Included,
    Required,
    #[default]
    Excluded,
}

impl Inclusion {
    fn admits(self, has: bool) -> bool {
        match self {
            Self::Included => true,
            Self::Required => has,
            Self::Excluded => !has,
        }
    }
}

/// What targets and prices are counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    #[default]
    Units,
    Vcpu,
    MemoryMib,
}

/// What InstanceRequirements ask.
// fidelity: documented(EC2 API Reference, InstanceRequirementsRequest: bare metal and burstable types are excluded by
// default, local storage is included)
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct InstanceRequirements {
    pub(crate) vcpus: Bounds,
    pub(crate) memory_mib: Bounds,
    pub(crate) cpu_manufacturers: Vec<String>,
    pub(crate) memory_gib_per_vcpu: Bounds,
    pub(crate) excluded_types: Vec<String>,
    pub(crate) allowed_types: Vec<String>,
    pub(crate) generations: Vec<String>,
    pub(crate) bare_metal: Inclusion,
    pub(crate) burstable: Inclusion,
    pub(crate) hibernation: bool,
    pub(crate) network_interfaces: Bounds,
    /// `None` is included.
    pub(crate) local_storage: Option<Inclusion>,
    pub(crate) local_storage_types: Vec<String>,
    pub(crate) local_storage_gb: Bounds,
    pub(crate) ebs_baseline_mbps: Bounds,
    pub(crate) accelerator_types: Vec<String>,
    pub(crate) accelerator_count: Bounds,
    pub(crate) accelerator_manufacturers: Vec<String>,
    pub(crate) accelerator_names: Vec<String>,
    pub(crate) accelerator_memory_mib: Bounds,
    pub(crate) network_gbps: Bounds,
    pub(crate) encryption_in_transit: bool,
    pub(crate) spot_over_lowest_percent: Option<f64>,
    pub(crate) on_demand_over_lowest_percent: Option<f64>,
    pub(crate) spot_of_on_demand_percent: Option<f64>,
    /// As it was asked.
    pub(crate) members: Members,
}

impl InstanceRequirements {
    /// Whether a type has the attributes; prices are not looked at.
    pub(crate) fn admit(&self, offering: &Offering) -> bool {
        let own = offering.instance_type;
        let facts = Facts::of(own);
        let one_of = |wanted: &[String], value: &str| wanted.is_empty() || wanted.iter().any(|name| name == value);
        let generation = if own.current_generation { "current" } else { "previous" };
        let memory_mib = own.memory_mib as f64;
        let memory_per_vcpu = memory_mib / 1024.0 / f64::from(own.vcpus.max(1));
        self.named(own.name)
            && self.vcpus.contains(f64::from(own.vcpus))
            && self.memory_mib.contains(memory_mib)
            && self.memory_gib_per_vcpu.contains(memory_per_vcpu)
            && one_of(&self.cpu_manufacturers, &facts.cpu_manufacturer)
            && one_of(&self.generations, generation)
            && self.bare_metal.admits(own.bare_metal)
            && self.burstable.admits(facts.burstable)
            && (!self.hibernation || facts.hibernation)
            && (!self.encryption_in_transit || facts.encryption_in_transit)
            && self.network_interfaces.contains(f64::from(own.interfaces))
            && self.network_gbps.contains(facts.network_gbps)
            && self.ebs_baseline_mbps.contains(facts.ebs_baseline_mbps)
            && self.admits_storage(own.local_storage_gb as f64, facts)
            && self.admits_accelerators(facts)
    }

    fn named(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| wildcard(pattern, name));
        !any(&self.excluded_types) && (self.allowed_types.is_empty() || any(&self.allowed_types))
    }

    fn admits_storage(&self, local_gb: f64, facts: &Facts) -> bool {
        let of_type = |kind: &String| facts.disk_types.contains(&kind.as_str());
        self.local_storage.unwrap_or(Inclusion::Included).admits(local_gb > 0.0)
            && self.local_storage_gb.contains(local_gb)
            && (self.local_storage_types.is_empty() || local_gb == 0.0 || self.local_storage_types.iter().any(of_type))
    }

    fn admits_accelerators(&self, facts: &Facts) -> bool {
        let count: u32 = facts.accelerators.iter().map(|own| own.count).sum();
        let named = !self.accelerator_types.is_empty()
            || !self.accelerator_manufacturers.is_empty()
            || !self.accelerator_names.is_empty();
        let asked = named || self.accelerator_count.asks() || self.accelerator_memory_mib.asks();
        let one_of = |wanted: &[String], value: &str| wanted.is_empty() || wanted.iter().any(|name| name == value);
        let fits = |own: &super::facts::Accelerator| {
            one_of(&self.accelerator_types, own.kind)
                && one_of(&self.accelerator_manufacturers, &own.manufacturer)
                && one_of(&self.accelerator_names, &own.name)
        };
        self.accelerator_count.contains(f64::from(count))
            && self.accelerator_memory_mib.contains(facts.accelerator_memory_mib)
            && (!asked || facts.accelerators.iter().any(fits))
    }
}

impl Cloud {
    /// The types sold here that have the attributes and run on one of the architectures (any if none is named).
    pub(crate) fn types_with(&self, requirements: &InstanceRequirements, architectures: &[&str]) -> Vec<&Offering> {
        let runs = |offering: &&Offering| {
            architectures.is_empty() || architectures.iter().any(|own| offering.instance_type.runs(own))
        };
        self.catalogue.offerings().iter().filter(runs).filter(|offering| requirements.admit(offering)).collect()
    }

    /// Takes out the types whose price is too far above the price that protection goes by.
    // fidelity: documented(EC2 User Guide, Attribute-based instance type selection: price protection); assumed: without a
    // threshold for spot the documented default of 100 % stands for the unpublished automatic protection.
    pub(crate) fn price_protected<'a>(
        &self,
        offerings: Vec<&'a Offering>,
        requirements: &InstanceRequirements,
        capacity_type: CapacityType,
        unit: Unit,
    ) -> Vec<&'a Offering> {
        let on_demand = |offering: &Offering| self.per_unit(offering, CapacityType::OnDemand, unit);
        let price = |offering: &Offering| self.per_unit(offering, capacity_type, unit);
        let ceiling = match (capacity_type, requirements.spot_of_on_demand_percent) {
            (CapacityType::OnDemand, _) => {
                let percent = requirements.on_demand_over_lowest_percent.unwrap_or(20.0);
                identified_price(&offerings, price).map(|base| base * (1.0 + percent / 100.0))
            }
            (CapacityType::Spot, Some(percent)) => {
                identified_price(&offerings, on_demand).map(|base| base * percent / 100.0)
            }
            (CapacityType::Spot, None) => {
                let percent = requirements.spot_over_lowest_percent.unwrap_or(100.0);
                identified_price(&offerings, price).map(|base| base * (1.0 + percent / 100.0))
            }
        };
        // A sum of a price and its percentage may be off by the last digit.
        let affordable = |offering: &&Offering| {
            ceiling.zip(price(offering)).is_none_or(|(ceiling, price)| price <= ceiling * (1.0 + 1e-9))
        };
        offerings.into_iter().filter(affordable).collect()
    }

    fn per_unit(&self, offering: &Offering, capacity_type: CapacityType, unit: Unit) -> Option<f64> {
        let own = offering.instance_type;
        let price = match capacity_type {
            CapacityType::OnDemand => self.on_demand_price(own.name)?,
            CapacityType::Spot => {
                let by_zone = offering.zones.iter().filter_map(|zone| self.spot_price(own.name, zone));
                by_zone.map(|(price, _)| price).min_by(f64::total_cmp)?
            }
        };
        Some(price / units(offering, unit))
    }
}

/// How many units one instance counts for.
pub(crate) fn units(offering: &Offering, unit: Unit) -> f64 {
    match unit {
        Unit::Units => 1.0,
        Unit::Vcpu => f64::from(offering.instance_type.vcpus),
        Unit::MemoryMib => offering.instance_type.memory_mib as f64,
    }
}

/// The lowest price of current C, M and R types, failing those of current types, failing those of the rest.
fn identified_price(offerings: &[&Offering], price: impl Fn(&Offering) -> Option<f64>) -> Option<f64> {
    let general = |offering: &Offering| {
        let letters = offering.instance_type.name.split(|character: char| character.is_ascii_digit()).next();
        offering.instance_type.current_generation && matches!(letters, Some("c" | "m" | "r"))
    };
    let current = |offering: &Offering| offering.instance_type.current_generation;
    let lowest = |chosen: &dyn Fn(&Offering) -> bool| {
        let prices = offerings.iter().filter(|offering| chosen(offering)).filter_map(|offering| price(offering));
        prices.min_by(f64::total_cmp)
    };
    lowest(&general).or_else(|| lowest(&current)).or_else(|| lowest(&|_| true))
}
