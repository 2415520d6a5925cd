//! The conformance report: which cell comes out how, what a merge, a baseline and a comparison say, and that the documented
//! schema is the one that is written.

use e2e::conformance::compare::Comparison;
use e2e::conformance::decide::{Facts, Run, decide};
use e2e::conformance::differences::{self, Entry};
use e2e::conformance::{Cell, Document, Outcome};
use e2e::features::{Scenario, Step};
use e2e::report;
use e2e::scenario::START;
use e2e::verdict::{Failure, Repeat, ScenarioResult, Verdict};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Three rows of the catalogue; the last is in no scenario here.
const ROW: &str = "provisioning.pending-pod-creates-node";
const OTHER: &str = "provisioning.only-unschedulable-pods";
const BARE: &str = "disruption.drift-ca-bundle";

fn catalogue() -> Vec<String> {
    let text = std::fs::read_to_string("../features/behaviours.yaml").unwrap();
    text.lines().filter_map(|line| line.strip_prefix("- id: ")).map(str::to_owned).collect()
}

fn scenario(name: &str, tags: &[&str]) -> Scenario {
    let step = |keyword: &str, text: &str| Step {
        keyword: keyword.into(),
        text: text.into(),
        line: 3,
        docstring: None,
        table: vec![],
    };
    Scenario {
        feature: "F".into(),
        name: name.into(),
        path: "features/x.feature".into(),
        line: 2,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        steps: vec![step("When", "1m passes"), step("Then", "no NodeClaim exists")],
    }
}

fn result(scenario: Scenario, verdict: Verdict) -> ScenarioResult {
    ScenarioResult { virtual_s: 60.0, wall_s: 0.5, ..ScenarioResult::bare(scenario, "embedded", "ours", 1, verdict) }
}

fn failed() -> Verdict {
    failed_at("features/x.feature:4: Then no NodeClaim exists")
}

fn failed_at(step: &str) -> Verdict {
    let timeline = (0..40).map(|line| format!("line {line}")).collect();
    Verdict::Failed(Failure {
        step: step.into(),
        message: "one exists".into(),
        last_observed: Some("1 NodeClaim".into()),
        timeline,
    })
}

fn skipped() -> Verdict {
    Verdict::Skipped { missing: "quota".into() }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn document(results: Vec<ScenarioResult>, second: i64) -> report::Document {
    report::Document::new(results, Duration::from_secs(1), at(second), vec!["test".into()])
}

fn run(results: Vec<ScenarioResult>) -> Vec<Run> {
    run_at(results, 0)
}

fn run_at(results: Vec<ScenarioResult>, second: i64) -> Vec<Run> {
    Run::parts(document(results, second), Some("runs/x"), &BTreeSet::from([2]))
}

fn by(controller: &str, mut results: Vec<ScenarioResult>) -> Vec<ScenarioResult> {
    results.iter_mut().for_each(|result| result.controller = controller.into());
    results
}

/// The report of these runs, with nothing at hand but them.
fn report_of(runs: Vec<Run>) -> Document {
    report_with(runs, vec![], &[], &[])
}

fn report_with(runs: Vec<Run>, idle: Vec<Run>, scenarios: &[Scenario], differences: &[Entry]) -> Document {
    decide(&Facts { runs, idle, scenarios, asked_for: &|_| true, differences, made_at: at(100) })
}

#[track_caller]
fn cell<'a>(document: &'a Document, row: &str, column: usize) -> &'a Cell {
    let row = document.rows.iter().find(|candidate| candidate.id == row).expect("a row of the catalogue");
    &row.cells[column]
}

/// What comes of a row whose scenarios have these verdicts.
fn outcome_of(verdicts: Vec<Verdict>) -> Outcome {
    let named = verdicts.into_iter().enumerate();
    let results = named.map(|(n, verdict)| result(scenario(&n.to_string(), &[ROW]), verdict));
    cell(&report_of(run(results.collect())), ROW, 0).outcome
}

