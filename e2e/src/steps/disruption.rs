//! Nodes that go because nobody needs them.

use super::Vocabulary;
use crate::eventually::Seen;
use anyhow::{Context, ensure};
use std::time::Duration;

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add(
        "the NodeClaim is deleted between {duration} and {duration} after the last pod left",
        |world, arguments| {
            Box::pin(async move {
                let left_at = world.wait_for_last_pod().await?;
                world.subject_node_name().await?;
                let deleted_at = world
                    .eventually(
                        "the NodeClaim is deleted",
                        arguments.duration(1) + Duration::from_secs(1),
                        async || {
                            let claim = world
                                .subject_claim()
                                .await?
                                .context("the NodeClaim vanished without a deletion timestamp")?;
                            Ok(match claim.metadata.deletion_timestamp.clone() {
                                Some(_) => Seen::Yes(world.now()),
                                None => Seen::NotYet(crate::things::conditions_of(&claim)),
                            })
                        },
                    )
                    .await?;
                let after = Duration::try_from(deleted_at.duration_since(left_at))?;
                let (from, to) = (arguments.duration(0), arguments.duration(1));
                ensure!(from <= after && after <= to, "it was deleted {after:?} after the last pod left");
                Ok(())
            })
        },
    );
    steps.add("the node had the taint {string} before it went", |world, arguments| {
        Box::pin(async move {
            let node = world.subject_node_name().await?;
            let tainted = world.recorder().saw_taint(&node, arguments.text(0));
            ensure!(tainted, "no request to the API server ever put that taint on node {node}");
            Ok(())
        })
    });
}
