//! Which instance types a launch may use: the filters applied before a fleet request, in order (spec §3.5). Pure.

use crate::instance_types::{AMD_GPU, GAUDI, NEURON, NEURON_CORE, NVIDIA_GPU};
use controller_api::labels;
use controller_core::catalog::{CapacityType, InstanceType, Offering};
use controller_core::requirements::Requirements;
use controller_core::resources::Resources;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Types in one fleet request. EC2 takes 300 overrides; 60 types in up to five zones stay within it.
const MAX_TYPES: usize = 60;
/// Below this many types a fall back from spot to on-demand is worth a warning.
const FLEXIBLE_TYPES: usize = 5;

/// A type with the offerings of it that the launch may use: compatible, and available now.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) instance_type: Arc<InstanceType>,
    pub(crate) offerings: Vec<Offering>,
}

/// Why a launch cannot be tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoCandidates {
    /// A filter left nothing.
    #[error("all requested instance types were unavailable during launch")]
    Unavailable,
    /// The cheapest types do not offer enough different values.
    #[error("validating minValues, minValues requirement is not met for {0}")]
    MinValues(String),
}

/// What to launch from.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// Cheapest first; only offerings of `capacity_type` are left.
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) capacity_type: CapacityType,
    pub(crate) tenancy: &'static str,
}

/// Applies every filter. `min_values_relaxed` lowers minValues to what there is.
pub(crate) fn choose(
    types: &[Arc<InstanceType>],
    requirements: &Requirements,
    requests: &Resources,
    min_values_relaxed: bool,
) -> Result<Choice, NoCandidates> {
    let has_min_values = requirements.has_min_values();
    let mut candidates: Vec<Candidate> =
        types.iter().filter_map(|instance_type| candidate(instance_type, requirements, requests)).collect();
    if !has_min_values {
        candidates = without_exotic(candidates);
        candidates = without_dear_spot(candidates);
    }
    candidates.sort_by(|a, b| {
        cheapest(a).total_cmp(&cheapest(b)).then_with(|| a.instance_type.name.cmp(&b.instance_type.name))
    });
    candidates.truncate(MAX_TYPES);
    if candidates.is_empty() {
        return Err(NoCandidates::Unavailable);
    }
    if has_min_values && !min_values_relaxed {
        check_min_values(&candidates, requirements)?;
    }
    let capacity_type = capacity_type(&candidates);
    let spot_allowed = requirements.allows(labels::CAPACITY_TYPE_LABEL, CapacityType::Spot.as_str());
    if capacity_type == CapacityType::OnDemand && spot_allowed && candidates.len() < FLEXIBLE_TYPES {
        tracing::error!(
            instance_types = candidates.len(),
            "failed while checking on-demand fallback: at least 5 instance types are recommended when flexible to spot but \
             requesting on-demand, fewer risk insufficient capacity"
        );
    }
    for candidate in &mut candidates {
        candidate.offerings.retain(|offering| offering.capacity_type == capacity_type);
    }
    candidates.retain(|candidate| !candidate.offerings.is_empty());
    let tenancy = if requirements.allows(labels::INSTANCE_TENANCY_LABEL, "default") { "default" } else { "dedicated" };
    Ok(Choice { candidates, capacity_type, tenancy })
}

/// The type with its usable offerings, if it fits and has any (`compatible-available-filter`).
fn candidate(
    instance_type: &Arc<InstanceType>,
    requirements: &Requirements,
    requests: &Resources,
) -> Option<Candidate> {
    if !requirements.intersects(&instance_type.requirements) || !requests.fits(&instance_type.allocatable()) {
        return None;
    }
    let usable = |offering: &&Offering| offering.available && requirements.intersects(&offering.requirements);
    let offerings: Vec<Offering> = instance_type.offerings.iter().filter(usable).cloned().collect();
    (!offerings.is_empty()).then(|| Candidate { instance_type: instance_type.clone(), offerings })
}

/// Drops bare metal and accelerators, unless nothing else is left (`exotic-instance-filter`).
fn without_exotic(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let is_exotic = |candidate: &Candidate| {
        let size = candidate.instance_type.requirements.get(labels::INSTANCE_SIZE_LABEL);
        let metal = size.and_then(|size| size.single_value()).is_some_and(|size| size.contains("metal"));
        let accelerators = [NEURON, NEURON_CORE, AMD_GPU, NVIDIA_GPU, GAUDI];
        metal || accelerators.iter().any(|name| !candidate.instance_type.capacity.get(name).is_zero())
    };
    if candidates.iter().all(is_exotic) {
        return candidates;
    }
    candidates.into_iter().filter(|candidate| !is_exotic(candidate)).collect()
}

