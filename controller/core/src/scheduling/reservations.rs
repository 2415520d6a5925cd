//! Capacity that is paid for already (core spec §3.12.3): how much of each reservation is left while nodes are planned.

use crate::catalog::InstanceType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is left of every reservation.
#[derive(Default)]
pub(super) struct Reservations {
    left: BTreeMap<String, u32>,
}

impl Reservations {
    /// Of the reservations that these types can draw on. Types may know of it at different times: the least counts.
    pub(super) fn of<'t>(types: impl IntoIterator<Item = &'t Arc<InstanceType>>) -> Self {
        let mut left: BTreeMap<String, u32> = BTreeMap::new();
        for reservation in types.into_iter().flat_map(|t| &t.offerings).filter_map(|o| o.reservation.as_ref()) {
            let known = left.entry(reservation.id.clone()).or_insert(reservation.capacity);
            *known = (*known).min(reservation.capacity);
        }
        Self { left }
    }

    /// Whether there is one more for a node that holds `held` already.
    pub(super) fn can_reserve(&self, id: &str, held: &BTreeSet<String>) -> bool {
        held.contains(id) || self.left.get(id).is_some_and(|left| *left > 0)
    }

    /// Reserves for a node what it wants and gives back what it no longer does.
    pub(super) fn exchange(&mut self, held: &BTreeSet<String>, wanted: &BTreeSet<String>) {
        for id in wanted.difference(held) {
            if let Some(left) = self.left.get_mut(id) {
                *left = left.saturating_sub(1);
            }
        }
        for id in held.difference(wanted) {
            if let Some(left) = self.left.get_mut(id) {
                *left += 1;
            }
        }
    }
}
