//! One scenario, in a process of its own: pins every source of randomness, builds the World in a runtime whose time is
//! virtual, carries the steps out and writes the result for the process that started it.

use crate::backend::{BackendName, SLACK, Setting};
use crate::eventually::NotInTime;
use crate::features::Scenario;
use crate::params::Arguments;
use crate::permissions::Permission;
use crate::place::Place;
use crate::recorder::{LogLayer, Recorder};
use crate::steps::{Step, Vocabulary};
use crate::under_test::UnderTest;
use crate::verdict::{Failure, ScenarioResult, Verdict};
use crate::world::{Start, World};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing_subscriber::layer::SubscriberExt;

/// What stands as the step of a failure where the backend could not start.
pub const START: &str = "the start of the backend";

/// How soon an assertion looks again in real time.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The tag of scenarios in which EC2 offers everything it sells in the region.
const WHOLE_CATALOGUE: &str = "whole-catalogue";

/// The tag of scenarios in which AWS enforces the stack's policies, however the others run.
pub(crate) const IAM: &str = "iam";

/// What a scenario runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct On {
    /// The backend.
    pub backend: BackendName,
    /// The controller under test.
    pub controller: UnderTest,
    /// What is set in the controller's environment beside what the backend sets.
    pub environment: BTreeMap<String, String>,
    /// Whether AWS enforces the permissions that the CloudFormation template gives.
    pub enforce_iam: bool,
    /// A permission that is taken away.
    pub without: Option<Permission>,
}

impl On {
    /// Our controller on the embedded backend: what runs where nothing else is asked for.
    pub fn usual() -> Self {
        Self::with(BackendName::Embedded, UnderTest::Ours)
    }

    /// A controller on a backend, with all permissions.
    pub fn with(backend: BackendName, controller: UnderTest) -> Self {
        Self { backend, controller, environment: BTreeMap::new(), enforce_iam: false, without: None }
    }

    /// The same, as a scenario asks for it.
    #[must_use]
    pub fn for_scenario(mut self, scenario: &Scenario) -> Self {
        self.enforce_iam |= scenario.tags.iter().any(|tag| tag == IAM);
        self
    }

    /// Whether it lives in virtual time: only what runs in one process can.
    pub fn is_virtual(&self) -> bool {
        self.backend == BackendName::Embedded && matches!(self.controller, UnderTest::Ours | UnderTest::Nothing)
    }
}

/// What the process of a scenario is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The scenario.
    pub scenario: Scenario,
    /// What it runs on.
    pub on: On,
    /// The seed.
    pub seed: u64,
    /// Whether randomness is pinned to the seed.
    pub pinned: bool,
    /// Where to keep every line of the journal.
    pub journal: Option<PathBuf>,
    /// The cluster that was made ready, for the backends that have one.
    pub place: Option<Place>,
    /// The folder in which the logs of the controller's processes are kept.
    pub logs: Option<PathBuf>,
}

/// Carries out a task. Answers an error only where the scenario could not be started at all.
pub fn run(task: Task) -> anyhow::Result<ScenarioResult> {
    // A fresh thread: pinning must come before the thread's first hash map.
    std::thread::Builder::new()
        .name("simulation".into())
        .stack_size(16 << 20)
        .spawn(move || {
            // Nothing repeats in real time.
            if task.pinned && task.on.is_virtual() {
                pin(task.seed)?;
            }
            simulate(task)
        })?
        .join()
        .unwrap_or_else(|panic| Err(anyhow::anyhow!("the simulation panicked: {}", panic_text(&*panic))))
}

fn pin(seed: u64) -> anyhow::Result<()> {
    if pinned_randomness::pin(seed) == pinned_randomness::Pinned::Unsupported {
        anyhow::bail!("this platform's randomness cannot be pinned; run with --randomness system");
    }
    fastrand::seed(seed);
    struct Constant;
    impl ahash::random_state::RandomSource for Constant {
        fn gen_hasher_seed(&self) -> usize {
            0x7472_7973
        }
    }
    ahash::random_state::RandomState::new();
    // Fails only where a source was set before, which one process per scenario rules out.
    let _ = ahash::random_state::set_random_source(Constant);
    Ok(())
}

fn simulate(task: Task) -> anyhow::Result<ScenarioResult> {
    let recorder = match &task.journal {
        Some(path) => Recorder::with_file(
            std::fs::File::create(path).with_context(|| format!("cannot write the journal {}", path.display()))?,
        ),
        None => Recorder::default(),
    };
    let level = tracing_subscriber::filter::LevelFilter::DEBUG;
    let targets = tracing_subscriber::filter::Targets::new()
        .with_target("controller", level)
        .with_target("controller_aws", level)
        .with_target("controller_core", level);
    use tracing_subscriber::Layer;
    let subscriber = tracing_subscriber::registry().with(LogLayer(recorder.clone()).with_filter(targets));
    let _logging = tracing::subscriber::set_default(subscriber);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = match task.on.is_virtual() {
        true => runtime.enable_time().start_paused(true),
        false => runtime.enable_all(),
    };
    let runtime = runtime.build()?;
    // The parts of a backend share what no other thread may see: they are local to this one.
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let started = tokio::time::Instant::now();
        let verdict = verdict_of(&task, &recorder).await;
        Ok(ScenarioResult {
            scenario: task.scenario.clone(),
            backend: task.on.backend.to_string(),
            controller: task.on.controller.to_string(),
            seed: task.seed,
            verdict,
            virtual_s: started.elapsed().as_secs_f64(),
            wall_s: 0.0,
            journal: recorder.summary(),
            chronicle: recorder.chronicler().finish(),
            repeat: None,
        })
    })
}

