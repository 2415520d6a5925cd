//! Fault rules as JSON.

use super::Refusal;
use super::ask::Fields;
use crate::error::ApiError;
use crate::fault::{Calls, FaultId, FaultRule, Outcome};
use crate::wire::Service;
use serde_json::{Value, json};
use std::time::Duration;

const CALLS: &str = "all, {\"nth\": N}, {\"first\": N} or {\"after\": N}";

const OUTCOMES: &str = "unauthorized, throttled, lostRequest, lostReply, truncatedBody, hang, {\"delayMs\": N} or {\"error\": {\"code\": TEXT, \"message\": TEXT, \"status\": N}}";

/// An hour: longer than any client waits.
const MAX_DELAY_MS: u64 = 3_600_000;

pub(super) fn read(fields: &mut Fields) -> Result<FaultRule, Refusal> {
    let service = fields.text("service")?.map(|name| service(&name)).transpose()?;
    let action = fields.text("action")?;
    let parameter = fields.object("parameter")?.map(parameter).transpose()?;
    let caller = fields.text("caller")?;
    let calls = match fields.value("calls") {
        None => Calls::All,
        Some(value) => calls(fields, value)?,
    };
    let outcome = fields.value("outcome");
    let outcome = fields.required("outcome", outcome, OUTCOMES)?;
    let outcome = match outcome.as_str() {
        // AWS's errors name the action, so that they have to be of one.
        Some("unauthorized") => FaultRule::unauthorized(named(fields, &action)?).outcome,
        Some("throttled") => FaultRule::throttled(named(fields, &action)?).outcome,
        _ => self::outcome(fields, outcome)?,
    };
    fields.finish()?;
    Ok(FaultRule { service, action, parameter, caller, calls, outcome })
}

fn named<'a>(fields: &Fields, action: &'a Option<String>) -> Result<&'a str, Refusal> {
    fields.required("action", action.as_deref(), "an action of EC2, such as CreateFleet")
}

pub(super) fn service(name: &str) -> Result<Service, Refusal> {
    Service::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = Service::ALL.iter().map(|service| service.name()).collect();
        Refusal::invalid("service", format!("the service {name:?} is not played here"), names.join(", "))
    })
}

fn parameter(mut fields: Fields) -> Result<(String, String), Refusal> {
    let (name, value) = (fields.text("name")?, fields.text("value")?);
    fields.finish()?;
    let name = fields.required("name", name, "a parameter of the request, such as InstanceId.1")?;
    Ok((name, fields.required("value", value, "the value it must have")?))
}

fn calls(fields: &Fields, value: Value) -> Result<Calls, Refusal> {
    let refuse = || fields.wrong("calls", &value, CALLS);
    if value == "all" {
        return Ok(Calls::All);
    }
    let members = value.as_object().filter(|members| members.len() == 1).ok_or_else(refuse)?;
    let (kind, number) = members.iter().next().ok_or_else(refuse)?;
    let number = number.as_u64().ok_or_else(refuse)?;
    match (kind.as_str(), number) {
        ("nth", 1..) => Ok(Calls::Nth(number)),
        ("first", 1..) => Ok(Calls::First(number)),
        ("after", _) => Ok(Calls::After(number)),
        _ => Err(refuse()),
    }
}

fn outcome(fields: &Fields, value: Value) -> Result<Outcome, Refusal> {
    match value.as_str() {
        Some("lostRequest") => return Ok(Outcome::LostRequest),
        Some("lostReply") => return Ok(Outcome::LostReply),
        Some("hang") => return Ok(Outcome::Hang),
        Some("truncatedBody") => return Ok(Outcome::TruncatedBody),
        Some(_) => return Err(fields.wrong("outcome", &value, OUTCOMES)),
        None => {}
    }
    let mut whole = Fields::below("outcome", value)?;
    let outcome = match (whole.number("delayMs", 0..=MAX_DELAY_MS)?, whole.object("error")?) {
        (Some(delay_ms), None) => Outcome::Delay(Duration::from_millis(delay_ms)),
        (None, Some(error)) => Outcome::Error(self::error(error)?),
        _ => return Err(Refusal::invalid("outcome", "outcome has to be one of its kinds", OUTCOMES)),
    };
    whole.finish()?;
    Ok(outcome)
}

fn error(mut fields: Fields) -> Result<ApiError, Refusal> {
    let (code, message) = (fields.text("code")?, fields.text("message")?);
    let status = fields.number("status", 400..=599)?.unwrap_or(400);
    fields.finish()?;
    let expected = "an error code of AWS, such as InsufficientInstanceCapacity";
    let code = fields.required("code", code, expected)?;
    // It goes into a header of some protocols and into XML of others.
    if !code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) {
        let error = format!("the error code {code:?} has other characters than AWS's have");
        return Err(Refusal::invalid(&fields.name("code"), error, expected));
    }
    let message = message.unwrap_or_else(|| "This call was refused by a fault rule.".into());
    Ok(ApiError::new(status as u16, code, message))
}

pub(super) fn show(FaultId(id): FaultId, rule: &FaultRule, matched: u64) -> Value {
    let FaultRule { service, action, parameter, caller, calls, outcome } = rule;
    let calls = match calls {
        Calls::All => json!("all"),
        Calls::Nth(n) => json!({ "nth": n }),
        Calls::First(n) => json!({ "first": n }),
        Calls::After(n) => json!({ "after": n }),
    };
    let outcome = match outcome {
        Outcome::Error(ApiError { code, message, status }) => {
            json!({"error": {"code": code, "message": message, "status": status}})
        }
        Outcome::Delay(delay) => json!({"delayMs": delay.as_millis() as u64}),
        Outcome::LostRequest => json!("lostRequest"),
        Outcome::LostReply => json!("lostReply"),
        Outcome::Hang => json!("hang"),
        Outcome::TruncatedBody => json!("truncatedBody"),
    };
    json!({
        "id": id,
        "service": service.map(Service::name),
        "action": action,
        "parameter": parameter.as_ref().map(|(name, value)| json!({"name": name, "value": value})),
        "caller": caller,
        "calls": calls,
        "outcome": outcome,
        "matched": matched,
    })
}