#[test]
fn every_row_of_the_catalogue_is_in_the_report_covered_or_not() {
    let document = report_of(run(vec![result(scenario("a", &[ROW]), Verdict::Passed)]));
    let ids: Vec<&str> = document.rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, catalogue());
    assert_eq!(ids.len(), 357);
    let covered: Vec<&str> = document.rows.iter().filter(|row| row.covered).map(|row| row.id.as_str()).collect();
    assert_eq!(covered, [ROW]);
    let counts = document.columns[0].counts;
    assert_eq!((counts.passed, counts.not_covered), (1, 356));
    for parts in [&document.groups, &document.levels] {
        assert_eq!(parts.iter().map(|part| part.rows).sum::<usize>(), 357);
        assert_eq!(parts.iter().map(|part| part.counts[0].passed).sum::<usize>(), 1);
    }
}

#[test]
fn a_cell_fails_by_one_failure_passes_by_one_pass_and_is_skipped_by_skips_alone() {
    for (verdicts, expected) in [
        (vec![Verdict::Passed], Outcome::Passed),
        (vec![Verdict::Passed, Verdict::Passed], Outcome::Passed),
        (vec![Verdict::Passed, failed()], Outcome::Failed),
        (vec![failed(), Verdict::Passed], Outcome::Failed),
        (vec![failed(), skipped()], Outcome::Failed),
        (vec![skipped()], Outcome::Skipped),
        (vec![skipped(), Verdict::Passed], Outcome::Passed),
    ] {
        assert_eq!(outcome_of(verdicts.clone()), expected, "{verdicts:?}");
    }
    let document = report_of(run(vec![result(scenario("a", &[ROW]), skipped())]));
    assert_eq!(cell(&document, ROW, 0).missing, BTreeSet::from(["quota".to_owned()]));
}

#[test]
fn a_run_that_did_not_repeat_has_failed() {
    let repeat = Repeat { identical: false, journal: Default::default(), first_difference: Some("line 7".into()) };
    let differing = ScenarioResult { repeat: Some(repeat), ..result(scenario("a", &[ROW]), Verdict::Passed) };
    // Not even a listed difference explains that.
    let document = report_with(run(vec![differing]), vec![], &[], &[listed("ours", ROW, "")]);
    let cell = cell(&document, ROW, 0);
    assert_eq!(cell.outcome, Outcome::Failed);
    assert_eq!(cell.scenarios[0].failure.as_ref().unwrap().message, "line 7");
}

#[test]
fn a_scenario_that_asks_nothing_makes_no_cell_pass() {
    let mut idle = scenario("a", &[ROW]);
    idle.steps.pop();
    let document = report_of(run(vec![result(idle.clone(), Verdict::Passed)]));
    let cell_alone = cell(&document, ROW, 0);
    assert_eq!(cell_alone.outcome, Outcome::NotCovered);
    assert!(cell_alone.reason.as_ref().unwrap().contains("ask nothing"));
    let both = vec![result(idle, Verdict::Passed), result(scenario("b", &[ROW]), Verdict::Passed)];
    assert_eq!(cell(&report_of(run(both)), ROW, 0).outcome, Outcome::Passed);
}

#[test]
fn a_pass_that_a_controller_that_does_nothing_has_too_is_marked() {
    let pass = |name: &str, row: &str| result(scenario(name, &[row]), Verdict::Passed);
    let results = vec![pass("a", ROW), pass("b", ROW), pass("c", OTHER), pass("d", BARE)];
    let idle = vec![pass("a", ROW), result(scenario("b", &[ROW]), failed()), pass("c", OTHER)];
    let document = report_with(run(results), run(by("/idle", idle)), &[], &[]);
    assert!(document.compared_with_idle);
    assert_eq!(cell(&document, ROW, 0).passed_when_idle, Some(false), "one of its two scenarios tells them apart");
    assert_eq!(cell(&document, OTHER, 0).passed_when_idle, Some(true));
    assert_eq!(cell(&document, BARE, 0).passed_when_idle, None, "nothing is known: it was not run with the other");
    assert_eq!(document.columns[0].passed_when_idle, Some(1));
    assert_eq!(document.columns.len(), 1, "the idle controller is no column unless it is asked for");
    // As a column it is the control of the others without a word.
    let nothing = by("nothing", vec![result(scenario("a", &[ROW]), failed()), pass("c", OTHER)]);
    let document = report_of([run(vec![pass("a", ROW), pass("c", OTHER)]), run(nothing)].concat());
    assert!(document.compared_with_idle);
    let marks = [ROW, OTHER].map(|row| cell(&document, row, 0).passed_when_idle);
    assert_eq!(marks, [Some(false), Some(true)]);
    assert_eq!((cell(&document, ROW, 1).outcome, document.columns[1].passed_when_idle), (Outcome::Failed, Some(1)));
}

