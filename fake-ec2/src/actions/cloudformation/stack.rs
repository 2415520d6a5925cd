//! Creating, changing and deleting stacks. Each is carried out at once; what fails leaves everything as it was.

use super::resolve::{Scope, ordered};
use super::resources::{self, Wanted};
use super::template::{Template, format_error, scalar, validation};
use crate::actions::Context;
use crate::cloud::Cloud;
use crate::cloud::bus::Bus;
use crate::cloud::identity::{Cluster, Identity};
use crate::cloud::queue::Queue;
use crate::cloud::stack::{Change, Output, Stack, StackEvent, StackRequest, StackResource};
use crate::error::ApiError;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const STACK: &str = "AWS::CloudFormation::Stack";

/// What stacks make, as it was before.
struct Before {
    identity: Identity,
    queues: BTreeMap<String, Queue>,
    bus: Bus,
    clusters: BTreeMap<String, Cluster>,
}

impl Before {
    fn of(cloud: &Cloud) -> Self {
        let Cloud { identity, queues, bus, clusters, .. } = cloud;
        Self { identity: identity.clone(), queues: queues.clone(), bus: bus.clone(), clusters: clusters.clone() }
    }

    fn restore(self, cloud: &mut Cloud) {
        let Self { identity, queues, bus, clusters } = self;
        (cloud.identity, cloud.queues, cloud.bus, cloud.clusters) = (identity, queues, bus, clusters);
    }
}

/// A stack that does not exist yet, with nothing in it; its id is answered.
pub(super) fn reserve(
    cloud: &mut Cloud,
    now: Timestamp,
    name: &str,
    request: &StackRequest,
    template: &Template,
) -> String {
    let unique = cloud.ids.uuid();
    let id = cloud.arn("cloudformation", &format!("stack/{name}/{unique}"));
    let stack = Stack {
        name: name.into(),
        id: id.clone(),
        status: "REVIEW_IN_PROGRESS",
        reason: None,
        description: template.description(),
        template: request.template.clone(),
        parameters: request.parameters.clone(),
        capabilities: request.capabilities.clone(),
        tags: request.tags.clone(),
        created_at: now,
        updated_at: None,
        deleted_at: None,
        resources: BTreeMap::new(),
        order: Vec::new(),
        outputs: Vec::new(),
        events: Vec::new(),
        options: request.options.clone(),
        termination_protection: false,
        change_sets: BTreeMap::new(),
    };
    cloud.stacks.push(stack);
    id
}

/// What a request would change, without carrying it out.
pub(super) fn changes(cloud: &Cloud, stack: &Stack, request: &StackRequest) -> Result<Vec<Change>, ApiError> {
    let template = Template::parse(&request.template)?;
    let symbolic = |template: &Template, parameters: &BTreeMap<String, String>| -> Result<_, ApiError> {
        let scope = Scope::new(cloud, template, template.parameters(cloud, parameters)?, (&stack.name, &stack.id));
        let mut definitions = BTreeMap::new();
        for id in ordered(template, &scope)? {
            let resource = &template.document["Resources"][&id];
            definitions.insert(id, (scalar(&resource["Type"]), scope.resolve(&resource["Properties"])?));
        }
        Ok((definitions, scope.resolve(&template.document["Outputs"])?))
    };
    let (wanted, outputs) = symbolic(&template, &request.parameters)?;
    let (present, present_outputs) = match stack.resources.is_empty() {
        true => (BTreeMap::new(), None),
        false => symbolic(&Template::parse(&stack.template)?, &stack.parameters)?,
    };
    let change = |action, id: &String, kind: &String| {
        let physical_id = stack.resources.get(id).map(|resource| resource.physical_id.clone());
        Change { action, logical_id: id.clone(), physical_id, kind: kind.clone() }
    };
    let mut changes = Vec::new();
    for (id, (kind, properties)) in &wanted {
        match present.get(id) {
            None => changes.push(change("Add", id, kind)),
            Some((known, before)) if (known, before) != (kind, properties) => changes.push(change("Modify", id, kind)),
            Some(_) => {}
        }
    }
    for (id, (kind, _)) in present.iter().filter(|(id, _)| !wanted.contains_key(*id)) {
        changes.push(change("Remove", id, kind));
    }
    if changes.is_empty() && outputs == present_outputs && request.tags == stack.tags {
        return Err(validation("No updates are to be performed."));
    }
    Ok(changes)
}

