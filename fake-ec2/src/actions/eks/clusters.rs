//! Clusters: create, change, delete, and what they are described with.

use super::{cluster, invalid, no_cluster, page_of, required, with_next};
use crate::actions::{Context, string_map, text, texts};
use crate::bootstrap::{is_cluster_name, oidc_issuer};
use crate::cloud::Cloud;
use crate::cloud::cluster::{ClusterStatus, ClusterUpdate, ControlPlane};
use crate::cloud::identity::Cluster;
use crate::cloud::ids::digits;
use crate::cloud::network::SecurityGroup;
use crate::cloud::tags::{self, Tags};
use crate::error::ApiError;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

// fidelity: documented(EKS API Reference, ListClusters: pages of 1 to 100)
pub(super) fn list(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let paged = page_of(input)?.cut(cloud.clusters.keys(), |name| (*name).clone());
    Ok(with_next(json!({"clusters": paged.items}), paged.next))
}

// fidelity: documented(EKS API Reference, CreateCluster: errors; EKS User Guide, Network requirements: two subnets in
// different zones); assumed: wording; assumed: add-ons, encryption, logging and auto mode change nothing here
pub(super) fn create(cloud: &mut Cloud, context: &Context<'_>, input: &Value) -> Result<Value, ApiError> {
    let name = required(input, "name")?;
    if !is_cluster_name(name) {
        return Err(invalid(format!(
            "The cluster name {name} must begin with a letter or digit and have at most 100 letters, digits, hyphens and underscores."
        )));
    }
    if cloud.clusters.contains_key(name) {
        return Err(ApiError::new(409, "ResourceInUseException", format!("Cluster already exists with name: {name}")));
    }
    let role_arn = required(input, "roleArn")?;
    if !cloud.identity.roles.values().any(|role| role.arn == role_arn) {
        return Err(invalid(format!("Role provided in the request does not exist: {role_arn}")));
    }
    let version = text(input, "version").unwrap_or(&cloud.config.kubernetes_version).to_owned();
    if !cloud.images.parameters.contains_key(&format!(
        "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/standard/recommended/image_id"
    )) {
        return Err(invalid(format!("unsupported Kubernetes version {version}")));
    }
    let vpc_config = input.get("resourcesVpcConfig").unwrap_or(&Value::Null);
    let (subnet_ids, vpc_id) = subnets(cloud, vpc_config)?;
    let tags = string_map(input, "tags");
    check_tags(&Tags::new(), &tags)?;
    let mut control_plane =
        ControlPlane { role_arn: role_arn.into(), private_access: false, tags, ..ControlPlane::default() };
    set_access(&mut control_plane, vpc_config);
    control_plane.security_group_ids = security_groups(cloud, vpc_config)?;
    control_plane.deletion_protection = input.get("deletionProtection").and_then(Value::as_bool).unwrap_or(false);
    if let Some(mode) = input.get("accessConfig").and_then(|config| text(config, "authenticationMode")) {
        check_mode(mode)?;
        control_plane.authentication_mode = mode.into();
    }
    let service_cidr = input.get("kubernetesNetworkConfig").and_then(|config| text(config, "serviceIpv4Cidr"));
    let security_group_id = add_security_group(cloud, name, &vpc_id);
    let id = digits(cloud.config.seed, &["endpoint", name]).to_ascii_uppercase();
    let new = Cluster {
        name: name.to_owned(),
        arn: cloud.arn("eks", &format!("cluster/{name}")),
        version,
        endpoint: format!("https://{id}.gr7.{}.eks.amazonaws.com", cloud.config.region),
        certificate_authority: crate::bootstrap::CERTIFICATE_AUTHORITY.into(),
        service_cidr: service_cidr.unwrap_or("10.100.0.0/16").into(),
        created_at: context.now,
        subnet_ids,
        vpc_id,
        security_group_id,
        access_entries: BTreeMap::new(),
        oidc_issuer: oidc_issuer(cloud, name),
        pod_identity_associations: BTreeMap::new(),
        control_plane,
    };
    cloud.clusters.insert(name.to_owned(), new);
    cloud.enter_cluster(context.now, name, ClusterStatus::Creating);
    Ok(json!({"cluster": describe(cluster(cloud, name)?)}))
}

