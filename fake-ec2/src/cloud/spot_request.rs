//! Spot requests: what was asked for, how it stands, and the instance that fulfils it.
//!
//! ```text
//! open → active → closed            one-time
//!   ↑______│                        persistent: interrupted or terminated, it is tried again
//! open, active → cancelled          by its owner; the instance goes on
//! active → disabled → active        its owner stops and starts the instance
//! ```

use super::capacity::CapacityType;
use super::instance::{Instance, State};
use super::launch::Launch;
use super::launch_template::LaunchSpecification;
use super::tags::Tags;
use super::{Cloud, Due, after};
use crate::error::ApiError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// From a request to its first evaluation.
// fidelity: assumed: spot requests are evaluated within seconds.
const FIRST_EVALUATION: Duration = Duration::from_secs(1);
/// Between evaluations of a request that has to wait.
// fidelity: assumed: AWS tells no interval.
const NEXT_EVALUATION: Duration = Duration::from_secs(30);

/// How a request stands.
// fidelity: documented(EC2 User Guide, Spot request states)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum SpotState {
    Open,
    Active,
    Closed,
    Cancelled,
    Failed,
    /// Its owner has stopped the instance.
    Disabled,
}

impl SpotState {
    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Active => "active",
            Self::Closed => "closed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Disabled => "disabled",
        }
    }
}

/// A spot request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // Named as in SpotInstanceRequest.
pub struct SpotRequest {
    pub id: String,
    pub persistent: bool,
    pub state: SpotState,
    /// `fulfilled`, `capacity-not-available`, …
    pub status: String,
    pub updated_at: Timestamp,
    pub created_at: Timestamp,
    pub instance_id: Option<String>,
    pub launched_zone: Option<String>,
    /// The most its owner pays in USD per hour; without it, the on-demand price.
    pub max_price: Option<String>,
    pub valid_from: Option<Timestamp>,
    pub valid_until: Option<Timestamp>,
    /// `terminate`, `stop` or `hibernate`.
    pub interruption_behavior: String,
    pub launch_group: Option<String>,
    pub zone_group: Option<String>,
    /// Code and message of why it failed.
    pub fault: Option<(String, String)>,
    pub tags: Tags,
    pub(crate) specification: Arc<LaunchSpecification>,
}

impl SpotRequest {
    /// A sentence about the status.
    // fidelity: documented(EC2 User Guide, Spot request status codes); the sentences are this crate's.
    pub(crate) fn message(&self) -> &'static str {
        match self.status.as_str() {
            "pending-evaluation" => "Your Spot request has been submitted for review, and is pending evaluation.",
            "not-scheduled-yet" => "Your Spot request will not be evaluated until the scheduled date.",
            "schedule-expired" => "Your Spot request expired before it was fulfilled.",
            "fulfilled" => "Your Spot request is fulfilled.",
            "capacity-not-available" => "There is no Spot capacity available that matches your request.",
            "price-too-low" => {
                "Your Spot request price is lower than the minimum required Spot request fulfillment price."
            }
            "limit-exceeded" => "Your Spot request exceeds the limit on Spot Instances of your account.",
            "bad-parameters" => "Your Spot request failed due to bad parameters.",
            "canceled-before-fulfillment" => "Your Spot request is canceled before it was fulfilled.",
            "request-canceled-and-instance-running" => {
                "Your Spot request is canceled, but your instance is still running."
            }
            "marked-for-termination" => "Your Spot instance is marked for termination.",
            "marked-for-stop" => "Your Spot instance is marked for stopping.",
            "instance-terminated-by-user" => "Your Spot instance was terminated by a user.",
            "instance-terminated-no-capacity" => {
                "Your Spot instance was terminated because there is no Spot capacity available."
            }
            "instance-stopped-by-user" => "Your Spot instance was stopped by a user.",
            "instance-stopped-no-capacity" => {
                "Your Spot instance was stopped because there is no Spot capacity available."
            }
            _ => "",
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, SpotState::Closed | SpotState::Cancelled | SpotState::Failed)
    }
}

