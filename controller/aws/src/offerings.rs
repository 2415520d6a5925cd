//! The catalogue of instance types and, per node class, what of it can be bought: zones × market × price × availability
//! (spec §3.4).

use crate::cache::{Cache, lock};
use crate::description::Description;
use crate::error::AwsError;
use crate::instance_types::{Sizing, fixed_requirements, resolve};
use crate::pricing::Pricing;
use crate::resolved::ResolvedNodeClass;
use crate::settings::Settings;
use crate::unavailable::Unavailable;
use aws_sdk_ec2::types::{Filter, LocationType};
use controller_api::{AmiFamily, InterfaceType, labels};
use controller_clock::Clock;
use controller_core::catalog::{CapacityType, InstanceType, Offering};
use controller_core::quantity::Quantity;
use controller_core::requirement::Requirement;
use controller_core::requirements::Requirements;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Node classes whose types are kept resolved. Clusters have a handful; each costs about a megabyte.
const RESOLVED_CLASSES: usize = 64;
/// How long a node's real memory is remembered (spec §2.6).
const MEMORY_LIFETIME: Duration = Duration::from_secs(60 * 24 * 60 * 60);
/// Pairs of type and image list with known memory: a few image lists for every type there is.
const MEMORY_ENTRIES: usize = 10_000;

/// Everything EC2 offers in the region.
#[derive(Debug, Default)]
struct Catalogue {
    types: BTreeMap<String, Entry>,
    revision: u64,
}

#[derive(Debug)]
struct Entry {
    description: Description,
    fixed: Requirements,
    offered_in: BTreeSet<String>,
}

/// Why no instance types can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(clippy::enum_variant_names)] // What all have in common is that something is missing.
pub(crate) enum ResolveError {
    #[error("no instance types found")]
    NoTypes,
    #[error("no instance types offerings found")]
    NoOfferings,
    #[error("no subnets found")]
    NoSubnets,
}

/// Resolves node classes against the catalogue and remembers the results while nothing they depend on changes.
#[derive(Debug)]
pub(crate) struct Resolver {
    region: String,
    sizing: Sizing,
    catalogue: RwLock<Arc<Catalogue>>,
    /// Real memory by type and image list.
    memory: Cache<(String, String), Quantity>,
    /// By class name.
    resolved: Mutex<BTreeMap<String, Resolved>>,
    memory_revision: Mutex<u64>,
}

#[derive(Clone, Debug)]
struct Resolved {
    /// Everything that capacity, overhead and labels depend on.
    class_fingerprint: String,
    /// Prices and availability.
    market_fingerprint: (u64, u64, u64, Vec<bool>),
    types: Vec<Arc<InstanceType>>,
}

impl Resolver {
    pub(crate) fn new(settings: &Settings, region: &str, clock: Clock) -> Self {
        Self {
            region: region.to_owned(),
            sizing: Sizing {
                vm_memory_overhead_percent: settings.vm_memory_overhead_percent,
                reserved_enis: settings.reserved_enis,
            },
            catalogue: RwLock::default(),
            memory: Cache::new(clock, MEMORY_LIFETIME, MEMORY_ENTRIES),
            resolved: Mutex::default(),
            memory_revision: Mutex::default(),
        }
    }

    /// Reads types and offerings from EC2.
    pub(crate) async fn refresh(&self, client: &aws_sdk_ec2::Client) -> Result<(), AwsError> {
        let descriptions = describe_types(client).await?;
        let offered = describe_offerings(client).await?;
        tracing::debug!(count = descriptions.len(), "discovered instance types");
        tracing::debug!(instance_type_count = offered.len(), "discovered offerings for instance types");
        self.replace(descriptions, offered);
        Ok(())
    }

    fn replace(&self, descriptions: Vec<Description>, mut offered: BTreeMap<String, BTreeSet<String>>) {
        let types = descriptions.into_iter().map(|description| {
            let fixed = fixed_requirements(&description, &self.region);
            let offered_in = offered.remove(&description.name).unwrap_or_default();
            (description.name.clone(), Entry { description, fixed, offered_in })
        });
        let types = types.collect();
        let mut catalogue = self.catalogue.write().unwrap_or_else(PoisonError::into_inner);
        *catalogue = Arc::new(Catalogue { types, revision: catalogue.revision + 1 });
    }

