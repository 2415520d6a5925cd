//! `spec.kubelet` of a node class: what the controller reads of it, and whether it may be launched with (spec §1.6.1).

use controller_api::AmiFamily;
use controller_core::quantity::Quantity;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The fields the controller itself acts on; the rest is in `raw`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kubelet {
    pub(crate) raw: Map<String, Value>,
    pub(crate) cluster_dns: Vec<String>,
    pub(crate) max_pods: Option<u32>,
    pub(crate) pods_per_core: Option<u32>,
    pub(crate) kube_reserved: BTreeMap<String, String>,
    pub(crate) system_reserved: BTreeMap<String, String>,
    pub(crate) eviction_hard: BTreeMap<String, String>,
    pub(crate) eviction_soft: BTreeMap<String, String>,
    pub(crate) eviction_soft_grace_period: BTreeMap<String, String>,
    pub(crate) eviction_max_pod_grace_period: Option<i64>,
    pub(crate) image_gc_high_threshold_percent: Option<i64>,
    pub(crate) image_gc_low_threshold_percent: Option<i64>,
    pub(crate) cpu_cfs_quota: Option<bool>,
}

/// Why a kubelet configuration cannot be launched with: reason and message of the condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KubeletProblem {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The fields that bootstrap maps to flags or settings, for families that do not take the whole configuration.
const MANAGED: [&str; 12] = [
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
];

const EVICTION_SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];

const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

/// What a field of KubeletConfiguration (kubelet.config.k8s.io/v1beta1) holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Float,
    Text,
    /// A Go duration in text.
    Duration,
    Texts,
    TextMap,
    BoolMap,
    List,
    Object,
}

/// Every field, by kind.
const FIELDS: [(Kind, &[&str]); 10] = [
    (
        Kind::Bool,
        &[
            "enableServer",
            "rotateCertificates",
            "serverTLSBootstrap",
            "enableDebuggingHandlers",
            "enableContentionProfiling",
            "cgroupsPerQOS",
            "singleProcessOOMKill",
            "runOnce",
            "cpuCFSQuota",
            "serializeImagePulls",
            "mergeDefaultEvictionSettings",
            "enableControllerAttachDetach",
            "protectKernelDefaults",
            "makeIPTablesUtilChains",
            "failSwapOn",
            "kernelMemcgNotification",
            "enableSystemLogHandler",
            "enableSystemLogQuery",
            "enableProfilingHandler",
            "enableDebugFlagsHandler",
            "seccompDefault",
            "registerNode",
            "localStorageCapacityIsolation",
            "failCgroupV1",
        ],
    ),
    (
        Kind::Int,
        &[
            "port",
            "readOnlyPort",
            "registryPullQPS",
            "registryBurst",
            "eventRecordQPS",
            "eventBurst",
            "healthzPort",
            "oomScoreAdj",
            "nodeLeaseDurationSeconds",
            "imageGCHighThresholdPercent",
            "imageGCLowThresholdPercent",
            "maxPods",
            "podPidsLimit",
            "nodeStatusMaxImages",
            "maxOpenFiles",
            "kubeAPIQPS",
            "kubeAPIBurst",
            "maxParallelImagePulls",
            "evictionMaxPodGracePeriod",
            "podsPerCore",
            "iptablesMasqueradeBit",
            "iptablesDropBit",
            "containerLogMaxFiles",
            "containerLogMaxWorkers",
        ],
    ),
    (Kind::Float, &["memoryThrottlingFactor"]),
    (
        Kind::Text,
        &[
            "kind",
            "apiVersion",
            "staticPodPath",
            "podLogsDir",
            "staticPodURL",
            "address",
            "tlsCertFile",
            "tlsPrivateKeyFile",
            "tlsMinVersion",
            "healthzBindAddress",
            "clusterDomain",
            "kubeletCgroups",
            "systemCgroups",
            "cgroupRoot",
            "cgroupDriver",
            "cpuManagerPolicy",
            "memoryManagerPolicy",
            "topologyManagerPolicy",
            "topologyManagerScope",
            "hairpinMode",
            "podCIDR",
            "resolvConf",
            "contentType",
            "containerLogMaxSize",
            "configMapAndSecretChangeDetectionStrategy",
            "reservedSystemCPUs",
            "showHiddenMetricsForVersion",
            "systemReservedCgroup",
            "kubeReservedCgroup",
            "volumePluginDir",
            "providerID",
            "containerRuntimeEndpoint",
            "imageServiceEndpoint",
            "imagePullCredentialsVerificationPolicy",
            "memoryReservationPolicy",
        ],
    ),
    (
        Kind::Duration,
        &[
            "syncFrequency",
            "fileCheckFrequency",
            "httpCheckFrequency",
            "streamingConnectionIdleTimeout",
            "nodeStatusUpdateFrequency",
            "nodeStatusReportFrequency",
            "imageMinimumGCAge",
            "imageMaximumGCAge",
            "volumeStatsAggPeriod",
            "cpuManagerReconcilePeriod",
            "runtimeRequestTimeout",
            "cpuCFSQuotaPeriod",
            "evictionPressureTransitionPeriod",
            "containerLogMonitorInterval",
            "shutdownGracePeriod",
            "shutdownGracePeriodCriticalPods",
        ],
    ),
    (
        Kind::Texts,
        &[
            "tlsCipherSuites",
            "tlsCurvePreferences",
            "clusterDNS",
            "enforceNodeAllocatable",
            "allowedUnsafeSysctls",
            "preloadedImagesVerificationAllowlist",
        ],
    ),
    (
        Kind::TextMap,
        &[
            "cpuManagerPolicyOptions",
            "topologyManagerPolicyOptions",
            "qosReserved",
            "evictionHard",
            "evictionSoft",
            "evictionSoftGracePeriod",
            "evictionMinimumReclaim",
            "systemReserved",
            "kubeReserved",
        ],
    ),
    (Kind::BoolMap, &["featureGates"]),
    (Kind::List, &["registerWithTaints", "reservedMemory", "shutdownGracePeriodByPodPriority"]),
    (
        Kind::Object,
        &[
            "staticPodURLHeader",
            "authentication",
            "authorization",
            "memorySwap",
            "logging",
            "crashLoopBackOff",
            "tracing",
            "userNamespaces",
        ],
    ),
];

