//! `trysquare conformance`: the whole catalogue, controller by controller and backend by backend. Columns are run here, one
//! after another, or were run before with `trysquare test --report` and are put together.

use super::test::{self, Choice, Shown};
use super::{BACKEND, CliError, FAILED, Format, PASSED, interrupt, print, print_json, tell};
use crate::backend::BackendName;
use crate::conformance::compare::Comparison;
use crate::conformance::decide::{self, Facts, Run};
use crate::conformance::{Document, Outcome, differences, files, slug};
use crate::features::{self, Scenario, Selection};
use crate::report;
use crate::runner::{self, Progress};
use crate::scenario::On;
use crate::temporary::TemporaryFolder;
use crate::under_test::UnderTest;
use crate::verdict::ScenarioResult;
use anyhow::anyhow;
use indicatif::ProgressStyle;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many rows are printed of each kind; the report has them all.
const ROWS_SHOWN: usize = 40;

const AFTER_HELP: &str = "\
Examples:
  trysquare conformance --report out
  trysquare conformance --controller ours --controller upstream \\
      --backend embedded --backend apiserver --report out
  trysquare test --controller upstream --report a    columns, each when there is time for it,
  trysquare conformance --run a --run b --report out  put together afterwards
  trysquare conformance --report out --baseline docs/conformance/conformance.json
  trysquare report diff before/conformance.json after/conformance.json

Of runs of the same controller on the same backend one column is made; of a scenario that several
of them have, the latest counts.

Exit codes: 0 nothing failed, 1 a row failed (with --baseline: passed there and does not here),
2 wrong usage, 3 a backend could not start.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// A controller to run: ours, upstream, nothing (as a control), or the path of a program; may be given several times [default: ours,
    /// unless runs are named].
    #[arg(long = "controller", value_name = "CONTROLLER")]
    controllers: Vec<UnderTest>,
    /// A backend to run each controller on; may be given several times [default: embedded, unless runs are named].
    #[arg(long = "backend", value_name = "BACKEND", value_enum)]
    backends: Vec<BackendName>,
    /// A folder that `trysquare test --report` wrote, to be taken into the report; may be given several times.
    #[arg(long = "run", value_name = "DIR")]
    runs: Vec<PathBuf>,
    /// A folder that `trysquare test --report` wrote for a controller that does nothing, to mark the passes that it has
    /// too without giving it a column.
    #[arg(long, value_name = "DIR")]
    idle: Vec<PathBuf>,
    /// Write conformance.html, .json, .md, junit.xml, badges and the runs into this folder.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// An earlier conformance.json: fail only where something passed there and does not here.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let Arguments { choice, .. } = arguments;
    let columns = columns(arguments);
    let at_hand = at_hand(choice, columns.is_empty())?;
    let selection = Selection::new(choice.tags.as_deref(), choice.name.as_deref()).map_err(CliError::usage)?;
    let scenarios = if columns.is_empty() { Vec::new() } else { test::selected(choice)? };
    // What cannot be read is told before an hour is spent.
    let baseline = arguments.baseline.as_deref().map(Document::read).transpose().map_err(CliError::usage)?;
    let mut taken = Vec::new();
    let runs = read_runs(&arguments.runs, arguments.report.as_deref(), &mut taken)?;
    let idle = read_runs(&arguments.idle, None, &mut Vec::new())?;
    if let Some(folder) = &arguments.report {
        files::prepare(folder).map_err(CliError::usage)?;
        for run in runs.iter().filter(|run| !run.inside) {
            files::copy_run(&run.folder, &folder.join(&run.beside)).map_err(CliError::usage)?;
        }
    }
    let mut parts: Vec<Run> = runs.into_iter().flat_map(|run| run.parts).collect();
    parts.extend(run_columns(arguments, &columns, &scenarios, &mut taken)?);
    let asked_for = |scenario: &Scenario| selection.selects(scenario);
    #[allow(clippy::disallowed_methods)] // The report says when it was made, outside every simulation.
    let made_at = jiff::Timestamp::now();
    let document = decide::decide(&Facts {
        runs: parts,
        idle: idle.into_iter().flat_map(|run| run.parts).collect(),
        scenarios: &at_hand,
        asked_for: &asked_for,
        differences: differences::listed(),
        made_at,
    });
    // Whatever becomes of the files: what was found out is printed.
    let written = arguments.report.as_ref().map_or(Ok(()), |folder| files::write(folder, &document));
    match choice.format {
        Format::Json => print_json(&document)?,
        Format::Text => print(&told(&document))?,
    }
    written.map_err(CliError::usage)?;
    if let (Some(folder), Format::Text) = (&arguments.report, choice.format) {
        print(&format!("report: {}\n", files::page(folder).display()))?;
    }
    let regressions = match &baseline {
        Some(baseline) => Some(regressions(baseline, &document, &at_hand, &asked_for)?),
        None => None,
    };
    let failed = document.columns.iter().any(|c| c.counts.failed > 0 || !c.failed_without_row.is_empty());
    Ok(match regressions {
        _ if document.columns.iter().any(|column| column.could_not_start.is_some()) => BACKEND,
        Some(number) if number > 0 => FAILED,
        None if failed => FAILED,
        _ => PASSED,
    })
}

