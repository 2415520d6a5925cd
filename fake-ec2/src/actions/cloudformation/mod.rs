//! CloudFormation: stacks and change sets, as far as `aws cloudformation deploy` and its like ask for them.
//!
//! `template` reads, `resolve` carries out functions and references, `stack` makes and deletes, `resources` knows the types.
//!
//! // fidelity: documented(CloudFormation API Reference: each action and its errors)

mod describe;
mod resolve;
mod resources;
mod stack;
mod template;

use super::{Context, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::stack::{ChangeSet, Stack, StackOptions, StackRequest};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use crate::wire::{Reply, Service};
use resolve::{Scope, ordered};
use stack::Deletion;
use std::collections::{BTreeMap, BTreeSet};
use template::{Template, validation};

pub(super) fn perform(
    cloud: &mut Cloud,
    context: &Context<'_>,
    action: &str,
    query: &Query<'_>,
) -> Result<Reply, ApiError> {
    let mut xml = Xml::new();
    match action {
        "ValidateTemplate" | "GetTemplateSummary" => describe::template(cloud, action, query, &mut xml)?,
        "CreateStack" => create_stack(cloud, context, query, &mut xml)?,
        "UpdateStack" => update_stack(cloud, context, query, &mut xml)?,
        "DeleteStack" => {
            let name = query.required("StackName")?.to_owned();
            let deletion = read_deletion(cloud, &name, query)?;
            query.finish()?;
            // Deleting what does not exist succeeds.
            if let Some(id) = find(cloud, &name).map(|stack| stack.id.clone()) {
                stack::delete(cloud, context, &id, deletion)?;
            }
        }
        "CreateChangeSet" => create_change_set(cloud, context, query, &mut xml)?,
        "ExecuteChangeSet" => execute_change_set(cloud, context, query)?,
        "DeleteChangeSet" => {
            let (stack, name) = change_set_names(cloud, query)?;
            query.finish()?;
            if let Some(stack) = cloud.stacks.iter_mut().find(|known| known.id == stack) {
                stack.change_sets.remove(&name);
            }
        }
        "DescribeChangeSet" => describe::change_set(cloud, query, &mut xml)?,
        "ListChangeSets" => describe::change_sets(cloud, query, &mut xml)?,
        "DescribeStacks" => describe::stacks(cloud, query, &mut xml)?,
        "ListStacks" => describe::list_stacks(cloud, query, &mut xml)?,
        "DescribeStackEvents" => describe::events(cloud, query, &mut xml)?,
        "DescribeStackResources" => describe::resources(cloud, query, &mut xml)?,
        "DescribeStackResource" => describe::resource(cloud, query, &mut xml)?,
        "ListStackResources" => describe::list_resources(cloud, query, &mut xml)?,
        "GetTemplate" => {
            choice(query, "TemplateStage", &["Original", "Processed"])?;
            let template = match query.text("ChangeSetName") {
                None => existing(cloud, query.required("StackName")?)?.template.clone(),
                Some(_) => {
                    let (stack, set) = change_set_names(cloud, query)?;
                    existing(cloud, &stack)?.change_sets[&set].request.template.clone()
                }
            };
            query.finish()?;
            xml.text("TemplateBody", template);
            xml.element("StagesAvailable", |xml| {
                ["Original", "Processed"].iter().for_each(|stage| xml.text("member", stage));
            });
        }
        "UpdateTerminationProtection" => {
            let id = existing(cloud, query.required("StackName")?)?.id.clone();
            let protected = query.boolean("EnableTerminationProtection")?;
            let protected = protected.ok_or_else(|| ApiError::missing("EnableTerminationProtection"))?;
            query.finish()?;
            protect(cloud, &id, protected);
            xml.text("StackId", id);
        }
        _ => return Err(unknown_action(Service::CloudFormation, action)),
    }
    Ok(Reply::Xml(xml.into_string()))
}

/// Creates a stack from Rust; a stack that fails is an error that tells why.
pub(crate) fn create(
    cloud: &mut Cloud,
    context: &Context<'_>,
    name: &str,
    request: &StackRequest,
) -> Result<BTreeMap<String, String>, ApiError> {
    let id = begin(cloud, context, name, request)?;
    stack::carry_out(cloud, context, &id, request, false)?;
    let stack = existing(cloud, &id)?;
    if stack.status != "CREATE_COMPLETE" {
        let failed = stack.events.iter().find(|event| event.status == "CREATE_FAILED");
        let reason =
            failed.map(|event| format!("{}: {}", event.logical_id, event.reason.as_deref().unwrap_or_default()));
        return Err(ApiError::client(stack.status, reason.unwrap_or_default()));
    }
    Ok(stack.outputs.iter().map(|output| (output.key.clone(), output.value.clone())).collect())
}

/// Deletes a stack from Rust; one that cannot be deleted is an error that tells why. `None` if there is none.
pub(crate) fn delete(cloud: &mut Cloud, context: &Context<'_>, name: &str) -> Option<Result<(), ApiError>> {
    let id = find(cloud, name)?.id.clone();
    let outcome = stack::delete(cloud, context, &id, Deletion::default()).and_then(|()| {
        let stack = existing(cloud, &id)?;
        let failed = stack.events.iter().rev().find(|event| event.status == "DELETE_FAILED");
        match (stack.is_deleted(), failed) {
            (false, Some(event)) => Err(ApiError::client(stack.status, event.reason.clone().unwrap_or_default())),
            _ => Ok(()),
        }
    });
    Some(outcome)
}

/// The stack with this name or id; names find no deleted ones.
fn find<'a>(cloud: &'a Cloud, name: &str) -> Option<&'a Stack> {
    cloud.stacks.iter().find(|stack| stack.id == name || (stack.name == name && !stack.is_deleted()))
}

