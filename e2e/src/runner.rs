//! Runs scenarios, each in a process of its own, as many at a time as there are cores, and tells how far it is.
//!
//! Libraries keep process-wide state (retry budgets, hash seeds), so only a fresh process starts every scenario from the
//! same place. The program starts itself again with a task on standard input and reads the result from standard output.

use crate::backend::{BackendName, Program, keep_log};
use crate::features::Scenario;
use crate::permissions::Permission;
use crate::place::{Place, Places, Seat};
use crate::scenario::{IAM, On, START, Task};
use crate::under_test::UnderTest;
use crate::verdict::{Failure, Repeat, ScenarioResult, Verdict};
use anyhow::Context;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// How long a scenario's process may take before it is ended. Most take seconds; a month of virtual time takes three minutes,
/// and several times that on a machine that is busy otherwise. A longer one is stuck in a loop that never waits, which
/// virtual time cannot leap over.
pub const SCENARIO_LIMIT: Duration = Duration::from_secs(900);

/// How long a process may take to end once its input has: it has nothing left to do then.
const GRACE: Duration = Duration::from_secs(5);

/// How long a scenario's process may take in real time, where the longest wait for an hour.
const REAL_TIME_LIMIT: Duration = Duration::from_secs(90 * 60);

/// The tag of scenarios that wait for more than about seven minutes in sum.
const CLOCK: &str = "clock";

/// The tag of scenarios in which another controller takes over, and what is missing where it cannot.
const SECOND_CONTROLLER: &str = "second-controller";

/// The tag of scenarios that expect what only an account answers in which nobody is refused anything.
const WITHOUT_IAM: &str = "without-iam";

/// The tag of scenarios in which the controller gets its AWS credentials for a token of the cluster.
const WEB_IDENTITY: &str = "web-identity";

/// The tag of scenarios that wait for days.
const SLOW: &str = "slow";

/// The tag of scenarios that are about our controller alone.
const EXTENSION: &str = "extension";

/// What stands as the step of a failure where the process of a scenario told nothing itself.
pub(crate) const PROCESS: &str = "the scenario's process";

/// How scenarios are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that carries out a task: `trysquare` itself.
    pub program: PathBuf,
    /// What the scenarios run on.
    pub on: On,
    /// The seed of every scenario.
    pub seed: u64,
    /// Whether randomness is pinned to the seed.
    pub pinned: bool,
    /// Whether each scenario runs twice and both journals are compared.
    pub twice: bool,
    /// How many processes at a time.
    pub jobs: usize,
    /// Whether scenarios that wait for long are run in real time as well.
    pub long: bool,
    /// What is taken away in each scenario, by its place in the list; nothing where this list ends.
    pub without: Vec<Permission>,
    /// What places are made of, for the backends that have some.
    pub places: Option<Places>,
    /// A folder in which the logs of all processes of a failed scenario are kept.
    pub logs: Option<PathBuf>,
    /// A folder in which the journals are kept; without one, two runs that differ cannot be told where they do.
    pub journals: Option<PathBuf>,
}

impl Options {
    /// Our controller on the embedded backend, one scenario at a time, with everything pinned to seed 1.
    pub fn usual(program: PathBuf) -> Self {
        Self {
            program,
            on: On::usual(),
            seed: 1,
            pinned: true,
            twice: false,
            jobs: 1,
            long: false,
            without: Vec::new(),
            places: None,
            logs: None,
            journals: None,
        }
    }
}

/// Told after each scenario, in the order in which they end.
pub trait Progress: Sync {
    /// A scenario has ended.
    fn ended(&self, result: &ScenarioResult);
}