/// The subnets of a request, and their VPC.
fn subnets(cloud: &Cloud, config: &Value) -> Result<(Vec<String>, String), ApiError> {
    let ids: Vec<String> = texts(config, "subnetIds").map(str::to_owned).collect();
    let (mut zones, mut vpcs) = (BTreeSet::new(), BTreeSet::new());
    for id in &ids {
        let subnet = cloud.network.subnets.get(id);
        let subnet = subnet.ok_or_else(|| invalid(format!("The subnet ID '{id}' does not exist")))?;
        zones.insert(&subnet.zone);
        vpcs.insert(&subnet.vpc_id);
    }
    match (zones.len(), vpcs.len()) {
        (2.., 1) => Ok((ids, vpcs.into_iter().next().cloned().unwrap_or_default())),
        (_, 2..) => Err(invalid("Subnets specified must be in one VPC".into())),
        _ => Err(invalid("Subnets specified must be in at least two different AZs".into())),
    }
}

fn security_groups(cloud: &Cloud, config: &Value) -> Result<Vec<String>, ApiError> {
    let ids: Vec<String> = texts(config, "securityGroupIds").map(str::to_owned).collect();
    match ids.iter().find(|id| !cloud.network.groups.contains_key(*id)) {
        Some(id) => Err(invalid(format!("The security group '{id}' does not exist"))),
        None => Ok(ids),
    }
}

/// The group that EKS makes for a cluster.
// fidelity: documented(EKS User Guide, Security group requirements: the name and the tag of the group that EKS creates)
fn add_security_group(cloud: &mut Cloud, cluster: &str, vpc_id: &str) -> String {
    let Cloud { ids, network, .. } = cloud;
    let name = format!("eks-cluster-sg-{cluster}-{}", ids.next() % 1_000_000_000);
    let description = "EKS created security group applied to ENI that is attached to EKS Control Plane master nodes, as well as any managed workloads.";
    let tags = Tags::from([
        (format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned()),
        ("aws:eks:cluster-name".to_owned(), cluster.to_owned()),
    ]);
    let mut group = SecurityGroup::new(ids, &name, description, vpc_id, tags);
    group.let_members_in(ids);
    let id = group.id.clone();
    network.groups.insert(id.clone(), group);
    id
}

fn set_access(control_plane: &mut ControlPlane, config: &Value) {
    let flag = |name: &str| config.get(name).and_then(Value::as_bool);
    control_plane.public_access = flag("endpointPublicAccess").unwrap_or(control_plane.public_access);
    control_plane.private_access = flag("endpointPrivateAccess").unwrap_or(control_plane.private_access);
    let ranges: Vec<String> = texts(config, "publicAccessCidrs").map(str::to_owned).collect();
    if !ranges.is_empty() {
        control_plane.public_access_cidrs = ranges;
    }
}

// fidelity: documented(EKS API Reference, DeleteCluster: ResourceInUseException; deletion protection)
pub(super) fn delete(cloud: &mut Cloud, now: Timestamp, name: &str) -> Result<Value, ApiError> {
    let present = cluster(cloud, name)?;
    if present.control_plane.deletion_protection {
        let message = format!("Cluster {name} cannot be deleted: its deletion protection is enabled.");
        return Err(ApiError::client("InvalidRequestException", message));
    }
    check_active(present)?;
    cloud.enter_cluster(now, name, ClusterStatus::Deleting);
    Ok(json!({"cluster": describe(cluster(cloud, name)?)}))
}

