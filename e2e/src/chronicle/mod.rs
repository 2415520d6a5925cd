//! What happened in a scenario over its time, as data: the lives of pods, NodeClaims, nodes and instances, the calls and
//! events between them, the steps, and what it cost. The schema is documented in docs/report.md.
//!
//! A [`Chronicler`] is told what was seen, by whoever watches a backend (`follow` does for the embedded one), and puts
//! the [`Chronicle`] together. Nothing here knows where an object came from. A chronicle stays small whatever the scenario
//! does: what goes beyond a bound is left out, counted, and named in [`Chronicle::left_out`].

mod bounded;
mod chronicler;
mod follow;
mod lanes;
mod objects;

pub use chronicler::{Chronicler, SeenInstance};
pub(crate) use chronicler::{Sighting, call_objects};
pub(crate) use follow::{follow, follow_instances};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// What happened in a scenario. Times are milliseconds since its begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chronicle {
    /// The instant of the scenario's clock at which it began.
    pub began_at: Timestamp,
    /// When it ended.
    pub ended_ms: u64,
    /// The steps that were begun: the n-th belongs to the n-th step of the scenario.
    pub steps: Vec<StepSpan>,
    /// The pods, in groups by their owner.
    pub pods: Lanes<PodFacts, PodPhase>,
    /// The NodeClaims, in groups by their NodePool.
    pub node_claims: Lanes<NodeClaimFacts, NodeClaimPhase>,
    /// The nodes, in groups by their NodePool.
    pub nodes: Lanes<NodeFacts, NodePhase>,
    /// The instances, in groups by their NodePool.
    pub instances: Lanes<InstanceFacts, InstancePhase>,
    /// The pods that somebody asked to be evicted.
    pub evictions: Vec<Eviction>,
    /// The calls to AWS that change something. Reads, dry runs and the queue's calls stand as numbers in the journal's
    /// `calls`.
    pub calls: Vec<CloudCall>,
    /// The Kubernetes events of the controller; an event that repeats stands once.
    pub events: Vec<Event>,
    /// What the running instances cost.
    pub cost: Cost,
    /// What was left out to keep the chronicle small: the path of the list, and how many of its entries. Empty where it is
    /// whole.
    pub left_out: BTreeMap<String, u64>,
}

/// When a step of a scenario was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSpan {
    /// When it began.
    pub began_ms: u64,
    /// When it ended, well or badly.
    pub ended_ms: u64,
}

/// Everything of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(
    serialize = "F: Serialize, P: Phase + Serialize",
    deserialize = "F: Deserialize<'de>, P: Phase + Deserialize<'de>"
))]
pub struct Lanes<F, P> {
    /// How many there were in all.
    pub seen: u64,
    /// The life of each, in the order of appearance.
    pub lanes: Vec<Lane<F, P>>,
    /// Of each group with more than [`GROUP_LANES`] members: how many were in each phase, from each change to the next.
    pub counts: BTreeMap<String, Vec<Count<P>>>,
}

impl<F, P> Default for Lanes<F, P> {
    fn default() -> Self {
        Self { seen: 0, lanes: Vec::new(), counts: BTreeMap::new() }
    }
}

/// The life of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lane<F, P> {
    /// Its name; of a pod, with its namespace.
    pub name: String,
    /// What it belongs to.
    pub group: String,
    /// What is known of it, as last seen.
    #[serde(flatten)]
    pub facts: F,
    /// The phases it entered, in order.
    pub phases: Vec<Entered<P>>,
}

/// The begin of a phase. It lasts until the next, or to the end of the scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entered<P> {
    /// When.
    pub at_ms: u64,
    /// Which.
    pub phase: P,
}

/// How many members of a group were in which phase from an instant on. Those that are gone are not counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(serialize = "P: Phase + Serialize", deserialize = "P: Phase + Deserialize<'de>"))]
pub struct Count<P> {
    /// From when.
    pub at_ms: u64,
    /// The number in each phase; a phase that is not named has none.
    pub phases: BTreeMap<P, u64>,
}

