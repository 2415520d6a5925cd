//! Sends what goes over both wires of the fakes to the recorder.

use crate::cloud::RemoteEc2;
use crate::fake_cluster::{aws_call, kube_call};
use crate::recorder::{Call, Recorder};
use crate::story;
use fake_ec2::FakeEc2;
use fake_kube::FakeKube;
use std::sync::Arc;
use tokio::sync::Notify;

pub(super) fn observe_kube(kube: &FakeKube, recorder: Recorder, changed: Arc<Notify>) {
    kube.observe(Box::new(move |entry| {
        record(&recorder, &kube_call(entry));
        // A lease is renewed every two seconds and is no rule's concern: a quiet month would be looked at a million times.
        if !matches!(entry.verb, "get" | "list" | "watch") && !entry.path.contains("/leases/") {
            changed.notify_one();
        }
    }));
}

pub(super) fn observe_ec2(ec2: &FakeEc2, recorder: Recorder, changed: Arc<Notify>) {
    ec2.cloud().observe(Box::new(move |entry| {
        record(&recorder, &aws_call(entry));
        changed.notify_one();
    }));
}

/// Follows what a fake-ec2 in another process is asked, for as long as the future lives.
pub(super) fn follow_ec2(
    ec2: &RemoteEc2,
    recorder: Recorder,
    changed: Arc<Notify>,
) -> impl Future<Output = anyhow::Result<()>> + use<> {
    ec2.follow_calls(move |entry| {
        record(&recorder, &aws_call(entry));
        changed.notify_one();
    })
}

pub(super) fn record(recorder: &Recorder, call: &Call) {
    recorder.call(call);
    if let Some((source, line)) = story::line(call) {
        recorder.tell(source, line);
    }
}