fn existing<'a>(cloud: &'a Cloud, name: &str) -> Result<&'a Stack, ApiError> {
    find(cloud, name).ok_or_else(|| stack::missing(name))
}

/// A stack in the making, if its name is free and its template good.
fn begin(cloud: &mut Cloud, context: &Context<'_>, name: &str, request: &StackRequest) -> Result<String, ApiError> {
    check_name(name)?;
    if find(cloud, name).is_some_and(|stack| stack.status != "REVIEW_IN_PROGRESS") {
        return Err(ApiError::client("AlreadyExistsException", format!("Stack [{name}] already exists")));
    }
    let template = checked(cloud, name, request)?;
    if let Some(stack) = find(cloud, name) {
        return Ok(stack.id.clone());
    }
    Ok(stack::reserve(cloud, context.now, name, request, &template))
}

/// The template, if it can be carried out as far as it alone can tell.
fn checked(cloud: &Cloud, stack: &str, request: &StackRequest) -> Result<Template, ApiError> {
    let template = Template::parse(&request.template)?;
    let values = template.parameters(cloud, &request.parameters)?;
    template.check_capabilities(&request.capabilities)?;
    ordered(&template, &Scope::new(cloud, &template, values, (stack, "")))?;
    Ok(template)
}

fn check_name(name: &str) -> Result<(), ApiError> {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic());
    match first && name.len() <= 128 && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        true => Ok(()),
        false => Err(validation(format!(
            "1 validation error detected: Value '{name}' at 'stackName' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z][-a-zA-Z0-9]*"
        ))),
    }
}

fn create_stack(cloud: &mut Cloud, context: &Context<'_>, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let name = query.required("StackName")?.to_owned();
    let request = read_request(query, None)?;
    let keep_failed = match (query.boolean("DisableRollback")?, query.text("OnFailure")) {
        (Some(true), _) | (_, Some("DO_NOTHING")) => true,
        (_, None | Some("ROLLBACK")) => false,
        (_, Some(other)) => return Err(validation(format!("OnFailure {other} is not played here."))),
    };
    let protected = query.boolean("EnableTerminationProtection")?.unwrap_or(false);
    let request = with_options(query, request, keep_failed)?;
    query.finish()?;
    let id = begin(cloud, context, &name, &request)?;
    protect(cloud, &id, protected);
    stack::carry_out(cloud, context, &id, &request, keep_failed)?;
    xml.text("StackId", id);
    Ok(())
}

fn update_stack(cloud: &mut Cloud, context: &Context<'_>, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let present = existing(cloud, query.required("StackName")?)?.clone();
    let request = read_request(query, Some(&present))?;
    let keep_failed = query.boolean("DisableRollback")?.unwrap_or(false);
    let request = with_options(query, request, keep_failed)?;
    query.finish()?;
    check_updatable(&present)?;
    checked(cloud, &present.name, &request)?;
    stack::changes(cloud, &present, &request)?;
    stack::carry_out(cloud, context, &present.id, &request, false)?;
    xml.text("StackId", &present.id);
    Ok(())
}

