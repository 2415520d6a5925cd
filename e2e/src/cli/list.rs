//! `trysquare list`: which scenarios there are.

use super::{CliError, Format, PASSED, print, print_json};
use crate::features::{self, Selection};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Feature files or folders of them; FILE:LINE names one scenario.
    #[arg(default_value = "features")]
    paths: Vec<PathBuf>,
    /// Only scenarios whose tags satisfy the expression, such as "@essential and not @slow".
    #[arg(long, value_name = "EXPR")]
    tags: Option<String>,
    /// Only scenarios whose title contains the text.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// How to print them.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let selection = Selection::new(arguments.tags.as_deref(), arguments.name.as_deref()).map_err(CliError::usage)?;
    let mut scenarios = features::load(&arguments.paths).map_err(CliError::usage)?;
    scenarios.retain(|scenario| selection.selects(scenario));
    if arguments.format == Format::Json {
        print_json(&scenarios)?;
        return Ok(PASSED);
    }
    let (mut text, mut feature) = (String::new(), "");
    for scenario in &scenarios {
        if scenario.feature != feature {
            feature = &scenario.feature;
            text += &format!("{feature}\n");
        }
        let tags: String = scenario.tags.iter().map(|tag| format!(" @{tag}")).collect();
        text += format!("  {}\n    {} {tags}", scenario.name, scenario.location()).trim_end();
        text.push('\n');
    }
    text += &format!("{} scenario{}\n", scenarios.len(), if scenarios.len() == 1 { "" } else { "s" });
    print(&text)?;
    Ok(PASSED)
}
