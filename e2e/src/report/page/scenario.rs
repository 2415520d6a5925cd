//! One scenario on the page: the diagnosis if it failed, its steps, its timeline, and the same as tables.

use super::super::text::duration;
use super::super::{Document, Outcome};
use super::markup::markup;
use super::timeline;
use super::words::{count, instant, usd};
use super::{rows, verdict};
use crate::chronicle::{Chronicle, InstancePhase, Lane, Lanes, NodeClaimPhase, NodePhase, Phase, PodPhase, Stage};
use crate::features::Step;
use crate::recorder::JournalSummary;
use crate::verdict::{Failure, ScenarioResult, Verdict};

/// What colours, patterns and marks stand for, once for all timelines.
pub(super) fn legend(out: &mut String) {
    fn words<P: Phase>(kind: &str, phases: &[P], stage: Stage) -> Option<String> {
        let of_stage: Vec<&str> = phases.iter().filter(|p| p.stage() == stage).map(|p| p.name()).collect();
        (!of_stage.is_empty()).then(|| format!("{kind} {}", of_stage.join(", ")))
    }
    out.push_str("<details class=\"legend\" open><summary>Legend of the timelines</summary>\n<ul>\n");
    for (stage, word) in [
        (Stage::Waiting, "waiting"),
        (Stage::Starting, "starting"),
        (Stage::Serving, "serving"),
        (Stage::Warned, "about to go"),
        (Stage::Ending, "going"),
    ] {
        let meanings = [
            words("pod", PodPhase::ALL, stage),
            words("NodeClaim", NodeClaimPhase::ALL, stage),
            words("node", NodePhase::ALL, stage),
            words("instance", InstancePhase::ALL, stage),
        ];
        let meanings: Vec<String> = meanings.into_iter().flatten().collect();
        let class = timeline::class(stage);
        markup!(
            out,
            "<li><svg width=\"28\" height=\"12\" aria-hidden=\"true\"><rect class=\"{}\" width=\"28\" height=\"12\"/>",
            class
        );
        if stage == Stage::Warned {
            out.push_str("<rect class=\"stripes\" width=\"28\" height=\"12\"/>");
        }
        markup!(out, "</svg> <b>{}</b>: {}</li>\n", word, meanings.join("; "));
    }
    out.push_str(
        "<li><svg width=\"28\" height=\"12\" aria-hidden=\"true\"><rect class=\"cut-sample\" width=\"28\" height=\"12\"/></svg> \
         <b>cut</b>: a long time in which no step begins and nothing changes, drawn short</li>\n\
         </ul>\n<p>Numbers along the top are steps of the scenario. Groups of more than 24 are drawn as areas of numbers. \
         Point at anything to read it; the tables below each timeline tell the same.</p></details>\n",
    );
}

pub(super) fn render(out: &mut String, document: &Document, result: &ScenarioResult, index: usize) {
    let scenario = &result.scenario;
    let outcome = Outcome::of(result);
    markup!(
        out,
        "<article class=\"scenario {}\" data-scenario=\"{}\" data-verdict=\"{}\">\n<details class=\"outer\"",
        outcome.word(),
        index,
        outcome.word()
    );
    // What went wrong is what the reader came for.
    if outcome != Outcome::Passed {
        out.push_str(" open");
    }
    out.push_str("><summary>");
    verdict(out, result);
    markup!(
        out,
        " <h3>{}</h3> <span class=\"muted\">{} · {} virtual</span></summary>\n<div class=\"body\" id=\"scenario-{}\">\n",
        scenario.name,
        scenario.feature,
        duration(result.virtual_s),
        index
    );
    markup!(out, "<p class=\"where\"><code>{}</code> seed {}", scenario.location(), result.seed);
    scenario.tags.iter().for_each(|tag| markup!(out, " <span class=\"tag\">@{}</span>", tag));
    out.push_str("</p>\n<div class=\"rows\">");
    rows(out, document, result);
    out.push_str("</div>\n");
    match &result.verdict {
        Verdict::Failed(failure) => diagnosis(out, failure),
        Verdict::Skipped { missing } => {
            markup!(out, "<p class=\"notice-box\">Skipped: the backend lacks <b>{}</b>.</p>\n", missing);
        }
        Verdict::Passed => {}
    }
    repeat(out, result);
    steps(out, result);
    let chronicle = &result.chronicle;
    if chronicle.ended_ms > 0 || chronicle.pods.seen + chronicle.instances.seen > 0 {
        // A region, so that the keyboard can scroll it where the screen is narrow.
        markup!(
            out,
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Timeline of {}\">\n",
            scenario.name
        );
        timeline::render(out, chronicle, &scenario.name, &format!("t{index}"));
        out.push_str("</div>\n");
        left_out(out, chronicle);
        tables(out, chronicle);
    }
    requests(out, result);
    out.push_str("</div>\n</details>\n</article>\n");
}

