//! The resource types that stacks may hold: what each makes, and how it is changed and taken away.
//!
//! // fidelity: documented(CloudFormation Template Reference: properties and return values of each resource type)

use super::template::scalar;
use crate::actions::{Context, Step, eks, events, sqs};
use crate::cloud::Cloud;
use crate::cloud::identity::InstanceProfile;
use crate::cloud::roles::{NewOidcProvider, NewPolicy, NewRole, SESSION_S};
use crate::cloud::stack::StackResource;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use crate::iam::policy::{Kind, Policy};
use crate::wire::Reply;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Each type with the properties it may have.
const KINDS: [(&str, &[&str]); 10] = [
    (
        "AWS::IAM::Role",
        &[
            "AssumeRolePolicyDocument",
            "Description",
            "ManagedPolicyArns",
            "MaxSessionDuration",
            "Path",
            "PermissionsBoundary",
            "Policies",
            "RoleName",
            "Tags",
        ],
    ),
    (
        "AWS::IAM::ManagedPolicy",
        &["Description", "Groups", "ManagedPolicyName", "Path", "PolicyDocument", "Roles", "Users"],
    ),
    ("AWS::IAM::Policy", &["Groups", "PolicyDocument", "PolicyName", "Roles", "Users"]),
    ("AWS::IAM::InstanceProfile", &["InstanceProfileName", "Path", "Roles"]),
    ("AWS::IAM::OIDCProvider", &["ClientIdList", "Tags", "ThumbprintList", "Url"]),
    (
        "AWS::SQS::Queue",
        &[
            "ContentBasedDeduplication",
            "DeduplicationScope",
            "DelaySeconds",
            "FifoQueue",
            "FifoThroughputLimit",
            "KmsDataKeyReusePeriodSeconds",
            "KmsMasterKeyId",
            "MaximumMessageSize",
            "MessageRetentionPeriod",
            "QueueName",
            "ReceiveMessageWaitTimeSeconds",
            "RedriveAllowPolicy",
            "RedrivePolicy",
            "SqsManagedSseEnabled",
            "Tags",
            "VisibilityTimeout",
        ],
    ),
    ("AWS::SQS::QueuePolicy", &["PolicyDocument", "Queues"]),
    ("AWS::Events::Rule", &["Description", "EventBusName", "EventPattern", "Name", "State", "Targets"]),
    (
        "AWS::EKS::AccessEntry",
        &["AccessPolicies", "ClusterName", "KubernetesGroups", "PrincipalArn", "Tags", "Type", "Username"],
    ),
    ("AWS::EKS::PodIdentityAssociation", &["ClusterName", "Namespace", "RoleArn", "ServiceAccount", "Tags"]),
];

/// What became of a resource.
pub(super) struct Made {
    pub(super) physical_id: String,
    pub(super) attributes: BTreeMap<String, String>,
}

/// A resource that is to be made, or changed where it is there already.
pub(super) struct Wanted<'a> {
    pub(super) stack: &'a str,
    pub(super) logical_id: &'a str,
    pub(super) kind: &'a str,
    pub(super) properties: &'a Value,
    pub(super) old: Option<&'a StackResource>,
}

/// Makes or changes a resource. One whose physical id changes is a new one; the old one is deleted later.
pub(super) fn put(cloud: &mut Cloud, context: &Context<'_>, wanted: &Wanted<'_>) -> Result<Made, ApiError> {
    let Some((_, known)) = KINDS.iter().find(|(kind, _)| *kind == wanted.kind) else {
        return Err(failure(format!("Resource type {} is not played here", wanted.kind)));
    };
    let unknown =
        wanted.properties.as_object().into_iter().flat_map(Map::keys).find(|name| !known.contains(&name.as_str()));
    if let Some(unknown) = unknown {
        return Err(failure(format!("Encountered unsupported property {unknown}")));
    }
    match wanted.kind {
        "AWS::IAM::Role" => put_role(cloud, context, wanted),
        "AWS::IAM::ManagedPolicy" => put_managed_policy(cloud, context, wanted),
        "AWS::IAM::Policy" => put_policy(cloud, wanted),
        "AWS::IAM::InstanceProfile" => put_instance_profile(cloud, context, wanted),
        "AWS::IAM::OIDCProvider" => put_oidc_provider(cloud, context, wanted),
        "AWS::SQS::Queue" => put_queue(cloud, context, wanted),
        "AWS::SQS::QueuePolicy" => put_queue_policy(cloud, context, wanted),
        "AWS::Events::Rule" => put_rule(cloud, context, wanted),
        "AWS::EKS::AccessEntry" => put_access_entry(cloud, context, wanted),
        _ => put_pod_identity_association(cloud, context, wanted),
    }
}