#[test]
fn scenarios_beyond_upstream_count_for_our_controller_alone() {
    let results =
        || vec![result(scenario("a", &[ROW, "extension"]), failed()), result(scenario("b", &[ROW]), Verdict::Passed)];
    let only = || vec![result(scenario("c", &[OTHER, "extension"]), failed())];
    let of = |controller: &str| report_of(run(by(controller, [results(), only()].concat())));
    let ours = of("ours");
    assert_eq!((cell(&ours, ROW, 0).outcome, cell(&ours, OTHER, 0).outcome), (Outcome::Failed, Outcome::Failed));
    for other in ["upstream", "/ours"] {
        let document = of(other);
        assert_eq!(cell(&document, ROW, 0).outcome, Outcome::Passed);
        assert_eq!(cell(&document, ROW, 0).scenarios.len(), 1);
        assert_eq!(cell(&document, OTHER, 0).outcome, Outcome::NotCovered);
        assert!(cell(&document, OTHER, 0).reason.as_ref().unwrap().contains("@extension"));
        assert_eq!(document.columns[0].extensions_left_out, 2);
    }
}

/// A listed difference; with a title, of that scenario alone.
fn listed(controller: &str, row: &str, title: &str) -> Entry {
    let scenarios = if title.is_empty() { vec![] } else { vec![title] };
    let text = serde_json::json!([{
        "controller": controller, "rows": [row], "scenarios": scenarios,
        "reason": "It is not there yet.", "anchor": "drift", "evidence": "a line of the log",
    }]);
    differences::parse(&text.to_string()).unwrap().remove(0)
}

#[test]
fn a_listed_difference_excuses_its_controller_row_and_scenario_and_nothing_else() {
    let of = |verdicts: &[(&str, Verdict)], entry: Entry| {
        let results = verdicts.iter().map(|(name, verdict)| result(scenario(name, &[ROW]), verdict.clone())).collect();
        let document = report_with(run(results), vec![], &[], &[entry]);
        let cell = cell(&document, ROW, 0);
        (cell.outcome, cell.differences.len())
    };
    let one = |verdict: Verdict, entry| of(&[("a", verdict)], entry);
    assert_eq!(one(failed(), listed("ours", ROW, "")), (Outcome::Differs, 1));
    assert_eq!(one(Verdict::Passed, listed("ours", ROW, "")), (Outcome::Passed, 1), "a listed row that passes, passed");
    assert_eq!(one(skipped(), listed("ours", ROW, "")), (Outcome::Skipped, 1));
    assert_eq!(one(failed(), listed("upstream", ROW, "")), (Outcome::Failed, 0), "it is about another controller");
    assert_eq!(one(failed(), listed("ours", OTHER, "")), (Outcome::Failed, 0), "it is about another row");
    assert_eq!(one(failed(), listed("ours", ROW, "a")), (Outcome::Differs, 1));
    assert_eq!(one(failed(), listed("ours", ROW, "b")), (Outcome::Failed, 1), "it is about another scenario");
    let both = [("a", failed()), ("b", failed())];
    assert_eq!(of(&both, listed("ours", ROW, "a")), (Outcome::Failed, 1), "the other failure has no excuse");
    assert_eq!(of(&both, listed("ours", ROW, "")), (Outcome::Differs, 1));
    let broke = failed_at("the scenario's process");
    assert_eq!(one(broke, listed("ours", ROW, "")), (Outcome::Failed, 1), "a process that broke shows no difference");
    let elsewhere = Entry { backends: vec![e2e::backend::BackendName::Apiserver], ..listed("ours", ROW, "") };
    assert_eq!(one(failed(), elsewhere), (Outcome::Failed, 0), "it is about another backend");
}

#[test]
fn a_difference_links_to_its_place() {
    let document =
        report_with(run(vec![result(scenario("a", &[ROW]), failed())]), vec![], &[], &[listed("ours", ROW, "")]);
    let difference = &cell(&document, ROW, 0).differences[0];
    assert_eq!(difference.link, "docs/differences.md#drift");
    assert_eq!(difference.evidence.as_deref(), Some("a line of the log"));
    let without = Entry { anchor: None, ..listed("upstream", ROW, "") };
    assert_eq!(without.shown().link, "docs/differences.yaml");
}

