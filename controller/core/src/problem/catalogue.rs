//! What a cloud sells, as text: instance types with their labels, resources and offerings.

use super::ProblemError;
use super::file::{self, OfferingChange};
use crate::catalog::{CapacityType, InstanceType, Offering, Overhead, Reservation};
use crate::quantity::Quantity;
use crate::requirement::{Operator, Requirement};
use crate::resources::Resources;
use controller_api::labels;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A reservation's price is that of the market divided by this: nearly nothing, as it is paid for already.
const RESERVED_DISCOUNT: f64 = 10_000_000.0;

/// Instance types of one region.
#[derive(Clone, Debug)]
pub struct Catalogue {
    types: Vec<Arc<InstanceType>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CatalogueFile {
    instance_types: Vec<TypeFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeFile {
    name: String,
    requirements: BTreeMap<String, Vec<String>>,
    capacity: BTreeMap<String, String>,
    #[serde(default)]
    overhead: OverheadFile,
    offerings: Vec<OfferingFile>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OverheadFile {
    kube_reserved: BTreeMap<String, String>,
    system_reserved: BTreeMap<String, String>,
    eviction_threshold: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfferingFile {
    zone: String,
    #[serde(default)]
    zone_id: Option<String>,
    capacity_type: String,
    price: f64,
    #[serde(default = "yes")]
    available: bool,
}

fn yes() -> bool {
    true
}

impl Catalogue {
    /// Reads a catalogue.
    pub fn read(text: &str) -> Result<Self, ProblemError> {
        let file: CatalogueFile = file::parse(text)?;
        let types = file.instance_types.into_iter().enumerate();
        let types =
            types.map(|(index, record)| Ok(Arc::new(instance_type(record, &format!("instanceTypes[{index}]"))?)));
        Ok(Self { types: types.collect::<Result<_, _>>()? })
    }

    /// All of its types.
    pub fn types(&self) -> &[Arc<InstanceType>] {
        &self.types
    }

    /// Types whose name is one of `wanted`, where `m5*` stands for every name that begins so; all if nothing is wanted. Their
    /// offerings are changed as told.
    pub(super) fn select(
        &self,
        wanted: &[String],
        changes: &[OfferingChange],
    ) -> Result<Vec<Arc<InstanceType>>, ProblemError> {
        for (index, pattern) in wanted.iter().enumerate() {
            if !self.types.iter().any(|t| matches(pattern, &t.name)) {
                let message = format!("no instance type of the catalogue matches {pattern:?}");
                return Err(ProblemError::new(format!("instanceTypes[{index}]"), message));
            }
        }
        let is_wanted = |t: &&Arc<InstanceType>| wanted.is_empty() || wanted.iter().any(|p| matches(p, &t.name));
        let mut types: Vec<Arc<InstanceType>> = self.types.iter().filter(is_wanted).cloned().collect();
        for (index, change) in changes.iter().enumerate() {
            apply(change, &mut types, &format!("offerings[{index}]"))?;
        }
        Ok(types)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |prefix| name.starts_with(prefix))
}

fn apply(change: &OfferingChange, types: &mut [Arc<InstanceType>], path: &str) -> Result<(), ProblemError> {
    let is = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| matches(wanted, value));
    if let Some(market) = change.capacity_type.as_ref().filter(|market| CapacityType::from_label(market).is_none()) {
        return Err(ProblemError::new(format!("{path}.capacityType"), unknown_market(market)));
    }
    for instance_type in types.iter_mut().filter(|t| is(&change.instance_type, &t.name)) {
        if let Some(id) = &change.reservation_id {
            let zone = change.zone.as_deref().ok_or_else(|| {
                ProblemError::new(format!("{path}.zone"), "missing; a reservation is expected to name its zone")
            })?;
            if let Some(offering) = reserved(instance_type, id, change.reservation_capacity, zone) {
                add_reservation(Arc::make_mut(instance_type), id, offering);
            }
            continue;
        }
        let is_meant = |o: &Offering| is(&change.zone, &o.zone) && is(&change.capacity_type, o.capacity_type.as_str());
        for offering in Arc::make_mut(instance_type).offerings.iter_mut().filter(|o| is_meant(o)) {
            offering.available = change.available.unwrap_or(offering.available);
            offering.price = change.price.unwrap_or(offering.price);
        }
    }
    Ok(())
}

fn unknown_market(text: &str) -> String {
    format!("{text:?}, and reserved, spot or on-demand is expected")
}

/// The reservation as an offering of the type: in that zone, if the type is sold there.
fn reserved(instance_type: &InstanceType, id: &str, capacity: u32, zone: &str) -> Option<Offering> {
    let sold = |o: &&Offering| o.zone == zone && o.capacity_type == CapacityType::OnDemand;
    let market = instance_type.offerings.iter().find(sold)?;
    let reserved = [
        (labels::CAPACITY_TYPE_LABEL, CapacityType::Reserved.as_str()),
        (labels::CAPACITY_RESERVATION_ID_LABEL, id),
        (labels::CAPACITY_RESERVATION_TYPE_LABEL, "default"),
        (labels::CAPACITY_RESERVATION_INTERRUPTIBLE_LABEL, "false"),
    ];
    let mut requirements = market.requirements.clone();
    reserved.iter().for_each(|(key, value)| requirements.replace(Requirement::equals(key, *value)));
    Some(Offering {
        requirements,
        zone: zone.to_owned(),
        capacity_type: CapacityType::Reserved,
        price: market.price / RESERVED_DISCOUNT,
        available: capacity > 0,
        reservation: Some(Reservation { id: id.to_owned(), capacity }),
    })
}

/// Adds the offering, and its values to the labels that the type may have.
fn add_reservation(instance_type: &mut InstanceType, id: &str, offering: Offering) {
    for (key, value) in [
        (labels::CAPACITY_TYPE_LABEL, CapacityType::Reserved.as_str()),
        (labels::CAPACITY_RESERVATION_ID_LABEL, id),
        (labels::CAPACITY_RESERVATION_TYPE_LABEL, "default"),
        (labels::CAPACITY_RESERVATION_INTERRUPTIBLE_LABEL, "false"),
    ] {
        let known = instance_type.requirements.get(key).map(|r| r.values().clone()).unwrap_or_default();
        let values = known.into_iter().chain([value.to_owned()]);
        instance_type.requirements.replace(Requirement::new(key, Operator::In, values));
    }
    instance_type.offerings.push(offering);
}

fn instance_type(record: TypeFile, path: &str) -> Result<InstanceType, ProblemError> {
    let TypeFile { name, requirements, capacity, overhead, offerings } = record;
    let requirement = |(key, values): (&String, &Vec<String>)| match values.as_slice() {
        [] => Requirement::does_not_exist(key),
        values => Requirement::new(key, Operator::In, values.iter().cloned()),
    };
    let offerings = offerings.into_iter().enumerate();
    let offerings = offerings.map(|(index, record)| offering(record, &format!("{path}.offerings[{index}]")));
    let amounts = |list: &BTreeMap<String, String>, field: &str| resources(list, &format!("{path}.{field}"));
    Ok(InstanceType {
        name,
        requirements: requirements.iter().map(requirement).collect(),
        offerings: offerings.collect::<Result<_, _>>()?,
        capacity: amounts(&capacity, "capacity")?,
        overhead: Overhead {
            kube_reserved: amounts(&overhead.kube_reserved, "overhead.kubeReserved")?,
            system_reserved: amounts(&overhead.system_reserved, "overhead.systemReserved")?,
            eviction_threshold: amounts(&overhead.eviction_threshold, "overhead.evictionThreshold")?,
        },
    })
}

fn offering(record: OfferingFile, path: &str) -> Result<Offering, ProblemError> {
    let OfferingFile { zone, zone_id, capacity_type, price, available } = record;
    let market = CapacityType::from_label(&capacity_type)
        .ok_or_else(|| ProblemError::new(format!("{path}.capacityType"), unknown_market(&capacity_type)))?;
    let named = [
        Requirement::equals(labels::ZONE_LABEL, zone.as_str()),
        Requirement::equals(labels::CAPACITY_TYPE_LABEL, market.as_str()),
        Requirement::does_not_exist(labels::CAPACITY_RESERVATION_ID_LABEL),
        Requirement::does_not_exist(labels::CAPACITY_RESERVATION_TYPE_LABEL),
        Requirement::does_not_exist(labels::CAPACITY_RESERVATION_INTERRUPTIBLE_LABEL),
    ];
    let zone_id = zone_id.map(|id| Requirement::equals(labels::ZONE_ID_LABEL, id));
    Ok(Offering {
        requirements: named.into_iter().chain(zone_id).collect(),
        zone,
        capacity_type: market,
        price,
        available,
        reservation: None,
    })
}

fn resources(list: &BTreeMap<String, String>, path: &str) -> Result<Resources, ProblemError> {
    let read = |(name, text): (&String, &String)| match text.parse::<Quantity>() {
        Ok(quantity) => Ok((name.clone(), quantity)),
        Err(error) => Err(ProblemError::new(format!("{path}.{name}"), error)),
    };
    list.iter().map(read).collect()
}
