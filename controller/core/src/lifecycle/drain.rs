//! Drain (core spec §6.3): which pods may be evicted now, in which wave, and what holds the rest.
//!
//! Ordinary pods go first, then those of DaemonSets, then critical ones in the same order; a wave waits for the one
//! before it. Pods whose grace would outlast the deadline leave the queue and are deleted at once.

use crate::snapshot::{OwnerKind, Pod, PodName};
use crate::taints;
use controller_api::labels;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;

/// A node is never called drained sooner than this after its drain began, so that pods bound at the last moment are
/// seen.
pub const MIN_DRAIN_TIME: SignedDuration = SignedDuration::from_secs(5);

/// The state of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drain {
    /// Pods to hand to the eviction queue now.
    pub evict: Vec<Eviction>,
    /// Every pod the drain still waits for.
    pub waiting: Vec<PodName>,
    /// Pods of the present wave that must not be evicted before the deadline; all later waves wait for them.
    pub held: Vec<PodName>,
}

/// One pod to evict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Eviction {
    /// The pod.
    pub pod: PodName,
    /// Its UID, so that a successor of the same name is spared.
    pub uid: String,
}

/// The waves, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wave {
    Ordinary,
    DaemonSet,
    Critical,
    CriticalDaemonSet,
}

/// The node closed to new pods and taken out of external load balancers (core spec §6.1).
pub fn fenced(node: &Node) -> Node {
    let mut node = node.clone();
    let disrupted = taints::disrupted();
    let present = node.spec.get_or_insert_default().taints.get_or_insert_default();
    if !present.iter().any(|taint| taints::same(taint, &disrupted)) {
        present.retain(|taint| taint.key != disrupted.key);
        present.push(disrupted);
    }
    let labels = node.metadata.labels.get_or_insert_default();
    labels.insert(labels::EXCLUDE_FROM_LOAD_BALANCERS_LABEL.to_owned(), "karpenter".to_owned());
    node
}

/// Decides what of a node's pods is evicted now.
pub fn plan(pods: &[Arc<Pod>], deadline: Option<Timestamp>, now: Timestamp) -> Drain {
    let waiting: Vec<&Arc<Pod>> = pods.iter().filter(|pod| pod.is_waiting_eviction(now)).collect();
    let (overdue, patient): (Vec<&Arc<Pod>>, Vec<_>) =
        waiting.iter().copied().partition(|pod| needs_force_delete(pod, deadline, now));
    let first = patient.iter().map(|pod| wave(pod)).min();
    let present: Vec<&Arc<Pod>> = patient.into_iter().filter(|pod| Some(wave(pod)) == first).collect();
    let held = present.iter().filter(|pod| pod.do_not_disrupt(now).is_active()).map(|pod| pod.name.clone()).collect();
    let evict = overdue.into_iter().chain(present);
    Drain {
        evict: evict.map(|pod| Eviction { pod: pod.name.clone(), uid: pod.uid.clone() }).collect(),
        waiting: waiting.into_iter().map(|pod| pod.name.clone()).collect(),
        held,
    }
}

/// Whether the pod's own grace period would outlast the node's deadline, so that it is deleted without asking.
pub fn needs_force_delete(pod: &Pod, deadline: Option<Timestamp>, now: Timestamp) -> bool {
    let Some(deadline) = deadline else { return false };
    if let Some(ends) = pod.deletion {
        return ends > deadline;
    }
    let Some(grace_s) = pod.grace_period_s else { return false };
    now > deadline.checked_sub(SignedDuration::from_secs(grace_s)).unwrap_or(Timestamp::MIN)
}

/// The grace a pod is given when it is deleted for the deadline: what is left, and at least a second, since zero would
/// remove it from the API while its containers still run.
pub fn force_delete_grace_seconds(deadline: Timestamp, now: Timestamp) -> i64 {
    deadline.duration_since(now).as_secs().max(1)
}

