//! Instances over time: state changes and their events, terminations, spot notices and reclaims.

use super::catalogue::InstanceType;
use super::instance::{Instance, ScheduledEvent, State};
use super::spot_request::SpotState;
use super::{Cloud, Due, after};
use crate::error::ApiError;
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// From a spot notice to the reclaim.
// fidelity: documented(EC2 User Guide, Spot Instance interruption notices: two minutes)
pub(crate) const SPOT_NOTICE: Duration = Duration::from_secs(120);

/// Why an instance leaves its state: AWS's code and the sentence to it.
// fidelity: documented(EC2 API Reference, StateReason)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    UserInitiatedShutdown,
    UserInitiatedHibernate,
    SpotInstanceTermination,
    SpotInstanceShutdown,
    InternalError,
}

impl Cause {
    fn code(self) -> &'static str {
        match self {
            Self::UserInitiatedShutdown => "Client.UserInitiatedShutdown",
            Self::UserInitiatedHibernate => "Client.UserInitiatedHibernate",
            Self::SpotInstanceTermination => "Server.SpotInstanceTermination",
            Self::SpotInstanceShutdown => "Server.SpotInstanceShutdown",
            Self::InternalError => "Server.InternalError",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::UserInitiatedShutdown => "Client.UserInitiatedShutdown: User initiated shutdown",
            Self::UserInitiatedHibernate => "Client.UserInitiatedHibernate: User initiated hibernate",
            Self::SpotInstanceTermination => "Server.SpotInstanceTermination: Spot instance termination",
            Self::SpotInstanceShutdown => "Server.SpotInstanceShutdown: Spot instance shutdown",
            Self::InternalError => "Server.InternalError: Internal error on launch",
        }
    }

    /// As DescribeInstances words it under `reason`.
    // fidelity: assumed: `User initiated (2026-01-01 00:00:00 GMT)`, as commonly seen; the reference gives no form.
    fn in_words(self, at: Timestamp) -> String {
        match self {
            Self::UserInitiatedShutdown | Self::UserInitiatedHibernate => {
                format!("User initiated ({} GMT)", at.strftime("%Y-%m-%d %H:%M:%S"))
            }
            other => other.code().into(),
        }
    }
}

impl Cloud {
    /// Moves an instance to `state`, tells the bus, and schedules what follows by itself.
    pub(super) fn enter(&mut self, at: Timestamp, id: &str, state: State, cause: Option<Cause>) {
        let Some(instance) = self.instances.get_mut(id) else { return };
        instance.state = state;
        instance.state_since = at;
        if let Some(cause) = cause {
            instance.state_reason = Some((cause.code().into(), cause.message().into()));
            instance.transition_reason = cause.in_words(at);
        } else if state == State::Pending {
            instance.state_reason = None;
            instance.transition_reason.clear();
        }
        self.instance_revision += 1;
        self.revision += 1;
        let pace = &self.config.pace;
        let stay = match state {
            State::Pending => Some(pace.pending),
            State::ShuttingDown => Some(pace.shutting_down),
            State::Stopping => Some(pace.stopping),
            State::Running | State::Terminated | State::Stopped => None,
        };
        if let Some(stay) = stay {
            self.schedule(after(at, stay), Due::Transition { instance: id.into(), from: state, since: at });
        }
        // fidelity: documented(EC2 User Guide, State change events: every transition is an event)
        let resource = self.arn("ec2", &format!("instance/{id}"));
        let detail = json!({"instance-id": id, "state": state.name()});
        self.emit(at, "aws.ec2", "EC2 Instance State-change Notification", &[resource], detail);
        match state {
            State::Terminated => self.release(at, id),
            State::Stopped => self.stopped(at, id),
            _ => {}
        }
        if !matches!(state, State::Pending | State::Running) {
            self.left_its_fleet(at, id);
        }
    }

    pub(super) fn transition(&mut self, at: Timestamp, id: &str, from: State, since: Timestamp) {
        let present = self.instances.get(id).map(|instance| (instance.state, instance.state_since));
        if present != Some((from, since)) {
            return;
        }
        match from {
            State::Pending => self.enter(at, id, State::Running, None),
            State::ShuttingDown => self.enter(at, id, State::Terminated, None),
            State::Stopping => self.enter(at, id, State::Stopped, None),
            State::Running | State::Terminated | State::Stopped => {}
        }
    }

    /// Begins terminating; an instance that is already ending stays as it is.
    // fidelity: documented(EC2 API Reference, TerminateInstances: idempotent; terminated instances stay visible for a while;
    // OperationNotPermitted while the instance is protected)
    pub(crate) fn terminate(&mut self, now: Timestamp, id: &str) -> Result<(State, State), ApiError> {
        self.check_protection(id)?;
        self.begin_termination(now, id, Cause::UserInitiatedShutdown)
    }

