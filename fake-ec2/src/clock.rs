//! What time it is in the account: that of the clock it was given, or one that was set forward or runs faster or slower from
//! there.
//!
//! Durations that belong to the wire (timeouts of connections, injected delays) are the runtime's and not touched by this.

use controller_clock::Clock;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How the account's time differs from the clock's it was given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Adjustment {
    /// An instant of the given clock …
    pub(crate) base: Timestamp,
    /// … the account's instant at that moment …
    pub(crate) shown: Timestamp,
    /// … and how fast the account's time passes from there.
    pub(crate) scale: f64,
}

impl Adjustment {
    fn at(self, base: Timestamp) -> Timestamp {
        let passed = base.duration_since(self.base).as_secs_f64() * self.scale;
        let passed = SignedDuration::try_from_secs_f64(passed).unwrap_or(SignedDuration::MAX);
        self.shown.checked_add(passed).unwrap_or(Timestamp::MAX)
    }
}

/// The account's time.
#[derive(Debug)]
pub(crate) struct AccountClock {
    given: Clock,
    adjustment: Mutex<Option<Adjustment>>,
}

impl AccountClock {
    pub(crate) fn new(given: Clock) -> Self {
        Self { given, adjustment: Mutex::default() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let given = self.given.now();
        self.adjustment().map_or(given, |adjustment| adjustment.at(given))
    }

    /// The time of the clock it was given, by which clients sign.
    pub(crate) fn given(&self) -> Timestamp {
        self.given.now()
    }

    pub(crate) fn adjustment(&self) -> Option<Adjustment> {
        *self.adjustment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, adjustment: Option<Adjustment>) {
        *self.adjustment.lock().unwrap_or_else(PoisonError::into_inner) = adjustment;
    }

    /// How long the runtime has to wait for an instant of the account.
    pub(crate) fn until(&self, instant: Timestamp) -> Duration {
        let wait = Duration::try_from(instant.duration_since(self.now())).unwrap_or(Duration::ZERO);
        match self.adjustment() {
            None => wait,
            // Rounded up to a nanosecond more, so that nobody wakes just before the instant and looks in vain.
            Some(Adjustment { scale, .. }) => {
                let wait = Duration::try_from_secs_f64(wait.as_secs_f64() / scale).unwrap_or(Duration::MAX);
                wait.saturating_add(Duration::from_nanos(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_scaled_clock_runs_faster_and_is_waited_for_less() {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = AccountClock::new(Clock::virtual_from(epoch));
        let shown = "2026-02-01T00:00:00Z".parse().unwrap();
        clock.set(Some(Adjustment { base: epoch, shown, scale: 60.0 }));
        assert_eq!(clock.until(shown + SignedDuration::from_hours(1)).as_secs(), 60);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(clock.now(), shown + SignedDuration::from_hours(1));
        assert_eq!(clock.given(), epoch + SignedDuration::from_mins(1));
    }
}