/// What is to be run: every controller on every backend.
fn columns(arguments: &Arguments) -> Vec<(UnderTest, BackendName)> {
    let Arguments { controllers, backends, runs, .. } = arguments;
    if controllers.is_empty() && backends.is_empty() && !runs.is_empty() {
        return Vec::new();
    }
    let or = |given: &[UnderTest]| if given.is_empty() { vec![UnderTest::Ours] } else { given.to_vec() };
    let backends = if backends.is_empty() { vec![BackendName::Embedded] } else { backends.clone() };
    let mut columns = Vec::new();
    for controller in or(controllers) {
        for backend in &backends {
            let column = (controller.clone(), *backend);
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
    }
    columns
}

/// Every scenario there is. Where nothing is run, the features need not be there: then the runs tell what is covered.
fn at_hand(choice: &Choice, nothing_is_run: bool) -> Result<Vec<Scenario>, CliError> {
    let usual = choice.paths == [PathBuf::from("features")];
    if nothing_is_run && usual && !choice.paths[0].exists() {
        return Ok(Vec::new());
    }
    features::load(&choice.paths).map_err(CliError::usage)
}

/// A run that is taken into the report.
struct Taken {
    folder: PathBuf,
    /// Where its files are, from the report.
    beside: String,
    /// Whether they are there already.
    inside: bool,
    parts: Vec<Run>,
}

/// Reads runs. With a report's folder, each is given a place there.
fn read_runs(folders: &[PathBuf], report: Option<&Path>, taken: &mut Vec<String>) -> Result<Vec<Taken>, CliError> {
    let already = |folder: &PathBuf| report.and_then(|report| files::inside(report, folder));
    taken.extend(folders.iter().filter_map(already));
    let mut runs = Vec::new();
    for folder in folders {
        let document = report::Document::read(folder).map_err(CliError::usage)?;
        let Some(first) = document.scenarios.first() else {
            return Err(CliError::usage(anyhow!("the run in {} has no scenario", folder.display())));
        };
        let slug = slug(&first.controller, &first.backend);
        let (inside, beside) = match already(folder) {
            Some(path) => (true, path),
            None => (false, files::folder_for_run(&slug, taken)),
        };
        let parts = Run::parts(document, report.map(|_| beside.as_str()), &files::logged(folder));
        runs.push(Taken { folder: folder.clone(), beside, inside, parts });
    }
    Ok(runs)
}

fn run_columns(
    arguments: &Arguments,
    columns: &[(UnderTest, BackendName)],
    scenarios: &[Scenario],
    taken: &mut Vec<String>,
) -> Result<Vec<Run>, CliError> {
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let choice = &arguments.choice;
    let due = |controller: &UnderTest| -> Vec<Scenario> {
        scenarios.iter().filter(|scenario| decide::applies(scenario, &controller.to_string())).cloned().collect()
    };
    let total = columns.iter().map(|(controller, _)| due(controller).len()).sum();
    let shown = Arc::new(Shown::new(total, choice.format));
    if let Ok(style) = ProgressStyle::with_template("{prefix}: {bar:30} {pos}/{len} {wide_msg}") {
        shown.bar.set_style(style);
    }
    // Of control planes, one after the other.
    let temporary = TemporaryFolder::make().map_err(CliError::backend)?;
    interrupt::watch(shown.clone(), Some(temporary.path().to_owned())).map_err(CliError::backend)?;
    let mut runs = Vec::new();
    for (number, (controller, backend)) in columns.iter().enumerate() {
        let on = choice.on(*backend, controller.clone());
        let folder = arguments.report.as_ref().map(|report| {
            let beside = files::folder_for_run(&slug(&controller.to_string(), &backend.to_string()), taken);
            (report.join(&beside), beside)
        });
        let title = format!("{controller} on {backend} ({} of {})", number + 1, columns.len());
        let progress = Titled { title, shown: &shown };
        runs.push(run_column(choice, on, &due(controller), folder, &temporary, &progress)?);
    }
    shown.bar.finish_and_clear();
    Ok(runs)
}

/// Runs a column and leaves its own report, so that it can be taken into another one, also where a later column is
/// interrupted.
fn run_column(
    choice: &Choice,
    on: On,
    scenarios: &[Scenario],
    folder: Option<(PathBuf, String)>,
    temporary: &TemporaryFolder,
    progress: &Titled<'_>,
) -> Result<Run, CliError> {
    #[allow(clippy::disallowed_methods)] // Wall time is what is measured: how long the run took.
    let started = std::time::Instant::now();
    #[allow(clippy::disallowed_methods)] // The report says when it was made, outside every simulation.
    let started_at = jiff::Timestamp::now();
    progress.begins(scenarios.len());
    let not_run = |reason: String| Run {
        controller: on.controller.to_string(),
        backend: on.backend.to_string(),
        started_at,
        trysquare_version: env!("CARGO_PKG_VERSION").into(),
        folder: None,
        logs: BTreeSet::new(),
        could_not_start: Some(reason),
        results: Vec::new(),
    };
    let kept = folder.as_ref().map(|(folder, _)| folder.as_path());
    let options = match choice.options(on.clone(), kept, Some(temporary)) {
        Ok(options) => options,
        Err(error) => return Ok(progress.cannot_start(not_run(crate::scenario::explain(&error)))),
    };
    if let Some(reason) = why_not(&options, scenarios).map_err(CliError::usage)? {
        return Ok(progress.cannot_start(not_run(reason)));
    }
    if let Some(folder) = kept {
        report::prepare(folder).map_err(CliError::usage)?;
    }
    let results = runner::run(scenarios, &options, progress).map_err(CliError::usage)?;
    let command = std::env::args().skip(1).collect();
    let document = report::Document::new(results, started.elapsed(), started_at, command);
    progress.ended_with(&document.summary);
    if let Some(folder) = kept {
        report::write(folder, &document).map_err(CliError::usage)?;
    }
    let beside = folder.as_ref().map(|(_, beside)| beside.as_str());
    let parts = Run::parts(document, beside, &kept.map(files::logged).unwrap_or_default());
    Ok(parts.into_iter().next().unwrap_or_else(|| not_run("no scenario is about this controller".into())))
}

/// What keeps the backend from starting, if anything does. One scenario tells; a hundred that wait in vain for a server
/// would tell no more. In virtual time there is none to wait for.
fn why_not(options: &runner::Options, scenarios: &[Scenario]) -> anyhow::Result<Option<String>> {
    let long = |scenario: &&Scenario| !scenario.tags.iter().any(|tag| ["clock", "slow"].contains(&tag.as_str()));
    let Some(first) = scenarios.iter().find(long).filter(|_| !options.on.is_virtual()) else { return Ok(None) };
    let alone = runner::Options { journals: None, logs: None, ..options.clone() };
    let tried = runner::run(std::slice::from_ref(first), &alone, &Quiet)?;
    Ok(decide::why_none_started(&tried))
}

/// The progress of one column of several.
struct Titled<'a> {
    title: String,
    shown: &'a Shown,
}

