//! Durations in the user's own words.
//!
//! Both types keep the text they were read from and write it back byte for byte, so that `24h` never turns into
//! `24h0m0s` and a GitOps tool sees no difference (core spec §1.2.2). Two durations are equal when they last equally long.
//! Cron schedules of budgets stay plain text here; whoever evaluates them parses them.

use crate::schema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration in Go's syntax, such as `1h30m`.
#[derive(Clone, Debug)]
pub struct GoDuration {
    text: String,
    duration: Duration,
}

/// A duration in Go's syntax, or `Never`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NillableDuration {
    /// No duration at all: what waits for it never happens. An absent field of a hand-made object means this too.
    #[default]
    Never,
    /// This long.
    After(GoDuration),
}

/// A text that is no duration. It names the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration{}: {problem}", if *.or_never { " or \"Never\"" } else { "" })]
pub struct InvalidDuration {
    text: String,
    or_never: bool,
    problem: &'static str,
}

impl GoDuration {
    /// How long it lasts.
    pub fn as_duration(&self) -> Duration {
        self.duration
    }

    /// The text it was read from.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A duration written in this crate.
    pub(crate) fn known(text: &str) -> Self {
        text.parse().expect("durations written in this crate are well-formed")
    }
}

impl NillableDuration {
    /// How long it lasts; `None` for `Never`.
    pub fn as_duration(&self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::After(duration) => Some(duration.as_duration()),
        }
    }

    /// The text it was read from.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Never => "Never",
            Self::After(duration) => duration.as_str(),
        }
    }
}

impl PartialEq for GoDuration {
    fn eq(&self, other: &Self) -> bool {
        self.duration == other.duration
    }
}

impl Eq for GoDuration {}

impl From<Duration> for GoDuration {
    /// Written as Go writes it: `720h0m0s`, `1m30s`, `250ms`.
    fn from(duration: Duration) -> Self {
        Self { text: go_text(duration), duration }
    }
}

impl From<GoDuration> for NillableDuration {
    fn from(duration: GoDuration) -> Self {
        Self::After(duration)
    }
}

impl From<Duration> for NillableDuration {
    fn from(duration: Duration) -> Self {
        Self::After(duration.into())
    }
}

impl FromStr for GoDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        parse_go(text).map(|duration| Self { text: text.to_owned(), duration }).map_err(|problem| InvalidDuration {
            text: text.to_owned(),
            or_never: false,
            problem,
        })
    }
}

impl FromStr for NillableDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        if text == "Never" {
            return Ok(Self::Never);
        }
        text.parse().map(Self::After).map_err(|invalid| InvalidDuration { or_never: true, ..invalid })
    }
}

/// Longest duration Go can hold: 2^63-1 nanoseconds, about 292 years.
const LONGEST_NS: u128 = i64::MAX as u128;

const UNITS: &[(&str, u128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Go's `time.ParseDuration` for durations that are not negative: a signless sequence of decimal numbers, each with an
/// optional fraction and a unit, or `0`.
fn parse_go(text: &str) -> Result<Duration, &'static str> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err("it is empty");
    }
    if rest.starts_with('-') {
        return Err("it is negative");
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (amount, after) = leading(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = leading(after, |c| !c.is_ascii_digit() && c != '.');
        if amount.is_empty() {
            return Err("a number is missing");
        }
        let scale = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, scale)) => *scale,
            None if unit.is_empty() => return Err("a unit is missing (s, m or h)"),
            None => return Err("its unit is unknown (s, m and h are known)"),
        };
        total += nanoseconds(amount, scale)?;
        if total > LONGEST_NS {
            return Err("it is too long");
        }
        rest = after;
    }
    // The bound above keeps both parts within their types.
    Ok(Duration::new((total / 1_000_000_000) as u64, (total % 1_000_000_000) as u32))
}

