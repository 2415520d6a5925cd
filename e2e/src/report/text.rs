//! The result for people: a line per scenario, the diagnosis of each failure, and the numbers of the whole run.

use super::Summary;
use crate::verdict::{ScenarioResult, Verdict};
use std::fmt::Write;

/// How many lines of a failed scenario's timeline are printed; report.json has the rest.
const TIMELINE_SHOWN: usize = 60;

/// Writes a line to a String, which cannot fail.
macro_rules! line {
    ($out:ident, $($arguments:tt)*) => {{ let _ = writeln!($out, $($arguments)*); }};
}

/// One word for what came of a scenario.
pub(crate) fn mark(result: &ScenarioResult) -> &'static str {
    match &result.verdict {
        Verdict::Skipped { .. } => "skipped",
        _ if result.failed() => "FAILED ",
        _ => "passed ",
    }
}

/// Puts the text together.
pub(crate) fn render(results: &[ScenarioResult], summary: &Summary, calls: bool, colour: bool) -> String {
    let colour = Colour(colour);
    let mut out = String::new();
    let width = results.iter().map(|result| result.scenario.name.chars().count()).max().unwrap_or(0).min(90);
    line!(out, "\n{:<7}  {:<width$}  {:>10}  {:>7}", "", "scenario", "virtual", "wall");
    let mut feature = "";
    for result in results {
        if result.scenario.feature != feature {
            feature = &result.scenario.feature;
            line!(out, "{}", colour.bold(feature));
        }
        let mark = if result.failed() { colour.red(mark(result)) } else { colour.green(mark(result)) };
        let times = format!("{:>10}  {:>6.2}s", duration(result.virtual_s), result.wall_s);
        line!(out, "{mark}  {:<width$}  {times}", result.scenario.name);
        if let Verdict::Skipped { missing } = &result.verdict {
            line!(out, "         the backend lacks {missing}");
        }
        if let Some(repeat) = &result.repeat {
            let word = if repeat.identical { "identical" } else { "DIFFERENT" };
            let (one, two) = (&result.journal, &repeat.journal);
            line!(
                out,
                "         {word}: {} requests {}  and {} requests {}",
                one.entries,
                &short(&one.sha256),
                two.entries,
                short(&two.sha256)
            );
        }
        if calls {
            for (call, count) in &result.journal.calls {
                line!(out, "         {count:>6} × {call}");
            }
        }
    }
    for result in results.iter().filter(|result| result.failed()) {
        out.push_str(&diagnosis(result, &colour));
    }
    let Summary { passed, failed, skipped, virtual_s, wall_s } = summary;
    line!(
        out,
        "\n{} of virtual time in {wall_s:.2}s of wall time ({:.0} times as fast)",
        duration(*virtual_s),
        virtual_s / wall_s.max(1e-3)
    );
    line!(out, "{passed} passed, {failed} failed, {skipped} skipped");
    out
}

fn diagnosis(result: &ScenarioResult, colour: &Colour) -> String {
    let mut out = String::new();
    line!(out, "\n{} {}", colour.red("FAILED"), colour.bold(&result.scenario.name));
    line!(out, "  {}  seed {}", result.scenario.location(), result.seed);
    if let Verdict::Failed(failure) = &result.verdict {
        line!(out, "  at: {}", failure.step);
        line!(out, "  {}", failure.message.replace('\n', "\n  "));
        if let Some(observed) = &failure.last_observed {
            line!(out, "  last observed: {}", observed.replace('\n', "\n  "));
        }
        let left_out = failure.timeline.len().saturating_sub(TIMELINE_SHOWN);
        if !failure.timeline.is_empty() {
            line!(
                out,
                "  what happened{}:",
                if left_out > 0 {
                    format!(" ({left_out} earlier lines left out; --report DIR keeps them)")
                } else {
                    String::new()
                }
            );
        }
        for entry in failure.timeline.iter().skip(left_out) {
            line!(out, "    {entry}");
        }
    }
    if let Some(difference) = result.repeat.as_ref().and_then(|repeat| repeat.first_difference.as_ref()) {
        line!(out, "  the two runs differ first at {}", difference.replace('\n', "\n  "));
    }
    out
}

fn short(sha256: &str) -> &str {
    sha256.get(..16).unwrap_or(sha256)
}

/// Virtual time, as a person reads it.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60, whole % 60) {
        (0, 0, 0, _) => format!("{seconds:.1}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (0, hours, minutes, seconds) => format!("{hours}h{minutes:02}m{seconds:02}s"),
        (days, hours, minutes, _) => format!("{days}d{hours:02}h{minutes:02}m"),
    }
}

/// Colours on a terminal, plain text elsewhere.
struct Colour(bool);

impl Colour {
    fn paint(&self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn red(&self, text: &str) -> String {
        self.paint("31", text)
    }

    fn green(&self, text: &str) -> String {
        self.paint("32", text)
    }

    fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_read_well() {
        assert_eq!(duration(12.34), "12.3s");
        assert_eq!(duration(125.0), "2m05s");
        assert_eq!(duration(87_840.0), "1d00h24m");
    }
}
