//! Waiting for what must come true: a condition, a limit, and what was last seen if the limit passes.

use std::time::Duration;
use tokio::time::Instant;

/// How often a condition is looked at. Every look is a request or two to an API server, which virtual time makes cheap and
/// a genuine server bears; a finer grain would not change what a person calls "within ten seconds".
pub const LOOK_EVERY: Duration = Duration::from_millis(200);

/// For how long that is so. Who waits longer waits for minutes, and a second is fine enough for what a person calls that.
const CLOSE_LOOKS: Duration = Duration::from_secs(30);
const LATER_EVERY: Duration = Duration::from_secs(1);

/// What a look at the cluster found.
pub enum Seen<T> {
    /// It has come true.
    Yes(T),
    /// Not yet; this is what there is instead.
    NotYet(String),
}

impl<T> Seen<T> {
    /// Yes if the condition holds, otherwise what there is instead.
    pub fn when(condition: bool, value: T, otherwise: impl FnOnce() -> String) -> Self {
        if condition { Self::Yes(value) } else { Self::NotYet(otherwise()) }
    }
}

/// The limit passed.
#[derive(Debug, thiserror::Error)]
#[error("{expected}: not within {limit:?}")]
pub struct NotInTime {
    /// What was waited for.
    pub expected: String,
    /// For how long.
    pub limit: Duration,
    /// What was seen at the last look.
    pub last_seen: String,
}

/// Looks until the condition holds, at least once, and at the latest when the limit has passed.
pub async fn eventually<T>(
    expected: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Seen<T>>,
) -> anyhow::Result<T> {
    let started = Instant::now();
    let deadline = started + limit;
    loop {
        match look().await? {
            Seen::Yes(value) => return Ok(value),
            Seen::NotYet(last_seen) if Instant::now() >= deadline => {
                return Err(NotInTime { expected: expected.to_owned(), limit, last_seen }.into());
            }
            Seen::NotYet(_) => {
                let pause = if started.elapsed() < CLOSE_LOOKS { LOOK_EVERY } else { LATER_EVERY };
                tokio::time::sleep_until((Instant::now() + pause).min(deadline)).await;
            }
        }
    }
}

/// Looks for as long as the limit says; an error as soon as the condition fails.
pub async fn throughout(limit: Duration, mut holds: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        holds().await?;
        if Instant::now() >= deadline {
            return Ok(());
        }
        tokio::time::sleep_until((Instant::now() + LOOK_EVERY).min(deadline)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_comes_true_ends_the_wait_at_once() {
        let started = Instant::now();
        let mut looks = 0;
        let value = eventually("three looks", Duration::from_secs(60), async || {
            looks += 1;
            Ok(Seen::when(looks == 3, looks, || format!("{looks} looks")))
        });
        assert_eq!(value.await.unwrap(), 3);
        assert_eq!(started.elapsed(), 2 * LOOK_EVERY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_looks_less_often_and_sees_the_end() {
        let started = Instant::now();
        let mut looks = 0;
        let hour = Duration::from_secs(3600);
        let look = async || {
            looks += 1;
            Ok(Seen::when(started.elapsed() >= hour, (), String::new))
        };
        eventually("an hour", 2 * hour, look).await.unwrap();
        assert_eq!((started.elapsed(), looks), (hour, 1 + 150 + 3570));
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_passes_tells_what_was_last_seen() {
        let started = Instant::now();
        let error =
            eventually::<()>("the moon", Duration::from_millis(500), async || Ok(Seen::NotYet("clouds".into())));
        let error = error.await.unwrap_err();
        assert_eq!(started.elapsed(), Duration::from_millis(500));
        let error = error.downcast_ref::<NotInTime>().unwrap();
        assert_eq!(error.last_seen, "clouds");
        assert_eq!(error.to_string(), "the moon: not within 500ms");
    }
}
