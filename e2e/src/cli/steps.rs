//! `trysquare steps`: the vocabulary.

use super::{CliError, Format, PASSED, print, print_json, tell};
use crate::steps::{Step, Vocabulary};

const AFTER_HELP: &str = "\
Examples:
  trysquare steps                    every sentence, by concept
  trysquare steps spot               those that speak of spot
  trysquare steps node not           those with both words

Exit codes: 0 listed, 1 no sentence holds the words, 2 wrong usage.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Only sentences that hold each of these texts, or belong to a concept that does; letters in any case.
    words: Vec<String>,
    /// How to print them.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let vocabulary = Vocabulary::whole();
    let words: Vec<String> = arguments.words.iter().map(|word| word.to_lowercase()).collect();
    let holds = |step: &&Step| {
        let text = format!("{} {}", step.group, step.expression).to_lowercase();
        words.iter().all(|word| text.contains(word))
    };
    let steps: Vec<&Step> = vocabulary.steps().iter().filter(holds).collect();
    if arguments.format == Format::Json {
        let steps: Vec<_> =
            steps.iter().map(|step| serde_json::json!({"group": step.group, "step": step.expression})).collect();
        print_json(&steps)?;
    } else {
        let (mut text, mut group) = (String::new(), "");
        for step in &steps {
            if step.group != group {
                group = step.group;
                text += &format!("{group}\n");
            }
            text += &format!("  {}\n", step.expression);
        }
        print(&text)?;
    }
    if steps.is_empty() {
        let words = arguments.words.join(" ");
        tell(&format!("trysquare: no sentence holds {words:?}; `trysquare steps` lists them all"));
        return Ok(super::FAILED);
    }
    Ok(PASSED)
}
