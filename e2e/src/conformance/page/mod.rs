//! `conformance.html`: the report for people, in one file that needs no network and, but for its filters, no script.

use super::{Cell, Column, Counts, Document, Evidence, FailureShown, Outcome, Part, Row};
use crate::report::page::{STYLE, markup::markup};
use crate::report::text::duration;
use std::collections::BTreeSet;

const OWN_STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Draws the page. `base` leads from it to the root of the repository.
pub(super) fn render(document: &Document, base: &str) -> String {
    let mut out = String::new();
    markup!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>Trysquare conformance: {}</title>\n<style>\n",
        headline(document)
    );
    out.push_str(STYLE);
    out.push_str(OWN_STYLE);
    out.push_str("</style>\n</head>\n<body class=\"conformance\">\n");
    header(&mut out, document);
    out.push_str("<main>\n");
    columns(&mut out, document);
    parts(&mut out, document);
    rows(&mut out, document, base);
    without_row(&mut out, document);
    markup!(
        out,
        "</main>\n<footer>Written by trysquare {}. The same facts for programs: <a href=\"conformance.json\">conformance.json</a>, \
         <a href=\"junit.xml\">junit.xml</a>; to read elsewhere: <a href=\"conformance.md\">conformance.md</a>.</footer>\n<script>\n",
        document.trysquare_version
    );
    out.push_str(SCRIPT);
    out.push_str("</script>\n</body>\n</html>\n");
    out
}

fn headline(document: &Document) -> String {
    let covered = document.rows.iter().filter(|row| row.covered).count();
    format!("{} documented behaviours, {covered} with a scenario", document.rows.len())
}

