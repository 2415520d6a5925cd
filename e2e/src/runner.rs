//! Runs scenarios, each in a process of its own, as many at a time as there are cores, and tells how far it is.
//!
//! Libraries keep process-wide state (retry budgets, hash seeds), so only a fresh process starts every scenario from the
//! same place. The program starts itself again with a task on standard input and reads the result from standard output.

use crate::features::Scenario;
use crate::scenario::Task;
use crate::verdict::{Failure, Repeat, ScenarioResult, Verdict};
use anyhow::Context;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a scenario's process may take before it is ended. The longest takes seconds; a minute-long one is stuck in
/// a loop that never waits, which virtual time cannot leap over.
pub const SCENARIO_LIMIT: Duration = Duration::from_secs(300);

/// How scenarios are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that carries out a task: `trysquare` itself.
    pub program: PathBuf,
    /// The seed of every scenario.
    pub seed: u64,
    /// Whether randomness is pinned to the seed.
    pub pinned: bool,
    /// Whether each scenario runs twice and both journals are compared.
    pub twice: bool,
    /// How many processes at a time.
    pub jobs: usize,
    /// A folder in which the journals are kept; without one they are dropped after use.
    pub journals: Option<PathBuf>,
}

/// Told after each scenario, in the order in which they end.
pub trait Progress: Sync {
    /// A scenario has ended.
    fn ended(&self, result: &ScenarioResult);
}

/// Runs the scenarios and answers their results in the order of the scenarios.
pub fn run(scenarios: &[Scenario], options: &Options, progress: &dyn Progress) -> anyhow::Result<Vec<ScenarioResult>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<ScenarioResult>>> = Mutex::new(vec![None; scenarios.len()]);
    let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, scenarios.len().max(1)) {
            scope.spawn(|| {
                while let Some((index, scenario)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    scenarios.get(index).map(|scenario| (index, scenario))
                } {
                    match run_one(scenario, index, options) {
                        Ok(result) => {
                            progress.ended(&result);
                            results.lock().expect("no thread panics while it holds the results")[index] = Some(result);
                        }
                        Err(error) => {
                            *failure.lock().expect("no thread panics while it holds the failure") = Some(error);
                            next.store(scenarios.len(), Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    if let Some(error) = failure.into_inner().expect("all threads have ended") {
        return Err(error);
    }
    Ok(results.into_inner().expect("all threads have ended").into_iter().flatten().collect())
}

fn run_one(scenario: &Scenario, index: usize, options: &Options) -> anyhow::Result<ScenarioResult> {
    let own_folder = match (&options.journals, options.twice) {
        (None, true) => Some(std::env::temp_dir().join(format!("trysquare-{}-{index}", std::process::id()))),
        _ => None,
    };
    let folder = options.journals.as_ref().or(own_folder.as_ref());
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let journal = |run: u32| folder.map(|folder| folder.join(format!("{index:04}-{run}.jsonl")));
    let task = |run| Task { scenario: scenario.clone(), seed: options.seed, pinned: options.pinned, journal: journal(run) };
    let mut result = in_own_process(&options.program, &task(1))?;
    if options.twice {
        let second = in_own_process(&options.program, &task(2))?;
        let identical = second.journal == result.journal;
        let first_difference = match (identical, journal(1), journal(2)) {
            (false, Some(one), Some(two)) => first_difference(&one, &two)?,
            _ => None,
        };
        result.repeat = Some(Repeat { identical, journal: second.journal, first_difference });
    }
    if let Some(folder) = own_folder {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove the folder {}", folder.display()))?;
    }
    Ok(result)
}

fn in_own_process(program: &Path, task: &Task) -> anyhow::Result<ScenarioResult> {
    let started = std::time::Instant::now();
    let mut child = Command::new(program)
        .arg("scenario-process")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut input = child.stdin.take().expect("standard input is piped");
    let sent = serde_json::to_vec(task)?;
    // A child that ends before it has read its task says why on standard error; the broken pipe adds nothing.
    let _ = input.write_all(&sent);
    drop(input);
    let output = wait_with_limit(child, SCENARIO_LIMIT)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut result = match serde_json::from_slice::<ScenarioResult>(&output.stdout) {
        Ok(result) => result,
        Err(_) => died(task, format!("its process ended with {} and no result: {}", output.status, errors.trim())),
    };
    result.wall_s = started.elapsed().as_secs_f64();
    Ok(result)
}

fn wait_with_limit(child: std::process::Child, limit: Duration) -> anyhow::Result<std::process::Output> {
    let id = child.id();
    let (ended, wait) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if wait.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            // The process is not reaped before `ended` is dropped, so the id is still its own.
            let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
        }
    });
    let output = child.wait_with_output();
    drop(ended);
    watchdog.join().expect("the watchdog does not panic");
    Ok(output?)
}

fn died(task: &Task, message: String) -> ScenarioResult {
    ScenarioResult {
        scenario: task.scenario.clone(),
        backend: "embedded".into(),
        seed: task.seed,
        verdict: Verdict::Failed(Failure { step: "the scenario's process".into(), message, last_observed: None, timeline: vec![] }),
        virtual_s: 0.0,
        wall_s: 0.0,
        journal: Default::default(),
        repeat: None,
    }
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
            let show = |line: Option<String>| line.map_or_else(|| "(no more lines)".into(), |l| l.chars().take(400).collect::<String>());
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
        let scenario = Scenario { feature: "F".into(), name: "S".into(), path: "x".into(), line: 1, tags: vec![], steps: vec![] };
        let task = Task { scenario, seed: 1, pinned: true, journal: None };
        let result = in_own_process(Path::new("/bin/true"), &task).unwrap();
        assert!(matches!(&result.verdict, Verdict::Failed(failure) if failure.message.contains("no result")), "{result:?}");
    }
}
