//! Time that passes several times as fast as the system's.
//!
//! tokio's time is paused, and set forward by hand in small steps. Everything that waits (boots, drains, leases, the
//! controller's intervals) waits in that time, so all of it is shortened alike and nothing changes its order. A task on
//! the pool for blocking work gives the beat: as long as one is there, tokio does not leap ahead by itself.

use anyhow::Context;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often time is set forward.
const BEAT: Duration = Duration::from_millis(10);

/// What is made up for at most: a process that was stopped for an hour goes on as if it had not been.
const LONGEST_BEAT: Duration = Duration::from_secs(1);

/// The largest step: timers that lie in one step all fire at its end.
const STEP: Duration = Duration::from_millis(50);

/// Lets the time of this runtime pass `speed` times as fast, until dropped. The runtime's time has to be paused.
pub(super) async fn pass(speed: u32) -> anyhow::Result<()> {
    let (beats, mut beat) = mpsc::channel(1);
    #[allow(clippy::disallowed_methods)] // The beat is the one place where the system's time comes in.
    tokio::task::spawn_blocking(move || {
        let mut last = std::time::Instant::now();
        loop {
            std::thread::sleep(BEAT);
            let now = std::time::Instant::now();
            // Ends with its receiver.
            if beats.blocking_send(now - last).is_err() {
                return;
            }
            last = now;
        }
    });
    loop {
        let passed = beat.recv().await.context("the beat has ended")?.min(LONGEST_BEAT);
        let mut left = passed * speed;
        while left > Duration::ZERO {
            let step = left.min(STEP);
            tokio::time::advance(step).await;
            left -= step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::pass;
    use std::time::Duration;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn an_hour_does_not_pass_at_once_and_order_is_kept() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let pace = tokio::task::spawn_local(pass(60));
                #[allow(clippy::disallowed_methods)] // What is measured is the system's time.
                let real = std::time::Instant::now();
                let started = Instant::now();
                let (short, long) = tokio::join!(
                    async {
                        tokio::time::sleep(Duration::from_secs(3)).await;
                        Instant::now()
                    },
                    async {
                        tokio::time::sleep(Duration::from_secs(6)).await;
                        Instant::now()
                    },
                );
                assert!(short < long);
                assert!(long - started < Duration::from_secs(60), "time leapt ahead by itself");
                // Six seconds at sixty times the speed are a tenth of a second; without the beat they would be none.
                assert!(real.elapsed() >= Duration::from_millis(90));
                pace.abort();
            })
            .await;
    }
}
