//! Jobs: as many pods at a time as wanted until enough have succeeded or too many failed.
//!
//! Each pod carries the tracking finalizer until it is counted. Left out: success policies, pod failure policies, backoff
//! limits per index, and `ttlSecondsAfterFinished`, which another controller serves.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::api::Api;
use super::objects::{Key, Pod, controller_reference, set_condition, time, timestamp};
use super::queue::Queue;
use super::selector::{list, text};
use super::view::{Change, Kind, View};
use super::{Actor, PATIENCE, pods};
use crate::{Status, resources};

const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The first wait after a failed pod, doubled for each further failure, and its bound.
const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
const LAST_BACKOFF: SignedDuration = SignedDuration::from_mins(10);

/// The Job controller.
pub(crate) struct Jobs {
    api: Api,
    queue: Queue,
}

/// A Job's counts, as they stand after this sync.
struct Progress {
    active: Vec<Arc<Pod>>,
    uncounted: Vec<Arc<Pod>>,
    succeeded: i64,
    failed: i64,
    ready: usize,
    terminating: usize,
    completed_indexes: BTreeSet<i64>,
    last_failure: Option<Timestamp>,
}

impl Jobs {
    pub(crate) fn new(api: Api) -> Self {
        Self { api, queue: Queue::default() }
    }

    fn sync(&mut self, view: &View, key: &Key, now: Timestamp) -> Result<(), Status> {
        let Some(job) = view.get(Kind::Job, key) else { return self.release(view, key) };
        let progress = Progress::new(view, job);
        if is_over(job) || !job["metadata"]["deletionTimestamp"].is_null() {
            return self.untrack(&progress.uncounted);
        }
        let spec = &job["spec"];
        let suspended = spec["suspend"] == true;
        let mut status = job["status"].clone();
        if !status.is_object() {
            status = json!({});
        }
        if status["startTime"].is_null() && !suspended {
            status["startTime"] = time(now);
        }
        let mut conditions = list(&status["conditions"]).to_vec();
        let limit = spec["backoffLimit"].as_i64().unwrap_or(6);
        let deadline = spec["activeDeadlineSeconds"].as_i64().zip(timestamp(&status["startTime"]));
        let deadline = deadline.and_then(|(seconds, start)| start.checked_add(SignedDuration::from_secs(seconds)).ok());
        let failure = if progress.failed > limit {
            Some(("BackoffLimitExceeded", "Job has reached the specified backoff limit"))
        } else if deadline.is_some_and(|deadline| deadline <= now) {
            Some(("DeadlineExceeded", "Job was active longer than specified deadline"))
        } else {
            None
        };
        let mut active = progress.active.len();
        if let Some((reason, message)) = failure {
            for pod in &progress.active {
                pods::delete(&mut self.api, job, pod)?;
            }
            active = 0;
            let kinds: &[&str] = if progress.terminating == 0 && progress.active.is_empty() {
                &["FailureTarget", "Failed"]
            } else {
                &["FailureTarget"]
            };
            for kind in kinds {
                let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": time(now)});
                end(&mut conditions, condition, now);
            }
            if kinds.len() == 2 {
                self.api.warning(job, reason, message.to_owned());
            }
        } else if is_complete(job, &progress) {
            let (reason, message) = ("CompletionsReached", "Reached expected number of succeeded pods");
            for kind in ["SuccessCriteriaMet", "Complete"] {
                let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastProbeTime": time(now)});
                end(&mut conditions, condition, now);
            }
            status["completionTime"] = time(now);
            self.api.normal(job, "Completed", "Job completed".to_owned());
        } else {
            if let Some(deadline) = deadline {
                self.queue.add_at(key.clone(), deadline);
            }
            active = self.manage(job, &progress, suspended, now)?;
            self.note_suspension(job, &mut conditions, &mut status, suspended, now);
        }
        let counts = [("active", active as i64), ("succeeded", progress.succeeded), ("failed", progress.failed)];
        for (field, count) in counts {
            match (count, status.as_object_mut()) {
                (0, Some(status)) => drop(status.remove(field)),
                _ => status[field] = json!(count),
            }
        }
        status["ready"] = json!(progress.ready);
        status["terminating"] = json!(progress.terminating);
        if is_indexed(job) && !progress.completed_indexes.is_empty() {
            status["completedIndexes"] = json!(ranges(&progress.completed_indexes));
        }
        status["uncountedTerminatedPods"] = json!({});
        if !conditions.is_empty() {
            status["conditions"] = Value::Array(conditions);
        }
        self.api.write_status(&resources::JOBS, job, status)?;
        // Counted for good: now the pods may go.
        self.untrack(&progress.uncounted)
    }

