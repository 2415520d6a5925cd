//! What the operator decided about AWS, as meant; `controller/src/config.rs` turns flags and environment into it.

use std::net::IpAddr;
use std::time::Duration;

/// Settings of the AWS provider (spec §7.1).
#[derive(Clone, Debug)]
pub struct Settings {
    /// The EKS cluster's name; also the value of the ownership tags.
    pub cluster_name: String,
    /// The API server's URL that nodes are told. `None`: asked of EKS at start-up.
    pub cluster_endpoint: Option<String>,
    /// The API server's CA, base64 of PEM, that nodes are told. The shell fills it from its own kube configuration.
    pub cluster_ca_bundle: Option<String>,
    /// The address of the cluster's DNS Service (`kube-system/kube-dns`); its family decides the cluster's address family.
    pub cluster_dns: Option<IpAddr>,
    /// Whether the Kubernetes version is asked of EKS rather than of the API server.
    pub eks_control_plane: bool,
    /// No prices are fetched and no instance profile is listed.
    pub isolated_vpc: bool,
    /// The name of the SQS queue with interruption messages.
    pub interruption_queue: Option<String>,
    /// The share of memory that the hypervisor keeps, 0.075 by default.
    pub vm_memory_overhead_percent: f64,
    /// Network interfaces that pods cannot use.
    pub reserved_enis: u32,
    /// Whether node classes are held ready without the authorization dry run.
    pub disable_dry_run: bool,
    /// How long discovered images are believed.
    pub ami_refresh_interval: Duration,
    /// How long discovered subnets are believed.
    pub subnet_refresh_interval: Duration,
    /// Core's feature gate `ReservedCapacity`.
    pub reserved_capacity: bool,
}

impl Settings {
    /// The defaults of every setting that has one.
    pub fn new(cluster_name: impl Into<String>) -> Self {
        Self {
            cluster_name: cluster_name.into(),
            cluster_endpoint: None,
            cluster_ca_bundle: None,
            cluster_dns: None,
            eks_control_plane: false,
            isolated_vpc: false,
            interruption_queue: None,
            vm_memory_overhead_percent: 0.075,
            reserved_enis: 0,
            disable_dry_run: false,
            ami_refresh_interval: Duration::from_secs(60),
            subnet_refresh_interval: Duration::from_secs(60),
            reserved_capacity: true,
        }
    }

    /// Whether nodes get IPv6 addresses.
    pub fn ipv6(&self) -> bool {
        self.cluster_dns.is_some_and(|address| address.is_ipv6())
    }
}