/// Takes a resource away. What somebody else has taken away already is no failure.
pub(super) fn delete(cloud: &mut Cloud, context: &Context<'_>, resource: &StackResource) -> Result<(), ApiError> {
    let StackResource { kind, physical_id: id, properties, .. } = resource;
    let deleted = match kind.as_str() {
        "AWS::IAM::Role" => delete_role(cloud, id, properties),
        "AWS::IAM::ManagedPolicy" => {
            texts(properties, "Roles").iter().for_each(|role| drop(cloud.detach_policy(role, id)));
            cloud.delete_policy(id)
        }
        "AWS::IAM::Policy" => {
            texts(properties, "Roles").iter().for_each(|role| drop(cloud.delete_role_policy(role, id)));
            Ok(())
        }
        "AWS::IAM::InstanceProfile" => {
            texts(properties, "Roles").iter().for_each(|role| drop(cloud.identity.remove_role_from_profile(id, role)));
            cloud.identity.remove_profile(id)
        }
        "AWS::IAM::OIDCProvider" => {
            cloud.identity.oidc_providers.remove(id);
            Ok(())
        }
        "AWS::SQS::Queue" => {
            queue_call(cloud, context, "DeleteQueue", json!({"QueueUrl": id}))?;
            // The minute after which a name is free again is part of deleting a stack, which takes no time here.
            cloud.deleted_queues.remove(id.rsplit('/').next().unwrap_or_default());
            Ok(())
        }
        "AWS::SQS::QueuePolicy" => set_queue_policies(cloud, context, &texts(properties, "Queues"), ""),
        "AWS::Events::Rule" => delete_rule(cloud, context, id, properties),
        "AWS::EKS::AccessEntry" => {
            let input = json!({"name": properties["ClusterName"], "principalArn": properties["PrincipalArn"]});
            eks::perform(cloud, context, "DeleteAccessEntry", &input).map(drop)
        }
        "AWS::EKS::PodIdentityAssociation" => {
            let id = id.rsplit('/').next();
            let input = json!({"name": properties["ClusterName"], "associationId": id});
            eks::perform(cloud, context, "DeletePodIdentityAssociation", &input).map(drop)
        }
        _ => Ok(()),
    };
    match deleted {
        Err(error) if error.status == 404 || error.code == "QueueDoesNotExist" => Ok(()),
        other => other,
    }
}

fn put_role(cloud: &mut Cloud, context: &Context<'_>, wanted: &Wanted<'_>) -> Result<Made, ApiError> {
    let properties = wanted.properties;
    let name = name(cloud, wanted, "RoleName");
    let trust_policy = document(properties, "AssumeRolePolicyDocument")?;
    let kept = wanted.old.filter(|old| old.physical_id == name);
    if kept.is_some() {
        cloud.update_trust_policy(&name, &trust_policy)?;
        cloud.role_mut(&name)?.tags = tags(properties);
    } else {
        let new = NewRole { name: name.clone(), path: path(properties), trust_policy, tags: tags(properties) };
        cloud.create_role(context.now, new)?;
    }
    set_role_options(cloud, &name, properties)?;
    let before = kept.map(|old| texts(&old.properties, "ManagedPolicyArns")).unwrap_or_default();
    let after = texts(properties, "ManagedPolicyArns");
    for gone in before.iter().filter(|arn| !after.contains(arn)) {
        cloud.detach_policy(&name, gone)?;
    }
    for arn in &after {
        cloud.attach_policy(&name, arn)?;
    }
    cloud.role_mut(&name)?.inline_policies.clear();
    for policy in properties["Policies"].as_array().into_iter().flatten() {
        cloud.put_role_policy(&name, &text(policy, "PolicyName")?, &document(policy, "PolicyDocument")?)?;
    }
    let role = cloud.identity.role(&name)?;
    Ok(made(&name, [("Arn", role.arn.clone()), ("RoleId", role.id.clone())]))
}

