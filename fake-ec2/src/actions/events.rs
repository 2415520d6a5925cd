//! EventBridge: rules on the default bus, their targets, and events of one's own.

use super::{Context, described_tags, page, tag_list, text, texts, unknown_action};
use crate::cloud::Cloud;
use crate::cloud::bus::{Input, Rule, Target, check_pattern, matches};
use crate::cloud::tags::{self, Tags};
use crate::error::ApiError;
use crate::wire::pagination::Bounds;
use crate::wire::{Reply, Service};
use jiff::Timestamp;
use serde_json::{Value, json};

// fidelity: documented(EventBridge User Guide, Quotas: 300 rules of a bus, 5 targets of a rule)
const MAX_RULES: usize = 300;
const MAX_TARGETS: usize = 5;
// fidelity: documented(EventBridge API Reference, PutTargets, RemoveTargets and PutEvents: 10 entries of a request)
const MAX_ENTRIES: usize = 10;
// fidelity: documented(EventBridge User Guide, Calculating PutEvents event entry size: 256 KB of a request)
const MAX_EVENT_BYTES: usize = 256 << 10;

// fidelity: documented(EventBridge API Reference: each action); assumed: a rule is effective at once.
pub(super) fn perform(cloud: &mut Cloud, context: &Context, action: &str, input: &Value) -> Result<Reply, ApiError> {
    check_bus(cloud, text(input, if action == "DescribeEventBus" { "Name" } else { "EventBusName" }))?;
    let value = match action {
        "DeleteRule" => delete_rule(cloud, input)?,
        "DescribeEventBus" => describe_bus(cloud),
        "DescribeRule" => {
            let name = rule_name(cloud, input, "Name")?;
            describe(&name, &cloud.bus.rules[&name])
        }
        "DisableRule" | "EnableRule" => {
            rule(cloud, input, "Name")?.enabled = action == "EnableRule";
            json!({})
        }
        "ListEventBuses" => list_buses(cloud, input)?,
        "ListRuleNamesByTarget" => list_names_by_target(cloud, input)?,
        "ListRules" => list_rules(cloud, input)?,
        "ListTagsForResource" => json!({"Tags": described_tags(tagged(cloud, input)?)}),
        "ListTargetsByRule" => list_targets(cloud, input)?,
        "PutEvents" => put_events(cloud, context, input)?,
        "PutRule" => put_rule(cloud, input)?,
        "PutTargets" => put_targets(cloud, input)?,
        "RemoveTargets" => remove_targets(cloud, input)?,
        "TagResource" => tag(cloud, input)?,
        "TestEventPattern" => test_pattern(input)?,
        "UntagResource" => {
            let keys: Vec<&str> = texts(input, "TagKeys").collect();
            tagged(cloud, input)?.retain(|key, _| !keys.contains(&key.as_str()));
            json!({})
        }
        _ => return Err(unknown_action(Service::EventBridge, action)),
    };
    Ok(Reply::Json(value))
}

/// There is the default bus and no other.
fn check_bus(cloud: &Cloud, name: Option<&str>) -> Result<(), ApiError> {
    match name {
        Some(name) if name != "default" && name != bus_arn(cloud) => {
            Err(ApiError::client("ResourceNotFoundException", format!("Event bus {name} does not exist.")))
        }
        _ => Ok(()),
    }
}

fn bus_arn(cloud: &Cloud) -> String {
    cloud.arn("events", "event-bus/default")
}

// fidelity: documented(EventBridge API Reference, PutRule: what is left out is reset, tags of an existing rule are ignored)
fn put_rule(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = text(input, "Name").ok_or_else(|| validation("name", "Member must not be null"))?.to_owned();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if !(1..=64).contains(&name.len()) || !name.bytes().all(allowed) {
        return Err(validation(
            "name",
            "Member must satisfy regular expression pattern: [\\.\\-_A-Za-z0-9]+, with a length of at most 64",
        ));
    }
    if input.get("ScheduleExpression").is_some() {
        return Err(ApiError::client(
            "ValidationException",
            "Rules on a schedule are not played here; give an EventPattern.",
        ));
    }
    let Some(pattern) = text(input, "EventPattern") else {
        return Err(ApiError::client(
            "ValidationException",
            "Parameter(s) EventPattern or ScheduleExpression must be specified.",
        ));
    };
    let pattern = check_pattern(pattern)?;
    let enabled = match text(input, "State") {
        None | Some("ENABLED" | "ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS") => true,
        Some("DISABLED") => false,
        Some(_) => return Err(validation("state", "Member must be ENABLED or DISABLED")),
    };
    let description = text(input, "Description").unwrap_or_default().to_owned();
    let arn = cloud.arn("events", &format!("rule/{name}"));
    let (targets, tags) = match cloud.bus.rules.remove(&name) {
        Some(old) => (old.targets, old.tags),
        None if cloud.bus.rules.len() >= MAX_RULES => return Err(limit_exceeded()),
        None => (Default::default(), tag_list(input)),
    };
    cloud.bus.rules.insert(name, Rule { arn: arn.clone(), pattern, enabled, description, targets, tags });
    Ok(json!({"RuleArn": arn}))
}

