//! The figures as a table for people and as JSON for programs.

use crate::compare::Row;
use crate::growth::Growth;
use crate::measure::Timing;
use crate::server::Start;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

pub(crate) fn text(start: &Start, rows: &[Row], growth: &Growth) -> String {
    let mut out = String::new();
    comparison(&mut out, rows);
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

fn comparison(out: &mut String, rows: &[Row]) {
    let _ = writeln!(
        out,
        "{:<30} {:>5} {:>5}  {:>31}  {:>31}  {:>8} {:>7}",
        "", "conn.", "items", "fake-ec2: per s  median     p99", "moto: per s  median     p99", "ratio", "target"
    );
    for row in rows {
        let side = |timing: &Timing| {
            format!("{:>11} {:>8} {:>8}", rate(timing.per_second), time(timing.median), time(timing.p99))
        };
        let (moto, ratio) = (row.moto.as_ref().map(side), row.ratio().map(|ratio| format!("{ratio:.0}×")));
        let _ = writeln!(
            out,
            "{:<30} {:>5} {:>5}  {:>31}  {:>31}  {:>8} {:>7}",
            row.what,
            row.connections,
            row.fake.items,
            side(&row.fake),
            moto.unwrap_or_else(|| "–".into()),
            ratio.unwrap_or_else(|| "–".into()),
            format!("≥{:.0}×", row.target),
        );
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

pub(crate) fn json(start: &Start, rows: &[Row], growth: &Growth) -> Value {
    let side = |timing: &Timing| {
        json!({
            "perSecond": timing.per_second,
            "medianUs": micros(timing.median),
            "p99Us": micros(timing.p99),
            "rounds": timing.rounds,
        })
    };
    let compared = rows.iter().map(|row| {
        json!({
            "what": row.what,
            "connections": row.connections,
            "items": row.fake.items,
            "fakeEc2": side(&row.fake),
            "moto": row.moto.as_ref().map(side),
            "ratio": row.ratio(),
            "target": row.target,
        })
    });
    let pair = |[median, p99]: [Duration; 2]| json!({"medianUs": micros(median), "p99Us": micros(p99)});
    let costs = growth.rows.iter().map(|row| {
        json!({"what": row.what, "items": row.items, "few": pair(row.small), "many": pair(row.large), "ratio": row.ratio()})
    });
    json!({
        "compared": compared.collect::<Vec<_>>(),
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
