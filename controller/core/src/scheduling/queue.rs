//! The order in which pods are placed, and when to give up.

use crate::resources::{CPU, MEMORY};
use crate::snapshot::{Pod, PodName};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Pods still to be placed: large ones first, because small ones fill the gaps.
pub(super) struct Queue {
    pods: VecDeque<Arc<Pod>>,
    /// How long the queue was when a pod was put back. Meeting it again at that length means that a whole round placed
    /// nothing.
    put_back_at: BTreeMap<PodName, usize>,
}

impl Queue {
    /// Orders by CPU, then memory, both falling; then the older, then the smaller uid, then the name.
    pub(super) fn new(mut pods: Vec<Arc<Pod>>) -> Self {
        let size = |pod: &Pod| (pod.requests.get(CPU), pod.requests.get(MEMORY));
        pods.sort_by(|a, b| {
            size(b).cmp(&size(a)).then_with(|| (a.created, &a.uid, &a.name).cmp(&(b.created, &b.uid, &b.name)))
        });
        Self { pods: pods.into(), put_back_at: BTreeMap::new() }
    }

    /// The next pod; `None` when there is none or when no progress is being made.
    pub(super) fn pop(&mut self) -> Option<Arc<Pod>> {
        let next = self.pods.front()?;
        if self.put_back_at.get(&next.name) == Some(&self.pods.len()) {
            return None;
        }
        self.pods.pop_front()
    }

    /// Puts a pod that could not be placed at the end: a later placement may make room for it.
    pub(super) fn put_back(&mut self, pod: Arc<Pod>) {
        let name = pod.name.clone();
        self.pods.push_back(pod);
        self.put_back_at.insert(name, self.pods.len());
    }
}