    /// Starts or stops pods; returns how many are active afterwards.
    fn manage(
        &mut self,
        job: &Arc<Value>,
        progress: &Progress,
        suspended: bool,
        now: Timestamp,
    ) -> Result<usize, Status> {
        let parallelism = if suspended { 0 } else { job["spec"]["parallelism"].as_i64().unwrap_or(1) };
        let active = progress.active.len() as i64;
        let wanted = match job["spec"]["completions"].as_i64() {
            Some(completions) => parallelism.min(completions - progress.succeeded),
            // Without completions the first success ends the job: no new pods after it.
            None if progress.succeeded > 0 => active.min(parallelism),
            None => parallelism,
        };
        if active > wanted {
            let mut pods = progress.active.clone();
            pods.sort_by_key(|pod| {
                (!pod.node_name.is_empty(), pod.is_ready(), std::cmp::Reverse(pod.created), pod.key.clone())
            });
            for pod in pods.into_iter().take((active - wanted) as usize) {
                pods::delete(&mut self.api, job, &pod)?;
            }
            return Ok(wanted.max(0) as usize);
        }
        if active < wanted {
            if let Some(at) = backoff_end(progress).filter(|at| *at > now) {
                self.queue.add_at(Key::of(job), at);
                return Ok(active as usize);
            }
            let running: BTreeSet<i64> = progress.active.iter().filter_map(|pod| completion_index(pod)).collect();
            let mut free =
                (0..).filter(|index| !running.contains(index) && !progress.completed_indexes.contains(index));
            for _ in active..wanted {
                let index = is_indexed(job).then(|| free.next()).flatten();
                pods::create(&mut self.api, job, pod(job, index))?;
            }
        }
        Ok(wanted as usize)
    }

    fn note_suspension(
        &mut self,
        job: &Value,
        conditions: &mut Vec<Value>,
        status: &mut Value,
        suspended: bool,
        now: Timestamp,
    ) {
        let was = conditions.iter().any(|condition| condition["type"] == "Suspended" && condition["status"] == "True");
        if suspended == was {
            return;
        }
        let (verdict, reason, message) = match suspended {
            true => ("True", "JobSuspended", "Job suspended"),
            false => ("False", "JobResumed", "Job resumed"),
        };
        let reason_of_event = if suspended { "Suspended" } else { "Resumed" };
        let condition = json!({"type": "Suspended", "status": verdict, "reason": reason, "message": message, "lastProbeTime": time(now)});
        set_condition(conditions, condition, now);
        if suspended {
            status["startTime"] = Value::Null;
            if let Some(status) = status.as_object_mut() {
                status.remove("startTime");
            }
        } else {
            status["startTime"] = time(now);
        }
        self.api.normal(job, reason_of_event, message.to_owned());
    }

    fn untrack(&mut self, pods: &[Arc<Pod>]) -> Result<(), Status> {
        for pod in pods {
            let finalizers = list(&pod.raw["metadata"]["finalizers"]).iter();
            let others: Vec<_> = finalizers.filter(|finalizer| *finalizer != TRACKING).collect();
            let patch = json!({"metadata": {"uid": pod.uid, "finalizers": others}});
            match self.api.patch(&resources::PODS, &pod.key, patch) {
                Err(status) if !status.is_not_found() => return Err(status),
                _ => {}
            }
        }
        Ok(())
    }

    /// The job is gone: nobody will count its pods any more.
    fn release(&mut self, view: &View, key: &Key) -> Result<(), Status> {
        let pods: Vec<_> = view
            .pods_in(&key.namespace)
            .filter(|pod| pods::owner_key(pod, "Job").as_ref() == Some(key) && is_tracked(pod))
            .cloned()
            .collect();
        self.untrack(&pods)
    }
}

