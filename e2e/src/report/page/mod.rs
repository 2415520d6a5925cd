//! `report.html`: the run for people, in one file that needs no network and no script. It is drawn from the same document
//! that `report.json` holds, so that the two cannot disagree.

mod axis;
pub(crate) mod markup;
mod scenario;
mod timeline;
mod words;

use super::text::duration;
use super::{Document, Outcome};
use crate::verdict::ScenarioResult;
use markup::markup;
use std::collections::BTreeSet;
use words::{count, usd};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Draws the page.
pub(super) fn render(document: &Document) -> String {
    let mut out = String::new();
    let headline = headline(document);
    markup!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>Trysquare: {}</title>\n<style>\n",
        headline
    );
    out.push_str(STYLE);
    out.push_str("</style>\n</head>\n<body>\n");
    // Patterns are shared by all timelines.
    out.push_str(
        "<svg width=\"0\" height=\"0\" class=\"patterns\" aria-hidden=\"true\"><defs>\
         <pattern id=\"stripes\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <rect class=\"stripe\" width=\"2\" height=\"6\"/></pattern>\
         <pattern id=\"cut\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <rect class=\"cut-stripe\" width=\"1\" height=\"8\"/></pattern></defs></svg>\n",
    );
    header(&mut out, document, &headline);
    out.push_str("<main>\n");
    overview(&mut out, document);
    markup!(out, "<section aria-labelledby=\"scenarios\">\n<h2 id=\"scenarios\">Each scenario</h2>\n");
    scenario::legend(&mut out);
    for (index, result) in document.scenarios.iter().enumerate() {
        scenario::render(&mut out, document, result, index);
    }
    out.push_str("</section>\n</main>\n");
    markup!(
        out,
        "<footer>Written by trysquare {}. The same facts for programs: <a href=\"report.json\">report.json</a>, \
         <a href=\"junit.xml\">junit.xml</a>; every request: <a href=\"journals/\">journals</a>.</footer>\n<script>\n",
        document.trysquare_version
    );
    out.push_str(SCRIPT);
    out.push_str("</script>\n</body>\n</html>\n");
    out
}

fn headline(document: &Document) -> String {
    let summary = &document.summary;
    match document.scenarios.len() {
        0 => "no scenario".into(),
        _ => format!("{} passed, {} failed, {} skipped", summary.passed, summary.failed, summary.skipped),
    }
}

