//! The account's time: as the clock it was given, set apart from that, or faster or slower.

use super::ask::Fields;
use super::{Outcome, PREFIX, Refusal};
use crate::clock::Adjustment;
use crate::server::FakeEc2;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const MODES: &str = "real, offset or scaled";

/// Ten years: further than credentials, images and prices mean anything.
const MAX_OFFSET_MS: u64 = 10 * 365 * 86_400_000;

/// A day in a second, and a second in a quarter of an hour.
const SCALES: std::ops::RangeInclusive<f64> = 0.001..=86_400.0;

pub(super) fn show(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    Ok(shown(ec2))
}

fn shown(ec2: &FakeEc2) -> Value {
    let clock = &ec2.inner.clock;
    let (now, given) = (clock.now(), clock.given());
    let scale = clock.adjustment().map(|adjustment| adjustment.scale);
    let mode = match scale {
        None => "real",
        Some(1.0) => "offset",
        Some(_) => "scaled",
    };
    let offset_ms = now.as_millisecond() - given.as_millisecond();
    json!({"mode": mode, "now": now, "offsetMs": offset_ms, "scale": scale.unwrap_or(1.0)})
}

pub(super) fn set(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    let mode = fields.text("mode")?;
    let mode = fields.required("mode", mode, MODES)?;
    let clock = &ec2.inner.clock;
    let (present, base) = (clock.now(), clock.given());
    let adjustment = match mode.as_str() {
        "real" => None,
        "offset" => Some(Adjustment { base, shown: shown_from(fields, base, present)?, scale: 1.0 }),
        "scaled" => {
            let shown = shown_from(fields, base, present)?;
            let scale = fields.decimal("scale", SCALES)?;
            let scale = fields.required("scale", scale, "how many seconds pass in one, such as 60")?;
            Some(Adjustment { base, shown, scale })
        }
        other => return Err(Refusal::invalid("mode", format!("the clock has no mode {other:?}"), MODES)),
    };
    fields.finish()?;
    // What has happened would else lie in the future. A second is what two requests one after the other may take.
    let shown_next = adjustment.map_or(base, |adjustment| adjustment.shown);
    if shown_next < present - SignedDuration::from_secs(1) {
        let error = format!("the clock does not go back: it is {present}, and {shown_next} has passed");
        let expected = format!("a later instant, or POST {PREFIX}/reset first, which sets the clock to real");
        return Err(Refusal { status: StatusCode::CONFLICT, ..Refusal::invalid("mode", error, expected) });
    }
    clock.set(adjustment);
    // Carries out what has come due at once.
    ec2.locked(|_, _| ());
    ec2.wake_everyone();
    Ok(shown(ec2))
}

/// Where the account's time goes on from: `now`, or `offsetMs` after the given clock, or where it is.
fn shown_from(fields: &mut Fields, base: Timestamp, present: Timestamp) -> Result<Timestamp, Refusal> {
    let instant = "an instant, such as 2026-01-08T00:00:00Z";
    match (fields.text("now")?, fields.number("offsetMs", 0..=MAX_OFFSET_MS)?) {
        (None, None) => Ok(present),
        (None, Some(offset_ms)) => Ok(base + SignedDuration::from_millis(offset_ms as i64)),
        (Some(now), None) => {
            let now: Timestamp =
                now.parse().map_err(|_| Refusal::invalid("now", format!("{now:?} is no instant"), instant))?;
            match now <= base + SignedDuration::from_millis(MAX_OFFSET_MS as i64) {
                true => Ok(now),
                false => Err(Refusal::invalid("now", format!("{now} is too far ahead"), "within ten years")),
            }
        }
        (Some(_), Some(_)) => Err(Refusal::invalid("now", "both now and offsetMs are given", "one of the two")),
    }
}