/// A phase in the life of an object.
pub trait Phase: Copy + Debug + Ord {
    /// Its word in reports.
    fn name(self) -> &'static str;

    /// What it means, whatever kind of object it is.
    fn stage(self) -> Stage;
}

/// What the phases of all kinds come down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Something has to be found or made for it.
    Waiting,
    /// It is on its way to service.
    Starting,
    /// It does what it is there for.
    Serving,
    /// It still serves, and something is wrong or about to happen.
    Warned,
    /// It is on its way out.
    Ending,
    /// It is no more.
    Gone,
}

/// Declares the phases of one kind, each with its word and its stage.
macro_rules! phases {
    ($(#[$about:meta])* $kind:ident { $($(#[$doc:meta])* $variant:ident = $word:literal, $stage:ident;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $kind {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)*
        }

        impl $kind {
            /// All of them, in the order of a life.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }

        impl Phase for $kind {
            fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            fn stage(self) -> Stage {
                match self { $(Self::$variant => Stage::$stage,)* }
            }
        }
    };
}

phases! {
    /// The phases of a pod.
    PodPhase {
        /// No node yet.
        Pending = "pending", Waiting;
        /// Bound to a node, not running yet.
        Bound = "bound", Starting;
        /// Its containers run.
        Running = "running", Serving;
        /// Its containers ended well.
        Succeeded = "succeeded", Ending;
        /// Its containers ended badly.
        Failed = "failed", Ending;
        /// Evicted: it shuts down, and honours its grace period.
        Evicted = "evicted", Ending;
        /// Deleted by other means than eviction: it shuts down.
        Terminating = "terminating", Ending;
        /// Removed from the API server.
        Gone = "gone", Gone;
    }
}

phases! {
    /// The phases of a NodeClaim.
    NodeClaimPhase {
        /// The object is there.
        Created = "created", Waiting;
        /// Its instance was launched.
        Launched = "launched", Starting;
        /// Its node has joined.
        Registered = "registered", Starting;
        /// Its node was ready for pods.
        Initialized = "initialized", Serving;
        /// The controller has decided to disrupt it.
        Disrupted = "disrupted", Warned;
        /// It is being deleted: its node drains, its instance is terminated.
        Terminating = "terminating", Ending;
        /// Removed from the API server.
        Gone = "gone", Gone;
    }
}

phases! {
    /// The phases of a node.
    NodePhase {
        /// It has joined, and is not ready yet.
        Joined = "joined", Starting;
        /// It is ready.
        Ready = "ready", Serving;
        /// It was ready, and no longer is.
        NotReady = "not-ready", Warned;
        /// It takes no new pods: cordoned by hand.
        Cordoned = "cordoned", Warned;
        /// It takes no new pods: tainted by the controller, which is about to remove it.
        Disrupted = "disrupted", Warned;
        /// It is being deleted.
        Terminating = "terminating", Ending;
        /// Removed from the API server.
        Gone = "gone", Gone;
    }
}

phases! {
    /// The phases of an instance: EC2's states, and the time between a spot notice and its end.
    InstancePhase {
        /// It boots.
        Pending = "pending", Starting;
        /// It runs.
        Running = "running", Serving;
        /// It runs, and EC2 has said that it will take it back.
        Notice = "notice", Warned;
        /// It is being stopped.
        Stopping = "stopping", Ending;
        /// It is stopped.
        Stopped = "stopped", Ending;
        /// It is being terminated.
        ShuttingDown = "shutting-down", Ending;
        /// It is terminated.
        Terminated = "terminated", Gone;
    }
}

/// The group of pods that nothing controls.
pub const NO_OWNER: &str = "no owner";

/// What is known of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFacts {
    /// The node it is, or was, bound to.
    pub node: Option<String>,
}