// fidelity: observed(2026-08): wording
fn check_updatable(stack: &Stack) -> Result<(), ApiError> {
    match stack.status {
        "CREATE_COMPLETE" | "UPDATE_COMPLETE" | "UPDATE_ROLLBACK_COMPLETE" => Ok(()),
        status => Err(validation(format!("Stack:{} is in {status} state and can not be updated.", stack.id))),
    }
}

fn create_change_set(
    cloud: &mut Cloud,
    context: &Context<'_>,
    query: &Query<'_>,
    xml: &mut Xml,
) -> Result<(), ApiError> {
    let (name, set) = (query.required("StackName")?.to_owned(), query.required("ChangeSetName")?.to_owned());
    let kind = query.text("ChangeSetType").unwrap_or("UPDATE");
    let description = query.owned("Description");
    let present = find(cloud, &name).cloned();
    let request = read_request(query, present.as_ref())?;
    query.boolean("IncludeNestedStacks")?;
    let on_failure = choice(query, "OnStackFailure", &["DO_NOTHING", "ROLLBACK", "DELETE"])?;
    if on_failure == Some("DELETE") {
        return Err(validation("OnStackFailure DELETE is not played here."));
    }
    if query.boolean("ImportExistingResources")? == Some(true) {
        return Err(validation("ImportExistingResources is not played here."));
    }
    query.ignore("there is no drift here", &["DeploymentMode"]);
    query.ignore("a second set of the name is refused by its name", &["ClientToken"]);
    let request = with_options(query, request, on_failure == Some("DO_NOTHING"))?;
    query.finish()?;
    checked(cloud, &name, &request)?;
    let stack_id = match (kind, present) {
        ("CREATE", _) => begin(cloud, context, &name, &request)?,
        ("UPDATE", Some(stack)) => {
            check_updatable(&stack)?;
            stack.id
        }
        ("UPDATE", None) => return Err(stack::missing(&name)),
        (other, _) => return Err(validation(format!("Change sets of type {other} are not played here."))),
    };
    let unique = cloud.ids.uuid();
    let id = cloud.arn("cloudformation", &format!("changeSet/{set}/{unique}"));
    let found = stack::changes(cloud, existing(cloud, &stack_id)?, &request);
    let (changes, failure) = match found {
        Ok(changes) => (changes, None),
        Err(error) if error.message.starts_with("No updates") => {
            let message = "The submitted information didn't contain changes. Submit different information to create a change set.";
            (Vec::new(), Some(message.to_owned()))
        }
        Err(error) => return Err(error),
    };
    let created_at = context.now;
    let change_set = ChangeSet {
        name: set.clone(),
        id: id.clone(),
        description,
        created_at,
        request,
        changes,
        failure,
        executed: false,
    };
    let stack = cloud.stacks.iter_mut().find(|stack| stack.id == stack_id).expect("begun or found above");
    // The name of a set that cannot be executed (any more) is free: the AWS command line names sets by the second.
    // fidelity: assumed: AWS takes longer than a second for a change set, so that nobody has seen a name come again so soon.
    if stack.change_sets.get(&set).is_some_and(ChangeSet::is_executable) {
        return Err(ApiError::client("AlreadyExistsException", format!("ChangeSet {set} already exists")));
    }
    stack.change_sets.insert(set, change_set);
    xml.text("Id", id);
    xml.text("StackId", stack_id);
    Ok(())
}

fn execute_change_set(cloud: &mut Cloud, context: &Context<'_>, query: &Query<'_>) -> Result<(), ApiError> {
    let (stack_id, name) = change_set_names(cloud, query)?;
    let disable_rollback = query.boolean("DisableRollback")?;
    query.boolean("RetainExceptOnCreate")?; // It is about DeletionPolicy, of which a rollback takes no notice here.
    let token = query.owned("ClientRequestToken");
    query.finish()?;
    let set = &existing(cloud, &stack_id)?.change_sets[&name];
    if !set.is_executable() {
        let message =
            format!("ChangeSet [{}] cannot be executed in its current execution status of [UNAVAILABLE]", set.id);
        return Err(ApiError::client("InvalidChangeSetStatus", message));
    }
    let mut request = set.request.clone();
    request.options.client_request_token = token;
    let keep_failed = disable_rollback.unwrap_or(request.options.disable_rollback);
    stack::carry_out(cloud, context, &stack_id, &request, keep_failed)?;
    if let Some(stack) = cloud.stacks.iter_mut().find(|stack| stack.id == stack_id) {
        // The others were made for the stack as it was.
        stack.change_sets.retain(|other, _| *other == name);
        stack.change_sets.entry(name).and_modify(|set| set.executed = true);
    }
    Ok(())
}

