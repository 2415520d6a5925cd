//! What fleets do by themselves: begin, replace what ends, follow a changed target, expire and end.

use super::fleet::{FleetKind, FleetRecord, FleetRequest, FleetState, UPKEEP};
use super::instance::State;
use super::lifecycle::Cause;
use super::{Cloud, Due, after};
use crate::error::ApiError;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// A fleet that could not launch what it lacks tries again.
// fidelity: assumed: AWS tells no interval.
const RETRY: Duration = Duration::from_secs(30);
/// How long a deleted fleet is still described.
// fidelity: documented(EC2 API Reference, EventInformation: deleted two days after its instances are terminated)
const DELETED_VISIBLE: Duration = Duration::from_secs(48 * 3600);
/// Records of a fleet's history that are kept: a fleet of the largest documented size comes and goes within it.
const MAX_HISTORY: usize = 20_000;

impl Cloud {
    // fidelity: documented(EC2 User Guide, EC2 Fleet: maintain replaces, request launches once; ValidUntil)
    pub(super) fn keep_fleet(&mut self, at: Timestamp, id: &str) {
        let Some(fleet) = self.fleets.get(id).filter(|fleet| !fleet.state.is_deleted()) else { return };
        let (request, state) = (Arc::clone(&fleet.request), fleet.state);
        if request.valid_until.is_some_and(|until| until <= at) {
            self.expire_fleet(at, id);
            return;
        }
        match state {
            FleetState::Submitted => {
                self.set_fleet_state(at, id, FleetState::Active, "active");
                if let Some(until) = request.valid_until {
                    self.schedule(until, Due::KeepFleet { fleet: id.into() });
                }
            }
            FleetState::Modifying => self.set_fleet_state(at, id, FleetState::Active, "modify_succeeded"),
            _ if request.kind == FleetKind::Request => return,
            _ => {}
        }
        self.trim_fleet(at, id);
        let Some(lacking) = self.fleets.get(id).map(|fleet| fleet.lacking()) else { return };
        if lacking.iter().all(|(_, missing)| *missing <= 0.0) {
            return;
        }
        match self.fleet_candidates(&request) {
            Ok(candidates) => {
                self.fill_fleet(at, id, lacking, &candidates, &|_, _, _| Ok(()));
                self.record_outcome(at, id);
            }
            Err(error) => self.record_fleet_error(at, id, &error),
        }
        let short = self.fleets.get(id).is_some_and(|fleet| fleet.lacking().iter().any(|(_, missing)| *missing > 0.0));
        if short && request.kind == FleetKind::Maintain {
            self.schedule(after(at, RETRY), Due::KeepFleet { fleet: id.into() });
        }
    }

    /// Ends what is above the targets, the youngest first.
    // fidelity: documented(EC2 API Reference, CreateFleet: ExcessCapacityTerminationPolicy, of maintain only); assumed: which
    // instances go.
    fn trim_fleet(&mut self, at: Timestamp, id: &str) {
        let Some(fleet) = self.fleets.get(id) else { return };
        if fleet.request.no_excess_termination || fleet.request.kind != FleetKind::Maintain {
            return;
        }
        let mut ended = Vec::new();
        for (capacity_type, missing) in fleet.lacking() {
            let mut excess = -missing;
            let own = fleet.members.iter().filter(|(_, member)| member.capacity_type == capacity_type);
            let age = |id: &str| self.instances.get(id).map(|instance| instance.launched_at);
            let mut own: Vec<_> = own.collect();
            own.sort_by_key(|(id, _)| std::cmp::Reverse((age(id), *id)));
            for (instance, member) in own {
                if member.weight <= excess {
                    excess -= member.weight;
                    ended.push(instance.clone());
                }
            }
        }
        for instance in ended {
            self.begin_termination(at, &instance, Cause::UserInitiatedShutdown).ok();
        }
    }

    /// An instance of a fleet no longer counts; a fleet that maintains its capacity looks after it.
    pub(super) fn left_its_fleet(&mut self, at: Timestamp, id: &str) {
        let Some(fleet) = self.instances.get(id).and_then(|instance| instance.fleet_id.clone()) else { return };
        let Some(own) = self.fleets.get_mut(&fleet) else { return };
        if own.members.remove(id).is_none() {
            return;
        }
        let (state, kind, left) = (own.state, own.request.kind, own.members.len());
        self.record_fleet(at, &fleet, "instance-change", "terminated", Some(id));
        if state.is_deleted() && left == 0 {
            self.delete_fleet_finally(at, &fleet);
        } else if kind == FleetKind::Maintain {
            self.schedule(after(at, UPKEEP), Due::KeepFleet { fleet });
        }
    }

