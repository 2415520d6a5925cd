//! The conformance report: documented behaviour by documented behaviour, controller by controller, backend by backend.
//!
//! Its rows are the whole catalogue, covered by a scenario or not; its columns are what scenarios were run on. It is decided
//! ([`decide`]) from the documents that runs leave behind (`report.json`), so that columns can be run on different days and
//! machines and put together afterwards. Schema: docs/conformance-schema.md.

mod badge;
pub mod compare;
pub mod decide;
pub mod differences;
pub(crate) mod files;
mod junit;
mod markdown;
mod page;

use anyhow::{Context, anyhow};
use differences::Difference;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// The version of the schema of `conformance.json`. Raised when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// What `conformance.json` says it is, so that no other report is taken for one.
pub const SCHEMA: &str = "trysquare-conformance";

/// The document that `conformance.json` and `--format json` hold, and that every other file is made from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The version of the program that put it together.
    pub trysquare_version: String,
    /// When it was put together.
    pub made_at: Timestamp,
    /// Whether passes were compared with those of a controller that does nothing.
    pub compared_with_idle: bool,
    /// What scenarios were run on.
    pub columns: Vec<Column>,
    /// The numbers of each group of rows, in the order of the catalogue.
    pub groups: Vec<Part>,
    /// The numbers of each level.
    pub levels: Vec<Part>,
    /// Every row of the catalogue, in its order.
    pub rows: Vec<Row>,
}

/// A controller on a backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Column {
    /// The controller: `ours`, `upstream` or a path.
    pub controller: String,
    /// The backend.
    pub backend: String,
    /// Why nothing could be run there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub could_not_start: Option<String>,
    /// The runs that it is made of; of a scenario that several of them have, the latest counts.
    pub runs: Vec<RunShown>,
    /// How many scenarios were run.
    pub scenarios: usize,
    /// How many were left out, as they go beyond upstream and are about our controller alone.
    pub extensions_left_out: usize,
    /// How many cells came out how.
    pub counts: Counts,
    /// How many of the passed cells a controller that does nothing passes too; absent where there was none to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed_when_idle: Option<usize>,
    /// The failed scenarios that restate no row of the catalogue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_without_row: Vec<Evidence>,
}

/// A run that a column is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunShown {
    /// When it began.
    pub started_at: Timestamp,
    /// The program's version then.
    pub trysquare_version: String,
    /// The seeds of its scenarios.
    pub seeds: BTreeSet<u64>,
    /// Its folder beside this document, if it was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

/// How many cells came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// [`Outcome::Passed`].
    pub passed: usize,
    /// [`Outcome::Failed`].
    pub failed: usize,
    /// [`Outcome::Differs`].
    pub differs: usize,
    /// [`Outcome::Skipped`].
    pub skipped: usize,
    /// [`Outcome::NotRun`].
    pub not_run: usize,
    /// [`Outcome::NotCovered`].
    pub not_covered: usize,
}

/// The numbers of some of the rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The group or the level.
    pub name: String,
    /// How many rows it has.
    pub rows: usize,
    /// How many of them have a scenario.
    pub covered: usize,
    /// For each column, how they came out.
    pub counts: Vec<Counts>,
}

/// A documented behaviour.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its id in the catalogue.
    pub id: String,
    /// What stands before the dot of its id.
    pub group: String,
    /// `core`, `extended` or `advisory`.
    pub level: String,
    /// The behaviour in one sentence.
    pub says: String,
    /// Whether any scenario restates it.
    pub covered: bool,
    /// For each column, what came of it.
    pub cells: Vec<Cell>,
}

/// What came of a row on a column.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// What came of it.
    pub outcome: Outcome,
    /// What there is to say about it beyond the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The capabilities that skipped scenarios lacked.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub missing: BTreeSet<String>,
    /// What is known to be different there: why the outcome is `differs`, or else for information.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// Of a passed cell: whether a controller that does nothing passes the same scenarios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_when_idle: Option<bool>,
    /// The scenarios that it was decided from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<Evidence>,
}

/// What came of a row on a column, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// At least one scenario passed, and none failed.
    Passed,
    /// A scenario failed.
    Failed,
    /// A scenario failed, and each that did is listed in docs/differences.yaml for this controller and row.
    Differs,
    /// The backend lacks what the scenarios need.
    Skipped,
    /// There are scenarios, and none was run.
    NotRun,
    /// No scenario shows it.
    NotCovered,
}

impl Outcome {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 6] =
        [Self::Passed, Self::Failed, Self::Differs, Self::Skipped, Self::NotRun, Self::NotCovered];

    /// As people read it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Differs => "differs by design",
            Self::Skipped => "skipped",
            Self::NotRun => "not run",
            Self::NotCovered => "not covered",
        }
    }

    /// As it stands in the document.
    pub fn key(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Differs => "differs",
            Self::Skipped => "skipped",
            Self::NotRun => "not_run",
            Self::NotCovered => "not_covered",
        }
    }

    /// A sign for those whom a colour tells nothing.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Passed => "✓",
            Self::Failed => "✕",
            Self::Differs => "≠",
            Self::Skipped => "–",
            Self::NotRun => "○",
            Self::NotCovered => "·",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.words())
    }
}