fn diagnosis(out: &mut String, failure: &Failure) {
    markup!(
        out,
        "<div class=\"diagnosis\">\n<h4>Diagnosis</h4>\n<dl><dt>Step</dt><dd>{}</dd>\n<dt>Message</dt><dd class=\"message\" tabindex=\"0\">{}</dd>\n",
        failure.step,
        failure.message
    );
    if let Some(observed) = &failure.last_observed {
        markup!(out, "<dt>Last observed</dt><dd class=\"message\" tabindex=\"0\">{}</dd>\n", observed);
    }
    out.push_str("</dl>\n");
    if !failure.timeline.is_empty() {
        markup!(
            out,
            "<details><summary>What happened, line by line ({})</summary>\n\
             <pre tabindex=\"0\" role=\"region\" aria-label=\"What happened, line by line\">",
            failure.timeline.len()
        );
        failure.timeline.iter().for_each(|line| markup!(out, "{}\n", line));
        out.push_str("</pre></details>\n");
    }
    out.push_str("</div>\n");
}

fn repeat(out: &mut String, result: &ScenarioResult) {
    let Some(repeat) = &result.repeat else { return };
    let of_run = |journal: &JournalSummary| count(journal.entries, "request", "requests");
    if repeat.identical {
        markup!(
            out,
            "<div class=\"repeat same\"><p>Run twice: <b>identical</b>, {} each. SHA-256 <code>{}</code></p>",
            of_run(&repeat.journal),
            repeat.journal.sha256
        );
    } else {
        out.push_str("<div class=\"repeat differs\"><p>Run twice: <b>DIFFERENT</b>.</p>");
        for (run, journal) in [("First", &result.journal), ("Second", &repeat.journal)] {
            markup!(out, "<p>{} run: {}, SHA-256 <code>{}</code></p>", run, of_run(journal), journal.sha256);
        }
    }
    if let Some(difference) = &repeat.first_difference {
        markup!(out, "<p>They differ first at:</p><pre tabindex=\"0\">{}</pre>", difference);
    }
    out.push_str("</div>\n");
}

/// How a step ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StepOutcome {
    Held,
    Failed,
    NotRun,
    /// The scenario's process died and told nothing.
    Unknown,
}

fn step_outcome(result: &ScenarioResult, index: usize, step: &Step) -> StepOutcome {
    let begun = result.chronicle.steps.len();
    let is_last = index + 1 == begun;
    match &result.verdict {
        Verdict::Failed(failure) if is_last && failure.step.ends_with(&format!("{} {}", step.keyword, step.text)) => {
            StepOutcome::Failed
        }
        _ if index < begun => StepOutcome::Held,
        _ if result.journal.entries == 0 => StepOutcome::Unknown,
        _ => StepOutcome::NotRun,
    }
}

fn steps(out: &mut String, result: &ScenarioResult) {
    out.push_str(
        "<table class=\"steps\"><thead><tr><th scope=\"col\" class=\"number\">#</th><th scope=\"col\" class=\"number\">At</th>\
         <th scope=\"col\" class=\"number\">Took</th><th scope=\"col\">Step</th></tr></thead>\n<tbody>\n",
    );
    for (index, step) in result.scenario.steps.iter().enumerate() {
        let outcome = step_outcome(result, index, step);
        let (class, remark) = match outcome {
            StepOutcome::Held => ("held", ""),
            StepOutcome::Failed => ("failed", "failed"),
            StepOutcome::NotRun => ("not-run", "not run"),
            StepOutcome::Unknown => ("not-run", ""),
        };
        let (at, took) = match result.chronicle.steps.get(index) {
            Some(span) => (instant(span.began_ms), instant(span.ended_ms - span.began_ms.min(span.ended_ms))),
            None => ("–".into(), "–".into()),
        };
        markup!(
            out,
            "<tr class=\"{}\"><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>",
            class,
            index + 1,
            at,
            took
        );
        if !remark.is_empty() {
            markup!(out, "<span class=\"remark\">{}</span> ", remark);
        }
        markup!(out, "<b>{}</b> {}", step.keyword, step.text);
        if let Some(text) = &step.docstring {
            markup!(out, "<pre>{}</pre>", text);
        }
        if !step.table.is_empty() {
            out.push_str("<table class=\"argument\">");
            for row in &step.table {
                out.push_str("<tr>");
                row.iter().for_each(|cell| markup!(out, "<td>{}</td>", cell));
                out.push_str("</tr>");
            }
            out.push_str("</table>");
        }
        out.push_str("</td></tr>\n");
    }
    out.push_str("</tbody></table>\n");
}

fn left_out(out: &mut String, chronicle: &Chronicle) {
    if chronicle.left_out.is_empty() {
        return;
    }
    out.push_str("<p class=\"left-out\">Left out to keep the report small:");
    for (position, (list, number)) in chronicle.left_out.iter().enumerate() {
        markup!(out, "{} {} of <code>{}</code>", if position == 0 { "" } else { "," }, number, list);
    }
    out.push_str(".</p>\n");
}

