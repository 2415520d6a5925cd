//! The time axis of a timeline. Long stretches in which nothing changes are cut short, or else a quiet day would leave no
//! room for the two minutes that matter; a cut is always drawn as one.

/// A gap is cut where it is longer than all shorter gaps together by this factor, and so are all that are longer still.
const CUT_FROM: f64 = 2.5;
/// Shorter gaps are never cut: nobody minds to see a boot in full.
const CUT_FROM_MS: f64 = 60_000.0;
/// Nothing is cut where less than this would be left.
const LEFT_MS: f64 = 5_000.0;
/// A cut is as wide as this part of all that is not cut, and all cuts together are no wider than this many times it.
const CUT_SHARE: f64 = 0.2;
const CUTS_SHARE: f64 = 0.6;
/// No two ticks are closer, in pixels: the longest label is about as wide.
const TICK_APART: f64 = 64.0;
/// The steps between ticks, in milliseconds.
const TICK_STEPS_MS: [u64; 22] = [
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    15_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    900_000,
    1_800_000,
    3_600_000,
    7_200_000,
    10_800_000,
    21_600_000,
    43_200_000,
    86_400_000,
    432_000_000,
];

/// A stretch of the axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stretch {
    pub(super) from_ms: u64,
    pub(super) to_ms: u64,
    pub(super) from_x: f64,
    pub(super) to_x: f64,
    /// Drawn shorter than it is.
    pub(super) cut: bool,
}

/// Where an instant stands.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    stretches: Vec<Stretch>,
}

impl Axis {
    /// An axis from `left` to `right`, from 0 to the end, on which no gap between these instants takes most of the room.
    pub(super) fn new(instants: impl IntoIterator<Item = u64>, end_ms: u64, left: f64, right: f64) -> Self {
        let end_ms = end_ms.max(100);
        let mut all: Vec<u64> = instants.into_iter().filter(|at| *at < end_ms).chain([0, end_ms]).collect();
        all.sort_unstable();
        all.dedup();
        let Cuts { from_ms, drawn_ms } = cuts(&all);
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut position = 0.0;
        for pair in all.windows(2) {
            let length = (pair[1] - pair[0]) as f64;
            let cut = length >= from_ms;
            let from_x = position;
            position += if cut { drawn_ms } else { length };
            match stretches.last_mut().filter(|last| !cut && !last.cut) {
                Some(last) => (last.to_ms, last.to_x) = (pair[1], position),
                None => stretches.push(Stretch { from_ms: pair[0], to_ms: pair[1], from_x, to_x: position, cut }),
            }
        }
        let scale = (right - left) / position;
        for stretch in &mut stretches {
            (stretch.from_x, stretch.to_x) = (left + stretch.from_x * scale, left + stretch.to_x * scale);
        }
        Self { stretches }
    }

    pub(super) fn x(&self, ms: u64) -> f64 {
        let stretch = self.stretches.iter().find(|stretch| ms <= stretch.to_ms).or(self.stretches.last());
        stretch.map_or(0.0, |stretch| {
            let share =
                (ms.min(stretch.to_ms) - stretch.from_ms.min(ms)) as f64 / (stretch.to_ms - stretch.from_ms) as f64;
            stretch.from_x + share * (stretch.to_x - stretch.from_x)
        })
    }

    pub(super) fn cuts(&self) -> impl Iterator<Item = &Stretch> {
        self.stretches.iter().filter(|stretch| stretch.cut)
    }

    /// The instants to label, with room for their labels.
    pub(super) fn ticks(&self) -> Vec<(u64, f64)> {
        let mut ticks: Vec<(u64, f64)> = Vec::new();
        for stretch in self.stretches.iter().filter(|stretch| !stretch.cut) {
            let length = (stretch.to_ms - stretch.from_ms) as f64;
            let pixels_per_ms = (stretch.to_x - stretch.from_x) / length;
            let wide = |step: &&u64| **step as f64 * pixels_per_ms >= TICK_APART;
            let step = TICK_STEPS_MS.iter().find(wide).copied().unwrap_or(u64::MAX);
            let first = stretch.from_ms.div_ceil(step) * step;
            for at in (0..).map_while(|n: u64| first.checked_add(n.checked_mul(step)?)) {
                if at > stretch.to_ms {
                    break;
                }
                let x = self.x(at);
                if ticks.last().is_none_or(|(_, last)| x - last >= TICK_APART) {
                    ticks.push((at, x));
                }
            }
        }
        ticks
    }
}

