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

pub(crate) const STYLE: &str = include_str!("style.css");
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
    markup!(out, "</td><th role=\"rowheader\" scope=\"row\"><a href=\"#scenario-{}\">{}</a>", index, scenario.name);
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
    out.push_str(
        "</fieldset>\n<label>Text <input type=\"search\" name=\"text\" placeholder=\"title, row, sentence\"></label>\n",
    );
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chronicle::{
        Chronicle, Count, Entered, Event, InstanceFacts, InstancePhase, Lane, PodFacts, PodPhase, StepSpan,
    };
    use crate::features::{Scenario, Step};
    use crate::verdict::{Failure, Repeat, Verdict};
    use std::collections::BTreeMap;
    use std::time::Duration;

    /// Ends a script, begins an element, ends an attribute.
    const HOSTILE: &str = "</script></style></title><img src=x onerror='alert(1)'>\"&";

    fn scenario() -> Scenario {
        let step =
            |text: &str| Step { keyword: "When".into(), text: text.into(), line: 3, docstring: None, table: vec![] };
        Scenario {
            feature: "F".into(),
            name: "S".into(),
            path: "x.feature".into(),
            line: 2,
            tags: vec![],
            steps: vec![step("1m passes"), step("2m passes")],
        }
    }

    fn passed() -> ScenarioResult {
        ScenarioResult {
            virtual_s: 60.0,
            wall_s: 0.1,
            chronicle: Chronicle {
                ended_ms: 180_000,
                steps: vec![
                    StepSpan { began_ms: 0, ended_ms: 60_000 },
                    StepSpan { began_ms: 60_000, ended_ms: 180_000 },
                ],
                ..Chronicle::default()
            },
            ..ScenarioResult::bare(scenario(), "embedded", "ours", 1, Verdict::Passed)
        }
    }

    fn pod(name: &str, phases: &[(u64, PodPhase)]) -> Lane<PodFacts, PodPhase> {
        let phases = phases.iter().map(|&(at_ms, phase)| Entered { at_ms, phase }).collect();
        Lane { name: name.into(), group: "Deployment web".into(), facts: PodFacts::default(), phases }
    }

    fn page(results: Vec<ScenarioResult>) -> String {
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        render(&Document::new(results, Duration::from_secs(1), at, vec!["test".into(), HOSTILE.into()]))
    }

    /// Every element is closed in its order; answers how often each is opened.
    #[track_caller]
    fn well_formed(page: &str) -> BTreeMap<String, usize> {
        let (mut open, mut counts) = (Vec::new(), BTreeMap::new());
        let style = page.find("<style>").unwrap()..page.find("</style>").unwrap();
        let script = page.find("<script>").unwrap()..page.rfind("</script>").unwrap();
        let markup =
            format!("{}{}{}", &page[..style.start], &page[style.end + 8..script.start], &page[script.end + 9..]);
        for piece in markup.split('<').skip(1) {
            let (tag, _) = piece.split_once('>').unwrap_or_else(|| panic!("no end: {piece}"));
            let name = tag.split([' ', '/', '\n']).find(|part| !part.is_empty()).unwrap_or_default();
            match name {
                "!DOCTYPE" | "meta" | "input" => {}
                _ if tag.starts_with('/') => assert_eq!(open.pop().as_deref(), Some(name), "{piece}"),
                _ => {
                    *counts.entry(name.to_owned()).or_default() += 1;
                    if !tag.ends_with('/') {
                        open.push(name.to_owned());
                    }
                }
            }
        }
        assert_eq!(open, Vec::<String>::new());
        counts
    }

    #[test]
    fn nothing_that_a_scenario_says_becomes_markup() {
        let text = || HOSTILE.to_owned();
        let mut result = passed();
        let step = Step { keyword: text(), text: text(), line: 1, docstring: Some(text()), table: vec![vec![text()]] };
        result.scenario = Scenario {
            feature: text(),
            name: text(),
            path: text().into(),
            line: 1,
            tags: vec![format!("a.{HOSTILE}")],
            steps: vec![step],
        };
        result.backend = text();
        let failure = Failure { step: text(), message: text(), last_observed: Some(text()), timeline: vec![text()] };
        result.verdict = Verdict::Failed(failure);
        result.journal.entries = 1;
        result.journal.calls.insert(text(), 1);
        let repeat = Repeat { identical: false, journal: result.journal.clone(), first_difference: Some(text()) };
        result.repeat = Some(repeat);
        let chronicle = &mut result.chronicle;
        chronicle.pods.seen = 1;
        chronicle.pods.lanes.push(Lane { group: text(), ..pod(HOSTILE, &[(0, PodPhase::Pending)]) });
        chronicle.instances.seen = 1;
        chronicle.instances.lanes.push(Lane {
            name: text(),
            group: text(),
            facts: InstanceFacts { instance_type: text(), zone: text(), ..InstanceFacts::default() },
            phases: vec![Entered { at_ms: 0, phase: InstancePhase::Notice }],
        });
        let event =
            Event { at_ms: 0, last_ms: 0, count: 1, kind: text(), reason: text(), object: text(), message: text() };
        chronicle.events.push(event);
        chronicle.left_out.insert(text(), 1);
        let mut skipped = passed();
        skipped.verdict = Verdict::Skipped { missing: text() };
        let page = page(vec![result, skipped]);
        let elements = well_formed(&page);
        assert!(!elements.contains_key("img"), "{elements:?}");
        assert_eq!((page.matches("</script>").count(), page.matches("</style>").count()), (1, 1));
        assert!(page.matches("&lt;/script&gt;").count() > 30);
    }

    #[test]
    fn a_run_without_scenarios_is_a_page_that_says_so() {
        let page = page(vec![]);
        well_formed(&page);
        assert!(page.contains("<title>Trysquare: no scenario</title>") && page.contains("The run had no scenario."));
    }

    #[test]
    fn each_verdict_stands_as_a_word_and_a_step_that_was_not_run_is_told() {
        let mut failed = passed();
        let step = "x.feature:3: When 1m passes".into();
        failed.verdict = Verdict::Failed(Failure { step, message: "no".into(), last_observed: None, timeline: vec![] });
        failed.chronicle.steps.truncate(1);
        let mut skipped = passed();
        skipped.verdict = Verdict::Skipped { missing: "quota".into() };
        let page = page(vec![passed(), failed, skipped]);
        well_formed(&page);
        assert!(page.contains("1 passed, 1 failed, 1 skipped"));
        for (verdict, word) in [("passed", "✓"), ("failed", "✕"), ("skipped", "–")] {
            let badge =
                format!("<span class=\"verdict {verdict}\"><span aria-hidden=\"true\">{word}</span> {verdict}</span>");
            assert_eq!(page.matches(&badge).count(), 2, "in the table and at the scenario: {verdict}");
        }
        assert_eq!(page.matches("<tr class=\"failed\">").count(), 1);
        assert_eq!(page.matches("<tr class=\"not-run\">").count(), 1);
        assert!(page.contains("the backend lacks <b>quota</b>"));
    }

    #[test]
    fn one_pod_is_one_lane_whose_bars_follow_the_axis() {
        let mut result = passed();
        result.chronicle.pods.seen = 1;
        let phases = [(0, PodPhase::Pending), (45_000, PodPhase::Running), (90_000, PodPhase::Gone)];
        result.chronicle.pods.lanes = vec![pod("default/web-1", &phases)];
        let page = page(vec![result]);
        well_formed(&page);
        assert_eq!(page.matches("data-lane=\"pod\"").count(), 1);
        // From 214 to 1148 for three minutes: a quarter of it for each phase, and nothing once it is gone.
        assert!(page.contains("<rect class=\"waiting\" x=\"214\" y=\"65\" width=\"233.5\""), "{page}");
        assert!(page.contains("<rect class=\"serving\" x=\"447.5\" y=\"65\" width=\"233.5\""));
        assert!(page.contains("default/web-1: running from 45.0s for 45.0s"));
    }

    #[test]
    fn a_thousand_pods_are_an_area_and_the_page_says_what_was_left_out() {
        let mut result = passed();
        let pods = &mut result.chronicle.pods;
        pods.seen = 1_000;
        pods.lanes = (0..24).map(|n| pod(&format!("default/web-{n}"), &[(0, PodPhase::Pending)])).collect();
        let count = |at_ms, phases: &[(PodPhase, u64)]| Count { at_ms, phases: phases.iter().copied().collect() };
        let counts = vec![
            count(0, &[(PodPhase::Pending, 1_000)]),
            count(90_000, &[(PodPhase::Pending, 250), (PodPhase::Running, 750)]),
        ];
        pods.counts.insert("Deployment web".into(), counts);
        result.chronicle.left_out.insert("pods.lanes".into(), 976);
        let page = page(vec![result]);
        well_formed(&page);
        assert_eq!(page.matches("data-lane=\"pod\"").count(), 0);
        assert!(page.contains("data-area=\"pod\" data-name=\"Deployment web\" data-peak=\"1000\""));
        // Three quarters of 44 pixels above the ground at 109 from the half of the time on.
        assert!(page.contains("<polygon class=\"serving\" points=\"214,109 681,109 681,76 1148,76"), "{page}");
        assert!(page.contains("976 of <code>pods.lanes</code>"));
        assert!(page.len() < 60_000, "{}", page.len());
    }
}
