//! Pod identity: which role the pods of a service account have, and credentials for it.

use super::{cluster, page_of, with_next};
use crate::actions::{Context, open_session, string_map, text};
use crate::cloud::Cloud;
use crate::cloud::identity::{Cluster, PodIdentityAssociation, SessionPolicies};
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use crate::iam::web_identity;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

/// How long the credentials of a pod are good.
// fidelity: assumed: six hours, as the pod identity agent renews them.
const SESSION: Duration = Duration::from_secs(6 * 3600);

// fidelity: documented(EKS API Reference, CreatePodIdentityAssociation); observed(2026-08): wording
pub(super) fn create(cloud: &mut Cloud, context: &Context<'_>, name: &str, input: &Value) -> Result<Value, ApiError> {
    let member = |name: &str| {
        let missing = || ApiError::client("InvalidParameterException", format!("{name} is required"));
        text(input, name).map(str::to_owned).ok_or_else(missing)
    };
    let (namespace, service_account, role_arn) = (member("namespace")?, member("serviceAccount")?, member("roleArn")?);
    if let Some(known) = find(cluster(cloud, name)?, &namespace, &service_account) {
        let message = format!("Association already exists: {}", known.id);
        return Err(ApiError::new(409, "ResourceInUseException", message));
    }
    if !cloud.identity.roles.values().any(|role| role.arn == role_arn) {
        return Err(ApiError::client(
            "InvalidParameterException",
            format!("Role provided in the request does not exist: {role_arn}"),
        ));
    }
    let id = cloud.ids.unique("a-").to_ascii_lowercase();
    let association = PodIdentityAssociation {
        arn: cloud.arn("eks", &format!("podidentityassociation/{name}/{id}")),
        id: id.clone(),
        namespace,
        service_account,
        role_arn,
        created_at: context.now,
        modified_at: context.now,
        tags: string_map(input, "tags"),
    };
    let answer = json!({"association": describe(name, &association)});
    if let Some(cluster) = cloud.clusters.get_mut(name) {
        cluster.pod_identity_associations.insert(id, association);
    }
    Ok(answer)
}

pub(super) fn list(cloud: &Cloud, name: &str, input: &Value) -> Result<Value, ApiError> {
    let wanted = |member: &str, own: &str| text(input, member).is_none_or(|wanted| wanted == own);
    let associations = cluster(cloud, name)?.pod_identity_associations.values();
    let chosen = associations
        .filter(|known| wanted("namespace", &known.namespace) && wanted("serviceAccount", &known.service_account));
    let summary = |known: &PodIdentityAssociation| {
        json!({"clusterName": name, "namespace": known.namespace, "serviceAccount": known.service_account,
               "associationArn": known.arn, "associationId": known.id})
    };
    let paged = page_of(input)?.cut(chosen, |known| known.id.clone());
    let summaries: Vec<Value> = paged.items.into_iter().map(summary).collect();
    Ok(with_next(json!({"associations": summaries}), paged.next))
}

/// Gives the pods of the service account another role.
// fidelity: documented(EKS API Reference, UpdatePodIdentityAssociation: something has to change; neither namespace nor service
// account can)
pub(super) fn update(cloud: &mut Cloud, now: Timestamp, name: &str, input: &Value) -> Result<Value, ApiError> {
    by_id(cloud, name, input)?;
    let refuse = |message: String| Err(ApiError::client("InvalidParameterException", message));
    let Some(role_arn) = text(input, "roleArn") else { return refuse("roleArn is required".into()) };
    if !cloud.identity.roles.values().any(|role| role.arn == role_arn) {
        return refuse(format!("Role provided in the request does not exist: {role_arn}"));
    }
    let id = text(input, "associationId").unwrap_or_default();
    let association = cloud.clusters.get_mut(name).and_then(|cluster| cluster.pod_identity_associations.get_mut(id));
    let association = association.expect("looked up above");
    role_arn.clone_into(&mut association.role_arn);
    association.modified_at = now;
    Ok(json!({"association": describe(name, association)}))
}

pub(super) fn describe_one(cloud: &Cloud, name: &str, input: &Value) -> Result<Value, ApiError> {
    Ok(json!({"association": describe(name, by_id(cloud, name, input)?)}))
}

pub(super) fn delete(cloud: &mut Cloud, name: &str, input: &Value) -> Result<Value, ApiError> {
    let association = by_id(cloud, name, input)?.clone();
    if let Some(cluster) = cloud.clusters.get_mut(name) {
        cluster.pod_identity_associations.remove(&association.id);
    }
    Ok(json!({"association": describe(name, &association)}))
}

