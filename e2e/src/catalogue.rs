//! The catalogue of documented behaviours, as far as lists and reports quote it.
//!
//! It is built into the program, which may run far from the repository: a report is whole wherever it is written, and always
//! quotes the catalogue that the program was built with.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const BEHAVIOURS: &str = include_str!("../../features/behaviours.yaml");

/// A row; its other fields are for readers of the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    /// `core`, `extended` or `advisory`.
    pub(crate) level: String,
    /// The behaviour in one sentence.
    pub(crate) says: String,
    /// What a backend must offer.
    pub(crate) needs: Vec<String>,
}

/// All rows, in the order of the catalogue.
pub(crate) fn rows() -> Vec<Row> {
    serde_yaml_ng::from_str(BEHAVIOURS).expect("the catalogue is read by a test")
}

/// The documented behaviour of each of these rows, in one sentence. A row that the catalogue does not have is left out.
pub(crate) fn sentences<'a>(ids: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
    let ids: BTreeSet<&str> = ids.into_iter().collect();
    if ids.is_empty() {
        return BTreeMap::new();
    }
    rows().into_iter().filter(|row| ids.contains(row.id.as_str())).map(|row| (row.id, row.says)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_with_its_level_and_needs() {
        let rows = rows();
        assert_eq!(rows.len(), BEHAVIOURS.lines().filter(|line| line.starts_with("- id:")).count());
        assert!(rows.iter().all(|row| ["core", "extended", "advisory"].contains(&row.level.as_str())));
        let first = &rows[0];
        assert_eq!(first.id, "provisioning.pending-pod-creates-node");
        assert_eq!(first.needs, ["kubelet", "scheduler"]);
    }

    #[test]
    fn a_row_is_quoted_and_an_unknown_one_left_out() {
        let found = sentences(["provisioning.only-unschedulable-pods", "mine.own"]);
        assert_eq!(found.len(), 1);
        assert!(found["provisioning.only-unschedulable-pods"].starts_with("Only pods flagged unschedulable"));
    }
}