    /// Refuses an instance that its owner has protected from termination.
    pub(crate) fn check_protection(&self, id: &str) -> Result<(), ApiError> {
        match self.instance(id)?.disable_api_termination {
            true => Err(protected(id, "terminated", "disableApiTermination")),
            false => Ok(()),
        }
    }

    pub(super) fn begin_termination(
        &mut self,
        now: Timestamp,
        id: &str,
        cause: Cause,
    ) -> Result<(State, State), ApiError> {
        let previous = self.instance(id)?.state;
        let next = match previous {
            State::ShuttingDown | State::Terminated => return Ok((previous, previous)),
            // Nothing has to be shut down in a stopped instance.
            State::Stopped => State::Terminated,
            _ => State::ShuttingDown,
        };
        self.enter(now, id, next, Some(cause));
        Ok((previous, next))
    }

    // fidelity: documented(EC2 User Guide, Stop and start: only running instances; one-time spot instances not at all; Stop
    // protection: OperationNotPermitted; Hibernation: UnsupportedHibernationConfiguration)
    pub(crate) fn stop(&mut self, now: Timestamp, id: &str, hibernate: bool) -> Result<(State, State), ApiError> {
        let instance = self.instance(id)?;
        let previous = instance.state;
        if self.spot_request_of(instance).is_some_and(|request| !request.persistent) {
            let message = format!(
                "You can't stop the Spot Instance '{id}' because it is associated with a one-time Spot Instance request."
            );
            return Err(ApiError::client("UnsupportedOperation", message));
        }
        if instance.disable_api_stop {
            return Err(protected(id, "stopped", "disableApiStop"));
        }
        if hibernate && instance.specification.rest.get("HibernationOptions.Configured") != Some("true") {
            let message = format!("The instance '{id}' is not configured for hibernation.");
            return Err(ApiError::client("UnsupportedHibernationConfiguration", message));
        }
        match previous {
            State::Running => {
                let cause = if hibernate { Cause::UserInitiatedHibernate } else { Cause::UserInitiatedShutdown };
                self.enter(now, id, State::Stopping, Some(cause));
                Ok((previous, State::Stopping))
            }
            State::Stopping | State::Stopped => Ok((previous, previous)),
            State::Pending | State::ShuttingDown | State::Terminated => Err(wrong_state(id, "stopped")),
        }
    }

    // fidelity: documented(EC2 User Guide, Stop and start: InsufficientInstanceCapacity where the capacity is gone; Error codes:
    // IncorrectSpotRequestState for a spot instance that its owner has not stopped)
    pub(crate) fn start(&mut self, now: Timestamp, id: &str) -> Result<(State, State), ApiError> {
        let instance = self.instance(id)?;
        let previous = instance.state;
        let by_amazon = self.spot_request_of(instance).is_some_and(|request| request.state == SpotState::Open);
        match previous {
            State::Stopped if by_amazon => {
                let message = format!(
                    "The Spot Instance '{id}' was stopped by Amazon EC2, which starts it again when there is capacity."
                );
                Err(ApiError::client("IncorrectSpotRequestState", message))
            }
            State::Stopped => {
                self.resume(now, id)?;
                Ok((previous, State::Pending))
            }
            State::Running | State::Pending => Ok((previous, previous)),
            _ => Err(wrong_state(id, "started")),
        }
    }

    /// A stopped instance takes capacity again and begins anew.
    pub(super) fn resume(&mut self, now: Timestamp, id: &str) -> Result<(), ApiError> {
        let instance = self.instance(id)?;
        let (name, zone, capacity_type) = (instance.instance_type, instance.zone.clone(), instance.capacity_type);
        let specification = std::sync::Arc::clone(&instance.specification);
        let request = instance.spot_request_id.clone();
        let platform = self.images.images.get(&instance.image_id).map_or("Linux/UNIX", super::reservation::platform_of);
        let own = InstanceType::named(name).expect("an instance has a type of the catalogue");
        self.check_vcpus(own, capacity_type)?;
        let reservation = self.matching_reservation(&specification, (name, &zone, platform), capacity_type)?;
        match reservation.as_ref().and_then(|id| self.reservations.get_mut(id)) {
            Some(reservation) => reservation.available -= 1,
            None => {
                self.check_capacity(name, &zone, capacity_type)?;
                self.capacity.take(name, &zone, capacity_type);
            }
        }
        if let Some(instance) = self.instances.get_mut(id) {
            instance.capacity_reservation_id = reservation;
            instance.holds_capacity = true;
            instance.launched_at = now;
            instance.reclaim_at = None;
        }
        if let Some(request) = request {
            self.set_spot_status(now, &request, SpotState::Active, "fulfilled");
        }
        self.enter(now, id, State::Pending, None);
        Ok(())
    }

