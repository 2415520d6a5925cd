//! Injected trouble as data: which call, which outcome. The first rule that matches decides; each rule counts the calls
//! it matched.

use crate::error::ApiError;
use crate::wire::Service;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// Which of the matching calls a rule strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Calls {
    /// Every one.
    All,
    /// Only the n-th, counted from 1.
    Nth(u64),
    /// The first n.
    First(u64),
    /// Every one after the n-th.
    After(u64),
}

/// What happens to a struck call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// It is refused before it does anything.
    Error(ApiError),
    /// It is carried out, but only after this long.
    Delay(Duration),
    /// The connection breaks before the request is carried out.
    LostRequest,
    /// It is carried out, and the connection breaks before the answer.
    LostReply,
    /// It is carried out, and the connection breaks in the middle of the answer's body.
    TruncatedBody,
    /// No answer ever comes and nothing is done.
    Hang,
}

/// One rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultRule {
    /// The service it concerns; `None` for any.
    pub service: Option<Service>,
    /// The action it concerns; `None` for any.
    pub action: Option<String>,
    /// A form field (or top-level JSON string) the request must carry with this value.
    pub parameter: Option<(String, String)>,
    /// Who must have called: an access key id, the name of a role, or the ARN of a role's session or of a user.
    pub caller: Option<String>,
    /// Which of the matching calls.
    pub calls: Calls,
    /// What happens to them.
    pub outcome: Outcome,
}

impl FaultRule {
    /// Refuses every call of `action` with this error.
    pub fn error(action: &str, error: ApiError) -> Self {
        Self {
            service: None,
            action: Some(action.into()),
            parameter: None,
            caller: None,
            calls: Calls::All,
            outcome: Outcome::Error(error),
        }
    }

    /// Refuses every call of `action` as EC2 refuses what no policy allows.
    // fidelity: documented(EC2 API Reference, Common errors: UnauthorizedOperation); the sentence as commonly seen.
    pub fn unauthorized(action: &str) -> Self {
        let message = format!(
            "You are not authorized to perform this operation. User is not authorized to perform: ec2:{action} because \
             no identity-based policy allows the ec2:{action} action"
        );
        Self::error(action, ApiError::new(403, "UnauthorizedOperation", message))
    }

    /// Refuses every call of `action` as EC2 throttles.
    pub fn throttled(action: &str) -> Self {
        Self::error(action, ApiError::new(503, "RequestLimitExceeded", "Request limit exceeded."))
    }

    /// Strikes only these calls.
    pub fn calls(mut self, calls: Calls) -> Self {
        self.calls = calls;
        self
    }

    /// Strikes only requests that carry this parameter with this value.
    pub fn with_parameter(mut self, name: &str, value: &str) -> Self {
        self.parameter = Some((name.into(), value.into()));
        self
    }

    /// Strikes only requests of this caller: an access key id, the name of a role, or an ARN.
    pub fn by_caller(mut self, caller: &str) -> Self {
        self.caller = Some(caller.into());
        self
    }

    fn concerns(&self, service: Service, action: &str, params: &Value, from: Origin<'_>) -> bool {
        self.service.is_none_or(|wanted| wanted == service)
            && self.action.as_deref().is_none_or(|wanted| wanted == action)
            && self
                .parameter
                .as_ref()
                .is_none_or(|(name, value)| params.get(name).and_then(Value::as_str) == Some(value))
            && self.caller.as_deref().is_none_or(|wanted| from.is(wanted))
    }
}

/// Who sent a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) access_key_id: &'a str,
    /// The ARN of the caller; empty for nobody.
    pub(crate) principal: &'a str,
}

impl Origin<'_> {
    fn is(self, wanted: &str) -> bool {
        // arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION
        let role = self.principal.split_once(":assumed-role/").and_then(|(_, rest)| rest.split('/').next());
        wanted == self.access_key_id || wanted == self.principal || role == Some(wanted)
    }
}

/// A rule's handle, to take it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FaultId(pub(crate) u64);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Faults {
    rules: Vec<(FaultId, FaultRule, u64)>,
    next: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, rule: FaultRule) -> FaultId {
        self.next += 1;
        self.rules.push((FaultId(self.next), rule, 0));
        FaultId(self.next)
    }

    /// Whether there was such a rule.
    pub(crate) fn remove(&mut self, id: FaultId) -> bool {
        let before = self.rules.len();
        self.rules.retain(|(present, ..)| *present != id);
        self.rules.len() < before
    }

    /// Each rule, in the order in which they are tried, with the number of calls it has matched.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (FaultId, &FaultRule, u64)> {
        self.rules.iter().map(|(id, rule, matched)| (*id, rule, *matched))
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(crate) fn strike(
        &mut self,
        service: Service,
        action: &str,
        params: &Value,
        from: Origin<'_>,
    ) -> Option<Outcome> {
        for (_, rule, count) in &mut self.rules {
            if !rule.concerns(service, action, params, from) {
                continue;
            }
            *count += 1;
            let struck = match rule.calls {
                Calls::All => true,
                Calls::Nth(n) => *count == n,
                Calls::First(n) => *count <= n,
                Calls::After(n) => *count > n,
            };
            if struck {
                return Some(rule.outcome.clone());
            }
        }
        None
    }
}
