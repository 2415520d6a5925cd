//! What EC2's actions need.
//!
//! // fidelity: documented(Service Authorization Reference, Actions, resources, and condition keys for Amazon EC2)

use super::{fleets, run_instances, stage_permissions};
use crate::actions::permissions::{pass_role, plain};
use crate::cloud::Cloud;
use crate::cloud::capacity::CapacityType;
use crate::cloud::launch_template::LaunchSpecification;
use crate::cloud::resource::Kind;
use crate::cloud::tags::Tags;
use crate::iam::Permission;
use crate::wire::query::Query;
use std::collections::BTreeSet;

pub(crate) fn needed(cloud: &Cloud, action: &str, query: &Query<'_>) -> Vec<Permission> {
    match action {
        "CreateFleet" => create_fleet(cloud, query),
        "RunInstances" => match run_instances::requested(cloud, query) {
            Ok((specification, template)) => {
                let market = fleets::market(specification.market.as_deref());
                launch(cloud, &specification, template.as_ref().map(|used| used.id.as_str()), market)
            }
            // Malformed: the action says how.
            Err(_) => Vec::new(),
        },
        "TerminateInstances" | "StopInstances" | "StartInstances" | "RebootInstances" | "MonitorInstances"
        | "UnmonitorInstances" => {
            query.list("InstanceId").into_iter().filter_map(|id| on_resource(cloud, action, id)).collect()
        }
        "CreateLaunchTemplate" => create_tagged(cloud, action, "launch-template", query, "TagSpecification"),
        "DescribeInstanceAttribute"
        | "GetConsoleOutput"
        | "GetLaunchTemplateData"
        | "ModifyInstanceAttribute"
        | "ModifyInstanceMetadataOptions"
        | "ResetInstanceAttribute" => {
            query.text("InstanceId").and_then(|id| on_resource(cloud, action, id)).into_iter().collect()
        }
        "ModifyInstanceCreditSpecification" => {
            let parts = query.structures("InstanceCreditSpecification");
            parts.iter().filter_map(|part| on_resource(cloud, action, part.text("InstanceId")?)).collect()
        }
        "DeleteFleets" => query.list("FleetId").into_iter().filter_map(|id| on_resource(cloud, action, id)).collect(),
        "ModifyFleet" | "DescribeFleetInstances" | "DescribeFleetHistory" => {
            query.text("FleetId").and_then(|id| on_resource(cloud, action, id)).into_iter().collect()
        }
        "RequestSpotInstances" => request_spot_instances(cloud, query),
        "CancelSpotInstanceRequests" => {
            query.list("SpotInstanceRequestId").into_iter().filter_map(|id| on_resource(cloud, action, id)).collect()
        }
        "CreateCapacityReservation" => create_tagged(cloud, action, "capacity-reservation", query, "TagSpecifications"),
        "ModifyCapacityReservation" | "CancelCapacityReservation" => {
            query.text("CapacityReservationId").and_then(|id| on_resource(cloud, action, id)).into_iter().collect()
        }
        "CreatePlacementGroup" => create_placement_group(cloud, query),
        "DeletePlacementGroup" => {
            let name = query.text("GroupName").unwrap_or_default();
            let found = cloud.placement_groups.values().find(|group| group.name == name);
            found
                .map(|group| plain("ec2", action, arn(cloud, "placement-group", name)).on_tagged(&group.tags))
                .into_iter()
                .collect()
        }
        "CreateLaunchTemplateVersion"
        | "DeleteLaunchTemplate"
        | "DeleteLaunchTemplateVersions"
        | "ModifyLaunchTemplate" => {
            let found = cloud.templates.find(query.text("LaunchTemplateId"), query.text("LaunchTemplateName"));
            found.ok().and_then(|template| on_resource(cloud, action, &template.id)).into_iter().collect()
        }
        "CreateTags" | "DeleteTags" => {
            let tags = query.tags("Tag").unwrap_or_default();
            let ids = query.list("ResourceId").into_iter();
            ids.filter_map(|id| Some(on_resource(cloud, action, id)?.bringing(&tags))).collect()
        }
        _ => stage_permissions::needed(cloud, action, query)
            .unwrap_or_else(|| vec![plain("ec2", action, "*").with("ec2:Region", cloud.config.region.as_str())]),
    }
}