    /// All instance types for `class`, also those that cannot be had at the moment.
    pub(crate) fn instance_types(
        &self,
        class: &ResolvedNodeClass<'_>,
        pricing: &Pricing,
        unavailable: &Unavailable,
    ) -> Result<Vec<Arc<InstanceType>>, ResolveError> {
        let catalogue = self.catalogue();
        if catalogue.types.is_empty() {
            return Err(ResolveError::NoTypes);
        }
        if catalogue.types.values().all(|entry| entry.offered_in.is_empty()) {
            return Err(ResolveError::NoOfferings);
        }
        if class.status.subnets.is_empty() {
            return Err(ResolveError::NoSubnets);
        }
        let class_fingerprint = self.class_fingerprint(class, catalogue.revision);
        let subnets = class.status.subnets.iter().map(|subnet| unavailable.is_subnet_marked(&subnet.id)).collect();
        let market_fingerprint = (catalogue.revision, pricing.revision(), unavailable.revision(), subnets);
        let known = lock(&self.resolved).get(class.name).cloned();
        let known = known.filter(|known| known.class_fingerprint == class_fingerprint);
        if let Some(known) = known.as_ref().filter(|known| known.market_fingerprint == market_fingerprint) {
            return Ok(known.types.clone());
        }
        let market = Market { pricing, unavailable, exhausted: exhausted_zones(class, unavailable) };
        let mut known = known.map(|known| known.types).unwrap_or_default().into_iter();
        let types: Vec<Arc<InstanceType>> = catalogue
            .types
            .values()
            .map(|entry| {
                let known = known.next().filter(|known| known.name == entry.description.name);
                self.resolve_type(entry, class, &market, known)
            })
            .collect();
        let mut resolved = lock(&self.resolved);
        if resolved.len() >= RESOLVED_CLASSES && !resolved.contains_key(class.name) {
            resolved.pop_first();
        }
        let entry = Resolved { class_fingerprint, market_fingerprint, types: types.clone() };
        resolved.insert(class.name.to_owned(), entry);
        Ok(types)
    }

    /// Resolves one type, or gives back the one known if its offerings are as they were.
    fn resolve_type(
        &self,
        entry: &Entry,
        class: &ResolvedNodeClass<'_>,
        market: &Market<'_>,
        known: Option<Arc<InstanceType>>,
    ) -> Arc<InstanceType> {
        let offerings = offerings(entry, class, market);
        if let Some(known) = known {
            let same = known.offerings.len() == offerings.len()
                && known
                    .offerings
                    .iter()
                    .zip(&offerings)
                    .all(|(a, b)| (a.price, a.available) == (b.price, b.available));
            return if same { known } else { Arc::new(InstanceType { offerings, ..(*known).clone() }) };
        }
        let memory = self.memory.get(&(entry.description.name.clone(), image_key(class)));
        let resolved = resolve(&entry.description, &entry.fixed, &entry.offered_in, class, self.sizing, memory);
        Arc::new(InstanceType { offerings, ..resolved })
    }

    /// The labels that follow from the type alone; none for an unknown type.
    pub(crate) fn labels_of(&self, instance_type: &str) -> BTreeMap<String, String> {
        self.catalogue().types.get(instance_type).map(|entry| entry.fixed.labels()).unwrap_or_default()
    }

    pub(crate) fn record_memory(
        &self,
        class: &ResolvedNodeClass<'_>,
        instance_type: &str,
        image_id: &str,
        memory: Quantity,
    ) {
        if !class.status.amis.iter().any(|ami| ami.id == image_id) {
            return;
        }
        let key = (instance_type.to_owned(), image_key(class));
        let stored = self.memory.get(&key);
        if stored.is_some_and(|stored| memory > stored) {
            return;
        }
        self.memory.insert(key, memory);
        if stored != Some(memory) {
            *lock(&self.memory_revision) += 1;
        }
    }

    fn catalogue(&self) -> Arc<Catalogue> {
        self.catalogue.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn class_fingerprint(&self, class: &ResolvedNodeClass<'_>, catalogue_revision: u64) -> String {
        let zones: Vec<_> = class.zones().into_iter().collect();
        let facts = serde_json::json!([
            catalogue_revision,
            *lock(&self.memory_revision),
            class.family.as_str(),
            class.spec.kubelet,
            class.spec.block_device_mappings,
            class.spec.instance_store_policy,
            class.spec.network_interfaces,
            class.spec.connection_tracking,
            class.spec.cpu_options,
            class.status.amis,
            zones,
        ]);
        facts.to_string()
    }
}

/// Identifies the images of a class.
fn image_key(class: &ResolvedNodeClass<'_>) -> String {
    let ids: Vec<&str> = class.status.amis.iter().map(|ami| ami.id.as_str()).collect();
    let digest = Sha256::digest(ids.join(","));
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Prices and refusals as they are now.
struct Market<'a> {
    pricing: &'a Pricing,
    unavailable: &'a Unavailable,
    /// Zones all of whose subnets are out of addresses.
    exhausted: BTreeSet<&'a str>,
}

fn exhausted_zones<'a>(class: &ResolvedNodeClass<'a>, unavailable: &Unavailable) -> BTreeSet<&'a str> {
    let usable: BTreeSet<&str> = class
        .status
        .subnets
        .iter()
        .filter(|subnet| !unavailable.is_subnet_marked(&subnet.id))
        .map(|subnet| subnet.zone.as_str())
        .collect();
    class.zones().into_keys().filter(|zone| !usable.contains(zone)).collect()
}

