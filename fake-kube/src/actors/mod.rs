//! What else lives in a cluster: the scheduler and the controllers of kube-controller-manager, each optional.
//!
//! One task runs them all. It follows a watch per kind, keeps the ordered [`view::View`], tells every actor what changed
//! and lets those with work do it, one after the other. Nothing ticks: an actor that waits for an instant names it, and
//! a cluster in which nothing happens costs nothing. The same events in the same order give the same writes.
//!
//! Left to others: kubelets (the embedder plays them), garbage collection by owner references and graceful deletion
//! (the server itself does both), endpoints, provisioning of volumes, autoscaling.

mod amount;
mod api;
mod daemon_sets;
mod deployments;
mod disruption;
mod event_expiry;
mod jobs;
mod namespaces;
mod needs;
mod node_lifecycle;
mod objects;
mod pod_gc;
mod pods;
mod queue;
mod replica_sets;
mod scheduler;
mod selector;
mod stateful_sets;
mod taint_eviction;
mod view;
mod volume_binding;
mod volumes;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};

use self::api::Api;
use self::view::{Change, Kind, View};
use crate::{FakeKube, Watch, WatchEvent};

/// How long controllers that count pods let changes gather: everything that happens within one virtual instant is then
/// counted once, and a rollout of n pods costs n rather than n² steps. The genuine controllers gather by being slow.
const PATIENCE: SignedDuration = SignedDuration::from_millis(20);

/// Tells whether the instance behind a provider id still exists.
pub type InstanceExists = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Which actors run. All do by default.
#[derive(Clone)]
pub struct Options {
    /// kube-scheduler.
    pub scheduler: bool,
    /// Deployments → ReplicaSets.
    pub deployments: bool,
    /// ReplicaSets → pods.
    pub replica_sets: bool,
    /// StatefulSets → pods.
    pub stateful_sets: bool,
    /// DaemonSets → pods.
    pub daemon_sets: bool,
    /// Jobs → pods.
    pub jobs: bool,
    /// The status of PodDisruptionBudgets.
    pub disruption: bool,
    /// Taints from conditions, expiry of Leases, nodes whose instance is gone.
    pub node_lifecycle: bool,
    /// Eviction of pods that do not tolerate a `NoExecute` taint.
    pub taint_eviction: bool,
    /// Removal of pods whose node is gone and of too many finished ones.
    pub pod_garbage_collection: bool,
    /// Volumes and claims find each other.
    pub volume_binding: bool,
    /// Events are forgotten after an hour.
    pub event_expiry: bool,
    /// Default objects of namespaces, and emptying those that are deleted.
    pub namespaces: bool,
    /// Asked about a node that is not ready; `false` has the node deleted, as a cloud's node lifecycle controller does.
    pub instance_exists: Option<InstanceExists>,
}

impl Default for Options {
    fn default() -> Self {
        Self::every(true)
    }
}

impl Options {
    /// No actor at all, to switch single ones on.
    pub fn none() -> Self {
        Self::every(false)
    }

    fn every(on: bool) -> Self {
        Self {
            scheduler: on,
            deployments: on,
            replica_sets: on,
            stateful_sets: on,
            daemon_sets: on,
            jobs: on,
            disruption: on,
            node_lifecycle: on,
            taint_eviction: on,
            pod_garbage_collection: on,
            volume_binding: on,
            event_expiry: on,
            namespaces: on,
            instance_exists: None,
        }
    }
}

/// A controller that lives on changes of the view.
trait Actor: Send {
    /// Notes what a change calls for; writes nothing.
    fn observe(&mut self, view: &View, change: &Change, now: Timestamp);

    /// When [`Actor::act`] has something to do: the past for at once, `None` for never as things are.
    fn next_due(&self) -> Option<Timestamp>;

    /// Does what is due. What it writes comes back through [`Actor::observe`] before it acts again.
    fn act(&mut self, view: &View, now: Timestamp);
}

/// Runs the chosen actors until dropped.
pub async fn run(kube: FakeKube, options: Options) {
    let expiry = async {
        if options.event_expiry {
            event_expiry::run(&kube).await;
        }
    };
    futures::join!(play(&kube, options.clone()), expiry);
}