/// What one launch needs: the action on everything it uses and makes, the tags it puts on what it makes, and the role it
/// hands to the instances.
pub(crate) fn launch(
    cloud: &Cloud,
    specification: &LaunchSpecification,
    template: Option<&str>,
    market: CapacityType,
) -> Vec<Permission> {
    let mut needed = on_launch_resources(cloud, "RunInstances", specification, template, market);
    for permission in &mut needed {
        permission.keys.set("ec2:IsLaunchTemplateResource", template.is_some().to_string());
        if let Some(template) = template {
            permission.keys.set("ec2:LaunchTemplate", arn(cloud, "launch-template", template));
        }
        if permission.resource.ends_with(":instance/*") {
            describe_instance(&mut *permission, specification);
        }
    }
    let tags = made(market).iter().filter_map(|kind| Some((*kind, specification.tags.get(*kind)?)));
    needed.extend(tagging(cloud, "RunInstances", tags));
    needed.extend(passed_role(cloud, specification).map(|role| pass_role(cloud, role, "ec2.amazonaws.com")));
    needed
}

fn describe_instance(permission: &mut Permission, specification: &LaunchSpecification) {
    for (key, value) in [
        ("ec2:InstanceType", &specification.instance_type),
        ("ec2:AvailabilityZone", &specification.zone),
        ("ec2:Tenancy", &specification.tenancy),
        ("ec2:MetadataHttpTokens", &specification.metadata.tokens),
        ("ec2:InstanceMarketType", &specification.market),
    ] {
        if let Some(value) = value {
            permission.keys.set(key, value.as_str());
        }
    }
}

/// An instant fleet is permitted as a whole here, and each of its launches when it is tried.
// fidelity: documented(EC2 User Guide, EC2 Fleet prerequisites: ec2:RunInstances, ec2:CreateTags and iam:PassRole besides
// ec2:CreateFleet); assumed: that ec2:CreateFleet is asked on every resource a launch would use, as the Service
// Authorization Reference lists them; that launches are asked one by one and their refusals stand among the fleet's errors.
fn create_fleet(cloud: &Cloud, query: &Query<'_>) -> Vec<Permission> {
    let Ok(request) = fleets::read(query) else { return Vec::new() };
    let fleet_tags = request.tags.get("fleet").cloned().unwrap_or_default();
    // A set, for the ways of a fleet differ in little.
    let mut needed = BTreeSet::from([plain("ec2", "CreateFleet", arn(cloud, "fleet", "*")).bringing(&fleet_tags)]);
    let markets = [(request.on_demand, CapacityType::OnDemand), (request.spot, CapacityType::Spot)];
    for candidate in cloud.fleet_candidates(&request).unwrap_or_default() {
        for (_, market) in markets.iter().filter(|(target, _)| *target > 0) {
            let template = Some(candidate.template.id.as_str());
            needed.extend(on_launch_resources(cloud, "CreateFleet", candidate.specification(), template, *market));
        }
    }
    let mut needed: Vec<Permission> = needed.into_iter().collect();
    let tags = request.tags.iter().map(|(kind, tags)| (kind.as_str(), tags));
    needed.extend(tagging(cloud, "CreateFleet", tags));
    needed
}

/// A placement group's ARN ends in its name, which is known before there is a group.
fn create_placement_group(cloud: &Cloud, query: &Query<'_>) -> Vec<Permission> {
    let name = query.text("GroupName").unwrap_or("*");
    let mut needed = create_tagged(cloud, "CreatePlacementGroup", "placement-group", query, "TagSpecification");
    needed.iter_mut().for_each(|permission| permission.resource = arn(cloud, "placement-group", name));
    needed
}

fn create_tagged(cloud: &Cloud, action: &str, kind: &str, query: &Query<'_>, name: &str) -> Vec<Permission> {
    let mut tags = Tags::new();
    for part in query.structures(name) {
        tags.extend(part.tags("Tag").unwrap_or_default());
    }
    let mut needed = vec![plain("ec2", action, arn(cloud, kind, "*")).bringing(&tags)];
    needed.extend(tagging(cloud, action, [(kind, &tags)]));
    needed
}

/// The action on what the launch uses and on the request it makes, and the role the instance gets.
fn request_spot_instances(cloud: &Cloud, query: &Query<'_>) -> Vec<Permission> {
    let action = "RequestSpotInstances";
    let mut needed = create_tagged(cloud, action, "spot-instances-request", query, "TagSpecification");
    let Some(specification) = query.structure("LaunchSpecification").and_then(|part| {
        let mut specification = super::specification::read(&part).ok()?;
        specification.subnet_id = part.owned("SubnetId");
        Some(specification)
    }) else {
        return needed;
    };
    let used = on_launch_resources(cloud, action, &specification, None, CapacityType::OnDemand);
    needed.extend(used.into_iter().filter(|permission| !permission.resource.ends_with("/*")));
    needed.extend(passed_role(cloud, &specification).map(|role| pass_role(cloud, role, "ec2.amazonaws.com")));
    needed
}

