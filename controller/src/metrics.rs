//! Every metric name and label, in one place (core spec §10, AWS spec §8.1).
//!
//! Names and labels are upstream's, so that dashboards keep working. Counters and histograms are fed where things happen;
//! gauges that describe the cluster are computed when somebody asks for the text, so that an idle controller does nothing.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type LabelSet = Vec<(&'static str, String)>;

/// Upstream's buckets for durations (core spec §10, "D").
const DURATION: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 120.0,
    150.0, 300.0, 450.0, 600.0,
];
/// 1, 2, 4 … 1024 seconds.
const INSTANCE_TERMINATION: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
/// 1, 2, 4 … 2048 seconds.
const CLAIM_TERMINATION: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0];
/// From a quarter of an hour to thirty days.
const LIFETIME: &[f64] = &[
    900.0,
    1800.0,
    2700.0,
    3600.0,
    7200.0,
    14_400.0,
    21_600.0,
    28_800.0,
    36_000.0,
    43_200.0,
    57_600.0,
    72_000.0,
    86_400.0,
    172_800.0,
    259_200.0,
    432_000.0,
    864_000.0,
    1_296_000.0,
    1_728_000.0,
    2_160_000.0,
    2_592_000.0,
];
/// The client library's default buckets, which upstream's framework uses.
const FRAMEWORK: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Quantiles of a summary.
const QUANTILES: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0];
/// Observations a summary's quantiles are taken from: the latest thousand. Twice as many would change no quantile shown.
const SUMMARY_LENGTH: usize = 1000;

