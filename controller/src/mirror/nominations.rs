//! Decisions taken but not yet visible: nodes that expect pods, and nodes that are being disrupted.
//!
//! Both live in memory only. After a restart a nomination is made again by the next scheduling pass, and a mark is given
//! up: the disruption loop takes the taint off every node it does not remember (core spec §7.2).

use super::Mirror;
use super::changes::lock;
use super::stores::State;
use jiff::Timestamp;

impl Mirror {
    /// Spares a node from disruption until `until`, because pods are expected on it. Nominating again extends.
    pub(crate) fn nominate(&self, node: &str, until: Timestamp) {
        let mut state = lock(&self.state);
        if let Some(key) = state.key_of(node) {
            let known = state.nominated.entry(key).or_insert(until);
            *known = until.max(*known);
        }
        drop(state);
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Whether any node is nominated past `now`: the next decision may differ without anything having changed.
    pub(crate) fn has_nominations(&self, now: Timestamp) -> bool {
        lock(&self.state).nominated.values().any(|until| *until > now)
    }

    /// Marks nodes as being disrupted: their pods are scheduled elsewhere, and nothing else disrupts them.
    pub(crate) fn mark_for_deletion<'a>(&self, nodes: impl IntoIterator<Item = &'a str>) {
        let mut state = lock(&self.state);
        for node in nodes {
            if let Some(key) = state.key_of(node) {
                state.marked.insert(key);
            }
        }
        drop(state);
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Takes marks back.
    pub(crate) fn unmark_for_deletion<'a>(&self, nodes: impl IntoIterator<Item = &'a str>) {
        let mut state = lock(&self.state);
        for node in nodes {
            if let Some(key) = state.key_of(node) {
                state.marked.remove(&key);
            }
        }
        drop(state);
        self.revision.send_modify(|revision| *revision += 1);
    }

    /// Whether the node of this Node's or NodeClaim's name is marked.
    pub(crate) fn is_marked(&self, node: &str) -> bool {
        let state = lock(&self.state);
        state.key_of(node).is_some_and(|key| state.marked.contains(&key))
    }
}

impl State {
    pub(super) fn nominated_until(&self, key: &str) -> Option<Timestamp> {
        self.nominated.get(key).copied()
    }

    /// A claim that gets its instance keeps what was decided about it under its provider id.
    pub(super) fn follow_launch(&mut self, claim: &str, provider_id: &str) {
        let before = format!("nodeclaim/{claim}");
        if let Some(until) = self.nominated.remove(&before) {
            self.nominated.insert(provider_id.to_owned(), until);
        }
        if self.marked.remove(&before) {
            self.marked.insert(provider_id.to_owned());
        }
    }
}