#[test]
fn a_column_that_could_not_start_says_so_at_every_covered_row_and_fails_none() {
    let could_not = || failed_at(START);
    let results = vec![result(scenario("a", &[ROW]), could_not()), result(scenario("b", &[OTHER]), could_not())];
    let document = report_of(run(by("upstream", results.clone())));
    let counts = document.columns[0].counts;
    assert_eq!((counts.not_run, counts.failed, counts.not_covered), (2, 0, 355));
    assert_eq!(document.columns[0].could_not_start.as_deref(), Some("one exists"));
    assert_eq!(cell(&document, ROW, 0).reason.as_deref(), Some("one exists"));
    // One that did start makes the other a failure.
    let document = report_of(run(vec![results[0].clone(), result(scenario("b", &[OTHER]), Verdict::Passed)]));
    assert_eq!(cell(&document, ROW, 0).outcome, Outcome::Failed);
}

#[test]
fn a_row_whose_scenarios_were_not_run_says_why() {
    let at_hand =
        [scenario("a", &[ROW]), scenario("b", &[ROW]), scenario("c", &[OTHER]), scenario("d", &[BARE, "slow"])];
    let runs = run(vec![result(at_hand[0].clone(), Verdict::Passed)]);
    let asked_for = |scenario: &Scenario| !scenario.tags.iter().any(|tag| tag == "slow");
    let document = decide(&Facts {
        runs,
        idle: vec![],
        scenarios: &at_hand,
        asked_for: &asked_for,
        differences: &[],
        made_at: at(100),
    });
    let told = |row| (cell(&document, row, 0).outcome, cell(&document, row, 0).reason.as_deref().unwrap_or_default());
    assert_eq!(told(ROW), (Outcome::Passed, "1 of its 2 scenarios were not run"));
    assert_eq!(told(OTHER), (Outcome::NotRun, "its scenarios are not in the run"));
    assert_eq!(told(BARE), (Outcome::NotRun, "its scenarios were not asked for"));
}

#[test]
fn of_two_runs_of_a_column_the_later_counts_scenario_by_scenario() {
    let early = || run_at(vec![result(scenario("a", &[ROW]), failed()), result(scenario("b", &[OTHER]), failed())], 0);
    let late = || run_at(vec![result(scenario("a", &[ROW]), Verdict::Passed)], 50);
    for runs in [[early(), late()].concat(), [late(), early()].concat()] {
        let document = report_of(runs);
        assert_eq!(document.columns.len(), 1);
        assert_eq!(document.columns[0].scenarios, 2);
        assert_eq!(cell(&document, ROW, 0).outcome, Outcome::Passed);
        assert_eq!(cell(&document, OTHER, 0).outcome, Outcome::Failed);
        assert!(document.columns[0].runs[0].started_at < document.columns[0].runs[1].started_at);
    }
}

#[test]
fn rows_of_an_outline_are_scenarios_of_their_own() {
    let row = |text: &str, verdict| {
        let mut one = scenario("an outline", &[ROW]);
        one.steps[0].text = text.into();
        result(one, verdict)
    };
    let document = report_of(run(vec![row("1m passes", failed()), row("2m passes", Verdict::Passed)]));
    assert_eq!(cell(&document, ROW, 0).outcome, Outcome::Failed);
    assert_eq!(cell(&document, ROW, 0).scenarios.len(), 2);
}

