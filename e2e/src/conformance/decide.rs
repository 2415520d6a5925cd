//! From what runs left behind to the report: a function over data.
//!
//! A row is covered by the scenarios tagged with its id. Its cell passed if at least one of them passed and none failed.
//! Two things never make a cell pass: a scenario that asks nothing (it has no `Then`), and one that was left out. Whether a
//! controller that does nothing would have passed too is told at each pass, where the run of such a controller is at hand.

use super::differences::Entry;
use super::{
    Cell, Column, Counts, Document, Evidence, FailureShown, Outcome, Part, Row, RunShown, SCHEMA, SCHEMA_VERSION,
};
use crate::catalogue;
use crate::features::Scenario;
use crate::report;
use crate::runner::PROCESS;
use crate::scenario::START;
use crate::verdict::{Failure, ScenarioResult, Verdict};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The tag of scenarios that go beyond upstream.
pub(crate) const EXTENSION: &str = "extension";

/// Our controller, as columns name it.
const OURS: &str = "ours";

/// The controller that does nothing, as columns name it.
const NOTHING: &str = "nothing";

/// How many lines of what happened a failure keeps; the timeline has the rest.
const LAST_LINES: usize = 25;

/// Whether a scenario says anything about a controller: those that go beyond upstream do about ours alone, and about the
/// control that does nothing, which has to fail them.
pub fn applies(scenario: &Scenario, controller: &str) -> bool {
    [OURS, NOTHING].contains(&controller) || !scenario.tags.iter().any(|tag| tag == EXTENSION)
}

/// A run, or the part of one that was about one controller on one backend.
#[derive(Clone, Debug)]
pub struct Run {
    /// The controller.
    pub controller: String,
    /// The backend.
    pub backend: String,
    /// When it began.
    pub started_at: Timestamp,
    /// The program's version then.
    pub trysquare_version: String,
    /// Its folder beside the report, if it has one.
    pub folder: Option<String>,
    /// The scenarios whose processes left logs there, by their number.
    pub logs: BTreeSet<usize>,
    /// Why nothing was run.
    pub could_not_start: Option<String>,
    /// What came of its scenarios, each with its number in the run.
    pub results: Vec<(usize, ScenarioResult)>,
}

impl Run {
    /// The parts of a run's document, whose files lie in a folder beside the report, with logs of some scenarios.
    pub fn parts(document: report::Document, folder: Option<&str>, logs: &BTreeSet<usize>) -> Vec<Self> {
        let report::Document { started_at, trysquare_version, scenarios, .. } = document;
        let mut parts: BTreeMap<(String, String), Vec<(usize, ScenarioResult)>> = BTreeMap::new();
        for (index, result) in scenarios.into_iter().enumerate() {
            parts.entry((result.controller.clone(), result.backend.clone())).or_default().push((index, result));
        }
        let part = |((controller, backend), results): ((String, String), Vec<(usize, ScenarioResult)>)| {
            let could_not_start = why_none_started(results.iter().map(|(_, result)| result));
            let (folder, trysquare_version) = (folder.map(str::to_owned), trysquare_version.clone());
            let logs = logs.clone();
            Self { controller, backend, started_at, trysquare_version, folder, logs, could_not_start, results }
        };
        parts.into_iter().map(part).collect()
    }
}

/// What kept the backend from starting, where it did for no scenario at all. Those that are skipped never ask it to.
pub fn why_none_started<'a>(results: impl IntoIterator<Item = &'a ScenarioResult>) -> Option<String> {
    let run = results.into_iter().filter(|result| !matches!(result.verdict, Verdict::Skipped { .. }));
    let mut reasons = run.map(|result| match &result.verdict {
        Verdict::Failed(failure) if failure.step == START => Some(failure.message.clone()),
        _ => None,
    });
    let first = reasons.next()??;
    reasons.all(|reason| reason.is_some()).then_some(first)
}

/// What a report is decided from.
pub struct Facts<'a> {
    /// The runs, in the order of the columns.
    pub runs: Vec<Run>,
    /// Further runs of a controller that does nothing, beside those among the columns.
    pub idle: Vec<Run>,
    /// Every scenario there is, run or not.
    pub scenarios: &'a [Scenario],
    /// Whether a scenario was asked for.
    pub asked_for: &'a dyn Fn(&Scenario) -> bool,
    /// What is listed as different.
    pub differences: &'a [Entry],
    /// When the report is made.
    pub made_at: Timestamp,
}

/// Two scenarios with the same title and steps are one, wherever their file lies: a row of an outline is told by its steps.
type Identity = (String, String, Vec<String>);

