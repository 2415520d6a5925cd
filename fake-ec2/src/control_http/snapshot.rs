//! The whole account as JSON, and back.

use super::ask::Fields;
use super::{Outcome, Refusal};
use crate::server::FakeEc2;
use crate::state::Snapshot;
use serde_json::json;

pub(super) fn take(ec2: &FakeEc2, _: &str, fields: &mut Fields) -> Outcome {
    fields.finish()?;
    Ok(json!(Snapshot::of(ec2)))
}

pub(super) fn restore(ec2: &FakeEc2, body: &[u8]) -> Outcome {
    let snapshot = Snapshot::read(body).map_err(|error| {
        let expected = "a state as GET answered it, by this version of fake-ec2";
        Refusal::invalid("body", format!("the body is not taken: {error}"), expected)
    })?;
    ec2.restore(snapshot);
    Ok(ec2.locked(|cloud, now| {
        json!({
            "now": now,
            "region": cloud.config.region,
            "account": cloud.config.account,
            "seed": cloud.config.seed,
            "instances": cloud.instances.len(),
            "queues": cloud.queues.len(),
            "instanceRevision": cloud.instance_revision,
        })
    }))
}
