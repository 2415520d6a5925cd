//! Flags and environment as typed ([`Args`]), then as meant ([`Settings`]).
//!
//! A flag beats its environment variable, which beats the default. Names and defaults are upstream's (core spec §9.1, AWS
//! spec §7.1), with its rule for the environment: a number, duration or boolean that cannot be read counts as unset there,
//! while a flag that cannot be read ends the program. The environment is passed in, so that tests need not change it.
//!
//! Two variables have no flag and are set by the pod's downward API: `POD_NAMESPACE` (`metadata.namespace`), where the Lease
//! lies, and `NODE_NAME` (`spec.nodeName`), the node that this replica runs on.

use clap::{Parser, Subcommand};
use controller_api::GoDuration;
use controller_core::settings::{MinValuesPolicy, PreferencePolicy, Settings as CoreSettings};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// Defines the arguments that all flags share: `--some-name <VALUE>`, environment `SOME_NAME`.
macro_rules! arguments {
    ($($(#[doc = $help:literal])+ $name:ident: $type:ty,)*) => {
        /// A node autoscaler for Kubernetes on AWS, compatible with Karpenter v1.
        ///
        /// Every flag can be given as an environment variable instead: --cluster-name as CLUSTER_NAME and so on. Without a
        /// subcommand the controller runs until it is told to stop.
        #[derive(Parser, Clone, Debug, Default)]
        #[command(name = "controller", version)]
        pub struct Args {
            /// What to do instead of running the controller.
            #[command(subcommand)]
            pub command: Option<Command>,
            $($(#[doc = $help])+ #[arg(long, value_name = "VALUE")] pub $name: Option<$type>,)*
        }

        impl Args {
            /// Takes what no flag sets from `environment`.
            fn or_environment(mut self, environment: &dyn Fn(&str) -> Option<String>) -> Self {
                $(if self.$name.is_none() {
                    let name = stringify!($name).to_uppercase();
                    self.$name = environment(&name).and_then(|text| <$type as FromEnvironment>::read(&text));
                })*
                self
            }
        }
    };
}

arguments! {
    /// Name of the EKS cluster. Required.
    cluster_name: String,
    /// URL of the API server that nodes are told; asked of EKS by default.
    cluster_endpoint: String,
    /// CA bundle of the API server that nodes are told, base64 of PEM; the controller's own by default.
    cluster_ca_bundle: String,
    /// Name of the SQS queue with interruption messages; none by default.
    interruption_queue: String,
    /// Share of an instance's memory that the hypervisor keeps [default: 0.075]
    vm_memory_overhead_percent: f64,
    /// Network interfaces that pods cannot use [default: 0]
    reserved_enis: u32,
    /// Whether the VPC reaches no endpoint of Pricing and IAM [default: false]
    isolated_vpc: bool,
    /// Whether to ask EKS for the Kubernetes version instead of the API server [default: false]
    eks_control_plane: bool,
    /// Whether to hold node classes ready without an authorization dry run [default: false]
    disable_dry_run: bool,
    /// Whether to react to zonal shifts (not supported yet) [default: false]
    enable_zonal_shift: bool,
    /// How long discovered images are believed, at least 1m [default: 1m]
    ami_refresh_interval: Span,
    /// How long discovered subnets are believed, at least 1m [default: 1m]
    subnet_refresh_interval: Span,
    /// Feature gates of the AWS provider (NodeClassCEL, not supported yet)
    aws_feature_gates: String,
    /// Feature gates, as A=true,B=false
    feature_gates: String,
    /// How long pods are collected at most before a decision [default: 10s]
    batch_max_duration: Span,
    /// How long without a new pod closes the batch [default: 1s]
    batch_idle_duration: Span,
    /// Whether preferences of pods are respected: Respect or Ignore [default: Respect]
    preference_policy: String,
    /// Whether minValues is strict: Strict or BestEffort [default: Strict]
    min_values_policy: String,
    /// Whether pods with Dynamic Resource Allocation requests are passed over [default: true]
    ignore_dra_requests: bool,
    /// Default topology spread constraints (not supported yet)
    scheduler_config: String,
    /// Port of the metrics, 0 for none [default: 8080]
    metrics_port: u16,
    /// Port of health and readiness, 0 for none [default: 8081]
    health_probe_port: u16,
    /// Whether this replica runs without asking whether another one does [default: false]
    disable_leader_election: bool,
    /// Name of the Lease that decides who leads [default: karpenter-leader-election]
    leader_election_name: String,
    /// Namespace of the Lease; the controller's own by default.
    leader_election_namespace: String,
    /// Whether to leave out metrics that describe pods, nodes and pools [default: false]
    disable_cluster_state_observability: bool,
    /// CPU the controller may use, in millicores; decides how much it does at the same time [default: 1000]
    cpu_requests: i64,
    /// debug, info or error [default: info]
    log_level: String,
    /// Accepted for compatibility: logs go to standard output.
    log_output_paths: String,
    /// Accepted for compatibility: logs go to standard output.
    log_error_output_paths: String,
    /// Accepted for compatibility: memory is not managed by a collector.
    memory_limit: i64,
    /// Accepted for compatibility: requests are not throttled by the client.
    kube_client_qps: i64,
    /// Accepted for compatibility: requests are not throttled by the client.
    kube_client_burst: i64,
    /// Accepted for compatibility: profiles are not served.
    enable_profiling: bool,
    /// Accepted for compatibility: watches start once this replica leads.
    disable_controller_warmup: bool,
    /// Accepted for compatibility: there is no webhook.
    karpenter_service: String,
}

/// What the program can do beside running the controller.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Print the CustomResourceDefinitions as YAML.
    Crd,
}

/// A duration as Go writes it: `1m30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(Duration);

impl FromStr for Span {
    type Err = controller_api::InvalidDuration;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.parse::<GoDuration>()?.as_duration()))
    }
}

