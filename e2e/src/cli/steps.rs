//! `trysquare steps`: the vocabulary.

use super::{CliError, Format, PASSED, print, print_json};
use crate::steps::Vocabulary;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How to print them.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let vocabulary = Vocabulary::whole();
    if arguments.format == Format::Json {
        let steps: Vec<_> = vocabulary
            .steps()
            .iter()
            .map(|step| serde_json::json!({"group": step.group, "step": step.expression}))
            .collect();
        print_json(&steps)?;
        return Ok(PASSED);
    }
    let (mut text, mut group) = (String::new(), "");
    for step in vocabulary.steps() {
        if step.group != group {
            group = step.group;
            text += &format!("{group}\n");
        }
        text += &format!("  {}\n", step.expression);
    }
    print(&text)?;
    Ok(PASSED)
}
