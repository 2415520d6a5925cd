//! Capacity reservations and placement groups, which tests set up through the control handle.

use super::tags::Tags;
use jiff::Timestamp;

/// An on-demand capacity reservation.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // Named as in DescribeCapacityReservations.
pub struct CapacityReservation {
    pub id: String,
    pub owner_id: String,
    pub instance_type: String,
    pub zone: String,
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
    pub tags: Tags,
}

/// A placement group.
#[derive(Clone, Debug)]
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