fn set_role_options(cloud: &mut Cloud, name: &str, properties: &Value) -> Result<(), ApiError> {
    let boundary = properties.get("PermissionsBoundary").map(scalar);
    cloud.set_boundary(name, boundary.as_deref())?;
    let role = cloud.role_mut(name)?;
    role.description = properties.get("Description").map(scalar).unwrap_or_default();
    role.max_session_s = match properties.get("MaxSessionDuration").map(scalar) {
        None => SESSION_S,
        Some(text) => {
            let seconds = text.parse().ok().filter(|seconds| (3600..=43_200).contains(seconds));
            seconds.ok_or_else(|| failure(format!("MaxSessionDuration is {text}; expected is 3600 to 43200")))?
        }
    };
    Ok(())
}

fn delete_role(cloud: &mut Cloud, name: &str, properties: &Value) -> Result<(), ApiError> {
    for arn in texts(properties, "ManagedPolicyArns") {
        drop(cloud.detach_policy(name, &arn));
    }
    for policy in properties["Policies"].as_array().into_iter().flatten() {
        drop(cloud.delete_role_policy(name, &text(policy, "PolicyName")?));
    }
    cloud.delete_role(name)
}

fn put_managed_policy(cloud: &mut Cloud, context: &Context<'_>, wanted: &Wanted<'_>) -> Result<Made, ApiError> {
    let properties = wanted.properties;
    // Its physical id is an ARN, which ends with the name.
    let generated = wanted.old.and_then(|old| old.physical_id.rsplit('/').next().map(str::to_owned));
    let given = properties.get("ManagedPolicyName").map(scalar);
    let name = given.or(generated).unwrap_or_else(|| generate(cloud, wanted));
    let (path, document) = (path(properties), document(properties, "PolicyDocument")?);
    let arn = cloud.arn("iam", &format!("policy{path}{name}"));
    let kept = wanted.old.filter(|old| old.physical_id == arn);
    if kept.is_some() && cloud.identity.policies.contains_key(&arn) {
        let policy = Policy::parse(&document, Kind::Identity)?;
        cloud.replace_policy(context.now, &arn, policy);
    } else {
        let description = properties.get("Description").map(scalar).unwrap_or_default();
        cloud.create_policy(context.now, NewPolicy { name, path, document, description, tags: Tags::new() })?;
    }
    let before = kept.map(|old| texts(&old.properties, "Roles")).unwrap_or_default();
    let after = texts(properties, "Roles");
    for gone in before.iter().filter(|role| !after.contains(role)) {
        drop(cloud.detach_policy(gone, &arn));
    }
    for role in &after {
        cloud.attach_policy(role, &arn)?;
    }
    let id = cloud.managed_policy(&arn)?.id.clone();
    Ok(made(&arn, [("PolicyArn", arn.clone()), ("PolicyId", id)]))
}

/// A policy within roles.
fn put_policy(cloud: &mut Cloud, wanted: &Wanted<'_>) -> Result<Made, ApiError> {
    let (name, document) = (text(wanted.properties, "PolicyName")?, document(wanted.properties, "PolicyDocument")?);
    for role in wanted.old.map(|old| texts(&old.properties, "Roles")).unwrap_or_default() {
        drop(cloud.delete_role_policy(&role, &name));
    }
    for role in texts(wanted.properties, "Roles") {
        cloud.put_role_policy(&role, &name, &document)?;
    }
    Ok(made(&name, []))
}

