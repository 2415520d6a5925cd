//! What CloudFormation tells of templates, stacks and change sets.

use super::template::{Template, scalar, validation};
use super::{change_set_names, existing, read_request};
use crate::cloud::Cloud;
use crate::cloud::stack::{ChangeSet, Stack, StackOptions, StackResource};
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::{Xml, timestamp};
use std::collections::BTreeMap;

pub(super) fn template(cloud: &Cloud, action: &str, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let text = match query.text("StackName") {
        Some(name) => existing(cloud, name)?.template.clone(),
        None => read_request(query, None)?.template,
    };
    if let Some(set) = query.text("StackSetName") {
        return Err(ApiError::new(404, "StackSetNotFoundException", format!("StackSet {set} not found")));
    }
    query.boolean("TemplateSummaryConfig.TreatUnrecognizedResourceTypesAsWarnings")?;
    query.finish()?;
    let template = Template::parse(&text)?;
    let parameters = template.section("Parameters").into_iter().flatten();
    xml.list_of("Parameters", "member", parameters, |xml, (name, declaration)| {
        xml.text("ParameterKey", name);
        xml.optional("DefaultValue", declaration.get("Default").map(scalar));
        xml.value("NoEcho", declaration.get("NoEcho").map(scalar).as_deref() == Some("true"));
        xml.optional("Description", declaration.get("Description").map(scalar));
        if action == "GetTemplateSummary" {
            xml.text("ParameterType", declaration.get("Type").map_or_else(|| "String".into(), scalar));
        }
    });
    xml.optional("Description", template.description());
    if let Some((capability, reason)) = template.capability() {
        xml.element("Capabilities", |xml| xml.text("member", capability));
        xml.text("CapabilitiesReason", reason);
    }
    if action == "GetTemplateSummary" {
        let kinds = template.section("Resources").into_iter().flatten();
        xml.element("ResourceTypes", |xml| {
            kinds.for_each(|(_, resource)| xml.text("member", scalar(&resource["Type"])))
        });
        xml.optional("Version", template.document.get("AWSTemplateFormatVersion").map(scalar));
    }
    Ok(())
}

pub(super) fn stacks(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let name = query.text("StackName");
    whole(query)?;
    query.finish()?;
    let chosen: Vec<&Stack> = match name {
        Some(name) => vec![existing(cloud, name)?],
        None => cloud.stacks.iter().rev().filter(|stack| !stack.is_deleted()).collect(),
    };
    xml.list_of("Stacks", "member", chosen, write_stack);
    Ok(())
}

fn write_stack(xml: &mut Xml, stack: &Stack) {
    xml.text("StackName", &stack.name);
    xml.text("StackId", &stack.id);
    xml.optional("Description", stack.description.as_ref());
    write_parameters(xml, &stack.parameters);
    xml.text("CreationTime", timestamp(stack.created_at));
    xml.optional("LastUpdatedTime", stack.updated_at.map(timestamp));
    xml.optional("DeletionTime", stack.deleted_at.map(timestamp));
    xml.text("StackStatus", stack.status);
    xml.optional("StackStatusReason", stack.reason.as_ref());
    write_options(xml, &stack.options);
    xml.value("EnableTerminationProtection", stack.termination_protection);
    xml.element("Capabilities", |xml| stack.capabilities.iter().for_each(|capability| xml.text("member", capability)));
    if !stack.outputs.is_empty() {
        xml.list_of("Outputs", "member", &stack.outputs, |xml, output| {
            xml.text("OutputKey", &output.key);
            xml.text("OutputValue", &output.value);
            xml.optional("Description", output.description.as_ref());
            xml.optional("ExportName", output.export.as_ref());
        });
    }
    xml.list_of("Tags", "member", &stack.tags, |xml, (key, value)| {
        xml.text("Key", key);
        xml.text("Value", value);
    });
    xml.element("DriftInformation", |xml| xml.text("StackDriftStatus", "NOT_CHECKED"));
}

fn write_options(xml: &mut Xml, options: &StackOptions) {
    xml.value("DisableRollback", options.disable_rollback);
    xml.optional("RoleARN", options.role_arn.as_ref());
    xml.element("NotificationARNs", |xml| options.notification_arns.iter().for_each(|arn| xml.text("member", arn)));
    if let Some(minutes) = options.timeout_minutes {
        xml.value("TimeoutInMinutes", minutes);
    }
    xml.element("RollbackConfiguration", |xml| {
        if let Some(minutes) = options.monitoring_minutes {
            xml.value("MonitoringTimeInMinutes", minutes);
        }
        if !options.rollback_triggers.is_empty() {
            xml.list_of("RollbackTriggers", "member", &options.rollback_triggers, |xml, (arn, kind)| {
                xml.text("Arn", arn);
                xml.text("Type", kind);
            });
        }
    });
}

/// Every list is answered whole, so that no token for its rest was ever given.
// fidelity: assumed: the code and wording
fn whole(query: &Query<'_>) -> Result<(), ApiError> {
    match query.text("NextToken") {
        Some(token) => Err(validation(format!("NextToken {token} is not valid."))),
        None => Ok(()),
    }
}

fn write_parameters(xml: &mut Xml, parameters: &BTreeMap<String, String>) {
    xml.list_of("Parameters", "member", parameters, |xml, (name, value)| {
        xml.text("ParameterKey", name);
        xml.text("ParameterValue", value);
    });
}

