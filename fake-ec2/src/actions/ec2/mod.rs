//! EC2 actions. Each reads its parameters completely, refuses what it does not know, and only then acts.

mod describe;
mod fleet_requests;
mod fleets;
mod gateways;
mod image_attributes;
mod images;
mod instance_attributes;
mod instance_filters;
mod instance_status;
mod instance_types;
mod instances;
mod key_pairs;
mod launch_templates;
mod members;
mod network_defaults;
mod network_interfaces;
pub(super) mod permissions;
mod prices;
mod requirements;
mod reservations;
mod route_tables;
mod run_instances;
mod security_group_rules;
mod security_groups;
mod snapshots;
mod specification;
mod spot_requests;
mod stage_permissions;
mod subnets;
mod tags;
mod volumes;
mod vpcs;
mod zones;

use super::{Context, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::network::Direction;
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page};
use crate::wire::query::{Form, Query};
use crate::wire::xml::Xml;
use crate::wire::{Reply, Service};

pub(super) fn perform(cloud: &mut Cloud, context: &Context, action: &str, form: &Form) -> Result<Reply, ApiError> {
    let query = form.query();
    let now = context.now;
    let members = match action {
        "CreateFleet" => idempotent(cloud, action, form, |cloud| fleets::create_fleet(cloud, context, &query)),
        "RunInstances" => idempotent(cloud, action, form, |cloud| run_instances::run_instances(cloud, now, &query)),
        "CreateLaunchTemplate" => {
            idempotent(cloud, action, form, |cloud| launch_templates::create_launch_template(cloud, now, &query))
        }
        "DescribeInstances" => instances::describe_instances(cloud, now, &query),
        "DescribeInstanceStatus" => instance_status::describe_instance_status(cloud, now, &query),
        "DescribeInstanceAttribute" => instance_attributes::describe_instance_attribute(cloud, now, &query),
        "ModifyInstanceAttribute" => instance_attributes::modify_instance_attribute(cloud, &query),
        "ResetInstanceAttribute" => instance_attributes::reset_instance_attribute(cloud, &query),
        "ModifyInstanceMetadataOptions" => instance_attributes::modify_instance_metadata_options(cloud, &query),
        "DescribeInstanceCreditSpecifications" => {
            instance_attributes::describe_instance_credit_specifications(cloud, now, &query)
        }
        "ModifyInstanceCreditSpecification" => instance_attributes::modify_instance_credit_specification(cloud, &query),
        "MonitorInstances" => instance_attributes::monitor_instances(cloud, &query, true),
        "UnmonitorInstances" => instance_attributes::monitor_instances(cloud, &query, false),
        "GetConsoleOutput" => instance_attributes::get_console_output(cloud, now, &query),
        "DescribeFleets" => fleet_requests::describe_fleets(cloud, &query),
        "ModifyFleet" => fleet_requests::modify_fleet(cloud, now, &query),
        "DeleteFleets" => fleet_requests::delete_fleets(cloud, now, &query),
        "DescribeFleetInstances" => fleet_requests::describe_fleet_instances(cloud, &query),
        "DescribeFleetHistory" => fleet_requests::describe_fleet_history(cloud, now, &query),
        "GetInstanceTypesFromInstanceRequirements" => requirements::get_instance_types(cloud, &query),
        "RequestSpotInstances" => {
            idempotent(cloud, action, form, |cloud| spot_requests::request_spot_instances(cloud, now, &query))
        }
        "CancelSpotInstanceRequests" => spot_requests::cancel_spot_instance_requests(cloud, now, &query),
        "DescribeSpotInstanceRequests" => spot_requests::describe_spot_instance_requests(cloud, &query),
        "TerminateInstances" => instances::terminate_instances(cloud, now, &query),
        "StopInstances" => instances::stop_instances(cloud, now, &query),
        "StartInstances" => instances::start_instances(cloud, now, &query),
        "RebootInstances" => instances::reboot_instances(cloud, &query),
        "CreateLaunchTemplateVersion" => idempotent(cloud, action, form, |cloud| {
            launch_templates::create_launch_template_version(cloud, now, &query)
        }),
        "ModifyLaunchTemplate" => launch_templates::modify_launch_template(cloud, &query),
        "DescribeLaunchTemplates" => launch_templates::describe_launch_templates(cloud, now, &query),
        "DescribeLaunchTemplateVersions" => launch_templates::describe_launch_template_versions(cloud, now, &query),
        "GetLaunchTemplateData" => launch_templates::get_launch_template_data(cloud, now, &query),
        "DeleteLaunchTemplateVersions" => launch_templates::delete_launch_template_versions(cloud, &query),
        "DeleteLaunchTemplate" => launch_templates::delete_launch_template(cloud, &query),
        "AssociateVpcCidrBlock" => vpcs::associate_cidr_block(cloud, &query),
        "CreateDefaultVpc" => vpcs::create_default_vpc(cloud, &query),
        "CreateVpc" => vpcs::create_vpc(cloud, &query),
        "DeleteVpc" => vpcs::delete_vpc(cloud, &query),
        "DescribeVpcAttribute" => vpcs::describe_vpc_attribute(cloud, &query),
        "DescribeVpcs" => vpcs::describe_vpcs(cloud, &query),
        "DisassociateVpcCidrBlock" => vpcs::disassociate_cidr_block(cloud, &query),
        "ModifyVpcAttribute" => vpcs::modify_vpc_attribute(cloud, &query),
        "CreateDefaultSubnet" => subnets::create_default_subnet(cloud, &query),
        "CreateSubnet" => subnets::create_subnet(cloud, &query),
        "DeleteSubnet" => subnets::delete_subnet(cloud, &query),
        "DescribeSubnets" => subnets::describe_subnets(cloud, &query),
        "ModifySubnetAttribute" => subnets::modify_subnet_attribute(cloud, &query),
        "CreateSecurityGroup" => security_groups::create_security_group(cloud, &query),
        "DeleteSecurityGroup" => security_groups::delete_security_group(cloud, &query),
        "DescribeSecurityGroups" => security_groups::describe_security_groups(cloud, &query),
        "AuthorizeSecurityGroupEgress" => security_group_rules::authorize(cloud, &query, Direction::Egress),
        "AuthorizeSecurityGroupIngress" => security_group_rules::authorize(cloud, &query, Direction::Ingress),
        "DescribeSecurityGroupRules" => security_group_rules::describe_security_group_rules(cloud, &query),
        "ModifySecurityGroupRules" => security_group_rules::modify_security_group_rules(cloud, &query),
        "RevokeSecurityGroupEgress" => security_group_rules::revoke(cloud, &query, Direction::Egress),
        "RevokeSecurityGroupIngress" => security_group_rules::revoke(cloud, &query, Direction::Ingress),
        "UpdateSecurityGroupRuleDescriptionsEgress" => {
            security_group_rules::update_descriptions(cloud, &query, Direction::Egress)
        }
        "UpdateSecurityGroupRuleDescriptionsIngress" => {
            security_group_rules::update_descriptions(cloud, &query, Direction::Ingress)
        }
        "AttachInternetGateway" => gateways::attach_internet_gateway(cloud, &query),
        "CreateInternetGateway" => gateways::create_internet_gateway(cloud, &query),
        "DeleteInternetGateway" => gateways::delete_internet_gateway(cloud, &query),
        "DescribeInternetGateways" => gateways::describe_internet_gateways(cloud, &query),
        "DetachInternetGateway" => gateways::detach_internet_gateway(cloud, &query),
        "AssociateRouteTable" => route_tables::associate_route_table(cloud, &query),
        "CreateRoute" => route_tables::create_route(cloud, &query),
        "CreateRouteTable" => idempotent(cloud, action, form, |cloud| route_tables::create_route_table(cloud, &query)),
        "DeleteRoute" => route_tables::delete_route(cloud, &query),
        "DeleteRouteTable" => route_tables::delete_route_table(cloud, &query),
        "DescribeRouteTables" => route_tables::describe_route_tables(cloud, &query),
        "DisassociateRouteTable" => route_tables::disassociate_route_table(cloud, &query),
        "ReplaceRoute" => route_tables::replace_route(cloud, &query),
        "ReplaceRouteTableAssociation" => route_tables::replace_route_table_association(cloud, &query),
        "CreateNetworkInterface" => {
            idempotent(cloud, action, form, |cloud| network_interfaces::create_network_interface(cloud, &query))
        }
        "DeleteNetworkInterface" => network_interfaces::delete_network_interface(cloud, &query),
        "DescribeNetworkInterfaces" => network_interfaces::describe_network_interfaces(cloud, &query),
        "DescribeDhcpOptions" => network_defaults::describe_dhcp_options(cloud, &query),
        "DescribeManagedPrefixLists" => network_defaults::describe_managed_prefix_lists(cloud, &query),
        "DescribeNetworkAcls" => network_defaults::describe_network_acls(cloud, &query),
        "DescribePrefixLists" => network_defaults::describe_prefix_lists(cloud, &query),
        "DescribeAccountAttributes" => zones::describe_account_attributes(cloud, &query),
        "DescribeAvailabilityZones" => zones::describe_availability_zones(cloud, &query),
        "DescribeRegions" => zones::describe_regions(&query),
        "CreateKeyPair" => key_pairs::create_key_pair(cloud, now, &query),
        "DeleteKeyPair" => key_pairs::delete_key_pair(cloud, &query),
        "DescribeKeyPairs" => key_pairs::describe_key_pairs(cloud, &query),
        "ImportKeyPair" => key_pairs::import_key_pair(cloud, now, &query),
        "CopyImage" => idempotent(cloud, action, form, |cloud| images::copy_image(cloud, now, &query)),
        "CreateImage" => images::create_image(cloud, now, &query),
        "DeregisterImage" => images::deregister_image(cloud, &query),
        "DescribeImages" => images::describe_images(cloud, now, &query),
        "RegisterImage" => images::register_image(cloud, now, &query),
        "DescribeImageAttribute" => image_attributes::describe_image_attribute(cloud, &query),
        "DisableImageDeprecation" => image_attributes::disable_image_deprecation(cloud, &query),
        "EnableImageDeprecation" => image_attributes::enable_image_deprecation(cloud, now, &query),
        "ModifyImageAttribute" => image_attributes::modify_image_attribute(cloud, &query),
        "ResetImageAttribute" => image_attributes::reset_image_attribute(cloud, &query),
        "CreateSnapshot" => snapshots::create_snapshot(cloud, now, &query),
        "DeleteSnapshot" => snapshots::delete_snapshot(cloud, &query),
        "DescribeSnapshots" => snapshots::describe_snapshots(cloud, now, &query),
        "AttachVolume" => volumes::attach_volume(cloud, now, &query),
        "CreateVolume" => idempotent(cloud, action, form, |cloud| volumes::create_volume(cloud, now, &query)),
        "DeleteVolume" => volumes::delete_volume(cloud, now, &query),
        "DescribeVolumes" => volumes::describe_volumes(cloud, now, &query),
        "DetachVolume" => volumes::detach_volume(cloud, now, &query),
        "DescribeInstanceTypes" => instance_types::describe_instance_types(cloud, &query),
        "DescribeInstanceTypeOfferings" => instance_types::describe_instance_type_offerings(cloud, &query),
        "DescribeSpotPriceHistory" => prices::describe_spot_price_history(cloud, now, &query),
        "CreateCapacityReservation" => {
            idempotent(cloud, action, form, |cloud| reservations::create_capacity_reservation(cloud, now, &query))
        }
        "ModifyCapacityReservation" => reservations::modify_capacity_reservation(cloud, now, &query),
        "CancelCapacityReservation" => reservations::cancel_capacity_reservation(cloud, &query),
        "CreatePlacementGroup" => reservations::create_placement_group(cloud, &query),
        "DeletePlacementGroup" => reservations::delete_placement_group(cloud, &query),
        "DescribeCapacityReservations" => reservations::describe_capacity_reservations(cloud, &query),
        "DescribePlacementGroups" => reservations::describe_placement_groups(cloud, &query),
        "CreateTags" | "DeleteTags" => {
            cloud.keep_seen_tags(now, &query.list("ResourceId"));
            if action == "CreateTags" { tags::create_tags(cloud, &query) } else { tags::delete_tags(cloud, &query) }
        }
        "DescribeTags" => tags::describe_tags(cloud, &query),
        _ => Err(unknown_action(Service::Ec2, action)),
    };
    members.map(Reply::Xml)
}

