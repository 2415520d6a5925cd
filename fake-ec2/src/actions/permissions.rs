//! The table: which permissions each action needs, on which resources, and what policies may ask about them.
//!
//! // fidelity: documented(Service Authorization Reference: actions, resource types and condition keys of each service)

use super::sqs::source_of_move_task;
use super::{ec2, string_map, tag_list, text};
use crate::cloud::Cloud;
use crate::cloud::tags::Tags;
use crate::iam::Permission;
use crate::iam::facts::Keys;
use crate::wire::query::{Form, Query};
use crate::wire::{Call, Payload, Service};
use serde_json::Value;

/// What a call needs. An action that is not played here needs nothing: it is refused anyway.
pub(crate) fn needed(cloud: &Cloud, call: &Call) -> Vec<Permission> {
    let action = call.action.as_str();
    match (call.service, &call.payload) {
        // A copy, so that reading it here does not count as reading it.
        (Service::Ec2, Payload::Form(form)) => ec2::permissions::needed(cloud, action, &form.unread().query()),
        (Service::Iam, Payload::Form(form)) => identity(cloud, action, &form.unread().query()),
        (Service::Sts, _) => security_tokens(action),
        (Service::Sqs, Payload::Json(input)) => {
            let tags = string_map(input, if action == "CreateQueue" { "tags" } else { "Tags" });
            queue(cloud, action, &tags, |name| text(input, name).map(str::to_owned))
        }
        (Service::Sqs, Payload::Form(form)) => {
            let tags = form.unread().query().tags("Tag").unwrap_or_default();
            queue(cloud, action, &tags, |name| form.peek(name).map(str::to_owned))
        }
        (Service::Ssm, Payload::Json(input)) => parameters(cloud, action, input),
        (Service::Pricing, _) => vec![plain("pricing", action, "*")],
        (Service::EventBridge, Payload::Json(input)) => events(cloud, action, input),
        (Service::Eks, Payload::Json(input)) => cluster(cloud, action, input),
        (Service::CloudFormation, Payload::Form(form)) => stack(cloud, action, form),
        _ => Vec::new(),
    }
}

/// A permission about which policies can ask nothing in particular.
pub(super) fn plain(service: &str, action: &str, resource: impl Into<String>) -> Permission {
    Permission { action: format!("{service}:{action}"), resource: resource.into(), keys: Keys::default() }
}

impl Permission {
    /// On a resource that has these tags.
    pub(super) fn on_tagged(mut self, tags: &Tags) -> Self {
        self.keys.tags("aws:ResourceTag", tags);
        self
    }

    /// In a request that brings these tags.
    pub(super) fn bringing(mut self, tags: &Tags) -> Self {
        self.keys.request_tags(tags);
        self
    }

    /// With one more condition key.
    pub(super) fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.keys.set(key, value);
        self
    }
}

/// Handing a role to a service.
// fidelity: documented(IAM User Guide, Granting a user permissions to pass a role to an AWS service)
pub(super) fn pass_role(cloud: &Cloud, role: &str, service: &str) -> Permission {
    plain("iam", "PassRole", role_arn(cloud, role)).with("iam:PassedToService", service)
}

fn role_arn(cloud: &Cloud, name: &str) -> String {
    let known = cloud.identity.roles.get(name).map(|role| role.arn.clone());
    known.unwrap_or_else(|| cloud.arn("iam", &format!("role/{name}")))
}

fn security_tokens(action: &str) -> Vec<Permission> {
    match action {
        "DecodeAuthorizationMessage" | "GetAccessKeyInfo" => vec![plain("sts", action, "*")],
        // Everybody may ask who they are and for a token of their own; a role's trust policy is asked where the role is assumed.
        _ => Vec::new(),
    }
}