/// Makes a stack what the request says. A failure is the stack's, and told by its status and events.
// fidelity: documented(CloudFormation User Guide, Stack status codes; Stack failure options); assumed: it takes no time,
// and a stack acts with every right, whoever creates it.
pub(super) fn carry_out(
    cloud: &mut Cloud,
    context: &Context<'_>,
    id: &str,
    request: &StackRequest,
    keep_failed: bool,
) -> Result<(), ApiError> {
    let template = Template::parse(&request.template)?;
    template.check_capabilities(&request.capabilities)?;
    let values = template.parameters(cloud, &request.parameters)?;
    let mut stack = cloud.stacks.iter().find(|stack| stack.id == id).ok_or_else(|| missing(id))?.clone();
    let scope = Scope::new(cloud, &template, values, (&stack.name, &stack.id));
    let order = ordered(&template, &scope)?;
    let creating = stack.resources.is_empty() && stack.status == "REVIEW_IN_PROGRESS";
    let before = (Before::of(cloud), stack.clone());
    stack.options.clone_from(&request.options);
    event(
        cloud,
        context.now,
        &mut stack,
        None,
        if creating { "CREATE_IN_PROGRESS" } else { "UPDATE_IN_PROGRESS" },
        Some("User Initiated".into()),
    );
    let outcome = apply(cloud, context, &mut stack, &template, &scope, &order);
    match outcome {
        Ok(()) => {
            stack.template.clone_from(&request.template);
            stack.parameters = template.with_defaults(&request.parameters);
            stack.capabilities.clone_from(&request.capabilities);
            stack.tags.clone_from(&request.tags);
            stack.description = template.description();
            event(
                cloud,
                context.now,
                &mut stack,
                None,
                if creating { "CREATE_COMPLETE" } else { "UPDATE_COMPLETE" },
                None,
            );
        }
        Err(failed) => {
            let reason = format!(
                "The following resource(s) failed to {}: [{failed}]. ",
                if creating { "create" } else { "update" }
            );
            if creating && keep_failed {
                event(cloud, context.now, &mut stack, None, "CREATE_FAILED", Some(reason));
            } else {
                roll_back(cloud, context.now, &mut stack, before, creating, reason);
            }
        }
    }
    if !creating {
        stack.updated_at = Some(context.now);
    }
    store(cloud, stack);
    Ok(())
}

fn roll_back(
    cloud: &mut Cloud,
    now: Timestamp,
    stack: &mut Stack,
    (before, stack_before): (Before, Stack),
    creating: bool,
    reason: String,
) {
    let [begun, ended] = match creating {
        true => ["ROLLBACK_IN_PROGRESS", "ROLLBACK_COMPLETE"],
        false => ["UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE"],
    };
    event(cloud, now, stack, None, begun, Some(reason + "Rollback requested by user."));
    before.restore(cloud);
    let undone: Vec<String> =
        stack.resources.keys().filter(|id| !stack_before.resources.contains_key(*id)).cloned().collect();
    for id in undone.iter().rev() {
        event(cloud, now, stack, Some(id), "DELETE_COMPLETE", None);
    }
    stack.resources = stack_before.resources;
    stack.order = stack_before.order;
    stack.outputs = stack_before.outputs;
    // Its token stands beside the events of this request.
    let token = stack.options.client_request_token.take();
    stack.options = crate::cloud::stack::StackOptions { client_request_token: token, ..stack_before.options };
    event(cloud, now, stack, None, ended, None);
}

