//! Sets of small numbers, such as places in a list of instance types.

/// A set of numbers below a bound that its maker knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// No number.
    pub(super) fn none(bound: usize) -> Self {
        Self(vec![0; bound.div_ceil(64)])
    }

    /// Those below `bound` that `is_in` says yes to.
    pub(super) fn of(bound: usize, is_in: impl Fn(usize) -> bool) -> Self {
        let mut bits = Self::none(bound);
        (0..bound).filter(|number| is_in(*number)).for_each(|number| bits.insert(number));
        bits
    }

    /// Adds a number.
    pub(super) fn insert(&mut self, number: usize) {
        if self.0.len() <= number / 64 {
            self.0.resize(number / 64 + 1, 0);
        }
        self.0[number / 64] |= 1 << (number % 64);
    }

    /// Takes a number away.
    pub(super) fn remove(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    /// Whether the number is there.
    pub(super) fn contains(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    /// Keeps what `other` has too.
    pub(super) fn keep(&mut self, other: &Self) {
        for (index, word) in self.0.iter_mut().enumerate() {
            *word &= other.0.get(index).copied().unwrap_or(0);
        }
    }

    /// Adds what `other` has.
    pub(super) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The numbers in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                if left == 0 {
                    return None;
                }
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                Some(index * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut bits = Bits::of(130, |n| n % 64 == 1);
        assert_eq!(bits.iter().collect::<Vec<_>>(), [1, 65, 129]);
        bits.remove(65);
        bits.insert(200);
        assert_eq!((bits.len(), bits.contains(200), bits.contains(65), bits.contains(9999)), (3, true, false, false));
        bits.keep(&Bits::of(130, |n| n > 1));
        assert_eq!(bits.iter().collect::<Vec<_>>(), [129]);
        bits.join(&Bits::of(3, |n| n == 2));
        assert_eq!(bits.iter().collect::<Vec<_>>(), [2, 129]);
        assert!(Bits::none(5).is_empty() && !bits.is_empty());
    }
}