/// The stack's id and the change set's name, by the set's ARN or by both names.
fn change_set_names(cloud: &Cloud, query: &Query<'_>) -> Result<(String, String), ApiError> {
    let set = query.required("ChangeSetName")?;
    let stack = query.text("StackName");
    let of = |stack: &Stack| {
        let found = stack.change_sets.values().find(|known| known.id == set || known.name == set);
        found.map(|found| (stack.id.clone(), found.name.clone()))
    };
    let found = match stack {
        Some(name) => of(existing(cloud, name)?),
        None => cloud.stacks.iter().find_map(of),
    };
    found.ok_or_else(|| ApiError::new(404, "ChangeSetNotFound", format!("ChangeSet [{set}] does not exist")))
}

/// The request with what it says beside its template.
// fidelity: documented(CloudFormation API Reference, CreateStack, RollbackConfiguration: a role of 20 to 2048 characters, up to
// 5 notification topics, a timeout of at least one minute, up to 5 triggers, monitoring of 0 to 180 minutes)
fn with_options(query: &Query<'_>, request: StackRequest, disable_rollback: bool) -> Result<StackRequest, ApiError> {
    // An empty list travels as its bare name.
    for list in ["NotificationARNs", "ResourceTypes", "RollbackConfiguration.RollbackTriggers"] {
        query.text(list);
    }
    check_types(query, &request)?;
    query.boolean("RetainExceptOnCreate")?; // It is about DeletionPolicy, of which a rollback takes no notice here.
    query.ignore("a policy on updates; every update is permitted here", &["StackPolicyBody"]);
    let role_arn = query.owned("RoleARN");
    if let Some(role) = role_arn.as_ref().filter(|role| !(20..=2048).contains(&role.len())) {
        return Err(constraint(role, "roleARN", "Member must have length from 20 to 2048"));
    }
    let notification_arns: Vec<String> = query.list("NotificationARNs.member").into_iter().map(str::to_owned).collect();
    if notification_arns.len() > 5 {
        return Err(constraint(
            &notification_arns.join(", "),
            "notificationARNs",
            "Member must have length less than or equal to 5",
        ));
    }
    let timeout_minutes: Option<u32> = query.number("TimeoutInMinutes")?;
    if timeout_minutes == Some(0) {
        return Err(constraint("0", "timeoutInMinutes", "Member must have value greater than or equal to 1"));
    }
    let monitoring_minutes: Option<u32> = query.number("RollbackConfiguration.MonitoringTimeInMinutes")?;
    if let Some(minutes) = monitoring_minutes.filter(|minutes| *minutes > 180) {
        let most = "Member must have value less than or equal to 180";
        return Err(constraint(&minutes.to_string(), "rollbackConfiguration.monitoringTimeInMinutes", most));
    }
    let mut rollback_triggers = Vec::new();
    for part in query.structures("RollbackConfiguration.RollbackTriggers.member") {
        rollback_triggers.push((part.required("Arn")?.to_owned(), part.required("Type")?.to_owned()));
    }
    let options = StackOptions {
        role_arn,
        notification_arns,
        timeout_minutes,
        monitoring_minutes,
        rollback_triggers,
        client_request_token: query.owned("ClientRequestToken"),
        disable_rollback,
    };
    Ok(StackRequest { options, ..request })
}

/// Refuses a template with other types of resources than the request grants.
// fidelity: documented(CloudFormation API Reference, CreateStack, ResourceTypes: AWS::*, AWS::service::*, a whole type); assumed:
// wording
fn check_types(query: &Query<'_>, request: &StackRequest) -> Result<(), ApiError> {
    let granted = query.list("ResourceTypes.member");
    if granted.is_empty() {
        return Ok(());
    }
    let template = Template::parse(&request.template)?;
    let covers = |pattern: &&str, kind: &str| match pattern.strip_suffix('*') {
        Some(start) => kind.starts_with(start),
        None => kind == *pattern,
    };
    for (id, resource) in template.section("Resources").into_iter().flatten() {
        let kind = template::scalar(&resource["Type"]);
        if !granted.iter().any(|pattern| covers(pattern, &kind)) {
            return Err(validation(format!(
                "Resource type {kind} of {id} is not among the ResourceTypes of the request."
            )));
        }
    }
    Ok(())
}

