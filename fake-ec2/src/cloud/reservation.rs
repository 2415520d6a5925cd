//! Capacity reservations and placement groups: how they are made, changed and ended, and which launch uses a reservation.

use super::capacity::CapacityType;
use super::image::Image;
use super::launch_template::LaunchSpecification;
use super::tags::Tags;
use super::{Cloud, Due};
use crate::error::ApiError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An on-demand capacity reservation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // Named as in DescribeCapacityReservations.
pub struct CapacityReservation {
    pub id: String,
    pub owner_id: String,
    pub instance_type: String,
    /// `Linux/UNIX`, `Windows`, …
    pub instance_platform: String,
    pub zone: String,
    pub tenancy: String,
    pub ebs_optimized: bool,
    /// `open` or `targeted`.
    pub instance_match_criteria: String,
    /// `default` or `capacity-block`.
    pub reservation_type: String,
    pub interruptible: bool,
    /// `active`, `expired`, `cancelled`, …
    pub state: String,
    pub total: u32,
    pub available: u32,
    pub created_at: Timestamp,
    pub ends_at: Option<Timestamp>,
    pub placement_group_arn: Option<String>,
    pub tags: Tags,
}

/// A placement group.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // Named as in DescribePlacementGroups.
pub struct PlacementGroup {
    pub id: String,
    pub name: String,
    /// `cluster`, `partition` or `spread`.
    pub strategy: String,
    pub partition_count: Option<u32>,
    pub spread_level: Option<String>,
    pub state: String,
    pub tags: Tags,
}

/// What ModifyCapacityReservation changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReservationChange {
    pub(crate) total: Option<u32>,
    /// `Some(None)` is no end.
    pub(crate) ends_at: Option<Option<Timestamp>>,
    pub(crate) match_criteria: Option<String>,
}

/// The platform a reservation has to be for, to take an instance of this image.
// fidelity: documented(EC2 User Guide, Capacity Reservations: instance type, platform and zone have to match)
pub(crate) fn platform_of(image: &Image) -> &'static str {
    if image.platform.as_deref() == Some("windows") { "Windows" } else { "Linux/UNIX" }
}

impl Cloud {
    pub(crate) fn reservation(&self, id: &str) -> Result<&CapacityReservation, ApiError> {
        self.reservations.get(id).ok_or_else(|| {
            let message = format!("The capacity reservation '{id}' does not exist.");
            ApiError::client("InvalidCapacityReservationId.NotFound", message)
        })
    }

    /// Reserves capacity that is there.
    // fidelity: documented(EC2 User Guide, Capacity Reservations: fails if the capacity is not there or the on-demand limit is
    // reached)
    pub(crate) fn create_reservation(&mut self, mut reservation: CapacityReservation) -> Result<String, ApiError> {
        self.take_for_reservation(&reservation.instance_type, &reservation.zone, reservation.total)?;
        reservation.id = self.ids.resource("cr");
        Ok(self.keep_reservation(reservation))
    }

    /// Enters a reservation as it is and watches its end.
    pub(crate) fn keep_reservation(&mut self, reservation: CapacityReservation) -> String {
        let id = reservation.id.clone();
        if let Some(end) = reservation.ends_at {
            self.schedule(end, Due::ExpireReservation { reservation: id.clone() });
        }
        self.reservations.insert(id.clone(), reservation);
        id
    }

    fn take_for_reservation(&mut self, instance_type: &str, zone: &str, count: u32) -> Result<(), ApiError> {
        for taken in 0..count {
            if let Err(error) = self.check_capacity(instance_type, zone, CapacityType::OnDemand) {
                (0..taken).for_each(|_| self.capacity.give_back(instance_type, zone, CapacityType::OnDemand));
                return Err(error);
            }
            self.capacity.take(instance_type, zone, CapacityType::OnDemand);
        }
        Ok(())
    }

    /// Changes a reservation that is active.
    // fidelity: documented(EC2 User Guide, Modify a Capacity Reservation: not below the instances that use it; the matching
    // only from targeted to open and back)
    pub(crate) fn modify_reservation(&mut self, id: &str, change: &ReservationChange) -> Result<(), ApiError> {
        let present = self.active_reservation(id, "modified")?.clone();
        if let Some(total) = change.total {
            let used = present.total - present.available;
            if total < used {
                let message = format!(
                    "The instance count {total} is below the {used} instances that use the capacity reservation '{id}'."
                );
                return Err(ApiError::invalid_value(message));
            }
            match total.checked_sub(present.total) {
                Some(more) => self.take_for_reservation(&present.instance_type, &present.zone, more)?,
                None => self.return_capacity(&present, present.total - total),
            }
        }
        let reservation = self.reservations.get_mut(id).expect("it has been looked up");
        if let Some(total) = change.total {
            reservation.available = total - (present.total - present.available);
            reservation.total = total;
        }
        if let Some(criteria) = &change.match_criteria {
            reservation.instance_match_criteria.clone_from(criteria);
        }
        if let Some(ends_at) = change.ends_at {
            reservation.ends_at = ends_at;
            if let Some(end) = ends_at {
                self.schedule(end, Due::ExpireReservation { reservation: id.into() });
            }
        }
        Ok(())
    }

    pub(crate) fn cancel_reservation(&mut self, id: &str) -> Result<(), ApiError> {
        self.active_reservation(id, "cancelled")?;
        self.end_reservation(id, "cancelled");
        Ok(())
    }

