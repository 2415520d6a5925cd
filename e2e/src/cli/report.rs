//! `trysquare report`: draws the page of a run anew from its `report.json`, as after an update of the program; and compares
//! two conformance reports.

use super::{CliError, Format, PASSED, print, print_json};
use crate::conformance::Document as Conformance;
use crate::conformance::compare::{Change, Comparison};
use crate::report::{self, Document};
use anyhow::anyhow;
use std::path::{Path, PathBuf};

const AFTER_HELP: &str = "\
Examples:
  trysquare report out                           draws out/report.html anew
  trysquare report diff before after             what changed between two conformance reports

Exit codes: 0 done, 2 wrong usage.";

const AFTER_DIFF_HELP: &str = "\
Examples:
  trysquare report diff docs/conformance out
  trysquare report diff before.json after.json --format json

Columns are compared by controller and backend. Where one program is left over on a backend in each
report, those two are compared: two versions of one have two paths.

Exit codes: 0 compared, whatever came of it, 2 wrong usage.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    /// The folder that `trysquare test --report` wrote.
    folder: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Tells what changed between two conformance reports: row, column, from, to.
    Diff(Diff),
}

#[derive(clap::Args)]
#[command(after_help = AFTER_DIFF_HELP)]
struct Diff {
    /// The earlier conformance.json, or its folder.
    before: PathBuf,
    /// The later one.
    after: PathBuf,
    /// How to print the changes.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    match (&arguments.command, &arguments.folder) {
        (Some(Command::Diff(diff)), _) => compare(diff),
        (None, Some(folder)) => draw(folder),
        (None, None) => Err(CliError::usage(anyhow!(
            "name the folder that `trysquare test --report` wrote, or compare with `trysquare report diff A B`"
        ))),
    }
}

fn draw(folder: &Path) -> Result<u8, CliError> {
    let document = Document::read(folder).map_err(CliError::usage)?;
    report::render(folder, &document).map_err(CliError::usage)?;
    print(&format!("report: {}\n", report::page(folder).display()))?;
    Ok(PASSED)
}

fn compare(diff: &Diff) -> Result<u8, CliError> {
    let before = Conformance::read(&diff.before).map_err(CliError::usage)?;
    let after = Conformance::read(&diff.after).map_err(CliError::usage)?;
    let comparison = Comparison::of(&before, &after);
    match diff.format {
        Format::Json => print_json(&comparison)?,
        Format::Text => print(&told(&comparison))?,
    }
    Ok(PASSED)
}

fn told(comparison: &Comparison) -> String {
    let mut text = String::new();
    for column in &comparison.columns {
        let changes: Vec<&Change> = comparison.changes.iter().filter(|change| change.column == *column).collect();
        text += &format!("{column}: {}\n", counted(changes.len()));
        let width = changes.iter().map(|change| change.row.len()).max().unwrap_or(0);
        for change in changes {
            let word = |outcome: Option<crate::conformance::Outcome>| outcome.map_or("no such row", |o| o.words());
            text += &format!("  {:<width$}  {} → {}\n", change.row, word(change.from), word(change.to));
        }
    }
    for (columns, which) in [(&comparison.only_before, "first"), (&comparison.only_after, "second")] {
        if !columns.is_empty() {
            text += &format!("only in the {which} report: {}\n", columns.join(", "));
        }
    }
    if comparison.columns.is_empty() {
        text += "the reports have no column in common\n";
    }
    text
}

fn counted(changes: usize) -> String {
    match changes {
        0 => "nothing changed".into(),
        1 => "1 change".into(),
        several => format!("{several} changes"),
    }
}
