//! The World of a scenario: a backend, the things that sentences refer to ("the NodeClaim", "the instance"), and the
//! moments they count from ("the launch", "the notice"). Nothing else is remembered from step to step.

use crate::backend::{Backend, BackendName, CONTROLLER, Embedded, Installed, RealTime, SLACK, Setting};
use crate::cloud::{Cloud, Instance};
use crate::compatibility::Census;
use crate::eventually::{self, NotInTime, Seen};
use crate::invariants::Invariants;
use crate::recorder::Recorder;
use anyhow::{Context, anyhow};
use controller_api::NodeClaim;
use controller_clock::Clock;
use jiff::Timestamp;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// How long what was begun may take to end after the last step: a drain that a budget holds up takes minutes, garbage
/// collection looks every two.
const SETTLED_WITHIN: Duration = Duration::from_secs(20 * 60);

/// How long a controller may take to show that it lives.
const ALIVE_WITHIN: Duration = Duration::from_secs(60);

/// What a World is built from.
pub struct Start {
    /// What it is built on.
    pub setting: Setting,
    /// The seed of the cloud's ids, boot times and prices.
    pub seed: u64,
    /// The instance families that EC2 offers; none listed is all.
    pub families: Vec<String>,
    /// Where everything that happens is recorded.
    pub recorder: Recorder,
    /// The folder of the manifests that steps name.
    pub manifests: PathBuf,
}

/// Something that times are counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The last CreateFleet call that launched the NodeClaim in question.
    Launch,
    /// The interruption notice.
    Notice,
    /// The last pod of a workload left its node.
    LastPodLeft,
}

/// What a scenario holds.
pub struct World {
    backend: Box<dyn Backend>,
    recorder: Recorder,
    invariants: Invariants,
    observed: RefCell<Option<String>>,
    moments: RefCell<BTreeMap<Moment, Timestamp>>,
    subject: RefCell<Option<Subject>>,
    manifests: PathBuf,
    /// The replica that led before a step killed it.
    pub former_leader: Option<String>,
    /// Instances that a step launched itself, by the cluster whose tags they carry.
    pub strays: BTreeMap<String, String>,
    /// What there was before another controller took over.
    pub census: Option<Census>,
}

/// The NodeClaim that a scenario is about, with its instance.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The NodeClaim's name.
    pub node_claim: String,
    /// The instance's id.
    pub instance: String,
    /// The node's name, once a step has asked for it.
    pub node: Option<String>,
}

impl World {
    /// Builds a World. The controller is not started yet.
    pub async fn start(start: Start) -> anyhow::Result<Self> {
        let invariants = Invariants::default();
        let Start { setting, seed, families, recorder, .. } = start;
        let backend: Box<dyn Backend> = if setting.on.is_virtual() {
            Box::new(Embedded::start(setting.on, seed, families, recorder.clone(), invariants.clone()).await?)
        } else if setting.on.backend == BackendName::Kind {
            Box::new(Installed::start(setting, seed, families, recorder.clone(), invariants.clone()).await?)
        } else {
            Box::new(RealTime::start(setting, seed, families, recorder.clone(), invariants.clone()).await?)
        };
        Ok(Self {
            backend,
            recorder,
            invariants,
            observed: RefCell::default(),
            moments: RefCell::default(),
            subject: RefCell::default(),
            manifests: start.manifests,
            former_leader: None,
            strays: BTreeMap::new(),
            census: None,
        })
    }