    /// An instant fleet is forgotten with the last of its instances.
    pub(super) fn forget_fleet_instance(&mut self, fleet: &str) {
        let Some(own) = self.fleets.get_mut(fleet) else { return };
        own.remembered = own.remembered.saturating_sub(1);
        if own.remembered == 0 && own.request.kind == FleetKind::Instant {
            self.fleets.remove(fleet);
        }
    }

    // fidelity: documented(EC2 API Reference, CreateFleet: TerminateInstancesWithExpiration; EventInformation: expired)
    fn expire_fleet(&mut self, at: Timestamp, id: &str) {
        let Some(fleet) = self.fleets.get_mut(id) else { return };
        if std::mem::replace(&mut fleet.expired, true) {
            return;
        }
        let terminate = fleet.request.terminate_when_expired;
        self.record_fleet(at, id, "fleet-change", "expired", None);
        self.delete_fleet(at, id, terminate);
    }

    /// Deletes a fleet; answers its states before and after.
    // fidelity: documented(EC2 API Reference, DeleteFleets: deleted_running or deleted_terminating until the last instance is
    // gone)
    pub(crate) fn delete_fleet(
        &mut self,
        now: Timestamp,
        id: &str,
        terminate: bool,
    ) -> Option<(FleetState, FleetState)> {
        let fleet = self.fleets.get(id)?;
        let previous = fleet.state;
        let members: Vec<String> = fleet.members.keys().cloned().collect();
        let (state, sub_type) = match terminate {
            true => (FleetState::DeletedTerminating, "deleted_terminating"),
            false => (FleetState::DeletedRunning, "deleted_running"),
        };
        self.set_fleet_state(now, id, state, sub_type);
        if members.is_empty() {
            self.delete_fleet_finally(now, id);
        } else if terminate {
            for instance in &members {
                self.begin_termination(now, instance, Cause::UserInitiatedShutdown).ok();
            }
        }
        Some((previous, state))
    }

    fn delete_fleet_finally(&mut self, at: Timestamp, id: &str) {
        self.set_fleet_state(at, id, FleetState::Deleted, "deleted");
        self.schedule(after(at, DELETED_VISIBLE), Due::ForgetFleet { fleet: id.into() });
    }

    /// Puts a changed request in the place of the present one of a fleet that maintains its capacity.
    // fidelity: documented(EC2 API Reference, ModifyFleet: only of type maintain and while active; Error codes:
    // FleetNotInModifiableState)
    pub(crate) fn modify_fleet(&mut self, now: Timestamp, id: &str, changed: FleetRequest) -> Result<(), ApiError> {
        let fleet = self.fleets.get_mut(id).ok_or_else(|| no_such_fleet(id))?;
        if fleet.request.kind != FleetKind::Maintain || fleet.state != FleetState::Active {
            let message = format!(
                "The fleet '{id}' of type {} is in the state '{}'; only active fleets of type maintain can be modified.",
                fleet.request.kind.name(),
                fleet.state.name()
            );
            return Err(ApiError::client("FleetNotInModifiableState", message));
        }
        fleet.request = Arc::new(changed);
        self.set_fleet_state(now, id, FleetState::Modifying, "modify_in_progress");
        self.schedule(after(now, UPKEEP), Due::KeepFleet { fleet: id.into() });
        Ok(())
    }

    fn set_fleet_state(&mut self, at: Timestamp, id: &str, state: FleetState, sub_type: &str) {
        if let Some(fleet) = self.fleets.get_mut(id) {
            fleet.state = state;
        }
        self.record_fleet(at, id, "fleet-change", sub_type, None);
    }

    fn record_outcome(&mut self, at: Timestamp, id: &str) {
        let Some(fleet) = self.fleets.get(id) else { return };
        let launched: Vec<String> = fleet.outcome.launched.iter().flat_map(|(_, _, ids)| ids.clone()).collect();
        let errors: Vec<ApiError> = fleet.outcome.errors.iter().map(|(_, _, error)| error.clone()).collect();
        for instance in launched {
            self.record_fleet(at, id, "instance-change", "launched", Some(&instance));
        }
        // One line tells it: the pools of a fleet are usually refused for the same reason.
        if let Some(error) = errors.first() {
            self.record_fleet_error(at, id, error);
        }
    }

