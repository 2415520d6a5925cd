//! Capacity pools, keyed by type, zone and market. Unlimited unless told otherwise; `*` stands for any type or zone.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How an instance is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CapacityType {
    /// At the published price.
    OnDemand,
    /// Spare capacity that can be taken back.
    Spot,
}

impl CapacityType {
    /// As the API and Karpenter spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
        }
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl std::str::FromStr for CapacityType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "on-demand" => Ok(Self::OnDemand),
            "spot" => Ok(Self::Spot),
            other => Err(format!("capacity type {other} is neither on-demand nor spot")),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) capacity_type: CapacityType,
    pub(crate) exhausted: bool,
}

impl Rule {
    fn covers(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> bool {
        self.capacity_type == capacity_type
            && (self.instance_type == "*" || self.instance_type == instance_type)
            && (self.zone == "*" || self.zone == zone)
    }
}

/// Where capacity is short.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Capacity {
    /// The last rule that covers a pool decides.
    rules: Vec<Rule>,
    /// How many more instances a pool gives.
    #[serde(with = "crate::state::pairs")]
    free: BTreeMap<(String, String, CapacityType), u32>,
}

impl Capacity {
    pub(crate) fn exhaust(&mut self, instance_type: &str, zone: &str, capacity_type: CapacityType) {
        self.rule(instance_type, zone, capacity_type, true);
    }

    pub(crate) fn restore(&mut self, instance_type: &str, zone: &str, capacity_type: CapacityType) {
        self.rule(instance_type, zone, capacity_type, false);
        let covering = self.rules.last().cloned();
        if let Some(rule) = covering {
            self.free
                .retain(|(instance_type, zone, capacity_type), _| !rule.covers(instance_type, zone, *capacity_type));
        }
        if !self.rules.iter().any(|rule| rule.exhausted) {
            self.rules.clear();
        }
    }

    /// In the order in which they were given; the last that covers a pool decides.
    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The pools of limited size, and how many more instances each gives.
    pub(crate) fn sized(&self) -> impl Iterator<Item = (&str, &str, CapacityType, u32)> {
        self.free.iter().map(|((instance_type, zone, capacity_type), free)| {
            (instance_type.as_str(), zone.as_str(), *capacity_type, *free)
        })
    }

    /// Gives the pool exactly this many more instances.
    pub(crate) fn set_free(&mut self, instance_type: &str, zone: &str, capacity_type: CapacityType, free: u32) {
        self.free.insert((instance_type.into(), zone.into(), capacity_type), free);
    }

    pub(crate) fn available(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> bool {
        let rule = self.rules.iter().rev().find(|rule| rule.covers(instance_type, zone, capacity_type));
        let exhausted = rule.is_some_and(|rule| rule.exhausted);
        !exhausted
            && (self.free.is_empty() || self.free.get(&(instance_type.into(), zone.into(), capacity_type)) != Some(&0))
    }

    pub(crate) fn take(&mut self, instance_type: &str, zone: &str, capacity_type: CapacityType) {
        if let Some(free) = self.free.get_mut(&(instance_type.into(), zone.into(), capacity_type)) {
            *free = free.saturating_sub(1);
        }
    }

    /// An instance is gone; its place is free again.
    pub(crate) fn give_back(&mut self, instance_type: &str, zone: &str, capacity_type: CapacityType) {
        if let Some(free) = self.free.get_mut(&(instance_type.into(), zone.into(), capacity_type)) {
            *free = free.saturating_add(1);
        }
    }

    fn rule(&mut self, instance_type: &str, zone: &str, capacity_type: CapacityType, exhausted: bool) {
        let rule = Rule { instance_type: instance_type.into(), zone: zone.into(), capacity_type, exhausted };
        // What the new rule covers entirely can never decide again.
        self.rules.retain(|old| !rule.covers(&old.instance_type, &old.zone, old.capacity_type));
        self.rules.push(rule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_covers_a_pool_decides() {
        let mut capacity = Capacity::default();
        let available = |capacity: &Capacity, zone| capacity.available("m5.large", zone, CapacityType::Spot);
        capacity.exhaust("*", "*", CapacityType::Spot);
        assert!(!available(&capacity, "a"));
        assert!(capacity.available("m5.large", "a", CapacityType::OnDemand));
        capacity.restore("m5.large", "a", CapacityType::Spot);
        assert!(available(&capacity, "a"));
        assert!(!available(&capacity, "b"));
        capacity.restore("*", "*", CapacityType::Spot);
        assert!(available(&capacity, "b"));
    }

    #[test]
    fn a_sized_pool_runs_dry_and_refills() {
        let mut capacity = Capacity::default();
        capacity.set_free("m5.large", "a", CapacityType::Spot, 1);
        assert!(capacity.available("m5.large", "a", CapacityType::Spot));
        capacity.take("m5.large", "a", CapacityType::Spot);
        assert!(!capacity.available("m5.large", "a", CapacityType::Spot));
        capacity.give_back("m5.large", "a", CapacityType::Spot);
        assert!(capacity.available("m5.large", "a", CapacityType::Spot));
    }
}