    /// The host dies: the instance is gone at once, without a notice.
    pub(crate) fn kill(&mut self, now: Timestamp, id: &str) -> Result<(), ApiError> {
        self.instance(id)?;
        self.enter(now, id, State::Terminated, Some(Cause::InternalError));
        Ok(())
    }

    /// A spot notice now, the reclaim two minutes later. Repeating it changes nothing.
    pub(crate) fn interrupt(&mut self, now: Timestamp, id: &str) -> Result<Timestamp, ApiError> {
        let instance = self.instance(id)?;
        let Some(request) = instance.spot_request_id.clone() else {
            return Err(ApiError::invalid_value(format!("{id} is not a Spot Instance")));
        };
        if instance.state.is_ending() {
            return Err(wrong_state(id, "interrupted"));
        }
        if let Some(at) = instance.reclaim_at {
            return Ok(at);
        }
        let resource = format!("arn:aws:ec2:{}:instance/{id}", instance.zone);
        let behavior =
            self.spot_request_of(instance).map_or("terminate", |own| own.interruption_behavior.as_str()).to_owned();
        let at = after(now, SPOT_NOTICE);
        if let Some(instance) = self.instances.get_mut(id) {
            instance.reclaim_at = Some(at);
            self.instance_revision += 1;
        }
        let status = if behavior == "terminate" { "marked-for-termination" } else { "marked-for-stop" };
        // A cancelled request stays so; only its status goes on.
        let state = self.spot_requests.get(&request).map_or(SpotState::Active, |request| request.state);
        self.set_spot_status(now, &request, state, status);
        self.schedule(at, Due::Reclaim { instance: id.into() });
        let detail = json!({"instance-id": id, "instance-action": behavior});
        self.emit(now, "aws.ec2", "EC2 Spot Instance Interruption Warning", &[resource], detail);
        Ok(at)
    }

    // fidelity: documented(EC2 User Guide, Spot Instance interruptions: terminate, stop or hibernate)
    pub(super) fn reclaim(&mut self, at: Timestamp, id: &str) {
        // It may have been stopped or terminated in the meantime; then there is nothing to take back.
        let due = |instance: &&Instance| {
            instance.reclaim_at.is_some_and(|due| due <= at)
                && matches!(instance.state, State::Pending | State::Running)
        };
        let Some(instance) = self.instances.get(id).filter(due) else { return };
        match self.spot_request_of(instance).map(|request| request.interruption_behavior.as_str()) {
            Some("stop" | "hibernate") => self.enter(at, id, State::Stopping, Some(Cause::SpotInstanceShutdown)),
            _ => drop(self.begin_termination(at, id, Cause::SpotInstanceTermination)),
        }
    }

    pub(crate) fn rebalance(&mut self, now: Timestamp, id: &str) -> Result<(), ApiError> {
        let instance = self.instance(id)?;
        let resource = format!("arn:aws:ec2:{}:instance/{id}", instance.zone);
        self.emit(now, "aws.ec2", "EC2 Instance Rebalance Recommendation", &[resource], json!({"instance-id": id}));
        Ok(())
    }

    /// Announces maintenance, on the instance and through AWS Health.
    pub(crate) fn schedule_maintenance(
        &mut self,
        now: Timestamp,
        id: &str,
        code: &str,
        not_before: Timestamp,
    ) -> Result<(), ApiError> {
        self.instance(id)?;
        let event = ScheduledEvent {
            id: self.ids.resource("instance-event"),
            code: code.into(),
            description: "The instance is scheduled for maintenance".into(),
            not_before,
            not_after: None,
        };
        if let Some(instance) = self.instances.get_mut(id) {
            instance.scheduled_events.push(event);
        }
        let kind = format!("AWS_EC2_{}_SCHEDULED", code.to_ascii_uppercase().replace('-', "_"));
        let arn = format!("arn:aws:health:{}::event/EC2/{kind}/{}", self.config.region, self.ids.uuid());
        let detail = json!({
            "eventArn": arn,
            "service": "EC2",
            "eventTypeCode": kind,
            "eventTypeCategory": "scheduledChange",
            "startTime": not_before.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
            "eventDescription": [{"language": "en_US", "latestDescription": "The instance is scheduled for maintenance"}],
            "affectedEntities": [{"entityValue": id}],
        });
        self.emit(now, "aws.health", "AWS Health Event", &[id.to_owned()], detail);
        Ok(())
    }

