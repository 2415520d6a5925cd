//! Token buckets: how many calls of each action an account may make, and how many instances they may touch.

use super::Cloud;
use crate::error::ApiError;
use crate::state::interned::Constant;
use crate::wire::{Call, Payload, Service};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The size of a bucket and what flows into it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Calls that may come at once.
    pub burst: f64,
    /// Calls a second in the long run.
    pub per_second: f64,
}

impl Rate {
    /// A bucket of this size that refills at this rate.
    pub const fn new(burst: f64, per_second: f64) -> Self {
        Self { burst, per_second }
    }
}

/// Which calls are throttled. Off by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throttling {
    /// EC2's documented buckets, each action of its own.
    pub ec2_documented: bool,
    /// Buckets of one's own, by service and action, which go before the documented ones. An action `*` stands for every
    /// action of the service together.
    #[serde(with = "crate::state::pairs")]
    pub rates: BTreeMap<(Service, String), Rate>,
}

impl Throttling {
    /// EC2 as documented.
    pub fn documented() -> Self {
        Self { ec2_documented: true, rates: BTreeMap::new() }
    }

    /// Also throttles this action (`*` for the whole service).
    pub fn with(mut self, service: Service, action: &str, rate: Rate) -> Self {
        self.rates.insert((service, action.into()), rate);
        self
    }

    fn is_off(&self) -> bool {
        !self.ec2_documented && self.rates.is_empty()
    }
}

/// A bucket's name: service, action, and what is counted.
type Name = (Service, String, Kept);

/// What a bucket counts, as one of the program's constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Kept(#[serde(with = "crate::state::interned")] Constant);

/// What is left in each bucket.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Buckets(#[serde(with = "crate::state::pairs")] BTreeMap<Name, (f64, Timestamp)>);

impl Buckets {
    /// Takes what the call costs, or refuses it and takes nothing.
    // fidelity: documented(EC2 Developer Guide, Request throttling: RequestLimitExceeded); assumed: that a refused call
    // takes nothing.
    pub(crate) fn admit(
        &mut self,
        settings: &Throttling,
        now: Timestamp,
        service: Service,
        action: &str,
        payload: &Payload,
    ) -> Result<(), ApiError> {
        if settings.is_off() {
            return Ok(());
        }
        let charges = charges(settings, service, action, payload);
        let affordable = charges.iter().all(|(name, rate, cost)| self.level(now, name, *rate) >= *cost);
        if !affordable {
            return Err(refusal(service));
        }
        for (name, rate, cost) in charges {
            let level = self.level(now, &name, rate);
            self.0.insert(name, (level - cost, now));
        }
        Ok(())
    }

    fn level(&self, now: Timestamp, name: &Name, rate: Rate) -> f64 {
        let Some((level, since)) = self.0.get(name) else { return rate.burst };
        let seconds = now.duration_since(*since).as_secs_f64().max(0.0);
        (level + seconds * rate.per_second).min(rate.burst)
    }
}

impl Cloud {
    /// Charges a call to its buckets, or refuses it.
    pub(crate) fn admit_call(&mut self, now: Timestamp, call: &Call) -> Result<(), ApiError> {
        let Self { buckets, config, .. } = self;
        buckets.admit(&config.throttling, now, call.service, &call.action, &call.payload)
    }
}

/// The buckets a call is charged to, with what it costs.
fn charges(settings: &Throttling, service: Service, action: &str, payload: &Payload) -> Vec<(Name, Rate, f64)> {
    let own = |action: &str| settings.rates.get(&(service, action.to_owned())).copied();
    let mut charges = Vec::new();
    if let Some(rate) = own("*") {
        charges.push(((service, "*".to_owned(), Kept("request")), rate, 1.0));
    }
    let documented = settings.ec2_documented && service == Service::Ec2;
    let open = documented && is_open(action, payload);
    match (own(action), documented) {
        (Some(rate), _) => charges.push(((service, action.to_owned(), Kept("request")), rate, 1.0)),
        (None, true) if open => {
            charges.push(((service, action.to_owned(), Kept("open request")), Rate::new(50.0, 10.0), 1.0))
        }
        (None, true) => charges.push(((service, action.to_owned(), Kept("request")), documented_rate(action), 1.0)),
        (None, false) => {}
    }
    if let Some((rate, cost)) = documented.then(|| resources(action, payload)).flatten() {
        charges.push(((service, action.to_owned(), Kept("resource")), rate, cost));
    }
    charges
}

