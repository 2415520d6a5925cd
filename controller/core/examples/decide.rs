//! Decides scheduling problems, one line of JSON each, without the rest of the product:
//! `cargo run --release -p controller-core --example decide -- --catalogues FOLDER < problems.jsonl > answers.jsonl`.
//! `--check` lets the checker look at every answer, and `--repeat N` decides N times and tells the median time.

use controller_core::check;
use controller_core::problem::{Catalogue, Problem, answer_of};
use controller_core::scheduling::schedule;
use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut folder = PathBuf::from(".");
    let mut repeat = 1;
    let mut is_checked = false;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--catalogues" => folder = arguments.next().expect("a folder").into(),
            "--repeat" => repeat = arguments.next().expect("a number").parse().expect("a number"),
            "--check" => is_checked = true,
            other => panic!("unknown argument {other}"),
        }
    }
    let mut known: BTreeMap<String, Arc<Catalogue>> = BTreeMap::new();
    let mut out = std::io::stdout().lock();
    for (index, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.expect("text");
        let mut catalogue = |name: &str| match known.get(name) {
            Some(known) => Ok(Arc::clone(known)),
            None => {
                let read = Arc::new(Catalogue::read(&text(&folder, name)?).map_err(|error| error.to_string())?);
                known.insert(name.to_owned(), Arc::clone(&read));
                Ok(read)
            }
        };
        let problem = Problem::read(&line, &mut catalogue).unwrap_or_else(|error| {
            eprintln!("line {}: {error}", index + 1);
            std::process::exit(2)
        });
        let mut times = Vec::new();
        let mut decided = None;
        for _ in 0..repeat {
            #[allow(clippy::disallowed_methods, reason = "how long a decision takes is what is measured here")]
            let started = std::time::Instant::now();
            decided = Some(schedule(&problem.snapshot, &problem.settings));
            times.push(started.elapsed().as_nanos() as u64);
        }
        times.sort_unstable();
        let decided = decided.expect("decided at least once");
        if is_checked {
            let broken = check::schedule(&problem.snapshot, &problem.settings, &decided);
            broken.iter().for_each(|violation| eprintln!("{}: {violation}", problem.id));
        }
        let mut answer = answer_of(&problem, &decided);
        answer["solveNs"] = times[times.len() / 2].into();
        answer["leastNs"] = times[0].into();
        writeln!(out, "{answer}").expect("stdout takes it");
    }
}

/// The catalogue's text, packed or not.
fn text(folder: &std::path::Path, name: &str) -> Result<String, String> {
    let plain = folder.join(format!("{name}.json"));
    if let Ok(text) = std::fs::read_to_string(&plain) {
        return Ok(text);
    }
    let packed = folder.join(format!("{name}.json.gz"));
    let file = std::fs::File::open(&packed).map_err(|_| format!("neither {plain:?} nor {packed:?} can be read"))?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).map_err(|error| format!("{packed:?}: {error}"))?;
    Ok(text)
}