/// Makes and changes resources, then takes away what is no longer wanted. `Err` names the resource that failed.
fn apply(
    cloud: &mut Cloud,
    context: &Context<'_>,
    stack: &mut Stack,
    template: &Template,
    scope: &Scope<'_>,
    order: &[String],
) -> Result<(), String> {
    let mut left_over: Vec<StackResource> = Vec::new();
    for id in order {
        let definition = &template.document["Resources"][id];
        let kind = scalar(&definition["Type"]);
        let resolved = scope.with(&stack.resources).resolve(&definition["Properties"]);
        let old = stack.resources.get(id).cloned();
        let properties = match resolved {
            Ok(properties) => properties.filter(|value| !value.is_null()).unwrap_or_else(|| json!({})),
            Err(error) => return Err(fail(cloud, context.now, stack, (id, &kind), old.is_some(), error.message)),
        };
        // Another type under the same name is another resource.
        let same = old.as_ref().filter(|old| old.kind == kind);
        if same.is_some_and(|old| old.properties == properties) {
            continue;
        }
        let done = if old.is_some() { "UPDATE_COMPLETE" } else { "CREATE_COMPLETE" };
        let wanted =
            Wanted { stack: &stack.name.clone(), logical_id: id, kind: &kind, properties: &properties, old: same };
        match resources::put(cloud, context, &wanted) {
            Ok(made) => {
                let replaced = old.clone().filter(|old| old.kind != kind || old.physical_id != made.physical_id);
                left_over.extend(replaced);
                let (physical_id, attributes) = (made.physical_id, made.attributes);
                let resource = StackResource {
                    kind,
                    physical_id,
                    status: done,
                    reason: None,
                    properties,
                    attributes,
                    updated_at: context.now,
                };
                stack.resources.insert(id.clone(), resource);
                event(cloud, context.now, stack, Some(id), done, None);
            }
            Err(error) => return Err(fail(cloud, context.now, stack, (id, &kind), old.is_some(), error.message)),
        }
    }
    let gone: Vec<String> = stack.order.iter().rev().filter(|id| !order.contains(id)).cloned().collect();
    for id in &gone {
        event(cloud, context.now, stack, Some(id), "DELETE_COMPLETE", None);
        left_over.extend(stack.resources.remove(id));
    }
    for resource in &left_over {
        // What cannot be deleted after an update is left behind, as CloudFormation leaves it.
        if let Err(error) = resources::delete(cloud, context, resource) {
            tracing::warn!(resource = %resource.physical_id, error = %error.message, "a resource was left behind by its stack");
        }
    }
    stack.order = order.to_vec();
    stack.outputs = outputs(template, &scope.with(&stack.resources)).map_err(|error| error.message)?;
    Ok(())
}

fn fail(
    cloud: &mut Cloud,
    now: Timestamp,
    stack: &mut Stack,
    (id, kind): (&str, &str),
    updating: bool,
    reason: String,
) -> String {
    let status = if updating { "UPDATE_FAILED" } else { "CREATE_FAILED" };
    let entry = stack.resources.entry(id.into()).or_insert_with(|| StackResource {
        kind: kind.into(),
        physical_id: String::new(),
        status,
        reason: None,
        properties: json!({}),
        attributes: BTreeMap::new(),
        updated_at: now,
    });
    (entry.status, entry.reason) = (status, Some(reason.clone()));
    event(cloud, now, stack, Some(id), status, Some(reason));
    id.to_owned()
}

fn outputs(template: &Template, scope: &Scope<'_>) -> Result<Vec<Output>, ApiError> {
    let mut outputs = Vec::new();
    for (key, output) in template.section("Outputs").into_iter().flatten() {
        if !scope.active(output)? {
            continue;
        }
        let value = output.get("Value").ok_or_else(|| format_error(&format!("Output {key} has no Value.")))?;
        let text = |value: &Value| Ok::<_, ApiError>(scope.resolve(value)?.as_ref().map(scalar));
        outputs.push(Output {
            key: key.clone(),
            value: text(value)?.unwrap_or_default(),
            description: output.get("Description").map(scalar),
            export: output.get("Export").map(|export| text(&export["Name"])).transpose()?.flatten(),
        });
    }
    Ok(outputs)
}

