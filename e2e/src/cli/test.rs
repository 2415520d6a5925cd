//! `trysquare test`: runs scenarios and reports.

use super::{BACKEND, CliError, FAILED, Format, PASSED, interrupt, output, print, print_json, tell};
use crate::account::CLUSTER;
use crate::backend::{BackendName, Program, definitions_of};
use crate::control_plane::Programs;
use crate::features::{self, Scenario, Selection};
use crate::kind::{self, Clusters};
use crate::permissions::Permission;
use crate::place::{ControlPlanes, Places};
use crate::release::{self, CHART, Release};
use crate::report;
use crate::runner::{self, Progress};
use crate::scenario::On;
use crate::steps::Vocabulary;
use crate::temporary::TemporaryFolder;
use crate::tied;
use crate::tools::Tool;
use crate::under_test::UnderTest;
use crate::verdict::{ScenarioResult, Verdict};
use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const AFTER_HELP: &str = "\
Examples:
  trysquare test features/interruption/spot_notice.feature:11
  trysquare test --tags '@essential and not @slow' --jobs 4
  trysquare test --tags @essential --twice --report out

Exit codes: 0 all passed, 1 something failed, 2 wrong usage, 3 the backend could not start.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// What the scenarios run on.
    #[arg(long, value_enum, default_value = "embedded")]
    backend: BackendName,
    /// The controller under test: ours, upstream, the path of a program, or nothing as a control that scenarios notice.
    #[arg(long, value_name = "CONTROLLER", default_value = "ours")]
    controller: UnderTest,
    /// Run each scenario twice and compare the whole journals of API requests.
    #[arg(long)]
    twice: bool,
    /// Where randomness comes from: the seed, or the system as a control that --twice does see differences.
    #[arg(long, value_enum, default_value = "pinned")]
    randomness: Randomness,
    /// Write report.html, report.json, junit.xml and the journals into this folder.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Print how many calls of each kind every scenario made.
    #[arg(long)]
    calls: bool,
}

/// What `test` and `conformance` have in common: which scenarios, and how they are run.
#[derive(clap::Args)]
pub(super) struct Choice {
    /// Feature files or folders of them; FILE:LINE names one scenario.
    #[arg(default_value = "features")]
    pub(super) paths: Vec<PathBuf>,
    /// A variable of the controller's environment, as NAME=VALUE; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    controller_env: Vec<(String, String)>,
    /// Whether AWS refuses the controller what deploy/cloudformation does not allow it.
    #[arg(long, value_enum, default_value = "off")]
    iam: IamChoice,
    /// Take a permission away from the controller, by its name in `trysquare permissions`.
    #[arg(long, value_name = "PERMISSION")]
    without: Option<Permission>,
    /// Only scenarios whose tags satisfy the expression, such as "@essential and not @slow".
    #[arg(long, value_name = "EXPR")]
    pub(super) tags: Option<String>,
    /// Only scenarios whose title contains the text.
    #[arg(long, value_name = "TEXT")]
    pub(super) name: Option<String>,
    /// The seed of every pinned source of randomness.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// In real time, run scenarios that wait for more than about seven minutes too (@clock).
    #[arg(long)]
    long: bool,
    /// How many scenarios at a time [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    #[command(flatten)]
    kind: KindChoice,
    /// How to print the results.
    #[arg(long, value_enum, default_value = "text")]
    pub(super) format: Format,
}

/// Whether policies decide who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum IamChoice {
    /// Everybody may do everything.
    Off,
    /// The controller may do what the policies of the CloudFormation template allow.
    Enforce,
}

/// What only the backend kind asks for.
#[derive(clap::Args)]
struct KindChoice {
    /// The image of kind's nodes; by default the one that belongs to the kind program.
    #[arg(long, value_name = "NODE_IMAGE")]
    image: Option<String>,
    /// The controller's image on kind; by default the one that belongs to the chart, or upstream's of the same release.
    #[arg(long, value_name = "IMAGE")]
    controller_image: Option<String>,
    /// Leave the kind clusters there for the next run, which takes those that are there.
    #[arg(long)]
    keep_clusters: bool,
}

impl Choice {
    /// What the scenarios run on.
    pub(super) fn on(&self, backend: BackendName, controller: UnderTest) -> On {
        On {
            environment: self.controller_env.iter().cloned().collect(),
            enforce_iam: self.iam == IamChoice::Enforce,
            without: self.without.clone(),
            ..On::with(backend, controller)
        }
    }