fn put_instance_profile(cloud: &mut Cloud, context: &Context<'_>, wanted: &Wanted<'_>) -> Result<Made, ApiError> {
    let name = name(cloud, wanted, "InstanceProfileName");
    let kept = wanted.old.filter(|old| old.physical_id == name);
    if let Some(old) = kept {
        for role in texts(&old.properties, "Roles") {
            drop(cloud.identity.remove_role_from_profile(&name, &role));
        }
    } else {
        let path = path(wanted.properties);
        let arn = cloud.arn("iam", &format!("instance-profile{path}{name}"));
        let (id, tags) = (cloud.ids.unique("AIPA"), Tags::new());
        let created_at = context.now;
        cloud.identity.add_profile(InstanceProfile {
            id,
            name: name.clone(),
            path,
            arn,
            created_at,
            role: None,
            tags,
        })?;
    }
    for role in texts(wanted.properties, "Roles") {
        cloud.identity.add_role_to_profile(&name, &role)?;
    }
    let arn = cloud.identity.profile(&name)?.arn.clone();
    Ok(made(&name, [("Arn", arn)]))
}

fn put_oidc_provider(cloud: &mut Cloud, context: &Context<'_>, wanted: &Wanted<'_>) -> Result<Made, ApiError> {
    let properties = wanted.properties;
    let new = NewOidcProvider {
        url: text(properties, "Url")?,
        client_ids: texts(properties, "ClientIdList").into_iter().collect(),
        thumbprints: texts(properties, "ThumbprintList"),
        tags: tags(properties),
    };
    if let Some(old) = wanted.old.filter(|old| old.properties["Url"] == properties["Url"]) {
        cloud.identity.oidc_providers.remove(&old.physical_id);
    }
    let arn = cloud.create_oidc_provider(context.now, new)?.arn.clone();
    Ok(made(&arn, [("Arn", arn.clone())]))
}

fn put_queue(cloud: &mut Cloud, context: &Context<'_>, wanted: &Wanted<'_>) -> Result<Made, ApiError> {
    let kept = wanted.old.and_then(|old| old.physical_id.rsplit('/').next().map(str::to_owned));
    let given = wanted.properties.get("QueueName").map(scalar);
    let fifo = |properties: &Value| properties.get("FifoQueue").map(scalar).as_deref() == Some("true");
    // A queue of the other type is another queue.
    let kept = kept.filter(|_| wanted.old.is_some_and(|old| fifo(&old.properties) == fifo(wanted.properties)));
    let suffix = if fifo(wanted.properties) { ".fifo" } else { "" };
    let name = given.or_else(|| kept.clone()).unwrap_or_else(|| generate(cloud, wanted) + suffix);
    let mut attributes = queue_attributes(wanted.properties);
    let url = cloud.queue_url(&name);
    if kept.as_ref() == Some(&name) {
        // What a template no longer says is as it was in the beginning.
        for (attribute, initial) in REMOVED {
            if wanted.old.is_some_and(|old| old.properties.get(attribute).is_some()) {
                attributes.entry(attribute).or_insert_with(|| json!(initial));
            }
        }
        queue_call(cloud, context, "SetQueueAttributes", json!({"QueueUrl": url, "Attributes": attributes}))?;
    } else {
        if cloud.queues.contains_key(&name) {
            // fidelity: observed(2026-08): CreateQueue itself would take an equal queue for its own.
            return Err(ApiError::client("AlreadyExists", format!("{name} already exists")));
        }
        let input = json!({"QueueName": name, "Attributes": attributes, "tags": tags(wanted.properties)});
        queue_call(cloud, context, "CreateQueue", input)?;
    }
    let arn = cloud.arn("sqs", &name);
    Ok(made(&url, [("Arn", arn), ("QueueName", name), ("QueueUrl", url.clone())]))
}

/// Attributes that an update can take away, with what stands for their absence.
// fidelity: documented(SQS API Reference, SetQueueAttributes: defaults; an empty policy is none)
const REMOVED: [(&str, &str); 11] = [
    ("ContentBasedDeduplication", "false"),
    ("DeduplicationScope", "queue"),
    ("DelaySeconds", "0"),
    ("FifoThroughputLimit", "perQueue"),
    ("KmsMasterKeyId", ""),
    ("MaximumMessageSize", "1048576"),
    ("MessageRetentionPeriod", "345600"),
    ("ReceiveMessageWaitTimeSeconds", "0"),
    ("RedriveAllowPolicy", ""),
    ("RedrivePolicy", ""),
    ("VisibilityTimeout", "30"),
];

