//! Sends what goes over both wires of the fakes to the recorder.

use crate::cloud::RemoteEc2;
use crate::fake_cluster::{aws_call, kube_call};
use crate::invariants::Invariants;
use crate::recorder::{Call, Recorder};
use crate::story;
use fake_ec2::{Denial, FakeEc2, JournalEntry};
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

pub(super) fn observe_ec2(ec2: &FakeEc2, recorder: Recorder, invariants: Invariants, changed: Arc<Notify>) {
    ec2.cloud().observe(Box::new(move |entry| {
        note(&recorder, &invariants, entry);
        changed.notify_one();
    }));
}

/// Records a call. A controller whom policies refuse something breaks a rule of every scenario.
fn note(recorder: &Recorder, invariants: &Invariants, entry: &JournalEntry) {
    record(recorder, &aws_call(entry));
    if let Some(Denial { action, resource }) = &entry.denied {
        let JournalEntry { principal, error_code, .. } = entry;
        let code = error_code.as_deref().unwrap_or("a refusal");
        let answer = format!("{code}: {principal} is not authorized to perform: {action} on resource: {resource}");
        invariants.refused(&entry.action, &answer);
    }
}

/// Follows what a fake-ec2 in another process is asked, for as long as the future lives.
pub(super) fn follow_ec2(
    ec2: &RemoteEc2,
    recorder: Recorder,
    invariants: Invariants,
    changed: Arc<Notify>,
) -> impl Future<Output = anyhow::Result<()>> + use<> {
    ec2.follow_calls(move |entry| {
        note(&recorder, &invariants, entry);
        changed.notify_one();
    })
}

pub(super) fn record(recorder: &Recorder, call: &Call) {
    recorder.call(call);
    if let Some((source, line)) = story::line(call) {
        recorder.tell(source, line);
    }
}
