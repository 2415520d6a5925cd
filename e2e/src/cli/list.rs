//! `trysquare list`: which scenarios there are.

use super::{CliError, Format, PASSED, print_json};
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
    let mut feature = "";
    for scenario in &scenarios {
        if scenario.feature != feature {
            feature = &scenario.feature;
            println!("{feature}");
        }
        let tags: Vec<String> = scenario.tags.iter().map(|tag| format!("@{tag}")).collect();
        println!("  {}\n    {}  {}", scenario.name, scenario.location(), tags.join(" "));
    }
    println!("{} scenarios", scenarios.len());
    Ok(PASSED)
}
