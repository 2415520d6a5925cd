//! Times and sums of money, as the page writes them.

/// An instant or a span, to a tenth of a second where that can matter.
pub(super) fn instant(ms: u64) -> String {
    let (seconds, tenths) = (ms / 1_000, ms % 1_000 / 100);
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}.{tenths}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds:02}.{tenths}s"),
        (0, hours, minutes, seconds) => format!("{hours}h{minutes:02}m{seconds:02}s"),
        (days, hours, minutes, _) => format!("{days}d{hours:02}h{minutes:02}m"),
    }
}

/// The label of an axis: only the units that are not zero.
pub(super) fn tick(ms: u64) -> String {
    let seconds = ms / 1_000;
    let parts = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let whole: String =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    match (whole.is_empty(), ms % 1_000 / 100) {
        (true, 0) => "0".into(),
        (true, tenths) => format!("0.{tenths}s"),
        (false, _) => whole,
    }
}

/// US dollars.
pub(super) fn usd(amount: f64) -> String {
    if amount >= 100.0 { format!("${amount:.2}") } else { format!("${amount:.4}") }
}

/// A number with its noun.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::{instant, tick, usd};

    #[test]
    fn times_read_well() {
        let cases = [(0, "0.0s", "0"), (1_250, "1.2s", "1s"), (91_100, "1m31.1s", "1m31s"), (120_000, "2m00.0s", "2m")];
        for (ms, written, on_axis) in cases {
            assert_eq!((instant(ms).as_str(), tick(ms).as_str()), (written, on_axis));
        }
        assert_eq!((instant(7_384_000).as_str(), tick(7_384_000).as_str()), ("2h03m04s", "2h3m4s"));
        assert_eq!((instant(90_000_000).as_str(), tick(86_400_000).as_str()), ("1d01h00m", "1d"));
        assert_eq!(tick(200), "0.2s");
    }

    #[test]
    fn small_sums_keep_their_digits() {
        assert_eq!((usd(0.12814).as_str(), usd(1234.5).as_str()), ("$0.1281", "$1234.50"));
    }
}
