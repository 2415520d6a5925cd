//! `trysquare list`: which scenarios there are, and which rows of the catalogue have one.

use super::table::{Cell, Table};
use super::{CliError, Format, PASSED, output, print, print_json};
use crate::catalogue::{self, Row};
use crate::features::{self, Scenario, Selection};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Examples:
  trysquare list                                     every scenario under features/
  trysquare list --tags '@essential and not @slow'
  trysquare list --rows                              the whole catalogue: which rows have a scenario
  trysquare list --rows --tags '@core and not @covered'
  trysquare list --rows --name drift

A row carries as tags its id, its level (core, extended, advisory), the tags of its scenarios, and covered if it has any.

Exit codes: 0 listed, 2 wrong usage.";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Feature files or folders of them; FILE:LINE names one scenario.
    #[arg(default_value = "features")]
    paths: Vec<PathBuf>,
    /// Only those whose tags satisfy the expression, such as "@essential and not @slow".
    #[arg(long, value_name = "EXPR")]
    tags: Option<String>,
    /// Only those whose title contains the text; of rows, whose id or sentence does.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// List the rows of the catalogue of documented behaviours instead, covered by a scenario or not.
    #[arg(long)]
    rows: bool,
    /// How to print them.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8, CliError> {
    let selection = Selection::new(arguments.tags.as_deref(), arguments.name.as_deref()).map_err(CliError::usage)?;
    let scenarios = features::load(&arguments.paths).map_err(CliError::usage)?;
    let catalogue = catalogue::rows();
    match (arguments.rows, arguments.format) {
        (false, Format::Json) => print_json(&described(&catalogue, selected(&selection, &scenarios)))?,
        (false, Format::Text) => print(&scenario_tables(&catalogue, &selected(&selection, &scenarios)))?,
        (true, format) => {
            let rows = covered(&catalogue, &scenarios);
            let rows: Vec<Covered<'_>> = rows.into_iter().filter(|row| selection.selects(&row.as_scenario())).collect();
            match format {
                Format::Json => print_json(&rows.iter().map(Covered::json).collect::<Vec<_>>())?,
                Format::Text => print(&row_tables(&rows))?,
            }
        }
    }
    Ok(PASSED)
}

fn selected<'a>(selection: &Selection, scenarios: &'a [Scenario]) -> Vec<&'a Scenario> {
    scenarios.iter().filter(|scenario| selection.selects(scenario)).collect()
}

/// The scenarios as they are, with what their rows need.
fn described(catalogue: &[Row], scenarios: Vec<&Scenario>) -> Vec<serde_json::Value> {
    let by_id = by_id(catalogue);
    let describe = |scenario: &Scenario| {
        let mut value = json!(scenario);
        value["rows"] = json!(scenario.rows().collect::<Vec<_>>());
        value["needs"] = json!(needs(&by_id, scenario));
        value
    };
    scenarios.into_iter().map(describe).collect()
}

fn by_id(catalogue: &[Row]) -> BTreeMap<&str, &Row> {
    catalogue.iter().map(|row| (row.id.as_str(), row)).collect()
}

/// What the rows of a scenario need together.
fn needs<'a>(rows: &BTreeMap<&str, &'a Row>, scenario: &Scenario) -> BTreeSet<&'a str> {
    let rows = scenario.rows().filter_map(|id| rows.get(id).copied());
    rows.flat_map(|row| row.needs.iter().map(String::as_str)).collect()
}

/// A table for each feature: scenarios one below the other, so that their columns can be compared.
fn scenario_tables(catalogue: &[Row], scenarios: &[&Scenario]) -> String {
    let (by_id, colours) = (by_id(catalogue), output::colours(&std::io::stdout()));
    let mut text = String::new();
    for feature in scenarios.chunk_by(|a, b| a.path == b.path && a.feature == b.feature) {
        let mut table = Table::new([feature[0].feature.as_str(), "TAGS AND ROWS", "NEEDS"]);
        for scenario in feature {
            let tags: Vec<String> = scenario.tags.iter().map(|tag| format!("@{tag}")).collect();
            let needs: Vec<&str> = needs(&by_id, scenario).into_iter().collect();
            table.row([
                Cell::new(format!("  {}", scenario.name)),
                Cell::new(tags.join(" ")),
                Cell::new(needs.join(" ")),
            ]);
            table.row([Cell::new(format!("    {}", scenario.location())).dim(), Cell::new(""), Cell::new("")]);
        }
        text += &table.render(colours);
        text.push('\n');
    }
    text + &format!("{}\n", counted(scenarios.len(), "scenario"))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A row with the scenarios that restate it.
struct Covered<'a> {
    row: &'a Row,
    scenarios: Vec<&'a Scenario>,
}

fn covered<'a>(catalogue: &'a [Row], scenarios: &'a [Scenario]) -> Vec<Covered<'a>> {
    let of = |row: &Row| scenarios.iter().filter(|scenario| scenario.rows().any(|id| id == row.id)).collect();
    catalogue.iter().map(|row| Covered { row, scenarios: of(row) }).collect()
}

impl Covered<'_> {
    /// As the selection of scenarios sees it: rows are chosen by the same rules.
    fn as_scenario(&self) -> Scenario {
        let Row { id, level, says, needs: _ } = self.row;
        let mut tags = vec![id.clone(), level.clone()];
        tags.extend((!self.scenarios.is_empty()).then(|| "covered".to_owned()));
        tags.extend(self.scenarios.iter().flat_map(|scenario| scenario.tags.iter().cloned()));
        let (feature, path, line, steps) = (String::new(), PathBuf::new(), 0, Vec::new());
        Scenario { feature, name: format!("{id} {says}"), path, line, tags, steps }
    }

    fn json(&self) -> serde_json::Value {
        let mut value = json!(self.row);
        value["scenarios"] = self.scenarios.iter().map(|scenario| scenario.location()).collect();
        value["covered"] = json!(!self.scenarios.is_empty());
        value
    }
}

/// One table, in which the rows of a group stand together as they do in the catalogue.
fn row_tables(rows: &[Covered<'_>]) -> String {
    let mut text = String::new();
    if !rows.is_empty() {
        let mut table = Table::new(["ROW", "LEVEL", "COVERED", "NEEDS"]);
        for Covered { row, scenarios } in rows {
            let state = match scenarios.len() {
                0 => Cell::new("not covered").yellow(),
                count => Cell::new(counted(count, "scenario")).green(),
            };
            table.row([Cell::new(&row.id), Cell::new(&row.level), state, Cell::new(row.needs.join(" "))]);
        }
        text += &table.render(output::colours(&std::io::stdout()));
        text.push('\n');
    }
    let with = rows.iter().filter(|row| !row.scenarios.is_empty()).count();
    text + &format!("{}: {with} covered, {} not covered\n", counted(rows.len(), "row"), rows.len() - with)
}