fn queue_attributes(properties: &Value) -> Map<String, Value> {
    let all = properties.as_object().into_iter().flatten();
    // A standard queue says nothing of its type.
    let attributes = all.filter(|(name, value)| match name.as_str() {
        "QueueName" | "Tags" => false,
        "FifoQueue" => scalar(value) == "true",
        _ => true,
    });
    attributes.map(|(name, value)| (name.clone(), json!(scalar(value)))).collect()
}

fn put_queue_policy(cloud: &mut Cloud, context: &Context<'_>, wanted: &Wanted<'_>) -> Result<Made, ApiError> {
    let queues = texts(wanted.properties, "Queues");
    if let Some(old) = wanted.old {
        let gone: Vec<String> =
            texts(&old.properties, "Queues").into_iter().filter(|queue| !queues.contains(queue)).collect();
        // A queue that is gone needs no policy taken away.
        drop(set_queue_policies(cloud, context, &gone, ""));
    }
    set_queue_policies(cloud, context, &queues, &document(wanted.properties, "PolicyDocument")?)?;
    let id = wanted.old.map(|old| old.physical_id.clone());
    Ok(made(&id.unwrap_or_else(|| generate(cloud, wanted)), []))
}

fn set_queue_policies(
    cloud: &mut Cloud,
    context: &Context<'_>,
    queues: &[String],
    policy: &str,
) -> Result<(), ApiError> {
    queues.iter().try_for_each(|url| {
        let input = json!({"QueueUrl": url, "Attributes": {"Policy": policy}});
        queue_call(cloud, context, "SetQueueAttributes", input).map(drop)
    })
}

fn put_rule(cloud: &mut Cloud, context: &Context<'_>, wanted: &Wanted<'_>) -> Result<Made, ApiError> {
    let properties = wanted.properties;
    let name = name(cloud, wanted, "Name");
    if wanted.old.is_none_or(|old| old.physical_id != name) && cloud.bus.rules.contains_key(&name) {
        return Err(ApiError::client("AlreadyExists", format!("{name} already exists")));
    }
    let pattern = document(properties, "EventPattern")?;
    let rule = json!({"Name": name, "EventPattern": pattern, "State": properties.get("State").map(scalar),
        "Description": properties.get("Description").map(scalar)});
    events::perform(cloud, context, "PutRule", &rule)?;
    cloud.bus.rules.entry(name.clone()).and_modify(|rule| rule.targets.clear());
    if let Some(targets) = properties.get("Targets") {
        let answer =
            json_of(events::perform(cloud, context, "PutTargets", &json!({"Rule": name, "Targets": targets}))?);
        if let Some(failed) = answer["FailedEntries"].get(0) {
            return Err(failure(scalar(&failed["ErrorMessage"])));
        }
    }
    let arn = cloud.arn("events", &format!("rule/{name}"));
    Ok(made(&name, [("Arn", arn)]))
}

fn delete_rule(cloud: &mut Cloud, context: &Context<'_>, name: &str, properties: &Value) -> Result<(), ApiError> {
    let ids: Vec<&Value> = properties["Targets"].as_array().into_iter().flatten().map(|target| &target["Id"]).collect();
    if cloud.bus.rules.contains_key(name) {
        events::perform(cloud, context, "RemoveTargets", &json!({"Rule": name, "Ids": ids}))?;
    }
    events::perform(cloud, context, "DeleteRule", &json!({"Name": name})).map(drop)
}

fn put_access_entry(cloud: &mut Cloud, context: &Context<'_>, wanted: &Wanted<'_>) -> Result<Made, ApiError> {
    let properties = wanted.properties;
    let (cluster, principal) = (text(properties, "ClusterName")?, text(properties, "PrincipalArn")?);
    let id = format!("{principal}|{cluster}");
    if let Some(old) = wanted.old.filter(|old| old.physical_id == id) {
        delete(cloud, context, old)?;
    }
    let mut input = json!({"name": cluster, "principalArn": principal, "tags": tags(properties)});
    for (member, property) in [("type", "Type"), ("kubernetesGroups", "KubernetesGroups"), ("username", "Username")] {
        if let Some(value) = properties.get(property) {
            input[member] = value.clone();
        }
    }
    let answer = json_of(eks::perform(cloud, context, "CreateAccessEntry", &input)?);
    for policy in properties.get("AccessPolicies").and_then(Value::as_array).into_iter().flatten() {
        let scope = &policy["AccessScope"];
        let input = json!({"name": cluster, "principalArn": principal, "policyArn": text(policy, "PolicyArn")?,
            "accessScope": {"type": scope["Type"], "namespaces": texts(scope, "Namespaces")}});
        eks::perform(cloud, context, "AssociateAccessPolicy", &input)?;
    }
    Ok(made(&id, [("AccessEntryArn", scalar(&answer["accessEntry"]["accessEntryArn"]))]))
}