fn leading(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

fn nanoseconds(amount: &str, scale: u128) -> Result<u128, &'static str> {
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err("a number is malformed");
    }
    // 19 digits hold every amount Go accepts; a fraction finer than that is below a nanosecond for every unit.
    let whole: u128 = match whole.trim_start_matches('0') {
        "" => 0,
        digits if digits.len() <= 19 => digits.parse().map_err(|_| "a number is malformed")?,
        _ => return Err("it is too long"),
    };
    let fraction = &fraction[..fraction.len().min(19)];
    let part: u128 = match fraction {
        "" => 0,
        digits => digits.parse().map_err(|_| "a number is malformed")?,
    };
    Ok(whole * scale + part * scale / 10u128.pow(fraction.len() as u32))
}

fn go_text(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    if nanoseconds < 1_000_000_000 {
        let (scale, unit) = match nanoseconds {
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            _ => (1_000_000, "ms"),
        };
        return format!("{}{unit}", decimal(nanoseconds, scale));
    }
    let seconds = decimal(nanoseconds % 60_000_000_000, 1_000_000_000);
    let (hours, minutes) = (duration.as_secs() / 3600, duration.as_secs() / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// `amount / scale` without trailing zeros; `scale` is a power of ten.
fn decimal(amount: u128, scale: u128) -> String {
    let (whole, part) = (amount / scale, amount % scale);
    if part == 0 {
        return whole.to_string();
    }
    let digits = scale.ilog10() as usize;
    format!("{whole}.{}", format!("{part:0digits$}").trim_end_matches('0'))
}

macro_rules! text_on_the_wire {
    ($type:ident, $pattern:expr) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

text_on_the_wire!(GoDuration, schema::DURATION);
text_on_the_wire!(NillableDuration, schema::DURATION_OR_NEVER);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_last_as_long_as_in_go() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("0s", 0),
            ("24h", 86_400_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1h1h", 7_200_000_000_000),
            ("720h", 2_592_000_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("100ms", 100_000_000),
            ("1.0000000000000000000009s", 1_000_000_000),
            ("9223372036854775807ns", i64::MAX as u128),
        ] {
            assert_eq!(text.parse::<GoDuration>().unwrap().as_duration().as_nanos(), nanoseconds, "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_is_named() {
        for (text, problem) in [
            ("", "it is empty"),
            ("5", "a unit is missing (s, m or h)"),
            ("h", "a number is missing"),
            ("1d", "its unit is unknown (s, m and h are known)"),
            ("1..5h", "a number is malformed"),
            (".s", "a number is malformed"),
            ("-1h", "it is negative"),
            ("never", "a number is missing"),
            ("9223372036854775808ns", "it is too long"),
            ("99999999999999999999999999999999999999999999h", "it is too long"),
        ] {
            let message = text.parse::<GoDuration>().unwrap_err().to_string();
            assert_eq!(message, format!("{text:?} is not a duration: {problem}"));
        }
        let message = "soon".parse::<NillableDuration>().unwrap_err().to_string();
        assert_eq!(message, "\"soon\" is not a duration or \"Never\": a number is missing");
    }

    #[test]
    fn the_users_text_comes_back_byte_for_byte() {
        for text in ["24h", "24h0m0s", "1h1h", "Never", "0s", "00m"] {
            let duration: NillableDuration = serde_json::from_value(text.into()).unwrap();
            assert_eq!(serde_json::to_value(&duration).unwrap(), text);
        }
    }

    #[test]
    fn equal_durations_in_different_words_are_equal() {
        let durations: Vec<NillableDuration> = ["24h", "1440m"].map(|text| text.parse().unwrap()).into();
        assert_eq!(durations[0], durations[1]);
    }

    #[test]
    fn a_computed_duration_is_written_as_go_writes_it() {
        for (duration, text) in [
            (Duration::ZERO, "0s"),
            (Duration::from_secs(30), "30s"),
            (Duration::from_secs(90), "1m30s"),
            (Duration::from_secs(2_592_000), "720h0m0s"),
            (Duration::from_millis(250), "250ms"),
            (Duration::from_millis(1_250), "1.25s"),
            (Duration::from_nanos(1_500), "1.5µs"),
        ] {
            assert_eq!(GoDuration::from(duration).as_str(), text);
        }
    }
}
