//! What was asked of the account, and what went over its event bus. Whoever follows the journal names the last call seen and
//! waits for the next; nothing is left out without a word.

use super::ask::Fields;
use super::{Outcome, Refusal, fault, view, wait};
use crate::journal::{Journal, JournalEntry};
use crate::server::{FakeEc2, lock};
use crate::wire::Service;
use serde_json::{Value, json};
use std::sync::Arc;

/// Entries of the journal and events answered unless more are asked for, and the most there are in one answer: a
/// thousand entries with their parameters are about a megabyte.
const DEFAULT_LIMIT: u64 = 100;
const MAX_LIMIT: u64 = 1_000;

/// Requests and responses in one answer, in bytes. A description of all instance types is a few megabytes; the call that
/// passes this bound is the last of its answer.
const MAX_CALL_BYTES: usize = 8 << 20;

/// Which calls are wanted.
struct Wanted {
    service: Option<Service>,
    action: Option<String>,
    caller: Option<String>,
    error_code: Option<String>,
    /// Of the request: name and value.
    parameter: Option<(String, String)>,
    errors: bool,
    responses: bool,
    limit: usize,
    /// The earliest after this one; the latest of all where it is not named.
    after: Option<u64>,
}

impl Wanted {
    fn read(fields: &mut Fields) -> Result<Self, Refusal> {
        let service = fields.text("service")?.map(|name| fault::service(&name)).transpose()?;
        let (action, errors) = (fields.text("action")?, fields.boolean("errors")?.unwrap_or(false));
        let (caller, error_code) = (fields.text("caller")?, fields.text("errorCode")?);
        let parameter = fields.text("parameter")?.map(|text| parameter(&text)).transpose()?;
        let responses = fields.boolean("responses")?.unwrap_or(false);
        let (limit, after) = tail(fields)?;
        Ok(Self { service, action, caller, error_code, parameter, errors, responses, limit, after })
    }

    fn is(&self, entry: &JournalEntry) -> bool {
        self.service.is_none_or(|service| service == entry.service)
            && self.action.as_deref().is_none_or(|action| action == entry.action)
            && self.caller.as_deref().is_none_or(|caller| caller == entry.caller || caller == entry.principal)
            && self.error_code.as_deref().is_none_or(|code| entry.error_code.as_deref() == Some(code))
            && self.parameter.as_ref().is_none_or(|(name, value)| entry.param(name) == Some(value))
            && (!self.errors || !(200..300).contains(&entry.status))
    }

    fn of(&self, journal: &Journal) -> Vec<Arc<JournalEntry>> {
        let wanted = |entry: &&Arc<JournalEntry>| self.is(entry);
        match self.after {
            Some(after) => journal.after(after).filter(wanted).take(self.limit).cloned().collect(),
            None => {
                let mut latest: Vec<_> = journal.after(0).rev().filter(wanted).take(self.limit).cloned().collect();
                latest.reverse();
                latest
            }
        }
    }

    /// As many of the calls as one answer holds.
    fn show(&self, calls: &[Arc<JournalEntry>], missing: u64) -> Value {
        let mut bytes = 0;
        let fit = calls.iter().take_while(|call| {
            let first_or_within = bytes < MAX_CALL_BYTES;
            bytes += call.request_bytes + if self.responses { call.response.len() } else { 0 };
            first_or_within
        });
        let calls: Vec<Value> = fit.map(|call| view::call(call, self.responses)).collect();
        json!({"calls": calls, "missing": missing})
    }
}

/// `NAME=VALUE`, as the request carried it.
fn parameter(text: &str) -> Result<(String, String), Refusal> {
    let expected = "a name and a value, such as InstanceId.1=i-0123456789abcdef0";
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| Refusal::invalid("parameter", format!("parameter is {text:?}"), expected))?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) async fn calls(ec2: &FakeEc2, fields: &mut Fields) -> Outcome {
    let wanted = Wanted::read(fields)?;
    let wait = wait(fields)?;
    fields.finish()?;
    let look = || {
        let journal = lock(&ec2.inner.journal);
        if let Some(after) = wanted.after {
            check_cursor(after, journal.count(), "calls were made")?;
        }
        Ok((wanted.of(&journal), wanted.after.map_or(0, |after| journal.missing_after(after))))
    };
    let something = async {
        loop {
            let grew = lock(&ec2.inner.journal).grew();
            let grew = grew.notified();
            tokio::pin!(grew);
            grew.as_mut().enable();
            match look() {
                Ok((calls, 0)) if calls.is_empty() => grew.await,
                found => return found,
            }
        }
    };
    let (calls, missing) = match tokio::time::timeout(wait, something).await {
        Ok(found) => found?,
        Err(_) => look()?,
    };
    Ok(wanted.show(&calls, missing))
}

/// A cursor that is ahead was given out by another account, or before this one was started.
pub(super) fn check_cursor(after: u64, last: u64, what: &str) -> Result<(), Refusal> {
    if after <= last {
        return Ok(());
    }
    let error = format!("after is {after}, and only {last} {what} since this fake-ec2 was started");
    Err(Refusal::invalid("after", error, format!("0 to {last}")))
}

pub(super) fn events(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let detail_type = fields.text("detailType")?;
    let (limit, after) = tail(fields)?;
    fields.finish()?;
    let after = after.unwrap_or(0);
    let wanted =
        |event: &Value| detail_type.is_none() || event["event"]["detail-type"].as_str() == detail_type.as_deref();
    let mut events: Vec<Value> = ec2.locked(|cloud, _| {
        let newest_first = cloud.events.iter().rev().take_while(|emitted| emitted.sequence > after);
        newest_first.map(view::event).filter(wanted).take(limit).collect()
    });
    events.reverse();
    Ok(json!({ "events": events }))
}

/// `limit` and `after`: how many at most, and after which sequence number.
fn tail(fields: &mut Fields) -> Result<(usize, Option<u64>), Refusal> {
    let limit = fields.number("limit", 1..=MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT);
    Ok((limit as usize, fields.number("after", 0..=u64::MAX)?))
}

pub(super) fn send_event(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let event = fields.whole();
    for member in ["source", "detail-type"] {
        if event.get(member).and_then(Value::as_str).is_none() {
            return Err(Refusal::invalid(
                member,
                format!("the event has no text {member:?}"),
                "a whole event, as EventBridge delivers it",
            ));
        }
    }
    if !event.get("detail").is_some_and(Value::is_object) {
        return Err(Refusal::invalid(
            "detail",
            "the event has no object \"detail\"",
            "a whole event, as EventBridge delivers it",
        ));
    }
    Ok(json!({"targets": ec2.locked(|cloud, now| cloud.route(now, &event))}))
}
