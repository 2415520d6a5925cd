//! `trysquare permissions`: what the controller is allowed, and whether each of it is needed.

use super::table::{Cell, Table};
use super::test::{self, Shown};
use super::{BACKEND, CliError, FAILED, Format, PASSED, interrupt, output, print, print_json};
use crate::account::CLUSTER;
use crate::backend::BackendName;
use crate::features::{self, Scenario};
use crate::permissions::{Permission, iam, scenario_for};
use crate::place::Places;
use crate::release::{self, CHART, Release};
use crate::runner;
use crate::scenario::{On, START};
use crate::temporary::TemporaryFolder;
use crate::tied;
use crate::tools::Tool;
use crate::under_test::UnderTest;
use crate::verdict::{ScenarioResult, Verdict};
use anyhow::{Context, anyhow};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const AFTER_HELP: &str = "\
Examples:
  trysquare permissions                            every permission, and the scenario that shows it is needed
  trysquare permissions --check                    takes each away in turn: its scenario must fail and name it
  trysquare permissions --check --of rbac --sample 6
  trysquare permissions --check --name leases

The chart's roles are checked on a genuine API server, the CloudFormation template's statements in virtual time.

Exit codes: 0 each is needed, 1 one is not or fails for another reason, 2 wrong usage, 3 genuine programs are missing.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Only one kind of permissions.
    #[arg(long, value_enum)]
    of: Option<Kind>,
    /// Only permissions whose name contains the text.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Take each away in turn and run its scenario.
    #[arg(long)]
    check: bool,
    /// Only so many, evenly spread.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    sample: Option<u16>,
    /// How many scenarios at a time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// The folder of the features.
    #[arg(long, default_value = "features")]
    features: PathBuf,
    /// How to print the results.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Who enforces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// AWS: the statements of the CloudFormation template.
    Iam,
    /// Kubernetes: the rules of the chart's roles.
    Rbac,
}

/// One permission and what became of it.
#[derive(Serialize)]
struct Row {
    permission: Permission,
    scenario: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

/// What a scenario said without its permission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict", content = "message")]
enum Outcome {
    /// It failed and named it.
    Needed,
    /// It passed.
    NotNeeded,
    /// It failed and named something else.
    OtherFailure(String),
    /// It did not run.
    NotRun(String),
}

impl Outcome {
    fn of(permission: &Permission, result: &ScenarioResult) -> Self {
        match &result.verdict {
            Verdict::Passed => Self::NotNeeded,
            Verdict::Skipped { missing } => Self::NotRun(format!("it needs {missing}")),
            Verdict::Failed(failure) if failure.step == START => Self::NotRun(failure.message.clone()),
            Verdict::Failed(failure) if failure.message.contains(&permission.refusal()) => Self::Needed,
            Verdict::Failed(failure) => Self::OtherFailure(format!("{}: {}", failure.step, failure.message)),
        }
    }