#[test]
fn evidence_is_one_click_away_and_a_failure_keeps_its_last_lines() {
    let mut passing = result(scenario("a", &[OTHER]), Verdict::Passed);
    passing.journal.entries = 5;
    let document = report_of(run(vec![passing, result(scenario("b", &[ROW]), failed())]));
    let evidence = &cell(&document, OTHER, 0).scenarios[0];
    assert_eq!(evidence.timeline.as_deref(), Some("runs/x/report.html#scenario-0"));
    assert_eq!(evidence.journal.as_deref(), Some("runs/x/journals/0000-1.jsonl"));
    let evidence = &cell(&document, ROW, 0).scenarios[0];
    assert_eq!(evidence.timeline.as_deref(), Some("runs/x/report.html#scenario-1"));
    assert_eq!(evidence.journal, None, "nothing was asked of any wire");
    let failure = evidence.failure.as_ref().unwrap();
    assert_eq!((failure.last_lines.len(), failure.earlier_lines), (25, 15));
    assert_eq!(failure.last_lines[24], "line 39");
    assert_eq!(evidence.logs, None, "its processes left none");
    let third = result(scenario("c", &[BARE]), failed());
    let results = vec![result(scenario("a", &[]), Verdict::Passed), result(scenario("b", &[]), Verdict::Passed), third];
    let document = report_of(run(results));
    assert_eq!(cell(&document, BARE, 0).scenarios[0].logs.as_deref(), Some("runs/x/logs/0002/"));
}

#[test]
fn a_failed_scenario_without_a_row_is_not_lost() {
    let document = report_of(run(vec![result(scenario("a", &["mine.own"]), failed())]));
    assert_eq!(document.columns[0].failed_without_row[0].name, "a");
    assert_eq!(document.columns[0].counts.failed, 0);
}

#[test]
fn a_comparison_names_each_change_and_counts_losses_alone_as_regressions() {
    let of = |verdicts: [Option<Verdict>; 3]| {
        let rows = [ROW, OTHER, BARE].into_iter().zip(verdicts);
        let results = rows.filter_map(|(row, verdict)| Some(result(scenario(row, &[row]), verdict?)));
        report_of(run(results.collect()))
    };
    let before = of([Some(Verdict::Passed), Some(failed()), None]);
    let check = |after: &Document, expected: &[(&str, Outcome, Outcome)], regressions: usize| {
        let comparison = Comparison::of(&before, after);
        let changes: Vec<_> =
            comparison.changes.iter().map(|c| (c.row.as_str(), c.from.unwrap(), c.to.unwrap())).collect();
        assert_eq!(changes, expected);
        assert_eq!(comparison.regressions().count(), regressions);
    };
    check(&before, &[], 0);
    check(&of([Some(failed()), Some(failed()), None]), &[(ROW, Outcome::Passed, Outcome::Failed)], 1);
    check(&of([Some(skipped()), Some(failed()), None]), &[(ROW, Outcome::Passed, Outcome::Skipped)], 1);
    check(&of([None, Some(failed()), None]), &[(ROW, Outcome::Passed, Outcome::NotCovered)], 1);
    let better = of([Some(Verdict::Passed), Some(Verdict::Passed), Some(failed())]);
    let gains = [(OTHER, Outcome::Failed, Outcome::Passed), (BARE, Outcome::NotCovered, Outcome::Failed)];
    check(&better, &gains, 0);
}

#[test]
fn two_versions_of_a_program_are_compared_with_each_other() {
    let of = |controller: &str, verdict| report_of(run(by(controller, vec![result(scenario("a", &[ROW]), verdict)])));
    let comparison = Comparison::of(&of("/old/karpenter", Verdict::Passed), &of("/new/karpenter", failed()));
    assert_eq!(comparison.columns, ["/old/karpenter on embedded → /new/karpenter on embedded"]);
    assert_eq!(comparison.changes.len(), 1);
    let both = |a, b| {
        report_of(
            [
                run(by(a, vec![])),
                run(by(a, vec![result(scenario("a", &[ROW]), Verdict::Passed)])),
                run(by(b, vec![result(scenario("a", &[ROW]), failed())])),
            ]
            .concat(),
        )
    };
    let comparison = Comparison::of(&of("ours", Verdict::Passed), &both("ours", "upstream"));
    assert_eq!((comparison.columns.len(), comparison.only_after), (1, vec!["upstream on embedded".to_owned()]));
    assert!(comparison.changes.is_empty());
}

/// Every path of a value with its type; of what stands for `counts` and `evidence` in the schema, the paths within.
fn paths(value: &Value, path: &str, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let kind = match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let inner = match name.as_str() {
                    "counts" if field.is_object() => "counts:".to_owned(),
                    _ => inner,
                };
                paths(field, &inner.replace(":.", ":"), found);
            }
            return;
        }
        Value::Array(entries) => {
            let inner = match path {
                "rows[].cells[].scenarios" | "columns[].failed_without_row" => "evidence:".to_owned(),
                "groups[].counts" | "levels[].counts" => "counts:".to_owned(),
                _ => format!("{path}[]"),
            };
            entries.iter().for_each(|entry| paths(entry, &inner, found));
            return;
        }
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::Null => "null",
    };
    found.entry(path.to_owned()).or_default().insert(kind);
}