/// The action on everything a launch uses or makes.
fn on_launch_resources(
    cloud: &Cloud,
    action: &str,
    specification: &LaunchSpecification,
    template: Option<&str>,
    market: CapacityType,
) -> Vec<Permission> {
    let mut needed = Vec::new();
    let interfaces = &specification.network_interfaces;
    let groups = interfaces.iter().flat_map(|interface| &interface.security_group_ids);
    let ids = specification.image_id.as_deref().into_iter().chain(specification.primary_subnet());
    let ids = ids.chain(groups.map(String::as_str)).chain(specification.security_group_ids.iter().map(String::as_str));
    let ids: BTreeSet<&str> = ids.chain(template).chain(specification.reservation_id.as_deref()).collect();
    needed.extend(ids.into_iter().filter_map(|id| on_resource(cloud, action, id)));
    // fidelity: documented(Service Authorization Reference: snapshots of block device mappings); an image's own are not asked.
    for snapshot in specification.block_devices.iter().filter_map(|device| device.snapshot_id.as_deref()) {
        needed.push(plain("ec2", action, arn(cloud, "snapshot", snapshot)));
    }
    let group = specification.placement_group_id.as_ref().and_then(|id| cloud.placement_groups.get(id));
    let by_name = specification.placement_group_name.clone();
    if let Some(name) = group.map(|group| group.name.clone()).or(by_name) {
        let tags = group.map(|group| group.tags.clone()).unwrap_or_default();
        needed.push(plain("ec2", action, arn(cloud, "placement-group", &name)).on_tagged(&tags));
    }
    if let Some(key) = &specification.key_name {
        needed.push(plain("ec2", action, arn(cloud, "key-pair", key)));
    }
    for kind in made(market) {
        let tags = specification.tags.get(*kind).cloned().unwrap_or_default();
        needed.push(plain("ec2", action, arn(cloud, kind, "*")).bringing(&tags));
    }
    needed
}

/// The kinds of resources that a launch makes.
fn made(market: CapacityType) -> &'static [&'static str] {
    match market {
        CapacityType::OnDemand => &["instance", "network-interface", "volume"],
        CapacityType::Spot => &["instance", "network-interface", "volume", "spot-instances-request"],
    }
}

/// Tags on what an action makes are a permission of their own.
// fidelity: documented(EC2 User Guide, Grant permission to tag resources during creation: ec2:CreateTags with
// ec2:CreateAction, asked only if tags are given)
pub(super) fn tagging<'a>(
    cloud: &Cloud,
    action: &str,
    tags: impl IntoIterator<Item = (&'a str, &'a Tags)>,
) -> impl Iterator<Item = Permission> {
    let given = tags.into_iter().filter(|(_, tags)| !tags.is_empty());
    given.map(move |(kind, tags)| {
        plain("ec2", "CreateTags", arn(cloud, kind, "*")).bringing(tags).with("ec2:CreateAction", action)
    })
}

/// The action on a resource that exists.
// fidelity: assumed: of a resource that does not exist the action says so, whoever asks.
pub(super) fn on_resource(cloud: &Cloud, action: &str, id: &str) -> Option<Permission> {
    let tags = cloud.tags_of(id)?;
    // Key pairs are named where all others have their ids.
    let name = cloud.key_pairs.values().find(|pair| pair.id == id).map_or(id, |pair| &pair.name);
    let mut permission = plain("ec2", action, arn(cloud, Kind::of(id)?.name, name)).on_tagged(tags);
    permission.keys.tags("ec2:ResourceTag", tags);
    Some(permission)
}

// fidelity: documented(Service Authorization Reference: ARNs of images and snapshots name no account)
pub(super) fn arn(cloud: &Cloud, kind: &str, id: &str) -> String {
    match kind {
        "image" | "snapshot" => format!("arn:aws:ec2:{}::{kind}/{id}", cloud.config.region),
        _ => cloud.arn("ec2", &format!("{kind}/{id}")),
    }
}

/// The name of the role behind the instance profile of a launch.
fn passed_role<'a>(cloud: &'a Cloud, specification: &LaunchSpecification) -> Option<&'a str> {
    let by_arn = || specification.profile_arn.as_deref()?.rsplit('/').next();
    let name = specification.profile_name.as_deref().or_else(by_arn)?;
    cloud.identity.profiles.get(name)?.role.as_deref()
}