    fn cell(&self) -> Cell {
        match self {
            Self::Needed => Cell::new("needed").green(),
            Self::NotNeeded => Cell::new("NOT NEEDED: its scenario passes without it").yellow(),
            Self::OtherFailure(message) => Cell::new(format!("FAILS OTHERWISE: {}", first_line(message))).yellow(),
            Self::NotRun(message) => Cell::new(format!("not run: {}", first_line(message))).yellow(),
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let permissions = selected(arguments)?;
    let scenarios = features::load(std::slice::from_ref(&arguments.features)).map_err(CliError::usage)?;
    let mut rows = Vec::new();
    for permission in permissions {
        let scenario = scenario_for(&permission).map_err(CliError::usage)?;
        rows.push(Row { permission, scenario, outcome: None });
    }
    if arguments.check {
        check(arguments, &scenarios, &mut rows)?;
    }
    match arguments.format {
        Format::Json => print_json(&rows)?,
        Format::Text => print(&table(&rows))?,
    }
    let outcomes: Vec<&Outcome> = rows.iter().filter_map(|row| row.outcome.as_ref()).collect();
    let did_not_run = |outcome: &&Outcome| matches!(outcome, Outcome::NotRun(_));
    Ok(if outcomes.iter().all(|outcome| **outcome == Outcome::Needed) {
        PASSED
    } else if outcomes.iter().all(did_not_run) {
        BACKEND
    } else {
        FAILED
    })
}

fn selected(arguments: &Arguments) -> Result<Vec<Permission>, CliError> {
    let mut all: Vec<Permission> = Vec::new();
    if arguments.of != Some(Kind::Rbac) {
        all.extend(iam::permissions().map_err(CliError::backend)?);
    }
    if arguments.of != Some(Kind::Iam) {
        let release = || Release::render(&Tool::Helm.find()?, Path::new(CHART), &release::values(CLUSTER));
        all.extend(release().map_err(CliError::backend)?.rules().into_iter().map(Permission::Rbac));
    }
    let named = |permission: &Permission| {
        arguments.name.as_ref().is_none_or(|name| permission.to_string().contains(name.as_str()))
    };
    all.retain(named);
    if all.is_empty() {
        return Err(CliError::usage(anyhow!("no permission is selected; `trysquare permissions` lists them")));
    }
    Ok(match arguments.sample.map(usize::from) {
        Some(count) if count < all.len() => (0..count).map(|index| all[index * all.len() / count].clone()).collect(),
        _ => all,
    })
}

/// Runs the scenario of each row without its permission.
fn check(arguments: &Arguments, scenarios: &[Scenario], rows: &mut [Row]) -> Result<(), CliError> {
    let temporary = TemporaryFolder::make().map_err(CliError::backend)?;
    let progress = Arc::new(Shown::new(rows.len(), arguments.format));
    interrupt::watch(progress.clone(), Some(temporary.path().to_owned())).map_err(CliError::backend)?;
    for kind in [Kind::Iam, Kind::Rbac] {
        let is_of = |row: &&mut Row| matches!(row.permission, Permission::Iam { .. }) == (kind == Kind::Iam);
        let mut rows: Vec<&mut Row> = rows.iter_mut().filter(is_of).collect();
        if rows.is_empty() {
            continue;
        }
        let chosen: anyhow::Result<Vec<Scenario>> = rows
            .iter()
            .map(|row| {
                let found = scenarios.iter().find(|scenario| scenario.name == row.scenario);
                found.cloned().with_context(|| format!("the features have no scenario {:?}", row.scenario))
            })
            .collect();
        let without = rows.iter().map(|row| row.permission.clone()).collect();
        let options = options(arguments, kind, without, &temporary).map_err(CliError::backend)?;
        let results = runner::run(&chosen.map_err(CliError::usage)?, &options, &*progress).map_err(CliError::usage)?;
        for (row, result) in rows.iter_mut().zip(&results) {
            row.outcome = Some(Outcome::of(&row.permission, result));
        }
    }
    progress.bar.finish_and_clear();
    Ok(())
}

fn options(
    arguments: &Arguments,
    kind: Kind,
    without: Vec<Permission>,
    temporary: &TemporaryFolder,
) -> anyhow::Result<runner::Options> {
    let backend = if kind == Kind::Iam { BackendName::Embedded } else { BackendName::Apiserver };
    let mut on = On::with(backend, UnderTest::Ours);
    on.enforce_iam = kind == Kind::Iam;
    let places = match kind {
        Kind::Iam => None,
        Kind::Rbac => Some(Places::ControlPlanes(test::control_planes(&on, temporary)?)),
    };
    let jobs = arguments.jobs.map_or_else(|| test::usual_jobs(&on), usize::from);
    Ok(runner::Options { on, without, places, jobs, ..runner::Options::usual(tied::this_program()?) })
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(["permission", "scenario", "without it"]);
    for row in rows {
        let outcome = row.outcome.as_ref().map_or_else(|| Cell::new(""), Outcome::cell);
        table.row([Cell::new(row.permission.to_string()), Cell::new(row.scenario.as_str()).dim(), outcome]);
    }
    let needed = rows.iter().filter(|row| row.outcome == Some(Outcome::Needed)).count();
    let checked = rows.iter().filter(|row| row.outcome.is_some()).count();
    let summary = match checked {
        0 => format!("{} permissions\n", rows.len()),
        _ => format!("{needed} of {checked} permissions are needed\n"),
    };
    table.render(output::colours(&std::io::stdout())) + &summary
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(verdict: Verdict) -> ScenarioResult {
        let scenario =
            Scenario { feature: "F".into(), name: "S".into(), path: "x".into(), line: 1, tags: vec![], steps: vec![] };
        ScenarioResult::bare(scenario, "embedded", "ours", 1, verdict)
    }

    #[test]
    fn only_a_failure_that_names_the_permission_shows_that_it_is_needed() {
        let permission: Permission = "rbac/ClusterRole/karpenter-core/core/pods/eviction/create".parse().unwrap();
        let failed = |message: &str| {
            let failure = crate::verdict::Failure {
                step: "Then it works".into(),
                message: message.into(),
                last_observed: None,
                timeline: vec![],
            };
            Outcome::of(&permission, &result(Verdict::Failed(failure)))
        };
        let said = "pods \"a\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\" in the \
                    namespace \"default\"";
        assert_eq!(failed(said), Outcome::Needed);
        assert!(matches!(failed("not within 3m"), Outcome::OtherFailure(_)));
        assert_eq!(Outcome::of(&permission, &result(Verdict::Passed)), Outcome::NotNeeded);
    }
}
