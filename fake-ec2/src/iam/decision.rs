//! The decision: a denial anywhere wins, then an allowance, and silence is a refusal.

use super::caller::{Caller, Principal};
use super::facts::{Facts, Keys};
use super::policy::{Asker, Kind, Policy, Question, Verdict};
use super::refusal::{Reason, refuse};
use super::{Permission, Refused};
use crate::cloud::Cloud;
use crate::cloud::identity::{Role, Session, SessionPolicies};
use crate::config::Iam;
use crate::wire::Service;

/// A caller with what its request says of itself: all that is known before a permission is named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) common: &'a Keys,
}

impl Asking<'_> {
    /// Asks for every one of these; the first that is refused decides.
    pub(crate) fn permit(
        &self,
        cloud: &Cloud,
        service: Service,
        needed: impl FnOnce() -> Vec<Permission>,
    ) -> Result<(), Refused> {
        if cloud.config.iam == Iam::Off {
            return Ok(());
        }
        needed().iter().try_for_each(|permission| self.permit_one(cloud, service, permission))
    }

    // fidelity: documented(IAM User Guide, Policy evaluation logic: within one account either kind of policy may allow)
    fn permit_one(&self, cloud: &Cloud, service: Service, permission: &Permission) -> Result<(), Refused> {
        let Permission { action, resource, keys } = permission;
        let question = Question { action, resource, facts: Facts { own: keys, common: self.common } };
        let identity = self.identity_verdict(cloud, &question);
        let on_resource = self.resource_verdict(cloud, &question);
        let reason = match (identity, on_resource) {
            (_, Verdict::Denied) => Reason::DeniedByResource,
            (Verdict::Denied, _) => Reason::DeniedByIdentity,
            (Verdict::Allowed, _) | (_, Verdict::Allowed) => return Ok(()),
            (Verdict::Silent, Verdict::Silent) => Reason::NoIdentity,
        };
        Err(self.refused(service, &question, reason))
    }

    /// Whether a role lets this caller in, and the caller may ask it to.
    // fidelity: documented(IAM User Guide, Policy evaluation logic: a trust policy that names the account leaves the
    // decision to the caller's own policies, one that names the caller does not); a role that does not exist is refused
    // in the same words.
    pub(crate) fn assume_role(
        &self,
        cloud: &Cloud,
        (role, role_arn): (Option<&Role>, &str),
        own: &Keys,
    ) -> Result<(), Refused> {
        if cloud.config.iam == Iam::Off {
            return Ok(());
        }
        let facts = Facts { own, common: self.common };
        let question = Question { action: "sts:AssumeRole", resource: role_arn, facts };
        let identity = self.identity_verdict(cloud, &question);
        let trust = role.and_then(|role| Policy::parse(&role.trust_policy, Kind::Trust).ok());
        let verdict = |asker: &Asker| trust.as_ref().map_or(Verdict::Silent, |trust| trust.verdict(&question, asker));
        let (direct, delegated) = (verdict(&self.caller.asker(cloud)), verdict(&account(cloud)));
        let reason = match (identity, direct, delegated) {
            (_, Verdict::Denied, _) | (_, _, Verdict::Denied) => Reason::DeniedByResource,
            (Verdict::Denied, ..) => Reason::DeniedByIdentity,
            (_, Verdict::Allowed, _) | (Verdict::Allowed, _, Verdict::Allowed) => return Ok(()),
            (_, Verdict::Silent, Verdict::Silent) => Reason::NoResource,
            _ => Reason::NoIdentity,
        };
        Err(self.refused(Service::Sts, &question, reason))
    }

    fn refused(&self, service: Service, question: &Question<'_>, reason: Reason) -> Refused {
        Refused::new(refuse(service, self.caller, question, reason), question.action, question.resource)
    }

    fn identity_verdict(&self, cloud: &Cloud, question: &Question<'_>) -> Verdict {
        match &self.caller.principal {
            Principal::Nobody => Verdict::Silent,
            Principal::Administrator => Verdict::Allowed,
            Principal::Session(session) => {
                let asker = self.caller.asker(cloud);
                let policies = cloud.identity.policies_of(&session.role_name);
                let own = policies.map(|policy| policy.verdict(question, &asker)).max().unwrap_or(Verdict::Silent);
                let limits = limits(cloud, session, question, &asker);
                // A denial anywhere wins; else every one has to allow.
                limits.fold(own, |one, other| match (one, other) {
                    (Verdict::Denied, _) | (_, Verdict::Denied) => Verdict::Denied,
                    _ => one.min(other),
                })
            }
        }
    }

    /// What the policy of a queue says; nothing else has policies of its own here.
    fn resource_verdict(&self, cloud: &Cloud, question: &Question<'_>) -> Verdict {
        let Some(policy) = queue_policy(cloud, question.resource) else { return Verdict::Silent };
        let (direct, delegated) =
            (policy.verdict(question, &self.caller.asker(cloud)), policy.verdict(question, &account(cloud)));
        // An allowance for the account as a whole leaves the decision to the caller's own policies.
        if delegated == Verdict::Denied { delegated } else { direct }
    }
}

