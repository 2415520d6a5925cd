//! The report as Markdown: a summary to be committed, and every row below it.

use super::{Cell, Document, Outcome, Part, Row};
use crate::report::page::markup::Escaped;
use std::fmt::Write;

/// How many characters of a message stand in a table.
const MESSAGE_SHOWN: usize = 300;

/// Writes a line to a String, which cannot fail.
macro_rules! line {
    ($out:ident, $($arguments:tt)*) => {{ let _ = writeln!($out, $($arguments)*); }};
}

/// Puts it together. `base` leads from the file to the root of the repository.
pub(super) fn render(document: &Document, base: &str) -> String {
    let mut out = String::new();
    let covered = document.rows.iter().filter(|row| row.covered).count();
    line!(out, "# Conformance\n");
    line!(
        out,
        "Put together by trysquare {} on {}. The catalogue has {} rows, {covered} of which a scenario restates.\n",
        document.trysquare_version,
        document.made_at.strftime("%Y-%m-%d"),
        document.rows.len()
    );
    columns(&mut out, document);
    parts(&mut out, document, "group", &document.groups);
    parts(&mut out, document, "level", &document.levels);
    for (index, column) in document.columns.iter().enumerate() {
        exceptions(&mut out, document, index, base);
        if !column.failed_without_row.is_empty() {
            line!(out, "Failed, and restating no row of the catalogue:\n");
            column.failed_without_row.iter().for_each(|one| line!(out, "- {} (`{}`)", text(&one.name), one.location));
            line!(out, "");
        }
    }
    line!(out, "## Every row\n");
    line!(out, "✓ passed, ✕ failed, ≠ differs by design, – skipped, ○ not run, · not covered.\n");
    heading(&mut out, document, "row", &["level"]);
    for row in &document.rows {
        let cells: Vec<String> = row.cells.iter().map(|cell| sign(cell, base)).collect();
        line!(out, "| `{}` | {} | {} |", row.id, row.level, cells.join(" | "));
    }
    out
}

fn columns(out: &mut String, document: &Document) {
    let idle = document.compared_with_idle;
    let (more, rule) = if idle { (" of these also when nothing is done |", "---:|") } else { ("", "") };
    line!(
        out,
        "| controller and backend | scenarios | passed |{more} failed | differs by design | skipped | not run | not covered |"
    );
    line!(out, "|---|---:|---:|{rule}---:|---:|---:|---:|---:|");
    for column in &document.columns {
        let mut numbers = vec![column.scenarios, column.counts.passed];
        numbers.extend(column.passed_when_idle);
        numbers.extend(Outcome::ALL.into_iter().skip(1).map(|outcome| column.counts.of(outcome)));
        let numbers: Vec<String> = numbers.into_iter().map(|number| number.to_string()).collect();
        line!(out, "| {} | {} |", text(&column.title()), numbers.join(" | "));
    }
    line!(out, "");
    for column in &document.columns {
        if let Some(reason) = &column.could_not_start {
            line!(out, "{} could not start: {}\n", text(&column.title()), text(reason));
        }
    }
}

fn heading(out: &mut String, document: &Document, first: &str, more: &[&str]) {
    let titles = document.columns.iter().map(|column| text(&column.title()));
    let names: Vec<String> = more.iter().map(|name| (*name).to_owned()).chain(titles).collect();
    line!(out, "| {first} | {} |", names.join(" | "));
    line!(out, "|---|{}", "---|".repeat(names.len()));
}

fn parts(out: &mut String, document: &Document, what: &str, parts: &[Part]) {
    line!(out, "## By {what}\n");
    heading(out, document, what, &["rows", "covered"]);
    for Part { name, rows, covered, counts } in parts {
        let told: Vec<String> = counts.iter().map(|counts| counts.told()).collect();
        line!(out, "| {name} | {rows} | {covered} | {} |", told.join(" | "));
    }
    line!(out, "");
}

/// What did not pass although there is a scenario, and what passed although it is listed.
fn exceptions(out: &mut String, document: &Document, column: usize, base: &str) {
    let title = text(&document.columns[column].title());
    line!(out, "## {title}\n");
    let told = [Outcome::Failed, Outcome::Differs, Outcome::Skipped, Outcome::NotRun];
    let cells: Vec<(&Row, &Cell)> = told.into_iter().flat_map(|outcome| document.cells_that(outcome, column)).collect();
    let idle: Vec<(&Row, &Cell)> =
        document.cells_that(Outcome::Passed, column).filter(|(_, cell)| cell.passed_when_idle == Some(true)).collect();
    if document.columns[column].could_not_start.is_some() {
        line!(out, "Could not start: nothing was run.\n");
        return;
    }
    if cells.is_empty() {
        line!(out, "Every row that has a scenario passed.\n");
    } else {
        line!(out, "| row | outcome | why |\n|---|---|---|");
        for (row, cell) in cells {
            line!(out, "| `{}` | {} | {} |", row.id, cell.outcome, why(cell, base));
        }
        line!(out, "");
    }
    if !idle.is_empty() {
        let ids: Vec<String> = idle.iter().map(|(row, _)| format!("`{}`", row.id)).collect();
        line!(out, "Passed, as it is with a controller that does nothing: {}.\n", ids.join(", "));
    }
}

fn why(cell: &Cell, base: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    if cell.outcome == Outcome::Differs {
        parts.extend(cell.differences.iter().map(|difference| {
            let evidence = difference.evidence.as_ref().map(|line| format!(": {}", text(line))).unwrap_or_default();
            format!("[{}]({base}{}){evidence}", text(&difference.reason), difference.link)
        }));
    } else {
        let failed = cell.scenarios.iter().filter_map(|scenario| Some((scenario, scenario.failure.as_ref()?)));
        parts.extend(failed.map(|(scenario, failure)| format!("{}: {}", text(&scenario.name), text(&failure.message))));
        parts.extend((!cell.missing.is_empty()).then(|| {
            let missing: Vec<&str> = cell.missing.iter().map(String::as_str).collect();
            format!("the backend lacks {}", text(&missing.join(", ")))
        }));
    }
    parts.extend(cell.reason.as_ref().map(|reason| text(reason)));
    parts.join("<br>")
}

fn sign(cell: &Cell, base: &str) -> String {
    match (cell.outcome, cell.differences.first()) {
        (Outcome::Passed, _) | (_, None) => cell.outcome.sign().to_owned(),
        (_, Some(difference)) => format!("{} [listed]({base}{})", cell.outcome.sign(), difference.link),
    }
}

/// A text in a cell of a table: on one line, not too long, and without a meaning to Markdown.
fn text(words: &str) -> String {
    let mut line: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > MESSAGE_SHOWN {
        line = line.chars().take(MESSAGE_SHOWN - 1).chain(['…']).collect();
    }
    let escaped = Escaped(&line).to_string().replace("&quot;", "\"").replace("&#39;", "'");
    ["\\", "|", "`", "*", "_", "[", "]"].iter().fold(escaped, |text, sign| text.replace(sign, &format!("\\{sign}")))
}
