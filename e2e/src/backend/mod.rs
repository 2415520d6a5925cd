//! What a scenario runs on. One trait, one World, the same features; a backend states what it can do.

mod embedded;
mod installed;
mod mirror;
mod observe;
mod process;
mod real_time;
mod seen;

pub use embedded::Embedded;
pub use installed::Installed;
pub(crate) use process::Process;
pub(crate) use process::{Program, definitions_of, keep_log};
pub(crate) use real_time::{HEARTBEAT, follow_audit, instance_exists, process_environment, remove_dead_nodes};
pub use real_time::{RealTime, Setting};

use crate::cloud::Cloud;
use controller_clock::Clock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// The user agent by which the controller under test is known in the journal.
pub const CONTROLLER: &str = "karpenter";

/// What limits get added where time is real: other programs share the machine.
pub const SLACK: Duration = Duration::from_secs(20);

/// A backend by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum BackendName {
    /// Kubernetes, EC2 and kubelets in one process; with our controller in virtual time, with any other on sockets and in
    /// real time.
    Embedded,
    /// A genuine control plane of child processes, with fake-ec2 and our kubelet, in real time.
    Apiserver,
    /// A kind cluster, with the controller installed by its chart and fake-ec2 beside it, in real time.
    Kind,
    /// EKS on AWS (not there yet).
    Eks,
}

impl fmt::Display for BackendName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Embedded => "embedded",
            Self::Apiserver => "apiserver",
            Self::Kind => "kind",
            Self::Eks => "eks",
        })
    }
}

/// A cluster with a cloud and a controller under test.
#[async_trait::async_trait(?Send)]
pub trait Backend {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// A client of its API server.
    fn kube(&self) -> kube::Client;

    /// What may be done to its cloud.
    fn cloud(&self) -> Rc<dyn Cloud>;

    /// Its time.
    fn clock(&self) -> Clock;

    /// The replica that goes by this name in the leader election.
    fn replica_named(&self, identity: &str) -> Option<usize>;

    /// The environment of the controller. Replicas that are started later see what is changed in it.
    fn environment(&mut self) -> &mut BTreeMap<String, String>;

    /// Sets an environment variable of the controller, as its Deployment would, or takes it away.
    fn set_environment(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => drop(self.environment().insert(name.to_owned(), value.to_owned())),
            None => drop(self.environment().remove(name)),
        }
    }

    /// Lets replicas that are started later run on a node of the cluster.
    fn place_controller(&mut self, node: &str) {
        self.set_environment("NODE_NAME", Some(node));
    }

    /// Starts a replica of the controller under test. Replicas count from 0.
    async fn start_controller(&mut self, replica: usize) -> anyhow::Result<()>;

    /// Ends a replica as a crash would: nothing it was about to do is done.
    async fn kill_controller(&mut self, replica: usize) -> anyhow::Result<()>;

    /// Stops every replica as a Deployment that is scaled down does, and starts as many of the other controller on the same
    /// cluster and cloud, with the same environment.
    async fn replace_controller(&mut self) -> anyhow::Result<()>;

    /// Whether a replica of the controller runs.
    fn is_controlled(&self) -> bool;

    /// The metrics of all running replicas, in the text format that Prometheus reads.
    async fn metrics(&self) -> anyhow::Result<String>;

    /// Whether it lives in real time. What a step looks at once may then come a moment late, and every limit has
    /// [`SLACK`] added to it.
    fn is_real_time(&self) -> bool {
        false
    }

    /// An error where a part of the backend ended on its own, such as a controller that gave up.
    fn check_alive(&self) -> anyhow::Result<()>;
}