/// What the timeline shows, for those who read rather than look.
fn tables(out: &mut String, chronicle: &Chronicle) {
    out.push_str("<details class=\"data\"><summary>The timeline as tables</summary>\n");
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".into());
    lanes(out, "Instances", &chronicle.instances, &["Type", "Zone", "Capacity", "Price per hour", "Reason"], |lane| {
        let facts = &lane.facts;
        let price = facts.usd_per_hour.map_or_else(|| "–".into(), usd);
        vec![
            facts.instance_type.clone(),
            facts.zone.clone(),
            facts.capacity_type.clone(),
            price,
            or_dash(&facts.state_reason),
        ]
    });
    lanes(out, "NodeClaims", &chronicle.node_claims, &["Type", "Zone", "Capacity", "Node", "Reason"], |lane| {
        let facts = &lane.facts;
        [&facts.instance_type, &facts.zone, &facts.capacity_type, &facts.node, &facts.reason].map(or_dash).into()
    });
    lanes(out, "Nodes", &chronicle.nodes, &["Type", "Zone", "Capacity", "Instance"], |lane| {
        let facts = &lane.facts;
        [&facts.instance_type, &facts.zone, &facts.capacity_type, &facts.instance].map(or_dash).into()
    });
    lanes(out, "Pods", &chronicle.pods, &["Owner", "Node"], |lane| vec![lane.group.clone(), or_dash(&lane.facts.node)]);
    let evictions = chronicle.evictions.iter().map(|eviction| {
        let granted = eviction.evicted_ms.map_or_else(|| "–".into(), instant);
        vec![
            eviction.pod.clone(),
            instant(eviction.asked_ms),
            eviction.refusals.to_string(),
            granted,
            eviction.caller.clone(),
        ]
    });
    table(out, "Evictions", &["Pod", "Asked", "Refusals", "Evicted", "By"], evictions);
    let calls = chronicle.calls.iter().map(|call| {
        let errors: Vec<String> = call.errors.iter().map(|(code, times)| format!("{times} × {code}")).collect();
        vec![
            instant(call.at_ms),
            call.action.clone(),
            call.status.to_string(),
            call.objects.join(" "),
            errors.join(", "),
        ]
    });
    table(out, "Calls to AWS", &["At", "Action", "Status", "Objects", "Errors"], calls);
    let events = chronicle.events.iter().map(|event| {
        let at = if event.count > 1 {
            format!("{} to {}, {} times", instant(event.at_ms), instant(event.last_ms), event.count)
        } else {
            instant(event.at_ms)
        };
        vec![at, event.kind.clone(), event.reason.clone(), event.object.clone(), event.message.clone()]
    });
    table(out, "Events of the controller", &["At", "Type", "Reason", "Object", "Message"], events);
    let cost = chronicle.cost.steps.iter().map(|step| vec![instant(step.at_ms), usd(step.usd_per_hour)]);
    table(out, "Cost", &["From", "Per hour"], cost);
    out.push_str("</details>\n");
}

fn lanes<F, P: Phase>(
    out: &mut String,
    caption: &str,
    lanes: &Lanes<F, P>,
    columns: &[&str],
    cells: impl Fn(&Lane<F, P>) -> Vec<String>,
) {
    let headers: Vec<&str> = ["Name"].into_iter().chain(columns.iter().copied()).chain(["Phases"]).collect();
    let caption = format!("{caption} ({})", lanes.seen);
    let rows = lanes.lanes.iter().map(|lane| {
        let phases: Vec<String> =
            lane.phases.iter().map(|entered| format!("{} {}", instant(entered.at_ms), entered.phase.name())).collect();
        [vec![lane.name.clone()], cells(lane), vec![phases.join(", ")]].concat()
    });
    table(out, &caption, &headers, rows);
}

fn table(out: &mut String, caption: &str, columns: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    markup!(
        out,
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table class=\"facts\"><caption>{}</caption>",
        caption,
        caption
    );
    out.push_str("<thead><tr>");
    columns.iter().for_each(|column| markup!(out, "<th scope=\"col\">{}</th>", column));
    out.push_str("</tr></thead>\n<tbody>");
    for row in rows {
        out.push_str("<tr>");
        row.iter().for_each(|cell| markup!(out, "<td>{}</td>", cell));
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn requests(out: &mut String, result: &ScenarioResult) {
    if result.journal.entries == 0 {
        return;
    }
    markup!(out, "<details class=\"data\"><summary>Requests ({})</summary>\n", result.journal.entries);
    let rows = result.journal.calls.iter().map(|(call, number)| vec![number.to_string(), call.clone()]);
    table(out, "Requests by kind", &["Number", "Request"], rows);
    out.push_str("</details>\n");
}