    fn active_reservation(&self, id: &str, verb: &str) -> Result<&CapacityReservation, ApiError> {
        let reservation = self.reservation(id)?;
        match reservation.state.as_str() {
            "active" => Ok(reservation),
            state => Err(ApiError::client(
                "IncorrectState",
                format!("The capacity reservation '{id}' can't be {verb} because it is in the state '{state}'."),
            )),
        }
    }

    pub(super) fn expire_reservation(&mut self, at: Timestamp, id: &str) {
        let due = |own: &CapacityReservation| own.state == "active" && own.ends_at.is_some_and(|end| end <= at);
        if self.reservations.get(id).is_some_and(due) {
            self.end_reservation(id, "expired");
        }
    }

    /// What was unused is free again; instances go on outside of it.
    fn end_reservation(&mut self, id: &str, state: &str) {
        let Some(reservation) = self.reservations.get_mut(id) else { return };
        reservation.state = state.into();
        let unused = std::mem::take(&mut reservation.available);
        let ended = reservation.clone();
        self.return_capacity(&ended, unused);
        self.instances.refresh();
        let users: Vec<String> = self.instances.in_capacity_reservation(id).map(|own| own.id.clone()).collect();
        for user in users {
            if let Some(instance) = self.instances.get_mut(&user) {
                instance.capacity_reservation_id = None;
            }
        }
    }

    fn return_capacity(&mut self, reservation: &CapacityReservation, count: u32) {
        let (instance_type, zone) = (&reservation.instance_type, &reservation.zone);
        (0..count).for_each(|_| self.capacity.give_back(instance_type, zone, CapacityType::OnDemand));
    }

    /// The reservation an on-demand launch uses: the named one, or an open one that fits.
    // fidelity: documented(EC2 User Guide, Capacity Reservations: open and targeted; ReservationCapacityExceeded;
    // capacity-reservations-only launches nowhere else)
    pub(super) fn matching_reservation(
        &self,
        specification: &LaunchSpecification,
        (instance_type, zone, platform): (&str, &str, &str),
        capacity_type: CapacityType,
    ) -> Result<Option<String>, ApiError> {
        let exceeded = || {
            let message = "The requested reservation does not have sufficient compatible and available capacity for this request.";
            ApiError::client("ReservationCapacityExceeded", message)
        };
        let tenancy = specification.tenancy.as_deref().unwrap_or("default");
        let fits = |own: &CapacityReservation| {
            own.state == "active"
                && own.instance_type == instance_type
                && own.zone == zone
                && own.instance_platform == platform
                && own.tenancy == tenancy
        };
        if let Some(id) = &specification.reservation_id {
            let reservation = self.reservation(id)?;
            if !fits(reservation) {
                let message = format!("The capacity reservation '{id}' does not match the launch.");
                return Err(ApiError::invalid_value(message));
            }
            return if reservation.available == 0 { Err(exceeded()) } else { Ok(Some(id.clone())) };
        }
        let preference = specification.reservation_preference.as_deref();
        if capacity_type == CapacityType::Spot || preference == Some("none") {
            return Ok(None);
        }
        let open = |own: &&CapacityReservation| own.instance_match_criteria == "open" && own.available > 0 && fits(own);
        match self.reservations.values().find(open) {
            None if preference == Some("capacity-reservations-only") => Err(exceeded()),
            found => Ok(found.map(|reservation| reservation.id.clone())),
        }
    }

    /// How many more instances open reservations take of this type in this zone.
    pub(super) fn openly_reserved(&self, instance_type: &str, zone: &str) -> u32 {
        let fits = |own: &&CapacityReservation| {
            own.state == "active"
                && own.instance_match_criteria == "open"
                && own.instance_type == instance_type
                && own.zone == zone
        };
        self.reservations.values().filter(fits).map(|own| own.available).sum()
    }

    // fidelity: documented(EC2 API Reference, Error codes: InvalidPlacementGroup.Duplicate)
    pub(crate) fn create_placement_group(&mut self, mut group: PlacementGroup) -> Result<String, ApiError> {
        if self.placement_groups.values().any(|own| own.name == group.name) {
            let message = format!("The Placement Group '{}' already exists.", group.name);
            return Err(ApiError::client("InvalidPlacementGroup.Duplicate", message));
        }
        group.id = self.ids.resource("pg");
        let id = group.id.clone();
        self.placement_groups.insert(id.clone(), group);
        Ok(id)
    }

    // fidelity: documented(EC2 API Reference, DeletePlacementGroup: all instances have to be terminated first; error codes
    // InvalidPlacementGroup.Unknown and InvalidPlacementGroup.InUse)
    pub(crate) fn delete_placement_group(&mut self, name: &str) -> Result<(), ApiError> {
        let group = self.placement_groups.values().find(|own| own.name == name).ok_or_else(|| {
            let message = format!("The Placement Group '{name}' is unknown.");
            ApiError::client("InvalidPlacementGroup.Unknown", message)
        })?;
        let id = group.id.clone();
        if self.instances.in_placement_group(&id).any(|instance| !instance.state.is_ending()) {
            let message = format!("The placement group '{name}' is in use and may not be deleted.");
            return Err(ApiError::client("InvalidPlacementGroup.InUse", message));
        }
        self.placement_groups.remove(&id);
        Ok(())
    }
}
