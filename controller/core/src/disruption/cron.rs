//! Cron schedules as Kubernetes components read them: five fields or a macro, in UTC.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use std::str::FromStr;

/// When something begins, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether day of month or day of week begins with `*`: then both must match, else one of them is enough.
    either_day_is_free: bool,
}

/// A text that is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a cron schedule: {problem}")]
pub struct InvalidSchedule {
    /// The text as given.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A schedule that has not come round within this many days never will (29 February comes after eight years at most).
const HORIZON_DAYS: i32 = 8 * 366 + 1;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Schedule {
    /// The first start after `instant`; `None` if there is none (30 February).
    pub fn next_after(&self, instant: Timestamp) -> Option<Timestamp> {
        let earliest = instant.checked_add(1.minute()).ok()?.to_zoned(TimeZone::UTC).datetime();
        let mut date = earliest.date();
        let mut from = (earliest.hour(), earliest.minute());
        for _ in 0..HORIZON_DAYS {
            if let Some((hour, minute)) = self.first_time_from(from).filter(|_| self.includes_day(date)) {
                let start: DateTime = date.at(hour, minute, 0, 0);
                return start.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
            }
            date = date.tomorrow().ok()?;
            from = (0, 0);
        }
        None
    }

    fn includes_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        // Sunday is 0, as in crontab.
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let day_fits = if self.either_day_is_free { day && weekday } else { day || weekday };
        has(self.months, date.month()) && day_fits
    }

    fn first_time_from(&self, (hour, minute): (i8, i8)) -> Option<(i8, i8)> {
        let first_minute = |from: i8| (from..60).find(|m| has(self.minutes, *m));
        (hour..24)
            .filter(|h| has(self.hours, *h))
            .find_map(|h| first_minute(if h == hour { minute } else { 0 }).map(|m| (h, m)))
    }
}

fn has(set: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| set & (1 << number) != 0)
}

impl FromStr for Schedule {
    type Err = InvalidSchedule;

    fn from_str(text: &str) -> Result<Self, InvalidSchedule> {
        let wrong = |problem: String| InvalidSchedule { text: text.to_owned(), problem };
        let expanded = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other if other.starts_with('@') => return Err(wrong("the macro is unknown".to_owned())),
            other => other,
        };
        let fields: Vec<&str> = expanded.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(wrong(format!("it has {} fields instead of 5", fields.len())));
        };
        let read = |field, low, high, names: &[&str]| read_field(field, low, high, names).map_err(&wrong);
        let is_free = |field: &str| field.split(',').any(|part| part.starts_with(['*', '?']));
        Ok(Self {
            minutes: read(minutes, 0, 59, &[])?,
            hours: read(hours, 0, 23, &[])?,
            days: read(days, 1, 31, &[])?,
            months: read(months, 1, 12, &MONTHS)?,
            weekdays: read(weekdays, 0, 6, &WEEKDAYS)?,
            either_day_is_free: is_free(days) || is_free(weekdays),
        })
    }
}

/// A comma-separated list of `*`, numbers, ranges and steps, as a set of bits.
fn read_field(field: &str, low: u32, high: u32, names: &[&str]) -> Result<u64, String> {
    let mut set = 0;
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u32>().map_err(|_| format!("{part:?} has no step"))?)),
            None => (part, None),
        };
        let number = |text: &str| -> Result<u32, String> {
            let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
            // Month names count from one, weekday names from zero, like the lowest number of their field.
            let number = named.and_then(|index| u32::try_from(index).ok()).map(|index| index + low);
            number.or_else(|| text.parse().ok()).ok_or_else(|| format!("{text:?} is not a number"))
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" || range == "?" => (low, high),
            Some((first, last)) => (number(first)?, number(last)?),
            // A single number with a step means "from there on".
            None if step.is_some() => (number(range)?, high),
            None => (number(range)?, number(range)?),
        };
        if first < low || last > high || first > last || step == Some(0) {
            return Err(format!("{part:?} is outside {low} to {high}"));
        }
        set |= (first..=last).step_by(step.unwrap_or(1) as usize).fold(0, |bits, number| bits | 1u64 << number);
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, after: &str) -> String {
        let next = schedule.parse::<Schedule>().unwrap().next_after(after.parse().unwrap());
        next.map_or("never".to_owned(), |next| next.to_string())
    }

    #[test]
    fn the_next_start_is_the_first_one_strictly_after() {
        for (schedule, after, expected) in [
            ("0 9 * * *", "2026-01-01T08:59:30Z", "2026-01-01T09:00:00Z"),
            ("0 9 * * *", "2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z"),
            ("0 9 * * mon-fri", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"),
            ("*/15 * * * *", "2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"),
            ("5/20 1 * * *", "2026-01-01T01:25:00Z", "2026-01-01T01:45:00Z"),
            ("0 0 31 * *", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 30 2 *", "2026-01-01T00:00:00Z", "never"),
            ("30 23 31 DEC ?", "2026-01-01T00:00:00Z", "2026-12-31T23:30:00Z"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@monthly", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"),
            ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("@hourly", "2026-01-01T23:59:59Z", "2026-01-02T00:00:00Z"),
        ] {
            assert_eq!(next(schedule, after), expected, "{schedule} after {after}");
        }
    }

    #[test]
    fn day_of_month_and_day_of_week_are_alternatives_unless_one_is_free() {
        assert_eq!(next("0 0 13 * fri", "2026-01-01T00:00:00Z"), "2026-01-02T00:00:00Z");
        assert_eq!(next("0 0 13 * fri", "2026-01-09T00:00:00Z"), "2026-01-13T00:00:00Z");
        assert_eq!(next("0 0 */2 * fri", "2026-01-01T00:00:00Z"), "2026-01-09T00:00:00Z");
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_its_text() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "5-1 * * * *",
            "*/0 * * * *",
            "a * * * *",
            "@reboot",
            "1-2-3 * * * *",
        ] {
            let error = text.parse::<Schedule>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