fn put_pod_identity_association(
    cloud: &mut Cloud,
    context: &Context<'_>,
    wanted: &Wanted<'_>,
) -> Result<Made, ApiError> {
    let properties = wanted.properties;
    let same = |old: &&StackResource| {
        ["ClusterName", "Namespace", "ServiceAccount"].iter().all(|name| old.properties[*name] == properties[*name])
    };
    if let Some(old) = wanted.old.filter(same) {
        delete(cloud, context, old)?;
    }
    let input = json!({"name": text(properties, "ClusterName")?, "namespace": text(properties, "Namespace")?,
        "serviceAccount": text(properties, "ServiceAccount")?, "roleArn": text(properties, "RoleArn")?,
        "tags": tags(properties)});
    let answer = json_of(eks::perform(cloud, context, "CreatePodIdentityAssociation", &input)?);
    let association = &answer["association"];
    let arn = scalar(&association["associationArn"]);
    let id = scalar(&association["associationId"]);
    Ok(made(&arn, [("AssociationArn", arn.clone()), ("AssociationId", id)]))
}

fn made<const N: usize>(physical_id: &str, attributes: [(&str, String); N]) -> Made {
    let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Made { physical_id: physical_id.to_owned(), attributes }
}

/// The name a property gives, the name it had, or one made up.
fn name(cloud: &mut Cloud, wanted: &Wanted<'_>, property: &str) -> String {
    let given = wanted.properties.get(property).map(scalar);
    let had = || wanted.old.map(|old| old.physical_id.clone());
    given.or_else(had).unwrap_or_else(|| generate(cloud, wanted))
}

// fidelity: documented(CloudFormation User Guide, Name type: stack name, logical id and twelve random characters)
fn generate(cloud: &mut Cloud, wanted: &Wanted<'_>) -> String {
    format!("{}-{}-{}", wanted.stack, wanted.logical_id, &cloud.ids.unique("")[..12])
}

/// A policy or pattern, as an object or as a text that holds one.
fn document(properties: &Value, name: &str) -> Result<String, ApiError> {
    match properties.get(name) {
        Some(value @ (Value::Object(_) | Value::String(_))) => Ok(scalar(value)),
        _ => Err(failure(format!("Property {name} cannot be empty."))),
    }
}

fn text(properties: &Value, name: &str) -> Result<String, ApiError> {
    let value = properties.get(name).map(scalar).filter(|text| !text.is_empty());
    value.ok_or_else(|| failure(format!("Property {name} cannot be empty.")))
}

fn texts(properties: &Value, name: &str) -> Vec<String> {
    properties.get(name).and_then(Value::as_array).into_iter().flatten().map(scalar).collect()
}

fn path(properties: &Value) -> String {
    properties.get("Path").map_or_else(|| "/".into(), scalar)
}

fn tags(properties: &Value) -> Tags {
    let pairs = properties.get("Tags").and_then(Value::as_array).into_iter().flatten();
    pairs.map(|tag| (scalar(&tag["Key"]), scalar(&tag["Value"]))).collect()
}

fn queue_call(cloud: &mut Cloud, context: &Context<'_>, action: &str, input: Value) -> Result<Value, ApiError> {
    match sqs::perform(cloud, context, action, &input) {
        Step::Done(result) => result.map(json_of).map_err(|refused| refused.error),
        Step::WaitUntil(_) => unreachable!("only ReceiveMessage waits"),
    }
}

fn json_of(reply: Reply) -> Value {
    match reply {
        Reply::Json(value) => value,
        Reply::Xml(_) => Value::Null,
    }
}

fn failure(message: impl Into<String>) -> ApiError {
    ApiError::client("InvalidRequest", message)
}