/// Where both markets are open, drops spot offerings dearer than the cheapest on-demand one (`spot-offering-filter`).
fn without_dear_spot(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let offerings = || candidates.iter().flat_map(|candidate| &candidate.offerings);
    let on_demand = offerings().filter(|offering| offering.capacity_type == CapacityType::OnDemand);
    let Some(limit) = on_demand.map(|offering| offering.price).min_by(f64::total_cmp) else {
        return candidates;
    };
    if !offerings().any(|offering| offering.capacity_type == CapacityType::Spot) {
        return candidates;
    }
    for candidate in &mut candidates {
        let fair = |offering: &Offering| offering.capacity_type != CapacityType::Spot || offering.price <= limit;
        candidate.offerings.retain(fair);
    }
    candidates.retain(|candidate| !candidate.offerings.is_empty());
    candidates
}

fn cheapest(candidate: &Candidate) -> f64 {
    candidate.offerings.iter().map(|offering| offering.price).fold(f64::INFINITY, f64::min)
}

/// Spot if any of it can be had, else on-demand.
fn capacity_type(candidates: &[Candidate]) -> CapacityType {
    let offerings = candidates.iter().flat_map(|candidate| &candidate.offerings);
    offerings.map(|offering| offering.capacity_type).min().unwrap_or(CapacityType::OnDemand)
}

