//! `trysquare contract`: fake-kube beside a genuine control plane.

use super::table::{Cell, Table};
use super::{BACKEND, CliError, FAILED, Format, PASSED, output, print, print_json, tell};
use crate::contract::{self, Options, Part, Section};
use crate::control_plane::Programs;
use crate::temporary::TemporaryFolder;
use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeSet;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Examples:
  trysquare contract                                   everything
  trysquare contract --only sequences --name watch     one rule
  trysquare contract --only scheduler --seed 7 --cases 200
  trysquare contract --only sequences --record fake-kube/contract/recorded

Exit codes: 0 equal but for the listed differences, 1 differences, 2 wrong usage, 3 genuine programs are missing or do
not start.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Files of sequences, or folders of them.
    #[arg(default_value = contract::default_path().as_os_str())]
    paths: Vec<PathBuf>,
    /// Compare one part alone.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Only sequences whose name contains the text.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// The seed of names and of the scheduler's random clusters.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many random clusters the schedulers see, of four pods each.
    #[arg(long, value_name = "N", default_value_t = 60)]
    cases: usize,
    /// Keep what the genuine server answers in this folder, for the tests that have no such server.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// How to print the results.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let sequences = contract::load(&arguments.paths, arguments.name.as_deref()).map_err(CliError::usage)?;
    if sequences.is_empty() && arguments.only.is_none_or(|only| only == Part::Sequences) {
        return Err(CliError::usage(anyhow!("no sequence is selected")));
    }
    let programs = Programs::find().map_err(CliError::backend)?;
    let folder = TemporaryFolder::make().map_err(CliError::backend)?;
    let options = Options {
        sequences,
        only: arguments.only,
        seed: arguments.seed,
        cases: arguments.cases,
        record: arguments.record.clone(),
        folder: folder.path().to_owned(),
    };
    let bar = ProgressBar::new(0);
    bar.set_style(
        ProgressStyle::with_template("{msg:12} [{bar:30}] {pos}/{len} {elapsed}")
            .unwrap_or(ProgressStyle::default_bar()),
    );
    bar.set_message("starting");
    let progress = |section: &str, done: usize, of: usize| {
        bar.set_message(section.to_owned());
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::backend)?;
    #[allow(clippy::disallowed_methods)] // Wall time is what is measured: how long the run took.
    let started = std::time::Instant::now();
    let sections = runtime.block_on(async {
        tokio::select! {
            sections = contract::run(&programs, &options, &progress) => sections.map(Some),
            _ = tokio::signal::ctrl_c() => Ok(None),
        }
    });
    bar.finish_and_clear();
    let Some(sections) = sections.map_err(CliError::backend)? else {
        tell("trysquare: interrupted");
        return Ok(BACKEND);
    };
    match arguments.format {
        Format::Json => print_json(&sections)?,
        Format::Text => {
            print(&rendered(&sections, output::colours(&std::io::stdout())))?;
            print(&format!("\n{} s\n", started.elapsed().as_secs()))?;
        }
    }
    let faults = sections.iter().flat_map(|section| &section.differences).any(|found| found.reason.is_none());
    Ok(if faults { FAILED } else { PASSED })
}

/// Every fault, then the accepted differences by their reasons, then the figures.
fn rendered(sections: &[Section], colours: bool) -> String {
    let mut text = String::new();
    for section in sections {
        for found in section.differences.iter().filter(|found| found.reason.is_none()) {
            text += &format!("{} {}\n  {}\n", section.name, found.case, found.found.replace('\n', "\n  "));
        }
    }
    let accepted: BTreeSet<(&str, &str)> = sections
        .iter()
        .flat_map(|section| &section.differences)
        .filter_map(|found| Some((found.case.as_str(), found.reason.as_deref()?)))
        .collect();
    if !accepted.is_empty() {
        text += "accepted differences:\n";
    }
    for (case, reason) in accepted {
        text += &format!("  {case}: {reason}\n");
    }
    let mut table = Table::new(["SECTION", "CASES", "EQUAL", "ACCEPTED", "FAULTS"]);
    for section in sections {
        let differing: BTreeSet<&str> = section.differences.iter().map(|found| found.case.as_str()).collect();
        let count = |fault: bool| section.differences.iter().filter(|found| found.reason.is_none() == fault).count();
        let faults = Cell::new(count(true).to_string());
        table.row([
            Cell::new(section.name),
            Cell::new(section.cases.to_string()),
            Cell::new((section.cases - differing.len().min(section.cases)).to_string()),
            Cell::new(count(false).to_string()),
            if count(true) == 0 { faults.green() } else { faults.yellow() },
        ]);
    }
    text += &table.render(colours);
    for section in sections {
        text.extend(section.notes.iter().map(|note| format!("{}: {note}\n", section.name)));
    }
    text
}
