//! Which actions are played: read off the dispatch itself, whose sources the program carries along, so that there is no
//! second list to keep. A test performs every one of them.

use crate::wire::Service;
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The files in which a service's actions are told apart.
const DISPATCH: [(Service, &str); 9] = [
    (Service::Ec2, include_str!("actions/ec2/mod.rs")),
    (Service::Sqs, include_str!("actions/sqs/mod.rs")),
    (Service::Ssm, include_str!("actions/ssm/mod.rs")),
    (Service::Iam, include_str!("actions/iam/mod.rs")),
    (Service::Sts, include_str!("actions/sts.rs")),
    (Service::Pricing, include_str!("actions/pricing.rs")),
    (Service::Eks, include_str!("actions/eks/mod.rs")),
    (Service::EventBridge, include_str!("actions/events.rs")),
    (Service::CloudFormation, include_str!("actions/cloudformation/mod.rs")),
];

/// Its one action needs no dispatch.
const EKS_AUTH: (Service, &str) = (Service::EksAuth, "AssumeRoleForPodIdentity");

/// A line of nothing but names, with the arrow behind them or on a later line; or a comparison.
static NAMES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?m)^\s*(?:\| )?(?:"[A-Z]\w+"(?: \| )?)+(?: =>.*)?$|action [!=]= "[A-Z]\w+""#)
        .expect("a constant expression")
});

static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""([A-Z]\w+)""#).expect("a constant expression"));

/// Every action that is played, by service and name.
pub fn actions() -> BTreeSet<(Service, &'static str)> {
    let of_source = |(service, source): &(Service, &'static str)| {
        let service = *service;
        // The dispatch ends where what it does not know is refused.
        let dispatch = source.split("unknown_action(").next().unwrap_or(source);
        let names = NAMES.find_iter(dispatch).flat_map(|line| {
            let names = line.as_str().split("=>").next().unwrap_or_default();
            NAME.captures_iter(names).filter_map(|name| Some(name.get(1)?.as_str()))
        });
        names.map(move |name| (service, name)).collect::<Vec<_>>()
    };
    DISPATCH.iter().flat_map(of_source).chain([EKS_AUTH]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::{Context, Step, perform};
    use crate::cloud::Cloud;
    use crate::config::Config;
    use crate::iam::caller::Caller;
    use crate::iam::decision::Asking;
    use crate::iam::facts::Keys;
    use crate::wire::query::Form;
    use crate::wire::{Call, Payload, Protocol, Sender};
    use jiff::Timestamp;
    use serde_json::json;

    fn call(service: Service, action: &str) -> Call {
        let protocol = service.protocol();
        let payload = match (service, protocol.speaks_json()) {
            (Service::Sqs, _) | (_, true) => Payload::Json(json!({})),
            (_, false) => Payload::Form(Form::parse(b"").unwrap()),
        };
        let sender = Sender {
            access_key_id: String::new(),
            security_token: None,
            user_agent: String::new(),
            secure_transport: None,
            endpoint: None,
        };
        let protocol = if service == Service::Sqs { Protocol::Json10 } else { protocol };
        Call { service, protocol, action: action.into(), sender, payload }
    }

    fn is_known(service: Service, action: &str) -> bool {
        let now = Timestamp::UNIX_EPOCH;
        let mut cloud = Cloud::new(Config::default(), now);
        let caller = Caller::administrator("123456789012", "test");
        let asking = Asking { caller: &caller, common: &Keys::default() };
        let step = perform(&mut cloud, &Context { now, started: now, asking }, &call(service, action));
        let unknown = ["InvalidAction", "UnknownOperationException"];
        !matches!(step, Step::Done(Err(refused)) if unknown.contains(&refused.error.code.as_ref()))
    }

    #[test]
    fn every_action_listed_is_played() {
        let actions = actions();
        for &(service, action) in &actions {
            assert!(is_known(service, action), "{} {action}", service.name());
        }
        for service in Service::ALL.into_iter().filter(|service| *service != Service::EksAuth) {
            assert!(actions.iter().any(|(played, _)| *played == service), "{}", service.name());
            assert!(!is_known(service, "Nonsense"), "{}", service.name());
        }
    }

    #[test]
    fn actions_of_every_shape_of_dispatch_are_listed() {
        let actions = actions();
        for wanted in [
            (Service::Ec2, "RunInstances"),
            (Service::Sqs, "ReceiveMessage"),
            (Service::Sqs, "SendMessageBatch"),
            (Service::CloudFormation, "ValidateTemplate"),
            (Service::CloudFormation, "GetTemplateSummary"),
            (Service::Iam, "AttachRolePolicy"),
            (Service::Iam, "DetachRolePolicy"),
            (Service::EksAuth, "AssumeRoleForPodIdentity"),
        ] {
            assert!(actions.contains(&wanted), "{wanted:?}");
        }
    }
}
