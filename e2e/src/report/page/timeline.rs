//! The timeline of a scenario as inline SVG: the lives of pods, NodeClaims, nodes and instances, marks for calls, evictions,
//! notices and events, and beneath them the cost per hour on the same axis.
//!
//! Colours come from the page's style sheet through the classes of the stages; patterns and words say the same without them.

use super::axis::Axis;
use super::markup::markup;
use super::words::{count, instant, tick, usd};
use crate::chronicle::{
    Chronicle, CloudCall, Entered, Event, InstanceFacts, InstancePhase, Lane, Lanes, NO_OWNER, Phase, Stage,
};
use std::collections::{BTreeMap, BTreeSet};

/// The drawing's width in pixels, of which the labels take the left part.
const WIDTH: f64 = 1160.0;
const LEFT: f64 = 214.0;
const RIGHT: f64 = 1148.0;
/// Lanes of a group up to this number carry a label each.
const LABELLED_LANES: usize = 6;
const AREA_HEIGHT: f64 = 44.0;
const COST_HEIGHT: f64 = 46.0;
/// Marks closer than this are drawn as one, whose title tells them all.
const MARKS_APART: f64 = 9.0;
/// At most so many things are told in the title of a mark.
const TOLD: usize = 12;
/// The average width of a character of the drawing's text.
const CHARACTER: f64 = 6.0;

/// Draws the timeline. `title` names it for those who do not see it.
pub(super) fn render(out: &mut String, chronicle: &Chronicle, title: &str, id: &str) {
    let axis = Axis::new(instants(chronicle), chronicle.ended_ms, LEFT, RIGHT);
    let mut body = String::new();
    let mut drawing = Drawing { out: &mut body, axis: &axis, end_ms: chronicle.ended_ms, y: steps_y(&axis) + 11.0 };
    drawing.lanes("pod", "Pods", &chronicle.pods, short_pod, |lane| {
        format!("{}, {}", lane.group, lane.facts.node.as_deref().unwrap_or("no node"))
    });
    drawing.lanes(
        "node-claim",
        "NodeClaims",
        &chronicle.node_claims,
        |lane| lane.name.clone(),
        |lane| {
            let facts = &lane.facts;
            let known = [&facts.instance_type, &facts.zone, &facts.capacity_type, &facts.node, &facts.reason];
            known.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ")
        },
    );
    drawing.lanes(
        "node",
        "Nodes",
        &chronicle.nodes,
        |lane| first_label(&lane.name).to_owned(),
        |lane| {
            let facts = &lane.facts;
            let known = [&facts.instance_type, &facts.zone, &facts.capacity_type, &facts.instance];
            known.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ")
        },
    );
    let instance_label = |lane: &Lane<InstanceFacts, InstancePhase>| {
        let facts = &lane.facts;
        let price = facts.usd_per_hour.map(usd).unwrap_or_default();
        // The region is the same for all; its zone's last letter tells them apart.
        format!("{} {} {} {price}", facts.instance_type, last_part(&facts.zone), facts.capacity_type)
    };
    drawing.lanes("instance", "Instances", &chronicle.instances, instance_label, |lane| {
        let reason = lane.facts.state_reason.as_ref().map(|reason| format!(", {reason}")).unwrap_or_default();
        format!("{} in {}{reason}", lane.facts.instance_type, lane.facts.zone)
    });
    drawing.marks(chronicle);
    drawing.cost(chronicle);
    let height = drawing.y + 18.0;
    markup!(
        out,
        "<svg class=\"timeline\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{}-title {}-desc\">\n\
         <title id=\"{}-title\">Timeline of {}</title>\n<desc id=\"{}-desc\">{}</desc>\n",
        WIDTH,
        px(height),
        id,
        id,
        id,
        title,
        id,
        description(chronicle)
    );
    frame(out, chronicle, &axis, height);
    out.push_str(&body);
    out.push_str("</svg>\n");
}

