//! Pods that run: for a pod of the controller's Deployment that is bound to a node, the kit's kubelet starts the controller's
//! program with the environment of its container, a token of its ServiceAccount and the AWS identity that EKS would give it,
//! and does what a kubelet does with it: probes, restarts with back-off, a grace period at the end.
//!
//! Reading order: [`Pods`] (which pods, and their tasks), [`life`] (one pod from start to end), [`environment`], [`identity`]
//! and [`agent`] (what its program is told), [`probe`], [`status`] (what is reported).
//!
//! Deliberately absent: images, volumes, init containers and sidecars, network addresses of pods, and the kubelet's own API,
//! without which `kubectl logs` and `kubectl exec` do not work. The log of a container is a file instead, and the last lines
//! of one that failed are its termination message.

pub(crate) mod agent;
mod environment;
mod identity;
mod life;
mod probe;
mod status;

use crate::backend::Program;
use crate::kubelet::{Pace, Runtime};
use crate::recorder::Recorder;
use crate::release::CONTAINER;
use controller_clock::Clock;
use fake_ec2::FakeEc2;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use life::Life;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The label of the chart's pods.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "karpenter");

/// What all pods share.
pub(crate) struct Surroundings {
    /// A client that may do what a kubelet may.
    pub(crate) kube: kube::Client,
    /// The API server's URL.
    pub(crate) kube_url: String,
    /// The authority of its certificate, PEM.
    pub(crate) certificate_authority_pem: String,
    /// The account.
    pub(crate) ec2: FakeEc2,
    /// The EKS cluster's name.
    pub(crate) cluster: String,
    /// The account's URL.
    pub(crate) aws_url: String,
    /// The region.
    pub(crate) region: String,
    /// Whether pods get credentials only from their identity, or placeholders that may do everything.
    pub(crate) identities: bool,
    /// Where the pod identity agent listens.
    pub(crate) agent_url: String,
    /// What is run in the place of the container's image.
    pub(crate) program: Program,
    /// How fast containers start.
    pub(crate) pace: Pace,
    /// Where tokens lie, in a folder for each pod.
    pub(crate) secrets: PathBuf,
    /// Where logs lie, in a folder for each pod.
    pub(crate) logs: PathBuf,
    /// The time of the cluster.
    pub(crate) clock: Clock,
    /// Who is told.
    pub(crate) recorder: Recorder,
}

/// The pods that run.
pub(crate) struct Pods {
    surroundings: Rc<Surroundings>,
    /// By uid.
    running: RefCell<BTreeMap<String, Running>>,
}

struct Running {
    node: String,
    /// The grace period, once the pod is to end.
    end: watch::Sender<Option<Duration>>,
    /// Its task, which ends with this; the processes with it.
    _task: JoinSet<()>,
}

impl Pods {
    pub(crate) fn new(surroundings: Surroundings) -> Self {
        Self { surroundings: Rc::new(surroundings), running: RefCell::default() }
    }

    fn begin(&self, uid: String, node: String, pod: &Pod) {
        let (end, ended) = watch::channel(None);
        let mut task = JoinSet::new();
        task.spawn_local(Life::new(self.surroundings.clone(), pod.clone()).run(ended));
        self.running.borrow_mut().insert(uid, Running { node, end, _task: task });
    }
}

impl Runtime for Pods {
    fn takes(&self, pod: &Pod) -> bool {
        let labelled = pod.labels().get(LABEL.0).is_some_and(|value| value == LABEL.1);
        labelled && container(pod).is_some()
    }

    fn changed(&self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) else { return };
        let is_known = self.running.borrow().contains_key(&uid);
        if !is_known {
            if status::has_ended(pod) {
                return;
            }
            self.begin(uid.clone(), node, pod);
        }
        if pod.metadata.deletion_timestamp.is_some()
            && let Some(running) = self.running.borrow().get(&uid)
        {
            let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
            running.end.send_replace(Some(Duration::from_secs(seconds.max(0).unsigned_abs())));
        }
    }

    fn gone(&self, uid: &str) {
        self.running.borrow_mut().remove(uid);
    }

    fn machine_ended(&self, node: &str) {
        self.running.borrow_mut().retain(|_, running| running.node != node);
    }
}

/// The container that is run.
fn container(pod: &Pod) -> Option<&k8s_openapi::api::core::v1::Container> {
    pod.spec.as_ref()?.containers.iter().find(|container| container.name == CONTAINER)
}