/// What the role's permissions boundary and the session's own policies say, as far as there are any.
// fidelity: documented(IAM User Guide, Permissions boundaries; Session policies: what is permitted is the intersection)
fn limits(cloud: &Cloud, session: &Session, question: &Question<'_>, asker: &Asker) -> impl Iterator<Item = Verdict> {
    let verdict = |policy: &Policy| policy.verdict(question, asker);
    let boundary = cloud.identity.boundary_of(&session.role_name);
    let boundary = boundary.map(|policy| policy.map_or(Verdict::Silent, verdict));
    let SessionPolicies { inline, managed } = &session.policies;
    let given = inline.iter().chain(managed.iter().filter_map(|arn| Some(cloud.identity.policies.get(arn)?.policy())));
    let given = given.map(verdict).max().unwrap_or(Verdict::Silent);
    let limited = inline.is_some() || !managed.is_empty();
    boundary.into_iter().chain(limited.then_some(given))
}

/// Everybody in the account, as policies name it.
fn account(cloud: &Cloud) -> Asker {
    let account = &cloud.config.account;
    Asker { kind: "AWS", names: vec![account.clone(), format!("arn:aws:iam::{account}:root")] }
}

fn queue_policy(cloud: &Cloud, arn: &str) -> Option<Policy> {
    let name = arn.strip_prefix("arn:aws:sqs:")?.rsplit(':').next()?;
    let text = cloud.queues.get(name)?.settings.texts.get("Policy")?;
    Policy::parse(text, Kind::Resource).ok()
}

/// Whether a queue takes messages from an AWS service, on behalf of a resource of its own (`aws:SourceArn`).
// fidelity: documented(EventBridge User Guide, Using resource-based policies: SQS queues need one that lets
// events.amazonaws.com send)
pub(crate) fn queue_takes_events(cloud: &Cloud, queue_arn: &str, source_arn: &str) -> bool {
    if cloud.config.iam == Iam::Off {
        return true;
    }
    let mut own = Keys::default();
    own.set("aws:SourceArn", source_arn);
    own.set("aws:SourceAccount", cloud.config.account.as_str());
    // The service itself speaks TLS.
    own.set("aws:SecureTransport", "true");
    own.set("aws:PrincipalIsAWSService", "true");
    let facts = Facts { own: &own, common: &Keys::default() };
    let question = Question { action: "sqs:SendMessage", resource: queue_arn, facts };
    let asker = Asker { kind: "Service", names: vec!["events.amazonaws.com".into()] };
    queue_policy(cloud, queue_arn).is_some_and(|policy| policy.verdict(&question, &asker) == Verdict::Allowed)
}
