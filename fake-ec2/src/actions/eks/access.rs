//! Access entries: who may join a cluster, and the access policies they have there.

use super::clusters::check_tags;
use super::{cluster, invalid, no_cluster, page_of, required, with_next};
use crate::actions::{Context, string_map, text, texts};
use crate::bootstrap::access_entry;
use crate::cloud::Cloud;
use crate::cloud::cluster::AssociatedPolicy;
use crate::cloud::identity::AccessEntry;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use jiff::Timestamp;
use serde_json::{Value, json};

// fidelity: documented(EKS User Guide, Review access policy permissions: the policies of people and of EKS Auto Mode)
const POLICIES: [&str; 10] = [
    "AmazonEKSAdminPolicy",
    "AmazonEKSAdminViewPolicy",
    "AmazonEKSAutoNodePolicy",
    "AmazonEKSBlockStoragePolicy",
    "AmazonEKSClusterAdminPolicy",
    "AmazonEKSComputePolicy",
    "AmazonEKSEditPolicy",
    "AmazonEKSLoadBalancingPolicy",
    "AmazonEKSNetworkingPolicy",
    "AmazonEKSViewPolicy",
];
const POLICY_ARNS: &str = "arn:aws:eks::aws:cluster-access-policy/";

pub(super) fn create(cloud: &mut Cloud, context: &Context, name: &str, input: &Value) -> Result<Value, ApiError> {
    let principal = required(input, "principalArn")?.to_owned();
    if cluster(cloud, name)?.access_entries.contains_key(&principal) {
        let message = "The specified access entry resource is already in use on this cluster.";
        return Err(ApiError::new(409, "ResourceInUseException", message));
    }
    let kind = text(input, "type").unwrap_or("STANDARD");
    check_names(input)?;
    let mut entry = access_entry(cloud, context.now, name, &principal, kind);
    entry.tags = string_map(input, "tags");
    check_tags(&Tags::new(), &entry.tags)?;
    if let Some(user_name) = text(input, "username") {
        entry.user_name = user_name.into();
    }
    entry.groups.extend(texts(input, "kubernetesGroups").map(str::to_owned));
    let answer = json!({"accessEntry": describe(name, &entry)});
    if let Some(cluster) = cloud.clusters.get_mut(name) {
        cluster.access_entries.insert(principal, entry);
    }
    Ok(answer)
}

/// What is left out stays.
// fidelity: documented(EKS API Reference, UpdateAccessEntry; EKS User Guide, Update access entries: of the type STANDARD alone)
pub(super) fn update(cloud: &mut Cloud, now: Timestamp, name: &str, input: &Value) -> Result<Value, ApiError> {
    check_names(input)?;
    let entry = entry_mut(cloud, name, input)?;
    if entry.kind != "STANDARD" {
        let message = format!("Access entries of the type {} cannot be updated.", entry.kind);
        return Err(ApiError::client("InvalidRequestException", message));
    }
    if input.get("kubernetesGroups").is_some() {
        entry.groups = texts(input, "kubernetesGroups").map(str::to_owned).collect();
    }
    if let Some(user_name) = text(input, "username") {
        entry.user_name = user_name.into();
    }
    entry.modified_at = now;
    Ok(json!({"accessEntry": describe(name, entry)}))
}

/// Refuses names that Kubernetes and AWS keep for themselves.
// fidelity: documented(EKS User Guide, Create access entries: reserved prefixes of groups and user names)
fn check_names(input: &Value) -> Result<(), ApiError> {
    let reserved =
        |name: &str| ["amazon:", "aws:", "eks:", "iam:", "system:"].iter().any(|prefix| name.starts_with(prefix));
    let mut names = texts(input, "kubernetesGroups").chain(text(input, "username"));
    match names.find(|name| reserved(name)) {
        Some(name) => Err(invalid(format!(
            "The name {name} is reserved: it must not start with system:, eks:, aws:, amazon: or iam:"
        ))),
        None => Ok(()),
    }
}

pub(super) fn list(cloud: &Cloud, name: &str, input: &Value) -> Result<Value, ApiError> {
    let policy = text(input, "associatedPolicyArn");
    let entries = cluster(cloud, name)?.access_entries.iter();
    let chosen = entries
        .filter(|(_, entry)| policy.is_none_or(|policy| entry.policies.contains_key(policy)))
        .map(|(principal, _)| principal);
    let paged = page_of(input)?.cut(chosen, |principal| (*principal).clone());
    Ok(with_next(json!({"accessEntries": paged.items}), paged.next))
}

pub(super) fn describe_one(cloud: &Cloud, name: &str, input: &Value) -> Result<Value, ApiError> {
    Ok(json!({"accessEntry": describe(name, entry(cloud, name, input)?)}))
}

pub(super) fn delete(cloud: &mut Cloud, name: &str, input: &Value) -> Result<Value, ApiError> {
    let principal = entry(cloud, name, input)?.principal_arn.clone();
    if let Some(cluster) = cloud.clusters.get_mut(name) {
        cluster.access_entries.remove(&principal);
    }
    Ok(json!({}))
}