/// Which gaps are cut, and how long a cut is drawn.
struct Cuts {
    from_ms: f64,
    drawn_ms: f64,
}

fn cuts(instants: &[u64]) -> Cuts {
    let mut gaps: Vec<f64> = instants.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    gaps.sort_by(f64::total_cmp);
    let mut shorter = 0.0;
    for (index, gap) in gaps.iter().enumerate() {
        if shorter >= LEFT_MS && *gap >= CUT_FROM_MS && *gap > CUT_FROM * shorter {
            let number = (gaps.len() - index) as f64;
            return Cuts { from_ms: *gap, drawn_ms: shorter * CUT_SHARE.min(CUTS_SHARE / number) };
        }
        shorter += gap;
    }
    Cuts { from_ms: f64::INFINITY, drawn_ms: 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000;
    const DAY: u64 = 86_400 * SECOND;

    #[test]
    fn a_busy_scenario_has_an_even_axis() {
        let axis = Axis::new((0..60).map(|n| n * SECOND), 60 * SECOND, 100.0, 700.0);
        assert_eq!(axis.cuts().count(), 0);
        assert_eq!((axis.x(0), axis.x(30 * SECOND), axis.x(60 * SECOND)), (100.0, 400.0, 700.0));
    }

    #[test]
    fn a_quiet_day_is_cut_and_leaves_room_for_the_minutes_at_its_ends() {
        let instants = (0..60).chain(86_400..86_460).map(|second| second * SECOND);
        let axis = Axis::new(instants, DAY + 60 * SECOND, 0.0, 600.0);
        let cuts: Vec<&Stretch> = axis.cuts().collect();
        assert_eq!(cuts.iter().map(|cut| (cut.from_ms, cut.to_ms)).collect::<Vec<_>>(), [(59 * SECOND, DAY)]);
        let width = cuts[0].to_x - cuts[0].from_x;
        assert!((width - 100.0).abs() < 0.01, "a fifth of the rest is a sixth of the whole, not {width}");
        // The same second is as wide before the cut as after it.
        let (before, after) = (axis.x(10 * SECOND) - axis.x(0), axis.x(DAY + 10 * SECOND) - axis.x(DAY));
        assert!((before - after).abs() < 0.01 && before > 30.0, "{before} {after}");
    }

    #[test]
    fn many_long_gaps_are_all_cut() {
        let instants = (0..60).map(|second| second * SECOND).chain((1..48).map(|half_hour| half_hour * DAY / 48));
        let axis = Axis::new(instants, DAY, 0.0, 600.0);
        assert_eq!(axis.cuts().count(), 48);
        assert!(axis.x(59 * SECOND) > 300.0, "{}", axis.x(59 * SECOND));
    }

    #[test]
    fn a_boot_of_half_a_minute_is_not_cut() {
        for instants in [[0, 1_000, 6_000, 10_000, 41_000, 44_000], [0, 20, 40, 60, 80, 40_000]] {
            assert_eq!(Axis::new(instants, 56_000, 0.0, 600.0).cuts().count(), 0);
        }
    }

    #[test]
    fn positions_never_run_backwards_and_stay_inside() {
        let instants = [0, 5, 5, 7_000, 9_000_000, 9_000_400];
        let axis = Axis::new(instants, 9_100_000, 50.0, 950.0);
        let xs: Vec<f64> = (0..=9_200_000).step_by(10_000).map(|ms| axis.x(ms)).collect();
        assert!(xs.windows(2).all(|pair| pair[0] <= pair[1]), "{xs:?}");
        assert!(xs.iter().all(|x| (49.999..=950.001).contains(x)));
    }

    #[test]
    fn ticks_are_at_round_times_and_apart() {
        for end_ms in [1, 200, 48_200, 228_200, 1_500_000, 2 * DAY, 30 * DAY] {
            let axis = Axis::new((0..100).map(|n| n * end_ms / 100), end_ms, 200.0, 1100.0);
            let ticks = axis.ticks();
            assert!(ticks.len() <= 15 && !ticks.is_empty(), "{end_ms}: {ticks:?}");
            assert!(ticks.windows(2).all(|pair| pair[1].1 - pair[0].1 >= TICK_APART), "{end_ms}: {ticks:?}");
            assert!(ticks.iter().all(|(at, _)| at % 100 == 0));
        }
    }

    #[test]
    fn a_scenario_without_time_has_an_axis_too() {
        let axis = Axis::new([0, 0], 0, 0.0, 100.0);
        assert_eq!(axis.x(0), 0.0);
        assert!(axis.x(0).is_finite() && axis.cuts().count() == 0);
    }
}
