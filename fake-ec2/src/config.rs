//! What an embedder may choose. Every default is the one the scenarios run with.

use crate::cloud::capacity::CapacityType;
use crate::cloud::quota::VcpuClass;
use crate::cloud::throttle::Throttling;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a [`crate::FakeEc2`] is set up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The one region it plays; [`regions`](crate::regions) names those in the catalogue. Any other region has no instance
    /// types.
    pub region: String,
    /// The account that owns everything.
    pub account: String,
    /// Where ids and tie-breaks come from: the same seed and the same requests give the same answers.
    pub seed: u64,
    /// How close to AWS it plays.
    pub profile: Profile,
    /// The instance families offered (`m5`, `c7g`, …); empty means the whole catalogue. A scenario that needs few types
    /// starts and answers faster with few.
    pub families: Vec<String>,
    /// The Kubernetes minor version (`1.36`) of clusters and of the newest images.
    pub kubernetes_version: String,
    /// How long an instance stays in each passing state.
    pub pace: Pace,
    /// From an event to its message in a queue.
    pub event_delay: Duration,
    /// How long Describe calls do not see a new instance, a new launch template or changed tags; real EC2 gives no promise.
    pub consistency_delay: Duration,
    /// Account quotas.
    pub limits: Limits,
    /// How many calls of each action are answered.
    pub throttling: Throttling,
    /// Whether policies decide who may do what.
    pub iam: Iam,
    /// What policies are told of `aws:SecureTransport`. The fake speaks plain HTTP and plays the TLS in front of it: a
    /// policy that denies plain HTTP, as the usual one of an interruption queue does, would else deny everything.
    pub secure_transport: bool,
    /// Whether signatures are checked, against [`Config::access_keys`] and the keys that the account itself has issued.
    pub verify_signatures: bool,
    /// Access key IDs and secrets of the account's administrators.
    pub access_keys: BTreeMap<String, String>,
}

/// How close to AWS it plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// As AWS does.
    #[default]
    Strict,
    /// As people who come from moto's server expect: there is a default VPC with a subnet in each zone, images that nobody has
    /// registered can be launched, and `POST /moto-api/reset` begins anew.
    Lenient,
}

/// Whether policies decide who may do what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Iam {
    /// Whoever can connect can do everything.
    #[default]
    Off,
    /// Sessions of roles may do what the role's policies allow; access keys the account has not issued are its
    /// administrator's.
    Enforce,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            region: "us-west-2".into(),
            account: "123456789012".into(),
            seed: 0,
            profile: Profile::Strict,
            families: Vec::new(),
            kubernetes_version: "1.36".into(),
            pace: Pace::default(),
            // fidelity: assumed: EventBridge promises no latency; half a second is typical.
            event_delay: Duration::from_millis(500),
            consistency_delay: Duration::ZERO,
            limits: Limits::default(),
            throttling: Throttling::default(),
            iam: Iam::Off,
            secure_transport: true,
            verify_signatures: false,
            access_keys: BTreeMap::new(),
        }
    }
}

/// How long an instance stays in each passing state. AWS promises none of these.
// fidelity: assumed: durations as commonly seen; the order of states is documented.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pace {
    /// `pending` before `running`.
    pub pending: Duration,
    /// `shutting-down` before `terminated`.
    pub shutting_down: Duration,
    /// `stopping` before `stopped`.
    pub stopping: Duration,
    /// How long a terminated instance is still described: "usually less than an hour" in the EC2 guide.
    pub terminated_visible: Duration,
    /// Status checks report `initializing` for this long after `running`.
    pub status_checks: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            pending: Duration::from_secs(5),
            shutting_down: Duration::from_secs(30),
            stopping: Duration::from_secs(30),
            terminated_visible: Duration::from_secs(3600),
            status_checks: Duration::from_secs(150),
        }
    }
}

/// Account quotas. vCPUs are not limited unless set; fleets and networks as AWS limits them by default.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Limits {
    /// vCPUs of running on-demand instances of the standard families (A, C, D, H, I, M, R, T and Z).
    pub on_demand_vcpus: Option<u32>,
    /// vCPUs of running spot instances of the standard families.
    pub spot_vcpus: Option<u32>,
    /// vCPUs of running instances of the other classes.
    #[serde(with = "crate::state::pairs")]
    pub vcpus_by_class: BTreeMap<(CapacityType, VcpuClass), u32>,
    /// Fleets of type maintain and request that are not deleted.
    pub fleets: u32,
    /// Units of one fleet.
    pub target_capacity_of_a_fleet: u32,
    /// Units of all fleets of type maintain and request.
    pub target_capacity_of_all_fleets: u32,
    /// What networks are made of.
    #[serde(default)]
    pub network: NetworkLimits,
}

/// Quotas of VPCs and what is in them.
// fidelity: documented(VPC User Guide, Quotas: the defaults; as many internet gateways as VPCs); network interfaces, 5,000 on
// AWS, are not limited unless set
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkLimits {
    /// VPCs in the region.
    pub vpcs: u32,
    /// Subnets of one VPC.
    pub subnets_per_vpc: u32,
    /// IPv4 ranges of one VPC.
    pub cidr_blocks_per_vpc: u32,
    /// Security groups in the region.
    pub security_groups: u32,
    /// Rules of one security group in each direction, for IPv4 and for IPv6.
    pub rules_per_security_group: u32,
    /// Security groups of one network interface.
    pub security_groups_per_interface: u32,
    /// Route tables of one VPC.
    pub route_tables_per_vpc: u32,
    /// Routes of one route table, its VPC's own not counted.
    pub routes_per_route_table: u32,
    /// Internet gateways in the region.
    pub internet_gateways: u32,
    /// Network interfaces in the region, those of instances among them.
    pub network_interfaces: Option<u32>,
}

impl Default for NetworkLimits {
    fn default() -> Self {
        Self {
            vpcs: 5,
            subnets_per_vpc: 200,
            cidr_blocks_per_vpc: 5,
            security_groups: 2_500,
            rules_per_security_group: 60,
            security_groups_per_interface: 5,
            route_tables_per_vpc: 200,
            routes_per_route_table: 500,
            internet_gateways: 5,
            network_interfaces: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            on_demand_vcpus: None,
            spot_vcpus: None,
            vcpus_by_class: BTreeMap::new(),
            // fidelity: documented(EC2 User Guide, Fleet quotas)
            fleets: 1_000,
            target_capacity_of_a_fleet: 10_000,
            target_capacity_of_all_fleets: 100_000,
            network: NetworkLimits::default(),
        }
    }
}

impl Limits {
    /// The vCPUs of a class that may run in a market.
    pub(crate) fn vcpus(&self, capacity_type: CapacityType, class: VcpuClass) -> Option<u32> {
        match (class, capacity_type) {
            (VcpuClass::Standard, CapacityType::OnDemand) => self.on_demand_vcpus,
            (VcpuClass::Standard, CapacityType::Spot) => self.spot_vcpus,
            _ => self.vcpus_by_class.get(&(capacity_type, class)).copied(),
        }
    }
}
