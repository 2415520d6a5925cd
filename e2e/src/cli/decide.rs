//! `trysquare decide schedule` and `trysquare explain`: our scheduler on problems written as text, and for `explain` on a
//! cluster that runs. The first answers programs, the second people.

use super::{CliError, Format, PASSED, live, print, print_json};
use anyhow::{Context, anyhow};
use controller_core::explanation::Explanation;
use controller_core::problem::{self, Catalogue, Problem};
use controller_core::scheduling::schedule;
use controller_core::snapshot::PodName;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const AFTER_HELP: &str = "\
Examples:
  trysquare decide schedule --catalogues catalogues < problems.jsonl > answers.jsonl

A problem is a line of JSON: pods, nodes and NodePools as Kubernetes objects, the name of a catalogue of instance types, and
settings; docs/problems.md tells its form. An answer tells the nodes to launch, the pods that nodes hold which exist, and the
pods left out.

Exit codes: 0 answered, 2 a problem is wrong; the line, the path and what was expected are told.";

const EXPLAIN_AFTER_HELP: &str = "\
Examples:
  trysquare explain                                   the pods that wait in the cluster of KUBECONFIG
  trysquare explain --pod default/web-7d9c            one of them
  trysquare explain problem.jsonl --catalogues catalogues
  trysquare explain - < problem.jsonl

A cluster is looked at, and nothing in it is changed: it takes `list` and `watch` of what the controller watches, and
credentials for AWS that may describe instance types, subnets and prices. The controller that runs there need not be ours;
settings are read from the same variables as its own (PREFERENCE_POLICY, MIN_VALUES_POLICY, FEATURE_GATES and so on). What
that controller alone knows, such as offerings it found out of stock, is not known here.

Exit codes: 0 explained, 2 a problem is wrong or there is no such pod, 3 the cluster or AWS cannot be asked.";

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
    /// A file of problems, `-` for standard input [default: the cluster of the kubeconfig].
    file: Option<PathBuf>,
    #[command(flatten)]
    catalogues: Catalogues,
    /// The kubeconfig of the cluster [default: KUBECONFIG, ~/.kube/config, or the pod's own account].
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    kubeconfig: Option<PathBuf>,
    /// Only what becomes of this pod of the cluster.
    #[arg(long, value_name = "NAMESPACE/NAME", conflicts_with = "file", value_parser = pod_name)]
    pod: Option<PodName>,
    /// How to print it; JSON is a list.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

fn pod_name(text: &str) -> Result<PodName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(PodName::new(namespace, name)),
        _ => Err("a namespace and a name are wanted, as in default/web".to_owned()),
    }
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
        print(&format!("{answer}\n"))
    })?;
    Ok(PASSED)
}

pub(crate) fn explain(arguments: ExplainArguments) -> Result<u8, CliError> {
    let ExplainArguments { file, catalogues, kubeconfig, pod, format } = arguments;
    let mut list = Vec::new();
    let mut take = |explanation: Explanation| match format {
        Format::Text => print(&explanation.to_string()),
        Format::Json => {
            list.push(explanation);
            Ok(())
        }
    };
    match file {
        None => take(live::explain(kubeconfig.as_deref(), pod.as_ref())?)?,
        Some(file) => for_each_problem(open(&file)?, catalogues, |problem| take(problem.explain()))?,
    }
    if format == Format::Json {
        print_json(&list)?;
    }
    Ok(PASSED)
}

fn open(file: &Path) -> Result<Box<dyn BufRead>, CliError> {
    if file.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let opened = fs::File::open(file).with_context(|| file.display().to_string());
    Ok(Box::new(BufReader::new(opened.map_err(CliError::usage)?)))
}

/// Takes problems one by one, in order.
fn for_each_problem(
    input: impl BufRead,
    mut catalogues: Catalogues,
    mut take: impl FnMut(&Problem) -> Result<(), CliError>,
) -> Result<(), CliError> {
    for (index, line) in input.lines().enumerate() {
        let line = line.context("reading problems").map_err(CliError::usage)?;
        if line.trim().is_empty() {
            continue;
        }
        let problem = Problem::read(&line, &mut |name| catalogues.get(name))
            .map_err(|error| CliError::usage(anyhow!("line {}: {error}", index + 1)))?;
        take(&problem)?;
    }
    Ok(())
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