/// Runs the scenarios and answers their results in the order of the scenarios.
pub fn run(scenarios: &[Scenario], options: &Options, progress: &dyn Progress) -> anyhow::Result<Vec<ScenarioResult>> {
    if let Some(folder) = &options.journals {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<ScenarioResult>>> = Mutex::new(vec![None; scenarios.len()]);
    std::thread::scope(|scope| {
        for number in 1..=options.jobs.clamp(1, scenarios.len().max(1)) {
            let (next, results) = (&next, &results);
            scope.spawn(move || {
                let mut seat = options.places.as_ref().map(|places| Seat::new(places, number));
                while let Some((index, scenario)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    scenarios.get(index).map(|scenario| (index, scenario))
                } {
                    let result = if let Some(missing) = missing(scenario, options) {
                        skipped(scenario, options, missing)
                    } else {
                        match seat.as_mut().map(|seat| seat.as_mut().map(Seat::ready)) {
                            None => run_one(scenario, index, options, None),
                            Some(Ok(Ok(place))) => run_one(scenario, index, options, Some(place)),
                            Some(Ok(Err(error))) => could_not_start(scenario, options, &error),
                            Some(Err(error)) => could_not_start(scenario, options, error),
                        }
                    };
                    progress.ended(&result);
                    results.lock().expect("no thread panics while it holds the results")[index] = Some(result);
                }
            });
        }
    });
    Ok(results.into_inner().expect("all threads have ended").into_iter().flatten().collect())
}

/// What a scenario needs that is not there: a clock that can be set forward, where it waits for longer than anybody wants
/// to, another controller beside the one under test, or a controller that goes beyond upstream's.
fn missing(scenario: &Scenario, options: &Options) -> Option<&'static str> {
    let tagged = |tag: &str| scenario.tags.iter().any(|own| own == tag);
    let waits = tagged(SLOW) || (tagged(CLOCK) && !options.long);
    if waits && !options.on.is_virtual() {
        return Some(CLOCK);
    }
    let is_alone = || {
        options.on.is_virtual()
            || options.on.backend == BackendName::Kind
            || Program::of(&options.on.controller.other()).is_err()
    };
    if tagged(SECOND_CONTROLLER) && is_alone() {
        return Some(SECOND_CONTROLLER);
    }
    // The stack allows what our controller asks for, and upstream asks for more.
    if tagged(IAM) && matches!(options.on.controller, UnderTest::Upstream | UnderTest::Program(_)) {
        return Some(IAM);
    }
    if tagged(WITHOUT_IAM) && options.on.enforce_iam {
        return Some(WITHOUT_IAM);
    }
    let makes_tokens = matches!(options.on.backend, BackendName::Apiserver | BackendName::Kind);
    if tagged(WEB_IDENTITY) && !(makes_tokens && options.on.controller == UnderTest::Ours) {
        return Some(WEB_IDENTITY);
    }
    (tagged(EXTENSION) && options.on.controller == UnderTest::Upstream).then_some(EXTENSION)
}

fn run_one(scenario: &Scenario, index: usize, options: &Options, place: Option<Place>) -> ScenarioResult {
    let journal = |run: u32| options.journals.as_ref().map(|folder| folder.join(format!("{index:04}-{run}.jsonl")));
    let logs = options.logs.as_ref().map(|folder| folder.join(format!("{index:04}")));
    let run = |run: u32| {
        let task = Task {
            scenario: scenario.clone(),
            on: On {
                without: options.without.get(index).or(options.on.without.as_ref()).cloned(),
                ..options.on.clone().for_scenario(scenario)
            },
            seed: options.seed,
            pinned: options.pinned,
            journal: journal(run),
            place: place.clone(),
            logs: logs.clone(),
        };
        // What keeps one scenario from being run is told with the others' results, which are worth no less for it.
        let limit = if options.on.is_virtual() { SCENARIO_LIMIT } else { REAL_TIME_LIMIT };
        in_own_process(&options.program, &task, limit)
            .unwrap_or_else(|error| died(&task, PROCESS, format!("{error:#}")))
    };
    let mut result = run(1);
    if options.twice {
        let second = run(2);
        let identical = second.journal == result.journal;
        let both_lived = result.journal.entries > 0 && second.journal.entries > 0;
        let first_difference = match (identical, journal(1), journal(2)) {
            // A run whose process died has its reason for that; its journal ends anywhere.
            (false, Some(one), Some(two)) if both_lived => {
                first_difference(&one, &two).unwrap_or_else(|error| Some(format!("{error:#}")))
            }
            _ => None,
        };
        if let (Verdict::Passed, Verdict::Failed(failure)) = (&result.verdict, second.verdict) {
            result.verdict = Verdict::Failed(Failure { step: format!("second run: {}", failure.step), ..failure });
        }
        result.repeat = Some(Repeat { identical, journal: second.journal, first_difference });
    }
    if let Some(logs) = &logs {
        match (&result.verdict, &place) {
            (Verdict::Failed(_), Some(place)) => {
                for log in place.logs() {
                    // What cannot be kept takes nothing from the result.
                    let _ = keep_log(&log, logs);
                }
            }
            (Verdict::Failed(_), None) => {}
            _ => drop(std::fs::remove_dir_all(logs)),
        }
    }
    result
}

#[allow(clippy::disallowed_methods)] // Wall time is what is measured: how long the process took.
fn in_own_process(program: &Path, task: &Task, limit: Duration) -> anyhow::Result<ScenarioResult> {
    let started = std::time::Instant::now();
    let mut command = Command::new(program);
    command
        .args(["scenario-process", "--end-with-input"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A process group of its own: Ctrl-C reaches this process only, which tells what it means for the run.
    command.arg0("trysquare").process_group(0);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    let mut input = child.stdin.take().expect("standard input is piped");
    let mut sent = serde_json::to_vec(task)?;
    sent.push(b'\n');
    // A child that ends before it has read its task says why on standard error; the broken pipe adds nothing.
    let _ = input.write_all(&sent);
    let (output, in_time) = wait_with_limit(child, input, limit)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors = errors.trim();
    let mut result = match serde_json::from_slice::<ScenarioResult>(&output.stdout) {
        Ok(result) => result,
        Err(_) if !in_time => died(task, PROCESS, format!("its process had not ended after {limit:?} and was stopped")),
        Err(_) if output.status.code() == Some(i32::from(crate::cli::BACKEND)) => {
            died(task, START, errors.strip_prefix("trysquare: ").unwrap_or(errors).to_owned())
        }
        Err(_) => {
            let said = if errors.is_empty() { String::new() } else { format!("; it said: {errors}") };
            died(task, PROCESS, format!("its process ended without a result, with {}{said}", output.status))
        }
    };
    result.wall_s = started.elapsed().as_secs_f64();
    Ok(result)
}

/// Waits for the end of a process that ends with its standard input. Answers whether it ended by itself.
fn wait_with_limit(child: Child, input: ChildStdin, limit: Duration) -> anyhow::Result<(Output, bool)> {
    let id = child.id();
    let (ended, wait) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let in_time = wait.recv_timeout(limit) != Err(RecvTimeoutError::Timeout);
        drop(input);
        // Whatever does not even see its input end is killed. It is not reaped before `ended` goes, so the id is its own.
        if !in_time && wait.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
        }
        in_time
    });
    let output = child.wait_with_output();
    drop(ended);
    let in_time = watchdog.join().expect("the watchdog does not panic");
    Ok((output?, in_time))
}

