//! EC2 actions. Each reads its parameters completely, refuses what it does not know, and only then acts.

mod fleets;
mod images;
mod instance_status;
mod instance_types;
mod instances;
mod launch_templates;
mod network;
pub(super) mod permissions;
mod prices;
mod reservations;
mod run_instances;
mod specification;
mod tags;

use super::{Context, unknown_action};
use crate::cloud::Cloud;
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
        "DescribeSpotInstanceRequests" => instances::describe_spot_instance_requests(cloud, &query),
        "TerminateInstances" => instances::terminate_instances(cloud, now, &query),
        "StopInstances" => instances::stop_instances(cloud, now, &query),
        "StartInstances" => instances::start_instances(cloud, now, &query),
        "RebootInstances" => instances::reboot_instances(cloud, &query),
        "CreateLaunchTemplateVersion" => launch_templates::create_launch_template_version(cloud, now, &query),
        "DescribeLaunchTemplates" => launch_templates::describe_launch_templates(cloud, &query),
        "DescribeLaunchTemplateVersions" => launch_templates::describe_launch_template_versions(cloud, &query),
        "DeleteLaunchTemplate" => launch_templates::delete_launch_template(cloud, &query),
        "DescribeImages" => images::describe_images(cloud, now, &query),
        "DescribeVpcs" => network::describe_vpcs(cloud, &query),
        "DescribeSubnets" => network::describe_subnets(cloud, &query),
        "DescribeSecurityGroups" => network::describe_security_groups(cloud, &query),
        "DescribeAvailabilityZones" => network::describe_availability_zones(cloud, &query),
        "DescribeInstanceTypes" => instance_types::describe_instance_types(cloud, &query),
        "DescribeInstanceTypeOfferings" => instance_types::describe_instance_type_offerings(cloud, &query),
        "DescribeSpotPriceHistory" => prices::describe_spot_price_history(cloud, now, &query),
        "DescribeCapacityReservations" => reservations::describe_capacity_reservations(cloud, &query),
        "DescribePlacementGroups" => reservations::describe_placement_groups(cloud, &query),
        "CreateTags" => tags::create_tags(cloud, &query),
        "DeleteTags" => tags::delete_tags(cloud, &query),
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
