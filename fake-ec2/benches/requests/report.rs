//! The figures as a table for people and as JSON for programs.

use crate::compare::Comparison;
use crate::growth::Growth;
use crate::measure::Timing;
use crate::server::Start;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

pub(crate) fn text(start: &Start, rows: &[Comparison], growth: &Growth, floor: Duration) -> String {
    let mut out = String::new();
    comparison(&mut out, rows);
    let _ = writeln!(
        out,
        "An exchange with a server that does nothing takes {} on one connection here; a round of messages is three.",
        time(floor)
    );
    costs(&mut out, growth);
    let _ = writeln!(
        out,
        "\nFrom start to first answer {} (slowest {}); {:.1} MiB resident with all {} instance types answered,\n{:.1} MiB with \
         the large account and the journal of what was asked.",
        time(start.start),
        time(start.slowest),
        start.resident_mib,
        start.instance_types,
        growth.resident_mib
    );
    out
}

fn comparison(out: &mut String, compared: &[Comparison]) {
    let _ = writeln!(
        out,
        "{:<30} {:>5} {:>5}  {:>31}  {:>31}  {:>8} {:>8} {:>7}",
        "",
        "conn.",
        "items",
        "fake-ec2: per s  median     p99",
        "moto: per s  median     p99",
        "ratio",
        "at best",
        "target"
    );
    let side =
        |timing: &Timing| format!("{:>11} {:>8} {:>8}", rate(timing.per_second), time(timing.median), time(timing.p99));
    let times = |ratio: Option<f64>| ratio.map_or_else(|| "–".into(), |ratio| format!("{ratio:.0}×"));
    for comparison in compared {
        for (index, row) in comparison.rows.iter().enumerate() {
            let is_first = index == 0;
            let (best, target) = match is_first {
                true => (times(comparison.ratio()), format!("≥{:.0}×", comparison.target)),
                false => (String::new(), String::new()),
            };
            let line = format!(
                "{:<30} {:>5} {:>5}  {:>31}  {:>31}  {:>8} {best:>8} {target:>7}",
                if is_first { comparison.what } else { "" },
                row.connections,
                row.fake.items,
                side(&row.fake),
                row.moto.as_ref().map_or_else(|| "–".into(), side),
                times(row.ratio()),
            );
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

fn costs(out: &mut String, growth: &Growth) {
    let ([few, many], [few_messages, many_messages]) = (growth.instances, growth.messages);
    let _ = writeln!(
        out,
        "\nfake-ec2 with {few} instances and {few_messages} messages, and with {many} and {many_messages}, in turn:\n\
         {:<30} {:>11}  {:>17}  {:>17}  {:>8}",
        "", "items", "few: median   p99", "many: median   p99", "ratio"
    );
    for row in &growth.rows {
        let side = |[median, p99]: [Duration; 2]| format!("{:>8} {:>8}", time(median), time(p99));
        let _ = writeln!(
            out,
            "{:<30} {:>11}  {:>17}  {:>17}  {:>7.2}×",
            row.what,
            row.items,
            side(row.small),
            side(row.large),
            row.ratio()
        );
    }
}

fn rate(per_second: f64) -> String {
    if per_second < 100.0 { format!("{per_second:.1}") } else { format!("{per_second:.0}") }
}

fn time(time: Duration) -> String {
    match time.as_secs_f64() * 1e6 {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 100_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

pub(crate) fn json(start: &Start, rows: &[Comparison], growth: &Growth, floor: Duration) -> Value {
    let side = |timing: &Timing| {
        json!({
            "perSecond": timing.per_second,
            "medianUs": micros(timing.median),
            "p99Us": micros(timing.p99),
            "rounds": timing.rounds,
        })
    };
    let compared = rows.iter().map(|comparison| {
        let rows = comparison.rows.iter().map(|row| {
            json!({
                "connections": row.connections,
                "items": row.fake.items,
                "fakeEc2": side(&row.fake),
                "moto": row.moto.as_ref().map(side),
                "ratio": row.ratio(),
            })
        });
        json!({
            "what": comparison.what,
            "rows": rows.collect::<Vec<_>>(),
            "ratio": comparison.ratio(),
            "target": comparison.target,
        })
    });
    let pair = |[median, p99]: [Duration; 2]| json!({"medianUs": micros(median), "p99Us": micros(p99)});
    let costs = growth.rows.iter().map(|row| {
        json!({"what": row.what, "items": row.items, "few": pair(row.small), "many": pair(row.large), "ratio": row.ratio()})
    });
    json!({
        "compared": compared.collect::<Vec<_>>(),
        "floorUs": micros(floor),
        "growth": {
            "instances": growth.instances,
            "messages": growth.messages,
            "rows": costs.collect::<Vec<_>>(),
            "residentMib": growth.resident_mib,
        },
        "start": {
            "medianMs": start.start.as_secs_f64() * 1e3,
            "slowestMs": start.slowest.as_secs_f64() * 1e3,
            "residentMib": start.resident_mib,
            "instanceTypes": start.instance_types,
        },
    })
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
