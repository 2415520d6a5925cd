//! Leader election by Lease: which replica may write (core spec §9.3).
//!
//! The rules are client-go's. Whoever holds the Lease renews it every retry period; others take it over once they have not
//! seen it change for a lease duration, measured on their own clock, so that clocks need not agree. A leader that has not
//! managed to renew for the renew deadline steps down before anybody else may start. Giving up in good order empties the
//! Lease, so that the next leader need not wait.

use crate::config::LeaderElection;
use crate::error::{chain, is_already_exists, is_conflict, is_not_found};
use controller_clock::Clock;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;

/// The Lease is not ours any more; nothing may be written from now on.
#[derive(Debug, thiserror::Error)]
#[error("leader election lost: {0}")]
pub(crate) struct LeadershipLost(String);

/// One replica's side of the election.
pub(crate) struct Elector {
    leases: Api<Lease>,
    settings: LeaderElection,
    clock: Clock,
    /// The Lease as last seen, and when it last changed.
    seen: Option<(Lease, Instant)>,
}

enum Attempt {
    Leading,
    Following,
}

impl Elector {
    pub(crate) fn new(kube: kube::Client, settings: LeaderElection, clock: Clock) -> Self {
        Self { leases: Api::namespaced(kube, &settings.namespace), settings, clock, seen: None }
    }

    /// Waits until this replica leads.
    pub(crate) async fn acquire(&mut self) {
        loop {
            match tokio::time::timeout(self.settings.renew_deadline, self.attempt()).await {
                Ok(Ok(Attempt::Leading)) => {
                    tracing::info!(lease = %self.settings.name, identity = %self.settings.identity, "successfully acquired lease");
                    return;
                }
                Ok(Ok(Attempt::Following)) => {}
                Ok(Err(error)) => tracing::error!(error = %chain(&error), "error retrieving resource lock"),
                Err(_) => tracing::error!("error retrieving resource lock, timed out"),
            }
            tokio::time::sleep(self.settings.retry_period).await;
        }
    }

    /// Keeps leading for as long as that goes well.
    pub(crate) async fn hold(&mut self) -> LeadershipLost {
        let mut renewed = Instant::now();
        let mut last = String::from("no answer from the API server");
        loop {
            tokio::time::sleep_until(
                (renewed + self.settings.renew_deadline).min(Instant::now() + self.settings.retry_period),
            )
            .await;
            let left = self.settings.renew_deadline.saturating_sub(renewed.elapsed());
            if left.is_zero() {
                return LeadershipLost(last);
            }
            match tokio::time::timeout(left, self.attempt()).await {
                Ok(Ok(Attempt::Leading)) => renewed = Instant::now(),
                Ok(Ok(Attempt::Following)) => return LeadershipLost("another replica holds the lease".into()),
                Ok(Err(error)) => last = chain(&error),
                Err(_) => return LeadershipLost(last),
            }
        }
    }