/// What the drawing shows, in a sentence.
fn description(chronicle: &Chronicle) -> String {
    format!(
        "{}, {}, {}, {}, {}, {}, {} in {}. The cost peaks at {} per hour and comes to {}. The tables below tell the same.",
        count(chronicle.pods.seen, "pod", "pods"),
        count(chronicle.node_claims.seen, "NodeClaim", "NodeClaims"),
        count(chronicle.nodes.seen, "node", "nodes"),
        count(chronicle.instances.seen, "instance", "instances"),
        count(chronicle.evictions.len() as u64, "eviction", "evictions"),
        count(chronicle.calls.len() as u64, "call to AWS", "calls to AWS"),
        count(chronicle.events.len() as u64, "event", "events"),
        instant(chronicle.ended_ms),
        usd(chronicle.cost.peak_usd_per_hour),
        usd(chronicle.cost.total_usd)
    )
}

/// Every instant at which a step begins or something changes. Events and housekeeping (launch templates that are renewed
/// twice an hour) are not among them: they would keep a quiet day long.
fn instants(chronicle: &Chronicle) -> BTreeSet<u64> {
    fn of_lanes<F, P>(lanes: &Lanes<F, P>) -> impl Iterator<Item = u64> {
        let phases = lanes.lanes.iter().flat_map(|lane| lane.phases.iter().map(|entered| entered.at_ms));
        phases.chain(lanes.counts.values().flatten().map(|count| count.at_ms))
    }
    let mut all = BTreeSet::new();
    all.extend(of_lanes(&chronicle.pods));
    all.extend(of_lanes(&chronicle.node_claims));
    all.extend(of_lanes(&chronicle.nodes));
    all.extend(of_lanes(&chronicle.instances));
    all.extend(chronicle.steps.iter().map(|step| step.began_ms));
    all.extend(
        chronicle.evictions.iter().flat_map(|eviction| [Some(eviction.asked_ms), eviction.evicted_ms]).flatten(),
    );
    let told = |call: &&CloudCall| launches(&call.action) || terminates(&call.action);
    all.extend(chronicle.calls.iter().filter(told).map(|call| call.at_ms));
    all.extend(chronicle.cost.steps.iter().map(|step| step.at_ms));
    all
}

/// The line of the steps' numbers: below the lengths of the cuts, if there are any.
fn steps_y(axis: &Axis) -> f64 {
    if axis.cuts().next().is_some() { 46.0 } else { 30.0 }
}

