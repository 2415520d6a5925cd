//! Time passing.

use super::Vocabulary;
use crate::world::Moment;
use anyhow::Context;
use std::time::Duration;

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("{duration} passes", |world, arguments| {
        Box::pin(async move {
            world.pass(arguments.duration(0)).await;
            Ok(())
        })
    });
    steps.add("{duration} passes after the last pod left", |world, arguments| {
        Box::pin(async move {
            let since = world.wait_for_last_pod().await?;
            debug_assert_eq!(since, world.moment(Moment::LastPodLeft)?);
            let passed = Duration::try_from(world.now().duration_since(since))?;
            world.pass(arguments.duration(0).checked_sub(passed).context("that time has passed already")?).await;
            Ok(())
        })
    });
}
