//! Which documented behaviours a controller is known not to show: `docs/differences.yaml`, built into the program.
//!
//! An entry is about one controller. It excuses the failures of the rows that it names, and of the scenarios that it names
//! if it names some; nothing else.

use crate::backend::BackendName;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

const LISTED: &str = include_str!("../../../docs/differences.yaml");

/// The page that explains our own differences, by its path in the repository.
pub const PAGE: &str = "docs/differences.md";

/// The list itself, by its path in the repository.
pub const LIST: &str = "docs/differences.yaml";

/// A listed difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The controller it is about: `ours`, `upstream`, or a path as it is given on the command line.
    pub controller: String,
    /// The backends it shows on; none named means all.
    #[serde(default)]
    pub backends: Vec<BackendName>,
    /// The rows of the catalogue.
    pub rows: Vec<String>,
    /// The titles of the scenarios that it excuses; none named means all of the rows.
    #[serde(default)]
    pub scenarios: Vec<String>,
    /// What is different, in a sentence.
    pub reason: String,
    /// The anchor in docs/differences.md where more is said.
    #[serde(default)]
    pub anchor: Option<String>,
    /// The line of the controller's log, or whatever else shows it.
    #[serde(default)]
    pub evidence: Option<String>,
}

/// A difference, as a cell shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What is different, in a sentence.
    pub reason: String,
    /// Where more is said, by its path in the repository.
    pub link: String,
    /// What shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// The list that is built in.
pub fn listed() -> &'static [Entry] {
    static ENTRIES: LazyLock<Vec<Entry>> =
        LazyLock::new(|| parse(LISTED).expect("docs/differences.yaml is read by a test"));
    &ENTRIES
}

/// Reads a list.
pub fn parse(text: &str) -> Result<Vec<Entry>, serde_yaml_ng::Error> {
    let entries: Option<Vec<Entry>> = serde_yaml_ng::from_str(text)?;
    Ok(entries.unwrap_or_default())
}

impl Entry {
    /// Whether it is about a row on a column.
    pub fn concerns(&self, controller: &str, backend: &str, row: &str) -> bool {
        self.controller == controller
            && (self.backends.is_empty() || self.backends.iter().any(|name| name.to_string() == backend))
            && self.rows.iter().any(|id| id == row)
    }

    /// Whether it excuses the failure of a scenario of its rows.
    pub fn excuses(&self, scenario: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|title| title == scenario)
    }

    /// As a cell shows it.
    pub fn shown(&self) -> Difference {
        let link = self.anchor.as_ref().map_or_else(|| LIST.to_owned(), |anchor| format!("{PAGE}#{anchor}"));
        Difference { reason: self.reason.clone(), link, evidence: self.evidence.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::under_test::UnderTest;
    use std::collections::BTreeSet;

    const EXPLAINED: &str = include_str!("../../../docs/differences.md");

    #[test]
    fn every_entry_names_rows_of_the_catalogue_and_a_place_that_exists() {
        let rows: BTreeSet<String> = catalogue::rows().into_iter().map(|row| row.id).collect();
        let mut seen = BTreeSet::new();
        for entry in parse(LISTED).unwrap() {
            let reason = &entry.reason;
            assert!(entry.controller.parse::<UnderTest>().is_ok(), "{:?}: {reason}", entry.controller);
            assert!(!entry.rows.is_empty() && !reason.trim().is_empty(), "{entry:?}");
            for row in &entry.rows {
                assert!(rows.contains(row), "{row} is no row of the catalogue: {reason}");
                let once =
                    seen.insert((entry.controller.clone(), row.clone(), entry.scenarios.clone(), reason.clone()));
                assert!(once, "{row} is named twice: {reason}");
            }
            match (&entry.anchor, entry.controller.as_str()) {
                (Some(anchor), _) => {
                    assert!(
                        EXPLAINED.contains(&format!("<a id=\"{anchor}\"></a>")),
                        "no {anchor} in docs/differences.md"
                    );
                }
                (None, "ours") => {
                    panic!("a difference of ours is explained in docs/differences.md; name its anchor: {reason}")
                }
                (None, _) => {
                    assert!(entry.evidence.is_some(), "the line of the log that shows it is missing: {reason}")
                }
            }
        }
    }

    #[test]
    fn an_anchor_stands_once() {
        let anchors: Vec<&str> =
            EXPLAINED.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(anchors.iter().collect::<BTreeSet<_>>().len(), anchors.len());
        assert!(!anchors.is_empty());
    }

    #[test]
    fn an_empty_list_is_a_list_and_a_misspelt_field_is_told() {
        assert!(parse("# nothing yet\n").unwrap().is_empty());
        let error = parse("- controler: ours\n  rows: [a.b]\n  reason: x\n").unwrap_err().to_string();
        assert!(error.contains("controler"), "{error}");
    }
}
