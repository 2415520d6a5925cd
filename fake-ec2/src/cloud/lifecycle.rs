//! Instances over time: state changes and their events, terminations, spot notices and reclaims.

use super::instance::{ScheduledEvent, State};
use super::{Cloud, Due, after};
use crate::error::ApiError;
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// From a spot notice to the reclaim.
// fidelity: documented(EC2 User Guide, Spot Instance interruption notices: two minutes)
pub(crate) const SPOT_NOTICE: Duration = Duration::from_secs(120);

impl Cloud {
    /// Moves an instance to `state`, tells the bus, and schedules what follows by itself.
    pub(super) fn enter(&mut self, at: Timestamp, id: &str, state: State, reason: Option<(&str, &str)>) {
        let Some(instance) = self.instances.get_mut(id) else { return };
        instance.state = state;
        instance.state_since = at;
        if let Some((code, message)) = reason {
            instance.state_reason = Some((code.into(), message.into()));
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
        if state == State::Terminated {
            self.release(at, id);
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
    // fidelity: documented(EC2 API Reference, TerminateInstances: idempotent; terminated instances stay visible for a while)
    pub(crate) fn terminate(&mut self, now: Timestamp, id: &str) -> Result<(State, State), ApiError> {
        let reason = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown");
        self.begin_termination(now, id, reason)
    }

    fn begin_termination(
        &mut self,
        now: Timestamp,
        id: &str,
        reason: (&str, &str),
    ) -> Result<(State, State), ApiError> {
        let previous = self.instance(id)?.state;
        let next = match previous {
            State::ShuttingDown | State::Terminated => return Ok((previous, previous)),
            // Nothing has to be shut down in a stopped instance.
            State::Stopped => State::Terminated,
            _ => State::ShuttingDown,
        };
        self.enter(now, id, next, Some(reason));
        Ok((previous, next))
    }

    pub(crate) fn stop(&mut self, now: Timestamp, id: &str) -> Result<(State, State), ApiError> {
        let instance = self.instance(id)?;
        let previous = instance.state;
        if instance.spot_request_id.is_some() {
            let message = format!(
                "You can't stop the Spot Instance '{id}' because it is associated with a one-time Spot Instance request."
            );
            return Err(ApiError::client("UnsupportedOperation", message));
        }
        match previous {
            State::Running | State::Pending => {
                let reason = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown");
                self.enter(now, id, State::Stopping, Some(reason));
                Ok((previous, State::Stopping))
            }
            State::Stopping | State::Stopped => Ok((previous, previous)),
            State::ShuttingDown | State::Terminated => Err(wrong_state(id, "stopped")),
        }
    }

    pub(crate) fn start(&mut self, now: Timestamp, id: &str) -> Result<(State, State), ApiError> {
        let previous = self.instance(id)?.state;
        match previous {
            State::Stopped => {
                self.enter(now, id, State::Pending, None);
                Ok((previous, State::Pending))
            }
            State::Running | State::Pending => Ok((previous, previous)),
            _ => Err(wrong_state(id, "started")),
        }
    }

    /// The host dies: the instance is gone at once, without a notice.
    pub(crate) fn kill(&mut self, now: Timestamp, id: &str) -> Result<(), ApiError> {
        self.instance(id)?;
        self.enter(
            now,
            id,
            State::Terminated,
            Some(("Server.InternalError", "Server.InternalError: Internal error on launch")),
        );
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
        let at = after(now, SPOT_NOTICE);
        if let Some(instance) = self.instances.get_mut(id) {
            instance.reclaim_at = Some(at);
            self.instance_revision += 1;
        }
        self.set_spot_status(now, &request, "active", "marked-for-termination");
        self.schedule(at, Due::Reclaim { instance: id.into() });
        let detail = json!({"instance-id": id, "instance-action": "terminate"});
        self.emit(now, "aws.ec2", "EC2 Spot Instance Interruption Warning", &[resource], detail);
        Ok(at)
    }

    pub(super) fn reclaim(&mut self, at: Timestamp, id: &str) {
        let reason = ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination");
        // It may have been terminated in the meantime; then there is nothing to take back.
        if self.instances.get(id).is_some_and(|instance| !instance.state.is_ending()) {
            self.begin_termination(at, id, reason).ok();
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
        let Some(instance) = self.instances.get_mut(id) else { return };
        if let Some(subnet) = self.network.subnets.get_mut(&instance.subnet_id) {
            subnet.unreserve(instance.reserved_addresses);
        }
        for interface in instance.network_interfaces.drain(..) {
            self.parts.remove(&interface.id);
            if let Some(subnet) = self.network.subnets.get_mut(&interface.subnet_id) {
                subnet.release_address(interface.private_ip);
            }
        }
        self.capacity.give_back(instance.instance_type, &instance.zone, instance.capacity_type);
        if let Some(reservation) =
            instance.capacity_reservation_id.as_ref().and_then(|id| self.reservations.get_mut(id))
        {
            reservation.available = (reservation.available + 1).min(reservation.total);
        }
        let (request, reclaimed) = (instance.spot_request_id.clone(), instance.reclaim_at.is_some_and(|due| due <= at));
        if let Some(request) = request {
            let status = if reclaimed { "instance-terminated-no-capacity" } else { "instance-terminated-by-user" };
            self.set_spot_status(at, &request, "closed", status);
        }
        self.release_volumes(at, id);
        self.schedule(after(at, self.config.pace.terminated_visible), Due::Forget { instance: id.into() });
    }

    pub(super) fn forget(&mut self, id: &str) {
        if let Some(request) = self.instances.remove(id).and_then(|instance| instance.spot_request_id) {
            self.spot_requests.remove(&request);
        }
        self.instance_revision += 1;
        self.revision += 1;
    }

    fn set_spot_status(&mut self, at: Timestamp, id: &str, state: &'static str, status: &'static str) {
        if let Some(request) = self.spot_requests.get_mut(id) {
            (request.state, request.status, request.updated_at) = (state, status, at);
        }
    }
}

fn wrong_state(id: &str, verb: &str) -> ApiError {
    let message = format!("The instance '{id}' is not in a state from which it can be {verb}.");
    ApiError::client("IncorrectInstanceState", message)
}