/// How an environment variable is read; `None` counts as unset.
trait FromEnvironment: Sized {
    fn read(text: &str) -> Option<Self>;
}

impl FromEnvironment for String {
    fn read(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.to_owned())
    }
}

impl FromEnvironment for bool {
    /// The forms Go's `ParseBool` reads.
    fn read(text: &str) -> Option<Self> {
        match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            _ => None,
        }
    }
}

macro_rules! read_by_parsing {
    ($($type:ty),*) => {
        $(impl FromEnvironment for $type {
            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        })*
    };
}
read_by_parsing!(f64, i64, u16, u32, Span);

/// Why the settings make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no cluster to work for.
    #[error("the cluster's name is not set: give --cluster-name or CLUSTER_NAME, the name of the EKS cluster")]
    MissingClusterName,
    /// A setting has a value outside its range.
    #[error("--{flag} ({variable}) is {value:?}, but must be {expected}")]
    Invalid {
        /// The flag.
        flag: &'static str,
        /// The environment variable.
        variable: String,
        /// What was given.
        value: String,
        /// What would have been right.
        expected: &'static str,
    },
    /// A setting would change what is decided and cannot be honoured.
    #[error("--{0} is not supported yet; unset it to start without")]
    Unsupported(&'static str),
}

/// Feature gates (core spec §9.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<&'static str, bool>);

impl FeatureGates {
    fn read(text: &str) -> Self {
        let mut gates = Self::default();
        for (name, value) in text.split(',').filter_map(|pair| pair.split_once('=')) {
            // Unknown names are ignored, so that a manifest for a later version still starts this one.
            if let (Some(gate), Some(value)) = (gates.0.get_mut(name.trim()), bool::read(value.trim())) {
                *gate = value;
            }
        }
        gates
    }

    /// Whether a gate is open.
    pub fn is_enabled(&self, gate: &str) -> bool {
        self.0.get(gate).copied().unwrap_or(false)
    }
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self(BTreeMap::from([
            ("CapacityBuffer", false),
            ("NodeOverlay", false),
            ("NodeRepair", false),
            ("ReservedCapacity", true),
            ("SpotToSpotConsolidation", false),
            ("StaticCapacity", false),
        ]))
    }
}