    /// The backend.
    pub fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }

    /// A client of the API server.
    pub fn kube(&self) -> kube::Client {
        self.backend.kube()
    }

    /// The cloud.
    pub fn cloud(&self) -> Rc<dyn Cloud> {
        self.backend.cloud()
    }

    /// The time.
    pub fn clock(&self) -> Clock {
        self.backend.clock()
    }

    /// The present instant.
    pub fn now(&self) -> Timestamp {
        self.backend.clock().now()
    }

    /// The record of what happened.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Where a manifest that a step names stands.
    pub fn manifest(&self, name: &str) -> PathBuf {
        self.manifests.join(name)
    }

    /// The metrics of the controller under test.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        self.backend.metrics().await
    }

    /// A limit as the backend bears it: where time is real, other programs share the machine.
    pub fn bearing(&self, limit: Duration) -> Duration {
        if self.backend.is_real_time() { limit + SLACK } else { limit }
    }

    /// Lets time pass.
    pub async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Waits until a look at the cluster finds what is expected.
    pub async fn eventually<T>(
        &self,
        expected: &str,
        limit: Duration,
        mut look: impl AsyncFnMut() -> anyhow::Result<Seen<T>>,
    ) -> anyhow::Result<T> {
        // Who waits for a controller that has ended, or may not do what it has to, waits in vain.
        let look = async || match look().await? {
            Seen::NotYet(seen) => match self.invariants.refusal() {
                Some(refusal) => Err(anyhow!(refusal)),
                None => self.backend.check_alive().map(|()| Seen::NotYet(seen)),
            },
            seen => Ok(seen),
        };
        let outcome = eventually::eventually(expected, self.bearing(limit), look).await;
        if let Some(late) = outcome.as_ref().err().and_then(|error| error.downcast_ref::<NotInTime>()) {
            self.observe(&late.last_seen);
        }
        outcome
    }

    /// As [`World::eventually`], but the limit counts from a moment of the scenario.
    pub async fn by<T>(
        &self,
        expected: &str,
        moment: Moment,
        limit: Duration,
        look: impl AsyncFnMut() -> anyhow::Result<Seen<T>>,
    ) -> anyhow::Result<T> {
        let passed = Duration::try_from(self.now().duration_since(self.moment(moment)?)).unwrap_or_default();
        let left = limit
            .checked_sub(passed)
            .with_context(|| format!("{passed:?} have passed since the {moment:?} already"))?;
        self.eventually(expected, left, look).await
    }

    /// Remembers what was seen, for the diagnosis of a failure.
    pub fn observe(&self, seen: &str) {
        *self.observed.borrow_mut() = Some(seen.to_owned());
    }

    pub(crate) fn forget_observation(&self) {
        self.observed.borrow_mut().take();
    }

    pub(crate) fn last_observation(&self) -> Option<String> {
        self.observed.borrow().clone()
    }

    /// Remembers a moment.
    pub fn mark(&self, moment: Moment, at: Timestamp) {
        self.moments.borrow_mut().insert(moment, at);
    }

    /// A remembered moment.
    pub fn moment(&self, moment: Moment) -> anyhow::Result<Timestamp> {
        self.moments
            .borrow()
            .get(&moment)
            .copied()
            .ok_or_else(|| anyhow!("no step before this one tells of a {moment:?}"))
    }

    /// Makes a NodeClaim the one that the scenario speaks of.
    pub fn set_subject(&self, claim: &NodeClaim) -> anyhow::Result<Subject> {
        let provider_id = claim.status.as_ref().map(|status| status.provider_id.clone()).unwrap_or_default();
        let instance = provider_id.rsplit('/').next().filter(|id| id.starts_with("i-")).with_context(|| {
            format!("NodeClaim {:?} has no instance (provider id {provider_id:?})", claim.metadata.name)
        })?;
        let subject = Subject {
            node_claim: claim.metadata.name.clone().unwrap_or_default(),
            instance: instance.to_owned(),
            node: None,
        };
        *self.subject.borrow_mut() = Some(subject.clone());
        Ok(subject)
    }

    /// The NodeClaim that the scenario speaks of: the one a step named, or else the only one there is.
    pub async fn subject(&self) -> anyhow::Result<Subject> {
        if let Some(subject) = self.subject.borrow().clone() {
            return Ok(subject);
        }
        let claims = self.node_claims().await?;
        match claims.as_slice() {
            [claim] => self.set_subject(claim),
            others => Err(anyhow!("\"the NodeClaim\" is not one: there are {}", others.len())),
        }
    }

    pub(crate) fn remember_node(&self, name: &str) {
        if let Some(subject) = self.subject.borrow_mut().as_mut() {
            subject.node = Some(name.to_owned());
        }
    }

    pub(crate) fn broken_invariant(&mut self) -> Option<String> {
        self.invariants.broken().or_else(|| self.backend.check_alive().err().map(|error| format!("{error:#}")))
    }

    /// Ends the scenario: what must hold once nothing is asked any more.
    pub async fn finish(mut self) -> anyhow::Result<()> {
        if self.backend.is_controlled() {
            self.settle().await?;
            self.show_life().await?;
        }
        // The invariants are looked at once a second: what the last step saw has to be seen by them too.
        self.pass(Duration::from_secs(2)).await;
        match self.broken_invariant() {
            Some(broken) => Err(anyhow!(broken)),
            None => Ok(()),
        }
    }

    /// A controller that does nothing must not pass where nothing is what was asked for: it takes its lease, at least.
    async fn show_life(&self) -> anyhow::Result<()> {
        self.eventually("the controller takes its lease or writes anything else", ALIVE_WITHIN, async || {
            let lives = self.recorder.has_written(CONTROLLER);
            Ok(Seen::when(lives, (), || "it has written nothing to the API server".into()))
        })
        .await
    }

    /// Once nothing happens any more, what was begun comes to its end: what is deleted goes, every instance of a NodeClaim's
    /// tags has its NodeClaim, and the queue is empty.
    async fn settle(&self) -> anyhow::Result<()> {
        self.eventually("what was begun comes to its end", SETTLED_WITHIN, async || {
            let claims = self.node_claims().await?;
            let going = claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_some()).count();
            let known = |instance: &Instance| {
                let named =
                    |claim: &NodeClaim| claim.status.as_ref().is_some_and(|s| s.provider_id.ends_with(&instance.id));
                claims.iter().any(named) || self.strays.values().any(|stray| *stray == instance.id)
            };
            let instances = self.cloud().instances().await?;
            let unknown = instances.iter().filter(|instance| instance.is_live() && !known(instance)).count();
            let messages = self.cloud().queue_length().await?;
            let rest = || {
                format!(
                    "{going} NodeClaims are going, {unknown} instances are nobody's, {messages} messages are queued"
                )
            };
            Ok(Seen::when(going == 0 && unknown == 0 && messages == 0, (), rest))
        })
        .await
    }
}
