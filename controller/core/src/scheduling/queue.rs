//! The order in which pods are placed, and when to give up.

use crate::resources::{CPU, MEMORY};
use crate::snapshot::Pod;
use std::collections::VecDeque;
use std::sync::Arc;

/// Pods still to be placed, by their number: large ones first, because small ones fill the gaps.
pub(super) struct Queue {
    pods: VecDeque<usize>,
    /// How long the queue was when a pod was put back; 0 if it never was. Meeting it again at that length means that a whole
    /// round placed nothing.
    put_back_at: Vec<usize>,
}

impl Queue {
    /// Orders by CPU, then memory, both falling; then the older, then the smaller uid, then the name.
    pub(super) fn new(pods: &[Arc<Pod>], mut numbers: Vec<usize>) -> Self {
        let size = |pod: &Pod| std::cmp::Reverse((pod.requests.get(CPU), pod.requests.get(MEMORY)));
        numbers.sort_by_cached_key(|number| {
            let pod = &pods[*number];
            (size(pod), pod.created, pod.uid.as_str(), &pod.name)
        });
        Self { pods: numbers.into(), put_back_at: vec![0; pods.len()] }
    }

    /// The next pod; `None` when there is none or when no progress is being made.
    pub(super) fn pop(&mut self) -> Option<usize> {
        let next = *self.pods.front()?;
        if self.put_back_at[next] == self.pods.len() {
            return None;
        }
        self.pods.pop_front()
    }

    /// Puts a pod that could not be placed at the end: a later placement may make room for it.
    pub(super) fn put_back(&mut self, pod: usize) {
        self.pods.push_back(pod);
        self.put_back_at[pod] = self.pods.len();
    }

    /// Pods that are left, in order.
    pub(super) fn left(self) -> Vec<usize> {
        self.pods.into()
    }
}