fn died(task: &Task, step: &str, message: String) -> ScenarioResult {
    let failure = Failure { step: step.into(), message, last_observed: None, timeline: vec![] };
    without_run(&task.scenario, &task.on, task.seed, Verdict::Failed(failure))
}

fn could_not_start(scenario: &Scenario, options: &Options, error: &anyhow::Error) -> ScenarioResult {
    let message = format!("{error:#}");
    let failure = Failure { step: START.into(), message, last_observed: None, timeline: vec![] };
    without_run(scenario, &options.on, options.seed, Verdict::Failed(failure))
}

fn skipped(scenario: &Scenario, options: &Options, missing: &str) -> ScenarioResult {
    without_run(scenario, &options.on, options.seed, Verdict::Skipped { missing: missing.into() })
}

fn without_run(scenario: &Scenario, on: &On, seed: u64, verdict: Verdict) -> ScenarioResult {
    ScenarioResult::bare(scenario.clone(), &on.backend.to_string(), &on.controller.to_string(), seed, verdict)
}

/// The first line in which two journals differ.
fn first_difference(one: &Path, two: &Path) -> anyhow::Result<Option<String>> {
    let lines = |path: &Path| -> anyhow::Result<_> {
        let file = std::fs::File::open(path).with_context(|| format!("cannot read the journal {}", path.display()))?;
        Ok(std::io::BufReader::new(file).lines())
    };
    let (mut one, mut two) = (lines(one)?, lines(two)?);
    for number in 1_u64.. {
        let (a, b) = (one.next().transpose()?, two.next().transpose()?);
        if a.is_none() && b.is_none() {
            break;
        }
        if a != b {
            let show = |line: Option<String>| {
                line.map_or_else(|| "(no more lines)".into(), |l| l.chars().take(400).collect::<String>())
            };
            return Ok(Some(format!("line {number}\n  first run:  {}\n  second run: {}", show(a), show(b))));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_of_two_journals_is_found_by_line() {
        let folder = std::env::temp_dir().join(format!("journals-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let one = file("one", "a\nb\nc\n");
        assert_eq!(first_difference(&one, &file("same", "a\nb\nc\n")).unwrap(), None);
        assert!(first_difference(&one, &file("other", "a\nx\nc\n")).unwrap().unwrap().starts_with("line 2\n"));
        assert!(first_difference(&one, &file("short", "a\nb\n")).unwrap().unwrap().contains("(no more lines)"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_program_that_answers_nonsense_fails_its_scenario_and_says_so() {
        let scenario =
            Scenario { feature: "F".into(), name: "S".into(), path: "x".into(), line: 1, tags: vec![], steps: vec![] };
        let task = Task { scenario, on: On::usual(), seed: 1, pinned: true, journal: None, place: None, logs: None };
        let result = in_own_process(Path::new("/bin/true"), &task, SCENARIO_LIMIT).unwrap();
        assert!(
            matches!(&result.verdict, Verdict::Failed(failure) if failure.message.contains("without a result")),
            "{result:?}"
        );
    }

    #[test]
    fn a_process_that_takes_too_long_is_ended_through_its_input() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let (output, in_time) = wait_with_limit(child, input, Duration::from_millis(50)).unwrap();
        assert!(output.status.success() && !in_time, "{output:?}");
    }

    #[test]
    fn a_program_that_is_missing_fails_its_scenario_and_leaves_the_others() {
        let scenario =
            Scenario { feature: "F".into(), name: "S".into(), path: "x".into(), line: 1, tags: vec![], steps: vec![] };
        struct Silent;
        impl Progress for Silent {
            fn ended(&self, _: &ScenarioResult) {}
        }
        let options = Options { twice: true, jobs: 2, ..Options::usual("/nowhere/trysquare".into()) };
        let results = run(&[scenario.clone(), scenario], &options, &Silent).unwrap();
        assert_eq!(results.len(), 2);
        for result in results {
            assert!(
                matches!(&result.verdict, Verdict::Failed(failure) if failure.message.contains("/nowhere/trysquare")),
                "{result:?}"
            );
        }
    }
}