fn identity(cloud: &Cloud, action: &str, query: &Query<'_>) -> Vec<Permission> {
    let on = |resource: String| plain("iam", action, resource);
    let named = |parameter: &str| query.text(parameter).unwrap_or_default();
    let path = || query.text("Path").or_else(|| query.text("PathPrefix")).unwrap_or("/");
    let brought = query.tags("Tags.member").unwrap_or_default();
    match action {
        "CreateInstanceProfile" => {
            let arn = cloud.arn("iam", &format!("instance-profile{}{}", path(), named("InstanceProfileName")));
            let mut needed = vec![on(arn.clone()).bringing(&brought)];
            if !brought.is_empty() {
                // fidelity: documented(IAM User Guide, Tagging instance profiles: creating one with tags needs
                // iam:TagInstanceProfile); assumed: its resource tags are already those it is created with.
                needed.push(plain("iam", "TagInstanceProfile", arn).bringing(&brought).on_tagged(&brought));
            }
            needed
        }
        "AddRoleToInstanceProfile" => {
            vec![profile(cloud, action, query), pass_role(cloud, named("RoleName"), "ec2.amazonaws.com")]
        }
        "TagInstanceProfile" => vec![profile(cloud, action, query).bringing(&brought)],
        "UntagInstanceProfile"
        | "ListInstanceProfileTags"
        | "GetInstanceProfile"
        | "DeleteInstanceProfile"
        | "RemoveRoleFromInstanceProfile" => {
            vec![profile(cloud, action, query)]
        }
        "ListInstanceProfiles" => vec![on(cloud.arn("iam", &format!("instance-profile{}", path())))],
        "CreateRole" => {
            let arn = cloud.arn("iam", &format!("role{}{}", path(), named("RoleName")));
            let mut needed = vec![on(arn.clone()).bringing(&brought)];
            if !brought.is_empty() {
                needed.push(plain("iam", "TagRole", arn).bringing(&brought).on_tagged(&brought));
            }
            needed
        }
        "ListRoles" => vec![on(cloud.arn("iam", &format!("role{}", path())))],
        "AttachRolePolicy" | "DetachRolePolicy" => {
            vec![role(cloud, action, named("RoleName")).with("iam:PolicyARN", named("PolicyArn"))]
        }
        "CreatePolicy" => {
            vec![on(cloud.arn("iam", &format!("policy{}{}", path(), named("PolicyName")))).bringing(&brought)]
        }
        "GetPolicy"
        | "GetPolicyVersion"
        | "DeletePolicy"
        | "CreatePolicyVersion"
        | "DeletePolicyVersion"
        | "ListPolicyVersions"
        | "SetDefaultPolicyVersion"
        | "ListEntitiesForPolicy"
        | "TagPolicy"
        | "UntagPolicy"
        | "ListPolicyTags" => {
            let permission = on(named("PolicyArn").to_owned()).bringing(&brought);
            match cloud.identity.policies.get(named("PolicyArn")) {
                Some(policy) => vec![permission.on_tagged(&policy.tags)],
                None => vec![permission],
            }
        }
        "GetAccountSummary" => vec![on("*".to_owned())],
        "ListPolicies" => vec![on(cloud.arn("iam", &format!("policy{}", path())))],
        "CreateOpenIDConnectProvider" => {
            let url = named("Url").trim_start_matches("https://");
            vec![on(cloud.arn("iam", &format!("oidc-provider/{url}"))).bringing(&brought)]
        }
        "GetOpenIDConnectProvider"
        | "DeleteOpenIDConnectProvider"
        | "TagOpenIDConnectProvider"
        | "UntagOpenIDConnectProvider"
        | "ListOpenIDConnectProviderTags" => {
            vec![on(named("OpenIDConnectProviderArn").to_owned()).bringing(&brought)]
        }
        "ListOpenIDConnectProviders" => vec![on(cloud.arn("iam", "oidc-provider/*"))],
        "CreateServiceLinkedRole" => {
            let service = named("AWSServiceName");
            let arn = cloud.arn("iam", &format!("role/aws-service-role/{service}/*"));
            vec![on(arn).with("iam:AWSServiceName", service)]
        }
        _ => vec![role(cloud, action, named("RoleName")).bringing(&brought)],
    }
}