impl Kubelet {
    /// Reads what can be read. What cannot is left out here and named by [`problems`](Self::problem).
    pub(crate) fn read(raw: Option<&Map<String, Value>>) -> Self {
        let Some(raw) = raw else {
            return Self::default();
        };
        let int = |field: &str| raw.get(field).and_then(Value::as_i64);
        let count = |field: &str| int(field).and_then(|number| u32::try_from(number).ok());
        let map = |field: &str| -> BTreeMap<String, String> {
            let entries = raw.get(field).and_then(Value::as_object).into_iter().flatten();
            entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        Self {
            cluster_dns: texts(raw.get("clusterDNS")),
            max_pods: count("maxPods"),
            pods_per_core: count("podsPerCore"),
            kube_reserved: map("kubeReserved"),
            system_reserved: map("systemReserved"),
            eviction_hard: map("evictionHard"),
            eviction_soft: map("evictionSoft"),
            eviction_soft_grace_period: map("evictionSoftGracePeriod"),
            eviction_max_pod_grace_period: int("evictionMaxPodGracePeriod"),
            image_gc_high_threshold_percent: int("imageGCHighThresholdPercent"),
            image_gc_low_threshold_percent: int("imageGCLowThresholdPercent"),
            cpu_cfs_quota: raw.get("cpuCFSQuota").and_then(Value::as_bool),
            raw: raw.clone(),
        }
    }

    /// Whether nodes of `family` may be launched with this, and if not, the condition's reason and message.
    pub(crate) fn problem(&self, family: AmiFamily) -> Option<KubeletProblem> {
        let invalid = self.invalid();
        if !invalid.is_empty() {
            return Some(KubeletProblem { reason: "InvalidKubeletConfiguration", message: invalid.join("; ") });
        }
        if self.has_expression() {
            return Some(KubeletProblem {
                reason: "KubeletExpressionsDisabled",
                message: "spec.kubelet contains a CEL expression, but the NodeClassCEL feature gate is disabled"
                    .to_owned(),
            });
        }
        let unsupported = self.unsupported(family);
        (!unsupported.is_empty()).then(|| KubeletProblem {
            reason: "UnsupportedKubeletConfiguration",
            message: format!("{} does not support {}", family.as_str(), unsupported.join(", ")),
        })
    }

    /// Every error in the configuration itself.
    fn invalid(&self) -> Vec<String> {
        let mut errors: Vec<String> = self.raw.iter().filter_map(|(field, value)| decode(field, value)).collect();
        if self.raw.contains_key("registerWithTaints") {
            errors.push("registerWithTaints is set by the controller and may not be given".to_owned());
        }
        for (field, thresholds) in [("evictionHard", &self.eviction_hard), ("evictionSoft", &self.eviction_soft)] {
            for (signal, value) in thresholds {
                errors.extend(eviction_signal(field, signal));
                if !is_threshold(value) {
                    errors.push(format!(
                        "{field}[{signal}]: {value:?} is neither a percentage from 0% to 100% nor a quantity"
                    ));
                }
            }
        }
        for (signal, value) in &self.eviction_soft_grace_period {
            errors.extend(eviction_signal("evictionSoftGracePeriod", signal));
            if !is_duration(value) {
                errors.push(format!("evictionSoftGracePeriod[{signal}]: {value:?} is not a duration"));
            }
        }
        if !self.eviction_soft.keys().eq(self.eviction_soft_grace_period.keys()) {
            errors.push("evictionSoft and evictionSoftGracePeriod must have the same keys".to_owned());
        }
        for (field, reserved) in [("kubeReserved", &self.kube_reserved), ("systemReserved", &self.system_reserved)] {
            for (resource, value) in reserved {
                if !RESERVABLE.contains(&resource.as_str()) {
                    errors.push(format!("{field}: {resource:?} is not one of {}", RESERVABLE.join(", ")));
                }
                if value.starts_with('-') {
                    errors.push(format!("{field}[{resource}]: {value:?} is negative"));
                }
            }
        }
        errors.extend(self.image_gc());
        for field in ["podsPerCore", "evictionMaxPodGracePeriod", "maxPods"] {
            if self.raw.get(field).and_then(Value::as_i64).is_some_and(|number| number < 0) {
                errors.push(format!("{field} may not be negative"));
            }
        }
        errors
    }

    fn image_gc(&self) -> Vec<String> {
        let (high, low) = (self.image_gc_high_threshold_percent, self.image_gc_low_threshold_percent);
        let mut errors = Vec::new();
        for (field, percent) in [("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low)] {
            if percent.is_some_and(|percent| !(0..=100).contains(&percent)) {
                errors.push(format!("{field} must be from 0 to 100"));
            }
        }
        if matches!((high, low), (Some(high), Some(low)) if high <= low) {
            errors.push("imageGCHighThresholdPercent must be above imageGCLowThresholdPercent".to_owned());
        }
        errors
    }

    /// Whether some value can only be an expression: `maxPods` as text, or a reservation that is no quantity.
    fn has_expression(&self) -> bool {
        let is_quantity = |value: &String| value.parse::<Quantity>().is_ok();
        self.raw.get("maxPods").is_some_and(Value::is_string)
            || !self.kube_reserved.values().chain(self.system_reserved.values()).all(is_quantity)
    }

    fn unsupported(&self, family: AmiFamily) -> Vec<String> {
        if matches!(family, AmiFamily::AL2023 | AmiFamily::Custom) {
            return Vec::new();
        }
        let mut fields: Vec<String> =
            self.raw.keys().filter(|field| !MANAGED.contains(&field.as_str())).cloned().collect();
        if self.cluster_dns.len() > 1 {
            fields.push("more than one clusterDNS".to_owned());
        }
        if family == AmiFamily::Bottlerocket && self.raw.contains_key("podsPerCore") {
            fields.push("podsPerCore".to_owned());
        }
        fields
    }
}

/// Checks that `field` exists and holds what it should.
fn decode(field: &str, value: &Value) -> Option<String> {
    let Some(kind) = FIELDS.iter().find(|(_, fields)| fields.contains(&field)).map(|(kind, _)| *kind) else {
        return Some(format!("unknown field {field:?}"));
    };
    if value.is_null() {
        return None;
    }
    let good = match kind {
        Kind::Bool => value.is_boolean(),
        Kind::Int => value.is_i64() || (field == "maxPods" && value.is_string()),
        Kind::Float => value.is_number(),
        Kind::Text => value.is_string(),
        Kind::Duration => value.as_str().is_some_and(is_duration),
        Kind::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
        Kind::TextMap => value.as_object().is_some_and(|map| map.values().all(Value::is_string)),
        Kind::BoolMap => value.as_object().is_some_and(|map| map.values().all(Value::is_boolean)),
        Kind::List => value.is_array(),
        Kind::Object => value.is_object(),
    };
    (!good).then(|| format!("field {field:?} has the wrong type"))
}

fn eviction_signal(field: &str, signal: &str) -> Option<String> {
    (!EVICTION_SIGNALS.contains(&signal)).then(|| format!("{field}: {signal:?} is not an eviction signal"))
}

/// A percentage from 0 to 100, or a quantity that is not negative.
fn is_threshold(value: &str) -> bool {
    match value.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent)),
        None => value.parse::<Quantity>().is_ok_and(|quantity| !quantity.is_negative()),
    }
}