fn identity(scenario: &Scenario) -> Identity {
    let steps = scenario.steps.iter().map(|step| format!("{} {:?} {:?}", step.text, step.docstring, step.table));
    (scenario.feature.clone(), scenario.name.clone(), steps.collect())
}

/// Puts the report together.
pub fn decide(facts: &Facts<'_>) -> Document {
    let gathered = gather(facts);
    let idle = passed_when_idle(facts);
    let restating = restating(facts);
    let of_row = |row: catalogue::Row| {
        let none = Vec::new();
        let scenarios = restating.get(row.id.as_str()).unwrap_or(&none);
        let cells = gathered.iter().map(|column| cell(facts, column, &row.id, scenarios, idle.as_ref())).collect();
        let group = row.id.split('.').next().unwrap_or_default().to_owned();
        Row { group, covered: !scenarios.is_empty(), cells, id: row.id, level: row.level, says: row.says }
    };
    let rows: Vec<Row> = catalogue::rows().into_iter().map(of_row).collect();
    let columns: Vec<Column> = gathered
        .iter()
        .enumerate()
        .map(|(index, column)| described(facts, column, &rows, index, idle.is_some()))
        .collect();
    Document {
        schema: SCHEMA.into(),
        schema_version: SCHEMA_VERSION,
        trysquare_version: env!("CARGO_PKG_VERSION").into(),
        made_at: facts.made_at,
        compared_with_idle: idle.is_some(),
        groups: parts(&rows, columns.len(), |row| &row.group),
        levels: parts(&rows, columns.len(), |row| &row.level),
        columns,
        rows,
    }
}

/// A column with the results that count.
struct Gathered<'a> {
    controller: &'a str,
    backend: &'a str,
    could_not_start: Option<&'a str>,
    runs: Vec<&'a Run>,
    /// In the order of the runs and of the scenarios in them.
    results: Vec<Counted<'a>>,
    extensions_left_out: usize,
}

struct Counted<'a> {
    run: &'a Run,
    index: usize,
    result: &'a ScenarioResult,
    identity: Identity,
}

/// Runs of the same controller on the same backend are one column; of a scenario that several of them have, the one of the
/// latest run counts.
fn gather<'a>(facts: &'a Facts<'_>) -> Vec<Gathered<'a>> {
    let mut columns: Vec<Gathered<'a>> = Vec::new();
    for run in &facts.runs {
        let same = |column: &&mut Gathered<'_>| column.controller == run.controller && column.backend == run.backend;
        match columns.iter_mut().find(same) {
            Some(column) => column.runs.push(run),
            None => columns.push(Gathered {
                controller: &run.controller,
                backend: &run.backend,
                could_not_start: None,
                runs: vec![run],
                results: Vec::new(),
                extensions_left_out: 0,
            }),
        }
    }
    for column in &mut columns {
        column.runs.sort_by_key(|run| run.started_at);
        let mut latest: BTreeMap<Identity, usize> = BTreeMap::new();
        for run in &column.runs {
            // A run in which nothing could be started says nothing about any scenario.
            for (index, result) in run.results.iter().filter(|_| run.could_not_start.is_none()) {
                if !(facts.asked_for)(&result.scenario) {
                    continue;
                }
                let identity = identity(&result.scenario);
                let counted = Counted { run, index: *index, result, identity: identity.clone() };
                match latest.get(&identity) {
                    Some(place) => column.results[*place] = counted,
                    None => {
                        latest.insert(identity, column.results.len());
                        column.results.push(counted);
                    }
                }
            }
        }
        let all = column.results.len();
        column.results.retain(|counted| applies(&counted.result.scenario, column.controller));
        column.extensions_left_out = all - column.results.len();
        if column.runs.iter().all(|run| run.could_not_start.is_some()) {
            column.could_not_start = column.runs.last().and_then(|run| run.could_not_start.as_deref());
        }
    }
    columns
}

/// Which scenarios a controller that does nothing passes, where one was run.
fn passed_when_idle(facts: &Facts<'_>) -> Option<BTreeMap<Identity, bool>> {
    let columns = facts.runs.iter().filter(|run| run.controller == NOTHING);
    let started: Vec<&Run> = facts.idle.iter().chain(columns).filter(|run| run.could_not_start.is_none()).collect();
    let results = started.iter().flat_map(|run| &run.results);
    let passed = results.map(|(_, result)| (identity(&result.scenario), outcome(result) == Outcome::Passed));
    (!started.is_empty()).then(|| passed.collect())
}