fn header(out: &mut String, document: &Document) {
    markup!(out, "<header>\n<p class=\"product\">Trysquare conformance report</p>\n<h1>{}</h1>\n", headline(document));
    out.push_str("<dl class=\"facts\">\n");
    let mut fact = |name: &str, value: String| {
        markup!(out, "<div><dt>{}</dt><dd>{}</dd></div>\n", name, value);
    };
    fact("Made at", document.made_at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    fact("Program", format!("trysquare {}", document.trysquare_version));
    let idle = if document.compared_with_idle { "yes" } else { "no" };
    fact("Compared with a controller that does nothing", idle.into());
    out.push_str("</dl>\n</header>\n");
}

/// What the cells of each column came to.
fn columns(out: &mut String, document: &Document) {
    out.push_str("<section aria-labelledby=\"columns\">\n<h2 id=\"columns\">Controllers and backends</h2>\n<div class=\"cards\">\n");
    for (index, column) in document.columns.iter().enumerate() {
        markup!(out, "<article class=\"card\" data-column=\"{}\"><h3>{}</h3>\n", index, column.title());
        proportions(out, &column.counts);
        out.push_str("<ul class=\"counts\">");
        for outcome in Outcome::ALL {
            markup!(
                out,
                "<li class=\"{}\" data-outcome=\"{}\"><b>{}</b> <span class=\"verdict {}\"><span aria-hidden=\"true\">{}</span> {}</span></li>",
                if column.counts.of(outcome) == 0 { "none" } else { "some" },
                outcome.key(),
                column.counts.of(outcome),
                outcome.key(),
                outcome.sign(),
                outcome.words()
            );
        }
        out.push_str("</ul>\n");
        about(out, column);
        out.push_str("</article>\n");
    }
    out.push_str("</div>\n</section>\n");
}

fn about(out: &mut String, column: &Column) {
    if let Some(reason) = &column.could_not_start {
        markup!(out, "<p class=\"why\">Could not start: {}</p>\n", reason);
    }
    if let Some(idle) = column.passed_when_idle.filter(|_| column.counts.passed > 0) {
        markup!(
            out,
            "<p class=\"why\">{} of the {} passed are passed by a controller that does nothing, too.</p>\n",
            idle,
            column.counts.passed
        );
    }
    let seeds: BTreeSet<u64> = column.runs.iter().flat_map(|run| run.seeds.iter().copied()).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    markup!(out, "<p class=\"muted\">{} scenarios", column.scenarios);
    if column.extensions_left_out > 0 {
        markup!(out, "; {} that go beyond upstream left out", column.extensions_left_out);
    }
    if !seeds.is_empty() {
        markup!(out, "; seed {}", seeds.join(", "));
    }
    for run in &column.runs {
        let at = run.started_at.strftime("%Y-%m-%d %H:%M UTC");
        match &run.folder {
            Some(folder) => markup!(out, "; <a href=\"{}/report.html\">run of {}</a>", folder, at),
            None => markup!(out, "; run of {}", at),
        }
    }
    out.push_str("</p>\n");
}

fn proportions(out: &mut String, counts: &Counts) {
    out.push_str("<div class=\"proportions\" aria-hidden=\"true\">");
    for outcome in Outcome::ALL.into_iter().filter(|outcome| counts.of(*outcome) > 0) {
        markup!(out, "<span class=\"{}\" style=\"flex-grow:{}\"></span>", outcome.key(), counts.of(outcome));
    }
    out.push_str("</div>\n");
}

/// The numbers of each group and level.
fn parts(out: &mut String, document: &Document) {
    out.push_str(
        "<section aria-labelledby=\"parts\">\n<h2 id=\"parts\">Groups and levels</h2>\n\
         <div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-labelledby=\"parts\">\n<table class=\"parts\">\n\
         <thead><tr><th scope=\"col\">Part</th><th scope=\"col\" class=\"number\">Rows</th><th scope=\"col\" class=\"number\">Covered</th>",
    );
    document.columns.iter().for_each(|column| markup!(out, "<th scope=\"col\">{}</th>", column.title()));
    out.push_str("</tr></thead>\n");
    for (kind, members) in [("group", &document.groups), ("level", &document.levels)] {
        out.push_str("<tbody>\n");
        members.iter().for_each(|part| part_row(out, kind, part));
        out.push_str("</tbody>\n");
    }
    out.push_str("</table>\n</div>\n</section>\n");
}

fn part_row(out: &mut String, kind: &str, part: &Part) {
    markup!(
        out,
        "<tr data-{}=\"{}\"><th scope=\"row\">{}</th><td class=\"number\">{}</td><td class=\"number\">{}</td>",
        kind,
        part.name,
        part.name,
        part.rows,
        part.covered
    );
    for counts in &part.counts {
        out.push_str("<td>");
        proportions(out, counts);
        markup!(out, "<span class=\"told\">{}</span></td>", counts.told());
    }
    out.push_str("</tr>\n");
}

/// The table of all rows, with the filters that the script brings to life.
fn rows(out: &mut String, document: &Document, base: &str) {
    out.push_str("<section aria-labelledby=\"rows\">\n<h2 id=\"rows\">Documented behaviours</h2>\n");
    filters(out, document);
    out.push_str(
        "<table class=\"matrix\" role=\"table\">\n<thead role=\"rowgroup\"><tr role=\"row\">\
         <th role=\"columnheader\" scope=\"col\">Behaviour</th><th role=\"columnheader\" scope=\"col\">Level</th>",
    );
    for column in &document.columns {
        markup!(
            out,
            "<th role=\"columnheader\" scope=\"col\">{} <span>on {}</span></th>",
            name(&column.controller),
            column.backend
        );
    }
    out.push_str("</tr></thead>\n");
    for group in &document.groups {
        markup!(
            out,
            "<tbody role=\"rowgroup\"><tr role=\"row\" class=\"feature\"><th role=\"rowheader\" colspan=\"{}\" scope=\"rowgroup\">{}</th></tr>\n",
            2 + document.columns.len(),
            group.name
        );
        document.rows.iter().filter(|row| row.group == group.name).for_each(|member| row(out, document, member, base));
        out.push_str("</tbody>\n");
    }
    out.push_str("</table>\n</section>\n");
}

/// A program by its file; the cards above name it in full.
fn name(controller: &str) -> &str {
    controller.rsplit('/').find(|part| !part.is_empty()).unwrap_or(controller)
}

fn row(out: &mut String, document: &Document, row: &Row, base: &str) {
    let outcomes: Vec<&str> = row.cells.iter().map(|cell| cell.outcome.key()).collect();
    markup!(
        out,
        "<tr role=\"row\" id=\"{}\" data-row=\"{}\" data-level=\"{}\" data-outcomes=\"{}\"><th role=\"rowheader\" scope=\"row\"><code>{}</code> \
         <span class=\"says\">{}</span>",
        row.id,
        row.id,
        row.level,
        outcomes.join(" "),
        row.id,
        row.says
    );
    evidence(out, document, row);
    markup!(out, "</th><td role=\"cell\" class=\"level\">{}</td>", row.level);
    for (column, cell) in document.columns.iter().zip(&row.cells) {
        markup!(
            out,
            "<td role=\"cell\" class=\"cell\" data-outcome=\"{}\" data-label=\"{} on {}\">",
            cell.outcome.key(),
            name(&column.controller),
            column.backend
        );
        self::cell(out, column, cell, base);
        out.push_str("</td>");
    }
    out.push_str("</tr>\n");
}

fn cell(out: &mut String, column: &Column, cell: &Cell, base: &str) {
    verdict(out, cell.outcome);
    // The scenario that decided the cell.
    let decisive = [Outcome::Failed, Outcome::Passed, Outcome::Skipped];
    let mut of_outcome =
        decisive.into_iter().flat_map(|outcome| cell.scenarios.iter().filter(move |s| s.outcome == outcome));
    if let Some(scenario) = of_outcome.next() {
        links(out, scenario);
    }
    if !cell.missing.is_empty() {
        let missing: Vec<&str> = cell.missing.iter().map(String::as_str).collect();
        let others = if cell.outcome == Outcome::Skipped { "" } else { "one was skipped: " };
        markup!(out, "<span class=\"why\">{}lacks {}</span>", others, missing.join(", "));
    }
    // What kept a column from starting stands at its head.
    if let Some(reason) = cell.reason.as_ref().filter(|_| column.could_not_start.is_none()) {
        markup!(out, "<span class=\"why\">{}</span>", reason);
    }
    if cell.passed_when_idle == Some(true) {
        out.push_str("<span class=\"why idle\">also when nothing is done</span>");
    }
    if cell.outcome == Outcome::Passed {
        return;
    }
    for difference in &cell.differences {
        markup!(out, "<a class=\"why\" href=\"{}{}\" title=\"{}\">", base, difference.link, difference.reason);
        out.push_str(if cell.outcome == Outcome::Differs { "the difference</a>" } else { "listed difference</a>" });
    }
}

fn verdict(out: &mut String, outcome: Outcome) {
    markup!(
        out,
        "<span class=\"verdict {}\"><span aria-hidden=\"true\">{}</span> {}</span>",
        outcome.key(),
        outcome.sign(),
        outcome.words()
    );
}

fn links(out: &mut String, scenario: &Evidence) {
    let Evidence { timeline, journal, logs, .. } = scenario;
    let links = [("timeline", timeline), ("journal", journal), ("logs", logs)];
    if links.iter().all(|(_, link)| link.is_none()) {
        return;
    }
    out.push_str("<span class=\"links\">");
    for (word, link) in links {
        if let Some(link) = link {
            markup!(out, "<a href=\"{}\" aria-label=\"{} of {}\">{}</a> ", link, word, scenario.name, word);
        }
    }
    out.push_str("</span>");
}

/// What each column's scenarios came to, to be opened.
fn evidence(out: &mut String, document: &Document, row: &Row) {
    let runs: usize = row.cells.iter().map(|cell| cell.scenarios.len()).sum();
    let differs = row.cells.iter().any(|cell| !cell.differences.is_empty());
    if runs == 0 && !differs {
        return;
    }
    let failed = row.cells.iter().flat_map(|cell| &cell.scenarios).filter(|s| s.outcome == Outcome::Failed).count();
    let mut words = match runs {
        0 => "A listed difference".to_owned(),
        1 => "Evidence: 1 scenario run".to_owned(),
        several => format!("Evidence: {several} scenario runs"),
    };
    if failed > 0 {
        words += &format!(", {failed} failed");
    }
    markup!(out, "<details class=\"evidence\" data-failed=\"{}\"><summary>{}</summary>\n", failed, words);
    for (column, cell) in document.columns.iter().zip(&row.cells) {
        if cell.scenarios.is_empty() && cell.differences.is_empty() {
            continue;
        }
        markup!(out, "<div class=\"of-column\"><h4>{}</h4>\n", column.title());
        for difference in &cell.differences {
            markup!(out, "<p class=\"difference\">Listed: {}", difference.reason);
            if let Some(evidence) = &difference.evidence {
                markup!(out, " <code>{}</code>", evidence);
            }
            out.push_str("</p>\n");
        }
        cell.scenarios.iter().for_each(|one| scenario(out, one));
        out.push_str("</div>\n");
    }
    out.push_str("</details>");
}

fn scenario(out: &mut String, scenario: &Evidence) {
    out.push_str("<div class=\"scenario-line\">");
    verdict(out, scenario.outcome);
    markup!(
        out,
        " <span class=\"title\">{}</span> <span class=\"muted\">{}, {} virtual, {} wall",
        scenario.name,
        scenario.location,
        duration(scenario.virtual_s),
        format!("{:.2}s", scenario.wall_s)
    );
    out.push_str(if scenario.extension { ", beyond upstream</span> " } else { "</span> " });
    links(out, scenario);
    if let Some(missing) = &scenario.missing {
        markup!(out, "<p class=\"why\">The backend lacks <b>{}</b>.</p>", missing);
    }
    out.push_str("</div>\n");
    if let Some(failure) = &scenario.failure {
        diagnosis(out, failure);
    }
}

fn diagnosis(out: &mut String, failure: &FailureShown) {
    let FailureShown { step, message, last_observed, last_lines, earlier_lines } = failure;
    markup!(
        out,
        "<div class=\"diagnosis\"><dl><dt>Step</dt><dd>{}</dd>\n<dt>Message</dt><dd class=\"message\" tabindex=\"0\">{}</dd>\n",
        step,
        message
    );
    if let Some(observed) = last_observed {
        markup!(out, "<dt>Last observed</dt><dd class=\"message\" tabindex=\"0\">{}</dd>\n", observed);
    }
    out.push_str("</dl>\n");
    if !last_lines.is_empty() {
        markup!(out, "<details><summary>What happened last ({} lines", last_lines.len());
        if *earlier_lines > 0 {
            markup!(out, ", after {} more in the timeline", earlier_lines);
        }
        out.push_str(")</summary>\n<pre tabindex=\"0\" role=\"region\" aria-label=\"What happened last\">");
        last_lines.iter().for_each(|line| markup!(out, "{}\n", line));
        out.push_str("</pre></details>\n");
    }
    out.push_str("</div>\n");
}

fn without_row(out: &mut String, document: &Document) {
    if document.columns.iter().all(|column| column.failed_without_row.is_empty()) {
        return;
    }
    out.push_str("<section aria-labelledby=\"others\">\n<h2 id=\"others\">Failed, and restating no row</h2>\n");
    for column in document.columns.iter().filter(|column| !column.failed_without_row.is_empty()) {
        markup!(out, "<div class=\"of-column\"><h4>{}</h4>\n", column.title());
        column.failed_without_row.iter().for_each(|one| scenario(out, one));
        out.push_str("</div>\n");
    }
    out.push_str("</section>\n");
}

/// Shown by the script alone: without it they would do nothing.
fn filters(out: &mut String, document: &Document) {
    out.push_str("<form class=\"filters\" id=\"filters\" hidden aria-label=\"Filter the rows\">\n");
    out.push_str("<label>Text <input type=\"search\" name=\"text\" placeholder=\"id, sentence, scenario\"></label>\n");
    out.push_str("<label>Group <select name=\"group\"><option value=\"\">any</option>");
    for part in &document.groups {
        markup!(out, "<option value=\"{}\">{} ({})</option>", part.name, part.name, part.rows);
    }
    out.push_str("</select></label>\n<fieldset><legend>Level</legend>");
    for part in &document.levels {
        markup!(
            out,
            "<label><input type=\"checkbox\" name=\"level\" value=\"{}\" checked> {} ({})</label>\n",
            part.name,
            part.name,
            part.rows
        );
    }
    out.push_str("</fieldset>\n");
    for (index, column) in document.columns.iter().enumerate() {
        let label = format!("{} on {}", name(&column.controller), column.backend);
        markup!(
            out,
            "<label>{} <select name=\"column\" data-column=\"{}\"><option value=\"\">any</option>",
            label,
            index
        );
        for outcome in Outcome::ALL.into_iter().filter(|outcome| column.counts.of(*outcome) > 0) {
            markup!(
                out,
                "<option value=\"{}\">{} ({})</option>",
                outcome.key(),
                outcome.words(),
                column.counts.of(outcome)
            );
        }
        out.push_str("</select></label>\n");
    }
    markup!(
        out,
        "<span class=\"buttons\"><button type=\"button\" id=\"expand\">Open evidence</button> \
         <button type=\"button\" id=\"collapse\">Close</button> <button type=\"reset\">Reset</button></span>\n\
         <output id=\"shown\" aria-live=\"polite\">{} rows</output>\n</form>\n",
        document.rows.len()
    );
}