// fidelity: documented(EventBridge API Reference, PutTargets: partial failures)
fn put_targets(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let rule = rule(cloud, input, "Rule")?;
    let mut targets = rule.targets.clone();
    let mut failed = Vec::new();
    for given in entries(input, "Targets")? {
        let id = text(given, "Id").ok_or_else(|| validation("targets.member.id", "Member must not be null"))?;
        match read_target(given) {
            Ok(target) => drop(targets.insert(id.into(), target)),
            Err(message) => {
                tracing::warn!(target = id, message, "a target of a rule is refused");
                failed.push(json!({"TargetId": id, "ErrorCode": "ValidationException", "ErrorMessage": message}));
            }
        }
    }
    if targets.len() > MAX_TARGETS {
        return Err(limit_exceeded());
    }
    rule.targets = targets;
    Ok(json!({"FailedEntryCount": failed.len(), "FailedEntries": failed}))
}

fn read_target(given: &Value) -> Result<Target, String> {
    let arn = text(given, "Arn").unwrap_or_default();
    if !arn.starts_with("arn:aws:sqs:") {
        return Err("Only SQS queues can be targets here.".into());
    }
    if given.get("InputTransformer").is_some() {
        return Err("Input transformers are not played here.".into());
    }
    let input = match (text(given, "Input"), text(given, "InputPath")) {
        (Some(_), Some(_)) => return Err("Only one of Input, InputPath, or InputTransformer must be provided.".into()),
        (Some(text), None) if serde_json::from_str::<Value>(text).is_err() => {
            return Err("JSON syntax error in input".into());
        }
        (Some(text), None) => Input::Constant(text.into()),
        (None, Some(path)) if !path.starts_with('$') => return Err(format!("Invalid InputPath {path}.")),
        (None, Some(path)) => Input::Path(path.into()),
        (None, None) => Input::Event,
    };
    let group = given.get("SqsParameters").and_then(|parameters| text(parameters, "MessageGroupId"));
    match (arn.ends_with(".fifo"), group) {
        (true, None) => Err("Parameter(s) MessageGroupId must be specified for a FIFO queue.".into()),
        _ => Ok(Target { arn: arn.into(), input, message_group_id: group.map(str::to_owned) }),
    }
}

// fidelity: documented(EventBridge API Reference, RemoveTargets: partial failures); assumed: a target that is not there fails
fn remove_targets(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let rule = rule(cloud, input, "Rule")?;
    let mut failed = Vec::new();
    for id in entries(input, "Ids")?.iter().filter_map(Value::as_str) {
        if rule.targets.remove(id).is_none() {
            let message = format!("Target {id} does not exist on the rule.");
            failed.push(json!({"TargetId": id, "ErrorCode": "ResourceNotFoundException", "ErrorMessage": message}));
        }
    }
    Ok(json!({"FailedEntryCount": failed.len(), "FailedEntries": failed}))
}

/// One to ten entries.
fn entries<'a>(input: &'a Value, member: &str) -> Result<&'a Vec<Value>, ApiError> {
    let entries =
        input.get(member).and_then(Value::as_array).filter(|entries| (1..=MAX_ENTRIES).contains(&entries.len()));
    entries.ok_or_else(|| {
        let member = member.to_ascii_lowercase();
        validation(&member, &format!("Member must have length between 1 and {MAX_ENTRIES}"))
    })
}

fn delete_rule(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = text(input, "Name").ok_or_else(|| validation("name", "Member must not be null"))?;
    if cloud.bus.rules.get(name).is_some_and(|rule| !rule.targets.is_empty()) {
        return Err(ApiError::client("ValidationException", "Rule can't be deleted since it has targets."));
    }
    // Deleting what does not exist succeeds.
    cloud.bus.rules.remove(name);
    Ok(json!({}))
}