#[test]
fn the_documented_schema_is_the_one_that_is_written() {
    let text = std::fs::read_to_string("../docs/conformance-schema.md").unwrap();
    assert!(text.starts_with(&format!("# conformance.json, schema version {}\n", e2e::conformance::SCHEMA_VERSION)));
    // The tables: of the document, of `counts` and of `evidence`.
    let mut documented: BTreeMap<String, String> = BTreeMap::new();
    let mut part = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            part = format!("{heading}:");
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, path, kind, ..] = cells[..]
            && let Some(path) = path.strip_prefix('`').and_then(|path| path.strip_suffix('`'))
        {
            let kind = kind.trim_end_matches(", optional");
            if !["counts", "evidence"].contains(&kind) {
                documented.insert(format!("{part}{path}"), kind.to_owned());
            }
        }
    }
    // A document in which there is everything.
    let mut passing = result(scenario("a", &[ROW, "extension"]), Verdict::Passed);
    passing.journal.entries = 1;
    let results = vec![
        passing.clone(),
        result(scenario("b", &[OTHER]), skipped()),
        result(scenario("c", &[BARE]), failed()),
        result(scenario("d", &[]), failed()),
    ];
    let stuck = run(by("upstream", vec![result(scenario("a", &[ROW]), failed_at(START))]));
    let idle = run(vec![passing]);
    let document = report_with([run(results), stuck].concat(), idle, &[], &[listed("ours", BARE, "")]);
    let mut written = BTreeMap::new();
    paths(&serde_json::to_value(&document).unwrap(), "", &mut written);
    let written: BTreeMap<String, String> = written
        .into_iter()
        .map(|(path, kinds)| {
            // A whole number of seconds is one all the same.
            let kinds: Vec<&str> = kinds.into_iter().collect();
            (path, kinds.join(" or "))
        })
        .collect();
    assert_eq!(written, documented);
    // It can be read again.
    let again: Document = serde_json::from_value(serde_json::to_value(&document).unwrap()).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), serde_json::to_value(&document).unwrap());
}

// ---------------------------------------------------------------- by its users

