//! What a scenario may do to the cloud, and see of it.

mod ec2;
mod fake;
mod in_process;
mod remote;

pub use ec2::Ec2;
pub use fake::FakeCloud;
pub(crate) use fake::STS;
pub use remote::{RemoteEc2, Start};

use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// An EC2 instance, as far as scenarios, kubelets, chronicle and invariants ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Such as `i-0123456789abcdef0`.
    pub id: String,
    /// Such as `m5.large`.
    pub instance_type: String,
    /// The id of its image.
    pub image_id: String,
    /// The name of its image, such as `amazon-eks-node-al2023-x86_64-standard-1.36-v20251217`.
    pub image_name: String,
    /// The zone's name.
    pub zone: String,
    /// Where it runs.
    pub subnet: String,
    /// The names of its security groups.
    pub security_groups: BTreeSet<String>,
    /// `pending`, `running`, `shutting-down`, `terminated`, `stopping` or `stopped`.
    pub state: String,
    /// When that began.
    pub state_since: Timestamp,
    /// The code of why it stopped or ended.
    pub state_reason: Option<String>,
    /// Whether it was bought on the spot market.
    pub spot: bool,
    /// When it was launched.
    pub launched_at: Timestamp,
    /// When EC2 takes it back, once a notice has said so.
    pub reclaim_at: Option<Timestamp>,
    /// What it costs from now on, in US dollars.
    pub usd_per_hour: Option<f64>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// `x86_64` or `arm64`.
    pub architecture: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The zone's id.
    pub zone_id: String,
    /// The private DNS name.
    pub private_dns_name: String,
    /// The private address.
    pub private_ip: String,
    /// The user data, decoded.
    pub user_data: String,
    /// The role of its instance profile.
    pub role: Option<String>,
}

impl Instance {
    /// Whether it still exists or is about to.
    pub fn is_live(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "running" | "stopping" | "stopped")
    }
}

/// One call that was made to AWS.
#[derive(Clone, Debug)]
pub struct CloudCall {
    /// When it was made.
    pub at: Timestamp,
    /// The service and action, such as `ec2:CreateFleet`.
    pub name: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, String>,
    /// The status of the answer.
    pub status: u16,
    /// The body of the answer.
    pub answer: String,
}

impl CloudCall {
    /// Whether it launches something if it succeeds: not a mere check of permissions.
    pub fn is_launch(&self) -> bool {
        matches!(self.name.as_str(), "ec2:CreateFleet" | "ec2:RunInstances")
            && self.parameters.get("DryRun").is_none_or(|dry| dry != "true")
    }