// fidelity: documented(EC2 Developer Guide, Request throttling: request token bucket sizes and refill rates); an action that
// has a bucket of its own there and is not played here is charged as its category.
fn documented_rate(action: &str) -> Rate {
    match action {
        "CreateTags" | "DeleteTags" => Rate::new(100.0, 10.0),
        "CopyImage" => Rate::new(100.0, 1.0),
        "CreateDefaultSubnet" | "CreateDefaultVpc" | "DescribeInstanceTopology" | "DescribeMovingAddresses" => {
            Rate::new(1.0, 1.0)
        }
        "RunInstances" | "StartInstances" => Rate::new(5.0, 2.0),
        "AssignIpv6Addresses"
        | "AssignPrivateIpAddresses"
        | "AssociateIamInstanceProfile"
        | "CreateLaunchTemplateVersion"
        | "CreateNetworkInterface"
        | "CreateSnapshot"
        | "CreateSnapshots"
        | "CreateVolume"
        | "DeleteNetworkInterface"
        | "DeleteSnapshot"
        | "DeleteVolume"
        | "DeregisterImage"
        | "DisassociateIamInstanceProfile"
        | "ModifyImageAttribute"
        | "ModifyInstanceMetadataOptions"
        | "ModifyLaunchTemplate"
        | "ModifyNetworkInterfaceAttribute"
        | "ModifySnapshotAttribute"
        | "TerminateInstances" => Rate::new(100.0, 5.0),
        "DescribeSecurityGroupReferences" | "DescribeStaleSecurityGroups" => Rate::new(20.0, 5.0),
        _ if ["Describe", "List", "Search", "Get"].iter().any(|verb| action.starts_with(verb)) => {
            Rate::new(100.0, 20.0)
        }
        // Mutating and resource-intensive actions: the same figures, a bucket for each.
        _ => Rate::new(50.0, 5.0),
    }
}

/// Whether it is one of the actions that are throttled harder when they ask for everything at once.
// fidelity: documented(EC2 Developer Guide, Request throttling: unfiltered and unpaginated non-mutating actions)
fn is_open(action: &str, payload: &Payload) -> bool {
    let named = matches!(
        action,
        "DescribeInstances"
            | "DescribeInstanceStatus"
            | "DescribeNetworkInterfaces"
            | "DescribeSecurityGroups"
            | "DescribeSnapshots"
            | "DescribeSpotInstanceRequests"
            | "DescribeVolumes"
    );
    let Payload::Form(form) = payload else { return false };
    // Ids narrow a request as filters do.
    let narrows = |name: &str| name == "MaxResults" || name.contains(".1");
    named && !form.names().any(narrows)
}

/// The resource bucket of an action and how many instances the call touches.
// fidelity: documented(EC2 Developer Guide, Request throttling: resource token bucket sizes and refill rates)
fn resources(action: &str, payload: &Payload) -> Option<(Rate, f64)> {
    let Payload::Form(form) = payload else { return None };
    let named = || form.names().filter(|name| name.starts_with("InstanceId.")).count() as f64;
    match action {
        "RunInstances" => {
            let count = form.peek("MaxCount").and_then(|text| text.parse().ok()).unwrap_or(1.0);
            Some((Rate::new(1000.0, 2.0), count))
        }
        "StartInstances" => Some((Rate::new(1000.0, 2.0), named())),
        "TerminateInstances" | "StopInstances" => Some((Rate::new(1000.0, 20.0), named())),
        _ => None,
    }
}

/// As each service says that it is asked too much.
// fidelity: documented(EC2 API Reference, Error codes: RequestLimitExceeded; common errors of the other services: Throttling,
// ThrottlingException)
fn refusal(service: Service) -> ApiError {
    match service {
        Service::Ec2 => ApiError::new(503, "RequestLimitExceeded", "Request limit exceeded."),
        Service::Iam | Service::Sts | Service::CloudFormation => ApiError::client("Throttling", "Rate exceeded"),
        Service::Sqs => ApiError::client("RequestThrottled", "The request was denied due to request throttling."),
        _ => ApiError::client("ThrottlingException", "Rate exceeded"),
    }
}