fn wave(pod: &Pod) -> Wave {
    match (pod.is_critical, pod.is_owned_by(OwnerKind::DaemonSet)) {
        (false, false) => Wave::Ordinary,
        (false, true) => Wave::DaemonSet,
        (true, false) => Wave::Critical,
        (true, true) => Wave::CriticalDaemonSet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::fixtures::at;
    use k8s_openapi::api::core::v1 as api;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

    fn pod(name: &str, change: impl FnOnce(&mut api::Pod)) -> Arc<Pod> {
        let mut pod = api::Pod::default();
        pod.metadata.name = Some(name.into());
        pod.metadata.namespace = Some("default".into());
        pod.metadata.uid = Some(format!("uid-{name}"));
        let spec = pod.spec.get_or_insert_default();
        spec.node_name = Some("node-1".into());
        spec.termination_grace_period_seconds = Some(30);
        pod.status.get_or_insert_default().phase = Some("Running".into());
        change(&mut pod);
        Arc::new(Pod::from_api(&pod))
    }

    fn owned_by(kind: &str) -> impl FnOnce(&mut api::Pod) {
        let api_version = if kind == "Node" { "v1" } else { "apps/v1" };
        let owner = OwnerReference { api_version: api_version.into(), kind: kind.into(), ..Default::default() };
        move |pod| pod.metadata.owner_references = Some(vec![owner])
    }

    fn critical(pod: &mut api::Pod) {
        pod.spec.get_or_insert_default().priority_class_name = Some("system-cluster-critical".into());
    }

    fn do_not_disrupt(pod: &mut api::Pod) {
        let annotation = ("karpenter.sh/do-not-disrupt".into(), "true".into());
        pod.metadata.annotations = Some([annotation].into());
    }

    fn terminating(until: i64) -> impl FnOnce(&mut api::Pod) {
        move |pod| pod.metadata.deletion_timestamp = Some(Time(at(until)))
    }

    fn names(pods: &[Eviction]) -> Vec<&str> {
        pods.iter().map(|eviction| eviction.pod.name.as_str()).collect()
    }

    /// All four waves, last first.
    fn waves() -> Vec<Arc<Pod>> {
        let both = |pod: &mut api::Pod| {
            critical(pod);
            owned_by("DaemonSet")(pod);
        };
        vec![pod("d", both), pod("c", critical), pod("b", owned_by("DaemonSet")), pod("a", |_| {})]
    }

    #[test]
    fn a_fenced_node_has_one_disrupted_taint_and_leaves_the_load_balancers() {
        use crate::lifecycle::fixtures::{node, taint};
        let mut before = node();
        before.spec.get_or_insert_default().taints =
            Some(vec![taint("karpenter.sh/disrupted", "NoExecute"), taint("dedicated", "NoSchedule")]);
        let after = fenced(&before);
        let taints: Vec<_> = crate::lifecycle::taints_of(&after).iter().map(taints::text).collect();
        assert_eq!(taints, ["dedicated:NoSchedule", "karpenter.sh/disrupted:NoSchedule"]);
        let labels = after.metadata.labels.clone().unwrap();
        assert_eq!(labels["node.kubernetes.io/exclude-from-external-load-balancers"], "karpenter");
        assert_eq!(fenced(&after), after, "once is enough");
    }

    #[test]
    fn one_wave_at_a_time_ordinary_pods_first_and_critical_daemons_last() {
        let mut pods = waves();
        for (expected, waiting) in [("a", 4), ("b", 3), ("c", 2), ("d", 1)] {
            let drain = plan(&pods, None, at(0));
            assert_eq!(names(&drain.evict), [expected]);
            assert_eq!(drain.waiting.len(), waiting);
            pods.pop();
        }
        assert_eq!(plan(&pods, None, at(0)), Drain::default());
    }

    #[test]
    fn pods_that_outlive_the_node_on_purpose_or_have_finished_are_not_waited_for() {
        let tolerant = |pod: &mut api::Pod| {
            let toleration = api::Toleration { operator: Some("Exists".into()), ..Default::default() };
            pod.spec.get_or_insert_default().tolerations = Some(vec![toleration]);
        };
        let finished = |pod: &mut api::Pod| pod.status.get_or_insert_default().phase = Some("Succeeded".into());
        let pods = [
            pod("tolerant", tolerant),
            pod("mirror", owned_by("Node")),
            pod("finished", finished),
            pod("stuck", terminating(0)),
        ];
        assert_eq!(plan(&pods, None, at(61)), Drain::default());
        assert_eq!(plan(&pods, None, at(60)).waiting, [PodName::new("default", "stuck")]);
    }

    #[test]
    fn a_pod_that_must_not_be_disrupted_holds_every_later_wave() {
        let pods = [pod("a", do_not_disrupt), pod("b", owned_by("DaemonSet"))];
        let drain = plan(&pods, None, at(0));
        assert_eq!(names(&drain.evict), ["a"]);
        assert_eq!(drain.held, [PodName::new("default", "a")]);
        assert_eq!(drain.waiting.len(), 2);
    }

    #[test]
    fn pods_whose_grace_would_outlast_the_deadline_leave_their_wave() {
        let pods = waves();
        assert_eq!(names(&plan(&pods, Some(at(100)), at(70)).evict), ["a"], "30 s before the deadline is in time");
        assert_eq!(names(&plan(&pods, Some(at(100)), at(71)).evict), ["d", "c", "b", "a"]);
    }

    #[test]
    fn the_deadline_rules_of_force_deletion() {
        let check = |pod: &Pod, deadline: Option<i64>, now| needs_force_delete(pod, deadline.map(at), at(now));
        let running = pod("running", |_| {});
        assert!(!check(&running, None, 9999), "no deadline");
        assert!(!check(&running, Some(100), 70));
        assert!(check(&running, Some(100), 71));
        let graceless =
            pod("graceless", |pod| pod.spec.get_or_insert_default().termination_grace_period_seconds = None);
        assert!(!check(&graceless, Some(100), 9999), "no grace period is known");
        assert!(!check(&pod("in-time", terminating(100)), Some(100), 0));
        assert!(check(&pod("too-late", terminating(101)), Some(100), 0));
    }

    #[test]
    fn the_grace_of_a_forced_deletion_is_what_is_left_and_at_least_a_second() {
        assert_eq!(force_delete_grace_seconds(at(100), at(71)), 29);
        assert_eq!(force_delete_grace_seconds(at(100), at(100)), 1);
        assert_eq!(force_delete_grace_seconds(at(100), at(500)), 1);
    }
}
