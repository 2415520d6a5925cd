//! EKS: clusters, access entries, pod identity associations.

mod access;
mod clusters;
pub(super) mod pod_identity;

use super::{Context, page, string_map, text, texts, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::identity::Cluster;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use crate::wire::pagination::{Bounds, Page};
use crate::wire::{Reply, Service};
use serde_json::{Value, json};

// fidelity: documented(EKS API Reference: each action and its errors)
pub(super) fn perform(cloud: &mut Cloud, context: &Context, action: &str, input: &Value) -> Result<Reply, ApiError> {
    let (name, now) = (text(input, "name").unwrap_or_default(), context.now);
    let value = match action {
        "AssociateAccessPolicy" => access::associate(cloud, now, name, input)?,
        "CreateAccessEntry" => access::create(cloud, context, name, input)?,
        "CreateCluster" => clusters::create(cloud, context, input)?,
        "CreatePodIdentityAssociation" => pod_identity::create(cloud, context, name, input)?,
        "DeleteAccessEntry" => access::delete(cloud, name, input)?,
        "DeleteCluster" => clusters::delete(cloud, now, name)?,
        "DeletePodIdentityAssociation" => pod_identity::delete(cloud, name, input)?,
        "DescribeAccessEntry" => access::describe_one(cloud, name, input)?,
        "DescribeCluster" => json!({"cluster": clusters::describe(cluster(cloud, name)?)}),
        "DescribePodIdentityAssociation" => pod_identity::describe_one(cloud, name, input)?,
        "DescribeUpdate" => clusters::describe_one_update(cloud, name, input)?,
        "DisassociateAccessPolicy" => access::disassociate(cloud, name, input)?,
        "ListAccessEntries" => access::list(cloud, name, input)?,
        "ListAccessPolicies" => access::list_policies(input)?,
        "ListAssociatedAccessPolicies" => access::list_associated(cloud, name, input)?,
        "ListClusters" => clusters::list(cloud, input)?,
        "ListPodIdentityAssociations" => pod_identity::list(cloud, name, input)?,
        "ListTagsForResource" => json!({"tags": tagged(cloud, input)?}),
        "ListUpdates" => clusters::list_updates(cloud, name, input)?,
        "TagResource" => {
            let added = string_map(input, "tags");
            let tags = tagged(cloud, input)?;
            clusters::check_tags(tags, &added)
                .map_err(|error| ApiError::client("BadRequestException", error.message))?;
            tags.extend(added);
            json!({})
        }
        "UntagResource" => {
            let keys: Vec<&str> = texts(input, "tagKeys").collect();
            tagged(cloud, input)?.retain(|key, _| !keys.contains(&key.as_str()));
            json!({})
        }
        "UpdateAccessEntry" => access::update(cloud, now, name, input)?,
        "UpdateClusterConfig" => clusters::update_config(cloud, now, name, input)?,
        "UpdatePodIdentityAssociation" => pod_identity::update(cloud, now, name, input)?,
        _ => return Err(unknown_action(Service::Eks, action)),
    };
    Ok(Reply::Json(value))
}

/// The tags of the cluster, access entry or association with this ARN.
fn tagged<'a>(cloud: &'a mut Cloud, input: &Value) -> Result<&'a mut Tags, ApiError> {
    let arn = text(input, "resourceArn").unwrap_or_default();
    let missing = || ApiError::new(404, "NotFoundException", format!("No resource found for ARN: {arn}"));
    for cluster in cloud.clusters.values_mut() {
        if cluster.arn == arn {
            return Ok(&mut cluster.control_plane.tags);
        }
        if let Some(entry) = cluster.access_entries.values_mut().find(|entry| entry.arn == arn) {
            return Ok(&mut entry.tags);
        }
        let mut associations = cluster.pod_identity_associations.values_mut();
        if let Some(association) = associations.find(|association| association.arn == arn) {
            return Ok(&mut association.tags);
        }
    }
    Err(missing())
}

fn cluster<'a>(cloud: &'a Cloud, name: &str) -> Result<&'a Cluster, ApiError> {
    cloud.clusters.get(name).ok_or_else(|| no_cluster(name))
}

fn no_cluster(name: &str) -> ApiError {
    ApiError::new(404, "ResourceNotFoundException", format!("No cluster found for name: {name}."))
}

fn required<'a>(input: &'a Value, member: &str) -> Result<&'a str, ApiError> {
    text(input, member).filter(|text| !text.is_empty()).ok_or_else(|| invalid(format!("{member} is required")))
}

fn invalid(message: String) -> ApiError {
    ApiError::client("InvalidParameterException", message)
}

// fidelity: documented(EKS API Reference: maxResults of 1 to 100, 100 by default)
fn page_of(input: &Value) -> Result<Page, ApiError> {
    let bounds = Bounds { minimum: 1, maximum: 100, default: 100 };
    page(input, ["maxResults", "nextToken"], bounds, ["InvalidParameterException"; 2])
}

fn with_next(mut answer: Value, next: Option<String>) -> Value {
    if let Some(next) = next {
        answer["nextToken"] = json!(next);
    }
    answer
}