/// One kind of change at a time.
// fidelity: documented(EKS API Reference, UpdateClusterConfig: one type of update, the authentication mode goes towards the API
// alone); assumed: what is changed is told at once, while the update is still in progress
pub(super) fn update_config(cloud: &mut Cloud, now: Timestamp, name: &str, input: &Value) -> Result<Value, ApiError> {
    check_active(cluster(cloud, name)?)?;
    let kinds = ["accessConfig", "deletionProtection", "resourcesVpcConfig"];
    let members = input.as_object().into_iter().flatten().map(|(member, _)| member.as_str());
    let given: Vec<&str> = members.filter(|member| !["name", "clientRequestToken"].contains(member)).collect();
    let [member] = given[..] else {
        return Err(invalid(format!("Exactly one type of update can be given; there are {}.", given.len())));
    };
    if !kinds.contains(&member) {
        return Err(invalid(format!("Updates of {member} are not played here; those of {} are.", kinds.join(", "))));
    }
    let config = &input[member];
    let groups = security_groups(cloud, config)?;
    let subnet_ids = if config.get("subnetIds").is_some() { Some(subnets(cloud, config)?.0) } else { None };
    let id = cloud.ids.uuid();
    let known = cloud.clusters.get_mut(name).ok_or_else(|| no_cluster(name))?;
    let before = describe(known);
    let plane = &mut known.control_plane;
    let (kind, mut params) = match member {
        "accessConfig" => {
            let mode = text(config, "authenticationMode").unwrap_or_default();
            check_mode(mode)?;
            check_mode_change(&plane.authentication_mode, mode)?;
            plane.authentication_mode = mode.to_owned();
            ("AccessConfigUpdate", BTreeMap::from([("AuthenticationMode".to_owned(), mode.to_owned())]))
        }
        "deletionProtection" => {
            let protected =
                config.as_bool().ok_or_else(|| invalid("deletionProtection must be true or false".into()))?;
            plane.deletion_protection = protected;
            ("DeletionProtectionUpdate", BTreeMap::from([("DeletionProtection".to_owned(), protected.to_string())]))
        }
        _ => {
            set_access(plane, config);
            let vpc = subnet_ids.is_some() || !groups.is_empty();
            if !groups.is_empty() {
                plane.security_group_ids = groups;
            }
            known.subnet_ids = subnet_ids.unwrap_or_else(|| known.subnet_ids.clone());
            (if vpc { "VpcConfigUpdate" } else { "EndpointAccessUpdate" }, vpc_params(config))
        }
    };
    if describe(known) == before {
        return Err(invalid("No changes needed for the cluster configuration provided".into()));
    }
    params.retain(|_, value| !value.is_empty());
    let update = ClusterUpdate { kind: kind.into(), params, created_at: now, done: false };
    let answer = describe_update(&id, &update);
    known.control_plane.updates.insert(id, update);
    cloud.enter_cluster(now, name, ClusterStatus::Updating);
    Ok(json!({"update": answer}))
}

fn vpc_params(config: &Value) -> BTreeMap<String, String> {
    let flag = |name: &str| config.get(name).and_then(Value::as_bool).map_or_else(String::new, |flag| flag.to_string());
    let list = |name: &str| match texts(config, name).collect::<Vec<_>>() {
        values if values.is_empty() => String::new(),
        values => json!(values).to_string(),
    };
    BTreeMap::from([
        ("EndpointPublicAccess".to_owned(), flag("endpointPublicAccess")),
        ("EndpointPrivateAccess".to_owned(), flag("endpointPrivateAccess")),
        ("PublicAccessCidrs".to_owned(), list("publicAccessCidrs")),
        ("SecurityGroups".to_owned(), list("securityGroupIds")),
        ("Subnets".to_owned(), list("subnetIds")),
    ])
}

