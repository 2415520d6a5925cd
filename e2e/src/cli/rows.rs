//! The rows of the catalogue of documented behaviours, as far as `trysquare list` shows them. The catalogue is built into
//! the program, which may run far from the repository.

use serde::{Deserialize, Serialize};

const BEHAVIOURS: &str = include_str!("../../../features/behaviours.yaml");

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
pub(crate) fn all() -> Vec<Row> {
    serde_yaml_ng::from_str(BEHAVIOURS).expect("the catalogue is read by a test")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_with_its_level_and_needs() {
        let rows = all();
        assert_eq!(rows.len(), BEHAVIOURS.lines().filter(|line| line.starts_with("- id:")).count());
        assert!(rows.iter().all(|row| ["core", "extended", "advisory"].contains(&row.level.as_str())));
        let first = &rows[0];
        assert_eq!(first.id, "provisioning.pending-pod-creates-node");
        assert_eq!(first.needs, ["kubelet", "scheduler"]);
    }
}