    /// Gives back what a terminated instance held.
    fn release(&mut self, at: Timestamp, id: &str) {
        self.relinquish(id);
        let Some(instance) = self.instances.get(id) else { return };
        let (request, reclaimed) = (instance.spot_request_id.clone(), instance.reclaim_at.is_some_and(|due| due <= at));
        if let Some(request) = request {
            self.spot_instance_gone(at, &request, reclaimed);
        }
        self.release_volumes(at, id);
        self.schedule(after(at, self.config.pace.terminated_visible), Due::Forget { instance: id.into() });
    }

    /// Gives back addresses and capacity.
    pub(super) fn relinquish(&mut self, id: &str) {
        self.yield_capacity(id);
        let Some(instance) = self.instances.get_mut(id) else { return };
        if let Some(subnet) = self.network.subnets.get_mut(&instance.subnet_id) {
            subnet.unreserve(instance.reserved_addresses);
        }
        for interface in instance.network_interfaces.drain(..) {
            self.parts.remove(&interface.id);
            if let Some(subnet) = self.network.subnets.get_mut(&interface.subnet_id) {
                subnet.release_address(interface.private_ip);
                interface.secondary_ips.iter().for_each(|address| subnet.release_address(*address));
            }
        }
    }

    /// Gives the place in a pool or a reservation back, once.
    fn yield_capacity(&mut self, id: &str) {
        let Some(instance) = self.instances.get_mut(id).filter(|instance| instance.holds_capacity) else { return };
        instance.holds_capacity = false;
        match instance.capacity_reservation_id.as_ref().and_then(|id| self.reservations.get_mut(id)) {
            Some(reservation) => reservation.available = (reservation.available + 1).min(reservation.total),
            None => self.capacity.give_back(instance.instance_type, &instance.zone, instance.capacity_type),
        }
    }

    // fidelity: documented(EC2 User Guide, Stop and start: a stopped instance keeps its addresses and volumes and gives its
    // capacity back)
    fn stopped(&mut self, at: Timestamp, id: &str) {
        self.yield_capacity(id);
        let Some(instance) = self.instances.get_mut(id) else { return };
        let (request, reclaimed) = (instance.spot_request_id.clone(), instance.reclaim_at.is_some_and(|due| due <= at));
        if let Some(request) = request {
            self.spot_instance_stopped(at, &request, reclaimed);
        }
    }

    pub(super) fn forget(&mut self, id: &str) {
        let Some(instance) = self.instances.remove(id) else { return };
        if let Some(request) = instance.spot_request_id {
            // A persistent request has another instance by now, or waits for one.
            if self.spot_requests.get(&request).is_some_and(|request| request.instance_id.as_deref() == Some(id)) {
                self.forget_spot_request(&request);
            }
        }
        if let Some(fleet) = instance.fleet_id {
            self.forget_fleet_instance(&fleet);
        }
        self.instance_revision += 1;
        self.revision += 1;
    }

    /// Changes the type of a stopped instance.
    // fidelity: documented(EC2 User Guide, Change the instance type: the instance has to be stopped and the image has to run
    // on the new type; error code InvalidInstanceAttributeValue)
    pub(crate) fn change_type(&mut self, id: &str, name: &str) -> Result<(), ApiError> {
        let instance = self.instance(id)?;
        let refuse = |message: String| Err(ApiError::client("InvalidInstanceAttributeValue", message));
        let Some(own) = self.catalogue.offering(name).map(|offering| offering.instance_type) else {
            return refuse(format!("Invalid value '{name}' for InstanceType."));
        };
        if !own.runs(&instance.architecture) {
            return refuse(format!(
                "The instance type '{name}' does not run the architecture '{}' of the instance.",
                instance.architecture
            ));
        }
        let instance = self.instances.get_mut(id).expect("it has been looked up");
        (instance.instance_type, instance.vcpus, instance.hypervisor) = (own.name, own.vcpus, own.hypervisor);
        Ok(())
    }
}

fn protected(id: &str, verb: &str, attribute: &str) -> ApiError {
    let message =
        format!("The instance '{id}' may not be {verb}. Modify its '{attribute}' instance attribute and try again.");
    ApiError::client("OperationNotPermitted", message)
}

pub(crate) fn wrong_state(id: &str, verb: &str) -> ApiError {
    let message = format!("The instance '{id}' is not in a state from which it can be {verb}.");
    ApiError::client("IncorrectInstanceState", message)
}