/// What RequestSpotInstances asks beyond the launch specification.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewSpotRequest {
    pub(crate) specification: LaunchSpecification,
    pub(crate) persistent: bool,
    pub(crate) max_price: Option<String>,
    pub(crate) valid_from: Option<Timestamp>,
    pub(crate) valid_until: Option<Timestamp>,
    pub(crate) interruption_behavior: Option<String>,
    pub(crate) launch_group: Option<String>,
    pub(crate) zone_group: Option<String>,
    pub(crate) tags: Tags,
}

impl Cloud {
    /// Enters a request, which is evaluated a little later; its id is answered.
    pub(crate) fn request_spot(&mut self, now: Timestamp, new: &NewSpotRequest) -> String {
        let mut specification = new.specification.clone();
        specification.spot.max_price.clone_from(&new.max_price);
        let request = SpotRequest {
            id: self.spot_request_id(),
            persistent: new.persistent,
            state: SpotState::Open,
            status: "pending-evaluation".into(),
            updated_at: now,
            created_at: now,
            instance_id: None,
            launched_zone: None,
            max_price: new.max_price.clone(),
            valid_from: new.valid_from,
            valid_until: new.valid_until,
            interruption_behavior: new.interruption_behavior.clone().unwrap_or_else(|| "terminate".into()),
            launch_group: new.launch_group.clone(),
            zone_group: new.zone_group.clone(),
            fault: None,
            tags: new.tags.clone(),
            specification: Arc::new(specification),
        };
        let id = request.id.clone();
        self.spot_requests.insert(id.clone(), request);
        self.schedule(after(now, FIRST_EVALUATION), Due::Evaluate { request: id.clone() });
        id
    }

    pub(super) fn spot_request_id(&mut self) -> String {
        format!("sir-{:08x}", self.ids.next() >> 32)
    }

    /// Gives an open request its instance, wakes the stopped one, or tells why it has to wait.
    pub(super) fn evaluate(&mut self, at: Timestamp, id: &str) {
        let Some(request) = self.spot_requests.get(id).filter(|request| request.state == SpotState::Open) else {
            return;
        };
        if request.valid_until.is_some_and(|until| until <= at) && request.instance_id.is_none() {
            self.end_spot_request(at, id, SpotState::Closed, "schedule-expired");
            return;
        }
        if let Some(from) = request.valid_from.filter(|from| *from > at) {
            self.set_spot_status(at, id, SpotState::Open, "not-scheduled-yet");
            self.schedule(from, Due::Evaluate { request: id.into() });
            return;
        }
        let outcome = match request.instance_id.clone() {
            Some(instance) => self.wake(at, &instance),
            None => self.fulfil(at, id),
        };
        if let Err(error) = outcome {
            self.defer(at, id, error);
        }
    }

    fn fulfil(&mut self, at: Timestamp, id: &str) -> Result<(), ApiError> {
        let Some(request) = self.spot_requests.get(id) else { return Ok(()) };
        let specification = Arc::clone(&request.specification);
        let launch =
            Launch { capacity_type: CapacityType::Spot, spot_request: Some(id), ..Launch::of(&specification, 1) };
        self.launch(at, &launch).1.map_or(Ok(()), Err)
    }

    /// An instance that was stopped for want of capacity runs again once there is some.
    fn wake(&mut self, at: Timestamp, instance: &str) -> Result<(), ApiError> {
        match self.instances.get(instance).map(|instance| instance.state) {
            Some(State::Stopped) => self.resume(at, instance),
            // Not stopped yet.
            Some(_) => Err(ApiError::new(500, "InsufficientInstanceCapacity", "The instance has not stopped yet.")),
            None => Ok(()),
        }
    }