/// The axis above and below, the cuts, and the begins of the steps.
fn frame(out: &mut String, chronicle: &Chronicle, axis: &Axis, height: f64) {
    let (bottom, steps_y) = (height - 16.0, steps_y(axis));
    markup!(
        out,
        "<g class=\"axis\"><text x=\"0\" y=\"12\">virtual time</text><text x=\"0\" y=\"{}\">steps</text>",
        px(steps_y)
    );
    for (at, x) in axis.ticks() {
        markup!(out, "<line x1=\"{}\" x2=\"{}\" y1=\"17\" y2=\"{}\"/>", px(x), px(x), px(bottom));
        // Labels at the edges stay inside the drawing.
        let anchor = if x > RIGHT - 24.0 { "end" } else { "middle" };
        for y in [12.0, height - 3.0] {
            markup!(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>", px(x), px(y), anchor, tick(at));
        }
    }
    out.push_str("</g>\n");
    for cut in axis.cuts() {
        let (width, middle) = (cut.to_x - cut.from_x, f64::midpoint(cut.from_x, cut.to_x));
        let told = tick((cut.to_ms - cut.from_ms) / 1_000 * 1_000);
        markup!(
            out,
            "<g class=\"cut\"><title>{} in which no step begins and nothing changes, drawn short</title>\
             <rect x=\"{}\" y=\"17\" width=\"{}\" height=\"{}\"/>",
            told,
            px(cut.from_x),
            px(width),
            px(bottom - 17.0)
        );
        if width > (told.len() + 4) as f64 * CHARACTER {
            markup!(out, "<text x=\"{}\" y=\"28\" text-anchor=\"middle\">⋯ {} ⋯</text>", px(middle), told);
        }
        out.push_str("</g>\n");
    }
    out.push_str("<g class=\"steps\">");
    for (x, label, told) in step_marks(chronicle, axis) {
        let (beside, anchor) = if x > RIGHT - 24.0 { (x - 3.0, "end") } else { (x + 3.0, "start") };
        markup!(
            out,
            "<g><title>{}</title><line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text></g>",
            told,
            px(x),
            px(x),
            px(steps_y - 11.0),
            px(bottom),
            px(beside),
            px(steps_y),
            anchor,
            label
        );
    }
    out.push_str("</g>\n");
}

/// The begins of the steps: position, label, title. Steps too close for labels of their own share one.
fn step_marks(chronicle: &Chronicle, axis: &Axis) -> Vec<(f64, String, String)> {
    let mut marks: Vec<(f64, usize, usize)> = Vec::new();
    for (index, step) in chronicle.steps.iter().enumerate() {
        let x = axis.x(step.began_ms);
        match marks.last_mut() {
            // Wide enough for two numbers of two digits and a dash.
            Some((first, _, to)) if x - *first < 42.0 => *to = index + 1,
            _ => marks.push((x, index + 1, index + 1)),
        }
    }
    let told = |(x, from, to): (f64, usize, usize)| {
        let label = if from == to { from.to_string() } else { format!("{from}–{to}") };
        let at = |number: usize| instant(chronicle.steps[number - 1].began_ms);
        let title = if from == to {
            format!("Step {from} begins at {}", at(from))
        } else {
            format!("Steps {from} to {to} begin at {} to {}", at(from), at(to))
        };
        (x, label, title)
    };
    marks.into_iter().map(told).collect()
}

struct Drawing<'a> {
    out: &'a mut String,
    axis: &'a Axis,
    end_ms: u64,
    y: f64,
}