    /// Gives the Lease up, if we hold it; within the renew deadline, as the program is about to end.
    pub(crate) async fn release(mut self) {
        let Some((lease, _)) = self.seen.take().filter(|(lease, _)| holder(lease) == self.settings.identity) else {
            return;
        };
        let now = MicroTime(self.clock.now());
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..lease.spec.clone().unwrap_or_default()
        };
        let lease = Lease { spec: Some(spec), ..lease };
        let parameters = PostParams::default();
        let write = self.leases.replace(&self.settings.name, &parameters, &lease);
        match tokio::time::timeout(self.settings.renew_deadline, write).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(error = %chain(&error), "failed to release lock"),
            Err(_) => tracing::error!("failed to release lock, timed out"),
        }
    }

    /// Takes or renews the Lease if that is allowed.
    async fn attempt(&mut self) -> Result<Attempt, kube::Error> {
        // A leader writes without reading first: the resourceVersion it wrote last tells whether it still leads.
        if let Some((lease, _)) = self.seen.clone().filter(|(lease, _)| holder(lease) == self.settings.identity) {
            match self.write(lease).await {
                Err(error) if is_conflict(&error) || is_not_found(&error) => self.seen = None,
                outcome => return outcome.map(|()| Attempt::Leading),
            }
        }
        let Some(current) = self.leases.get_opt(&self.settings.name).await? else {
            return match self.create().await {
                Err(error) if is_already_exists(&error) => Ok(Attempt::Following),
                outcome => outcome.map(|()| Attempt::Leading),
            };
        };
        if !self.seen.as_ref().is_some_and(|(seen, _)| seen.spec == current.spec) {
            self.seen = Some((current.clone(), Instant::now()));
        }
        let is_ours = holder(&current) == self.settings.identity;
        if !is_ours && !holder(&current).is_empty() && !self.is_expired() {
            return Ok(Attempt::Following);
        }
        match self.write(current).await {
            Err(error) if is_conflict(&error) => Ok(Attempt::Following),
            outcome => outcome.map(|()| Attempt::Leading),
        }
    }

    fn is_expired(&self) -> bool {
        self.seen.as_ref().is_none_or(|(_, changed)| changed.elapsed() >= self.settings.lease_duration)
    }

    async fn create(&mut self) -> Result<(), kube::Error> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.settings.name.clone()),
                namespace: Some(self.settings.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec(None)),
        };
        let lease = self.leases.create(&PostParams::default(), &lease).await?;
        self.seen = Some((lease, Instant::now()));
        Ok(())
    }

    async fn write(&mut self, lease: Lease) -> Result<(), kube::Error> {
        let lease = Lease { spec: Some(self.spec(lease.spec.as_ref())), ..lease };
        let lease = self.leases.replace(&self.settings.name, &PostParams::default(), &lease).await?;
        self.seen = Some((lease, Instant::now()));
        Ok(())
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(self.clock.now());
        let ours = before.filter(|spec| spec.holder_identity.as_deref() == Some(self.settings.identity.as_str()));
        let transitions = before.map(|spec| spec.lease_transitions.unwrap_or(0) + i32::from(ours.is_none()));
        LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: i32::try_from(self.settings.lease_duration.as_secs()).ok(),
            acquire_time: ours.and_then(|spec| spec.acquire_time.clone()).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions.unwrap_or(0)),
            ..LeaseSpec::default()
        }
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_kube::{FakeKube, FaultRule, Options, Outcome, resources};
    use std::time::Duration;

    fn cluster() -> (FakeKube, Clock) {
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
        (FakeKube::new(Options::new(clock.clone())), clock)
    }

    fn replica(kube: &FakeKube, clock: &Clock, identity: &str) -> Elector {
        let client = kube::Client::new(kube.service(), "kube-system");
        Elector::new(client, LeaderElection::new(identity), clock.clone())
    }

    fn lease(kube: &FakeKube) -> LeaseSpec {
        let lease = kube.client("test").get(&resources::LEASES, Some("kube-system"), "karpenter-leader-election");
        let lease: Lease = serde_json::from_value((*lease.expect("the lease exists")).clone()).unwrap();
        lease.spec.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_replica_leads_and_renews_every_two_seconds() {
        let (kube, clock) = cluster();
        let mut first = replica(&kube, &clock, "first");
        first.acquire().await;
        let start = clock.now();
        let spec = lease(&kube);
        assert_eq!(spec.holder_identity.as_deref(), Some("first"));
        assert_eq!(spec.lease_duration_seconds, Some(15));
        assert!(tokio::time::timeout(Duration::from_secs(61), first.hold()).await.is_err(), "it still leads");
        let spec = lease(&kube);
        assert_eq!(spec.renew_time.unwrap().0.duration_since(start).as_secs(), 60);
        assert_eq!(spec.acquire_time.unwrap().0, start);
        assert_eq!(spec.lease_transitions, Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_crashed_leader_is_followed_after_the_lease_duration() {
        let (kube, clock) = cluster();
        let mut first = replica(&kube, &clock, "first");
        first.acquire().await;
        let mut second = replica(&kube, &clock, "second");
        assert!(
            tokio::time::timeout(Duration::from_secs(14), second.acquire()).await.is_err(),
            "not before 15 seconds"
        );
        drop(first);
        let start = clock.now();
        second.acquire().await;
        assert!(clock.now().duration_since(start).as_secs() <= 4);
        assert_eq!(lease(&kube).holder_identity.as_deref(), Some("second"));
        assert_eq!(lease(&kube).lease_transitions, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_leaves_in_good_order_is_followed_at_the_next_try() {
        let (kube, clock) = cluster();
        let mut first = replica(&kube, &clock, "first");
        first.acquire().await;
        let mut second = replica(&kube, &clock, "second");
        assert!(tokio::time::timeout(Duration::from_secs(1), second.acquire()).await.is_err());
        first.release().await;
        let start = clock.now();
        second.acquire().await;
        assert!(clock.now().duration_since(start).as_secs() <= 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_cannot_renew_steps_down_before_another_may_start() {
        let (kube, clock) = cluster();
        let mut first = replica(&kube, &clock, "first");
        first.acquire().await;
        let start = clock.now();
        let resource = Some(resources::LEASES.plural.into());
        kube.fault(FaultRule { resource, outcome: Outcome::Unavailable, ..FaultRule::default() });
        let lost = first.hold().await;
        let lasted = clock.now().duration_since(start).as_secs();
        assert!((10..15).contains(&lasted), "it led for {lasted}s more, {lost}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_finds_another_in_the_lease_steps_down() {
        let (kube, clock) = cluster();
        let mut first = replica(&kube, &clock, "first");
        first.acquire().await;
        let mut taken =
            (*kube.client("test").get(&resources::LEASES, Some("kube-system"), "karpenter-leader-election").unwrap())
                .clone();
        taken["spec"]["holderIdentity"] = "second".into();
        kube.client("test").update(&resources::LEASES, Some("kube-system"), taken).unwrap();
        let start = clock.now();
        let lost = first.hold().await;
        assert_eq!(lost.to_string(), "leader election lost: another replica holds the lease");
        assert!(clock.now().duration_since(start).as_secs() <= 2);
    }
}
