//! What recently could not be had: offerings, whole markets, subnets. Each entry lasts three minutes and marking again
//! extends it (spec §2.6, §3.4).

use crate::cache::{after, lock};
use controller_clock::Clock;
use controller_core::catalog::CapacityType;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

const LIFETIME: Duration = Duration::from_secs(180);

/// The memory of refusals. Bounded by what exists: types × zones × markets, and subnets; expired entries are dropped on
/// each look.
#[derive(Debug)]
pub(crate) struct Unavailable {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    offerings: BTreeMap<(CapacityType, String, String), Timestamp>,
    markets: BTreeMap<CapacityType, Timestamp>,
    subnets: BTreeMap<String, Timestamp>,
    revision: u64,
    /// When the first entry expires.
    next_expiry: Option<Timestamp>,
}

impl Unavailable {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// One way of buying one type.
    pub(crate) fn mark(&self, instance_type: &str, zone: &str, market: CapacityType) {
        self.change(|state, expiry| {
            state.offerings.insert((market, instance_type.to_owned(), zone.to_owned()), expiry);
        });
    }

    /// A market as a whole.
    pub(crate) fn mark_market(&self, market: CapacityType) {
        self.change(|state, expiry| {
            state.markets.insert(market, expiry);
        });
    }

    /// A subnet without free addresses.
    pub(crate) fn mark_subnet(&self, subnet: &str) {
        self.change(|state, expiry| {
            state.subnets.insert(subnet.to_owned(), expiry);
        });
    }

    /// A number that changes whenever an answer of this memory may have changed.
    pub(crate) fn revision(&self) -> u64 {
        self.current().revision
    }

    pub(crate) fn is_marked(&self, instance_type: &str, zone: &str, market: CapacityType) -> bool {
        let state = self.current();
        if state.markets.contains_key(&market) {
            return true;
        }
        // The map is nearly always empty; then no key is built.
        !state.offerings.is_empty()
            && state.offerings.contains_key(&(market, instance_type.to_owned(), zone.to_owned()))
    }

    pub(crate) fn is_subnet_marked(&self, subnet: &str) -> bool {
        self.current().subnets.contains_key(subnet)
    }

    fn change(&self, apply: impl FnOnce(&mut State, Timestamp)) {
        let expiry = after(self.clock.now(), LIFETIME);
        let mut state = self.current();
        apply(&mut state, expiry);
        state.revision += 1;
        state.next_expiry = Some(state.next_expiry.map_or(expiry, |next| next.min(expiry)));
    }

    /// The state without what has expired.
    fn current(&self) -> std::sync::MutexGuard<'_, State> {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        if state.next_expiry.is_some_and(|next| next <= now) {
            state.offerings.retain(|_, expiry| *expiry > now);
            state.markets.retain(|_, expiry| *expiry > now);
            state.subnets.retain(|_, expiry| *expiry > now);
            let remaining = state.offerings.values().chain(state.markets.values()).chain(state.subnets.values());
            state.next_expiry = remaining.min().copied();
            state.revision += 1;
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn marks_last_three_minutes_and_marking_again_extends() {
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
        let memory = Unavailable::new(clock);
        let marked = || memory.is_marked("m5.large", "us-west-2a", CapacityType::Spot);
        assert!(!marked());
        memory.mark("m5.large", "us-west-2a", CapacityType::Spot);
        let revision = memory.revision();
        assert!(marked());
        assert!(!memory.is_marked("m5.large", "us-west-2b", CapacityType::Spot));
        assert!(!memory.is_marked("m5.large", "us-west-2a", CapacityType::OnDemand));
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(memory.revision(), revision);
        memory.mark("m5.large", "us-west-2a", CapacityType::Spot);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert!(marked());
        let revision = memory.revision();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!marked());
        assert!(memory.revision() > revision, "an expiry changes the answers too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_marked_market_hides_every_offering_of_it() {
        let memory = Unavailable::new(Clock::virtual_from(Timestamp::UNIX_EPOCH));
        memory.mark_market(CapacityType::Spot);
        assert!(memory.is_marked("m5.large", "us-west-2a", CapacityType::Spot));
        assert!(!memory.is_marked("m5.large", "us-west-2a", CapacityType::OnDemand));
        memory.mark_subnet("subnet-1");
        assert!(memory.is_subnet_marked("subnet-1") && !memory.is_subnet_marked("subnet-2"));
    }
}
