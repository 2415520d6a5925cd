//! Resource vectors as rows of numbers, for the inner loop: a thousand instance types are compared for every pod.

use crate::quantity::Quantity;
use crate::resources::Resources;
use std::collections::BTreeSet;

/// The resources that the pods of one pass ask for, each with its place in a row. Others cannot be short.
pub(super) struct Axes(Vec<String>);

/// Amounts in billionths of a unit, by axis.
pub(super) type Row = Vec<i128>;

impl Axes {
    /// Axes for everything that `requests` name.
    pub(super) fn of<'a>(requests: impl IntoIterator<Item = &'a Resources>) -> Self {
        let names: BTreeSet<&str> = requests.into_iter().flat_map(|r| r.iter().map(|(name, _)| name)).collect();
        Self(names.into_iter().map(str::to_owned).collect())
    }

    /// `resources` along these axes.
    pub(super) fn row(&self, resources: &Resources) -> Row {
        self.0.iter().map(|name| resources.get(name).nanos()).collect()
    }

    /// Like [`row`](Self::row) for what is available: if anything is overdrawn, on an axis or not, nothing fits.
    pub(super) fn room(&self, available: &Resources) -> Row {
        if available.iter().any(|(_, quantity)| quantity.is_negative()) {
            return vec![i128::MIN; self.0.len()];
        }
        self.row(available)
    }

    /// The resources of which more is wanted than there is room for.
    pub(super) fn short(&self, wanted: &Row, room: &Row) -> Vec<String> {
        let pairs = self.0.iter().zip(wanted.iter().zip(room));
        pairs.filter(|(_, (wanted, room))| wanted > room).map(|(name, _)| name.clone()).collect()
    }

    /// The same axes but one.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.0.retain(|axis| axis != name);
        self
    }

    /// The amounts by name.
    pub(super) fn resources(&self, row: &Row) -> Resources {
        self.0.iter().cloned().zip(row.iter().map(|nanos| Quantity::from_nanos(*nanos))).collect()
    }
}

/// Adds `b` to `a`.
pub(super) fn add(a: &mut Row, b: &Row) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = a.saturating_add(*b));
}

/// Subtracts `b` from `a`.
pub(super) fn subtract(a: &mut Row, b: &Row) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = a.saturating_sub(*b));
}

/// Whether `wanted` on top of `taken` is within `room`.
pub(super) fn fits(taken: &Row, wanted: &Row, room: &Row) -> bool {
    taken.iter().zip(wanted).zip(room).all(|((taken, wanted), room)| taken.saturating_add(*wanted) <= *room)
}