/// How loud the logs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// What happened.
    #[default]
    Info,
    /// What went wrong.
    Error,
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Error => "error",
        })
    }
}

/// By which Lease, and as whom, this replica asks to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// The Lease's name.
    pub name: String,
    /// The Lease's namespace.
    pub namespace: String,
    /// This replica's name in the Lease; no two replicas share one.
    pub identity: String,
    /// How long others wait after the leader's last sign of life.
    pub lease_duration: Duration,
    /// How long the leader tries to give one before it steps down.
    pub renew_deadline: Duration,
    /// How often everybody tries.
    pub retry_period: Duration,
}

impl LeaderElection {
    /// The usual Lease and times (core spec §9.3), for this replica.
    pub fn new(identity: impl Into<String>) -> Self {
        Self {
            name: "karpenter-leader-election".into(),
            namespace: "kube-system".into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// What the operator decided, as meant.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What decisions depend on.
    pub core: CoreSettings,
    /// What the AWS provider depends on.
    pub aws: controller_aws::Settings,
    /// Feature gates.
    pub feature_gates: FeatureGates,
    /// How this replica asks to lead; `None` leads without asking.
    pub leader_election: Option<LeaderElection>,
    /// Where metrics are served; `None` opens no socket.
    pub metrics_address: Option<SocketAddr>,
    /// Where health and readiness are served; `None` opens no socket.
    pub health_address: Option<SocketAddr>,
    /// Whether metrics describe single pods, nodes and pools.
    pub cluster_state_observability: bool,
    /// CPU cores the controller may use, rounded up; decides how much it does at the same time.
    pub cpu_cores: usize,
    /// The node this replica runs on, to warn where that is a node of its own making; from `NODE_NAME`.
    pub own_node: Option<String>,
    /// How loud the logs are.
    pub log_level: LogLevel,
    /// What the operator asked for and does not get, in sentences for the log.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Defaults for embedding: leads without asking and opens no socket.
    pub fn new(aws: controller_aws::Settings) -> Self {
        Self {
            core: CoreSettings::default(),
            aws,
            feature_gates: FeatureGates::default(),
            leader_election: None,
            metrics_address: None,
            health_address: None,
            cluster_state_observability: true,
            cpu_cores: 1,
            own_node: None,
            log_level: LogLevel::default(),
            warnings: Vec::new(),
        }
    }

    /// Makes sense of flags and environment. `identity` names this replica in the leader election.
    pub fn from_args(
        args: Args,
        environment: &dyn Fn(&str) -> Option<String>,
        identity: &str,
    ) -> Result<Self, ConfigError> {
        let args = args.or_environment(environment);
        let warnings = args.warnings();
        let cluster_name = args.cluster_name.clone().filter(|name| !name.is_empty());
        let cluster_name = cluster_name.ok_or(ConfigError::MissingClusterName)?;
        if args.scheduler_config.as_deref().is_some_and(|text| !text.is_empty()) {
            return Err(ConfigError::Unsupported("scheduler-config"));
        }
        let feature_gates = FeatureGates::read(args.feature_gates.as_deref().unwrap_or_default());
        let mut aws = controller_aws::Settings::new(cluster_name);
        args.fill_aws(&mut aws, &feature_gates)?;
        let defaults = CoreSettings::default();
        let core = CoreSettings {
            batch_max_duration: args.batch_max_duration.map_or(defaults.batch_max_duration, |span| span.0),
            batch_idle_duration: args.batch_idle_duration.map_or(defaults.batch_idle_duration, |span| span.0),
            preference_policy: args.preference_policy()?,
            min_values_policy: args.min_values_policy()?,
            reserved_capacity: feature_gates.is_enabled("ReservedCapacity"),
        };
        let leader_election = (!args.disable_leader_election.unwrap_or(false)).then(|| {
            let usual = LeaderElection::new(identity);
            let own = || environment("POD_NAMESPACE").or_else(|| environment("SYSTEM_NAMESPACE"));
            LeaderElection {
                name: non_empty(args.leader_election_name.clone()).unwrap_or(usual.name),
                namespace: non_empty(args.leader_election_namespace.clone()).or_else(own).unwrap_or(usual.namespace),
                ..LeaderElection::new(identity)
            }
        });
        Ok(Self {
            core,
            leader_election,
            metrics_address: address(args.metrics_port.unwrap_or(8080)),
            health_address: address(args.health_probe_port.unwrap_or(8081)),
            cluster_state_observability: !args.disable_cluster_state_observability.unwrap_or(false),
            cpu_cores: cpu_cores(args.cpu_requests.unwrap_or(1000)),
            own_node: non_empty(environment("NODE_NAME")),
            log_level: args.log_level()?,
            warnings,
            feature_gates,
            ..Self::new(aws)
        })
    }

    /// How much of something runs at the same time, growing with the CPU from `least` on one core to `most` on sixty
    /// (core spec §9.4).
    pub(crate) fn concurrency(&self, least: usize, most: usize) -> usize {
        let grown = (most - least) * (self.cpu_cores.max(1) - 1) / 59 + least;
        grown.clamp(least, most)
    }
}

impl Args {
    fn fill_aws(&self, aws: &mut controller_aws::Settings, gates: &FeatureGates) -> Result<(), ConfigError> {
        aws.cluster_endpoint = non_empty(self.cluster_endpoint.clone());
        if let Some(endpoint) = &aws.cluster_endpoint
            && !endpoint.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some())
        {
            return Err(invalid("cluster-endpoint", endpoint, "a URL such as https://example.eks.amazonaws.com"));
        }
        aws.cluster_ca_bundle = non_empty(self.cluster_ca_bundle.clone());
        aws.interruption_queue = non_empty(self.interruption_queue.clone());
        aws.eks_control_plane = self.eks_control_plane.unwrap_or(aws.eks_control_plane);
        aws.isolated_vpc = self.isolated_vpc.unwrap_or(aws.isolated_vpc);
        aws.disable_dry_run = self.disable_dry_run.unwrap_or(aws.disable_dry_run);
        aws.reserved_enis = self.reserved_enis.unwrap_or(aws.reserved_enis);
        aws.reserved_capacity = gates.is_enabled("ReservedCapacity");
        aws.vm_memory_overhead_percent = self.vm_memory_overhead_percent.unwrap_or(aws.vm_memory_overhead_percent);
        if !(0.0..1.0).contains(&aws.vm_memory_overhead_percent) {
            let value = aws.vm_memory_overhead_percent.to_string();
            return Err(invalid("vm-memory-overhead-percent", &value, "at least 0 and less than 1"));
        }
        aws.ami_refresh_interval = at_least_a_minute("ami-refresh-interval", self.ami_refresh_interval)?;
        aws.subnet_refresh_interval = at_least_a_minute("subnet-refresh-interval", self.subnet_refresh_interval)?;
        Ok(())
    }

    fn preference_policy(&self) -> Result<PreferencePolicy, ConfigError> {
        match self.preference_policy.as_deref() {
            None | Some("Respect") => Ok(PreferencePolicy::Respect),
            Some("Ignore") => Ok(PreferencePolicy::Ignore),
            Some(other) => Err(invalid("preference-policy", other, "Respect or Ignore")),
        }
    }

    fn min_values_policy(&self) -> Result<MinValuesPolicy, ConfigError> {
        match self.min_values_policy.as_deref() {
            None | Some("Strict") => Ok(MinValuesPolicy::Strict),
            Some("BestEffort") => Ok(MinValuesPolicy::BestEffort),
            Some(other) => Err(invalid("min-values-policy", other, "Strict or BestEffort")),
        }
    }

    fn log_level(&self) -> Result<LogLevel, ConfigError> {
        match self.log_level.as_deref() {
            None | Some("" | "info") => Ok(LogLevel::Info),
            Some("debug") => Ok(LogLevel::Debug),
            Some("error") => Ok(LogLevel::Error),
            Some(other) => Err(invalid("log-level", other, "debug, info or error")),
        }
    }

    fn warnings(&self) -> Vec<String> {
        let gates = FeatureGates::read(self.feature_gates.as_deref().unwrap_or_default());
        let closed = gates.0.iter().filter(|(name, open)| **open && **name != "ReservedCapacity");
        let gates = closed.map(|(name, _)| format!("feature gate {name} is not supported yet and stays closed"));
        let flags = [
            ("enable-zonal-shift", self.enable_zonal_shift.unwrap_or(false)),
            ("enable-profiling", self.enable_profiling.unwrap_or(false)),
            ("ignore-dra-requests=false", self.ignore_dra_requests == Some(false)),
            ("aws-feature-gates", self.aws_feature_gates.as_deref().is_some_and(|text| text.contains("=true"))),
        ];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
        let flags = flags.map(|(flag, _)| format!("--{flag} is not supported yet and has no effect"));
        let queue = self.interruption_queue.as_deref().filter(|queue| queue.contains(':'));
        let queue =
            queue.map(|queue| format!("--interruption-queue is the queue's name, not its ARN or URL such as {queue}"));
        gates.chain(flags).chain(queue).collect()
    }
}

fn invalid(flag: &'static str, value: &str, expected: &'static str) -> ConfigError {
    ConfigError::Invalid { flag, variable: flag.to_uppercase().replace('-', "_"), value: value.to_owned(), expected }
}

fn at_least_a_minute(flag: &'static str, span: Option<Span>) -> Result<Duration, ConfigError> {
    let span = span.map_or(Duration::from_secs(60), |span| span.0);
    if span < Duration::from_secs(60) { Err(invalid(flag, &format!("{span:?}"), "at least 1m")) } else { Ok(span) }
}

fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn address(port: u16) -> Option<SocketAddr> {
    (port != 0).then(|| (Ipv4Addr::UNSPECIFIED, port).into())
}

/// Nothing and less count as one core (core spec §9.1).
fn cpu_cores(millicores: i64) -> usize {
    usize::try_from(millicores).ok().filter(|millicores| *millicores > 0).unwrap_or(1000).div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flags: &[&str], environment: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        let args = Args::try_parse_from([&["controller"], flags].concat()).expect("flags are known");
        let environment: BTreeMap<_, _> = environment.iter().copied().collect();
        Settings::from_args(args, &|name| environment.get(name).map(|&value| value.to_owned()), "replica")
    }

