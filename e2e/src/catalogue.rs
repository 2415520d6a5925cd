//! The catalogue of documented behaviours, as far as a report quotes it: the sentence of each row.
//!
//! It is built into the program, so that a report is whole wherever the program runs and always quotes the catalogue that
//! the program was built with.

use serde::Deserialize;
use std::collections::BTreeMap;

const BEHAVIOURS: &str = include_str!("../../features/behaviours.yaml");

/// A row; its other fields are for readers of the file.
#[derive(Deserialize)]
struct Row {
    id: String,
    says: String,
}

/// The documented behaviour of each of these rows, in one sentence. A row that the catalogue does not have is left out.
pub(crate) fn sentences<'a>(rows: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
    let rows: std::collections::BTreeSet<&str> = rows.into_iter().collect();
    if rows.is_empty() {
        return BTreeMap::new();
    }
    let catalogue: Vec<Row> = serde_yaml_ng::from_str(BEHAVIOURS).expect("the catalogue is read by a test");
    catalogue.into_iter().filter(|row| rows.contains(row.id.as_str())).map(|row| (row.id, row.says)).collect()
}

#[cfg(test)]
mod tests {
    use super::sentences;

    #[test]
    fn a_row_is_quoted_and_an_unknown_one_left_out() {
        let found = sentences(["provisioning.only-unschedulable-pods", "mine.own"]);
        assert_eq!(found.len(), 1);
        assert!(found["provisioning.only-unschedulable-pods"].starts_with("Only pods flagged unschedulable"));
    }
}