fn list_rules(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let prefix = text(input, "NamePrefix").unwrap_or_default();
    let rules = cloud.bus.rules.iter().filter(|(name, _)| name.starts_with(prefix));
    listed(input, "Rules", rules, |(name, _)| (*name).clone(), |(name, rule)| describe(name, rule))
}

fn list_targets(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let name = rule_name(cloud, input, "Rule")?;
    let targets = cloud.bus.rules[&name].targets.iter();
    listed(input, "Targets", targets, |(id, _)| (*id).clone(), |(id, target)| describe_target(id, target))
}

fn list_names_by_target(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let arn = text(input, "TargetArn").ok_or_else(|| validation("targetArn", "Member must not be null"))?;
    let feeds = |rule: &Rule| rule.targets.values().any(|target| target.arn == arn);
    let names = cloud.bus.rules.iter().filter(|(_, rule)| feeds(rule)).map(|(name, _)| name);
    listed(input, "RuleNames", names, |name| (*name).clone(), |name| json!(name))
}

fn list_buses(cloud: &Cloud, input: &Value) -> Result<Value, ApiError> {
    let prefix = text(input, "NamePrefix").unwrap_or_default();
    let buses = ["default"].into_iter().filter(|name| name.starts_with(prefix));
    listed(input, "EventBuses", buses, |name| (*name).to_owned(), |_| describe_bus(cloud))
}

/// One page of a list.
// fidelity: documented(EventBridge API Reference, ListRules and its like: Limit of 1 to 100, 100 by default)
fn listed<T>(
    input: &Value,
    member: &str,
    items: impl Iterator<Item = T>,
    key: impl Fn(&T) -> String,
    describe: impl Fn(T) -> Value,
) -> Result<Value, ApiError> {
    let bounds = Bounds { minimum: 1, maximum: 100, default: 100 };
    let page = page(input, ["Limit", "NextToken"], bounds, ["ValidationException"; 2])?;
    let paged = page.cut(items, key);
    let mut answer = json!({});
    answer[member] = paged.items.into_iter().map(describe).collect();
    if let Some(next) = paged.next {
        answer["NextToken"] = json!(next);
    }
    Ok(answer)
}

/// The tags of the rule or bus with this ARN.
fn tagged<'a>(cloud: &'a mut Cloud, input: &Value) -> Result<&'a mut Tags, ApiError> {
    let arn = text(input, "ResourceARN").ok_or_else(|| validation("resourceARN", "Member must not be null"))?;
    if arn == bus_arn(cloud) {
        return Ok(&mut cloud.bus.tags);
    }
    let rule = cloud.bus.rules.values_mut().find(|rule| rule.arn == arn);
    rule.map(|rule| &mut rule.tags)
        .ok_or_else(|| ApiError::client("ResourceNotFoundException", format!("The resource {arn} does not exist.")))
}

fn tag(cloud: &mut Cloud, input: &Value) -> Result<Value, ApiError> {
    let added = tag_list(input);
    let tags = tagged(cloud, input)?;
    tags::check(tags, &added).map_err(|error| ApiError::client("ValidationException", error.message))?;
    tags.extend(added);
    Ok(json!({}))
}

fn test_pattern(input: &Value) -> Result<Value, ApiError> {
    let pattern = text(input, "EventPattern").ok_or_else(|| validation("eventPattern", "Member must not be null"))?;
    let pattern = check_pattern(pattern)?;
    let event: Option<Value> = text(input, "Event").and_then(|event| serde_json::from_str(event).ok());
    let required = ["id", "account", "source", "time", "region", "resources", "detail-type"];
    let event = event.filter(|event| required.iter().all(|member| event.get(*member).is_some()));
    let event = event.ok_or_else(|| {
        let message = format!("Parameter Event is not valid. Reason: it must be JSON with {}.", required.join(", "));
        ApiError::client("ValidationException", message)
    })?;
    Ok(json!({"Result": matches(&pattern, &event)}))
}

