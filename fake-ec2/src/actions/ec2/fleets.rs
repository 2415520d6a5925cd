//! CreateFleet, of type `instant` only: the other types keep working after their answer, which nothing here needs yet.

use super::permissions;
use crate::actions::Context;
use crate::cloud::Cloud;
use crate::cloud::capacity::CapacityType;
use crate::cloud::fleet::{Candidate, FleetConfig, FleetOverride, FleetRequest, Strategy};
use crate::cloud::launch_template::TemplateReference;
use crate::error::ApiError;
use crate::wire::Service;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use std::collections::BTreeMap;

// fidelity: documented(EC2 API Reference, CreateFleet; EC2 User Guide, instant fleets)
pub(super) fn create_fleet(cloud: &mut Cloud, context: &Context<'_>, query: &Query<'_>) -> Result<String, ApiError> {
    let request = read(query)?;
    let dry_run = query.dry_run()?;
    query.finish()?;
    // A dry run checks what does not depend on capacity.
    let candidates = cloud.fleet_candidates(&request)?;
    if dry_run {
        return Err(ApiError::dry_run());
    }
    let permit = |cloud: &Cloud, candidate: &Candidate, market: CapacityType| {
        let template = Some(candidate.template.id.as_str());
        let needed = || permissions::launch(cloud, candidate.specification(), template, market);
        context.asking.permit(cloud, Service::Ec2, needed).map_err(|refused| refused.error)
    };
    let outcome = cloud.create_fleet(context.now, &request, &candidates, &permit);
    let mut xml = Xml::new();
    xml.text("fleetId", &outcome.id);
    xml.list("errorSet", &outcome.errors, |xml, (candidate, capacity_type, error)| {
        write_candidate(xml, candidate);
        xml.text("lifecycle", capacity_type.name());
        xml.text("errorCode", &error.code);
        xml.text("errorMessage", &error.message);
    });
    xml.list("fleetInstanceSet", &outcome.launched, |xml, (candidate, capacity_type, ids)| {
        write_candidate(xml, candidate);
        xml.text("lifecycle", capacity_type.name());
        xml.texts("instanceIds", ids);
        xml.optional("instanceType", candidate.over.instance_type.as_ref());
        xml.optional("availabilityZone", candidate.over.zone.as_ref());
        xml.optional("subnetId", candidate.over.subnet_id.as_ref());
    });
    Ok(xml.into_string())
}

