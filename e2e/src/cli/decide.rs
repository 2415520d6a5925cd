//! `trysquare decide schedule` and `trysquare explain`: our scheduler on problems written as text, without a cluster and
//! without a cloud. The first answers programs, the second people.

use super::{CliError, PASSED};
use anyhow::{Context, anyhow};
use controller_core::problem::{self, Catalogue, Problem};
use controller_core::scheduling::schedule;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const AFTER_HELP: &str = "\
Examples:
  trysquare decide schedule --catalogues catalogues < problems.jsonl > answers.jsonl

A problem is a line of JSON: pods, nodes and NodePools as Kubernetes objects, the name of a catalogue of instance types, and
settings. An answer tells the nodes to launch, the pods that nodes hold which exist, and the pods left out.

Exit codes: 0 answered, 2 a problem is wrong; the line, the path and what was expected are told.";

const EXPLAIN_AFTER_HELP: &str = "\
Examples:
  trysquare explain problem.jsonl --catalogues catalogues
  trysquare explain - < problem.jsonl

Exit codes: 0 explained, 2 a problem is wrong.";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Where pods go: reads problems from standard input and writes answers.
    #[command(after_help = AFTER_HELP)]
    Schedule {
        #[command(flatten)]
        catalogues: Catalogues,
    },
}

#[derive(clap::Args)]
#[command(after_help = EXPLAIN_AFTER_HELP)]
pub(crate) struct ExplainArguments {
    /// A file of problems; `-` for standard input.
    file: PathBuf,
    #[command(flatten)]
    catalogues: Catalogues,
}

/// Where catalogues are found.
#[derive(clap::Args)]
struct Catalogues {
    /// The folder that holds NAME.json or NAME.json.gz of each catalogue that problems name.
    #[arg(long = "catalogues", value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    #[arg(skip)]
    known: BTreeMap<String, Arc<Catalogue>>,
}

pub(crate) fn run(arguments: Arguments) -> Result<u8, CliError> {
    let What::Schedule { catalogues } = arguments.what;
    for_each_problem(std::io::stdin().lock(), catalogues, |problem| {
        #[allow(clippy::disallowed_methods, reason = "how long a decision takes is part of the answer")]
        let started = std::time::Instant::now();
        let decided = schedule(&problem.snapshot, &problem.settings);
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut answer = problem::answer_of(problem, &decided);
        answer["solveNs"] = took.into();
        format!("{answer}\n")
    })
}

pub(crate) fn explain(arguments: ExplainArguments) -> Result<u8, CliError> {
    let input: Box<dyn BufRead> = match arguments.file.as_os_str() {
        dash if dash == "-" => Box::new(std::io::stdin().lock()),
        _ => {
            let file = fs::File::open(&arguments.file).with_context(|| arguments.file.display().to_string());
            Box::new(BufReader::new(file.map_err(CliError::usage)?))
        }
    };
    for_each_problem(input, arguments.catalogues, |problem| {
        problem::explain(problem, &schedule(&problem.snapshot, &problem.settings))
    })
}

/// Writes what is made of each problem, in order.
fn for_each_problem(
    input: impl BufRead,
    mut catalogues: Catalogues,
    mut make: impl FnMut(&Problem) -> String,
) -> Result<u8, CliError> {
    let mut out = std::io::stdout().lock();
    for (index, line) in input.lines().enumerate() {
        let line = line.context("reading problems").map_err(CliError::usage)?;
        if line.trim().is_empty() {
            continue;
        }
        let problem = Problem::read(&line, &mut |name| catalogues.get(name))
            .map_err(|error| CliError::usage(anyhow!("line {}: {error}", index + 1)))?;
        out.write_all(make(&problem).as_bytes()).context("writing").map_err(CliError::usage)?;
    }
    Ok(PASSED)
}

impl Catalogues {
    fn get(&mut self, name: &str) -> Result<Arc<Catalogue>, String> {
        if let Some(known) = self.known.get(name) {
            return Ok(Arc::clone(known));
        }
        let text = text(&self.folder, name)?;
        let read = Arc::new(Catalogue::read(&text).map_err(|error| format!("catalogue {name}: {error}"))?);
        self.known.insert(name.to_owned(), Arc::clone(&read));
        Ok(read)
    }
}

/// A catalogue's text, packed or not. A name is no path: nothing outside the folder is read.
fn text(folder: &Path, name: &str) -> Result<String, String> {
    if name.is_empty() || name.contains(['/', '\\']) {
        return Err(format!("{name:?}, and the name of a catalogue is expected"));
    }
    let plain = folder.join(format!("{name}.json"));
    if let Ok(text) = fs::read_to_string(&plain) {
        return Ok(text);
    }
    let packed = folder.join(format!("{name}.json.gz"));
    let unknown = format!("{name:?} is neither {} nor {}; see --catalogues", plain.display(), packed.display());
    let file = fs::File::open(&packed).map_err(|_| unknown)?;
    let mut text = String::new();
    let read = flate2::read::GzDecoder::new(file).read_to_string(&mut text);
    read.map_err(|error| format!("{}: {error}", packed.display()))?;
    Ok(text)
}
