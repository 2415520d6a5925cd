//! The report of a run: `report.json` (schema: docs/report.md), `junit.xml`, and the text printed at its end.

mod junit;
pub(crate) mod text;

use crate::verdict::{ScenarioResult, Verdict};
use anyhow::Context;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the schema of `report.json`. Raised when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// The numbers at the end of a run.
#[derive(Clone, Debug, Serialize)]
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
        let failed = results.iter().filter(|result| result.failed()).count();
        let skipped = results.iter().filter(|result| matches!(result.verdict, Verdict::Skipped { .. })).count();
        Self {
            passed: results.len() - failed - skipped,
            failed,
            skipped,
            virtual_s: results.iter().map(|result| result.virtual_s).sum(),
            wall_s: wall.as_secs_f64(),
        }
    }
}

/// The document that `report.json` and `--format json` hold.
#[derive(Serialize)]
pub struct Document<'a> {
    schema_version: u32,
    trysquare_version: &'static str,
    summary: &'a Summary,
    scenarios: &'a [ScenarioResult],
}

/// Puts the document together.
pub fn document<'a>(results: &'a [ScenarioResult], summary: &'a Summary) -> Document<'a> {
    Document {
        schema_version: SCHEMA_VERSION,
        trysquare_version: env!("CARGO_PKG_VERSION"),
        summary,
        scenarios: results,
    }
}

/// The folder of the journals in a report's folder.
pub fn journals(folder: &Path) -> PathBuf {
    folder.join("journals")
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
    for file in old.chain([folder.join("report.json"), folder.join("junit.xml"), journals.join("0000-1.jsonl")]) {
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
pub fn write(folder: &Path, results: &[ScenarioResult], summary: &Summary) -> anyhow::Result<()> {
    let save = |name: &str, content: String| {
        let path = folder.join(name);
        std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    };
    save("report.json", serde_json::to_string_pretty(&document(results, summary))?)?;
    save("junit.xml", junit::render(results, summary))
}