/// Answers a repeated request with what was answered first.
fn idempotent(
    cloud: &mut Cloud,
    action: &str,
    form: &Form,
    perform: impl FnOnce(&mut Cloud) -> Result<String, ApiError>,
) -> Result<String, ApiError> {
    let (token, fingerprint) = (form.peek("ClientToken"), form.fingerprint());
    if let Some(answer) = cloud.recall(action, token, &fingerprint)? {
        return Ok(answer);
    }
    let answer = perform(cloud)?;
    cloud.remember(action, token, fingerprint, &answer);
    Ok(answer)
}

/// `MaxResults` and `NextToken`.
fn page(query: &Query<'_>, minimum: usize, maximum: usize, default: usize) -> Result<Page, ApiError> {
    Page::new(query.number("MaxResults")?, query.text("NextToken"), Bounds { minimum, maximum, default })
}

/// Ends reading: nothing may be left over, and a dry run goes no further.
fn finish(query: &Query<'_>) -> Result<(), ApiError> {
    let dry_run = query.dry_run()?;
    query.finish()?;
    if dry_run { Err(ApiError::dry_run()) } else { Ok(()) }
}

/// Refuses parameters that AWS knows and that would have an effect which is not played.
fn refuse_unsupported(query: &Query<'_>, names: &[&str]) -> Result<(), ApiError> {
    let given = |name: &&&str| query.text(name).is_some() || query.structure(name).is_some();
    match names.iter().find(given) {
        None => Ok(()),
        Some(name) => {
            Err(ApiError::client("UnsupportedOperation", format!("The parameter {name} is not supported here.")))
        }
    }
}

/// The tags for what an action makes; it makes only one kind of resource.
fn tags_of_new(query: &Query<'_>, name: &str, kind: &str) -> Result<crate::cloud::tags::Tags, ApiError> {
    let mut own = crate::cloud::tags::Tags::new();
    for part in query.structures(name) {
        match part.required("ResourceType")? {
            named if named == kind => own.extend(part.tags("Tag")?),
            other => {
                let message = format!("'{other}' is not a valid taggable resource type for this operation.");
                return Err(ApiError::invalid_value(message));
            }
        }
    }
    crate::cloud::tags::check(&Default::default(), &own)?;
    Ok(own)
}

fn tag_set(xml: &mut Xml, tags: &crate::cloud::tags::Tags) {
    xml.list("tagSet", tags, |xml, (key, value)| {
        xml.text("key", key);
        xml.text("value", value);
    });
}

fn groups(xml: &mut Xml, name: &str, groups: &[(String, String)]) {
    xml.list(name, groups, |xml, (id, name)| {
        xml.text("groupId", id);
        xml.text("groupName", name);
    });
}

fn returned_true() -> String {
    "<return>true</return>".into()
}