/// The credentials that the agent on a node fetches for a pod.
// fidelity: documented(EKS Auth API Reference, AssumeRoleForPodIdentity; EKS User Guide, Grant Pods access based on tags:
// session tags); observed(2026-08): wording of refusals
pub(crate) fn assume_role(
    cloud: &mut Cloud,
    context: &Context<'_>,
    name: &str,
    input: &Value,
) -> Result<Value, ApiError> {
    let refuse = |message: String| ApiError::client("InvalidTokenException", message);
    let token =
        text(input, "token").ok_or_else(|| ApiError::client("InvalidParameterException", "token is required"))?;
    let own = cluster(cloud, name)?;
    let claims = web_identity::claims(cloud, context.now, token).map_err(|error| refuse(error.message))?;
    if claims["iss"] != own.oidc_issuer.as_str() {
        return Err(refuse(format!("The token was not issued by cluster {name}: its issuer is {}", claims["iss"])));
    }
    if !web_identity::audiences(&claims).any(|audience| audience == "pods.eks.amazonaws.com") {
        return Err(refuse("The audience of the token is not pods.eks.amazonaws.com".into()));
    }
    let subject: Vec<&str> = claims["sub"].as_str().unwrap_or_default().split(':').collect();
    let ["system", "serviceaccount", namespace, service_account] = subject[..] else {
        return Err(refuse("The token is not one of a service account".into()));
    };
    let association = find(own, namespace, service_account).cloned().ok_or_else(|| {
        let message = format!(
            "No pod identity association found for service account {namespace}/{service_account} in cluster {name}"
        );
        ApiError::new(404, "ResourceNotFoundException", message)
    })?;
    if !web_identity::trusts_pods(cloud, &association.role_arn, &own.arn, context.asking.common) {
        let message = "Unauthorized Exception! EKS does not have permissions to assume the associated role.";
        return Err(ApiError::client("AccessDeniedException", message));
    }
    let pod = &claims["kubernetes.io"]["pod"];
    let tags: Tags = [
        ("eks-cluster-arn", own.arn.as_str()),
        ("eks-cluster-name", name),
        ("kubernetes-namespace", namespace),
        ("kubernetes-service-account", service_account),
        ("kubernetes-pod-name", pod["name"].as_str().unwrap_or_default()),
        ("kubernetes-pod-uid", pod["uid"].as_str().unwrap_or_default()),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    let role = association.role_arn.rsplit('/').next().unwrap_or_default();
    let session_name: String =
        format!("eks-{name}-{}", pod["name"].as_str().unwrap_or(service_account)).chars().take(64).collect();
    let session = open_session(cloud, context.now, role, &session_name, SESSION, tags, SessionPolicies::default());
    let credentials = &session.credentials;
    let account = &cloud.config.account;
    Ok(json!({
        "subject": {"namespace": namespace, "serviceAccount": service_account},
        "audience": "pods.eks.amazonaws.com",
        "podIdentityAssociation": {"associationArn": association.arn, "associationId": association.id},
        "assumedRoleUser": {
            "arn": format!("arn:aws:sts::{account}:assumed-role/{role}/{session_name}"),
            "assumeRoleId": format!("{}:{session_name}", session.role_id),
        },
        "credentials": {
            "accessKeyId": credentials.access_key_id,
            "secretAccessKey": credentials.secret_access_key,
            "sessionToken": credentials.session_token,
            "expiration": credentials.expires_at.as_second(),
        },
    }))
}

fn find<'a>(cluster: &'a Cluster, namespace: &str, service_account: &str) -> Option<&'a PodIdentityAssociation> {
    let mut all = cluster.pod_identity_associations.values();
    all.find(|known| known.namespace == namespace && known.service_account == service_account)
}

fn by_id<'a>(cloud: &'a Cloud, name: &str, input: &Value) -> Result<&'a PodIdentityAssociation, ApiError> {
    let id = text(input, "associationId").unwrap_or_default();
    let missing = || ApiError::new(404, "ResourceNotFoundException", format!("No association found with id {id}"));
    cluster(cloud, name)?.pod_identity_associations.get(id).ok_or_else(missing)
}

fn describe(cluster: &str, association: &PodIdentityAssociation) -> Value {
    let PodIdentityAssociation { id, arn, namespace, service_account, role_arn, created_at, modified_at, tags } =
        association;
    json!({
        "clusterName": cluster,
        "namespace": namespace,
        "serviceAccount": service_account,
        "roleArn": role_arn,
        "associationArn": arn,
        "associationId": id,
        "tags": tags,
        "createdAt": created_at.as_second(),
        "modifiedAt": modified_at.as_second(),
    })
}