    /// How they are run, once each; with the report's folder, what is kept there. Fails where the backend cannot start.
    pub(super) fn options(
        &self,
        on: On,
        report: Option<&Path>,
        temporary: Option<&TemporaryFolder>,
    ) -> anyhow::Result<runner::Options> {
        Ok(runner::Options {
            program: tied::this_program()?,
            jobs: self.jobs.map_or_else(|| usual_jobs(&on), usize::from),
            without: Vec::new(),
            places: places(&on, &self.kind, temporary)?,
            on,
            long: self.long,
            logs: report.map(report::logs),
            seed: self.seed,
            pinned: true,
            twice: false,
            journals: report.map(report::journals),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Randomness {
    /// From the seed.
    Pinned,
    /// From the system.
    System,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let choice = &arguments.choice;
    let scenarios = selected(choice)?;
    let on = choice.on(arguments.backend, arguments.controller.clone());
    let is_virtual = on.is_virtual();
    if arguments.twice && !is_virtual {
        return Err(CliError::usage(anyhow!(
            "--twice compares runs to the byte, which only our controller on the embedded backend can repeat"
        )));
    }
    if let Some(folder) = &arguments.report {
        report::prepare(folder).map_err(CliError::usage)?;
    }
    let needs_folder = !is_virtual || (arguments.twice && arguments.report.is_none());
    let temporary = needs_folder.then(TemporaryFolder::make).transpose().map_err(CliError::backend)?;
    let mut options = choice.options(on, arguments.report.as_deref(), temporary.as_ref()).map_err(CliError::backend)?;
    options.pinned = arguments.randomness == Randomness::Pinned;
    options.twice = arguments.twice;
    options.journals =
        options.journals.or(temporary.as_ref().filter(|_| arguments.twice).map(|folder| folder.path().to_owned()));
    #[allow(clippy::disallowed_methods)] // Wall time is what is measured: how long the run took.
    let started = std::time::Instant::now();
    #[allow(clippy::disallowed_methods)] // The report says when it was made, outside every simulation.
    let started_at = jiff::Timestamp::now();
    let progress = Arc::new(Shown::new(scenarios.len(), choice.format));
    interrupt::watch(progress.clone(), temporary.as_ref().map(|folder| folder.path().to_owned()))
        .map_err(CliError::backend)?;
    let results = runner::run(&scenarios, &options, &*progress).map_err(CliError::usage)?;
    progress.bar.finish_and_clear();
    let command = std::env::args().skip(1).collect();
    let document = report::Document::new(results, started.elapsed(), started_at, command);
    let report::Document { summary, scenarios: results, .. } = &document;
    // Whatever becomes of the files: what was found out is printed.
    let written = arguments.report.as_ref().map_or(Ok(()), |folder| report::write(folder, &document));
    match choice.format {
        Format::Json => print_json(&document)?,
        Format::Text => {
            print(&report::text::render(results, summary, arguments.calls, output::colours(&std::io::stdout())))?
        }
    }
    written.map_err(CliError::usage)?;
    if let (Some(folder), Format::Text) = (&arguments.report, choice.format) {
        print(&format!("report: {}\n", report::page(folder).display()))?;
    }
    let could_not_start =
        |result: &ScenarioResult| matches!(&result.verdict, Verdict::Failed(f) if f.step == crate::scenario::START);
    Ok(if results.iter().all(could_not_start) {
        BACKEND
    } else if results.iter().any(ScenarioResult::failed) {
        FAILED
    } else {
        PASSED
    })
}

/// The scenarios that the command line names, every line of which is a known step.
pub(super) fn selected(choice: &Choice) -> Result<Vec<Scenario>, CliError> {
    let selection = Selection::new(choice.tags.as_deref(), choice.name.as_deref()).map_err(CliError::usage)?;
    let all = features::load(&choice.paths).map_err(CliError::usage)?;
    let scenarios: Vec<Scenario> = all.iter().filter(|scenario| selection.selects(scenario)).cloned().collect();
    if scenarios.is_empty() {
        return Err(CliError::usage(match selection.unknown_tag(&all) {
            Some((tag, nearest)) => {
                anyhow!("no scenario is selected: none carries @{tag}; the nearest tag is @{nearest}")
            }
            None => anyhow!("no scenario is selected; `trysquare list` shows those there are"),
        }));
    }
    let vocabulary = Vocabulary::whole();
    let lines = scenarios.iter().flat_map(|scenario| scenario.steps.iter().map(move |line| (scenario, line)));
    let mut unknown: Vec<String> =
        lines.filter_map(|(scenario, line)| vocabulary.find(scenario, line).err()).map(|e| e.to_string()).collect();
    // A line of a background comes once for each of its scenarios.
    let mut told = BTreeSet::new();
    unknown.retain(|message| told.insert(message.clone()));
    if unknown.is_empty() { Ok(scenarios) } else { Err(CliError::usage(anyhow!(unknown.join("\n")))) }
}

/// A variable as `NAME=VALUE`.
fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a variable is written NAME=VALUE, such as LOG_LEVEL=debug".to_owned()),
    }
}

/// How many scenarios run at a time: in virtual time each keeps a core busy, in real time most of them wait. A kind cluster
/// takes a good half gigabyte, and a tenth of a core where nothing happens.
pub(super) fn usual_jobs(on: &On) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match on.backend {
        _ if on.is_virtual() => cores,
        BackendName::Kind => cores + 1,
        _ => 3 * cores,
    }
}

/// What places are made of, where the backend has some. All programs that will be needed are looked for now.
fn places(on: &On, kind: &KindChoice, folder: Option<&TemporaryFolder>) -> anyhow::Result<Option<Places>> {
    if on.backend != BackendName::Kind
        && (kind.image.is_some() || kind.controller_image.is_some() || kind.keep_clusters)
    {
        return Err(anyhow!("--image, --controller-image and --keep-clusters are for --backend kind"));
    }
    if on.enforce_iam && matches!(on.controller, UnderTest::Upstream | UnderTest::Program(_)) {
        return Err(anyhow!(
            "--iam enforce is for our controller: deploy/cloudformation allows what it asks for, and {} asks for more",
            on.controller
        ));
    }
    match on.backend {
        BackendName::Embedded if on.is_virtual() => return Ok(None),
        BackendName::Embedded | BackendName::Apiserver => {}
        BackendName::Kind => return kind_clusters(on, kind).map(Some),
        other => return Err(anyhow!("the backend {other} is not there yet; embedded, apiserver and kind are")),
    }
    if let UnderTest::Program(path) = &on.controller
        && !path.is_file()
    {
        return Err(anyhow!("--controller {}: there is no such file", path.display()));
    }
    Program::of(&on.controller)?;
    let (BackendName::Apiserver, Some(folder)) = (on.backend, folder) else { return Ok(None) };
    Ok(Some(Places::ControlPlanes(control_planes(on, folder)?)))
}

/// What control planes are made of.
pub(super) fn control_planes(on: &On, folder: &TemporaryFolder) -> anyhow::Result<ControlPlanes> {
    let definitions = definitions_of(&on.controller)?;
    let programs = Programs::find()?;
    let release = Release::render(&Tool::Helm.find()?, Path::new(CHART), &release::values(CLUSTER))?;
    let folder = folder.path().to_owned();
    Ok(ControlPlanes { programs, definitions, release, folder })
}

/// What kind clusters are made of.
fn kind_clusters(on: &On, choice: &KindChoice) -> anyhow::Result<Places> {
    let controller_image = match (&choice.controller_image, &on.controller) {
        (Some(image), _) => image.clone(),
        (None, UnderTest::Ours | UnderTest::Nothing) => kind::our_image("controller"),
        (None, UnderTest::Upstream) => {
            format!("public.ecr.aws/karpenter/controller:{}", Tool::Karpenter.version().trim_start_matches('v'))
        }
        (None, UnderTest::Program(path)) => {
            return Err(anyhow!(
                "on kind a controller is an image: give --controller-image beside --controller {}",
                path.display()
            ));
        }
    };
    let helm = Tool::Helm.find()?;
    let chart = std::path::absolute(CHART)?;
    Ok(Places::Kind(Clusters {
        kind: Tool::Kind.find()?,
        release: Release::render(&helm, &chart, &release::values(CLUSTER))?,
        helm,
        node_image: choice.image.clone(),
        controller_image,
        ec2_image: kind::our_image("fake-ec2"),
        chart,
        definitions: definitions_of(&on.controller)?,
        folder: kind::folder()?,
        keep: choice.keep_clusters,
    }))
}

/// A bar on a terminal, a line per scenario elsewhere.
pub(super) struct Shown {
    pub(super) bar: ProgressBar,
    pub(super) scenarios: usize,
    pub(super) ended: AtomicUsize,
    /// Whether each scenario is a line; none is once the run was interrupted, whose last word that is.
    pub(super) lines: AtomicBool,
}

impl Shown {
    pub(super) fn new(scenarios: usize, format: Format) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(scenarios as u64) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        Self { bar, scenarios, ended: AtomicUsize::new(0), lines: AtomicBool::new(!terminal && format == Format::Text) }
    }
}

impl Progress for Shown {
    fn ended(&self, result: &ScenarioResult) {
        self.bar.set_message(result.scenario.name.clone());
        self.bar.inc(1);
        self.ended.fetch_add(1, Ordering::Relaxed);
        if self.lines.load(Ordering::Relaxed) {
            tell(&format!("{} {}", report::text::mark(result), result.scenario.name));
        }
    }
}