/// The scenarios of each row, those at hand and those that were run.
fn restating<'a>(facts: &'a Facts<'_>) -> BTreeMap<&'a str, Vec<(&'a Scenario, Identity)>> {
    let run = facts.runs.iter().flat_map(|run| run.results.iter().map(|(_, result)| &result.scenario));
    let mut rows: BTreeMap<&str, Vec<(&Scenario, Identity)>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for scenario in facts.scenarios.iter().chain(run) {
        let identity = identity(scenario);
        if seen.insert(identity.clone()) {
            let ids: BTreeSet<&str> = scenario.rows().collect();
            ids.into_iter().for_each(|row| rows.entry(row).or_default().push((scenario, identity.clone())));
        }
    }
    rows
}

fn cell(
    facts: &Facts<'_>,
    column: &Gathered<'_>,
    row: &str,
    restating: &[(&Scenario, Identity)],
    idle: Option<&BTreeMap<Identity, bool>>,
) -> Cell {
    let listed: Vec<&Entry> =
        facts.differences.iter().filter(|entry| entry.concerns(column.controller, column.backend, row)).collect();
    let mut cell = Cell {
        outcome: Outcome::NotCovered,
        reason: None,
        missing: BTreeSet::new(),
        differences: listed.iter().map(|entry| entry.shown()).collect(),
        passed_when_idle: None,
        scenarios: Vec::new(),
    };
    if restating.is_empty() {
        return cell;
    }
    let due: Vec<&(&Scenario, Identity)> =
        restating.iter().filter(|(scenario, _)| applies(scenario, column.controller)).collect();
    if due.is_empty() {
        cell.reason = Some("its scenarios go beyond upstream (@extension) and are about our controller alone".into());
        return cell;
    }
    if let Some(reason) = column.could_not_start {
        (cell.outcome, cell.reason) = (Outcome::NotRun, Some(reason.to_owned()));
        return cell;
    }
    let run: Vec<&Counted<'_>> =
        column.results.iter().filter(|counted| counted.result.scenario.rows().any(|id| id == row)).collect();
    if run.is_empty() {
        let asked = due.iter().any(|(scenario, _)| (facts.asked_for)(scenario));
        let reason = if asked { "its scenarios are not in the run" } else { "its scenarios were not asked for" };
        (cell.outcome, cell.reason) = (Outcome::NotRun, Some(reason.into()));
        return cell;
    }
    cell.scenarios = run.iter().map(|counted| evidence(counted)).collect();
    cell.missing = cell.scenarios.iter().filter_map(|scenario| scenario.missing.clone()).collect();
    let failed: Vec<&ScenarioResult> =
        run.iter().map(|counted| counted.result).filter(|result| result.failed()).collect();
    let passed: Vec<&&Counted<'_>> = run.iter().filter(|counted| outcome(counted.result) == Outcome::Passed).collect();
    let shown: Vec<&&&Counted<'_>> = passed.iter().filter(|counted| asks(&counted.result.scenario)).collect();
    cell.outcome = if !failed.is_empty() {
        let excused =
            |result: &&ScenarioResult| excusable(result) && listed.iter().any(|e| e.excuses(&result.scenario.name));
        if failed.iter().all(excused) { Outcome::Differs } else { Outcome::Failed }
    } else if !shown.is_empty() {
        Outcome::Passed
    } else if passed.is_empty() {
        Outcome::Skipped
    } else {
        cell.reason = Some("its scenarios ask nothing: none has a Then".into());
        Outcome::NotCovered
    };
    if cell.outcome == Outcome::Passed {
        cell.passed_when_idle = idle.and_then(|idle| {
            let known: Option<Vec<bool>> = shown.iter().map(|counted| idle.get(&counted.identity).copied()).collect();
            known.map(|known| known.iter().all(|passed| *passed))
        });
    }
    let left_out = due.iter().filter(|(_, due)| run.iter().all(|counted| counted.identity != *due)).count();
    if left_out > 0 && cell.reason.is_none() {
        cell.reason = Some(format!("{left_out} of its {} scenarios were not run", due.len()));
    }
    cell
}

/// Whether a scenario asks anything.
fn asks(scenario: &Scenario) -> bool {
    scenario.steps.iter().any(|step| step.keyword == "Then")
}

/// A scenario whose process or backend broke down, or that ran differently the second time, shows nothing about a
/// difference that is meant.
fn excusable(result: &ScenarioResult) -> bool {
    matches!(&result.verdict, Verdict::Failed(failure) if failure.step != START && failure.step != PROCESS)
}