impl Titled<'_> {
    fn begins(&self, scenarios: usize) {
        self.shown.bar.set_prefix(self.title.clone());
        self.tell(&format!("{scenarios} scenarios"));
    }

    fn cannot_start(&self, run: Run) -> Run {
        self.tell(&format!("could not start: {}", run.could_not_start.as_deref().unwrap_or_default()));
        run
    }

    fn ended_with(&self, summary: &report::Summary) {
        let report::Summary { passed, failed, skipped, wall_s, .. } = summary;
        self.tell(&format!("{passed} passed, {failed} failed, {skipped} skipped in {wall_s:.1}s"));
    }

    fn tell(&self, what: &str) {
        self.shown.bar.suspend(|| tell(&format!("{}: {what}", self.title)));
    }
}

impl Progress for Titled<'_> {
    fn ended(&self, result: &ScenarioResult) {
        self.shown.ended(result);
    }
}

struct Quiet;

impl Progress for Quiet {
    fn ended(&self, _: &ScenarioResult) {}
}

/// The result for people.
fn told(document: &Document) -> String {
    let mut text = String::from("\n");
    for (index, column) in document.columns.iter().enumerate() {
        text += &format!("{}: {}\n", column.title(), column.counts.told());
        if let Some(idle) = column.passed_when_idle.filter(|_| column.counts.passed > 0) {
            text += &format!("  {idle} of the passed are passed by a controller that does nothing, too\n");
        }
        if let Some(reason) = &column.could_not_start {
            text += &format!("  could not start: {reason}\n");
            continue;
        }
        for outcome in [Outcome::Failed, Outcome::Differs, Outcome::Skipped] {
            let cells: Vec<_> = document.cells_that(outcome, index).collect();
            for (row, cell) in cells.iter().take(ROWS_SHOWN) {
                let failure = cell.scenarios.iter().find_map(|scenario| scenario.failure.as_ref());
                let why = match outcome {
                    Outcome::Failed => failure.map(|failure| failure.message.clone()),
                    Outcome::Differs => cell.differences.first().map(|difference| difference.reason.clone()),
                    _ => Some(format!("lacks {}", cell.missing.iter().cloned().collect::<Vec<_>>().join(", "))),
                };
                let why = why.unwrap_or_default();
                text += &format!("  {outcome}  {}: {}\n", row.id, why.lines().next().unwrap_or_default());
            }
            if cells.len() > ROWS_SHOWN {
                text += &format!("  and {} more {outcome}\n", cells.len() - ROWS_SHOWN);
            }
        }
        for scenario in &column.failed_without_row {
            text += &format!("  failed, and restating no row  {}\n", scenario.name);
        }
    }
    text
}

