//! `trysquare compare`: the same manifests to our controller and to upstream's, and where they differ.

use super::{CliError, FAILED, Format, PASSED, print, print_json, tell};
use crate::backend::Program;
use crate::compatibility::compare::{Accepted, Comparison, compare, inputs};
use crate::under_test::UnderTest;
use anyhow::Context;
use std::path::{Path, PathBuf};

const AFTER_HELP: &str = "\
Each input is a manifest; both controllers are given it at the same time, each on an API server and in an account of its own.
Compared are launches with their templates, tags and user data, every object they write, and events. A difference is a fault
unless the file accepted.yaml beside the inputs names it with a reason.

Exit codes: 0 nothing differs but what is accepted, 1 something does, 2 wrong usage, 3 a controller did not start.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// A folder with manifests and accepted.yaml.
    #[arg(default_value = "e2e/compatibility")]
    folder: PathBuf,
    /// Only inputs whose name contains the text.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Keep what was observed, and the controllers' logs, in this folder.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// How many inputs at a time.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    /// How to print the results.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let accepted = accepted(&arguments.folder.join("accepted.yaml")).map_err(CliError::usage)?;
    let mut inputs = inputs(&arguments.folder.join("inputs")).map_err(CliError::usage)?;
    if let Some(text) = &arguments.name {
        inputs.retain(|path| path.file_stem().is_some_and(|name| name.to_string_lossy().contains(text)));
    }
    if inputs.is_empty() {
        return Err(CliError::usage(anyhow::anyhow!("no input's name contains that text")));
    }
    Program::of(&UnderTest::Upstream).map_err(CliError::backend)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::backend)?;
    let local = tokio::task::LocalSet::new();
    let comparisons = local.block_on(&runtime, async {
        use futures::StreamExt;
        let (accepted, keep) = (&accepted, arguments.keep.as_deref());
        let all = inputs.iter().map(|input| async move {
            let outcome = compare(input, accepted, keep).await;
            let outcome = outcome.unwrap_or_else(|error| Comparison::failed(input, &error));
            if arguments.format == Format::Text {
                tell(&format!("{} {}", if outcome.is_equal() { "equal  " } else { "DIFFERS" }, outcome.input));
            }
            outcome
        });
        futures::stream::iter(all).buffered(usize::from(arguments.jobs)).collect::<Vec<_>>().await
    });
    match arguments.format {
        Format::Json => print_json(&comparisons)?,
        Format::Text => print(&text(&comparisons))?,
    }
    Ok(if comparisons.iter().all(Comparison::is_equal) { PASSED } else { FAILED })
}

fn accepted(path: &Path) -> anyhow::Result<Vec<Accepted>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let all: Option<Vec<Accepted>> = serde_yaml_ng::from_str(&text).with_context(|| format!("{}", path.display()))?;
    Ok(all.unwrap_or_default())
}

fn text(comparisons: &[Comparison]) -> String {
    let mut text = String::new();
    let (mut fields, mut all_faults, mut all_accepted) = (0, 0, 0);
    for comparison in comparisons {
        let faults = comparison.faults().count();
        let accepted = comparison.differences.len() - faults;
        fields += comparison.fields;
        all_faults += faults;
        all_accepted += accepted;
        text += &format!(
            "{}: {} fields, {faults} differ, {accepted} differ for a reason\n",
            comparison.input, comparison.fields
        );
        if let Some(error) = &comparison.error {
            text += &format!("  not compared: {error}\n");
        }
        for difference in comparison.faults() {
            let (ours, upstream) = first_difference(&difference.ours, &difference.upstream);
            text += &format!("  {}\n    ours:     {ours}\n    upstream: {upstream}\n", difference.path);
        }
    }
    text += &format!(
        "{} inputs, {fields} fields: {all_faults} differ, {all_accepted} differ for a reason\n",
        comparisons.len()
    );
    text
}

/// Of two texts of several lines, such as user data, the lines in which they first differ.
fn first_difference<'a>(one: &'a str, other: &'a str) -> (&'a str, &'a str) {
    let ends = "(ends)";
    let (mut one_lines, mut other_lines) = (one.lines(), other.lines());
    loop {
        match (one_lines.next(), other_lines.next()) {
            (Some(one), Some(other)) if one == other => {}
            (None, None) => return (one, other),
            (one, other) => return (one.unwrap_or(ends), other.unwrap_or(ends)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_user_data_the_first_line_that_differs_is_shown() {
        assert_eq!(first_difference("a\nb\nc", "a\nx\nc"), ("b", "x"));
        assert_eq!(first_difference("a", "a\nb"), ("(ends)", "b"));
        assert_eq!(first_difference("a", "b"), ("a", "b"));
    }
}
