//! Resource vectors: named quantities that are summed, subtracted and compared as one.

use crate::quantity::{Quantity, QuantityError};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::collections::BTreeMap;
use std::fmt;

/// CPU cores.
pub const CPU: &str = "cpu";
/// Bytes of memory.
pub const MEMORY: &str = "memory";
/// How many pods a node holds.
pub const PODS: &str = "pods";
/// Bytes of local storage.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// How many nodes a pool has; a resource of limits only.
pub const NODES: &str = "nodes";

/// Quantities by resource name. A resource that is missing counts as zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<String, Quantity>);

/// A resource that is not enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The resource's name.
    pub resource: String,
    /// How much is asked for.
    pub wanted: Quantity,
    /// How much there is.
    pub available: Quantity,
}

impl Resources {
    /// Nothing at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads an API resource list; the first quantity that cannot be read fails it.
    pub fn from_api(list: &BTreeMap<String, ApiQuantity>) -> Result<Self, QuantityError> {
        list.iter()
            .map(|(name, quantity)| Ok((name.clone(), Quantity::from_api(quantity)?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Reads an API resource list that may be absent.
    pub fn from_api_opt(list: Option<&BTreeMap<String, ApiQuantity>>) -> Result<Self, QuantityError> {
        list.map_or_else(|| Ok(Self::new()), Self::from_api)
    }

    /// As an API resource list, in canonical text.
    pub fn to_api(&self) -> BTreeMap<String, ApiQuantity> {
        self.0.iter().map(|(name, quantity)| (name.clone(), quantity.to_api())).collect()
    }

    /// The same with one resource set.
    #[must_use]
    pub fn with(mut self, name: &str, quantity: Quantity) -> Self {
        self.set(name, quantity);
        self
    }

    /// Sets one resource.
    pub fn set(&mut self, name: &str, quantity: Quantity) {
        self.0.insert(name.to_owned(), quantity);
    }

    /// How much of `name` there is; zero if it is not listed.
    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Whether `name` is listed, be it with zero.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Names with their quantities, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, quantity)| (name.as_str(), *quantity))
    }

    /// Whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every quantity is zero.
    pub fn is_zero(&self) -> bool {
        self.0.values().all(|quantity| quantity.is_zero())
    }

    /// Adds `other` resource by resource.
    pub fn add(&mut self, other: &Self) {
        for (name, quantity) in &other.0 {
            match self.0.get_mut(name) {
                Some(present) => *present += *quantity,
                None => {
                    self.0.insert(name.clone(), *quantity);
                }
            }
        }
    }

    /// Subtracts `other` resource by resource; results may be negative. What is not there cannot be overdrawn: the kubelet may
    /// reserve process ids, of which no machine has a capacity.
    pub fn subtract(&mut self, other: &Self) {
        for (name, quantity) in &mut self.0 {
            *quantity -= other.get(name);
        }
    }

    /// Raises each resource to at least what `other` has.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, quantity) in &other.0 {
            match self.0.get_mut(name) {
                Some(present) => *present = (*present).max(*quantity),
                None => {
                    self.0.insert(name.clone(), *quantity);
                }
            }
        }
    }

    /// Replaces what is negative by zero.
    pub fn floor_at_zero(&mut self) {
        for quantity in self.0.values_mut().filter(|quantity| quantity.is_negative()) {
            *quantity = Quantity::ZERO;
        }
    }

    /// The sum of two.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.add(other);
        sum
    }

    /// The difference of two, of what `self` has.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut difference = self.clone();
        difference.subtract(other);
        difference
    }

    /// Whether `self` fits into `total`: nothing in `total` is overdrawn and every quantity is covered (core §3.8).
    pub fn fits(&self, total: &Self) -> bool {
        !total.0.values().any(|quantity| quantity.is_negative())
            && self.0.iter().all(|(name, wanted)| *wanted <= total.get(name))
    }

    /// What of `self` is more than `total` has.
    pub fn shortages(&self, total: &Self) -> Vec<Shortage> {
        self.iter()
            .filter(|(name, wanted)| *wanted > total.get(name))
            .map(|(name, wanted)| Shortage { resource: name.to_owned(), wanted, available: total.get(name) })
            .collect()
    }
}

impl FromIterator<(String, Quantity)> for Resources {
    fn from_iter<I: IntoIterator<Item = (String, Quantity)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

/// Compact JSON, as Karpenter prints resources in its messages.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, (name, quantity)) in self.0.iter().enumerate() {
            write!(f, "{}\"{name}\":\"{quantity}\"", if index == 0 { "" } else { "," })?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(list: &[(&str, &str)]) -> Resources {
        list.iter().map(|(name, quantity)| ((*name).to_owned(), quantity.parse().unwrap())).collect()
    }

    #[test]
    fn a_missing_resource_counts_as_zero() {
        let total = resources(&[("cpu", "2"), ("memory", "4Gi")]);
        assert!(resources(&[("cpu", "2")]).fits(&total));
        assert!(resources(&[("cpu", "1"), ("gpu", "0")]).fits(&total));
        assert!(!resources(&[("gpu", "1")]).fits(&total));
    }

    #[test]
    fn nothing_fits_into_an_overdrawn_total() {
        assert!(!resources(&[("cpu", "1")]).fits(&resources(&[("cpu", "2"), ("memory", "-1")])));
    }

    #[test]
    fn adding_and_subtracting_go_resource_by_resource() {
        let mut sum = resources(&[("cpu", "1"), ("memory", "1Gi")]);
        sum.add(&resources(&[("cpu", "500m"), ("pods", "1")]));
        assert_eq!(sum.to_string(), r#"{"cpu":"1500m","memory":"1Gi","pods":"1"}"#);
        sum.subtract(&resources(&[("cpu", "2"), ("gpu", "1")]));
        assert_eq!(sum.to_string(), r#"{"cpu":"-500m","memory":"1Gi","pods":"1"}"#);
    }

    #[test]
    fn shortages_name_what_is_missing() {
        let missing =
            resources(&[("cpu", "3"), ("memory", "1Gi")]).shortages(&resources(&[("cpu", "2"), ("memory", "1Gi")]));
        assert_eq!(missing.len(), 1);
        assert_eq!(
            (missing[0].resource.as_str(), missing[0].wanted, missing[0].available),
            ("cpu", Quantity::units(3), Quantity::units(2))
        );
    }
}