/// Tells what passed in the baseline and does not now, and how much that is. What was not asked for is not missed.
fn regressions(
    baseline: &Document,
    document: &Document,
    at_hand: &[Scenario],
    asked_for: &dyn Fn(&Scenario) -> bool,
) -> Result<usize, CliError> {
    let comparison = Comparison::of(baseline, document);
    if comparison.columns.is_empty() {
        let titles = |document: &Document| document.columns.iter().map(|c| c.title()).collect::<Vec<_>>().join(", ");
        return Err(CliError::usage(anyhow!(
            "the baseline has none of the columns of this report: it has {}, and this has {}",
            titles(baseline),
            titles(document)
        )));
    }
    let rows = |of: &dyn Fn(&&Scenario) -> bool| -> BTreeSet<String> {
        at_hand.iter().filter(of).flat_map(Scenario::rows).map(str::to_owned).collect()
    };
    let (asked, all) = (rows(&|scenario| asked_for(scenario)), rows(&|_| true));
    let left_out = |row: &str| all.contains(row) && !asked.contains(row);
    let regressions: Vec<_> = comparison.regressions().filter(|change| !left_out(&change.row)).collect();
    for change in &regressions {
        let now = change.to.map_or("gone", Outcome::words);
        tell(&format!("regression: {} for {}: passed in the baseline, {now} now", change.row, change.column));
    }
    if !comparison.only_before.is_empty() {
        tell(&format!("not compared with the baseline: {}", comparison.only_before.join(", ")));
    }
    let number = regressions.len();
    tell(&format!("{number} regression{} against the baseline", if number == 1 { "" } else { "s" }));
    Ok(number)
}