    #[test]
    fn without_a_cluster_name_the_sentence_names_flag_and_variable() {
        let error = read(&[], &[]).unwrap_err();
        assert_eq!(error, ConfigError::MissingClusterName);
        assert_eq!(read(&[], &[("CLUSTER_NAME", "")]).unwrap_err(), ConfigError::MissingClusterName);
        assert!(error.to_string().contains("--cluster-name") && error.to_string().contains("CLUSTER_NAME"));
    }

    #[test]
    fn an_unknown_flag_exits_with_2() {
        let error = Args::try_parse_from(["controller", "--no-such-flag"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn a_flag_beats_the_environment_which_beats_the_default() {
        let settings = read(&["--cluster-name", "flag"], &[("CLUSTER_NAME", "variable")]).unwrap();
        assert_eq!(settings.aws.cluster_name, "flag");
        let settings = read(&[], &[("CLUSTER_NAME", "demo"), ("BATCH_IDLE_DURATION", "2s500ms")]).unwrap();
        assert_eq!(settings.aws.cluster_name, "demo");
        assert_eq!(settings.core.batch_idle_duration, Duration::from_millis(2500));
        assert_eq!(settings.core.batch_max_duration, Duration::from_secs(10));
        assert_eq!(settings.metrics_address, Some("0.0.0.0:8080".parse().unwrap()));
    }

    #[test]
    fn what_the_environment_says_unreadably_counts_as_unset() {
        let settings = read(
            &["--cluster-name=demo"],
            &[("BATCH_MAX_DURATION", "soon"), ("METRICS_PORT", "x"), ("ISOLATED_VPC", "perhaps")],
        )
        .unwrap();
        assert_eq!(settings.core.batch_max_duration, Duration::from_secs(10));
        assert_eq!(settings.metrics_address, Some("0.0.0.0:8080".parse().unwrap()));
        assert!(!settings.aws.isolated_vpc);
        assert!(Args::try_parse_from(["controller", "--batch-max-duration", "soon"]).is_err());
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for (flag, value) in [
            ("--log-level", "loud"),
            ("--preference-policy", "Perhaps"),
            ("--min-values-policy", "Lax"),
            ("--ami-refresh-interval", "59s"),
            ("--cluster-endpoint", "not a url"),
            ("--vm-memory-overhead-percent", "1.5"),
        ] {
            let error = read(&["--cluster-name=demo", flag, value], &[]).unwrap_err().to_string();
            assert!(error.starts_with(flag), "{error}");
        }
    }

    #[test]
    fn gates_not_named_keep_their_defaults_and_unknown_ones_are_ignored() {
        let gates = FeatureGates::read("NodeRepair=true,Unknown=true,SpotToSpotConsolidation=x");
        assert!(gates.is_enabled("NodeRepair") && gates.is_enabled("ReservedCapacity"));
        assert!(!gates.is_enabled("SpotToSpotConsolidation") && !gates.is_enabled("Unknown"));
    }

    #[test]
    fn the_lease_lies_in_the_controllers_namespace() {
        let namespace = |environment: &[(&str, &str)], flags: &[&str]| {
            read(&[&["--cluster-name=demo"], flags].concat(), environment).unwrap().leader_election.unwrap().namespace
        };
        assert_eq!(namespace(&[], &[]), "kube-system");
        assert_eq!(namespace(&[("POD_NAMESPACE", "karpenter")], &[]), "karpenter");
        assert_eq!(namespace(&[("POD_NAMESPACE", "karpenter")], &["--leader-election-namespace=leases"]), "leases");
        assert!(
            read(&["--cluster-name=demo", "--disable-leader-election=true"], &[]).unwrap().leader_election.is_none()
        );
    }

    #[test]
    fn the_controllers_own_node_comes_from_the_downward_api() {
        let own_node = |environment: &[(&str, &str)]| read(&["--cluster-name=demo"], environment).unwrap().own_node;
        assert_eq!(own_node(&[("NODE_NAME", "ip-10-0-0-1")]).as_deref(), Some("ip-10-0-0-1"));
        assert_eq!(own_node(&[("NODE_NAME", "")]), None);
        assert_eq!(own_node(&[]), None);
    }

    #[test]
    fn a_queue_given_as_arn_or_url_is_warned_of() {
        let warnings =
            |queue: &str| read(&["--cluster-name=demo"], &[("INTERRUPTION_QUEUE", queue)]).unwrap().warnings.join("\n");
        for queue in
            ["arn:aws:sqs:us-west-2:123456789012:demo", "https://sqs.us-west-2.amazonaws.com/123456789012/demo"]
        {
            assert!(warnings(queue).contains("is the queue's name, not its ARN or URL"), "{}", warnings(queue));
        }
        assert_eq!(warnings("Karpenter-demo_1.fifo"), "");
    }

    #[test]
    fn concurrency_grows_with_the_cpu() {
        let concurrency = |cores: &str, least, most| {
            read(&["--cluster-name=demo", "--cpu-requests", cores], &[]).unwrap().concurrency(least, most)
        };
        assert_eq!(concurrency("1000", 10, 1000), 10);
        assert_eq!(concurrency("0", 10, 1000), 10);
        assert_eq!(concurrency("2000", 10, 1000), 26);
        assert_eq!(concurrency("60000", 10, 1000), 1000);
        assert_eq!(concurrency("90000", 10, 1000), 1000);
    }
}
