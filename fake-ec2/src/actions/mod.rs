//! The table: which action is done where. What is not in it is refused as AWS refuses an unknown action, and logged.

pub(crate) mod cloudformation;
mod ec2;
mod eks;
mod events;
mod iam;
pub(crate) mod permissions;
mod pricing;
mod sqs;
mod ssm;
mod sts;

pub(crate) use sts::open_session;

use crate::cloud::Cloud;
use crate::cloud::tags::Tags;
use crate::error::ApiError;
use crate::iam::Refused;
use crate::iam::decision::Asking;
use crate::wire::pagination::{Bounds, Page};
use crate::wire::{Call, Payload, Reply, Service};
use jiff::Timestamp;
use serde_json::Value;

/// When an action is performed, and for whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: Timestamp,
    /// When it was first tried; earlier than `now` if it has waited.
    pub(crate) started: Timestamp,
    /// Who asks.
    pub(crate) asking: Asking<'a>,
}

/// How far an action got.
#[derive(Debug)]
pub(crate) enum Step {
    Done(Result<Reply, Refused>),
    /// Nothing to answer yet: perform it again when something has changed, at the latest then.
    WaitUntil(Timestamp),
}

impl<E: Into<Refused>> From<Result<Reply, E>> for Step {
    fn from(result: Result<Reply, E>) -> Self {
        Self::Done(result.map_err(Into::into))
    }
}

pub(crate) fn perform(cloud: &mut Cloud, context: &Context, call: &Call) -> Step {
    match (call.service, &call.payload) {
        (Service::Ec2, Payload::Form(form)) => ec2::perform(cloud, context, &call.action, form).into(),
        (Service::Iam, Payload::Form(form)) => iam::perform(cloud, context, &call.action, &form.query()).into(),
        (Service::Sts, Payload::Form(form)) => sts::perform(cloud, context, &call.action, &form.query()).into(),
        (Service::Sqs, Payload::Json(input)) => sqs::perform(cloud, context, &call.action, input),
        (Service::Sqs, Payload::Form(form)) => sqs::perform_query(cloud, context, &call.action, &form.query()),
        (Service::Ssm, Payload::Json(input)) => ssm::perform(cloud, context, &call.action, input).into(),
        (Service::Pricing, Payload::Json(input)) => pricing::perform(cloud, &call.action, input).into(),
        (Service::EventBridge, Payload::Json(input)) => events::perform(cloud, context, &call.action, input).into(),
        (Service::Eks, Payload::Json(input)) => eks::perform(cloud, context, &call.action, input).into(),
        (Service::EksAuth, Payload::Json(input)) => {
            let name = text(input, "name").unwrap_or_default();
            eks::pod_identity::assume_role(cloud, context, name, input).map(Reply::Json).into()
        }
        (Service::CloudFormation, Payload::Form(form)) => {
            cloudformation::perform(cloud, context, &call.action, &form.query()).into()
        }
        // A JSON target for a query service, or the other way round.
        (service, _) => Err(unknown_action(service, &call.action)).into(),
    }
}

/// What AWS answers to an action it does not have.
// fidelity: documented(EC2 API Reference, Common errors: InvalidAction; AWS JSON protocol: UnknownOperationException)
pub(crate) fn unknown_action(service: Service, action: &str) -> ApiError {
    tracing::warn!(service = service.name(), action, "an action was asked for that is not played here");
    match service {
        Service::Ec2 | Service::Iam | Service::Sts | Service::CloudFormation => {
            ApiError::client("InvalidAction", format!("The action {action} is not valid for this web service."))
        }
        Service::Sqs => {
            ApiError::client("InvalidAction", format!("The action {action} is not valid for this endpoint."))
        }
        _ => ApiError::client("UnknownOperationException", format!("The operation {action} is not known.")),
    }
}

/// A text of a JSON document.
fn text<'a>(input: &'a Value, name: &str) -> Option<&'a str> {
    input.get(name).and_then(Value::as_str)
}

/// A number of a JSON document; some clients send numbers as text.
fn integer(input: &Value, name: &str) -> Option<i64> {
    let value = input.get(name)?;
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// The page that a JSON document asks for by these two members, and the codes of a service for a wrong size or token.
fn page(
    input: &Value,
    [size, token]: [&str; 2],
    bounds: Bounds,
    [wrong_size, wrong_token]: [&'static str; 2],
) -> Result<Page, ApiError> {
    Page::new(integer(input, size), text(input, token), bounds).map_err(|error| {
        let code = if error.code == "InvalidNextToken" { wrong_token } else { wrong_size };
        ApiError::client(code, error.message.replace("maxResults", size))
    })
}

/// The `Tags` of a JSON document, in the form of a list of `Key` and `Value`.
fn tag_list(input: &Value) -> Tags {
    let tags = input.get("Tags").and_then(Value::as_array).into_iter().flatten();
    tags.filter_map(|tag| Some((text(tag, "Key")?.to_owned(), text(tag, "Value").unwrap_or_default().to_owned())))
        .collect()
}

/// The same the other way round.
fn described_tags(tags: &Tags) -> Value {
    tags.iter().map(|(key, value)| serde_json::json!({"Key": key, "Value": value})).collect()
}

/// The texts of a list of a JSON document.
fn texts<'a>(input: &'a Value, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    input.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// A map of texts of a JSON document.
fn string_map(input: &Value, name: &str) -> std::collections::BTreeMap<String, String> {
    let entries = input.get(name).and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
