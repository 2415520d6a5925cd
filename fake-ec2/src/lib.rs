//! EC2, SQS and friends over their real wire protocols, as one value.
//!
//! Three layers that meet in one line: `wire` reads a request, `actions` calls the model, `wire` writes the answer.
//! [`cloud`](crate::Control) is the model behind them: instances with a lifecycle, capacity pools, spot notices, launch
//! templates, queues, event rules. It is deterministic: ids come from [`Config::seed`], time from the clock it is given.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use controller_clock::Clock;
//! use fake_ec2::{Bootstrap, Config, FakeEc2};
//!
//! let ec2 = FakeEc2::new(Config::default(), Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap()));
//! ec2.cloud().bootstrap(Bootstrap::named("demo"));
//! let request = http::Request::post("/").body("Action=DescribeSubnets&Version=2016-11-15".into()).unwrap();
//! assert_eq!(ec2.handle(request).await.status(), 200);
//! # }
//! ```
//!
//! Behaviours are marked in the source by comments beginning with `fidelity:` and one of `documented(page)`,
//! `observed(date)` or `assumed`.

mod actions;
mod bootstrap;
mod clock;
mod cloud;
mod config;
mod connector;
mod control;
mod control_http;
mod coverage;
mod cut;
mod error;
mod fault;
mod iam;
mod journal;
mod lenient;
mod server;
mod socket;
mod state;
#[cfg(feature = "testcontainers")]
pub mod testcontainers;
mod waiting;
mod wire;

pub use bootstrap::{Bootstrap, Bootstrapped, is_cluster_name};
pub use cloud::capacity::CapacityType;
pub use cloud::catalogue::{Gpu, InstanceType, NeuronDevice, Offering, Zone, regions};
pub use cloud::identity::{AccessEntry, Cluster, Credentials, InstanceProfile, PodIdentityAssociation, Role};
pub use cloud::image::{Image, Snapshot};
pub use cloud::instance::{
    Instance, InstanceProfileReference, NetworkInterface, ScheduledEvent, State, TemplateUse, Volume,
};
pub use cloud::key_pair::KeyPair;
pub use cloud::launch_template::{
    BlockDevice, LaunchSpecification, LaunchTemplate, LaunchTemplateVersion, MetadataOptions,
    NetworkInterfaceSpecification, SpotOptions,
};
pub use cloud::members::Members;
pub use cloud::network::{
    Cidr, CidrAssociation, Destination, FreeInterface, InternetGateway, Peer, PrivateDnsNames, Route, RouteAssociation,
    RouteTable, RuleSpecification, SecurityGroup, SecurityGroupRule, Subnet, Target, Vpc,
};
pub use cloud::quota::VcpuClass;
pub use cloud::reservation::{CapacityReservation, PlacementGroup};
pub use cloud::spot_request::{SpotRequest, SpotState};
pub use cloud::tags::Tags;
pub use cloud::throttle::{Rate, Throttling};
pub use cloud::volume::FreeVolume;
pub use config::{Config, Iam, Limits, NetworkLimits, Pace, Profile};
pub use connector::InProcessClient;
pub use control::{Control, Impairment, UnknownResource, WholeInstance};
pub use control_http::is_access_key_id;
pub use coverage::actions;
pub use error::ApiError;
pub use fault::{Calls, FaultId, FaultRule, Outcome};
pub use journal::{Denial, JournalEntry};
pub use server::FakeEc2;
pub use socket::SocketOptions;
pub use state::StateError;
pub use state::file::StateFile;
pub use wire::Service;