/// A scenario that was run, and where to look at what happened in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Evidence {
    /// The feature's title.
    pub feature: String,
    /// The scenario's title.
    pub name: String,
    /// File and line.
    pub location: String,
    /// `passed`, `failed` or `skipped`.
    pub outcome: Outcome,
    /// Whether it goes beyond upstream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub extension: bool,
    /// The time that passed in it, in seconds.
    pub virtual_s: f64,
    /// The time that passed outside, in seconds.
    pub wall_s: f64,
    /// Its timeline, beside this document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<String>,
    /// Its journal, beside this document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
    /// The folder of the logs of its processes, beside this document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<String>,
    /// Of a skipped one: the capability that the backend lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Of a failed one: where and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureShown>,
}

/// Where and why a scenario failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailureShown {
    /// The step, with its line; or the name of the invariant.
    pub step: String,
    /// What was expected.
    pub message: String,
    /// What was last observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_observed: Option<String>,
    /// The last lines of what happened.
    pub last_lines: Vec<String>,
    /// How many lines there were before them.
    pub earlier_lines: usize,
}

impl Counts {
    /// How many came out so.
    pub fn of(&self, outcome: Outcome) -> usize {
        let Self { passed, failed, differs, skipped, not_run, not_covered } = *self;
        match outcome {
            Outcome::Passed => passed,
            Outcome::Failed => failed,
            Outcome::Differs => differs,
            Outcome::Skipped => skipped,
            Outcome::NotRun => not_run,
            Outcome::NotCovered => not_covered,
        }
    }

    fn add(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Passed => &mut self.passed,
            Outcome::Failed => &mut self.failed,
            Outcome::Differs => &mut self.differs,
            Outcome::Skipped => &mut self.skipped,
            Outcome::NotRun => &mut self.not_run,
            Outcome::NotCovered => &mut self.not_covered,
        } += 1;
    }

    /// Counts the cells of a column in some rows.
    fn count<'a>(rows: impl IntoIterator<Item = &'a Row>, column: usize) -> Self {
        let mut counts = Self::default();
        rows.into_iter().for_each(|row| counts.add(row.cells[column].outcome));
        counts
    }

    /// Those that are not zero, in words.
    pub fn told(&self) -> String {
        let present = Outcome::ALL.into_iter().filter(|outcome| self.of(*outcome) > 0);
        let parts: Vec<String> = present.map(|outcome| format!("{} {outcome}", self.of(outcome))).collect();
        if parts.is_empty() { "no row".into() } else { parts.join(", ") }
    }
}

impl Column {
    /// What it is called.
    pub fn title(&self) -> String {
        format!("{} on {}", self.controller, self.backend)
    }

    /// A name for files.
    pub fn slug(&self) -> String {
        slug(&self.controller, &self.backend)
    }
}

/// A name for the files of a column: of a program, the name of its file.
pub(crate) fn slug(controller: &str, backend: &str) -> String {
    let last = controller.rsplit('/').find(|part| !part.is_empty()).unwrap_or("controller");
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let name: String = format!("{last}-{backend}").chars().map(plain).collect();
    // A name that begins with a dot is hidden, and two of them are the folder above.
    name.trim_start_matches('.').to_owned()
}

impl Document {
    /// Reads `conformance.json`, or that in a folder.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let path = if path.is_dir() { path.join(files::DOCUMENT) } else { path.to_owned() };
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}; name a conformance.json or its folder", path.display()))?;
        #[derive(Deserialize)]
        struct Head {
            schema: String,
            schema_version: u32,
        }
        let about = || format!("{} is no conformance report of trysquare", path.display());
        let Head { schema, schema_version } = serde_json::from_str(&text).with_context(about)?;
        if schema != SCHEMA {
            return Err(anyhow!("{} has the schema {schema:?}, not {SCHEMA:?}", path.display()));
        }
        if schema_version != SCHEMA_VERSION {
            let found = format!("{} has schema version {schema_version}", path.display());
            return Err(anyhow!("{found}; this program reads version {SCHEMA_VERSION}"));
        }
        let document: Self = serde_json::from_str(&text).with_context(about)?;
        match document.rows.iter().find(|row| row.cells.len() != document.columns.len()) {
            Some(row) => Err(anyhow!(
                "{}: row {} has {} cells and there are {} columns",
                path.display(),
                row.id,
                row.cells.len(),
                document.columns.len()
            )),
            None => Ok(document),
        }
    }

    /// The failed cells of a column, with their rows.
    pub fn cells_that(&self, outcome: Outcome, column: usize) -> impl Iterator<Item = (&Row, &Cell)> {
        let cells = self.rows.iter().map(move |row| (row, &row.cells[column]));
        cells.filter(move |(_, cell)| cell.outcome == outcome)
    }
}