// fidelity: documented(EventBridge API Reference, PutEvents: partial failures; EventBridge User Guide, Calculating PutEvents
// event entry size); assumed: wording
fn put_events(cloud: &mut Cloud, context: &Context, input: &Value) -> Result<Value, ApiError> {
    let entries = entries(input, "Entries")?;
    if entries.iter().map(entry_bytes).sum::<usize>() > MAX_EVENT_BYTES {
        return Err(ApiError::client(
            "ValidationException",
            "Total size of the entries in the request is over the limit.",
        ));
    }
    let mut failures = 0;
    let answers: Vec<Value> = entries
        .iter()
        .map(|entry| match put_event(cloud, context.now, entry) {
            Ok(id) => json!({"EventId": id}),
            Err((code, message)) => {
                failures += 1;
                json!({"ErrorCode": code, "ErrorMessage": message})
            }
        })
        .collect();
    Ok(json!({"FailedEntryCount": failures, "Entries": answers}))
}

fn entry_bytes(entry: &Value) -> usize {
    let texts = ["Source", "DetailType", "Detail"].iter().filter_map(|member| text(entry, member));
    let time = if entry.get("Time").is_some() { 14 } else { 0 };
    time + texts.chain(self::texts(entry, "Resources")).map(str::len).sum::<usize>()
}

/// The id of the event that an entry makes, or why it makes none.
fn put_event(cloud: &mut Cloud, now: Timestamp, entry: &Value) -> Result<String, (&'static str, String)> {
    let member = |name: &str| {
        let reason = || format!("Parameter {name} is not valid. Reason: {name} is a required argument.");
        text(entry, name).filter(|text| !text.is_empty()).ok_or_else(|| ("InvalidArgument", reason()))
    };
    let (source, kind, detail) = (member("Source")?, member("DetailType")?, member("Detail")?);
    if source.starts_with("aws.") {
        return Err(("NotAuthorizedForSourceException", "Not authorized for the source.".into()));
    }
    let detail = serde_json::from_str::<Value>(detail).ok().filter(Value::is_object);
    let detail = detail.ok_or_else(|| ("MalformedDetail", "Detail is malformed.".to_owned()))?;
    check_bus(cloud, text(entry, "EventBusName")).map_err(|error| ("ResourceNotFoundException", error.message))?;
    let seconds = entry.get("Time").and_then(Value::as_f64);
    let time = seconds.and_then(|seconds| Timestamp::from_millisecond((seconds * 1000.0) as i64).ok()).unwrap_or(now);
    let resources: Vec<String> = texts(entry, "Resources").map(str::to_owned).collect();
    let (id, event) = cloud.event(time, source, kind, &resources, detail);
    cloud.route(now, &event);
    Ok(id)
}

fn rule_name(cloud: &Cloud, input: &Value, member: &str) -> Result<String, ApiError> {
    let name = text(input, member).unwrap_or_default();
    cloud.bus.rules.contains_key(name).then(|| name.to_owned()).ok_or_else(|| not_found(name))
}

fn rule<'a>(cloud: &'a mut Cloud, input: &Value, member: &str) -> Result<&'a mut Rule, ApiError> {
    let name = text(input, member).unwrap_or_default();
    cloud.bus.rules.get_mut(name).ok_or_else(|| not_found(name))
}

fn describe(name: &str, rule: &Rule) -> Value {
    json!({
        "Name": name,
        "Arn": rule.arn,
        "EventPattern": rule.pattern.to_string(),
        "State": if rule.enabled { "ENABLED" } else { "DISABLED" },
        "Description": rule.description,
        "EventBusName": "default",
    })
}

fn describe_target(id: &str, target: &Target) -> Value {
    let Target { arn, input, message_group_id } = target;
    let mut value = json!({"Id": id, "Arn": arn});
    match input {
        Input::Event => {}
        Input::Constant(text) => value["Input"] = json!(text),
        Input::Path(path) => value["InputPath"] = json!(path),
    }
    if let Some(group) = message_group_id {
        value["SqsParameters"] = json!({"MessageGroupId": group});
    }
    value
}

fn describe_bus(cloud: &Cloud) -> Value {
    let at = cloud.started_at.as_second();
    json!({"Name": "default", "Arn": bus_arn(cloud), "CreationTime": at, "LastModifiedTime": at})
}

fn not_found(name: &str) -> ApiError {
    ApiError::client("ResourceNotFoundException", format!("Rule {name} does not exist on EventBus default."))
}

fn limit_exceeded() -> ApiError {
    ApiError::client("LimitExceededException", "The requested resource exceeds the maximum number allowed.")
}

fn validation(member: &str, constraint: &str) -> ApiError {
    let message =
        format!("1 validation error detected: Value at '{member}' failed to satisfy constraint: {constraint}");
    ApiError::client("ValidationException", message)
}