fn offerings(entry: &Entry, class: &ResolvedNodeClass<'_>, market: &Market<'_>) -> Vec<Offering> {
    let description = &entry.description;
    let name = &description.name;
    let zones = class.zones();
    let compatible = is_compatible(description, class);
    let markets = [(description.on_demand, CapacityType::OnDemand), (description.spot, CapacityType::Spot)];
    let mut offerings = Vec::new();
    for zone in &entry.offered_in {
        for (_, capacity_type) in markets.iter().filter(|(offered, _)| *offered) {
            let price = match capacity_type {
                CapacityType::Spot => market.pricing.spot(name, zone),
                _ => market.pricing.on_demand(name),
            };
            let zone_id = zones.get(zone.as_str()).copied();
            offerings.push(Offering {
                requirements: offering_requirements(zone, zone_id, *capacity_type),
                zone: zone.clone(),
                capacity_type: *capacity_type,
                price: price.unwrap_or(0.0),
                available: compatible
                    && price.is_some()
                    && zone_id.is_some()
                    && !market.exhausted.contains(zone.as_str())
                    && !market.unavailable.is_marked(name, zone, *capacity_type),
                reservation: None,
            });
        }
    }
    offerings
}

fn offering_requirements(zone: &str, zone_id: Option<&str>, capacity_type: CapacityType) -> Requirements {
    let mut requirements: Requirements = [
        Requirement::equals(labels::CAPACITY_TYPE_LABEL, capacity_type.as_str()),
        Requirement::equals(labels::ZONE_LABEL, zone),
        Requirement::does_not_exist(labels::CAPACITY_RESERVATION_ID_LABEL),
        Requirement::does_not_exist(labels::CAPACITY_RESERVATION_TYPE_LABEL),
    ]
    .into_iter()
    .collect();
    if let Some(id) = zone_id.filter(|id| !id.is_empty()) {
        requirements.add(Requirement::equals(labels::ZONE_ID_LABEL, id));
    }
    requirements
}

/// Whether instances of the type can run what the class asks for (spec §3.4, class compatibility).
fn is_compatible(d: &Description, class: &ResolvedNodeClass<'_>) -> bool {
    let spec = class.spec;
    let interfaces = spec.network_interfaces.as_deref().unwrap_or_default();
    let on_card = |interface: &controller_api::NetworkInterface| {
        let card = d.cards.iter().find(|(index, _)| *index == interface.network_card_index);
        card.is_some_and(|(_, most)| u32::try_from(interface.device_index).is_ok_and(|index| index < *most))
    };
    let efa = interfaces.iter().filter(|interface| interface.interface_type == InterfaceType::EfaOnly).count();
    let interfaces_fit =
        interfaces.is_empty() || (d.ena && interfaces.iter().all(on_card) && efa <= d.efa_interfaces as usize);
    let nested = spec.cpu_options.as_ref().and_then(|options| options.nested_virtualization.as_deref());
    interfaces_fit
        // The images of AL2023 need a newer arm64 than a1 has.
        && !(class.family == AmiFamily::AL2023 && d.family() == Some("a1"))
        && (nested != Some("enabled") || d.nested_virtualization)
        && (spec.connection_tracking.is_none() || d.hypervisor == "nitro")
}

async fn describe_types(client: &aws_sdk_ec2::Client) -> Result<Vec<Description>, AwsError> {
    let filter = |name: &str, values: &[&str]| {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Filter::builder().name(name).set_values(Some(values)).build()
    };
    let request = client
        .describe_instance_types()
        .filters(filter("supported-virtualization-type", &["hvm"]))
        .filters(filter("processor-info.supported-architecture", &["x86_64", "arm64"]))
        .max_results(100);
    let mut pages = request.into_paginator().send();
    let mut descriptions = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| AwsError::new("EC2", "DescribeInstanceTypes", error))?;
        descriptions.extend(page.instance_types().iter().filter_map(Description::read));
    }
    Ok(descriptions)
}

/// The zones each type is offered in.
async fn describe_offerings(client: &aws_sdk_ec2::Client) -> Result<BTreeMap<String, BTreeSet<String>>, AwsError> {
    let request =
        client.describe_instance_type_offerings().location_type(LocationType::AvailabilityZone).max_results(1000);
    let mut pages = request.into_paginator().send();
    let mut offered: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| AwsError::new("EC2", "DescribeInstanceTypeOfferings", error))?;
        for offering in page.instance_type_offerings() {
            if let (Some(instance_type), Some(zone)) = (offering.instance_type(), offering.location()) {
                offered.entry(instance_type.as_str().to_owned()).or_default().insert(zone.to_owned());
            }
        }
    }
    Ok(offered)
}