// fidelity: documented(CloudFormation API Reference, DeleteStack: RetainResources only of stacks in the state DELETE_FAILED; User
// Guide, Protect a stack from being deleted); observed(2026-08): wording
fn read_deletion(cloud: &Cloud, name: &str, query: &Query<'_>) -> Result<Deletion, ApiError> {
    query.text("RetainResources");
    let retain: Vec<String> = query.list("RetainResources.member").into_iter().map(str::to_owned).collect();
    let mode = choice(query, "DeletionMode", &["STANDARD", "FORCE_DELETE_STACK"])?;
    query.text("RoleARN");
    let token = query.owned("ClientRequestToken");
    let Some(stack) = find(cloud, name) else { return Ok(Deletion::default()) };
    if stack.termination_protection {
        return Err(validation(format!(
            "Stack [{}] cannot be deleted while TerminationProtection is enabled",
            stack.name
        )));
    }
    if stack.status != "DELETE_FAILED" && (!retain.is_empty() || mode == Some("FORCE_DELETE_STACK")) {
        return Err(validation(format!(
            "Invalid operation on stack [{}]. RetainResources and FORCE_DELETE_STACK are for stacks in the DELETE_FAILED state.",
            stack.id
        )));
    }
    let retain = match mode {
        // What failed to be deleted stays.
        Some("FORCE_DELETE_STACK") => {
            let failed = stack.resources.iter().filter(|(_, resource)| resource.status == "DELETE_FAILED");
            failed.map(|(id, _)| id.clone()).collect()
        }
        _ => retain,
    };
    match retain.iter().find(|id| !stack.resources.contains_key(*id)) {
        Some(id) => Err(validation(format!("Resource {id} does not exist for stack {}", stack.name))),
        None => Ok(Deletion { retain, token }),
    }
}

fn protect(cloud: &mut Cloud, id: &str, protected: bool) {
    if let Some(stack) = cloud.stacks.iter_mut().find(|stack| stack.id == id) {
        stack.termination_protection = protected;
    }
}

fn choice<'a>(query: &Query<'a>, name: &str, known: &[&str]) -> Result<Option<&'a str>, ApiError> {
    match query.text(name) {
        Some(text) if !known.contains(&text) => {
            let member = format!("{}{}", name[..1].to_ascii_lowercase(), &name[1..]);
            Err(constraint(text, &member, &format!("Member must satisfy enum value set: [{}]", known.join(", "))))
        }
        text => Ok(text),
    }
}

fn constraint(value: &str, member: &str, constraint: &str) -> ApiError {
    validation(format!(
        "1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: {constraint}"
    ))
}

/// The template and its values; what an update leaves out stays as it is.
fn read_request(query: &Query<'_>, present: Option<&Stack>) -> Result<StackRequest, ApiError> {
    let template = match (query.text("TemplateBody"), query.boolean("UsePreviousTemplate")?, present) {
        (Some(text), ..) => text.to_owned(),
        (None, Some(true), Some(present)) => present.template.clone(),
        _ if query.text("TemplateURL").is_some() => {
            return Err(validation("TemplateURL is not played here: there is no S3; give TemplateBody."));
        }
        _ => return Err(validation("Either Template URL or Template Body must be specified.")),
    };
    // An empty list travels as its bare name.
    for list in ["Capabilities", "Parameters", "Tags"] {
        query.text(list);
    }
    let mut parameters = BTreeMap::new();
    for part in query.structures("Parameters.member") {
        let name = part.required("ParameterKey")?.to_owned();
        part.ignore("an answer's member", &["ResolvedValue"]);
        let previous = part.boolean("UsePreviousValue")?.unwrap_or(false);
        let value = match previous {
            true => present.and_then(|present| present.parameters.get(&name).cloned()),
            false => Some(part.owned("ParameterValue").unwrap_or_default()),
        };
        // Without an earlier value its default holds.
        parameters.extend(value.map(|value| (name, value)));
    }
    let capabilities: BTreeSet<String> = query.list("Capabilities.member").into_iter().map(str::to_owned).collect();
    let mut tags = query.tags("Tags.member")?;
    if tags.is_empty() {
        tags = present.map(|present| present.tags.clone()).unwrap_or_default();
    }
    Ok(StackRequest { template, parameters, capabilities, tags, options: StackOptions::default() })
}