fn header(out: &mut String, document: &Document, headline: &str) {
    let summary = &document.summary;
    let (word, outcome) = match (summary.failed, summary.passed) {
        (0, 0) => ("–", Outcome::Skipped),
        (0, _) => ("✓", Outcome::Passed),
        _ => ("✕", Outcome::Failed),
    };
    markup!(
        out,
        "<header>\n<p class=\"product\">Trysquare report</p>\n<h1><span class=\"badge {}\" aria-hidden=\"true\">{}</span> \
         {}</h1>\n",
        outcome.word(),
        word,
        headline
    );
    let total = document.scenarios.len();
    if total > 0 {
        markup!(out, "<div class=\"proportions\" aria-hidden=\"true\">");
        let shares =
            [(summary.failed, Outcome::Failed), (summary.skipped, Outcome::Skipped), (summary.passed, Outcome::Passed)];
        for (number, outcome) in shares.into_iter().filter(|(number, _)| *number > 0) {
            markup!(out, "<span class=\"{}\" style=\"flex-grow:{}\"></span>", outcome.word(), number);
        }
        out.push_str("</div>\n");
    }
    out.push_str("<dl class=\"facts\">\n");
    let mut fact = |name: &str, value: String| {
        markup!(out, "<div><dt>{}</dt><dd>{}</dd></div>\n", name, value);
    };
    fact("Run at", document.started_at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    fact("Program", format!("trysquare {}", document.trysquare_version));
    fact("Backend", distinct(document, |result| result.backend.clone()));
    fact("Seed", distinct(document, |result| result.seed.to_string()));
    fact("Virtual time", duration(summary.virtual_s));
    fact("Wall time", duration(summary.wall_s));
    let repeats: Vec<bool> = document.scenarios.iter().filter_map(|r| Some(r.repeat.as_ref()?.identical)).collect();
    if !repeats.is_empty() {
        let same = repeats.iter().filter(|identical| **identical).count();
        fact("Run twice", format!("{same} of {} identical", repeats.len()));
    }
    fact("Command", document.command.join(" "));
    out.push_str("</dl>\n</header>\n");
}

/// Every value that the scenarios have, in order.
fn distinct(document: &Document, value: impl Fn(&ScenarioResult) -> String) -> String {
    let values: BTreeSet<String> = document.scenarios.iter().map(value).collect();
    values.into_iter().collect::<Vec<_>>().join(", ")
}

/// The table of all scenarios, with the filters that the script brings to life.
fn overview(out: &mut String, document: &Document) {
    out.push_str("<section aria-labelledby=\"overview\">\n<h2 id=\"overview\">Overview</h2>\n");
    if document.scenarios.is_empty() {
        out.push_str("<p>The run had no scenario.</p>\n</section>\n");
        return;
    }
    filters(out, document);
    out.push_str(
        "<table class=\"overview\" role=\"table\">\n<thead role=\"rowgroup\"><tr role=\"row\">\
         <th role=\"columnheader\" scope=\"col\">Verdict</th><th role=\"columnheader\" scope=\"col\">Scenario</th>\
         <th role=\"columnheader\" scope=\"col\">Documented behaviour</th>\
         <th role=\"columnheader\" scope=\"col\" class=\"number\">Virtual</th>\
         <th role=\"columnheader\" scope=\"col\" class=\"number\">Wall</th>\
         <th role=\"columnheader\" scope=\"col\" class=\"number\">Nodes</th>\
         <th role=\"columnheader\" scope=\"col\" class=\"number\">Peak cost</th></tr></thead>\n",
    );
    let mut feature: Option<&str> = None;
    for (index, result) in document.scenarios.iter().enumerate() {
        let scenario = &result.scenario;
        if feature != Some(&scenario.feature) {
            if feature.is_some() {
                out.push_str("</tbody>\n");
            }
            feature = Some(&scenario.feature);
            markup!(
                out,
                "<tbody role=\"rowgroup\"><tr role=\"row\" class=\"feature\"><th role=\"rowheader\" colspan=\"7\" \
                 scope=\"rowgroup\">{}</th></tr>\n",
                scenario.feature
            );
        }
        overview_row(out, document, result, index);
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

fn overview_row(out: &mut String, document: &Document, result: &ScenarioResult, index: usize) {
    let scenario = &result.scenario;
    markup!(
        out,
        "<tr role=\"row\" data-scenario=\"{}\" data-verdict=\"{}\" data-tags=\"{}\"><td role=\"cell\">",
        index,
        Outcome::of(result).word(),
        scenario.tags.join(" ")
    );
    verdict(out, result);
    markup!(
        out,
        "</td><th role=\"rowheader\" scope=\"row\"><a href=\"#scenario-{}\">{}</a>",
        index,
        scenario.name
    );
    let plain: Vec<&String> = scenario.tags.iter().filter(|tag| !tag.contains('.')).collect();
    if !plain.is_empty() {
        out.push_str("<span class=\"tags\">");
        plain.iter().for_each(|tag| markup!(out, " @{}", tag));
        out.push_str("</span>");
    }
    out.push_str("</th><td role=\"cell\" class=\"rows\">");
    rows(out, document, result);
    let chronicle = &result.chronicle;
    let peak = if chronicle.cost.peak_usd_per_hour > 0.0 {
        format!("{}/h", usd(chronicle.cost.peak_usd_per_hour))
    } else {
        "–".into()
    };
    for (label, value) in [
        ("virtual", duration(result.virtual_s)),
        ("wall", format!("{:.2}s", result.wall_s)),
        ("nodes", chronicle.nodes.seen.to_string()),
        ("peak cost", peak),
    ] {
        markup!(out, "</td><td role=\"cell\" class=\"number\" data-label=\"{}\">{}", label, value);
    }
    out.push_str("</td></tr>\n");
}

/// The rows of the catalogue that a scenario restates, each with its sentence.
fn rows(out: &mut String, document: &Document, result: &ScenarioResult) {
    for row in result.scenario.rows() {
        markup!(out, "<p><code>{}</code> ", row);
        match document.catalogue.get(row) {
            Some(says) => markup!(out, "{}</p>", says),
            None => out.push_str("<span class=\"muted\">not in the catalogue</span></p>"),
        }
    }
}

/// The verdict as a sign and a word.
fn verdict(out: &mut String, result: &ScenarioResult) {
    let outcome = Outcome::of(result);
    let sign = match outcome {
        Outcome::Passed => "✓",
        Outcome::Failed => "✕",
        Outcome::Skipped => "–",
    };
    markup!(
        out,
        "<span class=\"verdict {}\"><span aria-hidden=\"true\">{}</span> {}</span>",
        outcome.word(),
        sign,
        outcome.word()
    );
}

/// Shown by the script alone: without it they would do nothing.
fn filters(out: &mut String, document: &Document) {
    out.push_str("<form class=\"filters\" id=\"filters\" hidden aria-label=\"Filter the scenarios\">\n<fieldset><legend>Verdict</legend>");
    let summary = &document.summary;
    let numbers =
        [(summary.passed, Outcome::Passed), (summary.failed, Outcome::Failed), (summary.skipped, Outcome::Skipped)];
    for (number, outcome) in numbers {
        markup!(
            out,
            "<label><input type=\"checkbox\" name=\"verdict\" value=\"{}\" checked> {} ({})</label>\n",
            outcome.word(),
            outcome.word(),
            number
        );
    }
    out.push_str("</fieldset>\n<label>Text <input type=\"search\" name=\"text\" placeholder=\"title, row, sentence\"></label>\n");
    out.push_str("<label>Tag <select name=\"tag\"><option value=\"\">any</option>");
    let tags: BTreeSet<&String> = document.scenarios.iter().flat_map(|result| &result.scenario.tags).collect();
    tags.iter().for_each(|tag| markup!(out, "<option value=\"{}\">@{}</option>", tag, tag));
    markup!(
        out,
        "</select></label>\n<span class=\"buttons\"><button type=\"button\" id=\"expand\">Expand all</button> \
         <button type=\"button\" id=\"collapse\">Collapse all</button></span>\n\
         <output id=\"shown\" aria-live=\"polite\">{}</output>\n</form>\n",
        count(document.scenarios.len() as u64, "scenario", "scenarios")
    );
}