/// What is known of a NodeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeClaimFacts {
    /// Its node's name.
    pub node: Option<String>,
    /// Its instance's id.
    pub instance: Option<String>,
    /// Its instance type.
    pub instance_type: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// `spot`, `on-demand` or `reserved`.
    pub capacity_type: Option<String>,
    /// Why it was disrupted or deleted: the reason of its condition `DisruptionReason`, or else that of the controller's
    /// event that says why it must go. Absent where nothing says so.
    pub reason: Option<String>,
}

/// What is known of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Its instance's id.
    pub instance: Option<String>,
    /// Its instance type.
    pub instance_type: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// `spot`, `on-demand` or `reserved`.
    pub capacity_type: Option<String>,
}

/// What is known of an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InstanceFacts {
    /// Its type.
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// `spot` or `on-demand`.
    pub capacity_type: String,
    /// Its price when it was first seen, in US dollars per hour. Absent where it has none.
    pub usd_per_hour: Option<f64>,
    /// EC2's code for why it stopped or ended.
    pub state_reason: Option<String>,
}

/// A pod that somebody asked to be evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// The pod, with its namespace.
    pub pod: String,
    /// Who asked: the client's user agent.
    pub caller: String,
    /// When the eviction was first asked for.
    pub asked_ms: u64,
    /// How often it was refused, as by a PodDisruptionBudget.
    pub refusals: u64,
    /// When it was granted.
    pub evicted_ms: Option<u64>,
}

/// A call to AWS that changes something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudCall {
    /// When it was answered.
    pub at_ms: u64,
    /// The service and action, such as `ec2:CreateFleet`.
    pub action: String,
    /// Who asked: the first word of the client's user agent.
    pub caller: String,
    /// The HTTP status of the answer; 0 where no answer came.
    pub status: u16,
    /// The instances, templates or other things that the request names, and the instances that the answer names: at most
    /// [`CALL_OBJECTS`].
    pub objects: Vec<String>,
    /// The error codes in the answer, each with how often it stands there.
    pub errors: BTreeMap<String, u64>,
}

/// A Kubernetes event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it was published.
    pub at_ms: u64,
    /// When it was published last.
    pub last_ms: u64,
    /// How often it was published.
    pub count: u64,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its reason.
    pub reason: String,
    /// The object it is about, as `Kind/name`, with the namespace before the name of a namespaced one.
    pub object: String,
    /// Its message.
    pub message: String,
}

/// What the running instances cost. EC2 charges from `running` to `shutting-down`, and so is it counted here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The sum of the prices of all running instances, from each change to the next.
    pub steps: Vec<CostStep>,
    /// The highest of them, in US dollars per hour.
    pub peak_usd_per_hour: f64,
    /// All of it together, in US dollars.
    pub total_usd: f64,
}

/// A change of the cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostStep {
    /// From when.
    pub at_ms: u64,
    /// US dollars per hour.
    pub usd_per_hour: f64,
}

/// Of a group with more members, this many lanes stand in a chronicle: those that came first and those that came last. The
/// counts show the rest. More lanes than this are a texture to the eye.
pub const GROUP_LANES: usize = 24;
/// As many lanes of one kind stand in a chronicle: eight full groups. At some 400 bytes each they come to 80 KB.
pub const LANES: usize = 192;
/// As many groups of one kind are counted.
pub const GROUPS: usize = 16;
/// Phases of one lane, the first half and the last half of them: a node that flaps all day does not fill the chronicle.
pub const LANE_PHASES: usize = 40;
/// Points of one series of counts, or of the cost: where there are more, every second one goes, as often as it takes. The
/// chart is not twice as many pixels wide.
pub const POINTS: usize = 400;
/// Evictions, calls and events, of each the first half and the last half.
pub const ENTRIES: usize = 300;
/// Objects that a call names.
pub const CALL_OBJECTS: usize = 8;
