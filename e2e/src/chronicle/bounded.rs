//! Collections that stay small: a list that keeps its two ends, and a series that becomes coarser.

use std::collections::VecDeque;

/// A list that keeps its first and its last entries, half of its limit each, and counts those it lost between them.
#[derive(Clone, Debug)]
pub(super) struct Ends<T> {
    first: Vec<T>,
    last: VecDeque<T>,
    half: usize,
    lost: u64,
}

impl<T> Ends<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { first: Vec::new(), last: VecDeque::new(), half: limit / 2, lost: 0 }
    }

    pub(super) fn push(&mut self, entry: T) {
        if self.first.len() < self.half {
            self.first.push(entry);
            return;
        }
        if self.last.len() == self.half {
            self.last.pop_front();
            self.lost += 1;
        }
        self.last.push_back(entry);
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.last)
    }
}

/// The changes of a value over time. Of several changes at one instant the last counts; where there are too many, every
/// second one goes.
#[derive(Clone, Debug)]
pub(super) struct Series<T> {
    points: Vec<(u64, T)>,
    limit: usize,
    lost: u64,
}

impl<T: PartialEq> Series<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { points: Vec::new(), limit, lost: 0 }
    }

    pub(super) fn push(&mut self, at_ms: u64, value: T) {
        match self.points.last_mut() {
            Some((last_ms, last)) if *last_ms == at_ms => *last = value,
            Some((_, last)) if *last == value => {}
            _ => self.points.push((at_ms, value)),
        }
        if self.points.len() > self.limit {
            let mut index = 0;
            let before = self.points.len();
            // The second of each pair stays: it is what holds from there on. So does the newest.
            self.points.retain(|_| {
                index += 1;
                index % 2 == 0 || index == before
            });
            self.lost += (before - self.points.len()) as u64;
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn points(&self) -> &[(u64, T)] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_ends_and_counts_what_it_lost() {
        let mut list = Ends::new(4);
        (1..=3).for_each(|n| list.push(n));
        assert_eq!((list.iter().copied().collect::<Vec<_>>(), list.lost()), (vec![1, 2, 3], 0));
        (4..=10).for_each(|n| list.push(n));
        assert_eq!((list.iter().copied().collect::<Vec<_>>(), list.lost()), (vec![1, 2, 9, 10], 6));
    }

    #[test]
    fn a_series_keeps_the_last_value_of_an_instant_and_only_changes() {
        let mut series = Series::new(10);
        [(0, 1), (0, 2), (5, 2), (7, 3)].into_iter().for_each(|(at, value)| series.push(at, value));
        assert_eq!(series.points(), [(0, 2), (7, 3)]);
    }

    #[test]
    fn a_long_series_becomes_coarser_and_keeps_its_present_value() {
        let mut series = Series::new(10);
        (0..1000).for_each(|n| series.push(n, n));
        assert!(series.points().len() <= 10, "{:?}", series.points());
        assert_eq!(series.points().last(), Some(&(999, 999)));
        assert_eq!(series.points().len() as u64 + series.lost(), 1000);
        assert!(series.points().windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