impl Drawing<'_> {
    fn heading(&mut self, text: &str, detail: &str) {
        self.y += 6.0;
        markup!(
            self.out,
            "<line class=\"rule\" x1=\"0\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/><text class=\"heading\" x=\"0\" y=\"{}\">{}",
            WIDTH,
            px(self.y),
            px(self.y),
            px(self.y + 13.0),
            text
        );
        markup!(self.out, " <tspan class=\"muted\">{}</tspan></text>\n", detail);
    }

    /// Everything of one kind, group by group in the order of appearance.
    fn lanes<F, P: Phase>(
        &mut self,
        kind: &str,
        heading: &str,
        lanes: &Lanes<F, P>,
        label: impl Fn(&Lane<F, P>) -> String,
        told: impl Fn(&Lane<F, P>) -> String,
    ) {
        if lanes.seen == 0 {
            return;
        }
        let mut groups: Vec<(&str, Vec<&Lane<F, P>>)> = Vec::new();
        for lane in &lanes.lanes {
            match groups.iter_mut().find(|(name, _)| *name == lane.group) {
                Some((_, members)) => members.push(lane),
                None => groups.push((&lane.group, vec![lane])),
            }
        }
        self.heading(heading, &lanes.seen.to_string());
        let heading_y = self.y;
        self.y += 18.0;
        for (name, members) in groups {
            match lanes.counts.get(name) {
                Some(counts) => {
                    let points: Vec<(u64, BTreeMap<Stage, u64>)> =
                        counts.iter().map(|count| (count.at_ms, by_stage(&count.phases))).collect();
                    self.area(kind, name, &points);
                }
                None => self.group(kind, name, &members, &label, &told),
            }
        }
        let drawn = lanes.lanes.iter().filter(|lane| !lanes.counts.contains_key(&lane.group)).count() as u64;
        if lanes.counts.is_empty() && drawn < lanes.seen {
            let left_out = format!("{} more are not drawn", lanes.seen - drawn);
            self.text(LEFT, heading_y + 13.0, "muted", &left_out);
        }
    }

    fn group<F, P: Phase>(
        &mut self,
        kind: &str,
        name: &str,
        members: &[&Lane<F, P>],
        label: impl Fn(&Lane<F, P>) -> String,
        told: impl Fn(&Lane<F, P>) -> String,
    ) {
        // Pods are many and alike: they share the label of their owner.
        let labelled = kind != "pod" && members.len() <= LABELLED_LANES;
        let (height, apart) = match members.len() {
            number if labelled || number == 1 => (14.0, 3.0),
            2..=6 => (8.0, 2.0),
            _ => (5.0, 1.0),
        };
        if !labelled {
            // A block of thin lanes has its label in the middle.
            let block = members.len() as f64 * (height + apart) - apart;
            let text = match members {
                [only] if name == NO_OWNER => label(only),
                [_] => name.to_owned(),
                _ => format!("{name} × {}", members.len()),
            };
            self.text(0.0, self.y + block / 2.0 + 4.0, "label", &fitted(&text));
        }
        for lane in members {
            markup!(self.out, "<g data-lane=\"{}\" data-name=\"{}\">", kind, lane.name);
            if labelled {
                self.text(0.0, self.y + 11.0, "label", &fitted(&label(lane)));
            }
            for (index, entered) in lane.phases.iter().enumerate() {
                let until = lane.phases.get(index + 1).map_or(self.end_ms, |next| next.at_ms);
                self.bar(&lane.name, &told(lane), entered, until, height);
            }
            self.out.push_str("</g>\n");
            self.y += height + apart;
        }
        self.y += 3.0;
    }

    fn bar<P: Phase>(&mut self, name: &str, told: &str, entered: &Entered<P>, until_ms: u64, height: f64) {
        let stage = entered.phase.stage();
        let (from, to) = (self.axis.x(entered.at_ms), self.axis.x(until_ms));
        if stage == Stage::Gone {
            return;
        }
        // Whatever happened is seen, however short it was.
        let width = (to - from).max(1.5);
        let word = entered.phase.name();
        markup!(
            self.out,
            "<g><title>{}: {} from {} for {}\n{}</title>",
            name,
            word,
            instant(entered.at_ms),
            instant(until_ms.saturating_sub(entered.at_ms)),
            told
        );
        let rectangle = |out: &mut String, class: &str| {
            markup!(
                out,
                "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                class,
                px(from),
                px(self.y),
                px(width),
                px(height)
            );
        };
        rectangle(self.out, class(stage));
        if stage == Stage::Warned {
            rectangle(self.out, "stripes");
        }
        if height >= 12.0 && width > word.len() as f64 * CHARACTER + 8.0 {
            let on = format!("on-{}", class(stage));
            self.text(from + 4.0, self.y + 10.5, &on, word);
        }
        self.out.push_str("</g>");
    }

    /// How many members of a large group were in which stage, one upon the other.
    fn area(&mut self, kind: &str, name: &str, points: &[(u64, BTreeMap<Stage, u64>)]) {
        let sum = |stages: &BTreeMap<Stage, u64>| stages.values().sum::<u64>();
        let peak = points.iter().map(|(_, stages)| sum(stages)).max().unwrap_or(0);
        let (top, bottom) = (self.y, self.y + AREA_HEIGHT);
        markup!(self.out, "<g data-area=\"{}\" data-name=\"{}\" data-peak=\"{}\">", kind, name, peak);
        markup!(self.out, "<title>{}: up to {} at once</title>", name, peak);
        self.text(0.0, top + AREA_HEIGHT / 2.0 + 4.0, "label", &fitted(name));
        self.text(LEFT - 4.0, top + 9.0, "scale", &peak.to_string());
        self.text(LEFT - 4.0, bottom, "scale", "0");
        self.plot(top, AREA_HEIGHT);
        let height = |count: u64| AREA_HEIGHT * count as f64 / peak.max(1) as f64;
        let stack = [Stage::Serving, Stage::Warned, Stage::Starting, Stage::Waiting, Stage::Ending];
        for (level, stage) in stack.iter().enumerate() {
            let up_to = |stages: &BTreeMap<Stage, u64>, levels: &[Stage]| -> u64 {
                levels.iter().filter_map(|stage| stages.get(stage)).sum()
            };
            if points.iter().all(|(_, stages)| up_to(stages, &[*stage]) == 0) {
                continue;
            }
            let edge = |levels: &[Stage]| -> Vec<(f64, f64)> {
                let mut line = Vec::new();
                for (index, (at, stages)) in points.iter().enumerate() {
                    let until = points.get(index + 1).map_or(self.end_ms, |(next, _)| *next);
                    let y = bottom - height(up_to(stages, levels));
                    line.extend([(self.axis.x(*at), y), (self.axis.x(until), y)]);
                }
                line
            };
            let (upper, mut lower) = (edge(&stack[..=level]), edge(&stack[..level]));
            lower.reverse();
            let corners: Vec<String> =
                upper.into_iter().chain(lower).map(|(x, y)| format!("{},{}", px(x), px(y))).collect();
            let corners = corners.join(" ");
            markup!(self.out, "<polygon class=\"{}\" points=\"{}\"/>", class(*stage), corners);
            if *stage == Stage::Warned {
                markup!(self.out, "<polygon class=\"stripes\" points=\"{}\"/>", corners);
            }
        }
        self.out.push_str("</g>\n");
        self.y += AREA_HEIGHT + 6.0;
    }

    /// Rows of marks: what was said and done at an instant.
    fn marks(&mut self, chronicle: &Chronicle) {
        let told = |call: &CloudCall| {
            let errors = call.errors.iter().map(|(code, times)| format!("{times} × {code}"));
            let detail: Vec<String> = call.objects.iter().cloned().chain(errors).collect();
            (call.at_ms, format!("{} {}", call.action, detail.join(", ")))
        };
        let calls = |wanted: &dyn Fn(&str) -> bool| -> Vec<(u64, String)> {
            chronicle.calls.iter().filter(|call| wanted(&call.action)).map(told).collect()
        };
        let notices: Vec<(u64, String)> = chronicle.instances.lanes.iter().flat_map(notices_of).collect();
        let evictions = chronicle.evictions.iter().map(|eviction| {
            let refused = format!("refused {}", count(eviction.refusals, "time", "times"));
            let outcome = match (eviction.evicted_ms, eviction.refusals) {
                (Some(_), 0) => "evicted".to_owned(),
                (Some(_), _) => format!("{refused}, then evicted"),
                (None, _) => refused,
            };
            (eviction.evicted_ms.unwrap_or(eviction.asked_ms), format!("{} {outcome}", eviction.pod))
        });
        let events = |kind: &str| -> Vec<(u64, String)> {
            chronicle
                .events
                .iter()
                .filter(|event| (event.kind == "Warning") == (kind == "Warning"))
                .map(event_told)
                .collect()
        };
        let others = |action: &str| !launches(action) && !terminates(action);
        let rows = [
            ("Launches", "launch", calls(&launches)),
            ("Terminations", "terminate", calls(&terminates)),
            ("Other AWS writes", "other", calls(&others)),
            ("Spot notices", "notice", notices),
            ("Evictions", "evict", evictions.collect()),
            ("Warning events", "warning", events("Warning")),
            ("Normal events", "normal", events("Normal")),
        ];
        if rows.iter().all(|(.., marks)| marks.is_empty()) {
            return;
        }
        self.heading("Marks", "");
        self.y += 18.0;
        for (label, shape, marks) in rows.into_iter().filter(|(.., marks)| !marks.is_empty()) {
            self.text(0.0, self.y + 10.0, "label", label);
            self.text(LEFT - 10.0, self.y + 10.0, "scale", &marks.len().to_string());
            for (x, number, title) in gathered(marks, self.axis) {
                markup!(self.out, "<g class=\"mark\" data-marks=\"{}\" data-count=\"{}\">", shape, number);
                markup!(self.out, "<title>{}</title>", title);
                self.shape(shape, x, self.y + 6.0);
                self.out.push_str("</g>");
            }
            self.out.push('\n');
            self.y += 15.0;
        }
        self.y += 2.0;
    }

    fn shape(&mut self, shape: &str, x: f64, y: f64) {
        let points = |corners: &[(f64, f64)]| -> String {
            let all: Vec<String> = corners.iter().map(|(dx, dy)| format!("{},{}", px(x + dx), px(y + dy))).collect();
            all.join(" ")
        };
        match shape {
            "launch" => markup!(
                self.out,
                "<polygon class=\"launch\" points=\"{}\"/>",
                points(&[(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)])
            ),
            "terminate" => markup!(
                self.out,
                "<polygon class=\"terminate\" points=\"{}\"/>",
                points(&[(0.0, 5.0), (5.0, -4.0), (-5.0, -4.0)])
            ),
            "notice" => markup!(
                self.out,
                "<path class=\"notice\" d=\"M{} {}v11M{} {}h7l-2 3 2 3h-7z\"/>",
                px(x),
                px(y - 5.0),
                px(x),
                px(y - 5.0)
            ),
            "evict" => {
                markup!(self.out, "<path class=\"evict\" d=\"M{} {}l8 8m0 -8l-8 8\"/>", px(x - 4.0), px(y - 4.0))
            }
            "warning" => markup!(
                self.out,
                "<polygon class=\"warning\" points=\"{}\"/>",
                points(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)])
            ),
            _ => markup!(self.out, "<circle class=\"dot\" cx=\"{}\" cy=\"{}\" r=\"3\"/>", px(x), px(y)),
        }
    }

    /// The cost per hour as steps.
    fn cost(&mut self, chronicle: &Chronicle) {
        let cost = &chronicle.cost;
        if cost.steps.is_empty() {
            return;
        }
        let detail = format!("{} in all", usd(cost.total_usd));
        self.heading("Cost per hour", &detail);
        self.y += 20.0;
        let (top, bottom) = (self.y, self.y + COST_HEIGHT);
        let y = |amount: f64| bottom - (COST_HEIGHT - 12.0) * amount / cost.peak_usd_per_hour.max(1e-9);
        self.text(LEFT - 4.0, y(cost.peak_usd_per_hour) + 4.0, "scale", &usd(cost.peak_usd_per_hour));
        self.text(LEFT - 4.0, bottom, "scale", "$0");
        self.plot(top, COST_HEIGHT);
        let mut line = format!("M{} {}", px(LEFT), px(bottom));
        let mut titles: Vec<(f64, f64, f64, String)> = Vec::new();
        for (index, step) in cost.steps.iter().enumerate() {
            let until_ms = cost.steps.get(index + 1).map_or(self.end_ms, |next| next.at_ms);
            let (from, to) = (self.axis.x(step.at_ms), self.axis.x(until_ms));
            line += &format!("H{}V{}", px(from), px(y(step.usd_per_hour)));
            let told =
                format!("{} per hour from {} to {}", usd(step.usd_per_hour), instant(step.at_ms), instant(until_ms));
            titles.push((from, to, step.usd_per_hour, told));
        }
        line += &format!("H{}", px(RIGHT));
        markup!(self.out, "<path class=\"cost-area\" d=\"{}V{}H{}z\"/>", line, px(bottom), px(LEFT));
        markup!(self.out, "<path class=\"cost\" d=\"{}\"/>\n", line);
        for (from, to, amount, told) in titles {
            markup!(self.out, "<g data-cost=\"{}\"><title>{}</title>", amount, told);
            markup!(
                self.out,
                "<rect class=\"hover\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                px(from),
                px(top),
                px((to - from).max(1.0)),
                COST_HEIGHT
            );
            let word = usd(amount);
            if amount > 0.0 && to - from > word.len() as f64 * CHARACTER + 8.0 {
                self.text(from + 4.0, y(amount) - 3.0, "value", &word);
            }
            self.out.push_str("</g>\n");
        }
        self.y = bottom + 4.0;
    }

    /// The ground of an area or of the cost.
    fn plot(&mut self, top: f64, height: f64) {
        markup!(
            self.out,
            "<rect class=\"plot\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            LEFT,
            px(top),
            px(RIGHT - LEFT),
            height
        );
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        markup!(self.out, "<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>", class, px(x), px(y), text);
    }
}

