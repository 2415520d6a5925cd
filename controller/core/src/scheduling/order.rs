//! In which order planned nodes are offered a pod: those with the fewest pods first.
//!
//! Among nodes equally full, one that has just got a pod comes first and a new one comes last. That is what upstream's sorting
//! comes to as long as it keeps the order of equals.

/// Planned nodes by their place, in order.
#[derive(Default)]
pub(super) struct Order {
    /// Place and number of pods.
    nodes: Vec<(usize, usize)>,
}

impl Order {
    /// Adds a node with its first pod.
    pub(super) fn add(&mut self, node: usize) {
        let place = self.nodes.partition_point(|(_, pods)| *pods <= 1);
        self.nodes.insert(place, (node, 1));
    }

    /// Counts one more pod on the node that is at `place` in the order.
    pub(super) fn grow(&mut self, place: usize) {
        let (node, pods) = self.nodes.remove(place);
        let new = self.nodes.partition_point(|(_, other)| *other <= pods);
        self.nodes.insert(new, (node, pods + 1));
    }

    /// The nodes with their place in the order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.nodes.iter().map(|(node, _)| *node).enumerate()
    }
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn the_emptiest_come_first_and_among_equals_the_one_that_has_just_grown() {
        let mut order = Order::default();
        (0..3).for_each(|node| order.add(node));
        let nodes = |order: &Order| order.iter().map(|(_, node)| node).collect::<Vec<_>>();
        assert_eq!(nodes(&order), [0, 1, 2]);
        order.grow(0);
        assert_eq!(nodes(&order), [1, 2, 0]);
        order.grow(0);
        assert_eq!(nodes(&order), [2, 1, 0], "1 has two pods now, like 0, and comes before it");
        order.add(3);
        assert_eq!(nodes(&order), [2, 3, 1, 0]);
    }
}