pub(super) fn list_stacks(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let wanted = query.list("StackStatusFilter.member");
    whole(query)?;
    query.finish()?;
    let chosen = cloud.stacks.iter().rev().filter(|stack| wanted.is_empty() || wanted.contains(&stack.status));
    xml.list_of("StackSummaries", "member", chosen, |xml, stack| {
        xml.text("StackName", &stack.name);
        xml.text("StackId", &stack.id);
        xml.text("CreationTime", timestamp(stack.created_at));
        xml.optional("DeletionTime", stack.deleted_at.map(timestamp));
        xml.text("StackStatus", stack.status);
        xml.optional("StackStatusReason", stack.reason.as_ref());
    });
    Ok(())
}

pub(super) fn events(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let stack = existing(cloud, query.required("StackName")?)?;
    whole(query)?;
    query.finish()?;
    // The latest first.
    xml.list_of("StackEvents", "member", stack.events.iter().rev(), |xml, event| {
        xml.text("StackId", &stack.id);
        xml.text("StackName", &stack.name);
        xml.text("EventId", &event.id);
        xml.text("LogicalResourceId", &event.logical_id);
        xml.text("PhysicalResourceId", &event.physical_id);
        xml.text("ResourceType", &event.kind);
        xml.text("Timestamp", timestamp(event.at));
        xml.text("ResourceStatus", event.status);
        xml.optional("ResourceStatusReason", event.reason.as_ref());
        xml.optional("ClientRequestToken", event.client_request_token.as_ref());
    });
    Ok(())
}

pub(super) fn resources(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let (logical, physical) = (query.text("LogicalResourceId"), query.text("PhysicalResourceId"));
    let by_resource =
        |stack: &&Stack| stack.resources.values().any(|resource| Some(resource.physical_id.as_str()) == physical);
    let stack = match (query.text("StackName"), physical) {
        (Some(name), _) => existing(cloud, name)?,
        (None, Some(physical)) => {
            let missing = || validation(format!("Stack for {physical} does not exist"));
            cloud.stacks.iter().find(by_resource).ok_or_else(missing)?
        }
        (None, None) => return Err(validation("Either StackName or PhysicalResourceId must be specified.")),
    };
    query.finish()?;
    let chosen = stack.resources.iter().filter(|(id, _)| logical.is_none_or(|logical| logical == *id));
    xml.list_of("StackResources", "member", chosen, |xml, (id, resource)| {
        write_names(xml, stack);
        write_resource(xml, id, resource, "Timestamp");
    });
    Ok(())
}

pub(super) fn resource(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let stack = existing(cloud, query.required("StackName")?)?;
    let id = query.required("LogicalResourceId")?;
    query.finish()?;
    let missing = || validation(format!("Resource {id} does not exist for stack {}", stack.name));
    let resource = stack.resources.get(id).ok_or_else(missing)?;
    xml.element("StackResourceDetail", |xml| {
        write_names(xml, stack);
        write_resource(xml, id, resource, "LastUpdatedTimestamp");
    });
    Ok(())
}

pub(super) fn list_resources(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let stack = existing(cloud, query.required("StackName")?)?;
    whole(query)?;
    query.finish()?;
    xml.list_of("StackResourceSummaries", "member", &stack.resources, |xml, (id, resource)| {
        write_resource(xml, id, resource, "LastUpdatedTimestamp");
    });
    Ok(())
}

fn write_names(xml: &mut Xml, stack: &Stack) {
    xml.text("StackName", &stack.name);
    xml.text("StackId", &stack.id);
}

fn write_resource(xml: &mut Xml, id: &str, resource: &StackResource, time: &str) {
    xml.text("LogicalResourceId", id);
    xml.text("PhysicalResourceId", &resource.physical_id);
    xml.text("ResourceType", &resource.kind);
    xml.text(time, timestamp(resource.updated_at));
    xml.text("ResourceStatus", resource.status);
    xml.optional("ResourceStatusReason", resource.reason.as_ref());
}

pub(super) fn change_set(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let (stack, name) = change_set_names(cloud, query)?;
    whole(query)?;
    query.ignore("contexts before and after a change are not told", &["IncludePropertyValues"]);
    query.finish()?;
    let stack = existing(cloud, &stack)?;
    let set = &stack.change_sets[&name];
    write_change_set(xml, stack, set);
    write_parameters(xml, &set.request.parameters);
    xml.element("Capabilities", |xml| {
        set.request.capabilities.iter().for_each(|capability| xml.text("member", capability));
    });
    xml.list_of("Changes", "member", &set.changes, |xml, change| {
        xml.text("Type", "Resource");
        xml.element("ResourceChange", |xml| {
            xml.text("Action", change.action);
            xml.text("LogicalResourceId", &change.logical_id);
            xml.optional("PhysicalResourceId", change.physical_id.as_ref());
            xml.text("ResourceType", &change.kind);
        });
    });
    Ok(())
}

pub(super) fn change_sets(cloud: &Cloud, query: &Query<'_>, xml: &mut Xml) -> Result<(), ApiError> {
    let stack = existing(cloud, query.required("StackName")?)?;
    whole(query)?;
    query.finish()?;
    xml.list_of("Summaries", "member", stack.change_sets.values(), |xml, set| write_change_set(xml, stack, set));
    Ok(())
}

fn write_change_set(xml: &mut Xml, stack: &Stack, set: &ChangeSet) {
    let execution = match (&set.failure, set.executed) {
        (Some(_), _) => "UNAVAILABLE",
        (None, true) => "EXECUTE_COMPLETE",
        (None, false) => "AVAILABLE",
    };
    write_names(xml, stack);
    xml.text("ChangeSetName", &set.name);
    xml.text("ChangeSetId", &set.id);
    xml.optional("Description", set.description.as_ref());
    xml.text("CreationTime", timestamp(set.created_at));
    xml.text("ExecutionStatus", execution);
    xml.text("Status", if set.failure.is_some() { "FAILED" } else { "CREATE_COMPLETE" });
    xml.optional("StatusReason", set.failure.as_ref());
}