fn profile(cloud: &Cloud, action: &str, query: &Query<'_>) -> Permission {
    let name = query.text("InstanceProfileName").unwrap_or_default();
    match cloud.identity.profiles.get(name) {
        Some(profile) => plain("iam", action, profile.arn.as_str()).on_tagged(&profile.tags),
        // fidelity: assumed: of a profile that does not exist only the name is known, and no tags.
        None => plain("iam", action, cloud.arn("iam", &format!("instance-profile/{name}"))),
    }
}

fn role(cloud: &Cloud, action: &str, name: &str) -> Permission {
    let permission = plain("iam", action, role_arn(cloud, name));
    match cloud.identity.roles.get(name) {
        Some(role) => permission.on_tagged(&role.tags),
        None => permission,
    }
}

/// SQS: batches need what their single actions need, and moving messages what a receiver and a sender need.
// fidelity: documented(SQS Developer Guide, Configuring queue permissions for dead-letter queue redrive; SQS API Reference,
// CreateQueue: tags need sqs:TagQueue)
fn queue(cloud: &Cloud, action: &str, tags: &Tags, input: impl Fn(&str) -> Option<String>) -> Vec<Permission> {
    let single = action.strip_suffix("Batch").unwrap_or(action);
    let on = |actions: &[&str], arn: &str| actions.iter().map(|action| plain("sqs", action, arn)).collect();
    match (single, input("SourceArn"), input("DestinationArn")) {
        ("StartMessageMoveTask", Some(source), destination) => {
            let mut needed: Vec<Permission> =
                on(&["StartMessageMoveTask", "ReceiveMessage", "DeleteMessage", "GetQueueAttributes"], &source);
            needed.extend(destination.map(|destination| plain("sqs", "SendMessage", destination)));
            return needed;
        }
        ("ListMessageMoveTasks", Some(source), _) => return on(&["ListMessageMoveTasks"], &source),
        ("CancelMessageMoveTask", ..) => {
            let source = input("TaskHandle").and_then(|handle| source_of_move_task(&handle));
            return source.map_or_else(Vec::new, |source| on(&["CancelMessageMoveTask"], &source));
        }
        _ => {}
    }
    let named = input("QueueUrl").and_then(|url| url.rsplit('/').next().map(str::to_owned));
    let name = match single {
        "ListQueues" => Some("*".to_owned()),
        _ => named.or_else(|| input("QueueName")),
    };
    // Without a queue there is nothing to refuse; the action says what is missing.
    let Some(name) = name else { return Vec::new() };
    let mut needed = vec![plain("sqs", single, cloud.arn("sqs", &name))];
    if tags.is_empty() {
        return needed;
    }
    needed[0].keys.request_tags(tags);
    if single == "CreateQueue" {
        needed.push(plain("sqs", "TagQueue", cloud.arn("sqs", &name)).bringing(tags));
    }
    needed
}

/// CloudFormation: on the stack, by name or ARN. What stacks make needs no further permission.
fn stack(cloud: &Cloud, action: &str, form: &Form) -> Vec<Permission> {
    let arn = match form.peek("StackName") {
        Some(arn) if arn.starts_with("arn:") => arn.to_owned(),
        Some(name) => cloud.arn("cloudformation", &format!("stack/{name}/*")),
        None => "*".to_owned(),
    };
    vec![plain("cloudformation", action, arn)]
}

fn parameters(cloud: &Cloud, action: &str, input: &Value) -> Vec<Permission> {
    if action == "DescribeParameters" {
        return vec![plain("ssm", action, "*")];
    }
    let names = input.get("Names").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let single = ["Name", "Path", "ResourceId"].into_iter().filter_map(|member| text(input, member));
    let brought = tag_list(input);
    let mut needed: Vec<Permission> = names
        .chain(single)
        .map(|name| {
            // A version or label is no part of the resource.
            let name = if name.starts_with("arn:") { name } else { name.split(':').next().unwrap_or(name) };
            let permission = plain("ssm", action, parameter_arn(cloud, name)).bringing(&brought);
            match cloud.parameters.get(name) {
                Some(parameter) => permission.on_tagged(&parameter.tags),
                None => permission,
            }
        })
        .collect();
    // fidelity: documented(SSM API Reference, PutParameter: tags need ssm:AddTagsToResource)
    if action == "PutParameter" && !brought.is_empty() {
        let arn = parameter_arn(cloud, text(input, "Name").unwrap_or_default());
        needed.push(plain("ssm", "AddTagsToResource", arn).bringing(&brought));
    }
    needed
}

