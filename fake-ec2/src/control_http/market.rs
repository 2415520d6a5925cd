//! What launches cost, and how many addresses are left for them.

use super::account::missing;
use super::ask::Fields;
use super::{Outcome, PREFIX, Refusal};
use crate::cloud::capacity::CapacityType;
use crate::server::FakeEc2;
use serde_json::{Value, json};

/// `instanceType`, `capacityType`, for spot also `zone`; and either `usdPerHour` or `"withdrawn": true`.
pub(super) fn set_price(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let (instance_type, zone, market) =
        (fields.text("instanceType")?, fields.text("zone")?, fields.text("capacityType")?);
    let price = fields.value("usdPerHour");
    let withdrawn = fields.boolean("withdrawn")?.unwrap_or(false);
    fields.finish()?;
    let instance_type = fields.required("instanceType", instance_type, "an instance type such as m5.large")?;
    let market = fields.required("capacityType", market, "spot or on-demand")?;
    let market: CapacityType =
        market.parse().map_err(|error| Refusal::invalid("capacityType", error, "spot or on-demand"))?;
    let zone = match (market, zone) {
        (CapacityType::Spot, zone) => Some(fields.required("zone", zone, "a zone: spot prices differ by zone")?),
        (_, None) => None,
        (_, Some(zone)) => {
            let error = format!("zone is {zone:?}, and an on-demand price holds in every zone");
            return Err(Refusal::invalid("zone", error, "no zone"));
        }
    };
    let price = match (price, withdrawn) {
        (None, true) if market == CapacityType::Spot => None,
        (Some(price), false) => Some(positive(fields, &price)?),
        (_, true) => {
            let error = "withdrawn stands beside a price, or for on-demand";
            return Err(Refusal::invalid("withdrawn", error, "a spot offering without usdPerHour"));
        }
        (None, false) => return Err(Refusal::invalid("usdPerHour", "usdPerHour is missing", PRICE)),
    };
    check_offered(ec2, &instance_type, zone.as_deref())?;
    let cloud = ec2.cloud();
    match (zone.as_deref(), price) {
        (Some(zone), Some(price)) => cloud.set_spot_price(&instance_type, zone, price),
        (Some(zone), None) => cloud.withdraw_spot(&instance_type, zone),
        (None, price) => cloud.set_on_demand_price(&instance_type, price.unwrap_or_default()),
    }
    Ok(json!({"instanceType": instance_type, "zone": zone, "capacityType": market.name(), "usdPerHour": price}))
}

const PRICE: &str = "a number above 0, in USD per hour";

fn positive(fields: &Fields, value: &Value) -> Result<f64, Refusal> {
    let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| fields.wrong("usdPerHour", value, PRICE))
}

fn check_offered(ec2: &FakeEc2, instance_type: &str, zone: Option<&str>) -> Result<(), Refusal> {
    ec2.locked(|cloud, _| {
        let region = &cloud.config.region;
        let Some(offering) = cloud.catalogue.offering(instance_type) else {
            let error = format!("the instance type {instance_type:?} is not offered in {region}");
            return Err(missing("instanceType", error, format!("a type of GET {PREFIX}/resources/offerings")));
        };
        match zone {
            Some(zone) if !offering.zones.contains(&zone) => {
                let error = format!("{instance_type} is not offered in {zone:?}");
                Err(missing("zone", error, offering.zones.join(", ")))
            }
            _ => Ok(()),
        }
    })
}

/// `availableAddresses` of a subnet.
pub(super) fn set_addresses(ec2: &FakeEc2, id: &str, fields: &mut Fields) -> Outcome {
    let count = fields.number("availableAddresses", 0..=u64::from(u32::MAX))?;
    fields.finish()?;
    let count = fields.required("availableAddresses", count, "how many addresses are left, such as 0")?;
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    ec2.cloud()
        .set_available_addresses(id, count)
        .map_err(|unknown| missing("id", unknown.to_string(), format!("an id of GET {PREFIX}/resources/subnets")))?;
    Ok(json!({"subnet": id, "availableAddresses": count}))
}