    fn defer(&mut self, at: Timestamp, id: &str, error: ApiError) {
        let waiting = match error.code.as_ref() {
            "InsufficientInstanceCapacity" | "InsufficientFreeAddressesInSubnet" => "capacity-not-available",
            "SpotMaxPriceTooLow" => "price-too-low",
            "MaxSpotInstanceCountExceeded" => "limit-exceeded",
            _ => {
                if let Some(request) = self.spot_requests.get_mut(id) {
                    request.fault = Some((error.code.to_string(), error.message));
                }
                self.end_spot_request(at, id, SpotState::Failed, "bad-parameters");
                return;
            }
        };
        let stopped = self.spot_requests.get(id).is_some_and(|request| request.instance_id.is_some());
        if !stopped {
            self.set_spot_status(at, id, SpotState::Open, waiting);
        }
        let until = self.spot_requests.get(id).and_then(|request| request.valid_until);
        let next = after(at, NEXT_EVALUATION);
        self.schedule(until.map_or(next, |until| next.min(until)), Due::Evaluate { request: id.into() });
    }

    /// Cancels a request; its instance goes on.
    // fidelity: documented(EC2 API Reference, CancelSpotInstanceRequests: does not terminate running instances)
    pub(crate) fn cancel_spot_request(&mut self, now: Timestamp, id: &str) -> Result<SpotState, ApiError> {
        let request = self.spot_requests.get(id).ok_or_else(|| no_such_spot_request(id))?;
        match (request.is_over(), request.instance_id.is_some()) {
            (true, _) => return Ok(request.state),
            (false, true) => {
                self.set_spot_status(now, id, SpotState::Cancelled, "request-canceled-and-instance-running");
            }
            (false, false) => self.end_spot_request(now, id, SpotState::Cancelled, "canceled-before-fulfillment"),
        }
        Ok(SpotState::Cancelled)
    }

    /// The request of an instance that is gone: over, or, if it is persistent, open again.
    pub(super) fn spot_instance_gone(&mut self, at: Timestamp, id: &str, reclaimed: bool) {
        let Some(request) = self.spot_requests.get_mut(id) else { return };
        let status = if reclaimed { "instance-terminated-no-capacity" } else { "instance-terminated-by-user" };
        let again = request.persistent && !request.is_over();
        let state = match (again, request.state) {
            (true, _) => SpotState::Open,
            (false, SpotState::Cancelled) => SpotState::Cancelled,
            (false, _) => SpotState::Closed,
        };
        if again {
            (request.instance_id, request.launched_zone) = (None, None);
            self.schedule(after(at, FIRST_EVALUATION), Due::Evaluate { request: id.into() });
        }
        self.set_spot_status(at, id, state, status);
    }

    pub(super) fn set_spot_status(&mut self, at: Timestamp, id: &str, state: SpotState, status: &str) {
        if let Some(request) = self.spot_requests.get_mut(id) {
            (request.state, request.updated_at) = (state, at);
            request.status = status.to_owned();
        }
    }

    /// A request is over that has no instance to be forgotten with.
    fn end_spot_request(&mut self, at: Timestamp, id: &str, state: SpotState, status: &str) {
        self.set_spot_status(at, id, state, status);
        let due = after(at, self.config.pace.terminated_visible);
        self.schedule(due, Due::ForgetRequest { request: id.into() });
    }

    pub(super) fn forget_spot_request(&mut self, id: &str) {
        if self.spot_requests.get(id).is_some_and(SpotRequest::is_over) {
            self.spot_requests.remove(id);
        }
    }

    pub(super) fn spot_request_of(&self, instance: &Instance) -> Option<&SpotRequest> {
        self.spot_requests.get(instance.spot_request_id.as_deref()?)
    }

    /// The request of an instance that has stopped, by its owner or for want of capacity.
    pub(super) fn spot_instance_stopped(&mut self, at: Timestamp, id: &str, reclaimed: bool) {
        match reclaimed {
            true => {
                self.set_spot_status(at, id, SpotState::Open, "instance-stopped-no-capacity");
                self.schedule(after(at, NEXT_EVALUATION), Due::Evaluate { request: id.into() });
            }
            false => self.set_spot_status(at, id, SpotState::Disabled, "instance-stopped-by-user"),
        }
    }
}

// fidelity: documented(EC2 API Reference, Error codes: InvalidSpotInstanceRequestID.NotFound)
pub(crate) fn no_such_spot_request(id: &str) -> ApiError {
    let message = format!("The spot instance request ID '{id}' does not exist");
    ApiError::client("InvalidSpotInstanceRequestID.NotFound", message)
}
