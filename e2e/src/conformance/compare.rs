//! What changed between two reports: for `--baseline`, and for `trysquare report diff`.

use super::{Column, Document, Outcome};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A cell that came out otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The row.
    pub row: String,
    /// The column; where the controllers of both reports have different names, both of them.
    pub column: String,
    /// What it was; none where the row was not there.
    pub from: Option<Outcome>,
    /// What it is; none where the row is not there.
    pub to: Option<Outcome>,
}

impl Change {
    /// Whether something that was shown is shown no more. A row that left the catalogue is no promise any more.
    pub fn is_regression(&self) -> bool {
        self.from == Some(Outcome::Passed) && self.to.is_some_and(|to| to != Outcome::Passed)
    }
}

/// Two reports, cell by cell.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The columns that were compared.
    pub columns: Vec<String>,
    /// The columns of the first report alone.
    pub only_before: Vec<String>,
    /// The columns of the second report alone.
    pub only_after: Vec<String>,
    /// The cells that changed, by column and in the order of the catalogue.
    pub changes: Vec<Change>,
}

impl Comparison {
    /// Compares two reports.
    pub fn of(before: &Document, after: &Document) -> Self {
        let pairs = pairs(before, after);
        let mut changes = Vec::new();
        for (old, new) in &pairs {
            let column = name(&before.columns[*old], &after.columns[*new]);
            changes.extend(changes_of(before, *old, after, *new, &column));
        }
        let unpaired = |document: &Document, paired: BTreeSet<usize>| {
            let columns = document.columns.iter().enumerate().filter(|(index, _)| !paired.contains(index));
            columns.map(|(_, column)| column.title()).collect()
        };
        Self {
            columns: pairs.iter().map(|(old, new)| name(&before.columns[*old], &after.columns[*new])).collect(),
            only_before: unpaired(before, pairs.iter().map(|(old, _)| *old).collect()),
            only_after: unpaired(after, pairs.iter().map(|(_, new)| *new).collect()),
            changes,
        }
    }

    /// The changes that lose something.
    pub fn regressions(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.is_regression())
    }
}

fn name(before: &Column, after: &Column) -> String {
    match before.controller == after.controller {
        true => after.title(),
        false => format!("{} → {}", before.title(), after.title()),
    }
}

/// Which column is to be compared with which: the same controller on the same backend; and where one program is left over in
/// each report on some backend, those two, as they are versions of one whose paths differ.
fn pairs(before: &Document, after: &Document) -> Vec<(usize, usize)> {
    let same = |a: &Column, b: &Column| a.controller == b.controller && a.backend == b.backend;
    let place = |columns: &[Column], wanted: &Column| columns.iter().position(|column| same(column, wanted));
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (new, column) in after.columns.iter().enumerate() {
        pairs.extend(place(&before.columns, column).map(|old| (old, new)));
    }
    let left = |columns: &[Column], other: &[Column]| -> BTreeMap<String, Vec<usize>> {
        let mut by_backend: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, column) in
            columns.iter().enumerate().filter(|(_, column)| is_program(column) && place(other, column).is_none())
        {
            by_backend.entry(column.backend.clone()).or_default().push(index);
        }
        by_backend
    };
    let (old, new) = (left(&before.columns, &after.columns), left(&after.columns, &before.columns));
    for (backend, old) in old {
        if let ([old], Some([new])) = (&old[..], new.get(&backend).map(Vec::as_slice)) {
            pairs.push((*old, *new));
        }
    }
    pairs.sort_by_key(|(_, new)| *new);
    pairs
}

/// Whether the controller is given by its path, rather than by a name that means one thing everywhere.
fn is_program(column: &Column) -> bool {
    column.controller.contains('/')
}

fn changes_of(before: &Document, old: usize, after: &Document, new: usize, column: &str) -> Vec<Change> {
    let cells = |document: &Document, column: usize| -> BTreeMap<String, Outcome> {
        document.rows.iter().map(|row| (row.id.clone(), row.cells[column].outcome)).collect()
    };
    let (was, is) = (cells(before, old), cells(after, new));
    let gone = before.rows.iter().filter(|row| !is.contains_key(&row.id));
    let ids = after.rows.iter().chain(gone).map(|row| &row.id);
    let change = |id: &String| Change {
        row: id.clone(),
        column: column.to_owned(),
        from: was.get(id).copied(),
        to: is.get(id).copied(),
    };
    ids.map(change).filter(|change| change.from != change.to).collect()
}