fn launches(action: &str) -> bool {
    matches!(action, "ec2:CreateFleet" | "ec2:RunInstances")
}

fn terminates(action: &str) -> bool {
    action == "ec2:TerminateInstances"
}

/// When an instance was given notice.
fn notices_of<F>(lane: &Lane<F, InstancePhase>) -> impl Iterator<Item = (u64, String)> {
    let given = lane.phases.iter().filter(|entered| entered.phase == InstancePhase::Notice);
    given.map(|entered| (entered.at_ms, format!("EC2 will take {} back", lane.name)))
}

fn event_told(event: &Event) -> (u64, String) {
    let again = if event.count > 1 {
        format!(" ({} times, last at {})", event.count, instant(event.last_ms))
    } else {
        String::new()
    };
    (event.at_ms, format!("{} on {}: {}{again}", event.reason, event.object, event.message))
}

/// Marks that would touch, as one: position, number, and a title that tells them.
fn gathered(mut marks: Vec<(u64, String)>, axis: &Axis) -> Vec<(f64, usize, String)> {
    marks.sort_by_key(|(at, _)| *at);
    let mut all: Vec<(f64, Vec<String>)> = Vec::new();
    for (at, told) in marks {
        let x = axis.x(at);
        let told = format!("{} {told}", instant(at));
        match all.last_mut() {
            Some((first, together)) if x - *first < MARKS_APART => together.push(told),
            _ => all.push((x, vec![told])),
        }
    }
    let title = |(x, told): (f64, Vec<String>)| {
        let more = told.len().saturating_sub(TOLD);
        let mut lines: Vec<String> = told.iter().take(TOLD).cloned().collect();
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        (x, told.len(), lines.join("\n"))
    };
    all.into_iter().map(title).collect()
}

