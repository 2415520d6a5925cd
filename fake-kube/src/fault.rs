//! Faults by rule: which request, which call of it, what happens instead. First match wins.

use std::time::Duration;

use crate::status::Status;

/// One rule. An absent criterion matches everything.
#[derive(Clone, Debug, Default)]
pub struct FaultRule {
    /// Verb as in the journal, such as `create` or `watch`.
    pub verb: Option<String>,
    /// Plural name of the resource.
    pub resource: Option<String>,
    /// Subresource; an empty text stands for the object itself.
    pub subresource: Option<String>,
    /// Namespace of the request.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: Option<String>,
    /// Beginning of the user agent. In-process clients are hit only by rules that name them.
    pub user_agent: Option<String>,
    /// Which of the matching calls.
    pub calls: Calls,
    /// What happens.
    pub outcome: Outcome,
}

/// Which of the calls that match a rule are hit, counted from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// All of them.
    #[default]
    Every,
    /// The first few.
    First(u64),
    /// One alone.
    Nth(u64),
    /// All after the first few.
    After(u64),
}

impl Calls {
    fn hits(self, call: u64) -> bool {
        match self {
            Self::Every => true,
            Self::First(count) => call <= count,
            Self::Nth(nth) => call == nth,
            Self::After(count) => call > count,
        }
    }
}

/// What a hit request meets.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Outcome {
    /// 409, as if another writer had been faster.
    Conflict,
    /// 500.
    #[default]
    InternalError,
    /// 429 with `Retry-After`.
    TooManyRequests {
        /// Seconds to wait.
        retry_after_seconds: u32,
    },
    /// 503.
    Unavailable,
    /// The request is carried out later.
    Delay(Duration),
    /// The connection breaks before the server acts.
    LoseRequest,
    /// The server acts, then the connection breaks.
    LoseReply,
    /// A watch ends at once, without an event.
    WatchEnds,
    /// A watch stays open and says nothing for this long.
    WatchStalls(Duration),
    /// A watch is told that its version is too old.
    WatchExpires,
}

/// What a request is matched by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) verb: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) user_agent: &'a str,
    pub(crate) in_process: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<(FaultRule, u64)>);

impl Faults {
    pub(crate) fn add(&mut self, rule: FaultRule) {
        self.0.push((rule, 0));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The outcome for a request, if a rule hits it. Counts the call for every rule it matches.
    pub(crate) fn strike(&mut self, subject: Subject) -> Option<Outcome> {
        let mut outcome = None;
        for (rule, calls) in &mut self.0 {
            if matches(rule, subject) {
                *calls += 1;
                if outcome.is_none() && rule.calls.hits(*calls) {
                    outcome = Some(rule.outcome.clone());
                }
            }
        }
        outcome
    }
}

fn matches(rule: &FaultRule, subject: Subject) -> bool {
    let equal = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
    equal(&rule.verb, subject.verb)
        && equal(&rule.resource, subject.resource)
        && equal(&rule.subresource, subject.subresource)
        && equal(&rule.namespace, subject.namespace)
        && equal(&rule.name, subject.name)
        && match &rule.user_agent {
            Some(start) => subject.user_agent.starts_with(start.as_str()),
            None => !subject.in_process,
        }
}

impl Outcome {
    /// The refusal this outcome stands for, if it is one.
    pub(crate) fn refusal(&self, kind: &crate::kinds::Kind, name: &str) -> Option<Status> {
        Some(match self {
            Self::Conflict => Status::modified(kind, name),
            Self::InternalError => Status::internal("injected fault"),
            Self::TooManyRequests { retry_after_seconds } => {
                Status::too_many_requests("Too many requests, please try again later.", *retry_after_seconds)
            }
            Self::Unavailable => {
                Status::new(503, "ServiceUnavailable", "the server is currently unable to handle the request")
            }
            _ => return None,
        })
    }
}