/// Counts by label values; `N` is how many labels there are.
pub struct Counters<const N: usize>(Family<LabelSet, Counter>, [&'static str; N]);

impl<const N: usize> Counters<N> {
    /// Adds one.
    pub fn add(&self, values: [&str; N]) {
        self.add_many(values, 1);
    }

    /// Adds `count`; zero makes the series visible.
    pub fn add_many(&self, values: [&str; N], count: u64) {
        self.0.get_or_create(&label_set(self.1, values)).inc_by(count);
    }
}

/// Values by label values.
pub struct Gauges<const N: usize>(Family<LabelSet, Gauge<f64, AtomicU64>>, [&'static str; N]);

impl<const N: usize> Gauges<N> {
    /// Sets one value.
    pub fn set(&self, values: [&str; N], value: f64) {
        self.0.get_or_create(&label_set(self.1, values)).set(value);
    }

    /// Removes every series, before the present ones are set.
    pub fn clear(&self) {
        self.0.clear();
    }
}

/// Distributions by label values.
pub struct Histograms<const N: usize>(Family<LabelSet, Histogram, Buckets>, [&'static str; N]);

impl<const N: usize> Histograms<N> {
    /// Observes seconds.
    pub fn observe(&self, values: [&str; N], seconds: f64) {
        self.0.get_or_create(&label_set(self.1, values)).observe(seconds);
    }
}

#[derive(Clone)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// Quantiles by label values. The client library has none, so they are kept and written here.
pub struct Summaries<const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    series: Mutex<BTreeMap<[String; N], Summary>>,
}

#[derive(Default)]
struct Summary {
    count: u64,
    sum: f64,
    latest: VecDeque<f64>,
}

impl<const N: usize> Summaries<N> {
    fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self { name, help, labels, series: Mutex::default() }
    }

    /// Observes seconds.
    pub fn observe(&self, values: [&str; N], seconds: f64) {
        let mut series = lock(&self.series);
        let summary = series.entry(values.map(str::to_owned)).or_default();
        summary.count += 1;
        summary.sum += seconds;
        if summary.latest.len() == SUMMARY_LENGTH {
            summary.latest.pop_front();
        }
        summary.latest.push_back(seconds);
    }

    fn write(&self, text: &mut String) {
        let series = lock(&self.series);
        if series.is_empty() {
            return;
        }
        let name = self.name;
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} summary", self.help);
        for (values, summary) in series.iter() {
            let labels: Vec<String> =
                self.labels.iter().zip(values).map(|(label, value)| format!("{label}=\"{}\"", escape(value))).collect();
            let mut sorted: Vec<f64> = summary.latest.iter().copied().collect();
            sorted.sort_by(f64::total_cmp);
            for quantile in QUANTILES {
                let index = ((sorted.len() - 1) as f64 * quantile).round() as usize;
                let quantile = format!("quantile=\"{quantile}\"");
                let all = labels.iter().chain([&quantile]).map(String::as_str).collect::<Vec<_>>().join(",");
                let _ = writeln!(text, "{name}{{{all}}} {}", sorted[index]);
            }
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(text, "{name}_sum{labels} {}\n{name}_count{labels} {}", summary.sum, summary.count);
        }
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn label_set<const N: usize>(labels: [&'static str; N], values: [&str; N]) -> LabelSet {
    labels.into_iter().zip(values.map(str::to_owned)).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers families under their full names; the encoder adds `_total` to counters.
struct Registrar(Registry);

impl Registrar {
    fn register(&mut self, name: &str, help: &str, metric: impl Metric) {
        // The encoder ends the help text with a full stop.
        self.0.register(name, help, metric);
    }

    fn counters<const N: usize>(&mut self, name: &str, help: &str, labels: [&'static str; N]) -> Counters<N> {
        let family = Family::default();
        self.register(name, help, family.clone());
        Counters(family, labels)
    }

    fn gauges<const N: usize>(&mut self, name: &str, help: &str, labels: [&'static str; N]) -> Gauges<N> {
        let family = Family::default();
        self.register(name, help, family.clone());
        Gauges(family, labels)
    }

    fn histograms<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&'static str; N],
        buckets: &'static [f64],
    ) -> Histograms<N> {
        let family = Family::new_with_constructor(Buckets(buckets));
        self.register(name, help, family.clone());
        Histograms(family, labels)
    }
}

type Refresh = Box<dyn Fn(&Metrics) + Send + Sync>;

/// Labels of what is counted when a disruption begins.
const DISRUPTED: [&str; 5] = ["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"];
/// Labels of a disruption decision.
const DECISION: [&str; 3] = ["decision", "reason", "consolidation_type"];
/// Labels of a call to the cloud provider.
const CALL: [&str; 3] = ["controller", "method", "provider"];

/// The metrics of a controller. Make one, hand it to the run and read [`Metrics::text`] whenever you like.
#[allow(missing_docs)] // Each field is named as its metric is, and each metric has its help text below.
pub struct Metrics {
    registry: Registry,
    refresh: Mutex<Option<Refresh>>,
    pub nodeclaims_created: Counters<3>,
    pub nodeclaims_terminated: Counters<3>,
    pub nodeclaims_disrupted: Counters<5>,
    pub pods_disruption_initiated: Counters<5>,
    pub nodeclaims_instance_termination_duration_seconds: Histograms<1>,
    pub nodeclaims_termination_duration_seconds: Histograms<1>,
    pub nodes_created: Counters<2>,
    pub nodes_terminated: Counters<2>,
    pub nodes_drained: Counters<1>,
    pub nodes_lifetime_duration_seconds: Histograms<1>,
    pub nodes_termination_duration_seconds: Summaries<1>,
    pub scheduler_scheduling_duration_seconds: Histograms<1>,
    pub scheduler_unschedulable_pods_count: Gauges<1>,
    pub scheduler_unschedulable_pods_by_reason: Gauges<3>,
    pub cluster_state_node_count: Gauges<0>,
    pub cluster_state_synced: Gauges<0>,
    pub cluster_state_unsynced_time_seconds: Gauges<0>,
    pub voluntary_disruption_decision_evaluation_duration_seconds: Histograms<2>,
    pub voluntary_disruption_decisions: Counters<3>,
    pub voluntary_disruption_decisions_by_nodepool: Counters<4>,
    pub voluntary_disruption_eligible_nodes: Gauges<1>,
    pub voluntary_disruption_failed_validations: Counters<1>,
    pub voluntary_disruption_queue_failures: Counters<3>,
    pub nodepools_allowed_disruptions: Gauges<2>,
    pub nodepools_nodes_consuming_budgets: Gauges<2>,
    pub nodepools_limit: Gauges<2>,
    pub nodepools_usage: Gauges<2>,
    pub pods_state: Gauges<13>,
    pub pods_startup_duration_seconds: Summaries<0>,
    pub pods_bound_duration_seconds: Histograms<0>,
    pub pods_eviction_requests: Counters<1>,
    pub pods_drained: Counters<1>,
    pub interruption_received_messages: Counters<1>,
    pub interruption_deleted_messages: Counters<0>,
    pub interruption_message_queue_duration_seconds: Histograms<0>,
    pub interruption_instance_status_unhealthy: Counters<1>,
    pub cloudprovider_duration_seconds: Histograms<3>,
    pub cloudprovider_errors: Counters<4>,
    pub cloudprovider_instance_launch_failures: Counters<4>,
    pub build_info: Gauges<4>,
    reconcile: Counters<2>,
    reconcile_errors: Counters<1>,
    reconcile_time_seconds: Histograms<1>,
}

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Self {
        let mut r = Registrar(Registry::default());
        let metrics = Self {
            nodeclaims_created: r.counters(
                "karpenter_nodeclaims_created",
                "NodeClaims created",
                ["reason", "nodepool", "min_values_relaxed"],
            ),
            nodeclaims_terminated: r.counters(
                "karpenter_nodeclaims_terminated",
                "NodeClaims terminated",
                ["nodepool", "capacity_type", "zone"],
            ),
            nodeclaims_disrupted: r.counters("karpenter_nodeclaims_disrupted", "NodeClaims disrupted", DISRUPTED),
            pods_disruption_initiated: r.counters(
                "karpenter_pods_disruption_initiated",
                "Reschedulable pods on NodeClaims whose disruption began",
                DISRUPTED,
            ),
            nodeclaims_instance_termination_duration_seconds: r.histograms(
                "karpenter_nodeclaims_instance_termination_duration_seconds",
                "From the instance's termination to its absence",
                ["nodepool"],
                INSTANCE_TERMINATION,
            ),
            nodeclaims_termination_duration_seconds: r.histograms(
                "karpenter_nodeclaims_termination_duration_seconds",
                "From a NodeClaim's deletion to its removal",
                ["nodepool"],
                CLAIM_TERMINATION,
            ),
            nodes_created: r.counters("karpenter_nodes_created", "Nodes registered", ["nodepool", "zone"]),
            nodes_terminated: r.counters("karpenter_nodes_terminated", "Nodes removed", ["nodepool", "zone"]),
            nodes_drained: r.counters("karpenter_nodes_drained", "Nodes drained", ["nodepool"]),
            nodes_lifetime_duration_seconds: r.histograms(
                "karpenter_nodes_lifetime_duration_seconds",
                "Age of nodes at their termination",
                ["nodepool"],
                LIFETIME,
            ),
            nodes_termination_duration_seconds: Summaries::new(
                "karpenter_nodes_termination_duration_seconds",
                "From a node's deletion to its removal.",
                ["nodepool"],
            ),
            scheduler_scheduling_duration_seconds: r.histograms(
                "karpenter_scheduler_scheduling_duration_seconds",
                "Duration of scheduling passes",
                ["controller"],
                DURATION,
            ),
            scheduler_unschedulable_pods_count: r.gauges(
                "karpenter_scheduler_unschedulable_pods_count",
                "Pods the last pass found no place for",
                ["controller"],
            ),
            scheduler_unschedulable_pods_by_reason: r.gauges(
                "karpenter_scheduler_unschedulable_pods_by_reason",
                "Pods the last pass found no place for, by the NodePool that gave no node and why",
                ["controller", "nodepool", "reason"],
            ),
            cluster_state_node_count: r.gauges("karpenter_cluster_state_node_count", "Nodes known", []),
            cluster_state_synced: r.gauges("karpenter_cluster_state_synced", "1 if decisions can be made", []),
            cluster_state_unsynced_time_seconds: r.gauges(
                "karpenter_cluster_state_unsynced_time_seconds",
                "How long decisions could not be made",
                [],
            ),
            voluntary_disruption_decision_evaluation_duration_seconds: r.histograms(
                "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
                "Duration of disruption decisions",
                ["reason", "consolidation_type"],
                DURATION,
            ),
            voluntary_disruption_decisions: r.counters(
                "karpenter_voluntary_disruption_decisions",
                "Disruption decisions begun",
                DECISION,
            ),
            voluntary_disruption_decisions_by_nodepool: r.counters(
                "karpenter_voluntary_disruption_decisions_by_nodepool",
                "Disruption decisions begun, by the NodePools of their nodes",
                ["nodepool", "decision", "reason", "consolidation_type"],
            ),
            voluntary_disruption_eligible_nodes: r.gauges(
                "karpenter_voluntary_disruption_eligible_nodes",
                "Nodes that could be disrupted",
                ["reason"],
            ),
            voluntary_disruption_failed_validations: r.counters(
                "karpenter_voluntary_disruption_failed_validations",
                "Candidates that were no longer valid after the wait",
                ["consolidation_type"],
            ),
            voluntary_disruption_queue_failures: r.counters(
                "karpenter_voluntary_disruption_queue_failures",
                "Replacements that failed",
                DECISION,
            ),
            nodepools_allowed_disruptions: r.gauges(
                "karpenter_nodepools_allowed_disruptions",
                "Nodes that budgets let be disrupted at a time",
                ["nodepool", "reason"],
            ),
            nodepools_nodes_consuming_budgets: r.gauges(
                "karpenter_nodepools_nodes_consuming_budgets",
                "Nodes that are being disrupted or not ready",
                ["nodepool", "reason"],
            ),
            nodepools_limit: r.gauges(
                "karpenter_nodepools_limit",
                "Limits of NodePools",
                ["resource_type", "nodepool"],
            ),
            nodepools_usage: r.gauges(
                "karpenter_nodepools_usage",
                "Capacity of NodePools' nodes",
                ["resource_type", "nodepool"],
            ),
            pods_state: r.gauges(
                "karpenter_pods_state",
                "1 for each pod, with what is known of it",
                [
                    "name",
                    "namespace",
                    "owner",
                    "node",
                    "scheduled",
                    "nodepool",
                    "zone",
                    "arch",
                    "capacity_type",
                    "instance_type",
                    "phase",
                    "ready",
                    "managed",
                ],
            ),
            pods_startup_duration_seconds: Summaries::new(
                "karpenter_pods_startup_duration_seconds",
                "From a pod's creation to its readiness.",
                [],
            ),
            pods_bound_duration_seconds: r.histograms(
                "karpenter_pods_bound_duration_seconds",
                "From a pod's creation to its binding",
                [],
                DURATION,
            ),
            pods_eviction_requests: r.counters(
                "karpenter_pods_eviction_requests",
                "Evictions asked for, by the answer's code",
                ["code"],
            ),
            pods_drained: r.counters("karpenter_pods_drained", "Pods evicted or deleted from nodes", ["reason"]),
            interruption_received_messages: r.counters(
                "karpenter_interruption_received_messages",
                "Messages received from the interruption queue",
                ["message_type"],
            ),
            interruption_deleted_messages: r.counters(
                "karpenter_interruption_deleted_messages",
                "Messages deleted from the interruption queue",
                [],
            ),
            interruption_message_queue_duration_seconds: r.histograms(
                "karpenter_interruption_message_queue_duration_seconds",
                "Time messages spent in the interruption queue",
                [],
                DURATION,
            ),
            interruption_instance_status_unhealthy: r.counters(
                "karpenter_interruption_instance_status_unhealthy",
                "Instances found unhealthy by their status",
                ["category"],
            ),
            cloudprovider_duration_seconds: r.histograms(
                "karpenter_cloudprovider_duration_seconds",
                "Duration of calls to the cloud provider",
                CALL,
                FRAMEWORK,
            ),
            cloudprovider_instance_launch_failures: r.counters(
                "karpenter_cloudprovider_instance_launch_failures",
                "Launches that EC2 refused",
                ["zone", "zone_id", "capacity_type", "reason"],
            ),
            cloudprovider_errors: r.counters(
                "karpenter_cloudprovider_errors",
                "Failed calls to the cloud provider",
                ["controller", "method", "provider", "error"],
            ),
            build_info: r.gauges(
                "karpenter_build_info",
                "1, with the version in its labels",
                ["version", "goversion", "goarch", "commit"],
            ),
            reconcile: r.counters("controller_runtime_reconcile", "Reconciles, by result", ["controller", "result"]),
            reconcile_errors: r.counters("controller_runtime_reconcile_errors", "Failed reconciles", ["controller"]),
            reconcile_time_seconds: r.histograms(
                "controller_runtime_reconcile_time_seconds",
                "Duration of reconciles",
                ["controller"],
                FRAMEWORK,
            ),
            refresh: Mutex::default(),
            registry: Registry::default(),
        };
        let metrics = Self { registry: r.0, ..metrics };
        metrics.build_info.set([env!("CARGO_PKG_VERSION"), "", std::env::consts::ARCH, ""], 1.0);
        metrics
    }

    /// The present values in the text format Prometheus reads (OpenMetrics 1.0).
    pub fn text(&self) -> String {
        if let Some(refresh) = lock(&self.refresh).as_ref() {
            refresh(self);
        }
        let mut text = String::new();
        // Writing into a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        let mut text = text.strip_suffix("# EOF\n").unwrap_or(&text).to_owned();
        self.nodes_termination_duration_seconds.write(&mut text);
        self.pods_startup_duration_seconds.write(&mut text);
        text.push_str("# EOF\n");
        text
    }

    /// Sets what is done before each [`Metrics::text`]; the latest run's wins.
    pub(crate) fn refresh_with(&self, refresh: impl Fn(&Self) + Send + Sync + 'static) {
        *lock(&self.refresh) = Some(Box::new(refresh));
    }

    /// Counts one reconcile.
    pub(crate) fn reconciled(&self, controller: &str, is_success: bool, took: Duration) {
        self.reconcile.add([controller, if is_success { "success" } else { "error" }]);
        if !is_success {
            self.reconcile_errors.add([controller]);
        }
        self.reconcile_time_seconds.observe([controller], took.as_secs_f64());
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_upstreams() {
        let metrics = Metrics::new();
        metrics.nodeclaims_created.add(["provisioned", "default", "false"]);
        metrics.nodepools_limit.set(["cpu", "default"], 100.0);
        metrics.pods_startup_duration_seconds.observe([], 40.0);
        metrics.pods_startup_duration_seconds.observe([], 60.0);
        let text = metrics.text();
        for line in [
            r#"karpenter_nodeclaims_created_total{reason="provisioned",nodepool="default",min_values_relaxed="false"} 1"#,
            r#"karpenter_nodepools_limit{resource_type="cpu",nodepool="default"} 100.0"#,
            r#"karpenter_pods_startup_duration_seconds{quantile="0"} 40"#,
            r#"karpenter_pods_startup_duration_seconds{quantile="1"} 60"#,
            "karpenter_pods_startup_duration_seconds_sum 100",
            "karpenter_pods_startup_duration_seconds_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn what_describes_the_cluster_is_computed_when_asked_for() {
        let metrics = Metrics::new();
        metrics.refresh_with(|metrics| metrics.cluster_state_node_count.set([], 3.0));
        assert!(metrics.text().contains("karpenter_cluster_state_node_count 3.0"));
    }
}