    // fidelity: documented(EC2 API Reference, EventInformation: error events); assumed: which code is told as which.
    fn record_fleet_error(&mut self, at: Timestamp, id: &str, error: &ApiError) {
        let sub_type = match error.code.as_ref() {
            "MaxSpotInstanceCountExceeded" | "VcpuLimitExceeded" => "spotInstanceCountLimitExceeded",
            "UnauthorizedOperation" => "iamFleetRoleInvalid",
            code if code.starts_with("InvalidLaunchTemplate") => "spotFleetRequestConfigurationInvalid",
            _ => "allLaunchSpecsTemporarilyBlacklisted",
        };
        let description = format!("{}: {}", error.code, error.message);
        self.record(at, id, ("service-error", sub_type, description), None);
    }

    /// Notes what happened, in the history and, for fleets that are not instant, on the bus.
    pub(super) fn record_fleet(&mut self, at: Timestamp, id: &str, kind: &str, sub_type: &str, instance: Option<&str>) {
        let described = instance.and_then(|id| self.instances.get(id)).map(|instance| {
            let (instance_type, zone) = (instance.instance_type, &instance.zone);
            json!({"instanceType": instance_type, "image": instance.image_id, "productDescription": "Linux/UNIX", "availabilityZone": zone})
        });
        let description = described.map_or_else(String::new, |described| described.to_string());
        self.record(at, id, (kind, sub_type, description), instance);
    }

    // fidelity: documented(EC2 User Guide, Monitor fleet events using EventBridge: EC2 Fleet State Change, Instance Change and
    // Error; only of maintain and request)
    fn record(
        &mut self,
        at: Timestamp,
        id: &str,
        (kind, sub_type, description): (&str, &str, String),
        instance: Option<&str>,
    ) {
        let Some(fleet) = self.fleets.get_mut(id).filter(|fleet| fleet.request.kind != FleetKind::Instant) else {
            return;
        };
        let (kind_text, sub_type_text) = (kind.to_owned(), sub_type.to_owned());
        let instance_id = instance.map(str::to_owned);
        fleet.history.push_back(FleetRecord {
            at,
            kind: kind_text,
            sub_type: sub_type_text,
            description: description.clone(),
            instance_id,
        });
        if fleet.history.len() > MAX_HISTORY {
            fleet.history.pop_front();
        }
        let detail_type = match kind {
            "fleet-change" => "EC2 Fleet State Change",
            "instance-change" => "EC2 Fleet Instance Change",
            _ => "EC2 Fleet Error",
        };
        let mut detail = json!({ "sub-type": sub_type });
        if !description.is_empty() {
            detail["description"] = description.into();
        }
        if let Some(instance) = instance {
            detail["instance-id"] = instance.into();
        }
        let arn = self.arn("ec2", &format!("fleet/{id}"));
        self.emit(at, "aws.ec2fleet", detail_type, &[arn], detail);
    }

    /// Whether an instance of a fleet is healthy.
    // fidelity: documented(EC2 User Guide, EC2 Fleet health checks: unhealthy once a status check is impaired)
    pub(crate) fn is_healthy(&self, id: &str) -> bool {
        self.instances.get(id).is_some_and(|instance| {
            matches!(instance.state, State::Pending | State::Running)
                && instance.instance_impaired_since.is_none()
                && instance.system_impaired_since.is_none()
        })
    }

    /// Replaces an unhealthy instance, if its fleet is to do so.
    // fidelity: documented(EC2 API Reference, CreateFleet: ReplaceUnhealthyInstances, of maintain only)
    pub(crate) fn replace_unhealthy(&mut self, now: Timestamp, id: &str) {
        let Some(fleet) = self.instances.get(id).and_then(|instance| self.fleets.get(instance.fleet_id.as_deref()?))
        else {
            return;
        };
        if fleet.request.replace_unhealthy && fleet.request.kind == FleetKind::Maintain && !self.is_healthy(id) {
            self.begin_termination(now, id, Cause::UserInitiatedShutdown).ok();
        }
    }

    /// Targets of the fleets that still launch.
    pub(crate) fn fleet_targets(&self) -> (usize, u64) {
        let live = self
            .fleets
            .iter()
            .filter(|fleet| fleet.request.kind != FleetKind::Instant && fleet.state != FleetState::Deleted);
        live.fold((0, 0), |(count, target), fleet| {
            let own = u64::from(fleet.request.on_demand) + u64::from(fleet.request.spot);
            (count + 1, target + if fleet.state.is_deleted() { 0 } else { own })
        })
    }
}

// fidelity: assumed: InvalidFleetId.NotFound, which clients know and the reference does not list.
pub(crate) fn no_such_fleet(id: &str) -> ApiError {
    ApiError::client("InvalidFleetId.NotFound", format!("The fleet ID '{id}' does not exist"))
}