/// A Go duration of at least zero: numbers with units, such as `1m30s`.
fn is_duration(text: &str) -> bool {
    if text == "0" {
        return true;
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        if rest[..number].parse::<f64>().is_err() {
            return false;
        }
        let unit =
            ["ns", "us", "µs", "ms", "s", "m", "h"].into_iter().find_map(|unit| rest[number..].strip_prefix(unit));
        // `m` must not swallow the start of `ms`, which stands before it in the list.
        match unit {
            Some(after) => rest = after,
            None => return false,
        }
    }
    true
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(family: AmiFamily, kubelet: Value, reason: Option<&str>) {
        let read = Kubelet::read(kubelet.as_object());
        let problem = read.problem(family);
        assert_eq!(problem.as_ref().map(|problem| problem.reason), reason, "{kubelet}: {problem:?}");
    }

    #[test]
    fn good_configurations_pass() {
        for kubelet in [
            json!({}),
            json!({"maxPods": 20, "podsPerCore": 2, "clusterDNS": ["10.0.0.10"]}),
            json!({"kubeReserved": {"cpu": "100m", "memory": "1Gi"}, "systemReserved": {"pid": "100"}}),
            json!({"evictionHard": {"memory.available": "5%", "nodefs.available": "1Gi"}}),
            json!({"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "1m30s"}}),
            json!({"imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80, "cpuCFSQuota": false}),
        ] {
            check(AmiFamily::AL2023, kubelet.clone(), None);
            check(AmiFamily::AL2, kubelet, None);
        }
        check(AmiFamily::AL2023, json!({"shutdownGracePeriod": "30s", "featureGates": {"X": true}}), None);
    }

    #[test]
    fn every_rule_of_the_configuration_is_checked() {
        for kubelet in [
            json!({"maxPod": 20}),
            json!({"podsPerCore": "2"}),
            json!({"registerWithTaints": []}),
            json!({"evictionHard": {"memory.free": "5%"}}),
            json!({"evictionHard": {"memory.available": "101%"}}),
            json!({"evictionHard": {"memory.available": "-1Gi"}}),
            json!({"evictionSoft": {"memory.available": "5%"}}),
            json!({"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "soon"}}),
            json!({"kubeReserved": {"gpu": "1"}}),
            json!({"systemReserved": {"cpu": "-1"}}),
            json!({"imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 80}),
            json!({"imageGCHighThresholdPercent": 101}),
            json!({"maxPods": -1}),
        ] {
            check(AmiFamily::AL2023, kubelet, Some("InvalidKubeletConfiguration"));
        }
    }

    #[test]
    fn expressions_need_their_feature_gate() {
        check(AmiFamily::AL2023, json!({"maxPods": "vcpus * 10"}), Some("KubeletExpressionsDisabled"));
        check(AmiFamily::AL2023, json!({"kubeReserved": {"cpu": "vcpus * 10"}}), Some("KubeletExpressionsDisabled"));
    }

    #[test]
    fn families_that_map_fields_to_flags_take_no_others() {
        for family in [AmiFamily::AL2, AmiFamily::Bottlerocket] {
            check(family, json!({"shutdownGracePeriod": "30s"}), Some("UnsupportedKubeletConfiguration"));
            check(family, json!({"clusterDNS": ["10.0.0.10", "10.0.0.11"]}), Some("UnsupportedKubeletConfiguration"));
        }
        check(AmiFamily::Bottlerocket, json!({"podsPerCore": 3}), Some("UnsupportedKubeletConfiguration"));
        check(AmiFamily::AL2, json!({"podsPerCore": 3}), None);
    }
}