impl Actor for Jobs {
    fn observe(&mut self, _: &View, change: &Change, now: Timestamp) {
        match change {
            Change::Other { kind: Kind::Job, key, .. } => self.queue.add(key.clone()),
            Change::Pod { before, after } => {
                let soon = now.saturating_add(PATIENCE).unwrap_or(now);
                let keys = [before, after].into_iter().flatten().filter_map(|pod| pods::owner_key(pod, "Job"));
                keys.for_each(|key| self.queue.add_at(key, soon));
            }
            _ => {}
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.queue.next_due()
    }

    fn act(&mut self, view: &View, now: Timestamp) {
        for key in self.queue.take(now) {
            match self.sync(view, &key, now) {
                Ok(()) => self.queue.forget(&key),
                Err(_) => self.queue.retry(key, now),
            }
        }
    }
}

impl Progress {
    fn new(view: &View, job: &Value) -> Self {
        let pods = view.pods_of(job);
        let count = |field: &str| job["status"][field].as_i64().unwrap_or(0);
        // A pod that is deleted before it finished counts as failed as well, once it is on its way out.
        let failed = |pod: &Arc<Pod>| pod.phase == "Failed" || pod.deleting.is_some() && pod.phase != "Succeeded";
        let settled = |pod: &Arc<Pod>| pod.is_finished() || pod.deleting.is_some() && pod.node_name.is_empty();
        let uncounted: Vec<_> = pods.iter().filter(|pod| settled(pod) && is_tracked(pod)).cloned().collect();
        let mut completed_indexes = parse_ranges(text(&job["status"]["completedIndexes"]));
        let succeeded = uncounted.iter().filter(|pod| pod.phase == "Succeeded");
        completed_indexes.extend(succeeded.clone().filter_map(|pod| completion_index(pod)));
        let last_failure = pods.iter().filter(|pod| pod.phase == "Failed").map(finished_at).max();
        Self {
            succeeded: match is_indexed(job) {
                true => completed_indexes.len() as i64,
                false => count("succeeded") + succeeded.count() as i64,
            },
            failed: count("failed") + uncounted.iter().filter(|pod| failed(pod)).count() as i64,
            ready: pods.iter().filter(|pod| pod.is_active() && pod.is_ready()).count(),
            terminating: pods.iter().filter(|pod| pod.deleting.is_some() && !pod.is_finished()).count(),
            active: pods.into_iter().filter(|pod| pod.is_active()).collect(),
            uncounted,
            completed_indexes,
            last_failure,
        }
    }
}

fn pod(job: &Value, index: Option<i64>) -> Value {
    let name = text(&job["metadata"]["name"]);
    let prefix = index.map_or_else(|| format!("{name}-"), |index| format!("{name}-{index}-"));
    let owner = controller_reference("batch/v1", "Job", job);
    let mut pod = pods::from_template(&job["spec"]["template"], job, owner, &prefix);
    let mut finalizers = list(&pod["metadata"]["finalizers"]).to_vec();
    finalizers.push(json!(TRACKING));
    pod["metadata"]["finalizers"] = Value::Array(finalizers);
    if let Some(index) = index {
        for kind in ["labels", "annotations"] {
            pod["metadata"][kind][COMPLETION_INDEX] = json!(index.to_string());
        }
        pod["spec"]["hostname"] = json!(format!("{name}-{index}"));
    }
    pod
}

fn is_over(job: &Value) -> bool {
    let ends = |condition: &Value| condition["type"] == "Complete" || condition["type"] == "Failed";
    list(&job["status"]["conditions"]).iter().any(|condition| ends(condition) && condition["status"] == "True")
}

fn is_complete(job: &Value, progress: &Progress) -> bool {
    match job["spec"]["completions"].as_i64() {
        Some(completions) => progress.succeeded >= completions && progress.active.is_empty(),
        None => progress.succeeded > 0 && progress.active.is_empty(),
    }
}

fn is_indexed(job: &Value) -> bool {
    job["spec"]["completionMode"] == "Indexed"
}

fn is_tracked(pod: &Pod) -> bool {
    list(&pod.raw["metadata"]["finalizers"]).iter().any(|finalizer| finalizer == TRACKING)
}

fn completion_index(pod: &Pod) -> Option<i64> {
    text(&pod.raw["metadata"]["annotations"][COMPLETION_INDEX]).parse().ok()
}

/// When the last container ended, or the pod's creation where no kubelet told.
fn finished_at(pod: &Arc<Pod>) -> Timestamp {
    let statuses = list(&pod.raw["status"]["containerStatuses"]).iter();
    statuses.filter_map(|status| timestamp(&status["state"]["terminated"]["finishedAt"])).max().unwrap_or(pod.created)
}

fn backoff_end(progress: &Progress) -> Option<Timestamp> {
    let last = progress.last_failure?;
    let doublings = (progress.failed - 1).clamp(0, 16);
    last.checked_add(FIRST_BACKOFF.saturating_mul(1 << doublings).min(LAST_BACKOFF)).ok()
}

/// Job conditions are only added, never changed.
fn end(conditions: &mut Vec<Value>, condition: Value, now: Timestamp) {
    if !conditions.iter().any(|other| other["type"] == condition["type"]) {
        set_condition(conditions, condition, now);
    }
}

/// `0-2,5`: indexes as the status lists them.
fn ranges(indexes: &BTreeSet<i64>) -> String {
    let mut spans: Vec<(i64, i64)> = vec![];
    for &index in indexes {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => spans.push((index, index)),
        }
    }
    let texts = spans.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

fn parse_ranges(text: &str) -> BTreeSet<i64> {
    let mut indexes = BTreeSet::new();
    for span in text.split(',') {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<i64>()) {
            indexes.extend(first..=last);
        }
    }
    indexes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_indexes_are_written_as_ranges() {
        let indexes = BTreeSet::from([1, 3, 4, 5, 7, 8]);
        assert_eq!(ranges(&indexes), "1,3-5,7,8");
        assert_eq!(parse_ranges("1,3-5,7,8"), indexes);
        assert_eq!(parse_ranges(""), BTreeSet::new());
    }
}