async fn play(kube: &FakeKube, options: Options) {
    let clock = kube.clock().clone();
    let client = kube.client("kube-controller-manager");
    let mut watches = Kind::ALL.map(|kind| (kind, client.watch(&kind.resource())));
    let mut actors = cast(kube, options);
    let mut view = View::default();
    loop {
        take_in(&mut watches, &mut view, &mut actors, clock.now());
        let mut acted = false;
        for index in 0..actors.len() {
            let now = clock.now();
            if actors[index].next_due().is_some_and(|due| due <= now) {
                actors[index].act(&view, now);
                acted = true;
                take_in(&mut watches, &mut view, &mut actors, now);
            }
        }
        if acted {
            // Others (kubelets, the controller under test) get their turn between rounds.
            tokio::task::yield_now().await;
            continue;
        }
        let due = actors.iter().filter_map(|actor| actor.next_due()).min();
        tokio::select! {
            biased;
            (kind, event) = next(&mut watches) => apply(kind, event, &mut view, &mut actors, clock.now()),
            () = sleep_until(due, clock.now()) => {}
        }
    }
}

fn cast(kube: &FakeKube, options: Options) -> Vec<Box<dyn Actor>> {
    let Options {
        scheduler,
        deployments,
        replica_sets,
        stateful_sets,
        daemon_sets,
        jobs,
        disruption,
        node_lifecycle,
        taint_eviction,
        pod_garbage_collection,
        volume_binding,
        event_expiry: _,
        namespaces,
        instance_exists,
    } = options;
    let api = |component| Api::new(kube, kube.clock().clone(), component);
    let mut actors: Vec<Box<dyn Actor>> = vec![];
    let mut join = |wanted: bool, actor: &mut dyn FnMut() -> Box<dyn Actor>| {
        if wanted {
            actors.push(actor());
        }
    };
    join(namespaces, &mut || Box::new(namespaces::Namespaces::new(api("namespace-controller"))));
    join(node_lifecycle, &mut || {
        Box::new(node_lifecycle::NodeLifecycle::new(api("node-controller"), instance_exists.clone()))
    });
    join(taint_eviction, &mut || Box::new(taint_eviction::TaintEviction::new(api("taint-eviction-controller"))));
    join(pod_garbage_collection, &mut || Box::new(pod_gc::PodGarbageCollection::new(api("pod-garbage-collector"))));
    join(deployments, &mut || Box::new(deployments::Deployments::new(api("deployment-controller"))));
    join(replica_sets, &mut || Box::new(replica_sets::ReplicaSets::new(api("replicaset-controller"))));
    join(stateful_sets, &mut || Box::new(stateful_sets::StatefulSets::new(api("statefulset-controller"))));
    join(daemon_sets, &mut || Box::new(daemon_sets::DaemonSets::new(api("daemonset-controller"))));
    join(jobs, &mut || Box::new(jobs::Jobs::new(api("job-controller"))));
    join(volume_binding, &mut || Box::new(volume_binding::VolumeBinding::new(api("persistentvolume-controller"))));
    join(disruption, &mut || Box::new(disruption::Disruption::new(api("disruption-controller"))));
    join(scheduler, &mut || Box::new(scheduler::Scheduler::new(api("default-scheduler"))));
    actors
}

type Watches = [(Kind, Watch); Kind::ALL.len()];

/// Takes in everything the watches hold now, kind by kind.
fn take_in(watches: &mut Watches, view: &mut View, actors: &mut [Box<dyn Actor>], now: Timestamp) {
    for (kind, watch) in watches {
        while let Some(event) = watch.try_next() {
            apply(*kind, event, view, actors, now);
        }
    }
}

fn apply(kind: Kind, event: WatchEvent, view: &mut View, actors: &mut [Box<dyn Actor>], now: Timestamp) {
    let deleted = matches!(event, WatchEvent::Deleted(_));
    if let Some(change) = view.apply(kind, event.object().clone(), deleted) {
        for actor in actors {
            actor.observe(view, &change, now);
        }
    }
}

/// Waits for an event of any watch; the kinds' order breaks ties.
async fn next(watches: &mut Watches) -> (Kind, WatchEvent) {
    poll_fn(|context| {
        for (kind, watch) in watches.iter_mut() {
            if let Poll::Ready(Some(event)) = watch.poll_next_unpin(context) {
                return Poll::Ready((*kind, event));
            }
        }
        Poll::Pending
    })
    .await
}

async fn sleep_until(due: Option<Timestamp>, now: Timestamp) {
    match due {
        Some(due) => {
            let wait = std::time::Duration::try_from(due.duration_since(now)).unwrap_or_default();
            tokio::time::sleep(wait).await;
        }
        None => std::future::pending().await,
    }
}