/// How a stack is deleted.
#[derive(Debug, Default)]
pub(super) struct Deletion {
    /// Logical ids of what is left where it is.
    pub(super) retain: Vec<String>,
    /// Stands beside the events.
    pub(super) token: Option<String>,
}

/// Deletes a stack's resources in the reverse order of their making.
pub(super) fn delete(
    cloud: &mut Cloud,
    context: &Context<'_>,
    id: &str,
    Deletion { retain, token }: Deletion,
) -> Result<(), ApiError> {
    let mut stack = cloud.stacks.iter().find(|stack| stack.id == id).ok_or_else(|| missing(id))?.clone();
    stack.options.client_request_token = token;
    event(cloud, context.now, &mut stack, None, "DELETE_IN_PROGRESS", Some("User Initiated".into()));
    // What failed to be made stands in no order.
    let rest: BTreeSet<String> = stack.resources.keys().filter(|id| !stack.order.contains(id)).cloned().collect();
    let ids: Vec<String> = rest.into_iter().chain(stack.order.clone()).rev().collect();
    let mut failed = Vec::new();
    for id in ids {
        let Some(resource) = stack.resources.get(&id).cloned() else { continue };
        if retain.contains(&id) {
            event(cloud, context.now, &mut stack, Some(&id), "DELETE_SKIPPED", None);
            stack.resources.remove(&id);
            continue;
        }
        match resources::delete(cloud, context, &resource) {
            Ok(()) => {
                event(cloud, context.now, &mut stack, Some(&id), "DELETE_COMPLETE", None);
                stack.resources.remove(&id);
            }
            Err(error) => {
                event(cloud, context.now, &mut stack, Some(&id), "DELETE_FAILED", Some(error.message));
                failed.push(id);
            }
        }
    }
    if failed.is_empty() {
        event(cloud, context.now, &mut stack, None, "DELETE_COMPLETE", None);
        stack.deleted_at = Some(context.now);
    } else {
        let reason = format!("The following resource(s) failed to delete: [{}]. ", failed.join(", "));
        event(cloud, context.now, &mut stack, None, "DELETE_FAILED", Some(reason));
    }
    store(cloud, stack);
    Ok(())
}

fn store(cloud: &mut Cloud, stack: Stack) {
    if let Some(known) = cloud.stacks.iter_mut().find(|known| known.id == stack.id) {
        *known = stack;
    }
}

/// Notes what became of the stack itself or of one of its resources.
fn event(
    cloud: &mut Cloud,
    at: Timestamp,
    stack: &mut Stack,
    resource: Option<&str>,
    status: &'static str,
    reason: Option<String>,
) {
    let (logical_id, physical_id, kind) = match resource {
        None => {
            (stack.status, stack.reason) = (status, reason.clone());
            (stack.name.clone(), stack.id.clone(), STACK.to_owned())
        }
        Some(id) => {
            let known = stack.resources.get_mut(id);
            let told = known.map(|resource| {
                (resource.status, resource.reason) = (status, reason.clone());
                (resource.physical_id.clone(), resource.kind.clone())
            });
            let (physical_id, kind) = told.unwrap_or_default();
            (id.to_owned(), physical_id, kind)
        }
    };
    let id = cloud.ids.uuid();
    let client_request_token = stack.options.client_request_token.clone();
    stack.events.push(StackEvent { id, at, logical_id, physical_id, kind, status, reason, client_request_token });
}

pub(super) fn missing(name: &str) -> ApiError {
    validation(format!("Stack with id {name} does not exist"))
}