pub(super) fn read(query: &Query<'_>) -> Result<FleetRequest, ApiError> {
    let kind = query.text("Type").unwrap_or("maintain");
    if kind != "instant" {
        return Err(ApiError::client(
            "UnsupportedOperation",
            format!("Fleets of type {kind} are not played here; use instant."),
        ));
    }
    let total: u32 = query
        .number("TargetCapacitySpecification.TotalTargetCapacity")?
        .ok_or_else(|| ApiError::missing("TargetCapacitySpecification.TotalTargetCapacity"))?;
    let on_demand: Option<u32> = query.number("TargetCapacitySpecification.OnDemandTargetCapacity")?;
    let spot: Option<u32> = query.number("TargetCapacitySpecification.SpotTargetCapacity")?;
    let default = query.text("TargetCapacitySpecification.DefaultTargetCapacityType").unwrap_or("on-demand");
    let named = on_demand.unwrap_or(0).saturating_add(spot.unwrap_or(0));
    let rest = total.checked_sub(named).ok_or_else(|| {
        ApiError::client(
            "InvalidTargetCapacitySpecification",
            "The sum of the target capacities exceeds the total target capacity.",
        )
    })?;
    let (on_demand, spot) = (on_demand.unwrap_or(0), spot.unwrap_or(0));
    let (on_demand, spot) = match default {
        "spot" => (on_demand, spot + rest),
        // Reservations are bought on demand; the launch template names the reservation.
        "on-demand" | "capacity-block" | "reserved-capacity" => (on_demand + rest, spot),
        other => {
            return Err(ApiError::invalid_value(format!(
                "Value ({other}) for parameter DefaultTargetCapacityType is invalid."
            )));
        }
    };
    let strategy = |name: &str, default: Strategy| match query.text(name) {
        None => Ok(default),
        Some(text) => Strategy::parse(text)
            .ok_or_else(|| ApiError::invalid_value(format!("Value ({text}) for parameter {name} is invalid."))),
    };
    let mut tags = BTreeMap::new();
    for part in query.structures("TagSpecification") {
        tags.insert(part.required("ResourceType")?.to_owned(), part.tags("Tag")?);
    }
    for added in tags.values() {
        crate::cloud::tags::check(&Default::default(), added)?;
    }
    let mut configs = Vec::new();
    for config in query.structures("LaunchTemplateConfigs") {
        configs.push(read_config(&config)?);
    }
    if configs.is_empty() {
        return Err(ApiError::missing("LaunchTemplateConfigs"));
    }
    query.ignore(&[
        "Context",
        "ExcessCapacityTerminationPolicy",
        "TerminateInstancesWithExpiration",
        "ReplaceUnhealthyInstances",
        "ValidFrom",
        "ValidUntil",
        "ReservedCapacityOptions",
        "TargetCapacitySpecification.TargetCapacityUnitType",
        "SpotOptions",
        "OnDemandOptions",
    ]);
    Ok(FleetRequest {
        on_demand,
        spot,
        on_demand_strategy: strategy("OnDemandOptions.AllocationStrategy", Strategy::LowestPrice)?,
        spot_strategy: strategy("SpotOptions.AllocationStrategy", Strategy::LowestPrice)?,
        configs,
        tags,
        client_token: query.owned("ClientToken"),
    })
}

fn read_config(query: &Query<'_>) -> Result<FleetConfig, ApiError> {
    let template = TemplateReference {
        id: query.owned("LaunchTemplateSpecification.LaunchTemplateId"),
        name: query.owned("LaunchTemplateSpecification.LaunchTemplateName"),
        version: query.owned("LaunchTemplateSpecification.Version"),
    };
    let mut overrides = Vec::new();
    for part in query.structures("Overrides") {
        if part.structure("InstanceRequirements").is_some() {
            let message = "Attribute-based instance type selection is not played here; name instance types.";
            return Err(ApiError::client("UnsupportedOperation", message));
        }
        part.ignore(&[
            "Placement",
            "AvailabilityZoneId",
            "BlockDeviceMapping",
            "KeyName",
            "IamInstanceProfile",
            "MetadataOptions",
        ]);
        overrides.push(FleetOverride {
            instance_type: part.owned("InstanceType"),
            subnet_id: part.owned("SubnetId"),
            image_id: part.owned("ImageId"),
            zone: part.owned("AvailabilityZone"),
            priority: part.number("Priority")?,
            max_price: part.owned("MaxPrice"),
            weight: part.number("WeightedCapacity")?,
        });
    }
    Ok(FleetConfig { template, overrides })
}

fn write_candidate(xml: &mut Xml, candidate: &Candidate) {
    let Candidate { template, over, .. } = candidate;
    xml.element("launchTemplateAndOverrides", |xml| {
        xml.element("launchTemplateSpecification", |xml| {
            xml.text("launchTemplateId", &template.id);
            xml.value("version", template.version);
        });
        xml.element("overrides", |xml| {
            xml.optional("instanceType", over.instance_type.as_ref());
            xml.optional("maxPrice", over.max_price.as_ref());
            xml.optional("subnetId", over.subnet_id.as_ref());
            xml.optional("availabilityZone", over.zone.as_ref());
            if let Some(weight) = over.weight {
                xml.value("weightedCapacity", weight);
            }
            if let Some(priority) = over.priority {
                xml.value("priority", priority);
            }
            xml.optional("imageId", over.image_id.as_ref());
        });
    });
}

/// The market of a capacity type named in a launch's market options.
pub(super) fn market(name: Option<&str>) -> CapacityType {
    if name == Some("spot") { CapacityType::Spot } else { CapacityType::OnDemand }
}
