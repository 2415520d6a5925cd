//! Kubernetes, EC2, kubelets and the controller in one process and one thread, in virtual time. Needs nothing; nothing in it
//! touches a socket or a file.

use super::observe::{observe_ec2, observe_kube};
use super::seen::Watcher;
use super::{Backend, CONTROLLER};
use crate::account::{self, Pace, REGION};
use crate::chronicle::follow;
use crate::cloud::Cloud;
use crate::fake_cluster::{self, FakeCluster, Options};
use crate::invariants::Invariants;
use crate::recorder::Recorder;
use crate::scenario::On;
use crate::under_test::UnderTest;
use anyhow::{Context, anyhow, bail};
use controller::RunHandles;
use controller_clock::Clock;
use jiff::Timestamp;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The instant at which every scenario begins.
const EPOCH: &str = "2026-01-01T00:00:00Z";
/// The embedded cluster.
pub struct Embedded {
    cluster: FakeCluster,
    clock: Clock,
    /// Whether the controller under test is one that does nothing.
    idle: bool,
    /// The environment of the controller, as its Deployment would set it.
    environment: BTreeMap<String, String>,
    replicas: BTreeMap<usize, Replica>,
    /// How many replicas were started so far: each has a name of its own, as each pod of a Deployment has.
    started: usize,
    /// What runs in the cluster. Dropping it ends it.
    parts: RefCell<JoinSet<anyhow::Result<()>>>,
}

struct Replica {
    identity: String,
    run: RefCell<JoinSet<anyhow::Result<()>>>,
    handles: RunHandles,
}

impl Embedded {
    /// Sets the stage of a scenario. The controller is not started.
    pub async fn start(
        on: On,
        seed: u64,
        families: Vec<String>,
        recorder: Recorder,
        invariants: Invariants,
    ) -> anyhow::Result<Self> {
        let epoch: Timestamp = EPOCH.parse().context("the epoch")?;
        let clock = Clock::virtual_from(epoch);
        recorder.set_clock(clock.clone());
        let account = account::Options {
            clock: clock.clone(),
            seed,
            region: REGION.into(),
            families,
            served: None,
            pace: Pace::default(),
            issuer: None,
            enforce_iam: on.enforce_iam,
        };
        let cluster = FakeCluster::new(Options { account, journal_entries: 0, users: BTreeMap::new() });
        if on.enforce_iam {
            cluster.account.deploy_stack(on.without.as_ref())?;
        }
        let changed = Arc::new(Notify::new());
        observe_kube(&cluster.kube, recorder.clone(), changed.clone());
        observe_ec2(&cluster.account.ec2, recorder.clone(), invariants.clone(), changed.clone());
        let mut parts = cluster.start(&controller_api::crds(), &recorder)?;
        let chronicle = cluster.kube.client("chronicle");
        parts.spawn_local(follow(&chronicle, &cluster.account.ec2, clock.clone(), recorder.chronicler().clone()));
        let watcher = Watcher {
            kube: cluster.kube.client("invariants"),
            ec2: cluster.account.ec2.clone(),
            clock: clock.clone(),
            recorder,
        };
        parts.spawn_local(watcher.watch(invariants, changed));
        let mut environment = cluster.account.controller_environment();
        environment.extend(on.environment);
        let idle = on.controller == UnderTest::Nothing;
        Ok(Self {
            cluster,
            clock,
            idle,
            environment,
            replicas: BTreeMap::new(),
            started: 0,
            parts: RefCell::new(parts),
        })
    }
}

#[async_trait::async_trait(?Send)]
impl Backend for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn kube(&self) -> kube::Client {
        self.cluster.client("trysquare")
    }

    fn cloud(&self) -> Rc<dyn Cloud> {
        self.cluster.account.cloud.clone()
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn replica_named(&self, identity: &str) -> Option<usize> {
        self.replicas.iter().find(|(_, replica)| replica.identity == identity).map(|(number, _)| *number)
    }

    fn environment(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.environment
    }

    async fn start_controller(&mut self, replica: usize) -> anyhow::Result<()> {
        self.started += 1;
        let identity = format!("karpenter-{}", self.started);
        let handles = RunHandles::default();
        let mut run = JoinSet::new();
        if self.idle {
            run.spawn_local(std::future::pending());
            self.replicas.insert(replica, Replica { identity, run: RefCell::new(run), handles });
            return Ok(());
        }
        let settings = fake_cluster::controller_settings(&self.environment, &identity)?;
        let clients = self.cluster.aws_clients().await?;
        let shutdown = CancellationToken::new();
        run.spawn_local(controller::run_with(
            settings,
            self.cluster.client(CONTROLLER),
            clients,
            self.clock.clone(),
            shutdown,
            handles.clone(),
        ));
        self.replicas.insert(replica, Replica { identity, run: RefCell::new(run), handles });
        Ok(())
    }

    async fn kill_controller(&mut self, replica: usize) -> anyhow::Result<()> {
        let mut killed = self.replicas.remove(&replica).with_context(|| format!("replica {replica} does not run"))?;
        killed.run.get_mut().shutdown().await;
        Ok(())
    }

    async fn replace_controller(&mut self) -> anyhow::Result<()> {
        bail!("in virtual time there is no other controller")
    }

    fn is_controlled(&self) -> bool {
        !self.replicas.is_empty()
    }

    async fn metrics(&self) -> anyhow::Result<String> {
        Ok(self.replicas.values().map(|replica| replica.handles.metrics.text()).collect())
    }

    fn check_alive(&self) -> anyhow::Result<()> {
        for (number, replica) in &self.replicas {
            match replica.run.borrow_mut().try_join_next() {
                None => {}
                Some(Ok(Ok(()))) => return Err(anyhow!("replica {number} of the controller ended by itself")),
                Some(Ok(Err(error))) => return Err(error.context(format!("replica {number} of the controller ended"))),
                Some(Err(error)) => return Err(anyhow!(error).context(format!("replica {number} of the controller"))),
            }
        }
        match self.parts.borrow_mut().try_join_next() {
            None => Ok(()),
            Some(ended) => Err(anyhow!("a part of the embedded cluster ended: {ended:?}")),
        }
    }
}
