//! The report of a run: `report.json` (schema: docs/report.md), `report.html`, `junit.xml`, and the text printed at its end.

pub(crate) mod junit;
pub(crate) mod page;
pub(crate) mod text;

use crate::catalogue;
use crate::features::Scenario;
use crate::verdict::{ScenarioResult, Verdict};
use anyhow::{Context, anyhow};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the schema of `report.json`. Raised when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// The file for people.
pub(crate) const PAGE: &str = "report.html";

/// The numbers at the end of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// How many scenarios passed.
    pub passed: usize,
    /// How many failed, or ran differently the second time.
    pub failed: usize,
    /// How many the backend could not run.
    pub skipped: usize,
    /// The time that passed in all scenarios together, in seconds.
    pub virtual_s: f64,
    /// The time that passed outside, in seconds.
    pub wall_s: f64,
}

impl Summary {
    /// Counts the results of a run that took `wall`.
    pub fn of(results: &[ScenarioResult], wall: Duration) -> Self {
        let number = |outcome| results.iter().filter(|result| Outcome::of(result) == outcome).count();
        Self {
            passed: number(Outcome::Passed),
            failed: number(Outcome::Failed),
            skipped: number(Outcome::Skipped),
            virtual_s: results.iter().map(|result| result.virtual_s).sum(),
            wall_s: wall.as_secs_f64(),
        }
    }
}

/// What came of a scenario, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// Also: it ran differently the second time.
    Failed,
    Skipped,
}

impl Outcome {
    fn of(result: &ScenarioResult) -> Self {
        match result.verdict {
            _ if result.failed() => Self::Failed,
            Verdict::Skipped { .. } => Self::Skipped,
            Verdict::Passed | Verdict::Failed(_) => Self::Passed,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// The document that `report.json` and `--format json` hold, and that the other files are made from.
#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    /// The version of its schema.
    schema_version: u32,
    /// The program's version.
    pub(crate) trysquare_version: String,
    /// When the run began, by the system's clock.
    pub(crate) started_at: Timestamp,
    /// The words of the command line after the program's name.
    command: Vec<String>,
    /// The numbers of the whole run.
    pub summary: Summary,
    /// The sentences of the catalogue's rows that the scenarios restate.
    catalogue: BTreeMap<String, String>,
    /// The results.
    pub scenarios: Vec<ScenarioResult>,
}

impl Document {
    /// Puts the document together.
    pub fn new(scenarios: Vec<ScenarioResult>, wall: Duration, started_at: Timestamp, command: Vec<String>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            trysquare_version: env!("CARGO_PKG_VERSION").into(),
            started_at,
            command,
            summary: Summary::of(&scenarios, wall),
            catalogue: catalogue::sentences(scenarios.iter().flat_map(|result| Scenario::rows(&result.scenario))),
            scenarios,
        }
    }

    /// Reads the document in a report's folder.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("report.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}; name a folder that --report wrote", path.display()))?;
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let about = || format!("{} is no report of trysquare", path.display());
        let Version { schema_version } = serde_json::from_str(&text).with_context(about)?;
        if schema_version != SCHEMA_VERSION {
            let found = format!("{} has schema version {schema_version}", path.display());
            return Err(anyhow!("{found}; this program reads version {SCHEMA_VERSION}"));
        }
        serde_json::from_str(&text).with_context(about)
    }
}

/// The folder of the journals in a report's folder.
pub fn journals(folder: &Path) -> PathBuf {
    folder.join("journals")
}

/// The folder of processes' logs in a report's folder.
pub fn logs(folder: &Path) -> PathBuf {
    folder.join("logs")
}

/// Makes the folder of a report and tries to write there, so that a long run does not end without its report. What an
/// earlier run left goes: an interrupted run must not be read as the one before.
pub fn prepare(folder: &Path) -> anyhow::Result<()> {
    let journals = journals(folder);
    std::fs::create_dir_all(&journals).with_context(|| format!("cannot make the folder {}", journals.display()))?;
    let old: Vec<PathBuf> = std::fs::read_dir(&journals)
        .and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect())
        .with_context(|| format!("cannot read the folder {}", journals.display()))?;
    let ours = |path: &Path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_journal);
    let old = old.into_iter().filter(|path| ours(path));
    for file in old.chain([PAGE, "report.json", "junit.xml", "journals/0000-1.jsonl"].map(|name| folder.join(name))) {
        std::fs::File::create(&file)
            .and_then(|_| std::fs::remove_file(&file))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Whether a name is one that the runner gives to journals, such as `0012-1.jsonl`.
fn is_journal(name: &str) -> bool {
    let parts = name.strip_suffix(".jsonl").and_then(|name| name.split_once('-'));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    parts.is_some_and(|(index, run)| index.len() >= 4 && digits(index) && digits(run))
}

/// Writes the report's files into a folder that is prepared.
pub fn write(folder: &Path, document: &Document) -> anyhow::Result<()> {
    save(folder, "report.json", serde_json::to_string_pretty(document)?)?;
    render(folder, document)
}

/// Writes the files that are made from `report.json`.
pub fn render(folder: &Path, document: &Document) -> anyhow::Result<()> {
    save(folder, "junit.xml", junit::render(&document.scenarios, &document.summary))?;
    save(folder, PAGE, page::render(document))
}

/// Where the page of a report stands.
pub fn page(folder: &Path) -> PathBuf {
    folder.join(PAGE)
}

fn save(folder: &Path, name: &str, content: String) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
}
