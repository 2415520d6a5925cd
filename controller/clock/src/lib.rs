//! Time as something a program is handed.
//!
//! A [`Clock`] answers one question: what time is it? Production holds the system's clock; a simulation holds a virtual
//! one, an epoch plus tokio's `Instant`, so that a runtime with paused time moves it. To wait, use `tokio::time`: both
//! kinds of time then pass together. This is the only crate that reads the system's time (`clippy.toml` forbids the
//! functions everywhere else).

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of the present instant. Cheap to clone; all clones of a virtual clock agree.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Virtual { epoch: Timestamp, started: Instant },
}

impl Clock {
    /// The system's clock. It follows corrections by NTP and time spent suspended, which certificates and request
    /// signatures depend on.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that reads `epoch` now and from then on follows tokio's time: under a paused runtime it moves only when
    /// every task waits. Must be called inside the runtime whose time it is to follow.
    pub fn virtual_from(epoch: Timestamp) -> Self {
        Self(Source::Virtual { epoch, started: Instant::now() })
    }

    /// The present instant.
    #[allow(clippy::disallowed_methods)] // This crate is where the system's time is read.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp::now(),
            Source::Virtual { epoch, started } => {
                let elapsed = SignedDuration::try_from(started.elapsed()).unwrap_or(SignedDuration::MAX);
                epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_virtual_clock_moves_with_paused_time_and_clones_agree() {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::virtual_from(epoch);
        let other = clock.clone();
        assert_eq!(clock.now(), epoch);
        tokio::time::sleep(std::time::Duration::from_secs(86_400)).await;
        assert_eq!(clock.now(), "2026-01-02T00:00:00Z".parse().unwrap());
        assert_eq!(other.now(), clock.now());
    }
}