fn outcome(result: &ScenarioResult) -> Outcome {
    match result.verdict {
        _ if result.failed() => Outcome::Failed,
        Verdict::Skipped { .. } => Outcome::Skipped,
        Verdict::Passed | Verdict::Failed(_) => Outcome::Passed,
    }
}

fn evidence(counted: &Counted<'_>) -> Evidence {
    let Counted { run, index, result, identity: _ } = counted;
    let beside = |file: String| run.folder.as_ref().map(|folder| format!("{folder}/{file}"));
    let ScenarioResult { scenario, verdict, virtual_s, wall_s, repeat, .. } = result;
    let failure = match (verdict, repeat) {
        (Verdict::Failed(failure), _) => Some(failure_shown(failure)),
        (_, Some(repeat)) if !repeat.identical => Some(FailureShown {
            step: "the second run differs".into(),
            message: repeat.first_difference.clone().unwrap_or_else(|| "the journals differ".into()),
            last_observed: None,
            last_lines: Vec::new(),
            earlier_lines: 0,
        }),
        _ => None,
    };
    let missing = match verdict {
        Verdict::Skipped { missing } => Some(missing.clone()),
        _ => None,
    };
    Evidence {
        feature: scenario.feature.clone(),
        name: scenario.name.clone(),
        location: scenario.location(),
        outcome: outcome(result),
        extension: scenario.tags.iter().any(|tag| tag == EXTENSION),
        virtual_s: *virtual_s,
        wall_s: *wall_s,
        timeline: beside(format!("{}#scenario-{index}", report::PAGE)),
        journal: beside(format!("journals/{index:04}-1.jsonl")).filter(|_| result.journal.entries > 0),
        logs: beside(format!("logs/{index:04}/")).filter(|_| run.logs.contains(index)),
        missing,
        failure,
    }
}

fn failure_shown(failure: &Failure) -> FailureShown {
    let Failure { step, message, last_observed, timeline } = failure;
    let earlier_lines = timeline.len().saturating_sub(LAST_LINES);
    FailureShown {
        step: step.clone(),
        message: message.clone(),
        last_observed: last_observed.clone(),
        last_lines: timeline[earlier_lines..].to_vec(),
        earlier_lines,
    }
}

fn described(facts: &Facts<'_>, column: &Gathered<'_>, rows: &[Row], index: usize, compared: bool) -> Column {
    let known: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    let without_row = |counted: &&Counted<'_>| !counted.result.scenario.rows().any(|id| known.contains(id));
    let failed = column.results.iter().filter(|counted| counted.result.failed());
    let idle = rows.iter().filter(|row| row.cells[index].passed_when_idle == Some(true)).count();
    let runs = column.runs.iter().map(|run| RunShown {
        started_at: run.started_at,
        trysquare_version: run.trysquare_version.clone(),
        seeds: run.results.iter().map(|(_, result)| result.seed).collect(),
        folder: run.folder.clone(),
    });
    // What a selection leaves out of a run goes beyond upstream or does not; either way nobody asked for it.
    let at_hand = facts.scenarios.iter().filter(|scenario| (facts.asked_for)(scenario));
    let extensions = at_hand.filter(|scenario| !applies(scenario, column.controller)).count();
    Column {
        controller: column.controller.to_owned(),
        backend: column.backend.to_owned(),
        could_not_start: column.could_not_start.map(str::to_owned),
        runs: runs.collect(),
        scenarios: column.results.len(),
        extensions_left_out: column.extensions_left_out.max(extensions),
        counts: Counts::count(rows, index),
        passed_when_idle: compared.then_some(idle),
        failed_without_row: failed.filter(without_row).map(evidence).collect(),
    }
}

/// The levels, from what every controller has to do to what is good advice.
const LEVELS: [&str; 3] = ["core", "extended", "advisory"];

/// The numbers of the rows that share a name; levels in their order, groups in that of the catalogue.
fn parts<'a>(rows: &'a [Row], columns: usize, name: impl Fn(&'a Row) -> &'a String) -> Vec<Part> {
    let mut names: Vec<&String> = Vec::new();
    for row in rows {
        if !names.contains(&name(row)) {
            names.push(name(row));
        }
    }
    names.sort_by_key(|name| LEVELS.iter().position(|level| level == name));
    let part = |wanted: &'a String| {
        let members: Vec<&Row> = rows.iter().filter(|row| name(row) == wanted).collect();
        Part {
            name: wanted.clone(),
            rows: members.len(),
            covered: members.iter().filter(|row| row.covered).count(),
            counts: (0..columns).map(|column| Counts::count(members.iter().copied(), column)).collect(),
        }
    };
    names.into_iter().map(part).collect()
}
