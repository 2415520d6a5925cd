//! Durations as people read them: two units at most, fewer the longer it is.

use jiff::SignedDuration;

/// The genuine server's rounding: seconds up to two minutes, then ever coarser.
pub(super) fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let two = |large: i64, unit: char, small: i64, rest: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{rest}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    let days = hours / 24;
    match () {
        // Clocks differ a little: the immediate future is now.
        () if seconds < -1 => "<invalid>".into(),
        () if seconds < 0 => "0s".into(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two(days, 'd', hours % 24, 'h'),
        () if hours < 24 * 365 * 2 => format!("{days}d"),
        () if hours < 24 * 365 * 8 => two(days / 365, 'y', days % 365, 'd'),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expectations from the test table of k8s.io/apimachinery's duration package.
    #[test]
    fn durations_lose_detail_as_they_grow() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (1, "1s"),
            (70, "70s"),
            (119, "119s"),
            (120, "2m"),
            (190, "3m10s"),
            (10 * MINUTE + 9, "10m"),
            (70 * MINUTE, "70m"),
            (179 * MINUTE, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 47 * MINUTE, "3h47m"),
            (8 * HOUR, "8h"),
            (47 * HOUR, "47h"),
            (48 * HOUR, "2d"),
            (4 * DAY + 7 * HOUR, "4d7h"),
            (8 * DAY, "8d"),
            (365 * DAY, "365d"),
            (2 * 365 * DAY, "2y"),
            (2 * 365 * DAY + 4 * DAY, "2y4d"),
            (8 * 365 * DAY + 200 * DAY, "8y"),
        ] {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), text, "{seconds}");
        }
    }
}