fn check_min_values(candidates: &[Candidate], requirements: &Requirements) -> Result<(), NoCandidates> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for candidate in candidates {
        for requirement in candidate.instance_type.requirements.iter() {
            found.entry(requirement.key()).or_default().extend(requirement.values().iter().map(String::as_str));
        }
    }
    let short: Vec<&str> = requirements
        .iter()
        .filter(|requirement| {
            let offered = found.get(requirement.key()).map_or(0, BTreeSet::len);
            requirement.min_values.is_some_and(|wanted| offered < wanted as usize)
        })
        .map(|requirement| requirement.key())
        .collect();
    if short.is_empty() { Ok(()) } else { Err(NoCandidates::MinValues(format!("label(s) {}", short.join(", ")))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{m5_large, node_class};
    use crate::instance_types::{Sizing, fixed_requirements, resolve};
    use crate::resolved::ResolvedNodeClass;
    use controller_api::Operator;
    use controller_core::quantity::Quantity;
    use controller_core::requirement::Requirement;
    use serde_json::json;

    /// A type with the prices of its offerings: `a:on-demand=0.1`, an `!` in front for one that cannot be had.
    fn instance_type(name: &str, resource: Option<&str>, offerings: &str) -> Arc<InstanceType> {
        let class = node_class(json!({}));
        let description = crate::description::Description { name: name.to_owned(), ..m5_large() };
        let fixed = fixed_requirements(&description, "us-west-2");
        let zones = ["us-west-2a", "us-west-2b", "us-west-2c"].map(str::to_owned).into();
        let sizing = Sizing { vm_memory_overhead_percent: 0.075, reserved_enis: 0 };
        let mut resolved = resolve(&description, &fixed, &zones, &ResolvedNodeClass::new(&class), sizing, None);
        if let Some(resource) = resource {
            resolved.capacity.set(resource, Quantity::units(1));
        }
        resolved.offerings = offerings
            .split_whitespace()
            .map(|text| {
                let (place, price) = text.trim_start_matches('!').split_once('=').unwrap();
                let (zone, market) = place.split_once(':').unwrap();
                let (zone, capacity_type) = (format!("us-west-2{zone}"), CapacityType::from_label(market).unwrap());
                let requirements = [
                    Requirement::equals(labels::ZONE_LABEL, zone.as_str()),
                    Requirement::equals(labels::CAPACITY_TYPE_LABEL, market),
                ];
                Offering {
                    requirements: requirements.into_iter().collect(),
                    zone,
                    capacity_type,
                    price: price.parse().unwrap(),
                    available: !text.starts_with('!'),
                    reservation: None,
                }
            })
            .collect();
        Arc::new(resolved)
    }

    fn requirements(list: &[(&str, &[&str])]) -> Requirements {
        list.iter().map(|(key, values)| Requirement::new(key, Operator::In, values.iter().copied())).collect()
    }

    #[track_caller]
    fn check(types: &[Arc<InstanceType>], requirements: &Requirements, expected: &str) {
        let text = match choose(types, requirements, &Resources::new(), false) {
            Ok(choice) => {
                let candidate = |candidate: &Candidate| {
                    let zones: Vec<&str> = candidate.offerings.iter().map(|offering| &offering.zone[9..]).collect();
                    format!(" {}[{}]", candidate.instance_type.name, zones.join(""))
                };
                format!("{}:{}", choice.capacity_type, choice.candidates.iter().map(candidate).collect::<String>())
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(text, expected);
    }

    const BOTH: &[(&str, &[&str])] = &[(labels::CAPACITY_TYPE_LABEL, &["spot", "on-demand"])];

    #[test]
    fn spot_comes_before_on_demand_and_cheap_types_before_dear_ones() {
        let types = [
            instance_type("m5.xlarge", None, "a:on-demand=0.2 a:spot=0.07 b:spot=0.08"),
            instance_type("m5.large", None, "a:on-demand=0.1 a:spot=0.03"),
        ];
        check(&types, &requirements(BOTH), "spot: m5.large[a] m5.xlarge[ab]");
        check(
            &types,
            &requirements(&[(labels::CAPACITY_TYPE_LABEL, &["on-demand"])]),
            "on-demand: m5.large[a] m5.xlarge[a]",
        );
    }

    #[test]
    fn what_cannot_be_had_or_is_not_wanted_is_left_out() {
        let types = [
            instance_type("m5.large", None, "!a:spot=0.03 b:spot=0.03 c:spot=0.03 a:on-demand=0.1"),
            instance_type("m5.xlarge", None, "!a:spot=0.06"),
        ];
        check(&types, &requirements(BOTH), "spot: m5.large[bc]");
        check(&types, &requirements(&[(labels::ZONE_LABEL, &["us-west-2a"]), BOTH[0]]), "on-demand: m5.large[a]");
        let none = requirements(&[(labels::INSTANCE_TYPE_LABEL, &["c5.large"])]);
        check(&types, &none, "all requested instance types were unavailable during launch");
    }

    #[test]
    fn requests_must_fit_what_is_left_for_pods() {
        let types = [instance_type("m5.large", None, "a:on-demand=0.1")];
        let ask = |cpu: &str| Resources::new().with("cpu", cpu.parse().unwrap());
        assert!(choose(&types, &Requirements::new(), &ask("1930m"), false).is_ok());
        let too_much = choose(&types, &Requirements::new(), &ask("1931m"), false);
        assert_eq!(too_much.err(), Some(NoCandidates::Unavailable));
    }

    #[test]
    fn metal_and_accelerators_are_a_last_resort() {
        let gpu = instance_type("g4dn.xlarge", Some(NVIDIA_GPU), "a:on-demand=0.05");
        let metal = instance_type("m5.metal", None, "a:on-demand=0.06");
        let plain = instance_type("m5.large", None, "a:on-demand=0.1");
        let any = Requirements::new();
        check(&[gpu.clone(), metal.clone(), plain], &any, "on-demand: m5.large[a]");
        check(&[gpu, metal], &any, "on-demand: g4dn.xlarge[a] m5.metal[a]");
    }

    #[test]
    fn spot_dearer_than_the_cheapest_on_demand_is_not_bought() {
        let types = [
            instance_type("m5.large", None, "a:on-demand=0.1 a:spot=0.05"),
            instance_type("m5.xlarge", None, "a:on-demand=0.2 a:spot=0.11 b:spot=0.09"),
        ];
        check(&types, &requirements(BOTH), "spot: m5.large[a] m5.xlarge[b]");
    }

    #[test]
    fn min_values_are_checked_on_what_is_left() {
        let types = [instance_type("m5.large", None, "a:spot=0.05"), instance_type("m5.xlarge", None, "a:spot=0.11")];
        let wanting = |count: u32| -> Requirements {
            let requirement = Requirement::exists(labels::INSTANCE_TYPE_LABEL).with_min_values(Some(count));
            [requirement].into_iter().collect()
        };
        check(&types, &wanting(2), "spot: m5.large[a] m5.xlarge[a]");
        let message = format!(
            "validating minValues, minValues requirement is not met for label(s) {}",
            labels::INSTANCE_TYPE_LABEL
        );
        check(&types, &wanting(3), &message);
        assert!(choose(&types, &wanting(3), &Resources::new(), true).is_ok(), "relaxed");
    }

    #[test]
    fn at_most_sixty_types_are_asked_for() {
        let types: Vec<_> = (0..70)
            .map(|n| instance_type(&format!("m5.size{n}"), None, &format!("a:on-demand=0.{:02}", n + 10)))
            .collect();
        let choice = choose(&types, &Requirements::new(), &Resources::new(), false).unwrap();
        assert_eq!(choice.candidates.len(), 60);
        assert_eq!(choice.candidates[0].instance_type.name, "m5.size0");
        assert_eq!(choice.candidates[59].instance_type.name, "m5.size59");
    }
}