    /// The parameters whose name ends like this, such as `.InstanceType`.
    pub fn ending(&self, suffix: &str) -> impl Iterator<Item = (&str, &str)> {
        self.parameters
            .iter()
            .filter(move |(key, _)| key.ends_with(suffix))
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// One way to buy a type: what the catalogue and the market say of it.
#[derive(Clone, Debug)]
pub struct SpotOffer {
    /// The instance type.
    pub instance_type: String,
    /// The zone's name.
    pub zone: String,
    /// US dollars per hour.
    pub price: f64,
    /// How often instances of it are reclaimed: 0 (under 5 % a month) to 4 (over 20 %).
    pub interruption_band: u8,
    /// Virtual CPUs.
    pub vcpus: u32,
}

/// What a scenario may do to the cloud. What a backend's cloud cannot do is an error that says so.
#[async_trait::async_trait(?Send)]
pub trait Cloud {
    /// Every instance there is or was within the last hour.
    async fn instances(&self) -> anyhow::Result<Vec<Instance>>;

    /// Every call so far, in the order of the answers.
    async fn calls(&self) -> anyhow::Result<Vec<CloudCall>>;

    /// The names of the launch templates there are.
    async fn launch_templates(&self) -> anyhow::Result<BTreeSet<String>>;

    /// The names of the instance profiles there are, each with its role.
    async fn instance_profiles(&self) -> anyhow::Result<BTreeMap<String, Option<String>>>;

    /// The spot offers of the market, with the facts of their types.
    async fn spot_offers(&self) -> anyhow::Result<Vec<SpotOffer>>;

    /// Announces that a spot instance will be reclaimed in two minutes.
    async fn interrupt(&self, instance: &str) -> anyhow::Result<()>;

    /// Recommends a rebalance for a spot instance.
    async fn recommend_rebalance(&self, instance: &str) -> anyhow::Result<()>;

    /// Terminates an instance as somebody with the AWS CLI would.
    async fn terminate(&self, instance: &str) -> anyhow::Result<()>;

    /// Launches an on-demand instance with these tags, as somebody with the AWS CLI would.
    async fn launch(&self, tags: &BTreeMap<String, String>) -> anyhow::Result<String>;

    /// Launches an on-demand m5.large as the Auto Scaling group of a managed node group does: with the tags of both, a role
    /// that the cluster admits, and user data that joins it.
    async fn launch_in_node_group(&self, group: &str) -> anyhow::Result<String>;

    /// Sets a tag on the subnet in a zone.
    async fn tag_subnet_in(&self, zone: &str, key: &str, value: &str) -> anyhow::Result<()>;

    /// Sets a tag on every subnet of the cluster.
    async fn tag_subnets(&self, key: &str, value: &str) -> anyhow::Result<()>;

    /// Sets a tag on the cluster's security group.
    async fn tag_security_group(&self, key: &str, value: &str) -> anyhow::Result<()>;

    /// Puts a body into the interruption queue.
    async fn send_to_queue(&self, body: &str) -> anyhow::Result<()>;

    /// Deletes the interruption queue with all that is in it, or makes it.
    async fn have_queue(&self, exists: bool) -> anyhow::Result<()>;

    /// How many messages the interruption queue holds, received ones included.
    async fn queue_length(&self) -> anyhow::Result<usize>;

    /// Admits the node role to the cluster by an access entry, or takes it away.
    async fn admit_node_role(&self, admit: bool) -> anyhow::Result<()>;

    /// Lets the account trust the tokens of the cluster's ServiceAccounts, or no longer.
    async fn associate_oidc_provider(&self, associated: bool) -> anyhow::Result<()>;

    /// Makes launches of a type in a zone and market (`spot`, `on-demand`) fail for lack of capacity, or no longer; each may
    /// be `*`.
    async fn exhaust(&self, instance_type: &str, zone: &str, market: &str, exhausted: bool) -> anyhow::Result<()>;

    /// Takes the spot price of a type in a zone out of the price history.
    async fn withdraw_spot(&self, instance_type: &str, zone: &str) -> anyhow::Result<()>;

    /// Leaves the cluster's subnet in a zone with so many free addresses.
    async fn set_free_addresses(&self, zone: &str, count: u32) -> anyhow::Result<()>;

    /// Makes an EC2 action fail with an error code: so many calls, or all until [`Cloud::heal`].
    async fn fail(&self, action: &str, code: &str, status: u16, calls: Option<usize>) -> anyhow::Result<()>;

    /// Lets everything work again that [`Cloud::fail`] and [`Cloud::deny`] made fail.
    async fn heal(&self) -> anyhow::Result<()>;

    /// Makes a status check of an instance fail from now on.
    async fn impair(&self, instance: &str) -> anyhow::Result<()>;

    /// Schedules maintenance of an instance in a week, by its code, such as `instance-retirement`.
    async fn schedule_maintenance(&self, instance: &str, code: &str) -> anyhow::Result<()>;

    /// Publishes a release of the images for the cluster's version, by its date, such as `20260115`.
    async fn release_images(&self, date: &str) -> anyhow::Result<()>;

    /// Refuses an EC2 action to everyone for want of permission.
    async fn deny(&self, action: &str) -> anyhow::Result<()>;

    /// The value of an event for the queue as EventBridge shapes it.
    fn event(&self, detail_type: &str, source: &str, detail: Value) -> Value;
}