async fn verdict_of(task: &Task, recorder: &Recorder) -> Verdict {
    let failed = |step: String, message: String, last_observed| {
        Verdict::Failed(Failure { step, message, last_observed, timeline: recorder.timeline() })
    };
    let mut world = match World::start(Start {
        setting: Setting { on: task.on.clone(), place: task.place.clone(), certificate: None, logs: task.logs.clone() },
        seed: task.seed,
        families: families(&task.scenario),
        recorder: recorder.clone(),
        manifests: manifests_beside(&task.scenario.path),
    })
    .await
    {
        Ok(world) => world,
        Err(error) => return failed(START.into(), explain(&error), None),
    };
    let vocabulary = Vocabulary::whole();
    let mut asserts = false;
    for line in &task.scenario.steps {
        asserts = match line.keyword.as_str() {
            "Then" => true,
            "Given" | "When" => false,
            // And, But and * go on as the line before.
            _ => asserts,
        };
        let (step, arguments) = match vocabulary.find(&task.scenario, line) {
            Ok(found) => found,
            Err(error) => return failed(line.text.clone(), error.to_string(), None),
        };
        recorder.tell("step", format_args!("{} {}", line.keyword, line.text));
        recorder.chronicler().step_began();
        world.forget_observation();
        let outcome = carry_out(step, &mut world, &arguments, asserts).await;
        recorder.chronicler().step_ended();
        let broken = world.broken_invariant();
        if matches!(outcome, Ok(Ok(()))) && broken.is_none() {
            continue;
        }
        // Whoever watches has not seen the last instant yet.
        tokio::task::yield_now().await;
        let message = match outcome {
            Ok(Ok(())) => {
                let step = format!("invariant, during: {} {}", line.keyword, line.text);
                return failed(step, broken.unwrap_or_default(), None);
            }
            Ok(Err(error)) => explain(&error),
            Err(panic) => format!("panicked: {}", panic_text(&*panic)),
        };
        // Whoever watches has not seen the last instant yet.
        tokio::task::yield_now().await;
        let step = format!("{}:{}: {} {}", task.scenario.path.display(), line.line, line.keyword, line.text);
        return failed(step, message, world.last_observation());
    }
    match world.finish().await {
        Ok(()) => Verdict::Passed,
        Err(error) => failed("invariant, at the end".into(), format!("{error:#}"), None),
    }
}

/// Carries a step out. In real time what an assertion looks at may come a moment late: it may look again for as long as the
/// slack lasts, unless it has waited already.
async fn carry_out(
    step: &Step,
    world: &mut World,
    arguments: &Arguments,
    asserts: bool,
) -> Result<anyhow::Result<()>, Box<dyn std::any::Any + Send>> {
    let started = tokio::time::Instant::now();
    loop {
        let run = AssertUnwindSafe(step.run(world, arguments.clone()));
        let outcome = futures::FutureExt::catch_unwind(run).await;
        let late = world.backend().is_real_time() && asserts && started.elapsed() < SLACK;
        let waited = |error: &anyhow::Error| error.downcast_ref::<NotInTime>().is_some();
        match outcome {
            Ok(Err(error)) if late && !waited(&error) && world.broken_invariant().is_none() => {
                tokio::time::sleep(LOOK_AGAIN).await
            }
            outcome => return outcome,
        }
    }
}

/// What EC2 offers in a scenario. The whole catalogue costs every controller a third of a second at its start, and most
/// scenarios are about something else: they get general-purpose, compute and memory machines of two generations.
fn families(scenario: &Scenario) -> Vec<String> {
    if scenario.tags.iter().any(|tag| tag == WHOLE_CATALOGUE) {
        return Vec::new();
    }
    ["c5", "c6i", "m5", "m6i", "r5", "r6i"].map(str::to_owned).into()
}

/// The folder `manifests` beside the feature file or in the nearest folder above it.
fn manifests_beside(feature: &Path) -> PathBuf {
    // Absolute, so that the folders above the current one are looked at too.
    let absolute = std::path::absolute(feature).unwrap_or_else(|_| feature.to_owned());
    let folders = absolute.ancestors().skip(1).map(|folder| folder.join("manifests"));
    let found = folders.into_iter().find(|folder| folder.is_dir()).unwrap_or_else(|| PathBuf::from("manifests"));
    // Shown as it was named: from where the user stands.
    let here = std::env::current_dir().unwrap_or_default();
    found.strip_prefix(here).ok().filter(|_| feature.is_relative()).map(Path::to_owned).unwrap_or(found)
}

/// An error with its causes. What the API server answered stands in its own words, once, with the fields it names.
pub(crate) fn explain(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let fields: Vec<&str> =
                causes.map(|cause| cause.field.as_str()).filter(|field| !status.message.contains(field)).collect();
            let fields = if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
            parts
                .push(format!("the API server answered {} {}: {}{fields}", status.code, status.reason, status.message));
            break;
        }
        let text = cause.to_string();
        // Many errors repeat their cause in their own text.
        if !parts.last().is_some_and(|last| last.ends_with(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_default()
}