// fidelity: documented(Systems Manager User Guide, Public parameters: their ARNs name no account)
fn parameter_arn(cloud: &Cloud, name: &str) -> String {
    let path = name.trim_start_matches('/');
    match path.starts_with("aws/service/") {
        _ if name.starts_with("arn:") => name.to_owned(),
        true => format!("arn:aws:ssm:{}::parameter/{path}", cloud.config.region),
        false => cloud.arn("ssm", &format!("parameter/{path}")),
    }
}

fn events(cloud: &Cloud, action: &str, input: &Value) -> Vec<Permission> {
    let rule = text(input, "Name").or_else(|| text(input, "Rule"));
    let resource = match (action, rule) {
        ("PutEvents" | "DescribeEventBus", _) => cloud.arn("events", "event-bus/default"),
        ("ListEventBuses" | "TestEventPattern", _) => "*".to_owned(),
        ("ListRules" | "ListRuleNamesByTarget", _) => cloud.arn("events", "rule/*"),
        ("ListTagsForResource" | "TagResource" | "UntagResource", _) => {
            text(input, "ResourceARN").unwrap_or("*").to_owned()
        }
        (_, Some(rule)) => cloud.arn("events", &format!("rule/{rule}")),
        (_, None) => return Vec::new(),
    };
    vec![plain("events", action, resource).bringing(&tag_list(input))]
}

fn cluster(cloud: &Cloud, action: &str, input: &Value) -> Vec<Permission> {
    let name = text(input, "name").unwrap_or_default();
    let on_cluster = plain("eks", action, cloud.arn("eks", &format!("cluster/{name}")));
    let known = cloud.clusters.get(name);
    match action {
        "ListClusters" | "ListAccessPolicies" => vec![plain("eks", action, "*")],
        "CreateCluster" => {
            let role = text(input, "roleArn").unwrap_or_default().rsplit('/').next().unwrap_or_default();
            let brought = string_map(input, "tags");
            vec![on_cluster.bringing(&brought), pass_role(cloud, role, "eks.amazonaws.com")]
        }
        "ListTagsForResource" | "TagResource" | "UntagResource" => {
            let arn = text(input, "resourceArn").unwrap_or_default();
            vec![plain("eks", action, arn).bringing(&string_map(input, "tags"))]
        }
        "DescribeAccessEntry"
        | "DeleteAccessEntry"
        | "UpdateAccessEntry"
        | "AssociateAccessPolicy"
        | "DisassociateAccessPolicy"
        | "ListAssociatedAccessPolicies" => {
            let principal = text(input, "principalArn").unwrap_or_default();
            let entry = known.and_then(|cluster| cluster.access_entries.get(principal));
            vec![entry.map_or(on_cluster, |entry| plain("eks", action, entry.arn.as_str()).on_tagged(&entry.tags))]
        }
        "DescribePodIdentityAssociation" | "DeletePodIdentityAssociation" | "UpdatePodIdentityAssociation" => {
            let id = text(input, "associationId").unwrap_or_default();
            let found = known.and_then(|cluster| cluster.pod_identity_associations.get(id));
            let own = found.map_or(on_cluster, |found| plain("eks", action, found.arn.as_str()).on_tagged(&found.tags));
            let role =
                text(input, "roleArn").filter(|_| action.starts_with("Update")).and_then(|arn| arn.rsplit('/').next());
            let passed = role.map(|role| pass_role(cloud, role, "pods.eks.amazonaws.com"));
            [own].into_iter().chain(passed).collect()
        }
        "CreatePodIdentityAssociation" => {
            let role = text(input, "roleArn").unwrap_or_default().rsplit('/').next().unwrap_or_default();
            vec![on_cluster, pass_role(cloud, role, "pods.eks.amazonaws.com")]
        }
        _ => vec![on_cluster],
    }
}
