//! EKS: clusters, access entries, pod identity associations.

pub(super) mod pod_identity;

use super::{Context, string_map, text, unknown_action};
use crate::bootstrap::access_entry;
use crate::cloud::Cloud;
use crate::cloud::identity::{AccessEntry, Cluster};
use crate::error::ApiError;
use crate::wire::{Reply, Service};
use serde_json::{Value, json};

// fidelity: documented(EKS API Reference: each action and its errors)
pub(super) fn perform(cloud: &mut Cloud, context: &Context, action: &str, input: &Value) -> Result<Reply, ApiError> {
    let name = text(input, "name").unwrap_or_default();
    let value = match action {
        "ListClusters" => json!({"clusters": cloud.clusters.keys().collect::<Vec<_>>()}),
        "DescribeCluster" => json!({"cluster": describe_cluster(cluster(cloud, name)?)}),
        "ListAccessEntries" => {
            json!({"accessEntries": cluster(cloud, name)?.access_entries.keys().collect::<Vec<_>>()})
        }
        "DescribeAccessEntry" => json!({"accessEntry": describe_entry(name, entry(cloud, name, input)?)}),
        "CreateAccessEntry" => create_access_entry(cloud, context, name, input)?,
        "DeleteAccessEntry" => {
            let principal = entry(cloud, name, input)?.principal_arn.clone();
            if let Some(cluster) = cloud.clusters.get_mut(name) {
                cluster.access_entries.remove(&principal);
            }
            json!({})
        }
        "CreatePodIdentityAssociation" => pod_identity::create(cloud, context, name, input)?,
        "ListPodIdentityAssociations" => pod_identity::list(cloud, name, input)?,
        "DescribePodIdentityAssociation" => pod_identity::describe_one(cloud, name, input)?,
        "DeletePodIdentityAssociation" => pod_identity::delete(cloud, name, input)?,
        _ => return Err(unknown_action(Service::Eks, action)),
    };
    Ok(Reply::Json(value))
}

fn create_access_entry(cloud: &mut Cloud, context: &Context, name: &str, input: &Value) -> Result<Value, ApiError> {
    let refuse = |message: &str| ApiError::client("InvalidParameterException", message);
    let principal = text(input, "principalArn").ok_or_else(|| refuse("principalArn is required"))?.to_owned();
    if cluster(cloud, name)?.access_entries.contains_key(&principal) {
        let message = "The specified access entry resource is already in use on this cluster.";
        return Err(ApiError::new(409, "ResourceInUseException", message));
    }
    let kind = text(input, "type").unwrap_or("STANDARD");
    let mut entry = access_entry(cloud, context.now, name, &principal, kind);
    entry.tags = string_map(input, "tags");
    if let Some(user_name) = text(input, "username") {
        entry.user_name = user_name.into();
    }
    let groups = input.get("kubernetesGroups").and_then(Value::as_array).into_iter().flatten();
    entry.groups.extend(groups.filter_map(|group| group.as_str().map(str::to_owned)));
    let answer = json!({"accessEntry": describe_entry(name, &entry)});
    if let Some(cluster) = cloud.clusters.get_mut(name) {
        cluster.access_entries.insert(principal, entry);
    }
    Ok(answer)
}

fn cluster<'a>(cloud: &'a Cloud, name: &str) -> Result<&'a Cluster, ApiError> {
    let missing = || ApiError::new(404, "ResourceNotFoundException", format!("No cluster found for name: {name}."));
    cloud.clusters.get(name).ok_or_else(missing)
}

fn entry<'a>(cloud: &'a Cloud, name: &str, input: &Value) -> Result<&'a AccessEntry, ApiError> {
    let principal = text(input, "principalArn").unwrap_or_default();
    let missing = || {
        let message = format!(
            "The specified principalArn could not be found. You may view your available access entries with 'list-access-entries': {principal}"
        );
        ApiError::new(404, "ResourceNotFoundException", message)
    };
    cluster(cloud, name)?.access_entries.get(principal).ok_or_else(missing)
}

fn describe_cluster(cluster: &Cluster) -> Value {
    json!({
        "name": cluster.name,
        "arn": cluster.arn,
        "createdAt": cluster.created_at.as_second(),
        "version": cluster.version,
        "endpoint": cluster.endpoint,
        "roleArn": "",
        "status": "ACTIVE",
        "certificateAuthority": {"data": cluster.certificate_authority},
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": cluster.service_cidr, "ipFamily": "ipv4"},
        "resourcesVpcConfig": {
            "vpcId": cluster.vpc_id,
            "subnetIds": cluster.subnet_ids,
            "clusterSecurityGroupId": cluster.security_group_id,
            "securityGroupIds": [],
            "endpointPublicAccess": true,
            "endpointPrivateAccess": true,
        },
        "identity": {"oidc": {"issuer": cluster.oidc_issuer}},
        "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"},
        "platformVersion": "eks.1",
        "tags": {},
    })
}

fn describe_entry(cluster: &str, entry: &AccessEntry) -> Value {
    json!({
        "clusterName": cluster,
        "principalArn": entry.principal_arn,
        "accessEntryArn": entry.arn,
        "kubernetesGroups": entry.groups,
        "username": entry.user_name,
        "type": entry.kind,
        "createdAt": entry.created_at.as_second(),
        "modifiedAt": entry.created_at.as_second(),
        "tags": entry.tags,
    })
}