const TRYSQUARE: &str = env!("CARGO_BIN_EXE_trysquare");

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("trysquare-conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// What `trysquare test --report` leaves for these results.
    fn leave(&self, name: &str, results: Vec<ScenarioResult>, second: i64) {
        let folder = self.0.join(name);
        report::prepare(&folder).unwrap();
        for index in 0..results.len() {
            std::fs::write(folder.join(format!("journals/{index:04}-1.jsonl")), "{}\n").unwrap();
        }
        report::write(&folder, &document(results, second)).unwrap();
    }

    #[track_caller]
    fn run(&self, code: i32, arguments: &[&str]) -> String {
        let mut command = Command::new(TRYSQUARE);
        let output = command.current_dir(&self.0).args(arguments).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {all}");
        assert!(!all.contains("panicked"), "{all}");
        all
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.0.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn passed_with_journal(name: &str, row: &str) -> ScenarioResult {
    let mut one = result(scenario(name, &[row]), Verdict::Passed);
    one.journal.entries = 3;
    one
}

#[test]
fn runs_of_different_days_are_put_together_and_every_link_leads_somewhere() {
    let folder = Folder::new();
    folder.leave("one", vec![passed_with_journal("a", ROW), passed_with_journal("b", OTHER)], 0);
    let other = vec![passed_with_journal("a", ROW), result(scenario("b", &[OTHER]), failed())];
    folder.leave("two", by("upstream", other), 10);
    let said = folder.run(1, &["conformance", "--run", "one", "--run", "two", "--report", "out"]);
    assert!(said.contains("ours on embedded: 2 passed, 355 not covered"), "{said}");
    assert!(said.contains(&format!("failed  {OTHER}: one exists")), "{said}");
    // Whole without the folders it came from.
    for run in ["one", "two"] {
        std::fs::remove_dir_all(folder.0.join(run)).unwrap();
    }
    let document = Document::read(&folder.0.join("out")).unwrap();
    let titles: Vec<String> = document.columns.iter().map(|column| column.title()).collect();
    assert_eq!(titles, ["ours on embedded", "upstream on embedded"]);
    let mut links = 0;
    for scenario in document.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| &cell.scenarios) {
        for link in [&scenario.timeline, &scenario.journal].into_iter().flatten() {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let text = folder.read(&format!("out/{file}"));
            assert!(anchor.is_empty() || text.contains(&format!("id=\"{anchor}\"")), "{link}");
            links += 1;
        }
    }
    assert_eq!(links, 7, "four timelines, and three journals of those that made a request");
    let page = folder.read("out/conformance.html");
    assert_eq!(page.matches("<tr role=\"row\" id=").count(), 357);
    assert!(folder.read("out/conformance.md").contains("| upstream on embedded | 2 | 1 | 1 |"));
    let junit = folder.read("out/junit.xml");
    assert_eq!(junit.matches("<testcase ").count(), 2 * 357);
    assert_eq!((junit.matches("<failure ").count(), junit.matches("<skipped ").count()), (1, 2 * 355));
    assert!(folder.read("out/badge.svg").contains("2 of 357 rows"));
    assert!(folder.read("out/badge-upstream-embedded.svg").contains("1 of 357 rows, 1 failed"));
    // The report's own runs are taken as they are, where they are.
    let before = folder.read("out/conformance.json");
    folder.run(
        1,
        &["conformance", "--run", "out/runs/ours-embedded", "--run", "out/runs/upstream-embedded", "--report", "out"],
    );
    let after = folder.read("out/conformance.json");
    let rows = |text: &str| serde_json::from_str::<Value>(text).unwrap()["rows"].clone();
    assert_eq!(rows(&before), rows(&after));
}

#[test]
fn a_baseline_fails_by_what_was_lost_and_by_nothing_else() {
    let folder = Folder::new();
    let failing = |name: &str, row: &str| result(scenario(name, &[row]), failed());
    folder.leave("before", vec![passed_with_journal("a", ROW), failing("b", OTHER)], 0);
    folder.run(1, &["conformance", "--run", "before", "--report", "old"]);
    let check = |code: i32, results: Vec<ScenarioResult>, says: &str| {
        folder.leave("after", results, 10);
        let said = folder.run(code, &["conformance", "--run", "after", "--baseline", "old/conformance.json"]);
        assert!(said.contains(says), "{says}: {said}");
    };
    check(0, vec![passed_with_journal("a", ROW), failing("b", OTHER)], "0 regressions");
    check(0, vec![passed_with_journal("a", ROW), passed_with_journal("b", OTHER), failing("c", BARE)], "0 regressions");
    check(
        1,
        vec![failing("a", ROW), failing("b", OTHER)],
        &format!("regression: {ROW} for ours on embedded: passed in the baseline, failed now"),
    );
    check(1, vec![result(scenario("a", &[ROW]), skipped()), failing("b", OTHER)], "skipped now");
    check(1, vec![failing("b", OTHER)], "not covered now");
    check(
        2,
        by("upstream", vec![passed_with_journal("a", ROW)]),
        "the baseline has none of the columns of this report",
    );
}

#[test]
fn two_reports_are_compared_row_by_row() {
    let folder = Folder::new();
    folder.leave("a", vec![passed_with_journal("a", ROW)], 0);
    folder.leave("b", vec![result(scenario("a", &[ROW]), failed())], 0);
    folder.run(0, &["conformance", "--run", "a", "--report", "before"]);
    folder.run(1, &["conformance", "--run", "b", "--report", "after"]);
    let said = folder.run(0, &["report", "diff", "before", "after/conformance.json"]);
    assert_eq!(said, format!("ours on embedded: 1 change\n  {ROW}  passed → failed\n"));
    let said = folder.run(0, &["report", "diff", "before", "before"]);
    assert_eq!(said, "ours on embedded: nothing changed\n");
    let said = folder.run(0, &["report", "diff", "before", "after", "--format", "json"]);
    let value: Value = serde_json::from_str(&said).unwrap();
    let change = serde_json::json!({ "row": ROW, "column": "ours on embedded", "from": "passed", "to": "failed" });
    assert_eq!(value["changes"], serde_json::json!([change]));
}

#[test]
fn a_column_that_cannot_start_ends_with_3_and_the_others_are_run() {
    let folder = Folder::new();
    let feature =
        format!("Feature: F\n  @{ROW}\n  Scenario: Quick\n    When 1m passes\n    Then no NodeClaim exists\n");
    std::fs::create_dir(folder.0.join("features")).unwrap();
    std::fs::write(folder.0.join("features/x.feature"), feature).unwrap();
    let said = folder.run(3, &["conformance", "--backend", "eks", "--backend", "embedded", "--report", "out"]);
    assert!(said.contains("ours on eks (1 of 2): could not start: "), "{said}");
    assert!(said.contains("ours on embedded (2 of 2): 1 passed, 0 failed, 0 skipped in "), "{said}");
    let document = Document::read(&folder.0.join("out")).unwrap();
    assert_eq!((cell(&document, ROW, 0).outcome, cell(&document, ROW, 1).outcome), (Outcome::NotRun, Outcome::Passed));
    assert!(cell(&document, ROW, 0).reason.as_ref().unwrap().contains("eks"));
    // The column's own run is one that can be taken into another report.
    let said = folder.run(0, &["conformance", "--run", "out/runs/ours-embedded"]);
    assert!(said.contains("ours on embedded: 1 passed, 356 not covered"), "{said}");
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_wrong() {
    let folder = Folder::new();
    folder.leave("run", vec![passed_with_journal("a", ROW)], 0);
    folder.leave("empty", vec![], 0);
    std::fs::write(folder.0.join("no.json"), "{\"schema_version\": 1}").unwrap();
    std::fs::write(folder.0.join("new.json"), "{\"schema\": \"trysquare-conformance\", \"schema_version\": 99}")
        .unwrap();
    for (arguments, text) in [
        (&["conformance"][..], "no feature file or folder at features"),
        (&["conformance", "--run", "nowhere"], "name a folder that --report wrote"),
        (&["conformance", "--run", "empty"], "the run in empty has no scenario"),
        (&["conformance", "--run", "run", "--baseline", "nowhere.json"], "cannot read nowhere.json"),
        (&["conformance", "--run", "run", "--baseline", "run/report.json"], "is no conformance report of trysquare"),
        (&["conformance", "--run", "run", "--baseline", "new.json"], "schema version 99; this program reads version 1"),
        (&["conformance", "--controller", "karpenter"], "is no controller"),
        (&["report", "diff", "no.json", "no.json"], "is no conformance report"),
        (&["report", "diff", "no.json"], "<AFTER>"),
        (&["report"], "trysquare report diff A B"),
    ] {
        let said = folder.run(2, arguments);
        assert!(said.contains(text), "{arguments:?}: {text:?} is missing in {said}");
    }
}

#[test]
fn nothing_that_a_run_says_becomes_markup() {
    const HOSTILE: &str = "</script></style></title><img src=x onerror='alert(1)'>\"&|`[a](b)";
    let folder = Folder::new();
    let mut hostile = scenario(HOSTILE, &[ROW]);
    (hostile.feature, hostile.path) = (HOSTILE.into(), HOSTILE.into());
    let failure = Failure {
        step: HOSTILE.into(),
        message: HOSTILE.into(),
        last_observed: Some(HOSTILE.into()),
        timeline: vec![HOSTILE.into()],
    };
    let mut one = result(hostile, Verdict::Failed(failure));
    (one.controller, one.backend) = (HOSTILE.into(), HOSTILE.into());
    folder.leave("run", vec![one], 0);
    folder.run(1, &["conformance", "--run", "run", "--report", "out"]);
    let page = folder.read("out/conformance.html");
    assert_eq!(
        (page.matches("<img").count(), page.matches("</script>").count(), page.matches("</style>").count()),
        (0, 1, 1)
    );
    let markdown = folder.read("out/conformance.md");
    assert!(!markdown.contains("<img") && !markdown.contains("[a](b)"), "{markdown}");
    assert!(!folder.read("out/junit.xml").contains("<img") && !folder.read("out/badge.svg").contains("<img"));
    let inside: Vec<_> = std::fs::read_dir(folder.0.join("out/runs")).unwrap().collect();
    assert_eq!(inside.len(), 1, "the folder of its run is in the report's");
    assert!(!Path::new("/img").exists());
}