pub(super) fn list_policies(input: &Value) -> Result<Value, ApiError> {
    let paged = page_of(input)?.cut(POLICIES, |name| (*name).to_owned());
    let policies: Vec<Value> =
        paged.items.iter().map(|name| json!({"name": name, "arn": format!("{POLICY_ARNS}{name}")})).collect();
    Ok(with_next(json!({"accessPolicies": policies}), paged.next))
}

// fidelity: documented(EKS API Reference, AssociateAccessPolicy: AccessScope; EKS User Guide, Associate access policies: with
// entries of the types STANDARD and EC2); assumed: wording
pub(super) fn associate(cloud: &mut Cloud, now: Timestamp, name: &str, input: &Value) -> Result<Value, ApiError> {
    let policy = required(input, "policyArn")?.to_owned();
    if !policy.strip_prefix(POLICY_ARNS).is_some_and(|name| POLICIES.contains(&name)) {
        return Err(invalid(format!("The policyArn {policy} is not one that ListAccessPolicies tells.")));
    }
    let scope = input.get("accessScope").unwrap_or(&Value::Null);
    let namespaces: Vec<String> = texts(scope, "namespaces").map(str::to_owned).collect();
    match (text(scope, "type"), namespaces.is_empty()) {
        (Some("cluster"), true) | (Some("namespace"), false) => {}
        (Some("cluster"), false) => return Err(invalid("A scope of the type cluster has no namespaces".into())),
        (Some("namespace"), true) => return Err(invalid("A scope of the type namespace needs namespaces".into())),
        _ => return Err(invalid("The type of accessScope must be cluster or namespace".into())),
    }
    let entry = entry_mut(cloud, name, input)?;
    if !["EC2", "STANDARD"].contains(&entry.kind.as_str()) {
        let message = format!("Access policies cannot be associated with access entries of the type {}.", entry.kind);
        return Err(ApiError::client("InvalidRequestException", message));
    }
    let associated_at = entry.policies.get(&policy).map_or(now, |known| known.associated_at);
    let association = AssociatedPolicy { namespaces, associated_at, modified_at: now };
    let described = describe_association(&policy, &association);
    entry.policies.insert(policy, association);
    Ok(json!({"clusterName": name, "principalArn": entry.principal_arn, "associatedAccessPolicy": described}))
}

pub(super) fn disassociate(cloud: &mut Cloud, name: &str, input: &Value) -> Result<Value, ApiError> {
    let policy = required(input, "policyArn")?;
    match entry_mut(cloud, name, input)?.policies.remove(policy) {
        Some(_) => Ok(json!({})),
        None => {
            let message = format!("The policy {policy} is not associated with the access entry.");
            Err(ApiError::new(404, "ResourceNotFoundException", message))
        }
    }
}

pub(super) fn list_associated(cloud: &Cloud, name: &str, input: &Value) -> Result<Value, ApiError> {
    let entry = entry(cloud, name, input)?;
    let paged = page_of(input)?.cut(&entry.policies, |(arn, _)| (*arn).clone());
    let policies: Vec<Value> =
        paged.items.into_iter().map(|(arn, association)| describe_association(arn, association)).collect();
    let answer =
        json!({"clusterName": name, "principalArn": entry.principal_arn, "associatedAccessPolicies": policies});
    Ok(with_next(answer, paged.next))
}

fn describe_association(arn: &str, association: &AssociatedPolicy) -> Value {
    let AssociatedPolicy { namespaces, associated_at, modified_at } = association;
    json!({
        "policyArn": arn,
        "accessScope": {"type": if namespaces.is_empty() { "cluster" } else { "namespace" }, "namespaces": namespaces},
        "associatedAt": associated_at.as_second(),
        "modifiedAt": modified_at.as_second(),
    })
}

fn missing(input: &Value) -> ApiError {
    let principal = text(input, "principalArn").unwrap_or_default();
    let message = format!(
        "The specified principalArn could not be found. You may view your available access entries with 'list-access-entries': {principal}"
    );
    ApiError::new(404, "ResourceNotFoundException", message)
}

fn entry<'a>(cloud: &'a Cloud, name: &str, input: &Value) -> Result<&'a AccessEntry, ApiError> {
    let principal = text(input, "principalArn").unwrap_or_default();
    cluster(cloud, name)?.access_entries.get(principal).ok_or_else(|| missing(input))
}

fn entry_mut<'a>(cloud: &'a mut Cloud, name: &str, input: &Value) -> Result<&'a mut AccessEntry, ApiError> {
    let principal = text(input, "principalArn").unwrap_or_default();
    let cluster = cloud.clusters.get_mut(name).ok_or_else(|| no_cluster(name))?;
    cluster.access_entries.get_mut(principal).ok_or_else(|| missing(input))
}

fn describe(cluster: &str, entry: &AccessEntry) -> Value {
    json!({
        "clusterName": cluster,
        "principalArn": entry.principal_arn,
        "accessEntryArn": entry.arn,
        "kubernetesGroups": entry.groups,
        "username": entry.user_name,
        "type": entry.kind,
        "createdAt": entry.created_at.as_second(),
        "modifiedAt": entry.modified_at.as_second(),
        "tags": entry.tags,
    })
}
