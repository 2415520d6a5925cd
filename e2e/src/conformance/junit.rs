//! The report as CI systems read it: a suite per column, a case per row. Times are wall time.

use super::{Cell, Column, Document, Outcome, Row};
use crate::report::junit::escape;
use std::fmt::Write;

pub(super) fn render(document: &Document) -> String {
    let sum = |outcome| document.columns.iter().map(|column| column.counts.of(outcome)).sum::<usize>();
    let tests = document.rows.len() * document.columns.len();
    let failures = sum(Outcome::Failed);
    let skipped = tests - failures - sum(Outcome::Passed);
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail.
    let _ = writeln!(xml, r#"<testsuites tests="{tests}" failures="{failures}" skipped="{skipped}">"#);
    for (index, column) in document.columns.iter().enumerate() {
        suite(&mut xml, document, column, index);
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn suite(xml: &mut String, document: &Document, column: &Column, index: usize) {
    let (tests, failures) = (document.rows.len(), column.counts.failed);
    let (name, skipped) = (escape(&column.title()), tests - failures - column.counts.passed);
    let _ = writeln!(xml, r#"  <testsuite name="{name}" tests="{tests}" failures="{failures}" skipped="{skipped}">"#);
    for row in &document.rows {
        let cell = &row.cells[index];
        let seconds: f64 = cell.scenarios.iter().map(|scenario| scenario.wall_s).sum();
        let (id, class) = (escape(&row.id), escape(&format!("{}.{}", column.slug(), row.group)));
        let _ = write!(xml, r#"    <testcase name="{id}" classname="{class}" time="{seconds:.3}">"#);
        xml.push_str(&outcome(row, cell));
        xml.push_str("</testcase>\n");
    }
    xml.push_str("  </testsuite>\n");
}

fn outcome(row: &Row, cell: &Cell) -> String {
    let skipped = |message: String| format!(r#"<skipped message="{}"/>"#, escape(&message));
    match cell.outcome {
        Outcome::Passed => String::new(),
        Outcome::Failed => {
            let failed = cell.scenarios.iter().filter_map(|scenario| Some((scenario, scenario.failure.as_ref()?)));
            let told = failed.map(|(scenario, failure)| {
                let observed = failure.last_observed.iter().map(|seen| format!("last observed: {seen}\n"));
                let story: String = observed.chain(failure.last_lines.iter().map(|line| format!("{line}\n"))).collect();
                format!("{} ({})\n{}\n{}\n{story}", scenario.name, scenario.location, failure.step, failure.message)
            });
            let told: Vec<String> = told.collect();
            format!(r#"<failure message="{}">{}</failure>"#, escape(&row.says), escape(&told.join("\n")))
        }
        Outcome::Differs => {
            let reasons: Vec<&str> = cell.differences.iter().map(|difference| difference.reason.as_str()).collect();
            skipped(format!("differs by design: {}", reasons.join(" ")))
        }
        Outcome::Skipped => {
            let missing: Vec<&str> = cell.missing.iter().map(String::as_str).collect();
            skipped(format!("the backend lacks {}", missing.join(", ")))
        }
        Outcome::NotRun | Outcome::NotCovered => {
            let reason = cell.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            skipped(format!("{}{reason}", cell.outcome))
        }
    }
}
