//! `trysquare test`: runs scenarios and reports.

use super::{BACKEND, CliError, FAILED, Format, PASSED, print_json};
use crate::features::{self, Selection};
use crate::report;
use crate::runner::{self, Progress};
use crate::steps::Vocabulary;
use crate::verdict::{ScenarioResult, Verdict};
use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Feature files or folders of them; FILE:LINE names one scenario.
    #[arg(default_value = "features")]
    paths: Vec<PathBuf>,
    /// What the scenarios run on.
    #[arg(long, value_enum, default_value = "embedded")]
    backend: Backend,
    /// Only scenarios whose tags satisfy the expression, such as "@essential and not @slow".
    #[arg(long, value_name = "EXPR")]
    tags: Option<String>,
    /// Only scenarios whose title contains the text.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// The seed of every pinned source of randomness.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run each scenario twice and compare the whole journals of API requests.
    #[arg(long)]
    twice: bool,
    /// Where randomness comes from: the seed, or the system as a control that --twice does see differences.
    #[arg(long, value_enum, default_value = "pinned")]
    randomness: Randomness,
    /// How many scenarios at a time [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Write report.json, junit.xml and the journals into this folder.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Print how many calls of each kind every scenario made.
    #[arg(long)]
    calls: bool,
    /// How to print the results.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Backend {
    /// Kubernetes, EC2, kubelets and the controller in one process, in virtual time.
    Embedded,
    /// A genuine kube-apiserver with our kubelet (not there yet).
    Apiserver,
    /// A kind cluster (not there yet).
    Kind,
    /// EKS on AWS (not there yet).
    Eks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Randomness {
    /// From the seed.
    Pinned,
    /// From the system.
    System,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let selection = Selection::new(arguments.tags.as_deref(), arguments.name.as_deref()).map_err(CliError::usage)?;
    let mut scenarios = features::load(&arguments.paths).map_err(CliError::usage)?;
    Vocabulary::whole().check(&scenarios).map_err(CliError::usage)?;
    scenarios.retain(|scenario| selection.selects(scenario));
    if scenarios.is_empty() {
        return Err(CliError::usage(anyhow!("no scenario is selected; `trysquare list` shows those there are")));
    }
    if arguments.backend != Backend::Embedded {
        let name = format!("{:?}", arguments.backend).to_lowercase();
        return Err(CliError::backend(anyhow!("the backend {name} is not there yet; only embedded is")));
    }
    let options = runner::Options {
        program: std::env::current_exe().context("cannot find this program's own file").map_err(CliError::backend)?,
        seed: arguments.seed,
        pinned: arguments.randomness == Randomness::Pinned,
        twice: arguments.twice,
        jobs: arguments.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from),
        journals: arguments.report.as_ref().map(|folder| folder.join("journals")),
    };
    let started = std::time::Instant::now();
    let progress = Shown::new(scenarios.len(), arguments.format);
    let results = runner::run(&scenarios, &options, &progress).map_err(CliError::backend)?;
    progress.bar.finish_and_clear();
    let summary = report::Summary::of(&results, started.elapsed());
    if let Some(folder) = &arguments.report {
        report::write(folder, &results, &summary).map_err(CliError::backend)?;
    }
    match arguments.format {
        Format::Json => print_json(&report::document(&results, &summary))?,
        Format::Text => report::text::print(&results, &summary, arguments.calls),
    }
    let could_not_start = |result: &ScenarioResult| matches!(&result.verdict, Verdict::Failed(f) if f.step == crate::scenario::START);
    Ok(if results.iter().all(could_not_start) {
        BACKEND
    } else if results.iter().any(ScenarioResult::failed) {
        FAILED
    } else {
        PASSED
    })
}

/// A bar on a terminal, a line per scenario elsewhere.
struct Shown {
    bar: ProgressBar,
    lines: bool,
}

impl Shown {
    fn new(scenarios: usize, format: Format) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(scenarios as u64) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        Self { bar, lines: !terminal && format == Format::Text }
    }
}

impl Progress for Shown {
    fn ended(&self, result: &ScenarioResult) {
        self.bar.set_message(result.scenario.name.clone());
        self.bar.inc(1);
        if self.lines {
            eprintln!("{} {}", report::text::mark(result), result.scenario.name);
        }
    }
}