fn by_stage<P: Phase>(phases: &BTreeMap<P, u64>) -> BTreeMap<Stage, u64> {
    let mut stages = BTreeMap::new();
    for (phase, count) in phases {
        *stages.entry(phase.stage()).or_default() += count;
    }
    stages
}

/// The class of the style sheet that colours a stage.
pub(super) fn class(stage: Stage) -> &'static str {
    match stage {
        Stage::Waiting => "waiting",
        Stage::Starting => "starting",
        Stage::Serving => "serving",
        Stage::Warned => "warned",
        Stage::Ending | Stage::Gone => "ending",
    }
}

fn short_pod<F, P>(lane: &Lane<F, P>) -> String {
    last_part_after(&lane.name, '/').to_owned()
}

/// The host name's first label: the rest is the same for all.
fn first_label(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

fn last_part(zone: &str) -> &str {
    last_part_after(zone, '-')
}

fn last_part_after(text: &str, separator: char) -> &str {
    text.rsplit(separator).next().unwrap_or(text)
}

/// A label that fits into its column.
fn fitted(text: &str) -> String {
    let most = (LEFT / CHARACTER) as usize - 1;
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most - 1).collect();
    short.push('…');
    short
}

/// A coordinate, to a tenth of a pixel.
fn px(value: f64) -> String {
    let written = format!("{value:.1}");
    written.strip_suffix(".0").map(str::to_owned).unwrap_or(written)
}
