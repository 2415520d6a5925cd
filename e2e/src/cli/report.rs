//! `trysquare report`: draws the page of a run anew from its `report.json`, as after an update of the program.

use super::{CliError, PASSED, print};
use crate::report::{self, Document};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder that `trysquare test --report` wrote.
    folder: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let document = Document::read(&arguments.folder).map_err(CliError::usage)?;
    report::render(&arguments.folder, &document).map_err(CliError::usage)?;
    print(&format!("report: {}\n", report::page(&arguments.folder).display()))?;
    Ok(PASSED)
}
