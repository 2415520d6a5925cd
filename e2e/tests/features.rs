//! The features under plain `cargo test`: one trial per scenario, each in a process of its own. Scenarios tagged `@slow`
//! are left to `trysquare test`.

use e2e::features::{self, Scenario, Selection};
use e2e::runner::{self, Options, Progress};
use e2e::verdict::{ScenarioResult, Verdict};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::PathBuf;

fn main() {
    let arguments = Arguments::from_args();
    let folder = PathBuf::from("../features");
    let scenarios = features::load(&[folder]).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2);
    });
    let quick = Selection::new(Some("not @slow"), None).expect("the expression is well-formed");
    let trials = scenarios.into_iter().filter(|scenario| quick.selects(scenario)).map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(scenario: Scenario) -> Trial {
    Trial::test(format!("{} ▸ {}", scenario.feature, scenario.name), move || check(&scenario))
}

fn check(scenario: &Scenario) -> Result<(), Failed> {
    struct Silent;
    impl Progress for Silent {
        fn ended(&self, _: &ScenarioResult) {}
    }
    let options = Options::usual(PathBuf::from(env!("CARGO_BIN_EXE_trysquare")));
    let results =
        runner::run(std::slice::from_ref(scenario), &options, &Silent).map_err(|error| format!("{error:#}"))?;
    match results.into_iter().next().map(|result| result.verdict) {
        Some(Verdict::Failed(failure)) => {
            let last = failure.last_observed.map(|seen| format!("\nlast observed: {seen}")).unwrap_or_default();
            Err(format!("{}\n{}{last}\n{}", failure.step, failure.message, failure.timeline.join("\n")).into())
        }
        _ => Ok(()),
    }
}
