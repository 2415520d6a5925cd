//! The command line. Exit codes: 0 all passed, 1 something failed, 2 wrong usage, 3 the backend could not start.

mod cloud;
mod compare;
mod completions;
mod conformance;
mod contract;
mod decide;
mod interrupt;
mod list;
mod live;
mod output;
mod permissions;
mod report;
mod serve;
mod steps;
mod table;
mod test;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
pub(crate) use output::{print, print_json, tell};
use std::process::ExitCode;
use std::sync::{LazyLock, OnceLock};

/// Everything that was asked for held.
pub(crate) const PASSED: u8 = 0;
/// A scenario failed, or two runs of one differed.
pub(crate) const FAILED: u8 = 1;
/// The command line, a path or a feature file is wrong.
pub(crate) const USAGE: u8 = 2;
/// The backend could not start.
pub(crate) const BACKEND: u8 = 3;

const AFTER_HELP: &str = "\
Examples:
  trysquare test                               every scenario under features/
  trysquare test --tags @essential             what every installation relies on
  trysquare test features/interruption         one capability
  trysquare test --name 'ten nginx' --twice    proves that the run repeats to the byte
  trysquare conformance --report out           the whole catalogue, row by row
  trysquare list --tags 'not @slow'            which scenarios there are
  trysquare list --rows                        which documented behaviours have one
  trysquare steps                              the sentences a scenario may use
  trysquare explain                            where each pod that waits in your cluster goes, and why not elsewhere
  trysquare serve --controller --speed 10      a cluster to try things in, with kubectl and the AWS CLI
  trysquare interrupt i-0123456789abcdef0      a spot notice, in a cloud that is served

Exit codes: 0 all passed, 1 something failed, 2 wrong usage, 3 the backend could not start.";

#[derive(Parser)]
#[command(
    name = "trysquare",
    version = version(),
    about = "A conformance kit for node autoscalers: runs documented behaviours as scenarios and reports",
    after_help = AFTER_HELP,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs scenarios and reports what came of each.
    Test(test::Arguments),
    /// Reports documented behaviours by controller and backend, from runs now or before.
    Conformance(conformance::Arguments),
    /// Serves a cluster and an account on sockets, for kubectl, the AWS CLI and boto3.
    Serve(serve::Arguments),
    /// Writes report.html and junit.xml anew from the report.json of a run, or compares conformance reports.
    Report(report::Arguments),
    /// Gives the same manifests to our controller and to upstream's and tells where they differ.
    Compare(compare::Arguments),
    /// Lists scenarios with their tags and needs, or the rows of the catalogue.
    List(list::Arguments),
    /// Decides problems written as text, without a cluster and without a cloud.
    Decide(decide::Arguments),
    /// Says for every pod that waits, in a cluster or a problem, where it goes or what each NodePool and type lacks.
    Explain(decide::ExplainArguments),
    /// Compares fake-kube with a genuine API server and scheduler.
    Contract(contract::Arguments),
    /// Lists what the controller is allowed, or takes each away to see that it is needed.
    Permissions(permissions::Arguments),
    /// Lists the sentences that scenarios may use.
    Steps(steps::Arguments),
    #[command(flatten)]
    Cloud(cloud::Command),
    /// Prints what a shell needs to complete this command line.
    Completions(completions::Arguments),
    /// Runs our controller, as its own program does: how it is started as a process under test.
    #[command(hide = true)]
    Controller(Box<controller::config::Args>),
    /// Becomes another program, which ends with the process that started this one.
    #[command(hide = true, name = crate::tied::SUBCOMMAND)]
    TiedProcess {
        parent: u32,
        #[arg(last = true, required = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Carries out one scenario: how `test` starts itself again, with a task on standard input.
    #[command(hide = true)]
    ScenarioProcess {
        /// End when standard input closes, so that no process outlives the one that started it.
        #[arg(long)]
        end_with_input: bool,
    },
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

static COMMIT: OnceLock<&str> = OnceLock::new();

fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        COMMIT.get().map_or_else(|| version.into(), |commit| format!("{version} ({commit})"))
    });
    &VERSION
}

/// Runs the program. A release names its commit in the environment of its build, any other build does not pretend to know; it
/// is read in the program's own file, so that no commit makes the library be compiled anew.
pub fn main(commit: Option<&'static str>) -> ExitCode {
    if let Some(commit) = commit {
        let _ = COMMIT.set(commit);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors to clap either: they go to standard output and exit with 0.
            let code = if error.use_stderr() { USAGE } else { PASSED };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let outcome = match cli.command {
        Command::Test(arguments) => test::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Decide(arguments) => decide::run(arguments),
        Command::Explain(arguments) => decide::explain(arguments),
        Command::Contract(arguments) => contract::run(&arguments),
        Command::Permissions(arguments) => permissions::run(&arguments),
        Command::Steps(arguments) => steps::run(&arguments),
        Command::Cloud(command) => cloud::run(&command),
        Command::Completions(arguments) => completions::run(&arguments, &Cli::command()),
        Command::Controller(arguments) => return controller::process::main(*arguments),
        Command::TiedProcess { parent, words } => {
            crate::tied::become_program(parent, &words).map(|()| PASSED).map_err(CliError::backend)
        }
        Command::ScenarioProcess { end_with_input } => scenario_process(end_with_input),
    };
    ExitCode::from(outcome.unwrap_or_else(|error| {
        tell(&format!("trysquare: {}", crate::scenario::explain(&error.cause)));
        error.code
    }))
}

/// An error with the exit code it ends the program with.
pub(crate) struct CliError {
    code: u8,
    cause: anyhow::Error,
}

impl CliError {
    pub(crate) fn usage(cause: impl Into<anyhow::Error>) -> Self {
        Self { code: USAGE, cause: cause.into() }
    }

    /// What was asked for was understood, and refused.
    pub(crate) fn refused(cause: impl Into<anyhow::Error>) -> Self {
        Self { code: FAILED, cause: cause.into() }
    }

    pub(crate) fn backend(cause: impl Into<anyhow::Error>) -> Self {
        Self { code: BACKEND, cause: cause.into() }
    }
}

fn scenario_process(end_with_input: bool) -> Result<u8, CliError> {
    let mut task = String::new();
    std::io::stdin().read_line(&mut task).map_err(CliError::usage)?;
    let task = serde_json::from_str(&task).context("no task on standard input").map_err(CliError::usage)?;
    if end_with_input {
        std::thread::spawn(|| {
            // The starting process holds the pipe open as long as it lives, however it dies.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            std::process::exit(i32::from(FAILED));
        });
    }
    let result = crate::scenario::run(task).map_err(CliError::backend)?;
    print(&serde_json::to_string(&result).map_err(CliError::backend)?)?;
    Ok(PASSED)
}