pub(super) fn describe_one_update(cloud: &Cloud, name: &str, input: &Value) -> Result<Value, ApiError> {
    let id = text(input, "updateId").unwrap_or_default();
    let update = cluster(cloud, name)?.control_plane.updates.get(id);
    let missing = || ApiError::new(404, "ResourceNotFoundException", format!("No update found for ID: {id}"));
    Ok(json!({"update": describe_update(id, update.ok_or_else(missing)?)}))
}

pub(super) fn list_updates(cloud: &Cloud, name: &str, input: &Value) -> Result<Value, ApiError> {
    let updates = &cluster(cloud, name)?.control_plane.updates;
    let paged = page_of(input)?.cut(updates.keys(), |id| (*id).clone());
    Ok(with_next(json!({"updateIds": paged.items}), paged.next))
}

fn describe_update(id: &str, update: &ClusterUpdate) -> Value {
    let ClusterUpdate { kind, params, created_at, done } = update;
    json!({
        "id": id,
        "status": if *done { "Successful" } else { "InProgress" },
        "type": kind,
        "params": params.iter().map(|(kind, value)| json!({"type": kind, "value": value})).collect::<Vec<_>>(),
        "createdAt": created_at.as_second(),
        "errors": [],
    })
}

fn check_active(cluster: &Cluster) -> Result<(), ApiError> {
    match cluster.control_plane.status {
        ClusterStatus::Active => Ok(()),
        status => {
            let message = format!("Cluster {} is {}; it must be ACTIVE.", cluster.name, status.name());
            Err(ApiError::new(409, "ResourceInUseException", message))
        }
    }
}

const MODES: [&str; 3] = ["CONFIG_MAP", "API_AND_CONFIG_MAP", "API"];

fn check_mode(mode: &str) -> Result<(), ApiError> {
    match MODES.contains(&mode) {
        true => Ok(()),
        false => Err(invalid(format!("The authentication mode {mode} must be one of {}.", MODES.join(", ")))),
    }
}

fn check_mode_change(from: &str, to: &str) -> Result<(), ApiError> {
    let rank = |mode: &str| MODES.iter().position(|known| *known == mode);
    match rank(to) < rank(from) {
        true => {
            let message = format!("Unsupported authentication mode update from {from} to {to}");
            Err(ApiError::client("InvalidRequestException", message))
        }
        false => Ok(()),
    }
}

// fidelity: assumed: EKS has one code for all restrictions of tags
pub(super) fn check_tags(present: &Tags, added: &Tags) -> Result<(), ApiError> {
    tags::check(present, added).map_err(|error| invalid(error.message))
}

// fidelity: documented(EKS API Reference, Cluster: endpoint and certificate appear once there is a control plane)
pub(super) fn describe(cluster: &Cluster) -> Value {
    let plane = &cluster.control_plane;
    let mut value = json!({
        "name": cluster.name,
        "arn": cluster.arn,
        "createdAt": cluster.created_at.as_second(),
        "version": cluster.version,
        "roleArn": plane.role_arn,
        "status": plane.status.name(),
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": cluster.service_cidr, "ipFamily": "ipv4"},
        "resourcesVpcConfig": {
            "vpcId": cluster.vpc_id,
            "subnetIds": cluster.subnet_ids,
            "clusterSecurityGroupId": cluster.security_group_id,
            "securityGroupIds": plane.security_group_ids,
            "endpointPublicAccess": plane.public_access,
            "endpointPrivateAccess": plane.private_access,
            "publicAccessCidrs": plane.public_access_cidrs,
        },
        "accessConfig": {"authenticationMode": plane.authentication_mode},
        "deletionProtection": plane.deletion_protection,
        "platformVersion": "eks.1",
        "tags": plane.tags,
    });
    if plane.status != ClusterStatus::Creating {
        value["endpoint"] = json!(cluster.endpoint);
        value["certificateAuthority"] = json!({"data": cluster.certificate_authority});
        value["identity"] = json!({"oidc": {"issuer": cluster.oidc_issuer}});
    }
    value
}
